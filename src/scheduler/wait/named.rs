//! Taking one certain resource.

use crate::{
    node::{Node, Standing, State, Value},
    resource::Resource,
    scheduler::core::Core,
    shard::{Lent, NEVER, Pin},
};

impl<R: Resource> Core<R> {
    /// Takes a unit of one resource; else says how it stands.
    #[inline]
    pub fn take_named(&self, node: &Node<R>) -> Result<Lent<R>, State> {
        self.settle(node);
        let result = self.lock(self.home(node)).lend(node);
        match result {
            // Only a moment stands in the way: it may have come.
            Err(state) if self.comes_back(node, state) != NEVER => {
                self.take_due(node, None, self.now(), &self.pin())
            }
            result => result,
        }
    }

    /// As [`take_named`](Self::take_named), and if all its units are lent, what is overdue is taken back first.
    #[inline]
    pub fn take_named_or_reap(&self, node: &Node<R>) -> Result<Lent<R>, State> {
        match self.take_named(node) {
            Err(state) if state.standing() == Standing::AtCapacity && self.reap_for_more() => {
                self.take_named(node)
            }
            result => result,
        }
    }

    /// Takes a unit of a resource for which something may be due by `now`, out of its turn. With `expected`, which the guard keeps, only if
    /// that is its value.
    pub fn take_due(
        &self,
        node: &Node<R>,
        expected: Option<&Value<R>>,
        now: u64,
        guard: &Pin<'_>,
    ) -> Result<Lent<R>, State> {
        self.let_back(node, now);
        let result = self.lend_if_due(node, expected, now, guard);
        // It may have more units; or it is free now, and has another value.
        self.offer_node(node, guard);
        result
    }

    /// Lends a resource, which may have cooled for long enough by `now`: it is warmed up then. But what it has is for those who wait,
    /// first.
    fn lend_if_due(
        &self,
        node: &Node<R>,
        expected: Option<&Value<R>>,
        now: u64,
        guard: &Pin<'_>,
    ) -> Result<Lent<R>, State> {
        let is_another = || expected.is_some_and(|value| !std::ptr::eq(node.value_ptr().as_ptr(), value));
        let mut locked = self.lock(self.home(node));
        if is_another() {
            return Err(node.state.load());
        }
        locked.warm_if_due(node, now);
        // Not while all who wait want something certain: each would be asked about all that is due, and `Strict` promises no more.
        if self.waiters.hands_on() {
            let taken = self.take_for_waiters(&mut locked, node);
            drop(locked);
            self.hand_on(taken, node, guard);
            locked = self.lock(self.home(node));
            if is_another() {
                return Err(node.state.load());
            }
        }
        locked.lend(node)
    }
}
