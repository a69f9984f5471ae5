//! Where the bytes of a stream go on to while they are consumed: an output, and files.
//!
//! From pipe to pipe they go without a copy: `tee` gives the pages of the one to the other, and only then
//! are they read, for the consumer. Everything else is read and written.

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
use crate::stream::{read_some, wait_for};

/// An output, and files, that all bytes of a stream are written to, in their order.
///
/// What goes from pipe to pipe is not copied. If whoever wrote it still holds the pages (`vmsplice`, or
/// `splice` out of a file that is written to), it may change after it was consumed here.
#[derive(Debug)]
pub struct Onward {
    output: Option<Output>,
    copies: Vec<Copy>,
    bytes: u64,
}

#[derive(Debug)]
struct Output {
    file: File,
    name: PathBuf,
    is_pipe: bool,
}

/// A file that gets all bytes, too.
#[derive(Debug)]
struct Copy {
    file: File,
    path: PathBuf,
    /// Why it does not get any more of them, and after how many.
    failed: Option<(io::Error, u64)>,
}

/// A file that did not get everything.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}; it holds the first {bytes} bytes", path = .path.display())]
pub struct Incomplete {
    /// The file.
    pub path: PathBuf,
    /// Bytes that it got.
    pub bytes: u64,
    /// What the kernel said.
    pub error: io::Error,
}

impl Default for Onward {
    fn default() -> Self {
        Onward::new()
    }
}

impl Onward {
    /// Nowhere, for now.
    pub fn new() -> Onward {
        Onward { output: None, copies: Vec::new(), bytes: 0 }
    }

    /// To an open output as well: `name` is what messages call it. When it takes no more, the run ends. A pipe
    /// is enlarged as far as may be.
    ///
    /// # Errors
    ///
    /// What `fstat` says.
    pub fn to_output(mut self, file: File, name: impl AsRef<Path>) -> io::Result<Onward> {
        let is_pipe = is_pipe(file.as_fd())?;
        if is_pipe {
            pipe::enlarge(&file);
        }
        self.output = Some(Output { file, name: name.as_ref().to_owned(), is_pipe });
        Ok(self)
    }

    /// To a file that is open for writing as well. When that fails, the others go on, and
    /// [`finish`](Onward::finish) says so.
    pub fn to_file(mut self, file: File, path: impl AsRef<Path>) -> Onward {
        self.copies.push(Copy { file, path: path.as_ref().to_owned(), failed: None });
        self
    }

    /// Bytes that went to all that did not fail.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How it goes from `source` to the output, and why so; `None` without an output.
    pub(crate) fn way_from(&self, source: BorrowedFd<'_>) -> Option<(&'static str, &'static str)> {
        let output = self.output.as_ref()?;
        Some(match (is_pipe(source).unwrap_or(false), output.is_pipe) {
            (true, true) => {
                ("tee", "pipe to pipe: the pages are shared, and read once, to consume them")
            }
            (false, _) => ("write", "the input is no pipe: each block is read, and written"),
            (true, false) => ("write", "the output is no pipe: each block is read, and written"),
        })
    }

    /// Reads what is there into `buffer`, waiting for some, after it went on. 0 at the end. An error of the
    /// outer kind is the output's, one of the inner kind the source's.
    pub(crate) fn bring(
        &mut self,
        source: BorrowedFd<'_>,
        buffer: &mut [u8],
    ) -> Result<io::Result<usize>, ErrorKind> {
        let brought = match &mut self.output {
            Some(output) => output.bring(source, buffer),
            None => Ok(read_some(source, buffer)),
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
        for copy in self.copies.iter_mut().filter(|copy| copy.failed.is_none()) {
            if let Err(error) = copy.file.write_all(&buffer[..n]) {
                copy.failed = Some((error, bytes));
            }
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
        let bytes = self.bytes;
        let failed = self.copies.into_iter().filter_map(|Copy { file, path, failed }| {
            let (error, bytes) = match failed {
                Some(failed) => failed,
                None => (sync(&file, &path).err()?, bytes),
            };
            Some(Incomplete { path, bytes, error })
        });
        let failed: Vec<_> = failed.collect();
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }
}

/// A regular file, and the name that it was given in its directory.
fn sync(file: &File, path: &Path) -> io::Result<()> {
    if !file.metadata()?.is_file() {
        // There is nothing to wait for in /dev/null, or in a FIFO.
        return Ok(());
    }
    file.sync_all()?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match File::open(directory).and_then(|directory| directory.sync_all()) {
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

fn is_pipe(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode).is_fifo())
}

impl Output {
    fn bring(
        &mut self,
        source: BorrowedFd<'_>,
        buffer: &mut [u8],
    ) -> io::Result<io::Result<usize>> {
        loop {
            self.wait_for(source)?;
            if self.is_pipe {
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
            let read = read_some(source, buffer);
            if let Ok(n) = read {
                self.write_all(&buffer[..n])?;
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
                Ok(_) if self.is_pipe && fds[1].revents().contains(PollFlags::ERR) => {
                    return Err(Errno::PIPE.into());
                }
                Ok(_) => return Ok(()),
            }
        }
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => bytes = &bytes[n..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_for(self.file.as_fd(), PollFlags::OUT)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
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
