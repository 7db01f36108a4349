//! What the pool's errors say, and what `Debug` shows of its types.

use std::{collections::VecDeque, error::Error, io};

use leasehold::pool::{
    BucketQueue, BuildError, Builder, CancelToken, Ending, EndingKind, Job, JobPriority, JobQueue, Order,
    Pool, PushError, Refusal, RejectReason, SegmentedQueue, Shutdown, Task,
};

use crate::common::{ANY, Gate, LONG, at_gate, bounded, closures, task};

#[test]
fn errors_say_what_is_allowed() {
    let says = |builder: Builder<Task>, text: &str| {
        let error = builder.build().expect_err("out of range");
        assert_eq!(error.to_string(), text);
        assert!(error.source().is_none());
    };
    let builder = || Pool::<Task>::builder().workers(1);
    says(builder().capacity(0), "a capacity of 0: allowed are 1 and more, by priority up to 16777216");
    says(
        builder().order(Order::Priority).capacity((1 << 24) + 1),
        "a capacity of 16777217: allowed are 1 and more, by priority up to 16777216",
    );
    says(builder().order(Order::Priority).unbounded(), "a queue by priority needs a capacity");
    says(builder().segment_slots(65_537), "segments of 65537 slots: allowed are 1 to 65536");
    says(builder().scale_up_at(1.5), "a utilisation of 1.5: allowed are 0 to 1");
    says(
        builder().workers(16_385),
        "16385 to 16385 workers: allowed are 1 to 16384, the least not above the most",
    );
    let error = BuildError::Thread(io::Error::from(io::ErrorKind::OutOfMemory));
    assert_eq!(error.to_string(), format!("no thread: {}", io::Error::from(io::ErrorKind::OutOfMemory)));
    assert!(error.source().is_some());
    // What is still in range.
    for builder in [
        builder().capacity(1),
        builder().order(Order::Priority).capacity(1 << 24),
        builder().segment_slots(1),
        builder().segment_slots(65_536),
        builder().scale_up_at(0.0),
        builder().scale_up_at(1.0),
        builder().adaptive(1, 1),
    ] {
        assert!(builder.build().is_ok());
    }
}

#[test]
fn refusals_say_why() {
    let texts = [
        (RejectReason::Full, "the pool's queue is full"),
        (RejectReason::Closed, "the pool takes no more jobs"),
        (RejectReason::Cancelled, "the job was cancelled before it was accepted"),
        (RejectReason::TimedOut, "the pool's queue had no room in time"),
    ];
    for (reason, text) in texts {
        assert_eq!(reason.to_string(), text);
    }
    for (reason, text) in [(Refusal::Full, "the queue is full"), (Refusal::Closed, "the queue is closed")] {
        assert_eq!(reason.to_string(), text);
        let error = PushError { item: 7, reason };
        assert_eq!((error.to_string().as_str(), error.item), (text, 7));
        assert_eq!(format!("{error:?}"), format!("PushError {{ reason: {reason:?}, .. }}"));
    }
    let (pool, token) = (closures(1), CancelToken::new());
    token.cancel();
    let error = pool.try_submit(task(|| ()).cancel_with(token)).expect_err("cancelled");
    assert_eq!(error.to_string(), "the job was cancelled before it was accepted");
    assert_eq!(format!("{error:?}"), "SubmitError { reason: Cancelled, .. }");
    assert!(error.into_job().is_cancelled());
}

