//! A min-max heap with a few of its smallest entries kept sorted in front.
//!
//! The common use of a shard takes its best resource and soon puts it back where it was, near the smallest. In a heap
//! either step sifts through all levels. Here both touch the end of a short sorted array:
//!
//! ```text
//!   front (worst .. best)        body (min-max heap)
//!   [ 17  9  8  5 ]      <=      [ 20 .. ]
//! ```
//!
//! * Every entry of the front is smaller than every one of the body.
//! * An entry goes into the front if it is smaller than all of the body; the largest of a full front moves to the body.
//!   So the front fills by use alone, there is no refill, and a fleet of up to [`FRONT`] lives in it.
//! * Position 0 means "in the front": found by looking at up to [`FRONT`] slots. Other positions are the body's.
//!
//! The idea of a deletion buffer before a heap is from P. Sanders, "Fast priority queues for cached memory", 2000, and
//! from the MultiQueue of M. Williams, P. Sanders and R. Dementiev, ESA 2021.

use super::{Best, Entry, MinMaxHeap, Positions, Segment};

/// Entries that the front holds at most. Few in models, so that they cross the boundary; nothing depends on the number.
pub const FRONT: usize = if cfg!(any(loom, shuttle)) { 2 } else { 16 };

/// The position of an entry in the front.
const IN_FRONT: u32 = 0;

/// A double-ended priority queue: [`MinMaxHeap`] behind a short sorted front.
///
/// Not synchronised, never allocates, runs no user code. `push`, `pop_min`, `remove` and `replace` take O(log n) at worst
/// and O(1) near the smallest; `peek_min`, `peek_max`, `get`, `len` take O(1) (`FRONT` is a constant).
pub struct Queue {
    len: usize,
    /// Descending: the smallest is at `len - 1`.
    front: [Entry; FRONT],
    body: MinMaxHeap,
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

impl Queue {
    /// An empty queue without room in its body.
    pub fn new() -> Self {
        Queue { len: 0, front: [Entry::default(); FRONT], body: MinMaxHeap::new() }
    }

    /// Entries held.
    #[inline]
    pub fn len(&self) -> usize {
        self.len + self.body.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries that there is room for, not counting the front.
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
            None => self.body.peek_min(),
        }
    }

    /// The largest entry.
    #[inline]
    pub fn peek_max(&self) -> Option<Entry> {
        self.body.peek_max().or_else(|| self.front[..self.len].first().copied())
    }

    /// The entry of `slot`, which is at `position`.
    ///
    /// # Panics
    /// If it is not there.
    #[inline]
    pub fn get(&self, slot: u32, position: u32) -> Entry {
        if position == IN_FRONT { self.front[self.find(slot)] } else { self.body.get(position) }
    }

