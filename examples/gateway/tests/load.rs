//! Load with faults, in one process: clients, gateway, scheduler and provider have counted the same, exactly.

mod support;

use std::time::Duration;

use gateway::{
    load::{Plan, Tally, run},
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
    let (mut clients, mut repeats, mut limited) = (Tally::default(), 0, 0);
    // Once, and on a busy machine as often as it takes for everything to happen.
    for round in 0..15 {
        let report = run(Plan {
            gateway: stand.clients(),
            admin: stand.admin(),
            mock: stand.mock.uri(),
            duration: Duration::from_secs(4),
            clients: 24,
            seed: 7 + round,
            too_large: 6_000,
            misbehave: true,
            until_end: false,
        })
        .await
        .expect("it comes to rest");
        assert!(report.differences.is_empty() && report.compared > 60, "{report:#?}");
        clients.add(&report.clients);
        repeats += report.provider.repeats;
        limited += report.provider.sum(|seen| seen.rate_limited);
        if clients.complete > 100 && clients.left_within > 0 && repeats > 0 && limited > 0 {
            return;
        }
    }
    panic!("{clients:?}, {repeats} repeats, {limited} times limited");
}
