//! `leasehold load`: real threads and tasks that borrow, hold, fail and give up, and a referee beside them.
//!
//! | file | idea |
//! |---|---|
//! | [`scenario`] | what is played |
//! | [`asset`], [`subject`], `peers` | what is lent, and by whom |
//! | [`draws`] | what is drawn, and that no draw depends on another |
//! | [`pace`], [`worker`], [`chores`] | when a request is sent, its life, what happens to the fleet meanwhile |
//! | [`claim`], `processes` | a fleet that many processes share |
//! | [`drive`], [`clock`], [`monitor`] | one round; its time; who looks on |
//! | [`outcome`], [`recorder`] | how requests end, and where that is written |
//! | [`referee`], [`settle`], [`soak`] | the rules: while it goes on, at its end, over a long time |
//! | [`result`], [`table`] | what is told |

mod asset;
mod chores;
mod claim;
mod clock;
pub mod draws;
mod drive;
mod followed;
mod monitor;
pub mod outcome;
pub mod pace;
#[cfg(feature = "peers")]
mod peers;
mod pooled;
#[cfg(all(feature = "cluster", unix))]
pub mod processes;
mod recorder;
mod referee;
pub mod result;
pub mod scenario;
mod settle;
mod soak;
pub mod subject;
mod table;
mod worker;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{self, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use clap::Args;
use leasehold::SplitMix64;
use tokio::runtime::{Builder, Runtime};

use self::{
    asset::{Asset, Census},
    clock::Clock,
    drive::{Setting, State},
    monitor::Progress,
    pace::Schedule,
    referee::Referee,
    result::{Check, Fairness, KIND, LoadResult, RankError, Run, SCHEMA, SubjectResult, Times},
    scenario::{Loop, READY, Ready, Scenario},
    soak::Garbage,
    subject::Subject,
};
use crate::{
    compare::live_bytes,
    error::{Error, Result},
    output::{Format, Output},
    simulate::jain,
};

#[derive(Args, Debug)]
pub struct Load {
    #[arg(value_name = "SCENARIO", default_value = "gateway", help = scenario_help())]
    pub scenario: String,

    /// Change a field of the scenario; may be repeated.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub changes: Vec<String>,

    /// Who is put under load: a strategy as for `replay`, with `@N` for N shards, `mutex`, `naive`, `deadpool` or `bb8`; may be repeated.
    #[arg(long = "subject", value_name = "SUBJECT")]
    pub subjects: Vec<String>,

    /// Callers.
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,

    /// Resources of the fleet.
    #[arg(long, value_name = "N")]
    pub resources: Option<u32>,

    /// Length of a round, such as 500ms or 10m.
    #[arg(long, value_name = "SPAN")]
    pub duration: Option<String>,

    /// Rounds of each subject, in turns.
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,

    /// Seed of everything that is drawn.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Play with N processes that share the fleet through a real server on loopback.
    #[cfg(all(feature = "cluster", unix))]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub processes: Option<u32>,

    /// Their server: a program, which is started, or the address of one that runs [default: valkey-server or redis-server on the PATH].
    #[cfg(all(feature = "cluster", unix))]
    #[arg(long, value_name = "PROGRAM|URL", requires = "processes")]
    pub server: Option<String>,

    /// Print the scenario, with all changes, and do nothing else.
    #[arg(long)]
    pub show: bool,

    /// Form of the result.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Write the result to FILE instead of standard output (`-`): whole or not at all.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

fn scenario_help() -> String {
    let ready: Vec<String> =
        READY.iter().map(|Ready { name, about, .. }| format!("{name}: {about}")).collect();
    format!("What is played: a TOML file, or one of these. {}.", ready.join(". "))
}

/// The exit code if a rule was broken or a count does not balance.
const BROKEN: u8 = 1;
/// The exit code after Ctrl-C, as shells have it.
pub const INTERRUPTED: u8 = 130;

pub fn load(options: &Load) -> Result<ExitCode> {
    let scenario = Scenario::open(&options.scenario, &options.all_changes())?;
    if options.show {
        let text = toml::to_string(&scenario).expect("a scenario is plain values");
        return Output::Stdout.write(&text).map(|()| ExitCode::SUCCESS);
    }
    let inputs = [
        ("the scenario", scenario::file(&options.scenario)),
        ("the scenario's trace", scenario.trace.as_deref()),
    ];
    let output = Output::open(options.out.as_deref(), &inputs)?;
    let result = options.play(scenario, &Interrupt::listen()?)?;
    output.write(&match options.format {
        Format::Table => table::render(&result),
        Format::Json => {
            serde_json::to_string_pretty(&result).expect("names and numbers always serialise") + "\n"
        }
    })?;
    Ok(ExitCode::from(verdict(&result)))
}

/// The exit code. A broken rule counts more than the end by hand. Where no subject fits the scenario nothing was measured, and that must not
/// look like success.
fn verdict(result: &LoadResult) -> u8 {
    let runs = || result.subjects.iter().filter_map(|subject| subject.run.as_ref());
    match runs().flat_map(Run::faults).next() {
        Some(_) => BROKEN,
        None if result.interrupted => INTERRUPTED,
        None if runs().next().is_none() => BROKEN,
        None => 0,
    }
}

impl Load {
    #[cfg(all(feature = "cluster", unix))]
    fn play(&self, scenario: Scenario, interrupt: &Interrupt) -> Result<LoadResult> {
        match self.processes {
            None => play(&self.scenario, scenario, interrupt),
            Some(count) => processes::play(self, count, scenario, interrupt),
        }
    }

