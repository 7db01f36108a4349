use super::*;
use crate::health::Backoff;

const OK: Outcome = Outcome::Ok { latency: Duration::from_millis(10) };
const SECOND: u64 = 1_000_000_000;
const AS_USUAL: Circumstances = Circumstances { can_eject: true, has_one_unit: true, cools: false, out: 1 };

fn report(outcome: Outcome, now: u64) -> Report {
    Report { outcome, now, cooldown: None, median: 10_000_000, successes: None, draw: 0 }
}

fn tell(record: &Record, rules: &Ejection, outcome: Outcome, now: u64) -> Verdict {
    record.judge(&report(outcome, now), Some(rules), AS_USUAL, || true)
}

#[test]
fn failures_in_a_row() {
    let (record, rules) = (Record::default(), Ejection::default());
    for _ in 0..4 {
        assert_eq!(tell(&record, &rules, Outcome::Failed, 0).eject, None);
    }
    let _ = tell(&record, &rules, OK, 0);
    for _ in 0..4 {
        assert_eq!(tell(&record, &rules, Outcome::Failed, 0).eject, None, "a success begins anew");
    }
    assert_eq!(tell(&record, &rules, Outcome::Failed, SECOND).eject, Some(31 * SECOND));
    assert_eq!(record.phase(), Phase::Ejected);
    assert_eq!(tell(&record, &rules, Outcome::Failed, SECOND).eject, None, "once");
}

#[test]
fn a_probe_decides() {
    let (record, rules) = (Record::default(), Ejection::default().consecutive_failures(1));
    assert_eq!(tell(&record, &rules, Outcome::Failed, 0).eject, Some(30 * SECOND));
    record.begin_probe(0);
    assert_eq!(tell(&record, &rules, Outcome::Cancelled, 40 * SECOND), Verdict::default(), "says nothing");
    assert_eq!(
        tell(&record, &rules, Outcome::Failed, 40 * SECOND).eject,
        Some(100 * SECOND),
        "twice as long"
    );
    record.begin_probe(0);
    assert!(tell(&record, &rules, OK, 100 * SECOND).ramps);
    assert_eq!(record.phase(), Phase::Ramping);
    // A sixth of the ramp: five times the latency.
    let rest = tell(&record, &rules, OK, 105 * SECOND).cool.expect("it rests");
    assert_eq!(rest - 105 * SECOND, 50_000_000);
    assert_eq!(tell(&record, &rules, OK, 130 * SECOND).cool, None, "the ramp is over");
    assert_eq!([100, 115, 130].map(|at| record.ramped(&rules, at * SECOND, 8)), [1, 4, 8]);
}

#[test]
fn what_it_has_made_good_is_forgiven() {
    let (record, rules) = (Record::default(), Ejection::default().consecutive_failures(1));
    let eject = |now: u64| tell(&record, &rules, Outcome::Failed, now).eject.expect("ill") - now;
    assert_eq!(eject(0), 30 * SECOND);
    record.begin_probe(0);
    assert_eq!(eject(30 * SECOND), 60 * SECOND);
    record.begin_probe(0);
    assert!(tell(&record, &rules, OK, 90 * SECOND).ramps);
    assert_eq!(eject(100 * SECOND), 120 * SECOND, "not yet");
    record.set_phase(Phase::Healthy);
    assert_eq!(eject(10_000 * SECOND), 30 * SECOND, "long ago");
}

#[test]
fn rates_and_latencies() {
    let (record, rules) =
        (Record::default(), Ejection::default().consecutive_failures(0).failure_rate(50, 10));
    for i in 0..9 {
        let outcome = if i % 2 == 0 { Outcome::Failed } else { OK };
        assert_eq!(tell(&record, &rules, outcome, 0).eject, None, "too few");
    }
    assert!(tell(&record, &rules, Outcome::Failed, 0).eject.is_some());
    let (record, rules) = (Record::default(), Ejection::default().latency(3.0, 4));
    let slow = Outcome::Ok { latency: Duration::from_millis(40) };
    let verdicts: Vec<_> = (0..4).map(|_| tell(&record, &rules, slow, 0).eject.is_some()).collect();
    assert_eq!(verdicts, [false, false, false, true]);
}

