//! The worker pool under random schedules: submitters of all kinds, two or three workers, or as many as the keeper finds right, cancellations,
//! panics, and each way to end.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use leasehold::{
    ManualClock, Outcome, OwnedLease, SplitMix64,
    internals::{
        pool::Memory,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::SeqCst},
            thread,
        },
    },
    pool::{
        BucketQueue, CancelToken, Ending, EndingKind, Job, JobPriority, JobQueue, Order, Pool, RejectReason,
        SegmentedQueue, Task,
    },
};
use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
};

use crate::{
    common::scenario,
    driver::{Fleet, Res, Setup},
};

/// What has become of jobs; by [`EndingKind`].
#[derive(Default)]
struct Book {
    ended: [AtomicUsize; 5],
    run: AtomicUsize,
    reported: AtomicUsize,
}

impl Book {
    fn ended(&self) -> usize {
        self.ended.iter().map(|count| count.load(SeqCst)).sum()
    }

    fn of(&self, kind: EndingKind) -> usize {
        self.ended[kind as usize].load(SeqCst)
    }
}

struct Payload {
    book: Arc<Book>,
    /// What its job does.
    does: u32,
}

type Work = Pool<Payload>;

fn job(book: &Arc<Book>, does: u32) -> Job<Payload> {
    let payload = Payload { book: Arc::clone(book), does };
    Job::new(payload, |payload, _| {
        payload.book.run.fetch_add(1, SeqCst);
        thread::yield_now();
        match payload.does {
            0 => Err("failed".into()),
            // Not by `panic!`: shuttle would print each one.
            1 => std::panic::resume_unwind(Box::new("panicked")),
            _ => Ok(()),
        }
    })
    .cleanup(|payload, ending: &Ending| {
        payload.book.ended[ending.kind() as usize].fetch_add(1, SeqCst);
    })
}

fn pool(order: Order, workers: usize, capacity: usize, book: &Arc<Book>) -> Work {
    let book = Arc::clone(book);
    Pool::builder()
        .workers(workers)
        .capacity(capacity)
        .segment_slots(2)
        .order(order)
        .on_failure(move |_: &Payload, _| {
            book.reported.fetch_add(1, SeqCst);
        })
        .build()
        .expect("in range")
}

/// Submits one job somehow; whether it was accepted.
fn submit_somehow(pool: &Work, book: &Arc<Book>, random: &mut SplitMix64) -> bool {
    let job = job(book, random.below(6));
    let submitted = match random.below(5) {
        0 => pool.try_submit(job),
        1 => pool.submit(job),
        2 => block_on(pool.submit_async(job)),
        3 => {
            // Given up after some polls.
            let mut submit = pin!(pool.submit_async(job));
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..random.below(3) {
                if let Poll::Ready(submitted) = submit.as_mut().poll(&mut context) {
                    return submitted.is_ok();
                }
                thread::yield_now();
            }
            return false;
        }
        _ => {
            let token = CancelToken::new();
            let submitted = pool.try_submit(job.cancel_with(token.clone()));
            token.cancel();
            submitted
        }
    };
    match submitted {
        Ok(()) => true,
        Err(refused) => {
            assert!(matches!(refused.reason, RejectReason::Full | RejectReason::Closed));
            false
        }
    }
}

