//! What errors say: what is wrong, with which key, and what is allowed. And what `Debug` shows of a scheduler's own types.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use leasehold::{
    AcquireError, BuildError, Builder, Capacity, Entry, ManualClock, Overflow, Rejected, Resource, Scheduler,
    SelectShard, ShardView, SplitMix64, Strategy, Token,
};

type Item = Entry<u32, u32, &'static str>;
type Fleet = Scheduler<Item>;

fn builder() -> Builder<Item> {
    Fleet::builder().shards(2).clock(ManualClock::new())
}

fn fleet() -> Fleet {
    let fleet = builder().build().expect("in range");
    fleet.insert(Entry::new(1, 0, "secret")).expect("new");
    fleet
}

fn says<T>(result: Result<T, impl Error>, text: &str) {
    assert_eq!(result.err().map(|error| error.to_string()).as_deref(), Some(text));
}

#[test]
fn a_builder_says_what_is_allowed() {
    let says = |builder: Builder<Item>, text: &str| says(builder.build(), text);
    says(builder().shards(0), "0 shards: allowed are 1 to 1024");
    says(builder().shards(1_025), "1025 shards: allowed are 1 to 1024");
    says(builder().strategy(Strategy::BestOf { choices: 0 }), "0 choices; allowed are 1 and more");
    says(
        builder().strategy(Strategy::Sticky { choices: 1, period: 0 }),
        "a period of 0; allowed are 1 and more",
    );
    says(
        builder().strategy(Strategy::Weighted(vec![1])),
        "1 weights for 2 shards; there must be one for each",
    );
    says(
        builder().strategy(Strategy::Weighted(vec![0, 0])),
        "all weights are 0; at least one must be positive",
    );
    says(builder().shard_weights(vec![0, 0]), "all shard weights are 0; at least one must be positive");
    says(
        builder().virtual_nodes(0),
        "0 virtual nodes a shard; allowed are 1 to 524288 at this number of shards",
    );
    says(builder().shard_weights(vec![1; 3]), "3 weights: one for each of 2 shards is needed");
    says(
        builder().event_capacity((1 << 24) + 1),
        "room for 16777217 events per shard: at most 16777216 are allowed",
    );
    says(
        builder().expected_resources(33_554_431),
        "33554431 resources expected: at most 33554430 are allowed",
    );
    says(
        builder().shards(1_024).expected_resources((1 << 30) + 1),
        "1073741825 resources expected: at most 1073741824 are allowed",
    );
    says(builder().max_resources(0, Overflow::Reject), "room for 0 resources: allowed are 1 to 4294967295");
    says(
        builder().max_resources(1 << 32, Overflow::Reject),
        "room for 4294967296 resources: allowed are 1 to 4294967295",
    );
    assert!(builder().max_resources(u32::MAX as usize, Overflow::Reject).build().is_ok());
    assert_eq!(builder().shards(0).build().err(), Some(BuildError::Shards { given: 0, max: 1_024 }));
}

#[test]
fn an_insertion_says_which_resource_and_why() {
    let fleet = fleet();
    says(fleet.insert(Entry::new(1, 0, "")), "resource 1 is in the fleet already");
    says(
        fleet.insert(Entry::new(2, 0, "").with_capacity(Capacity::Limited(0))),
        "capacity of resource 2 is limited to 0: allowed are 1 to 16777215",
    );
    says(
        fleet.insert_batch(vec![Entry::new(2, 0, ""), Entry::new(1, 0, "")]),
        "resource 1 is in the fleet already",
    );
    let full = builder().max_resources(1, Overflow::Reject).build().expect("in range");
    full.insert(Entry::new(1, 0, "")).expect("room");
    says(full.insert(Entry::new(2, 0, "")), "no room for resource 2: at most 1 are allowed");
    assert!(fleet.close());
    says(fleet.insert(Entry::new(2, 0, "")), "the scheduler is closed");
    says(fleet.insert_batch(vec![Entry::new(2, 0, "")]), "the scheduler is closed");

    struct Homed;
    impl Resource for Homed {
        type Key = u32;
        type Priority = ();
        fn key(&self) -> u32 {
            9
        }
        fn priority(&self, _: u32) {}
        fn home(&self, shards: usize) -> Option<usize> {
            Some(shards)
        }
    }
    let fleet = Scheduler::<Homed>::builder().shards(4).build().expect("in range");
    says(fleet.insert(Homed), "resource 9 wants shard 4: allowed are 0 to 3");
}

