//! A limit per minute, kept as one moment (the generic cell rate algorithm).

/// A token bucket that holds one minute's worth and refills evenly.
///
/// Instead of a level it keeps the moment at which it will be full again: integers only, nothing to refill.
/// A cost above the whole minute is let in when the bucket is full, and leaves it in debt: the rate over time holds
/// for requests of any size.
#[derive(Clone, Debug)]
pub struct Bucket {
    per_minute: u64,
    full_at: u64,
}

pub const MINUTE: u64 = 60_000_000_000;

impl Bucket {
    /// Full at time 0. `per_minute` is not 0.
    pub fn new(per_minute: u64) -> Self {
        Bucket { per_minute, full_at: 0 }
    }

    /// How long until `cost` is let in; 0 if it is now. Takes nothing.
    pub fn delay(&self, now: u64, cost: u64) -> u64 {
        let missing = self.full_at.saturating_sub(now);
        // Missing + cost <= one minute is the condition; what it fails by is the delay.
        missing.saturating_add(self.time(cost).min(MINUTE)).saturating_sub(MINUTE)
    }

    pub fn take(&mut self, now: u64, cost: u64) {
        self.full_at = self.full_at.max(now).saturating_add(self.time(cost));
    }

    /// The time in which `cost` flows in, rounded up so that the limit is never exceeded.
    fn time(&self, cost: u64) -> u64 {
        let nanos = (u128::from(cost) * u128::from(MINUTE)).div_ceil(u128::from(self.per_minute));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_minute_at_once_then_evenly() {
        let mut bucket = Bucket::new(60);
        for _ in 0..60 {
            assert_eq!(bucket.delay(0, 1), 0);
            bucket.take(0, 1);
        }
        assert_eq!(bucket.delay(0, 1), MINUTE / 60);
        assert_eq!(bucket.delay(MINUTE / 60, 1), 0);
        assert_eq!(bucket.delay(MINUTE / 2, 30), 0);
        assert_eq!(bucket.delay(MINUTE / 2, 31), MINUTE / 60);
    }

    #[test]
    fn oversized_cost_needs_a_full_bucket_and_leaves_debt() {
        let mut bucket = Bucket::new(100);
        assert_eq!(bucket.delay(0, 250), 0);
        bucket.take(0, 250);
        assert_eq!(bucket.delay(0, 100), MINUTE * 5 / 2);
        assert_eq!(bucket.delay(MINUTE * 5 / 2, 1_000), 0);
    }

    #[test]
    fn extremes_saturate() {
        let mut bucket = Bucket::new(1);
        bucket.take(u64::MAX, u64::MAX);
        assert_eq!(bucket.delay(0, u64::MAX), u64::MAX - MINUTE);
    }
}
