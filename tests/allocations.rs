//! Counts allocations: none on any path of lending, returning and looking once a scheduler is warm, and a bounded
//! number in an insertion.
//!
//! Cost: under a second. One test function: other tests of the same process would be counted too.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    hint::black_box,
};

use leasehold::{Capacity, Entry, Overflow, Scheduler, Strategy};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const ROUNDS: u64 = 10_000;

fn count(f: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    f();
    ALLOCATIONS.get() - before
}

type Fleet = Scheduler<Entry<u32, u32, u64>>;

fn fleet(shards: usize, strategy: Strategy, capacity: Capacity) -> Fleet {
    let fleet = Fleet::builder().shards(shards).strategy(strategy).build().expect("in range");
    for key in 0..1_000 {
        fleet.insert(Entry::new(key, key % 7, 0).with_capacity(capacity)).expect("new");
    }
    fleet
}

/// What a future gives at its first poll.
fn at_once<T, E: std::fmt::Debug>(future: impl Future<Output = Result<T, E>>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => output.expect("free"),
        std::task::Poll::Pending => panic!("it waits"),
    }
}

type Path<'a> = Box<dyn FnMut(u64) + 'a>;

fn none_on_hot_paths(fleet: &Fleet, what: &str) {
    let mut paths: Vec<(&str, Path<'_>)> = vec![
        ("acquire and drop", Box::new(|_| drop(black_box(fleet.acquire().expect("free"))))),
        ("acquire and finish", {
            let outcome = leasehold::Outcome::Failed;
            Box::new(move |_| fleet.acquire().expect("free").finish(outcome))
        }),
        ("acquire_key", Box::new(|i| drop(fleet.acquire_key(&(i as u32 % 1_000)).expect("free")))),
        ("acquire_by_affinity", Box::new(|i| drop(fleet.acquire_by_affinity(&i).expect("free")))),
        // Accepted among the first eight of a shard; otherwise the walk over the whole fleet allocates twice.
        ("acquire_where", Box::new(|_| drop(fleet.acquire_where(|entry| entry.key < 2_000).expect("free")))),
        ("acquire_excluding", Box::new(|i| drop(fleet.acquire_excluding(&[i as u32 % 7]).expect("free")))),
        ("acquire_async", Box::new(|_| drop(at_once(fleet.acquire_async())))),
        ("acquire_key_async", Box::new(|i| drop(at_once(fleet.acquire_key_async(&(i as u32 % 1_000)))))),
        ("acquire_by_affinity_async", Box::new(|i| drop(at_once(fleet.acquire_by_affinity_async(&i))))),
        ("acquire_async_owned", Box::new(|_| drop(at_once(fleet.acquire_async_owned())))),
        (
            "acquire_timeout",
            Box::new(|_| drop(fleet.acquire_timeout(std::time::Duration::from_secs(1)).expect("free"))),
        ),
        ("acquire_owned", Box::new(|_| drop(fleet.acquire_owned().expect("free")))),
        (
            "token",
            Box::new(|_| {
                let token = fleet.acquire().expect("free").into_token();
                fleet.release(token).expect("out");
            }),
        ),
        (
            "token beside its guard",
            Box::new(|_| {
                let mut lease = fleet.acquire().expect("free");
                let token = lease.token();
                fleet.release(token).expect("out");
            }),
        ),
        ("peek", Box::new(|_| drop(black_box(fleet.peek())))),
        ("peek_by_affinity", Box::new(|i| drop(black_box(fleet.peek_by_affinity(&i))))),
        ("peek_worst", Box::new(|_| drop(black_box(fleet.peek_worst())))),
        ("get", Box::new(|i| drop(black_box(fleet.get(&(i as u32 % 1_001)))))),
        (
            "exclude and include",
            Box::new(|i| {
                let key = i as u32 % 1_000;
                assert!(fleet.exclude(&key).expect("known") && fleet.include(&key).expect("known"));
            }),
        ),
        (
            "cool and warm",
            Box::new(|i| {
                let key = i as u32 % 1_000;
                fleet.cool(&key, std::time::Duration::from_secs(1_000)).expect("known");
                fleet.warm(&key).expect("known");
            }),
        ),
    ];
    for (path, f) in &mut paths {
        // Warm: the thread is known to the reclaimer, tables have the room they need.
        (0..200).for_each(&mut *f);
        let allocations = count(|| (0..ROUNDS).for_each(f));
        assert_eq!(allocations, 0, "{what}: {path}");
    }
}

