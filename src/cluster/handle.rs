//! The public face: settings, start, stop, and what can be asked.

use std::{
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    sync::PoisonError,
    time::Duration,
};

use super::{
    desk::Desk,
    engine::{Engine, HoldKind, MemberView},
    fence::{Fence, Fences, Lost},
    keeper::{Board, Keeper, Posted},
    member::Member,
    post::{Command, Order, Post, Wish},
    rendezvous,
    spent::Spent,
    start_error::{MAX_NAME, StartError},
    stats::ClusterStats,
    terms::Terms,
    unit::{Roll, Share},
};
use crate::{
    DefaultHashBuilder,
    node::quietly,
    resource::Resource,
    ring::affinity_hash,
    scheduler::{KeyError, Lease, OwnedLease, Scheduler, Token},
    sync::{
        Arc, Clock, MonotonicClock, Mutex, MutexGuard, Timestamp, current_thread, id_of, spawn, thread,
        wait_for,
    },
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
    /// must be `units * leases_per_unit` or less: if it is more, the resource is not lent here. It is called whenever the number changes, from the cluster's thread; and
    /// once for each share in here, with one unit, for its key: a panic of that is the caller's.
    ///
    /// The scheduler should have no other resources: they stay, but their leases count as need. Do not undrain or remove resources of the fleet,
    /// by whatever form: a unit that leaves is drained, and what somebody undrains is lent until it is withdrawn again, up to 50 ms later.
    ///
    /// # Callbacks
    /// `make`, and what insertion, update, removal and holds of the scheduler call. A panic of `make` counts as a refusal
    /// ([`ClusterStats::faults`], [`ClusterStats::last_error`]): nothing of the resource is lent here then, its units are given back for others,
    /// and claimed again after twice the time to live at the earliest.
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
        if let Some(max_hold) = scheduler.revokes_after()
            && let Some(share) = roll.shares().iter().find(|share| share.period >= max_hold)
        {
            let (name, period) = (Arc::clone(&share.name), share.period);
            return Err(StartError::MaxHold { name, period, max_hold });
        }
        let desk =
            Desk::new(Arc::clone(scheduler), Arc::clone(&roll), Box::new(make), Arc::clone(&self.clock));
        let desk = desk.ok_or(StartError::Keys)?;
        let fences = Arc::clone(desk.fences());
        let fleet = engine.fleet();
        let (post, board) = (Arc::new(Post::default()), Arc::new(Board::default()));
        // The standard library keys every `RandomState` differently: no global of ours.
        let nonce = RandomState::new().hash_one(std::process::id());
        let member =
            Member::new(Arc::clone(&self.member), self.weight, terms, Arc::clone(&roll)).with_nonce(nonce);
        let spent = Arc::new(Spent::new(desk.periods()));
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
            clock: Arc::clone(&self.clock),
            stats: ClusterStats::default(),
            spent: Arc::clone(&spent),
            patience: terms.pick_up(),
        };
        let keeper = spawn("leasehold-keeper".into(), move || keeper.run()).map_err(|error| {
            post.end();
            StartError::Thread(error)
        })?;
        let cluster = Cluster {
            member: self.member,
            fleet,
            scheduler: Arc::clone(scheduler),
            terms,
            recorded,
            fences,
            roll,
            spent,
            clock: self.clock,
            post,
            board,
            keeper: id_of(&keeper),
            threads: Mutex::new(Some(Threads { keeper, courier })),
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
///     .terms(Terms::new(Duration::from_secs(3)))
///     .share(Share::new("sk-1", 1).units(4))
///     .start(MemoryEngine::new(), &keys, |share, units| {
///         Entry::new(share.name.clone(), share.rank, ()).with_capacity(Capacity::Limited(units))
///     })?;
/// // A fleet that nobody has used before grants nothing for its first time to live.
/// let mut lease = keys.acquire_timeout(Duration::from_secs(60))?;
/// let fence = cluster.fence(&mut lease)?;
/// println!("{} under token {}", fence.unit(), fence.check()?);
/// # drop(fence);
/// # drop(lease);
/// # assert_eq!(cluster.close(Duration::from_secs(1)).revoked, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Cluster<R: Resource, S = DefaultHashBuilder> {
    member: Arc<str>,
    /// What the engine calls the fleet.
    fleet: Option<Arc<str>>,
    scheduler: Arc<Scheduler<R, S>>,
    terms: Terms,
    recorded: bool,
    fences: Arc<Fences<R::Key>>,
    roll: Arc<Roll>,
    spent: Arc<Spent<R>>,
    clock: Arc<dyn Clock>,
    post: Arc<Post>,
    board: Arc<Board>,
    /// Who never waits for the keeper's end: the keeper.
    keeper: Option<std::thread::ThreadId>,
    /// Until they have ended, or are left to end by themselves.
    threads: Mutex<Option<Threads>>,
}

