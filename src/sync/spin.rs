//! Back-off for one retry loop.

/// Counts the failed attempts of one retry loop and waits a little longer after each.
///
/// Up to [`Spin::YIELD_AFTER`] attempts it burns a doubling number of pause instructions, after that it yields the
/// processor. In a model each attempt is a schedule point; from the third on loom is told that the branch leads
/// nowhere, which keeps spin loops of three threads inside its budget without losing a bug.
#[derive(Debug, Default)]
pub struct Spin(u32);

impl Spin {
    /// Attempts that spin; later ones yield.
    pub const YIELD_AFTER: u32 = 6;

    /// A loop that has not failed yet.
    pub const fn new() -> Self {
        Spin(0)
    }

    /// Failed attempts so far.
    #[cfg_attr(any(loom, shuttle), allow(dead_code))]
    pub fn attempts(&self) -> u32 {
        self.0
    }

    /// Records one failed attempt and waits.
    #[inline]
    pub fn once(&mut self) {
        self.0 = self.0.saturating_add(1);
        #[cfg(loom)]
        {
            if self.0 > 2 {
                loom::skip_branch();
            }
            loom::hint::spin_loop();
        }
        #[cfg(shuttle)]
        shuttle::hint::spin_loop();
        #[cfg(not(any(loom, shuttle)))]
        if self.0 <= Self::YIELD_AFTER {
            for _ in 0..1u32 << self.0 {
                core::hint::spin_loop();
            }
        } else {
            std::thread::yield_now();
        }
    }
}
