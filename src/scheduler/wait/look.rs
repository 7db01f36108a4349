//! A waiter looks for a unit. Step N2 of the module header; what it finds looks for a taker then, as any other (`serve`).

use std::{panic::AssertUnwindSafe, panic::catch_unwind};

use super::{
    error::WaitError,
    filter::Filter,
    queue::Search,
    waiter::{Waiter, Want},
    work::Work,
};
use crate::{
    resource::Resource,
    scheduler::{core::Core, error::AcquireError},
    shard::{Lent, NEVER, Shard},
    strategy::ShardView,
    sync::Arc,
};

impl<R: Resource> Core<R> {
    /// N2, with the waiter's filter, if it has one, which is away as long. A panic of user code ends the wait.
    pub fn look_for(&self, waiter: &Arc<Waiter<R>>, mut filter: Option<Filter<R>>) {
        // What the rules let back by themselves, no shard tells (`time`).
        if let Some(moment) = self.health.as_ref().map(|health| health.first_moment())
            && moment != NEVER
        {
            self.note(moment);
        }
        let looked = catch_unwind(AssertUnwindSafe(|| match &mut filter {
            Some(filter) => self.seek_matching(waiter, filter),
            None => self.seek(waiter),
        }));
        let mut work = Work::new();
        match (looked, filter) {
            (Ok(()), None) => {}
            (Ok(()), Some(filter)) => self.put_filter(waiter, filter, &mut work),
            (Err(payload), filter) => self.fail_panicking(waiter, payload, filter, &mut work),
        }
        self.run(work);
    }

    fn seek(&self, waiter: &Arc<Waiter<R>>) {
        while self.waiters.queue().contains(waiter) {
            let lent = match &waiter.want {
                Want::Named(named) => {
                    let taken = self.take_named(named.node());
                    match taken {
                        Ok(lent) => Some(lent),
                        Err(state) if state.is_removed() => return self.fail(waiter, WaitError::NotFound),
                        Err(state) => {
                            // Whoever looks after the time may not know of a moment from before this registration.
                            let moment = self.comes_back(named.node(), state);
                            if moment != NEVER {
                                self.note(moment);
                            }
                            None
                        }
                    }
                }
                Want::Near(hash) => self.take_any(Some(*hash)),
                _ => self.take_any(None),
            };
            match lent {
                Some(lent) => {
                    self.offer(lent, Search::of_a_look());
                }
                None => {
                    if matches!(waiter.want, Want::Many(_)) {
                        // P2 may have passed us by.
                        self.take_parts_back();
                    }
                    return self.waiters.queue().settle(waiter);
                }
            }
        }
    }

    fn seek_matching(&self, waiter: &Arc<Waiter<R>>, filter: &mut Filter<R>) {
        // Whoever makes something acceptable after this sees the gate, and leaves it with us.
        for shard in &self.shards {
            drop(shard.lock());
        }
        while self.waiters.queue().still_looks(waiter) {
            match self.lend_where(&mut |_, value| filter.accepts(value)) {
                // To one before us that wants it; else it is left with our own filter.
                Ok(lent) => {
                    let search = Search::accepted(lent.value.addr().get(), waiter.order);
                    self.offer(lent, search);
                }
                Err(AcquireError::Strategy { chosen, shards }) => {
                    return self.fail(waiter, WaitError::Strategy { chosen, shards });
                }
                // Whoever closes fails everybody.
                Err(AcquireError::Closed) => return,
                Err(AcquireError::NoneEligible(none)) => {
                    if let Some(earliest) = none.earliest {
                        self.note(earliest.as_nanos());
                    }
                    return;
                }
            }
        }
    }

    /// Takes the best unit there is, looking into every shard, each with its lock; the shard that belongs to an id first.
    fn take_any(&self, hash: Option<u64>) -> Option<Lent<R>> {
        loop {
            let mut earliest = NEVER;
            let mut take = |shard: &Shard<R>| {
                let mut locked = self.lock(shard);
                let lent = self.lend_best(&mut locked, None);
                earliest = earliest.min(shard.face().earliest());
                lent
            };
            let lent = match hash {
                Some(hash) => self.with_ring(&self.pin(), |ring| {
                    let mut shards = ring.successors(hash).map(|i| &self.shards[i]);
                    shards.find_map(|shard| {
                        let own = self.lend_of(shard, hash);
                        own.or_else(|| take(shard))
                    })
                }),
                None => {
                    let ranked = (0..self.shards.len()).filter_map(|i| Some((self.best_rank(i)?, i)));
                    let best = ranked.min().and_then(|(_, i)| take(&self.shards[i]));
                    best.or_else(|| self.shards.iter().find_map(take))
                }
            };
            if lent.is_some() {
                return lent;
            }
            if earliest == NEVER {
                return None;
            }
            let now = self.now();
            if now < earliest {
                self.note(earliest);
                return None;
            }
            self.thaw(now, true);
        }
    }
}
