//! Threads that wait for a few connections: in order, with a deadline, and with one in a hurry.

use std::{sync::Mutex, thread, time::Duration};

use leasehold::{Entry, Scheduler, WaitError};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let connections = Scheduler::<Entry<u32, u32, &str>>::builder().build()?;
    connections.insert(Entry::new(1, 0, "db:5432"))?;
    let lease = connections.acquire()?;
    let served = Mutex::new(Vec::new());

    thread::scope(|scope| {
        // Each stands in the queue before the next one comes.
        for (number, class) in [(0, 0), (1, 0), (2, 9)] {
            let before = connections.stats().waits.waited;
            let (connections, served) = (&connections, &served);
            scope.spawn(move || {
                let lease = connections.request().class(class).wait().expect("open");
                served.lock().expect("no panic").push(number);
                drop(lease);
            });
            while connections.stats().waits.waited == before {
                thread::yield_now();
            }
        }
        // Nobody waits longer than he wants to.
        let impatient = connections.acquire_timeout(Duration::from_millis(5));
        assert!(matches!(impatient, Err(WaitError::TimedOut { .. })));
        // Handed to the first in the queue: no passer-by can have it.
        drop(lease);
    });

    let served = served.into_inner()?;
    assert_eq!(served, [2, 0, 1], "the higher class first, then in order of arrival");
    let waits = connections.stats().waits;
    assert_eq!((waits.handed_off, waits.timed_out), (3, 1));
    println!("served in the order {served:?}, one timed out");
    Ok(())
}
