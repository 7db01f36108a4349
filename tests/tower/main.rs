//! A lease for the life of a response.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod bodies;

use std::{
    convert::Infallible,
    future::{Future, pending, ready},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_lite::future::block_on;
use leasehold::{
    Clock, Entry, ManualClock, Outcome, Overdue, ReleaseError, Scheduler, Stats, Timestamp, WaitError,
    tower::{ByResult, Classify, LeaseLayer, LeaseRef, Leased, UntilResponse},
};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimitLayer, service_fn};

type Resource = Entry<u32, u32, &'static str>;
type Fleet = Arc<Scheduler<Resource>>;
type Request = Leased<u32, Resource>;

fn fleet(resources: u32) -> Fleet {
    filled(Scheduler::builder().shards(1).build().unwrap(), resources)
}

fn filled(fleet: Scheduler<Resource>, resources: u32) -> Fleet {
    for key in 0..resources {
        fleet.insert(Entry::new(key, key, "value")).unwrap();
    }
    Arc::new(fleet)
}

/// Answers with the request and the resource's key.
async fn echo(Leased { request, lease }: Request) -> Result<(u32, u32), io::Error> {
    Ok((request, *lease.key()))
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut context())
}

/// How leases have ended: succeeded, failed, rate-limited, cancelled. None is out.
fn ends(fleet: &Fleet) -> (u64, u64, u64, u64) {
    let Stats { in_flight, succeeded, failed, rate_limited, cancelled, .. } = fleet.stats();
    assert_eq!(in_flight, 0);
    (succeeded, failed, rate_limited, cancelled)
}

#[test]
fn a_response_holds_its_lease() {
    let fleet = fleet(1);
    let mut service = LeaseLayer::new(&fleet).layer(service_fn(echo));
    let response = block_on(async { service.ready().await.unwrap().call(7).await.unwrap() });
    assert_eq!((*response, response.lease().value), ((7, 0), "value"));
    assert!(fleet.acquire().is_err());
    assert_eq!(response.into_response(), (7, 0));
    assert_eq!(ends(&fleet), (1, 0, 0, 0));
}

#[test]
fn a_response_may_hold_nothing() {
    let fleet = fleet(1);
    let service = LeaseLayer::new(&fleet).hold(UntilResponse).layer(service_fn(echo));
    let response = block_on(service.oneshot(7)).unwrap();
    assert_eq!(response, (7, 0));
    assert_eq!(ends(&fleet), (1, 0, 0, 0));
}

#[test]
fn readiness_waits_for_a_lease_and_a_clone_waits_for_its_own() {
    let fleet = fleet(1);
    let mut first = LeaseLayer::new(&fleet).layer(service_fn(echo));
    block_on(async { first.ready().await.map(drop) }).unwrap();
    assert_eq!(fleet.stats().in_flight, 1, "leased before the call");

    let mut second = first.clone();
    assert!(Service::<u32>::poll_ready(&mut second, &mut context()).is_pending(), "the clone is not ready");
    let third = second.clone();
    assert_eq!(fleet.stats().waits.waited, 1, "the clone of one that waits does not wait");

    drop(first);
    assert!(Service::<u32>::poll_ready(&mut second, &mut context()).is_ready(), "handed over");
    let response = block_on(second.call(1)).unwrap();
    let mut third = third;
    assert!(Service::<u32>::poll_ready(&mut third, &mut context()).is_pending());
    drop(response);
    assert!(Service::<u32>::poll_ready(&mut third, &mut context()).is_ready());
    assert!(
        Service::<u32>::poll_ready(&mut third, &mut context()).is_ready(),
        "asking again takes no second lease"
    );
    assert_eq!(fleet.stats().in_flight, 1);
    drop(third);
    assert_eq!(ends(&fleet), (1, 0, 0, 0));
}

