//! What a fleet consists of: its resources, and the units that they are divided into.

// Names that never change: in models, too, they are those of `std`, so that a public type is the same everywhere.
#![allow(clippy::disallowed_types)]

use std::{collections::HashMap, error::Error, fmt, time::Duration};

use crate::sync::frozen::Arc;

/// A resource of the fleet, as every process describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Names it in the whole fleet.
    pub name: Arc<str>,
    /// Which resources are given out first; lower is better. At most [`MAX_RANK`](Self::MAX_RANK).
    pub rank: u64,
    /// Into how many units it is divided. A unit belongs to one process at a time.
    pub units: u32,
    /// How many leases may be out on one unit at once.
    pub leases_per_unit: u32,
    /// If a lease is one use of a budget: in what time there is that much of it. Zero otherwise.
    pub period: Duration,
}

impl Share {
    /// The most units of one resource.
    pub const MAX_UNITS: u32 = 1 << 16;
    /// The highest rank: servers sort by numbers that are exact up to here. Ranks of numbers with a sign or a fraction
    /// ([`Priority::rank`](crate::Priority::rank)) are mostly above: number the resources in their order instead.
    pub const MAX_RANK: u64 = (1 << 53) - 1;

    /// One unit, one lease.
    pub fn new(name: impl Into<Arc<str>>, rank: u64) -> Self {
        Share { name: name.into(), rank, units: 1, leases_per_unit: 1, period: Duration::ZERO }
    }

    /// Divides it.
    #[must_use]
    pub fn units(mut self, units: u32) -> Self {
        self.units = units;
        self
    }

    /// How many leases one unit allows.
    #[must_use]
    pub fn leases_per_unit(mut self, leases: u32) -> Self {
        self.leases_per_unit = leases;
        self
    }

    /// Makes it a budget: `units * leases_per_unit` uses in any time of this length, over the whole fleet. A unit is a slice of it, and a lease is
    /// one use.
    ///
    /// Whoever has used a lease hands it to [`Cluster::spend`](super::Cluster::spend), which keeps it out for the period; and a unit that
    /// comes from elsewhere is lent only when a period has passed since it was claimed, so that whatever was used of it elsewhere, by a
    /// process that was killed perhaps, is over. A scheduler that takes leases back
    /// ([`Overdue::Revoke`](crate::Overdue::Revoke)) must let them be out for longer than that ([`Builder::max_hold`](crate::Builder::max_hold)), or the
    /// cluster does not start.
    #[must_use]
    pub fn period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }
}

/// A unit, named as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit {
    /// The resource.
    pub name: Arc<str>,
    /// Which of its units, from 0.
    pub index: u32,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The number comes first, so that a name may contain anything.
        write!(f, "{}#{}", self.index, self.name)
    }
}

impl Unit {
    /// Reads what `Display` has written.
    pub fn parse(text: &str) -> Option<Self> {
        let (index, name) = text.split_once('#')?;
        Some(Unit { name: name.into(), index: index.parse().ok()? })
    }
}

/// A unit that somebody owns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// Which.
    pub unit: Unit,
    /// Its fencing token: greater than that of every claim in the fleet before it.
    pub token: u64,
}

/// Why a list of resources is no fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RollError {
    /// Two resources have this name.
    Duplicate(Arc<str>),
    /// A resource must have 1 to [`Share::MAX_UNITS`] units of at least one lease, and no more leases than a resource can have.
    Units {
        /// Whose.
        name: Arc<str>,
        /// How many units were given.
        units: u32,
        /// How many leases each.
        leases_per_unit: u32,
    },
    /// A rank is above [`Share::MAX_RANK`].
    Rank {
        /// Whose.
        name: Arc<str>,
        /// The rank that was given.
        rank: u64,
    },
    /// There are more units than a 32-bit number counts.
    TooMany,
}

impl fmt::Display for RollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RollError::Duplicate(name) => {
                write!(f, "two resources of the fleet are named {name:?}: name each once")
            }
            RollError::Units { name, units, leases_per_unit } => write!(
                f,
                "resource {name:?} has {units} units of {leases_per_unit} leases: allowed are 1 to {} units of at least 1 lease, \
                 at most {} leases in all",
                Share::MAX_UNITS,
                crate::Capacity::MAX
            ),
            RollError::Rank { name, rank } => write!(
                f,
                "resource {name:?} has rank {rank}: allowed are ranks from 0 to {}; number the resources in their order",
                Share::MAX_RANK
            ),
            RollError::TooMany => write!(f, "the fleet has more than {} units: make units larger", u32::MAX),
        }
    }
}

