//! `leasehold load` from outside: every ready scenario balances, results have their documented shape, and broken input is told.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

const READY: [&str; 9] =
    ["gateway", "scraper", "replicas", "gpu", "ten-thousand", "thundering-herd", "flapping", "churn", "soak"];

fn tool(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    tool(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = run(&[&["load"], arguments, &["--format", "json"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{arguments:?}: {stderr}{text}");
    assert_eq!(stderr, "");
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&result["schema"], &result["kind"]), (&1.into(), &"load".into()));
    result
}

fn runs(result: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let subjects = result["subjects"].as_array().unwrap().iter();
    subjects
        .filter(|subject| subject["unfit"].is_null())
        .map(|subject| (subject["name"].as_str().unwrap(), &subject["run"]))
}

/// The sum of all numbers in a tree of counts.
fn total(counts: &Value) -> u64 {
    match counts {
        Value::Object(fields) => fields.values().map(total).sum(),
        number => number.as_u64().unwrap(),
    }
}

fn assert_sound(result: &Value) {
    for (name, run) in runs(result) {
        assert_eq!(total(&run["counts"]), run["requests"].as_u64().unwrap(), "{name}");
        assert_eq!(run["broken"], 0, "{name}: {}", run["breaches"]);
        let checks = run["checks"].as_array().unwrap();
        // A pool says less of itself.
        let least = if ["deadpool", "bb8"].contains(&name) { 4 } else { 5 };
        assert!(checks.len() >= least, "{name}: {checks:?}");
        assert!(checks.iter().all(|check| check["holds"] == true), "{name}: {checks:?}");
        assert!(run["counts"]["completed"].as_u64().unwrap() > 0, "{name}");
        assert!(!run["series"].as_array().unwrap().is_empty());
        // Each lease has been held, and nothing else.
        let counts = &run["counts"];
        let leases = total(&counts["completed"])
            + total(&counts["backend"])
            + total(&counts["caller"]["cancelled_served"])
            + total(&counts["cut_short"]);
        assert_eq!(run["held_ns"]["count"], leases, "{name}");
        let waiting = &run["waiting_ns"];
        let at = |name: &str| waiting[name].as_u64().unwrap();
        assert!(at("p50") <= at("p90") && at("p90") <= at("p99") && at("p99") <= at("max"), "{waiting}");
    }
}

/// Each for a moment, all its subjects: the rules hold and every count balances, also where a round ends in the middle of it all.
#[test]
fn ready_scenarios_balance() {
    for scenario in READY {
        let mut arguments = vec![scenario, "--duration", "400ms", "--rounds", "1"];
        if scenario == "ten-thousand" {
            arguments.extend(["--workers", "1000"]);
        }
        if scenario == "soak" {
            // Its memory is measured over minutes, not here.
            arguments.extend(["--set", "soak=false"]);
        }
        let result = json(&arguments);
        assert_eq!((&result["source"], &result["interrupted"]), (&scenario.into(), &false.into()));
        assert_sound(&result);
    }
}

#[test]
fn both_drivers_and_both_loops_play_everything() {
    for driver in ["tasks", "threads"] {
        for pace in ["closed", "open"] {
            let result = json(&[
                "soak",
                "--duration",
                "300ms",
                "--workers",
                "32",
                "--resources",
                "64",
                "--set",
                "soak=false",
                "--set",
                &format!("driver={driver}"),
                "--set",
                &format!("loop={pace}"),
                "--set",
                "rate=3000",
                "--subject",
                "sticky",
                "--subject",
                "mutex",
                "--subject",
                "naive",
                "--subject",
                "best-of:2",
            ]);
            assert_sound(&result);
            assert_eq!(runs(&result).count(), 4);
            let (_, run) = runs(&result).next().unwrap();
            for owner in ["scheduler", "backend", "caller"] {
                assert!(run["counts"][owner].is_object());
            }
            assert!(total(&run["counts"]["backend"]) > 0, "{driver} {pace}: {}", run["counts"]);
            assert_eq!(run["uncorrected_ns"].is_object(), pace == "open");
        }
    }
}

/// Each kind of failure goes to its owner.
#[test]
fn failures_have_owners() {
    let play = |changes: &[&str]| {
        let mut arguments = vec!["gpu", "--duration", "400ms", "--rounds", "1", "--subject", "sticky"];
        changes.iter().for_each(|change| arguments.extend(["--set", change]));
        let result = json(&arguments);
        assert_sound(&result);
        runs(&result).next().unwrap().1["counts"].clone()
    };
    let at_once = play(&["wait=0", "hold=fixed 20ms", "think=fixed 1ms"]);
    assert!(at_once["scheduler"]["none_eligible"].as_u64().unwrap() > 0, "{at_once}");
    let short = play(&["wait=5ms", "hold=fixed 50ms", "think=fixed 1ms"]);
    assert!(short["scheduler"]["timed_out"].as_u64().unwrap() > 0, "{short}");
    let full = play(&["max-waiters=4", "hold=fixed 20ms", "think=fixed 1ms"]);
    assert!(full["scheduler"]["queue_full"].as_u64().unwrap() > 0, "{full}");
    let backend = play(&["failures=0.3", "rate-limits=0.3", "retry-after=fixed 5ms", "hold=fixed 3ms"]);
    assert!(backend["backend"]["failed"].as_u64().unwrap() > 0, "{backend}");
    assert!(backend["backend"]["rate_limited"].as_u64().unwrap() > 0, "{backend}");
    let slow = play(&["backend-timeout=5ms", "hold=uniform 1ms 20ms"]);
    assert!(slow["backend"]["timed_out"].as_u64().unwrap() > 0, "{slow}");
    let gone =
        play(&["cancellations=0.8", "patience=exponential 10ms", "hold=fixed 30ms", "think=fixed 1ms"]);
    let caller = &gone["caller"];
    assert!(caller["cancelled_waiting"].as_u64().unwrap() > 0, "{gone}");
    assert!(caller["cancelled_served"].as_u64().unwrap() > 0, "{gone}");
}

/// An open loop measures from the moment that was meant: what an overloaded fleet does to those who come late is in the figures, and it
/// is not in the uncorrected ones, which is what they are shown for.
#[test]
fn open_loops_do_not_hide_the_wait() {
    let result = json(&[
        "gpu",
        "--duration",
        "1s",
        "--rounds",
        "1",
        "--workers",
        "8",
        "--resources",
        "8",
        "--subject",
        "sticky",
        "--set",
        "loop=open",
        "--set",
        "rate=1000",
        "--set",
        "hold=fixed 20ms",
        "--set",
        "failures=0",
        "--set",
        "cancellations=0",
    ]);
    assert_sound(&result);
    let (_, run) = runs(&result).next().unwrap();
    // 400 a second can be served of 1,000 that come: at the end the delay is more than half of the time.
    let corrected = run["latency_ns"]["max"].as_u64().unwrap();
    let uncorrected = run["uncorrected_ns"]["max"].as_u64().unwrap();
    assert!(corrected > 300_000_000, "{corrected}");
    assert!(uncorrected < corrected / 2, "{uncorrected} {corrected}");
    assert!(run["unsent"].as_u64().unwrap() > 100, "{}", run["unsent"]);
}

#[test]
fn traces_set_moments_and_lengths() {
    let result = json(&[
        "gpu",
        "--duration",
        "500ms",
        "--rounds",
        "1",
        "--workers",
        "300",
        "--resources",
        "100",
        "--subject",
        "sticky",
        "--set",
        "loop=open",
        "--set",
        "burst=trace",
        "--set",
        "hold=trace",
        "--set",
        "trace=built-in",
        "--set",
        "speed=100",
    ]);
    assert_sound(&result);
    // 5 a second, 100 times as fast, for half a second; a tenth of the minutes has more.
    let requests = runs(&result).next().unwrap().1["requests"].as_u64().unwrap();
    assert!((150..450).contains(&requests), "{requests}");
}

#[test]
fn what_does_not_fit_is_told() {
    let result = json(&[
        "churn",
        "--duration",
        "100ms",
        "--rounds",
        "1",
        "--subject",
        "deadpool",
        "--subject",
        "sticky",
    ]);
    let unfit = result["subjects"][0]["unfit"].as_str().unwrap();
    assert!(unfit.contains("threads") || unfit.contains("feature `peers`"), "{unfit}");
    assert!(result["subjects"][0]["run"].is_null());
    assert_sound(&result);
}

#[test]
fn shown_scenarios_can_be_played() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.toml");
    let shown = run(&["load", "scraper", "--workers", "7", "--show"]);
    assert!(shown.status.success());
    fs::write(&path, &shown.stdout).unwrap();
    let result =
        json(&[path.to_str().unwrap(), "--duration", "100ms", "--rounds", "1", "--subject", "sticky"]);
    assert_eq!(result["scenario"]["workers"], 7);
    assert_sound(&result);
}

#[test]
fn tables_are_for_people_and_files_appear_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("result.txt");
    let arguments = ["load", "gpu", "--duration", "200ms", "--rounds", "1", "--out", path.to_str().unwrap()];
    let output = run(&arguments);
    assert!(output.status.success() && output.stdout.is_empty());
    let text = fs::read_to_string(Path::new(&path)).unwrap();
    for part in ["per second", "scheduler's", "backend's", "waiting, ms", "rank error", "checks hold"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("WRONG"), "{text}");
}

