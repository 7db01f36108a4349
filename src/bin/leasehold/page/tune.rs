//! What `tune` recommends, and what it has tried.

use serde::Deserialize;

use super::{
    chart::{Bar, Below, Figure, across, up_to},
    html::{best_of, facts},
    table::{Cell, count, digits, escape, span, table},
};

/// What is used of the result.
#[derive(Deserialize)]
pub struct Tune {
    workload: String,
    #[serde(default)]
    seed: Option<u64>,
    requests: u64,
    simulated: Vec<Virtual>,
    live: Vec<Live>,
    #[serde(default)]
    played: Vec<Played>,
    #[serde(default)]
    limits: Vec<String>,
    /// Settings that broke rules, and which; they are in nothing else.
    #[serde(default)]
    broken: Vec<String>,
    /// `None`: all did.
    advice: Option<Advice>,
}

#[derive(Clone, Deserialize)]
struct Played {
    setting: String,
    fairness: String,
    throughput: f64,
    waiting_p99_9_ns: u64,
    lost: u64,
}

impl Played {
    fn told(&self) -> String {
        format!(
            "{} requests a second, 99.9 % waited at most {}, {} lost",
            count(self.throughput),
            span(self.waiting_p99_9_ns as f64),
            count(self.lost as f64)
        )
    }
}

#[derive(Deserialize)]
struct Virtual {
    setting: String,
    completed: u64,
    lost: u64,
    waiting_p99_ns: u64,
    rank_error: f64,
}

#[derive(Deserialize)]
struct Live {
    setting: String,
    pairs_per_second: f64,
    waiting_p99_ns: u64,
}

#[derive(Deserialize)]
struct Advice {
    setting: String,
    fairness: String,
    code: String,
    reason: String,
    runner_up: Option<String>,
    runner_up_reason: Option<String>,
    #[serde(default)]
    fairness_measured: Vec<Played>,
}

impl Tune {
    pub fn workload(&self) -> &str {
        &self.workload
    }

    pub fn html(&self) -> String {
        let mut told = Vec::new();
        if let Some(advice) = &self.advice {
            told.extend([
                ("recommended", advice.setting.clone()),
                ("fairness", advice.fairness.clone()),
                ("why", advice.reason.clone()),
            ]);
            // What the fairness was chosen by.
            told.extend(advice.fairness_measured.iter().map(|played| {
                let name = if played.fairness == "Strict" {
                    "with strict fairness"
                } else {
                    "with throughput first"
                };
                (name, played.told())
            }));
            told.extend(advice.runner_up.clone().map(|name| ("runner-up", name)));
            told.extend(advice.runner_up_reason.clone().map(|why| ("why not it", why)));
        }
        told.push(("requests of each simulation", count(self.requests as f64)));
        told.push(("seed", self.seed.map_or_else(|| "not told".into(), |seed| seed.to_string())));
        let told: Vec<_> = told.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let mut html = facts(&told);
        for broken in &self.broken {
            html += &format!("<p class=\"bad\">Left out, because it broke a rule: {}</p>\n", escape(broken));
        }
        match &self.advice {
            Some(advice) => html += &format!("<pre>{}</pre>\n", escape(&advice.code)),
            None => html += "<p class=\"bad\">Nothing is recommended.</p>\n",
        }
        if !self.limits.is_empty() {
            let limits = self.limits.iter().map(|limit| format!("<li>{}</li>", escape(limit)));
            html += &format!(
                "<h3>What is different here from the workload</h3>\n<ul class=\"faint\">{}</ul>\n",
                limits.collect::<String>()
            );
        }
        if !self.live.is_empty() {
            html += &self.live().html();
        }
        if !self.played.is_empty() {
            html += &self.played().html();
        }
        html += "<h3>Every setting in virtual time</h3>\n";
        html + &self.simulated()
    }

    /// Whether it is the setting that is recommended.
    fn is_chosen(&self, setting: &str) -> bool {
        self.advice.as_ref().is_some_and(|advice| advice.setting == setting)
    }

