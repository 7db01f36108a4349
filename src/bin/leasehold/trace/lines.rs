//! Hands a CSV parser one line per read, and so always knows which line the parser is in.
//!
//! The parser counts a line when it consumes its line feed. That is wrong after blank lines. The parser reads only when it needs more; with one line per read, the last line handed out is the
//! one that its newest record ends in. The raw line also tells the exact column of a field.

use std::io::{self, BufRead, Read};

/// The longest line accepted. A file without line ends must not fill the memory.
const LONGEST: u64 = 64 * 1024;

pub struct Lines<R> {
    inner: R,
    line: Vec<u8>,
    /// How much of `line` the parser has taken.
    taken: usize,
    number: u64,
    bytes: u64,
}

impl<R: BufRead> Lines<R> {
    pub fn new(inner: R) -> Self {
        Lines { inner, line: Vec::new(), taken: 0, number: 0, bytes: 0 }
    }

    /// The number of the newest line, from 1; 0 before the first.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Bytes handed out so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where field `index` of the newest line starts: a column from 1. One past the end if there is no such field.
    pub fn column(&self, index: usize) -> u64 {
        let text = self.line.trim_ascii_end();
        // A byte-order mark takes no column.
        let mark = if self.number == 1 && text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let text = &text[mark..];
        let commas = text.iter().enumerate().filter(|&(_, &byte)| byte == b',');
        let mut starts = std::iter::once(0).chain(commas.map(|(i, _)| i + 1));
        starts.nth(index).unwrap_or(text.len()) as u64 + 1
    }

    fn refill(&mut self) -> io::Result<()> {
        self.line.clear();
        self.taken = 0;
        self.inner.by_ref().take(LONGEST).read_until(b'\n', &mut self.line)?;
        if !self.line.is_empty() {
            self.number += 1;
        }
        if self.line.len() as u64 == LONGEST && self.line.last() != Some(&b'\n') {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("expected lines of at most {LONGEST} bytes"),
            ));
        }
        self.bytes += self.line.len() as u64;
        // Line ends of one form for the parser: to it a carriage return is one as well, to us only before a line feed or
        // the end.
        let end = self.line.pop_if(|byte| *byte == b'\n');
        self.line.pop_if(|byte| *byte == b'\r');
        self.line.extend(end);
        Ok(())
    }
}

impl<R: BufRead> Read for Lines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.line.len() {
            // The end is not cleared away: a bad last row still needs its text.
            if self.inner.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.refill()?;
        }
        let rest = &self.line[self.taken..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut csv =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(Lines::new(text));
        let mut record = csv::ByteRecord::new();
        let mut seen = Vec::new();
        while csv.read_byte_record(&mut record).unwrap() {
            seen.push((csv.get_ref().number(), record[0].to_vec()));
        }
        seen
    }

    #[test]
    fn numbers_survive_line_ends_blank_lines_and_a_missing_last_newline() {
        let expected = vec![(1, b"a".to_vec()), (3, b"b".to_vec()), (4, b"c".to_vec())];
        for text in [
            &b"a,1\n\nb,2\nc,3"[..],
            b"a,1\r\n\r\nb,2\r\nc,3",
            b"a,1\n\nb,2\nc,3\n",
            b"a,1\r\n\r\nb,2\r\nc,3\r\n",
        ] {
            assert_eq!(numbers(text), expected, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn columns_count_bytes_behind_the_mark() {
        let mut lines = Lines::new(&b"\xef\xbb\xbfab,\"cd\",e\r\n"[..]);
        lines.refill().unwrap();
        assert_eq!([0, 1, 2, 3].map(|i| lines.column(i)), [1, 4, 9, 10]);
    }

    #[test]
    fn endless_line_is_refused() {
        let mut sink = Vec::new();
        let error = Lines::new(io::BufReader::new(io::repeat(b'x'))).read_to_end(&mut sink).unwrap_err();
        assert!(error.to_string().contains("65536"), "{error}");
    }
}
