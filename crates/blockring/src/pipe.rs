//! Pipes: how much they hold, and how to fill and empty them without a copy.
//!
//! What each of these is worth, and what a hasher can use of it, `docs/pipes.md` measures. In short: the
//! size of the pipe comes first; a source saves its copy by giving its pages away (`vmsplice`); a sink
//! that wants no look at the bytes can pass them on (`splice`), and one that does has to copy them.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{
    IoSliceRaw, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, splice, vmsplice,
};

use crate::config::HugePages;
use crate::error::ErrorKind;
use crate::slab::Slab;
use crate::stream::{read_some, wait_for};

/// Largest size that is asked for, in bytes, whatever the system allows: it is the default of what a user
/// without privileges may ask for, and 256 KiB, 512 KiB and 1 MiB made no difference beyond the noise
/// for 1 GiB of `cat FILE |` (0.293, 0.301 and 0.289 s). Through 64 KiB, `write` and `read` move 0.9 GiB/s, and
/// 1.8 to 2.4 through 1 MiB.
pub const BYTES_MAX: usize = 1 << 20;

/// How long to wait before looking again whether the far end has taken something out: nothing tells.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// What a pipe holds, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// At first: 64 KiB as a rule, and one or two pages for a user whose pipes hold much already.
    pub was: usize,
    /// Now.
    pub is: usize,
}

/// Makes a pipe as large as the system allows (`/proc/sys/fs/pipe-max-size`), up to [`BYTES_MAX`], from
/// either of its ends. Where that is refused (the user's pipes may hold only so much, see pipe(7)), as
/// large as it may be: at worst it stays as it is. `None`: it is no pipe.
pub fn enlarge(pipe: impl AsFd) -> Option<Size> {
    let was = fcntl_getpipe_size(&pipe).ok()?;
    let mut wanted = max_bytes().min(BYTES_MAX);
    while wanted > was {
        if fcntl_setpipe_size(&pipe, wanted).is_ok() {
            break;
        }
        wanted /= 2;
    }
    Some(Size { was, is: fcntl_getpipe_size(&pipe).unwrap_or(was) })
}

/// The largest size that a user without privileges may ask for, in bytes.
fn max_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/sys/fs/pipe-max-size");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(BYTES_MAX)
}

/// What to do while a pipe is full, or empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// Sleep.
    #[default]
    Sleep,
    /// Try again at once. It takes a processor for each end.
    Spin,
}

/// Memory that is filled anew again and again, and given to a pipe without a copy.
///
/// It has two halves, each as large as the pipe: while the one is in the pipe, the other is filled. The half
/// to be filled is never one that the far end has not taken out of the pipe yet. **But taken out need
/// not be consumed**: a far end that does not `read`, but passes the pages on (`tee`, or `splice` into
/// another pipe or a socket), keeps them longer, and sees what is written into them later. Only use it
/// where the far end is known to `read`, or to throw away what it splices.
pub struct DoubleBuffer<P> {
    pipe: P,
    slab: Slab,
    half_bytes: usize,
    /// The half that is to be filled.
    half: usize,
    /// Bytes that each was sent with the last time.
    sent: [Option<usize>; 2],
}

impl<P: AsFd> DoubleBuffer<P> {
    /// Memory for a pipe as large as it is now: twice that, at least.
    ///
    /// # Errors
    ///
    /// It is no pipe, or there is no such memory.
    pub fn new(pipe: P, pages: HugePages) -> Result<DoubleBuffer<P>, ErrorKind> {
        let inspect = |error: Errno| ErrorKind::Inspect {
            operation: "fcntl F_GETPIPE_SZ",
            error: error.into(),
        };
        let pipe_bytes = fcntl_getpipe_size(&pipe).map_err(inspect)?;
        let half_bytes = pipe_bytes.next_multiple_of(rustix::param::page_size());
        let block_bytes = u32::try_from(half_bytes).map_err(|_| inspect(Errno::OVERFLOW))?;
        let slab = Slab::new(2, block_bytes, pages)?;
        Ok(DoubleBuffer { pipe, slab, half_bytes, half: 0, sent: [None; 2] })
    }

    /// The pipe.
    pub fn pipe(&self) -> &P {
        &self.pipe
    }

