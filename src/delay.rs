//! A sample of the delay: how many worse resources are lent while one can be had, counted for one resource at a time.
//!
//! # States
//!
//! A scheduler has one [`Delays`]: the rank of the tagged resource, which every lending of the best reads, and a book, behind a mutex that
//! only samples and readers take. Each shard has one [`Watch`], whose words are written by the holder of the shard's lock: how many worse ones
//! were lent here, which only grows, and who is tagged here.
//!
//! | rank | book | a watch names somebody | state |
//! |---|---|---|---|
//! | none | empty | no | nobody is tagged |
//! | set | written | yes | one is tagged |
//! | set | written | no | it was removed; the next sample ends the tag |
//! | none | written | no | it was lent; whoever has the book next ends the tag |
//!
//! One sample out of [`ONE_IN`] begins a tag, if there is none: the two stores to the rank, which every lending reads, are then rarer than the looks.
//!
//! # Steps
//!
//! ```text
//! T1  the lease of a sample has been returned. The book, if nobody has it: E2 if that is due; if it is empty, before := the sum of what was passed
//! T2  the home lock: if the resource can be had, and nothing has happened to it since the return:
//!     the watch names it and its word; rank := its rank; book := (home, slot, before); open := true
//! P1  a lending of the best, under its shard's lock. Worse than rank: one more was passed here
//! E1  the same, of the tagged one at that rank: the watch names nobody; kept := whether nothing else had happened to it; rank := none
//! E2  a sample if it is open, a return that may begin another tag, or a reader, with the book. There is no rank: the book is emptied; open := false; kept: the delay is the
//!     sum of what was passed, less before. If not, it is discarded
//! G1  a removal, under the home lock: the watch names nobody
//! X1  a sample, with the book and the home lock. The watch names nobody while there is a rank, or the word or the rank has changed: the tag
//!     ends and is discarded. It is as it was, but older than PATIENCE samples: given up. Else it stays. If it ends, open := false
//! ```
//!
//! The book is taken before a shard's lock (T2, X1) and never under one, and samples do not wait for it. Between E1 and E2 nothing is counted, so
//! it does not matter how long that is.
//!
//! # What it is not
//!
//! There is no instant that is the same for all shards. A lending that is ordered after T2 and before E1, by whatever the program orders
//! things, is counted if it is one of a worse resource; one that is ordered before T1 or after E2 is not. One that runs beside T or E may be
//! counted or not, and one that still compares with the rank of an earlier tag may be taken for what it is not: at most one for each thread
//! that is lending at that moment. With one thread the count is exact.
//!
//! # Orderings
//!
//! The words of a watch are ordered by the shard's lock. `rank` is written under the tagged one's home lock (T2, E1, X1). E1 stores it with
//! Release, and E2, which has no lock of a shard, loads it with Acquire: who sees that there is none sees `kept`, and what was passed before. For P1
//! it is a number that is compared and carries no other data: Relaxed. The sum of what was passed grows, so who is ordered after an addition sees
//! it, whatever the ordering of the words themselves. `open` is written by who has the book, and says whether it may be worth asking for: who reads an old
//! value leaves the review to the next sample, or makes one for nothing.

use std::sync::TryLockError;

use crate::sync::{
    CachePadded, Mutex, SplitMix64,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

/// No rank: nobody is tagged. Who has this rank is never tagged: nothing can be worse.
const NONE: u64 = u64::MAX;

/// Samples after which a tag is given up, so that one which is never lent does not stay for ever.
pub const PATIENCE: u32 = 64;

/// No further lending of this shard is a sample.
const NEVER: u64 = u64::MAX;

/// Of so many samples of a shard one may begin a tag.
pub const ONE_IN: u32 = 16;

/// What a lending is a sample of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// Of nothing.
    No,
    /// Of the error in rank.
    RankError,
    /// Of that, and its return begins a sample of the delay if nobody is tagged.
    AndDelay,
}

/// Who is tagged.
#[derive(Clone, Copy, Debug)]
pub struct Tag {
    /// Its shard.
    pub home: u32,
    /// Its slot there.
    pub slot: u32,
    /// All that had been passed when it began.
    before: u64,
    /// Samples since.
    age: u32,
}

/// How a tag ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was lent, after so many worse ones.
    Lent(u64),
    /// Something else has happened to the resource.
    Discarded,
    /// It was not lent for too long.
    GivenUp,
}

/// A resource as it stands, for comparison: whatever happens to it but an update of the rank alone changes the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What it is ordered by.
    pub rank: u64,
    /// Generation and leases out.
    pub word: u64,
}

