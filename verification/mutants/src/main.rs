//! Mutation of the library's logic: takes the list of `cargo mutants`, compiles all of it into one build behind a switch,
//! and runs for each mutant the tests that pass it by, until one fails. `run` beside this package says how it is called.
//!
//! | file | idea |
//! |---|---|
//! | `listing` | the mutants |
//! | `sites` | where in the source each applies |
//! | `rewrite` | the source with all of them behind the switch; the switch itself is in `switch.rs` beside `src` |
//! | `plan` | which of them compile so, which need a build of their own, which do not compile at all |
//! | `kind`, `tree` | the builds, for the ordinary tests and for the models, and the copies that are built |
//! | `suite` | the tests, what each takes and whom it passes by |
//! | `trial` | one mutant against its tests |
//! | `campaign` | many of them |
//! | `models` | what no ordinary test notices, against the models |
//! | `ledger` | results, kept between runs |
//! | `known` | `survivors.toml`: who is known to survive, and why |
//! | `report` | what came of it |

mod campaign;
mod kind;
mod known;
mod ledger;
mod listing;
mod models;
mod plan;
mod report;
mod rewrite;
mod sites;
mod suite;
mod tree;
mod trial;

use std::{
    fs,
    path::PathBuf,
    process::ExitCode,
    sync::OnceLock,
    thread,
    time::{Duration, Instant, SystemTime},
};

use known::Known;
use ledger::Ledger;
use listing::Mutant;
use trial::Outcome;

pub type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// What a result depends on.
const STATE: &[&str] = &["src", "tests", "verification", "Cargo.toml", "Cargo.lock", ".cargo/mutants.toml"];

/// Into how many parts the deep tier divides the list.
const SHARDS: usize = 12;

/// The part that a deep run has for them, in seconds, building apart.
const DEEP_SECONDS: usize = 480;

pub struct Settings {
    /// The crate.
    pub root: PathBuf,
    /// Where it is copied to and built.
    pub work: PathBuf,
    /// How many mutants at once.
    pub jobs: usize,
    /// So long after the clock was started no further mutant is begun.
    pub limit: Option<Duration>,
    clock: OnceLock<Instant>,
    /// A number for the present state of the code.
    pub state: u64,
    /// Which mutants the builds have, by number; empty: all.
    pub built: Vec<bool>,
}

impl Settings {
    /// The time runs from here, or from where it ran already: when all is built and measured, so that a slow build takes no mutant's place.
    pub fn start_the_clock(&self) {
        self.clock.get_or_init(Instant::now);
    }

    pub fn is_late(&self) -> bool {
        self.limit.zip(self.clock.get()).is_some_and(|(limit, started)| started.elapsed() > limit)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Fallible<bool> {
    let number = |name: &str| -> Fallible<Option<usize>> {
        let text = std::env::var(name).ok();
        text.map(|text| text.parse().map_err(|_| format!("{name}={text}").into())).transpose()
    };
    let root = std::env::current_dir()?;
    let mut settings = Settings {
        work: root.join("target/mutants"),
        jobs: number("MUTANTS_JOBS")?
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)),
        limit: number("MUTANTS_SECONDS")?
            .or((arguments == ["deep"]).then_some(DEEP_SECONDS))
            .map(|limit| Duration::from_secs(limit as u64)),
        clock: OnceLock::new(),
        state: ledger::state(&root, STATE)?,
        built: Vec::new(),
        root,
    };
    let mutants = listing::list(&settings.root)?;
    let known = Known::read(&settings.root.join("verification/mutants/survivors.toml"), &mutants)?;
    fs::create_dir_all(&settings.work)?;
    let mut ledger = Ledger::open(settings.work.join("results.jsonl"))?;

