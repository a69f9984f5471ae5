//! Where the bytes of a stream go on to while they are consumed: an output, and files.
//!
//! They are read and written. From pipe to pipe they may go without that copy: `tee` gives the pages of the one
//! to the other, and only then are they read, for the consumer.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, tee};

use crate::error::ErrorKind;
use crate::pipe;
use crate::stream::{Inlet, read_some, wait_for};

/// An output, and files, that all bytes of a stream are written to, in their order.
#[derive(Debug)]
#[must_use = "what became of the files, `finish` says"]
pub struct Onward {
    output: Option<Output>,
    files: Vec<Target>,
    bytes: u64,
}

/// How bytes go from one pipe to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Passing {
    /// They are written: the far end gets the very bytes that were consumed here.
    #[default]
    Copy,
    /// The pages are shared (`tee`). If whoever wrote them still holds them (`vmsplice`, or `splice` out of a file)
    /// and writes to them when they have been read here, **the far end gets other bytes than were
    /// consumed**: only for producers that are known to `write`.
    Share,
}

#[derive(Debug)]
struct Output {
    file: File,
    name: PathBuf,
    is_pipe: bool,
    is_socket: bool,
    passing: Passing,
}

/// A file that gets all bytes, too.
#[derive(Debug)]
struct Target {
    file: File,
    path: PathBuf,
    bytes: u64,
    /// Why it does not get any more of them.
    failed: Option<io::Error>,
}

/// A file that did not get everything.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {}", self.what(), path = .path.display())]
pub struct Incomplete {
    /// The file.
    pub path: PathBuf,
    /// Bytes that it got, from the start.
    pub bytes: u64,
    /// Whether these are all, and only whether they are on the device is not known.
    pub is_whole: bool,
    /// What the kernel said.
    pub error: io::Error,
}

impl Incomplete {
    /// What happened, without the path.
    pub fn what(&self) -> String {
        let Incomplete { bytes, error, .. } = self;
        match self.is_whole {
            true => {
                format!("{error}; it holds all {bytes} bytes, but they may not be on the device")
            }
            false => format!("{error}; it holds the first {bytes} bytes"),
        }
    }
}

impl Default for Onward {
    fn default() -> Self {
        Onward::new()
    }
}

impl Onward {
    /// Nowhere, for now.
    pub fn new() -> Onward {
        Onward { output: None, files: Vec::new(), bytes: 0 }
    }

    /// To an open output as well: `name` is what messages call it. When it takes no more, the run ends. A pipe
    /// is enlarged as far as may be.
    ///
    /// # Errors
    ///
    /// What `fstat` says.
    pub fn to_output(
        mut self,
        file: File,
        name: impl AsRef<Path>,
        passing: Passing,
    ) -> io::Result<Onward> {
        let kind = kind(file.as_fd())?;
        if kind.is_fifo() {
            pipe::enlarge(&file);
        }
        self.output = Some(Output {
            file,
            name: name.as_ref().to_owned(),
            is_pipe: kind.is_fifo(),
            is_socket: kind.is_socket(),
            passing,
        });
        Ok(self)
    }

    /// To a file that is open for writing as well. When that fails, the others go on, and
    /// [`finish`](Onward::finish) says so.
    pub fn to_file(mut self, file: File, path: impl AsRef<Path>) -> Onward {
        let path = path.as_ref().to_owned();
        self.files.push(Target { file, path, bytes: 0, failed: None });
        self
    }

    /// Bytes that were read, and went to all that did not fail.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How it goes from `source` to the output, or to files alone, and why so; `None` if it goes nowhere.
    pub(crate) fn way_from(&self, source: BorrowedFd<'_>) -> Option<(&'static str, String)> {
        let files = match self.files.len() {
            0 => String::new(),
            n => format!("{n} files are written, and synced at the end"),
        };
        let Some(output) = &self.output else {
            return (!files.is_empty()).then_some(("read, write", files));
        };
        let from_pipe = kind(source).is_ok_and(FileType::is_fifo);
        let (way, why) = match (from_pipe && output.is_pipe, output.shares_from(source)) {
            (true, true) => (
                "shared pages",
                "asked for: tee, pipe to pipe; wrong if the producer writes to pages that it gave away",
            ),
            (true, false) => (
                "read, write",
                "pipe to pipe pages could be shared; they are not, since a producer may still hold them",
            ),
            (false, _) if from_pipe => ("read, write", "the output is no pipe"),
            (false, _) => ("read, write", "the input is no pipe"),
        };
        let and = if files.is_empty() { "" } else { "; " };
        Some((way, format!("{why}{and}{files}")))
    }

