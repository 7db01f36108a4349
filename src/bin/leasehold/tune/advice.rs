//! Which setting, why, and as which code.

use serde::Serialize;

use super::{
    Setting,
    live::{Live, Played},
    virtually::Virtual,
    workload::Workload,
};
use crate::choice::Choice;

/// What is recommended.
#[derive(Serialize)]
pub struct Advice {
    pub setting: String,
    pub fairness: &'static str,
    /// Rust.
    pub code: String,
    pub reason: String,
    pub runner_up: Option<String>,
    pub runner_up_reason: Option<String>,
    pub fairness_measured: [Played; 2],
}

/// How many settings go on to real threads.
const FINALISTS: usize = 7;
const LEAST: usize = 3;
/// A setting that is this much slower than the fastest is as fast, for all that a shared machine can tell.
const AS_FAST: f64 = 0.9;

/// Those that lose no more requests than the best and let them wait no longer; of these the best order with each number of
/// shards, and the library's default strategy with the most shards.
pub fn finalists(simulated: &[Virtual], requests: usize) -> Vec<Setting> {
    let least_lost = simulated.iter().map(|result| result.lost).min().unwrap_or(0);
    let shortest = simulated.iter().map(|result| result.waiting_p99_ns).min().unwrap_or(0);
    let serves = |result: &&Virtual| {
        result.lost <= least_lost + least_lost / 100 + requests as u64 / 1_000
            && result.waiting_p99_ns <= shortest + shortest / 20 + 1_000_000
    };
    let mut fit: Vec<&Virtual> = simulated.iter().filter(serves).collect();
    fit.sort_by(|a, b| a.rank_error.total_cmp(&b.rank_error));
    let mut chosen: Vec<Setting> = Vec::new();
    for result in &fit {
        if chosen.iter().all(|setting| setting.shards != result.setting.shards) {
            chosen.push(result.setting.clone());
        }
    }
    // By default a thread stays on its shard: little order lost, and the least traffic between processors.
    let stays = |result: &&&Virtual| matches!(result.setting.choice, Choice::Sticky { choices: None, .. });
    let mut sticky: Vec<&&Virtual> = fit.iter().filter(stays).collect();
    sticky.sort_by_key(|result| std::cmp::Reverse(result.setting.shards));
    chosen.truncate(FINALISTS - 2);
    for result in sticky.into_iter().take(2) {
        if !chosen.contains(&result.setting) {
            chosen.push(result.setting.clone());
        }
    }
    // Something to compare with there must be, also where one alone serves well.
    let mut rest: Vec<&Virtual> = simulated.iter().collect();
    rest.sort_by_key(|result| (result.lost, result.waiting_p99_ns));
    for result in rest {
        if chosen.len() < LEAST && !chosen.contains(&result.setting) {
            chosen.push(result.setting.clone());
        }
    }
    chosen
}

/// Both kinds of fairness of a setting.
fn kinds(played: &[Played], setting: &str) -> Option<[Played; 2]> {
    let of = |fairness| played.iter().find(|one| one.setting == setting && one.fairness == fairness).cloned();
    Some([of("Strict")?, of("Throughput")?])
}

/// Barging serves more where threads are slow to wake, and has no bound on the wait: it must be worth that.
fn fairer([strict, barging]: &[Played; 2]) -> &Played {
    let pays = barging.throughput > 1.05 * strict.throughput
        && barging.waiting_p99_9_ns as f64 <= 1.2 * strict.waiting_p99_9_ns as f64;
    if pays { barging } else { strict }
}

/// The places, in `simulated`, of the winner and of the runner-up: of those that are as fast as the fastest, bare and on the workload,
/// the one with the best order, with fewer shards where that is the same.
pub fn choose(simulated: &[Virtual], live: &[Live], played: &[Played]) -> (usize, Option<usize>) {
    let served = |setting: &str| kinds(played, setting).map_or(0.0, |kinds| fairer(&kinds).throughput);
    let most = live.iter().map(|live| served(&live.setting)).fold(0.0, f64::max);
    let fastest = live.iter().map(|live| live.pairs_per_second).fold(0.0, f64::max);
    let place = |live: &Live| simulated.iter().position(|result| result.setting.name() == live.setting);
    let mut order: Vec<(bool, f64, u32, usize)> = live
        .iter()
        .filter_map(|live| {
            let at = place(live)?;
            let slow = live.pairs_per_second < AS_FAST * fastest || served(&live.setting) < AS_FAST * most;
            // The slow ones by their speed, after all others.
            let key = if slow { -live.pairs_per_second } else { simulated[at].rank_error };
            Some((slow, key, simulated[at].setting.shards, at))
        })
        .collect();
    order.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
    let winner = order.first().map_or(0, |first| first.3);
    (winner, order.get(1).map(|second| second.3))
}

