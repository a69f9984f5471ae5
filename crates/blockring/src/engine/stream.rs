//! One `read` after another from the file position on: what stdio does, with a larger buffer; and the
//! only way to read what has no places.
#![allow(unsafe_code)]

use std::io;

use rustix::fs::{SeekFrom, seek};

use super::{Completion, Engine, Read};
use crate::stream::read_some_at;

/// The engine that follows the file position.
pub(crate) struct StreamEngine {
    /// Whether there is a position to set, and where it is, as far as is known.
    seekable: bool,
    position: Option<u64>,
}

impl StreamEngine {
    pub(crate) fn new(seekable: bool) -> StreamEngine {
        StreamEngine { seekable, position: None }
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
            // SAFETY: the caller vouches for the buffer.
            let n = unsafe { read_some_at(read.fd, read.buffer, read.len as usize, read.flags)? };
            // A u32 went in, so a u32 comes out.
            Ok(n as u32)
        });
        self.position = result.as_ref().ok().map(|n| read.offset + u64::from(*n));
        Ok(Some(Completion { slot: read.slot, result }))
    }
}
