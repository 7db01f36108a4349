//! One who waits: what it wants, what is handed over, and how it is woken.

use std::{any::Any, mem, ptr::NonNull, task::Waker, time::Duration};

use super::{error::WaitError, filter::Filter, queue::Order};
use crate::{
    node::{Node, quietly, wake},
    resource::Resource,
    shard::Lent,
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
        wait_for,
    },
};

/// What a waiter wants.
pub enum Want<R: Resource> {
    /// Whatever is best.
    Best,
    /// Whatever is near to an id, by its hash.
    Near(u64),
    /// This one.
    Named(Named<R>),
    /// What its filter accepts.
    Matching,
    /// So many of whatever is best: two or more.
    Many(usize),
}

/// A node that is pinned for whoever has this.
pub struct Named<R: Resource>(NonNull<Node<R>>);

impl<R: Resource> Clone for Named<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Resource> Copy for Named<R> {}

// SAFETY: nodes are `Sync`, and are kept by the pin.
#[allow(unsafe_code)]
unsafe impl<R: Resource> Send for Named<R> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<R: Resource> Sync for Named<R> {}

impl<R: Resource> Named<R> {
    /// The caller has pinned the node, and unpins it after the last use.
    pub fn new(node: &Node<R>) -> Self {
        Named(NonNull::from(node))
    }

    pub fn node(&self) -> &Node<R> {
        // SAFETY: rule 5 of `node`: the pin keeps it.
        #[allow(unsafe_code)]
        unsafe {
            self.0.as_ref()
        }
    }

    /// What the queue knows it by.
    pub fn address(&self) -> usize {
        self.0.addr().get()
    }
}

/// Units that were taken for one waiter.
#[repr(C)]
pub struct Units<R: Resource> {
    pub first: Option<Lent<R>>,
    pub more: Vec<Lent<R>>,
}

impl<R: Resource> Units<R> {
    pub const fn none() -> Self {
        Units { first: None, more: Vec::new() }
    }

    pub fn one(lent: Lent<R>) -> Self {
        Units { first: Some(lent), more: Vec::new() }
    }

    /// The unit of a request for one.
    pub fn only(self) -> Lent<R> {
        self.first.expect("a request for one ends with one")
    }

    pub fn push(&mut self, lent: Lent<R>) {
        match self.first {
            None => self.first = Some(lent),
            Some(_) => self.more.push(lent),
        }
    }

    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }
}

impl<R: Resource> IntoIterator for Units<R> {
    type Item = Lent<R>;
    type IntoIter = std::iter::Chain<std::option::IntoIter<Lent<R>>, std::vec::IntoIter<Lent<R>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}

enum Phase<R: Resource> {
    Waiting,
    Ready,
    /// This one has become eligible; it is for the waiter to try. Pinned for the nudge: whoever hears of it passes it on, or unpins.
    Nudged(Named<R>),
    /// Boxed: it is rare, and every waiter has room for the largest phase.
    Failed(Box<WaitError>),
    Panicked(Box<dyn Any + Send>),
    /// Nobody is there any more, or everything has been taken out.
    Gone,
}

/// What a hand-off touches comes first.
#[repr(C)]
struct Cell<R: Resource> {
    phase: Phase<R>,
    waker: Option<Waker>,
    units: Units<R>,
    /// A thread is to look after the time.
    poked: bool,
    /// F6: its filter was passed over.
    overlooked: bool,
    /// A filter that has left the queue.
    filter: Option<Filter<R>>,
}

/// One who waits.
///
/// By the time of the hand-off it is in nobody's cache. What that touches comes first, in as few cache lines as it needs.
#[repr(C)]
pub struct Waiter<R: Resource> {
    /// When it began to wait.
    pub since: u64,
    pub is_thread: bool,
    /// It looks after the time for all; set under the queue's mutex.
    pub keeps_time: AtomicBool,
    cell: Mutex<Cell<R>>,
    pub want: Want<R>,
    pub order: Order,
    /// On the scheduler's clock; [`NEVER`](crate::shard::NEVER) for none.
    pub deadline: u64,
    alarm: Condvar,
}

/// What a waiter that looks is told.
pub enum Look<R: Resource> {
    Waiting,
    /// F6: it waits, and is to look for itself.
    Overlooked,
    Ready(Units<R>),
    Nudged(Named<R>),
    Failed(WaitError),
    Panicked(Box<dyn Any + Send>),
}

/// What a waiter that gives up is told.
pub enum GivenUp<R: Resource> {
    /// The wait had not ended; what it has collected.
    InTime(Units<R>),
    /// It had ended: thus.
    TooLate(Look<R>),
}