    /// Reads what is there into `buffer`, waiting for some, after it went on. 0 at the end. An error of the
    /// outer kind is the output's, one of the inner kind the source's.
    pub(crate) fn bring(
        &mut self,
        source: BorrowedFd<'_>,
        inlet: &mut Inlet,
        buffer: &mut [u8],
    ) -> Result<io::Result<usize>, ErrorKind> {
        let brought = match &mut self.output {
            Some(output) => output.bring(source, inlet, buffer),
            None => Ok(inlet.read(source, buffer)),
        };
        let bytes = self.bytes;
        let n = match brought {
            Ok(Ok(n)) => n,
            Ok(Err(error)) => return Ok(Err(error)),
            Err(error) => {
                let to = self.output.as_ref().map(|output| output.name.clone()).unwrap_or_default();
                return Err(ErrorKind::Onward { to, bytes, error });
            }
        };
        for file in &mut self.files {
            file.write(&buffer[..n]);
        }
        self.bytes += n as u64;
        Ok(Ok(n))
    }

    /// All bytes were given: the files are brought to their devices (`fsync`).
    ///
    /// # Errors
    ///
    /// The files that could not be written, or not brought there.
    pub fn finish(self) -> Result<(), Vec<Incomplete>> {
        let failed = self.files.into_iter().filter_map(|Target { file, path, bytes, failed }| {
            let is_whole = failed.is_none();
            let error = failed.or_else(|| sync(&file, &path).err())?;
            Some(Incomplete { path, bytes, is_whole, error })
        });
        let failed: Vec<_> = failed.collect();
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }
}

impl Target {
    fn write(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            let (done, error) = write_all(&mut self.file, bytes);
            self.bytes += done as u64;
            self.failed = error;
        }
    }
}

/// Brings a file to its device, and the name that it was given in its directory.
fn sync(file: &File, path: &Path) -> io::Result<()> {
    match file.sync_all() {
        // There is nothing to wait for in /dev/null, or in a FIFO.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(()),
        result => result?,
    }
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    // Where a link led to.
    let path = path.canonicalize()?;
    match File::open(path.parent().unwrap_or(Path::new("/")))
        .and_then(|directory| directory.sync_all())
    {
        // Not every file system can do that, and a directory may be closed to us.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(())
        }
        result => result,
    }
}

fn kind(fd: BorrowedFd<'_>) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode))
}

impl Output {
    fn bring(
        &mut self,
        source: BorrowedFd<'_>,
        inlet: &mut Inlet,
        buffer: &mut [u8],
    ) -> io::Result<io::Result<usize>> {
        loop {
            if !inlet.has_some() {
                self.wait_for(source)?;
            }
            if self.shares_from(source) && !inlet.has_some() {
                match tee(source, &self.file, buffer.len(), SpliceFlags::empty()) {
                    // Of no pipe there is nothing to share.
                    Err(Errno::INVAL) => {}
                    Err(Errno::INTR) => continue,
                    // One of the two does not block.
                    Err(Errno::AGAIN) => {
                        wait_for(self.file.as_fd(), PollFlags::OUT)?;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                    // The end, unless the kernel had only an empty piece.
                    Ok(0) => {}
                    Ok(n) => return Ok(read_exactly(source, &mut buffer[..n])),
                }
            }
            let read = inlet.read(source, buffer);
            if let Ok(n) = read
                && let (_, Some(error)) = write_all(&mut self.file, &buffer[..n])
            {
                return Err(error);
            }
            return Ok(read);
        }
    }

    /// Waits until there is something to read. Whoever read our output may be gone long before.
    fn wait_for(&self, source: BorrowedFd<'_>) -> io::Result<()> {
        let mut fds = [
            PollFd::from_borrowed_fd(source, PollFlags::IN),
            PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::empty()),
        ];
        loop {
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                // A source that cannot be waited for says itself what is wrong.
                Err(_) => return Ok(()),
                Ok(_) if self.is_left(fds[1].revents()) => return Err(Errno::PIPE.into()),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Whether pages go from one pipe to the other. Not from a pipe in packet mode, whose packets would be cut.
    fn shares_from(&self, source: BorrowedFd<'_>) -> bool {
        let in_packets = || {
            let flags = rustix::fs::fcntl_getfl(source);
            flags.is_ok_and(|flags| flags.contains(rustix::fs::OFlags::DIRECT))
        };
        self.is_pipe && self.passing == Passing::Share && !in_packets()
    }

    fn is_left(&self, events: PollFlags) -> bool {
        (self.is_pipe && events.contains(PollFlags::ERR))
            || (self.is_socket && events.contains(PollFlags::HUP))
    }
}

/// Writes all of `bytes`. How many were written, and why no more.
fn write_all(file: &mut File, bytes: &[u8]) -> (usize, Option<io::Error>) {
    let mut done = 0;
    while done < bytes.len() {
        let error = match file.write(&bytes[done..]) {
            Ok(0) => io::ErrorKind::WriteZero.into(),
            Ok(n) => {
                done += n;
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                match wait_for(file.as_fd(), PollFlags::OUT) {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        return (done, Some(error));
    }
    (done, None)
}

/// Reads what was shared already: it is all there.
fn read_exactly(source: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match read_some(source, &mut buffer[done..]) {
            Ok(0) => {
                let why = "another process reads the same pipe, and took what was to be hashed";
                return Err(io::Error::other(why));
            }
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
