//! How runs end: of themselves, by hand, by a scheduler that is closed; and that nothing ends well in which nothing was measured.

use std::{
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    READY,
    common::{STRETCHES, has_check, json_until, play, run, runs, stretched, tool, total},
};

/// A scheduler that is closed in the middle answers for it itself, whoever waits and whoever asks.
#[test]
fn a_closed_scheduler_says_so() {
    for driver in ["tasks", "threads"] {
        let driver = format!("driver={driver}");
        let changes = [&driver[..], "close-at=300ms", "hold=fixed 20ms", "think=fixed 1ms", "wait=1s"];
        let mut arguments = vec!["gpu", "--duration", "600ms", "--rounds", "2", "--subject", "sticky"];
        changes.iter().for_each(|change| arguments.extend(["--set", change]));
        let is_closed = |_: &str, run: &Value| {
            // Only the last round: a scheduler closed in the first would have given nothing out in the second.
            let in_the_last = run["throughput_of_rounds"][1].as_f64() > Some(0.0);
            in_the_last && run["counts"]["scheduler"]["closed"].as_u64() > Some(0) && has_check(run, "closed")
        };
        let result = json_until(&arguments, "it is closed in the middle of the last round", is_closed);
        let (_, run) = runs(&result).next().unwrap();
        for name in ["after round 1", "after round 2"] {
            assert!(has_check(run, name), "{name}: {}", run["checks"]);
        }
    }
}

/// What is done to the fleet is refused from then on, and that breaks no rule; what was away cannot come back.
#[test]
fn a_closed_scheduler_refuses_chores() {
    let mut arguments = vec!["churn", "--duration", "600ms", "--rounds", "2", "--subject", "sticky"];
    arguments.extend([
        "--resources",
        "500",
        "--set",
        "close-at=300ms",
        "--set",
        "drains=50",
        "--set",
        "several=50",
    ]);
    let all_done = |_: &str, run: &Value| {
        ["updates", "removals", "insertions", "exclusions"]
            .iter()
            .all(|&chore| run["chores"][chore].as_u64() > Some(0))
    };
    json_until(&arguments, "chores are done before it is closed", all_done);
}

/// Nobody asks after the close: then nobody can have been told so, and the tool asks itself.
#[test]
fn a_quiet_load_may_be_closed() {
    let mut arguments = vec!["gpu", "--duration", "600ms", "--rounds", "1", "--subject", "sticky"];
    for change in ["loop=open", "burst=herd 1h", "hold=fixed 1ms", "close-at=400ms", "cancellations=0"] {
        arguments.extend(["--set", change]);
    }
    arguments.extend(["--workers", "8"]);
    // Whom the machine lets ask only after the close is told so.
    let is_quiet = |_: &str, run: &Value| {
        run["counts"]["scheduler"]["closed"].as_u64() == Some(0) && has_check(run, "closed")
    };
    json_until(&arguments, "all have asked before it is closed", is_quiet);
}

/// A round ends when it ends, also for those who wait for what does not come.
#[test]
fn nobody_waits_beyond_the_end() {
    for (driver, shed) in
        [("tasks", "false"), ("threads", "false"), ("pool", "false"), ("tasks", "true"), ("threads", "true")]
    {
        let began = Instant::now();
        // One resource, which rests for an hour after its first use; and nobody gives up. A job of the pool knows no rest: it holds.
        let (driver, shed) = (format!("driver={driver}"), format!("shed={shed}"));
        let rests = if driver == "driver=pool" {
            ["cooldown=0", "hold=fixed 1h"]
        } else {
            ["cooldown=1h", "hold=fixed 1ms"]
        };
        let changes = [
            &driver[..],
            &shed,
            rests[0],
            rests[1],
            "wait=1h",
            "cancellations=0",
            "failures=0",
            "rate-limits=0",
        ];
        let mut arguments = vec!["gpu", "--duration", "500ms", "--rounds", "1", "--subject", "sticky"];
        changes.iter().for_each(|change| arguments.extend(["--set", change]));
        arguments.extend(["--workers", "8", "--resources", "1"]);
        if driver == "driver=pool" {
            // It is cut while it holds, so nobody is answered: what is looked at here is when.
            let is_cut = STRETCHES.into_iter().any(|times| {
                let arguments = stretched(&arguments, times);
                let (_, result) = play(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
                runs(&result).next().unwrap().1["counts"]["cut_waiting"].as_u64() > Some(0)
            });
            assert!(is_cut, "nobody has waited");
        } else {
            // A thread that may be shed says until when it waits, which is the end: whom it cannot serve by then the scheduler sheds.
            let is_cut = |_: &str, run: &Value| {
                let cut = total(&run["counts"]["cut_waiting"]);
                let refused =
                    if shed == "shed=true" { total(&run["counts"]["scheduler"]["shed"]) } else { 0 };
                cut + refused > 0
            };
            json_until(&arguments, "somebody waits", is_cut);
        }
        // All attempts together.
        assert!(began.elapsed() < Duration::from_secs(300), "{driver} {shed}: {:?}", began.elapsed());
    }
}

/// No subject fits, nobody asks, nobody is answered: the result is written, and the exit code says that it is none.
#[test]
fn nothing_measured_is_no_success() {
    let quick = ["--duration", "100ms", "--rounds", "1", "--format", "json"];
    let code = |arguments: &[&str]| {
        let output = run(&[&["load"], arguments, &quick].concat());
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), result)
    };
    let (failed, result) = code(&["churn", "--subject", "deadpool", "--subject", "bb8"]);
    assert_eq!((failed, runs(&result).count()), (Some(1), 0), "{result}");
    let table = run(&["load", "churn", "--subject", "deadpool", "--duration", "100ms", "--rounds", "1"]);
    let text = String::from_utf8(table.stdout).unwrap();
    assert!(table.status.code() == Some(1) && text.contains("NOTHING was measured"), "{text}");

    let nobody_asks = ["gpu", "--subject", "sticky", "--workers", "1", "--set", "think=fixed 1h"];
    let nobody_is_answered = ["gpu", "--subject", "sticky", "--set", "hold=fixed 1h", "--set", "failures=0"];
    for arguments in [&nobody_asks[..], &nobody_is_answered] {
        let (failed, result) = code(arguments);
        let (_, run) = runs(&result).next().unwrap();
        let wrong: Vec<&Value> =
            run["checks"].as_array().unwrap().iter().filter(|check| check["holds"] == false).collect();
        assert!(
            failed == Some(1) && wrong.len() == 1 && wrong[0]["name"] == "played",
            "{arguments:?}: {wrong:?}"
        );
    }
}