#[test]
fn failures_never_improve_a_score() {
    let record = Record::default();
    let _ = record.judge(&report(OK, 0), None, AS_USUAL, || true);
    let before = record.seen();
    for outcome in [Outcome::Failed, Outcome::RateLimited { retry_after: Duration::ZERO }, Outcome::Cancelled]
    {
        let _ = record.judge(&report(outcome, 0), None, AS_USUAL, || true);
        assert_eq!(record.seen().latency, before.latency);
        assert!(record.seen().failures >= before.failures);
    }
    assert_eq!(record.stats().succeeded, 1);
}

#[test]
fn nobody_looks_better_for_having_been_ejected() {
    let (record, rules) = (Record::default(), Ejection::default().consecutive_failures(1));
    let _ = tell(&record, &rules, OK, 0);
    for outcome in [Outcome::Failed, Outcome::Failed] {
        let before = record.seen();
        let _ = tell(&record, &rules, outcome, 0);
        record.begin_probe(0);
        assert_eq!(record.seen().latency, before.latency);
        assert!(record.seen().failures > before.failures);
    }
    record.begin_anew();
    assert_eq!(record.seen().failures, 2, "the operator knows better, and yet it has failed");
    assert_eq!(tell(&record, &rules, Outcome::Failed, 0).eject, Some(30 * SECOND), "the first time again");
}

#[test]
fn what_was_lent_before_is_no_probe() {
    let (record, rules) = (Record::default(), Ejection::default().consecutive_failures(1));
    let with = |out, outcome| {
        record.judge(&report(outcome, 40 * SECOND), Some(&rules), Circumstances { out, ..AS_USUAL }, || true)
    };
    let _ = with(4, Outcome::Failed);
    record.begin_probe(3);
    for out in [3, 2, 1] {
        assert_eq!(with(out, OK), Verdict::default(), "{out} out");
        assert_eq!(record.phase(), Phase::Probing);
    }
    assert!(with(1, OK).ramps, "the probe");
}

/// What comes back while it waits for its probe was lent before, and may come back long after: it is not judged by it.
#[test]
fn what_was_lent_before_weighs_nothing_after_the_probe() {
    let slow = Outcome::Ok { latency: Duration::from_secs(30) };
    let by_latency = Ejection::default().consecutive_failures(1).latency(3.0, 8);
    let by_rate = Ejection::default().consecutive_failures(0).failure_rate(50, 20);
    for (rules, old, next) in [(by_latency, slow, OK), (by_rate, Outcome::Failed, Outcome::Failed)] {
        let record = Record::default();
        let with = |out, outcome| {
            record.judge(&report(outcome, 0), Some(&rules), Circumstances { out, ..AS_USUAL }, || true)
        };
        while record.phase() == Phase::Healthy {
            let _ = with(31, old);
        }
        record.begin_probe(30);
        for out in (1..=30).rev() {
            assert_eq!(with(out, old), Verdict::default());
        }
        assert!(with(1, OK).ramps, "the probe");
        assert_eq!(with(1, next).eject, None, "the second outcome of a new life: {old:?}");
        assert_eq!(record.stats().recent, 2);
    }
}

/// It was ill while those were made, and there was no place for it.
#[test]
fn probes_that_failed_weigh_nothing_after_one_that_succeeds() {
    let (record, rules) =
        (Record::default(), Ejection::default().consecutive_failures(0).failure_rate(50, 20));
    while record.phase() == Phase::Healthy {
        let _ = tell(&record, &rules, Outcome::Failed, 0);
    }
    record.begin_probe(0);
    for _ in 0..30 {
        let verdict = record.judge(&report(Outcome::Failed, 0), Some(&rules), AS_USUAL, || false);
        assert_eq!((verdict.eject, record.phase()), (None, Phase::Probing));
    }
    assert!(tell(&record, &rules, OK, 0).ramps);
    assert_eq!(tell(&record, &rules, Outcome::Failed, 0).eject, None);
}

#[test]
fn when_nothing_is_out_the_next_is_the_probe() {
    let (record, rules) = (Record::default(), Ejection::default().consecutive_failures(1));
    let _ = tell(&record, &rules, Outcome::Failed, 0);
    record.begin_probe(1);
    record.nothing_is_out();
    assert!(tell(&record, &rules, OK, 40 * SECOND).ramps, "the older one came back, and said nothing");
}

