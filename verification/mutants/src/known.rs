//! What is known of mutants that no ordinary test catches, each with its reason: `survivors.toml`.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;

use crate::{
    Fallible,
    kind::{self, Kind},
    listing::Mutant,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    #[serde(default)]
    model: Vec<Model>,
    #[serde(default)]
    reason: Vec<Reason>,
}

/// A model, and the mutants that it catches.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    /// `loom` or `shuttle`.
    checker: String,
    test: String,
    mutants: Vec<String>,
}

/// Why mutants may survive.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    /// One of [`KINDS`].
    kind: String,
    why: String,
    mutants: Vec<String>,
}

/// The kinds of reasons: nothing that anybody could see changes; only what it costs does; it takes what no test can wait for.
pub const KINDS: [&str; 3] = ["equivalent", "cost", "remote"];

/// What is listed, by the mutant's number.
pub struct Known {
    /// The kind of reason why it may survive.
    pub kinds: BTreeMap<usize, String>,
    /// The model that catches it: the checker and the test.
    pub models: BTreeMap<usize, (&'static Kind, String)>,
}

impl Known {
    /// Fails if an entry is stale: each must be about a mutant, and no mutant in two.
    pub fn read(path: &Path, mutants: &[Mutant]) -> Fallible<Known> {
        let listed: Listed = toml::from_str(&fs::read_to_string(path)?)?;
        let numbers: BTreeMap<String, usize> =
            mutants.iter().enumerate().map(|(number, mutant)| (mutant.key(), number)).collect();
        let mut known = Known { kinds: BTreeMap::new(), models: BTreeMap::new() };
        let mut wrong = String::new();
        let mut each = |keys: Vec<String>, put: &mut dyn FnMut(&mut Known, usize)| {
            for key in keys {
                match numbers.get(&key) {
                    None => wrong += &format!("\n    stale, no such mutant: {key}"),
                    Some(number) if known.kinds.contains_key(number) || known.models.contains_key(number) => {
                        wrong += &format!("\n    listed twice: {key}");
                    }
                    Some(&number) => put(&mut known, number),
                }
            }
        };
        for Model { checker, test, mutants } in listed.model {
            let kind = kind::named(&checker).ok_or(format!("no such checker: {checker}"))?;
            if mutants.is_empty() {
                return Err(format!("a model of no mutant: {checker} {test}").into());
            }
            each(mutants, &mut |known, number| _ = known.models.insert(number, (kind, test.clone())));
        }
        for Reason { kind, why, mutants } in listed.reason {
            if !KINDS.contains(&kind.as_str()) || why.trim().is_empty() {
                return Err(format!("no such kind of reason, or no reason: {kind} {why:?}").into());
            }
            if mutants.is_empty() {
                return Err(format!("a reason of no mutant: {why:?}").into());
            }
            each(mutants, &mut |known, number| _ = known.kinds.insert(number, kind.clone()));
        }
        if wrong.is_empty() { Ok(known) } else { Err(format!("{}:{wrong}", path.display()).into()) }
    }
}
