//! `leasehold tune` from outside. That the code it recommends compiles is tested where the code is made.

use std::{
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

const QUICK: [&str; 6] = ["--requests", "1000", "--milliseconds", "50", "--rounds", "1"];

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold")).args(arguments).output().unwrap()
}

fn succeed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn recommends_from_a_scenario_and_from_a_trace() {
    for source in [["gateway"].as_slice(), &["--trace", "built-in", "--speed", "2"]] {
        let text = succeed(&[&["tune"], source, &QUICK].concat());
        for part in [
            "recommended  ",
            "runner-up    ",
            "on the workload",
            "Throughput",
            "\nnote  ",
            "Scheduler::<YourResource>::builder()",
            ".build()?;",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn what_is_recommended_was_tried() {
    let text = succeed(&[&["tune", "gpu"], &QUICK[..], &["--format", "json"]].concat());
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&result["schema"], &result["kind"]), (&1.into(), &"tune".into()));
    let simulated = result["simulated"].as_array().unwrap();
    let live = result["live"].as_array().unwrap();
    // 16 resources: one setting with one shard, eight with each of 2, 4, 8 and 16.
    assert_eq!(simulated.len(), 33);
    assert!((1..=7).contains(&live.len()));
    let advice = &result["advice"];
    assert!(simulated.iter().any(|tried| tried["setting"] == advice["setting"]));
    assert!(live.iter().any(|tried| tried["setting"] == advice["setting"]));
    let shards = advice["setting"].as_str().unwrap().split('@').next_back().unwrap();
    assert!(advice["code"].as_str().unwrap().contains(&format!(".shards({shards})")), "{advice}");
    // Every finalist with both kinds of fairness, on the workload.
    let played = result["played"].as_array().unwrap();
    assert_eq!(played.len(), 2 * live.len());
    for tried in live {
        let of = played.iter().filter(|one| one["setting"] == tried["setting"]);
        let kinds: Vec<&str> = of.map(|one| one["fairness"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["Strict", "Throughput"]);
    }
    assert!(played.iter().all(|one| one["throughput"].as_f64().unwrap() > 0.0), "{played:?}");
    assert_eq!(advice["fairness_measured"][0]["setting"], advice["setting"]);
    // What is different from the workload is said.
    assert!(
        result["limits"]
            .as_array()
            .unwrap()
            .iter()
            .any(|limit| limit == "virtual time leaves out cancellations")
    );
    // Virtual time: the same requests for all, and nobody is lost without being counted.
    let requests = result["requests"].as_u64().unwrap();
    for tried in simulated {
        assert_eq!(tried["completed"].as_u64().unwrap() + tried["lost"].as_u64().unwrap(), requests);
    }
}

#[test]
fn a_scenario_and_a_trace_exclude_each_other() {
    let output = run(&["tune", "gateway", "--trace", "built-in"]);
    assert_eq!(output.status.code(), Some(2));
}

/// Ctrl-C while settings are played: nothing is recommended from half of the data, and the exit code is its own.
#[cfg(unix)]
#[test]
fn ctrl_c_recommends_nothing() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    // Each play alone would take minutes.
    command.args(["tune", "gateway", "--requests", "200", "--milliseconds", "60000", "--rounds", "100"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The virtual part is a moment, also on a busy machine.
    thread::sleep(Duration::from_secs(8));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let since = Instant::now();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(stderr.contains("interrupted") && stderr.lines().count() == 1, "{stderr}");
}
