//! Waiting: several at once. One that has a part stands before all others that take anything, and gets the rest; what it holds in vain is not
//! kept from anybody.

use leasehold::WaitError;
use loom::future::block_on;

use crate::{
    common::{model, model_within},
    driver::{Fleet, Setup},
    told::Told,
    wait::{Task, at_rest, fleet, spawn},
};

fn two_shards() -> Setup {
    Setup { shards: 2, ..Setup::default() }
}

/// Two units come back at once, and one waits for both before another that takes anything: it gets both.
#[test]
fn release_release_before_another() {
    model(|| {
        let fleet = fleet(two_shards(), 2);
        let one = fleet.scheduler.acquire_owned().expect("free");
        let two = fleet.scheduler.acquire_owned().expect("free");
        let mut many = Task::waiting(fleet.scheduler.acquire_many_async_owned(2));
        let mut next = Task::waiting(fleet.scheduler.acquire_async_owned());
        let other = spawn(&fleet, move |_| drop(one));
        drop(two);
        other.join().expect("no panic");
        assert!(!next.is_woken(), "one collects");
        let leases = many.done().expect("both");
        assert_eq!(leases.len(), 2);
        drop(leases);
        drop(next.done().expect("the next one"));
        drop((many, next));
        at_rest(fleet, 2);
    });
}

/// It has a part as one of a higher class registers, and the last unit comes back: it has that, for it stands before every class.
#[test]
fn higher_release_of_the_last() {
    model(|| {
        let fleet = fleet(two_shards(), 2);
        let one = fleet.scheduler.acquire_owned().expect("free");
        let two = fleet.scheduler.acquire_owned().expect("free");
        let mut many = Task::waiting(fleet.scheduler.acquire_many_async_owned(2));
        drop(one);
        assert!(!many.is_woken(), "a part");
        let other = spawn(&fleet, |fleet| {
            let mut task = Task::new(fleet.scheduler.request().class(3).owned());
            (task.poll().is_none(), task)
        });
        drop(two);
        let (waits, mut higher) = other.join().expect("no panic");
        assert!(waits, "it was before all others");
        let leases = many.done().expect("both");
        assert!(!higher.is_woken());
        drop(leases);
        drop(higher.done().expect("the next one"));
        drop((many, higher));
        at_rest(fleet, 2);
    });
}

/// It registers as the two units come back.
#[test]
fn register_release_release() {
    model_within(1, || {
        let fleet = fleet(two_shards(), 2);
        let one = fleet.scheduler.acquire_owned().expect("free");
        let two = fleet.scheduler.acquire_owned().expect("free");
        let other =
            spawn(&fleet, |fleet| block_on(fleet.scheduler.acquire_many_async(2)).map(|leases| leases.len()));
        drop(one);
        drop(two);
        assert_eq!(other.join().expect("no panic"), Ok(2));
        at_rest(fleet, 2);
    });
}

/// A passer-by takes several as well, all or nothing: who waits for both has them before it.
#[test]
fn passer_by_of_several() {
    model(|| {
        let fleet = fleet(two_shards(), 2);
        let one = fleet.scheduler.acquire_owned().expect("free");
        let two = fleet.scheduler.acquire_owned().expect("free");
        let mut many = Task::waiting(fleet.scheduler.acquire_many_async_owned(2));
        let other = spawn(&fleet, move |_| {
            drop(one);
            drop(two);
        });
        assert!(fleet.scheduler.acquire_many(2).is_err(), "no barging");
        other.join().expect("no panic");
        assert_eq!(many.done().expect("both").len(), 2);
        drop(many);
        at_rest(fleet, 2);
    });
}

/// A unit is on its way to one who collects as its resource is removed: the part is taken back, and the next units make up for it.
#[test]
fn remove_part() {
    model(|| {
        let fleet = fleet(Setup::default(), 2);
        let one = fleet.scheduler.acquire_key_owned(&0).expect("free");
        let two = fleet.scheduler.acquire_key_owned(&1).expect("free");
        let mut many = Task::waiting(fleet.scheduler.acquire_many_async_owned(2));
        let other = spawn(&fleet, move |_| drop(one));
        fleet.scheduler.remove(&0).expect("a member");
        other.join().expect("no panic");
        let stats = fleet.scheduler.stats();
        assert_eq!((stats.in_flight, stats.leaving), (1, 0), "nobody keeps what was removed");
        drop(two);
        assert!(!many.is_woken());
        fleet.scheduler.insert(fleet.resource(0)).expect("removed");
        assert_eq!(many.done().expect("both").len(), 2);
        drop(many);
        at_rest(fleet, 2);
    });
}