    #[cfg(not(all(feature = "cluster", unix)))]
    fn play(&self, scenario: Scenario, interrupt: &Interrupt) -> Result<LoadResult> {
        play(&self.scenario, scenario, interrupt)
    }

    /// The changes of `--set` and of the options that have a name of their own, which count more.
    fn all_changes(&self) -> Vec<String> {
        let mut changes = self.changes.clone();
        let numbers = [
            ("workers", self.workers.map(u64::from)),
            ("resources", self.resources.map(u64::from)),
            ("rounds", self.rounds.map(u64::from)),
            ("seed", self.seed),
        ];
        for (name, number) in numbers {
            changes.extend(number.map(|number| format!("{name}={number}")));
        }
        changes.extend(self.duration.as_ref().map(|duration| format!("duration=\"{duration}\"")));
        if !self.subjects.is_empty() {
            changes.push(format!("subjects={:?}", self.subjects));
        }
        changes
    }
}

/// Plays all rounds of all subjects, in turns.
pub fn play(source: &str, scenario: Scenario, interrupt: &Interrupt) -> Result<LoadResult> {
    let schedule = Schedule::open(&scenario)?;
    let runtime = runtime()?;
    let total = u64::from(scenario.rounds) * scenario.subjects.len() as u64;
    let setting = Setting {
        progress: Progress::new(total, scenario.duration.0),
        interrupted: Arc::clone(&interrupt.flag),
        crew: 0..scenario.workers,
        scenario: Arc::new(scenario),
        schedule,
        clock: Arc::new(Clock::new()),
        runtime,
    };
    let Setting { scenario, interrupted, .. } = &setting;
    let mut subjects = Vec::new();
    for name in &scenario.subjects {
        subjects.push((name.clone(), prepare(name, &setting)?));
    }
    let mut before = Duration::ZERO;
    for number in 0..scenario.rounds {
        for place in turns(subjects.len(), number) {
            let (_, state) = &mut subjects[place];
            if let Ok(state) = state
                && !interrupted.load(Ordering::Relaxed)
            {
                drive::round(&setting, state, number, before);
                state.checks.push(settle::between_rounds(scenario, state, number));
                before += scenario.duration.0;
            }
        }
    }
    let subjects = subjects.into_iter().map(|(name, state)| match state {
        Ok(state) => {
            let mut run = conclude(&setting, state);
            let interrupted = interrupted.load(Ordering::Relaxed);
            run.checks.push(Check::played(interrupted, run.requests, &run.counts));
            SubjectResult { name, unfit: None, run: Some(run) }
        }
        Err(unfit) => SubjectResult { name, unfit: Some(unfit), run: None },
    });
    Ok(LoadResult {
        schema: SCHEMA,
        kind: KIND.into(),
        source: source.to_owned(),
        subjects: subjects.collect(),
        interrupted: interrupted.load(Ordering::Relaxed),
        processors: processors(),
        scenario: (**scenario).clone(),
    })
}

/// The places of the subjects in this round, in the order in which they play: in the opposite order of the round before, so that what the
/// machine does meanwhile meets all alike.
fn turns(subjects: usize, round: u32) -> Vec<usize> {
    if round.is_multiple_of(2) { (0..subjects).collect() } else { (0..subjects).rev().collect() }
}

fn runtime() -> Result<Runtime> {
    started(&mut Builder::new_multi_thread())
}

/// How many threads the machine runs at once.
pub fn processors() -> u32 {
    thread::available_parallelism().map_or(1, usize::from) as u32
}

fn started(builder: &mut Builder) -> Result<Runtime> {
    let runtime = builder.enable_all().build();
    runtime.map_err(|cause| Error::file("tokio", "cannot be started", cause))
}

/// Ctrl-C ends what goes on in order; a second one ends the program. From the beginning to its end nothing else listens: one of all that a
/// command plays.
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    /// Listens while it lives.
    _runtime: Runtime,
}

impl Interrupt {
    pub fn listen() -> Result<Self> {
        let runtime = started(Builder::new_multi_thread().worker_threads(1))?;
        let flag = Arc::new(AtomicBool::new(false));
        let raised = Arc::clone(&flag);
        runtime.spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() {
                if raised.swap(true, Ordering::Relaxed) {
                    process::exit(INTERRUPTED.into());
                }
            }
        });
        Ok(Interrupt { flag, _runtime: runtime })
    }

    /// Whether somebody wants the end.
    pub fn is_raised(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }
}

