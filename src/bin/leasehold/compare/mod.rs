//! `leasehold compare`: nanoseconds per operation of the scheduler and of the mutex baseline, side by side.
//!
//! * [`cases`]: which operations are measured, each written once for every [`leasehold::baseline::Lend`].
//! * [`measure`]: takes turns between two sides, whatever these are, and knows nothing of schedulers.
//! * [`report`]: what is printed.
//!
//! Only the ratio within one run means something on another machine, so it is what the measurement protects: both
//! sides in one process, in turns, each pair in the opposite order of the one before.

mod cases;
mod measure;
mod report;

use std::{fmt::Display, ops::RangeInclusive, path::PathBuf, str::FromStr, thread, time::Duration};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use leasehold::{Scheduler, baseline::MutexScheduler};

use self::{
    cases::{Asset, Operation, fleet, side},
    measure::{Plan, alternate},
    report::{Case, Report},
};
use crate::{
    error::{Error, Result},
    output::Output,
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

    /// Form of the report.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Write the report to FILE instead of standard output (`-`): whole or not at all.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
}

pub fn compare(options: &Compare) -> Result<()> {
    let resources = number("--resources", &options.resources, 1..=10_000_000u32)?;
    let shards = options.shards.as_ref().map(|text| number("--shards", text, 1..=1024usize)).transpose()?;
    let pairs = number("--pairs", &options.pairs, 5..=1_000usize)?;
    let milliseconds = number("--milliseconds", &options.milliseconds, 1..=60_000u64)?;
    let counts = thread_counts(resources)?;
    let output = Output::open(options.out.as_deref().filter(|path| path.as_os_str() != "-"))?;

    let length = Duration::from_millis(milliseconds);
    let progress = Progress::new(Operation::ALL.len() * counts.len());
    let mut cases = Vec::new();
    for operation in Operation::ALL {
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
    drop(progress);
    let report = Report::new(cases, pairs, milliseconds);
    output.write(&report.render(options.format))
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
    fn counts_of_threads_differ() {
        let counts = thread_counts(1_000_000).unwrap();
        assert_eq!(counts[0], 1);
        assert!(counts.is_sorted_by(|a, b| a < b) && counts.len() <= 2);
    }
}
