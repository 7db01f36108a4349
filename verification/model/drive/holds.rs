//! Holds, and the weights of shards.

use std::time::Duration;

use leasehold::{Hold, KeyError, WeightsError};

use super::super::{op::Op, resource::Key};
use super::{Driver, Scheduler};

impl Driver<'_> {
    pub(super) fn holding(&mut self, op: &Op) -> &'static str {
        let real = self.real;
        match op {
            Op::Exclude(key) => self.hold(*key, Hold::Excluded, true, |s, key| s.exclude(key)),
            Op::Include(key) => self.hold(*key, Hold::Excluded, false, |s, key| s.include(key)),
            Op::Warm(key) => self.hold(*key, Hold::Cooling, false, |s, key| s.warm(key)),
            Op::Eject(key) => self.hold(*key, Hold::Ejected, true, |s, key| s.eject(key)),
            Op::Readmit(key) => self.hold(*key, Hold::Ejected, false, |s, key| s.readmit(key)),
            Op::Drain(key) => self.hold(*key, Hold::Draining, true, |s, key| s.drain(key)),
            Op::Undrain(key) => self.hold(*key, Hold::Draining, false, |s, key| s.undrain(key)),
            Op::Cool { key, span } => match real.cool(&Key(*key), *span) {
                Err(KeyError::Closed) if self.oracle.closed => "closed",
                _ if self.oracle.closed => panic!("a closed scheduler changes"),
                Err(KeyError::NotFound { key: named }) => {
                    assert!(named.0 == *key && self.oracle.member(*key).is_none());
                    "not found"
                }
                Ok(changed) => {
                    let deadline = self.deadline(*span);
                    assert_eq!(changed, self.oracle.cool(*key, deadline), "whether it changed anything");
                    if changed { "changed" } else { "as before" }
                }
                Err(error) => panic!("unexpected {error:?}"),
            },
            Op::SetWeights(weights) => {
                let shards = self.oracle.config.shards;
                let length = if weights.len() > 4 { shards + 1 } else { shards };
                let weights: Vec<u32> = weights.iter().copied().cycle().take(length).collect();
                match real.set_shard_weights(&weights) {
                    Ok(()) => {
                        assert!(!self.oracle.closed, "nothing changes after the close");
                        assert!(weights.len() == shards && weights.iter().any(|&weight| weight > 0));
                        self.affinity.clear();
                        "ok"
                    }
                    Err(WeightsError::Closed) => {
                        assert!(self.oracle.closed);
                        "closed"
                    }
                    Err(WeightsError::Length { given, .. }) => {
                        assert!(given == weights.len() && given != shards);
                        "length"
                    }
                    Err(_) => {
                        assert!(weights.iter().all(|&weight| weight == 0));
                        "no weight"
                    }
                }
            }
            _ => unreachable!("told apart by the caller"),
        }
    }

    pub(super) fn hold(
        &mut self,
        key: u8,
        hold: Hold,
        on: bool,
        call: impl FnOnce(&Scheduler, &Key) -> Result<bool, KeyError<Key>>,
    ) -> &'static str {
        match call(self.real, &Key(key)) {
            Err(KeyError::Closed) if self.oracle.closed => "closed",
            _ if self.oracle.closed => panic!("a closed scheduler changes"),
            Err(KeyError::NotFound { key: named }) if named.0 == key && self.oracle.member(key).is_none() => {
                "not found"
            }
            Ok(changed) => {
                assert_eq!(changed, self.oracle.set_hold(key, hold, on), "whether it changed anything");
                if changed { "changed" } else { "as before" }
            }
            Err(error) => panic!("unexpected {error:?}"),
        }
    }

    pub(super) fn deadline(&self, span: Duration) -> u64 {
        self.oracle.now.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)).min(u64::MAX - 1)
    }
}
