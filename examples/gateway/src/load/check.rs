//! Who must have counted the same.
//!
//! Clients, gateway, scheduler and provider each count where something happens to them. Nothing is estimated and nothing is allowed
//! for: the numbers are equal, or something was lost or done twice.

use serde::Serialize;

use super::{Scrape, Tally};
use crate::mock::{Counts, KeyCounts};

/// Two numbers that should be one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What was counted.
    pub what: String,
    /// By the clients, or by the provider.
    pub outside: i64,
    /// By the gateway, or by the scheduler.
    pub inside: i64,
}

#[derive(Default)]
struct Comparison {
    compared: usize,
    differences: Vec<Difference>,
}

impl Comparison {
    fn same(&mut self, what: impl Into<String>, outside: u64, inside: i64) {
        let outside = outside.cast_signed();
        self.compared += 1;
        if outside != inside {
            self.differences.push(Difference { what: what.into(), outside, inside });
        }
    }
}

/// Compares everything. Answers how many pairs that were, and those that differ.
pub fn compare(clients: &Tally, gateway: &Scrape, provider: &Counts) -> (usize, Vec<Difference>) {
    let mut comparison = Comparison::default();
    answers(&mut comparison, clients, gateway);
    attempts(&mut comparison, gateway, provider);
    bodies(&mut comparison, clients, gateway, provider);
    leases(&mut comparison, gateway, provider);
    (comparison.compared, comparison.differences)
}

/// Every request has an answer, or a client that left.
fn answers(comparison: &mut Comparison, clients: &Tally, gateway: &Scrape) {
    for (status, &count) in &clients.answers {
        let code = status.to_string();
        let answered = gateway.sum("gateway_answers_total", &[("code", &code)]);
        comparison.same(format!("answers {code}"), count, answered);
    }
    let answers: u64 = clients.answers.values().sum();
    comparison.same("answers", answers, gateway.sum("gateway_answers_total", &[]));
    let gone = |when| gateway.sum("gateway_clients_gone_total", &[("when", when)]);
    comparison.same("clients gone before their answer", clients.left_before, gone("before_answer"));
    comparison.same("clients gone within their answer", clients.left_within, gone("in_body"));
    comparison.same("requests", clients.requests, answers.cast_signed() + gone("before_answer"));
    comparison.same("times in time_to_head", answers, gateway.sum("gateway_time_to_head_seconds_count", &[]));
    comparison.same("unsound Retry-After", clients.unsound, 0);
    comparison.same("connections lost", clients.lost + clients.nobody, 0);
}

/// Key by key, what the provider has seen is what the gateway has sent.
fn attempts(comparison: &mut Comparison, gateway: &Scrape, provider: &Counts) {
    for (key, seen) in &provider.keys {
        let ended = |results: &[&str]| {
            let one =
                |&result: &&str| gateway.sum("gateway_attempts_total", &[("key", key), ("result", result)]);
            results.iter().map(one).sum()
        };
        let mut same =
            |what: &str, outside, inside| comparison.same(format!("{key}: {what}"), outside, inside);
        same("complete", seen.complete, ended(&["ok"]));
        same("rate limited", seen.rate_limited, ended(&["rate_limited"]));
        same("failed", seen.failed, ended(&["status"]));
        same("dropped", seen.dropped, ended(&["lost"]));
        same("cut off", seen.cut, ended(&["cut_off"]));
        same("left", seen.left, ended(&["abandoned", "given_up", "timed_out", "stalled", "revoked"]));
        same("attempts", seen.arrivals, gateway.sum("gateway_attempts_total", &[("key", key)]));
    }
    comparison.same("secrets that are none", provider.unknown, 0);
    comparison.same("repeats", provider.repeats, gateway.sum("gateway_retries_total", &[]));
}

