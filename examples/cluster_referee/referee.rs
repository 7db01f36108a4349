//! The referee: listens to reports, and makes trouble, one at a time: after each everything must be used again in time.

use std::{
    collections::{BTreeMap, HashSet},
    error::Error,
    io::{self, BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    SplitMix64,
    cluster::{Engine, RedisEngine, Reply, Request},
};

use crate::{
    BUDGETS, PERIOD, RESOURCES, TTL, UNITS,
    control::Control,
    proxy::{self, Gate},
    server::Server,
    truth::{Kind, PROMPT, Truth},
};

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
                lock(truth).end(&member, unit, token, Instant::now());
                open.remove(&(unit.to_owned(), token));
                true
            }
            ["spend", unit, token] => {
                let token = token.parse().unwrap_or(0);
                lock(truth).spend(&member, unit, token, Instant::now())
            }
            _ => false,
        };
        if writeln!(writer, "{}", if answer { "yes" } else { "no" }).is_err() {
            break;
        }
    }
    // It was killed, or it has ended.
    for (unit, token) in open {
        lock(truth).end(&member, &unit, token, Instant::now());
    }
    Ok(())
}

/// The processes.
struct Fleet {
    children: Vec<Option<Child>>,
    /// What the present life of each is called.
    names: Vec<String>,
    lives: u64,
    /// What is between each and the servers, and the ports at which it finds them.
    gates: Vec<Arc<Gate>>,
    servers: Vec<[u16; 2]>,
    port: u16,
}

