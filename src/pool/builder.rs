//! How a pool is set up.

use std::{fmt, io, time::Duration};

use super::{
    Ending, Metrics, NoMetrics, Pool, RejectReason,
    beds::Beds,
    core::{Core, Handler, OPEN, Waiting},
    keeper::{self, Keeper, Scaling},
    life::{self, Life, Thread},
    queue::{BucketQueue, SEGMENT_SLOTS, SegmentedQueue},
    room::Room,
    tray::Tray,
    worker::{BATCH, HeldUp, Pace},
};
use crate::sync::{
    Arc, CachePadded, Clock, Condvar, MonotonicClock, Mutex,
    atomic::{AtomicBool, AtomicU32},
    count::AtomicU64,
    parallelism,
};

/// The order in which jobs are begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// First in, first out: a [`SegmentedQueue`]. Lock-free.
    #[default]
    Fifo,
    /// By [`JobPriority`](super::JobPriority), with ageing: a [`BucketQueue`], which has the bound on how many come first. What workers have taken and not
    /// begun, up to 64 jobs each, comes before what is in the queue, however urgent.
    Priority,
}

/// Sets up a [`Pool`]; made by [`Pool::builder`].
#[must_use]
pub struct Builder<T, M = NoMetrics> {
    least: usize,
    most: usize,
    capacity: Option<usize>,
    segment: usize,
    order: Order,
    utilisation: f64,
    delay: Duration,
    rest: Duration,
    idle: Duration,
    pinned: bool,
    handler: Option<Handler<T>>,
    clock: Option<Box<dyn Clock>>,
    metrics: M,
}

/// Why a pool was not built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// A number of workers is out of range, or the least is greater than the most.
    Workers {
        /// The least number asked for.
        least: usize,
        /// The most asked for.
        most: usize,
    },
    /// The capacity is out of range: at least 1; with [`Order::Priority`] there must be one, of at most
    /// [`BucketQueue::MAX_CAPACITY`](super::BucketQueue::MAX_CAPACITY).
    Capacity(Option<usize>),
    /// The slots of a segment are out of range: 1 to 65,536.
    SegmentSlots(usize),
    /// The share of the capacity is not within 0 to 1.
    Utilisation(f64),
    /// The system started no thread.
    Thread(io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Workers { least, most } => write!(
                f,
                "{least} to {most} workers: allowed are 1 to {}, the least not above the most",
                super::MAX_WORKERS
            ),
            BuildError::Capacity(None) => f.write_str("a queue by priority needs a capacity"),
            BuildError::Capacity(Some(capacity)) => write!(
                f,
                "a capacity of {capacity}: allowed are 1 and more, by priority up to {}",
                BucketQueue::<()>::MAX_CAPACITY
            ),
            BuildError::SegmentSlots(slots) => {
                write!(f, "segments of {slots} slots: allowed are 1 to 65536")
            }
            BuildError::Utilisation(share) => write!(f, "a utilisation of {share}: allowed are 0 to 1"),
            BuildError::Thread(error) => write!(f, "no thread: {error}"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BuildError::Thread(error) => Some(error),
            _ => None,
        }
    }
}

impl<T: Send + 'static> Builder<T> {
    pub(super) fn new() -> Self {
        let workers = parallelism();
        Builder {
            least: workers,
            most: workers,
            capacity: Some(1_000),
            segment: SEGMENT_SLOTS,
            order: Order::Fifo,
            utilisation: 0.7,
            delay: Duration::from_millis(100),
            rest: Duration::from_secs(5),
            idle: Duration::from_secs(30),
            pinned: false,
            handler: None,
            clock: None,
            metrics: NoMetrics,
        }
    }
}

