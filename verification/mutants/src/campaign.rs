//! Tries many mutants.

use std::{
    fs,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use crate::{
    Fallible, Settings,
    kind::{Kind, PLAIN},
    known::Known,
    ledger::{Entry, Ledger},
    listing::Mutant,
    models,
    plan::{Plan, Way},
    suite::{self, Program, Suite},
    tree::Tree,
    trial::{self, Outcome, Verdict},
};

/// A library with its mutants, and the tests that belong to it.
pub struct Built {
    pub plan: Plan,
    pub tree: Tree,
    pub programs: Vec<Program>,
}

/// Builds for one kind of tests. What `plan` holds already need not be found out again.
pub fn build(settings: &Settings, mutants: &[Mutant], plan: &Plan, kind: &'static Kind) -> Fallible<Built> {
    let Settings { root, work, .. } = settings;
    let started = Instant::now();
    let mut plan = plan.clone();
    // Apart, so that a run which finds the same again has nothing to build.
    let draft = Tree::copy(root, work, &format!("draft.{}", kind.name), kind)?;
    let rounds = plan.settle(&draft, mutants)?;
    let tree = Tree::copy(root, work, kind.name, kind)?;
    plan.write(&tree, mutants)?;
    let targets = kind.targets();
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    let programs = suite::build(&tree, &targets)?.ok_or("the tests do not compile with the mutants")?;
    println!("{}: built in {} s, {rounds} rounds", kind.name, started.elapsed().as_secs());
    Ok(Built { plan, tree, programs })
}

/// What has become of them so far.
struct Results<'a> {
    settings: &'a Settings,
    mutants: &'a [Mutant],
    ledger: &'a mut Ledger,
    done: Vec<usize>,
}

impl Results<'_> {
    fn add(&mut self, number: usize, verdict: Verdict, started: Instant) -> Fallible<()> {
        self.done.push(number);
        self.ledger.add(Entry {
            key: self.mutants[number].key(),
            outcome: verdict.outcome,
            by: verdict.by,
            seconds: started.elapsed().as_secs_f64(),
            state: self.settings.state,
        })
    }
}

/// Tries the `chosen` mutants; answers those that there was time for.
pub fn run(
    settings: &Settings,
    mutants: &[Mutant],
    chosen: &[usize],
    ledger: &mut Ledger,
    known: &Known,
) -> Fallible<Vec<usize>> {
    let Built { plan, tree, programs } =
        build(settings, mutants, &Plan::new(&settings.root, mutants)?.restrict(&settings.built), &PLAIN)?;
    let started = Instant::now();
    let suite = Suite::recall(programs, &tree, mutants.len(), settings)?;
    println!("{} tests, measured in {} s", suite.tests.len(), started.elapsed().as_secs());
    let mut results = Results { settings, mutants, ledger, done: Vec::new() };
    let (mut switched, mut alone) = (Vec::new(), Vec::new());
    for &number in chosen {
        match &plan.ways[number] {
            Way::Switched => switched.push(number),
            Way::Alone(_) => alone.push(number),
            Way::Unviable(why) => {
                let verdict = Verdict { outcome: Outcome::Unviable, by: why.clone() };
                results.add(number, verdict, Instant::now())?;
            }
        }
    }
    settings.start_the_clock();
    try_switched(&switched, &suite, &tree, &mut results)?;
    try_alone(&alone, &suite, &mut results)?;
    try_models(&plan, known, &mut results)?;
    let mut done = results.done;
    done.sort_unstable();
    done.dedup();
    Ok(done)
}

fn try_switched(numbers: &[usize], suite: &Suite, tree: &Tree, results: &mut Results<'_>) -> Fallible<()> {
    let (settings, mutants) = (results.settings, results.mutants);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(results);
    let work = |job: usize| -> Fallible<()> {
        let log = settings.work.join(format!("output.{job}"));
        while !settings.is_late() {
            let Some(&number) = numbers.get(next.fetch_add(1, Relaxed)) else { break };
            let started = Instant::now();
            let verdict = trial::switched(number, &mutants[number], suite, tree, &log)?;
            results.lock().expect("no panic while held").add(number, verdict, started)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let work = &work;
        let start = |job| scope.spawn(move || work(job).map_err(|error| error.to_string()));
        let workers: Vec<_> = (0..settings.jobs).map(start).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    Ok(())
}

/// Those that need builds of their own, one after the other.
fn try_alone(numbers: &[usize], suite: &Suite, results: &mut Results<'_>) -> Fallible<()> {
    let Settings { root, work, .. } = results.settings;
    let tree = trial::tree_for_one(root, work)?;
    for &number in numbers {
        if results.settings.is_late() {
            break;
        }
        let started = Instant::now();
        let mutant = &results.mutants[number];
        let text = fs::read_to_string(root.join(&mutant.file))?;
        let verdict = trial::alone(mutant, &text, suite, &tree, &work.join("output.alone"))?;
        results.add(number, verdict, started)?;
    }
    Ok(())
}

/// Those that have survived and of which a model is said to catch them.
fn try_models(plan: &Plan, known: &Known, results: &mut Results<'_>) -> Fallible<()> {
    let (settings, mutants) = (results.settings, results.mutants);
    let survived =
        |number: &usize| results.ledger.entries[&mutants[*number].key()].outcome == Outcome::Survived;
    let missed: Vec<usize> = results
        .done
        .iter()
        .copied()
        .filter(|number| survived(number) && known.models.contains_key(number))
        .collect();
    models::confirm(settings, mutants, plan, &missed, known, |number, verdict, started| {
        results.add(number, verdict, started)
    })
}
