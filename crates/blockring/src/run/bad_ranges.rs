//! Locating unreadable bytes.
//!
//! After a run has failed, [`narrow`] searches for the first and last bad unit of the failed
//! request. [`Plan::scan_bad_ranges`] scans the whole source and finds every bad unit. Both halve a
//! failed block until each part is one unit. They read on the calling thread, one part at a time,
//! through the pump, with the cache mode of the run.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::threads::Block;
use super::{Opened, set_priority};
use crate::config::{Consume, HugePages, Order, Wait};
use crate::core::extents::IndexedExtent;
use crate::core::pump::{Delivered, Pump, RawBlock, RunContext, Shape, Sink};
use crate::core::slab::Slab;
use crate::core::supply::{Claim, FreeSlot, Supply, Target};
use crate::engine::Engine;
use crate::engine::pread::PreadEngine;
use crate::error::{BoxError, Error, ErrorKind, Precision, is_of_place};
use crate::lock;
use crate::observe::stats::Recording;
use crate::plan::{Plan, PlanKind};
use crate::source::Source;
use crate::sys;

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
            let next = NextPart::new(opened.target(&self.ring));
            let range = self.range.clone().unwrap_or(source.start()..len);
            let range = range.start.min(len)..range.end.min(len);
            let (context, slab) = (self.context(&next), slab(READ_BYTES_MAX)?);
            let mut engine = PreadEngine;
            let pump = pump(&context, &mut engine, &slab, READ_BYTES_MAX);
            let mut search = Search::new(pump, &next, READ_BYTES_MAX, &mut each);
            let result = search.run(Goal::All, range).map(drop);
            bad_bytes = search.bad_bytes;
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
    // A mapping does not tell why a page of it is missing; a read does.
    let is_unknown = error.raw_os_error() == Some(libc::EFAULT);
    if len == 0 || !(is_of_place(&error) || is_unknown) {
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
    let within = |precision, error| ErrorKind::Read { offset, len, precision, error };
    let block_bytes = READ_BYTES_MAX.min(len.next_multiple_of(4096).min(u32::MAX.into()) as u32);
    let Ok(slab) = slab(block_bytes) else {
        // Without memory for a search, the error stays as it is.
        return within(Precision::Request, error);
    };
    let recording = Recording::new(false, None);
    let next = NextPart::new(*target);
    let context = RunContext::plain(&next, &recording);
    let (pump, mut ignore) = (pump(&context, engine, &slab, block_bytes), |_: Scanned<'_>| Ok(()));
    let mut search = Search::new(pump, &next, block_bytes, &mut ignore);
    let first = match search.run(Goal::First, failed) {
        Err(_) => return within(Precision::Request, error),
        Ok(None) => return within(Precision::Transient, error),
        Ok(Some(first)) => first,
    };
    let first_end = first.offset + first.len;
    let last_end = match search.run(Goal::Last, first_end..end) {
        Ok(last) if !search.is_out_of_time => {
            Some(last.map_or(first_end, |last| last.offset + last.len))
        }
        _ => None,
    };
    let precision = if last_end.is_some() { Precision::Units } else { Precision::OutOfTime };
    let (offset, error) = (first.offset, first.error);
    ErrorKind::Read { offset, len: last_end.unwrap_or(end) - offset, precision, error }
}

/// Allocates memory for one read.
fn slab(block_bytes: u32) -> Result<Slab, ErrorKind> {
    let slab = Slab::new(1, block_bytes, HugePages::Off)?;
    // btrfs reads into pages that do not exist yet through the page cache.
    // SAFETY: the slot has that many bytes, and is used nowhere else.
    unsafe { std::ptr::write_bytes(slab.slot(0), 0, block_bytes as usize) };
    Ok(slab)
}

fn pump<'s>(
    context: &'s RunContext<'s>,
    engine: &'s mut dyn Engine,
    slab: &'s Slab,
    block_bytes: u32,
) -> Pump<'s> {
    let (order, consume, wait) = (Order::InOrder, Consume::Each, Wait::Sleep);
    let shape = Shape { slots: 1, depth: 1, depth_max: 1, block_bytes, order, consume, wait };
    Pump::new(context, engine, Some(slab), shape)
}

/// The supply of a search: the part to read next.
struct NextPart<'a> {
    target: Target<'a>,
    part: Mutex<Option<IndexedExtent>>,
    /// Bytes after the current block.
    bytes_left: AtomicU64,
}

