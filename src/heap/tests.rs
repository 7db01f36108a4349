//! Every operation against a sorted set, the owner's table included.

// `prop_oneof!` expands to std's `Arc`; nothing here is shared between threads.
#![allow(clippy::disallowed_types)]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::sync::SplitMix64;

/// Proptest cases, and entries in the larger tests: what fits into a second, or into a minute under Miri.
const CASES: u32 = if cfg!(miri) { 5 } else { 1_500 };
const MANY: u32 = if cfg!(miri) { 300 } else { 20_000 };
/// The permutations of so many entries are all tried.
const PERMUTED: u32 = if cfg!(miri) { 4 } else { 8 };

/// Slot to position, 0 if not in the heap; and the slots told of in the last operation.
#[derive(Default)]
struct Table(Vec<u32>, Vec<u32>);

impl Positions for Table {
    fn set(&mut self, slot: u32, position: u32) {
        self.1.push(slot);
        let slot = slot as usize;
        if self.0.len() <= slot {
            self.0.resize(slot + 1, 0);
        }
        self.0[slot] = position;
    }
}

/// A heap, its owner's table, and a set that must hold the same entries.
struct Checked {
    heap: MinMaxHeap,
    table: Table,
    oracle: BTreeSet<Entry>,
    next_slot: u32,
}

impl Checked {
    fn new() -> Self {
        let mut table = Table::default();
        table.set(0, 0);
        Checked { heap: MinMaxHeap::new(), table, oracle: BTreeSet::new(), next_slot: 0 }
    }

    fn with_ranks(ranks: impl IntoIterator<Item = u64>) -> Self {
        let mut checked = Self::new();
        ranks.into_iter().for_each(|rank| checked.push(rank, 0));
        checked
    }

    fn fresh(&mut self, rank: u64, tie: u64) -> Entry {
        let entry = Entry::new(rank, tie, self.next_slot);
        self.next_slot += 1;
        self.table.set(entry.slot(), 0);
        self.table.1.clear();
        entry
    }

    fn left(&mut self, entry: Entry) -> Entry {
        assert!(self.oracle.remove(&entry), "{entry:?} was not there");
        assert!(!self.table.1.contains(&entry.slot()), "told of {entry:?}, which left");
        self.table.set(entry.slot(), 0);
        entry
    }

    fn push(&mut self, rank: u64, tie: u64) {
        let entry = self.fresh(rank, tie);
        if self.heap.len() == self.heap.capacity() {
            assert_eq!(self.heap.push(entry, &mut self.table), Err(entry));
            let len = self.heap.next_segment_len().unwrap();
            assert!(self.heap.add_segment(Segment::new(len)).is_ok());
        }
        assert_eq!(self.heap.push(entry, &mut self.table), Ok(()));
        self.oracle.insert(entry);
    }

    fn pop_min(&mut self) -> Option<Entry> {
        let expected = self.oracle.first().copied();
        assert_eq!(self.heap.peek_min(), expected);
        self.table.1.clear();
        assert_eq!(self.heap.pop_min(&mut self.table), expected);
        expected.map(|entry| self.left(entry))
    }

    fn pop_max(&mut self) -> Option<Entry> {
        let expected = self.oracle.last().copied();
        assert_eq!(self.heap.peek_max(), expected);
        self.table.1.clear();
        assert_eq!(self.heap.pop_max(&mut self.table), expected);
        expected.map(|entry| self.left(entry))
    }

    /// Any position, if there is one.
    fn position(&self, random: u32) -> Option<u32> {
        let len = self.heap.len() as u32;
        (len > 0).then(|| 1 + random % len)
    }

    fn remove(&mut self, random: u32) {
        let Some(position) = self.position(random) else { return };
        let expected = self.heap.get(position);
        self.table.1.clear();
        assert_eq!(self.heap.remove(position, &mut self.table), expected);
        self.left(expected);
    }

    fn replace(&mut self, random: u32, rank: u64, tie: u64) {
        let Some(position) = self.position(random) else { return };
        let entry = self.fresh(rank, tie);
        let expected = self.heap.get(position);
        assert_eq!(self.heap.replace(position, entry, &mut self.table), expected);
        self.left(expected);
        self.oracle.insert(entry);
    }

