//! Those who collect several units, against others who wait.

use super::*;

/// The one of `collectors` that has its units gives them back.
fn end_one<F: Future<Output = Result<Vec<T>, WaitError>>, T>(collectors: &mut Vec<Task<F>>) {
    let served = collectors.iter_mut().position(|task| task.woken() > 0);
    let mut served = collectors.remove(served.expect("one has all that it wants"));
    assert!(collectors.iter().all(|task| task.woken() == 0), "one after the other");
    drop(served.done().unwrap());
}

/// One that takes anything is overtaken by one collector at most: by the one that had got a unit before it came. Whoever begins to collect
/// after that stood before it in order.
#[test]
fn a_plain_waiter_is_overtaken_by_the_one_that_has_begun_to_collect() {
    const COLLECTORS: usize = 100;
    // How many are served before the plain one, which comes as the 101st.
    for (ageing, has_begun, before) in [
        // Its class makes up for more arrivals than there are: it stands first.
        (1_000, false, 0),
        (1_000, true, 1),
        // It stands before as many as its class makes up for.
        (32, false, COLLECTORS + 1 - 32),
        (32, true, COLLECTORS + 1 - 32),
        (0, true, COLLECTORS),
    ] {
        let (fleet, _) = timed(|builder| builder.ageing(ageing), 2);
        let mut leases = fleet.acquire_many(2).unwrap();
        let mut collectors: Vec<_> =
            (0..COLLECTORS).map(|_| Task::waiting(fleet.acquire_many_async(2))).collect();
        if has_begun {
            drop(leases.pop());
        }
        let mut plain = Task::waiting(fleet.request().class(1).into_future());
        drop(leases);
        let mut overtaken = 0;
        while plain.woken() == 0 {
            end_one(&mut collectors);
            overtaken += 1;
        }
        assert_eq!(overtaken, before, "{ageing}, {has_begun}");
        drop(plain.done().unwrap());
        while !collectors.is_empty() {
            end_one(&mut collectors);
        }
        at_rest(&fleet);
    }
}
