use super::*;
use crate::health::Backoff;

const OK: Outcome = Outcome::Ok { latency: Duration::from_millis(10) };
const SECOND: u64 = 1_000_000_000;
const AS_USUAL: Circumstances = Circumstances { can_eject: true, has_one_unit: true, cools: false, out: 1 };

fn report(outcome: Outcome, now: u64) -> Report {
    Report { outcome, now, cooldown: None, median: 10_000_000, draw: 0 }
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
    let cooldown = Some(Cooldown::default());
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
