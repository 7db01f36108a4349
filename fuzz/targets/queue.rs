//! The heap between its sorted front and tail against a sorted set, room that runs out included.
//!
//! Input: four bytes for each operation.
#![cfg_attr(fuzzing, no_main)]

use std::collections::BTreeSet;

use leasehold::internals::heap::{Best, Entry, Queue, Segment};
use leasehold_fuzz::{Bytes, Owner, rank, target};

const SLOTS: u32 = 400;

/// What front and tail hold at most, as `heap::queue` says.
const APART: usize = 16 + 64;

type Triple = (u64, u64, u32);

fn triple(entry: Entry) -> Triple {
    (entry.rank(), entry.tie(), entry.slot())
}

struct Checked {
    queue: Queue,
    owner: Owner,
    set: BTreeSet<Triple>,
}

impl Checked {
    fn push(&mut self, rank: u64, tie: u64) {
        let Some(slot) = self.owner.take() else { return };
        let entry = Entry::new(rank, tie, slot);
        match self.queue.push(entry, &mut self.owner) {
            Ok(()) => {
                assert!(self.set.len() < self.queue.capacity() + APART, "more than there is room for");
                self.set.insert(triple(entry));
            }
            Err(back) => {
                assert_eq!(back, entry);
                // Which part of them front and tail hold depends on what has been; the body's room is sure.
                assert!(self.set.len() >= self.queue.capacity(), "refused with room in the body");
                self.owner.give_back(slot);
            }
        }
    }

    fn grow(&mut self) {
        if self.queue.capacity() < SLOTS as usize {
            let room = Segment::new(self.queue.next_segment_len().expect("far from the limit"));
            assert!(self.queue.add_segment(room).is_ok());
        }
    }

    fn nth(&self, n: u8) -> Option<Triple> {
        (!self.set.is_empty())
            .then(|| *self.set.iter().nth(usize::from(n) % self.set.len()).expect("in range"))
    }

    fn pop(&mut self) -> Option<Triple> {
        let entry = self.queue.pop_min(&mut self.owner).map(triple);
        assert_eq!(entry, self.set.pop_first());
        if let Some(gone) = entry {
            self.owner.give_back(gone.2);
        }
        entry
    }

    fn step(&mut self, [kind, a, b, c]: [u8; 4]) {
        let tie = u64::from(c % 4);
        match kind % 16 {
            0..=3 => self.push(rank(a, b), tie),
            4 => (0..=c % 48).for_each(|i| self.push(rank(a, b.wrapping_add(i.wrapping_mul(37))), tie)),
            5 => self.grow(),
            6 | 7 => {
                self.pop();
            }
            // Take the best and put it back, near to where it was: a lease.
            8 | 9 => {
                if let Some((rank, tie, _)) = self.pop() {
                    self.push(rank, tie + u64::from(a % 2));
                }
            }
            10 | 11 => {
                let Some(chosen) = self.nth(a) else { return };
                let position = self.owner.position(chosen.2);
                assert_eq!(triple(self.queue.remove(chosen.2, position, &mut self.owner)), chosen);
                self.set.remove(&chosen);
                self.owner.give_back(chosen.2);
            }
            12..=14 => {
                let Some(chosen) = self.nth(a) else { return };
                let new = Entry::new(rank(b, c), tie, chosen.2);
                let old = self.queue.replace(self.owner.position(chosen.2), new, &mut self.owner);
                assert_eq!(triple(old), chosen);
                self.set.remove(&chosen);
                self.set.insert(triple(new));
            }
            _ => {
                for _ in 0..a % 64 {
                    self.pop();
                }
            }
        }
    }

    /// Both ends, after each operation.
    fn check_ends(&self) {
        let (queue, set) = (&self.queue, &self.set);
        assert_eq!((queue.len(), queue.is_empty()), (set.len(), set.is_empty()));
        assert_eq!(queue.peek_min().map(triple), set.first().copied());
        assert_eq!(queue.peek_max().map(triple), set.last().copied());
        assert!(queue.best().iter().map(|&entry| triple(entry)).eq(set.iter().take(Best::MAX).copied()));
    }

    /// Everything.
    fn check(&self) {
        self.check_ends();
        let (queue, set) = (&self.queue, &self.set);
        queue.check_invariants();
        assert_eq!(queue.iter().map(triple).collect::<BTreeSet<_>>(), *set);
        for &(rank, tie, slot) in set {
            assert_eq!(triple(queue.get(slot, self.owner.position(slot))), (rank, tie, slot));
        }
    }
}

fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut checked = Checked { queue: Queue::new(), owner: Owner::new(SLOTS), set: BTreeSet::new() };
    while !bytes.is_empty() {
        checked.step(bytes.array());
        checked.check_ends();
        // The rest costs as much as there is.
        if checked.set.len() < 32 || bytes.0.len() % 32 < 4 {
            checked.check();
        }
    }
    while checked.pop().is_some() {}
    checked.check();
}

target!(run);
