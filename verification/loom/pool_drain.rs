//! How many workers there are while a pool drains.

use std::{
    sync::{
        Arc as StdArc,
        atomic::{AtomicUsize as StdUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use leasehold::{
    ManualClock,
    internals::{pool::Memory, sync::Arc},
    pool::{Job, Pool},
};

use crate::common::{model_within, spawn};

/// The keeper starts a second worker while a shutdown waits for the last one to end: that one is waited for, or does not begin. When the shutdown has
/// returned nobody is there, nor comes.
#[test]
fn grow_shutdown() {
    // Not instrumented.
    static GREW: StdUsize = StdUsize::new(0);
    model_within(1, || {
        // Nor this.
        let count = StdArc::new(StdUsize::new(0));
        let job = || {
            Job::new(StdArc::clone(&count), |count, _| {
                count.fetch_add(1, SeqCst);
                Ok(())
            })
        };
        // How a pool begins is in other models, and costs this one what it is about.
        loom::stop_exploring();
        let builder = Pool::builder().adaptive(1, 2).capacity(4).segment_slots(2).clock(ManualClock::new());
        let pool = Arc::new(builder.scale_up_at(0.0).scale_rest(Duration::ZERO).build().expect("in range"));
        pool.try_submit(job()).expect("room");
        loom::explore();
        let looks = {
            let pool = Arc::clone(&pool);
            spawn(move || pool.look(&mut Memory::default()))
        };
        assert!(pool.shutdown(Duration::MAX).is_complete());
        let stats = pool.stats();
        assert_eq!((count.load(SeqCst), stats.workers), (1, 0), "all is done, and nobody is there");
        looks.join().expect("no panic");
        let stats = pool.stats();
        assert_eq!(stats.workers, 0, "nobody has come");
        GREW.fetch_add(stats.scaled_up as usize, SeqCst);
    });
    if std::env::var_os("LOOM_CHECKPOINT_FILE").is_none() {
        assert!(GREW.load(SeqCst) > 0, "it grew");
    }
}
