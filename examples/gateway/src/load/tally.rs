//! What the clients have seen.

use std::collections::BTreeMap;

use serde::Serialize;

/// Counts of one client, or of all.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// Requests sent.
    pub requests: u64,
    /// Answers, by status.
    pub answers: BTreeMap<u16, u64>,
    /// Answers of the provider that were read to their end.
    pub complete: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Answers of the provider that broke off.
    pub broken: u64,
    /// Times that a client left before its answer.
    pub left_before: u64,
    /// Times that a client left in the midst of its answer.
    pub left_within: u64,
    /// Answers 503 without a sound `Retry-After`.
    pub unsound: u64,
    /// Connections that broke before an answer.
    pub lost: u64,
    /// Of those, new ones, which had answered nothing before: whoever closes an idle one cannot know that a request is on its way, but
    /// whoever is connected to can. Without those whose client was slower than the server waits for, [`GRACE`](crate::server::GRACE).
    pub lost_new: u64,
    /// Times that nobody was there.
    pub nobody: u64,
}

impl Tally {
    /// Adds what another one has seen.
    pub fn add(&mut self, other: &Tally) {
        self.requests += other.requests;
        for (&status, count) in &other.answers {
            *self.answers.entry(status).or_default() += count;
        }
        self.complete += other.complete;
        self.bytes += other.bytes;
        self.broken += other.broken;
        self.left_before += other.left_before;
        self.left_within += other.left_within;
        self.unsound += other.unsound;
        self.lost += other.lost;
        self.lost_new += other.lost_new;
        self.nobody += other.nobody;
    }
}
