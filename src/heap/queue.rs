//! A min-max heap behind two short sorted runs: a few of its smallest entries, and those that came last.
//!
//! The common use of a shard takes its best resource and soon puts it back: near the smallest, or behind all of its equals.
//! In a heap either step sifts through all levels. Here both touch the end of a short sorted array:
//!
//! ```text
//!   front (worst .. best)        body (min-max heap)     tail (best .. worst)
//!   [ 17  9  8  5 ]      <=      [ 20 .. ]          and  [ 20 20 20 21 ]
//! ```
//!
//! * Every entry of the front is smaller than every other one. Body and tail know nothing of each other.
//! * An entry goes into the front if it is smaller than all of body and tail; the largest of a full front moves to the tail,
//!   whose smallest it is. So the front fills by use alone, there is no refill, and a fleet of up to [`FRONT`] lives in it.
//! * Any other entry of a resource that was just used goes into the tail if it belongs near its end, and into the body if not,
//!   or if the tail is full. A fleet that takes turns, because its ranks are equal or are its loads, of up to [`TAIL`](super::tail::TAIL) lives in the tail.
//! * Position 0 means "in the front", [`IN_TAIL`] "in the tail": found by looking at their slots. Other positions are the body's.
//!
//! The idea of a deletion buffer before a heap is from P. Sanders, "Fast priority queues for cached memory", 2000, and
//! from the MultiQueue of M. Williams, P. Sanders and R. Dementiev, ESA 2021.

use super::{Best, Entry, MinMaxHeap, Positions, Segment, tail::Tail};

/// Entries that the front holds at most. Few in models, so that they cross the boundary; nothing depends on the number.
pub const FRONT: usize = if cfg!(any(loom, shuttle)) { 2 } else { 16 };

/// The position of an entry in the front.
const IN_FRONT: u32 = 0;

/// The position of an entry in the tail: above all of the body's.
const IN_TAIL: u32 = 1 << 24;

/// A double-ended priority queue: [`MinMaxHeap`] with a short sorted front and a short sorted tail.
///
/// Not synchronised, never allocates, runs no user code. `push`, `pop_min`, `remove` and `replace` take O(log n) at worst
/// and O(1) near the smallest or at the end of the tail; `peek_min`, `peek_max`, `get`, `len` take O(1) (`FRONT` and `TAIL`
/// are constants).
// In this order: the length is on the line of the lock that guards it.
#[repr(C)]
pub struct Queue {
    len: usize,
    /// Descending: the smallest is at `len - 1`.
    front: [Entry; FRONT],
    body: MinMaxHeap,
    tail: Tail,
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

impl Queue {
    /// An empty queue without room in its body.
    pub fn new() -> Self {
        Queue { len: 0, front: [Entry::default(); FRONT], body: MinMaxHeap::new(), tail: Tail::new() }
    }

    /// Entries held.
    #[inline]
    pub fn len(&self) -> usize {
        self.len + self.body.len() + self.tail.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries that there is room for, not counting front and tail.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.body.capacity()
    }

    /// As [`MinMaxHeap::next_segment_len`].
    pub fn next_segment_len(&self) -> Option<usize> {
        self.body.next_segment_len()
    }

    /// As [`MinMaxHeap::add_segment`].
    pub fn add_segment(&mut self, segment: Segment) -> Result<(), Segment> {
        self.body.add_segment(segment)
    }

    /// The smallest entry.
    #[inline]
    pub fn peek_min(&self) -> Option<Entry> {
        match self.front[..self.len].last() {
            Some(&entry) => Some(entry),
            None => self.bound(),
        }
    }

    /// The smallest entry of body and tail.
    #[inline]
    fn bound(&self) -> Option<Entry> {
        match (self.body.peek_min(), self.tail.first()) {
            (Some(body), Some(tail)) => Some(body.min(tail)),
            (body, tail) => body.or(tail),
        }
    }

    /// The largest entry.
    #[inline]
    pub fn peek_max(&self) -> Option<Entry> {
        self.body.peek_max().max(self.tail.last()).or_else(|| self.front[..self.len].first().copied())
    }