/// It has a part, which is taken back, as the last unit comes: it is complete before that, or stands in the queue for as many as it lacks.
#[test]
fn remove_part_release_of_the_last() {
    model(|| {
        let fleet = fleet(Setup::default(), 2);
        let one = fleet.scheduler.acquire_key_owned(&0).expect("free");
        let two = fleet.scheduler.acquire_key_owned(&1).expect("free");
        let mut told = Told { leases: 2, ..Told::default() };
        let mut many = Task::waiting(fleet.scheduler.acquire_many_async_owned(2));
        drop(one);
        let other = spawn(&fleet, move |_| drop(two));
        let gone = fleet.scheduler.remove(&0).expect("a member");
        other.join().expect("no panic");
        assert_eq!(gone.in_flight, 1, "a part, or a lease");
        let ended = if many.is_woken() {
            // Complete before the removal.
            many.done()
        } else {
            assert_eq!(fleet.scheduler.stats().leaving, 0, "nobody keeps what was removed");
            fleet.scheduler.insert(fleet.resource(2)).expect("new");
            many.done()
        };
        told.leases += 1;
        told.ended(&ended);
        assert_eq!(ended.as_ref().map(Vec::len), Ok(2));
        drop((ended, many));
        told.demand(&fleet);
        let members = fleet.scheduler.stats().members as usize;
        at_rest(fleet, members);
    });
}

/// It gives up with its part as the last unit comes: both are the others'.
#[test]
fn cancel_release_of_the_last() {
    model(|| {
        let fleet = fleet(two_shards(), 2);
        let one = fleet.scheduler.acquire_owned().expect("free");
        let two = fleet.scheduler.acquire_owned().expect("free");
        let many = Task::waiting(fleet.scheduler.acquire_many_async_owned(2));
        let mut nexts = [(); 2].map(|()| Task::waiting(fleet.scheduler.acquire_async_owned()));
        drop(one);
        let other = spawn(&fleet, move |_| drop(two));
        drop(many);
        other.join().expect("no panic");
        let leases = nexts.each_mut().map(|next| next.done().expect("the next one"));
        assert_ne!(leases[0].check(), leases[1].check());
        drop((leases, nexts));
        at_rest(fleet, 2);
    });
}

/// One by name waits before it: it is served before the part of the one that collects is complete, and not kept from its resource.
#[test]
fn named_before_the_last() {
    model(|| {
        let fleet = fleet(two_shards(), 2);
        let zero = fleet.scheduler.acquire_key_owned(&0).expect("free");
        let one = fleet.scheduler.acquire_key_owned(&1).expect("free");
        let mut named = Task::waiting(fleet.scheduler.acquire_key_async_owned(&1));
        let mut many = Task::waiting(fleet.scheduler.acquire_many_async_owned(2));
        let other = spawn(&fleet, move |_| drop(zero));
        drop(one);
        other.join().expect("no panic");
        assert!(!many.is_woken(), "it has one");
        let lease = named.done().expect("it was before");
        assert_eq!(lease.check(), 1);
        drop(lease);
        assert_eq!(many.done().map(|leases| leases.len()), Ok::<_, WaitError>(2));
        drop((named, many));
        at_rest(fleet, 2);
    });
}

fn several(fleet: &Fleet) -> Result<usize, WaitError> {
    block_on(fleet.scheduler.acquire_many_async(2)).map(|leases| leases.len())
}

/// A batch brings what several want.
#[test]
fn batch_register() {
    model_within(1, || {
        let fleet = fleet(Setup::default(), 0);
        let other = spawn(&fleet, several);
        fleet.scheduler.insert_batch(vec![fleet.resource(0), fleet.resource(1)]).expect("new");
        assert_eq!(other.join().expect("no panic"), Ok(2));
        at_rest(fleet, 2);
    });
}
