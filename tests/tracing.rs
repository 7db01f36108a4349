//! Events and spans for `tracing`: all of them, once, with their fields.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
};

use leasehold::{
    AcquireError, Closing, Dropped, Entry, Observer, Outcome, Scheduler,
    tracing::{TracedLease, TracingObserver, acquire_traced, traced, traced_async},
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

type Fleet = Scheduler<Entry<&'static str, u32, ()>>;
type Fields = BTreeMap<String, String>;

#[derive(Clone, Debug)]
struct Seen {
    name: String,
    level: Level,
    fields: Fields,
    closed: bool,
}

/// Keeps everything that has the target `leasehold`.
#[derive(Clone, Default)]
struct Keeper {
    spans: Arc<Mutex<BTreeMap<u64, Seen>>>,
    events: Arc<Mutex<Vec<Seen>>>,
    ids: Arc<AtomicU64>,
}

struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().to_owned(), value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

fn seen(metadata: &Metadata<'_>, read: impl FnOnce(&mut Reader<'_>)) -> Seen {
    let mut fields = Fields::new();
    read(&mut Reader(&mut fields));
    Seen { name: metadata.name().to_owned(), level: *metadata.level(), fields, closed: false }
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "leasehold"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.ids.fetch_add(1, Ordering::Relaxed) + 1;
        let seen = seen(span.metadata(), |reader| span.record(reader));
        self.spans.lock().expect("no panic").insert(id, seen);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut spans = self.spans.lock().expect("no panic");
        values.record(&mut Reader(&mut spans.get_mut(&span.into_u64()).expect("it is there").fields));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let seen = seen(event.metadata(), |reader| event.record(reader));
        self.events.lock().expect("no panic").push(seen);
    }

    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn try_close(&self, id: Id) -> bool {
        self.spans.lock().expect("no panic").get_mut(&id.into_u64()).expect("it is there").closed = true;
        true
    }
}

impl Keeper {
    fn spans(&self, name: &str) -> Vec<Seen> {
        let spans = self.spans.lock().expect("no panic");
        spans.values().filter(|span| span.name == name).cloned().collect()
    }

    /// Those about the scheduler of this name.
    fn events(&self, scheduler: &str) -> Vec<Seen> {
        let events = self.events.lock().expect("no panic");
        let about = |event: &&Seen| event.fields["leasehold.scheduler.name"] == scheduler;
        events.iter().filter(about).cloned().collect()
    }
}

/// The whole process's: an observer has a thread of its own.
fn global() -> &'static Keeper {
    static KEEPER: OnceLock<Keeper> = OnceLock::new();
    KEEPER.get_or_init(|| {
        let keeper = Keeper::default();
        tracing::subscriber::set_global_default(keeper.clone()).expect("the first");
        keeper
    })
}

fn fleet() -> Fleet {
    let fleet = Fleet::builder().shards(1).event_capacity(64).build().expect("in range");
    fleet.insert(Entry::new("a", 0, ())).expect("new");
    fleet
}

#[test]
fn each_event_is_told_once_with_its_fields() {
    let keeper = global();
    let fleet = fleet();
    fleet.observe(TracingObserver::new("keys")).expect("open");
    fleet.exclude(&"a").expect("there");
    fleet.include(&"a").expect("there");
    drop(fleet.acquire().expect("free"));
    fleet.remove(&"a").expect("there");
    fleet.insert(Entry::new("a", 0, ())).expect("new");
    assert!(fleet.close_with(Closing::Flush), "the first to close it");
    let mut events = keeper.events("keys");
    let last = events.pop().expect("the end is told");
    assert_eq!(last.fields["leasehold.event.name"], "closed");
    assert!(!last.fields.contains_key("leasehold.resource.membership"), "it is about no resource");
    let names: Vec<_> = events.iter().map(|event| &*event.fields["leasehold.event.name"]).collect();
    assert_eq!(names, ["inserted", "excluded", "included", "acquired", "released", "removed", "inserted"]);
    let memberships: Vec<_> =
        events.iter().map(|event| &*event.fields["leasehold.resource.membership"]).collect();
    assert_eq!(memberships, ["1", "1", "1", "1", "1", "1", "2"], "a key that comes back is another member");
    for (i, event) in events.iter().enumerate() {
        let field = |name: &str| &*event.fields[name];
        assert_eq!(event.level, Level::DEBUG);
        assert_eq!(field("leasehold.scheduler.name"), "keys");
        assert_eq!(field("leasehold.resource.key"), "\"a\"");
        assert_eq!(field("leasehold.shard.id"), "0");
        let first: u64 = events[0].fields["leasehold.event.sequence"].parse().expect("a number");
        assert_eq!(field("leasehold.event.sequence"), (first + i as u64).to_string());
        assert!(event.fields.contains_key("leasehold.resource.generation"));
    }
}

