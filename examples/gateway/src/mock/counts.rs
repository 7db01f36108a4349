//! What the provider has done.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::Shared;

/// What it has done with the requests of one key, by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyCounts {
    /// Requests that have come.
    pub arrivals: u64,
    /// Answered to the end.
    pub complete: u64,
    /// Bytes of those answers' bodies.
    pub bytes: u64,
    /// Answered with 429.
    pub rate_limited: u64,
    /// Answered with 401, 500 or above.
    pub failed: u64,
    /// The connection was closed before the answer.
    pub dropped: u64,
    /// The connection was closed in the midst of the answer.
    pub cut: u64,
    /// Whoever had asked has gone before the end.
    pub left: u64,
}

impl KeyCounts {
    /// Requests that have ended.
    pub fn ended(&self) -> u64 {
        self.complete + self.rate_limited + self.failed + self.dropped + self.cut + self.left
    }

    /// What has been added since.
    pub fn since(&self, before: &KeyCounts) -> KeyCounts {
        KeyCounts {
            arrivals: self.arrivals - before.arrivals,
            complete: self.complete - before.complete,
            bytes: self.bytes - before.bytes,
            rate_limited: self.rate_limited - before.rate_limited,
            failed: self.failed - before.failed,
            dropped: self.dropped - before.dropped,
            cut: self.cut - before.cut,
            left: self.left - before.left,
        }
    }
}

/// All that it has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// By key.
    pub keys: BTreeMap<String, KeyCounts>,
    /// Requests with a secret that belongs to no key.
    pub unknown: u64,
    /// Requests with an id that had come before.
    pub repeats: u64,
}

impl Counts {
    pub(super) fn new<'a>(keys: impl Iterator<Item = &'a str>) -> Self {
        let keys = keys.map(|key| (key.to_owned(), KeyCounts::default())).collect();
        Counts { keys, ..Counts::default() }
    }

    /// What has been added since.
    pub fn since(&self, before: &Counts) -> Counts {
        let of = |key: &String| before.keys.get(key).copied().unwrap_or_default();
        Counts {
            keys: self.keys.iter().map(|(key, counts)| (key.clone(), counts.since(&of(key)))).collect(),
            unknown: self.unknown - before.unknown,
            repeats: self.repeats - before.repeats,
        }
    }

    /// One number of all keys together.
    pub fn sum(&self, of: impl Fn(&KeyCounts) -> u64) -> u64 {
        self.keys.values().map(of).sum()
    }
}

/// A request that has come and will be counted by how it ends. Dropped before its end, whoever had asked has gone.
pub struct Guest {
    shared: Arc<Shared>,
    index: usize,
    has_ended: bool,
}

impl Guest {
    pub fn new(shared: Arc<Shared>, index: usize) -> Self {
        let guest = Guest { shared, index, has_ended: false };
        guest.count(|counts| counts.arrivals += 1);
        guest
    }

    fn count(&self, f: impl FnOnce(&mut KeyCounts)) {
        let key = &self.shared.fleet[self.index].key;
        f(self.shared.state().counts.keys.get_mut(&**key).expect("there from the start"));
    }

    /// The first call counts.
    pub fn end(&mut self, f: impl FnOnce(&mut KeyCounts)) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.count(f);
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end(|counts| counts.left += 1);
    }
}
