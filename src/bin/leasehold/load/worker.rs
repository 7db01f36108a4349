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
use rand::{RngExt, rngs::SmallRng};

use super::{
    claim::{Claimed, Claims},
    clock::{Clock, Stop},
    draws::{Draws, Purpose},
    outcome::{Ending, Refusal, Trouble},
    pace::{Moments, Pace, Planned, Schedule},
    pooled::Jobs,
    recorder::{Recorder, Seen},
    referee::{Grant, Referee},
    scenario::{Driver, Scenario},
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
    /// Of an open loop: the requests of all our workers.
    pub moments: Option<Moments>,
    pub clock: Arc<Clock>,
    pub recorder: Recorder,
    pub stop: Stop,
    /// If requests are jobs.
    pub jobs: Option<Jobs>,
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
    /// Requests of an open loop that it had taken, whose moment had come, and that were not sent because the end came first.
    pub unsent: AtomicU64,
}

/// A worker, until the end of the round.
pub async fn work(round: Arc<Round>, worker: u32) {
    let Round { scenario, clock, stop, recorder, .. } = &*round;
    let place = round.first + worker;
    // What is drawn for a request of an open loop does not depend on who sends it.
    let whose = if round.moments.is_some() { round.first } else { place };
    let draws = Draws::new(scenario.seed, round.number, whose);
    let caller = Caller { round: &round, worker, draws };
    let schedule = round.schedule.clone();
    let mut own = Pace::new(Arc::clone(scenario), schedule, place..place + 1, draws);
    let never_sleeps = scenario.think.is_zero() && scenario.hold.is_zero() && scenario.delay.is_zero();
    let ends = scenario.duration.0;
    let since = |now: u64| Duration::from_nanos(now.saturating_sub(round.begins));
    if round.moments.is_none() {
        stop.sleep_until(scenario.driver, clock, round.begins).await;
    }
    loop {
        let next = match &round.moments {
            Some(moments) => moments.take(),
            None => own.next(since(clock.now())),
        };
        let Some(planned) = next.filter(|planned| planned.at < ends) else { break };
        let moment = round.begins + planned.at.as_nanos() as u64;
        let now = clock.now();
        if !stop.sleep_until(scenario.driver, clock, moment).await || stop.is_set() {
            let over = since(clock.now()).min(ends);
            if round.moments.is_some() && planned.at < over {
                round.workers[worker as usize].unsent.fetch_add(1, Ordering::Relaxed);
                recorder.unsent(worker, (over - planned.at).as_nanos() as u64, 1);
            }
            break;
        }
        if now < moment {
            recorder.late(worker, clock.now().saturating_sub(moment));
        } else if round.moments.is_some() && now > moment {
            // Whoever had nothing to do had taken an earlier one, so all were busy.
            recorder.sent_late(worker, now - moment);
        }
        let intended = if round.moments.is_some() { moment } else { clock.now() };
        let seen = caller.ask(planned.number, planned, intended).await;
        recorder.record(worker, &seen);
        if never_sleeps && scenario.driver != Driver::Threads {
            tokio::task::yield_now().await;
        }
    }
}

/// Requests that were not sent are drawn up to so many: a second or two. Of the others it is computed how many came in each of so many parts of
/// the time that is left.
const MOST_DRAWN: u64 = 10_000_000;
const PARTS: u32 = 1_000;

impl Round {
    /// After the workers have ended, `over` after the beginning: takes what is left of the moments that had come by then, and tells how many
    /// these are. All workers were busy to the end. A rate that nobody can send leaves far more than is worth drawing: of these how many there
    /// are is computed.
    pub fn left_unsent(&self, over: Duration) -> u64 {
        let Some(moments) = &self.moments else { return 0 };
        let mut count = 0;
        let mut last = Duration::ZERO;
        while count < MOST_DRAWN {
            let Some(planned) = moments.take().filter(|planned| planned.at < over) else { return count };
            self.recorder.unsent(0, (over - planned.at).as_nanos() as u64, 1);
            (count, last) = (count + 1, planned.at);
        }
        let part = (over - last) / PARTS;
        let mut more = 0;
        for number in 1..=PARTS {
            let until = moments.more_until(last + part * number) as u64;
            let ago = over.saturating_sub(last + part * number) + part / 2;
            self.recorder.unsent(0, ago.as_nanos() as u64, until.saturating_sub(more));
            more = until.max(more);
        }
        count + more
    }
}

