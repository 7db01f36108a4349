//! The life of a request, from the moment that was meant to its end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crossbeam_utils::CachePadded;
use leasehold::{Outcome, SplitMix64};
use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::{
    claim::{Claimed, Claims},
    clock::{Clock, Stop},
    outcome::{Ending, Refusal, Trouble},
    pace::{Pace, Planned, Schedule},
    recorder::{Recorder, Seen},
    referee::{Grant, Referee},
    scenario::{Driver, Loop, Scenario},
    subject::{Held, Subject, Wish},
};

/// What the workers of one round share.
pub struct Round {
    pub scenario: Arc<Scenario>,
    pub subject: Arc<Subject>,
    pub referee: Arc<Referee>,
    /// Where many processes share the fleet: what its leases hang on.
    pub claims: Option<Arc<dyn Claims>>,
    /// How many workers other processes have before ours: what is drawn for one is drawn for no other.
    pub first: u32,
    pub schedule: Option<Arc<Schedule>>,
    pub clock: Arc<Clock>,
    pub recorder: Recorder,
    pub stop: Stop,
    pub number: u32,
    /// Moments of the clock.
    pub begins: u64,
    pub workers: Box<[CachePadded<Worker>]>,
    /// Values that were replaced or removed.
    pub retired: AtomicU64,
    /// Of one acquisition out of so many the order is looked at; 0: of none.
    pub sample: u32,
}

/// What is counted for each worker by itself.
#[derive(Default)]
pub struct Worker {
    /// Requests begun; against it the counts are balanced.
    pub begun: AtomicU64,
    /// Leases that it got.
    pub served: AtomicU64,
    /// Requests of an open loop whose moment had come and that were never sent, because the worker was busy to the end.
    pub unsent: AtomicU64,
    /// Requests of an open loop that were sent when their time to wait was over.
    pub too_late: AtomicU64,
}

/// A worker, until the end of the round.
pub async fn work(round: Arc<Round>, worker: u32) {
    let Round { scenario, clock, stop, .. } = &*round;
    let own = u64::from(round.number) << 40 | u64::from(round.first + worker);
    let seed = SplitMix64::mix(scenario.seed ^ (own + 1));
    let mut caller = Caller { round: &round, worker, random: SmallRng::seed_from_u64(seed) };
    let mut pace = Pace::new(scenario, round.schedule.as_deref(), round.first + worker);
    let never_sleeps = scenario.think.is_zero() && scenario.hold.is_zero() && scenario.delay.is_zero();
    let ends = scenario.duration.0;
    let since = |now: u64| Duration::from_nanos(now.saturating_sub(round.begins));
    stop.sleep_until(scenario.driver, clock, round.begins).await;
    let begun = loop {
        let Some(planned) = pace.next(since(clock.now()), &mut caller.random) else { break None };
        if planned.at >= ends {
            break None;
        }
        let moment = round.begins + planned.at.as_nanos() as u64;
        let sleeps = clock.now() < moment;
        if !stop.sleep_until(scenario.driver, clock, moment).await || stop.is_set() {
            break Some(planned);
        }
        if sleeps {
            round.recorder.late(worker, clock.now().saturating_sub(moment));
        }
        let intended = if scenario.pace == Loop::Open { moment } else { clock.now() };
        let seen = caller.ask(planned, intended).await;
        round.recorder.record(worker, &seen);
        if never_sleeps && scenario.driver == Driver::Tasks {
            tokio::task::yield_now().await;
        }
    };
    if scenario.pace == Loop::Open
        && let Some(mut planned) = begun
    {
        // Moments that came while the worker was busy, and will not be served any more.
        let over = since(clock.now()).min(ends);
        while planned.at < over {
            round.workers[worker as usize].unsent.fetch_add(1, Ordering::Relaxed);
            match pace.next(Duration::ZERO, &mut caller.random) {
                Some(next) => planned = next,
                None => break,
            }
        }
    }
}

struct Caller<'a> {
    round: &'a Round,
    worker: u32,
    random: SmallRng,
}

