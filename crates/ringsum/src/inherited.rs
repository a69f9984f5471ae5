//! Which of the standard descriptors were closed when the process began.
//!
//! Rust's start-up code opens /dev/null over a closed descriptor 0, 1 or 2, so that nothing else
//! lands there; after that, a closed standard output looks like one that takes everything, and a
//! closed standard input like an empty file. So the look is taken before, where the C library runs
//! initializers.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering};

/// Bit N is set when descriptor N was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

// SAFETY: `.init_array` holds pointers to functions that the C library (glibc and musl alike) calls
// once before `main`, and this is one.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for fd in 0..3 {
        // SAFETY: F_GETFD takes any number and changes nothing.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
}

/// Whether standard input was closed.
pub(crate) fn stdin_was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed) & 1 != 0
}

/// Whether standard output was closed.
pub(crate) fn stdout_was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed) & 2 != 0
}
