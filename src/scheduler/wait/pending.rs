//! One request from its first attempt to its end, for threads and tasks alike.

mod ending;

use std::{
    any::Any,
    mem,
    ops::Deref,
    panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind},
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::{
    Newcomer,
    error::WaitError,
    stats::Ending,
    waiter::{Look, Named, Units, Waiter, Want},
    wish::{Until, Wish},
};
use crate::{
    events::EventKind,
    node::{Node, quietly},
    resource::Resource,
    scheduler::{
        acquire::Got,
        core::{Core, open},
        error::AcquireError,
    },
    shard::{Bare, Lent, NEVER},
    sync::{Arc, Proven, Timestamp},
};

enum State<R: Resource> {
    Fresh,
    Waiting(Proven<Arc<Waiter<R>>>),
    Done,
}

type Ended<R> = Result<Units<R>, WaitError>;

/// What has come of the beginning.
enum Begun<R: Resource> {
    /// It does not wait.
    Ended(Ended<R>),
    /// It waits, and has done nothing that may have ended the wait.
    Waits,
    /// It waits, unless what it has found itself was for it.
    HasLooked,
}

/// A request. Dropped at any moment, it leaves nothing behind: neither a unit nor a wake-up nor a pin.
pub struct Pending<C: Deref<Target = Core<R>>, R: Resource> {
    pub core: C,
    pub wish: Wish<R>,
    pub class: u8,
    pub until: Until,
    /// Where in the program it was asked for.
    pub site: &'static Location<'static>,
    state: State<R>,
    /// The filter borrows: it must be here again when this is dropped.
    pub borrows: bool,
}

impl<C: Deref<Target = Core<R>>, R: Resource> Pending<C, R> {
    #[inline]
    #[track_caller]
    pub fn new(core: C) -> Self {
        Pending {
            core,
            wish: Wish::Best,
            class: 0,
            until: Until::Never,
            site: Location::caller(),
            state: State::Fresh,
            borrows: false,
        }
    }

    /// The same request, with its core held in another way.
    #[inline]
    pub fn with_core<D: Deref<Target = Core<R>>>(mut self, core: D) -> Pending<D, R> {
        debug_assert!(matches!(self.state, State::Fresh), "before the first attempt");
        let wish = mem::replace(&mut self.wish, Wish::Best);
        Pending {
            core,
            wish,
            class: self.class,
            until: self.until,
            site: self.site,
            state: State::Fresh,
            borrows: self.borrows,
        }
    }

    /// What it asks for, instead of what it asked for before.
    pub fn ask(&mut self, wish: Wish<R>) {
        self.unpin();
        self.wish = wish;
    }

    /// As [`Core::lend_usual`], if this is the first poll and nobody waits; otherwise, and if that is not to be had, `None`, and
    /// [`poll_one`](Self::poll_one) goes on from where it has got.
    #[inline]
    pub fn lend_usual(&mut self, got: &mut Got) -> Option<Bare<R>> {
        if !self.may_take_at_once() {
            return None;
        }
        let lent = self.core.lend_usual(got)?;
        self.state = State::Done;
        Some(lent)
    }

    #[inline]
    fn may_take_at_once(&self) -> bool {
        matches!((&self.state, &self.wish), (State::Fresh, Wish::Best)) && self.core.waiters.gate().is_free()
    }

    /// Waits for one unit, as a task. If nobody waits and something is free, it costs what an acquisition costs that does not wait:
    /// nothing that is made for other wishes is moved through memory.
    pub fn poll_one(&mut self, context: &Context<'_>, got: Got) -> Poll<Result<Lent<R>, WaitError>> {
        // The usual end of a wait, in short.
        if let State::Waiting(waiter) = &self.state
            && let Some(lent) = waiter.take_only()
        {
            self.finish(Ending::HandedOff);
            return Poll::Ready(Ok(lent));
        }
        let at_once = self.may_take_at_once();
        if at_once {
            match self.core.lend_sampled(got) {
                Ok(lent) => {
                    self.state = State::Done;
                    return Poll::Ready(Ok(lent));
                }
                Err(error) => {
                    if let Some(error) = unless_none(error) {
                        self.state = State::Done;
                        return Poll::Ready(Err(error));
                    }
                }
            }
        }
        self.poll_slowly(context.waker(), at_once).map(|ended| ended.map(Units::only))
    }

    /// Waits, as a task.
    pub fn poll(&mut self, context: &Context<'_>) -> Poll<Ended<R>> {
        self.poll_slowly(context.waker(), false)
    }

