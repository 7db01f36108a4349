//! Holds that are set and cleared by applications and rules, travel, and must be the same everywhere in the end.

use std::time::Duration;

use super::{
    is_noticed,
    process::{Life, Process},
    quiet, quiet_as, run, with_mistake,
    world::{Event, MILLI, Outcome, Plan, World},
};
use crate::{
    cluster::{
        engine::{HoldKind, HoldNote, Request},
        planted::Planted,
    },
    sync::{SplitMix64, Timestamp},
};

/// How long before the end the last words on holds are spoken, from and to.
const LAST_WORDS: (u64, u64) = (4_000 * MILLI, 2_500 * MILLI);

/// How late what is said then arrives at most, now and then, after its sender has given it up.
const LATE_WORD: u64 = 1_000 * MILLI;

/// Somebody has the last word on a hold.
#[derive(Clone, Copy, Debug)]
pub struct LastWord {
    place: usize,
    /// Until when it is set, if it is.
    end: Option<u64>,
}

/// What somebody does.
#[derive(Clone, Copy, Debug)]
enum Act {
    Cool,
    Warm,
    Exclude,
    Include,
    /// By the rules: with an end.
    Eject,
    EjectByHand,
    Readmit,
}

impl World {
    pub(super) fn next_act(&mut self) {
        if self.plan.holds > 0.0 {
            let mean = (1_000.0 / self.plan.holds) as u64;
            let after = (1 + self.below(2 * mean)) * MILLI;
            self.at(after, Event::Act);
        }
    }

    fn end(&self) -> u64 {
        (self.plan.faulty + self.plan.quiet).as_nanos() as u64
    }

    /// Somebody who runs sets or clears a hold of a resource that he has.
    pub(super) fn act(&mut self) {
        let left = self.end().saturating_sub(self.time);
        // After the faults there is silence, and then somebody has the last word on each.
        let last = left <= LAST_WORDS.0;
        if left < LAST_WORDS.1 || (!last && !self.is_faulty()) {
            return;
        }
        let place = self.below(self.plan.processes as u64) as usize;
        let what = self.below(8);
        let lasts = (1 + self.below(if last { 10_000 } else { 6_000 })) * MILLI;
        let present: Vec<usize> = self.processes[place].desk.present().collect();
        if present.is_empty() || self.processes[place].life != Life::Running {
            return;
        }
        let resource = present[self.below(present.len() as u64) as usize];
        let act = match what {
            0 | 1 => Act::Cool,
            2 => Act::Warm,
            3 => Act::Exclude,
            4 => Act::Include,
            5 => Act::Eject,
            // Nobody ejects the others by hand: an ejection of theirs always has an end.
            6 if resource.is_multiple_of(3) => Act::EjectByHand,
            6 => Act::Eject,
            _ => Act::Readmit,
        };
        let kind = match act {
            Act::Cool | Act::Warm => HoldKind::Cooling,
            Act::Exclude | Act::Include => HoldKind::Excluded,
            Act::Eject | Act::EjectByHand | Act::Readmit => HoldKind::Ejected,
        };
        let process = &mut self.processes[place];
        let now = process.clock.read(self.time);
        process.desk.now = now;
        let before = process.desk.held(resource, kind);
        // One has the last word on each. An ejection that is there has an end that this scheduler may not show.
        if last
            && (self.last_words.get(&(resource, kind)).is_some_and(|word| word.place != place)
                || matches!(act, Act::EjectByHand) && before.is_some())
        {
            return;
        }
        let until = now.saturating_add(Duration::from_nanos(lasts));
        match act {
            Act::Cool => process.desk.set_hold(resource, kind, Some(until)),
            Act::Exclude | Act::EjectByHand => process.desk.set_hold(resource, kind, None),
            // Rules eject nothing that is ejected.
            Act::Eject if before.is_some() => return,
            Act::Eject => process.desk.set_hold(resource, kind, Some(until)),
            Act::Warm | Act::Include | Act::Readmit => process.desk.clear_hold(resource, kind),
        }
        self.outcome.acts += 1;
        let end = |moment: Option<Timestamp>| moment.map_or(u64::MAX, |moment| process.clock.when(moment));
        let after = process.desk.held(resource, kind).map(|held| end(held.until));
        if let Some(after) = after {
            let latest = self.latest.entry((resource, kind)).or_default();
            *latest = (*latest).max(after);
        }
        if last {
            self.last_words.insert((resource, kind), LastWord { place, end: after });
        }
    }

