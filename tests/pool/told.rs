//! User code that a pool calls beside its jobs, clocks and metrics: it may panic, take its time, or end the pool.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Barrier, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::Poll,
    thread,
    time::Duration,
};

use leasehold::{
    Clock, MonotonicClock, Timestamp,
    pool::{
        AtomicMetrics, CancelToken, EndingKind, Job, Metrics, NoMetrics, Order, Pool, RejectReason, Task,
    },
};

use super::{
    common::{Gate, LONG, alone, at_gate, eventually, in_time, poll, poll_by, task, threads, waker},
    ending::{AtTheEnd, LEFT},
};

/// Fails on threads of that name, whenever it is told to.
struct Fails<F>(MonotonicClock, &'static str, F);

impl<F: Fn() -> bool + Send + Sync> Clock for Fails<F> {
    fn now(&self) -> Timestamp {
        let is_here = thread::current().name().is_some_and(|name| name.starts_with(self.1));
        if is_here && (self.2)() {
            std::panic::resume_unwind(Box::new("no time"));
        }
        self.0.now()
    }
}

/// A worker goes on without the moment if the clock fails, with what it had taken.
fn outlives_its_clock<M: Metrics>(metrics: M) {
    let asked = Arc::new(AtomicUsize::new(0));
    let here = Arc::clone(&asked);
    let clock = Fails(MonotonicClock::new(), "lease-worker", move || here.fetch_add(1, SeqCst) % 3 == 1);
    let pool = Pool::<Task>::builder().workers(2).clock(clock).metrics(metrics).build().expect("in range");
    for round in 0..200 {
        let handles: Vec<_> = (0..10).map(|i| pool.spawn(move |_| i).expect("open")).collect();
        for (i, handle) in handles.into_iter().enumerate() {
            assert_eq!(in_time("it is run", move || handle.wait().expect("done")), i, "round {round}");
        }
    }
    assert_eq!(pool.stats().workers, 2);
    assert!(asked.load(SeqCst) > 10, "the clock was asked");
}

#[test]
fn a_worker_outlives_its_clock() {
    outlives_its_clock(NoMetrics);
    outlives_its_clock(AtomicMetrics::default());
}

/// The clock fails when a job has ended, of which its handle has not been told yet: it is told.
#[test]
fn a_handle_is_told_whatever_the_clock_does() {
    let fails = Arc::new(AtomicBool::new(false));
    let here = Arc::clone(&fails);
    let clock = Fails(MonotonicClock::new(), "lease-worker", move || here.swap(false, SeqCst));
    let pool = Pool::<Arc<AtomicBool>>::builder().workers(1).clock(clock).metrics(AtomicMetrics::default());
    let pool = pool.build().expect("in range");
    for cleans in [false, true] {
        let mut job = Job::new(Arc::clone(&fails), |fails, _| {
            fails.store(true, SeqCst);
            Ok(())
        });
        if cleans {
            job = job.cleanup(|_, _| ());
        }
        let (job, handle) = job.with_handle();
        pool.try_submit(job).expect("room");
        let finished = in_time("the handle is told", move || handle.wait());
        assert_eq!((finished.ending.kind(), finished.payload.is_some()), (EndingKind::Done, true));
        assert!(!fails.load(SeqCst), "the clock has failed");
    }
}

/// The keeper goes on without the moment if the clock fails, again and again: workers come, and go.
#[test]
fn the_keeper_outlives_its_clock() {
    let asked = Arc::new(AtomicUsize::new(0));
    let here = Arc::clone(&asked);
    let clock = Fails(MonotonicClock::new(), "lease-keeper", move || here.fetch_add(1, SeqCst) % 4 < 3);
    let pool = Pool::<Task>::builder()
        .adaptive(1, 3)
        .scale_up_after(Duration::from_millis(10))
        .scale_rest(Duration::ZERO)
        .idle_for(Duration::from_millis(20))
        .clock(clock)
        .build()
        .expect("in range");
    for _ in 0..2 {
        let gate = Gate::default();
        for _ in 0..3 {
            pool.submit(at_gate(&gate)).expect("open");
        }
        gate.has(3);
        gate.open();
        eventually("they go", || pool.stats().workers == 1);
    }
    assert!(asked.load(SeqCst) > 10, "the clock was asked");
}

/// A clock that has failed for good: whoever idles still idles.
#[test]
fn who_idles_does_not_ask_a_clock_that_fails() {
    for thread in ["lease-worker", "lease-keeper"] {
        let asked = Arc::new(AtomicUsize::new(0));
        let here = Arc::clone(&asked);
        let clock = Fails(MonotonicClock::new(), thread, move || {
            here.fetch_add(1, SeqCst);
            true
        });
        let pool = Pool::<Task>::builder().workers(2).clock(clock).build().expect("in range");
        for _ in 0..100 {
            pool.submit(task(|| ())).expect("open");
        }
        eventually("all are done and sleep", || pool.stats().done == 100 && pool.stats().idle == 2);
        // The keeper goes off duty.
        thread::sleep(Duration::from_millis(20));
        let before = asked.load(SeqCst);
        thread::sleep(Duration::from_millis(100));
        let asked = asked.load(SeqCst) - before;
        assert!(asked < 20, "{thread} has asked {asked} times");
    }
}

type Does = dyn Fn(&Pool<Task, OnScaling>) + Send + Sync;

/// Does something, with its pool, when workers come.
struct OnScaling {
    pool: Arc<OnceLock<Weak<Pool<Task, OnScaling>>>>,
    does: Box<Does>,
}

impl Metrics for OnScaling {
    const TIMED: bool = false;

    fn scaled(&self, _: usize, _: usize) {
        if let Some(pool) = self.pool.get().and_then(Weak::upgrade) {
            (self.does)(&pool);
        }
    }
}

/// A pool that has one worker too few for the jobs at the gate, and so will be told that another one has come.
fn about_to_scale(gate: &Gate, does: Box<Does>) -> Arc<Pool<Task, OnScaling>> {
    let here = Arc::new(OnceLock::new());
    let metrics = OnScaling { pool: Arc::clone(&here), does };
    let builder = Pool::builder().adaptive(1, 2).scale_up_after(Duration::from_millis(1));
    let pool = Arc::new(builder.metrics(metrics).build().expect("in range"));
    assert!(here.set(Arc::downgrade(&pool)).is_ok());
    pool.submit(at_gate(gate)).expect("open");
    // If the first has waited for its worker for long enough, another one has come already, and what is done then may have ended the pool.
    if let Err(refused) = pool.submit(at_gate(gate)) {
        assert_eq!(refused.reason, RejectReason::Closed);
    }
    pool
}

/// A metric that is told by the keeper may end the pool, keeper and all.
#[test]
fn a_metric_may_end_the_pool() {
    let (sender, ended) = mpsc::channel();
    let sender = Mutex::new(sender);
    let gate = Gate::default();
    gate.open();
    let ends = move |pool: &Pool<Task, OnScaling>| {
        let ended = pool.shutdown(LONG);
        sender.lock().unwrap().send(ended.is_complete()).unwrap();
    };
    let pool = about_to_scale(&gate, Box::new(ends));
    // Until one waits for long enough.
    let slow = || task(|| thread::sleep(Duration::from_millis(10)));
    while pool.try_submit(slow()).is_ok() {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(ended.recv_timeout(LONG).expect("it returns"));
    let end = in_time("so does another one", move || pool.shutdown(LONG).is_complete());
    assert!(end);
}

/// The keeper is joined too: when a shutdown returns, what a metric has left in its thread-locals has been dropped.
#[test]
fn a_shutdown_joins_the_keeper() {
    let (gate, dropped) = (Gate::default(), Arc::new(AtomicBool::new(false)));
    let here = Arc::clone(&dropped);
    let leaves = move |_: &Pool<Task, OnScaling>| LEFT.set(Some(AtTheEnd(Arc::clone(&here))));
    let pool = about_to_scale(&gate, Box::new(leaves));
    gate.has(2);
    gate.open();
    assert!(pool.shutdown(LONG).is_complete());
    assert!(dropped.load(SeqCst));
}

/// The last owner of a pool is its keeper, in a metric: it is dropped there, nobody waits for anybody, and all threads end.
#[test]
fn a_metric_may_be_the_last_owner_of_its_pool() {
    alone("told::a_metric_may_be_the_last_owner_of_its_pool", || {
        let (gate, at_metric) = (Gate::default(), Gate::default());
        let inner = at_metric.clone();
        let pool = about_to_scale(&gate, Box::new(move |_| inner.pass()));
        at_metric.has(1);
        gate.has(2);
        let (behind, told) = task(|| ()).with_handle();
        pool.submit(behind).expect("open");
        assert_eq!(Arc::strong_count(&pool), 2, "ours, and the metric's");
        drop(pool);
        at_metric.open();
        let ending = in_time("it is told", move || told.wait().ending.kind());
        assert_eq!(ending, EndingKind::Dropped);
        eventually("the keeper ends", || threads("lease-keeper").unwrap_or(0) == 0);
        gate.open();
        eventually("all threads end", || threads("lease-worker").unwrap_or(0) == 0);
    });
}

/// A metric that takes its time is not waited for by whoever has none.
#[test]
fn a_slow_metric_does_not_delay_a_shutdown() {
    let (gate, slow) = (Gate::default(), Gate::default());
    let here = slow.clone();
    let pool = about_to_scale(&gate, Box::new(move |_| here.pass()));
    slow.has(1);
    gate.open();
    eventually("the jobs are done, and all sleep", || (pool.stats().done, pool.stats().idle) == (2, 2));
    let ended = {
        let pool = Arc::clone(&pool);
        in_time("its time is up", move || pool.shutdown(Duration::from_millis(200)))
    };
    assert!(ended.is_complete(), "nothing else is left to be done");
    slow.open();
    assert!(in_time("it ends", move || pool.shutdown(LONG)).is_complete());
}

/// A job and a metric, which the keeper tells, both end the pool at the same moment: neither waits for the other.
#[test]
fn a_job_and_a_metric_may_end_the_pool_at_once() {
    for limit in [Duration::MAX, LONG] {
        let (gate, both) = (Gate::default(), Arc::new(Barrier::new(2)));
        let (sender, ended) = mpsc::channel();
        let here = Arc::clone(&both);
        let told = Mutex::new(sender.clone());
        let ends = move |pool: &Pool<Task, OnScaling>| {
            here.wait();
            let ended = pool.shutdown(limit).is_complete();
            told.lock().unwrap().send(ended).unwrap();
        };
        // Another worker comes for the jobs at the gate, of which one ends the pool.
        let pool = about_to_scale(&gate, Box::new(ends));
        let here = Arc::clone(&pool);
        let job = task(move || {
            both.wait();
            let ended = here.shutdown(limit).is_complete();
            sender.send(ended).unwrap();
        });
        pool.submit(job).expect("open");
        gate.has(2);
        gate.open();
        for _ in 0..2 {
            assert!(ended.recv_timeout(LONG).expect("both return"));
        }
        assert!(in_time("so does another one", move || pool.shutdown(LONG).is_complete()));
    }
}

/// Ends its pool when a certain thread reads it for the second time.
struct Ends {
    clock: MonotonicClock,
    pool: Arc<OnceLock<Weak<Pool<Task, OnScaling>>>>,
    by: Arc<Mutex<(Option<thread::ThreadId>, u32)>>,
    done: Gate,
}

impl Clock for Ends {
    fn now(&self) -> Timestamp {
        let ends = {
            let mut by = self.by.lock().unwrap();
            by.1 += u32::from(by.0 == Some(thread::current().id()));
            by.1 == 2 && by.0.take().is_some()
        };
        if ends && let Some(pool) = self.pool.get().and_then(Weak::upgrade) {
            let _ = pool.shutdown(Duration::ZERO);
            self.done.open();
        }
        self.clock.now()
    }
}

/// In a shutdown the clock is asked, and ends the pool once more: the keeper, in whose thread that is, goes on not to wait for itself.
#[test]
fn a_shutdown_may_be_inside_another_one() {
    let here: Arc<OnceLock<Weak<Pool<Task, OnScaling>>>> = Arc::default();
    let by = Arc::<Mutex<(Option<thread::ThreadId>, u32)>>::default();
    let (gate, done) = (Gate::default(), Gate::default());
    let (sender, ended) = mpsc::channel();
    let sender = Mutex::new(sender);
    let at_clock = Arc::clone(&by);
    let does = move |pool: &Pool<Task, OnScaling>| {
        *at_clock.lock().unwrap() = (Some(thread::current().id()), 0);
        let ended = pool.shutdown(LONG * 10);
        sender.lock().unwrap().send(ended.still_running).unwrap();
    };
    let clock = Ends { clock: MonotonicClock::new(), pool: Arc::clone(&here), by, done: done.clone() };
    let metrics = OnScaling { pool: Arc::clone(&here), does: Box::new(does) };
    let builder = Pool::builder().adaptive(1, 2).scale_up_after(Duration::from_millis(1)).clock(clock);
    let pool = Arc::new(builder.metrics(metrics).build().expect("in range"));
    assert!(here.set(Arc::downgrade(&pool)).is_ok());
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    // This one may be handed back by the inner shutdown, before the new worker has begun it, and be refused if the first has waited for its
    // worker for long enough: the new one has come for it then.
    if let Err(refused) = pool.submit(at_gate(&gate)) {
        assert_eq!(refused.reason, RejectReason::Closed);
    }
    done.pass();
    gate.open();
    ended.recv_timeout(LONG).expect("it does not wait for itself");
    assert!(in_time("all end", move || pool.shutdown(LONG).still_running == 0));
}

/// What was taken out of the pool is handed back although the clock fails from then on.
#[test]
fn a_clock_that_fails_loses_nothing_that_is_handed_back() {
    let (gate, slow) = (Gate::default(), Gate::default());
    let here: Arc<OnceLock<Weak<Pool<Task, OnScaling>>>> = Arc::default();
    let seen = Arc::clone(&here);
    let is_empty = move || {
        let pool = seen.get().and_then(Weak::upgrade);
        pool.is_some_and(|pool| pool.stats().queued == 0)
    };
    let at_metric = slow.clone();
    let metrics = OnScaling { pool: Arc::clone(&here), does: Box::new(move |_| at_metric.pass()) };
    let builder = Pool::builder().adaptive(1, 2).scale_up_after(Duration::from_millis(1));
    let builder = builder.clock(Fails(MonotonicClock::new(), "ends", is_empty));
    let pool = Arc::new(builder.metrics(metrics).build().expect("in range"));
    assert!(here.set(Arc::downgrade(&pool)).is_ok());
    for _ in 0..2 {
        pool.submit(at_gate(&gate)).expect("open");
    }
    // The keeper is in its metric, and so will not have ended in time; both workers are at the gate.
    slow.has(1);
    gate.has(2);
    for _ in 0..3 {
        pool.submit(task(|| ())).expect("open");
    }
    let ending = {
        let pool = Arc::clone(&pool);
        thread::Builder::new().name("ends".into()).spawn(move || pool.shutdown(Duration::from_millis(30)))
    };
    let ended = in_time("it returns", move || ending.expect("a thread").join()).expect("no panic");
    assert_eq!((ended.unrun.len(), ended.handed_back, ended.still_running), (3, 3, 2));
    gate.open();
    slow.open();
    assert_eq!(in_time("it ends", move || pool.shutdown(LONG)).handed_back, 3);
}

/// A clock that fails when the call begins has ended nothing.
#[test]
fn a_clock_that_fails_first_ends_nothing() {
    let clock = Fails(MonotonicClock::new(), "submits", || true);
    let pool = Pool::<Task>::builder().workers(1).clock(clock).build().expect("in range");
    assert!(submits(|| _ = pool.shutdown(LONG)).is_err());
    assert_eq!(pool.spawn(|_| 1).expect("open").wait().expect("run"), 1);
    // Without a limit there is nothing to be asked.
    assert!(submits(|| pool.shutdown(Duration::MAX).is_complete()).expect("no panic"));
}

/// A pool whose worker is at the first gate and whose queue of one is full, with a job for the second; and a clock that fails on threads called
/// `submits` when it is told to, or else while somebody waits for room.
fn full(gates: &[Gate; 2], fails: Option<Arc<AtomicBool>>) -> Arc<Pool<Task, AtomicMetrics>> {
    let here: Arc<OnceLock<Weak<Pool<Task, AtomicMetrics>>>> = Arc::default();
    let seen = Arc::clone(&here);
    let does = move || match &fails {
        Some(fails) => fails.load(SeqCst),
        None => {
            let pool = seen.get().and_then(Weak::upgrade);
            pool.is_some_and(|pool| pool.stats().waiting > 0)
        }
    };
    let clock = Fails(MonotonicClock::new(), "submits", does);
    let builder = Pool::<Task>::builder().workers(1).capacity(1).clock(clock);
    let pool = Arc::new(builder.metrics(AtomicMetrics::default()).build().expect("in range"));
    assert!(here.set(Arc::downgrade(&pool)).is_ok());
    pool.submit(at_gate(&gates[0])).expect("open");
    gates[0].has(1);
    pool.submit(at_gate(&gates[1])).expect("room");
    pool
}

/// Runs it on a thread called `submits`.
fn submits<R: Send>(f: impl FnOnce() -> R + Send) -> thread::Result<R> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("submits".into()).spawn_scoped(scope, f);
        thread.expect("a thread").join()
    })
}

