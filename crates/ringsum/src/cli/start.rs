//! C's `main`: process start-up.
//!
//! Rust's own start-up does the same three things, and others that are not needed (it reads
//! /proc/self/maps for the stack guard, and sets up a stack for a signal handler): 90 us of the 1,100
//! us that a process takes for a 1,000-byte file (45 us of 760 if it is linked statically). It also opens /dev/null over a closed standard
//! descriptor, but does not report that: output to a closed standard output would then be lost
//! silently, and a closed standard input would look like an empty file.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::thread;

// SAFETY: the signature is that of C's `main`, which the C library's start-up code calls.
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main(argc: c_int, argv: *const *const c_char) -> c_int {
    super::standard_streams::fill_closed();
    // A write to a closed pipe, or past the file size limit, fails instead of ending the process.
    // SAFETY: no other thread runs yet.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    super::allocator::prepare();
    // SAFETY: the C library passes argc strings that live as long as the process.
    let line = unsafe { line(argc, argv) };
    with_enough_stack(line).into()
}

/// Least stack of the command, in bytes. The function that defines the command-line parser has a
/// frame of more than 512 KiB in unoptimized builds; optimized, 128 KiB were enough for everything.
const STACK_BYTES_MIN: u64 = 2 << 20;

/// Runs the command here, or on a thread if `ulimit -s` leaves too little stack, because a stack
/// overflow is a SIGSEGV without a message. (The check is a system call, 0.1 us.)
#[cfg_attr(test, expect(dead_code))]
fn with_enough_stack(line: Vec<OsString>) -> u8 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    if limit.is_none_or(|limit| limit >= STACK_BYTES_MIN) {
        return crate::cli::command(line);
    }
    let run = || crate::cli::command(line.clone());
    let builder = thread::Builder::new().stack_size(STACK_BYTES_MIN as usize);
    thread::scope(|scope| match builder.spawn_scoped(scope, run) {
        // (As Rust's own start-up does after a panic.)
        Ok(thread) => thread.join().unwrap_or(101),
        Err(_) => run(),
    })
}

/// # Safety
///
/// `argv` must point to `argc` C strings.
#[cfg_attr(test, expect(dead_code))]
unsafe fn line(argc: c_int, argv: *const *const c_char) -> Vec<OsString> {
    let word = |i| {
        // SAFETY: i is less than argc.
        let word = unsafe { CStr::from_ptr(*argv.add(i)) };
        OsStr::from_bytes(word.to_bytes()).to_owned()
    };
    (0..argc.max(0) as usize).map(word).collect()
}
