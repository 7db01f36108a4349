//! The workload, twice: as requests for the simulation, and as a scenario for real threads.

use std::{fmt::Write, path::Path, sync::Arc, time::Duration};

use super::Tune;
use crate::{
    error::Result,
    fleet::{Fleet, Spec},
    load::{
        draws::{Draws, Purpose},
        pace::{Pace, Schedule},
        scenario::{Distribution, Loop, Ranking, Scenario, Shape, Span},
    },
    replay::open_fleet,
    simulate::Rules,
    trace::{self, Arrivals, Request},
};

pub struct Workload {
    pub name: String,
    pub fleet: Fleet,
    pub requests: Vec<Request>,
    /// What else the simulation keeps to.
    pub rules: Rules,
    /// The same load for real threads and tasks.
    pub scenario: Scenario,
    is_trace: bool,
    /// The fleet file is not the scenario's own.
    is_peopled: bool,
}

/// A lease is held for about so long where a trace is played live: shorter ones would be lost in the ticks of tokio's timer, a
/// millisecond, and longer ones would not fit into a round.
const HELD: Duration = Duration::from_millis(20);

/// The simulation's fleets are no larger; a larger one is simulated in this size, with its share of the load.
const MOST: u32 = 10_000;
/// The simulation counts tokens: here each is a microsecond.
const TOKENS_PER_SECOND: u64 = 1_000_000;
/// What stands for no limit at all.
const UNLIMITED: u32 = 1_000;

impl Workload {
    pub fn open(options: &Tune) -> Result<Self> {
        match &options.trace {
            None => {
                let seed = options.seed.map(|seed| format!("seed={seed}"));
                let scenario = Scenario::open(&options.scenario, seed.as_slice())?;
                let given = options.fleet.as_deref().map(|path| open_fleet(Some(path))).transpose()?;
                let name = match &given {
                    Some(fleet) => format!("{} on {}", options.scenario, fleet.name),
                    None => options.scenario.clone(),
                };
                let is_peopled = given.is_some();
                let scenario = match &given {
                    Some(fleet) => peopled(scenario, fleet),
                    None => scenario,
                };
                let schedule = Schedule::open(&scenario)?;
                let requests = requests(&scenario, schedule, options.requests);
                let fleet = match given {
                    Some(fleet) => at_its_pace(fleet, &scenario),
                    None => Fleet::parse(&options.scenario, &fleet_of(&scenario))?,
                };
                let rules = rules_of(&scenario);
                Ok(Workload { name, fleet, requests, rules, scenario, is_trace: false, is_peopled })
            }
            Some(path) => {
                let fleet = open_fleet(options.fleet.as_deref())?;
                let seed = options.seed.unwrap_or(1);
                let trace = trace::open(path, seed, options.speed)?;
                let mut arrivals = Arrivals::new(trace, options.speed, Some(options.requests.into()));
                let mut requests = Vec::new();
                while let Some(request) = arrivals.next_request()? {
                    requests.push(request);
                }
                let scenario = scenario_of(&fleet, &requests, path, options);
                let name = path.display().to_string();
                let rules = Rules::plain(seed, 3, 100_000);
                Ok(Workload { name, fleet, requests, rules, scenario, is_trace: true, is_peopled: false })
            }
        }
    }

    /// How long a lease is held on average, the backend's delay and all.
    pub fn mean_hold(&self) -> Duration {
        Duration::from_secs_f64(mean_hold(&self.scenario) + mean_delay(&self.scenario))
    }

