//! An overview as text and as JSON.

use std::time::Duration;

use leasehold::cluster::{Change, HoldNote, Overview};
use serde_json::{Value, json};

use super::Part;

fn shows(part: Part, of: Part) -> bool {
    part == Part::All || part == of
}

fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

/// For how long it lasts, if that is known.
fn left(note: &HoldNote) -> Option<f64> {
    match note.change {
        Change::Set(left) => left.map(seconds),
        Change::Cleared => Some(0.0),
    }
}

/// Columns as wide as their widest cell; names last, which may be of any width.
fn columns(text: &mut String, head: &[&str], rows: &[Vec<String>]) {
    // A name may hold a newline or an escape sequence: one line stays one line.
    let plain = |cell: &str| cell.replace(char::is_control, "\u{fffd}");
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let all: Vec<Vec<String>> =
        std::iter::once(&head).chain(rows).map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    for row in &all {
        let (last, numbers) = row.split_last().expect("there is a column");
        for (cell, width) in numbers.iter().zip(&widths) {
            text.push_str(&format!("{cell:>width$}  "));
        }
        text.push_str(last);
        text.push('\n');
    }
}

pub fn table(overview: &Overview, part: Part) -> String {
    let mut text = String::new();
    if part == Part::All {
        let quarantine = overview
            .quarantine
            .map_or(String::new(), |left| format!(", in quarantine for {:.3} s", left.as_secs_f64()));
        let epoch = if overview.epoch.is_empty() { "(none yet)" } else { &*overview.epoch };
        text.push_str(&format!(
            "epoch {epoch}{quarantine}: {} units free, {} claimed\n\n",
            overview.free,
            overview.claims.len()
        ));
    }
    if shows(part, Part::Members) {
        let row = |(view, owned, left): &(leasehold::cluster::MemberView, u32, Duration)| {
            let line = view.line;
            let numbers = [owned, &line.held, &line.need, &line.spare, &line.weight].map(ToString::to_string);
            let mut row = numbers.to_vec();
            row.extend([format!("{:.3}", left.as_secs_f64()), view.member.to_string()]);
            row
        };
        let rows: Vec<_> = overview.members.iter().map(row).collect();
        columns(&mut text, &["owns", "lends", "needs", "spare", "weight", "ends in, s", "member"], &rows);
    }
    if part == Part::All {
        text.push('\n');
    }
    if shows(part, Part::Claims) {
        let row = |(claim, member): &(leasehold::cluster::Claim, std::sync::Arc<str>)| {
            vec![
                claim.token.to_string(),
                claim.unit.index.to_string(),
                claim.unit.name.to_string(),
                member.to_string(),
            ]
        };
        let rows: Vec<_> = overview.claims.iter().map(row).collect();
        columns(&mut text, &["token", "unit", "resource", "member"], &rows);
    }
    if part == Part::All {
        text.push('\n');
    }
    if shows(part, Part::Holds) {
        let row = |note: &HoldNote| {
            let left = left(note).map_or_else(|| "-".to_owned(), |left| format!("{left:.3}"));
            vec![note.kind.name().to_owned(), left, note.name.to_string(), note.origin.to_string()]
        };
        let rows: Vec<_> = overview.holds.iter().map(row).collect();
        columns(&mut text, &["hold", "left, s", "resource", "set by"], &rows);
    }
    text
}

pub fn json(overview: &Overview, part: Part) -> String {
    let mut all = json!({
        "schema": 1,
        "epoch": &*overview.epoch,
        "quarantine_s": overview.quarantine.map(seconds),
        "free": overview.free,
    });
    if shows(part, Part::Members) {
        let of = |(view, owned, left): &(leasehold::cluster::MemberView, u32, Duration)| {
            json!({
                "member": &*view.member, "owns": owned, "lends": view.line.held, "needs": view.line.need,
                "spare": view.line.spare, "weight": view.line.weight, "ends_in_s": seconds(*left),
            })
        };
        all["members"] = overview.members.iter().map(of).collect::<Vec<Value>>().into();
    }
    if shows(part, Part::Claims) {
        let of = |(claim, member): &(leasehold::cluster::Claim, std::sync::Arc<str>)| {
            json!({
                "resource": &*claim.unit.name, "unit": claim.unit.index, "token": claim.token, "member": &**member,
            })
        };
        all["claims"] = overview.claims.iter().map(of).collect::<Vec<Value>>().into();
    }
    if shows(part, Part::Holds) {
        let of = |note: &HoldNote| {
            json!({
                "resource": &*note.name, "hold": note.kind.name(), "left_s": left(note), "origin": &*note.origin,
                "version": note.version,
            })
        };
        all["holds"] = overview.holds.iter().map(of).collect::<Vec<Value>>().into();
    }
    let mut text = serde_json::to_string_pretty(&all).expect("names and numbers always serialise");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use leasehold::cluster::{Claim, HoldKind, Line, MemberView, Unit};

    use super::*;

    fn sample() -> Overview {
        let mut overview = Overview { epoch: "e1".into(), free: 3, ..Overview::default() };
        let line = Line { need: 4, spare: 1, held: 5, weight: 2 };
        overview.members.push((MemberView { member: "a\nb".into(), line }, 6, Duration::from_millis(1_250)));
        let unit = Unit { name: "key".into(), index: 7 };
        overview.claims.push((Claim { unit, token: 99 }, "a\nb".into()));
        overview.holds.push(HoldNote {
            name: "key".into(),
            kind: HoldKind::Excluded,
            change: Change::Set(None),
            origin: "c".into(),
            epoch: "e1".into(),
            version: 8,
        });
        overview
    }

    #[test]
    fn tables_have_one_line_for_each_thing() {
        let text = table(&sample(), Part::All);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "epoch e1: 3 units free, 1 claimed");
        assert_eq!(
            lines[3].split_whitespace().collect::<Vec<_>>(),
            ["6", "5", "4", "1", "2", "1.250", "a\u{fffd}b"]
        );
        assert_eq!(lines[6].split_whitespace().next(), Some("99"));
        assert_eq!(lines[9].split_whitespace().collect::<Vec<_>>(), ["excluded", "-", "key", "c"]);
        assert_eq!(lines.len(), 10);
        assert_eq!(table(&sample(), Part::Holds).lines().count(), 2);
    }

    #[test]
    fn json_parses_back() {
        let value: Value = serde_json::from_str(&json(&sample(), Part::All)).unwrap();
        assert_eq!((&value["members"][0]["owns"], &value["claims"][0]["token"]), (&json!(6), &json!(99)));
        assert_eq!((&value["holds"][0]["left_s"], &value["quarantine_s"]), (&Value::Null, &Value::Null));
        let value: Value = serde_json::from_str(&json(&sample(), Part::Claims)).unwrap();
        assert!(value.get("members").is_none());
    }
}
