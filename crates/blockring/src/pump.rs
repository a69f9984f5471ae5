//! THE loop: request, complete, reissue, lend, free. Every engine and every order goes through it.
//!
//! What a raw result means (a short read, an interruption, the end of the file) says `request.rs`.
//! Who consumes a block, and on which thread, is `workers.rs`'s business.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::config::Order;
use crate::engine::{Completion, Engine, Read};
use crate::error::ErrorKind;
use crate::extents::{Extent, Extents};
use crate::request::Request;
use crate::ring::Ring;
use crate::slab::Slab;

/// How long requests may take to end when a run is given up. After that their memory is leaked: a
/// dead NFS or FUSE server may never answer.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);

/// Requests are handed to the kernel when they cover this many bytes, or when there is nothing else
/// to do: a system call for each small block costs more than the block, and a device that waits for
/// large ones is idle. One call is about 1 us here, and 256 KiB about 40 us of hashing.
const FLUSH_BYTES: u32 = 256 << 10;

/// What all the pumps of one run share.
pub(crate) struct Job<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    /// `RWF_*` of each read.
    pub(crate) flags: i32,
    /// Offsets and lengths of reads are multiples of this; 1 unless direct.
    pub(crate) align: u32,
    /// Length of the source at its opening, in bytes.
    pub(crate) source_len: u64,
    pub(crate) extents: Extents,
}

/// A finished block on its way to the consumer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finished {
    pub(crate) slot: u32,
    pub(crate) extent: Extent,
    pub(crate) bytes: *const u8,
}

// SAFETY: the bytes belong to whoever holds the block, on any thread, until its slot is given back.
unsafe impl Send for Finished {}

/// Where blocks go.
pub(crate) trait Deliver {
    /// Takes a block. True: it is consumed already; false: its slot comes back later.
    fn deliver(&mut self, block: Finished) -> Result<bool, ErrorKind>;

    /// Appends the slots that came back. Fails when nobody consumes any more.
    fn take_returned(&mut self, _slots: &mut Vec<u32>) -> Result<(), ErrorKind> {
        Ok(())
    }

    /// Waits until a slot comes back. Called only while some are out.
    fn wait_returned(&mut self) {}

    /// Whether the pump may sleep in its engine.
    fn may_sleep(&mut self) -> bool {
        true
    }

    /// The pump has stopped: because all was delivered, or because of an error.
    fn finish(&mut self, _complete: bool) {}

    /// How many finished blocks wait, of `depth` that can be in flight: the consumer is the
    /// bottleneck when this stays high.
    fn backlog(&mut self, _blocks: u32, _depth: u32) {}
}

/// One thread's ring, with its engine, over a slab that outlives it.
pub(crate) struct Pump<'a> {
    job: &'a Job<'a>,
    slab: Option<&'a Slab>,
    engine: Box<dyn Engine>,
    ring: Ring,
    requests: Vec<Option<Request>>,
    /// Submitted since the engine last handed requests to the kernel.
    queued: u32,
    flush_at: u32,
    done: Vec<Completion>,
    returned: Vec<u32>,
}

