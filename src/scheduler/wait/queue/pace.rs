//! How fast things are handed over.

/// As many at least are counted together.
const MANY: u64 = 64;

/// So many are enough, whatever else.
const ENOUGH: u64 = 64 * MANY;

/// A mean over what was handed over lately to those who take anything, while one of them waited: between one and two windows.
///
/// A window is over once it has [`MANY`], and has lasted for four times the longest interval in it: things that come back all at once, time
/// after time, are counted over several such times. Or once it has [`ENOUGH`]: a long time in which nothing came back is not remembered
/// for ever.
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
        self.last = self.last.max(Some(now));
    }

    /// Something is handed over now. Those who tell so have read the clock before they came here, and may come in any order.
    pub fn tick(&mut self, now: u64) {
        let Some(last) = self.last else {
            self.last = Some(now);
            return;
        };
        let interval = now.saturating_sub(last);
        self.last = Some(last.max(now));
        let window = &mut self.now;
        window.count += 1;
        window.span = window.span.saturating_add(interval);
        window.longest = window.longest.max(interval);
        let is_whole = window.longest > 0 && window.span / 4 >= window.longest;
        if window.count >= MANY && (is_whole || window.count >= ENOUGH) {
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

    /// Forgets everything if nothing has been handed over for four times the longest interval that is known: what was true then may not be
    /// true any more, and whoever waits may wait for something else.
    pub fn forget_if_silent(&mut self, now: u64) {
        let longest = self.now.longest.max(self.before.longest);
        let silence = self.last.map_or(0, |last| now.saturating_sub(last));
        if silence / 4 > longest {
            *self = Pace { last: Some(now), ..Pace::default() };
        }
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
    fn a_long_silence_is_not_remembered_for_ever() {
        let mut pace = bursts(1, 1_000);
        let mut now = 1_000 * 1_000_000 + 60_000_000_000;
        for _ in 0..2 * ENOUGH {
            pace.tick(now);
            now += 1_000_000;
        }
        assert!(pace.expect(1).unwrap() < 2_000_000, "{:?}", pace.expect(1));
    }

    #[test]
    fn who_comes_late_does_not_count_time_twice() {
        let mut pace = Pace::default();
        pace.start(0);
        for i in 1..=1_000 {
            pace.tick(i * 1_000);
            // Has read the clock long ago.
            pace.tick(0);
        }
        assert_eq!(pace.expect(2), Some(1_000));
        pace.start(5);
        pace.tick(1_001_000);
        assert!(pace.expect(2).unwrap() <= 1_020);
    }

    #[test]
    fn silence_ends_what_is_known() {
        for of in [1, 500] {
            let mut pace = bursts(of, 100);
            pace.forget_if_silent(104 * 1_000_000);
            assert!(pace.expect(1).is_some());
            pace.forget_if_silent(105 * 1_000_000);
            assert_eq!(pace.expect(1), None);
        }
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
