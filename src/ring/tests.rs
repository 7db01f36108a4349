use proptest::prelude::*;

use super::*;

const NODES: u32 = Ring::DEFAULT_VIRTUAL_NODES;

fn ring(weights: &[u32]) -> Ring {
    Ring::new(weights, NODES).expect("valid weights")
}

/// The exact share of each shard, from the lengths of the intervals.
fn shares(ring: &Ring) -> Vec<f64> {
    let mut shares = vec![0.0; ring.shards()];
    let mut start = 0;
    for &interval in &ring.ends {
        let end = (interval >> SHARD_BITS) + 1;
        shares[shard(interval)] += (end - start) as f64 / SPAN as f64;
        start = end;
    }
    assert_eq!(start, SPAN, "the intervals cover the ring");
    shares
}

/// Hashes that no structure of the ring can be in tune with.
fn hashes(count: u64) -> impl Iterator<Item = u64> {
    let mut random = SplitMix64::new(0x6b65_7973);
    (0..count).map(move |_| random.next_u64())
}

/// The definition, without any of the ring's machinery: the shard with the lowest score, as an exact fraction.
fn oracle(points: &[u64], weights: &[u32], hash: u64) -> usize {
    let key = hash >> SHARD_BITS;
    points
        .iter()
        .map(|&point| {
            let distance = key.wrapping_sub(point >> SHARD_BITS) & (SPAN - 1);
            (u128::from(distance), weights[shard(point)], shard(point))
        })
        .min_by(|a, b| {
            let (left, right) = (a.0 * u128::from(b.1), b.0 * u128::from(a.1));
            left.cmp(&right).then(b.1.cmp(&a.1)).then(b.2.cmp(&a.2))
        })
        .expect("at least one point")
        .2
}

#[test]
fn placement_is_pinned() {
    // If this fails, every user's keys move: that takes a major version.
    assert_eq!(affinity_hash("tenant-42"), 4_447_822_099_003_888_862);
    assert_eq!(affinity_hash(&42u64), 5_170_619_647_864_430_830);
    let ring = ring(&[1, 2, 3, 4, 0, 5, 6, 7]);
    let mut digest = AffinityHasher(0);
    for hash in hashes(10_000) {
        digest.write_usize(ring.shard_of(hash));
        digest.write_usize(ring.successors(hash).nth(1).expect("seven shards with a weight"));
    }
    assert_eq!(digest.finish(), 939_941_330_316_441_967);
}

#[test]
fn the_whole_order_is_pinned() {
    // As for the placement: where a key goes when shards are out of service. Weights so unequal that the last ones are
    // left to the walk, and two shards without any.
    let ring = Ring::new(&[1, 0, 1 << 20, 1, 0, 1 << 20, 7], NODES).expect("valid");
    let mut digest = AffinityHasher(0);
    for hash in hashes(1_000) {
        ring.successors(hash).for_each(|shard| digest.write_usize(shard));
    }
    assert_eq!(digest.finish(), 6_982_531_955_142_330_383);
    // Weights of which the light ones are met by chance now and then, but not within the attempts that are made.
    let ring = Ring::new(&[1, 2, 4, 8, 16, 32, 64, 128], NODES).expect("valid");
    let mut digest = AffinityHasher(0);
    for hash in hashes(1_000) {
        ring.successors(hash).for_each(|shard| digest.write_usize(shard));
    }
    assert_eq!(digest.finish(), 4_076_605_092_778_280_087);
}

#[test]
fn hashes_of_every_length_and_width_are_pinned() {
    let bytes: Vec<u8> = (1..=40).map(|byte| byte * 6).collect();
    let mut digest = AffinityHasher(0);
    for length in 0..=bytes.len() {
        let mut one = AffinityHasher(0);
        one.write(&bytes[..length]);
        digest.write_u64(one.finish());
    }
    digest.write_u64(affinity_hash(&(0x12u8, -3i8, 0x1234u16, -4i16, 0x1234_5678u32, -5i32, 6u64, -7i64)));
    digest.write_u64(affinity_hash(&(0x0123_4567_89ab_cdef_1122_3344_5566_7788_u128, -8i128, 'x', true)));
    assert_eq!(digest.finish(), 1_939_051_878_221_705_220);
}

