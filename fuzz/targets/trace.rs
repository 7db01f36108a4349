//! The readers of traces against a second reader, written from `docs/cli.md`: which rows are used, what they say, at which
//! line and column the first bad one is, and when each request arrives.
//!
//! The second reader is sure of the plain forms of a time only; of others it takes the first one's word, and checks what must
//! hold for any.
//!
//! Input: one byte for the settings, then the file.
#![cfg_attr(fuzzing, no_main)]

use leasehold_fuzz::{Bytes, target};

#[allow(dead_code)]
#[path = "../../src/bin/leasehold/error.rs"]
mod error;
#[allow(dead_code, unused_imports)]
#[path = "../../src/bin/leasehold/trace/mod.rs"]
mod trace;

use error::Error;
use trace::{Arrivals, Reader, Row, Trace};

/// The latest arrival, in nanoseconds.
const LATEST: i128 = 1 << 62;
const MOST_TOKENS: u64 = 100_000_000;
/// Bytes of a line, its end included, that are refused.
const TOO_LONG: usize = 64 * 1024;

const AZURE: [&[u8]; 3] = [b"TIMESTAMP", b"ContextTokens", b"GeneratedTokens"];
const BURST: [&[u8]; 3] = [b"Timestamp", b"Request tokens", b"Response tokens"];

/// One row: its line, and where its fields begin.
struct Line<'a> {
    number: u64,
    fields: Vec<(u64, &'a [u8])>,
}

impl Line<'_> {
    /// The column of a field, or of the end of what can be seen.
    fn column(&self, field: usize) -> u64 {
        self.fields.get(field).map_or_else(
            || self.fields.last().map_or(1, |(start, text)| start + text.trim_ascii_end().len() as u64),
            |&(start, _)| start,
        )
    }
}

/// Every line that is not blank, up to the first that is too long; and the number of that one.
fn lines(file: &[u8]) -> (Vec<Line<'_>>, Option<u64>) {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(file.split_inclusive(|&byte| byte == b'\n')) {
        if line.len() >= TOO_LONG && (line.len() > TOO_LONG || !line.ends_with(b"\n")) {
            return (lines, Some(number));
        }
        let mut text = line.strip_suffix(b"\n").unwrap_or(line);
        text = text.strip_suffix(b"\r").unwrap_or(text);
        if number == 1 {
            text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        }
        if text.is_empty() {
            continue;
        }
        let mut start = 1;
        let mut fields = Vec::new();
        for field in text.split(|&byte| byte == b',') {
            fields.push((start, field));
            start += field.len() as u64 + 1;
        }
        lines.push(Line { number, fields });
    }
    (lines, None)
}

/// A field without the spaces and the pair of quotes around it.
fn text(field: &[u8]) -> &str {
    let mut text = field.trim_ascii();
    if text.len() >= 2 && text[0] == b'"' && text[text.len() - 1] == b'"' {
        text = &text[1..text.len() - 1];
    }
    std::str::from_utf8(text).unwrap_or_default().trim()
}

fn unclosed(line: &Line<'_>) -> Option<usize> {
    line.fields.iter().position(|(_, field)| field.iter().filter(|&&byte| byte == b'"').count() % 2 != 0)
}

/// What the header says: which format, and where its columns are.
fn header(line: &Line<'_>) -> Option<(bool, [usize; 3])> {
    if unclosed(line).is_some() {
        return None;
    }
    let places = |name: &[u8]| -> Vec<usize> {
        let is = |&at: &usize| text(line.fields[at].1).as_bytes() == name;
        (0..line.fields.len()).filter(is).collect()
    };
    let all = |format: [&[u8]; 3]| {
        let found = format.map(places);
        found.iter().all(|places| !places.is_empty()).then_some(found)
    };
    let (azure, found) = match (all(AZURE), all(BURST)) {
        (Some(_), Some(_)) | (None, None) => return None,
        (Some(found), None) => (true, found),
        (None, Some(found)) => (false, found),
    };
    found.iter().all(|places| places.len() == 1).then(|| (azure, found.map(|places| places[0])))
}

