//! The locks that `handover.rs` is written on. Its model check compiles the same file over loom's.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
