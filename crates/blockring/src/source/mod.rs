//! Inputs: opening a source, its kind and length, and whether it changed while it was read.
//!
//! The more expensive facts (file system, residency, alignment, device) are gathered in `facts.rs`,
//! only when there is a choice to make.

pub(crate) mod advise;
pub(crate) mod bypass;
mod device;
mod direct;
pub(crate) mod facts;
pub(crate) mod file_system;
pub(crate) mod fingerprint;
pub(crate) mod holes;
pub(crate) mod residency;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use self::file_system::{Storage, file_system};
use self::fingerprint::Fingerprint;
use crate::config::CacheMode;
use crate::error::{Change, Error, ErrorKind};
use crate::sys;

/// The kind of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceKind {
    /// A regular file.
    File,
    /// A block device. Its length is that of the device; changes cannot be detected.
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
    /// Returns the name in messages, with its article.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            SourceKind::File => "a regular file",
            SourceKind::BlockDevice => "a block device",
            SourceKind::Pipe => "a pipe",
            SourceKind::Terminal => "a terminal",
            SourceKind::Socket => "a socket",
            SourceKind::CharDevice => "a character device",
        }
    }

    /// Whether any byte can be read at any time, so that the source can be read by extents.
    pub(crate) const fn is_seekable(self) -> bool {
        matches!(self, SourceKind::File | SourceKind::BlockDevice)
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Other users of the open file description of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Description {
    /// Possibly another process or the caller: its flags are not changed.
    Shared,
    /// Only this source.
    Exclusive,
    /// Only this source, and it was opened with `O_DIRECT`.
    ExclusiveDirect,
}

/// An opened regular file, block device, pipe, terminal, socket or character device.
#[derive(Debug)]
pub struct Source {
    file: File,
    path: PathBuf,
    kind: SourceKind,
    len: u64,
    /// Bytes of storage of a file, including data that is still in the page cache.
    allocated: u64,
    /// Device number: of the file system of a file, or of the device that a device file names.
    device: u64,
    fingerprint: Fingerprint,
    /// Where reading starts, in bytes.
    start: u64,
    /// Nothing is left of a file or device, but more may be appended: it is read as a stream.
    is_at_end: bool,
    description: Description,
    /// Whether it was opened by its path, not just named by it.
    is_at_path: bool,
}

impl Source {
    /// Opens `path` for reading. Opening a FIFO waits for its writer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Open`] with the kernel's error; for a directory, with `EISDIR`.
    pub fn open(path: impl AsRef<Path>) -> Result<Source, Error> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| Error::new(path, ErrorKind::Open(error)))?;
        let description = Description::Exclusive;
        Ok(Source { is_at_path: true, description, ..Source::new(file, path)? })
    }

    /// Wraps a file that is already open for reading, to be read from its file position to its end.
    /// `name` is its name in messages. The position and the flags of the open file description,
    /// which other processes may share, are unchanged, except that reading a stream moves its
    /// position.
    ///
    /// # Errors
    ///
    /// As for [`open`](Source::open).
    pub fn from_file(file: File, name: impl AsRef<Path>) -> Result<Source, Error> {
        let mut source = Source::new(file, name.as_ref())?;
        if source.kind.is_seekable() {
            // If the position is not available, assume the start.
            source.start = rustix::fs::tell(&source.file).unwrap_or(0);
            // Bytes may be appended from now on.
            source.is_at_end = source.start > 0 && source.start >= source.len;
        }
        Ok(source)
    }

    fn new(file: File, name: &Path) -> Result<Source, Error> {
        let fail =
            |operation| move |error| Error::new(name, ErrorKind::Inspect { operation, error });
        let stat = rustix::fs::fstat(&file).map_err(io::Error::from).map_err(fail("fstat"))?;
        let (mut len, mut device) = (0, stat.st_dev);
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                len = stat.st_size as u64;
                SourceKind::File
            }
            FileType::Directory => {
                let error = io::Error::from_raw_os_error(libc::EISDIR);
                return Err(Error::new(name, ErrorKind::Open(error)));
            }
            FileType::BlockDevice => {
                len = sys::block_device_bytes(&file).map_err(fail("ioctl BLKGETSIZE64"))?;
                device = stat.st_rdev;
                SourceKind::BlockDevice
            }
            FileType::Fifo => SourceKind::Pipe,
            FileType::Socket => SourceKind::Socket,
            _ if rustix::termios::isatty(&file) => SourceKind::Terminal,
            _ => SourceKind::CharDevice,
        };
        Ok(Source {
            file,
            path: name.to_owned(),
            kind,
            len,
            allocated: (stat.st_blocks as u64).saturating_mul(512),
            device,
            fingerprint: Fingerprint::of(&stat),
            start: 0,
            is_at_end: false,
            description: Description::Shared,
            is_at_path: false,
        })
    }

    /// Wraps a file that nothing else uses, so that its open file description can be switched to
    /// direct I/O instead of opening it again. `opened`: [`CacheMode::Direct`] if it was opened
    /// with `O_DIRECT`.
    ///
    /// # Errors
    ///
    /// As for [`open`](Source::open).
    pub fn from_exclusive(
        file: File,
        name: impl AsRef<Path>,
        opened: CacheMode,
    ) -> Result<Source, Error> {
        let description = match opened {
            CacheMode::Direct => Description::ExclusiveDirect,
            _ => Description::Exclusive,
        };
        Ok(Source { description, ..Source::new(file, name.as_ref())? })
    }

    /// Returns the name it was opened with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its kind.
    pub fn kind(&self) -> SourceKind {
        self.kind
    }

    /// Returns the length in bytes, as reported at the opening; `None` if it is read as a stream.
    /// Files of pseudo file systems such as `/proc` report meaningless lengths, often 0: they are
    /// read to their real end.
    #[expect(clippy::len_without_is_empty, reason = "a file in /proc of length 0 is not empty")]
    pub fn len(&self) -> Option<u64> {
        (self.kind.is_seekable() && !self.is_at_end).then_some(self.len)
    }

    /// Returns where reading starts, in bytes: the file position of a file that was [already
    /// open](Source::from_file), 0 for others.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the device number (`st_dev`) of the file system that contains a file, or of the
    /// device that a device file names.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Returns its fingerprint at the opening.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the start of the file's first extent on its device, in bytes; `None` if the file
    /// system does not report it, or nothing has been written to the device yet.
    pub fn physical_offset(&self) -> Option<u64> {
        let mut offset = None;
        let visit = |extent: sys::FileExtent| {
            offset = Some(extent.physical);
            false
        };
        sys::for_each_extent(&self.file, visit).ok()?;
        offset
    }

    /// Returns the share of its bytes in the page cache, 0 to 1, sampled if it is long; `None` if
    /// the kernel does not report it, or the source has no length.
    pub fn resident(&self) -> Option<f64> {
        residency::resident(&self.file, self.len().filter(|len| *len > 0)?)
    }

    /// Compares size, modification time and change time with those at the opening, as a run does at
    /// its end. Changes of a block device or a stream cannot be detected. Since Linux 6.13 every
    /// write that follows a `stat` changes the times; before, two events within one clock tick (1
    /// to 10 ms) may have the same time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Changed`] with the difference.
    pub fn check_unchanged(&self) -> Result<(), Error> {
        self.unchanged().map_err(|kind| Error::new(&self.path, kind))
    }

    /// Whether the kernel generates its bytes on reads, so that its length is meaningless.
    pub fn is_pseudo(&self) -> bool {
        // (Such a file system has no device.)
        self.kind == SourceKind::File
            && rustix::fs::major(self.device) == 0
            && file_system(&self.file).1 == Storage::Pseudo
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn unchanged(&self) -> Result<(), ErrorKind> {
        if self.kind != SourceKind::File {
            return Ok(());
        }
        let Some(change) = self.fingerprint.change(&self.file)? else { return Ok(()) };
        // Report the more specific change: the path now leads to another file, or to nothing.
        let change = match rustix::fs::stat(&self.path) {
            _ if !self.is_at_path => change,
            Ok(now) if (now.st_dev, now.st_ino) != (self.device, self.fingerprint.inode) => {
                Change::Replaced
            }
            Err(Errno::NOENT) => Change::Removed,
            _ => change,
        };
        Err(ErrorKind::Changed(change))
    }

    /// Ends a run, which succeeds only if the source is unchanged. `probes_end`: all of it was
    /// read, and its file system may misreport its length. An error that a change explains is
    /// replaced by the change.
    pub(crate) fn finish(
        &self,
        result: Result<(), ErrorKind>,
        probes_end: bool,
    ) -> Result<(), ErrorKind> {
        let probe = || if probes_end { self.probe_end() } else { Ok(()) };
        match result.and_then(|()| probe()) {
            Ok(()) => self.unchanged(),
            // The bytes ended early, or there were more: the file changed, or its length is
            // misreported.
            Err(ErrorKind::Changed(
                Change::Shrank { to: found, .. } | Change::Grew { to: found, .. },
            )) => {
                let stated = self.fingerprint.len;
                self.unchanged().and(Err(ErrorKind::Length { stated, found }))
            }
            // A page of a mapping is gone: the file was truncated, and may have grown again.
            Err(ErrorKind::Read { offset, len, precision, error })
                if error.raw_os_error() == Some(libc::EFAULT) =>
            {
                self.unchanged().and(Err(ErrorKind::Read { offset, len, precision, error }))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether its file system may misreport its length: the content comes from a program (FUSE),
    /// from another machine, or from a layer below. The kernel's own file systems on disks read
    /// exactly up to the length that they report.
    pub(crate) fn may_misreport_length(&self) -> bool {
        let is_exact = || rustix::fs::major(self.device) != 0 && !file_system::is_fuse(&self.file);
        self.kind == SourceKind::File && !is_exact()
    }

    /// Reads past the reported end, where there must be nothing.
    fn probe_end(&self) -> Result<(), ErrorKind> {
        let len = self.fingerprint.len;
        let mut page = sys::Page([0; 4096]);
        let page_bytes = page.0.len() as u64;
        let (offset, expected) = match self.description {
            // Direct reads are of whole sectors.
            Description::ExclusiveDirect => {
                (len / page_bytes * page_bytes, (len % page_bytes) as usize)
            }
            _ => (len, 0),
        };
        match sys::pread_into(self.file.as_fd(), &mut page.0, offset, 0) {
            Ok(n) if n > expected => {
                let to = offset + n as u64;
                Err(ErrorKind::Changed(Change::Grew { from: len, to }))
            }
            // An error past the end is not an error of the file.
            _ => Ok(()),
        }
    }

    /// Makes reads of its own open file description direct, if they are not yet. `None`: it may be
    /// shared, so the file must be reopened.
    pub(crate) fn make_direct(&mut self) -> Option<io::Result<()>> {
        match self.description {
            Description::Shared => None,
            Description::ExclusiveDirect => Some(Ok(())),
            Description::Exclusive => {
                let set = rustix::fs::fcntl_setfl(&self.file, OFlags::DIRECT);
                if set.is_ok() {
                    self.description = Description::ExclusiveDirect;
                }
                Some(set.map_err(Into::into))
            }
        }
    }

    /// Whether reads of its own open file description are direct.
    pub(crate) fn is_direct(&self) -> bool {
        self.description == Description::ExclusiveDirect
    }

    /// Opens the same inode again, with `O_DIRECT`. (The path may lead to another file by now.)
    pub(crate) fn reopen_direct(&self) -> io::Result<File> {
        self.reopen_with(OFlags::DIRECT)
    }

    /// Opens the same inode again, with its own file position.
    pub(crate) fn reopen(&self) -> io::Result<File> {
        self.reopen_with(OFlags::empty())
    }

    fn reopen_with(&self, flags: OFlags) -> io::Result<File> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | flags;
        Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
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
        // Whatever else changed: its name leads to another file.
        let named = Source::from_file(source.reopen().unwrap(), file.path()).unwrap();
        let other = file.path().with_extension("other");
        std::fs::write(&other, b"new!").unwrap();
        std::fs::rename(&other, file.path()).unwrap();
        let change = |source: &Source| match source.unchanged() {
            Err(ErrorKind::Changed(change)) => change,
            other => panic!("{other:?}"),
        };
        assert_eq!(change(&source), Change::Replaced);
        // The name of a file that was already open need not be its path.
        assert_eq!(change(&named), Change::StatusChanged);
        std::fs::remove_file(file.path()).unwrap();
        assert_eq!(change(&source), Change::Removed);
    }

    #[test]
    fn a_length_that_is_not_the_files_is_told_from_a_change() {
        let (_file, source) = temporary(b"four");
        for (found, read) in
            [(2, Change::Shrank { from: 4, to: 2 }), (5, Change::Grew { from: 4, to: 5 })]
        {
            let kind = source.finish(Err(ErrorKind::Changed(read)), false).unwrap_err();
            assert!(
                matches!(kind, ErrorKind::Length { stated: 4, found: f } if f == found),
                "{kind}"
            );
        }
        source.finish(Ok(()), true).unwrap();
        assert!(!source.is_pseudo());
        assert!(Source::open("/proc/self/status").unwrap().is_pseudo());
    }

    #[test]
    fn flags_of_a_shared_description_are_left_alone() {
        let (file, _) = temporary(&[1; 8192]);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::APPEND;
        let ours = File::from(rustix::fs::open(file.path(), flags, Mode::empty()).unwrap());
        let before = rustix::fs::fcntl_getfl(&ours).unwrap();
        let mut source = Source::from_file(ours.try_clone().unwrap(), "-").unwrap();
        assert!(source.make_direct().is_none());
        let _ = source.reopen_direct();
        assert_eq!(rustix::fs::fcntl_getfl(&ours).unwrap(), before);
    }

    #[test]
    fn a_directory_is_refused_and_kinds_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let error = Source::open(dir.path()).unwrap_err();
        assert_eq!(error.kind.to_string(), "Is a directory (os error 21)");
        assert_eq!(Source::open("/dev/zero").unwrap().kind(), SourceKind::CharDevice);
        let (reader, _writer) = io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(reader));
        let pipe = Source::from_file(pipe, "-").unwrap();
        assert_eq!((pipe.kind(), pipe.len()), (SourceKind::Pipe, None));
        assert_eq!(temporary(b"").1.len(), Some(0));
    }
}
