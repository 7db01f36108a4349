//! Waiting, as users meet it: order, hand-off, cancellation at every poll, deadlines, limits. The interleavings are the models'
//! business (`verification/loom/wait*.rs`, `verification/shuttle/waiting.rs`).
//!
//! Cost: a few seconds, most of it real sleeping.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    Acquire, AcquireOwned, Capacity, Entry, Fairness, Lease, ManualClock, Scheduler, ThreadTimer, WaitError,
    WaitStats,
};

type Fleet = Scheduler<Entry<u32, u32, u32>>;

fn fleet(resources: u32) -> Fleet {
    filled(Fleet::builder().shards(2).build().unwrap(), resources)
}

fn filled(fleet: Fleet, resources: u32) -> Fleet {
    for key in 0..resources {
        fleet.insert(Entry::new(key, key, 0)).unwrap();
    }
    fleet
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// One task, polled by hand.
struct Task<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
}

impl<F: Future> Task<F> {
    fn new(future: F) -> Self {
        Task { future: Box::pin(future), bell: Arc::default() }
    }

    fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(&self.bell));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polled once, and waiting.
    fn waiting(future: F) -> Self {
        let mut task = Self::new(future);
        assert!(task.poll().is_pending(), "nothing is free");
        task
    }

    fn woken(&self) -> usize {
        self.bell.0.load(SeqCst)
    }

    fn done(&mut self) -> F::Output {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("still waiting"),
        }
    }
}

fn waiting(fleet: &Fleet) -> Task<Acquire<'_, Entry<u32, u32, u32>>> {
    Task::waiting(fleet.acquire_async())
}

fn waits(fleet: &Fleet) -> WaitStats {
    fleet.stats().waits
}

/// Nobody waits, nothing is out.
fn at_rest(fleet: &Fleet) {
    let stats = fleet.stats();
    assert_eq!(stats.in_flight, 0, "everything came back");
    let WaitStats { waited, handed_off, timed_out, cancelled, failed, closed, histogram, .. } = stats.waits;
    assert_eq!(waited, handed_off + timed_out + cancelled + failed + closed, "every wait has ended once");
    assert_eq!(histogram.iter().sum::<u64>(), handed_off);
    #[cfg(feature = "internals")]
    fleet.check_invariants();
    let all = fleet.acquire_many(stats.available as usize).expect("all are free");
    assert!(fleet.acquire().is_err());
    drop(all);
}

#[test]
fn what_is_free_is_had_at_once() {
    let fleet = fleet(1);
    drop(Task::new(fleet.acquire_async()).done().unwrap());
    drop(fleet.acquire_timeout(Duration::ZERO).unwrap());
    drop(fleet.request().key(&0).wait().unwrap());
    assert_eq!(waits(&fleet).waited, 0);
    at_rest(&fleet);
}

#[test]
fn in_order_of_arrival_and_directly() {
    let fleet = fleet(1);
    let lease = fleet.acquire().unwrap();
    let mut tasks: Vec<_> = (0..5).map(|_| waiting(&fleet)).collect();
    drop(lease);
    for i in 0..5 {
        assert!(fleet.acquire().is_err(), "no passer-by gets what somebody waits for");
        assert!(waiting(&fleet).woken() == 0, "nor does a newcomer");
        for (j, task) in tasks.iter_mut().enumerate().skip(i) {
            assert_eq!(task.woken(), usize::from(i == j), "one is woken for one unit");
        }
        drop(tasks[i].done().unwrap());
    }
    at_rest(&fleet);
    assert_eq!((waits(&fleet).handed_off, waits(&fleet).cancelled), (5, 5));
}

#[test]
fn a_thread_and_a_task_stand_in_one_queue() {
    let fleet = fleet(1);
    let lease = fleet.acquire().unwrap();
    thread::scope(|scope| {
        let thread = scope.spawn(|| *fleet.acquire_timeout(Duration::from_secs(30)).unwrap().key());
        while waits(&fleet).waited == 0 {
            thread::yield_now();
        }
        let mut task = waiting(&fleet);
        drop(lease);
        assert_eq!(thread.join().unwrap(), 0);
        assert_eq!(task.woken(), 1, "after the thread");
        drop(task.done().unwrap());
    });
    at_rest(&fleet);
}

