//! What a drain has achieved.

use std::fmt;

use crate::scheduler::deadlines::LeaseInfo;

/// What has become of a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct DrainReport<K> {
    /// The resources that still have leases out.
    pub outstanding: Vec<Outstanding<K>>,
    /// Resources whose draining was ended by somebody before their leases were seen to be back: they may be lent again.
    pub undrained: Vec<K>,
}

/// A resource that drains, or was removed, and still has leases out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outstanding<K> {
    /// Identity.
    pub key: K,
    /// The home shard.
    pub shard: usize,
    /// Leases that are out.
    pub in_flight: u32,
    /// Who holds them, the oldest first, if leases are recorded: see [`Builder::max_hold`](crate::Builder::max_hold). Read a moment
    /// after the number. Not among them, though it is in the number: a unit that was handed to a future which has not been polled since.
    pub holders: Vec<LeaseInfo<K>>,
}

impl<K> DrainReport<K> {
    /// Everything has come back, and nothing was undrained.
    pub fn is_drained(&self) -> bool {
        self.outstanding.is_empty() && self.undrained.is_empty()
    }

    /// How many leases are still out.
    pub fn leases(&self) -> u64 {
        self.outstanding.iter().map(|outstanding| u64::from(outstanding.in_flight)).sum()
    }
}

impl<K: fmt::Debug> fmt::Display for DrainReport<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_drained() {
            return f.write_str("drained");
        }
        let (leases, resources) = (self.leases(), self.outstanding.len());
        let plural = |count: u64, one, many| if count == 1 { one } else { many };
        write!(
            f,
            "{leases} {} out on {resources} {}",
            plural(leases, "lease is", "leases are"),
            plural(resources as u64, "resource", "resources")
        )?;
        if !self.undrained.is_empty() {
            write!(f, ", and these were undrained: {:?}", self.undrained)?;
        }
        for outstanding in &self.outstanding {
            write!(f, "\n{outstanding}")?;
        }
        Ok(())
    }
}

impl<K: fmt::Debug> fmt::Display for Outstanding<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resource {:?}: {} out", self.key, self.in_flight)?;
        for holder in &self.holders {
            write!(f, "\n  {holder}")?;
        }
        Ok(())
    }
}
