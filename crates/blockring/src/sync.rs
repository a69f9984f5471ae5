//! The locks that `handover.rs` is written on. Its model check compiles the same file over loom's.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