#[test]
fn each_kind_gets_what_it_wants() {
    let fleet = fleet(3);
    let all = fleet.acquire_many(3).unwrap();
    let mut named = Task::waiting(fleet.acquire_key_async(&2));
    let mut odd = Task::waiting(fleet.acquire_where_async(|entry| entry.key % 2 == 1));
    let mut near = Task::waiting(fleet.acquire_by_affinity_async("me"));
    let mut two = Task::waiting(fleet.acquire_many_async(2));
    let mut leases: Vec<Option<Lease<'_, _>>> = all.into_iter().map(Some).collect();
    leases.sort_by_key(|lease| *lease.as_ref().unwrap().key());
    leases[0] = None;
    assert_eq!((named.woken(), odd.woken(), near.woken(), two.woken()), (0, 0, 1, 0));
    leases[1] = None;
    assert_eq!((named.woken(), odd.woken(), two.woken()), (0, 1, 0));
    leases[2] = None;
    assert_eq!((named.woken(), two.woken()), (1, 0));
    assert_eq!(*near.done().unwrap().key(), 0);
    assert_eq!(two.woken(), 0, "one of two");
    assert_eq!(*odd.done().unwrap().key(), 1);
    assert_eq!(*named.done().unwrap().key(), 2);
    let mut keys: Vec<_> = two.done().unwrap().iter().map(|lease| *lease.key()).collect();
    keys.sort_unstable();
    assert_eq!(keys, [0, 1]);
    at_rest(&fleet);
}

#[test]
fn spawned_futures_borrow_nothing() {
    fn spawnable<T: Future + Send + 'static>(future: T) -> T {
        future
    }
    let fleet = fleet(1);
    let lease = fleet.acquire().unwrap();
    let mut tasks: Vec<Task<AcquireOwned<_>>> = vec![
        Task::waiting(spawnable(fleet.acquire_async_owned())),
        Task::waiting(spawnable(fleet.acquire_key_async_owned(&0))),
        Task::waiting(spawnable(fleet.acquire_by_affinity_async_owned(&7))),
        Task::waiting(spawnable(fleet.acquire_where_async_owned(|_| true))),
    ];
    let mut many = Task::waiting(spawnable(fleet.acquire_many_async_owned(1)));
    drop(lease);
    for task in &mut tasks {
        drop(task.done().unwrap());
    }
    drop(many.done().unwrap());
    at_rest(&fleet);
    let left = Task::new(fleet.acquire_async_owned()).done().unwrap();
    drop(fleet);
    assert_eq!(*left.key(), 0);
}

#[test]
fn every_source_serves_those_who_wait() {
    let fleet = fleet(0);
    let mut any = waiting(&fleet);
    fleet.insert(Entry::new(0, 0, 0)).unwrap();
    let lease = any.done().unwrap();

    let mut any = waiting(&fleet);
    fleet.insert_batch(vec![Entry::new(1, 0, 0), Entry::new(2, 0, 0)]).unwrap();
    let batch = (any.done().unwrap(), fleet.acquire().unwrap());

    let mut any = waiting(&fleet);
    fleet.update(Entry::new(0, 0, 1).with_capacity(Capacity::Limited(2))).unwrap();
    assert_eq!(any.done().unwrap().value, 1);
    fleet.exclude(&0).unwrap();

    let mut any = waiting(&fleet);
    fleet.include(&0).unwrap();
    drop(any.done().unwrap());

    for (hold, clear) in [
        (Fleet::drain as fn(&Fleet, &u32) -> _, Fleet::undrain as fn(&Fleet, &u32) -> _),
        (Fleet::eject, Fleet::readmit),
        (|fleet, key| fleet.cool(key, Duration::from_secs(1_000)), Fleet::warm),
    ] {
        assert!(hold(&fleet, &0).unwrap());
        let mut any = waiting(&fleet);
        assert!(clear(&fleet, &0).unwrap());
        drop(any.done().unwrap());
    }

    let mut filtered = Task::waiting(fleet.acquire_where_async(|entry| entry.value == 9));
    fleet.update_with(&0, |old| Entry { value: 9, ..*old }).unwrap();
    assert_eq!(filtered.done().unwrap().value, 9);

    drop(lease);
    let token = fleet.acquire_many(2).unwrap().pop().unwrap().into_token();
    let rest = fleet.acquire().unwrap();
    let mut any = waiting(&fleet);
    fleet.release(token).unwrap();
    drop(any.done().unwrap());
    drop((rest, batch));
    at_rest(&fleet);
}

