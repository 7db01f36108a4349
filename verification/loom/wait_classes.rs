//! Waiting: classes that age. Two later arrivals make up for one class here, so one of class 0 is overtaken by one of class 1 that
//! arrives right after it, and by none that comes later.

use leasehold::{AcquireOwned, Fairness, OwnedLease, internals::sync::Arc};

use crate::{
    common::{model, model_within},
    driver::{Fleet, Res, Setup},
    wait::{Task, at_rest, built, spawn},
};

/// One resource.
fn fleet(fairness: Fairness) -> Arc<Fleet> {
    built(Setup::default(), 1, |builder| builder.fairness(fairness).ageing(2))
}

/// One who waits; the lease, if it came before the first poll was over.
type Waiting = (Task<AcquireOwned<Res>>, Option<OwnedLease<Res>>);

fn arrive(fleet: &Fleet, class: u8) -> Waiting {
    let mut task = Task::new(fleet.scheduler.request().class(class).owned());
    let early = task.poll().map(|ended| ended.expect("the unit"));
    (task, early)
}

/// Serves all of them with the one unit, each after the other; answers with their order.
fn in_order(waiting: impl IntoIterator<Item = Waiting>) -> Vec<usize> {
    let mut left: Vec<(usize, Waiting)> = waiting.into_iter().enumerate().collect();
    let is_served = |(_, (task, early)): &(usize, Waiting)| early.is_some() || task.is_woken();
    let mut order = Vec::new();
    while !left.is_empty() {
        let next = left.iter().position(is_served).expect("somebody is served");
        let (index, (mut task, early)) = left.remove(next);
        assert!(!left.iter().any(is_served), "one unit, one taker");
        order.push(index);
        drop(early.unwrap_or_else(|| task.done().expect("handed over")));
    }
    order
}

/// One of a higher class registers while a unit comes back: it is first or second. The next one of that class is the last.
#[test]
fn higher_release() {
    model(|| {
        let fleet = fleet(Fairness::Strict);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let low = arrive(&fleet, 0);
        let other = spawn(&fleet, |fleet| arrive(fleet, 1));
        drop(lease);
        let high = other.join().expect("no panic");
        let late = arrive(&fleet, 1);
        let order = in_order([low, high, late]);
        assert!(order == [0, 1, 2] || order == [1, 0, 2], "{order:?}");
        at_rest(fleet, 1);
    });
}

/// Two of a higher class register at the same time, and then a unit comes back. Whichever arrived first overtakes the one that waits, and
/// the other one does not.
#[test]
fn higher_higher_release() {
    model_within(1, || {
        let fleet = fleet(Fairness::Strict);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let low = arrive(&fleet, 0);
        let other = spawn(&fleet, |fleet| arrive(fleet, 1));
        let mine = arrive(&fleet, 1);
        drop(lease);
        let theirs = other.join().expect("no panic");
        let order = in_order([low, mine, theirs]);
        assert_eq!(order[1], 0, "{order:?}");
        at_rest(fleet, 1);
    });
}

/// The one of a higher class gives up while a unit comes back: the unit is not lost on it, and the order of the others is what it was.
#[test]
fn higher_cancel_release() {
    model(|| {
        let fleet = fleet(Fairness::Strict);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let low = arrive(&fleet, 0);
        let high = arrive(&fleet, 1);
        let late = arrive(&fleet, 1);
        let other = spawn(&fleet, move |_| drop(high));
        drop(lease);
        other.join().expect("no panic");
        assert_eq!(in_order([low, late]), [0, 1]);
        at_rest(fleet, 1);
    });
}

/// Throughput: whoever was woken and found nothing stands in its own place again, before one that came meanwhile.
#[test]
fn nudged_in_vain_keeps_its_place() {
    model_within(1, || {
        let fleet = fleet(Fairness::Throughput);
        let lease = fleet.scheduler.acquire_owned().expect("free");
        let (mut first, _) = arrive(&fleet, 0);
        let other = spawn(&fleet, move |_| drop(lease));
        let taken = fleet.scheduler.acquire_owned().ok();
        let (mut late, early) = arrive(&fleet, 0);
        other.join().expect("no panic");
        assert!(taken.is_none() || early.is_none(), "one unit");
        let late_waits = early.is_none();
        if let Some(lease) = taken.or(early) {
            // Whoever has it came by; the nudge was in vain.
            let before = first.rings();
            assert!(first.poll().is_none());
            let late_before = late.rings();
            drop(lease);
            assert!(first.rings() > before, "the first is woken again");
            assert_eq!(late.rings(), late_before, "and nobody else");
        }
        drop(first.done().expect("the unit"));
        if late_waits {
            drop(late.done().expect("the unit"));
        }
        drop((first, late));
        at_rest(fleet, 1);
    });
}
