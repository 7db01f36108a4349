//! The pool: no wake-up is lost, nothing is run twice, a shutdown accounts for every job.
//!
//! A worker that sleeps for ever is a deadlock, which loom reports; so is a submitter that waits for ever, or a handle. There is no time here,
//! so nobody looks again after a while: nothing may depend on the keeper but speed, and how many workers there are. A model that is about that
//! looks in its place.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc as StdArc,
        atomic::{AtomicUsize as StdUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use leasehold::{
    ManualClock,
    internals::{
        pool::{Hand, Keeper, Memory, Next, Room, Tray},
        sync::{
            Arc, Condvar, Mutex,
            atomic::{AtomicBool, Ordering::Relaxed},
            barrier,
        },
    },
    pool::{EndingKind, Job, Order, Pool, RejectReason, Task},
};

use crate::common::{lying_down, model_within, spawn};

/// How often jobs were run, and cleaned up. Not instrumented: the models must not be ordered by what they count with.
#[derive(Clone, Default)]
struct Count(StdArc<(StdUsize, StdUsize)>);

impl Count {
    fn job(&self) -> Job<Count> {
        let run = |count: &mut Count, _: &leasehold::pool::Context<'_>| {
            count.0.0.fetch_add(1, SeqCst);
            Ok(())
        };
        Job::new(self.clone(), run).cleanup(|count, _| {
            count.0.1.fetch_add(1, SeqCst);
        })
    }

    fn run(&self) -> usize {
        self.0.0.load(SeqCst)
    }

    fn cleaned(&self) -> usize {
        self.0.1.load(SeqCst)
    }
}

fn pool(workers: usize, capacity: usize) -> Pool<Count> {
    pool_by(Order::Fifo, workers, capacity)
}

fn pool_by(order: Order, workers: usize, capacity: usize) -> Pool<Count> {
    let builder = Pool::builder().workers(workers).capacity(capacity).segment_slots(2).order(order);
    builder.build().expect("in range")
}

/// A job that comes while the worker lies down, or has; then the pool is dropped.
#[test]
fn submit_lie_down() {
    model_within(3, || {
        let count = Count::default();
        let pool = pool(1, 4);
        let (job, handle) = count.job().with_handle();
        pool.try_submit(job).expect("room");
        assert_eq!(handle.wait().ending.kind(), EndingKind::Done);
        drop(pool);
        assert_eq!((count.run(), count.cleaned()), (1, 1));
    });
}

#[test]
fn submit_lie_down_by_priority() {
    model_within(2, || {
        let count = Count::default();
        let pool = pool_by(Order::Priority, 1, 4);
        let (job, handle) = count.job().with_handle();
        pool.try_submit(job).expect("room");
        assert_eq!(handle.wait().ending.kind(), EndingKind::Done);
        drop(pool);
    });
}

/// A second job after the first has been run: the worker is on its way to bed, or asleep again.
#[test]
fn submit_submit_lie_down() {
    model_within(2, || {
        let count = Count::default();
        let pool = pool(1, 4);
        for _ in 0..2 {
            let (job, handle) = count.job().with_handle();
            pool.try_submit(job).expect("room");
            assert_eq!(handle.wait().ending.kind(), EndingKind::Done);
        }
        drop(pool);
        assert_eq!(count.run(), 2);
    });
}

/// Two workers, one wakes the other, one may take from the other's tray.
#[test]
fn two_workers() {
    model_within(1, || {
        let count = Count::default();
        let pool = pool(2, 4);
        let handles: Vec<_> = (0..2)
            .map(|_| {
                let (job, handle) = count.job().with_handle();
                pool.try_submit(job).expect("room");
                handle
            })
            .collect();
        for handle in handles {
            assert_eq!(handle.wait().ending.kind(), EndingKind::Done);
        }
        drop(pool);
        assert_eq!((count.run(), count.cleaned()), (2, 2));
    });
}

