//! The user's own choice.

use super::ShardView;
use crate::sync::SplitMix64;

/// A choice of the first shard that the built-in strategies do not offer.
///
/// # Callbacks
/// Called outside every lock, once for each acquisition, from any thread. May panic: the acquisition then has done
/// nothing. Whatever `select` remembers is shared by all threads; the `random` numbers are not.
///
/// ```
/// use leasehold::{SelectShard, ShardView, SplitMix64, Strategy};
///
/// /// The shard with the most eligible resources.
/// struct Fullest;
///
/// impl SelectShard for Fullest {
///     fn select(&self, view: &dyn ShardView, _random: &mut SplitMix64) -> usize {
///         (0..view.shards()).max_by_key(|&shard| view.eligible(shard)).unwrap_or(0)
///     }
///     fn name(&self) -> &str {
///         "fullest"
///     }
/// }
///
/// let strategy = Strategy::Custom(Box::new(Fullest));
/// assert_eq!(format!("{strategy:?}"), r#"Custom("fullest")"#);
/// ```
pub trait SelectShard: Send + Sync {
    /// The shard to try first, below `view.shards()`. Any other answer fails the acquisition with an error.
    fn select(&self, view: &dyn ShardView, random: &mut SplitMix64) -> usize;

    /// A short name, for metrics and logs.
    fn name(&self) -> &str {
        "custom"
    }
}
