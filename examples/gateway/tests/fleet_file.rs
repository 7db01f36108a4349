//! The gateway and the tool read the same fleet files: every one that the tool's own tests and fuzz targets have.

use std::{fs, path::Path};

#[allow(dead_code)]
#[path = "../../../src/bin/leasehold/error.rs"]
mod error;
#[allow(dead_code, unused_imports)]
#[path = "../../../src/bin/leasehold/fleet/mod.rs"]
mod tool;

use gateway::fleet::{BUILT_IN, parse};

/// Asserts that both take the text, with the same numbers, or that neither does. Answers whether they do.
fn both(name: &str, text: &str) -> bool {
    let (ours, theirs) = (parse(text), tool::Fleet::parse(name, text));
    let (ours, theirs) = match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (Err(_), Err(_)) => return false,
        (ours, theirs) => panic!("{name}: one reads it, the other does not: {ours:?} {theirs:?}"),
    };
    assert_eq!(ours.len(), theirs.resources.len(), "{name}");
    let nanos = |seconds: f64| (seconds * 1e9).round() as u64;
    for (ours, theirs) in ours.iter().zip(&theirs.resources) {
        assert_eq!(*ours.key, **theirs.key.get_ref(), "{name}");
        assert_eq!(
            (ours.tier, ours.max_in_flight, ours.weight, ours.requests_per_minute, ours.tokens_per_minute),
            (
                theirs.tier,
                theirs.max_in_flight,
                theirs.weight,
                theirs.requests_per_minute,
                theirs.tokens_per_minute
            ),
            "{name}"
        );
        assert_eq!(nanos(ours.time_to_first_token), theirs.time_to_first_token, "{name}");
        assert_eq!((1e9 / ours.tokens_per_second).round() as u64, theirs.nanos_per_token, "{name}");
        assert_eq!((ours.failure_rate * 4_294_967_296.0).round() as u64, theirs.failure_rate, "{name}");
        let mut outages: Vec<_> =
            ours.outages.iter().map(|outage| (nanos(outage.from), nanos(outage.to))).collect();
        // The tool sorts them.
        outages.sort_unstable_by_key(|&(from, _)| from);
        let expected: Vec<_> =
            theirs.outages.iter().map(|outage| (outage.get_ref().from, outage.get_ref().to)).collect();
        assert_eq!(outages, expected, "{name}");
    }
    true
}

#[test]
fn the_built_in_fleets() {
    assert!(both("gateway", BUILT_IN));
    assert!(both("tool", tool::DEFAULT));
}

#[test]
fn the_fuzz_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/fleet");
    let (mut taken, mut refused) = (0, 0);
    for entry in fs::read_dir(&folder).expect("in the repository") {
        let path = entry.expect("readable").path();
        // Those that begin with a zero byte are no files, but tell the fuzz target what to write.
        let Ok(text) = String::from_utf8(fs::read(&path).expect("readable")) else { continue };
        if !text.starts_with('\0') {
            *if both(&path.display().to_string(), &text) { &mut taken } else { &mut refused } += 1;
        }
    }
    assert!(taken >= 4 && refused >= 3, "{taken} taken, {refused} refused");
}

#[test]
fn the_ends_of_all_ranges() {
    let mut taken = 0;
    let lines = [
        ("tier", vec!["0", "255", "256", "-1"]),
        ("max_in_flight", vec!["1", "65536", "0", "65537", "1.0"]),
        ("weight", vec!["1", "1000", "0", "1001"]),
        ("requests_per_minute", vec!["1", "1_000_000_000", "0", "1_000_000_001"]),
        ("tokens_per_minute", vec!["1", "1_000_000_000_000", "0", "1_000_000_000_001"]),
        ("time_to_first_token", vec!["0", "1e9", "-0.0", "-0.1", "1000000001", "nan", "inf"]),
        ("tokens_per_second", vec!["0.1", "1_000_000", "0.09", "1000001", "\"1\""]),
        ("failure_rate", vec!["0", "1", "1.1", "-0.1", "nan"]),
        (
            "outages",
            vec![
                "[]",
                "[{from=0,to=1e9}]",
                "[{from=1,to=1.0000000001}]",
                "[{from=1}]",
                "[{from=0,to=1,x=1}]",
            ],
        ),
        ("key", vec!["\"b\"", "\"\"", "1"]),
    ];
    for (field, values) in &lines {
        for value in values {
            let mut text = "[[resource]]\n".to_owned();
            for (other, usual) in [("key", "\"a\""), ("max_in_flight", "2"), ("tokens_per_second", "50")] {
                if other != *field {
                    text.push_str(&format!("{other} = {usual}\n"));
                }
            }
            text.push_str(&format!("{field} = {value}\n"));
            taken += usize::from(both(&text, &text));
        }
    }
    assert!(taken >= 20, "{taken}");
}