/// What the backend will do with a request.
struct Fate {
    takes: Duration,
    /// Before it answers; more than it takes if it never does.
    delay: Duration,
    ending: Ending,
}

impl Caller<'_> {
    fn own(&self) -> &Worker {
        &self.round.workers[self.worker as usize]
    }

    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.random.random::<f64>() < share
    }

    async fn ask(&mut self, planned: Planned, intended: u64) -> Seen {
        let Round { scenario, clock, subject, recorder, referee, .. } = self.round;
        self.own().begun.fetch_add(1, Ordering::Relaxed);
        let sent = clock.now();
        let end = |ending, waited| {
            let now = clock.now();
            let took = now - intended.min(now);
            Seen { ending, waited, took, took_since_sent: now - sent, held: None, delayed: None }
        };
        // Who comes late because its worker was busy has waited since the moment that was meant, and has so much less time left.
        let late = Duration::from_nanos(sent.saturating_sub(intended));
        let Some(wish) = self.wish() else {
            let seen = subject.peek();
            return end(if seen { Ending::Peeked } else { Ending::Scheduler(Refusal::NoneEligible) }, None);
        };
        let gives_up = self.happens(scenario.cancellations).then(|| {
            let patience = scenario.patience.draw(&mut self.random);
            intended.min(sent) + patience.as_nanos() as u64
        });
        let wait = scenario.wait.0.saturating_sub(late);
        if wait.is_zero() && !scenario.wait.0.is_zero() {
            self.own().too_late.fetch_add(1, Ordering::Relaxed);
            return end(Ending::Scheduler(Refusal::TimedOut), None);
        }
        let patience = gives_up.map(|moment| Duration::from_nanos(moment.saturating_sub(sent)));
        if !late.is_zero() && patience.is_some_and(|patience| patience.is_zero()) {
            return end(Ending::CancelledWaiting, None);
        }
        let waits = recorder.waits(self.worker);
        let answer = acquire(self.round, wish, self.class(), wait, patience).await;
        drop(waits);
        let mut held = match answer {
            Ok(held) => held,
            Err(ending) => return end(ending, None),
        };
        let now = clock.now();
        let _holds = recorder.holds(self.worker);
        let grant = referee.granted(held.index(), sent, now);
        self.own().served.fetch_add(1, Ordering::Relaxed);
        let claimed = match self.round.claims.as_deref().zip(held.lease()) {
            None => None,
            Some((claims, lease)) => match claims.claimed(lease) {
                Some(claimed) => Some(claimed),
                None => {
                    let fate =
                        Fate { takes: Duration::ZERO, delay: planned.delay, ending: Ending::ClaimLost };
                    self.give_back(held, grant, &fate);
                    return end(fate.ending, Some(now - intended.min(now)));
                }
            },
        };
        let sample = self.round.sample;
        if wish == Wish::Anything && sample > 0 && self.random.random_range(0..sample) == 0 {
            recorder.rank_error(self.worker, referee.rank_error(grant, now));
        }
        let mut fate = self.fate(grant.index, planned, now);
        if let Some(moment) = gives_up
            && moment < now + fate.takes.as_nanos() as u64
        {
            fate = Fate {
                takes: Duration::from_nanos(moment.saturating_sub(now)),
                ending: Ending::CancelledServed,
                ..fate
            };
        }
        let until = now + fate.takes.as_nanos() as u64;
        if !fate.takes.is_zero()
            && let Some(early) = self.hold_until(until, claimed.as_deref()).await
        {
            fate.ending = early;
        }
        let held_for = clock.now() - now;
        // Before the lease, as fences ask for.
        drop(claimed);
        self.give_back(held, grant, &fate);
        let delay = fate.delay.as_nanos() as u64;
        let answered = fate.takes >= fate.delay && held_for >= delay;
        let seen = end(fate.ending, Some(now - intended.min(now)));
        Seen { held: Some(held_for), delayed: answered.then_some(delay), ..seen }
    }

    /// Keeps the lease until then, if nothing ends it before: the end of the round, or that of its claim, which is looked at whenever it
    /// may have come.
    async fn hold_until(&self, until: u64, claimed: Option<&dyn Claimed>) -> Option<Ending> {
        let Round { scenario, clock, stop, .. } = self.round;
        loop {
            let good = match claimed.map(Claimed::left) {
                None => u64::MAX,
                Some(Duration::ZERO) => return Some(Ending::ClaimLost),
                Some(left) => clock.now() + left.as_nanos() as u64,
            };
            if !stop.sleep_until(scenario.driver, clock, until.min(good)).await {
                return Some(Ending::CutShort);
            }
            if until <= good {
                return None;
            }
        }
    }

    /// What is asked for; `None`: only a look.
    fn wish(&mut self) -> Option<Wish> {
        let Scenario { peeks, affinity, named, filtered, ids, .. } = *self.round.scenario;
        let draw: f64 = self.random.random();
        if draw < peeks {
            return None;
        }
        if draw < peeks + affinity {
            return Some(Wish::Affinity(u64::from(self.random.random_range(0..ids))));
        }
        if draw < peeks + affinity + named {
            let lineage = self.random.random_range(0..self.round.referee.lineages());
            // One that is not there just now is asked for all the same.
            return Some(Wish::Named(self.round.referee.current(lineage).unwrap_or(lineage)));
        }
        if draw < peeks + affinity + named + filtered {
            return Some(Wish::Matching);
        }
        Some(Wish::Anything)
    }

    fn class(&self) -> u8 {
        ((self.round.first + self.worker) % u32::from(self.round.scenario.classes)) as u8
    }

    fn fate(&mut self, index: u32, planned: Planned, now: u64) -> Fate {
        let scenario = &self.round.scenario;
        let delay = planned.delay;
        let hold = delay + planned.hold;
        let failed = |takes| Fate { takes, delay, ending: Ending::Backend(Trouble::Failed) };
        if is_down(scenario, index % scenario.resources, now) {
            // At once: the one who fails fast must not look like a fast one.
            return failed(Duration::ZERO);
        }
        if self.happens(scenario.failures) {
            return failed(hold.mul_f64(self.random.random()));
        }
        if self.happens(scenario.rate_limits) {
            return Fate {
                takes: hold.min(Duration::from_millis(1)),
                delay,
                ending: Ending::Backend(Trouble::RateLimited),
            };
        }
        let limit = scenario.backend_timeout.0;
        if !limit.is_zero() && hold > limit {
            return Fate { takes: limit, delay, ending: Ending::Backend(Trouble::TimedOut) };
        }
        Fate { takes: hold, delay, ending: Ending::Completed }
    }

    fn give_back(&mut self, held: Held<'_>, grant: Grant, fate: &Fate) {
        let Round { scenario, clock, referee, .. } = self.round;
        let outcome = match fate.ending {
            Ending::Completed => Outcome::Ok { latency: fate.takes },
            Ending::Backend(Trouble::RateLimited) => {
                Outcome::RateLimited { retry_after: scenario.retry_after.draw(&mut self.random) }
            }
            Ending::Backend(_) => Outcome::Failed,
            _ => Outcome::Cancelled,
        };
        let rest = scenario.cooldown.0;
        let cools = match outcome {
            Outcome::RateLimited { retry_after } => retry_after.max(rest),
            _ => rest,
        };
        let by_token = rest.is_zero() && self.happens(scenario.tokens);
        let began = clock.now();
        referee.returns(grant, began);
        match (held, self.round.subject.scheduler()) {
            (Held::Leasehold(lease), Some(scheduler)) if by_token => {
                let token = lease.into_token();
                referee.token(token);
                if let Err(error) = scheduler.finish(token, outcome) {
                    referee.breach(format!("resource {}: its token was refused: {error}", grant.index));
                }
                if scheduler.release(token).is_ok() {
                    referee.breach(format!("resource {}: returned twice by one token", grant.index));
                }
            }
            (held, _) => held.finish(outcome, rest),
        }
        if !cools.is_zero() {
            referee.cools(grant.index, began, cools.as_nanos() as u64, clock.now());
        }
    }
}

