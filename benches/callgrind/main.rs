//! Instructions of the operations, counted by callgrind: the same number in every run, whatever else the machine does.
//!
//! One thread, 10,000 resources in 8 shards, everything random from fixed seeds. Each case repeats its operation
//! [`TIMES`] times, so that what happens once in a while (another choice of shard, a collection of what was retired) is in it
//! by its share. `benches/instructions` runs one case after the other, of which callgrind counts what is done in the function of that
//! name, and holds the counts against those that are committed. Without an argument this prints the names.
//!
//! Two of the cases are yardsticks that contain nothing of the library's core: on a compiler for which no counts are
//! committed, the others are judged in proportion to them.

mod fleet;

use std::{hint::black_box, process::ExitCode};

use fleet::{
    Bare, Fleet, Least, Mutexed, TIMES, bare, batch, changed, fleet, least, mutexed, once, random_keys, ready,
};
use leasehold::{Entry, baseline::Lend};
use leasehold_benches::Asset;

// Yardstick: pop and push of one binary heap behind one mutex.
#[unsafe(no_mangle)]
#[inline(never)]
fn counted_yardstick_heap(heap: Bare) -> Bare {
    for _ in 0..TIMES {
        let best = heap.lock().expect("no panic").pop().expect("not empty");
        heap.lock().expect("no panic").push(black_box(best));
    }
    heap
}

// Yardstick: the same as `pair`, by the mutex baseline.
#[unsafe(no_mangle)]
#[inline(never)]
fn counted_yardstick_mutex(fleet: Mutexed) -> Mutexed {
    for _ in 0..TIMES {
        black_box(fleet.acquire().expect("one is free").value);
    }
    fleet
}

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_pair(fleet: Fleet) -> Fleet {
    for _ in 0..TIMES {
        black_box(fleet.acquire().expect("one is free").value);
    }
    fleet
}

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_least_loaded(fleet: Least) -> Least {
    for _ in 0..TIMES {
        black_box(fleet.acquire().expect("one is free").0);
    }
    fleet
}

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_acquire_async(fleet: Fleet) -> Fleet {
    for _ in 0..TIMES {
        black_box(ready(fleet.acquire_async()).expect("one is free").value);
    }
    fleet
}

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_affinity(fleet: Fleet) -> Fleet {
    for id in random_keys() {
        black_box(fleet.acquire_by_affinity(&id).expect("one is free").value);
    }
    fleet
}

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_peek(fleet: Fleet) -> Fleet {
    for _ in 0..TIMES {
        black_box(fleet.peek().expect("one is free").value);
    }
    fleet
}

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_peek_by_affinity(fleet: Fleet) -> Fleet {
    for id in random_keys() {
        black_box(fleet.peek_by_affinity(&id).expect("one is free").value);
    }
    fleet
}

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_get(fleet: Fleet) -> Fleet {
    for key in random_keys() {
        black_box(fleet.get(&key).expect("all keys are there").value);
    }
    fleet
}

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_update(fleet: Fleet) -> Fleet {
    for key in random_keys() {
        // Another place in the heap each time.
        let priority = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        black_box(fleet.update(Entry::new(key, priority, 0)).is_ok());
    }
    fleet
}

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_exclude_include(fleet: Fleet) -> Fleet {
    for key in random_keys() {
        black_box(fleet.exclude(&key).is_ok());
        black_box(fleet.include(&key).is_ok());
    }
    fleet
}

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_insert_remove(fleet: Fleet) -> Fleet {
    for key in random_keys() {
        let key = once(key);
        black_box(fleet.insert(Entry::new(key, key, 0)).is_ok());
        black_box(fleet.remove(&key).is_ok());
    }
    fleet
}

// Of as many resources, into an empty fleet; its growth is in it.
#[unsafe(no_mangle)]
#[inline(never)]
fn counted_insert_batch((fleet, assets): (Fleet, Vec<Asset>)) -> Fleet {
    black_box(fleet.insert_batch(assets).is_ok());
    fleet
}

/// What each case works on is made before, and dropped after, what is counted.
macro_rules! cases {
    ($($case:ident($setup:ident))*) => {
        const CASES: &[(&str, fn())] = &[$((stringify!($case), || drop(black_box($case(black_box($setup())))))),*];
    };
}

cases! {
    counted_yardstick_heap(bare)
    counted_yardstick_mutex(mutexed)
    counted_pair(fleet)
    counted_least_loaded(least)
    counted_acquire_async(fleet)
    counted_affinity(fleet)
    counted_peek(fleet)
    counted_peek_by_affinity(fleet)
    counted_get(fleet)
    counted_update(changed)
    counted_exclude_include(fleet)
    counted_insert_remove(fleet)
    counted_insert_batch(batch)
}

fn main() -> ExitCode {
    let names = || CASES.iter().map(|(case, run)| (case.trim_start_matches("counted_"), run));
    let Some(wanted) = std::env::args().nth(1) else {
        names().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    match names().find(|&(name, _)| name == wanted) {
        Some((_, run)) => run(),
        None => {
            eprintln!("no case {wanted}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
