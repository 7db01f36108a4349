//! The public face: settings, start, stop, and what can be asked.

use std::{
    error::Error,
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    sync::PoisonError,
    time::Duration,
};

use super::{
    desk::Desk,
    engine::{Engine, MemberView},
    fence::{Fence, Fences, Lost},
    keeper::{Board, Keeper, Posted},
    member::Member,
    post::{Order, Post},
    rendezvous,
    stats::ClusterStats,
    terms::{Terms, TermsError},
    unit::{Roll, RollError, Share},
};
use crate::{
    DefaultHashBuilder,
    resource::Resource,
    ring::affinity_hash,
    scheduler::{Lease, OwnedLease, Scheduler, Token},
    sync::{Arc, Clock, MonotonicClock, Mutex, MutexGuard, spawn, thread, wait_for},
};

/// What happens if the engine does not answer at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// [`Builder::start`] fails.
    #[default]
    Require,
    /// The cluster starts without units, and claims them when the engine answers.
    Empty,
}

/// Settings of a cluster.
#[must_use = "settings do nothing until `start`"]
pub struct Builder {
    member: Arc<str>,
    terms: Terms,
    start: Start,
    weight: u32,
    shares: Vec<Share>,
    clock: Arc<dyn Clock>,
}

/// Why a cluster does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// Times that cannot be kept.
    Terms(TermsError),
    /// A list that is no fleet.
    Roll(RollError),
    /// Two shares make resources with one key.
    Keys,
    /// A member's name is 1 to 200 bytes without control characters.
    Name(Arc<str>),
    /// The scheduler does not record its leases, so they could not be revoked.
    Unrecorded,
    /// The scheduler is bounded: making room would remove resources, and with them the count of their leases.
    Bounded,
    /// The fleet has another time to live.
    Refused {
        /// The fleet's.
        ttl: Duration,
    },
    /// The engine does not answer.
    Engine(String),
    /// The system starts no thread.
    Thread(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Terms(error) => error.fmt(f),
            StartError::Roll(error) => error.fmt(f),
            StartError::Keys => f.write_str("two shares make resources with the same key: each needs a key of its own"),
            StartError::Name(name) => {
                write!(f, "the member's name is {name:?}: 1 to {MAX_NAME} bytes without control characters are allowed")
            }
            StartError::Unrecorded => f.write_str(
                "the scheduler does not record its leases, so those that outlive their claims could not be revoked: set \
                 `Builder::max_hold`, or allow `Terms::unrecorded_leases` and use fences",
            ),
            StartError::Bounded => f.write_str(
                "the scheduler has `Builder::max_resources`, and the cluster decides which resources it has: leave the bound out",
            ),
            StartError::Refused { ttl } => write!(
                f,
                "the fleet has a time to live of {ttl:?}: use that; to change it stop all processes, then use another name for the fleet"
            ),
            StartError::Engine(message) => write!(
                f,
                "the engine does not answer: {message}; start it, or choose `Start::Empty` to begin without units"
            ),
            StartError::Thread(error) => write!(f, "no thread could be started: {error}"),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            StartError::Terms(error) => Some(error),
            StartError::Roll(error) => Some(error),
            StartError::Thread(error) => Some(error),
            _ => None,
        }
    }
}

const MAX_NAME: usize = 200;

impl Builder {
    /// Times and margins. Default: [`Terms::default`].
    pub fn terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// What happens if the engine does not answer at the start.
    pub fn on_start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// How many ids belong to this member, in relation to the others. Default: 1. See [`Cluster::member_for`].
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// A resource of the fleet. Every process should list the same; what others know and this one does not is left to them.
    pub fn share(mut self, share: Share) -> Self {
        self.shares.push(share);
        self
    }

    /// Resources of the fleet.
    pub fn shares(mut self, shares: impl IntoIterator<Item = Share>) -> Self {
        self.shares.extend(shares);
        self
    }

