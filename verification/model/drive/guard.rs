//! A lease, borrowed or owned, with what the oracle knows of it.

use std::ops::Deref;

use leasehold::{Lease, OwnedLease, Token};

use super::super::{
    op::Ended,
    oracle::LeaseFacts,
    resource::{Item, Key},
};

pub(super) enum Guard<'s> {
    Borrowed(Lease<'s, Item>),
    Owned(OwnedLease<Item>),
}

impl Deref for Guard<'_> {
    type Target = Item;

    fn deref(&self) -> &Item {
        match self {
            Guard::Borrowed(lease) => lease,
            Guard::Owned(lease) => lease,
        }
    }
}

impl Guard<'_> {
    pub(super) fn key(&self) -> &Key {
        match self {
            Guard::Borrowed(lease) => lease.key(),
            Guard::Owned(lease) => lease.key(),
        }
    }

    pub(super) fn shard(&self) -> usize {
        match self {
            Guard::Borrowed(lease) => lease.shard(),
            Guard::Owned(lease) => lease.shard(),
        }
    }

    pub(super) fn token(&mut self) -> Token {
        match self {
            Guard::Borrowed(lease) => lease.token(),
            Guard::Owned(lease) => lease.token(),
        }
    }

    pub(super) fn into_token(self) -> Token {
        match self {
            Guard::Borrowed(lease) => lease.into_token(),
            Guard::Owned(lease) => lease.into_token(),
        }
    }

    pub(super) fn end(self, ended: Ended) {
        match (self, ended) {
            (guard, Ended::Dropped) => drop(guard),
            (Guard::Borrowed(lease), Ended::Released) => lease.release(),
            (Guard::Owned(lease), Ended::Released) => lease.release(),
            (Guard::Borrowed(lease), Ended::After(span)) => lease.release_after(span),
            (Guard::Owned(lease), Ended::After(span)) => lease.release_after(span),
            (Guard::Borrowed(lease), Ended::Finished(outcome)) => lease.finish(outcome),
            (Guard::Owned(lease), Ended::Finished(outcome)) => lease.finish(outcome),
        }
    }
}

pub(super) struct Held<'s> {
    pub(super) guard: Guard<'s>,
    pub(super) facts: LeaseFacts,
    pub(super) token: Option<Token>,
}

impl Held<'_> {
    /// The holder sees what was lent, whatever has happened to the resource since.
    pub(super) fn check(&self) {
        assert_eq!(self.guard.version, self.facts.version, "a lease keeps its value");
        assert_eq!(self.guard.spec.key, self.facts.key);
        assert_eq!(self.guard.key().0, self.facts.key);
        assert_eq!(self.guard.shard(), self.facts.shard);
    }
}
