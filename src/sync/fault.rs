//! Faults to be planted on purpose, so that the checkers can be checked.
//!
//! Nothing of this is in any ordinary build: only `--cfg leasehold_fault` compiles the faults in, and then the environment
//! variable `LEASEHOLD_FAULT` names the one that is on. `verification/linearizability/run` demands that each is found.

/// Every fault there is, with what it breaks.
#[cfg(leasehold_fault)]
pub const FAULTS: &[(&str, &str)] = &[
    ("none_at_one_look", "an acquisition says \"none\" after looking at each shard once"),
    ("lend_unchecked", "a unit is lent whatever the state word says"),
    ("return_stays_full", "a return does not clear FULL"),
    ("return_clears_hold", "a return ends an exclusion"),
    ("include_queues_twice", "an inclusion puts the resource into the heap twice"),
    ("batch_in_part", "a member of a batch is visible before the batch is"),
    ("update_blind", "an update in terms of the old value does not look whether it is still the current one"),
    ("remove_unchecked", "two removals of one resource both succeed"),
];

/// Whether the fault of this name is on: never, but in a build that asks for faults.
#[inline(always)]
pub fn planted(name: &str) -> bool {
    #[cfg(leasehold_fault)]
    {
        static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        debug_assert!(FAULTS.iter().any(|(known, _)| *known == name));
        let chosen = CHOSEN.get_or_init(|| {
            let chosen = std::env::var("LEASEHOLD_FAULT").ok();
            let known = |name: &String| FAULTS.iter().any(|(known, _)| known == name);
            assert!(chosen.as_ref().is_none_or(known), "no such fault; there are {FAULTS:#?}");
            chosen
        });
        chosen.as_deref() == Some(name)
    }
    #[cfg(not(leasehold_fault))]
    {
        let _ = name;
        false
    }
}
