//! The watch thread of a long run: it flushes buffered lines in time, and on Ctrl-C or out of memory prints
//! what is finished and exits at once.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use ringsum::files::Watch;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{Status, allocator};

/// The exit status of a process that SIGINT ends, as shells report it.
const INTERRUPTED: i32 = 130;

/// How long printing may take if the reader does not read.
const PATIENCE: Duration = Duration::from_secs(2);

/// The eventfd that a signal raises; -1 if no thread waits for it.
static EVENT: AtomicI32 = AtomicI32::new(-1);

/// How often buffered lines are checked.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Waits for SIGINT, or for memory to run out.
pub(crate) struct Interrupt<'a> {
    /// Raised by a signal. Never closed: a handler may be about to raise it.
    event: BorrowedFd<'static>,
    /// Raised by the end of the run.
    end: OwnedFd,
    /// Called after everything finished was reported.
    flush: &'a (dyn Fn() + Sync),
    /// Called every 100 ms.
    tick: &'a (dyn Fn() + Sync),
}

extern "C" fn on_signal(_: libc::c_int) {
    if !raise() {
        // The second signal ends the process without waiting.
        // SAFETY: it is safe in a signal handler.
        unsafe { libc::_exit(INTERRUPTED) };
    }
}

/// Stops the run, from a signal handler or without memory. Returns false if there is no run, or if it is
/// being stopped.
pub(super) fn raise() -> bool {
    let event = EVENT.swap(-1, Ordering::Relaxed);
    if event == -1 {
        return false;
    }
    // SAFETY: it is safe in a signal handler; errno, which the interrupted code may read, is restored.
    unsafe {
        let one = 1_u64;
        let errno = *libc::__errno_location();
        libc::write(event, (&raw const one).cast(), 8);
        *libc::__errno_location() = errno;
    }
    true
}

impl<'a> Interrupt<'a> {
    /// Handles SIGINT, unless it is ignored (as in a background job). `None` if there are no descriptors
    /// for it.
    pub(crate) fn new(
        flush: &'a (dyn Fn() + Sync),
        tick: &'a (dyn Fn() + Sync),
    ) -> Option<Interrupt<'a>> {
        let new = || eventfd(0, EventfdFlags::CLOEXEC).ok();
        let (event, end) = (new()?.into_raw_fd(), new()?);
        // SAFETY: it is never closed. A zeroed sigaction is a legal one, and the handler does only what
        // handlers may.
        let event = unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGINT, std::ptr::null(), &raw mut before);
            EVENT.store(event, Ordering::Relaxed);
            if before.sa_sigaction != libc::SIG_IGN {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_signal as *const () as usize;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(libc::SIGINT, &raw const action, std::ptr::null_mut());
            }
            BorrowedFd::borrow_raw(event)
        };
        Some(Interrupt { event, end, flush, tick })
    }
}

impl Watch for Interrupt<'_> {
    fn watch(&self, stop: &(dyn Fn() + Sync)) {
        let mut both =
            [PollFd::new(&self.event, PollFlags::IN), PollFd::new(&self.end, PollFlags::IN)];
        loop {
            match poll(&mut both, Some(&TICK)) {
                Ok(0) => (self.tick)(),
                Ok(_) if both[0].revents().is_empty() => return,
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
        // The reader of our output may not be reading. (Without the thread, a second Ctrl-C ends it.)
        let status = match allocator::is_out_of_memory() {
            true => Status::Failure as i32,
            false => INTERRUPTED,
        };
        let _ = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(PATIENCE);
            exit(status);
        });
        stop();
        (self.flush)();
        if allocator::is_out_of_memory() {
            let _ = rustix::io::write(rustix::stdio::stderr(), allocator::MESSAGE.as_bytes());
        }
        exit(status);
    }

    fn end(&self) {
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
    }
}

impl Drop for Interrupt<'_> {
    fn drop(&mut self) {
        EVENT.store(-1, Ordering::Relaxed);
    }
}

/// Exits at once: reads in flight end with the process.
fn exit(status: i32) -> ! {
    // SAFETY: it does not return, and nothing needs an orderly end.
    unsafe { libc::_exit(status) }
}
