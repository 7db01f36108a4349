//! Tokens as they come back from outside: a token that was not minted, or was redeemed before, never ends a lease; one that is
//! out ends exactly its own. Texts and bytes are read as documented, by an independent reader.
//!
//! Input: one byte and what it asks for, again and again.
#![cfg_attr(fuzzing, no_main)]

use std::collections::BTreeMap;

use leasehold::{Capacity, Entry, Lease, Outcome, ReleaseError, Scheduler, Token};
use leasehold_fuzz::{Bytes, target};

type Fleet = Scheduler<Entry<u8, u8, ()>>;

/// More than the table's first chunk, of 64, has room for.
const UNITS: u32 = 40;
const KEYS: u8 = 3;

/// A guard, and its token if one was asked for.
type Held<'s> = (Lease<'s, Entry<u8, u8, ()>>, Option<Token>);

/// What is known of an entry of the table.
struct Known {
    generation: u32,
    /// The key whose lease is out.
    lease: Option<u8>,
}

struct Checked<'s> {
    fleet: &'s Fleet,
    other: &'s Fleet,
    entries: BTreeMap<u32, Known>,
    /// This scheduler's part of every token, once one was seen.
    scheduler: Option<[u8; 8]>,
    /// All that were ever minted.
    tokens: Vec<Token>,
    /// Leases whose token was not asked for, and those beside their token.
    held: Vec<Held<'s>>,
    out: [u32; KEYS as usize],
}

/// Slot, generation, scheduler: big-endian, as documented.
fn parts(bytes: [u8; 16]) -> (u32, u32, [u8; 8]) {
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"));
    (number(0), number(4), bytes[8..].try_into().expect("eight"))
}

/// The reader of texts, once more: three groups of 8, 8 and 16 lower-case hexadecimal digits, with dashes between.
fn read(text: &[u8]) -> Option<[u8; 16]> {
    if text.len() != 34 || text[8] != b'-' || text[17] != b'-' {
        return None;
    }
    let digits: Vec<u8> = [&text[..8], &text[9..17], &text[18..]].concat();
    let value = |digit: u8| b"0123456789abcdef".iter().position(|&known| known == digit);
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = (value(pair[0])? << 4 | value(pair[1])?) as u8;
    }
    Some(bytes)
}

fn check_text(text: &str) {
    match (text.parse::<Token>(), read(text.as_bytes())) {
        (Ok(token), Some(bytes)) => {
            assert_eq!(token.to_bytes(), bytes);
            assert_eq!(token.to_string(), text, "one token, one text");
        }
        (Err(_), None) => {}
        (token, expected) => panic!("{text:?}: {token:?} instead of {expected:?}"),
    }
}

impl<'s> Checked<'s> {
    fn mint(&mut self, token: Token, key: u8) {
        let (slot, generation, scheduler) = parts(token.to_bytes());
        assert_eq!((token.slot(), token.generation()), (slot, generation));
        assert_eq!(*self.scheduler.get_or_insert(scheduler), scheduler);
        let known = self.entries.entry(slot).or_insert(Known { generation, lease: None });
        assert_eq!(known.generation, generation, "an entry goes on where it was");
        assert!(known.lease.replace(key).is_none(), "the entry was in use");
        self.tokens.push(token);
        check_text(&token.to_string());
    }

    /// What must become of a token, whoever made it. A good one is then spent.
    fn spend(&mut self, token: Token) -> Result<u8, ReleaseError> {
        let (slot, generation, scheduler) = parts(token.to_bytes());
        if Some(scheduler) != self.scheduler {
            return Err(ReleaseError::Foreign);
        }
        // An entry that was never used is as good as none: its generation has begun, but no lease was out.
        let Some(known) = self.entries.get_mut(&slot) else { return Err(ReleaseError::Foreign) };
        let current = known.generation;
        if generation != current {
            return Err(if current.wrapping_sub(generation) as i32 > 0 {
                ReleaseError::Stale { generation, current }
            } else {
                ReleaseError::Foreign
            });
        }
        let Some(key) = known.lease.take() else { return Err(ReleaseError::Foreign) };
        known.generation = known.generation.wrapping_add(1);
        Ok(key)
    }

    fn redeem(&mut self, token: Token, finish: bool) {
        assert_eq!(Token::from_bytes(token.to_bytes()), token);
        let unknown = !self.entries.contains_key(&token.slot());
        let expected = self.spend(token);
        let result =
            if finish { self.fleet.finish(token, Outcome::Failed) } else { self.fleet.release(token) };
        match (result, expected) {
            (Ok(()), Ok(key)) => self.out[usize::from(key)] -= 1,
            // Entries that wait for their first use have a generation too.
            (Err(ReleaseError::Stale { .. }), Err(ReleaseError::Foreign)) if unknown => {}
            (Err(error), Err(expected)) => assert_eq!(error, expected, "{token}"),
            (result, expected) => panic!("{token}: {result:?} instead of {expected:?}"),
        }
    }