fn submitters(pool: &Arc<Work>, book: &Arc<Book>, each: u32) -> Vec<thread::JoinHandle<u32>> {
    (0..2)
        .map(|_| {
            let (pool, book) = (Arc::clone(pool), Arc::clone(book));
            let mut random = SplitMix64::new(thread_rng().r#gen());
            thread::spawn(move || {
                (0..each).map(|_| u32::from(submit_somehow(&pool, &book, &mut random))).sum()
            })
        })
        .collect()
}

/// Everything that was submitted has ended once, and what failed was reported.
fn settled(book: &Book, submitted: usize, unrun: usize) {
    assert_eq!(book.ended(), submitted, "each cleanup ran once");
    let begun = [EndingKind::Done, EndingKind::Failed, EndingKind::Panicked];
    assert_eq!(book.run.load(SeqCst), begun.iter().map(|&kind| book.of(kind)).sum::<usize>());
    assert_eq!(book.reported.load(SeqCst), book.of(EndingKind::Failed) + book.of(EndingKind::Panicked));
    assert!(book.of(EndingKind::Dropped) >= unrun);
}

fn in_order(order: Order) {
    let book = Arc::new(Book::default());
    let pool = Arc::new(pool(order, 2, 2, &book));
    let accepted: u32 =
        submitters(&pool, &book, 4).into_iter().map(|thread| thread.join().expect("no panic")).sum();
    let ended = pool.shutdown(Duration::MAX);
    assert!(ended.is_complete());
    assert_eq!(book.run.load(SeqCst) + book.of(EndingKind::Cancelled), accepted as usize);
    drop((ended, pool));
    settled(&book, 8, 0);
}

#[test]
fn pool_in_order() {
    scenario("pool_in_order", || in_order(Order::Fifo));
}

#[test]
fn pool_by_priority() {
    scenario("pool_by_priority", || in_order(Order::Priority));
}

/// Two shutdowns, one of them without time, while jobs come in.
fn shutdown_in_the_middle(order: Order) {
    let book = Arc::new(Book::default());
    let pool = Arc::new(pool(order, 2, 3, &book));
    let threads = submitters(&pool, &book, 3);
    let ending = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || pool.shutdown(Duration::ZERO).unrun.len())
    };
    let mine = pool.shutdown(Duration::ZERO).unrun.len();
    let unrun = mine + ending.join().expect("no panic");
    let accepted: u32 = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    let end = pool.shutdown(Duration::MAX);
    assert_eq!((end.unrun.len(), end.handed_back), (0, unrun));
    let begun = book.run.load(SeqCst) + book.of(EndingKind::Cancelled);
    // A job that was handed back after its token was cancelled is dropped like any other.
    assert!(begun + unrun == accepted as usize, "{begun} + {unrun} of {accepted}");
    drop(pool);
    settled(&book, 6, unrun);
}

#[test]
fn pool_shutdown_in_the_middle() {
    scenario("pool_shutdown_in_the_middle", || shutdown_in_the_middle(Order::Fifo));
}

#[test]
fn pool_shutdown_in_the_middle_by_priority() {
    scenario("pool_shutdown_in_the_middle_by_priority", || shutdown_in_the_middle(Order::Priority));
}

/// A batch comes in, in parts where there is no room for all, while the pool is ended with time or without.
fn batch_and_shutdown(order: Order) {
    let book = Arc::new(Book::default());
    let pool = Arc::new(pool(order, 2, 3, &book));
    let submitter = {
        let (pool, book) = (Arc::clone(&pool), Arc::clone(&book));
        thread::spawn(move || {
            let mut jobs: std::collections::VecDeque<_> = (0..6).map(|does| job(&book, does)).collect();
            // Until all are in, or the pool has been closed.
            while let Err(reason) = pool.try_submit_many(&mut jobs) {
                match reason {
                    RejectReason::Full => thread::yield_now(),
                    other => {
                        assert_eq!(other, RejectReason::Closed);
                        break;
                    }
                }
            }
            6 - jobs.len()
        })
    };
    (0..thread_rng().gen_range(0..6)).for_each(|_| thread::yield_now());
    let limit = if thread_rng().r#gen() { Duration::MAX } else { Duration::ZERO };
    let unrun = pool.shutdown(limit).unrun.len();
    let accepted = submitter.join().expect("no panic");
    let end = pool.shutdown(Duration::MAX);
    assert_eq!((end.unrun.len(), end.handed_back), (0, unrun));
    assert_eq!(book.run.load(SeqCst) + unrun, accepted);
    assert!(limit.is_zero() || unrun == 0);
    drop(pool);
    settled(&book, 6, unrun);
}

#[test]
fn pool_batch_and_shutdown() {
    scenario("pool_batch_and_shutdown", || batch_and_shutdown(Order::Fifo));
}

#[test]
fn pool_batch_and_shutdown_by_priority() {
    scenario("pool_batch_and_shutdown_by_priority", || batch_and_shutdown(Order::Priority));
}

/// The pool is dropped with jobs in it; handles are told.
fn dropped(order: Order) {
    let book = Arc::new(Book::default());
    let pool = pool(order, 2, 8, &book);
    let handles: Vec<_> = (0..4)
        .map(|_| {
            let (job, handle) = job(&book, 9).with_handle();
            pool.try_submit(job).expect("room");
            handle
        })
        .collect();
    thread::yield_now();
    drop(pool);
    for (i, handle) in handles.into_iter().enumerate() {
        let finished = if i % 2 == 0 { handle.wait() } else { block_on(handle) };
        assert!(matches!(finished.ending.kind(), EndingKind::Done | EndingKind::Dropped));
    }
    settled(&book, 4, 0);
}

#[test]
fn pool_dropped() {
    scenario("pool_dropped", || dropped(Order::Fifo));
}

#[test]
fn pool_dropped_by_priority() {
    scenario("pool_dropped_by_priority", || dropped(Order::Priority));
}

