//! The files of one device, and the threads that work on them.
//!
//! A thread takes a batch, opens its files, hashes what is in the page cache at once, and reads the
//! others through a ring of its own, all of them in flight together. Large files go to other threads,
//! which share them block by block: so one huge file neither waits for nor holds up the rest. On a
//! device that turns there is one thread, which does all of it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Scope};

use blockring::{Block, ErrorKind, Feed, Member, Shared, SharedReader, Source};

use super::budget::Share;
use super::known;
use super::queue::Queue;
use super::reading::Reading;
use super::sequence::Run;
use super::short::ShortFiles;
use super::ticket::{Ticket, finish_opened, hash_alone, open};
use super::{Failure, Hashed, OTHER_DESCRIPTORS, Step, When, found_in, lock};
use crate::sums::Running;
use crate::{Algorithms, sums};

/// Threads that read large files, if there are as many processors. Each has 8 MiB in flight, and one keeps
/// a device busy as long as it hashes faster than that delivers.
const LARGE_THREADS_MAX: u32 = 4;

/// What is in the page cache is spread over all processors from this many bytes on: to plan for it and to
/// start threads takes 0.4 ms, in which one core hashes 2 MiB.
const SPREAD_BYTES_MIN: u64 = 64 << 20;

/// And as long as the other processors have enough to do, only from this many: one thread takes 0.2 s for it, about as
/// long as others for as many files as may wait for their turn. (A block on the thread that read it takes 0.16 s of
/// processor time for each GB, several threads take 0.18 to 0.21.)
const SPREAD_ALWAYS_BYTES: u64 = 1 << 30;

/// Threads for small files, per processor, as long as all is in the page cache.
const WARM_THREADS_PER_CORE: u32 = 2;

/// Blocks of what is in the page cache, in bytes: they stay in the core's own cache.
const CACHED_BLOCK_BYTES: usize = 256 << 10;

/// Least buffer of a thread, in bytes.
const BUFFER_BYTES_MIN: u64 = 64 << 10;

/// After so many files in a row that were not in the page cache, or that were, the next are expected to be
/// the same; and how often somebody looks again whether they are.
const COLD_MIN: u32 = 8;
const COLD_LOOK: u32 = 32;

/// A file of so many bytes is worth all threads that read large files.
const HUGE_BYTES_MIN: u64 = 32 << 20;

/// Most files that are sorted by their physical place on a device that turns.
const TURNING_BATCH: usize = 512;

/// Why a file is not read to its end when the run was stopped. Nobody is told.
const NOT_WANTED: &str = "nobody wants it any more";

pub(super) type Batch<T> = Vec<Ticket<T>>;

/// What is to be done on one device.
pub(super) struct Lane<T> {
    pub(super) share: Share,
    pub(super) batches: Queue<Batch<T>>,
    large: Queue<Large<T>>,
}

/// What there is to do for threads that read large files.
enum Large<T> {
    /// A file.
    File(Ticket<T>),
    /// A part of a file that another has begun.
    Help,
}

impl<T> Lane<T> {
    pub(super) fn new(share: Share) -> Lane<T> {
        Lane { share, batches: Queue::default(), large: Queue::default() }
    }

    pub(super) fn push(&self, batch: Batch<T>) {
        self.batches.push(batch);
    }

    pub(super) fn close(&self) {
        self.batches.close();
    }

    /// Whether its threads will soon have nothing to do.
    pub(super) fn is_hungry(&self) -> bool {
        self.batches.len() < 4
    }
}

/// Hashes the files of a lane one after another, each by itself.
pub(super) fn work_alone<T: Send>(run: &Run<'_, T>, lane: &Lane<T>) {
    while let Some(batch) = lane.batches.pop(&mut || ()) {
        if run.is_stopped() {
            return;
        }
        batch.into_iter().for_each(|ticket| hash_alone(run, ticket));
    }
}

/// Works on a lane until there is nothing more to do.
pub(super) fn work<T: Send>(run: &Run<'_, T>, lane: &Lane<T>) {
    // Until there is a file with content, there is nothing to choose by.
    let Some((batch, samples)) = known::first_to_read(run, lane) else { return };
    match Shared::choose(&samples, &lane.share.config) {
        Ok(mut shared) => {
            drop(samples);
            if let Some(bytes) = lane.share.small {
                shared.bound_small(bytes / 2);
            }
            (run.options.device)(&shared, When::Before);
            Crew::work(run, lane, &shared, batch);
            (run.options.device)(&shared, When::After);
        }
        // What was asked for cannot be had for these; each file says so, or is an exception.
        Err(_) => {
            drop(samples);
            batch.into_iter().for_each(|ticket| hash_alone(run, ticket));
            work_alone(run, lane);
        }
    }
}

