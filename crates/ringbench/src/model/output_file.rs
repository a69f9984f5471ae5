//! Files that are written completely or not at all, and never replace another file unintentionally.

use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// A file to be written, once or many times.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    /// It did not exist before.
    is_new: bool,
}

impl OutputFile {
    /// Creates the file, empty, so that a file that cannot be written is reported early. An existing file
    /// is an error unless `overwrite` is set.
    pub(crate) fn create(path: &Path, overwrite: bool) -> anyhow::Result<OutputFile> {
        let is_new = fs::symlink_metadata(path).is_err();
        let mut options = OpenOptions::new();
        options.write(true).create(overwrite).create_new(!overwrite);
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            bail!("{}: not a regular file; only regular files are written", path.display());
        }
        match options.open(path) {
            Ok(_) => Ok(OutputFile { path: path.to_owned(), is_new }),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => bail!(
                "{}: the file exists and was not changed; use another name, or --overwrite",
                path.display()
            ),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// Replaces the content of the file by that which `write` writes, or keeps it if there is an error.
    pub(crate) fn replace(
        &self,
        write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> anyhow::Result<()> {
        let written = || {
            // A symbolic link stays, and its target is replaced.
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
        written().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Removes the file if it was created here and nothing was written to it.
impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_new && fs::metadata(&self.path).is_ok_and(|metadata| metadata.len() == 0) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_file_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        fs::write(&path, "old").unwrap();
        let error = OutputFile::create(&path, false).unwrap_err().to_string();
        assert!(error.contains("--overwrite"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert!(OutputFile::create(folder.path(), true).is_err());
    }

    #[test]
    fn a_failed_write_keeps_the_old_content() {
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
    fn a_file_without_content_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let file = OutputFile::create(&path, false).unwrap();
        drop(file);
        assert!(!path.exists());
        fs::write(&path, "").unwrap();
        drop(OutputFile::create(&path, true).unwrap());
        assert!(path.exists(), "it is the user's");
    }
}
