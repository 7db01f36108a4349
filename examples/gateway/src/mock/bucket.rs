//! Limits per minute.

use tokio::time::Instant;

use crate::fleet::Spec;

/// A bucket that is filled evenly, and holds six seconds' worth.
#[derive(Debug)]
struct Bucket {
    most: f64,
    per_second: f64,
    level: f64,
    since: Instant,
}

impl Bucket {
    fn new(per_minute: u64, speed: f64, now: Instant) -> Self {
        let most = (per_minute as f64 / 10.0).max(1.0);
        Bucket { most, per_second: per_minute as f64 / 60.0 * speed, level: most, since: now }
    }

    /// How long until there is that much. More than it holds counts as all that it holds.
    fn wait(&mut self, amount: f64, now: Instant) -> f64 {
        let gone = now.saturating_duration_since(self.since).as_secs_f64();
        self.level = (self.level + gone * self.per_second).min(self.most);
        self.since = now;
        ((amount.min(self.most) - self.level) / self.per_second).max(0.0)
    }

    fn take(&mut self, amount: f64) {
        self.level -= amount.min(self.most);
    }
}

/// The limits of one key.
#[derive(Debug)]
pub struct Buckets {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
}

/// It is too much for now.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    /// Whole seconds, at least one.
    pub seconds: u64,
}

impl Buckets {
    pub fn new(spec: &Spec, speed: f64, now: Instant) -> Self {
        let bucket = |per_minute: Option<u64>| per_minute.map(|limit| Bucket::new(limit, speed, now));
        Buckets { requests: bucket(spec.requests_per_minute), tokens: bucket(spec.tokens_per_minute) }
    }

    /// One request of so many tokens: from both buckets, or from none.
    pub fn take(&mut self, tokens: u64, now: Instant) -> Result<(), Refused> {
        let mut amounts = [(&mut self.requests, 1.0), (&mut self.tokens, tokens as f64)];
        let waits =
            amounts.iter_mut().filter_map(|(bucket, amount)| Some(bucket.as_mut()?.wait(*amount, now)));
        let wait = waits.fold(0.0, f64::max);
        if wait > 0.0 {
            return Err(Refused { seconds: wait.ceil().max(1.0) as u64 });
        }
        for (bucket, amount) in amounts {
            if let Some(bucket) = bucket {
                bucket.take(amount);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_says_when_there_will_be_enough() {
        let now = Instant::now();
        let mut buckets =
            Buckets { requests: Some(Bucket::new(60, 1.0, now)), tokens: Some(Bucket::new(6_000, 1.0, now)) };
        for _ in 0..6 {
            assert_eq!(buckets.take(10, now), Ok(()));
        }
        assert_eq!(buckets.take(10, now), Err(Refused { seconds: 1 }));
        assert_eq!(buckets.take(10, now + Duration::from_secs(1)), Ok(()));
        let later = now + Duration::from_secs(60);
        assert_eq!(buckets.take(1_000_000, later), Ok(()), "all that it holds");
        assert_eq!(buckets.take(500, later), Err(Refused { seconds: 5 }));
        assert_eq!(buckets.take(500, later + Duration::from_secs(5)), Ok(()));
    }
}
