//! `leasehold load --processes N`: the scenario's workers in N real processes, which share its fleet through a real server.
//!
//! The parent starts the server and the processes, tells them when a round begins, and makes one result of theirs. Whether a unit was
//! lent by two at once is decided afterwards, from what each has noted of the uses of its units on the clock that all processes of a
//! machine share: a referee who is asked before each use, as in `examples/cluster_referee`, would be most of the load.
//!
//! | file | idea |
//! |---|---|
//! | this one | the parent's run, from the server's start to the result |
//! | [`fit`] | what cannot be played so |
//! | [`server`] | found, started, stopped, swept up |
//! | [`crew`] | the processes, as the parent sees them; what is said |
//! | [`member`](mod@member) | one process |
//! | [`uses`] | which unit was used when, under which token |
//! | [`part`], [`merge`] | what each tells, and one result of it |
//! | [`verdict`] | no unit is lent by two at once |

mod crew;
mod fit;
mod member;
mod merge;
mod part;
mod server;
mod uses;
mod verdict;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use self::{
    crew::{Crew, Live, Orders},
    part::Part,
    server::Server,
};
pub use member::member;

use super::{
    Interrupt, Load,
    monitor::Progress,
    pace::Schedule,
    processors,
    result::{Check, KIND, LoadResult, SCHEMA, SubjectResult},
    runtime,
    scenario::Scenario,
    subject::Subject,
};
use crate::error::{Error, Result};

/// After so long without a word from the server a member's claims end. A new fleet lends nothing for so long.
const TTL: Duration = Duration::from_secs(2);

/// How much longer than it should take the parent waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Plays all rounds with so many processes.
pub fn play(options: &Load, count: u32, mut scenario: Scenario, interrupt: &Interrupt) -> Result<LoadResult> {
    let units = fit::check(&scenario, count)?;
    let name = fit::subject(&options.subjects, &scenario)?;
    scenario.subjects = vec![name.clone()];
    let runtime = runtime()?;
    // What each process will read, read once before: so that what is wrong is told once.
    Subject::empty(&name, &scenario, runtime.handle())?;
    Schedule::open(&scenario)?;
    let mut server = Server::find(options.server.as_deref())?;

    // The processes are there before the server: if this one dies at any moment from now on, they stop it.
    let mut crew = Crew::start(count)?;
    for place in 0..count {
        let orders = Orders {
            scenario: scenario.clone(),
            crew: share(scenario.workers, count, place),
            name: crew::name(place),
            fleet: server.fleet.clone(),
            address: server.address.clone(),
            orphan: server.orphan(),
            expected: first_units(units, count, place),
        };
        crew.tell(place, &serde_json::to_string(&orders).expect("plain values always serialise"));
    }
    server.start()?;
    crew.tell_all(crew::JOIN);
    let watch = Watch { interrupt, progress: progress(&scenario), live: crew.live(), began: None };
    let (parts, cut) = direct(&mut crew, &scenario, watch)?;
    crew.finish();
    let is_interrupted = cut || interrupt.is_raised();

    let returned = all_returned(&server, units);
    let mut run = merge::merge(&scenario, &server, units, &parts, is_interrupted);
    run.checks.insert(0, returned);
    Ok(LoadResult {
        schema: SCHEMA,
        kind: KIND.into(),
        source: options.scenario.clone(),
        interrupted: is_interrupted,
        processors: processors(),
        scenario,
        subjects: vec![SubjectResult { name, unfit: None, run: Some(run) }],
    })
}

/// The workers of one process: equally many, but for what does not divide evenly.
fn share(workers: u32, count: u32, place: u32) -> std::ops::Range<u32> {
    let from = |place: u32| (u64::from(workers) * u64::from(place) / u64::from(count)) as u32;
    from(place)..from(place + 1)
}

/// The units with which a process begins: the first one with all but one for each of the others. What equals have from the beginning
/// they would keep, and then nothing could be lent by two at once; so units must move while they are in demand.
fn first_units(units: u64, count: u32, place: u32) -> u32 {
    if place == 0 { (units - u64::from(count - 1)) as u32 } else { 1 }
}

fn progress(scenario: &Scenario) -> Progress {
    Progress::new(scenario.rounds.into(), scenario.duration.0)
}

/// What goes on while the parent waits.
struct Watch<'a> {
    interrupt: &'a Interrupt,
    progress: Progress,
    live: Arc<Live>,
    /// When the first round began.
    began: Option<Instant>,
}

impl Watch<'_> {
    /// Whether the run is to end.
    fn look(&self) -> bool {
        match self.began {
            None => self.progress.at(Duration::ZERO, "the processes join the fleet"),
            Some(began) => self.progress.at(began.elapsed(), self.live.tell()),
        }
        self.interrupt.is_raised()
    }
}

/// Round by round, until each has told its part. Whether it was cut short.
fn direct(crew: &mut Crew, scenario: &Scenario, mut watch: Watch<'_>) -> Result<(Vec<Part>, bool)> {
    let length = scenario.duration.0;
    let mut cut = crew.hear_all(crew::READY, PATIENCE, || watch.look())?.1;
    watch.began = Some(Instant::now());
    for _ in 0..scenario.rounds {
        if cut {
            break;
        }
        crew.tell_all(crew::ROUND);
        cut = crew.hear_all(crew::PLAYED, length + PATIENCE, || watch.look())?.1;
    }
    // All have played before the first one settles: what it puts back of the fleet's holds is everybody's.
    crew.tell_all(crew::SETTLE);
    let (texts, _) = crew.hear_all("", PATIENCE, || false)?;
    let parts = texts.iter().zip(0..).map(|(text, place)| {
        serde_json::from_str(text).map_err(|error| {
            Error::Options(format!("--processes: {} told what is no result: {error}", crew::name(place)))
        })
    });
    Ok((parts.collect::<Result<_>>()?, cut))
}

/// By the server's books nobody is there any more, and nothing is missing.
fn all_returned(server: &Server, units: u64) -> Check {
    let name = "units given back";
    match server.overview() {
        Err(error) => Check::that(name, false, error),
        Ok(overview) => {
            let (free, members) = (u64::from(overview.free), overview.members.len());
            let holds = free == units && overview.claims.is_empty() && members == 0;
            let found =
                format!("free {free} of {units}, claims {}, members {members}", overview.claims.len());
            Check::that(name, holds, found)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_has_a_process() {
        for (workers, count) in [(7, 3), (64, 2), (3, 3), (100_000, 64)] {
            let shares: Vec<_> = (0..count).map(|place| share(workers, count, place)).collect();
            assert_eq!((shares[0].start, shares[count as usize - 1].end), (0, workers));
            assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(shares.iter().all(|share| share.len() as u32 >= workers / count && !share.is_empty()));
        }
    }
}