pub struct Caller<'a> {
    pub round: &'a Arc<Round>,
    pub worker: u32,
    pub draws: Draws,
}

/// A request that was sent.
#[derive(Clone, Copy)]
pub struct Asked {
    pub number: u64,
    pub planned: Planned,
    /// When it was meant to be sent, and when it was.
    pub intended: u64,
    pub sent: u64,
    /// When its caller gives up.
    pub gives_up: Option<u64>,
    pub wish: Wish,
    /// What the delay that is followed had come to when it was sent.
    pub passed: u64,
}

/// Whether something happens that happens in this share of cases. Draws whatever the share, so that what is drawn next does not depend on it.
pub fn happens(share: f64, random: &mut SmallRng) -> bool {
    random.random::<f64>() < share
}

/// What the backend will do with a request.
pub struct Fate {
    pub takes: Duration,
    /// Before it answers; more than it takes if it never does.
    pub delay: Duration,
    pub ending: Ending,
}

impl Caller<'_> {
    pub fn own(&self) -> &Worker {
        &self.round.workers[self.worker as usize]
    }

    async fn ask(&self, request: u64, planned: Planned, intended: u64) -> Seen {
        let Round { scenario, clock, subject, recorder, referee, .. } = &**self.round;
        self.own().begun.fetch_add(1, Ordering::Relaxed);
        let sent = clock.now();
        let end = |ending, waited| {
            let now = clock.now();
            let took = now - intended.min(now);
            Seen { ending, waited, took, took_since_sent: now - sent, held: None, delayed: None }
        };
        // Who comes late because its worker was busy has waited since the moment that was meant, and has so much less time left.
        let late = Duration::from_nanos(sent.saturating_sub(intended));
        let Some(wish) = wish(self.round, &mut self.draws.of(Purpose::Wish, request)) else {
            let seen = subject.peek();
            return end(if seen { Ending::Peeked } else { Ending::Scheduler(Refusal::NoneEligible) }, None);
        };
        let mut random = self.draws.of(Purpose::Patience, request);
        let gives_up = happens(scenario.cancellations, &mut random).then(|| {
            let patience = scenario.patience.draw(&mut random);
            intended.min(sent) + patience.as_nanos() as u64
        });
        let wait = scenario.wait.0.saturating_sub(late);
        if wait.is_zero() && !scenario.wait.0.is_zero() {
            return end(Ending::TooLate, None);
        }
        let patience = gives_up.map(|moment| Duration::from_nanos(moment.saturating_sub(sent)));
        if !late.is_zero() && patience.is_some_and(|patience| patience.is_zero()) {
            return end(Ending::CancelledWaiting, None);
        }
        let passed = referee.followed.so_far();
        let asked = Asked { number: request, planned, intended, sent, gives_up, wish, passed };
        if let Some(jobs) = &self.round.jobs {
            return jobs.ask(self, asked, wait, patience).await;
        }
        let waits = recorder.waits(self.worker);
        let answer = acquire(self.round, wish, self.class(request), wait, patience).await;
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
                    self.give_back(request, held, grant, &fate);
                    return end(fate.ending, Some(now - intended.min(now)));
                }
            },
        };
        self.looks(&asked, grant);
        let mut fate = self.meets(&asked, grant, now);
        let until = now + fate.takes.as_nanos() as u64;
        if !fate.takes.is_zero()
            && let Some(early) = self.hold_until(scenario.driver, until, claimed.as_deref()).await
        {
            fate.ending = early;
        }
        let held_for = clock.now() - now;
        // Before the lease, as fences ask for.
        drop(claimed);
        self.give_back(request, held, grant, &fate);
        let delay = fate.delay.as_nanos() as u64;
        let answered = fate.takes >= fate.delay && held_for >= delay;
        let seen = end(fate.ending, Some(now - intended.min(now)));
        Seen { held: Some(held_for), delayed: answered.then_some(delay), ..seen }
    }

    /// A request has got its lease: looks at the order, of one out of so many.
    pub fn looks(&self, asked: &Asked, grant: Grant) {
        let Round { recorder, referee, sample, .. } = &**self.round;
        let the_best = asked.wish == Wish::Anything;
        if let Some(delay) = referee.delay(grant, the_best, asked.passed) {
            recorder.delay(self.worker, delay);
        }
        if the_best && *sample > 0 && self.draws.of(Purpose::Look, asked.number).random_range(0..*sample) == 0
        {
            if let Some(error) = referee.rank_error(grant) {
                recorder.rank_error(self.worker, error);
            }
            referee.followed.begin(grant.index);
        }
    }

    /// What becomes of a request that begins to be served at `now`.
    pub fn meets(&self, asked: &Asked, grant: Grant, now: u64) -> Fate {
        let fate = self.fate(asked.number, grant.index, asked.planned, now);
        match asked.gives_up.filter(|&moment| moment < now + fate.takes.as_nanos() as u64) {
            None => fate,
            Some(moment) => Fate {
                takes: Duration::from_nanos(moment.saturating_sub(now)),
                ending: Ending::CancelledServed,
                ..fate
            },
        }
    }

    /// Keeps the lease until then, if nothing ends it before: the end of the round, or that of its claim, which is looked at whenever it
    /// may have come.
    pub async fn hold_until(
        &self,
        driver: Driver,
        until: u64,
        claimed: Option<&dyn Claimed>,
    ) -> Option<Ending> {
        let Round { clock, stop, .. } = &**self.round;
        loop {
            let good = match claimed.map(Claimed::left) {
                None => u64::MAX,
                Some(Duration::ZERO) => return Some(Ending::ClaimLost),
                Some(left) => clock.now() + left.as_nanos() as u64,
            };
            if !stop.sleep_until(driver, clock, until.min(good)).await {
                return Some(Ending::CutShort);
            }
            if until <= good {
                return None;
            }
        }
    }

    /// The class of the worker; in an open loop that of the request, as any worker may send it.
    pub fn class(&self, request: u64) -> u8 {
        let place = match self.round.moments {
            None => u64::from(self.round.first + self.worker),
            Some(_) => u64::from(self.round.first) + request,
        };
        (place % u64::from(self.round.scenario.classes)) as u8
    }

    fn fate(&self, request: u64, index: u32, planned: Planned, now: u64) -> Fate {
        let scenario = &self.round.scenario;
        let mut random = self.draws.of(Purpose::Fate, request);
        let delay = planned.delay;
        let hold = delay + planned.hold;
        let failed = |takes| Fate { takes, delay, ending: Ending::Backend(Trouble::Failed) };
        if is_down(scenario, index % scenario.resources, now) {
            // At once: the one who fails fast must not look like a fast one.
            return failed(Duration::ZERO);
        }
        let (fails, is_refused) =
            (happens(scenario.failures, &mut random), happens(scenario.rate_limits, &mut random));
        if fails {
            return failed(hold.mul_f64(random.random()));
        }
        if is_refused {
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

    fn give_back(&self, request: u64, held: Held<'_>, grant: Grant, fate: &Fate) {
        let Round { scenario, clock, referee, .. } = &**self.round;
        let mut random = self.draws.of(Purpose::Return, request);
        let by_token = happens(scenario.tokens, &mut random);
        let outcome = outcome(scenario, fate, &mut random);
        let rest = scenario.cooldown.0;
        let cools = match outcome {
            Outcome::RateLimited { retry_after } => retry_after.max(rest),
            _ => rest,
        };
        let began = clock.now();
        if !cools.is_zero() {
            referee.will_rest(grant.index, began.saturating_add(cools.as_nanos() as u64));
        }
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
                if !rest.is_zero() {
                    // A token knows no return with a rest: so the rest follows it, and may begin when somebody else has the resource.
                    // One that was removed meanwhile has none.
                    let _ = scheduler.cool(&grant.index, rest);
                }
            }
            (held, _) => held.finish(outcome, rest),
        }
        let back = clock.now();
        referee.is_back(grant.index, back);
        if !cools.is_zero() {
            referee.cools(grant.index, began, cools.as_nanos() as u64, back);
        }
    }
}