impl<'a> Pump<'a> {
    /// `slab`: none for an engine that lends its own memory.
    pub(crate) fn new(
        job: &'a Job<'a>,
        engine: Box<dyn Engine>,
        slab: Option<&'a Slab>,
        slots: u32,
        depth: u32,
        block_bytes: u32,
        order: Order,
    ) -> Pump<'a> {
        Pump {
            job,
            slab,
            engine,
            ring: Ring::new(slots, depth, order),
            requests: vec![None; slots as usize],
            queued: 0,
            flush_at: (FLUSH_BYTES / block_bytes).clamp(1, (depth / 4).max(1)),
            done: Vec::with_capacity(depth as usize),
            returned: Vec::with_capacity(slots as usize),
        }
    }

    /// Runs until the extents are used up and every block has been consumed.
    ///
    /// # Errors
    ///
    /// The first that a read, the consumer or the system gives. Requests may then still be in
    /// flight: dropping the pump ends them.
    pub(crate) fn run(&mut self, to: &mut dyn Deliver) -> Result<(), ErrorKind> {
        loop {
            self.take_returned(to)?;
            self.request()?;
            if let Some(slot) = self.ring.lend() {
                to.backlog(self.ring.backlog(), self.ring.depth());
                self.lend(slot, to)?;
            } else if self.ring.in_flight() > 0 {
                self.wait(to.may_sleep())?;
            } else if self.ring.lent() > 0 {
                to.wait_returned();
            } else {
                // Nothing in flight, nothing lent, nothing to lend: every slot is free, and
                // `request` left them so since there is nothing more to read.
                return Ok(());
            }
        }
    }

    /// Requests extents while there are slots for them.
    fn request(&mut self) -> Result<(), ErrorKind> {
        while self.ring.can_request() {
            let Some(extent) = self.job.extents.claim() else { break };
            let slot = self.ring.request().expect("can_request said so");
            self.requests[slot as usize] = Some(Request::new(extent));
            if self.submit(slot)? {
                // It was read at once: it is consumed before the next, while it is in the cache.
                break;
            }
        }
        // With nothing to lend, the wait that follows hands them over.
        if self.queued >= self.flush_at && self.ring.can_lend() {
            self.wait(false)?;
        }
        Ok(())
    }

    /// Asks for what is missing of the extent of `slot`. True: it is whole already.
    fn submit(&mut self, slot: u32) -> Result<bool, ErrorKind> {
        loop {
            let read = self.read_for(slot);
            // SAFETY: the slot is requested, so that nobody else uses its memory, and the read asks
            // for no more than it holds; the slab outlives this pump, whose drop drains the engine
            // or leaks the slab.
            match unsafe { self.engine.submit(read) } {
                Ok(None) => {
                    self.queued += 1;
                    return Ok(false);
                }
                Ok(Some(completion)) => {
                    if self.complete(completion)? {
                        return Ok(true);
                    }
                }
                Err(error) => {
                    self.ring.complete(slot);
                    return Err(ErrorKind::Read { offset: read.offset, error });
                }
            }
        }
    }

    /// The read that brings what is missing.
    fn read_for(&self, slot: u32) -> Read<'a> {
        let request = self.requests[slot as usize].expect("a requested slot has a request");
        let part = request.missing(self.job.align);
        let buffer = match self.slab {
            Some(slab) => slab.slot(slot).wrapping_add(part.skip as usize),
            None => std::ptr::null_mut(),
        };
        let (fd, flags) = (self.job.fd, self.job.flags);
        Read { slot, fd, offset: part.offset, len: part.len, buffer, flags }
    }

    /// Takes a completion down. False: something is missing, and must be asked for again. After an
    /// error the slot is not in flight any more.
    fn complete(&mut self, completion: Completion) -> Result<bool, ErrorKind> {
        let Completion { slot, result } = completion;
        let request = self.requests[slot as usize].as_mut().expect("a completion has a request");
        let result = request.complete(result, self.job.align, self.job.source_len);
        if !matches!(result, Ok(false)) {
            self.ring.complete(slot);
        }
        result
    }

    fn wait(&mut self, block: bool) -> Result<(), ErrorKind> {
        let result = self.engine.wait(block, &mut self.done);
        self.queued = 0;
        let mut done = std::mem::take(&mut self.done);
        let mut first = result.map_err(ErrorKind::Wait);
        // Every completion is taken down even after an error, so that the ring knows what is still
        // in flight.
        for completion in done.drain(..) {
            let slot = completion.slot;
            match self.complete(completion) {
                Ok(true) => {}
                Ok(false) if first.is_err() => self.ring.complete(slot),
                Ok(false) => {
                    if let Err(error) = self.submit(slot) {
                        first = Err(error);
                    }
                }
                Err(error) => first = first.and(Err(error)),
            }
        }
        self.done = done;
        first
    }

    fn lend(&mut self, slot: u32, to: &mut dyn Deliver) -> Result<(), ErrorKind> {
        let extent = self.requests[slot as usize].expect("a ready slot has a request").extent;
        let bytes = match self.slab {
            Some(slab) => slab.slot(slot),
            None => self.engine.lent(slot),
        };
        match to.deliver(Finished { slot, extent, bytes })? {
            true => self.free(slot),
            false => Ok(()),
        }
    }

    fn take_returned(&mut self, to: &mut dyn Deliver) -> Result<(), ErrorKind> {
        if self.ring.lent() == 0 {
            return Ok(());
        }
        let mut returned = std::mem::take(&mut self.returned);
        let result = to.take_returned(&mut returned);
        let freed = returned.drain(..).try_for_each(|slot| self.free(slot));
        self.returned = returned;
        result.and(freed)
    }

    fn free(&mut self, slot: u32) -> Result<(), ErrorKind> {
        self.ring.give_back(slot);
        self.engine.release(slot).map_err(|error| {
            let offset = self.requests[slot as usize].map_or(0, |request| request.extent.offset);
            ErrorKind::Read { offset, error }
        })
    }
}

impl Drop for Pump<'_> {
    fn drop(&mut self) {
        let in_flight = self.ring.in_flight();
        if in_flight > 0
            && !self.engine.drain(in_flight, DRAIN_PATIENCE)
            && let Some(slab) = self.slab
        {
            slab.leak();
        }
    }
}

#[cfg(test)]
#[path = "pump_tests.rs"]
mod tests;