#[test]
fn a_change_says_which_resource_and_why() {
    let fleet = fleet();
    says(fleet.update(Entry::new(2, 0, "")), "resource 2 is not in the fleet");
    says(
        fleet.update(Entry::new(1, 0, "").with_capacity(Capacity::Limited(0))),
        "capacity of resource 1 is limited to 0: allowed are 1 to 16777215",
    );
    says(fleet.update_with(&1, |_| Entry::new(2, 0, "")), "an update of resource 1 must keep its key");
    says(fleet.exclude(&2), "resource 2 is not in the fleet");
    says(fleet.remove(&2), "resource 2 is not in the fleet");
    says(fleet.set_shard_weights(&[1]), "1 weights: one for each of 2 shards is needed");
    says(fleet.set_shard_weights(&[0, 0]), "all shard weights are 0; at least one must be positive");
    assert!(fleet.close());
    says(fleet.update(Entry::new(1, 0, "")), "the scheduler is closed");
    says(fleet.exclude(&1), "the scheduler is closed");
    says(fleet.set_shard_weights(&[1, 1]), "the scheduler is closed");
}

#[test]
fn an_acquisition_says_what_stands_in_the_way() {
    let clock = Arc::new(ManualClock::new());
    let fleet = builder().clock(Arc::clone(&clock)).build().expect("in range");
    for key in 0..6 {
        fleet.insert(Entry::new(key, 0, "")).expect("new");
    }
    let _lease = fleet.acquire_key(&0).expect("free");
    let _ = (fleet.cool(&1, Duration::from_secs(3)), fleet.eject(&2), fleet.drain(&3), fleet.exclude(&4));
    let other = fleet.acquire_key(&5).expect("free");
    says(
        fleet.acquire(),
        "no resource is eligible: 2 at capacity, 1 cooling, 1 ejected, 1 draining, 1 excluded; the next \
         one in 3s",
    );
    drop(other);
    let _ = fleet.warm(&1);
    says(
        fleet.acquire_where(|_| false),
        "no resource is eligible: 1 at capacity, 1 ejected, 1 draining, 1 excluded, 2 filtered out",
    );
    says(fleet.acquire_key(&0), "resource 0 is not eligible: at capacity, 1 lease out");
    says(fleet.acquire_key(&7), "resource 7 is not in the fleet");
    assert!(fleet.close());
    says(fleet.acquire(), "the scheduler is closed");
    says(fleet.acquire_key(&1), "the scheduler is closed");

    struct Wrong;
    impl SelectShard for Wrong {
        fn select(&self, _: &dyn ShardView, _: &mut SplitMix64) -> usize {
            7
        }
    }
    let fleet = builder().strategy(Strategy::Custom(Box::new(Wrong))).build().expect("in range");
    says(fleet.acquire(), "the strategy chose shard 7: allowed are 0 to 1");
}

#[test]
fn a_token_says_why_it_returned_nothing() {
    let fleet = fleet();
    let token = fleet.acquire().expect("free").into_token();
    fleet.release(token).expect("out");
    says(fleet.release(token), "the lease of this token was returned already: generation 1, now 2");
    says(fleet.release(Token::from_bytes([7; 16])), "the token is not one of this scheduler");
    says(
        "7".parse::<Token>(),
        "a token is three groups of 8, 8 and 16 lower-case hexadecimal digits, with dashes between",
    );
}

#[test]
fn debug_shows_what_it_is_and_no_value() {
    let fleet = Arc::new(fleet());
    let shows = |value: &dyn fmt::Debug, text: &str| assert_eq!(format!("{value:?}"), text);
    shows(&fleet, "Scheduler { shards: 2, members: 1, closed: false, .. }");
    let lease = fleet.acquire().expect("free");
    shows(&lease, "Lease { key: 1, .. }");
    drop(lease);
    let mut lease = fleet.acquire_owned().expect("free");
    shows(&lease, "OwnedLease { key: 1, .. }");
    let token = lease.token();
    shows(&token, &format!("Token({token})"));
    drop(lease);
    let peek = fleet.peek().expect("eligible");
    // Whoever prints a peek asks for the value.
    shows(&peek, &format!("{:?}", *peek));
    let rejected: Rejected<Item, _> = fleet.insert(Entry::new(1, 0, "secret")).expect_err("taken");
    shows(&rejected, "Rejected { error: Duplicate { key: 1 }, .. }");
    assert_eq!(rejected.into_inner().value, "secret");
    assert!(fleet.close());
    shows(&fleet, "Scheduler { shards: 2, members: 1, closed: true, .. }");
    assert_eq!(fleet.acquire().err(), Some(AcquireError::Closed));
}