    /// What is different from the workload, in words: first in virtual time, then live.
    pub fn limits(&self) -> Vec<String> {
        let scenario = &self.scenario;
        // There the first in the line is served first, whoever borrows.
        let mut limits = vec!["nobody overtakes in virtual time, where a wake-up takes none: both kinds of fairness are compared live".to_owned()];
        if self.is_trace {
            if scenario.trace.is_some() {
                limits.push(format!(
                    "live: the trace runs {} times as fast, answers too, at the fleet's mean speed, without tiers, weights, limits per minute \
                     and outages",
                    scenario.speed.round()
                ));
            } else {
                limits.push(
                    "live: standard input cannot be read again, so leases of 20 ms stand for the trace"
                        .into(),
                );
            }
            return limits;
        }
        if self.is_peopled {
            limits.push(
                "of the fleet's resources capacities and tiers count, and weights in virtual time: how long a lease is held and what goes wrong \
                 is the scenario's"
                    .into(),
            );
        }
        for (is_left_out, what) in [
            (scenario.cancellations > 0.0, "cancellations"),
            (scenario.flapping > 0.0, "flapping"),
            (scenario.ejection, "ejection"),
            (scenario.affinity > 0.0, "affinity"),
            (
                scenario.named + scenario.filtered + scenario.peeks > 0.0,
                "named, filtered and looking requests",
            ),
            (scenario.classes > 1, "classes"),
            (scenario.shed || scenario.max_waiters > 0, "who is refused at once"),
            (scenario.chores() > 0.0, "changes of the fleet"),
            (scenario.pace == Loop::Closed && scenario.burst != Shape::Steady, "the shape of a closed loop"),
            (
                scenario.ranking == Ranking::Fixed && scenario.resources > 256 && !self.is_peopled,
                "ranks finer than 256 tiers",
            ),
        ] {
            if is_left_out {
                limits.push(format!("virtual time leaves out {what}"));
            }
        }
        if !scenario.close_at.0.is_zero() {
            limits
                .push("nobody closes the scheduler, in virtual time or live: `close-at` is left out".into());
        }
        if scenario.resources > MOST {
            limits.push(format!("virtual time has {MOST} resources and their share of the load"));
        }
        limits
    }
}

/// What the simulation can keep to of a scenario. A request that has failed is not sent again there.
fn rules_of(scenario: &Scenario) -> Rules {
    let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    Rules {
        wait: Some(nanos(scenario.wait.0)),
        rest: nanos(scenario.cooldown.0),
        refusals: (scenario.rate_limits * f64::from(u32::MAX)) as u64,
        // One for all; the mean.
        retry_after: nanos(scenario.retry_after.mean()),
        ..Rules::plain(scenario.seed, 0, 100_000)
    }
}

/// The scenario with the resources of a fleet file instead of its own: as many, with their capacities and tiers.
fn peopled(scenario: Scenario, fleet: &Fleet) -> Scenario {
    Scenario {
        resources: fleet.resources.len() as u32,
        capacity: fleet.resources.iter().map(|spec| spec.max_in_flight).collect(),
        given_tiers: fleet.resources.iter().map(|spec| spec.tier).collect(),
        ..scenario
    }
}

/// A fleet file's resources for the simulation of a scenario: a lease is held for as long as the scenario says, and fails as often.
fn at_its_pace(fleet: Fleet, scenario: &Scenario) -> Fleet {
    let failure_rate = (failures(scenario) * 4_294_967_296.0) as u64;
    let resources = fleet.resources.into_iter().map(|spec| Spec {
        requests_per_minute: None,
        tokens_per_minute: None,
        time_to_first_token: 0,
        nanos_per_token: 1_000_000_000 / TOKENS_PER_SECOND,
        failure_rate,
        outages: Vec::new(),
        ..spec
    });
    Fleet { resources: resources.collect(), ..fleet }
}

/// Of those that are not refused so many fail that it is the share of all.
fn failures(scenario: &Scenario) -> f64 {
    let served = (1.0 - scenario.rate_limits).max(1e-9);
    (scenario.failures / served).min(1.0)
}

/// The scenario's fleet in the simulation's words. A fixed rank becomes one of 256 tiers.
fn fleet_of(scenario: &Scenario) -> String {
    let mut text = String::new();
    let size = scenario.resources.min(MOST);
    for index in 0..size {
        let slots = scenario.limit_of(index).unwrap_or(UNLIMITED).min(65_536);
        let tier = match scenario.ranking {
            Ranking::LeastLoaded => index % u32::from(scenario.tiers),
            Ranking::Fixed => (u64::from(index) * 256 / u64::from(size)) as u32,
        };
        let failures = failures(scenario);
        let _ = write!(
            text,
            "[[resource]]\nkey = \"{index}\"\ntier = {tier}\nmax_in_flight = {slots}\ntokens_per_second = {TOKENS_PER_SECOND}\n\
             failure_rate = {failures:?}\n"
        );
    }
    text
}

