//! The loop that all reads go through: claim, submit, complete, request the rest, deliver, free.
//!
//! `read_result.rs` interprets raw results (a short read, an interruption, the end of the file). The
//! supply decides what to read next; the sink decides on which thread a block is consumed.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::depth::DepthSearch;
use super::extents::IndexedExtent;
use super::read_result::Request;
use super::ring::Ring;
use super::slab::Slab;
use super::supply::{Claim, FreeSlot, Supply, Target};
use crate::config::{Consume, Order, Wait};
use crate::engine::copy_or_map::CopyOrMap;
use crate::engine::{Completion, Engine, Read};
use crate::error::ErrorKind;
use crate::observe::stats::{ReadOutcome, Recorder, Recording, StartTime, WaitFor};
use crate::rate_limit::RateLimit;
use crate::stop::Stop;

/// How long to wait for requests in flight when a run is abandoned. After that their memory is
/// leaked, because a dead NFS or FUSE server may never answer.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);

/// Requests are passed to the kernel once they cover this many bytes, or when nothing can be
/// delivered. One call per small block would cost more than hashing it; waiting for a large batch
/// would leave the device idle. One call takes about 1 us here, and hashing 256 KiB about 40 us.
const FLUSH_BYTES: u32 = 256 << 10;

/// State shared by all pumps of one run.
pub(crate) struct RunContext<'a> {
    pub(crate) supply: &'a dyn Supply,
    pub(crate) rate_limit: Option<&'a RateLimit>,
    pub(crate) stop: Option<&'a Stop>,
    pub(crate) recording: &'a Recording,
    /// Of runs over what is in the page cache, if files may be mapped.
    pub(crate) copy_or_map: Option<&'a Arc<CopyOrMap>>,
}

impl<'a> RunContext<'a> {
    /// Without a limit, a stop and mappings.
    pub(crate) fn plain(supply: &'a dyn Supply, recording: &'a Recording) -> RunContext<'a> {
        RunContext { supply, rate_limit: None, stop: None, recording, copy_or_map: None }
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(Stop::is_stopped)
    }
}

/// The size of a ring, and the policies of the loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) slots: u32,
    pub(crate) depth: u32,
    /// Greatest depth that may turn out to be better.
    pub(crate) depth_max: u32,
    pub(crate) block_bytes: u32,
    pub(crate) order: Order,
    pub(crate) consume: Consume,
    pub(crate) wait: Wait,
}

/// A finished block on its way to the consumer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawBlock {
    pub(crate) slot: u32,
    pub(crate) extent: IndexedExtent,
    pub(crate) bytes: *const u8,
    /// See [`Engine::damage`].
    damage: Option<&'static AtomicBool>,
}

impl RawBlock {
    /// Whether its bytes became invalid while they were consumed.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damage.is_some_and(|damage| damage.load(Ordering::Acquire))
    }
}

// SAFETY: the bytes belong to the thread that holds the block until its slot is returned.
unsafe impl Send for RawBlock {}

/// What a sink has done with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// Consumed it: its slot is free.
    Consumed,
    /// The same, but its bytes became invalid meanwhile, for which the sink has made an error.
    Damaged,
    /// Kept it: its slot is returned by [`Sink::take_returned`].
    Held,
}

/// Receives blocks. An error that a function returns ends the run.
pub(crate) trait Sink {
    /// Takes a block.
    fn deliver(&mut self, block: RawBlock) -> Result<Delivered, ErrorKind>;

    /// Whether blocks are consumed before [`deliver`](Sink::deliver) returns.
    fn consumes_inline(&self) -> bool {
        true
    }

    /// Accepts a failed extent, at its position in the order. By default every failure ends the run.
    fn failed(&mut self, _extent: IndexedExtent, error: ErrorKind) -> Result<(), ErrorKind> {
        Err(error)
    }

    /// Appends the slots that were returned. Fails if a consumer has ended.
    fn take_returned(&mut self, _slots: &mut Vec<u32>) -> Result<(), ErrorKind> {
        Ok(())
    }

    /// Waits until a slot is returned. Called only while the sink holds some.
    fn wait_returned(&mut self) {}

    /// Whether the pump may sleep in its engine.
    fn may_sleep(&mut self) -> bool {
        true
    }

    /// Called when the pump has stopped: because everything was delivered, or because of an error.
    fn finish(&mut self, _result: &Result<(), ErrorKind>) {}

