//! `leasehold report` and `order` from outside: the page is whole, self-contained and well-formed, and each chart shows something.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use roxmltree::{Document, Node, ParsingOptions};
use serde_json::Value;
use tempfile::TempDir;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold")).args(arguments).output().unwrap()
}

fn succeed(arguments: &[&str]) -> String {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn write(path: &Path, arguments: &[&str]) {
    succeed(&[arguments, &["--format", "json", "--out", path.to_str().unwrap()]].concat());
}

/// The result of what is played for so long: the first of these lengths in which somebody was answered by everybody, which nobody may be on a
/// machine that stalls. Nothing else may be wrong, in none of the attempts.
fn write_played(path: &Path, arguments: &[&str], option: &str, lengths: [&str; 3]) {
    let is_played = lengths.iter().any(|length| {
        let to = [option, length, "--format", "json", "--out", path.to_str().unwrap()];
        let output = run(&[arguments, &to].concat());
        if output.status.success() {
            return true;
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        let result: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let wrong = wrong(&result);
        assert!(!wrong.is_empty() && wrong.iter().all(|name| name == "played"), "{arguments:?}: {wrong:?}");
        false
    });
    assert!(is_played, "{arguments:?}: nobody was answered");
}

/// The names of the checks that do not hold, in a result of `load` or of `tune`.
fn wrong(result: &Value) -> Vec<String> {
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    // "setting: check: what was found".
    let of_tune = array(&result["broken"])
        .into_iter()
        .map(|fault| fault.as_str().unwrap().split(": ").nth(1).unwrap_or_default().to_owned());
    let subjects = array(&result["subjects"]);
    let of_load = subjects.iter().flat_map(|subject| {
        let run = &subject["run"];
        let breaches = array(&run["breaches"]).into_iter().map(|breach| breach.to_string());
        let checks = array(&run["checks"]).into_iter().filter(|check| check["holds"] == false);
        breaches.chain(checks.map(|check| check["name"].as_str().unwrap().to_owned())).collect::<Vec<_>>()
    });
    of_tune.chain(of_load).collect()
}

/// A small result of each command that tells of subjects and strategies.
fn results(directory: &TempDir) -> [PathBuf; 3] {
    let path = |name: &str| directory.path().join(name);
    let [load, replay, order] = ["load.json", "replay.json", "order.json"].map(path);
    let load_options = ["load", "replicas", "--rounds", "2", "--set", "affinity=0", "--set", "wait=100ms"];
    write_played(&load, &load_options, "--duration", ["600ms", "3s", "20s"]);
    write(&replay, &["replay", "--limit", "2000", "--baseline"]);
    let order_options =
        ["order", "--resources", "64,256", "--samples", "2000", "--rounds", "2", "--milliseconds", "5"];
    write(&order, &order_options);
    [load, replay, order]
}

fn is(node: &Node<'_, '_>, name: &str) -> bool {
    node.tag_name().name() == name
}

/// Text and everything below.
fn text(node: Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect()
}

#[test]
fn the_page_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let inputs = results(&directory);
    let page = directory.path().join("page.html");
    let mut arguments = vec!["report"];
    arguments.extend(inputs.iter().map(|path| path.to_str().unwrap()));
    arguments.extend(["--out", page.to_str().unwrap(), "--title", "A <title> & more"]);
    succeed(&arguments);
    let html = fs::read_to_string(&page).unwrap();

    // Nothing from elsewhere, nothing that runs.
    for forbidden in ["<script", "<link", "<img", "@import", "url(", "src=", "javascript:"] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    let namespaces = html.matches("http://www.w3.org/2000/svg").count();
    assert_eq!(html.matches("http").count(), namespaces, "no other address");
    assert!(html.contains("prefers-color-scheme: dark") && html.contains("@media print"));
    assert!(html.contains("name=\"viewport\""));

    let document = parse(&html);
    let root = document.root_element();
    let all = |name: &'static str| root.descendants().filter(move |node| is(node, name));
    assert_eq!(text(all("title").next().unwrap()), "A <title> & more");
    let headings: Vec<String> = all("h2").map(text).collect();
    assert_eq!(headings, ["replicas", "replay of built-in", "order against throughput"]);
    let titles: Vec<String> =
        all("figure").map(|figure| text(figure.descendants().find(|node| is(node, "h3")).unwrap())).collect();
    for expected in [
        "Waiting for a lease",
        "Latency: from the moment that was meant to the end",
        "Throughput over time",
        "Waiting queue over time",
        "Utilisation of each resource, sticky",
        "Fairness",
        "Rank error of sticky",
        "Order against throughput",
        "Delay against throughput",
        "Utilisation of each resource",
        // Of the replay, which has a series and a histogram too.
        "Rank error of mutex",
    ] {
        assert!(titles.iter().any(|title| title == expected), "{expected}: {titles:?}");
    }
    for figure in all("figure") {
        assert_shows_something(figure);
    }
    assert!(all("td").any(|cell| cell.attribute("class") == Some("best")));
    let settings = text(all("pre").next().unwrap());
    let played: Value = serde_json::from_str(&fs::read_to_string(&inputs[0]).unwrap()).unwrap();
    let duration = format!("duration = {}", played["scenario"]["duration"]);
    assert!(settings.contains("workers = 64") && settings.contains(&duration), "{settings}");
    assert!(text(root).contains("5n/6"));
    assert_eq!(titles.iter().filter(|title| *title == "Throughput over time").count(), 2, "{titles:?}");
    // The order's table has the samples behind it and marks the best of each fleet; the points of its chart have names in the table.
    let of_order = rows_under(&document, "time over sticky's");
    let best = |part: &str| {
        of_order.iter().filter(|row| row[0].starts_with(part) && row[1].ends_with(" best")).count()
    };
    assert_eq!((best("64, "), best("256, ")), (1, 1), "{of_order:?}");
    assert!(all("dd").any(|fact| text(fact) == "2,000"));
    let points = rows_under(&document, "point");
    assert!(points.iter().any(|row| row[1] == "strict"), "{points:?}");
}

fn parse(html: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(html, options).unwrap()
}

/// The rows of a table that has such a heading: cells as text, those that are marked as the best with it.
fn rows_under(document: &Document<'_>, heading: &str) -> Vec<Vec<String>> {
    let mut tables = document.descendants().filter(|node| is(node, "table"));
    let has = |table: &Node<'_, '_>| table.descendants().any(|node| is(&node, "th") && text(node) == heading);
    let table = tables.find(has).unwrap_or_else(|| panic!("no table with {heading}"));
    let body = table.descendants().find(|node| is(node, "tbody")).unwrap();
    body.children().map(|row| row.children().map(text).collect()).collect()
}

/// What `compare`, `tune` and `pressure` found, with a bar that is missed and one that is not measured.
#[test]
fn bars_settings_and_memory_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let [compare, tune, pressure] = ["compare.json", "tune.json", "pressure.json"].map(path);
    let only = ["pair", "memory", "memory/blocks", "strict/rank-error", "get/scc", "peek", "get"];
    let mut arguments = vec!["compare", "--resources", "500", "--pairs", "5", "--milliseconds", "1"];
    only.iter().for_each(|name| arguments.extend(["--only", name]));
    write(&compare, &arguments);
    let tune_options = ["tune", "gpu", "--requests", "1000", "--rounds", "1"];
    write_played(&tune, &tune_options, "--milliseconds", ["50", "500", "4000"]);
    write(&pressure, &["pressure", "--jobs", "200", "--bytes", "100000", "--capacity", "20"]);
    // Whatever this machine measures: one row is missed, one is held, each by a factor that can be seen.
    let mut result: Value = serde_json::from_str(&fs::read_to_string(&compare).unwrap()).unwrap();
    assert_eq!(result["kind"], "compare");
    for bar in result["bars"].as_array_mut().unwrap() {
        if bar["name"] == "memory" {
            (bar["measured"], bar["leasehold_value"], bar["holds"]) = (256.into(), 256.into(), false.into());
        }
        if bar["name"] == "pair" && bar["threads"] == 1 {
            (bar["leasehold_value"], bar["baseline_value"]) = (10.5.into(), 99.5.into());
        }
    }
    fs::write(&compare, result.to_string()).unwrap();
    let inputs = [&compare, &tune, &pressure].map(|path| path.to_str().unwrap());
    let html = succeed(&[&["report"], &inputs[..]].concat());
    let document = parse(&html);
    let all = |name: &'static str| document.descendants().filter(move |node| is(node, name));
    let headings: Vec<String> = all("h2").map(text).collect();
    assert_eq!(headings, ["bars and baselines", "settings for gpu", "back-pressure"]);
    for figure in all("figure") {
        assert_shows_something(figure);
    }
    let titles: Vec<String> = all("h3").map(text).collect();
    for expected in [
        "Bars",
        "Each row against its bar",
        "Operations beside the mutex",
        "The finalists with real threads",
        "The finalists on the workload",
        "What is different here from the workload",
        "Every setting in virtual time",
        "Memory",
    ] {
        assert!(titles.iter().any(|title| title == expected), "{expected}: {titles:?}");
    }
    let bars = rows_under(&document, "verdict");
    assert!(bars.len() >= only.len() - 2, "{bars:?}");
    let row = |name: &str| bars.iter().find(|row| row[0] == name).unwrap();
    assert_eq!(row("memory")[2..5], ["256", "128", "MISSED"]);
    assert_eq!(row("pair")[7..9], ["10.5 best", "99.5"]);
    assert_eq!(row("memory/blocks")[3..5], ["–", "no bar"]);
    // The chart has every row that has a bar to be divided by, and its axis says what is on it.
    let chart =
        all("svg").find(|svg| svg.attribute("aria-label") == Some("Each row against its bar")).unwrap();
    let words = text(chart);
    assert!(words.contains("measured over bar, no unit") && words.contains("256 of 128"), "{words}");
    assert!(!words.contains("rank-error"), "a bar of nothing cannot be divided by: {words}");
    let beside = rows_under(&document, "mutex, ns");
    assert!(beside.iter().any(|row| row[0] == "peek, 1 thread"), "{beside:?}");
    assert!(beside.iter().flatten().any(|cell| cell.ends_with(" best")), "{beside:?}");
    assert!(text(all("pre").next().unwrap()).contains("builder()"));
    // What it was measured with, and what decided.
    let facts: Vec<String> = all("dt").map(text).collect();
    for fact in [
        "pairs of runs of each row",
        "milliseconds of each run",
        "seed",
        "with strict fairness",
        "with throughput first",
    ] {
        assert!(facts.iter().any(|name| name == fact), "{fact}: {facts:?}");
    }
    let played = rows_under(&document, "setting, fairness");
    assert!(played.len() >= 2 && played[0][0].ends_with(", Strict"), "{played:?}");
}

