//! Locating unreadable bytes, as retry policies of the pump.
//!
//! After a run has failed, [`narrow`] searches for the first and last bad unit of the failed
//! request. [`Plan::scan_bad_ranges`] scans the whole source and finds every bad unit. Both halve a
//! failed extent until it is one unit: the supply assigns what is left of a failed block before the
//! next block. They read on the calling thread, one request at a time, with the cache mode of the
//! run.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::threads::Block;
use super::{Opened, set_priority};
use crate::config::{Consume, HugePages, Order, Wait};
use crate::core::extents::IndexedExtent;
use crate::core::pump::{Delivered, Job, Pump, RawBlock, Shape, Sink};
use crate::core::slab::Slab;
use crate::core::supply::{Claim, FreeSlot, Supply, Target};
use crate::engine::Engine;
use crate::engine::pread::PreadEngine;
use crate::error::{BoxError, Error, ErrorKind, Precision, is_of_place};
use crate::lock;
use crate::observe::stats::Recording;
use crate::plan::{Plan, PlanKind};
use crate::source::Source;

/// Time limit for examining one failed block. A drive with its own error recovery takes up to 30 s
/// for one bad sector (7 s if that is limited), and the kernel may try five times: so two failing
/// reads in the worst case, and all that are needed (20, from 512 KiB down to 512 bytes) on a drive
/// that gives up within 3 s.
const BLOCK_TIME_MAX: Duration = Duration::from_secs(60);

/// Longest read, in bytes. For one sequential direct read at a time, longer reads are hardly
/// faster, and this much is read again after a failure.
const READ_BYTES_MAX: u32 = 1 << 20;

/// Number of units of a failed block that are sampled if the whole block before it was bad: if none
/// can be read, the whole block counts as bad. Trying each bad sector of gigabytes takes years.
const SAMPLES: u64 = 16;

/// An unreadable range of a source.
#[derive(Debug)]
pub struct BadRange {
    /// Offset in the source, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// The kernel's error for its first bytes.
    pub error: io::Error,
}

/// One step of a bad-range scan: the next readable bytes (a block, or a part of one), or the next
/// unreadable range. Adjacent ranges with the same error are one.
type Scanned<'a> = Result<Block<'a>, BadRange>;

impl Plan {
    /// Scans a source, one read after another on this thread, and passes all readable bytes and all
    /// unreadable ranges to `each`, in order; adjacent ranges with the same error are one. A read
    /// is of 1 MiB; if it fails, it is halved down to the alignment of direct reads, or a page,
    /// until each bad unit is found. After a minute the rest of such a block counts as bad; so does
    /// a block after one that was entirely bad, if none of 16 samples can be read. Takes 1 MiB of
    /// memory.
    ///
    /// Of the plan, only the cache mode is used.
    ///
    /// Returns the number of unreadable bytes. If it is 0, the blocks were all of a source that did
    /// not change while it was read.
    ///
    /// # Errors
    ///
    /// As for [`in_order`](Plan::in_order), except errors that concern a range of the source;
    /// `NotSeekable` for a source that is not seekable.
    pub fn scan_bad_ranges(
        &self,
        source: &Source,
        mut each: impl FnMut(Result<Block<'_>, BadRange>) -> Result<(), BoxError>,
    ) -> Result<u64, Error> {
        let len = source.len().filter(|_| !matches!(self.kind, PlanKind::Stream { .. }));
        let Some(len) = len else {
            let what = "it is not seekable, so a scan cannot continue after a failed read";
            let error = io::Error::new(io::ErrorKind::NotSeekable, what);
            return Err(Error::new(source.path(), ErrorKind::read(0, 0, error)));
        };
        let mut bad_bytes = 0;
        let result = self.recording.time(source.path(), || {
            let _priority = set_priority(self.io_priority)?;
            let opened = Opened::new(self, source)?;
            let target = opened.target(&self.ring);
            let range = self.range.clone().unwrap_or(source.start()..len);
            let range = range.start.min(len)..range.end.min(len);
            let search = Search::new(target, range, Goal::All);
            let job = self.job(&search);
            let result = search.run(&job, &mut PreadEngine, READ_BYTES_MAX, &mut each);
            bad_bytes = search.state().bad_bytes;
            source.finish(result, self.reaches_end(source) && self.probes_end)
        });
        result.map(|()| bad_bytes).map_err(|kind| Error::new(source.path(), kind))
    }
}

/// Examines the range of an error, if it has one, and reduces it to the first to last bad unit.
pub(super) fn narrow(target: &Target<'_>, error: ErrorKind) -> ErrorKind {
    let ErrorKind::Read { offset, len, precision: Precision::Request, error } = error else {
        return error;
    };
    if len == 0 || !is_of_place(&error) {
        return ErrorKind::read(offset, len, error);
    }
    narrow_with(&mut PreadEngine, target, offset..offset.saturating_add(len), error)
}

/// Examines `failed`, a range that could not be read.
fn narrow_with(
    engine: &mut dyn Engine,
    target: &Target<'_>,
    failed: Range<u64>,
    error: io::Error,
) -> ErrorKind {
    let (Range { start: offset, end }, len) = (failed.clone(), failed.end - failed.start);
    let block_bytes = READ_BYTES_MAX.min(len.next_multiple_of(4096).min(u32::MAX.into()) as u32);
    let recording = Recording::new(false, None);
    // Without memory for a search, the error stays as it is.
    let mut look = |range: Range<u64>, goal| -> Option<(Option<BadRange>, bool)> {
        let search = Search::new(*target, range, goal);
        let job = Job { supply: &search, rate_limit: None, recording: &recording };
        let mut found = None;
        let mut keep = |scanned: Scanned<'_>| {
            if let Err(range) = scanned {
                found.get_or_insert(range);
            }
            Ok(())
        };
        search.run(&job, engine, block_bytes, &mut keep).ok()?;
        let out_of_time = search.state().out_of_time;
        Some((found, out_of_time))
    };
    let within = |precision, error| ErrorKind::Read { offset, len, precision, error };
    let (first, out_of_time) = match look(offset..end, Goal::First) {
        None => return within(Precision::Request, error),
        Some((None, _)) => return within(Precision::Transient, error),
        Some((Some(first), out_of_time)) => (first, out_of_time),
    };
    let first_end = first.offset + first.len;
    let last_end = match look(first_end..end, Goal::Last) {
        Some((last, false)) if !out_of_time => {
            Some(last.map_or(first_end, |last| last.offset + last.len))
        }
        _ => None,
    };
    let precision = if last_end.is_some() { Precision::Units } else { Precision::OutOfTime };
    let (offset, error) = (first.offset, first.error);
    ErrorKind::Read { offset, len: last_end.unwrap_or(end) - offset, precision, error }
}

