//! Counts: exact, kept where the transition happens.

use std::hash::BuildHasher;

use super::{Scheduler, error::Reasons, wait::WaitStats};
use crate::{
    node::{Hold, Standing},
    resource::Resource,
    shard::{Count, Shard},
};

/// How the fleet stands, and what has happened so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Whether all numbers that shards keep are of one moment. `false` if changes kept coming while this was read, or a batch was
    /// coming in; then each number is still of some moment of the call.
    ///
    /// Not counted with a change of a resource, and so each of its own moment either way: `overdue`, `probing`, `in_vain`,
    /// `waits`, `closed`, `events_missed`, `events_discarded`, `observer_panics`, and of `events_emitted` and `events_dropped` the events that belong to no shard (waits, the closing) and those
    /// whose key could not be cloned.
    pub consistent: bool,
    /// Resources in the fleet: `eligible + reasons.total()`.
    pub members: u64,
    /// Resources that can be lent now, less those whose cooling is over but that nobody has warmed up yet: an acquisition
    /// does that, a few at a time.
    pub eligible: u64,
    /// Those that cannot, each under the reason that matters most.
    pub reasons: Reasons,
    /// Holds that are set: unlike `reasons`, a resource with several counts in each.
    pub holds: HoldCounts,
    /// Free units of capacity over all eligible resources.
    pub available: u64,
    /// Resources that were removed and still have leases out.
    pub leaving: u64,
    /// Leases out: `lent - returned`.
    pub in_flight: u64,
    /// Eligible resources per shard.
    pub shards: Vec<u32>,
    /// The strategy's name.
    pub strategy: String,
    /// Whether the scheduler is closed.
    pub closed: bool,
    /// Insertions.
    pub inserted: u64,
    /// Updates.
    pub updated: u64,
    /// Removals by key.
    pub removed: u64,
    /// Removals from the worst end.
    pub evicted: u64,
    /// Units that were taken: leases that began; and, while somebody waits, units that came back for a request that had just ended and
    /// for which there was nobody else, or whose resource was taken out at that moment, which count as taken and returned once more. The latter are counted in
    /// [`WaitStats::unused`]: while nothing is on its way, `lent - waits.unused` leases have begun.
    pub lent: u64,
    /// Acquisitions that did not wait and were told that there was nothing eligible; of one by its key, that this resource was not. Also if
    /// the caller waits then: a wait begins with a try of its own, which is not counted.
    pub in_vain: u64,
    /// Leases that ended.
    pub returned: u64,
    /// Of those, leases that were revoked.
    pub revoked: u64,
    /// Leases that were found to be held for longer than [`Builder::max_hold`](crate::Builder::max_hold) allows; once each, and
    /// again after a renewal. Found, not begun: nobody may have looked. Not of one moment with the rest.
    pub overdue: u64,
    /// Exclusions that began.
    pub excluded: u64,
    /// Exclusions that ended.
    pub included: u64,
    /// Times a resource began to cool, or its deadline moved.
    pub cooled: u64,
    /// Times cooling ended, by its deadline or by hand.
    pub warmed: u64,
    /// Ejections that began.
    pub ejected: u64,
    /// Ejections that ended.
    pub readmitted: u64,
    /// Resources whose ejection by the [rules](crate::Ejection) is over and of which no probe has decided yet. One that stays among them is
    /// not asked for, or has a lease out that is not given back: [`ResourceStats::probing_since`](crate::ResourceStats::probing_since) tells which.
    pub probing: u64,
    /// Drainings that began.
    pub drained: u64,
    /// Drainings that ended.
    pub undrained: u64,
    /// Leases finished with [`Outcome::Ok`](crate::Outcome::Ok).
    pub succeeded: u64,
    /// Leases finished with [`Outcome::Failed`](crate::Outcome::Failed).
    pub failed: u64,
    /// Leases finished with [`Outcome::RateLimited`](crate::Outcome::RateLimited).
    pub rate_limited: u64,
    /// Leases finished with [`Outcome::Cancelled`](crate::Outcome::Cancelled).
    pub cancelled: u64,
    /// Events that found room in a ring.
    pub events_emitted: u64,
    /// Events that found room in a ring, but not in an observer's inbox; once for each such observer. Without those that a closing did
    /// not wait for, see [`Closing::Flush`](crate::Closing::Flush): they are still in the ring.
    pub events_missed: u64,
    /// Events that left the rings, and that an observer was not told of because the closing, or the drop of the scheduler,
    /// [discards](crate::Closing::Discard): each as often as there were such observers. Read it when that is over.
    pub events_discarded: u64,
    /// Panics of observers.
    pub observer_panics: u64,
    /// Events that found no room in a ring. Those whose key could not be cloned, a panic of user code, count as emitted there and as
    /// dropped here, from the panic on: a gap tells.
    pub events_dropped: u64,
    /// What has become of requests that had to wait. Counted one by one: not of one moment with each other, nor with the rest.
    pub waits: WaitStats,
}