impl Error for RollError {}

/// The fleet's resources in the order of their ranks: a resource's place in it stands for the resource everywhere in a member.
#[derive(Clone, Debug, Default)]
pub struct Roll {
    shares: Vec<Share>,
    places: HashMap<Arc<str>, usize>,
    units: u32,
    leases: u64,
}

impl Roll {
    pub fn new(mut shares: Vec<Share>) -> Result<Self, RollError> {
        shares.sort_by(|a, b| (a.rank, &a.name).cmp(&(b.rank, &b.name)));
        let mut roll = Roll::default();
        for (place, share) in shares.iter().enumerate() {
            let leases = u64::from(share.units) * u64::from(share.leases_per_unit);
            if share.units > Share::MAX_UNITS || leases == 0 || leases > u64::from(crate::Capacity::MAX) {
                return Err(RollError::Units {
                    name: Arc::clone(&share.name),
                    units: share.units,
                    leases_per_unit: share.leases_per_unit,
                });
            }
            if share.rank > Share::MAX_RANK {
                return Err(RollError::Rank { name: Arc::clone(&share.name), rank: share.rank });
            }
            if roll.places.insert(Arc::clone(&share.name), place).is_some() {
                return Err(RollError::Duplicate(Arc::clone(&share.name)));
            }
            roll.units = roll.units.checked_add(share.units).ok_or(RollError::TooMany)?;
            roll.leases += leases;
        }
        roll.shares = shares;
        Ok(roll)
    }

    pub fn len(&self) -> usize {
        self.shares.len()
    }

    pub fn get(&self, place: usize) -> &Share {
        &self.shares[place]
    }

    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    pub fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The resource of a unit, if this fleet has such a unit.
    pub fn place_of(&self, unit: &Unit) -> Option<usize> {
        self.place(&unit.name).filter(|&place| unit.index < self.shares[place].units)
    }

    pub fn units(&self) -> u32 {
        self.units
    }

    /// How many units it takes, on average, to have so many leases.
    pub fn units_for(&self, leases: u64) -> u32 {
        if self.leases == 0 {
            return 0;
        }
        let units = u128::from(leases) * u128::from(self.units);
        u32::try_from(units.div_ceil(u128::from(self.leases))).unwrap_or(u32::MAX)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn texts_of_units_read_back() {
        for name in ["key", "a#b", "", "12#", "ключ"] {
            let unit = Unit { name: name.into(), index: 7 };
            assert_eq!(Unit::parse(&unit.to_string()), Some(unit));
        }
        assert_eq!(Unit::parse("x#key"), None);
        assert_eq!(Unit::parse("7"), None);
    }

    #[test]
    fn rolls_are_in_the_order_of_ranks() {
        let roll =
            Roll::new(vec![Share::new("b", 2).units(3), Share::new("a", 2), Share::new("c", 1)]).unwrap();
        let names: Vec<_> = roll.shares().iter().map(|share| &*share.name).collect();
        assert_eq!(names, ["c", "a", "b"]);
        assert_eq!((roll.units(), roll.place("b")), (5, Some(2)));
        assert_eq!(roll.place_of(&Unit { name: "b".into(), index: 3 }), None);
    }

    #[test]
    fn bad_rolls_are_refused() {
        let twice = Roll::new(vec![Share::new("a", 1), Share::new("a", 2)]);
        assert_eq!(twice.unwrap_err(), RollError::Duplicate("a".into()));
        assert!(Roll::new(vec![Share::new("a", 1).units(0)]).is_err());
        assert!(
            Roll::new(vec![Share::new("a", 1).units(Share::MAX_UNITS).leases_per_unit(1 << 10)]).is_err()
        );
    }

    #[test]
    fn ranks_that_servers_cannot_tell_apart_are_refused() {
        assert!(Roll::new(vec![Share::new("a", Share::MAX_RANK)]).is_ok());
        let error = Roll::new(vec![Share::new("a", Share::MAX_RANK + 1)]).unwrap_err();
        assert!(error.to_string().contains("9007199254740992"), "{error}");
    }

    #[test]
    fn leases_are_counted_in_units() {
        let roll = Roll::new(vec![Share::new("a", 1).units(4).leases_per_unit(10)]).unwrap();
        assert_eq!([0, 1, 10, 11].map(|leases| roll.units_for(leases)), [0, 1, 1, 2]);
        assert_eq!(Roll::default().units_for(5), 0);
    }
}
