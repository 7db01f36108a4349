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

pub struct Settings {
    /// The crate.
    pub root: PathBuf,
    /// Where it is copied to and built.
    pub work: PathBuf,
    /// How many mutants at once.
    pub jobs: usize,
    /// No further mutant is begun then.
    pub until: Option<Instant>,
    /// A number for the present state of the code.
    pub state: u64,
}

impl Settings {
    pub fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() > until)
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
    let settings = Settings {
        work: root.join("target/mutants"),
        jobs: number("MUTANTS_JOBS")?
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)),
        until: number("MUTANTS_SECONDS")?.map(|limit| Instant::now() + Duration::from_secs(limit as u64)),
        state: ledger::state(&root, STATE)?,
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
    let chosen = match arguments {
        ["deep"] => shard(mutants.len())?,
        // What this state has shown already stands.
        ["all"] => choose(&|mutant| entry(mutant).is_none_or(|entry| entry.state != settings.state)),
        ["again"] => choose(&|mutant| entry(mutant).is_none() || survived(mutant)),
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
    println!("{} of {} mutants", chosen.len(), mutants.len());
    let done = campaign::run(&settings, &mutants, &chosen, &mut ledger, &known)?;
    let fine = report::told(&mutants, &done, &ledger, &known);
    println!("checked {} mutants", done.len());
    Ok(fine && !done.is_empty())
}

/// The numbers of one part: of the day, or that of `MUTANTS_SHARD=K/N`, K from 1.
fn shard(mutants: usize) -> Fallible<Vec<usize>> {
    let asked = std::env::var("MUTANTS_SHARD").ok();
    let (k, n) = match asked.as_deref() {
        Some(text) => {
            let (k, n) = text.split_once('/').ok_or(format!("MUTANTS_SHARD={text}"))?;
            (k.parse()?, n.parse()?)
        }
        None => {
            let days = SystemTime::UNIX_EPOCH.elapsed()?.as_secs() / (24 * 60 * 60);
            (days as usize % SHARDS + 1, SHARDS)
        }
    };
    if !(1..=n).contains(&k) {
        return Err(format!("no shard {k} of {n}").into());
    }
    println!("shard {k} of {n}; MUTANTS_SHARD=K/N chooses another");
    Ok((0..mutants).filter(|number| number % n == k - 1).collect())
}
