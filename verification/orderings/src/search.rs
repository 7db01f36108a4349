//! Which model kills a mutant.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    models::{Bounds, Models, Outcome},
    mutants::Mutant,
    table::Verdict,
};

/// Seconds for the model that has killed before.
pub const RECORDED: u64 = 20;
/// Seconds for each model at two preemptions, and at three.
const TWO: u64 = 5;
const THREE: u64 = 10;

/// A model, and what it costs and reaches when nothing is weakened.
struct Known {
    name: String,
    took: Duration,
    reached: BTreeSet<usize>,
}

pub struct Search<'a> {
    models: &'a Models,
    /// Cheap ones first.
    known: Vec<Known>,
    /// How long a mutant is searched for with three preemptions.
    budget: Duration,
}

impl<'a> Search<'a> {
    /// Runs every model as it is written: it must pass, and tells what it reaches. What `file` says of the same program
    /// stands.
    pub fn begin(models: &'a Models, file: &Path) -> Result<Self, String> {
        let print = models.print()?;
        let mut known = match recall(file, print) {
            Some(known) => known,
            None => {
                let known = Self::measure(models)?;
                fs::write(file, noted(&known, print)).map_err(|error| error.to_string())?;
                known
            }
        };
        if known.iter().all(|model| model.reached.is_empty()) {
            return Err("no model reaches any ordering".to_owned());
        }
        known.sort_by_key(|model| model.took);
        let budget = std::env::var("ORDERINGS_BUDGET").ok().and_then(|seconds| seconds.parse().ok());
        Ok(Search { models, known, budget: Duration::from_secs(budget.unwrap_or(60)) })
    }

    fn measure(models: &Models) -> Result<Vec<Known>, String> {
        let names = models.names()?;
        parallel(&names, |name| {
            let start = Instant::now();
            match models.run(name, None, Bounds { preemptions: 2, seconds: 2 })? {
                Outcome::Passed { reached } => {
                    Ok(Known { name: name.clone(), took: start.elapsed(), reached })
                }
                outcome => Err(format!("{name} with nothing weakened: {outcome:?}")),
            }
        })
    }

    /// Tries the recorded killer first, then every model that reaches the site.
    pub fn judge(&self, mutant: &Mutant, recorded: Option<&Verdict>) -> Result<Verdict, String> {
        let name = mutant.cells.join(", ");
        let start = Instant::now();
        let kill = |model: &str, bounds: Bounds| match self.models.run(model, Some(mutant), bounds)? {
            Outcome::Failed(why) => {
                println!(
                    "killed   {:6.1} s  {name}: {model} p{}: {why}",
                    start.elapsed().as_secs_f32(),
                    bounds.preemptions
                );
                Ok::<_, String>(Some(Verdict::Killed {
                    model: model.to_owned(),
                    preemptions: bounds.preemptions,
                }))
            }
            Outcome::Passed { .. } => Ok(None),
            Outcome::Stuck => {
                println!("stuck    {name}: {model} p{}", bounds.preemptions);
                Ok(None)
            }
        };
        if let Some(Verdict::Killed { model, preemptions }) = recorded
            && self.known.iter().any(|known| known.name == *model)
            && let Some(killed) = kill(model, Bounds { preemptions: *preemptions, seconds: RECORDED })?
        {
            return Ok(killed);
        }
        let reaching: Vec<&Known> =
            self.known.iter().filter(|model| model.reached.contains(&mutant.site)).collect();
        if reaching.is_empty() {
            println!("never run           {name}");
            return Ok(Verdict::NeverRun);
        }
        for model in &reaching {
            if let Some(killed) = kill(&model.name, Bounds { preemptions: 2, seconds: TWO })? {
                return Ok(killed);
            }
        }
        let (third, mut tried) = (Instant::now(), 0);
        for model in &reaching {
            if third.elapsed() > self.budget {
                break;
            }
            tried += 1;
            if let Some(killed) = kill(&model.name, Bounds { preemptions: 3, seconds: THREE })? {
                return Ok(killed);
            }
        }
        println!(
            "survives {:6.1} s  {name}: {} models reach it, {tried} of them also with three preemptions",
            start.elapsed().as_secs_f32(),
            reaching.len(),
        );
        Ok(Verdict::Survived)
    }
}

/// What is known of the models, as text: the program, then a line for each.
fn noted(known: &[Known], print: u64) -> String {
    let mut text = format!("{print}\n");
    for Known { name, took, reached } in known {
        let reached: Vec<String> = reached.iter().map(usize::to_string).collect();
        text.push_str(&format!("{name} {} {}\n", took.as_micros(), reached.join(",")));
    }
    text
}

/// The reverse; `None` if it is not there, or of another program.
fn recall(file: &Path, print: u64) -> Option<Vec<Known>> {
    let text = fs::read_to_string(file).ok()?;
    let mut lines = text.lines();
    if lines.next()?.parse() != Ok(print) {
        return None;
    }
    let line = |line: &str| {
        let mut parts = line.split(' ');
        let (name, took) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
        let reached = parts.next()?.split(',').filter(|number| !number.is_empty());
        let reached = reached.map(|number| number.parse().ok()).collect::<Option<_>>()?;
        Some(Known { name, took: Duration::from_micros(took), reached })
    };
    lines.map(line).collect()
}

/// Applies `f` to all items, on as many threads as `ORDERINGS_JOBS` says, or as there are processors.
pub fn parallel<T: Sync, O: Send>(
    items: &[T],
    f: impl Fn(&T) -> Result<O, String> + Sync,
) -> Result<Vec<O>, String> {
    let jobs = std::env::var("ORDERINGS_JOBS").ok().and_then(|jobs| jobs.parse().ok());
    let jobs = jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<O, String>>>> = Mutex::new(items.iter().map(|_| None).collect());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some((index, item)) =
                    Some(next.fetch_add(1, Relaxed)).and_then(|i| Some((i, items.get(i)?)))
                {
                    let result = f(item);
                    results.lock().expect("no panic while held")[index] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().expect("no panic while held");
    results.into_iter().map(|result| result.expect("every item was taken")).collect()
}