/// Waits before the first event until it is let go.
struct Late(TracingObserver, Option<mpsc::Receiver<()>>);

impl Observer<&'static str> for Late {
    fn on_event(&mut self, event: &leasehold::Event<&'static str>) {
        if let Some(gate) = self.1.take() {
            gate.recv().expect("it is let go");
        }
        self.0.on_event(event);
    }

    fn on_drop(&mut self, dropped: Dropped) {
        Observer::<&str>::on_drop(&mut self.0, dropped);
    }
}

#[test]
fn drops_are_warnings() {
    let keeper = global();
    let fleet = Fleet::builder().shards(1).event_capacity(8).build().expect("in range");
    let (let_go, gate) = mpsc::channel();
    fleet.observe(Late(TracingObserver::new("full"), Some(gate))).expect("open");
    fleet.insert(Entry::new("a", 0, ())).expect("new");
    for _ in 0..1_000 {
        fleet.exclude(&"a").expect("there");
        fleet.include(&"a").expect("there");
    }
    let_go.send(()).expect("it waits");
    assert!(fleet.close_with(Closing::Flush));
    let events = keeper.events("full");
    let (drops, told): (Vec<_>, Vec<_>) = events.iter().partition(|event| event.level == Level::WARN);
    let dropped = |event: &Seen| event.fields["leasehold.events.dropped"].parse::<usize>().expect("a number");
    assert!(!drops.is_empty());
    assert!(drops.iter().all(|event| event.fields["message"] == "events were dropped"));
    assert!(drops.iter().all(|event| event.fields.contains_key("leasehold.event.sequence")));
    // The insertion, two a round, and the end: each is told or is in a drop.
    assert_eq!(told.len() + drops.iter().map(|event| dropped(event)).sum::<usize>(), 2_002);
}

#[test]
fn a_lease_is_a_span_from_acquisition_to_return() {
    let keeper = Keeper::default();
    tracing::subscriber::with_default(keeper.clone(), || {
        let fleet = fleet();
        let lease = acquire_traced("keys", &fleet).expect("free");
        let [span] = &*keeper.spans("leasehold.lease") else { panic!("one lease, one span") };
        assert!(!span.closed);
        assert_eq!(span.fields["leasehold.resource.key"], "\"a\"");
        assert!(!span.fields.contains_key("leasehold.lease.outcome"), "not known yet");
        let refused = acquire_traced("keys", &fleet).expect_err("it is out");
        assert!(matches!(refused, AcquireError::NoneEligible(_)));
        lease.finish(Outcome::Failed);
        drop(acquire_traced("keys", &fleet).expect("free again"));
        fleet.close();
        assert!(matches!(acquire_traced("keys", &fleet), Err(AcquireError::Closed)));
    });
    let acquisitions = keeper.spans("leasehold.acquire");
    let errors: Vec<_> =
        acquisitions.iter().map(|span| span.fields.get("error.type").map(|x| &**x)).collect();
    assert_eq!(errors, [None, Some("none_eligible"), None, Some("closed")]);
    let leases = keeper.spans("leasehold.lease");
    assert!(acquisitions.iter().chain(&leases).all(|span| span.closed), "each has ended");
    let outcomes: Vec<_> =
        leases.iter().map(|span| span.fields.get("leasehold.lease.outcome").map(|x| &**x)).collect();
    assert_eq!(outcomes, [Some("failed"), None]);
}

