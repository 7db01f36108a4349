//! The module that the rewritten library gets: which mutant is on, told by the environment once.
//!
//! `LEASEHOLD_MUTANT=N` turns mutant N on. `LEASEHOLD_MUTANT=record:FILE` turns none on, and writes at the end of the
//! process which were passed by, as one byte for each.

use std::{
    fs,
    sync::{
        Once, OnceLock,
        atomic::{AtomicU8, AtomicU32, Ordering::Relaxed},
    },
};

const UNREAD: u32 = u32::MAX;
const RECORDING: u32 = u32::MAX - 1;

static CHOSEN: AtomicU32 = AtomicU32::new(UNREAD);
static PASSED: [AtomicU8; COUNT] = [const { AtomicU8::new(0) }; COUNT];
static FILE: OnceLock<String> = OnceLock::new();

#[inline(always)]
pub fn on(mutant: u32) -> bool {
    let chosen = CHOSEN.load(Relaxed);
    if chosen < RECORDING { chosen == mutant } else { at_first(mutant) }
}

#[cold]
#[inline(never)]
fn at_first(mutant: u32) -> bool {
    static READ: Once = Once::new();
    READ.call_once(|| {
        let chosen = std::env::var("LEASEHOLD_MUTANT").unwrap_or_default();
        match chosen.strip_prefix("record:") {
            Some(file) => {
                let _ = FILE.set(format!("{file}.{}", std::process::id()));
                unsafe extern "C" {
                    fn atexit(function: extern "C" fn()) -> i32;
                }
                // SAFETY: `write` is a function of the type that is asked for, and only reads statics.
                unsafe { atexit(write) };
                CHOSEN.store(RECORDING, Relaxed);
            }
            None => CHOSEN.store(chosen.parse().unwrap_or(0), Relaxed),
        }
    });
    if CHOSEN.load(Relaxed) == RECORDING {
        PASSED[mutant as usize].store(1, Relaxed);
    }
    CHOSEN.load(Relaxed) == mutant
}

extern "C" fn write() {
    let passed: Vec<u8> = PASSED.iter().map(|passed| passed.load(Relaxed)).collect();
    let _ = fs::write(FILE.get().expect("set before this was registered"), passed);
}
