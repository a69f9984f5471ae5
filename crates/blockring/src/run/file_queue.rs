//! Reading many files of one device: a queue that assigns extents of many files to the rings of
//! several threads, and tracks each file until its last extent.
//!
//! The caller decides which files are read, in which order and on which threads.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::reader::Reader;
use super::threads::Block;
use super::{bad_ranges, refused_direct, set_priority};
use crate::config::{CacheMode, EngineKind, HugePages, Order, SLOT_ALIGN_BYTES};
use crate::core::extents::IndexedExtent;
use crate::core::pump::{Delivered, RawBlock, Sink};
use crate::core::supply::{Claim, FreeSlot, Supply, Target};
use crate::error::{BoxError, ErrorKind};
use crate::lock;
use crate::observe::stats::RunGuard;
use crate::plan::profile::{BLOCK_BYTES, CACHED_BLOCK_BYTES, direct_is_faster};
use crate::plan::{Files, Plan, PlanKind, RingPlan};
use crate::source::file_system::{Storage, file_system};
use crate::source::{Source, bypass, residency};
use crate::sys;
use crate::sys::priority::PriorityGuard;

/// Block size of a ring for small files, in bytes. The extents of a file are adjacent on the
/// device, and the kernel merges adjacent requests of one batch, so that short blocks cost little.
const SMALL_BLOCK_BYTES: u32 = 32 << 10;

/// Longest file that a [small](ReaderKind::Small) reader should read, in bytes.
const SMALL_BYTES_MAX: u64 = BLOCK_BYTES as u64;

/// Where parts of files may start: no direct read needs a larger alignment.
const PART_ALIGN: u64 = SLOT_ALIGN_BYTES as u64;

/// The purpose of a reader of a [`FileQueue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReaderKind {
    /// Uncached files of at most 512 KiB, with little memory.
    Small,
    /// Files of any length that are not in the page cache.
    Large,
    /// Files in the page cache: one read after another, on the thread that consumes.
    Cached,
}

/// A queue of files for [`QueueReader`]s, on any number of threads.
pub struct FileQueue<'p, T> {
    plan: &'p Plan,
    kind: ReaderKind,
    block_bytes: u32,
    next: Box<NextPart<'p, T>>,
    state: Mutex<FileTable<T>>,
    /// Files finished without a read: empty ones, and ones that could not be opened as required.
    over: Mutex<Vec<Over<T>>>,
    _run: RunGuard<'p>,
}

/// Returns the next file, the part of it to read (`None`: all of it), and the caller's state.
type NextPart<'p, T> = dyn Fn() -> Option<(Source, Option<Range<u64>>, T)> + Send + Sync + 'p;

/// A file that needs no read, and its result.
type Over<T> = (Source, T, Result<(), ErrorKind>);

struct FileTable<T> {
    /// Files with extents that have not been consumed; the `index` of these extents is the file's.
    files: Vec<Option<Arc<ActiveFile<T>>>>,
    free: Vec<usize>,
    /// The file whose extents are being assigned, and the offset of the next one.
    current: Option<(usize, u64)>,
    /// Files after it, with the offsets of their first extents.
    pending: VecDeque<(usize, u64)>,
    /// Whether the last call of `next` returned no file.
    is_dry: bool,
    is_stopped: bool,
}

/// A file with extents in the rings.
struct ActiveFile<T> {
    source: Source,
    state: T,
    /// The file opened again for direct reads, if its open file description may be shared.
    own: Option<File>,
    len: u64,
    /// Where the part of it that is read ends.
    end: u64,
    flags: i32,
    align: u32,
    /// Bytes that have been neither consumed nor given up.
    left: AtomicU64,
    failed: Mutex<Option<ErrorKind>>,
}

impl<T> ActiveFile<T> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.own.as_ref().map_or(self.source.as_fd(), AsFd::as_fd)
    }
}

/// Many files of one device. These methods require a plan from [`Plan::choose_for_files`], and
/// panic otherwise.
impl Plan {
    fn files(&self) -> &Files {
        match &self.kind {
            PlanKind::Files(files) => files,
            _ => panic!("the plan is for one source, not for many files"),
        }
    }