#[test]
fn jobs_and_their_ends_are_shown() {
    let token = CancelToken::new();
    let job = task(|| ()).priority(JobPriority::HIGHEST).cancel_with(token.clone());
    assert_eq!(
        format!("{job:?} {:?}", job.payload()),
        "Job { priority: 1, is_cancelled: false, .. } Task { was_called: false }"
    );
    token.cancel();
    assert_eq!(format!("{job:?}"), "Job { priority: 1, is_cancelled: true, .. }");
    assert_eq!(format!("{:?} {:?}", Ending::Done, Ending::Failed("no".into())), "Done Failed(\"no\")");

    let (pool, gate) = (closures(1), Gate::default());
    let (job, handle) = at_gate(&gate).with_handle();
    pool.submit(job).expect("open");
    gate.has(1);
    assert_eq!(format!("{handle:?}"), "JobHandle { is_finished: false }");
    gate.open();
    let finished = handle.wait_timeout(LONG).expect("it ends");
    assert_eq!(format!("{finished:?}"), "Finished { ending: Done, .. }");
    assert_eq!(format!("{:?}", finished.payload.expect("of a job")), "Task { was_called: true }");

    let seen = pool.spawn(|context| format!("{context:?}")).expect("open");
    assert_eq!(seen.wait().expect("it ran"), "Context { worker: 0, is_cancelled: false, .. }");
    let (job, handle) = Task::returning(|_| 1);
    assert_eq!(format!("{handle:?}"), "TaskHandle { is_finished: false }");
    drop(job);
    assert!(handle.is_finished());
    assert_eq!(handle.wait().expect_err("it was dropped").kind(), EndingKind::Dropped);
}

#[test]
fn pools_and_queues_are_shown() {
    let text = format!("{:?}", Pool::<Task>::builder().adaptive(2, 3).capacity(5));
    assert_eq!(text, "Builder { workers: 2..=3, capacity: Some(5), order: Fifo, .. }");
    let (pool, gate) = (bounded(1, 1), Gate::default());
    assert!(format!("{pool:?}").starts_with("Pool { stats: PoolStats { "));
    pool.submit(at_gate(&gate)).expect("open");
    gate.has(1);
    pool.submit(task(|| ())).expect("room");
    let future = pool.submit_async(task(|| ()));
    assert_eq!(format!("{future:?}"), "SubmitFuture { waits: false, .. }");
    drop(future);
    gate.open();
    let done = pool.shutdown(LONG);
    assert_eq!(
        format!("{done:?}"),
        "Shutdown { unrun: 0, handed_back: 0, unlent: 0, given_up: 0, still_running: 0 }"
    );
    assert!(done.is_complete());
    let ended = |handed_back, given_up, still_running| {
        let (unrun, unlent) = (Vec::new(), Vec::new());
        Shutdown::<Task> { unrun, handed_back, unlent, given_up, still_running }.is_complete()
    };
    assert_eq!([ended(0, 0, 0), ended(1, 0, 0), ended(0, 1, 0), ended(0, 0, 1)], [true, false, false, false]);

    let (segmented, buckets) = (SegmentedQueue::bounded(4), BucketQueue::bounded(4));
    let queues: [&dyn JobQueue<u32>; 2] = [&segmented, &buckets];
    for queue in queues {
        queue.push(1, ANY).expect("room");
        assert_eq!((queue.len(), queue.capacity()), (1, Some(4)));
    }
    assert_eq!(format!("{segmented:?}"), "SegmentedQueue { len: 1, capacity: Some(4), .. }");
    assert_eq!(format!("{buckets:?}"), "BucketQueue { len: 1, capacity: 4, .. }");
    let unbounded = SegmentedQueue::<u32>::unbounded();
    assert_eq!(format!("{unbounded:?}"), "SegmentedQueue { len: 0, capacity: None, .. }");
}

/// What was set is told; and nothing at all is taken.
#[test]
fn a_job_keeps_its_urgency() {
    let job: Job<u8> = Job::new(7, |_, _| Ok(()));
    assert_eq!((job.get_priority(), *job.payload()), (JobPriority::NORMAL, 7));
    let job = job.priority(JobPriority::LOWEST);
    assert_eq!((job.get_priority().get(), job.into_payload()), (63, 7));
    let pool = closures(1);
    assert_eq!(pool.try_submit_many(&mut VecDeque::new()), Ok(()));
}
