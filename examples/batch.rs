//! Many resources at once: all of them or none, and nobody ever sees a part.

use leasehold::{Entry, InsertError, Scheduler};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proxies = Scheduler::<Entry<u32, u32, String>>::builder()
        .shards(4)
        // Room is made now rather than while inserting.
        .expected_resources(1_000)
        .build()?;

    let proxy = |i: u32| Entry::new(i, i % 7, format!("proxy-{i}.example.net"));
    assert_eq!(proxies.insert_batch((0..100).map(proxy).collect())?, 100);

    // The resources were spread over the shards.
    let stats = proxies.stats();
    assert_eq!(stats.shards, [25, 25, 25, 25]);

    // One key of this batch is in the fleet already, so nothing of it gets in, and all of it comes back.
    let rejected = proxies.insert_batch((99..200).map(proxy).collect()).unwrap_err();
    assert_eq!(rejected.error, InsertError::Duplicate { key: 99 });
    assert_eq!(proxies.len(), 100);
    let mut again = rejected.into_inner();
    assert_eq!(again.len(), 101);

    again.retain(|proxy| !proxies.contains(&proxy.key));
    assert_eq!(proxies.insert_batch(again)?, 100);
    assert_eq!(proxies.len(), 200);
    println!("{} proxies over {} shards", proxies.len(), proxies.shards());
    Ok(())
}