#[test]
fn affinity_hash_ignores_the_machine_as_far_as_values_go() {
    // What a 32-bit and a 64-bit machine hash must agree.
    assert_eq!(affinity_hash(&7usize), affinity_hash(&7u64));
    assert_eq!(affinity_hash(&-7isize), affinity_hash(&-7i64));
    // Whatever is equal by `Borrow` hashes equally.
    assert_eq!(affinity_hash("key"), affinity_hash(&String::from("key")));
    assert_ne!(affinity_hash(&[1u8][..]), affinity_hash(&[1u8, 0][..]));
    assert_ne!(affinity_hash(&("ab", "c")), affinity_hash(&("a", "bc")));
}

#[test]
fn affinity_hash_sees_every_bit() {
    fn differs<T: Hash>(value: T, zero: T) -> bool {
        affinity_hash(&value) != affinity_hash(&zero)
    }
    assert!((0..8).all(|bit| differs(1u8 << bit, 0)));
    assert!((0..16).all(|bit| differs(1u16 << bit, 0)));
    assert!((0..32).all(|bit| differs(1u32 << bit, 0)));
    assert!((0..64).all(|bit| differs(1u64 << bit, 0)));
    assert!((0..128).all(|bit| differs(1u128 << bit, 0)));
    for length in 1..=17 {
        for bit in 0..8 * length {
            let mut bytes = vec![0u8; length];
            bytes[bit / 8] = 1 << (bit % 8);
            assert!(differs(bytes, vec![0; length]), "bit {bit} of {length} bytes");
        }
    }
}

#[test]
fn affinity_hash_spreads_consecutive_keys_over_every_bit() {
    let keys = 1 << 14;
    let mut ones = [0u32; 64];
    for key in 0..keys {
        for (bit, count) in ones.iter_mut().enumerate() {
            *count += (affinity_hash(&(key as u64)) >> bit & 1) as u32;
        }
    }
    // Six standard deviations of a fair coin.
    let slack = 6 * 64;
    assert!(ones.iter().all(|count| count.abs_diff(keys / 2) < slack), "{ones:?}");

    let mut collisions = std::collections::HashSet::new();
    assert!((0..100_000).all(|key| collisions.insert(affinity_hash(&format!("user:{key}")))));
}

#[test]
fn spread_is_as_documented() {
    for (shards, most, least, deviation) in SPREAD {
        let shares: Vec<f64> =
            shares(&ring(&vec![1; shards])).iter().map(|share| share * shards as f64).collect();
        let max = shares.iter().copied().fold(f64::MIN, f64::max);
        let min = shares.iter().copied().fold(f64::MAX, f64::min);
        let sd = (shares.iter().map(|s| (s - 1.0).powi(2)).sum::<f64>() / shards as f64).sqrt();
        for (measured, documented) in [(max, most), (min, least), (sd, deviation)] {
            assert!(
                (measured - documented).abs() < 0.001,
                "{shards} shards: {measured} instead of {documented}"
            );
        }
    }
}
/// Shards, highest share, lowest share, standard deviation; all relative to the mean.
const SPREAD: [(usize, f64, f64, f64); 4] = [
    (2, 1.024, 0.976, 0.024),
    (8, 1.159, 0.907, 0.080),
    (32, 1.116, 0.887, 0.060),
    (1024, 1.288, 0.710, 0.081),
];

#[test]
fn shares_are_proportional_to_weights() {
    for weights in [&[1, 2, 3, 4][..], &[1, 100], &[1, 1, 1, 1, 1, 1, 1, 1000], &[u32::MAX, 1 << 30, 1 << 31]]
    {
        let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
        // Averaged over the luck of 128 points: four standard deviations of that.
        for (share, &weight) in shares(&ring(weights)).iter().zip(weights) {
            let relative = share / (f64::from(weight) / total);
            assert!((0.65..1.35).contains(&relative), "weight {weight} of {weights:?}: {relative}");
        }
    }
    // With more points the luck goes away and the proportion stays.
    let weights = [1, 10, 100, 1000];
    for (share, weight) in shares(&Ring::new(&weights, 1 << 18).expect("valid")).iter().zip(weights) {
        let relative = share / (f64::from(weight) / 1111.0);
        assert!((0.99..1.01).contains(&relative), "weight {weight}: {relative}");
    }
}

