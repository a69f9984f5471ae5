//! A file that is written past the page cache, from buffers that suit direct I/O.

use std::fs::File as StdFile;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use blockring::{Buffer, HugePages};

use crate::lock;

/// The alignment of direct I/O that every device accepts, in bytes.
const ALIGN_BYTES: usize = 4096;

/// A file that was opened for direct I/O.
pub(crate) struct DirectFile {
    file: StdFile,
    /// Free buffers. (New memory for each write would have to be zeroed.)
    buffers: Mutex<Vec<Buffer>>,
}

impl DirectFile {
    pub(crate) fn new(file: StdFile) -> DirectFile {
        DirectFile { file, buffers: Mutex::default() }
    }

    /// Writes bytes, unless their place or the file system does not allow it. Returns whether it did.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<bool> {
        if !offset.is_multiple_of(ALIGN_BYTES as u64) || !bytes.len().is_multiple_of(ALIGN_BYTES) {
            return Ok(false);
        }
        let written = if bytes.as_ptr().addr().is_multiple_of(ALIGN_BYTES) {
            self.file.write_all_at(bytes, offset)
        } else {
            let Some(mut buffer) = self.take(bytes.len()) else { return Ok(false) };
            buffer[..bytes.len()].copy_from_slice(bytes);
            let written = self.file.write_all_at(&buffer[..bytes.len()], offset);
            lock(&self.buffers).push(buffer);
            written
        };
        match written {
            // Some file systems open files for direct writes, and then refuse them.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
            written => written.map(|()| true),
        }
    }

    /// Takes a buffer of at least `len` bytes; `None` if there is no memory for it.
    fn take(&self, len: usize) -> Option<Buffer> {
        let free = lock(&self.buffers).pop().filter(|buffer| buffer.len() >= len);
        free.or_else(|| Buffer::new(len as u32, HugePages::Off).ok())
    }
}
