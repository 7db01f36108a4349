//! What happens when user code misbehaves: it panics, never comes back, or calls the scheduler in its turn.
//!
//! For every site at which the scheduler calls user code, and for every k up to the number of such calls of a script
//! over all operations, the k-th call panics once. After each operation of the script the whole structure is checked;
//! after the one that met the panic also that every shard still lends and takes back (so no lock is held), that the
//! fleet is as before or as after the operation, and that no lease is lost. At the end every resource has been dropped
//! once.
//!
//! `panics` has scripts of everything that does not wait, `holding` those of leases with an end, `waiting` those of units that are handed on.
//! Each site must have been called in each script, but for those that a script names.
//!
//! Observers, whose threads no script drives, have a file of their own, `observing`.
//!
//! Cost: some 10,000 runs of about 60 operations, 2 s.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "../model/mod.rs"]
mod model;

mod holding;
mod neglect;
mod observing;
mod panics;
mod waiting;

use model::Site;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Once,
};

/// Runs `f`; a planted panic ends here, every other one goes on. Answers whether there was one.
fn contain(f: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => false,
        Err(payload) if payload.is::<model::Planted>() => true,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// When what was retired is dropped, and by which thread, is the reclaimer's affair: of those calls not each need come again.
fn is_left_to_the_reclaimer(site: Site) -> bool {
    matches!(site, Site::DropItem | Site::DropKey)
}

/// Runs what else may run user code, the reclaimer: often enough for what was retired just now to be freed, unless another thread is in the way.
fn tidy_up() {
    (0..4).for_each(|_| leasehold::collect_garbage());
}

/// Planted panics are expected: they write nothing.
fn quiet() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<model::Planted>() {
                usual(info);
            }
        }));
    });
}
