//! Mutants that no ordinary test notices: most of these need two threads at the wrong moment, which is what the models are
//! for. `survivors.toml` names the model that catches each.

use std::{collections::BTreeMap, fmt::Write, time::Instant};

use crate::{
    Fallible, Settings,
    campaign::{Built, build},
    kind::{LOOM, SHUTTLE},
    known::Known,
    listing::Mutant,
    plan::{Plan, Way},
    suite::Suite,
    trial::{self, Outcome, Verdict},
};

/// Runs for each of these mutants the model that is said to catch it.
pub fn confirm(
    settings: &Settings,
    mutants: &[Mutant],
    plan: &Plan,
    missed: &[usize],
    known: &Known,
    mut add: impl FnMut(usize, Verdict, Instant) -> Fallible<()>,
) -> Fallible<()> {
    for kind in [&SHUTTLE, &LOOM] {
        let of = |number: &&usize| known.models[*number].0.name == kind.name;
        let missed: Vec<usize> = missed.iter().filter(of).copied().collect();
        if missed.is_empty() {
            continue;
        }
        let Built { tree, programs, .. } = build(settings, mutants, plan, kind)?;
        for number in missed {
            let started = Instant::now();
            let test = &known.models[&number].1;
            let log = settings.work.join("output.model");
            add(number, trial::model(number, &programs[0], test, &tree, &log)?, started)?;
        }
    }
    Ok(())
}

/// Looks for models that catch these mutants; answers what to write into `survivors.toml`.
pub fn search(settings: &Settings, mutants: &[Mutant], mut open: Vec<usize>) -> Fallible<String> {
    let plan = Plan::new(&settings.root, mutants)?.restrict(&settings.built);
    let mut found: BTreeMap<(&str, String), Vec<usize>> = BTreeMap::new();
    for kind in [&SHUTTLE, &LOOM] {
        let Built { plan, tree, programs } = build(settings, mutants, &plan, kind)?;
        let suite = Suite::recall(programs, &tree, mutants.len(), settings)?;
        settings.start_the_clock();
        let log = settings.work.join("output.model");
        let mut left = Vec::new();
        for number in open {
            if settings.is_late() || plan.ways[number] != Way::Switched {
                left.push(number);
                continue;
            }
            let mut tests: Vec<_> =
                suite.tests.iter().filter(|test| test.passes.binary_search(&number).is_ok()).collect();
            tests.sort_by_key(|test| test.time);
            let mut killer = None;
            for test in tests {
                let program = &suite.programs[test.program];
                let verdict = trial::model(number, program, &test.name, &tree, &log)?;
                if verdict.outcome != Outcome::Survived {
                    killer = Some(test.name.clone());
                    break;
                }
            }
            println!("# {} {killer:?}: {}", kind.name, mutants[number]);
            match killer {
                Some(test) => found.entry((kind.name, test)).or_default().push(number),
                None => left.push(number),
            }
        }
        open = left;
    }
    let mut text = String::new();
    for ((checker, test), numbers) in found {
        writeln!(text, "\n[[model]]\nchecker = \"{checker}\"\ntest = \"{test}\"\nmutants = [")?;
        for number in numbers {
            writeln!(text, "    '''{}''',", mutants[number].key())?;
        }
        writeln!(text, "]")?;
    }
    Ok(text)
}
