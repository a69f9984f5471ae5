//! The limit of open files, and waiting while all descriptors are in use.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// File descriptors of the process other than files to hash and directories: standard streams,
/// eventfds, a list.
const OTHERS: u64 = 8;

/// Delay between attempts to open a file when descriptors are exhausted.
const DELAY: Duration = Duration::from_millis(10);

/// Returns the number of descriptors for files to hash and directories.
pub(super) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(OTHERS)
}

/// Whether a file could not be opened because descriptors are exhausted, so that waiting may help.
pub(super) fn is_exhausted(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Whether a file ran out of attempts to get a descriptor, and none has been opened since.
#[derive(Default)]
pub(super) struct Shortage(AtomicBool);

impl Shortage {
    /// Opens a file. Retries while descriptors are exhausted, because other threads will close
    /// their files, but not if another file has already run out of attempts.
    pub(super) fn wait<X, E>(
        &self,
        attempts_max: u32,
        is_stopped: impl Fn() -> bool,
        is_exhausted: impl Fn(&E) -> bool,
        open: impl Fn() -> Result<X, E>,
    ) -> Result<X, E> {
        let mut attempts = 0;
        loop {
            match open() {
                Err(error) if is_exhausted(&error) => {
                    if attempts == attempts_max || self.0.load(Relaxed) || is_stopped() {
                        self.0.store(true, Relaxed);
                        return Err(error);
                    }
                    attempts += 1;
                    thread::sleep(DELAY);
                }
                opened => {
                    if opened.is_ok() && self.0.load(Relaxed) {
                        self.0.store(false, Relaxed);
                    }
                    return opened;
                }
            }
        }
    }
}