/// Numbers for resources that replace others; more would only take memory.
const MOST_SPARE: u64 = 4_000_000;

/// The numbers that fixed ranks are made of: a permutation, so that all differ.
fn bases(scenario: &Scenario) -> Vec<u32> {
    let mut bases: Vec<u32> = (0..scenario.resources).collect();
    let mut random = SplitMix64::new(scenario.seed);
    for left in (1..bases.len()).rev() {
        bases.swap(left, random.below(left as u32 + 1) as usize);
    }
    bases
}

fn prepare(name: &str, setting: &Setting) -> Result<std::result::Result<State, subject::Unfit>> {
    let scenario = &setting.scenario;
    let bases = bases(scenario);
    // Each lineage has equally many; those that are drawn more often than others run out first, hence twice as many.
    let seconds = scenario.duration.0.as_secs_f64() * f64::from(scenario.rounds);
    let incarnations = (scenario.churn * seconds * 2.0 / f64::from(scenario.resources)).ceil() as u64 + 4;
    let resources = u64::from(scenario.resources);
    let spare =
        if scenario.churn > 0.0 { (incarnations * resources).min(MOST_SPARE.max(resources)) } else { 0 };
    let referee = Referee::new(scenario, &bases, spare as u32);
    let census = Census::default();
    let before = live_bytes();
    let fleet: Vec<Asset> =
        (0..scenario.resources).map(|index| referee.asset(index).counted(&census)).collect();
    let subject = Subject::build(name, scenario, fleet, setting.runtime.handle())?;
    Ok(subject.map(|subject| {
        if scenario.soak {
            soak::warm_up(&subject, &referee, &census);
        }
        let bytes = (live_bytes() - before).max(0) as u64;
        let mut state = State::new(name, setting, subject, referee, census);
        state.garbage = (scenario.soak && state.subject.scheduler().is_some()).then(|| Garbage::new(bytes));
        state
    }))
}

fn conclude(setting: &Setting, mut state: State) -> Run {
    let scenario = &setting.scenario;
    let mut checks = std::mem::take(&mut state.checks);
    let interrupted = setting.interrupted.load(Ordering::Relaxed);
    checks.extend(settle::settle(scenario, &state, setting.clock.now()));
    let soak = state
        .garbage
        .take()
        .map(|garbage| soak::conclude(garbage, scenario, &state, &setting.runtime, &mut checks, interrupted));
    let (broken, breaches) = state.referee.verdict();
    let driver = drive::driver(scenario, &state);
    let seconds = state.length.as_secs_f64();
    let completed = state.sum.counts.completed;
    Run {
        shards: state.subject.scheduler().map(|scheduler| scheduler.shards() as u32),
        rounds: state.throughput.len() as u32,
        seconds,
        requests: state.begun,
        unsent: state.unsent,
        throughput: drive::rate(completed, state.length),
        throughput_of_rounds: state.throughput,
        waiting_ns: Times::new(&state.sum.waiting),
        latency_ns: Times::new(&state.sum.latency),
        unanswered_ns: Times::new(&state.sum.unanswered),
        uncorrected_ns: (scenario.pace == Loop::Open).then(|| Times::new(&state.sum.uncorrected)),
        held_ns: Times::new(&state.sum.held),
        delay_ns: (!scenario.delay.is_zero()).then(|| Times::new(&state.sum.delayed)),
        late_ns: Times::new(&state.sum.late),
        sent_late_ns: (scenario.pace == Loop::Open).then(|| Times::new(&state.sum.sent_late)),
        completed_ns: Some(Times::new(&state.sum.completed)),
        failed_ns: Some(Times::new(&state.sum.failed)),
        driver: Some(driver),
        tokens: state.referee.tokens(),
        rank_error: RankError::new(&state.sum.rank_errors),
        delay: RankError::new(&state.sum.delays),
        delays_unfinished: state.referee.followed.unfinished(),
        fairness: Fairness {
            resources: fairness(scenario, &usage(&state.referee)),
            workers: jain(&state.served.iter().map(|&served| served as f64).collect::<Vec<_>>()),
        },
        counts: state.sum.counts,
        chores: state.chores,
        series: state.series,
        heat: state.heat,
        soak,
        processes: None,
        checks,
        broken,
        breaches,
    }
}

