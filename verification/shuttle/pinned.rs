//! Schedules that failed once: `(story, schedule)`, replayed on every run.
//!
//! A schedule fits one program: whoever changes a story, or the order of instrumented steps in the crate, may find that a
//! pinned schedule no longer applies, and then searches for the bug again with the fix taken out.

use crate::stories;

type Pin = (fn(), &'static str);

const PINS: &[Pin] = &[];

#[test]
fn pinned_schedules_pass() {
    for (story, schedule) in PINS {
        shuttle::replay(story, schedule);
    }
    // The replayer itself: what a run prints can be read back.
    let _: fn(u8, usize) = stories::anything;
}
