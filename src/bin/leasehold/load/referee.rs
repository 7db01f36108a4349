//! Watches the rules while a run goes on, independently of what is watched: it knows only what callers know.
//!
//! | rule | how it is seen |
//! |---|---|
//! | capacity | a count for each resource, raised after a lease was given and lowered before it is returned: too low at any moment, so never too strict |
//! | rest | a lease whose asking began after the cooling was certain, and was given before its end |
//! | removal | a lease whose asking began after the removal had returned |
//! | fencing | of one token slot, a later lease has a greater generation; a second return is refused |
//! | nothing lost | at the end every unit can be had once, see [`settle`](super::settle) |
//!
//! **Every incarnation has a slot of its own.** A resource that was removed comes back under a new number, so what is
//! still out of the old one cannot be taken for the new one's. Numbers are `lineage + n * resources`: the lineage decides
//! capacity and tier.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use leasehold::Token;

use super::{asset::Asset, followed::Followed, recorder::lock, scenario::Scenario};

/// What is known of one incarnation of a resource.
struct Slot {
    in_flight: AtomicU32,
    base: AtomicU32,
    leases: AtomicU64,
    held: AtomicU64,
    /// When its cooling ends at the earliest, and when that was certain. The second is written first.
    cool_until: AtomicU64,
    cool_known: AtomicU64,
    /// When its cooling ends at the latest: the return that began it may have taken its time.
    cooled_by: AtomicU64,
    /// When a rest ends that begins with a return that may not be over yet: for the order alone, as nothing is certain of it.
    rests_until: AtomicU64,
    /// When its removal had returned; 0 while it is there.
    gone: AtomicU64,
    excluded: AtomicBool,
    /// Since when it has been no worse than now: until then one who asked may have got another one rightly. And returns that may not be over.
    better_since: AtomicU64,
    returning: AtomicU32,
    /// It is being updated, and when the last update was over: until then nobody outside knows which rank it was lent at.
    is_updated: AtomicBool,
    updated_at: AtomicU64,
}

impl Slot {
    fn new(base: u32) -> Self {
        Slot {
            in_flight: AtomicU32::new(0),
            base: AtomicU32::new(base),
            leases: AtomicU64::new(0),
            held: AtomicU64::new(0),
            cool_until: AtomicU64::new(0),
            cool_known: AtomicU64::new(0),
            cooled_by: AtomicU64::new(0),
            rests_until: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            excluded: AtomicBool::new(false),
            better_since: AtomicU64::new(0),
            returning: AtomicU32::new(0),
            is_updated: AtomicBool::new(false),
            updated_at: AtomicU64::new(0),
        }
    }
}

/// The incarnation that a lineage has now is none.
const NOBODY: u32 = u32::MAX;

/// How many broken rules are told in words; all are counted.
const TOLD: usize = 20;

pub struct Referee {
    scenario: Scenario,
    slots: Box<[Slot]>,
    /// The incarnation of each lineage.
    current: Box<[AtomicU32]>,
    generations: Mutex<HashMap<u32, u32>>,
    tokens: AtomicU64,
    pub followed: Followed,
    broken: AtomicU64,
    told: Mutex<Vec<String>>,
}

/// A lease, as the referee sees it.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    pub index: u32,
    /// Its rank when it was given.
    rank: u64,
    /// When it was asked for, and when it was there.
    asked: u64,
    since: u64,
}

impl Referee {
    /// For a fleet of `scenario.resources`, of which `spare` may be replaced.
    pub fn new(scenario: &Scenario, bases: &[u32], spare: u32) -> Self {
        let members = scenario.resources;
        let slots = (0..members + spare).map(|index| Slot::new(bases[(index % members) as usize])).collect();
        Referee {
            scenario: scenario.clone(),
            slots,
            current: (0..members).map(AtomicU32::new).collect(),
            generations: Mutex::new(HashMap::new()),
            tokens: AtomicU64::new(0),
            followed: Followed::new(),
            broken: AtomicU64::new(0),
            told: Mutex::new(Vec::new()),
        }
    }

    pub fn asset(&self, index: u32) -> Asset {
        Asset::new(&self.scenario, index, self.slots[index as usize].base.load(Ordering::Relaxed))
    }

