//! `leasehold tune` from outside. That the code it recommends compiles is tested where the code is made.

use std::{
    io::{Seek, Write},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

const QUICK: [&str; 4] = ["--requests", "1000", "--rounds", "1"];
/// Milliseconds of a live round: a machine that stalls for so long lets nobody be answered in one of the first.
const LENGTHS: [&str; 3] = ["50", "500", "4000"];

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    if arguments.contains(&"-") {
        let mut trace = tempfile::tempfile().unwrap();
        trace.write_all(b"TIMESTAMP,ContextTokens,GeneratedTokens\n").unwrap();
        for row in 0..2_000 {
            let (second, millis) = (row / 20, row % 20 * 50);
            let (minute, second) = (second / 60, second % 60);
            writeln!(trace, "2023-11-16 18:{minute:02}:{second:02}.{millis:03}0000,100,{}", row % 300)
                .unwrap();
        }
        trace.rewind().unwrap();
        command.stdin(trace);
    }
    command.args(arguments).output().unwrap()
}

const TOO_SHORT: &str = "too short to judge";

/// What it says when all settings have been played, which a longer round makes sure of. Nothing else may be wrong, in none of the attempts.
fn succeed(arguments: &[&str]) -> String {
    succeed_until(arguments, |_| true)
}

fn succeed_until(arguments: &[&str], is_seen: impl Fn(&str) -> bool) -> String {
    let attempt = |length: &&str| {
        let output = run(&[arguments, &["--milliseconds", length]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let broken = broken(&text);
            panic!("{arguments:?}: {:?}: {stderr}{broken:?}{text}", output.status);
        }
        // Where nobody was answered nothing was compared either, which is said.
        let is_judged = !text.contains(TOO_SHORT);
        (output.status.success() && is_judged && is_seen(&text)).then_some(text)
    };
    LENGTHS.iter().find_map(attempt).unwrap_or_else(|| panic!("{arguments:?}: nobody was answered"))
}

/// What was wrong, as JSON or as a table says it.
fn broken(text: &str) -> Vec<String> {
    match serde_json::from_str::<Value>(text) {
        Ok(result) => {
            let broken = result["broken"].as_array().map_or(&[][..], Vec::as_slice);
            broken.iter().map(|fault| fault.as_str().unwrap().to_owned()).collect()
        }
        Err(_) => text.lines().filter_map(|line| line.strip_prefix("BROKEN  ")).map(str::to_owned).collect(),
    }
}

#[test]
fn recommends_from_a_scenario_and_from_a_trace() {
    for source in [["gateway"].as_slice(), &["--trace", "built-in", "--speed", "2"], &["--trace", "-"]] {
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

/// Three resources: no more than two shards of the usual numbers are worth a try.
#[test]
fn a_scenario_is_tuned_on_the_fleet_that_is_given() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fleet.toml");
    let text = ["a", "b", "c"]
        .map(|key| format!("[[resource]]\nkey = \"{key}\"\nmax_in_flight = 20\ntokens_per_second = 50\n"));
    std::fs::write(&path, text.concat()).unwrap();
    let fleet = path.to_str().unwrap();
    let text = succeed(&[&["tune", "gateway", "--fleet", fleet], &QUICK[..], &["--format", "json"]].concat());
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(result["workload"], format!("gateway on {fleet}"));
    // One setting with one shard, twelve with two.
    assert_eq!(result["simulated"].as_array().unwrap().len(), 13);
    assert!(result["broken"].as_array().unwrap().is_empty(), "{}", result["broken"]);
    let limits = result["limits"].as_array().unwrap();
    assert!(
        limits.iter().any(|limit| limit.as_str().unwrap().starts_with("of the fleet's resources")),
        "{limits:?}"
    );
}

#[test]
fn what_is_recommended_was_tried() {
    let all_complete = |text: &str| {
        let result: Value = serde_json::from_str(text).unwrap();
        result["played"].as_array().unwrap().iter().all(|one| one["throughput"].as_f64() > Some(0.0))
    };
    let text = succeed_until(&[&["tune", "gpu"], &QUICK[..], &["--format", "json"]].concat(), all_complete);
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&result["schema"], &result["kind"]), (&1.into(), &"tune".into()));
    let simulated = result["simulated"].as_array().unwrap();
    let live = result["live"].as_array().unwrap();
    // 16 resources: one setting with one shard, twelve with each of 2, 4, 8 and 16.
    assert_eq!(simulated.len(), 49);
    // Seven, and of each kind of strategy one.
    assert!((1..=12).contains(&live.len()));
    let advice = &result["advice"];
    assert!(simulated.iter().any(|tried| tried["setting"] == advice["setting"]));
    assert!(live.iter().any(|tried| tried["setting"] == advice["setting"]));
    let shards = advice["setting"].as_str().unwrap().split('@').next_back().unwrap();
    assert!(advice["code"].as_str().unwrap().contains(&format!(".shards({shards})")), "{advice}");
    // With what the runs had: tasks have a timer.
    assert!(advice["code"].as_str().unwrap().contains(".timer(TokioTimer::new("), "{advice}");
    assert!(result["broken"].as_array().unwrap().is_empty(), "{}", result["broken"]);
    // Every finalist with both kinds of fairness, on the workload.
    let played = result["played"].as_array().unwrap();
    assert_eq!(played.len(), 2 * live.len());
    for tried in live {
        let of = played.iter().filter(|one| one["setting"] == tried["setting"]);
        let kinds: Vec<&str> = of.map(|one| one["fairness"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["Strict", "Throughput"]);
    }
    assert_eq!(advice["fairness_measured"][0]["setting"], advice["setting"]);
    // What is different from the workload is said.
    let limits = result["limits"].as_array().unwrap();
    for left_out in [
        "virtual time leaves out cancellations",
        "nobody overtakes in virtual time, where a wake-up takes none: both kinds of fairness are compared live",
    ] {
        assert!(limits.iter().any(|limit| limit == left_out), "{left_out}: {limits:?}");
    }
    // Which rule has decided, of each another one.
    let (why, why_not) = (&advice["reason"], &advice["runner_up_reason"]);
    let rule = |text: &Value| text.as_str().unwrap().split(';').next().unwrap().to_owned();
    assert!(rule(why) != rule(why_not) && !rule(why).contains("requests lost"), "{why} {why_not}");
    // Virtual time: the same requests for all, and nobody is lost without being counted.
    let requests = result["requests"].as_u64().unwrap();
    for tried in simulated {
        assert_eq!(tried["completed"].as_u64().unwrap() + tried["lost"].as_u64().unwrap(), requests);
    }
}

/// Leases that are longer than any round: nobody is answered, which breaks no rule. What was simulated decides, and that is said.
#[test]
fn what_is_too_short_to_judge_is_no_fault() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("long.toml");
    std::fs::write(
        &path,
        "resources = 4\nworkers = 4\nhold = \"fixed 60s\"\nwait = \"20s\"\nduration = \"500ms\"\n",
    )
    .unwrap();
    let output = run(&[&["tune", path.to_str().unwrap()], &QUICK[..], &["--milliseconds", "200"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains(&format!("{TOO_SHORT} the workload")) && text.contains("\nrecommended  "),
        "{text}"
    );
    assert!(broken(&text).is_empty(), "{text}");
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
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // The virtual part is a moment, also on a busy machine. One that is still in it does not listen, and is killed by the signal.
    let ended = [8, 30, 60].into_iter().map(Duration::from_secs).find_map(|after| {
        let child = command.spawn().unwrap();
        thread::sleep(after);
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let since = Instant::now();
        let output = child.wait_with_output().unwrap();
        output.status.code().is_some().then(|| (output, since.elapsed()))
    });
    let (output, took) = ended.expect("it listens after a minute");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(took < Duration::from_secs(40), "{took:?}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(stderr.contains("interrupted") && stderr.lines().count() == 1, "{stderr}");
}
