//! A pair as the fleet grows from a thousand resources to a million, and as threads become many.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use leasehold::{Strategy, baseline::Lend, baseline::MutexScheduler};
use leasehold_benches::{Asset, RESOURCES, SHARDS, fill, scheduler, together};

fn resources(c: &mut Criterion) {
    let mut group = c.benchmark_group("resources");
    for resources in [1_000, 10_000, 100_000, 1_000_000] {
        let fleet = scheduler(resources, SHARDS, Strategy::default());
        group.bench_function(BenchmarkId::new("leasehold", resources), |b| {
            b.iter(|| drop(black_box(fleet.acquire().expect("one is free"))));
        });
        drop(fleet);
        let mutex = fill(MutexScheduler::new(), resources);
        group.bench_function(BenchmarkId::new("mutex", resources), |b| {
            b.iter(|| drop(black_box(mutex.acquire().expect("one is free"))));
        });
    }
}

/// Time per operation and thread, waiting for a processor included: with more threads than processors it grows with their
/// number, whoever lends.
fn threads(c: &mut Criterion) {
    let fleet = scheduler(RESOURCES, SHARDS, Strategy::default());
    let mutex = fill(MutexScheduler::new(), RESOURCES);
    for threads in [1, 2, 4, 8, 16, 32, 64] {
        lending(c, "leasehold", threads, &fleet);
        lending(c, "mutex", threads, &mutex);
    }
}

fn lending<L: Lend<Asset>>(c: &mut Criterion, name: &str, threads: usize, lender: &L) {
    c.benchmark_group("threads").bench_function(BenchmarkId::new(name, threads), |b| {
        b.iter_custom(|operations| {
            together(threads, operations, |_| drop(black_box(lender.acquire().expect("one is free"))))
        });
    });
}

criterion_group!(benches, resources, threads);
criterion_main!(benches);
