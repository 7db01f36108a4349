//! When the next request is sent.
//!
//! In a closed loop each worker has a [`Pace`] of its own: it sends when it has done with what was before. In an open loop all workers of
//! the process share one, [`Moments`]: **whoever has nothing to do takes the next moment**, sleeps until it, and sends. So while one worker
//! is busy another one sends what is due, and a request is late only if all are busy. With a line of moments for each worker a request
//! would wait for its own worker, and that wait would be the tool's and not the subject's.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use rand::{RngExt, rngs::SmallRng};
use rand_distr::{Distribution as _, Exp1};

use super::{
    draws::{Draws, Purpose},
    recorder::lock,
    scenario::{Distribution, LONGEST, Loop, Scenario, Shape, Span},
};
use crate::{
    error::{Error, Result},
    trace::{self, Arrivals},
};

/// A request that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planned {
    /// Its place among those of its pace, from 0.
    pub number: u64,
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
        if path.as_os_str() == "-" {
            // Each of many processes would read it, and it is where they are told what to do.
            return Err(Error::Options("a load reads its trace from a file, not from standard input".into()));
        }
        let trace = trace::open(path, scenario.seed, scenario.speed)?;
        let mut arrivals = Arrivals::new(trace, scenario.speed, Some(MOST));
        let mut planned = Vec::new();
        while let Some(request) = arrivals.next_request()? {
            let takes = |tokens: u32, per_second: f64| {
                let seconds = f64::from(tokens) / per_second / scenario.speed;
                Duration::from_secs_f64(seconds.min(LONGEST.as_secs_f64()))
            };
            planned.push(Planned {
                number: planned.len() as u64,
                at: Duration::from_nanos(request.at),
                delay: takes(request.context_tokens, scenario.prompt_tokens_per_second),
                hold: takes(request.generated_tokens, scenario.tokens_per_second),
            });
        }
        Ok(Some(Arc::new(Schedule(planned))))
    }
}

/// The requests of one worker, or of all, one after the other.
pub struct Pace {
    scenario: Arc<Scenario>,
    schedule: Option<Arc<Schedule>>,
    /// Of the scenario's workers those whose requests these are.
    crew: Range<u32>,
    /// The next row of the schedule, as if it had no end.
    row: usize,
    /// The moment of the last request of an open loop.
    last: Duration,
    began: bool,
    /// After so long the shape of the load begins anew.
    round: Duration,
    draws: Draws,
    /// For the moments alone: lengths are drawn for each request by themselves.
    moments: SmallRng,
    /// Requests that were planned.
    count: u64,
}

impl Pace {
    pub fn new(
        scenario: Arc<Scenario>,
        schedule: Option<Arc<Schedule>>,
        crew: Range<u32>,
        draws: Draws,
    ) -> Self {
        Pace {
            row: crew.start as usize,
            last: Duration::ZERO,
            began: false,
            round: scenario.duration.0,
            draws,
            moments: draws.of(Purpose::Moments, 0),
            count: 0,
            scenario,
            schedule,
            crew,
        }
    }

    /// The same, for a load that is longer than the round whose shape it has, again and again.
    pub fn repeating(self, round: Duration) -> Self {
        Pace { round, ..self }
    }

    /// What is to be sent next, by somebody who has done with everything before at `now`. `None`: nothing any more.
    pub fn next(&mut self, now: Duration) -> Option<Planned> {
        let Scenario { hold, delay, burst, pace, .. } = *self.scenario;
        let planned = self.planned();
        let at = match (burst, pace) {
            (Shape::Trace, _) => planned?.at,
            (_, Loop::Closed) => {
                // All at the same moment would be a herd that nobody has asked for.
                let begun = std::mem::replace(&mut self.began, true);
                let mut pause = self.scenario.think.draw(&mut self.moments);
                if !begun {
                    pause = pause.mul_f64(self.moments.random());
                }
                let strength = burst.strength(now, self.scenario.duration.0);
                let pause = if strength > 0.0 { pause.div_f64(strength) } else { pause };
                burst.next_on(now + pause)
            }
            // As many at once as there are workers.
            (Shape::Herd { every }, Loop::Open) => {
                every.0 * u32::try_from(self.count / self.crew.len() as u64).unwrap_or(u32::MAX)
            }
            (_, Loop::Open) => self.arrival(),
        };
        self.last = at;
        let number = self.count;
        self.count += 1;
        let length = |distribution: Distribution, of_trace: fn(Planned) -> Duration, purpose| {
            match (distribution, planned) {
                (Distribution::Trace, Some(planned)) => of_trace(planned),
                // Most scenarios have no delay, and not all have a hold: nothing to be drawn.
                (Distribution::Fixed(span), _) => span.0,
                (distribution, _) => distribution.draw(&mut self.draws.of(purpose, number)),
            }
        };
        let delay = length(delay, |planned| planned.delay, Purpose::Delay);
        let hold = length(hold, |planned| planned.hold, Purpose::Hold);
        Some(Planned { number, at, delay, hold })
    }

