//! Which setting, why, and as which code.

use serde::Serialize;

use super::{
    Setting,
    live::{Live, Played},
    virtually::Virtual,
    workload::Workload,
};
use crate::{
    choice::Choice,
    load::{
        scenario::{Driver, Scenario},
        subject::WITH_EJECTION,
    },
};

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
    /// Both kinds; none if the rounds were too short to compare them.
    pub fairness_measured: Vec<Played>,
}

/// How many settings go on to real threads, beside one of each kind of strategy that has none among them.
const FINALISTS: usize = 7;
const LEAST: usize = 3;
/// A setting that is this much slower than the fastest is as fast, for all that a shared machine can tell.
const AS_FAST: f64 = 0.9;

/// Those that lose no more requests than the best and let them wait no longer; of these the best order with each number of
/// shards, and the library's default strategy with the most shards; and of each kind of strategy the best, for virtual time knows nothing of its speed.
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
    let kind = |setting: &Setting| std::mem::discriminant(&setting.choice);
    for result in &fit {
        if chosen.iter().all(|setting| kind(setting) != kind(&result.setting)) {
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

/// Whether so large a share of requests got no lease that another setting, of which it was `least`, is to be preferred.
fn refuses_more(share: f64, least: f64) -> bool {
    share > least * 1.1 + 0.01
}

/// Barging serves more where threads are slow to wake, and has no bound on the wait: it must be worth that, and leave nobody without a lease.
fn fairer([strict, barging]: &[Played; 2]) -> &Played {
    let (patient, hasty) = (strict.refused_share(), barging.refused_share());
    let serves_more = barging.throughput > 1.05 * strict.throughput || refuses_more(patient, hasty);
    let pays = serves_more
        && !refuses_more(hasty, patient)
        && barging.waiting_p99_9_ns as f64 <= 1.2 * strict.waiting_p99_9_ns as f64;
    if pays { barging } else { strict }
}

/// How a finalist stands by the rules.
pub struct Standing {
    /// Its place in `simulated`.
    at: usize,
    /// The share of the workload's requests that got no lease, and whether that is more than of others.
    refused: f64,
    refuses: bool,
    /// Its speed over that of the fastest: bare, or served requests of the workload, whichever is the lower.
    pace: f64,
    rank_error: f64,
    shards: u32,
}

impl Standing {
    fn is_slow(&self) -> bool {
        self.pace < AS_FAST
    }
}

/// The finalists, the best first: of those that refuse no more of the workload's requests than others and are as fast as the fastest, bare and on
/// the workload, the one with the best order, with fewer shards where that is the same; the slow ones after all others, by their speed; and
/// after these who refuses more, by how many.
pub fn choose(simulated: &[Virtual], live: &[Live], played: &[Played]) -> Vec<Standing> {
    let served = |setting: &str| kinds(played, setting).map_or(0.0, |kinds| fairer(&kinds).throughput);
    let refused = |setting: &str| kinds(played, setting).map_or(1.0, |kinds| fairer(&kinds).refused_share());
    let least = live.iter().map(|live| refused(&live.setting)).fold(1.0, f64::min);
    let most = live.iter().map(|live| served(&live.setting)).fold(0.0, f64::max);
    let fastest = live.iter().map(|live| live.pairs_per_second).fold(0.0, f64::max);
    let standing = |live: &Live| {
        let at = simulated.iter().position(|result| result.setting.name() == live.setting)?;
        let Virtual { setting, rank_error, .. } = &simulated[at];
        let of = |value: f64, greatest: f64| if greatest > 0.0 { value / greatest } else { 1.0 };
        let pace = of(live.pairs_per_second, fastest).min(of(served(&live.setting), most));
        let refused = refused(&live.setting);
        let refuses = refuses_more(refused, least);
        Some(Standing { at, refused, refuses, pace, rank_error: *rank_error, shards: setting.shards })
    };
    let mut standings: Vec<Standing> = live.iter().filter_map(standing).collect();
    standings.sort_by(|a, b| {
        let place = |one: &Standing| (one.refuses, !one.refuses && one.is_slow());
        let key = |one: &Standing| match place(one) {
            (true, _) => one.refused,
            (_, true) => -one.pace,
            _ => one.rank_error,
        };
        place(a).cmp(&place(b)).then(key(a).total_cmp(&key(b))).then(a.shards.cmp(&b.shards))
    });
    standings
}

/// Which rule has put the first one there, and which the second one behind it. `compared`: where they were.
fn decided(standings: &[Standing], compared: &str) -> (String, String) {
    let fast = standings.iter().filter(|one| !one.refuses && !one.is_slow()).count();
    let Some((first, rest)) = standings.split_first() else { return Default::default() };
    let Some(second) = rest.first() else { return ("the only one that was played".into(), String::new()) };
    if second.refuses {
        let told = format!(
            "left {:.1} % of the workload's requests without a lease, {:.1} % more",
            second.refused * 100.0,
            (second.refused - first.refused) * 100.0
        );
        let why = if first.refuses {
            "the fewest requests without a lease"
        } else {
            "the only one that leaves no more requests without a lease than need be"
        };
        return (why.into(), told);
    }
    if second.is_slow() {
        let slow = format!("slower: {:.0} % of the fastest, bare or on the workload", second.pace * 100.0);
        let why = if fast == 1 { "the only one within 10 % of the fastest" } else { "the fastest" };
        return (format!("{why}, {compared}"), slow);
    }
    if first.rank_error < second.rank_error {
        let why = format!("the best order of the {fast} within 10 % of the fastest, {compared}");
        let lost = second.rank_error - first.rank_error;
        return (why, format!("as fast, but {lost:.2} more in rank error"));
    }
    if first.shards < second.shards {
        let why = format!(
            "the fewest shards of those with the best order of the {fast} within 10 % of the fastest"
        );
        return (
            why,
            format!("as fast and as good an order, with {} shards more", second.shards - first.shards),
        );
    }
    ("as fast and as good an order as the next one".into(), "nothing tells them apart".into())
}

impl Advice {
    pub fn new(
        workload: &Workload,
        simulated: &[Virtual],
        live: &[Live],
        played: &[Played],
        standings: &[Standing],
    ) -> Self {
        let fastest = live.iter().map(|live| live.pairs_per_second).fold(0.0, f64::max);
        let figures = |at: usize| {
            let result = &simulated[at];
            let name = result.setting.name();
            let speed =
                live.iter().find(|live| live.setting == name).map_or(0.0, |live| live.pairs_per_second);
            let here = match fastest > 0.0 {
                true => format!(
                    "{:.2} million acquisitions and returns a second here, {:.0} % of the fastest; ",
                    speed / 1e6,
                    speed / fastest * 100.0
                ),
                false => String::new(),
            };
            format!(
                "{here}simulated: rank error {:.2}, waiting p99 {:.1} ms, {} of {} requests lost",
                result.rank_error,
                result.waiting_p99_ns as f64 / 1e6,
                result.lost,
                workload.requests.len(),
            )
        };
        let compared = match (fastest > 0.0, played.is_empty()) {
            (true, false) => "bare and on the workload",
            (true, true) => "bare",
            (false, false) => "on the workload",
            (false, true) => "none of them measured",
        };
        let (why, why_not) = decided(standings, compared);
        let place = |rank: usize| standings.get(rank).map(|standing: &Standing| standing.at);
        let winner = place(0).unwrap_or(0);
        let runner_up = place(1);
        let setting = &simulated[winner].setting;
        let measured = kinds(played, &setting.name());
        let fairness = measured.as_ref().map_or("Strict", |measured| fairer(measured).fairness);
        Advice {
            setting: setting.name(),
            fairness,
            code: code(setting, fairness, &workload.scenario),
            reason: format!("{why}; {}", figures(winner)),
            runner_up: runner_up.map(|at| simulated[at].setting.name()),
            runner_up_reason: runner_up.map(|at| format!("{why_not}; {}", figures(at))),
            fairness_measured: measured.map(Vec::from).unwrap_or_default(),
        }
    }
}

/// A number of shards, as code.
fn of_all(choices: usize) -> String {
    if choices == usize::MAX { "usize::MAX".into() } else { choices.to_string() }
}

/// The builder's calls, for a resource type of the reader's own: all that the runs on the workload had, as what was measured was measured with
/// that. A timer where the callers are tasks: then waits end, and rests are over, in time by themselves.
pub fn code(setting: &Setting, fairness: &str, scenario: &Scenario) -> String {
    let strategy = match setting.choice.strategy(setting.shards) {
        Some(leasehold::Strategy::Sticky { choices, period }) => {
            format!("Strategy::Sticky {{ choices: {}, period: {period} }}", of_all(choices))
        }
        Some(leasehold::Strategy::BestOf { choices }) => {
            format!("Strategy::BestOf {{ choices: {} }}", of_all(choices))
        }
        Some(leasehold::Strategy::Adaptive) => "Strategy::Adaptive".into(),
        Some(leasehold::Strategy::RoundRobin) => "Strategy::RoundRobin".into(),
        Some(leasehold::Strategy::Weighted(weights)) => {
            format!("Strategy::Weighted(vec![1; {}])", weights.len())
        }
        _ => unreachable!("the grid has no others"),
    };
    let mut names = vec!["Fairness", "Scheduler", "Strategy"];
    if scenario.ejection {
        names.extend(["Backoff", "Cooldown", "Ejection"]);
    }
    names.extend((scenario.driver != Driver::Threads).then_some("TokioTimer"));
    names.sort_unstable();
    let mut code = if scenario.ejection { "use std::time::Duration;\n".to_owned() } else { String::new() };
    code += &format!("use leasehold::{{{}}};\n\n", names.join(", "));
    code += &format!(
        "let scheduler = Scheduler::<YourResource>::builder()\n    .shards({})\n    .strategy({strategy})\n    \
         .fairness(Fairness::{fairness})\n    .expected_resources({})\n",
        setting.shards, scenario.resources
    );
    if scenario.shed {
        code += "    .shed_late(true)\n";
    }
    if scenario.max_waiters > 0 {
        code += &format!("    .max_waiters({})\n", scenario.max_waiters);
    }
    if scenario.ejection {
        WITH_EJECTION.iter().for_each(|call| code += &format!("    {call}\n"));
    }
    if scenario.driver != Driver::Threads {
        code += "    .timer(TokioTimer::new(tokio::runtime::Handle::current()))\n";
    }
    code + "    .build()?;\n"
}

pub fn render(
    workload: &Workload,
    simulated: &[Virtual],
    live: &[Live],
    played: &[Played],
    limits: &[String],
    broken: &[String],
    advice: Option<&Advice>,
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
            speed
                .filter(|live| live.pairs_per_second > 0.0)
                .map_or("-".into(), |live| format!("{:.0}", live.pairs_per_second)),
        );
    }
    text += &format!(
        "\n{:<16}  {:<10}  {:>14}  {:>10}  {:>10}  {:>10}\n",
        "on the workload", "fairness", "requests/s", "p99.9, ms", "lost", "no lease"
    );
    for one in played {
        text += &format!(
            "{:<16}  {:<10}  {:>14.0}  {:>10.2}  {:>10}  {:>10}\n",
            one.setting,
            one.fairness,
            one.throughput,
            one.waiting_p99_9_ns as f64 / 1e6,
            one.lost,
            one.refused
        );
    }
    for limit in limits {
        text += &format!("\nnote  {limit}");
    }
    for broken in broken {
        text += &format!("\nBROKEN  {broken}: left out");
    }
    text += if limits.is_empty() && broken.is_empty() { "" } else { "\n" };
    let Some(advice) = advice else { return text + "\nnothing is recommended\n" };
    text += &format!("\nrecommended  {}: {}\n", advice.setting, advice.reason);
    if let (Some(name), Some(reason)) = (&advice.runner_up, &advice.runner_up_reason) {
        text += &format!("runner-up    {name}: {reason}\n");
    }
    text += &format!("\n{}", advice.code);
    if advice.code.contains("TokioTimer") {
        text += "\nnote  TokioTimer needs the feature tokio\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use leasehold::{BuildError, Entry};

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
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let _entered = runtime.enter();
            build().unwrap();
            stringify!($($code)*)
        }};
    }

    /// Of a workload of threads, in which nothing else is on.
    fn plain() -> Scenario {
        Scenario { driver: Driver::Threads, resources: 40, ..Scenario::default() }
    }

    /// What was on in the runs that the advice is made of is in the code.
    #[test]
    fn the_code_has_what_was_measured() {
        let everything = compiled! {
            use std::time::Duration;
            use leasehold::{Backoff, Cooldown, Ejection, Fairness, Scheduler, Strategy, TokioTimer};
            let scheduler = Scheduler::<YourResource>::builder()
                .shards(8)
                .strategy(Strategy::Sticky { choices: 2, period: 256 })
                .fairness(Fairness::Strict)
                .expected_resources(40)
                .shed_late(true)
                .max_waiters(100)
                .ejection(Ejection::default().base(Duration::from_millis(500)).longest(Duration::from_secs(4)).ramp(Duration::from_millis(500)).max_share(30))
                .cooldown(Cooldown::default().on_rate_limit(Backoff::None))
                .timer(TokioTimer::new(tokio::runtime::Handle::current()))
                .build()?;
        };
        let setting = Setting { choice: "sticky".parse().unwrap(), shards: 8 };
        let scenario =
            Scenario { driver: Driver::Tasks, shed: true, max_waiters: 100, ejection: true, ..plain() };
        assert_eq!(bare(&code(&setting, "Strict", &scenario)), bare(everything));
    }

    fn bare(text: &str) -> String {
        text.chars().filter(|c| !c.is_whitespace()).collect()
    }

    /// The text that is recommended is code that compiles: for each form that a strategy can have.
    #[test]
    fn the_code_compiles() {
        let sticky = compiled! {
            use leasehold::{Fairness, Scheduler, Strategy};
            let scheduler = Scheduler::<YourResource>::builder()
                .shards(8)
                .strategy(Strategy::Sticky { choices: 2, period: 256 })
                .fairness(Fairness::Strict)
                .expected_resources(40)
                .build()?;
        };
        let best_of = compiled! {
            use leasehold::{Fairness, Scheduler, Strategy};
            let scheduler = Scheduler::<YourResource>::builder()
                .shards(4)
                .strategy(Strategy::BestOf { choices: 2 })
                .fairness(Fairness::Throughput)
                .expected_resources(40)
                .build()?;
        };
        let strict = compiled! {
            use leasehold::{Fairness, Scheduler, Strategy};
            let scheduler = Scheduler::<YourResource>::builder()
                .shards(4)
                .strategy(Strategy::BestOf { choices: usize::MAX })
                .fairness(Fairness::Strict)
                .expected_resources(40)
                .build()?;
        };
        let adaptive = compiled! {
            use leasehold::{Fairness, Scheduler, Strategy};
            let scheduler = Scheduler::<YourResource>::builder()
                .shards(2)
                .strategy(Strategy::Adaptive)
                .fairness(Fairness::Strict)
                .expected_resources(40)
                .build()?;
        };
        let all = compiled! {
            use leasehold::{Fairness, Scheduler, Strategy};
            let scheduler = Scheduler::<YourResource>::builder()
                .shards(8)
                .strategy(Strategy::Sticky { choices: usize::MAX, period: 256 })
                .fairness(Fairness::Strict)
                .expected_resources(40)
                .build()?;
        };
        let round_robin = compiled! {
            use leasehold::{Fairness, Scheduler, Strategy};
            let scheduler = Scheduler::<YourResource>::builder()
                .shards(2)
                .strategy(Strategy::RoundRobin)
                .fairness(Fairness::Strict)
                .expected_resources(40)
                .build()?;
        };
        let weighted = compiled! {
            use leasehold::{Fairness, Scheduler, Strategy};
            let scheduler = Scheduler::<YourResource>::builder()
                .shards(4)
                .strategy(Strategy::Weighted(vec![1; 4]))
                .fairness(Fairness::Strict)
                .expected_resources(40)
                .build()?;
        };
        for (name, shards, fairness, expected) in [
            ("sticky:all", 8, "Strict", all),
            ("round-robin", 2, "Strict", round_robin),
            ("weighted", 4, "Strict", weighted),
            ("sticky", 8, "Strict", sticky),
            ("best-of:2", 4, "Throughput", best_of),
            ("strict", 4, "Strict", strict),
            ("adaptive", 2, "Strict", adaptive),
        ] {
            let setting = Setting { choice: name.parse().unwrap(), shards };
            assert_eq!(bare(&code(&setting, fairness, &plain())), bare(expected));
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
                    requests: 1_000,
                    lost: 0,
                    refused: 0,
                })
            };
            pairs.flat_map(both).collect()
        };
        let equal = played([10.0; 3]);
        for (speeds, played, places, why, why_not) in [
            (
                [100.0, 50.0, 95.0],
                &equal,
                [2, 0, 1],
                "the best order of the 2",
                "but 1.00 more in rank error",
            ),
            (
                [100.0, 99.0, 95.0],
                &equal,
                [1, 2, 0],
                "the best order of the 3",
                "but 1.00 more in rank error",
            ),
            (
                [100.0, 50.0, 60.0],
                &equal,
                [0, 2, 1],
                "the only one within 10 %",
                "slower: 60 % of the fastest",
            ),
            // Fast by itself, and slow on the workload.
            (
                [100.0, 99.0, 95.0],
                &played([10.0, 8.0, 10.0]),
                [2, 0, 1],
                "the best order of the 2",
                "but 1.00 more in rank error",
            ),
        ] {
            let standings = choose(&results, &live(speeds), played);
            assert_eq!(standings.iter().map(|one| one.at).collect::<Vec<_>>(), places);
            // What is told is the rule that has decided, and each of the two has another part in it.
            let (first, second) = decided(&standings, "bare");
            assert!(first.starts_with(why) && second.contains(why_not), "{first}; {second}");
        }
    }

    #[test]
    fn fewer_shards_decide_where_the_order_is_the_same() {
        let one =
            |at, shards| Standing { at, refused: 0.0, refuses: false, pace: 1.0, rank_error: 0.5, shards };
        let (first, second) = decided(&[one(0, 4), one(1, 16)], "bare");
        assert!(first.starts_with("the fewest shards"), "{first}");
        assert_eq!(second, "as fast and as good an order, with 12 shards more");
    }

    #[test]
    fn barging_must_be_worth_it() {
        let one = |fairness, throughput, waiting_p99_9_ns, refused| Played {
            setting: "sticky@8".into(),
            fairness,
            throughput,
            waiting_p99_9_ns,
            requests: 1_000,
            lost: refused,
            refused,
        };
        for (throughput, waiting, refused, expected) in [
            (104.0, 900, [0, 0], "Strict"),
            (110.0, 1_100, [0, 0], "Throughput"),
            (110.0, 1_300, [0, 0], "Strict"),
            // More are served, and more go away with nothing.
            (110.0, 900, [0, 5], "Throughput"),
            (110.0, 900, [0, 50], "Strict"),
            (101.0, 900, [50, 0], "Throughput"),
        ] {
            let [strict, barging] = refused;
            let both = [one("Strict", 100.0, 1_000, strict), one("Throughput", throughput, waiting, barging)];
            assert_eq!(fairer(&both).fairness, expected, "{throughput} {waiting} {refused:?}");
        }
    }

    /// The best order is worth nothing to those who get no lease.
    #[test]
    fn who_leaves_requests_without_a_lease_is_last() {
        let results = [
            simulated("strict", 8, 0, 0.0),
            simulated("sticky", 8, 0, 2.0),
            simulated("best-of:2", 8, 0, 1.0),
        ];
        let names = results.iter().map(|result| result.setting.name());
        let live: Vec<Live> = names
            .clone()
            .map(|setting| Live { setting, pairs_per_second: 100.0, waiting_p99_ns: 0 })
            .collect();
        let played: Vec<Played> = names
            .zip([60, 5, 30])
            .flat_map(|(setting, refused)| {
                ["Strict", "Throughput"].map(|fairness| Played {
                    setting: setting.clone(),
                    fairness,
                    throughput: 10.0,
                    waiting_p99_9_ns: 1_000,
                    requests: 1_000,
                    lost: refused,
                    refused,
                })
            })
            .collect();
        let standings = choose(&results, &live, &played);
        assert_eq!(standings.iter().map(|one| one.at).collect::<Vec<_>>(), [1, 2, 0]);
        let (first, second) = decided(&standings, "bare");
        assert!(first.starts_with("the only one that leaves no more"), "{first}");
        assert_eq!(second, "left 3.0 % of the workload's requests without a lease, 2.5 % more");
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

    /// What is quick and has a worse order than others would never be seen with real threads.
    #[test]
    fn each_kind_of_strategy_has_a_finalist() {
        let results = [
            simulated("strict", 8, 0, 0.0),
            simulated("best-of:2", 8, 0, 1.0),
            simulated("adaptive", 8, 0, 1.5),
            simulated("adaptive", 4, 0, 1.2),
            simulated("sticky", 8, 0, 2.0),
            simulated("round-robin", 8, 0, 3.0),
        ];
        let names: Vec<String> = finalists(&results, 1_000).iter().map(Setting::name).collect();
        assert_eq!(names, ["strict@8", "adaptive@4", "sticky@8", "best-of:2@8", "round-robin@8"]);
    }
}
