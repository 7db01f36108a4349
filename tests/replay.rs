//! The tool from outside: what it prints, where it stops, and what it says then.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
const BURSTGPT: &str = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";

fn tool(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    tool(arguments).output().unwrap()
}

/// Standard output of a run that must succeed quietly.
fn succeed(arguments: &[&str]) -> String {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    assert_eq!(stderr, "", "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let text = succeed(&[arguments, &["--format", "json"]].concat());
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["schema"], 1);
    report
}

/// The one line of a run that must fail, and nothing on standard output.
fn refuse(arguments: &[&str]) -> String {
    let output = run(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    assert!(stderr.ends_with('\n'));
    assert!(output.stdout.is_empty(), "{arguments:?}");
    stderr.trim_end().to_owned()
}

/// What every report must satisfy: nobody is lost, and no answer was wrong.
fn assert_sound(report: &Value) {
    let requests = report["trace"]["requests"].as_u64().unwrap();
    for subject in report["subjects"].as_array().unwrap() {
        let count = |name: &str| subject[name].as_u64().unwrap();
        assert_eq!(count("completed") + count("failed") + count("rejected"), requests, "{subject}");
        assert_eq!(count("disagreements"), 0, "{subject}");
        let leases: u64 =
            subject["resources"].as_array().unwrap().iter().map(|r| r["leases"].as_u64().unwrap()).sum();
        assert_eq!(leases, count("completed") + count("failed") + count("retried"), "{subject}");
    }
}

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Files(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }
}

/// `rows` requests in the Azure format, `gap` milliseconds apart.
fn azure(rows: u64, gap: u64) -> String {
    let mut text = AZURE.to_owned();
    for row in 0..rows {
        let (seconds, millis) = (row * gap / 1_000, row * gap % 1_000);
        let (day, hour, minute) = (1 + seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
        let second = seconds % 60;
        text += &format!(
            "2023-11-{day:02} {hour:02}:{minute:02}:{second:02}.{millis:03}0000,{},{}\n",
            row % 900,
            row % 300
        );
    }
    text
}

/// Everything that `--strategy` offers of the scheduler.
const STRATEGIES: [&str; 10] = [
    "sticky",
    "sticky:2",
    "sticky:2:16",
    "best-of:1",
    "best-of:2",
    "round-robin",
    "weighted",
    "weighted:4:3:2:1",
    "adaptive",
    "strict",
];

/// Options that ask for all of them and the baselines.
fn everyone() -> Vec<&'static str> {
    let strategies = STRATEGIES.iter().flat_map(|strategy| ["--strategy", strategy]);
    ["replay", "--baseline"].into_iter().chain(strategies).collect()
}

#[test]
fn runs_at_once() {
    let table = succeed(&["replay"]);
    assert!(table.contains("built-in (synthetic): 20000 requests"), "{table}");
    assert!(table.lines().any(|line| line.starts_with("sticky ")), "{table}");
}

#[test]
fn baselines_repeat_to_the_byte() {
    let arguments = ["replay", "--strategy", "mutex", "--strategy", "naive", "--speed", "2"];
    let first = succeed(&arguments);
    assert_eq!(first, succeed(&arguments));
    assert_ne!(first, succeed(&[&arguments[..], &["--seed", "2"]].concat()));
}

#[test]
fn every_strategy_repeats_to_the_byte() {
    let first = succeed(&everyone());
    // Enough runs to meet more than one layout of the address space.
    for _ in 0..8 {
        assert_eq!(first, succeed(&everyone()));
    }
    assert_eq!(succeed(&["replay"]), succeed(&["replay"]));
}

#[test]
fn every_strategy_is_sound() {
    let mut arguments = everyone();
    arguments.extend(["--speed", "2"]);
    let report = json(&arguments);
    assert_sound(&report);
    let subjects = report["subjects"].as_array().unwrap();
    let names: Vec<&str> = subjects.iter().map(|subject| subject["name"].as_str().unwrap()).collect();
    assert_eq!(names, [&STRATEGIES[..], &["naive", "mutex"]].concat());
    for subject in
        subjects.iter().filter(|subject| ["strict", "mutex"].contains(&subject["name"].as_str().unwrap()))
    {
        assert_eq!(subject["rank_error"]["max"], 0, "{subject}");
    }
}

#[test]
fn baselines_differ_in_order() {
    let report = json(&["replay", "--strategy", "mutex", "--strategy", "naive", "--limit", "5000"]);
    assert_sound(&report);
    let error = |index: usize| report["subjects"][index]["rank_error"]["mean"].as_f64().unwrap();
    assert_eq!(error(0), 0.0);
    assert!(error(1) > 1.0, "{report}");
}

