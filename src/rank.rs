//! Priorities as integers: order-preserving images of what users rank by.

use std::{cmp::Reverse, time::Duration};

/// What a resource is ranked by: anything that maps to a `u64` without changing the order.
///
/// **Lower is better.** The scheduler calls [`Priority::rank`] outside every lock and keeps only the number, so no
/// user code takes part in a comparison.
///
/// Implementations must keep the order: `a < b` implies `a.rank() <= b.rank()`. All implementations in this crate,
/// except those of wide tuples, also keep strictness.
///
/// ```
/// use leasehold::Priority;
/// use std::cmp::Reverse;
///
/// assert!((-3i32).rank() < 2i32.rank());
/// assert!(Reverse(10u32).rank() < Reverse(9u32).rank()); // most is best
/// assert!(1.5f64.rank() < f64::NAN.rank()); // not-a-number is worst
/// assert!((0u8, 200u16).rank() < (1u8, 3u16).rank()); // first field first
/// ```
pub trait Priority: Copy {
    /// The order-preserving image. Must be a pure function of `self`.
    fn rank(self) -> u64;
}

macro_rules! unsigned {
    ($($t:ty),*) => { $(
        impl Priority for $t {
            #[inline]
            fn rank(self) -> u64 {
                self as u64
            }
        }
    )* };
}

macro_rules! signed {
    ($($t:ty),*) => { $(
        impl Priority for $t {
            #[inline]
            fn rank(self) -> u64 {
                // Flipping the sign bit maps the signed order onto the unsigned one.
                (self as i64 as u64) ^ (1 << 63)
            }
        }
    )* };
}

unsigned!(u8, u16, u32, u64, usize, bool);
signed!(i8, i16, i32, i64, isize);

/// Total order: negative infinity is best, positive infinity is worst of the numbers, every NaN is worse still.
///
/// `-0.0` ranks just below `0.0`, as in [`f64::total_cmp`].
impl Priority for f64 {
    #[inline]
    fn rank(self) -> u64 {
        if self.is_nan() {
            return u64::MAX;
        }
        let bits = self.to_bits();
        // Negative numbers grow downwards: flip all bits; others: flip the sign.
        if bits >> 63 == 1 { !bits } else { bits | (1 << 63) }
    }
}

/// As for `f64`: the widening keeps the order exactly.
impl Priority for f32 {
    #[inline]
    fn rank(self) -> u64 {
        f64::from(self).rank()
    }
}

/// Nanoseconds, at most `u64::MAX` (584 years).
impl Priority for Duration {
    #[inline]
    fn rank(self) -> u64 {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A rank of no consequence: all are equal, and ties decide.
impl Priority for () {
    #[inline]
    fn rank(self) -> u64 {
        0
    }
}

/// The opposite order: the largest inner value is best.
impl<P: Priority> Priority for Reverse<P> {
    #[inline]
    fn rank(self) -> u64 {
        !self.0.rank()
    }
}

/// The types whose rank fits into fewer than 64 bits, so that several fit side by side.
///
/// Sealed: the widths below are what makes tuples keep their order.
pub trait Narrow: Priority + sealed::Sealed {
    /// Bits in use.
    const BITS: u32;
    /// The rank in the low [`Narrow::BITS`] bits.
    fn narrow(self) -> u64;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! narrow {
    ($($t:ty: $bits:expr, $flip:expr);* $(;)?) => { $(
        impl sealed::Sealed for $t {}
        impl Narrow for $t {
            const BITS: u32 = $bits;
            #[inline]
            fn narrow(self) -> u64 {
                // The cast keeps the low bits; the flip maps the signed order onto the unsigned one.
                ((self as i64 as u64) ^ $flip) & (u64::MAX >> (64 - $bits))
            }
        }
    )* };
}

narrow! {
    bool: 1, 0; u8: 8, 0; u16: 16, 0; u32: 32, 0;
    i8: 8, 1 << 7; i16: 16, 1 << 15; i32: 32, 1 << 31;
}

impl<P: Narrow> sealed::Sealed for Reverse<P> {}
impl<P: Narrow> Narrow for Reverse<P> {
    const BITS: u32 = P::BITS;
    #[inline]
    fn narrow(self) -> u64 {
        !self.0.narrow() & (u64::MAX >> (64 - P::BITS))
    }
}

/// First field first, exact: both fit into 64 bits.
impl<A: Narrow, B: Narrow> Priority for (A, B) {
    #[inline]
    fn rank(self) -> u64 {
        const { assert!(A::BITS + B::BITS <= 64) };
        (self.0.narrow() << B::BITS) | self.1.narrow()
    }
}

/// First field first, exact; a combination that needs more than 64 bits does not compile.
impl<A: Narrow, B: Narrow, C: Narrow> Priority for (A, B, C) {
    #[inline]
    fn rank(self) -> u64 {
        const {
            assert!(A::BITS + B::BITS + C::BITS <= 64, "the fields of a priority tuple must fit into 64 bits")
        };
        (((self.0.narrow() << B::BITS) | self.1.narrow()) << C::BITS) | self.2.narrow()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn integers_keep_their_order(a: i64, b: i64, c: u64, d: u64, e: i8, f: i8) {
            prop_assert_eq!(a.cmp(&b), a.rank().cmp(&b.rank()));
            prop_assert_eq!(c.cmp(&d), c.rank().cmp(&d.rank()));
            prop_assert_eq!(e.cmp(&f), e.rank().cmp(&f.rank()));
            prop_assert_eq!(b.cmp(&a), Reverse(a).rank().cmp(&Reverse(b).rank()));
        }

        #[test]
        fn floats_keep_their_total_order(a: f64, b: f64, c: f32, d: f32) {
            if !a.is_nan() && !b.is_nan() {
                prop_assert_eq!(a.total_cmp(&b), a.rank().cmp(&b.rank()));
            }
            if !c.is_nan() && !d.is_nan() {
                prop_assert_eq!(c.total_cmp(&d), c.rank().cmp(&d.rank()));
            }
        }

        #[test]
        fn tuples_are_lexicographic(a: (i8, u16), b: (i8, u16), c: (bool, i16, u32), d: (bool, i16, u32)) {
            prop_assert_eq!(a.cmp(&b), a.rank().cmp(&b.rank()));
            prop_assert_eq!(c.cmp(&d), c.rank().cmp(&d.rank()));
            let reversed = |t: (i8, u16)| (Reverse(t.0), t.1);
            prop_assert_eq!(reversed(a).cmp(&reversed(b)), reversed(a).rank().cmp(&reversed(b).rank()));
            // A reversed field must not spill over into the one above it.
            let second = |t: (i8, u16)| (t.0, Reverse(t.1));
            prop_assert_eq!(second(a).cmp(&second(b)), second(a).rank().cmp(&second(b).rank()));
        }
    }

    #[test]
    fn extremes() {
        for nan in [f64::NAN, -f64::NAN] {
            assert_eq!(nan.rank(), u64::MAX);
            assert!(f64::INFINITY.rank() < nan.rank());
        }
        assert!(f64::NEG_INFINITY.rank() < f64::MIN.rank());
        assert!(f32::INFINITY.rank() < f32::NAN.rank());
        assert_eq!((i64::MIN.rank(), i64::MAX.rank()), (0, u64::MAX));
        assert_eq!(Duration::MAX.rank(), u64::MAX);
        assert!(false.rank() < true.rank());
        assert_eq!(().rank(), 0);
    }
}