/// A job that runs until another one has been run, which comes when it has begun: a second worker is woken for that, for there is no keeper here. The
/// jobs take no time, so the pace says that they are short.
#[test]
fn submit_beside_a_long_one() {
    model_within(1, || {
        let (begun, gate) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        let pool = Pool::<Task>::builder().workers(2).capacity(4).segment_slots(2).build().expect("in range");
        let (begins, waits) = (Arc::clone(&begun), Arc::clone(&gate));
        let long = Task::job(move |_| {
            begins.ring();
            waits.wait();
            Ok(())
        });
        pool.try_submit(long).expect("room");
        begun.wait();
        let opens = Arc::clone(&gate);
        let lone = Task::job(move |_| {
            opens.ring();
            Ok(())
        });
        pool.try_submit(lone).expect("room");
        gate.wait();
        assert!(pool.shutdown(Duration::MAX).is_complete());
    });
}

/// Rung once, heard by any number.
#[derive(Default)]
struct Bell(Mutex<bool>, Condvar);

impl Bell {
    fn ring(&self) {
        *self.0.lock().expect("no panic") = true;
        self.1.notify_all();
    }

    fn wait(&self) {
        let mut rung = self.0.lock().expect("no panic");
        while !*rung {
            rung = self.1.wait(rung).expect("no panic");
        }
    }
}

/// A submitter waits for room in a queue of one.
#[test]
fn wait_for_room() {
    model_within(2, || {
        let count = Count::default();
        let pool = pool(1, 1);
        for _ in 0..3 {
            pool.submit(count.job()).expect("open");
        }
        assert!(pool.shutdown(Duration::MAX).is_complete());
        assert_eq!((count.run(), count.cleaned()), (3, 3));
    });
}

/// Two submitters wait, one of them a task that is given up at some moment: the other is let in.
#[test]
fn wait_for_room_and_give_up() {
    model_within(1, || {
        let count = Count::default();
        let pool = Arc::new(pool(1, 1));
        let other = {
            let (pool, count) = (Arc::clone(&pool), count.clone());
            spawn(move || {
                for _ in 0..2 {
                    pool.submit(count.job()).expect("open");
                }
            })
        };
        let accepted = {
            let mut submit = pin!(pool.submit_async(count.job()));
            let mut context = Context::from_waker(Waker::noop());
            let mut polls = (0..2).map(|_| submit.as_mut().poll(&mut context));
            polls.any(|poll| matches!(poll, Poll::Ready(Ok(()))))
        };
        other.join().expect("no panic");
        assert!(pool.shutdown(Duration::MAX).is_complete());
        assert_eq!(count.run(), 2 + usize::from(accepted));
        assert_eq!(count.cleaned(), 3, "the job that was given up was dropped");
    });
}

/// One who waits for room and gives up, before or after it was rung: the other one is rung. Room by itself, because in a pool a worker that
/// finds nothing rings again, and would only be later.
#[test]
fn room_given_up() {
    model_within(3, || {
        let room = Arc::new(Room::default());
        let (first, _) = room.wait(Some(Waker::noop().clone()), false);
        let (second, _) = room.wait(Some(Waker::noop().clone()), false);
        let worker = {
            let room = Arc::clone(&room);
            spawn(move || {
                // Whether the other one is left: nobody looks here.
                let _ = room.freed(1, |_| 1);
            })
        };
        let rung = first.rung_or_leave(Waker::noop());
        first.leave(false);
        worker.join().expect("no panic");
        assert!(second.rung_or_leave(Waker::noop()), "the first one was rung: {rung}");
        assert!(second.leave(true));
        assert_eq!(room.waiting(), 0);
    });
}

/// A bell is used again while whoever rang it may still have it in hand: what rings for the one before does not ring for the next.
#[test]
fn room_used_again() {
    model_within(3, || {
        let room = Arc::new(Room::default());
        let (first, _) = room.wait(None, false);
        let worker = {
            let room = Arc::clone(&room);
            spawn(move || room.ring(1))
        };
        let was_rung = first.leave(true);
        let (second, _) = room.wait(Some(Waker::noop().clone()), false);
        worker.join().expect("no panic");
        let is_rung = second.rung_or_leave(Waker::noop());
        assert!(!(was_rung && is_rung), "there was one ring");
        assert_eq!(second.leave(true), is_rung);
    });
}

