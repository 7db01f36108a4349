//! Taking and returning: what everything else is judged by.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    hint::black_box,
    sync::Mutex,
    thread,
    time::Duration,
};

use leasehold::{
    Capacity, Overdue, Resource, Scheduler, SplitMix64, Strategy, baseline::Lend, baseline::MutexScheduler,
};

use super::{Measured, Setting, locked};
use crate::compare::{
    cases::{Asset, Operation, fleet, side},
    measure::{BATCH, Side, Turn, Worker, alternate, run},
};

/// One mutex around ranks and slots, as short as it can be written: no keys, no values, no leases.
pub type BareHeap = Mutex<BinaryHeap<Reverse<(u64, u32)>>>;

pub fn bare_heap(resources: u32) -> BareHeap {
    let mut random = SplitMix64::new(1);
    Mutex::new((0..resources).map(|slot| Reverse((random.next_u64(), slot))).collect())
}

fn pop_push(heap: &BareHeap) -> impl Fn(&mut Worker) + Sync {
    move |_| {
        for _ in 0..BATCH {
            let entry = locked(heap, BinaryHeap::pop).expect("there is an entry for each thread");
            locked(heap, |heap| heap.push(black_box(entry)));
        }
    }
}

pub fn mutex(setting: &Setting) -> MutexScheduler<Asset> {
    let scheduler = MutexScheduler::new();
    fleet(&scheduler, setting.resources);
    scheduler
}

fn pair<L: Lend<Asset>>(lender: &L) -> impl Fn(&mut Worker) + Sync {
    side(Operation::AcquireRelease, lender)
}

pub fn against_heap(setting: &Setting) -> Measured {
    strategy_against_heap(setting, Strategy::default())
}

pub fn best_of_two_against_heap(setting: &Setting) -> Measured {
    strategy_against_heap(setting, Strategy::BestOf { choices: 2 })
}

fn strategy_against_heap(setting: &Setting, strategy: Strategy) -> Measured {
    let (scheduler, heap) = (setting.scheduler(strategy), bare_heap(setting.resources));
    Measured::Ratio(alternate(&setting.plan(), &pair(&scheduler), &pop_push(&heap)))
}

pub fn against_mutex(setting: &Setting) -> Measured {
    strategy_against_mutex(setting, Strategy::default())
}

pub fn strict_against_mutex(setting: &Setting) -> Measured {
    strategy_against_mutex(setting, Strategy::BestOf { choices: usize::MAX })
}

fn strategy_against_mutex(setting: &Setting, strategy: Strategy) -> Measured {
    let (scheduler, mutex) = (setting.scheduler(strategy), mutex(setting));
    Measured::Ratio(alternate(&setting.plan(), &pair(&scheduler), &pair(&mutex)))
}

/// What [`max_hold`](leasehold::Builder::max_hold) costs: each lease is on record, so that it can be revoked.
pub fn recorded_against_unrecorded(setting: &Setting) -> Measured {
    let builder = Scheduler::builder().shards(setting.shards).max_hold(Duration::from_secs(60));
    let recorded: Scheduler<Asset> = builder.overdue(Overdue::Revoke).build().expect("in range");
    fleet(&recorded, setting.resources);
    let unrecorded = setting.scheduler(Strategy::default());
    Measured::Ratio(alternate(&setting.plan(), &pair(&recorded), &pair(&unrecorded)))
}

pub fn two_threads_to_one(setting: &Setting) -> Measured {
    let scheduler = setting.scheduler(Strategy::default());
    threads_to_one(setting, &pair(&scheduler))
}

/// `side` at the row's number of threads, against itself at one.
pub fn threads_to_one(setting: &Setting, side: &Side<'_>) -> Measured {
    let at = |threads| {
        let plan = setting.with_threads(threads).plan();
        Box::new(move |seed| run(&plan, seed, side)) as Turn<'_>
    };
    setting.ratio([at(setting.threads), at(1)])
}

pub fn growth(setting: &Setting) -> Measured {
    let small = Setting { resources: (setting.resources / 1_000).max(1), ..*setting };
    let fleets = [setting, &small].map(|setting| setting.scheduler(Strategy::default()));
    Measured::Ratio(alternate(&setting.plan(), &pair(&fleets[0]), &pair(&fleets[1])))
}

/// Ranked by the leases that are out: the least loaded goes first, without any update.
pub struct Loaded(u64);

impl Resource for Loaded {
    type Key = u64;
    type Priority = u32;

    fn key(&self) -> u64 {
        self.0
    }

    fn priority(&self, in_flight: u32) -> u32 {
        in_flight
    }

    fn capacity(&self) -> Capacity {
        Capacity::Limited(64)
    }
}

pub fn least_loaded(setting: &Setting) -> Measured {
    let scheduler = Scheduler::<Loaded>::builder().shards(setting.shards).build().expect("in range");
    let mutex = MutexScheduler::new();
    Measured::Ratio(alternate(
        &setting.plan(),
        &least_loaded_pair(&scheduler, setting.resources),
        &least_loaded_pair(&mutex, setting.resources),
    ))
}

