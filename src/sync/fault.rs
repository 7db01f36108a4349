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

/// Faults of waiting, with the loom model that must find each: `verification/loom/faults`.
#[cfg(leasehold_fault)]
#[rustfmt::skip]
pub const WAITING: &[Missing] = &[
    Missing { name: "wait_gate_shut", model: "wait::register_release", what: "a registration does not set the gate" },
    Missing { name: "wait_no_look", model: "wait_sources::include", what: "a registration is not followed by a look" },
    Missing { name: "wait_two_sections", model: "wait::passer_by", what: "a unit is eligible between return and hand-off" },
    Missing { name: "wait_unit_kept", model: "wait::cancel_release", what: "a unit that has arrived dies with its future" },
    Missing { name: "wait_unit_sunk", model: "wait::cancel_release", what: "a unit for one who has gone is swallowed" },
    Missing { name: "wait_ticket_ignored", model: "wait::filter_register_release", what: "a search in vain gives back, whoever has come since" },
    Missing { name: "wait_not_missed", model: "wait::filter_missed", what: "a filter that is being asked is passed over for good" },
    Missing { name: "wait_same_ticket", model: "wait::filter_register_release", what: "one that was passed over looks again on its old ticket" },
    Missing { name: "wait_pinned_late", model: "wait_sources::remove_named_release", what: "a node that is gone is pinned" },
    Missing { name: "wait_no_offer", model: "wait_sources::include", what: "what becomes eligible is not offered" },
    Missing { name: "wait_thaw_silent", model: "wait_sources::thaw", what: "what is warmed up is not offered" },
    Missing { name: "wait_batch_silent", model: "wait_sources::batch", what: "a batch is not offered" },
    Missing { name: "wait_close_silent", model: "wait_sources::close", what: "a closed queue lets waiters in" },
    Missing { name: "wait_removal_silent", model: "wait_sources::remove_named", what: "a removal does not fail those who wait for the resource" },
    Missing { name: "wait_part_kept", model: "wait::many_cancel", what: "a part of several units dies with its future" },
    Missing { name: "wait_lean_early", model: "wait_sources::lean", what: "one relies on another who has not looked" },
    Missing { name: "wait_not_poked", model: "wait_sources::cooling_return", what: "a deadline is noted, and the timekeeper sleeps on" },
    Missing { name: "wait_nudge_dropped", model: "wait::nudge_cancel", what: "a nudge dies with its future" },
];

/// A mechanism that a fault leaves out.
#[cfg(leasehold_fault)]
#[derive(Debug)]
#[allow(missing_docs, dead_code)]
pub struct Missing {
    pub name: &'static str,
    pub model: &'static str,
    pub what: &'static str,
}

/// Whether the fault of this name is on: never, but in a build that asks for faults.
#[inline(always)]
pub fn planted(name: &str) -> bool {
    #[cfg(leasehold_fault)]
    {
        static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        let known = |name: &str| {
            FAULTS.iter().any(|(known, _)| *known == name) || WAITING.iter().any(|fault| fault.name == name)
        };
        debug_assert!(known(name));
        let chosen = CHOSEN.get_or_init(|| {
            let chosen = std::env::var("LEASEHOLD_FAULT").ok();
            let is_known = chosen.as_ref().is_none_or(|name| known(name));
            assert!(is_known, "no such fault; there are {FAULTS:#?} and {WAITING:#?}");
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
