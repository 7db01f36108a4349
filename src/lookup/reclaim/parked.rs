//! What waits to be freed behind a reader that stays, for each reclaimer.
//!
//! A reclaimer that protects by time, not pointer by pointer, cannot free what such a reader may have seen: everything that was retired since it
//! came. So the garbage behind it is bounded by what is retired while it stays, and by nothing else; what was retired before
//! is freed but for what a thread has gathered and not yet handed over; and after the reader has gone everything is.
//!
//! That takes more than one reader to see: what was retired under an older one must be freed when that one goes, though a newer one stays.
//! Epochs cannot do that. They move on only together: a reader that stays holds the epoch back, and with it whatever was retired in the
//! epoch in which it came and in the one before, also what it can never have seen.
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

/// Retires more until no more than `most` of all that were retired wait, those `under` a reader too; how many then do.
fn waits_until<C: Reclaim>(
    reclaimer: &C,
    [freed, under]: [&Arc<AtomicU64>; 2],
    retired: &mut u64,
    most: u64,
) -> u64 {
    let end = Instant::now() + PATIENCE;
    loop {
        let waits = *retired - freed.load(Ordering::Relaxed) - under.load(Ordering::Relaxed);
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
    // Values that were freed: of those retired while the reader stays, and of all others.
    let [freed, under] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let mut retired = VALUES;
    (0..VALUES).for_each(|_| retire(&reclaimer, &freed));
    let before = waits_until(&reclaimer, [&freed, &under], &mut retired, GATHERED);
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
        (0..VALUES).for_each(|_| retire(&reclaimer, &under));
        // None of them: the reader may have seen each. What waited before may be freed or not, and is no more than it was.
        let too_early = under.load(Ordering::Relaxed);
        let waits = retired + VALUES - freed.load(Ordering::Relaxed) - too_early;
        goes.wait();
        assert_eq!(too_early, 0, "{name}: freed while one stays that was there when they were retired");
        eprintln!(
            "{name}: {before} wait with no reader, {waits} behind one that stays while {VALUES} are retired"
        );
    });
    retired += VALUES;
    let after = waits_until(&reclaimer, [&freed, &under], &mut retired, 2 * GATHERED);
    eprintln!("{name}: {after} wait after it has gone");
    assert!(after <= 2 * GATHERED, "{name}: {after} wait after the reader has gone");
}

/// How many are freed of those that were retired before the newer of two readers came, when the older one has gone.
fn behind_the_newer_reader<C: Reclaim>(name: &str) -> u64 {
    let reclaimer = C::new();
    // Values that were freed: of those retired before the newer reader came, and since.
    let [freed, under] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let [older, newer] = [(); 2].map(|()| (Barrier::new(2), Barrier::new(2), Barrier::new(2)));
    let stays = |(came, goes, gone): &(Barrier, Barrier, Barrier)| {
        let guard = reclaimer.pin();
        came.wait();
        goes.wait();
        drop(guard);
        gone.wait();
    };
    thread::scope(|scope| {
        scope.spawn(|| stays(&older));
        older.0.wait();
        (0..VALUES).for_each(|_| retire(&reclaimer, &freed));
        assert_eq!(freed.load(Ordering::Relaxed), 0, "{name}: freed under a reader");
        scope.spawn(|| stays(&newer));
        newer.0.wait();
        older.1.wait();
        older.2.wait();
        // More, so that the reclaimer has a reason to go on.
        let (mut since, end) = (0, Instant::now() + PATIENCE);
        while freed.load(Ordering::Relaxed) < VALUES - GATHERED && since < VALUES && Instant::now() < end {
            (0..64).for_each(|_| retire(&reclaimer, &under));
            since += 64;
            thread::yield_now();
        }
        let freed_behind = freed.load(Ordering::Relaxed);
        let too_early = under.load(Ordering::Relaxed);
        eprintln!(
            "{name}: {freed_behind} of {VALUES} freed when the older reader has gone and a newer one stays"
        );
        newer.1.wait();
        newer.2.wait();
        assert_eq!(too_early, 0, "{name}: freed though the newer reader was there when they were retired");
        let mut retired = VALUES + since;
        let after = waits_until(&reclaimer, [&freed, &under], &mut retired, 2 * GATHERED);
        assert!(after <= 2 * GATHERED, "{name}: {after} wait after both have gone");
        freed_behind
    })
}

#[test]
fn what_an_older_reader_held_is_freed_though_a_newer_one_stays() {
    let least = VALUES - GATHERED;
    let sections = behind_the_newer_reader::<Sections>("sections");
    assert!(sections >= least, "{sections} freed");
    #[cfg(feature = "seize")]
    {
        let seize = behind_the_newer_reader::<super::Seize>("seize");
        assert!(seize >= least, "{seize} freed");
    }
    // Of epochs nothing can be asked here: see above.
    behind_the_newer_reader::<Epoch>("epoch");
}

#[test]
fn behind_a_parked_reader_waits_what_was_retired_since_it_came() {
    behind_a_reader::<Sections>("sections");
    behind_a_reader::<Epoch>("epoch");
    #[cfg(feature = "seize")]
    behind_a_reader::<super::Seize>("seize");
}
