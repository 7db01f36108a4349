//! `leasehold load --processes` from outside: real processes, a real server; what they did adds up, no unit is lent by two at once, and
//! nobody and nothing is left behind however it ends.
//!
//! What needs a server is ignored unless asked for: `.ci/cluster` installs it and runs it. `LEASEHOLD_SERVER` names the program.
#![cfg(unix)]

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// With an own directory for what is temporary, so that what is left there is seen.
fn tool(arguments: &[&str], temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(arguments).env("TMPDIR", temporary);
    command
}

fn server() -> String {
    std::env::var("LEASEHOLD_SERVER").unwrap_or_else(|_| {
        panic!("LEASEHOLD_SERVER is not set: install redis-server or valkey-server and name its program there, or run .ci/cluster")
    })
}

fn total(counts: &Value) -> u64 {
    match counts {
        Value::Object(fields) => fields.values().map(total).sum(),
        number => number.as_u64().unwrap(),
    }
}

/// Every count of the whole and of each process; answers with the run.
fn sound(result: &Value, processes: usize) -> &Value {
    let run = &result["subjects"][0]["run"];
    assert_eq!(run["broken"], 0, "{}", run["breaches"]);
    let checks = run["checks"].as_array().unwrap();
    assert!(
        checks.len() > 5 + 10 * processes && checks.iter().all(|check| check["holds"] == true),
        "{checks:?}"
    );
    for name in ["units given back", "no unit lent by two at once", "uses of units", "process-1: requests"] {
        assert!(checks.iter().any(|check| check["name"] == name), "{name}: {checks:?}");
    }
    let shared = &run["processes"];
    let rows = shared["rows"].as_array().unwrap();
    assert_eq!(rows.len(), processes);
    for field in ["requests", "unsent"] {
        let sum: u64 = rows.iter().map(|row| row[field].as_u64().unwrap()).sum();
        assert_eq!(sum, run[field].as_u64().unwrap(), "{field}");
    }
    for row in rows {
        assert_eq!(total(&row["counts"]), row["requests"].as_u64().unwrap(), "{row}");
        let held = &row["held"];
        let at = |name: &str| held[name].as_f64().unwrap();
        assert!(at("least") <= at("mean") && at("mean") <= at("most"), "{row}");
        assert_eq!(row["claimed"], row["returned"], "{row}");
    }
    let workers: u64 = rows.iter().map(|row| row["workers"].as_u64().unwrap()).sum();
    assert_eq!(workers, result["scenario"]["workers"].as_u64().unwrap());
    assert_eq!(total(&run["counts"]), run["requests"].as_u64().unwrap());
    let waited: u64 = rows.iter().map(|row| row["waiting_ns"]["count"].as_u64().unwrap()).sum();
    assert_eq!(waited, run["waiting_ns"]["count"].as_u64().unwrap());
    let counts = &run["counts"];
    let leases = total(&counts["completed"])
        + total(&counts["backend"])
        + total(&counts["cut_short"])
        + total(&counts["caller"]["cancelled_served"]);
    // One whose claim had ended before it could be used was not held.
    let held = run["held_ns"]["count"].as_u64().unwrap();
    assert!((leases..=leases + total(&counts["claim_lost"])).contains(&held), "{held}: {counts}");
    run
}

