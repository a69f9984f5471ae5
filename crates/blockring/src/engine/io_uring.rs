//! Many reads in flight through an io_uring.
//!
//! The ring is made on the thread that pumps it, with the newest set-up flags that the kernel takes.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fd, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::event::{EventfdFlags, eventfd};

use super::{Completion, Engine, Read, Waker};

/// `user_data` of the poll on the eventfd; slots are smaller.
const WAKE: u64 = u64::MAX;

/// How long to wait when the kernel is short of memory for requests, and how often in a row before
/// that is an error: a second in all.
const STALL: Duration = Duration::from_millis(1);
const STALLS_MAX: u32 = 1000;

/// The engine with a ring shared with the kernel.
pub(crate) struct IoUringEngine {
    ring: IoUring,
    /// Present when another thread may have to wake us.
    waker: Option<Waker>,
    /// Whether a poll on the eventfd is in the kernel.
    listening: bool,
    /// Times in a row that the kernel could not take a request.
    stalls: u32,
}

/// Set-up flags, the newest first; one is dropped for each `EINVAL`, as fio does.
///
/// `SINGLE_ISSUER` (6.0) and `DEFER_TASKRUN` (6.1) keep completions from interrupting the hash: they
/// are delivered when we ask for them. `NO_SQARRAY` (6.6) saves an indirection.
const SETUPS: [&[Setup]; 4] = [
    &[Setup::SingleIssuer, Setup::DeferTaskrun, Setup::NoSqarray],
    &[Setup::SingleIssuer, Setup::DeferTaskrun],
    &[Setup::SingleIssuer],
    &[],
];

#[derive(Clone, Copy)]
enum Setup {
    SingleIssuer,
    DeferTaskrun,
    NoSqarray,
}

impl IoUringEngine {
    /// Sets up a ring for `depth` requests.
    ///
    /// # Errors
    ///
    /// What is missing and what to do about it.
    pub(crate) fn new(depth: u32, wakes: bool) -> Result<IoUringEngine, String> {
        let ring = set_up(depth).map_err(|error| explain("io_uring_setup", &error))?;
        let waker = match wakes {
            false => None,
            true => {
                let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                    .map_err(|error| format!("no eventfd to be woken by: {error}"))?;
                Some(Arc::new(fd))
            }
        };
        Ok(IoUringEngine { ring, waker, listening: false, stalls: 0 })
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: what the entry points to is vouched for by the caller of `submit`, or, for the
            // poll, owned by `self.waker`.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            // Full: the kernel takes what there is, and makes room.
            self.enter(0)?;
        }
    }

    fn harvest(&mut self, done: &mut Vec<Completion>) {
        let mut woken = false;
        for entry in self.ring.completion() {
            if entry.user_data() == WAKE {
                woken = true;
                continue;
            }
            let result = match entry.result() {
                n if n >= 0 => Ok(n as u32),
                errno => Err(io::Error::from_raw_os_error(-errno)),
            };
            let slot = entry.user_data() as u32;
            done.push(Completion { slot, result });
        }
        if woken {
            self.listening = false;
            if let Some(fd) = &self.waker {
                // Take the count down, so that the next poll waits for the next wake-up.
                let _ = rustix::io::read(fd.as_fd(), &mut [0; 8]);
            }
        }
    }

    /// Hands over what is queued, and waits for `want` completions.
    fn enter(&mut self, want: usize) -> io::Result<()> {
        match self.ring.submitter().submit_and_wait(want) {
            Ok(_) => {
                self.stalls = 0;
                Ok(())
            }
            Err(error) => match error.raw_os_error() {
                // A signal: the caller comes back.
                Some(libc::EINTR) => Ok(()),
                // The kernel is out of memory for requests, or holds completions that do not fit
                // into the queue: the caller takes some down and comes back.
                Some(libc::EAGAIN | libc::EBUSY) if self.stalls < STALLS_MAX => {
                    self.stalls += 1;
                    thread::sleep(STALL);
                    Ok(())
                }
                _ => Err(error),
            },
        }
    }
}

impl Engine for IoUringEngine {
    unsafe fn submit(&mut self, read: Read<'_>) -> io::Result<Option<Completion>> {
        let entry = opcode::Read::new(Fd(read.fd.as_raw_fd()), read.buffer, read.len)
            .offset(read.offset)
            .rw_flags(read.flags)
            .build()
            .user_data(read.slot.into());
        self.push(&entry)?;
        Ok(None)
    }

