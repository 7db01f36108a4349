//! `leasehold pressure` from outside, with small runs: its reports, its exit codes, and that the pool holds back who submits too much.
//!
//! Cost: a second.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold")).arg("pressure").args(arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// 2 GB go through a queue of 20 MB: far less than either a run's worth, or the limit, is resident.
#[test]
fn a_queue_s_worth_is_resident() {
    let output = run(&[
        "--jobs",
        "2000",
        "--bytes",
        "1000000",
        "--capacity",
        "20",
        "--limit",
        "200000000",
        "--format",
        "json",
    ]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let report = json(&output);
    assert_eq!((report["schema"].as_u64(), report["jobs"].as_u64()), (Some(1), Some(2_000)));
    assert_eq!(report["kind"], "pressure");
    assert_eq!(report["holds"], Value::Bool(true));
    let resident = report["resident_bytes"].as_u64().expect("Linux says so");
    assert!((1_000_000..200_000_000).contains(&resident), "{resident}");
    assert!(report["seconds"].as_f64().expect("a number") > 0.0);
}

#[test]
fn too_much_is_told_and_fails() {
    let output = run(&["--jobs", "100", "--bytes", "100000", "--limit", "1000"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let table = String::from_utf8(output.stdout).unwrap();
    for expected in ["jobs                              100\n", "verdict                        FAILED\n"] {
        assert!(table.contains(expected), "{table}");
    }
}

#[test]
fn bad_numbers_are_refused() {
    for arguments in [["--jobs", "0"], ["--workers", "0"], ["--bytes", "x"], ["--capacity", "0"]] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn the_report_goes_where_it_should() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.json");
    let output = run(&["--jobs", "10", "--format", "json", "--out", path.to_str().unwrap()]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).expect("JSON");
    assert_eq!(report["bytes_per_job"].as_u64(), Some(500_000));
}
