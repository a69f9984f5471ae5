//! Ctrl-C: what is measured at that moment is given up, what was measured is kept, and files that were made
//! for measuring go.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    if INTERRUPTED.swap(true, Ordering::SeqCst) {
        // The second time: at once. SAFETY: it may be called here, and does not return.
        unsafe { libc::_exit(130) };
    }
}

/// From now on SIGINT and SIGTERM are noted, and the second of them ends the process.
pub(crate) fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
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
