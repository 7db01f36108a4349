//! The world: true time, processes, an engine, a network, and faults; everything follows from a seed.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use super::{
    checks::Limbo,
    process::{Life, Process, Skewed},
    travel::LastWord,
};
use crate::{
    cluster::{
        engine::{HoldKind, HoldNote, Reply, Request},
        ledger::Ledger,
        terms::Terms,
        unit::{Roll, Share, Unit},
    },
    sync::SplitMix64,
};

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub processes: usize,
    pub resources: usize,
    pub units: u32,
    pub leases_per_unit: u32,
    /// If all resources are budgets: in what time there is that much of each.
    pub period: Duration,
    pub terms: Terms,
    /// How long faults happen.
    pub faulty: Duration,
    /// How long there is quiet afterwards.
    pub quiet: Duration,
    /// Faults of processes and of their lines in a second, on average.
    pub faults: f64,
    /// Outages of the engine, restarts and losses of data in a second, on average. Nothing is granted for a time to live after most of them: where
    /// they are as frequent as that, nothing else is checked.
    pub outages: f64,
    /// In thousandths: requests and replies that are lost.
    pub losses: u32,
    /// How long a message takes at least.
    pub distance: Duration,
    /// How late messages come at most, now and then.
    pub lateness: Duration,
    /// How far clocks go wrong.
    pub drift: f64,
    /// Whether the engine leaves the quarantine out: to see that this is noticed.
    pub hasty: bool,
    /// Whether losses of data leave the run as it is: to see that this is noticed.
    pub silent: bool,
    /// Whether the engine's clock is set back now and then.
    pub set_back: bool,
    /// Leases that the processes want, together, in per cent of what there is.
    pub load: u64,
    /// Whether leases without a fence go on after the loss of their units.
    pub unrecorded: bool,
    /// How often holds are set and cleared, in a second, on average.
    pub holds: f64,
    /// Whether `Outcome::trace` is kept.
    pub traced: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            seed: 1,
            processes: 4,
            resources: 8,
            units: 2,
            leases_per_unit: 1,
            period: Duration::ZERO,
            terms: Terms::new(Duration::from_secs(2)),
            faulty: Duration::from_secs(20),
            quiet: Duration::from_secs(16),
            faults: 0.3,
            outages: 0.2,
            losses: 20,
            distance: Duration::ZERO,
            lateness: Duration::from_secs(4),
            drift: 0.02,
            hasty: false,
            silent: false,
            set_back: false,
            load: 110,
            unrecorded: false,
            holds: 0.0,
            traced: false,
        }
    }
}

#[derive(Debug)]
pub(super) enum Event {
    Run(usize),
    Work(usize),
    Arrive {
        from: usize,
        incarnation: u64,
        id: u64,
        request: Request,
    },
    Answer {
        to: usize,
        incarnation: u64,
        id: u64,
        reply: Option<Reply>,
    },
    Fault,
    Outage,
    Mend(usize),
    EngineUp,
    Look,
    /// Somebody sets or clears a hold.
    Act,
    /// What was published reaches somebody.
    News {
        to: usize,
        incarnation: u64,
        note: HoldNote,
    },
}

/// What a run has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub leases: u64,
    pub checks: u64,
    pub revoked: u64,
    pub faults: u64,
    pub outages: u64,
    pub epochs: u64,
    pub grants: u64,
    /// Of the leases and grants, those while things go wrong.
    pub faulty_leases: u64,
    pub faulty_grants: u64,
    pub requests: u64,
    pub longest_limbo: Duration,
    /// Units that were claimed in the last two seconds of the quiet, by which everybody has what he should have.
    pub churn: u64,
    /// Holds that were set or cleared.
    pub acts: u64,
    /// Holds that stood at the end, at somebody who has the resource.
    pub standing: u64,
    /// Uses of budgets that were the last which their period allows, over the whole fleet.
    pub used_up: u64,
    /// A hash of all that has happened, and when; 0 unless it is asked for.
    pub trace: u64,
}

