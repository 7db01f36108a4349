//! What came of it, for people.

use std::{collections::BTreeMap, fmt::Write};

use crate::{
    Fallible,
    known::{KINDS, Known},
    ledger::Ledger,
    listing::Mutant,
    trial::Outcome,
};

/// What of the viable has to be caught, in hundredths.
const LEAST: usize = 95;

/// Prints what these mutants came to; answers whether each survivor has a reason and enough were caught, and how many could be tried.
pub fn told(mutants: &[Mutant], done: &[usize], ledger: &Ledger, known: &Known) -> (bool, usize) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut fine = true;
    for &number in done {
        let mutant = &mutants[number];
        let entry = &ledger.entries[&mutant.key()];
        let listed = known.kinds.contains_key(&number);
        let name = match entry.outcome {
            Outcome::Caught => "caught",
            Outcome::TimedOut => "timed out",
            Outcome::Unviable => "unviable",
            Outcome::Survived if listed => "survived, with a reason",
            Outcome::Survived => "survived",
        };
        *counts.entry(name).or_default() += 1;
        match entry.outcome {
            Outcome::Survived if !listed => {
                fine = false;
                println!("SURVIVED  {mutant}  ({})", entry.by);
            }
            Outcome::Survived => {}
            _ if listed => {
                println!("listed as a survivor, but {name} now by {}: {mutant}", entry.by);
            }
            _ => {}
        }
    }
    let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    println!("{}", counts.join(", "));
    let count = |wanted: &[Outcome]| {
        done.iter()
            .filter(|&&number| wanted.contains(&ledger.entries[&mutants[number].key()].outcome))
            .count()
    };
    let caught = count(&[Outcome::Caught, Outcome::TimedOut]);
    let viable = caught + count(&[Outcome::Survived]);
    println!("caught {caught} of {viable} viable, at least {LEAST} of 100 are asked for");
    if viable == 0 {
        println!("no viable mutant was tried");
    }
    (fine && viable > 0 && 100 * caught >= LEAST * viable, viable)
}

/// The survivors without a reason, as keys.
pub fn left(mutants: &[Mutant], ledger: &Ledger, known: &Known) -> String {
    let mut text = String::new();
    for (number, mutant) in mutants.iter().enumerate() {
        let key = mutant.key();
        match ledger.entries.get(&key) {
            None => writeln!(text, "NOT TRIED {key}").expect("to memory"),
            Some(entry) if entry.outcome == Outcome::Survived && !known.kinds.contains_key(&number) => {
                writeln!(text, "{}: {key}  ({})", mutant.line, entry.by).expect("to memory");
            }
            Some(_) => {}
        }
    }
    text
}

/// The table by module. The shares are of those that were tried, and how many were not is beside them.
pub fn table(mutants: &[Mutant], ledger: &Ledger, known: &Known) -> Fallible<String> {
    #[derive(Default)]
    struct Row {
        unviable: usize,
        caught: usize,
        timed_out: usize,
        survived: BTreeMap<String, usize>,
        untried: usize,
    }
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    for (number, mutant) in mutants.iter().enumerate() {
        let key = mutant.key();
        let outcome = ledger.entries.get(&key).map(|entry| entry.outcome);
        for module in [mutant.module(), "~"] {
            let row = rows.entry(module).or_default();
            match outcome {
                None => row.untried += 1,
                Some(Outcome::Caught) => row.caught += 1,
                Some(Outcome::TimedOut) => row.timed_out += 1,
                Some(Outcome::Unviable) => row.unviable += 1,
                Some(Outcome::Survived) => {
                    let kind = known.kinds.get(&number).map_or("unexplained", String::as_str);
                    *row.survived.entry(kind.to_owned()).or_default() += 1;
                }
            }
        }
    }
    let mut text = String::from(
        "| module | mutants | not tried | unviable | viable | caught | by time-out | survived | caught of viable |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for (module, row) in rows {
        let survived: usize = row.survived.values().sum();
        let caught = row.caught + row.timed_out;
        let viable = caught + survived;
        let reasons: Vec<String> = KINDS
            .iter()
            .copied()
            .chain(["unexplained"])
            .filter_map(|kind| Some(format!("{} {kind}", row.survived.get(kind)?)))
            .collect();
        let reasons = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
        let module = if module == "~" { "all".to_owned() } else { format!("`{module}`") };
        let share = if viable == 0 {
            "–".to_owned()
        } else {
            format!("{:.1} %", 100.0 * caught as f64 / viable as f64)
        };
        writeln!(
            text,
            "| {module} | {} | {} | {} | {viable} | {caught} | {} | {survived}{reasons} | {share} |",
            viable + row.unviable + row.untried,
            row.untried,
            row.unviable,
            row.timed_out,
        )?;
    }
    Ok(text)
}
