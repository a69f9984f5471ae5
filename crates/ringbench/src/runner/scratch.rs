//! Files that are created for measuring: only where nothing exists, only where there is room, and removed
//! afterwards.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use tempfile::{NamedTempFile, TempPath};

use super::interrupt;

/// A file system keeps at least this fraction of its size free: 1/20.
const FREE_MIN: u64 = 20;

/// A file that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    file: NamedTempFile,
}

impl Scratch {
    /// Creates an empty file in `folder` that only its owner can read.
    pub(crate) fn create(folder: &Path) -> anyhow::Result<Scratch> {
        let file = tempfile::Builder::new().prefix(".ringbench-").tempfile_in(folder);
        Ok(Scratch::of(file.with_context(|| folder.display().to_string())?))
    }

    /// Creates the same at a path where nothing exists.
    pub(crate) fn create_at(path: &Path) -> anyhow::Result<Scratch> {
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = file.with_context(|| path.display().to_string())?;
        Ok(Scratch::of(NamedTempFile::from_parts(file, TempPath::try_from_path(path)?)))
    }

    fn of(file: NamedTempFile) -> Scratch {
        interrupt::remove_at_end(Some(file.path()));
        Scratch { file }
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Creates a file of incompressible bytes in `folder`, and syncs it.
    pub(crate) fn with_random(folder: &Path, bytes: u64) -> anyhow::Result<Scratch> {
        check_room(folder, bytes)?;
        let scratch = Scratch::create(folder)?;
        let context = || scratch.path().display().to_string();
        let mut file = scratch.file.as_file();
        let mut random = blake3::Hasher::new().update(b"ringbench").finalize_xof();
        let mut block = vec![0; 1 << 20];
        let mut left = bytes;
        while left > 0 {
            if interrupt::is_interrupted() {
                bail!("interrupted while writing {}", context());
            }
            let part = left.min(block.len() as u64) as usize;
            random.fill(&mut block[..part]);
            file.write_all(&block[..part]).with_context(context)?;
            left -= part as u64;
        }
        file.sync_all().with_context(context)?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The file itself is removed by its own drop.
        interrupt::remove_at_end(None);
    }
}

/// Checks that `bytes` fit into the file system of `folder`, of which a twentieth stays free.
pub(crate) fn check_room(folder: &Path, bytes: u64) -> anyhow::Result<()> {
    let stat = rustix::fs::statvfs(folder).with_context(|| folder.display().to_string())?;
    let (free, all) = (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize);
    if free < bytes.saturating_add(all / FREE_MIN) {
        bail!(
            "{}: {} MiB are free; this needs {} MiB, and keeps a twentieth of the file system free",
            folder.display(),
            free >> 20,
            bytes >> 20,
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_existing_file_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine");
        fs::write(&path, "mine").unwrap();
        let error = format!("{:#}", Scratch::create_at(&path).unwrap_err());
        assert!(error.contains("exists"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn a_scratch_file_has_its_size_and_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::with_random(folder.path(), (1 << 20) + 7).unwrap();
        let content = fs::read(scratch.path()).unwrap();
        assert_eq!(content.len(), (1 << 20) + 7);
        assert_ne!(content[..64], content[64..128]);
        drop(scratch);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_does_not_fit_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = Scratch::with_random(folder.path(), u64::MAX / 2).unwrap_err();
        assert!(error.to_string().contains("MiB are free"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
