//! Instructions of the operations, counted by callgrind: the same number in every run, whatever else the machine does.
//!
//! One thread, 10,000 resources in 8 shards, everything random from fixed seeds. Each case repeats its operation
//! [`TIMES`] times, so that what happens once in a while (another choice of shard, a collection of what was retired) is in it
//! by its share. `benches/instructions` runs this and holds the counts against those that are committed.
//!
//! Two of the cases are yardsticks that contain nothing of the library's core: on a compiler for which no counts are
//! committed, the others are judged in proportion to them.

mod fleet;

use std::hint::black_box;

use fleet::{Bare, Fleet, Least, Mutexed, TIMES, bare, fleet, least, mutexed, once, random_keys, ready};
use gungraun::{library_benchmark, library_benchmark_group, main};
use leasehold::{Entry, baseline::Lend};

// Yardstick: pop and push of one binary heap behind one mutex.
#[library_benchmark]
#[bench::case(setup = bare)]
fn yardstick_heap(heap: Bare) -> Bare {
    for _ in 0..TIMES {
        let best = heap.lock().expect("no panic").pop().expect("not empty");
        heap.lock().expect("no panic").push(black_box(best));
    }
    heap
}

// Yardstick: the same as `pair`, by the mutex baseline.
#[library_benchmark]
#[bench::case(setup = mutexed)]
fn yardstick_mutex(fleet: Mutexed) -> Mutexed {
    for _ in 0..TIMES {
        black_box(fleet.acquire().expect("one is free").value);
    }
    fleet
}

#[library_benchmark]
#[bench::case(setup = fleet)]
fn pair(fleet: Fleet) -> Fleet {
    for _ in 0..TIMES {
        black_box(fleet.acquire().expect("one is free").value);
    }
    fleet
}

#[library_benchmark]
#[bench::case(setup = least)]
fn least_loaded(fleet: Least) -> Least {
    for _ in 0..TIMES {
        black_box(fleet.acquire().expect("one is free").0);
    }
    fleet
}

#[library_benchmark]
#[bench::case(setup = fleet)]
fn acquire_async(fleet: Fleet) -> Fleet {
    for _ in 0..TIMES {
        black_box(ready(fleet.acquire_async()).expect("one is free").value);
    }
    fleet
}

#[library_benchmark]
#[bench::case(setup = fleet)]
fn affinity(fleet: Fleet) -> Fleet {
    for id in random_keys() {
        black_box(fleet.acquire_by_affinity(&id).expect("one is free").value);
    }
    fleet
}

#[library_benchmark]
#[bench::case(setup = fleet)]
fn peek(fleet: Fleet) -> Fleet {
    for _ in 0..TIMES {
        black_box(fleet.peek().expect("one is free").value);
    }
    fleet
}

#[library_benchmark]
#[bench::case(setup = fleet)]
fn peek_by_affinity(fleet: Fleet) -> Fleet {
    for id in random_keys() {
        black_box(fleet.peek_by_affinity(&id).expect("one is free").value);
    }
    fleet
}

#[library_benchmark]
#[bench::case(setup = fleet)]
fn get(fleet: Fleet) -> Fleet {
    for key in random_keys() {
        black_box(fleet.get(&key).expect("all keys are there").value);
    }
    fleet
}

#[library_benchmark]
#[bench::case(setup = fleet)]
fn update(fleet: Fleet) -> Fleet {
    for key in random_keys() {
        // Another place in the heap each time.
        let priority = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        black_box(fleet.update(Entry::new(key, priority, 0)).is_ok());
    }
    fleet
}

#[library_benchmark]
#[bench::case(setup = fleet)]
fn exclude_include(fleet: Fleet) -> Fleet {
    for key in random_keys() {
        black_box(fleet.exclude(&key).is_ok());
        black_box(fleet.include(&key).is_ok());
    }
    fleet
}

#[library_benchmark]
#[bench::case(setup = fleet)]
fn insert_remove(fleet: Fleet) -> Fleet {
    for key in random_keys() {
        let key = once(key);
        black_box(fleet.insert(Entry::new(key, key, 0)).is_ok());
        black_box(fleet.remove(&key).is_ok());
    }
    fleet
}

library_benchmark_group!(
    name = counts,
    benchmarks = [
        yardstick_heap,
        yardstick_mutex,
        pair,
        least_loaded,
        acquire_async,
        affinity,
        peek,
        peek_by_affinity,
        get,
        update,
        exclude_include,
        insert_remove
    ]
);

main!(library_benchmark_groups = counts);