/// Whether a resource that flaps is down: its kind begins at different moments, so that they are not down together.
fn is_down(scenario: &Scenario, lineage: u32, now: u64) -> bool {
    if scenario.flapping == 0.0 {
        return false;
    }
    let draw = SplitMix64::mix(scenario.seed ^ u64::from(lineage) << 20);
    if (draw >> 11) as f64 / (1u64 << 53) as f64 >= scenario.flapping {
        return false;
    }
    let every = scenario.flap_every.0.as_nanos() as u64;
    ((now + draw % (2 * every)) / every).is_multiple_of(2)
}

/// A lease, or how the request ended without one. A task gives up by dropping what it waits for, a thread by waiting for
/// less long.
async fn acquire(
    round: &Round,
    wish: Wish,
    class: u8,
    wait: Duration,
    patience: Option<Duration>,
) -> Result<Held<'_>, Ending> {
    let Round { scenario, clock, subject, stop, .. } = round;
    let patience = patience.filter(|patience| *patience < wait);
    match scenario.driver {
        Driver::Threads => blocking(round, wish, class, wait, patience).await,
        Driver::Tasks => {
            let asks = subject.acquire(Driver::Tasks, clock, wish, class, wait);
            let answer = match patience {
                None => stop.unless_set(asks).await,
                Some(patience) => match stop.unless_set(tokio::time::timeout(patience, asks)).await {
                    // The caller's own time was over. Whatever the scheduler has answered before is its own.
                    Some(Err(_)) => return Err(Ending::CancelledWaiting),
                    Some(Ok(answer)) => Some(answer),
                    None => None,
                },
            };
            answer.ok_or(Ending::CutWaiting)?.map_err(Ending::Scheduler)
        }
    }
}

