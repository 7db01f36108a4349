//! `leasehold load` from outside: every ready scenario balances, results have their documented shape, and broken input is told.

mod common;
mod ends;

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use self::common::{attempt, ensure, has_check, json, json_until, once_of_many, run, runs, total};

const READY: [&str; 9] =
    ["gateway", "scraper", "replicas", "gpu", "ten-thousand", "thundering-herd", "flapping", "churn", "soak"];

/// Each for a moment, all its subjects: the rules hold and every count balances, also where a round ends in the middle of it all.
#[test]
fn ready_scenarios_balance() {
    for scenario in READY {
        let mut arguments = vec![scenario, "--duration", "400ms", "--rounds", "1"];
        if scenario == "ten-thousand" {
            arguments.extend(["--workers", "1000"]);
        }
        let result = json(&arguments);
        assert_eq!((&result["source"], &result["interrupted"]), (&scenario.into(), &false.into()));
    }
}

#[test]
fn both_drivers_and_both_loops_play_everything() {
    for driver in ["tasks", "threads"] {
        for pace in ["closed", "open"] {
            let arguments = [
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
            ];
            let fails = |name: &str, run: &Value| name != "sticky" || total(&run["counts"]["backend"]) > 0;
            let result = json_until(&arguments, "the backend fails", fails);
            assert_eq!(runs(&result).count(), 4);
            let (_, run) = runs(&result).next().unwrap();
            for owner in ["scheduler", "backend", "caller"] {
                assert!(run["counts"][owner].is_object());
            }
            assert_eq!(run["uncorrected_ns"].is_object(), pace == "open");
        }
    }
}

/// Each kind of failure goes to its owner.
#[test]
fn failures_have_owners() {
    let play = |changes: &[&str], owners: &[&str]| {
        let mut arguments = vec!["gpu", "--duration", "400ms", "--rounds", "1", "--subject", "sticky"];
        changes.iter().for_each(|change| arguments.extend(["--set", change]));
        let are_told = |_: &str, run: &Value| {
            let told = |owner: &&str| run["counts"].pointer(owner).unwrap().as_u64() > Some(0);
            owners.iter().all(told)
        };
        json_until(&arguments, &format!("{owners:?}"), are_told);
    };
    play(&["wait=0", "hold=fixed 20ms", "think=fixed 1ms"], &["/scheduler/none_eligible"]);
    play(&["wait=5ms", "hold=fixed 50ms", "think=fixed 1ms"], &["/scheduler/timed_out"]);
    play(&["max-waiters=4", "hold=fixed 20ms", "think=fixed 1ms"], &["/scheduler/queue_full"]);
    play(
        &["failures=0.3", "rate-limits=0.3", "retry-after=fixed 5ms", "hold=fixed 3ms"],
        &["/backend/failed", "/backend/rate_limited"],
    );
    play(&["backend-timeout=5ms", "hold=uniform 1ms 20ms"], &["/backend/timed_out"]);
    play(
        &["cancellations=0.8", "patience=exponential 10ms", "hold=fixed 30ms", "think=fixed 1ms"],
        &["/caller/cancelled_waiting", "/caller/cancelled_served"],
    );
}

