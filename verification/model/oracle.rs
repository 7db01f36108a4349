//! The scheduler as its documentation reads: sequential, in ordered maps, one linear search for everything.
//!
//! It says exactly what must happen wherever that is determined, and which answers are allowed where a strategy may
//! choose. The one thing taken from the real scheduler is which shard it balanced a newcomer to.

use std::collections::BTreeMap;

use leasehold::{Hold, Outcome, Overflow, Standing, Ties};

use super::{config::Config, resource::Spec};

/// "No deadline".
pub const NEVER: u64 = u64::MAX;

/// One resource, from its insertion to its last lease.
#[derive(Clone, Debug)]
pub struct Node {
    pub spec: Spec,
    pub version: u32,
    pub shard: usize,
    pub member: bool,
    pub in_flight: u32,
    pub limit: u32,
    pub excluded: bool,
    pub cooling: bool,
    pub ejected: bool,
    pub draining: bool,
    pub deadline: u64,
    pub rank: u64,
    /// The place among equals, in the queue of the eligible or of the cooling.
    pub tie: i64,
    pub generation: u32,
    /// Guards whose token was given out.
    pub pins: u32,
}

impl Node {
    pub fn standing(&self) -> Standing {
        if !self.member {
            Standing::Removed
        } else if self.excluded {
            Standing::Excluded
        } else if self.draining {
            Standing::Draining
        } else if self.ejected {
            Standing::Ejected
        } else if self.in_flight >= self.limit {
            Standing::AtCapacity
        } else if self.cooling {
            Standing::Cooling
        } else {
            Standing::Eligible
        }
    }

    pub fn holds(&self) -> Vec<Hold> {
        [
            (self.excluded, Hold::Excluded),
            (self.cooling, Hold::Cooling),
            (self.ejected, Hold::Ejected),
            (self.draining, Hold::Draining),
        ]
        .into_iter()
        .filter_map(|(held, hold)| held.then_some(hold))
        .collect()
    }

    /// Best first: by rank, then by the place among equals.
    fn order(&self) -> (u64, i64) {
        (self.rank, self.tie)
    }
}

/// A lease, as its holder must see it.
#[derive(Clone, Debug)]
pub struct LeaseFacts {
    pub node: u64,
    pub key: u8,
    pub version: u32,
    pub shard: usize,
    pub exclusive: bool,
}

/// What `Stats` counts over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub inserted: u64,
    pub updated: u64,
    pub removed: u64,
    pub evicted: u64,
    pub lent: u64,
    pub returned: u64,
    pub excluded: u64,
    pub included: u64,
    pub cooled: u64,
    pub warmed: u64,
    pub ejected: u64,
    pub readmitted: u64,
    pub drained: u64,
    pub undrained: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub rate_limited: u64,
    pub cancelled: u64,
}

/// Why nothing can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoneFacts {
    pub at_capacity: u64,
    pub cooling: u64,
    pub ejected: u64,
    pub draining: u64,
    pub excluded: u64,
    pub filtered: u64,
    pub earliest: Option<u64>,
}

/// Why a resource does not get in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Closed,
    Capacity(u8),
    Home(u8),
    Duplicate(u8),
    Full(u8),
}

#[derive(Debug)]
pub struct Oracle {
    pub config: Config,
    pub nodes: BTreeMap<u64, Node>,
    pub by_key: BTreeMap<u8, u64>,
    pub counts: Counts,
    pub closed: bool,
    pub now: u64,
    next_node: u64,
    ticket: i64,
    /// Per entry of the token table: its generation, and the lease if it is live.
    pub tokens: BTreeMap<u32, (u32, Option<LeaseFacts>)>,
}

impl Oracle {
    pub fn new(config: Config) -> Self {
        Oracle {
            config,
            nodes: BTreeMap::new(),
            by_key: BTreeMap::new(),
            counts: Counts::default(),
            closed: false,
            now: 0,
            next_node: 0,
            ticket: 0,
            tokens: BTreeMap::new(),
        }
    }

    // Looking.

    pub fn member(&self, key: u8) -> Option<&Node> {
        self.by_key.get(&key).map(|id| &self.nodes[id])
    }

    pub fn members(&self) -> impl Iterator<Item = &Node> {
        self.by_key.values().map(|id| &self.nodes[id])
    }

