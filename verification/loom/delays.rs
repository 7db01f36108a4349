//! The sample of the delay (`delay`): its tag begins, is passed, and ends once, whoever comes in between.
//!
//! Two shards, each a lock and a watch. In shard 0 lives the one that is tagged; what it is, is behind the lock.

use leasehold::internals::{
    delay::{Delays, Ended, Standing, Watch},
    sync::{
        Arc, SpinGuard, SpinLock,
        atomic::{AtomicBool, Ordering::*},
    },
};

use crate::common::{model, spawn};

const WHO: usize = 0x40;
const IT: Standing = Standing { rank: 5, word: 1 << 32 };
const WORSE: u64 = 6;

struct Fleet {
    delays: Delays,
    /// The tagged one as it stands, if it can be had, behind the first lock.
    shards: [SpinLock<Option<Standing>>; 2],
    watches: [Watch; 2],
}

type Home<'f> = SpinGuard<'f, Option<Standing>>;

impl Fleet {
    /// Nobody is tagged.
    fn new() -> Arc<Self> {
        Arc::new(Fleet {
            delays: Delays::default(),
            shards: [SpinLock::new(Some(IT)), SpinLock::new(None)],
            watches: [Watch::new(1, 0), Watch::new(1, 0)],
        })
    }

    /// One is.
    fn tagged() -> Arc<Self> {
        let fleet = Fleet::new();
        assert!(fleet.begin());
        fleet
    }

    fn passed(&self) -> u64 {
        self.watches.iter().map(Watch::passed).sum()
    }

    /// T1 and T2.
    fn begin(&self) -> bool {
        self.delays
            .begin(
                &self.watches[0],
                (0, WHO),
                || self.passed(),
                || {
                    let home = self.shards[0].lock();
                    let standing = (*home)?;
                    Some((home, standing, 0))
                },
            )
            .1
    }

    /// P1: a worse one is lent.
    fn pass(&self, shard: usize) {
        let _lock = self.shards[shard].lock();
        assert!(!self.delays.pass(&self.watches[shard], WORSE));
    }

    /// E1: the tagged one is lent, if it can be had.
    fn take(&self) -> bool {
        let mut home = self.shards[0].lock();
        let Some(stood) = home.take() else { return false };
        if self.delays.pass(&self.watches[0], stood.rank) {
            self.watches[0].lent(&self.delays, WHO, stood);
        }
        true
    }

    /// E2.
    fn settle(&self) -> Option<Ended> {
        self.delays.settle(|| self.passed())
    }

    /// E1 and E2. Answers the delay, if it was tagged.
    fn lend(&self) -> Option<u64> {
        assert!(self.take());
        match self.settle() {
            Some(Ended::Lent(delay)) => Some(delay),
            None => None,
            Some(ended) => panic!("nothing else has happened to it: {ended:?}"),
        }
    }

    /// G1.
    fn remove(&self) {
        let mut home = self.shards[0].lock();
        *home = None;
        self.watches[0].forget(WHO);
    }

    /// X1.
    fn review(&self) -> Option<Ended> {
        self.delays.review(
            || self.passed(),
            |_| -> (Home<'_>, _, _) {
                let home = self.shards[0].lock();
                let standing = *home;
                (home, &self.watches[0], standing)
            },
        )
    }

    /// Nobody is tagged, and the next one is when it comes back.
    fn is_ready(&self) {
        assert!(!self.delays.is_on(), "there is a rank");
        *self.shards[0].lock() = Some(IT);
        assert!(self.begin(), "the book is not empty");
        assert_eq!(self.lend(), Some(0));
    }
}

/// Whoever learns of the end from the rank alone knows how it was, and what had been passed.
#[test]
fn who_ends_it_knows_how_it_was() {
    model(|| {
        let fleet = Fleet::tagged();
        let other = {
            let fleet = Arc::clone(&fleet);
            spawn(move || {
                fleet.pass(1);
                assert!(fleet.take());
            })
        };
        let first = fleet.settle();
        other.join().unwrap();
        let second = fleet.settle();
        assert!(first.xor(second) == Some(Ended::Lent(1)), "{first:?} {second:?}");
    });
}

