//! Those who wait for room.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context as Task_, Poll, RawWaker, RawWakerVTable, Waker},
    thread,
    time::{Duration, Instant},
};

use leasehold::pool::{CancelToken, EndingKind, Job, Metrics, Order, Pool, RejectReason, Task};

use super::common::{
    Gate, LONG, at_gate, block, bounded, eventually, in_time, poll, poll_by, task, waker, warm,
};

#[test]
fn submitters_wait_for_room_or_time() {
    let gate = Gate::default();
    let pool = Arc::new(Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range"));
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.submit(task(|| ())).expect("open");
    let start = Instant::now();
    let refused = pool.submit_timeout(task(|| ()), Duration::from_millis(20)).expect_err("full");
    assert_eq!(refused.reason, RejectReason::TimedOut);
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(pool.try_submit(refused.into_job()).expect_err("full").reason, RejectReason::Full);
    let waiting = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || pool.submit(task(|| ())).is_ok())
    };
    let mut future = pool.submit_async(task(|| ()));
    assert!(poll(&mut future).is_pending());
    eventually("both wait", || pool.stats().waiting == 2);
    gate.open();
    assert!(waiting.join().unwrap());
    futures_lite::future::block_on(future).expect("room");
    assert!(pool.shutdown(LONG).is_complete());
    let stats = pool.stats();
    assert_eq!((stats.done, stats.rejected_full, stats.rejected_timed_out, stats.waiting), (4, 1, 1, 0));
}

/// A task that was woken for a place and gives up passes it on.
#[test]
fn a_submission_that_is_given_up_passes_its_place_on() {
    let gate = Gate::default();
    let pool = Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range");
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.submit(task(|| ())).expect("open");
    let woken = Arc::new(AtomicUsize::new(0));
    struct Count(Arc<AtomicUsize>);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let waker = Waker::from(Arc::new(Count(Arc::clone(&woken))));
    let mut context = Task_::from_waker(&waker);
    let mut first = Box::pin(pool.submit_async(task(|| ())));
    let mut second = pin!(pool.submit_async(task(|| ())));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    gate.open();
    eventually("the first is woken", || woken.load(SeqCst) >= 1);
    drop(first);
    eventually("so is the second", || woken.load(SeqCst) >= 2);
    assert!(matches!(second.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
    assert!(pool.shutdown(LONG).is_complete());
}

/// One who gets in line finds room by itself, for what came out before was rung for nobody. What it is rung for before it has left the line is
/// another's place.
#[test]
fn who_finds_room_by_itself_passes_its_ring_on() {
    type Line = (mpsc::Sender<()>, mpsc::Receiver<()>);
    /// Waits for an answer when a job is accepted, if it is to.
    struct Tells(Arc<Mutex<Option<Line>>>);
    impl Metrics for Tells {
        const TIMED: bool = false;

        fn accepted(&self, _: usize) {
            let line = self.0.lock().unwrap().take();
            if let Some((tell, go_on)) = line {
                tell.send(()).unwrap();
                go_on.recv().unwrap();
            }
        }
    }
    static AT_CLONE: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        |_| {
            if let Some(f) = AT_CLONE.lock().unwrap().take() {
                f();
            }
            RawWaker::new(std::ptr::null(), &TABLE)
        },
        |_| {},
        |_| {},
        |_| {},
    );
    #[expect(unsafe_code, reason = "a waker that tells when it is cloned")]
    // SAFETY: it has no data.
    let tells_of_its_clone = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) };

    let gates: [Gate; 4] = Default::default();
    let line = Arc::default();
    let pool = Pool::<Task>::builder().workers(2).capacity(1).metrics(Tells(Arc::clone(&line)));
    let pool = pool.build().expect("in range");
    for gate in &gates[..2] {
        pool.submit(at_gate(gate)).expect("open");
        gate.has(1);
    }
    pool.submit(at_gate(&gates[2])).expect("room");
    let woken = Arc::new(AtomicUsize::new(0));
    let here = Arc::clone(&woken);
    let counts = waker(move || _ = here.fetch_add(1, SeqCst));
    // The first has seen that it is full, and is not in line yet: one comes out.
    let [first, second, third, fourth] = gates.clone();
    *AT_CLONE.lock().unwrap() = Some(Box::new(move || {
        first.open();
        third.has(1);
    }));
    let (tell, told) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    *line.lock().unwrap() = Some((tell, goes_on));
    let mut behind = pool.submit_async(task(|| ()));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut by_itself = pool.submit_async(at_gate(&gates[3]));
            let submitted = poll_by(&mut by_itself, &tells_of_its_clone);
            assert!(matches!(submitted, Poll::Ready(Ok(()))), "it has found room by itself");
        });
        told.recv_timeout(LONG).expect("it is accepted");
        assert!(poll_by(&mut behind, &counts).is_pending(), "it is full again");
        second.open();
        fourth.has(1);
        go_on.send(()).unwrap();
    });
    eventually("who is behind is woken: there is room", || woken.load(SeqCst) == 1);
    assert!(matches!(poll_by(&mut behind, &counts), Poll::Ready(Ok(()))));
    gates.iter().for_each(Gate::open);
    assert!(pool.shutdown(LONG).is_complete());
}