/// What the scheduler knows of its tag.
#[derive(Debug)]
pub struct Delays {
    /// Read by each lending of the best, so apart from what samples write.
    rank: CachePadded<AtomicU64>,
    /// The book is not empty. Read by each sample, written by one in [`ONE_IN`].
    open: CachePadded<AtomicBool>,
    /// Nothing else had happened to the one that was lent.
    kept: AtomicBool,
    book: Mutex<Option<Tag>>,
}

impl Default for Delays {
    fn default() -> Self {
        Delays {
            rank: CachePadded::new(AtomicU64::new(NONE)),
            open: CachePadded::new(AtomicBool::new(false)),
            kept: AtomicBool::new(false),
            book: Mutex::new(None),
        }
    }
}

impl Delays {
    /// Whether somebody may be tagged.
    pub fn is_on(&self) -> bool {
        self.rank() != NONE
    }

    #[inline(always)]
    fn rank(&self) -> u64 {
        // Relaxed: compared only; see the header.
        self.rank.load(Ordering::Relaxed)
    }

    /// P1, for each lending: one was lent as the best of the shard with this watch, and stood at that rank. The caller holds the lock.
    /// `true`: it may be the tagged one, and [`Watch::lent`] is to be told.
    #[inline(always)]
    pub fn pass(&self, watch: &Watch, stood: u64) -> bool {
        let rank = self.rank();
        // One comparison for nearly all: none is worse than no rank.
        if stood < rank {
            return false;
        }
        if stood == rank {
            return true;
        }
        // Relaxed: the caller holds the lock.
        watch.passed.store(watch.passed() + 1, Ordering::Relaxed);
        false
    }