    /// Of the last words some come late, when their senders have said them again, or have said something else.
    pub(super) fn late_word(&mut self, request: &Request) -> u64 {
        let left = self.end().saturating_sub(self.time);
        let last = (LAST_WORDS.1..=LAST_WORDS.0).contains(&left);
        if last && matches!(request, Request::Hold(_)) && self.plan.losses > 0 && self.below(3) == 0 {
            self.plan.terms.patience().as_nanos() as u64 + self.below(LATE_WORD / MILLI) * MILLI
        } else {
            0
        }
    }

    /// Everybody who listens will hear it, or not.
    pub(super) fn publish(&mut self, note: &HoldNote) {
        for to in 0..self.processes.len() {
            let lost = self.is_faulty() && self.below(1_000) < 50 + u64::from(self.plan.losses);
            if !lost && !self.processes[to].cut_off && self.processes[to].life != Life::Dead {
                let incarnation = self.processes[to].incarnation;
                let delay = self.delay();
                self.at(delay, Event::News { to, incarnation, note: note.clone() });
            }
        }
    }

    pub(super) fn news(&mut self, to: usize, incarnation: u64, note: HoldNote) {
        let process = &mut self.processes[to];
        if process.incarnation != incarnation || process.cut_off {
            return;
        }
        match process.life {
            Life::Dead => {}
            Life::Stopped => self.at(5 * MILLI, Event::News { to, incarnation, note }),
            Life::Running => {
                let now = process.clock.read(self.time);
                process.desk.now = now;
                process.member.hear(now, &[note], &mut process.desk);
            }
        }
    }

    /// After the quiet: everybody knows the same holds, and has them where he has the resource.
    pub(super) fn holds_settled(&mut self) {
        // Clocks, the pace of threads, and requests that came late: a duration counts from when it arrives.
        let slack = 1_000 * MILLI + LATE_WORD.max(self.plan.lateness.as_nanos() as u64);
        let all = (0..self.plan.resources).flat_map(|place| HoldKind::ALL.map(|kind| (place, kind)));
        for (place, kind) in all.collect::<Vec<_>>() {
            let name = std::sync::Arc::clone(&self.roll.get(place).name);
            let recorded = self.ledger.held(&name, kind).map(|until| self.moment(until));
            let recorded = recorded.filter(|end| *end > self.time);
            let latest = self.latest.get(&(place, kind)).copied().unwrap_or(0);
            let later = |end: u64| end > latest.saturating_add(slack);
            let tag = format!("{}: holds: {kind:?} of {name}", self.tag());
            // One that is about to end may be over for some.
            let near = |end: Option<u64>| end.is_some_and(|end| end < self.time + slack);
            let word = self.last_words.get(&(place, kind)).map(|word| word.end);
            if let Some(word) = word.filter(|word| !near(*word)) {
                let same = match (word, recorded) {
                    (None, None) => true,
                    (Some(word), Some(recorded)) => word.abs_diff(recorded) <= slack,
                    _ => false,
                };
                assert!(same, "{tag}: the last word is {word:?}, and {recorded:?} is on record");
            }
            for number in 0..self.processes.len() {
                let process = &self.processes[number];
                let now = process.clock.read(self.time);
                let end =
                    |until: Option<Timestamp>| until.map_or(u64::MAX, |until| process.clock.when(until));
                let known = process.member.known(now, place, kind).map(end);
                let shown = process.desk.held(place, kind).map(|held| end(held.until));
                let has = process.desk.is_present(place);
                if let Some(end) = known {
                    assert!(
                        !later(end),
                        "{tag}: a hold without end: {number} has {end}, the latest was {latest}"
                    );
                }
                if near(recorded) || near(known) || near(shown) {
                    continue;
                }
                let same = match (known, recorded) {
                    (None, None) => true,
                    (Some(known), Some(recorded)) => known.abs_diff(recorded) <= slack,
                    _ => false,
                };
                assert!(same, "{tag}: {number} knows {known:?}, and {recorded:?} is on record");
                if has {
                    assert!(
                        shown.is_some() == known.is_some(),
                        "{tag}: {number} has {shown:?} and knows {known:?}"
                    );
                    self.outcome.standing += u64::from(shown.is_some());
                }
            }
        }
    }

