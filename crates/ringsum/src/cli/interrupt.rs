//! Who watches over a long run: lines do not wait for long, and Ctrl-C prints what is finished, and ends the
//! process at once with status 130.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use ringsum::many::{Stop, Watch};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// The exit status of a process that SIGINT ends, as shells have it.
const INTERRUPTED: i32 = 130;

/// How long printing may take, with nobody to read it.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the signal handler raises; -1: nobody waits for it.
static EVENT: AtomicI32 = AtomicI32::new(-1);

/// How often somebody looks whether lines are waiting.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Waits for SIGINT.
pub(crate) struct Interrupt<'a> {
    /// Raised by the signal. Never closed: a handler may be about to raise it.
    event: BorrowedFd<'static>,
    /// Raised by the end of the run.
    end: OwnedFd,
    /// Called after what is finished was told of: the last words.
    flush: &'a (dyn Fn() + Sync),
    /// Called every now and then.
    tick: &'a (dyn Fn() + Sync),
}

extern "C" fn on_signal(_: libc::c_int) {
    let event = EVENT.swap(-1, Ordering::Relaxed);
    // SAFETY: both are safe in a signal handler; errno, which the interrupted code may look at, is restored.
    unsafe {
        if event == -1 {
            // The second time, nothing is waited for.
            libc::_exit(INTERRUPTED);
        }
        let one = 1_u64;
        let errno = *libc::__errno_location();
        libc::write(event, (&raw const one).cast(), 8);
        *libc::__errno_location() = errno;
    }
}

impl<'a> Interrupt<'a> {
    /// Takes SIGINT over, unless it is ignored (as in a background job). `None` where there are no
    /// descriptors for it.
    pub(crate) fn new(
        flush: &'a (dyn Fn() + Sync),
        tick: &'a (dyn Fn() + Sync),
    ) -> Option<Interrupt<'a>> {
        let new = || eventfd(0, EventfdFlags::CLOEXEC).ok();
        let (event, end) = (new()?.into_raw_fd(), new()?);
        // SAFETY: nobody closes it. A zeroed sigaction is a legal one, and the handler does only what
        // handlers may.
        let event = unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGINT, std::ptr::null(), &raw mut before);
            if before.sa_sigaction != libc::SIG_IGN {
                EVENT.store(event, Ordering::Relaxed);
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
    fn watch(&self, stop: &Stop<'_>) {
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
        // Whoever should read what is printed may not be reading. (Without the thread, a second Ctrl-C ends it.)
        let _ = std::thread::Builder::new().spawn(|| {
            std::thread::sleep(PATIENCE);
            exit();
        });
        stop.now();
        (self.flush)();
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

/// Leaves at once: reads that are in flight end with the process.
fn exit() -> ! {
    // SAFETY: it does not return, and nothing that is left needs an orderly end.
    unsafe { libc::_exit(INTERRUPTED) }
}