#[test]
fn one_that_is_dropped_while_it_waits_leaves_the_queue() {
    let fleet = fleet(1);
    let lease = fleet.acquire().unwrap();
    let mut service = LeaseLayer::new(&fleet).layer(service_fn(echo));
    assert!(Service::<u32>::poll_ready(&mut service, &mut context()).is_pending());
    drop(service);
    assert_eq!(fleet.stats().waits.cancelled, 1);
    drop(lease);
    assert_eq!(fleet.stats().in_flight, 0);
}

#[test]
fn a_call_without_readiness_panics() {
    let fleet = fleet(1);
    let mut service = LeaseLayer::new(&fleet).layer(service_fn(echo));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(service.call(1)))).is_err());
    assert_eq!(ends(&fleet), (0, 0, 0, 0));
}

/// Pending so many times.
struct Slow(usize);

impl Future for Slow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.0.checked_sub(1) {
            None => Poll::Ready(()),
            Some(rest) => {
                self.0 = rest;
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

#[test]
fn a_call_that_is_dropped_at_any_poll_returns_its_lease() {
    let fleet = fleet(1);
    let mut service = LeaseLayer::new(&fleet).layer(service_fn(|request: Request| async move {
        Slow(3).await;
        echo(request).await
    }));
    for polls in 0..=3 {
        block_on(async { service.ready().await.map(drop) }).unwrap();
        let mut call = Box::pin(service.call(1));
        for _ in 0..polls {
            assert!(poll(&mut call).is_pending());
            assert_eq!(fleet.stats().in_flight, 1);
        }
        drop(call);
        assert_eq!(ends(&fleet), (0, 0, 0, polls as u64 + 1));
    }
}

#[test]
fn an_error_counts_against_the_resource_unless_told_otherwise() {
    let fleet = fleet(1);
    let fails = service_fn(|_: Request| ready(Err::<(), _>(io::Error::other("broken pipe"))));
    let error = block_on(LeaseLayer::new(&fleet).layer(fails).oneshot(1)).unwrap_err();
    assert_eq!(error.downcast_ref::<io::Error>().unwrap().to_string(), "broken pipe");
    assert_eq!(ends(&fleet), (0, 1, 0, 0));

    let lenient = |_: Result<&(), &io::Error>, _| Outcome::Cancelled;
    block_on(LeaseLayer::new(&fleet).classify(lenient).layer(fails).oneshot(1)).unwrap_err();
    assert_eq!(ends(&fleet), (0, 1, 0, 1));
}

#[test]
fn a_panic_returns_the_lease() {
    let fleet = fleet(1);
    let in_call = service_fn(|request: Request| -> std::future::Ready<Result<u32, Infallible>> {
        panic!("{}", request.request)
    });
    let in_future = service_fn(|request: Request| async move {
        if request.request == 1 {
            panic!("1");
        }
        Ok::<_, Infallible>(request.request)
    });
    let layer = LeaseLayer::new(&fleet);
    assert!(catch_unwind(AssertUnwindSafe(|| block_on(layer.layer(in_call).oneshot(1)))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| block_on(layer.layer(in_future).oneshot(1)))).is_err());
    assert_eq!(ends(&fleet), (0, 2, 0, 0), "a panic is no cancellation");
    let classify = |_: Result<&(u32, u32), &io::Error>, _| -> Outcome { panic!("classify") };
    let classified = layer.clone().classify(classify).layer(service_fn(echo));
    assert!(catch_unwind(AssertUnwindSafe(|| block_on(classified.oneshot(1)))).is_err());
    assert_eq!(ends(&fleet), (0, 3, 0, 0), "nor is one of what judges the answer");
    assert!(block_on(layer.layer(service_fn(echo)).oneshot(1)).is_ok());
}

/// The panic of what a service asks for itself, its filter or the resource's rank, ends that wait, and not the service.
#[test]
fn a_panic_that_ends_a_wait_leaves_the_service_usable() {
    let fleet = fleet(1);
    let panics = Arc::new(AtomicUsize::new(0));
    let filter = Arc::clone(&panics);
    let layer = LeaseLayer::requesting(&fleet, move |fleet| {
        let panics = Arc::clone(&filter);
        let accepts = move |_: &Resource| {
            let before = panics.load(SeqCst);
            panics.store(before.saturating_sub(1), SeqCst);
            assert!(before != 1, "planted");
            true
        };
        fleet.request().matching(accepts).owned()
    });
    let mut service = layer.layer(service_fn(echo));
    let mut panics_when_polled = |held: Option<_>| {
        let mut poll_ready = || {
            let poll =
                AssertUnwindSafe(|| Service::<u32>::poll_ready(&mut service, &mut context()).is_ready());
            catch_unwind(poll)
        };
        if held.is_some() {
            assert!(!poll_ready().expect("it is lent"));
        }
        panics.store(1, SeqCst);
        drop(held);
        assert!(poll_ready().is_err(), "whose wait has ended");
        assert_eq!(fleet.stats().in_flight, 0);
        assert!(poll_ready().expect("it waits anew"));
        assert!(poll_ready().expect("it is ready"));
        drop(block_on(service.call(1)).unwrap());
    };
    // In its own first attempt; and then asked by whoever returns something.
    panics_when_polled(None);
    let lease = fleet.acquire_owned().unwrap();
    panics_when_polled(Some(lease));
    assert_eq!(fleet.stats().waits.failed, 1);
}

#[test]
fn a_rate_limit_cools_the_resource() {
    let fleet = fleet(2);
    let by_status = |result: Result<&u32, &Infallible>, latency| match result {
        Ok(429) => Outcome::RateLimited { retry_after: Duration::from_secs(60) },
        other => ByResult.classify(other, latency),
    };
    let status = service_fn(|Leased { request, .. }: Request| ready(Ok::<_, Infallible>(request)));
    let mut service = LeaseLayer::new(&fleet).classify(by_status).hold(UntilResponse).layer(status);
    let status = block_on(async { service.ready().await.unwrap().call(429).await });
    assert_eq!(status.unwrap(), 429);
    assert_eq!(fleet.stats().reasons.cooling, 1);
    block_on(async { service.ready().await.unwrap().call(200).await }).unwrap();
    assert_eq!(ends(&fleet), (1, 0, 1, 0));
}

#[test]
fn whoever_keeps_the_lease_keeps_it_beyond_the_response() {
    let fleet = fleet(1);
    let kept: Arc<Mutex<Option<LeaseRef<Resource>>>> = Arc::default();
    let keeper = Arc::clone(&kept);
    let keeps = service_fn(move |Leased { lease, .. }: Request| {
        *keeper.lock().unwrap() = Some(lease);
        ready(Ok::<_, Infallible>(()))
    });
    drop(block_on(LeaseLayer::new(&fleet).layer(keeps).oneshot(1)).unwrap());
    assert_eq!(fleet.stats().in_flight, 1);
    *kept.lock().unwrap() = None;
    assert_eq!(ends(&fleet), (1, 0, 0, 0));
}

/// Ready when told so.
#[derive(Clone, Default)]
struct Gated(Arc<Mutex<Option<Result<(), &'static str>>>>);

impl Service<Request> for Gated {
    type Response = ();
    type Error = io::Error;
    type Future = std::future::Ready<Result<(), io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self.0.lock().unwrap() {
            None => Poll::Pending,
            Some(answer) => Poll::Ready(answer.map_err(io::Error::other)),
        }
    }

    fn call(&mut self, _: Request) -> Self::Future {
        ready(Ok(()))
    }
}

#[test]
fn no_lease_is_taken_before_the_inner_service_is_ready() {
    let fleet = fleet(1);
    let gated = Gated::default();
    let mut service = LeaseLayer::new(&fleet).layer(gated.clone());
    let mut poll_ready = || Service::<u32>::poll_ready(&mut service, &mut context());
    assert!(poll_ready().is_pending());
    assert_eq!(fleet.stats().lent, 0);
    *gated.0.lock().unwrap() = Some(Ok(()));
    assert!(poll_ready().is_ready());
    assert_eq!(fleet.stats().in_flight, 1);
    *gated.0.lock().unwrap() = Some(Err("broken"));
    let Poll::Ready(Err(error)) = poll_ready() else { panic!("it is broken") };
    assert_eq!(error.to_string(), "broken");
    assert_eq!(fleet.stats().in_flight, 0, "given back, although the service is still there");
}

#[test]
fn a_wait_in_vain_fails_the_call_and_not_the_service() {
    let fleet = filled(Scheduler::builder().max_waiters(0).build().unwrap(), 1);
    let mut service = LeaseLayer::new(&fleet).layer(service_fn(echo));
    let lease = fleet.acquire().unwrap();
    let error = block_on(async { service.ready().await.expect("usable").call(1).await }).unwrap_err();
    assert_eq!(*error.downcast::<WaitError>().unwrap(), WaitError::QueueFull { waiting: 0, max: 0 });
    drop(lease);
    assert!(block_on(async { service.ready().await.unwrap().call(1).await }).is_ok());

    fleet.close();
    let error = block_on(async { service.ready().await.map(drop) }).unwrap_err();
    assert_eq!(*error.downcast::<WaitError>().unwrap(), WaitError::Closed);
}

#[test]
fn a_request_may_say_what_it_wants() {
    let fleet = fleet(3);
    let last = LeaseLayer::requesting(&fleet, |fleet| fleet.request().key(&2).owned());
    let mut service = last.layer(service_fn(echo));
    let response = block_on(async { service.ready().await.unwrap().call(1).await }).unwrap();
    assert_eq!(response.1, 2);
    drop(response);
    // Looked up for each call.
    fleet.remove(&2).unwrap();
    let error = block_on(async { service.ready().await.unwrap().call(1).await }).unwrap_err();
    assert_eq!(*error.downcast::<WaitError>().unwrap(), WaitError::NotFound);
}

/// A lease that is held too long is told of with a place that the operator knows, and may be taken back during the call.
#[test]
fn an_overdue_lease_is_that_of_whoever_made_the_layer() {
    let clock = Arc::new(ManualClock::new());
    let builder = Scheduler::builder().clock(Arc::clone(&clock));
    let fleet = filled(builder.max_hold(Duration::from_secs(1)).overdue(Overdue::Revoke).build().unwrap(), 1);
    let best = LeaseLayer::new(&fleet);
    let asked = LeaseLayer::requesting(&fleet, |fleet| fleet.acquire_async_owned());
    let lines = [line!() - 2, line!() - 1];
    for (layer, line) in [best, asked].into_iter().zip(lines) {
        let mut service = layer.layer(service_fn(echo));
        let response = block_on(async { service.ready().await.unwrap().call(1).await.unwrap() });
        let leases = fleet.leases();
        assert_eq!((leases[0].call_site.file(), leases[0].call_site.line()), (file!(), line));
        clock.advance(Duration::from_secs(1));
        assert_eq!(fleet.overdue().len(), 1);
        assert!(response.lease().is_revoked());
        let other = fleet.acquire().unwrap();
        // The late return touches nothing; its outcome is not counted.
        drop(response);
        assert!(fleet.acquire().is_err());
        drop(other);
        assert_eq!(ends(&fleet), (0, 0, 0, 0));
    }
}

/// Between readiness and the call a lease is taken back: the inner service is not called with it.
#[test]
fn a_lease_that_was_taken_back_is_not_used() {
    let clock = Arc::new(ManualClock::new());
    let builder = Scheduler::builder().shards(1).clock(Arc::clone(&clock));
    let fleet = filled(builder.max_hold(Duration::from_secs(1)).overdue(Overdue::Revoke).build().unwrap(), 1);
    let calls = Arc::new(AtomicUsize::new(0));
    let inner = service_fn({
        let calls = Arc::clone(&calls);
        move |request| {
            calls.fetch_add(1, SeqCst);
            echo(request)
        }
    });
    let mut service = LeaseLayer::new(&fleet).layer(inner);
    assert!(matches!(service.poll_ready(&mut context()), Poll::Ready(Ok(()))));
    clock.advance(Duration::from_secs(1));
    let other = fleet.acquire().expect("overdue");
    let error = block_on(service.call(1)).unwrap_err();
    assert!(matches!(*error.downcast::<ReleaseError>().unwrap(), ReleaseError::Revoked { .. }));
    assert_eq!(calls.load(SeqCst), 0);
    assert!(service.poll_ready(&mut context()).is_pending());
    drop(other);
    assert!(block_on(async { service.ready().await.unwrap().call(1).await }).is_ok());
    assert_eq!(ends(&fleet), (1, 0, 0, 0));
}

/// What has said that it is ready stays so, with another lease or for a call that fails.
#[test]
fn who_is_ready_stays_ready_when_the_lease_is_taken_back() {
    let clock = Arc::new(ManualClock::new());
    let builder = Scheduler::builder().shards(1).clock(Arc::clone(&clock));
    let fleet = filled(builder.max_hold(Duration::from_secs(1)).overdue(Overdue::Revoke).build().unwrap(), 2);
    let mut service = LeaseLayer::new(&fleet).layer(service_fn(echo));
    let is_ready = |poll: Poll<_>| matches!(poll, Poll::Ready(Ok::<(), leasehold::tower::BoxError>(())));
    for others in [1, 2] {
        assert!(is_ready(Service::<u32>::poll_ready(&mut service, &mut context())));
        clock.advance(Duration::from_secs(1));
        let others: Vec<_> = (0..others).map(|_| fleet.acquire().expect("one is overdue")).collect();
        for _ in 0..2 {
            assert!(is_ready(Service::<u32>::poll_ready(&mut service, &mut context())), "it has said so");
        }
        assert_eq!(block_on(service.call(1)).is_ok(), others.len() == 1);
        drop(others);
    }
    assert_eq!(fleet.stats().in_flight, 0);
}

/// The clock fails while a panic goes on: the lease is returned, and the process lives.
#[test]
fn a_clock_that_fails_in_a_drop_ends_no_process() {
    struct Fails(ManualClock, AtomicBool);
    impl Clock for Fails {
        fn now(&self) -> Timestamp {
            assert!(!self.1.load(SeqCst), "planted");
            self.0.now()
        }
    }
    let clock = Arc::new(Fails(ManualClock::new(), AtomicBool::new(false)));
    let rules = leasehold::Ejection::default();
    let fleet = filled(Scheduler::builder().clock(Arc::clone(&clock)).ejection(rules).build().unwrap(), 1);
    let response = block_on(LeaseLayer::new(&fleet).layer(service_fn(echo)).oneshot(1)).unwrap();
    clock.1.store(true, SeqCst);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _held = response;
        panic!("on");
    }));
    assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&"on"));
    clock.1.store(false, SeqCst);
    assert_eq!(fleet.stats().in_flight, 0);
}

