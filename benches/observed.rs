//! What it costs to be watched: acquisitions and returns with the feature `telemetry`, unobserved; with one out of 1,024 looked at for its
//! order; and with an event for each. `benches/instructions` runs them under callgrind, which counts what is done in `pairs`, and holds one
//! against the other.

use std::{hint::black_box, process::ExitCode};

use leasehold::Scheduler;
use leasehold_benches::{Asset, RESOURCES, SHARDS, fill};

/// One acquisition out of so many is looked at.
const SAMPLE: u32 = 1_024;
/// Shards of the case whose name ends in `-64`: a look reads what each of them shows.
const MANY_SHARDS: usize = 64;
/// As many samples, so that each is in the count by its share.
const SAMPLES: u32 = 64;

#[inline(never)]
fn pairs(fleet: &Scheduler<Asset>, times: u32) {
    for _ in 0..times {
        black_box(fleet.acquire().expect("one is free").value);
    }
}

/// Everything that is done once for each thread or scheduler, before anything is counted.
#[inline(never)]
fn warm_up(fleet: &Scheduler<Asset>) {
    for _ in 0..2 * SAMPLE {
        drop(black_box(fleet.acquire()));
    }
}

fn main() -> ExitCode {
    let case = std::env::args().nth(1).unwrap_or_default();
    let (what, shards) = case.strip_suffix("-64").map_or((&case[..], SHARDS), |what| (what, MANY_SHARDS));
    let builder = || Scheduler::builder().shards(shards).seed(1);
    let builder = match what {
        "unobserved" => builder(),
        "sampled" => builder().measure_order(SAMPLE),
        // Room for all of them: to drop one is cheaper. Nobody takes them out meanwhile, whose instructions would be another thread's.
        "events" => builder().event_capacity(4 * (SAMPLES * SAMPLE) as usize),
        _ => {
            eprintln!("usage: observed unobserved|sampled|events[-64]");
            return ExitCode::from(2);
        }
    };
    let fleet = fill(builder.build().expect("in range"), RESOURCES);
    warm_up(&fleet);
    pairs(&fleet, SAMPLES * SAMPLE);
    // It did what it is to be paid for.
    let looks = fleet.telemetry().map_or(0, |telemetry| telemetry.rank_errors.count());
    println!("{looks} looked at");
    let stats = fleet.stats();
    println!("{} recorded, {} dropped", stats.events_emitted, stats.events_dropped);
    ExitCode::SUCCESS
}