struct Threads {
    keeper: thread::JoinHandle<()>,
    courier: thread::JoinHandle<()>,
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
    /// # Callbacks
    /// `Hash` and `Eq` of the key, before anything is bound, and the cluster's clock, afterwards: no lock is held, and a panic leaves nothing bound. If
    /// all units of the resource have fences, what [`Scheduler::reap_overdue`] calls, if something is overdue; O(units of the resource, and fences on them) then.
    ///
    /// # Errors
    /// [`Lost`]: the claim behind the lease has ended, or the lease was revoked.
    pub fn fence(&self, lease: &mut Lease<'_, R>) -> Result<Fence<R::Key>, Lost> {
        let token = self.recorded.then(|| lease.token());
        let fence = self.tie(lease.key(), token)?;
        // Afterwards: what is revoked from here on was bound before, and its unit with it.
        if lease.is_revoked() { Err(Lost) } else { Ok(fence) }
    }

    fn tie(&self, key: &R::Key, token: Option<Token>) -> Result<Fence<R::Key>, Lost> {
        // The user's code, before anything is bound.
        let place = self.fences.place(key).ok_or(Lost)?;
        Fences::bind(&self.fences, place, token).or_else(|lost| {
            // Leases that were taken back may be bound to it still.
            if self.recorded {
                self.scheduler.take_back_due();
            }
            let is_free = self.recorded && self.fences.untie(place, |token| self.scheduler.is_lent(token));
            if is_free { Fences::bind(&self.fences, place, token) } else { Err(lost) }
        })
    }

    /// As [`fence`](Self::fence).
    ///
    /// # Errors
    /// As there.
    pub fn fence_owned(&self, lease: &mut OwnedLease<R>) -> Result<Fence<R::Key>, Lost> {
        let token: Option<Token> = self.recorded.then(|| lease.token());
        let fence = self.tie(lease.key(), token)?;
        if lease.is_revoked() { Err(Lost) } else { Ok(fence) }
    }

    /// Takes a resource out for the whole fleet, until [`include`](Self::include): by its [`Share`]'s name, whether it is in this process's
    /// scheduler at the moment or not. Here it is done by the cluster's thread, in a moment; elsewhere as soon as the engine has told it.
    ///
    /// Where the resource is here, [`Scheduler::exclude`] does the same.
    ///
    /// # Errors
    /// [`KeyError`]: the fleet has no resource of this name, or the cluster has ended.
    pub fn exclude(&self, name: &str) -> Result<(), KeyError<Arc<str>>> {
        self.command(name, HoldKind::Excluded, true)
    }

    /// Ends an exclusion everywhere, whoever has set it and whether he is still there. As [`exclude`](Self::exclude).
    ///
    /// A resource that is excluded is in no scheduler once its last lease is back, and the member who has it leaves: nobody claims its units.
    /// There [`Scheduler::include`] finds nothing to include.
    ///
    /// # Errors
    /// As [`exclude`](Self::exclude).
    pub fn include(&self, name: &str) -> Result<(), KeyError<Arc<str>>> {
        self.command(name, HoldKind::Excluded, false)
    }

    /// Ends an ejection everywhere. As [`include`](Self::include).
    ///
    /// # Errors
    /// As [`exclude`](Self::exclude).
    pub fn readmit(&self, name: &str) -> Result<(), KeyError<Arc<str>>> {
        self.command(name, HoldKind::Ejected, false)
    }

    /// Ends cooling everywhere. As [`include`](Self::include).
    ///
    /// # Errors
    /// As [`exclude`](Self::exclude).
    pub fn warm(&self, name: &str) -> Result<(), KeyError<Arc<str>>> {
        self.command(name, HoldKind::Cooling, false)
    }

