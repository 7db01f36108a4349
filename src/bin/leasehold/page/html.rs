//! The document: a section for each result, with its charts.

use crate::load::scenario::Driver;

use super::{
    chart::{self, Axis, Figure, Line},
    input::Input,
    order,
    section::{Quantiles, Row, Section},
    table::{Cell, count, digits, escape, span, table},
};

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
            Input::Tune(tune) => format!("settings for {}", tune.workload()),
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
            Input::Order(order) => body += &order::html(order),
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

impl Column {
    /// Percentiles are of those requests alone that came so far: `None` if this column has none, else the share of those that did not.
    fn left_out(&self) -> Option<fn(&Row) -> f64> {
        match self.heading {
            "waiting p50" | "p99" | "p99.9" | "longest" => Some(|row| row.share_without_wait),
            "latency p99" => Some(|row| row.share_without_latency),
            _ => None,
        }
    }
}

/// Of fewer samples a mean is an accident.
const ENOUGH: u64 = 100;

impl Column {
    /// Whether it is of enough samples; true of what is no sample.
    fn is_of_enough(&self, row: &Row) -> bool {
        let looks = match self.heading {
            "rank error" => row.rank.as_ref().and_then(|rank| rank.looks),
            "delay, worse ones lent first" | "delay p99" => {
                row.passed_over.as_ref().and_then(|delay| delay.looks)
            }
            _ => None,
        };
        looks.is_none_or(|looks| looks >= ENOUGH)
    }
}

/// Where the shares of requests that have no part in a distribution differ by more than this, its percentiles are of different requests.
const SAME_SHARE: f64 = 0.001;

/// Whether percentiles of these rows are of alike shares of their requests.
fn is_alike<'a>(rows: impl Iterator<Item = &'a Row> + Clone, left_out: fn(&Row) -> f64) -> bool {
    let shares = || rows.clone().map(left_out);
    shares().fold(0.0, f64::max) - shares().fold(1.0, f64::min) <= SAME_SHARE
}

/// Those that were asked in the same way as this one: what is the best is so among them. Of older results that is not known, and then it is
/// taken to be so.
fn rivals<'a>(rows: &'a [Row], row: &Row) -> impl Iterator<Item = &'a Row> + Clone + use<'a> {
    let way = row.driver;
    rows.iter().filter(move |other| other.driver.is_none() || way.is_none() || other.driver == way)
}

/// Whether all were asked in the same way.
fn is_one_driver(rows: &[Row]) -> bool {
    let mut drivers = rows.iter().filter_map(|row| row.driver);
    drivers.next().is_none_or(|first| drivers.all(|driver| driver == first))
}

fn driver(driver: Driver) -> &'static str {
    match driver {
        Driver::Tasks => "by tasks",
        Driver::Threads => "by threads",
        Driver::Pool => "by jobs of the pool",
    }
}