/// What many processes did, from a result as `load --processes` writes it: of one process, to which another is added here.
#[test]
fn processes_have_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("load.json");
    let arguments = ["load", "gpu", "--rounds", "1", "--subject", "sticky", "--set", "hold=fixed 2ms"];
    write_played(&path, &arguments, "--duration", ["2s", "10s", "30s"]);
    let mut result: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let run = &mut result["subjects"][0]["run"];
    assert!(run["processes"].is_null());
    let process = |name: &str, mean: f64| {
        serde_json::json!({
            "name": name, "workers": 24, "requests": run["requests"], "unsent": 0, "counts": run["counts"],
            "throughput": 1_234.5, "waiting_ns": run["waiting_ns"], "latency_ns": run["latency_ns"],
            "held": { "least": 3, "mean": mean, "most": 11 }, "claimed": 20, "returned": 20, "lost": 0,
            "server_failures": 0,
        })
    };
    let rows = [process("process-1", 7.5), process("process-2", 8.5)];
    run["processes"] = serde_json::json!({
        "server": "<redis>", "ttl_ns": 2_000_000_000u64, "units": 16, "uses": 400, "handed_over": 12, "rows": rows,
    });
    fs::write(&path, result.to_string()).unwrap();
    let html = succeed(&["report", path.to_str().unwrap()]);
    assert!(html.contains(
        "16 units shared through &lt;redis&gt;, 400 uses; a unit went to another process 12 times"
    ));
    let rows = rows_under(&parse(&html), "units held");
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!(rows[1][..4], ["process-2", "24", "8.50", "3 to 11"]);
}

