//! Who should have how many units: the same answer for everybody who sees the same lines.

use crate::{
    cluster::{
        engine::Line,
        planted::{Planted, is_planted},
    },
    sync::SplitMix64,
};

/// Divides `total` among those who ask: nobody gets more than he asks for, and nobody who gets less than he asks for gets less than
/// another (but for what does not divide evenly, which goes to the later ones). Max-min fairness; Bertsekas and Gallager, "Data
/// Networks", 6.5.2.
///
/// O(n log n). The parts add up to the lesser of `total` and what is asked for.
pub fn divide(asked: &[u32], total: u32) -> Vec<u32> {
    let mut order: Vec<usize> = (0..asked.len()).collect();
    order.sort_by_key(|&place| (asked[place], place));
    let mut parts = vec![0; asked.len()];
    let mut left = total;
    for (done, &place) in order.iter().enumerate() {
        let even = left / (asked.len() - done) as u32;
        parts[place] = asked[place].min(even);
        left -= parts[place];
    }
    parts
}

/// The units that each member should have: first what is needed, then what should be spare.
///
/// If there are fewer units than members who need some, they take turns: nobody is left out for good. `turn` is the engine's.
pub fn targets(lines: &[Line], total: u32, turn: u64) -> Vec<u32> {
    let needy = lines.iter().filter(|line| line.need > 0).count();
    let needed = if (total as usize) < needy && !is_planted(Planted::NoTurns) {
        turns(lines, total, turn)
    } else {
        divide(&lines.iter().map(|line| line.need).collect::<Vec<_>>(), total)
    };
    let left = total - needed.iter().sum::<u32>();
    let spare = divide(&lines.iter().map(|line| line.spare).collect::<Vec<_>>(), left);
    needed.into_iter().zip(spare).map(|(needed, spare)| needed + spare).collect()
}

/// A unit each for the first who need one. Whether one comes before another does not depend on who needs something: a need that comes and goes
/// moves nothing that is before it.
///
/// Each other turn the order goes round: so everybody has his turn within twice as many turns as there are members. But whoever stands behind
/// many that need nothing has theirs as well. So in the turns between it is drawn, the same for all who see the same turn, and even in the long
/// run.
fn turns(lines: &[Line], total: u32, turn: u64) -> Vec<u32> {
    let members = lines.len() as u64;
    let before = |place: usize| {
        let place = place as u64;
        match turn % 2 {
            0 => (place + members - turn / 2 % members) % members,
            _ => SplitMix64::new(turn ^ place << 32).next_u64(),
        }
    };
    let mut needy: Vec<usize> = (0..lines.len()).filter(|&place| lines[place].need > 0).collect();
    needy.sort_by_key(|&place| (before(place), place));
    let mut parts = vec![0; lines.len()];
    needy.into_iter().take(total as usize).for_each(|place| parts[place] = 1);
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn examples() {
        assert_eq!(divide(&[10, 10, 10], 10), [3, 3, 4]);
        assert_eq!(divide(&[1, 10, 3], 10), [1, 6, 3]);
        assert_eq!(divide(&[1, 2], 10), [1, 2]);
        assert_eq!(divide(&[], 10), [0; 0]);
        let line = |need, spare| Line { need, spare, ..Line::default() };
        assert_eq!(targets(&[line(8, 4), line(0, 4)], 10, 5), [9, 1], "need comes before spare");
        let crowd = [line(2, 1), line(0, 4), line(1, 1), line(9, 1)];
        // Each other turn they go round, those that need nothing are passed by.
        let turns: Vec<_> = (0..4).map(|turn| targets(&crowd, 2, 2 * turn)).collect();
        assert_eq!(turns, [[1, 0, 1, 0], [0, 0, 1, 1], [0, 0, 1, 1], [1, 0, 0, 1]], "they take turns");
        assert_eq!(targets(&crowd, 3, 1), [1, 0, 1, 1]);
        // The need of another comes and goes: whose turn it is stays, or goes to that one.
        let calm = [line(1, 0), line(1, 0), line(0, 0)];
        let restless = [line(1, 0), line(1, 0), line(1, 0)];
        for turn in 0..100 {
            let (before, now) = (targets(&calm, 1, turn), targets(&restless, 1, turn));
            assert!(now == before || now == [0, 0, 1], "turn {turn}: {before:?}, {now:?}");
        }
    }

    /// Few among many that need nothing, who stand as they please.
    #[test]
    fn turns_are_even_and_nobody_waits_for_ever() {
        let line = |need| Line { need, ..Line::default() };
        let lines: Vec<Line> = (0..100).map(|place| line(u32::from(place < 2))).collect();
        let had: Vec<u64> = (0..10_000).filter(|&turn| targets(&lines, 1, turn)[1] == 1).collect();
        // A quarter or so: half of those that are drawn, and a hundredth of those that go round.
        assert!((2_300..2_800).contains(&had.len()), "{}", had.len());
        let longest = had.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(longest <= Some(200), "{longest:?}");
    }

    proptest! {
        #[test]
        fn parts_are_fair_and_complete(asked in prop::collection::vec(0u32..50, 0..12), total in 0u32..200) {
            let parts = divide(&asked, total);
            prop_assert_eq!(parts.iter().sum::<u32>(), total.min(asked.iter().sum()));
            for (part, asked) in parts.iter().zip(&asked) {
                prop_assert!(part <= asked);
                if part < asked {
                    prop_assert!(parts.iter().all(|other| *other <= part + 1));
                }
            }
        }
    }
}
