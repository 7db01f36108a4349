//! All interleavings of two or three threads and few steps, and all orderings that the memory model allows them.
//!
//! ```sh
//! LOOM_MAX_PREEMPTIONS=2 RUSTFLAGS="--cfg loom --cfg crossbeam_loom" \
//!     cargo nextest run --test loom --features internals
//! ```
//!
//! Run under nextest: a model that fails while epochs are live aborts its process.
#![cfg(loom)]
#![allow(unsafe_code, missing_docs)]

mod lookup;
