//! Weakens every ordering of the library, one at a time, and finds the loom model that notices.
//!
//! ```text
//! orderings copy PLACE      only makes the copy there
//! orderings fast            the table in docs/verification.md is that of the source, and every killer in it still kills
//! orderings open            computes the rows that the table lacks, and those of survivors without a reason
//! orderings deep [WHAT]     computes the table anew, or its rows that contain WHAT; fails if it has changed
//! ```
//!
//! Orderings are values at run time. So one copy of the package, in which each is the result of a call (`copy`, `choice.rs`),
//! serves for all mutants, and one build of the models.
//!
//! | file | idea |
//! |---|---|
//! | `scan`, `builds` | where the orderings are, and which builds compile them |
//! | `reasons` | what the source says of weakenings that survive |
//! | `mutants` | every weakening of every site |
//! | `copy`, `models` | the copy, its models, and one run of one of them |
//! | `search` | which model kills |
//! | `table` | the table in the documents |

mod builds;
mod copy;
mod models;
mod mutants;
mod reasons;
mod scan;
mod search;
mod table;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Mutex,
    time::Instant,
};

use models::{Bounds, Models, Outcome};
use mutants::Mutant;
use search::{Search, parallel};
use table::{Document, Verdict};

const TABLE: &str = "docs/verification.md";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let checked = match arguments[..] {
        ["copy", place] => scan::scan(Path::new("."))
            .and_then(|sites| copy::write(Path::new("."), Path::new(place), &sites).map(|()| sites.len())),
        ["fast"] => fast(),
        ["deep"] => deep(Rows::All),
        ["deep", what] => deep(Rows::Containing(what)),
        ["open"] => deep(Rows::Open),
        _ => Err("usage: orderings fast | copy PLACE | open | deep [WHAT]".to_owned()),
    };
    match checked {
        Ok(0) => {
            eprintln!("orderings: nothing was tried");
            ExitCode::FAILURE
        }
        Ok(checked) => {
            println!("checked {checked} mutants");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("orderings: {error}");
            ExitCode::FAILURE
        }
    }
}

const COPY: &str = "target/orderings/copy";

/// Scans, and copies to [`COPY`] unless there is a copy already.
fn prepare(ready: Option<&Path>) -> Result<(Vec<Mutant>, Document), String> {
    let sites = scan::scan(Path::new("."))?;
    let mutants = mutants::mutants(&sites)?;
    let unseen = sites.iter().filter(|site| !site.builds.loom).count();
    let stand_ins = sites.iter().filter(|site| !site.builds.product).count();
    println!(
        "{} orderings, {} weakenings; {stand_ins} orderings are in what replaces a dependency in a model, {unseen} in what loom \
         does not compile",
        sites.len(),
        mutants.len(),
    );
    match ready {
        Some(ready) => copy::check(ready, &sites)?,
        None => copy::write(Path::new("."), Path::new(COPY), &sites)?,
    }
    Ok((mutants, Document::read(Path::new(TABLE))?))
}

fn build(copy: &Path) -> Result<Models, String> {
    Models::build(copy, Path::new("target/orderings/logs"))
}

/// What is wrong with these verdicts, whatever the models say.
fn faults<'a>(rows: impl Iterator<Item = (&'a Mutant, &'a Verdict)>) -> Vec<String> {
    let fault = |(mutant, verdict): (&Mutant, &Verdict)| {
        let fault = match verdict {
            Verdict::Killed { .. } if mutant.reason.is_some() => {
                "is killed, but the source says why it survives"
            }
            Verdict::Survived if mutant.reason.is_none() => "survives, and the source does not say why",
            Verdict::NeverRun if mutant.reason.is_none() => {
                "is run by no model, and the source does not say why"
            }
            _ => return None,
        };
        Some(format!("{}: {fault}", mutant.cells.join(", ")))
    };
    rows.filter_map(fault).collect()
}

