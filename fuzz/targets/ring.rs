//! The affinity ring against its definition: the shard with the lowest score, as an exact fraction, over all points. And what
//! follows from it: a change moves only keys of the shard that was changed, in the direction of the change; only ratios of
//! weights matter; every shard with a weight has keys.
//!
//! Input: virtual nodes, number of shards, weights; then changes, each followed by lookups.
#![cfg_attr(fuzzing, no_main)]

use leasehold::{Ring, RingError, SplitMix64};
use leasehold_fuzz::{Bytes, target};

/// What a hash's low bits are not part of.
const SHARD_BITS: u32 = 10;
const SPAN: u64 = 1 << (64 - SHARD_BITS);

/// The position of each point, with its shard: the v-th output of the shard's own generator.
fn points(weights: &[u32], virtual_nodes: u32) -> Vec<(u64, usize)> {
    let of = |shard: usize| {
        let mut random = SplitMix64::new(SplitMix64::mix(shard as u64 + 1));
        (0..virtual_nodes).map(move |_| (random.next_u64() >> SHARD_BITS, shard))
    };
    (0..weights.len()).filter(|&shard| weights[shard] != 0).flat_map(of).collect()
}

/// The lowest (distance / weight); of equal scores the larger weight, then the higher number.
fn owner(points: &[(u64, usize)], weights: &[u32], hash: u64) -> usize {
    let key = hash >> SHARD_BITS;
    let mut best: Option<(u128, usize)> = None;
    for &(point, shard) in points {
        let distance = u128::from(key.wrapping_sub(point) & (SPAN - 1));
        let better = best.is_none_or(|(least, holder)| {
            let (new, old) = (distance * u128::from(weights[holder]), least * u128::from(weights[shard]));
            (old, weights[shard], shard) > (new, weights[holder], holder)
        });
        if better {
            best = Some((distance, shard));
        }
    }
    best.expect("one shard has a weight").1
}

fn weight(bytes: &mut Bytes<'_>) -> u32 {
    match bytes.u8() {
        class @ 0..=127 => u32::from(class % 8),
        128..=191 => u32::from(bytes.u8()),
        192..=223 => u32::MAX - u32::from(bytes.u8()),
        _ => bytes.u32(),
    }
}

/// What must be refused, before all else.
fn refusal(weights: &[u32], virtual_nodes: u32) -> Option<RingError> {
    let given = weights.len();
    if !(1..=1024).contains(&given) {
        return Some(RingError::Shards { given });
    }
    let limit = (1u32 << 20) / given as u32;
    if !(1..=limit).contains(&virtual_nodes) {
        return Some(RingError::VirtualNodes { given: virtual_nodes, limit });
    }
    weights.iter().all(|&weight| weight == 0).then_some(RingError::NoWeight)
}

struct Checked {
    weights: Vec<u32>,
    virtual_nodes: u32,
    points: Vec<(u64, usize)>,
    ring: Ring,
}

impl Checked {
    fn new(weights: Vec<u32>, virtual_nodes: u32) -> Option<Self> {
        match (Ring::new(&weights, virtual_nodes), refusal(&weights, virtual_nodes)) {
            (Ok(ring), None) => {
                let points = points(&weights, virtual_nodes);
                Some(Checked { weights, virtual_nodes, points, ring })
            }
            (Err(error), Some(expected)) => {
                assert_eq!(error, expected);
                None
            }
            (result, expected) => panic!("{result:?} instead of {expected:?}"),
        }
    }

