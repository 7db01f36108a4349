//! What the tests have in common.

use std::{
    fs,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use leasehold::pool::{Job, JobPriority, Pool, Task};

pub const LONG: Duration = Duration::from_secs(20);
pub const ANY: JobPriority = JobPriority::NORMAL;

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_micros(100));
    }
}

/// One of many attempts must come out so: for what takes a moment, and sometimes longer on a machine that does other things. Wrong code takes longer
/// each time.
pub fn once_of_many<R: std::fmt::Debug>(attempt: impl Fn() -> R, comes_out: impl Fn(&R) -> bool) {
    const MANY: usize = 20;
    let mut seen = Vec::new();
    while seen.last().is_none_or(|last| !comes_out(last)) {
        assert!(seen.len() < MANY, "{seen:?}");
        seen.push(attempt());
    }
}

/// A while in which the threads of these names do not wake up, and the process hardly runs, comes within a minute; if the system says so.
pub fn eventually_quiet(length: Duration, names: &[&str]) {
    let start = Instant::now();
    let look = || names.iter().map(|name| naps(name)).collect::<Vec<_>>();
    loop {
        let (before, ticks_before) = (look(), ticks());
        thread::sleep(length);
        let (after, ticks_after) = (look(), ticks());
        let used = ticks_after.zip(ticks_before).map_or(0, |(after, before)| after - before);
        if before == after && used <= 2 {
            return;
        }
        assert!(start.elapsed() < 3 * LONG, "{before:?}, then {after:?}; {used} ticks");
    }
}

/// What `f` answers, on a thread of its own; fails if that takes too long.
pub fn in_time<R: Send + 'static>(what: &str, f: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(f()));
    receiver.recv_timeout(LONG).unwrap_or_else(|_| panic!("{what}"))
}

/// A gate that jobs wait at.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>, Arc<AtomicUsize>);

impl Gate {
    /// One has come, and does not wait.
    pub fn arrive(&self) {
        self.1.fetch_add(1, SeqCst);
    }

    pub fn pass(&self) {
        self.arrive();
        let mut open = self.0.0.lock().unwrap();
        while !*open {
            open = self.0.1.wait(open).unwrap();
        }
    }

    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Waits until so many stand there.
    pub fn has(&self, count: usize) {
        eventually("jobs come to the gate", || self.1.load(SeqCst) >= count);
    }
}

pub fn task(f: impl FnOnce() + Send + 'static) -> Job<Task> {
    Task::job(move |_| {
        f();
        Ok(())
    })
}

pub fn at_gate(gate: &Gate) -> Job<Task> {
    let gate = gate.clone();
    task(move || gate.pass())
}

pub fn closures(workers: usize) -> Pool<Task> {
    Pool::builder().workers(workers).build().expect("in range")
}

pub fn bounded(workers: usize, capacity: usize) -> Pool<Task> {
    Pool::builder().workers(workers).capacity(capacity).build().expect("in range")
}

/// Runs short jobs, until jobs are known to be short, and then lets all workers go to sleep.
pub fn warm(pool: &Pool<Task>) {
    warm_with(pool, Duration::ZERO);
}

/// The same, with jobs that take about so long.
pub fn warm_with(pool: &Pool<Task>, each: Duration) {
    let before = pool.stats().done;
    for _ in 0..2_000 {
        let job = move || {
            let start = Instant::now();
            while start.elapsed() < each {
                std::hint::spin_loop();
            }
        };
        pool.submit(task(job)).expect("open");
    }
    eventually("all are done and sleep", || {
        let stats = pool.stats();
        stats.done == before + 2_000 && stats.idle == stats.workers
    });
}

/// A job that has begun and runs until the sender is dropped.
pub fn block(pool: &Pool<Task>) -> mpsc::Sender<()> {
    let (go, gone) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel();
    pool.submit(task(move || {
        begin.send(()).unwrap();
        let _ = gone.recv();
    }))
    .expect("open");
    begun.recv().unwrap();
    go
}

pub fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_by(future, Waker::noop())
}

pub fn poll_by<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Calls a function whenever it is woken.
struct Calls<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// A waker that is a function.
pub fn waker(f: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Calls(f)))
}

/// Runs a test in a process of its own, for it looks at all threads of the process: under nextest each test has one; otherwise this one
/// starts the test binary once more, for the test of that name alone.
pub fn alone(test: &str, look: impl FnOnce()) {
    const INSIDE: &str = "LEASEHOLD_TEST_ALONE";
    if std::env::var_os("NEXTEST").is_some() || std::env::var_os(INSIDE).is_some() {
        return look();
    }
    let (out, err) = rerun(test, INSIDE);
    assert!(out.contains("1 passed"), "{out}{err}");
}

/// Runs this test binary with one test, in which `inside` is set; what it has written.
pub fn rerun(test: &str, inside: &str) -> (String, String) {
    let run = std::process::Command::new(std::env::current_exe().expect("a test"))
        .args(["--exact", test, "--nocapture"])
        .env(inside, "1")
        .output()
        .expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&run.stdout), text(&run.stderr));
    assert!(run.status.success(), "{out}{err}");
    (out, err)
}

/// Processor time that the process has used, in ticks, if the system says so.
pub fn ticks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// How often the threads of that name have gone to sleep of themselves.
pub fn naps(name: &str) -> Option<u64> {
    let mut sum = None;
    for entry in fs::read_dir("/proc/self/task").ok()? {
        let path = entry.ok()?.path();
        let Ok(status) = fs::read_to_string(path.join("status")) else { continue };
        if status.lines().next()?.contains(name) {
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            *sum.get_or_insert(0) += line.trim().parse::<u64>().ok()?;
        }
    }
    sum
}

/// How many threads of the process have a name that begins so, if the system says so.
pub fn threads(name: &str) -> Option<usize> {
    let names = fs::read_dir("/proc/self/task").ok()?.flatten();
    let names = names.filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok());
    Some(names.filter(|found| found.starts_with(name)).count())
}
