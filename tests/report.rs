//! `leasehold report` and `order` from outside: the page is whole, self-contained and well-formed, and each chart shows something.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
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

/// A small result of each command that tells of subjects and strategies.
fn results(directory: &TempDir) -> [PathBuf; 3] {
    let path = |name: &str| directory.path().join(name);
    let [load, replay, order] = ["load.json", "replay.json", "order.json"].map(path);
    let load_options = [
        "load",
        "replicas",
        "--duration",
        "600ms",
        "--rounds",
        "2",
        "--set",
        "affinity=0",
        "--set",
        "wait=100ms",
    ];
    write(&load, &load_options);
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
    ] {
        assert!(titles.iter().any(|title| title == expected), "{expected}: {titles:?}");
    }
    for figure in all("figure") {
        assert_shows_something(figure);
    }
    assert!(all("td").any(|cell| cell.attribute("class") == Some("best")));
    let settings = text(all("pre").next().unwrap());
    assert!(settings.contains("workers = 64") && settings.contains("duration = \"600ms\""), "{settings}");
    assert!(text(root).contains("5n/6"));
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
    write(&tune, &["tune", "gpu", "--requests", "1000", "--milliseconds", "50", "--rounds", "1"]);
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
}

/// What many processes did, from a result as `load --processes` writes it: of one process, to which another is added here.
#[test]
fn processes_have_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("load.json");
    write(&path, &["load", "gpu", "--duration", "200ms", "--rounds", "1", "--subject", "sticky"]);
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
    assert!(table.starts_with("| resources | strategy |") && table.lines().count() == 7, "{table}");
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

/// The numbers of the table are those of the result, also where there are too few values for a curve; and the best are the best.
#[test]
fn the_table_says_what_the_result_says() {
    let directory = tempfile::tempdir().unwrap();
    let play = |name: &str, arguments: &[&str]| {
        let path = directory.path().join(name);
        let to =
            ["--duration", "400ms", "--rounds", "1", "--format", "json", "--out", path.to_str().unwrap()];
        succeed(&[&["load"], arguments, &to].concat());
        path
    };
    let many = play("many.json", &["replicas", "--workers", "32"]);
    let few = play("few.json", &["gpu", "--workers", "8", "--set", "hold=exponential 40ms"]);
    let open = play(
        "open.json",
        &["gpu", "--workers", "4", "--resources", "2", "--set", "loop=open", "--set", "rate=300"],
    );
    for path in [&many, &few, &open] {
        let result: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let html = succeed(&["report", path.to_str().unwrap()]);
        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        let document = Document::parse_with_options(&html, options).unwrap();
        let table = document.descendants().find(|node| is(node, "table")).unwrap();
        let rows: Vec<Vec<String>> = table
            .descendants()
            .filter(|node| is(node, "tr"))
            .map(|row| row.children().filter(|node| is(node, "th") || is(node, "td")).map(text).collect())
            .collect();
        let subjects = result["subjects"].as_array().unwrap();
        assert_eq!(rows.len(), subjects.len() + 1);
        let is_open = path == &open;
        for (heading, pointer, less_is_better) in [
            ("completed a second", "/throughput", Some(false)),
            ("waiting p50", "/waiting_ns/p50", Some(true)),
            ("p99", "/waiting_ns/p99", Some(true)),
            ("p99.9", "/waiting_ns/p99_9", Some(true)),
            ("longest", "/waiting_ns/max", Some(true)),
            ("latency p99", "/latency_ns/p99", Some(true)),
            ("latency p99 from sending", "/uncorrected_ns/p99", None),
            ("fairness", "/fairness/resources", None),
            ("unsent", "/unsent", Some(true)),
        ] {
            let column = rows[0].iter().position(|name| name == heading);
            if !is_open && (heading == "unsent" || heading.ends_with("sending")) {
                assert_eq!(column, None, "{heading}: in a closed loop there is nothing of the kind");
                continue;
            }
            let column = column.unwrap_or_else(|| panic!("{heading}: {:?}", rows[0]));
            let told: Vec<f64> = subjects
                .iter()
                .map(|subject| subject["run"].pointer(pointer).unwrap().as_f64().unwrap())
                .collect();
            let least = told.iter().copied().fold(f64::INFINITY, f64::min);
            let most = told.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            for (row, &told) in rows[1..].iter().zip(&told) {
                let cell = &row[column];
                // Three digits that count.
                assert!(
                    (number(cell) - told).abs() <= 0.006 * told.abs() + 0.0006,
                    "{heading}: {cell}, {told}"
                );
                let best = less_is_better.filter(|_| least < most);
                let expected = best.is_some_and(|less| told == if less { least } else { most });
                assert_eq!(cell.ends_with(" best"), expected, "{heading}: {cell}");
            }
        }
        let cancelled = rows[0].iter().position(|name| name == "cancelled").unwrap();
        for (row, subject) in rows[1..].iter().zip(subjects) {
            let caller = &subject["run"]["counts"]["caller"];
            let told =
                caller["cancelled_waiting"].as_f64().unwrap() + caller["cancelled_served"].as_f64().unwrap();
            assert_eq!(number(&row[cancelled]), told);
        }
        if path == &few {
            let count = result["subjects"][0]["run"]["waiting_ns"]["count"].as_u64().unwrap();
            assert!(count < 1_000, "{count} values: too many for this test");
        }
    }
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
