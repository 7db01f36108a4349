//! What the table of holds tells and does.

use super::*;
use crate::{
    cluster::{planted::MISTAKE, unit::Share},
    sync::SplitMix64,
};

const SECOND: Duration = Duration::from_secs(1);
const NOTHING: Seen = [None, None, None];

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

fn seen(holds: Seen) -> HashMap<usize, Seen> {
    HashMap::from([(3, holds)])
}

fn heard(kind: HoldKind, change: Change, origin: &str, version: u64) -> HoldNote {
    HoldNote { name: "r3".into(), kind, change, origin: origin.into(), epoch: "e".into(), version }
}

fn roll() -> Roll {
    Roll::new((0..300).map(|number| Share::new(format!("r{number}"), number)).collect()).unwrap()
}

fn table() -> HoldTable {
    let mut table = HoldTable::new("me".into());
    table.begin(at(0), &"e".into());
    table
}

/// What is told now; the engine answers nothing.
fn told(table: &mut HoldTable, now: Timestamp) -> Vec<Change> {
    table.letter(now, &roll(), 9).into_iter().map(|note| note.change).collect()
}

/// What is told now, and the engine answers that, with versions from this one on.
fn told_as(table: &mut HoldTable, now: Timestamp, version: u64) -> Vec<Change> {
    let mut letter = table.letter(now, &roll(), 9);
    for (note, version) in letter.iter_mut().zip(version..) {
        note.version = version;
    }
    let changes = letter.iter().map(|note| note.change).collect();
    let notes: Vec<_> = letter.into_iter().map(|note| (3, note)).collect();
    assert!(table.answered(now, &notes).is_empty());
    changes
}

fn to_do(kind: HoldKind, changes: &[Change]) -> Vec<Apply> {
    changes.iter().map(|&change| Apply { place: 3, kind, change }).collect()
}

#[test]
fn what_is_set_here_is_told_once() {
    let mut table = table();
    let cooling = seen([Some(Some(at(9))), None, None]);
    table.compare(at(1), &cooling);
    assert_eq!(told_as(&mut table, at(1), 1), [Change::Set(Some(SECOND * 8))]);
    table.compare(at(2), &cooling);
    assert!(!table.has_mail());
    let later = seen([Some(Some(at(20))), None, None]);
    table.compare(at(2), &later);
    assert_eq!(told_as(&mut table, at(2), 2).len(), 1, "a later end is news");
    table.compare(at(21), &seen(NOTHING));
    assert!(!table.has_mail(), "it ended by itself");
}

#[test]
fn what_is_cleared_here_is_told() {
    let mut table = table();
    let note = heard(HoldKind::Excluded, Change::Set(None), "other", 4);
    assert_eq!(table.hear(at(1), 3, &note).len(), 1);
    table.compare(at(1), &seen([None, Some(None), None]));
    assert!(!table.has_mail(), "that is the one heard of");
    table.compare(at(2), &seen(NOTHING));
    assert_eq!(told(&mut table, at(2)), [Change::Cleared]);
}

#[test]
fn older_news_is_ignored_and_so_is_another_epoch() {
    let mut table = table();
    let set = heard(HoldKind::Excluded, Change::Set(None), "other", 4);
    let cleared = heard(HoldKind::Excluded, Change::Cleared, "other", 5);
    assert_eq!(table.hear(at(1), 3, &cleared).len(), 1);
    assert!(table.hear(at(1), 3, &set).is_empty());
    let foreign = HoldNote { epoch: "d".into(), version: 9, ..set };
    assert!(table.hear(at(1), 3, &foreign).is_empty());
    assert_eq!(table.blocked(at(1)).count(), 0);
}

#[test]
fn reconciling_clears_what_is_not_listed() {
    let mut table = table();
    table.hear(at(1), 3, &heard(HoldKind::Excluded, Change::Set(None), "other", 4));
    // Set here, and not told yet: it stays.
    table.compare(at(1), &seen([Some(Some(at(9))), Some(None), None]));
    let todo = table.reconcile(at(2), &[], 6);
    assert_eq!(todo, to_do(HoldKind::Excluded, &[Change::Cleared]));
    assert_eq!(table.blocked(at(2)).collect::<Vec<_>>(), [3]);
}

