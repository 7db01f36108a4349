//! A lease for the life of a body.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::ready,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_lite::future::block_on;
use http::Response;
use http_body::{Body, Frame};
use leasehold::{
    Outcome,
    tower::{ByResult, Classify, LeaseLayer, WithBody},
};
use tower::{Layer, ServiceExt, service_fn};

use super::{Fleet, Request, Resource, context, ends, fleet};

type Frames = VecDeque<Result<Frame<Bytes>, &'static str>>;

/// Frames that are there at once, then the end; it may know when that is. A frame of trailers stands for one that is not there yet, and "panic" is one.
struct Chunks {
    frames: Frames,
    knows_its_end: bool,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        match self.frames.pop_front() {
            Some(Ok(frame)) if frame.is_trailers() => Poll::Pending,
            Some(Err("panic")) => panic!("planted"),
            frame => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.knows_its_end && self.frames.is_empty()
    }
}

type Held = Response<leasehold::tower::HeldBody<Chunks, Resource>>;

fn data() -> Result<Frame<Bytes>, &'static str> {
    Ok(Frame::data(Bytes::from_static(b"data")))
}

/// The response of a service that answers with this body, by status.
fn streamed(fleet: &Fleet, status: u16, frames: Frames, knows_its_end: bool) -> Held {
    let by_status = |result: Result<&Response<Chunks>, &Infallible>, latency| match result {
        Ok(response) if response.status() == 429 => {
            Outcome::RateLimited { retry_after: Duration::from_secs(60) }
        }
        other => ByResult.classify(other, latency),
    };
    let body = Arc::new(Mutex::new(Some(Chunks { frames, knows_its_end })));
    let answers = service_fn(move |_: Request| {
        let body = body.lock().unwrap().take().expect("called once");
        ready(Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap()))
    });
    let layer = LeaseLayer::new(fleet).hold(WithBody).classify(by_status);
    block_on(layer.layer(answers).oneshot(1)).unwrap()
}

fn next(response: &mut Held) -> Option<Result<Frame<Bytes>, &'static str>> {
    match Pin::new(response.body_mut()).poll_frame(&mut context()) {
        Poll::Ready(frame) => frame,
        Poll::Pending => panic!("all frames are there"),
    }
}

#[test]
fn a_body_holds_the_lease_until_its_end() {
    let fleet = fleet(1);
    let mut response = streamed(&fleet, 200, [data(), data()].into(), false);
    for _ in 0..2 {
        assert!(next(&mut response).is_some_and(|frame| frame.is_ok()));
        assert_eq!(fleet.stats().in_flight, 1, "it does not know yet that this was the last");
    }
    assert!(next(&mut response).is_none());
    assert_eq!(ends(&fleet), (1, 0, 0, 0));
    drop(response);
    assert_eq!(ends(&fleet), (1, 0, 0, 0));
}

/// One that comes bit by bit holds its lease in between.
#[test]
fn a_body_that_is_not_there_yet_holds_the_lease() {
    let fleet = fleet(1);
    let not_yet = || Ok(Frame::trailers(http::HeaderMap::new()));
    let mut response = streamed(&fleet, 200, [not_yet(), data(), not_yet()].into(), false);
    let mut poll = || Pin::new(response.body_mut()).poll_frame(&mut context()).is_pending();
    for is_pending in [true, false, true] {
        assert_eq!(poll(), is_pending);
        assert_eq!(fleet.stats().in_flight, 1);
    }
    assert!(!poll());
    assert_eq!(ends(&fleet), (1, 0, 0, 0));
}

/// It was not given up, it went wrong.
#[test]
fn a_body_that_panics_counts_against_the_resource() {
    let fleet = fleet(1);
    let mut response = streamed(&fleet, 200, [data(), Err("panic")].into(), false);
    assert!(next(&mut response).is_some());
    assert!(catch_unwind(AssertUnwindSafe(|| next(&mut response))).is_err());
    drop(response);
    assert_eq!(ends(&fleet), (0, 1, 0, 0));
}

#[test]
fn a_body_that_knows_its_end_returns_the_lease_with_its_last_frame() {
    let fleet = fleet(1);
    let mut response = streamed(&fleet, 200, [data(), data()].into(), true);
    assert!(next(&mut response).is_some());
    assert_eq!(fleet.stats().in_flight, 1);
    assert!(next(&mut response).is_some());
    assert_eq!(ends(&fleet), (1, 0, 0, 0));
    assert!(response.body().is_end_stream());
    // An empty one holds nothing.
    let response = streamed(&fleet, 204, Frames::new(), true);
    assert_eq!(ends(&fleet), (2, 0, 0, 0));
    drop(response);
}

#[test]
fn a_body_that_fails_or_is_dropped_early_says_so() {
    let fleet = fleet(1);
    let mut response = streamed(&fleet, 200, [data(), Err("reset"), data()].into(), false);
    assert!(next(&mut response).is_some());
    assert_eq!(next(&mut response).unwrap().unwrap_err(), "reset");
    assert_eq!(ends(&fleet), (0, 1, 0, 0), "at the failure, not at the drop");
    drop(response);
    drop(streamed(&fleet, 200, [data()].into(), false));
    assert_eq!(ends(&fleet), (0, 1, 0, 1));
    // What the head said stands.
    drop(streamed(&fleet, 429, [data()].into(), false));
    assert_eq!(ends(&fleet), (0, 1, 1, 1));
}
