//! What is printed.

use std::fmt::Write;

use serde::Serialize;

use super::Pressure;
use crate::output::Format;

/// Changes with the meaning of a field.
const SCHEMA: u32 = 1;

#[derive(Debug, Serialize)]
pub struct Report {
    schema: u32,
    /// What tells this JSON from that of other commands.
    kind: &'static str,
    jobs: u64,
    bytes_per_job: u32,
    capacity: u32,
    workers: u32,
    work_seconds: f64,
    seconds: f64,
    jobs_per_second: f64,
    /// The most jobs that were in the queue just after one had come in.
    most_queued: u64,
    resident_bytes: Option<u64>,
    limit_bytes: u64,
    /// Whether no more was resident, and no more jobs waited, than allowed; none if nothing is shown.
    pub holds: Option<bool>,
    /// Why nothing is shown.
    no_verdict: Option<&'static str>,
}

impl Report {
    pub fn new(options: &Pressure, seconds: f64, most_queued: u64, resident: Option<u64>) -> Self {
        let capacity = u64::from(options.capacity);
        let (holds, no_verdict) = match resident {
            _ if most_queued > capacity => (Some(false), None),
            Some(resident) if resident > options.limit => (Some(false), None),
            _ if most_queued < capacity => (None, Some("the queue was never full: nobody was held back")),
            None => (None, Some("the system does not say what is resident")),
            Some(_) => (Some(true), None),
        };
        Report {
            schema: SCHEMA,
            kind: "pressure",
            jobs: options.jobs,
            bytes_per_job: options.bytes,
            capacity: options.capacity,
            workers: options.workers,
            work_seconds: options.work.0.as_secs_f64(),
            seconds,
            jobs_per_second: options.jobs as f64 / seconds.max(1e-9),
            most_queued,
            resident_bytes: resident,
            limit_bytes: options.limit,
            holds,
            no_verdict,
        }
    }

    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Table => self.table(),
            Format::Json => {
                let mut text = serde_json::to_string_pretty(self).expect("numbers only");
                text.push('\n');
                text
            }
        }
    }

    fn table(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            // A string takes everything.
            let _ = writeln!(text, "{name:<18} {value:>18}");
        };
        row("jobs", self.jobs.to_string());
        row("bytes a job", self.bytes_per_job.to_string());
        row("may wait", self.capacity.to_string());
        row("have waited", self.most_queued.to_string());
        row("workers", self.workers.to_string());
        row("work a job, ms", format!("{:.3}", self.work_seconds * 1e3));
        row("seconds", format!("{:.2}", self.seconds));
        row("jobs a second", format!("{:.0}", self.jobs_per_second));
        row("payloads, GB", format!("{:.3}", self.jobs as f64 * f64::from(self.bytes_per_job) / 1e9));
        let resident = self.resident_bytes.map(|bytes| format!("{:.3}", bytes as f64 / 1e9));
        row("resident, GB", resident.unwrap_or_else(|| "not known".into()));
        row("at most, GB", format!("{:.3}", self.limit_bytes as f64 / 1e9));
        let verdict = match (self.holds, self.no_verdict) {
            (Some(true), _) => "holds".into(),
            (Some(false), _) => "FAILED".into(),
            (None, why) => format!("none: {}", why.unwrap_or_default()),
        };
        row("verdict", verdict);
        text
    }
}
