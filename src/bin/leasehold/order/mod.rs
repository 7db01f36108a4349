//! `leasehold order`: what each strategy costs in order, and what it gains in speed, for fleets of several sizes.
//!
//! * [`exact`]: rank errors and delays against an exact view of the fleet, one thread, in a steady state.
//! * [`speed`]: acquisitions and returns a second, all processors, strategies in turns.
//! * [`table`]: what is told, for a terminal and as the table of docs/order-quality.md.

mod exact;
mod speed;
mod table;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use leasehold::{Entry, Scheduler};
use serde::{Deserialize, Serialize};

use crate::{
    choice::Choice,
    error::{Error, Result},
    load::processors,
    output::Output,
};

#[derive(Args, Debug)]
pub struct Order {
    /// Sizes of fleets.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100,10000,1000000",
        value_parser = clap::value_parser!(u32).range(8..=4_000_000))]
    pub resources: Vec<u32>,

    /// Who is measured; `sticky` is always among them.
    #[arg(long = "strategy", value_name = "STRATEGY",
        default_values = ["best-of:1", "best-of:2", "best-of:4", "strict", "sticky"])]
    pub strategies: Vec<Choice>,

    /// Shards of the scheduler.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub shards: u32,

    /// Acquisitions whose rank error is looked at.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    pub samples: u32,

    /// How often each strategy's speed is measured, in turns.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,

    /// Length of each of these measurements.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub milliseconds: u64,

    /// Seed of everything that is drawn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Form of the result.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Write the result to FILE instead of standard output (`-`): whole or not at all.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
    /// For a document.
    Markdown,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct OrderResult {
    pub schema: u32,
    pub kind: String,
    pub shards: u32,
    pub threads: u32,
    pub samples: u32,
    pub rounds: u32,
    /// Of each measurement of speed. Older results do not tell.
    #[serde(default)]
    pub milliseconds: Option<u64>,
    pub seed: u64,
    pub cells: Vec<Cell>,
}

/// A strategy on a fleet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    pub resources: u32,
    pub strategy: String,
    pub rank_error_mean: f64,
    pub rank_error_p99: u64,
    pub rank_error_max: u64,
    /// How many worse ones were lent while a resource could be had, for each that was lent.
    #[serde(default)]
    pub delay_mean: f64,
    #[serde(default)]
    pub delay_p99: u64,
    #[serde(default)]
    pub delay_max: u64,
    /// What best-of-two has in theory.
    pub law: f64,
    /// Of one thread, while all run: the median of the rounds.
    pub ns_per_pair: f64,
    /// Of all threads together.
    pub pairs_per_second: f64,
    /// The time over that of `sticky` in the same round, the median: what counts on another machine.
    pub ratio_to_sticky: f64,
}

/// The mean rank error of the best of two random queues out of n: 5n/6 - 1 + 1/(6n); docs/benchmarks.md, Order.
pub fn law(shards: u32) -> f64 {
    let n = f64::from(shards);
    5.0 * n / 6.0 - 1.0 + 1.0 / (6.0 * n)
}

/// What is lent: ranks are all different.
type Item = Entry<u32, u32, ()>;
type Fleet = Scheduler<Item>;

pub fn order(options: &Order) -> Result<()> {
    let output = Output::open(options.out.as_deref(), &[])?;
    let sticky = Choice::Sticky { choices: None, period: None };
    let mut choices = options.strategies.clone();
    if !choices.contains(&sticky) {
        choices.push(sticky.clone());
    }
    let mut cells = Vec::new();
    for &resources in &options.resources {
        let fleets =
            choices.iter().map(|choice| build(choice, options, resources)).collect::<Result<Vec<_>>>()?;
        // First, while the fleets are as they were made: what the threads of the second part leave behind (places in the heaps, the order
        // in which their draws begin) depends on the machine.
        let qualities: Vec<_> = fleets
            .iter()
            .map(|fleet| exact::measure(fleet, resources, options.samples, options.seed))
            .collect();
        let speeds = speed::measure(&fleets, options.rounds, options.milliseconds);
        let base = choices.iter().position(|choice| *choice == sticky).expect("it is among them");
        for (index, (choice, quality)) in choices.iter().zip(qualities).enumerate() {
            let exact::Quality { errors, delays } = quality;
            cells.push(Cell {
                resources,
                strategy: choice.to_string(),
                rank_error_mean: errors.mean,
                rank_error_p99: errors.p99,
                rank_error_max: errors.max,
                delay_mean: delays.mean,
                delay_p99: delays.p99,
                delay_max: delays.max,
                law: law(options.shards),
                ns_per_pair: speeds.nanos(index),
                pairs_per_second: speeds.per_second(index),
                ratio_to_sticky: speeds.ratio(index, base),
            });
        }
    }
    let result = OrderResult {
        schema: 1,
        kind: "order".into(),
        shards: options.shards,
        threads: processors(),
        samples: options.samples,
        rounds: options.rounds,
        milliseconds: Some(options.milliseconds),
        seed: options.seed,
        cells,
    };
    output.write(&match options.format {
        Format::Json => serde_json::to_string_pretty(&result).expect("plain values always serialise") + "\n",
        Format::Table => table::plain(&result),
        Format::Markdown => table::markdown(&result),
    })
}

fn build(choice: &Choice, options: &Order, resources: u32) -> Result<Fleet> {
    let strategy = choice.strategy(options.shards).ok_or_else(|| {
        Error::Options(format!("--strategy: expected one of the scheduler's, found {choice}"))
    })?;
    let builder = Fleet::builder()
        .shards(options.shards as usize)
        .strategy(strategy)
        .seed(options.seed)
        .expected_resources(resources as usize);
    let fleet = builder.build().map_err(|error| Error::Options(format!("strategy {choice}: {error}")))?;
    // Keys are dealt to the shards in their order; ranks must not be in that order too.
    let ranks = exact::permutation(resources, options.seed);
    let items = ranks.iter().zip(0..).map(|(&rank, key)| Item::new(key, rank, ())).collect();
    fleet.insert_batch(items).map_err(|_| Error::Options(format!("strategy {choice}: refused the fleet")))?;
    Ok(fleet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_law() {
        assert!((law(1)).abs() < 1e-12, "one queue has no error");
        assert!((law(8) - 5.6875).abs() < 1e-3, "{}", law(8));
    }
}
