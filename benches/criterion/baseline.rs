//! The scheduler and its yardsticks through the same trait, on one thread and on two.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use leasehold::{
    Entry, Strategy,
    baseline::{Lend, MutexScheduler, RoundRobinScheduler},
};
use leasehold_benches::{Asset, RESOURCES, SHARDS, Worker, fill, scheduler, together};

fn measure(c: &mut Criterion, group: &str, name: &str, operation: impl Fn(&mut Worker) + Sync) {
    let mut group = c.benchmark_group(group);
    for threads in [1, 2] {
        group.bench_function(BenchmarkId::new(name, threads), |b| {
            b.iter_custom(|operations| together(threads, operations, &operation));
        });
    }
}

fn operations<L: Lend<Asset>>(c: &mut Criterion, name: &str, lender: &L) {
    measure(c, "acquire+release", name, |_| drop(black_box(lender.acquire().expect("one is free"))));
    measure(c, "peek", name, |_| {
        black_box(lender.peek_with(|asset| asset.value));
    });
    measure(c, "get", name, |worker| {
        black_box(lender.get_with(&worker.below(RESOURCES), |asset| asset.value));
    });
    measure(c, "update", name, |worker| {
        assert!(lender.update(Entry::new(worker.below(RESOURCES), worker.random(), 0)).is_ok());
    });
    measure(c, "insert+remove", name, |worker| {
        let key = worker.fresh_key();
        assert!(lender.insert(Entry::new(key, key, 0)).is_ok() && lender.remove(&key));
    });
    measure(c, "exclude+include", name, |worker| {
        let key = worker.below(RESOURCES);
        black_box((lender.exclude(&key), lender.include(&key)));
    });
}

fn all(c: &mut Criterion) {
    operations(c, "leasehold", &scheduler(RESOURCES, SHARDS, Strategy::default()));
    operations(c, "mutex", &fill(MutexScheduler::new(), RESOURCES));
    operations(c, "round-robin", &fill(RoundRobinScheduler::new(), RESOURCES));
}

criterion_group!(benches, all);
criterion_main!(benches);
