//! Memory suitable for direct I/O, for programs that read or write by themselves.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::slab::Slab;
use crate::config::HugePages;
use crate::error::ErrorKind;

/// Zeroed memory, aligned to 4096 bytes, as direct I/O needs on any device in use. Like the slots
/// of a ring, buffers of 512 KiB or more use huge pages if `pages` allows.
pub struct Buffer {
    slab: Slab,
    len: u32,
}

impl Buffer {
    /// Allocates `len` bytes. Pages are allocated at first use.
    ///
    /// # Errors
    ///
    /// If the system refuses the memory, or its pool of reserved huge pages is too small.
    pub fn new(len: u32, pages: HugePages) -> Result<Buffer, ErrorKind> {
        Ok(Buffer { slab: Slab::new(1, len, pages)?, len })
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slot has that many bytes, zeroed by the kernel, and is used nowhere else.
        unsafe { std::slice::from_raw_parts(self.slab.slot(0), self.len as usize) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this borrow is the only access to them.
        unsafe { std::slice::from_raw_parts_mut(self.slab.slot(0), self.len as usize) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zero_aligned_and_ours() {
        for (len, align) in [(0, 4096), (1, 4096), (4096, 4096), (4 << 20, 2 << 20)] {
            let mut buffer = Buffer::new(len, HugePages::Advise).unwrap();
            assert_eq!((buffer.len(), buffer.as_ptr() as usize % align), (len as usize, 0));
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            assert!(buffer.iter().all(|byte| *byte == 7));
        }
    }
}
