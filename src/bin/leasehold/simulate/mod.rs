//! The simulation: requests, resources and one scheduler in virtual time.
//!
//! Nothing here reads a clock, hashes in a random order or asks the machine anything, so a run follows from the trace,
//! the fleet and the seed. Time is whole nanoseconds.
//!
//! The life of a request, which docs/cli.md tells at length:
//!
//! 1. It arrives and joins the end of the waiting line.
//! 2. The head of the line asks the scheduler for the best resource, first without those it has tried already, then
//!    without such wishes. If nothing is eligible, the whole line waits: for a lease to end or a cooling to pass.
//! 3. It holds its lease for as long as the backend takes, and finishes it with what became of it.
//! 4. After a failure or a "429" it joins the end of the line again, until its retries are used up.

mod backend;
mod bucket;
mod oracle;
mod queue;
mod series;
mod statistics;

use std::{collections::VecDeque, time::Duration};

use leasehold::{
    ManualClock, Outcome, SplitMix64, Timestamp,
    baseline::{Lend, Lent, Unavailable},
};

pub use self::statistics::{Distribution, Statistics, jain};
use self::{
    backend::{Answer, Backend},
    oracle::Oracle,
    queue::EventQueue,
};
use crate::{
    fleet::{Fleet, Server},
    trace::Request,
};

/// The end of virtual time, in nanoseconds: what would happen later happens then. Arrivals end at half of it, and
/// one request takes less than the other half. Only a long line of absurdly long requests comes here.
const END: u64 = 1 << 63;

/// How long a refusal by the rules takes, as `load` has it.
const REFUSED: u64 = 1_000_000;

/// What is the same for every scheduler in a run.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub seed: u64,
    /// How often a request may be sent again after its first attempt.
    pub max_retries: u32,
    /// How many requests may wait; more are rejected.
    pub max_queue: usize,
    /// How long a request waits in all; `None`: for as long as it takes.
    pub wait: Option<u64>,
    /// How long a resource rests after each use.
    pub rest: u64,
    /// Share of requests, out of 2^32, that are refused whatever the resource's limits, and for how long the resource cools then.
    pub refusals: u64,
    pub retry_after: u64,
}

impl Rules {
    /// Those of `replay`: nobody gives up, and nothing but the fleet decides.
    pub fn plain(seed: u64, max_retries: u32, max_queue: usize) -> Self {
        Rules { seed, max_retries, max_queue, wait: None, rest: 0, refusals: 0, retry_after: 0 }
    }

    /// Whether this attempt is refused. Everybody's luck is the same, as that of the backends is.
    fn refuses(&self, number: u64, attempt: u32) -> bool {
        let draw = SplitMix64::mix(self.seed ^ SplitMix64::mix(number << 8 | u64::from(attempt & 0xff)));
        // Another draw than the backend's, which is made of the same numbers.
        self.refusals > 0 && SplitMix64::mix(!draw) >> 32 < self.refusals
    }
}

/// One scheduler replaying one trace.
pub struct Simulation<'a, L: Lend<Server> + 'a> {
    lender: &'a L,
    clock: &'a ManualClock,
    rules: Rules,
    backends: Vec<Backend>,
    oracle: Oracle,
    events: EventQueue<Event<L::Lease<'a>>>,
    line: VecDeque<Attempt>,
    /// Whether anything has become eligible since the scheduler last said that nothing was.
    hopeful: bool,
    now: u64,
    statistics: Statistics,
}

/// A request on its way.
struct Attempt {
    request: Request,
    /// When it joined the line.
    since: u64,
    /// What it waited in the line before.
    waited: u64,
    /// Which resources it was sent to, each once.
    tried: Vec<u32>,
    /// How often it was sent.
    sent: u32,
}

enum Event<Lease> {
    /// A lease ends.
    End { attempt: Attempt, lease: Lease, answer: Answer },
    /// A resource has cooled.
    Cooled,
}