    /// Returns how to open files that are not expected to be in the page cache:
    /// [`CacheMode::Direct`] for `O_DIRECT`, which avoids switching to it later.
    pub fn open_mode(&self) -> CacheMode {
        self.ring.cache
    }

    /// Whether a file should be read by a small or large reader. Otherwise a
    /// [cached](ReaderKind::Cached) reader is faster: the file is in the page cache, or in memory,
    /// or so small that a thread may as well wait for it.
    pub fn wants_ring(&self, source: &Source) -> bool {
        let files = self.files();
        let Some(len) = source.len().filter(|len| *len > 0) else { return false };
        if files.is_explicit || source.is_direct() {
            return true;
        }
        let is_small = len <= SMALL_BYTES_MAX;
        let is_direct = self.ring.cache == CacheMode::Direct;
        let is_memory = matches!(files.storage, Storage::Memory | Storage::Pseudo);
        if is_memory || (is_small && !is_direct) {
            return false;
        }
        let resident = match is_small {
            true => residency::resident_small(source.file(), len),
            false => residency::resident(source.file(), len),
        };
        resident.map_or(!is_small, direct_is_faster)
    }

    /// Reads a small file if all of it is in the page cache, with one system call instead of two
    /// with a check. For files that are expected to be cached: for others, the kernel starts a
    /// useless read-ahead. Returns false if it is not cached, or if this plan must read it
    /// differently.
    ///
    /// # Errors
    ///
    /// A change of the file while it was read.
    pub fn read_cached(&self, source: &Source, buffer: &mut [u8]) -> Result<bool, ErrorKind> {
        let is_explicit = self.files().is_explicit;
        let is_plain = !is_explicit && self.rate_limit.is_none() && !self.recording.is_on();
        if !is_plain || source.is_direct() || source.len() != Some(buffer.len() as u64) {
            return Ok(false);
        }
        match sys::pread_into(source.as_fd(), buffer, 0, libc::RWF_NOWAIT) {
            Ok(n) if n == buffer.len() => source.finish(Ok(()), self.probes_end).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Returns the memory of a reader while it reads, in bytes.
    pub fn reader_bytes(&self, kind: ReaderKind) -> u64 {
        let ring = self.ring_for(kind);
        u64::from(ring.slots) * u64::from(ring.block_bytes)
    }

    /// Returns the ring of a reader.
    fn ring_for(&self, kind: ReaderKind) -> RingPlan {
        let (mut ring, files) = (self.ring.clone(), self.files());
        if kind == ReaderKind::Cached {
            (ring.engine, ring.cache) = (EngineKind::Pread, CacheMode::Buffered);
            (ring.slots, ring.depth, ring.align) = (1, 1, 1);
            if !files.shape_is_explicit {
                ring.block_bytes = ring.block_bytes.min(CACHED_BLOCK_BYTES);
            }
            // Zeroing 2 MiB takes longer than reading a small file. (Reserved pages are explicit.)
            if ring.huge_pages == HugePages::Advise {
                ring.huge_pages = HugePages::Off;
            }
            return ring;
        }
        if kind == ReaderKind::Large || files.shape_is_explicit {
            return ring;
        }
        if ring.engine == EngineKind::IoUring || self.engine_is_explicit {
            ring.block_bytes = ring.block_bytes.min(SMALL_BLOCK_BYTES);
            ring.slots = (files.small_slab_bytes / ring.block_bytes).max(1);
            if !ring.engine.is_synchronous() {
                ring.depth = ring.slots;
            }
        } else {
            // Other engines do nothing that the caller's threads could not do themselves.
            (ring.engine, ring.slots, ring.depth) = (EngineKind::Pread, 1, 1);
        }
        ring
    }

    /// Creates a reader for this thread.
    ///
    /// # Errors
    ///
    /// If the I/O priority of the configuration is not available.
    pub fn reader(&self, kind: ReaderKind) -> Result<QueueReader<'_>, ErrorKind> {
        let priority = set_priority(self.io_priority)?;
        let ring = self.ring_for(kind);
        Ok(QueueReader { plan: self, ring, reader: None, _priority: priority })
    }

    /// Creates a queue for readers of one kind. `next` returns the next file with the part of it to
    /// read (`None` is all of it) and the caller's state, or `None` if there is none for now; it may
    /// open the file. Files are read in this order. In the statistics, the run lasts from the first
    /// queue to the end of the last one.
    ///
    /// A part must start at a multiple of 4096 and lie within its file, or it fails with
    /// `InvalidInput`. Offsets of blocks are those in the file.
    pub fn queue<'p, T: Send + Sync>(
        &'p self,
        kind: ReaderKind,
        next: impl Fn() -> Option<(Source, Option<Range<u64>>, T)> + Send + Sync + 'p,
    ) -> FileQueue<'p, T> {
        FileQueue {
            plan: self,
            kind,
            block_bytes: self.ring_for(kind).block_bytes,
            next: Box::new(next),
            state: Mutex::new(FileTable {
                files: Vec::new(),
                free: Vec::new(),
                current: None,
                pending: VecDeque::new(),
                is_dry: false,
                is_stopped: false,
            }),
            over: Mutex::default(),
            _run: self.recording.run(Path::new("many files")),
        }
    }

    /// Determines how a queued file is read: directly if it should and can be. Returns the flags,
    /// the alignment, and the file if it had to be reopened.
    fn open_queued(
        &self,
        kind: ReaderKind,
        source: &mut Source,
    ) -> Result<(i32, u32, Option<File>), ErrorKind> {
        let files = self.files();
        if files.bypass_cache {
            let (name, storage) = file_system(source.file());
            bypass::check(source, storage, name).map_err(ErrorKind::BypassCache)?;
        }
        if kind == ReaderKind::Cached {
            let is_small = source.len().is_some_and(|len| len <= SMALL_BYTES_MAX);
            return Ok((if is_small { files.small_flags } else { 0 }, 1, None));
        }
        if files.is_layered
            && self.ring.engine == EngineKind::IoUring
            && !sys::reports_extents(source.file())
        {
            let why = "this file is on another layer than the first".to_owned();
            return Err(ErrorKind::Engine { engine: EngineKind::IoUring, why });
        }
        if self.ring.cache != CacheMode::Direct {
            return Ok((self.ring.flags(), 1, None));
        }
        let opened = match source.make_direct() {
            Some(made) => made.map(|()| None),
            None => source.reopen_direct().map(Some),
        };
        match opened {
            Ok(own) => Ok((0, self.ring.align, own)),
            Err(_) if !files.is_explicit => Ok((0, 1, None)),
            Err(error) => Err(refused_direct(&error)),
        }
    }
}