fn left(temporary: &Path) -> Vec<PathBuf> {
    fs::read_dir(temporary).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn play(arguments: &[&str], processes: usize) -> Value {
    let temporary = tempfile::tempdir().unwrap();
    let (server, count) = (server(), processes.to_string());
    let fixed = ["--processes", &count, "--server", &server, "--format", "json"];
    let output = tool(&[&["load"], arguments, &fixed].concat(), temporary.path()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stderr.is_empty(), "{arguments:?}: {stderr}{stdout}");
    assert_eq!(left(temporary.path()), Vec::<PathBuf>::new(), "the server's directory");
    serde_json::from_str(&stdout).unwrap()
}

/// More callers than units, who pause: what each process needs changes all the time, so units go to and fro.
#[test]
#[ignore = "needs a server: .ci/cluster"]
fn two_processes_share_a_fleet() {
    let result = play(
        &["gpu", "--duration", "2500ms", "--set", "hold=fixed 15ms", "--set", "think=exponential 60ms"],
        2,
    );
    let run = sound(&result, 2);
    let shared = &run["processes"];
    assert_eq!(
        (shared["units"].as_u64(), result["subjects"][0]["name"].as_str()),
        (Some(16), Some("sticky"))
    );
    assert!(shared["uses"].as_u64().unwrap() > 100, "{shared}");
    assert!(shared["handed_over"].as_u64().unwrap() > 0, "{shared}");
    assert!(run["throughput_of_rounds"].as_array().unwrap().len() == 2);
    assert!(
        !run["series"].as_array().unwrap().is_empty() && !run["heat"]["rows"].as_array().unwrap().is_empty()
    );
}

/// Threads and tasks, an open loop with failures, rests and cancellations, and a strategy that was asked for.
#[test]
#[ignore = "needs a server: .ci/cluster"]
fn three_processes_share_a_fleet() {
    let result = play(
        &["gateway", "--duration", "1500ms", "--rounds", "1", "--workers", "301", "--subject", "best-of:2@4"],
        3,
    );
    let run = sound(&result, 3);
    assert!(total(&run["counts"]["backend"]) > 0, "{}", run["counts"]);
    assert!(run["uncorrected_ns"].is_object() && run["shards"] == 4);
    let threads =
        ["replicas", "--duration", "1s", "--rounds", "1", "--set", "updates=0", "--set", "exclusions=0"];
    let result = play(&threads, 3);
    assert!(sound(&result, 3)["counts"]["peeked"].as_u64().unwrap() > 0);
}

/// A server that runs already is used, and is left as it was found.
#[test]
#[ignore = "needs a server: .ci/cluster"]
fn a_server_that_runs_is_left_as_it_was() {
    let temporary = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut running = Command::new(server())
        .args([
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            temporary.path().to_str().unwrap(),
        ])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the server listens", || TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
    let address = format!("redis://127.0.0.1:{port}/");
    let arguments = [
        "load",
        "gpu",
        "--duration",
        "500ms",
        "--rounds",
        "1",
        "--processes",
        "2",
        "--format",
        "json",
        "--server",
        &address,
    ];
    let output = tool(&arguments, temporary.path()).output().unwrap();
    let keys = keys(&port);
    let alive = running.try_wait().unwrap().is_none();
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    sound(&serde_json::from_slice(&output.stdout).unwrap(), 2);
    assert!(alive && keys == "*0", "{keys}");
}

/// What a server answers, in its own words; empty if it does not.
fn ask(port: &str, what: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(format!("127.0.0.1:{port}")) else { return String::new() };
    let mut answer = [0; 4_000];
    let told = stream.write_all(format!("{what}\r\n").as_bytes());
    let length = told.and_then(|()| stream.read(&mut answer)).unwrap_or(0);
    String::from_utf8_lossy(&answer[..length]).trim_end().to_owned()
}

/// All keys that the server has.
fn keys(port: &str) -> String {
    ask(port, "KEYS *")
}

/// Waits for something that must come to pass.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < end, "it never came to this: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Whether the processes of a run own all 16 units of the fleet: then the first round begins. Its server calls itself by its address, or is still
/// called by its options.
fn has_begun(temporary: &Path) -> bool {
    let port = |command: &str| {
        let (_, rest) = command.split_once("127.0.0.1:").or_else(|| command.split_once("--port\0"))?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        (!digits.is_empty()).then_some(digits)
    };
    let commands = alive(temporary);
    let ours = |command: &str| command.contains("load-process") || command.contains("--processes");
    let servers = commands.iter().filter(|(_, command)| !ours(command));
    let own = |port: String| {
        let owned = keys(&port).lines().find(|key| key.ends_with(":owned")).map(str::to_owned);
        owned.is_some_and(|key| ask(&port, &format!("ZCARD {key}")) == ":16")
    };
    servers.filter_map(|(_, command)| port(command)).any(own)
}

/// Starts a long run and waits until the server's directory and some load are there.
fn long(duration: &str, temporary: &Path) -> Child {
    let server = server();
    let arguments = [
        "load",
        "gpu",
        "--duration",
        duration,
        "--rounds",
        "1",
        "--processes",
        "2",
        "--server",
        &server,
        "--format",
        "json",
    ];
    let child = tool(&arguments, temporary).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("all units are claimed", || has_begun(temporary));
    // Some load.
    thread::sleep(Duration::from_secs(2));
    assert_eq!(left(temporary).len(), 1, "the server's directory");
    child
}

/// What belongs to a run: everything whose command line or environment names its temporary directory, or that works there; with what was
/// called. A server writes its state over its own command line and environment, and works in its directory.
fn alive(temporary: &Path) -> Vec<(String, String)> {
    let name = temporary.file_name().unwrap().to_str().unwrap().to_owned();
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let belongs = |process: PathBuf| {
        let read =
            |file| String::from_utf8_lossy(&fs::read(process.join(file)).unwrap_or_default()).into_owned();
        let [command, environment] = ["cmdline", "environ"].map(read);
        let works_in = fs::read_link(process.join("cwd")).unwrap_or_default().to_string_lossy().into_owned();
        let number = process.file_name().unwrap().to_string_lossy().into_owned();
        let names = [&command, &environment, &works_in];
        names.iter().any(|text| text.contains(&name)).then_some((number, command))
    };
    processes.filter_map(belongs).collect()
}

fn all_gone(temporary: &Path) {
    let end = Instant::now() + Duration::from_secs(60);
    while !(alive(temporary).is_empty() && left(temporary).is_empty()) && Instant::now() < end {
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!((alive(temporary), left(temporary)), (Vec::new(), Vec::new()));
}

#[test]
#[ignore = "needs a server: .ci/cluster"]
fn ctrl_c_leaves_a_partial_result() {
    let temporary = tempfile::tempdir().unwrap();
    let child = long("60s", temporary.path());
    // As a terminal does it: to everybody in the foreground.
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["interrupted"], true);
    sound(&result, 2);
    all_gone(temporary.path());
}

/// The check can fail: a process that is stopped for longer than its claims are good goes on holding what others have been given.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs a server: .ci/cluster"]
fn a_process_that_holds_on_is_seen() {
    let run = |duration: &str, stopped: u64| {
        let temporary = tempfile::tempdir().unwrap();
        let child = long(duration, temporary.path());
        let processes = alive(temporary.path());
        let (process, _) = processes.iter().find(|(_, command)| command.contains("load-process")).unwrap();
        let signal =
            |what: &str| assert!(Command::new("kill").args([what, process]).status().unwrap().success());
        signal("-STOP");
        thread::sleep(Duration::from_secs(stopped));
        signal("-CONT");
        let output = child.wait_with_output().unwrap();
        all_gone(temporary.path());
        output
    };
    let mut output = run("12s", 5);
    if !String::from_utf8_lossy(&output.stdout).contains("before the end of its last use by") {
        // Nobody has come to use what it held: a busy machine needs longer.
        output = run("40s", 15);
    }
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = &result["subjects"][0]["run"];
    assert!(run["broken"].as_u64().unwrap() > 0);
    assert!(
        run["breaches"][0].as_str().unwrap().contains("before the end of its last use by"),
        "{}",
        run["breaches"]
    );
    assert!(run["processes"]["rows"].as_array().unwrap().iter().any(|row| row["lost"].as_u64() > Some(0)));
}

/// The parent has no last word: its processes stop the server and remove its directory.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs a server: .ci/cluster"]
fn nobody_outlives_a_parent_that_is_killed() {
    let temporary = tempfile::tempdir().unwrap();
    let mut child = long("60s", temporary.path());
    assert!(alive(temporary.path()).len() >= 4, "the parent, two processes, the server");
    child.kill().unwrap();
    child.wait().unwrap();
    all_gone(temporary.path());
}

fn refused(arguments: &[&str], path: Option<&str>) -> String {
    let temporary = tempfile::tempdir().unwrap();
    let mut command = tool(&[&["load"], arguments].concat(), temporary.path());
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), stdout.len(), left(temporary.path()).len()), (Some(2), 0, 0), "{stderr}");
    stderr
}

