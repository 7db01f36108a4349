//! What can go wrong, told in one line that says where and what was expected.

use std::{fmt, io};

pub type Result<T> = std::result::Result<T, Error>;

/// A place in an input: line and column count from 1, as editors do; columns count bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub source: String,
    pub line: u64,
    pub column: u64,
}

/// Everything that ends a run early. All of it is the caller's to mend, so all of it exits with [`EXIT_CODE`].
#[derive(Debug)]
pub enum Error {
    /// The content of an input cannot be used.
    Content { place: Place, message: String },
    /// A file or stream could not be opened, read or written.
    File { name: String, action: &'static str, cause: io::Error },
    /// The options ask for something that does not exist.
    Options(String),
}

/// Bad input and bad arguments end with this; clap uses the same number.
pub const EXIT_CODE: u8 = 2;

impl Error {
    pub fn content(source: &str, line: u64, column: u64, message: impl Into<String>) -> Self {
        Error::Content { place: Place { source: source.to_owned(), line, column }, message: message.into() }
    }

    pub fn file(name: impl Into<String>, action: &'static str, cause: io::Error) -> Self {
        Error::File { name: name.into(), action, cause }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Error::Content { place: Place { source, line, column }, message } => {
                format!("{source}:{line}:{column}: {message}")
            }
            Error::File { name, action, cause } => format!("{name}: {action}: {cause}"),
            Error::Options(message) => message.clone(),
        };
        // A name or a field may hold a newline or an escape sequence: one line stays one line.
        for c in text.chars() {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
        }
        Ok(())
    }
}

/// At most 40 bytes of what was found instead, quoted.
pub fn found(bytes: &[u8]) -> String {
    const MOST: usize = 40;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]);
    if bytes.len() > MOST { format!("{text:?}...") } else { format!("{text:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_on_one_line() {
        let error = Error::content("a\nb.csv", 3, 7, "expected \x1b[31m");
        assert_eq!(error.to_string(), r"a\nb.csv:3:7: expected \u{1b}[31m");
    }

    #[test]
    fn found_is_cut() {
        assert_eq!(found(b"x\n"), r#""x\n""#);
        assert_eq!(found(&[b'a'; 50]), format!("\"{}\"...", "a".repeat(40)));
        assert_eq!(found(b"\xff"), "\"\u{fffd}\"");
    }
}
