//! One round of one subject: workers, chores, the reader that stays, the monitor; all joined when it ends.

use std::{
    future::Future,
    ops::Range,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use crossbeam_utils::CachePadded;
use tokio::{runtime::Runtime, task::JoinSet};

use super::{
    asset::Census,
    chores,
    claim::Claims,
    clock::{Clock, Stop},
    draws::Draws,
    monitor::{Monitor, Progress},
    pace::{Moments, Pace, Schedule},
    pooled::Jobs,
    recorder::{Record, Recorder},
    referee::Referee,
    result::{Check, Heat, Point},
    scenario::{Driver, Loop, Scenario},
    soak::{Garbage, Watch},
    subject::Subject,
    worker::{Round, Worker, work},
};

/// What all rounds share.
pub struct Setting {
    pub scenario: Arc<Scenario>,
    /// Of the scenario's workers, those that this process has: all of them, unless there are others.
    pub crew: Range<u32>,
    pub schedule: Option<Arc<Schedule>>,
    pub clock: Arc<Clock>,
    pub runtime: Runtime,
    /// Set by Ctrl-C.
    pub interrupted: Arc<AtomicBool>,
    pub progress: Progress,
}

/// A subject and what its rounds have seen so far.
pub struct State {
    pub name: String,
    pub subject: Arc<Subject>,
    pub referee: Arc<Referee>,
    /// Where many processes share the fleet; then the subject has only a part of it.
    pub claims: Option<Arc<dyn Claims>>,
    pub census: Census,
    pub sum: Record,
    pub begun: u64,
    pub unsent: u64,
    pub served: Vec<u64>,
    pub throughput: Vec<f64>,
    pub series: Vec<Point>,
    pub heat: Heat,
    pub chores: chores::Done,
    pub watch: Watch,
    pub garbage: Option<Garbage>,
    pub length: Duration,
    /// What was looked at between rounds.
    pub checks: Vec<Check>,
}

impl State {
    pub fn new(name: &str, setting: &Setting, subject: Subject, referee: Referee, census: Census) -> Self {
        State {
            name: name.to_owned(),
            subject: Arc::new(subject),
            referee: Arc::new(referee),
            claims: None,
            census,
            sum: Record::new(),
            begun: 0,
            unsent: 0,
            served: vec![0; setting.crew.len()],
            throughput: Vec::new(),
            series: Vec::new(),
            heat: Heat::default(),
            chores: chores::Done::default(),
            watch: Watch::default(),
            garbage: None,
            length: Duration::ZERO,
            checks: Vec::new(),
        }
    }
}

/// Of one acquisition out of so many the order is looked at: seldom enough that the look costs little beside the fleet.
fn sample(scenario: &Scenario, state: &State) -> u32 {
    // Whom the scheduler has ejected nobody outside knows, of whom is drained nobody has told the referee, and which part of a fleet that
    // many share it has just now is not known either: there is no order to compare with.
    let is_unknown = scenario.ejection || scenario.drains > 0.0 || state.claims.is_some();
    if is_unknown { 0 } else { (scenario.resources / 16).clamp(32, 100_000) }
}

/// Plays a round. `before_all` is what all rounds of all subjects have taken before.
pub fn round(setting: &Setting, state: &mut State, number: u32, before_all: Duration) {
    let Setting { scenario, clock, .. } = setting;
    let workers = setting.crew.len() as u32;
    // Time to start them all, so that they begin together.
    let each = if scenario.driver == Driver::Threads { 60 } else { 3 };
    let lead = Duration::from_millis(20) + Duration::from_micros(each) * workers;
    let round = Arc::new(Round {
        scenario: Arc::clone(scenario),
        subject: Arc::clone(&state.subject),
        referee: Arc::clone(&state.referee),
        claims: state.claims.clone(),
        first: setting.crew.start,
        schedule: setting.schedule.clone(),
        moments: moments(setting, number),
        clock: Arc::clone(clock),
        recorder: Recorder::new(workers),
        stop: Stop::new(),
        jobs: jobs(scenario, state, workers),
        number,
        begins: clock.now() + lead.as_nanos() as u64,
        workers: (0..workers).map(|_| CachePadded::new(Worker::default())).collect(),
        retired: AtomicU64::new(state.chores.updates + state.chores.removals),
        sample: sample(scenario, state),
    });
    let State { name, census, watch, garbage, .. } = state;
    let monitor = Monitor {
        name,
        progress: &setting.progress,
        interrupted: &setting.interrupted,
        before_all,
        before: state.length,
        census,
        soak: garbage.as_mut().map(|garbage| (&*watch, garbage)),
    };
    let (seen, done) = thread::scope(|scope| {
        let chores = scope.spawn(|| chores::run(&round, census));
        if scenario.soak {
            scope.spawn(|| watch.read(&round));
        }
        if !scenario.close_at.0.is_zero() && number + 1 == scenario.rounds {
            scope.spawn(|| close(&round));
        }
        let seen = match scenario.driver {
            Driver::Threads => threads(&round, monitor),
            Driver::Tasks | Driver::Pool => tasks(&setting.runtime, &round, monitor),
        };
        (seen, chores.join().expect("chores do not panic"))
    });
    if let Some(Err(error)) = round.jobs.as_ref().map(Jobs::end) {
        round.referee.breach(error);
    }
    // Not until all have come back: in that time nobody was served.
    let length = since(seen.ended, round.begins).min(scenario.duration.0);
    state.unsent += round.left_unsent(length);
    state.referee.followed.end();
    let sum = round.recorder.sum();
    // One that was ended as it began has shown nothing, and hides nothing of those before.
    if !length.is_zero() {
        state.throughput.push(rate(sum.counts.completed, length));
    }
    if !seen.heat.is_empty() {
        state.heat = seen.heat;
    }
    state.sum.merge(&sum);
    for (served, worker) in state.served.iter_mut().zip(&round.workers) {
        *served += worker.served.load(Ordering::Relaxed);
        state.begun += worker.begun.load(Ordering::Relaxed);
        state.unsent += worker.unsent.load(Ordering::Relaxed);
    }
    state.chores.merge(done);
    state.series.extend(seen.series);
    state.length += length;
}

/// The requests of all our workers, if these have moments.
fn moments(setting: &Setting, number: u32) -> Option<Moments> {
    let Setting { scenario, crew, schedule, .. } = setting;
    (scenario.pace == Loop::Open).then(|| {
        let draws = Draws::new(scenario.seed, number, crew.start);
        Moments::new(Pace::new(Arc::clone(scenario), schedule.clone(), crew.clone(), draws))
    })
}

/// Who asks this subject.
pub fn driver(scenario: &Scenario, state: &State) -> Driver {
    let has_leases_for_jobs = state.claims.is_none() && matches!(&*state.subject, Subject::Leasehold(_));
    match scenario.driver {
        Driver::Pool if !has_leases_for_jobs => Driver::Tasks,
        driver => driver,
    }
}

/// The pool whose jobs the requests are, if the scenario wants that and the subject has leases for it. What has none is asked by tasks.
fn jobs(scenario: &Scenario, state: &State, callers: u32) -> Option<Jobs> {
    if driver(scenario, state) != Driver::Pool {
        return None;
    }
    let Subject::Leasehold(scheduler) = &*state.subject else { return None };
    let jobs = Jobs::new(callers as usize, Arc::clone(scheduler));
    jobs.map_err(|error| state.referee.breach(format!("the pool could not be started: {error}"))).ok()
}

/// Closes the scheduler when the scenario says so; not at all if somebody ends the round before. What has none cannot be closed.
fn close(round: &Round) {
    let Some(scheduler) = round.subject.scheduler() else { return };
    let moment = round.begins + round.scenario.close_at.0.as_nanos() as u64;
    while round.clock.now() < moment {
        if round.stop.is_set() {
            return;
        }
        let left = Duration::from_nanos(moment.saturating_sub(round.clock.now()));
        thread::sleep(left.min(Duration::from_millis(20)));
    }
    scheduler.close();
}

/// How long a round has gone on. Ctrl-C may end it before it has begun.
fn since(now: u64, begins: u64) -> Duration {
    Duration::from_nanos(now.saturating_sub(begins))
}

/// A second; of no time at all there is none.
pub fn rate(count: u64, length: Duration) -> f64 {
    if length.is_zero() { 0.0 } else { count as f64 / length.as_secs_f64() }
}

fn threads(round: &Arc<Round>, monitor: Monitor<'_>) -> super::monitor::Seen {
    /// A request needs little; ten thousand of the usual stacks are a lot of address space.
    const STACK: usize = 256 << 10;
    let workers: Vec<_> = (0..round.workers.len() as u32)
        .map_while(|worker| {
            let shared = Arc::clone(round);
            let builder = thread::Builder::new().stack_size(STACK).name(format!("worker {worker}"));
            let started = builder.spawn(move || at_once(work(shared, worker)));
            if let Err(error) = &started {
                round.referee.breach(format!("worker {worker} could not be started: {error}"));
            }
            started.ok()
        })
        .collect();
    let seen = monitor.watch(round);
    round.stop.set();
    for worker in workers {
        if worker.join().is_err() {
            round.referee.breach("a worker panicked".into());
        }
    }
    seen
}

fn tasks(runtime: &Runtime, round: &Arc<Round>, monitor: Monitor<'_>) -> super::monitor::Seen {
    let mut workers = JoinSet::new();
    for worker in 0..round.workers.len() as u32 {
        workers.spawn_on(work(Arc::clone(round), worker), runtime.handle());
    }
    let seen = monitor.watch(round);
    round.stop.set();
    runtime.block_on(async {
        while let Some(ended) = workers.join_next().await {
            if let Err(error) = ended {
                round.referee.breach(format!("a worker panicked: {error}"));
            }
        }
    });
    seen
}

/// Runs what never waits for a waker: in a thread everything that takes time blocks.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("workers that are threads block"),
    }
}

