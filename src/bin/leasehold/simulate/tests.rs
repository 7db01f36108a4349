//! Small runs with a plain scheduler that scans everything.

use std::{
    ops::Deref,
    sync::{Arc, Mutex},
};

use leasehold::{
    Capacity, Clock, Priority, Resource, Scheduler,
    baseline::{MutexScheduler, RoundRobinScheduler},
};
use proptest::prelude::*;

use super::*;
use crate::choice::Choice;

/// As plain as a scheduler can be; with bad manners it breaks a rule, to see that this is noticed.
struct Plain {
    clock: Arc<ManualClock>,
    slots: Mutex<Vec<(Server, u32, u64)>>,
    manners: Manners,
}

#[derive(Clone, Copy, PartialEq)]
enum Manners {
    Best,
    Worst,
    /// Says "none" to everyone.
    Mean,
    /// Lends what is cooling.
    Hasty,
}

struct PlainLease<'a> {
    plain: &'a Plain,
    server: Server,
}

impl Plain {
    fn new(fleet: &Fleet, manners: Manners) -> (Self, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new());
        let slots = fleet.servers().into_iter().map(|server| (server, 0, 0)).collect();
        (Plain { clock: clock.clone(), slots: Mutex::new(slots), manners }, clock)
    }
}

impl Lend<Server> for Plain {
    type Lease<'a> = PlainLease<'a>;

    fn acquire(&self) -> Result<PlainLease<'_>, Unavailable> {
        self.acquire_excluding(&[])
    }

    fn acquire_excluding(&self, keys: &[u32]) -> Result<PlainLease<'_>, Unavailable> {
        let now = self.clock.now().as_nanos();
        let mut slots = self.slots.lock().unwrap();
        let mut open: Vec<_> = slots
            .iter_mut()
            .filter(|(server, in_flight, cool_until)| {
                server.capacity() != Capacity::Limited(*in_flight)
                    && (*cool_until <= now || self.manners == Manners::Hasty)
                    && !keys.contains(&server.index)
                    && self.manners != Manners::Mean
            })
            .collect();
        open.sort_by_key(|(server, in_flight, _)| server.priority(*in_flight).rank());
        if self.manners == Manners::Worst {
            open.reverse();
        }
        let Some((server, in_flight, _)) = open.into_iter().next() else {
            let coming = slots.iter().filter(|(server, in_flight, cool_until)| {
                server.capacity() != Capacity::Limited(*in_flight) && *cool_until > now
            });
            let earliest = coming.map(|&(_, _, cool_until)| Timestamp::from_nanos(cool_until)).min();
            return Err(Unavailable { earliest });
        };
        *in_flight += 1;
        Ok(PlainLease { plain: self, server: server.clone() })
    }

    // A simulation asks for the best and returns it. It has no use for the rest.

    fn insert(&self, _: Server) -> Result<(), Server> {
        unimplemented!()
    }

    fn insert_batch(&self, _: Vec<Server>) -> Result<(), Vec<Server>> {
        unimplemented!()
    }

    fn update(&self, _: Server) -> Result<(), Server> {
        unimplemented!()
    }

    fn remove(&self, _: &u32) -> bool {
        unimplemented!()
    }

    fn len(&self) -> usize {
        unimplemented!()
    }

    fn acquire_key(&self, _: &u32) -> Option<PlainLease<'_>> {
        unimplemented!()
    }

    fn peek_with<T>(&self, _: impl FnOnce(&Server) -> T) -> Option<T> {
        unimplemented!()
    }

    fn get_with<T>(&self, _: &u32, _: impl FnOnce(&Server) -> T) -> Option<T> {
        unimplemented!()
    }

    fn exclude(&self, _: &u32) -> bool {
        unimplemented!()
    }

    fn include(&self, _: &u32) -> bool {
        unimplemented!()
    }

    fn cool(&self, _: &u32, _: Duration) -> bool {
        unimplemented!()
    }
}

impl Deref for PlainLease<'_> {
    type Target = Server;
    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Lent<Server> for PlainLease<'_> {
    fn finish(self, outcome: Outcome) {
        let mut slots = self.plain.slots.lock().unwrap();
        let (_, in_flight, cool_until) = &mut slots[self.server.index as usize];
        *in_flight -= 1;
        if let Outcome::RateLimited { retry_after } = outcome {
            let deadline = self.plain.clock.now().saturating_add(retry_after).as_nanos();
            *cool_until = deadline.max(*cool_until);
        }
    }
}

