//! Synchronization primitives of `block_queue.rs`. Its model check uses loom's instead.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::yield_now;

/// Unsuccessful polls, about 20 us, after which a spinning thread yields its processor, because the
/// thread that it waits for may have none. Without that, each block took two time slices if there
/// were fewer processors than spinning threads: 1 MB in blocks of 512 bytes took more than 20 s.
pub(crate) const LOOKS_MAX: u32 = 1000;
