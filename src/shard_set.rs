//! A set of shard numbers that fits on the stack.

/// The most shards that a scheduler can have.
pub const MAX_SHARDS: usize = 1024;

/// Which of up to [`MAX_SHARDS`] shards: 128 bytes, no allocation, O(1) per question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardSet([u64; MAX_SHARDS / 64]);

impl ShardSet {
    /// The empty set.
    pub const fn new() -> Self {
        ShardSet([0; MAX_SHARDS / 64])
    }

    /// Adds `shard`; `false` if it was in the set already.
    ///
    /// # Panics
    /// If `shard` is not below [`MAX_SHARDS`].
    #[inline]
    pub const fn insert(&mut self, shard: usize) -> bool {
        let bit = 1 << (shard % 64);
        let word = &mut self.0[shard / 64];
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Whether `shard` is in the set.
    ///
    /// # Panics
    /// If `shard` is not below [`MAX_SHARDS`].
    #[inline]
    pub const fn contains(&self, shard: usize) -> bool {
        self.0[shard / 64] & (1 << (shard % 64)) != 0
    }

    /// How many shards are in the set.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_each_shard_once() {
        let mut set = ShardSet::new();
        assert!(set.is_empty());
        for shard in [0, 63, 64, MAX_SHARDS - 1] {
            assert!(!set.contains(shard));
            assert!(set.insert(shard));
            assert!(!set.insert(shard));
            assert!(set.contains(shard));
        }
        assert_eq!(set.len(), 4);
    }
}
