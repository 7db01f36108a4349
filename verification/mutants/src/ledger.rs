//! What became of each mutant, kept between runs.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{Fallible, trial::Outcome};

/// One mutant's end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub key: String,
    pub outcome: Outcome,
    pub by: String,
    pub seconds: f64,
    /// The state of sources and tests in which it was found.
    pub state: u64,
}

/// A file of entries, a line each; the last one of a key counts.
pub struct Ledger {
    file: File,
    pub entries: HashMap<String, Entry>,
}

impl Ledger {
    pub fn open(path: PathBuf) -> Fallible<Ledger> {
        let text = fs::read_to_string(&path).unwrap_or_default();
        // A run that was cut off may have left half a line.
        let entries = text.lines().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
        let entries = entries.map(|entry| (entry.key.clone(), entry)).collect();
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Ledger { file, entries })
    }

    pub fn add(&mut self, entry: Entry) -> Fallible<()> {
        writeln!(self.file, "{}", serde_json::to_string(&entry)?)?;
        self.entries.insert(entry.key.clone(), entry);
        Ok(())
    }
}

/// A number for the content of these files and directories.
pub fn state(root: &Path, parts: &[&str]) -> Fallible<u64> {
    fn walk(path: &Path, hasher: &mut DefaultHasher) -> Fallible<()> {
        path.hash(hasher);
        if path.is_file() {
            fs::read(path)?.hash(hasher);
        } else {
            let mut inside: Vec<PathBuf> =
                fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
            inside.sort();
            inside
                .iter()
                .filter(|path| !path.ends_with("mutants"))
                .try_for_each(|path| walk(path, hasher))?;
        }
        Ok(())
    }
    let mut hasher = DefaultHasher::new();
    parts.iter().try_for_each(|part| walk(&root.join(part), &mut hasher))?;
    Ok(hasher.finish())
}