/// The scenario's requests. A closed loop comes at the rate that its workers would have if nobody waited, at most at nine
/// tenths of what the fleet can serve: it would otherwise wait for itself.
fn requests(scenario: &Scenario, schedule: Option<Arc<Schedule>>, count: u32) -> Vec<Request> {
    let share = f64::from(scenario.resources.min(MOST)) / f64::from(scenario.resources);
    let mut open = Scenario { workers: 1, duration: Span(Duration::from_secs(86_400)), ..scenario.clone() };
    match (scenario.pace, scenario.burst) {
        (_, Shape::Trace) => {}
        (Loop::Open, Shape::Herd { every }) => {
            return herds(scenario, every.0, share, count);
        }
        (Loop::Open, _) => open.rate = scenario.rate * share,
        (Loop::Closed, _) => {
            let hold = (mean_hold(scenario) + mean_delay(scenario)).max(1e-6);
            let wished = f64::from(scenario.workers) / (scenario.think.mean().as_secs_f64() + hold);
            let units = scenario.units().unwrap_or(u64::from(scenario.resources) * u64::from(UNLIMITED));
            open.pace = Loop::Open;
            open.burst = Shape::Steady;
            open.rate = (wished.min(0.9 * units as f64 / hold) * share).clamp(0.001, 1e7);
        }
    }
    // Its shape is that of a round, again and again.
    let draws = Draws::new(scenario.seed, 0, 0);
    let mut pace = Pace::new(Arc::new(open), schedule, 0..1, draws).repeating(scenario.duration.0);
    let planned = std::iter::from_fn(|| pace.next(Duration::ZERO));
    planned
        .zip(0..u64::from(count))
        .map(|(planned, number)| request(number, planned.at, taken(scenario, planned.delay + planned.hold)))
        .collect()
}

/// Everybody at once, again and again.
fn herds(scenario: &Scenario, every: Duration, share: f64, count: u32) -> Vec<Request> {
    let mut random = Draws::new(scenario.seed, 0, 0).of(Purpose::Hold, 0);
    let herd = ((f64::from(scenario.workers) * share) as u32).max(1);
    let at = |number: u32| every * (number / herd);
    let mut hold = || taken(scenario, scenario.delay.draw(&mut random) + scenario.hold.draw(&mut random));
    (0..count).map(|number| request(number.into(), at(number), hold())).collect()
}

/// How long a lease is held of which the backend would like so much.
fn taken(scenario: &Scenario, wished: Duration) -> Duration {
    let limit = scenario.backend_timeout.0;
    if limit.is_zero() { wished } else { wished.min(limit) }
}

fn request(number: u64, at: Duration, hold: Duration) -> Request {
    let tokens = (hold.as_micros() as u64).clamp(1, 100_000_000) as u32;
    Request { number, at: at.as_nanos() as u64, context_tokens: 0, generated_tokens: tokens }
}

fn mean_hold(scenario: &Scenario) -> f64 {
    match scenario.hold {
        // As an answer of 200 tokens.
        Distribution::Trace => 200.0 / scenario.tokens_per_second / scenario.speed,
        hold => hold.mean().as_secs_f64(),
    }
}

fn mean_delay(scenario: &Scenario) -> f64 {
    match scenario.delay {
        // As a prompt of 1,000 tokens.
        Distribution::Trace => 1_000.0 / scenario.prompt_tokens_per_second / scenario.speed,
        delay => delay.mean().as_secs_f64(),
    }
}

