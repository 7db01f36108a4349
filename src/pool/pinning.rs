//! Keeping workers on processors.

/// Pins the running thread, worker `number`, to one of the processors that it may use, as it has inherited them from whoever has built the
/// pool; does nothing if not asked to, and where the system cannot.
#[cfg(all(feature = "pinning", not(any(loom, shuttle, miri))))]
pub fn pin(wanted: bool, number: usize) {
    if wanted
        && let Some(processors) = core_affinity::get_core_ids()
        && let Some(&processor) = processors.get(number % processors.len().max(1))
    {
        // What it answers is whether it did; there is nothing to be done if not.
        let _ = core_affinity::set_for_current(processor);
    }
}

/// Without the feature `pinning`, and in models: nothing.
#[cfg(not(all(feature = "pinning", not(any(loom, shuttle, miri)))))]
pub fn pin(_wanted: bool, _number: usize) {}
