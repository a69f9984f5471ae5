//! The safety of the index: a user who can write to it can hide that a file has changed.

use std::fs::{Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{IndexError, directory};

/// Suffixes of the files that SQLite creates beside a database, and merges into it.
pub(crate) const COMPANIONS: [&str; 3] = ["-journal", "-wal", "-shm"];

/// Creates an empty index that only its owner can read, because names and hashes of files are
/// private. (SQLite creates its journal with the mode of the database.) A dangling link is not
/// followed.
pub(super) fn make(path: &Path) -> Result<(), IndexError> {
    let mut options = OpenOptions::new();
    match options.write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        // (Another process has just created it, or it is an empty file.)
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.exists() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let why = "it is a dangling link: name the file itself, or create an empty one there";
            Err(IndexError::Open(path.into(), io::Error::new(error.kind(), why)))
        }
        Err(error) => Err(IndexError::Open(path.into(), error)),
    }
}

/// Refuses files that another user may have planted in a world-writable directory: an index, a link
/// in its place, or a journal beside it, which SQLite would merge into the index.
pub(super) fn refuse_planted(path: &Path) -> Result<(), IndexError> {
    if !is_world_writable(&directory(path))
        && !resolved(path).is_some_and(|p| is_world_writable(&directory(&p)))
    {
        return Ok(());
    }
    for at in [Some(path.to_owned()), resolved(path)].into_iter().flatten() {
        let companions = COMPANIONS.map(|end| {
            let mut name = at.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        });
        for file in [at].into_iter().chain(companions) {
            if let Ok(metadata) = file.symlink_metadata()
                && is_foreign(&metadata)
            {
                return Err(IndexError::Planted(path.into(), file, metadata.uid()));
            }
        }
    }
    Ok(())
}

/// Returns how other users can write to the index, if they can. (Root always can.)
pub(crate) fn weakness(path: &Path) -> Option<String> {
    let path = resolved(path).unwrap_or_else(|| path.to_owned());
    let directory = directory(&path);
    for (what, metadata) in [("it", path.metadata()), ("its directory", directory.metadata())] {
        let Ok(metadata) = metadata else { continue };
        if is_foreign(&metadata) {
            return Some(format!("{what} belongs to another user ({})", metadata.uid()));
        }
        if metadata.mode() & 0o002 != 0 {
            return Some(format!("{what} is world-writable"));
        }
    }
    None
}

fn is_world_writable(directory: &Path) -> bool {
    directory.metadata().is_ok_and(|metadata| metadata.mode() & 0o002 != 0)
}

/// Whether the owner is neither this user nor root.
fn is_foreign(metadata: &Metadata) -> bool {
    let owner = metadata.uid();
    owner != 0 && owner != rustix::process::geteuid().as_raw()
}

/// The path with all links resolved.
fn resolved(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}
