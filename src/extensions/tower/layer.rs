//! The settings of a [`LeaseService`].

use std::{fmt, hash::BuildHasher, panic::Location};

use tower_layer::Layer;

use super::{classify::ByResult, hold::WithResponse, service::LeaseService};
use crate::{AcquireOwned, Resource, Scheduler, Timestamp, sync::Arc};

/// Where leases come from, with the type of the hasher forgotten.
pub(super) trait Source<R: Resource>: Send + Sync {
    fn request(&self) -> AcquireOwned<R>;
    fn now(&self) -> Timestamp;
}

struct Requests<R: Resource, S, F> {
    scheduler: Arc<Scheduler<R, S>>,
    request: F,
}

impl<R, S, F> Source<R> for Requests<R, S, F>
where
    R: Resource,
    S: BuildHasher + Send + Sync,
    F: Fn(&Scheduler<R, S>) -> AcquireOwned<R> + Send + Sync,
{
    fn request(&self) -> AcquireOwned<R> {
        (self.request)(&self.scheduler)
    }

    fn now(&self) -> Timestamp {
        self.scheduler.now()
    }
}

/// Wraps services so that each call has a lease: see the [module](super).
pub struct LeaseLayer<R: Resource, H = WithResponse, C = ByResult> {
    source: Arc<dyn Source<R>>,
    hold: H,
    classify: C,
}

impl<R: Resource> LeaseLayer<R> {
    /// On the best resource, waiting as long as it takes. Leases are [recorded](crate::Builder::max_hold) as asked for by whoever calls
    /// this.
    #[track_caller]
    pub fn new<S>(scheduler: &Arc<Scheduler<R, S>>) -> Self
    where
        S: BuildHasher + Send + Sync + 'static,
    {
        let site = Location::caller();
        Self::requesting(scheduler, move |scheduler| scheduler.request().call_site(site).owned())
    }

    /// On what `request` asks for, which is run for each call: with a filter, a class, a timeout.
    ///
    /// A request with a timeout needs a [timer](crate::Builder::timer), as every task that waits.
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler, ThreadTimer, tower::LeaseLayer};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let keys = Scheduler::<Entry<&str, u32, &str>>::builder().timer(ThreadTimer::new()?).build()?;
    /// let patient = LeaseLayer::requesting(&Arc::new(keys), |keys| {
    ///     keys.request().class(1).timeout(Duration::from_secs(2)).owned()
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn requesting<S, F>(scheduler: &Arc<Scheduler<R, S>>, request: F) -> Self
    where
        S: BuildHasher + Send + Sync + 'static,
        F: Fn(&Scheduler<R, S>) -> AcquireOwned<R> + Send + Sync + 'static,
    {
        let source = Arc::new(Requests { scheduler: Arc::clone(scheduler), request });
        LeaseLayer { source, hold: WithResponse, classify: ByResult }
    }
}

impl<R: Resource, H, C> LeaseLayer<R, H, C> {
    /// What holds the lease. Default: [`WithResponse`].
    pub fn hold<H2>(self, hold: H2) -> LeaseLayer<R, H2, C> {
        LeaseLayer { source: self.source, hold, classify: self.classify }
    }

    /// What a response or an error means for the resource. Default: [`ByResult`].
    pub fn classify<C2>(self, classify: C2) -> LeaseLayer<R, H, C2> {
        LeaseLayer { source: self.source, hold: self.hold, classify }
    }
}

impl<R: Resource, H: Clone, C: Clone> Clone for LeaseLayer<R, H, C> {
    fn clone(&self) -> Self {
        LeaseLayer {
            source: Arc::clone(&self.source),
            hold: self.hold.clone(),
            classify: self.classify.clone(),
        }
    }
}

impl<T, R: Resource, H: Clone, C: Clone> Layer<T> for LeaseLayer<R, H, C> {
    type Service = LeaseService<T, R, H, C>;

    fn layer(&self, inner: T) -> LeaseService<T, R, H, C> {
        LeaseService::new(inner, Arc::clone(&self.source), self.hold.clone(), self.classify.clone())
    }
}

impl<R: Resource, H: fmt::Debug, C> fmt::Debug for LeaseLayer<R, H, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseLayer").field("hold", &self.hold).finish_non_exhaustive()
    }
}
