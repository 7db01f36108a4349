//! How a scenario is run: under random schedules, under PCT with three preemptions, and once to see that it repeats.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `SHUTTLE_ITERATIONS` | schedules per scenario and scheduler | 5,000 |
//! | `SHUTTLE_SEED` | the first seed of both | fixed |
//! | `SHUTTLE_REPLAY` | one schedule, as a failure prints it: it is replayed instead | |
//!
//! A failing schedule is printed whole. What goes into `pinned.rs` stays checked.

#![allow(clippy::disallowed_types)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Instant,
};

use shuttle::{
    Config, FailurePersistence, MaxSteps, Runner, check_uncontrolled_nondeterminism, replay,
    scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Schedule, Scheduler, Task, TaskId},
};

const SEED: u64 = 0x1ea5_e401d;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

pub fn scenario(name: &str, body: impl Fn() + Send + Sync + 'static) {
    scenario_at_least(name, 1, body);
}

/// As [`scenario`], with so many schedules at least, of either scheduler.
pub fn scenario_at_least(name: &str, least: usize, body: impl Fn() + Send + Sync + 'static) {
    run(name, (variable("SHUTTLE_ITERATIONS", 5_000) as usize).max(least), body);
}

fn run(name: &str, iterations: usize, body: impl Fn() + Send + Sync + 'static) {
    let runs = Arc::new(AtomicUsize::new(0));
    let body = {
        let runs = runs.clone();
        Arc::new(move || {
            runs.fetch_add(1, SeqCst);
            body();
        })
    };
    let again = || {
        let body = body.clone();
        move || body()
    };
    if let Ok(schedule) = std::env::var("SHUTTLE_REPLAY") {
        return replay(again(), &schedule);
    }
    let seed = variable("SHUTTLE_SEED", SEED);
    let mut config = Config::new();
    config.stack_size = 256 * 1024;
    config.failure_persistence = FailurePersistence::Print;
    config.max_steps = MaxSteps::FailAfter(200_000);
    let start = Instant::now();
    check_uncontrolled_nondeterminism(again(), 20);
    Runner::new(RandomScheduler::new_from_seed(seed, iterations), config.clone()).run(again());
    Runner::new(PctScheduler::new_from_seed(seed, 3, iterations), config).run(again());
    let runs = runs.load(SeqCst);
    assert!(runs >= 2 * iterations && iterations > 0, "every schedule was run: {runs}");
    println!("shuttle {name}: {runs} schedules, {} ms", start.elapsed().as_millis());
}

/// Runs `body` once, by `schedule` as far as it applies, and then on its own: the schedule is of the program as it was when
/// it failed, and the repaired one takes other steps from some point on.
pub fn follow(body: impl Fn() + Send + Sync + 'static, schedule: &str) {
    let mut replay = ReplayScheduler::new_from_encoded(schedule);
    replay.set_allow_incomplete();
    let mut config = Config::new();
    config.stack_size = 256 * 1024;
    config.failure_persistence = FailurePersistence::None;
    Runner::new(Follower { replay: Some(replay), next: 0 }, config).run(body);
}

struct Follower {
    /// Gone when it does not apply any more.
    replay: Option<ReplayScheduler>,
    next: usize,
}

impl Scheduler for Follower {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.replay.as_mut()?.new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> Option<TaskId> {
        if let Some(next) =
            self.replay.as_mut().and_then(|replay| replay.next_task(runnable, current, yields))
        {
            return Some(next);
        }
        self.replay = None;
        // In turns: everybody gets on, whatever they wait for.
        self.next += 1;
        Some(runnable[self.next % runnable.len()].id())
    }

    fn next_u64(&mut self) -> u64 {
        panic!("a story that is pinned draws nothing")
    }
}
