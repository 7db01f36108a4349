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
    pub workload: String,
    requests: u64,
    simulated: Vec<Virtual>,
    live: Vec<Live>,
    advice: Advice,
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
}

impl Tune {
    pub fn html(&self) -> String {
        let Advice { setting, fairness, code, reason, runner_up, runner_up_reason } = &self.advice;
        let mut told = vec![
            ("recommended", setting.clone()),
            ("fairness", fairness.clone()),
            ("why", reason.clone()),
            ("requests of each simulation", count(self.requests as f64)),
        ];
        told.extend(runner_up.clone().map(|name| ("runner-up", name)));
        told.extend(runner_up_reason.clone().map(|why| ("why not it", why)));
        let told: Vec<_> = told.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let mut html = facts(&told);
        html += &format!("<pre>{}</pre>\n", escape(code));
        if !self.live.is_empty() {
            html += &self.live().html();
        }
        html += "<h3>Every setting in virtual time</h3>\n";
        html + &self.simulated()
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
                colour: usize::from(live.setting != self.advice.setting),
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
