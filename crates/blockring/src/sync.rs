//! The locks that `handover.rs` is written on. Its model check compiles the same file over loom's.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::yield_now;

/// Looks in vain, some 20 us, after which the processor is offered to others: the one that is waited for may have
/// none. Without that, each block took two turns of the scheduler where there are fewer processors than threads that
/// spin: 1 MB in blocks of 512 bytes more than 20 s.
pub(crate) const LOOKS_MAX: u32 = 1000;
