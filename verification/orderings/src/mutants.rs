//! Every weakening of every site, and its name in the table.

use std::collections::{BTreeMap, BTreeSet};

use crate::scan::Site;

/// One site, weakened once.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The number of the site in the copy.
    pub site: usize,
    /// An ordering, or "nothing" for a fence that is removed.
    pub becomes: &'static str,
    /// The first cells of its row: where, what, how.
    pub cells: [String; 3],
    /// Why it may survive, if the source says so.
    pub reason: Option<String>,
}

/// All mutants. An error if the source gives a reason for something that is none of them.
pub fn mutants(sites: &[Site]) -> Result<Vec<Mutant>, String> {
    let mut twins: BTreeMap<_, u32> = BTreeMap::new();
    let mut mutants = Vec::new();
    let mut reasons: BTreeMap<_, String> = BTreeMap::new();
    let mut used = BTreeSet::new();
    for (number, site) in sites.iter().enumerate() {
        let twin = twins.entry((&site.file, &site.function, &site.access, site.role)).or_default();
        *twin += 1;
        let twin = if *twin > 1 { format!(" ({twin})") } else { String::new() };
        let stand_in = if site.builds.product { "" } else { ", in models" };
        let ways = site.ways();
        for reason in &site.reasons {
            reasons.insert(
                (&site.file, reason.line),
                format!("{}:{}: {}", site.file, reason.line, reason.weakening),
            );
        }
        for becomes in ways {
            let weakening = match (becomes, site.role) {
                ("nothing", _) => "removal".to_owned(),
                (_, None) => format!("{:?} → {becomes}", site.strength),
                (_, Some(role)) => format!("{role} {:?} → {becomes}", site.strength),
            };
            let reason = site.reasons.iter().find(|reason| reason.weakening == weakening);
            used.extend(reason.map(|reason| (&site.file, reason.line)));
            mutants.push(Mutant {
                site: number,
                becomes,
                cells: [
                    format!("`{}` `{}`{stand_in}", site.file.trim_start_matches("src/"), site.function),
                    format!("`{}`{twin}", site.access.replace('|', "\\|")),
                    weakening,
                ],
                reason: reason.map(|reason| reason.text.clone()),
            });
        }
    }
    reasons.retain(|at, _| !used.contains(at));
    if reasons.is_empty() {
        return Ok(mutants);
    }
    let stray: Vec<String> =
        reasons.into_values().map(|reason| format!("{reason}: no such weakening here")).collect();
    Err(stray.join("\n"))
}