/// What the lease is returned with.
pub fn outcome(scenario: &Scenario, fate: &Fate, random: &mut SmallRng) -> Outcome {
    match fate.ending {
        Ending::Completed => Outcome::Ok { latency: fate.takes },
        Ending::Backend(Trouble::RateLimited) => {
            Outcome::RateLimited { retry_after: scenario.retry_after.draw(random) }
        }
        Ending::Backend(_) => Outcome::Failed,
        _ => Outcome::Cancelled,
    }
}

/// What is asked for; `None`: only a look.
fn wish(round: &Round, random: &mut SmallRng) -> Option<Wish> {
    let Scenario { peeks, affinity, named, filtered, ids, .. } = *round.scenario;
    let draw: f64 = random.random();
    if draw < peeks {
        return None;
    }
    if draw < peeks + affinity {
        return Some(Wish::Affinity(u64::from(random.random_range(0..ids))));
    }
    if draw < peeks + affinity + named {
        let lineage = random.random_range(0..round.referee.lineages());
        // One that is not there just now is asked for all the same.
        return Some(Wish::Named(round.referee.current(lineage).unwrap_or(lineage)));
    }
    if draw < peeks + affinity + named + filtered {
        return Some(Wish::Matching);
    }
    Some(Wish::Anything)
}

