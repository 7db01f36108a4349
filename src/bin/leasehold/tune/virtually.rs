//! Every setting in virtual time.

use serde::{Serialize, Serializer};

use super::{Setting, workload::Workload};
use crate::{choice::Choice, error::Result, subjects};

/// What became of the workload with one setting.
#[derive(Serialize)]
pub struct Virtual {
    #[serde(serialize_with = "name")]
    pub setting: Setting,
    pub completed: u64,
    /// Failed after all retries, rejected, or given up waiting.
    pub lost: u64,
    pub waiting_p99_ns: u64,
    pub rank_error: f64,
}

fn name<S: Serializer>(setting: &Setting, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(&setting.name())
}

/// As far as the library goes by itself.
const SHARDS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Every kind: how many shards are compared, from one to all, and for how long a thread stays; and those that compare none.
const STRATEGIES: [&str; 12] = [
    "sticky",
    "sticky:1",
    "sticky:4",
    "sticky:all",
    "sticky:2:16",
    "best-of:1",
    "best-of:2",
    "best-of:4",
    "adaptive",
    "strict",
    "round-robin",
    "weighted",
];

/// All of them. A fleet that is smaller than the shards would leave some empty; with one shard all strategies are one.
pub fn grid(workload: &Workload) -> Result<Vec<Virtual>> {
    let mut results = Vec::new();
    for shards in SHARDS.into_iter().filter(|&shards| shards as usize <= workload.fleet.resources.len()) {
        for name in STRATEGIES.iter().take(if shards == 1 { 1 } else { STRATEGIES.len() }) {
            let choice: Choice = name.parse().expect("a unit test parses them");
            results.push(run(workload, Setting { choice, shards })?);
        }
    }
    Ok(results)
}

fn run(workload: &Workload, setting: Setting) -> Result<Virtual> {
    let seed = workload.scenario.seed;
    let subject = subjects::build(&setting.choice, &workload.fleet, setting.shards, seed)?;
    let mut run = subject.start(&workload.fleet, workload.rules);
    workload.requests.iter().for_each(|request| run.arrive(*request));
    let statistics = run.finish();
    Ok(Virtual {
        setting,
        completed: statistics.completed,
        lost: statistics.failed + statistics.rejected + statistics.expired,
        waiting_p99_ns: statistics.waiting.quantile(0.99),
        rank_error: (statistics.rank_error.mean() * 1e4).round() / 1e4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_have_names() {
        for name in STRATEGIES {
            assert_eq!(name.parse::<Choice>().unwrap().to_string(), name);
        }
    }
}