#[test]
fn ejections_that_were_made_by_hand_here_end() {
    let mut table = table();
    let ejected =
        |origin: &str, version| heard(HoldKind::Ejected, Change::Set(Some(SECOND)), origin, version);
    table.hear(at(1), 3, &ejected("other", 1));
    assert!(table.ended(at(1)).is_empty());
    // The scheduler shows no end.
    table.compare(at(1), &seen([None, None, Some(None)]));
    assert_eq!(table.ended(at(2)), to_do(HoldKind::Ejected, &[Change::Cleared]));
    assert!(table.ended(at(3)).is_empty(), "once");
    assert!(!table.has_mail());
    // By the rules of both: the other's word has taken over the one here.
    table.compare(at(4), &seen([None, None, Some(Some(at(6)))]));
    assert_eq!(told_as(&mut table, at(4), 2), [Change::Set(Some(SECOND * 2))]);
    assert_eq!(table.hear(at(4), 3, &ejected("other", 3)).len(), 1);
    assert_eq!(table.ended(at(5)).len(), 1);
    // By the rules here: they end it. But not if the resource was away.
    table.compare(at(7), &seen([None, None, Some(Some(at(9)))]));
    assert_eq!(told_as(&mut table, at(7), 4).len(), 1);
    let mut returned = table.clone();
    assert!(table.ended(at(9)).is_empty());
    assert_eq!(returned.of(at(8), 3), to_do(HoldKind::Ejected, &[Change::Set(Some(SECOND))]));
    assert_eq!(returned.ended(at(9)).len(), 1);
}

#[test]
fn an_ejection_that_is_taken_over_by_hand_has_no_end() {
    let mut table = table();
    table.compare(at(1), &seen([None, None, Some(Some(at(9)))]));
    told_as(&mut table, at(1), 1);
    table.compare(at(2), &seen([None, None, Some(None)]));
    assert_eq!(told_as(&mut table, at(2), 2), [Change::Set(None)]);
}

#[test]
fn a_later_end_on_record_is_news_to_the_one_who_said_an_earlier_one() {
    let mut table = table();
    table.compare(at(1), &seen([Some(Some(at(9))), None, None]));
    table.letter(at(1), &roll(), 9);
    let longer = Change::Set(Some(SECOND * 99));
    let answer = [(3, heard(HoldKind::Cooling, longer, "me", 2))];
    assert_eq!(table.answered(at(1), &answer), to_do(HoldKind::Cooling, &[longer]));
    assert_eq!(table.known(at(50), 3, HoldKind::Cooling), Some(Some(at(100))));
}

#[test]
fn a_new_epoch_is_told_what_was_set_here() {
    let mut table = table();
    table.compare(at(1), &seen([None, Some(None), None]));
    told_as(&mut table, at(1), 7);
    table.hear(at(1), 4, &heard(HoldKind::Excluded, Change::Set(None), "other", 8));
    table.begin(at(2), &"f".into());
    let letter = table.letter(at(2), &roll(), 9);
    assert_eq!(letter.iter().map(|note| &*note.name).collect::<Vec<_>>(), ["r3"]);
    let answer = letter.into_iter().map(|note| (3, HoldNote { version: 1, ..note }));
    assert!(table.answered(at(2), &answer.collect::<Vec<_>>()).is_empty());
    let note = heard(HoldKind::Excluded, Change::Set(None), "me", 1);
    let todo = table.reconcile(at(2), &[(3, HoldNote { epoch: "f".into(), ..note })], 1);
    // What nobody knows any more is over.
    assert_eq!(todo, [Apply { place: 4, kind: HoldKind::Excluded, change: Change::Cleared }]);
}

