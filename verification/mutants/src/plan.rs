//! Decides how each mutant is built. Those that do not compile are found out in rounds, by what the compiler says.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::{
    Fallible,
    listing::{Genre, Mutant},
    rewrite::{Rewritten, rewrite},
    sites::{self, Context, Site},
    tree::{Diagnostic, Tree},
};

/// What is to become of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// In the common build.
    Switched,
    /// By a build of its own, for this reason.
    Alone(&'static str),
    /// It does not compile, or is in no build but a model's.
    Unviable(String),
}

/// The library with its mutants, as far as they are known to compile.
#[derive(Clone)]
pub struct Plan {
    pub ways: Vec<Way>,
    sources: BTreeMap<String, (String, Vec<Site>)>,
    /// By name: a constant calls it.
    kept: BTreeSet<String>,
    functions: BTreeSet<String>,
}

impl Plan {
    /// The first guess, from the source alone.
    pub fn new(root: &Path, mutants: &[Mutant]) -> Fallible<Plan> {
        let mut by_file: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
        for (number, mutant) in mutants.iter().enumerate() {
            by_file.entry(&mutant.file).or_default().push((number, mutant));
        }
        let mut plan = Plan {
            ways: vec![Way::Switched; mutants.len()],
            sources: BTreeMap::new(),
            kept: BTreeSet::new(),
            functions: BTreeSet::new(),
        };
        for file in library(root)? {
            let text = fs::read_to_string(root.join(&file))?;
            let wanted = by_file.remove(file.as_str()).unwrap_or_default();
            let sites = sites::find(&text, &wanted).map_err(|error| format!("{file}: {error}"))?;
            for site in &sites {
                if let sites::Shape::Const { function } = &site.shape {
                    plan.functions.insert(function.clone());
                }
                let way = match site.context {
                    Context::Ordinary | Context::ConstFn(_) => continue,
                    Context::Constant => Way::Alone("a constant"),
                    Context::Opaque => Way::Alone("returns `impl Trait`"),
                    Context::LetChain => Way::Unviable("`||` beside `let`".into()),
                    Context::Absent => Way::Unviable("only in a model's build".into()),
                };
                site.mutants.iter().for_each(|&mutant| plan.ways[mutant] = way.clone());
            }
            plan.sources.insert(file, (text, sites));
        }
        match by_file.keys().next() {
            Some(file) => Err(format!("mutants outside the library: {file}").into()),
            None => Ok(plan),
        }
    }

    /// Only these are built, by number; if there is none, all.
    pub fn restrict(mut self, built: &[bool]) -> Plan {
        for (way, _) in self.ways.iter_mut().zip(built).filter(|(_, built)| !**built) {
            *way = Way::Unviable("not asked for".into());
        }
        self
    }

    /// Tries and weeds until all that is switched compiles; answers the number of rounds.
    pub fn settle(&mut self, tree: &Tree, mutants: &[Mutant]) -> Fallible<usize> {
        let targets = tree.kind.targets();
        let targets: Vec<&str> =
            targets.iter().map(String::as_str).filter(|&target| target != "--lib").collect();
        for round in 1.. {
            let written = self.write(tree, mutants)?;
            let (ok, messages) = tree.cargo(&["check", "--lib", "--profile", "test"])?;
            let (ok, messages) = if ok {
                tree.cargo(&[&["check", "--lib", "--profile", "test"][..], &targets].concat())?
            } else {
                (ok, messages)
            };
            if ok {
                return Ok(round);
            }
            let before = (self.ways.clone(), self.kept.clone());
            let errors: Vec<&Diagnostic> = messages.iter().filter_map(|message| message.error()).collect();
            let strays: Vec<&&Diagnostic> =
                errors.iter().filter(|error| !self.weed(error, &written, mutants)).collect();
            if before == (self.ways.clone(), self.kept.clone()) {
                let told = strays.iter().filter_map(|error| error.rendered.as_deref()).take(5);
                return Err(format!("errors that no mutant explains:\n{}", told.collect::<String>()).into());
            }
        }
        unreachable!("each round takes something out")
    }

    /// Writes the library into `tree`.
    pub fn write(&self, tree: &Tree, mutants: &[Mutant]) -> Fallible<BTreeMap<String, Rewritten>> {
        let wanted = |mutant: usize| self.ways[mutant] == Way::Switched;
        let kept = |function: &str| self.kept.contains(function);
        let mut written = BTreeMap::new();
        for (file, (text, sites)) in &self.sources {
            let mut new = rewrite(text, sites, mutants, &wanted, &kept);
            if file == "src/lib.rs" {
                new.text +=
                    "\n#[doc(hidden)]\n#[allow(clippy::all, missing_docs, unsafe_code)]\npub mod mutation;\n";
            }
            tree.write(file, &new.text)?;
            written.insert(file.clone(), new);
        }
        let count = mutants.len() + 1;
        let switch = format!("{}\nconst COUNT: usize = {count};\n", include_str!("../switch.rs"));
        tree.write("src/mutation.rs", &switch)?;
        Ok(written)
    }

    /// Takes out whom this error is about; answers whether there was one.
    fn weed(
        &mut self,
        error: &Diagnostic,
        written: &BTreeMap<String, Rewritten>,
        mutants: &[Mutant],
    ) -> bool {
        let code = error.code.as_ref().map_or("", |code| &code.code);
        if code == "E0015"
            && let Some(name) = error.message.split('`').nth(1)
            && let Some(name) = name.rsplit("::").next()
            && self.functions.contains(name)
        {
            self.keep(name.to_owned());
            return true;
        }
        let mut found = false;
        for span in error.spans.iter().filter(|span| span.is_primary) {
            let span = span.origin();
            let Some(file) = written.get(&span.file_name) else { continue };
            for &mutant in file.owners(&(span.byte_start..span.byte_end)) {
                found = true;
                self.ways[mutant] = match self.ways[mutant] {
                    _ if code == "E0015" => Way::Alone("a constant"),
                    // As a value of the function's type it is right or wrong. An operator may suffer from the way in which
                    // it is written here, where operands are typed apart.
                    _ if mutants[mutant].genre == Genre::FnValue => Way::Unviable(error.message.clone()),
                    _ => Way::Alone("does not compile behind a switch"),
                };
            }
        }
        found
    }

    /// This function stays `const`, so its mutants need builds of their own.
    fn keep(&mut self, function: String) {
        for (_, sites) in self.sources.values() {
            for site in sites.iter().filter(|site| site.context == Context::ConstFn(function.clone())) {
                site.mutants.iter().for_each(|&mutant| self.ways[mutant] = Way::Alone("a constant calls it"));
            }
        }
        self.kept.insert(function);
    }
}

/// The library's own files.
pub fn library(root: &Path) -> Fallible<Vec<String>> {
    fn walk(root: &Path, directory: &str, files: &mut Vec<String>) -> std::io::Result<()> {
        for entry in fs::read_dir(root.join(directory))? {
            let entry = entry?;
            let path = format!("{directory}/{}", entry.file_name().to_string_lossy());
            if path == "src/bin" {
            } else if entry.file_type()?.is_dir() {
                walk(root, &path, files)?;
            } else if path.ends_with(".rs") {
                files.push(path);
            }
        }
        Ok(())
    }
    let mut files = Vec::new();
    walk(root, "src", &mut files)?;
    files.sort();
    Ok(files)
}
