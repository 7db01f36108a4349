//! docs/order-quality.md has what `leasehold order` prints: rank errors and delays are exact and repeat on every machine, so they are compared.

use std::process::Command;

/// Resources, strategy, rank error with its p99 and maximum, the law, delay with its p99 and maximum: the columns after these are times.
const EXACT: usize = 9;

/// The rows of the first table in which there is a rank error.
fn rows(text: &str) -> Vec<Vec<String>> {
    let table = text.lines().skip_while(|line| !line.starts_with("| resources | strategy | rank error |"));
    let rows = table.take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').skip(1).take(EXACT).map(|cell| cell.trim().to_owned()).collect()).collect()
}

fn document() -> String {
    let text = include_str!("../docs/order-quality.md");
    let (_, marked) = text.split_once("<!-- order:begin -->").expect("the mark before the table");
    marked.split_once("<!-- order:end -->").expect("the mark behind it").0.to_owned()
}

#[test]
fn the_document_has_what_the_tool_prints() {
    // The defaults but for the largest fleet, which takes a release build (`.ci/order`), and for the speeds, which are not compared.
    let arguments =
        ["order", "--resources", "100,10000", "--format", "markdown", "--rounds", "1", "--milliseconds", "1"];
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (told, printed) = (rows(&document()), rows(&String::from_utf8(output.stdout).unwrap()));
    assert_eq!((printed.len(), told.len()), (2 + 10, 2 + 15), "five strategies for each fleet");
    for (told, printed) in told.iter().zip(&printed) {
        assert_eq!(told, printed, "docs/order-quality.md, and `leasehold order --format markdown`");
    }
}

/// Which strategy has nothing to speak for it follows from the numbers above it, and is said, if it is so, wherever it is recommended.
#[test]
fn the_document_has_the_verdict_of_its_numbers() {
    let text = document();
    let table: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| 1"))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let of = |name: &str| -> Vec<(f64, f64)> {
        let rows = table.iter().filter(|row| row[2] == name);
        rows.map(|row| (row[3].parse().unwrap(), row[11].parse().unwrap())).collect()
    };
    let names = ["best-of:1", "best-of:2", "best-of:4", "strict", "sticky"];
    let mut said = 0;
    for name in names {
        // Two digits of each number: where these are equal the tool, which has all of them, may say either.
        let beats = |better: &&str| {
            let pairs = of(better).into_iter().zip(of(name));
            **better != *name && pairs.into_iter().all(|(a, b)| (a.0 < b.0 || a.0 == 0.0) && a.1 < b.1)
        };
        let is_beaten = names.iter().any(beats);
        let verdict = text.contains(&format!("Nothing speaks for `{name}` here"));
        assert!(!is_beaten || verdict, "{name} is beaten by its own numbers, and nothing says so");
        said += usize::from(verdict);
    }
    assert_eq!(text.matches("Nothing speaks for").count(), said);
    // The table of choices says of four shards what follows from this.
    let dominated = text.contains("Nothing speaks for `best-of:4` here: `strict` has");
    let whole = include_str!("../docs/order-quality.md");
    let row = whole.lines().find(|line| line.starts_with("| d = 4 |")).expect("the row of four shards");
    assert_eq!(row.contains("`strict` has the exact order in less time"), dominated, "{row}");
    // And its times are those of the table.
    let time = |name: &str, fleet: usize| table.iter().filter(|row| row[2] == name).nth(fleet).unwrap()[10];
    let [hundred, ten_thousand, million] =
        [0, 1, 2].map(|fleet| [time("best-of:4", fleet), time("strict", fleet)]);
    for told in [
        format!("{} ns instead of `strict`'s {} with a hundred resources", hundred[0], hundred[1]),
        format!("{} instead of {} with ten thousand", ten_thousand[0], ten_thousand[1]),
        format!("{} instead of {} with a million", million[0], million[1]),
    ] {
        assert!(row.contains(&told), "expected {told:?}: {row}");
    }
}