/// Axes with titles, a drawing inside them, and a table behind.
fn assert_shows_something(figure: Node<'_, '_>) {
    let title = text(figure.descendants().find(|node| is(node, "h3")).unwrap());
    let svg = figure.descendants().find(|node| is(node, "svg")).unwrap();
    assert!(svg.attribute("aria-label").is_some_and(|label| !label.is_empty()), "{title}");
    let labels = svg.descendants().filter(|node| is(node, "text")).count();
    assert!(labels >= 6, "{title}: {labels} texts");
    // What is measured, in words, below and, turned, beside: bars have names there.
    let words = |node: &Node<'_, '_>| {
        is(node, "text") && text(*node).chars().filter(|c| c.is_alphabetic()).count() >= 4
    };
    let is_turned =
        |node: &Node<'_, '_>| node.attribute("transform").is_some_and(|how| how.contains("rotate"));
    let (upright, level): (Vec<_>, Vec<_>) = svg.descendants().filter(words).partition(is_turned);
    assert!(!level.is_empty(), "{title}: no axis says what it measures");
    let is_of_bars = level.iter().filter(|node| node.attribute("text-anchor") == Some("end")).count() > 0;
    assert!(!upright.is_empty() || is_of_bars, "{title}: the upright axis does not say what it measures");
    // What is drawn in a colour of a series, or a step of the heat map, and not in that of the axes or the grid.
    let colour = |node: &Node<'_, '_>, name: &str| {
        node.attribute(name).filter(|colour| !["none", "#222222", "#DDDDDD"].contains(colour)).is_some()
    };
    let drawn: Vec<Node<'_, '_>> = svg
        .descendants()
        .filter(|node| !is(node, "text") && (colour(node, "fill") || colour(node, "stroke")))
        .collect();
    assert!(!drawn.is_empty(), "{title}: nothing is drawn");
    for line in drawn.iter().filter(|node| is(node, "polyline")) {
        let points = line.attribute("points").unwrap().split_whitespace().count();
        assert!(points >= 2, "{title}: a line of {points} points");
    }
    let rows = figure.descendants().filter(|node| is(node, "tr")).count();
    assert!(rows >= 2, "{title}: a table of {rows} rows");
}

