//! Fencing tokens: a lease as 16 bytes that may be copied, sent through a queue or a foreign interface, and come back.
//!
//! A lease that nobody asks for a token costs nothing here. Asking mints an entry in this table; the entry, not the
//! resource, carries the generation, so a doubled return of one of several leases on one resource is caught as well.
//!
//! # States and steps of an entry
//!
//! ```text
//!            mint M1..M3                redeem R1..R4
//!   FREE g  ------------->  LIVE g  ------------------->  FREE g+1
//!
//! M1  take an index: pop the free list, or the next unused one (a new chunk is allocated if need be)
//! M2  store node and value (Relaxed)
//! M3  word := LIVE g (Release)                      the token is (index, g)
//! R1  load word; any other generation: stale, nothing is touched
//! R2  CAS word LIVE g -> FREE g+1 (Acquire)         the one winner returns the lease; linearization point
//! R3  load node and value
//! R4  push the index onto the free list (Release)
//! ```
//!
//! R2 reads M3's store, so R3 sees M2. The next M2 of this entry comes after its M1, which (Acquire) reads R4, so it
//! does not overtake R3. The free list's head carries a tag against ABA. A generation repeats after 2^32 returns of one
//! entry.
//!
//! Progress: both are lock-free. What a redeemer is told is decided in one step (R2), without a loop; after it, R4 may lose a race for
//! the free list's head, as M1 may, or one to install a chunk.

#![allow(unsafe_code)]

use std::{error::Error, fmt, ptr, ptr::NonNull, str::FromStr};

use super::error::ReleaseError;
use crate::{
    node::{Node, Value},
    resource::Resource,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering},
};

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

/// What a token stands for: the lease's part that is not in the guard.
pub struct Ticket<R: Resource> {
    pub node: NonNull<Node<R>>,
    pub value: NonNull<Value<R>>,
    pub exclusive: bool,
}

struct Entry<R: Resource> {
    /// Generation in the upper half, [`LIVE`] or [`FREE`] in the lower.
    word: AtomicU64,
    node: AtomicPtr<Node<R>>,
    value: AtomicPtr<Value<R>>,
    exclusive: AtomicU32,
    next: AtomicU32,
}

const FREE: u64 = 0;
const LIVE: u64 = 1;
const NIL: u32 = u32::MAX;
/// Length of the first chunk; each further one doubles the table. Small in models, so that they cross a boundary.
const FIRST: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
const CHUNKS: usize = (32 - FIRST.ilog2()) as usize;

/// The table of one scheduler.
pub struct Tokens<R: Resource> {
    chunks: [AtomicPtr<Entry<R>>; CHUNKS],
    /// Indices that were ever given out.
    used: AtomicU32,
    /// Tag in the upper half, first free index in the lower.
    free: AtomicU64,
    scheduler: u64,
}

impl<R: Resource> Tokens<R> {
    /// An empty table. `scheduler` tells this scheduler's tokens from others'.
    pub fn new(scheduler: u64) -> Self {
        Tokens {
            chunks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            used: AtomicU32::new(0),
            free: AtomicU64::new(u64::from(NIL)),
            scheduler,
        }
    }

    const fn locate(index: u32) -> (usize, usize) {
        let level = (index | (FIRST - 1)).ilog2();
        let chunk = level + 1 - FIRST.ilog2();
        let base = (1 << level) & !(FIRST - 1);
        (chunk as usize, (index ^ base) as usize)
    }

    const fn chunk_len(chunk: usize) -> usize {
        if chunk == 0 { FIRST as usize } else { (FIRST as usize) << (chunk - 1) }
    }

    fn entry(&self, index: u32) -> Option<&Entry<R>> {
        let (chunk, offset) = Self::locate(index);
        // Acquire: pairs with the Release of the CAS in `chunk_for`: a chunk that is seen is completely written.
        let entries = self.chunks.get(chunk)?.load(Ordering::Acquire);
        // SAFETY: a chunk, once installed, has `chunk_len(chunk)` entries and stays until the table is dropped; `locate`
        // answers offsets below that.
        (!entries.is_null()).then(|| unsafe { &*entries.add(offset) })
    }

    /// Makes sure that the chunk of `index` is there.
    fn chunk_for(&self, index: u32) {
        let (chunk, _) = Self::locate(index);
        let cell = &self.chunks[chunk];
        // Relaxed: `entry`, which follows it, loads it again.
        if !cell.load(Ordering::Relaxed).is_null() {
            return;
        }
        let entries: Box<[Entry<R>]> = (0..Self::chunk_len(chunk))
            .map(|_| Entry {
                word: AtomicU64::new(1 << 32 | FREE),
                node: AtomicPtr::new(ptr::null_mut()),
                value: AtomicPtr::new(ptr::null_mut()),
                exclusive: AtomicU32::new(0),
                next: AtomicU32::new(NIL),
            })
            .collect();
        let entries = Box::into_raw(entries).cast::<Entry<R>>();
        // Release: pairs with the Acquire in `entry`. Failure Relaxed: the winner's chunk is found through `entry`.
        if cell.compare_exchange(ptr::null_mut(), entries, Ordering::Release, Ordering::Relaxed).is_err() {
            // SAFETY: ours was not installed, so this is the only owner.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(entries, Self::chunk_len(chunk))) });
        }
    }

