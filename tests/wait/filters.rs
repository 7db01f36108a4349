//! Filters: that panic, that borrow.

use super::*;

#[test]
fn a_panicking_filter_is_its_owners_business() {
    let fleet = fleet(2);
    let mut leases = fleet.acquire_many(2).unwrap();
    // A filter is asked about those that are not free as well, when it comes.
    let armed = Arc::new(AtomicBool::new(false));
    let is_armed = Arc::clone(&armed);
    let mut bad = Task::waiting(fleet.acquire_where_async(move |entry| {
        if entry.key == 1 && is_armed.load(SeqCst) {
            std::panic::resume_unwind(Box::new("asked about 1"));
        }
        false
    }));
    let good = Task::waiting(fleet.acquire_where_async(|_| true));
    leases.sort_by_key(|lease| *lease.key());
    armed.store(true, SeqCst);
    // Nothing of it is heard here.
    drop(leases.pop());
    assert_eq!(good.woken(), 1, "the next one is served");
    let payload =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bad.poll().is_ready())).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"asked about 1"));
    drop((bad, good, leases));
    at_rest(&fleet);
    assert_eq!(waits(&fleet).failed, 1);
    // The same for a thread, in its own call.
    let lease = fleet.acquire_many(2).unwrap();
    armed.store(false, SeqCst);
    let accepts = |_: &Entry<u32, u32, u32>| {
        if armed.load(SeqCst) {
            std::panic::resume_unwind(Box::new(7));
        }
        false
    };
    thread::scope(|scope| {
        let thread = scope.spawn(|| drop(fleet.request().matching(&accepts).wait()));
        while waits(&fleet).waited < 3 {
            thread::yield_now();
        }
        armed.store(true, SeqCst);
        drop(lease);
        assert_eq!(thread.join().unwrap_err().downcast_ref(), Some(&7));
    });
    at_rest(&fleet);
}

/// A filter that borrows sees what it borrows as long as it is asked, and not after its call has returned.
#[test]
fn a_filter_may_borrow() {
    let fleet = fleet(2);
    for round in 0..200u32 {
        let leases = fleet.acquire_many(2).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                if round % 2 == 0 {
                    thread::sleep(Duration::from_micros(u64::from(round)));
                }
                drop(leases);
            });
            let mut asked = vec![0; 4];
            let got = fleet
                .request()
                .matching(|entry| {
                    asked.push(entry.key);
                    entry.key == round % 2
                })
                .timeout(Duration::from_micros(100))
                .wait();
            asked.clear();
            drop(asked);
            if let Ok(lease) = got {
                assert_eq!(*lease.key(), round % 2);
            }
        });
        at_rest(&fleet);
    }
}
