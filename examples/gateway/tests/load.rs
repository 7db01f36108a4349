//! Load with faults, in one process: clients, gateway, scheduler and provider have counted the same, exactly.

mod support;

use std::time::Duration;

use gateway::{
    load::{Plan, Scrape, Tally, run},
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

/// Keys are taken back in the midst of answers. What those attempts come to is known to the gateway, which counts them as late, and is no
/// outcome. (The provider may have sent all of an answer that the gateway then broke off: it is not asked.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_and_scheduler_count_the_same_of_keys_that_are_taken_back() {
    let fleet = fleet(gateway::fleet::BUILT_IN);
    let mock = MockOptions { speed: 10.0, faults: Faults::some(), ..MockOptions::default() };
    let stand = Stand::start_with(&fleet, mock, |settings| {
        settings.limits.attempt = Duration::from_secs(3);
        settings.limits.patience = Duration::from_millis(300);
        settings.policy.max_hold = Duration::from_millis(100);
    })
    .await;
    let keys = stand.gateway.keys();
    for round in 0..15 {
        run(Plan {
            gateway: stand.clients(),
            admin: stand.admin(),
            mock: stand.mock.uri(),
            duration: Duration::from_secs(2),
            clients: 24,
            seed: 7 + round,
            too_large: 0,
            misbehave: true,
            until_end: false,
        })
        .await
        .expect("it comes to rest");
        let counted = Scrape::read(&stand.look("/metrics").await);
        let late = counted.sum("gateway_attempts_late_total", &[]);
        let attempts = counted.sum("gateway_attempts_total", &[]);
        assert_eq!(attempts, counted.sum("leasehold_outcomes_total", &[]) + late);
        for (outcome, results) in [
            ("ok", &["ok"] as &[&str]),
            ("rate_limited", &["rate_limited"]),
            ("cancelled", &["abandoned", "given_up"]),
        ] {
            let sum = |name: &str| -> i64 {
                results.iter().map(|result| counted.sum(name, &[("result", result)])).sum()
            };
            let heard = counted.sum("leasehold_outcomes_total", &[("outcome", outcome)]);
            let (all, late) = (sum("gateway_attempts_total"), sum("gateway_attempts_late_total"));
            assert_eq!(all, heard + late, "{outcome}");
        }
        assert_eq!(late.cast_unsigned(), keys.stats().revoked);
        if late > 10 {
            return;
        }
    }
    panic!("hardly anything was taken back");
}