impl<T> FileQueue<'_, T> {
    fn state(&self) -> MutexGuard<'_, FileTable<T>> {
        lock(&self.state)
    }

    fn file(&self, index: u64) -> Option<Arc<ActiveFile<T>>> {
        self.state().files.get(index as usize).cloned().flatten()
    }

    /// Adds the next file, which may have to be opened while other threads continue. Returns false
    /// if there is none for now.
    fn admit(&self) -> bool {
        loop {
            let Some((mut source, part, caller)) = (self.next)() else {
                self.state().is_dry = true;
                return false;
            };
            let opened = self.plan.open_queued(self.kind, &mut source);
            let len = source.len().unwrap_or(0);
            let Range { start, end } = part.unwrap_or(0..len);
            match opened {
                Ok(_) if !start.is_multiple_of(PART_ALIGN) || end > len => {
                    let error = io::ErrorKind::InvalidInput.into();
                    lock(&self.over).push((source, caller, Err(ErrorKind::read(start, 0, error))));
                }
                Ok(_) if start >= end => lock(&self.over).push((source, caller, Ok(()))),
                Ok((flags, align, own)) => {
                    let (left, failed) = (AtomicU64::new(end - start), Mutex::default());
                    let state = caller;
                    let active =
                        ActiveFile { source, state, own, len, end, flags, align, left, failed };
                    let active = Some(Arc::new(active));
                    let mut state = self.state();
                    let index = state.free.pop().unwrap_or(state.files.len());
                    match state.files.get_mut(index) {
                        Some(place) => *place = active,
                        None => state.files.push(active),
                    }
                    state.pending.push_back((index, start));
                    return true;
                }
                Err(why) => lock(&self.over).push((source, caller, Err(why))),
            }
        }
    }

    /// Records that bytes of a file are consumed or given up. Returns whether they were the last.
    fn finish_part(&self, index: u64, file: &ActiveFile<T>, bytes: u64) -> bool {
        if file.left.fetch_sub(bytes, Ordering::AcqRel) != bytes {
            return false;
        }
        let mut state = self.state();
        state.files[index as usize] = None;
        state.free.push(index as usize);
        true
    }

    /// Stops assigning extents of a file. Returns the number of bytes skipped.
    fn give_up(&self, index: u64) -> u64 {
        let mut state = self.state();
        match state.current {
            Some((current, offset)) if current as u64 == index => {
                state.current = None;
                state.files[current].as_ref().map_or(0, |file| file.end - offset)
            }
            _ => 0,
        }
    }

    /// Removes the files that no reader will finish: after an error or a panic.
    pub fn take_unfinished(&mut self, mut each: impl FnMut(&T, &Source)) {
        let mut state = self.state();
        (state.current, state.pending) = (None, VecDeque::new());
        state.free.clear();
        let files = std::mem::take(&mut state.files);
        drop(state);
        for active in files.into_iter().flatten() {
            each(&active.state, &active.source);
        }
        for (source, state, _) in std::mem::take(&mut *lock(&self.over)) {
            each(&state, &source);
        }
    }
}

