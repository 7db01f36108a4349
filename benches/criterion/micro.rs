//! Each operation by itself, on one thread: `cargo bench --manifest-path benches/Cargo.toml --bench micro`.

use std::{
    future::Future,
    hint::black_box,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use leasehold::{Entry, Scheduler, Strategy};
use leasehold_benches::{Asset, RESOURCES, SHARDS, Worker, assets, fill_loaded, scheduler};

fn lending(c: &mut Criterion) {
    let fleet = scheduler(RESOURCES, SHARDS, Strategy::default());
    let mut worker = Worker::new(0);
    let mut group = c.benchmark_group("lend");
    group.bench_function("acquire", |b| b.iter(|| drop(black_box(fleet.acquire()))));
    group.bench_function("acquire_key", |b| {
        b.iter(|| drop(black_box(fleet.acquire_key(&worker.below(RESOURCES)))));
    });
    group.bench_function("acquire_where", |b| {
        b.iter(|| drop(black_box(fleet.acquire_where(|asset: &Asset| asset.value.is_multiple_of(2)))));
    });
    group.bench_function("acquire_excluding", |b| {
        b.iter(|| drop(black_box(fleet.acquire_excluding(&[worker.below(RESOURCES)]))));
    });
    group.bench_function("acquire_by_affinity", |b| {
        b.iter(|| drop(black_box(fleet.acquire_by_affinity(&worker.below(RESOURCES)))));
    });
    group.bench_function("acquire_many/4", |b| b.iter(|| drop(black_box(fleet.acquire_many(4)))));
    group.bench_function("acquire_owned", |b| b.iter(|| drop(black_box(fleet.acquire_owned()))));
    group.bench_function("acquire_async", |b| b.iter(|| drop(black_box(ready(fleet.acquire_async())))));
    group.bench_function("token", |b| {
        b.iter(|| fleet.release(black_box(fleet.acquire().expect("one is free").into_token())));
    });
    let loaded = fill_loaded(Scheduler::builder().shards(SHARDS).build().expect("in range"));
    group.bench_function("least_loaded", |b| b.iter(|| drop(black_box(loaded.acquire()))));
}

fn looking(c: &mut Criterion) {
    let fleet = scheduler(RESOURCES, SHARDS, Strategy::default());
    let mut worker = Worker::new(0);
    let mut group = c.benchmark_group("look");
    group.bench_function("peek", |b| b.iter(|| fleet.peek().map(|peek| black_box(peek.value))));
    group.bench_function("peek_by_affinity", |b| {
        b.iter(|| fleet.peek_by_affinity(&worker.below(RESOURCES)).map(|peek| black_box(peek.value)));
    });
    group.bench_function("get", |b| {
        b.iter(|| fleet.get(&worker.below(RESOURCES)).map(|peek| black_box(peek.value)));
    });
    group.bench_function("stats", |b| b.iter(|| black_box(fleet.stats())));
}

fn changing(c: &mut Criterion) {
    let fleet = scheduler(RESOURCES, SHARDS, Strategy::default());
    let mut worker = Worker::new(0);
    let mut group = c.benchmark_group("change");
    group.bench_function("update", |b| {
        b.iter(|| fleet.update(Entry::new(worker.below(RESOURCES), worker.random(), 0)).is_ok());
    });
    group.bench_function("exclude+include", |b| {
        b.iter(|| {
            let key = worker.below(RESOURCES);
            fleet.exclude(&key).is_ok() && fleet.include(&key).is_ok()
        });
    });
    group.bench_function("cool+warm", |b| {
        b.iter(|| {
            let key = worker.below(RESOURCES);
            fleet.cool(&key, Duration::from_secs(3_600)).is_ok() && fleet.warm(&key).is_ok()
        });
    });
    group.bench_function("insert+remove", |b| {
        b.iter(|| {
            let key = worker.fresh_key();
            fleet.insert(Entry::new(key, key, 0)).is_ok() && fleet.remove(&key).is_ok()
        });
    });
    group.throughput(Throughput::Elements(1_000));
    group.bench_function("insert_batch/1000", |b| {
        let empty = || Scheduler::<Asset>::builder().shards(SHARDS).build().expect("in range");
        b.iter_batched(
            || (empty(), assets(1_000)),
            |(fleet, assets)| {
                assert!(fleet.insert_batch(assets).is_ok());
                fleet
            },
            BatchSize::LargeInput,
        );
    });
}

/// What a future answers that is ready at its first poll.
fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("one is free"),
    }
}

criterion_group!(benches, lending, looking, changing);
criterion_main!(benches);
