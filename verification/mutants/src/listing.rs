//! The mutants, as `cargo mutants` lists them. Its settings in `.cargo/mutants.toml` hold here too.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    ops::Range,
    path::Path,
    process::Command,
};

use serde::Deserialize;

use crate::Fallible;

/// What kind of change.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Hash)]
pub enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
}

/// One change of the source.
pub struct Mutant {
    pub file: String,
    pub genre: Genre,
    pub replacement: String,
    /// What is replaced: bytes of the file.
    pub span: Range<usize>,
    /// The change in words, without its position.
    pub change: String,
    /// The line that it changes: its text, so that a line inserted above does not make it another mutant.
    pub at: String,
    /// Which of the mutants with the same file, change and text, from 1.
    pub nth: usize,
    pub line: usize,
}

impl Mutant {
    /// What tells it from all others, and stays while neither its line nor its function's name changes.
    pub fn key(&self) -> String {
        let nth = if self.nth > 1 { format!(" #{}", self.nth) } else { String::new() };
        format!("{}: {} @ {}{nth}", self.file, self.change, self.at)
    }

    /// The part of the crate: the module directly below the root.
    pub fn module(&self) -> &str {
        let path = self.file.strip_prefix("src/").unwrap_or(&self.file);
        path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {} @ {}", self.file, self.line, self.change, self.at)
    }
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    file: String,
    genre: Genre,
    replacement: String,
    span: Span,
}

#[derive(Deserialize)]
struct Span {
    start: Position,
    end: Position,
}

#[derive(Deserialize)]
struct Position {
    line: usize,
    column: usize,
}

/// All mutants of the crate at `root`, in the order of the list.
pub fn list(root: &Path) -> Fallible<Vec<Mutant>> {
    let output = Command::new("cargo").args(["mutants", "--list", "--json"]).current_dir(root).output()?;
    if !output.status.success() {
        return Err(format!("cargo mutants --list: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let listed: Vec<Listed> = serde_json::from_slice(&output.stdout)?;
    let mut sources: HashMap<String, Source> = HashMap::new();
    let mut seen: HashMap<(String, String, String), usize> = HashMap::new();
    let mut mutants = Vec::with_capacity(listed.len());
    // A file that two modules name, under one `cfg` each, is listed twice.
    let mut twice = HashSet::new();
    for Listed { name, file, genre, replacement, span } in listed {
        if !twice.insert(name.clone()) {
            continue;
        }
        let source = match sources.entry(file.clone()) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(Source::new(std::fs::read_to_string(root.join(&file))?))
            }
        };
        let position = format!("{file}:{}:{}: ", span.start.line, span.start.column);
        let change = name.strip_prefix(&position).ok_or(format!("not at {position}: {name}"))?;
        // One line, whatever the type or the pattern looks like.
        let change = change.split_whitespace().collect::<Vec<_>>().join(" ");
        let at = source.line(span.start.line).trim().to_owned();
        let nth = seen.entry((file.clone(), change.clone(), at.clone())).or_default();
        *nth += 1;
        mutants.push(Mutant {
            genre,
            replacement,
            span: source.offset(&span.start)..source.offset(&span.end),
            change,
            at,
            nth: *nth,
            line: span.start.line,
            file,
        });
    }
    Ok(mutants)
}

/// A file's text by lines.
struct Source {
    text: String,
    starts: Vec<usize>,
}

impl Source {
    fn new(text: String) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Source { text, starts }
    }

    fn line(&self, line: usize) -> &str {
        let rest = &self.text[self.starts[line - 1]..];
        rest.split('\n').next().unwrap_or(rest)
    }

    /// Columns count characters, from 1.
    fn offset(&self, position: &Position) -> usize {
        let line = self.line(position.line);
        let column = line.char_indices().nth(position.column - 1).map_or(line.len(), |(at, _)| at);
        self.starts[position.line - 1] + column
    }
}