fn fast() -> Result<usize, String> {
    let ready = std::env::var_os("ORDERINGS_COPY").map(PathBuf::from);
    let (mutants, document) = prepare(ready.as_deref())?;
    let recorded: Option<Vec<&Verdict>> = mutants.iter().map(|mutant| document.verdict(mutant)).collect();
    let rows = || mutants.iter().filter_map(|mutant| Some((mutant, document.verdict(mutant)?)));
    for mutant in mutants.iter().filter(|mutant| document.verdict(mutant).is_none()) {
        println!("no row: {}", mutant.cells.join(", "));
    }
    if recorded.is_none() || !document.says(&table::render(rows())) {
        return Err(format!(
            "the table in {TABLE} is not that of the source: run `verification/orderings/run deep`"
        ));
    }
    let faults = faults(rows());
    if !faults.is_empty() {
        return Err(faults.join("\n"));
    }
    let models = build(ready.as_deref().unwrap_or(Path::new(COPY)))?;
    let started = Instant::now();
    // That a killer fails means something only if it passes when nothing is weakened.
    let killers: BTreeSet<&String> = rows()
        .filter_map(
            |(_, verdict)| if let Verdict::Killed { model, .. } = verdict { Some(model) } else { None },
        )
        .collect();
    let killers: Vec<&String> = killers.into_iter().collect();
    // Whether the copy is whole; `loom/run` has explored the models as they are.
    parallel(&killers, |model| match models.run(model, None, Bounds { preemptions: 1, seconds: 1 })? {
        Outcome::Passed { reached } if !reached.is_empty() => Ok(()),
        outcome => Err(format!("{model} with nothing weakened: {outcome:?}")),
    })?;
    let killed: Vec<(&Mutant, &Verdict)> =
        rows().filter(|(_, verdict)| matches!(verdict, Verdict::Killed { .. })).collect();
    let survivors = mutants.len() - killed.len();
    let alive = parallel(&killed, |(mutant, verdict)| {
        let Verdict::Killed { model, preemptions } = verdict else { return Ok(None) };
        let bounds = Bounds { preemptions: *preemptions, seconds: search::RECORDED };
        Ok(match models.run(model, Some(mutant), bounds)? {
            Outcome::Failed(_) => None,
            outcome => {
                Some(format!("{}: {model} does not notice any more ({outcome:?})", mutant.cells.join(", ")))
            }
        })
    })?;
    let alive: Vec<String> = alive.into_iter().flatten().collect();
    if !alive.is_empty() {
        return Err(alive.join("\n"));
    }
    println!(
        "{} are noticed by their {} models, {survivors} survive for a reason; {} s after the build",
        killed.len(),
        killers.len(),
        started.elapsed().as_secs(),
    );
    Ok(killed.len())
}

/// Which rows are computed.
#[derive(Clone, Copy)]
enum Rows<'a> {
    All,
    Containing(&'a str),
    /// Those that are not there yet, and survivors without a reason.
    Open,
}

impl Rows<'_> {
    fn contain(self, mutant: &Mutant, recorded: Option<&Verdict>) -> bool {
        match self {
            Rows::All => true,
            Rows::Containing(what) => mutant.cells.iter().any(|cell| cell.contains(what)),
            Rows::Open => match recorded {
                None => true,
                Some(Verdict::Killed { .. }) => mutant.reason.is_some(),
                Some(_) => mutant.reason.is_none(),
            },
        }
    }
}

fn deep(rows: Rows<'_>) -> Result<usize, String> {
    let (mutants, document) = prepare(None)?;
    let wanted: Vec<bool> =
        mutants.iter().map(|mutant| rows.contain(mutant, document.verdict(mutant))).collect();
    let recorded: Vec<Option<Verdict>> =
        mutants.iter().map(|mutant| document.verdict(mutant).cloned()).collect();
    let verdicts = Mutex::new(recorded.clone());
    let render = || {
        let verdicts = verdicts.lock().expect("no panic while held");
        table::render(mutants.iter().zip(&*verdicts).filter_map(|(mutant, it)| Some((mutant, it.as_ref()?))))
    };
    let chosen: Vec<usize> = (0..mutants.len()).filter(|&number| wanted[number]).collect();
    if !chosen.is_empty() {
        let models = build(Path::new(COPY))?;
        let search = Search::begin(&models, Path::new("target/orderings/reached"))?;
        let writing = Mutex::new(());
        parallel(&chosen, |&number| {
            let verdict = search.judge(&mutants[number], recorded[number].as_ref())?;
            verdicts.lock().expect("no panic while held")[number] = Some(verdict);
            // At once: what a run has found that is then cut off is not lost.
            let _one_at_a_time = writing.lock();
            table::write(Path::new(TABLE), &render())
        })?;
    }
    let table = render();
    table::write(Path::new(TABLE), &table)?;
    let verdicts = verdicts.lock().expect("no panic while held");
    let judged = chosen.iter().filter_map(|&number| Some((&mutants[number], verdicts[number].as_ref()?)));
    let mut faults = faults(judged);
    if !document.says(&table) {
        faults.push(format!("the table in {TABLE} has changed; it is written anew"));
    }
    if faults.is_empty() { Ok(chosen.len()) } else { Err(faults.join("\n")) }
}