#[test]
fn a_removed_resource_is_waited_for_no_more() {
    let fleet = fleet(2);
    let leases = fleet.acquire_many(2).unwrap();
    let mut named = Task::waiting(fleet.acquire_key_async(&1));
    let mut other = Task::waiting(fleet.acquire_key_async(&0));
    fleet.remove(&1).unwrap();
    assert_eq!(named.done().unwrap_err(), WaitError::NotFound);
    assert_eq!(other.woken(), 0);
    drop(leases);
    drop(other.done().unwrap());
    assert_eq!(Task::new(fleet.acquire_key_async(&1)).done().unwrap_err(), WaitError::NotFound);
    at_rest(&fleet);
    assert_eq!(waits(&fleet).failed, 1);
}

#[test]
fn close_ends_every_wait_and_returns_land() {
    let fleet = fleet(2);
    let leases = fleet.acquire_many(2).unwrap();
    let mut any = waiting(&fleet);
    let mut named = Task::waiting(fleet.acquire_key_async(&1));
    let mut filtered = Task::waiting(fleet.acquire_where_async(|_| true));
    let mut many = Task::waiting(fleet.acquire_many_async(2));
    thread::scope(|scope| {
        let thread = scope.spawn(|| fleet.request().wait().map(drop));
        while waits(&fleet).waited < 5 {
            thread::yield_now();
        }
        fleet.close();
        assert_eq!(thread.join().unwrap().unwrap_err(), WaitError::Closed);
    });
    assert_eq!(any.done().unwrap_err(), WaitError::Closed);
    assert_eq!(named.done().unwrap_err(), WaitError::Closed);
    assert_eq!(filtered.done().unwrap_err(), WaitError::Closed);
    assert_eq!(many.done().unwrap_err(), WaitError::Closed);
    drop(leases);
    // They are free now, and not to be had.
    let late = [
        Task::new(fleet.acquire_async()).done().unwrap_err(),
        Task::new(fleet.acquire_key_async(&1)).done().unwrap_err(),
        Task::new(fleet.acquire_by_affinity_async(&1)).done().unwrap_err(),
        Task::new(fleet.acquire_where_async(|_| true)).done().unwrap_err(),
        Task::new(fleet.acquire_many_async(2)).done().unwrap_err(),
        fleet.acquire_key_timeout(&0, Duration::from_secs(30)).unwrap_err(),
    ];
    assert!(late.iter().all(|error| *error == WaitError::Closed), "{late:?}");
    assert_eq!((fleet.stats().in_flight, waits(&fleet).closed), (0, 5));
}

