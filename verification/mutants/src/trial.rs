//! What happens to one mutant.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    Fallible, kind,
    listing::Mutant,
    plan,
    suite::{self, Program, Suite, Test},
    tree::Tree,
};

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Caught,
    TimedOut,
    Survived,
    Unviable,
}

/// How it ended, and by whom or why.
pub struct Verdict {
    pub outcome: Outcome,
    pub by: String,
}

/// Memory that no test needs.
const MEMORY_KIB: u64 = 8 << 20;

/// Beyond four times what is usual: what starting takes on a busy machine.
const GRACE: Duration = Duration::from_secs(5);

/// Tests that take less than this run together; then the same with each further bound.
const TIERS: [u64; 5] = [4, 30, 250, 2_000, u64::MAX];

/// Runs the tests that pass this mutant by, cheap ones first, until one fails.
pub fn switched(number: usize, mutant: &Mutant, suite: &Suite, tree: &Tree, log: &Path) -> Fallible<Verdict> {
    let module = format!("{}::", mutant.module());
    let near = |test: &Test| suite.programs[test.program].name == "lib" && test.name.starts_with(&module);
    let mut tests: Vec<&Test> =
        suite.tests.iter().filter(|test| test.passes.binary_search(&number).is_ok()).collect();
    tests.sort_by_key(|test| test.time);
    let mut batches: Vec<Vec<&Test>> = Vec::new();
    let mut least = 0;
    for most in TIERS {
        let tier = |test: &&&Test| (least..most).contains(&(test.time.as_millis() as u64));
        let tier: Vec<&Test> = tests.iter().filter(tier).copied().collect();
        batches.push(tier.iter().filter(|test| near(test)).copied().collect());
        for program in 0..suite.programs.len() {
            batches
                .push(tier.iter().filter(|test| test.program == program && !near(test)).copied().collect());
        }
        least = most;
    }
    for batch in batches.iter().filter(|batch| !batch.is_empty()) {
        let program = &suite.programs[batch[0].program];
        let names: Vec<&str> = batch.iter().map(|test| test.name.as_str()).collect();
        let usual: Duration = batch.iter().map(|test| test.time).sum();
        if let Some(verdict) = run(program, &names, usual, Some(number), tree, log)? {
            return Ok(verdict);
        }
    }
    Ok(Verdict { outcome: Outcome::Survived, by: format!("{} tests", tests.len()) })
}

/// What a model may take, usually.
const MODEL: Duration = Duration::from_secs(5);

/// Runs one model.
pub fn model(number: usize, program: &Program, test: &str, tree: &Tree, log: &Path) -> Fallible<Verdict> {
    let verdict = run(program, &[test], MODEL, Some(number), tree, log)?;
    let survived = || Verdict { outcome: Outcome::Survived, by: format!("{}: {test}", program.name) };
    Ok(verdict.unwrap_or_else(survived))
}

/// Builds the mutant in `tree`, whose other files are the library's own, and runs all tests.
pub fn alone(mutant: &Mutant, text: &str, suite: &Suite, tree: &Tree, log: &Path) -> Fallible<Verdict> {
    let mutated = format!("{}{}{}", &text[..mutant.span.start], mutant.replacement, &text[mutant.span.end..]);
    tree.write(&mutant.file, &mutated)?;
    let verdict = alone_as_written(mutant, suite, tree, log);
    tree.write(&mutant.file, text)?;
    verdict
}

