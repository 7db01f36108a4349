//! Positions of the tree together with their level.

/// Positions are below this: 24 levels.
pub(super) const LIMIT: u32 = 1 << 24;

/// A position and its level, kept together so that the highest bit is searched for once an operation and not once a
/// step: the search would be part of the chain of dependent steps.
///
/// Invariant, on which [`Storage`](super::storage::Storage) relies: `level` is the index of `position`'s highest bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    position: u32,
    level: u32,
}

impl Place {
    /// Where the smallest entry is.
    pub(super) const ROOT: Place = Place { position: 1, level: 0 };
    /// The first child of the root; with the second, where the largest entry is.
    pub(super) const LEFT: Place = Place { position: 2, level: 1 };
    /// The second child of the root.
    pub(super) const RIGHT: Place = Place { position: 3, level: 1 };

    /// # Panics
    ///
    /// If `position` is 0.
    #[inline]
    pub(super) fn of(position: u32) -> Self {
        Place { position, level: position.ilog2() }
    }

    #[inline]
    pub(super) fn position(self) -> u32 {
        self.position
    }

    #[inline]
    pub(super) fn level(self) -> u32 {
        self.level
    }

    /// Whether small entries are above on this level.
    #[inline]
    pub(super) fn is_min(self) -> bool {
        self.level.is_multiple_of(2)
    }

    #[inline]
    pub(super) fn parent(self) -> Option<Self> {
        (self.level >= 1).then(|| Place { position: self.position / 2, level: self.level - 1 })
    }

    #[inline]
    pub(super) fn grandparent(self) -> Option<Self> {
        (self.level >= 2).then(|| Place { position: self.position / 4, level: self.level - 2 })
    }

    /// The child with `index` 0 or 1, if it is within `len`.
    #[inline]
    pub(super) fn child(self, index: u32, len: u32) -> Option<Self> {
        let position = u64::from(self.position) * 2 + u64::from(index & 1);
        (position <= u64::from(len)).then(|| Place { position: position as u32, level: self.level + 1 })
    }

    /// The grandchild with `index` 0 to 3, if it is within `len`.
    #[inline]
    pub(super) fn grandchild(self, index: u32, len: u32) -> Option<Self> {
        let position = u64::from(self.position) * 4 + u64::from(index & 3);
        (position <= u64::from(len)).then(|| Place { position: position as u32, level: self.level + 2 })
    }

    /// The first grandchild, if all four are within `len`.
    #[inline]
    pub(super) fn grandchildren(self, len: u32) -> Option<Self> {
        self.grandchild(3, len).map(|last| last.in_line(0))
    }

    /// The place with `index` 0 to 3 among the four grandchildren that `self` is one of.
    #[inline]
    pub(super) fn in_line(self, index: u32) -> Self {
        assert!(self.level >= 2, "the first two levels have no grandparent");
        Place { position: self.position & !3 | index & 3, level: self.level }
    }
}
