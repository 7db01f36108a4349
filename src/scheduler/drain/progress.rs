//! One drain, from its hold to its report.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    ptr::NonNull,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    bell::{Bell, Sleeper},
    report::{DrainReport, Outstanding},
};
use crate::{
    lookup::Keyed,
    node::{Hold, Node, State},
    resource::Resource,
    scheduler::core::Core,
    shard::NEVER,
    sync::{Arc, Proven},
};

/// A drain that is waited for as a task, on any runtime: [`Scheduler::drain_async`](crate::Scheduler::drain_async),
/// [`Scheduler::drain_all_async`](crate::Scheduler::drain_all_async). Borrows nothing: it may be spawned.
///
/// Ends when everything has come back, or was [undrained](crate::Scheduler::undrain) by somebody.
///
/// # Cancel safety
/// Dropped at any moment, it leaves nothing behind but the hold: the resources go on draining. To stop after a while and learn what
/// is still out, wait for `&mut drain` and then ask [`report`](Drain::report).
///
/// ```
/// use leasehold::{Entry, Scheduler};
///
/// # futures_lite_block_on(async {
/// let scheduler = Scheduler::<Entry<&str, u32, ()>>::builder().build().unwrap();
/// scheduler.insert(Entry::new("a", 1, ())).unwrap();
/// let lease = scheduler.acquire_owned().unwrap();
/// let drain = scheduler.drain_async("a").unwrap();
/// assert_eq!(drain.report().leases(), 1);
/// drop(lease);
/// assert!(drain.await.is_drained());
/// # });
/// # fn futures_lite_block_on(future: impl std::future::Future<Output = ()>) {
/// #     let mut future = std::pin::pin!(future);
/// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// #     while future.as_mut().poll(&mut context).is_pending() {}
/// # }
/// ```
#[must_use = "the resources drain, but nobody waits for it"]
pub struct Drain<R: Resource> {
    core: Arc<Core<R>>,
    fleet: Proven<Fleet<R>>,
    id: u64,
    deadline: u64,
    /// What the last D3 has answered.
    until: u64,
}

/// What is drained.
struct Fleet<R: Resource> {
    /// Pinned. Waited for from the back.
    left: Vec<NonNull<Node<R>>>,
    undrained: Vec<R::Key>,
}

// SAFETY: the pointers are to nodes, which are `Send + Sync`, and are kept by the pins.
#[allow(unsafe_code)]
unsafe impl<R: Resource> Send for Fleet<R> {}
// SAFETY: as above; a shared drain gives shared access only.
#[allow(unsafe_code)]
unsafe impl<R: Resource> Sync for Fleet<R> {}
// Nothing in it is pinned by itself.
impl<R: Resource> Unpin for Drain<R> {}

/// How a resource stands that is being drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Drained,
    /// So many leases.
    Out(u32),
    Undrained,
}

fn look(state: State) -> Look {
    if !state.is_removed() && !state.is_held(Hold::Draining) {
        return Look::Undrained;
    }
    match state.in_flight() {
        0 => Look::Drained,
        leases => Look::Out(leases),
    }
}

impl<R: Resource> Drain<R> {
    /// Of nothing yet.
    pub(super) fn new(core: &Arc<Core<R>>) -> Self {
        let id = core.drains.new_id();
        let fleet = Proven::new(Fleet { left: Vec::new(), undrained: Vec::new() });
        Drain { core: Arc::clone(core), fleet, id, deadline: NEVER, until: NEVER }
    }

    /// One more resource, which the caller has pinned.
    pub(super) fn add(&mut self, node: NonNull<Node<R>>) {
        self.fleet.left.push(node);
    }

    fn node(&self, node: NonNull<Node<R>>) -> &Node<R> {
        #[cfg(any(loom, shuttle))]
        self.core.map.reclaim().witness(node.as_ptr());
        // SAFETY: rule 5 of `node`: the pin keeps it, until `pass`.
        #[allow(unsafe_code)]
        unsafe {
            &*node.as_ptr()
        }
    }

    fn look_at(&self, node: NonNull<Node<R>>) -> Look {
        look(self.node(node).state.load())
    }

    /// The last resource of the list needs no more waiting for.
    fn pass(&mut self, node: NonNull<Node<R>>, look: Look) {
        if look == Look::Undrained {
            // Before anything is changed: user code.
            let key = self.node(node).key().clone();
            self.fleet.undrained.push(key);
        }
        self.fleet.left.pop();
        self.unpin(node);
    }

    fn unpin(&self, node: NonNull<Node<R>>) {
        let core = &*self.core;
        let garbage = core.home(self.node(node)).lock().unpin_node(self.node(node));
        core.retire(garbage);
    }