type HandOff<'a> = Box<dyn Fn() -> u64 + 'a>;
type Task<'a, T> = std::pin::Pin<Box<dyn Future<Output = Result<T, leasehold::WaitError>> + 'a>>;

/// How many allocations there are in the returns of all units of `leases`, while a task waits that the last of them serves.
fn handing_over<T>(mut task: Task<'_, T>, leases: Vec<leasehold::Lease<'_, Entry<u32, u32, u64>>>) -> u64 {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(task.as_mut().poll(&mut context).is_pending(), "nothing is free");
    // Not the list itself, which frees what it has.
    let mut leases = leases.into_iter();
    let allocations = count(|| leases.by_ref().for_each(drop));
    let std::task::Poll::Ready(Ok(given)) = task.as_mut().poll(&mut context) else { panic!("it is served") };
    drop(given);
    allocations
}

/// Hand-offs to tasks and to a thread, of each kind: of each, allocations of the thread that returns, in so many rounds. Four units, all out.
fn hand_offs(fleet: &Fleet, rounds: u32) -> Vec<(&'static str, u64)> {
    use std::{
        future::IntoFuture,
        sync::{
            Mutex,
            atomic::{AtomicBool, Ordering::SeqCst},
        },
        time::Duration,
    };
    const HOUR: Duration = Duration::from_secs(3_600);
    let all = || fleet.acquire_many(4).expect("free");
    let one = || {
        let mut leases = all();
        let last = leases.split_off(3);
        (leases, last)
    };
    let kinds: Vec<(&str, HandOff<'_>)> = vec![
        (
            "anything",
            Box::new(|| {
                let (_rest, last) = one();
                handing_over(Box::pin(fleet.acquire_async()), last)
            }),
        ),
        (
            "anything, with a deadline and a class",
            Box::new(|| {
                let (_rest, last) = one();
                handing_over(Box::pin(fleet.request().class(3).timeout(HOUR).into_future()), last)
            }),
        ),
        (
            "a name",
            Box::new(|| {
                let (_rest, last) = one();
                handing_over(Box::pin(fleet.acquire_key_async(&0)), last)
            }),
        ),
        (
            "a filter",
            Box::new(|| {
                let (_rest, last) = one();
                handing_over(Box::pin(fleet.acquire_where_async(|entry| entry.key == 0)), last)
            }),
        ),
        (
            "affinity",
            Box::new(|| {
                let (_rest, last) = one();
                handing_over(Box::pin(fleet.acquire_by_affinity_async("x")), last)
            }),
        ),
        (
            "two at once",
            Box::new(|| {
                let mut rest = all();
                let last = rest.split_off(2);
                handing_over(Box::pin(fleet.acquire_many_async(2)), last)
            }),
        ),
        ("four at once", Box::new(|| handing_over(Box::pin(fleet.acquire_many_async(4)), all()))),
        (
            "a filter that somebody asks",
            Box::new(|| {
                let (mut rest, last) = one();
                // It comes back while the filter is asked about the other one, and is left there.
                let while_asked = Mutex::new(rest.pop());
                let returns = AtomicBool::new(false);
                let filter = |_: &Entry<u32, u32, u64>| {
                    if returns.load(SeqCst) {
                        drop(while_asked.lock().expect("no panic").take());
                    }
                    true
                };
                // It is asked by this thread, in the return that is counted, and then no more.
                std::thread::scope(|scope| {
                    let before = fleet.stats().waits.waited;
                    let waits =
                        scope.spawn(|| drop(fleet.acquire_where_timeout(filter, HOUR).expect("served")));
                    while fleet.stats().waits.waited == before {
                        std::thread::yield_now();
                    }
                    returns.store(true, SeqCst);
                    let mut last = last.into_iter();
                    let allocations = count(|| last.by_ref().for_each(drop));
                    waits.join().expect("no panic");
                    allocations
                })
            }),
        ),
        (
            "a thread",
            Box::new(|| {
                let (_rest, last) = one();
                std::thread::scope(|scope| {
                    let before = fleet.stats().waits.waited;
                    let waits = scope.spawn(|| drop(fleet.acquire_timeout(HOUR).expect("served")));
                    while fleet.stats().waits.waited == before {
                        std::thread::yield_now();
                    }
                    let mut last = last.into_iter();
                    let allocations = count(|| last.by_ref().for_each(drop));
                    waits.join().expect("no panic");
                    allocations
                })
            }),
        ),
    ];
    let counted = |once: &dyn Fn() -> u64| {
        (0..50).for_each(|_| _ = once());
        (0..rounds).map(|_| once()).sum()
    };
    kinds.iter().map(|(kind, once)| (*kind, counted(&**once))).collect()
}

