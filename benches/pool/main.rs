//! The worker pool against its peers, with bars: `cargo run --release --manifest-path benches/Cargo.toml --bin pool`.
//!
//! Each number is a median over rounds in which the subjects take turns, so that what disturbs one disturbs all. A bar that does not
//! hold fails the run. `pool NAME...` runs only some parts.
//!
//! | part | workload |
//! |---|---|
//! | `jobs` | one producer, empty jobs, from the first submission to the end of the last job: this pool with 2 and 16 workers, without a bound as the others are, and with its default one, against rayon, threadpool, rusty_pool; and with 4 and 16 producers |
//! | `queue` | the queue alone, one producer and one consumer: by one and in batches, against crossbeam's bounded channel, with room for all and for 1,000, and `SegQueue` |
//! | `lone` | one job at a time into an idle pool, from the submission to its start, against a receiver that sleeps in a crossbeam channel |
//! | `memory` | a million jobs of 500 KB through a queue of 1,000: the most that is resident |

mod jobs;
mod lone;
mod memory;
mod queue;
#[path = "../waiting/report.rs"]
#[allow(dead_code)]
mod report;

use std::process::ExitCode;

use report::Report;

type Part = (&'static str, fn(&mut Report));

const PARTS: [Part; 4] =
    [("jobs", jobs::run), ("queue", queue::run), ("lone", lone::run), ("memory", memory::run)];

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = asked.iter().find(|name| PARTS.iter().all(|(part, _)| part != name)) {
        eprintln!("no part {unknown}: there are jobs, queue, lone, memory");
        return ExitCode::FAILURE;
    }
    let mut report = Report::default();
    for (name, run) in PARTS {
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            println!("## {name}\n");
            run(&mut report);
            println!();
        }
    }
    report.verdict()
}
