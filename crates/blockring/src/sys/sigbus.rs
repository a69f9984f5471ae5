//! A `SIGBUS` handler for this library's own mappings: it replaces a page that was truncated away
//! by a page of zeros, and marks the window as poisoned, so that its bytes are never used.
//!
//! The handler is async-signal-safe: it reads and writes atomics, calls `mmap`, and passes every
//! fault outside these windows on to the handler that was installed before.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Most windows guarded at the same time in the process: enough for two runs with the most slots.
const WINDOWS_MAX: usize = 65_536;

/// One mapped range. Both ends are in one word, so that the handler never sees the start of one
/// range with the end of another; 0 is no range.
struct Entry {
    range: AtomicU64,
    poisoned: AtomicBool,
}

/// Bits for the number of pages of a window: up to 64 MiB and a page, of at least 4 KiB each. The other
/// 48 bits hold the number of the first page: the largest address space (57 bits, pages of 4 KiB) has
/// 2^45.
const PAGES_BITS: u32 = 16;

static WINDOWS: [Entry; WINDOWS_MAX] =
    [const { Entry { range: AtomicU64::new(0), poisoned: AtomicBool::new(false) } }; WINDOWS_MAX];

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Installs the handler, once for the process.
pub(crate) fn install() -> io::Result<()> {
    if INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    // The first call may open /proc/self/auxv, which is not async-signal-safe.
    page_shift();
    // SAFETY: a zeroed sigaction is valid (no flags, empty mask), and both calls get valid
    // pointers. The previous action is recorded before the new handler can run and need it.
    unsafe {
        let mut previous: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut previous) != 0 {
            return Err(io::Error::last_os_error());
        }
        // If another thread was faster, this may be the new handler; `set` then does nothing.
        let _ = PREVIOUS.set(previous);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    INSTALLED.store(true, Ordering::Release);
    Ok(())
}

fn page_shift() -> u32 {
    // One atomic load after the first call, which `install` makes: signal-safe.
    super::page_bytes().trailing_zeros()
}

/// A guarded range of a mapping; the guard ends when this is dropped.
pub(crate) struct Window(usize);

impl Window {
    /// Guards `start..start + len`, both multiples of the page size, at most 2^16 - 1 pages. Fails
    /// if [`WINDOWS_MAX`] windows are already guarded.
    pub(crate) fn guard(start: usize, len: usize) -> io::Result<Window> {
        let pages = [start, len].map(|bytes| (bytes >> page_shift()) as u64);
        let range = pages[0] << PAGES_BITS | pages[1];
        for (i, entry) in WINDOWS.iter().enumerate() {
            if entry.range.load(Ordering::Relaxed) == 0
                && entry
                    .range
                    .compare_exchange(0, range, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                // The window is not used before this function returns.
                entry.poisoned.store(false, Ordering::Release);
                return Ok(Window(i));
            }
        }
        Err(io::Error::other(format!("{WINDOWS_MAX} windows are mapped at once: use fewer slots")))
    }

    /// Becomes true when a page of the window is missing as it is touched.
    pub(crate) fn poisoned(&self) -> &'static AtomicBool {
        &WINDOWS[self.0].poisoned
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        WINDOWS[self.0].range.store(0, Ordering::Release);
    }
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo_t to a SA_SIGINFO handler.
    let code = unsafe { (*info).si_code };
    // Positive codes come from the kernel, with the address of a fault; others from a process.
    if code > 0 {
        // SAFETY: SIGBUS from the kernel carries an address.
        let address = unsafe { (*info).si_addr() } as usize;
        let page = (address >> page_shift()) as u64;
        for entry in &WINDOWS {
            let range = entry.range.load(Ordering::Acquire);
            let (start, pages) = (range >> PAGES_BITS, range & ((1 << PAGES_BITS) - 1));
            if range != 0 && (start..start + pages).contains(&page) {
                entry.poisoned.store(true, Ordering::Release);
                if patch(address) {
                    return;
                }
            }
        }
    }
    pass_on(signal, code, info, context);
}

/// Maps a page of zeros over the page of `address`. Signal-safe.
fn patch(address: usize) -> bool {
    let page_bytes = 1_usize << page_shift();
    // SAFETY: the page lies in a guarded window, which stays mapped while it is guarded, and whose
    // owner expects that its content may be zeros. The system call is async-signal-safe, and errno,
    // which the interrupted code may read, is restored.
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

/// Performs the action that would have been taken without this handler.
fn pass_on(
    signal: libc::c_int,
    code: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let Some(previous) = PREVIOUS.get() else { return };
    // SAFETY: the kernel accepted the previous action, and it is called with the arguments that its
    // flags require (its signal mask and SA_RESETHAND are ignored). If there was no handler, the
    // default action is restored, and the faulting instruction, executed again, ends the process. A
    // signal sent by a process has no such instruction, and is raised again.
    unsafe {
        match previous.sa_sigaction {
            libc::SIG_IGN if code <= 0 => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::sigaction(signal, previous, std::ptr::null_mut());
                if code <= 0 {
                    libc::raise(signal);
                }
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