/// The same trace and a fleet of the same size and capacities for real tasks: faster, so that a lease is held for about [`HELD`]. Its
/// limits per minute, outages, tiers and weights are for the simulation alone.
fn scenario_of(fleet: &Fleet, requests: &[Request], path: &Path, options: &Tune) -> Scenario {
    let capacity: Vec<u32> = fleet.resources.iter().map(|spec| spec.max_in_flight).collect();
    let units: u64 = capacity.iter().map(|&slots| u64::from(slots)).sum();
    let mean = |of: &dyn Fn(&crate::fleet::Spec) -> f64| {
        let sum = fleet.resources.iter().map(|spec| of(spec) * f64::from(spec.max_in_flight)).sum::<f64>();
        sum / units as f64
    };
    let nanos_per_token = mean(&|spec| spec.nanos_per_token as f64);
    let first = Duration::from_nanos(mean(&|spec| spec.time_to_first_token as f64) as u64);
    let tokens = requests.iter().map(|request| f64::from(request.generated_tokens)).sum::<f64>();
    let held = first.as_secs_f64() + tokens / requests.len().max(1) as f64 * nanos_per_token / 1e9;
    let faster = (held / HELD.as_secs_f64()).clamp(1.0, 1e6);
    let speed = (options.speed * faster).clamp(1e-6, 1e6);
    let plain = Scenario {
        resources: capacity.len() as u32,
        workers: (units * 2).clamp(4, 2_000) as u32,
        capacity,
        ranking: Ranking::LeastLoaded,
        failures: mean(&|spec| spec.failure_rate as f64 / f64::from(u32::MAX)).min(1.0),
        seed: options.seed.unwrap_or(1),
        ..Scenario::default()
    };
    if path == Path::new("-") {
        return Scenario { hold: Distribution::Exponential(Span(HELD)), ..plain };
    }
    Scenario {
        pace: Loop::Open,
        burst: Shape::Trace,
        hold: Distribution::Trace,
        trace: Some(path.to_owned()),
        speed,
        // `speed` makes answers faster too, by what the trace is made faster than it is simulated.
        tokens_per_second: (1e9 / nanos_per_token / options.speed).clamp(0.1, 1e9),
        delay: Distribution::Fixed(Span(first.div_f64(faster))),
        ..plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_become_requests_at_their_rate() {
        let scenario = Scenario::open("gateway", &[]).unwrap();
        let made = requests(&scenario, None, 20_000);
        let seconds = made.last().unwrap().at as f64 / 1e9;
        let rate = made.len() as f64 / seconds;
        assert!((3_600.0..4_400.0).contains(&rate), "{rate}");
        let mean = made.iter().map(|request| f64::from(request.generated_tokens)).sum::<f64>() / 2e4;
        let expected = scenario.hold.mean().as_secs_f64() * 1e6;
        assert!((mean / expected - 1.0).abs() < 0.05, "{mean} {expected}");
        assert_eq!(Fleet::parse("f", &fleet_of(&scenario)).unwrap().resources.len(), 40);
    }

    fn options(scenario: &str) -> Tune {
        Tune {
            scenario: scenario.into(),
            trace: None,
            fleet: None,
            speed: 1.0,
            requests: 100,
            milliseconds: 50,
            rounds: 1,
            seed: None,
            format: crate::output::Format::Table,
            out: None,
        }
    }

    /// A scenario's own seed is what its moments and its luck follow from, here as with `load`; unless another one is asked for.
    #[test]
    fn a_scenario_keeps_its_seed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mine.toml");
        std::fs::write(&path, "seed = 7\nhold = \"fixed 1ms\"\n").unwrap();
        let own = options(path.to_str().unwrap());
        let workload = Workload::open(&own).unwrap();
        assert_eq!((workload.scenario.seed, workload.rules.seed), (7, 7));
        let asked = Workload::open(&Tune { seed: Some(9), ..own }).unwrap();
        assert_eq!((asked.scenario.seed, asked.rules.seed), (9, 9));
        assert_ne!(workload.requests[0].at, asked.requests[0].at);
    }

    /// Of a fleet file that comes with a scenario its resources are played, at the scenario's pace: live and in virtual time.
    #[test]
    fn a_scenario_is_played_on_the_fleet_that_is_given() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fleet.toml");
        let resource = |key: &str, tier: u8, slots: u32| {
            format!(
                "[[resource]]\nkey = \"{key}\"\ntier = {tier}\nmax_in_flight = {slots}\ntokens_per_second = 50\ntokens_per_minute = 1\n"
            )
        };
        let text = [resource("a", 2, 3), resource("b", 0, 7), resource("c", 2, 1)].concat();
        std::fs::write(&path, text).unwrap();
        let workload = Workload::open(&Tune { fleet: Some(path), ..options("gateway") }).unwrap();
        let scenario = &workload.scenario;
        assert_eq!((scenario.resources, scenario.units()), (3, Some(11)));
        assert_eq!((0..3).map(|index| scenario.tier_of(index)).collect::<Vec<_>>(), [2, 0, 2]);
        assert_eq!(
            (0..3).map(|index| scenario.limit_of(index)).collect::<Vec<_>>(),
            [Some(3), Some(7), Some(1)]
        );
        let own = Scenario::open("gateway", &[]).unwrap();
        assert_eq!((scenario.hold, scenario.rate, scenario.ranking), (own.hold, own.rate, own.ranking));
        for (spec, expected) in workload.fleet.resources.iter().zip([("a", 2, 3), ("b", 0, 7), ("c", 2, 1)]) {
            assert_eq!((spec.key.get_ref().as_str(), spec.tier, spec.max_in_flight), expected);
            assert_eq!((spec.nanos_per_token, spec.tokens_per_minute), (1_000, None));
        }
        assert!(workload.limits().iter().any(|limit| limit.starts_with("of the fleet's resources")));
    }

    /// What is left out of the live part too is said.
    #[test]
    fn a_close_is_left_out_and_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mine.toml");
        let told = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let limits = Workload::open(&options(path.to_str().unwrap())).unwrap().limits();
            limits.iter().any(|limit| limit.contains("`close-at` is left out"))
        };
        assert!(told("close-at = \"1s\"") && !told("workers = 3"));
    }

    #[test]
    fn all_ready_scenarios_can_be_tuned() {
        for ready in &crate::load::scenario::READY {
            let scenario = Scenario::open(ready.name, &[]).unwrap();
            let made = requests(&scenario, None, 200);
            assert_eq!(made.len(), 200, "{}", ready.name);
            assert!(made.is_sorted_by_key(|request| request.at));
            let fleet = Fleet::parse("f", &fleet_of(&scenario)).unwrap();
            assert_eq!(fleet.resources.len() as u32, scenario.resources.min(MOST));
        }
    }

    /// A ramp is climbed in the time of a round, again and again: not in the length of all that is simulated.
    #[test]
    fn ramps_are_climbed() {
        let changes = ["loop=open", "rate=1000", "burst=ramp 0.2 1.8", "duration=2s"].map(str::to_owned);
        let scenario = Scenario::open("gateway", &changes).unwrap();
        let made = requests(&scenario, None, 20_000);
        let seconds = made.last().unwrap().at as f64 / 1e9;
        // 1,000 a second on average: ten rounds.
        assert!((18.0..22.0).contains(&seconds), "{seconds}");
        let quarters = made.iter().fold([0u32; 4], |mut counts, request| {
            counts[(request.at / 500_000_000 % 4) as usize] += 1;
            counts
        });
        // 0.4, 0.8, 1.2 and 1.6 of a quarter each.
        for (count, expected) in quarters.iter().zip([2_000.0, 4_000.0, 6_000.0, 8_000.0]) {
            assert!((f64::from(*count) / expected - 1.0).abs() < 0.12, "{quarters:?}");
        }
    }

    #[test]
    fn a_trace_is_played_at_a_speed_that_fits_a_round() {
        let fleet = Fleet::built_in();
        let requests: Vec<Request> =
            (0..100).map(|number| request(number, Duration::ZERO, Duration::from_micros(200))).collect();
        let tune = |trace: &str| Tune { trace: Some(trace.into()), speed: 2.0, ..options("") };
        let scenario = scenario_of(&fleet, &requests, Path::new("built-in"), &tune("built-in"));
        assert_eq!(
            (scenario.pace, scenario.burst, scenario.hold),
            (Loop::Open, Shape::Trace, Distribution::Trace)
        );
        let answer = 200.0 / scenario.tokens_per_second / scenario.speed;
        let held = answer + scenario.delay.mean().as_secs_f64();
        assert!((held / HELD.as_secs_f64() - 1.0).abs() < 0.01, "{held}");
        let piped = scenario_of(&fleet, &requests, Path::new("-"), &tune("-"));
        assert_eq!((piped.trace, piped.hold), (None, Distribution::Exponential(Span(HELD))));
    }
}
