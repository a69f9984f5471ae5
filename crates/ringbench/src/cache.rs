//! The page cache before a sample: emptied, or filled, as far as that can be had; and whether it was.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use rustix::fs::{Advice, fadvise};

/// What files are to be in the page cache when a sample begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cache {
    /// None of them.
    Cold,
    /// All of them.
    Warm,
    /// It does not matter: reads go past it, or there are none.
    Any,
}

/// How the page cache can be emptied here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropping {
    /// `/proc/sys/vm/drop_caches`: everything, inodes and directories, too.
    All,
    /// `POSIX_FADV_DONTNEED` for each file; what others have mapped or not yet written stays.
    ByFile,
}

/// Writing to disks and dropping goes on for a moment after the kernel says that it has.
const SETTLE: Duration = Duration::from_millis(300);

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

impl Dropping {
    pub(crate) fn find() -> Dropping {
        match fs::OpenOptions::new().write(true).open(DROP_CACHES) {
            Ok(_) => Dropping::All,
            Err(_) => Dropping::ByFile,
        }
    }

    /// Empties the page cache of `paths`, files or folders.
    ///
    /// # Errors
    ///
    /// What could not be dropped, in words.
    pub(crate) fn drop_pages(self, paths: &[PathBuf]) -> anyhow::Result<()> {
        match self {
            Dropping::All => {
                rustix::fs::sync();
                fs::write(DROP_CACHES, "3\n").context(DROP_CACHES)?;
                std::thread::sleep(SETTLE);
                Ok(())
            }
            Dropping::ByFile => {
                let mut left: Option<(PathBuf, f64)> = None;
                each_file(paths, &mut |path, file| {
                    // What is not written yet stays.
                    let _ = file.sync_data();
                    let _ = fadvise(file, 0, None, Advice::DontNeed);
                    let resident = blockring::Source::open(path).ok().and_then(|s| s.resident());
                    if let Some(part) = resident.filter(|part| *part > 0.01) {
                        left.get_or_insert((path.to_owned(), part));
                    }
                })?;
                match left {
                    None => Ok(()),
                    Some((path, part)) => anyhow::bail!(
                        "{:.0} % of {} stayed in the page cache",
                        part * 100.0,
                        path.display()
                    ),
                }
            }
        }
    }
}

/// Reads all of `paths`, so that they are in the page cache as far as they fit.
///
/// # Errors
///
/// What cannot be read.
pub(crate) fn fill(paths: &[PathBuf]) -> anyhow::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut failed = Ok(());
    each_file(paths, &mut |path, mut file| {
        while failed.is_ok() && !crate::interrupt::is_interrupted() {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    failed = Err(error).with_context(|| format!("{}", path.display()));
                }
            }
        }
    })?;
    failed
}

/// Calls `look` with each regular file and device under `paths`, links not followed.
pub(crate) fn each_file(
    paths: &[PathBuf],
    look: &mut dyn FnMut(&Path, &File),
) -> anyhow::Result<()> {
    for path in paths {
        if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
            let entries = fs::read_dir(path).with_context(|| format!("{}", path.display()))?;
            for entry in entries.filter_map(Result::ok) {
                let kind = entry.file_type();
                if kind.is_ok_and(|kind| kind.is_dir() || kind.is_file()) {
                    each_file(&[entry.path()], look)?;
                }
            }
        } else {
            let file = File::open(path).with_context(|| format!("{}", path.display()))?;
            look(path, &file);
        }
    }
    Ok(())
}
