//! The processes as the parent sees them, and what is said: a line each, orders to their standard input, answers from their standard
//! output. Whoever's input ends knows that the parent is gone.
//!
//! ```text
//! parent                    process
//! Orders, JOIN ------------>
//!              <------------ READY      it has units
//! ROUND ------------------->            as often as there are rounds
//!              <------------ LIVE and a Point, now and then
//!              <------------ PLAYED
//! SETTLE ------------------>
//!              <------------ a Part; then it ends
//! STOP, at any time ------->            Ctrl-C: the round ends at once
//! ```

use std::{
    io::{BufRead, BufReader, Write},
    ops::Range,
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    super::{monitor::rates, recorder::lock, result::Point, scenario::Scenario},
    server::Orphan,
};
use crate::error::{Error, Result};

pub const JOIN: &str = "join";
pub const READY: &str = "ready";
pub const ROUND: &str = "round";
pub const PLAYED: &str = "played";
pub const SETTLE: &str = "settle";
pub const STOP: &str = "stop";
/// Before a moment of a round, for whoever looks on.
pub const LIVE: &str = "live ";

/// What a process is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    pub scenario: Scenario,
    /// Which of the scenario's workers are its own.
    pub crew: Range<u32>,
    pub name: String,
    pub fleet: String,
    pub address: String,
    /// What is to be stopped if the parent is gone.
    pub orphan: Option<Orphan>,
    /// Units that it has before the first round; afterwards what it has follows what it needs.
    pub expected: u32,
}

/// What the process at this place is called, from 1.
pub fn name(place: u32) -> String {
    format!("process-{}", place + 1)
}

struct One {
    child: Child,
    words: ChildStdin,
}

/// The last moment that each process has told of.
pub struct Live(Box<[Mutex<Option<Point>>]>);

impl Live {
    fn new(count: u32) -> Self {
        Live((0..count).map(|_| Mutex::new(None)).collect())
    }

    /// Whether the process at this place says that, and then it is kept.
    fn takes(&self, place: usize, line: &str) -> bool {
        let Some(point) = line.strip_prefix(LIVE) else { return false };
        *lock(&self.0[place]) = serde_json::from_str(point).ok();
        true
    }

    /// All together: rates and queues added up, the longest of the waits.
    pub fn tell(&self) -> String {
        let points: Vec<Point> = self.0.iter().filter_map(|point| *lock(point)).collect();
        // The sum of nothing would be minus nothing.
        let completed = points.iter().fold(0.0, |sum, point| sum + point.completed);
        let p99 = points.iter().map(|point| point.p99).max().unwrap_or(0);
        let waiting = points.iter().map(|point| point.waiting).sum();
        rates(&format!("{} processes", self.0.len()), completed, p99, waiting)
    }
}

pub struct Crew {
    ones: Vec<One>,
    live: Arc<Live>,
    /// What each says; none when it has ended.
    heard: Receiver<(usize, Option<String>)>,
}

/// Ctrl-C is looked for so often.
const LOOKS: Duration = Duration::from_millis(50);

impl Crew {
    pub fn start(count: u32) -> Result<Self> {
        let fail = |cause| Error::file("--processes", "cannot be started", cause);
        let program = std::env::current_exe().map_err(fail)?;
        let (sender, heard) = mpsc::channel();
        let mut crew = Crew { ones: Vec::new(), live: Arc::new(Live::new(count)), heard };
        for place in 0..count as usize {
            let mut child = Command::new(&program)
                .arg("load-process")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                // Ctrl-C is for the parent, which tells it to the others.
                .process_group(0)
                .spawn()
                .map_err(fail)?;
            let words = child.stdin.take().expect("it is piped");
            let answers = BufReader::new(child.stdout.take().expect("it is piped"));
            crew.ones.push(One { child, words });
            let (sender, live) = (sender.clone(), Arc::clone(&crew.live));
            thread::spawn(move || {
                let lines = answers.lines().map_while(std::io::Result::ok).map(Some);
                for line in lines.chain([None]) {
                    if line.as_ref().is_some_and(|line| live.takes(place, line)) {
                        continue;
                    }
                    if sender.send((place, line)).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(crew)
    }

    pub fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live)
    }

    pub fn tell(&mut self, place: u32, what: &str) {
        // One that has ended is noticed where it is listened to.
        let _ = writeln!(self.ones[place as usize].words, "{what}");
    }

    pub fn tell_all(&mut self, what: &str) {
        (0..self.ones.len() as u32).for_each(|place| self.tell(place, what));
    }

    /// A line of each, in their order, which must be `expected` unless that is empty; and whether `ends` has asked for an end, of which all
    /// are told.
    pub fn hear_all(
        &mut self,
        expected: &str,
        limit: Duration,
        ends: impl Fn() -> bool,
    ) -> Result<(Vec<String>, bool)> {
        let end = Instant::now() + limit;
        let mut lines: Vec<Option<String>> = self.ones.iter().map(|_| None).collect();
        let mut cut = false;
        while let Some(late) = lines.iter().position(Option::is_none) {
            if !cut && ends() {
                cut = true;
                self.tell_all(STOP);
            }
            match self.heard.recv_timeout(LOOKS) {
                Ok((place, Some(line))) if expected.is_empty() || line == expected => {
                    lines[place] = Some(line)
                }
                Ok((place, Some(line))) => {
                    return Err(Error::Options(format!(
                        "{}: expected {expected:?}, found {line:?}",
                        name(place as u32)
                    )));
                }
                Ok((place, None)) if lines[place].is_none() || !expected.is_empty() => {
                    let status = self.ones[place]
                        .child
                        .wait()
                        .map_or_else(|error| error.to_string(), |status| status.to_string());
                    return Err(Error::Options(format!(
                        "{} ended before its time ({status})",
                        name(place as u32)
                    )));
                }
                Ok((_, None)) => {}
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                Err(_) => {
                    return Err(Error::Options(format!("{} says nothing for {limit:?}", name(late as u32))));
                }
            }
        }
        Ok((lines.into_iter().flatten().collect(), cut))
    }

    /// All have told their parts, and end by themselves.
    pub fn finish(mut self) {
        let end = Instant::now() + Duration::from_secs(5);
        for one in &mut self.ones {
            while matches!(one.child.try_wait(), Ok(None)) && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // Before their inputs end, from which they would take it that the parent is gone.
        for one in &mut self.ones {
            let _ = one.child.kill();
            let _ = one.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_processes_tell_of_a_moment_is_added_up() {
        let live = Live::new(3);
        assert_eq!(live.tell(), "3 processes: 0/s, p99 0.00 ms, 0 waiting");
        for (place, completed, waiting, p99) in
            [(0, 900.0, 9, 9_000_000), (0, 100.0, 2, 1_000_000), (2, 50.5, 1, 2_500_000)]
        {
            let point = Point {
                round: 0,
                at: 1.0,
                completed,
                refused: 0.0,
                failed: 0.0,
                waiting,
                in_flight: 0,
                p50: 0,
                p99,
            };
            assert!(live.takes(place, &format!("{LIVE}{}", serde_json::to_string(&point).unwrap())));
        }
        assert_eq!(live.tell(), "3 processes: 150/s, p99 2.50 ms, 3 waiting");
        assert!([READY, PLAYED, "{}"].iter().all(|other| !live.takes(1, other)));
    }
}
