//! The I/O priority of threads, from `linux/ioprio.h`.
#![allow(unsafe_code)]

use std::io;

use super::check;

const IOPRIO_WHO_PROCESS: libc::c_int = 1;
const IOPRIO_CLASS_SHIFT: libc::c_int = 13;
const IOPRIO_CLASS_BE: libc::c_int = 2;
const IOPRIO_CLASS_IDLE: libc::c_int = 3;

/// The priority of reads in the device's queue (`ioprio_set(2)`), if its scheduler supports it: BFQ
/// and mq-deadline do, `none` does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoPriority {
    /// Only when no other process has used the device for a while.
    Idle,
    /// From 0, the highest, to 7, the lowest. A process has 4 by default.
    BestEffort(u8),
}

/// A guard: until its drop, this thread, and threads that it starts, have another I/O priority.
pub(crate) struct PriorityGuard {
    before: libc::c_int,
}

impl PriorityGuard {
    /// Changes the I/O priority of this thread.
    pub(crate) fn set(priority: IoPriority) -> io::Result<PriorityGuard> {
        // SAFETY: no memory is involved; 0 is this thread.
        let before = check(unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) })?;
        set(match priority {
            IoPriority::Idle => IOPRIO_CLASS_IDLE << IOPRIO_CLASS_SHIFT,
            IoPriority::BestEffort(level) => {
                (IOPRIO_CLASS_BE << IOPRIO_CLASS_SHIFT) | libc::c_int::from(level)
            }
        })?;
        Ok(PriorityGuard { before: before as libc::c_int })
    }
}

impl Drop for PriorityGuard {
    fn drop(&mut self) {
        // Allowed, because the thread had this priority before.
        let _ = set(self.before);
    }
}

fn set(priority: libc::c_int) -> io::Result<()> {
    // SAFETY: no memory is involved; 0 is this thread.
    check(unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, priority) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> libc::c_long {
        // SAFETY: no memory is involved; 0 is this thread.
        unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) }
    }

    #[test]
    fn it_is_inherited_and_restored() {
        let before = now();
        let changed = PriorityGuard::set(IoPriority::Idle).unwrap();
        assert_eq!(now() >> IOPRIO_CLASS_SHIFT, libc::c_long::from(IOPRIO_CLASS_IDLE));
        let inherited = std::thread::spawn(now).join().unwrap();
        assert_eq!(inherited >> IOPRIO_CLASS_SHIFT, libc::c_long::from(IOPRIO_CLASS_IDLE));
        drop(changed);
        assert_eq!(now(), before);
        let changed = PriorityGuard::set(IoPriority::BestEffort(6)).unwrap();
        assert_eq!(now() & 0xff, 6);
        drop(changed);
    }
}