/// Hashes a file of length 0: it is empty, or one of those of `/proc`, whose end only reading finds.
pub(super) fn hash_empty<T: Send>(
    run: &Run<'_, T>,
    ticket: &Ticket<T>,
    source: &Source,
) -> Result<Hashed, Failure> {
    let options = run.options.hash;
    if let (Ok(0), Some(_)) = (rustix::io::pread(source.as_fd(), &mut [0], 0), &ticket.task().file)
    {
        source.check_unchanged().map_err(crate::Error::from)?;
        let found = found_in(&options.mode, run.algorithms_of(ticket.task()), b"");
        return Ok(Hashed::read(found, source));
    }
    // As any other that is read to its end.
    (run.options.alone)(ticket.task()).map(|hashed| match hashed.stamp {
        Some(stamp) if stamp.len == 0 => hashed.without_stamp(),
        _ => hashed,
    })
}

/// The threads of a lane, and what they share.
struct Crew<'c, 'r, T> {
    run: &'c Run<'r, T>,
    lane: &'c Lane<T>,
    shared: &'c Shared,
    /// Large files.
    feed: Feed<'c, Reading<'c, T>>,
    small: Threads,
    large: Threads,
    /// Something was not in the page cache: threads wait for the device, and more of them help.
    met_cold: AtomicBool,
    /// Threads for small files until then.
    warm_most: u32,
    /// Most files that one thread has open.
    open_max: usize,
    /// Bytes of the buffer of a thread for small files.
    buffer_bytes: usize,
    /// No more memory is to be taken than the lane has.
    is_bounded: bool,
}

/// Whether there are so few that one thread does everything: others would keep from it what it waits for.
pub(super) fn descriptors_are_few() -> bool {
    descriptors() < DESCRIPTORS_MIN
}

/// Descriptors for files and rings: a quarter of what the process may have. Half is the walk's.
pub(super) fn descriptors() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.unwrap_or(u64::MAX).saturating_sub(OTHER_DESCRIPTORS) / 4
}

/// With fewer, one thread does everything. (16 threads with 16 descriptors, each with a ring, waited for a file in vain
/// in one of four runs.)
const DESCRIPTORS_MIN: u64 = 6;

/// Most files that each of so many threads has open at once.
fn open_max(jobs: u32) -> usize {
    (descriptors() / u64::from(jobs.max(1))).clamp(1, TURNING_BATCH as u64) as usize
}

/// How many threads there are, and may be.
struct Threads {
    most: u32,
    started: AtomicU32,
    working: AtomicU32,
}

impl Threads {
    fn up_to(most: u32) -> Threads {
        Threads { most, started: AtomicU32::new(0), working: AtomicU32::new(0) }
    }

    /// Takes down that another starts, if it may.
    fn start(&self) -> bool {
        let more = |n: u32| (n < self.most).then_some(n + 1);
        let may = self.started.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if may {
            self.working.fetch_add(1, Ordering::AcqRel);
        }
        may
    }

