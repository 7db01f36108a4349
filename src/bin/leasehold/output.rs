//! Where the report goes. A file appears whole or not at all.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use tempfile::NamedTempFile;

use crate::error::{Error, Result};

/// An opened destination. Opened before the work begins, so that a bad path costs no waiting.
pub enum Output {
    Stdout,
    /// A regular file: written beside its final place, then renamed onto it.
    Replace {
        written: NamedTempFile,
        path: PathBuf,
    },
    /// A device or a pipe, which must not be renamed over.
    Direct {
        file: File,
        path: PathBuf,
    },
}

/// Form of a report: for people, or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
}

const STDOUT: &str = "<stdout>";
const ACTION: &str = "cannot be written";

impl Output {
    /// `-`, as nothing, is standard output. `inputs`: every file that the command reads, and what names it: none of them is replaced by the report.
    pub fn open(path: Option<&Path>, inputs: &[(&str, Option<&Path>)]) -> Result<Self> {
        let Some(path) = path.and_then(file) else { return Ok(Output::Stdout) };
        inputs.iter().try_for_each(|(name, input)| keep_apart(path, name, input.and_then(file)))?;
        open_file(path).map_err(|cause| fail(path, cause))
    }

    pub fn write(self, text: &str) -> Result<()> {
        match self {
            Output::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout
                    .write_all(text.as_bytes())
                    .and_then(|()| stdout.flush())
                    .map_err(|cause| Error::file(STDOUT, ACTION, cause))
            }
            // The file itself: its wrapper would add its name to errors.
            Output::Replace { mut written, path } => written
                .as_file_mut()
                .write_all(text.as_bytes())
                .and_then(|()| written.as_file().sync_all())
                .and_then(|()| written.persist(&path).map(drop).map_err(|error| error.error))
                .map_err(|cause| fail(&path, cause)),
            Output::Direct { mut file, path } => {
                file.write_all(text.as_bytes()).map_err(|cause| fail(&path, cause))
            }
        }
    }
}

/// The file that an option names, unless that is a standard stream.
fn file(path: &Path) -> Option<&Path> {
    Some(path).filter(|path| path.as_os_str() != "-")
}

fn open_file(path: &Path) -> io::Result<Output> {
    // The path as given: links such as /dev/stdout lead to pipes that have no name of their own.
    let existing = match fs::metadata(path) {
        Ok(metadata) => Some(metadata),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => None,
        Err(cause) => return Err(cause),
    };
    if existing.as_ref().is_some_and(|metadata| !metadata.is_file()) {
        let file = OpenOptions::new().write(true).open(path)?;
        return Ok(Output::Direct { file, path: path.to_owned() });
    }
    if path.file_name().is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "expected the name of a file"));
    }
    let Some(existing) = existing else {
        // As any new file: everything that the umask allows.
        return Ok(Output::Replace { written: beside(path, OpenOptions::new())?, path: path.to_owned() });
    };
    // Through a link to what it names: renaming would replace the link.
    let path = path.canonicalize()?;
    // Renaming asks only the directory; a file that is write-protected was meant to stay.
    OpenOptions::new().append(true).open(&path)?;
    let mut options = OpenOptions::new();
    // Nobody else's until it has the permissions of the file that it replaces.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = beside(&path, options)?;
    written.as_file().set_permissions(existing.permissions())?;
    Ok(Output::Replace { written, path })
}

/// A new file in the directory of `path`, under a name of its own.
fn beside(path: &Path, mut options: OpenOptions) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    options.read(true).write(true).create_new(true);
    tempfile::Builder::new()
        .prefix(".leasehold-")
        .suffix(".tmp")
        .make_in(directory, |path| options.open(path))
        // The library adds the name of its file, which says nothing to the user.
        .map_err(|cause| cause.raw_os_error().map_or(cause, io::Error::from_raw_os_error))
}

/// Refuses to write the report over an input: `option` and the path that it names.
fn keep_apart(out: &Path, option: &str, input: Option<&Path>) -> Result<()> {
    if input.is_some_and(|input| same_file(out, input)) {
        let out = out.display();
        return Err(Error::Options(format!(
            "--out: expected another file than that of {option}, found {out}"
        )));
    }
    Ok(())
}

/// Whether both name one regular file, by links or not. A terminal or a device may well be read and written.
#[cfg(unix)]
fn same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(a), Ok(b)) = (fs::metadata(a), fs::metadata(b)) else { return false };
    a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Whether both name one regular file.
#[cfg(not(unix))]
fn same_file(a: &Path, b: &Path) -> bool {
    let (Ok(a), Ok(b)) = (a.canonicalize(), b.canonicalize()) else { return false };
    a.is_file() && a == b
}

fn fail(path: &Path, cause: io::Error) -> Error {
    Error::file(path.display().to_string(), ACTION, cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn replaces_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report");
        fs::write(&path, "old").unwrap();
        let output = Output::open(Some(&path), &[]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        output.write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names(directory.path()), ["report"]);
    }

    #[test]
    fn leaves_nothing_behind_when_unused() {
        let directory = tempfile::tempdir().unwrap();
        drop(Output::open(Some(&directory.path().join("report")), &[]).unwrap());
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn unwritable_is_known_at_once() {
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path().join("no/such/report"), directory.path().to_owned(), PathBuf::new()] {
            assert!(Output::open(Some(&path), &[]).is_err(), "{}", path.display());
        }
    }

    #[cfg(unix)]
    #[test]
    fn permissions_stay() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report");
        fs::write(&path, "old").unwrap();
        for mode in [0o600, 0o644, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Output::open(Some(&path), &[]).unwrap().write("new").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
        }
    }

    #[cfg(unix)]
    #[test]
    fn inputs_are_known_by_any_name() {
        let directory = tempfile::tempdir().unwrap();
        let [file, hard, soft, other] =
            ["file", "hard", "soft", "other"].map(|name| directory.path().join(name));
        fs::write(&file, "x").unwrap();
        fs::write(&other, "x").unwrap();
        fs::hard_link(&file, &hard).unwrap();
        std::os::unix::fs::symlink(&file, &soft).unwrap();
        let inputs = [("--fleet", None), ("--trace", Some(&*file))];
        for name in [&file, &hard, &soft] {
            assert!(Output::open(Some(name), &inputs).is_err(), "{}", name.display());
        }
        assert!(Output::open(Some(&other), &inputs).is_ok());
        assert!(Output::open(Some(&directory.path().join("new")), &inputs).is_ok());
        let device = Path::new("/dev/null");
        assert!(Output::open(Some(device), &[("--trace", Some(device))]).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        Output::open(Some(&link), &[]).unwrap().write("new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        assert!(matches!(Output::open(Some(Path::new("/dev/null")), &[]).unwrap(), Output::Direct { .. }));
    }
}