#[test]
fn without_a_limit_the_ramp_goes_to_what_was_lent() {
    let (record, rules) = (Record::default(), Ejection::default().consecutive_failures(1));
    let with = |out, outcome, now| {
        record.judge(&report(outcome, now), Some(&rules), Circumstances { out, ..AS_USUAL }, || true)
    };
    let _ = with(100, OK, 0);
    let _ = with(60, Outcome::Failed, 0);
    record.begin_probe(0);
    assert!(with(1, OK, 100 * SECOND).ramps);
    assert_eq!([100, 115, 129].map(|at| record.ramped(&rules, at * SECOND, Capacity::MAX)), [1, 50, 96]);
    assert_eq!(record.ramped(&rules, 130 * SECOND, Capacity::MAX), Capacity::MAX);
}

#[test]
fn no_latency_is_too_long() {
    let mut estimate = 0;
    for value in [u64::MAX, 0, u64::MAX, u64::MAX] {
        estimate = towards_median(estimate, value);
    }
    assert!(estimate > 0);
    assert_eq!(towards_mean(u64::MAX, u64::MAX), u64::MAX);
}

#[test]
fn no_rest_is_none() {
    let record = Record::default();
    let cooldown = Some(Cooldown::default().on_rate_limit(Backoff::None));
    let limited = Outcome::RateLimited { retry_after: Duration::ZERO };
    let verdict = record.judge(&Report { cooldown, ..report(limited, 5) }, None, AS_USUAL, || true);
    assert_eq!(verdict.cool, None);
}

#[test]
fn without_a_place_it_stays() {
    let (record, rules) = (Record::default(), Ejection::default().consecutive_failures(1));
    let verdict = record.judge(&report(Outcome::Failed, 0), Some(&rules), AS_USUAL, || false);
    assert_eq!((verdict.eject, record.phase()), (None, Phase::Healthy));
    let verdict = record.judge(
        &report(Outcome::Failed, 0),
        Some(&rules),
        Circumstances { can_eject: false, ..AS_USUAL },
        || unreachable!(),
    );
    assert_eq!(verdict.eject, None);
}

#[test]
fn without_a_place_it_rests_longer_each_time_until_it_is_well() {
    let (record, rules) = (Record::default(), Ejection::default().consecutive_failures(1));
    let tell = |outcome, cools| {
        let circumstances = Circumstances { cools, ..AS_USUAL };
        record.judge(&report(outcome, 0), Some(&rules), circumstances, || false).cool
    };
    let rests = |times: u32| (0..times).map(|_| tell(Outcome::Failed, false).expect("it rests") / 1_000_000);
    assert_eq!(rests(6).collect::<Vec<_>>(), [100, 200, 400, 800, 1_600, 2_000]);
    assert_eq!(tell(Outcome::Failed, true), None, "it rests already");
    assert_eq!(tell(OK, false), None);
    assert_eq!(rests(1).collect::<Vec<_>>(), [100]);
    let none = rules.without_place(Backoff::None);
    assert_eq!(record.judge(&report(Outcome::Failed, 0), Some(&none), AS_USUAL, || false).cool, None);
}

