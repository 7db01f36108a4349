//! The processes as the parent sees them, and what is said: a line each, orders to their standard input, answers from their standard
//! output. Whoever's input ends knows that the parent is gone.
//!
//! ```text
//! parent                    process
//! Orders, JOIN ------------>
//!              <------------ READY      it has units
//! ROUND ------------------->            as often as there are rounds
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
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{super::scenario::Scenario, server::Orphan};
use crate::error::{Error, Result};

pub const JOIN: &str = "join";
pub const READY: &str = "ready";
pub const ROUND: &str = "round";
pub const PLAYED: &str = "played";
pub const SETTLE: &str = "settle";
pub const STOP: &str = "stop";

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

pub struct Crew {
    ones: Vec<One>,
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
        let mut crew = Crew { ones: Vec::new(), heard };
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
            let sender = sender.clone();
            thread::spawn(move || {
                let lines = answers.lines().map_while(std::io::Result::ok).map(Some);
                for line in lines.chain([None]) {
                    if sender.send((place, line)).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(crew)
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
