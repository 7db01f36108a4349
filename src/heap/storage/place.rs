//! Positions of the tree that have room.

/// Positions are below this: 24 levels.
pub(super) const LIMIT: u32 = 1 << 24;

/// A position with its level, known to have room in the storage that it came from.
///
/// * The level is kept so that the highest bit is searched for once an operation, not once a step, where it would be
///   part of the chain of dependent steps.
/// * A place is checked when it is made and not when it is used. It never becomes invalid, because room is never
///   taken away; whether there still is an entry is another question.
///
/// Rules, on which the `unsafe` code of [`Storage`](super::Storage) relies:
///
/// 1. `level` is the index of the highest bit of `position`, except that [`Place::in_line`] may come to position 0,
///    from positions 1 to 3 only.
/// 2. Only `Storage` makes places from numbers, and those are below its limit; all others are nearer to the root or
///    in the same line.
/// 3. A place is used only with the storage that it came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::heap) struct Place {
    position: u32,
    level: u32,
}

impl Place {
    /// A place for a position from 1 to below the storage's limit (rule 2).
    #[inline]
    pub(super) fn new(position: u32) -> Self {
        Place { position, level: position.ilog2() }
    }

    /// The child with `index` 0 or 1; the caller checks that it is below the limit (rule 2).
    #[inline]
    pub(super) fn child(self, index: u32) -> Self {
        Place { position: self.position * 2 + (index & 1), level: self.level + 1 }
    }

    /// The grandchild with `index` 0 to 3; the caller checks that it is below the limit (rule 2).
    #[inline]
    pub(super) fn grandchild(self, index: u32) -> Self {
        Place { position: self.position * 4 + (index & 3), level: self.level + 2 }
    }

    #[inline]
    pub(in crate::heap) fn position(self) -> u32 {
        self.position
    }

    #[inline]
    pub(super) fn level(self) -> u32 {
        self.level
    }

    /// Whether small entries are above on this level.
    #[inline]
    pub(in crate::heap) fn is_min(self) -> bool {
        self.level.is_multiple_of(2)
    }

    #[inline]
    pub(in crate::heap) fn parent(self) -> Option<Self> {
        (self.level >= 1).then(|| Place { position: self.position / 2, level: self.level - 1 })
    }

    #[inline]
    pub(in crate::heap) fn grandparent(self) -> Option<Self> {
        (self.level >= 2).then(|| Place { position: self.position / 4, level: self.level - 2 })
    }

    /// The place with `index` 0 to 3 in the line that `self` is in: among four grandchildren of one place.
    #[inline]
    pub(in crate::heap) fn in_line(self, index: u32) -> Self {
        Place { position: self.position & !3 | index & 3, level: self.level }
    }
}
