//! Mistakes that the simulation must notice: one at a time is made, and only in tests that plant it.

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A member counts its claims from a reply, and not from before the request.
    UntilFromReply,
    /// The engine frees what is returned under another token.
    ReturnWithoutToken,
    /// The engine reinstates claims after the quarantine.
    ReinstateLate,
    /// A member gives back units whose leases are out.
    LetGoInUse,
}

#[cfg(test)]
thread_local! {
    /// What this thread's simulations do wrong.
    pub static MISTAKE: std::cell::Cell<Option<Planted>> = const { std::cell::Cell::new(None) };
}

/// Whether this mistake is to be made.
#[cfg(test)]
pub fn is_planted(which: Planted) -> bool {
    MISTAKE.get() == Some(which)
}

/// Never.
#[cfg(not(test))]
pub const fn is_planted(_: Planted) -> bool {
    false
}
