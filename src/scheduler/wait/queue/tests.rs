use super::*;

type Entry = crate::Entry<u32, u32, ()>;

#[test]
fn a_search_comes_by_each_filter_once() {
    const WAITERS: usize = 500;
    let mut queue = Queue::<Entry>::new(32);
    for _ in 0..WAITERS {
        let mut waiter = Waiter::new(Want::Matching, NEVER, 0, None);
        waiter.order = queue.arrive(0);
        let waiter = Arc::new(waiter);
        queue.insert(&waiter);
        let Brought { left, parked, .. } = queue.put_filter(waiter.order, Filter::new(|_| false));
        assert!(left.is_none() && parked.is_empty());
    }
    let mut search = Search::new();
    search.about(1);
    let mut asked = 0;
    while let Next::Ask(waiter, filter) = queue.next(0, &search) {
        asked += 1;
        search.answered(waiter.order, false);
        assert!(queue.put_filter(waiter.order, filter).left.is_none());
    }
    assert_eq!((asked, queue.passed), (WAITERS, WAITERS));
}