/// A future is dropped after every number of polls, in every state that its wait can be in.
#[test]
fn dropped_at_every_poll() {
    type Make = fn(&Fleet) -> Pin<Box<dyn Future<Output = Result<usize, WaitError>> + '_>>;
    let kinds: [Make; 5] = [
        |fleet| Box::pin(async { fleet.acquire_async().await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.acquire_key_async(&0).await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.acquire_by_affinity_async("x").await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.acquire_where_async(|entry| entry.key == 0).await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.acquire_many_async(2).await.map(|leases| leases.len()) }),
    ];
    for fairness in [Fairness::Strict, Fairness::Throughput] {
        for make in kinds {
            // Polls before and after each of two returns; then it is dropped, and the next one must be served.
            for polls in 0..27u32 {
                let counts = [polls % 3, polls / 3 % 3, polls / 9];
                let fleet = filled(Fleet::builder().shards(2).fairness(fairness).build().unwrap(), 2);
                let mut leases = fleet.acquire_many(2).unwrap();
                leases.sort_by_key(|lease| std::cmp::Reverse(*lease.key()));
                let mut future = make(&fleet);
                let mut ended = false;
                let mut poll = |times: u32, future: &mut Pin<Box<dyn Future<Output = _> + '_>>| {
                    for _ in 0..times {
                        let mut context = Context::from_waker(Waker::noop());
                        if !ended && future.as_mut().poll(&mut context).is_ready() {
                            ended = true;
                        }
                    }
                };
                poll(counts[0], &mut future);
                let mut next = waiting(&fleet);
                drop(leases.pop());
                poll(counts[1], &mut future);
                // Nobody may have wanted the first one yet.
                let mut last = Task::new(fleet.acquire_async());
                let at_once = last.poll();
                drop(leases.pop());
                poll(counts[2], &mut future);
                drop(future);
                let one = next.done().unwrap();
                let two = if let Poll::Ready(lease) = at_once { lease } else { last.done() }.unwrap();
                assert_ne!(one.key(), two.key());
                drop((one, two));
                at_rest(&fleet);
            }
        }
    }
}

/// A waiter is overtaken by later ones of a class d above it that arrive less than d x ageing after it, and by nobody else.
#[test]
fn classes_age_exactly() {
    for (class, ageing) in [(1u8, 1u32), (1, 4), (3, 5), (2, 0)] {
        let fleet = filled(Fleet::builder().shards(1).ageing(ageing).build().unwrap(), 1);
        let lease = fleet.acquire().unwrap();
        let mut low = waiting(&fleet);
        let bound = usize::from(class) * ageing as usize;
        let mut high: Vec<_> =
            (0..bound + 3).map(|_| Task::waiting(fleet.request().class(class).into_future())).collect();
        drop(lease);
        let mut overtaken = 0;
        while low.woken() == 0 {
            drop(high[overtaken].done().unwrap());
            overtaken += 1;
        }
        assert_eq!(overtaken, bound.saturating_sub(1), "class {class}, ageing {ageing}");
        drop(low.done().unwrap());
        for task in &mut high[overtaken..] {
            drop(task.done().unwrap());
        }
        at_rest(&fleet);
    }
}

/// However many more urgent ones keep coming, one of the lowest class is served after a bounded number of them.
#[test]
fn no_class_starves() {
    let fleet = filled(Fleet::builder().shards(1).ageing(4).build().unwrap(), 1);
    let mut lease = Some(fleet.acquire().unwrap());
    let mut low = waiting(&fleet);
    let mut queue = std::collections::VecDeque::new();
    let mut served = 0;
    for _ in 0..5_000 {
        queue.push_back(Task::waiting(fleet.request().class(u8::MAX).into_future()));
        drop(lease.take());
        if low.woken() > 0 {
            break;
        }
        lease = Some(queue.pop_front().unwrap().done().unwrap());
        served += 1;
    }
    assert_eq!(served, 255 * 4 - 1, "the stated bound");
    drop(low.done().unwrap());
    drop(queue);
    at_rest(&fleet);
}

#[test]
fn a_full_queue_says_so() {
    let fleet = filled(Fleet::builder().max_waiters(2).build().unwrap(), 1);
    let lease = fleet.acquire().unwrap();
    let (one, mut two) = (waiting(&fleet), waiting(&fleet));
    let refused = Task::new(fleet.acquire_async()).done().unwrap_err();
    assert_eq!(refused, WaitError::QueueFull { waiting: 2, max: 2 });
    assert_eq!(refused.to_string(), "2 requests are waiting: at most 2 are allowed");
    assert!(fleet.acquire_timeout(Duration::from_secs(1)).is_err_and(|error| error == refused));
    drop(one);
    let three = waiting(&fleet);
    drop((lease, three));
    drop(two.done().unwrap());
    at_rest(&fleet);
    assert_eq!((waits(&fleet).refused, waits(&fleet).waited), (2, 3));
}

