//! One of the processes: joins the fleet, plays its share of the workers, tells what it has seen.

use std::{
    io::{self, BufRead, BufReader, Write},
    process::{self, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    Capacity, Scheduler,
    cluster::{Cluster, RedisEngine, Share, StartError, Terms},
};

use super::{
    super::{
        asset::{Asset, Census},
        bases,
        clock::Clock,
        conclude,
        drive::{self, Setting, State},
        monitor::Progress,
        pace::Schedule,
        recorder::lock,
        referee::Referee,
        result::{Check, Held, Point},
        runtime,
        scenario::Scenario,
        settle,
        subject::Subject,
        usage,
    },
    TTL,
    crew::{JOIN, LIVE, Orders, PLAYED, READY, ROUND, STOP},
    part::{Part, Raw},
    uses::{Shared, Uses},
};
use crate::error::{Error, Result};

/// How long a server that is busy is asked to let it join, and how long units are waited for before the first round. With less it begins all the same: the others may need them.
const WAITS: Duration = Duration::from_secs(20);
/// At the end nothing is out, so nothing has to be waited for but a server that is busy.
const GRACE: Duration = Duration::from_secs(20);

/// `leasehold load-process`: what is to be done comes in, line by line.
pub fn member() -> Result<ExitCode> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let (orders, words) = listen(&interrupted)?;
    let Orders { scenario, crew, name, fleet, address, orphan: _, expected } = orders;
    let runtime = runtime()?;
    let scheduler = Subject::empty(&scenario.subjects[0], &scenario, runtime.handle())?;
    let scheduler = scheduler.ok_or_else(|| Error::Options("--processes: expected the scheduler".into()))?;
    let setting = Setting {
        schedule: Schedule::open(&scenario)?,
        progress: Progress::told(live),
        interrupted,
        crew,
        scenario: Arc::new(scenario),
        clock: Arc::new(Clock::new()),
        runtime,
    };
    let scenario = &setting.scenario;
    let referee = Referee::new(scenario, &bases(scenario), 0);
    let subject = Subject::Leasehold(Arc::clone(&scheduler));
    let mut state = State::new(&scenario.subjects[0], &setting, subject, referee, Census::default());
    if words.recv().as_deref() != Ok(JOIN) {
        return Err(Error::Options("expected `join`".into()));
    }
    let cluster = Arc::new(join(&name, &fleet, &address, scenario, &scheduler, &state.referee)?);
    let uses = Arc::new(Uses::new(scenario, Arc::clone(&cluster), Arc::clone(&state.referee)));
    state.claims = Some(Arc::new(Shared(Arc::clone(&uses))));
    warm_up(&cluster, expected, &setting.interrupted);
    say(READY)?;

    let held = Looks::default();
    let mut number = 0;
    // Until it hears `SETTLE` instead.
    while words.recv().as_deref() == Ok(ROUND) {
        // From now on what it has follows what it needs.
        cluster.expect_units(1);
        let playing = AtomicBool::new(true);
        thread::scope(|scope| {
            let looks = scope.spawn(|| held.watch(&cluster, &playing));
            drive::round(&setting, &mut state, number, Duration::ZERO);
            state.checks.push(settle::between_rounds(scenario, &state, number));
            playing.store(false, Ordering::Relaxed);
            looks.join().expect("looking does not panic");
        });
        number += 1;
        say(PLAYED)?;
    }

    let times = Raw::new(&state.sum);
    let (served, leases) = (state.served.clone(), usage(&state.referee));
    let mut run = conclude(&setting, state);
    let closed = cluster.close(GRACE);
    run.checks.push(Check::that(
        "left the fleet",
        closed.told,
        format!("the server was told: {}", closed.told),
    ));
    let stats = cluster.stats();
    let part = Part {
        name,
        run,
        times,
        served,
        leases,
        held: held.sum(),
        claimed: stats.claimed,
        returned: stats.returned,
        lost: stats.losses,
        server_failures: stats.failures,
        spans: uses.all(),
        unused: uses.unused(),
    };
    say(&serde_json::to_string(&part).expect("names and numbers always serialise"))?;
    Ok(ExitCode::SUCCESS)
}

