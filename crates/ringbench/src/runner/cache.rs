//! The page cache before a sample: emptied or filled as far as possible, with a check of the result.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use rustix::fs::{Advice, fadvise};

use super::interrupt;

/// How the page cache can be emptied here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropping {
    /// `/proc/sys/vm/drop_caches`: everything, including inodes and directories.
    All,
    /// `POSIX_FADV_DONTNEED` for each file; pages that are mapped elsewhere or not yet written stay.
    ByFile,
}

/// Writing to disks and dropping continue for a moment after the kernel reports their end.
const SETTLE: Duration = Duration::from_millis(300);

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

impl Dropping {
    pub(crate) fn find() -> Dropping {
        match fs::OpenOptions::new().write(true).open(DROP_CACHES) {
            Ok(_) => Dropping::All,
            Err(_) => Dropping::ByFile,
        }
    }

    pub(crate) fn drop_pages(self, paths: &[PathBuf]) -> anyhow::Result<()> {
        if self == Dropping::All {
            rustix::fs::sync();
            fs::write(DROP_CACHES, "3\n").context(DROP_CACHES)?;
            std::thread::sleep(SETTLE);
            return Ok(());
        }
        let mut left = Ok(());
        each_file(paths, &mut |path, file| {
            // Pages that are not yet written cannot be dropped.
            let _ = file.sync_data();
            let _ = fadvise(file, 0, None, Advice::DontNeed);
            let resident = blockring::Source::open(path).ok().and_then(|s| s.resident());
            if let Some(part) = resident.filter(|part| *part > 0.01 && left.is_ok()) {
                let percent = part * 100.0;
                left = Err(anyhow::anyhow!(
                    "{percent:.0} % of {} stayed in the page cache",
                    path.display()
                ));
            }
        })?;
        left
    }
}

/// Reads all of `paths`, so that they are in the page cache as far as they fit.
pub(crate) fn fill(paths: &[PathBuf]) -> anyhow::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut result = Ok(());
    each_file(paths, &mut |path, mut file| {
        while result.is_ok() && !interrupt::is_interrupted() {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                    result = Err(error).with_context(|| path.display().to_string());
                }
                _ => {}
            }
        }
    })?;
    result
}

/// Calls `visit` with each regular file and device under `paths`. Symbolic links in folders are not
/// followed.
pub(crate) fn each_file(
    paths: &[PathBuf],
    visit: &mut dyn FnMut(&Path, &File),
) -> anyhow::Result<()> {
    for path in paths {
        let context = || path.display().to_string();
        if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
            for entry in fs::read_dir(path).with_context(context)?.filter_map(Result::ok) {
                if entry.file_type().is_ok_and(|kind| kind.is_dir() || kind.is_file()) {
                    each_file(&[entry.path()], visit)?;
                }
            }
        } else {
            visit(path, &File::open(path).with_context(context)?);
        }
    }
    Ok(())
}
