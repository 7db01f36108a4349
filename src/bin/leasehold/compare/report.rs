//! The report: a table for people, JSON for programs. docs/cli.md describes it.

use serde::Serialize;

use super::{
    bars::{MOST_DROPPED, Measured, Row, Setting},
    measure::{Plan, Times},
};
use crate::output::Format;

/// Version of the JSON form. Fields may be added under the same number; none changes or goes.
const SCHEMA: u32 = 1;

#[derive(Debug, Serialize)]
pub struct Report {
    schema: u32,
    /// What tells this JSON from that of other commands.
    kind: &'static str,
    cases: Vec<Case>,
    bars: Vec<Held>,
    /// Runs of each side, and how long each of them was.
    pairs: usize,
    milliseconds: u64,
}

/// One operation at one number of threads. Times are per operation and thread.
#[derive(Debug, Serialize)]
pub struct Case {
    name: &'static str,
    threads: usize,
    resources: u32,
    shards: usize,
    leasehold_ns: f64,
    baseline_ns: f64,
    /// Median over the pairs: not quite the quotient of the two above.
    ratio: f64,
    spread: Spread,
}

/// Of the ratio, over the pairs.
#[derive(Debug, Serialize)]
struct Spread {
    min: f64,
    max: f64,
}

impl Case {
    pub fn new(name: &'static str, plan: &Plan, shards: usize, times: &Times) -> Self {
        let [leasehold_ns, baseline_ns] = times.medians().map(rounded);
        let [min, ratio, max] = times.ratio().map(rounded);
        let Plan { threads, resources, .. } = *plan;
        Case {
            name,
            threads,
            resources,
            shards,
            leasehold_ns,
            baseline_ns,
            ratio,
            spread: Spread { min, max },
        }
    }
}

/// A row with a bar, and whether it holds.
#[derive(Debug, Serialize)]
pub struct Held {
    name: &'static str,
    threads: usize,
    resources: u32,
    shards: usize,
    unit: &'static str,
    /// Whom it is measured against; none if the figure itself is held to the bar.
    baseline: Option<&'static str>,
    /// Medians, in the unit.
    leasehold_value: Option<f64>,
    baseline_value: Option<f64>,
    /// What is held to the limit: the median of the ratios, or the figure.
    measured: Option<f64>,
    spread: Option<Spread>,
    /// The most that is allowed; none if the row is for comparison only.
    limit: Option<f64>,
    /// Of a row that times observing: the share of events that were dropped. With more than [`MOST_DROPPED`] the row does not hold, whatever
    /// was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<f64>,
    /// None without a limit, or if it was not measured.
    holds: Option<bool>,
    /// The feature that the tool must be built with to measure it.
    missing: Option<&'static str>,
}

impl Held {
    pub fn new(row: &Row, setting: &Setting, measured: &Measured) -> Self {
        let Setting { threads, resources, shards, .. } = *setting;
        let limit = row.bar.limit(shards);
        let mut held = Held {
            name: row.name,
            threads,
            resources,
            shards,
            unit: row.unit,
            baseline: row.baseline,
            leasehold_value: None,
            baseline_value: None,
            measured: None,
            spread: None,
            limit: limit.map(rounded),
            dropped: None,
            holds: None,
            missing: None,
        };
        if let Measured::Observed(_, dropped) = measured {
            held.dropped = Some(rounded(*dropped));
        }
        let measured = match measured {
            Measured::Ratio(times) | Measured::Observed(times, _) => {
                let [leasehold, baseline] = times.medians().map(rounded);
                let [min, ratio, max] = times.ratio();
                held.leasehold_value = Some(leasehold);
                held.baseline_value = Some(baseline);
                held.spread = Some(Spread { min: rounded(min), max: rounded(max) });
                ratio
            }
            Measured::Figure(figure) => {
                held.leasehold_value = Some(rounded(*figure));
                *figure
            }
            Measured::Absent(feature) => {
                held.missing = Some(feature);
                return held;
            }
        };
        held.measured = Some(rounded(measured));
        let tells = held.dropped.is_none_or(|dropped| dropped <= MOST_DROPPED);
        held.holds = limit.map(|limit| measured <= limit && tells);
        held
    }

