//! `leasehold compare`: nanoseconds per operation of the scheduler and of the mutex baseline, side by side, and the bars
//! that the scheduler is held to.
//!
//! * [`cases`]: which operations are measured, each written once for every [`leasehold::baseline::Lend`].
//! * [`bars`]: the rows that have a baseline of their own and a bar.
//! * [`measure`]: takes turns between sides, whatever these are, and knows nothing of schedulers.
//! * [`allocations`]: counts what is allocated.
//! * [`report`]: what is printed.
//!
//! Only the ratio within one run means something on another machine, so it is what the measurement protects: both
//! sides in one process, in turns, each pair in the opposite order of the one before.

mod allocations;
mod bars;
mod cases;
mod measure;
mod report;

use std::{
    fmt::Display, ops::RangeInclusive, path::PathBuf, process::ExitCode, str::FromStr, thread, time::Duration,
};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use leasehold::{Scheduler, baseline::MutexScheduler};

pub use self::allocations::live_bytes;
use self::{
    bars::ROWS,
    cases::{Asset, Operation, fleet, side},
    measure::{Plan, alternate},
    report::{Case, Held, Report},
};
use crate::{
    error::{Error, Result},
    output::{Format, Output},
};

/// Numbers are taken as text: one out of range is then told in one line, like any other bad input.
#[derive(Args, Debug)]
pub struct Compare {
    /// Resources of the fleet, all exclusive: 1 to 10000000, at least one a thread.
    #[arg(long, value_name = "N", default_value = "10000", allow_hyphen_values = true)]
    pub resources: String,

    /// Shards of the scheduler, 1 to 1024 [default: the library's, four a processor].
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub shards: Option<String>,

    /// How often each side runs, in turns: 5 to 1000.
    #[arg(long, value_name = "N", default_value = "7", allow_hyphen_values = true)]
    pub pairs: String,

    /// Length of a run, 1 to 60000.
    #[arg(long, value_name = "N", default_value = "80", allow_hyphen_values = true)]
    pub milliseconds: String,

    /// Measure only what has this name, in either part of the report; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// Exit with 1 if a bar does not hold, or could not be measured by this build.
    #[arg(long)]
    pub check: bool,

    /// Form of the report.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Write the report to FILE instead of standard output (`-`): whole or not at all.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Shards of the rows with bars, if none are asked for.
const SHARDS: usize = 8;

pub fn compare(options: &Compare) -> Result<ExitCode> {
    let resources = number("--resources", &options.resources, 1..=10_000_000u32)?;
    let shards = options.shards.as_ref().map(|text| number("--shards", text, 1..=1024usize)).transpose()?;
    let pairs = number("--pairs", &options.pairs, 5..=1_000usize)?;
    let milliseconds = number("--milliseconds", &options.milliseconds, 1..=60_000u64)?;
    let counts = thread_counts(resources)?;
    let selected = Selected::new(&options.only)?;
    let output = Output::open(options.out.as_deref(), &[])?;

    let length = Duration::from_millis(milliseconds);
    let operations: Vec<_> =
        Operation::ALL.into_iter().filter(|operation| selected.has(operation.name())).collect();
    let rows: Vec<_> = ROWS.iter().filter(|row| selected.has(row.name)).collect();
    let progress = Progress::new(operations.len() * counts.len() + rows.len());
    let mut cases = Vec::new();
    for operation in operations {
        for &threads in &counts {
            progress.tell(operation.name());
            let scheduler = scheduler(shards)?;
            let baseline = MutexScheduler::new();
            fleet(&scheduler, resources);
            fleet(&baseline, resources);
            let plan = Plan { threads, resources, pairs, length };
            let times = alternate(&plan, &side(operation, &scheduler), &side(operation, &baseline));
            cases.push(Case::new(operation.name(), &plan, scheduler.shards(), &times));
        }
    }
    let mut bars = Vec::new();
    for row in rows {
        progress.tell(row.name);
        let setting = row.setting(resources, shards.unwrap_or(SHARDS), pairs, length);
        bars.push(Held::new(row, &setting, &row.measure(&setting)));
    }
    drop(progress);
    let report = Report::new(cases, bars, pairs, milliseconds);
    output.write(&report.render(options.format))?;
    Ok(if options.check && !report.all_hold() { ExitCode::from(BAR_MISSED) } else { ExitCode::SUCCESS })
}

/// The exit code of `--check` if a bar does not hold.
const BAR_MISSED: u8 = 1;

/// What `--only` asks for: everything if nothing.
struct Selected<'a>(&'a [String]);

