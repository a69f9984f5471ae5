//! One thread's reader: an engine, and the slab whose memory its requests use.

use crate::config::Order;
use crate::core::extents::IndexedExtent;
use crate::core::pump::{Pump, RunContext, Shape, Sink};
use crate::core::slab::Slab;
use crate::engine::{self, Engine, Setup, Waker};
use crate::error::ErrorKind;
use crate::plan::RingPlan;

/// An engine with its slab. Fields are dropped in this order.
pub(super) struct Reader {
    engine: Box<dyn Engine>,
    slab: Option<Slab>,
    slots: u32,
    depth: u32,
    unconsumed: Vec<IndexedExtent>,
}

impl Reader {
    /// `wakes`: whether another thread returns slots.
    pub(super) fn new(
        context: &RunContext<'_>,
        ring: &RingPlan,
        slots: u32,
        wakes: bool,
    ) -> Result<Reader, ErrorKind> {
        let depth = ring.depth.min(slots);
        let slab = match ring.engine.owns_memory() {
            true => None,
            false => Some(Slab::new(slots, ring.block_bytes, ring.pages(slots))?),
        };
        let setup = Setup {
            depth: ring.depth_max.min(slots),
            slots,
            slab: slab.as_ref().map(Slab::as_iovec),
            file: context.supply.sole_fd(),
            wakes,
            pool_threads: ring.pool_threads,
            uring: ring.uring,
            copy_or_map: context.copy_or_map,
        };
        let engine = engine::build(ring.engine, &setup)
            .map_err(|why| ErrorKind::Engine { engine: ring.engine, why })?;
        Ok(Reader { engine, slab, slots, depth, unconsumed: Vec::new() })
    }

    /// A function that wakes this thread while it sleeps in its engine, if it can sleep there.
    pub(super) fn waker(&self) -> Option<Waker> {
        self.engine.waker()
    }

    /// Pumps the extents of `context` into the sink created by `sink`.
    pub(super) fn pump<S: Sink>(
        &mut self,
        context: &RunContext<'_>,
        ring: &RingPlan,
        order: Order,
        sink: impl FnOnce() -> S,
    ) -> Result<(), ErrorKind> {
        let Reader { engine, slab, slots, depth, unconsumed } = self;
        let shape = Shape {
            slots: *slots,
            depth: *depth,
            depth_max: ring.depth_max.min(*slots),
            block_bytes: ring.block_bytes,
            order,
            consume: ring.consume,
            wait: ring.wait,
        };
        // Dropped in reverse order: first the sink returns its blocks, then the engine is drained.
        let mut pump = Pump::new(context, &mut **engine, slab.as_ref(), shape);
        let mut sink = sink();
        let result = pump.run(&mut sink);
        sink.finish(&result);
        if result.is_err() {
            *unconsumed = pump.unconsumed();
        }
        result
    }

    /// Returns the extents that were claimed but not consumed, after an error, when nothing is in
    /// flight any more.
    pub(super) fn unconsumed(self) -> Vec<IndexedExtent> {
        self.unconsumed
    }
}