/// What a rate that no machine can send leaves over is not drawn one by one, and is counted all the same.
#[test]
fn a_rate_that_nobody_can_send_comes_to_an_end() {
    let seconds = 4;
    let mut arguments =
        vec!["gpu", "--duration", "4s", "--rounds", "1", "--workers", "2", "--subject", "sticky"];
    for change in ["loop=open", "rate=10000000", "burst=steady"] {
        arguments.extend(["--set", change]);
    }
    let (output, result) = play(&arguments);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let run = runs(&result).next().unwrap().1;
    let [requests, unsent] = ["requests", "unsent"].map(|name| run[name].as_u64().unwrap());
    let expected = seconds * 10_000_000;
    assert!((requests + unsent).abs_diff(expected) < expected / 100, "{requests} + {unsent}");
    assert!(run["unanswered_ns"]["count"].as_u64().unwrap() >= unsent, "{}", run["unanswered_ns"]);
    // Their moments are spread over the round, but for the first ones, as far as these were sent.
    let p50 = run["unanswered_ns"]["p50"].as_u64().unwrap();
    assert!((1_000_000_000..2_200_000_000).contains(&p50), "{p50}");
}

/// Sends Ctrl-C after so long, and waits for the end.
#[cfg(unix)]
fn interrupted(arguments: &[&str], after: Duration) -> Output {
    let mut command = tool(&[&["load"], arguments, &["--duration", "60s", "--format", "json"]].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(after);
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success(), "{arguments:?} has ended before");
    child.wait_with_output().unwrap()
}

/// A result that says that it is a part of one, and in which nothing is wrong. One that has not begun to listen is killed by the signal: then
/// there is none.
#[cfg(unix)]
fn partial(arguments: &[&str], output: &Output) -> Option<Value> {
    output.status.code()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{stderr}"));
    assert_eq!((&result["interrupted"], stderr.contains("panicked")), (&true.into(), false), "{stderr}");
    for (name, run) in runs(&result) {
        assert_eq!(total(&run["counts"]), run["requests"].as_u64().unwrap(), "{arguments:?} {name}");
        assert_eq!(run["broken"], 0, "{arguments:?} {name}: {}", run["breaches"]);
        let wrong: Vec<&Value> =
            run["checks"].as_array().unwrap().iter().filter(|check| check["holds"] == false).collect();
        assert!(wrong.is_empty(), "{arguments:?} {name}: {wrong:?}");
        assert!(run["throughput"].is_number(), "{}", run["throughput"]);
        assert!(run["throughput_of_rounds"].as_array().unwrap().iter().all(Value::is_number));
    }
    assert_eq!(output.status.code(), Some(130), "{arguments:?}: {stderr}");
    Some(result)
}

/// Ctrl-C ends a run in order: a partial result, which says so, whose counts balance; and its own exit code.
#[cfg(unix)]
#[test]
fn ctrl_c_leaves_a_partial_result() {
    let small = ["--workers", "200", "--resources", "2000"];
    let plays = READY.iter().map(|&scenario| match scenario {
        "soak" => [&[scenario], &small[..]].concat(),
        "ten-thousand" => vec![scenario, "--workers", "1000"],
        _ => vec![scenario],
    });
    // The scheduler would have been closed later: it is not, as nobody has come so far.
    let closes = vec!["gpu", "--subject", "sticky", "--set", "close-at=50s"];
    let mut cut = 0;
    for arguments in plays.chain([closes]) {
        // In the middle of it; on a busy machine that may be later.
        let in_the_middle = [1_500, 6_000, 30_000].into_iter().map(Duration::from_millis).find_map(|after| {
            let result = partial(&arguments, &interrupted(&arguments, after))?;
            let counts = runs(&result).next().unwrap().1["counts"].clone();
            (counts["completed"].as_u64().unwrap() > 0).then_some(counts)
        });
        let counts = in_the_middle.unwrap_or_else(|| panic!("{arguments:?}: nobody was served"));
        cut += counts["cut_short"].as_u64().unwrap();
    }
    assert!(cut > 0, "nobody was served when it ended");
}

/// Ctrl-C before the first round has begun: thousands of threads, and a large fleet, take a while to start.
#[cfg(unix)]
#[test]
fn ctrl_c_at_once_leaves_a_result_too() {
    let threads = ["churn", "--workers", "5000", "--subject", "sticky"];
    let fleet = ["soak", "--resources", "100000"];
    for arguments in [&threads[..], &fleet] {
        // Wherever it is then: nobody can know, and all of it must do.
        let moments = [100, 150, 300, 600, 1_200, 5_000, 20_000].into_iter().map(Duration::from_millis);
        let mut ends = moments.map(|after| partial(arguments, &interrupted(arguments, after)));
        assert_eq!(runs(&ends.find_map(|ended| ended).expect("it listens after a while")).count(), 1);
    }
}