    /// The entry of `slot`, which is at `position`.
    ///
    /// # Panics
    /// If it is not there.
    #[inline]
    pub fn get(&self, slot: u32, position: u32) -> Entry {
        match position {
            IN_FRONT => self.front[self.find(slot)],
            IN_TAIL => self.tail.get(self.find_in_tail(slot)),
            _ => self.body.get(position),
        }
    }

    fn find(&self, slot: u32) -> usize {
        let found = self.front[..self.len].iter().rposition(|entry| entry.slot() == slot);
        found.expect("position 0 means that the slot is in the front")
    }

    fn find_in_tail(&self, slot: u32) -> usize {
        self.tail.find(slot).expect("that position means that the slot is in the tail")
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// Gives the entry back if the body has no room for it, or for the one that it would drive out of the front, and the tail
    /// does not take it.
    #[inline]
    pub fn push(&mut self, entry: Entry, positions: &mut impl Positions) -> Result<(), Entry> {
        if self.belongs_in_front(entry) {
            self.push_front(entry, positions)
        } else {
            self.body.push(entry, positions)
        }
    }

    /// As [`push`](Self::push), for an entry that is likely to belong behind its equals: of a resource that was just used.
    #[inline(always)]
    pub fn push_used(&mut self, entry: Entry, positions: &mut impl Positions) -> Result<(), Entry> {
        if self.belongs_in_front(entry) {
            self.push_front(entry, positions)
        } else {
            self.push_behind(entry, positions)
        }
    }

    #[inline]
    fn belongs_in_front(&self, entry: Entry) -> bool {
        // Smaller than the largest of the front: smaller than all that is behind it.
        self.front[..self.len].first().is_some_and(|&largest| entry < largest)
            || self.bound().is_none_or(|least| entry < least)
    }

    /// Adds an entry that does not belong into the front.
    #[inline(never)]
    fn push_behind(&mut self, entry: Entry, positions: &mut impl Positions) -> Result<(), Entry> {
        if self.tail.push(entry) {
            positions.set(entry.slot(), IN_TAIL);
            return Ok(());
        }
        self.body.push(entry, positions)
    }

    /// Adds an entry that is smaller than body and tail.
    #[inline(always)]
    fn push_front(&mut self, entry: Entry, positions: &mut impl Positions) -> Result<(), Entry> {
        if self.len == FRONT && self.spill(entry, positions)? {
            return Ok(());
        }
        // From the smallest on: that is where most entries belong.
        let mut at = self.len;
        while at > 0 && self.front[at - 1] < entry {
            self.front[at] = self.front[at - 1];
            at -= 1;
        }
        self.front[at] = entry;
        self.len += 1;
        positions.set(entry.slot(), IN_FRONT);
        Ok(())
    }

    /// Makes place in the full front for an entry. `true`: it was the largest of all, and is behind the front now.
    #[inline(never)]
    fn spill(&mut self, entry: Entry, positions: &mut impl Positions) -> Result<bool, Entry> {
        let largest = entry.max(self.front[0]);
        if self.tail.push_first(largest) {
            positions.set(largest.slot(), IN_TAIL);
        } else {
            self.body.push(largest, positions).map_err(|_| entry)?;
        }
        if largest == entry {
            return Ok(true);
        }
        self.front.copy_within(1.., 0);
        self.len -= 1;
        Ok(false)
    }

    /// Takes the smallest entry out.
    #[inline]
    pub fn pop_min(&mut self, positions: &mut impl Positions) -> Option<Entry> {
        if self.len == 0 {
            return self.pop_behind(positions);
        }
        self.len -= 1;
        Some(self.front[self.len])
    }

    fn pop_behind(&mut self, positions: &mut impl Positions) -> Option<Entry> {
        match (self.body.peek_min(), self.tail.first()) {
            (body, Some(tail)) if body.is_none_or(|body| tail < body) => self.tail.pop_first(),
            _ => self.body.pop_min(positions),
        }
    }

    /// Takes the smallest entry out and puts `entry` in, as [`push_used`](Self::push_used) does. The caller has seen that there is a smallest one.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    #[inline]
    pub fn replace_min(&mut self, entry: Entry, positions: &mut impl Positions) -> Result<(), Entry> {
        let is_in_body = self.len == 0
            && self.body.peek_min().is_some_and(|least| self.tail.first().is_none_or(|first| least < first));
        if !is_in_body {
            let _ = self.pop_min(positions);
            return self.push_used(entry, positions);
        }
        if self.tail.push(entry) {
            positions.set(entry.slot(), IN_TAIL);
            let _ = self.body.pop_min(positions);
        } else {
            let _ = self.body.replace_min(entry, positions);
        }
        Ok(())
    }

    /// Takes the entry of `slot` out, which is at `position`.
    ///
    /// # Panics
    /// If it is not there.
    #[inline]
    pub fn remove(&mut self, slot: u32, position: u32, positions: &mut impl Positions) -> Entry {
        match position {
            IN_FRONT => {
                let at = self.find(slot);
                let entry = self.front[at];
                self.front.copy_within(at + 1..self.len, at);
                self.len -= 1;
                entry
            }
            IN_TAIL => self.tail.remove(self.find_in_tail(slot)),
            _ => self.body.remove(position, positions),
        }
    }

    /// Puts `entry` in the place of the one of the same slot, which is at `position`.
    ///
    /// # Panics
    /// If it is not there.
    #[inline]
    pub fn replace(&mut self, position: u32, entry: Entry, positions: &mut impl Positions) -> Entry {
        let is_in_body = position != IN_FRONT && position != IN_TAIL;
        if is_in_body && self.front[..self.len].first().is_some_and(|&largest| largest < entry) {
            // It stays in the body, whose order is all that changes.
            return self.body.replace(position, entry, positions);
        }
        let (old, pushed) = if position == IN_TAIL {
            let at = self.find_in_tail(entry.slot());
            // Behind another of the tail it is behind the front, too.
            let is_behind_front =
                at > 0 || self.front[..self.len].first().is_none_or(|&largest| largest < entry);
            if is_behind_front && let Some(old) = self.tail.replace(at, entry) {
                return old;
            }
            (self.tail.remove(at), self.push_used(entry, positions))
        } else {
            (self.remove(entry.slot(), position, positions), self.push(entry, positions))
        };
        if let Err(entry) = pushed {
            self.exchange(entry, positions);
        }
        old
    }

    /// Puts in an entry for which the full body has no room, while front or tail have.
    #[cold]
    fn exchange(&mut self, entry: Entry, positions: &mut impl Positions) {
        // Not smaller than body and tail: the front would have had room, or the tail for the front's largest.
        if self.tail.insert(entry) {
            positions.set(entry.slot(), IN_TAIL);
            return;
        }
        // The tail is full, so the front has room.
        let from_tail =
            self.tail.first().filter(|first| self.body.peek_min().is_none_or(|least| *first < least));
        let least = match from_tail {
            Some(least) => {
                let _ = self.tail.pop_first();
                let inserted = self.tail.insert(entry);
                debug_assert!(inserted, "it has just lost an entry");
                positions.set(entry.slot(), IN_TAIL);
                Some(least)
            }
            None => self.body.replace_min(entry, positions),
        };
        let pushed = least.map_or(Err(entry), |least| self.push_front(least, positions));
        debug_assert!(pushed.is_ok(), "a full body has a smallest entry, and one of the front was taken out");
    }

    /// The smallest entries in order, [`Best::MAX`] at most.
    pub fn best(&self) -> Best {
        let front = self.front[..self.len].iter().rev().copied();
        if self.len >= Best::MAX {
            return Best::collect(front);
        }
        let body = self.body.best();
        let (mut body, mut tail) = (body.iter().copied().peekable(), self.tail.iter().peekable());
        let behind = std::iter::from_fn(|| match (body.peek(), tail.peek()) {
            (Some(first), Some(second)) if first < second => body.next(),
            (_, Some(_)) => tail.next(),
            _ => body.next(),
        });
        Best::collect(front.chain(behind))
    }

    /// How many entries have a rank below `rank`; `most` if it is more than that. O(answer).
    #[cfg(any(test, feature = "telemetry"))]
    pub fn count_below(&self, rank: u64, most: usize) -> usize {
        let is_better = |entry: &Entry| entry.rank() < rank;
        // The largest of the front comes first; all of it is smaller than what is behind it.
        let front = self.len - self.front[..self.len].partition_point(|entry| !is_better(entry));
        if front < self.len {
            return front.min(most);
        }
        let sorted = front + self.tail.iter().take_while(is_better).count();
        sorted.min(most) + super::below::count(&self.body, rank, most.saturating_sub(sorted))
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.front[..self.len].iter().copied().chain(self.body.iter()).chain(self.tail.iter())
    }

    /// Panics unless front, body and tail are in order.
    pub fn check_invariants(&self) {
        self.body.check_invariants();
        self.tail.check_invariants();
        let front = &self.front[..self.len];
        assert!(front.windows(2).all(|pair| pair[0] > pair[1]), "the front descends: {front:?}");
        if let (Some(largest), Some(least)) = (front.first(), self.bound()) {
            assert!(*largest < least, "the front is smaller than body and tail");
        }
    }
}

#[cfg(test)]
mod tests {
    // `prop_oneof!` expands to std's `Arc`; nothing here is shared between threads.
    #![allow(clippy::disallowed_types)]

    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{super::tail::TAIL, *};

