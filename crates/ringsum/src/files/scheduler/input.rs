//! A file to hash: its location, and opening it as the type of file that it was listed as.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use blockring::{CacheMode, Change, ErrorKind, Fingerprint, Source, SourceKind};
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;

use super::Failure;
use crate::Algorithms;
use crate::files::{long_path, walk};

/// A file to hash.
pub struct InputFile {
    /// Where it is.
    pub location: Location,
    /// The device number of its file system (`st_dev`).
    pub device: u64,
    /// Its inode number, by which files are sorted.
    pub inode: u64,
    /// Whether it is a regular file. Others are hashed by [`FilesOptions::hash_one`].
    ///
    /// [`FilesOptions::hash_one`]: super::FilesOptions::hash_one
    pub is_regular: bool,
    /// Whether it is hashed by [`FilesOptions::hash_one`] even if it is a regular file.
    ///
    /// [`FilesOptions::hash_one`]: super::FilesOptions::hash_one
    pub is_separate: bool,
    /// Whether more of BLAKE3's output is needed than its first 32 bytes
    /// ([`Digest::output`](crate::Digest::output)). If not, short files are hashed together.
    pub extended: bool,
    /// Its algorithms, if they differ from those of the run.
    pub algorithms: Option<Algorithms>,
}

/// The location of a file.
pub enum Location {
    /// An entry of a walk.
    Entry(walk::Entry),
    /// A path of any length.
    Path(PathBuf),
}

impl From<walk::Entry> for InputFile {
    /// A regular file of a tree.
    fn from(entry: walk::Entry) -> InputFile {
        let (device, inode) = entry.id();
        InputFile {
            location: Location::Entry(entry),
            device,
            inode,
            is_regular: true,
            is_separate: false,
            extended: false,
            algorithms: None,
        }
    }
}

impl InputFile {
    /// Returns the file at a path, after one `stat`; `None` for a directory.
    ///
    /// # Errors
    ///
    /// The error of `stat`.
    pub fn from_path(path: &Path) -> io::Result<Option<InputFile>> {
        let stat = long_path::stat(path)?;
        let file_type = FileType::from_raw_mode(stat.st_mode);
        Ok((!file_type.is_dir()).then(|| InputFile {
            location: Location::Path(path.to_owned()),
            device: stat.st_dev,
            inode: stat.st_ino,
            is_regular: file_type.is_file(),
            is_separate: false,
            extended: false,
            algorithms: None,
        }))
    }

