//! What each strategy costs in order: how many eligible resources were strictly better than the one lent, on average and
//! at worst. One thread, leases kept until half of the fleet is out, many fleets.
//!
//! `--test`: one fleet of each.

use leasehold::{Scheduler, Strategy};
use leasehold_benches::{Asset, RESOURCES, fill};

const SHARDS: [usize; 4] = [1, 4, 8, 32];

const STRATEGIES: [fn() -> Strategy; 9] = [
    Strategy::default,
    || Strategy::Sticky { choices: 2, period: 32 },
    || Strategy::Sticky { choices: 2, period: 8 },
    || Strategy::Sticky { choices: 4, period: 8 },
    || Strategy::BestOf { choices: 2 },
    || Strategy::BestOf { choices: 4 },
    || Strategy::BestOf { choices: usize::MAX },
    || Strategy::RoundRobin,
    || Strategy::Adaptive,
];

/// What it is, and not what it is called: the default one changes.
fn name(strategy: &Strategy) -> String {
    match strategy {
        Strategy::Sticky { choices, period } => format!("sticky:{choices}:{period}"),
        Strategy::BestOf { choices: usize::MAX } => "best-of-all".to_owned(),
        Strategy::BestOf { choices } => format!("best-of:{choices}"),
        Strategy::RoundRobin => "round-robin".to_owned(),
        Strategy::Adaptive => "adaptive".to_owned(),
        other => format!("{other:?}"),
    }
}

fn main() {
    let fleets = if std::env::args().any(|argument| argument == "--test") { 1 } else { 40 };
    println!(
        "rank error, mean (greatest), {RESOURCES} resources; best-of:2 in theory 5n/6 - 1 + 1/(6n) for n shards\n"
    );
    print!("{:<12}", "shards");
    SHARDS.iter().for_each(|shards| print!(" {shards:>16}"));
    print!("\n{:<12}", "theory");
    for n in SHARDS.map(|shards| shards as f64) {
        print!(" {:>16.2}", 5.0 * n / 6.0 - 1.0 + 1.0 / (6.0 * n));
    }
    println!();
    for strategy in STRATEGIES {
        print!("{:<12}", name(&strategy()));
        for shards in SHARDS {
            let errors: Vec<u64> = (0..fleets).flat_map(|seed| errors(shards, strategy(), seed)).collect();
            let mean = errors.iter().sum::<u64>() as f64 / errors.len() as f64;
            let greatest = errors.iter().max().expect("there are some");
            print!(" {:>16}", format!("{mean:.2} ({greatest})"));
        }
        println!();
    }
}

/// The error of each acquisition until half of the fleet is out.
fn errors(shards: usize, strategy: Strategy, seed: u64) -> Vec<u64> {
    let builder = Scheduler::<Asset>::builder().shards(shards).strategy(strategy).seed(seed);
    let scheduler = fill(builder.build().expect("in range"), RESOURCES);
    let mut left: Vec<u64> =
        leasehold_benches::assets(RESOURCES).iter().map(|asset| asset.priority).collect();
    left.sort_unstable();
    let mut leases = Vec::new();
    (0..RESOURCES / 2)
        .map(|_| {
            let lease = scheduler.acquire().expect("one is free");
            let better = left.partition_point(|&rank| rank < lease.priority);
            left.remove(better);
            leases.push(lease);
            better as u64
        })
        .collect()
}