    #[cold]
    fn poll_slowly(&mut self, waker: &Waker, has_tried: bool) -> Poll<Ended<R>> {
        if matches!(self.state, State::Fresh) {
            let begun = if has_tried { self.register(Some(waker), true) } else { self.begin(Some(waker)) };
            match begun {
                Begun::Ended(ended) => return Poll::Ready(self.end(ended)),
                // It has come with its waker: whoever has ended the wait meanwhile has woken the task.
                Begun::Waits => return self.poll_in_vain(waker),
                Begun::HasLooked => {}
            }
        }
        if let Some(ended) = self.check(Some(waker)) {
            return Poll::Ready(self.end(ended));
        }
        self.poll_in_vain(waker)
    }

    /// It has not ended. But what is due may end it, or its deadline.
    fn poll_in_vain(&mut self, waker: &Waker) -> Poll<Ended<R>> {
        if self.core.catch_up()
            && let Some(ended) = self.check(Some(waker))
        {
            return Poll::Ready(self.end(ended));
        }
        let deadline = self.waiter().deadline;
        if deadline != NEVER && self.core.now() >= deadline {
            let ended = self.time_out();
            return Poll::Ready(self.end(ended));
        }
        Poll::Pending
    }

    /// Waits, as a thread.
    pub fn wait(mut self) -> Ended<R> {
        if let Begun::Ended(ended) = self.begin(None) {
            return self.end(ended);
        }
        loop {
            if let Some(ended) = self.check(None) {
                return self.end(ended);
            }
            let waiter = self.waiter();
            let until = self.core.sleep_until(waiter);
            let mut limit = None;
            if until != NEVER {
                let now = self.core.now();
                if waiter.deadline <= now {
                    // What was due before may be for us.
                    let ended = if self.core.catch_up() { self.check(None) } else { None };
                    let ended = ended.unwrap_or_else(|| self.time_out());
                    return self.end(ended);
                }
                if until <= now {
                    let _ = self.core.tick();
                    continue;
                }
                limit = Some(Duration::from_nanos(until - now));
            }
            waiter.sleep(limit);
        }
    }

    fn waiter(&self) -> &Arc<Waiter<R>> {
        match &self.state {
            State::Waiting(waiter) => waiter,
            State::Fresh => unreachable!("it has begun"),
            State::Done => panic!("polled after it has ended"),
        }
    }

    /// One attempt that does not wait; `Err(None)` if there is nothing now.
    #[inline]
    fn try_now(&mut self) -> Result<Units<R>, Option<WaitError>> {
        let core = &*self.core;
        let lent = match &mut self.wish {
            Wish::Best => core.lend_sampled(Got::Nowhere),
            Wish::Near(hash) => core.lend_by_affinity(*hash),
            Wish::Matching(filter) => {
                let filter = filter.as_mut().expect("it is here before the wait");
                core.lend_where(&mut |_, resource| filter.accepts(resource))
            }
            Wish::Named(named) => {
                open(core).map_err(unless_none)?;
                core.thaw_due();
                return core
                    .take_named_or_reap(named.node())
                    .map(Units::one)
                    .map_err(|state| state.is_removed().then_some(WaitError::NotFound));
            }
            Wish::Many(count) => {
                open(core).map_err(unless_none)?;
                return try_many(core, *count);
            }
            Wish::Refused(error) => {
                open(core).map_err(unless_none)?;
                return Err(Some(error.clone()));
            }
        };
        lent.map(Units::one).map_err(unless_none)
    }

    /// The first attempt; if it is in vain, N1 and N2.
    #[inline]
    fn begin(&mut self, waker: Option<&Waker>) -> Begun<R> {
        // Nobody overtakes those who wait already, but in a race to read this word.
        let tries = self.core.waiters.gate().is_free() || !self.core.waiters.is_strict();
        if tries || matches!(self.wish, Wish::Refused(_)) {
            match self.try_now() {
                Ok(units) => return Begun::Ended(Ok(units)),
                Err(Some(error)) => return Begun::Ended(Err(error)),
                Err(None) => {}
            }
        }
        self.register(waker, tries)
    }

