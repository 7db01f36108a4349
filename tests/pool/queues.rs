//! The pool's two queues by themselves.

use std::collections::VecDeque;

use leasehold::pool::{BucketQueue, JobQueue, SegmentedQueue};

use super::common::ANY;

/// However many are asked for, and whatever has been taken before.
#[test]
fn all_that_there_is_may_be_asked_for() {
    fn check(queue: &impl JobQueue<u32>) {
        let mut out = VecDeque::new();
        for i in 0..100 {
            queue.push(i, ANY).expect("room");
        }
        assert_eq!(queue.pop_many(3, &mut out), 3);
        while queue.pop_many(usize::MAX, &mut out) > 0 {}
        assert!(out.into_iter().eq(0..100));
        assert!(queue.is_empty());
    }
    check(&SegmentedQueue::bounded(1_000));
    check(&SegmentedQueue::<u32>::with(u64::MAX, 7));
    check(&BucketQueue::bounded(1_000));
}