#[test]
fn forms_agree() {
    let arguments = ["replay", "--baseline", "--strategy", "mutex", "--limit", "2000"];
    let report = json(&arguments);
    let text = succeed(&[&arguments[..], &["--format", "csv"]].concat());
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let headers = reader.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let subjects = report["subjects"].as_array().unwrap();
    assert_eq!(rows.len(), subjects.len());
    for (row, subject) in rows.iter().zip(subjects) {
        let field = |name: &str| &row[headers.iter().position(|header| header == name).unwrap()];
        assert_eq!(field("strategy"), subject["name"].as_str().unwrap());
        assert_eq!(field("completed"), subject["completed"].to_string());
        assert_eq!(field("waiting_ns_p99"), subject["waiting_ns"]["p99"].to_string());
        assert_eq!(
            field("utilisation:reserved-1").parse::<f64>().unwrap(),
            subject["resources"][0]["utilisation"].as_f64().unwrap()
        );
    }
    let table = succeed(&arguments);
    assert!(table.contains(&subjects[0]["completed"].to_string()));
}

#[test]
fn fleet_prints_what_replay_uses() {
    let files = Files::new();
    let fleet = files.write("fleet.toml", succeed(&["fleet"]));
    let arguments = ["replay", "--strategy", "mutex", "--limit", "3000"];
    let with_file = json(&[&arguments[..], &["--fleet", &fleet]].concat());
    assert_eq!(with_file["subjects"], json(&arguments)["subjects"]);
    assert_eq!(with_file["fleet"]["source"], fleet.as_str());
}

#[test]
fn options_change_the_run() {
    let subject = |more: &[&str]| {
        let report = json(&[&["replay", "--strategy", "mutex", "--limit", "4000"], more].concat());
        assert_sound(&report);
        report["subjects"][0].clone()
    };
    let count = |subject: &Value, name: &str| subject[name].as_u64().unwrap();
    let plain = subject(&[]);
    let fast = subject(&["--speed", "20", "--max-queue", "50"]);
    assert!(count(&fast, "duration_ns") < count(&plain, "duration_ns"));
    assert!(count(&fast, "rejected") > 0, "an overloaded fleet and a short line: {fast}");
    let once = subject(&["--max-retries", "0"]);
    assert_eq!(count(&once, "retried"), 0);
    assert!(count(&once, "failed") > count(&plain, "failed"));
}

#[test]
fn burstgpt_is_read() {
    let files = Files::new();
    let rows = "5,ChatGPT,472,18,490,Conversation log\n45.5,\"GPT 4\",\"1087\",0,1087,API log\n118,GPT-4,417,276,693,API log\n";
    let trace = files.write("burst.csv", BURSTGPT.to_owned() + rows);
    let report = json(&["replay", "--strategy", "mutex", "--trace", &trace]);
    assert_sound(&report);
    assert_eq!((&report["trace"]["format"], &report["trace"]["requests"]), (&"burstgpt".into(), &3.into()));
    assert!(report["subjects"][0]["duration_ns"].as_u64().unwrap() > 113_000_000_000);
}