/// What a field comes to.
enum Told<T> {
    This(T),
    Nothing,
    /// The second reader cannot tell.
    Perhaps,
}

fn tokens(field: &[u8]) -> Option<u32> {
    let digits = text(field);
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    (digits.len() < 10)
        .then(|| digits.bytes().fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0')))
        .filter(|&number| number <= MOST_TOKENS)
        .map(|number| number as u32)
}

/// Nanoseconds, give or take what a 64-bit float loses: `This((value, tolerance))`.
fn seconds(text: &str) -> Told<(i128, i128)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.len() + fraction.len() == 0 {
        return Told::Nothing;
    }
    let whole = whole.trim_start_matches('0');
    if whole.len() > 10 {
        return Told::Nothing;
    }
    let number = |text: &str| text.bytes().fold(0i128, |sum, byte| sum * 10 + i128::from(byte - b'0'));
    let nanos = format!("{:0<9.9}", fraction);
    let value = number(whole) * 1_000_000_000 + number(&nanos);
    if whole == "9999999999" && nanos.starts_with("9999") {
        return Told::Perhaps;
    }
    Told::This((value, 1 + (value >> 51)))
}

/// `2023-11-16 18:15:46`, a fraction, an offset.
fn moment(text: &str) -> Told<(i128, i128)> {
    let bytes = text.as_bytes();
    if bytes.len() < 19 {
        return Told::Nothing;
    }
    let pattern = b"dddd-dd-dd dd:dd:dd";
    let fits = |(&byte, &wanted): (&u8, &u8)| match wanted {
        b'd' => byte.is_ascii_digit(),
        _ => byte == wanted,
    };
    if !bytes.iter().zip(pattern).all(fits) {
        return Told::Perhaps;
    }
    let number =
        |from: usize, to: usize| text[from..to].bytes().fold(0i64, |sum, b| sum * 10 + i64::from(b - b'0'));
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    let (hour, minute, second) = (number(11, 13), number(14, 16), number(17, 19));
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    if !(1..=12).contains(&month)
        || !(1..=lengths[month as usize - 1]).contains(&day)
        || hour > 23
        || minute > 59
    {
        return Told::Nothing;
    }
    if second > 59 || !(1..=9_998).contains(&year) {
        return Told::Perhaps;
    }
    let (fraction, offset) = match &text[19..] {
        rest if rest.starts_with('.') => {
            let end = rest[1..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |end| end + 1);
            (&rest[1..end], &rest[end..])
        }
        rest => ("", rest),
    };
    if fraction.len() > 9 || (fraction.is_empty() && text[19..].starts_with('.')) {
        return Told::Perhaps;
    }
    let offset = match offset.as_bytes() {
        [] | b"Z" => 0,
        [sign @ (b'+' | b'-'), a, b, b':', c, d] if [a, b, c, d].iter().all(|byte| byte.is_ascii_digit()) => {
            let hours = i64::from((a - b'0') * 10 + b - b'0');
            let minutes = i64::from((c - b'0') * 10 + d - b'0');
            if hours > 23 || minutes > 59 {
                return Told::Perhaps;
            }
            (hours * 60 + minutes) * if *sign == b'+' { 60 } else { -60 }
        }
        _ => return Told::Perhaps,
    };
    let years = year - 1;
    let days = years * 365 + years / 4 - years / 100
        + years / 400
        + lengths[..month as usize - 1].iter().sum::<i64>()
        + day
        - 719_163;
    let whole = days * 86_400 + hour * 3_600 + minute * 60 + second - offset;
    let nanos: i128 = format!("{fraction:0<9}").parse().expect("nine digits");
    Told::This((i128::from(whole) * 1_000_000_000 + nanos, 0))
}

/// What must become of a row, given those before it: the row, if it must be used; the fields that may be at fault.
struct Verdict {
    used: Told<Row>,
    /// How far the time may be off.
    tolerance: i128,
    faults: Vec<usize>,
}