impl<'a> NextPart<'a> {
    fn new(target: Target<'a>) -> NextPart<'a> {
        NextPart { target, part: Mutex::default(), bytes_left: AtomicU64::new(0) }
    }
}

impl Supply for NextPart<'_> {
    fn claim(&self, _: &mut FreeSlot<'_, '_>) -> Result<Option<Claim<'_>>, ErrorKind> {
        Ok(lock(&self.part).take().map(|part| Claim::Read(part, self.target)))
    }

    fn stop(&self) {
        *lock(&self.part) = None;
    }

    fn left(&self) -> u64 {
        let is_more = self.bytes_left.load(Ordering::Relaxed) > 0;
        u64::from(lock(&self.part).is_some()) + u64::from(is_more)
    }
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

/// A search for bad units. Its functions that examine a range return whether they found any.
struct Search<'s, 'a> {
    pump: Pump<'s>,
    next: &'s NextPart<'a>,
    each: &'s mut dyn FnMut(Scanned<'_>) -> Result<(), BoxError>,
    goal: Goal,
    block_bytes: u64,
    /// Size of the smallest possible read, in bytes.
    unit: u64,
    /// Number of the current block.
    index: u64,
    /// Time after which the rest of a failed block counts as bad.
    deadline: Instant,
    is_out_of_time: bool,
    /// The error of the last failed read.
    errno: i32,
    bad_bytes: u64,
    /// The last bad range, which may grow.
    open: Option<BadRange>,
}

