//! A process of the fleet: threads that acquire, report, use, check, report again. One of them keeps what it has for as long as it may.

use std::{
    collections::VecDeque,
    error::Error,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    Capacity, Entry, Overdue, Scheduler, SplitMix64,
    cluster::{Cluster, Fence, RedisEngine, Share, Start, Terms},
};

use crate::{BUDGETS, MARGIN, PERIOD, RESOURCES, TTL, UNITS, USES_PER_UNIT, truth::Kind};

type Key = Entry<Arc<str>, u64, ()>;

/// Threads that want a unit each.
pub const WORKERS: u64 = 8;

/// The other end of a line to the referee.
struct Line {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Line {
    fn open(referee: u16, name: &str) -> std::io::Result<Self> {
        let writer = TcpStream::connect(("127.0.0.1", referee))?;
        writer.set_nodelay(true)?;
        let mut line = Line { reader: BufReader::new(writer.try_clone()?), writer };
        line.ask(&format!("member {name}"))?;
        Ok(line)
    }

    /// Whether the referee agrees.
    fn ask(&mut self, what: &str) -> std::io::Result<bool> {
        writeln!(self.writer, "{what}")?;
        let mut answer = String::new();
        self.reader.read_line(&mut answer)?;
        match answer.trim_end() {
            "yes" => Ok(true),
            "no" => Ok(false),
            other => Err(std::io::Error::other(format!("the referee says {other:?}"))),
        }
    }
}

/// Fences of uses whose period is not over: as long as they are there the next use is one of another unit.
#[derive(Default)]
struct Spent(Mutex<VecDeque<(Instant, Fence<Arc<str>>)>>);

impl Spent {
    fn fences(&self) -> MutexGuard<'_, VecDeque<(Instant, Fence<Arc<str>>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the lease is spent: it comes back later than its fence is forgotten.
    fn keep(&self, fence: Fence<Arc<str>>) {
        let mut fences = self.fences();
        fences.push_back((Instant::now(), fence));
    }

    fn forget(&self) {
        let mut fences = self.fences();
        while fences.front().is_some_and(|(since, _)| since.elapsed() >= PERIOD) {
            fences.pop_front();
        }
    }
}

/// One lease after another, until the end.
fn work(
    keys: &Scheduler<Key>,
    cluster: &Cluster<Key>,
    spent: &Spent,
    ends: &AtomicBool,
    mut line: Line,
    number: u64,
) -> std::io::Result<()> {
    let mut random = SplitMix64::new(number);
    let goes_on = || !ends.load(Ordering::Relaxed);
    while goes_on() {
        let Ok(mut lease) = keys.request().timeout(Duration::from_millis(200)).wait_owned() else { continue };
        spent.forget();
        let Ok(fence) = cluster.fence_owned(&mut lease) else { continue };
        let unit = fence.unit().to_string();
        let Ok(token) = fence.check() else { continue };
        if Kind::of(&unit) == Kind::Budgets {
            line.ask(&format!("spend {unit} {token}"))?;
            spent.keep(fence);
            cluster.spend(lease);
            continue;
        }
        if !line.ask(&format!("begin {unit} {token}"))? {
            continue;
        }
        // Now and then long enough to outlive a claim, if the server is away; and one of us gives back nothing that is not taken from him.
        let lasts = match random.below(50) {
            _ if number == 0 => Duration::MAX,
            0 => Duration::from_millis(200 + u64::from(random.below(1_500))),
            _ => Duration::from_millis(1 + u64::from(random.below(15))),
        };
        let began = Instant::now();
        while began.elapsed() < lasts && goes_on() && fence.check().is_ok() && !lease.is_revoked() {
            thread::sleep(Duration::from_millis(2));
        }
        line.ask(&format!("end {unit} {token}"))?;
    }
    Ok(())
}

pub fn run(name: &str, servers: [u16; 2], referee: u16) -> Result<(), Box<dyn Error>> {
    let keys =
        Scheduler::<Key>::builder().max_hold(Duration::from_secs(60)).overdue(Overdue::Revoke).build()?;
    let keys = Arc::new(keys);
    let budget = |number: usize| {
        Share::new(format!("budget-{number}"), number as u64)
            .units(UNITS)
            .leases_per_unit(USES_PER_UNIT)
            .period(PERIOD)
    };
    let key = |number: usize| Share::new(format!("key-{number}"), (BUDGETS + number) as u64).units(UNITS);
    let cluster = Cluster::builder(name)
        .terms(Terms::new(TTL).margin(MARGIN))
        .on_start(Start::Empty)
        .shares((0..BUDGETS).map(budget).chain((0..RESOURCES).map(key)))
        .start(
            RedisEngine::new("referee", servers.map(|port| format!("redis://127.0.0.1:{port}/")))?,
            &keys,
            |share, units| {
                let leases = Capacity::Limited(units * share.leases_per_unit);
                Entry::new(share.name.clone(), share.rank, ()).with_capacity(leases)
            },
        )?;
    let (spent, ends) = (Spent::default(), AtomicBool::new(false));
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        for number in 0..WORKERS {
            let line = Line::open(referee, name)?;
            let (keys, cluster, spent, ends) = (&keys, &cluster, &spent, &ends);
            scope.spawn(move || work(keys, cluster, spent, ends, line, number));
        }
        // The referee closes our input when it is over.
        std::io::stdin().read_to_end(&mut Vec::new())?;
        ends.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    drop(spent);
    let report = cluster.close(Duration::from_secs(2));
    let stats = cluster.stats();
    println!(
        "{name}: claimed {} returned {} lost {} reinstated {} epochs {} revoked {} outlived {} renewals {} failures {} left {}",
        stats.claimed,
        stats.returned,
        stats.losses,
        stats.reinstated,
        stats.epochs,
        report.revoked,
        report.outlived,
        stats.renewals,
        stats.failures,
        report.told
    );
    Ok(())
}
