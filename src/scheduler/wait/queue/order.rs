//! Who comes first.

/// Who comes first: arrival less class times ageing, then arrival. No two are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    urgency: i64,
    /// Shifted by [`CLASS`] bits; below it the class, which decides nothing, for no two arrivals are equal.
    arrival: u64,
}

/// Bits of a class.
const CLASS: u32 = u8::BITS;

impl Order {
    pub const FIRST: Order = Order { urgency: i64::MIN, arrival: 0 };
    pub(super) const LAST: Order = Order { urgency: i64::MAX, arrival: u64::MAX };

    /// Of one class, later arrivals have greater orders.
    pub(super) fn new(arrival: u64, class: u8, ageing: u32) -> Self {
        // No overflow: arrivals are counted from 0, and the product is below 2^40. The shift loses nothing before 2^56 of them.
        let urgency = arrival as i64 - i64::from(class) * i64::from(ageing);
        Order { urgency, arrival: arrival << CLASS | u64::from(class) }
    }

    pub(super) fn class(self) -> usize {
        usize::from(self.arrival as u8)
    }
}