/// A fleet with a clock that is moved by hand.
fn timed(
    settings: impl FnOnce(leasehold::Builder<Entry<u32, u32, u32>>) -> leasehold::Builder<Entry<u32, u32, u32>>,
    resources: u32,
) -> (Fleet, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let fleet = settings(Fleet::builder().shards(2).clock(Arc::clone(&clock))).build().unwrap();
    (filled(fleet, resources), clock)
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn what_cannot_be_in_time_is_told_at_once() {
    let (fleet, clock) = timed(|builder| builder.shed_late(true), 1);
    let lease = fleet.acquire().unwrap();
    let mut task = Task::new(fleet.request().timeout(Duration::ZERO).into_future());
    assert_eq!(task.done().unwrap_err(), WaitError::Shed { expected: Duration::ZERO, left: Duration::ZERO });
    // Nothing is known yet: it waits.
    let mut tasks: Vec<_> =
        (0..10).map(|_| Task::waiting(fleet.request().timeout(SECOND).into_future())).collect();
    drop(lease);
    // One each second from now on.
    for task in tasks.drain(..4) {
        clock.advance(SECOND);
        let mut task = task;
        drop(task.done().unwrap());
    }
    // Five in four seconds, while somebody waited; five wait: the sixth will be served in 4.8 seconds.
    let late = fleet.request().timeout(4 * SECOND).wait().unwrap_err();
    assert!(
        matches!(late, WaitError::Shed { expected, left } if expected == SECOND * 24 / 5 && left == 4 * SECOND),
        "{late}"
    );
    let in_time = Task::waiting(fleet.request().timeout(20 * SECOND).into_future());
    let urgent = Task::waiting(fleet.request().class(1).timeout(4 * SECOND).into_future());
    drop((tasks, in_time, urgent));
    at_rest(&fleet);
    assert_eq!(waits(&fleet).shed, 2);
}

/// Returns that wake somebody to try for himself tell how things go as well as those that are handed over.
#[test]
fn what_cannot_be_in_time_is_told_with_barging_too() {
    let settings = |builder: leasehold::Builder<_>| builder.shed_late(true).fairness(Fairness::Throughput);
    let (fleet, clock) = timed(settings, 1);
    let mut lease = fleet.acquire().unwrap();
    let mut tasks: Vec<_> =
        (0..10).map(|_| Task::waiting(fleet.request().timeout(60 * SECOND).into_future())).collect();
    for mut task in tasks.drain(..5) {
        clock.advance(SECOND);
        drop(lease);
        lease = task.done().unwrap();
    }
    let late = fleet.request().timeout(4 * SECOND).wait().unwrap_err();
    assert!(matches!(late, WaitError::Shed { expected, .. } if expected == 6 * SECOND), "{late}");
    drop((tasks, lease));
    at_rest(&fleet);
}

#[test]
fn deadlines_by_ticks() {
    let (fleet, clock) = timed(|builder| builder, 1);
    let lease = fleet.acquire().unwrap();
    let mut early = Task::waiting(fleet.request().timeout(SECOND).into_future());
    let mut late = Task::waiting(
        fleet.request().deadline(leasehold::Timestamp::ZERO.saturating_add(3 * SECOND)).into_future(),
    );
    let mut never = waiting(&fleet);
    assert_eq!(fleet.tick().map(|at| at.as_nanos()), Some(1_000_000_000));
    clock.advance(2 * SECOND);
    assert_eq!(fleet.tick().map(|at| at.as_nanos()), Some(3_000_000_000));
    assert_eq!(early.woken(), 1);
    assert_eq!(early.done().unwrap_err(), WaitError::TimedOut { waited: 2 * SECOND });
    // A task that is polled late finds out by itself.
    clock.advance(2 * SECOND);
    assert_eq!(late.done().unwrap_err(), WaitError::TimedOut { waited: 4 * SECOND });
    assert_eq!(fleet.tick(), None);
    drop(lease);
    drop(never.done().unwrap());
    at_rest(&fleet);
    assert_eq!(waits(&fleet).timed_out, 2);
}

#[test]
fn cooling_ends_by_ticks() {
    let (fleet, clock) = timed(|builder| builder, 2);
    for lease in fleet.acquire_many(2).unwrap() {
        lease.release_after(SECOND);
    }
    let mut any = waiting(&fleet);
    let mut named = Task::waiting(fleet.acquire_key_async(&1));
    let mut filtered = Task::waiting(fleet.acquire_where_async(|entry| entry.key == 0));
    assert_eq!(fleet.tick().map(|at| at.as_nanos()), Some(1_000_000_000));
    assert_eq!((any.woken(), named.woken(), filtered.woken()), (0, 0, 0));
    clock.advance(SECOND);
    assert_eq!(fleet.tick(), None);
    assert_eq!(any.woken() + named.woken() + filtered.woken(), 2);
    let first = any.done().unwrap();
    drop(first);
    drop(named.done().unwrap());
    drop(filtered.done().unwrap());
    at_rest(&fleet);
}

#[test]
fn a_thread_wakes_when_cooling_ends() {
    let fleet = fleet(1);
    fleet.acquire().unwrap().release_after(Duration::from_millis(30));
    let start = Instant::now();
    drop(fleet.acquire_timeout(Duration::from_secs(30)).unwrap());
    assert!((25..5_000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    // It sleeps already when something begins to cool.
    let lease = fleet.acquire().unwrap();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| drop(fleet.request().wait().unwrap()))).collect();
        while waits(&fleet).waited < 4 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(10));
        lease.release_after(Duration::from_millis(20));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert!(start.elapsed() < Duration::from_secs(20));
    at_rest(&fleet);
}

