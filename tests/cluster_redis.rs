//! The engine for Redis and Valkey against a real server, and against the engine in memory, which is the contract.
//!
//! Ignored unless asked for, because they need a server: `.ci/cluster` installs it and runs them. `LEASEHOLD_SERVER` names the program.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use leasehold::{
    Capacity, Entry, Resource, Scheduler, SplitMix64,
    cluster::{
        Change, Claim, Cluster, End, Engine, HoldKind, HoldNote, Line, MemoryEngine, RedisEngine, Reply,
        Request, Session, Share, Start, StartError, Terms, Unit,
    },
};

const PATIENCE: Duration = Duration::from_secs(20);
/// Of clusters: from 3/5 of it on a busy machine keeps a thread waiting for so long that nothing is lent, from 7/10 on claims are lost.
const TTL: Duration = Duration::from_secs(5);
/// Of sessions that are renewed by the test itself, and end in it.
const SESSION: Duration = Duration::from_secs(6);
/// Of sessions that are not renewed and do not end.
const LONG: Duration = Duration::from_secs(600);
/// For what must come to pass.
const EVER: Duration = Duration::from_secs(60);

/// Looks until something is so.
fn until(what: &str, is: impl FnMut() -> bool) {
    until_with(what, is, String::new);
}

/// The same; and how it stands if it never is.
fn until_with(what: &str, mut is: impl FnMut() -> bool, stands: impl Fn() -> String) {
    let end = Instant::now() + EVER;
    while !is() {
        assert!(Instant::now() < end, "it never came to this: {what}: {}", stands());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A start that requires the engine, which has a tenth of the time to live for its first answer: again if that was too short.
fn started<K: Resource>(start: impl Fn() -> Result<Cluster<K>, StartError>) -> Cluster<K> {
    let end = Instant::now() + EVER;
    loop {
        match start() {
            Err(StartError::Engine(_)) if Instant::now() < end => {}
            other => return other.unwrap(),
        }
    }
}

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
        until("the server listens", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    fn down(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A command of the server's own, and the beginning of its answer.
    fn tell(&self, words: &[&str]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
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

    /// A fleet that has been joined grants at once from now on, as if its first time to live were over.
    fn grant(&self, fleet: &str) {
        self.tell(&["HSET", &format!("leasehold:{{{fleet}}}:meta"), "quarantine", "0"]);
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

/// The step that is a renewal.
const RENEW: u32 = 10;

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
        let request = Request::Join { member: member.into(), ttl: SESSION, weight: 1, previous: None };
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
            8 => {
                // What rests is not offered, whatever else is on record of it.
                let kind = HoldKind::ALL[random.below(3) as usize];
                let change = match random.below(3) {
                    0 => Change::Cleared,
                    1 => Change::Set(None),
                    _ => Change::Set(Some(Duration::from_secs(1_000))),
                };
                let name = format!("r{}", random.below(6)).into();
                let reply = self.call(&Request::Hold(vec![HoldNote { name, ..note(kind, change) }]));
                let Reply::Holds(_, version) = reply else { panic!("{reply:?}") };
                version.to_string()
            }
            9 => {
                // Again, and the session before is over: its units are free.
                let previous = Some(session);
                let request =
                    Request::Join { member: format!("m{who}").into(), ttl: SESSION, weight: 2, previous };
                let Reply::Joined(session) = self.call(&request) else { panic!() };
                self.sessions[who] = session;
                self.claims[who].clear();
                "joined again".to_owned()
            }
            _ => {
                let need = random.below(9);
                let line = Line { need, spare: 1, held: need / 2, weight: 3 };
                let Reply::Renewed(mut view) = self.call(&Request::Renew { session, line }) else { panic!() };
                assert!(view.next_expiry.is_none_or(|left| left <= SESSION));
                (view.next_expiry, view.quarantine, view.turn) = (None, None, 0);
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
    let over = Instant::now() + SESSION + Duration::from_millis(200);
    while Instant::now() < over {
        for who in 0..3 {
            both(&mut sides, 7, &|side, random| side.step(RENEW, who, random));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    both(&mut sides, 0, &|side, _| {
        let request = Request::Reinstate { session: side.sessions[0].clone(), claims: vec![claim(2)] };
        format!("{:?}", side.call(&request))
    });
    let mut random = SplitMix64::new(3);
    for seed in 0..900 {
        // A renewal as often as a claim; who joins again is seldom.
        let (what, who) = (random.below(12), random.below(3) as usize);
        if what == 9 && random.below(8) > 0 {
            continue;
        }
        both(&mut sides, seed, &|side, random| side.step(what, who, random));
        if seed % 100 == 99 {
            for who in 0..3 {
                both(&mut sides, 7, &|side, random| side.step(RENEW, who, random));
            }
        }
    }
    // One leaves, one is forgotten, one goes on.
    both(&mut sides, 0, &|side, _| {
        format!("{:?}", side.call(&Request::Leave { session: side.sessions[0].clone() }))
    });
    let over = Instant::now() + SESSION + Duration::from_millis(300);
    while Instant::now() < over {
        std::thread::sleep(Duration::from_millis(300));
        for side in &mut sides {
            let _ = side.step(RENEW, 2, &mut SplitMix64::new(1));
        }
    }
    both(&mut sides, 0, &|side, random| side.step(RENEW, 2, random));
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
    // Nothing that is on record ends by itself in these steps.
    let minute = Duration::from_secs(60);
    let steps = [
        hold(HoldKind::Excluded, Change::Set(None)),
        hold(HoldKind::Cooling, Change::Set(Some(minute * 100))),
        hold(HoldKind::Cooling, Change::Set(Some(minute * 10))),
        Request::Holds,
        hold(HoldKind::Ejected, Change::Set(Some(minute * 5))),
        hold(HoldKind::Excluded, Change::Cleared),
        Request::Holds,
        // Several at once, in this order; of one that is on record the later end counts, and none is the latest.
        Request::Hold(vec![
            note(HoldKind::Ejected, Change::Set(None)),
            note(HoldKind::Ejected, Change::Set(Some(minute * 50))),
            note(HoldKind::Cooling, Change::Cleared),
            note(HoldKind::Cooling, Change::Set(Some(minute * 20))),
        ]),
        Request::Holds,
        hold(HoldKind::Ejected, Change::Cleared),
        hold(HoldKind::Ejected, Change::Set(Some(minute * 5))),
        Request::Holds,
        hold(HoldKind::Ejected, Change::Cleared),
    ];
    // How much is left is told apart: the clocks go on between the steps.
    let apart = |mut note: HoldNote| {
        assert!(!std::mem::take(&mut note.epoch).is_empty());
        let left = match &mut note.change {
            Change::Set(Some(left)) => std::mem::take(left),
            _ => Duration::ZERO,
        };
        (note, left)
    };
    for step in steps {
        let [one, other] = sides.each_mut().map(|side| match side.call(&step) {
            Reply::Holds(mut notes, version) => {
                notes.sort_by_key(|note| note.kind);
                let (notes, left): (Vec<_>, Vec<_>) = notes.into_iter().map(apart).unzip();
                (notes, version, left)
            }
            other => panic!("{other:?}"),
        });
        assert_eq!((one.0, one.1), (other.0, other.1), "{step:?}");
        for (one, other) in one.2.iter().zip(&other.2) {
            assert!(one.abs_diff(*other) <= minute / 2, "{one:?} and {other:?} left after {step:?}");
        }
    }
    for side in &mut sides {
        side.call(&hold(HoldKind::Ejected, Change::Set(Some(Duration::from_millis(100)))));
        until("the ejection is over, and the cooling is not", || {
            let Reply::Holds(notes, _) = side.call(&Request::Holds) else { panic!() };
            let kinds: Vec<_> = notes.iter().map(|note| note.kind).collect();
            assert!(kinds.contains(&HoldKind::Cooling), "{kinds:?}");
            kinds == [HoldKind::Cooling]
        });
    }
    // Whoever listens hears it.
    let mut listener = server.engine("holds");
    listener.call(&Request::Holds, PATIENCE).unwrap();
    // It, and the one that was compared.
    let subscribers = || server.tell(&["PUBSUB", "NUMSUB", "leasehold:{holds}:news"]);
    until("both listen", || subscribers().ends_with(":2\r\n"));
    sides[1].call(&hold(HoldKind::Excluded, Change::Set(None)));
    let mut heard = Vec::new();
    until("it is heard", || {
        heard.extend(listener.news());
        !heard.is_empty()
    });
    assert_eq!((heard.len(), heard[0].kind, &*heard[0].origin), (1, HoldKind::Excluded, "o p"));
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn a_restart_is_another_epoch_and_the_next_address_is_tried() {
    let mut server = Server::start();
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let addresses = [dead, server.port].map(|port| format!("redis://127.0.0.1:{port}/"));
    let mut engine = RedisEngine::new("restart", addresses).unwrap();
    let join = Request::Join { member: "a".into(), ttl: LONG, weight: 1, previous: None };
    // Nobody is at the first address.
    let Reply::Joined(session) = engine.call(&join, PATIENCE).unwrap() else { panic!() };
    server.down();
    let renew = Request::Renew { session: session.clone(), line: Line::default() };
    assert!(engine.call(&renew, PATIENCE).is_err());
    server.up();
    let end = Instant::now() + EVER;
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
        until("it follows", || who.tell(&["INFO", "replication"]).contains("master_link_status:up"));
    };
    follows(&other, &server);
    let mut engine = server.engine("promoted");
    let join = |member: &str| Request::Join { member: member.into(), ttl: LONG, weight: 1, previous: None };
    let Reply::Joined(first) = engine.call(&join("a"), PATIENCE).unwrap() else { panic!() };
    assert_eq!(owns(&mut engine, &first), Reply::Claims(Vec::new()));
    let sessions = |who: &Server| who.tell(&["ZRANGE", "leasehold:{promoted}:sessions", "0", "-1"]);
    let there = sessions(&server);
    assert!(there.starts_with("*1\r\n"), "{there}");
    until("the replica has it, too", || sessions(&other) == there);
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
        let request = Request::Join { member: member.into(), ttl: SESSION, weight: 1, previous: None };
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
    let views = [renew(&one), renew(&two)];
    assert!(views.iter().all(|view| view.quarantine.is_some()), "nothing is granted yet");
    server.grant("freed");
    let views = [renew(&one), renew(&two)];
    assert!(views.iter().all(|view| view.quarantine.is_none()), "{views:?}");
    assert_eq!(views.map(|view| view.me), [0, 1], "in the order of names");
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
    // And as if an epoch had begun then.
    server.tell(&["HSET", "leasehold:{freed}:meta", "quarantine", far]);
    let mut renew = |session: &Session| {
        let request = Request::Renew { session: session.clone(), line: Line::default() };
        match engine.call(&request, PATIENCE).unwrap() {
            Reply::Renewed(view) => view,
            other => panic!("{other:?}"),
        }
    };
    let mut view = renew(&two);
    until("all is free and granted", || {
        std::thread::sleep(SESSION / 20);
        view = renew(&two);
        assert!(
            [0, 2_560].contains(&view.free),
            "all at once, with what is still to be freed: {}",
            view.free
        );
        view.free == 2_560 && view.quarantine.is_none()
    });
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
    // A server that takes long to come back is back before claims end.
    const TTL: Duration = Duration::from_secs(10);
    let mut server = Server::start();
    let shares = (0..3).map(|number| Share::new(format!("k{number}"), number)).collect();
    let (keys, cluster) = joined(&server, "lends", "a", Terms::new(TTL).floor(3), shares);
    let until = |what: &str, is: &dyn Fn() -> bool| until_with(what, is, || format!("{:?}", cluster.stats()));
    until("three units", &|| keys.stats().available == 3);
    let mut lease = keys.acquire().unwrap();
    let fence = cluster.fence(&mut lease).unwrap();
    server.down();
    server.up();
    until("they are reinstated", &|| cluster.stats().reinstated >= 3);
    assert!(fence.check().is_ok());
    let (before, began) = (cluster.stats().requests, Instant::now());
    std::thread::sleep(TTL);
    let sent = cluster.stats().requests - before;
    // In each time to live five renewals, and as many others.
    let most = 10.0 * began.elapsed().as_secs_f64() / TTL.as_secs_f64();
    assert!(sent as f64 <= most, "at rest it renews, and now and then asks: {sent} of {most}");
    drop(fence);
    drop(lease);
    assert!(cluster.close(EVER).told);
}

type Plain = Entry<Arc<str>, u64, ()>;

/// Two processes that share a hundred resources, with the default terms but for the floor, each with so many at least.
fn two_with_a_hundred(server: &Server, floor: u32) -> [(Arc<Scheduler<Plain>>, Cluster<Plain>); 2] {
    let members = ["a", "b"].map(|name| {
        let shares = (0..100).map(|number| Share::new(format!("k{number}"), number)).collect();
        joined(server, "rate", name, Terms::default().floor(floor), shares)
    });
    until("so many units each", || {
        members.iter().all(|(keys, _)| keys.stats().available >= u64::from(floor))
    });
    members
}

/// Commands that the server carries out for each of two processes in a second, in ten seconds from when what has changed has settled: a need falls
/// slowly.
fn commands_a_second(server: &Server) -> f64 {
    std::thread::sleep(Duration::from_secs(15));
    let commands = || {
        let told = server.tell(&["INFO", "commandstats"]);
        let calls = |name: &str| -> u64 {
            let found = told.split(&format!("cmdstat_{name}:calls=")).nth(1);
            found.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
        };
        calls("evalsha") + calls("eval") + calls("script|load")
    };
    let (before, began) = (commands(), Instant::now());
    std::thread::sleep(Duration::from_secs(10));
    (commands() - before) as f64 / began.elapsed().as_secs_f64() / 2.0
}

/// The bar: two commands in a second for each hundred resources, as the server counts them, with the default terms.
#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn at_rest_a_process_sends_at_most_two_commands_a_second_for_a_hundred_resources() {
    let server = Server::start();
    let members = two_with_a_hundred(&server, 30);
    let leases: Vec<_> =
        members.iter().flat_map(|(keys, _)| (0..20).map(|_| keys.acquire().unwrap())).collect();
    let rate = commands_a_second(&server);
    println!("at rest: {rate} commands a second and process");
    assert!((0.5..=2.0).contains(&rate), "{rate}");
    drop(leases);
}

/// The same bar while threads acquire, use and release at random: what is needed changes all the time, and stays about the same.
#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn under_load_a_process_sends_at_most_two_commands_a_second_for_a_hundred_resources() {
    const THREADS: u64 = 16;
    let server = Server::start();
    let members = two_with_a_hundred(&server, 1);
    let (ends, leases) = (AtomicBool::new(false), AtomicU64::new(0));
    let rate = std::thread::scope(|scope| {
        for number in 0..2 * THREADS {
            let (keys, ends, leases) = (&members[(number % 2) as usize].0, &ends, &leases);
            scope.spawn(move || {
                let mut random = SplitMix64::new(number);
                let mut rest = |most: u32| {
                    std::thread::sleep(Duration::from_millis(u64::from(1 + random.below(most))));
                };
                while !ends.load(Ordering::Relaxed) {
                    // Some do not wait, and are sent away if there is nothing.
                    let lease = if number < THREADS {
                        keys.acquire_timeout(Duration::from_millis(500)).ok()
                    } else {
                        keys.acquire().ok()
                    };
                    leases.fetch_add(u64::from(lease.is_some()), Ordering::Relaxed);
                    rest(40);
                    drop(lease);
                    rest(40);
                }
            });
        }
        let rate = commands_a_second(&server);
        // A quarter of what these threads do in that time if nobody keeps them waiting: a slow machine needs more.
        let (enough, began) = (2 * THREADS * 25_000 / 41 / 4, Instant::now());
        while leases.load(Ordering::Relaxed) <= enough && began.elapsed() < EVER {
            std::thread::sleep(Duration::from_millis(50));
        }
        ends.store(true, Ordering::Relaxed);
        rate
    });
    let leases = leases.into_inner();
    println!("under load: {rate} commands a second and process; {leases} leases");
    assert!(leases > 2 * THREADS * 25_000 / 41 / 4, "{leases}");
    assert!((0.5..=2.0).contains(&rate), "{rate}");
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn two_clusters_over_a_server_share_and_hear_what_was_lost_on_the_way() {
    let server = Server::start();
    let join = |name: &str| {
        joined(&server, "two", name, Terms::new(TTL).floor(4), vec![Share::new("k", 0).units(4)])
    };
    let ((one, a), (two, b)) = (join("a"), join("b"));
    let until = |what: &str, is: &dyn Fn() -> bool| {
        until_with(what, is, || format!("{:?} {:?}", a.stats(), b.stats()));
    };
    until("two units each", &|| one.stats().available == 2 && two.stats().available == 2);
    // Nobody listens, nor can: what is published now reaches nobody, and what follows is the reconciliation's.
    let subscribers = || server.tell(&["PUBSUB", "NUMSUB", "leasehold:{two}:news"]);
    until("both listen", &|| subscribers().ends_with(":2\r\n"));
    server.tell(&["ACL", "SETUSER", "default", "-subscribe"]);
    server.tell(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    until("nobody listens", &|| subscribers().ends_with(":0\r\n"));
    // A look at the scheduler, a renewal of ttl / 5, and a machine that does other things: the best of some attempts, as it may do them just then.
    let limit = TTL / 5 + Duration::from_secs(1);
    let attempt = || {
        let lost = Instant::now();
        one.exclude("k").unwrap();
        until("the other knows", &|| two.acquire().is_err());
        let took = lost.elapsed();
        a.include("k").unwrap();
        until("it is over there", &|| two.acquire().is_ok());
        until("and here", &|| one.acquire().is_ok());
        took
    };
    let took: Vec<_> = (0..20).map(|_| attempt()).take_while(|took| *took >= limit).collect();
    assert!(took.len() < 20, "{took:?}");
    assert!(subscribers().ends_with(":0\r\n"), "somebody has listened");
    one.exclude("k").unwrap();
    until("the other knows", &|| two.acquire().is_err());
    server.tell(&["ACL", "SETUSER", "default", "+subscribe"]);
    // Who was refused does not ask again on the same connection.
    server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
    until("both listen again", &|| subscribers().ends_with(":2\r\n"));
    a.include("k").unwrap();
    until("it is over there", &|| two.acquire().is_ok());
    assert!(a.close(EVER).told);
    until("what one had the other has", &|| two.stats().available == 4);
}

/// A process of a fleet that grants at once.
fn joined(
    server: &Server,
    fleet: &str,
    name: &str,
    terms: Terms,
    shares: Vec<Share>,
) -> (Arc<Scheduler<Plain>>, Cluster<Plain>) {
    let builder = Scheduler::<Plain>::builder().max_hold(Duration::from_secs(60));
    let keys = Arc::new(builder.build().unwrap());
    let cluster = started(|| {
        let cluster = Cluster::builder(name).terms(terms).shares(shares.clone());
        cluster.start(server.engine(fleet), &keys, |share, units| {
            Entry::new(share.name.clone(), share.rank, ()).with_capacity(Capacity::Limited(units))
        })
    });
    server.grant(fleet);
    (keys, cluster)
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn every_kind_of_hold_travels_over_a_server_and_ends_there() {
    let server = Server::start();
    let [(one, a), (two, b)] = ["a", "b"].map(|name| {
        joined(&server, "kinds", name, Terms::new(TTL).floor(2), vec![Share::new("k", 0).units(4)])
    });
    until("two units each", || one.stats().available == 2 && two.stats().available == 2);
    let rests = || two.acquire().is_err();
    let knows = |what: &str, rest: bool| until(what, || rests() == rest);
    one.cool("k", Duration::from_secs(60)).unwrap();
    knows("the other cools it", true);
    assert!(two.stats().holds.cooling == 1, "{:?}", two.stats());
    // By the one who has not set it.
    two.warm("k").unwrap();
    knows("it is warm", false);
    until("it is warm where it was cooled", || one.acquire().is_ok());
    one.eject("k").unwrap();
    knows("the other has ejected it", true);
    a.readmit("k").unwrap();
    knows("it is readmitted", false);
    two.exclude("k").unwrap();
    until("the first one excludes it", || one.acquire().is_err());
    b.include("k").unwrap();
    until("it is included", || one.acquire().is_ok());
    // By itself, at both.
    let cooled = Instant::now();
    one.cool("k", Duration::from_secs(5)).unwrap();
    knows("the other cools it for a while", true);
    until("it is over", || !rests());
    assert!(cooled.elapsed() >= Duration::from_millis(4_800), "{:?}", cooled.elapsed());
    until("it is over where it was cooled", || one.acquire().is_ok());
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn a_cluster_that_requires_a_server_does_not_start_without() {
    const TTL: Duration = Duration::from_secs(2);
    let mut server = Server::start();
    server.down();
    let keys = Arc::new(Scheduler::<Plain>::builder().max_hold(Duration::from_secs(60)).build().unwrap());
    let start = |start: Start| {
        Cluster::builder("a").terms(Terms::new(TTL)).on_start(start).share(Share::new("k", 0)).start(
            server.engine("dead"),
            &keys,
            |share, _| Entry::new(share.name.clone(), share.rank, ()),
        )
    };
    let began = Instant::now();
    let error = start(Start::Require).unwrap_err();
    assert!(matches!(error, StartError::Engine(_)), "{error:?}");
    assert!(error.to_string().contains("the engine does not answer"), "{error}");
    assert!(began.elapsed() < TTL * 2 + Duration::from_secs(1), "{:?}", began.elapsed());
    // Nothing was left behind: the same scheduler starts empty, and works when the server comes.
    let cluster = start(Start::Empty).unwrap();
    assert!(keys.acquire().is_err());
    server.up();
    drop(keys.acquire_timeout(EVER).unwrap());
    assert!(cluster.close(EVER).told);
}

/// A lease on the best resource, of two: until then one on the other is out, so that it is seen that there is work.
fn with_the_best(keys: &Arc<Scheduler<Plain>>) -> leasehold::Lease<'_, Plain> {
    // Where this stalls an offer may be missed, more than once: the next one comes after twice as long.
    let end = Instant::now() + EVER * 3;
    let mut held = keys.acquire_timeout(EVER).unwrap();
    while **held.key() != *"k0" {
        assert!(Instant::now() < end, "the best never came");
        std::thread::sleep(Duration::from_millis(5));
        if let Ok(other) = keys.acquire()
            && **other.key() == *"k0"
        {
            held = other;
        }
    }
    held
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn the_best_unit_comes_to_who_works_though_an_idle_process_has_it() {
    let server = Server::start();
    // Nothing to spare: one unit each.
    let terms = Terms::new(Duration::from_secs(4)).headroom(0);
    let shares = || (0..2).map(|number| Share::new(format!("k{number}"), number)).collect::<Vec<_>>();
    let (one, _a) = joined(&server, "best", "a", terms, shares());
    let works = with_the_best(&one);
    let (two, _b) = joined(&server, "best", "b", terms, shares());
    until("the second one has the other", || two.stats().available == 1);
    assert_eq!(&**two.acquire().unwrap().key(), "k1");
    // From here on only the second one works: the best is offered, and comes to it.
    drop(works);
    let works = with_the_best(&two);
    until("the first one has the other", || one.stats().available == 1);
    assert_eq!(&**one.acquire().unwrap().key(), "k1");
    drop(works);
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn the_best_and_the_worst_are_found_behind_many_that_rest() {
    const UNITS: u64 = 1_300;
    let server = Server::start();
    let sides: [Box<dyn Engine>; 2] = [Box::new(MemoryEngine::new()), Box::new(server.engine("resting"))];
    let ends = sides.map(|mut engine| {
        let mut call = |request: &Request| engine.call(request, PATIENCE).unwrap();
        let join = Request::Join { member: "m".into(), ttl: PATIENCE * 10, weight: 1, previous: None };
        let Reply::Joined(session) = call(&join) else { panic!() };
        let unit = |number: u64| (Unit { name: format!("r{number}").into(), index: 0 }, number);
        for batch in 0..UNITS.div_ceil(256) {
            let units = (batch * 256..UNITS.min((batch + 1) * 256)).map(unit).collect();
            call(&Request::Register { session: session.clone(), units });
        }
        let mut ends_beside = |resting: std::ops::Range<u64>| {
            let excluded = |number: u64| HoldNote {
                name: format!("r{number}").into(),
                ..note(HoldKind::Excluded, Change::Set(None))
            };
            call(&Request::Hold(resting.map(excluded).collect()));
            let renew = Request::Renew { session: session.clone(), line: Line::default() };
            let Reply::Renewed(view) = call(&renew) else { panic!() };
            (view.best_free, view.worst_free)
        };
        // More than a page of the script, a page exactly, and as much as it looks at.
        [0..50, 50..120, UNITS - 110..UNITS, 120..999, 999..1_000].map(&mut ends_beside)
    });
    let [contract, mut server] = ends;
    assert_eq!(
        contract,
        [
            (Some(50), Some(1_299)),
            (Some(120), Some(1_299)),
            (Some(120), Some(1_189)),
            (Some(999), Some(1_189)),
            (Some(1_000), Some(1_189))
        ]
    );
    // Where a thousand rest a server stops looking, as it may.
    assert_eq!(server[4].0.replace(1_000), None);
    assert_eq!(server, contract);
}

/// The rights that the documents name, of a user with this name.
fn rights(user: &str) -> Vec<String> {
    let text = include_str!("../docs/cluster.md");
    let start = text.find("ACL SETUSER ").expect("the documents name the rights");
    let words = text[start..].split("```").next().unwrap().split_whitespace();
    words
        .map(|word| if word == "leasehold" { user.to_owned() } else { word.replace("PASSWORD", "secret") })
        .collect()
}

fn engine_of(server: &Server, user: &str, fleet: &str) -> RedisEngine {
    RedisEngine::new(fleet, [format!("redis://{user}:secret@127.0.0.1:{}/", server.port)]).unwrap()
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn the_rights_that_the_documents_name_are_enough() {
    let server = Server::start();
    let words = rights("member");
    server.tell(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let mut engine = engine_of(&server, "member", "api-keys");
    let mut call = |request: &Request| engine.call(request, PATIENCE).unwrap();
    let join = |previous| Request::Join { member: "m".into(), ttl: LONG, weight: 1, previous };
    let Reply::Joined(before) = call(&join(None)) else { panic!() };
    let Reply::Joined(session) = call(&join(Some(before))) else { panic!() };
    let claim = Claim { unit: Unit { name: "r1".into(), index: 0 }, token: 7 };
    let claims = vec![(claim, 10)];
    let Reply::Claims(claims) = call(&Request::Reinstate { session: session.clone(), claims }) else {
        panic!()
    };
    assert_eq!(claims.len(), 1);
    assert_eq!(call(&Request::Register { session: session.clone(), units: units() }), Reply::Done);
    server.grant("api-keys");
    let reply =
        call(&Request::Claim { session: session.clone(), count: 9, end: End::Best, skip: Vec::new() });
    assert!(matches!(&reply, Reply::Claims(claims) if claims.len() == 9), "{reply:?}");
    assert_eq!(call(&Request::Return { session: session.clone(), claims }), Reply::Done);
    assert!(matches!(call(&Request::Owned { session: session.clone() }), Reply::Claims(_)));
    let notes = HoldKind::ALL.map(|kind| note(kind, Change::Set(Some(LONG))));
    assert!(matches!(call(&Request::Hold(notes.to_vec())), Reply::Holds(notes, _) if notes.len() == 3));
    call(&hold(HoldKind::Cooling, Change::Cleared));
    assert!(matches!(call(&Request::Holds), Reply::Holds(notes, _) if notes.len() == 2));
    let renew = Request::Renew { session: session.clone(), line: Line::default() };
    assert!(matches!(call(&renew), Reply::Renewed(_)));
    assert!(matches!(call(&Request::Overview), Reply::Overview(all) if all.claims.len() == 9));
    assert_eq!(call(&Request::Leave { session }), Reply::Done);
    until("it listens", || engine.hears_news());
    let log = server.tell(&["ACL", "LOG"]);
    assert!(!log.contains("leasehold"), "something was refused: {log}");
    let mut other = server.engine("api-keys");
    other.call(&hold(HoldKind::Excluded, Change::Set(None)), PATIENCE).unwrap();
    let mut heard = Vec::new();
    until("it hears", || {
        heard.extend(engine.news());
        heard.iter().any(|note: &HoldNote| note.kind == HoldKind::Excluded)
    });
}

/// A user who has no channels, as new ones of Redis 7: what he sets is on record, he knows that he hears nothing, and he listens once he may.
#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn who_may_not_use_channels_sets_holds_and_says_that_nothing_is_heard() {
    let server = Server::start();
    server.tell(&["ACL", "SETUSER", "deaf", "on", ">secret", "resetchannels", "~leasehold:*", "+@all"]);
    let mut engine = engine_of(&server, "deaf", "deaf");
    engine.call(&Request::Holds, PATIENCE).unwrap();
    until("it was refused", || server.tell(&["ACL", "LOG"]).contains("leasehold:{deaf}:news"));
    assert!(!engine.hears_news());
    let two = vec![
        note(HoldKind::Excluded, Change::Set(None)),
        HoldNote { name: "r2".into(), ..note(HoldKind::Cooling, Change::Set(Some(LONG))) },
    ];
    let reply = engine.call(&Request::Hold(two), PATIENCE).unwrap();
    assert!(matches!(&reply, Reply::Holds(notes, 2) if notes.len() == 2), "{reply:?}");
    let reply = engine.call(&Request::Holds, PATIENCE).unwrap();
    assert!(matches!(&reply, Reply::Holds(notes, 2) if notes.len() == 2), "{reply:?}");
    assert!(!engine.hears_news());
    server.tell(&["ACL", "SETUSER", "deaf", "&leasehold:*"]);
    until("it listens", || engine.hears_news());
    server.engine("deaf").call(&hold(HoldKind::Ejected, Change::Set(None)), PATIENCE).unwrap();
    until("it hears", || !engine.news().is_empty());
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn a_listener_notices_that_its_server_is_silent_and_listens_again() {
    let server = Server::start();
    let mut engine = server.engine("silent");
    // Its listener waits as long for an answer as the first request.
    while engine.call(&Request::Holds, Duration::from_secs(2)).is_err() {}
    until("it listens", || engine.hears_news());
    server.tell(&["CLIENT", "PAUSE", "20000", "ALL"]);
    until("it is noticed", || !engine.hears_news());
    until("it listens again", || engine.hears_news());
}

#[test]
#[ignore = "needs a server: run by .ci/cluster"]
fn holds_that_nobody_can_read_hide_no_others() {
    let server = Server::start();
    let mut engine = server.engine("odd");
    let mut call = |request: &Request| engine.call(request, PATIENCE).unwrap();
    let join = Request::Join { member: "m".into(), ttl: LONG, weight: 1, previous: None };
    let Reply::Joined(session) = call(&join) else { panic!() };
    call(&Request::Register { session: session.clone(), units: units() });
    for (field, value) in
        [("cooling#r0", "soon 5 o"), ("nonsense", "x"), ("cooling#r1", ""), ("resting#r2", "* 7 o")]
    {
        server.tell(&["HSET", "leasehold:{odd}:holds", field, value]);
    }
    call(&hold(HoldKind::Cooling, Change::Set(Some(LONG))));
    call(&hold(HoldKind::Excluded, Change::Set(None)));
    let reply = call(&Request::Holds);
    assert!(matches!(&reply, Reply::Holds(notes, _) if notes.len() == 2), "{reply:?}");
    let reply = call(&Request::Renew { session, line: Line::default() });
    assert!(matches!(&reply, Reply::Renewed(view) if view.best_free == Some(0)), "{reply:?}");
    let reply = call(&Request::Overview);
    assert!(matches!(&reply, Reply::Overview(all) if all.holds.len() == 2), "{reply:?}");
    call(&hold(HoldKind::Cooling, Change::Cleared));
}

/// Answers what a connection begins with, and everything else a byte at a time, for ever.
fn trickling() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut asked = vec![0; 1 << 16];
                while let Ok(length) = stream.read(&mut asked)
                    && length > 0
                {
                    let asked = String::from_utf8_lossy(&asked[..length]).into_owned();
                    if asked.contains("SETINFO") {
                        let answers = "+OK\r\n".repeat(asked.matches("SETINFO").count());
                        stream.write_all(answers.as_bytes()).unwrap();
                        continue;
                    }
                    let mut piece: &[u8] = b"$100000000\r\n";
                    while stream.write_all(piece).is_ok() {
                        std::thread::sleep(Duration::from_millis(5));
                        piece = b"x";
                    }
                    return;
                }
            });
        }
    });
    port
}

/// Each byte comes within the engine's patience, and the answer never ends: nobody waits for the thread that reads it.
#[test]
fn a_server_that_never_ends_its_answer_holds_up_no_close() {
    for closes in [true, false] {
        let keys = Arc::new(Scheduler::<Plain>::builder().max_hold(Duration::from_secs(60)).build().unwrap());
        let engine = RedisEngine::new("slow", [format!("redis://127.0.0.1:{}/", trickling())]).unwrap();
        let cluster = Cluster::builder("a")
            .terms(Terms::new(TTL))
            .on_start(Start::Empty)
            .share(Share::new("k", 0))
            .start(engine, &keys, |share, _| Entry::new(share.name.clone(), share.rank, ()))
            .unwrap();
        until("it has asked", || cluster.stats().requests > 0);
        std::thread::sleep(Duration::from_millis(200));
        let (done, told) = std::sync::mpsc::channel();
        // It may be stuck for ever: nobody joins it then.
        std::thread::spawn(move || {
            if closes {
                assert!(!cluster.close(Duration::ZERO).told);
            }
            drop(cluster);
            done.send(()).unwrap();
        });
        told.recv_timeout(EVER).expect("it has ended");
    }
}