    /// About how many more there are before this moment.
    fn more_until(&self, at: Duration) -> f64 {
        let Scenario { rate, workers, burst, .. } = *self.scenario;
        if let Shape::Herd { every: Span(every) } = burst {
            let herds = at.as_nanos().div_ceil(every.as_nanos()) as f64;
            return (herds * self.crew.len() as f64 - self.count as f64).max(0.0);
        }
        let come = |at| burst.come_until(at, self.round);
        rate * self.crew.len() as f64 / f64::from(workers) * (come(at) - come(self.last)).max(0.0)
    }

    /// The next row of the trace: rows are dealt to the scenario's workers in turns. Where its moments do not count it begins anew at its end.
    fn planned(&mut self) -> Option<Planned> {
        let Schedule(rows) = &**self.schedule.as_ref()?;
        let row = if self.scenario.burst == Shape::Trace { self.row } else { self.row % rows.len().max(1) };
        let workers = self.scenario.workers as usize;
        let dealt_to = self.row % workers;
        let of_crew = dealt_to + 1 < self.crew.end as usize;
        self.row += if of_crew { 1 } else { workers - dealt_to + self.crew.start as usize };
        rows.get(row).copied()
    }

    /// The next arrival of a Poisson process whose rate changes: of a faster one, whose rate is the greatest, those that the
    /// strength at their moment lets through.
    fn arrival(&mut self) -> Duration {
        let Scenario { rate, workers, burst, duration, .. } = *self.scenario;
        let mean = f64::from(workers) / self.crew.len() as f64 / (rate * burst.greatest());
        let mut at = self.last;
        loop {
            let unit: f64 = Exp1.sample(&mut self.moments);
            at += Duration::from_secs_f64((unit * mean).min(1e6));
            let within = Duration::from_nanos((at.as_nanos() % self.round.as_nanos().max(1)) as u64);
            let through = burst.strength(within, self.round) / burst.greatest();
            if at > duration.0 || self.moments.random::<f64>() < through {
                return at;
            }
        }
    }
}

/// The requests of an open loop, for all workers of a process.
pub struct Moments(Mutex<Pace>);

impl Moments {
    pub fn new(pace: Pace) -> Self {
        Moments(Mutex::new(pace))
    }

    /// The next one, for a worker that has nothing to do. `None`: there are no more.
    pub fn take(&self) -> Option<Planned> {
        // Where there are moments it does not matter when somebody asks for them.
        lock(&self.0).next(Duration::ZERO)
    }