    /// D2 to D4, for one resource after another. Answers whether there is nothing left to wait for; if there is, the bell is left.
    fn advance(&mut self, bell: impl Fn() -> Bell) -> bool {
        while let Some(&node) = self.fleet.left.last() {
            let mut found = self.look_at(node);
            if matches!(found, Look::Out(_)) {
                let due = || self.core.next_reap();
                let (until, before) = self.core.drains.register(self.id, node, self.deadline, bell(), due);
                self.until = until;
                drop(before);
                // D4.
                found = self.look_at(node);
            }
            if matches!(found, Look::Out(_)) {
                return false;
            }
            self.pass(node, found);
        }
        true
    }

    /// Nobody else may look for what is overdue: what drains is not asked for. Answers whether it was time.
    fn reap(&self, now: u64) -> bool {
        let is_due = self.core.next_reap() <= now;
        if is_due {
            let _ = self.core.reap_overdue(now);
        }
        is_due
    }

    /// Waits as a thread, until `deadline` at most.
    pub(super) fn wait_until(mut self, deadline: u64) -> DrainReport<R::Key> {
        self.deadline = deadline;
        let sleeper = Arc::new(Sleeper::new());
        while !self.advance(|| Bell::Thread(Arc::clone(&sleeper))) {
            let now = self.core.now();
            // Before the deadline is looked at: what is overdue by then is not outstanding. Once: the limit may be shorter than a turn.
            if self.reap(now) && self.advance(|| Bell::Thread(Arc::clone(&sleeper))) {
                break;
            }
            if now >= deadline {
                break;
            }
            // Not what `next_reap` says by now: that may be later, and whoever makes it earlier again rings only if D3 has left a later one.
            let until = self.until;
            // Read again: taking back what was overdue runs code of others, which may take its time.
            let now = self.core.now();
            if until > now {
                sleeper.sleep((until != NEVER).then(|| Duration::from_nanos(until - now)));
            }
        }
        self.report()
    }

    /// What is still out now.
    ///
    /// The numbers are of one moment, unless a resource is undrained and drained again during the call. Lock-free: read again for each
    /// lease that comes back meanwhile.
    ///
    /// # Callbacks
    /// `Clone` of the keys; with [`max_hold`](crate::Builder::max_hold) the clock. With no lock held.
    pub fn report(&self) -> DrainReport<R::Key> {
        let look = || -> Vec<Look> { self.fleet.left.iter().map(|&node| self.look_at(node)).collect() };
        let mut looks = look();
        loop {
            let again = look();
            // While a resource drains its leases can only become fewer: the same number twice is the number in between.
            if again == looks {
                break;
            }
            looks = again;
        }
        let core = &*self.core;
        let mut holders = if core.limits.is_some() {
            let mut wanted: Vec<usize> = self.fleet.left.iter().map(|node| node.addr().get()).collect();
            wanted.sort_unstable();
            core.holders(core.now(), |address| wanted.binary_search(&address).is_ok())
        } else {
            Vec::new()
        };
        let mut report = DrainReport { outstanding: Vec::new(), undrained: self.fleet.undrained.clone() };
        for (&address, look) in self.fleet.left.iter().zip(looks) {
            let node = self.node(address);
            match look {
                Look::Drained => {}
                Look::Undrained => report.undrained.push(node.key().clone()),
                Look::Out(in_flight) => report.outstanding.push(Outstanding {
                    key: node.key().clone(),
                    shard: node.home() as usize,
                    in_flight,
                    holders: holders
                        .extract_if(.., |(of, _)| *of == address.addr().get())
                        .map(|(_, info)| info)
                        .collect(),
                }),
            }
        }
        report
    }
}

impl<R: Resource> Future for Drain<R> {
    type Output = DrainReport<R::Key>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let drain = self.get_mut();
        let mut done = drain.advance(|| Bell::Task(context.waker().clone()));
        if !done && drain.core.next_reap() != NEVER {
            let now = drain.core.now();
            done = drain.reap(now) && drain.advance(|| Bell::Task(context.waker().clone()));
        }
        if !done {
            drain.core.tell_drain();
            return Poll::Pending;
        }
        Poll::Ready(DrainReport { outstanding: Vec::new(), undrained: mem::take(&mut drain.fleet.undrained) })
    }
}

impl<R: Resource> Drop for Drain<R> {
    fn drop(&mut self) {
        self.core.drains.leave(self.id);
        for node in mem::take(&mut self.fleet.left) {
            self.unpin(node);
        }
    }
}

impl<R: Resource> fmt::Debug for Drain<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").field("left", &self.fleet.left.len()).finish_non_exhaustive()
    }
}