/// Something is left while the keeper goes off duty: it sees it and stays, or is called. K1 to K4 against L1 and L3 to L5.
#[test]
fn off_duty_call() {
    model_within(3, || {
        let (keeper, left) = (Arc::new(Keeper::default()), Arc::new(AtomicBool::new(false)));
        keeper.go_on_duty();
        let other = {
            let (keeper, left) = (Arc::clone(&keeper), Arc::clone(&left));
            spawn(move || {
                barrier::prepare();
                // K1 to K4.
                left.store(true, Relaxed);
                barrier::light();
                keeper.call();
            })
        };
        barrier::prepare();
        if keeper.go_off_duty(|| left.load(Relaxed)) {
            assert!(keeper.rest(None), "it is not to end");
        }
        assert!(left.load(Relaxed), "it looks, and finds it");
        other.join().expect("no panic");
    });
}

/// Room is left without a ring while the keeper goes off duty, and somebody waits for it: the keeper sees both and stays, or is called; or whoever
/// waits has come late enough to find the room. F1 to F4 and K3, K4 against W2 to W4 and L3 to L5.
#[test]
fn off_duty_room() {
    off_duty_room_beside(false);
}

/// As `off_duty_room`, but somebody is rung: a task that is not polled. Who waits behind it is left, and let in all the same.
#[test]
fn off_duty_room_rung_in_vain() {
    off_duty_room_beside(true);
}

fn off_duty_room_beside(a_task: bool) {
    model_within(2, move || {
        let all = (Keeper::default(), Room::default(), AtomicBool::new(false));
        all.0.go_on_duty();
        let all = Arc::new(all);
        let task = a_task.then(|| all.1.wait(Some(Waker::noop().clone()), false).0);
        let worker = {
            let all = Arc::clone(&all);
            spawn(move || {
                let (keeper, room, is_free) = &*all;
                barrier::prepare();
                is_free.store(true, Relaxed);
                if room.freed(1, |_| usize::from(a_task)) {
                    keeper.call();
                }
            })
        };
        let looks = {
            let all = Arc::clone(&all);
            spawn(move || {
                let (keeper, room, is_free) = &*all;
                barrier::prepare();
                let is_owed = || room.waiting() > 0 && is_free.load(Relaxed);
                // Off duty until it is called, or ends.
                while keeper.go_off_duty(is_owed) {
                    if !keeper.rest(None) {
                        return;
                    }
                    keeper.go_on_duty();
                }
                // A millisecond later.
                room.ring(1);
            })
        };
        let (desk, room, is_free) = &*all;
        let (waiter, _) = room.wait(None, false);
        if !is_free.load(Relaxed) {
            waiter.sleep(None);
        }
        waiter.leave(true);
        worker.join().expect("no panic");
        desk.end();
        looks.join().expect("no panic");
        if let Some(task) = task {
            task.leave(true);
        }
        assert_eq!(room.waiting(), 0);
    });
}

/// A job is submitted by priority while the keeper goes off duty, and the only worker is in a job that turns out long: the keeper sees what waits
/// and stays, or is called. K1 to K4, of a real submission, against L3 to L5. The job that the worker is in is what the keeper does: so there
/// are two threads, and nobody takes the other job too early.
#[test]
fn off_duty_submit_by_priority() {
    type Leave = Box<dyn FnOnce() -> bool + Send>;

    /// What the worker is in, until the other job is there.
    #[derive(Clone, Default)]
    struct Long {
        is_off_duty: StdArc<StdUsize>,
        submitted: Arc<(Mutex<bool>, Condvar)>,
    }

    impl Long {
        fn run(&self, leave: Leave) {
            self.is_off_duty.fetch_add(usize::from(leave()), SeqCst);
            let (submitted, condition) = &*self.submitted;
            let mut is_there = submitted.lock().expect("no panic");
            while !*is_there {
                is_there = condition.wait(is_there).expect("no panic");
            }
        }
    }

    model_within(1, || {
        let long = Long::default();
        let builder = Pool::builder().adaptive(1, 2).capacity(4).order(Order::Priority);
        let pool = builder.build().expect("in range");
        let leave: Leave = Box::new(pool.go_off_duty());
        let handles = [Some(leave), None].map(|leave| {
            let job = Job::new((leave, long.clone()), |(leave, long), _| {
                if let Some(leave) = leave.take() {
                    long.run(leave);
                }
                Ok(())
            });
            let (job, handle) = job.with_handle();
            pool.try_submit(job).expect("room");
            handle
        });
        let (submitted, condition) = &*long.submitted;
        *submitted.lock().expect("no panic") = true;
        condition.notify_one();
        for handle in handles {
            assert_eq!(handle.wait().ending.kind(), EndingKind::Done);
        }
        let is_off_duty = long.is_off_duty.load(SeqCst) == 1;
        assert!(!is_off_duty || pool.is_looked_after(), "it saw nothing, and nobody has called");
        drop(pool);
    });
}

