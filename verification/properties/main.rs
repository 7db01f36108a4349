//! The whole public interface against a plain sequential oracle, over random settings and operations.
//!
//! Checks, after each operation: its answer (exactly, wherever it is determined: the best key with ties under one
//! shard, the best rank under an exact strategy, each error with its fields, the counts and the instant in
//! "none eligible"), the structure from scratch, and every count of `stats`. At the end: every word of every resource,
//! every lease's value, and that each resource was dropped once.
//!
//! Cost: 3 × 4,000 cases of up to 200 operations, under 30 s on two cores. `PROPTEST_CASES` sets another number.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "../model/mod.rs"]
mod model;

mod regressions;

use std::cell::RefCell;

use model::{Config, Coverage, Op, run};
use proptest::{
    prelude::*,
    test_runner::{Config as Settings, TestRunner},
};

const CASES: u32 = 4_000;
const OPERATIONS: usize = 200;

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES)
}

/// Operations with what each must have come to at least once, or the run was hollow.
const WANTED: &[(&str, &[&str])] = &[
    ("insert", &["ok", "ok, evicted", "full", "duplicate", "capacity", "home", "closed"]),
    ("insert_batch", &["ok", "empty", "full", "duplicate", "capacity", "home", "closed"]),
    ("update", &["ok", "not found", "capacity", "closed"]),
    ("update_with", &["ok", "not found", "capacity", "key changed", "closed"]),
    ("remove", &["ok", "ok, lent", "not found", "closed"]),
    ("get", &["found", "not found"]),
    ("acquire", &["ok", "none", "closed", "bad strategy"]),
    ("acquire_key", &["ok", "not found", "not eligible", "closed"]),
    ("acquire_where", &["ok", "none", "closed", "bad strategy"]),
    ("acquire_excluding", &["ok", "none", "closed"]),
    ("acquire_by_affinity", &["ok", "none", "closed"]),
    ("acquire_many", &["ok", "none", "nothing", "closed"]),
    ("end", &["ok", "before its token", "after its token"]),
    ("token", &["ok", "again"]),
    ("into_token", &["ok", "again"]),
    ("redeem", &["ok", "stale"]),
    ("redeem_foreign", &["refused"]),
    ("exclude", &["changed", "as before", "not found", "closed"]),
    ("include", &["changed", "as before", "not found", "closed"]),
    ("cool", &["changed", "as before", "not found", "closed"]),
    ("warm", &["changed", "as before", "not found", "closed"]),
    ("eject", &["changed", "as before", "not found", "closed"]),
    ("readmit", &["changed", "as before", "not found", "closed"]),
    ("drain", &["changed", "as before", "not found", "closed"]),
    ("undrain", &["changed", "as before", "not found", "closed"]),
    ("evict_worst", &["ok", "none", "closed"]),
    ("peek", &["some", "none"]),
    ("peek_by_affinity", &["some", "none"]),
    ("peek_worst", &["some", "none"]),
    ("drop_peeks", &["ok"]),
    ("advance", &["ok"]),
    ("set_weights", &["ok", "length", "no weight"]),
    ("snapshot", &["ok"]),
    ("close", &["ok"]),
];

fn drive(shards: usize) {
    let cases = cases();
    let settings =
        Settings { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Settings::default() };
    let mut runner = TestRunner::new(settings);
    let config = any::<[u8; 6]>().prop_map(move |bytes| Config::decode(shards, bytes));
    let ops = proptest::collection::vec(any::<[u8; 6]>().prop_map(Op::decode), 1..=OPERATIONS);
    let coverage = RefCell::new(Coverage::default());
    let outcome = runner.run(&(config, ops), |(config, ops)| {
        coverage.borrow_mut().add(run(config, &ops));
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    let coverage = coverage.into_inner();
    assert!(coverage.operations() > u64::from(cases) * 50, "too few operations: {}", coverage.operations());
    if cases >= CASES {
        assert_eq!(WANTED.len(), Op::KINDS, "an operation is not listed");
        for &(op, ends) in WANTED {
            for &end in ends {
                assert!(coverage.0.contains_key(&(op, end)), "{op} never ended with {end:?}");
            }
        }
    }
}

#[test]
fn one_shard_behaves_as_the_oracle() {
    drive(1);
}

#[test]
fn two_shards_behave_as_the_oracle() {
    drive(2);
}

#[test]
fn eight_shards_behave_as_the_oracle() {
    drive(8);
}