/// Workers come when the queue fills, and go when they idle, while jobs are submitted: never more or fewer than may be, and nothing is lost.
#[test]
fn pool_scales() {
    use std::sync::atomic::AtomicU64 as Plain;
    static SCALED: [Plain; 2] = [const { Plain::new(0) }; 2];
    scenario("pool_scales", || {
        let book = Arc::new(Book::default());
        let clock = Arc::new(ManualClock::new());
        let pool = Pool::builder()
            .adaptive(1, 3)
            .capacity(3)
            .segment_slots(2)
            .scale_up_at(0.3)
            .scale_rest(Duration::ZERO)
            .idle_for(Duration::from_nanos(2))
            .clock(Arc::clone(&clock));
        let told = Arc::clone(&book);
        let pool = pool.on_failure(move |_: &Payload, _| {
            told.reported.fetch_add(1, SeqCst);
        });
        let pool = Arc::new(pool.build().expect("in range"));
        let keeper = {
            let (pool, clock) = (Arc::clone(&pool), Arc::clone(&clock));
            thread::spawn(move || {
                let mut memory = Memory::default();
                for _ in 0..8 {
                    clock.advance(Duration::from_nanos(1));
                    pool.look(&mut memory);
                    assert!((1..=3).contains(&pool.stats().workers));
                    thread::yield_now();
                }
                memory
            })
        };
        let threads = submitters(&pool, &book, 4);
        let accepted: u32 = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        let mut memory = keeper.join().expect("no panic");
        // All that idle go, but one.
        while pool.stats().workers > 1 {
            clock.advance(Duration::from_nanos(3));
            pool.look(&mut memory);
            thread::yield_now();
        }
        // It is there for what comes.
        let (last, handle) = job(&book, 9).with_handle();
        pool.submit(last).expect("open");
        assert_eq!(handle.wait().ending.kind(), EndingKind::Done);
        let stats = pool.stats();
        for (sum, scaled) in SCALED.iter().zip([stats.scaled_up, stats.scaled_down]) {
            sum.fetch_add(scaled, SeqCst);
        }
        assert!(pool.shutdown(Duration::MAX).is_complete());
        assert_eq!(book.run.load(SeqCst) + book.of(EndingKind::Cancelled), accepted as usize + 1);
        drop(pool);
        settled(&book, 9, 0);
    });
    if std::env::var_os("SHUTTLE_REPLAY").is_none() {
        assert!(SCALED.iter().all(|sum| sum.load(SeqCst) > 0), "workers came and went: {SCALED:?}");
    }
}

/// A pool is closed while a worker takes a batch of jobs that wait for each other: the other worker does not end before it has had its part.
#[test]
fn pool_ends_with_jobs_that_meet() {
    scenario("pool_ends_with_jobs_that_meet", || {
        let met = Arc::new(AtomicUsize::new(0));
        let pool = Pool::builder().workers(2).capacity(4).segment_slots(2).build().expect("in range");
        let mut jobs: std::collections::VecDeque<_> = (0..2)
            .map(|_| {
                Job::new(Arc::clone(&met), |met, _| {
                    met.fetch_add(1, SeqCst);
                    while met.load(SeqCst) < 2 {
                        thread::yield_now();
                    }
                    Ok(())
                })
            })
            .collect();
        pool.try_submit_many(&mut jobs).expect("room");
        assert!(pool.shutdown(Duration::MAX).is_complete());
        assert_eq!(pool.stats().done, 2);
    });
}

/// The queue alone, closed at some moment: three push, two pop, in batches or not; what was accepted comes out once.
fn queue_alone<Q: JobQueue<u32> + Send + Sync + 'static>(queue: Q) {
    let queue = Arc::new(queue);
    let producers: Vec<_> = (0..3)
        .map(|producer| {
            let queue = Arc::clone(&queue);
            let mut random = SplitMix64::new(thread_rng().r#gen());
            thread::spawn(move || {
                let mut accepted = Vec::new();
                for item in (0..4).map(|i| 10 * producer + i) {
                    let priority = JobPriority::new(1 + random.below(63) as u8).expect("1 to 63");
                    if queue.push(item, priority).is_ok() {
                        accepted.push(item);
                    }
                }
                accepted
            })
        })
        .collect();
    let consumers: Vec<_> = (0..2)
        .map(|_| {
            let queue = Arc::clone(&queue);
            let mut random = SplitMix64::new(thread_rng().r#gen());
            thread::spawn(move || {
                let mut out = std::collections::VecDeque::new();
                for _ in 0..6 {
                    queue.pop_many(1 + random.below(3) as usize, &mut out);
                    thread::yield_now();
                }
                out
            })
        })
        .collect();
    if thread_rng().r#gen() {
        thread::yield_now();
        queue.close();
    }
    let mut accepted: Vec<_> = producers.into_iter().flat_map(|it| it.join().expect("no panic")).collect();
    let mut all: Vec<_> = consumers.into_iter().flat_map(|it| it.join().expect("no panic")).collect();
    let mut rest = std::collections::VecDeque::new();
    while queue.pop_many(2, &mut rest) > 0 {}
    all.extend(rest);
    accepted.sort_unstable();
    all.sort_unstable();
    assert_eq!(all, accepted);
    assert_eq!(queue.len(), 0);
    // A producer that was passed by has pushed its item anew: another place has gone by.
    assert!(queue.passed() >= accepted.len() as u64);
}