struct Settings {
    azure: bool,
    columns: [usize; 3],
    width: usize,
    speed: f64,
}

impl Settings {
    fn judge(&self, line: &Line<'_>, first: Option<i128>, previous: Option<i128>) -> Verdict {
        let refused = |faults| Verdict { used: Told::Nothing, tolerance: 0, faults };
        if let Some(field) = unclosed(line) {
            return refused(vec![field]);
        }
        if line.fields.len() != self.width {
            return refused(vec![line.fields.len().min(self.width)]);
        }
        let [moment_at, context_at, generated_at] = self.columns;
        let field = |at: usize| line.fields[at].1;
        let mut faults = Vec::new();
        let (context, generated) = (tokens(field(context_at)), tokens(field(generated_at)));
        faults.extend(context.is_none().then_some(context_at));
        faults.extend(generated.is_none().then_some(generated_at));
        let told = if self.azure { moment(text(field(moment_at))) } else { seconds(text(field(moment_at))) };
        let sure = match told {
            Told::Nothing => None,
            Told::Perhaps => {
                let used = if faults.is_empty() { Told::Perhaps } else { Told::Nothing };
                faults.push(moment_at);
                return Verdict { used, tolerance: 0, faults };
            }
            Told::This((at, tolerance)) => {
                let early = previous.map_or(i128::MAX, |previous| at - previous);
                let virtual_time = first.map_or(0.0, |first| (at - first) as f64 / self.speed);
                let late = LATEST as f64 - virtual_time;
                // Near a border rounding decides.
                if (tolerance > 0 && early.abs() <= 2 * tolerance) || (late / LATEST as f64).abs() < 1e-12 {
                    faults.push(moment_at);
                    return Verdict { used: Told::Perhaps, tolerance: 0, faults };
                }
                (early >= 0 && late > 0.0).then_some((at, tolerance))
            }
        };
        faults.extend(sure.is_none().then_some(moment_at));
        match (sure, context, generated) {
            (Some((at, tolerance)), Some(context_tokens), Some(generated_tokens)) => {
                Verdict { used: Told::This(Row { at, context_tokens, generated_tokens }), tolerance, faults }
            }
            _ => refused(faults),
        }
    }
}

/// Line, column and message of an error about the content.
fn place(error: &Error) -> (u64, u64, String) {
    let told = error.to_string();
    assert!(!told.contains(|c: char| c.is_control()), "one line, and no escapes: {told:?}");
    let Error::Content { place, message } = error else { panic!("{told}") };
    assert_eq!(place.source, "t.csv");
    assert!(told.starts_with(&format!("t.csv:{}:{}: ", place.line, place.column)), "{told}");
    (place.line, place.column, message.clone())
}

