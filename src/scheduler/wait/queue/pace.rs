//! How fast things are handed over.

/// As many at least are counted together.
const MANY: u64 = 64;

/// A mean over what was handed over lately: between one and two windows. A window is over once it has [`MANY`], and has lasted for four
/// times the longest interval in it: things that come back all at once, time after time, are counted over several such times.
#[derive(Debug, Default)]
pub struct Pace {
    last: Option<u64>,
    now: Window,
    before: Window,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    count: u64,
    /// Nanoseconds, as the next.
    span: u64,
    longest: u64,
}

impl Pace {
    /// The first of a line waits since now: the time before, when nobody wanted anything, says nothing.
    pub fn start(&mut self, now: u64) {
        self.last = Some(now);
    }

    /// Something is handed over now.
    pub fn tick(&mut self, now: u64) {
        let Some(last) = self.last.replace(now) else { return };
        let interval = now.saturating_sub(last);
        let window = &mut self.now;
        window.count += 1;
        window.span = window.span.saturating_add(interval);
        window.longest = window.longest.max(interval);
        if window.count >= MANY && window.longest > 0 && window.span / 4 >= window.longest {
            self.before = std::mem::take(window);
        }
    }

    /// How long until `number` more have been handed over; `None` if that cannot be said yet.
    pub fn expect(&self, number: u64) -> Option<u64> {
        let count = self.now.count + self.before.count;
        let span = self.now.span.saturating_add(self.before.span);
        let expected = u128::from(span) * u128::from(number) / u128::from(count.max(1));
        (span > 0).then(|| u64::try_from(expected).unwrap_or(u64::MAX))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// So many at once, each millisecond.
    fn bursts(of: u64, times: u64) -> Pace {
        let mut pace = Pace::default();
        pace.start(0);
        for burst in 1..=times {
            (0..of).for_each(|_| pace.tick(burst * 1_000_000));
        }
        pace
    }

    #[test]
    fn nothing_is_known_before_the_first() {
        let mut pace = Pace::default();
        assert_eq!(pace.expect(1), None);
        pace.start(5);
        assert_eq!(pace.expect(1), None);
        pace.tick(15);
        assert_eq!(pace.expect(3), Some(30));
    }

    #[test]
    fn what_comes_back_together_is_counted_over_several_times() {
        for of in [1, 2, 7, 50, 64, 500] {
            for times in 8..200 {
                let expected = bursts(of, times).expect(1_000).unwrap();
                let exact = 1_000 * 1_000_000 / of;
                assert!(
                    (exact * 3 / 4..=exact * 5 / 4).contains(&expected),
                    "{of} at once, {times} times: {expected} ns, not {exact}"
                );
            }
        }
    }

    #[test]
    fn a_new_pace_is_learnt() {
        let mut pace = bursts(1, 1_000);
        let mut now = 1_000 * 1_000_000;
        for _ in 0..1_000 {
            now += 1_000;
            pace.tick(now);
        }
        assert_eq!(pace.expect(1), Some(1_000));
    }

    #[test]
    fn nothing_overflows() {
        let mut pace = Pace::default();
        pace.start(0);
        pace.tick(u64::MAX);
        pace.tick(0);
        pace.tick(u64::MAX);
        assert_eq!(pace.expect(u64::MAX), Some(u64::MAX));
    }
}
