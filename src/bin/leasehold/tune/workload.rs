//! The workload, twice: as requests for the simulation, and as a scenario for real threads.

use std::{fmt::Write, time::Duration};

use rand::{SeedableRng, rngs::SmallRng};

use super::Tune;
use crate::{
    error::Result,
    fleet::Fleet,
    load::{
        pace::{Pace, Schedule},
        scenario::{Distribution, Loop, Ranking, Scenario, Shape, Span},
    },
    replay::open_fleet,
    trace::{self, Arrivals, Request},
};

pub struct Workload {
    pub name: String,
    pub fleet: Fleet,
    pub requests: Vec<Request>,
    /// The same load for real threads and tasks.
    pub scenario: Scenario,
}

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
                let scenario = Scenario::open(&options.scenario, &[format!("seed={}", options.seed)])?;
                let schedule = Schedule::open(&scenario)?;
                let requests = requests(&scenario, schedule.as_deref(), options.requests);
                let fleet = Fleet::parse(&options.scenario, &fleet_of(&scenario))?;
                Ok(Workload { name: options.scenario.clone(), fleet, requests, scenario })
            }
            Some(path) => {
                let fleet = open_fleet(options.fleet.as_deref())?;
                let trace = trace::open(path, options.seed, options.speed)?;
                let mut arrivals = Arrivals::new(trace, options.speed, Some(options.requests.into()));
                let mut requests = Vec::new();
                while let Some(request) = arrivals.next_request()? {
                    requests.push(request);
                }
                let scenario = scenario_of(&fleet, options.seed);
                Ok(Workload { name: path.display().to_string(), fleet, requests, scenario })
            }
        }
    }
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
        let failures = (scenario.failures + scenario.rate_limits).min(1.0);
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
fn requests(scenario: &Scenario, schedule: Option<&Schedule>, count: u32) -> Vec<Request> {
    let share = f64::from(scenario.resources.min(MOST)) / f64::from(scenario.resources);
    let mut open = Scenario { workers: 1, duration: Span(Duration::from_secs(86_400)), ..scenario.clone() };
    match (scenario.pace, scenario.burst) {
        (_, Shape::Trace) => {}
        (Loop::Open, Shape::Herd { every }) => {
            return herds(scenario, every.0, share, count);
        }
        (Loop::Open, _) => open.rate = scenario.rate * share,
        (Loop::Closed, _) => {
            let hold = mean_hold(scenario).max(1e-6);
            let wished = f64::from(scenario.workers) / (scenario.think.mean().as_secs_f64() + hold);
            let units = scenario.units().unwrap_or(u64::from(scenario.resources) * u64::from(UNLIMITED));
            open.pace = Loop::Open;
            open.burst = Shape::Steady;
            open.rate = (wished.min(0.9 * units as f64 / hold) * share).clamp(0.001, 1e7);
        }
    }
    let mut random = SmallRng::seed_from_u64(scenario.seed);
    let mut pace = Pace::new(&open, schedule, 0);
    let planned = std::iter::from_fn(|| pace.next(Duration::ZERO, &mut random));
    planned
        .zip(0..u64::from(count))
        .map(|(planned, number)| request(number, planned.at, planned.hold))
        .collect()
}

/// Everybody at once, again and again.
fn herds(scenario: &Scenario, every: Duration, share: f64, count: u32) -> Vec<Request> {
    let mut random = SmallRng::seed_from_u64(scenario.seed);
    let herd = ((f64::from(scenario.workers) * share) as u32).max(1);
    let at = |number: u32| every * (number / herd);
    (0..count).map(|number| request(number.into(), at(number), scenario.hold.draw(&mut random))).collect()
}

fn request(number: u64, at: Duration, hold: Duration) -> Request {
    let tokens = (hold.as_micros() as u64).clamp(1, 100_000_000) as u32;
    Request { number, at: at.as_nanos() as u64, context_tokens: 0, generated_tokens: tokens }
}

fn mean_hold(scenario: &Scenario) -> f64 {
    match scenario.hold {
        // As an answer of 200 tokens.
        Distribution::Trace => 200.0 / scenario.tokens_per_second,
        hold => hold.mean().as_secs_f64(),
    }
}

/// Real threads borrow from a fleet of the same size and capacities; what its backends do is for the simulation alone.
fn scenario_of(fleet: &Fleet, seed: u64) -> Scenario {
    let capacity: Vec<u32> = fleet.resources.iter().map(|spec| spec.max_in_flight).collect();
    let units: u64 = capacity.iter().map(|&slots| u64::from(slots)).sum();
    Scenario {
        resources: capacity.len() as u32,
        workers: (units * 2).clamp(4, 2_000) as u32,
        capacity,
        ranking: Ranking::LeastLoaded,
        hold: Distribution::Exponential(Span(Duration::from_millis(5))),
        seed,
        ..Scenario::default()
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
}
