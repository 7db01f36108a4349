//! What is due at which moment: ejections that end, ramps that go on.

use std::{collections::BTreeMap, sync::PoisonError};

use crate::{
    lookup::Keyed,
    node::Node,
    resource::Resource,
    scheduler::wait::Named,
    shard::NEVER,
    sync::{
        CachePadded, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// The ejection that ends at this moment.
    Readmit,
    /// The ramp that began at this moment goes on.
    Ramp(u64),
}

/// By moment, then by the key's hash, which is the same in every run of a simulation, then by the resource's address. One resource may
/// have a ramp that has gone stale and an ejection at the same moment.
type Due<R> = BTreeMap<(u64, u64, usize, Task), Named<R>>;

fn entry<R: Resource>(moment: u64, named: &Named<R>, task: Task) -> (u64, u64, usize, Task) {
    (moment, named.node().hash(), named.address(), task)
}

/// Every resource in it is pinned; whoever takes an entry out unpins it.
pub struct Book<R: Resource> {
    due: Mutex<Due<R>>,
    /// The first moment. Written with the mutex held.
    earliest: CachePadded<AtomicU64>,
}

impl<R: Resource> Book<R> {
    pub fn new() -> Self {
        Book { due: Mutex::new(BTreeMap::new()), earliest: CachePadded::new(AtomicU64::new(NEVER)) }
    }

    fn lock(&self) -> MutexGuard<'_, Due<R>> {
        // Nothing that can panic in the middle of a change runs under it.
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, due: &Due<R>) {
        let earliest = due.first_key_value().map_or(NEVER, |(&(moment, ..), _)| moment);
        // Relaxed: `Core::note` orders it, as it orders the faces' deadlines; and for one who waits, the mutex (`first_moment`).
        self.earliest.store(earliest, Ordering::Relaxed);
    }

    /// When the first entry is due; [`NEVER`] if there is none.
    pub fn earliest(&self) -> u64 {
        self.earliest.load(Ordering::Relaxed)
    }

    /// As [`earliest`](Self::earliest), asked under the mutex: whoever enters something later finds whoever had a place in the queue before he
    /// asked; and what was entered earlier is found here.
    pub fn first_moment(&self) -> u64 {
        let _due = self.lock();
        self.earliest()
    }

    /// Enters something. The resource is pinned, and the pin is the book's now. Answers the pin of an entry that it replaces.
    pub fn enter(&self, moment: u64, named: Named<R>, task: Task) -> Option<Named<R>> {
        let mut due = self.lock();
        let old = due.insert(entry(moment, &named, task), named);
        self.publish(&due);
        old
    }

    /// Takes out what was entered with the same words.
    pub fn strike(&self, moment: u64, named: Named<R>, task: Task) -> Option<Named<R>> {
        let mut due = self.lock();
        let struck = due.remove(&entry(moment, &named, task));
        self.publish(&due);
        struck
    }

    /// Takes one entry of a resource out, whatever it says. O(entries).
    pub fn strike_any(&self, named: Named<R>) -> Option<Named<R>> {
        let mut due = self.lock();
        let key = *due.keys().find(|(_, _, address, _)| *address == named.address())?;
        let struck = due.remove(&key);
        self.publish(&due);
        struck
    }

    /// Takes the first entry that is due at `now` out.
    pub fn next(&self, now: u64) -> Option<(u64, Named<R>, Task)> {
        if self.earliest() > now {
            return None;
        }
        let mut due = self.lock();
        let first = due.first_entry().filter(|first| first.key().0 <= now)?;
        let ((moment, .., task), named) = first.remove_entry();
        self.publish(&due);
        Some((moment, named, task))
    }

    /// The least of `bound` and what `of` says of those in it, which is never before their own moments. Runs with the mutex held.
    pub fn least(&self, bound: u64, of: impl Fn(&Node<R>) -> u64) -> u64 {
        if self.earliest() >= bound {
            return bound;
        }
        let due = self.lock();
        let mut least = bound;
        for (&(moment, ..), named) in due.iter() {
            if moment >= least {
                break;
            }
            least = least.min(of(named.node()));
        }
        least
    }

    /// Takes the first ejection out, due or not.
    pub fn first_ejection(&self) -> Option<(u64, Named<R>)> {
        let mut due = self.lock();
        let key = *due.keys().find(|(.., task)| *task == Task::Readmit)?;
        let named = due.remove(&key)?;
        self.publish(&due);
        Some((key.0, named))
    }
}