fn check(file: &[u8], speed: f64) {
    let reader = |skip| Reader::new("t.csv", Box::new(std::io::Cursor::new(file.to_vec())), speed, skip);
    let (mut lines, too_long) = lines(file);
    if lines.is_empty() {
        let (line, _, _) = place(&reader(true).err().expect("there is no header"));
        assert_eq!(line, too_long.unwrap_or(1));
        return;
    }
    let head = lines.remove(0);
    let Some((azure, columns)) = header(&head) else {
        let (line, column, _) = place(&reader(true).err().expect("the header is no good"));
        assert_eq!(line, head.number);
        assert!((0..=head.fields.len()).any(|field| head.column(field) == column), "column {column}");
        return;
    };
    let mut skipping = reader(true).unwrap_or_else(|error| panic!("the header is good: {error}"));
    assert_eq!(skipping.format(), if azure { "azure" } else { "burstgpt" });
    let settings = Settings { azure, columns, width: head.fields.len(), speed };

    // Which rows are used, and with what.
    let mut rows: Vec<Row> = Vec::new();
    let mut first_bad: Option<(u64, Vec<u64>)> = None;
    let mut next = 0;
    let end = loop {
        let skipped = skipping.skipped();
        let read = skipping.next_row();
        let mut judge = |used: Option<Row>| {
            let line = &lines[next];
            next += 1;
            let first = rows.first().map(|row| row.at);
            let verdict = settings.judge(line, first, rows.last().map(|row| row.at));
            match (verdict.used, used) {
                (Told::This(expected), Some(row)) => {
                    assert!(
                        (row.at - expected.at).abs() <= verdict.tolerance,
                        "{row:?}, expected {expected:?}"
                    );
                    assert_eq!(Row { at: expected.at, ..row }, expected);
                }
                (Told::Nothing, None) | (Told::Perhaps, _) => {}
                (Told::This(expected), None) => panic!("line {}: {expected:?} was left out", line.number),
                (Told::Nothing, Some(row)) => panic!("line {}: {row:?} was used", line.number),
            }
            match used {
                Some(row) => {
                    assert!(rows.last().is_none_or(|last| last.at <= row.at), "time runs backwards");
                    rows.push(row);
                }
                None => {
                    let columns = verdict.faults.iter().map(|&field| line.column(field)).collect();
                    first_bad.get_or_insert((line.number, columns));
                }
            }
        };
        (skipped..skipping.skipped()).for_each(|_| judge(None));
        match read {
            Ok(Some(row)) => judge(Some(row)),
            Ok(None) => break None,
            Err(error) => break Some(place(&error)),
        }
    };
    assert_eq!(next, lines.len(), "every row is used or counted");
    match (end, too_long) {
        (None, None) => assert!(!rows.is_empty()),
        (Some((line, _, message)), Some(long)) => {
            assert_eq!(line, long);
            assert!(message.contains("lines of at most"), "{message}");
        }
        (Some((_, _, message)), None) => {
            assert!(rows.is_empty(), "{message}");
            assert!(message.starts_with("expected at least one"), "{message}");
        }
        (None, Some(long)) => panic!("line {long} is too long"),
    }

    // Without leaving any out: up to the first that is bad.
    let mut strict = reader(false).expect("as above");
    let mut read = Vec::new();
    let end = loop {
        match strict.next_row() {
            Ok(Some(row)) => read.push(row),
            Ok(None) => break None,
            Err(error) => break Some(place(&error)),
        }
    };
    assert_eq!(read[..], rows[..read.len()]);
    match (end, first_bad) {
        (Some((line, column, message)), Some((bad, columns))) => {
            assert_eq!(line, bad, "{message}");
            assert!(columns.contains(&column), "column {column} instead of {columns:?}: {message}");
        }
        (None, Some((bad, _))) => panic!("line {bad} is bad"),
        (Some(_), None) => assert!(too_long.is_some() || rows.is_empty()),
        (None, None) => assert_eq!(read, rows),
    }

    // When they arrive.
    if too_long.is_none() && !rows.is_empty() {
        let mut arrivals = Arrivals::new(Trace::Rows(Box::new(reader(true).expect("as above"))), speed, None);
        for (number, row) in (0..).zip(&rows) {
            let request = arrivals.next_request().expect("as above").expect("as many as rows");
            let exact = (row.at - rows[0].at) as f64 / speed;
            assert_eq!((request.number, request.context_tokens), (number, row.context_tokens));
            assert!((request.at as f64 - exact).abs() <= 1.0 + exact * 1e-15, "{request:?}, exactly {exact}");
        }
        assert!(arrivals.next_request().expect("the end").is_none());
        assert_eq!(arrivals.count(), rows.len() as u64);
    }
}

fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let settings = bytes.u8();
    let speed = [1.0, 2.0, 1e-6, 1e6][usize::from(settings % 4)];
    let mut file = bytes.0.to_vec();
    if settings & 64 != 0
        && let Some(space) = file.iter().position(|&byte| byte == b' ')
    {
        // A line that is too long, or nearly.
        let spaces = TOO_LONG - usize::from(settings >> 2 & 15) * 8;
        file.splice(space..=space, std::iter::repeat_n(b' ', spaces));
    }
    check(&file, speed);
}

target!(run);
