//! Reading to the end what has no places: pipes, terminals, sockets, and files that do not say how
//! long they are.

use std::io;
use std::num::NonZero;
use std::os::fd::{AsFd, BorrowedFd};
use std::slice;

use rustix::event::{PollFd, PollFlags, poll};

use crate::error::ErrorKind;
use crate::slab::Slab;
use crate::source::{Source, SourceKind};
use crate::workers::Block;

/// What a pipe is enlarged to, in bytes: the most that a user without privileges may ask for
/// (`/proc/sys/fs/pipe-max-size`). Each wake-up then moves 16 times what the default of 64 KiB does.
const PIPE_BYTES: usize = 1 << 20;

/// Reads `source` to its end, in blocks of `block_bytes` of which only the last is short.
pub(crate) fn read_to_end(
    source: &Source,
    block_bytes: u32,
    consume: &mut dyn FnMut(Block<'_>) -> Result<(), ErrorKind>,
) -> Result<(), ErrorKind> {
    if source.kind() == SourceKind::Pipe {
        // Refused where the user's pipes hold enough already: then the pipe stays as it is.
        let _ = rustix::pipe::fcntl_setpipe_size(source.file(), PIPE_BYTES);
    }
    let slab = Slab::new(1, block_bytes)
        .map_err(|error| ErrorKind::Resource { what: "memory for the slots", error })?;
    #[expect(unsafe_code)]
    // SAFETY: the slot is ours alone, holds `block_bytes`, and is zeroed by the kernel.
    let buffer = unsafe { slice::from_raw_parts_mut(slab.slot(0), block_bytes as usize) };
    let (mut index, mut offset) = (0, 0);
    loop {
        let filled = fill(source.as_fd(), buffer)
            .map_err(|(filled, error)| ErrorKind::Read { offset: offset + filled as u64, error })?;
        if filled > 0 {
            let bytes = &buffer[..filled];
            consume(Block { index, offset, bytes })?;
        }
        if filled < buffer.len() {
            return Ok(());
        }
        index += 1;
        offset += filled as u64;
    }
}

/// Reads until `buffer` is full or the end. With an error, how much was there before it.
fn fill(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, (usize, io::Error)> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::read(fd, &mut buffer[filled..]).map(NonZero::new) {
            Ok(None) => break,
            Ok(Some(n)) => filled += n.get(),
            Err(rustix::io::Errno::INTR) => {}
            // Somebody made our standard input non-blocking: wait for it.
            Err(rustix::io::Errno::AGAIN) => {
                match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err((filled, error.into())),
                }
            }
            Err(error) => return Err((filled, error.into())),
        }
    }
    Ok(filled)
}
