//! A producer that gives its pages away (`vmsplice`), as fast producers do.
#![expect(unsafe_code)]

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use blockring::{Buffer, HugePages};
use rustix::pipe::{IoSliceRaw, SpliceFlags, fcntl_getpipe_size, vmsplice};

/// Two buffers as large as the pipe: while one is in the pipe, the other is filled.
pub(super) struct Producer<P> {
    pipe: P,
    halves: [Buffer; 2],
    half_bytes: usize,
    /// The half to fill next.
    next: usize,
    /// Bytes of each half that were sent the last time.
    sent: [usize; 2],
}

impl<P: AsFd> Producer<P> {
    pub(super) fn new(pipe: P, pages: HugePages) -> Producer<P> {
        let half_bytes = fcntl_getpipe_size(&pipe).unwrap();
        let halves = [(); 2].map(|()| Buffer::new(half_bytes as u32, pages).unwrap());
        Producer { pipe, halves, half_bytes, next: 0, sent: [0; 2] }
    }

    /// Returns the next half once none of it is in the pipe any more.
    pub(super) fn writable(&mut self) -> &mut [u8] {
        let since = self.sent[self.next ^ 1] as u64;
        while rustix::io::ioctl_fionread(&self.pipe).unwrap() > since {
            thread::sleep(Duration::from_millis(1));
        }
        &mut self.halves[self.next][..self.half_bytes]
    }

    /// Gives the first `len` bytes of the half to the pipe.
    pub(super) fn send(&mut self, len: usize) {
        let mut rest = &mut self.halves[self.next][..len];
        while !rest.is_empty() {
            let slice = IoSliceRaw::from_slice_mut(rest);
            // SAFETY: the half is not written to again before the reader has taken it out of the pipe.
            let sent = unsafe { vmsplice(&self.pipe, &[slice], SpliceFlags::empty()) }.unwrap();
            rest = &mut rest[sent..];
        }
        self.sent[self.next] = len;
        self.next ^= 1;
    }
}