#[test]
fn scaling_all_weights_changes_nothing() {
    assert_eq!(ring(&[3, 1, 2]).ends, ring(&[300, 100, 200]).ends);
}

#[test]
fn c15_a_new_shard_takes_its_share_and_moves_nothing_else() {
    let (four, five) = (ring(&[1; 4]), ring(&[1; 5]));
    let keys = 100_000;
    let mut moved = 0;
    for hash in hashes(keys) {
        if four.shard_of(hash) != five.shard_of(hash) {
            assert_eq!(five.shard_of(hash), 4, "only to the new shard");
            moved += 1;
        }
    }
    assert!(moved as f64 <= 1.25 * keys as f64 / 5.0, "{moved} moved");
    assert!(moved as f64 >= 0.75 * keys as f64 / 5.0, "{moved} moved");
}

#[test]
fn a_new_weight_moves_keys_of_that_shard_only() {
    let before = ring(&[5, 1, 3, 2, 8]);
    for weight in [0, 1, 2, 4, 50] {
        let after = ring(&[5, 1, weight, 2, 8]);
        for hash in hashes(20_000) {
            let (from, to) = (before.shard_of(hash), after.shard_of(hash));
            assert!(from == to || if weight > 3 { to == 2 } else { from == 2 }, "{from} to {to} at {weight}");
        }
    }
}

#[test]
fn weight_zero_gets_nothing_and_comes_last() {
    let ring = ring(&[0, 1, 0, 1, 0]);
    let mut last = [0; 5];
    for hash in hashes(1_000) {
        assert!([1, 3].contains(&ring.shard_of(hash)));
        let order: Vec<usize> = ring.successors(hash).collect();
        assert_eq!(order.len(), 5);
        assert!(order[..2].iter().all(|shard| [1, 3].contains(shard)), "{order:?}");
        last[order[2]] += 1;
    }
    assert!([0, 2, 4].iter().all(|&shard| last[shard] > 0), "{last:?}");
}

#[test]
fn c9_the_keys_of_a_dead_shard_scatter_by_weight() {
    // Shard 0 is out of service; its keys must not end on one neighbour.
    let weights = [4, 1, 1, 2, 4];
    let ring = ring(&weights);
    let mut next = [0u32; 5];
    let mut total = 0;
    for hash in hashes(200_000) {
        let mut successors = ring.successors(hash);
        if successors.next() == Some(0) {
            next[successors.next().expect("five shards")] += 1;
            total += 1;
        }
    }
    assert_eq!(next[0], 0);
    for shard in 1..5 {
        let relative = f64::from(next[shard]) / (f64::from(total * weights[shard]) / 8.0);
        assert!((0.7..1.3).contains(&relative), "shard {shard}: {relative}; {next:?}");
    }
}

#[test]
fn one_shard_has_everything() {
    let ring = ring(&[7]);
    for hash in [0, 1, u64::MAX / 2, u64::MAX] {
        assert_eq!(ring.shard_of(hash), 0);
        assert_eq!(ring.successors(hash).collect::<Vec<_>>(), [0]);
    }
}

#[test]
fn the_largest_ring_is_complete_and_its_lookup_short() {
    let limit = (Ring::MAX_POINTS / MAX_SHARDS as u64) as u32;
    let ring = Ring::new(&[1; MAX_SHARDS], limit).expect("at the limit");
    assert_eq!(ring.successors(1).count(), MAX_SHARDS);
    let crowded: Vec<usize> = (0..ring.index.len()).filter(|&top| ring.index[top] & CROWDED != 0).collect();
    let ending = |&top: &usize| {
        let first = (ring.index[top] & !CROWDED) as usize;
        let to = ((top as u64 + 1) << ring.shift).wrapping_sub(1);
        ring.ends[first..].iter().take_while(|&&end| last(end) < to).count()
    };
    let longest = crowded.iter().map(ending).max();
    assert!(longest <= Some(12), "{longest:?}");
    let share = crowded.len() as f64 / ring.index.len() as f64;
    assert!(share < 0.1, "{share} of the index says nothing by itself");
}