    /// The same slot with another rank, as an update does it.
    fn rerank(&mut self, random: u32, rank: u64, tie: u64) {
        let Some(position) = self.position(random) else { return };
        let old = self.heap.get(position);
        let entry = Entry::new(rank, tie, old.slot());
        assert_eq!(self.heap.replace(position, entry, &mut self.table), old);
        self.oracle.remove(&old);
        self.oracle.insert(entry);
    }

    fn replace_min(&mut self, rank: u64, tie: u64) {
        let entry = self.fresh(rank, tie);
        let expected = self.oracle.first().copied();
        assert_eq!(self.heap.replace_min(entry, &mut self.table), expected);
        if let Some(min) = expected {
            self.left(min);
            self.oracle.insert(entry);
        }
    }

    fn check(&self) {
        self.heap.check_invariants();
        assert_eq!(self.heap.len(), self.oracle.len());
        assert_eq!(self.heap.is_empty(), self.oracle.is_empty());
        assert_eq!(self.heap.peek_min(), self.oracle.first().copied());
        assert_eq!(self.heap.peek_max(), self.oracle.last().copied());
        assert!(self.heap.best().iter().eq(self.oracle.iter().take(Best::MAX)), "{:?}", self.heap.best());
        assert_eq!(self.heap.iter().collect::<BTreeSet<_>>(), self.oracle);
        for (position, entry) in (1..).zip(self.heap.iter()) {
            assert_eq!(self.table.0[entry.slot() as usize], position, "the owner was not told of {entry:?}");
        }
        let known = self.table.0.iter().filter(|&&position| position != 0).count();
        assert_eq!(known, self.heap.len(), "the table names an entry that has left");
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push { rank: u64, tie: u64 },
    PopMin,
    PopMax,
    Remove { at: u32 },
    Replace { at: u32, rank: u64, tie: u64 },
    Rerank { at: u32, rank: u64, tie: u64 },
    ReplaceMin { rank: u64, tie: u64 },
}

/// Few ranks, so that most operations meet equal ones, and the extremes.
fn rank() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..6u64, 8 => 0..1_000u64, 1 => Just(0), 1 => Just(u64::MAX), 2 => any::<u64>()]
}

/// `growth` is the weight of a push, so that some runs stay near empty and some pass several segments.
fn ops(growth: u32) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        growth => (rank(), 0..3u64).prop_map(|(rank, tie)| Op::Push { rank, tie }),
        2 => Just(Op::PopMin),
        1 => Just(Op::PopMax),
        2 => any::<u32>().prop_map(|at| Op::Remove { at }),
        2 => (any::<u32>(), rank(), 0..3u64).prop_map(|(at, rank, tie)| Op::Replace { at, rank, tie }),
        2 => (any::<u32>(), rank(), 0..3u64).prop_map(|(at, rank, tie)| Op::Rerank { at, rank, tie }),
        2 => (rank(), 0..3u64).prop_map(|(rank, tie)| Op::ReplaceMin { rank, tie }),
    ];
    prop::collection::vec(op, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn agrees_with_a_sorted_set(ops in prop_oneof![ops(5), ops(9), ops(60)]) {
        let mut checked = Checked::new();
        for op in ops {
            match op {
                Op::Push { rank, tie } => checked.push(rank, tie),
                Op::PopMin => drop(checked.pop_min()),
                Op::PopMax => drop(checked.pop_max()),
                Op::Remove { at } => checked.remove(at),
                Op::Replace { at, rank, tie } => checked.replace(at, rank, tie),
                Op::Rerank { at, rank, tie } => checked.rerank(at, rank, tie),
                Op::ReplaceMin { rank, tie } => checked.replace_min(rank, tie),
            }
            checked.check();
        }
    }

    #[test]
    fn entries_order_by_rank_tie_slot(
        a in (rank(), 0..=Entry::MAX_TIE, 0..=Entry::MAX_SLOT),
        b in (rank(), 0..=Entry::MAX_TIE, 0..=Entry::MAX_SLOT),
    ) {
        let entry = |(rank, tie, slot)| Entry::new(rank, tie, slot);
        let (x, y) = (entry(a), entry(b));
        prop_assert_eq!((x.rank(), x.tie(), x.slot()), a);
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!((x < y, x <= y, x > y, x >= y, x == y), (a < b, a <= b, a > b, a >= b, a == b));
        prop_assert_eq!(x.partial_cmp(&y), a.partial_cmp(&b));
        prop_assert_eq!((x < x, x <= x, x > x, x >= x), (false, true, false, true));
    }
}