    /// The moment of the world at which the engine's clock shows this; none is never.
    fn moment(&self, until: Option<u64>) -> u64 {
        until.map_or(u64::MAX, |until| self.engine.when(Timestamp::from_nanos(until)))
    }
}

/// Mostly holds, set and cleared in small fleets whose members share resources.
pub(super) fn travelling(seed: u64) -> Plan {
    let mut random = SplitMix64::new(seed ^ 0x701d);
    let mut below = |bound| random.below(bound);
    // Of the engine as often as of all processes together: an epoch is when holds may go astray.
    let trouble = [0.0, 0.2, 0.5, 2.0][below(4) as usize];
    Plan {
        seed,
        processes: 2 + below(3) as usize,
        resources: 1 + below(4) as usize,
        units: 4,
        faults: 0.55 * trouble,
        outages: 0.45 * trouble,
        losses: [0, 20, 100][below(3) as usize],
        lateness: Duration::from_secs([0, 4][below(2) as usize]),
        drift: [0.0, 0.02][below(2) as usize],
        load: [80, 300][below(2) as usize],
        holds: [2.0, 8.0][below(2) as usize],
        unrecorded: below(2) == 0,
        ..Plan::default()
    }
}

#[test]
fn holds_travel_and_end_everywhere() {
    let mut sum = Outcome::default();
    for seed in 0..300 {
        let one = run(travelling(seed));
        sum.acts += one.acts;
        sum.standing += one.standing;
    }
    println!("{sum:?}");
    assert!(sum.acts > 5_000 && sum.standing > 500, "{sum:?}");
}

fn seen(mistake: Planted) {
    // What comes late needs a network that is; but where one is, a difference of that much is none.
    let lateness = Duration::from_secs(4);
    let late =
        |seed| Plan { faults: 1.1, outages: 0.9, losses: 100, lateness, holds: 8.0, ..travelling(seed) };
    // What happens to resources of lost units needs units that are held in between.
    let (lateness, unrecorded) = (Duration::from_secs(1), true);
    let calm = |seed| Plan {
        faults: 0.2,
        outages: 0.1,
        losses: 100,
        lateness,
        unrecorded,
        holds: 4.0,
        ..travelling(seed)
    };
    let noticed = with_mistake(mistake, || {
        // Other runs than the first ones of each kind, if those have shown nothing.
        [0, 1_000].into_iter().any(|first| {
            is_noticed("holds: ", |seed| travelling(first + seed))
                || is_noticed("holds: ", |seed| late(first + seed))
                || is_noticed("holds: ", |seed| calm(first + seed))
        })
    });
    assert!(noticed, "{mistake:?}");
}

#[test]
fn ejections_that_are_looked_at_before_they_end_are_noticed() {
    seen(Planted::LooksFirst);
}

#[test]
fn ejections_made_by_hand_that_do_not_end_are_noticed() {
    seen(Planted::EndsOthersOnly);
}

#[test]
fn holds_that_a_new_epoch_has_lost_and_that_stay_are_noticed() {
    seen(Planted::NeedsVersion);
}

