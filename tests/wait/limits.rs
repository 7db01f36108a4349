//! Classes and their ageing, a full queue, waits that are shed.

use super::*;

/// What a waiter asks for, of a fleet of one resource.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Any,
    Named,
    Filter,
    Near,
    /// Both of its units.
    Many,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Any, Kind::Named, Kind::Filter, Kind::Near, Kind::Many];
}

type Leases<'a> = Result<Vec<Lease<'a, Entry<u32, u32, u32>>>, WaitError>;
type Wait<'a> = Pin<Box<dyn Future<Output = Leases<'a>> + 'a>>;

fn one<'a>(wait: Acquire<'a, Entry<u32, u32, u32>>) -> Wait<'a> {
    Box::pin(async move { Ok(vec![wait.await?]) })
}

fn waiting_as(fleet: &Fleet, kind: Kind, class: u8) -> Task<Wait<'_>> {
    let request = fleet.request().class(class);
    Task::waiting(match kind {
        Kind::Any => one(request.into_future()),
        Kind::Named => one(request.key(&0).into_future()),
        Kind::Filter => one(request.matching(|entry| entry.key == 0).into_future()),
        Kind::Near => one(request.affinity("x").into_future()),
        Kind::Many => Box::pin(request.many(2).into_future()),
    })
}

/// A thread that waits, and keeps what it gets until it is told to end.
struct Sleeper<'scope> {
    served: mpsc::Receiver<()>,
    ends: mpsc::Sender<()>,
    thread: thread::ScopedJoinHandle<'scope, ()>,
}

impl<'scope> Sleeper<'scope> {
    /// Waits when this returns.
    fn waiting_as<'env>(
        scope: &'scope thread::Scope<'scope, 'env>,
        fleet: &'scope Fleet,
        kind: Kind,
        class: u8,
    ) -> Self {
        let waited = waits(fleet).waited;
        let (serve, served) = mpsc::channel();
        let (ends, end) = mpsc::channel::<()>();
        let thread = scope.spawn(move || {
            // It is served long before, or the test has failed.
            let request = fleet.request().class(class).timeout(60 * SECOND);
            let leases: Leases<'_> = match kind {
                Kind::Any => request.wait().map(|lease| vec![lease]),
                Kind::Named => request.key(&0).wait().map(|lease| vec![lease]),
                Kind::Filter => request.matching(|entry| entry.key == 0).wait().map(|lease| vec![lease]),
                Kind::Near => request.affinity("x").wait().map(|lease| vec![lease]),
                Kind::Many => request.many(2).wait(),
            };
            let leases = leases.expect("in time");
            let _ = serve.send(());
            let _ = end.recv();
            drop(leases);
        });
        while waits(fleet).waited == waited {
            thread::yield_now();
        }
        Sleeper { served, ends, thread }
    }

    /// It has what it wanted, and gives it back.
    fn end(self) {
        self.served.recv().expect("it is its turn");
        drop(self.ends);
        self.thread.join().unwrap();
    }
}

/// Who is a thread; the others are tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Thread {
    Nobody,
    Low,
    FirstHigh,
}

/// A waiter is overtaken by later ones of a class d above it that arrive less than d x ageing after it, and by nobody else: whatever it
/// waits for, and whatever they do.
#[test]
fn classes_age_exactly() {
    for kinds in Kind::ALL.into_iter().flat_map(|low| Kind::ALL.map(|high| (low, high))) {
        for (class, ageing) in [(1, 1), (1, 4), (3, 5), (2, 0)] {
            ages_exactly(kinds, class, ageing, Thread::Nobody);
        }
        for thread in [Thread::Low, Thread::FirstHigh] {
            ages_exactly(kinds, 1, 4, thread);
        }
    }
}

fn ages_exactly((low, high): (Kind, Kind), class: u8, ageing: u32, thread: Thread) {
    let what = format!("{low:?} overtaken by {high:?}, class {class}, ageing {ageing}, a thread: {thread:?}");
    let fleet = Fleet::builder().shards(1).ageing(ageing).build().unwrap();
    fleet.insert(Entry::new(0, 0, 0).with_capacity(Capacity::Limited(2))).unwrap();
    // One unit goes round, and the other one with it if those who overtake want two.
    let mut leases = fleet.acquire_many(2).unwrap();
    let bound = usize::from(class) * ageing as usize;
    thread::scope(|scope| {
        let mut low_task = (thread != Thread::Low).then(|| waiting_as(&fleet, low, 0));
        let low_thread = (thread == Thread::Low).then(|| Sleeper::waiting_as(scope, &fleet, low, 0));
        let first = (thread == Thread::FirstHigh).then(|| Sleeper::waiting_as(scope, &fleet, high, class));
        let tasks = bound + 3 - usize::from(first.is_some());
        let mut tasks: std::collections::VecDeque<_> =
            (0..tasks).map(|_| waiting_as(&fleet, high, class)).collect();
        drop(leases.pop());
        if high == Kind::Many {
            leases.clear();
        }
        let mut overtaken = 0;
        if let Some(first) = first {
            first.end();
            overtaken += 1;
        }
        while tasks.front().is_some_and(|task| task.woken() > 0) {
            drop(tasks.pop_front().expect("just seen").done().unwrap());
            overtaken += 1;
        }
        assert_eq!(overtaken, bound.saturating_sub(1), "{what}");
        // The second one of two that it may want.
        leases.clear();
        match (&mut low_task, low_thread) {
            (Some(task), None) => {
                assert!(task.woken() > 0, "{what}");
                drop(task.done().unwrap());
            }
            (None, Some(sleeper)) => sleeper.end(),
            _ => unreachable!("it is one of the two"),
        }
        for mut task in tasks {
            drop(task.done().unwrap());
        }
    });
    at_rest(&fleet);
}

