//! A thread of a worker pool: opens the files of a batch, decides how each is read, hashes them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use blockring::{
    Block, CacheMode, ErrorKind, FileQueue, QueueReader, ReaderKind, RunOptions, Source,
};

use super::cached::without_cached;
use super::device::Batch;
use super::file_state::FileState;
use super::job::{ActiveJob, finish_opened, hash_separately, open};
use super::short_files::ShortFiles;
use super::worker_pool::{SMALL_BYTES_MAX, WorkerPool};
use super::{Failure, Hashed, Progress, lock};
use crate::hash::{digest_planned, digest_whole};

/// Least length of a cached file that is hashed on all cores: planning for that and starting
/// threads takes 0.4 ms, 3 % of the time in which one core hashes this many bytes.
const SPREAD_BYTES_MIN: u64 = 64 << 20;

/// The same while the other cores have enough to do: one thread takes 0.2 s for such a file, as
/// long as others take for the files that may wait in the reorder buffer. (Hashing a block on the
/// thread that read it takes 0.16 s of processor time per GB; on several threads 0.18 to 0.21 s.)
const SPREAD_ALWAYS_BYTES: u64 = 1 << 30;

/// After this many files in a row that were all in the page cache, or all not, the next ones are
/// expected to be the same.
const STREAK_MIN: u32 = 8;

/// How often that is checked, in files.
const STREAK_CHECK: u32 = 32;

/// Error for files that a stop interrupts. It is not reported.
const STOPPED: &str = "the run was stopped";

/// How a file is read.
enum Route {
    /// In the page cache, or not worth using a ring: on this thread.
    Cached,
    /// In the page cache and long: on all cores.
    Spread,
    /// With the ring of this thread, together with other files.
    Ring,
    /// By the threads for large files.
    Large,
    /// On its own.
    Separately,
    /// Next, as a batch of its own, by whichever thread is free.
    Requeue,
}

/// A file that is open and will be read by this thread.
type OpenFile<'p, T> = (Source, FileState<'p, T>);

/// One thread of a pool.
pub(super) struct Worker<'w, 'p, 'r, T> {
    pool: &'w WorkerPool<'p, 'r, T>,
    ring: WorkerReader<'w>,
    cached: WorkerReader<'w>,
    /// Open files to be read with the ring of this thread, and from the page cache.
    for_ring: VecDeque<OpenFile<'p, T>>,
    for_cached: VecDeque<OpenFile<'p, T>>,
    /// Short files, which are hashed several at a time.
    short: ShortFiles<T>,
    /// Number of files in a row that needed a ring. It wraps around, so that it is always rechecked.
    cold: u32,
    /// Number of files in a row that did not.
    warm: u32,
}

/// One reader of a thread, or why it is not available.
struct WorkerReader<'w> {
    kind: ReaderKind,
    reader: Result<QueueReader<'w>, ErrorKind>,
}

impl<'w, 'p: 'w, 'r: 'p, T: Send> Worker<'w, 'p, 'r, T> {
    pub(super) fn new(pool: &'w WorkerPool<'p, 'r, T>, kind: ReaderKind) -> Self {
        let reader = |kind| WorkerReader { kind, reader: pool.plan.reader(kind) };
        Worker {
            pool,
            ring: reader(kind),
            cached: reader(ReaderKind::Cached),
            for_ring: VecDeque::new(),
            for_cached: VecDeque::new(),
            short: ShortFiles::new(&pool.run.options.hash.mode, pool.buffer_bytes),
            cold: 0,
            warm: 0,
        }
    }

    /// Frees its buffers until there is work.
    pub(super) fn release(&mut self) {
        self.short.release();
        self.ring.release();
        self.cached.release();
    }

