//! Reading streams (pipes, terminals, sockets, files without extents), and copying them.

mod packets;
pub(crate) mod stream_supply;
pub(crate) mod tee;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};

/// Largest size requested for a pipe, in bytes: the default limit of unprivileged users. For 1 GiB
/// of `cat FILE |`, 256 KiB, 512 KiB and 1 MiB differed by no more than the noise (0.293, 0.301 and
/// 0.289 s). `write` and `read` transfer 0.9 GiB/s through 64 KiB, and 1.8 to 2.4 through 1 MiB.
pub(crate) const PIPE_BYTES_MAX: usize = 1 << 20;

/// The capacity of a pipe, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PipeSize {
    /// Before: 64 KiB by default, and one or two pages for a user whose pipes are already large.
    pub(crate) was: usize,
    /// Now.
    pub(crate) is: usize,
}

/// Enlarges a pipe, from either end, as far as the system allows (`/proc/sys/fs/pipe-max-size`) and
/// up to [`PIPE_BYTES_MAX`]. If that exceeds the total allowed for the user's pipes (see pipe(7)),
/// smaller sizes are tried; in the worst case its size is unchanged. `None`: it is not a pipe.
pub(crate) fn enlarge_pipe(pipe: impl AsFd) -> Option<PipeSize> {
    let was = fcntl_getpipe_size(&pipe).ok()?;
    let limit = std::fs::read_to_string("/proc/sys/fs/pipe-max-size");
    let limit = limit.ok().and_then(|text| text.trim().parse().ok());
    let mut wanted = limit.unwrap_or(PIPE_BYTES_MAX).min(PIPE_BYTES_MAX);
    while wanted > was {
        if fcntl_setpipe_size(&pipe, wanted).is_ok() {
            break;
        }
        wanted /= 2;
    }
    Some(PipeSize { was, is: fcntl_getpipe_size(&pipe).unwrap_or(was) })
}

/// Reads the available bytes, waiting for some; returns 0 at the end.
fn read_some(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(fd, &mut *buffer) {
            // Another process made the shared standard input non-blocking: wait for it.
            Err(Errno::AGAIN) => wait_for(fd, PollFlags::IN)?,
            result => return Ok(result?),
        }
    }
}

/// Waits until `fd` is ready for `events`.
pub(crate) fn wait_for(fd: BorrowedFd<'_>, events: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::from_borrowed_fd(fd, events)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until a read of `fd` would not block, but not longer than `patience`. Returns whether it is
/// ready.
fn is_ready(fd: BorrowedFd<'_>, patience: &Timespec) -> io::Result<bool> {
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(patience)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    #[test]
    fn a_pipe_is_enlarged_and_nothing_else() {
        let (reader, writer) = io::pipe().unwrap();
        let page_bytes = sys::page_bytes();
        fcntl_setpipe_size(&writer, page_bytes).unwrap();
        let size = enlarge_pipe(&reader).unwrap();
        assert!(
            size.was == page_bytes && size.is >= size.was && size.is <= PIPE_BYTES_MAX,
            "{size:?}"
        );
        let again = enlarge_pipe(&writer).unwrap();
        assert_eq!((again.was, again.is), (size.is, size.is));
        assert_eq!(enlarge_pipe(std::fs::File::open("/dev/null").unwrap()), None);
    }
}
