//! An exact view of what is eligible, kept beside the scheduler and independent of it.
//!
//! The oracle learns only what a caller knows: which leases were given and ended, and which resources cool until when.
//! It answers how many eligible resources were strictly better than the one given: the **rank error**. Ties do not
//! count. And the same loss from the other side, the **delay**: how many strictly worse ones were lent while a resource could be had, from the
//! moment at which it could until it was lent; those that were asked for without it do not count. Each lending of a worse one is somebody's
//! rank error and somebody's delay. Every operation costs O(log r) for r different ranks in the fleet (a Fenwick tree of counts by rank), plus
//! O(log n) for n resources that are cooling.

use std::collections::BTreeSet;

use leasehold::{Capacity, Priority, Resource};

use crate::fleet::Server;

pub struct Oracle {
    members: Vec<Member>,
    /// Every rank that a resource of this fleet can have, in order.
    ranks: Vec<u64>,
    eligible: Counts,
    total: u64,
    /// How often each rank was lent, and all together.
    lent: Counts,
    lendings: u64,
    /// Deadlines of all that cool.
    cooling: BTreeSet<(u64, u32)>,
    /// Those among them that have a slot free: what will be eligible by the end of a cooling alone.
    coming: BTreeSet<(u64, u32)>,
    now: u64,
}

struct Member {
    server: Server,
    slots: u32,
    in_flight: u32,
    cool_until: u64,
    /// Where it is counted now, if it is.
    counted: Option<usize>,
    /// How often a worse one had been lent when it came to be counted there.
    before: u64,
    /// How often since it could be had, while it was counted elsewhere.
    passed: u64,
}

/// What an acquire was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Eligible and strictly better.
    pub rank_error: u64,
    /// How often a worse one was lent while it could be had; `None` if it could not.
    pub delay: Option<u64>,
    /// Whether the resource was eligible at all.
    pub eligible: bool,
}

impl Oracle {
    /// `servers` in order of their index.
    pub fn new(servers: Vec<Server>) -> Self {
        let members: Vec<Member> = servers
            .into_iter()
            .map(|server| {
                let Capacity::Limited(slots) = server.capacity() else { unreachable!("servers have slots") };
                Member { server, slots, in_flight: 0, cool_until: 0, counted: None, before: 0, passed: 0 }
            })
            .collect();
        let mut ranks = Vec::new();
        for Member { server, slots, .. } in &members {
            ranks.extend((0..=*slots).map(|in_flight| server.priority(in_flight).rank()));
        }
        ranks.sort_unstable();
        ranks.dedup();
        let (eligible, lent) = (Counts::new(ranks.len()), Counts::new(ranks.len()));
        let count = members.len();
        let (cooling, coming) = (BTreeSet::new(), BTreeSet::new());
        let mut oracle =
            Oracle { members, ranks, eligible, total: 0, lent, lendings: 0, cooling, coming, now: 0 };
        (0..count).for_each(|index| oracle.recount(index));
        oracle
    }

    /// Moves time on: what has cooled is eligible again, at its deadline exactly.
    pub fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
        while let Some(&(deadline, index)) = self.cooling.first()
            && deadline <= self.now
        {
            self.cooling.pop_first();
            self.recount(index as usize);
        }
    }

    /// The earliest moment at which a resource will be eligible because its cooling ends.
    pub fn earliest(&self) -> Option<u64> {
        self.coming.first().map(|&(deadline, _)| deadline)
    }

    /// How many resources are eligible, those in `except` left out.
    pub fn eligible(&self, except: &[u32]) -> u64 {
        let left_out = except.iter().filter(|&&index| self.members[index as usize].counted.is_some()).count();
        self.total - left_out as u64
    }

    /// A lease on `index` was given while those in `except` were not wanted.
    pub fn acquired(&mut self, index: u32, except: &[u32]) -> Verdict {
        let rank = self.position(index as usize);
        let better = self.eligible.below(rank);
        let left_out = except
            .iter()
            .filter(|&&other| self.members[other as usize].counted.is_some_and(|position| position < rank));
        let left_out = left_out.count() as u64;
        let is_eligible = self.members[index as usize].counted.is_some();
        let verdict = Verdict {
            rank_error: better - left_out,
            delay: is_eligible.then(|| self.passed(index as usize)),
            eligible: is_eligible,
        };
        self.lent.add(rank, 1);
        self.lendings += 1;
        for &other in except {
            let other = &mut self.members[other as usize];
            if other.counted.is_some_and(|position| position < rank) {
                // It was not passed over: nobody wanted it.
                other.before += 1;
            }
        }
        self.members[index as usize].in_flight += 1;
        self.recount(index as usize);
        // It was lent: with a slot free it waits anew.
        self.members[index as usize].passed = 0;
        verdict
    }

    /// How often a worse one was lent since this one could be had.
    fn passed(&self, index: usize) -> u64 {
        let member = &self.members[index];
        member.passed + member.counted.map_or(0, |position| self.worse_lent(position) - member.before)
    }

    /// How often anything worse than this was lent, from the beginning.
    fn worse_lent(&self, position: usize) -> u64 {
        self.lendings - self.lent.below(position + 1)
    }

    /// A lease on `index` ended.
    pub fn returned(&mut self, index: u32) {
        let member = &mut self.members[index as usize];
        member.in_flight = member.in_flight.saturating_sub(1);
        self.recount(index as usize);
    }

    /// `index` cools until `deadline`; the later of two deadlines counts.
    pub fn cooled(&mut self, index: u32, deadline: u64) {
        let member = &mut self.members[index as usize];
        if deadline > member.cool_until {
            let former = (std::mem::replace(&mut member.cool_until, deadline), index);
            self.cooling.remove(&former);
            self.coming.remove(&former);
            self.cooling.insert((deadline, index));
            self.recount(index as usize);
        }
    }

    /// The place of a resource's present rank among all ranks.
    fn position(&self, index: usize) -> usize {
        let member = &self.members[index];
        let rank = member.server.priority(member.in_flight).rank();
        // Beyond its slots (a lender that breaks the capacity rule) a resource keeps its worst rank.
        self.ranks.partition_point(|&known| known < rank).min(self.ranks.len() - 1)
    }

    fn recount(&mut self, index: usize) {
        let position = self.position(index);
        let (passed, before) = (self.passed(index), self.worse_lent(position));
        let member = &mut self.members[index];
        // Whoever cannot be had is passed over by nobody.
        (member.passed, member.before) = (0, before);
        if let Some(old) = member.counted.take() {
            self.eligible.add(old, -1);
            self.total -= 1;
        }
        let cooling = (member.cool_until, index as u32);
        let (free, cool) = (member.in_flight < member.slots, cooling.0 <= self.now);
        if free && cool {
            member.counted = Some(position);
            member.passed = passed;
            self.eligible.add(position, 1);
            self.total += 1;
        }
        if free && !cool {
            self.coming.insert(cooling);
        } else {
            self.coming.remove(&cooling);
        }
    }
}

