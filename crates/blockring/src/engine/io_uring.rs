//! Many reads in flight through an io_uring.
//!
//! The ring is set up on the thread that pumps it, with the newest flags that the kernel accepts.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fd, Timespec};
use io_uring::{Builder, IoUring, Probe, opcode, squeue};

use super::{Completion, Engine, Read, STALL, STALLS_MAX, Setup, Waker, event, sleep_on, waker_of};
use crate::config::Uring;

/// How long to wait for locked memory: the kernel returns that of a ring only some time after the
/// ring was closed, perhaps by another process of the same user.
const LOCKED_PATIENCE: Duration = Duration::from_millis(500);

/// The engine with a ring that is shared with the kernel.
pub(crate) struct IoUringEngine {
    ring: IoUring,
    /// Present if another thread may have to wake this one.
    event: Option<Arc<OwnedFd>>,
    knobs: Uring,
    /// Flags of each request.
    flags: squeue::Flags,
    /// Requests may still be in flight when this is dropped.
    is_abandoned: bool,
    /// Consecutive times that the kernel could not accept a request.
    stalls: u32,
}

/// Set-up flags, the newest last; it is dropped for each `EINVAL`, as fio does.
///
/// `SINGLE_ISSUER` (6.0) and `DEFER_TASKRUN` (6.1) prevent completions from interrupting the
/// consumer: they are delivered on request. `NO_SQARRAY` (6.6) saves an indirection.
const FLAGS: [fn(&mut Builder) -> &mut Builder; 3] = [
    Builder::setup_single_issuer,
    // With the flag that signals completions to fetch.
    |builder| builder.setup_defer_taskrun().setup_taskrun_flag(),
    Builder::setup_no_sqarray,
];

impl IoUringEngine {
    /// Sets up a ring for `setup.depth` requests. An error says what is missing.
    pub(crate) fn new(setup: &Setup<'_>) -> Result<IoUringEngine, String> {
        let knobs = setup.uring;
        let ring =
            set_up_patiently(setup.depth, &knobs).map_err(|error| explain_setup(&knobs, &error))?;
        let event = if setup.wakes { Some(event()?) } else { None };
        if let Some(event) = &event {
            ring.submitter()
                .register_eventfd(event.as_raw_fd())
                .map_err(|error| explain("io_uring_register (an eventfd)", &error))?;
        }
        if knobs.fixed_file {
            let file = setup.file.ok_or("a fixed file works for one file, not for many")?;
            ring.submitter()
                .register_files(&[file.as_raw_fd()])
                .map_err(|error| explain("io_uring_register (the file)", &error))?;
        }
        if let (true, Some(slab)) = (knobs.fixed_buffers, setup.slab) {
            static IS_SCARCE: AtomicBool = AtomicBool::new(false);
            // SAFETY: the slab outlives the engine, or is leaked.
            let register = || unsafe { ring.submitter().register_buffers(&[slab]) };
            with_locked_memory(&IS_SCARCE, register)
                .map_err(|error| explain("io_uring_register (the slots)", &error))?;
        }
        let mut flags = squeue::Flags::empty();
        flags.set(squeue::Flags::IO_DRAIN, knobs.drain);
        flags.set(squeue::Flags::IO_LINK, knobs.link);
        flags.set(squeue::Flags::FIXED_FILE, knobs.fixed_file);
        Ok(IoUringEngine { ring, event, knobs, flags, is_abandoned: false, stalls: 0 })
    }

