//! Opening inputs by name, with standard input as `-`, and path conflicts among them.

pub(crate) mod conflicts;

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use blockring::{ErrorKind, Source};
use ringsum::files::{Failure, InputFile};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::cli::standard_streams;

/// Why an input cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error(transparent)]
    Blockring(#[from] blockring::Error),
    #[error("standard input is closed")]
    StdinClosed,
    #[error("standard input can be read only once")]
    StdinUsed,
    #[error("standard input is the key, so it cannot be a file as well")]
    StdinHadKey,
    #[error("standard input is not open for reading")]
    StdinNotReadable,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Open(#[from] Failure),
}

/// The use of standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stdin {
    Unused,
    Key,
    Used,
}

/// The inputs of one invocation.
pub(crate) struct Inputs {
    stdin: Stdin,
}

impl Inputs {
    pub(crate) fn new() -> Inputs {
        Inputs { stdin: Stdin::Unused }
    }

    /// Returns standard input, once.
    fn stdin(&mut self, as_what: Stdin) -> Result<File, InputError> {
        match self.stdin {
            _ if standard_streams::was_closed(libc::STDIN_FILENO) => Err(InputError::StdinClosed),
            Stdin::Used => Err(InputError::StdinUsed),
            Stdin::Key => Err(InputError::StdinHadKey),
            Stdin::Unused => {
                self.stdin = as_what;
                let stdin = rustix::stdio::stdin();
                let flags = rustix::fs::fcntl_getfl(stdin).map_err(io::Error::from)?;
                // (A write-only file could be reopened for direct reads, so check the mode.)
                match flags.intersects(OFlags::WRONLY | OFlags::PATH) {
                    true => Err(InputError::StdinNotReadable),
                    false => Ok(stdin.try_clone_to_owned()?.into()),
                }
            }
        }
    }

    /// Opens a file to hash; `-` is standard input.
    pub(crate) fn open(&mut self, path: &Path) -> Result<Source, InputError> {
        if !is_stdin(path) {
            return match Source::open(path) {
                Err(error) if is_too_long(&error) => open_long(path),
                source => Ok(source?),
            };
        }
        let stdin = self.stdin(Stdin::Used)?;
        // A file is read from its current position.
        Ok(Source::from_file(stdin, path)?)
    }

    fn open_file(&mut self, path: &Path) -> Result<File, InputError> {
        if is_stdin(path) { self.stdin(Stdin::Used) } else { Ok(File::open(path)?) }
    }

    /// Opens an input to be read as a stream, from its position; `-` is standard input.
    pub(crate) fn open_stream(&mut self, path: &Path) -> Result<Source, InputError> {
        Ok(Source::from_file(self.open_file(path)?, path)?)
    }

    /// Opens a checksum file or a list of names; `-` is standard input.
    pub(crate) fn open_list(&mut self, path: &Path) -> Result<File, InputError> {
        let file = self.open_file(path)?;
        match file.metadata()?.is_dir() {
            true => Err(io::Error::from_raw_os_error(libc::EISDIR).into()),
            false => Ok(file),
        }
    }

    /// Reads the key of the keyed mode: the whole of standard input.
    pub(crate) fn key(&mut self) -> anyhow::Result<[u8; 32]> {
        let mut bytes = Vec::new();
        let stdin = Patient(self.stdin(Stdin::Key)?);
        let read = stdin.take(33).read_to_end(&mut bytes);
        read.map_err(|error| anyhow::anyhow!("the key on standard input: {error}"))?;
        bytes.as_slice().try_into().map_err(|_| {
            let found = match bytes.len() {
                33 => "more".to_owned(),
                n => n.to_string(),
            };
            anyhow::anyhow!("standard input must have 32 key bytes, not {found}")
        })
    }

    /// Moves standard input to its end, as reading it would.
    pub(crate) fn finish(&self, source: &Source, path: &Path) {
        if is_stdin(path) && source.len().is_some() {
            let _ = rustix::fs::seek(source, rustix::fs::SeekFrom::End(0));
        }
    }
}

fn is_too_long(error: &blockring::Error) -> bool {
    let ErrorKind::Open(error) = &error.kind else { return false };
    Errno::from_io_error(error) == Some(Errno::NAMETOOLONG)
}

/// Opens a file whose path is longer than `PATH_MAX`.
fn open_long(path: &Path) -> Result<Source, InputError> {
    match InputFile::from_path(path)? {
        Some(file) => Ok(file.open()?),
        None => Err(io::Error::from_raw_os_error(libc::EISDIR).into()),
    }
}

/// A file whose reads block even if it is non-blocking, as a shared standard input may be.
pub(crate) struct Patient(pub(crate) File);

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None) {
                        Ok(_) | Err(rustix::io::Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                result => return result,
            }
        }
    }
}

/// The metadata of an input.
pub(crate) fn metadata(path: &Path) -> io::Result<Metadata> {
    match is_stdin(path) {
        true => std::fs::metadata("/proc/self/fd/0"),
        false => std::fs::metadata(path),
    }
}

pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str().as_bytes() == b"-"
}