#[test]
fn names_cannot_break_out() {
    let directory = tempfile::tempdir().unwrap();
    let [load, ..] = results(&directory);
    let evil = "</style><script>alert(1)</script>";
    let mut result: Value = serde_json::from_str(&fs::read_to_string(&load).unwrap()).unwrap();
    result["source"] = evil.into();
    result["subjects"][0]["name"] = evil.into();
    result["subjects"][1]["unfit"] = evil.into();
    result["interrupted"] = true.into();
    fs::write(&load, result.to_string()).unwrap();
    let html = succeed(&["report", load.to_str().unwrap()]);
    assert!(!html.contains("<script") && html.contains("&lt;script&gt;"));
    assert!(html.contains("Partial: the run was interrupted"));
}

#[test]
fn what_is_no_result_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.json");
    fs::write(&path, "{\"schema\": 1}").unwrap();
    for (arguments, part) in [
        (
            vec!["report", path.to_str().unwrap()],
            "x.json:1:1: expected a result of `load`, `replay`, `order`, `compare`, `tune` or `pressure`",
        ),
        (vec!["report", "/no/such/file"], "cannot be read"),
        (vec!["report", path.to_str().unwrap(), "--out", path.to_str().unwrap()], "expected another file"),
    ] {
        let output = run(&arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(part) && stderr.lines().count() == 1, "{stderr}");
    }
}

