//! A process of the fleet: threads that acquire, report, use, check, report again.

use std::{
    error::Error,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    Capacity, Entry, Overdue, Scheduler, SplitMix64,
    cluster::{Cluster, RedisEngine, Share, Start, Terms},
};

use crate::{RESOURCES, TTL, UNITS};

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

/// One lease after another, until the end.
fn work(
    keys: &Scheduler<Key>,
    cluster: &Cluster<Key>,
    ends: &AtomicBool,
    mut line: Line,
    mut random: SplitMix64,
) -> std::io::Result<()> {
    while !ends.load(Ordering::Relaxed) {
        let Ok(mut lease) = keys.acquire_timeout(Duration::from_millis(200)) else { continue };
        let Ok(fence) = cluster.fence(&mut lease) else { continue };
        let unit = fence.unit().to_string();
        let Ok(token) = fence.check() else { continue };
        if !line.ask(&format!("begin {unit} {token}"))? {
            continue;
        }
        // Now and then long enough to outlive a claim, if the server is away.
        let lasts = if random.below(50) == 0 { 200 + random.below(1_500) } else { 1 + random.below(15) };
        let end = Instant::now() + Duration::from_millis(u64::from(lasts));
        while Instant::now() < end && fence.check().is_ok() && !lease.is_revoked() {
            thread::sleep(Duration::from_millis(2));
        }
        line.ask(&format!("end {unit} {token}"))?;
    }
    Ok(())
}

pub fn run(name: &str, server: u16, referee: u16) -> Result<(), Box<dyn Error>> {
    let keys =
        Scheduler::<Key>::builder().max_hold(Duration::from_secs(60)).overdue(Overdue::Revoke).build()?;
    let keys = Arc::new(keys);
    let share = |number: usize| Share::new(format!("key-{number}"), number as u64).units(UNITS);
    let cluster = Cluster::builder(name)
        .terms(Terms::new(TTL))
        .on_start(Start::Empty)
        .shares((0..RESOURCES).map(share))
        .start(
            RedisEngine::new("referee", [format!("redis://127.0.0.1:{server}/")])?,
            &keys,
            |share, units| {
                Entry::new(share.name.clone(), share.rank, ()).with_capacity(Capacity::Limited(units))
            },
        )?;
    let ends = AtomicBool::new(false);
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        for number in 0..WORKERS {
            let line = Line::open(referee, name)?;
            let (keys, cluster, ends) = (&keys, &cluster, &ends);
            let random = SplitMix64::new(number);
            scope.spawn(move || work(keys, cluster, ends, line, random));
        }
        // The referee closes our input when it is over.
        std::io::stdin().read_to_end(&mut Vec::new())?;
        ends.store(true, Ordering::Relaxed);
        Ok(())
    })?;
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