/// The orders, and what is said afterwards. When the input ends the parent is gone: then so is this process, and the server with it.
fn listen(interrupted: &Arc<AtomicBool>) -> Result<(Orders, Receiver<String>)> {
    let wrong =
        |what: String| Error::Options(format!("load-process: is started by `load --processes`; {what}"));
    // Not locked, so that it can go to the thread that goes on reading.
    let mut lines = BufReader::new(io::stdin()).lines();
    let first = lines.next().and_then(io::Result::ok).ok_or_else(|| wrong("expected orders".into()))?;
    let orders: Orders = serde_json::from_str(&first).map_err(|error| wrong(error.to_string()))?;
    let orphan = orders.orphan.clone();
    let interrupted = Arc::clone(interrupted);
    let (sender, words) = mpsc::channel();
    thread::spawn(move || {
        for line in lines.map_while(io::Result::ok) {
            if line == STOP {
                interrupted.store(true, Ordering::Relaxed);
            } else if sender.send(line).is_err() {
                return;
            }
        }
        if let Some(orphan) = orphan {
            orphan.stop();
        }
        process::exit(super::super::INTERRUPTED.into());
    });
    Ok((orders, words))
}

/// A line for the parent.
fn say(what: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let said = writeln!(stdout, "{what}").and_then(|()| stdout.flush());
    said.map_err(|cause| Error::file("load-process", "cannot answer", cause))
}

/// What the parent shows. Not to be heard is its own affair, and ends with this process.
fn live(point: &Point) {
    let point = serde_json::to_string(point).expect("numbers always serialise");
    let _ = say(&format!("{LIVE}{point}"));
}

fn join(
    name: &str,
    fleet: &str,
    address: &str,
    scenario: &Scenario,
    scheduler: &Arc<Scheduler<Asset>>,
    referee: &Arc<Referee>,
) -> Result<Cluster<Asset>> {
    let fail =
        |error: &dyn std::fmt::Display| Error::Options(format!("{name}: cannot join the fleet: {error}"));
    // Every lease is used under a fence, which ends with its claim: none has to be recorded to be revoked.
    let terms = Terms::new(TTL).unrecorded_leases(true);
    let end = Instant::now() + WAITS;
    // The first answer must come within a tenth of the time to live.
    loop {
        let engine = RedisEngine::new(fleet, [address]).map_err(|error| fail(&error))?;
        let shares = (0..scenario.resources).map(|index| {
            let units = scenario.limit_of(index).unwrap_or(1);
            Share::new(index.to_string(), referee.asset(index).rank(0)).units(units)
        });
        let make = {
            let referee = Arc::clone(referee);
            move |share: &Share, units| {
                let index = share.name.parse().expect("it was made of a number");
                referee.asset(index).with_capacity(Capacity::Limited(units))
            }
        };
        match Cluster::builder(name).terms(terms).shares(shares).start(engine, scheduler, make) {
            Err(StartError::Engine(_)) if Instant::now() < end => {}
            joined => return joined.map_err(|error| fail(&error)),
        }
    }
}

/// Until it has its first units, so that the first round is not about that.
fn warm_up(cluster: &Cluster<Asset>, expected: u32, interrupted: &AtomicBool) {
    cluster.expect_units(expected);
    let end = Instant::now() + WAITS;
    while cluster.stats().lendable < expected && Instant::now() < end && !interrupted.load(Ordering::Relaxed)
    {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Looks at how many units it has.
#[derive(Default)]
struct Looks {
    seen: std::sync::Mutex<Vec<u32>>,
}

impl Looks {
    const EVERY: Duration = Duration::from_millis(50);

    fn watch(&self, cluster: &Cluster<Asset>, playing: &AtomicBool) {
        while playing.load(Ordering::Relaxed) {
            lock(&self.seen).push(cluster.stats().held);
            thread::sleep(Self::EVERY);
        }
    }

    fn sum(&self) -> Held {
        let seen = lock(&self.seen);
        let total: u64 = seen.iter().map(|&held| u64::from(held)).sum();
        Held {
            least: seen.iter().copied().min().unwrap_or(0),
            mean: (total as f64 / seen.len().max(1) as f64 * 10.0).round() / 10.0,
            most: seen.iter().copied().max().unwrap_or(0),
        }
    }
}
