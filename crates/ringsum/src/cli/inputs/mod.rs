//! Opening what the command line and check files name, standard input among it.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use blockring::Source;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;

use crate::start;

/// Why an input cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error(transparent)]
    Blockring(#[from] blockring::Error),
    #[error("standard input is closed")]
    StdinClosed,
    #[error("standard input was read already, and can be read only once")]
    StdinUsed,
    #[error("standard input gave the key, so it cannot be a file, too")]
    StdinHadKey,
    #[error("standard input is not open for reading")]
    StdinNotReadable,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// What has become of standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stdin {
    Unused,
    GaveKey,
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

    /// Standard input, once.
    fn stdin(&mut self, becomes: Stdin) -> Result<File, InputError> {
        match self.stdin {
            _ if start::stdin_was_closed() => Err(InputError::StdinClosed),
            Stdin::Used => Err(InputError::StdinUsed),
            Stdin::GaveKey => Err(InputError::StdinHadKey),
            Stdin::Unused => {
                self.stdin = becomes;
                let stdin = rustix::stdio::stdin();
                let flags = rustix::fs::fcntl_getfl(stdin).map_err(io::Error::from)?;
                // Such a file could still be opened again, for direct reads.
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
            return Ok(Source::open(path)?);
        }
        let stdin = self.stdin(Stdin::Used)?;
        // A file that somebody has read a part of counts from there on.
        Ok(Source::from_position(stdin, path)?)
    }

    /// Opens a file to be read as it comes, from where it is; `-` is standard input.
    pub(crate) fn open_stream(&mut self, path: &Path) -> Result<Source, InputError> {
        let file = match is_stdin(path) {
            true => self.stdin(Stdin::Used)?,
            false => File::open(path)?,
        };
        Ok(Source::from_stream(file, path)?)
    }

    /// Opens a check file; `-` is standard input.
    pub(crate) fn open_list(&mut self, path: &Path) -> Result<File, InputError> {
        let file = match is_stdin(path) {
            true => self.stdin(Stdin::Used)?,
            false => File::open(path)?,
        };
        match file.metadata()?.is_dir() {
            true => Err(io::Error::from_raw_os_error(libc::EISDIR).into()),
            false => Ok(file),
        }
    }

    /// Reads the key of the keyed mode: all of standard input.
    pub(crate) fn key(&mut self) -> anyhow::Result<[u8; 32]> {
        let mut bytes = Vec::new();
        let stdin = Patient(self.stdin(Stdin::GaveKey)?);
        let read = stdin.take(33).read_to_end(&mut bytes);
        read.map_err(|error| anyhow::anyhow!("the key on standard input: {error}"))?;
        bytes.as_slice().try_into().map_err(|_| {
            let found = match bytes.len() {
                33 => "more".to_owned(),
                n => n.to_string(),
            };
            anyhow::anyhow!("the key on standard input must be 32 bytes, and there are {found}")
        })
    }

    /// Leaves standard input at its end, as reading it would have.
    pub(crate) fn finish(&self, source: &Source, path: &Path) {
        if is_stdin(path) && source.kind().is_seekable() {
            let _ = rustix::fs::seek(source, rustix::fs::SeekFrom::End(0));
        }
    }
}

/// A file that is waited for if somebody made it non-blocking, as a shared standard input may be.
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

/// What `stat` says of an input.
pub(crate) fn metadata(path: &Path) -> io::Result<Metadata> {
    match is_stdin(path) {
        true => std::fs::metadata("/proc/self/fd/0"),
        false => std::fs::metadata(path),
    }
}

pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str().as_bytes() == b"-"
}
