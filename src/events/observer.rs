//! What an observer is, and what it is told.

use std::{error::Error, fmt, io};

use super::Event;

/// Told of events, in a thread of its own.
///
/// # Order and loss
/// The events of one shard come in the order of the transitions, each at most once. What is missing in between is told by
/// [`on_drop`](Observer::on_drop), before the event that follows it.
///
/// A resource has one shard for life, so its events are in order. One that is removed and inserted again may get another shard, and be told
/// of in another order: see [`Event::membership`].
///
/// # Callbacks
/// Every observer has a thread and an inbox of its own: a slow one delays neither the scheduler nor other observers. It may call the
/// scheduler, in any way. It should not own it: hold a [`Weak`](std::sync::Weak), or the scheduler lives until it is closed. A panic
/// is caught and counted ([`Stats::observer_panics`](crate::Stats::observer_panics)); the observer is then told of the next event.
///
/// It may close its own scheduler, whose threads then do not wait for each other. Closing another one waits for that one's observers: two
/// schedulers whose observers close each other wait for ever. Let one of them be closed by another thread, or with a channel to one.
///
/// A closure that takes an event is an observer.
///
/// ```
/// use leasehold::{Dropped, Entry, Event, Observer, Scheduler};
/// use std::sync::mpsc;
///
/// struct Printer(mpsc::Sender<String>);
/// impl Observer<u8> for Printer {
///     fn on_event(&mut self, event: &Event<u8>) {
///         let _ = self.0.send(format!("{} {:?}", event.kind.name(), event.key));
///     }
///     fn on_drop(&mut self, dropped: Dropped) {
///         let _ = self.0.send(format!("{} lost", dropped.count));
///     }
/// }
///
/// let (sender, lines) = mpsc::channel();
/// let scheduler = Scheduler::<Entry<u8, u32, ()>>::builder().observer(Printer(sender)).build()?;
/// scheduler.insert(Entry::new(1, 0, ()))?;
/// scheduler.close();
/// let lines: Vec<_> = lines.iter().collect();
/// assert_eq!(lines, ["inserted Some(1)", "closed None"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// An observer belongs to its scheduler from [`Builder::observer`](crate::Builder::observer) on; nobody can exchange it, or keep a hand on
/// it. This is compiled:
///
/// ```
/// use leasehold::{Entry, Event, Observer, Scheduler};
///
/// struct Counter(u64);
/// impl Observer<u8> for Counter {
///     fn on_event(&mut self, _: &Event<u8>) {
///         self.0 += 1;
///     }
/// }
///
/// let mut mine = Counter(0);
/// let kept = &mut mine;
/// let scheduler = Scheduler::<Entry<u8, u32, ()>>::builder().observer(mine).build().unwrap();
/// ```
///
/// And with one line more, that uses what was kept, it is not:
///
/// ```compile_fail,E0505
/// use leasehold::{Entry, Event, Observer, Scheduler};
///
/// struct Counter(u64);
/// impl Observer<u8> for Counter {
///     fn on_event(&mut self, _: &Event<u8>) {
///         self.0 += 1;
///     }
/// }
///
/// let mut mine = Counter(0);
/// let kept = &mut mine;
/// let scheduler = Scheduler::<Entry<u8, u32, ()>>::builder().observer(mine).build().unwrap();
/// kept.0 = 7;
/// ```
pub trait Observer<K>: Send {
    /// Something has happened.
    fn on_event(&mut self, event: &Event<K>);

    /// Events have found no room, in the shard's ring or in this observer's inbox, or their key's `Clone` has panicked: this observer
    /// will not be told of them. Default: does nothing.
    fn on_drop(&mut self, dropped: Dropped) {
        let _ = dropped;
    }
}

impl<K, F: FnMut(&Event<K>) + Send> Observer<K> for F {
    fn on_event(&mut self, event: &Event<K>) {
        self(event);
    }
}

/// Events that an observer is not told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Dropped {
    /// The shard, as in [`Event::shard`].
    pub shard: u32,
    /// The sequence number of the first of them.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// What happens to events that have not been delivered when the scheduler is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Closing {
    /// Observers are told of everything that has happened before, and of what was dropped of it, however long they take. An event that a
    /// thread is still recording, because its key's `Clone` has not come back, is waited for, for about a second; then it and what is
    /// behind it in its shard is told as dropped, and stays for [`take_events`](crate::Scheduler::take_events).
    #[default]
    Flush,
    /// Each finishes the event it is at, and is told of nothing more. What dropping a scheduler does that was not closed.
    Discard,
}

/// Why there is no further observer.
#[derive(Debug)]
#[non_exhaustive]
pub enum ObserveError {
    /// The scheduler is closed.
    Closed,
    /// There are no events: [`Builder::event_capacity`](crate::Builder::event_capacity) was 0, and no observer was given to the builder.
    NoEvents,
    /// The system starts no thread.
    Thread(io::Error),
}

impl fmt::Display for ObserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObserveError::Closed => f.write_str("the scheduler is closed"),
            ObserveError::NoEvents => f.write_str("the scheduler was built without room for events"),
            ObserveError::Thread(error) => write!(f, "no thread could be started: {error}"),
        }
    }
}

impl Error for ObserveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ObserveError::Thread(error) => Some(error),
            _ => None,
        }
    }
}
