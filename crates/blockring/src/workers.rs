//! Who consumes, and on which threads: this one alone, or several that each read for themselves. (Threads that
//! blocks are handed to are `fan_out.rs`'s.)
//!
//! In any order, threads share nothing but the list of extents: each has a ring of its own, reads
//! what it consumes, and has it in its own cache. (A reader that hands blocks to hashers took 1.6
//! times as long on a file in the page cache.)
#![allow(unsafe_code)]

use std::panic;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::choose::{RingPlan, Spread};
use crate::config::Order;
use crate::engine::{self, Engine, Setup, Waker};
use crate::error::{BoxError, ErrorKind};
use crate::extents::Extent;
use crate::pump::{Deliver, Finished, Job, Pump, Shape};
use crate::slab::Slab;

/// The bytes of one finished extent, lent to the consumer until it returns.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// Which block of the run it is, from 0, in the order of the source.
    pub index: u64,
    /// Where it starts, in bytes from the start of the source.
    pub offset: u64,
    /// What the source holds there. Every block but the last of a run has the plan's block size.
    pub bytes: &'a [u8],
}

/// A consumer for [`Order::InOrder`].
pub type ConsumeInOrder<'a> = &'a mut (dyn FnMut(Block<'_>) -> Result<(), BoxError> + Send);
/// A consumer for [`Order::AnyOrder`].
pub type ConsumeAnyOrder<'a> = &'a (dyn Fn(Block<'_>) -> Result<(), BoxError> + Sync);

impl Finished {
    /// # Safety
    ///
    /// The caller must hold the block, and give its slot back only after `'a`.
    pub(crate) unsafe fn block<'a>(&self) -> Block<'a> {
        // SAFETY: a finished extent has `len` bytes at `bytes`, and nobody else uses them now.
        let bytes = unsafe { std::slice::from_raw_parts(self.bytes, self.extent.len as usize) };
        Block { index: self.extent.index, offset: self.extent.offset, bytes }
    }
}

/// What one thread reads with: an engine, and the slab that it asks for memory of, in the order in
/// which they go.
pub(crate) struct Reader {
    engine: Box<dyn Engine>,
    slab: Option<Slab>,
    slots: u32,
    depth: u32,
    left_over: Vec<Extent>,
}

impl Reader {
    pub(crate) fn new(
        job: &Job<'_>,
        plan: &RingPlan,
        slots: u32,
        wakes: bool,
    ) -> Result<Reader, ErrorKind> {
        let depth = plan.depth.min(slots);
        let slab = match plan.engine.lends() {
            true => None,
            false => Some(Slab::new(slots, plan.block_bytes, plan.huge_pages)?),
        };
        let setup = Setup {
            depth,
            slots,
            slab: slab.as_ref(),
            file: job.work.target().map(|target| target.fd),
            seekable: job.work.target().is_none_or(|target| target.seekable),
            wakes,
            pool_threads: plan.pool_threads,
            uring: plan.uring,
        };
        let engine = engine::build(plan.engine, &setup)
            .map_err(|why| ErrorKind::Engine { engine: plan.engine, why })?;
        Ok(Reader { engine, slab, slots, depth, left_over: Vec::new() })
    }

    /// What wakes this thread when it sleeps in its engine, if that can be.
    pub(crate) fn waker(&self) -> Option<Waker> {
        self.engine.waker()
    }

    /// Pumps the extents of `job` into what `to` makes.
    pub(crate) fn pump<D: Deliver>(
        &mut self,
        job: &Job<'_>,
        plan: &RingPlan,
        order: Order,
        to: impl FnOnce() -> D,
    ) -> Result<(), ErrorKind> {
        let Reader { engine, slab, slots, depth, left_over } = self;
        let shape = Shape {
            slots: *slots,
            depth: *depth,
            block_bytes: plan.block_bytes,
            order,
            consume: plan.consume,
            spin: plan.spin,
        };
        // Dropped in reverse: first what was lent comes back, then the engine is drained.
        let mut pump = Pump::new(job, &mut **engine, slab.as_ref(), shape);
        let mut to = to();
        let result = pump.run(&mut to);
        to.finish(result.is_ok());
        if result.is_err() {
            *left_over = pump.left_over();
        }
        result
    }

    /// After an error, when nothing is in flight any more: the extents that were taken and not consumed.
    pub(crate) fn left_over(self) -> Vec<Extent> {
        self.left_over
    }
}

/// Consumes each block on the thread that read it, before the next.
struct Inline<F, G> {
    consume: F,
    /// Called each time the device has been ahead for a while.
    device_is_ahead: G,
    ahead: u32,
}

impl<F, G> Deliver for Inline<F, G>
where
    F: FnMut(Block<'_>) -> Result<(), BoxError>,
    G: FnMut(),
{
    fn deliver(&mut self, finished: Finished) -> Result<bool, ErrorKind> {
        // SAFETY: the pump lends it to us until we return.
        (self.consume)(unsafe { finished.block() }).map_err(ErrorKind::Consumer)?;
        Ok(true)
    }

    fn backlog(&mut self, blocks: u32, depth: u32) {
        // Half a ring of finished blocks waits, block after block, for two rings' worth: this is no
        // burst, the device is faster than the consumer.
        self.ahead = if blocks * 2 >= depth { self.ahead + 1 } else { 0 };
        if self.ahead > 2 * depth {
            self.ahead = 0;
            (self.device_is_ahead)();
        }
    }
}

/// In order, on this thread.
pub(crate) fn inline(
    job: &Job<'_>,
    plan: &RingPlan,
    consume: ConsumeInOrder<'_>,
) -> Result<(), ErrorKind> {
    let to = || Inline { consume, device_is_ahead: || (), ahead: 0 };
    Reader::new(job, plan, plan.slots, false)?.pump(job, plan, Order::InOrder, to)
}

/// In any order, on up to `plan.workers` threads and one more, each with a ring of its own.
///
/// That one is this thread, if its engine waits for a device. Otherwise this one only waits: a thread
/// started by a busy one shares its core until the scheduler looks again (16 MiB out of the page cache:
/// 4.9 ms, and 3.8 ms when all are started by one that then sleeps).
pub(crate) fn spread(
    job: &Job<'_>,
    plan: &RingPlan,
    consume: ConsumeAnyOrder<'_>,
) -> Result<(), ErrorKind> {
    let caller_reads = !plan.engine.is_synchronous() || plan.workers == 0;
    // Made first: without it there is nothing to spread, and nothing was read yet.
    let first = match caller_reads {
        true => Some(Reader::new(job, plan, plan.slots, false)?),
        false => None,
    };
    let failed = Mutex::new(None);
    let fail = |error| {
        job.work.stop();
        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    };
    let missed = Mutex::new(None);
    // A thread that nobody asked for is not missed, as long as there is another.
    let miss = |error| match plan.spread {
        Spread::Asked => fail(error),
        _ => *missed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error),
    };
    let work = |mut reader: Reader, device_is_ahead: &mut dyn FnMut()| {
        let _guard = StopOnPanic(job);
        let to = || Inline { consume, device_is_ahead, ahead: 0 };
        if let Err(error) = reader.pump(job, plan, Order::AnyOrder, to) {
            fail(error);
        }
    };
    let start = || match Reader::new(job, plan, plan.worker_slots, false) {
        Ok(reader) => work(reader, &mut || ()),
        Err(error) => miss(error),
    };
    thread::scope(|scope| {
        let threads = plan.workers + u32::from(!caller_reads);
        let mut workers = Vec::new();
        let mut spawn = || {
            if workers.len() as u32 == threads || job.work.left() == 0 {
                return;
            }
            match thread::Builder::new().name("blockring".to_owned()).spawn_scoped(scope, start) {
                Ok(worker) => workers.push(worker),
                Err(error) => {
                    miss(ErrorKind::Resource { what: STARTING.to_owned(), error });
                }
            }
        };
        if plan.spread != Spread::WhenBehind {
            (0..threads).for_each(|_| spawn());
        }
        if let Some(first) = first {
            work(first, &mut || {
                if plan.spread == Spread::WhenBehind {
                    spawn();
                }
            });
        }
        for worker in workers {
            if let Err(payload) = worker.join() {
                panic::resume_unwind(payload);
            }
        }
        if job.work.is_untouched() {
            // Not one thread could be had: then this one.
            start();
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let missed = missed.into_inner().unwrap_or_else(PoisonError::into_inner);
    match (failed, missed) {
        (Some(error), _) => Err(error),
        // Nobody was there to read.
        (None, Some(error)) if job.work.left() > 0 => Err(error),
        (None, _) => Ok(()),
    }
}

pub(crate) const STARTING: &str = "starting a worker thread";

/// A consumer that panics ends the run on the other threads, too.
struct StopOnPanic<'a>(&'a Job<'a>);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.work.stop();
        }
    }
}