    /// About how many more there are before this moment, without drawing them.
    pub fn more_until(&self, at: Duration) -> f64 {
        lock(&self.0).more_until(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: fn() -> Draws = || Draws::new(7, 0, 0);

    fn open(burst: &str) -> Scenario {
        let burst = burst.parse().unwrap();
        let duration = super::super::scenario::Span(Duration::from_secs(100));
        Scenario { pace: Loop::Open, rate: 500.0, workers: 5, burst, duration, ..Scenario::default() }
    }

    /// Of so many of its workers, one after the other.
    fn pace(scenario: &Scenario, crew: Range<u32>) -> Pace {
        Pace::new(Arc::new(scenario.clone()), None, crew, DRAWS())
    }

    fn moments(scenario: &Scenario, crew: Range<u32>) -> Vec<Duration> {
        let mut pace = pace(scenario, crew);
        let mut next = || pace.next(Duration::ZERO).unwrap().at;
        std::iter::from_fn(|| Some(next())).take_while(|at| *at < scenario.duration.0).collect()
    }

    #[test]
    fn open_loops_have_their_rate_whatever_their_shape() {
        for burst in ["steady", "on-off 1s 0.25", "ramp 0.5 1.5"] {
            let scenario = open(burst);
            let count = moments(&scenario, 0..1).len();
            // 100 a second for 100 s; a deviation is 1 %.
            assert!((9_600..10_400).contains(&count), "{burst}: {count}");
            let count = moments(&scenario, 0..5).len();
            assert!((49_000..51_000).contains(&count), "{burst}: {count} of all workers");
        }
    }

    /// What is told without drawing is what would be drawn, wherever one begins.
    #[test]
    fn more_is_about_what_would_come() {
        for burst in ["steady", "on-off 1s 0.25", "on-off 64s 0.5", "ramp 0.5 1.5", "ramp 2 0.1", "herd 10ms"]
        {
            let scenario = open(burst);
            for (crew, drawn) in [(0..5, 0), (0..5, 10_007), (1..3, 3_001)] {
                let mut pace = pace(&scenario, crew);
                for _ in 0..drawn {
                    let _ = pace.next(Duration::ZERO);
                }
                for end in [40, 99].map(Duration::from_secs).into_iter().filter(|end| *end > pace.last) {
                    let expected = pace.more_until(end);
                    let mut same = Pace::new(Arc::clone(&pace.scenario), None, pace.crew.clone(), DRAWS());
                    for _ in 0..drawn {
                        let _ = same.next(Duration::ZERO);
                    }
                    let all = std::iter::from_fn(|| same.next(Duration::ZERO));
                    let more = all.take_while(|planned| planned.at < end).count() as f64;
                    let (least, most) = (more - 5.0 * more.sqrt() - 5.0, more + 5.0 * more.sqrt() + 5.0);
                    assert!(
                        (least..=most).contains(&expected),
                        "{burst}, {drawn}, {end:?}: {expected} for {more}"
                    );
                }
            }
        }
    }

    #[test]
    fn pauses_are_empty() {
        let scenario = open("on-off 1s 0.25");
        assert!(moments(&scenario, 0..5).iter().all(|at| at.subsec_millis() <= 250));
    }

    #[test]
    fn herds_come_together() {
        let scenario = open("herd 10s");
        let seconds = |crew| -> Vec<u64> { moments(&scenario, crew).iter().map(Duration::as_secs).collect() };
        assert_eq!(seconds(0..1), [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
        let of_three = seconds(1..4);
        assert_eq!(
            (of_three.len(), &of_three[..6]),
            (30, &[0, 0, 0, 10, 10, 10][..]),
            "each of them at each time"
        );
    }

    #[test]
    fn traces_are_dealt_in_turns() {
        let rows = (0..7u64).map(|i| Planned {
            number: i,
            at: Duration::from_secs(i),
            delay: Duration::from_micros(i),
            hold: Duration::from_millis(i),
        });
        let schedule = Arc::new(Schedule(rows.collect()));
        let mut scenario = open("trace");
        scenario.workers = 3;
        (scenario.hold, scenario.delay) = (Distribution::Trace, Distribution::Trace);
        let scenario = Arc::new(scenario);
        let dealt = |crew| -> Vec<u64> {
            let mut pace = Pace::new(Arc::clone(&scenario), Some(Arc::clone(&schedule)), crew, DRAWS());
            let planned = std::iter::from_fn(|| pace.next(Duration::ZERO));
            planned
                .zip(0..)
                .map(|(planned, place)| {
                    let row = planned.at.as_secs();
                    assert_eq!(planned, Planned { number: place, ..schedule.0[row as usize] });
                    row
                })
                .collect()
        };
        assert_eq!(dealt(1..2), [1, 4]);
        // Of several the rows of each of them, in the order of their moments.
        assert_eq!(dealt(0..3), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!((dealt(0..2), dealt(1..3)), (vec![0, 1, 3, 4, 6], vec![1, 2, 4, 5]));
    }

    /// Whoever asks, and when: the moments are the same, each once, and in their order.
    #[test]
    fn moments_are_shared() {
        let scenario = Scenario { workers: 4, ..open("steady") };
        let moments = Moments::new(pace(&scenario, 0..4));
        let mut taken: Vec<Planned> = std::thread::scope(|scope| {
            let take = || (0..500).map(|_| moments.take().unwrap()).collect::<Vec<_>>();
            let takers: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
        });
        taken.sort_by_key(|planned| planned.number);
        let mut alone = pace(&scenario, 0..4);
        assert!(taken.into_iter().all(|planned| alone.next(Duration::ZERO) == Some(planned)));
    }

    /// What else is drawn for requests moves none of them.
    #[test]
    fn moments_depend_on_nothing_else_that_is_drawn() {
        let plain = open("on-off 1s 0.25");
        let lengths = Scenario {
            hold: "log-normal 3ms 0.8".parse().unwrap(),
            delay: "uniform 1ms 5ms".parse().unwrap(),
            ..plain.clone()
        };
        assert_eq!(moments(&plain, 0..5), moments(&lengths, 0..5));
        // And no length depends on another kind's distribution.
        let holds = |scenario: &Scenario| -> Vec<Duration> {
            let mut pace = pace(scenario, 0..5);
            (0..100).map(|_| pace.next(Duration::ZERO).unwrap().hold).collect()
        };
        assert_eq!(holds(&lengths), holds(&Scenario { delay: Distribution::ZERO, ..lengths.clone() }));
    }

    /// A closed loop thinks for less where the load is strong: half of the usual pause at twice the strength.
    #[test]
    fn closed_loops_follow_a_ramp() {
        let mut scenario = open("ramp 0.5 2");
        scenario.pace = Loop::Closed;
        scenario.think = "fixed 100ms".parse().unwrap();
        let mut pace = pace(&scenario, 0..1);
        let first = pace.next(Duration::ZERO).unwrap().at;
        assert!(first < Duration::from_millis(200), "part of a pause, so that they do not begin together");
        for (now, strength) in [(0, 0.5), (50, 1.25), (100, 2.0)] {
            let now = Duration::from_secs(now);
            let pause = pace.next(now).unwrap().at - now;
            assert_eq!(pause, Duration::from_millis(100).div_f64(strength), "{now:?}");
        }
    }
}
