//! Waits that are given up: dropped at each poll, forgotten, timed out at the hand-off.

mod source;

use self::source::{Scene, Source};
use super::*;

type Make = fn(&Fleet) -> Pin<Box<dyn Future<Output = Result<usize, WaitError>> + '_>>;

const HOUR: Duration = Duration::from_secs(3_600);

/// A future is dropped after every number of polls, before, between and after two units that come, wherever they come from; who comes
/// next is served, and woken for it.
#[test]
fn dropped_at_every_poll() {
    let kinds: [Make; 18] = [
        |fleet| Box::pin(async { fleet.acquire_async().await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.acquire_key_async(&0).await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.acquire_by_affinity_async("x").await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.acquire_where_async(|entry| entry.key == 0).await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.acquire_many_async(2).await.map(|leases| leases.len()) }),
        |fleet| Box::pin(async { fleet.acquire_async_owned().await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.acquire_key_async_owned(&0).await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.acquire_by_affinity_async_owned("x").await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.acquire_where_async_owned(|entry| entry.key == 0).await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.request().many(2).owned().await.map(|leases| leases.len()) }),
        // With a deadline that does not come, and of a higher class.
        |fleet| Box::pin(async { fleet.request().timeout(HOUR).await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.request().key(&0).timeout(HOUR).await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.request().affinity("x").timeout(HOUR).owned().await.map(|_| 1) }),
        |fleet| {
            Box::pin(async {
                fleet.request().matching(|entry| entry.key == 0).timeout(HOUR).await.map(|_| 1)
            })
        },
        |fleet| Box::pin(async { fleet.request().many(2).timeout(HOUR).await.map(|leases| leases.len()) }),
        |fleet| Box::pin(async { fleet.request().class(3).await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.request().class(3).key(&0).timeout(HOUR).owned().await.map(|_| 1) }),
        |fleet| {
            Box::pin(async {
                fleet.request().class(3).many(2).timeout(HOUR).await.map(|leases| leases.len())
            })
        },
    ];
    for (source, fairness, has_timer) in Source::each() {
        for make in kinds {
            // Polls before and after each of two units; then it is dropped, and the next one must be served.
            for polls in 0..36u32 {
                let counts = [polls % 3, polls / 3 % 3, polls / 9];
                let early = counts[2] == 3;
                let scene = Scene::new(source, fairness, has_timer);
                let fleet = &scene.fleet;
                let mut future = Some(make(fleet));
                let mut ended = false;
                let mut poll = |times: u32, future: &mut Option<Pin<Box<dyn Future<Output = _> + '_>>>| {
                    for _ in 0..times {
                        let mut context = Context::from_waker(Waker::noop());
                        if !ended
                            && let Some(future) = future
                            && future.as_mut().poll(&mut context).is_ready()
                        {
                            ended = true;
                        }
                    }
                };
                poll(counts[0], &mut future);
                let mut next = waiting(fleet);
                scene.comes(0);
                poll(counts[1], &mut future);
                if early {
                    drop(future.take());
                }
                // Nobody may have wanted the first one yet.
                let mut last = Task::new(fleet.acquire_async());
                let at_once = last.poll();
                scene.comes(1);
                poll(counts[2], &mut future);
                drop(future);
                assert!(next.woken() > 0, "{source:?}: it is told");
                let one = next.done().unwrap();
                let two = match at_once {
                    Poll::Ready(lease) => lease,
                    Poll::Pending => {
                        assert!(last.woken() > 0, "{source:?}: it is told");
                        last.done()
                    }
                }
                .unwrap();
                assert_ne!(one.key(), two.key());
                drop((one, two));
                at_rest(fleet);
            }
        }
    }
}

