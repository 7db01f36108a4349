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
    /// A member looks at the scheduler before it ends the holds that are over.
    LooksFirst,
    /// It ends only ejections of others.
    EndsOthersOnly,
    /// It does not clear a hold that has no version.
    NeedsVersion,
    /// An answer under one's own name is never news.
    SameIsSame,
    /// A hold in a request that arrived late has the last word.
    LateCounts,
    /// Ends of holds move with the moment at which they are told.
    // Looked at in code of the tests only.
    #[allow(dead_code)]
    KeepsDurations,
    /// A note of another epoch counts.
    AnyEpoch,
    /// Holds do nothing to resources of which no unit is held.
    HeldOnly,
    /// It claims nothing while there is a hold to be told.
    HoldsFirst,
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
