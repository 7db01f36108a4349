//! What every guard of a lease holds.

use std::ptr::NonNull;

use super::token::Ticket;
use crate::{
    node::{Node, Value},
    resource::Resource,
    shard::{Bare, Lent},
};

/// The resource of a unit that was taken and is nobody's lease yet.
#[allow(unsafe_code)]
pub fn node_of<R: Resource>(lent: &Lent<R>) -> &Node<R> {
    // SAFETY: rule 5 of `node`: the unit keeps it.
    unsafe { lent.node.as_ref() }
}

/// The part of a lease that is the same for all kinds of guards.
pub struct Held<R: Resource> {
    pub node: NonNull<Node<R>>,
    pub value: NonNull<Value<R>>,
    /// The entry and generation of the token that was minted from the live guard.
    pub token: Option<(u32, u32)>,
    /// As [`Lent::exclusive`].
    pub exclusive: bool,
    /// A nanosecond after the lease began, if it is measured; else 0. With [`MARK`](super::order::MARK) the return begins a sample of the delay.
    #[cfg(feature = "telemetry")]
    pub since: u64,
}

// SAFETY: both pointers are to data that is `Send + Sync` and kept alive by the unit of capacity (rules 5 and 6 of `node`).
#[allow(unsafe_code)]
unsafe impl<R: Resource> Send for Held<R> {}
// SAFETY: as above; a shared `Held` gives shared access only.
#[allow(unsafe_code)]
unsafe impl<R: Resource> Sync for Held<R> {}

impl<R: Resource> Held<R> {
    pub fn new(lent: &Lent<R>) -> Self {
        Self::of((lent.node, lent.value), lent.exclusive)
    }

    /// Of which nothing is recorded.
    #[inline(always)]
    pub fn of((node, value): Bare<R>, exclusive: bool) -> Self {
        Held {
            node,
            value,
            token: None,
            exclusive,
            #[cfg(feature = "telemetry")]
            since: 0,
        }
    }

    /// What its token stands for.
    pub fn ticket(&self) -> Ticket<R> {
        Ticket {
            node: self.node,
            value: self.value,
            exclusive: self.exclusive,
            #[cfg(feature = "telemetry")]
            since: self.since,
        }
    }

    #[inline]
    pub fn node(&self) -> &Node<R> {
        // SAFETY: rule 5 of `node`: the unit of capacity, or the pin of the token, keeps it.
        #[allow(unsafe_code)]
        unsafe {
            self.node.as_ref()
        }
    }

    #[inline]
    pub fn value(&self) -> &Value<R> {
        // SAFETY: rule 6 of `node`: the unit of capacity, or the pin of the token, keeps it.
        #[allow(unsafe_code)]
        unsafe {
            self.value.as_ref()
        }
    }

    #[inline]
    pub fn resource(&self) -> &R {
        self.value().resource()
    }
}
