//! The tests: which there are, how long each takes, and which mutants it passes by.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{Fallible, Settings, tree::Tree};

/// A test program.
pub struct Program {
    pub name: String,
    pub path: PathBuf,
}

impl Program {
    /// Its tests that need a server run if there is one.
    pub fn flags(&self) -> &'static [&'static str] {
        static SERVER: LazyLock<bool> = LazyLock::new(|| {
            let program = std::env::var("LEASEHOLD_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
            Command::new(program)
                .arg("--version")
                .stdout(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        });
        if self.name == "cluster_redis" && *SERVER { &["--include-ignored"] } else { &[] }
    }
}

/// One test of a program.
#[derive(Serialize, Deserialize)]
pub struct Test {
    /// Index into [`Suite::programs`].
    pub program: usize,
    pub name: String,
    pub time: Duration,
    /// The numbers of the mutants that this test passes by, ascending.
    pub passes: Vec<usize>,
}

/// What a mutant has to survive.
pub struct Suite {
    pub programs: Vec<Program>,
    pub tests: Vec<Test>,
}

/// Builds the test programs of `tree`; `None` if they do not compile.
pub fn build(tree: &Tree, targets: &[&str]) -> Fallible<Option<Vec<Program>>> {
    let (ok, messages) = tree.cargo(&[&["test", "--no-run"], targets].concat())?;
    if !ok {
        return Ok(None);
    }
    let mut programs: Vec<Program> = messages
        .into_iter()
        .filter(|message| message.profile.as_ref().is_some_and(|profile| profile.test))
        .filter_map(|message| Some((message.target?, message.executable?)))
        .map(|(target, path)| {
            let is_library = target.kind.iter().any(|kind| kind == "lib");
            Program { name: if is_library { "lib".into() } else { target.name }, path }
        })
        .collect();
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Some(programs))
}

impl Suite {
    /// What was measured before in this state of the code with these mutants, or else measures.
    pub fn recall(
        programs: Vec<Program>,
        tree: &Tree,
        mutants: usize,
        settings: &Settings,
    ) -> Fallible<Suite> {
        let file = settings.work.join(format!("suite.{}.json", tree.kind.name));
        let targets = tree.kind.targets();
        let now = (settings.state, &settings.built, &targets);
        if let Ok(text) = fs::read_to_string(&file)
            && let Ok((state, built, of, tests)) =
                serde_json::from_str::<(u64, Vec<bool>, Vec<String>, Vec<Test>)>(&text)
            && (state, &built, &of) == now
        {
            return Ok(Suite { programs, tests });
        }
        let suite = Self::measure(programs, tree, mutants, &settings.work)?;
        fs::write(file, serde_json::to_string(&(now.0, now.1, now.2, &suite.tests))?)?;
        Ok(suite)
    }

    /// Lists all tests and runs each alone, in a build with switches, to see what it takes and where it comes by.
    fn measure(programs: Vec<Program>, tree: &Tree, mutants: usize, work: &Path) -> Fallible<Suite> {
        let records = work.join("records");
        let mut tests = Vec::new();
        for (number, program) in programs.iter().enumerate() {
            let target = &program.name;
            for name in names(&program.path, tree)? {
                let mut time = recorded(program, tree, &name, &records)?;
                // Once more: it may be the machine's fault, that of what runs beside it.
                if time.is_none() {
                    println!("{target}: {name} fails without any mutant: again");
                    time = recorded(program, tree, &name, &records)?;
                }
                let mut time = time.ok_or(format!("{target}: {name} fails without any mutant"))?;
                if time > Duration::from_millis(50) {
                    // Recording costs more than the test itself, where that is dense.
                    let started = Instant::now();
                    command(&program.path, tree)
                        .args(program.flags())
                        .args(["--exact", &name])
                        .stdout(Stdio::null())
                        .status()?;
                    time = started.elapsed();
                }
                let mut passes = vec![false; mutants + 1];
                for record in fs::read_dir(&records)? {
                    for (passed, byte) in passes.iter_mut().zip(fs::read(record?.path())?) {
                        *passed |= byte != 0;
                    }
                }
                // 0 is nobody's number.
                let passes = (0..mutants).filter(|&mutant| passes[mutant + 1]).collect();
                tests.push(Test { program: number, name, time, passes });
            }
        }
        Ok(Suite { programs, tests })
    }
}

/// Runs a test, which leaves in `records` where it comes by; answers what it took, unless it failed.
fn recorded(program: &Program, tree: &Tree, name: &str, records: &Path) -> Fallible<Option<Duration>> {
    let _ = fs::remove_dir_all(records);
    fs::create_dir_all(records)?;
    let started = Instant::now();
    let status = command(&program.path, tree)
        .args(program.flags())
        .args(["--exact", name])
        .env("LEASEHOLD_MUTANT", format!("record:{}", records.join("of").display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(status.success().then(|| started.elapsed()))
}

fn names(program: &Path, tree: &Tree) -> Fallible<Vec<String>> {
    let output = command(program, tree).args(["--list", "--format", "terse"]).output()?;
    let listed = String::from_utf8(output.stdout)?;
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// A test program as cargo would start it.
pub fn command(program: impl AsRef<OsStr>, tree: &Tree) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(&tree.root)
        .env("CARGO_MANIFEST_DIR", &tree.root)
        .env("RUST_BACKTRACE", "0")
        .envs(tree.kind.environment.iter().copied())
        .stdin(Stdio::null());
    command
}
