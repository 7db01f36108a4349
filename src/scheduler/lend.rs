//! The scheduler behind the trait that the yardsticks implement, so that one program can drive either.

use std::{hash::BuildHasher, time::Duration};

use super::{AcquireError, Lease, Scheduler};
use crate::{
    baseline::{Lend, Lent, Unavailable},
    outcome::Outcome,
    resource::Resource,
};

impl<R: Resource, S: BuildHasher + Send + Sync> Lend<R> for Scheduler<R, S> {
    type Lease<'a>
        = Lease<'a, R>
    where
        Self: 'a,
        R: 'a;

    fn insert(&self, resource: R) -> Result<(), R> {
        Scheduler::insert(self, resource).map_err(|rejected| rejected.returned)
    }

    fn insert_batch(&self, resources: Vec<R>) -> Result<(), Vec<R>> {
        Scheduler::insert_batch(self, resources).map(drop).map_err(|rejected| rejected.returned)
    }

    fn update(&self, resource: R) -> Result<(), R> {
        Scheduler::update(self, resource).map_err(|rejected| rejected.returned)
    }

    fn remove(&self, key: &R::Key) -> bool {
        Scheduler::remove(self, key).is_ok()
    }

    fn len(&self) -> usize {
        Scheduler::len(self)
    }

    #[inline]
    #[track_caller]
    fn acquire(&self) -> Result<Lease<'_, R>, Unavailable> {
        Scheduler::acquire(self).map_err(unavailable)
    }

    #[track_caller]
    fn acquire_key(&self, key: &R::Key) -> Option<Lease<'_, R>> {
        Scheduler::acquire_key(self, key).ok()
    }

    #[track_caller]
    fn acquire_excluding(&self, keys: &[R::Key]) -> Result<Lease<'_, R>, Unavailable> {
        Scheduler::acquire_excluding(self, keys).map_err(unavailable)
    }

    fn peek_with<T>(&self, f: impl FnOnce(&R) -> T) -> Option<T> {
        self.peek().map(|peek| f(&peek))
    }

    fn get_with<T>(&self, key: &R::Key, f: impl FnOnce(&R) -> T) -> Option<T> {
        self.get(key).map(|peek| f(&peek))
    }

    fn exclude(&self, key: &R::Key) -> bool {
        Scheduler::exclude(self, key).is_ok_and(|changed| changed)
    }

    fn include(&self, key: &R::Key) -> bool {
        Scheduler::include(self, key).is_ok_and(|changed| changed)
    }

    fn cool(&self, key: &R::Key, duration: Duration) -> bool {
        Scheduler::cool(self, key, duration).is_ok_and(|changed| changed)
    }
}

impl<R: Resource> Lent<R> for Lease<'_, R> {
    fn finish(self, outcome: Outcome) {
        Lease::finish(self, outcome);
    }
}

fn unavailable(error: AcquireError) -> Unavailable {
    match error {
        AcquireError::NoneEligible(none) => Unavailable { earliest: none.earliest },
        // No deadline will open a closed scheduler or mend a strategy.
        _ => Unavailable { earliest: None },
    }
}
