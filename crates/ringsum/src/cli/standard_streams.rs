//! Standard streams that were closed when the process started.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering};

/// Bit N is set if descriptor N was closed at start-up.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Opens /dev/null over closed standard descriptors, so that no other file gets their numbers.
#[cfg_attr(test, expect(dead_code))]
pub(super) fn fill_closed() {
    for fd in 0..3 {
        // SAFETY: F_GETFD accepts any number; open takes a C string, and returns the lowest free
        // descriptor: the closed one.
        unsafe {
            if libc::fcntl(fd, libc::F_GETFD) == -1 {
                CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            }
        }
    }
}

/// Whether a standard stream was closed at start-up.
pub(crate) fn was_closed(fd: i32) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << fd) != 0
}
