//! Ctrl-C: what is measured at that moment is given up, what was measured is kept, and files that were made
//! for measuring go.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The path of a file that is to go when the process is ended at once: leaked, and never changed.
static UNFINISHED: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// The file at `path` goes with the process, even if that is ended at once; `None`: there is none.
pub(crate) fn remove_at_end(path: Option<&Path>) {
    let path = path.and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
    let path = path.map_or(std::ptr::null_mut(), CString::into_raw);
    // The one before is leaked: the handler may be looking at it.
    UNFINISHED.store(path, Ordering::SeqCst);
}

extern "C" fn note(_signal: libc::c_int) {
    if INTERRUPTED.swap(true, Ordering::SeqCst) {
        // The second time: at once.
        let path = UNFINISHED.load(Ordering::SeqCst);
        // SAFETY: both may be called here; the path is a string that is never freed.
        unsafe {
            if !path.is_null() {
                libc::unlink(path);
            }
            libc::_exit(130)
        };
    }
}

/// From now on SIGINT, SIGTERM, SIGHUP and SIGQUIT are noted, and the second of them ends the process.
pub(crate) fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        let note: extern "C" fn(libc::c_int) = note;
        // SAFETY: all of the structure may be zero; the handler calls nothing that it may not.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as libc::sighandler_t;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// Whether it came.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}
