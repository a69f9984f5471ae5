//! An opened input: what it is, how long it is, and whether it is still what it was.
//!
//! The dearer facts (file system, residency, alignment, device) are in `facts.rs`, gathered only
//! when there is a choice to make.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

use crate::error::{Change, Error, ErrorKind};
use crate::facts;
use crate::sys;

/// What kind of thing a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceKind {
    /// A regular file.
    File,
    /// A block device. Its length is that of the device; nothing shows whether it changed.
    BlockDevice,
    /// A pipe or FIFO.
    Pipe,
    /// A terminal.
    Terminal,
    /// A socket.
    Socket,
    /// Another character device, such as `/dev/zero`.
    CharDevice,
}

impl SourceKind {
    /// The name used in messages, with its article.
    pub const fn name(self) -> &'static str {
        match self {
            SourceKind::File => "a regular file",
            SourceKind::BlockDevice => "a block device",
            SourceKind::Pipe => "a pipe",
            SourceKind::Terminal => "a terminal",
            SourceKind::Socket => "a socket",
            SourceKind::CharDevice => "a character device",
        }
    }

    /// Whether any byte of it can be read at any time, so that extents make sense.
    pub const fn is_seekable(self) -> bool {
        matches!(self, SourceKind::File | SourceKind::BlockDevice)
    }
}

/// What `stat` says that changes when a file does. Times in seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The number of the file on its file system.
    pub inode: u64,
    /// What it is, and who may do what with it (`st_mode`).
    pub mode: u32,
    /// Length in bytes.
    pub len: u64,
    /// When its content was last modified, as far as nobody set another time.
    pub mtime: (i64, i64),
    /// When its content or its attributes last changed.
    pub ctime: (i64, i64),
}

