//! `leasehold tune`: tries settings on a workload, in virtual time and live, and recommends a builder's.
//!
//! 1. [`workload`]: a scenario or a trace, and a fleet, as requests for the simulation and as a scenario for real threads.
//! 2. [`virtually`]: every strategy with every number of shards, in the simulation of `replay`: what becomes of the requests,
//!    and in which order resources are lent. The same on every machine.
//! 3. [`live`]: those that serve the workload best, under real threads: what they cost on this machine; and each of them with either
//!    fairness on the workload itself.
//! 4. [`advice`]: which one, why, and as which code.

mod advice;
mod live;
mod virtually;
mod workload;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use serde::Serialize;

use self::{
    advice::Advice,
    live::{Live, Played, Sound},
    virtually::Virtual,
    workload::Workload,
};
use crate::{
    choice::Choice,
    error::Result,
    load::{INTERRUPTED, Interrupt, scenario},
    output::{Format, Output},
};

#[derive(Args, Debug)]
pub struct Tune {
    /// The workload: a scenario of `load`, by name or file.
    #[arg(value_name = "SCENARIO", default_value = "gateway", conflicts_with = "trace")]
    pub scenario: String,

    /// The workload: a trace as for `replay`, instead of a scenario.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// The fleet (TOML) [default: the scenario's own; of a trace the one that `leasehold fleet` prints].
    #[arg(long, value_name = "FILE")]
    pub fleet: Option<PathBuf>,

    /// Trace seconds per simulated second.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "trace")]
    pub speed: f64,

    /// Requests that are simulated with each setting.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub requests: u32,

    /// Length of a live round.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    pub milliseconds: u64,

    /// Live rounds of each setting, in turns.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,

    /// Seed of everything that is drawn [default: the scenario's own, or 1 for a trace].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Form of the result.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Write the result to FILE instead of standard output (`-`): whole or not at all.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// A strategy with a number of shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub choice: Choice,
    pub shards: u32,
}

impl Setting {
    /// As `load` calls it.
    pub fn name(&self) -> String {
        format!("{}@{}", self.choice, self.shards)
    }
}

#[derive(Serialize)]
struct TuneResult<'a> {
    schema: u32,
    kind: &'static str,
    workload: &'a str,
    seed: u64,
    requests: usize,
    simulated: &'a [Virtual],
    live: &'a [Live],
    played: &'a [Played],
    /// What is different here from the workload.
    limits: &'a [String],
    /// Settings that broke a rule, and which. There is nothing of them in `live` and `played`, and the exit code is 1.
    broken: &'a [String],
    /// `None`: of all settings some rule was broken.
    advice: Option<&'a Advice>,
}

/// The exit code if a setting broke a rule.
const BROKEN: u8 = 1;

pub fn tune(options: &Tune) -> Result<ExitCode> {
    let workload = Workload::open(options)?;
    let inputs = [
        ("--trace", options.trace.as_deref()),
        ("--fleet", options.fleet.as_deref()),
        ("the scenario", options.trace.is_none().then(|| scenario::file(&options.scenario)).flatten()),
        ("the scenario's trace", workload.scenario.trace.as_deref()),
    ];
    let output = Output::open(options.out.as_deref(), &inputs)?;
    let simulated = virtually::grid(&workload)?;
    let finalists = advice::finalists(&simulated, workload.requests.len());
    // Until here Ctrl-C ends the program; from here on it ends what is played.
    let interrupt = Interrupt::listen()?;
    let bare = live::measure(&workload, &finalists, options, &interrupt)?;
    let Sound { runs: live, broken, too_short: bare_too_short } = bare;
    let sound = |finalist: &Setting| live.iter().any(|live| live.setting == finalist.name());
    let finalists: Vec<Setting> = finalists.into_iter().filter(sound).collect();
    let played = match finalists.is_empty() {
        true => Sound::default(),
        false => live::play(&workload, &finalists, options, &interrupt)?,
    };
    let broken: Vec<(String, String)> = broken.into_iter().chain(played.broken).collect();
    let live: Vec<Live> = live
        .into_iter()
        .filter(|live| played.runs.iter().any(|played| played.setting == live.setting))
        .collect();
    let mut limits = workload.limits();
    for (short, what) in [(bare_too_short, "bare speed"), (played.too_short, "the workload")] {
        limits.extend(short.map(|length| {
            format!(
                "live: rounds of {} s are too short to judge {what}, for nobody was answered in some; what is simulated decides instead, and a \
                 greater --milliseconds makes them longer",
                length.as_secs_f64()
            )
        }));
    }
    // Either all can be compared or none.
    let played = if played.too_short.is_some() { Vec::new() } else { played.runs };
    let broken: Vec<String> =
        broken.into_iter().map(|(setting, fault)| format!("{setting}: {fault}")).collect();
    if interrupt.is_raised() {
        // Of half of what should be measured nothing follows.
        let _ = writeln!(
            io::stderr(),
            "leasehold: tune: interrupted while settings were played; nothing is recommended"
        );
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let standings = advice::choose(&simulated, &live, &played);
    let advice =
        (!standings.is_empty()).then(|| Advice::new(&workload, &simulated, &live, &played, &standings));
    let text = match options.format {
        Format::Table => {
            advice::render(&workload, &simulated, &live, &played, &limits, &broken, advice.as_ref())
        }
        Format::Json => {
            let result = TuneResult {
                schema: 1,
                kind: "tune",
                workload: &workload.name,
                seed: workload.scenario.seed,
                requests: workload.requests.len(),
                simulated: &simulated,
                live: &live,
                played: &played,
                limits: &limits,
                broken: &broken,
                advice: advice.as_ref(),
            };
            serde_json::to_string_pretty(&result).expect("plain values always serialise") + "\n"
        }
    };
    output.write(&text)?;
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) })
}
