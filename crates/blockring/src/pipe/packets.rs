//! Reads streams whose writes may have to be read whole: pipes in packet mode, and message sockets.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;

use super::{read_some, wait_for};
use crate::sys;

/// Returns the smallest read of a pipe, in bytes. In packet mode (`O_DIRECT`), the kernel discards the
/// part of a packet that does not fit. It makes a packet of each page that a `write` fills (`pipe_write` in
/// `fs/pipe.c`), so a packet has up to a page: pipe(2) says `PIPE_BUF`, which is the same on x86-64 only. The
/// reading end cannot tell whether a pipe is in packet mode, because a writer may have enabled it.
fn packet_bytes_max() -> usize {
    sys::page_bytes().max(4096)
}

/// A reader that keeps the rest of a packet that does not fit in the buffer.
#[derive(Debug)]
pub(super) struct PacketReader {
    /// Whether it is a message socket, whose messages must be read whole.
    has_messages: bool,
    kept: Vec<u8>,
    /// Bytes of `kept` that have been returned.
    taken: usize,
}

impl PacketReader {
    pub(super) fn new(fd: BorrowedFd<'_>) -> PacketReader {
        let kind = rustix::net::sockopt::socket_type(fd);
        let has_messages = kind.is_ok_and(|kind| kind != rustix::net::SocketType::STREAM);
        PacketReader { has_messages, kept: Vec::new(), taken: 0 }
    }

    /// Whether bytes of the last packet are left.
    pub(super) fn has_kept(&self) -> bool {
        self.taken < self.kept.len()
    }

    /// Reads the available bytes into `buffer`, waiting for some; returns 0 at the end.
    pub(super) fn read(&mut self, fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.has_kept() {
            let packet_bytes = match self.has_messages {
                true => {
                    wait_for(fd, PollFlags::IN)?;
                    // The length of the next message.
                    rustix::io::ioctl_fionread(fd).map_or(0, |n| n as usize).max(64 << 10)
                }
                false => packet_bytes_max(),
            };
            if buffer.len() >= packet_bytes {
                return read_some(fd, buffer);
            }
            self.taken = 0;
            self.kept.resize(packet_bytes, 0);
            let read = read_some(fd, &mut self.kept);
            self.kept.truncate(*read.as_ref().unwrap_or(&0));
            read?;
        }
        let n = buffer.len().min(self.kept.len() - self.taken);
        buffer[..n].copy_from_slice(&self.kept[self.taken..][..n]);
        self.taken += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;
    use crate::sys::fake_page;

    #[test]
    fn a_packet_of_a_whole_page_fits() {
        let bytes: Vec<u8> = (0..60_000_u32).map(|i| (i % 251) as u8).collect();
        fake_page::each(|page_bytes| {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(&bytes).unwrap();
            drop(writer);
            let mut packets = PacketReader::new(reader.as_fd());
            let (mut read, mut buffer) = (Vec::<u8>::new(), [0; 1000]);
            loop {
                let n = packets.read(reader.as_fd(), &mut buffer).unwrap();
                read.extend(&buffer[..n]);
                if read.len() == n {
                    // A packet that begins here would have been read to its end.
                    assert_eq!(packets.kept.len(), page_bytes.min(bytes.len()));
                }
                if n == 0 {
                    break;
                }
            }
            assert!(read == bytes, "{} bytes", read.len());
        });
    }
}
