//! The operations that are measured.
//!
//! To add one: a variant, its name, and its arm in [`side`]. What is not a [`Lend`] can become a side as well: any
//! closure that does a batch.

use std::hint::black_box;

use leasehold::{Entry, SplitMix64, baseline::Lend};

use super::measure::{BATCH, Worker};

/// Key, priority and value are words: what is measured is the schedulers.
pub type Asset = Entry<u64, u64, u64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    AcquireRelease,
    Peek,
    Get,
    Update,
    InsertRemove,
    ExcludeInclude,
}

impl Operation {
    /// In the order of the report.
    pub const ALL: [Operation; 6] = [
        Operation::AcquireRelease,
        Operation::Peek,
        Operation::Get,
        Operation::Update,
        Operation::InsertRemove,
        Operation::ExcludeInclude,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Operation::AcquireRelease => "acquire+release",
            Operation::Peek => "peek",
            Operation::Get => "get",
            Operation::Update => "update",
            Operation::InsertRemove => "insert+remove",
            Operation::ExcludeInclude => "exclude+include",
        }
    }
}

/// Fills an empty lender: keys from 0, random priorities, the same for all.
pub fn fleet<L: Lend<Asset>>(lender: &L, resources: u32) {
    let mut random = SplitMix64::new(1);
    let assets = (0..u64::from(resources)).map(|key| Entry::new(key, random.next_u64(), key)).collect();
    assert!(lender.insert_batch(assets).is_ok(), "the keys are distinct and the fleet is unbounded");
}

/// A batch of `operation`, the same code whoever lends. A pair of calls counts as one operation.
///
/// That each call does its work is asserted, except that a resource may be excluded by two threads at once.
pub fn side<L: Lend<Asset>>(operation: Operation, lender: &L) -> impl Fn(&mut Worker) + Sync {
    move |worker| match operation {
        Operation::AcquireRelease => repeat(|| {
            let lease = lender.acquire().expect("there is a resource for each thread");
            black_box(lease.value);
        }),
        Operation::Peek => repeat(|| {
            black_box(lender.peek_with(|asset| asset.value).expect("nobody holds a resource"));
        }),
        Operation::Get => repeat(|| {
            let key = worker.key();
            black_box(lender.get_with(&key, |asset| asset.value).expect("all keys are there"));
        }),
        Operation::Update => repeat(|| {
            let asset = Entry::new(worker.key(), worker.random(), 0);
            assert!(lender.update(asset).is_ok(), "all keys are there");
        }),
        Operation::InsertRemove => repeat(|| {
            let key = worker.fresh_key();
            assert!(lender.insert(Entry::new(key, worker.random(), 0)).is_ok(), "the key is new");
            assert!(lender.remove(&key), "the key was inserted");
        }),
        Operation::ExcludeInclude => repeat(|| {
            let key = worker.key();
            black_box(lender.exclude(&key));
            black_box(lender.include(&key));
        }),
    }
}

#[inline]
fn repeat(mut operation: impl FnMut()) {
    (0..BATCH).for_each(|_| operation());
}

#[cfg(test)]
mod tests {
    use leasehold::{Scheduler, baseline::MutexScheduler};

    use super::*;

    /// A batch of everything leaves the fleet as it was, but for the priorities.
    fn batches<L: Lend<Asset>>(lender: &L) {
        fleet(lender, 10);
        let mut worker = Worker::new(0, 10, 1);
        for operation in Operation::ALL {
            side(operation, lender)(&mut worker);
            assert_eq!(lender.len(), 10, "{operation:?}");
        }
        let leases: Vec<_> = (0..10).map(|_| lender.acquire().expect("all are eligible")).collect();
        assert!(lender.acquire().is_err());
        assert!(leases.iter().all(|lease| lease.value == 0 || lease.value == lease.key));
    }

    #[test]
    fn batches_leave_the_fleet_whole() {
        batches(&Scheduler::<Asset>::builder().shards(4).build().unwrap());
        batches(&MutexScheduler::new());
    }

    #[test]
    fn both_sides_have_the_same_fleet() {
        let (scheduler, baseline) =
            (Scheduler::<Asset>::builder().shards(1).build().unwrap(), MutexScheduler::new());
        fleet(&scheduler, 100);
        fleet(&baseline, 100);
        let best = |asset: &Asset| asset.key;
        assert_eq!(Lend::peek_with(&scheduler, best), baseline.peek_with(best));
    }
}