    pub fn eligible(&self) -> impl Iterator<Item = &Node> {
        self.members().filter(|node| node.standing() == Standing::Eligible)
    }

    pub fn in_shard(&self, shard: usize) -> impl Iterator<Item = &Node> {
        self.eligible().filter(move |node| node.shard == shard)
    }

    pub fn best_rank(&self) -> Option<u64> {
        self.eligible().map(|node| node.rank).min()
    }

    /// The key that a shard lends next.
    pub fn best_of(&self, shard: usize) -> Option<u8> {
        self.in_shard(shard).min_by_key(|node| node.order()).map(|node| node.spec.key)
    }

    pub fn leaving(&self) -> u64 {
        self.nodes.values().filter(|node| !node.member).count() as u64
    }

    pub fn in_flight(&self) -> u64 {
        self.nodes.values().map(|node| u64::from(node.in_flight)).sum()
    }

    pub fn available(&self) -> u64 {
        self.eligible().map(|node| u64::from(node.limit - node.in_flight)).sum()
    }

    pub fn none(&self) -> NoneFacts {
        let count = |standing| self.members().filter(|node| node.standing() == standing).count() as u64;
        NoneFacts {
            at_capacity: count(Standing::AtCapacity),
            cooling: count(Standing::Cooling),
            ejected: count(Standing::Ejected),
            draining: count(Standing::Draining),
            excluded: count(Standing::Excluded),
            filtered: count(Standing::Eligible),
            earliest: self
                .members()
                .filter(|node| node.standing() == Standing::Cooling && node.deadline != NEVER)
                .map(|node| node.deadline)
                .min(),
        }
    }

    /// Whether the scheduler may lend, or show, `key` when asked for its best.
    pub fn check_best(&self, key: u8) {
        let node = self.member(key).unwrap_or_else(|| panic!("{key} is not in the fleet"));
        assert_eq!(node.standing(), Standing::Eligible, "{key} is not eligible");
        assert_eq!(Some(key), self.best_of(node.shard), "{key} is not the best of shard {}", node.shard);
        if self.config.is_exact() {
            assert_eq!(Some(node.rank), self.best_rank(), "{key} is not the best of the fleet");
        }
    }

    /// Whether the scheduler may lend `key` to a filter.
    pub fn check_where(&self, key: u8, accepts: impl Fn(u8) -> bool) {
        // As many as a shard offers to a filter before the whole fleet is asked.
        const OFFERED: usize = 8;
        let node = self.member(key).unwrap_or_else(|| panic!("{key} is not in the fleet"));
        assert_eq!(node.standing(), Standing::Eligible, "{key} is not eligible");
        assert!(accepts(key), "{key} was refused by the filter");
        let first_offered = |shard: usize| {
            let mut nodes: Vec<_> = self.in_shard(shard).collect();
            nodes.sort_by_key(|node| node.order());
            nodes.iter().take(OFFERED).map(|node| node.spec.key).find(|&key| accepts(key))
        };
        let least = |nodes: &mut dyn Iterator<Item = &Node>| {
            nodes.filter(|node| accepts(node.spec.key)).map(|node| node.rank).min()
        };
        if self.config.is_exact() || (0..self.config.shards).all(|shard| first_offered(shard).is_none()) {
            assert_eq!(
                Some(node.rank),
                least(&mut self.eligible()),
                "{key} is not the best that is accepted"
            );
            if self.config.shards == 1
                && let Some(first) = first_offered(0)
            {
                assert_eq!(key, first, "equals in their order");
            }
        } else {
            assert_eq!(Some(key), first_offered(node.shard), "{key} is not the best of those offered");
        }
    }

    pub fn check_worst(&self, key: u8) {
        let node = self.member(key).unwrap_or_else(|| panic!("{key} is not in the fleet"));
        assert_eq!(node.standing(), Standing::Eligible, "{key} is not eligible");
        let worst = self.eligible().map(|node| node.rank).max();
        assert_eq!(Some(node.rank), worst, "{key} is not the worst of the fleet");
        let last = self.in_shard(node.shard).max_by_key(|node| node.order()).map(|node| node.spec.key);
        assert_eq!(Some(key), last, "{key} is not the last of its equals");
    }

    // Changing.

    fn next_tie(&mut self) -> i64 {
        self.ticket += 1;
        match self.config.ties {
            Ties::LeastRecent => self.ticket,
            Ties::MostRecent => -self.ticket,
        }
    }

