//! Where the report goes. A file appears whole or not at all.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

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

const STDOUT: &str = "<stdout>";
const ACTION: &str = "cannot be written";

impl Output {
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(Output::Stdout) };
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
            Output::Replace { mut written, path } => written
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

fn open_file(path: &Path) -> io::Result<Output> {
    // Through a link to what it names: renaming would replace the link.
    let path = if path.exists() { path.canonicalize()? } else { path.to_owned() };
    if path.exists() && !path.is_file() {
        let file = OpenOptions::new().write(true).open(&path)?;
        return Ok(Output::Direct { file, path });
    }
    if path.file_name().is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "expected the name of a file"));
    }
    if path.exists() {
        // Renaming asks only the directory; a file that is write-protected was meant to stay.
        OpenOptions::new().append(true).open(&path)?;
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".leasehold-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As any new file: everything that the umask allows.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    Ok(Output::Replace { written: builder.tempfile_in(directory)?, path })
}

fn fail(path: &Path, cause: io::Error) -> Error {
    // The library for temporary files adds its own path; the user's says more.
    let cause = cause.raw_os_error().map_or(cause, io::Error::from_raw_os_error);
    Error::file(path.display().to_string(), ACTION, cause)
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let output = Output::open(Some(&path)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        output.write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names(directory.path()), ["report"]);
    }

    #[test]
    fn leaves_nothing_behind_when_unused() {
        let directory = tempfile::tempdir().unwrap();
        drop(Output::open(Some(&directory.path().join("report"))).unwrap());
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn unwritable_is_known_at_once() {
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path().join("no/such/report"), directory.path().to_owned(), PathBuf::new()] {
            assert!(Output::open(Some(&path)).is_err(), "{}", path.display());
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        Output::open(Some(&link)).unwrap().write("new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        assert!(matches!(Output::open(Some(Path::new("/dev/null"))).unwrap(), Output::Direct { .. }));
    }
}
