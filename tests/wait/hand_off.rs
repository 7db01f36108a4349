//! Who gets what, and when.

use super::*;

#[test]
fn what_is_free_is_had_at_once() {
    let fleet = fleet(1);
    drop(Task::new(fleet.acquire_async()).done().unwrap());
    drop(fleet.acquire_timeout(Duration::ZERO).unwrap());
    drop(fleet.request().key(&0).wait().unwrap());
    assert_eq!(waits(&fleet).waited, 0);
    at_rest(&fleet);
}

#[test]
fn in_order_of_arrival_and_directly() {
    let fleet = fleet(1);
    let lease = fleet.acquire().unwrap();
    let mut tasks: Vec<_> = (0..5).map(|_| waiting(&fleet)).collect();
    drop(lease);
    for i in 0..5 {
        assert!(fleet.acquire().is_err(), "no passer-by gets what somebody waits for");
        assert!(waiting(&fleet).woken() == 0, "nor does a newcomer");
        for (j, task) in tasks.iter_mut().enumerate().skip(i) {
            assert_eq!(task.woken(), usize::from(i == j), "one is woken for one unit");
        }
        drop(tasks[i].done().unwrap());
    }
    at_rest(&fleet);
    assert_eq!((waits(&fleet).handed_off, waits(&fleet).cancelled), (5, 5));
}

#[test]
fn a_thread_and_a_task_stand_in_one_queue() {
    let fleet = fleet(1);
    let lease = fleet.acquire().unwrap();
    thread::scope(|scope| {
        let thread = scope.spawn(|| *fleet.acquire_timeout(Duration::from_secs(30)).unwrap().key());
        while waits(&fleet).waited == 0 {
            thread::yield_now();
        }
        let mut task = waiting(&fleet);
        drop(lease);
        assert_eq!(thread.join().unwrap(), 0);
        assert_eq!(task.woken(), 1, "after the thread");
        drop(task.done().unwrap());
    });
    at_rest(&fleet);
}

#[test]
fn each_kind_gets_what_it_wants() {
    let fleet = fleet(3);
    let all = fleet.acquire_many(3).unwrap();
    let mut named = Task::waiting(fleet.acquire_key_async(&2));
    let mut odd = Task::waiting(fleet.acquire_where_async(|entry| entry.key % 2 == 1));
    let mut near = Task::waiting(fleet.acquire_by_affinity_async("me"));
    let mut two = Task::waiting(fleet.acquire_many_async(2));
    let mut leases: Vec<Option<Lease<'_, _>>> = all.into_iter().map(Some).collect();
    leases.sort_by_key(|lease| *lease.as_ref().unwrap().key());
    leases[0] = None;
    assert_eq!((named.woken(), odd.woken(), near.woken(), two.woken()), (0, 0, 1, 0));
    leases[1] = None;
    assert_eq!((named.woken(), odd.woken(), two.woken()), (0, 1, 0));
    leases[2] = None;
    assert_eq!((named.woken(), two.woken()), (1, 0));
    assert_eq!(*near.done().unwrap().key(), 0);
    assert_eq!(two.woken(), 0, "one of two");
    assert_eq!(*odd.done().unwrap().key(), 1);
    assert_eq!(*named.done().unwrap().key(), 2);
    let mut keys: Vec<_> = two.done().unwrap().iter().map(|lease| *lease.key()).collect();
    keys.sort_unstable();
    assert_eq!(keys, [0, 1]);
    at_rest(&fleet);
}

#[test]
fn spawned_futures_borrow_nothing() {
    fn spawnable<T: Future + Send + 'static>(future: T) -> T {
        future
    }
    let fleet = fleet(1);
    let lease = fleet.acquire().unwrap();
    let mut tasks: Vec<Task<AcquireOwned<_>>> = vec![
        Task::waiting(spawnable(fleet.acquire_async_owned())),
        Task::waiting(spawnable(fleet.acquire_key_async_owned(&0))),
        Task::waiting(spawnable(fleet.acquire_by_affinity_async_owned(&7))),
        Task::waiting(spawnable(fleet.acquire_where_async_owned(|_| true))),
    ];
    let mut many = Task::waiting(spawnable(fleet.acquire_many_async_owned(1)));
    drop(lease);
    for task in &mut tasks {
        drop(task.done().unwrap());
    }
    drop(many.done().unwrap());
    at_rest(&fleet);
    let left = Task::new(fleet.acquire_async_owned()).done().unwrap();
    drop(fleet);
    assert_eq!(*left.key(), 0);
}