    /// The clock by which claims end. It must run on whatever the process does, and is not the scheduler's. Default: the machine's
    /// monotonic clock.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Joins the fleet. Starts two threads: one that keeps time, one that waits for the engine.
    ///
    /// `make` makes the resource that a share's units amount to. Its key must not depend on the number of units, and its capacity
    /// should be `units * leases_per_unit` or less. It is called whenever the number changes, from the cluster's thread.
    ///
    /// The scheduler should have no other resources: they stay, but their leases count as need. Do not undrain or remove resources of the fleet,
    /// by whatever form: a unit that leaves is drained, and what somebody undrains is lent until it is withdrawn again, up to 50 ms later.
    ///
    /// # Callbacks
    /// `make`, and what insertion, update, removal and holds of the scheduler call. A panic of `make` counts as a refusal
    /// ([`ClusterStats::faults`]): nothing of the resource is lent then.
    ///
    /// # Errors
    /// [`StartError`]; nothing has been started then.
    pub fn start<R: Resource, S: BuildHasher + Send + Sync + 'static>(
        self,
        engine: impl Engine + 'static,
        scheduler: &Arc<Scheduler<R, S>>,
        make: impl Fn(&Share, u32) -> R + Send + 'static,
    ) -> Result<Cluster<R, S>, StartError> {
        let terms = self.terms.check().map_err(StartError::Terms)?;
        if self.member.is_empty() || self.member.len() > MAX_NAME || self.member.chars().any(char::is_control)
        {
            return Err(StartError::Name(self.member));
        }
        let recorded = scheduler.records_leases();
        if !recorded && !terms.allows_unrecorded() {
            return Err(StartError::Unrecorded);
        }
        if scheduler.is_bounded() {
            return Err(StartError::Bounded);
        }
        let roll = Arc::new(Roll::new(self.shares).map_err(StartError::Roll)?);
        let fences = Arc::new(Fences::new(Arc::clone(&self.clock)));
        let desk = Desk::new(
            Arc::clone(scheduler),
            Arc::clone(&roll),
            Box::new(make),
            Arc::clone(&fences),
            Arc::clone(&self.clock),
        );
        let desk = desk.ok_or(StartError::Keys)?;
        let (post, board) = (Arc::new(Post::default()), Arc::new(Board::default()));
        // The standard library keys every `RandomState` differently: no global of ours.
        let nonce = RandomState::new().hash_one(std::process::id());
        let member = Member::new(Arc::clone(&self.member), self.weight, terms, roll).with_nonce(nonce);
        let courier = {
            let (post, clock, patience) = (Arc::clone(&post), Arc::clone(&self.clock), terms.patience());
            let engine = Box::new(engine);
            spawn("leasehold-courier".into(), move || post.carry(engine, patience, &clock))
                .map_err(StartError::Thread)?
        };
        let keeper = Keeper {
            member,
            desk,
            post: Arc::clone(&post),
            board: Arc::clone(&board),
            clock: self.clock,
            stats: ClusterStats::default(),
            patience: terms.patience(),
        };
        let keeper = spawn("leasehold-keeper".into(), move || keeper.run()).map_err(|error| {
            post.end();
            StartError::Thread(error)
        })?;
        let cluster = Cluster {
            member: self.member,
            scheduler: Arc::clone(scheduler),
            terms,
            recorded,
            fences,
            post,
            board,
            threads: Mutex::new(vec![keeper, courier]),
        };
        match self.start {
            Start::Empty => Ok(cluster),
            Start::Require => cluster.join_or_fail(),
        }
    }
}

