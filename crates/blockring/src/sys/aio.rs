//! The system calls of `linux/aio_abi.h`, which no crate wraps.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Mutex;
use std::{process, ptr};

use super::check;
use crate::lock;

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_FLAG_RESFD: u32 = 1;

/// `struct iocb`: one request. The kernel copies it on submission.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Control {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: i32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    priority: i16,
    fd: RawFd,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: RawFd,
}

impl Control {
    /// Creates a read of `len` bytes at `offset`. `event`: an eventfd to signal on completion.
    pub(crate) fn read(
        slot: u32,
        fd: BorrowedFd<'_>,
        (offset, len): (u64, u32),
        buffer: *mut u8,
        flags: i32,
        event: Option<RawFd>,
    ) -> Control {
        Control {
            data: slot.into(),
            key: 0,
            rw_flags: flags,
            opcode: IOCB_CMD_PREAD,
            priority: 0,
            fd: fd.as_raw_fd(),
            buffer: buffer.expose_provenance() as u64,
            len: len.into(),
            // The kernel rejects a negative offset.
            offset: offset as i64,
            reserved: 0,
            flags: if event.is_some() { IOCB_FLAG_RESFD } else { 0 },
            event: event.unwrap_or(0),
        }
    }

    /// Returns the slot of the request.
    pub(crate) fn slot(&self) -> u32 {
        self.data as u32
    }
}

/// `struct io_event`: the completion of a request.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Event {
    data: u64,
    control: u64,
    result: i64,
    result2: i64,
}

impl Event {
    /// Returns the slot of the request.
    pub(crate) fn slot(&self) -> u32 {
        self.data as u32
    }

    /// Returns the number of bytes read, or the kernel's error.
    pub(crate) fn result(&self) -> io::Result<u32> {
        match self.result {
            // It fits, because the requested length is a u32.
            n @ 0.. => Ok(n as u32),
            errno => Err(io::Error::from_raw_os_error(-errno as i32)),
        }
    }
}

/// Contexts for reuse. Destroying one takes 33 ms here, because the kernel waits for an RCU grace
/// period: as long as a hundred small files. So contexts are kept until the process ends.
static SPARE: Mutex<Vec<Context>> = Mutex::new(Vec::new());

/// Most contexts kept, and their largest depth: all processes share `fs.aio-max-nr` requests.
const SPARE_MAX: usize = 16;
const SPARE_DEPTH_MAX: u32 = 1024;

/// Smallest depth of a context, so that one created to test availability can be reused for reading.
const DEPTH_MIN: u32 = 128;

/// An `aio_context_t`.
pub(crate) struct Context {
    id: usize,
    depth: u32,
    /// The process that created it: a forked child does not inherit its parent's contexts.
    process: u32,
    leaked: bool,
}

impl Context {
    /// Returns a context for `depth` requests.
    pub(crate) fn new(depth: u32) -> io::Result<Context> {
        let depth = depth.max(DEPTH_MIN);
        let mut spare = lock(&SPARE);
        let fits = |context: &Context| context.process == process::id() && context.depth >= depth;
        if let Some(i) = spare.iter().position(fits) {
            return Ok(spare.swap_remove(i));
        }
        match Context::set_up(depth) {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && !spare.is_empty() => {
                // The spare contexts of this process may have used up the limit.
                spare.drain(..).for_each(Context::destroy);
                Context::set_up(depth)
            }
            result => result,
        }
    }

    fn set_up(depth: u32) -> io::Result<Context> {
        let mut id = 0_usize;
        // SAFETY: io_setup writes one word through its second argument, which must be 0.
        check(unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut id) })?;
        Ok(Context { id, depth, process: process::id(), leaked: false })
    }

    fn destroy(mut self) {
        if self.process == process::id() {
            // SAFETY: this owns the context, which is used nowhere else.
            let _ = unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
        }
        self.leaked = true;
    }

    /// Submits the first few of `controls`, and returns how many. An error concerns the first.
    ///
    /// # Safety
    ///
    /// The memory of each request must be valid for writes until it has completed.
    pub(crate) unsafe fn submit(&self, controls: &mut [Control]) -> io::Result<usize> {
        // As many as fit on the stack: the caller submits the others afterwards.
        let mut pointers = [ptr::null_mut::<Control>(); 64];
        let n = controls.len().min(pointers.len());
        for (pointer, control) in pointers.iter_mut().zip(controls) {
            *pointer = control;
        }
        // SAFETY: n pointers to requests, which are copied; the caller guarantees their memory.
        check(unsafe { libc::syscall(libc::SYS_io_submit, self.id, n, pointers.as_mut_ptr()) })
    }

    /// Waits for `least` completions and returns all available ones that fit in `events`.
    pub(crate) fn events<'a>(
        &self,
        least: usize,
        events: &'a mut [Event],
    ) -> io::Result<&'a [Event]> {
        let (most, no_limit) = (events.len(), ptr::null::<libc::timespec>());
        // SAFETY: the kernel writes at most `most` events.
        let n = check(unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.id,
                least,
                most,
                events.as_mut_ptr(),
                no_limit,
            )
        })?;
        Ok(&events[..n])
    }

    /// Leaks the context: a request in flight may never end, and destroying it would wait.
    pub(crate) fn leak(&mut self) {
        self.leaked = true;
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.leaked {
            return;
        }
        let Context { id, depth, process, .. } = *self;
        let mine = Context { id, depth, process, leaked: false };
        let mut spare = lock(&SPARE);
        match spare.len() < SPARE_MAX && depth <= SPARE_DEPTH_MAX {
            true => spare.push(mine),
            false => {
                drop(spare);
                mine.destroy();
            }
        }
    }
}