/// A thread that waits keeps the time for a task.
#[test]
fn a_waiting_thread_looks_after_the_time_of_tasks() {
    let fleet = fleet(1);
    let lease = fleet.acquire().unwrap();
    let mut task = Task::waiting(fleet.request().timeout(Duration::from_millis(50)).into_future());
    thread::scope(|scope| {
        let thread = scope.spawn(|| drop(fleet.request().wait().unwrap()));
        while task.woken() == 0 {
            thread::yield_now();
        }
        assert!(matches!(task.done().unwrap_err(), WaitError::TimedOut { .. }));
        drop(lease);
        thread.join().unwrap();
    });
    at_rest(&fleet);
}

#[test]
fn a_timer_wakes_tasks() {
    let timer = Arc::new(ThreadTimer::new().unwrap());
    let fleet = filled(Fleet::builder().timer(Arc::clone(&timer)).build().unwrap(), 1);
    fleet.acquire().unwrap().release_after(Duration::from_millis(30));
    let mut task = waiting(&fleet);
    let mut hopeless = Task::waiting(fleet.request().timeout(Duration::from_millis(10)).into_future());
    let start = Instant::now();
    while task.woken() == 0 || hopeless.woken() == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "nobody rang");
        thread::yield_now();
    }
    drop(task.done().unwrap());
    drop(task);
    assert!(matches!(hopeless.done().unwrap_err(), WaitError::TimedOut { .. }));
    // Something begins to cool while somebody waits.
    let lease = fleet.acquire().unwrap();
    let mut task = waiting(&fleet);
    lease.release_after(Duration::from_millis(10));
    while task.woken() == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "nobody rang");
        thread::yield_now();
    }
    drop(task.done().unwrap());
    drop((task, hopeless));
    at_rest(&fleet);
    drop(fleet);
    assert_eq!(Arc::strong_count(&timer), 1, "the scheduler is gone, and its calls with it");
}