    fn find(&self, slot: u32) -> usize {
        let found = self.front[..self.len].iter().rposition(|entry| entry.slot() == slot);
        found.expect("position 0 means that the slot is in the front")
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// Gives the entry back if the body has no room for it, or for the one that it would drive out of the front.
    #[inline]
    pub fn push(&mut self, entry: Entry, positions: &mut impl Positions) -> Result<(), Entry> {
        if self.body.peek_min().is_some_and(|least| least < entry) {
            return self.body.push(entry, positions);
        }
        self.push_front(entry, positions)
    }

    #[inline]
    fn push_front(&mut self, entry: Entry, positions: &mut impl Positions) -> Result<(), Entry> {
        if self.len == FRONT {
            let largest = self.front[0];
            if entry > largest {
                return self.body.push(entry, positions);
            }
            self.body.push(largest, positions).map_err(|_| entry)?;
            self.front.copy_within(1.., 0);
            self.len -= 1;
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

    /// Takes the smallest entry out.
    #[inline]
    pub fn pop_min(&mut self, positions: &mut impl Positions) -> Option<Entry> {
        if self.len == 0 {
            return self.body.pop_min(positions);
        }
        self.len -= 1;
        Some(self.front[self.len])
    }

    /// Takes the entry of `slot` out, which is at `position`.
    ///
    /// # Panics
    /// If it is not there.
    #[inline]
    pub fn remove(&mut self, slot: u32, position: u32, positions: &mut impl Positions) -> Entry {
        if position != IN_FRONT {
            return self.body.remove(position, positions);
        }
        let at = self.find(slot);
        let entry = self.front[at];
        self.front.copy_within(at + 1..self.len, at);
        self.len -= 1;
        entry
    }

    /// Puts `entry` in the place of the one of the same slot, which is at `position`.
    ///
    /// # Panics
    /// If it is not there.
    #[inline]
    pub fn replace(&mut self, position: u32, entry: Entry, positions: &mut impl Positions) -> Entry {
        if position != IN_FRONT && self.front[..self.len].first().is_some_and(|&largest| largest < entry) {
            // It stays in the body, whose order is all that changes.
            return self.body.replace(position, entry, positions);
        }
        let old = self.remove(entry.slot(), position, positions);
        if let Err(entry) = self.push(entry, positions) {
            self.exchange(entry, positions);
        }
        old
    }

    /// Puts an entry into the full body, and the smallest of that into the front, which has room.
    #[cold]
    fn exchange(&mut self, entry: Entry, positions: &mut impl Positions) {
        let pushed = match self.body.replace_min(entry, positions) {
            Some(least) => self.push_front(least, positions),
            None => Err(entry),
        };
        debug_assert!(pushed.is_ok(), "a full body has a smallest entry, and one of the front was taken out");
    }

    /// The smallest entries in order, [`Best::MAX`] at most.
    pub fn best(&self) -> Best {
        let front = self.front[..self.len].iter().rev().copied();
        if self.len >= Best::MAX {
            Best::collect(front)
        } else {
            Best::collect(front.chain(self.body.best().iter().copied()))
        }
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.front[..self.len].iter().copied().chain(self.body.iter())
    }

    /// Panics unless front and body are in order.
    pub fn check_invariants(&self) {
        self.body.check_invariants();
        let front = &self.front[..self.len];
        assert!(front.windows(2).all(|pair| pair[0] > pair[1]), "the front descends: {front:?}");
        if let (Some(largest), Some(least)) = (front.first(), self.body.peek_min()) {
            assert!(*largest < least, "the front is smaller than the body");
        }
    }
}

#[cfg(test)]
mod tests {
    // `prop_oneof!` expands to std's `Arc`; nothing here is shared between threads.
    #![allow(clippy::disallowed_types)]

    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

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
        PopMin,
        Remove(usize),
        Replace(usize, u64),
        Again,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0..60u64).prop_map(Op::Push),
            2 => Just(Op::PopMin),
            1 => any::<usize>().prop_map(Op::Remove),
            2 => (any::<usize>(), 0..60u64).prop_map(|(at, rank)| Op::Replace(at, rank)),
            2 => Just(Op::Again),
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
                    Op::PopMin => prop_assert_eq!(queue.pop_min(&mut table), oracle.pop_first()),
                    Op::Again => {
                        // Take the best and put it back: the common case.
                        if let Some(entry) = queue.pop_min(&mut table) {
                            prop_assert_eq!(Some(&entry), oracle.first());
                            prop_assert_eq!(queue.push(entry, &mut table), Ok(()));
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
        let most = (FRONT + queue.capacity()) as u32;
        let mut table = Table(vec![u32::MAX; most as usize]);
        for slot in 0..most {
            assert_eq!(queue.push(Entry::new(u64::from(slot), 0, slot), &mut table), Ok(()));
        }
        // Each in turn becomes the worst of all: out of the front, into a body without room.
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
    fn a_small_fleet_lives_in_the_front() {
        let mut queue = Queue::new();
        let mut table = Table(vec![u32::MAX; FRONT + 1]);
        for slot in 0..FRONT as u32 {
            assert_eq!(queue.push(Entry::new(u64::from(slot), 0, slot), &mut table), Ok(()));
        }
        let largest = Entry::new(1_000, 0, FRONT as u32);
        assert_eq!(queue.push(largest, &mut table), Err(largest), "the body has no room yet");
        let smallest = Entry::new(0, 0, FRONT as u32);
        assert!(queue.push(smallest, &mut table).is_err());
        assert_eq!(queue.len(), FRONT);
        queue.check_invariants();
    }
}