/// To the byte.
fn bodies(comparison: &mut Comparison, clients: &Tally, gateway: &Scrape, provider: &Counts) {
    let ended = |end| gateway.sum("gateway_bodies_total", &[("end", end)]);
    let bytes = gateway.sum("gateway_bodies_bytes_total", &[("end", "complete")]);
    comparison.same("complete bodies, clients", clients.complete, ended("complete"));
    comparison.same("complete bodies, provider", provider.sum(|seen| seen.complete), ended("complete"));
    comparison.same("bytes, clients", clients.bytes, bytes);
    comparison.same("bytes, provider", provider.sum(|seen| seen.bytes), bytes);
    comparison.same("broken bodies", clients.broken, ended("failed"));
    comparison.same("abandoned bodies", clients.left_within, ended("abandoned"));
}

/// Every lease has come back, with the outcome that the provider knows of; but one that was taken back before its attempt had ended has
/// come back with none, and the gateway knows of it. (Of an answer that is broken off for that the provider may know less: it has sent all.)
fn leases(comparison: &mut Comparison, gateway: &Scrape, provider: &Counts) {
    let transitions = |kind| gateway.sum("leasehold_transitions_total", &[("kind", kind)]);
    let late = |results: &[&str]| -> i64 {
        let one = |result: &&str| gateway.sum("gateway_attempts_late_total", &[("result", result)]);
        results.iter().map(one).sum()
    };
    let late_in_all = gateway.sum("gateway_attempts_late_total", &[]);
    // Of an attempt with such a result the scheduler has heard this, or it was too late.
    let heard = |outcome, results: &[&str]| {
        gateway.sum("leasehold_outcomes_total", &[("outcome", outcome)]) + late(results)
    };
    let ended = |result| gateway.sum("gateway_attempts_total", &[("result", result)]);
    let sum = |of: fn(&KeyCounts) -> u64| provider.sum(of);
    comparison.same("leases returned", transitions("acquired").cast_unsigned(), transitions("released"));
    // A key that is handed to somebody whose patience ends at that moment goes on to the next one, or back: it was lent on his behalf,
    // and never used. The scheduler counts those. Nobody else takes a key without using it.
    let unused = gateway.sum("leasehold_units_unused_total", &[]);
    comparison.same("leases", sum(|seen| seen.arrivals), transitions("acquired") - unused);
    let outcomes_of_all = gateway.sum("leasehold_outcomes_total", &[]);
    comparison.same("outcomes", sum(|seen| seen.arrivals), outcomes_of_all + late_in_all);
    let (ok, limited) = (heard("ok", &["ok"]), heard("rate_limited", &["rate_limited"]));
    comparison.same("outcomes ok", sum(|seen| seen.complete), ok);
    comparison.same("outcomes rate limited", sum(|seen| seen.rate_limited), limited);
    let failed = sum(|seen| seen.failed + seen.dropped + seen.cut + seen.left);
    let others = outcomes_of_all + late_in_all - ok - limited;
    comparison.same("outcomes failed and cancelled", failed, others);
    let given_up = ["abandoned", "given_up"];
    let cancelled: i64 = given_up.map(ended).iter().sum();
    comparison.same("outcomes cancelled", cancelled.cast_unsigned(), heard("cancelled", &given_up));
    comparison.same("leases out", 0, gateway.sum("leasehold_leases", &[]));
    let revoked = gateway.sum("leasehold_leases_revoked_total", &[]);
    comparison.same("leases taken back", revoked.cast_unsigned(), late_in_all);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_count_too_many_is_told() {
        let (compared, differences) = compare(&Tally::default(), &Scrape::default(), &Counts::default());
        assert!(compared > 20 && differences.is_empty());
        let clients = Tally { requests: 1, left_before: 1, ..Tally::default() };
        let (_, differences) = compare(&clients, &Scrape::default(), &Counts::default());
        let whats: Vec<&str> = differences.iter().map(|difference| difference.what.as_str()).collect();
        assert_eq!(whats, ["clients gone before their answer", "requests"]);
    }
}