#[test]
fn pool_queue_of_segments() {
    scenario("pool_queue_of_segments", || {
        let (bound, slots) = (thread_rng().gen_range(2..=12), thread_rng().gen_range(1..=3));
        queue_alone(SegmentedQueue::<u32>::with(bound, slots));
    });
}

#[test]
fn pool_queue_of_buckets() {
    scenario("pool_queue_of_buckets", || queue_alone(BucketQueue::bounded(thread_rng().gen_range(2..=12))));
}

/// Jobs that wait for the only lease there is, which goes from one to the next, while the pool ends, with time or without, and the scheduler may be
/// closed: each has one end, its handle is told, and the lease is back.
#[test]
fn pool_errands() {
    scenario("pool_errands", || {
        const JOBS: usize = 3;
        let fleet = Arc::new(Fleet::new(Setup::default()));
        fleet.scheduler.insert(fleet.resource(0)).expect("new");
        let pool = Arc::new(
            Pool::<Task>::builder().workers(2).capacity(1).segment_slots(2).build().expect("in range"),
        );
        let run = Arc::new(AtomicUsize::new(0));
        let submitter = {
            let (fleet, pool, run) = (Arc::clone(&fleet), Arc::clone(&pool), Arc::clone(&run));
            thread::spawn(move || {
                let submit = |_| {
                    let run = Arc::clone(&run);
                    let body = move |_: &OwnedLease<Res>, _: &leasehold::pool::Context<'_>| {
                        run.fetch_add(1, SeqCst);
                        thread::yield_now();
                        ((), Outcome::Ok { latency: Duration::ZERO })
                    };
                    pool.submit_with_lease(fleet.scheduler.acquire_async_owned(), body)
                };
                (0..JOBS).map(submit).collect::<Vec<_>>()
            })
        };
        let closes = thread_rng().gen_range(0..3) == 0;
        let closer = {
            let fleet = Arc::clone(&fleet);
            thread::spawn(move || {
                if closes {
                    (0..thread_rng().gen_range(0..6)).for_each(|_| thread::yield_now());
                    fleet.scheduler.close();
                }
            })
        };
        (0..thread_rng().gen_range(0..6)).for_each(|_| thread::yield_now());
        let limit = if thread_rng().r#gen() { Duration::MAX } else { Duration::ZERO };
        let ended = pool.shutdown(limit);
        let (unrun, given_up, mut unlent) = (ended.unrun.len(), ended.given_up, ended.unlent.len());
        assert!(limit.is_zero() || ended.is_complete());
        drop(ended);
        let submitted = submitter.join().expect("no panic");
        closer.join().expect("no panic");
        let mut later = pool.shutdown(Duration::MAX);
        assert_eq!((later.unrun.len(), later.handed_back, later.given_up), (0, unrun, given_up));
        unlent += later.unlent.len();
        later.unlent.clear();
        assert!(
            unlent <= given_up && (closes || unlent == given_up),
            "{unlent} of {given_up} are handed back"
        );
        let (mut done, mut without, mut dropped) = (0, 0, 0);
        for handle in submitted.into_iter().flatten() {
            match handle.wait() {
                Ok(Ok(())) => done += 1,
                Ok(Err(_)) => without += 1,
                Err(ending) => {
                    assert_eq!(ending.kind(), EndingKind::Dropped);
                    dropped += 1;
                }
            }
        }
        assert_eq!((done, dropped), (run.load(SeqCst), unrun + given_up));
        assert!(closes || without == 0, "{without} had no lease");
        drop((later, pool));
        let (tally, stats) = (fleet.scheduler.check_invariants(), fleet.scheduler.stats());
        assert_eq!((tally.in_flight, stats.lent), (0, stats.returned), "the lease is back");
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}