/// Counts by position with prefix sums in O(log n): a Fenwick tree.
struct Counts {
    tree: Vec<i64>,
}

impl Counts {
    fn new(positions: usize) -> Self {
        Counts { tree: vec![0; positions + 1] }
    }

    fn add(&mut self, position: usize, change: i64) {
        let mut node = position + 1;
        while node < self.tree.len() {
            self.tree[node] += change;
            node += node & node.wrapping_neg();
        }
    }

    /// The sum of all counts before `position`.
    fn below(&self, position: usize) -> u64 {
        let mut node = position;
        let mut sum = 0;
        while node > 0 {
            sum += self.tree[node];
            node &= node - 1;
        }
        sum as u64
    }
}

#[cfg(test)]
mod tests {
    use leasehold::SplitMix64;

    use super::*;
    use crate::fleet::Fleet;

    #[test]
    fn agrees_with_a_plain_scan() {
        let servers = Fleet::built_in().servers();
        let count = servers.len() as u32;
        let mut oracle = Oracle::new(servers.clone());
        let mut in_flight = vec![0u32; servers.len()];
        let mut until = vec![0u64; servers.len()];
        let mut passed = vec![0u64; servers.len()];
        let mut random = SplitMix64::new(3);
        let mut now = 0;
        for _ in 0..20_000 {
            now += u64::from(random.below(5));
            oracle.advance(now);
            let slots = |index: u32| match servers[index as usize].capacity() {
                Capacity::Limited(slots) => slots,
                _ => unreachable!(),
            };
            let open = |index: u32, in_flight: &[u32], until: &[u64]| {
                in_flight[index as usize] < slots(index) && until[index as usize] <= now
            };
            let except: Vec<u32> = (0..random.below(3)).map(|_| random.below(count)).collect();
            let except: Vec<u32> =
                except.iter().copied().filter(|index| except[0] == *index).take(1).collect();
            let wanted: Vec<u32> =
                (0..count).filter(|&i| open(i, &in_flight, &until) && !except.contains(&i)).collect();
            assert_eq!(oracle.eligible(&except), wanted.len() as u64);
            let coming = (0..count).filter(|&i| in_flight[i as usize] < slots(i) && until[i as usize] > now);
            assert_eq!(oracle.earliest(), coming.map(|i| until[i as usize]).min());
            let index = random.below(count);
            match random.below(5) {
                0 | 1 if !wanted.is_empty() => {
                    let given = wanted[random.below(wanted.len() as u32) as usize];
                    let rank = |i: u32| servers[i as usize].priority(in_flight[i as usize]).rank();
                    let better = wanted.iter().filter(|&&other| rank(other) < rank(given)).count() as u64;
                    let delay = Some(passed[given as usize]);
                    let expected = Verdict { rank_error: better, delay, eligible: true };
                    assert_eq!(oracle.acquired(given, &except), expected);
                    for &other in wanted.iter().filter(|&&other| rank(other) < rank(given)) {
                        passed[other as usize] += 1;
                    }
                    passed[given as usize] = 0;
                    in_flight[given as usize] += 1;
                }
                2 | 3 if in_flight[index as usize] > 0 => {
                    oracle.returned(index);
                    in_flight[index as usize] -= 1;
                }
                4 => {
                    let deadline = now + u64::from(random.below(200));
                    oracle.cooled(index, deadline);
                    until[index as usize] = until[index as usize].max(deadline);
                }
                _ => {}
            }
            // Whoever cools, or has no slot, is passed over by nobody; also if that lasts for less than a step.
            (0..count).filter(|&i| !open(i, &in_flight, &until)).for_each(|i| passed[i as usize] = 0);
        }
    }

    #[test]
    fn a_lender_that_breaks_the_rules_is_noticed_not_followed() {
        let text = "[[resource]]\nkey = \"a\"\nmax_in_flight = 1\ntokens_per_second = 1\n";
        let mut oracle = Oracle::new(Fleet::parse("f", text).unwrap().servers());
        assert!(oracle.acquired(0, &[]).eligible);
        assert!(!oracle.acquired(0, &[]).eligible, "over capacity");
        oracle.returned(0);
        oracle.returned(0);
        oracle.cooled(0, 10);
        assert!(!oracle.acquired(0, &[]).eligible, "cooling");
    }
}
