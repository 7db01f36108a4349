//! The document: a section for each result, with its charts.

use super::{
    chart::{self, Axis, Figure, Line},
    input::Input,
    section::{Quantiles, Row, Section},
    table::{Cell, count, digits, escape, span, table},
};
use crate::order::OrderResult;

const STYLE: &str = include_str!("style.css");

pub fn page(title: &str, inputs: &[Input]) -> String {
    let title = escape(title);
    let mut body = format!("<h1>{title}</h1>\n");
    let names: Vec<String> = inputs
        .iter()
        .map(|input| match input {
            Input::Section(section) => section.title.clone(),
            Input::Order(_) => "order against throughput".into(),
            Input::Compare(_) => "bars and baselines".into(),
            Input::Tune(tune) => format!("settings for {}", tune.workload),
            Input::Pressure(_) => "back-pressure".into(),
        })
        .collect();
    let links: String = names
        .iter()
        .enumerate()
        .map(|(index, name)| format!("<li><a href=\"#r{index}\">{}</a></li>", escape(name)))
        .collect();
    body += &format!("<nav aria-label=\"results\"><ul>{links}</ul></nav>\n");
    for (index, (input, name)) in inputs.iter().zip(&names).enumerate() {
        body += &format!("<section id=\"r{index}\"><h2>{}</h2>\n", escape(name));
        match input {
            Input::Section(section) => body += &of_section(section),
            Input::Order(order) => body += &of_order(order),
            Input::Compare(compare) => body += &compare.html(),
            Input::Tune(tune) => body += &tune.html(),
            Input::Pressure(pressure) => body += &pressure.html(),
        }
        body += "</section>\n";
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

fn of_section(section: &Section) -> String {
    let mut html = String::new();
    if section.partial {
        html += "<p class=\"bad\">Partial: the run was interrupted. What is here is what there was until then.</p>\n";
    }
    if section.virtual_time {
        html += "<p class=\"faint\">In virtual time: nothing here depends on a machine.</p>\n";
    }
    html += &facts(&section.facts);
    for row in &section.rows {
        for fault in &row.faults {
            html += &format!("<p class=\"bad\">{}: {}</p>\n", escape(&row.name), escape(fault));
        }
    }
    if !section.rows.is_empty() {
        html += "<h3>Side by side</h3>\n";
        html += &strategies(&section.rows);
    }
    section.rows.iter().for_each(|row| html += &processes(row));
    for (name, reason) in &section.unfit {
        html += &format!("<p class=\"faint\">{} was not measured: {}</p>\n", escape(name), escape(reason));
    }
    figures(section).iter().for_each(|figure| html += &figure.html());
    if let Some(settings) = &section.settings {
        html += &format!(
            "<details><summary>The settings that made it</summary><pre>{}</pre></details>\n",
            escape(settings)
        );
    }
    html
}

/// What is known beside the tables and charts.
pub fn facts(facts: &[(String, String)]) -> String {
    let pairs =
        facts.iter().map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value)));
    format!("<dl>{}</dl>\n", pairs.collect::<String>())
}

/// A column of the table of strategies: its number, if there is one, how it is shown, and whether less of it is better;
/// `None`: neither is.
struct Column {
    heading: &'static str,
    number: fn(&Row) -> Option<f64>,
    shown: fn(f64) -> String,
    less_is_better: Option<bool>,
}