impl Advice {
    pub fn new(
        workload: &Workload,
        simulated: &[Virtual],
        live: &[Live],
        played: &[Played],
        winner: usize,
        runner_up: Option<usize>,
    ) -> Self {
        let fastest = live.iter().map(|live| live.pairs_per_second).fold(0.0, f64::max);
        let words = |at: usize| {
            let result = &simulated[at];
            let name = result.setting.name();
            let speed =
                live.iter().find(|live| live.setting == name).map_or(0.0, |live| live.pairs_per_second);
            format!(
                "{:.2} million acquisitions and returns a second here, {:.0} % of the fastest; simulated: rank error {:.2}, waiting p99 \
                 {:.1} ms, {} of {} requests lost",
                speed / 1e6,
                speed / fastest.max(1.0) * 100.0,
                result.rank_error,
                result.waiting_p99_ns as f64 / 1e6,
                result.lost,
                workload.requests.len(),
            )
        };
        let setting = &simulated[winner].setting;
        let measured = kinds(played, &setting.name()).expect("every finalist was played with both");
        let fairness = fairer(&measured).fairness;
        Advice {
            setting: setting.name(),
            fairness,
            code: code(setting, fairness, workload.scenario.resources),
            reason: words(winner),
            runner_up: runner_up.map(|at| simulated[at].setting.name()),
            runner_up_reason: runner_up.map(words),
            fairness_measured: measured,
        }
    }
}

/// The builder's calls, for a resource type of the reader's own.
pub fn code(setting: &Setting, fairness: &str, resources: u32) -> String {
    let strategy = match setting.choice.strategy(setting.shards) {
        Some(leasehold::Strategy::Sticky { choices, period }) => {
            format!("Strategy::Sticky {{ choices: {choices}, period: {period} }}")
        }
        Some(leasehold::Strategy::BestOf { choices: usize::MAX }) => {
            "Strategy::BestOf { choices: usize::MAX }".into()
        }
        Some(leasehold::Strategy::BestOf { choices }) => format!("Strategy::BestOf {{ choices: {choices} }}"),
        Some(leasehold::Strategy::Adaptive) => "Strategy::Adaptive".into(),
        _ => unreachable!("the grid has no others"),
    };
    format!(
        "let scheduler = Scheduler::<YourResource>::builder()\n    .shards({})\n    .strategy({strategy})\n    \
         .fairness(Fairness::{fairness})\n    .expected_resources({resources})\n    .build()?;\n",
        setting.shards
    )
}

pub fn render(
    workload: &Workload,
    simulated: &[Virtual],
    live: &[Live],
    played: &[Played],
    limits: &[String],
    advice: &Advice,
) -> String {
    let mut text = format!(
        "workload  {}: {} requests, {} resources\n\n{:<16}  {:>10}  {:>10}  {:>10}  {:>14}\n",
        workload.name.chars().map(|c| if c.is_control() { '?' } else { c }).collect::<String>(),
        workload.requests.len(),
        workload.scenario.resources,
        "setting",
        "lost",
        "p99, ms",
        "rank error",
        "live, pairs/s"
    );
    for result in simulated {
        let name = result.setting.name();
        let speed = live.iter().find(|live| live.setting == name);
        text += &format!(
            "{name:<16}  {:>10}  {:>10.2}  {:>10.3}  {:>14}\n",
            result.lost,
            result.waiting_p99_ns as f64 / 1e6,
            result.rank_error,
            speed.map_or("-".into(), |live| format!("{:.0}", live.pairs_per_second)),
        );
    }
    text += &format!(
        "\n{:<16}  {:<10}  {:>14}  {:>10}  {:>10}\n",
        "on the workload", "fairness", "requests/s", "p99.9, ms", "lost"
    );
    for one in played {
        text += &format!(
            "{:<16}  {:<10}  {:>14.0}  {:>10.2}  {:>10}\n",
            one.setting,
            one.fairness,
            one.throughput,
            one.waiting_p99_9_ns as f64 / 1e6,
            one.lost
        );
    }
    for limit in limits {
        text += &format!("\nnote  {limit}");
    }
    text += if limits.is_empty() { "" } else { "\n" };
    text += &format!("\nrecommended  {}: {}\n", advice.setting, advice.reason);
    if let (Some(name), Some(reason)) = (&advice.runner_up, &advice.runner_up_reason) {
        text += &format!("runner-up    {name}: {reason}\n");
    }
    text += &format!("\n{}", advice.code);
    text
}

#[cfg(test)]
mod tests {
    use leasehold::{BuildError, Entry, Fairness, Scheduler, Strategy};

    use super::*;

    type YourResource = Entry<u32, u32, ()>;

    /// Compiles what it is given, runs it, and gives its text.
    macro_rules! compiled {
        ($($code:tt)*) => {{
            #[allow(unused_variables, reason = "the name is part of the text")]
            fn build() -> Result<(), BuildError> {
                $($code)*
                Ok(())
            }
            build().unwrap();
            stringify!($($code)*)
        }};
    }