/// However many more urgent ones keep coming, one of the lowest class is served after a bounded number of them.
#[test]
fn no_class_starves() {
    let fleet = filled(Fleet::builder().shards(1).ageing(4).build().unwrap(), 1);
    let mut lease = Some(fleet.acquire().unwrap());
    let mut low = waiting(&fleet);
    let mut queue = std::collections::VecDeque::new();
    let mut served = 0;
    for _ in 0..5_000 {
        queue.push_back(Task::waiting(fleet.request().class(u8::MAX).into_future()));
        drop(lease.take());
        if low.woken() > 0 {
            break;
        }
        lease = Some(queue.pop_front().unwrap().done().unwrap());
        served += 1;
    }
    assert_eq!(served, 255 * 4 - 1, "the stated bound");
    drop(low.done().unwrap());
    drop(queue);
    at_rest(&fleet);
}

#[test]
fn a_full_queue_says_so() {
    let fleet = filled(Fleet::builder().max_waiters(2).build().unwrap(), 1);
    let lease = fleet.acquire().unwrap();
    let (one, mut two) = (waiting(&fleet), waiting(&fleet));
    let refused = Task::new(fleet.acquire_async()).done().unwrap_err();
    assert_eq!(refused, WaitError::QueueFull { waiting: 2, max: 2 });
    assert_eq!(refused.to_string(), "2 requests are waiting: at most 2 are allowed");
    assert!(fleet.acquire_timeout(Duration::from_secs(1)).is_err_and(|error| error == refused));
    drop(one);
    let three = waiting(&fleet);
    drop((lease, three));
    drop(two.done().unwrap());
    at_rest(&fleet);
    assert_eq!((waits(&fleet).refused, waits(&fleet).waited), (2, 3));
}

#[test]
fn what_cannot_be_in_time_is_told_at_once() {
    let (fleet, clock) = timed(|builder| builder.shed_late(true), 1);
    let lease = fleet.acquire().unwrap();
    let mut task = Task::new(fleet.request().timeout(Duration::ZERO).into_future());
    assert_eq!(task.done().unwrap_err(), WaitError::Shed { expected: Duration::ZERO, left: Duration::ZERO });
    // Nothing is known yet: it waits.
    let mut tasks: Vec<_> =
        (0..10).map(|_| Task::waiting(fleet.request().timeout(SECOND).into_future())).collect();
    drop(lease);
    // One each second from now on.
    for task in tasks.drain(..4) {
        clock.advance(SECOND);
        let mut task = task;
        drop(task.done().unwrap());
    }
    // Five in four seconds, while somebody waited; five wait: the sixth will be served in 4.8 seconds.
    let late = fleet.request().timeout(4 * SECOND).wait().unwrap_err();
    assert!(
        matches!(late, WaitError::Shed { expected, left } if expected == SECOND * 24 / 5 && left == 4 * SECOND),
        "{late}"
    );
    let in_time = Task::waiting(fleet.request().timeout(20 * SECOND).into_future());
    let urgent = Task::waiting(fleet.request().class(1).timeout(4 * SECOND).into_future());
    drop((tasks, in_time, urgent));
    at_rest(&fleet);
    assert_eq!(waits(&fleet).shed, 2);
}

/// A clock that stands still, and at which somebody gives back what he has when it is read for the `calls`-th time from now.
#[derive(Default)]
struct GivesBack {
    calls: AtomicUsize,
    lease: Mutex<Option<leasehold::OwnedLease<Entry<u32, u32, u32>>>>,
}

impl Clock for GivesBack {
    fn now(&self) -> Timestamp {
        if self.calls.fetch_sub(1, SeqCst) == 1 {
            let lease = self.lease.lock().unwrap().take();
            drop(lease);
        }
        Timestamp::from_nanos(1)
    }
}

/// One rests for long, the other one comes back at whichever reading of the clock between the first attempt and the refusal: it is free.
#[test]
fn nobody_is_refused_beside_one_that_is_free() {
    let mut served = 0;
    for call in 1..8 {
        let clock = Arc::new(GivesBack::default());
        let builder = Fleet::builder().shards(2).shed_late(true).clock(Arc::clone(&clock));
        let fleet = Arc::new(filled(builder.build().unwrap(), 2));
        fleet.cool(&0, 3_600 * SECOND).unwrap();
        *clock.lease.lock().unwrap() = Some(fleet.acquire_owned().unwrap());
        clock.calls.store(call, SeqCst);
        let mut task = Task::new(fleet.request().timeout(SECOND).into_future());
        if let Poll::Ready(ended) = task.poll() {
            drop(ended.unwrap_or_else(|refusal| panic!("returned at reading {call}: {refusal}")));
            served += 1;
        }
    }
    assert!(served > 0, "the clock was read between the attempt and the refusal");
}

/// Returns that wake somebody to try for himself tell how things go as well as those that are handed over.
#[test]
fn what_cannot_be_in_time_is_told_with_barging_too() {
    let settings = |builder: leasehold::Builder<_>| builder.shed_late(true).fairness(Fairness::Throughput);
    let (fleet, clock) = timed(settings, 1);
    let mut lease = fleet.acquire().unwrap();
    let mut tasks: Vec<_> =
        (0..10).map(|_| Task::waiting(fleet.request().timeout(60 * SECOND).into_future())).collect();
    for mut task in tasks.drain(..5) {
        clock.advance(SECOND);
        drop(lease);
        lease = task.done().unwrap();
    }
    let late = fleet.request().timeout(4 * SECOND).wait().unwrap_err();
    assert!(matches!(late, WaitError::Shed { expected, .. } if expected == 6 * SECOND), "{late}");
    drop((tasks, lease));
    at_rest(&fleet);
}
