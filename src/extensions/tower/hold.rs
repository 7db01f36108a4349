//! How long a response holds its lease.

use super::held::{Held, LeaseRef};
use crate::Resource;

/// Says what holds the lease once the inner service has answered.
pub trait Hold<Response, R: Resource> {
    /// What the caller gets.
    type Held;

    /// Makes it. The lease ends when everything that was made of `lease` is dropped.
    fn hold(&self, response: Response, lease: LeaseRef<R>) -> Self::Held;
}

/// The lease is held as long as the response is there: it is wrapped in a [`Held`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithResponse;

/// The lease is held until the response is there, which is passed on as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UntilResponse;

impl<Response, R: Resource> Hold<Response, R> for WithResponse {
    type Held = Held<Response, R>;

    fn hold(&self, response: Response, lease: LeaseRef<R>) -> Held<Response, R> {
        Held::new(response, lease)
    }
}

impl<Response, R: Resource> Hold<Response, R> for UntilResponse {
    type Held = Response;

    fn hold(&self, response: Response, _: LeaseRef<R>) -> Response {
        response
    }
}