/// Who is to be woken, once no mutex is held.
#[must_use]
struct Bell(Option<Waker>);

impl<R: Resource> Waiter<R> {
    /// It has its place in the order once it arrives.
    pub fn new(want: Want<R>, deadline: u64, since: u64, waker: Option<Waker>) -> Self {
        Waiter {
            want,
            order: Order::FIRST,
            deadline,
            since,
            is_thread: waker.is_none(),
            keeps_time: AtomicBool::new(false),
            cell: Mutex::new(Cell {
                phase: Phase::Waiting,
                units: Units::none(),
                filter: None,
                waker,
                poked: false,
                overlooked: false,
            }),
            alarm: Condvar::new(),
        }
    }

    /// How many units it takes.
    pub fn count(&self) -> usize {
        if let Want::Many(count) = self.want { count } else { 1 }
    }

    fn cell(&self) -> MutexGuard<'_, Cell<R>> {
        // No code that can panic in the middle of a change runs under it.
        self.cell.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn ring(&self, Bell(waker): Bell) {
        if self.is_thread {
            self.alarm.notify_one();
        } else if let Some(waker) = waker {
            // User code. A panic must not reach whoever happens to return something.
            wake(waker);
        }
    }

    // For whoever has taken the waiter out of the queue.

    /// H5: hands a unit over, and the filter back. The unit comes back if nobody is there any more.
    pub fn deliver(&self, lent: Lent<R>, filter: Option<Filter<R>>) -> Result<(), Lent<R>> {
        let mut cell = self.cell();
        if filter.is_some() {
            cell.filter = filter;
        }
        if !matches!(cell.phase, Phase::Waiting) {
            drop(cell);
            // A thread may wait for its filter.
            self.ring(Bell(None));
            return Err(lent);
        }
        cell.units.push(lent);
        if cell.units.len() == self.count() {
            cell.phase = Phase::Ready;
            let bell = Bell(cell.waker.take());
            drop(cell);
            self.ring(bell);
        }
        Ok(())
    }

    /// Gives back those of the collected units that `leaves` says yes to. The caller holds the queue's mutex, and the waiter is in the
    /// queue: so it still lacks a unit, and whoever brings one finds it waiting.
    pub fn take_parts(&self, leaves: impl Fn(&Lent<R>) -> bool) -> Vec<Lent<R>> {
        let mut cell = self.cell();
        let units = mem::replace(&mut cell.units, Units::none());
        let (parts, rest): (Vec<_>, Vec<_>) = units.into_iter().partition(leaves);
        rest.into_iter().for_each(|lent| cell.units.push(lent));
        parts
    }

    /// Ends the wait without a lease. What was collected comes back, also if nobody is there any more.
    pub fn fail(&self, error: WaitError, filter: Option<Filter<R>>) -> Units<R> {
        self.end(Phase::Failed(Box::new(error)), filter).1
    }

    /// Ends the wait with a panic that is to go on in its own thread.
    pub fn fail_panicking(&self, payload: Box<dyn Any + Send>, filter: Option<Filter<R>>) -> Units<R> {
        self.end(Phase::Panicked(payload), filter).1
    }

    /// Wakes it to try for itself, with the node's pin; `false`, and the pin stays with the caller, if nobody is there any more.
    pub fn nudge(&self, node: Named<R>, filter: Option<Filter<R>>) -> bool {
        self.end(Phase::Nudged(node), filter).0
    }

    fn end(&self, phase: Phase<R>, filter: Option<Filter<R>>) -> (bool, Units<R>) {
        let mut cell = self.cell();
        if filter.is_some() {
            cell.filter = filter;
        }
        let mut units = Units::none();
        let is_there = matches!(cell.phase, Phase::Waiting);
        let mut unheard = phase;
        if is_there {
            mem::swap(&mut cell.phase, &mut unheard);
            mem::swap(&mut cell.units, &mut units);
        }
        let bell = Bell(cell.waker.take());
        drop(cell);
        self.ring(bell);
        // A payload is user code.
        let _ = quietly(|| drop(unheard));
        (is_there, units)
    }

    /// Hands a filter back that was asked, after its waiter has left the queue.
    pub fn hand_back(&self, filter: Filter<R>) {
        self.cell().filter = Some(filter);
        self.ring(Bell(None));
    }

    /// Wakes a thread to look after the time.
    pub fn poke(&self) {
        self.cell().poked = true;
        self.ring(Bell(None));
    }

    /// F6: its filter was passed over. It is to look for itself.
    pub fn overlook(&self) {
        let mut cell = self.cell();
        if !matches!(cell.phase, Phase::Waiting) {
            return;
        }
        cell.overlooked = true;
        let bell = Bell(cell.waker.take());
        drop(cell);
        self.ring(bell);
    }

