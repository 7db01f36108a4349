//! What a scheduler does, one operation at a time: the definition that histories are held against.
//!
//! Acquisition is not told *which* eligible resource to lend, unless there is one shard: then it must be the best (but by affinity, or with a
//! filter, which is asked one after another). It may
//! say "none" only if none is eligible, and then with exact counts per reason. `len` alone is judged with some slack, as
//! its documentation says: single insertions and removals that overlap it may count or not.

use super::checker::Specification;
use leasehold::Standing;

/// Keys are below this.
pub const KEYS: usize = 6;

/// Who took a lease, and which of his leases it is.
pub type LeaseId = (u8, u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Insert(u8),
    /// From this key on, this many.
    InsertBatch(u8, u8),
    Remove(u8),
    Update(u8),
    /// Adds one to the version.
    UpdateWith(u8),
    Acquire,
    AcquireKey(u8),
    /// By affinity: not of necessity the best.
    AcquireNear(u8),
    /// With a filter that takes even keys.
    AcquireEven,
    Release(LeaseId),
    /// Returns it and lets it cool for ever.
    ReleaseAfter(LeaseId),
    /// Returns it as failed: in a fleet that has rules one failure ejects.
    Fail(LeaseId),
    Exclude(u8),
    Include(u8),
    /// For ever: the clock stands still.
    Cool(u8),
    Warm(u8),
    Eject(u8),
    Readmit(u8),
    Drain(u8),
    Undrain(u8),
    Get(u8),
    /// With this many single insertions, removals and evictions that overlap it.
    Len {
        slack: u8,
    },
    Evict,
    /// All that can be read of every member, at rest.
    Snapshot,
    Close,
}

/// What a snapshot tells of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub in_flight: u8,
    pub standing: Standing,
    pub excluded: bool,
    pub cooling: bool,
    pub ejected: bool,
    pub draining: bool,
    /// The ejection is the rules', as they remember it: one by hand is not.
    pub by_rules: bool,
}

