//! THE loop: request, complete, reissue, lend, free. Every engine goes through it, in every order; streams that
//! threads take turns to read (`stream.rs`) do not.
//!
//! What a raw result means (a short read, an interruption, the end of the file) says `request.rs`.
//! Who consumes a block, and on which thread, is `workers.rs`'s business.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::config::{Consume, Order};
use crate::engine::{Completion, Engine, Read};
use crate::error::ErrorKind;
use crate::extents::{Extent, Extents};
use crate::rate::RateLimit;
use crate::request::Request;
use crate::ring::Ring;
use crate::slab::Slab;
use crate::source::Source;
use crate::stats::{Brought, Recorder, Recording, Start};

/// How long requests may take to end when a run is given up. After that their memory is leaked: a
/// dead NFS or FUSE server may never answer.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);

/// Requests are handed to the kernel when they cover this many bytes, or when there is nothing else
/// to do: a system call for each small block costs more than the block, and a device that waits for
/// large ones is idle. One call is about 1 us here, and 256 KiB about 40 us of hashing.
const FLUSH_BYTES: u32 = 256 << 10;

/// What all the pumps of one run share.
pub(crate) struct Job<'a> {
    pub(crate) work: Work<'a>,
    pub(crate) rate_limit: Option<&'a RateLimit>,
    pub(crate) recording: &'a Recording,
}

/// What is to be read.
pub(crate) enum Work<'a> {
    /// Parts of one source.
    One(Target<'a>, Extents),
    /// Parts of many.
    Many(&'a dyn Supply),
}

/// What a read is of, and how it is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    /// Whether reads have places in it. (A pipe has none.)
    pub(crate) seekable: bool,
    /// `RWF_*` of each read.
    pub(crate) flags: i32,
    /// Offsets and lengths of reads are multiples of this; 1 unless direct.
    pub(crate) align: u32,
    /// Length of the source at its opening, in bytes; `None` if only its end tells.
    pub(crate) source_len: Option<u64>,
}

impl<'a> Target<'a> {
    /// Reads without anything special: through the page cache.
    pub(crate) fn plain(source: &'a Source) -> Target<'a> {
        let (fd, source_len) = (source.as_fd(), source.len());
        Target { fd, seekable: source_len.is_some(), flags: 0, align: 1, source_len }
    }
}

/// Deals out parts of many sources, to any number of threads.
pub(crate) trait Supply: Sync {
    /// The next part; `None` when there is none for now.
    fn claim(&self) -> Option<(Extent, Target<'_>)>;

    /// Deals out nothing more.
    fn stop(&self);

    /// Parts not dealt out yet, as far as is known.
    fn left(&self) -> u64;
}

impl<'a> Work<'a> {
    fn claim(&self) -> Option<(Extent, Target<'_>)> {
        match self {
            Work::One(target, extents) => extents.claim().map(|extent| (extent, *target)),
            Work::Many(supply) => supply.claim(),
        }
    }

    /// Deals out nothing more.
    pub(crate) fn stop(&self) {
        match self {
            Work::One(_, extents) => extents.stop(),
            Work::Many(supply) => supply.stop(),
        }
    }

    /// Extents not dealt out yet, as far as is known.
    pub(crate) fn left(&self) -> u64 {
        match self {
            Work::One(_, extents) => extents.left(),
            Work::Many(supply) => supply.left(),
        }
    }

    /// Whether nothing was dealt out yet of a source, and nothing stopped. Of many, that is not known.
    pub(crate) fn is_untouched(&self) -> bool {
        match self {
            Work::One(_, extents) => extents.is_untouched(),
            Work::Many(_) => false,
        }
    }

    /// The one source that it is about.
    pub(crate) fn target(&self) -> Option<Target<'a>> {
        match self {
            Work::One(target, _) => Some(*target),
            Work::Many(_) => None,
        }
    }
}

/// The shape of a ring, and how it turns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) slots: u32,
    pub(crate) depth: u32,
    pub(crate) block_bytes: u32,
    pub(crate) order: Order,
    pub(crate) consume: Consume,
    /// Look for completions again and again instead of sleeping.
    pub(crate) spin: bool,
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

    /// Whether blocks are consumed before [`deliver`](Deliver::deliver) returns.
    fn consumes_here(&self) -> bool {
        true
    }

    /// Takes the news that a block cannot be had, at its turn. With an error the run ends.
    fn failed(&mut self, _extent: Extent, error: ErrorKind) -> Result<(), ErrorKind> {
        Err(error)
    }

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
    engine: &'a mut dyn Engine,
    ring: Ring,
    consume: Consume,
    spin: bool,
    reads: Vec<Option<Reading<'a>>>,
    /// Submitted since the engine last handed requests to the kernel.
    queued: u32,
    flush_at: u32,
    done: Vec<Completion>,
    returned: Vec<u32>,
    /// Whether blocks are consumed on this thread.
    consumes_here: bool,
    /// Since when there is nothing to consume.
    waiting: Option<Start>,
    recorder: Recorder<'a>,
}