    fn wait(&mut self, block: bool, done: &mut Vec<Completion>) -> io::Result<()> {
        if block
            && !self.listening
            && let Some(fd) = &self.waker
        {
            let poll = opcode::PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32);
            self.push(&poll.build().user_data(WAKE))?;
            self.listening = true;
        }
        let result = self.enter(usize::from(block));
        self.harvest(done);
        result
    }

    fn drain(&mut self, in_flight: u32, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut done = Vec::new();
        // What was queued but not submitted is submitted here, so that it completes, too.
        let _ = self.wait(false, &mut done);
        // Linux 6.0; before, the reads take the time they take. Reads that are with the device
        // cannot be cancelled and complete.
        let _ = self
            .ring
            .submitter()
            .register_sync_cancel(Some(Timespec::from(Duration::ZERO)), CancelBuilder::any());
        // By looking again and again: a wait with a time limit needs Linux 5.11.
        while done.len() < in_flight as usize {
            if Instant::now() >= deadline {
                return false;
            }
            let before = done.len();
            let _ = self.wait(false, &mut done);
            if done.len() == before {
                thread::sleep(Duration::from_micros(100));
            }
        }
        true
    }

    fn waker(&self) -> Option<Waker> {
        self.waker.clone()
    }
}

fn set_up(depth: u32) -> io::Result<IoUring> {
    let mut result = Err(io::ErrorKind::Unsupported.into());
    for flags in SETUPS {
        let mut builder = IoUring::builder();
        builder.dontfork();
        for flag in flags {
            match flag {
                Setup::SingleIssuer => builder.setup_single_issuer(),
                // With the flag that says when there is something to fetch.
                Setup::DeferTaskrun => builder.setup_defer_taskrun().setup_taskrun_flag(),
                Setup::NoSqarray => builder.setup_no_sqarray(),
            };
        }
        result = builder.build(depth);
        match &result {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => continue,
            _ => break,
        }
    }
    result
}

/// Whether io_uring can be had and works, or why not: a small ring is made, asked what it can do, and
/// carries one request. A filter may refuse any of these.
pub(crate) fn usable() -> Result<(), String> {
    // A yes stays a yes; a no may be a passing want of memory or descriptors, and is found anew.
    static USABLE: AtomicBool = AtomicBool::new(false);
    if USABLE.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut ring = set_up(2).map_err(|error| explain("io_uring_setup", &error))?;
    let mut known = Probe::new();
    ring.submitter()
        .register_probe(&mut known)
        .map_err(|error| explain("io_uring_register", &error))?;
    // Linux 5.1 to 5.5 have io_uring, but no plain read.
    if !known.is_supported(opcode::Read::CODE) {
        return Err("this kernel's io_uring cannot read yet (it needs Linux 5.6)".to_owned());
    }
    // SAFETY: a request that does nothing points to nothing.
    let _ = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    ring.submit_and_wait(1).map_err(|error| explain("io_uring_enter", &error))?;
    USABLE.store(true, Ordering::Relaxed);
    Ok(())
}

/// What an error of one of io_uring's three system calls means, and what can be done about it.
fn explain(call: &str, error: &io::Error) -> String {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let disabled = disabled.ok().and_then(|text| text.trim().parse::<u32>().ok());
    let advice = match (error.raw_os_error(), disabled) {
        (Some(libc::EPERM), Some(value)) if value > 0 => format!(
            "the sysctl kernel.io_uring_disabled is {value}; set it to 0{}",
            if value == 1 { " or join the group of kernel.io_uring_group" } else { "" }
        ),
        (Some(libc::EPERM | libc::EACCES), _) => {
            "a seccomp filter or security module refuses it, as container runtimes do by default; \
             allow io_uring_setup, io_uring_enter and io_uring_register"
                .to_owned()
        }
        (Some(libc::ENOSYS), _) => {
            "this kernel has no io_uring (it needs Linux 5.6), or a seccomp filter hides it"
                .to_owned()
        }
        (Some(libc::ENOMEM), _) => {
            "no memory may be locked for it; raise RLIMIT_MEMLOCK (ulimit -l)".to_owned()
        }
        (Some(libc::EMFILE | libc::ENFILE), _) => {
            "no descriptor is left; raise RLIMIT_NOFILE (ulimit -n)".to_owned()
        }
        _ => "this kernel or sandbox refuses it".to_owned(),
    };
    format!("{call}: {error}; {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_names_what_to_change() {
        let cases = [
            (libc::ENOSYS, "Linux 5.6"),
            (libc::ENOMEM, "ulimit -l"),
            (libc::EMFILE, "ulimit -n"),
            (libc::EPERM, "io_uring_"),
        ];
        for (errno, part) in cases {
            let text = explain("io_uring_setup", &io::Error::from_raw_os_error(errno));
            assert!(text.contains(part), "{text}");
        }
    }
}
