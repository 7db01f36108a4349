//! A copy of the crate, in which mutants are built.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;

use crate::{Fallible, kind::Kind};

/// What a build of the tests needs, besides the library's sources.
const COPIED: &[&str] = &["Cargo.lock", "README.md", "docs", "examples", "tests", "verification"];

/// All but the command-line tool's: what no feature brings in, no test could notice.
const FEATURES: &str =
    "internals,seize,serde,pool,pinning,cluster,tokio,tower,http-body,telemetry,prometheus,metrics,tracing";

/// Manifest, tests and sources in a directory of their own.
pub struct Tree {
    pub root: PathBuf,
    target: PathBuf,
    pub kind: &'static Kind,
}

impl Tree {
    /// Copies all but the library's sources. A file that is the same already is not touched: cargo goes by times.
    pub fn copy(from: &Path, work: &Path, name: &str, kind: &'static Kind) -> Fallible<Tree> {
        let tree = Tree { root: work.join(name), target: work.join("build"), kind };
        // What the manifest names must be there, though no feature asks for it.
        copy(&from.join("src/bin"), &tree.root.join("src/bin"))?;
        copy_texts(&from.join("src"), &tree.root.join("src"))?;
        for part in COPIED {
            copy(&from.join(part), &tree.root.join(part))?;
        }
        let manifest = fs::read_to_string(from.join("Cargo.toml"))?;
        put(&tree.root.join("Cargo.toml"), format!("{manifest}\n[workspace]\n").as_bytes())?;
        Ok(tree)
    }

    pub fn write(&self, file: &str, text: &str) -> Fallible<()> {
        Ok(put(&self.root.join(file), text.as_bytes())?)
    }

    /// Runs cargo and answers what it said: messages of the compiler, and the programs that it built.
    pub fn cargo(&self, arguments: &[&str]) -> Fallible<(bool, Vec<Message>)> {
        let output = Command::new("cargo")
            .args(arguments)
            .args(["--features", FEATURES, "--message-format=json", "--quiet"])
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_TEST_DEBUG", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            // A mutant that only a lint forbids is a mutant.
            .env("RUSTFLAGS", format!("--cap-lints=allow {}", self.kind.flags))
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        let messages: Vec<Message> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if !output.status.success() && !messages.iter().any(|message| message.error().is_some()) {
            return Err(format!("cargo: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok((output.status.success(), messages))
    }
}

/// A line of cargo's report.
#[derive(Deserialize)]
pub struct Message {
    pub message: Option<Diagnostic>,
    pub target: Option<Target>,
    pub executable: Option<PathBuf>,
    pub profile: Option<Profile>,
}

#[derive(Deserialize)]
pub struct Profile {
    pub test: bool,
}

#[derive(Deserialize)]
pub struct Target {
    pub name: String,
    pub kind: Vec<String>,
}

#[derive(Deserialize)]
pub struct Diagnostic {
    pub level: String,
    pub message: String,
    pub code: Option<Code>,
    pub spans: Vec<Span>,
    pub rendered: Option<String>,
}

#[derive(Deserialize)]
pub struct Code {
    pub code: String,
}

#[derive(Deserialize)]
pub struct Span {
    pub file_name: String,
    pub byte_start: usize,
    pub byte_end: usize,
    pub is_primary: bool,
    pub expansion: Option<Expansion>,
}

#[derive(Deserialize)]
pub struct Expansion {
    pub span: Box<Span>,
}

impl Message {
    pub fn error(&self) -> Option<&Diagnostic> {
        self.message.as_ref().filter(|diagnostic| diagnostic.level == "error")
    }
}

impl Span {
    /// Where it was written, if it comes from a macro.
    pub fn origin(&self) -> &Span {
        self.expansion.as_ref().map_or(self, |expansion| expansion.span.origin())
    }
}

/// Writes a file unless it has this content.
fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().expect("a file in a directory"))?;
    fs::write(path, content)
}

/// What the library includes as text: all of its files that are no source. Those come from the plan.
fn copy_texts(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let there = to.join(path.file_name().expect("of an entry"));
        if path.is_dir() {
            copy_texts(&path, &there)?;
        } else if path.extension().is_none_or(|extension| extension != "rs") {
            put(&there, &fs::read(&path)?)?;
        }
    }
    Ok(())
}

/// Makes `to` what `from` is, recursively; what `from` has not goes.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if from.is_file() {
        put(to, &fs::read(from)?)?;
        let mode = fs::metadata(from)?.permissions();
        return if fs::metadata(to)?.permissions() == mode { Ok(()) } else { fs::set_permissions(to, mode) };
    }
    let names = |directory: &Path| -> io::Result<BTreeSet<_>> {
        match fs::read_dir(directory) {
            Ok(entries) => entries.map(|entry| entry.map(|entry| entry.file_name())).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
            Err(error) => Err(error),
        }
    };
    let wanted: BTreeSet<_> =
        names(from)?.into_iter().filter(|name| name != "target" && name != "mutants").collect();
    for name in names(to)?.difference(&wanted) {
        let gone = to.join(name);
        if gone.is_dir() { fs::remove_dir_all(gone)? } else { fs::remove_file(gone)? }
    }
    wanted.iter().try_for_each(|name| copy(&from.join(name), &to.join(name)))
}
