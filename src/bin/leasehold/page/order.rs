//! What `order` has measured: order against speed, a curve for each size of fleet.

use std::collections::BTreeMap;

use super::{
    chart::{self, Axis, Line},
    html::{best_of, facts},
    table::{Cell, count, digits, table},
};
use crate::order::{Cell as Measured, OrderResult};

pub fn html(order: &OrderResult) -> String {
    let mut sizes: Vec<u32> = order.cells.iter().map(|cell| cell.resources).collect();
    sizes.dedup();
    let line = |&size: &u32, lost: fn(&Measured) -> f64| {
        let of_size = order.cells.iter().filter(|cell| cell.resources == size);
        let point = |cell: &Measured| {
            let at = (cell.pairs_per_second / 1e6, lost(cell).max(0.01).log10());
            (at, cell.strategy.clone())
        };
        let told =
            of_size.clone().map(|cell| [digits(cell.pairs_per_second / 1e6), digits(lost(cell))]).collect();
        // What looks at d shards, from one to all, is a curve; what stays on its shard has another place.
        let mut joined: Vec<(u32, usize)> = of_size
            .clone()
            .zip(0..)
            .filter_map(|(cell, place)| looks_at(&cell.strategy).map(|d| (d, place)))
            .collect();
        joined.sort_unstable();
        let joined = joined.into_iter().map(|(_, place)| place).collect();
        let (points, labels): (Vec<_>, Vec<_>) = of_size.map(point).unzip();
        Line { name: format!("{} resources", count(f64::from(size))), points, labels, joined, told }
    };
    let lines = |lost: fn(&Measured) -> f64| sizes.iter().map(|size| line(size, lost)).collect::<Vec<Line>>();
    let x = Axis {
        title: "million acquisitions and returns a second".into(),
        label: digits,
        is_logarithm: false,
    };
    let logarithm =
        |title: &str| Axis { title: title.into(), label: |log| digits(10f64.powf(log)), is_logarithm: true };
    let note = "Each point is a strategy, and the line goes from one random shard that is looked at to all of them; 0.01 is drawn for none at all. To the right is faster, further down is better order.";
    let y = logarithm("mean rank error, resources");
    let mut figure =
        chart::lines("Order against throughput", note, &x, &y, &lines(|cell| cell.rank_error_mean));
    figure.table = everything(order);
    let note = "How many worse ones were lent while a resource could be had; 0.01 is drawn for none at all. Its mean is near that of the rank errors, its \
                tail is not: whoever waits in a shard that nobody looks at waits long.";
    let y = logarithm("delay of 99 % at most, worse ones lent first");
    let delay = chart::lines("Delay against throughput", note, &x, &y, &lines(|cell| cell.delay_p99 as f64));
    let length = order.milliseconds.map_or_else(|| "not told".to_owned(), |length| format!("{length} ms"));
    let settings = [
        ("shards", order.shards.to_string()),
        ("threads", order.threads.to_string()),
        ("samples", count(f64::from(order.samples))),
        ("rounds", format!("{} of {length} each", order.rounds)),
        ("seed", order.seed.to_string()),
    ];
    facts(&settings.map(|(name, value)| (name.to_owned(), value))) + &figure.html() + &delay.html()
}

/// At how many random shards `best-of:d` looks each time; `strict` is all of them.
fn looks_at(strategy: &str) -> Option<u32> {
    match strategy {
        "strict" => Some(u32::MAX),
        other => other.strip_prefix("best-of:")?.parse().ok(),
    }
}

/// All numbers. The best of each fleet is marked, column by column.
fn everything(order: &OrderResult) -> String {
    /// A heading, the number below it, and how it is shown. Less is better in all of them; of the law there is no better.
    type Column = (&'static str, fn(&Measured) -> f64, fn(f64) -> String);
    const LAW: &str = "5n/6 law";
    const COLUMNS: [Column; 9] = [
        ("ns a pair", |cell| cell.ns_per_pair, digits),
        ("time over sticky's", |cell| cell.ratio_to_sticky, |ratio| format!("{ratio:.2}")),
        ("rank error", |cell| cell.rank_error_mean, digits),
        ("p99", |cell| cell.rank_error_p99 as f64, count),
        ("max", |cell| cell.rank_error_max as f64, count),
        (LAW, |cell| cell.law, digits),
        ("delay", |cell| cell.delay_mean, digits),
        ("delay p99", |cell| cell.delay_p99 as f64, count),
        ("delay max", |cell| cell.delay_max as f64, count),
    ];
    let mut fleets: BTreeMap<u32, Vec<&Measured>> = BTreeMap::new();
    for cell in &order.cells {
        fleets.entry(cell.resources).or_default().push(cell);
    }
    let best: BTreeMap<u32, [Option<f64>; 9]> = fleets
        .iter()
        .map(|(&resources, cells)| {
            let of_column = |(heading, number, _): Column| {
                best_of(cells.iter().map(|&cell| number(cell)), true).filter(|_| heading != LAW)
            };
            (resources, COLUMNS.map(of_column))
        })
        .collect();
    let rows = order.cells.iter().map(|cell| {
        let numbers = COLUMNS.iter().zip(best[&cell.resources]).map(|(&(_, number, shown), best)| Cell {
            text: shown(number(cell)),
            best: best == Some(number(cell)),
        });
        let name = format!("{}, {}", count(f64::from(cell.resources)), cell.strategy);
        [Cell::from(name)].into_iter().chain(numbers).collect()
    });
    let headings: Vec<&str> =
        ["fleet, strategy"].into_iter().chain(COLUMNS.iter().map(|(heading, ..)| *heading)).collect();
    table(&headings, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_goes_from_one_shard_to_all() {
        let names = ["best-of:1", "best-of:16", "strict", "sticky", "round-robin", "best-of:x"];
        assert_eq!(names.map(looks_at), [Some(1), Some(16), Some(u32::MAX), None, None, None]);
    }
}