    /// The half to be filled, when nothing of it is in the pipe any more; it is as long as the pipe was at first,
    /// and holds what it held before. To wait for that takes a moment at a time (1 ms), and is only needed
    /// where less than a half was sent since.
    ///
    /// # Errors
    ///
    /// What the kernel says of the pipe; `BrokenPipe` when nobody reads it any more.
    pub fn to_fill(&mut self) -> io::Result<&mut [u8]> {
        if self.sent[self.half].is_some() {
            // With halves as large as the pipe, what was sent since has pushed it out. That is not
            // left to the sizes: what is not taken yet is what came last.
            let since = self.sent[self.half ^ 1].unwrap_or(0) as u64;
            while rustix::io::ioctl_fionread(&self.pipe)? > since {
                let mut fds = [PollFd::from_borrowed_fd(self.pipe.as_fd(), PollFlags::empty())];
                let waited = poll(&mut fds, Some(&MOMENT));
                if waited.is_ok() && fds[0].revents().contains(PollFlags::ERR) {
                    return Err(Errno::PIPE.into());
                }
            }
        }
        // SAFETY: the slot has so many bytes; the far end has taken them out of the pipe, and this
        // borrow of us is the only way to them.
        Ok(unsafe {
            std::slice::from_raw_parts_mut(self.slab.slot(self.half as u32), self.half_bytes)
        })
    }

    /// Gives the first `len` bytes of the half to the pipe, all of them, waiting for room. The other half is the
    /// next to be filled.
    ///
    /// # Errors
    ///
    /// What the kernel says; `BrokenPipe` when nobody reads it any more.
    ///
    /// # Panics
    ///
    /// When `len` is more than the half holds.
    pub fn send(&mut self, len: usize, wait: Wait) -> io::Result<()> {
        assert!(len <= self.half_bytes, "{len} bytes of {}", self.half_bytes);
        let flags = match wait {
            Wait::Sleep => SpliceFlags::empty(),
            Wait::Spin => SpliceFlags::NONBLOCK,
        };
        let mut sent = 0;
        while sent < len {
            let start = self.slab.slot(self.half as u32).wrapping_add(sent);
            // SAFETY: the memory is ours, and is not written to before the far end has taken it, as
            // `to_fill` sees to. When it is unmapped, the pages stay until they are taken.
            let rest = unsafe { std::slice::from_raw_parts(start, len - sent) };
            // SAFETY: as above.
            match unsafe { vmsplice(self.pipe.as_fd(), &[IoSliceRaw::from_slice(rest)], flags) } {
                Ok(n) => sent += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if wait == Wait::Spin => std::hint::spin_loop(),
                Err(Errno::AGAIN) => wait_for(self.pipe.as_fd(), PollFlags::OUT)?,
                Err(error) => return Err(error.into()),
            }
        }
        self.sent[self.half] = Some(len);
        self.half ^= 1;
        Ok(())
    }
}

/// Takes what is there out of a pipe, up to the length of `buffer`, by reading it: that copies. 0 at the end.
///
/// # Errors
///
/// What the kernel says.
pub fn take_by_read(pipe: impl AsFd, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
    loop {
        let read = match wait {
            Wait::Sleep => return read_some(pipe.as_fd(), buffer),
            Wait::Spin => crate::sys::read_with(pipe.as_fd(), buffer, libc::RWF_NOWAIT),
        };
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A kernel that cannot look without waiting.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                return read_some(pipe.as_fd(), buffer);
            }
            result => return result,
        }
    }
}

/// Moves up to `len` bytes out of a pipe into `to` without a copy: into `/dev/null`, a file, a socket, or
/// another pipe. 0 at the end.
///
/// # Errors
///
/// What the kernel says: `InvalidInput` where it cannot be done with `to`.
pub fn take_by_splice(pipe: impl AsFd, to: impl AsFd, len: usize, wait: Wait) -> io::Result<usize> {
    let flags = match wait {
        Wait::Sleep => SpliceFlags::MOVE,
        Wait::Spin => SpliceFlags::MOVE | SpliceFlags::NONBLOCK,
    };
    loop {
        match splice(pipe.as_fd(), None, to.as_fd(), None, len, flags) {
            Ok(n) => return Ok(n),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if wait == Wait::Spin => std::hint::spin_loop(),
            Err(Errno::AGAIN) => wait_for(pipe.as_fd(), PollFlags::IN)?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes all of `bytes` into a pipe: that copies.
///
/// # Errors
///
/// What the kernel says; `BrokenPipe` when nobody reads it any more.
pub fn put_by_write(pipe: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    let pipe: BorrowedFd<'_> = pipe.as_fd();
    while !bytes.is_empty() {
        match rustix::io::write(pipe, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_for(pipe, PollFlags::OUT)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