/// A submitter that comes to grief while it waits for room waits no more.
#[test]
fn a_submitter_whose_clock_fails_is_not_waited_for() {
    let gates = <[Gate; 2]>::default();
    let pool = full(&gates, None);
    let (job, handle) = task(|| ()).with_handle();
    assert!(submits(|| pool.submit(job).is_ok()).is_err(), "the clock has failed");
    assert_eq!((pool.stats().waiting, handle.wait().ending.kind()), (0, EndingKind::Dropped));
    assert!(submits(|| pool.submit_timeout(task(|| ()), LONG).is_ok()).is_err());
    assert_eq!(pool.stats().waiting, 0);
    // A future that is not dropped when its poll has panicked.
    let mut future = pool.submit_async(task(|| ()));
    assert!(submits(|| _ = poll(&mut future)).is_err());
    assert_eq!(pool.stats().waiting, 0);
    drop(future);
    gates.iter().for_each(Gate::open);
    assert!(pool.shutdown(LONG).is_complete());
}

/// One that was rung and then comes to grief passes its place on.
#[test]
fn a_submitter_whose_clock_fails_passes_its_place_on() {
    let (gates, fails) = (<[Gate; 2]>::default(), Arc::new(AtomicBool::new(false)));
    let pool = full(&gates, Some(Arc::clone(&fails)));
    let woken: Arc<[AtomicUsize; 2]> = Arc::default();
    let wakers = [0, 1].map(|i| {
        let woken = Arc::clone(&woken);
        waker(move || _ = woken[i].fetch_add(1, SeqCst))
    });
    let (mut first, mut second) = (pool.submit_async(task(|| ())), pool.submit_async(task(|| ())));
    assert!(poll_by(&mut first, &wakers[0]).is_pending() && poll_by(&mut second, &wakers[1]).is_pending());
    gates[0].open();
    eventually("the first is woken", || woken[0].load(SeqCst) == 1);
    fails.store(true, SeqCst);
    assert!(submits(|| _ = poll(&mut first)).is_err());
    eventually("the second is woken", || woken[1].load(SeqCst) == 1);
    assert!(matches!(poll(&mut second), Poll::Ready(Ok(()))));
    gates[1].open();
    assert!(pool.shutdown(LONG).is_complete());
}