    /// The book, if nobody has it.
    fn try_book<T>(&self, f: impl FnOnce(&mut Option<Tag>) -> T) -> Option<T> {
        match self.book.try_lock() {
            Ok(mut book) => Some(f(&mut book)),
            Err(TryLockError::Poisoned(poisoned)) => Some(f(&mut poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// What the book says from now on; answers what it has said.
    fn write(&self, book: &mut Option<Tag>, tag: Option<Tag>) -> Option<Tag> {
        // Relaxed: a hint; see the header.
        self.open.store(tag.is_some(), Ordering::Relaxed);
        std::mem::replace(book, tag)
    }

    /// E2, if it is due, by whoever has the book.
    fn settle_in(&self, book: &mut Option<Tag>, passed: impl FnOnce() -> u64) -> Option<Ended> {
        // Acquire: pairs with the Release of E1.
        // - it reads that store: `kept` is what E1 has written, and all that it had seen passed is in the sum;
        // - it reads an older rank: E1 has not been, as far as we are concerned.
        if self.rank.load(Ordering::Acquire) != NONE {
            return None;
        }
        let tag = self.write(book, None)?;
        // Relaxed: see above.
        let kept = self.kept.load(Ordering::Relaxed);
        Some(if kept { Ended::Lent(passed() - tag.before) } else { Ended::Discarded })
    }

    /// E2, by a reader.
    pub fn settle(&self, passed: impl FnOnce() -> u64) -> Option<Ended> {
        self.try_book(|book| self.settle_in(book, passed)).flatten()
    }

    /// T1 and T2. `passed` sums up what was passed everywhere; `home` takes the home lock and answers it, with the resource as it stands and its
    /// slot, if nothing has happened to it since it was returned. Answers how an earlier tag has ended, and whether the resource is tagged now.
    pub fn begin<G>(
        &self,
        watch: &Watch,
        (shard, who): (u32, usize),
        passed: impl Fn() -> u64,
        home: impl FnOnce() -> Option<(G, Standing, u32)>,
    ) -> (Option<Ended>, bool) {
        let begun = self.try_book(|book| {
            let ended = self.settle_in(book, &passed);
            if book.is_some() {
                return (ended, false);
            }
            let before = passed();
            let Some((lock, Standing { rank, word }, slot)) = home() else { return (ended, false) };
            if rank == NONE {
                return (ended, false);
            }
            watch.name(who, word);
            // Relaxed: who works in the home shard is ordered by its lock, others compare only.
            self.rank.store(rank, Ordering::Relaxed);
            drop(lock);
            self.write(book, Some(Tag { home: shard, slot, before, age: 0 }));
            (ended, true)
        });
        begun.unwrap_or((None, false))
    }

    /// E2 or X1, at a sample. `home` takes the home lock of the tag and answers it, with the watch there, and the resource in the slot as it stands
    /// if it is there and can be had. Says how the tag has ended, if it has.
    pub fn review<'w, G>(
        &self,
        passed: impl FnOnce() -> u64,
        home: impl FnOnce(&Tag) -> (G, &'w Watch, Option<Standing>),
    ) -> Option<Ended> {
        if !self.open.load(Ordering::Relaxed) {
            return None;
        }
        let ended = self.try_book(|book| {
            if let Some(ended) = self.settle_in(book, passed) {
                return Some(ended);
            }
            let tag = book.as_mut()?;
            tag.age += 1;
            let (lock, watch, standing) = home(tag);
            let rank = self.rank();
            if rank == NONE {
                // E1 has been meanwhile: E2 is the next one's.
                return None;
            }
            let is_as_it_was = standing.is_some_and(|it| it.rank == rank && watch.knows(it.word));
            let ended = match is_as_it_was {
                false => Ended::Discarded,
                true if tag.age > PATIENCE => Ended::GivenUp,
                true => return None,
            };
            watch.name(0, 0);
            // Relaxed: as in `begin`; whoever has the book next finds it empty.
            self.rank.store(NONE, Ordering::Relaxed);
            drop(lock);
            self.write(book, None);
            Some(ended)
        });
        ended.flatten()
    }
}

/// What a shard knows of the samples. Written by the holder of its lock.
#[derive(Debug)]
pub struct Watch {
    /// With so many lendings the next of the best is a sample.
    due: AtomicU64,
    /// Lendings from one sample to the next.
    every: u64,
    /// Samples so far.
    samples: AtomicU32,
    /// Lendings of worse resources than the tagged one. Only grows.
    passed: AtomicU64,
    /// The tagged resource, if it lives here: its address; 0 for none.
    who: AtomicUsize,
    /// And its word when the tag began.
    word: AtomicU64,
}

impl Watch {
    /// Samples the first lending after `first`, and one out of `every` from there on; none if that is 0.
    pub fn new(every: u32, first: u64) -> Self {
        let due = if every == 0 { NEVER } else { first };
        Watch {
            due: AtomicU64::new(due),
            every: u64::from(every),
            samples: AtomicU32::new(0),
            passed: AtomicU64::new(0),
            who: AtomicUsize::new(0),
            word: AtomicU64::new(0),
        }
    }

    /// Whether the next lending is a sample, after so many. The caller holds the lock.
    #[inline(always)]
    pub fn is_due(&self, lendings: u64) -> bool {
        // Relaxed, here and below: see the header of the module.
        lendings >= self.due.load(Ordering::Relaxed)
    }

    /// The last of so many lendings was one that may be a sample: whether it is. The caller holds the lock.
    #[inline(always)]
    pub fn take_sample(&self, lendings: u64) -> Sample {
        if lendings <= self.due.load(Ordering::Relaxed) {
            return Sample::No;
        }
        self.due.store(lendings - 1 + Self::interval(self.every, lendings), Ordering::Relaxed);
        let samples = self.samples.load(Ordering::Relaxed);
        self.samples.store(samples.wrapping_add(1), Ordering::Relaxed);
        if samples.is_multiple_of(ONE_IN) { Sample::AndDelay } else { Sample::RankError }
    }

    /// How many lendings it is to the next sample, from one that was the `lendings`-th: `every` on average, a half of that more or less. A fixed
    /// number would meet whatever else comes in turns always in the same phase: a stay of a sticky strategy, say.
    pub fn interval(every: u64, lendings: u64) -> u64 {
        let half = every / 2;
        every - half + SplitMix64::mix(lendings) % (2 * half + 1)
    }

    /// How many worse ones were lent here.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    fn name(&self, who: usize, word: u64) {
        self.who.store(who, Ordering::Relaxed);
        self.word.store(word, Ordering::Relaxed);
    }

    /// Whether somebody is tagged here, with this word.
    fn knows(&self, word: u64) -> bool {
        self.who.load(Ordering::Relaxed) != 0 && self.word.load(Ordering::Relaxed) == word
    }

    /// E1, if it is the tagged one: `who` was lent as the best, and stood like that before, at the rank of the tag. The caller holds the lock.
    pub fn lent(&self, delays: &Delays, who: usize, stood: Standing) {
        if self.who.load(Ordering::Relaxed) != who {
            return;
        }
        let is_as_it_was = self.knows(stood.word) && delays.rank() == stood.rank;
        self.name(0, 0);
        delays.kept.store(is_as_it_was, Ordering::Relaxed);
        // Release: pairs with the Acquire of E2; outcomes there.
        delays.rank.store(NONE, Ordering::Release);
    }

    /// G1: `who` is removed. The caller holds the lock.
    pub fn forget(&self, who: usize) {
        if self.who.load(Ordering::Relaxed) == who {
            self.name(0, 0);
        }
    }
}
