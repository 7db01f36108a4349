//! Events in order of virtual time; those of one moment in the order in which they were planned.

use std::{cmp::Ordering, collections::BinaryHeap};

pub struct EventQueue<T> {
    heap: BinaryHeap<Planned<T>>,
    planned: u64,
}

struct Planned<T> {
    at: u64,
    sequence: u64,
    event: T,
}

impl<T> EventQueue<T> {
    pub fn new() -> Self {
        EventQueue { heap: BinaryHeap::new(), planned: 0 }
    }

    pub fn plan(&mut self, at: u64, event: T) {
        self.heap.push(Planned { at, sequence: self.planned, event });
        self.planned += 1;
    }

    /// The next event, if it is due by `moment`.
    pub fn pop_due(&mut self, moment: u64) -> Option<(u64, T)> {
        if self.heap.peek()?.at > moment {
            return None;
        }
        self.heap.pop().map(|planned| (planned.at, planned.event))
    }
}

// The heap keeps its greatest on top, so the order is reversed: earliest is greatest.
impl<T> Ord for Planned<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<T> PartialOrd for Planned<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Planned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Planned<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_first_then_order_of_planning() {
        let mut queue = EventQueue::new();
        for (at, event) in [(5, 'd'), (1, 'a'), (5, 'e'), (2, 'b'), (2, 'c'), (9, 'f')] {
            queue.plan(at, event);
        }
        let due: String = std::iter::from_fn(|| queue.pop_due(5)).map(|(_, event)| event).collect();
        assert_eq!(due, "abcde");
        assert_eq!(queue.pop_due(8), None);
        assert_eq!(queue.pop_due(u64::MAX), Some((9, 'f')));
        assert_eq!(queue.pop_due(u64::MAX), None);
    }
}
