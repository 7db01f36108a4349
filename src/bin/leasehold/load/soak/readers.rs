//! Two readers that come and go, and what they do meanwhile. See the header of [`soak`](super).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use leasehold::{Event, Peek, Scheduler};

use super::super::{asset::Asset, subject::Subject, worker::Round};
#[cfg(feature = "metrics")]
use super::published;
#[cfg(feature = "prometheus")]
use super::scraped;

/// The readers at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stays {
    /// While somebody stays, or what he has held back may not be freed yet: how many values had been retired when the older of those came.
    pub(super) since: Option<u64>,
    /// Of each reader which of all stays its own is; 0: it reads nothing.
    pub(super) reading: [u64; 2],
}

impl Stays {
    /// Whether one who reads has read since then.
    pub(super) fn have_gone_on_since(&self, before: &Stays) -> bool {
        self.reading.iter().zip(before.reading).any(|(&now, before)| now != 0 && now == before)
    }
}

/// What the readers and the watcher share.
pub struct Watch {
    /// Of each reader: how many values had been retired when it came, or [`AWAY`].
    since: [AtomicU64; 2],
    /// As in [`Stays`].
    reading: [AtomicU64; 2],
    times: AtomicU64,
    pub(super) published: AtomicU64,
    /// Events that were read, and lines that were scraped.
    pub(super) events: Arc<AtomicU64>,
    pub(super) scraped: AtomicU64,
}

/// How much later the second reader comes. Each stays for twice as long, and is away for as long as that.
pub(super) const LATER: Duration = Duration::from_secs(1);
/// What a reader has held back may take so long to be freed; until then it counts as staying.
const FREED_WITHIN: Duration = Duration::from_millis(300);
/// The reader is not there.
const AWAY: u64 = u64::MAX;

impl Default for Watch {
    fn default() -> Self {
        Watch {
            since: [AWAY; 2].map(AtomicU64::new),
            reading: Default::default(),
            times: AtomicU64::new(0),
            published: AtomicU64::new(0),
            events: Arc::default(),
            scraped: AtomicU64::new(0),
        }
    }
}

impl Watch {
    /// Both readers come and go until the round ends.
    pub fn read(&self, round: &Round) {
        let Subject::Leasehold(scheduler) = &*round.subject else { return };
        let seen = Arc::clone(&self.events);
        // One for all rounds: it ends with the scheduler.
        let observer = move |_: &Event<u32>| {
            seen.fetch_add(1, Ordering::Relaxed);
        };
        if round.number == 0
            && let Err(error) = scheduler.observe(observer)
        {
            round.referee.breach(format!("the observer was refused: {error}"));
        }
        thread::scope(|scope| {
            // Sections of one thread are one section, so each reader has its own.
            scope.spawn(|| self.come_and_go(round, scheduler, 1));
            self.come_and_go(round, scheduler, 0);
        });
    }

    fn come_and_go(&self, round: &Round, scheduler: &Arc<Scheduler<Asset>>, place: usize) {
        #[cfg(feature = "prometheus")]
        let registry = scraped::registry(scheduler);
        let mut moment = round.begins + place as u64 * LATER.as_nanos() as u64;
        let mut until = |length: Duration| {
            moment += length.as_nanos() as u64;
            moment
        };
        pause(round, until(Duration::ZERO));
        while !round.stop.is_set() {
            let Some((before, seen)) = look_at_one(round, scheduler) else { return };
            // SeqCst, and so in `now`: one order of both readers' comings and goings, or a look could miss the older one.
            self.since[place].store(before, Ordering::SeqCst);
            let number = self.times.fetch_add(1, Ordering::Relaxed) + 1;
            self.reading[place].store(number, Ordering::SeqCst);
            pause(round, until(2 * LATER));
            self.reading[place].store(0, Ordering::SeqCst);
            drop(seen);
            let end = round.clock.now() + FREED_WITHIN.as_nanos() as u64;
            #[cfg(feature = "prometheus")]
            self.scraped.fetch_add(scraped::lines(&registry), Ordering::Relaxed);
            #[cfg(feature = "metrics")]
            self.published.fetch_add(published::publish(scheduler), Ordering::Relaxed);
            pause(round, end);
            self.since[place].store(AWAY, Ordering::SeqCst);
            pause(round, until(2 * LATER));
        }
    }

    /// Who stays now.
    pub fn now(&self) -> Stays {
        let since = self.since.iter().map(|since| since.load(Ordering::SeqCst)).min();
        let reading = self.reading.each_ref().map(|number| number.load(Ordering::SeqCst));
        Stays { since: since.filter(|&since| since != AWAY), reading }
    }

    pub fn stays(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }
}

/// What a reader holds, and how many values had been retired before it came: one that is there, lent or not, held back or not. Of a small
/// fleet that is busy nobody may be eligible, and who sees nothing holds nothing back. `None`: the round is over.
fn look_at_one<'a>(round: &Round, scheduler: &'a Scheduler<Asset>) -> Option<(u64, Peek<'a, Asset>)> {
    while !round.stop.is_set() {
        // SeqCst, here and where it is told that the reader stays: whoever sees that sees what had been retired when it came, and not less.
        let before = round.retired.load(Ordering::SeqCst);
        let mut there = (0..round.referee.lineages()).filter_map(|lineage| round.referee.current(lineage));
        if let Some(seen) = there.find_map(|index| scheduler.get(&index)) {
            return Some((before, seen));
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Until then, or the end of the round.
fn pause(round: &Round, end: u64) {
    while round.clock.now() < end && !round.stop.is_set() {
        thread::sleep(Duration::from_millis(10));
    }
}
