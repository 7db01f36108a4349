//! `leasehold pressure`: many large jobs through a short queue of a worker pool, and how much memory that took at most.
//!
//! What is shown is back-pressure: a producer that is far faster than the workers waits for room, so the process keeps a queue's worth of
//! payloads, not a run's worth. A queue that was never full has held nobody back: then there is no verdict.

mod report;
mod resident;

use std::{
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use leasehold::pool::{Job, Pool};

use self::report::Report;
use crate::{
    error::{Error, Result},
    load::scenario::Span,
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

    /// How long each job takes, such as 250us or 5ms; asleep, so that it takes so long on any machine. With too little the queue is never full, and
    /// there is no verdict.
    #[arg(long, value_name = "SPAN", default_value = "1ms")]
    pub work: Span,

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

/// More memory was resident, or more jobs waited, than allowed; or nothing was shown.
const NOT_SHOWN: u8 = 1;

/// The bar is drawn for one job in so many.
const EVERY: u64 = 1_024;

/// What a job carries; its number, so that it can be seen to be whole.
struct Payload {
    number: u64,
    bytes: Vec<u8>,
    work: Duration,
}

impl Payload {
    /// Written to the last byte, so that all of it is resident.
    fn new(number: u64, bytes: u32, work: Duration) -> Self {
        Payload { number, bytes: vec![Self::byte(number); bytes as usize], work }
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

    fn work(&self) {
        if !self.work.is_zero() {
            thread::sleep(self.work);
        }
    }
}

pub fn pressure(options: &Pressure) -> Result<ExitCode> {
    let output = Output::open(options.out.as_deref(), &[])?;
    let pool = Pool::<Payload>::builder()
        .workers(options.workers as usize)
        .capacity(options.capacity as usize)
        .build()
        .map_err(|error| Error::Options(error.to_string()))?;
    let start = Instant::now();
    let mut most_queued = 0;
    {
        let bar = ProgressBar::new(options.jobs);
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} jobs eta {eta}");
        bar.set_style(style.expect("the template above is well formed"));
        for number in 0..options.jobs {
            let job = Job::new(Payload::new(number, options.bytes, options.work.0), |payload, _| {
                payload.work();
                if payload.is_whole() { Ok(()) } else { Err("the payload was damaged".into()) }
            });
            pool.submit(job).map_err(|refused| Error::Options(refused.to_string()))?;
            most_queued = most_queued.max(pool.stats().queued);
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
    let report = Report::new(options, seconds, most_queued as u64, resident::peak());
    output.write(&report.render(options.format))?;
    Ok(if report.holds == Some(true) { ExitCode::SUCCESS } else { ExitCode::from(NOT_SHOWN) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_seen() {
        let mut payload = Payload::new(300, 1_000, Duration::ZERO);
        assert!(payload.is_whole());
        payload.bytes[500] = 0;
        assert!(!payload.is_whole());
        assert!(Payload::new(255, 1, Duration::ZERO).is_whole());
    }
}