/// What is ordered before the end is counted, what runs beside it may be.
#[test]
fn what_came_before_the_end_is_counted() {
    model(|| {
        let fleet = Fleet::tagged();
        let said = Arc::new(AtomicBool::new(false));
        let other = {
            let (fleet, said) = (Arc::clone(&fleet), Arc::clone(&said));
            spawn(move || {
                fleet.pass(1);
                said.store(true, Release);
            })
        };
        fleet.pass(0);
        let is_before = said.load(Acquire);
        let delay = fleet.lend();
        other.join().unwrap();
        if is_before {
            assert_eq!(delay, Some(2));
        } else {
            assert!(matches!(delay, Some(1 | 2)), "{delay:?}");
        }
        fleet.is_ready();
    });
}

/// What is ordered after the beginning is counted; what was there before it is not.
#[test]
fn what_comes_after_the_beginning_is_counted() {
    model(|| {
        let fleet = Fleet::tagged();
        fleet.pass(1);
        assert_eq!(fleet.lend(), Some(1));
        *fleet.shards[0].lock() = Some(IT);
        let begun = Arc::new(AtomicBool::new(false));
        let other = {
            let (fleet, begun) = (Arc::clone(&fleet), Arc::clone(&begun));
            spawn(move || {
                let is_after = begun.load(Acquire);
                fleet.pass(1);
                is_after
            })
        };
        assert!(fleet.begin());
        begun.store(true, Release);
        let is_after = other.join().unwrap();
        let delay = fleet.lend();
        if is_after {
            assert_eq!(delay, Some(1));
        } else {
            assert!(matches!(delay, Some(0 | 1)), "{delay:?}");
        }
    });
}

/// The one that is lent as it was is not discarded by who looks after it at that moment.
#[test]
fn lent_while_it_is_looked_after() {
    model(|| {
        let fleet = Fleet::tagged();
        let other = {
            let fleet = Arc::clone(&fleet);
            spawn(move || fleet.review())
        };
        assert!(fleet.take());
        let first = other.join().unwrap();
        let second = fleet.settle();
        assert!(first.xor(second) == Some(Ended::Lent(0)), "{first:?} {second:?}");
        fleet.is_ready();
    });
}

/// A removed one is discarded, once.
#[test]
fn removed_while_it_is_looked_after() {
    model(|| {
        let fleet = Fleet::tagged();
        let other = {
            let fleet = Arc::clone(&fleet);
            spawn(move || fleet.remove())
        };
        let first = fleet.review();
        other.join().unwrap();
        let second = fleet.review();
        let discarded = Some(Ended::Discarded);
        assert!(first.xor(second) == discarded, "{first:?} {second:?}");
        fleet.is_ready();
    });
}

/// Its return begins a tag, and somebody lends it at that moment: there is none, or it ends.
#[test]
fn lent_while_it_begins() {
    model(|| {
        let fleet = Fleet::new();
        let other = {
            let fleet = Arc::clone(&fleet);
            spawn(move || fleet.take())
        };
        let begun = fleet.begin();
        assert!(other.join().unwrap());
        let ended = fleet.settle();
        assert_eq!(ended, begun.then_some(Ended::Lent(0)));
        fleet.is_ready();
    });
}

/// Removed while its tag begins: there is none, or the next sample discards it.
#[test]
fn removed_while_it_begins() {
    model(|| {
        let fleet = Fleet::new();
        let other = {
            let fleet = Arc::clone(&fleet);
            spawn(move || fleet.remove())
        };
        let begun = fleet.begin();
        other.join().unwrap();
        assert_eq!(begun, fleet.review() == Some(Ended::Discarded));
        fleet.is_ready();
    });
}

/// Two begin at once: one is tagged.
#[test]
fn one_at_a_time() {
    model(|| {
        let fleet = Fleet::new();
        let other = {
            let fleet = Arc::clone(&fleet);
            spawn(move || fleet.begin())
        };
        let begun = fleet.begin();
        assert!(begun ^ other.join().unwrap());
        assert_eq!(fleet.lend(), Some(0));
        fleet.is_ready();
    });
}