/// Borrowed and owned, from a key, an id, a filter, several at once, a wait of a thread and one of a task: each has its span, and every
/// way to end it is told.
#[test]
fn every_lease_can_be_traced() {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Poll, Waker},
        time::Duration,
    };

    let keeper = Keeper::default();
    let call_site = tracing::subscriber::with_default(keeper.clone(), || {
        let clock = Arc::new(leasehold::ManualClock::new());
        let hold = Duration::from_secs(1_000);
        let fleet = Fleet::builder().shards(1).clock(clock.clone()).max_hold(hold).build().expect("in range");
        fleet.insert(Entry::new("a", 0, ())).expect("new");
        let again = || clock.advance(Duration::from_secs(10));
        traced("keys", || fleet.acquire_key(&"a")).expect("free").finish(Outcome::Cancelled);
        traced("keys", || fleet.acquire_by_affinity_owned("id"))
            .expect("free")
            .finish_after(Outcome::Failed, Duration::from_millis(2_500));
        again();
        traced("keys", || fleet.acquire_where(|_| true)).expect("free").release_after(Duration::from_secs(3));
        again();
        traced("keys", || fleet.request().wait())
            .expect("free")
            .finish(Outcome::Ok { latency: Duration::ZERO });
        for lease in fleet.acquire_many(1).expect("free") {
            drop(TracedLease::new("keys", lease));
        }
        // A task that waits: its span lasts as long.
        let out = fleet.acquire().expect("free");
        let mut waiting = pin!(traced_async("keys", fleet.acquire_async()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        assert!(!keeper.spans("leasehold.acquire").last().expect("begun").closed);
        drop(out);
        let Poll::Ready(Ok(mut lease)) = waiting.poll(&mut context) else { panic!("it was handed over") };
        assert!(lease.renew(hold).is_ok(), "what the lease can do, it can do");
        let token = lease.into_inner().into_token();
        assert!(
            keeper.spans("leasehold.lease").last().expect("begun").closed,
            "the lease goes on without it"
        );
        let refused = traced("keys", || fleet.acquire_key(&"a")).expect_err("it is out");
        assert_eq!(refused.to_string(), fleet.acquire_key(&"a").expect_err("it is out").to_string());
        traced("keys", || fleet.acquire_key(&"b")).expect_err("not there");
        fleet.release(token).expect("out");
        let lease = acquire_traced("keys", &fleet).expect("free");
        let call_site = fleet.leases()[0].call_site;
        drop(lease);
        call_site
    });
    assert!(call_site.file().ends_with("tests/tracing.rs"), "{call_site}");
    let told = |span: &Seen, field| span.fields.get(field).cloned().unwrap_or_default();
    let leases = keeper.spans("leasehold.lease");
    let ends: Vec<_> = leases
        .iter()
        .map(|span| (told(span, "leasehold.lease.outcome"), told(span, "leasehold.lease.rest")))
        .collect();
    let expected =
        [("cancelled", ""), ("failed", "2.5"), ("", "3"), ("ok", ""), ("", ""), ("", ""), ("", "")];
    assert_eq!(ends, expected.map(|(outcome, rest)| (outcome.to_owned(), rest.to_owned())));
    assert!(leases.iter().all(|span| span.closed && span.fields["leasehold.resource.key"] == "\"a\""));
    let acquisitions = keeper.spans("leasehold.acquire");
    let errors: Vec<_> = acquisitions.iter().map(|span| told(span, "error.type")).collect();
    assert_eq!(errors, ["", "", "", "", "", "not_eligible", "not_found", ""]);
    assert!(acquisitions.iter().all(|span| span.closed));
}

/// What was refused is not told as done: an outcome that does not count is not on the span, but why it does not.
#[test]
fn a_lease_tells_whether_it_was_the_one_that_returned() {
    use std::time::Duration;

    let keeper = Keeper::default();
    tracing::subscriber::with_default(keeper.clone(), || {
        let fleet = Fleet::builder().shards(1).build().expect("in range");
        fleet.insert(Entry::new("a", 0, ())).expect("new");
        let revoked = || {
            let mut late = traced("keys", || fleet.acquire()).expect("free");
            let token = late.token();
            fleet.revoke(token).expect("out");
            late
        };
        let rest = Duration::from_secs(9);
        assert!(revoked().try_finish(Outcome::Failed).is_err());
        revoked().finish(Outcome::Failed);
        revoked().finish_after(Outcome::Failed, rest);
        revoked().release_after(rest);
        assert!(revoked().try_finish_after(Outcome::Failed, rest).is_err());
        assert!(revoked().try_release_after(rest).is_err());
        let mut stale = traced("keys", || fleet.acquire_owned()).expect("free: nothing has let it rest");
        let token = stale.token();
        fleet.release(token).expect("out");
        stale.finish(Outcome::Failed);
        assert_eq!((fleet.stats().failed, fleet.stats().revoked, fleet.stats().cooled), (0, 6, 0));
        let lease = traced("keys", || fleet.acquire_owned()).expect("free");
        assert_eq!(lease.try_finish(Outcome::Failed), Ok(()));
        let lease = traced("keys", || fleet.acquire_owned()).expect("free");
        assert_eq!(lease.try_finish_after(Outcome::Cancelled, rest), Ok(()));
        fleet.warm(&"a").expect("a member");
        let lease = traced("keys", || fleet.acquire()).expect("free");
        assert_eq!(lease.try_release_after(rest), Ok(()));
        let stats = fleet.stats();
        assert_eq!((stats.failed, stats.cancelled, stats.cooled), (1, 1, 2));
    });
    let leases = keeper.spans("leasehold.lease");
    let told: Vec<_> = leases
        .iter()
        .map(|span| {
            ["outcome", "rest"]
                .map(|field| span.fields.get(&format!("leasehold.lease.{field}")).map(|x| &**x))
                .into_iter()
                .chain([span.fields.get("error.type").map(|x| &**x)])
                .collect::<Vec<_>>()
        })
        .collect();
    let revoked = [None, None, Some("revoked")];
    let mut expected = vec![revoked; 6];
    expected.extend([
        [None, None, Some("stale")],
        [Some("failed"), None, None],
        [Some("cancelled"), Some("9"), None],
        [None, Some("9"), None],
    ]);
    assert_eq!(told, expected);
    assert!(leases.iter().all(|span| span.closed));
}