/// Calls `visit` with each order of `0..n`: Heap's algorithm.
fn permutations(n: u32, visit: &mut impl FnMut(&[u64])) {
    fn generate(k: usize, items: &mut [u64], visit: &mut impl FnMut(&[u64])) {
        if k <= 1 {
            return visit(items);
        }
        for i in 0..k {
            generate(k - 1, items, visit);
            items.swap(if k.is_multiple_of(2) { i } else { 0 }, k - 1);
        }
    }
    generate(n as usize, &mut (0..u64::from(n)).collect::<Vec<_>>(), visit);
}

#[test]
fn every_small_permutation_drains_in_order() {
    for n in 0..=PERMUTED {
        permutations(n, &mut |ranks| {
            let full = || {
                let checked = Checked::with_ranks(ranks.iter().copied());
                checked.heap.check_invariants();
                checked
            };
            let (mut up, mut down, mut both) = (full(), full(), full());
            for i in 0..n {
                assert_eq!(up.pop_min().unwrap().rank(), u64::from(i));
                assert_eq!(down.pop_max().unwrap().rank(), u64::from(n - 1 - i));
                let (popped, expected) =
                    if i % 2 == 0 { (both.pop_min(), i / 2) } else { (both.pop_max(), n - 1 - i / 2) };
                assert_eq!(popped.unwrap().rank(), u64::from(expected));
                [&up, &down, &both].into_iter().for_each(Checked::check);
            }
        });
    }
}

#[test]
fn every_small_permutation_survives_each_removal_and_replacement() {
    let most = PERMUTED - 1;
    for n in 1..=most {
        permutations(n, &mut |ranks| {
            // Ranks 1, 3, 5, ...: every even number is a new neighbourhood for a replacement.
            let full = || Checked::with_ranks(ranks.iter().map(|rank| 2 * rank + 1));
            for at in 0..n {
                let mut checked = full();
                checked.remove(at);
                checked.check();
                for rank in 0..=u64::from(n) {
                    let mut checked = full();
                    checked.replace(at, 2 * rank, 0);
                    checked.check();
                }
            }
        });
    }
}

#[test]
fn an_empty_heap_has_nothing_to_give() {
    let mut heap = MinMaxHeap::new();
    let table = &mut Table::default();
    let entry = Entry::new(1, 2, 3);
    assert_eq!((heap.len(), heap.capacity(), heap.is_empty()), (0, 0, true));
    assert_eq!((heap.peek_min(), heap.peek_max()), (None, None));
    assert_eq!((heap.pop_min(table), heap.pop_max(table)), (None, None));
    assert_eq!(heap.replace_min(entry, table), None);
    assert!(heap.best().is_empty());
    assert_eq!(heap.push(entry, table), Err(entry), "there is no room yet");
    assert!(table.0.is_empty(), "nothing has moved");
    heap.check_invariants();
}