#[test]
fn bad_input_is_told_in_one_line() {
    for (arguments, part) in [
        (["load", "nothing"].as_slice(), "expected one of gateway, scraper"),
        (&["load", "gpu", "--set", "workers=0"], "workers: expected 1 to 100000, found 0"),
        (&["load", "gpu", "--set", "worker=1"], "unknown field `worker`"),
        (&["load", "gpu", "--subject", "fast"], "subject \"fast\": expected sticky"),
        (&["load", "gpu", "--duration", "1"], "expected a span"),
        (&["load", "gpu", "--set", "trace=/no/such/file"], "/no/such/file: cannot be read"),
    ] {
        let output = run(arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.lines().count() == 1 && stderr.contains(part), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

/// Ctrl-C ends a run in order: a partial result, which says so, whose counts balance; and its own exit code.
#[cfg(unix)]
#[test]
fn ctrl_c_leaves_a_partial_result() {
    let mut command = tool(&["load", "gateway", "--duration", "60s", "--format", "json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(1_500));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["interrupted"], true);
    let (_, run) = runs(&result).next().unwrap();
    assert_eq!(total(&run["counts"]), run["requests"].as_u64().unwrap());
    assert!(
        run["checks"].as_array().unwrap().iter().all(|check| check["holds"] == true),
        "{}",
        run["checks"]
    );
    assert!(run["counts"]["cut_short"].as_u64().unwrap() > 0);
}

/// Everything is on, and each part of it has done something.
#[test]
fn a_soak_does_what_it_is_for() {
    let result = json(&["soak", "--duration", "6s", "--resources", "2000", "--workers", "20"]);
    assert_sound(&result);
    let (_, run) = runs(&result).next().unwrap();
    let soak = &run["soak"];
    for part in ["stays", "retired", "times_freed", "events"] {
        assert!(soak[part].as_u64().unwrap() > 0, "{part}: {soak}");
    }
    assert_eq!(soak["scraped"].as_u64().unwrap() > 0, cfg!(feature = "prometheus"), "{soak}");
    assert_eq!(soak["traced"].as_u64().unwrap() > 0, cfg!(feature = "tracing"), "{soak}");
    for chore in ["updates", "removals", "insertions", "exclusions", "drains", "several", "leases"] {
        assert!(run["chores"][chore].as_u64().unwrap() > 0, "{chore}: {}", run["chores"]);
    }
    // In six seconds nothing can be said of memory, and so nothing is.
    assert!(soak["growth"].is_null(), "{soak}");
    assert!(
        run["checks"].as_array().unwrap().iter().all(|check| check["name"] != "memory"),
        "{}",
        run["checks"]
    );
}

/// Whoever gives up is the caller's; whom the scheduler refuses is the scheduler's, however little patience there would have been.
#[test]
fn refusals_are_the_schedulers_own() {
    for driver in ["tasks", "threads"] {
        for refusal in ["shed=true", "max-waiters=4"] {
            let changes: [&str; 8] = [
                refusal,
                &format!("driver={driver}"),
                "cancellations=0.9",
                "patience=exponential 20ms",
                "hold=fixed 20ms",
                "think=fixed 1ms",
                "failures=0",
                "wait=25ms",
            ];
            let mut arguments = vec!["gpu", "--duration", "600ms", "--rounds", "1", "--subject", "sticky"];
            changes.iter().for_each(|change| arguments.extend(["--set", change]));
            let result = json(&arguments);
            assert_sound(&result);
            let run = runs(&result).next().unwrap().1;
            let refused = if refusal.starts_with("shed") { "shed" } else { "queue_full" };
            assert!(run["counts"]["scheduler"][refused].as_u64().unwrap() > 0, "{driver}: {}", run["counts"]);
            let checks = run["checks"].as_array().unwrap();
            assert!(checks.iter().any(|check| check["name"] == "refused"), "{checks:?}");
        }
    }
}

/// The time that a request waits for runs from the moment that was meant: who cannot be sent before it is over has timed out.
#[test]
fn whoever_is_sent_too_late_has_timed_out() {
    let mut arguments =
        vec!["gpu", "--duration", "1s", "--rounds", "1", "--workers", "8", "--resources", "8"];
    for change in ["loop=open", "rate=1000", "hold=fixed 20ms", "failures=0", "cancellations=0", "wait=100ms"]
    {
        arguments.extend(["--set", change]);
    }
    let result = json(&[&arguments[..], &["--subject", "sticky"]].concat());
    assert_sound(&result);
    let (_, run) = runs(&result).next().unwrap();
    let (timed_out, too_late) = (&run["counts"]["scheduler"]["timed_out"], &run["too_late"]);
    assert!(
        too_late.as_u64().unwrap() > 0 && too_late.as_u64() <= timed_out.as_u64(),
        "{too_late} {timed_out}"
    );
    // Nobody has got a lease when its time was over.
    let longest = run["waiting_ns"]["max"].as_u64().unwrap();
    assert!(longest < 400_000_000, "{longest}");
}

/// How late the tool itself was is told: tokio's timer has ticks of a millisecond.
#[test]
fn the_tool_tells_its_own_lateness() {
    let result = json(&["gpu", "--duration", "400ms", "--rounds", "1", "--subject", "sticky"]);
    let (_, run) = runs(&result).next().unwrap();
    let late = &run["late_ns"];
    assert!(late["count"].as_u64().unwrap() > 0 && late["max"].as_u64().unwrap() > 0, "{late}");
}

/// A backend's delay is part of the hold, and told apart.
#[test]
fn delays_are_told_apart() {
    let result = json(&[
        "gpu",
        "--duration",
        "500ms",
        "--rounds",
        "1",
        "--subject",
        "sticky",
        "--set",
        "delay=uniform 10ms 20ms",
        "--set",
        "hold=fixed 30ms",
        "--set",
        "failures=0",
        "--set",
        "cancellations=0",
    ]);
    assert_sound(&result);
    let (_, run) = runs(&result).next().unwrap();
    let (delay, held) = (&run["delay_ns"], &run["held_ns"]);
    let at = |times: &Value, name: &str| times[name].as_u64().unwrap();
    assert!(at(delay, "count") >= total(&run["counts"]["completed"]), "{delay}");
    assert!((9_900_000..20_300_000).contains(&at(delay, "p50")) && at(delay, "max") < 20_300_000, "{delay}");
    assert!(at(held, "p50") >= 39_000_000, "{held}");
    let without = json(&["gpu", "--duration", "100ms", "--rounds", "1", "--subject", "sticky"]);
    assert!(runs(&without).next().unwrap().1["delay_ns"].is_null());
}

/// A round ends when it ends, also for those who wait for what does not come.
#[test]
fn nobody_waits_beyond_the_end() {
    for driver in ["tasks", "threads"] {
        let began = Instant::now();
        // One resource, which rests for a minute after its first use; and nobody gives up.
        let driver = format!("driver={driver}");
        let changes =
            [&driver[..], "cooldown=60s", "wait=60s", "cancellations=0", "failures=0", "hold=fixed 1ms"];
        let mut arguments = vec!["gpu", "--duration", "500ms", "--rounds", "1", "--subject", "sticky"];
        changes.iter().for_each(|change| arguments.extend(["--set", change]));
        let result = json(&[&arguments[..], &["--workers", "8", "--resources", "1"]].concat());
        assert!(began.elapsed() < Duration::from_secs(30), "{driver}: {:?}", began.elapsed());
        assert_sound(&result);
        let (_, run) = runs(&result).next().unwrap();
        assert!(run["counts"]["cut_waiting"].as_u64().unwrap() > 0, "{driver}: {}", run["counts"]);
    }
}

/// Ctrl-C before the first round has begun: ten thousand threads take a while to start.
#[cfg(unix)]
#[test]
fn ctrl_c_at_once_leaves_a_result_too() {
    let mut command = tool(&[
        "load",
        "churn",
        "--workers",
        "5000",
        "--duration",
        "60s",
        "--format",
        "json",
        "--subject",
        "sticky",
    ]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Wherever it is then: nobody can know, and all of it must do.
    thread::sleep(Duration::from_millis(150));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code().is_none() {
        // Killed by the signal: it had not begun to listen.
        return;
    }
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["interrupted"], true);
    let (_, run) = runs(&result).next().unwrap();
    assert!(run["throughput"].is_number(), "{}", run["throughput"]);
    assert!(run["throughput_of_rounds"].as_array().unwrap().iter().all(Value::is_number));
}

/// Other people's pools under the load that they are for.
#[cfg(feature = "peers")]
#[test]
fn pools_play_too() {
    for scenario in ["gpu", "thundering-herd"] {
        let result = json(&[scenario, "--duration", "600ms", "--rounds", "1"]);
        assert_sound(&result);
        let names: Vec<&str> = runs(&result).map(|(name, _)| name).collect();
        assert!(names.ends_with(&["deadpool", "bb8"]), "{scenario}: {}", result["subjects"]);
    }
    let result = json(&[
        "gpu",
        "--duration",
        "600ms",
        "--rounds",
        "1",
        "--subject",
        "sticky",
        "--subject",
        "deadpool",
        "--subject",
        "bb8",
    ]);
    assert_sound(&result);
    assert_eq!(runs(&result).map(|(name, _)| name).collect::<Vec<_>>(), ["sticky", "deadpool", "bb8"]);
}