#[test]
fn standard_input_is_a_trace() {
    let text = azure(500, 200);
    let files = Files::new();
    let path = files.write("trace.csv", &text);
    let arguments = ["replay", "--baseline", "--strategy", "mutex", "--format", "json", "--trace"];
    let mut child = tool(&[&arguments[..], &["-"]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let piped: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_sound(&piped);
    assert_eq!(piped["trace"]["source"], "<stdin>");
    let from_file = json(&["replay", "--baseline", "--strategy", "mutex", "--trace", &path]);
    assert_eq!(piped["subjects"], from_file["subjects"]);
}

#[test]
fn bad_traces_are_refused_in_one_line() {
    let row = "2023-11-16 18:15:46.6805900,374,44\n";
    let cases: Vec<(&str, String, &str, &str)> = vec![
        ("empty", String::new(), ":1:1: ", "expected a header"),
        ("header only", AZURE.into(), ":2:1: ", "expected at least one row"),
        ("unknown header", "a,b,c\n1,2,3\n".into(), ":1:1: ", "TIMESTAMP,ContextTokens,GeneratedTokens"),
        ("missing column", "TIMESTAMP,ContextTokens\n".into(), ":1:1: ", "\"GeneratedTokens\""),
        (
            "missing column, other format",
            "Timestamp,Model,Request tokens\n".into(),
            ":1:1: ",
            "\"Response tokens\"",
        ),
        (
            "column twice",
            "TIMESTAMP,ContextTokens,GeneratedTokens,TIMESTAMP\n".into(),
            ":1:41: ",
            "expected one column \"TIMESTAMP\"",
        ),
        (
            "both formats",
            format!("{}{BURSTGPT}", AZURE.replace('\n', ",")),
            ":1:41: ",
            "expected the columns of one format",
        ),
        (
            "bad number",
            format!("{AZURE}{row}2023-11-16 18:15:47.0,37x,4\n"),
            ":3:23: ",
            "expected a whole number",
        ),
        (
            "negative number",
            format!("{AZURE}2023-11-16 18:15:47.0,37,-4\n"),
            ":2:26: ",
            "expected a whole number",
        ),
        ("bad time", format!("{AZURE}yesterday,1,2\n"), ":2:1: ", "expected a time such as"),
        ("bad seconds", format!("{BURSTGPT}1,m,1,2,3,x\nsoon,m,1,2,3,x\n"), ":3:1: ", "expected seconds"),
        (
            "time running backwards",
            format!("{AZURE}{row}\r\n2023-11-16 18:15:45.0,1,2\n"),
            ":4:1: ",
            "not before",
        ),
        (
            "too late",
            format!("{BURSTGPT}0,m,1,2,3,x\n4611686018,m,1,2,3,x\n4611686019,m,1,2,3,x\n"),
            ":4:1: ",
            "at most 2^62 ns (146 years) of virtual time",
        ),
        ("short row", format!("{AZURE}{row}2023-11-16 18:15:47\n"), ":3:20: ", "expected 3 fields, found 1"),
        ("long row", format!("{AZURE}2023-11-16 18:15:47,1,2,3\n"), ":2:25: ", "expected 3 fields, found 4"),
        (
            "unclosed quote",
            format!("{AZURE}{row}2023-11-16 18:15:47,\"37,4\n{row}"),
            ":3:21: ",
            "expected a closing quote",
        ),
        (
            "comma between quotes",
            format!("{BURSTGPT}1,\"m, m\",1,2,3,x\n"),
            ":2:3: ",
            "expected a closing quote",
        ),
        ("endless line", "x".repeat(100_000), ":1:1: ", "expected lines of at most"),
        ("not text", "\u{0}\u{1}\n".into(), ":1:1: ", "expected a header"),
    ];
    let files = Files::new();
    for (name, content, place, expected) in cases {
        let path = files.write("trace.csv", content);
        let out = files.path("report");
        let line = refuse(&["replay", "--strategy", "mutex", "--trace", &path, "--out", &out]);
        assert!(line.starts_with(&format!("leasehold: {path}{place}")), "{name}: {line}");
        assert!(line.contains(expected), "{name}: {line}");
        assert!(!Path::new(&out).exists(), "{name}: something was written");
        assert_eq!(fs::read_dir(files.0.path()).unwrap().count(), 1, "{name}: something was left");
    }
}

#[test]
fn bad_rows_are_skipped_on_request() {
    let files = Files::new();
    let content = format!("{}rubbish\n2023-11-01 00:00:00,1,2\n2023-12-01 00:00:00,1,x\n", azure(50, 1_000));
    let path = files.write("trace.csv", content);
    let arguments = ["replay", "--strategy", "mutex", "--skip-bad-rows", "--trace", &path];
    let report = json(&arguments);
    assert_sound(&report);
    assert_eq!((&report["trace"]["requests"], &report["trace"]["skipped_rows"]), (&50.into(), &3.into()));
    assert!(succeed(&arguments).contains("3 rows skipped"));
    let useless = files.write("useless.csv", format!("{AZURE}a,b,c\n"));
    let line = refuse(&["replay", "--strategy", "mutex", "--skip-bad-rows", "--trace", &useless]);
    assert!(line.contains(":3:1: expected at least one usable row"), "{line}");
}

#[test]
fn speed_makes_rows_late() {
    let files = Files::new();
    let text = format!("{BURSTGPT}0,m,1,2,3,x\n4611,m,1,2,3,x\n4612,m,1,2,3,x\n4613,m,1,2,3,x\n");
    let path = files.write("trace.csv", text);
    let arguments = ["replay", "--strategy", "mutex", "--trace", &path];
    assert_eq!(json(&arguments)["trace"]["requests"], 4);
    let slowly = [&arguments[..], &["--speed", "0.000001"]].concat();
    let line = refuse(&slowly);
    assert!(line.starts_with(&format!("leasehold: {path}:4:1: ")) && line.contains("--speed"), "{line}");
    let report = json(&[&slowly[..], &["--skip-bad-rows"]].concat());
    assert_eq!((&report["trace"]["requests"], &report["trace"]["skipped_rows"]), (&2.into(), &2.into()));
}

/// Thirty years each, one after the other, refused in between: more than a `u64` of nanoseconds holds.
#[test]
fn virtual_time_has_an_end() {
    let files = Files::new();
    let resource = "max_in_flight = 1\ntokens_per_second = 0.1\ntime_to_first_token = 1000000000\n";
    let fleet = format!(
        "[[resource]]\nkey = \"a\"\n{resource}[[resource]]\nkey = \"b\"\n{resource}failure_rate = 0.5\ntokens_per_minute = 1\n"
    );
    let fleet = files.write("fleet.toml", fleet);
    let rows: String = (0..40).map(|second| format!("{second},m,9,100000000,3,x\n")).collect();
    let trace = files.write("trace.csv", format!("{BURSTGPT}{rows}"));
    let mut arguments = everyone();
    arguments.extend(["--trace", &trace, "--fleet", &fleet]);
    let report = json(&arguments);
    assert_sound(&report);
    for subject in report["subjects"].as_array().unwrap() {
        assert_eq!(subject["duration_ns"].as_u64(), Some(1 << 63), "{subject}");
    }
}

/// A quote that is never closed must not swallow the rows behind it.
#[test]
fn unclosed_quotes_cost_their_own_row() {
    let files = Files::new();
    let mut lines: Vec<String> = azure(5_000, 100).lines().map(str::to_owned).collect();
    lines[7].insert(0, '"');
    lines[11].push('"');
    let path = files.write("trace.csv", lines.join("\n"));
    let report = json(&["replay", "--strategy", "mutex", "--skip-bad-rows", "--trace", &path]);
    assert_sound(&report);
    assert_eq!((&report["trace"]["requests"], &report["trace"]["skipped_rows"]), (&4_998.into(), &2.into()));
    let line = refuse(&["replay", "--strategy", "mutex", "--trace", &path]);
    assert!(line.starts_with(&format!("leasehold: {path}:8:1: expected a closing quote")), "{line}");
}

#[test]
fn bad_fleets_are_refused_in_one_line() {
    let good = "[[resource]]\nkey = \"a\"\nmax_in_flight = 2\ntokens_per_second = 50\n";
    let cases: Vec<(&str, Vec<u8>, &str, &str)> = vec![
        ("empty", vec![], ":1:1: ", "at least one [[resource]]"),
        (
            "unknown key",
            format!("{good}speed = 3\n").into(),
            ":5:1: ",
            "unknown field `speed`, expected one of",
        ),
        ("unknown table", format!("{good}[other]\n").into(), ":5:2: ", "unknown field `other`"),
        ("zero capacity", good.replace("= 2", "= 0").into(), ":3:17: ", "1 to 65536"),
        ("not a number", good.replace("= 2", "= \"two\"").into(), ":3:17: ", "1 to 65536"),
        ("missing key", "[[resource]]\nkey = \"a\"\n".into(), ":1:1: ", "missing field"),
        ("twice", format!("{good}{good}").into(), ":6:7: ", "\"a\" is taken"),
        ("broken", "[[resource]\n".into(), ":1:", ""),
        (
            "outage backwards",
            format!("{good}outages = [{{ from = 9, to = 3 }}]\n").into(),
            ":5:12: ",
            "`from` before `to`",
        ),
        ("not text", b"key = \"\xff\"".to_vec(), ":1:8: ", "UTF-8"),
    ];
    let files = Files::new();
    for (name, content, place, expected) in cases {
        let path = files.write("fleet.toml", content);
        let line = refuse(&["replay", "--strategy", "mutex", "--fleet", &path]);
        assert!(line.starts_with(&format!("leasehold: {path}{place}")), "{name}: {line}");
        assert!(line.contains(expected), "{name}: {line}");
    }
}

#[test]
fn unusable_paths_are_refused_in_one_line() {
    let files = Files::new();
    let (missing, directory) = (files.path("missing"), files.path(""));
    for option in ["--trace", "--fleet"] {
        for path in [&missing, &directory] {
            let line = refuse(&["replay", "--strategy", "mutex", option, path]);
            assert!(line.starts_with(&format!("leasehold: {path}: cannot be read: ")), "{line}");
        }
    }
    for path in [files.path("no/such/report"), directory] {
        let line = refuse(&["replay", "--strategy", "mutex", "--out", &path]);
        assert!(line.starts_with(&format!("leasehold: {path}: cannot be written: ")), "{line}");
        assert!(!line.contains(".leasehold-"), "the name of a temporary file: {line}");
    }
}

#[test]
fn bad_arguments_exit_with_2() {
    for arguments in [
        &["replay", "--strategy", "fastest"][..],
        &["replay", "--speed", "0"],
        &["replay", "--shards", "0"],
        &["replay", "--limit", "0"],
        &["replay", "--format", "xml"],
        &["replay", "--unknown"],
        &["unknown"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn out_is_replaced_whole() {
    let files = Files::new();
    let out = files.write("report.json", "old");
    let arguments = ["replay", "--strategy", "mutex", "--limit", "500", "--format", "json"];
    let printed = succeed(&arguments);
    assert_eq!(succeed(&[&arguments[..], &["--out", &out]].concat()), "");
    assert_eq!(fs::read_to_string(&out).unwrap(), printed);
    assert_eq!(fs::read_dir(files.0.path()).unwrap().count(), 1);
}

#[test]
fn out_is_never_an_input() {
    let files = Files::new();
    let (trace, fleet) =
        (files.write("trace.csv", azure(50, 100)), files.write("fleet.toml", succeed(&["fleet"])));
    for (option, path) in [("--trace", &trace), ("--fleet", &fleet)] {
        let before = fs::read(path).unwrap();
        let line = refuse(&["replay", "--strategy", "mutex", option, path, "--out", path]);
        assert_eq!(
            line,
            format!("leasehold: --out: expected another file than that of {option}, found {path}")
        );
        assert_eq!(fs::read(path).unwrap(), before);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn out_may_be_a_pipe() {
    let arguments = ["replay", "--strategy", "mutex", "--limit", "100"];
    let printed = succeed(&arguments);
    // Standard output of a test run is a pipe; its link in /proc names no path.
    assert_eq!(succeed(&[&arguments[..], &["--out", "/dev/stdout"]].concat()), printed);

    let files = Files::new();
    let fifo = files.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let child = tool(&[&arguments[..], &["--out", &fifo]].concat()).spawn().unwrap();
    assert_eq!(fs::read_to_string(&fifo).unwrap(), printed);
    assert!(child.wait_with_output().unwrap().status.success());
}

#[cfg(unix)]
#[test]
fn closed_pipe_is_an_error_not_a_panic() {
    for arguments in [&["fleet"][..], &["replay", "--strategy", "mutex", "--limit", "100"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = tool(arguments).stdout(writer).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.starts_with("leasehold: <stdout>: cannot be written: "), "{stderr}");
    }
}

/// Most memory that a child has used while reading `rows` rows from its standard input.
#[cfg(target_os = "linux")]
fn most_memory(rows: u64) -> u64 {
    let mut child = tool(&["replay", "--strategy", "mutex", "--strategy", "naive", "--trace", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(azure(rows, 250).as_bytes()).unwrap();
    // All but the last pipeful has been read, and the child waits for more.
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("{rows} requests")), "{text}");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_follow_the_length_of_the_trace() {
    let (short, long) = (most_memory(10_000), most_memory(200_000));
    assert!(long < short + 2_048, "10,000 rows: {short} kB; 200,000 rows: {long} kB");
}

/// The Azure conversation trace of 2023: beside the crate, or in the directory that `LEASEHOLD_TRACES` names.
fn real_trace() -> Option<PathBuf> {
    let directory = std::env::var_os("LEASEHOLD_TRACES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/traces"), PathBuf::from);
    let path = directory.join("AzureLLMInferenceTrace_conv.csv");
    if path.is_file() {
        return Some(path);
    }
    // Written past the capture of the test harness: a skipped test must not look like a passed one.
    let _ = writeln!(std::io::stderr(), "SKIPPED: no real trace at {}", path.display());
    None
}

#[test]
fn real_trace_replays_whole() {
    let Some(path) = real_trace() else { return };
    let report = json(&[&everyone()[..], &["--trace", path.to_str().unwrap()]].concat());
    assert_eq!(report["trace"]["requests"], 19_366);
    assert_eq!(report["trace"]["format"], "azure");
    assert_sound(&report);
}