    fn check(&self, hashes: &[u64]) {
        let Checked { weights, points, ring, .. } = self;
        assert_eq!(ring.shards(), weights.len());
        for &hash in hashes {
            assert_eq!(ring.shard_of(hash), owner(points, weights, hash), "at {hash:#x}");
        }
        let order: Vec<usize> = ring.successors(hashes[0]).collect();
        assert_eq!(order[0], ring.shard_of(hashes[0]));
        assert!(order.is_sorted_by_key(|&shard| weights[shard] == 0), "those without a weight last");
        let mut sorted = order;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..weights.len()), "each shard once");
        // Its own point scores zero there, and nothing is lower.
        for shard in (0..weights.len()).filter(|&shard| weights[shard] != 0) {
            let reached =
                points.iter().any(|&(at, of)| of == shard && ring.shard_of(at << SHARD_BITS) == shard);
            assert!(reached, "shard {shard} is out of reach");
        }
    }

    /// Another set of weights: who gains gets keys from others only, who loses gives away its own only.
    fn change(self, weights: Vec<u32>, hashes: &[u64]) -> Option<Self> {
        let next = Checked::new(weights, self.virtual_nodes)?;
        let weight = |of: &Checked, shard: usize| of.weights.get(shard).copied().unwrap_or(0);
        let shards = self.weights.len().max(next.weights.len());
        let changed: Vec<usize> = (0..shards).filter(|&i| weight(&self, i) != weight(&next, i)).collect();
        for &hash in hashes {
            let (from, to) = (self.ring.shard_of(hash), next.ring.shard_of(hash));
            if from != to {
                let lost = changed.contains(&from) && weight(&next, from) < weight(&self, from);
                let gained = changed.contains(&to) && weight(&next, to) > weight(&self, to);
                assert!(lost || gained, "{hash:#x} moved from {from} to {to}, changed were {changed:?}");
            }
        }
        Some(next)
    }
}

/// Arbitrary ones, both ends, and both sides of some points: where intervals begin.
fn hashes(bytes: &mut Bytes<'_>, points: &[(u64, usize)]) -> Vec<u64> {
    let mut hashes = vec![bytes.u64(), 0, u64::MAX];
    let mut random = SplitMix64::new(hashes[0]);
    hashes.extend((0..8).map(|_| random.next_u64()));
    for _ in 0..4 {
        let (point, _) = points[usize::from(bytes.u16()) % points.len()];
        let at = point << SHARD_BITS;
        hashes.extend([
            at,
            at.wrapping_sub(1),
            at | ((1 << SHARD_BITS) - 1),
            at.wrapping_add(1 << SHARD_BITS),
        ]);
    }
    hashes
}

fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let virtual_nodes = match bytes.u8() {
        0 => bytes.u32(),
        nodes => u32::from(nodes % 32),
    };
    let shards = match bytes.u8() {
        255 => 1_000 + usize::from(bytes.u8() % 32),
        shards => usize::from(shards % 12),
    };
    let weights: Vec<u32> = (0..shards).map(|_| weight(&mut bytes)).collect();
    if virtual_nodes as usize * shards > 1_000 && refusal(&weights, virtual_nodes).is_none() {
        // The definition looks at every point, for every hash.
        return;
    }
    let Some(mut checked) = Checked::new(weights, virtual_nodes) else { return };
    for _ in 0..6 {
        let hashes = hashes(&mut bytes, &checked.points);
        checked.check(&hashes);
        let mut weights = checked.weights.clone();
        match bytes.u8() % 4 {
            0 => weights.push(weight(&mut bytes)),
            1 => drop(weights.pop()),
            2 => {
                let shard = usize::from(bytes.u8()) % weights.len();
                weights[shard] = weight(&mut bytes);
            }
            _ => {
                // Ratios as before.
                let factor = 1 + u32::from(bytes.u8());
                let larger: Option<Vec<u32>> = weights.iter().map(|w| w.checked_mul(factor)).collect();
                let Some(larger) = larger else { continue };
                let scaled = Checked::new(larger, checked.virtual_nodes).expect("was in range, and is");
                for &hash in &hashes {
                    assert_eq!(scaled.ring.shard_of(hash), checked.ring.shard_of(hash));
                }
                checked = scaled;
                continue;
            }
        }
        let Some(next) = checked.change(weights, &hashes) else { return };
        checked = next;
        if bytes.is_empty() {
            return;
        }
    }
}

target!(run);