    fn line(&self) -> String {
        let value = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let spread = match &self.spread {
            Some(Spread { min, max }) => format!("{min:.2}..{max:.2}"),
            None => "-".to_owned(),
        };
        let mut verdict = match (self.missing, self.holds) {
            (Some(feature), _) => format!("not measured: build with --features {feature}"),
            (None, Some(true)) => "holds".to_owned(),
            (None, Some(false)) => "MISSED".to_owned(),
            (None, None) => "no bar".to_owned(),
        };
        if let Some(dropped) = self.dropped {
            let most = 100.0 * MOST_DROPPED;
            verdict += &format!("; {:.2} % of events dropped, at most {most:.0} % allowed", 100.0 * dropped);
        }
        bar_line([
            self.name,
            &self.threads.to_string(),
            &self.resources.to_string(),
            &self.shards.to_string(),
            self.unit,
            self.baseline.unwrap_or("-"),
            &value(self.leasehold_value),
            &value(self.baseline_value),
            &value(self.measured),
            &spread,
            &value(self.limit),
            &verdict,
        ])
    }
}

impl Report {
    pub fn new(cases: Vec<Case>, bars: Vec<Held>, pairs: usize, milliseconds: u64) -> Self {
        Report { schema: SCHEMA, kind: "compare", cases, bars, pairs, milliseconds }
    }

    /// Whether every row with a bar was measured and is within it.
    pub fn all_hold(&self) -> bool {
        self.bars.iter().all(|bar| bar.limit.is_none() || bar.holds == Some(true))
    }

    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Table => self.table(),
            Format::Json => {
                let mut text =
                    serde_json::to_string_pretty(self).expect("names and numbers always serialise");
                text.push('\n');
                text
            }
        }
    }

    fn table(&self) -> String {
        let mut text = String::new();
        if !self.cases.is_empty() {
            text += &format!(
                "ns per operation and thread: medians of {} pairs of runs, {} ms each, scheduler and mutex in turns\n\n",
                self.pairs, self.milliseconds
            );
            text += &line([
                "operation",
                "threads",
                "resources",
                "shards",
                "leasehold",
                "mutex",
                "ratio",
                "spread",
            ]);
            text.extend(self.cases.iter().map(Case::line));
        }
        if !self.bars.is_empty() {
            if !self.cases.is_empty() {
                text.push('\n');
            }
            text += "bars: the ratio to the row's own baseline, or the figure itself, is at most the bar\n\n";
            text += &bar_line([
                "row",
                "threads",
                "resources",
                "shards",
                "unit",
                "baseline",
                "leasehold",
                "against",
                "measured",
                "spread",
                "bar",
                "verdict",
            ]);
            text.extend(self.bars.iter().map(Held::line));
            let count = |holds| self.bars.iter().filter(|bar| bar.holds == Some(holds)).count();
            let missing = self.bars.iter().filter(|bar| bar.missing.is_some()).count();
            text += &format!("\n{} hold, {} missed, {missing} not measured\n", count(true), count(false));
        }
        text
    }
}

impl Case {
    fn line(&self) -> String {
        let Spread { min, max } = self.spread;
        line([
            self.name,
            &self.threads.to_string(),
            &self.resources.to_string(),
            &self.shards.to_string(),
            &format!("{:.1}", self.leasehold_ns),
            &format!("{:.1}", self.baseline_ns),
            &format!("{:.2}", self.ratio),
            &format!("{min:.2}..{max:.2}"),
        ])
    }
}

/// The name to the left, numbers to the right.
fn line([name, threads, resources, shards, leasehold, baseline, ratio, spread]: [&str; 8]) -> String {
    format!(
        "{name:<16}  {threads:>7}  {resources:>9}  {shards:>6}  {leasehold:>9}  {baseline:>9}  {ratio:>6}  \
         {spread:>13}\n"
    )
}

/// Likewise; the verdict, which may be long, comes last.
fn bar_line(fields: [&str; 12]) -> String {
    let [
        name,
        threads,
        resources,
        shards,
        unit,
        baseline,
        leasehold,
        against,
        measured,
        spread,
        bar,
        verdict,
    ] = fields;
    format!(
        "{name:<25}  {threads:>7}  {resources:>9}  {shards:>6}  {unit:<11}  {baseline:<21}  {leasehold:>10}  \
         {against:>10}  {measured:>8}  {spread:>13}  {bar:>6}  {verdict}\n"
    )
}

