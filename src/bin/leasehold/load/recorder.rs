//! Where workers write what they have seen: a few stripes, each with a mutex, whatever the number of workers.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicI64, Ordering},
};

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;

use super::outcome::{Counts, Ending};

/// What one request has seen, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub ending: Ending,
    /// From the moment that was meant to its lease; `None` if it got none.
    pub waited: Option<u64>,
    /// From the moment that was meant to its end.
    pub took: u64,
    /// The same from the moment at which it was really sent.
    pub took_since_sent: u64,
    /// How long its lease was held; and of that, before the backend answered, if it did.
    pub held: Option<u64>,
    pub delayed: Option<u64>,
}

/// Distributions and counts of one stripe, or of a whole run.
pub struct Record {
    pub counts: Counts,
    pub waiting: Histogram<u64>,
    pub latency: Histogram<u64>,
    /// The two parts of it: of requests that were completed, and of those that the backend failed. A failure may be quicker than any answer.
    pub completed: Histogram<u64>,
    pub failed: Histogram<u64>,
    /// Of requests that were not answered, how long they had gone on when that was certain: without this end they would have taken longer.
    pub unanswered: Histogram<u64>,
    pub uncorrected: Histogram<u64>,
    pub held: Histogram<u64>,
    pub delayed: Histogram<u64>,
    /// How late the tool itself was with requests whose worker slept until their moment.
    pub late: Histogram<u64>,
    /// How late requests of an open loop were sent because all workers were busy at their moment.
    pub sent_late: Histogram<u64>,
    pub rank_errors: Histogram<u64>,
    pub delays: Histogram<u64>,
    /// Of `waiting`, what is new since it was last taken: for the live display and the series.
    fresh: Histogram<u64>,
}

/// A histogram of times up to a day, which is as long as anything in a scenario may be, within 1 %: 2 significant digits.
pub fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 86_400_000_000_000, 2).expect("bounds in range")
}

impl Record {
    pub fn new() -> Self {
        Record {
            counts: Counts::default(),
            waiting: times(),
            latency: times(),
            completed: times(),
            failed: times(),
            unanswered: times(),
            uncorrected: times(),
            held: times(),
            delayed: times(),
            late: times(),
            sent_late: times(),
            rank_errors: Histogram::new_with_bounds(1, 1 << 20, 3).expect("bounds in range"),
            delays: Histogram::new_with_bounds(1, 1 << 24, 3).expect("bounds in range"),
            fresh: times(),
        }
    }

    fn add(&mut self, seen: &Seen) {
        self.counts.add(seen.ending);
        if let Some(waited) = seen.waited {
            self.waiting.saturating_record(waited);
            self.fresh.saturating_record(waited);
        }
        seen.held.into_iter().for_each(|held| self.held.saturating_record(held));
        seen.delayed.into_iter().for_each(|delayed| self.delayed.saturating_record(delayed));
        let part = match seen.ending {
            Ending::Completed => Some(&mut self.completed),
            Ending::Backend(_) => Some(&mut self.failed),
            _ => None,
        };
        if let Some(part) = part {
            part.saturating_record(seen.took);
            self.latency.saturating_record(seen.took);
            self.uncorrected.saturating_record(seen.took_since_sent);
        }
        if seen.ending.is_censored() {
            self.unanswered.saturating_record(seen.took);
        }
    }

    pub fn merge(&mut self, other: &Record) {
        self.counts.merge(&other.counts);
        for (sum, part) in [
            (&mut self.waiting, &other.waiting),
            (&mut self.latency, &other.latency),
            (&mut self.completed, &other.completed),
            (&mut self.failed, &other.failed),
            (&mut self.unanswered, &other.unanswered),
            (&mut self.uncorrected, &other.uncorrected),
            (&mut self.held, &other.held),
            (&mut self.delayed, &other.delayed),
            (&mut self.late, &other.late),
            (&mut self.sent_late, &other.sent_late),
            (&mut self.rank_errors, &other.rank_errors),
            (&mut self.delays, &other.delays),
        ] {
            sum.add(part).expect("made alike");
        }
    }
}

struct Stripe {
    record: Mutex<Record>,
    /// Requests that wait for a lease now, and leases that are out.
    waiting: AtomicI64,
    in_flight: AtomicI64,
}

/// The stripes of one subject's round.
pub struct Recorder {
    stripes: Box<[CachePadded<Stripe>]>,
}

/// What goes on at one moment.
pub struct Now {
    pub counts: Counts,
    /// Waiting times that were added since the last look.
    pub fresh: Histogram<u64>,
    pub waiting: u64,
    pub in_flight: u64,
}