/// A shutdown in order runs what was accepted.
#[test]
fn shutdown_submit() {
    model_within(2, || {
        let count = Count::default();
        let pool = Arc::new(pool(1, 4));
        let other = {
            let (pool, count) = (Arc::clone(&pool), count.clone());
            spawn(move || match pool.try_submit(count.job()) {
                Ok(()) => true,
                Err(refused) => {
                    assert_eq!(refused.reason, RejectReason::Closed);
                    false
                }
            })
        };
        let ended = pool.shutdown(Duration::MAX);
        assert!(ended.is_complete() && ended.unrun.is_empty());
        let run = count.run();
        let accepted = other.join().expect("no panic");
        assert_eq!(run, usize::from(accepted), "run before the shutdown returned, or refused");
        assert_eq!(count.cleaned(), 1);
    });
}

/// A shutdown that has no time: each job was run, or is handed back.
#[test]
fn shutdown_now() {
    model_within(2, || {
        let count = Count::default();
        let pool = pool(1, 4);
        for _ in 0..3 {
            pool.try_submit(count.job()).expect("room");
        }
        let ended = pool.shutdown(Duration::ZERO);
        assert_eq!(ended.unrun.len(), ended.handed_back);
        let unrun = ended.unrun.len();
        drop(ended);
        let later = pool.shutdown(Duration::MAX);
        assert_eq!((later.unrun.len(), later.handed_back), (0, unrun), "all are told the truth");
        drop(pool);
        assert_eq!((count.run() + unrun, count.cleaned()), (3, 3));
    });
}

/// As `shutdown_now`, with two workers: trays are revoked one after the other, while what is on one may go to another.
#[test]
fn shutdown_now_two_workers() {
    model_within(1, || {
        let count = Count::default();
        let pool = pool(2, 4);
        for _ in 0..2 {
            pool.try_submit(count.job()).expect("room");
        }
        let unrun = pool.shutdown(Duration::ZERO).unrun.len();
        let later = pool.shutdown(Duration::MAX);
        assert_eq!((later.unrun.len(), later.handed_back), (0, unrun));
        drop(pool);
        assert_eq!((count.run() + unrun, count.cleaned()), (2, 2));
    });
}

/// Whoever has been told to end has been the last to begin: no other job of its worker is run after that.
#[test]
fn shutdown_tells_then_nothing_begins() {
    /// What jobs of one worker have seen.
    #[derive(Clone, Default)]
    struct Told(StdArc<StdUsize>);

    fn job(told: &Told) -> Job<Told> {
        Job::new(told.clone(), |told, context| {
            assert_eq!(told.0.load(SeqCst), 0, "an earlier one was told to end");
            told.0.fetch_add(usize::from(context.is_cancelled()), SeqCst);
            Ok(())
        })
    }

    model_within(2, || {
        let told = Told::default();
        let pool = Pool::builder().workers(1).capacity(4).segment_slots(2).build().expect("in range");
        // On the tray behind the first, or in the queue behind both.
        for _ in 0..3 {
            pool.try_submit(job(&told)).expect("room");
        }
        let unrun = pool.shutdown(Duration::ZERO).unrun.len();
        assert_eq!(pool.shutdown(Duration::MAX).unrun.len(), 0);
        let stats = pool.stats();
        assert_eq!((stats.panicked, stats.done as usize + unrun), (0, 3));
    });
}