/// The exact order has no rank error; one random queue has more than the better of two.
#[test]
fn orders_are_what_they_should_be() {
    let arguments =
        ["order", "--resources", "512", "--samples", "5000", "--rounds", "2", "--milliseconds", "5"];
    let result: Value =
        serde_json::from_str(&succeed(&[&arguments[..], &["--format", "json"]].concat())).unwrap();
    assert_eq!((&result["schema"], &result["kind"]), (&1.into(), &"order".into()));
    let error = |name: &str| {
        let cells = result["cells"].as_array().unwrap();
        cells.iter().find(|cell| cell["strategy"] == name).unwrap()["rank_error_mean"].as_f64().unwrap()
    };
    assert_eq!(error("strict"), 0.0);
    assert!(error("best-of:4") < error("best-of:2") && error("best-of:2") < error("best-of:1"));
    let cell = |name: &str| {
        result["cells"].as_array().unwrap().iter().find(|cell| cell["strategy"] == name).unwrap()
    };
    assert_eq!((&cell("strict")["delay_mean"], &cell("strict")["delay_max"]), (&0.0.into(), &0.into()));
    let delay = |name: &str| cell(name)["delay_mean"].as_f64().unwrap();
    assert!(delay("best-of:4") < delay("best-of:2") && delay("best-of:2") < delay("best-of:1"));
    assert!(cell("best-of:2")["delay_p99"].as_u64() <= cell("best-of:2")["delay_max"].as_u64());
    let law = result["cells"][0]["law"].as_f64().unwrap();
    assert!(error("best-of:2") < 2.0 * law, "{} {law}", error("best-of:2"));
    let table = succeed(&[&arguments[..], &["--format", "markdown"]].concat());
    let rows = table.lines().filter(|line| line.starts_with('|')).count();
    assert!(table.starts_with("| resources | strategy |") && rows == 7, "{table}");
    assert!(
        table.contains("\n8 shards, ") && table.contains(" 5,000 samples, 2 rounds, seed 1.\n"),
        "{table}"
    );
}

/// Rank errors and delays follow from the seed alone: not from how often, and by how many threads, the speed was measured beside them.
#[test]
fn what_is_exact_repeats() {
    let exact = |rounds: &str| {
        let mut arguments =
            vec!["order", "--resources", "200,2000", "--samples", "3000", "--milliseconds", "3"];
        let strategies =
            ["best-of:1", "best-of:2", "strict", "sticky", "sticky:2:16", "adaptive", "round-robin"];
        strategies.iter().for_each(|strategy| arguments.extend(["--strategy", strategy]));
        arguments.extend(["--rounds", rounds, "--format", "json"]);
        let mut result: Value = serde_json::from_str(&succeed(&arguments)).unwrap();
        let cells = result["cells"].as_array_mut().unwrap();
        assert_eq!(cells.len(), 14);
        for cell in cells.iter_mut() {
            let fields = cell.as_object_mut().unwrap();
            fields.retain(|name, _| {
                name.starts_with("rank_") || name.starts_with("delay_") || name == "strategy"
            });
            assert_eq!(fields.len(), 7);
        }
        cells.clone()
    };
    let once = exact("1");
    for rounds in ["1", "3", "7"] {
        assert_eq!(exact(rounds), once, "{rounds} rounds");
    }
}

/// A cell's number in nanoseconds, or as it is.
fn number(cell: &str) -> f64 {
    let cell = cell.strip_suffix(" best").unwrap_or(cell).replace(',', "");
    let (number, unit) = cell.split_once(' ').unwrap_or((&cell, ""));
    let factor = match unit {
        "" | "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        other => panic!("{cell}: the unit {other}"),
    };
    number.parse::<f64>().unwrap_or_else(|error| panic!("{cell}: {error}")) * factor
}

/// The share of the requests that have no part in a distribution of so many values.
fn left_out(run: &Value, count: &str) -> f64 {
    let number = |pointer: &str| run.pointer(pointer).unwrap().as_f64().unwrap();
    let part = (number(count) + number("/counts/peeked")).min(number("/requests"));
    1.0 - part / (number("/requests") + number("/unsent")).max(1.0)
}