/// An open loop measures from the moment that was meant: what an overloaded fleet does to those who come late is in the figures, and it
/// is not in the uncorrected ones, which is what they are shown for.
#[test]
fn open_loops_do_not_hide_the_wait() {
    let mut arguments =
        vec!["gpu", "--duration", "1s", "--rounds", "1", "--workers", "8", "--resources", "8"];
    for change in ["loop=open", "rate=1000", "hold=fixed 20ms", "failures=0", "cancellations=0"] {
        arguments.extend(["--set", change]);
    }
    arguments.extend(["--subject", "sticky"]);
    once_of_many("a fleet that is overloaded, and nothing else", || {
        let result = attempt(&arguments, &[])?;
        let (_, run) = runs(&result).next().unwrap();
        // 400 a second can be served of 1,000 that come: at the end the delay is more than half of the time.
        let at = |times: &str, of: &str| run[times][of].as_u64().unwrap();
        let corrected = at("latency_ns", "p90");
        let uncorrected = at("uncorrected_ns", "p90");
        ensure(corrected > 300_000_000, corrected)?;
        ensure(uncorrected < corrected / 2, format!("{uncorrected} of {corrected}"))?;
        ensure(run["unsent"].as_u64() > Some(100), format!("unsent: {}", run["unsent"]))?;
        // Those who never got an answer are not left out: every one of them is in a figure of its own, with what it has waited at least.
        let (unanswered, counts) = (&run["unanswered_ns"], &run["counts"]);
        let cut = total(&counts["cut_waiting"])
            + total(&counts["cut_short"])
            + total(&counts["too_late"])
            + total(&counts["scheduler"]["timed_out"]);
        assert_eq!(at("unanswered_ns", "count"), run["unsent"].as_u64().unwrap() + cut, "{unanswered}");
        let longest = at("unanswered_ns", "max");
        assert!(longest < 60_000_000_000, "{longest}");
        ensure(longest > 300_000_000, longest)?;
        // That all workers were busy is told, and for how long.
        let sent_late = &run["sent_late_ns"];
        ensure(
            at("sent_late_ns", "count") > 100 && at("sent_late_ns", "max") > 300_000_000,
            format!("sent late: {sent_late}"),
        )
    });
}

/// In an open loop a worker that is busy keeps nobody waiting while another one has nothing to do: where nothing is scarce nobody waits.
#[test]
fn open_loops_do_not_measure_their_own_workers() {
    let mut arguments = vec!["gateway", "--duration", "1s", "--rounds", "1", "--subject", "sticky"];
    // 60 of 300 workers are busy on average; a moment would find its own one busy each fifth time, for tens of milliseconds.
    arguments.extend(["--workers", "300", "--set", "rate=1000", "--set", "burst=steady"]);
    for change in ["capacity=[10000]", "failures=0", "rate-limits=0", "cancellations=0"] {
        arguments.extend(["--set", change]);
    }
    // The tool itself may be late, on a machine that does other things.
    once_of_many("nobody waits where nothing is scarce", || {
        let result = attempt(&arguments, &[])?;
        let (_, run) = runs(&result).next().unwrap();
        let (waited, tool_late) =
            (run["waiting_ns"]["p99"].as_u64(), run["late_ns"]["p99"].as_u64().unwrap());
        ensure(
            waited < Some(5_000_000 + tool_late),
            format!("waited {waited:?} ns, of which the tool's own are {tool_late}"),
        )?;
        let requests = run["requests"].as_u64().unwrap();
        assert!(requests < 1_200, "{requests}");
        ensure(requests >= 800, format!("{requests} requests"))?;
        let few = requests / 20;
        let sent_late = run["sent_late_ns"]["count"].as_u64();
        ensure(sent_late <= Some(few), format!("sent late: {}", run["sent_late_ns"]))?;
        // One whose worker the clock's tick wakes after the end.
        ensure(total(&run["unsent"]) <= few, format!("unsent: {}", run["unsent"]))
    });
    let closed = json(&["gpu", "--duration", "1s", "--rounds", "1", "--subject", "sticky"]);
    assert!(runs(&closed).next().unwrap().1["sent_late_ns"].is_null());
}

/// Fencing is looked at whoever asks, and that it was is checked.
#[test]
fn every_driver_sees_tokens() {
    for driver in ["tasks", "threads", "pool"] {
        let driver = format!("driver={driver}");
        let mut arguments = vec!["ten-thousand", "--workers", "200", "--duration", "600ms", "--rounds", "1"];
        arguments.extend(["--set", "tokens=0.3", "--set", &driver]);
        let are_seen = |name: &str, run: &Value| name == "mutex" || run["tokens"].as_u64() > Some(20);
        let result = json_until(&arguments, "tokens are seen", are_seen);
        for (name, run) in runs(&result).filter(|(name, _)| *name != "mutex") {
            assert!(has_check(run, "fencing"), "{driver} {name}: {}", run["checks"]);
        }
        let drivers: Vec<&Value> = runs(&result).map(|(_, run)| &run["driver"]).collect();
        let of_mutex = if driver == "driver=pool" { "tasks" } else { &driver[7..] };
        assert_eq!(drivers, [&driver[7..], &driver[7..], of_mutex], "{driver}");
    }
}