#[test]
fn a_panicking_filter_is_its_owners_business() {
    let fleet = fleet(2);
    let mut leases = fleet.acquire_many(2).unwrap();
    // A filter is asked about those that are not free as well, when it comes.
    let armed = Arc::new(AtomicBool::new(false));
    let is_armed = Arc::clone(&armed);
    let mut bad = Task::waiting(fleet.acquire_where_async(move |entry| {
        if entry.key == 1 && is_armed.load(SeqCst) {
            std::panic::resume_unwind(Box::new("asked about 1"));
        }
        false
    }));
    let good = Task::waiting(fleet.acquire_where_async(|_| true));
    leases.sort_by_key(|lease| *lease.key());
    armed.store(true, SeqCst);
    // Nothing of it is heard here.
    drop(leases.pop());
    assert_eq!(good.woken(), 1, "the next one is served");
    let payload =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bad.poll().is_ready())).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"asked about 1"));
    drop((bad, good, leases));
    at_rest(&fleet);
    assert_eq!(waits(&fleet).failed, 1);
    // The same for a thread, in its own call.
    let lease = fleet.acquire_many(2).unwrap();
    armed.store(false, SeqCst);
    let accepts = |_: &Entry<u32, u32, u32>| {
        if armed.load(SeqCst) {
            std::panic::resume_unwind(Box::new(7));
        }
        false
    };
    thread::scope(|scope| {
        let thread = scope.spawn(|| drop(fleet.request().matching(&accepts).wait()));
        while waits(&fleet).waited < 3 {
            thread::yield_now();
        }
        armed.store(true, SeqCst);
        drop(lease);
        assert_eq!(thread.join().unwrap_err().downcast_ref(), Some(&7));
    });
    at_rest(&fleet);
}

/// A filter that borrows sees what it borrows as long as it is asked, and not after its call has returned.
#[test]
fn a_filter_may_borrow() {
    let fleet = fleet(2);
    for round in 0..200u32 {
        let leases = fleet.acquire_many(2).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                if round % 2 == 0 {
                    thread::sleep(Duration::from_micros(u64::from(round)));
                }
                drop(leases);
            });
            let mut asked = vec![0; 4];
            let got = fleet
                .request()
                .matching(|entry| {
                    asked.push(entry.key);
                    entry.key == round % 2
                })
                .timeout(Duration::from_micros(100))
                .wait();
            asked.clear();
            drop(asked);
            if let Ok(lease) = got {
                assert_eq!(*lease.key(), round % 2);
            }
        });
        at_rest(&fleet);
    }
}

/// A future that is forgotten costs its place in the queue, and the unit that it is handed; nothing else.
#[test]
fn a_leaked_future_costs_its_unit() {
    let fleet = fleet(3);
    let leases = fleet.acquire_many(3).unwrap();
    std::mem::forget(waiting(&fleet));
    std::mem::forget(Task::waiting(fleet.acquire_key_async(&1)));
    let mut alive = waiting(&fleet);
    drop(leases);
    drop(alive.done().unwrap());
    assert_eq!(fleet.stats().in_flight, 2);
    fleet.remove(&1).unwrap();
    fleet.insert(Entry::new(1, 0, 0)).unwrap();
    assert_eq!(fleet.acquire_many(2).unwrap().len(), 2);
}

