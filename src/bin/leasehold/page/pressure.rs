//! What `pressure` has found: how much was resident, against what was allowed and what went through.

use serde::Deserialize;

use super::{
    chart::{Bar, Below, Figure, across, up_to},
    html::facts,
    table::{Cell, count, digits, table},
};

/// What is used of the result.
#[derive(Deserialize)]
pub struct Pressure {
    jobs: u64,
    bytes_per_job: u64,
    capacity: u64,
    workers: u64,
    limit_bytes: u64,
    seconds: f64,
    jobs_per_second: f64,
    resident_bytes: Option<u64>,
    holds: Option<bool>,
    /// None in results of older versions, as the next one.
    most_queued: Option<u64>,
    no_verdict: Option<String>,
}

impl Pressure {
    pub fn html(&self) -> String {
        let told = [
            ("jobs", count(self.jobs as f64)),
            ("bytes of each", count(self.bytes_per_job as f64)),
            ("jobs that may wait", count(self.capacity as f64)),
            (
                "jobs that have waited",
                self.most_queued.map_or_else(|| "–".to_owned(), |most| count(most as f64)),
            ),
            ("workers", count(self.workers as f64)),
            ("seconds", digits(self.seconds)),
            ("jobs a second", count(self.jobs_per_second)),
            (
                "verdict",
                match (self.holds, &self.no_verdict) {
                    (Some(true), _) => "holds".to_owned(),
                    (Some(false), _) => {
                        "MISSED: more was resident, or more jobs waited, than allowed".to_owned()
                    }
                    (None, Some(why)) => format!("none: {why}"),
                    (None, None) => "not measured: the system does not say what is resident".to_owned(),
                },
            ),
        ];
        facts(&told.map(|(name, value)| (name.to_owned(), value))) + &self.memory().html()
    }

    fn memory(&self) -> Figure {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let queue = self.capacity.saturating_mul(self.bytes_per_job);
        let rows = [
            ("resident at most", self.resident_bytes, usize::from(self.holds == Some(false))),
            ("a full queue's payloads", Some(queue), 2),
            ("allowed", Some(self.limit_bytes), 5),
        ];
        let bars: Vec<Bar> = rows
            .iter()
            .filter_map(|&(name, bytes, colour)| {
                let value = megabytes(bytes?);
                Some(Bar { name: name.into(), value, shown: digits(value), colour, spread: None })
            })
            .collect();
        let title = "Memory";
        let below = Below {
            title: "megabytes",
            label: count,
            end: up_to(bars.iter().map(|bar| bar.value).fold(0.0, f64::max)).end,
            line: Some(megabytes(self.limit_bytes)),
        };
        let cells = rows.iter().map(|&(name, bytes, _)| {
            let shown = bytes.map_or_else(|| "–".to_owned(), |bytes| count(bytes as f64));
            vec![Cell::from(name.to_owned()), shown.into()]
        });
        Figure {
            title: title.into(),
            note: format!(
                "All payloads together were {} megabytes; the upright line is what may be resident.",
                count(self.jobs as f64 * self.bytes_per_job as f64 / 1e6)
            ),
            legend: Vec::new(),
            svg: across(title, &below, &bars),
            table: table(&["what", "bytes"], cells),
        }
    }
}
