//! What comes to a filter that is being asked: it waits there, and is nobody else's.

use super::*;

/// A filter that is being asked about one resource is not passed over by whoever returns another: that is what it wants, and it came first.
#[test]
fn a_filter_that_is_being_asked_is_not_overtaken() {
    // Whoever comes behind it: one that takes anything, one with a name, one with a filter.
    for behind in 0..3 {
        let (fleet, _) = fleet(|builder| builder, 2);
        let mut leases = fleet.acquire_many(2).unwrap();
        leases.sort_by_key(|lease| *lease.key());
        let (one, zero) = (leases.pop().unwrap(), leases.pop().unwrap());
        let stage = Arc::new(AtomicUsize::new(0));
        let asked = Arc::clone(&stage);
        let mut first = waiting(fleet.acquire_where_async(move |entry| {
            if entry.key == 1 && asked.load(SeqCst) == 1 {
                asked.store(2, SeqCst);
                while asked.load(SeqCst) == 2 {
                    thread::yield_now();
                }
            }
            entry.key == 0
        }));
        let mut second = waiting(match behind {
            0 => fleet.acquire_async_owned(),
            1 => fleet.acquire_key_async_owned(&0),
            _ => fleet.acquire_where_async_owned(|_| true),
        });
        stage.store(1, SeqCst);
        thread::scope(|scope| {
            scope.spawn(|| drop(one));
            while stage.load(SeqCst) != 2 {
                thread::yield_now();
            }
            // Left with the filter: nobody waits for its answer, and nobody else gets it.
            drop(zero);
            assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
            stage.store(3, SeqCst);
        });
        let lease = done(&mut first).expect("it came first");
        assert_eq!(*lease.key(), 0);
        if behind == 1 {
            assert!(poll(&mut second).is_pending());
            drop(lease);
            assert_eq!(*done(&mut second).unwrap().key(), 0);
        } else {
            assert_eq!(*done(&mut second).unwrap().key(), 1);
            drop(lease);
        }
        let stats = fleet.stats();
        assert_eq!((stats.in_flight, stats.waits.failed, stats.waits.handed_off), (0, 0, 2));
    }
}

/// Whoever comes while a filter is being asked has what is free, were it without end; whoever brings something is done with it.
#[test]
fn a_filter_that_is_being_asked_holds_up_nobody() {
    ends(|| {
        let (fleet, _) = fleet(|builder| builder, 1);
        let lease = fleet.acquire().unwrap();
        let stage = Arc::new(AtomicUsize::new(0));
        let asked = Arc::clone(&stage);
        let never = waiting(fleet.acquire_where_async(move |_| {
            if asked.load(SeqCst) == 1 {
                asked.store(2, SeqCst);
                while asked.load(SeqCst) == 2 {
                    thread::yield_now();
                }
            }
            false
        }));
        stage.store(1, SeqCst);
        thread::scope(|scope| {
            scope.spawn(|| drop(lease));
            while stage.load(SeqCst) != 2 {
                thread::yield_now();
            }
            for key in 1..3 {
                fleet.insert(Entry::new(key, key, 0).with_capacity(Capacity::Unlimited)).unwrap();
                fleet.insert(Entry::new(10 + key, key, 0).with_capacity(Capacity::Limited(5))).unwrap();
            }
            drop(done(&mut fleet.acquire_async()).expect("free"));
            drop(done(&mut fleet.acquire_key_async(&1)).expect("free"));
            drop(done(&mut fleet.acquire_where_async(|entry| entry.key == 2)).expect("free"));
            drop(fleet.acquire_many_timeout(3, SECOND).expect("free"));
            stage.store(3, SeqCst);
        });
        drop(never);
        let stats = fleet.stats();
        assert_eq!((stats.in_flight, stats.waits.handed_off), (0, 4));
    });
}

/// What is left with a filter that panics, or whose waiter has gone, goes to the next one.
#[test]
fn what_is_left_with_a_filter_is_not_lost_with_it() {
    for panics in [false, true] {
        let (fleet, _) = fleet(|builder| builder, 2);
        let mut leases = fleet.acquire_many(2).unwrap();
        leases.sort_by_key(|lease| *lease.key());
        let (one, zero) = (leases.pop().unwrap(), leases.pop().unwrap());
        let stage = Arc::new(AtomicUsize::new(0));
        let asked = Arc::clone(&stage);
        let first = waiting(fleet.acquire_where_async(move |entry| {
            if entry.key == 1 && asked.load(SeqCst) == 1 {
                asked.store(2, SeqCst);
                while asked.load(SeqCst) == 2 {
                    thread::yield_now();
                }
                if panics {
                    boom();
                }
            }
            entry.key == 0
        }));
        let mut next = waiting(fleet.acquire_many_async(2));
        stage.store(1, SeqCst);
        thread::scope(|scope| {
            scope.spawn(|| drop(one));
            while stage.load(SeqCst) != 2 {
                thread::yield_now();
            }
            drop(zero);
            if !panics {
                drop(first);
            }
            stage.store(3, SeqCst);
        });
        assert_eq!(done(&mut next).expect("both").len(), 2);
        assert_eq!(fleet.stats().in_flight, 0);
    }
}