/// The goal of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// Every bad unit.
    All,
    /// The first bad unit.
    First,
    /// The last bad unit.
    Last,
}

/// A search for bad units: the supply and the policy for failed extents.
struct Search<'a> {
    target: Target<'a>,
    goal: Goal,
    /// Size of the smallest possible read, in bytes.
    unit: u64,
    state: Mutex<SearchState>,
}

/// A part of a failed block that has yet to be examined.
struct BlockPart {
    range: Range<u64>,
    known: Known,
}

/// What is known about a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    /// A read of it has failed.
    IsBad,
    /// It is the second half of a bad range. If the number of bad bytes is unchanged when this part
    /// is examined, the first half was good, so this one is bad, and need not be read as a whole.
    BadUnlessMore(u64),
    /// It is one of the samples that decide whether the whole block is bad.
    IsSample,
}

struct SearchState {
    /// The rest, not yet cut into blocks.
    rest: Range<u64>,
    index: u64,
    block_bytes: u64,
    /// The block that is being read.
    block: Range<u64>,
    /// Parts of it that have yet to be read, the next one last.
    parts: Vec<BlockPart>,
    /// Time after which the rest of the block counts as bad.
    deadline: Option<Instant>,
    /// The error of the last failed read of the block.
    errno: i32,
    /// Bad bytes so far, and before this block.
    bad_bytes: u64,
    bad_bytes_before: u64,
    /// The last bad range, which may grow.
    open: Option<BadRange>,
    /// Complete ranges, to be reported before the next block.
    found: Vec<BadRange>,
    is_over: bool,
    out_of_time: bool,
}

