//! A filter that has said no to a value, and an update that comes before the unit is back.

use super::*;

/// A filter that wants the second version, and stops when it is first asked about `at` after the stage was set to 1: until it is 3.
fn second_version(
    at: u32,
    stage: &Arc<AtomicUsize>,
) -> impl FnMut(&Entry<u32, u32, u32>) -> bool + Send + 'static {
    let stage = Arc::clone(stage);
    move |entry| {
        if entry.key == at && stage.load(SeqCst) == 1 {
            stage.store(2, SeqCst);
            while stage.load(SeqCst) == 2 {
                thread::yield_now();
            }
        }
        entry.value == 2
    }
}

fn asked(stage: &AtomicUsize) {
    while stage.load(SeqCst) != 2 {
        thread::yield_now();
    }
}

fn update(fleet: &Fleet) {
    fleet.update(Entry::new(0, 0, 2)).unwrap();
}

/// Whoever returns it asks before it is back; the update has nothing to offer then.
#[test]
fn an_update_while_the_unit_is_on_its_way_back() {
    let (fleet, _) = fleet(|builder| builder, 1);
    let lease = fleet.acquire().unwrap();
    let stage = Arc::new(AtomicUsize::new(0));
    let mut picky = waiting(fleet.acquire_where_async(second_version(0, &stage)));
    stage.store(1, SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| drop(lease));
        asked(&stage);
        update(&fleet);
        stage.store(3, SeqCst);
    });
    assert_eq!(done(&mut picky).unwrap().value, 2);
}

/// It is in hand, for one who leaves.
#[test]
fn an_update_while_the_unit_is_in_hand() {
    let (fleet, _) = fleet(|builder| builder, 1);
    let lease = fleet.acquire().unwrap();
    let stage = Arc::new(AtomicUsize::new(0));
    let mut picky = waiting(fleet.acquire_where_async(second_version(0, &stage)));
    let open = waiting(fleet.acquire_async());
    stage.store(1, SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| drop(lease));
        asked(&stage);
        update(&fleet);
        drop(open);
        stage.store(3, SeqCst);
    });
    assert_eq!(done(&mut picky).unwrap().value, 2);
    let stats = fleet.stats();
    assert_eq!(
        (stats.in_flight, stats.lent - stats.waits.unused),
        (0, 2),
        "what was lent, and not given back unused, are leases"
    );
}

/// It is left with a filter that is being asked about something else.
#[test]
fn an_update_while_the_unit_is_parked() {
    let (fleet, _) = fleet(|builder| builder, 2);
    let mut leases = fleet.acquire_many(2).unwrap();
    leases.sort_by_key(|lease| *lease.key());
    let (one, zero) = (leases.pop().unwrap(), leases.pop().unwrap());
    let stage = Arc::new(AtomicUsize::new(0));
    let mut picky = waiting(fleet.acquire_where_async(second_version(1, &stage)));
    stage.store(1, SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| drop(one));
        asked(&stage);
        drop(zero);
        update(&fleet);
        stage.store(3, SeqCst);
    });
    assert_eq!(done(&mut picky).unwrap().value, 2);
    assert_eq!(fleet.stats().in_flight, 0);
}
