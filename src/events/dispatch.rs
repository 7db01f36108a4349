//! The threads that call observers: one for each, none without.
//!
//! ```text
//! dispatcher                                     closer
//!   T1  read the phase                             C1  the Closed event
//!   T2  pump                                       C2  phase := flush or discard; wake sleepers
//!   T3  read batches, call the observer;           C3  join, unless it is a dispatcher itself
//!       before each call: discard? then end
//!   T4  T1 was flush: end
//!   T5  sleep; T1
//! ```
//!
//! What was complete before C2 is delivered by a flush: the T2 after a T1 that reads it waits for its turn and takes everything out. C3
//! makes it certain that nobody is called after the closing.
//!
//! Nobody wakes a dispatcher when there is an event: that would be a system call in the midst of somebody's return. It looks every
//! [`PACE`] while there is something, and less often the longer there is nothing, at least every [`IDLE`]. So what is full stays full
//! for so long, and a ring's capacity should be what its shard does in that time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::{
    cell::Cell,
    ptr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{Closing, Hub, ObserveError, Observer, Reader, hub::News};
use crate::{node::quietly, resource::Resource};

/// How often a dispatcher looks while there are events.
const PACE: Duration = Duration::from_micros(500);
/// How seldom it looks at least.
const IDLE: Duration = Duration::from_millis(16);

thread_local! {
    /// Whose dispatcher the running thread is, if it is one: an address, only to be compared.
    static SERVES: Cell<*const Shared> = const { Cell::new(ptr::null()) };
}

/// The dispatchers of one scheduler.
#[derive(Debug, Default)]
pub struct Dispatchers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held while they are waited for, so that whoever else closes waits too.
    joining: Mutex<()>,
}

#[derive(Debug, Default)]
struct Shared {
    closing: Mutex<Option<Closing>>,
    closed: Condvar,
}

impl Shared {
    fn phase(&self) -> MutexGuard<'_, Option<Closing>> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn discards(&self) -> bool {
        *self.phase() == Some(Closing::Discard)
    }

    /// T5. Ends early if somebody closes.
    fn sleep(&self, pause: Duration) {
        let phase = self.phase();
        if phase.is_none() {
            drop(self.closed.wait_timeout(phase, pause));
        }
    }

    fn run<R: Resource>(&self, hub: &Hub<R>, mut reader: Reader<R>, mut observer: Box<dyn Observer<R::Key>>) {
        SERVES.set(self);
        let mut pause = PACE;
        loop {
            let phase = *self.phase();
            if phase == Some(Closing::Discard) {
                break;
            }
            // After C2 everything must come out; before, another one's turn is as good.
            hub.pump(phase.is_some());
            let mut had_some = false;
            while self.deliver(hub, &mut reader, &mut *observer) {
                had_some = true;
            }
            if phase.is_some() {
                break;
            }
            pause = if had_some { PACE } else { (2 * pause).min(IDLE) };
            self.sleep(pause);
        }
        // User code, both.
        let _ = quietly(|| drop(observer));
        let _ = quietly(|| drop(reader));
    }

    /// One batch. Answers whether there may be more.
    fn deliver<R: Resource>(
        &self,
        hub: &Hub<R>,
        reader: &mut Reader<R>,
        observer: &mut dyn Observer<R::Key>,
    ) -> bool {
        let read = quietly(|| {
            reader.read(|news| {
                if self.discards() {
                    return false;
                }
                let told = quietly(|| match news {
                    News::Event(event) => observer.on_event(event),
                    News::Dropped(dropped) => observer.on_drop(dropped),
                });
                if told.is_none() {
                    hub.saw_panic();
                }
                true
            })
        });
        // `None`: the `Drop` of a key has panicked.
        read.unwrap_or(true) && !self.discards()
    }
}

impl Dispatchers {
    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread for an observer. `from`: as for [`Hub::reader`].
    pub fn start<R: Resource>(
        &self,
        hub: &Arc<Hub<R>>,
        from: Option<u64>,
        observer: Box<dyn Observer<R::Key>>,
    ) -> Result<(), ObserveError> {
        let mut threads = self.threads();
        if self.shared.phase().is_some() {
            return Err(ObserveError::Closed);
        }
        let reader = Hub::reader(hub, from);
        let (shared, hub) = (Arc::clone(&self.shared), Arc::clone(hub));
        let number = threads.len();
        let thread = thread::Builder::new()
            .name(format!("leasehold-observer-{number}"))
            .spawn(move || shared.run(&hub, reader, observer))
            .map_err(ObserveError::Thread)?;
        threads.push(thread);
        Ok(())
    }

    /// C2 and C3. A second call waits as well, unless it is made by an observer.
    pub fn stop(&self, closing: Closing) {
        {
            let mut phase = self.shared.phase();
            // A flush may be cut short, a discard is final.
            if *phase != Some(Closing::Discard) {
                *phase = Some(closing);
            }
        }
        self.shared.closed.notify_all();
        if ptr::eq(SERVES.get(), &*self.shared) {
            // One of them cannot wait for itself, and is not called again.
            return;
        }
        let _joining = self.joining.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = std::mem::take(&mut *self.threads());
        for thread in threads {
            // It has caught every panic but its own.
            let _ = thread.join();
        }
    }
}

impl Drop for Dispatchers {
    fn drop(&mut self) {
        self.stop(Closing::Discard);
    }
}
