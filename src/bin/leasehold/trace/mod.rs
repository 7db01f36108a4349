//! Where requests come from: a file, standard input, or the built-in workload.
//!
//! Everything streams: a trace is read once, row by row, whatever the number of strategies that replay it.

mod arrivals;
mod azure;
mod burstgpt;
mod format;
mod lines;
mod reader;
mod workload;

pub use arrivals::Arrivals;
pub use reader::Reader;
pub use workload::Workload;

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

use crate::error::{Error, Result};

/// What the built-in workload is called where a file could be named.
const BUILT_IN: &str = "built-in";

/// The rows of a file, or of standard input if that is `-`; also its name for people, and how long it is if that is known.
pub fn input(path: &Path) -> Result<(String, Box<dyn BufRead>, Option<u64>)> {
    if path.as_os_str() == "-" {
        return Ok(("<stdin>".into(), Box::new(BufReader::new(io::stdin())), None));
    }
    let name = path.display().to_string();
    let file = File::open(path).map_err(|cause| Error::file(&name, "cannot be read", cause))?;
    let size = file.metadata().ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.len());
    Ok((name, Box::new(BufReader::with_capacity(1 << 16, file)), size))
}

/// The trace in a file or from standard input, or the built-in workload.
pub fn open(path: &Path, seed: u64, speed: f64) -> Result<Trace> {
    if path.as_os_str() == BUILT_IN {
        return Ok(Trace::Synthetic(Workload::new(seed)));
    }
    let (name, input, _) = input(path)?;
    let reader = Reader::new(&name, input, speed, false)?;
    Ok(Trace::Rows(Box::new(reader)))
}

/// One request of a trace, at a moment on the trace's own time line, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub at: i128,
    pub context_tokens: u32,
    pub generated_tokens: u32,
}

/// One request as the simulation sees it: time starts at 0 with the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Counts from 0. Names the request's random draws, which are therefore the same for every strategy.
    pub number: u64,
    /// Nanoseconds of virtual time.
    pub at: u64,
    pub context_tokens: u32,
    pub generated_tokens: u32,
}

/// A source of rows in order of time.
pub enum Trace {
    Rows(Box<Reader>),
    Synthetic(Workload),
}

impl Trace {
    pub fn next_row(&mut self) -> Result<Option<Row>> {
        match self {
            Trace::Rows(reader) => reader.next_row(),
            Trace::Synthetic(workload) => Ok(workload.next_row()),
        }
    }

    /// What the report calls the format.
    pub fn format(&self) -> &'static str {
        match self {
            Trace::Rows(reader) => reader.format(),
            Trace::Synthetic(_) => "synthetic",
        }
    }

    /// Rows left out because they could not be used.
    pub fn skipped(&self) -> u64 {
        match self {
            Trace::Rows(reader) => reader.skipped(),
            Trace::Synthetic(_) => 0,
        }
    }

    /// Bytes read so far, for the progress bar.
    pub fn bytes(&self) -> u64 {
        match self {
            Trace::Rows(reader) => reader.bytes(),
            Trace::Synthetic(_) => 0,
        }
    }
}