/// As long as others do the work, and do little of it meanwhile: otherwise few and slow calls would mostly be its.
#[test]
fn without_a_place_it_rests_longer_while_others_are_well() {
    let (record, rules) = (Record::default(), Ejection::default().consecutive_failures(1).jitter(0));
    let mut successes = 0;
    let mut fail = |others: u64| {
        successes += others;
        let report = Report { successes: Some(successes), ..report(Outcome::Failed, 0) };
        record.judge(&report, Some(&rules), AS_USUAL, || false).cool.expect("it rests") / 1_000_000
    };
    let doubled = [100, 200, 400, 800, 1_600, 3_200, 6_400];
    assert_eq!(doubled.map(|_| fail(99)), doubled, "beyond 2 s");
    assert_eq!([fail(100), fail(5_000)], [6_400, 6_400], "a hundredth of the calls is little enough");
    assert_eq!((0..9).map(|_| fail(1)).last(), Some(300_000), "not for longer than it would be ejected");
    assert_eq!(fail(0), 2_000, "nobody else is well");
    // The last place was taken while it was on its way: how the others are was not asked.
    let (record, doubled) = (Record::default(), [100, 200, 400, 800, 1_600, 3_200, 6_400]);
    let fail = |successes| {
        let report = Report { successes, ..report(Outcome::Failed, 0) };
        record.judge(&report, Some(&rules), AS_USUAL, || false).cool.expect("it rests") / 1_000_000
    };
    assert_eq!([1, 2, 3, 4, 5, 6, 7].map(|successes| fail(Some(successes))), doubled);
    assert_eq!([fail(None), fail(None)], [6_400, 6_400], "neither longer nor as if all were ill");
    assert_eq!(fail(Some(8)), 12_800, "and it goes on from there");
    // Fixed is fixed.
    let (record, rules) = (Record::default(), rules.without_place(Backoff::Fixed(Duration::from_secs(7))));
    for successes in 0..9 {
        let report = Report { successes: Some(successes), ..report(Outcome::Failed, 0) };
        assert_eq!(record.judge(&report, Some(&rules), AS_USUAL, || false).cool, Some(7 * SECOND));
    }
}

/// All that it was lent for failed, so all of it counts, though only the first makes it rest.
#[test]
fn of_many_that_fail_together_without_a_place_each_wants_its_successes() {
    let (record, rules) = (Record::default(), Ejection::default().consecutive_failures(1).jitter(0));
    let mut successes = 0;
    let mut round = |others: u64, calls: u32| {
        successes += others;
        let report = Report { successes: Some(successes), ..report(Outcome::Failed, 0) };
        let rest = record.judge(&report, Some(&rules), AS_USUAL, || false).cool.expect("it rests");
        let cools = Circumstances { cools: true, ..AS_USUAL };
        let more = (1..calls).filter_map(|_| record.judge(&report, Some(&rules), cools, || false).cool);
        assert_eq!(more.count(), 0, "it rests already");
        rest / 1_000_000
    };
    assert_eq!(round(0, 8), 100);
    assert_eq!(round(400, 8), 200, "half of the 800 that 8 calls want");
    assert_eq!(round(100, 8), 1_600, "an eighth");
    assert_eq!(round(1, 2), 25_600, "twice for each call, and no more: one success says little");
    assert_eq!(round(199, 1), 51_200, "2 calls want 200");
    assert_eq!([round(100, 1), round(100, 1)], [51_200; 2], "enough");
}

#[test]
fn a_slow_success_without_a_place_lets_nobody_rest() {
    let (record, rules) = (Record::default(), Ejection::default().latency(3.0, 4));
    for _ in 0..64 {
        let slow = report(Outcome::Ok { latency: Duration::from_millis(40) }, 0);
        assert_eq!(record.judge(&slow, Some(&rules), AS_USUAL, || false), Verdict::default());
    }
}

#[test]
fn of_many_that_are_limited_together_one_counts() {
    let record = Record::default();
    let limited = Outcome::RateLimited { retry_after: Duration::ZERO };
    let report = Report { cooldown: Some(Cooldown::default()), ..report(limited, 0) };
    let tell = |cools| {
        record
            .judge(&report, None, Circumstances { cools, ..AS_USUAL }, || true)
            .cool
            .map(|at| at / 1_000_000)
    };
    assert_eq!(tell(false), Some(100));
    assert!((0..64).all(|_| tell(true) == Some(100)), "they were lent before");
    assert_eq!(tell(false), Some(200));
}

#[test]
fn on_the_ramp_every_outcome_rests() {
    let (record, rules) = (Record::default(), Ejection::default());
    assert_eq!((0..5).filter_map(|_| tell(&record, &rules, Outcome::Failed, 0).eject).count(), 1);
    record.begin_probe(0);
    assert!(tell(&record, &rules, OK, 40 * SECOND).ramps);
    // A sixth of the ramp: five times the mean.
    for outcome in [Outcome::Failed, Outcome::Cancelled, OK] {
        let rest = tell(&record, &rules, outcome, 45 * SECOND).cool.expect("it rests");
        assert_eq!(rest - 45 * SECOND, 50_000_000, "{outcome:?}");
    }
}