    /// Opens a regular file. A FIFO that has replaced it does not block, and a link that has
    /// replaced an entry of a tree is not followed.
    ///
    /// # Errors
    ///
    /// If it cannot be opened, or is no longer a regular file.
    pub fn open(&self) -> Result<Source, Failure> {
        let file = match self.open_with(OFlags::NONBLOCK) {
            // Another process has a lease on it; the kernel has asked it to release the lease.
            Err(Failure::Open(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                self.open_leased()
            }
            opened => opened,
        };
        file.and_then(|file| regular(Source::from_exclusive(file, "", CacheMode::Buffered)))
    }

    /// Waits for the process that has a lease on the file, but not for a FIFO that may meanwhile
    /// replace it: it opens the inode seen to be a regular file, whatever has its name.
    fn open_leased(&self) -> Result<File, Failure> {
        let seen = self.open_with(OFlags::PATH)?;
        let stat = rustix::fs::fstat(&seen).map_err(|error| Failure::Open(error.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => (),
            FileType::Directory => return Err(replaced_by(DIRECTORY)),
            FileType::Symlink => return Err(replaced_by(LINK)),
            FileType::Fifo => return Err(replaced_by(SourceKind::Pipe)),
            FileType::Socket => return Err(replaced_by(SourceKind::Socket)),
            FileType::BlockDevice => return Err(replaced_by(SourceKind::BlockDevice)),
            _ => return Err(replaced_by(SourceKind::CharDevice)),
        }
        let reopened = format!("/proc/self/fd/{}", seen.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(reopened, flags, rustix::fs::Mode::empty());
        opened.map(File::from).map_err(|error| Failure::Open(error.into()))
    }

    /// Opens it for direct reads, or for buffered reads if those are not supported.
    pub(super) fn open_direct(&self) -> Result<Source, Failure> {
        let refusals = [Some(Errno::INVAL), Some(Errno::AGAIN)];
        match self.open_with(OFlags::DIRECT | OFlags::NONBLOCK) {
            Ok(file) => regular(Source::from_exclusive(file, "", CacheMode::Direct)),
            Err(Failure::Open(error)) if refusals.contains(&Errno::from_io_error(&error)) => {
                self.open()
            }
            Err(failure) => Err(failure),
        }
    }

    fn open_with(&self, flags: OFlags) -> Result<File, Failure> {
        let flags = OFlags::RDONLY | OFlags::NOCTTY | flags;
        let file = match &self.location {
            Location::Entry(entry) => entry.open_with(flags),
            Location::Path(path) => long_path::open(path, flags | OFlags::CLOEXEC),
        };
        file.map(File::from).map_err(|error| self.open_failure(error))
    }

    fn open_failure(&self, error: io::Error) -> Failure {
        let Location::Entry(entry) = &self.location else { return Failure::Open(error) };
        if entry.is_link_now(&error) {
            return replaced_by(LINK);
        }
        match error.get_ref().is_some_and(|error| error.is::<walk::Swapped>()) {
            true => Failure::Replaced(OTHER_PARENT.to_owned()),
            false => Failure::Open(error),
        }
    }

    /// Makes a failure of an opened file more precise: if the file changed, its name may now refer
    /// to another file, or to none.
    pub fn explain(&self, source: &Source, failure: Failure) -> Failure {
        if !matches!(failure, Failure::Read(ErrorKind::Changed(_))) {
            return failure;
        }
        let seen = (source.device(), source.fingerprint().inode);
        let change = match self.stat() {
            Ok(now) if (now.st_dev, now.st_ino) != seen => Change::Replaced,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Change::Removed,
            _ => return failure,
        };
        Failure::Read(ErrorKind::Changed(change))
    }

    /// Releases the descriptor of its directory.
    pub(super) fn release(&mut self) {
        if let Location::Entry(entry) = &mut self.location {
            entry.forget_directory();
        }
    }

    /// Returns its device number and fingerprint, by name.
    pub(super) fn fingerprint(&self) -> Option<(u64, Fingerprint)> {
        let stat = self.stat().ok()?;
        let fingerprint = Fingerprint {
            inode: stat.st_ino,
            mode: stat.st_mode,
            len: stat.st_size as u64,
            mtime: (stat.st_mtime, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime, stat.st_ctime_nsec as i64),
        };
        Some((stat.st_dev, fingerprint))
    }

    fn stat(&self) -> io::Result<Stat> {
        match &self.location {
            Location::Entry(entry) => entry.stat(),
            Location::Path(path) => long_path::stat(path),
        }
    }
}

const DIRECTORY: &str = "a directory";
const LINK: &str = "a symbolic link";

/// Its path may lead to a file of another tree.
pub(crate) const OTHER_PARENT: &str = "its directory is not the one that was listed";

fn replaced_by(what: impl Display) -> Failure {
    Failure::Replaced(format!("it was listed as a regular file and is {what} now"))
}

/// Rejects anything but a regular file as a replacement of one.
fn regular(source: Result<Source, blockring::Error>) -> Result<Source, Failure> {
    match source {
        Ok(source) if source.kind() == SourceKind::File => Ok(source),
        Ok(source) => Err(replaced_by(source.kind())),
        Err(error) => match error.kind {
            ErrorKind::Open(error) if error.kind() == io::ErrorKind::IsADirectory => {
                Err(replaced_by(DIRECTORY))
            }
            kind => Err(Failure::Read(kind)),
        },
    }
}