/// How many resources have each hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HoldCounts {
    /// [`Hold::Excluded`].
    pub excluded: u64,
    /// [`Hold::Cooling`]: also those whose deadline has come, until an acquisition or [`tick`](Scheduler::tick) warms them up.
    pub cooling: u64,
    /// [`Hold::Ejected`], by the rules or by hand.
    pub ejected: u64,
    /// [`Hold::Draining`].
    pub draining: u64,
}

impl HoldCounts {
    fn of(&mut self, hold: Hold) -> &mut u64 {
        match hold {
            Hold::Excluded => &mut self.excluded,
            Hold::Cooling => &mut self.cooling,
            Hold::Ejected => &mut self.ejected,
            Hold::Draining => &mut self.draining,
        }
    }
}

/// How often the numbers are read again before they are given out as they are.
const TRIES: usize = 8;

impl<R: Resource, S: BuildHasher> Scheduler<R, S> {
    /// Counts of the whole fleet. Answers on a closed scheduler too.
    ///
    /// Wait-free: takes no lock, and reads at most eight times. O(shards). Allocates the list of shards, the name and the histogram of
    /// waits.
    pub fn stats(&self) -> Stats {
        let mut stats = self.read_stats();
        for _ in 1..TRIES {
            if stats.consistent {
                break;
            }
            stats = self.read_stats();
        }
        stats.waits = self.core.waiters.stats();
        stats
    }

    /// The same for each shard by itself: its own counts, states and consistency. What belongs to no shard (waits, events of the fleet,
    /// what observers have missed, their panics), and `probing` and `in_vain`, which are counted for the fleet, is 0.
    ///
    /// Wait-free; O(shards). Allocates a list and a name for each shard.
    pub fn stats_by_shard(&self) -> Vec<Stats> {
        let of_one = |shard: &Shard<R>| {
            let read = || self.read_stats_of(std::slice::from_ref(shard));
            (1..TRIES).fold(read(), |stats, _| if stats.consistent { stats } else { read() })
        };
        self.core.shards.iter().map(of_one).collect()
    }

    fn read_stats(&self) -> Stats {
        let core = &*self.core;
        let mut stats = self.read_stats_of(&core.shards);
        stats.in_vain = core.waiters.counts.read_in_vain();
        stats.probing = core.health.as_ref().map_or(0, |health| health.probing());
        if let Some(hub) = &core.hub {
            let (emitted, dropped) = hub.fleet_ring().tally();
            stats.events_emitted += emitted;
            stats.events_dropped += dropped;
            (stats.events_missed, stats.observer_panics) = (hub.missed(), hub.panics());
            stats.events_discarded = hub.discarded();
        }
        stats
    }

