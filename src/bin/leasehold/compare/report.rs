//! The report: a table for people, JSON for programs. docs/cli.md describes it.

use serde::Serialize;

use super::{
    Format,
    measure::{Plan, Times},
};

/// Version of the JSON form. Fields may be added under the same number; none changes or goes.
const SCHEMA: u32 = 1;

#[derive(Debug, Serialize)]
pub struct Report {
    schema: u32,
    cases: Vec<Case>,
    /// For the heading of the table.
    #[serde(skip)]
    pairs: usize,
    #[serde(skip)]
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

impl Report {
    pub fn new(cases: Vec<Case>, pairs: usize, milliseconds: u64) -> Self {
        Report { schema: SCHEMA, cases, pairs, milliseconds }
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
        let mut text = format!(
            "ns per operation and thread: medians of {} pairs of runs, {} ms each, scheduler and mutex in turns\n\n",
            self.pairs, self.milliseconds
        );
        text +=
            &line(["operation", "threads", "resources", "shards", "leasehold", "mutex", "ratio", "spread"]);
        for case in &self.cases {
            let Spread { min, max } = case.spread;
            text += &line([
                case.name,
                &case.threads.to_string(),
                &case.resources.to_string(),
                &case.shards.to_string(),
                &format!("{:.1}", case.leasehold_ns),
                &format!("{:.1}", case.baseline_ns),
                &format!("{:.2}", case.ratio),
                &format!("{min:.2}..{max:.2}"),
            ]);
        }
        text
    }
}

/// The name to the left, numbers to the right.
fn line([name, threads, resources, shards, leasehold, baseline, ratio, spread]: [&str; 8]) -> String {
    format!(
        "{name:<16}  {threads:>7}  {resources:>9}  {shards:>6}  {leasehold:>9}  {baseline:>9}  {ratio:>6}  \
         {spread:>13}\n"
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

    fn sample() -> Report {
        let plan = Plan { threads: 2, resources: 10_000, pairs: 5, length: Duration::from_millis(80) };
        let times = Times::of(&[[50.0, 100.0], [60.0, 100.0], [40.0, 100.0], [50.0, 90.0], [50.0, 200.0]]);
        let case = |name| Case::new(name, &plan, 8, &times);
        Report::new(vec![case("acquire+release"), case("peek")], 5, 80)
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
        let expected = serde_json::json!({ "schema": 1, "cases": [case("acquire+release"), case("peek")] });
        assert_eq!(value, expected);
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
