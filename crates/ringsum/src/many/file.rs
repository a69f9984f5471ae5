//! A file to be hashed: where it is found, and opening it as what it was seen to be.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use blockring::{ErrorKind, Source, SourceKind, Stamp};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::{Failure, Replacement};
use crate::{Algorithms, walk};

/// A file to be hashed.
pub struct ToHash {
    /// Where it is found.
    pub place: Place,
    /// The device that it is on (`st_dev`), and its number there.
    pub device: u64,
    /// Its number there, by which files are sorted.
    pub inode: u64,
    /// Whether it is a regular file. Others are read one after another, by the function for what is read
    /// alone.
    pub is_regular: bool,
    /// Whether it is read alone though it is a regular file.
    pub alone: bool,
    /// Other bytes of BLAKE3's output may be asked for than the usual 32: otherwise they may not be there
    /// ([`Found::Hash`](super::Found::Hash)).
    pub extended: bool,
    /// What to make of it, if that is something else than of the others.
    pub algorithms: Option<Algorithms>,
}

/// Where a file is found.
pub enum Place {
    /// What a walk came across.
    Entry(walk::Entry),
    /// A name.
    Path(PathBuf),
}

impl From<walk::Entry> for ToHash {
    /// A regular file of a tree, of which BLAKE3's usual 32 bytes are wanted, or what is of the others.
    fn from(entry: walk::Entry) -> ToHash {
        let (device, inode) = (entry.device(), entry.inode());
        ToHash {
            place: Place::Entry(entry),
            device,
            inode,
            is_regular: true,
            alone: false,
            extended: false,
            algorithms: None,
        }
    }
}

impl ToHash {
    /// Opens a regular file. A FIFO that took its place does not hang us, and a link that took the place of
    /// an entry of a tree is not followed.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or is no regular file any more.
    pub fn open(&self) -> Result<Source, Failure> {
        let file = match self.open_with(OFlags::NONBLOCK) {
            // Somebody has a lease on it, and is being told to give it up.
            Err(Failure::Open(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                self.open_patiently()
            }
            opened => opened,
        };
        file.and_then(|file| regular(Source::from_file(file, "")))
    }

    /// Waits for whoever has a lease on the file: and not for a FIFO that takes its place meanwhile, so this is
    /// the inode that was seen to be a regular file, by whatever name.
    fn open_patiently(&self) -> Result<File, Failure> {
        let seen = self.open_with(OFlags::PATH)?;
        let stat = rustix::fs::fstat(&seen).map_err(|error| Failure::Open(error.into()))?;
        let replacement = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => None,
            FileType::Directory => Some(Replacement::Directory),
            FileType::Symlink => Some(Replacement::Link),
            FileType::Fifo => Some(Replacement::Source(SourceKind::Pipe)),
            FileType::Socket => Some(Replacement::Source(SourceKind::Socket)),
            FileType::BlockDevice => Some(Replacement::Source(SourceKind::BlockDevice)),
            _ => Some(Replacement::Source(SourceKind::CharDevice)),
        };
        if let Some(replacement) = replacement {
            return Err(Failure::Replaced(replacement));
        }
        let again = format!("/proc/self/fd/{}", seen.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(again, flags, rustix::fs::Mode::empty());
        opened.map(File::from).map_err(|error| Failure::Open(error.into()))
    }

    /// Opens it for direct reads, or for any where it cannot be had for those.
    pub(super) fn open_direct(&self) -> Result<Source, Failure> {
        let unlucky = [Some(Errno::INVAL), Some(Errno::AGAIN)];
        match self.open_with(OFlags::DIRECT | OFlags::NONBLOCK) {
            Ok(file) => regular(Source::from_direct(file, "")),
            Err(Failure::Open(error)) if unlucky.contains(&Errno::from_io_error(&error)) => {
                self.open()
            }
            Err(failure) => Err(failure),
        }
    }

    fn open_with(&self, flags: OFlags) -> Result<File, Failure> {
        let flags = OFlags::RDONLY | OFlags::NOCTTY | flags;
        let file = match &self.place {
            Place::Entry(entry) => entry.open(flags),
            Place::Path(path) => {
                let flags = flags | OFlags::CLOEXEC;
                rustix::fs::open(path, flags, rustix::fs::Mode::empty()).map_err(io::Error::from)
            }
        };
        file.map(File::from).map_err(|error| self.failure_to_open(error))
    }

    fn failure_to_open(&self, error: io::Error) -> Failure {
        let Place::Entry(entry) = &self.place else { return Failure::Open(error) };
        if entry.is_link_now(&error) {
            return Failure::Replaced(Replacement::Link);
        }
        match error.get_ref().is_some_and(|error| error.is::<walk::Swapped>()) {
            true => Failure::Replaced(Replacement::Parent),
            false => Failure::Open(error),
        }
    }

    /// The same failure with what the name says: of a file that changed, that it leads to another one now.
    pub fn named(&self, source: &Source, failure: Failure) -> Failure {
        if !matches!(failure, Failure::Read(ErrorKind::Changed(_))) {
            return failure;
        }
        let stat = match &self.place {
            Place::Entry(entry) => entry.stat(),
            Place::Path(path) => rustix::fs::stat(path).map_err(io::Error::from),
        };
        let moved = source.moved(stat);
        moved.map_or(failure, |change| Failure::Read(ErrorKind::Changed(change)))
    }

    /// Its directory's descriptor is not needed any more.
    pub(super) fn let_go(&mut self) {
        if let Place::Entry(entry) = &mut self.place {
            entry.forget_directory();
        }
    }

    /// What it is, if that can be had without opening it.
    pub(super) fn stat(&self) -> Option<(u64, Stamp)> {
        let stat = match &self.place {
            Place::Entry(entry) => entry.stat().ok()?,
            Place::Path(path) => rustix::fs::stat(path).ok()?,
        };
        Some((stat.st_dev, Stamp::of(&stat)))
    }
}

/// A regular file, and nothing that took its place.
fn regular(source: Result<Source, blockring::Error>) -> Result<Source, Failure> {
    match source {
        Ok(source) if source.kind() == SourceKind::File => Ok(source),
        Ok(source) => Err(Failure::Replaced(Replacement::Source(source.kind()))),
        Err(error) => match error.into_parts().1 {
            ErrorKind::Open(error) if error.kind() == io::ErrorKind::IsADirectory => {
                Err(Failure::Replaced(Replacement::Directory))
            }
            kind => Err(Failure::Read(kind)),
        },
    }
}

/// What a name stands for, by one `stat`: something to hash, or `None` for a directory.
///
/// # Errors
///
/// What the kernel says.
pub fn look_at(path: &Path) -> io::Result<Option<ToHash>> {
    let stat = rustix::fs::stat(path)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    Ok((!kind.is_dir()).then(|| ToHash {
        place: Place::Path(path.to_owned()),
        device: stat.st_dev,
        inode: stat.st_ino,
        is_regular: kind.is_file(),
        alone: false,
        extended: false,
        algorithms: None,
    }))
}
