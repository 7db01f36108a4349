//! What a member needs, told so that it rises at once and falls slowly.

use std::time::Duration;

use crate::sync::Timestamp;

/// What the scheduler shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Leases out.
    pub in_use: u64,
    /// Requests that wait.
    pub waiting: u64,
}

/// The most that was needed within a window: the current half of it and the one before.
#[derive(Clone, Debug, Default)]
pub struct Peak {
    began: Timestamp,
    current: u64,
    before: u64,
}

impl Peak {
    /// Notes what is needed now.
    pub fn note(&mut self, now: Timestamp, need: u64, half: Duration) {
        let passed = now.saturating_since(self.began);
        if passed >= half {
            self.before = if passed >= half * 2 { 0 } else { self.current };
            self.current = 0;
            self.began = now;
        }
        self.current = self.current.max(need);
    }

    /// The most since the beginning of the half before.
    pub fn most(&self) -> u64 {
        self.current.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_last_at_least_half_a_window_and_at_most_a_whole_one() {
        let second = Duration::from_secs(1);
        let at = |tenths: u64| Timestamp::from_nanos(tenths * 100_000_000);
        let mut peak = Peak::default();
        peak.note(at(0), 5, second);
        peak.note(at(9), 1, second);
        assert_eq!(peak.most(), 5);
        peak.note(at(10), 1, second);
        assert_eq!(peak.most(), 5, "of the half before");
        peak.note(at(20), 1, second);
        assert_eq!(peak.most(), 1);
        peak.note(at(60), 0, second);
        assert_eq!(peak.most(), 0, "nothing was seen for long");
    }
}
