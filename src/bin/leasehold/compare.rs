//! `leasehold compare`: nanoseconds per operation, side by side with the mutex baseline.
//!
//! The command is hidden until it exists.

use clap::Args;

use crate::error::{Error, Result};

#[derive(Args, Debug)]
pub struct Compare {}

pub fn compare(_: &Compare) -> Result<()> {
    Err(Error::Options("compare: not available yet".into()))
}
