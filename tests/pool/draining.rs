//! How many workers there are while a pool drains.

use std::{
    sync::{Arc, Barrier},
    time::Duration,
};

use leasehold::pool::{Order, Pool, Task};

use super::common::{in_time, task};

/// Jobs that wait for each other, of which all but one are in the queue when the shutdown begins: workers come for them, as they would in a pool that is
/// open. A shutdown without a limit would wait for ever otherwise.
#[test]
fn workers_come_while_a_pool_drains() {
    const MANY: usize = 4;
    for order in [Order::Fifo, Order::Priority] {
        let builder = Pool::<Task>::builder().adaptive(1, MANY).order(order);
        let builder = builder.scale_up_after(Duration::from_millis(100)).scale_rest(Duration::ZERO);
        let pool = builder.build().expect("in range");
        let meet = Arc::new(Barrier::new(MANY));
        for _ in 0..MANY {
            let meet = Arc::clone(&meet);
            pool.submit(task(move || _ = meet.wait())).expect("open");
        }
        let (ended, stats) = in_time("they meet", move || (pool.shutdown(Duration::MAX), pool.stats()));
        assert!(ended.is_complete(), "{order:?}: {ended:?}");
        assert_eq!((stats.done, stats.workers), (MANY as u64, 0), "{order:?}");
    }
}