    /// Hashes the files of a batch, or passes them to other threads.
    pub(super) fn work(&mut self, batch: Batch<T>) {
        let pool = self.pool;
        let run = pool.run;
        // (On a rotational device batches are joined, so a requeued file would come back at once.)
        let may_requeue = batch.len() > 1 && pool.small.most() > 1 && !pool.plan.is_rotational();
        for job in without_cached(run, batch) {
            if run.is_stopped() {
                return;
            }
            if self.for_ring.len() + self.for_cached.len() >= pool.open_max {
                self.read_open();
            }
            let Some((job, source)) = open(run, job, self.open_mode()) else { continue };
            let job = match self.warm >= STREAK_MIN {
                true => self.hash_at_once(job, &source),
                false => Some(job),
            };
            let Some(job) = job else { continue };
            let route = self.route(&job, &source, may_requeue);
            match route {
                Route::Cached | Route::Ring => {
                    let state = FileState::new(run, job, &source);
                    let files = match route {
                        Route::Ring => &mut self.for_ring,
                        _ => &mut self.for_cached,
                    };
                    files.push_back((source, state));
                }
                Route::Large => pool.queue.large.push(Some(job)),
                Route::Spread => {
                    let result = self.hash_spread(&job, &source);
                    finish_opened(run, job, &source, result);
                }
                Route::Separately => hash_separately(run, job),
                Route::Requeue => pool.queue.batches.push_front(vec![job]),
            }
        }
        self.read_open();
    }

    fn open_mode(&self) -> CacheMode {
        // (Rechecked every `STREAK_CHECK` files.)
        let expects_cold = self.cold >= STREAK_MIN && !self.cold.is_multiple_of(STREAK_CHECK);
        if expects_cold { self.pool.plan.open_mode() } else { CacheMode::Buffered }
    }

    /// Decides how a file is read.
    fn route(&mut self, job: &ActiveJob<T>, source: &Source, may_requeue: bool) -> Route {
        let WorkerPool { plan, queue, large, is_limited, met_cold, run, .. } = self.pool;
        let len = source.len().unwrap_or(0);
        let is_cold = plan.wants_ring(source);
        if is_cold {
            met_cold.store(true, Ordering::Relaxed);
            (self.cold, self.warm) = (self.cold.wrapping_add(1), 0);
        } else {
            (self.cold, self.warm) = (0, self.warm.saturating_add(1));
        }
        let is_large = len > SMALL_BYTES_MAX;
        // Several threads can share a file only if its blocks may be hashed in any order.
        let is_shared = is_cold && run.algorithms_of(job.job()).is_blake3();
        let others_idle = len >= SPREAD_BYTES_MIN && queue.is_hungry();
        let is_spread = others_idle || len >= SPREAD_ALWAYS_BYTES;
        match () {
            // A batch of many such files would occupy this thread for long, and stall the others in
            // the reorder buffer.
            () if is_large && may_requeue && (!is_shared || source.has_holes()) => Route::Requeue,
            () if len >= run.options.separate_bytes_min => Route::Separately,
            // Holes are left out if a file is read on its own.
            () if source.has_holes() && !is_limited => Route::Spread,
            () if source.has_holes() => Route::Separately,
            () if !is_cold && is_spread && large.most() > 1 && !is_limited => Route::Spread,
            () if !is_cold => Route::Cached,
            () if is_large && !is_shared => Route::Separately,
            () if is_large && large.most() > 0 => Route::Large,
            () => Route::Ring,
        }
    }

    /// Reads the open files, all those for the ring in flight together.
    fn read_open(&mut self) {
        let Worker { pool, ring, cached, for_ring, for_cached, short, .. } = self;
        if pool.plan.is_rotational() {
            // In the order of their position on the device.
            for_ring.make_contiguous().sort_by_cached_key(|(source, _)| source.physical_offset());
        }
        for (reader, files) in [(ring, for_ring), (cached, for_cached)] {
            if files.is_empty() {
                continue;
            }
            let files = Mutex::new(std::mem::take(files));
            let mut queue = pool.plan.queue(reader.kind, || {
                let (source, state) = lock(&files).pop_front()?;
                Some((source, None, state))
            });
            if !reader.read(pool, &queue, short) {
                let mut left = Vec::new();
                queue.take_unfinished(|state, _| left.extend(state.take_job()));
                drop(queue);
                let unread = files.into_inner().unwrap_or_else(PoisonError::into_inner);
                left.extend(unread.into_iter().filter_map(|(_, state)| state.take_job()));
                // Each on its own: it may need less memory, and otherwise reports the error.
                left.into_iter().for_each(|job| hash_separately(pool.run, job));
            }
        }
        short.hash(pool.run);
    }