    /// Changes a node; what becomes eligible, or goes on cooling, queues up anew.
    fn change(&mut self, id: u64, f: impl FnOnce(&mut Node)) {
        let node = self.nodes.get_mut(&id).expect("known");
        let from = node.standing();
        f(node);
        let to = node.standing();
        if (from != to && to == Standing::Eligible) || to == Standing::Cooling {
            let tie = self.next_tie();
            self.nodes.get_mut(&id).expect("known").tie = tie;
        }
        self.forget_if_spent(id);
    }

    fn forget_if_spent(&mut self, id: u64) {
        let node = &self.nodes[&id];
        if !node.member && node.in_flight == 0 && node.pins == 0 {
            self.nodes.remove(&id);
        }
    }

    /// Ends all cooling that is due.
    pub fn thaw(&mut self) {
        let mut due: Vec<(u64, i64, u64)> = self
            .by_key
            .values()
            .map(|&id| (id, &self.nodes[&id]))
            .filter(|(_, node)| node.standing() == Standing::Cooling && node.deadline <= self.now)
            .map(|(id, node)| (node.deadline, node.tie, id))
            .collect();
        due.sort_unstable();
        for (_, _, id) in due {
            self.change(id, |node| node.cooling = false);
            self.counts.warmed += 1;
        }
    }

    /// What an insertion must answer, eviction left aside.
    pub fn refusal(&self, spec: &Spec) -> Option<Refusal> {
        let key = spec.key;
        if self.closed {
            Some(Refusal::Closed)
        } else if spec.limit().is_none() {
            Some(Refusal::Capacity(key))
        } else if spec.home.is_some_and(|home| home >= self.config.shards) {
            Some(Refusal::Home(key))
        } else if self.by_key.contains_key(&key) {
            Some(Refusal::Duplicate(key))
        } else {
            None
        }
    }

    /// Whether the fleet has no room.
    pub fn is_full(&self, more: usize) -> bool {
        self.config.max.is_some_and(|(max, _)| self.by_key.len() + more > max)
    }

    pub fn evicts(&self) -> bool {
        self.config.max.is_some_and(|(_, overflow)| overflow == Overflow::EvictWorst)
    }

    /// What a batch must answer.
    pub fn batch_refusal(&self, specs: &[Spec]) -> Option<Refusal> {
        if self.closed {
            return Some(Refusal::Closed);
        }
        let first = |refuses: &dyn Fn(&Spec) -> bool| specs.iter().find(|spec| refuses(spec)).map(|s| s.key);
        if let Some(key) = first(&|spec| spec.limit().is_none()) {
            return Some(Refusal::Capacity(key));
        }
        if let Some(key) = first(&|spec| spec.home.is_some_and(|home| home >= self.config.shards)) {
            return Some(Refusal::Home(key));
        }
        let mut seen: Vec<u8> = self.by_key.keys().copied().collect();
        for spec in specs {
            if seen.contains(&spec.key) {
                return Some(Refusal::Duplicate(spec.key));
            }
            seen.push(spec.key);
        }
        (!specs.is_empty() && self.is_full(specs.len())).then(|| Refusal::Full(specs[0].key))
    }

    /// Members of a shard.
    pub fn population(&self, shard: usize) -> usize {
        self.members().filter(|node| node.shard == shard).count()
    }

    pub fn insert(&mut self, spec: Spec, version: u32, shard: usize) {
        let id = self.next_node;
        self.next_node += 1;
        let tie = self.next_tie();
        let limit = spec.limit().expect("checked");
        self.nodes.insert(
            id,
            Node {
                spec,
                version,
                shard,
                member: true,
                in_flight: 0,
                limit,
                excluded: false,
                cooling: false,
                ejected: false,
                draining: false,
                deadline: 0,
                rank: spec.rank(0),
                tie,
                generation: 0,
                pins: 0,
            },
        );
        let earlier = self.by_key.insert(spec.key, id);
        assert!(earlier.is_none(), "checked");
        self.counts.inserted += 1;
    }

    pub fn update(&mut self, spec: Spec, version: u32) {
        let id = self.by_key[&spec.key];
        let limit = spec.limit().expect("checked");
        self.change(id, |node| {
            // An exclusive resource is ranked while it is free.
            node.rank = spec.rank(if limit == 1 { 0 } else { node.in_flight });
            node.spec = spec;
            node.version = version;
            node.limit = limit;
            node.generation = node.generation.wrapping_add(1);
        });
        self.counts.updated += 1;
    }

