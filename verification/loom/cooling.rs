//! Cooling: the hint of the earliest deadline (`Core::earliest`) never lasts later than what cools, and a thaw warms each
//! resource once.
//!
//! One resource is due and is thawed by an acquisition, while another one starts to cool, in the same shard or another.
//! Afterwards the second deadline comes too, and a peek, which trusts the hint alone, must find it.

use leasehold::{OwnedLease, internals::sync::Arc};

use crate::{
    common::{SHORT, model_within},
    driver::{Fleet, Res, Setup},
    wait::{Task, at_rest},
};

/// Resources 0, cooling and due, and 1. `main` makes 1 cool until `2 * SHORT` from the beginning, against a thaw.
fn thawing(shards: usize, main: fn(&Fleet)) {
    model_within(if shards == 1 { 2 } else { 1 }, move || {
        let fleet = Arc::new(Fleet::new(Setup { shards, ..Setup::default() }));
        for key in 0..2 {
            fleet.scheduler.insert(fleet.resource(key)).expect("new");
        }
        fleet.scheduler.cool(&0, SHORT).expect("a member");
        fleet.clock.advance(SHORT);
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || drop(fleet.scheduler.acquire_key(&0).expect("due")))
        };
        main(&fleet);
        other.join().expect("no panic");
        fleet.scheduler.check_invariants();
        fleet.scheduler.exclude(&0).expect("a member");
        assert!(fleet.scheduler.peek().is_none(), "1 cools");
        fleet.clock.advance(SHORT);
        assert_eq!(fleet.scheduler.peek().map(|found| found.check()), Some(1), "its deadline has come");
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

fn cool(fleet: &Fleet) {
    fleet.scheduler.cool(&1, SHORT).expect("a member");
}

#[test]
fn cool_thaw() {
    thawing(1, cool);
}

#[test]
fn cool_thaw_two_shards() {
    thawing(2, cool);
}

#[test]
fn release_after_thaw() {
    thawing(2, |fleet| fleet.scheduler.acquire_key(&1).expect("eligible").release_after(SHORT));
}

/// The deadline was there all the time, behind another hold.
#[test]
fn include_thaw() {
    thawing(2, |fleet| {
        fleet.scheduler.exclude(&1).expect("a member");
        fleet.scheduler.cool(&1, SHORT).expect("a member");
        fleet.scheduler.include(&1).expect("a member");
    });
}

/// The deadline was there all the time, behind a lease.
#[test]
fn release_of_a_cooling_one_thaw() {
    thawing(2, |fleet| {
        let lease = fleet.scheduler.acquire_key(&1).expect("eligible");
        fleet.scheduler.cool(&1, SHORT).expect("a member");
        drop(lease);
    });
}

/// Two thaws of one resource: it is warmed once, and both find it in some order.
#[test]
fn thaw_thaw() {
    model_within(2, || {
        let fleet = Arc::new(Fleet::new(Setup { units: 2, ..Setup::default() }));
        fleet.scheduler.insert(fleet.resource(0)).expect("new");
        fleet.scheduler.cool(&0, SHORT).expect("a member");
        fleet.clock.advance(SHORT);
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || fleet.scheduler.acquire_key(&0).is_ok())
        };
        let mine = fleet.scheduler.acquire_key(&0).is_ok();
        assert!(mine && other.join().expect("no panic"), "due, and there are two units");
        assert_eq!(fleet.scheduler.stats().warmed, 1);
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

/// The deadline is moved while a thaw looks at it: the later one counts.
#[test]
fn extend_thaw() {
    model_within(2, || {
        let fleet = Arc::new(Fleet::new(Setup::default()));
        fleet.scheduler.insert(fleet.resource(0)).expect("new");
        fleet.scheduler.cool(&0, SHORT).expect("a member");
        fleet.clock.advance(SHORT);
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || fleet.scheduler.acquire_key(&0).is_ok())
        };
        fleet.scheduler.cool(&0, SHORT).expect("a member");
        other.join().expect("no panic");
        assert!(fleet.scheduler.acquire().is_err(), "it cools, whoever came first");
        fleet.clock.advance(SHORT);
        assert!(fleet.scheduler.peek().is_some(), "its deadline has come");
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

/// Resource 0, cooling and due, is thawed by an acquisition, whose lease is soon over, while `main` does something to the same resource.
/// `judge` is told what came of that, and looks when nothing else goes on.
fn thawing_itself<T: 'static>(main: fn(&Fleet) -> T, judge: fn(&Fleet, T)) {
    model_within(1, move || {
        let fleet = Arc::new(Fleet::new(Setup::default()));
        fleet.scheduler.insert(fleet.resource(0)).expect("new");
        fleet.scheduler.cool(&0, SHORT).expect("a member");
        fleet.clock.advance(SHORT);
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || fleet.scheduler.acquire().ok().map(|lease| lease.check()))
        };
        let done = main(&fleet);
        other.join().expect("no panic");
        fleet.scheduler.check_invariants();
        judge(&fleet, done);
        assert!(fleet.scheduler.stats().warmed <= 1, "it was due once");
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

/// Held, and its time is over: it comes back when the hold ends, without waiting for anything else.
fn back_after<E>(fleet: &Fleet, end: impl Fn(&Fleet) -> Result<bool, E>) {
    assert!(fleet.scheduler.acquire().is_err(), "it is held");
    assert!(end(fleet).is_ok_and(|ended| ended));
    assert_eq!(fleet.scheduler.acquire().expect("its time is over").check(), 0);
}

#[test]
fn exclude_thaw() {
    thawing_itself(
        |fleet| fleet.scheduler.exclude(&0).expect("a member"),
        |fleet, _| back_after(fleet, |fleet| fleet.scheduler.include(&0)),
    );
}

#[test]
fn eject_thaw() {
    thawing_itself(
        |fleet| fleet.scheduler.eject(&0).expect("a member"),
        |fleet, _| back_after(fleet, |fleet| fleet.scheduler.readmit(&0)),
    );
}

#[test]
fn drain_thaw() {
    thawing_itself(
        |fleet| fleet.scheduler.drain(&0).expect("a member"),
        |fleet, _| back_after(fleet, |fleet| fleet.scheduler.undrain(&0)),
    );
}

/// Whoever comes first, it is warmed once.
#[test]
fn warm_thaw() {
    thawing_itself(
        |fleet| fleet.scheduler.warm(&0).expect("a member"),
        |fleet, _| {
            assert_eq!(fleet.scheduler.stats().warmed, 1);
            assert_eq!(fleet.scheduler.acquire().expect("its time is over").check(), 0);
        },
    );
}

#[test]
fn remove_thaw() {
    thawing_itself(
        |fleet| fleet.scheduler.remove(&0).expect("a member").in_flight,
        |fleet, in_flight| {
            assert!(in_flight <= 1 && fleet.scheduler.acquire().is_err() && fleet.scheduler.is_empty());
        },
    );
}

/// What is due and replaced stays due.
#[test]
fn update_thaw() {
    thawing_itself(
        |fleet| fleet.scheduler.update_with(&0, |old| old.again(1)).expect("a member"),
        |fleet, ()| assert_eq!(fleet.scheduler.acquire().expect("its time is over").version, 1),
    );
}

/// Both thaw it, and one of the two has it. The lease stays: an eviction that meets it and looks again as it ends takes far more steps.
#[test]
fn evict_thaw() {
    model_within(1, || {
        let fleet = Arc::new(Fleet::new(Setup::default()));
        fleet.scheduler.insert(fleet.resource(0)).expect("new");
        fleet.scheduler.cool(&0, SHORT).expect("a member");
        fleet.clock.advance(SHORT);
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || fleet.scheduler.acquire_key_owned(&0).ok())
        };
        let evicted = fleet.scheduler.evict_worst();
        let lease = other.join().expect("no panic");
        fleet.scheduler.check_invariants();
        assert_eq!(evicted.is_some(), lease.is_none(), "one has it, and the other nothing");
        assert_eq!(fleet.scheduler.stats().warmed, 1, "it was due once");
        drop(lease);
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

// Lent out of its turn: one that is due, and that whoever asks for it has still met cooling (`Locked::lend_if_due`).

type Leased = Option<OwnedLease<Res>>;

/// Resource 0 is due; so are 1 and 2, before it, so that a thaw, which takes two at a time, leaves it. What both threads
/// have got they keep until both have ended.
fn due<A: 'static, B: 'static>(
    bound: usize,
    main: fn(&Fleet) -> A,
    other: fn(&Fleet) -> B,
    judge: fn(&Fleet, A, B),
) {
    model_within(bound, move || {
        let fleet = Arc::new(Fleet::new(Setup::default()));
        for (key, after) in [(1, 1), (2, 1), (0, 2)] {
            fleet.scheduler.insert(fleet.resource(key)).expect("new");
            fleet.scheduler.cool(&key, after * SHORT).expect("a member");
        }
        fleet.clock.advance(2 * SHORT);
        let thread = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || other(&fleet))
        };
        let mine = main(&fleet);
        let others = thread.join().expect("no panic");
        judge(&fleet, mine, others);
        let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
        fleet.finish();
    });
}

fn by_key(fleet: &Fleet) -> Leased {
    fleet.scheduler.acquire_key_owned(&0).ok().inspect(|lease| assert_eq!(lease.check(), 0))
}

fn by_filter(fleet: &Fleet) -> Leased {
    let lease = fleet.scheduler.acquire_where_owned(|resource| resource.key == 0 && resource.version == 0);
    lease.ok().inspect(|lease| assert_eq!((lease.check(), lease.version), (0, 0)))
}

fn one_of_two(fleet: &Fleet, mine: Leased, other: Leased) {
    assert!(mine.is_some() != other.is_some(), "one unit, and it was due all the time");
    assert_eq!(fleet.scheduler.check_invariants().in_flight, 1);
}

#[test]
fn due_by_key_by_key() {
    due(2, by_key, by_key, one_of_two);
}

#[test]
fn due_by_key_by_filter() {
    due(2, by_key, by_filter, one_of_two);
}

#[test]
fn due_by_filter_by_filter() {
    due(2, by_filter, by_filter, one_of_two);
}

/// Warmed, lent and returned by somebody else in between.
fn used(fleet: &Fleet) -> bool {
    fleet.scheduler.warm(&0).expect("a member");
    fleet.scheduler.acquire_key(&0).is_ok()
}

#[test]
fn due_by_key_used() {
    due(2, by_key, used, |_, mine, used| assert!(mine.is_some() || used, "it was eligible for one of them"));
}

#[test]
fn due_by_filter_used() {
    due(2, by_filter, used, |_, mine, used| {
        assert!(mine.is_some() || used, "it was eligible for one of them")
    });
}

/// Warmed, lent, and cooling again, until later.
fn used_and_cooled(fleet: &Fleet) {
    if let Ok(lease) = fleet.scheduler.acquire_key(&0) {
        lease.release_after(SHORT);
    }
}

/// It was lent before it cooled anew, or not at all.
fn cools(fleet: &Fleet, mine: Leased, (): ()) {
    let (began, cooled) = (mine.is_some(), fleet.scheduler.stats().cooled);
    drop(mine);
    assert_eq!(fleet.scheduler.acquire_key(&0).is_ok(), cooled == 3, "it cools until later");
    assert!(began || cooled == 4, "somebody has had it");
}

#[test]
fn due_by_key_used_and_cooled() {
    due(2, by_key, used_and_cooled, cools);
}

#[test]
fn due_by_filter_used_and_cooled() {
    due(2, by_filter, used_and_cooled, cools);
}

fn cool_on(fleet: &Fleet) {
    fleet.scheduler.cool(&0, SHORT).expect("a member");
}

#[test]
fn due_by_key_cooled_on() {
    due(2, by_key, cool_on, |fleet, mine, ()| {
        drop(mine);
        assert!(fleet.scheduler.acquire_key(&0).is_err(), "it cools until later");
    });
}

#[test]
fn due_by_filter_cooled_on() {
    due(2, by_filter, cool_on, |fleet, mine, ()| {
        drop(mine);
        assert!(fleet.scheduler.acquire_key(&0).is_err(), "it cools until later");
    });
}

fn exclude(fleet: &Fleet) {
    fleet.scheduler.exclude(&0).expect("a member");
}

#[test]
fn due_by_key_excluded() {
    due(2, by_key, exclude, |fleet, mine, ()| {
        drop(mine);
        assert!(fleet.scheduler.acquire_key(&0).is_err(), "it is excluded");
    });
}

#[test]
fn due_by_filter_excluded() {
    due(2, by_filter, exclude, |fleet, mine, ()| {
        drop(mine);
        assert!(fleet.scheduler.acquire_key(&0).is_err(), "it is excluded");
    });
}

fn remove(fleet: &Fleet) -> u32 {
    fleet.scheduler.remove(&0).expect("nobody else removes").in_flight
}

#[test]
fn due_by_key_removed() {
    due(2, by_key, remove, |_, mine, in_flight| assert_eq!(mine.is_some(), in_flight == 1));
}

#[test]
fn due_by_filter_removed() {
    due(2, by_filter, remove, |_, mine, in_flight| assert_eq!(mine.is_some(), in_flight == 1));
}

/// What was accepted is replaced by what would not be: `by_filter` looks at the value that it was lent.
#[test]
fn due_by_filter_updated() {
    let renew = |fleet: &Fleet| fleet.scheduler.update_with(&0, |old| old.again(1)).expect("a member");
    due(2, by_filter, renew, |_, mine, ()| drop(mine));
}

/// The same, while somebody waits who takes anything: what is due is for that one first, and the value may be replaced before the filter has
/// what is left.
#[test]
fn due_by_filter_updated_waited() {
    model_within(1, || {
        let fleet = Arc::new(Fleet::new(Setup::default()));
        for (key, units, after) in [(1, 1, 1), (2, 1, 1), (0, 2, 2)] {
            fleet.scheduler.insert(fleet.resource(key).again_with_units(0, units)).expect("new");
            fleet.scheduler.cool(&key, after * SHORT).expect("a member");
        }
        // One of each.
        let mut many = Task::waiting(fleet.scheduler.acquire_many_async_owned(3));
        fleet.clock.advance(2 * SHORT);
        let other = {
            let fleet = Arc::clone(&fleet);
            crate::common::spawn(move || {
                fleet.scheduler.update_with(&0, |old| old.again_with_units(1, 2)).expect("a member");
            })
        };
        let mine = by_filter(&fleet);
        other.join().expect("no panic");
        let _ = fleet.scheduler.tick();
        assert_eq!(many.done().expect("one of each").len(), 3);
        drop((many, mine));
        at_rest(fleet, 4);
    });
}