#[test]
fn a_request_that_arrives_late_does_not_have_the_last_word() {
    let mut table = table();
    table.compare(at(1), &seen([None, Some(None), None]));
    told_as(&mut table, at(1), 1);
    table.compare(at(2), &seen(NOTHING));
    told_as(&mut table, at(2), 2);
    let late = heard(HoldKind::Excluded, Change::Set(None), "me", 3);
    assert!(table.hear(at(3), 3, &late).is_empty());
    assert_eq!(told_as(&mut table.clone(), at(3), 4), [Change::Cleared]);
    // Unless somebody has spoken since.
    let other = heard(HoldKind::Excluded, Change::Set(None), "other", 4);
    assert_eq!(table.hear(at(3), 3, &other).len(), 1);
    assert!(!table.has_mail());
}

#[test]
fn a_letter_says_what_is_so_when_it_is_sent() {
    let mut table = table();
    table.compare(at(1), &seen([Some(Some(at(9))), Some(None), Some(Some(at(30)))]));
    assert_eq!(told(&mut table, at(1)).len(), 3);
    table.unanswered();
    // The exclusion ends, and is set again.
    table.compare(at(2), &seen([Some(Some(at(9))), None, Some(Some(at(30)))]));
    table.compare(at(3), &seen([Some(Some(at(9))), Some(None), Some(Some(at(30)))]));
    let expected = [Change::Cleared, Change::Set(None), Change::Set(Some(SECOND * 10))];
    assert_eq!(told_as(&mut table, at(20), 1), expected, "cooling is over");
    assert!(!table.has_mail());
}

#[test]
fn a_word_that_is_not_told_yet_counts() {
    let mut table = table();
    table.compare(at(1), &seen([None, Some(None), None]));
    table.letter(at(1), &roll(), 9);
    table.compare(at(2), &seen(NOTHING));
    // The answer is that of the earlier word.
    let answer = [(3, heard(HoldKind::Excluded, Change::Set(None), "me", 1))];
    assert!(table.answered(at(2), &answer).is_empty());
    assert_eq!(told(&mut table, at(2)), [Change::Cleared]);
    assert!(table.hear(at(2), 3, &heard(HoldKind::Excluded, Change::Set(None), "other", 2)).is_empty());
}

#[test]
fn letters_are_of_bounded_length_and_leave_nothing_out() {
    let mut table = table();
    let all = (0..300).map(|place| (place, [None, Some(None), None])).collect();
    table.compare(at(1), &all);
    let mut told = Vec::new();
    while table.has_mail() {
        let letter = table.letter(at(1), &roll(), 64);
        assert!(letter.len() <= 64);
        told.extend(letter.into_iter().map(|note| note.name));
        table.answered(at(1), &[]);
    }
    told.sort();
    told.dedup();
    assert_eq!(told.len(), 300);
}

#[test]
fn another_process_of_the_same_name_is_another_one() {
    let name = "me";
    let mut table = HoldTable::new(format!("{name}#1").into());
    table.begin(at(0), &"e".into());
    table.compare(at(1), &seen([None, Some(None), None]));
    told_as(&mut table, at(1), 1);
    let todo = table.hear(at(2), 3, &heard(HoldKind::Excluded, Change::Cleared, "me#2", 2));
    assert_eq!(todo, to_do(HoldKind::Excluded, &[Change::Cleared]));
}

