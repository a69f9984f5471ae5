//! Files that are written whole or not at all, and that never take the place of another unasked.

use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// A file to be written, maybe many times.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    /// It was not there before.
    is_new: bool,
}

impl OutputFile {
    /// Makes the file, empty, so that whether it can be written is known early.
    ///
    /// # Errors
    ///
    /// It exists, and `overwrite` is not set; or it cannot be made.
    pub(crate) fn create(path: &Path, overwrite: bool) -> anyhow::Result<OutputFile> {
        let is_new = fs::symlink_metadata(path).is_err();
        let mut options = OpenOptions::new();
        options.write(true);
        match overwrite {
            true => options.create(true),
            false => options.create_new(true),
        };
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            bail!("{}: it is not a regular file, which this is written to", path.display());
        }
        match options.open(path) {
            Ok(_) => Ok(OutputFile { path: path.to_owned(), is_new }),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => bail!(
                "{}: it exists, and is left as it is: name another file, or say --overwrite",
                path.display()
            ),
            Err(error) => Err(error).with_context(|| format!("{}", path.display())),
        }
    }

    /// Puts what `write` writes in the place of what the file held.
    ///
    /// # Errors
    ///
    /// It cannot be written: then what it held is still there.
    pub(crate) fn replace(
        &self,
        write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> anyhow::Result<()> {
        let written = || {
            // What a link in its place leads to is what is replaced.
            let path = self.path.canonicalize()?;
            let folder = path.parent().unwrap_or(Path::new("/"));
            let mut new = tempfile::Builder::new().prefix(".ringbench-").tempfile_in(folder)?;
            let mut buffered = BufWriter::new(&mut new);
            write(&mut buffered)?;
            buffered.flush()?;
            drop(buffered);
            let mode = fs::metadata(&path)?.permissions();
            new.as_file().set_permissions(mode)?;
            new.persist(&path)?;
            Ok::<_, std::io::Error>(())
        };
        written().with_context(|| format!("{}: it cannot be written", self.path.display()))
    }

    /// Takes away a file that was made for this, and that nothing was written to.
    pub(crate) fn discard_if_empty(&self) {
        if self.is_new && fs::metadata(&self.path).is_ok_and(|metadata| metadata.len() == 0) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_exists_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        fs::write(&path, "old").unwrap();
        let error = OutputFile::create(&path, false).unwrap_err().to_string();
        assert!(error.contains("--overwrite"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert!(OutputFile::create(folder.path(), true).is_err());
    }

    #[test]
    fn what_fails_leaves_what_there_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        fs::write(&path, "old").unwrap();
        let file = OutputFile::create(&path, true).unwrap();
        let fails = file.replace(|file| {
            file.write_all(b"half of it")?;
            Err(std::io::Error::other("full"))
        });
        assert!(fails.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        file.replace(|file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_without_content_is_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let file = OutputFile::create(&path, false).unwrap();
        file.discard_if_empty();
        assert!(!path.exists());
        fs::write(&path, "").unwrap();
        OutputFile::create(&path, true).unwrap().discard_if_empty();
        assert!(path.exists(), "it is the user's");
    }
}
