//! The command-line tool: shows the scheduler at work on real request traces.

// The model checkers never run this program: what it takes from `std` hides nothing from them.
#![allow(clippy::disallowed_types)]

mod choice;
mod cli;
mod compare;
mod error;
mod fleet;
mod output;
mod pressure;
mod progress;
mod replay;
mod report;
mod simulate;
mod subjects;
mod trace;

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
