//! The min-max heap against a sorted set, and what it tells its owner against where the entries are.
//!
//! Input: four bytes for each operation.
#![cfg_attr(fuzzing, no_main)]

use std::collections::BTreeSet;

use leasehold::internals::heap::{Best, Entry, MinMaxHeap, Segment};
use leasehold_fuzz::{Bytes, Owner, rank, target};

/// Crosses five boundaries between segments.
const SLOTS: u32 = 600;

/// As the order is documented, without the heap's own comparison: rank, tie, slot.
type Triple = (u64, u64, u32);

fn triple(entry: Entry) -> Triple {
    (entry.rank(), entry.tie(), entry.slot())
}

struct Checked {
    heap: MinMaxHeap,
    owner: Owner,
    set: BTreeSet<Triple>,
}

impl Checked {
    fn push(&mut self, rank: u64, tie: u64) {
        let Some(slot) = self.owner.take() else { return };
        let entry = Entry::new(rank, tie, slot);
        if self.heap.len() == self.heap.capacity() {
            assert_eq!(self.heap.push(entry, &mut self.owner), Err(entry), "there is no room");
            let room = Segment::new(self.heap.next_segment_len().expect("far from the limit"));
            assert!(self.heap.add_segment(room).is_ok(), "the length that was due");
        }
        assert_eq!(self.heap.push(entry, &mut self.owner), Ok(()));
        self.set.insert(triple(entry));
    }

    /// The n-th entry in order, wherever it is.
    fn nth(&self, n: u8) -> Option<Triple> {
        (!self.set.is_empty())
            .then(|| *self.set.iter().nth(usize::from(n) % self.set.len()).expect("in range"))
    }

    fn left(&mut self, entry: Option<Entry>, expected: Option<Triple>) {
        assert_eq!(entry.map(triple), expected);
        if let Some(gone) = expected {
            self.set.remove(&gone);
            self.owner.give_back(gone.2);
        }
    }

    fn step(&mut self, [kind, a, b, c]: [u8; 4]) {
        let tie = u64::from(c % 4);
        match kind % 16 {
            0..=4 => self.push(rank(a, b), tie),
            5 => (0..=c % 48).for_each(|i| self.push(rank(a, b.wrapping_add(i.wrapping_mul(37))), tie)),
            6 | 7 => {
                let first = self.set.first().copied();
                let entry = self.heap.pop_min(&mut self.owner);
                self.left(entry, first);
            }
            8 => {
                let last = self.set.last().copied();
                let entry = self.heap.pop_max(&mut self.owner);
                self.left(entry, last);
            }
            9 | 10 => {
                let Some(chosen) = self.nth(a) else { return };
                let entry = self.heap.remove(self.owner.position(chosen.2), &mut self.owner);
                self.left(Some(entry), Some(chosen));
            }
            // The same slot with another rank: an update.
            11 | 12 => {
                let Some(chosen) = self.nth(a) else { return };
                let new = Entry::new(rank(b, c), tie, chosen.2);
                let old = self.heap.replace(self.owner.position(chosen.2), new, &mut self.owner);
                assert_eq!(triple(old), chosen);
                self.set.remove(&chosen);
                self.set.insert(triple(new));
            }
            13 => {
                let Some(slot) = self.owner.take() else { return };
                let new = Entry::new(rank(a, b), tie, slot);
                let first = self.set.first().copied();
                let old = self.heap.replace_min(new, &mut self.owner);
                self.left(old, first);
                match first {
                    Some(_) => drop(self.set.insert(triple(new))),
                    None => self.owner.give_back(slot),
                }
            }
            14 => {
                for _ in 0..a % 64 {
                    let first = self.set.first().copied();
                    let entry = self.heap.pop_min(&mut self.owner);
                    self.left(entry, first);
                }
            }
            _ => {
                let due = self.heap.next_segment_len().expect("far from the limit");
                let wrong = if a % 2 == 0 { due * 2 } else { due / 2 };
                assert!(self.heap.add_segment(Segment::new(wrong)).is_err(), "not the length that is due");
            }
        }
    }

    /// Both ends, after each operation.
    fn check_ends(&self) {
        let (heap, set) = (&self.heap, &self.set);
        assert_eq!((heap.len(), heap.is_empty()), (set.len(), set.is_empty()));
        assert_eq!(heap.peek_min().map(triple), set.first().copied());
        assert_eq!(heap.peek_max().map(triple), set.last().copied());
        assert!(heap.best().iter().map(|&entry| triple(entry)).eq(set.iter().take(Best::MAX).copied()));
    }

    /// Everything.
    fn check(&self) {
        self.check_ends();
        let (heap, set) = (&self.heap, &self.set);
        heap.check_invariants();
        assert_eq!(heap.iter().map(triple).collect::<BTreeSet<_>>(), *set);
        for &(rank, tie, slot) in set {
            assert_eq!(triple(heap.get(self.owner.position(slot))), (rank, tie, slot), "the owner was told");
        }
    }
}

fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut checked = Checked { heap: MinMaxHeap::new(), owner: Owner::new(SLOTS), set: BTreeSet::new() };
    while !bytes.is_empty() {
        checked.step(bytes.array());
        checked.check_ends();
        // The rest costs as much as there is.
        if checked.set.len() < 32 || bytes.0.len() % 32 < 4 {
            checked.check();
        }
    }
    // To the last one, from both ends.
    while let Some(&first) = checked.set.first() {
        let entry = checked.heap.pop_min(&mut checked.owner);
        checked.left(entry, Some(first));
        let last = checked.set.last().copied();
        let entry = checked.heap.pop_max(&mut checked.owner);
        checked.left(entry, last);
    }
    checked.check();
}

target!(run);
