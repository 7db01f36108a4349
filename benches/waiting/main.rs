//! What waiting costs, and how fair it is, against bars: `cargo run --release --manifest-path benches/Cargo.toml --bin waiting`.
//!
//! Each number is a median over rounds in which the subjects take turns, so that what disturbs one disturbs all. A bar that does not
//! hold fails the run. Takes a few minutes; `waiting NAME...` runs only some of `uncontended`, `crowd`, `queue`.
//!
//! | part | workload |
//! |---|---|
//! | `uncontended` | one task, nobody waits: get and drop |
//! | `crowd` | 1,000 tasks over 50 resources, each held for 1 ms, 50 rounds each: the one of <https://github.com/djc/bb8/issues/243> |
//! | `queue` | 10,000 tasks over 4 resources, 20 rounds each |

mod crowd;
mod peers;
mod queue;
mod report;
mod uncontended;

use std::process::ExitCode;

use report::Report;

type Part = (&'static str, fn(&mut Report));

const PARTS: [Part; 3] = [("uncontended", uncontended::run), ("crowd", crowd::run), ("queue", queue::run)];

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = asked.iter().find(|name| PARTS.iter().all(|(part, _)| part != name)) {
        eprintln!("no part {unknown}: there are uncontended, crowd, queue");
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