    #[derive(Default)]
    struct Table(Vec<u32>);

    impl Positions for Table {
        fn set(&mut self, slot: u32, position: u32) {
            self.0[slot as usize] = position;
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Push(u64),
        PushUsed(u64),
        PopMin,
        Remove(usize),
        Replace(usize, u64),
        Again,
        ReplaceMin(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            2 => (0..60u64).prop_map(Op::Push),
            2 => (0..60u64).prop_map(Op::PushUsed),
            2 => Just(Op::PopMin),
            1 => any::<usize>().prop_map(Op::Remove),
            2 => (any::<usize>(), 0..60u64).prop_map(|(at, rank)| Op::Replace(at, rank)),
            2 => Just(Op::Again),
            3 => (0..60u64).prop_map(Op::ReplaceMin),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 5 } else { 1_500 }))]

        #[test]
        fn does_as_a_sorted_set_does(ops in prop::collection::vec(op(), 0..300)) {
            let mut queue = Queue::new();
            while queue.capacity() < 400 {
                let room = Segment::new(queue.next_segment_len().expect("far from the limit"));
                prop_assert!(queue.add_segment(room).is_ok());
            }
            let mut table = Table(vec![u32::MAX; 400]);
            let mut oracle = BTreeSet::new();
            let mut ticket = 0;
            for op in ops {
                ticket += 1;
                let nth = |oracle: &BTreeSet<Entry>, at: usize| {
                    (!oracle.is_empty()).then(|| *oracle.iter().nth(at % oracle.len()).expect("in range"))
                };
                match op {
                    Op::Push(rank) => {
                        let entry = Entry::new(rank, ticket, ticket as u32);
                        prop_assert_eq!(queue.push(entry, &mut table), Ok(()));
                        oracle.insert(entry);
                    }
                    Op::PushUsed(rank) => {
                        let entry = Entry::new(rank, ticket, ticket as u32);
                        prop_assert_eq!(queue.push_used(entry, &mut table), Ok(()));
                        oracle.insert(entry);
                    }
                    Op::PopMin => prop_assert_eq!(queue.pop_min(&mut table), oracle.pop_first()),
                    Op::Again => {
                        // Take the best and put it back: the common case.
                        if let Some(entry) = queue.pop_min(&mut table) {
                            prop_assert_eq!(Some(&entry), oracle.first());
                            prop_assert_eq!(queue.push(entry, &mut table), Ok(()));
                        }
                    }
                    Op::ReplaceMin(rank) => {
                        if let Some(old) = oracle.pop_first() {
                            let new = Entry::new(rank, ticket, old.slot());
                            prop_assert_eq!(queue.replace_min(new, &mut table), Ok(()));
                            oracle.insert(new);
                        }
                    }
                    Op::Remove(at) => {
                        if let Some(entry) = nth(&oracle, at) {
                            let position = table.0[entry.slot() as usize];
                            prop_assert_eq!(queue.remove(entry.slot(), position, &mut table), entry);
                            oracle.remove(&entry);
                        }
                    }
                    Op::Replace(at, rank) => {
                        if let Some(old) = nth(&oracle, at) {
                            let new = Entry::new(rank, ticket, old.slot());
                            let position = table.0[old.slot() as usize];
                            prop_assert_eq!(queue.replace(position, new, &mut table), old);
                            oracle.remove(&old);
                            oracle.insert(new);
                        }
                    }
                }
                queue.check_invariants();
                prop_assert_eq!((queue.len(), queue.is_empty()), (oracle.len(), oracle.is_empty()));
                prop_assert_eq!(queue.peek_min(), oracle.first().copied());
                prop_assert_eq!(queue.peek_max(), oracle.last().copied());
                let best: Vec<Entry> = oracle.iter().take(Best::MAX).copied().collect();
                prop_assert_eq!(&*queue.best(), &best[..]);
                prop_assert_eq!(queue.iter().collect::<BTreeSet<_>>(), oracle.clone());
                for rank in [0, 1, ticket % 61, 30, 60, u64::MAX] {
                    let below = oracle.iter().filter(|entry| entry.rank() < rank).count();
                    prop_assert_eq!(queue.count_below(rank, usize::MAX), below);
                    let most = ticket as usize % 40;
                    prop_assert_eq!(queue.count_below(rank, most), below.min(most));
                }
                for entry in &oracle {
                    prop_assert_eq!(queue.get(entry.slot(), table.0[entry.slot() as usize]), *entry);
                }
            }
        }
    }

