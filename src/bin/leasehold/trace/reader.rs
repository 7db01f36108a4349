//! Reads a trace row by row in constant memory.

use std::io::BufRead;

use csv::ByteRecord;

use super::{
    Row,
    arrivals::virtual_time,
    format::{Columns, Format, recognise},
    lines::Lines,
};
use crate::error::{Error, Result, found};

/// More tokens than this in one field are a damaged row, not a request.
const MOST_TOKENS: u32 = 100_000_000;

pub struct Reader {
    name: String,
    csv: csv::Reader<Lines<Box<dyn BufRead>>>,
    record: ByteRecord,
    format: &'static Format,
    columns: Columns,
    width: usize,
    /// Trace seconds per simulated second.
    speed: f64,
    /// The moment of the first row that was used.
    first: Option<i128>,
    previous: Option<i128>,
    skip_bad_rows: bool,
    skipped: u64,
}

/// Why a row cannot be used: the field at fault and what is wrong with it.
struct BadRow {
    field: usize,
    message: String,
}

impl Reader {
    /// Reads the header. `name` is what errors call the source; at `speed` no row may arrive too late.
    pub fn new(name: &str, input: Box<dyn BufRead>, speed: f64, skip_bad_rows: bool) -> Result<Self> {
        // Without quoting no record spans lines: an unclosed quote costs its own row, and the longest line bounds a record.
        let mut csv = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .quoting(false)
            .terminator(csv::Terminator::Any(b'\n'))
            .from_reader(Lines::new(input));
        let mut record = ByteRecord::new();
        if !read(name, &mut csv, &mut record)? {
            return Err(Error::content(name, 1, 1, "expected a header, the trace is empty"));
        }
        let header: Vec<&str> = record.iter().map(text).collect();
        let (format, columns) = check_quotes(&record)
            .and_then(|()| recognise(&header).map_err(|(field, message)| BadRow { field, message }))
            .map_err(|BadRow { field, message }| {
                let lines = csv.get_ref();
                Error::content(name, lines.number(), lines.column(field), message)
            })?;
        let width = header.len();
        Ok(Reader {
            name: name.to_owned(),
            csv,
            record,
            format,
            columns,
            width,
            speed,
            first: None,
            previous: None,
            skip_bad_rows,
            skipped: 0,
        })
    }

    pub fn next_row(&mut self) -> Result<Option<Row>> {
        while read(&self.name, &mut self.csv, &mut self.record)? {
            match self.parse() {
                Ok(row) => {
                    self.first.get_or_insert(row.at);
                    self.previous = Some(row.at);
                    return Ok(Some(row));
                }
                Err(_) if self.skip_bad_rows => self.skipped += 1,
                Err(BadRow { field, message }) => {
                    let lines = self.csv.get_ref();
                    return Err(Error::content(&self.name, lines.number(), lines.column(field), message));
                }
            }
        }
        if self.previous.is_none() {
            let line = self.csv.get_ref().number() + 1;
            let usable = if self.skipped > 0 { "usable " } else { "" };
            return Err(Error::content(&self.name, line, 1, format!("expected at least one {usable}row")));
        }
        Ok(None)
    }

    fn parse(&self) -> std::result::Result<Row, BadRow> {
        // First: what is wrong with a comma between quotes is the quotes, not the number of fields.
        check_quotes(&self.record)?;
        if self.record.len() != self.width {
            let message = format!("expected {} fields, found {}", self.width, self.record.len());
            return Err(BadRow { field: self.record.len().min(self.width), message });
        }
        let [moment, context, generated] = self.columns;
        let bad = |field: usize, name: &str, expected: &str| BadRow {
            field,
            message: format!("column {name:?}: expected {expected}, found {}", found(&self.record[field])),
        };
        let tokens = |field: usize, name: &str| {
            let number = text(&self.record[field]).parse().ok().filter(|&number: &u32| number <= MOST_TOKENS);
            number.ok_or_else(|| bad(field, name, &format!("a whole number from 0 to {MOST_TOKENS}")))
        };
        let [moment_name, context_name, generated_name] = self.format.columns;
        let at = (self.format.moment)(text(&self.record[moment]))
            .ok_or_else(|| bad(moment, moment_name, self.format.expected))?;
        if self.previous.is_some_and(|previous| at < previous) {
            return Err(bad(moment, moment_name, "a time not before that of the row above"));
        }
        if self.first.is_some_and(|first| virtual_time(at - first, self.speed).is_none()) {
            let speed = self.speed;
            let expected = format!(
                "a time at most 2^62 ns (146 years) of virtual time after the first row's, at --speed {speed}"
            );
            return Err(bad(moment, moment_name, &expected));
        }
        Ok(Row {
            at,
            context_tokens: tokens(context, context_name)?,
            generated_tokens: tokens(generated, generated_name)?,
        })
    }

    pub fn format(&self) -> &'static str {
        self.format.name
    }

    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    pub fn bytes(&self) -> u64 {
        self.csv.get_ref().bytes()
    }
}

/// What a field says: without the spaces and the pair of quotes around it. Nothing if it is not text.
fn text(field: &[u8]) -> &str {
    let field = field.trim_ascii();
    let inside = field.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    std::str::from_utf8(inside.unwrap_or(field)).unwrap_or("").trim()
}

/// Every field closes the quotes that it opens.
fn check_quotes(record: &ByteRecord) -> std::result::Result<(), BadRow> {
    let odd = |field: &[u8]| field.iter().filter(|&&byte| byte == b'"').count() % 2 == 1;
    let Some(field) = record.iter().position(odd) else { return Ok(()) };
    let found = found(&record[field]);
    Err(BadRow {
        field,
        message: format!("expected a closing quote before the next comma or line end, found {found}"),
    })
}

