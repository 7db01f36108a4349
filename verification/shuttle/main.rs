//! Random schedules of more threads and longer programs than loom can take, sequentially consistent.
//!
//! ```sh
//! SHUTTLE_SILENCE_WARNINGS=1 RUSTFLAGS="--cfg shuttle" cargo nextest run --test shuttle --features internals
//! ```
#![cfg(shuttle)]
// Clippy cannot tell the facade's names from those behind them.
#![allow(unsafe_code, missing_docs, clippy::disallowed_types)]

mod lookup;