fn alone_as_written(mutant: &Mutant, suite: &Suite, tree: &Tree, log: &Path) -> Fallible<Verdict> {
    let (compiles, messages) = tree.cargo(&["check", "--lib", "--profile", "test"])?;
    if !compiles {
        let why = messages.iter().find_map(|message| message.error()).map(|error| error.message.clone());
        return Ok(Verdict { outcome: Outcome::Unviable, by: why.unwrap_or_default() });
    }
    let mut count = 0;
    // The library's own tests first: the others take longer to build.
    for targets in [&["--lib"][..], &["--tests"]] {
        let Some(programs) = suite::build(tree, targets)? else {
            return Ok(Verdict { outcome: Outcome::Unviable, by: "tests do not compile".into() });
        };
        for program in programs.iter().filter(|program| (program.name == "lib") == (targets == ["--lib"])) {
            let tests: Vec<&Test> =
                suite.tests.iter().filter(|test| suite.programs[test.program].name == program.name).collect();
            let module = format!("{}::", mutant.module());
            for near in [true, false] {
                let names: Vec<&str> = tests
                    .iter()
                    .filter(|test| test.name.starts_with(&module) == near)
                    .map(|test| test.name.as_str())
                    .collect();
                if names.is_empty() {
                    continue;
                }
                count += names.len();
                let usual = tests.iter().map(|test| test.time).sum();
                if let Some(verdict) = run(program, &names, usual, None, tree, log)? {
                    return Ok(verdict);
                }
            }
        }
    }
    Ok(Verdict { outcome: Outcome::Survived, by: format!("{count} tests") })
}

/// Runs these tests of a program; answers a verdict if that was the mutant's end.
fn run(
    program: &Program,
    names: &[&str],
    usual: Duration,
    number: Option<usize>,
    tree: &Tree,
    log: &Path,
) -> Fallible<Option<Verdict>> {
    let limit = 4 * usual + GRACE;
    let test = suite::command(&program.path, tree);
    // A spinning mutant is ended by the processor time that it takes, which others on the machine do not make longer.
    let script = format!("ulimit -t {} -v {MEMORY_KIB} -c 0; exec \"$@\"", (8 * usual).as_secs() + 2);
    let mut command = Command::new("bash");
    command
        .args(["-c", &script, "-"])
        .arg(test.get_program())
        .args(program.flags())
        .arg("--exact")
        .args(names);
    command.current_dir(&tree.root).stdin(Stdio::null());
    for (name, value) in test.get_envs() {
        command.env(name, value.expect("only set"));
    }
    // 0 is nobody's number.
    command.env("LEASEHOLD_MUTANT", number.map_or(0, |number| number + 1).to_string());
    command.stdout(File::create(log)?).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let status = wait(&mut child, limit)?;
    let name = &program.name;
    Ok(match status {
        Some(status) if status.success() => None,
        Some(status) if !over(&status) => {
            let output = String::from_utf8_lossy(&fs::read(log)?).into_owned();
            let failed = output.lines().find_map(|line| {
                line.strip_prefix("test ")?.split_once(" ... FAILED").map(|(test, _)| test.to_owned())
            });
            let by = failed.map_or(format!("{name}: {status}"), |test| format!("{name}: {test}"));
            Some(Verdict { outcome: Outcome::Caught, by })
        }
        _ => Some(Verdict { outcome: Outcome::TimedOut, by: format!("{name}: {}", names.join(" ")) }),
    })
}

/// Whether the limit of processor time ended it.
fn over(status: &ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    const SIGKILL: i32 = 9;
    const SIGXCPU: i32 = 24;
    matches!(status.signal(), Some(SIGXCPU | SIGKILL))
}

/// So many times the limit for one that runs all the time: on a busy machine it has hardly run.
const LATEST: u32 = 20;

/// Whether a thread of the process is ready to run: it may be slow, but it does not wait for what never comes.
fn runs(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads.into_iter().any(|thread| {
        let status = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        status.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
    })
}

/// Waits for the end, at most so long; then there is one by force, and no answer. One that runs has longer: its processor time
/// is limited apart.
fn wait(child: &mut Child, limit: Duration) -> Fallible<Option<ExitStatus>> {
    let started = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() > limit && !(runs(child.id()) && started.elapsed() < limit * LATEST) {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 3 / 2).min(Duration::from_millis(20));
    }
}

/// The tree for builds of one mutant: the library as it is.
pub fn tree_for_one(root: &Path, work: &Path) -> Fallible<Tree> {
    let tree = Tree::copy(root, work, "one", &kind::PLAIN)?;
    for file in plan::library(root)? {
        tree.write(&file, &fs::read_to_string(root.join(&file))?)?;
    }
    Ok(tree)
}
