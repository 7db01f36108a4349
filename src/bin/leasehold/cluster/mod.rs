//! `leasehold cluster`: what a fleet's server knows of members, claims and holds.

mod render;

use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::cluster::{Engine, Overview, RedisEngine, Reply, Request};

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
    let overview = ask(options)?;
    let text = match options.format {
        Format::Table => render::table(&overview, options.part),
        Format::Json => render::json(&overview, options.part),
    };
    Output::Stdout.write(&text)
}

/// Each server in turn.
fn ask(options: &Cluster) -> Result<Overview> {
    let engine = RedisEngine::new(&options.fleet, &options.servers);
    let mut engine = engine.map_err(|error| Error::Options(error.to_string()))?.without_news();
    let mut last = None;
    for _ in &options.servers {
        match engine.call(&Request::Overview, Duration::from_secs(options.patience)) {
            Ok(Reply::Overview(overview)) => return Ok(overview),
            Ok(_) => last = Some("it answers something else".to_owned()),
            Err(error) => last = Some(error.to_string()),
        }
    }
    let last = last.unwrap_or_else(|| "no address was given".to_owned());
    Err(Error::Options(format!("--server: expected a Redis 7 or Valkey server that answers: {last}")))
}