    /// One has ended. Returns whether it was the last.
    fn end(&self) -> bool {
        self.working.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl<'c, 'r: 'c, T: Send> Crew<'c, 'r, T> {
    fn work(run: &'c Run<'r, T>, lane: &'c Lane<T>, shared: &'c Shared, first: Batch<T>) {
        let cores = thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let most = run.options.hash.config.threads_max.unwrap_or(u32::MAX).max(1);
        // Each has a ring, and a file at least.
        let jobs = (lane.share.jobs as u64).min(descriptors() / 2).max(1) as u32;
        // One stream, where a disk turns and nobody said otherwise.
        let one = most == 1
            || jobs == 1
            || descriptors_are_few()
            || (shared.turns() && run.options.jobs.is_none());
        let room =
            |small| (lane.share.large_bytes / shared.reader_bytes(small).max(1)).max(1) as u32;
        let large = if one { 0 } else { cores.min(LARGE_THREADS_MAX).min(most).min(room(false)) };
        let small_bytes_max = shared.small_bytes_max();
        let next = move || Crew::next_large(run, lane, large);
        let mut crew = Crew {
            run,
            lane,
            shared,
            feed: shared.feed(false, next),
            small: Threads::up_to(if one { 1 } else { jobs.min(most).min(room(true)) }),
            large: Threads::up_to(large),
            met_cold: AtomicBool::new(false),
            warm_most: WARM_THREADS_PER_CORE * cores,
            open_max: open_max(jobs),
            buffer_bytes: lane.share.small.map_or(small_bytes_max, |bytes| {
                (bytes / 2).clamp(BUFFER_BYTES_MIN, small_bytes_max)
            }) as usize,
            is_bounded: lane.share.small.is_some(),
        };
        shared.timed("a device".as_ref(), || {
            thread::scope(|scope| {
                crew.small.start();
                crew.work_small(scope, Some(first));
            });
        });
        // Nothing is left here but after threads without a ring.
        let mut left = Vec::new();
        crew.feed.abandon(|reading, _| left.extend(lock(&reading.ticket).take()));
        while let Some(item) = lane.large.try_pop() {
            if let Large::File(ticket) = item {
                left.push(ticket);
            }
        }
        left.into_iter().for_each(|ticket| hash_alone(run, ticket));
    }

    /// Starts another thread, if there is more to do than there are threads.
    fn grow<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        let spawn = |threads: &Threads, work: Box<dyn FnOnce() + Send + 's>| {
            if threads.start() && thread::Builder::new().spawn_scoped(scope, work).is_err() {
                // Those that there are do it all.
                threads.end();
            }
        };
        let most = match self.met_cold.load(Ordering::Relaxed) || self.run.options.jobs.is_some() {
            true => self.small.most,
            false => self.warm_most,
        };
        if self.lane.batches.is_behind() && self.small.started.load(Ordering::Relaxed) < most {
            spawn(&self.small, Box::new(|| self.work_small(scope, None)));
        }
        if self.lane.large.is_behind() {
            spawn(&self.large, Box::new(|| self.work_large()));
        }
    }

    fn work_small<'s>(&'s self, scope: &'s Scope<'s, '_>, first: Option<Batch<T>>) {
        let mut worker = Worker::new(self, self.large.most > 0);
        let mut next = first.or_else(|| self.lane.batches.pop(&mut || ()));
        while let Some(mut batch) = next {
            if self.run.is_stopped() {
                break;
            }
            self.grow(scope);
            if self.shared.turns() {
                while batch.len() < TURNING_BATCH
                    && let Some(more) = self.lane.batches.try_pop()
                {
                    batch.extend(more);
                }
            }
            worker.work(batch);
            self.grow(scope);
            next = self.lane.batches.pop(&mut || worker.rest());
        }
        if self.small.end() {
            self.lane.large.close();
        }
    }

    fn work_large(&self) {
        let mut worker = Worker::new(self, false);
        while self.lane.large.wait(&mut || worker.rest()) {
            if self.run.is_stopped() {
                break;
            }
            if !worker.read(&self.feed) {
                // Others may have a ring; and each file tells why there is none.
                while let Some(item) = self.lane.large.try_pop() {
                    if let Large::File(ticket) = item {
                        hash_alone(self.run, ticket);
                    }
                }
            }
        }
        self.large.end();
    }

    /// The next large file, opened. Where it is huge, all `threads` are called for.
    fn next_large(
        run: &Run<'r, T>,
        lane: &Lane<T>,
        threads: u32,
    ) -> Option<Member<Reading<'c, T>>> {
        while !run.is_stopped()
            && let Some(item) = lane.large.try_pop()
        {
            let Large::File(ticket) = item else { continue };
            let Some((ticket, source)) = open(run, ticket, false) else { continue };
            let Some(len) = source.len() else {
                let result = hash_empty(run, &ticket, &source);
                finish_opened(run, ticket, &source, result);
                continue;
            };
            if len >= HUGE_BYTES_MIN {
                (1..threads).for_each(|_| lane.large.push(Large::Help));
            }
            let state = Reading::new(run, ticket, &source);
            return Some(Member { source, state });
        }
        None
    }
}

/// One thread of a crew.
struct Worker<'w, 'c, 'r, T> {
    crew: &'w Crew<'c, 'r, T>,
    reader: Result<SharedReader<'w>, ErrorKind>,
    /// What is read without a ring, and what is hashed together.
    short: ShortFiles<T>,
    /// Files in a row that were not in the page cache, or that were.
    cold: u32,
    warm: u32,
}

