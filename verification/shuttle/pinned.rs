//! Schedules that failed once, each a test that is named for the bug: replayed on every run, they must pass. So far all of them are of bugs that
//! were planted: what shuttle has found by itself was pinned as a test without a schedule.
//!
//! A schedule fits the program that it failed in. It is followed as far as it applies ([`follow`]), so the repair of a bug, and later
//! changes, leave it some use; whether it still meets the bug is asked by `verification/planted deep`, which plants the
//! bug of that name again and demands that the test fails.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
};

use leasehold::internals::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
    thread,
};
use shuttle::{
    Config, FailurePersistence, Runner,
    rand::{Rng, thread_rng},
    replay,
    scheduler::RandomScheduler,
};

use crate::{common::follow, looking};

macro_rules! pins {
    ($($name:ident: $story:path, $schedule:literal;)*) => {$(
        #[test]
        fn $name() {
            follow($story, $schedule);
        }
    )*};
}

pins! {
    heap_read_first: looking::deadlines, "
91028a02b49df7948abcf1e67e00000000000000000000000000000000000000000000000000
0000000000000000000000000000000000000000000000000000000000000000000000000000
000000000000002041904989a44853b42899222ddb166dca94698ba46d5ba648d9b26d4b16
    ";
    due_of_the_next: looking::the_next_deadline, "
91029402a0baf789a1ba8aeb5400000000000000000000000000000000000000000000000000
0000000000000000000000000000000000000000000000000000000000000000000000000000
000000000000002049a0208b344dcab66553a6244b942d5914454a32654b1229d3b6485a264d
ca9204
    ";
    half_a_batch: looking::evictions, "
91038a03b9edb5a7deadacdf7500000000000000000000000000000000000000000000000000
0000000000000000002020020644464646622284468268642622666824464248462628428628
6468444664224464268282442488682422482288864462266626868642884888828248422242
2444222244442424244224442242422244442224224422222242224222422442242422222222
2222222222222222222222222222222222222222222222222222222222222222222222222222
2202000000000000000000000000000000000000
    ";
    accepted_not_kept: looking::changing_values, "
91029604f2c88fc6d9eec3c13800000000000000000000000000000000000000000000000000
0000000000000000000000000000000000000000000000000000000000000000000000000000
0000000000000000000000000000c0a6659a16259ba4699ab26949b44cd9b42c9b342589b425
4b242dc9a2245b244951a64859a62592924d49b2658b964c591245929269d9362999b428db96
2951966591944d51a464d9964d91142959a644939245993465c992444bb464ca2465d332258b
3265929429d2366999b225d3246dc9a44451a2244b946502
    ";
    none_at_one_look: looking::honest_reasons, "
91029304dcf9b688ddabe9f4d501000000000000000000000000000000000000000000000000
0000000000000000000000000000000000000000000000000000000000000000000000000000
000000000000000000000000000000001061c93449d3a46d8a964851a4648b94694bb42dd2a6
48d3b4248a122d99b22989924ccbb22cd2922d5194249bb62559a46d89242d9b222d51b44d8b
a24c4922255194444aa24891142551a42492a228892249891425521449911229529224499224
499224499224499224499224499224499224499224490000
    ";
}

/// Two threads add one each, by a load and a store.
fn lost_update() {
    lose(|| 0);
}

/// The same, and each thread is first held up for a time that is drawn.
fn lost_update_by_lot() {
    lose(|| thread_rng().gen_range(0..4));
}

fn lose(pauses: fn() -> u32) {
    let sum = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let sum = Arc::clone(&sum);
            thread::spawn(move || {
                (0..pauses()).for_each(|_| thread::yield_now());
                sum.store(sum.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(sum.load(Ordering::SeqCst), 2, "an update was lost");
}

fn message(failed: Result<(), Box<dyn std::any::Any + Send>>) -> String {
    let payload = failed.expect_err("it fails");
    payload.downcast_ref::<String>().cloned().unwrap_or_default()
}

/// What a failing run writes down is enough to fail again, in the same way.
#[test]
fn a_failing_schedule_is_written_down_and_read_back() {
    read_back("a", lost_update);
}

#[test]
fn a_failing_schedule_with_draws_is_written_down_and_read_back() {
    read_back("b", lost_update_by_lot);
}

fn read_back(name: &str, lost_update: fn()) {
    let place = std::env::temp_dir().join(format!("schedule-{name}-{}", std::process::id()));
    fs::create_dir_all(&place).expect("a place for the schedule");
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::File(Some(place.clone()));
    let run = || Runner::new(RandomScheduler::new_from_seed(1, 1_000), config.clone()).run(lost_update);
    let failed = message(catch_unwind(AssertUnwindSafe(|| {
        let _ = run();
    })));
    let written = fs::read_dir(&place).expect("readable").next().expect("written").expect("readable").path();
    let schedule = fs::read_to_string(written).expect("readable");
    fs::remove_dir_all(&place).expect("ours");
    let strictly = message(catch_unwind(|| replay(lost_update, &schedule)));
    let as_pinned = message(catch_unwind(|| follow(lost_update, &schedule)));
    assert!(failed.contains("an update was lost"), "{failed}");
    assert_eq!((&strictly, &as_pinned), (&failed, &failed));
}