/// When in its course a resource that flaps begins; `None` if it is none of those.
fn flaps(scenario: &Scenario, lineage: u32) -> Option<u64> {
    let draw = SplitMix64::mix(scenario.seed ^ u64::from(lineage) << 20);
    let flaps = (draw >> 11) as f64 / ((1u64 << 53) as f64) < scenario.flapping;
    (scenario.flapping > 0.0 && flaps).then_some(draw)
}

/// Those that flap.
pub fn flapping(scenario: &Scenario) -> impl Iterator<Item = u32> + '_ {
    (0..scenario.resources).filter(|&lineage| flaps(scenario, lineage).is_some())
}

/// Whether a resource that flaps is down: its kind begins at different moments, so that they are not down together.
fn is_down(scenario: &Scenario, lineage: u32, now: u64) -> bool {
    let Some(draw) = flaps(scenario, lineage) else { return false };
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
        Driver::Tasks | Driver::Pool => {
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
        // Whose deadline decides whether it is let in must say the real one, as far as that is before the end of the round.
        let slice = if scenario.shed { left } else { left.min(SLICE) };
        let slice = slice.min(Duration::from_nanos(ends.saturating_sub(now)));
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
        let flapping: Vec<_> = flapping(&Scenario { resources: 10_000, ..scenario.clone() }).collect();
        assert!((1_800..2_200).contains(&flapping.len()), "{}", flapping.len());
        assert!((0..10_000).all(|one| flapping.binary_search(&one).is_ok() || !is_down(&scenario, one, 0)));
        let moments = |lineage| (0..100).filter(|i| is_down(&scenario, lineage, i * every)).count();
        assert!((0..100).map(moments).all(|downs| downs == 0 || downs == 50));
    }
}