impl Stamp {
    /// What a `stat` says.
    pub fn of(stat: &Stat) -> Stamp {
        Stamp {
            inode: stat.st_ino,
            mode: stat.st_mode,
            len: stat.st_size as u64,
            mtime: (stat.st_mtime, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

/// An opened regular file, block device, pipe, terminal, socket or character device.
#[derive(Debug)]
pub struct Source {
    file: File,
    path: PathBuf,
    kind: SourceKind,
    len: u64,
    /// Device number: the one that holds a file, or the one that a device file stands for.
    device: u64,
    stamp: Stamp,
    /// Where reading starts, in bytes.
    start: u64,
    /// Read from the file position to the end, whatever it is.
    is_stream: bool,
    /// Opened with `O_DIRECT`.
    is_direct: bool,
    /// Opened by its path, and not only called so.
    is_at_path: bool,
}

impl Source {
    /// Opens `path` for reading. A FIFO waits for its writer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Open`] with what the kernel says, and for a directory with `EISDIR`.
    pub fn open(path: impl AsRef<Path>) -> Result<Source, Error> {
        let path = path.as_ref();
        match File::open(path) {
            Ok(file) => Ok(Source { is_at_path: true, ..Source::from_file(file, path)? }),
            Err(error) => Err(Error::new(path, ErrorKind::Open(error))),
        }
    }

    /// Takes a file that is already open for reading. `name` is what messages call it.
    ///
    /// A regular file or block device is read whole, wherever its file position is; anything else
    /// is read from where it is to its end.
    ///
    /// # Errors
    ///
    /// As for [`open`](Source::open).
    pub fn from_file(file: File, name: impl AsRef<Path>) -> Result<Source, Error> {
        let path = name.as_ref().to_owned();
        let fail = |operation| {
            let path = path.clone();
            move |error| Error::new(&path, ErrorKind::Inspect { operation, error })
        };
        let stat = rustix::fs::fstat(&file).map_err(io::Error::from).map_err(fail("stat"))?;
        let file_type = FileType::from_raw_mode(stat.st_mode);
        let mut len = 0;
        let mut device = stat.st_dev;
        let kind = if file_type.is_file() {
            len = stat.st_size as u64;
            SourceKind::File
        } else if file_type.is_dir() {
            let error = io::Error::from_raw_os_error(libc::EISDIR);
            return Err(Error::new(&path, ErrorKind::Open(error)));
        } else if file_type.is_block_device() {
            len = sys::block_device_bytes(&file).map_err(fail("ioctl BLKGETSIZE64"))?;
            device = stat.st_rdev;
            SourceKind::BlockDevice
        } else if file_type.is_fifo() {
            SourceKind::Pipe
        } else if file_type.is_socket() {
            SourceKind::Socket
        } else if rustix::termios::isatty(&file) {
            SourceKind::Terminal
        } else {
            SourceKind::CharDevice
        };
        let stamp = Stamp::of(&stat);
        Ok(Source {
            file,
            path,
            kind,
            len,
            device,
            stamp,
            start: 0,
            is_stream: false,
            is_direct: false,
            is_at_path: false,
        })
    }

    /// Takes a file that is already open for reading, to be read from its file position to its end,
    /// one block after another, even if it is a regular file.
    ///
    /// # Errors
    ///
    /// As for [`open`](Source::open).
    pub fn from_stream(file: File, name: impl AsRef<Path>) -> Result<Source, Error> {
        Ok(Source { is_stream: true, ..Source::from_file(file, name)? })
    }

    /// Takes a file that is already open for reading, to be read from its file position on: of a regular file
    /// or block device, what comes after it, in any order and with any engine; of anything else, and of
    /// a file that is read to its end already, what comes.
    ///
    /// # Errors
    ///
    /// As for [`open`](Source::open).
    pub fn from_position(file: File, name: impl AsRef<Path>) -> Result<Source, Error> {
        let mut source = Source::from_file(file, name)?;
        if source.kind.is_seekable() {
            // Where it cannot be told, it is the start.
            source.start = rustix::fs::tell(&source.file).unwrap_or(0);
            // Something may follow that is written from now on.
            source.is_stream = source.start > 0 && source.start >= source.len;
        }
        Ok(source)
    }

    /// Takes a file that was opened with `O_DIRECT`, for a [`Shared`](crate::Shared) that
    /// [opens directly](crate::Shared::opens_directly).
    ///
    /// # Errors
    ///
    /// As for [`open`](Source::open).
    pub fn from_direct(file: File, name: impl AsRef<Path>) -> Result<Source, Error> {
        Ok(Source { is_direct: true, ..Source::from_file(file, name)? })
    }

    /// The name it was opened with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is.
    pub fn kind(&self) -> SourceKind {
        self.kind
    }

    /// Length in bytes at the opening; `None` where only reading to the end tells: pipes and the
    /// like, and regular files of length 0, since those in `/proc` say so and have content.
    #[expect(clippy::len_without_is_empty, reason = "whether it is empty, only reading tells")]
    pub fn len(&self) -> Option<u64> {
        (self.kind.is_seekable() && self.len > 0 && !self.is_stream).then_some(self.len)
    }

    /// Where reading it starts, in bytes from its own start: 0, but for what is read
    /// [from a position](Source::from_position).
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Whether it is read from its file position, though it may be a regular file.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_stream
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The device number (`st_dev`) of the file system that holds a file, or of the device that a
    /// device file stands for.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// What it was at its opening.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Where the first extent of a file lies on its device, in bytes from its start; `None` where the file
    /// system does not say, or nothing was written yet.
    pub fn physical_place(&self) -> Option<u64> {
        let mut place = None;
        let look = |extent: sys::FileExtent| {
            place = Some(extent.physical());
            false
        };
        sys::for_each_extent(&self.file, look).ok()?;
        place
    }

    /// In how many pieces a file lies on its device, holes left out; `None` where the file system does not
    /// say.
    pub fn piece_count(&self) -> Option<u64> {
        let mut count = 0;
        let look = |_| {
            count += 1;
            true
        };
        sys::for_each_extent(&self.file, look).ok()?;
        Some(count)
    }

    /// How much of it is in the page cache, from 0 to 1, by samples if it is long; `None` where that
    /// cannot be told, or it has no length.
    pub fn resident(&self) -> Option<f64> {
        facts::resident(&self.file, self.len()?)
    }

    /// Makes the reads of this open file direct ones, if they are not.
    pub(crate) fn set_direct(&self) -> io::Result<()> {
        match self.is_direct {
            true => Ok(()),
            false => Ok(rustix::fs::fcntl_setfl(&self.file, rustix::fs::OFlags::DIRECT)?),
        }
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Opens the same inode again, with `O_DIRECT`: the flag belongs to the open file, which others
    /// may share (standard input), and a path may name another file by now.
    pub(crate) fn reopen_direct(&self) -> io::Result<File> {
        self.reopen_with(rustix::fs::OFlags::DIRECT)
    }

    /// Opens the same inode again, with a file position of its own.
    pub(crate) fn reopen(&self) -> io::Result<File> {
        self.reopen_with(rustix::fs::OFlags::empty())
    }

    fn reopen_with(&self, flags: rustix::fs::OFlags) -> io::Result<File> {
        use rustix::fs::{Mode, OFlags, open};
        let fd = rustix::fd::AsRawFd::as_raw_fd(&self.file);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | flags;
        Ok(open(format!("/proc/self/fd/{fd}"), flags, Mode::empty())?.into())
    }

    /// Compares size, modification time and change time with those at the opening.
    ///
    /// A block device or a stream has none that would tell. Since Linux 6.13 every write that
    /// follows a look at the times moves them; before, two events within one tick (1-10 ms) may
    /// share a time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Changed`] with what is different.
    pub fn check_unchanged(&self) -> Result<(), Error> {
        self.unchanged().map_err(|kind| Error::new(&self.path, kind))
    }

    pub(crate) fn unchanged(&self) -> Result<(), ErrorKind> {
        if self.kind != SourceKind::File {
            return Ok(());
        }
        let now = match rustix::fs::fstat(&self.file) {
            Ok(stat) => Stamp::of(&stat),
            Err(error) => {
                return Err(ErrorKind::Inspect { operation: "stat", error: error.into() });
            }
        };
        let was = self.stamp;
        let change = if now.len < was.len {
            Change::Shrank { from: was.len, to: now.len }
        } else if now.len > was.len {
            Change::Grew { from: was.len, to: now.len }
        } else if was.len == 0 {
            // Files of /proc have no length and times that mean nothing.
            return Ok(());
        } else if now == was {
            match self.beyond() {
                0 => return Ok(()),
                more => Change::Grew { from: was.len, to: was.len + more },
            }
        } else if now.mtime != was.mtime {
            Change::Rewritten
        } else {
            Change::StatusChanged
        };
        let moved = || self.moved(rustix::fs::stat(&self.path).map_err(io::Error::from));
        let moved = if self.is_at_path { moved() } else { None };
        Err(ErrorKind::Changed(moved.unwrap_or(change)))
    }

    /// Bytes past the length that it says it has: a FUSE server, or one across the network, may say too little,
    /// and whoever reads to the end sees more than was read here. File systems on a disk of their own, whose
    /// device numbers have a major part, know their lengths.
    fn beyond(&self) -> u64 {
        if rustix::fs::major(self.device) != 0 {
            return 0;
        }
        // Where it cannot be asked (a file position for direct reads), it is believed.
        sys::pread_into(self.file.as_fd(), &mut [0], self.stamp.len, 0).unwrap_or(0) as u64
    }

    /// Whether a path that led to this file leads to another by now, or to nothing, as a `stat` of the path
    /// says: of a file that changed, that says more than its times do. For whoever opened the file in a way
    /// of his own; of one that [`open`](Source::open) opened, an error says so already.
    pub fn moved(&self, path: io::Result<Stat>) -> Option<Change> {
        match path {
            Ok(stat) if (stat.st_dev, stat.st_ino) == (self.device, self.stamp.inode) => None,
            Ok(_) => Some(Change::Replaced),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Change::Removed),
            Err(_) => None,
        }
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn temporary(content: &[u8]) -> (tempfile::NamedTempFile, Source) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let source = Source::open(file.path()).unwrap();
        (file, source)
    }

    #[test]
    fn a_change_is_named() {
        let (mut file, source) = temporary(b"four");
        source.check_unchanged().unwrap();
        file.write_all(b"more").unwrap();
        let kind = source.unchanged().unwrap_err();
        assert!(matches!(kind, ErrorKind::Changed(Change::Grew { from: 4, to: 8 })), "{kind}");
        file.as_file().set_len(1).unwrap();
        let kind = source.unchanged().unwrap_err();
        assert!(matches!(kind, ErrorKind::Changed(Change::Shrank { from: 4, to: 1 })), "{kind}");
        file.as_file().set_len(4).unwrap();
        file.as_file().set_modified(std::time::UNIX_EPOCH).unwrap();
        let kind = source.unchanged().unwrap_err();
        assert!(matches!(kind, ErrorKind::Changed(Change::Rewritten)), "{kind}");
        // Whatever else it was: its name is somebody else's.
        let called = Source::from_file(source.reopen().unwrap(), file.path()).unwrap();
        let other = file.path().with_extension("other");
        std::fs::write(&other, b"new!").unwrap();
        std::fs::rename(&other, file.path()).unwrap();
        let change = source.unchanged().unwrap_err().change();
        assert_eq!(change, Some(Change::Replaced));
        // A file that is only called so is not looked for there.
        assert_eq!(called.unchanged().unwrap_err().change(), Some(Change::StatusChanged));
        std::fs::remove_file(file.path()).unwrap();
        assert_eq!(source.unchanged().unwrap_err().change(), Some(Change::Removed));
    }

    #[test]
    fn a_directory_is_refused_and_kinds_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let error = Source::open(dir.path()).unwrap_err();
        assert_eq!(error.kind().to_string(), "Is a directory (os error 21)");
        assert_eq!(Source::open("/dev/zero").unwrap().kind(), SourceKind::CharDevice);
        let (reader, _writer) = io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(reader));
        let pipe = Source::from_file(pipe, "-").unwrap();
        assert_eq!((pipe.kind(), pipe.len()), (SourceKind::Pipe, None));
        assert_eq!(temporary(b"").1.len(), None);
        assert_eq!(Source::open("/proc/self/status").unwrap().len(), None);
    }
}