#[test]
fn the_lightest_shard_keeps_its_place_among_the_heaviest() {
    // Next to weights four thousand million times as large its intervals are a few positions wide.
    let ring = Ring::new(&[u32::MAX, 0, 1, u32::MAX], 1 << 18).expect("valid");
    for hash in hashes(20) {
        let order: Vec<usize> = ring.successors(hash).collect();
        assert_eq!(order[2..], [2, 1]);
    }
}

/// A ring of given points.
fn ring_of(positions: &[(u64, usize)], weights: &[u32]) -> Ring {
    let mut points: Vec<u64> = positions.iter().map(|&(at, shard)| at << SHARD_BITS | shard as u64).collect();
    points.sort_unstable();
    let weighted = Ring::check(weights, 1).expect("valid");
    let ends = sweep(&points, weights);
    let (index, shift) = index(&ends);
    let ring = Ring { ends, index, shift, shards: weights.len(), weighted_len: weighted.len(), weighted };
    assert!(ring.ends.is_sorted_by(|a, b| a >> SHARD_BITS < b >> SHARD_BITS), "each interval has a position");
    assert_eq!(ring.ends.last().map(|end| end >> SHARD_BITS), Some(SPAN - 1), "they cover the ring");
    for near in [0, SPAN - 1].iter().copied().chain(ring.ends.iter().map(|end| end >> SHARD_BITS)) {
        for position in near.saturating_sub(3)..=(near + 3).min(SPAN - 1) {
            let hash = position << SHARD_BITS;
            assert_eq!(ring.shard_of(hash), oracle(&points, weights, hash), "at {position} of {positions:?}");
        }
    }
    ring
}

#[test]
fn a_score_takes_over_at_the_seam() {
    // The light shard's point is `gap` behind the heavy one's, so the heavy one, of twice the weight, takes over `gap`
    // after it: before, at, and behind the start of the ring.
    for gap in 5..=15 {
        ring_of(&[(SPAN - 10 - gap, 0), (SPAN - 10, 1)], &[2, 1]);
        // And the same with the seam among the points that follow.
        ring_of(&[(SPAN - 10 - gap, 0), (SPAN - 10, 1), (0, 0), (2, 1)], &[2, 1]);
        ring_of(&[(SPAN - 10 - gap, 0), (SPAN - 10, 1), (3, 2)], &[2, 1, 5]);
    }
}

#[test]
fn two_scores_take_over_at_one_position() {
    // Shard 1 gives way to shard 0, and shard 2 to shard 1, both 20 after the start; so does each alone a little earlier.
    for (first, second) in [(10, 15), (9, 15), (11, 15), (10, 14), (10, 16)] {
        ring_of(&[(100, 0), (100 + first, 1), (100 + second, 2)], &[4, 2, 1]);
    }
}

#[test]
fn the_index_has_two_to_four_entries_an_interval() {
    for (shards, nodes) in [(1, 1), (3, 5), (8, NODES), (7, 143), (1024, NODES)] {
        let ring = Ring::new(&vec![1; shards], nodes).expect("valid");
        let share = ring.index.len() as f64 / ring.ends.len() as f64;
        assert!((2.0..4.0).contains(&share), "{share} at {shards} shards of {nodes}");
    }
}

#[test]
fn the_index_says_what_the_intervals_say() {
    for weights in [&[1; 8][..], &[1, 2, 4, 0, 1000], &[3, 5], &[1]] {
        let ring = ring(weights);
        let step = 1 << (ring.shift - CUT_BITS);
        for &end in &ring.ends {
            // On both sides of the end, within its cut, and in the cuts around it.
            for hash in [0, 1, step, step + 1].map(|by: u64| last(end).wrapping_add(by)).into_iter().chain(
                [1, SHARD_MASK + 1, step - 1, step, step + 1].map(|by: u64| last(end).wrapping_sub(by)),
            ) {
                let interval = ring.ends.partition_point(|&end| last(end) < hash);
                assert_eq!(ring.shard_of(hash), shard(ring.ends[interval]), "{hash:#x} of {weights:?}");
                assert_eq!(ring.interval(hash), interval);
            }
        }
    }
}

