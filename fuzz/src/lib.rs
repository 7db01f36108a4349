//! What the fuzz targets share.
//!
//! A target is a function of bytes, which panics if what it drives and its model disagree. cargo-fuzz builds it around
//! libFuzzer; without `cfg(fuzzing)` it is a plain program that runs the files and directories it is given, for seeds, for
//! findings, and under a debugger:
//!
//! ```sh
//! cargo run --manifest-path fuzz/Cargo.toml --bin lookup -- fuzz/seeds/lookup
//! ```

use std::{fs, path::Path};

use leasehold::internals::heap::Positions;

/// Makes a program of a target.
#[macro_export]
macro_rules! target {
    ($body:path) => {
        #[cfg(fuzzing)]
        ::libfuzzer_sys::fuzz_target!(|data: &[u8]| $body(data));

        #[cfg(not(fuzzing))]
        fn main() {
            $crate::replay(env!("CARGO_BIN_NAME"), $body);
        }
    };
}

/// Runs every file that the arguments name, or that is in a directory that they name. Fails if there was none.
pub fn replay(name: &str, body: fn(&[u8])) {
    let mut files: Vec<_> = std::env::args_os().skip(1).flat_map(|path| files(path.as_ref())).collect();
    files.sort();
    assert!(!files.is_empty(), "{name}: no file to run; name some, or a directory with some");
    for file in &files {
        let data = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let ran = std::panic::catch_unwind(|| body(&data));
        assert!(ran.is_ok(), "{name} fails on {}", file.display());
    }
    println!("fuzz {name}: {} inputs replayed", files.len());
}

fn files(path: &Path) -> Vec<std::path::PathBuf> {
    match fs::read_dir(path) {
        Ok(entries) => entries.map(|entry| entry.expect("can be listed").path()).collect(),
        Err(_) => vec![path.to_owned()],
    }
}

/// An input, taken from the front. What is not there is zero, so that any bytes make a whole run.
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.slice(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    /// `count` bytes, or as many as there are.
    pub fn slice(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// A rank from a byte and another: few values, so that ranks meet, and both ends.
pub fn rank(class: u8, value: u8) -> u64 {
    match class % 8 {
        0..=3 => u64::from(value % 8),
        4 => u64::from(value),
        5 => u64::from(value) << 56 | 0xff,
        6 => u64::MAX - u64::from(value % 4),
        _ => u64::from(value).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

/// The owner of a heap's entries: which slots there are, and where each entry is.
pub struct Owner {
    positions: Vec<u32>,
    free: Vec<u32>,
}

impl Owner {
    /// So many slots.
    pub fn new(slots: u32) -> Self {
        Owner { positions: vec![u32::MAX; slots as usize], free: (0..slots).rev().collect() }
    }

    pub fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    pub fn give_back(&mut self, slot: u32) {
        // A position that is asked for now panics.
        self.positions[slot as usize] = u32::MAX;
        self.free.push(slot);
    }

    pub fn position(&self, slot: u32) -> u32 {
        self.positions[slot as usize]
    }
}

impl Positions for Owner {
    fn set(&mut self, slot: u32, position: u32) {
        self.positions[slot as usize] = position;
    }
}
