//! The tool, asked from outside.
//!
//! What takes place within a window of time may miss it on a machine that stalls for as long. So nothing here is judged by one window alone:
//!
//! * what one long enough is sure to show is looked for in ever longer ones ([`json_until`]);
//! * what only an undisturbed one shows, a lateness that is small, is looked for in many ([`once_of_many`]): wrong code never shows it.
//!
//! Whatever was played is sound each time: counts balance and checks hold, however late anybody was.

use std::{
    fmt::Display,
    mem,
    process::{Command, Output},
};

use serde_json::Value;

pub fn tool(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(arguments);
    command
}

pub fn run(arguments: &[&str]) -> Output {
    tool(arguments).output().unwrap()
}

/// How many times as long as wished windows are, one attempt after the other.
pub const STRETCHES: [u32; 3] = [1, 8, 40];

/// The same arguments with a duration so many times as long, and a close so many times as late.
pub fn stretched(arguments: &[&str], times: u32) -> Vec<String> {
    let longer = |span: &str| {
        let (number, unit) = span.split_at(span.find(|c: char| !c.is_ascii_digit()).unwrap());
        format!("{}{unit}", number.parse::<u32>().unwrap() * times)
    };
    let mut is_duration = false;
    let stretch = |&argument: &&str| match argument.strip_prefix("close-at=") {
        _ if mem::replace(&mut is_duration, argument == "--duration") => longer(argument),
        Some(span) => format!("close-at={}", longer(span)),
        None => argument.to_owned(),
    };
    arguments.iter().map(stretch).collect()
}

/// A sound result, in which somebody was served by every subject.
pub fn json(arguments: &[&str]) -> Value {
    json_until(arguments, "somebody is served", |_, _| true)
}

/// Such a result, with runs of all subjects that are as they should be.
pub fn json_until(arguments: &[&str], what: &str, is_seen: impl Fn(&str, &Value) -> bool) -> Value {
    let attempts = STRETCHES.map(|times| stretched(arguments, times));
    let mut missed = String::new();
    for arguments in attempts {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let found = attempt(&arguments, &[]).and_then(|result| {
            let lacks = runs(&result).find(|(name, run)| !is_seen(name, run));
            let lacks = lacks.map(|(name, run)| format!("{name}: {}", brief(run)));
            lacks.map_or(Ok(result), Err)
        });
        match found {
            Ok(result) => return result,
            Err(found) => missed = found,
        }
    }
    panic!("{what}, {arguments:?}: {missed}")
}

/// One of twenty must succeed.
pub fn once_of_many<T>(what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let mut found = String::new();
    for _ in 0..20 {
        match attempt() {
            Ok(seen) => return seen,
            Err(why) => found = why,
        }
    }
    panic!("{what}: {found}")
}

/// For [`once_of_many`]: what an attempt must show, or what it has shown.
pub fn ensure(holds: bool, found: impl Display) -> Result<(), String> {
    if holds { Ok(()) } else { Err(found.to_string()) }
}

/// Plays once. `Err`: of some subject nobody was served, or a check of that name does not hold.
pub fn attempt(arguments: &[&str], may_fail: &[&str]) -> Result<Value, String> {
    let (output, result) = play(arguments);
    assert_sound_but(&result, may_fail);
    for (name, run) in runs(&result) {
        ensure(run["counts"]["completed"].as_u64() > Some(0), format!("{name}: {}", brief(run)))?;
        let wrong = run["checks"].as_array().unwrap().iter().find(|check| check["holds"] == false);
        wrong.map_or(Ok(()), |check| Err(format!("{name}: {check}")))?;
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}{result}");
    assert_eq!(stderr, "");
    Ok(result)
}

/// Plays once, whatever comes of it.
pub fn play(arguments: &[&str]) -> (Output, Value) {
    let output = run(&[&["load"], arguments, &["--format", "json"]].concat());
    let result: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"));
    assert_eq!((&result["schema"], &result["kind"]), (&1.into(), &"load".into()));
    (output, result)
}

/// A run without its curves.
fn brief(run: &Value) -> Value {
    let fields = run.as_object().unwrap().iter();
    let fields = fields.filter(|(name, _)| !["series", "heat"].contains(&name.as_str()));
    Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
}

pub fn runs(result: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let subjects = result["subjects"].as_array().unwrap().iter();
    subjects
        .filter(|subject| subject["unfit"].is_null())
        .map(|subject| (subject["name"].as_str().unwrap(), &subject["run"]))
}

/// The sum of all numbers in a tree of counts.
pub fn total(counts: &Value) -> u64 {
    match counts {
        Value::Object(fields) => fields.values().map(total).sum(),
        number => number.as_u64().unwrap(),
    }
}

pub fn has_check(run: &Value, name: &str) -> bool {
    run["checks"].as_array().unwrap().iter().any(|check| check["name"] == name)
}

/// Every count balances, and every check holds; but for the one that says that somebody was answered, and those of these names.
fn assert_sound_but(result: &Value, may_fail: &[&str]) {
    for (name, run) in runs(result) {
        assert_eq!(total(&run["counts"]), run["requests"].as_u64().unwrap(), "{name}");
        assert_eq!(run["broken"], 0, "{name}: {}", run["breaches"]);
        let checks = run["checks"].as_array().unwrap();
        // A pool says less of itself.
        let least = if ["deadpool", "bb8"].contains(&name) { 4 } else { 5 };
        assert!(checks.len() >= least, "{name}: {checks:?}");
        let may_fail =
            |check: &Value| check["name"] == "played" || may_fail.iter().any(|&name| check["name"] == name);
        assert!(checks.iter().all(|check| check["holds"] == true || may_fail(check)), "{name}: {checks:?}");
        assert!(!run["series"].as_array().unwrap().is_empty());
        // Each lease has been held, and nothing else.
        let counts = &run["counts"];
        let leases = total(&counts["completed"])
            + total(&counts["backend"])
            + total(&counts["caller"]["cancelled_served"])
            + total(&counts["cut_short"]);
        assert_eq!(run["held_ns"]["count"], leases, "{name}");
        // Each request has a latency, or has gone on for at least so long, or was told at once.
        let unanswered = total(&counts["scheduler"]["timed_out"])
            + total(&counts["caller"])
            + total(&counts["cut_short"])
            + total(&counts["cut_waiting"])
            + total(&counts["too_late"])
            + total(&run["unsent"]);
        assert_eq!(run["unanswered_ns"]["count"], unanswered, "{name}");
        let waiting = &run["waiting_ns"];
        let at = |name: &str| waiting[name].as_u64().unwrap();
        assert!(at("p50") <= at("p90") && at("p90") <= at("p99") && at("p99") <= at("max"), "{waiting}");
    }
}