/// Two shutdowns without time at once, and a submission.
#[test]
fn shutdown_now_shutdown_now_submit() {
    model_within(1, || {
        let count = Count::default();
        let pool = Arc::new(pool(1, 4));
        pool.try_submit(count.job()).expect("room");
        let other = {
            let (pool, count) = (Arc::clone(&pool), count.clone());
            spawn(move || {
                let accepted = pool.try_submit(count.job()).is_ok();
                (accepted, pool.shutdown(Duration::ZERO).unrun.len())
            })
        };
        let mine = pool.shutdown(Duration::ZERO).unrun.len();
        let (accepted, theirs) = other.join().expect("no panic");
        let end = pool.shutdown(Duration::MAX);
        assert_eq!((end.unrun.len(), end.handed_back), (0, mine + theirs));
        assert_eq!(count.run() + mine + theirs, 1 + usize::from(accepted));
        assert_eq!(count.cleaned(), 2);
    });
}

/// One that has time, beside one that has none: it is told how many the other one was given.
#[test]
fn shutdown_shutdown_now() {
    // One preemption is all that it takes, and with two the walk does not come to it in a minute.
    model_within(1, || {
        let count = Count::default();
        let pool = Arc::new(pool(1, 4));
        pool.try_submit(count.job()).expect("room");
        let other = {
            let pool = Arc::clone(&pool);
            spawn(move || pool.shutdown(Duration::ZERO).unrun.len())
        };
        let patient = pool.shutdown(Duration::MAX);
        let (mine, told) = (patient.unrun.len(), patient.handed_back);
        let theirs = other.join().expect("no panic");
        assert_eq!((told, count.run()), (mine + theirs, 1 - mine - theirs));
    });
}

/// Dropped at any moment: each job ends once, and every thread ends.
#[test]
fn drop_with_jobs() {
    model_within(2, || {
        let count = Count::default();
        let pool = pool(1, 4);
        let handles: Vec<_> = (0..2)
            .map(|_| {
                let (job, handle) = count.job().with_handle();
                pool.try_submit(job).expect("room");
                handle
            })
            .collect();
        drop(pool);
        let mut done = 0;
        for handle in handles {
            let kind = handle.wait().ending.kind();
            assert!(matches!(kind, EndingKind::Done | EndingKind::Dropped), "{kind:?}");
            done += usize::from(kind == EndingKind::Done);
        }
        assert_eq!((count.run(), count.cleaned()), (done, 2), "each is cleaned up once, run or not");
    });
}

/// The keeper starts a second worker, and sends one home that idles: each job is run, there are never more or fewer than may be, and all end. In some
/// of the schedules it has both to do.
#[test]
fn grow_and_dismiss() {
    // Not instrumented.
    static SCALED: [StdUsize; 2] = [const { StdUsize::new(0) }; 2];
    model_within(1, || {
        let count = Count::default();
        let clock = Arc::new(ManualClock::new());
        let builder = Pool::builder().adaptive(1, 2).capacity(4).segment_slots(2).clock(Arc::clone(&clock));
        let builder = builder.scale_up_at(0.25).scale_rest(Duration::ZERO).idle_for(Duration::from_nanos(1));
        let pool = builder.build().expect("in range");
        let mut memory = Memory::default();
        let handles: Vec<_> = (0..2)
            .map(|_| {
                let (job, handle) = count.job().with_handle();
                pool.try_submit(job).expect("room");
                pool.look(&mut memory);
                clock.advance(Duration::from_nanos(2));
                handle
            })
            .collect();
        assert!((1..=2).contains(&pool.stats().workers));
        for handle in handles {
            assert_eq!(handle.wait().ending.kind(), EndingKind::Done);
            clock.advance(Duration::from_nanos(2));
            pool.look(&mut memory);
        }
        let stats = pool.stats();
        assert!((1..=2).contains(&stats.workers));
        let steps = stats.scaled_up as usize - stats.scaled_down as usize;
        assert_eq!(stats.workers, 1 + steps, "each change was told: {stats:?}");
        for (sum, scaled) in SCALED.iter().zip([stats.scaled_up, stats.scaled_down]) {
            sum.fetch_add(scaled as usize, SeqCst);
        }
        drop(pool);
        assert_eq!((count.run(), count.cleaned()), (2, 2));
    });
    // A run that goes on from a checkpoint has not seen what was before.
    if std::env::var_os("LOOM_CHECKPOINT_FILE").is_none() {
        assert!(SCALED.iter().all(|sum| sum.load(SeqCst) > 0), "it grew, and was sent home: {SCALED:?}");
    }
}

