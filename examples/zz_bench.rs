use leasehold::*;
use std::{future::Future, pin::pin, task::{Context, Poll, Waker}, time::Instant};
fn main() {
    let fleet = Scheduler::<Entry<u32, u32, u64>>::builder().shards(8).build().unwrap();
    for key in 0..10_000 { fleet.insert(Entry::new(key, key % 7, 0)).unwrap(); }
    const N: u32 = 400_000;
    let plain = || { let s = Instant::now(); for _ in 0..N { drop(std::hint::black_box(fleet.acquire().unwrap())); } s.elapsed().as_nanos() as f64 / N as f64 };
    let task = || { let s = Instant::now(); let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..N { let f = pin!(fleet.acquire_async()); match f.poll(&mut cx) { Poll::Ready(l) => drop(std::hint::black_box(l.unwrap())), _ => panic!() } } s.elapsed().as_nanos() as f64 / N as f64 };
    plain(); task();
    let mut r: Vec<(f64, f64)> = (0..15).map(|_| (plain(), task())).collect();
    r.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    let m = r[7]; println!("plain {:.1} async {:.1} ratio median {:.3} min {:.3} max {:.3}", m.0, m.1, m.1 / m.0, r[0].1 / r[0].0, r[14].1 / r[14].0);
    let best = |f: &dyn Fn() -> f64| (0..15).map(|_| f()).fold(f64::MAX, f64::min);
    println!("best plain {:.1} best async {:.1}", best(&plain), best(&task));
}