    fn bare(text: &str) -> String {
        text.chars().filter(|c| !c.is_whitespace()).collect()
    }

    /// The text that is recommended is code that compiles: for each form that a strategy can have.
    #[test]
    fn the_code_compiles() {
        let sticky = compiled! {
            let scheduler = Scheduler::<YourResource>::builder()
                .shards(8)
                .strategy(Strategy::Sticky { choices: 2, period: 256 })
                .fairness(Fairness::Strict)
                .expected_resources(40)
                .build()?;
        };
        let best_of = compiled! {
            let scheduler = Scheduler::<YourResource>::builder()
                .shards(4)
                .strategy(Strategy::BestOf { choices: 2 })
                .fairness(Fairness::Throughput)
                .expected_resources(40)
                .build()?;
        };
        let strict = compiled! {
            let scheduler = Scheduler::<YourResource>::builder()
                .shards(4)
                .strategy(Strategy::BestOf { choices: usize::MAX })
                .fairness(Fairness::Strict)
                .expected_resources(40)
                .build()?;
        };
        let adaptive = compiled! {
            let scheduler = Scheduler::<YourResource>::builder()
                .shards(2)
                .strategy(Strategy::Adaptive)
                .fairness(Fairness::Strict)
                .expected_resources(40)
                .build()?;
        };
        for (name, shards, fairness, expected) in [
            ("sticky", 8, "Strict", sticky),
            ("best-of:2", 4, "Throughput", best_of),
            ("strict", 4, "Strict", strict),
            ("adaptive", 2, "Strict", adaptive),
        ] {
            let setting = Setting { choice: name.parse().unwrap(), shards };
            assert_eq!(bare(&code(&setting, fairness, 40)), bare(expected));
        }
    }

    fn simulated(name: &str, shards: u32, lost: u64, rank_error: f64) -> Virtual {
        let setting = Setting { choice: name.parse().unwrap(), shards };
        Virtual { setting, completed: 1_000 - lost, lost, waiting_p99_ns: 5_000_000, rank_error }
    }

    #[test]
    fn order_decides_among_the_fast() {
        let results = [
            simulated("sticky", 8, 0, 2.0),
            simulated("strict", 8, 0, 0.0),
            simulated("best-of:2", 8, 0, 1.0),
        ];
        let live = |speeds: [f64; 3]| -> Vec<Live> {
            let pairs = results.iter().zip(speeds);
            let live = |(result, speed): (&Virtual, f64)| Live {
                setting: result.setting.name(),
                pairs_per_second: speed,
                waiting_p99_ns: 0,
            };
            pairs.map(live).collect()
        };
        let played = |served: [f64; 3]| -> Vec<Played> {
            let pairs = results.iter().zip(served);
            let both = |(result, served): (&Virtual, f64)| {
                [("Strict", served), ("Throughput", 1.02 * served)].map(|(fairness, throughput)| Played {
                    setting: result.setting.name(),
                    fairness,
                    throughput,
                    waiting_p99_9_ns: 1_000,
                    lost: 0,
                })
            };
            pairs.flat_map(both).collect()
        };
        let equal = played([10.0; 3]);
        assert_eq!(choose(&results, &live([100.0, 50.0, 95.0]), &equal), (2, Some(0)));
        assert_eq!(choose(&results, &live([100.0, 99.0, 95.0]), &equal), (1, Some(2)));
        assert_eq!(choose(&results, &live([100.0, 50.0, 60.0]), &equal), (0, Some(2)));
        // Fast by itself, and slow on the workload.
        assert_eq!(choose(&results, &live([100.0, 99.0, 95.0]), &played([10.0, 8.0, 10.0])), (2, Some(0)));
    }

    #[test]
    fn barging_must_be_worth_it() {
        let one = |fairness, throughput, waiting_p99_9_ns| Played {
            setting: "sticky@8".into(),
            fairness,
            throughput,
            waiting_p99_9_ns,
            lost: 0,
        };
        for (throughput, waiting, expected) in
            [(104.0, 900, "Strict"), (110.0, 1_100, "Throughput"), (110.0, 1_300, "Strict")]
        {
            let both = [one("Strict", 100.0, 1_000), one("Throughput", throughput, waiting)];
            assert_eq!(fairer(&both).fairness, expected, "{throughput} {waiting}");
        }
    }

    #[test]
    fn who_loses_requests_is_no_finalist() {
        let results = [
            simulated("sticky", 8, 0, 2.0),
            simulated("strict", 8, 100, 0.0),
            simulated("best-of:2", 4, 0, 1.0),
        ];
        let names: Vec<String> = finalists(&results, 1_000).iter().map(Setting::name).collect();
        assert_eq!(names, ["best-of:2@4", "sticky@8", "strict@8"], "the last one only to compare with");
    }
}