/// One who was rung, and whose job turns out to be cancelled, passes the place on.
#[test]
fn a_cancelled_submission_passes_its_place_on() {
    let (first_gate, second_gate) = (Gate::default(), Gate::default());
    let pool = Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range");
    pool.submit(at_gate(&first_gate)).expect("open");
    first_gate.has(1);
    pool.submit(at_gate(&second_gate)).expect("open");
    let token = CancelToken::new();
    let woken: Arc<[AtomicUsize; 2]> = Arc::default();
    let wakers = [0, 1].map(|i| {
        let woken = Arc::clone(&woken);
        waker(move || _ = woken[i].fetch_add(1, SeqCst))
    });
    let mut first = pool.submit_async(task(|| ()).cancel_with(token.clone()));
    let mut second = pool.submit_async(task(|| ()));
    assert!(poll_by(&mut first, &wakers[0]).is_pending());
    assert!(poll_by(&mut second, &wakers[1]).is_pending());
    first_gate.open();
    second_gate.has(1);
    eventually("the first is woken", || woken[0].load(SeqCst) == 1);
    assert_eq!(woken[1].load(SeqCst), 0, "there is room for one");
    token.cancel();
    let refused = poll_by(&mut first, &wakers[0]);
    assert!(matches!(refused, Poll::Ready(Err(refused)) if refused.reason == RejectReason::Cancelled));
    eventually("the second is woken in its place", || woken[1].load(SeqCst) == 1);
    assert!(matches!(poll_by(&mut second, &wakers[1]), Poll::Ready(Ok(()))));
    second_gate.open();
    assert!(pool.shutdown(LONG).is_complete());
}

/// A waker that waits for whoever ends the pool holds nobody up.
#[test]
fn a_waker_that_waits_for_the_end_does_not_delay_it() {
    for dropped in [false, true] {
        let gate = Gate::default();
        let pool = Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range");
        pool.submit(at_gate(&gate)).expect("open");
        gate.has(1);
        pool.submit(task(|| ())).expect("open");
        let at_end = Gate::default();
        let here = at_end.clone();
        let mut future = Box::pin(pool.submit_async(task(|| ())));
        assert!(poll_by(&mut future, &waker(move || here.pass())).is_pending());
        gate.open();
        at_end.has(1);
        drop(future);
        if dropped {
            in_time("the pool is dropped", move || drop(pool));
        } else {
            let ended = in_time("the pool is shut down", move || pool.shutdown(Duration::ZERO));
            assert!(ended.unrun.len() + ended.still_running <= 1);
        }
        at_end.open();
    }
}

