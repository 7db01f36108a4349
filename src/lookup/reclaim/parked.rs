//! What waits to be freed behind a reader that stays, for each reclaimer.
//!
//! No reclaimer that lets its readers be can free what such a reader may have seen: everything that was retired since it
//! came. So the garbage behind it is bounded by what is retired while it stays, and by nothing else; what was retired before
//! is freed but for what a thread has gathered and not yet handed over; and after the reader has gone everything is.
//!
//! `cargo test --lib --features seize parked -- --nocapture` prints what it measured.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{Epoch, Guard, Reclaim, Sections};

/// Values that are retired before the reader comes, while it stays, and after it has gone.
const VALUES: u64 = 10_000;
/// What may be left with the threads that retire: of `Sections` 128, of the others less.
const GATHERED: u64 = 256;
/// For what others in this process may be reading at the moment.
const PATIENCE: Duration = Duration::from_secs(20);

struct Value(Arc<AtomicU64>);

impl Drop for Value {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn retire<C: Reclaim>(reclaimer: &C, freed: &Arc<AtomicU64>) {
    unsafe fn free(value: *mut Value) {
        // SAFETY: made by `Box::into_raw` below, and retired once.
        drop(unsafe { Box::from_raw(value) });
    }
    let guard = reclaimer.pin();
    let value = Box::into_raw(Box::new(Value(Arc::clone(freed))));
    // SAFETY: nobody else has ever seen it.
    unsafe { guard.retire(value, free) };
}

/// Retires more until no more than `most` of those that were retired wait; how many then do.
fn waits_until<C: Reclaim>(reclaimer: &C, freed: &Arc<AtomicU64>, retired: &mut u64, most: u64) -> u64 {
    let end = Instant::now() + PATIENCE;
    loop {
        let waits = *retired - freed.load(Ordering::Relaxed);
        if waits <= most || Instant::now() > end {
            return waits;
        }
        (0..64).for_each(|_| retire(reclaimer, freed));
        *retired += 64;
        thread::yield_now();
    }
}

fn behind_a_reader<C: Reclaim>(name: &str) {
    let reclaimer = C::new();
    let freed = Arc::new(AtomicU64::new(0));
    let mut retired = VALUES;
    (0..VALUES).for_each(|_| retire(&reclaimer, &freed));
    let before = waits_until(&reclaimer, &freed, &mut retired, GATHERED);
    assert!(before <= GATHERED, "{name}: {before} wait though nobody reads");

    let (came, goes) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = reclaimer.pin();
            came.wait();
            goes.wait();
            drop(guard);
        });
        came.wait();
        let since = freed.load(Ordering::Relaxed);
        let waited = retired - since;
        (0..VALUES).for_each(|_| retire(&reclaimer, &freed));
        retired += VALUES;
        let freed_since = freed.load(Ordering::Relaxed) - since;
        let waits = retired - freed.load(Ordering::Relaxed);
        // Nothing that was retired since it came; of what waited before, some or all.
        assert!(freed_since <= waited, "{name}: {freed_since} freed, {waited} had waited");
        assert!(waits <= VALUES + GATHERED, "{name}: {waits} wait");
        eprintln!(
            "{name}: {before} wait with no reader, {waits} behind one that stays while {VALUES} are retired"
        );
        goes.wait();
    });
    let after = waits_until(&reclaimer, &freed, &mut retired, 2 * GATHERED);
    eprintln!("{name}: {after} wait after it has gone");
    assert!(after <= 2 * GATHERED, "{name}: {after} wait after the reader has gone");
}

#[test]
fn behind_a_parked_reader_waits_what_was_retired_since_it_came() {
    behind_a_reader::<Sections>("sections");
    behind_a_reader::<Epoch>("epoch");
    #[cfg(feature = "seize")]
    behind_a_reader::<super::Seize>("seize");
}