pub struct World {
    pub(super) plan: Plan,
    pub(super) random: SplitMix64,
    pub(super) time: u64,
    pub(super) number: u64,
    pub(super) events: BinaryHeap<Reverse<(u64, u64)>>,
    pub(super) pending: HashMap<u64, Event>,
    pub processes: Vec<Process>,
    pub ledger: Ledger,
    /// Earlier states, for failovers that lose what came after.
    pub(super) past: VecDeque<Ledger>,
    pub(super) epoch: u64,
    pub(super) engine: Skewed,
    pub(super) engine_up: bool,
    pub(super) frozen: bool,
    pub(super) sessions: HashMap<u64, usize>,
    /// Who has a unit in his scheduler.
    pub(super) holders: HashMap<Unit, BTreeSet<usize>>,
    /// The last token of each unit, and of all.
    pub(super) tokens: HashMap<Unit, u64>,
    pub(super) last_token: u64,
    /// Units without use: since when, and why.
    pub(super) limbo: HashMap<Unit, (u64, Limbo)>,
    /// The latest end that somebody has given to a hold; `u64::MAX` for none.
    pub(super) latest: HashMap<(usize, HoldKind), u64>,
    /// The last words on each hold.
    pub(super) last_words: HashMap<(usize, HoldKind), LastWord>,
    /// Of each budget: when it was used, in the last period.
    pub(super) uses: HashMap<usize, VecDeque<u64>>,
    pub(super) roll: Arc<Roll>,
    pub outcome: Outcome,
}

/// What a right clock of an engine shows at first.
pub(super) const ORIGIN: u64 = 1_000_000_000_000;
pub(super) const MILLI: u64 = 1_000_000;

impl World {
    pub fn new(plan: Plan) -> Self {
        let share = |number: usize| {
            Share::new(format!("r{number:05}"), number as u64)
                .units(plan.units)
                .leases_per_unit(plan.leases_per_unit)
                .period(plan.period)
        };
        let roll = Arc::new(Roll::new((0..plan.resources).map(share).collect()).expect("names differ"));
        let mut world = World {
            plan,
            random: SplitMix64::new(SplitMix64::mix(plan.seed)),
            time: 0,
            number: 0,
            events: BinaryHeap::new(),
            pending: HashMap::new(),
            processes: Vec::new(),
            ledger: Ledger::default(),
            past: VecDeque::new(),
            epoch: 1,
            engine: Skewed { rate: 1.0, offset: ORIGIN },
            engine_up: true,
            frozen: false,
            sessions: HashMap::new(),
            holders: HashMap::new(),
            tokens: HashMap::new(),
            last_token: 0,
            limbo: HashMap::new(),
            latest: HashMap::new(),
            last_words: HashMap::new(),
            uses: HashMap::new(),
            roll,
            outcome: Outcome::default(),
        };
        world.engine.rate = world.some_rate();
        for place in 0..plan.processes {
            let process = world.some_process(place);
            world.processes.push(process);
            let late = world.below(500) * MILLI;
            world.at(late, Event::Run(place));
            world.at(late, Event::Work(place));
        }
        world.at(100 * MILLI, Event::Look);
        world.next_fault();
        world.next_outage();
        world.next_act();
        world
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        u64::from(self.random.below(bound as u32))
    }

    pub(super) fn some_rate(&mut self) -> f64 {
        1.0 + self.plan.drift * (self.below(2_001) as f64 / 1_000.0 - 1.0)
    }

    pub(super) fn some_process(&mut self, place: usize) -> Process {
        let clock = Skewed { rate: self.some_rate(), offset: self.below(1_000_000_000) };
        self.number += 1;
        let nonce = self.number;
        let mut process = Process::new(format!("p{place:03}"), nonce, self.plan.terms, &self.roll, clock);
        process.desk.wanted = self.some_demand();
        process.desk.unrecorded = self.plan.unrecorded;
        process
    }

    fn some_demand(&mut self) -> u64 {
        let all = self.plan.resources as u64 * u64::from(self.plan.units * self.plan.leases_per_unit);
        let fair = all * self.plan.load / 100 / self.plan.processes as u64;
        // Some idle, some with a multiple.
        match self.below(4) {
            0 => 0,
            1 => fair.div_ceil(2),
            2 => fair,
            _ => fair * 2,
        }
    }

