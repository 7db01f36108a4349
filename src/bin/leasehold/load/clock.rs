//! The run's time: nanoseconds since its beginning, and the word that it is over.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::scenario::Driver;

/// One for the whole run: moments of all rounds can be compared.
pub struct Clock {
    origin: Instant,
}

impl Clock {
    pub fn new() -> Self {
        Clock { origin: Instant::now() }
    }

    pub fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    fn instant(&self, moment: u64) -> Instant {
        self.origin + Duration::from_nanos(moment)
    }
}

/// Ends a round: everybody who sleeps wakes, and nobody begins anything new.
pub struct Stop {
    flag: AtomicBool,
    tasks: watch::Sender<bool>,
}

/// Threads look at the flag at least so often. Less often than that nobody is told to stop, so this wakes nobody in
/// vain who sleeps for a usual time.
const SLICE: Duration = Duration::from_millis(50);

impl Stop {
    pub fn new() -> Self {
        Stop { flag: AtomicBool::new(false), tasks: watch::Sender::new(false) }
    }

    pub fn set(&self) {
        // Relaxed: says nothing about other memory; what is counted is read after the workers were joined.
        self.flag.store(true, Ordering::Relaxed);
        self.tasks.send_replace(true);
    }

    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// What a task waits for, or `None` if the end of the round came first; what was asked for is then dropped.
    pub async fn unless_set<T>(&self, asks: impl Future<Output = T>) -> Option<T> {
        let mut asks = pin!(asks);
        // Most have their answer at once, and need not look for the end.
        let first = poll_fn(|context| {
            Poll::Ready(match asks.as_mut().poll(context) {
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => None,
            })
        });
        if let Some(answer) = first.await {
            return Some(answer);
        }
        let mut stopped = self.tasks.subscribe();
        tokio::select! {
            biased;
            answer = asks => Some(answer),
            _ = stopped.wait_for(|stopped| *stopped) => None,
        }
    }

    /// Sleeps until then. `false` if the end of the round came first.
    ///
    /// Tasks are woken by tokio's timer, whose ticks are a millisecond: a shorter sleep is rounded up.
    pub async fn sleep_until(&self, driver: Driver, clock: &Clock, moment: u64) -> bool {
        if clock.now() >= moment {
            return !self.is_set();
        }
        match driver {
            Driver::Threads => loop {
                let left = moment.saturating_sub(clock.now());
                if left == 0 || self.is_set() {
                    return !self.is_set();
                }
                thread::sleep(Duration::from_nanos(left).min(SLICE));
            },
            Driver::Tasks | Driver::Pool => {
                let mut stopped = self.tasks.subscribe();
                tokio::select! {
                    biased;
                    _ = stopped.wait_for(|stopped| *stopped) => false,
                    () = tokio::time::sleep_until(clock.instant(moment).into()) => !self.is_set(),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_waits_sees_the_end() {
        let stop = Stop::new();
        assert_eq!(stop.unless_set(async { 7 }).await, Some(7));
        let waits = stop.unless_set(std::future::pending::<()>());
        let ends = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            stop.set();
        };
        let (answer, ()) = tokio::join!(waits, ends);
        assert_eq!(answer, None);
        // An answer that is there counts, whatever else is over.
        assert_eq!(stop.unless_set(async { 8 }).await, Some(8));
    }
}
