//! Which planted fault is on: the one that `LEASEHOLD_FAULT` names, or none. Only in the copy that `run` makes.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::sync::OnceLock;

/// Whether the fault of this name is on.
pub fn planted(name: &str) -> bool {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("LEASEHOLD_FAULT").ok()).as_deref() == Some(name)
}