/// Threads that time out at the instant of the hand-off: what is on its way is kept, or goes on; nothing is lost.
#[test]
fn timeouts_at_the_hand_off() {
    for fairness in [Fairness::Strict, Fairness::Throughput] {
        let fleet = filled(Fleet::builder().shards(2).fairness(fairness).build().unwrap(), 2);
        let (got, late) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for i in 0..6u64 {
                let (fleet, got, late) = (&fleet, &got, &late);
                scope.spawn(move || {
                    for round in 0..400u64 {
                        let timeout = Duration::from_micros((round * 7 + i * 13) % 60);
                        let waited = match i % 3 {
                            0 => fleet.acquire_timeout(timeout),
                            1 => fleet.acquire_key_timeout(&(round as u32 % 2), timeout),
                            _ => fleet.acquire_where_timeout(|entry| entry.key == round as u32 % 2, timeout),
                        };
                        match waited {
                            Ok(lease) => {
                                got.fetch_add(1, SeqCst);
                                let start = Instant::now();
                                while start.elapsed() < Duration::from_micros(20) {
                                    std::hint::spin_loop();
                                }
                                drop(lease);
                            }
                            Err(WaitError::TimedOut { .. }) => {
                                late.fetch_add(1, SeqCst);
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        assert_eq!(got.into_inner() + late.into_inner(), 6 * 400);
        at_rest(&fleet);
    }
}

/// A tiny executor: threads, and a queue of tasks that were woken.
mod executor {
    use super::*;
    use std::sync::{Condvar, Weak};

    type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

    pub struct Executor {
        ready: Mutex<std::collections::VecDeque<Arc<Job>>>,
        changed: Condvar,
        left: AtomicUsize,
    }

    struct Job {
        work: Mutex<Option<Work>>,
        executor: Weak<Executor>,
    }

    impl Wake for Job {
        fn wake(self: Arc<Self>) {
            if let Some(executor) = self.executor.upgrade() {
                executor.ready.lock().unwrap().push_back(self);
                executor.changed.notify_one();
            }
        }
    }

    impl Executor {
        pub fn new() -> Arc<Self> {
            Arc::new(Executor { ready: Mutex::default(), changed: Condvar::new(), left: AtomicUsize::new(0) })
        }

        pub fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
            self.left.fetch_add(1, SeqCst);
            let job = Job { work: Mutex::new(Some(Box::pin(work))), executor: Arc::downgrade(self) };
            Arc::new(job).wake();
        }

        pub fn run(&self) {
            loop {
                let mut ready = self.ready.lock().unwrap();
                let job = loop {
                    if self.left.load(SeqCst) == 0 {
                        return;
                    }
                    match ready.pop_front() {
                        Some(job) => break job,
                        None => ready = self.changed.wait(ready).unwrap(),
                    }
                };
                drop(ready);
                let mut slot = job.work.lock().unwrap();
                let Some(mut work) = slot.take() else { continue };
                let waker = Waker::from(Arc::clone(&job));
                if work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                    *slot = Some(work);
                } else if self.left.fetch_sub(1, SeqCst) == 1 {
                    self.changed.notify_all();
                }
            }
        }
    }

    /// Lets others run.
    pub async fn pause() {
        let mut paused = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut paused, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// Tasks that use a resource again and again; in which order they had one.
fn share(resources: u32, tasks: usize, rounds: usize, threads: usize) -> Vec<usize> {
    let fleet = Arc::new(fleet(resources));
    let executor = executor::Executor::new();
    let order = Arc::new(Mutex::new(Vec::with_capacity(tasks * rounds)));
    for task in 0..tasks {
        let (fleet, order) = (Arc::clone(&fleet), Arc::clone(&order));
        executor.spawn(async move {
            for _ in 0..rounds {
                let lease = fleet.acquire_async().await.unwrap();
                order.lock().unwrap().push(task);
                executor::pause().await;
                drop(lease);
            }
        });
    }
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| executor.run());
        }
    });
    println!("{} hand-overs in {:?}", tasks * rounds, start.elapsed());
    at_rest(&fleet);
    Arc::into_inner(order).unwrap().into_inner().unwrap()
}

/// 10,000 tasks, four resources: from the second round on, everybody else has a turn between two turns of one.
#[test]
fn ten_thousand_tasks_take_turns() {
    const TASKS: usize = 10_000;
    let order = share(4, TASKS, 5, 1);
    let mut last = vec![None; TASKS];
    let (mut longest, mut shortest) = (0, usize::MAX);
    for (turn, &task) in order.iter().enumerate() {
        if let Some(before) = last[task].replace(turn) {
            longest = longest.max(turn - before);
            shortest = shortest.min(turn - before);
        }
    }
    assert!(
        shortest + 8 > TASKS && longest < TASKS + 8,
        "{shortest} to {longest} turns between two of one task"
    );
}

/// As before, on several threads, of which the system may stop any at any time: everybody is served.
#[test]
fn ten_thousand_tasks_on_several_threads() {
    let mut turns = vec![0; 10_000];
    for task in share(4, 10_000, 5, 4) {
        turns[task] += 1;
    }
    assert!(turns.iter().all(|&count| count == 5));
}
