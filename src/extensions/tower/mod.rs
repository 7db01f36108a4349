//! A lease for the life of a response: [`tower_service::Service`] and [`tower_layer::Layer`].
//!
//! ```
//! use leasehold::{Entry, Scheduler, tower::{LeaseLayer, Leased}};
//! use std::sync::Arc;
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! type Key = Entry<&'static str, u32, &'static str>;
//! let keys = Arc::new(Scheduler::<Key>::builder().build()?);
//! keys.insert(Entry::new("gold", 1, "sk-1"))?;
//!
//! let mut service = ServiceBuilder::new().layer(LeaseLayer::new(&keys)).service(service_fn(
//!     |Leased { request, lease }: Leased<&'static str, Key>| async move {
//!         Ok::<_, std::io::Error>(format!("{request} with {}", lease.value))
//!     },
//! ));
//! let response = service.ready().await?.call("hello").await?;
//! assert_eq!(*response, "hello with sk-1");
//! assert_eq!(keys.stats().in_flight, 1, "as long as the response is there");
//! drop(response);
//! assert_eq!(keys.stats().in_flight, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # Readiness
//!
//! `poll_ready` waits for the inner service, then for a lease: in the scheduler's queue, fairly, and with its limits. So the lease
//! is there when the service says it is ready, and callers feel the back-pressure that tower is made for. The lease is kept until
//! `call`, or until the service is dropped: do not make a service ready and then put it aside. A clone shares nothing but the scheduler:
//! it stands in the queue for itself.
//!
//! A wait that ends without a lease, because it timed out, was shed or found the queue full, does not make the service unusable, which
//! is what an error of `poll_ready` would say. The service says that it is ready then, and the *call* fails, with a
//! [`WaitError`](crate::WaitError) in the box. That answer is kept until the call, as a lease would be; the next one waits anew. What the
//! inner service had reserved for the call, a permit of a concurrency limit, say, ends with it: the inner service is replaced by a clone of
//! itself, which is why it must be one that can be cloned (tower's `Buffer` makes one of any). A lease that is
//! [taken back](crate::Overdue::Revoke) before the call is asked for anew by the next `poll_ready`, which does not wait, for it has said that it is ready; if
//! there is none, the call fails in the same way, with [`ReleaseError::Revoked`](crate::ReleaseError::Revoked) in the box. Only [`WaitError::Closed`](crate::WaitError::Closed), and an error of the inner
//! service, is an error of `poll_ready`; what was acquired or waited for is given back then.
//!
//! # The life of a response
//!
//! | what holds it | the lease ends |
//! |---|---|
//! | [`WithResponse`], the default | when the response, a [`Held`], is dropped or taken apart |
//! | [`UntilResponse`] | when the response is there |
//! | [`WithBody`], feature `http-body` | when the body of the `http::Response` has ended, has failed, or is dropped |
//!
//! In all cases also when the response's future is dropped or fails. The inner service has a [`LeaseRef`] to the same lease; whoever
//! keeps it beyond that, a task that still works with the resource, say, keeps the lease.
//!
//! # Outcomes
//!
//! [`Classify`] says what a response or error means for the resource; [`ByResult`], the default, finds fault with errors only. It is
//! told when the lease ends. A panic of the inner service or of the body is [`Outcome::Failed`](crate::Outcome::Failed); one of the scheduler's clock, when
//! the lease ends, is no outcome at all. A future that is dropped is [`Outcome::Cancelled`](crate::Outcome::Cancelled); so is a body that is dropped
//! before its end, and a body that fails is [`Outcome::Failed`](crate::Outcome::Failed), if all was well until then.

#[cfg(feature = "http-body")]
mod body;
mod classify;
mod future;
mod held;
mod hold;
mod layer;
mod service;

#[cfg(feature = "http-body")]
pub use body::{HeldBody, WithBody};
pub use classify::{ByResult, Classify};
pub use future::ResponseFuture;
pub use held::{Held, LeaseRef, Leased};
pub use hold::{Hold, UntilResponse, WithResponse};
pub use layer::LeaseLayer;
pub use service::LeaseService;

/// Any error, as tower passes them.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
