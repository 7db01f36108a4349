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
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Instant,
};

use shuttle::{
    Config, FailurePersistence, MaxSteps, Runner, check_uncontrolled_nondeterminism, replay,
    scheduler::{
        DataSource, PctScheduler, RandomDataSource, RandomScheduler, Schedule, Scheduler, Task, TaskId,
    },
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
/// it failed, and the repaired one takes other steps from some point on. What it draws is drawn as it was then.
pub fn follow(body: impl Fn() + Send + Sync + 'static, schedule: &str) {
    let mut config = Config::new();
    config.stack_size = 256 * 1024;
    config.failure_persistence = FailurePersistence::None;
    Runner::new(Follower::of(schedule), config).run(body);
}

/// A step of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    By(usize),
    /// A number was drawn.
    Draw,
}

struct Follower {
    seed: u64,
    /// What is drawn: the next numbers of that seed, whoever draws them.
    numbers: RandomDataSource,
    /// The rest of the schedule; none when it does not apply any more.
    steps: VecDeque<Taken>,
    begun: bool,
    next: usize,
}

impl Follower {
    fn of(schedule: &str) -> Self {
        let (seed, steps) = read(schedule).expect("a schedule as a failure prints it");
        Follower { seed, numbers: RandomDataSource::initialize(seed), steps, begun: false, next: 0 }
    }

    /// Whether the schedule goes on like that; if not, it is over.
    fn goes_on(&mut self, taken: impl FnOnce(Taken) -> bool) -> bool {
        let applies = self.steps.pop_front().is_some_and(taken);
        if !applies {
            self.steps.clear();
        }
        applies
    }
}

impl Scheduler for Follower {
    fn new_execution(&mut self) -> Option<Schedule> {
        (!std::mem::replace(&mut self.begun, true)).then(|| Schedule::new(self.seed))
    }

    fn next_task(&mut self, runnable: &[&Task], _: Option<TaskId>, _: bool) -> Option<TaskId> {
        let mut found = None;
        self.goes_on(|taken| {
            found = runnable.iter().map(|task| task.id()).find(|&id| taken == Taken::By(id.into()));
            found.is_some()
        });
        found.or_else(|| {
            // In turns: everybody gets on, whatever they wait for.
            self.next += 1;
            Some(runnable[self.next % runnable.len()].id())
        })
    }

    fn next_u64(&mut self) -> u64 {
        self.goes_on(|taken| taken == Taken::Draw);
        self.numbers.next_u64()
    }
}

/// The seed and the steps of a schedule as it is printed. shuttle reads that too, but tells nobody what comes next: then whoever follows could
/// not stop before it is told what does not apply.
///
/// In hexadecimal, blanks apart: 0x91; three numbers, seven bits a byte, the lowest first: the bits of a task's number, the count of steps, the
/// seed; then the steps, the lowest bit of each byte first: 1 for a draw, or 0 and the number of a task.
fn read(schedule: &str) -> Option<(u64, VecDeque<Taken>)> {
    let digits: Vec<u8> = schedule.chars().filter_map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    let mut bytes = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]);
    if bytes.next() != Some(0x91) {
        return None;
    }
    let mut number = || {
        let (mut sum, mut shift) = (0u64, 0);
        loop {
            let byte = bytes.next()?;
            sum |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return Some(sum);
            }
            if shift == 63 {
                // The last bit of 64, in a byte of its own.
                return Some(sum | u64::from(bytes.next()?) << 63);
            }
        }
    };
    let (width, count, seed) = (number()?, number()?, number()?);
    let mut bits = bytes.flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
    let mut steps = VecDeque::new();
    for _ in 0..count {
        let draws = bits.next()?;
        steps.push_back(if draws {
            Taken::Draw
        } else {
            Taken::By((0..width).try_fold(0, |task, bit| Some(task | usize::from(bits.next()?) << bit))?)
        });
    }
    Some((seed, steps))
}