    /// Reads large files together with other threads until there are none left for now. Returns
    /// false if no ring is available.
    pub(super) fn read_large(&mut self, files: &FileQueue<'_, FileState<'p, T>>) -> bool {
        let is_read = self.ring.read(self.pool, files, &mut self.short);
        self.short.hash(self.pool.run);
        is_read
    }

    /// Hashes a small file that is expected to be in the page cache, or buffers it to be hashed
    /// with others. Returns the job if the file is not cached, is too long, or there is no buffer.
    fn hash_at_once(&mut self, job: ActiveJob<T>, source: &Source) -> Option<ActiveJob<T>> {
        let WorkerPool { run, plan, .. } = *self.pool;
        let Some(len) = source.len().filter(|len| *len <= SMALL_BYTES_MAX) else {
            return Some(job);
        };
        if !self.short.has_buffer() {
            return Some(job);
        }
        let is_short = self.short.accepts(run, job.job(), len);
        let buffer = self.short.room(run, len as usize);
        match plan.read_cached(source, buffer) {
            Ok(false) => return Some(job),
            Ok(true) => {
                (run.options.progress)(Progress::Bytes(len));
                if is_short {
                    let buffered = self.short.buffered(len as usize);
                    self.short.push(job, source, buffered);
                } else {
                    let algorithms = run.algorithms_of(job.job());
                    let digests = digest_whole(&run.options.hash.mode, algorithms, buffer);
                    finish_opened(run, job, source, Ok(Hashed::of_file(digests, source)));
                }
            }
            Err(error) if error.is_refusal() => hash_separately(run, job),
            Err(error) => finish_opened(run, job, source, Err(error.into())),
        }
        None
    }

    /// Hashes a file on all cores.
    fn hash_spread(&self, job: &ActiveJob<T>, source: &Source) -> Result<Hashed, Failure> {
        let WorkerPool { run, plan, .. } = *self.pool;
        let options = run.options_of(job.job());
        let part_of = RunOptions { part_of: Some(plan), skip_holes: true, ..RunOptions::default() };
        let plan = crate::hash::plan(source, &options, &part_of)?;
        let progress = |bytes| (run.options.progress)(Progress::Bytes(bytes));
        let digests = digest_planned(&plan, source, &options, None, &progress)?;
        Ok(Hashed::of_file(digests, source))
    }
}

impl<'w> WorkerReader<'w> {
    /// Reads the files available now. Returns false if the reader is not available.
    fn read<'p, 'r: 'p, T: Send>(
        &mut self,
        pool: &WorkerPool<'p, 'r, T>,
        files: &FileQueue<'_, FileState<'p, T>>,
        short: &mut ShortFiles<T>,
    ) -> bool {
        let Ok(reader) = &mut self.reader else { return false };
        let run = pool.run;
        let short = RefCell::new(short);
        let block = |state: &FileState<'p, T>, block: Block<'_>| {
            if run.is_stopped() {
                return Err(STOPPED.into());
            }
            state.update(run, *short.borrow_mut(), &block)?;
            (run.options.progress)(Progress::Bytes(block.bytes.len() as u64));
            Ok(())
        };
        let done = |state: &FileState<'p, T>, source: &Source, result: Result<(), ErrorKind>| {
            let Some(job) = state.take_job() else { return };
            if result.is_ok()
                && let Some(buffered) = state.buffered()
            {
                return short.borrow_mut().push(job, source, buffered);
            }
            let result = match result {
                Ok(()) => state.finish().map(|digests| Hashed::of_file(digests, source)),
                // It needs a plan of its own, unlike the other files of its device.
                Err(error) if error.is_refusal() => (run.options.hash_one)(job.job()),
                Err(error) => Err(error.into()),
            };
            finish_opened(run, job, source, result);
        };
        match reader.read(files, block, done) {
            Ok(()) => true,
            Err(error) => {
                self.reader = Err(error);
                false
            }
        }
    }

    fn release(&mut self) {
        if let Ok(reader) = &mut self.reader {
            reader.release();
        }
    }
}