static COLUMNS: [Column; 16] = [
    Column {
        heading: "completed a second",
        number: |row| row.throughput,
        shown: rate,
        less_is_better: Some(false),
    },
    Column {
        heading: "waiting p50",
        number: |row| of(row.waits, |waits| waits.p50),
        shown: span,
        less_is_better: Some(true),
    },
    Column {
        heading: "p99",
        number: |row| of(row.waits, |waits| waits.p99),
        shown: span,
        less_is_better: Some(true),
    },
    Column {
        heading: "p99.9",
        number: |row| of(row.waits, |waits| waits.p99_9),
        shown: span,
        less_is_better: Some(true),
    },
    Column {
        heading: "longest",
        number: |row| of(row.waits, |waits| waits.max),
        shown: span,
        less_is_better: Some(true),
    },
    Column {
        heading: "latency p99",
        number: |row| of(row.latencies, |latencies| latencies.p99),
        shown: span,
        less_is_better: Some(true),
    },
    // What an open loop would hide if it measured from there.
    Column {
        heading: "latency p99 from sending",
        number: |row| of(row.uncorrected, |latencies| latencies.p99),
        shown: span,
        less_is_better: None,
    },
    Column {
        heading: "held p50",
        number: |row| of(row.held, |held| held.p50),
        shown: span,
        less_is_better: None,
    },
    Column {
        heading: "of that delay p50",
        number: |row| of(row.delay, |delay| delay.p50),
        shown: span,
        less_is_better: None,
    },
    // What the figures owe to the tool.
    Column {
        heading: "tool late p99",
        number: |row| of(row.late, |late| late.p99),
        shown: span,
        less_is_better: None,
    },
    Column {
        heading: "rank error",
        number: |row| row.rank.as_ref().map(|rank| rank.mean),
        shown: digits,
        less_is_better: Some(true),
    },
    Column { heading: "fairness", number: |row| Some(row.fairness), shown: digits, less_is_better: None },
    Column {
        heading: "refused",
        number: |row| Some(row.refused as f64),
        shown: count,
        less_is_better: Some(true),
    },
    Column { heading: "failed", number: |row| Some(row.failed as f64), shown: count, less_is_better: None },
    Column {
        heading: "cancelled",
        number: |row| row.cancelled.map(|count| count as f64),
        shown: count,
        less_is_better: None,
    },
    Column {
        heading: "unsent",
        number: |row| row.unsent.map(|count| count as f64),
        shown: count,
        less_is_better: Some(true),
    },
];

/// Whole numbers where they tell enough.
fn rate(value: f64) -> String {
    if value < 100.0 { digits(value) } else { count(value) }
}

fn of(quantiles: Option<Quantiles>, pick: fn(Quantiles) -> u64) -> Option<f64> {
    quantiles.map(|quantiles| pick(quantiles) as f64)
}

/// One row a subject. The best of a column is marked, unless all are equal; a column of which nobody has anything is left out.
fn strategies(rows: &[Row]) -> String {
    let columns: Vec<&Column> =
        COLUMNS.iter().filter(|column| rows.iter().any(|row| (column.number)(row).is_some())).collect();
    let best =
        columns.iter().map(|column| best_of(rows.iter().filter_map(column.number), column.less_is_better?));
    let best: Vec<Option<f64>> = best.collect();
    let headings: Vec<&str> =
        ["subject"].into_iter().chain(columns.iter().map(|column| column.heading)).collect();
    let cells = rows.iter().map(|row| {
        let numbers = columns.iter().zip(&best).map(|(column, best)| match (column.number)(row) {
            None => Cell::from("–".to_owned()),
            Some(number) => Cell { text: (column.shown)(number), best: *best == Some(number) },
        });
        [Cell::from(row.name.clone())].into_iter().chain(numbers).collect()
    });
    table(&headings, cells)
}

/// The best of some numbers, unless all are equal.
pub fn best_of(numbers: impl Iterator<Item = f64>, less_is_better: bool) -> Option<f64> {
    let (least, most) = numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), number| {
        (least.min(number), most.max(number))
    });
    (least < most).then_some(if less_is_better { least } else { most })
}