    fn any(&self, index: u8) -> Option<Token> {
        (!self.tokens.is_empty()).then(|| self.tokens[usize::from(index) % self.tokens.len()])
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let kind = bytes.u8();
        match kind % 16 {
            0..=3 => {
                if let Ok(lease) = self.fleet.acquire_key(&(bytes.u8() % KEYS)) {
                    let key = *lease.key();
                    self.out[usize::from(key)] += 1;
                    if kind.is_multiple_of(2) {
                        self.held.push((lease, None));
                    } else {
                        let token = lease.into_token();
                        self.mint(token, key);
                    }
                }
            }
            4 => {
                if let Some(mut held) = self.held.pop() {
                    let token = held.0.token();
                    match held.1 {
                        None => self.mint(token, *held.0.key()),
                        Some(earlier) => assert_eq!(token, earlier, "asked again, it is the same"),
                    }
                    held.1 = Some(token);
                    self.held.insert(0, held);
                }
            }
            5 => {
                if let Some((lease, token)) = self.held.pop() {
                    let key = *lease.key();
                    drop(lease);
                    let out = token.is_none_or(|token| self.spend(token).is_ok());
                    self.out[usize::from(key)] -= u32::from(out);
                }
            }
            6..=8 => {
                let index = bytes.u8();
                self.any(index).into_iter().for_each(|token| self.redeem(token, kind % 32 < 16));
            }
            // A good one with some bits turned over.
            9..=11 => {
                let (index, at, turn) = (bytes.u8(), usize::from(bytes.u8() % 16), bytes.u8());
                if let Some(token) = self.any(index) {
                    let mut forged = token.to_bytes();
                    forged[at] ^= turn;
                    if kind >= 128 {
                        forged[usize::from(kind >> 3 & 15)] ^= turn.rotate_left(3);
                    }
                    self.redeem(Token::from_bytes(forged), kind % 32 < 16);
                }
            }
            // Anything at all, with the right scheduler or without.
            12 => {
                let mut forged: [u8; 16] = bytes.array();
                if let Some(scheduler) = self.scheduler
                    && kind < 128
                {
                    forged[8..].copy_from_slice(&scheduler);
                }
                self.redeem(Token::from_bytes(forged), false);
            }
            13 => {
                // The other scheduler's, which is good there.
                let token = self.other.acquire().expect("unlimited").into_token();
                self.redeem(token, false);
                assert_eq!(self.other.release(token), Ok(()));
            }
            14 => {
                let length = usize::from(bytes.u8() % 48);
                check_text(&String::from_utf8_lossy(bytes.slice(length)));
            }
            _ => {
                // A good text, changed in one place.
                let (index, at, byte) = (bytes.u8(), bytes.u8(), bytes.u8());
                if let Some(token) = self.any(index) {
                    let mut text = token.to_string().into_bytes();
                    let at = usize::from(at) % text.len();
                    match kind >> 4 {
                        0..=7 => text[at] = byte,
                        8..=10 => text.insert(at, byte),
                        11..=13 => drop(text.remove(at)),
                        _ => text.push(byte),
                    }
                    check_text(&String::from_utf8_lossy(&text));
                }
            }
        }
    }

    fn check(&self) {
        for state in self.fleet.snapshot() {
            assert_eq!(state.in_flight, self.out[usize::from(state.key)], "{state:?}");
        }
        assert_eq!(self.fleet.stats().in_flight, u64::from(self.out.iter().sum::<u32>()));
    }
}

fn run(data: &[u8]) {
    let fleet = || Fleet::builder().shards(2).build().expect("in range");
    let (fleet, other) = (fleet(), fleet());
    for key in 0..KEYS {
        fleet.insert(Entry::new(key, key, ()).with_capacity(Capacity::Limited(UNITS))).expect("new");
    }
    other.insert(Entry::new(0, 0, ()).with_capacity(Capacity::Unlimited)).expect("new");
    let mut checked = Checked {
        fleet: &fleet,
        other: &other,
        entries: BTreeMap::new(),
        scheduler: None,
        tokens: Vec::new(),
        held: Vec::new(),
        out: [0; KEYS as usize],
    };
    let mut bytes = Bytes(data);
    while !bytes.is_empty() {
        checked.step(&mut bytes);
        checked.check();
    }
    fleet.check_invariants();
    // Leases whose tokens are still out end with their scheduler.
}

target!(run);
