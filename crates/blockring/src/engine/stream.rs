//! One `read` after another from the file position on: what stdio does, with a larger buffer; and the
//! only way to read what has no places.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{SeekFrom, seek};

use super::{Completion, Engine, Read};
use crate::stream::{Inlet, read_some};
use crate::sys;

/// The engine that follows the file position.
pub(crate) struct StreamEngine {
    /// Whether there is a position to set, and where it is, as far as is known.
    seekable: bool,
    position: Option<u64>,
    /// Of what has no places.
    inlet: Option<Inlet>,
}

impl StreamEngine {
    /// For `file`: what its reads are of, where that is known before.
    pub(crate) fn new(seekable: bool, file: Option<BorrowedFd<'_>>) -> StreamEngine {
        let inlet = file.filter(|_| !seekable).map(Inlet::new);
        StreamEngine { seekable, position: None, inlet }
    }

    fn seek(&mut self, read: &Read<'_>) -> io::Result<()> {
        if self.seekable && self.position != Some(read.offset) {
            seek(read.fd, SeekFrom::Start(read.offset))?;
        }
        Ok(())
    }
}

impl Engine for StreamEngine {
    unsafe fn submit(&mut self, read: Read<'_>) -> io::Result<Option<Completion>> {
        let result = self.seek(&read).and_then(|()| {
            // SAFETY: the caller vouches for the buffer, which holds bytes already: zeros, or what was read
            // into it before.
            let buffer = unsafe { std::slice::from_raw_parts_mut(read.buffer, read.len as usize) };
            let n = match (&mut self.inlet, read.flags) {
                (Some(inlet), _) => inlet.read(read.fd, buffer)?,
                // A file has nothing to wait for: one that says so for ever is given up by who counts.
                (None, 0) if self.seekable => rustix::io::read(read.fd, buffer)?,
                (None, 0) => read_some(read.fd, buffer)?,
                (None, flags) => sys::read_with(read.fd, buffer, flags)?,
            };
            // A u32 went in, so a u32 comes out.
            Ok(n as u32)
        });
        self.position = result.as_ref().ok().map(|n| read.offset + u64::from(*n));
        Ok(Some(Completion { slot: read.slot, result }))
    }
}
