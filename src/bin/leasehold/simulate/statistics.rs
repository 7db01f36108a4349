//! What a run is measured by.

use hdrhistogram::Histogram;

use super::series::Series;
use crate::load::result::shares;

/// A distribution of whole numbers, exact in count, sum and maximum, and within 0.1 % in its quantiles.
pub struct Distribution {
    histogram: Histogram<u64>,
    sum: u128,
    max: u64,
}

impl Distribution {
    pub fn new() -> Self {
        // Three significant digits; the range grows by itself.
        let histogram = Histogram::new(3).expect("3 significant digits are within 0 to 5");
        Distribution { histogram, sum: 0, max: 0 }
    }

    pub fn record(&mut self, value: u64) {
        // Fails only if the histogram cannot grow, which an automatic one always can.
        self.histogram.record(value).expect("the histogram resizes itself");
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// The smallest value that at least this share of all values does not exceed; 0 if there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        self.histogram.value_at_quantile(share).min(self.max)
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    /// Values and how often each was seen, of those that were; above a thousand within 0.1 %.
    pub fn counts(&self) -> Vec<(u64, u64)> {
        let steps = self.histogram.iter_recorded();
        steps.map(|step| (step.value_iterated_to().min(self.max), step.count_at_value())).collect()
    }

    /// Shares that are evenly spaced on an axis of nines, and the value that each does not exceed, as far as there are values to tell
    /// them apart.
    pub fn curve(&self) -> Vec<(f64, u64)> {
        // Nine decimals: nothing of the last bit, in which machines differ.
        let shares = shares(self.histogram.len()).map(|share| (share * 1e9).round() / 1e9);
        shares.map(|share| (share, self.quantile(share))).collect()
    }

    pub fn mean(&self) -> f64 {
        if self.histogram.is_empty() { 0.0 } else { self.sum as f64 / self.histogram.len() as f64 }
    }
}

/// How much of a resource was in use.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    pub leases: u64,
    /// Nanoseconds of leases, all added up.
    pub held: u128,
}

/// Everything counted while one scheduler replays a trace.
pub struct Statistics {
    pub completed: u64,
    pub failed: u64,
    pub rejected: u64,
    /// Gave up waiting.
    pub expired: u64,
    pub retried: u64,
    pub rate_limited: u64,
    /// Time in the waiting line, for each request that was given a resource.
    pub waiting: Distribution,
    /// Eligible resources strictly better than the one given, for each lease.
    pub rank_error: Distribution,
    /// How many strictly worse ones were lent while a resource could be had, for each lease of it.
    pub delay: Distribution,
    pub series: Series,
    /// Answers that the oracle says are wrong: a resource that was not eligible, "none" while there was one, or a wrong
    /// moment at which there will be one.
    pub disagreements: u64,
    /// In order of the fleet file.
    pub usage: Vec<Usage>,
    /// The last moment at which anything happened.
    pub end: u64,
}

impl Statistics {
    pub fn new(resources: usize) -> Self {
        Statistics {
            completed: 0,
            failed: 0,
            rejected: 0,
            expired: 0,
            retried: 0,
            rate_limited: 0,
            waiting: Distribution::new(),
            rank_error: Distribution::new(),
            delay: Distribution::new(),
            series: Series::new(),
            disagreements: 0,
            usage: vec![Usage::default(); resources],
            end: 0,
        }
    }
}

/// Jain's index: 1 if all are equal, 1/n if one has everything. Nothing at all is fair.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_index() {
        assert_eq!(jain(&[0.5, 0.5, 0.5]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[0.0, 0.0]), 1.0);
        assert_eq!(jain(&[]), 1.0);
    }

    #[test]
    fn distribution() {
        let mut distribution = Distribution::new();
        assert_eq!((distribution.quantile(0.99), distribution.max(), distribution.mean()), (0, 0, 0.0));
        (1..=1_000).for_each(|value| distribution.record(value));
        assert_eq!(
            [0.5, 0.9, 0.99, 0.999, 1.0].map(|q| distribution.quantile(q)),
            [500, 900, 990, 999, 1_000]
        );
        assert_eq!(distribution.mean(), 500.5);
        distribution.record(u64::MAX);
        assert_eq!(distribution.max(), u64::MAX, "the range has no end");
    }
}
