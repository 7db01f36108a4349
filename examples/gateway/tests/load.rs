//! Load with faults, in one process: clients, gateway, scheduler and provider have counted the same, exactly.

mod support;

use std::time::Duration;

use gateway::{
    load::{Plan, run},
    mock::{Faults, MockOptions},
};
use support::{Stand, fleet};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_counts_the_same() {
    let fleet = fleet(gateway::fleet::BUILT_IN);
    let mock = MockOptions { speed: 40.0, faults: Faults::some(), ..MockOptions::default() };
    let stand = Stand::start_with(&fleet, mock, |settings| {
        settings.limits.body = 4_096;
        settings.limits.attempt = Duration::from_secs(3);
        settings.limits.patience = Duration::from_millis(300);
    })
    .await;
    let report = run(Plan {
        gateway: stand.clients(),
        admin: stand.admin(),
        mock: stand.mock.uri(),
        duration: Duration::from_secs(4),
        clients: 24,
        seed: 7,
        too_large: 6_000,
        misbehave: true,
        until_end: false,
    })
    .await
    .expect("it comes to rest");
    assert!(report.differences.is_empty(), "{report:#?}");
    let clients = &report.clients;
    assert!(report.compared > 60 && clients.complete > 100 && clients.left_within > 0, "{clients:?}");
    assert!(report.provider.repeats > 0 && report.provider.sum(|seen| seen.rate_limited) > 0, "{report:?}");
}
