//! Chooses the orderings of a copy: as written, but for the one that `LEASEHOLD_MUTANT` names, `NUMBER=ORDERING` or
//! `NUMBER=nothing`. Says on the standard error which ones are reached, each once.

use std::{
    io::Write,
    sync::{
        LazyLock,
        atomic::{AtomicBool, Ordering},
    },
};

static SELECTED: LazyLock<Option<(usize, Option<Ordering>)>> = LazyLock::new(|| {
    let mutant = std::env::var("LEASEHOLD_MUTANT").ok()?;
    let (number, becomes) = mutant.split_once('=').expect("NUMBER=ORDERING");
    let becomes = match becomes {
        "Relaxed" => Some(Ordering::Relaxed),
        "Acquire" => Some(Ordering::Acquire),
        "Release" => Some(Ordering::Release),
        "AcqRel" => Some(Ordering::AcqRel),
        "nothing" => None,
        other => panic!("no ordering: {other}"),
    };
    Some((number.parse().expect("a number"), becomes))
});

static REACHED: [AtomicBool; SITES_OF_THIS_COPY] = [const { AtomicBool::new(false) }; SITES_OF_THIS_COPY];

fn reach(number: usize) {
    if !REACHED[number].swap(true, Ordering::Relaxed) {
        let _ = std::io::stderr().write_all(format!("\nreached {number}\n").as_bytes());
    }
}

pub fn weakened(number: usize, ordering: Ordering) -> Ordering {
    reach(number);
    match *SELECTED {
        Some((selected, becomes)) if selected == number => becomes.expect("not a fence"),
        _ => ordering,
    }
}

pub fn fence_unless_removed(number: usize, ordering: Ordering) {
    reach(number);
    let becomes = match *SELECTED {
        Some((selected, becomes)) if selected == number => becomes,
        _ => Some(ordering),
    };
    if let Some(ordering) = becomes {
        crate::sync::atomic::fence(ordering);
    }
}