    /// This process gives up a resource, until [`undrain`](Self::undrain): nothing of it is lent here any more, its units go back to the fleet as
    /// their leases come back, for others to claim, and none of it is claimed here. Done by the cluster's thread, in a moment. The others
    /// are told nothing: to take it out for all of them is [`exclude`](Self::exclude).
    ///
    /// What [`Scheduler::drain`] drains here stays claimed, and idle, as [`Scheduler::undrain`] would lend it again at once, whoever had it by then.
    ///
    /// ```
    /// # use leasehold::{Capacity, Entry, Scheduler, cluster::{Cluster, MemoryEngine, Share, Terms}};
    /// # use std::{sync::Arc, time::Duration};
    /// # let keys = Arc::new(Scheduler::<Entry<Arc<str>, u64, ()>>::builder().max_hold(Duration::from_secs(30)).build()?);
    /// # let cluster = Cluster::builder("gateway-1").terms(Terms::new(Duration::from_secs(3))).share(Share::new("sk-1", 1))
    /// #     .start(MemoryEngine::new(), &keys, |share, _| Entry::new(share.name.clone(), share.rank, ()))?;
    /// # drop(keys.acquire_timeout(Duration::from_secs(60))?);
    /// cluster.drain("sk-1")?;
    /// while cluster.stats().held > 0 {
    ///     std::thread::sleep(Duration::from_millis(5));
    /// }
    /// cluster.undrain("sk-1")?;
    /// # drop(keys.acquire_timeout(Duration::from_secs(60))?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`exclude`](Self::exclude).
    pub fn drain(&self, name: &str) -> Result<(), KeyError<Arc<str>>> {
        self.wish(name, Wish::Drained(true))
    }

    /// Ends [`drain`](Self::drain): the resource is claimed again as it is needed, if there is some of it.
    ///
    /// # Errors
    /// As [`exclude`](Self::exclude).
    pub fn undrain(&self, name: &str) -> Result<(), KeyError<Arc<str>>> {
        self.wish(name, Wish::Drained(false))
    }

    fn command(&self, name: &str, kind: HoldKind, set: bool) -> Result<(), KeyError<Arc<str>>> {
        self.wish(name, Wish::Hold(kind, set))
    }

    fn wish(&self, name: &str, wish: Wish) -> Result<(), KeyError<Arc<str>>> {
        let place = self.roll.place(name).ok_or_else(|| KeyError::NotFound { key: name.into() })?;
        if self.board.lock().has_ended {
            return Err(KeyError::Closed);
        }
        self.post.command(Command { place, wish });
        Ok(())
    }

    /// The lease was one use of a budget ([`Share::period`](method@Share::period)): it comes back when a period has passed. Call it when the use has begun, or is over.
    /// Of a resource without a period it comes back at once. Takes a mutex for a moment; O(1).
    ///
    /// From here on [`Builder::max_hold`](crate::Builder::max_hold) does not count: it limits how long the use itself may take.
    ///
    /// With a lease that is dropped instead the use is not counted. Of one that was taken back before, it counts from when the lease was given
    /// out, and for [`Builder::max_hold`](crate::Builder::max_hold).
    pub fn spend(&self, lease: OwnedLease<R>) {
        // User code: a panic must not give back what was used. Then it is not told when: it stays out until the cluster ends.
        let now = quietly(|| self.clock.now()).unwrap_or(Timestamp::MAX);
        self.spent.keep(now, lease);
    }

    /// How it stands, as of the last turn of the cluster's thread, less than 50 ms ago. Clones the list of members, O(members).
    ///
    /// Takes the board's mutex for a moment, as [`members`](Self::members), [`member_for`](Self::member_for) and
    /// [`expect_units`](Self::expect_units) do. The cluster's thread takes it 40 to 1,000 times a second, to move some numbers; nobody holds it
    /// while a list is read or cloned, and no user code runs under it.
    pub fn stats(&self) -> ClusterStats {
        self.board.stats()
    }

    /// The members, as of the last renewal. Takes a mutex for a moment: see [`stats`](Self::stats). O(members).
    pub fn members(&self) -> Vec<MemberView> {
        self.board.members().to_vec()
    }

