//! What the provider does with a request.

use std::time::Duration;

use http::StatusCode;
use leasehold::SplitMix64;
use tokio::time::Instant;

use super::{Shared, bucket::Refused};

/// What it does.
#[derive(Clone, Debug)]
pub enum Act {
    /// Streams so many tokens.
    Answer {
        /// Pieces of the answer, before its end.
        tokens: u64,
    },
    /// Answers at once, with these header fields.
    Plain(StatusCode, Vec<(&'static str, String)>),
    /// Closes the connection, without an answer.
    Drop,
    /// Streams so many tokens, and then closes the connection.
    Cut {
        /// At least one.
        tokens: u64,
    },
    /// Takes the request and says nothing.
    Hold,
    /// Streams for ever.
    Endless,
    /// Streams a token, and then nothing.
    Stall,
}

impl Act {
    /// 429, and for how many seconds, if that is told.
    pub fn limit(retry_after: Option<u64>) -> Self {
        let fields = retry_after.map(|seconds| ("retry-after", seconds.to_string()));
        Act::Plain(StatusCode::TOO_MANY_REQUESTS, fields.into_iter().collect())
    }

    /// This status and nothing else.
    pub fn status(status: StatusCode) -> Self {
        Act::Plain(status, Vec::new())
    }
}

/// What goes wrong at random: the share of requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// 429 with `Retry-After: 1`.
    pub limit: f64,
    /// 500.
    pub error: f64,
    /// The connection is closed before the answer.
    pub drop: f64,
    /// The connection is closed in the midst of the answer.
    pub cut: f64,
    /// No answer comes.
    pub hold: f64,
    /// The answer takes this much longer to begin.
    pub late: f64,
}

impl Faults {
    /// A bad day.
    pub fn some() -> Self {
        Faults { limit: 0.02, error: 0.03, drop: 0.015, cut: 0.015, hold: 0.002, late: 0.02 }
    }
}

/// How much later a late answer begins.
const LATE: Duration = Duration::from_millis(300);

/// What is decided about a request: when it is answered, and how.
pub struct Decision {
    pub after: Duration,
    pub act: Act,
}

fn unit(luck: &mut SplitMix64) -> f64 {
    (luck.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

impl Shared {
    /// `asked`: what the client wants of the mock; `tokens`: of it as a provider; `size` of the request in tokens.
    pub fn decide(&self, index: usize, asked: Option<&str>, tokens: u64, size: u64) -> Decision {
        let spec = &self.fleet[index];
        let now = Instant::now();
        let mut state = self.state();
        let state = &mut *state;
        let at_once = |act| Decision { after: Duration::ZERO, act };
        if let Some(act) = state.scripts.get_mut(&spec.key).and_then(std::collections::VecDeque::pop_front) {
            return at_once(act);
        }
        match asked {
            Some("hold") => return at_once(Act::Hold),
            Some("endless") => return at_once(Act::Endless),
            _ => {}
        }
        let gone = self.since.elapsed().as_secs_f64() * self.speed;
        let outage = spec.outages.iter().find(|outage| (outage.from..outage.to).contains(&gone));
        if let Some(outage) = outage {
            let seconds = ((outage.to - gone) / self.speed).ceil().max(1.0) as u64;
            return at_once(Act::limit(Some(seconds)));
        }
        if let Err(Refused { seconds }) = state.buckets[index].take(tokens + size, now) {
            return at_once(Act::limit(Some(seconds)));
        }
        let draw = unit(&mut state.luck);
        let mut below = 0.0;
        let mut hit = |share: f64| {
            below += share;
            draw < below
        };
        let faults = &self.faults;
        let act = if hit(faults.limit) {
            return at_once(Act::limit(Some(1)));
        } else if hit(faults.drop) {
            return at_once(Act::Drop);
        } else if hit(faults.hold) {
            return at_once(Act::Hold);
        } else if hit(faults.error) || hit(spec.failure_rate) {
            Act::status(StatusCode::INTERNAL_SERVER_ERROR)
        } else if hit(faults.cut) {
            Act::Cut { tokens: 1 + tokens / 2 }
        } else {
            Act::Answer { tokens }
        };
        let late = if unit(&mut state.luck) < faults.late { LATE } else { Duration::ZERO };
        // 0.8 to 1.2 of what the file says.
        let factor = 0.8 + 0.4 * unit(&mut state.luck);
        let first = Duration::from_secs_f64(spec.time_to_first_token * factor / self.speed);
        Decision { after: first + late, act }
    }
}
