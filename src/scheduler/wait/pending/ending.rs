//! How a request ends: served, refused, out of time, or dropped.

use std::{mem, ops::Deref, time::Duration};

use super::{
    super::{
        error::WaitError,
        queue::Left,
        stats::Ending,
        waiter::{GivenUp, Look, Waiter},
        wish::Wish,
    },
    Ended, Pending, State,
};
use crate::{events::EventKind, node::quietly, resource::Resource, scheduler::core::Core, sync::Arc};

impl<C: Deref<Target = Core<R>>, R: Resource> Pending<C, R> {
    /// The deadline has come. Who has a unit already keeps it.
    pub(super) fn time_out(&mut self) -> Ended<R> {
        let waiter = Arc::clone(self.waiter());
        let waited = Duration::from_nanos(self.core.now().saturating_sub(waiter.since));
        match self.withdraw(&waiter) {
            GivenUp::InTime(units) => {
                self.core.free(units);
                Err(WaitError::TimedOut { waited })
            }
            GivenUp::TooLate(Look::Nudged(nudge)) => {
                self.core.waiters.queue().is_back();
                self.core.pass_nudge(nudge);
                Err(WaitError::TimedOut { waited })
            }
            GivenUp::TooLate(found) => self.hear(found, None).expect("no nudge"),
        }
    }

    fn withdraw(&mut self, waiter: &Arc<Waiter<R>>) -> GivenUp<R> {
        let left: Option<Left<R>> = self.core.waiters.queue().remove(waiter);
        if let (Some((_, kept)), Wish::Matching(filter)) = (left, &mut self.wish) {
            *filter = kept;
        }
        waiter.give_up()
    }

    /// Counts how the wait ended, and lets go of what it needed.
    pub(super) fn end(&mut self, ended: Ended<R>) -> Ended<R> {
        if matches!(self.state, State::Waiting(_)) {
            self.finish(match &ended {
                Ok(_) => Ending::HandedOff,
                Err(WaitError::TimedOut { .. }) => Ending::TimedOut,
                Err(WaitError::Closed) => Ending::Closed,
                Err(_) => Ending::Failed,
            });
        } else {
            self.state = State::Done;
            self.unpin();
        }
        ended
    }

    #[cold]
    pub(super) fn finish(&mut self, ending: Ending) {
        let State::Waiting(waiter) = mem::replace(&mut self.state, State::Done) else { return };
        let core = &*self.core;
        // A clock that panics does not make it one fewer.
        let now = quietly(|| core.now()).unwrap_or(waiter.since);
        let waited = now.saturating_sub(waiter.since);
        // Before the end is counted: see `Counts::ended`.
        if ending != Ending::HandedOff {
            core.waiters.counts.waited_in_vain(waited);
        } else {
            core.waiters.counts.took(waited);
            #[cfg(feature = "telemetry")]
            if let Some(meters) = &core.meters
                && meters.times()
            {
                meters.waited(waited);
            }
        }
        core.waiters.counts.ended(ending);
        core.tell(EventKind::WaitEnded, self.named());
        if waiter.is_timekeeper() {
            core.hand_over_time(&waiter);
        }
        if let Wish::Matching(filter) = &mut self.wish
            && filter.is_none()
        {
            *filter = waiter.take_filter();
            if filter.is_none() && self.borrows {
                // Somebody is asking it.
                *filter = Some(waiter.await_filter());
            }
        }
        self.unpin();
    }

    pub(super) fn unpin(&mut self) {
        if let Wish::Named(named) = self.wish {
            self.wish = Wish::Best;
            self.core.unpin(*named);
        }
    }
}

impl<C: Deref<Target = Core<R>>, R: Resource> Drop for Pending<C, R> {
    #[inline]
    fn drop(&mut self) {
        if matches!(self.state, State::Waiting(_)) || matches!(self.wish, Wish::Named(_)) {
            self.abandon();
        }
    }
}

impl<C: Deref<Target = Core<R>>, R: Resource> Pending<C, R> {
    #[cold]
    fn abandon(&mut self) {
        if let State::Waiting(waiter) = &self.state {
            let waiter = Arc::clone(waiter);
            match self.withdraw(&waiter) {
                GivenUp::InTime(units) | GivenUp::TooLate(Look::Ready(units)) => self.core.free(units),
                GivenUp::TooLate(Look::Nudged(nudge)) => {
                    self.core.waiters.queue().is_back();
                    self.core.pass_nudge(nudge);
                }
                // A payload nobody hears is user code.
                GivenUp::TooLate(found) => drop(quietly(|| drop(found))),
            }
            self.finish(Ending::Cancelled);
        }
        self.unpin();
    }
}
