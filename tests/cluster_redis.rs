//! The engine for Redis and Valkey against a real server, and against the engine in memory, which is the contract.
//!
//! Ignored unless asked for, because they need a server: `.ci/cluster` installs it and runs them. `LEASEHOLD_SERVER` names the program.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::{
    Entry, Scheduler, SplitMix64,
    cluster::{
        Change, Claim, Cluster, End, Engine, HoldKind, HoldNote, Line, MemoryEngine, RedisEngine, Reply,
        Request, Session, Share, Terms, Unit,
    },
};

const PATIENCE: Duration = Duration::from_secs(5);
const TTL: Duration = Duration::from_secs(2);

struct Server {
    port: u16,
    child: Option<Child>,
    directory: PathBuf,
}

impl Server {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = std::env::temp_dir().join(format!("leasehold-server-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut server = Server { port, child: None, directory };
        server.up();
        server
    }

    fn up(&mut self) {
        let program = std::env::var("LEASEHOLD_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let port = self.port.to_string();
        let directory = self.directory.to_str().unwrap();
        let options =
            ["--port", &port, "--dir", directory, "--save", "", "--appendonly", "yes", "--bind", "127.0.0.1"];
        let started = Command::new(&program).args(options).stdout(Stdio::null()).spawn();
        self.child = Some(
            started.unwrap_or_else(|error| panic!("{program}: {error}: install it, or run .ci/cluster")),
        );
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < end, "the server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn down(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A command of the server's own, and the beginning of its answer.
    fn tell(&self, words: &[&str]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = vec![0; 1 << 16];
        let length = stream.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        assert!(!answer.starts_with('-'), "{words:?}: {answer}");
        answer
    }

    fn engine(&self, fleet: &str) -> RedisEngine {
        RedisEngine::new(fleet, [format!("redis://127.0.0.1:{}/", self.port)]).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.down();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// One engine, with what it calls sessions and tokens.
struct Side {
    engine: Box<dyn Engine>,
    sessions: Vec<Session>,
    /// By session: what it owns.
    claims: Vec<Vec<Claim>>,
}

impl Side {
    fn new(engine: impl Engine + 'static) -> Self {
        Side { engine: Box::new(engine), sessions: Vec::new(), claims: Vec::new() }
    }

    fn call(&mut self, request: &Request) -> Reply {
        self.engine.call(request, PATIENCE).unwrap()
    }

    fn join(&mut self, member: &str) -> String {
        let request = Request::Join { member: member.into(), ttl: TTL, weight: 1, previous: None };
        match self.call(&request) {
            Reply::Joined(session) => {
                self.sessions.push(session);
                self.claims.push(Vec::new());
                "joined".to_owned()
            }
            other => format!("{other:?}"),
        }
    }

    /// The same step on any engine; what is told is without what differs by nature: tokens and times.
    fn step(&mut self, what: u32, who: usize, random: &mut SplitMix64) -> String {
        let session = self.sessions[who].clone();
        let mut last = 0;
        match what {
            0..=2 => {
                let count = 1 + random.below(6);
                let end = if random.below(2) == 0 { End::Best } else { End::Worst };
                let from = |name: &str, index| Unit { name: name.into(), index };
                let skip = match random.below(3) {
                    0 => vec![from("r2", 0), from("r0", 2)],
                    _ => Vec::new(),
                };
                let Reply::Claims(claims) = self.call(&Request::Claim { session, count, end, skip }) else {
                    panic!()
                };
                for claim in &claims {
                    assert!(claim.token > last, "tokens grow");
                    last = claim.token;
                }
                let told =
                    format!("{:?}", claims.iter().map(|claim| claim.unit.to_string()).collect::<Vec<_>>());
                self.claims[who].extend(claims);
                told
            }
            3 | 4 => {
                // Some of its own; now and then with a wrong token, or of somebody else.
                let mut claims = self.claims[who].clone();
                claims.sort_by(|a, b| a.unit.cmp(&b.unit));
                claims.truncate(random.below(4) as usize);
                self.claims[who].retain(|claim| !claims.contains(claim));
                let mut given = claims.clone();
                if random.below(3) == 0 {
                    given.iter_mut().for_each(|claim| claim.token -= 1);
                    self.claims[who].extend(claims);
                }
                let other = (who + 1) % self.claims.len();
                let mut foreign = self.claims[other].clone();
                foreign.sort_by(|a, b| a.unit.cmp(&b.unit));
                given.extend(foreign.into_iter().take(1).filter(|_| random.below(3) == 0));
                format!("{:?}", self.call(&Request::Return { session, claims: given }))
            }
            5 => {
                let Reply::Claims(claims) = self.call(&Request::Owned { session }) else { panic!() };
                let ours: BTreeSet<_> =
                    self.claims[who].iter().map(|claim| (claim.unit.clone(), claim.token)).collect();
                let theirs: BTreeSet<_> = claims.into_iter().map(|claim| (claim.unit, claim.token)).collect();
                assert_eq!(ours, theirs);
                format!("{:?}", theirs.into_iter().map(|(unit, _)| unit.to_string()).collect::<Vec<_>>())
            }
            _ => {
                let need = random.below(9);
                let line = Line { need, spare: 1, held: need / 2, weight: 3 };
                let Reply::Renewed(mut view) = self.call(&Request::Renew { session, line }) else { panic!() };
                assert!(view.next_expiry.is_none_or(|left| left <= TTL));
                (view.next_expiry, view.quarantine) = (None, None);
                format!("{view:?}")
            }
        }
    }
}

fn units() -> Vec<(Unit, u64)> {
    let of = |number: u64| {
        (0..3).map(move |index| (Unit { name: format!("r{number}").into(), index }, number * 10))
    };
    (0..6).flat_map(of).collect()
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn both_engines_do_the_same() {
    let server = Server::start();
    let mut sides = [Side::new(MemoryEngine::new()), Side::new(server.engine("same"))];
    let mut steps = 0;
    let mut both = |sides: &mut [Side; 2], seed: u64, step: &dyn Fn(&mut Side, &mut SplitMix64) -> String| {
        let told: Vec<String> = sides.iter_mut().map(|side| step(side, &mut SplitMix64::new(seed))).collect();
        assert_eq!(told[0], told[1], "seed {seed}");
        steps += 1;
    };
    for name in ["a", "b", "c d"] {
        both(&mut sides, 0, &|side, _| side.join(name));
    }
    // In quarantine nothing is claimed, and two units are reinstated, one of them by two: the first has it.
    let claim = |index| (Claim { unit: Unit { name: "r1".into(), index }, token: 5 + u64::from(index) }, 10);
    for who in 0..2 {
        both(&mut sides, 0, &|side, _| {
            let request = Request::Register { session: side.sessions[who].clone(), units: units() };
            format!("{:?}", side.call(&request))
        });
        both(&mut sides, 1, &|side, random| side.step(0, who, random));
        both(&mut sides, 0, &|side, _| {
            let claims = vec![claim(0), claim(1 + who as u32)];
            let request = Request::Reinstate { session: side.sessions[who].clone(), claims };
            let reply = side.call(&request);
            if let Reply::Claims(claims) = &reply {
                side.claims[who].extend(claims.iter().cloned());
            }
            format!("{reply:?}")
        });
    }
    let over = Instant::now() + TTL + Duration::from_millis(50);
    while Instant::now() < over {
        for who in 0..3 {
            both(&mut sides, 7, &|side, random| side.step(9, who, random));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    both(&mut sides, 0, &|side, _| {
        let request = Request::Reinstate { session: side.sessions[0].clone(), claims: vec![claim(2)] };
        format!("{:?}", side.call(&request))
    });
    let mut random = SplitMix64::new(3);
    for seed in 0..600 {
        let (what, who) = (random.below(8), random.below(3) as usize);
        both(&mut sides, seed, &|side, random| side.step(what, who, random));
        if seed % 100 == 99 {
            for who in 0..3 {
                both(&mut sides, 7, &|side, random| side.step(9, who, random));
            }
        }
    }
    // One leaves, one is forgotten, one goes on.
    both(&mut sides, 0, &|side, _| {
        format!("{:?}", side.call(&Request::Leave { session: side.sessions[0].clone() }))
    });
    let over = Instant::now() + TTL + Duration::from_millis(300);
    while Instant::now() < over {
        std::thread::sleep(Duration::from_millis(300));
        for side in &mut sides {
            let _ = side.step(9, 2, &mut SplitMix64::new(1));
        }
    }
    both(&mut sides, 0, &|side, random| side.step(9, 2, random));
    both(&mut sides, 0, &|side, _| {
        let gone = side.call(&Request::Owned { session: side.sessions[1].clone() });
        matches!(gone, Reply::Gone { .. }).to_string()
    });
    both(&mut sides, 0, &|side, _| {
        let Reply::Overview(all) = side.call(&Request::Overview) else { panic!() };
        let mut units: Vec<_> =
            all.claims.iter().map(|(claim, member)| format!("{} {member}", claim.unit)).collect();
        units.sort();
        let members: Vec<_> = all.members.iter().map(|(view, owned, _)| (view.clone(), *owned)).collect();
        format!("{units:?} {members:?} {}", all.free)
    });
    println!("checked {steps} steps");
}

fn note(kind: HoldKind, change: Change) -> HoldNote {
    let (name, origin, epoch) = ("r1".into(), "o p".into(), "".into());
    HoldNote { name, kind, change, origin, epoch, version: 0 }
}

fn hold(kind: HoldKind, change: Change) -> Request {
    Request::Hold(vec![note(kind, change)])
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn holds_are_recorded_told_and_forgotten_alike() {
    let server = Server::start();
    let mut sides = [Side::new(MemoryEngine::new()), Side::new(server.engine("holds"))];
    let second = Duration::from_secs(1);
    let steps = [
        hold(HoldKind::Excluded, Change::Set(None)),
        hold(HoldKind::Cooling, Change::Set(Some(second * 100))),
        hold(HoldKind::Cooling, Change::Set(Some(second))),
        Request::Holds,
        hold(HoldKind::Ejected, Change::Set(Some(second / 10))),
        hold(HoldKind::Excluded, Change::Cleared),
        Request::Holds,
        // Several at once, in this order; of one that is on record the later end counts, and none is the latest.
        Request::Hold(vec![
            note(HoldKind::Ejected, Change::Set(None)),
            note(HoldKind::Ejected, Change::Set(Some(second * 50))),
            note(HoldKind::Cooling, Change::Cleared),
            note(HoldKind::Cooling, Change::Set(Some(second * 20))),
        ]),
        Request::Holds,
        hold(HoldKind::Ejected, Change::Cleared),
        hold(HoldKind::Ejected, Change::Set(Some(second / 10))),
        Request::Holds,
    ];
    // Whole seconds are alike: the clocks go on between the steps.
    let rounded = |mut note: HoldNote| {
        assert!(!std::mem::take(&mut note.epoch).is_empty());
        if let Change::Set(Some(left)) = note.change {
            note.change = Change::Set(Some(Duration::from_secs(left.as_secs_f64().round() as u64)));
        }
        note
    };
    for step in steps {
        let told = sides.each_mut().map(|side| match side.call(&step) {
            Reply::Holds(notes, version) => {
                let mut notes: Vec<_> = notes.into_iter().map(rounded).collect();
                notes.sort_by_key(|note| note.kind);
                (notes, version)
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(told[0], told[1], "{step:?}");
    }
    std::thread::sleep(second / 5);
    for side in &mut sides {
        let Reply::Holds(notes, _) = side.call(&Request::Holds) else { panic!() };
        let kinds: Vec<_> = notes.iter().map(|note| note.kind).collect();
        assert_eq!(kinds, [HoldKind::Cooling], "the ejection is over");
    }
    // Whoever listens hears it.
    let mut listener = server.engine("holds");
    listener.call(&Request::Holds, PATIENCE).unwrap();
    std::thread::sleep(second / 2);
    sides[1].call(&hold(HoldKind::Excluded, Change::Set(None)));
    let end = Instant::now() + second * 5;
    let mut heard = Vec::new();
    while heard.is_empty() && Instant::now() < end {
        heard = listener.news();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((heard.len(), heard[0].kind, &*heard[0].origin), (1, HoldKind::Excluded, "o p"));
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn a_restart_is_another_epoch_and_the_next_address_is_tried() {
    let mut server = Server::start();
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let addresses = [dead, server.port].map(|port| format!("redis://127.0.0.1:{port}/"));
    let mut engine = RedisEngine::new("restart", addresses).unwrap();
    let join = Request::Join { member: "a".into(), ttl: TTL, weight: 1, previous: None };
    // Nobody is at the first address.
    let Reply::Joined(session) = engine.call(&join, PATIENCE).unwrap() else { panic!() };
    server.down();
    let renew = Request::Renew { session: session.clone(), line: Line::default() };
    assert!(engine.call(&renew, PATIENCE).is_err());
    server.up();
    let end = Instant::now() + Duration::from_secs(10);
    let reply = loop {
        match engine.call(&renew, PATIENCE) {
            Ok(reply) => break reply,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    };
    assert!(matches!(&reply, Reply::Gone { epoch } if *epoch != session.epoch), "{reply:?}");
}

fn owns(engine: &mut RedisEngine, session: &Session) -> Reply {
    engine.call(&Request::Owned { session: session.clone() }, PATIENCE).unwrap()
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn a_server_that_was_a_replica_meanwhile_or_has_lost_everything_is_another_epoch() {
    let (server, other) = (Server::start(), Server::start());
    let follows = |who: &Server, whom: &Server| {
        who.tell(&["REPLICAOF", "127.0.0.1", &whom.port.to_string()]);
        let end = Instant::now() + Duration::from_secs(20);
        while !who.tell(&["INFO", "replication"]).contains("master_link_status:up") {
            assert!(Instant::now() < end, "it never follows");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    follows(&other, &server);
    let mut engine = server.engine("promoted");
    let join = |member: &str| Request::Join { member: member.into(), ttl: TTL, weight: 1, previous: None };
    let Reply::Joined(first) = engine.call(&join("a"), PATIENCE).unwrap() else { panic!() };
    assert_eq!(owns(&mut engine, &first), Reply::Claims(Vec::new()));
    std::thread::sleep(Duration::from_millis(500));
    // There and back: the same process, and what it had is there.
    other.tell(&["REPLICAOF", "NO", "ONE"]);
    follows(&server, &other);
    // A replica carries nothing out, and where there is another address that one is asked.
    assert!(engine.call(&join("b"), PATIENCE).is_err());
    let addresses = [server.port, other.port].map(|port| format!("redis://127.0.0.1:{port}/"));
    let mut both = RedisEngine::new("elsewhere", addresses).unwrap();
    assert!(matches!(both.call(&join("b"), PATIENCE).unwrap(), Reply::Joined(_)));
    server.tell(&["REPLICAOF", "NO", "ONE"]);
    assert!(matches!(owns(&mut engine, &first), Reply::Gone { .. }));
    let Reply::Joined(second) = engine.call(&join("a"), PATIENCE).unwrap() else { panic!() };
    // The same process, the same replication id, and nothing is left: numbers of sessions begin anew.
    server.tell(&["FLUSHALL"]);
    let Reply::Joined(third) = engine.call(&join("stranger"), PATIENCE).unwrap() else { panic!() };
    assert!(first.epoch != second.epoch && second.epoch != third.epoch && first.epoch != third.epoch);
    assert!(matches!(owns(&mut engine, &second), Reply::Gone { .. }));
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn looking_changes_nothing() {
    let server = Server::start();
    let mut engine = server.engine("mistyped");
    let Reply::Overview(all) = engine.call(&Request::Overview, PATIENCE).unwrap() else { panic!() };
    assert!(all.epoch.is_empty() && all.members.is_empty() && all.holds.is_empty());
    assert!(server.tell(&["DBSIZE"]).starts_with(":0"), "no key was made");
    engine.call(&hold(HoldKind::Excluded, Change::Set(None)), PATIENCE).unwrap();
    let Reply::Overview(all) = engine.call(&Request::Overview, PATIENCE).unwrap() else { panic!() };
    assert_eq!((all.epoch.is_empty(), all.holds.len()), (false, 1));
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn a_clock_that_is_set_back_and_what_is_still_to_be_freed() {
    let server = Server::start();
    let mut engine = server.engine("freed");
    let mut join = |member: &str| {
        let request = Request::Join { member: member.into(), ttl: TTL, weight: 1, previous: None };
        let Reply::Joined(session) = engine.call(&request, PATIENCE).unwrap() else { panic!() };
        session
    };
    let (one, two) = (join("one"), join("two"));
    let unit = |index| Unit { name: "r".into(), index };
    for batch in 0..10 {
        let units = (batch * 256..(batch + 1) * 256).map(|index| (unit(index), 7)).collect();
        engine.call(&Request::Register { session: one.clone(), units }, PATIENCE).unwrap();
    }
    let mut renew = |session: &Session| {
        let request = Request::Renew { session: session.clone(), line: Line::default() };
        match engine.call(&request, PATIENCE).unwrap() {
            Reply::Renewed(view) => view,
            other => panic!("{other:?}"),
        }
    };
    let end = Instant::now() + TTL + Duration::from_millis(50);
    while Instant::now() < end {
        let views = [renew(&one), renew(&two)];
        assert_eq!(views.map(|view| view.me), [0, 1], "in the order of names");
        std::thread::sleep(TTL / 10);
    }
    let mut claim = |session: &Session| {
        let request =
            Request::Claim { session: session.clone(), count: 256, end: End::Best, skip: Vec::new() };
        match engine.call(&request, PATIENCE).unwrap() {
            Reply::Claims(claims) => claims.len(),
            other => panic!("{other:?}"),
        }
    };
    for _ in 0..10 {
        assert_eq!(claim(&one), 256);
    }
    assert_eq!(claim(&two), 0);
    // As if the clock had shown a later time when it was renewed.
    let far = "9000000000000000";
    server.tell(&["ZADD", "leasehold:{freed}:sessions", far, &one.number.to_string()]);
    let mut renew = |session: &Session| {
        let request = Request::Renew { session: session.clone(), line: Line::default() };
        match engine.call(&request, PATIENCE).unwrap() {
            Reply::Renewed(view) => view,
            other => panic!("{other:?}"),
        }
    };
    let end = Instant::now() + TTL + Duration::from_millis(200);
    let mut view = renew(&two);
    while Instant::now() < end {
        view = renew(&two);
        std::thread::sleep(TTL / 10);
    }
    assert_eq!(view.free, 2_560, "with what is still to be freed");
    let mut got = 0;
    for _ in 0..10 {
        let request = Request::Claim { session: two.clone(), count: 256, end: End::Best, skip: Vec::new() };
        let Reply::Claims(claims) = engine.call(&request, PATIENCE).unwrap() else { panic!() };
        got += claims.len();
    }
    assert_eq!(got, 2_560);
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn a_cluster_over_a_server_lends_through_restarts() {
    type Key = Entry<Arc<str>, u64, ()>;
    let mut server = Server::start();
    let keys = Arc::new(Scheduler::<Key>::builder().max_hold(Duration::from_secs(60)).build().unwrap());
    let cluster = Cluster::builder("a")
        .terms(Terms::new(TTL).floor(3))
        .shares((0..3).map(|number| Share::new(format!("k{number}"), number)))
        .start(server.engine("lends"), &keys, |share, _| Entry::new(share.name.clone(), share.rank, ()))
        .unwrap();
    let until = |what: &str, is: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(30);
        while !is() {
            assert!(Instant::now() < end, "it never came to this: {what}: {:?}", cluster.stats());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until("three units", &|| keys.stats().available == 3);
    let mut lease = keys.acquire().unwrap();
    let fence = cluster.fence(&mut lease).unwrap();
    server.down();
    server.up();
    until("they are reinstated", &|| cluster.stats().reinstated == 3);
    assert!(fence.check().is_ok());
    let before = cluster.stats().requests;
    std::thread::sleep(TTL * 2);
    let sent = cluster.stats().requests - before;
    assert!(sent <= 2 * 5 * 2, "at rest it renews, and now and then asks: {sent}");
    drop(fence);
    drop(lease);
    assert!(cluster.close(Duration::from_secs(1)).told);
}