/// Tokens are returned twice also where resources rest after each use.
#[test]
fn tokens_are_returned_twice_though_resources_rest() {
    let mut arguments = vec!["scraper", "--duration", "400ms", "--rounds", "1", "--subject", "sticky"];
    arguments.extend(["--set", "tokens=0.5", "--set", "hold=fixed 2ms"]);
    let are_seen = |_: &str, run: &Value| run["tokens"].as_u64() > Some(10);
    let result = json_until(&arguments, "tokens are seen", are_seen);
    assert_ne!(result["scenario"]["cooldown"], "0");
}

#[test]
fn a_load_does_not_read_its_trace_from_standard_input() {
    let arguments = ["load", "gpu", "--set", "loop=open", "--set", "burst=trace", "--set", "trace=-"];
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold")).args(arguments).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), told.contains("from a file")), (Some(2), true), "{told}");
}

#[test]
fn traces_set_moments_and_lengths() {
    let mut arguments =
        vec!["gpu", "--duration", "500ms", "--rounds", "1", "--workers", "300", "--resources", "100"];
    for change in ["loop=open", "burst=trace", "hold=trace", "trace=built-in", "speed=100"] {
        arguments.extend(["--set", change]);
    }
    arguments.extend(["--subject", "sticky"]);
    // 5 a second, 100 times as fast, for half a second; a tenth of the minutes has more.
    once_of_many("a trace's requests", || {
        let result = attempt(&arguments, &[])?;
        let requests = runs(&result).next().unwrap().1["requests"].as_u64().unwrap();
        assert!(requests < 450, "{requests}");
        ensure(requests >= 150, requests)
    });
    // The prompt's tokens are a backend's delay.
    let mut arguments =
        vec!["gpu", "--duration", "500ms", "--rounds", "1", "--workers", "300", "--resources", "300"];
    for change in [
        "loop=open",
        "burst=trace",
        "delay=trace",
        "hold=fixed 1ms",
        "trace=built-in",
        "speed=100",
        "prompt-tokens-per-second=1000",
        "failures=0",
        "cancellations=0",
    ] {
        arguments.extend(["--set", change]);
    }
    arguments.extend(["--subject", "sticky"]);
    // About a thousand tokens, 1,000 a second, 100 times as fast; some prompts are much longer than others.
    let is_of_prompts = |_: &str, run: &Value| {
        let (p50, p99) = (run["delay_ns"]["p50"].as_u64().unwrap(), run["delay_ns"]["p99"].as_u64().unwrap());
        (2_000_000..50_000_000).contains(&p50) && p99 > 2 * p50
    };
    json_until(&arguments, "the delays are those of the prompts", is_of_prompts);
}

#[test]
fn what_does_not_fit_is_told() {
    let result = json(&[
        "churn",
        "--duration",
        "500ms",
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
}

#[test]
fn shown_scenarios_can_be_played() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.toml");
    let shown = run(&["load", "scraper", "--workers", "7", "--show"]);
    assert!(shown.status.success());
    fs::write(&path, &shown.stdout).unwrap();
    let result =
        json(&[path.to_str().unwrap(), "--duration", "500ms", "--rounds", "1", "--subject", "sticky"]);
    assert_eq!(result["scenario"]["workers"], 7);
}

#[test]
fn tables_are_for_people_and_files_appear_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("result.txt");
    let arguments = ["load", "gpu", "--rounds", "1", "--out", path.to_str().unwrap(), "--duration"];
    let played = ["1s", "10s", "40s"].into_iter().find_map(|duration| {
        let output = run(&[&arguments[..], &[duration]].concat());
        assert!(output.stdout.is_empty(), "{output:?}");
        let text = fs::read_to_string(Path::new(&path)).unwrap();
        // Only that nobody was answered in time may be wrong, and then not the next time.
        assert_eq!(text.matches("WRONG").count(), text.matches("WRONG  played: ").count(), "{text}");
        output.status.success().then_some(text)
    });
    let text = played.expect("somebody is answered");
    for part in
        ["per second", "scheduler's", "backend's", "waiting, ms", "rank error", "delay", "checks hold"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("WRONG"), "{text}");
}