impl<T: Send + Sync> Supply for FileQueue<'_, T> {
    fn claim(&self, _: &mut FreeSlot<'_, '_>) -> Result<Option<Claim<'_>>, ErrorKind> {
        let mut state = self.state();
        let (index, offset) = loop {
            if state.is_stopped {
                return Ok(None);
            }
            if state.current.is_none() {
                state.current = state.pending.pop_front();
            }
            if let Some(current) = state.current {
                break current;
            }
            drop(state);
            if !self.admit() {
                return Ok(None);
            }
            state = self.state();
        };
        let Some(file) = state.files[index].as_ref() else { return Ok(None) };
        let len = (file.end - offset).min(self.block_bytes.into());
        let target = Target {
            // SAFETY: the file stays open until all of its bytes are consumed or given up, and
            // those of this extent are neither before its read has ended. This queue outlives the
            // pumps that read from it. (A pump keeps the number for longer, but does not use it.)
            fd: unsafe { BorrowedFd::borrow_raw(file.fd().as_raw_fd()) },
            flags: file.flags,
            align: file.align,
            len: file.len,
        };
        let next = offset + len;
        state.current = (next < file.end).then_some((index, next));
        let extent = IndexedExtent { index: index as u64, offset, len: len as u32 };
        Ok(Some(Claim::Read(extent, target)))
    }

    fn stop(&self) {
        self.state().is_stopped = true;
    }

    fn left(&self) -> u64 {
        let state = self.state();
        match (state.is_stopped, state.current) {
            (false, Some((index, offset))) => {
                let end = state.files[index].as_ref().map_or(0, |file| file.end);
                (end - offset).div_ceil(self.block_bytes.into())
            }
            // The number of further files is unknown.
            (false, None) if !state.is_dry => 1,
            _ => 0,
        }
    }
}

/// The ring of one thread, which reads from a [`FileQueue`]. It stays on the thread that created
/// it, as io_uring requires, and is set up when there is something to read.
pub struct QueueReader<'p> {
    plan: &'p Plan,
    ring: RingPlan,
    reader: Option<Reader>,
    _priority: Option<PriorityGuard>,
}

