//! What became of requests, told apart by who is to answer for it, and whether the sum is right.

use serde::{Deserialize, Serialize};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Served.
    Completed,
    /// Looked, and went.
    Peeked,
    Scheduler(Refusal),
    Backend(Trouble),
    /// The caller gave up waiting.
    CancelledWaiting,
    /// The caller gave up while it was served.
    CancelledServed,
    /// The end of the run came first, while it was served.
    CutShort,
    /// The end of the run came first, while it waited.
    CutWaiting,
    /// Open loop: its time was over before a worker could send it. The scheduler was never asked; whether more workers would have asked in time,
    /// or all of them waited for the scheduler, `sent_late_ns` and the waiting tell together.
    TooLate,
    /// Many processes: the claim behind the lease ended first, because the server was not heard of for too long.
    ClaimLost,
}

impl Ending {
    /// Whether it says only that the request took at least so long: somebody's time was over, and not the request.
    pub fn is_censored(self) -> bool {
        matches!(
            self,
            Ending::Scheduler(Refusal::TimedOut)
                | Ending::CancelledWaiting
                | Ending::CancelledServed
                | Ending::CutWaiting
                | Ending::CutShort
                | Ending::TooLate
                | Ending::ClaimLost
        )
    }
}

/// The scheduler's answers that are no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NoneEligible,
    TimedOut,
    /// At once, because the deadline could not be met.
    Shed,
    /// At once, because too many waited.
    QueueFull,
    Closed,
    /// The named resource was not in the fleet, or not eligible.
    NotEligible,
}

/// The backend's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Failed,
    RateLimited,
    TimedOut,
}

/// Every request is in exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub completed: u64,
    pub peeked: u64,
    pub scheduler: SchedulerCounts,
    pub backend: BackendCounts,
    pub caller: CallerCounts,
    pub cut_short: u64,
    #[serde(default)]
    pub cut_waiting: u64,
    /// Older results have them among the scheduler's.
    #[serde(default)]
    pub too_late: u64,
    /// Of runs with one process always 0; older results have none.
    #[serde(default)]
    pub claim_lost: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerCounts {
    pub none_eligible: u64,
    pub timed_out: u64,
    pub shed: u64,
    pub queue_full: u64,
    pub closed: u64,
    pub not_eligible: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendCounts {
    pub failed: u64,
    pub rate_limited: u64,
    pub timed_out: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerCounts {
    pub cancelled_waiting: u64,
    pub cancelled_served: u64,
}

impl Counts {
    pub fn add(&mut self, ending: Ending) {
        *match ending {
            Ending::Completed => &mut self.completed,
            Ending::Peeked => &mut self.peeked,
            Ending::Scheduler(Refusal::NoneEligible) => &mut self.scheduler.none_eligible,
            Ending::Scheduler(Refusal::TimedOut) => &mut self.scheduler.timed_out,
            Ending::Scheduler(Refusal::Shed) => &mut self.scheduler.shed,
            Ending::Scheduler(Refusal::QueueFull) => &mut self.scheduler.queue_full,
            Ending::Scheduler(Refusal::Closed) => &mut self.scheduler.closed,
            Ending::Scheduler(Refusal::NotEligible) => &mut self.scheduler.not_eligible,
            Ending::Backend(Trouble::Failed) => &mut self.backend.failed,
            Ending::Backend(Trouble::RateLimited) => &mut self.backend.rate_limited,
            Ending::Backend(Trouble::TimedOut) => &mut self.backend.timed_out,
            Ending::CancelledWaiting => &mut self.caller.cancelled_waiting,
            Ending::CancelledServed => &mut self.caller.cancelled_served,
            Ending::CutShort => &mut self.cut_short,
            Ending::CutWaiting => &mut self.cut_waiting,
            Ending::TooLate => &mut self.too_late,
            Ending::ClaimLost => &mut self.claim_lost,
        } += 1;
    }

    pub fn merge(&mut self, other: &Counts) {
        for (sum, part) in self.all_mut().into_iter().zip(other.clone().all_mut()) {
            *sum += *part;
        }
    }

    pub fn total(&self) -> u64 {
        self.clone().all_mut().into_iter().map(|count| *count).sum()
    }

    /// Leases that were given and have ended, however.
    pub fn leases(&self) -> u64 {
        self.completed + self.by_backend() + self.caller.cancelled_served + self.cut_short + self.claim_lost
    }

    pub fn by_scheduler(&self) -> u64 {
        let SchedulerCounts { none_eligible, timed_out, shed, queue_full, closed, not_eligible } =
            self.scheduler;
        none_eligible + timed_out + shed + queue_full + closed + not_eligible
    }

    pub fn by_backend(&self) -> u64 {
        self.backend.failed + self.backend.rate_limited + self.backend.timed_out
    }

    pub fn by_caller(&self) -> u64 {
        self.caller.cancelled_waiting + self.caller.cancelled_served
    }

    fn all_mut(&mut self) -> [&mut u64; 17] {
        let Counts {
            completed,
            peeked,
            scheduler,
            backend,
            caller,
            cut_short,
            cut_waiting,
            too_late,
            claim_lost,
        } = self;
        let SchedulerCounts { none_eligible, timed_out, shed, queue_full, closed, not_eligible } = scheduler;
        let BackendCounts { failed, rate_limited, timed_out: backend_timed_out } = backend;
        let CallerCounts { cancelled_waiting, cancelled_served } = caller;
        [
            completed,
            peeked,
            none_eligible,
            timed_out,
            shed,
            queue_full,
            closed,
            not_eligible,
            failed,
            rate_limited,
            backend_timed_out,
            cancelled_waiting,
            cancelled_served,
            cut_short,
            cut_waiting,
            too_late,
            claim_lost,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Ending; 17] = [
        Ending::Completed,
        Ending::Peeked,
        Ending::Scheduler(Refusal::NoneEligible),
        Ending::Scheduler(Refusal::TimedOut),
        Ending::Scheduler(Refusal::Shed),
        Ending::Scheduler(Refusal::QueueFull),
        Ending::Scheduler(Refusal::Closed),
        Ending::Scheduler(Refusal::NotEligible),
        Ending::Backend(Trouble::Failed),
        Ending::Backend(Trouble::RateLimited),
        Ending::Backend(Trouble::TimedOut),
        Ending::CancelledWaiting,
        Ending::CancelledServed,
        Ending::CutShort,
        Ending::CutWaiting,
        Ending::TooLate,
        Ending::ClaimLost,
    ];

    #[test]
    fn each_ending_is_counted_once() {
        let mut counts = Counts::default();
        for (before, ending) in ALL.into_iter().enumerate() {
            assert_eq!(counts.total(), before as u64);
            counts.add(ending);
        }
        assert_eq!((counts.by_scheduler(), counts.by_backend(), counts.by_caller()), (6, 3, 2));
        let mut twice = counts.clone();
        twice.merge(&counts);
        assert!(twice.all_mut().into_iter().all(|count| *count == 2));
    }
}