/// Counts of a "none": at capacity, cooling, ejected, draining, excluded.
pub type Counts = [u8; 5];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// Whether it changed anything.
    Changed(bool),
    Duplicate,
    NotFound,
    Closed,
    Removed {
        in_flight: u8,
    },
    Lent {
        key: u8,
        version: u8,
        lease: LeaseId,
    },
    None(Counts),
    /// Of a filter: why the others cannot be had is not said of one instant.
    NoneEven,
    NotEligible(Standing),
    Version(u8),
    Len(u8),
    Evicted(u8),
    Fleet([Option<Seen>; KEYS]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Member {
    incarnation: u8,
    in_flight: u8,
    version: u8,
    excluded: bool,
    cooling: bool,
    ejected: bool,
    draining: bool,
    /// The ejection is the rules', and takes a place under their share.
    by_rules: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Leases allowed at once, for all resources.
    units: u8,
    /// One shard: the best is lent.
    exact: bool,
    /// One failure ejects, and there are places for all.
    rules: bool,
    closed: bool,
    members: [Option<Member>; KEYS],
    incarnations: u8,
    /// The lease, its key, and the incarnation it was taken of; in order of the ids.
    leases: Vec<(LeaseId, u8, u8)>,
}

impl State {
    pub fn new(units: u8, exact: bool) -> Self {
        let (members, leases) = ([None; KEYS], Vec::new());
        State { units, exact, rules: false, closed: false, members, incarnations: 0, leases }
    }

    /// The same, if failures eject.
    pub fn with_rules(self, rules: bool) -> Self {
        State { rules, ..self }
    }

    fn standing(&self, member: &Member) -> Standing {
        if member.excluded {
            Standing::Excluded
        } else if member.draining {
            Standing::Draining
        } else if member.ejected {
            Standing::Ejected
        } else if member.in_flight >= self.units {
            Standing::AtCapacity
        } else if member.cooling {
            Standing::Cooling
        } else {
            Standing::Eligible
        }
    }

    fn eligible(&self, key: u8) -> bool {
        self.members[key as usize].is_some_and(|member| self.standing(&member) == Standing::Eligible)
    }

    fn eligible_keys(&self) -> impl DoubleEndedIterator<Item = u8> {
        (0..KEYS as u8).filter(|&key| self.eligible(key))
    }

    fn counts(&self) -> Counts {
        let count = |standing| {
            self.members.iter().flatten().filter(|member| self.standing(member) == standing).count() as u8
        };
        [
            count(Standing::AtCapacity),
            count(Standing::Cooling),
            count(Standing::Ejected),
            count(Standing::Draining),
            count(Standing::Excluded),
        ]
    }

    pub fn len(&self) -> usize {
        self.members.iter().flatten().count()
    }

    /// Leases out on members, and on those that are gone.
    pub fn in_flight(&self) -> usize {
        self.leases.len()
    }

    fn insert(&mut self, key: u8) {
        self.incarnations += 1;
        self.members[key as usize] = Some(Member { incarnation: self.incarnations, ..Member::default() });
    }

    fn lend(&mut self, key: u8, lease: LeaseId) {
        let member = self.members[key as usize].as_mut().expect("eligible");
        member.in_flight += 1;
        let at = self.leases.partition_point(|&(id, ..)| id < lease);
        self.leases.insert(at, (lease, key, member.incarnation));
    }

    /// The member that the lease is of, if it is still one.
    fn give_back(&mut self, lease: LeaseId) -> Option<Option<&mut Member>> {
        let at = self.leases.iter().position(|&(id, ..)| id == lease)?;
        let (_, key, incarnation) = self.leases.remove(at);
        let member = self.members[key as usize].as_mut().filter(|member| member.incarnation == incarnation);
        if let Some(member) = member {
            member.in_flight -= 1;
            return Some(Some(member));
        }
        Some(None)
    }

    /// An ejection by hand, or its end: after either, what the rules had done is theirs no more.
    fn eject(&mut self, key: u8, to: bool) -> Answer {
        if let Some(member) = &mut self.members[key as usize] {
            member.by_rules = false;
        }
        self.hold(key, to, |member| &mut member.ejected)
    }

    /// How many the rules have ejected.
    pub fn ejected_by_rules(&self) -> usize {
        self.members.iter().flatten().filter(|member| member.by_rules).count()
    }

    /// A hold on a member: what it was, and what it becomes.
    fn hold(&mut self, key: u8, to: bool, which: impl Fn(&mut Member) -> &mut bool) -> Answer {
        match &mut self.members[key as usize] {
            None => Answer::NotFound,
            Some(member) => Answer::Changed(std::mem::replace(which(member), to) != to),
        }
    }
}

impl Specification for State {
    type Op = Op;
    type Answer = Answer;

    fn step(&self, op: &Op, answer: &Answer) -> Option<Self> {
        let mut after = self.clone();
        // After a close an operation that began before it may still do its work; `close` models say when it may not.
        if self.closed && *answer == Answer::Closed {
            return Some(after);
        }
        let right = match *op {
            Op::Insert(key) if self.members[key as usize].is_some() => Answer::Duplicate,
            Op::Insert(key) => {
                after.insert(key);
                Answer::Done
            }
            Op::InsertBatch(from, count) => {
                if (from..from + count).any(|key| self.members[key as usize].is_some()) {
                    Answer::Duplicate
                } else {
                    (from..from + count).for_each(|key| after.insert(key));
                    Answer::Done
                }
            }
            Op::Remove(key) => match after.members[key as usize].take() {
                None => Answer::NotFound,
                Some(member) => Answer::Removed { in_flight: member.in_flight },
            },
            Op::Update(key) => match &mut after.members[key as usize] {
                None => Answer::NotFound,
                Some(member) => {
                    member.version = 0;
                    Answer::Done
                }
            },
            Op::UpdateWith(key) => match &mut after.members[key as usize] {
                None => Answer::NotFound,
                Some(member) => {
                    member.version += 1;
                    Answer::Done
                }
            },
            Op::Acquire => match *answer {
                Answer::Lent { key, version, lease } => {
                    let best = self.eligible_keys().next();
                    let member = self.members[key as usize]?;
                    if !self.eligible(key) || (self.exact && best != Some(key)) || member.version != version {
                        return None;
                    }
                    after.lend(key, lease);
                    *answer
                }
                _ if self.eligible_keys().next().is_some() => return None,
                _ => Answer::None(self.counts()),
            },
            Op::AcquireNear(_) => match *answer {
                Answer::Lent { key, version, lease } => {
                    if !self.eligible(key) || self.members[key as usize]?.version != version {
                        return None;
                    }
                    after.lend(key, lease);
                    *answer
                }
                _ if self.eligible_keys().next().is_some() => return None,
                _ => Answer::None(self.counts()),
            },
            Op::AcquireEven => match *answer {
                Answer::Lent { key, version, lease } => {
                    let right = key % 2 == 0 && self.eligible(key);
                    if !right || self.members[key as usize]?.version != version {
                        return None;
                    }
                    after.lend(key, lease);
                    *answer
                }
                _ if self.eligible_keys().any(|key| key % 2 == 0) => return None,
                _ => Answer::NoneEven,
            },
            Op::AcquireKey(key) => match self.members[key as usize] {
                None => Answer::NotFound,
                Some(member) => match self.standing(&member) {
                    Standing::Eligible => {
                        let Answer::Lent { lease, .. } = *answer else { return None };
                        after.lend(key, lease);
                        Answer::Lent { key, version: member.version, lease }
                    }
                    standing => Answer::NotEligible(standing),
                },
            },
            Op::Release(lease) => {
                after.give_back(lease)?;
                Answer::Done
            }
            Op::ReleaseAfter(lease) => {
                if let Some(member) = after.give_back(lease)? {
                    member.cooling = true;
                }
                Answer::Done
            }
            Op::Fail(lease) => {
                let rules = self.rules;
                if let Some(member) = after.give_back(lease)?
                    && rules
                    && !member.ejected
                {
                    (member.ejected, member.by_rules) = (true, true);
                }
                Answer::Done
            }
            Op::Exclude(key) => after.hold(key, true, |member| &mut member.excluded),
            Op::Include(key) => after.hold(key, false, |member| &mut member.excluded),
            Op::Cool(key) => after.hold(key, true, |member| &mut member.cooling),
            Op::Warm(key) => after.hold(key, false, |member| &mut member.cooling),
            Op::Eject(key) => after.eject(key, true),
            Op::Readmit(key) => after.eject(key, false),
            Op::Drain(key) => after.hold(key, true, |member| &mut member.draining),
            Op::Undrain(key) => after.hold(key, false, |member| &mut member.draining),
            Op::Get(key) => match self.members[key as usize] {
                None => Answer::NotFound,
                Some(member) => Answer::Version(member.version),
            },
            Op::Len { slack } => {
                let Answer::Len(len) = *answer else { return None };
                if self.len().abs_diff(len as usize) > slack as usize {
                    return None;
                }
                *answer
            }
            Op::Evict => match *answer {
                Answer::Evicted(key) => {
                    let worst = self.eligible_keys().next_back();
                    if !self.eligible(key) || (self.exact && worst != Some(key)) {
                        return None;
                    }
                    after.members[key as usize] = None;
                    *answer
                }
                _ if self.exact && !self.closed && self.eligible_keys().next().is_some() => return None,
                // One shard is looked at after the other: "nothing to evict" is not said of one instant.
                _ => Answer::NotFound,
            },
            Op::Snapshot => Answer::Fleet(self.members.map(|member| {
                member.map(|member| Seen {
                    in_flight: member.in_flight,
                    standing: self.standing(&member),
                    excluded: member.excluded,
                    cooling: member.cooling,
                    ejected: member.ejected,
                    draining: member.draining,
                    by_rules: member.by_rules,
                })
            })),
            Op::Close => {
                after.closed = true;
                Answer::Changed(!self.closed)
            }
        };
        (right == *answer).then_some(after)
    }
}
