//! The result as rows: for a terminal, and as the table of docs/order-quality.md.

use super::{Cell, OrderResult};
use crate::page::count;

const HEADINGS: [&str; 12] = [
    "resources",
    "strategy",
    "rank error",
    "p99",
    "max",
    "5n/6 law",
    "delay",
    "p99",
    "max",
    "ns a pair",
    "time over sticky's",
    "million pairs/s",
];

fn row(cell: &Cell) -> [String; 12] {
    [
        count(f64::from(cell.resources)),
        cell.strategy.clone(),
        format!("{:.2}", cell.rank_error_mean),
        cell.rank_error_p99.to_string(),
        cell.rank_error_max.to_string(),
        format!("{:.2}", cell.law),
        format!("{:.2}", cell.delay_mean),
        cell.delay_p99.to_string(),
        cell.delay_max.to_string(),
        format!("{:.0}", cell.ns_per_pair),
        format!("{:.2}", cell.ratio_to_sticky),
        format!("{:.1}", cell.pairs_per_second / 1e6),
    ]
}

/// What made it.
fn settings(result: &OrderResult) -> String {
    format!(
        "{} shards, {} threads, {} samples, {} rounds, seed {}",
        result.shards,
        result.threads,
        count(f64::from(result.samples)),
        result.rounds,
        result.seed
    )
}

pub fn plain(result: &OrderResult) -> String {
    let line = |cells: [&str; 12]| {
        let mut line = format!("{:>10}  {:<16}", cells[0], cells[1]);
        cells[2..].iter().for_each(|cell| line += &format!("  {cell:>10}"));
        line + "\n"
    };
    let rows = result.cells.iter().map(|cell| line(row(cell).each_ref().map(String::as_str)));
    format!("{}\n\n{}{}", settings(result), line(HEADINGS), rows.collect::<String>())
}

/// To be put into the document as it is: the table, what made it, and what follows from it.
pub fn markdown(result: &OrderResult) -> String {
    let rows = result.cells.iter().map(|cell| format!("| {} |\n", row(cell).join(" | ")));
    format!(
        "| {} |\n|{}\n{}\n{}.\n{}",
        HEADINGS.join(" | "),
        "---|".repeat(HEADINGS.len()),
        rows.collect::<String>(),
        settings(result),
        dominated(result).iter().map(|line| format!("\n* {line}\n")).collect::<String>()
    )
}

/// Who is to be chosen on no fleet that was measured: somebody else's order is as good and its time less, on each of them.
fn dominated(result: &OrderResult) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for cell in &result.cells {
        if !names.contains(&cell.strategy.as_str()) {
            names.push(&cell.strategy);
        }
    }
    let of =
        |name: &str| -> Vec<&Cell> { result.cells.iter().filter(|cell| cell.strategy == name).collect() };
    let beats = |better: &str, name: &str| {
        let pairs: Vec<_> = of(better).into_iter().zip(of(name)).collect();
        pairs
            .iter()
            .all(|(a, b)| a.rank_error_mean <= b.rank_error_mean && a.ratio_to_sticky < b.ratio_to_sticky)
    };
    names
        .iter()
        .filter_map(|name| {
            let better = names.iter().find(|better| *better != name && beats(better, name))?;
            Some(format!("Nothing speaks for `{name}` here: `{better}` has as good an order in less time, at every size."))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(resources: u32, strategy: &str, rank_error_mean: f64, ratio_to_sticky: f64) -> Cell {
        Cell {
            resources,
            strategy: strategy.into(),
            rank_error_mean,
            rank_error_p99: 9,
            rank_error_max: 10,
            delay_mean: 1.5,
            delay_p99: 7,
            delay_max: 8,
            law: 5.6875,
            ns_per_pair: 170.4,
            pairs_per_second: 1e7,
            ratio_to_sticky,
        }
    }

    fn result(cells: Vec<Cell>) -> OrderResult {
        OrderResult {
            schema: 1,
            kind: "order".into(),
            shards: 8,
            threads: 2,
            samples: 100_000,
            rounds: 9,
            milliseconds: Some(50),
            seed: 1,
            cells,
        }
    }

    #[test]
    fn the_table_goes_into_the_document_as_it_is() {
        let text = markdown(&result(vec![cell(10_000, "sticky", 2.5, 1.0)]));
        assert_eq!(
            text,
            "| resources | strategy | rank error | p99 | max | 5n/6 law | delay | p99 | max | ns a pair | time over sticky's | million pairs/s |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|\n\
             | 10,000 | sticky | 2.50 | 9 | 10 | 5.69 | 1.50 | 7 | 8 | 170 | 1.00 | 10.0 |\n\n\
             8 shards, 2 threads, 100,000 samples, 9 rounds, seed 1.\n"
        );
    }

    /// What is slower and no better than another one, at every size, is not to be chosen; at one size alone it may be.
    #[test]
    fn what_nothing_speaks_for_is_said() {
        let mut cells = vec![
            cell(100, "best-of:4", 1.0, 1.5),
            cell(100, "strict", 0.0, 1.4),
            cell(100, "sticky", 9.0, 1.0),
            cell(10_000, "best-of:4", 1.0, 1.9),
            cell(10_000, "strict", 0.0, 1.5),
            cell(10_000, "sticky", 9.0, 1.0),
        ];
        let text = markdown(&result(cells.clone()));
        assert_eq!(text.matches("Nothing speaks for").count(), 1, "{text}");
        assert!(text.contains("for `best-of:4` here: `strict` has"), "{text}");
        cells[3].ratio_to_sticky = 1.2;
        assert!(!markdown(&result(cells)).contains("Nothing speaks for"));
    }
}