    /// Called before each delivery with the number of finished blocks still waiting; at most `depth`
    /// reads are in flight. While it stays high, the consumer is the bottleneck.
    fn backlog(&mut self, _blocks: u32, _depth: u32) {}
}

/// One thread's ring and its engine, over a slab that outlives it.
pub(crate) struct Pump<'a> {
    context: &'a RunContext<'a>,
    slab: Option<&'a Slab>,
    engine: &'a mut dyn Engine,
    ring: Ring,
    /// The search for a better depth, if there is one.
    search: Option<DepthSearch>,
    consume: Consume,
    wait: Wait,
    reads: Vec<Option<ActiveRead<'a>>>,
    /// Requests submitted since the engine last passed any to the kernel.
    queued: u32,
    flush_at: u32,
    done: Vec<Completion>,
    returned: Vec<u32>,
    /// Whether blocks are consumed on this thread.
    consumes_inline: bool,
    /// Start of the current wait for a block, if there is one.
    waiting: Option<StartTime>,
    recorder: Recorder<'a>,
}

/// The read of a slot: in progress, or finished.
struct ActiveRead<'a> {
    /// `None` if the supply has already read it, or it is zeros.
    target: Option<Target<'a>>,
    /// The content, if it is not in the slot.
    zeros: Option<*const u8>,
    request: Request,
    failed: Option<ErrorKind>,
    /// When the block was passed to the consumer; never, if the read failed.
    delivered: StartTime,
}

