//! Requests as jobs of the library's pool: each asks for its lease, and is served on one of the pool's threads when it has come. The lease
//! goes back with the outcome that the job ends with.
//!
//! **The wait ends when the lease arrives**, as it does for tasks and threads, and from then on it is held: also while its job waits for a thread
//! of the pool, which is this driver's and not the scheduler's. The share of `tokens` is minted at that moment, beside the guard by which the
//! lease is returned, and tried afterwards, when it must be refused.

use std::{
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};

use leasehold::{
    AcquireOwned, Outcome, OwnedLease, Scheduler, Token, WaitError,
    pool::{Pool, Task},
};

use super::{
    asset::Asset,
    draws::Purpose,
    drive::at_once,
    outcome::{Ending, Refusal},
    recorder::Seen,
    referee::Grant,
    scenario::Driver,
    subject::{Wish, accepts, refusal},
    worker::{Asked, Caller, Fate, Round, happens, outcome},
};

/// A thread for each caller, up to so many: what a request does is sleep.
const MOST: usize = 2_000;
/// After the last caller has had its answer nothing is left to do.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

pub struct Jobs {
    pool: Pool<Task>,
    scheduler: Arc<Scheduler<Asset>>,
}

/// Why a job has no lease.
enum Without {
    Refused(WaitError),
    /// The end of the round came first.
    Cut,
}

/// A lease that has arrived.
struct Arrival {
    grant: Grant,
    at: u64,
    token: Option<Token>,
}

/// A job that was run.
struct Served {
    fate: Fate,
    outcome: Outcome,
    since: u64,
    until: u64,
}

impl Jobs {
    /// A pool for so many callers. An error is that of the system.
    pub fn new(callers: usize, scheduler: Arc<Scheduler<Asset>>) -> Result<Jobs, String> {
        // Each caller has one job at a time: that is the bound.
        let pool = Pool::<Task>::builder().workers(callers.clamp(1, MOST)).unbounded().build();
        Ok(Jobs { pool: pool.map_err(|error| error.to_string())?, scheduler })
    }

    fn asks(&self, wish: Wish, class: u8, wait: Duration) -> AcquireOwned<Asset> {
        let request = self.scheduler.request().class(class).timeout(wait);
        match wish {
            Wish::Anything => request.owned(),
            Wish::Affinity(id) => request.affinity(&id).owned(),
            Wish::Named(index) => request.key(&index).owned(),
            Wish::Matching => request.matching(accepts).owned(),
        }
    }