/// The same for a deadline that comes after every number of polls, before, between and after two returns: the wait is over then, as the next
/// poll says; what it has got goes on to whoever is next.
#[test]
fn out_of_time_at_every_poll() {
    fn end() -> Timestamp {
        Timestamp::ZERO.saturating_add(SECOND)
    }
    let kinds: [Make; 7] = [
        |fleet| Box::pin(async { fleet.request().deadline(end()).await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.request().key(&0).deadline(end()).await.map(|_| 1) }),
        |fleet| Box::pin(async { fleet.request().affinity("x").deadline(end()).owned().await.map(|_| 1) }),
        |fleet| {
            Box::pin(async {
                fleet.request().matching(|entry| entry.key == 0).deadline(end()).await.map(|_| 1)
            })
        },
        |fleet| Box::pin(async { fleet.request().many(2).deadline(end()).await.map(|leases| leases.len()) }),
        |fleet| Box::pin(async { fleet.request().class(3).deadline(end()).owned().await.map(|_| 1) }),
        |fleet| {
            Box::pin(async {
                fleet.request().class(3).many(2).deadline(end()).await.map(|leases| leases.len())
            })
        },
    ];
    for (fairness, ticks) in [
        (Fairness::Strict, false),
        (Fairness::Strict, true),
        (Fairness::Throughput, false),
        (Fairness::Throughput, true),
    ] {
        for (make, polls) in kinds.into_iter().flat_map(|make| (0..81).map(move |polls| (make, polls))) {
            let (counts, over) = ([polls % 3, polls / 3 % 3, polls / 9 % 3], polls / 27);
            let (fleet, clock) = timed(|builder| builder.fairness(fairness), 2);
            let mut leases = fleet.acquire_many(2).unwrap();
            leases.sort_by_key(|lease| std::cmp::Reverse(*lease.key()));
            let mut task = Task::new(make(&fleet));
            let mut ended = None;
            let mut poll = |times: u32, ended: &mut Option<Result<usize, WaitError>>| {
                for _ in 0..times {
                    if ended.is_none()
                        && let Poll::Ready(output) = task.poll()
                    {
                        *ended = Some(output);
                    }
                }
            };
            let time_passes = |moment: u32| {
                if moment == over {
                    clock.advance(2 * SECOND);
                    if ticks {
                        let _ = fleet.tick();
                    }
                }
            };
            poll(counts[0], &mut ended);
            time_passes(0);
            let mut next = waiting(&fleet);
            drop(leases.pop());
            poll(counts[1], &mut ended);
            time_passes(1);
            let mut last = Task::new(fleet.acquire_async());
            let at_once = last.poll();
            drop(leases.pop());
            poll(counts[2], &mut ended);
            time_passes(2);
            poll(1, &mut ended);
            match ended {
                Some(Ok(units)) => assert!((1..=2).contains(&units)),
                Some(Err(WaitError::TimedOut { waited })) => assert!(waited <= 2 * SECOND, "{waited:?}"),
                other => panic!("{polls}: {other:?}"),
            }
            let one = next.done().unwrap();
            let two = match at_once {
                Poll::Ready(lease) => lease,
                Poll::Pending => last.done(),
            }
            .unwrap();
            assert_ne!(one.key(), two.key());
            drop((one, two));
            at_rest(&fleet);
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
    const ROUNDS: u64 = 300;
    for fairness in [Fairness::Strict, Fairness::Throughput] {
        let fleet = filled(Fleet::builder().shards(2).fairness(fairness).build().unwrap(), 2);
        let (got, late) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for i in 0..10u64 {
                let (fleet, got, late) = (&fleet, &got, &late);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let timeout = Duration::from_micros((round * 7 + i * 13) % 60);
                        let key = round as u32 % 2;
                        let one = |waited: Result<_, _>| waited.map(|lease| vec![lease]);
                        let waited = match i % 5 {
                            0 => one(fleet.acquire_timeout(timeout)),
                            1 => one(fleet.acquire_key_timeout(&key, timeout)),
                            2 => one(fleet.acquire_where_timeout(|entry| entry.key == key, timeout)),
                            3 => one(fleet.acquire_by_affinity_timeout(&round, timeout)),
                            _ => fleet.acquire_many_timeout(2, timeout),
                        };
                        match waited {
                            Ok(leases) => {
                                got.fetch_add(1, SeqCst);
                                let start = Instant::now();
                                while start.elapsed() < Duration::from_micros(20) {
                                    std::hint::spin_loop();
                                }
                                drop(leases);
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
        let late = late.into_inner();
        assert_eq!(got.into_inner() + late, 10 * ROUNDS as usize);
        assert_eq!(waits(&fleet).timed_out, late as u64, "whoever was told so, and nobody else");
        at_rest(&fleet);
    }
}
