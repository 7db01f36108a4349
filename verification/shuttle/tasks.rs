//! What the stories about waiting have in common.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use leasehold::internals::sync::{Arc, SplitMix64, thread};
use shuttle::rand::{Rng, thread_rng};

use crate::driver::Fleet;

/// A thread of the story, with random numbers of its own.
pub fn spawn<T: Send + 'static>(
    fleet: &Arc<Fleet>,
    work: impl FnOnce(&Fleet, &mut SplitMix64) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let fleet = Arc::clone(fleet);
    let mut random = SplitMix64::new(thread_rng().r#gen());
    thread::spawn(move || work(&fleet, &mut random))
}

/// Polls a few times, and gives up.
pub fn try_for<F: Future>(future: F, times: u32) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..times {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(output);
        }
        thread::yield_now();
    }
    None
}

/// Every wait has ended once.
pub fn waits_have_ended(fleet: &Fleet) {
    let waits = fleet.scheduler.stats().waits;
    let ended = waits.handed_off + waits.timed_out + waits.cancelled + waits.failed + waits.closed;
    assert_eq!(waits.waited, ended, "every wait has ended once");
    assert_eq!(waits.histogram.iter().sum::<u64>(), waits.handed_off, "each length is counted");
}