/// A subject that nobody has used.
#[cfg(test)]
pub fn idle(name: &str, scenario: &Scenario) -> (Setting, State) {
    let setting = Setting {
        scenario: Arc::new(scenario.clone()),
        crew: 0..scenario.workers,
        schedule: None,
        clock: Arc::new(Clock::new()),
        runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap(),
        interrupted: Arc::new(AtomicBool::new(false)),
        progress: Progress::new(1, scenario.duration.0),
    };
    let referee = Referee::new(scenario, &super::bases(scenario), 0);
    let fleet = (0..scenario.resources).map(|index| referee.asset(index)).collect();
    let subject = Subject::build(name, scenario, fleet, setting.runtime.handle()).unwrap().unwrap();
    let state = State::new(name, &setting, subject, referee, Census::default());
    (setting, state)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ctrl-C as a round begins: it has shown nothing, and what was shown before stays.
    #[test]
    fn a_round_that_does_not_begin_hides_nothing() {
        let scenario = Scenario { workers: 2, resources: 2, ..Scenario::default() };
        let (setting, mut state) = idle("sticky@1", &scenario);
        let heat = Heat { resources_of_a_row: 1, seconds_of_a_column: 1.0, rows: vec![vec![0.5]; 2] };
        (state.heat, state.throughput, state.length) = (heat, vec![7.0], Duration::from_secs(1));
        setting.interrupted.store(true, Ordering::Relaxed);
        round(&setting, &mut state, 1, Duration::ZERO);
        assert_eq!((&state.heat.rows, &state.throughput), (&vec![vec![0.5]; 2], &vec![7.0]));
        assert_eq!((state.length, state.begun), (Duration::from_secs(1), 0));
        assert!(Heat { rows: vec![Vec::new(); 2], ..Heat::default() }.is_empty());
    }

    #[test]
    fn a_round_may_end_before_it_begins() {
        assert_eq!(since(5, 20_000_000), Duration::ZERO);
        assert_eq!(rate(0, since(5, 20_000_000)), 0.0);
        assert_eq!(rate(10, Duration::from_secs(2)), 5.0);
    }
}
