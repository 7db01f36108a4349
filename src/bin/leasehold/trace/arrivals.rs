//! Rows become requests: time starts at 0, runs at the chosen speed, and ends at the limit.

use super::{Request, Trace};
use crate::error::Result;

pub struct Arrivals {
    trace: Trace,
    /// Trace seconds per simulated second.
    speed: f64,
    limit: u64,
    first: Option<i128>,
    count: u64,
}

impl Arrivals {
    pub fn new(trace: Trace, speed: f64, limit: Option<u64>) -> Self {
        Arrivals { trace, speed, limit: limit.unwrap_or(u64::MAX), first: None, count: 0 }
    }

    pub fn next_request(&mut self) -> Result<Option<Request>> {
        if self.count == self.limit {
            return Ok(None);
        }
        let Some(row) = self.trace.next_row()? else { return Ok(None) };
        let first = *self.first.get_or_insert(row.at);
        let request = Request {
            number: self.count,
            // A reader has refused what is later; the built-in workload ends before.
            at: virtual_time(row.at - first, self.speed).unwrap_or(LATEST),
            context_tokens: row.context_tokens,
            generated_tokens: row.generated_tokens,
        };
        self.count += 1;
        Ok(Some(request))
    }

    /// Requests handed out so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn trace(&self) -> &Trace {
        &self.trace
    }
}

/// The latest arrival, in nanoseconds of virtual time: far from the end of a `u64`, so that what follows an arrival has
/// room.
pub const LATEST: u64 = 1 << 62;

/// When a request arrives that stands `offset` nanoseconds after the first in the trace. `None` if that is too late.
///
/// One division, correctly rounded and therefore monotonic and the same everywhere; speed 1 is exact at any distance.
pub fn virtual_time(offset: i128, speed: f64) -> Option<u64> {
    let moment = if speed == 1.0 { offset } else { (offset as f64 / speed) as i128 };
    u64::try_from(moment).ok().filter(|&moment| moment <= LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Workload;

    #[test]
    fn starts_at_zero_keeps_order_and_stops_at_the_limit() {
        let mut arrivals = Arrivals::new(Trace::Synthetic(Workload::new(1)), 2.0, Some(100));
        let mut previous = 0;
        let first = arrivals.next_request().unwrap().unwrap();
        assert_eq!((first.at, first.number), (0, 0));
        while let Some(request) = arrivals.next_request().unwrap() {
            assert!(request.at >= previous);
            previous = request.at;
        }
        assert_eq!(arrivals.count(), 100);
    }

    #[test]
    fn scaling() {
        assert_eq!(virtual_time(10, 2.0), Some(5));
        assert_eq!(virtual_time(10, 0.5), Some(20));
        let latest = i128::from(LATEST);
        assert_eq!(virtual_time(latest, 1.0), Some(LATEST));
        assert_eq!(virtual_time(latest + 1, 1.0), None);
        assert_eq!(virtual_time(latest, 0.5), None);
        assert_eq!(virtual_time(latest * 1_000, 1e6), Some(4_611_686_018_427_388));
        assert_eq!(virtual_time(i128::MAX, 1e-6), None);
    }
}