#[test]
fn a_shard_that_owns_no_position_is_still_among_the_successors() {
    // It takes two points on one position, which random ones do not have in a million years: made by hand.
    let ends: Box<[u64]> = [(SPAN - 1) << SHARD_BITS].into();
    let (index, shift) = index(&ends);
    let weighted = Ring::check(&[1, 1, 0], 1).expect("valid");
    let ring = Ring { ends, index, shift, shards: 3, weighted_len: 2, weighted };
    let mut order: Vec<usize> = ring.successors(7).collect();
    assert_eq!(order[0], 0);
    order.sort_unstable();
    assert_eq!(order, [0, 1, 2]);
}

#[test]
fn debug_tells_the_sizes() {
    assert_eq!(
        format!("{:?}", Ring::new(&[1, 0], 1).expect("valid")),
        "Ring { shards: 2, weighted: 1, intervals: 1, .. }"
    );
}

#[test]
fn errors_tell_the_range() {
    assert_eq!(Ring::new(&[], 1).unwrap_err(), RingError::Shards { given: 0 });
    assert_eq!(Ring::new(&[1; 1025], 1).unwrap_err(), RingError::Shards { given: 1025 });
    assert_eq!(Ring::new(&[0, 0], 1).unwrap_err(), RingError::NoWeight);
    assert_eq!(Ring::new(&[1, 1], 0).unwrap_err(), RingError::VirtualNodes { given: 0, limit: 1 << 19 });
    let error = Ring::new(&[1; 1024], 1025).unwrap_err();
    assert_eq!(
        error.to_string(),
        "1025 virtual nodes a shard; allowed are 1 to 1024 at this number of shards"
    );
}

fn any_weights() -> impl Strategy<Value = Vec<u32>> {
    let weight = prop_oneof![4 => 0u32..8, 1 => 0u32..2_000, 1 => any::<u32>()];
    prop::collection::vec(weight, 1..12)
        .prop_filter("one weight is positive", |weights| weights.iter().any(|&weight| weight != 0))
}

proptest! {
    #[test]
    fn lookup_is_the_definition(weights in any_weights(), nodes in 1u32..20, hashes: [u64; 16]) {
        let ring = Ring::new(&weights, nodes).expect("valid");
        let points = points(&weights, nodes);
        let point = points[0];
        // The corners: both ends of the ring, and both sides of a point.
        let corners = [0, u64::MAX, point, point.wrapping_sub(1), point | SHARD_MASK];
        // Both sides of the ends of intervals, to the position.
        let ends = ring.ends.iter().take(20).flat_map(|&end| [end | SHARD_MASK, (end | SHARD_MASK).wrapping_add(1)]);
        for hash in hashes.into_iter().chain(corners).chain(ends) {
            prop_assert_eq!(ring.shard_of(hash), oracle(&points, &weights, hash), "at {}", hash);
        }
    }

    #[test]
    fn successors_are_all_shards_once_those_with_a_weight_first(
        weights in any_weights(), nodes in 1u32..20, hash: u64,
    ) {
        let ring = Ring::new(&weights, nodes).expect("valid");
        let order: Vec<usize> = ring.successors(hash).collect();
        prop_assert_eq!(order[0], ring.shard_of(hash));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..weights.len()).collect::<Vec<_>>());
        prop_assert!(order.is_sorted_by_key(|&shard| weights[shard] == 0), "{:?}", order);
    }

    #[test]
    fn one_change_moves_keys_of_one_shard(
        weights in any_weights(), changed in any::<prop::sample::Index>(), weight: u32, hashes: [u64; 32],
    ) {
        let changed = changed.index(weights.len());
        let mut after = weights.clone();
        after[changed] = weight;
        prop_assume!(weight != 0 || after.iter().any(|&weight| weight != 0));
        let (before, after) = (Ring::new(&weights, 16).expect("valid"), Ring::new(&after, 16).expect("valid"));
        for hash in hashes {
            let (from, to) = (before.shard_of(hash), after.shard_of(hash));
            prop_assert!(from == to || from == changed || to == changed);
        }
    }
}
