//! Jump hashing: one of n slots for a hash, so that a further slot moves few hashes, and only to itself.

use crate::sync::SplitMix64;

/// One of `slots` for `hash`, such that one more slot moves only 1 in `slots + 1` of all hashes, and only to it. 0 if there
/// are none.
///
/// J. Lamping and E. Veach, "A fast, minimal memory, consistent hash algorithm", 2014, in integers. O(log slots) expected.
pub fn jump(hash: u64, slots: u32) -> u32 {
    let mut random = SplitMix64::new(hash);
    let (mut slot, mut next) = (0u64, 0u64);
    while next < u64::from(slots) {
        slot = next;
        // (slot + 1) / u for a uniform u in (0, 1], with u = draw / 2^32: at least slot + 1.
        let draw = (random.next_u64() >> 32) + 1;
        next = ((slot + 1) << 32) / draw;
    }
    slot as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placement_is_pinned() {
        // If this fails, every user's ids move: that takes a major version.
        let slots = (1 << 24) - 1;
        let digest = (0..3_000)
            .fold(0, |digest, id| SplitMix64::mix(digest ^ u64::from(jump(SplitMix64::mix(id), slots))));
        assert_eq!(digest, 18_006_095_613_827_371_461);
    }

    #[test]
    fn moves_few_and_only_to_the_newcomer() {
        for slots in [1, 2, 9, 100, 1_000] {
            let mut moved = 0;
            let mut shares = vec![0u32; slots as usize];
            for hash in 0..20_000u64 {
                let hash = SplitMix64::mix(hash);
                let (old, new) = (jump(hash, slots), jump(hash, slots + 1));
                assert!(old < slots);
                assert!(new == old || new == slots, "{old} moved to {new} of {slots}");
                moved += u32::from(new != old);
                shares[old as usize] += 1;
            }
            let expected = 20_000 / (slots + 1);
            assert!(moved.abs_diff(expected) < expected / 4 + 30, "{moved} moved, expected were {expected}");
            let mean = 20_000 / slots;
            assert!(
                shares.iter().all(|share| share.abs_diff(mean) < mean / 2 + 30),
                "uneven at {slots} slots"
            );
        }
        assert_eq!(jump(7, 0), 0, "no slot: the caller passes it over");
    }
}