impl<'a> Search<'a> {
    fn new(target: Target<'a>, range: Range<u64>, goal: Goal) -> Search<'a> {
        let unit = match target.align {
            // The page cache reads whole pages.
            1 => rustix::param::page_size() as u64,
            align => align.into(),
        };
        let state = SearchState {
            block: range.start..range.start,
            rest: range,
            index: 0,
            block_bytes: 1,
            parts: Vec::new(),
            deadline: None,
            errno: libc::EIO,
            bad_bytes: 0,
            bad_bytes_before: 0,
            open: None,
            found: Vec::new(),
            is_over: false,
            out_of_time: false,
        };
        Search { target, goal, unit, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, SearchState> {
        lock(&self.state)
    }

    /// Runs the search, in blocks of `block_bytes`.
    fn run(
        &self,
        job: &Job<'_>,
        engine: &mut dyn Engine,
        block_bytes: u32,
        each: &mut dyn FnMut(Scanned<'_>) -> Result<(), BoxError>,
    ) -> Result<(), ErrorKind> {
        self.state().block_bytes = block_bytes.into();
        let slab = Slab::new(1, block_bytes, HugePages::Off)?;
        // btrfs reads into pages that do not exist yet through the page cache.
        // SAFETY: the slot has that many bytes, and is used nowhere else.
        unsafe { std::ptr::write_bytes(slab.slot(0), 0, block_bytes as usize) };
        let shape = Shape {
            slots: 1,
            depth: 1,
            block_bytes,
            order: Order::InOrder,
            consume: Consume::Each,
            wait: Wait::Sleep,
        };
        let mut sink = SearchSink { search: self, each };
        Pump::new(job, engine, Some(&slab), shape).run(&mut sink)?;
        let mut state = self.state();
        state.close();
        drop(state);
        sink.report()
    }

    /// Returns the middle of a range, at a multiple of the unit; `None` for one unit.
    fn middle(&self, range: &Range<u64>) -> Option<u64> {
        let half = (range.start + (range.end - range.start) / 2) / self.unit * self.unit;
        let middle =
            if half > range.start { half } else { (range.start / self.unit + 1) * self.unit };
        (middle < range.end).then_some(middle)
    }

    /// Queues the halves of a bad range, to be read next.
    fn split(&self, state: &mut SearchState, range: Range<u64>, middle: u64) {
        let (mut first, mut second) = (range.start..middle, middle..range.end);
        if self.goal == Goal::Last {
            std::mem::swap(&mut first, &mut second);
        }
        let known = Known::BadUnlessMore(state.bad_bytes);
        state.parts.push(BlockPart { range: second, known });
        state.parts.push(BlockPart { range: first, known: Known::Nothing });
    }

    /// Returns the next part of the failed block to read.
    fn next_part(&self, state: &mut SearchState) -> Option<Range<u64>> {
        while let Some(part) = state.parts.pop() {
            if state.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                state.out_of_time = true;
                let mut range = part.range;
                if part.known == Known::IsSample {
                    state.parts.clear();
                    range = state.block.clone();
                }
                self.add(state, range);
            } else {
                match (part.known, self.middle(&part.range)) {
                    (Known::IsBad, Some(middle)) => self.split(state, part.range, middle),
                    (Known::BadUnlessMore(bytes), Some(middle)) if bytes == state.bad_bytes => {
                        self.split(state, part.range, middle);
                    }
                    (Known::IsBad, None) => self.add(state, part.range),
                    (known, _) => {
                        let range = part.range.clone();
                        if known == Known::IsSample {
                            state.parts.push(part);
                        }
                        return Some(range);
                    }
                }
            }
            if state.is_over {
                return None;
            }
        }
        None
    }

    /// Returns the next block.
    fn next_block(&self, state: &mut SearchState) -> Option<Range<u64>> {
        let Range { start, end } = state.rest;
        if start >= end {
            return None;
        }
        let bytes = state.block_bytes.min(end - start);
        state.block = match self.goal {
            Goal::Last => end - bytes..end,
            Goal::All | Goal::First => start..start + bytes,
        };
        state.rest = match self.goal {
            Goal::Last => start..state.block.start,
            Goal::All | Goal::First => state.block.end..end,
        };
        (state.deadline, state.bad_bytes_before) = (None, state.bad_bytes);
        state.index += 1;
        Some(state.block.clone())
    }

    /// Records that a range cannot be read.
    fn add(&self, state: &mut SearchState, range: Range<u64>) {
        let (offset, len) = (range.start, range.end - range.start);
        let error = io::Error::from_raw_os_error(state.errno);
        state.bad_bytes += len;
        match &mut state.open {
            Some(open)
                if open.offset + open.len == offset
                    && open.error.raw_os_error() == Some(state.errno) =>
            {
                open.len += len;
            }
            _ => {
                state.close();
                state.open = Some(BadRange { offset, len, error });
            }
        }
        if self.goal != Goal::All {
            state.is_over = true;
        }
    }

    /// Records a failed read of an extent at `start`; its bytes before `failed` were read.
    fn failed(&self, start: u64, failed: Range<u64>, errno: i32) {
        let state = &mut *self.state();
        state.errno = errno;
        let is_block = state.deadline.is_none();
        if is_block {
            state.deadline = Some(Instant::now() + BLOCK_TIME_MAX);
            let was_all_bad = state.bad_bytes_before > 0
                && state.open.as_ref().is_some_and(|open| {
                    let end = open.offset + open.len;
                    end == state.block.start && open.len >= state.block_bytes
                });
            if self.goal == Goal::All && was_all_bad && failed == state.block {
                self.sample(state, &failed);
                return;
            }
        } else if state.is_sampling() {
            // One more sample is bad. After the last one, the whole block is.
            state.parts.pop();
            if state.parts.is_empty() {
                self.add(state, state.block.clone());
            }
            return;
        }
        let good = start..failed.start;
        state.parts.push(BlockPart { range: failed, known: Known::IsBad });
        if !good.is_empty() && self.goal == Goal::All {
            // They are read once more, as a separate part.
            state.parts.push(BlockPart { range: good, known: Known::Nothing });
        }
    }

    /// Queues samples of a block, including its first and its last unit.
    fn sample(&self, state: &mut SearchState, block: &Range<u64>) {
        let last = (block.end - 1) / self.unit * self.unit;
        let step = last.saturating_sub(block.start) / (SAMPLES - 1) / self.unit * self.unit;
        for i in (0..SAMPLES).rev() {
            let start = if i == SAMPLES - 1 { last } else { block.start + i * step };
            let range = start.max(block.start)..(start + self.unit).min(block.end);
            state.parts.push(BlockPart { range, known: Known::IsSample });
        }
    }

    /// Records a successful read. Returns whether its bytes are to be reported.
    fn succeeded(&self) -> bool {
        let state = &mut *self.state();
        if state.is_sampling() {
            // Not all of the block is bad: examine each unit.
            let range = state.block.clone();
            state.parts = vec![BlockPart { range, known: Known::IsBad }];
            return false;
        }
        state.close();
        true
    }
}

impl SearchState {
    fn is_sampling(&self) -> bool {
        self.parts.last().is_some_and(|part| part.known == Known::IsSample)
    }

    /// Completes the open range.
    fn close(&mut self) {
        self.found.extend(self.open.take());
    }
}

impl Supply for Search<'_> {
    fn claim(&self, _: &mut FreeSlot<'_, '_>) -> Result<Option<Claim<'_>>, ErrorKind> {
        let state = &mut *self.state();
        if state.is_over {
            return Ok(None);
        }
        let range = match self.next_part(state) {
            _ if state.is_over => None,
            Some(part) => Some(part),
            None => self.next_block(state),
        };
        Ok(range.map(|Range { start, end }| {
            let (index, len) = (state.index - 1, (end - start) as u32);
            Claim::Read(IndexedExtent { index, offset: start, len }, self.target)
        }))
    }

    fn stop(&self) {
        self.state().is_over = true;
    }

    fn left(&self) -> u64 {
        let state = self.state();
        match state.is_over {
            true => 0,
            false => state.parts.len() as u64 + u64::from(!state.rest.is_empty()),
        }
    }
}

/// Reports the results of a search.
struct SearchSink<'s, 'a> {
    search: &'s Search<'a>,
    each: &'s mut dyn FnMut(Scanned<'_>) -> Result<(), BoxError>,
}

