//! Tokio's time as timer and clock.

use std::time::Duration;

use ::tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};

use crate::{Clock, Timer, Timestamp};

/// A [`Timer`] that is a tokio runtime, and a [`Clock`] that is its time.
///
/// Each call is a task of that runtime, which sleeps until then: the scheduler asks for another one only if something is due
/// earlier than all that it has asked for ([`Timer::call_after`]). When the runtime shuts down, so does the timer.
///
/// As a clock it is worth its price (it enters the runtime for each reading) only where tokio's time is not the machine's: in a test
/// with paused time, timer and clock must be of one kind.
///
/// ```
/// use leasehold::{Entry, Scheduler, TokioTimer};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let scheduler = Scheduler::<Entry<u32, u32, ()>>::builder().timer(TokioTimer::current()).build()?;
/// scheduler.insert(Entry::new(1, 0, ()))?;
/// scheduler.cool(&1, Duration::from_millis(20))?;
/// // Nobody else is there to notice that it is warm again.
/// let lease = scheduler.acquire_async().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TokioTimer {
    runtime: Handle,
    origin: Instant,
}

impl TokioTimer {
    /// On this runtime.
    ///
    /// # Panics
    /// If the runtime was built without time.
    pub fn new(runtime: Handle) -> Self {
        let origin = {
            let _entered = runtime.enter();
            // Panics here, not in a task where nobody hears it.
            drop(sleep(Duration::ZERO));
            Instant::now()
        };
        TokioTimer { runtime, origin }
    }

    /// On the runtime that the caller runs in.
    ///
    /// # Panics
    /// Outside of a runtime, or if it was built without time.
    pub fn current() -> Self {
        Self::new(Handle::current())
    }
}

impl Timer for TokioTimer {
    fn call_after(&self, after: Duration, call: Box<dyn FnOnce() + Send>) {
        let _task = self.runtime.spawn(async move {
            sleep(after).await;
            call();
        });
    }
}

impl Clock for TokioTimer {
    fn now(&self) -> Timestamp {
        // Paused time is the runtime's own.
        let _entered = self.runtime.enter();
        Timestamp::ZERO.saturating_add(self.origin.elapsed())
    }
}