/// What one knows of the end of an ejection that he has set without having heard that it is on record, without an end.
fn end_that_is_known() -> Option<Option<Timestamp>> {
    let mut world = quiet_as(Plan { processes: 2, resources: 4, drift: 0.0, ..Plan::default() });
    world.run_until(Duration::from_secs(6));
    world.cut_off(0, true);
    let now = |process: &Process, time| process.clock.read(time);
    let place = world.processes[0].desk.present().next().expect("it has its floor");
    let time = world.time;
    let other = &mut world.processes[1];
    other.desk.now = now(other, time);
    other.member.command(other.desk.now, place, HoldKind::Ejected, true, &mut other.desk);
    world.run_until(Duration::from_millis(6_600));
    let time = world.time;
    let process = &mut world.processes[0];
    process.desk.now = now(process, time);
    let end = process.desk.now.saturating_add(Duration::from_secs(60));
    process.desk.set_hold(place, HoldKind::Ejected, Some(end));
    world.run_until(Duration::from_millis(7_000));
    world.cut_off(0, false);
    world.run_until(Duration::from_millis(9_000));
    let process = &world.processes[0];
    process.member.known(now(process, world.time), place, HoldKind::Ejected)
}

#[test]
fn answers_that_are_never_news_are_noticed() {
    assert_eq!(end_that_is_known(), Some(None), "the later end, which is none, counts");
    let known = with_mistake(Planted::SameIsSame, end_that_is_known);
    assert!(matches!(known, Some(Some(_))), "{known:?}");
}

#[test]
fn requests_that_arrive_late_and_count_are_noticed() {
    seen(Planted::LateCounts);
}

/// By how much the end on record differs from the one that was set, of a hold that could be told only 1.2 s later.
fn end_is_wrong_by() -> u64 {
    let mut world = quiet_as(Plan { processes: 2, resources: 4, drift: 0.0, ..Plan::default() });
    world.run_until(Duration::from_secs(6));
    world.cut_off(0, true);
    let process = &mut world.processes[0];
    process.desk.now = process.clock.read(world.time);
    let place = process.desk.present().next().expect("it has its floor");
    let lasts = Duration::from_secs(8);
    process.desk.set_hold(place, HoldKind::Cooling, Some(process.desk.now.saturating_add(lasts)));
    let end = world.time + lasts.as_nanos() as u64;
    world.run_until(Duration::from_millis(7_200));
    world.cut_off(0, false);
    world.run_until(Duration::from_millis(8_500));
    let name = std::sync::Arc::clone(&world.roll.get(place).name);
    let recorded = world.ledger.held(&name, HoldKind::Cooling).expect("it was told");
    world.moment(recorded).abs_diff(end)
}

#[test]
fn ends_that_move_with_the_letter_are_noticed() {
    assert!(end_is_wrong_by() < 100 * MILLI);
    assert!(with_mistake(Planted::KeepsDurations, end_is_wrong_by) > 900 * MILLI);
}

#[test]
fn notes_of_another_epoch_that_count_are_noticed() {
    seen(Planted::AnyEpoch);
}

#[test]
fn resources_that_are_left_out_because_no_unit_is_held_are_noticed() {
    seen(Planted::HeldOnly);
}

/// Somebody sets and clears more holds in each look at the scheduler than can be told until the next, and needs units meanwhile. Answers how many
/// he claims.
fn claimed_in_a_storm() -> u64 {
    let mut world = quiet(2, 2_100);
    world.floor(0, 2_000);
    world.run_until(Duration::from_secs(8));
    assert_eq!(world.held(0).len(), 2_000);
    world.want(0, 50);
    let before = world.processes[0].member.counts().claimed;
    for look in 0..80 {
        let desk = &mut world.processes[0].desk;
        for place in desk.present().collect::<Vec<_>>() {
            match look % 2 {
                0 => desk.set_hold(place, HoldKind::Excluded, None),
                _ => desk.clear_hold(place, HoldKind::Excluded),
            }
        }
        world.run_until(Duration::from_secs(8) + Duration::from_millis(25) * (look + 1));
    }
    world.processes[0].member.counts().claimed - before
}

#[test]
fn a_storm_of_holds_does_not_starve_claims() {
    let claimed = claimed_in_a_storm();
    assert!(claimed >= 50, "{claimed}");
    let starved = with_mistake(Planted::HoldsFirst, claimed_in_a_storm);
    assert!(starved < 50, "whoever has no turns starves: {starved}");
}
