//! `leasehold replay`: one pass over the trace, every strategy at once.
//!
//! Each strategy has its own scheduler, clock and backends; they share only the rows as these stream by. So a trace
//! from a pipe can be replayed by many, and the memory needed does not depend on its length.

use std::{fs::File, io::Read, path::Path};

use crate::{
    cli,
    error::{Error, Result},
    fleet::Fleet,
    output::Output,
    progress::Progress,
    report::{FleetSummary, Report, SCHEMA, Settings, Subject, Trace as TraceSummary},
    simulate::Rules,
    subjects,
    trace::{self, Arrivals, Reader, Trace, Workload},
};

pub fn replay(options: &cli::Replay) -> Result<()> {
    let inputs = [("--trace", options.trace.as_deref()), ("--fleet", options.fleet.as_deref())];
    let output = Output::open(options.out.as_deref(), &inputs)?;
    let fleet = open_fleet(options.fleet.as_deref())?;
    let subjects = options
        .choices()
        .iter()
        .map(|choice| subjects::build(choice, &fleet, options.shards, options.seed))
        .collect::<Result<Vec<_>>>()?;
    let Source { name, trace, size } = open_trace(options)?;

    let rules = Rules::plain(options.seed, options.max_retries, options.max_queue as usize);
    let mut runs: Vec<_> = subjects.iter().map(|subject| subject.start(&fleet, rules)).collect();
    let mut arrivals = Arrivals::new(trace, options.speed, options.limit);
    {
        let progress = Progress::new(size);
        while let Some(request) = arrivals.next_request()? {
            runs.iter_mut().for_each(|run| run.arrive(request));
            progress.update(&arrivals);
        }
    }
    let reports = runs
        .into_iter()
        .zip(&subjects)
        .map(|(run, subject)| {
            let statistics = run.finish();
            Subject::new(subject.name(), &fleet, &statistics, subject.events())
        })
        .collect();
    let report = Report {
        schema: SCHEMA,
        trace: TraceSummary {
            source: name,
            format: arrivals.trace().format(),
            requests: arrivals.count(),
            skipped_rows: arrivals.trace().skipped(),
        },
        fleet: FleetSummary { source: fleet.name.clone(), resources: fleet.resources.len() as u64 },
        settings: Settings {
            seed: options.seed,
            shards: options.shards,
            speed: options.speed,
            limit: options.limit,
            max_retries: options.max_retries,
            max_queue: options.max_queue,
        },
        subjects: reports,
    };
    output.write(&report.render(options.format))
}

pub fn open_fleet(path: Option<&Path>) -> Result<Fleet> {
    /// No fleet that is allowed is longer.
    const LONGEST: u64 = 64 << 20;
    let Some(path) = path else { return Ok(Fleet::built_in()) };
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LONGEST).read_to_end(&mut bytes))
        .map_err(|cause| Error::file(&name, "cannot be read", cause))?;
    Fleet::from_bytes(&name, bytes)
}

/// An opened trace.
struct Source {
    name: String,
    trace: Trace,
    /// Bytes, if known beforehand.
    size: Option<u64>,
}

fn open_trace(options: &cli::Replay) -> Result<Source> {
    let Some(path) = &options.trace else {
        let trace = Trace::Synthetic(Workload::new(options.seed));
        return Ok(Source { name: "built-in".into(), trace, size: None });
    };
    let (name, input, size) = trace::input(path)?;
    let trace = Trace::Rows(Box::new(Reader::new(&name, input, options.speed, options.skip_bad_rows)?));
    Ok(Source { name, trace, size })
}