impl<'s, 'a> Search<'s, 'a> {
    fn new(
        pump: Pump<'s>,
        next: &'s NextPart<'a>,
        block_bytes: u32,
        each: &'s mut dyn FnMut(Scanned<'_>) -> Result<(), BoxError>,
    ) -> Search<'s, 'a> {
        Search {
            pump,
            next,
            each,
            goal: Goal::All,
            block_bytes: block_bytes.into(),
            unit: match next.target.align {
                // The page cache reads whole pages.
                1 => sys::page_bytes() as u64,
                align => align.into(),
            },
            index: 0,
            deadline: Instant::now(),
            is_out_of_time: false,
            errno: libc::EIO,
            bad_bytes: 0,
            open: None,
        }
    }

    /// Searches a range, and returns the bad range that ended the search.
    fn run(&mut self, goal: Goal, range: Range<u64>) -> Result<Option<BadRange>, ErrorKind> {
        self.goal = goal;
        let Range { mut start, mut end } = range;
        while start < end {
            let bytes = self.block_bytes.min(end - start);
            let block = match goal {
                Goal::Last => end - bytes..end,
                Goal::All | Goal::First => start..start + bytes,
            };
            match goal {
                Goal::Last => end = block.start,
                Goal::All | Goal::First => start = block.end,
            }
            self.next.bytes_left.store(end - start, Ordering::Relaxed);
            if self.block(block)? && goal != Goal::All {
                return Ok(self.open.take());
            }
            self.index += 1;
        }
        close(&mut self.open, self.each)?;
        Ok(None)
    }

    /// Searches a block.
    fn block(&mut self, block: Range<u64>) -> Result<bool, ErrorKind> {
        let Some(failed) = self.read(&block, true)? else { return Ok(false) };
        self.deadline = Instant::now() + BLOCK_TIME_MAX;
        let was_all_bad = self.open.as_ref().is_some_and(|open| {
            open.offset + open.len == block.start && open.len >= self.block_bytes
        });
        if self.goal == Goal::All
            && was_all_bad
            && failed == block
            && self.is_bad_in_samples(&block)?
        {
            return self.add(block);
        }
        self.failed(block.start, failed)
    }

    /// Searches a part of a failed block.
    fn part(&mut self, part: Range<u64>) -> Result<bool, ErrorKind> {
        if self.is_late() {
            return self.add(part);
        }
        match self.read(&part, true)? {
            Some(failed) => self.failed(part.start, failed),
            None => Ok(false),
        }
    }

    /// Searches a range from `start`, of which only the bytes before `failed` were read.
    fn failed(&mut self, start: u64, failed: Range<u64>) -> Result<bool, ErrorKind> {
        let mut found = false;
        if start < failed.start && self.goal == Goal::All {
            // They are read once more, as a separate part.
            found = self.part(start..failed.start)?;
        }
        Ok(self.bad(failed)? || found)
    }

    /// Searches a bad range: halves it, unless it is one unit.
    fn bad(&mut self, range: Range<u64>) -> Result<bool, ErrorKind> {
        let is_late = self.is_late();
        let middle = self.middle(&range).filter(|_| !is_late);
        let Some(middle) = middle else { return self.add(range) };
        let (mut first, mut second) = (range.start..middle, middle..range.end);
        if self.goal == Goal::Last {
            std::mem::swap(&mut first, &mut second);
        }
        let found = self.part(first)?;
        if found && self.goal != Goal::All {
            return Ok(true);
        }
        // If the first half is good, the second is bad, and need not be read as a whole.
        let found_too = match !found && self.middle(&second).is_some() {
            true => self.bad(second)?,
            false => self.part(second)?,
        };
        Ok(found || found_too)
    }

    /// Whether no sample of a block can be read; its first and its last unit are among them.
    fn is_bad_in_samples(&mut self, block: &Range<u64>) -> Result<bool, ErrorKind> {
        let last = (block.end - 1) / self.unit * self.unit;
        let step = last.saturating_sub(block.start) / (SAMPLES - 1) / self.unit * self.unit;
        for i in 0..SAMPLES {
            let start = if i == SAMPLES - 1 { last } else { block.start + i * step };
            let sample = start.max(block.start)..(start + self.unit).min(block.end);
            if self.is_late() {
                break;
            }
            if self.read(&sample, false)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether there is no more time for the block.
    fn is_late(&mut self) -> bool {
        let is_late = Instant::now() >= self.deadline;
        self.is_out_of_time |= is_late;
        is_late
    }

    /// Returns the middle of a range, at a multiple of the unit; `None` for one unit.
    fn middle(&self, range: &Range<u64>) -> Option<u64> {
        let half = (range.start + (range.end - range.start) / 2) / self.unit * self.unit;
        let middle =
            if half > range.start { half } else { (range.start / self.unit + 1) * self.unit };
        (middle < range.end).then_some(middle)
    }

    /// Records that a range cannot be read.
    fn add(&mut self, range: Range<u64>) -> Result<bool, ErrorKind> {
        let (offset, len) = (range.start, range.end - range.start);
        self.bad_bytes += len;
        match &mut self.open {
            Some(open)
                if open.offset + open.len == offset
                    && open.error.raw_os_error() == Some(self.errno) =>
            {
                open.len += len;
            }
            _ => {
                close(&mut self.open, self.each)?;
                let error = io::Error::from_raw_os_error(self.errno);
                self.open = Some(BadRange { offset, len, error });
            }
        }
        Ok(true)
    }

    /// Reads a part, and reports it if it `is_wanted`. Returns the range that could not be read.
    fn read(
        &mut self,
        part: &Range<u64>,
        is_wanted: bool,
    ) -> Result<Option<Range<u64>>, ErrorKind> {
        let (index, len) = (self.index, (part.end - part.start) as u32);
        *lock(&self.next.part) = Some(IndexedExtent { index, offset: part.start, len });
        let Search { open, each, errno, .. } = self;
        let mut sink = PartSink { open, each: *each, is_wanted, errno, failed: None };
        self.pump.run(&mut sink)?;
        Ok(sink.failed.map(|start| start..part.end))
    }
}

/// Reports a bad range that grows no more.
fn close(
    open: &mut Option<BadRange>,
    each: &mut dyn FnMut(Scanned<'_>) -> Result<(), BoxError>,
) -> Result<(), ErrorKind> {
    open.take().map_or(Ok(()), |range| each(Err(range)).map_err(ErrorKind::Consumer))
}

/// Takes the result of reading one part.
struct PartSink<'p> {
    open: &'p mut Option<BadRange>,
    each: &'p mut dyn FnMut(Scanned<'_>) -> Result<(), BoxError>,
    is_wanted: bool,
    errno: &'p mut i32,
    /// Where the part could not be read.
    failed: Option<u64>,
}

impl Sink for PartSink<'_> {
    fn deliver(&mut self, raw: RawBlock) -> Result<Delivered, ErrorKind> {
        if self.is_wanted {
            close(self.open, self.each)?;
            // SAFETY: the pump delivers the block until this returns.
            let block = unsafe { raw.block() };
            (self.each)(Ok(block)).map_err(ErrorKind::Consumer)?;
        }
        Ok(Delivered::Consumed)
    }

    fn failed(&mut self, _: IndexedExtent, error: ErrorKind) -> Result<(), ErrorKind> {
        match error {
            ErrorKind::Read { offset, error, .. } if is_of_place(&error) => {
                *self.errno = error.raw_os_error().unwrap_or(libc::EIO);
                self.failed = Some(offset);
                Ok(())
            }
            error => Err(error),
        }
    }
}

#[cfg(test)]
#[path = "bad_ranges_tests.rs"]
mod tests;
