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

use measure::{Figures, MUTEX, Operation, STRICT, transfer_time};
use model::{Model, fitted_turns};

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
    // The mutex is not of the facade: as many lines as of the strict order, which has one lock too.
    let model = |operation: &Operation, figures: &Figures, turns| Model {
        alone: figures.alone,
        transfer,
        moved: traffic.get(operation.traffic).expect("it was counted").clone(),
        turns,
        kind: operation.kind,
    };
    // Who holds a lock tends to get it again before another one comes: fitted for each of the two kinds of lock, to rows
    // in which all want one lock.
    let fitted = |name: &str| {
        let at = operations.iter().position(|operation| operation.name == name).expect("it is measured");
        fitted_turns(model(&operations[at], &figures[at], 1.0), figures[at].two)
    };
    let (own, mutex) = (fitted(STRICT), fitted(MUTEX));
    println!(
        "Of the lines counted in turns {own:.2} move with the library's locks, {mutex:.2} with the mutex (fitted).\n"
    );

    println!("| operation | 1 thread, ns | 2 threads, ns | predicted, ns | error |");
    println!("|---|---|---|---|---|");
    let mut models = Vec::new();
    for (operation, figures) in operations.iter().zip(&figures) {
        let model = model(operation, figures, if operation.name == MUTEX { mutex } else { own });
        let predicted = model.time(2);
        let error = match operation.name {
            STRICT | MUTEX => "fitted".to_owned(),
            _ => format!("{:+.0} %", 100.0 * (predicted / figures.two - 1.0)),
        };
        let Figures { alone, two } = figures;
        println!("| {} | {alone:.0} | {two:.0} | {predicted:.0} | {error} |", operation.name);
        models.push(model);
    }

    predict("the fitted share of the counted lines moves", &operations, &models);
    models.iter_mut().for_each(|model| model.turns = 1.0);
    predict("every counted line moves: threads take turns at each operation", &operations, &models);
    ExitCode::SUCCESS
}

fn predict(assumption: &str, operations: &[Operation], models: &[Model]) {
    let head: String = PROCESSORS.iter().map(|processors| format!(" {processors} |")).collect();
    println!(
        "\nPredicted if {assumption}: ns per operation and thread, and million operations a second of all.\n"
    );
    println!("| operation, processors: |{head}\n|---|{}", "---|".repeat(PROCESSORS.len()));
    for (operation, model) in operations.iter().zip(models) {
        let column = |&n: &usize| {
            let time = model.time(n);
            format!(" {time:.0}, {:.0} |", 1e3 * n as f64 / time)
        };
        println!("| {} |{}", operation.name, PROCESSORS.iter().map(column).collect::<String>());
    }
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