/// A table that hears words of others, in any order, and looks at a scheduler in which nobody does anything. Answers how many of its looks found
/// something to tell.
fn told_by_one_who_only_hears(seed: u64) -> usize {
    let mut random = SplitMix64::new(SplitMix64::mix(seed));
    let mut table = table();
    // The scheduler: ends that cool move to later moments only, and what is set by hand has none.
    let mut shown = NOTHING;
    let do_all = |shown: &mut Seen, now: Timestamp, todo: &[Apply]| {
        for Apply { kind, change, .. } in todo {
            let hold = &mut shown[HoldKind::ALL.iter().position(|one| one == kind).unwrap()];
            *hold = match change {
                Change::Cleared => None,
                Change::Set(Some(duration)) if *kind == HoldKind::Cooling => {
                    let until = now.saturating_add(*duration);
                    match *hold {
                        Some(before) => Some(before.map(|before| before.max(until))),
                        None => Some(Some(until)),
                    }
                }
                Change::Set(_) => Some(None),
            };
        }
    };
    let (mut now, mut said) = (at(1), 0);
    for step in 1..400 {
        now = now.saturating_add(Duration::from_millis(u64::from(random.below(100))));
        shown[0] = shown[0].filter(|until| until.is_none_or(|until| until > now));
        let kind = HoldKind::ALL[random.below(3) as usize];
        let change = match random.below(6) {
            0 => Change::Cleared,
            1 => Change::Set(None),
            // Often about as long as what is left.
            _ => Change::Set(Some(Duration::from_millis(1_500 + u64::from(random.below(1_000))))),
        };
        // Some were overtaken.
        let version = (step + u64::from(random.below(4))).saturating_sub(2).max(1);
        let note = heard(kind, change, "other", version);
        let todo = if random.below(4) == 0 {
            table.reconcile(now, &[(3, note)], version)
        } else {
            table.hear(now, 3, &note)
        };
        do_all(&mut shown, now, &todo);
        let over = table.ended(now);
        do_all(&mut shown, now, &over);
        table.compare(now, &seen(shown));
        said += usize::from(table.has_mail());
        told(&mut table, now);
        table.answered(now, &[]);
    }
    said
}

#[test]
fn whoever_only_hears_tells_nothing() {
    let said = || (0..50).map(told_by_one_who_only_hears).sum::<usize>();
    assert_eq!(said(), 0);
    MISTAKE.set(Some(Planted::EchoesEnds));
    let echoes = said();
    MISTAKE.set(None);
    assert!(echoes > 0, "otherwise no end ever moves a little");
}

#[test]
fn an_end_that_comes_a_little_earlier_moves_nothing() {
    let mut table = table();
    let cools = |millis| Change::Set(Some(Duration::from_millis(millis)));
    table.hear(at(1), 3, &heard(HoldKind::Cooling, cools(5_000), "other", 1));
    for (version, millis) in [(2, 4_700), (3, 4_400), (4, 4_000)] {
        let note = heard(HoldKind::Cooling, cools(millis), "other", version);
        assert_eq!(table.hear(at(1), 3, &note), to_do(HoldKind::Cooling, &[cools(5_000)]));
        table.compare(at(1), &seen([Some(Some(at(6))), None, None]));
        assert!(!table.has_mail(), "nobody here has said anything");
    }
    // Not by little and little.
    let note = heard(HoldKind::Cooling, cools(3_900), "other", 5);
    assert_eq!(table.hear(at(1), 3, &note), to_do(HoldKind::Cooling, &[Change::Cleared, cools(3_900)]));
}

#[test]
fn what_is_said_again_gives_way_to_others_even_on_its_way() {
    let mut table = table();
    table.compare(at(1), &seen([None, Some(None), None]));
    told_as(&mut table, at(1), 1);
    // A request that had been given up has cleared it: that it is set is said again.
    assert!(table.hear(at(2), 3, &heard(HoldKind::Excluded, Change::Cleared, "me", 2)).is_empty());
    assert_eq!(told(&mut table, at(2)), [Change::Set(None)]);
    // Meanwhile somebody else clears it.
    let cleared = heard(HoldKind::Excluded, Change::Cleared, "other", 3);
    assert_eq!(table.hear(at(2), 3, &cleared), to_do(HoldKind::Excluded, &[Change::Cleared]));
    // It arrived before that.
    let mut unknown = table.clone();
    assert!(
        table
            .clone()
            .answered(at(2), &[(3, heard(HoldKind::Excluded, Change::Set(None), "me", 3))])
            .is_empty()
    );
    // It arrived after that.
    assert!(table.answered(at(2), &[(3, heard(HoldKind::Excluded, Change::Set(None), "me", 4))]).is_empty());
    assert_eq!(told_as(&mut table, at(3), 5), [Change::Cleared]);
    // Nobody knows: if it does arrive, it is a note of one's own.
    unknown.unanswered();
    assert!(!unknown.has_mail());
}