/// The worst of single insertions, and the mean.
fn insertion(fleet: &Fleet, keys: std::ops::Range<u32>) -> (u64, f64) {
    let mut most = 0;
    let mut all = 0;
    let number = f64::from(keys.end - keys.start);
    for key in keys {
        let allocations = count(|| fleet.insert(Entry::new(key, 0, 0)).expect("new"));
        most = most.max(allocations);
        all += allocations;
    }
    (most, all as f64 / number)
}

#[test]
fn allocations_are_where_they_are_documented() {
    let strategies: [fn(usize) -> Strategy; 4] = [
        |_| Strategy::default(),
        |_| Strategy::BestOf { choices: usize::MAX },
        |_| Strategy::Adaptive,
        |shards| Strategy::Weighted(vec![1; shards]),
    ];
    for shards in [1, 8] {
        for strategy in strategies {
            for capacity in [Capacity::Exclusive, Capacity::Limited(4), Capacity::Unlimited] {
                let what = format!("{shards} shards, {:?}, {capacity}", strategy(shards));
                none_on_hot_paths(&fleet(shards, strategy(shards), capacity), &what);
            }
        }
    }
    // Leases that are recorded have entries in a table, which are used again.
    let recorded =
        Fleet::builder().shards(2).max_hold(std::time::Duration::from_secs(60)).build().expect("in range");
    for key in 0..1_000 {
        recorded.insert(Entry::new(key, key % 7, 0)).expect("new");
    }
    none_on_hot_paths(&recorded, "recorded");
    // An insertion: the node, its value, and now and then a segment or a larger lookup table.
    let growing = Fleet::builder().shards(1).build().expect("in range");
    let (most, mean) = insertion(&growing, 0..50_000);
    println!("insert while growing to 50,000: {mean:.3} allocations on average, {most} at most");
    assert!(mean < 3.0, "{mean} allocations an insertion");
    let roomy = Fleet::builder().shards(1).expected_resources(60_000).build().expect("in range");
    let (most_roomy, mean_roomy) = insertion(&roomy, 0..50_000);
    println!("insert with room made ahead: {mean_roomy:.3} allocations on average, {most_roomy} at most");
    assert!(mean_roomy < 2.5, "{mean_roomy} allocations an insertion");
    assert!(most_roomy <= 2, "{most_roomy} allocations in one insertion: no room was left to be made");
    // A refusal allocates no more than an insertion.
    let full = Fleet::builder().max_resources(1, Overflow::Reject).build().expect("in range");
    full.insert(Entry::new(0, 0, 0)).expect("room");
    assert_eq!(
        count(|| assert!(full.insert(Entry::new(1, 0, 0)).is_err())),
        0,
        "refused before anything is made"
    );
    // A return while somebody waits: none in the thread that returns, but for the list of one who collects and what is left with a filter.
    for fairness in [leasehold::Fairness::Strict, leasehold::Fairness::Throughput] {
        let fleet = Fleet::builder().shards(2).fairness(fairness).build().expect("in range");
        fleet.insert(Entry::new(0, 0, 0).with_capacity(Capacity::Limited(4))).expect("new");
        let rounds = 200;
        for (kind, allocations) in hand_offs(&fleet, rounds) {
            println!("{fairness:?}: hand-offs to {kind}: {allocations} allocations in {rounds} rounds");
            let most = match kind {
                // The list of what it has got but for the first, in the return that brings the second.
                "two at once" | "four at once" => 1,
                // That of what is left with filters; and of what whoever asks goes on with.
                "a filter that somebody asks" => 2,
                _ => 0,
            };
            assert!(allocations <= most * u64::from(rounds), "{fairness:?}: hand-offs to {kind}");
        }
    }
}
