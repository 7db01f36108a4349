use super::*;

const NONE: Added = Added { cool: false, eject: false };
const COOL: Added = Added { cool: true, eject: false };

fn admitted() -> NodeState {
    let state = NodeState::new_staged();
    assert!(state.admit(false).is_ok());
    state
}

#[test]
fn a_staged_word_only_admits() {
    let state = NodeState::new_staged();
    assert!(state.lend(1).is_err());
    assert!(state.give_back(1, NONE).is_err());
    assert!(state.hold(Hold::Excluded).is_err());
    assert!(state.clear(Hold::Excluded).is_err());
    assert!(state.revalue(1).is_err());
    assert!(state.remove().is_err());
    assert!(state.unlink().is_err());
    assert_eq!(state.load().standing(), Standing::Staged);
    assert!(state.admit(false).is_ok());
    assert!(state.admit(false).is_err(), "it is admitted once");
    assert!(state.load().is_eligible());
}

#[test]
fn lending_stops_at_the_limit() {
    let state = admitted();
    for k in 1..=3 {
        let moved = state.lend(3).expect("eligible");
        assert_eq!(moved.to.in_flight(), k);
        assert_eq!(moved.to.is_full(), k == 3);
    }
    assert_eq!(state.load().standing(), Standing::AtCapacity);
    assert!(state.lend(3).is_err());
    let before = state.load();
    let moved = state.give_back(3, NONE).expect("out");
    assert_eq!(moved.to.in_flight(), 2);
    assert_eq!(moved.to.generation(), before.generation() + 1);
    assert!(state.load().is_eligible());
}

#[test]
fn holds_are_independent_of_each_other_and_of_leases() {
    for set in 0..16u32 {
        for lent in [false, true] {
            let state = admitted();
            if lent {
                let _ = state.lend(1).expect("eligible");
            }
            let chosen: Vec<Hold> = Hold::ALL
                .into_iter()
                .enumerate()
                .filter(|(i, _)| set >> i & 1 == 1)
                .map(|(_, h)| h)
                .collect();
            for &hold in &chosen {
                let _ = state.hold(hold).expect("member");
                let again = state.hold(hold).expect("member");
                assert_eq!(again.from, again.to, "holding twice changes nothing");
            }
            for hold in Hold::ALL {
                assert_eq!(state.load().is_held(hold), chosen.contains(&hold));
            }
            assert_eq!(state.load().in_flight(), u32::from(lent));
            if lent {
                let _ = state.give_back(1, NONE).expect("out");
                for hold in Hold::ALL {
                    assert_eq!(state.load().is_held(hold), chosen.contains(&hold), "a return clears no hold");
                }
            }
            for &hold in &chosen {
                let _ = state.clear(hold).expect("member");
            }
            assert!(state.load().is_eligible());
        }
    }
}

#[test]
fn a_return_can_cool_in_the_same_step() {
    let state = admitted();
    let _ = state.lend(1).expect("eligible");
    let moved = state.give_back(1, COOL).expect("out");
    assert_eq!(moved.to.standing(), Standing::Cooling);
    assert!(state.lend(1).is_err());
}

#[test]
fn a_return_can_eject_in_the_same_step() {
    let state = admitted();
    let _ = state.lend(1).expect("eligible");
    let moved = state.give_back(1, Added { cool: true, eject: true }).expect("out");
    assert_eq!(moved.to.standing(), Standing::Ejected);
    assert!(moved.to.is_held(Hold::Cooling));
}

#[test]
fn holds_have_a_bit_each() {
    for (place, hold) in Hold::ALL.into_iter().enumerate() {
        let state = admitted();
        let _ = state.hold(hold).expect("a member");
        assert_eq!((state.load().holds(), hold as usize), (1 << place, place));
    }
}

#[test]
fn an_update_moves_the_limit() {
    let state = admitted();
    let _ = state.lend(2).expect("eligible");
    assert!(state.revalue(1).expect("member").to.is_full());
    assert!(!state.revalue(2).expect("member").to.is_full());
    let _ = state.lend(2).expect("eligible");
    assert!(state.revalue(1).expect("member").to.is_full(), "over the limit counts as full");
    assert!(state.give_back(1, NONE).expect("out").to.is_full(), "one of two came back, the limit is one");
    assert!(!state.give_back(1, NONE).expect("out").to.is_full());
}

#[test]
fn removal_is_final_and_spent_only_when_unlinked_and_empty() {
    let state = admitted();
    let _ = state.lend(1).expect("eligible");
    let _ = state.remove().expect("member");
    assert!(state.remove().is_err(), "exactly one remover wins");
    assert!(state.hold(Hold::Excluded).is_err());
    assert!(!state.give_back(1, NONE).expect("the lease stays valid").to.is_spent());
    assert!(state.unlink().expect("removed").to.is_spent());

    let state = admitted();
    let _ = state.lend(1).expect("eligible");
    let _ = state.remove().expect("member");
    assert!(!state.unlink().expect("removed").to.is_spent());
    assert!(state.give_back(1, NONE).expect("out").to.is_spent());
}

#[test]
fn standing_takes_the_gravest_obstacle() {
    let state = admitted();
    let _ = state.lend(1).expect("eligible");
    for (hold, standing) in [
        (Hold::Cooling, Standing::AtCapacity),
        (Hold::Ejected, Standing::Ejected),
        (Hold::Draining, Standing::Draining),
        (Hold::Excluded, Standing::Excluded),
    ] {
        let _ = state.hold(hold).expect("member");
        assert_eq!(state.load().standing(), standing);
    }
}

#[test]
fn debug_takes_the_word_apart() {
    let state = admitted();
    let _ = (state.lend(3), state.hold(Hold::Ejected));
    let text = "State { generation: 0, in_flight: 1, standing: Ejected, flags: 0b00001000 }";
    assert_eq!(format!("{:?}", state.load()), text);
    assert_eq!(format!("{state:?}"), text);
}

#[test]
fn generation_wraps_without_touching_the_rest() {
    let state = State { generation: u32::MAX, bits: flag::EXCLUDED | (5 << IN_FLIGHT_SHIFT) };
    let next = state.next_generation();
    assert_eq!((next.generation(), next.bits), (0, state.bits));
}
