//! A batch processor: a hundred thousand records through a few workers, failures counted, with a progress bar. The queue is bounded, so
//! the reader never runs ahead of the workers by more than its capacity.
//!
//! ```sh
//! cargo run --example pool_batch --features pool
//! ```

use std::{
    io::{self, Write},
    time::Duration,
};

use leasehold::pool::{EndingKind, Job, Pool};

const RECORDS: u64 = 100_000;
const WIDTH: u64 = 40;

/// One of a thousand is malformed.
fn process(record: u64) -> Result<u64, String> {
    if record % 1_000 == 999 {
        return Err(format!("record {record} is malformed"));
    }
    Ok((0..50).fold(record, |sum, i| sum.wrapping_mul(31).wrapping_add(i)))
}

fn show(done: u64) -> io::Result<()> {
    let filled = (done * WIDTH / RECORDS) as usize;
    let bar = format!("{}{}", "#".repeat(filled), ".".repeat(WIDTH as usize - filled));
    eprint!("\r[{bar}] {done} of {RECORDS}");
    io::stderr().flush()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::<u64>::builder()
        .workers(2)
        .capacity(1_000)
        .on_failure(|record, _| debug_assert!(record % 1_000 == 999))
        .build()?;

    let last = RECORDS - 1;
    for record in 0..last {
        // Waits while a thousand records are ahead.
        pool.submit(Job::new(record, |record, _| {
            std::hint::black_box(process(*record)?);
            Ok(())
        }))?;
        if record % 5_000 == 0 {
            let stats = pool.stats();
            show(stats.done + stats.failed)?;
        }
    }
    // The last one is waited for by itself.
    let job = Job::new(last, |record: &mut u64, _| {
        process(*record)?;
        Ok(())
    });
    let (job, handle) = job.with_handle();
    pool.submit(job)?;
    assert_eq!(handle.wait().ending.kind(), EndingKind::Failed);

    assert!(pool.shutdown(Duration::from_secs(60)).is_complete());
    let stats = pool.stats();
    show(stats.done + stats.failed)?;
    eprintln!();
    println!("{} processed, {} malformed", stats.done, stats.failed);
    assert_eq!((stats.done, stats.failed), (RECORDS - RECORDS / 1_000, RECORDS / 1_000));
    Ok(())
}