impl<'w, 'c: 'w, 'r: 'c, T: Send> Worker<'w, 'c, 'r, T> {
    fn new(crew: &'w Crew<'c, 'r, T>, small: bool) -> Self {
        let short = ShortFiles::new(&crew.run.options.hash.mode, crew.buffer_bytes);
        Worker { crew, reader: crew.shared.reader(small), short, cold: 0, warm: 0 }
    }

    /// Gives its memory back until there is something to do.
    fn rest(&mut self) {
        self.short.rest();
        if let Ok(reader) = &mut self.reader {
            reader.rest();
        }
    }

    fn work(&mut self, batch: Batch<T>) {
        let crew = self.crew;
        let mut members = VecDeque::new();
        // Where batches are put together before they are read, what went back would come again with the others.
        let goes_back = batch.len() > 1 && crew.small.most > 1 && !crew.shared.turns();
        for ticket in known::without(crew.run, batch) {
            if crew.run.is_stopped() {
                return;
            }
            let direct = self.expects_cold() && crew.shared.opens_directly();
            if members.len() >= crew.open_max {
                self.read_members(&mut members);
            }
            let Some((ticket, source)) = open(crew.run, ticket, direct) else { continue };
            let ticket = match self.warm >= COLD_MIN {
                true => self.hash_cached(ticket, &source),
                false => Some(ticket),
            };
            let Some(ticket) = ticket else { continue };
            let wants_ring = crew.shared.wants_ring(&source);
            if source.len().is_some() {
                if wants_ring {
                    crew.met_cold.store(true, Ordering::Relaxed);
                }
                self.cold = if wants_ring { self.cold.wrapping_add(1) } else { 0 };
                self.warm = if wants_ring { 0 } else { self.warm.saturating_add(1) };
            }
            let is_large = source.len() > Some(crew.shared.small_bytes_max());
            // Threads share a file only where its blocks need no order.
            let shares = wants_ring && crew.run.algorithms_of(ticket.task()).is_blake3();
            if source.len().is_none() {
                let result = hash_empty(crew.run, &ticket, &source);
                finish_opened(crew.run, ticket, &source, result);
            } else if is_large && !shares && goes_back {
                // A batch of many such would keep one thread for long, and all others waiting for its turn.
                crew.lane.batches.push_first(vec![ticket]);
            } else if !wants_ring {
                let result = self.hash_here(&source, crew.run.algorithms_of(ticket.task()));
                finish_opened(crew.run, ticket, &source, result);
            } else if is_large && !shares {
                hash_alone(crew.run, ticket);
            } else if crew.large.most > 0 && is_large {
                crew.lane.large.push(Large::File(ticket));
            } else {
                let state = Reading::new(crew.run, ticket, &source);
                members.push_back(Member { source, state });
            }
        }
        self.read_members(&mut members);
        self.short.hash(crew.run);
    }

    /// Reads what is open, all of it in flight together.
    fn read_members(&mut self, members: &mut VecDeque<Member<Reading<'c, T>>>) {
        let crew = self.crew;
        if members.is_empty() {
            return;
        }
        if crew.shared.turns() {
            // One after another, as they lie there.
            members.make_contiguous().sort_by_cached_key(|member| member.source.physical_place());
        }
        let members = Mutex::new(std::mem::take(members));
        let mut feed = crew.shared.feed(crew.large.most > 0, || lock(&members).pop_front());
        if !self.read(&feed) {
            let mut left = Vec::new();
            feed.abandon(|reading, _| left.extend(lock(&reading.ticket).take()));
            drop(feed);
            let unread = members.into_inner().unwrap_or_else(PoisonError::into_inner);
            left.extend(unread.into_iter().filter_map(|member| lock(&member.state.ticket).take()));
            // Each by itself: it may do with less, and tells what is wrong otherwise.
            left.into_iter().for_each(|ticket| hash_alone(crew.run, ticket));
        }
    }

    /// Whether the next file is hardly in the page cache.
    fn expects_cold(&self) -> bool {
        self.cold >= COLD_MIN && !self.cold.is_multiple_of(COLD_LOOK)
    }

