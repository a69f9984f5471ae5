//! Files that measuring makes for itself: only where nothing is, only where there is room, and gone
//! afterwards.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use tempfile::{NamedTempFile, TempPath};

/// Part of a file system that is left free.
const FREE_MIN: u64 = 20;

/// A file of our own, which goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    file: NamedTempFile,
}

impl Scratch {
    /// Makes an empty file in `folder`, readable by nobody else.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub(crate) fn create(folder: &Path) -> anyhow::Result<Scratch> {
        let file = tempfile::Builder::new().prefix(".ringbench-").tempfile_in(folder);
        Ok(Scratch::of(file.with_context(|| format!("{}", folder.display()))?))
    }

    /// The same, at a path where nothing may be yet.
    ///
    /// # Errors
    ///
    /// Something is there, or it cannot be made.
    pub(crate) fn create_at(path: &Path) -> anyhow::Result<Scratch> {
        let made =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        match made {
            Ok(file) => {
                let path = TempPath::try_from_path(path)?;
                Ok(Scratch::of(NamedTempFile::from_parts(file, path)))
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => bail!(
                "{}: it exists, and is left as it is: ringbench writes only to a file that it has made \
                 itself; name a path where nothing is",
                path.display()
            ),
            Err(error) => Err(error).with_context(|| format!("{}", path.display())),
        }
    }

    fn of(file: NamedTempFile) -> Scratch {
        crate::interrupt::remove_at_end(Some(file.path()));
        Scratch { file }
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Fills a new file in `folder` with `bytes` of what no layer can compress, written to the device.
    ///
    /// # Errors
    ///
    /// There is no room, or it cannot be written.
    pub(crate) fn with_random(folder: &Path, bytes: u64) -> anyhow::Result<Scratch> {
        check_room(folder, bytes)?;
        let scratch = Scratch::create(folder)?;
        let context = || format!("{}", scratch.path().display());
        let mut file = scratch.file.as_file();
        let mut random = blake3::Hasher::new().update(b"ringbench").finalize_xof();
        let mut block = vec![0; 1 << 20];
        let mut left = bytes;
        while left > 0 {
            if crate::interrupt::is_interrupted() {
                bail!("interrupted while {} was made", context());
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
        // It goes now.
        crate::interrupt::remove_at_end(None);
    }
}

/// Whether `bytes` fit into the file system of `folder`, and a twentieth of it stays free.
///
/// # Errors
///
/// They do not.
pub(crate) fn check_room(folder: &Path, bytes: u64) -> anyhow::Result<()> {
    let stat = rustix::fs::statvfs(folder).with_context(|| format!("{}", folder.display()))?;
    let (free, all) = (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize);
    let needed = bytes.saturating_add(all / FREE_MIN);
    if free < needed {
        bail!(
            "{}: it has {} MiB free, and this needs {} MiB and leaves a twentieth of the file system free",
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
    fn nothing_that_exists_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine");
        fs::write(&path, "mine").unwrap();
        let error = Scratch::create_at(&path).unwrap_err().to_string();
        assert!(error.contains("left as it is"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn a_scratch_file_is_what_was_asked_for_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::with_random(folder.path(), (1 << 20) + 7).unwrap();
        let content = fs::read(scratch.path()).unwrap();
        assert_eq!(content.len(), (1 << 20) + 7);
        assert_ne!(content[..64], content[64..128]);
        drop(scratch);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_disk_that_would_be_full_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = Scratch::with_random(folder.path(), u64::MAX / 2).unwrap_err();
        assert!(error.to_string().contains("MiB free"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