    pub(super) fn at(&mut self, after: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((self.time + after, self.number)));
        self.pending.insert(self.number, event);
    }

    /// Some moment, so that there are so many of them in a second; none if there are none.
    fn some_moment(&mut self, rate: f64) -> Option<u64> {
        let mean = (rate > 0.0).then(|| (1_000.0 / rate) as u64)?;
        Some((1 + self.below(2 * mean)) * MILLI)
    }

    fn next_fault(&mut self) {
        if let Some(after) = self.some_moment(self.plan.faults) {
            self.at(after, Event::Fault);
        }
    }

    fn next_outage(&mut self) {
        if let Some(after) = self.some_moment(self.plan.outages) {
            self.at(after, Event::Outage);
        }
    }

    pub(super) fn is_faulty(&self) -> bool {
        self.time < self.plan.faulty.as_nanos() as u64
    }

    /// Everything, checked at each step.
    pub fn run(&mut self) -> Outcome {
        self.run_until(self.plan.faulty);
        self.freeze_demand();
        // For as long as uses of budgets last more: until then a unit may have to stay where it is.
        let last = Duration::from_secs(2) + self.plan.period;
        self.run_until(self.plan.faulty + self.plan.quiet - last);
        self.settles(last);
        self.settled();
        self.holds_settled();
        self.outcome
    }

    pub fn run_until(&mut self, end: Duration) {
        let end = end.as_nanos() as u64;
        while let Some(&Reverse((time, number))) = self.events.peek() {
            if time > end {
                break;
            }
            self.events.pop();
            self.time = time;
            let event = self.pending.remove(&number).expect("each is there once");
            if self.plan.traced {
                self.note(&event);
            }
            self.happen(event);
        }
        self.time = end;
    }

    /// The standard library's hasher begins with the same keys each time, unlike those of its maps.
    fn note(&mut self, event: &Event) {
        let mut hasher = DefaultHasher::new();
        (self.outcome.trace, self.time, format!("{event:?}")).hash(&mut hasher);
        self.outcome.trace = hasher.finish();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Run(place) => {
                if self.processes[place].life == Life::Running {
                    self.drive(place);
                }
                // As late as threads are.
                let pause = (15 + self.below(20)) * MILLI;
                self.at(pause, Event::Run(place));
            }
            Event::Work(place) => {
                if self.processes[place].life == Life::Running {
                    self.work(place);
                }
                let pause = (5 + self.below(40)) * MILLI;
                self.at(pause, Event::Work(place));
            }
            Event::Arrive { from, incarnation, id, request } => self.arrive(from, incarnation, id, &request),
            Event::Answer { to, incarnation, id, reply } => self.answer(to, incarnation, id, reply),
            Event::Fault => {
                if self.is_faulty() {
                    self.fault();
                    self.next_fault();
                }
            }
            Event::Outage => {
                if self.is_faulty() {
                    self.outage();
                    self.next_outage();
                }
            }
            Event::Mend(place) => self.mend(place),
            Event::EngineUp => self.engine_up = true,
            Event::Look => {
                self.look();
                self.at(100 * MILLI, Event::Look);
            }
            Event::Act => {
                self.act();
                self.next_act();
            }
            Event::News { to, incarnation, note } => self.news(to, incarnation, note),
        }
    }

    /// One turn of a process's cluster thread.
    fn drive(&mut self, place: usize) {
        let process = &mut self.processes[place];
        process.late = false;
        let now = process.clock.read(self.time);
        process.desk.now = now;
        process.member.tick(now, &mut process.desk);
        process.desk.tidy();
        let request = process.member.poll(now, &mut process.desk);
        self.note_moves(place);
        if let Some(request) = request {
            self.send(place, request);
        }
    }

    fn send(&mut self, place: usize, request: Request) {
        self.number += 1;
        let id = self.number;
        self.processes[place].waits = Some(id);
        self.outcome.requests += 1;
        let incarnation = self.processes[place].incarnation;
        let patience = self.plan.terms.patience().as_nanos() as u64;
        self.at(patience, Event::Answer { to: place, incarnation, id, reply: None });
        let lost = self.is_faulty() && self.below(1_000) < u64::from(self.plan.losses);
        if !lost && !self.processes[place].cut_off {
            let delay = self.delay() + self.late_word(&request);
            self.at(delay, Event::Arrive { from: place, incarnation, id, request });
        }
    }

    /// Usually a millisecond, and the distance; now and then longer than anybody waits.
    pub(super) fn delay(&mut self) -> u64 {
        if self.is_faulty() && self.below(1_000) < u64::from(self.plan.losses) {
            (1 + self.below(self.plan.lateness.as_millis() as u64 + 1)) * MILLI
        } else {
            self.plan.distance.as_nanos() as u64 + MILLI / 4 + self.below(2_000_000)
        }
    }

    fn arrive(&mut self, from: usize, incarnation: u64, id: u64, request: &Request) {
        if !self.engine_up {
            return;
        }
        let now = self.engine.read(self.time).as_nanos();
        if self.plan.hasty {
            self.ledger.end_quarantine();
        }
        let (reply, notes) = self.ledger.step(now, &self.epoch.to_string(), request);
        for note in notes {
            self.publish(&note);
        }
        match (&reply, request) {
            (Reply::Joined(session), _) => {
                self.sessions.insert(session.number, from);
            }
            (Reply::Claims(claims), Request::Claim { .. }) => {
                for claim in claims {
                    self.outcome.grants += 1;
                    self.outcome.faulty_grants += u64::from(self.is_faulty());
                    let before = std::mem::replace(&mut self.last_token, claim.token);
                    assert!(claim.token > before, "{}: token {} after {before}", self.tag(), claim.token);
                    self.tokens.insert(claim.unit.clone(), claim.token);
                    for &holder in self.holders.get(&claim.unit).into_iter().flatten() {
                        let owns = self.processes[holder].clock.read(self.time)
                            < self.processes[holder].desk.good_until;
                        assert!(
                            !owns || self.processes[holder].life == Life::Dead,
                            "{}: {} was granted to {from} while {holder} owns it",
                            self.tag(),
                            claim.unit
                        );
                    }
                }
            }
            (Reply::Claims(claims), Request::Reinstate { .. }) => {
                for claim in claims {
                    let last = self.tokens.get(&claim.unit).copied().unwrap_or(0);
                    let late = claim.token < last;
                    assert!(
                        !late,
                        "{}: {} is reinstated under {}, after {last}",
                        self.tag(),
                        claim.unit,
                        claim.token
                    );
                }
            }
            _ => {}
        }
        let lost = self.is_faulty() && self.below(1_000) < u64::from(self.plan.losses);
        if !lost && !self.processes[from].cut_off {
            let delay = self.delay();
            self.at(delay, Event::Answer { to: from, incarnation, id, reply: Some(reply) });
        }
    }

    fn answer(&mut self, to: usize, incarnation: u64, id: u64, reply: Option<Reply>) {
        let process = &mut self.processes[to];
        if process.incarnation != incarnation || process.waits != Some(id) {
            return;
        }
        match process.life {
            Life::Dead => {}
            Life::Stopped => self.at(5 * MILLI, Event::Answer { to, incarnation, id, reply }),
            Life::Running => {
                process.waits = None;
                process.late = false;
                let now = process.clock.read(self.time);
                process.desk.now = now;
                process.member.answered(now, reply, &mut process.desk);
                self.note_moves(to);
                self.drive(to);
            }
        }
    }

    fn note_moves(&mut self, place: usize) {
        let moved = std::mem::take(&mut self.processes[place].desk.moved);
        if moved.iter().any(|(_, came)| !came) {
            let over = self.processes[place].desk.overdrawn();
            assert_eq!(over, None, "{}: {place} has given back units that are in use", self.tag());
        }
        for (unit, came) in moved {
            let holders = self.holders.entry(unit).or_default();
            if came {
                holders.insert(place);
            } else {
                holders.remove(&place);
            }
        }
    }

    /// Callers come and go.
    fn work(&mut self, place: usize) {
        let time = self.time;
        if !self.frozen && self.below(200) == 0 {
            self.processes[place].desk.wanted = self.some_demand();
        }
        let _ = self.processes[place].desk.end(|used| used.ends <= time);
        self.processes[place].desk.kept.retain(|(_, ends)| *ends > time);
        while self.processes[place].desk.in_use() < self.processes[place].desk.wanted {
            let lasts = (5 + self.below(200)) * MILLI;
            let budgets = !self.plan.period.is_zero();
            // A use of a budget takes no time, and is counted for a period. Without a fence it is not checked whether the claim is good.
            let fenced = self.below(4) > 0 || budgets;
            let process = &mut self.processes[place];
            let now = process.clock.read(time);
            process.desk.now = now;
            let spent = process.clock.when(now.saturating_add(self.plan.period));
            let ends = if budgets { spent } else { time + lasts };
            let Some(used) = process.desk.acquire(now, ends, fenced) else { break };
            if budgets {
                self.check_budget(place, used.place);
            }
            self.outcome.leases += 1;
            self.outcome.faulty_leases += u64::from(self.is_faulty());
            self.check_lead(place, now);
            if fenced {
                self.check_alone(place, &used.claim.unit);
            }
        }
    }

    pub(super) fn tag(&self) -> String {
        format!("seed {} at {:?}", self.plan.seed, Duration::from_nanos(self.time))
    }

    /// Kills a process for good; for tests of how long that takes.
    pub fn kill(&mut self, place: usize) {
        self.processes[place].life = Life::Dead;
    }

    pub fn cut_off(&mut self, place: usize, cut_off: bool) {
        self.processes[place].cut_off = cut_off;
    }

    /// From now on demand changes by [`want`](Self::want) only.
    pub fn freeze_demand(&mut self) {
        self.frozen = true;
    }

    pub fn want(&mut self, place: usize, leases: u64) {
        self.processes[place].desk.wanted = leases;
    }

    pub fn held(&self, place: usize) -> Vec<u64> {
        let rank = |unit: &Unit| self.roll.place(&unit.name).map_or(0, |place| place as u64);
        let mut ranks: Vec<u64> = self.processes[place].desk.units().map(|claim| rank(&claim.unit)).collect();
        ranks.sort_unstable();
        ranks
    }
}
