//! The command line. docs/cli.md describes what the options mean together.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{
    choice::{self, Choice},
    compare, load, order, page, pressure, tune,
};

/// Shows the scheduler at work: replays request traces in virtual time, measures it, puts it under load, makes reports.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Replay a trace through the scheduler and report what became of it.
    Replay(Replay),
    /// Measure the scheduler against one mutex: nanoseconds per operation, side by side.
    Compare(compare::Compare),
    /// Show the members, claims and holds of a fleet that many processes share.
    #[cfg(feature = "cluster")]
    Cluster(crate::cluster::Cluster),
    /// Put schedulers under real load: threads and tasks that borrow, hold, fail and give up.
    Load(load::Load),
    /// One of the processes of `load --processes`, started by it.
    #[cfg(all(feature = "cluster", unix))]
    #[command(hide = true)]
    LoadProcess,
    /// Try settings on a workload, in virtual time and live, and recommend a builder's.
    Tune(tune::Tune),
    /// Measure what each strategy costs in order and gains in speed, for fleets of several sizes.
    Order(order::Order),
    /// Make one HTML page of results of the other commands.
    Report(page::Report),
    /// Put large jobs through a worker pool with a short queue, and tell how much memory that took.
    Pressure(pressure::Pressure),
    /// Print the built-in fleet file.
    Fleet,
}

#[derive(Args, Debug)]
pub struct Replay {
    /// Trace to replay, Azure or BurstGPT CSV; `-` is standard input. Without it: a built-in workload.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// Fleet file (TOML). Without it: the fleet that `leasehold fleet` prints.
    #[arg(long, value_name = "FILE")]
    pub fleet: Option<PathBuf>,

    #[arg(long = "strategy", value_name = "STRATEGY", help = strategy_help())]
    pub strategies: Vec<Choice>,

    /// Also replay the two yardsticks: `naive` (round robin, no priorities) and `mutex` (one lock, exact order).
    #[arg(long)]
    pub baseline: bool,

    /// Shards of the scheduler.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub shards: u32,

    /// Seed of everything random; the same seed gives the same output on every machine.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Trace seconds per simulated second: 2 doubles the load.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    pub speed: f64,

    /// Replay only the first N requests.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,

    /// How often a request is sent again after a failure or a "429".
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub max_retries: u32,

    /// How many requests may wait; those that arrive at a full line are rejected.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(0..=100_000_000))]
    pub max_queue: u32,

    /// Leave out rows that cannot be used, and count them, instead of stopping at the first.
    #[arg(long)]
    pub skip_bad_rows: bool,

    /// Form of the report.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Write the report to FILE instead of standard output (`-`): whole or not at all.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
    Csv,
}

fn strategy_help() -> String {
    format!("Who replays the trace, may be repeated: {} [default: sticky]", choice::SYNTAX)
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (1e-6..=1e6).contains(speed));
    speed.ok_or_else(|| "expected a number from 0.000001 to 1000000".to_owned())
}

impl Replay {
    /// Who replays, in the order of the report.
    pub fn choices(&self) -> Vec<Choice> {
        let mut choices = self.strategies.clone();
        if choices.is_empty() {
            choices.push(Choice::Sticky { choices: None, period: None });
        }
        if self.baseline {
            choices.extend(choice::BASELINES);
        }
        choices
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn speeds() {
        assert_eq!(speed("2"), Ok(2.0));
        for text in ["0", "-1", "nan", "inf", "x"] {
            assert!(speed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn baselines_come_last() {
        let cli = Cli::parse_from(["leasehold", "replay", "--baseline", "--strategy", "strict"]);
        let Command::Replay(replay) = cli.command else { panic!() };
        assert_eq!(replay.choices(), [Choice::Strict, Choice::Naive, Choice::Mutex]);
    }
}