/// Six decimals: more than any clock knows.
fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::compare::bars::ROWS;

    fn sample() -> Report {
        let plan = Plan { threads: 2, resources: 10_000, pairs: 5, length: Duration::from_millis(80) };
        let times = Times::of(&[[50.0, 100.0], [60.0, 100.0], [40.0, 100.0], [50.0, 90.0], [50.0, 200.0]]);
        let case = |name| Case::new(name, &plan, 8, &times);
        Report::new(vec![case("acquire+release"), case("peek")], Vec::new(), 5, 80)
    }

    fn held(name: &str, measured: Measured) -> Held {
        let row = ROWS.iter().find(|row| row.name == name).unwrap();
        let setting = row.setting(10_000, 8, 5, Duration::from_millis(80));
        Held::new(row, &setting, &measured)
    }

    /// Rows held, missed and not measured.
    fn with_bars() -> Report {
        let times = Times::of(&[[50.0, 100.0], [60.0, 100.0], [40.0, 100.0], [50.0, 90.0], [50.0, 200.0]]);
        let bars = vec![
            held("pair", Measured::Ratio(times)),
            held("memory", Measured::Figure(129.0)),
            held("memory/blocks", Measured::Figure(150.0)),
            held("get/scc", Measured::Absent("peers")),
        ];

        Report::new(Vec::new(), bars, 5, 80)
    }

    #[test]
    fn json_has_its_shape() {
        let value: serde_json::Value = serde_json::from_str(&sample().render(Format::Json)).unwrap();
        let case = |name| {
            serde_json::json!({
                "name": name, "threads": 2, "resources": 10_000, "shards": 8,
                "leasehold_ns": 50.0, "baseline_ns": 100.0, "ratio": 0.5,
                "spread": { "min": 0.25, "max": 0.6 },
            })
        };
        let expected = serde_json::json!({
            "schema": 1, "kind": "compare", "pairs": 5, "milliseconds": 80,
            "cases": [case("acquire+release"), case("peek")], "bars": [],
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn json_of_bars_has_its_shape() {
        let value: serde_json::Value = serde_json::from_str(&with_bars().render(Format::Json)).unwrap();
        let expected = serde_json::json!([
            {
                "name": "pair", "threads": 1, "resources": 10_000, "shards": 8, "unit": "ns",
                "baseline": "Mutex<BinaryHeap>", "leasehold_value": 50.0, "baseline_value": 100.0,
                "measured": 0.5, "spread": { "min": 0.25, "max": 0.6 }, "limit": 0.65, "holds": true,
                "missing": null,
            },
            {
                "name": "memory", "threads": 1, "resources": 10_000, "shards": 8, "unit": "bytes",
                "baseline": null, "leasehold_value": 129.0, "baseline_value": null, "measured": 129.0,
                "spread": null, "limit": 128.0, "holds": false, "missing": null,
            },
            {
                "name": "memory/blocks", "threads": 1, "resources": 10_000, "shards": 8, "unit": "bytes",
                "baseline": null, "leasehold_value": 150.0, "baseline_value": null, "measured": 150.0,
                "spread": null, "limit": null, "holds": null, "missing": null,
            },
            {
                "name": "get/scc", "threads": 1, "resources": 10_000, "shards": 8, "unit": "ns",
                "baseline": "scc::HashIndex", "leasehold_value": null, "baseline_value": null,
                "measured": null, "spread": null, "limit": 1.0, "holds": null, "missing": "peers",
            },
        ]);
        assert_eq!(value["bars"], expected);
    }

    #[test]
    fn what_is_not_measured_does_not_hold() {
        let mut report = with_bars();
        assert!(!report.all_hold());
        report.bars.retain(|bar| bar.name != "memory");
        assert!(!report.all_hold());
        report.bars.retain(|bar| bar.missing.is_none());
        assert!(report.all_hold());
    }

    #[test]
    fn table_tells_of_bars() {
        let text = with_bars().render(Format::Table);
        let lines: Vec<&str> = text.lines().collect();
        let end = |name: &str| *lines.iter().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        assert!(end("pair").ends_with("0.50     0.25..0.60    0.65  holds"), "{text}");
        assert!(end("memory").ends_with("MISSED") && end("memory/blocks").ends_with("no bar"), "{text}");
        assert!(end("get/scc").ends_with("build with --features peers"), "{text}");
        assert_eq!(lines.last(), Some(&"1 hold, 1 missed, 1 not measured"));
    }

    #[test]
    fn what_is_dropped_is_not_observed() {
        for (dropped, holds) in [(0.0, true), (0.01, true), (0.25, false)] {
            // Well within the bar, maybe for want of telling.
            let bar = held("pair/observed", Measured::Observed(Times::of(&[[100.0, 100.0]; 5]), dropped));
            assert_eq!(bar.holds, Some(holds), "{dropped}");
            let told = format!("; {:.2} % of events dropped, at most 1 % allowed\n", 100.0 * dropped);
            assert!(bar.line().ends_with(&told), "{}", bar.line());
            let report = Report::new(Vec::new(), vec![bar], 5, 80);
            let value: serde_json::Value = serde_json::from_str(&report.render(Format::Json)).unwrap();
            assert_eq!(value["bars"][0]["dropped"], dropped);
        }
    }

    #[test]
    fn table_lines_up() {
        let text = sample().render(Format::Table);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
        assert!(lines[2].starts_with("peek ") && lines[2].ends_with("0.50     0.25..0.60"), "{text}");
    }
}
