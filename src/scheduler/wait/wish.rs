//! What is asked for, and for how long.

use std::time::Duration;

use super::{error::WaitError, filter::Filter, waiter::Named};
use crate::{
    resource::Resource,
    sync::{Proven, Timestamp},
};

/// What is asked for.
pub enum Wish<R: Resource> {
    Best,
    Near(u64),
    /// Pinned until the request ends.
    Named(Proven<Named<R>>),
    /// The filter is here before and after the wait.
    Matching(Option<Filter<R>>),
    Many(usize),
    /// Nothing that could be had.
    Refused(WaitError),
}

/// How long somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    Never,
    At(Timestamp),
    /// From the first attempt on.
    After(Duration),
}

impl<R: Resource> Wish<R> {
    /// Its filter, if it has one and that is here.
    pub fn take_filter(&mut self) -> Option<Filter<R>> {
        if let Wish::Matching(filter) = self { filter.take() } else { None }
    }
}