/// Counts those who work at the same time.
struct Working(Arc<AtomicUsize>);

impl Working {
    fn begin(working: Arc<AtomicUsize>, most: &AtomicUsize) -> Self {
        most.fetch_max(working.fetch_add(1, SeqCst) + 1, SeqCst);
        Working(working)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[test]
fn many_clones_never_use_more_than_there_is() {
    const CALLS: usize = 400;
    let fleet = fleet(3);
    let (working, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let work = service_fn({
        let (working, most) = (Arc::clone(&working), Arc::clone(&most));
        move |Leased { request, lease }: Request| {
            let (working, most) = (Arc::clone(&working), Arc::clone(&most));
            async move {
                // Dropped before the lease, also if the call is given up.
                let _lease = lease;
                let _working = Working::begin(working, &most);
                tokio::task::yield_now().await;
                if request.is_multiple_of(4) { Err(io::Error::other("a quarter")) } else { Ok(request) }
            }
        }
    });
    let service = LeaseLayer::new(&fleet).layer(work);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let failed = runtime.block_on(async {
        // The response goes in the task: kept in its handle it would hold its lease until somebody has asked for it.
        let service = service.map_response(drop);
        let calls: Vec<_> = (0..CALLS).map(|i| tokio::spawn(service.clone().oneshot(i as u32))).collect();
        let mut failed = 0;
        for (i, call) in calls.into_iter().enumerate() {
            // Some give up, whether they wait, work or are done.
            if i % 10 == 5 {
                call.abort();
            }
            failed += usize::from(call.await.is_ok_and(|answer| answer.is_err()));
        }
        failed
    });
    drop(runtime);
    assert!(most.load(SeqCst) <= 3);
    assert_eq!(failed, CALLS / 4);
    let stats = fleet.stats();
    assert_eq!((stats.in_flight, stats.failed), (0, CALLS as u64 / 4));
    assert!(stats.succeeded >= (CALLS - CALLS / 4 - CALLS / 10) as u64);
    let waits = stats.waits;
    assert_eq!(waits.waited, waits.handed_off + waits.cancelled);
}

#[test]
fn a_service_that_never_answers_holds_its_lease_as_long_as_it_is_called() {
    let fleet = fleet(1);
    let silent = service_fn(|_: Request| pending::<Result<(), Infallible>>());
    let mut service = LeaseLayer::new(&fleet).layer(silent);
    block_on(async { service.ready().await.map(drop) }).unwrap();
    let mut call = service.call(1);
    assert!(poll(&mut call).is_pending());
    drop(service);
    assert_eq!(fleet.stats().in_flight, 1);
    drop(call);
    assert_eq!(ends(&fleet), (0, 0, 0, 1));
}

/// A permit of the inner service that was reserved for a call which is refused is free again after it.
#[test]
fn a_refused_call_keeps_nothing_of_the_inner_service() {
    let clock = Arc::new(ManualClock::new());
    let fleet = filled(Scheduler::builder().shards(1).clock(Arc::clone(&clock)).build().unwrap(), 1);
    let leased = fleet.acquire_owned().unwrap();
    let layer =
        LeaseLayer::requesting(&fleet, |fleet| fleet.request().timeout(Duration::from_millis(1)).owned());
    let mut first = layer.layer(ConcurrencyLimitLayer::new(1).layer(service_fn(echo)));
    let mut second = first.clone();
    assert!(Service::<u32>::poll_ready(&mut first, &mut context()).is_pending());
    clock.advance(Duration::from_millis(1));
    assert!(Service::<u32>::poll_ready(&mut first, &mut context()).is_ready());
    assert!(Service::<u32>::poll_ready(&mut first, &mut context()).is_ready(), "the answer is kept");
    let refused = block_on(first.call(1)).unwrap_err();
    assert!(matches!(refused.downcast_ref(), Some(WaitError::TimedOut { .. })));
    drop(leased);
    assert!(Service::<u32>::poll_ready(&mut second, &mut context()).is_ready(), "nobody uses the permit");
    drop(block_on(second.call(2)).unwrap());
    drop(first);
}

/// Who is made ready and then put aside for too long does not call with a lease that is somebody else's.
#[test]
fn a_lease_that_is_taken_back_before_the_call_is_asked_for_anew() {
    let clock = Arc::new(ManualClock::new());
    let builder = Scheduler::builder().shards(1).clock(Arc::clone(&clock));
    let builder = builder.max_hold(Duration::from_secs(1)).overdue(Overdue::Revoke);
    let fleet = filled(builder.build().unwrap(), 1);
    let mut service = LeaseLayer::new(&fleet).layer(service_fn(echo));
    assert!(Service::<u32>::poll_ready(&mut service, &mut context()).is_ready());
    clock.advance(Duration::from_secs(1));
    let other = fleet.acquire_owned().unwrap();
    assert!(Service::<u32>::poll_ready(&mut service, &mut context()).is_ready(), "it has said so");
    let error = block_on(service.call(1)).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(ReleaseError::Revoked { .. })), "it is somebody else's");
    assert!(Service::<u32>::poll_ready(&mut service, &mut context()).is_pending());
    drop(other);
    assert!(Service::<u32>::poll_ready(&mut service, &mut context()).is_ready());
    drop(block_on(service.call(1)).unwrap());
}