/// Jobs that are submitted together when the clock fails are still their owner's, all of them; none lies in the queue unknown to workers.
#[test]
fn jobs_submitted_together_are_kept_when_the_clock_fails() {
    for order in [Order::Fifo, Order::Priority] {
        let asked = Arc::new(AtomicUsize::new(0));
        let here = Arc::clone(&asked);
        // At the first reading, and at each second one.
        let fails = move || here.fetch_add(1, SeqCst).is_multiple_of(2);
        let clock = Fails(MonotonicClock::new(), "submits", fails);
        let builder = Pool::<Task>::builder().workers(1).order(order).clock(clock);
        let pool = builder.metrics(AtomicMetrics::default()).build().expect("in range");
        let token = CancelToken::new();
        token.cancel();
        let last = task(|| ()).cancel_with(token);
        let mut jobs: VecDeque<_> = [task(|| ()), task(|| ()), last].into();
        assert!(submits(|| _ = pool.try_submit_many(&mut jobs)).is_err(), "the clock has failed");
        assert_eq!((jobs.len(), pool.stats().queued, pool.stats().done), (3, 0, 0));
        assert_eq!(submits(|| pool.try_submit_many(&mut jobs)).expect("once"), Err(RejectReason::Cancelled));
        eventually("those that could be are run", || pool.stats().done == 2);
        assert_eq!((jobs.len(), asked.load(SeqCst)), (1, 2));
    }
}
