//! What a process tells when it has settled.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{
    super::{
        recorder::{Record, times},
        result::{Held, Run},
    },
    uses::Span,
};

#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    pub name: String,
    /// The process's own result.
    pub run: Run,
    pub times: Raw,
    /// Leases of each of its workers, and of each resource.
    pub served: Vec<u64>,
    pub leases: Vec<u64>,
    pub held: Held,
    pub claimed: u64,
    pub returned: u64,
    pub lost: u64,
    pub server_failures: u64,
    pub spans: Vec<Span>,
    /// Leases whose claim had ended before they could be used.
    pub unused: u64,
}

/// Distributions that can be added: values and how often each was seen.
#[derive(Debug, Serialize, Deserialize)]
pub struct Raw {
    pub waiting: Counted,
    pub latency: Counted,
    pub unanswered: Counted,
    pub uncorrected: Counted,
    pub held: Counted,
    pub delayed: Counted,
    pub late: Counted,
    pub sent_late: Counted,
    pub completed: Counted,
    pub failed: Counted,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Counted(Vec<(u64, u64)>);

impl Raw {
    pub fn new(record: &Record) -> Self {
        Raw {
            waiting: Counted::new(&record.waiting),
            latency: Counted::new(&record.latency),
            unanswered: Counted::new(&record.unanswered),
            uncorrected: Counted::new(&record.uncorrected),
            held: Counted::new(&record.held),
            delayed: Counted::new(&record.delayed),
            late: Counted::new(&record.late),
            sent_late: Counted::new(&record.sent_late),
            completed: Counted::new(&record.completed),
            failed: Counted::new(&record.failed),
        }
    }
}

impl Counted {
    fn new(histogram: &Histogram<u64>) -> Self {
        let counts = histogram.iter_recorded();
        Counted(counts.map(|step| (step.value_iterated_to(), step.count_at_value())).collect())
    }

    pub fn sum<'a>(all: impl Iterator<Item = &'a Counted>) -> Histogram<u64> {
        let mut sum = times();
        for Counted(counts) in all {
            counts.iter().for_each(|&(value, count)| sum.saturating_record_n(value, count));
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_on_the_way() {
        let mut whole = times();
        let mut halves = [times(), times()];
        for value in (1..2_000u64).map(|value| value * value * 37) {
            whole.record(value).unwrap();
            halves[(value % 2) as usize].record(value).unwrap();
        }
        let counted: Vec<Counted> = halves.iter().map(Counted::new).collect();
        let text = serde_json::to_string(&counted).unwrap();
        let counted: Vec<Counted> = serde_json::from_str(&text).unwrap();
        let sum = Counted::sum(counted.iter());
        for share in [0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0] {
            assert_eq!(sum.value_at_quantile(share), whole.value_at_quantile(share));
        }
        assert_eq!(sum.len(), whole.len());
    }
}
