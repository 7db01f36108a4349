//! The report for spreadsheets: one row a strategy, one column a number.

use csv::Writer;

use super::{Report, Subject};

/// A heading and the number below it.
type Column = (&'static str, fn(&Subject) -> String);

/// Columns before the utilisation of each resource.
const COLUMNS: [Column; 23] = [
    ("strategy", |s| s.name.clone()),
    ("completed", |s| s.completed.to_string()),
    ("failed", |s| s.failed.to_string()),
    ("rejected", |s| s.rejected.to_string()),
    ("retried", |s| s.retried.to_string()),
    ("rate_limited", |s| s.rate_limited.to_string()),
    ("duration_ns", |s| s.duration_ns.to_string()),
    ("waiting_ns_mean", |s| s.waiting_ns.mean.to_string()),
    ("waiting_ns_p50", |s| s.waiting_ns.p50.to_string()),
    ("waiting_ns_p90", |s| s.waiting_ns.p90.to_string()),
    ("waiting_ns_p99", |s| s.waiting_ns.p99.to_string()),
    ("waiting_ns_p99_9", |s| s.waiting_ns.p99_9.to_string()),
    ("waiting_ns_max", |s| s.waiting_ns.max.to_string()),
    ("rank_error_mean", |s| s.rank_error.mean.to_string()),
    ("rank_error_p99", |s| s.rank_error.p99.to_string()),
    ("delay_mean", |s| s.delay.mean.to_string()),
    ("delay_p99", |s| s.delay.p99.to_string()),
    ("delay_max", |s| s.delay.max.to_string()),
    ("disagreements", |s| s.disagreements.to_string()),
    ("fairness_all", |s| s.fairness.all.to_string()),
    ("fairness_within_tiers", |s| s.fairness.within_tiers.to_string()),
    ("events_emitted", |s| s.events.emitted.to_string()),
    ("events_dropped", |s| s.events.dropped.to_string()),
];

pub fn render(report: &Report) -> String {
    let mut writer = Writer::from_writer(Vec::new());
    let keys = report.subjects.iter().take(1).flat_map(|subject| &subject.resources);
    let header = COLUMNS.iter().map(|(name, _)| (*name).to_owned());
    write(&mut writer, header.chain(keys.map(|resource| format!("utilisation:{}", resource.key))));
    for subject in &report.subjects {
        let numbers = COLUMNS.iter().map(|(_, number)| number(subject));
        let utilisation = subject.resources.iter().map(|resource| resource.utilisation.to_string());
        write(&mut writer, numbers.chain(utilisation));
    }
    let bytes = writer.into_inner().expect("writing to memory cannot fail");
    String::from_utf8(bytes).expect("every field was text")
}

fn write(writer: &mut Writer<Vec<u8>>, fields: impl Iterator<Item = String>) {
    writer.write_record(fields).expect("writing to memory cannot fail, and all rows are equally long");
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;

    #[test]
    fn parses_back() {
        let text = super::render(&sample());
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let headers = reader.headers().unwrap().clone();
        let column = |name: &str| headers.iter().position(|header| header == name).unwrap();
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(&rows[1][column("strategy")], "mutex");
        assert_eq!(&rows[1][column("completed")], "990");
        assert_eq!(&rows[0][column("utilisation:reserved-1")], "0.5");
    }
}
