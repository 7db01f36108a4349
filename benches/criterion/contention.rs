//! The same operations on several threads at once; time is per operation and thread.

use std::{hint::black_box, sync::Mutex};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use leasehold::{Entry, Strategy};
use leasehold_benches::{RESOURCES, SHARDS, Worker, scheduler, together};

const THREADS: [usize; 3] = [1, 2, 4];

fn at_each_number_of_threads(c: &mut Criterion, name: &str, operation: impl Fn(&mut Worker) + Sync) {
    let mut group = c.benchmark_group(name);
    for threads in THREADS {
        group.bench_function(BenchmarkId::from_parameter(threads), |b| {
            b.iter_custom(|operations| together(threads, operations, &operation));
        });
    }
}

fn pairs(c: &mut Criterion) {
    let all = usize::MAX;
    for (name, strategy) in [
        ("pair/sticky", Strategy::default()),
        ("pair/best-of-2", Strategy::BestOf { choices: 2 }),
        ("pair/best-of-all", Strategy::BestOf { choices: all }),
        ("pair/round-robin", Strategy::RoundRobin),
        ("pair/adaptive", Strategy::Adaptive),
    ] {
        let fleet = scheduler(RESOURCES, SHARDS, strategy);
        at_each_number_of_threads(c, name, |_| drop(black_box(fleet.acquire().expect("one is free"))));
    }
}

/// Leases that change hands at a time: so that the hand-over, which all threads share, is little beside them.
const BUNDLE: usize = 32;

/// Each thread returns what another one took. The figure is that of a bundle, taken and returned.
fn elsewhere(c: &mut Criterion) {
    let fleet = scheduler(RESOURCES, SHARDS, Strategy::default());
    let handed = Mutex::new(Vec::new());
    at_each_number_of_threads(c, "pair/elsewhere, 32 of them", |_| {
        let taken: Vec<_> = (0..BUNDLE).map(|_| fleet.acquire().expect("there are enough")).collect();
        let before = std::mem::replace(&mut *handed.lock().expect("nobody panics"), taken);
        drop(before);
    });
}

fn others(c: &mut Criterion) {
    let fleet = scheduler(RESOURCES, SHARDS, Strategy::default());
    at_each_number_of_threads(c, "peek", |_| {
        black_box(fleet.peek().expect("one is free").value);
    });
    at_each_number_of_threads(c, "get", |worker| {
        black_box(fleet.get(&worker.below(RESOURCES)).expect("all keys are there").value);
    });
    at_each_number_of_threads(c, "update", |worker| {
        let asset = Entry::new(worker.below(RESOURCES), worker.random(), 0);
        assert!(fleet.update(asset).is_ok(), "all keys are there");
    });
    at_each_number_of_threads(c, "exclude+include", |worker| {
        let key = worker.below(RESOURCES);
        black_box((fleet.exclude(&key).is_ok(), fleet.include(&key).is_ok()));
    });
    at_each_number_of_threads(c, "insert+remove", |worker| {
        let key = worker.fresh_key();
        assert!(fleet.insert(Entry::new(key, key, 0)).is_ok(), "a new key");
        assert!(fleet.remove(&key).is_ok(), "it was inserted");
    });
}

criterion_group!(benches, pairs, elsewhere, others);
criterion_main!(benches);