fn least_loaded_pair<L: Lend<Loaded>>(lender: &L, resources: u32) -> impl Fn(&mut Worker) + Sync {
    let loaded = (0..u64::from(resources)).map(Loaded).collect();
    assert!(lender.insert_batch(loaded).is_ok(), "the keys are distinct");
    move |_| {
        for _ in 0..BATCH {
            black_box(lender.acquire().expect("64 leases each are plenty").0);
        }
    }
}

pub fn elsewhere_against_mutex(setting: &Setting) -> Measured {
    let (scheduler, mutex) = (setting.scheduler(Strategy::default()), mutex(setting));
    let taking = || scheduler.acquire().expect("there are enough");
    let taking_from_mutex = || mutex.acquire().expect("there are enough");
    Measured::Ratio(alternate(
        &setting.plan(),
        &elsewhere(setting, taking, drop),
        &elsewhere(setting, taking_from_mutex, drop),
    ))
}

pub fn elsewhere_against_heap(setting: &Setting) -> Measured {
    let (scheduler, heap) = (setting.scheduler(Strategy::default()), bare_heap(setting.resources));
    let taking = || scheduler.acquire().expect("there are enough");
    let popping = || locked(&heap, BinaryHeap::pop).expect("there are enough");
    let pushing = |entry| locked(&heap, |heap| heap.push(entry));
    Measured::Ratio(alternate(
        &setting.plan(),
        &elsewhere(setting, taking, drop),
        &elsewhere(setting, popping, pushing),
    ))
}

/// Bundles that may wait in a thread's box.
const WAITING: usize = 4;

/// Each thread takes a bundle, hands it on to the next thread, and returns one that was handed to it. Bundles, so that
/// handing on costs little beside taking and returning, and the same on both sides.
///
/// A thread whose neighbour does not come to empty its box returns its bundle itself after a while: nobody waits for
/// ever, and a machine that runs the threads one after the other is measured at something else, but alike.
fn elsewhere<'a, T: Send + 'a>(
    setting: &Setting,
    take: impl Fn() -> T + Sync + 'a,
    give: impl Fn(T) + Sync + 'a,
) -> impl Fn(&mut Worker) + Sync + 'a {
    let threads = setting.threads;
    let affordable = setting.resources as usize / (threads * (WAITING + 2));
    let bundle = [32, 16, 8, 4, 2].into_iter().find(|&bundle| bundle <= affordable).unwrap_or(1);
    let boxes: Vec<_> =
        (0..threads).map(|_| Mutex::new(VecDeque::<Vec<T>>::with_capacity(WAITING))).collect();
    move |worker| {
        let (own, next) = (&boxes[worker.thread()], &boxes[(worker.thread() + 1) % threads]);
        for _ in 0..BATCH as usize / bundle {
            let mut taken = Some((0..bundle).map(|_| take()).collect::<Vec<T>>());
            for _ in 0..1_000 {
                locked(own, VecDeque::pop_front).into_iter().flatten().for_each(&give);
                locked(next, |waiting| {
                    if waiting.len() < WAITING {
                        waiting.extend(taken.take());
                    }
                });
                if taken.is_none() {
                    break;
                }
                thread::yield_now();
            }
            taken.into_iter().flatten().for_each(&give);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicU64, sync::atomic::Ordering, time::Duration};

    use super::*;
    use crate::compare::measure::together;

    #[test]
    fn leases_come_back_elsewhere() {
        let setting =
            Setting { threads: 2, resources: 200, shards: 2, pairs: 5, length: Duration::from_millis(1) };
        let elsewhere_returned = AtomicU64::new(0);
        let left = AtomicU64::new(0);
        let side = elsewhere(
            &setting,
            || {
                left.fetch_add(1, Ordering::Relaxed);
                thread::current().id()
            },
            |taker| {
                left.fetch_sub(1, Ordering::Relaxed);
                if taker != thread::current().id() {
                    elsewhere_returned.fetch_add(1, Ordering::Relaxed);
                }
            },
        );
        together(&setting.plan(), 0, |worker| (0..100).for_each(|_| side(worker)));
        // What is left waits in the boxes. At least the bundles that were waiting once have crossed.
        assert!(left.load(Ordering::Relaxed) <= 2 * 16 * WAITING as u64);
        assert!(elsewhere_returned.load(Ordering::Relaxed) > 0);
    }

    #[test]
    fn least_loaded_goes_first() {
        let scheduler = Scheduler::<Loaded>::builder().shards(1).build().unwrap();
        least_loaded_pair(&scheduler, 3)(&mut Worker::new(0, 3, 0));
        let leases: Vec<_> = (0..6).map(|_| scheduler.acquire().unwrap().0).collect();
        assert_eq!(leases.len(), 6);
        assert_eq!(scheduler.len(), 3);
    }
}