    /// Hashes a small file that is expected to be in the page cache, or puts it with others that are hashed together
    /// later. Gives the ticket back if it is not there.
    fn hash_cached(&mut self, ticket: Ticket<T>, source: &Source) -> Option<Ticket<T>> {
        let Crew { run, shared, .. } = *self.crew;
        let Some(len) = source.len().filter(|len| *len <= shared.small_bytes_max()) else {
            return Some(ticket);
        };
        let is_short = self.short.takes(run, ticket.task(), len);
        let buffer = self.short.room(run, len as usize);
        match shared.read_cached(source, buffer) {
            Ok(false) => return Some(ticket),
            Ok(true) => {
                (run.options.progress)(Step::Bytes(len));
                if is_short {
                    let kept = self.short.kept(len as usize);
                    self.short.push(ticket, source, kept);
                } else {
                    let algorithms = run.algorithms_of(ticket.task());
                    let found = found_in(&run.options.hash.mode, algorithms, buffer);
                    finish_opened(run, ticket, source, Ok(Hashed::read(found, source)));
                }
            }
            Err(error) => finish_opened(run, ticket, source, Err(error.into())),
        }
        None
    }

    /// Hashes what is in the page cache, or is not worth a ring.
    fn hash_here(&mut self, source: &Source, algorithms: &Algorithms) -> Result<Hashed, Failure> {
        let crew = self.crew;
        let options = crew.run.options.hash;
        let len = source.len().unwrap_or(0);
        let others_rest = len >= SPREAD_BYTES_MIN && crew.lane.is_hungry();
        let is_worth_it = others_rest || len >= SPREAD_ALWAYS_BYTES;
        if is_worth_it && crew.large.most > 1 && !crew.is_bounded {
            let plan = sums::plan_sums(source, &options.config, algorithms)?;
            let observe = |bytes| (crew.run.options.progress)(Step::Bytes(bytes));
            let found = sums::sums_planned(&plan, &options.mode, algorithms, &observe)?;
            crew.shared.add_stats_of(&plan);
            return Ok(Hashed::read(found, source));
        }
        let buffer = match len <= crew.buffer_bytes as u64 {
            true => self.short.room(crew.run, len as usize),
            false => self.short.room(crew.run, CACHED_BLOCK_BYTES),
        };
        let mut running = Running::new(&options.mode, algorithms);
        let mut bytes = 0;
        crew.shared.read_here(source, buffer, |block| {
            if crew.run.is_stopped() {
                return Err(NOT_WANTED.into());
            }
            running.update(block.bytes);
            bytes += block.bytes.len() as u64;
            (crew.run.options.progress)(Step::Bytes(block.bytes.len() as u64));
            Ok(())
        })?;
        let hashed = Hashed::read(running.finish(), source);
        Ok(if bytes == len { hashed } else { hashed.without_stamp() })
    }

    /// Reads what `feed` has for now. False: there is no ring to read with.
    fn read(&mut self, feed: &Feed<'_, Reading<'c, T>>) -> bool {
        let (run, mode) = (self.crew.run, &self.crew.run.options.hash.mode);
        let Ok(reader) = &mut self.reader else { return false };
        let short = RefCell::new(&mut self.short);
        let block = |reading: &Reading<'c, T>, block: Block<'_>| {
            if run.is_stopped() {
                return Err(NOT_WANTED.into());
            }
            let is_short = reading.is_all(&block) && reading.is_short(run, &short.borrow());
            match is_short {
                true => reading.keep(short.borrow_mut().keep(run, block.bytes)),
                false => reading.add(mode, &block)?,
            }
            (run.options.progress)(Step::Bytes(block.bytes.len() as u64));
            Ok(())
        };
        let done = |reading: &Reading<'c, T>, source: &Source, result: Result<(), ErrorKind>| {
            let Some(ticket) = lock(&reading.ticket).take() else { return };
            if result.is_ok()
                && let Some(kept) = reading.kept()
            {
                return short.borrow_mut().push(ticket, source, kept);
            }
            let result = match result {
                Ok(()) => reading.found().map(|found| Hashed::read(found, source)),
                // It is not as the others of its device: what it is itself tells.
                Err(error) if error.is_refusal() => (run.options.alone)(ticket.task()),
                Err(error) => Err(error.into()),
            };
            finish_opened(run, ticket, source, result);
        };
        let read = reader.read(feed, block, done);
        self.short.hash(run);
        match read {
            Ok(()) => true,
            Err(error) => {
                self.reader = Err(error);
                false
            }
        }
    }
}