const SECOND: u64 = 1_000_000_000;
const RULES: Rules =
    Rules { seed: 1, max_retries: 3, max_queue: 1_000_000, wait: None, rest: 0, refusals: 0, retry_after: 0 };

fn fleet(text: &str) -> Fleet {
    Fleet::parse("test", text).unwrap()
}

/// One resource: `slots` at 100 tokens a second.
fn one(key: &str, tier: u8, slots: u32, more: &str) -> String {
    format!(
        "[[resource]]\nkey = \"{key}\"\ntier = {tier}\nmax_in_flight = {slots}\ntokens_per_second = 100\n{more}\n"
    )
}

fn run(fleet: &Fleet, manners: Manners, rules: Rules, arrivals: &[u64]) -> Statistics {
    let (plain, clock) = Plain::new(fleet, manners);
    drive(&plain, &clock, fleet, rules, arrivals)
}

fn drive(
    lender: &impl Lend<Server>,
    clock: &ManualClock,
    fleet: &Fleet,
    rules: Rules,
    arrivals: &[u64],
) -> Statistics {
    let mut simulation = Simulation::new(lender, clock, fleet, rules);
    for (&at, number) in arrivals.iter().zip(0..) {
        simulation.arrive(Request { number, at, context_tokens: 0, generated_tokens: 100 });
    }
    simulation.finish()
}

fn conserved(statistics: &Statistics, arrivals: &[u64]) {
    let sum = statistics.completed + statistics.failed + statistics.rejected + statistics.expired;
    assert_eq!(sum, arrivals.len() as u64);
    let leases: u64 = statistics.usage.iter().map(|usage| usage.leases).sum();
    assert_eq!(leases, statistics.completed + statistics.failed + statistics.retried);
}

#[test]
fn nothing_happens_without_requests() {
    let statistics = run(&fleet(&one("a", 0, 1, "")), Manners::Best, RULES, &[]);
    assert_eq!((statistics.completed, statistics.end), (0, 0));
}

#[test]
fn one_slot_makes_a_line_in_order_of_arrival() {
    let arrivals = [0, 1, 2, 3];
    let statistics = run(&fleet(&one("a", 0, 1, "")), Manners::Best, RULES, &arrivals);
    conserved(&statistics, &arrivals);
    assert_eq!(statistics.completed, 4);
    // About a second each: the last one waits for three.
    assert!((5 * SECOND / 2..4 * SECOND).contains(&statistics.waiting.max()));
    assert_eq!(statistics.disagreements, 0);
    let usage = &statistics.usage[0];
    assert_eq!((usage.leases, usage.held), (4, u128::from(statistics.end)));
}

#[test]
fn a_full_line_rejects_the_newcomer() {
    let rules = Rules { max_queue: 2, ..RULES };
    let statistics = run(&fleet(&one("a", 0, 1, "")), Manners::Best, rules, &[0; 10]);
    assert_eq!((statistics.completed, statistics.rejected), (3, 7));
    let none = run(&fleet(&one("a", 0, 1, "")), Manners::Best, Rules { max_queue: 0, ..RULES }, &[0; 10]);
    assert_eq!((none.completed, none.rejected), (1, 9));
}

#[test]
fn failures_are_retried_elsewhere_and_end() {
    let text = one("bad", 0, 4, "failure_rate = 1") + &one("good", 1, 4, "");
    let arrivals: Vec<u64> = (0..20).map(|i| i * 10 * SECOND).collect();
    let statistics = run(&fleet(&text), Manners::Best, RULES, &arrivals);
    conserved(&statistics, &arrivals);
    assert_eq!((statistics.completed, statistics.retried, statistics.disagreements), (20, 20, 0));
    assert_eq!(statistics.rank_error.max(), 0, "what was not wanted does not count as better");

    let alone = run(&fleet(&one("bad", 0, 4, "failure_rate = 1")), Manners::Best, RULES, &arrivals);
    conserved(&alone, &arrivals);
    assert_eq!((alone.failed, alone.retried), (20, 60));
}

