//! Who should have how many units: the same answer for everybody who sees the same lines.

use crate::cluster::engine::Line;

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
pub fn targets(lines: &[Line], total: u32) -> Vec<u32> {
    let needed = divide(&lines.iter().map(|line| line.need).collect::<Vec<_>>(), total);
    let left = total - needed.iter().sum::<u32>();
    let spare = divide(&lines.iter().map(|line| line.spare).collect::<Vec<_>>(), left);
    needed.into_iter().zip(spare).map(|(needed, spare)| needed + spare).collect()
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
        assert_eq!(targets(&[line(8, 4), line(0, 4)], 10), [9, 1], "need comes before spare");
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
