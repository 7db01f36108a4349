//! Looking without taking.

use std::{hint::black_box, sync::Mutex};

use leasehold::{Scheduler, Strategy};

use super::{Measured, Setting, locked, pairs::threads_to_one};
use crate::compare::{
    cases::{Asset, Operation, side},
    measure::{BATCH, Worker, alternate},
};

pub fn peek_against_lock(setting: &Setting) -> Measured {
    let scheduler = setting.scheduler(Strategy::default());
    let mutex = Mutex::new(0u64);
    let lock = |_: &mut Worker| {
        for _ in 0..BATCH {
            black_box(locked(&mutex, |number| *number));
        }
    };
    Measured::Ratio(alternate(&setting.plan(), &side(Operation::Peek, &scheduler), &lock))
}

pub fn peek_two_threads_to_one(setting: &Setting) -> Measured {
    let scheduler = setting.scheduler(Strategy::default());
    threads_to_one(setting, &side(Operation::Peek, &scheduler))
}

pub fn affinity_against_peek(setting: &Setting) -> Measured {
    let scheduler = setting.scheduler(Strategy::default());
    Measured::Ratio(alternate(&setting.plan(), &by_affinity(&scheduler), &side(Operation::Peek, &scheduler)))
}

/// Ids are drawn at random, as many as there are resources.
pub fn by_affinity(scheduler: &Scheduler<Asset>) -> impl Fn(&mut Worker) + Sync {
    |worker| {
        for _ in 0..BATCH {
            let id = worker.key();
            black_box(scheduler.peek_by_affinity(&id).expect("nobody holds a resource").value);
        }
    }
}