impl QueueReader<'_> {
    /// Reads the files of `queue` until it has none for now, and passes each block to `block`, in
    /// any order; other readers may read other blocks of the same file. `done` is called once per
    /// file: when all of its blocks have been consumed and it is unchanged, or when it failed. For
    /// a file of one block, that is right after that block, before the next block of any file.
    ///
    /// # Errors
    ///
    /// Errors that concern no single file: the engine or its memory is not available, or fails.
    /// Files with extents in this reader have then failed; other files of the queue are left to
    /// other readers, or to [`take_unfinished`](FileQueue::take_unfinished).
    ///
    /// # Panics
    ///
    /// If `queue` was created for readers with larger blocks: those of another kind or plan. Also
    /// if `block` or `done` panics.
    pub fn read<T: Send + Sync>(
        &mut self,
        queue: &FileQueue<'_, T>,
        block: impl FnMut(&T, Block<'_>) -> Result<(), BoxError>,
        done: impl FnMut(&T, &Source, Result<(), ErrorKind>),
    ) -> Result<(), ErrorKind> {
        let (blocks, slots) = (queue.block_bytes, self.ring.block_bytes);
        assert!(blocks <= slots, "a queue of blocks of {blocks} bytes for a reader of {slots}");
        let mut context = self.plan.context(queue);
        if queue.kind != ReaderKind::Cached {
            context.copy_or_map = None;
        }
        queue.state().is_dry = false;
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.plan.new_reader(&context, &mut self.ring)?,
        };
        let mut sink = FileSink { queue, block, done };
        let read = reader.pump(&context, &self.ring, Order::AnyOrder, || &mut sink);
        sink.report_over();
        if let Err(error) = &read {
            // The reader is not reused, because requests may have been in flight.
            for extent in reader.unconsumed() {
                let what = format!("the ring failed while it was read: {error}");
                let lost = ErrorKind::read(extent.offset, 0, io::Error::other(what));
                let _ = (&mut sink).failed(extent, lost);
            }
        } else {
            self.reader = Some(reader);
        }
        read
    }

    /// Frees its memory until there is something to read.
    pub fn release(&mut self) {
        self.reader = None;
    }
}

/// Passes blocks to the consumers of their files.
struct FileSink<'a, 'p, T, B, D> {
    queue: &'a FileQueue<'p, T>,
    block: B,
    done: D,
}

impl<T, B, D> FileSink<'_, '_, T, B, D>
where
    D: FnMut(&T, &Source, Result<(), ErrorKind>),
{
    fn finish_part(&mut self, index: u64, active: &ActiveFile<T>, bytes: u64) {
        if self.queue.finish_part(index, active, bytes) {
            let ActiveFile { source, state, .. } = active;
            let result = match lock(&active.failed).take() {
                // (Meanwhile the other extents of this ring wait.)
                Some(error) => Err(bad_ranges::narrow(&self.smallest_target(active), error)),
                None => Ok(()),
            };
            (self.done)(state, source, source.finish(result, self.queue.plan.probes_end));
        }
        self.report_over();
    }

    /// Returns the parameters for the smallest reads of a file.
    fn smallest_target<'f>(&self, active: &'f ActiveFile<T>) -> Target<'f> {
        let align = active.align.min(self.queue.plan.files().sector_bytes);
        Target { fd: active.fd(), flags: active.flags, align, len: active.len }
    }

    fn fail(&mut self, extent: IndexedExtent, active: &ActiveFile<T>, error: ErrorKind) {
        lock(&active.failed).get_or_insert(error);
        let left_out = self.queue.give_up(extent.index);
        self.finish_part(extent.index, active, u64::from(extent.len) + left_out);
    }

    fn report_over(&mut self) {
        let over = std::mem::take(&mut *lock(&self.queue.over));
        for (source, state, result) in over {
            (self.done)(&state, &source, source.finish(result, self.queue.plan.probes_end));
        }
    }
}

impl<T, B, D> Sink for &mut FileSink<'_, '_, T, B, D>
where
    B: FnMut(&T, Block<'_>) -> Result<(), BoxError>,
    D: FnMut(&T, &Source, Result<(), ErrorKind>),
{
    fn deliver(&mut self, raw: RawBlock) -> Result<Delivered, ErrorKind> {
        let extent = raw.extent;
        let Some(active) = self.queue.file(extent.index) else { return Ok(Delivered::Consumed) };
        // SAFETY: the pump delivers the block until this returns.
        let block = unsafe { raw.block() };
        match (self.block)(&active.state, block) {
            // Noticed here, before the file is reported as read.
            Ok(()) if raw.is_damaged() => {
                self.fail(extent, &active, ErrorKind::damaged(extent));
                return Ok(Delivered::Damaged);
            }
            Ok(()) => self.finish_part(extent.index, &active, extent.len.into()),
            Err(error) => self.fail(extent, &active, ErrorKind::Consumer(error)),
        }
        Ok(Delivered::Consumed)
    }

    fn failed(&mut self, extent: IndexedExtent, error: ErrorKind) -> Result<(), ErrorKind> {
        if let Some(active) = self.queue.file(extent.index) {
            self.fail(extent, &active, error);
        }
        Ok(())
    }
}
