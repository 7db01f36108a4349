//! The threads that call observers: one for each, none without. Not one for all: an observer may hang, and a thread that hangs in one
//! callback calls nobody else. With one observer there is one.
//!
//! ```text
//! each dispatcher, in a loop
//!   D1  read the phase; discard: end
//!   D2  pump: T1 of `flush`, if the phase is flush
//!   D3  read batches, call the observer; before each call: discard? then end
//!   D4  the phase is open: sleep
//!       the phase is flush: end if T2 says so, or after T3; otherwise a short sleep, and D1
//! closer, after C3 of `flush` or without it
//!   C4  phase := flush or discard; wake sleepers; join, unless it is a dispatcher itself
//! ```
//!
//! What is below the mark of C3 is told. The join makes it certain that nobody is called after the closing. Only the first closer says
//! flush: a second one, which may come before C3, waits for it.
//!
//! Nobody wakes a dispatcher when there is an event: that would be a system call in the midst of somebody's return. It looks every
//! [`PACE`] while there is something, and less often the longer there is nothing, at least every [`IDLE`]. Who finds a ring more than half
//! full looks again at once, and more often from then on, every [`HASTE`] in the end, until rings are emptier. So what is full stays
//! full for so long, and a ring's capacity should be what its shard does in that time.
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
/// How often it does if rings would be full by then: about the shortest sleep that a system knows.
const HASTE: Duration = Duration::from_micros(50);
/// How many times a flush looks again, [`PACE`] apart, after events that do not come: about a second.
const PATIENCE: u32 = 2_000;
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

    /// D4. Ends early if the phase is not, or does not stay, what it was.
    fn sleep(&self, was: Option<Closing>, pause: Duration) {
        let phase = self.phase();
        if *phase == was {
            drop(self.closed.wait_timeout(phase, pause));
        }
    }

    fn run<R: Resource>(&self, hub: &Hub<R>, mut reader: Reader<R>, mut observer: Box<dyn Observer<R::Key>>) {
        SERVES.set(self);
        let (mut pace, mut pause) = (PACE, PACE);
        let mut patience = PATIENCE;
        loop {
            let phase = *self.phase();
            if phase == Some(Closing::Discard) {
                break;
            }
            // In a flush everything must come out; before, another one's turn is as good.
            let has_more = hub.pump(phase.is_some());
            let mut had_some = false;
            while self.deliver(hub, &mut reader, &mut *observer) {
                had_some = true;
            }
            if phase.is_some() {
                if reader.is_through() {
                    break;
                }
                if patience == 0 {
                    reader.give_up(|news| self.tell(hub, &mut *observer, news));
                    break;
                }
                if !had_some {
                    patience -= 1;
                    self.sleep(phase, PACE);
                }
                continue;
            }
            pace = paced(pace, has_more);
            if has_more {
                continue;
            }
            pause = if had_some { pace } else { (2 * pause).min(IDLE) };
            self.sleep(phase, pause);
        }
        // User code, both.
        let _ = quietly(|| drop(observer));
        let _ = quietly(|| drop(reader));
    }

    /// D3, one call. Answers whether to go on.
    fn tell<R: Resource>(
        &self,
        hub: &Hub<R>,
        observer: &mut dyn Observer<R::Key>,
        news: News<'_, R::Key>,
    ) -> bool {
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
    }

    /// One batch. Answers whether there may be more.
    fn deliver<R: Resource>(
        &self,
        hub: &Hub<R>,
        reader: &mut Reader<R>,
        observer: &mut dyn Observer<R::Key>,
    ) -> bool {
        let read = quietly(|| reader.read(|news| self.tell(hub, observer, news)));
        // `None`: the `Drop` of a key has panicked.
        read.unwrap_or(true) && !self.discards()
    }
}

/// How often to look from now on, after rings were found to be fuller than they should be, or not.
fn paced(pace: Duration, has_more: bool) -> Duration {
    // Faster at once, slower by and by: it has to be seen whether that is enough.
    if has_more { (pace / 2).max(HASTE) } else { (pace + pace / 16).min(PACE) }
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

    /// C4. A second call waits as well, unless it is made by an observer. `is_first`: nobody has closed before; if it flushes, C3 is done.
    pub fn stop(&self, closing: Closing, is_first: bool) {
        {
            let mut phase = self.shared.phase();
            // A flush may be cut short, a discard is final; and one who comes later does not know whether C3 is done.
            if *phase != Some(Closing::Discard) && (is_first || closing == Closing::Discard) {
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
        self.stop(Closing::Discard, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_rings_are_looked_at_more_often() {
        assert_eq!(paced(PACE, true), PACE / 2);
        assert_eq!(paced(HASTE, false), HASTE + HASTE / 16);
        let mut pace = PACE;
        (0..4).for_each(|_| pace = paced(pace, true));
        assert_eq!(pace, HASTE);
        (0..20).for_each(|_| pace = paced(pace, false));
        assert!(pace > HASTE && pace < PACE, "not all at once: {pace:?}");
        (0..40).for_each(|_| pace = paced(pace, false));
        assert_eq!(pace, PACE);
    }
}
