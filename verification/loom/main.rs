//! All interleavings of two or three threads and few steps, and all orderings that the memory model allows them.
//!
//! ```sh
//! LOOM_MAX_PREEMPTIONS=2 RUSTFLAGS="--cfg loom --cfg crossbeam_loom" \
//!     cargo nextest run --test loom --features internals
//! ```
//!
//! `run` beside this file does that, and prints what each model cost. Run under nextest: a model that fails while epochs
//! are live aborts its process.
//!
//! | file | protocol |
//! |---|---|
//! | `spinlock` | exclusion, hand-over of what is guarded, the way to sleep |
//! | `transitions` | each pair of transitions of one resource, and of insertion with them |
//! | `affinity` | the ring that is built late; ids that belong to a resource |
//! | `batch` | all or nothing, never in part |
//! | `peek` | looking without a lock: publication and reclamation |
//! | `next_batch` | a peek between two batches |
//! | `none` | the honest "none" over two shards |
//! | `health` | ejection in the return; the probe |
//! | `filters` | the honest "none" of an acquisition with a filter |
//! | `bounds` | a bounded fleet: refusal, eviction by a newcomer |
//! | `events` | the rings of events |
//! | `closing` | a closing that tells every reader of everything |
//! | `cooling` | the hint of the earliest deadline; thawing |
//! | `tokens` | minting, redeeming, the free list; a guard beside its token |
//! | `delays` | the sample of the delay: its tag begins, is passed, ends once |
//! | `deadlines` | leases that are taken back, renewed, listed |
//! | `drains` | waiting until leases have come back |
//! | `ring` | the affinity ring: published, looked up |
//! | `parting` | whoever is done last with a node's memory gives it back |
//! | `sections` | the reclaimer: what is retired against who reads |
//! | `pool_queue` | the pool's queues: segments, buckets, closing |
//! | `pool` | the pool: sleeping, hand-over, room, cancellation, shutdown |
//! | `pool_drain` | the pool: workers that come while it drains |
//! | `pool_room` | the pool: who waits for room with a job that is cancelled |
//! | `pool_errands` | the pool: jobs that wait for a lease, against its end |
//! | `close` | closing against everything |
//! | `lookup` | the map, alone |
//! | `wait` | waiting: returns against registrations and cancellations |
//! | `wait_sources` | waiting: everything else that serves or ends a wait |
//! | `wait_withheld` | waiting: a unit on its way whose resource is taken out |
//! | `wait_classes` | waiting: classes that age |
//! | `wait_bound` | waiting: as many as are let in, and no more |
//! | `wait_shed` | waiting: who cannot be served in time is told at once |
//! | `wait_timer` | waiting: the timer that wakes tasks |
//! | `wait_revoked` | waiting: leases that are taken back meanwhile |
//! | `wait_close` | waiting: closing against each kind of those who wait |
//! | `wait_overdue` | waiting: time-outs at the moment of the hand-off |
//! | `wait_names` | waiting: names among others |
//! | `wait_near` | waiting: near to an id |
//! | `wait_many` | waiting: several at once |
//! | `wait_probe` | waiting: what comes back by the rules, one unit first |
//! | `wait_wakers` | waiting: a task that has moved to another waker |
//! | `wait_counts` | waiting: each end is counted as what it was |
//! | `fence` | the claim of a cluster's member, and its end |
//!
//! `told` compares what was counted with what those who asked were told; shuttle's scenarios have it too. `common` runs a model: two preemptions unless `LOOM_MAX_PREEMPTIONS` says otherwise; a model that is too dear for that
//! states a bound of its own, which holds in the fast tier only.
#![cfg(loom)]
#![allow(unsafe_code, missing_docs, dead_code)]

mod affinity;
mod batch;
mod bounds;
#[path = "../linearizability/checker.rs"]
mod checker;
mod close;
mod closing;
mod common;
mod cooling;
mod deadlines;
mod delays;
mod drains;
#[path = "../linearizability/driver.rs"]
mod driver;
mod events;
mod fence;
mod filters;
mod health;
mod lookup;
mod next_batch;
mod none;
mod parting;
mod peek;
mod pool;
mod pool_drain;
mod pool_errands;
mod pool_queue;
mod pool_room;
mod ring;
mod sections;
#[path = "../linearizability/specification.rs"]
mod specification;
mod spinlock;
mod tokens;
mod told;
mod transitions;
mod wait;
mod wait_bound;
mod wait_classes;
mod wait_close;
mod wait_counts;
mod wait_many;
mod wait_names;
mod wait_near;
mod wait_overdue;
mod wait_probe;
mod wait_revoked;
mod wait_shed;
mod wait_sources;
mod wait_timer;
mod wait_wakers;
mod wait_withheld;
