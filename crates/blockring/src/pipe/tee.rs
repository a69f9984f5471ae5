//! Copies a stream to an output, and to files, while it is consumed.
//!
//! Bytes are read and written. From pipe to pipe the write can be avoided: `tee(2)` shares the
//! pages of one pipe with the other, and the bytes are then read for the consumer.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, tee};

use super::packets::PacketReader;
use super::{enlarge_pipe, read_some, wait_for};
use crate::error::{Error, ErrorKind};

/// An output and files to which all bytes of a stream are written, in order.
#[derive(Debug, Default)]
#[must_use = "`finish` reports whether the files are complete"]
pub struct Tee {
    output: Option<Output>,
    files: Vec<FileCopy>,
    bytes: u64,
}

/// How bytes are transferred from one pipe to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TeeMode {
    /// They are written: the output gets exactly the bytes that were consumed.
    #[default]
    Copy,
    /// The pages are shared (`tee(2)`). If the producer still has access to them (`vmsplice`, or
    /// `splice` out of a file) and writes to them after they have been read here, **the output
    /// differs from what was consumed**: only for producers that are known to `write`.
    Share,
}

#[derive(Debug)]
struct Output {
    file: File,
    name: PathBuf,
    kind: FileType,
    mode: TeeMode,
}

/// A file to which all bytes are written.
#[derive(Debug)]
struct FileCopy {
    file: File,
    path: PathBuf,
    bytes: u64,
    /// Why nothing more is written to it.
    failed: Option<io::Error>,
}

impl Tee {
    /// Adds an open output; `name` is its name in messages. If it can no longer be written to, the
    /// run ends. A pipe is enlarged as far as the system allows.
    ///
    /// # Errors
    ///
    /// The error of `fstat`.
    pub fn output(mut self, file: File, name: impl AsRef<Path>, mode: TeeMode) -> io::Result<Tee> {
        let kind = kind(file.as_fd())?;
        if kind.is_fifo() {
            enlarge_pipe(&file);
        }
        let name = name.as_ref().to_owned();
        self.output = Some(Output { file, name, kind, mode });
        Ok(self)
    }

    /// Adds a file that is open for writing. If writing to it fails, the run continues with the
    /// other outputs, and [`finish`](Tee::finish) reports the failure.
    pub fn file(mut self, file: File, path: impl AsRef<Path>) -> Tee {
        let path = path.as_ref().to_owned();
        self.files.push(FileCopy { file, path, bytes: 0, failed: None });
        self
    }

    /// Describes how bytes get from `source` to the outputs, and why; `None` without outputs.
    pub(crate) fn describe(&self, source: BorrowedFd<'_>) -> Option<(&'static str, String)> {
        let files = match self.files.len() {
            0 => String::new(),
            1 => "a file is written, and synced at the end".to_owned(),
            n => format!("{n} files are written, and synced at the end"),
        };
        let Some(output) = &self.output else {
            return (!files.is_empty()).then_some(("read, write", files));
        };
        let from_pipe = kind(source).is_ok_and(FileType::is_fifo);
        let (how, why) = match (from_pipe && output.kind.is_fifo(), output.shares_from(source)) {
            (true, true) => (
                "shared pages",
                "explicit: tee, pipe to pipe; wrong if the producer writes to pages that it gave away",
            ),
            (true, false) => (
                "read, write",
                "pipe to pipe, pages could be shared; they are not, since a producer may still hold \
                 them",
            ),
            (false, _) if from_pipe => ("read, write", "the output is not a pipe"),
            (false, _) => ("read, write", "the input is not a pipe"),
        };
        let and = if files.is_empty() { "" } else { "; " };
        Some((how, format!("{why}{and}{files}")))
    }

    /// Reads the available bytes into `buffer`, waiting for some, and writes them to all
    /// destinations. Returns 0 at the end. An error of the outer type is the output's, one of the
    /// inner type the source's.
    pub(super) fn read(
        &mut self,
        source: BorrowedFd<'_>,
        packets: &mut PacketReader,
        buffer: &mut [u8],
    ) -> Result<io::Result<usize>, ErrorKind> {
        let read = match &mut self.output {
            Some(output) => output.read(source, packets, buffer),
            None => Ok(packets.read(source, buffer)),
        };
        let bytes = self.bytes;
        let n = match read {
            Ok(Ok(n)) => n,
            Ok(Err(error)) => return Ok(Err(error)),
            Err(error) => {
                let to = self.output.as_ref().map(|output| output.name.clone()).unwrap_or_default();
                return Err(ErrorKind::Tee { to, bytes, error });
            }
        };
        for file in &mut self.files {
            file.write(&buffer[..n]);
        }
        self.bytes += n as u64;
        Ok(Ok(n))
    }

