//! Execution of a plan: which threads consume the blocks.

pub(crate) mod bad_ranges;
pub(crate) mod batch;
mod block_queue;
pub(crate) mod broadcast;
pub(crate) mod file_queue;
mod reader;
mod sync;
pub(crate) mod threads;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use self::batch::Extent;
use self::broadcast::Consumer;
use self::reader::Reader;
use self::threads::Block;
use crate::config::{CacheMode, EngineKind, IoPriority, Order};
use crate::core::extents::{Extents, IndexedExtent};
use crate::core::pump::RunContext;
use crate::core::supply::{FileSupply, Supply, Target, Zeros};
use crate::error::{BoxError, Error, ErrorKind};
use crate::pipe::stream_supply::{Stream, StreamSupply};
use crate::pipe::tee::Tee;
use crate::plan::{Plan, PlanKind, ReadAhead, RingPlan, Start, with_fallback};
use crate::source::Source;
use crate::source::advise::AdviceGuard;
use crate::source::holes::without;
use crate::sys::priority::PriorityGuard;

/// Returns the error of a worker thread that could not be started.
fn not_started(error: io::Error) -> ErrorKind {
    ErrorKind::Resource { what: "starting a worker thread".to_owned(), error }
}

/// What a run reads.
enum Blocks {
    /// All blocks; those in holes are passed on as zeros.
    All,
    /// What is neither in a hole nor to be skipped.
    Data(Extents),
    /// A list of extents.
    List(Extents),
}

/// A source, opened as its plan requires.
struct Opened<'s> {
    source: &'s Source,
    /// The source opened again: for direct reads, or for a file position of its own.
    own: Option<File>,
}

impl<'s> Opened<'s> {
    fn new(plan: &Plan, source: &'s Source) -> Result<Opened<'s>, ErrorKind> {
        let ring = &plan.ring;
        let own = match &plan.kind {
            // A file whose content the kernel generates needs its own file position.
            PlanKind::Stream { .. } if source.start() == 0 && source.is_pseudo() => {
                source.reopen().ok()
            }
            PlanKind::Stream { .. } => None,
            _ if ring.cache == CacheMode::Direct => {
                let reopened = source.reopen_direct();
                Some(reopened.map_err(|error| refused_direct(&error))?)
            }
            _ if ring.engine.is_sequential() => {
                let reopened = source.reopen();
                Some(reopened.map_err(|error| ErrorKind::Inspect { operation: "open", error })?)
            }
            _ => None,
        };
        Ok(Opened { source, own })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.own.as_ref().map_or(self.source.as_fd(), AsFd::as_fd)
    }

    fn target(&self, ring: &RingPlan) -> Target<'_> {
        let len = self.source.len().unwrap_or(0);
        Target { fd: self.fd(), flags: ring.flags(), align: ring.align, len }
    }
}

fn refused_direct(error: &io::Error) -> ErrorKind {
    let why = format!("direct I/O refused for this file: {error}");
    ErrorKind::Cache { cache: CacheMode::Direct, why }
}

/// Sets the I/O priority of this thread while the guard exists.
fn set_priority(priority: Option<IoPriority>) -> Result<Option<PriorityGuard>, ErrorKind> {
    priority.map(PriorityGuard::set).transpose().map_err(|error| {
        let what = "setting the I/O priority".to_owned();
        ErrorKind::Resource { what, error }
    })
}