impl<'a> Pump<'a> {
    /// `slab`: `None` for an engine with its own memory.
    pub(crate) fn new(
        context: &'a RunContext<'a>,
        engine: &'a mut dyn Engine,
        slab: Option<&'a Slab>,
        shape: Shape,
    ) -> Pump<'a> {
        let Shape { slots, depth, depth_max, block_bytes, order, consume, wait } = shape;
        Pump {
            context,
            slab,
            engine,
            ring: Ring::new(slots, depth, order),
            search: DepthSearch::new(depth, depth_max.min(slots)),
            consume,
            wait,
            reads: std::iter::repeat_with(|| None).take(slots as usize).collect(),
            queued: 0,
            flush_at: match consume {
                Consume::Each => (FLUSH_BYTES / block_bytes).clamp(1, (depth / 4).max(1)),
                Consume::Batch => depth,
            },
            done: Vec::with_capacity(depth as usize),
            returned: Vec::new(),
            consumes_inline: true,
            waiting: None,
            recorder: context.recording.recorder("reads", slots),
        }
    }

    /// Records that the consumer waited for a read, if this thread is the consumer. Consumer
    /// threads record their own waits.
    fn waited(&mut self, start: StartTime) {
        if self.consumes_inline {
            self.recorder.waited(WaitFor::Read, start);
        }
    }

    /// Runs until the supply is exhausted and every block has been consumed. After an error of a
    /// read, the sink or the system, requests may be in flight: dropping the pump drains them.
    pub(crate) fn run(&mut self, sink: &mut dyn Sink) -> Result<(), ErrorKind> {
        self.consumes_inline = sink.consumes_inline();
        loop {
            if self.context.is_stopped() {
                return Err(ErrorKind::Stopped);
            }
            self.take_returned(sink)?;
            if self.consume == Consume::Each || !self.ring.can_deliver() {
                self.request()?;
            }
            if let Some(slot) = self.ring.deliver() {
                if let Some(start) = self.waiting.take() {
                    self.waited(start);
                }
                sink.backlog(self.ring.backlog(), self.ring.depth());
                self.deliver(slot, sink)?;
            } else if self.ring.in_flight() > 0 {
                let start = *self.waiting.get_or_insert_with(|| self.recorder.start());
                let sleeps = self.wait == Wait::Sleep && sink.may_sleep();
                self.harvest(sleeps)?;
                // While spinning, all unsuccessful polls before the next block count as one wait.
                if sleeps {
                    self.waiting = None;
                    self.waited(start);
                }
            } else if self.ring.held() > 0 {
                let start = self.recorder.start();
                sink.wait_returned();
                if self.context.supply.left() > 0 {
                    self.recorder.waited(WaitFor::Slot, start);
                }
            } else {
                // Nothing is in flight, held or ready, so every slot is free, and `request` found
                // nothing more to read.
                return Ok(());
            }
        }
    }

    /// Claims work while there are slots for it.
    fn request(&mut self) -> Result<(), ErrorKind> {
        while let Some(number) = self.ring.next_free()
            && self.may_read()
        {
            let memory = self.slab.map_or(std::ptr::null_mut(), |slab| slab.slot(number));
            let consumes_inline = self.consumes_inline;
            let recorder = &mut self.recorder;
            let mut slot = FreeSlot { number, memory, consumes_inline, recorder };
            let Some(claim) = self.context.supply.claim(&mut slot)? else { break };
            let (extent, target, zeros) = match claim {
                Claim::Read(extent, target) => (extent, Some(target), None),
                Claim::Filled(extent) => (extent, None, None),
                Claim::Zeros(extent, zeros) => (extent, None, Some(zeros)),
            };
            if let (Some(limit), None) = (self.context.rate_limit, zeros) {
                limit.charge(extent.len.into());
            }
            let slot = self.ring.request().expect("a slot is free");
            debug_assert_eq!(slot, number);
            let (request, delivered) = (Request::new(extent), StartTime::default());
            self.reads[slot as usize] =
                Some(ActiveRead { target, zeros, request, failed: None, delivered });
            let is_over = match target {
                Some(target) => self.submit(slot, &target),
                None => {
                    self.ring.complete(slot);
                    // (Zeros take no time: further reads are requested before them.)
                    zeros.is_none()
                }
            };
            if is_over {
                // Consume it before the next read, while it is in the cache.
                break;
            }
        }
        // If nothing can be delivered, the wait that follows passes the requests on.
        if self.queued >= self.flush_at && self.ring.can_deliver() {
            self.harvest(false)?;
        }
        Ok(())
    }

    /// Whether the rate limit allows the next read. Waits if there is nothing else to do; otherwise
    /// the caller continues and asks again. (After a stop it does not wait: the next turn of the
    /// loop ends the run.)
    fn may_read(&mut self) -> bool {
        let Some(limit) = self.context.rate_limit else { return true };
        let is_busy = self.ring.in_flight() > 0 || self.ring.can_deliver() || self.ring.held() > 0;
        while !limit.due_in().is_zero() {
            if is_busy {
                return false;
            }
            if self.context.supply.left() == 0 || self.context.is_stopped() {
                break;
            }
            let start = self.recorder.start();
            limit.nap();
            self.recorder.waited(WaitFor::Limit, start);
        }
        true
    }

    /// Requests the missing part of the extent in `slot`. Returns whether the request is already
    /// over: performed at once, or refused by the engine.
    fn submit(&mut self, slot: u32, target: &Target<'a>) -> bool {
        loop {
            let part = self.read(slot).request.missing(target.align);
            let buffer = match self.slab {
                Some(slab) => slab.part(slot, part.skip, part.len),
                None => std::ptr::null_mut(),
            };
            let Target { fd, flags, .. } = *target;
            let (offset, len, file_bytes) = (part.offset, part.len, target.len);
            let read = Read { slot, fd, offset, len, buffer, flags, file_bytes };
            self.recorder.requested(slot, self.ring.in_flight());
            let start = self.recorder.start();
            // SAFETY: the slot is requested, so nothing else uses its memory, which is large enough
            // for the part (`Slab::part`). The slab outlives this pump, whose drop drains the
            // engine or leaks the slab.
            match unsafe { self.engine.submit(read) } {
                Ok(None) => {
                    self.queued += 1;
                    return false;
                }
                Ok(Some(completion)) => {
                    self.waited(start);
                    if self.complete(completion, target) {
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

    /// Processes a completion. Returns whether the request is over; if not, request the rest.
    fn complete(&mut self, completion: Completion, target: &Target<'a>) -> bool {
        let Completion { slot, result } = completion;
        let request = &mut self.read_mut(slot).request;
        let offset = request.extent.offset;
        let outcome = request.complete(result, target.align, Some(target.len));
        self.recorder.completed(slot, offset, *outcome.as_ref().unwrap_or(&ReadOutcome::Over));
        match outcome {
            Ok(ReadOutcome::Over) => self.ring.complete(slot),
            Ok(ReadOutcome::Short | ReadOutcome::Retry) => return false,
            Err(error) => self.fail(slot, error),
        }
        true
    }

    /// Marks the extent of `slot` as unreadable. The sink is notified at its position in the order.
    fn fail(&mut self, slot: u32, error: ErrorKind) {
        self.read_mut(slot).failed = Some(error);
        self.ring.complete(slot);
    }

    /// Passes requests to the kernel and processes completions; with `sleeps`, waits for one.
    fn harvest(&mut self, sleeps: bool) -> Result<(), ErrorKind> {
        let with_device = self.ring.in_flight() - self.queued;
        let result = self.engine.wait(sleeps, &mut self.done);
        self.queued = 0;
        let mut done = std::mem::take(&mut self.done);
        if !sleeps {
            self.recorder.looked(with_device > 0 && done.len() as u32 >= with_device);
        }
        // Completions are processed even after an error, so that the ring knows what is in flight.
        for completion in done.drain(..) {
            let slot = completion.slot;
            let Some(target) = self.read(slot).target else { continue };
            if !self.complete(completion, &target) {
                match result.is_ok() {
                    true => drop(self.submit(slot, &target)),
                    // (Never delivered: the error below ends the run.)
                    false => self.ring.complete(slot),
                }
            }
        }
        self.done = done;
        result.map_err(ErrorKind::Wait)
    }

    fn deliver(&mut self, slot: u32, sink: &mut dyn Sink) -> Result<(), ErrorKind> {
        let read = self.read_mut(slot);
        let extent = read.request.extent;
        if let Some(error) = read.failed.take() {
            sink.failed(extent, error)?;
            return self.free(slot);
        }
        let bytes = match (read.zeros, self.engine.block(slot), self.slab) {
            (Some(zeros), _, _) => zeros,
            (None, Some(bytes), _) => bytes,
            (None, None, Some(slab)) => slab.slot(slot),
            (None, None, None) => std::ptr::null(),
        };
        let damage = self.engine.damage(slot);
        let with_device = self.ring.in_flight() - self.queued;
        self.recorder.delivers(slot, extent.offset, self.ring.in_flight());
        let start = self.recorder.start();
        self.read_mut(slot).delivered = start;
        match sink.deliver(RawBlock { slot, extent, bytes, damage })? {
            Delivered::Consumed => {
                // A block that the supply has read says nothing about the device: another thread
                // may be reading the stream now.
                let read_by_pump = self.read(slot).target.is_some();
                let idle = read_by_pump && with_device == 0 && self.context.supply.left() > 0;
                self.recorder.consumed(start, extent.len, idle);
                if let Some(search) = &mut self.search
                    && let Some(depth) = search.consumed(extent.len, Instant::now)
                {
                    self.ring.set_depth(depth);
                }
                self.free(slot)
            }
            Delivered::Damaged => {
                self.engine.release(slot);
                self.free(slot)
            }
            Delivered::Held => Ok(()),
        }
    }

    /// The extents that were claimed but not consumed: after an error, no other pump gets them.
    pub(crate) fn unconsumed(&self) -> Vec<IndexedExtent> {
        let slots = (0..self.reads.len()).filter(|slot| !self.ring.is_free(*slot as u32));
        slots.filter_map(|slot| Some(self.reads[slot].as_ref()?.request.extent)).collect()
    }

    fn take_returned(&mut self, sink: &mut dyn Sink) -> Result<(), ErrorKind> {
        if self.ring.held() == 0 {
            return Ok(());
        }
        let mut returned = std::mem::take(&mut self.returned);
        let result = sink.take_returned(&mut returned);
        let freed = returned.drain(..).try_for_each(|slot| self.free(slot));
        self.returned = returned;
        result.and(freed)
    }

    fn free(&mut self, slot: u32) -> Result<(), ErrorKind> {
        self.ring.give_back(slot);
        let read = self.read(slot);
        let (extent, delivered) = (read.request.extent, read.delivered);
        self.recorder.freed(slot, extent.offset, delivered);
        let damage = self.engine.damage(slot);
        let is_damaged = damage.is_some_and(|damage| damage.load(Ordering::Acquire));
        self.engine.release(slot);
        if is_damaged { Err(ErrorKind::damaged(extent)) } else { Ok(()) }
    }

    fn read(&self, slot: u32) -> &ActiveRead<'a> {
        self.reads[slot as usize].as_ref().expect("a slot that is not free has a request")
    }

    fn read_mut(&mut self, slot: u32) -> &mut ActiveRead<'a> {
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