impl Fleet {
    /// Each life has a name of its own.
    fn start(&mut self, place: usize) -> io::Result<()> {
        self.lives += 1;
        self.names[place] = format!("process-{place}-life-{}", self.lives);
        let child = Command::new(std::env::current_exe()?)
            .args(["member", "--name", &self.names[place]])
            .args(["--server", &self.servers[place][0].to_string()])
            .args(["--spare", &self.servers[place][1].to_string()])
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

    /// It leaves, and others claim what it gives back.
    fn send_off(&mut self, place: usize) {
        if let Some(child) = &mut self.children[place] {
            drop(child.stdin.take());
        }
    }

    /// It has left; whether in good order.
    fn has_left(&mut self, place: usize) -> io::Result<bool> {
        match self.children[place].take() {
            Some(mut child) => Ok(child.wait()?.success()),
            None => Ok(true),
        }
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

/// How soon everything must be used again, by those who are left, after any one trouble: the time to live and a second, if meanwhile the machine has
/// let threads run when they wanted to.
const LIMIT: Duration = Duration::from_secs(TTL.as_secs() + 1);

/// The same of budgets, whose units are lent a period after they were claimed.
const BUDGETS_LIMIT: Duration = Duration::from_secs(LIMIT.as_secs() + PERIOD.as_secs());

/// How much longer it may take if it has not.
const BUSY: Duration = Duration::from_secs(9);

/// For what must come to pass at the beginning.
const EVER: Duration = Duration::from_secs(60);

/// By what was the trouble: how long it took at most until everything was used again.
type Slowest = BTreeMap<&'static str, [Duration; 2]>;

/// Every unit must be used again in time, counted from the trouble.
fn recover(truth: &Shared, control: &Control, began: Instant, what: &'static str, slowest: &mut Slowest) {
    recover_anew(truth, control, [began; 2], what, slowest);
}

/// So long after a trouble of the server whatever was claimed before it, and was not renewed, reinstated or claimed afresh, has ended.
const OLD_CLAIMS: Duration = Duration::from_millis(TTL.as_millis() as u64 * 9 / 10);

/// Every unit must be used in time, counted from the first moment: what is used before the second does not count.
fn recover_anew(
    truth: &Shared,
    control: &Control,
    [began, from]: [Instant; 2],
    what: &'static str,
    slowest: &mut Slowest,
) {
    rest(from.saturating_duration_since(Instant::now()));
    let kinds = [(Kind::Keys, LIMIT), (Kind::Budgets, BUDGETS_LIMIT)];
    for ((kind, limit), slowest) in kinds.into_iter().zip(slowest.entry(what).or_default()) {
        let idle = || lock(truth).idle_since(kind, from);
        if !in_time(control, began, limit, || idle() == 0) {
            let idle = idle();
            lock(truth)
                .violations
                .push(format!("{limit:?} after {what} {idle} units of {kind:?} are not used"));
        }
        *slowest = (*slowest).max(began.elapsed());
    }
}

/// Looks until something is so, for that long at most, and longer if the machine was busy; answers whether it is.
fn in_time(control: &Control, began: Instant, limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    within(began, limit, &mut is_so) || !control.was_on_time(began) && within(began, limit + BUSY, is_so)
}

/// Looks until something is so, for that long at most; answers whether it is.
fn within(began: Instant, limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    loop {
        // The moment before the look.
        let passed = began.elapsed();
        if is_so() {
            return true;
        }
        if passed >= limit {
            return false;
        }
        rest(Duration::from_millis(10));
    }
}

/// A process that has begun, or comes back, must have its share of the work in time.
fn works(truth: &Shared, control: &Control, member: &str, what: &str) {
    let began = Instant::now();
    if !in_time(control, began, LIMIT, || lock(truth).works_since(member, began)) {
        lock(truth).violations.push(format!("{LIMIT:?} after {what} {member} has used nothing"));
    }
}

/// Every unit of budgets must be claimed by others in time, if not lent.
fn claimed(
    truth: &Shared,
    control: &Control,
    server: &Server,
    but: &str,
    began: Instant,
) -> Result<(), Box<dyn Error>> {
    let mut engine =
        RedisEngine::new("referee", [format!("redis://127.0.0.1:{}/", server.port)])?.without_news();
    let all = BUDGETS * UNITS as usize;
    let mut count = 0;
    let done = in_time(control, began, LIMIT, || {
        if let Ok(Reply::Overview(seen)) = engine.call(&Request::Overview, TTL) {
            let is_budget = |name: &str| Kind::of(name) == Kind::Budgets;
            let claims = seen.claims.iter();
            count = claims
                .filter(|(claim, member)| is_budget(&claim.unit.to_string()) && &**member != but)
                .count();
        }
        count == all
    });
    if !done {
        let text = format!("{LIMIT:?} after a kill only {count} of {all} units of budgets are claimed");
        lock(truth).violations.push(text);
    }
    Ok(())
}

/// Uses a second that there must be in the mean, by far, also on a busy machine: a run with fewer has checked nothing.
const LEAST_USES: u64 = 20;

/// Kinds of trouble.
const TROUBLES: u64 = 6;

pub fn run(settings: &Settings) -> Result<bool, Box<dyn Error>> {
    let control = Control::start();
    let truth: Shared = Arc::new(Mutex::new(Truth::new(control.clone())));
    let mut server = Server::start(&settings.server)?;
    let mut spare = Server::spare(&settings.server)?;
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
    let gates: Vec<Arc<Gate>> = (0..settings.processes).map(|_| Arc::default()).collect();
    let behind = |gate| Ok([proxy::start(server.port, gate)?, proxy::start(spare.port, gate)?]);
    let servers = gates.iter().map(behind).collect::<io::Result<_>>()?;
    let mut fleet = Fleet {
        children: (0..settings.processes).map(|_| None).collect(),
        names: vec![String::new(); settings.processes],
        lives: 0,
        gates,
        servers,
        port,
    };
    for place in 0..settings.processes {
        fleet.start(place)?;
    }
    // A new fleet grants nothing for its first time to live, and lends nothing of budgets for a period more.
    let began = Instant::now();
    for (kind, all) in [(Kind::Keys, RESOURCES), (Kind::Budgets, BUDGETS)] {
        let all = all * UNITS as usize;
        if !within(began, EVER, || lock(&truth).units(kind) >= all) {
            let used = lock(&truth).units(kind);
            let text = format!("only {used} of {all} units of {kind:?} were ever used after the quarantine");
            lock(&truth).violations.push(text);
        }
    }

    let mut random = SplitMix64::new(settings.seed);
    let end = Instant::now() + Duration::from_secs(settings.seconds);
    let (mut kills, mut stops, mut restarts, mut stalls, mut promotions, mut cuts) = (0, 0, 0, 0, 0, 0);
    let (mut lost_writes, mut lost_claims) = (0, 0);
    let mut slowest = Slowest::new();
    let first = u64::from(random.below(TROUBLES as u32));
    let mut round = first;
    loop {
        // Each kind of trouble at least once; and what happens by chance, if it has not happened, a few times more.
        let hollow = lost_claims == 0 || lock(&truth).ended == 0;
        let rounds = round - first;
        if Instant::now() >= end && rounds >= TROUBLES && (!hollow || rounds >= 3 * TROUBLES) {
            break;
        }
        let place = random.below(settings.processes as u32) as usize;
        let name = fleet.names[place].clone();
        match round % TROUBLES {
            0 => {
                kills += 1;
                fleet.kill(place)?;
                // What it has said and nobody has read yet is no use of anything.
                lock(&truth).killed(&name);
                let began = Instant::now();
                claimed(&truth, &control, &server, &name, began)?;
                recover(&truth, &control, began, "a kill", &mut slowest);
                fleet.start(place)?;
                works(&truth, &control, &fleet.names[place], "its start");
            }
            1 => {
                stops += 1;
                let began = Instant::now();
                lock(&truth).stopped(&name, began);
                fleet.signal(place, "-STOP")?;
                // Others take over while it is stopped, as if it had been killed.
                recover(&truth, &control, began, "a stop", &mut slowest);
                let least = TTL + Duration::from_millis(500 + u64::from(random.below(1_500)));
                rest(least.saturating_sub(began.elapsed()));
                fleet.signal(place, "-CONT")?;
                lock(&truth).goes_on(&name, Instant::now());
                // Its uses end at once that others have overtaken.
                let began = Instant::now();
                if !within(began, PROMPT, || lock(&truth).overtaken_of(&name) == 0) {
                    let count = lock(&truth).overtaken_of(&name);
                    let text =
                        format!("{PROMPT:?} after {name} goes on {count} uses do that others have overtaken");
                    lock(&truth).violations.push(text);
                }
                works(&truth, &control, &name, "a stop");
            }
            2 => {
                stalls += 1;
                server.signal("-STOP")?;
                rest(Duration::from_millis(1_000 + u64::from(random.below(5_000))));
                server.signal("-CONT")?;
                let began = Instant::now();
                recover_anew(
                    &truth,
                    &control,
                    [began, began + OLD_CLAIMS],
                    "a stall of the server",
                    &mut slowest,
                );
            }
            3 => {
                promotions += 1;
                // A replica takes over, without what was written last: renewals, and claims on what somebody who leaves has given back. It is
                // cut off instead of promoted early, as there would be two primaries meanwhile, which is not covered (docs/cluster.md).
                spare.up()?;
                spare.follow(&server)?;
                rest(Duration::from_millis(200 + u64::from(random.below(800))));
                spare.cut_off()?;
                fleet.send_off(place);
                let began = Instant::now();
                while spare.books()?.1 == server.books()?.1 && began.elapsed() < TTL {
                    rest(Duration::from_millis(20));
                }
                rest(Duration::from_millis(u64::from(random.below(500))));
                let (kept, had) = (spare.books()?, server.books()?);
                server.down(true)?;
                lost_writes += u64::from(kept.0 != had.0);
                lost_claims += u64::from(kept.1 != had.1);
                spare.promote()?;
                std::mem::swap(&mut server, &mut spare);
                let began = Instant::now();
                recover_anew(&truth, &control, [began, began + OLD_CLAIMS], "a promotion", &mut slowest);
                if !fleet.has_left(place)? {
                    lock(&truth).violations.push("a process that was sent off has failed".to_owned());
                }
                fleet.start(place)?;
                works(&truth, &control, &fleet.names[place], "its start");
            }
            4 => {
                restarts += 1;
                // With its data, or without; back at once, or after all claims have ended.
                server.down(random.below(2) == 0)?;
                let long = random.below(2) == 0;
                rest(if long { TTL + Duration::from_millis(500) } else { Duration::from_millis(300) });
                server.up()?;
                // By claims of before or after: half of the time the next trouble may come within the quarantine.
                let began = Instant::now();
                match random.below(2) {
                    0 => recover(&truth, &control, began, "a restart, by any claims,", &mut slowest),
                    _ => {
                        let moments = [began, began + OLD_CLAIMS];
                        recover_anew(&truth, &control, moments, "a restart of the server", &mut slowest);
                    }
                }
            }
            _ => {
                cuts += 1;
                // One is cut off, and what it has said meanwhile is carried out late.
                lock(&truth).apart(Some(&name));
                let began = Instant::now();
                fleet.gates[place].close();
                recover(&truth, &control, began, "a process was cut off", &mut slowest);
                rest(LIMIT.saturating_sub(began.elapsed()));
                fleet.gates[place].open();
                lock(&truth).apart(None);
                works(&truth, &control, &name, "it was cut off");
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
            let status = child.wait()?;
            if !status.success() {
                lock(&truth).violations.push(format!("a process has ended with {status}"));
            }
        }
    }
    let truth = lock(&truth);
    for violation in &truth.violations {
        println!("VIOLATION: {violation}");
    }
    println!(
        "checked {} uses of {} units by {} processes ({} lives), {} of them of budgets; {kills} kills; {stops} stops, {} uses overtaken, of which {} \
         ended after it, the slowest in {:?}, {} fenced; {cuts} cut off; {restarts} restarts of the server, {stalls} stalls, {promotions} \
         promotions, {lost_writes} of them with writes lost, {lost_claims} with claims",
        truth.checked,
        truth.units(Kind::Keys) + truth.units(Kind::Budgets),
        settings.processes,
        fleet.lives,
        truth.spent,
        truth.overtaken,
        truth.ended,
        truth.slowest_end,
        truth.fenced
    );
    println!(
        "the machine has kept threads waiting {} times, and {} uses were excused for that",
        control.count(),
        truth.excused
    );
    for (what, [keys, budgets]) in slowest {
        println!("after {what} everything was used again within {keys:.2?}, budgets within {budgets:.2?}");
    }
    // What did not happen shows nothing.
    let happened = [kills, stops, stalls, restarts, promotions, cuts, lost_writes, lost_claims, truth.ended];
    let happened = happened.iter().all(|count| *count > 0);
    let enough = truth.checked >= LEAST_USES * settings.seconds.max(1) && truth.spent > 0;
    Ok(truth.violations.is_empty() && enough && happened)
}