impl Plan {
    /// Reads `source` and passes each block to `consume`, one after another. A stream can be read
    /// once: a second run finds it at its end.
    ///
    /// # Errors
    ///
    /// The first failed read, a change of the source while it was read, or the error of `consume`:
    /// the consumer may then have processed part of the source. On a pipe, an error of a `consume`
    /// that runs on its own thread (`workers`) is noticed when the next bytes arrive.
    ///
    /// # Panics
    ///
    /// If `consume` panics; requests in flight end first.
    pub fn in_order(
        &self,
        source: &Source,
        mut consume: impl FnMut(Block<'_>) -> Result<(), BoxError> + Send,
    ) -> Result<(), Error> {
        self.broadcast(source, &mut [Consumer::InOrder(&mut consume)])
    }

    /// Reads `source` and passes each block to `consume` as it arrives, on several threads at once.
    ///
    /// # Errors
    ///
    /// As for [`in_order`](Plan::in_order).
    ///
    /// # Panics
    ///
    /// If `consume` panics; requests in flight end first.
    pub fn any_order(
        &self,
        source: &Source,
        consume: impl Fn(Block<'_>) -> Result<(), BoxError> + Sync,
    ) -> Result<(), Error> {
        if self.ring.order == Order::InOrder {
            return self.in_order(source, &consume);
        }
        self.run(source, Blocks::All, None, |context, ring| {
            threads::any_order(context, ring, &consume)
        })
    }

    /// Reads what is data, and passes each of its blocks to `consume` as
    /// [`any_order`](Plan::any_order) does. What is left out is all blocks in [holes](Plan::holes)
    /// and in the ranges [to skip](crate::RunOptions::skip). [`Block::index`] counts all blocks.
    ///
    /// # Errors
    ///
    /// As for [`any_order`](Plan::any_order); `InvalidInput` if the ranges to skip are not whole
    /// blocks of the plan, or it reads one block after another, so that none can be skipped.
    ///
    /// # Panics
    ///
    /// If `consume` panics; requests in flight end first.
    pub fn data_blocks(
        &self,
        source: &Source,
        consume: impl Fn(Block<'_>) -> Result<(), BoxError> + Sync,
    ) -> Result<(), Error> {
        let data = self.data(source).map_err(|kind| Error::new(source.path(), kind))?;
        self.run(source, Blocks::Data(data), None, |context, ring| match ring.order {
            // Setting up a ring takes longer than to find that there is nothing to read.
            _ if context.supply.left() == 0 => Ok(()),
            Order::InOrder => threads::in_order(context, ring, &mut |block| consume(block)),
            Order::AnyOrder => threads::any_order(context, ring, &consume),
        })
    }

    /// Returns the blocks to read if holes and ranges to skip are left out.
    fn data(&self, source: &Source) -> Result<Extents, ErrorKind> {
        let range = self.range_of(source);
        let is_boundary = |at: u64| {
            let is_block = at.checked_sub(range.start);
            is_block.is_some_and(|at| at.is_multiple_of(self.block_bytes())) || at == range.end
        };
        let are_blocks = self
            .skip
            .iter()
            .all(|skip| skip.start < skip.end && is_boundary(skip.start) && is_boundary(skip.end));
        if !self.skip.is_empty() && (!are_blocks || self.is_sequential()) {
            let what = "the ranges to skip are not whole blocks of the plan";
            return Err(ErrorKind::read(0, 0, io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        let data = without(range.clone(), &self.skip).into_iter();
        let data = data.flat_map(|range| without(range, &self.holes));
        Ok(Extents::of_ranges(data, range.start, self.ring.block_bytes))
    }

    /// Reads `source` once and passes each block to every consumer: at the same time, on their own
    /// threads, if the plan was made for [consumers](crate::RunOptions::consumers) in order;
    /// otherwise on this thread.
    ///
    /// Each consumer has its own threads, even if the plan allows fewer.
    /// [`consumers`](Plan::consumers) returns the number of threads planned, and one consumer can
    /// do the work of several.
    ///
    /// # Errors
    ///
    /// As for [`in_order`](Plan::in_order).
    ///
    /// # Panics
    ///
    /// If a consumer panics; requests in flight end first.
    pub fn broadcast(&self, source: &Source, consumers: &mut [Consumer<'_>]) -> Result<(), Error> {
        self.run(source, Blocks::All, None, |context, ring| {
            // Worker threads that start later, in any order, cannot be used here.
            let at_once = ring.order == Order::InOrder || ring.start == Start::Explicit;
            // Without consumers, no thread would return blocks.
            if ring.workers > 0 && at_once && !consumers.is_empty() {
                match broadcast::on_threads(context, ring, consumers) {
                    // No thread, and nothing has been read: this thread can do all the work.
                    Err(ErrorKind::Resource { .. })
                        if ring.start != Start::Explicit && context.supply.is_untouched() => {}
                    result => return result,
                }
            }
            threads::in_order(context, ring, &mut |block| {
                consumers.iter_mut().try_for_each(|consumer| consumer.consume(block))
            })
        })
    }

    /// Reads a stream and passes each block to `consume`, as [`any_order`](Plan::any_order) does,
    /// while all of it is copied to `tee`, in order. The plan must have been made with
    /// [`RunOptions::tee`](crate::RunOptions::tee).
    ///
    /// # Errors
    ///
    /// As for [`in_order`](Plan::in_order); [`ErrorKind::Tee`] if the output cannot be written to.
    ///
    /// # Panics
    ///
    /// If `consume` panics; or if the plan is not for a stream, or is for blocks in order.
    pub fn tee(
        &self,
        source: &Source,
        tee: &mut Tee,
        consume: impl Fn(Block<'_>) -> Result<(), BoxError> + Sync,
    ) -> Result<(), Error> {
        let is_stream = matches!(self.kind, PlanKind::Stream { .. });
        assert!(
            is_stream && self.order() == Order::AnyOrder,
            "only a stream in any order has a tee"
        );
        let consumed = AtomicU64::new(0);
        let result = self.run(source, Blocks::All, Some(tee), |context, ring| {
            threads::any_order(context, ring, &|block| {
                consume(block)?;
                consumed.fetch_add(block.bytes.len() as u64, Ordering::Relaxed);
                Ok(())
            })
        });
        let found = source.start() + consumed.load(Ordering::Relaxed);
        if let (Ok(()), Some(stated)) = (&result, source.len())
            && !source.is_pseudo()
            && found != stated.max(source.start())
        {
            let kind = ErrorKind::Length { stated, found };
            return Err(Error::new(source.path(), kind));
        }
        result.map_err(|mut error| {
            // Bytes that did not fill a block were copied, but not consumed.
            if let ErrorKind::Tee { bytes, .. } = &mut error.kind {
                *bytes = consumed.load(Ordering::Relaxed);
            }
            error
        })
    }

    /// Reads `extents`, each as one block, with as many in flight as the plan allows, and passes
    /// each to `consume` as it arrives, on several threads at the same time. Extents are neither
    /// joined nor sorted: they are requested in the order of the list. For records that may fail
    /// individually, see [`BatchReader`](crate::BatchReader).
    ///
    /// The plan must be for [`Order::AnyOrder`] of a seekable source. Each extent must start at a
    /// multiple of the alignment of direct reads if the plan uses those, be at most
    /// [`block_bytes`](Plan::block_bytes) long, and lie within the source; empty ones are skipped.
    ///
    /// # Errors
    ///
    /// As for [`any_order`](Plan::any_order); `InvalidInput` for an extent that does not meet these
    /// conditions, before anything is read.
    ///
    /// # Panics
    ///
    /// If `consume` panics; requests in flight end first.
    pub fn read_extents(
        &self,
        source: &Source,
        extents: &[Extent],
        consume: impl Fn(Block<'_>) -> Result<(), BoxError> + Sync,
    ) -> Result<(), Error> {
        let checked = extents.iter().try_for_each(|extent| self.check_extent(source, extent));
        checked.map_err(|kind| Error::new(source.path(), kind))?;
        let list = extents.iter().enumerate().filter(|(_, extent)| extent.len > 0);
        let list = list.map(|(index, &Extent { offset, len })| IndexedExtent {
            index: index as u64,
            offset,
            len,
        });
        let list = Extents::of_list(list.collect());
        self.run(source, Blocks::List(list), None, |context, ring| {
            threads::any_order(context, ring, &consume)
        })
    }

    fn check_extent(&self, source: &Source, extent: &Extent) -> Result<(), ErrorKind> {
        let Extent { offset, len } = *extent;
        let end = offset.checked_add(len.into());
        let is_stream = matches!(self.kind, PlanKind::Stream { .. });
        let what = match source.len().filter(|_| !is_stream) {
            None => "the source is not seekable",
            _ if self.order() != Order::AnyOrder || self.ring.engine.is_sequential() => {
                "the plan is for blocks in order"
            }
            Some(source_len) if end.is_none_or(|end| end > source_len) => {
                "the extent reaches past the end of the source"
            }
            _ if !offset.is_multiple_of(self.align()) => {
                "the extent does not start at a multiple of the alignment"
            }
            _ if u64::from(len) > self.block_bytes() => "the extent is longer than a block",
            _ => return Ok(()),
        };
        let error = io::Error::new(io::ErrorKind::InvalidInput, what);
        Err(ErrorKind::read(offset, 0, error))
    }

    /// Runs from the first read to the last check of the source.
    fn run(
        &self,
        source: &Source,
        blocks: Blocks,
        tee: Option<&mut Tee>,
        run: impl FnMut(&RunContext<'_>, &RingPlan) -> Result<(), ErrorKind>,
    ) -> Result<(), Error> {
        let result = self.recording.time(source.path(), || {
            let _priority = set_priority(self.io_priority)?;
            self.run_opened(&Opened::new(self, source)?, blocks, tee, run)
        });
        result.map_err(|kind| Error::new(source.path(), kind))
    }

    fn run_opened(
        &self,
        opened: &Opened<'_>,
        blocks: Blocks,
        tee: Option<&mut Tee>,
        mut run: impl FnMut(&RunContext<'_>, &RingPlan) -> Result<(), ErrorKind>,
    ) -> Result<(), ErrorKind> {
        let (ring, source, fd) = (&self.ring, opened.source, opened.fd());
        let is_list = matches!(blocks, Blocks::List(_));
        let is_data = matches!(blocks, Blocks::Data(_));
        let holes = if is_list { &[] } else { &*self.holes };
        let hole_bytes = holes.iter().map(|hole| hole.end - hole.start).sum();
        let mut zeros = Vec::new();
        let extents = match blocks {
            Blocks::List(extents) | Blocks::Data(extents) => extents,
            Blocks::All => {
                if !holes.is_empty() && zeros.try_reserve_exact(ring.block_bytes as usize).is_ok() {
                    // (Never written to: the kernel maps its one page of zeros everywhere.)
                    zeros = vec![0; ring.block_bytes as usize];
                }
                Extents::new(self.range_of(source), ring.block_bytes)
            }
        };
        let reaches_end = !is_list && self.reaches_end(source);
        let target = opened.target(ring);
        let stream_supply = |kind, extents, full_bytes| {
            let helpers = if ring.start == Start::WhenBehind { ring.workers } else { 0 };
            let stop = self.stop.as_ref();
            StreamSupply::new(fd, kind, extents, full_bytes, helpers, stop)
        };
        let supply: Box<dyn Supply + '_> = match self.kind {
            PlanKind::Stream { full_bytes } => {
                let extents = Extents::new(0..u64::MAX, ring.block_bytes);
                Box::new(stream_supply(Stream::ToEnd(tee), extents, full_bytes))
            }
            _ if ring.engine.is_sequential() => {
                let Target { len, flags, align, .. } = target;
                Box::new(stream_supply(Stream::Positioned { len, flags, align }, extents, u32::MAX))
            }
            _ => Box::new(FileSupply { target, extents, zeros: Zeros { holes, bytes: &zeros } }),
        };
        let mut context = self.context(&*supply);
        if is_list {
            // Extents far from each other would map a window each.
            context.copy_or_map = None;
        }
        let _advice = match ring.read_ahead {
            _ if is_list => (ring.cache == CacheMode::Buffered).then(|| AdviceGuard::random(fd)),
            ReadAhead::Default => None,
            ReadAhead::Sequential => Some(AdviceGuard::sequential(fd)),
            ReadAhead::Off => Some(AdviceGuard::random(fd)),
        };
        let may_fall_back = || self.may_fall_back() && supply.is_untouched();
        let result = with_fallback(&mut ring.clone(), may_fall_back, |ring| run(&context, ring));
        if hole_bytes > 0 && (is_data || !zeros.is_empty()) {
            self.recording.add_holes(hole_bytes, if is_data { 0 } else { hole_bytes });
        }
        if let PlanKind::Stream { .. } = self.kind {
            // A stream has no length to check, and cannot be read again.
            return result.and_then(|()| source.unchanged());
        }
        let result = result.map_err(|error| bad_ranges::narrow(&target, error));
        source.finish(result, reaches_end && self.probes_end)
    }

    /// Returns the range to read.
    fn range_of(&self, source: &Source) -> Range<u64> {
        let end = source.len().unwrap_or(u64::MAX);
        let range = self.range.clone().unwrap_or(source.start()..end);
        let (start, end) = (range.start.min(end), range.end.min(end));
        start..end.max(start)
    }

    fn reaches_end(&self, source: &Source) -> bool {
        let len = source.len().unwrap_or(0);
        self.range.as_ref().is_none_or(|range| range.end >= len && range.start <= range.end)
    }

    fn context<'a>(&'a self, supply: &'a dyn Supply) -> RunContext<'a> {
        let (rate_limit, stop) = (self.rate_limit.as_ref(), self.stop.as_ref());
        let (recording, copy_or_map) = (&*self.recording, self.copy_or_map.as_ref());
        RunContext { supply, rate_limit, stop, recording, copy_or_map }
    }

    /// Creates a reader for this thread.
    fn new_reader(
        &self,
        context: &RunContext<'_>,
        ring: &mut RingPlan,
    ) -> Result<Reader, ErrorKind> {
        let make = |ring: &RingPlan| Reader::new(context, ring, ring.slots, false);
        with_fallback(ring, || self.may_fall_back(), make)
    }

    /// Whether another engine may replace the plan's: not if it is explicit, or if an option of
    /// io_uring is needed.
    fn may_fall_back(&self) -> bool {
        let is_stream = self.ring.engine == EngineKind::Stream;
        !self.engine_is_explicit && !self.ring.uring.is_set() && !is_stream
    }
}
