//! The pool's queues against plain lists: first in first out, and sorted by what is due.
//!
//! Input: a byte for the capacity, one for the slots of a segment, then two bytes for each operation.
#![cfg_attr(fuzzing, no_main)]

use std::collections::VecDeque;

use leasehold::pool::{BucketQueue, JobPriority, JobQueue, Refusal, SegmentedQueue};
use leasehold_fuzz::{Bytes, target};

/// What both must do alike, but for the order.
trait Model {
    fn push(&mut self, item: Box<u32>, priority: JobPriority);
    fn pop(&mut self) -> Option<Box<u32>>;
    fn len(&self) -> usize;
}

impl Model for VecDeque<Box<u32>> {
    fn push(&mut self, item: Box<u32>, _priority: JobPriority) {
        self.push_back(item);
    }

    fn pop(&mut self) -> Option<Box<u32>> {
        self.pop_front()
    }

    fn len(&self) -> usize {
        VecDeque::len(self)
    }
}

#[derive(Default)]
struct Due {
    items: VecDeque<(u64, Box<u32>)>,
    turn: u64,
}

impl Model for Due {
    fn push(&mut self, item: Box<u32>, priority: JobPriority) {
        let due = self.turn + u64::from(priority.get());
        let at = self.items.partition_point(|&(other, _)| other <= due);
        self.items.insert(at, (due, item));
    }

    fn pop(&mut self) -> Option<Box<u32>> {
        let (due, item) = self.items.pop_front()?;
        self.turn = due;
        Some(item)
    }

    fn len(&self) -> usize {
        self.items.len()
    }
}

fn drive(queue: &impl JobQueue<Box<u32>>, mut model: impl Model, capacity: usize, mut bytes: Bytes<'_>) {
    let (mut number, mut closed, mut passed) = (0u32, false, 0);
    while !bytes.is_empty() {
        let [kind, value] = bytes.array();
        let priority = JobPriority::new(1 + value % 63).expect("1 to 63");
        let room = if closed { 0 } else { capacity - model.len() };
        let refusal = if closed { Refusal::Closed } else { Refusal::Full };
        match kind % 8 {
            0..=2 => {
                number += 1;
                match queue.push(Box::new(number), priority) {
                    Ok(()) => {
                        assert!(room > 0);
                        model.push(Box::new(number), priority);
                    }
                    Err(refused) => {
                        assert_eq!((*refused.item, refused.reason, room), (number, refusal, 0));
                    }
                }
            }
            3 => {
                let count = usize::from(value / 4);
                let mut items: VecDeque<_> = (0..count).map(|i| Box::new(number + i as u32)).collect();
                let pushed = queue.push_many(&mut items, priority);
                assert_eq!(pushed, if count <= room { Ok(()) } else { Err(refusal) });
                assert_eq!(items.len(), count - count.min(room));
                (0..count.min(room)).for_each(|i| model.push(Box::new(number + i as u32), priority));
                number += count as u32;
            }
            4 if kind == 4 && value == 255 => {
                queue.close();
                closed = true;
            }
            _ => {
                let max = usize::from(value % 70);
                let mut items = VecDeque::new();
                let count = queue.pop_many(max, &mut items);
                assert_eq!(count, items.len());
                assert!(count <= max && (count > 0 || max == 0 || model.len() == 0));
                for item in items {
                    assert_eq!(Some(item), model.pop());
                }
                passed += count as u64;
            }
        }
        assert_eq!((queue.len(), queue.passed()), (model.len(), passed));
    }
}

fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let capacity = 1 + usize::from(bytes.u8() % 100);
    let slots = 1 + usize::from(bytes.u8() % 8);
    drive(
        &SegmentedQueue::<Box<u32>>::with(capacity as u64, slots),
        VecDeque::new(),
        capacity,
        Bytes(bytes.0),
    );
    drive(&BucketQueue::bounded(capacity), Due::default(), capacity, bytes);
}

target!(run);