    #[test]
    fn a_replacement_needs_no_room() {
        let mut queue = Queue::new();
        let room = Segment::new(queue.next_segment_len().expect("far from the limit"));
        assert!(queue.add_segment(room).is_ok());
        let most = (FRONT + TAIL + queue.capacity()) as u32;
        let mut table = Table(vec![u32::MAX; most as usize]);
        for slot in 0..most {
            assert_eq!(queue.push_used(Entry::new(u64::from(slot), 0, slot), &mut table), Ok(()));
        }
        // Each in turn becomes the worst of all: out of the front, into a tail and a body without room.
        for slot in 0..most {
            let old =
                queue.replace(table.0[slot as usize], Entry::new(1_000, u64::from(slot), slot), &mut table);
            assert_eq!((old.rank(), queue.len()), (u64::from(slot), most as usize));
            queue.check_invariants();
        }
        for slot in 0..most {
            assert_eq!(queue.pop_min(&mut table).map(Entry::slot), Some(slot));
        }
    }

    #[test]
    fn a_small_fleet_needs_no_body() {
        const MOST: u32 = (FRONT + TAIL) as u32;
        let mut queue = Queue::new();
        let mut table = Table(vec![u32::MAX; MOST as usize + 1]);
        for slot in 0..MOST {
            assert_eq!(queue.push_used(Entry::new(u64::from(slot) + 1, 0, slot), &mut table), Ok(()));
        }
        let largest = Entry::new(1_000, 0, MOST);
        assert_eq!(queue.push_used(largest, &mut table), Err(largest), "the body has no room yet");
        let smallest = Entry::new(0, 0, MOST);
        assert!(queue.push(smallest, &mut table).is_err());
        assert_eq!(queue.len(), FRONT + TAIL);
        queue.check_invariants();
    }

    #[test]
    fn a_fleet_that_takes_turns_lives_in_the_tail() {
        let mut queue = Queue::new();
        let room = Segment::new(queue.next_segment_len().expect("far from the limit"));
        assert!(queue.add_segment(room).is_ok());
        let mut table = Table(vec![u32::MAX; 2 * FRONT]);
        for slot in 0..2 * FRONT as u32 {
            assert_eq!(queue.push_used(Entry::new(0, u64::from(slot), slot), &mut table), Ok(()));
        }
        for turn in 2 * FRONT as u64..8 * FRONT as u64 {
            let entry = queue.pop_min(&mut table).expect("not empty");
            assert_eq!(u64::from(entry.slot()), turn % (2 * FRONT as u64), "the one that has waited longest");
            assert_eq!(queue.push_used(Entry::new(0, turn, entry.slot()), &mut table), Ok(()));
            assert_eq!(queue.body.len(), 0);
            queue.check_invariants();
        }
    }
}
