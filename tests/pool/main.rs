//! The worker pool on real threads: what becomes of jobs, who is woken, who waits, how it ends; and one test for each thing that goes wrong in the
//! two Go pools that it replaces.
//!
//! Cost: some seconds, most of it asleep.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod cancelling;
mod common;
mod draining;
mod ending;
mod jobs;
mod lease_jobs;
mod leases;
mod queues;
mod room;
mod scaling;
mod seeds_a;
mod seeds_w;
mod seeds_w_queues;
mod texts;
mod times;
mod told;
mod waking;
