//! One holder at a time, also under many threads; and tokens, for leases that leave the process's types.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use leasehold::{Entry, ReleaseError, Scheduler};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const GPUS: u32 = 3;
    let gpus = Scheduler::<Entry<u32, u32, &str>>::builder().build()?;
    gpus.insert_batch((0..GPUS).map(|i| Entry::new(i, 0, "gpu")).collect())?;

    // Whoever holds a device sets its flag, and must find it clear.
    let busy: HashMap<u32, AtomicBool> = (0..GPUS).map(|i| (i, AtomicBool::new(false))).collect();
    let done: u32 = thread::scope(|scope| {
        let worker = || {
            let mut done = 0;
            while done < 1_000 {
                let Ok(gpu) = gpus.acquire() else {
                    thread::yield_now();
                    continue;
                };
                let flag = &busy[gpu.key()];
                assert!(!flag.swap(true, Ordering::Relaxed), "two holders of one device");
                flag.store(false, Ordering::Relaxed);
                done += 1;
            }
            done
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(gpus.stats().returned, u64::from(done));

    // A token is a lease as 16 bytes: it crosses a queue or a process boundary, and is good for one return.
    let token = gpus.acquire()?.into_token();
    let sent = token.to_string();
    let received = sent.parse()?;
    gpus.release(received)?;
    assert!(matches!(gpus.release(token), Err(ReleaseError::Stale { .. })), "the second return is refused");
    assert_eq!(gpus.stats().in_flight, 0);
    println!("{done} leases by 8 threads on {GPUS} devices, one holder each");
    Ok(())
}