    /// Each finalist on the workload itself, with either fairness.
    fn played(&self) -> Figure {
        let name = |played: &Played| format!("{}, {}", played.setting, played.fairness);
        let is_advice = |played: &Played| {
            self.is_chosen(&played.setting)
                && self.advice.as_ref().is_some_and(|advice| advice.fairness == played.fairness)
        };
        let bars: Vec<Bar> = self
            .played
            .iter()
            .map(|played| Bar {
                name: name(played),
                value: played.throughput,
                shown: count(played.throughput),
                colour: usize::from(!is_advice(played)),
                spread: None,
            })
            .collect();
        let title = "The finalists on the workload";
        let below = Below {
            title: "completed requests a second",
            label: count,
            end: up_to(bars.iter().map(|bar| bar.value).fold(0.0, f64::max)).end,
            line: None,
        };
        let most = best_of(self.played.iter().map(|played| played.throughput), false);
        // Who loses more may wait for less long: waits are of those that were served.
        let lost = || self.played.iter().map(|played| played.lost as f64);
        let least_lost = best_of(lost(), true);
        let waits = || self.played.iter().map(|played| played.waiting_p99_9_ns as f64);
        let least = best_of(waits(), true).filter(|_| least_lost.is_none());
        let cells = self.played.iter().map(|played| {
            vec![
                Cell::from(name(played)),
                Cell { text: count(played.throughput), best: most == Some(played.throughput) },
                Cell {
                    text: span(played.waiting_p99_9_ns as f64),
                    best: least == Some(played.waiting_p99_9_ns as f64),
                },
                Cell { text: count(played.lost as f64), best: least_lost == Some(played.lost as f64) },
            ]
        });
        Figure {
            title: title.into(),
            note: "Medians of the rounds; longer serves more. Throughput before fairness is recommended only if it serves 5 % more without a longer tail.".into(),
            legend: ["recommended", "others"].map(str::to_owned).into(),
            svg: across(title, &below, &bars),
            table: table(&["setting, fairness", "completed a second", "waiting p99.9", "lost"], cells),
        }
    }

    fn live(&self) -> Figure {
        let bars: Vec<Bar> = self
            .live
            .iter()
            .map(|live| Bar {
                name: live.setting.clone(),
                value: live.pairs_per_second / 1e6,
                shown: digits(live.pairs_per_second / 1e6),
                // The one that is recommended stands out.
                colour: usize::from(!self.is_chosen(&live.setting)),
                spread: None,
            })
            .collect();
        let title = "The finalists with real threads";
        let below = Below {
            title: "million acquisitions and returns a second",
            label: digits,
            end: up_to(bars.iter().map(|bar| bar.value).fold(0.0, f64::max)).end,
            line: None,
        };
        let most = best_of(self.live.iter().map(|live| live.pairs_per_second), false);
        let least = best_of(self.live.iter().map(|live| live.waiting_p99_ns as f64), true);
        let cells = self.live.iter().map(|live| {
            vec![
                Cell::from(live.setting.clone()),
                Cell { text: count(live.pairs_per_second), best: most == Some(live.pairs_per_second) },
                Cell {
                    text: span(live.waiting_p99_ns as f64),
                    best: least == Some(live.waiting_p99_ns as f64),
                },
            ]
        });
        Figure {
            title: title.into(),
            note: "Longer is faster. Among those that are as fast as a shared machine can tell the best order is recommended.".into(),
            legend: ["recommended", "others"].map(str::to_owned).into(),
            svg: across(title, &below, &bars),
            table: table(&["setting", "pairs a second", "waiting p99"], cells),
        }
    }

    fn simulated(&self) -> String {
        let best = |pick: fn(&Virtual) -> f64, less| best_of(self.simulated.iter().map(pick), less);
        /// A number, how it is shown, and whether less of it is better.
        type Column = (fn(&Virtual) -> f64, fn(f64) -> String, bool);
        let columns: [Column; 4] = [
            (|of| of.completed as f64, count, false),
            (|of| of.lost as f64, count, true),
            (|of| of.waiting_p99_ns as f64, span, true),
            (|of| of.rank_error, digits, true),
        ];
        let best = columns.map(|(pick, _, less)| best(pick, less));
        let cells = self.simulated.iter().map(|of| {
            let numbers = columns.iter().zip(best).map(|((pick, shown, _), best)| {
                let number = pick(of);
                Cell { text: shown(number), best: best == Some(number) }
            });
            [Cell::from(of.setting.clone())].into_iter().chain(numbers).collect()
        });
        table(&["setting", "completed", "lost", "waiting p99", "rank error"], cells)
    }
}
