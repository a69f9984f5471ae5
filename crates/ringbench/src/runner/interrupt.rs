//! Ctrl-C: the sample that is being taken is discarded, finished ones are kept, and scratch files are
//! removed.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The path of a file to remove if the process is ended at once: leaked, and never changed.
static UNFINISHED: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Registers a file to be removed even if the process is ended at once; `None` if there is none.
pub(crate) fn remove_at_end(path: Option<&Path>) {
    let path = path.and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
    let path = path.map_or(std::ptr::null_mut(), CString::into_raw);
    // The previous one is leaked: the handler may be looking at it.
    UNFINISHED.store(path, Ordering::SeqCst);
}

extern "C" fn on_signal(_signal: libc::c_int) {
    if INTERRUPTED.swap(true, Ordering::SeqCst) {
        // The second signal ends the process at once.
        let path = UNFINISHED.load(Ordering::SeqCst);
        // SAFETY: both calls are allowed in a signal handler; the string is never freed.
        unsafe {
            if !path.is_null() {
                libc::unlink(path);
            }
            libc::_exit(130)
        };
    }
}

/// Handles SIGINT, SIGTERM, SIGHUP and SIGQUIT: the first one is noted, the second ends the process.
pub(crate) fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        let handler: extern "C" fn(libc::c_int) = on_signal;
        // SAFETY: a zeroed sigaction is a legal one; the handler does only what handlers may.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}