/// A process's part in a fleet that many processes share. Dropped, it leaves: see [`close`](Cluster::close).
///
/// See `docs/cluster.md` for what is guaranteed.
///
/// ```
/// use leasehold::{Capacity, Entry, Scheduler, cluster::{Cluster, MemoryEngine, Share, Terms}};
/// use std::{sync::Arc, time::Duration};
///
/// let keys = Arc::new(Scheduler::<Entry<Arc<str>, u64, ()>>::builder().max_hold(Duration::from_secs(30)).build()?);
/// let cluster = Cluster::builder("gateway-1")
///     .terms(Terms::new(Duration::from_millis(200)))
///     .share(Share::new("sk-1", 1).units(4))
///     .start(MemoryEngine::new(), &keys, |share, units| {
///         Entry::new(share.name.clone(), share.rank, ()).with_capacity(Capacity::Limited(units))
///     })?;
/// // A fleet that nobody has used before grants nothing for its first time to live.
/// let mut lease = keys.acquire_timeout(Duration::from_secs(5))?;
/// let fence = cluster.fence(&mut lease)?;
/// println!("{} under token {}", fence.unit(), fence.check()?);
/// # drop(fence);
/// # drop(lease);
/// # assert_eq!(cluster.close(Duration::from_secs(1)).revoked, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Cluster<R: Resource, S = DefaultHashBuilder> {
    member: Arc<str>,
    scheduler: Arc<Scheduler<R, S>>,
    terms: Terms,
    recorded: bool,
    fences: Arc<Fences<R::Key>>,
    post: Arc<Post>,
    board: Arc<Board>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

/// What closing a cluster has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// Leases that were revoked, because they had not come back in time.
    pub revoked: u64,
    /// Leases that could not be revoked, and go on.
    pub outlived: u64,
    /// Whether the engine knows that this member has left; if not, its units are free when its session is over.
    pub told: bool,
}

impl Cluster<crate::Entry<(), u8, ()>> {
    /// Settings for a member with this name, which nobody else in the fleet has.
    pub fn builder(member: impl Into<Arc<str>>) -> Builder {
        Builder {
            member: member.into(),
            terms: Terms::default(),
            start: Start::default(),
            weight: 1,
            shares: Vec::new(),
            clock: Arc::new(MonotonicClock::new()),
        }
    }
}

impl<R: Resource, S: BuildHasher> Cluster<R, S> {
    /// The name in the fleet.
    pub fn member(&self) -> &str {
        &self.member
    }

    /// The scheduler that lends what is claimed.
    pub fn scheduler(&self) -> &Arc<Scheduler<R, S>> {
        &self.scheduler
    }

    /// Ties a lease to one unit of its resource, its fencing token, and the claim's deadline. Called again for the same lease it names the
    /// same unit, as long as one of its fences lives and leases are recorded. Takes a mutex for a moment.
    ///
    /// # Errors
    /// [`Lost`]: the claim behind the lease has ended, or the lease was revoked.
    pub fn fence(&self, lease: &mut Lease<'_, R>) -> Result<Fence<R::Key>, Lost> {
        let token = self.recorded.then(|| lease.token());
        let fence = Fences::bind(&self.fences, lease.key(), token)?;
        // Afterwards: what is revoked from here on was bound before, and its unit with it.
        if lease.is_revoked() { Err(Lost) } else { Ok(fence) }
    }

    /// As [`fence`](Self::fence).
    ///
    /// # Errors
    /// As there.
    pub fn fence_owned(&self, lease: &mut OwnedLease<R>) -> Result<Fence<R::Key>, Lost> {
        let token: Option<Token> = self.recorded.then(|| lease.token());
        let fence = Fences::bind(&self.fences, lease.key(), token)?;
        if lease.is_revoked() { Err(Lost) } else { Ok(fence) }
    }

    /// How it stands, as of the last turn of the cluster's thread, less than 50 ms ago. Clones the list of members.
    pub fn stats(&self) -> ClusterStats {
        self.board.lock().stats.clone()
    }

    /// The members, as of the last renewal.
    pub fn members(&self) -> Vec<MemberView> {
        self.board.lock().stats.members.clone()
    }