impl Recorder {
    pub fn new(workers: u32) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let stripes = (4 * processors).min(workers as usize);
        let stripe = |_| {
            CachePadded::new(Stripe {
                record: Mutex::new(Record::new()),
                waiting: AtomicI64::new(0),
                in_flight: AtomicI64::new(0),
            })
        };
        Recorder { stripes: (0..stripes).map(stripe).collect() }
    }

    fn stripe(&self, worker: u32) -> &Stripe {
        &self.stripes[worker as usize % self.stripes.len()]
    }

    pub fn record(&self, worker: u32, seen: &Seen) {
        lock(&self.stripe(worker).record).add(seen);
    }

    pub fn late(&self, worker: u32, nanos: u64) {
        lock(&self.stripe(worker).record).late.saturating_record(nanos);
    }

    pub fn sent_late(&self, worker: u32, nanos: u64) {
        lock(&self.stripe(worker).record).sent_late.saturating_record(nanos);
    }

    /// So many requests of an open loop that were never sent, so long after their moments.
    pub fn unsent(&self, worker: u32, nanos: u64, count: u64) {
        lock(&self.stripe(worker).record).unanswered.saturating_record_n(nanos, count);
    }

    pub fn rank_error(&self, worker: u32, error: u64) {
        lock(&self.stripe(worker).record).rank_errors.saturating_record(error);
    }

    pub fn delay(&self, worker: u32, delay: u64) {
        lock(&self.stripe(worker).record).delays.saturating_record(delay);
    }

    /// Until the guard is dropped, one more waits.
    pub fn waits(&self, worker: u32) -> OneMore<'_> {
        OneMore::new(&self.stripe(worker).waiting)
    }

    /// Until the guard is dropped, one more lease is out.
    pub fn holds(&self, worker: u32) -> OneMore<'_> {
        OneMore::new(&self.stripe(worker).in_flight)
    }

    /// One more lease is out, until [`holds_what_was_lent`](Self::holds_what_was_lent) has been asked for its guard, maybe on another thread.
    pub fn lent(&self, worker: u32) {
        self.stripe(worker).in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub fn holds_what_was_lent(&self, worker: u32) -> OneMore<'_> {
        OneMore(&self.stripe(worker).in_flight)
    }

    pub fn look(&self) -> Now {
        let mut now = Now { counts: Counts::default(), fresh: times(), waiting: 0, in_flight: 0 };
        let (mut waiting, mut in_flight) = (0, 0);
        for stripe in &self.stripes {
            let mut record = lock(&stripe.record);
            now.counts.merge(&record.counts);
            now.fresh.add(&record.fresh).expect("made alike");
            record.fresh.reset();
            waiting += stripe.waiting.load(Ordering::Relaxed);
            in_flight += stripe.in_flight.load(Ordering::Relaxed);
        }
        (now.waiting, now.in_flight) = (waiting.max(0) as u64, in_flight.max(0) as u64);
        now
    }

    /// Everything, after the workers have ended.
    pub fn sum(&self) -> Record {
        let mut sum = Record::new();
        self.stripes.iter().for_each(|stripe| sum.merge(&lock(&stripe.record)));
        sum
    }
}

/// A count that a guard has raised. Relaxed: read as a picture only.
pub struct OneMore<'a>(&'a AtomicI64);

impl<'a> OneMore<'a> {
    fn new(count: &'a AtomicI64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        OneMore(count)
    }
}

impl Drop for OneMore<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{
        super::outcome::{Refusal, Trouble},
        *,
    };

    #[test]
    fn stripes_add_up() {
        let recorder = Recorder::new(3);
        let seen = |took| Seen {
            ending: Ending::Completed,
            waited: Some(took / 2),
            took,
            took_since_sent: took / 4,
            held: Some(took),
            delayed: None,
        };
        (0..30).for_each(|worker| recorder.record(worker, &seen(u64::from(worker) * 1_000)));
        let waits = recorder.waits(7);
        let now = recorder.look();
        assert_eq!((now.counts.completed, now.fresh.len(), now.waiting, now.in_flight), (30, 30, 1, 0));
        drop(waits);
        let again = recorder.look();
        assert_eq!((again.counts.completed, again.fresh.len(), again.waiting), (30, 0, 0));
        let sum = recorder.sum();
        assert_eq!((sum.latency.len(), sum.uncorrected.len(), sum.waiting.len()), (30, 30, 30));
        assert!(sum.latency.max() > sum.uncorrected.max());
        assert_eq!(sum.unanswered.len(), 0);
    }

    #[test]
    fn a_day_is_told_as_a_day() {
        let mut histogram = times();
        for hours in [2, 24] {
            let nanos = hours * 3_600_000_000_000;
            histogram.saturating_record(nanos);
            assert!(histogram.max().abs_diff(nanos) <= nanos / 100, "{} of {nanos}", histogram.max());
        }
    }

    /// An overload must not look better because those who fare worst never get an answer: whoever was cut, gave up, timed out or was never
    /// sent is in one of the two distributions, and whoever was told at once is in none.
    #[test]
    fn those_without_an_answer_are_kept_apart() {
        let recorder = Recorder::new(1);
        let endings = [
            Ending::Completed,
            Ending::Backend(Trouble::Failed),
            Ending::Scheduler(Refusal::TimedOut),
            Ending::Scheduler(Refusal::Shed),
            Ending::CutWaiting,
            Ending::CutShort,
            Ending::CancelledWaiting,
            Ending::Peeked,
        ];
        for (ending, took) in endings.into_iter().zip(1..) {
            let took = took * 1_000_000;
            let seen = Seen { ending, waited: None, took, took_since_sent: 0, held: None, delayed: None };
            recorder.record(0, &seen);
        }
        recorder.unsent(0, 99_000_000, 1);
        let sum = recorder.sum();
        let about = |histogram: &Histogram<u64>| -> Vec<u64> {
            histogram.iter_recorded().map(|step| step.value_iterated_to() / 1_000_000).collect()
        };
        assert_eq!((about(&sum.latency), about(&sum.unanswered)), (vec![1, 2], vec![3, 5, 6, 7, 99]));
        // One that failed at once must not look like one that was served quickly.
        assert_eq!((about(&sum.completed), about(&sum.failed)), (vec![1], vec![2]));
    }
}