/// A file that is read is not replaced by the result; of a ready scenario none is read, whatever it is called.
#[test]
fn out_is_never_an_input() {
    let directory = tempfile::tempdir().unwrap();
    let [mine, trace] = ["mine.toml", "trace.csv"].map(|name| directory.path().join(name));
    fs::write(&trace, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,5,1000\n").unwrap();
    let text = format!(
        "loop = \"open\"\nburst = \"trace\"\nhold = \"trace\"\ntrace = {trace:?}\nduration = \"100ms\"\nrounds = 1\n"
    );
    fs::write(&mine, &text).unwrap();
    let scenario = mine.to_str().unwrap();
    for command in ["load", "tune"] {
        for (input, name) in [(&mine, "the scenario"), (&trace, "the scenario's trace")] {
            let before = fs::read(input).unwrap();
            let input = input.to_str().unwrap();
            let output = run(&[command, scenario, "--out", input]);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{command}: {stderr}");
            assert!(stderr.contains(&format!("another file than that of {name}, found")), "{stderr}");
            assert_eq!(fs::read(input).unwrap(), before, "{command}");
        }
    }
    fs::write(directory.path().join("gateway"), "a result").unwrap();
    let arguments = ["load", "gateway", "--duration", "50ms", "--rounds", "1", "--out", "gateway"];
    let output = common::tool(&arguments).current_dir(directory.path()).output().unwrap();
    assert_ne!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert_ne!(fs::read(directory.path().join("gateway")).unwrap(), b"a result");
}

/// The same loss from both sides; of eight shards that are looked at one at a time there is some, of all of them next to none.
#[test]
fn delays_are_sampled_beside_rank_errors() {
    let fast = ["--set", "hold=exponential 200us", "--set", "ranking=fixed", "--set", "shards=8"];
    let plain = ["gpu", "--set", "resources=64", "--set", "workers=24", "--rounds", "1", "--duration", "1s"];
    let subjects = ["--subject", "best-of:1", "--subject", "strict"];
    let result = json(&[&plain[..], &fast, &subjects].concat());
    let runs: Vec<_> = result["subjects"].as_array().unwrap().iter().map(|one| &one["run"]).collect();
    let mean = |run: &Value, of: &str| run[of]["mean"].as_f64().unwrap();
    for run in &runs {
        assert!(run["delay"]["sampled"].as_u64().unwrap() > 0, "{}", run["delay"]);
        assert!(run["delays_unfinished"].is_u64());
    }
    for of in ["rank_error", "delay"] {
        let (loose, strict) = (mean(runs[0], of), mean(runs[1], of));
        assert!(loose > strict, "{of}: {loose} of one shard, {strict} of all");
    }
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

/// Everything is on, and each part of it has done something.
#[test]
fn a_soak_does_what_it_is_for() {
    let arguments = ["soak", "--duration", "6s", "--resources", "2000", "--workers", "20"];
    // A longer one would be one whose memory is judged. In six seconds an older reader leaves a newer one behind once or twice, and what a thread
    // keeps back that is not let run in the middle of a look-up waits as well: once of many such a time is undisturbed.
    let result = once_of_many("all of a soak", || {
        let result = attempt(&arguments, &["freed behind a reader", "garbage"])?;
        let (_, run) = runs(&result).next().unwrap();
        let (soak, chores) = (&run["soak"], &run["chores"]);
        for part in ["stays", "retired", "times_freed", "events"] {
            ensure(soak[part].as_u64() > Some(0), format!("{part}: {soak}"))?;
        }
        for (part, is_on) in
            [("scraped", cfg!(feature = "prometheus")), ("traced", cfg!(feature = "tracing"))]
        {
            ensure((soak[part].as_u64() > Some(0)) == is_on, format!("{part}: {soak}"))?;
        }
        for chore in ["updates", "removals", "insertions", "exclusions", "drains", "several", "leases"] {
            ensure(chores[chore].as_u64() > Some(0), format!("{chore}: {chores}"))?;
        }
        Ok(result)
    });
    let (_, run) = runs(&result).next().unwrap();
    let soak = &run["soak"];
    for check in ["chores", "updated", "removed", "inserted", "excluded", "drained"] {
        assert!(has_check(run, check), "{check}: {}", run["checks"]);
    }
    // In six seconds nothing can be said of memory, and so nothing is.
    assert!(soak["growth"].is_null(), "{soak}");
    assert!(!has_check(run, "memory"), "{}", run["checks"]);
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
            let refused = if refusal.starts_with("shed") { "shed" } else { "queue_full" };
            let are_refused = |_: &str, run: &Value| run["counts"]["scheduler"][refused].as_u64() > Some(0);
            let result = json_until(&arguments, refused, are_refused);
            let run = runs(&result).next().unwrap().1;
            assert!(has_check(run, "refused"), "{}", run["checks"]);
        }
    }
}