/// A row a process, and what they did to each other.
fn processes(row: &Row) -> String {
    let Some(processes) = &row.processes else { return String::new() };
    let cells = processes.rows.iter().map(|process| {
        let counts = &process.counts;
        let number = |number: u64| Cell::from(count(number as f64));
        vec![
            Cell::from(process.name.clone()),
            number(process.workers.into()),
            digits(process.held.mean).into(),
            format!("{} to {}", process.held.least, process.held.most).into(),
            number(process.requests),
            rate(process.throughput).into(),
            span(process.waiting_ns.p50 as f64).into(),
            span(process.waiting_ns.p99 as f64).into(),
            number(counts.by_scheduler()),
            number(counts.by_backend()),
            number(counts.by_caller()),
            number(counts.claim_lost),
        ]
    });
    let headings = [
        "process",
        "workers",
        "units held",
        "least to most",
        "requests",
        "completed a second",
        "waiting p50",
        "p99",
        "scheduler's failures",
        "backend's",
        "caller's",
        "claims lost",
    ];
    format!(
        "<h3>Processes of {}</h3>\n<p class=\"faint\">{} units shared through {}, {} uses; a unit went to another process {} times.</p>\n{}",
        escape(&row.name),
        count(processes.units as f64),
        escape(&processes.server),
        count(processes.uses as f64),
        count(processes.handed_over as f64),
        table(&headings, cells)
    )
}

fn figures(section: &Section) -> Vec<Figure> {
    let rows = &section.rows;
    let mut figures = Vec::new();
    figures.extend(percentiles("Waiting for a lease", rows, |row| &row.waiting));
    figures
        .extend(percentiles("Latency: from the moment that was meant to the end", rows, |row| &row.latency));
    if rows.iter().any(|row| !row.series.is_empty()) {
        let over_time =
            |title: &str, note: &str, unit: &str, pick: fn(&crate::load::result::Point) -> f64| {
                let x = Axis {
                    title: "time of the subject's rounds, s".into(),
                    label: digits_short,
                    is_logarithm: false,
                };
                let y = Axis { title: unit.into(), label: count, is_logarithm: false };
                let line = |row: &Row| Line {
                    name: row.name.clone(),
                    points: row.series.iter().map(|point| (point.at, pick(point))).collect(),
                    labels: Vec::new(),
                };
                chart::lines(title, note, &x, &y, &rows.iter().map(line).collect::<Vec<_>>())
            };
        figures.push(over_time(
            "Throughput over time",
            "Requests that were served, in each interval.",
            "completed requests a second",
            |point| point.completed,
        ));
        figures.push(over_time(
            "Waiting queue over time",
            "Requests that wait for a lease at that moment.",
            "requests",
            |point| point.waiting as f64,
        ));
    }
    // One scale for all, so that they can be compared.
    let loads = rows.iter().filter_map(|row| row.heat.as_ref()).flat_map(|heat| heat.rows.iter().flatten());
    let greatest = loads.copied().fold(0.0, f32::max);
    for row in rows {
        figures
            .extend(row.heat.as_ref().map(|heat| chart::heat(&row.name, heat, section.resources, greatest)));
    }
    figures.extend(chart::utilisation(rows));
    figures.push(chart::fairness(rows));
    for (index, row) in rows.iter().enumerate() {
        let rank = row.rank.as_ref().filter(|rank| !rank.histogram.is_empty());
        figures.extend(rank.map(|rank| chart::rank_errors(&row.name, rank, index)));
    }
    figures
}

/// Percentiles with an axis of nines; both axes are logarithmic.
fn percentiles(title: &str, rows: &[Row], curve: fn(&Row) -> &Vec<(f64, u64)>) -> Option<Figure> {
    // Less than a microsecond is the clock's own.
    let point =
        |&(share, nanos): &(f64, u64)| (-(1.0 - share).max(1e-9).log10(), (nanos.max(1_000) as f64).log10());
    let lines: Vec<Line> = rows
        .iter()
        .filter(|row| curve(row).len() > 1)
        .map(|row| Line {
            name: row.name.clone(),
            points: curve(row).iter().map(point).collect(),
            labels: Vec::new(),
        })
        .collect();
    if lines.is_empty() {
        return None;
    }
    let x = Axis { title: "share of requests, %".into(), label: nines, is_logarithm: true };
    let y =
        Axis { title: "time, at most".into(), label: |log| span_short(10f64.powf(log)), is_logarithm: true };
    let note = "How long this share of requests took at most; each step to the right leaves out nine of ten of the rest.";
    Some(chart::lines(title, note, &x, &y, &lines))
}

