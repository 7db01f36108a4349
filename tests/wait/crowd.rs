//! Ten thousand tasks, on one thread and on several.

use super::*;

/// A tiny executor: threads, and a queue of tasks that were woken.
mod executor {
    use super::*;
    use std::sync::{Condvar, Weak};

    type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

    pub struct Executor {
        ready: Mutex<std::collections::VecDeque<Arc<Job>>>,
        changed: Condvar,
        left: AtomicUsize,
    }

    struct Job {
        work: Mutex<Option<Work>>,
        executor: Weak<Executor>,
    }

    impl Wake for Job {
        fn wake(self: Arc<Self>) {
            if let Some(executor) = self.executor.upgrade() {
                executor.ready.lock().unwrap().push_back(self);
                executor.changed.notify_one();
            }
        }
    }

    impl Executor {
        pub fn new() -> Arc<Self> {
            Arc::new(Executor { ready: Mutex::default(), changed: Condvar::new(), left: AtomicUsize::new(0) })
        }

        pub fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
            self.left.fetch_add(1, SeqCst);
            let job = Job { work: Mutex::new(Some(Box::pin(work))), executor: Arc::downgrade(self) };
            Arc::new(job).wake();
        }

        pub fn run(&self) {
            loop {
                let mut ready = self.ready.lock().unwrap();
                let job = loop {
                    if self.left.load(SeqCst) == 0 {
                        return;
                    }
                    match ready.pop_front() {
                        Some(job) => break job,
                        None => ready = self.changed.wait(ready).unwrap(),
                    }
                };
                drop(ready);
                let mut slot = job.work.lock().unwrap();
                let Some(mut work) = slot.take() else { continue };
                let waker = Waker::from(Arc::clone(&job));
                if work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                    *slot = Some(work);
                } else if self.left.fetch_sub(1, SeqCst) == 1 {
                    self.changed.notify_all();
                }
            }
        }
    }

    /// Lets others run.
    pub async fn pause() {
        let mut paused = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut paused, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// Tasks that use a resource again and again; in which order they had one.
fn share(resources: u32, tasks: usize, rounds: usize, threads: usize) -> Vec<usize> {
    let fleet = Arc::new(fleet(resources));
    let executor = executor::Executor::new();
    let order = Arc::new(Mutex::new(Vec::with_capacity(tasks * rounds)));
    for task in 0..tasks {
        let (fleet, order) = (Arc::clone(&fleet), Arc::clone(&order));
        executor.spawn(async move {
            for _ in 0..rounds {
                let lease = fleet.acquire_async().await.unwrap();
                order.lock().unwrap().push(task);
                executor::pause().await;
                drop(lease);
            }
        });
    }
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| executor.run());
        }
    });
    println!("{} hand-overs in {:?}", tasks * rounds, start.elapsed());
    at_rest(&fleet);
    Arc::into_inner(order).unwrap().into_inner().unwrap()
}

/// 10,000 tasks, four resources: from the second round on, everybody else has a turn between two turns of one.
#[test]
fn ten_thousand_tasks_take_turns() {
    const TASKS: usize = 10_000;
    let order = share(4, TASKS, 5, 1);
    let mut last = vec![None; TASKS];
    let (mut longest, mut shortest) = (0, usize::MAX);
    for (turn, &task) in order.iter().enumerate() {
        if let Some(before) = last[task].replace(turn) {
            longest = longest.max(turn - before);
            shortest = shortest.min(turn - before);
        }
    }
    assert!(
        shortest + 8 > TASKS && longest < TASKS + 8,
        "{shortest} to {longest} turns between two of one task"
    );
}

/// As before, on several threads, of which the system may stop any at any time: everybody is served.
#[test]
fn ten_thousand_tasks_on_several_threads() {
    let mut turns = vec![0; 10_000];
    for task in share(4, 10_000, 5, 4) {
        turns[task] += 1;
    }
    assert!(turns.iter().all(|&count| count == 5));
}