    /// The name of the member that an id belongs to: the same in every process that sees the same members; when one comes or goes only its own
    /// ids move. By weighted rendezvous, O(members). `None` before the first renewal. It only names that member, and what it sees is as old as the last
    /// renewal: forward to it once, or lend here. See `docs/cluster.md`, Affinity. Takes a mutex for a moment, and has left it when it chooses: see [`stats`](Self::stats).
    pub fn member_for<I: Hash + ?Sized>(&self, id: &I) -> Option<Arc<str>> {
        let hash = affinity_hash(id);
        rendezvous::choose(&self.board.members(), hash).map(|view| Arc::clone(&view.member))
    }

    /// Asks for so many units from now on, whatever is needed: for what is asked for by forms that do not wait, or is about to be.
    /// Instead of [`Terms::floor`]. Takes a mutex for a moment: see [`stats`](Self::stats).
    pub fn expect_units(&self, units: u32) {
        self.board.lock().floor = Some(units);
    }

    /// Leaves the fleet: nothing is lent from now on, each unit is given back when its leases have come back, and after `grace` what is
    /// still out is revoked. Blocks for at most `grace` and about a third of the time to live, or as long as a callback takes that is at work; an
    /// engine that has not returned by then is left to end by itself. A second call waits for the first one and reports the same.
    ///
    /// In the cluster's own thread, as in `make` or in a waker that runs there, it waits for nothing, and there is no grace: what is out is revoked
    /// when the callback has returned, the report is as of before, and the engine is not told.
    pub fn close(&self, grace: Duration) -> CloseReport {
        if self.is_keeper() {
            self.post.order(Order::End);
        } else {
            let clock = MonotonicClock::new();
            let end = clock.now().saturating_add(grace).saturating_add(self.bound());
            let mut threads = self.threads();
            if threads.is_some() {
                self.post.order(Order::Leave);
                if !self.wait(grace, |posted| posted.has_left || posted.has_ended) {
                    self.post.order(Order::Abandon);
                    self.wait(self.terms.pick_up() * 2, |posted| posted.has_left || posted.has_ended);
                }
            }
            self.end(&mut threads, &clock, end);
        }
        let posted = self.board.lock();
        let stats = &posted.stats;
        CloseReport {
            revoked: stats.revoked,
            outlived: stats.outlived,
            told: posted.has_left && stats.connected,
        }
    }
}

impl<R: Resource, S> Cluster<R, S> {
    /// What it takes beside the grace.
    fn bound(&self) -> Duration {
        self.terms.ttl() / 3
    }

    fn is_keeper(&self) -> bool {
        current_thread().is_some_and(|own| self.keeper == Some(own))
    }

    /// Ends the threads: the keeper is waited for, and the courier until `end`, as nobody knows what an engine is at.
    fn end(&self, threads: &mut Option<Threads>, clock: &MonotonicClock, end: Timestamp) {
        let Some(Threads { keeper, courier }) = threads.take() else { return };
        self.post.order(Order::End);
        let _ = keeper.join();
        if self.post.courier_ends(end.saturating_since(clock.now())) {
            let _ = courier.join();
        }
    }

    fn threads(&self) -> MutexGuard<'_, Option<Threads>> {
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
}

impl<R: Resource, S: BuildHasher> Cluster<R, S> {
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
    pub(super) fn watched(&self) -> super::collector::Watched {
        super::collector::Watched {
            fleet: self.fleet.clone(),
            member: Arc::clone(&self.member),
            board: Arc::downgrade(&self.board),
        }
    }
}

impl<R: Resource, S> Drop for Cluster<R, S> {
    /// As [`close`](Cluster::close) without grace.
    fn drop(&mut self) {
        if self.is_keeper() {
            self.post.order(Order::End);
            return;
        }
        let clock = MonotonicClock::new();
        let end = clock.now().saturating_add(self.bound());
        let mut threads = self.threads();
        if threads.is_some() {
            self.post.order(Order::Abandon);
            self.wait(self.terms.pick_up() * 2, |posted| posted.has_left || posted.has_ended);
            self.end(&mut threads, &clock, end);
        }
    }
}

impl<R: Resource, S> fmt::Debug for Cluster<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("fleet", &self.fleet)
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
