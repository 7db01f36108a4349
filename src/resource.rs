//! What is lent: the [`Resource`] trait, [`Capacity`], and [`Entry`] for foreign types.

use std::{fmt, hash::Hash};

use crate::{
    health::{Cooldown, Seen},
    rank::Priority,
};

/// How many leases may be out on one resource at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Capacity {
    /// One.
    #[default]
    Exclusive,
    /// At most this many: 1 to [`Capacity::MAX`]. Other numbers are refused when the resource is inserted.
    Limited(u32),
    /// As many as the state word can count: [`Capacity::MAX`].
    Unlimited,
}

impl Capacity {
    /// The most leases that one resource can have out: 16,777,215. [`Capacity::Unlimited`] ends here too.
    pub const MAX: u32 = (1 << 24) - 1;

    /// The number of leases allowed, or `None` if it is out of range.
    pub(crate) const fn limit(self) -> Option<u32> {
        match self {
            Capacity::Exclusive => Some(1),
            Capacity::Limited(n) if n >= 1 && n <= Self::MAX => Some(n),
            Capacity::Limited(_) => None,
            Capacity::Unlimited => Some(Self::MAX),
        }
    }
}

/// Something that a scheduler lends: an API key, a replica, a proxy, a GPU, a worker.
///
/// # Callbacks
/// All methods run outside every lock, may be called several times, and may panic: the operation that called
/// is then undone or completed, nothing is lost. They must not depend on anything but `self` (and the argument):
/// a resource that changes is replaced through `update`.
///
/// ```
/// use leasehold::{Capacity, Resource};
///
/// struct ApiKey { name: &'static str, tokens_left: u64 }
///
/// impl Resource for ApiKey {
///     type Key = &'static str;
///     type Priority = std::cmp::Reverse<u64>;
///     fn key(&self) -> Self::Key { self.name }
///     fn priority(&self, _in_flight: u32) -> Self::Priority { std::cmp::Reverse(self.tokens_left) }
///     fn capacity(&self) -> Capacity { Capacity::Limited(8) }
/// }
/// ```
pub trait Resource: Send + Sync + 'static {
    /// Identity, unique in the scheduler, immutable. `Debug` so that errors can say which resource they are about.
    type Key: Hash + Eq + Clone + fmt::Debug + Send + Sync + 'static;
    /// What the resource is ranked by.
    type Priority: Priority;

    /// The identity. Must always answer the same.
    fn key(&self) -> Self::Key;

    /// The priority while `in_flight` leases are out; **lower is better**.
    ///
    /// For the least-loaded choice answer `in_flight` itself.
    fn priority(&self, in_flight: u32) -> Self::Priority;

    /// The priority while `in_flight` leases are out, after what was seen of the resource: asked instead of
    /// [`priority`](Resource::priority) if [`Builder::rank_by_outcomes`](crate::Builder::rank_by_outcomes) says so, once more after
    /// each outcome. A resource with one unit is asked as well when it is lent, with an `in_flight` of 1. Default: `priority`.
    ///
    /// ```
    /// use leasehold::{Resource, Seen};
    ///
    /// struct Replica(u8);
    /// impl Resource for Replica {
    ///     type Key = u8;
    ///     type Priority = (u16, u32);
    ///     fn key(&self) -> u8 { self.0 }
    ///     fn priority(&self, _: u32) -> (u16, u32) { (0, 0) }
    ///     // Whoever fails comes last; of the others the fastest first, and whoever is not known yet before them.
    ///     fn priority_seen(&self, _: u32, seen: Seen) -> (u16, u32) {
    ///         (seen.failures.min(3) as u16, seen.latency.map_or(0, |latency| latency.as_micros() as u32))
    ///     }
    /// }
    /// ```
    fn priority_seen(&self, in_flight: u32, seen: Seen) -> Self::Priority {
        let _ = seen;
        self.priority(in_flight)
    }

    /// How outcomes let this resource cool, if not as the fleet's [`Builder::cooldown`](crate::Builder::cooldown) says. Asked while a
    /// lease is returned with an outcome that is no success; a panic counts as `None`. Default: `None`.
    ///
    /// A fleet that does not remember outcomes (that was built without [`cooldown`](crate::Builder::cooldown),
    /// [`ejection`](crate::Builder::ejection), [`rank_by_outcomes`](crate::Builder::rank_by_outcomes) and
    /// [`remember_outcomes`](crate::Builder::remember_outcomes)) has nowhere to count how many in a row were none: there each is the first.
    fn cooldown(&self) -> Option<Cooldown> {
        None
    }

    /// How many leases may be out at once.
    fn capacity(&self) -> Capacity {
        Capacity::Exclusive
    }

    /// The shard that this resource must live in, out of `shards`; `None` lets the scheduler balance.
    ///
    /// Asked once, when the resource is inserted. A number out of range is refused there.
    fn home(&self, shards: usize) -> Option<usize> {
        let _ = shards;
        None
    }
}

/// A resource made of a key, a fixed priority and a value of any type.
///
/// ```
/// use leasehold::{Capacity, Entry, Resource};
///
/// let replica = Entry::new("db-2", 10u32, "10.0.0.2:5432").with_capacity(Capacity::Limited(20));
/// assert_eq!(replica.key(), "db-2");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<K, P, T> {
    /// Identity.
    pub key: K,
    /// The priority at any number of leases.
    pub priority: P,
    /// The value lent.
    pub value: T,
    /// How many leases may be out at once.
    pub capacity: Capacity,
}

impl<K, P, T> Entry<K, P, T> {
    /// An exclusive resource.
    pub const fn new(key: K, priority: P, value: T) -> Self {
        Entry { key, priority, value, capacity: Capacity::Exclusive }
    }

    /// The same resource with another capacity.
    #[must_use]
    pub fn with_capacity(self, capacity: Capacity) -> Self {
        Entry { capacity, ..self }
    }
}

impl<K, P, T> Resource for Entry<K, P, T>
where
    K: Hash + Eq + Clone + fmt::Debug + Send + Sync + 'static,
    P: Priority + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    type Key = K;
    type Priority = P;

    fn key(&self) -> K {
        self.key.clone()
    }

    fn priority(&self, _in_flight: u32) -> P {
        self.priority
    }

    fn capacity(&self) -> Capacity {
        self.capacity
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Capacity::Exclusive => f.write_str("exclusive"),
            Capacity::Limited(n) => write!(f, "limited to {n}"),
            Capacity::Unlimited => f.write_str("unlimited"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_counted_in_the_state_word() {
        let limit = |n| Capacity::Limited(n).limit();
        assert_eq!((limit(0), limit(1), limit(Capacity::MAX)), (None, Some(1), Some(Capacity::MAX)));
        assert_eq!(limit(Capacity::MAX + 1), None);
        assert_eq!(Capacity::Exclusive.limit(), Some(1));
        assert_eq!(Capacity::Unlimited.limit(), Some(Capacity::MAX));
    }

    #[test]
    fn texts() {
        let text = |capacity: Capacity| capacity.to_string();
        assert_eq!(text(Capacity::Exclusive), "exclusive");
        assert_eq!(text(Capacity::Limited(3)), "limited to 3");
        assert_eq!(text(Capacity::Unlimited), "unlimited");
    }
}