/// The numbers of the table are those of the result, also where there are too few values for a curve; and the best are the best, where those
/// beside each other can be compared.
#[test]
fn the_table_says_what_the_result_says() {
    let directory = tempfile::tempdir().unwrap();
    let play = |name: &str, arguments: &[&str], lengths| {
        let path = directory.path().join(name);
        write_played(&path, &[&["load"], arguments, &["--rounds", "1"]].concat(), "--duration", lengths);
        path
    };
    let many = play("many.json", &["replicas", "--workers", "32"], ["1s", "5s", "20s"]);
    let few_options = ["gpu", "--workers", "8", "--set", "hold=exponential 40ms"];
    // In a longer one there would be enough values for a curve.
    let few = play("few.json", &few_options, ["1s", "2s", "3s"]);
    let open_options =
        ["gpu", "--workers", "4", "--resources", "2", "--set", "loop=open", "--set", "rate=300"];
    let open_options = [&open_options[..], &["--set", "hold=fixed 20ms"]].concat();
    let open = play("open.json", &open_options, ["2s", "10s", "30s"]);
    for path in [&many, &few, &open] {
        let result: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let html = succeed(&["report", path.to_str().unwrap()]);
        let document = parse(&html);
        let rows = rows_under(&document, "subject");
        let row = |heading: &str| rows.iter().find(|row| row[0] == heading);
        let subjects = result["subjects"].as_array().unwrap();
        let runs = || subjects.iter().map(|subject| &subject["run"]);
        let is_alike = |count: &str| {
            let shares = || runs().map(|run| left_out(run, count));
            shares().fold(0.0, f64::max) - shares().fold(1.0, f64::min) <= 0.001
        };
        let (waits, latencies) = (Some("/waiting_ns/count"), Some("/completed_ns/count"));
        let is_open = path == &open;
        for (heading, pointer, less_is_better, of) in [
            ("completed a second", "/throughput", Some(false), None),
            ("waiting p50", "/waiting_ns/p50", Some(true), waits),
            ("p99", "/waiting_ns/p99", Some(true), waits),
            ("p99.9", "/waiting_ns/p99_9", Some(true), waits),
            ("longest", "/waiting_ns/max", Some(true), waits),
            ("latency p99", "/completed_ns/p99", Some(true), latencies),
            ("latency p99 from sending", "/uncorrected_ns/p99", None, None),
            ("sent late, all workers busy", "/sent_late_ns/count", None, None),
            ("fairness", "/fairness/resources", None, None),
            ("too late to be sent", "/counts/too_late", Some(true), None),
            ("unsent", "/unsent", Some(true), None),
        ] {
            if !is_open
                && (["unsent", "too late to be sent", "latency p99 from sending"].contains(&heading)
                    || heading.contains("busy"))
            {
                assert_eq!(row(heading), None, "{heading}: in a closed loop there is nothing of the kind");
                continue;
            }
            let row = row(heading).unwrap_or_else(|| panic!("{heading}: {rows:?}"));
            assert_eq!(row.len(), subjects.len() + 1);
            let told: Vec<f64> = runs().map(|run| run.pointer(pointer).unwrap().as_f64().unwrap()).collect();
            let least = told.iter().copied().fold(f64::INFINITY, f64::min);
            let most = told.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let alike = of.is_none_or(is_alike);
            assert!(alike || html.contains("the subjects leave out different shares"), "{heading}");
            for (cell, &told) in row[1..].iter().zip(&told) {
                // Three digits that count.
                assert!(
                    (number(cell) - told).abs() <= 0.006 * told.abs() + 0.0006,
                    "{heading}: {cell}, {told}"
                );
                let best = less_is_better.filter(|_| least < most && alike);
                let expected = best.is_some_and(|less| told == if less { least } else { most });
                assert_eq!(cell.ends_with(" best"), expected, "{heading}: {cell}");
            }
        }
        let cancelled = row("cancelled").unwrap();
        for (cell, run) in cancelled[1..].iter().zip(runs()) {
            let caller = &run["counts"]["caller"];
            let told =
                caller["cancelled_waiting"].as_f64().unwrap() + caller["cancelled_served"].as_f64().unwrap();
            assert_eq!(number(cell), told);
        }
        if path == &few {
            let count = result["subjects"][0]["run"]["waiting_ns"]["count"].as_u64().unwrap();
            assert!(count < 1_000, "{count} values: too many for this test");
        }
    }
}

