//! Who else can change the index: it says what files' hashes are, so that who can change it can hide that a
//! file has changed.

use std::fs::{Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{IndexError, directory};

/// What SQLite finds beside a database, and takes into it.
const BESIDE: [&str; 3] = ["-journal", "-wal", "-shm"];

/// Makes an empty index, for its owner only: names and hashes of all files are nobody else's business.
/// (SQLite makes its journal with the mode of the database.)
///
/// # Errors
///
/// It cannot be made. A link that leads nowhere is not followed to make a file there.
pub(super) fn make(path: &Path) -> Result<(), IndexError> {
    let mut options = OpenOptions::new();
    match options.write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        // Another process did meanwhile, or it is an empty file.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.exists() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let why =
                "it is a link that leads nowhere: name the file itself, or make an empty one there";
            Err(IndexError::Open(path.into(), io::Error::new(error.kind(), why)))
        }
        Err(error) => Err(IndexError::Open(path.into(), error)),
    }
}

/// Refuses what another user has put where everybody may: an index, a link in its place, or a journal beside
/// it, which SQLite would take into the index.
///
/// # Errors
///
/// [`IndexError::Planted`]
pub(super) fn refuse_planted(path: &Path) -> Result<(), IndexError> {
    if !is_for_everybody(&directory(path))
        && !resolved(path).is_some_and(|p| is_for_everybody(&directory(&p)))
    {
        return Ok(());
    }
    for at in [Some(path.to_owned()), resolved(path)].into_iter().flatten() {
        let beside = BESIDE.map(|end| {
            let mut name = at.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        });
        for file in [at].into_iter().chain(beside) {
            if let Ok(metadata) = file.symlink_metadata()
                && is_foreign(&metadata)
            {
                return Err(IndexError::Planted(path.into(), file, metadata.uid()));
            }
        }
    }
    Ok(())
}

/// Who else can change the index, and so have it say anything; `None`: nobody but root.
pub(crate) fn weakness(path: &Path) -> Option<String> {
    let path = resolved(path).unwrap_or_else(|| path.to_owned());
    let directory = directory(&path);
    for (what, metadata) in [("it", path.metadata()), ("its directory", directory.metadata())] {
        let Ok(metadata) = metadata else { continue };
        if is_foreign(&metadata) {
            return Some(format!("{what} belongs to another user ({})", metadata.uid()));
        }
        if metadata.mode() & 0o002 != 0 {
            return Some(format!("everybody can write to {what}"));
        }
    }
    None
}

fn is_for_everybody(directory: &Path) -> bool {
    directory.metadata().is_ok_and(|metadata| metadata.mode() & 0o002 != 0)
}

/// Neither ours nor that of root, who can change everything anyway.
fn is_foreign(metadata: &Metadata) -> bool {
    let owner = metadata.uid();
    owner != 0 && owner != rustix::process::geteuid().as_raw()
}

/// Where a path leads by way of links.
fn resolved(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}
