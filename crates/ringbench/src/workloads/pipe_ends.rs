//! The two ends of a pipe: memory that goes in by reference, and bytes that come out with or without
//! a copy.
//!
//! `ringbench pipe` and the examples `pipe_source` and `pipe_sink` use them; `bench/RESULTS.md` has the
//! measurements. In short: the size of the pipe matters most; a source saves its copy by lending its
//! pages (`vmsplice`); a sink that does not look at the bytes can move them on (`splice`), any other
//! has to copy them.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use blockring::{Buffer, HugePages, Wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, preadv2};
use rustix::pipe::{IoSliceRaw, SpliceFlags, fcntl_getpipe_size, splice, vmsplice};

/// Time until a sender checks again whether the far end has read something: no event reports it.
const CHECK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Memory that is refilled again and again, and goes into a pipe without a copy.
///
/// It has two halves, each as large as the pipe: one is filled while the other is in the pipe. A half
/// is only refilled after the far end has taken all of it out of the pipe. **Taken out does not mean
/// consumed**: a far end that passes the pages on instead of reading them (`tee`, or `splice` into
/// another pipe or a socket) keeps them longer, and sees bytes that are written later. Use it only if
/// the far end is known to `read`, or to discard what it splices.
#[derive(Debug)]
pub struct DoubleBuffer<P> {
    pipe: P,
    memory: Buffer,
    half_bytes: usize,
    /// The half to fill next, 0 or 1.
    half: usize,
    /// Bytes of each half that were sent last.
    sent: [usize; 2],
}

impl<P: AsFd> DoubleBuffer<P> {
    /// Allocates twice the present size of `pipe`.
    pub fn new(pipe: P, pages: HugePages) -> io::Result<DoubleBuffer<P>> {
        let half_bytes = fcntl_getpipe_size(&pipe)?.next_multiple_of(rustix::param::page_size());
        let len = u32::try_from(2 * half_bytes).map_err(|_| Errno::OVERFLOW)?;
        let memory = Buffer::new(len, pages).map_err(io::Error::other)?;
        Ok(DoubleBuffer { pipe, memory, half_bytes, half: 0, sent: [0; 2] })
    }

    fn range(&self, bytes: Range<usize>) -> Range<usize> {
        let start = self.half * self.half_bytes;
        start + bytes.start..start + bytes.end
    }

    /// Returns the half to fill, as soon as nothing of it is in the pipe; it still has its old content.
    /// Waiting takes 1 ms at a time, and is only necessary if less than a half was sent since.
    pub fn to_fill(&mut self) -> io::Result<&mut [u8]> {
        if self.sent[self.half] > 0 {
            // Halves as large as the pipe push each other out. This does not rely on sizes: bytes that
            // are still in the pipe are those that were sent last.
            let since = self.sent[self.half ^ 1] as u64;
            while rustix::io::ioctl_fionread(&self.pipe)? > since {
                let mut fds = [PollFd::new(&self.pipe, PollFlags::empty())];
                let waited = poll(&mut fds, Some(&CHECK_AGAIN));
                if waited.is_ok() && fds[0].revents().contains(PollFlags::ERR) {
                    return Err(Errno::PIPE.into());
                }
            }
        }
        let range = self.range(0..self.half_bytes);
        Ok(&mut self.memory[range])
    }

    /// Sends the first `len` bytes of the half, waiting for room. The other half is to be filled next.
    ///
    /// # Panics
    ///
    /// If `len` is more than a half.
    pub fn send(&mut self, len: usize, wait: Wait) -> io::Result<()> {
        assert!(len <= self.half_bytes, "{len} bytes of {}", self.half_bytes);
        let bytes = &self.memory[self.range(0..len)];
        // SAFETY: `to_fill` makes sure that the far end has taken the half out before it is written to
        // again. If it is unmapped, the pages stay until they are taken.
        unsafe { lend(&self.pipe, bytes, wait)? };
        self.sent[self.half] = len;
        self.half ^= 1;
        Ok(())
    }
}

/// Sends all of `bytes` into a pipe by reference (`vmsplice`), waiting for room.
///
/// # Safety
///
/// The bytes must not change until the far end has taken them.
pub(super) unsafe fn lend(pipe: impl AsFd, mut bytes: &[u8], wait: Wait) -> io::Result<()> {
    let flags = if wait == Wait::Spin { SpliceFlags::NONBLOCK } else { SpliceFlags::empty() };
    while !bytes.is_empty() {
        // SAFETY: the caller does not change the bytes, and the kernel only reads them.
        match unsafe { vmsplice(pipe.as_fd(), &[IoSliceRaw::from_slice(bytes)], flags) } {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR | Errno::AGAIN) => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Copies all of `bytes` into a pipe (`write`).
pub fn write_all(pipe: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&pipe, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Copies whatever is in a pipe into `buffer` (`read`), waiting for some. Returns 0 at the end.
pub fn read_some(pipe: impl AsFd, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
    let read = |buffer: &mut [u8]| match wait {
        Wait::Sleep => rustix::io::read(&pipe, buffer),
        // (An offset of -1 is the file position.)
        Wait::Spin => {
            let flags = ReadWriteFlags::NOWAIT;
            match preadv2(&pipe, &mut [IoSliceMut::new(buffer)], u64::MAX, flags) {
                // A kernel that cannot check without waiting.
                Err(Errno::OPNOTSUPP) => rustix::io::read(&pipe, buffer),
                result => result,
            }
        }
    };
    loop {
        match read(buffer) {
            Err(Errno::INTR | Errno::AGAIN) => std::hint::spin_loop(),
            result => return Ok(result?),
        }
    }
}

/// Moves up to `len` bytes out of a pipe into `to` without a copy (`splice`), waiting for some: into
/// `/dev/null`, a file, a socket or another pipe. Returns 0 at the end.
pub fn splice_some(pipe: impl AsFd, to: impl AsFd, len: usize, wait: Wait) -> io::Result<usize> {
    let flags = match wait {
        Wait::Sleep => SpliceFlags::MOVE,
        Wait::Spin => SpliceFlags::MOVE | SpliceFlags::NONBLOCK,
    };
    loop {
        match splice(&pipe, None, &to, None, len, flags) {
            Err(Errno::INTR | Errno::AGAIN) => std::hint::spin_loop(),
            result => return Ok(result?),
        }
    }
}
