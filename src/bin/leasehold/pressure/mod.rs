//! `leasehold pressure`: many large jobs through a short queue of a worker pool, and how much memory that took at most.
//!
//! What is shown is back-pressure: a producer that is far faster than the workers waits for room, so the process keeps a queue's worth of
//! payloads, not a run's worth.

mod report;
mod resident;

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use leasehold::pool::{Job, Pool};

use self::report::Report;
use crate::{
    error::{Error, Result},
    output::{Format, Output},
};

#[derive(Args, Debug)]
pub struct Pressure {
    /// Jobs that go through the pool.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub jobs: u64,

    /// Bytes of each job's payload, all of them written.
    #[arg(long, value_name = "N", default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    pub bytes: u32,

    /// Jobs that may wait.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub capacity: u32,

    /// Workers of the pool.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub workers: u32,

    /// Bytes of memory that may be resident at most; more ends the run with exit code 1.
    #[arg(long, value_name = "BYTES", default_value_t = 1_000_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,

    /// Form of the report.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Write the report to FILE instead of standard output (`-`): whole or not at all.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// More memory was resident than allowed, or how much is not known.
const LIMIT_MISSED: u8 = 1;

/// The bar is drawn for one job in so many.
const EVERY: u64 = 1_024;

/// What a job carries; its number, so that it can be seen to be whole.
struct Payload {
    number: u64,
    bytes: Vec<u8>,
}

impl Payload {
    /// Written to the last byte, so that all of it is resident.
    fn new(number: u64, bytes: u32) -> Self {
        Payload { number, bytes: vec![Self::byte(number); bytes as usize] }
    }

    /// Not zero, which the system would hand out without touching anything.
    fn byte(number: u64) -> u8 {
        1 + (number % 255) as u8
    }

    fn is_whole(&self) -> bool {
        let byte = Self::byte(self.number);
        [self.bytes.first(), self.bytes.get(self.bytes.len() / 2), self.bytes.last()]
            .into_iter()
            .all(|found| found == Some(&byte))
    }
}

pub fn pressure(options: &Pressure) -> Result<ExitCode> {
    let output = Output::open(options.out.as_deref())?;
    let pool = Pool::<Payload>::builder()
        .workers(options.workers as usize)
        .capacity(options.capacity as usize)
        .build()
        .map_err(|error| Error::Options(error.to_string()))?;
    let start = Instant::now();
    {
        let bar = ProgressBar::new(options.jobs);
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} jobs eta {eta}");
        bar.set_style(style.expect("the template above is well formed"));
        for number in 0..options.jobs {
            let job = Job::new(Payload::new(number, options.bytes), |payload, _| {
                if payload.is_whole() { Ok(()) } else { Err("the payload was damaged".into()) }
            });
            pool.submit(job).map_err(|refused| Error::Options(refused.to_string()))?;
            if number % EVERY == 0 {
                bar.set_position(number);
            }
        }
        bar.finish_and_clear();
    }
    let ended = pool.shutdown(Duration::MAX);
    let seconds = start.elapsed().as_secs_f64();
    let stats = pool.stats();
    if !ended.is_complete() || stats.done != options.jobs {
        return Err(Error::Options(format!("of {} jobs {} ended well", options.jobs, stats.done)));
    }
    let report = Report::new(options, seconds, resident::peak());
    output.write(&report.render(options.format))?;
    Ok(if report.holds == Some(true) { ExitCode::SUCCESS } else { ExitCode::from(LIMIT_MISSED) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_seen() {
        let mut payload = Payload::new(300, 1_000);
        assert!(payload.is_whole());
        payload.bytes[500] = 0;
        assert!(!payload.is_whole());
        assert!(Payload::new(255, 1).is_whole());
    }
}
