//! How operations scale with the number of processors, by a small queueing model that is checked here at two threads and
//! then asked about machines that are not here. `benches/scaling` runs it after `traffic`, whose counts it needs.
//! docs/scaling.md says what the model assumes.
//!
//! ```sh
//! queueing TRAFFIC.tsv
//! ```

mod measure;
mod model;

use std::{collections::BTreeMap, process::ExitCode};

use measure::{Figures, transfer_time};
use model::Model;

/// Lines moved for each operation, by the number of threads.
type Moved = BTreeMap<usize, f64>;

const PROCESSORS: [usize; 6] = [2, 8, 16, 32, 64, 128];

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: queueing TRAFFIC.tsv");
        return ExitCode::FAILURE;
    };
    let text = std::fs::read_to_string(&path).expect("the counts can be read");
    let traffic = parse(&text);
    let transfer = transfer_time();
    println!(
        "A line goes from one core to the other and back in {:.0} ns: {transfer:.0} ns a transfer.\n",
        2.0 * transfer
    );

    let operations = measure::operations();
    let figures: Vec<Figures> = operations.iter().map(Figures::of).collect();
    println!("| operation | 1 thread, ns | 2 threads, ns | predicted, ns | error |");
    println!("|---|---|---|---|---|");
    let mut models = Vec::new();
    for (operation, figures) in operations.iter().zip(&figures) {
        let moved = match operation.traffic {
            Some(name) => traffic.get(name).unwrap_or_else(|| panic!("no counts of {name}")).clone(),
            // Not of the facade: as many lines as explain the second thread.
            None => model::fitted(figures, transfer),
        };
        let model = Model { alone: figures.alone, transfer, moved, kind: operation.kind };
        let predicted = model.time(2);
        let error = 100.0 * (predicted / figures.two - 1.0);
        let note = if operation.traffic.is_none() { " (fitted)" } else { "" };
        println!(
            "| {} | {:.0} | {:.0} | {predicted:.0} | {error:+.0} %{note} |",
            operation.name, figures.alone, figures.two
        );
        models.push(model);
    }

    let head: String = PROCESSORS.iter().map(|processors| format!(" {processors} |")).collect();
    println!("\nPredicted, ns per operation and thread, a thread on each of so many processors:\n");
    println!("| operation |{head}\n|---|{}", "---|".repeat(PROCESSORS.len()));
    for (operation, model) in operations.iter().zip(&models) {
        let times: String = PROCESSORS.iter().map(|&n| format!(" {:.0} |", model.time(n))).collect();
        println!("| {} |{times}", operation.name);
    }
    println!("\nPredicted, million operations per second of all threads:\n");
    println!("| operation |{head}\n|---|{}", "---|".repeat(PROCESSORS.len()));
    for (operation, model) in operations.iter().zip(&models) {
        let rates: String =
            PROCESSORS.iter().map(|&n| format!(" {:.0} |", 1e3 * n as f64 / model.time(n))).collect();
        println!("| {} |{rates}", operation.name);
    }
    ExitCode::SUCCESS
}

/// Columns: operation, threads, shards, read-modify-writes, stores, loads, lines moved, and others.
fn parse(text: &str) -> BTreeMap<&str, Moved> {
    let mut traffic = BTreeMap::<&str, Moved>::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let moved = fields[6].parse().expect("a number");
        traffic.entry(fields[0]).or_default().insert(fields[1].parse().expect("a number"), moved);
    }
    traffic
}