/// 1 is 90 %, 2 is 99 %.
fn nines(log: f64) -> String {
    let share = 100.0 * (1.0 - 10f64.powf(-log));
    let whole = log.round() as i32;
    if (log - f64::from(whole)).abs() < 1e-6 {
        return match whole {
            0 => "0".into(),
            1 => "90".into(),
            2 => "99".into(),
            _ => format!("99.{}", "9".repeat(whole as usize - 2)),
        };
    }
    format!("{share:.*}", (log.floor().max(0.0) as usize).min(6))
}

fn span_short(nanos: f64) -> String {
    let text = span(nanos);
    let (number, unit) = text.split_once(' ').expect("a number and a unit");
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number} {unit}")
}

fn digits_short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// The curve of a fleet size: from the exact order to the fastest.
fn of_order(order: &OrderResult) -> String {
    let mut sizes: Vec<u32> = order.cells.iter().map(|cell| cell.resources).collect();
    sizes.dedup();
    let line = |&size: &u32, lost: fn(&crate::order::Cell) -> f64| {
        let of_size = order.cells.iter().filter(|cell| cell.resources == size);
        let point = |cell: &crate::order::Cell| {
            let at = (cell.pairs_per_second / 1e6, lost(cell).max(0.01).log10());
            (at, cell.strategy.clone())
        };
        let (points, labels): (Vec<_>, Vec<_>) = of_size.map(point).unzip();
        Line { name: format!("{} resources", count(f64::from(size))), points, labels }
    };
    let lines = |lost: fn(&crate::order::Cell) -> f64| {
        sizes.iter().map(|size| line(size, lost)).collect::<Vec<Line>>()
    };
    let x = Axis {
        title: "million acquisitions and returns a second".into(),
        label: digits,
        is_logarithm: false,
    };
    let y =
        Axis { title: "mean rank error".into(), label: |log| digits(10f64.powf(log)), is_logarithm: true };
    let note = "Each point is a strategy; 0.01 stands for none at all. To the right is faster, further down is better order.";
    let errors = lines(|cell| cell.rank_error_mean);
    let mut figure = chart::lines("Order against throughput", note, &x, &y, &errors);
    let cells = order.cells.iter().map(|cell| {
        vec![
            Cell::from(format!("{}, {}", count(f64::from(cell.resources)), cell.strategy)),
            digits(cell.ns_per_pair).into(),
            format!("{:.2}", cell.ratio_to_sticky).into(),
            digits(cell.rank_error_mean).into(),
            cell.rank_error_p99.to_string().into(),
            digits(cell.law).into(),
            digits(cell.delay_mean).into(),
            cell.delay_p99.to_string().into(),
            cell.delay_max.to_string().into(),
        ]
    });
    figure.table = table(
        &[
            "fleet, strategy",
            "ns a pair",
            "time over sticky's",
            "rank error",
            "p99",
            "5n/6 law",
            "delay",
            "delay p99",
            "delay max",
        ],
        cells,
    );
    let y = Axis {
        title: "delay, of 99 % at most".into(),
        label: |log| digits(10f64.powf(log)),
        is_logarithm: true,
    };
    let note = "How many worse ones were lent while a resource could be had; 0.01 stands for none at all. Its mean is near that of the rank errors, its \
                tail is not: whoever waits in a shard that nobody looks at waits long.";
    let delays = lines(|cell| cell.delay_p99 as f64);
    let delay = chart::lines("Delay against throughput", note, &x, &y, &delays);
    let settings = [
        ("shards", order.shards.to_string()),
        ("threads", order.threads.to_string()),
        ("rounds", order.rounds.to_string()),
        ("seed", order.seed.to_string()),
    ];
    facts(&settings.map(|(name, value)| (name.to_owned(), value))) + &figure.html() + &delay.html()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_say_what_people_say() {
        assert_eq!([0.0, 1.0, 2.0, 3.0, 5.0].map(nines), ["0", "90", "99", "99.9", "99.999"]);
        assert_eq!([1e3, 1e5, 1.5e7, 1e8].map(span_short), ["1 µs", "100 µs", "15 ms", "100 ms"]);
    }
}
