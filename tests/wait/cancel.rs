//! Waits that are given up: dropped at each poll, forgotten, timed out at the hand-off.

use super::*;

/// A future is dropped after every number of polls, in every state that its wait can be in.
#[test]
fn dropped_at_every_poll() {
    type Make = fn(&Fleet) -> Pin<Box<dyn Future<Output = Result<usize, WaitError>> + '_>>;
    let kinds: [Make; 5] = [
        |fleet| Box::pin(async { fleet.acquire_async().await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.acquire_key_async(&0).await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.acquire_by_affinity_async("x").await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.acquire_where_async(|entry| entry.key == 0).await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.acquire_many_async(2).await.map(|leases| leases.len()) }),
    ];
    for fairness in [Fairness::Strict, Fairness::Throughput] {
        for make in kinds {
            // Polls before and after each of two returns; then it is dropped, and the next one must be served.
            for polls in 0..27u32 {
                let counts = [polls % 3, polls / 3 % 3, polls / 9];
                let fleet = filled(Fleet::builder().shards(2).fairness(fairness).build().unwrap(), 2);
                let mut leases = fleet.acquire_many(2).unwrap();
                leases.sort_by_key(|lease| std::cmp::Reverse(*lease.key()));
                let mut future = make(&fleet);
                let mut ended = false;
                let mut poll = |times: u32, future: &mut Pin<Box<dyn Future<Output = _> + '_>>| {
                    for _ in 0..times {
                        let mut context = Context::from_waker(Waker::noop());
                        if !ended && future.as_mut().poll(&mut context).is_ready() {
                            ended = true;
                        }
                    }
                };
                poll(counts[0], &mut future);
                let mut next = waiting(&fleet);
                drop(leases.pop());
                poll(counts[1], &mut future);
                // Nobody may have wanted the first one yet.
                let mut last = Task::new(fleet.acquire_async());
                let at_once = last.poll();
                drop(leases.pop());
                poll(counts[2], &mut future);
                drop(future);
                let one = next.done().unwrap();
                let two = if let Poll::Ready(lease) = at_once { lease } else { last.done() }.unwrap();
                assert_ne!(one.key(), two.key());
                drop((one, two));
                at_rest(&fleet);
            }
        }
    }
}

/// A future that is forgotten costs its place in the queue, and the unit that it is handed; nothing else.
#[test]
fn a_leaked_future_costs_its_unit() {
    let fleet = fleet(3);
    let leases = fleet.acquire_many(3).unwrap();
    std::mem::forget(waiting(&fleet));
    std::mem::forget(Task::waiting(fleet.acquire_key_async(&1)));
    let mut alive = waiting(&fleet);
    drop(leases);
    drop(alive.done().unwrap());
    assert_eq!(fleet.stats().in_flight, 2);
    fleet.remove(&1).unwrap();
    fleet.insert(Entry::new(1, 0, 0)).unwrap();
    assert_eq!(fleet.acquire_many(2).unwrap().len(), 2);
}

/// Threads that time out at the instant of the hand-off: what is on its way is kept, or goes on; nothing is lost.
#[test]
fn timeouts_at_the_hand_off() {
    for fairness in [Fairness::Strict, Fairness::Throughput] {
        let fleet = filled(Fleet::builder().shards(2).fairness(fairness).build().unwrap(), 2);
        let (got, late) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for i in 0..6u64 {
                let (fleet, got, late) = (&fleet, &got, &late);
                scope.spawn(move || {
                    for round in 0..400u64 {
                        let timeout = Duration::from_micros((round * 7 + i * 13) % 60);
                        let waited = match i % 3 {
                            0 => fleet.acquire_timeout(timeout),
                            1 => fleet.acquire_key_timeout(&(round as u32 % 2), timeout),
                            _ => fleet.acquire_where_timeout(|entry| entry.key == round as u32 % 2, timeout),
                        };
                        match waited {
                            Ok(lease) => {
                                got.fetch_add(1, SeqCst);
                                let start = Instant::now();
                                while start.elapsed() < Duration::from_micros(20) {
                                    std::hint::spin_loop();
                                }
                                drop(lease);
                            }
                            Err(WaitError::TimedOut { .. }) => {
                                late.fetch_add(1, SeqCst);
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        assert_eq!(got.into_inner() + late.into_inner(), 6 * 400);
        at_rest(&fleet);
    }
}
