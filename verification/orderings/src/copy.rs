//! The copy of the package in which every ordering is a value that is chosen at run time.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::scan::Site;

/// What a build of the models needs.
const PARTS: [&str; 7] =
    ["Cargo.toml", "Cargo.lock", "README.md", "examples", "src", "tests", "verification"];
/// The module that chooses.
const CHOICE: &str = include_str!("../choice.rs");

/// Brings `copy` up to date. What is as it was keeps its time of change, so that little is built anew.
pub fn write(root: &Path, copy: &Path, sites: &[Site]) -> Result<(), String> {
    let mut files = Vec::new();
    for part in PARTS {
        collect(root, Path::new(part), &mut files)?;
    }
    let mut kept: BTreeSet<PathBuf> = files.iter().cloned().collect();
    for file in &files {
        let mut content =
            fs::read(root.join(file)).map_err(|error| format!("{}: {error}", file.display()))?;
        let own: Vec<(usize, &Site)> =
            sites.iter().enumerate().filter(|(_, site)| Path::new(&site.file) == file).collect();
        for (number, site) in own.into_iter().rev() {
            let choice = if site.is_fence { "fence_unless_removed" } else { "weakened" };
            let ordering = String::from_utf8_lossy(&content[site.ordering.clone()]).into_owned();
            let call = format!("crate::sync::{choice}({number}, {ordering})");
            content.splice(site.place.clone(), call.into_bytes());
        }
        if file == Path::new("Cargo.toml") {
            // Another version: cargo keeps both packages apart in one target directory, where they share dependencies.
            let manifest = String::from_utf8_lossy(&content);
            content = manifest.replacen("\nversion = \"", "\nversion = \"0.0.0-weakened.", 1).into_bytes();
        }
        if file == Path::new("src/sync/mod.rs") {
            content.extend(b"\nmod choice;\npub use choice::{fence_unless_removed, weakened};\n");
        }
        update(&copy.join(file), &content)?;
    }
    let choice = PathBuf::from("src/sync/choice.rs");
    update(&copy.join(&choice), choice_for(sites).as_bytes())?;
    kept.insert(choice);
    let mut present = Vec::new();
    for part in PARTS {
        collect(copy, Path::new(part), &mut present)?;
    }
    for file in present.iter().filter(|file| !kept.contains(*file)) {
        fs::remove_file(copy.join(file)).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Whether a copy that is there already has as many choices.
pub fn check(copy: &Path, sites: &[Site]) -> Result<(), String> {
    let choice = copy.join("src/sync/choice.rs");
    let text = fs::read_to_string(&choice).map_err(|error| format!("{}: {error}", choice.display()))?;
    if text == choice_for(sites) {
        Ok(())
    } else {
        Err(format!("{} is a copy of other sources", copy.display()))
    }
}

fn choice_for(sites: &[Site]) -> String {
    CHOICE.replace("SITES_OF_THIS_COPY", &sites.len().to_string())
}

fn collect(root: &Path, part: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let path = root.join(part);
    if path.is_file() {
        files.push(part.to_owned());
    } else if path.is_dir() && part != Path::new("verification/orderings") {
        for entry in fs::read_dir(&path).map_err(|error| error.to_string())? {
            let entry = entry.map_err(|error| error.to_string())?;
            collect(root, &part.join(entry.file_name()), files)?;
        }
    }
    Ok(())
}

fn update(path: &Path, content: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    path.parent().map_or(Ok(()), fs::create_dir_all).map_err(|error| error.to_string())?;
    fs::write(path, content).map_err(|error| format!("{}: {error}", path.display()))
}
