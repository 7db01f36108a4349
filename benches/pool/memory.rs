//! A million jobs of 500 KB each through a queue of 1,000.

use std::fs;

use leasehold::pool::{Job, Pool};

use crate::report::Report;

const JOBS: usize = 1_000_000;
const BYTES: usize = 500_000;

/// The most that was ever resident, in bytes, if the system says so.
fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1_024)
}

pub fn run(report: &mut Report) {
    let pool = Pool::<Vec<u8>>::builder().workers(2).capacity(1_000).build().expect("in range");
    for i in 0..JOBS {
        // Written to, so that it is resident.
        let payload = vec![1 + (i % 255) as u8; BYTES];
        let job = Job::new(payload, |bytes, _| {
            assert_eq!(bytes[BYTES / 2], bytes[0]);
            Ok(())
        });
        pool.submit(job).expect("open");
    }
    let _ = pool.shutdown(std::time::Duration::MAX);
    assert_eq!(pool.stats().done, JOBS as u64);
    match peak() {
        Some(peak) => {
            println!("{:<40} {:>8.3} GB", "resident, at most", peak as f64 / 1e9);
            report.bar("gigabytes resident", peak as f64 / 1e9, 1.0);
        }
        None => println!("the system does not say how much was resident"),
    }
}
