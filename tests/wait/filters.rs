//! Filters: that panic, that borrow, that are slow.

use super::*;

#[test]
fn a_panicking_filter_is_its_owners_business() {
    let fleet = fleet(2);
    let mut leases = fleet.acquire_many(2).unwrap();
    // A filter is asked about those that are not free as well, when it comes.
    let armed = Arc::new(AtomicBool::new(false));
    let is_armed = Arc::clone(&armed);
    let mut bad = Task::waiting(fleet.acquire_where_async(move |entry| {
        if entry.key == 1 && is_armed.load(SeqCst) {
            std::panic::resume_unwind(Box::new("asked about 1"));
        }
        false
    }));
    let good = Task::waiting(fleet.acquire_where_async(|_| true));
    leases.sort_by_key(|lease| *lease.key());
    armed.store(true, SeqCst);
    // Nothing of it is heard here.
    drop(leases.pop());
    assert_eq!(good.woken(), 1, "the next one is served");
    let payload =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bad.poll().is_ready())).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"asked about 1"));
    drop((bad, good, leases));
    at_rest(&fleet);
    assert_eq!(waits(&fleet).failed, 1);
    // The same for a thread, in its own call.
    let lease = fleet.acquire_many(2).unwrap();
    armed.store(false, SeqCst);
    let accepts = |_: &Entry<u32, u32, u32>| {
        if armed.load(SeqCst) {
            std::panic::resume_unwind(Box::new(7));
        }
        false
    };
    thread::scope(|scope| {
        let thread = scope.spawn(|| drop(fleet.request().matching(&accepts).wait()));
        while waits(&fleet).waited < 3 {
            thread::yield_now();
        }
        armed.store(true, SeqCst);
        drop(lease);
        assert_eq!(thread.join().unwrap_err().downcast_ref(), Some(&7));
    });
    at_rest(&fleet);
}

/// A filter that borrows sees what it borrows as long as it is asked, and not after its call has returned.
#[test]
fn a_filter_may_borrow() {
    let fleet = fleet(2);
    for round in 0..200u32 {
        let leases = fleet.acquire_many(2).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                if round % 2 == 0 {
                    thread::sleep(Duration::from_micros(u64::from(round)));
                }
                drop(leases);
            });
            let mut asked = vec![0; 4];
            let got = fleet
                .request()
                .matching(|entry| {
                    asked.push(entry.key);
                    entry.key == round % 2
                })
                .timeout(Duration::from_micros(100))
                .wait();
            asked.clear();
            drop(asked);
            if let Ok(lease) = got {
                assert_eq!(*lease.key(), round % 2);
            }
        });
        at_rest(&fleet);
    }
}

/// What comes to a filter while it is asked is gone on with in the order in which it came.
#[test]
fn what_is_left_with_a_filter_has_its_turn() {
    let fleet = fleet(4);
    let mut leases = fleet.acquire_many(4).unwrap();
    leases.sort_by_key(|lease| *lease.key());
    let armed = Arc::new(AtomicBool::new(false));
    let (asked, is_asked) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let is_armed = Arc::clone(&armed);
    let slow = Task::waiting(fleet.acquire_where_async(move |entry| {
        if entry.key == 0 && is_armed.load(SeqCst) {
            asked.send(()).unwrap();
            may_go_on.recv().unwrap();
        }
        false
    }));
    let mut tasks: Vec<_> = (0..4).map(|_| waiting(&fleet)).collect();
    armed.store(true, SeqCst);
    thread::scope(|scope| {
        let first = leases.remove(0);
        let asker = scope.spawn(move || drop(first));
        is_asked.recv().unwrap();
        leases.drain(..).for_each(drop);
        assert!(tasks.iter().all(|task| task.woken() == 0), "nobody overtakes the filter");
        go_on.send(()).unwrap();
        asker.join().unwrap();
    });
    armed.store(false, SeqCst);
    let leases: Vec<_> = tasks.iter_mut().map(|task| task.done().unwrap()).collect();
    assert_eq!(leases.iter().map(|lease| *lease.key()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    drop((leases, tasks, slow));
    at_rest(&fleet);
}

/// Whoever returns something is not kept for as long as others do: in the end a filter is passed over, and its waiter looks for itself.
#[test]
fn a_slow_filter_keeps_nobody_for_ever() {
    for looks in [true, false] {
        slow_filter(looks);
    }
}

/// `looks`: the one that was passed over is polled before it is dropped.
fn slow_filter(looks: bool) {
    let fleet = fleet(100);
    let mut leases: Vec<_> = fleet.acquire_many(100).unwrap().into_iter().map(Lease::into_token).collect();
    let first = leases.pop().unwrap();
    let leases = Arc::new(Mutex::new(leases));
    let (armed, accepts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let asked = Arc::new(AtomicUsize::new(0));
    let (give_back, given) = mpsc::channel();
    let (left, is_left) = mpsc::channel::<()>();
    let mut slow = Task::waiting(fleet.acquire_where_async({
        let (armed, accepts) = (Arc::clone(&armed), Arc::clone(&accepts));
        let (asked, leases) = (Arc::clone(&asked), Arc::clone(&leases));
        move |_| {
            // So slow that another one comes back meanwhile.
            if armed.load(SeqCst) {
                asked.fetch_add(1, SeqCst);
                let Some(next) = leases.lock().unwrap().pop() else { return false };
                give_back.send(next).unwrap();
                is_left.recv().unwrap();
            }
            accepts.load(SeqCst)
        }
    }));
    armed.store(true, SeqCst);
    thread::scope(|scope| {
        let fleet = &fleet;
        scope.spawn(move || {
            for token in given {
                fleet.release(token).unwrap();
                if left.send(()).is_err() {
                    break;
                }
            }
        });
        fleet.release(first).unwrap();
        assert_eq!(asked.load(SeqCst), 17, "its own, and 16 of others");
        assert_eq!(fleet.stats().available, 18, "nothing is left with the filter");
        assert_eq!(slow.woken(), 1, "its waiter is told");
        armed.store(false, SeqCst);
        accepts.store(true, SeqCst);
        if looks {
            drop(slow.done().expect("it looks for itself"));
        }
        // The helper ends.
        drop(slow);
    });
    leases.lock().unwrap().drain(..).for_each(|token| fleet.release(token).unwrap());
    at_rest(&fleet);
}

/// As a thread, with a filter that says yes only after more have come than whoever returns something asks about.
#[test]
fn a_thread_that_was_passed_over_looks_for_itself() {
    let fleet = fleet(100);
    let mut leases: Vec<_> = fleet.acquire_many(100).unwrap().into_iter().map(Lease::into_token).collect();
    let first = leases.pop().unwrap();
    let leases = Mutex::new(leases);
    let (armed, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let accepts = |_: &Entry<u32, u32, u32>| {
                if !armed.load(SeqCst) {
                    return false;
                }
                let next = leases.lock().unwrap().pop();
                thread::scope(|scope| {
                    scope.spawn(|| next.map(|token| fleet.release(token).unwrap()));
                });
                asked.fetch_add(1, SeqCst) >= 40
            };
            fleet.acquire_where_timeout(accepts, Duration::from_secs(60)).map(drop)
        });
        while waits(&fleet).waited == 0 {
            thread::yield_now();
        }
        // Its own look may go on.
        thread::sleep(Duration::from_millis(20));
        armed.store(true, SeqCst);
        fleet.release(first).unwrap();
        waiter.join().unwrap().expect("it goes on until it has one");
    });
    leases.into_inner().unwrap().into_iter().for_each(|token| fleet.release(token).unwrap());
    at_rest(&fleet);
}

