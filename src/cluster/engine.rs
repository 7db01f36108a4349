//! What a cluster asks of the system that its members share.
//!
//! # Contract
//! Each [`Request`] is one atomic step: nothing of another step is seen in its midst, and all steps are in one order. The engine has a
//! clock, and a *run*: a text that is another one whenever writes may have been lost.
//!
//! Before each step but [`Request::Overview`], with `now` on the engine's clock:
//!
//! * if the run is not the one on record, an *epoch* begins, under a name that no epoch has had: sessions, owners and free units are forgotten;
//!   holds and the last token stay, if they are there; the *quarantine* lasts until `now + ttl`;
//! * a session is *over* from its last renewal (or its opening) plus its time to live on. Its units may be freed at any later step, and not before.
//!   No session, and no quarantine, lasts longer than until `now + ttl`: a clock that was set back lengthens nothing.
//!
//! A token is greater than every token before it, in all epochs.
//!
//! A step may be carried out although its caller was told of a failure, and later than that.

use std::{error::Error, fmt, time::Duration};

use super::unit::{Claim, Unit};
use crate::sync::Arc;

/// A member's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Of which epoch.
    pub epoch: Arc<str>,
    /// Its number, never used twice in an epoch.
    pub number: u64,
}

/// What a member has and wants, in units; and how it is chosen for ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Units for leases that are out or waited for.
    pub need: u32,
    /// Units that should be free on top of these.
    pub spare: u32,
    /// Units that are lent from now.
    pub held: u32,
    /// Its weight when members are chosen for ids.
    pub weight: u32,
}

/// A member, as the others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Its name.
    pub member: Arc<str>,
    /// What it said last.
    pub line: Line,
}

/// What a renewal tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Everybody whose session is not over, the one who asks included, in the order of names; of one name in the order of sessions.
    pub members: Vec<MemberView>,
    /// Which of them asks.
    pub me: usize,
    /// Units that nobody owns, or whose owners' sessions are over.
    pub free: u32,
    /// The best rank of those that nobody owns, of resources without a hold on record. An engine may stop looking: none then, as if there
    /// were no such unit.
    pub best_free: Option<u64>,
    /// The worst rank of those, likewise.
    pub worst_free: Option<u64>,
    /// Units that this session owns.
    pub owned: u32,
    /// How long until the next session is over, unless it is renewed.
    pub next_expiry: Option<Duration>,
    /// The version of the holds.
    pub holds: u64,
    /// How much of the quarantine is left.
    pub quarantine: Option<Duration>,
    /// Counts up, once in [`TURN`] times to live: whose turn it is where there are fewer units than members who need some.
    pub turn: u64,
}

/// How long a turn is, in times to live: long beside what it takes to hand a unit on.
pub const TURN: u64 = 4;

/// The reason for a hold that travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldKind {
    /// It rests; always with an end.
    Cooling,
    /// It was taken out by an operator.
    Excluded,
    /// It is unhealthy.
    Ejected,
}

impl HoldKind {
    /// All of them.
    pub const ALL: [HoldKind; 3] = [HoldKind::Cooling, HoldKind::Excluded, HoldKind::Ejected];

    /// Its name, as in messages.
    pub const fn name(self) -> &'static str {
        match self {
            HoldKind::Cooling => "cooling",
            HoldKind::Excluded => "excluded",
            HoldKind::Ejected => "ejected",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What became of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is set, for this long from now on, or until it is cleared.
    Set(Option<Duration>),
    /// It is cleared.
    Cleared,
}

/// A hold that was set or cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldNote {
    /// The resource.
    pub name: Arc<str>,
    /// Which hold.
    pub kind: HoldKind,
    /// What became of it.
    pub change: Change,
    /// Who said so: the name of a member, and what tells this process from others that had the name.
    pub origin: Arc<str>,
    /// In which epoch it was told; the engine fills it in.
    pub epoch: Arc<str>,
    /// Grows with each change of any hold in an epoch of the fleet; 0 before the engine has given it.
    pub version: u64,
}

/// Which free units a claim takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Those of the lowest rank.
    Best,
    /// Those of the highest rank.
    Worst,
}

