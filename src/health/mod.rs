//! The health of a resource: what its outcomes say, and what follows.
//!
//! | file | idea |
//! |---|---|
//! | `policy` | settings: [`Ejection`], [`Cooldown`] |
//! | `record` | what is remembered of a resource; the decision |
//! | `share` | how many may be ejected at once |
//!
//! What carries a decision out is `scheduler::health`.
//!
//! # States
//!
//! ```text
//!              failures in a row, failure rate, latency; and a place under the share
//!   HEALTHY ------------------------------------------------> EJECTED (hold, until then)
//!    ^   ^                                                     |    ^
//!    |   | the ramp is over                              then  |    | the probe fails, and there is a place
//!    |   |                                                     v    |
//!    |  RAMPING <------------ the probe succeeds ----------- PROBING (one unit)
//!    |
//!    +--- from each of them: readmitted, or ejected, by hand
//! ```
//!
//! A decision is made inside the return, with the home shard's lock held: the outcome is recorded, and the hold is set by the very
//! compare-and-swap that gives the unit back. So there is no moment at which a resource that is to be ejected, or to cool, can be lent.
//!
//! If there is no place, what was to be ejected because it fails rests instead, for a short and growing time (`COOLING`): whoever fails at once
//! would otherwise be the one that is free, and get all the traffic that nobody else has room for, in a fleet too small for its share. Who is
//! slow does not: it serves.
//!
//! One with several units loses as many calls after each such rest as are asked for before the first of them is back: all of its units, if a
//! crowd waits. So calls are counted, and each wants its hundred successes of others before the next rest is over. Not one unit first, as a
//! probe has it: a limit would have to let leases out from before count, or not. If they do, long streams keep a healthy resource out
//! long after a fault of a second, and here that may be the whole fleet; if they do not, each return must lower the limit, those included
//! that say nothing and are not looked at.
//!
//! **Failures never improve a score**: only successes move the latency, and a failure counts against it in every other number.
//!
//! The rules are those of Envoy's outlier detection, as its documentation describes them (consecutive errors, failure percentage, base
//! and maximal ejection time, maximal share), with one probe and a ramp in place of a return at full traffic.

mod policy;
mod record;
mod share;

pub use policy::{Backoff, Cooldown, Ejection};
pub use record::{Circumstances, Phase, Record, Report, ResourceStats, Seen, Verdict, towards_median};
pub use share::Share;
