//! What `compare` has found: each row against its bar, and each operation beside the mutex.

use serde::Deserialize;

use super::{
    chart::{Bar, Below, Figure, across, up_to},
    html::facts,
    table::{Cell, count, digits, table},
};

/// What is used of the result.
#[derive(Deserialize)]
pub struct Compare {
    cases: Vec<Case>,
    bars: Vec<Held>,
    /// How it was measured. Older results do not tell.
    #[serde(default)]
    pairs: Option<u64>,
    #[serde(default)]
    milliseconds: Option<u64>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    threads: u32,
    resources: u32,
    shards: u32,
    leasehold_ns: f64,
    baseline_ns: f64,
    ratio: f64,
    spread: Spread,
}

#[derive(Deserialize)]
struct Spread {
    min: f64,
    max: f64,
}

#[derive(Deserialize)]
struct Held {
    name: String,
    threads: u32,
    resources: u32,
    shards: u32,
    unit: String,
    baseline: Option<String>,
    leasehold_value: Option<f64>,
    baseline_value: Option<f64>,
    measured: Option<f64>,
    spread: Option<Spread>,
    limit: Option<f64>,
    holds: Option<bool>,
    missing: Option<String>,
}

const NOTHING: &str = "–";

impl Compare {
    pub fn html(&self) -> String {
        let counted = |holds| self.bars.iter().filter(|bar| bar.holds == Some(holds)).count().to_string();
        let missing = self.bars.iter().filter(|bar| bar.missing.is_some()).count();
        let mut told =
            vec![("bars that hold".to_owned(), counted(true)), ("missed".to_owned(), counted(false))];
        told.push(("not measured".to_owned(), missing.to_string()));
        let number =
            |number: Option<u64>| number.map_or_else(|| "not told".to_owned(), |number| number.to_string());
        told.push(("pairs of runs of each row".to_owned(), number(self.pairs)));
        told.push(("milliseconds of each run".to_owned(), number(self.milliseconds)));
        told.push(("operations beside the mutex".to_owned(), self.cases.len().to_string()));
        let mut html = facts(&told);
        if !self.bars.is_empty() {
            html += "<h3>Bars</h3>\n";
            html += &self.table_of_bars();
            html += &self.against_bars().map_or_else(String::new, |figure| figure.html());
        }
        if !self.cases.is_empty() {
            html += &self.beside_the_mutex().html();
        }
        html
    }

    /// A row for each bar; of the two values the better one is marked.
    fn table_of_bars(&self) -> String {
        let number = |value: Option<f64>| value.map_or_else(|| NOTHING.to_owned(), digits);
        let rows = self.bars.iter().map(|bar| {
            let (ours, theirs) = (bar.leasehold_value, bar.baseline_value);
            // Less is better in every unit there is.
            let better =
                |one: Option<f64>, other: Option<f64>| one.zip(other).is_some_and(|(one, other)| one < other);
            let spread = bar
                .spread
                .as_ref()
                .map(|Spread { min, max }| format!("{} to {}", digits(*min), digits(*max)));
            let verdict = match (&bar.missing, bar.holds) {
                (Some(feature), _) => format!("not measured: needs the feature {feature}"),
                (None, Some(true)) => "holds".to_owned(),
                (None, Some(false)) => "MISSED".to_owned(),
                (None, None) => "no bar".to_owned(),
            };
            vec![
                Cell::from(bar.name.clone()),
                count(bar.threads.into()).into(),
                number(bar.measured).into(),
                number(bar.limit).into(),
                verdict.into(),
                spread.unwrap_or_else(|| NOTHING.to_owned()).into(),
                bar.unit.clone().into(),
                Cell { text: number(ours), best: better(ours, theirs) },
                Cell { text: number(theirs), best: better(theirs, ours) },
                bar.baseline.clone().unwrap_or_else(|| NOTHING.to_owned()).into(),
                count(bar.resources.into()).into(),
                count(bar.shards.into()).into(),
            ]
        });
        table(
            &[
                "row",
                "threads",
                "measured",
                "bar",
                "verdict",
                "spread",
                "unit",
                "leasehold",
                "against",
                "baseline",
                "resources",
                "shards",
            ],
            rows,
        )
    }