    fn take_out(&mut self, key: u8) -> u32 {
        let id = self.by_key.remove(&key).expect("checked");
        let in_flight = self.nodes[&id].in_flight;
        self.change(id, |node| {
            node.member = false;
            node.generation = node.generation.wrapping_add(1);
        });
        in_flight
    }

    pub fn remove(&mut self, key: u8) -> u32 {
        self.counts.removed += 1;
        self.take_out(key)
    }

    pub fn evict(&mut self, key: u8) {
        self.counts.evicted += 1;
        self.take_out(key);
    }

    pub fn lend(&mut self, key: u8) -> LeaseFacts {
        let id = self.by_key[&key];
        self.nodes.get_mut(&id).expect("known").in_flight += 1;
        let node = &self.nodes[&id];
        if node.in_flight < node.limit {
            // Used last among its equals.
            let tie = self.next_tie();
            let node = self.nodes.get_mut(&id).expect("known");
            node.tie = tie;
        }
        let node = self.nodes.get_mut(&id).expect("known");
        if node.limit != 1 {
            node.rank = node.spec.rank(node.in_flight);
        }
        self.counts.lent += 1;
        LeaseFacts { node: id, key, version: node.version, shard: node.shard, exclusive: node.limit == 1 }
    }

    pub fn give_back(&mut self, lease: &LeaseFacts, deadline: Option<u64>, outcome: Option<Outcome>) {
        let mut cooled = false;
        let exclusive = lease.exclusive;
        self.change(lease.node, |node| {
            node.in_flight -= 1;
            node.generation = node.generation.wrapping_add(1);
            if let Some(deadline) = deadline
                && node.member
            {
                cooled = !node.cooling || deadline > node.deadline;
                node.deadline = if node.cooling { node.deadline.max(deadline) } else { deadline };
                node.cooling = true;
            }
        });
        if let Some(node) = self.nodes.get_mut(&lease.node)
            && node.member
            && !(exclusive && node.limit == 1)
        {
            node.rank = node.spec.rank(node.in_flight);
        }
        self.counts.cooled += u64::from(cooled);
        self.counts.returned += 1;
        match outcome {
            None => {}
            Some(Outcome::Ok { .. }) => self.counts.succeeded += 1,
            Some(Outcome::Failed) => self.counts.failed += 1,
            Some(Outcome::Cancelled) => self.counts.cancelled += 1,
            Some(_) => self.counts.rate_limited += 1,
        }
    }

    pub fn pin(&mut self, node: u64) {
        self.nodes.get_mut(&node).expect("lent").pins += 1;
    }

    pub fn unpin(&mut self, node: u64) {
        self.nodes.get_mut(&node).expect("pinned").pins -= 1;
        self.forget_if_spent(node);
    }

    /// Sets or clears a hold other than cooling. Answers whether that changed anything.
    pub fn set_hold(&mut self, key: u8, hold: Hold, on: bool) -> bool {
        let id = self.by_key[&key];
        let held = self.nodes[&id].holds().contains(&hold);
        if held == on {
            return false;
        }
        self.change(id, |node| match hold {
            Hold::Excluded => node.excluded = on,
            Hold::Ejected => node.ejected = on,
            Hold::Draining => node.draining = on,
            Hold::Cooling => node.cooling = on,
        });
        let counts = &mut self.counts;
        *match (hold, on) {
            (Hold::Excluded, true) => &mut counts.excluded,
            (Hold::Excluded, false) => &mut counts.included,
            (Hold::Ejected, true) => &mut counts.ejected,
            (Hold::Ejected, false) => &mut counts.readmitted,
            (Hold::Draining, true) => &mut counts.drained,
            (Hold::Draining, false) => &mut counts.undrained,
            (Hold::Cooling, _) => &mut counts.warmed,
        } += 1;
        true
    }

    /// Answers whether that changed anything.
    pub fn cool(&mut self, key: u8, deadline: u64) -> bool {
        let id = self.by_key[&key];
        let node = &self.nodes[&id];
        if node.cooling && deadline <= node.deadline {
            return false;
        }
        self.change(id, |node| {
            node.cooling = true;
            node.deadline = deadline;
        });
        self.counts.cooled += 1;
        true
    }
}