impl<T: Send + 'static, M: Metrics> Builder<T, M> {
    /// So many workers, always. Default: as many as the machine runs at once.
    pub fn workers(self, workers: usize) -> Self {
        self.adaptive(workers, workers)
    }

    /// As many workers as are needed, within these bounds; begins with the least.
    pub fn adaptive(mut self, least: usize, most: usize) -> Self {
        (self.least, self.most) = (least, most);
        self
    }

    /// How many jobs may wait. Default: 1,000.
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.capacity = Some(capacity);
        self
    }

    /// As many jobs may wait as there is memory for. Only with [`Order::Fifo`].
    pub fn unbounded(mut self) -> Self {
        self.capacity = None;
        self
    }

    /// In which order jobs are begun. Default: first in, first out.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Slots in a segment of the queue; only with [`Order::Fifo`]. Default: 64.
    pub fn segment_slots(mut self, slots: usize) -> Self {
        self.segment = slots;
        self
    }

    /// From which share of the capacity on there are too few workers. Default: 0.7. Only with [`adaptive`](Self::adaptive), as the next
    /// three.
    pub fn scale_up_at(mut self, utilisation: f64) -> Self {
        self.utilisation = utilisation;
        self
    }

    /// How long what is in the queue may stay there until there are too few workers: any job, also one that more urgent ones overtake. Default: 100 ms.
    pub fn scale_up_after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// From one increase to the next. One that the system has refused, for it starts no more threads, is none: it is tried again a tenth of a second later,
    /// and counted ([`PoolStats::unstarted`](super::PoolStats::unstarted)). Default: 5 s.
    pub fn scale_rest(mut self, rest: Duration) -> Self {
        self.rest = rest;
        self
    }

    /// How long a worker may sleep until there are too many. Default: 30 s.
    pub fn idle_for(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// Pins worker i to the i-th of the processors that the thread which builds the pool may use at that time, counted round; each keeps to it for life.
    /// Those may be fewer than the process has: a worker inherits the set of the thread that starts it, the builder's or the keeper's, which has it from
    /// there. Needs the feature `pinning`; does nothing without it, and where the system cannot. Default: off.
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.pinned = pinned;
        self
    }

    /// Sets what is told of each job that fails or panics, with its payload, before its cleanup; and, after it, of each cleanup that panics. It runs in
    /// the worker; a panic in it stops there. A job that is dropped without having been run has no worker, and nothing is told of it here.
    pub fn on_failure(mut self, handler: impl Fn(&T, &Ending) + Send + Sync + 'static) -> Self {
        self.handler = Some(Box::new(handler));
        self
    }

    /// Sets the clock, which is read if times are taken, when a worker lies down, and by the keeper; how long jobs take, on which the size of batches
    /// depends, is measured by the machine's own. The limits of
    /// [`shutdown`](Pool::shutdown) and [`submit_timeout`](Pool::submit_timeout) are of its time too: by a clock that stands still they never
    /// come. Threads sleep by the machine's, for as long as this one says is left: one that is set forward meanwhile is seen when they wake. If it panics, so does the submission or the shutdown that has asked it, and a job that was being submitted is dropped; the threads of
    /// the pool go on without the moment.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Sets who is told what happens. Default: [`NoMetrics`].
    pub fn metrics<N: Metrics>(self, metrics: N) -> Builder<T, N> {
        Builder {
            least: self.least,
            most: self.most,
            capacity: self.capacity,
            segment: self.segment,
            order: self.order,
            utilisation: self.utilisation,
            delay: self.delay,
            rest: self.rest,
            idle: self.idle,
            pinned: self.pinned,
            handler: self.handler,
            clock: self.clock,
            metrics,
        }
    }

    fn queue(&self) -> Result<Waiting<super::Job<T>>, BuildError> {
        if !(1..=1 << 16).contains(&self.segment) {
            return Err(BuildError::SegmentSlots(self.segment));
        }
        match (self.order, self.capacity) {
            (_, Some(0)) => Err(BuildError::Capacity(Some(0))),
            (Order::Fifo, capacity) => {
                let limit = capacity.map_or(u64::MAX, |capacity| capacity as u64);
                Ok(Waiting::Fifo(SegmentedQueue::with(limit, self.segment)))
            }
            (Order::Priority, Some(capacity)) if capacity <= BucketQueue::<()>::MAX_CAPACITY => {
                Ok(Waiting::Priority(BucketQueue::bounded(capacity)))
            }
            (Order::Priority, capacity) => Err(BuildError::Capacity(capacity)),
        }
    }

    /// Builds the pool and starts its threads: the least number of workers, and the keeper, which looks after what turns out to take long; not for a
    /// single worker without a bound, which leaves nothing to look after.
    ///
    /// # Errors
    /// If a setting is out of range, or the system starts no thread; those that were started end, soon after the return.
    pub fn build(self) -> Result<Pool<T, M>, BuildError> {
        let (least, most) = (self.least, self.most);
        if least == 0 || most < least || most > super::MAX_WORKERS {
            return Err(BuildError::Workers { least, most });
        }
        if !(0.0..=1.0).contains(&self.utilisation) {
            return Err(BuildError::Utilisation(self.utilisation));
        }
        let queue = self.queue()?;
        let core = Arc::new(Core {
            queue,
            beds: Beds::new(most),
            room: Room::default(),
            pace: Pace::new(),
            keeper: Keeper::default(),
            held_up: HeldUp::default(),
            trays: (0..most).map(|_| Tray::new(BATCH)).collect(),
            tallies: (0..most).map(|_| CachePadded::default()).collect(),
            phase: AtomicU32::new(OPEN),
            stopping: AtomicBool::new(false),
            life: Mutex::new(Life::for_workers(most)),
            ended: Condvar::new(),
            revoking: Mutex::new(()),
            rejected: [const { AtomicU64::new(0) }; RejectReason::COUNT],
            handler: self.handler,
            metrics: self.metrics,
            own_clock: MonotonicClock::new(),
            clock: self.clock.unwrap_or_else(|| Box::new(MonotonicClock::new())),
            scaling: Scaling {
                least,
                most,
                utilisation: self.utilisation,
                delay: self.delay,
                rest: self.rest,
                idle: self.idle,
            },
            scaled: [const { AtomicU64::new(0) }; 2],
            unstarted: AtomicU64::new(0),
            handed_back: AtomicU64::new(0),
            unlent: AtomicU64::new(0),
            errands: super::lease::Errands::default(),
            pinned: self.pinned,
        });
        // From here on a drop ends what has begun.
        let pool = Pool { core };
        for _ in 0..least {
            life::start(&pool.core).map_err(BuildError::Thread)?;
        }
        // A model has no time, and so no keeper; it looks by itself.
        if (most > 1 || self.capacity.is_some()) && !cfg!(any(loom, shuttle)) {
            let core = Arc::clone(&pool.core);
            // It cannot end before its handle is there.
            let mut life = pool.core.life();
            let thread = crate::sync::spawn("lease-keeper".into(), move || keeper::run(&core));
            life.keeper = Some(Thread::of(thread.map_err(BuildError::Thread)?));
            life.keeps = true;
        }
        Ok(pool)
    }
}

impl<T, M> fmt::Debug for Builder<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("workers", &(self.least..=self.most))
            .field("capacity", &self.capacity)
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}