#[test]
fn a_429_cools_and_the_request_goes_elsewhere() {
    let text = one("limited", 0, 4, "requests_per_minute = 1") + &one("free", 1, 4, "");
    let arrivals = [0, SECOND, 2 * SECOND];
    let statistics = run(&fleet(&text), Manners::Best, RULES, &arrivals);
    conserved(&statistics, &arrivals);
    assert_eq!((statistics.completed, statistics.rate_limited, statistics.retried), (3, 1, 1));
    assert_eq!(statistics.disagreements, 0);
    assert!(statistics.end < 10 * SECOND, "a cooling that nobody waits for does not lengthen the run");
}

#[test]
fn the_line_waits_for_a_cooling_to_pass() {
    let text = one("limited", 0, 4, "requests_per_minute = 1");
    let arrivals = [0, SECOND];
    let statistics = run(&fleet(&text), Manners::Best, RULES, &arrivals);
    conserved(&statistics, &arrivals);
    assert_eq!((statistics.completed, statistics.rate_limited, statistics.disagreements), (2, 1, 0));
    assert!(statistics.end > 60 * SECOND);
}

#[test]
fn no_retries_means_one_attempt() {
    let rules = Rules { max_retries: 0, ..RULES };
    let statistics = run(&fleet(&one("bad", 0, 4, "failure_rate = 1")), Manners::Best, rules, &[0; 5]);
    assert_eq!((statistics.failed, statistics.retried), (5, 0));
}

/// A second of work each on one slot: who may wait for two and a half is served if at most two are before it.
#[test]
fn whoever_has_waited_too_long_is_gone() {
    let rules = Rules { wait: Some(5 * SECOND / 2), ..RULES };
    let arrivals = [0; 10];
    let statistics = run(&fleet(&one("a", 0, 1, "")), Manners::Best, rules, &arrivals);
    conserved(&statistics, &arrivals);
    assert_eq!((statistics.completed + statistics.expired, statistics.rejected), (10, 0));
    assert!((3..=4).contains(&statistics.completed), "{}", statistics.completed);
    assert!(statistics.waiting.max() <= 5 * SECOND / 2);
}

/// A second of work and nine of rest on one slot.
#[test]
fn rests_are_kept() {
    let rules = Rules { rest: 9 * SECOND, ..RULES };
    let arrivals = [0; 5];
    let statistics = run(&fleet(&one("a", 0, 1, "")), Manners::Best, rules, &arrivals);
    conserved(&statistics, &arrivals);
    assert_eq!((statistics.completed, statistics.rate_limited, statistics.disagreements), (5, 0, 0));
    assert!((38 * SECOND..43 * SECOND).contains(&statistics.waiting.max()), "{}", statistics.waiting.max());
}

#[test]
fn refusals_have_their_share() {
    let rules = Rules { refusals: (1 << 32) / 5, retry_after: SECOND / 10, max_retries: 0, ..RULES };
    let arrivals: Vec<u64> = (0..2_000).map(|i| i * 10 * SECOND).collect();
    let statistics = run(&fleet(&one("a", 0, 4, "")), Manners::Best, rules, &arrivals);
    conserved(&statistics, &arrivals);
    assert_eq!((statistics.failed, statistics.disagreements), (statistics.rate_limited, 0));
    assert!((320..480).contains(&statistics.rate_limited), "{}", statistics.rate_limited);
}

#[test]
fn worst_choices_show_in_the_rank_error() {
    let text = one("a", 0, 9, "") + &one("b", 1, 9, "") + &one("c", 2, 9, "");
    let statistics = run(&fleet(&text), Manners::Worst, RULES, &[0]);
    assert_eq!(statistics.rank_error.max(), 2);
    assert_eq!(statistics.disagreements, 0, "a bad choice is not a wrong one");
}

#[test]
fn wrong_answers_are_counted_and_end() {
    let mean = run(&fleet(&one("a", 0, 1, "")), Manners::Mean, RULES, &[0, 1]);
    assert_eq!((mean.rejected, mean.disagreements > 0), (2, true));
    let text = one("a", 0, 4, "requests_per_minute = 1");
    let hasty = run(&fleet(&text), Manners::Hasty, RULES, &[0, SECOND]);
    assert!(hasty.disagreements > 0);
    assert_eq!(hasty.failed, 1);
}

