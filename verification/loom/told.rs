//! What those who asked were told, kind by kind, against what the scheduler has counted.

use leasehold::WaitError;

use crate::driver::Fleet;

/// What those who asked were told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub handed_off: u64,
    pub timed_out: u64,
    pub cancelled: u64,
    pub failed: u64,
    pub closed: u64,
    pub shed: u64,
    pub refused: u64,
    /// Leases that anybody has had, whether he has waited or not.
    pub leases: u64,
}

impl Told {
    /// The end of one that has waited, or was not let into the queue.
    pub fn ended<T>(&mut self, ended: &Result<T, WaitError>) {
        *match ended {
            Ok(_) => {
                self.leases += 1;
                &mut self.handed_off
            }
            Err(WaitError::TimedOut { .. }) => &mut self.timed_out,
            Err(WaitError::NotFound | WaitError::Strategy { .. }) => &mut self.failed,
            Err(WaitError::Closed) => &mut self.closed,
            Err(WaitError::Shed { .. }) => &mut self.shed,
            Err(WaitError::QueueFull { .. }) => &mut self.refused,
            Err(other) => panic!("{other}"),
        } += 1;
    }

    /// What two have noted.
    pub fn and(self, other: Told) -> Told {
        Told {
            handed_off: self.handed_off + other.handed_off,
            timed_out: self.timed_out + other.timed_out,
            cancelled: self.cancelled + other.cancelled,
            failed: self.failed + other.failed,
            closed: self.closed + other.closed,
            shed: self.shed + other.shed,
            refused: self.refused + other.refused,
            leases: self.leases + other.leases,
        }
    }

    /// Nobody waits, and nothing is out: each was counted as what it was told, and so was each unit that was nobody's lease.
    pub fn demand(self, fleet: &Fleet) {
        self.demand_but_for(Told::default(), fleet);
    }

    /// As [`demand`](Self::demand); what these were told they were told at once, whether they have waited for it or not.
    pub fn demand_but_for(self, at_once: Told, fleet: &Fleet) {
        let stats = fleet.scheduler.stats();
        let waits = &stats.waits;
        let Told { handed_off, failed, closed, .. } = self;
        let counted = Told {
            handed_off: waits.handed_off.clamp(handed_off, handed_off + at_once.handed_off),
            timed_out: waits.timed_out,
            cancelled: waits.cancelled,
            failed: waits.failed.clamp(failed, failed + at_once.failed),
            closed: waits.closed.clamp(closed, closed + at_once.closed),
            shed: waits.shed,
            refused: waits.refused,
            leases: stats.lent - waits.unused,
        };
        let within = Told {
            handed_off: waits.handed_off,
            failed: waits.failed,
            closed: waits.closed,
            timed_out: self.timed_out + at_once.timed_out,
            cancelled: self.cancelled + at_once.cancelled,
            shed: self.shed + at_once.shed,
            refused: self.refused + at_once.refused,
            leases: self.leases + at_once.leases,
        };
        assert_eq!(counted, within, "told {self:?}, and at once {at_once:?}: {waits:?}");
        assert_eq!(
            waits.waited,
            waits.handed_off + waits.timed_out + waits.cancelled + waits.failed + waits.closed,
            "neither who was shed nor who was refused has waited"
        );
        assert_eq!(waits.histogram.iter().sum::<u64>(), waits.handed_off, "each length is counted");
        assert_eq!(stats.lent, stats.returned, "all is back");
    }
}