    fn entry(&self, read: &Read<'_>) -> squeue::Entry {
        let Read { fd, buffer, len, offset, flags, .. } = *read;
        // With `FIXED_FILE` it is the number of the registered file.
        let fd = Fd(if self.knobs.fixed_file { 0 } else { fd.as_raw_fd() });
        let entry = match self.knobs.fixed_buffers {
            false => opcode::Read::new(fd, buffer, len).offset(offset).rw_flags(flags).build(),
            true => {
                opcode::ReadFixed::new(fd, buffer, len, 0).offset(offset).rw_flags(flags).build()
            }
        };
        entry.flags(self.flags).user_data(read.slot.into())
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the caller of `submit` guarantees that the buffer is valid.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            // Full: the kernel consumes the entries, which makes room.
            self.enter(0)?;
        }
    }

    fn harvest(&mut self, done: &mut Vec<Completion>) {
        for entry in self.ring.completion() {
            let result = match entry.result() {
                n if n >= 0 => Ok(n as u32),
                errno => Err(io::Error::from_raw_os_error(-errno)),
            };
            done.push(Completion { slot: entry.user_data() as u32, result });
        }
    }

    /// Whether there is nothing to submit, and the kernel has no deferred work.
    fn is_quiet(&mut self) -> bool {
        let iopoll = self.knobs.iopoll;
        let queue = self.ring.submission();
        queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() && !iopoll
    }

    /// Submits the queue, and waits for `want` completions.
    fn enter(&mut self, want: usize) -> io::Result<()> {
        match self.ring.submitter().submit_and_wait(want) {
            Ok(_) => {
                self.stalls = 0;
                Ok(())
            }
            Err(error) => match error.raw_os_error() {
                // A signal: the caller tries again.
                Some(libc::EINTR) => Ok(()),
                // The kernel is out of memory for requests, or holds completions that do not fit
                // into the queue: the caller takes some and tries again.
                Some(libc::EAGAIN | libc::EBUSY) if self.stalls < STALLS_MAX => {
                    self.stalls += 1;
                    thread::sleep(STALL);
                    Ok(())
                }
                _ => Err(error),
            },
        }
    }

    /// Waits for the event, which completions signal as well.
    ///
    /// Polling it with a request would not work: with `IOSQE_IO_DRAIN` every read would wait for
    /// that request. Nor would polling the ring: with `DEFER_TASKRUN` that does not see completions
    /// that have not been fetched.
    fn wait_for_event(&mut self, event: &OwnedFd) -> io::Result<()> {
        self.enter(0)?;
        if self.knobs.sqpoll.is_none() && !self.ring.submission().is_empty() {
            // The kernel did not take all requests: nothing would signal the event for the rest.
            return Ok(());
        }
        let mut queue = self.ring.completion();
        queue.sync();
        // Completions of a polled device are found only by polling it.
        if self.knobs.iopoll || !queue.is_empty() {
            return Ok(());
        }
        drop(queue);
        sleep_on(event)?;
        self.enter(0)
    }
}

impl Engine for IoUringEngine {
    unsafe fn submit(&mut self, read: Read<'_>) -> io::Result<Option<Completion>> {
        let entry = self.entry(&read);
        self.push(&entry)?;
        Ok(None)
    }

    fn wait(&mut self, sleeps: bool, done: &mut Vec<Completion>) -> io::Result<()> {
        let result = match (sleeps, self.event.clone()) {
            (false, _) if self.is_quiet() => Ok(()),
            (true, Some(event)) => self.wait_for_event(&event),
            (sleeps, _) => self.enter(usize::from(sleeps)),
        };
        self.harvest(done);
        result
    }

    fn drain(&mut self, in_flight: u32, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut done = Vec::new();
        // Requests that were queued but not submitted are submitted here, so that they complete.
        let _ = self.wait(false, &mut done);
        // Linux 6.0; before, reads run to completion. Reads that the device is processing cannot be
        // cancelled, and complete.
        let _ = self
            .ring
            .submitter()
            .register_sync_cancel(Some(Timespec::from(Duration::ZERO)), CancelBuilder::any());
        // Polling, because a wait with a timeout needs Linux 5.11.
        while done.len() < in_flight as usize {
            if Instant::now() >= deadline {
                self.is_abandoned = true;
                return false;
            }
            let before = done.len();
            let _ = self.enter(0);
            self.harvest(&mut done);
            if done.len() == before {
                thread::sleep(Duration::from_micros(100));
            }
        }
        true
    }

    fn waker(&self) -> Option<Waker> {
        self.event.as_ref().map(waker_of)
    }
}

impl Drop for IoUringEngine {
    fn drop(&mut self) {
        // Closing the ring returns its locked memory only later, when the next ring may need it. (This would
        // wait for requests in flight.)
        if self.knobs.fixed_buffers && !self.is_abandoned {
            let _ = self.ring.submitter().unregister_buffers();
        }
    }
}

/// Calls `lock`, which locks memory, until there is enough of it within `RLIMIT_MEMLOCK`. Waits once without
/// success; after that, `is_scarce`, failures are returned at once until a call succeeds.
fn with_locked_memory<R>(
    is_scarce: &AtomicBool,
    mut lock: impl FnMut() -> io::Result<R>,
) -> io::Result<R> {
    let deadline = Instant::now() + LOCKED_PATIENCE;
    loop {
        let locked = lock();
        match &locked {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                if is_scarce.load(Ordering::Relaxed) || Instant::now() >= deadline {
                    is_scarce.store(true, Ordering::Relaxed);
                    return locked;
                }
                thread::sleep(STALL);
            }
            _ => {
                is_scarce.store(false, Ordering::Relaxed);
                return locked;
            }
        }
    }
}

