//! An LLM gateway's pool of provider keys.
//!
//! * A request takes the best key: the one with most quota left.
//! * A key that answers 429 cools for as long as the provider says, in the same step as its return.
//! * The request is tried again on *another* key, a few times.
//! * If no key is eligible, the gateway answers 429 itself, with the Retry-After that the scheduler has worked out.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use leasehold::{AcquireError, Capacity, ManualClock, Outcome, Resource, Scheduler};

struct ApiKey {
    name: &'static str,
    quota_left: u64,
}

impl Resource for ApiKey {
    type Key = &'static str;
    type Priority = Reverse<u64>;

    fn key(&self) -> &'static str {
        self.name
    }

    // Most quota is best.
    fn priority(&self, _in_flight: u32) -> Reverse<u64> {
        Reverse(self.quota_left)
    }

    // What the provider allows at once for one key.
    fn capacity(&self) -> Capacity {
        Capacity::Limited(4)
    }
}

/// What the provider says to one call.
enum Upstream {
    Answer { tokens: u64 },
    TooManyRequests { retry_after: Duration },
    ServerError,
}

/// What the gateway says to its client.
#[derive(Debug, PartialEq)]
enum Reply {
    Ok { key: &'static str, attempts: usize },
    TooManyRequests { retry_after_seconds: u64 },
    BadGateway,
}

const ATTEMPTS: usize = 3;

fn handle(keys: &Scheduler<ApiKey>, mut call: impl FnMut(&ApiKey) -> Upstream) -> Reply {
    let mut tried = Vec::new();
    // The shortest wait that a key tried by this request has asked for: whoever comes back may have that key again.
    let mut wait = None;
    while tried.len() < ATTEMPTS {
        let lease = match keys.acquire_excluding(&tried) {
            Ok(lease) => lease,
            Err(AcquireError::NoneEligible(none)) => {
                // What the scheduler says is about the keys that were not tried.
                return match [wait, none.retry_after].into_iter().flatten().min() {
                    // Whole seconds, rounded up: a client that comes back on time must find a key.
                    Some(wait) => {
                        Reply::TooManyRequests { retry_after_seconds: wait.as_secs_f64().ceil() as u64 }
                    }
                    // Only those that have just failed are left, or all are busy.
                    None => Reply::BadGateway,
                };
            }
            Err(_) => return Reply::BadGateway,
        };
        let name = *lease.key();
        tried.push(name);
        match call(&lease) {
            Upstream::Answer { tokens } => {
                lease.finish(Outcome::Ok { latency: Duration::from_millis(300) });
                // Read, change, write: no spending by another request is lost.
                let spent = keys.update_with(name, |old| ApiKey {
                    name: old.name,
                    quota_left: old.quota_left.saturating_sub(tokens),
                });
                spent.expect("the key is in the fleet and keeps its name");
                return Reply::Ok { key: name, attempts: tried.len() };
            }
            Upstream::TooManyRequests { retry_after } => {
                lease.finish(Outcome::RateLimited { retry_after });
                wait = Some(wait.map_or(retry_after, |wait: Duration| wait.min(retry_after)));
            }
            Upstream::ServerError => lease.finish(Outcome::Failed),
        }
    }
    Reply::BadGateway
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = Arc::new(ManualClock::new());
    let keys = Scheduler::<ApiKey>::builder().shards(1).clock(Arc::clone(&clock)).build()?;
    keys.insert(ApiKey { name: "gold", quota_left: 1_000 })?;
    keys.insert(ApiKey { name: "silver", quota_left: 500 })?;

    let answer = |_: &ApiKey| Upstream::Answer { tokens: 600 };
    let limited =
        |seconds| move |_: &ApiKey| Upstream::TooManyRequests { retry_after: Duration::from_secs(seconds) };

    // The first request spends most of gold's quota, so silver is the best for the second.
    assert_eq!(handle(&keys, answer), Reply::Ok { key: "gold", attempts: 1 });
    assert_eq!(keys.get("gold").expect("inserted").quota_left, 400);
    let only_gold_works = |key: &ApiKey| match key.name {
        "gold" => Upstream::Answer { tokens: 1 },
        _ => Upstream::TooManyRequests { retry_after: Duration::from_secs(20) },
    };
    assert_eq!(handle(&keys, only_gold_works), Reply::Ok { key: "gold", attempts: 2 });

    // Silver cools for 20 seconds. Now gold is told to wait for 7: nothing is left, and 7 seconds is the answer.
    assert_eq!(handle(&keys, limited(7)), Reply::TooManyRequests { retry_after_seconds: 7 });
    clock.advance(Duration::from_millis(2_500));
    assert_eq!(handle(&keys, answer), Reply::TooManyRequests { retry_after_seconds: 5 });

    // The client obeys, and is served.
    clock.advance(Duration::from_secs(5));
    assert_eq!(handle(&keys, |_| Upstream::Answer { tokens: 1 }), Reply::Ok { key: "gold", attempts: 1 });

    // A failure on the server's side does not cool a key; the retry goes elsewhere.
    clock.advance(Duration::from_secs(20));
    let mut calls = Vec::new();
    let reply = handle(&keys, |key| {
        calls.push(key.name);
        Upstream::ServerError
    });
    assert_eq!((reply, calls.as_slice()), (Reply::BadGateway, ["silver", "gold"].as_slice()));

    let stats = keys.stats();
    assert_eq!((stats.succeeded, stats.rate_limited, stats.failed, stats.in_flight), (3, 2, 2, 0));
    println!("{} answered, {} told to wait, {} failed", stats.succeeded, stats.rate_limited, stats.failed);
    Ok(())
}