static COLUMNS: [Column; 26] = [
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
    // Who fares worst under an overload never has a latency.
    Column {
        heading: "unanswered",
        number: |row| row.unanswered_count.map(|count| count as f64),
        shown: count,
        less_is_better: Some(true),
    },
    Column {
        heading: "these took at least, p99",
        number: |row| of(row.unanswered, |took| took.p99),
        shown: span,
        less_is_better: None,
    },
    // What an open loop would hide if it measured from there.
    Column {
        heading: "latency p99 from sending",
        number: |row| of(row.uncorrected, |latencies| latencies.p99),
        shown: span,
        less_is_better: None,
    },
    Column {
        heading: "failed p99",
        number: |row| of(row.failures, |took| took.p99),
        shown: span,
        less_is_better: None,
    },
    Column {
        heading: "sent late, all workers busy",
        number: |row| row.sent_late_count.map(|count| count as f64),
        shown: count,
        less_is_better: None,
    },
    Column {
        heading: "by p99",
        number: |row| of(row.sent_late, |late| late.p99),
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
    Column {
        heading: "looks at that",
        number: |row| row.rank.as_ref().and_then(|rank| rank.looks).map(|looks| looks as f64),
        shown: count,
        less_is_better: None,
    },
    Column {
        heading: "delay, worse ones lent first",
        number: |row| row.passed_over.as_ref().map(|delay| delay.mean),
        shown: digits,
        less_is_better: Some(true),
    },
    Column {
        heading: "delay p99",
        number: |row| row.passed_over.as_ref().map(|delay| delay.p99 as f64),
        shown: count,
        less_is_better: Some(true),
    },
    Column {
        heading: "delays seen",
        number: |row| row.passed_over.as_ref().and_then(|delay| delay.looks).map(|looks| looks as f64),
        shown: count,
        less_is_better: None,
    },
    Column { heading: "fairness", number: |row| row.fairness, shown: digits, less_is_better: None },
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
        heading: "too late to be sent",
        number: |row| row.too_late.map(|count| count as f64),
        shown: count,
        less_is_better: Some(true),
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

/// A column for each subject, which fit beside each other on a phone and on paper, and a row for each number. The best of a row is marked, unless all
/// are equal, or what is beside each other cannot be compared, which is said below; a row of which nobody has anything is left out.
fn strategies(rows: &[Row]) -> String {
    let columns: Vec<&Column> =
        COLUMNS.iter().filter(|column| rows.iter().any(|row| (column.number)(row).is_some())).collect();
    let alike = is_one_driver(rows);
    let headings: Vec<String> = rows
        .iter()
        .map(|row| match row.driver.filter(|_| !alike) {
            None => row.name.clone(),
            Some(who) => format!("{}, asked {}", row.name, driver(who)),
        })
        .collect();
    let headings: Vec<&str> = ["subject"].into_iter().chain(headings.iter().map(String::as_str)).collect();
    let (mut unlike, mut few) = (Vec::new(), Vec::new());
    let cells: Vec<Vec<Cell>> = columns
        .iter()
        .map(|column| {
            let comparable =
                |row| column.left_out().is_none_or(|left_out| is_alike(rivals(rows, row), left_out));
            if !rows.iter().all(comparable) {
                unlike.push(column.heading);
            }
            let enough = |row| rivals(rows, row).all(|rival| column.is_of_enough(rival));
            if !rows.iter().all(enough) {
                few.push(column.heading);
            }
            let best = |row| {
                let less = column.less_is_better.filter(|_| comparable(row) && enough(row))?;
                best_of(rivals(rows, row).filter_map(column.number), less)
            };
            let numbers = rows.iter().map(|row| match (column.number)(row) {
                None => Cell::from("–".to_owned()),
                Some(number) => Cell { text: (column.shown)(number), best: best(row) == Some(number) },
            });
            [Cell::from(column.heading.to_owned())].into_iter().chain(numbers).collect()
        })
        .collect();
    let mut html = table(&headings, cells);
    if !alike {
        html += "<p class=\"faint\">They were asked in different ways, so what is beside each other may be of two harnesses: the best is marked \
                 among those that were asked in the same way.</p>\n";
    }
    if !few.is_empty() {
        html += &format!(
            "<p class=\"faint\">{}: of some subject fewer than {ENOUGH} samples, so no number is marked as the best.</p>\n",
            few.join(", ")
        );
    }
    if !unlike.is_empty() {
        html += &format!(
            "<p class=\"faint\">{}: {UNLIKE}, so no number is marked as the best.</p>\n",
            unlike.join(", ")
        );
    }
    html
}

/// Said of percentiles of different shares of the requests.
const UNLIKE: &str = "the subjects leave out different shares of their requests (more than 0.1 % apart), and these are the worst ones";

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
    let unlike = |left_out: fn(&Row) -> f64| match is_alike(rows.iter(), left_out) {
        true => String::new(),
        false => format!(" Not to be compared as they are: {UNLIKE}."),
    };
    let note = unlike(|row| row.share_without_wait);
    figures.extend(percentiles("Waiting for a lease", &note, rows, |row| &row.waiting));
    let censored = rows.iter().filter_map(|row| row.unanswered_count).sum::<u64>() > 0;
    let note = if censored {
        " Requests that were not answered (never sent, cut by the end, timed out, given up) are not in it, and took at least what the table \
         above says: under an overload the true curve lies higher."
    } else {
        ""
    };
    let title = "Latency: from the moment that was meant to the end";
    let note = format!(
        " Of completed requests; one that the backend fails may end sooner.{note}{}",
        unlike(|row| row.share_without_latency)
    );
    figures.extend(percentiles(title, &note, rows, |row| &row.latency));
    if rows.iter().any(|row| !row.series.is_empty()) {
        let over_time = |title: &str,
                         note: &str,
                         unit: &str,
                         pick: fn(&crate::load::result::Point) -> f64| {
            let x = Axis {
                title: if section.virtual_time {
                    "virtual time, s"
                } else {
                    "time of the subject's rounds, s"
                }
                .into(),
                label: digits_short,
                is_logarithm: false,
            };
            let y = Axis { title: unit.into(), label: count, is_logarithm: false };
            let line = |row: &Row| {
                Line::new(row.name.clone(), row.series.iter().map(|point| (point.at, pick(point))).collect())
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
            if section.virtual_time {
                "The longest line of each interval."
            } else {
                "Requests that wait for a lease at that moment."
            },
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
    figures.extend(chart::fairness(rows));
    for (index, row) in rows.iter().enumerate() {
        let rank = row.rank.as_ref().filter(|rank| !rank.histogram.is_empty());
        figures.extend(rank.map(|rank| chart::rank_errors(&row.name, rank, index)));
    }
    figures
}

/// Percentiles with an axis of nines; both axes are logarithmic.
fn percentiles(title: &str, more: &str, rows: &[Row], curve: fn(&Row) -> &Vec<(f64, u64)>) -> Option<Figure> {
    // Less than a microsecond is the clock's own.
    let point =
        |&(share, nanos): &(f64, u64)| (-(1.0 - share).max(1e-9).log10(), (nanos.max(1_000) as f64).log10());
    let told = |&(share, nanos): &(f64, u64)| [percent(share), span(nanos as f64)];
    let lines: Vec<Line> = rows
        .iter()
        .filter(|row| curve(row).len() > 1)
        .map(|row| Line {
            told: curve(row).iter().map(told).collect(),
            ..Line::new(row.name.clone(), curve(row).iter().map(point).collect())
        })
        .collect();
    if lines.is_empty() {
        return None;
    }
    let x = Axis { title: "share of requests, %".into(), label: nines, is_logarithm: true };
    let y =
        Axis { title: "time, at most".into(), label: |log| span_short(10f64.powf(log)), is_logarithm: true };
    let note = "How long this share of requests took at most; each step to the right leaves out nine of ten of the rest.";
    Some(chart::lines(title, &format!("{note}{more}"), &x, &y, &lines))
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

/// As many digits as tell a share from 1.
fn percent(share: f64) -> String {
    let nines = -(1.0 - share).max(1e-12).log10();
    format!("{:.*}", (nines.ceil().max(1.0) as usize).saturating_sub(1).max(1), share * 100.0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_say_what_people_say() {
        assert_eq!([0.0, 1.0, 2.0, 3.0, 5.0].map(nines), ["0", "90", "99", "99.9", "99.999"]);
        assert_eq!([1e3, 1e5, 1.5e7, 1e8].map(span_short), ["1 µs", "100 µs", "15 ms", "100 ms"]);
    }
}