#[test]
fn the_median_is_found_and_outliers_do_not_move_it() {
    let mut estimate = 0;
    for i in 0..2_000u64 {
        let value = if i % 10 == 0 { 1_000_000 } else { 900 + i * 7919 % 200 };
        estimate = towards_median(estimate, value);
    }
    assert!((800..=1_200).contains(&estimate), "{estimate}");
}

#[test]
fn the_mean_is_not_the_last_latency() {
    let (record, rules) = (Record::default(), Ejection::default());
    for millis in [8, 16] {
        let _ = tell(&record, &rules, Outcome::Ok { latency: Duration::from_millis(millis) }, 0);
    }
    // Seven eighths of the one, one of the other.
    assert_eq!(record.seen().latency, Some(Duration::from_millis(9)));
    assert_eq!(record.stats().latency_nanos, 9_000_000);
}

#[test]
fn a_rate_is_of_the_last_64_and_exact() {
    let rules = Ejection::default().consecutive_failures(0).failure_rate(50, 4);
    let (record, tell_all) = (Record::default(), |record: &Record, outcomes: &[Outcome]| -> Vec<bool> {
        outcomes.iter().map(|&outcome| tell(record, &rules, outcome, 0).eject.is_some()).collect()
    });
    assert_eq!(tell_all(&record, &[OK, Outcome::Failed, OK, OK, Outcome::Failed]), [false; 5], "2 of 5");
    assert_eq!(tell_all(&record, &[Outcome::Failed]), [true], "3 of 6 is half of them");
    let (record, rare) = (Record::default(), Ejection::default().consecutive_failures(0));
    for _ in 0..32 {
        let _ = tell(&record, &rare, Outcome::Failed, 0);
    }
    assert_eq!((record.stats().recent, record.stats().recent_failures), (32, 32));
    for _ in 0..40 {
        let _ = tell(&record, &rare, OK, 0);
    }
    assert_eq!((record.stats().recent, record.stats().recent_failures), (64, 24));
    assert_eq!((record.stats().failed, record.stats().succeeded), (32, 40));
}

#[test]
fn an_outlier_is_above_the_factor() {
    let rules = Ejection::default().latency(3.0, 1);
    let ejected = |millis| {
        let outcome = Outcome::Ok { latency: Duration::from_millis(millis) };
        tell(&Record::default(), &rules, outcome, 0).eject.is_some()
    };
    assert_eq!([29, 30, 31].map(ejected), [false, false, true], "three times the median is not above it");
    let slow = report(Outcome::Ok { latency: Duration::from_secs(9) }, 0);
    let unknown = Report { median: 0, ..slow };
    assert_eq!(
        Record::default().judge(&unknown, Some(&rules), AS_USUAL, || true).eject,
        None,
        "no median yet"
    );
}

#[test]
fn the_median_moves_by_a_sixteenth_and_not_past_the_value() {
    let moves = [(0, 7), (160, 1_000), (160, 165), (160, 100), (160, 155), (160, 160), (8, 100), (8, 0)];
    assert_eq!(
        moves.map(|(estimate, value)| towards_median(estimate, value)),
        [7, 170, 165, 150, 155, 160, 9, 7]
    );
}

#[test]
fn of_an_ejection_each_time_of_its_length_forgives_one() {
    let (record, rules) = (Record::default(), Ejection::default().consecutive_failures(1).jitter(0));
    let eject = |now: u64| (tell(&record, &rules, Outcome::Failed, now).eject.expect("ill") - now) / SECOND;
    // Its probes fail: 30, 60 and 120 s, up to 210 s.
    assert_eq!(eject(0), 30);
    for (now, lasts) in [(30, 60), (90, 120)] {
        record.begin_probe(0);
        assert_eq!(eject(now * SECOND), lasts);
    }
    record.begin_probe(0);
    assert!(tell(&record, &rules, OK, 210 * SECOND).ramps);
    record.set_phase(Phase::Healthy);
    // Well for 239 s, almost twice 120: one is forgiven.
    assert_eq!(eject(449 * SECOND), 120);
    record.begin_probe(0);
    assert!(tell(&record, &rules, OK, 569 * SECOND).ramps);
    record.set_phase(Phase::Healthy);
    assert_eq!(eject((569 + 240) * SECOND), 60, "twice 120: two are");
}
