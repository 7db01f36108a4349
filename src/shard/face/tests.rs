use super::*;

type Face = super::Face<crate::Entry<u32, u32, ()>>;

fn change(face: &Face) {
    face.begin_write();
    face.end_write(u64::MAX, ptr::null_mut(), None);
}

#[test]
fn each_change_leaves_another_number_and_shows_while_it_goes_on() {
    let face = Face::new();
    let mut last = face.begin_read().expect("nothing goes on");
    for _ in 0..10 {
        face.begin_write();
        assert_eq!(face.begin_read(), None, "a change is going on");
        assert_ne!(face.end_read(), last, "who began before it sees it");
        face.end_write(u64::MAX, ptr::null_mut(), None);
        let now = face.begin_read().expect("nothing goes on");
        assert!(now > last, "it only grows: sums of several are compared");
        assert_eq!(face.end_read(), now);
        last = now;
    }
}

#[test]
fn the_content_number_grows_with_each_touch_and_with_nothing_else() {
    let face = Face::new();
    for number in 0..10 {
        assert_eq!(face.content(), number);
        change(&face);
        assert_eq!(face.content(), number);
        face.touch_content();
    }
}

#[test]
fn what_is_written_is_shown() {
    let face = Face::new();
    let shown = |face: &Face| {
        let pointer = |pointer: &AtomicPtr<Node<_>>| pointer.load(Ordering::Relaxed).addr();
        (
            (pointer(face.best()), face.earliest(), pointer(face.first_due())),
            (face.staged(), face.staged_rank(), pointer(face.staged_best())),
        )
    };
    let node = |address| ptr::without_provenance_mut::<Node<_>>(address);
    assert_eq!(shown(&face), ((0, NEVER, 0), (0, u64::MAX, 0)));
    face.begin_write();
    face.end_write(3, node(8), Some(((7, node(16)), Staged { batch: 5, rank: 4, best: node(24) })));
    assert_eq!(shown(&face), ((8, 7, 16), (5, 4, 24)));
    assert_eq!(face.best_rank(), Some(3));
    face.add_standing(Standing::Eligible, 1);
    // A change that leaves alone what cools and what is staged.
    change(&face);
    assert_eq!(shown(&face), ((0, 7, 16), (5, 4, 24)));
    face.begin_write();
    let nothing = Staged { batch: 0, rank: u64::MAX, best: ptr::null_mut() };
    face.end_write(3, node(8), Some(((NEVER, ptr::null_mut()), nothing)));
    assert_eq!(shown(&face), ((8, NEVER, 0), (0, u64::MAX, 0)));
    face.raise_slots(9);
    assert_eq!(face.slots(), 9);
    face.change_spare(0, 6);
    face.change_spare(4, 1);
    face.change_spare(2, 2);
    assert_eq!(face.available(), 4, "three to spare, and the first of the one that is eligible");
    face.shift(Standing::Eligible, Standing::Cooling);
    assert_eq!(
        (face.standing(Standing::Eligible), face.standing(Standing::Cooling), face.members()),
        (0, 1, 1)
    );
    face.tally(Count::Lent);
    face.tally(Count::Lent);
    assert_eq!((face.count(Count::Lent), face.count(Count::Returned)), (2, 0));
}

#[test]
fn a_lease_writes_two_lines_and_so_does_an_update() {
    use std::mem::offset_of;
    let line = |offset| offset / 64;
    let count = |count| offset_of!(Face, counts) + 8 * count as usize;
    let (leases, ends) = (line(count(Count::Lent)), line(offset_of!(Face, sequence)));
    assert_eq!(count(Count::Lent) % 64, 0);
    for (name, offset) in [
        ("returned", count(Count::Returned)),
        ("the last standing", offset_of!(Face, standings) + 4 * (Standing::COUNT - 1)),
        ("spare", offset_of!(Face, spare)),
    ] {
        assert_eq!(line(offset), leases, "{name}");
    }
    let changes = line(count(Count::Content));
    for kind in [Count::Updated, Count::Excluded, Count::Included] {
        assert_eq!(line(count(kind)), changes, "{kind:?}");
    }
    assert_eq!(line(offset_of!(Face, best)), ends);
    assert!(changes < leases && leases < ends, "{changes}, {leases}, {ends}");
}
