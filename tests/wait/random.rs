//! Waiting under random operations of one thread: after each of them nobody waits for what is free, and who was served was the
//! first in order.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use leasehold::{
    Capacity, Entry, Fairness, ManualClock, Outcome, Overdue, OwnedLease, Scheduler, Standing, WaitError,
};

type Item = Entry<u32, u32, u32>;
type Fleet = Scheduler<Item>;
type Served = Result<Vec<OwnedLease<Item>>, WaitError>;

const KEYS: u32 = 5;
const AGEING: u64 = 3;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn key(&mut self) -> u32 {
        self.below(u64::from(KEYS)) as u32
    }
}

#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Any,
    Key(u32),
    Value(u32),
    Many(usize),
}

struct Waiting {
    kind: Kind,
    urgency: i64,
    arrival: u64,
    timed: bool,
    bell: Arc<Bell>,
    future: Pin<Box<dyn Future<Output = Served> + Send>>,
}

impl Waiting {
    fn is_woken(&self) -> bool {
        self.bell.0.load(SeqCst)
    }

    fn poll(&mut self) -> Poll<Served> {
        let waker = Waker::from(Arc::clone(&self.bell));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn wants(&self, key: u32, value: u32) -> bool {
        match self.kind {
            Kind::Any | Kind::Many(_) => true,
            Kind::Key(wanted) => wanted == key,
            Kind::Value(wanted) => wanted == value,
        }
    }
}

struct World {
    fleet: Fleet,
    clock: Arc<ManualClock>,
    random: Random,
    leases: Vec<OwnedLease<Item>>,
    waiting: Vec<Waiting>,
    arrivals: u64,
    strict: bool,
}

fn one(lease: Result<OwnedLease<Item>, WaitError>) -> Served {
    lease.map(|lease| vec![lease])
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::new());
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let strict = random.below(4) > 0;
        let mut builder = Fleet::builder()
            .shards(1 + random.below(3) as usize)
            .clock(Arc::clone(&clock))
            .seed(seed)
            .ageing(AGEING as u32)
            .fairness(if strict { Fairness::Strict } else { Fairness::Throughput });
        if random.below(2) == 0 {
            builder = builder.max_hold(Duration::from_secs(20)).overdue(Overdue::Revoke);
        }
        let fleet = builder.build().unwrap();
        World { fleet, clock, random, leases: vec![], waiting: vec![], arrivals: 0, strict }
    }

    fn item(&mut self) -> Item {
        let item = Entry::new(self.random.key(), self.random.below(4) as u32, self.random.below(3) as u32);
        match self.random.below(3) {
            0 => item.with_capacity(Capacity::Limited(2)),
            _ => item,
        }
    }

    fn wait(&mut self) {
        let class = self.random.below(3) as u8;
        let kind = match self.random.below(6) {
            0 => Kind::Key(self.random.key()),
            1 | 2 => Kind::Value(self.random.below(3) as u32),
            3 => Kind::Many(2 + self.random.below(2) as usize),
            _ => Kind::Any,
        };
        let mut request = self.fleet.request().class(class);
        let timed = self.random.below(2) == 0;
        if timed {
            request = request.timeout(Duration::from_secs(self.random.below(30)));
        }
        let future: Pin<Box<dyn Future<Output = Served> + Send>> = match kind {
            Kind::Any => {
                let future = request.owned();
                Box::pin(async { one(future.await) })
            }
            Kind::Key(key) => {
                let future = request.key(&key).owned();
                Box::pin(async { one(future.await) })
            }
            Kind::Value(value) => {
                let future = request.matching(move |item| item.value == value).owned();
                Box::pin(async { one(future.await) })
            }
            Kind::Many(count) => Box::pin(request.many(count).owned()),
        };
        let before = self.fleet.stats().waits.waited;
        let mut waiting = Waiting { kind, urgency: 0, arrival: 0, timed, bell: Arc::default(), future };
        let polled = waiting.poll();
        if self.fleet.stats().waits.waited > before {
            self.arrivals += 1;
        }
        waiting.arrival = self.arrivals;
        waiting.urgency = self.arrivals as i64 - i64::from(class) * AGEING as i64;
        match polled {
            Poll::Ready(served) => self.leases.extend(served.into_iter().flatten()),
            Poll::Pending => self.waiting.push(waiting),
        }
    }

    fn any_lease(&mut self) -> Option<OwnedLease<Item>> {
        let count = self.leases.len() as u64;
        (count > 0).then(|| self.leases.swap_remove(self.random.below(count) as usize))
    }

    fn step(&mut self) {
        let key = self.random.key();
        let seconds = Duration::from_secs(self.random.below(10));
        match self.random.below(30) {
            0..=2 => {
                let item = self.item();
                let _ = self.fleet.insert(item);
            }
            3 => {
                let items = vec![self.item(), self.item()];
                let _ = self.fleet.insert_batch(items);
            }
            4 => {
                let item = self.item();
                let _ = self.fleet.update(item);
            }
            5 => drop(self.fleet.remove(&key)),
            6 => drop(self.fleet.exclude(&key)),
            7 => drop(self.fleet.include(&key)),
            8 => drop(self.fleet.cool(&key, seconds)),
            9 => drop(self.fleet.warm(&key)),
            10 => drop(self.fleet.drain(&key)),
            11 => drop(self.fleet.undrain(&key)),
            12 if self.random.below(4) == 0 => drop(self.fleet.drain_all_async()),
            12 | 13 => drop(self.fleet.undrain_all()),
            14 => self.leases.extend(self.fleet.acquire_owned()),
            15..=18 => drop(self.any_lease()),
            19 => {
                if let Some(lease) = self.any_lease() {
                    lease.release_after(seconds);
                }
            }
            20 => {
                if let Some(lease) = self.any_lease() {
                    lease.finish(Outcome::RateLimited { retry_after: seconds });
                }
            }
            21 => {
                if let Some(mut lease) = self.any_lease() {
                    let _ = self.fleet.revoke(lease.token());
                    self.leases.push(lease);
                }
            }
            22 => self.clock.advance(seconds),
            23 if !self.waiting.is_empty() => {
                let index = self.random.below(self.waiting.len() as u64) as usize;
                drop(self.waiting.swap_remove(index));
            }
            24..=25 if !self.waiting.is_empty() => {
                let index = self.random.below(self.waiting.len() as u64) as usize;
                if let Poll::Ready(served) = self.waiting[index].poll() {
                    self.waiting.swap_remove(index);
                    self.leases.extend(served.into_iter().flatten());
                }
            }
            _ => self.wait(),
        }
    }

    /// Nobody waits for what is free.
    fn check(&mut self, woken_before: &[(u64, bool)]) {
        let _ = self.fleet.tick();
        if !self.strict {
            // Those who were woken try for themselves, in any order. Not after each step: so that several are under way at once.
            if self.random.below(4) > 0 {
                return;
            }
            loop {
                let woken: Vec<_> =
                    (0..self.waiting.len()).filter(|&index| self.waiting[index].is_woken()).collect();
                if woken.is_empty() {
                    break;
                }
                let index = woken[self.random.below(woken.len() as u64) as usize];
                self.waiting[index].bell.0.store(false, SeqCst);
                if let Poll::Ready(served) = self.waiting[index].poll() {
                    self.waiting.swap_remove(index);
                    self.leases.extend(served.into_iter().flatten());
                }
            }
        }
        for state in self.fleet.snapshot() {
            if state.standing == Standing::Eligible {
                let value = self.fleet.get(&state.key).unwrap().value;
                for waiting in &self.waiting {
                    assert!(
                        waiting.is_woken() || !waiting.wants(state.key, value),
                        "{:?} waits for {state:?}",
                        waiting.kind
                    );
                }
            }
        }
        if self.strict {
            let order = |waiting: &Waiting| (waiting.urgency, waiting.arrival);
            let is_new =
                |waiting: &&Waiting| waiting.is_woken() && woken_before.contains(&(waiting.arrival, false));
            // Those whose time is over are woken out of order.
            let plain = || self.waiting.iter().filter(|waiting| waiting.kind == Kind::Any && !waiting.timed);
            if let Some(first) = plain().filter(|waiting| !waiting.is_woken()).map(order).min() {
                for served in plain().filter(is_new) {
                    assert!(order(served) < first, "overtaken");
                }
            }
        }
    }

    fn run(mut self) {
        for _ in 0..250 {
            let before: Vec<_> =
                self.waiting.iter().map(|waiting| (waiting.arrival, waiting.is_woken())).collect();
            self.step();
            self.check(&before);
        }
        self.waiting.clear();
        self.leases.clear();
        let stats = self.fleet.stats();
        assert_eq!(stats.in_flight, 0);
        let waits = stats.waits;
        assert_eq!(
            waits.waited,
            waits.handed_off + waits.timed_out + waits.cancelled + waits.failed + waits.closed
        );
        assert_eq!(waits.histogram.iter().sum::<u64>(), waits.handed_off);
        #[cfg(feature = "internals")]
        self.fleet.check_invariants();
    }
}

#[test]
fn nobody_waits_for_what_is_free() {
    let from = std::env::var("WAIT_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in from.map_or(0..2_000, |seed: u64| seed..seed + 1) {
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| World::new(seed).run()));
        assert!(ran.is_ok(), "seed {seed}");
    }
}
