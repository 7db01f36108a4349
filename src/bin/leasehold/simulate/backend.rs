//! What a resource does with a request: the model behind the lease.
//!
//! Random numbers are drawn from the seed, the request's number and its attempt, and from nothing else. Each strategy
//! therefore meets the same luck with the same request, and differences in the report are differences of strategy.

use leasehold::SplitMix64;

use super::bucket::Bucket;
use crate::{fleet::Spec, trace::Request};

/// How long a refusal takes to arrive.
pub const REFUSAL: u64 = 10_000_000;

/// An outage says "come back in" at most this long, because nobody knows its end.
pub const OUTAGE_RETRY_AFTER: u64 = 10_000_000_000;

const MILLISECOND: u64 = 1_000_000;

/// What becomes of a request, and how long the lease is held for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Served {
        held: u64,
    },
    Failed {
        held: u64,
    },
    /// "429": `retry_after` counts from the end of the lease.
    Refused {
        held: u64,
        retry_after: u64,
    },
}

impl Answer {
    pub fn held(self) -> u64 {
        match self {
            Answer::Served { held } | Answer::Failed { held } | Answer::Refused { held, .. } => held,
        }
    }

    /// The same, with the lease held for no longer than `most`.
    pub fn by(mut self, most: u64) -> Self {
        let (Answer::Served { held } | Answer::Failed { held } | Answer::Refused { held, .. }) = &mut self;
        *held = most.min(*held);
        self
    }
}

/// One resource at work.
pub struct Backend {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    time_to_first_token: u64,
    nanos_per_token: u64,
    failure_rate: u64,
    /// Half-open, in order of their start.
    outages: Vec<(u64, u64)>,
}

impl Backend {
    pub fn new(spec: &Spec) -> Self {
        Backend {
            requests: spec.requests_per_minute.map(Bucket::new),
            tokens: spec.tokens_per_minute.map(Bucket::new),
            time_to_first_token: spec.time_to_first_token,
            nanos_per_token: spec.nanos_per_token,
            failure_rate: spec.failure_rate,
            outages: spec.outages.iter().map(|outage| (outage.get_ref().from, outage.get_ref().to)).collect(),
        }
    }

    /// Sends `request` for the `attempt`-th time. Time must not run backwards between calls.
    pub fn ask(&mut self, now: u64, request: &Request, attempt: u32, seed: u64) -> Answer {
        if let Some(rest) = self.outage_left(now) {
            return refuse(rest.min(OUTAGE_RETRY_AFTER));
        }
        let cost = u64::from(request.context_tokens) + u64::from(request.generated_tokens);
        let delay =
            |bucket: &Option<Bucket>, cost| bucket.as_ref().map_or(0, |bucket| bucket.delay(now, cost));
        let wait = delay(&self.requests, 1).max(delay(&self.tokens, cost));
        if wait > 0 {
            return refuse(wait);
        }
        // Both or none: a refused request costs nothing.
        if let Some(bucket) = &mut self.requests {
            bucket.take(now, 1);
        }
        if let Some(bucket) = &mut self.tokens {
            bucket.take(now, cost);
        }
        self.serve(now, request, &mut draws(seed, request.number, attempt))
    }

    fn serve(&self, now: u64, request: &Request, random: &mut SplitMix64) -> Answer {
        let speed = 820 + u64::from(random.below(409)); // 0.80 to 1.20 of the plan, in 1024ths
        let plan = u128::from(request.generated_tokens) * u128::from(self.nanos_per_token)
            + u128::from(self.time_to_first_token);
        let whole = u64::try_from(plan * u128::from(speed) / 1_024).unwrap_or(u64::MAX);

        let fails = random.next_u64() >> 32 < self.failure_rate;
        // The point of failure is drawn in any case, so that a draw never depends on the one before.
        let point = random.next_u64() >> 32;
        let held = if fails { ((u128::from(whole) * u128::from(point)) >> 32) as u64 } else { whole };

        // An outage breaks off what is under way.
        let breaks = self.outages.iter().map(|&(from, _)| from).find(|&from| from > now);
        match breaks {
            Some(from) if from - now < held => Answer::Failed { held: from - now },
            _ if fails => Answer::Failed { held },
            _ => Answer::Served { held },
        }
    }

    /// How much of the outage around `now` is left. Outages may overlap: the longest rest counts.
    fn outage_left(&self, now: u64) -> Option<u64> {
        let around = self.outages.iter().filter(|&&(from, to)| from <= now && now < to);
        around.map(|&(_, to)| to - now).max()
    }
}

