//! The referee: listens to reports, and makes trouble.

use std::{
    collections::HashSet,
    error::Error,
    io::{self, BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use leasehold::SplitMix64;

use crate::{RESOURCES, TTL, UNITS, server::Server, truth::Truth};

pub struct Settings {
    pub server: String,
    pub seconds: u64,
    pub processes: usize,
    pub seed: u64,
}

type Shared = Arc<Mutex<Truth>>;

fn lock(truth: &Shared) -> MutexGuard<'_, Truth> {
    truth.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One line of one process: a thread of its own.
fn listen(stream: TcpStream, truth: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    let mut member = String::new();
    let mut open: HashSet<(String, u64)> = HashSet::new();
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["member", name] => {
                name.clone_into(&mut member);
                true
            }
            ["begin", unit, token] => {
                let token = token.parse().unwrap_or(0);
                let allowed = lock(truth).begin(&member, unit, token, Instant::now());
                if allowed {
                    open.insert((unit.to_owned(), token));
                }
                allowed
            }
            ["end", unit, token] => {
                let token = token.parse().unwrap_or(0);
                lock(truth).end(&member, unit, token);
                open.remove(&(unit.to_owned(), token));
                true
            }
            _ => false,
        };
        if writeln!(writer, "{}", if answer { "yes" } else { "no" }).is_err() {
            break;
        }
    }
    // It was killed, or it has ended.
    for (unit, token) in open {
        lock(truth).end(&member, &unit, token);
    }
    Ok(())
}

/// The processes.
struct Fleet {
    children: Vec<Option<Child>>,
    /// What the present life of each is called.
    names: Vec<String>,
    lives: u64,
    server: u16,
    port: u16,
}

impl Fleet {
    /// Each life has a name of its own.
    fn start(&mut self, place: usize) -> io::Result<()> {
        self.lives += 1;
        self.names[place] = format!("process-{place}-life-{}", self.lives);
        let child = Command::new(std::env::current_exe()?)
            .args(["member", "--name", &self.names[place], "--server", &self.server.to_string()])
            .args(["--referee", &self.port.to_string()])
            .stdin(Stdio::piped())
            .spawn()?;
        self.children[place] = Some(child);
        Ok(())
    }

    fn signal(&self, place: usize, signal: &str) -> io::Result<()> {
        if let Some(child) = &self.children[place] {
            Command::new("kill").args([signal, &child.id().to_string()]).status()?;
        }
        Ok(())
    }

    fn kill(&mut self, place: usize) -> io::Result<()> {
        if let Some(mut child) = self.children[place].take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for place in 0..self.children.len() {
            let _ = self.kill(place);
        }
    }
}

fn rest(time: Duration) {
    thread::sleep(time);
}

pub fn run(settings: &Settings) -> Result<bool, Box<dyn Error>> {
    let truth: Shared = Arc::default();
    let mut server = Server::start(&settings.server)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    {
        let truth = Arc::clone(&truth);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let truth = Arc::clone(&truth);
                thread::spawn(move || listen(stream, &truth));
            }
        });
    }
    let mut fleet = Fleet {
        children: (0..settings.processes).map(|_| None).collect(),
        names: vec![String::new(); settings.processes],
        lives: 0,
        server: server.port,
        port,
    };
    for place in 0..settings.processes {
        fleet.start(place)?;
    }
    // A new fleet grants nothing for its first time to live.
    rest(TTL + Duration::from_secs(2));
    let all = RESOURCES * UNITS as usize;
    let used = lock(&truth).units();
    if used < all {
        lock(&truth)
            .violations
            .push(format!("only {used} of {all} units were ever used after the quarantine"));
    }

    let mut random = SplitMix64::new(settings.seed);
    let end = Instant::now() + Duration::from_secs(settings.seconds);
    let (mut kills, mut stops, mut restarts, mut stalls, mut slowest) = (0, 0, 0, 0, Duration::ZERO);
    let mut round = random.below(4);
    while Instant::now() < end {
        let place = random.below(settings.processes as u32) as usize;
        match round % 4 {
            0 => {
                kills += 1;
                fleet.kill(place)?;
                // Everything must be used elsewhere in time.
                let killed = Instant::now();
                let limit = TTL + Duration::from_secs(1);
                while lock(&truth).idle_since(killed) > 0 && killed.elapsed() < limit {
                    rest(Duration::from_millis(10));
                }
                slowest = slowest.max(killed.elapsed());
                let idle = lock(&truth).idle_since(killed);
                if idle > 0 {
                    lock(&truth).violations.push(format!("{limit:?} after a kill {idle} units are not used"));
                }
                fleet.start(place)?;
            }
            1 => {
                stops += 1;
                lock(&truth).stopped(&fleet.names[place], None);
                fleet.signal(place, "-STOP")?;
                rest(TTL + Duration::from_millis(500 + u64::from(random.below(1_500))));
                lock(&truth).stopped(&fleet.names[place], Some(Instant::now()));
                fleet.signal(place, "-CONT")?;
            }
            2 => {
                stalls += 1;
                server.signal("-STOP")?;
                rest(Duration::from_millis(1_000 + u64::from(random.below(5_000))));
                server.signal("-CONT")?;
                rest(TTL + Duration::from_secs(1));
            }
            _ => {
                restarts += 1;
                // With its data, or without; back at once, or after all claims have ended.
                server.down(random.below(2) == 0)?;
                let long = random.below(2) == 0;
                rest(if long { TTL + Duration::from_millis(500) } else { Duration::from_millis(300) });
                server.up()?;
                // The quarantine, so that what follows finds everything in use.
                rest(TTL + Duration::from_secs(1));
            }
        }
        round += 1;
        rest(Duration::from_millis(500 + u64::from(random.below(1_000))));
    }

    // Quietly: each gives back what it has.
    for child in fleet.children.iter_mut().flatten() {
        drop(child.stdin.take());
    }
    for child in &mut fleet.children {
        if let Some(mut child) = child.take() {
            child.wait()?;
        }
    }
    let truth = lock(&truth);
    for violation in &truth.violations {
        println!("VIOLATION: {violation}");
    }
    println!(
        "checked {} uses of {} units by {} processes ({} lives); {kills} kills, the slowest made up for in {slowest:?}; {stops} stops, \
         {} uses overtaken, {} fenced; {restarts} restarts of the server, {stalls} stalls",
        truth.checked,
        truth.units(),
        settings.processes,
        fleet.lives,
        truth.overtaken,
        truth.fenced
    );
    Ok(truth.violations.is_empty() && truth.checked > 0)
}
