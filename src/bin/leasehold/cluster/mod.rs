//! `leasehold cluster`: what a fleet's server knows of members, claims and holds; and the end of a hold that nobody else can end.

mod render;

use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::cluster::{Change, Engine, HoldNote, Overview, RedisEngine, Reply, Request};

use crate::{
    error::{Error, Result},
    output::{Format, Output},
};

#[derive(Args, Debug)]
pub struct Cluster {
    /// Name of the fleet.
    #[arg(long, value_name = "NAME")]
    pub fleet: String,

    /// Address of the server; may be repeated, the first that answers is asked.
    #[arg(long = "server", value_name = "URL", default_value = "redis://127.0.0.1/")]
    pub servers: Vec<String>,

    /// What is shown.
    #[arg(value_enum, default_value_t = Part::All)]
    pub part: Part,

    /// Ends the holds on this resource first, everywhere, whoever has set them.
    #[arg(long, value_name = "RESOURCE")]
    pub clear: Option<String>,

    /// Format of the answer.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Seconds that each server is given to answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub patience: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    All,
    Members,
    Claims,
    Holds,
}

pub fn cluster(options: &Cluster) -> Result<()> {
    let mut engine = RedisEngine::new(&options.fleet, &options.servers)
        .map_err(|error| Error::Options(error.to_string()))?
        .without_news();
    let mut overview = look(options, &mut engine)?;
    if let Some(name) = &options.clear {
        clear(options, &mut engine, &overview, name)?;
        overview = look(options, &mut engine)?;
    }
    let text = match options.format {
        Format::Table => render::table(&overview, options.part),
        Format::Json => render::json(&overview, options.part),
    };
    Output::Stdout.write(&text)
}

fn look(options: &Cluster, engine: &mut RedisEngine) -> Result<Overview> {
    match ask(options, engine, &Request::Overview)? {
        Reply::Overview(overview) => Ok(overview),
        _ => Err(no_server("it answers something else")),
    }
}

/// Records the end of every hold on a resource.
fn clear(options: &Cluster, engine: &mut RedisEngine, overview: &Overview, name: &str) -> Result<()> {
    let on_it = overview.holds.iter().filter(|note| &*note.name == name);
    let ends: Vec<HoldNote> = on_it
        .map(|note| HoldNote { change: Change::Cleared, origin: "leasehold cluster".into(), ..note.clone() })
        .collect();
    if ends.is_empty() {
        return Err(Error::Options(format!(
            "--clear: expected a resource with a hold on record, found {name:?}"
        )));
    }
    match ask(options, engine, &Request::Hold(ends))? {
        Reply::Holds(..) => Ok(()),
        _ => Err(no_server("it answers something else")),
    }
}

/// Each server in turn.
fn ask(options: &Cluster, engine: &mut RedisEngine, request: &Request) -> Result<Reply> {
    let mut last = "no address was given".to_owned();
    for _ in &options.servers {
        match engine.call(request, Duration::from_secs(options.patience)) {
            Ok(reply) => return Ok(reply),
            Err(error) => last = error.to_string(),
        }
    }
    Err(no_server(&last))
}

fn no_server(reason: &str) -> Error {
    Error::Options(format!("--server: expected a Redis 7 or Valkey server that answers: {reason}"))
}