    /// A lease on `index` was given to somebody who began to ask at `asked` and has it at `now`.
    pub fn granted(&self, index: u32, asked: u64, now: u64) -> Grant {
        let slot = &self.slots[index as usize];
        // SeqCst, here and for every word of a resource: its counts and what its cooling and removal say are compared as if there were one
        // clock.
        let before = slot.in_flight.fetch_add(1, Ordering::SeqCst);
        if let Some(limit) = self.limit(index)
            && before >= limit
        {
            self.breach(format!("resource {index}: {} leases out, capacity {limit}", before + 1));
        }
        let until = slot.cool_until.load(Ordering::SeqCst);
        let known = slot.cool_known.load(Ordering::SeqCst);
        if now < until && known < asked {
            self.breach(format!("resource {index}: lent {} ns before the end of its cooling", until - now));
        }
        let gone = slot.gone.load(Ordering::SeqCst);
        if gone != 0 && gone < asked {
            self.breach(format!("resource {index}: lent {} ns after its removal", now - gone));
        }
        slot.leases.fetch_add(1, Ordering::Relaxed);
        Grant { index, rank: self.asset(index).rank(before), asked, since: now }
    }

    /// The lease is about to be returned. [`is_back`](Self::is_back) follows.
    pub fn returns(&self, grant: Grant, now: u64) {
        let slot = &self.slots[grant.index as usize];
        slot.held.fetch_add(now.saturating_sub(grant.since), Ordering::Relaxed);
        slot.returning.fetch_add(1, Ordering::Relaxed);
        if slot.in_flight.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.breach(format!("resource {}: returned more often than lent", grant.index));
        }
        // It may be lent again before this one hears that it is back. Nobody else's counts until then.
        self.followed.back(grant.index);
    }

    /// The return of a lease is over by `now`: until here nobody may have been able to have it, and whoever asks from here on can.
    pub fn is_back(&self, index: u32, now: u64) {
        let slot = &self.slots[index as usize];
        slot.better_since.fetch_max(now, Ordering::Relaxed);
        slot.returning.fetch_sub(1, Ordering::Relaxed);
    }

    /// The lease is about to be returned, and the resource rests then, until that moment. Whoever returns it may learn late that it is back
    /// ([`cools`](Self::cools)), but nobody can have it meanwhile.
    pub fn will_rest(&self, index: u32, until: u64) {
        self.slots[index as usize].rests_until.fetch_max(until, Ordering::Relaxed);
    }

    /// A return that began at `began` and is over by `now` lets the resource cool for `rest` nanoseconds.
    pub fn cools(&self, index: u32, began: u64, rest: u64, now: u64) {
        let slot = &self.slots[index as usize];
        // Two returns may come here in the other order: what is known goes only forward.
        slot.cool_known.fetch_max(now, Ordering::SeqCst);
        slot.cool_until.fetch_max(began.saturating_add(rest), Ordering::SeqCst);
        slot.cooled_by.fetch_max(now.saturating_add(rest), Ordering::Relaxed);
    }

    /// A token was made of a lease that is out.
    pub fn token(&self, token: Token) {
        self.tokens.fetch_add(1, Ordering::Relaxed);
        let mut generations = lock(&self.generations);
        let before = generations.insert(token.slot(), token.generation());
        drop(generations);
        if let Some(before) = before.filter(|&before| before >= token.generation()) {
            let (slot, generation) = (token.slot(), token.generation());
            self.breach(format!("token slot {slot}: generation {generation} after {before}"));
        }
    }

    /// Tokens that were seen.
    pub fn tokens(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed)
    }

    /// Somebody has seen a rule broken.
    pub fn breach(&self, text: String) {
        self.broken.fetch_add(1, Ordering::Relaxed);
        let mut told = lock(&self.told);
        if told.len() < TOLD {
            told.push(text);
        }
    }

    /// How many resources that could be had were strictly better than this one when it was given, as far as a look at all
    /// of them one after the other tells, after it. What came back, or became better, since it was asked for does not count: where leases are
    /// short that is most of what can be had at the look, and nobody was passed over. O(resources).
    ///
    /// `None` if it was updated since it was asked for: it may have been lent at another rank than is known.
    pub fn rank_error(&self, grant: Grant) -> Option<u64> {
        let better = self.current.iter().filter(|current| {
            let index = current.load(Ordering::Relaxed);
            index != NOBODY && self.is_better(index, grant)
        });
        let better = better.count() as u64;
        self.knows_rank(grant).then_some(better)
    }

    /// Whether it has been lent at the rank that the grant says.
    fn knows_rank(&self, grant: Grant) -> bool {
        let slot = &self.slots[grant.index as usize];
        !slot.is_updated.load(Ordering::SeqCst) && slot.updated_at.load(Ordering::SeqCst) <= grant.asked
    }

    /// Whether this one could be had all the time while that lease was asked for, and is strictly better.
    fn is_better(&self, index: u32, grant: Grant) -> bool {
        if index == grant.index {
            return false;
        }
        let slot = &self.slots[index as usize];
        let in_flight = slot.in_flight.load(Ordering::Relaxed);
        self.limit(index).is_none_or(|limit| in_flight < limit)
            && !slot.excluded.load(Ordering::Relaxed)
            && !slot.is_updated.load(Ordering::Relaxed)
            && slot.cool_until.load(Ordering::Relaxed) <= grant.asked
            && slot.rests_until.load(Ordering::Relaxed) <= grant.asked
            && slot.returning.load(Ordering::Relaxed) == 0
            && slot.better_since.load(Ordering::Relaxed) <= grant.asked
            && self.asset(index).rank(in_flight) < grant.rank
    }

    /// A lease was given, to somebody who asked for `the_best` or for something else: the delay of the resource that is followed, if that
    /// ends with it. `passed`: what [`Followed::so_far`] said when it was asked for. What was lent since then was lent beside it.
    pub fn delay(&self, grant: Grant, the_best: bool, passed: u64) -> Option<u64> {
        let waits = self.followed.waits()?;
        match (waits == grant.index, the_best) {
            (true, true) => return self.followed.lent(waits, passed),
            (true, false) => self.followed.forget(waits),
            (false, true) if self.knows_rank(grant) && self.is_better(waits, grant) => {
                self.followed.passed_over()
            }
            (false, _) => {}
        }
        None
    }

    pub fn lineages(&self) -> u32 {
        self.scenario.resources
    }

    /// The number under which the lineage is in the fleet; `None` while it is not.
    pub fn current(&self, lineage: u32) -> Option<u32> {
        Some(self.current[lineage as usize].load(Ordering::SeqCst)).filter(|&index| index != NOBODY)
    }

    /// Its removal has returned.
    pub fn removed(&self, index: u32, now: u64) {
        self.followed.forget(index);
        self.current[(index % self.lineages()) as usize].store(NOBODY, Ordering::SeqCst);
        self.slots[index as usize].gone.store(now.max(1), Ordering::SeqCst);
    }

    /// The next incarnation of a lineage, to be inserted; `None` if there are no numbers left.
    pub fn successor(&self, index: u32) -> Option<Asset> {
        let next = index.checked_add(self.lineages()).filter(|&next| (next as usize) < self.slots.len())?;
        Some(self.asset(next))
    }

    pub fn inserted(&self, index: u32, now: u64) {
        self.slots[index as usize].better_since.fetch_max(now, Ordering::Relaxed);
        self.current[(index % self.lineages()) as usize].store(index, Ordering::SeqCst);
    }

    /// It is about to be updated. [`updated`](Self::updated) follows.
    pub fn updates(&self, index: u32) {
        self.slots[index as usize].is_updated.store(true, Ordering::SeqCst);
    }

    /// Its update has returned.
    pub fn updated(&self, index: u32, base: u32, now: u64) {
        self.followed.forget(index);
        let slot = &self.slots[index as usize];
        slot.better_since.fetch_max(now, Ordering::Relaxed);
        slot.base.store(base, Ordering::Relaxed);
        slot.updated_at.store(now, Ordering::SeqCst);
        slot.is_updated.store(false, Ordering::SeqCst);
    }

    /// Whether it is taken out has changed by `now`.
    pub fn excluded(&self, index: u32, excluded: bool, now: u64) {
        let slot = &self.slots[index as usize];
        slot.better_since.fetch_max(now, Ordering::Relaxed);
        slot.excluded.store(excluded, Ordering::Relaxed);
    }

    /// Leases out, over the capacity: 0 to 1. Of one without limit, whether any is out.
    pub fn load(&self, lineage: u32) -> f64 {
        let Some(index) = self.current(lineage) else { return 0.0 };
        let in_flight = self.slots[index as usize].in_flight.load(Ordering::Relaxed);
        let limit = self.limit(index).unwrap_or(1);
        f64::from(in_flight.min(limit)) / f64::from(limit)
    }

    /// Leases given, nanoseconds held, of all incarnations of a lineage.
    pub fn usage(&self, lineage: u32) -> (u64, u64) {
        let incarnations = self.slots.iter().skip(lineage as usize).step_by(self.lineages() as usize);
        incarnations.fold((0, 0), |(leases, held), slot| {
            (leases + slot.leases.load(Ordering::Relaxed), held + slot.held.load(Ordering::Relaxed))
        })
    }

    /// Leases out of all.
    pub fn in_flight(&self) -> u64 {
        self.slots.iter().map(|slot| u64::from(slot.in_flight.load(Ordering::SeqCst))).sum()
    }

    /// Leases given of all.
    pub fn leases(&self) -> u64 {
        self.slots.iter().map(|slot| slot.leases.load(Ordering::Relaxed)).sum()
    }

    /// When the last cooling ends at the latest.
    pub fn cooled_by(&self) -> u64 {
        self.slots.iter().map(|slot| slot.cooled_by.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    pub fn limit(&self, index: u32) -> Option<u32> {
        self.scenario.limit_of(index % self.lineages())
    }

    /// How often a rule was broken, and the first few in words.
    pub fn verdict(&self) -> (u64, Vec<String>) {
        (self.broken.load(Ordering::Relaxed), lock(&self.told).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn referee(capacity: u32) -> Referee {
        let scenario = Scenario { resources: 2, capacity: vec![capacity], ..Scenario::default() };
        Referee::new(&scenario, &[1, 0], 4)
    }

    fn texts(referee: &Referee) -> String {
        referee.verdict().1.join("\n")
    }

    #[test]
    fn sees_too_many_leases() {
        let referee = referee(2);
        let grants = [referee.granted(0, 1, 2), referee.granted(0, 1, 2)];
        assert_eq!(referee.verdict().0, 0);
        referee.granted(0, 1, 2);
        assert!(texts(&referee).contains("resource 0: 3 leases out, capacity 2"));
        grants.into_iter().for_each(|grant| referee.returns(grant, 5));
        assert_eq!((referee.in_flight(), referee.leases(), referee.usage(0)), (1, 3, (3, 6)));
        referee.returns(grants[0], 5);
        referee.returns(grants[0], 5);
        assert!(texts(&referee).contains("more often than lent"));
    }

    #[test]
    fn sees_who_does_not_rest() {
        let referee = referee(1);
        referee.cools(0, 100, 50, 110);
        // Asked before it was certain, or given after its end: no offence.
        for (asked, now) in [(105, 120), (120, 150)] {
            let grant = referee.granted(0, asked, now);
            referee.returns(grant, now);
        }
        assert_eq!(referee.verdict().0, 0);
        referee.granted(0, 111, 149);
        assert!(texts(&referee).contains("1 ns before the end of its cooling"));
    }

    /// Two returns at once: the later one may write first, and what is certain must not become so earlier.
    #[test]
    fn what_is_certain_goes_only_forward() {
        let referee = referee(1);
        referee.cools(0, 100, 50, 110);
        referee.cools(0, 90, 10, 105);
        referee.granted(0, 108, 120);
        assert_eq!(referee.verdict().0, 0, "{}", texts(&referee));
    }

    #[test]
    fn sees_leases_of_the_removed_and_old_generations() {
        let referee = referee(1);
        referee.removed(1, 100);
        assert_eq!(referee.current(1), None);
        let next = referee.successor(1).unwrap().index;
        referee.inserted(next, 105);
        assert_eq!(referee.current(1), Some(3));
        referee.granted(3, 110, 120);
        referee.granted(1, 90, 120);
        assert_eq!(referee.verdict().0, 0);
        referee.granted(1, 110, 120);
        assert!(texts(&referee).contains("20 ns after its removal"));
        assert!(referee.successor(5).is_none(), "no numbers are left");

        let token = |text: &str| text.parse::<Token>().unwrap();
        referee.token(token("00000007-00000002-0123456789abcdef"));
        referee.token(token("00000007-00000003-0123456789abcdef"));
        assert!(!texts(&referee).contains("token"));
        referee.token(token("00000007-00000003-0123456789abcdef"));
        assert!(texts(&referee).contains("token slot 7: generation 3 after 3"));
    }

    fn error(referee: &Referee, grant: Grant) -> u64 {
        referee.rank_error(grant).expect("its rank is known")
    }

    #[test]
    fn rank_errors_count_the_better_that_could_be_had() {
        let referee = referee(1);
        let worse = referee.granted(0, 1, 2);
        let asked = |asked| Grant { asked, ..worse };
        assert_eq!(error(&referee, worse), 1);
        referee.excluded(1, true, 2);
        assert_eq!(error(&referee, asked(3)), 0);
        referee.excluded(1, false, 4);
        assert_eq!((error(&referee, asked(3)), error(&referee, asked(4))), (0, 1));
        let better = referee.granted(1, 4, 5);
        assert_eq!(error(&referee, asked(5)), 0);
        // It comes back to rest, which whoever returns it tells when it is back.
        referee.will_rest(1, 10);
        referee.returns(better, 6);
        referee.is_back(1, 7);
        assert_eq!((error(&referee, asked(9)), error(&referee, asked(10))), (0, 1));
        referee.granted(1, 8, 9);
        assert_eq!(referee.verdict().0, 0, "it is no offence yet: {}", texts(&referee));
    }

    /// Leases are short: what comes back while another one is asked for could not be had, and was not passed over; nor what was made better.
    #[test]
    fn what_came_back_meanwhile_was_not_passed_over() {
        let referee = referee(1);
        let better = referee.granted(1, 1, 2);
        let worse = referee.granted(0, 10, 13);
        referee.followed.begin(1);
        referee.returns(better, 11);
        let later = Grant { asked: 20, ..worse };
        // Nobody knows whether its return is over.
        assert_eq!((error(&referee, worse), error(&referee, later)), (0, 0));
        referee.is_back(1, 12);
        assert_eq!((error(&referee, worse), error(&referee, later)), (0, 1));
        // Delays likewise: of three that were lent meanwhile one was asked for when it was back, and before whoever takes it asked.
        for grant in [worse, later] {
            assert_eq!(referee.delay(grant, true, 0), None);
        }
        let passed = referee.followed.so_far();
        assert_eq!(referee.delay(later, true, 0), None);
        let taken = referee.granted(1, 30, 40);
        assert_eq!((passed, referee.delay(taken, true, passed)), (1, Some(1)));
        referee.updated(1, 0, 50);
        let grant = |asked| Grant { index: 0, rank: u64::MAX, asked, since: asked };
        referee.returns(taken, 51);
        referee.is_back(1, 52);
        referee.updated(1, 0, 60);
        assert_eq!((error(&referee, grant(59)), error(&referee, grant(60))), (0, 1));
    }

    /// What was lent in the midst of an update, or before one, was lent at a rank that nobody knows.
    #[test]
    fn nothing_is_said_of_what_is_updated() {
        let referee = referee(1);
        referee.updates(0);
        let lent = referee.granted(0, 10, 13);
        assert_eq!(referee.rank_error(lent), None);
        referee.updated(0, 1, 14);
        assert_eq!(
            (referee.rank_error(lent), referee.rank_error(Grant { asked: 14, ..lent })),
            (None, Some(1))
        );
        // Nor does one that is being updated count as better.
        referee.updates(1);
        assert_eq!(referee.rank_error(Grant { asked: 14, ..lent }), Some(0));
    }
}
