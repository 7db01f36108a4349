//! Builds the models of the copy, once, and runs one at a time in a process of its own: a model that fails may abort.

use std::{
    collections::BTreeSet,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::mutants::Mutant;

/// How far a model is explored.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub preemptions: u32,
    /// Seconds after which it is cut short, and passes.
    pub seconds: u64,
}

#[derive(Debug)]
pub enum Outcome {
    Passed {
        reached: BTreeSet<usize>,
    },
    /// With what it says first.
    Failed(String),
    /// Neither: it was stopped.
    Stuck,
}

pub struct Models {
    program: PathBuf,
    logs: PathBuf,
}

impl Models {
    pub fn build(copy: &Path, logs: &Path) -> Result<Models, String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        let target = std::path::absolute(target).map_err(|error| error.to_string())?;
        let output = Command::new(cargo)
            .args(["test", "--test", "loom", "--features", "internals", "--no-run", "--quiet"])
            .args(["--message-format", "json"])
            .current_dir(copy)
            // As `verification/loom/run` has them: so the dependencies are built once for both.
            .env("RUSTFLAGS", format!("{flags} --cfg loom --cfg crossbeam_loom"))
            .env("CARGO_TARGET_DIR", target)
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        let messages = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let errors: Vec<&str> =
                messages.lines().filter(|line| line.contains("\"level\":\"error\"")).collect();
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(format!("the copy does not compile:\n{}\n{stderr}", errors.join("\n")));
        }
        let program = messages.lines().rev().find_map(|line| {
            let (_, rest) = line.split_once("\"executable\":\"")?;
            rest.split_once('"').map(|(path, _)| PathBuf::from(path))
        });
        fs::create_dir_all(logs).map_err(|error| error.to_string())?;
        Ok(Models { program: program.ok_or("cargo names no program")?, logs: logs.to_owned() })
    }

    /// A number for what the program is: the same source is the same program.
    pub fn print(&self) -> Result<u64, String> {
        let mut hasher = DefaultHasher::new();
        fs::read(&self.program).map_err(|error| error.to_string())?.hash(&mut hasher);
        Ok(hasher.finish())
    }

    /// The names of all models.
    pub fn names(&self) -> Result<Vec<String>, String> {
        let output = Command::new(&self.program)
            .args(["--list", "--format", "terse"])
            .output()
            .map_err(|error| error.to_string())?;
        let list = String::from_utf8_lossy(&output.stdout);
        let names: Vec<String> =
            list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
        if names.is_empty() { Err("the program has no models".to_owned()) } else { Ok(names) }
    }

    /// Explores one model with one site weakened, or none.
    pub fn run(&self, model: &str, mutant: Option<&Mutant>, bounds: Bounds) -> Result<Outcome, String> {
        let choice = mutant.map(|mutant| format!("{}={}", mutant.site, mutant.becomes));
        let name = format!("{model} {} p{}", choice.as_deref().unwrap_or("as written"), bounds.preemptions);
        let path = self.logs.join(name.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        let log = fs::File::create(&path).map_err(|error| error.to_string())?;
        let mut child = Command::new(&self.program)
            .args(["--exact", model, "--nocapture", "--test-threads", "1"])
            .env("LOOM_MAX_PREEMPTIONS", bounds.preemptions.to_string())
            .env("LOOM_MAX_DURATION", bounds.seconds.to_string())
            .envs(choice.map(|choice| ("LEASEHOLD_MUTANT", choice)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|error| error.to_string())?)
            .stderr(log)
            .spawn()
            .map_err(|error| error.to_string())?;
        // A model looks at its time every hundred executions; beyond that, something hangs.
        let end = Instant::now() + Duration::from_secs(4 * bounds.seconds + 60);
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                break Some(status);
            }
            if Instant::now() > end {
                child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
                break None;
            }
            thread::sleep(Duration::from_millis(5));
        };
        let said = fs::read(&path).map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&said);
        let Some(status) = status else { return Ok(Outcome::Stuck) };
        if !said.contains("running 1 test") {
            return Err(format!("no model {model}"));
        }
        if !status.success() {
            return Ok(Outcome::Failed(first_panic(&said)));
        }
        let _ = fs::remove_file(&path);
        let reached = said.lines().filter_map(|line| line.strip_prefix("reached ")?.parse().ok());
        Ok(Outcome::Passed { reached: reached.collect() })
    }
}

/// What the first panic says, in one line.
fn first_panic(said: &str) -> String {
    let mut lines = said.lines().skip_while(|line| !line.contains(" panicked at "));
    let panic = lines.by_ref().skip(1).map(str::trim).find(|line| !line.is_empty());
    panic.unwrap_or("it says nothing").to_owned()
}
