//! The whole scheduler against the oracle of `verification/model`: the operations that the property tests draw, driven by
//! coverage.
//!
//! Input: one byte for the number of shards, six for the settings, six for each operation.
#![cfg_attr(fuzzing, no_main)]

use leasehold_fuzz::{Bytes, target};

#[path = "../../verification/model/mod.rs"]
mod model;

/// More say nothing that fewer do not.
const OPERATIONS: usize = 300;

fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let shards = [1, 2, 3, 8][usize::from(bytes.u8() % 4)];
    let config = model::Config::decode(shards, bytes.array());
    let mut ops = Vec::new();
    while !bytes.is_empty() && ops.len() < OPERATIONS {
        ops.push(model::Op::decode(bytes.array()));
    }
    let coverage = model::run(config, &ops);
    assert_eq!(coverage.operations(), ops.len() as u64, "each operation was run");
}

target!(run);
