//! Fencing tokens: a lease as 16 bytes that may be copied, sent through a queue or a foreign interface, and come back.
//!
//! A lease that nobody asks for a token costs nothing here. Asking mints an entry in a table; the entry, not the
//! resource, carries the generation, so a doubled return of one of several leases on one resource is caught as well. With a
//! limit on how long leases are held ([`Builder::max_hold`](crate::Builder::max_hold)) every lease has an entry.
//!
//! | file | idea |
//! |---|---|
//! | `table` | the protocol: who returns the unit |
//! | `word` | an entry's word and its transitions |
//! | `entries` | where the entries are; the free list |

mod entries;
mod table;
mod word;

use std::{error::Error, fmt, str::FromStr};

pub use table::{Left, Out, Terms, Ticket, Tokens};

/// A lease as a value: the entry in its scheduler's token table, the generation of that entry, and which scheduler.
///
/// `Copy`: copies are equal, and the first one that is returned wins. It may cross a queue, a foreign interface or a
/// process boundary as [`bytes`](Token::to_bytes) or text; what comes back is checked.
///
/// ```
/// use leasehold::Token;
///
/// let text = "00000007-00000002-0123456789abcdef";
/// let token: Token = text.parse().expect("three groups of hexadecimal digits");
/// assert_eq!((token.slot(), token.generation()), (7, 2));
/// assert_eq!(token.to_string(), text);
/// assert_eq!(Token::from_bytes(token.to_bytes()), token);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    slot: u32,
    generation: u32,
    scheduler: u64,
}

impl Token {
    /// The entry in the scheduler's token table.
    pub const fn slot(self) -> u32 {
        self.slot
    }

    /// The generation of that entry; grows with every return.
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// The token as 16 bytes, the same on every machine.
    pub const fn to_bytes(self) -> [u8; 16] {
        ((self.slot as u128) << 96 | (self.generation as u128) << 64 | self.scheduler as u128).to_be_bytes()
    }

    /// The token from [`Token::to_bytes`]. Any bytes make a token; whether it is one of a scheduler is checked there.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        let bits = u128::from_be_bytes(bytes);
        Token { slot: (bits >> 96) as u32, generation: (bits >> 64) as u32, scheduler: bits as u64 }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:08x}-{:016x}", self.slot, self.generation, self.scheduler)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self})")
    }
}

/// A text that is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseTokenError;

impl fmt::Display for ParseTokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a token is three groups of 8, 8 and 16 lower-case hexadecimal digits, with dashes between",
        )
    }
}

impl Error for ParseTokenError {}

impl FromStr for Token {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        // `from_str_radix` alone would take signs and upper case: one token, one text.
        let hex = |group: Option<&str>, digits: usize| {
            group
                .filter(|g| g.len() == digits && g.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
                .and_then(|g| u64::from_str_radix(g, 16).ok())
                .ok_or(ParseTokenError)
        };
        let mut groups = text.split('-');
        let token = Token {
            slot: hex(groups.next(), 8)? as u32,
            generation: hex(groups.next(), 8)? as u32,
            scheduler: hex(groups.next(), 16)?,
        };
        if groups.next().is_some() { Err(ParseTokenError) } else { Ok(token) }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_and_text_round_trip(bytes: [u8; 16]) {
            let token = Token::from_bytes(bytes);
            prop_assert_eq!(token.to_bytes(), bytes);
            prop_assert_eq!(token.to_string().parse(), Ok(token));
        }

        #[test]
        fn no_text_panics(text: String) {
            if let Ok(token) = text.parse::<Token>() {
                prop_assert_eq!(token.to_string(), text);
            }
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "-",
            "00000007-00000002",
            "+0000007-00000002-0123456789abcdef",
            "00000007-00000002-0123456789ABCDEF",
            "00000007-00000002-0123456789abcdef-",
            "00000007-00000002-0123456789abcde",
        ] {
            assert_eq!(text.parse::<Token>(), Err(ParseTokenError), "{text:?}");
        }
    }
}
