//! The command-line tool: shows the scheduler at work on real request traces.

// The model checkers never run this program: what it takes from `std` hides nothing from them.
#![allow(clippy::disallowed_types)]

mod choice;
mod cli;
#[cfg(feature = "cluster")]
mod cluster;
mod compare;
mod error;
mod fleet;
mod load;
mod order;
mod output;
mod page;
mod pressure;
mod progress;
mod replay;
mod report;
mod simulate;
mod subjects;
mod trace;
mod tune;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;

use crate::{cli::Command, output::Output};

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
        Command::Replay(options) => replay::replay(&options).map(|()| ExitCode::SUCCESS),
        Command::Compare(options) => compare::compare(&options),
        #[cfg(feature = "cluster")]
        Command::Cluster(options) => cluster::cluster(&options).map(|()| ExitCode::SUCCESS),
        Command::Load(options) => load::load(&options),
        #[cfg(all(feature = "cluster", unix))]
        Command::LoadProcess => load::processes::member(),
        Command::Tune(options) => tune::tune(&options),
        Command::Order(options) => order::order(&options).map(|()| ExitCode::SUCCESS),
        Command::Report(options) => page::report(&options).map(|()| ExitCode::SUCCESS),
        Command::Pressure(options) => pressure::pressure(&options),
        Command::Fleet => Output::Stdout.write(fleet::DEFAULT).map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            // Standard error may be closed as well; there is nobody left to tell.
            let _ = writeln!(io::stderr(), "leasehold: {error}");
            ExitCode::from(error::EXIT_CODE)
        }
    }
}
