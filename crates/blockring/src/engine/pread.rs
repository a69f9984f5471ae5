//! One `preadv2` after another, on the thread that consumes the block while its bytes are still in
//! that core's cache.
#![allow(unsafe_code)]

use std::io;

use super::{Completion, Engine, Read};
use crate::sys;

/// The synchronous engine.
pub(crate) struct PreadEngine;

impl Engine for PreadEngine {
    unsafe fn submit(&mut self, read: Read<'_>) -> io::Result<Option<Completion>> {
        // SAFETY: the caller guarantees that the buffer is valid, and the call is synchronous.
        let result =
            unsafe { sys::pread(read.fd, read.buffer, read.len as usize, read.offset, read.flags) };
        // It fits, because the requested length is a u32.
        let result = result.map(|n| n as u32);
        Ok(Some(Completion { slot: read.slot, result }))
    }
}