    let entry = |mutant: &Mutant| ledger.entries.get(&mutant.key());
    let survived = |mutant: &Mutant| entry(mutant).is_some_and(|entry| entry.outcome == Outcome::Survived);
    let choose = |wanted: &dyn Fn(&Mutant) -> bool| -> Vec<usize> {
        (0..mutants.len()).filter(|&number| wanted(&mutants[number])).collect()
    };
    let mut chosen = match arguments {
        ["deep"] => shard(mutants.len())?,
        // What this state has shown already stands.
        ["all"] => choose(&|mutant| entry(mutant).is_none_or(|entry| entry.state != settings.state)),
        ["again"] => choose(&|mutant| entry(mutant).is_none() || survived(mutant)),
        ["open"] => {
            let mut open = choose(&survived);
            open.retain(|number| !known.kinds.contains_key(number));
            open
        }
        ["late"] => choose(&|mutant| entry(mutant).is_some_and(|entry| entry.outcome == Outcome::TimedOut)),
        ["rest"] => choose(&|mutant| entry(mutant).is_none()),
        ["only", text] => choose(&|mutant| mutant.key().contains(text)),
        ["models", text] => {
            let mut open = choose(&|mutant| survived(mutant) && mutant.key().contains(text));
            open.retain(|number| !known.kinds.contains_key(number) && !known.models.contains_key(number));
            print!("{}", models::search(&settings, &mutants, open)?);
            return Ok(true);
        }
        ["table"] => {
            print!("{}", report::table(&mutants, &ledger, &known)?);
            return Ok(true);
        }
        ["left"] => {
            print!("{}", report::left(&mutants, &ledger, &known));
            return Ok(true);
        }
        _ => {
            return Err(
                "usage: mutants deep | all | again | open | late | rest | only TEXT | models TEXT | table | left"
                    .into(),
            );
        }
    };
    // Fewer mutants are built faster, and stand in the way of fewer tests.
    if let Ok(only) = std::env::var("MUTANTS_ONLY") {
        let only: Vec<&str> = only.split(',').collect();
        settings.built = mutants.iter().map(|mutant| only.contains(&mutant.module())).collect();
        chosen.retain(|&number| settings.built[number]);
        chosen.sort_by_key(|&number| only.iter().position(|module| *module == mutants[number].module()));
    } else if arguments == ["deep"] {
        settings.built = vec![false; mutants.len()];
        chosen.iter().for_each(|&number| settings.built[number] = true);
    }
    println!("{} of {} mutants", chosen.len(), mutants.len());
    let done = campaign::run(&settings, &mutants, &chosen, &mut ledger, &known)?;
    println!("not tried, for want of time: {} of {}", chosen.len() - done.len(), chosen.len());
    let (fine, viable) = report::told(&mutants, &done, &ledger, &known);
    // Who does not compile was never tried.
    println!("checked {viable} mutants");
    Ok(fine)
}

/// The numbers of one part: of the day, or that of `MUTANTS_SHARD=K/N`, K from 1. Where it begins goes round as the days do: what there is no
/// time for is not always the same.
fn shard(mutants: usize) -> Fallible<Vec<usize>> {
    let asked = std::env::var("MUTANTS_SHARD").ok();
    let days = SystemTime::UNIX_EPOCH.elapsed()?.as_secs() / (24 * 60 * 60);
    let (k, n) = match asked.as_deref() {
        Some(text) => {
            let (k, n) = text.split_once('/').ok_or(format!("MUTANTS_SHARD={text}"))?;
            (k.parse()?, n.parse()?)
        }
        None => (days as usize % SHARDS + 1, SHARDS),
    };
    if !(1..=n).contains(&k) {
        return Err(format!("no shard {k} of {n}").into());
    }
    println!("shard {k} of {n}; MUTANTS_SHARD=K/N chooses another");
    let mut part: Vec<usize> = (0..mutants).filter(|number| number % n == k - 1).collect();
    // Steps of the golden section: the beginnings of a few rounds lie far apart, and those of many leave no gap.
    let round = days / n as u64;
    let share = (round as u32).wrapping_mul(0x9e37_79b9);
    let start = ((u64::from(share) * part.len() as u64) >> 32) as usize;
    part.rotate_left(start);
    Ok(part)
}