impl<'a, L: Lend<Server> + 'a> Simulation<'a, L> {
    /// `lender` holds the resources of `fleet` and reads `clock`, which nothing else moves.
    pub fn new(lender: &'a L, clock: &'a ManualClock, fleet: &Fleet, rules: Rules) -> Self {
        Simulation {
            lender,
            clock,
            rules,
            backends: fleet.resources.iter().map(Backend::new).collect(),
            oracle: Oracle::new(fleet.servers()),
            events: EventQueue::new(),
            line: VecDeque::new(),
            hopeful: true,
            now: 0,
            statistics: Statistics::new(fleet.resources.len()),
        }
    }

    /// The next request of the trace. What was due by its arrival happens first.
    pub fn arrive(&mut self, request: Request) {
        self.run_until(request.at);
        self.move_to(request.at);
        self.join_line(Attempt { request, since: self.now, waited: 0, tried: Vec::new(), sent: 0 });
        self.serve_line();
        if self.line.len() > self.rules.max_queue {
            // The line was no longer than allowed before, unless retries swelled it: the newcomer is the last.
            self.line.pop_back();
            self.statistics.rejected += 1;
        }
        self.note(0);
    }

    /// Notes that so many were served now, and how long the line is.
    fn note(&mut self, completed: u64) {
        self.statistics.series.record(self.now, completed, self.line.len());
    }

    /// The trace has ended: everything under way is brought to its end.
    pub fn finish(mut self) -> Statistics {
        self.run_until(u64::MAX);
        // Whoever still waits would wait for ever. A scheduler that is right leaves nobody here.
        self.statistics.rejected += self.line.len() as u64;
        self.statistics.end = self.now;
        self.statistics
    }

    fn run_until(&mut self, moment: u64) {
        while let Some((at, event)) = self.events.pop_due(moment) {
            match event {
                // A cooling that nobody waits for is no event of the run: it must not lengthen it.
                Event::Cooled if self.line.is_empty() => {
                    self.hopeful = true;
                    continue;
                }
                Event::Cooled => self.move_to(at),
                Event::End { attempt, lease, answer } => {
                    self.move_to(at);
                    self.end(attempt, lease, answer);
                }
            }
            self.hopeful = true;
            self.serve_line();
            self.note(0);
        }
    }

    fn move_to(&mut self, moment: u64) {
        self.now = moment;
        self.clock.advance_to(Timestamp::from_nanos(moment));
        self.oracle.advance(moment);
    }

    fn join_line(&mut self, attempt: Attempt) {
        self.line.push_back(Attempt { since: self.now, ..attempt });
    }

    /// Serves the line from its head for as long as the scheduler has something to lend.
    fn serve_line(&mut self) {
        while let Some(head) = self.line.front()
            && self.rules.wait.is_some_and(|wait| head.waited + (self.now - head.since) > wait)
        {
            self.line.pop_front();
            self.statistics.expired += 1;
        }
        while self.hopeful
            && let Some(head) = self.line.front()
        {
            match ask(self.lender, &self.oracle, &head.tried, &mut self.statistics) {
                Some((lease, elsewhere)) => {
                    let attempt = self.line.pop_front().expect("the head is there");
                    self.send(attempt, lease, elsewhere);
                }
                None => self.hopeful = false,
            }
        }
    }

    /// A request has its lease: the backend decides what becomes of it.
    fn send(&mut self, mut attempt: Attempt, lease: L::Lease<'a>, elsewhere: bool) {
        let index = lease.index;
        let except: &[u32] = if elsewhere { &attempt.tried } else { &[] };
        let verdict = self.oracle.acquired(index, except);
        self.statistics.rank_error.record(verdict.rank_error);
        verdict.delay.into_iter().for_each(|delay| self.statistics.delay.record(delay));
        self.statistics.disagreements += u64::from(!verdict.eligible);

        attempt.waited += self.now - attempt.since;
        let backend = &mut self.backends[index as usize];
        let answer = if self.rules.refuses(attempt.request.number, attempt.sent) {
            Answer::Refused { held: REFUSED, retry_after: self.rules.retry_after }
        } else {
            backend.ask(self.now, &attempt.request, attempt.sent, self.rules.seed)
        };
        let answer = answer.by(END - self.now);
        attempt.sent += 1;
        if !attempt.tried.contains(&index) {
            attempt.tried.push(index);
        }
        self.events.plan(self.now + answer.held(), Event::End { attempt, lease, answer });
    }

    /// A lease ends: the scheduler is told how, and the request is done or tries again.
    fn end(&mut self, attempt: Attempt, lease: L::Lease<'a>, answer: Answer) {
        let index = lease.index;
        let usage = &mut self.statistics.usage[index as usize];
        usage.leases += 1;
        usage.held += u128::from(answer.held());
        self.oracle.returned(index);
        let rest = self.rules.rest.min(END - self.now);
        // A lender of any kind knows one way to let a resource rest.
        let rests = (rest > 0).then_some(Outcome::RateLimited { retry_after: Duration::from_nanos(rest) });
        match answer {
            Answer::Served { held } => {
                lease.finish(rests.unwrap_or(Outcome::Ok { latency: Duration::from_nanos(held) }));
                self.rests(index, rest);
                self.statistics.completed += 1;
                self.note(1);
                self.statistics.waiting.record(attempt.waited);
            }
            Answer::Failed { .. } => {
                lease.finish(rests.unwrap_or(Outcome::Failed));
                self.rests(index, rest);
                self.try_again(attempt);
            }
            Answer::Refused { retry_after, .. } => {
                let retry_after = retry_after.max(rest).min(END - self.now);
                lease.finish(Outcome::RateLimited { retry_after: Duration::from_nanos(retry_after) });
                self.rests(index, retry_after);
                self.statistics.rate_limited += 1;
                self.try_again(attempt);
            }
        }
    }

    /// It was told to rest for so long.
    fn rests(&mut self, index: u32, rest: u64) {
        if rest > 0 {
            let deadline = self.now + rest;
            self.oracle.cooled(index, deadline);
            self.events.plan(deadline, Event::Cooled);
        }
    }

    fn try_again(&mut self, attempt: Attempt) {
        if attempt.sent > self.rules.max_retries {
            self.statistics.failed += 1;
            self.statistics.waiting.record(attempt.waited);
        } else {
            self.statistics.retried += 1;
            self.join_line(attempt);
        }
    }
}

/// The best resource, and whether it was found among those not tried yet.
///
/// To have been tried is a reason to look elsewhere, not to wait: if all that is eligible has been tried, it is tried
/// again. So nobody at the head of the line can keep idle resources from those behind.
fn ask<'a, L: Lend<Server>>(
    lender: &'a L,
    oracle: &Oracle,
    tried: &[u32],
    statistics: &mut Statistics,
) -> Option<(L::Lease<'a>, bool)> {
    if !tried.is_empty() {
        match lender.acquire_excluding(tried) {
            Ok(lease) => return Some((lease, true)),
            Err(_) => statistics.disagreements += u64::from(oracle.eligible(tried) > 0),
        }
    }
    match lender.acquire() {
        Ok(lease) => Some((lease, false)),
        Err(Unavailable { earliest }) => {
            let wrong = oracle.eligible(&[]) > 0 || earliest.map(Timestamp::as_nanos) != oracle.earliest();
            statistics.disagreements += u64::from(wrong);
            None
        }
    }
}

#[cfg(test)]
mod tests;