    #[cold]
    fn register(&mut self, waker: Option<&Waker>, has_tried: bool) -> Begun<R> {
        let core = &*self.core;
        let now = core.now();
        let deadline = match self.until {
            Until::Never => NEVER,
            Until::At(moment) => moment.as_nanos(),
            // One less than "never": it is a moment, if a late one.
            Until::After(after) => Timestamp::from_nanos(now).saturating_add(after).as_nanos().min(NEVER - 1),
        };
        let want = match &self.wish {
            Wish::Best => Want::Best,
            Wish::Near(hash) => Want::Near(*hash),
            Wish::Named(named) => Want::Named(**named),
            Wish::Matching(_) => Want::Matching,
            Wish::Many(0) => return Begun::Ended(Ok(Units::none())),
            Wish::Many(1) => Want::Best,
            Wish::Many(count) => Want::Many(*count),
            Wish::Refused(_) => unreachable!("it was not let in"),
        };
        let newcomer = Newcomer {
            class: self.class,
            units: if let Want::Many(count) = want { count as u64 } else { 1 },
            takes_any: !matches!(want, Want::Named(_) | Want::Matching),
            now,
            deadline,
            rests_until: (core.waiters.rules.shed_late && deadline != NEVER)
                .then(|| match &want {
                    Want::Named(named) => core.rests_alone_beyond(named.node(), deadline),
                    _ => core.rests_beyond(deadline),
                })
                .flatten(),
        };
        // Before the mutex is taken: user code, and an allocation.
        let mut waiter = Arc::new(Waiter::new(want, deadline, now, waker.cloned()));
        let (overdue, let_in, untold) = {
            let mut queue = core.waiters.queue();
            if queue.is_closed {
                return Begun::Ended(Err(WaitError::Closed));
            }
            // Nobody is kept out by those whose time is over, though no timer has called for them.
            let is_full = queue.waiting() >= core.waiters.rules.max;
            let overdue = if is_full { queue.leave_overdue(now) } else { Vec::new() };
            let let_in = match core.waiters.rules.refuse(&mut queue, &newcomer) {
                Some(refusal) => Err(refusal),
                None => {
                    if newcomer.takes_any && queue.is_open_empty() {
                        queue.pace.start(now);
                    }
                    Arc::get_mut(&mut waiter).expect("nobody else has it yet").order =
                        queue.arrive(self.class);
                    Ok(queue.insert(&waiter))
                }
            };
            (overdue, let_in, queue.forget_lost_calls(now))
        };
        if let_in.is_ok() {
            // At once: from here on, whatever happens, somebody has to take it out again.
            self.state = State::Waiting(Proven::new(waiter));
            core.waiters.counts.began();
            core.tell(EventKind::WaitStarted, self.named());
        }
        // Before anybody's filter, which may take its time. And it is as a rule the earliest moment, which makes a second call needless.
        self.core.ask_anew(untold);
        self.core.fail_overdue(overdue, now);
        let looks = match let_in {
            Ok(looks) => looks,
            Err(refusal) => return Begun::Ended(self.turn_away(refusal, has_tried)),
        };
        if looks {
            let waiter = Arc::clone(self.waiter());
            self.look_for(&waiter);
        }
        self.core.tell_time(self.waiter());
        if looks { Begun::HasLooked } else { Begun::Waits }
    }

    /// It is not let in. What nobody who waits has wanted may be free all the same: it is had as by a passer-by.
    fn turn_away(&mut self, refusal: WaitError, has_tried: bool) -> Ended<R> {
        // Who is shed because everything rests and nothing is out may have tried before the last lease came back.
        let is_shed = matches!(refusal, WaitError::Shed { .. });
        if !has_tried || is_shed {
            match self.try_now() {
                Ok(units) => return Ok(units),
                Err(Some(error)) => return Err(error),
                Err(None) => {}
            }
        }
        let counts = &self.core.waiters.counts;
        if is_shed {
            counts.shed()
        } else {
            counts.refused()
        }
        Err(refusal)
    }

    fn look_for(&mut self, waiter: &Arc<Waiter<R>>) {
        let filter = self.wish.take_filter();
        self.core.look_for(waiter, filter);
    }

    /// Whether the wait has ended; if not, the waker is left.
    fn check(&mut self, waker: Option<&Waker>) -> Option<Ended<R>> {
        let mut has_looked = false;
        loop {
            let waiter = self.waiter();
            let found = match waker {
                Some(waker) => waiter.look_or_leave(waker),
                None => waiter.look(),
            };
            match found {
                Look::Waiting => return None,
                Look::Overlooked if has_looked => {
                    // It comes back to that: others are to keep it neither from its deadline nor, if it is a task, from giving way.
                    waiter.overlook();
                    if let Some(waker) = waker {
                        waker.wake_by_ref();
                    }
                    return None;
                }
                Look::Overlooked => {
                    has_looked = true;
                    self.look_anew();
                }
                found => {
                    if let Some(ended) = self.hear(found, waker) {
                        return Some(ended);
                    }
                }
            }
        }
    }

