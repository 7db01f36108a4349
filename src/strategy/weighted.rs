//! Random choice in proportion to weights, in constant time.

use crate::sync::SplitMix64;

/// Walker's alias method as built by Vose, in integers: equal columns, each shared by at most two shards.
///
/// Source: Vose, "A linear algorithm for generating random numbers with a given distribution", 1991.
#[derive(Debug)]
pub(super) struct AliasTable(Box<[Column]>);

#[derive(Clone, Copy, Debug)]
struct Column {
    /// Below this, out of 2^32, a coin keeps the column's own shard.
    keep: u32,
    /// The shard that has the rest of the column.
    alias: u32,
}

impl AliasTable {
    /// `None` if all weights are 0. At most 2^16 weights.
    pub(super) fn new(weights: &[u32]) -> Option<Self> {
        let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        if total == 0 {
            return None;
        }
        // Scaled so that a column is `total` high: no fractions, so no weight is lost to rounding here.
        let mut height: Vec<u64> =
            weights.iter().map(|&weight| u64::from(weight) * weights.len() as u64).collect();
        let mut columns: Vec<Column> =
            (0..weights.len()).map(|shard| Column { keep: u32::MAX, alias: shard as u32 }).collect();
        let (mut low, mut high): (Vec<usize>, Vec<usize>) =
            (0..weights.len()).partition(|&shard| height[shard] < total);
        while let (Some(&short), Some(&tall)) = (low.last(), high.last()) {
            low.pop();
            // The short one keeps its height, the tall one fills the column up.
            let keep = (u128::from(height[short]) << 32) / u128::from(total);
            columns[short] = Column { keep: keep as u32, alias: tall as u32 };
            height[tall] -= total - height[short];
            if height[tall] < total {
                high.pop();
                low.push(tall);
            }
        }
        // All that is left is exactly one column high, and its alias is itself.
        debug_assert!(low.is_empty() && high.iter().all(|&shard| height[shard] == total));
        Some(AliasTable(columns.into_boxed_slice()))
    }

    /// A shard, in proportion to the weights up to 2^-32; one of weight 0 never.
    #[inline]
    pub(super) fn draw(&self, random: &mut SplitMix64) -> usize {
        let bits = random.next_u64();
        let at = (((bits >> 32) * self.0.len() as u64) >> 32) as usize;
        let column = self.0[at];
        // A select rather than a branch: no predictor knows a fair coin.
        if (bits as u32) < column.keep { at } else { column.alias as usize }
    }
}
