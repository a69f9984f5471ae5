//! Consumption on the threads that read: on one thread in order, or on several in any order.
//!
//! In any order, threads share only the supply. Each has its own ring, and consumes what it has
//! read while that is in its own cache. (A reader that passed blocks to other threads for hashing
//! took 1.6 times as long on a cached file.)
#![allow(unsafe_code)]

use std::panic;
use std::sync::Mutex;
use std::thread;

use super::not_started;
use super::reader::Reader;
use crate::config::Order;
use crate::core::pump::{Delivered, RawBlock, RunContext, Sink};
use crate::core::supply::Supply;
use crate::error::{BoxError, ErrorKind};
use crate::lock;
use crate::plan::{RingPlan, Start};

/// The bytes of one finished extent, borrowed by the consumer.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// Number of the block in the run, from 0, in the order of the source. Of
    /// [`read_extents`](crate::Plan::read_extents): the place in the list. Parts of a block that is scanned for bad
    /// ranges share its number; it says nothing for blocks of a [`FileQueue`](crate::FileQueue).
    pub index: u64,
    /// Offset of the block in the source, in bytes.
    pub offset: u64,
    /// Its content. Every block but the last of a run has the plan's block size.
    pub bytes: &'a [u8],
}

impl RawBlock {
    /// # Safety
    ///
    /// The caller must hold the block, and not return its slot before the end of `'a`.
    pub(super) unsafe fn block<'a>(&self) -> Block<'a> {
        // SAFETY: a finished extent has `len` bytes at `bytes`, and only its holder uses them.
        let bytes = unsafe { std::slice::from_raw_parts(self.bytes, self.extent.len as usize) };
        Block { index: self.extent.index, offset: self.extent.offset, bytes }
    }
}

/// Consumes each block on the thread that read it, before the next one.
struct Inline<'a, F, G> {
    supply: &'a dyn Supply,
    consume: F,
    /// Called whenever another thread would help.
    needs_help: G,
    /// Consecutive blocks that found the ring half full.
    ahead: u32,
}

impl<F, G> Sink for Inline<'_, F, G>
where
    F: FnMut(Block<'_>) -> Result<(), BoxError>,
    G: FnMut(),
{
    fn deliver(&mut self, block: RawBlock) -> Result<Delivered, ErrorKind> {
        // SAFETY: the pump delivers the block until this returns.
        (self.consume)(unsafe { block.block() }).map_err(ErrorKind::Consumer)?;
        Ok(Delivered::Consumed)
    }

    fn backlog(&mut self, blocks: u32, depth: u32) {
        // Half a ring of finished blocks waits, for two rings' worth of blocks in a row: this is
        // not a burst, the device is faster than the consumer.
        self.ahead = if blocks * 2 >= depth { self.ahead + 1 } else { 0 };
        let is_behind = self.ahead > 2 * depth;
        if is_behind {
            self.ahead = 0;
        }
        if is_behind || self.supply.needs_help() {
            (self.needs_help)();
        }
    }
}

/// In order, on this thread.
pub(super) fn in_order(
    context: &RunContext<'_>,
    ring: &RingPlan,
    consume: &mut dyn FnMut(Block<'_>) -> Result<(), BoxError>,
) -> Result<(), ErrorKind> {
    let sink = || Inline { supply: context.supply, consume, needs_help: || (), ahead: 0 };
    Reader::new(context, ring, ring.slots, false)?.pump(context, ring, Order::InOrder, sink)
}

/// In any order, on up to `ring.workers` threads and one more, each with its own ring.
///
/// That one is this thread, unless all threads start at once with a synchronous engine. Then this
/// thread only waits, because a thread started by a busy one shares its core until the scheduler
/// rebalances (16 MiB from the page cache took 4.9 ms, and 3.8 ms if all are started by a thread
/// that then sleeps).
pub(super) fn any_order(
    context: &RunContext<'_>,
    ring: &RingPlan,
    consume: &(dyn Fn(Block<'_>) -> Result<(), BoxError> + Sync),
) -> Result<(), ErrorKind> {
    let starts_at_once = ring.start != Start::WhenBehind;
    let caller_reads = !ring.engine.is_synchronous() || !starts_at_once || ring.workers == 0;
    // Created first: if that fails, nothing has been read.
    let first = match caller_reads {
        true => Some(Reader::new(context, ring, ring.slots, false)?),
        false => None,
    };
    let failed = Mutex::new(None);
    let fail = |error| {
        context.supply.stop();
        lock(&failed).get_or_insert(error);
    };
    let missing = Mutex::new(None);
    // If their number is not explicit, a missing thread is no error as long as there is another.
    let miss = |error| match ring.start {
        Start::Explicit => fail(error),
        _ => *lock(&missing) = Some(error),
    };
    let work = |mut reader: Reader, needs_help: &mut dyn FnMut()| {
        let _guard = StopOnPanic(context.supply);
        let sink = || Inline { supply: context.supply, consume, needs_help, ahead: 0 };
        if let Err(error) = reader.pump(context, ring, Order::AnyOrder, sink) {
            fail(error);
        }
    };
    let start = || match Reader::new(context, ring, ring.worker_slots, false) {
        Ok(reader) => work(reader, &mut || ()),
        Err(error) => miss(error),
    };
    thread::scope(|scope| {
        let threads = ring.workers + u32::from(!caller_reads);
        let mut workers = Vec::new();
        let mut spawn = || {
            if workers.len() as u32 == threads || context.supply.left() == 0 {
                return;
            }
            match thread::Builder::new().name("blockring".to_owned()).spawn_scoped(scope, start) {
                Ok(worker) => workers.push(worker),
                Err(error) => miss(not_started(error)),
            }
        };
        if starts_at_once {
            (0..threads).for_each(|_| spawn());
        }
        if let Some(first) = first {
            work(first, &mut || {
                if !starts_at_once {
                    spawn();
                }
            });
        }
        for worker in workers {
            if let Err(payload) = worker.join() {
                panic::resume_unwind(payload);
            }
        }
        if context.supply.is_untouched() {
            // No thread could be started: read on this one.
            start();
        }
    });
    match (lock(&failed).take(), lock(&missing).take()) {
        (Some(error), _) => Err(error),
        // There was no thread to read the rest.
        (None, Some(error)) if context.supply.left() > 0 => Err(error),
        (None, _) => Ok(()),
    }
}

/// Ends the run on the other threads if a consumer panics.
struct StopOnPanic<'a>(&'a dyn Supply);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}