impl<'a> Selected<'a> {
    fn new(names: &'a [String]) -> Result<Self> {
        let mut known: Vec<&str> = Operation::ALL.iter().map(|operation| operation.name()).collect();
        known.extend(ROWS.iter().map(|row| row.name));
        known.dedup();
        match names.iter().find(|name| !known.contains(&name.as_str())) {
            Some(unknown) => Err(Error::Options(format!(
                "--only: found {unknown:?}, expected one of {}",
                known.join(", ")
            ))),
            None => Ok(Selected(names)),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|only| only == name)
    }
}

fn scheduler(shards: Option<usize>) -> Result<Scheduler<Asset>> {
    let builder = Scheduler::builder();
    let builder = match shards {
        Some(shards) => builder.shards(shards),
        None => builder,
    };
    builder.build().map_err(|error| Error::Options(format!("compare: {error}")))
}

/// One thread, and all that the machine runs at once, if that is more. A thread holds at most one resource, so with
/// one resource each no acquisition finds nothing.
fn thread_counts(resources: u32) -> Result<Vec<usize>> {
    let all = thread::available_parallelism().map_or(1, usize::from);
    if (resources as usize) < all {
        return Err(Error::Options(format!(
            "--resources: expected at least one for each of {all} threads, found {resources}"
        )));
    }
    Ok(if all == 1 { vec![1] } else { vec![1, all] })
}

fn number<T: FromStr + PartialOrd + Display>(
    option: &str,
    text: &str,
    range: RangeInclusive<T>,
) -> Result<T> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        let (least, most) = range.into_inner();
        Error::Options(format!("{option}: expected a whole number from {least} to {most}, found {text:?}"))
    })
}

/// A progress bar on standard error, if that is a terminal. It is drawn between the measurements only.
struct Progress(ProgressBar);

impl Progress {
    fn new(rows: usize) -> Self {
        let bar = ProgressBar::new(rows as u64);
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}");
        bar.set_style(style.expect("the template above is well formed"));
        Progress(bar)
    }

    /// The next row begins.
    fn tell(&self, name: &'static str) {
        self.0.set_message(name);
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_range() {
        assert_eq!(number("--pairs", "5", 5..=9u32).unwrap(), 5);
        for text in ["", "x", "4", "10", "-5", "5.5", "99999999999999999999"] {
            let line = number("--pairs", text, 5..=9u32).unwrap_err().to_string();
            assert_eq!(line, format!("--pairs: expected a whole number from 5 to 9, found {text:?}"));
        }
    }

    #[test]
    fn only_what_is_asked_for() {
        let names = ["peek".to_owned(), "pair/16".to_owned()];
        let selected = Selected::new(&names).unwrap();
        assert!(selected.has("peek") && selected.has("pair/16") && !selected.has("pair"));
        assert!(Selected::new(&[]).unwrap().has("pair"));
        let line = Selected::new(&["pairs".to_owned()]).err().unwrap().to_string();
        assert!(
            line.starts_with("--only: found \"pairs\", expected one of acquire+release, peek, "),
            "{line}"
        );
    }

    #[test]
    fn counts_of_threads_differ() {
        let counts = thread_counts(1_000_000).unwrap();
        assert_eq!(counts[0], 1);
        assert!(counts.is_sorted_by(|a, b| a < b) && counts.len() <= 2);
    }
}