impl SearchSink<'_, '_> {
    /// Reports the complete bad ranges.
    fn report(&mut self) -> Result<(), ErrorKind> {
        let found = std::mem::take(&mut self.search.state().found);
        let mut found = found.into_iter();
        found.try_for_each(|range| (self.each)(Err(range))).map_err(ErrorKind::Consumer)
    }
}

impl Sink for SearchSink<'_, '_> {
    fn deliver(&mut self, raw: RawBlock) -> Result<Delivered, ErrorKind> {
        if self.search.succeeded() {
            self.report()?;
            // SAFETY: the pump delivers the block until this returns.
            let block = unsafe { raw.block() };
            (self.each)(Ok(block)).map_err(ErrorKind::Consumer)?;
        }
        Ok(Delivered::Consumed)
    }

    fn failed(&mut self, extent: IndexedExtent, error: ErrorKind) -> Result<(), ErrorKind> {
        match error {
            ErrorKind::Read { offset, error, .. } if is_of_place(&error) => {
                let end = extent.offset + u64::from(extent.len);
                self.search.failed(
                    extent.offset,
                    offset..end,
                    error.raw_os_error().unwrap_or(libc::EIO),
                );
                self.report()
            }
            error => Err(error),
        }
    }
}

#[cfg(test)]
#[path = "bad_ranges_tests.rs"]
mod tests;
