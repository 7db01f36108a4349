//! The report for people.

use super::{Report, Subject};

pub fn render(report: &Report) -> String {
    let mut text = heading(report);
    let subjects = &report.subjects;
    let columns: [Column; 5] = [
        ("completed", |s| s.completed.to_string()),
        ("failed", |s| s.failed.to_string()),
        ("rejected", |s| s.rejected.to_string()),
        ("retried", |s| s.retried.to_string()),
        ("429s", |s| s.rate_limited.to_string()),
    ];
    by_subject(&mut text, "requests", &columns, subjects);
    let columns: [Column; 5] = [
        ("p50", |s| seconds(s.waiting_ns.p50)),
        ("p90", |s| seconds(s.waiting_ns.p90)),
        ("p99", |s| seconds(s.waiting_ns.p99)),
        ("p99.9", |s| seconds(s.waiting_ns.p99_9)),
        ("max", |s| seconds(s.waiting_ns.max)),
    ];
    by_subject(&mut text, "waiting, s", &columns, subjects);
    let columns: [Column; 9] = [
        ("rank error", |s| format!("{:.3}", s.rank_error.mean)),
        ("p99", |s| s.rank_error.p99.to_string()),
        ("delay p99", |s| s.delay.p99.to_string()),
        ("longest", |s| s.delay.max.to_string()),
        ("wrong", |s| s.disagreements.to_string()),
        ("fairness", |s| format!("{:.3}", s.fairness.all)),
        ("in tiers", |s| format!("{:.3}", s.fairness.within_tiers)),
        ("events", |s| s.events.emitted.to_string()),
        ("dropped", |s| s.events.dropped.to_string()),
    ];
    by_subject(&mut text, "order", &columns, subjects);
    utilisation(&mut text, subjects);
    text
}

/// What was replayed, and under which rules.
fn heading(report: &Report) -> String {
    let Report { trace, fleet, settings, .. } = report;
    let skipped = match trace.skipped_rows {
        0 => String::new(),
        rows => format!(", {} skipped", counted(rows, "row")),
    };
    let limit = settings.limit.map_or(String::new(), |limit| format!(", limit {limit}"));
    [
        format!(
            "trace  {} ({}): {}{skipped}",
            shown(&trace.source),
            trace.format,
            counted(trace.requests, "request")
        ),
        format!("fleet  {}: {}", shown(&fleet.source), counted(fleet.resources, "resource")),
        format!(
            "rules  seed {}, shards {}, speed {}, max retries {}, max queue {}{limit}\n\n",
            settings.seed, settings.shards, settings.speed, settings.max_retries, settings.max_queue
        ),
    ]
    .join("\n")
}

/// A heading and the number below it.
type Column = (&'static str, fn(&Subject) -> String);

fn by_subject(text: &mut String, title: &str, columns: &[Column], subjects: &[Subject]) {
    let heading = [title.to_owned()].into_iter().chain(columns.iter().map(|(name, _)| (*name).to_owned()));
    let rows = subjects.iter().map(|subject| {
        [subject.name.clone()].into_iter().chain(columns.iter().map(|(_, number)| number(subject))).collect()
    });
    grid(text, &[heading.collect()].into_iter().chain(rows).collect::<Vec<Vec<String>>>());
    text.push('\n');
}

fn utilisation(text: &mut String, subjects: &[Subject]) {
    let heading = ["utilisation".to_owned(), "tier".to_owned()];
    let mut rows: Vec<Vec<String>> =
        vec![heading.into_iter().chain(subjects.iter().map(|subject| subject.name.clone())).collect()];
    for (index, resource) in subjects.iter().take(1).flat_map(|subject| &subject.resources).enumerate() {
        let shares = subjects.iter().map(|subject| format!("{:.3}", subject.resources[index].utilisation));
        rows.push([shown(&resource.key), resource.tier.to_string()].into_iter().chain(shares).collect());
    }
    grid(text, &rows);
}

/// Columns as wide as their widest cell: the first to the left, the others to the right.
fn grid(text: &mut String, rows: &[Vec<String>]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for row in rows {
        *text += &format!("{:<1$}", row[0], widths[0].max(16));
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            *text += &format!("  {cell:>0$}", (*width).max(9));
        }
        text.push('\n');
    }
}

/// Three decimals, rounded half up in whole numbers.
fn seconds(nanos: u64) -> String {
    let millis = nanos / 1_000_000 + u64::from(nanos % 1_000_000 >= 500_000);
    format!("{}.{:03}", millis / 1_000, millis % 1_000)
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Names come from the user; a control character must not reach the terminal.
fn shown(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::sample, *};

    #[test]
    fn columns_line_up() {
        let text = render(&sample());
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
        assert_eq!(line("requests").len(), line("sticky:2:16").len());
        assert!(line("reserved-1").ends_with("0.500      0.500"), "{text}");
        assert!(text.contains("2 rows skipped"));
    }

    #[test]
    fn seconds_round_half_up() {
        assert_eq!([0, 499_999, 500_000, 1_234_500_000].map(seconds), ["0.000", "0.000", "0.001", "1.235"]);
        assert_eq!(seconds(u64::MAX), "18446744073.710");
    }
}
