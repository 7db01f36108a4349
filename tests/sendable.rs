//! What a task keeps while it waits for something else must be `Send`, whatever the resource is made of.
//!
//! In an `async` block the compiler has forgotten which lifetimes are `'static`: it asks whether all that lives across an `.await` is
//! `Send` for *any* lifetime in its type. A `&'static str` in a resource is where that shows. So this has only to compile; it
//! runs as well, for the sake of it.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    future::{Future, IntoFuture, pending},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_lite::future::{block_on, poll_once, yield_now};
use leasehold::{Builder, DrainReport, Entry, Scheduler};

type Words = Entry<&'static str, u32, &'static str>;
type Fleet = Scheduler<Words>;

fn fleet() -> Arc<Fleet> {
    let fleet = Fleet::builder().shards(1).build().unwrap();
    fleet.insert(Entry::new("a", 0, "x")).unwrap();
    fleet.insert(Entry::new("b", 0, "y")).unwrap();
    Arc::new(fleet)
}

/// As an executor of many threads takes it.
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    block_on(task);
}

#[test]
fn leases() {
    spawn(async {
        let fleet = fleet();
        let lease = fleet.acquire().unwrap();
        let owned = fleet.acquire_owned().unwrap();
        yield_now().await;
        assert_ne!(lease.key(), owned.key());
        let value: &&str = &lease.value;
        yield_now().await;
        assert_eq!(value.len(), 1);
    });
}

#[test]
fn waits() {
    spawn(async {
        let fleet = fleet();
        let lease = fleet.acquire_async().await.unwrap();
        drop(fleet.acquire_async_owned().await.unwrap());
        drop(fleet.acquire_key_async(&"b").await.unwrap());
        drop(fleet.acquire_where_async(|words: &Words| words.value == "y").await.unwrap());
        drop(fleet.request().key(&"b").timeout(Duration::from_secs(1)).owned().await.unwrap());
        yield_now().await;
        drop(lease);
        let both = fleet.acquire_many_async(2).await.unwrap();
        // Kept unfinished.
        let mut one = fleet.acquire_async();
        let mut several = fleet.request().many(2).owned();
        let named = fleet.request().key(&"a");
        let picky = fleet.request().matching(|words: &Words| words.value == "x");
        assert!(poll_once(&mut one).await.is_none());
        assert!(poll_once(&mut several).await.is_none());
        yield_now().await;
        drop(both);
        drop(one);
        drop(several);
        yield_now().await;
        drop(named.into_future());
        drop(picky.owned());
    });
}

#[test]
fn schedulers_and_drains() {
    spawn(async {
        let builder: Builder<Words> = Fleet::builder();
        yield_now().await;
        let fleet = builder.build().unwrap();
        fleet.insert(Entry::new("a", 0, "x")).unwrap();
        let lease = fleet.acquire().unwrap();
        let mut drain = fleet.drain_async("a").unwrap();
        assert!(poll_once(&mut drain).await.is_none());
        let by_reference = &fleet;
        yield_now().await;
        assert_eq!(by_reference.len(), 1);
        let listed = fleet.leases();
        let snapshot = fleet.snapshot();
        yield_now().await;
        drop((listed, snapshot, lease));
        let report: DrainReport<&'static str> = drain.await;
        yield_now().await;
        assert!(report.is_drained());
    });
}

/// The other half of the truth: it is a real question, asked of something that is not `Send`.
#[test]
fn the_question_is_asked() {
    let not_sent = std::rc::Rc::new(());
    let mut task = pin!(async move {
        pending::<()>().await;
        drop(not_sent);
    });
    assert_eq!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
}
