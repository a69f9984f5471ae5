//! The watch thread of a long run: it flushes buffered lines in time, and on Ctrl-C or when memory
//! is exhausted prints the finished results and exits at once.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use ringsum::files::Watch;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{Status, allocator};

/// How long printing may take if the output is not read, in seconds.
const PATIENCE_S: u32 = 2;

/// The eventfd that a signal raises; -1 if no thread is waiting for it.
static EVENT: AtomicI32 = AtomicI32::new(-1);

/// How often buffered lines are checked.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Waits for SIGINT, or for memory to run out.
pub(crate) struct Interrupt<'a> {
    /// Raised by a signal. Never closed: a handler may be about to raise it.
    event: BorrowedFd<'static>,
    /// Raised by the end of the run.
    end: OwnedFd,
    /// Called after all finished jobs are reported.
    flush: &'a (dyn Fn() + Sync),
    /// Called every 100 ms.
    tick: &'a (dyn Fn() + Sync),
}

extern "C" fn on_interrupt(_: libc::c_int) {
    // The second signal exits without waiting.
    if !raise() {
        exit();
    }
}

extern "C" fn on_alarm(_: libc::c_int) {
    exit();
}

/// Stops the run; called from a signal handler or when memory is exhausted. Returns false if there
/// is no run, or if it is already being stopped.
pub(super) fn raise() -> bool {
    let event = EVENT.swap(-1, Ordering::Relaxed);
    if event == -1 {
        return false;
    }
    // SAFETY: `alarm` and `write` are async-signal-safe; errno, for the interrupted code, is
    // restored.
    unsafe {
        // If our output is not read, the thread that should end the process may be blocked in it.
        libc::alarm(PATIENCE_S);
        let one = 1_u64;
        let errno = *libc::__errno_location();
        libc::write(event, (&raw const one).cast(), 8);
        *libc::__errno_location() = errno;
    }
    true
}

impl<'a> Interrupt<'a> {
    /// Installs a handler for SIGINT, unless the signal is ignored (as in a background job). `None`
    /// if no descriptors are available.
    pub(crate) fn new(
        flush: &'a (dyn Fn() + Sync),
        tick: &'a (dyn Fn() + Sync),
    ) -> Option<Interrupt<'a>> {
        let new = || eventfd(0, EventfdFlags::CLOEXEC).ok();
        let (event, end) = (new()?.into_raw_fd(), new()?);
        // SAFETY: the descriptor is never closed. A zeroed sigaction is valid, and the handler is
        // async-signal-safe.
        let event = unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGINT, std::ptr::null(), &raw mut before);
            EVENT.store(event, Ordering::Relaxed);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_flags = libc::SA_RESTART;
            action.sa_sigaction = on_alarm as *const () as usize;
            libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
            if before.sa_sigaction != libc::SIG_IGN {
                action.sa_sigaction = on_interrupt as *const () as usize;
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
        stop();
        (self.flush)();
        if allocator::is_out_of_memory() {
            let _ = rustix::io::write(rustix::stdio::stderr(), allocator::MESSAGE.as_bytes());
        }
        exit();
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

/// Ends the process at once, without waiting for reads in flight: by SIGINT, so that a shell ends
/// the loop that runs it (an exit status of 130 would not); with status 1 if memory is exhausted.
/// Async-signal-safe.
fn exit() {
    // SAFETY: all functions are async-signal-safe, and no clean-up is needed.
    unsafe {
        if allocator::is_out_of_memory() {
            libc::_exit(Status::Failure as i32);
        }
        libc::signal(libc::SIGINT, libc::SIG_DFL);
        // (In the handler of this signal, it is blocked until that returns.)
        libc::raise(libc::SIGINT);
    }
}
