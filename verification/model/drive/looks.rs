//! Looks that take nothing.

use leasehold::Peek;

use super::super::{
    op::Op,
    resource::{Item, Key},
};
use super::Driver;

const PEEKS: usize = 4;

impl<'s> Driver<'s> {
    pub(super) fn looking(&mut self, op: &Op) -> &'static str {
        let real = self.real;
        match op {
            Op::Get { key, keep } => {
                let found = real.get(&Key(*key));
                assert_eq!(
                    found.as_ref().map(|peek| peek.version),
                    self.oracle.member(*key).map(|node| node.version)
                );
                assert_eq!(real.contains(&Key(*key)), found.is_some());
                match found {
                    Some(peek) => {
                        self.keep_peek(peek, *keep);
                        "found"
                    }
                    None => "not found",
                }
            }
            Op::Peek { keep } => {
                let peek = real.peek();
                let exact = self.oracle.config.is_exact();
                self.oracle.check_peek(peek.as_ref().map(|peek| peek.spec.key), exact);
                match peek {
                    Some(peek) => {
                        self.check_version(&peek);
                        self.keep_peek(peek, *keep);
                        "some"
                    }
                    None => "none",
                }
            }
            Op::PeekByAffinity { id } => {
                let peek = real.peek_by_affinity(id);
                self.oracle.check_peek(peek.as_ref().map(|peek| peek.spec.key), false);
                match peek {
                    Some(peek) => {
                        self.check_version(&peek);
                        "some"
                    }
                    None => "none",
                }
            }
            Op::PeekWorst => {
                let peek = real.peek_worst();
                self.oracle.thaw();
                match peek {
                    Some(peek) => {
                        self.oracle.check_worst(peek.spec.key);
                        self.check_version(&peek);
                        "some"
                    }
                    None => {
                        assert_eq!(self.oracle.eligible().count(), 0);
                        "none"
                    }
                }
            }
            Op::DropPeeks => {
                self.check_peeks();
                self.peeks.clear();
                "ok"
            }
            Op::Snapshot => {
                self.check_snapshot();
                "ok"
            }
            _ => unreachable!("told apart by the caller"),
        }
    }

    pub(super) fn keep_peek(&mut self, peek: Peek<'s, Item>, keep: bool) {
        let version = peek.version;
        if keep {
            if self.peeks.len() == PEEKS {
                self.peeks.remove(0);
            }
            self.peeks.push((peek, version));
        }
    }

    pub(super) fn check_version(&self, item: &Item) {
        let current = self.oracle.member(item.spec.key).map(|node| node.version);
        assert_eq!(Some(item.version), current, "the current value is shown");
    }

    pub(super) fn check_peeks(&self) {
        for (peek, version) in &self.peeks {
            assert_eq!(peek.version, *version, "a peek keeps its value");
        }
    }

    /// Every word of every resource.
    pub fn check_snapshot(&self) {
        let snapshot = self.real.snapshot();
        assert!(snapshot.is_consistent(), "nobody else is there");
        let mut snapshot = snapshot.into_vec();
        snapshot.sort_by_key(|state| state.key.0);
        assert_eq!(snapshot.len(), self.oracle.by_key.len());
        for (state, node) in snapshot.iter().zip(self.oracle.members()) {
            assert_eq!(state.key.0, node.spec.key);
            assert_eq!(state.shard, node.shard, "{state:?}");
            assert_eq!(state.rank, node.rank, "{state:?}");
            assert_eq!(state.in_flight, node.in_flight, "{state:?}");
            assert_eq!(state.limit, node.limit, "{state:?}");
            assert_eq!(state.standing, node.standing(), "{state:?}");
            assert_eq!(state.holds, node.holds(), "{state:?}");
            assert_eq!(state.cooling_until, node.cooling.then_some(node.deadline), "{state:?}");
            assert_eq!(state.generation, node.generation, "{state:?}");
        }
        let mut keys: Vec<u8> = self.real.iter_keys().map(|key| key.0).collect();
        keys.sort_unstable();
        assert!(keys.iter().eq(self.oracle.by_key.keys()), "the keys of the fleet");
        for held in &self.held {
            held.check();
        }
        self.check_peeks();
    }
}
