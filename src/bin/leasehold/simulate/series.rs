//! What happens over the length of a run that nobody knows beforehand: intervals that are joined in pairs whenever there are too many.

/// Served requests and the waiting line, interval by interval. The same events make the same intervals, in whole numbers.
pub struct Series {
    /// Nanoseconds of an interval.
    width: u64,
    intervals: Vec<Interval>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    pub completed: u64,
    /// The longest line at the end of an event.
    pub waiting: u64,
}

/// Intervals at the most.
const MOST: usize = 256;
/// Where it begins: a millisecond.
const SHORTEST: u64 = 1_000_000;

impl Series {
    pub fn new() -> Self {
        Series { width: SHORTEST, intervals: Vec::new() }
    }

    /// So many were served at this moment, and so many wait after it.
    pub fn record(&mut self, at: u64, completed: u64, waiting: usize) {
        while at / self.width >= MOST as u64 {
            self.width *= 2;
            let pair = |pair: &[Interval]| {
                let second = pair.get(1).copied().unwrap_or_default();
                Interval {
                    completed: pair[0].completed + second.completed,
                    waiting: pair[0].waiting.max(second.waiting),
                }
            };
            self.intervals = self.intervals.chunks(2).map(pair).collect();
        }
        let place = (at / self.width) as usize;
        if self.intervals.len() <= place {
            self.intervals.resize(place + 1, Interval::default());
        }
        let interval = &mut self.intervals[place];
        interval.completed += completed;
        interval.waiting = interval.waiting.max(waiting as u64);
    }

    /// The end of each interval, and what was in it.
    pub fn points(&self) -> impl Iterator<Item = (u64, Interval)> {
        self.intervals.iter().zip(1..).map(|(interval, number)| (number * self.width, *interval))
    }

    pub fn width(&self) -> u64 {
        self.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_intervals_are_joined() {
        let mut series = Series::new();
        for event in 0..10_000u64 {
            series.record(event * 1_000_000, 1, (event % 7) as usize);
        }
        let points: Vec<_> = series.points().collect();
        assert!((MOST / 2..=MOST).contains(&points.len()), "{}", points.len());
        assert_eq!(points.iter().map(|(_, interval)| interval.completed).sum::<u64>(), 10_000);
        assert!(points.iter().all(|(_, interval)| interval.waiting == 6));
        assert!(points.last().unwrap().0 >= 9_999_000_000);
        // As fast at every moment.
        let full = series.width() / 1_000_000;
        assert!(points[..points.len() - 1].iter().all(|(_, interval)| interval.completed == full));
    }

    #[test]
    fn the_end_of_time_is_a_moment() {
        let mut series = Series::new();
        series.record(0, 1, 0);
        series.record(1 << 63, 1, 3);
        let points: Vec<_> = series.points().collect();
        assert_eq!((points[0].1.completed, points.last().unwrap().1.waiting), (1, 3));
        assert!(points.len() <= MOST);
    }
}
