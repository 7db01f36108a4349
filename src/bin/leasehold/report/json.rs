//! The report for programs. docs/cli.md describes it.

use super::Report;

pub fn render(report: &Report) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("names and numbers always serialise");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;

    #[test]
    fn parses_back() {
        let value: serde_json::Value = serde_json::from_str(&super::render(&sample())).unwrap();
        assert_eq!(value["schema"], 1);
        assert_eq!(value["trace"]["skipped_rows"], 2);
        assert_eq!(value["subjects"][0]["name"], "sticky:2:16");
        assert_eq!(value["subjects"][1]["waiting_ns"]["max"], 993_000_000);
        assert_eq!(value["subjects"][1]["resources"][0]["utilisation"], 0.5);
    }
}
