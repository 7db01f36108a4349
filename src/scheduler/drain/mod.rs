//! Draining: lend no more, wait until the leases have come back, say exactly what has not.
//!
//! | file | idea |
//! |---|---|
//! | this one | the protocol; who waits for what |
//! | `bell` | how a thread or a task is woken |
//! | `progress` | one drain from its hold to its report |
//! | `sweep` | the whole fleet |
//! | `report` | what is still out |
//! | `forms` | the public surface |
//!
//! # States and steps
//!
//! A resource is *drained* when it has no lease out and can get none: it is draining, or removed. Nobody has to ask for that again and
//! again: the return that brings it about says so.
//!
//! ```text
//!               D1                 D2..D4
//!   (lent) ----------> DRAINING ------------> in flight 0 ---> drained
//!                         |  ^                                   |
//!                 undrain |  | a resource that was removed       | the next resource, or the end
//!                         v    drains like one that is held      v
//!                     undrained: named in the report
//!
//! drain                                          return, undrain
//!   D1  home lock: hold DRAINING, pin the node     T1  home lock: the CAS of the word; unlock
//!   D2  look at the word: nothing out: done        T2  DRAINING or REMOVED, and nothing in flight; or DRAINING was cleared:
//!   D3  mutex: register node and bell                  mutex: take out the bells of that node
//!   D4  look at the word again; something out:     T3  ring them, with no lock and no mutex held
//!       sleep until rung, then D2
//! ```
//!
//! T2 is decided by the word that T1 has written: any other return pays nothing for drains.
//!
//! No wake-up is lost. D3 and T2 hold the same mutex, in one order or the other:
//!
//! * D3 first: T2 finds the bell.
//! * T2 first: T1 comes before D4, through the mutex, and D4 sees what T1 has written.
//!
//! A drain of many resources waits for **one of them at a time**, the last of its list, and passes over those that are drained when it
//! comes to them: so it is woken only by what it waits for, and looks at each a bounded number of times.
//!
//! The pin (rule 5 of `node`) keeps a node that is removed meanwhile: it counts as drained when its leases are back, not earlier, and
//! its address means no other resource.
//!
//! A unit that one who waits for several has got and cannot use yet is no lease of anybody: after D1, and after A2, such units are taken
//! back (`wait`, "Parts"). A return is all that a drain sees of it.
//!
//! A thread that waits looks for overdue leases itself, and sleeps no longer than until some are due (`deadlines`): D3 reads that moment, under
//! the mutex, and leaves it with the bell. Whoever makes it an earlier one rings the threads that would sleep beyond it, under the same mutex:
//! a renewal, K4; the end of a look, P3, which was put off by P1; and a look that a panic has ended, `LookAgain`. K4, P3 or `LookAgain` first:
//! D3 reads the earlier moment. D3 first: the bell is found, with the later one. Tasks are told by the timer.
//!
//! Cancellation: whoever stops waiting takes its bell out, if it is there, and unpins. Nothing is handed over by a bell, so none can be
//! lost with it. The hold stays.
//!
//! # The whole fleet
//!
//! ```text
//! drain_all                                      newcomer
//!   A1  the roster says: newcomers drain           I1  home lock: what does the roster say? admit, draining or not
//!   A2  each shard's lock, a few slots at a time:
//!       hold what is a member, pin what has leases out
//! ```
//!
//! A1 is not to be missed: A2 and I1 hold the same lock. I1 first: A2 finds the newcomer, a member. A2 first: I1 sees A1's word, through
//! the lock. So after A2 no resource is eligible, nor becomes it, until somebody undrains. Members of a batch are admitted one by
//! one (B5), each as I1.

mod bell;
mod forms;
mod progress;
mod report;
mod sweep;

use std::{mem, ptr::NonNull};

pub use progress::Drain;
pub use report::{DrainReport, Outstanding};

use self::bell::Bell;
use crate::{
    node::quietly,
    shard::NEVER,
    sync::{Mutex, MutexGuard},
};

/// Who waits for which resource to be drained.
pub struct Drains(Mutex<Book>);

struct Book {
    last_id: u64,
    waiting: Vec<Waiting>,
}

struct Waiting {
    id: u64,
    /// An address, only to be compared: the node is pinned by whoever waits.
    node: usize,
    /// Of a thread; on the scheduler's clock.
    deadline: u64,
    /// Until when a thread sleeps at most.
    until: u64,
    bell: Bell,
}

impl Drains {
    pub fn new() -> Self {
        Drains(Mutex::new(Book { last_id: 0, waiting: Vec::new() }))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing that can panic in the middle of a change runs under it.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A name for one who will wait.
    fn new_id(&self) -> u64 {
        let mut book = self.book();
        book.last_id += 1;
        book.last_id
    }

    /// D3. `due` says when leases are overdue, and is asked under the mutex. Answers until when a thread sleeps, and a bell that was left
    /// before, to be dropped with the mutex free.
    fn register<T>(
        &self,
        id: u64,
        node: NonNull<T>,
        deadline: u64,
        bell: Bell,
        due: impl Fn() -> u64,
    ) -> (u64, Option<Bell>) {
        let node = node.addr().get();
        let mut book = self.book();
        let until = deadline.min(due());
        let Some(waiting) = book.waiting.iter_mut().find(|waiting| waiting.id == id) else {
            book.waiting.push(Waiting { id, node, deadline, until, bell });
            return (until, None);
        };
        (waiting.node, waiting.deadline, waiting.until) = (node, deadline, until);
        (until, Some(mem::replace(&mut waiting.bell, bell)))
    }

    /// Whether anybody waits.
    pub fn any(&self) -> bool {
        !self.book().waiting.is_empty()
    }

    /// How many wait.
    #[cfg(any(test, loom, shuttle, feature = "internals"))]
    pub fn waiting(&self) -> usize {
        self.book().waiting.len()
    }

    /// Somebody does not wait any more.
    fn leave(&self, id: u64) {
        let mut book = self.book();
        let left = book.waiting.iter().position(|waiting| waiting.id == id);
        let left = left.map(|index| book.waiting.swap_remove(index));
        drop(book);
        // A waker is user code, and this is inside a `Drop`.
        let _ = quietly(|| drop(left));
    }

    /// T2 and T3. The caller holds no lock.
    #[cold]
    pub fn tell<T>(&self, node: NonNull<T>) {
        let node = node.addr().get();
        self.ring(|waiting| waiting.node == node);
    }

    /// Leases are overdue at `moment`, earlier than somebody may have thought: the threads that sleep beyond that look anew. Answers whether
    /// anybody waits, as a thread or as a task.
    #[cold]
    pub fn hurry(&self, moment: u64) -> bool {
        let mut anybody = false;
        self.ring(|waiting| {
            anybody = true;
            matches!(waiting.bell, Bell::Thread(_)) && moment < waiting.until
        });
        anybody
    }

    /// Wakes the threads whose deadline has come, and says when the next one comes.
    pub fn tick(&self, now: u64) -> u64 {
        self.ring(|waiting| waiting.deadline <= now);
        self.book().waiting.iter().map(|waiting| waiting.deadline).min().unwrap_or(NEVER)
    }

    fn ring(&self, mut whom: impl FnMut(&Waiting) -> bool) {
        let rung: Vec<Waiting> = self.book().waiting.extract_if(.., |waiting| whom(waiting)).collect();
        for waiting in rung {
            waiting.bell.ring();
        }
    }
}