    /// Completes the copies: syncs the files to their devices (`fsync`).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TeeFile`] or [`ErrorKind::TeeSync`] for each file not written or not synced.
    pub fn finish(self) -> Result<(), Vec<Error>> {
        let failed = self.files.into_iter().filter_map(|FileCopy { file, path, bytes, failed }| {
            let kind = match failed {
                Some(error) => ErrorKind::TeeFile { bytes, error },
                None => ErrorKind::TeeSync { bytes, error: sync(&file, &path).err()? },
            };
            Some(Error { path, kind })
        });
        let failed: Vec<_> = failed.collect();
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }
}

impl FileCopy {
    fn write(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            let (done, error) = write_all(&self.file, bytes);
            self.bytes += done as u64;
            self.failed = error;
        }
    }
}

/// Syncs a file, and the directory that contains it.
fn sync(file: &File, path: &Path) -> io::Result<()> {
    match file.sync_all() {
        // /dev/null and FIFOs have nothing to sync.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(()),
        result => result?,
    }
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    // The directory of the target, if it is a link.
    let path = path.canonicalize()?;
    let directory = File::open(path.parent().unwrap_or(Path::new("/")));
    let synced = directory.and_then(|directory| directory.sync_all());
    match synced.as_ref().map_err(io::Error::kind) {
        // Not every file system can sync a directory, and it may not be readable.
        Err(io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => Ok(()),
        _ => synced,
    }
}

fn kind(fd: BorrowedFd<'_>) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode))
}

impl Output {
    fn read(
        &mut self,
        source: BorrowedFd<'_>,
        packets: &mut PacketReader,
        buffer: &mut [u8],
    ) -> io::Result<io::Result<usize>> {
        loop {
            if !packets.has_kept() {
                self.wait_for(source)?;
            }
            if self.shares_from(source) && !packets.has_kept() {
                match tee(source, &self.file, buffer.len(), SpliceFlags::empty()) {
                    // The source is not a pipe: nothing to share.
                    Err(Errno::INVAL) => {}
                    Err(Errno::INTR) => continue,
                    // One of the two is non-blocking.
                    Err(Errno::AGAIN) => {
                        wait_for(self.file.as_fd(), PollFlags::OUT)?;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                    // The end, unless the kernel had only an empty buffer.
                    Ok(0) => {}
                    Ok(n) => return Ok(read_exactly(source, &mut buffer[..n])),
                }
            }
            let read = packets.read(source, buffer);
            if let Ok(n) = read
                && let (_, Some(error)) = write_all(&self.file, &buffer[..n])
            {
                return Err(error);
            }
            return Ok(read);
        }
    }

    /// Waits for input. Meanwhile, checks whether the reader of the output has closed it.
    fn wait_for(&self, source: BorrowedFd<'_>) -> io::Result<()> {
        let mut fds = [
            PollFd::from_borrowed_fd(source, PollFlags::IN),
            PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::empty()),
        ];
        loop {
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                // If the source cannot be polled, reading it reports the error.
                Err(_) => return Ok(()),
                Ok(_) if self.is_closed(fds[1].revents()) => return Err(Errno::PIPE.into()),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Whether pages are shared from one pipe to the other. Not from a pipe in packet mode, because
    /// that would split packets.
    fn shares_from(&self, source: BorrowedFd<'_>) -> bool {
        let has_packets = || {
            let flags = rustix::fs::fcntl_getfl(source);
            flags.is_ok_and(|flags| flags.contains(rustix::fs::OFlags::DIRECT))
        };
        self.kind.is_fifo() && self.mode == TeeMode::Share && !has_packets()
    }

    fn is_closed(&self, events: PollFlags) -> bool {
        (self.kind.is_fifo() && events.contains(PollFlags::ERR))
            || (self.kind.is_socket() && events.contains(PollFlags::HUP))
    }
}

/// Writes all of `bytes`. Returns how many were written, and the error, if any.
fn write_all(file: &File, bytes: &[u8]) -> (usize, Option<io::Error>) {
    let mut done = 0;
    while done < bytes.len() {
        let written = match rustix::io::write(file, &bytes[done..]) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                done += n;
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(Errno::AGAIN) => wait_for(file.as_fd(), PollFlags::OUT),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = written {
            return (done, Some(error));
        }
    }
    (done, None)
}

/// Reads exactly the bytes that have been shared, which are all available.
fn read_exactly(source: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match read_some(source, &mut buffer[done..]) {
            Ok(0) => {
                let why =
                    "another process reads the same pipe, and took bytes that were to be hashed";
                return Err(io::Error::other(why));
            }
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
