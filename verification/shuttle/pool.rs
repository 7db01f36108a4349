//! The worker pool under random schedules: submitters of all kinds, two or three workers, or as many as the keeper finds right, cancellations,
//! panics, and each way to end.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use leasehold::{
    ManualClock, SplitMix64,
    internals::{
        pool::Memory,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::SeqCst},
            thread,
        },
    },
    pool::{CancelToken, Ending, EndingKind, Job, Order, Pool, RejectReason},
};
use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
};

use crate::common::scenario;

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
#[test]
fn pool_shutdown_in_the_middle() {
    scenario("pool_shutdown_in_the_middle", || {
        let book = Arc::new(Book::default());
        let pool = Arc::new(pool(Order::Fifo, 2, 3, &book));
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
    });
}

/// The pool is dropped with jobs in it; handles are told.
#[test]
fn pool_dropped() {
    scenario("pool_dropped", || {
        let book = Arc::new(Book::default());
        let pool = pool(Order::Fifo, 2, 8, &book);
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
    });
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