/// Sets up a ring, and waits for locked memory: before Linux 5.12 all of a ring counts.
fn set_up_patiently(depth: u32, knobs: &Uring) -> io::Result<IoUring> {
    static IS_SCARCE: AtomicBool = AtomicBool::new(false);
    with_locked_memory(&IS_SCARCE, || set_up(depth, knobs))
}

fn set_up(depth: u32, knobs: &Uring) -> io::Result<IoUring> {
    let mut result = Err(io::ErrorKind::Unsupported.into());
    // Deferred work requires the issuer to enter the kernel; with a polling thread it does not.
    let most = if knobs.sqpoll.is_some() { 1 } else { FLAGS.len() };
    for flags in (0..=most).rev() {
        let mut builder = IoUring::builder();
        builder.dontfork();
        for set in &FLAGS[..flags] {
            set(&mut builder);
        }
        if let Some(idle_ms) = knobs.sqpoll {
            builder.setup_sqpoll(idle_ms);
            if let Some(cpu) = knobs.sqpoll_cpu {
                builder.setup_sqpoll_cpu(cpu);
            }
        }
        if knobs.iopoll {
            builder.setup_iopoll();
        }
        result = builder.build(depth);
        match &result {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => continue,
            _ => break,
        }
    }
    result
}

/// Checks that io_uring is available with these options and works: sets up a small ring, queries
/// its features and completes one request. A seccomp filter may block any of these.
pub(crate) fn usable(knobs: &Uring) -> Result<(), String> {
    // Success is cached; a failure may be a temporary lack of memory or descriptors.
    static USABLE: AtomicBool = AtomicBool::new(false);
    if USABLE.load(Ordering::Relaxed) && !knobs.is_set() {
        return Ok(());
    }
    let mut ring = set_up_patiently(2, knobs).map_err(|error| explain_setup(knobs, &error))?;
    let mut known = Probe::new();
    ring.submitter()
        .register_probe(&mut known)
        .map_err(|error| explain("io_uring_register", &error))?;
    // Linux 5.1 to 5.5 have io_uring, but no plain read.
    if !known.is_supported(opcode::Read::CODE) {
        return Err("this kernel's io_uring cannot read yet (it needs Linux 5.6)".to_owned());
    }
    if knobs.sqpoll.is_some() && !knobs.fixed_file && !ring.params().is_feature_sqpoll_nonfixed() {
        return Err(
            "SQPOLL reads only registered files before Linux 5.11: use a fixed file as well"
                .to_owned(),
        );
    }
    // SAFETY: a no-op points to no memory.
    let _ = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    ring.submit_and_wait(1).map_err(|error| explain("io_uring_enter", &error))?;
    USABLE.store(true, Ordering::Relaxed);
    Ok(())
}

/// Explains an error of setting up a ring with these options.
fn explain_setup(knobs: &Uring, error: &io::Error) -> String {
    match (knobs.sqpoll_cpu, error.raw_os_error()) {
        (Some(cpu), Some(libc::EINVAL)) => {
            format!(
                "io_uring_setup with SQPOLL: {error}; is there a processor {cpu}, and is this process \
                 allowed to use it?"
            )
        }
        (_, Some(libc::EPERM))
            if knobs.sqpoll.is_some() && set_up(2, &Uring::default()).is_ok() =>
        {
            format!("io_uring_setup with SQPOLL: {error}; before Linux 5.11 it needs CAP_SYS_ADMIN")
        }
        _ => explain("io_uring_setup", error),
    }
}

/// Explains an error of one of io_uring's three system calls, and how to fix it.
fn explain(call: &str, error: &io::Error) -> String {
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
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
            "RLIMIT_MEMLOCK does not allow its memory to be locked; raise it (ulimit -l)".to_owned()
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
    fn locked_memory_is_waited_for_once() {
        let is_scarce = AtomicBool::new(false);
        let calls = |refused: u32| {
            let mut calls = 0;
            let locked = with_locked_memory(&is_scarce, || {
                calls += 1;
                match calls <= refused {
                    true => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
                    false => Ok(()),
                }
            });
            (locked.is_ok(), calls)
        };
        assert_eq!(calls(3), (true, 4));
        let (is_locked, count) = calls(u32::MAX);
        assert!(!is_locked && count > 1, "{count} calls");
        assert_eq!(calls(u32::MAX), (false, 1));
        assert_eq!(calls(0), (true, 1));
        assert_eq!(calls(3), (true, 4));
        // Another error is no lack of memory.
        let denied = || Err::<(), _>(io::Error::from_raw_os_error(libc::EPERM));
        assert!(with_locked_memory(&is_scarce, denied).is_err());
        assert!(!is_scarce.into_inner());
    }

    #[test]
    fn the_reason_says_what_to_change() {
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