/// A thread that blocks looks at the end of the round so often. Each time it loses its place in the line, so that is seldom; and
/// mostly needless: at the end whoever holds a lease returns it, and so whoever waits for one is served.
const SLICE: Duration = Duration::from_secs(5);

async fn blocking(
    round: &Round,
    wish: Wish,
    class: u8,
    wait: Duration,
    patience: Option<Duration>,
) -> Result<Held<'_>, Ending> {
    let Round { scenario, clock, subject, stop, .. } = round;
    let ends = round.begins + scenario.duration.0.as_nanos() as u64;
    let until = clock.now() + patience.unwrap_or(wait).as_nanos() as u64;
    loop {
        let now = clock.now();
        let left = Duration::from_nanos(until.saturating_sub(now));
        // Whose deadline decides whether it is let in must say the real one.
        let slice = if scenario.shed {
            left
        } else {
            left.min(SLICE).min(Duration::from_nanos(ends.saturating_sub(now)))
        };
        let asks = if wait.is_zero() { wait } else { slice.max(Duration::from_nanos(1)) };
        let refusal = match subject.acquire(Driver::Threads, clock, wish, class, asks).await {
            Ok(held) => return Ok(held),
            Err(refusal) => refusal,
        };
        if refusal != Refusal::TimedOut {
            return Err(Ending::Scheduler(refusal));
        }
        if clock.now() >= until {
            // Nobody waits here for as long as the scheduler would let him: it was the caller whose time was over.
            return Err(patience.map_or(Ending::Scheduler(refusal), |_| Ending::CancelledWaiting));
        }
        if stop.is_set() || clock.now() >= ends {
            return Err(Ending::CutWaiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_flaps_half_of_the_time() {
        let scenario = Scenario { flapping: 0.2, ..Scenario::default() };
        let every = scenario.flap_every.0.as_nanos() as u64;
        let down = |now| (0..10_000).filter(|&lineage| is_down(&scenario, lineage, now)).count();
        for now in [0, every / 3, every, 7 * every / 2] {
            assert!((850..1_150).contains(&down(now)), "{}", down(now));
        }
        let moments = |lineage| (0..100).filter(|i| is_down(&scenario, lineage, i * every)).count();
        assert!((0..100).map(moments).all(|downs| downs == 0 || downs == 50));
    }
}