/// A waker may end the pool itself.
#[test]
fn a_waker_may_end_the_pool() {
    let gate = Gate::default();
    let pool = Arc::new(Pool::<Task>::builder().workers(1).capacity(1).build().expect("in range"));
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.submit(task(|| ())).expect("open");
    let (sender, ended) = mpsc::channel();
    let (sender, here) = (Mutex::new(sender), Arc::clone(&pool));
    let end = waker(move || {
        let ended = here.shutdown(Duration::ZERO);
        sender.lock().unwrap().send(ended.unrun.len()).unwrap();
    });
    let mut future = pool.submit_async(task(|| ()));
    assert!(poll_by(&mut future, &end).is_pending());
    gate.open();
    assert_eq!(ended.recv_timeout(LONG).expect("it returns"), 0, "the job was begun");
    assert!(matches!(poll_by(&mut future, Waker::noop()), Poll::Ready(Err(_))));
    assert!(pool.shutdown(LONG).is_complete());
    assert_eq!(pool.stats().done, 2);
}

/// While jobs are long each place that is free lets one in, though the queue is nowhere near empty: a thread, one with a limit, and a task.
#[test]
fn while_jobs_are_long_one_place_lets_one_in() {
    const CAPACITY: usize = 100;
    let pool = Arc::new(bounded(1, CAPACITY));
    let (step, steps) = mpsc::channel::<()>();
    let (steps, begun) = (Arc::new(Mutex::new(steps)), Arc::new(AtomicUsize::new(0)));
    let one_step = || {
        let (steps, begun) = (Arc::clone(&steps), Arc::clone(&begun));
        task(move || {
            begun.fetch_add(1, SeqCst);
            _ = steps.lock().unwrap().recv();
        })
    };
    pool.submit(one_step()).expect("open");
    eventually("it is begun", || begun.load(SeqCst) == 1);
    (0..CAPACITY).for_each(|_| pool.try_submit(one_step()).expect("room"));
    let (thread, limited) = (Arc::clone(&pool), Arc::clone(&pool));
    let (job, limited_job) = (one_step(), one_step());
    let threads = [
        thread::spawn(move || thread.submit(job).is_ok()),
        thread::spawn(move || limited.submit_timeout(limited_job, LONG).is_ok()),
    ];
    let woken = Arc::new(AtomicUsize::new(0));
    let here = Arc::clone(&woken);
    eventually("the threads wait", || pool.stats().waiting == 2);
    let mut future = pool.submit_async(one_step());
    assert!(poll_by(&mut future, &waker(move || _ = here.fetch_add(1, SeqCst))).is_pending());
    // Three long jobs end, and three more are begun; most of a hundred stay.
    for ended in 1..=3 {
        thread::sleep(Duration::from_millis(1));
        step.send(()).unwrap();
        eventually("the next one is begun", || begun.load(SeqCst) == ended + 1);
    }
    for thread in threads {
        assert!(in_time("the threads are let in", move || thread.join().unwrap()));
    }
    eventually("the task is woken", || woken.load(SeqCst) == 1);
    assert!(matches!(poll(&mut future), Poll::Ready(Ok(()))));
    assert_eq!((pool.stats().queued, pool.stats().waiting), (CAPACITY, 0));
    drop(step);
    assert!(pool.shutdown(LONG).is_complete());
}

/// Those who wait are let in beside newcomers who fill the queue as fast as it is emptied, so that it is never half empty: here the jobs themselves.
#[test]
fn newcomers_do_not_keep_those_who_wait_out() {
    fn again(pool: &Arc<Pool<Task>>, ends: &Arc<AtomicBool>) -> Job<Task> {
        let (pool, ends) = (Arc::clone(pool), Arc::clone(ends));
        task(move || {
            if !ends.load(SeqCst) && pool.stats().queued < 900 {
                _ = pool.try_submit(again(&pool, &ends));
            }
        })
    }
    let (pool, ends, gate) = (Arc::new(bounded(1, 1_000)), Arc::default(), Gate::default());
    warm(&pool);
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    (0..1_000).for_each(|_| pool.try_submit(again(&pool, &ends)).expect("room"));
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.submit(task(|| ())).is_ok())
        })
        .collect();
    eventually("they wait", || pool.stats().waiting == 3);
    gate.open();
    for thread in waiting {
        assert!(in_time("they are let in", move || thread.join().unwrap()));
    }
    assert!(pool.stats().queued > 0, "newcomers go on");
    ends.store(true, SeqCst);
    assert!(pool.shutdown(LONG).is_complete());
}

