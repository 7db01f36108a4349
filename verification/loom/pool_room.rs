//! Room that is waited for with a job that may be cancelled.

use std::task::Waker;

use leasehold::{
    internals::{pool::Room, sync::Arc},
    pool::CancelToken,
};

use crate::common::{model_within, spawn};

/// Whoever waits for room is told that its job is cancelled, at any moment: it looks, and sleeps no more. Y1 to Y4 against X1 and X2 of `pool::cancel`; and
/// a ring beside it, which is passed on.
fn cancelled(rings: bool) {
    model_within(3, move || {
        let (room, token) = (Arc::new(Room::default()), CancelToken::new());
        let (mut first, _) = room.wait(None, false);
        let (second, _) = room.wait(Some(Waker::noop().clone()), false);
        let cancels = {
            let token = token.clone();
            spawn(move || token.cancel())
        };
        let worker = rings.then(|| {
            let room = Arc::clone(&room);
            spawn(move || room.ring(1))
        });
        first.heed(&token);
        if !token.is_cancelled() {
            let is_rung = first.sleep(None);
            assert!(is_rung || token.is_cancelled());
        }
        first.leave(false);
        cancels.join().expect("no panic");
        if let Some(worker) = worker {
            worker.join().expect("no panic");
        }
        assert_eq!(second.rung_or_leave(Waker::noop()), rings, "it has the ring, if there was one");
        assert_eq!(second.leave(true), rings);
        assert_eq!(room.waiting(), 0);
    });
}

#[test]
fn room_cancelled() {
    cancelled(false);
}

#[test]
fn room_rung_cancelled() {
    cancelled(true);
}

/// A bell that is used again while whoever cancels has it in hand: what is told of the job before is not told of the next.
#[test]
fn room_used_again_cancelled() {
    model_within(3, || {
        let (room, token) = (Arc::new(Room::default()), CancelToken::new());
        let (mut first, _) = room.wait(None, false);
        first.heed(&token);
        let cancels = {
            let token = token.clone();
            spawn(move || token.cancel())
        };
        first.leave(false);
        let (second, _) = room.wait(Some(Waker::noop().clone()), false);
        cancels.join().expect("no panic");
        assert!(!second.rung_or_leave(Waker::noop()), "nobody has told it anything");
        assert!(!second.leave(false));
    });
}