/// Leases of each resource.
fn usage(referee: &Referee) -> Vec<u64> {
    (0..referee.lineages()).map(|lineage| referee.usage(lineage).0).collect()
}

/// Leases over capacity within each tier, averaged over the resources.
fn fairness(scenario: &Scenario, leases: &[u64]) -> f64 {
    let mut tiers = BTreeMap::<u8, Vec<f64>>::new();
    for lineage in 0..scenario.resources {
        let share = leases[lineage as usize] as f64 / f64::from(scenario.limit_of(lineage).unwrap_or(1));
        tiers.entry(scenario.tier_of(lineage)).or_default().push(share);
    }
    let sum = tiers.values().map(|shares| jain(shares) * shares.len() as f64).sum::<f64>();
    sum / f64::from(scenario.resources)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result with one run, which is as if nothing had been played.
    fn result(checks: Vec<Check>, broken: u64, interrupted: bool) -> LoadResult {
        let run = Run { checks, broken, ..Run::default() };
        LoadResult {
            schema: SCHEMA,
            kind: KIND.into(),
            source: "none".into(),
            interrupted,
            processors: 1,
            scenario: Scenario::default(),
            subjects: vec![
                SubjectResult { name: "unfit".into(), unfit: Some("why".into()), run: None },
                SubjectResult { name: "sticky".into(), unfit: None, run: Some(run) },
            ],
        }
    }

    /// Every subject once in each round, and of any two of them each is the first one in every second round.
    #[test]
    fn subjects_take_turns() {
        assert_eq!((turns(3, 0), turns(3, 1), turns(3, 2)), (vec![0, 1, 2], vec![2, 1, 0], vec![0, 1, 2]));
        for rounds in [2, 4, 10] {
            let firsts = (0..rounds).filter(|&round| {
                let order = turns(5, round);
                order.iter().position(|place| *place == 1) < order.iter().position(|place| *place == 3)
            });
            assert_eq!(firsts.count() as u32, rounds / 2);
        }
    }

    /// A subject that lends what is out already: the referee sees it, and the run fails.
    #[test]
    fn one_that_lends_twice_is_found_out() {
        let scenario = |capacity, name: &str, duration: &str| Scenario {
            duration: duration.parse().unwrap(),
            rounds: 1,
            resources: 4,
            capacity: vec![capacity],
            hold: "fixed 1ms".parse().unwrap(),
            tokens: 0.0,
            subjects: vec![name.into()],
            ..Scenario::default()
        };
        let interrupt = Interrupt::listen().unwrap();
        let faults = |name: &str, duration: &str| {
            let result = play("none", scenario(1, name, duration), &interrupt).unwrap();
            let faults: Vec<String> = result.subjects[0].run.as_ref().unwrap().faults().collect();
            assert_eq!(verdict(&result), if faults.is_empty() { 0 } else { BROKEN });
            faults
        };
        // On a machine that stalls for as long as a round takes nobody is answered in it, and nobody gets what is out.
        let durations = ["200ms", "5s", "30s"];
        let is_seen = |duration: &&str| {
            let faults = faults(subject::DOUBLE_LENDING, duration);
            faults.iter().any(|fault| fault.contains("leases out, capacity 1"))
        };
        assert!(durations.iter().any(is_seen));
        let is_sound = |duration: &&str| {
            let faults = faults("naive", duration);
            assert!(faults.iter().all(|fault| fault.starts_with("played: ")), "{faults:?}");
            faults.is_empty()
        };
        assert!(durations.iter().any(is_sound));
    }

    #[test]
    fn the_exit_code_says_what_is_worst() {
        let check = |holds| vec![Check::that("a", true, "b".into()), Check::that("c", holds, "d".into())];
        assert_eq!(verdict(&result(check(true), 0, false)), 0);
        assert_eq!(verdict(&result(check(true), 0, true)), INTERRUPTED);
        assert_eq!(verdict(&result(check(false), 0, false)), BROKEN);
        assert_eq!(verdict(&result(check(false), 0, true)), BROKEN);
        // Broken, though none of the first few is told in words.
        assert_eq!(verdict(&result(check(true), 1, false)), BROKEN);
        assert_eq!(verdict(&result(check(true), 3, true)), BROKEN);
        // Nobody has played.
        let mut nobody = result(check(true), 0, false);
        nobody.subjects.truncate(1);
        assert_eq!(verdict(&nobody), BROKEN);
        nobody.interrupted = true;
        assert_eq!(verdict(&nobody), INTERRUPTED);
    }
}
