//! A `SIGBUS` handler for our own mappings: a page that a truncation took away becomes a page of
//! zeros and its window is marked as poisoned, so that what was read from it is never used.
//!
//! The handler does only what is allowed in a signal handler: it reads and writes atomics, calls
//! `mmap`, and passes every fault that is not in one of our windows on to the handler that was there
//! before.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Windows that can be guarded at once, over all threads of the process.
const WINDOWS_MAX: usize = 4096;

/// One mapped range. `start` is 0 while the entry is free, and 1 while it is being filled in.
struct Entry {
    start: AtomicUsize,
    end: AtomicUsize,
    poisoned: AtomicBool,
}

const FREE: usize = 0;
const CLAIMED: usize = 1;

static WINDOWS: [Entry; WINDOWS_MAX] = [const {
    Entry {
        start: AtomicUsize::new(FREE),
        end: AtomicUsize::new(0),
        poisoned: AtomicBool::new(false),
    }
}; WINDOWS_MAX];

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler, once for the process.
///
/// # Errors
///
/// What `sigaction` says.
pub(crate) fn install() -> io::Result<()> {
    if is_installed() {
        return Ok(());
    }
    // SAFETY: a zeroed sigaction is a valid one (no flags, empty mask), and both calls get valid
    // pointers. The previous action is recorded before ours can run and need it.
    unsafe {
        let mut previous: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut previous) != 0 {
            return Err(io::Error::last_os_error());
        }
        if PREVIOUS.set(previous).is_err() {
            return Ok(());
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Whether [`install`] has been called.
pub(crate) fn is_installed() -> bool {
    PREVIOUS.get().is_some()
}

/// A guarded range of a mapping; the guard ends when this is dropped.
pub(crate) struct Window(usize);

impl Window {
    /// Guards `start..start + len`, both multiples of the page size.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when [`WINDOWS_MAX`] windows are guarded already.
    pub(crate) fn guard(start: usize, len: usize) -> io::Result<Window> {
        for (i, entry) in WINDOWS.iter().enumerate() {
            let claimed =
                entry.start.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed);
            if claimed.is_ok() {
                entry.end.store(start + len, Ordering::Relaxed);
                entry.poisoned.store(false, Ordering::Relaxed);
                entry.start.store(start, Ordering::Release);
                return Ok(Window(i));
            }
        }
        Err(io::Error::from_raw_os_error(libc::ENOMEM))
    }

    /// Whether any page of the window was missing when it was touched.
    pub(crate) fn is_poisoned(&self) -> bool {
        WINDOWS[self.0].poisoned.load(Ordering::Acquire)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        WINDOWS[self.0].start.store(FREE, Ordering::Release);
    }
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel hands a SA_SIGINFO handler a valid siginfo_t; SIGBUS carries an address.
    let address = unsafe { (*info).si_addr() } as usize;
    for entry in &WINDOWS {
        let start = entry.start.load(Ordering::Acquire);
        if start > CLAIMED && (start..entry.end.load(Ordering::Relaxed)).contains(&address) {
            entry.poisoned.store(true, Ordering::Release);
            if patch(address) {
                return;
            }
        }
    }
    pass_on(signal, info, context);
}

/// Puts a page of zeros where the page of `address` was. Signal-safe.
fn patch(address: usize) -> bool {
    // The smallest page there is would do; a window starts and ends at a page of the system's size,
    // which `page_size` reads from the auxiliary vector without locking or allocating.
    let page_bytes = rustix::param::page_size();
    // SAFETY: the page lies in a window of ours whose owner knows that its content may be zeros; a
    // system call is signal-safe; errno, which the interrupted code may look at, is restored.
    unsafe {
        let errno = *libc::__errno_location();
        let page = libc::mmap(
            (address & !(page_bytes - 1)) as *mut libc::c_void,
            page_bytes,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        );
        *libc::__errno_location() = errno;
        page != libc::MAP_FAILED
    }
}

/// Does what would have happened without us.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(previous) = PREVIOUS.get() else { return };
    // SAFETY: the previous action is one that the kernel accepted, and is called as its flags say;
    // with none of its own, the default action is put back and the faulting instruction, when it is
    // executed again, ends the process as it would have without us.
    unsafe {
        match previous.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::sigaction(signal, previous, std::ptr::null_mut());
            }
            handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