#[test]
fn what_does_not_fit_is_told_in_one_line() {
    for (arguments, part) in [
        (
            ["churn", "--processes", "2"].as_slice(),
            "the scenario asks for churn, but the list of resources is the same",
        ),
        (&["replicas", "--processes", "2"], "asks for updates"),
        (&["soak", "--processes", "2"], "asks for soak"),
        (&["gpu", "--processes", "2", "--set", "several=1"], "asks for several"),
        (&["gpu", "--processes", "2", "--set", "drains=1"], "change it with --set drains=0"),
        (&["gpu", "--processes", "2", "--set", "capacity=[1,0]"], "capacity 0, which is unlimited"),
        (&["gpu", "--processes", "2", "--subject", "fast"], "subject \"fast\": expected sticky"),
        (&["gpu", "--processes", "17"], "units of capacity for each of 17 processes, found 16"),
        (
            &["gpu", "--processes", "2", "--subject", "mutex"],
            "--subject mutex: expected a strategy of the scheduler",
        ),
        (
            &["gpu", "--processes", "2", "--subject", "sticky", "--subject", "strict"],
            "expected one --subject, found 2",
        ),
        (
            &["gpu", "--processes", "2", "--server", "/no/such/server"],
            "--server /no/such/server: cannot be started",
        ),
        (
            &["gpu", "--processes", "2", "--server", "/bin/false"],
            "expected a Redis 7 or Valkey server, but it ended before it listened",
        ),
        (
            &["gpu", "--processes", "2", "--server", "redis://127.0.0.1:1/"],
            "expected a Redis 7 or Valkey server that answers",
        ),
    ] {
        let stderr = refused(arguments, None);
        assert!(stderr.contains(part) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    let stderr = refused(&["gpu", "--server", "redis-server"], None);
    assert!(stderr.contains("--processes"), "{stderr}");
}

#[test]
fn a_server_that_is_missing_is_told_with_its_package() {
    let stderr = refused(&["gpu", "--processes", "2"], Some("/no/such/directory"));
    assert!(stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.contains("install the package valkey-server or redis-server"), "{stderr}");
}