    fn read_stats_of(&self, shards: &[Shard<R>]) -> Stats {
        let core = &*self.core;
        let mut stats =
            Stats { strategy: core.selector.name().to_owned(), closed: core.is_closed(), ..Stats::default() };
        let mut first = Some(0u64);
        let mut staged = false;
        for shard in shards {
            let face = shard.face();
            first = first.zip(face.begin_read()).map(|(sum, sequence)| sum.wrapping_add(sequence));
            let standing = |standing| u64::from(face.standing(standing));
            staged |= face.staged() != 0;
            let (emitted, dropped) = shard.events().map_or((0, 0), crate::events::Ring::tally);
            stats.events_emitted += emitted;
            stats.events_dropped += dropped;
            stats.shards.push(face.standing(Standing::Eligible));
            stats.eligible += standing(Standing::Eligible);
            for obstacle in Standing::OBSTACLES {
                stats.reasons.add(obstacle, standing(obstacle));
            }
            for hold in Hold::ALL {
                *stats.holds.of(hold) += shard.holds(hold);
            }
            stats.leaving += standing(Standing::Removed);
            stats.available += face.available();
            stats.overdue += core.limits.as_ref().map_or(0, |limits| limits.seen(shard.index()));
            for (sum, count) in [
                (&mut stats.inserted, Count::Inserted),
                (&mut stats.updated, Count::Updated),
                (&mut stats.removed, Count::Removed),
                (&mut stats.evicted, Count::Evicted),
                (&mut stats.lent, Count::Lent),
                (&mut stats.returned, Count::Returned),
                (&mut stats.revoked, Count::Revoked),
                (&mut stats.excluded, Count::Excluded),
                (&mut stats.included, Count::Included),
                (&mut stats.cooled, Count::Cooled),
                (&mut stats.warmed, Count::Warmed),
                (&mut stats.ejected, Count::Ejected),
                (&mut stats.readmitted, Count::Readmitted),
                (&mut stats.drained, Count::Drained),
                (&mut stats.undrained, Count::Undrained),
                (&mut stats.succeeded, Count::Succeeded),
                (&mut stats.failed, Count::Failed),
                (&mut stats.rate_limited, Count::RateLimited),
                (&mut stats.cancelled, Count::Cancelled),
            ] {
                *sum += face.count(count);
            }
        }
        // The fence of the first R3 comes after all R2 of all shards.
        let second = shards.iter().fold(0u64, |sum, shard| sum.wrapping_add(shard.face().end_read()));
        // A batch that is being absorbed is visible as a whole by key; its counts are still on their way.
        stats.consistent = first == Some(second) && !staged;
        stats.members = stats.eligible + stats.reasons.total();
        stats.in_flight = stats.lent.saturating_sub(stats.returned);
        stats
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::HoldCounts;
    use crate::{Ejection, Entry, ManualClock, Outcome, Overdue, Reasons, Scheduler, Stats};

    /// All that shards keep. Without `..`: a new field has to be sorted in here.
    fn kept(stats: &Stats) -> Vec<u64> {
        let Stats {
            consistent: _,
            shards: _,
            strategy: _,
            closed: _,
            probing: _,
            in_vain: _,
            events_missed: _,
            events_discarded: _,
            observer_panics: _,
            waits: _,
            members,
            eligible,
            available,
            leaving,
            in_flight,
            inserted,
            updated,
            removed,
            evicted,
            lent,
            returned,
            revoked,
            overdue,
            excluded,
            included,
            cooled,
            warmed,
            ejected,
            readmitted,
            drained,
            undrained,
            succeeded,
            failed,
            rate_limited,
            cancelled,
            events_emitted,
            events_dropped,
            reasons,
            holds:
                HoldCounts {
                    excluded: holds_excluded,
                    cooling: holds_cooling,
                    ejected: holds_ejected,
                    draining: holds_draining,
                },
        } = stats;
        let Reasons { at_capacity, cooling, ejected: is_ejected, draining, excluded: is_excluded, filtered } =
            reasons;
        [
            members,
            eligible,
            available,
            leaving,
            in_flight,
            inserted,
            updated,
            removed,
            evicted,
            lent,
            returned,
            revoked,
            overdue,
            excluded,
            included,
            cooled,
            warmed,
            ejected,
            readmitted,
            drained,
            undrained,
            succeeded,
            failed,
            rate_limited,
            cancelled,
            events_emitted,
            events_dropped,
            at_capacity,
            cooling,
            is_ejected,
            draining,
            is_excluded,
            filtered,
            holds_excluded,
            holds_cooling,
            holds_ejected,
            holds_draining,
        ]
        .into_iter()
        .copied()
        .collect()
    }

    #[test]
    fn shards_add_up_to_the_fleet() {
        for overdue in [Overdue::Report, Overdue::Revoke] {
            let clock = Arc::new(ManualClock::new());
            let builder = Scheduler::<Entry<u32, u32, ()>>::builder().shards(4).clock(clock.clone());
            let rules = Ejection::default().consecutive_failures(1).max_share(50);
            let builder = builder.event_capacity(16).max_hold(Duration::from_secs(5)).overdue(overdue);
            let fleet = builder.ejection(rules).build().expect("in range");
            (0..32).for_each(|key| fleet.insert(Entry::new(key, key, ())).expect("new"));
            let lease = |key| fleet.acquire_key(&key).expect("free");
            let mut held: Vec<_> = (0..8).map(lease).collect();
            let limit = Outcome::RateLimited { retry_after: Duration::from_secs(100) };
            let ok = Outcome::Ok { latency: Duration::from_millis(1) };
            for (key, outcome) in (8..).zip([ok, Outcome::Failed, Outcome::Failed, limit, Outcome::Cancelled])
            {
                lease(key).finish(outcome);
            }
            let _ = (fleet.exclude(&20), fleet.exclude(&21), fleet.include(&21));
            let _ = (fleet.drain(&22), fleet.drain(&23), fleet.undrain(&23));
            let _ = (fleet.cool(&24, Duration::from_secs(100)), fleet.warm(&24), fleet.readmit(&9));
            let _ = (
                fleet.remove(&0),
                fleet.remove(&30),
                fleet.evict_worst(),
                fleet.update(Entry::new(12, 0, ())),
            );
            clock.advance(Duration::from_secs(6));
            let _ = fleet.reap_overdue();
            held.truncate(4);
            let stats = fleet.stats();
            let mut sum = vec![0; kept(&stats).len()];
            for shard in fleet.stats_by_shard() {
                sum.iter_mut().zip(kept(&shard)).for_each(|(sum, one)| *sum += one);
            }
            assert_eq!((sum, stats.overdue), (kept(&stats), 8), "{overdue:?}");
            let eligible: Vec<u32> =
                fleet.stats_by_shard().into_iter().flat_map(|stats| stats.shards).collect();
            assert_eq!(eligible, stats.shards);
            // Whatever has happened here has been counted.
            let zeros = kept(&stats).into_iter().filter(|&count| count == 0).count();
            assert!(zeros <= 6, "{stats:?}");
        }
    }
}