    /// The rest of a request's life: the wait, the job, the answer.
    pub async fn ask(
        &self,
        caller: &Caller<'_>,
        asked: Asked,
        wait: Duration,
        patience: Option<Duration>,
    ) -> Seen {
        let Round { clock, referee, .. } = &**caller.round;
        let end = |ending, waited| {
            let now = clock.now();
            let took = now - asked.intended.min(now);
            Seen { ending, waited, took, took_since_sent: now - asked.sent, held: None, delayed: None }
        };
        let patience = patience.filter(|patience| *patience < wait);
        let asks = self.asks(asked.wish, caller.class(asked.number), patience.unwrap_or(wait));
        let (round, worker, draws) = (Arc::clone(caller.round), caller.worker, caller.draws);
        let (waiting, arrived) = (Arc::clone(&round), Arc::new(OnceLock::<Arrival>::new()));
        let arrives = Arc::clone(&arrived);
        let lease = async move {
            let waits = waiting.recorder.waits(worker);
            let answer = waiting.stop.unless_set(asks).await;
            drop(waits);
            let mut lease = answer.ok_or(Without::Cut)?.map_err(Without::Refused)?;
            let caller = Caller { round: &waiting, worker, draws };
            // It is the first: a lease arrives once.
            arrives.get_or_init(|| arrive(&caller, &asked, &mut lease));
            Ok(lease)
        };
        let has_arrived = Arc::clone(&arrived);
        let job = move |_: &OwnedLease<Asset>, _: &leasehold::pool::Context<'_>| {
            let arrival = has_arrived.get().expect("it is set before the lease goes on");
            let served = serve(&Caller { round: &round, worker, draws }, &asked, arrival);
            let outcome = served.outcome;
            (served, outcome)
        };
        let answer = match self.pool.submit_with_lease(lease, job) {
            Ok(handle) => handle.finished().await,
            Err(reason) => {
                referee.breach(format!("the pool refused a job: {reason}"));
                return end(Ending::CutWaiting, None);
            }
        };
        let served = match answer {
            Ok(Ok(served)) => served,
            Ok(Err(Without::Cut)) => return end(Ending::CutWaiting, None),
            Ok(Err(Without::Refused(error))) => {
                let refusal = refusal(error);
                let gave_up = patience.is_some() && refusal == Refusal::TimedOut;
                let ending = if gave_up { Ending::CancelledWaiting } else { Ending::Scheduler(refusal) };
                return end(ending, None);
            }
            Err(how) => {
                referee.breach(format!("a job came to nothing: {how:?}"));
                return end(Ending::CutWaiting, None);
            }
        };
        let Some(&Arrival { grant, at, token }) = arrived.get() else {
            referee.breach("a job was run without a lease".into());
            return end(Ending::CutWaiting, None);
        };
        if let Some(token) = token
            && self.scheduler.release(token).is_ok()
        {
            referee.breach(format!("resource {}: returned twice, by its guard and by a token", grant.index));
        }
        let back = clock.now();
        referee.is_back(grant.index, back);
        if let Outcome::RateLimited { retry_after } = served.outcome {
            referee.cools(grant.index, served.until, retry_after.as_nanos() as u64, back);
        }
        let delay = served.fate.delay.as_nanos() as u64;
        let answered = served.fate.takes >= served.fate.delay && served.until - served.since >= delay;
        let seen = end(served.fate.ending, Some(at - asked.intended.min(at)));
        Seen { held: Some(served.until - at), delayed: answered.then_some(delay), ..seen }
    }

    /// After the last answer: whether the pool has lost nothing.
    pub fn end(&self) -> Result<(), String> {
        let shutdown = self.pool.shutdown(ENDS_WITHIN);
        if shutdown.is_complete() { Ok(()) } else { Err(format!("the pool has not ended: {shutdown:?}")) }
    }
}

/// The lease is there.
fn arrive(caller: &Caller<'_>, asked: &Asked, lease: &mut OwnedLease<Asset>) -> Arrival {
    let Round { scenario, clock, recorder, referee, .. } = &**caller.round;
    let at = clock.now();
    recorder.lent(caller.worker);
    let grant = referee.granted(lease.index, asked.sent, at);
    caller.own().served.fetch_add(1, Ordering::Relaxed);
    caller.looks(asked, grant);
    let by_token = happens(scenario.tokens, &mut caller.draws.of(Purpose::Return, asked.number));
    let token = by_token.then(|| lease.token());
    token.into_iter().for_each(|token| referee.token(token));
    Arrival { grant, at, token }
}

/// The job, on a thread of the pool.
fn serve(caller: &Caller<'_>, asked: &Asked, arrival: &Arrival) -> Served {
    let Round { scenario, clock, recorder, referee, .. } = &**caller.round;
    let since = clock.now();
    let _holds = recorder.holds_what_was_lent(caller.worker);
    let mut fate = caller.meets(asked, arrival.grant, since);
    let until = since + fate.takes.as_nanos() as u64;
    if !fate.takes.is_zero()
        && let Some(early) = at_once(caller.hold_until(Driver::Threads, until, None))
    {
        fate.ending = early;
    }
    let mut random = caller.draws.of(Purpose::Return, asked.number);
    // What was drawn when the lease arrived.
    happens(scenario.tokens, &mut random);
    let outcome = outcome(scenario, &fate, &mut random);
    let until = clock.now();
    if let Outcome::RateLimited { retry_after } = outcome {
        referee.will_rest(arrival.grant.index, until.saturating_add(retry_after.as_nanos() as u64));
    }
    // The lease is returned when this has returned.
    referee.returns(arrival.grant, until);
    Served { fate, outcome, since, until }
}