/// The parts of a distribution that are shown are of the same requests, and of the same harness, or nothing in it is the best.
#[test]
fn what_cannot_be_compared_has_no_best() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("load.json");
    let arguments = ["load", "gpu", "--rounds", "1", "--subject", "sticky", "--subject", "mutex"];
    let arguments = [&arguments[..], &["--set", "hold=fixed 2ms"]].concat();
    write_played(&path, &arguments, "--duration", ["2s", "10s", "30s"]);
    let original: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let best = |change: &dyn Fn(&mut Value)| {
        let mut result = original.clone();
        for (run, p99) in [(0, 1_000_000), (1, 2_000_000)] {
            let run = &mut result["subjects"][run]["run"];
            (run["requests"], run["unsent"]) = (10_000.into(), 0.into());
            for times in ["waiting_ns", "completed_ns"] {
                (run[times]["count"], run[times]["p99"]) = (9_900.into(), p99.into());
            }
            (run["throughput"], run["counts"]["peeked"]) = ((20_000_000_000u64 / p99).into(), 0.into());
        }
        change(&mut result);
        fs::write(&path, result.to_string()).unwrap();
        let html = succeed(&["report", path.to_str().unwrap()]);
        let document = parse(&html);
        let rows = rows_under(&document, "subject");
        let headings = text(document.descendants().find(|node| is(node, "thead")).unwrap());
        let is_best =
            |heading: &str| rows.iter().find(|row| row[0] == heading).unwrap()[1].ends_with(" best");
        let charts = html.matches("Not to be compared as they are").count();
        (["completed a second", "p99", "latency p99"].map(is_best), charts, headings)
    };
    let (marked, notes, headings) = best(&|_| ());
    assert_eq!((marked, notes, &*headings), ([true; 3], 0, "subjectstickymutex"));
    // One of a hundred never got its lease.
    let (marked, notes, _) =
        best(&|result| result["subjects"][0]["run"]["waiting_ns"]["count"] = 9_800.into());
    assert_eq!((marked, notes), ([true, false, true], 1));
    let (marked, notes, _) =
        best(&|result| result["subjects"][1]["run"]["completed_ns"]["count"] = 9_800.into());
    assert_eq!((marked, notes), ([true, true, false], 1));
    let (marked, _, headings) = best(&|result| result["subjects"][0]["run"]["driver"] = "pool".into());
    assert_eq!(marked, [false; 3]);
    assert_eq!(headings, "subjectsticky, asked by jobs of the poolmutex, asked by tasks");
    // A third one, which was asked in the same way: of those two one is the best.
    let (marked, _, _) = best(&|result| {
        let mut third = result["subjects"][0].clone();
        (third["name"], third["run"]["throughput"]) = ("strict".into(), 1.into());
        for times in ["waiting_ns", "completed_ns"] {
            third["run"][times]["p99"] = 90_000_000_000u64.into();
        }
        result["subjects"].as_array_mut().unwrap().push(third);
        result["subjects"][1]["run"]["driver"] = "pool".into();
    });
    assert_eq!(marked, [true; 3], "among those that were asked as it was");
}