/// The time that a request waits for runs from the moment that was meant: who cannot be sent before it is over is not sent, and
/// the scheduler, which was not asked, does not answer for it.
#[test]
fn whoever_would_be_sent_too_late_is_kept_apart() {
    let mut arguments =
        vec!["gpu", "--duration", "1s", "--rounds", "1", "--workers", "8", "--resources", "8"];
    for change in ["loop=open", "rate=1000", "hold=fixed 20ms", "failures=0", "cancellations=0", "wait=100ms"]
    {
        arguments.extend(["--set", change]);
    }
    arguments.extend(["--subject", "sticky"]);
    once_of_many("requests that are late, on a machine that is not", || {
        let result = attempt(&arguments, &[])?;
        let (_, run) = runs(&result).next().unwrap();
        ensure(run["counts"]["too_late"].as_u64() > Some(0), "nobody was too late")?;
        // Nobody has got a lease when its time was over.
        let longest = run["waiting_ns"]["max"].as_u64().unwrap();
        ensure(longest < 400_000_000, longest)
    });
}

/// How late the tool itself was is told: tokio's timer has ticks of a millisecond.
#[test]
fn the_tool_tells_its_own_lateness() {
    let is_late = |_: &str, run: &Value| {
        run["late_ns"]["count"].as_u64() > Some(0) && run["late_ns"]["max"].as_u64() > Some(0)
    };
    let arguments = ["gpu", "--duration", "400ms", "--rounds", "1", "--subject", "sticky"];
    json_until(&arguments, "the tool is late", is_late);
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
    let (_, run) = runs(&result).next().unwrap();
    let (delay, held) = (&run["delay_ns"], &run["held_ns"]);
    let at = |times: &Value, name: &str| times[name].as_u64().unwrap();
    assert!(at(delay, "count") >= total(&run["counts"]["completed"]), "{delay}");
    assert!((9_900_000..20_300_000).contains(&at(delay, "p50")) && at(delay, "max") < 20_300_000, "{delay}");
    assert!(at(held, "p50") >= 39_000_000, "{held}");
    let without = json(&["gpu", "--duration", "1s", "--rounds", "1", "--subject", "sticky"]);
    assert!(runs(&without).next().unwrap().1["delay_ns"].is_null());
}

/// Other people's pools under the load that they are for.
#[cfg(feature = "peers")]
#[test]
fn pools_play_too() {
    for scenario in ["gpu", "thundering-herd"] {
        let result = json(&[scenario, "--duration", "1s", "--rounds", "1"]);
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
    assert_eq!(runs(&result).map(|(name, _)| name).collect::<Vec<_>>(), ["sticky", "deadpool", "bb8"]);
}