    // For the waiter itself.

    /// Looks, once: what is found is taken.
    pub fn look(&self) -> Look<R> {
        let mut cell = self.cell();
        cell.take()
    }

    /// Looks as [`look`](Self::look) does, for the usual end: one unit, which is not moved but to where it is wanted. Anything else stays.
    #[inline]
    pub fn take_only(&self) -> Option<Lent<R>> {
        let mut cell = self.cell();
        if !matches!(cell.phase, Phase::Ready) || !cell.units.more.is_empty() {
            return None;
        }
        cell.phase = Phase::Gone;
        cell.units.first.take()
    }

    /// Looks for a task; leaves its waker if there is nothing yet.
    pub fn look_or_leave(&self, waker: &Waker) -> Look<R> {
        {
            let mut cell = self.cell();
            let found = cell.take();
            if !matches!(found, Look::Waiting) || cell.waker.as_ref().is_some_and(|old| old.will_wake(waker))
            {
                return found;
            }
        }
        // Cloned and dropped with the mutex free: both are user code.
        let new = Some(waker.clone());
        let mut cell = self.cell();
        let found = cell.take();
        let useless = match found {
            Look::Waiting => mem::replace(&mut cell.waker, new),
            _ => new,
        };
        drop(cell);
        // A panic must not take along what was found.
        let _ = quietly(|| drop(useless));
        found
    }

    /// Back to the queue after a nudge in vain. The caller holds no mutex; the waiter is in no queue.
    pub fn wait_again(&self, waker: Option<Waker>) {
        let mut cell = self.cell();
        cell.phase = Phase::Waiting;
        // There is no old one: it was taken to wake the waiter.
        cell.waker = waker;
    }

    /// Sleeps until something happens, or `limit` is over. May wake for nothing.
    pub fn sleep(&self, limit: Option<Duration>) {
        let mut cell = self.cell();
        if matches!(cell.phase, Phase::Waiting) && !mem::take(&mut cell.poked) && !cell.overlooked {
            cell = wait_for(&self.alarm, cell, limit);
            cell.poked = false;
        }
    }

    /// The filter, once it is back: the waiter has left the queue, and whoever asks it does not keep it.
    pub fn take_filter(&self) -> Option<Filter<R>> {
        self.cell().filter.take()
    }

    /// As [`take_filter`](Self::take_filter), waiting for it.
    pub fn await_filter(&self) -> Filter<R> {
        let mut cell = self.cell();
        loop {
            if let Some(filter) = cell.filter.take() {
                return filter;
            }
            cell = wait_for(&self.alarm, cell, None);
        }
    }

    /// Looks a last time; from now on whoever comes with a unit keeps it. What was collected of several comes back.
    pub fn give_up(&self) -> GivenUp<R> {
        let mut cell = self.cell();
        if matches!(cell.phase, Phase::Waiting) {
            cell.phase = Phase::Gone;
            return GivenUp::InTime(mem::replace(&mut cell.units, Units::none()));
        }
        GivenUp::TooLate(cell.take())
    }

    /// Whether it looks after the time for all.
    pub fn is_timekeeper(&self) -> bool {
        // Relaxed: set under the queue's mutex while the waiter was queued; whoever has taken it out since, and told us so, has
        // held that mutex later.
        self.keeps_time.load(Ordering::Relaxed)
    }
}

impl<R: Resource> Drop for Waiter<R> {
    /// A waker that was not needed, and a payload that nobody has heard, are user code; and this may be the thread of somebody who
    /// has a unit in hand.
    fn drop(&mut self) {
        let cell = self.cell.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if cell.waker.is_none() && matches!(cell.phase, Phase::Gone) {
            return;
        }
        let left = (cell.waker.take(), mem::replace(&mut cell.phase, Phase::Gone));
        let _ = quietly(|| drop(left));
    }
}

impl<R: Resource> Cell<R> {
    fn take(&mut self) -> Look<R> {
        if matches!(self.phase, Phase::Waiting) {
            return if mem::take(&mut self.overlooked) { Look::Overlooked } else { Look::Waiting };
        }
        match mem::replace(&mut self.phase, Phase::Gone) {
            Phase::Ready => Look::Ready(mem::replace(&mut self.units, Units::none())),
            Phase::Nudged(node) => Look::Nudged(node),
            Phase::Failed(error) => Look::Failed(*error),
            Phase::Panicked(payload) => Look::Panicked(payload),
            Phase::Waiting | Phase::Gone => unreachable!("nobody looks after the end"),
        }
    }
}
