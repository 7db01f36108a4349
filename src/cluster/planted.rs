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
    /// What is heard moves the end in the table to an earlier moment than the scheduler's.
    EchoesEnds,
    /// Holds do nothing to resources of which no unit is held.
    HeldOnly,
    /// It claims nothing while there is a hold to be told.
    HoldsFirst,
    /// What is in excess is given back at once, and a need is forgotten at once.
    NoCalm,
    /// What is free is counted without units that a hold blocks here, though others still say that they hold them.
    BlockedAtOnce,
    /// Of the resources that rest only so many as fit into a batch are left alone by a claim, and what comes of the others is taken for of use.
    SkipsSome,
    /// An idle member keeps the best unit.
    Hoards,
    /// An offer that nobody took is not made again for long, whatever the reason was.
    OffersOnce,
    /// Where there are too few units the same members always go without.
    NoTurns,
    /// The engine frees nothing of sessions that are over.
    ReapsNothing,
    /// An epoch grants nothing for longer than a time to live.
    LongQuarantine,
    /// A member does not find out what a claim has come to that was not answered.
    NeverAsks,
    /// A member lends until its claims end, without a lead.
    SuspendsLate,
    /// A member that has more than its share keeps it.
    KeepsExcess,
    /// Sessions of a member's own name never count, whoever renews them.
    DeniesNamesakes,
    /// Units of a budget that are not ripe are given to others before those that are in use.
    GivesUnripe,
    /// A unit of a budget that comes from elsewhere is lent at once.
    // Looked at in code of the tests only.
    #[allow(dead_code)]
    LendsUnripe,
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