    /// M1..M3.
    pub fn mint(&self, ticket: Ticket<R>) -> Token {
        let slot = self.pop_free().unwrap_or_else(|| {
            // Relaxed: the number alone is taken; the chunk is found or made below.
            let slot = self.used.fetch_add(1, Ordering::Relaxed);
            assert!(slot < NIL, "fewer than 2^32 tokens are out at once");
            self.chunk_for(slot);
            slot
        });
        let entry = self.entry(slot).expect("its chunk is there");
        entry.node.store(ticket.node.as_ptr(), Ordering::Relaxed);
        entry.value.store(ticket.value.as_ptr(), Ordering::Relaxed);
        entry.exclusive.store(u32::from(ticket.exclusive), Ordering::Relaxed);
        // Relaxed: nobody else writes the word of an entry that is free and in our hands.
        let generation = (entry.word.load(Ordering::Relaxed) >> 32) as u32;
        // Release: pairs with the Acquire of R2: the redeemer sees M2.
        entry.word.store(u64::from(generation) << 32 | LIVE, Ordering::Release);
        Token { slot, generation, scheduler: self.scheduler }
    }

    /// R1..R4.
    pub fn redeem(&self, token: Token) -> Result<Ticket<R>, ReleaseError> {
        if token.scheduler != self.scheduler {
            return Err(ReleaseError::Foreign);
        }
        let entry = self.entry(token.slot).ok_or(ReleaseError::Foreign)?;
        let live = u64::from(token.generation) << 32 | LIVE;
        let free = u64::from(token.generation.wrapping_add(1)) << 32 | FREE;
        // Acquire: pairs with the Release of M3. Failure Relaxed: only the generation is reported.
        if let Err(found) = entry.word.compare_exchange(live, free, Ordering::Acquire, Ordering::Relaxed) {
            let current = (found >> 32) as u32;
            return Err(if (current.wrapping_sub(token.generation) as i32) > 0 {
                ReleaseError::Stale { generation: token.generation, current }
            } else {
                // Never minted.
                ReleaseError::Foreign
            });
        }
        // Relaxed (R3): R2 has read M3, which comes after M2.
        let ticket = Ticket {
            // SAFETY: M2 stored pointers that are not null, and R2 saw it.
            node: unsafe { NonNull::new_unchecked(entry.node.load(Ordering::Relaxed)) },
            // SAFETY: as above.
            value: unsafe { NonNull::new_unchecked(entry.value.load(Ordering::Relaxed)) },
            exclusive: entry.exclusive.load(Ordering::Relaxed) != 0,
        };
        self.push_free(token.slot, entry);
        Ok(ticket)
    }

    /// The token of an entry that the caller's lease minted.
    pub const fn token(&self, slot: u32, generation: u32) -> Token {
        Token { slot, generation, scheduler: self.scheduler }
    }

    fn pop_free(&self) -> Option<u32> {
        // Acquire: pairs with the Release of R4.
        // - it reads R4's head: the entry's `next` and R3's loads are behind us;
        // - it reads an older head: the tag makes the CAS fail.
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let index = head as u32;
            if index == NIL {
                return None;
            }
            let next = self.entry(index)?.next.load(Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(next);
            // Relaxed: by its tag it is the very head that was loaded, and a read-modify-write passes on what pushes have
            // published. On failure Acquire, as above: that head is the next to be followed.
            match self.free.compare_exchange_weak(head, new, Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(found) => head = found,
            }
        }
    }

    fn push_free(&self, index: u32, entry: &Entry<R>) {
        // Relaxed: the CAS below validates it; `next` is read by who has read that CAS.
        let mut head = self.free.load(Ordering::Relaxed);
        loop {
            entry.next.store(head as u32, Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(index);
            // Release: pairs with the Acquire in `pop_free`. Failure Relaxed: only the word is reused.
            match self.free.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }

    /// Every lease whose token is still out. For the owner of the whole scheduler.
    pub fn drain(&mut self) -> Vec<Ticket<R>> {
        // Relaxed, here and below: `&mut self`.
        let used = self.used.load(Ordering::Relaxed);
        (0..used)
            .filter_map(|slot| {
                let word = self.entry(slot)?.word.load(Ordering::Relaxed);
                let live = word & LIVE == LIVE;
                live.then(|| self.redeem(self.token(slot, (word >> 32) as u32)).ok()).flatten()
            })
            .collect()
    }
}

impl<R: Resource> Drop for Tokens<R> {
    fn drop(&mut self) {
        for (chunk, cell) in self.chunks.iter().enumerate() {
            // Relaxed: `&mut self`.
            let entries = cell.load(Ordering::Relaxed);
            if !entries.is_null() {
                let entries = ptr::slice_from_raw_parts_mut(entries, Self::chunk_len(chunk));
                // SAFETY: installed once by `chunk_for`; `&mut self` is the last owner.
                drop(unsafe { Box::from_raw(entries) });
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn locate_covers_every_index_once() {
        let mut expected = (0, 0);
        for index in 0..10_000 {
            assert_eq!(Tokens::<crate::Entry<u32, u32, ()>>::locate(index), expected);
            expected.1 += 1;
            if expected.1 == Tokens::<crate::Entry<u32, u32, ()>>::chunk_len(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
        let (chunk, offset) = Tokens::<crate::Entry<u32, u32, ()>>::locate(u32::MAX);
        assert_eq!(chunk, CHUNKS - 1 + usize::from(CHUNKS == 26));
        assert!(offset < Tokens::<crate::Entry<u32, u32, ()>>::chunk_len(chunk));
    }

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