    /// F7.
    #[cold]
    fn look_anew(&mut self) {
        let waiter = Arc::clone(self.waiter());
        let filter = self.core.waiters.queue().look_anew(&waiter);
        if filter.is_some() {
            self.core.look_for(&waiter, filter);
        }
    }

    /// What was found ends the wait, or after a nudge in vain does not.
    fn hear(&mut self, found: Look<R>, waker: Option<&Waker>) -> Option<Ended<R>> {
        let ended = match found {
            Look::Waiting | Look::Overlooked => return None,
            Look::Ready(units) => Ok(units),
            Look::Failed(error) => Err(error),
            Look::Panicked(payload) => self.go_on_panicking(payload),
            Look::Nudged(nudge) => return self.try_after_nudge(nudge, waker),
        };
        Some(ended)
    }

    fn go_on_panicking(&mut self, payload: Box<dyn Any + Send>) -> ! {
        self.finish(Ending::Failed);
        resume_unwind(payload);
    }

    fn try_after_nudge(&mut self, nudge: Named<R>, waker: Option<&Waker>) -> Option<Ended<R>> {
        let waiter = Arc::clone(self.waiter());
        if let Wish::Matching(filter) = &mut self.wish {
            *filter = waiter.take_filter();
        }
        // The new waker is cloned in here as well: it is user code.
        let tried = catch_unwind(AssertUnwindSafe(|| match self.try_now() {
            Err(None) => Err((None, waker.cloned())),
            Err(Some(error)) => Err((Some(error), None)),
            Ok(units) => Ok(units),
        }));
        if !matches!(tried, Ok(Err((None, _)))) {
            let takes_any = !matches!(self.wish, Wish::Named(_) | Wish::Matching(_));
            let measures =
                takes_any && tried.as_ref().is_ok_and(Result::is_ok) && self.core.waiters.rules.shed_late;
            let now = if measures { quietly(|| self.core.now()) } else { None };
            let mut queue = self.core.waiters.queue();
            queue.is_back();
            if let Some(now) = now {
                queue.pace.tick(now);
            }
        }
        match tried {
            Ok(Ok(units)) => {
                // What it was woken for may still be there, if it has taken something else.
                if units.first.as_ref().is_some_and(|lent| lent.node.addr().get() == nudge.address()) {
                    self.core.unpin(nudge);
                } else {
                    self.core.pass_nudge(nudge);
                }
                Some(Ok(units))
            }
            Ok(Err((None, waker))) => {
                // It is gone, or not what this one wants any more; while he is in no queue, so that he is not woken for it again.
                self.core.pass_nudge(nudge);
                waiter.wait_again(waker);
                {
                    let mut queue = self.core.waiters.queue();
                    queue.is_back();
                    if queue.is_closed {
                        drop(queue);
                        let _ = waiter.give_up();
                        return Some(Err(WaitError::Closed));
                    }
                    queue.insert(&waiter);
                }
                self.look_for(&waiter);
                self.core.tell_time(&waiter);
                None
            }
            Ok(Err((Some(error), _))) => {
                self.core.pass_nudge(nudge);
                Some(Err(error))
            }
            Err(payload) => {
                self.core.pass_nudge(nudge);
                self.go_on_panicking(payload)
            }
        }
    }

    /// The resource that is waited for by name. It is pinned.
    fn named(&self) -> Option<&Node<R>> {
        if let Wish::Named(named) = &self.wish { Some(named.node()) } else { None }
    }
}

fn unless_none(error: AcquireError) -> Option<WaitError> {
    match error {
        AcquireError::NoneEligible(_) => None,
        AcquireError::Closed => Some(WaitError::Closed),
        AcquireError::Strategy { chosen, shards } => Some(WaitError::Strategy { chosen, shards }),
    }
}

fn try_many<R: Resource>(core: &Core<R>, count: usize) -> Result<Units<R>, Option<WaitError>> {
    /// Returned if there are too few, or if user code panics.
    struct Taken<'a, R: Resource>(&'a Core<R>, Units<R>);
    impl<R: Resource> Drop for Taken<'_, R> {
        fn drop(&mut self) {
            self.0.free(mem::replace(&mut self.1, Units::none()));
        }
    }
    let mut taken = Taken(core, Units::none());
    for _ in 0..count {
        let lent: Lent<R> = core.lend_sampled(Got::Nowhere).map_err(unless_none)?;
        taken.1.push(lent);
    }
    Ok(mem::replace(&mut taken.1, Units::none()))
}
