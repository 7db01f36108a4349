//! Loads a gateway with its mock provider, and says whether everybody has counted the same. The report is JSON.

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use gateway::{
    load::{Plan, run},
    options::seconds,
};
use http::Uri;

/// Loads a gateway, and compares what clients, gateway and mock provider have counted.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Options {
    /// Where clients come in.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    gateway: Uri,
    /// Where operators look.
    #[arg(long, default_value = "http://127.0.0.1:8081")]
    admin: Uri,
    /// The mock provider.
    #[arg(long, default_value = "http://127.0.0.1:8082")]
    mock: Uri,
    /// For how long.
    #[arg(long, default_value = "60", value_parser = seconds)]
    seconds: Duration,
    /// Clients at once.
    #[arg(long, default_value = "32")]
    clients: usize,
    /// The seed of what they send.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Bytes of bodies that are to be refused; 0: none is sent.
    #[arg(long, default_value = "0")]
    too_large: usize,
    /// Send no nonsense, and do not leave before the end.
    #[arg(long)]
    behave: bool,
    /// The gateway is going to end: stop then, and compare nothing.
    #[arg(long)]
    until_end: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let report = run(Plan {
        gateway: options.gateway,
        admin: options.admin,
        mock: options.mock,
        duration: options.seconds,
        clients: options.clients,
        seed: options.seed,
        too_large: options.too_large,
        misbehave: !options.behave,
        until_end: options.until_end,
    })
    .await;
    match report {
        Ok(report) => {
            println!("{}", serde_json::to_string_pretty(&report).expect("numbers and names"));
            if report.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::from(2)
        }
    }
}