    /// The name of the member that an id belongs to: the same in every process that sees the same members; when one comes or goes only its own
    /// ids move. By weighted rendezvous, O(members). `None` before the first renewal.
    pub fn member_for<I: Hash + ?Sized>(&self, id: &I) -> Option<Arc<str>> {
        let hash = affinity_hash(id);
        let posted = self.board.lock();
        rendezvous::choose(&posted.stats.members, hash).map(|view| Arc::clone(&view.member))
    }

    /// Asks for so many units from now on, whatever is needed: for what is asked for by forms that do not wait, or is about to be.
    /// Instead of [`Terms::floor`].
    pub fn expect_units(&self, units: u32) {
        self.board.lock().floor = Some(units);
    }

    /// Leaves the fleet: nothing is lent from now on, each unit is given back when its leases have come back, and after `grace` what is
    /// still out is revoked. Blocks for at most `grace` and about a third of the time to live, or as long as a callback takes that is at work. A
    /// second call waits for the first one and reports the same.
    pub fn close(&self, grace: Duration) -> CloseReport {
        let mut threads = self.threads();
        if !threads.is_empty() {
            self.post.order(Order::Leave);
            if !self.wait(grace, |posted| posted.has_left || posted.has_ended) {
                self.post.order(Order::Abandon);
                self.wait(self.terms.patience() * 2, |posted| posted.has_left || posted.has_ended);
            }
            self.post.order(Order::End);
            for thread in threads.drain(..) {
                let _ = thread.join();
            }
        }
        let posted = self.board.lock();
        let stats = &posted.stats;
        CloseReport {
            revoked: stats.revoked,
            outlived: stats.outlived,
            told: posted.has_left && stats.connected,
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<thread::JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done` says so, for at most `limit`; answers whether it does.
    fn wait(&self, limit: Duration, done: impl Fn(&Posted) -> bool) -> bool {
        let clock = MonotonicClock::new();
        let end = clock.now().saturating_add(limit);
        let mut posted = self.board.lock();
        loop {
            if done(&posted) {
                return true;
            }
            let left = end.saturating_since(clock.now());
            if left.is_zero() {
                return false;
            }
            posted = wait_for(&self.board.changed, posted, Some(left));
        }
    }

    /// The end of a start that must succeed.
    fn join_or_fail(self) -> Result<Self, StartError> {
        let decided = |posted: &Posted| {
            posted.stats.live
                || posted.refused.is_some()
                || posted.stats.last_error.is_some()
                || posted.has_ended
        };
        self.wait(self.terms.ttl() * 2, decided);
        let (live, refused, message) = {
            let posted = self.board.lock();
            (posted.stats.live, posted.refused, posted.stats.last_error.clone())
        };
        if live {
            return Ok(self);
        }
        Err(match refused {
            Some(ttl) => StartError::Refused { ttl },
            None => StartError::Engine(message.unwrap_or_else(|| "no answer in time".to_owned())),
        })
    }
}

#[cfg(feature = "prometheus")]
impl<R: Resource, S> Cluster<R, S> {
    /// What a collector reads.
    pub(super) fn watched(&self) -> (Arc<str>, crate::sync::Weak<Board>) {
        (Arc::clone(&self.member), Arc::downgrade(&self.board))
    }
}

impl<R: Resource, S> Drop for Cluster<R, S> {
    /// As [`close`](Cluster::close) without grace.
    fn drop(&mut self) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.is_empty() {
            return;
        }
        self.post.order(Order::Abandon);
        let clock = MonotonicClock::new();
        let end = clock.now().saturating_add(self.terms.patience() * 2);
        let mut posted = self.board.lock();
        while !posted.has_left && !posted.has_ended {
            let left = end.saturating_since(clock.now());
            if left.is_zero() {
                break;
            }
            posted = wait_for(&self.board.changed, posted, Some(left));
        }
        drop(posted);
        self.post.order(Order::End);
        for thread in threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl<R: Resource, S> fmt::Debug for Cluster<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("member", &self.member)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("member", &self.member)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
