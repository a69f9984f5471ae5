//! `posix_fadvise` for the duration of a run.

use std::os::fd::BorrowedFd;

use rustix::fs::{Advice, fadvise};

/// A guard that resets the advice, because the open file description may be shared, as standard
/// input is. Errors are ignored: it is only advice.
pub(crate) struct AdviceGuard<'a>(BorrowedFd<'a>);

impl<'a> AdviceGuard<'a> {
    /// Advises that the file is read sequentially, once: the kernel reads further ahead, and does
    /// not treat the pages as needed again (Linux 6.3). 1 GiB cold with io_uring took 0.527 s
    /// instead of 0.603, and 0.30 s of CPU time instead of 0.54.
    pub(crate) fn sequential(fd: BorrowedFd<'a>) -> AdviceGuard<'a> {
        for advice in [Advice::Sequential, Advice::NoReuse] {
            let _ = fadvise(fd, 0, None, advice);
        }
        AdviceGuard(fd)
    }

    /// Advises random reads: read-ahead would be wasted.
    pub(crate) fn random(fd: BorrowedFd<'a>) -> AdviceGuard<'a> {
        let _ = fadvise(fd, 0, None, Advice::Random);
        AdviceGuard(fd)
    }
}

impl Drop for AdviceGuard<'_> {
    fn drop(&mut self) {
        let _ = fadvise(self.0, 0, None, Advice::Normal);
    }
}