/// Jobs that turn out long although those before them were short: the room that they leave is given away, though nothing else comes out; here they
/// even wait for those who wait. Each worker takes a batch, which is far from half of the capacity.
#[test]
fn room_left_by_jobs_that_turn_out_long_is_given_away() {
    for (workers, order) in [(1, Order::Fifo), (2, Order::Fifo), (1, Order::Priority), (2, Order::Priority)] {
        let builder = Pool::<Task>::builder().workers(workers).capacity(1_000).order(order);
        let pool = Arc::new(builder.build().expect("in range"));
        // The time is taken of some batches only: one of those at the first gate may be among them, and then jobs are known to be long.
        for _ in 0..4 {
            warm(&pool);
            let (first, second) = (Gate::default(), Gate::default());
            (0..workers).for_each(|_| pool.submit(at_gate(&first)).expect("open"));
            first.has(workers);
            (0..1_000).for_each(|_| pool.try_submit(at_gate(&second)).expect("room"));
            let thread = {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.submit(task(|| ())).is_ok())
            };
            eventually("the thread waits", || pool.stats().waiting == 1);
            let woken = Arc::new(AtomicUsize::new(0));
            let here = Arc::clone(&woken);
            let mut future = pool.submit_async(task(|| ()));
            assert!(poll_by(&mut future, &waker(move || _ = here.fetch_add(1, SeqCst))).is_pending());
            first.open();
            second.has(workers);
            assert!(in_time("the thread is let in", move || thread.join().unwrap()));
            eventually("the task is woken", || woken.load(SeqCst) == 1);
            assert!(matches!(poll(&mut future), Poll::Ready(Ok(()))));
            second.open();
            eventually("all sleep", || (pool.stats().queued, pool.stats().idle) == (0, workers));
        }
        assert!(pool.shutdown(LONG).is_complete());
    }
}

/// Tasks that were woken and are not polled, for their runtime's only thread is in a call that waits itself, keep nobody out: who waits behind them is let
/// in, though nothing comes out any more.
#[test]
fn tasks_that_are_not_polled_keep_nobody_out() {
    const TASKS: usize = 40;
    for (workers, order) in [(1, Order::Fifo), (2, Order::Fifo), (1, Order::Priority), (2, Order::Priority)] {
        let builder = Pool::<Task>::builder().workers(workers).capacity(1).order(order);
        let (pool, gate) = (Arc::new(builder.build().expect("in range")), Gate::default());
        for begun in 1..=workers {
            pool.submit(at_gate(&gate)).expect("open");
            gate.has(begun);
        }
        pool.submit(task(|| ())).expect("room for one");
        let mut tasks: Vec<_> = (0..TASKS).map(|_| pool.submit_async(task(|| ()))).collect();
        assert!(tasks.iter_mut().all(|task| poll(task).is_pending()));
        let thread = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.submit(task(|| ())).is_ok())
        };
        eventually("the thread waits", || pool.stats().waiting == TASKS + 1);
        gate.open();
        assert!(in_time("the thread is let in", move || thread.join().unwrap()));
        drop(tasks);
        assert!(pool.shutdown(LONG).is_complete());
    }
}

/// What was not accepted yet is given back whole, and waits no more; what was accepted is the pool's.
#[test]
fn a_submission_gives_its_job_back() {
    let pool = bounded(1, 1);
    let go = block(&pool);
    pool.submit(task(|| ())).expect("room");
    let (job, handle) = task(|| ()).with_handle();
    let never_polled = pool.submit_async(job);
    let job = never_polled.into_job().expect("it was not accepted");
    let mut waits = pool.submit_async(job);
    assert!(poll(&mut waits).is_pending());
    assert_eq!(pool.stats().waiting, 1);
    let job = waits.into_job().expect("it was not accepted");
    assert_eq!((pool.stats().waiting, handle.is_finished()), (0, false));
    drop(go);
    eventually("there is room", || pool.stats().queued == 0);
    let mut submits = pool.submit_async(job);
    assert!(matches!(poll(&mut submits), Poll::Ready(Ok(()))));
    assert!(submits.into_job().is_none(), "it is the pool's");
    assert_eq!(handle.wait().ending.kind(), EndingKind::Done);
}