/// What was offered and not wanted is not offered once more.
#[test]
fn a_filter_is_asked_once_about_what_is_updated() {
    let fleet = fleet(1);
    let lease = fleet.acquire().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let behind = Arc::new(Mutex::new(None));
    let picky = Task::waiting(fleet.acquire_where_async({
        let (asked, behind) = (Arc::clone(&asked), Arc::clone(&behind));
        move |entry| {
            if entry.value == 1 {
                asked.fetch_add(1, SeqCst);
                // Whoever it would have been for has gone.
                drop(behind.lock().unwrap().take());
            }
            false
        }
    }));
    *behind.lock().unwrap() = Some(Task::waiting(fleet.acquire_async_owned()));
    fleet.update(Entry::new(0, 0, 1).with_capacity(Capacity::Limited(2))).unwrap();
    assert_eq!(asked.load(SeqCst), 1);
    drop((picky, lease));
    at_rest(&fleet);
}

/// A task that whoever wakes it polls at once, in the midst of what he does.
struct Inline {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    wakes: AtomicUsize,
}

impl Inline {
    fn begin(future: impl Future<Output = ()> + Send + 'static) -> Arc<Self> {
        let task =
            Arc::new(Inline { future: Mutex::new(Some(Box::pin(future))), wakes: AtomicUsize::new(0) });
        Arc::clone(&task).wake();
        task
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        if self.wakes.fetch_add(1, SeqCst) > 0 {
            // Somebody polls it, and does so once more.
            return;
        }
        let waker = Waker::from(Arc::clone(&self));
        loop {
            let seen = self.wakes.load(SeqCst);
            let mut future = self.future.lock().unwrap();
            let Some(polled) = future.as_mut() else { return };
            if polled.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                *future = None;
                return;
            }
            drop(future);
            if self.wakes.compare_exchange(seen, 0, SeqCst, SeqCst).is_ok() {
                return;
            }
        }
    }
}

/// Two wait, with filters that take long, for what none of the units is. Each is passed over now and then, and looks for itself in the thread
/// of whoever brings something; what comes meanwhile is left with it, and goes to the other one, who does the same. It ends all the same, when
/// nothing more is brought: nobody is asked again about what he has refused.
#[test]
fn two_slow_filters_do_not_keep_going_round_what_neither_wants() {
    const UNITS: u32 = 32;
    /// So many answers are too many.
    const MANY: usize = 100_000;
    let fleet = fleet(UNITS);
    let (armed, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let tasks = [(); 2].map(|()| {
        let (armed, asked) = (Arc::clone(&armed), Arc::clone(&asked));
        let wait = fleet.acquire_where_async_owned(move |_| {
            if !armed.load(SeqCst) {
                return false;
            }
            // As long as it takes others to bring something.
            thread::sleep(Duration::from_micros(20));
            // Then it takes what there is, so that the test ends.
            asked.fetch_add(1, SeqCst) >= MANY
        });
        Inline::begin(async move { drop(wait.await) })
    });
    armed.store(true, SeqCst);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    // If there are fewer, those come back.
                    drop(fleet.acquire_many(6));
                }
            });
        }
    });
    let asked = asked.load(SeqCst);
    assert!(asked > UNITS as usize, "each is asked about what comes, or looks at it: {asked}");
    assert!(asked < MANY, "they would go on for ever");
    assert_eq!(fleet.stats().available, u64::from(UNITS), "nothing is left on its way");
    for task in tasks {
        let future = task.future.lock().unwrap().take();
        drop(future);
    }
    at_rest(&fleet);
}