/// The next record, or `false` at the end.
fn read(name: &str, csv: &mut csv::Reader<Lines<Box<dyn BufRead>>>, record: &mut ByteRecord) -> Result<bool> {
    csv.read_byte_record(record).map_err(|error| {
        let line = csv.get_ref().number().max(1);
        match error.into_kind() {
            csv::ErrorKind::Io(cause) if cause.kind() == std::io::ErrorKind::InvalidData => {
                Error::content(name, line, 1, cause.to_string())
            }
            csv::ErrorKind::Io(cause) => Error::file(name, "cannot be read", cause),
            // Bytes and flexible lengths leave nothing else to fail; should that change, the message is still one line.
            other => Error::content(name, line, 1, format!("expected CSV: {other:?}")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &'static str, skip: bool) -> Result<(Vec<Row>, u64)> {
        let mut reader = Reader::new("t.csv", Box::new(text.as_bytes()), 1.0, skip)?;
        let mut rows = Vec::new();
        while let Some(row) = reader.next_row()? {
            rows.push(row);
        }
        Ok((rows, reader.skipped()))
    }

    fn error(text: &'static str) -> String {
        rows(text, false).unwrap_err().to_string()
    }

    #[test]
    fn both_formats() {
        let (azure, _) =
            rows("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44", false)
                .unwrap();
        assert_eq!(azure, [Row { at: 1_700_158_546_680_590_000, context_tokens: 374, generated_tokens: 44 }]);
        let text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\r\n\
                    5,ChatGPT,472,18,490,Conversation log\r\n\"45.5\",\"GPT 4\", \"1087\",230,1317,API log\r\n";
        let (burst, _) = rows(text, false).unwrap();
        assert_eq!(burst[1], Row { at: 45_500_000_000, context_tokens: 1_087, generated_tokens: 230 });
    }

    #[test]
    fn errors_name_line_and_column() {
        const HEAD: &str = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";
        assert!(error("").starts_with("t.csv:1:1: expected a header"));
        assert!(error("\n\n").starts_with("t.csv:1:1: expected a header"));
        assert!(error("a,b\n1,2\n").starts_with("t.csv:1:1: expected a header with"));
        assert!(error(HEAD).starts_with("t.csv:2:1: expected at least one row"));
        let number = error(concat!(
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n",
            "1,m,2,3,5,x\n\n2,\"m m\",-7,3,5,x\n"
        ));
        assert_eq!(
            number,
            "t.csv:4:9: column \"Request tokens\": expected a whole number from 0 to 100000000, found \"-7\""
        );
        let quote = error("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,\"1,2\n");
        assert_eq!(
            quote,
            "t.csv:2:21: expected a closing quote before the next comma or line end, found \"\\\"1\""
        );
        let header = error("TIMESTAMP,\"ContextTokens,GeneratedTokens\n");
        assert!(header.starts_with("t.csv:1:11: expected a closing quote"), "{header}");
        let short = error("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1\n");
        assert_eq!(short, "t.csv:2:22: expected 3 fields, found 2");
        let long = error("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,2,3\n");
        assert_eq!(long, "t.csv:2:25: expected 3 fields, found 4");
        let back = error(
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,2\n2023-11-16 18:15:45,1,2\n",
        );
        assert!(back.starts_with("t.csv:3:1: column \"TIMESTAMP\": expected a time not before"), "{back}");
    }

    #[test]
    fn one_pair_of_quotes_is_taken_off() {
        for (field, said) in
            [("a", "a"), (" a ", "a"), ("\"a\"", "a"), (" \" a \" ", "a"), ("\"\"", ""), ("\"", "\"")]
        {
            assert_eq!(text(field.as_bytes()), said, "{field}");
        }
        assert_eq!(text(b"\"\"a\"\""), "\"a\"");
        assert_eq!(text(b"\xff"), "");
    }

    #[test]
    fn an_unclosed_quote_costs_its_own_row() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
                    2023-11-16 18:15:46,1,2\n\"2023-11-16 18:15:47,1,2\n2023-11-16 18:15:48,1,2\n2023-11-16 18:15:49,1,\"2\n2023-11-16 18:15:50,1,2\n";
        let (rows_left, skipped) = rows(text, true).unwrap();
        assert_eq!((rows_left.len(), skipped), (3, 2));
    }

    #[test]
    fn a_carriage_return_alone_ends_no_row() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n\
                    2023-11-16 18:15:46,1,2\r\n2023-11-16 18:15:47,1\r1,2\n\r\n2023-11-16 18:15:48,1,2\r";
        let (rows_left, skipped) = rows(text, true).unwrap();
        assert_eq!((rows_left.len(), skipped), (2, 1), "a line is a row");
        assert!(error(text).starts_with("t.csv:3:21: "), "{}", error(text));
    }

    #[test]
    fn bad_rows_can_be_skipped() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
                    2023-11-16 18:15:46,1,2\nrubbish\n2023-11-16 18:15:45,1,2\n2023-11-16 18:15:47,x,2\n2023-11-16 18:15:48,1,2\n";
        let (rows_left, skipped) = rows(text, true).unwrap();
        assert_eq!((rows_left.len(), skipped), (2, 3));
        assert!(rows("TIMESTAMP,ContextTokens,GeneratedTokens\nx,y,z\n", true).is_err(), "nothing usable");
    }
}
