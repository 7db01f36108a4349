//! A pool's threads: how they begin and end.
//!
//! Workers have numbers; a number is free again when its thread has ended. All that is here is under one mutex, which is taken when a
//! worker begins or ends, by a shutdown, and by the last job that one waits for because it waits for a lease.

use std::{io, thread::ThreadId};

use super::{Metrics, core::Core, queue::JobQueue};
use crate::{
    node::quietly,
    sync::{Arc, barrier, current_thread, id_of, spawn, thread},
};

/// The threads of a pool.
#[derive(Default)]
pub struct Life {
    /// By the worker's number.
    pub threads: Vec<Option<Thread>>,
    /// How many workers have begun and not ended.
    pub alive: usize,
    /// The numbers of the workers that are in a shutdown of their own pool.
    pub inside: Vec<usize>,
    /// The keeper is in one.
    pub keeper_inside: bool,
    /// Threads that have ended, to be joined.
    pub ended: Vec<thread::JoinHandle<()>>,
    /// The keeper's thread, until somebody has joined it.
    pub keeper: Option<Thread>,
    /// The keeper has begun and not ended.
    pub keeps: bool,
    /// How many jobs a shutdown has handed back.
    pub handed_back: usize,
    /// No worker begins any more: nothing is left that one might run, or time is up.
    pub closed: bool,
}

/// A worker's thread.
pub struct Thread {
    handle: Option<thread::JoinHandle<()>>,
    id: Option<ThreadId>,
}

impl Thread {
    /// One that is being started.
    const STARTING: Thread = Thread { handle: None, id: None };

    pub fn of(handle: thread::JoinHandle<()>) -> Self {
        Thread { id: id_of(&handle), handle: Some(handle) }
    }

    fn is(&self, id: ThreadId) -> bool {
        self.id == Some(id)
    }

    pub fn join(self) {
        if let Some(handle) = self.handle {
            let _ = handle.join();
        }
    }
}

impl Life {
    /// For up to so many workers, of whom none has begun.
    pub fn for_workers(most: usize) -> Self {
        Life { threads: (0..most).map(|_| None).collect(), ..Life::default() }
    }

    /// The number of the worker that the running thread is, if it is one.
    pub fn own(&self) -> Option<usize> {
        let own = current_thread()?;
        self.threads.iter().position(|thread| thread.as_ref().is_some_and(|thread| thread.is(own)))
    }

    /// Whether the running thread is the keeper.
    pub fn is_keeper(&self) -> bool {
        let keeper = self.keeper.as_ref();
        current_thread().is_some_and(|own| keeper.is_some_and(|keeper| keeper.is(own)))
    }

    /// Takes the threads that have ended.
    pub fn take_ended(&mut self) -> Vec<thread::JoinHandle<()>> {
        std::mem::take(&mut self.ended)
    }
}

/// Starts one more worker, if there is a number for it and one may still begin: until the end of D3 of `shutdown`. Whether it did.
///
/// # Errors
/// The system's, if it starts no thread.
pub fn start<T: Send + 'static, M: Metrics>(core: &Arc<Core<T, M>>) -> io::Result<bool> {
    let mut life = core.life();
    if life.closed {
        return Ok(false);
    }
    let Some(me) = life.threads.iter().position(Option::is_none) else { return Ok(false) };
    // Before it runs: it may end at once.
    life.threads[me] = Some(Thread::STARTING);
    life.alive += 1;
    core.beds.enlist();
    let here = Arc::clone(core);
    let spawned = spawn(format!("lease-worker-{me}"), move || run(&here, me));
    match spawned {
        Ok(handle) => {
            life.threads[me] = Some(Thread::of(handle));
            Ok(true)
        }
        Err(error) => {
            life.threads[me] = None;
            life.alive -= 1;
            core.beds.discharge();
            Err(error)
        }
    }
}

/// A worker's thread, from its first step to its last.
fn run<T: Send + 'static, M: Metrics>(core: &Core<T, M>, me: usize) {
    let _ = quietly(|| super::pinning::pin(core.pinned, me));
    // No user code unwinds to here; what would is a fault of ours. It costs neither a worker nor what it has taken.
    let dismissed = loop {
        // In a model, what is wrong must be told, not tried again.
        let ended = if cfg!(any(loom, shuttle)) { Some(core.work(me)) } else { quietly(|| core.work(me)) };
        if let Some(dismissed) = ended {
            break dismissed;
        }
    };
    if !dismissed {
        core.beds.discharge();
        // Somebody may have counted on us until now: as B3 of `beds`. No model would miss the barrier, nor what follows: a worker ends like
        // this when the pool is closed alone, and then it has found nothing since (what is in the queue by D1 of `shutdown` is found), or D4
        // empties the queue; and D2 wakes all who sleep.
        let _ = barrier::heavy();
        if !core.queue.is_empty() {
            core.beds.wake_one();
        }
    }
    // The lock was held until the handle was there.
    let mut life = core.life();
    let thread = life.threads[me].take();
    life.ended.extend(thread.and_then(|thread| thread.handle));
    life.alive -= 1;
    drop(life);
    core.ended.notify_all();
}