/// A file that says what no measurement can is refused in one line, and soon; of names that cannot be shown what can be is shown.
#[test]
fn hostile_results_do_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let [load, replay, _] = results(&directory);
    let path = directory.path().join("hostile.json");
    let ends = |result: &Value| {
        fs::write(&path, result.to_string()).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .args([
                "report",
                path.to_str().unwrap(),
                "--out",
                directory.path().join("page.html").to_str().unwrap(),
            ])
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let since = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if since.elapsed() > Duration::from_secs(30) {
                child.kill().unwrap();
                panic!("it does not end: {result}");
            }
            thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let [load, replay] =
        [load, replay].map(|path| serde_json::from_str::<Value>(&fs::read_to_string(path).unwrap()).unwrap());
    let run = "/subjects/0/run";
    for (of, pointer, value, part) in [
        (&load, format!("{run}/rank_error/max"), u64::MAX.into(), "rank_error.max: expected a number"),
        (&load, format!("{run}/shards"), 0.into(), "expected 1 to 1024 shards"),
        (&load, format!("{run}/throughput"), 1e308.into(), "run.throughput: expected a number"),
        (&load, format!("{run}/series/0/completed"), 1e300.into(), "series[].completed: expected a number"),
        (&load, format!("{run}/heat/resources_of_a_row"), u32::MAX.into(), "heat: expected rows of 1 to"),
        (&load, format!("{run}/heat/seconds_of_a_column"), 0.0.into(), "heat: expected rows of 1 to"),
        (&load, format!("{run}/heat/rows/0/0"), 1e30.into(), "rows[][]: expected a number"),
        (&load, "/scenario/resources".into(), u32::MAX.into(), "scenario.resources: expected 1 to 1000000"),
        (&replay, "/subjects/0/rank_error/max".into(), u64::MAX.into(), "rank_error.max: expected a number"),
        (&replay, "/settings/shards".into(), 0.into(), "settings.shards: expected 1 to 1024"),
        (
            &replay,
            "/subjects/0/resources/0/utilisation".into(),
            1e308.into(),
            "utilisation: expected a number",
        ),
    ] {
        let mut result = of.clone();
        *result.pointer_mut(&pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        let (code, stderr) = ends(&result);
        assert!(
            code == Some(2) && stderr.lines().count() == 1 && stderr.contains(part),
            "{pointer}: {stderr}"
        );
    }
    let mut named = load;
    (named["subjects"][0]["name"], named["source"]) = ("a\u{1}b\u{ffff}\u{7f}".into(), "\u{8}".into());
    assert_eq!(ends(&named), (Some(0), String::new()));
    let html = fs::read_to_string(directory.path().join("page.html")).unwrap();
    parse(&html);
    assert!(html.contains("a?b??"), "the name is shown");
}

/// Of nothing there is no fairness.
#[test]
fn nothing_has_no_fairness() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("load.json");
    let mut arguments = vec!["load", "gpu", "--duration", "100ms", "--rounds", "1", "--subject", "sticky"];
    arguments.extend(["--workers", "1", "--set", "think=fixed 1h", "--format", "json"]);
    let output = run(&[&arguments[..], &["--out", path.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(1), "nothing was measured");
    let html = succeed(&["report", path.to_str().unwrap()]);
    assert!(!html.contains("<h3>Fairness</h3>") && !html.contains("1.000"), "{html}");
    let table = String::from_utf8(run(&arguments[..arguments.len() - 2]).stdout).unwrap();
    assert!(!table.contains("1.000"), "{table}");
}

/// What a replay says of each resource is drawn and told.
#[test]
fn a_replay_shows_each_resource() {
    let directory = tempfile::tempdir().unwrap();
    let [_, replay, _] = results(&directory);
    let result: Value = serde_json::from_str(&fs::read_to_string(&replay).unwrap()).unwrap();
    let html = succeed(&["report", replay.to_str().unwrap()]);
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(&html, options).unwrap();
    let title = |figure: &Node<'_, '_>| text(figure.descendants().find(|node| is(node, "h3")).unwrap());
    let figure = document
        .descendants()
        .filter(|node| is(node, "figure"))
        .find(|figure| title(figure) == "Utilisation of each resource")
        .unwrap();
    assert_shows_something(figure);
    let rows: Vec<Node<'_, '_>> = figure.descendants().filter(|node| is(node, "tr")).skip(1).collect();
    let resources = result["subjects"][0]["resources"].as_array().unwrap();
    assert_eq!(rows.len(), resources.len());
    for (row, resource) in rows.iter().zip(resources) {
        let cells: Vec<String> = row.children().map(text).collect();
        assert_eq!(cells[0], resource["key"].as_str().unwrap());
        let told = resource["utilisation"].as_f64().unwrap() * 100.0;
        assert_eq!(cells[1], format!("{told:.1} %"));
    }
}