#[test]
fn same_input_same_run() {
    let fleet = Fleet::built_in();
    let arrivals: Vec<u64> = (0..3_000).map(|i| i * SECOND / 60).collect();
    let [a, b] = [0; 2].map(|_| run(&fleet, Manners::Best, RULES, &arrivals));
    conserved(&a, &arrivals);
    assert_eq!(a.disagreements, 0);
    assert!(a.rate_limited > 0 && a.retried > 0);
    let key =
        |s: &Statistics| (s.completed, s.failed, s.retried, s.end, s.waiting.max(), s.waiting.quantile(0.9));
    assert_eq!(key(&a), key(&b));
}

/// Any resource that a small fleet might have, with troubles of every kind.
fn any_resource() -> impl Strategy<Value = String> {
    let limit = |name: &'static str, most: u32| {
        proptest::option::of(1..most).prop_map(move |limit: Option<u32>| {
            limit.map_or(String::new(), |limit| format!("{name} = {limit}\n"))
        })
    };
    let outage = proptest::option::of((0u32..30, 1u32..20)).prop_map(|outage| {
        outage.map_or(String::new(), |(from, length)| {
            format!("outages = [{{ from = {from}, to = {} }}]\n", from + length)
        })
    });
    let numbers = (0u8..3, 1u32..4, 1u32..3, 0u32..=4);
    (numbers, limit("requests_per_minute", 40), limit("tokens_per_minute", 4_000), outage).prop_map(
        |((tier, slots, weight, quarters), requests, tokens, outage)| {
            format!(
                "tier = {tier}\nmax_in_flight = {slots}\nweight = {weight}\ntokens_per_second = 100\n\
                 failure_rate = {}\n{requests}{tokens}{outage}",
                f64::from(quarters) / 4.0
            )
        },
    )
}

proptest! {
    #[test]
    fn nobody_is_lost_and_no_answer_is_wrong(
        resources in proptest::collection::vec(any_resource(), 1..6),
        mut arrivals in proptest::collection::vec(0..40 * SECOND, 0..120),
        seed: u64,
        max_retries in 0u32..4,
        max_queue in 0usize..40,
    ) {
        arrivals.sort_unstable();
        let texts = resources.iter().enumerate().map(|(i, text)| format!("[[resource]]\nkey = \"{i}\"\n{text}"));
        let fleet = fleet(&texts.collect::<String>());
        let rules = Rules::plain(seed, max_retries, max_queue);
        let all = |lender: &dyn Fn() -> Statistics, exact: bool| {
            let statistics = lender();
            conserved(&statistics, &arrivals);
            assert_eq!(statistics.disagreements, 0);
            assert!(!exact || statistics.rank_error.max() == 0);
        };
        all(&|| run(&fleet, Manners::Best, rules, &arrivals), true);
        all(&|| run(&fleet, Manners::Worst, rules, &arrivals), false);
        all(&|| {
            let clock = Arc::new(ManualClock::new());
            let mutex = MutexScheduler::with_clock(clock.clone());
            mutex.insert_batch(fleet.servers()).unwrap();
            drive(&mutex, &clock, &fleet, rules, &arrivals)
        }, true);
        all(&|| {
            let clock = Arc::new(ManualClock::new());
            let naive = RoundRobinScheduler::with_clock(clock.clone());
            naive.insert_batch(fleet.servers()).unwrap();
            drive(&naive, &clock, &fleet, rules, &arrivals)
        }, false);
        for strategy in ["sticky", "sticky:1:3", "best-of:2", "round-robin", "weighted", "adaptive", "strict"] {
            let strategy: Choice = strategy.parse().unwrap();
            for shards in [1, 2, 8] {
                all(&|| {
                    let clock = Arc::new(ManualClock::new());
                    let chosen = strategy.strategy(shards).unwrap();
                    let builder = Scheduler::builder().shards(shards as usize).strategy(chosen);
                    let scheduler = builder.clock(clock.clone()).seed(seed).build().unwrap();
                    scheduler.insert_batch(fleet.servers()).unwrap();
                    drive(&scheduler, &clock, &fleet, rules, &arrivals)
                }, shards == 1 || strategy == Choice::Strict);
            }
        }
    }
}