/// A step of the engine.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Opens a session. Refused if the fleet has another time to live. Answers [`Reply::Joined`].
    Join {
        /// The member's name.
        member: Arc<str>,
        /// How long a session lasts without renewal.
        ttl: Duration,
        /// As in [`Line`].
        weight: u32,
        /// A session that the member has given up, and that ends with this, if it is of this epoch.
        previous: Option<Session>,
    },
    /// Makes units known, with their ranks, of which the last one told counts; those that are new are free. Answers [`Reply::Done`].
    Register {
        /// Whose.
        session: Session,
        /// The units.
        units: Vec<(Unit, u64)>,
    },
    /// Extends the session, frees what sessions that are over have owned (some at a time), and answers [`Reply::Renewed`].
    Renew {
        /// Which.
        session: Session,
        /// What the others are told.
        line: Line,
    },
    /// Takes free units, after having freed what sessions that are over have owned (some at a time): at most `count`, the best or worst by rank,
    /// none of those that `skip` names. None in quarantine. Answers [`Reply::Claims`].
    Claim {
        /// For whom.
        session: Session,
        /// How many at most.
        count: u32,
        /// From which end.
        end: End,
        /// What is left alone: of each of these resources the unit that is named, and those with a higher index. Names each resource once.
        skip: Vec<Unit>,
    },
    /// Frees units that the session owns with these very tokens. Answers [`Reply::Done`].
    Return {
        /// Whose.
        session: Session,
        /// Which.
        claims: Vec<Claim>,
    },
    /// In quarantine: takes those of the units that no other session owns, with the tokens that they have; makes them known. Answers
    /// [`Reply::Claims`] with those taken; with none after the quarantine.
    Reinstate {
        /// For whom.
        session: Session,
        /// The claims, with the ranks of their resources.
        claims: Vec<(Claim, u64)>,
    },
    /// Lists what the session owns: [`Reply::Claims`].
    Owned {
        /// Whose.
        session: Session,
    },
    /// Ends a session; its units are free. Answers [`Reply::Done`].
    Leave {
        /// Which.
        session: Session,
    },
    /// Records holds, or their ends, in this order, each under the next version, and tells everybody. Needs no session. Of a hold that is on
    /// record the later end counts, whoever has set it, and none is the latest. Answers [`Reply::Holds`] with these, as they are recorded.
    Hold(Vec<HoldNote>),
    /// Lists the holds that are set: [`Reply::Holds`].
    Holds,
    /// For people: everything that is on record. Changes nothing, and begins no epoch. Answers [`Reply::Overview`].
    Overview,
}

/// What a step answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The session is open.
    Joined(Session),
    /// The session goes on.
    Renewed(View),
    /// Units.
    Claims(Vec<Claim>),
    /// It was done.
    Done,
    /// Holds, and the version of them all.
    Holds(Vec<HoldNote>, u64),
    /// The session is over, or of another epoch than this one, which is the present one.
    Gone {
        /// The present epoch.
        epoch: Arc<str>,
    },
    /// The fleet has another time to live.
    Refused {
        /// The fleet's.
        ttl: Duration,
    },
    /// Everything there is.
    Overview(Overview),
}

/// What [`Request::Overview`] tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overview {
    /// The epoch on record; empty if the engine has never heard of the fleet.
    pub epoch: Arc<str>,
    /// How much of the quarantine is left.
    pub quarantine: Option<Duration>,
    /// Members, with the units that each owns and what is left of its time.
    pub members: Vec<(MemberView, u32, Duration)>,
    /// Units that nobody owns.
    pub free: u32,
    /// Claims, each with the name of its member.
    pub claims: Vec<(Claim, Arc<str>)>,
    /// Holds that are set.
    pub holds: Vec<HoldNote>,
}

/// A step that was not carried out, or may have been: nobody knows.
#[derive(Debug)]
pub struct EngineError {
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl EngineError {
    /// With a text of its own.
    pub fn new(message: impl Into<String>) -> Self {
        EngineError { message: message.into(), source: None }
    }

    /// As [`new`](Self::new), and what is behind it.
    pub fn with_source(message: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        EngineError { message: message.into(), source: Some(source.into()) }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl Error for EngineError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// The system that the members of a cluster share. See the module's contract.
///
/// `call` and `news` are called from one thread of the cluster, with no lock held; a panic counts as a failure, or as no news.
pub trait Engine: Send {
    /// Carries out a step, and waits for the answer for about `patience`, connecting first if need be.
    ///
    /// # Errors
    /// [`EngineError`]: whether it was, or will be, carried out is unknown.
    fn call(&mut self, request: &Request, patience: Duration) -> Result<Reply, EngineError>;

    /// The holds that others have told of since the last call. Does not wait. What is lost on the way is made up for by
    /// [`Request::Holds`].
    fn news(&mut self) -> Vec<HoldNote>;

    /// Whether `news` would tell what is told now: `false` while it cannot listen, and holds arrive with the renewals alone. For
    /// [`ClusterStats::hears_news`](super::ClusterStats::hears_news); called as `news` is. Default: `true`.
    fn hears_news(&self) -> bool {
        true
    }

    /// The fleet's name, for the label of metrics, if there is one: it tells members of one name in several fleets apart. Asked once, by
    /// [`Builder::start`](super::Builder::start), in the caller's thread.
    fn fleet(&self) -> Option<Arc<str>> {
        None
    }
}