/// The tray: its owner, a thief and the end, each job in one hand, and dropped once by it.
fn tray(jobs: u32, thief: bool, end: bool) {
    model_within(3, move || {
        let tray = Arc::new(Tray::<Box<u32>>::new(3));
        let thief = thief.then(|| {
            let tray = Arc::clone(&tray);
            spawn(move || steal(&tray))
        });
        let end = end.then(|| {
            let tray = Arc::clone(&tray);
            spawn(move || {
                let mut unrun = Vec::new();
                tray.revoke(&mut unrun, false, true);
                unrun.into_iter().map(|job| *job).collect()
            })
        });
        let mut hand = tray.hand().expect("nobody has it");
        let mut all = match hand.begin() {
            Next::Fill if hand.fill() => {
                (0..jobs).for_each(|job| hand.put(Box::new(job)));
                everything(&mut hand)
            }
            // Before anything was taken out of a queue.
            next => {
                assert_ne!(next, Next::Run);
                (0..jobs).collect()
            }
        };
        drop(hand);
        for other in thief.into_iter().chain(end) {
            all.extend(other.join().expect("no panic"));
        }
        let mut left = Vec::new();
        assert!(!tray.revoke(&mut left, false, true), "nothing is running");
        all.extend(left.into_iter().map(|job| *job));
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..jobs), "{all:?}");
    });
}

/// Takes from a tray to one of its own, and runs what it has taken.
fn steal(victim: &Tray<Box<u32>>) -> Vec<u32> {
    let own = Tray::new(3);
    let mut hand = own.hand().expect("nobody has it");
    assert!(hand.begin() == Next::Fill && hand.fill());
    hand.steal(victim);
    everything(&mut hand)
}

/// Publishes what was put on the tray, and runs what comes.
fn everything(hand: &mut Hand<'_, Box<u32>>) -> Vec<u32> {
    let next = hand.filled();
    run_from(hand, next)
}

/// Runs what comes.
fn run_from(hand: &mut Hand<'_, Box<u32>>, mut next: Next) -> Vec<u32> {
    let mut all = Vec::new();
    while next == Next::Run {
        hand.run(|job| all.push(**job));
        next = hand.begin();
    }
    all
}

#[test]
fn tray_steal() {
    tray(2, true, false);
}

/// Owner and thief meet at the tray's lock, under which the thief calls for a barrier: whoever comes second sleeps.
#[test]
fn tray_steal_lying_down() {
    lying_down(|| tray(2, true, false));
}

#[test]
fn tray_steal_some() {
    tray(3, true, false);
}

/// A worker dies with a job that it has begun and not run; the next one of its number goes on there, beside a thief.
#[test]
fn tray_steal_from_one_that_dies() {
    model_within(3, || {
        let tray = Arc::new(Tray::<Box<u32>>::new(3));
        let thief = {
            let tray = Arc::clone(&tray);
            spawn(move || steal(&tray))
        };
        let mut hand = tray.hand().expect("nobody has it");
        assert!(hand.begin() == Next::Fill && hand.fill());
        (0..3).for_each(|job| hand.put(Box::new(job)));
        assert_eq!(hand.filled(), Next::Run);
        drop(hand);
        let mut hand = tray.hand().expect("it was let go");
        let next = hand.begin();
        let mut all = run_from(&mut hand, next);
        drop(hand);
        all.extend(thief.join().expect("no panic"));
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
    });
}

#[test]
fn tray_revoke() {
    tray(2, false, true);
}

#[test]
fn tray_steal_revoke() {
    tray(2, true, true);
}
