//! When a worker sends its next request.

use std::{sync::Arc, time::Duration};

use rand::{Rng, RngExt};
use rand_distr::{Distribution as _, Exp1};

use super::scenario::{Distribution, Loop, Scenario, Shape};
use crate::{
    error::Result,
    trace::{self, Arrivals},
};

/// A request that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planned {
    /// Since the beginning of the round.
    pub at: Duration,
    /// How long the backend will take before it answers, and from then on, if all goes well.
    pub delay: Duration,
    pub hold: Duration,
}

/// The requests of a trace: their moments and what they hold.
pub struct Schedule(Vec<Planned>);

/// Longer traces are cut: a round is seconds or minutes long.
const MOST: u64 = 2_000_000;

impl Schedule {
    /// The trace of the scenario, if it has one.
    pub fn open(scenario: &Scenario) -> Result<Option<Arc<Self>>> {
        let Some(path) = &scenario.trace else { return Ok(None) };
        let trace = trace::open(path, scenario.seed, scenario.speed)?;
        let mut arrivals = Arrivals::new(trace, scenario.speed, Some(MOST));
        let mut planned = Vec::new();
        while let Some(request) = arrivals.next_request()? {
            let tokens = f64::from(request.generated_tokens);
            let hold = tokens / scenario.tokens_per_second / scenario.speed;
            planned.push(Planned {
                at: Duration::from_nanos(request.at),
                delay: Duration::ZERO,
                hold: Duration::from_secs_f64(hold.min(super::scenario::LONGEST.as_secs_f64())),
            });
        }
        Ok(Some(Arc::new(Schedule(planned))))
    }
}

/// The requests of one worker, one after the other.
pub struct Pace<'a> {
    scenario: &'a Scenario,
    schedule: Option<&'a Schedule>,
    /// The next row of the schedule.
    row: usize,
    /// The moment of the last request of an open loop.
    last: Duration,
    began: bool,
    /// After so long the shape of the load begins anew.
    round: Duration,
}

impl<'a> Pace<'a> {
    pub fn new(scenario: &'a Scenario, schedule: Option<&'a Schedule>, worker: u32) -> Self {
        let round = scenario.duration.0;
        Pace { scenario, schedule, row: worker as usize, last: Duration::ZERO, began: false, round }
    }

    /// The same, for a load that is longer than the round whose shape it has, again and again.
    pub fn repeating(self, round: Duration) -> Self {
        Pace { round, ..self }
    }

    /// What is to be sent next, by somebody who has done with everything before at `now`. `None`: nothing any more.
    pub fn next(&mut self, now: Duration, random: &mut impl Rng) -> Option<Planned> {
        let Scenario { hold, burst, pace, .. } = self.scenario;
        let planned = self.planned();
        let at = match (burst, pace) {
            (Shape::Trace, _) => planned?.at,
            (_, Loop::Closed) => {
                // All at the same moment would be a herd that nobody has asked for.
                let begun = std::mem::replace(&mut self.began, true);
                let mut pause = self.scenario.think.draw(random);
                if !begun {
                    pause = pause.mul_f64(random.random());
                }
                let strength = burst.strength(now, self.scenario.duration.0);
                let pause = if strength > 0.0 { pause.div_f64(strength) } else { pause };
                burst.next_on(now + pause)
            }
            (Shape::Herd { every }, Loop::Open) => {
                let first = !std::mem::replace(&mut self.began, true);
                if first { Duration::ZERO } else { self.last + every.0 }
            }
            (_, Loop::Open) => self.arrival(random),
        };
        self.last = at;
        let hold = match (hold, planned) {
            (Distribution::Trace, Some(planned)) => planned.hold,
            (hold, _) => hold.draw(random),
        };
        Some(Planned { at, delay: self.scenario.delay.draw(random), hold })
    }

    /// The worker's next row of the trace: rows are dealt to the workers in turns. A closed loop begins anew at its end.
    fn planned(&mut self) -> Option<Planned> {
        let Schedule(rows) = self.schedule?;
        if self.row >= rows.len() && self.scenario.burst != Shape::Trace {
            self.row %= rows.len().max(1);
        }
        let planned = rows.get(self.row).copied();
        self.row += self.scenario.workers as usize;
        planned
    }

    /// The next arrival of a Poisson process whose rate changes: of a faster one, whose rate is the greatest, those that the
    /// strength at their moment lets through.
    fn arrival(&self, random: &mut impl Rng) -> Duration {
        let Scenario { rate, workers, burst, duration, .. } = self.scenario;
        let mean = f64::from(*workers) / (rate * burst.greatest());
        let mut at = self.last;
        loop {
            let unit: f64 = Exp1.sample(random);
            at += Duration::from_secs_f64((unit * mean).min(1e6));
            let within = Duration::from_nanos((at.as_nanos() % self.round.as_nanos().max(1)) as u64);
            let through = burst.strength(within, self.round) / burst.greatest();
            if at > duration.0 || random.random::<f64>() < through {
                return at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::SmallRng};

    use super::*;

    fn open(burst: &str) -> Scenario {
        let burst = burst.parse().unwrap();
        let duration = super::super::scenario::Span(Duration::from_secs(100));
        Scenario { pace: Loop::Open, rate: 500.0, workers: 5, burst, duration, ..Scenario::default() }
    }

    fn moments(scenario: &Scenario) -> Vec<Duration> {
        let mut random = SmallRng::seed_from_u64(7);
        let mut pace = Pace::new(scenario, None, 0);
        let mut next = || pace.next(Duration::ZERO, &mut random).unwrap().at;
        std::iter::from_fn(|| Some(next())).take_while(|at| *at < scenario.duration.0).collect()
    }

    #[test]
    fn open_loops_have_their_rate_whatever_their_shape() {
        for burst in ["steady", "on-off 1s 0.25", "ramp 0.5 1.5"] {
            let scenario = open(burst);
            let count = moments(&scenario).len();
            // 100 a second for 100 s; a deviation is 1 %.
            assert!((9_600..10_400).contains(&count), "{burst}: {count}");
        }
    }

    #[test]
    fn pauses_are_empty() {
        let scenario = open("on-off 1s 0.25");
        assert!(moments(&scenario).iter().all(|at| at.subsec_millis() <= 250));
    }

    #[test]
    fn herds_come_together() {
        let scenario = open("herd 10s");
        let seconds: Vec<u64> = moments(&scenario).iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
    }

    #[test]
    fn traces_are_dealt_in_turns() {
        let rows = (0..7u64).map(|i| Planned {
            at: Duration::from_secs(i),
            delay: Duration::ZERO,
            hold: Duration::from_millis(i),
        });
        let schedule = Schedule(rows.collect());
        let mut scenario = open("trace");
        scenario.workers = 3;
        scenario.hold = Distribution::Trace;
        let mut random = SmallRng::seed_from_u64(7);
        let mut pace = Pace::new(&scenario, Some(&schedule), 1);
        let planned: Vec<_> = std::iter::from_fn(|| pace.next(Duration::ZERO, &mut random)).collect();
        assert_eq!(planned, [schedule.0[1], schedule.0[4]]);
    }
}