/// Rounded up to milliseconds, as such answers are.
fn refuse(delay: u64) -> Answer {
    Answer::Refused { held: REFUSAL, retry_after: delay.div_ceil(MILLISECOND).saturating_mul(MILLISECOND) }
}

fn draws(seed: u64, number: u64, attempt: u32) -> SplitMix64 {
    let request = SplitMix64::mix(seed ^ SplitMix64::mix(number));
    SplitMix64::new(SplitMix64::mix(request.wrapping_add(u64::from(attempt))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Fleet;

    const SECOND: u64 = 1_000_000_000;

    fn backend(more: &str) -> Backend {
        let text = format!(
            "[[resource]]\nkey = \"a\"\nmax_in_flight = 9\ntokens_per_second = 100\ntime_to_first_token = 1\n{more}"
        );
        Backend::new(&Fleet::parse("f", &text).unwrap().resources[0])
    }

    fn request(number: u64) -> Request {
        Request { number, at: 0, context_tokens: 50, generated_tokens: 100 }
    }

    #[test]
    fn service_time_follows_the_fleet_within_a_fifth() {
        let mut backend = backend("");
        let mut sum = 0;
        for number in 0..1_000 {
            let Answer::Served { held } = backend.ask(0, &request(number), 0, 1) else { panic!() };
            assert!((8 * SECOND / 5..=12 * SECOND / 5).contains(&held), "{held}");
            sum += held;
        }
        assert!((sum / 1_000).abs_diff(2 * SECOND) < SECOND / 20, "{sum}");
    }

    #[test]
    fn luck_belongs_to_request_and_attempt() {
        let (mut a, mut b) = (backend("failure_rate = 0.5"), backend("failure_rate = 0.5"));
        let one: Vec<Answer> = (0..50).map(|number| a.ask(0, &request(number), 0, 1)).collect();
        let mut two: Vec<Answer> = (0..50).rev().map(|number| b.ask(0, &request(number), 0, 1)).collect();
        two.reverse();
        assert_eq!(one, two);
        assert_ne!(a.ask(0, &request(0), 1, 1), one[0]);
        assert_ne!(a.ask(0, &request(0), 0, 2), one[0]);
        let failed = one.iter().filter(|answer| matches!(answer, Answer::Failed { .. })).count();
        assert!((15..=35).contains(&failed), "{failed}");
    }

    #[test]
    fn luck_is_the_same_on_every_machine() {
        let mut backend = backend("failure_rate = 0.25");
        let mixed = (0..1_000)
            .fold(0, |sum: u64, number| SplitMix64::mix(sum ^ backend.ask(0, &request(number), 0, 1).held()));
        assert_eq!(mixed, 13_917_883_021_878_213_344);
    }

    #[test]
    fn limits_refuse_and_say_when() {
        let mut backend = backend("requests_per_minute = 2\ntokens_per_minute = 1000");
        assert!(matches!(backend.ask(0, &request(0), 0, 1), Answer::Served { .. }));
        assert!(matches!(backend.ask(0, &request(1), 0, 1), Answer::Served { .. }));
        let refused = Answer::Refused { held: REFUSAL, retry_after: 30 * SECOND };
        assert_eq!(backend.ask(0, &request(2), 0, 1), refused);
        // The promise is kept, and nothing was charged for the refusal.
        assert!(matches!(backend.ask(30 * SECOND, &request(2), 0, 1), Answer::Served { .. }));
        let mut tokens = self::backend("tokens_per_minute = 300");
        assert!(matches!(tokens.ask(0, &request(0), 0, 1), Answer::Served { .. }));
        assert!(matches!(tokens.ask(0, &request(1), 0, 1), Answer::Served { .. }));
        assert!(matches!(tokens.ask(0, &request(2), 0, 1), Answer::Refused { .. }));
    }

    #[test]
    fn outages_refuse_and_break_off() {
        let mut backend = backend("outages = [{ from = 10, to = 22 }, { from = 21, to = 25 }]");
        let at = |backend: &mut Backend, seconds: u64| backend.ask(seconds * SECOND, &request(0), 0, 1);
        assert!(matches!(at(&mut backend, 0), Answer::Served { .. }));
        assert_eq!(at(&mut backend, 9), Answer::Failed { held: SECOND });
        assert_eq!(at(&mut backend, 10), Answer::Refused { held: REFUSAL, retry_after: 10 * SECOND });
        assert_eq!(at(&mut backend, 21), Answer::Refused { held: REFUSAL, retry_after: 4 * SECOND });
        assert!(matches!(at(&mut backend, 25), Answer::Served { .. }));
    }
}