#[test]
fn every_source_serves_those_who_wait() {
    let fleet = fleet(0);
    let mut any = waiting(&fleet);
    fleet.insert(Entry::new(0, 0, 0)).unwrap();
    let lease = any.done().unwrap();

    let mut any = waiting(&fleet);
    fleet.insert_batch(vec![Entry::new(1, 0, 0), Entry::new(2, 0, 0)]).unwrap();
    let batch = (any.done().unwrap(), fleet.acquire().unwrap());

    let mut any = waiting(&fleet);
    fleet.update(Entry::new(0, 0, 1).with_capacity(Capacity::Limited(2))).unwrap();
    assert_eq!(any.done().unwrap().value, 1);
    fleet.exclude(&0).unwrap();

    let mut any = waiting(&fleet);
    fleet.include(&0).unwrap();
    drop(any.done().unwrap());

    for (hold, clear) in [
        (Fleet::drain as fn(&Fleet, &u32) -> _, Fleet::undrain as fn(&Fleet, &u32) -> _),
        (Fleet::eject, Fleet::readmit),
        (|fleet, key| fleet.cool(key, Duration::from_secs(1_000)), Fleet::warm),
    ] {
        assert!(hold(&fleet, &0).unwrap());
        let mut any = waiting(&fleet);
        assert!(clear(&fleet, &0).unwrap());
        drop(any.done().unwrap());
    }

    let mut filtered = Task::waiting(fleet.acquire_where_async(|entry| entry.value == 9));
    fleet.update_with(&0, |old| Entry { value: 9, ..*old }).unwrap();
    assert_eq!(filtered.done().unwrap().value, 9);

    drop(lease);
    let token = fleet.acquire_many(2).unwrap().pop().unwrap().into_token();
    let rest = fleet.acquire().unwrap();
    let mut any = waiting(&fleet);
    fleet.release(token).unwrap();
    drop(any.done().unwrap());
    drop((rest, batch));
    at_rest(&fleet);
}

#[test]
fn a_removed_resource_is_waited_for_no_more() {
    let fleet = fleet(2);
    let leases = fleet.acquire_many(2).unwrap();
    let mut named = Task::waiting(fleet.acquire_key_async(&1));
    let mut other = Task::waiting(fleet.acquire_key_async(&0));
    fleet.remove(&1).unwrap();
    assert_eq!(named.done().unwrap_err(), WaitError::NotFound);
    assert_eq!(other.woken(), 0);
    drop(leases);
    drop(other.done().unwrap());
    assert_eq!(Task::new(fleet.acquire_key_async(&1)).done().unwrap_err(), WaitError::NotFound);
    at_rest(&fleet);
    assert_eq!(waits(&fleet).failed, 1);
}

#[test]
fn close_ends_every_wait_and_returns_land() {
    let fleet = fleet(2);
    let leases = fleet.acquire_many(2).unwrap();
    let mut any = waiting(&fleet);
    let mut named = Task::waiting(fleet.acquire_key_async(&1));
    let mut filtered = Task::waiting(fleet.acquire_where_async(|_| true));
    let mut many = Task::waiting(fleet.acquire_many_async(2));
    thread::scope(|scope| {
        let thread = scope.spawn(|| fleet.request().wait().map(drop));
        while waits(&fleet).waited < 5 {
            thread::yield_now();
        }
        fleet.close();
        assert_eq!(thread.join().unwrap().unwrap_err(), WaitError::Closed);
    });
    assert_eq!(any.done().unwrap_err(), WaitError::Closed);
    assert_eq!(named.done().unwrap_err(), WaitError::Closed);
    assert_eq!(filtered.done().unwrap_err(), WaitError::Closed);
    assert_eq!(many.done().unwrap_err(), WaitError::Closed);
    drop(leases);
    // They are free now, and not to be had.
    let late = [
        Task::new(fleet.acquire_async()).done().unwrap_err(),
        Task::new(fleet.acquire_key_async(&1)).done().unwrap_err(),
        Task::new(fleet.acquire_by_affinity_async(&1)).done().unwrap_err(),
        Task::new(fleet.acquire_where_async(|_| true)).done().unwrap_err(),
        Task::new(fleet.acquire_many_async(2)).done().unwrap_err(),
        fleet.acquire_key_timeout(&0, Duration::from_secs(30)).unwrap_err(),
    ];
    assert!(late.iter().all(|error| *error == WaitError::Closed), "{late:?}");
    assert_eq!((fleet.stats().in_flight, waits(&fleet).closed), (0, 5));
}