#[test]
fn one_two_and_three_entries() {
    let mut checked = Checked::with_ranks([5]);
    checked.check();
    assert_eq!(checked.heap.peek_min(), checked.heap.peek_max());
    checked.push(3, 0);
    checked.check();
    checked.push(4, 0);
    checked.check();
    assert_eq!(checked.heap.best().iter().map(|entry| entry.rank()).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(checked.pop_max().unwrap().rank(), 5);
    assert_eq!(checked.pop_max().unwrap().rank(), 4);
    assert_eq!(checked.pop_max().unwrap().rank(), 3);
    checked.check();
}

#[test]
fn equal_ranks_come_out_by_tie_then_slot() {
    let mut checked = Checked::new();
    for tie in [2, 0, 1, 0, 2, 1, 1] {
        checked.push(7, tie);
        checked.check();
    }
    let order: Vec<_> =
        std::iter::from_fn(|| checked.pop_min()).map(|entry| (entry.tie(), entry.slot())).collect();
    assert_eq!(order, [(0, 1), (0, 3), (1, 2), (1, 5), (1, 6), (2, 0), (2, 4)]);
}

#[test]
fn a_tie_is_cut_to_its_width_and_leaves_the_slot_alone() {
    let last = Entry::new(7, Entry::MAX_TIE, Entry::MAX_SLOT);
    let wrapped = Entry::new(7, Entry::MAX_TIE + 1, 0);
    assert_eq!((last.tie(), last.slot()), (Entry::MAX_TIE, Entry::MAX_SLOT));
    assert_eq!((wrapped.tie(), wrapped.slot()), (0, 0));
    assert!(wrapped < last && last < Entry::new(8, 0, 0), "a wrap inverts ties, never ranks");
    assert_eq!(format!("{wrapped:?}"), "Entry { rank: 7, tie: 0, slot: 0 }");
}

#[test]
fn segments_are_taken_in_order_only() {
    let mut heap = MinMaxHeap::new();
    let first = heap.next_segment_len().unwrap();
    assert_eq!(heap.add_segment(Segment::new(2 * first)).unwrap_err().len(), 2 * first);
    assert!(heap.add_segment(Segment::new(first)).is_ok());
    assert_eq!(heap.capacity(), first - 1, "position 0 is not used");
    assert_eq!(heap.next_segment_len(), Some(first), "as long as all before it");
    assert!(heap.add_segment(Segment::new(first)).is_ok());
    assert_eq!(heap.capacity(), 2 * first - 1);
    assert_eq!(heap.next_segment_len(), Some(2 * first));
    assert!(heap.add_segment(Segment::new(first)).is_err(), "somebody else has added that one");
}

#[test]
fn segment_boundaries_are_crossed_both_ways() {
    let mut checked = Checked::with_ranks(std::iter::empty());
    let mut random = SplitMix64::new(7);
    let top = if cfg!(miri) { 70 } else { 300 };
    for _ in 0..top {
        checked.push(random.next_u64(), 0);
        checked.check();
    }
    let capacity = checked.heap.capacity();
    // Around each boundary several times, in both directions.
    while checked.heap.len() > 1 {
        checked.pop_min();
        checked.pop_max();
        checked.push(random.next_u64(), 0);
        checked.check();
    }
    assert_eq!(checked.heap.capacity(), capacity, "room is kept");
}

#[test]
fn many_entries_in_random_order() {
    let mut random = SplitMix64::new(42);
    let mut checked = Checked::with_ranks((0..MANY).map(|_| random.next_u64() % 5_000));
    checked.check();
    for _ in 0..MANY {
        checked.remove(random.next_u64() as u32);
        checked.rerank(random.next_u64() as u32, random.next_u64() % 5_000, 0);
        checked.replace_min(random.next_u64() % 5_000, 0);
        checked.push(random.next_u64() % 5_000, 0);
    }
    checked.check();
    while checked.pop_min().is_some() {
        checked.pop_max();
    }
    checked.check();
}

#[test]
#[should_panic(expected = "no entry at position 3")]
fn removing_past_the_end_panics() {
    let mut checked = Checked::with_ranks([1, 2]);
    checked.heap.remove(3, &mut checked.table);
}

#[test]
#[should_panic(expected = "no entry at position 0")]
fn position_0_is_never_used() {
    let mut checked = Checked::with_ranks([1, 2]);
    checked.heap.replace(0, Entry::default(), &mut checked.table);
}

#[test]
#[should_panic(expected = "out of order")]
fn the_invariant_check_can_fail() {
    let mut checked = Checked::with_ranks(0..40);
    let place = checked.heap.storage.place(37).unwrap();
    checked.heap.storage.set(place, Entry::new(u64::MAX, 0, 37));
    checked.heap.check_invariants();
}