/// What is being read into a slot, or was.
struct Reading<'a> {
    target: Target<'a>,
    request: Request,
    /// Why it cannot be had.
    failed: Option<ErrorKind>,
    /// When the consumer was given it.
    lent: Start,
}

impl<'a> Pump<'a> {
    /// `slab`: none for an engine that lends its own memory.
    pub(crate) fn new(
        job: &'a Job<'a>,
        engine: &'a mut dyn Engine,
        slab: Option<&'a Slab>,
        shape: Shape,
    ) -> Pump<'a> {
        let Shape { slots, depth, block_bytes, order, consume, spin } = shape;
        Pump {
            job,
            slab,
            engine,
            ring: Ring::new(slots, depth, order),
            consume,
            spin,
            reads: std::iter::repeat_with(|| None).take(slots as usize).collect(),
            queued: 0,
            flush_at: match consume {
                Consume::Each => (FLUSH_BYTES / block_bytes).clamp(1, (depth / 4).max(1)),
                Consume::Batch => depth,
            },
            done: Vec::with_capacity(depth as usize),
            returned: Vec::with_capacity(slots as usize),
            consumes_here: true,
            waiting: None,
            recorder: job.recording.recorder("reads", slots),
        }
    }

    /// The consumer had to wait for a read, if it is this thread: another takes that down itself.
    fn waited(&mut self, start: Start) {
        if self.consumes_here {
            self.recorder.waited_for_device(start);
        }
    }

    /// Runs until the extents are used up and every block has been consumed.
    ///
    /// # Errors
    ///
    /// The first that a read, the consumer or the system gives. Requests may then still be in
    /// flight: dropping the pump ends them.
    pub(crate) fn run(&mut self, to: &mut dyn Deliver) -> Result<(), ErrorKind> {
        self.consumes_here = to.consumes_here();
        loop {
            self.take_returned(to)?;
            if self.consume == Consume::Each || !self.ring.can_lend() {
                self.request()?;
            }
            if let Some(slot) = self.ring.lend() {
                if let Some(start) = self.waiting.take() {
                    self.waited(start);
                }
                to.backlog(self.ring.backlog(), self.ring.depth());
                self.lend(slot, to)?;
            } else if self.ring.in_flight() > 0 {
                let start = *self.waiting.get_or_insert(self.recorder.start());
                let sleep = !self.spin && to.may_sleep();
                self.wait(sleep)?;
                // Looks in vain are one wait, until there is something to lend.
                if sleep {
                    self.waiting = None;
                    self.waited(start);
                }
            } else if self.ring.lent() > 0 {
                let start = self.recorder.start();
                to.wait_returned();
                if self.job.work.left() > 0 {
                    self.recorder.waited_for_consumer(start);
                }
            } else {
                // Nothing in flight, nothing lent, nothing to lend: every slot is free, and
                // `request` left them so since there is nothing more to read.
                return Ok(());
            }
        }
    }

    /// Requests extents while there are slots for them.
    fn request(&mut self) -> Result<(), ErrorKind> {
        while self.ring.can_request() && self.may_read() {
            let Some((extent, target)) = self.job.work.claim() else { break };
            if let Some(limit) = self.job.rate_limit {
                limit.charge(extent.len.into());
            }
            let slot = self.ring.request().expect("can_request said so");
            let request = Request::new(extent);
            let lent = self.recorder.start();
            self.reads[slot as usize] = Some(Reading { target, request, failed: None, lent });
            if self.submit(slot) {
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

    /// Whether the limit on bytes per second allows the next read. With nothing else to do, it is waited
    /// for; otherwise the caller goes on, and comes back.
    fn may_read(&mut self) -> bool {
        let Some(limit) = self.job.rate_limit else { return true };
        let is_busy = self.ring.in_flight() > 0 || self.ring.can_lend() || self.ring.lent() > 0;
        while !limit.due_in().is_zero() {
            if is_busy {
                return false;
            }
            if self.job.work.left() == 0 {
                break;
            }
            let start = self.recorder.start();
            limit.nap();
            self.recorder.waited_for_limit(start);
        }
        true
    }

    /// Asks for what is missing of the extent of `slot`. True: it is whole already, or never will be.
    fn submit(&mut self, slot: u32) -> bool {
        loop {
            let read = self.read_for(slot);
            self.recorder.requested(slot, self.ring.in_flight());
            let start = self.recorder.start();
            // SAFETY: the slot is requested, so that nobody else uses its memory, and holds what the read
            // asks for (`Slab::part`); the slab outlives this pump, whose drop drains the engine or
            // leaks the slab.
            match unsafe { self.engine.submit(read) } {
                Ok(None) => {
                    self.queued += 1;
                    return false;
                }
                Ok(Some(completion)) => {
                    self.waited(start);
                    if self.complete(completion) {
                        return true;
                    }
                }
                Err(error) => {
                    let (offset, len) = (read.offset, read.len.into());
                    self.fail(slot, ErrorKind::read(offset, len, error));
                    return true;
                }
            }
        }
    }

    /// The read that brings what is missing.
    fn read_for(&self, slot: u32) -> Read<'a> {
        let Reading { target, request, .. } = self.reading(slot);
        let part = request.missing(target.align);
        let buffer = match self.slab {
            Some(slab) => slab.part(slot, part.skip, part.len),
            None => std::ptr::null_mut(),
        };
        let Target { fd, flags, .. } = *target;
        Read { slot, fd, offset: part.offset, len: part.len, buffer, flags }
    }

    /// Takes a completion down. False: something is missing, and must be asked for again.
    fn complete(&mut self, completion: Completion) -> bool {
        let Completion { slot, result } = completion;
        let moved = result.is_ok();
        let Reading { target: Target { align, source_len, .. }, request, .. } =
            self.reading_mut(slot);
        let (offset, len) = (request.extent.offset, request.extent.len);
        let complete = request.complete(result, *align, *source_len);
        let was_cut_off = Some(len - request.extent.len).filter(|not_there| *not_there > 0);
        self.recorder.completed(slot, offset, Brought::by(&complete, moved));
        match complete {
            Ok(true) => {
                self.ring.complete(slot);
                if let Some(not_there) = was_cut_off {
                    self.job.work.stop();
                    if let Some(limit) = self.job.rate_limit {
                        limit.give_back(not_there.into());
                    }
                }
                true
            }
            Ok(false) => false,
            Err(error) => {
                self.fail(slot, error);
                true
            }
        }
    }

    /// The extent of `slot` cannot be had. Who consumes is told at its turn.
    fn fail(&mut self, slot: u32, error: ErrorKind) {
        self.reading_mut(slot).failed = Some(error);
        self.ring.complete(slot);
    }

    fn wait(&mut self, block: bool) -> Result<(), ErrorKind> {
        let with_device = self.ring.in_flight() - self.queued;
        let result = self.engine.wait(block, &mut self.done);
        self.queued = 0;
        let mut done = std::mem::take(&mut self.done);
        if !block {
            self.recorder.looked(with_device > 0 && done.len() as u32 >= with_device);
        }
        // Every completion is taken down even after an error, so that the ring knows what is still
        // in flight.
        for completion in done.drain(..) {
            let slot = completion.slot;
            if !self.complete(completion) {
                match result.is_ok() {
                    true => drop(self.submit(slot)),
                    false => self.ring.complete(slot),
                }
            }
        }
        self.done = done;
        result.map_err(ErrorKind::Wait)
    }

    fn lend(&mut self, slot: u32, to: &mut dyn Deliver) -> Result<(), ErrorKind> {
        let reading = self.reading_mut(slot);
        let extent = reading.request.extent;
        if let Some(error) = reading.failed.take() {
            to.failed(extent, error)?;
            return self.free(slot);
        }
        if extent.len == 0 {
            // The source ended just here.
            return self.free(slot);
        }
        let bytes = match self.slab {
            Some(slab) => slab.slot(slot),
            None => self.engine.lent(slot),
        };
        let with_device = self.ring.in_flight() - self.queued;
        self.recorder.lends(slot, extent.offset, self.ring.in_flight());
        let start = self.recorder.start();
        self.reading_mut(slot).lent = start;
        match to.deliver(Finished { slot, extent, bytes })? {
            true => {
                let idle = with_device == 0 && self.job.work.left() > 0;
                self.recorder.consumed(start, extent.len, idle);
                self.free(slot)
            }
            false => Ok(()),
        }
    }

    /// The extents that were taken and not consumed: after an error, nobody else will have them.
    pub(crate) fn left_over(&self) -> Vec<Extent> {
        let slots = (0..self.reads.len()).filter(|slot| !self.ring.is_free(*slot as u32));
        slots.filter_map(|slot| Some(self.reads[slot].as_ref()?.request.extent)).collect()
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
        let reading = self.reading(slot);
        let (extent, lent) = (reading.request.extent, reading.lent);
        self.recorder.freed(slot, extent.offset, lent);
        let released = self.engine.release(slot);
        released.map_err(|error| ErrorKind::read(extent.offset, extent.len.into(), error))
    }

    fn reading(&self, slot: u32) -> &Reading<'a> {
        self.reads[slot as usize].as_ref().expect("a slot that is not free has a request")
    }

    fn reading_mut(&mut self, slot: u32) -> &mut Reading<'a> {
        self.reads[slot as usize].as_mut().expect("a slot that is not free has a request")
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

#[cfg(any(test, fuzzing))]
#[path = "pump_cases.rs"]
pub(crate) mod cases;

#[cfg(test)]
#[path = "pump_tests.rs"]
mod tests;
