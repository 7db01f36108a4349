//! Wakers of others, which may do anything.
//!
//! A waker may drop the future that it wakes, or poll it there and then; either may hand on what it was woken for, and so wake the next. Of a
//! thousand who wait in one line each would do so inside the one before, and one return would need a stack for them all. So a thread is in so
//! many wakers at most, each inside another; those that come on top are put by, and called when the innermost of these has returned.

use std::task::Waker;

use super::quietly;

/// Calls a waker: user code, whose panic stops here. Maybe not before this thread comes out of a waker in which it is, if that is deep inside others.
pub fn wake(waker: Waker) {
    #[cfg(any(loom, shuttle))]
    let _ = quietly(|| waker.wake());
    #[cfg(not(any(loom, shuttle)))]
    nested::wake(waker);
}

// No model nests so deep, and a place that each thread has is not theirs to see.
#[cfg(not(any(loom, shuttle)))]
mod nested {
    use std::{
        cell::{Cell, RefCell},
        collections::VecDeque,
        task::Waker,
    };

    use super::quietly;

    /// A handful is not worth putting off; a stack has room for some dozens.
    const DEEPEST: u32 = 16;

    std::thread_local! {
        /// In how many wakers the thread is.
        static DEPTH: Cell<u32> = const { Cell::new(0) };
        static PUT_BY: RefCell<VecDeque<Waker>> = const { RefCell::new(VecDeque::new()) };
    }

    pub fn wake(waker: Waker) {
        let depth = DEPTH.get();
        let mut waker = Some(waker);
        if depth == DEEPEST {
            // It fails if the thread is ending: then it is called all the same.
            let _ = PUT_BY.try_with(|put_by| put_by.borrow_mut().extend(waker.take()));
        }
        let Some(waker) = waker else { return };
        DEPTH.set(depth + 1);
        let _ = quietly(|| waker.wake());
        if depth + 1 == DEEPEST {
            while let Ok(Some(next)) = PUT_BY.try_with(|put_by| put_by.borrow_mut().pop_front()) {
                let _ = quietly(|| next.wake());
            }
        }
        DEPTH.set(depth);
    }
}