    /// How much of its bar each row takes. A bar of nothing cannot be divided by: such rows are in the table alone.
    fn against_bars(&self) -> Option<Figure> {
        let rows: Vec<(&Held, f64, f64)> = self
            .bars
            .iter()
            .filter_map(|bar| {
                let (measured, limit) = bar.measured.zip(bar.limit)?;
                (limit > 0.0).then_some((bar, measured, limit))
            })
            .collect();
        if rows.is_empty() {
            return None;
        }
        let bars: Vec<Bar> = rows
            .iter()
            .map(|(bar, measured, limit)| Bar {
                name: named(&bar.name, bar.threads),
                value: measured / limit,
                shown: format!("{} of {}", digits(*measured), digits(*limit)),
                colour: usize::from(bar.holds == Some(false)),
                spread: bar.spread.as_ref().map(|Spread { min, max }| (min / limit, max / limit)),
            })
            .collect();
        let title = "Each row against its bar";
        let below = Below {
            title: "measured over bar, no unit: to the right of 1 it is missed",
            label: |value| format!("{value:.1}"),
            end: widest(&bars),
            line: Some(1.0),
        };
        let cells = rows.iter().zip(&bars).map(|((_, measured, limit), bar)| {
            vec![
                Cell::from(bar.name.clone()),
                digits(*measured).into(),
                digits(*limit).into(),
                digits(bar.value).into(),
            ]
        });
        Some(Figure {
            title: title.into(),
            note: "Shorter is better. The thin line is the spread over the pairs of runs; the upright one is the bar.".into(),
            legend: ["holds", "missed"].map(str::to_owned).into(),
            svg: across(title, &below, &bars),
            table: table(&["row", "measured", "bar", "measured over bar"], cells),
        })
    }

    fn beside_the_mutex(&self) -> Figure {
        let mut threads: Vec<u32> = self.cases.iter().map(|case| case.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let bars: Vec<Bar> = self
            .cases
            .iter()
            .map(|case| Bar {
                name: named(&case.name, case.threads),
                value: case.ratio,
                shown: digits(case.ratio),
                colour: threads.binary_search(&case.threads).unwrap_or(0),
                spread: Some((case.spread.min, case.spread.max)),
            })
            .collect();
        let title = "Operations beside the mutex";
        let below = Below {
            title: "time over the mutex's, no unit: to the left of 1 it is faster",
            label: |value| format!("{value:.1}"),
            end: widest(&bars),
            line: Some(1.0),
        };
        let cells = self.cases.iter().map(|case| {
            let [ours, theirs] = [case.leasehold_ns, case.baseline_ns];
            vec![
                Cell::from(named(&case.name, case.threads)),
                count(case.resources.into()).into(),
                count(case.shards.into()).into(),
                Cell { text: digits(ours), best: ours < theirs },
                Cell { text: digits(theirs), best: theirs < ours },
                digits(case.ratio).into(),
                format!("{} to {}", digits(case.spread.min), digits(case.spread.max)).into(),
            ]
        });
        Figure {
            title: title.into(),
            note: "The median of the pairs of runs, and the thin line their spread.".into(),
            legend: threads.iter().map(|&count| of_threads(count)).collect(),
            svg: across(title, &below, &bars),
            table: table(
                &["operation", "resources", "shards", "leasehold, ns", "mutex, ns", "ratio", "spread"],
                cells,
            ),
        }
    }
}

/// Long enough for each bar and for 1, but not for a spread that would make all bars short.
fn widest(bars: &[Bar]) -> f64 {
    up_to(bars.iter().map(|bar| bar.value).fold(1.0, f64::max)).end
}

fn named(name: &str, threads: u32) -> String {
    format!("{name}, {}", of_threads(threads))
}

fn of_threads(count: u32) -> String {
    if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") }
}
