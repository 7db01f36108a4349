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
    let woken = [any.woken(), named.woken(), filtered.woken(), many.woken()];
    assert!(woken.iter().all(|&times| times > 0), "each is told: {woken:?}");
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

/// Each form that waits until a moment of the scheduler's clock.
#[test]
fn forms_with_a_deadline_end_at_it() {
    let clock = Arc::new(MonotonicClock::new());
    let fleet = filled(Fleet::builder().shards(2).clock(Arc::clone(&clock)).build().unwrap(), 1);
    type Form = fn(&Fleet, Timestamp) -> Result<(), WaitError>;
    let forms: [Form; 5] = [
        |fleet, end| fleet.acquire_deadline(end).map(drop),
        |fleet, end| fleet.acquire_key_deadline(&0, end).map(drop),
        |fleet, end| fleet.acquire_by_affinity_deadline("x", end).map(drop),
        |fleet, end| fleet.acquire_where_deadline(|entry| entry.key == 0, end).map(drop),
        |fleet, end| fleet.acquire_many_deadline(1, end).map(drop),
    ];
    for form in forms {
        form(&fleet, clock.now()).expect("what is free is had, whatever the time");
        let lease = fleet.acquire().unwrap();
        let end = clock.now().saturating_add(Duration::from_millis(20));
        assert!(matches!(form(&fleet, end), Err(WaitError::TimedOut { .. })));
        assert!(clock.now() >= end, "not before");
        drop(lease);
    }
    assert_eq!(waits(&fleet).timed_out, 5);
    at_rest(&fleet);
}

/// Each form that waits for so long.
#[test]
fn forms_with_a_timeout_end_after_it() {
    let fleet = fleet(1);
    type Form = fn(&Fleet, Duration) -> Result<(), WaitError>;
    let forms: [Form; 5] = [
        |fleet, time| fleet.acquire_timeout(time).map(drop),
        |fleet, time| fleet.acquire_key_timeout(&0, time).map(drop),
        |fleet, time| fleet.acquire_by_affinity_timeout("x", time).map(drop),
        |fleet, time| fleet.acquire_where_timeout(|entry| entry.key == 0, time).map(drop),
        |fleet, time| fleet.acquire_many_timeout(1, time).map(drop),
    ];
    for form in forms {
        form(&fleet, Duration::ZERO).expect("what is free is had in no time");
        let lease = fleet.acquire().unwrap();
        let time = Duration::from_millis(20);
        let start = Instant::now();
        let Err(WaitError::TimedOut { waited }) = form(&fleet, time) else { panic!("nothing is free") };
        assert!(
            (time..=start.elapsed()).contains(&waited),
            "{waited:?}: not before, and not longer than it took"
        );
        // What comes back while it waits is had.
        thread::scope(|scope| {
            let before = waits(&fleet).waited;
            let thread = scope.spawn(|| form(&fleet, 60 * SECOND));
            while waits(&fleet).waited == before {
                thread::yield_now();
            }
            drop(lease);
            thread.join().unwrap().expect("it comes back");
        });
    }
    assert_eq!((waits(&fleet).timed_out, waits(&fleet).handed_off), (5, 5));
    at_rest(&fleet);
}

/// The owned forms that block, and several at once as a task: what they give outlives the scheduler.
#[test]
fn owned_forms_outlive_the_scheduler() {
    let fleet = fleet(3);
    let leases = fleet.acquire_many(3).unwrap();
    let wanted = 1;
    let until_waited = |waited: u64| {
        while waits(&fleet).waited < waited {
            thread::yield_now();
        }
    };
    let filter = |entry: &Entry<u32, u32, u32>| entry.key == wanted;
    let (filtered, several) = thread::scope(|scope| {
        let filtered = scope.spawn(|| fleet.request().matching(&filter).wait_owned().unwrap());
        until_waited(1);
        let mut many = Task::waiting(fleet.acquire_many_async_owned(2));
        drop(leases);
        let filtered = filtered.join().unwrap();
        let many = many.done().unwrap();
        assert_eq!(many.len(), 2);
        let several = scope.spawn(|| fleet.request().many(2).wait_owned().unwrap());
        until_waited(3);
        drop(many);
        (filtered, several.join().unwrap())
    });
    assert_eq!(*filtered.key(), 1);
    drop(fleet);
    let mut keys: Vec<u32> = several.iter().map(|lease| *lease.key()).collect();
    keys.sort_unstable();
    assert_eq!(keys, [0, 2]);
}

/// What the short way of a hand-over leaves behind is what a return and an acquisition leave.
#[test]
fn handed_over_is_returned_and_lent() {
    let told = |is_short: bool| {
        let fleet = filled(Fleet::builder().shards(1).build().unwrap(), 2);
        let (held, kept) = (fleet.acquire().unwrap(), fleet.acquire().unwrap());
        // A unit looks for its taker in the whole queue then.
        let nobody = (!is_short).then(|| Task::waiting(fleet.acquire_where_async(|_| false)));
        let mut tasks = [waiting(&fleet), waiting(&fleet)];
        held.finish(Outcome::Ok { latency: SECOND });
        let taken = tasks[0].done().unwrap();
        assert_eq!((*taken.key(), tasks[1].woken()), (0, 0));
        taken.release();
        let taken = tasks[1].done().unwrap();
        let stats = fleet.stats();
        assert_eq!((stats.lent, stats.returned, stats.succeeded), (4, 2, 1));
        assert_eq!((stats.eligible, stats.available, stats.in_flight), (0, 0, 2));
        assert_eq!(stats.waits.unused, 0);
        drop(nobody);
        // The one that has come back last is had last, if they are equal.
        fleet.update(Entry::new(0, 1, 0)).unwrap();
        drop((taken, kept));
        assert_eq!([*fleet.acquire().unwrap().key(), *fleet.acquire().unwrap().key()], [0, 1]);
        at_rest(&fleet);
        (stats.shards, stats.reasons)
    };
    assert_eq!(told(true), told(false));
}

/// Whatever has become of the resource while it was lent decides whether the lease that ends is handed over.
#[test]
fn what_is_not_as_it_was_goes_the_long_way() {
    let change = |change: fn(&Fleet), is_handed_over: bool| {
        let fleet = fleet(1);
        let lease = fleet.acquire().unwrap();
        let mut task = waiting(&fleet);
        change(&fleet);
        drop(lease);
        assert_eq!(task.woken(), usize::from(is_handed_over));
        if !is_handed_over {
            assert_eq!(fleet.stats().in_flight, 0);
            let _ = fleet.include(&0);
            if fleet.stats().members == 0 {
                fleet.insert(Entry::new(0, 0, 1)).unwrap();
            }
        }
        let taken = task.done().unwrap();
        assert_eq!(fleet.stats().in_flight, 1);
        let value = taken.value;
        drop(taken);
        at_rest(&fleet);
        value
    };
    assert_eq!(change(|_| {}, true), 0);
    assert_eq!(change(|fleet| fleet.update(Entry::new(0, 5, 1)).unwrap(), true), 1);
    assert_eq!(change(|fleet| assert!(fleet.exclude(&0).unwrap()), false), 0);
    assert_eq!(change(|fleet| _ = fleet.remove(&0).unwrap(), false), 1);
}
