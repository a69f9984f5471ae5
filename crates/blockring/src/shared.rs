//! Many files of one device: the facts of the device are gathered once, and what is not in the page cache
//! is read through rings that the files share.
//!
//! A ring is filled with parts of as many files as it takes to keep the device busy, and a file is
//! looked after until its last part was consumed. Which files, in which order and on which threads is
//! the caller's business.
#![allow(unsafe_code)]

mod feed;

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

pub use feed::{Feed, Member};
use feed::{InRing, lock};

use crate::choose::{self, Choice, RingPlan, System};
use crate::config::{CacheMode, Config, EngineKind, IoPriority, Order, SLOT_ALIGN_BYTES};
use crate::error::{BoxError, Error, ErrorKind};
use crate::extents::Extent;
use crate::facts::{self, Facts, Storage};
use crate::plan::Plan;
use crate::profile::{self, Cost};
use crate::pump::{Deliver, Finished, Job, Target, Work};
use crate::rate::RateLimit;
use crate::sequential::{Sequential, is_refusal};
use crate::source::Source;
use crate::stats::{Recording, Stats};
use crate::sys::{self, priority};
use crate::workers::{Block, Reader};
use crate::{engine, medium, unreadable};

/// Blocks of a [small](Shared::small_bytes_max) reader, in bytes, and how many: the parts of a file lie
/// side by side on the device, and requests that do are joined by the kernel when they come in one
/// batch, so that short blocks cost little, and 2 MiB are one huge page.
const SMALL_BLOCK_BYTES: u32 = 32 << 10;
const SMALL_SLAB_BYTES: u32 = 2 << 20;

/// How the files of one device are read.
#[derive(Debug)]
pub struct Shared {
    /// Most bytes of the blocks of a small reader.
    small_slab_bytes: u32,
    ring: RingPlan,
    /// What direct reads must be a multiple of, in bytes; 1 for others.
    sector_bytes: u32,
    /// Whether the engine or the cache mode was named: then everything goes that way.
    is_asked: bool,
    /// Whether blocks, depth or slots were.
    shape_asked: bool,
    engine_asked: bool,
    storage: Storage,
    /// Files of one device number may lie on different file systems (overlayfs with `xino=on`).
    is_layered: bool,
    turns: bool,
    /// `RWF_*` of reads by threads of files that may not be in the page cache.
    here_flags: i32,
    medium: bool,
    choices: Vec<Choice>,
    rate_limit: Option<RateLimit>,
    io_priority: Option<IoPriority>,
    recording: Recording,
}

impl Shared {
    /// Gathers the facts of the device that `samples` are on, and chooses. The samples are regular files
    /// with content, far from each other where possible: whether the device turns, a dozen show, of which two are
    /// read as a rule.
    ///
    /// # Errors
    ///
    /// As for [`Plan::choose`](crate::Plan::choose); [`ErrorKind::Config`] for what only a single file
    /// can have.
    ///
    /// # Panics
    ///
    /// Without any sample.
    pub fn choose(samples: &[Source], config: &Config) -> Result<Shared, Error> {
        let name = samples[0].path();
        Shared::of(samples, config).map_err(|kind| Error::new(name, kind))
    }

    fn of(samples: &[Source], config: &Config) -> Result<Shared, ErrorKind> {
        config.validate()?;
        let facts = Facts::of_many(samples, config).expect("there is a sample");
        let system = System {
            io_uring: &engine::io_uring::usable,
            libaio: &engine::libaio::usable,
            // What was measured for one long file says nothing of many short ones.
            tuning: &|| None,
            profile: &profile::BUILT_IN,
            cores: thread::available_parallelism().map_or(1, |n| n.get() as u32),
        };
        let (mut ring, mut choices) = choose::decide(&facts, config, Order::AnyOrder, &system)?;
        let sector_bytes = ring.align;
        if ring.cache == CacheMode::Direct {
            // To the end of the file system's block: files that follow each other on the device are then
            // one read of it. 130,000 small files in 26,000 reads instead of 145,000, and in 1.4 s
            // instead of 2.3.
            ring.align = ring.align.max(facts::block_bytes(&samples[0]).min(SLOT_ALIGN_BYTES));
        }
        for choice in &mut choices {
            if choice.what == "source" {
                choice.value = "many files".to_owned();
                choice.why = choice.why.replace("0 % in the page cache; ", "");
            }
        }
        let is_asked = config.engine_asked().is_some() || config.cache_asked().is_some();
        let uncached = !is_asked && facts.storage == Storage::Local;
        Ok(Shared {
            small_slab_bytes: SMALL_SLAB_BYTES,
            is_asked,
            shape_asked: config.block_bytes.or(config.depth).or(config.slots).is_some(),
            engine_asked: config.engine_asked().is_some(),
            storage: facts.storage,
            is_layered: facts.file_system == "overlayfs",
            turns: facts.is_rotational(),
            here_flags: match uncached && facts::dontcache(samples[0].file()).is_ok() {
                true => sys::RWF_DONTCACHE,
                false => 0,
            },
            medium: config.medium,
            sector_bytes,
            ring,
            choices,
            rate_limit: config.rate_limit.clone(),
            io_priority: config.io_priority,
            recording: Recording::new(config),
        })
    }

    /// Has small readers take no more than so many bytes each, and not the 2 MiB that are best. A run of many
    /// has readers of both kinds, whose memory its caller shares out: `memory_bytes` is what readers of large
    /// files have in all.
    pub fn bound_small(&mut self, bytes: u64) {
        self.small_slab_bytes = bytes.min(SMALL_SLAB_BYTES.into()) as u32;
    }

    /// Each choice with its reason, in a fixed order.
    pub fn choices(&self) -> &[Choice] {
        &self.choices
    }

    /// Whether the device turns, so that one file should be read after another, in the order in which
    /// they lie on it.
    pub fn turns(&self) -> bool {
        self.turns
    }

    /// Whether files may be opened with `O_DIRECT` from the start, where they are not expected to be in the
    /// page cache: that saves two system calls for each, a look at the page cache and a change of flags.
    pub fn opens_directly(&self) -> bool {
        self.ring.cache == CacheMode::Direct
    }

    /// What was taken down until now, for a [`Config`] with `stats`.
    pub fn stats(&self) -> Option<Stats> {
        self.recording.stats()
    }

    /// Adds what a plan of its own took, for a file that was read while this was [timed](Shared::timed).
    pub fn add_stats_of(&self, plan: &Plan<'_>) {
        if let Some(stats) = plan.stats() {
            self.recording.add(&stats);
        }
    }

    /// Takes down how long `run` takes, for the statistics.
    pub fn timed<R>(&self, name: &Path, run: impl FnOnce() -> R) -> R {
        self.recording.time(name, run)
    }

    /// The longest file that a small reader should read, in bytes.
    pub fn small_bytes_max(&self) -> u64 {
        profile::BUILT_IN.block_bytes.into()
    }

    /// Whether a source should be read through a ring. Otherwise [`read_here`](Shared::read_here) takes
    /// less: it is in the page cache, or in memory, or so small that a thread may as well wait for it.
    pub fn wants_ring(&self, source: &Source) -> bool {
        let Some(len) = source.len() else { return false };
        if self.is_asked || source.is_direct() {
            return true;
        }
        let is_small = len <= self.small_bytes_max();
        let is_direct = self.ring.cache == CacheMode::Direct;
        if self.storage == Storage::Memory || (is_small && !is_direct) {
            return false;
        }
        let resident = match is_small {
            true => facts::resident_if_told(source.file(), len),
            false => facts::resident(source.file(), len),
        };
        let Cost { cached, direct, fill } = profile::BUILT_IN.cost;
        match resident {
            Some(part) => part * cached + (1.0 - part) * fill >= direct,
            None => !is_small,
        }
    }

    /// Reads a small source, if all of it is in the page cache: one system call, where to ask first would take
    /// another. For a source that is expected to be there: of one that is not, the kernel starts to read
    /// ahead, in vain. False: it is not there, or it takes more than this to read it here.
    ///
    /// # Errors
    ///
    /// A change of the source while it was read.
    pub fn read_cached(&self, source: &Source, buffer: &mut [u8]) -> Result<bool, ErrorKind> {
        let is_plain = !self.is_asked && self.rate_limit.is_none() && !self.recording.is_on();
        if !is_plain || source.is_direct() || source.len() != Some(buffer.len() as u64) {
            return Ok(false);
        }
        match sys::pread_into(source.as_fd(), buffer, 0, libc::RWF_NOWAIT) {
            Ok(n) if n == buffer.len() => source.unchanged().map(|()| true),
            _ => Ok(false),
        }
    }

    /// Reads a whole source on this thread, in blocks of the length of `buffer`, one after another.
    ///
    /// # Errors
    ///
    /// The first failed read, a change of the source while it was read, or what `consume` returned.
    pub fn read_here(
        &self,
        source: &Source,
        buffer: &mut [u8],
        mut consume: impl FnMut(Block<'_>) -> Result<(), BoxError>,
    ) -> Result<(), ErrorKind> {
        let len = source.len().unwrap_or(0);
        let flags = if len <= self.small_bytes_max() { self.here_flags } else { 0 };
        let here = Sequential { source, flags, rate_limit: self.rate_limit.as_ref() };
        let mut recorder = self.recording.recorder("reads", 1);
        let read = here.read(0..len, buffer, &mut recorder, &mut consume);
        let target = Target { flags, ..Target::plain(source) };
        let read = read.map_err(|error| unreadable::narrow(&target, error));
        read.and_then(|()| source.unchanged())
    }

    /// What reads of `source` are of. Makes them direct ones where they should be, and can be.
    fn target(&self, source: &Source) -> Result<(i32, u32), ErrorKind> {
        if self.medium {
            let (name, storage) = facts::file_system(source.file());
            medium::check(source, storage, name).map_err(ErrorKind::Medium)?;
        }
        if self.is_layered
            && self.ring.engine == EngineKind::IoUring
            && !sys::lies_on_a_device(source.file())
        {
            let why = "this file is on another layer than the first".to_owned();
            return Err(ErrorKind::Engine { engine: EngineKind::IoUring, why });
        }
        match self.ring.cache {
            CacheMode::Direct => match source.set_direct() {
                Ok(()) => Ok((0, self.ring.align)),
                Err(_) if !self.is_asked => Ok((0, 1)),
                Err(error) => {
                    let why = format!("direct I/O refused for this file: {error}");
                    Err(ErrorKind::Cache { cache: CacheMode::Direct, why })
                }
            },
            _ => Ok((self.ring.flags(), 1)),
        }
    }

    /// Memory of a reader, in bytes, when it has something to read.
    pub fn reader_bytes(&self, small: bool) -> u64 {
        let ring = self.ring_for(small);
        u64::from(ring.slots) * u64::from(ring.block_bytes)
    }

    /// The ring of a reader of small files, or of any.
    fn ring_for(&self, small: bool) -> RingPlan {
        let mut ring = self.ring.clone();
        if !small || self.shape_asked {
            return ring;
        }
        if ring.engine == EngineKind::IoUring || self.engine_asked {
            ring.block_bytes = ring.block_bytes.min(SMALL_BLOCK_BYTES);
            ring.slots = (self.small_slab_bytes / ring.block_bytes).max(1);
            if !ring.engine.is_synchronous() {
                ring.depth = ring.slots;
            }
        } else {
            // Nothing that threads could not do by themselves.
            (ring.engine, ring.slots, ring.depth) = (EngineKind::Pread, 1, 1);
        }
        ring
    }
}

/// One thread's ring. It stays on the thread that made it, as io_uring wants it, and is set up when there
/// is something to read.
pub struct SharedReader<'s> {
    shared: &'s Shared,
    ring: RingPlan,
    reader: Option<Reader>,
    /// Taken back when the reader goes.
    _priority: Option<priority::Changed>,
}

impl Shared {
    /// A reader for this thread: of files up to [`small_bytes_max`](Shared::small_bytes_max), with little
    /// memory (2 MiB), or of any.
    ///
    /// # Errors
    ///
    /// The I/O priority that was asked for cannot be had.
    pub fn reader(&self, small: bool) -> Result<SharedReader<'_>, ErrorKind> {
        let changed = self.io_priority.map(priority::Changed::to).transpose();
        let _priority = changed.map_err(|error| {
            let what = "setting the I/O priority".to_owned();
            ErrorKind::Resource { what, error }
        })?;
        Ok(SharedReader { shared: self, ring: self.ring_for(small), reader: None, _priority })
    }

    /// A feed for readers of the one or the other kind.
    pub fn feed<'s, T: Send + Sync>(
        &'s self,
        small: bool,
        next: impl Fn() -> Option<Member<T>> + Send + Sync + 's,
    ) -> Feed<'s, T> {
        Feed::new(self, self.ring_for(small).block_bytes, next)
    }
}

impl SharedReader<'_> {
    /// Bytes of each block but the last of a file.
    pub fn block_bytes(&self) -> u64 {
        self.ring.block_bytes.into()
    }

    /// Reads the files of `feed` until it gives no more for now, and gives each block to `block`, in any
    /// order; other readers may do the same with other blocks of the same file. `done` is told of each
    /// file once: when all of its blocks were consumed and it is still what it was, or that it failed. Of a file of
    /// one block that is right after that block, before the next of any file.
    ///
    /// # Errors
    ///
    /// What concerns no single file: the engine or memory cannot be had, or fails. Files that had a part
    /// in this reader have failed then; what else `feed` has begun is for other readers, or for
    /// [`abandon`](Feed::abandon).
    ///
    /// # Panics
    ///
    /// When `feed` was made for readers with larger blocks than this one's: those of the other kind, or of
    /// another [`Shared`]. And when `block` or `done` does.
    pub fn read<T: Send + Sync>(
        &mut self,
        feed: &Feed<'_, T>,
        block: impl FnMut(&T, Block<'_>) -> Result<(), BoxError>,
        done: impl FnMut(&T, &Source, Result<(), ErrorKind>),
    ) -> Result<(), ErrorKind> {
        let (blocks, slots) = (feed.block_bytes(), self.ring.block_bytes);
        assert!(blocks <= slots, "a feed of blocks of {blocks} bytes for a reader of {slots}");
        let job = Job {
            work: Work::Many(feed),
            rate_limit: self.shared.rate_limit.as_ref(),
            recording: &self.shared.recording,
        };
        feed.state().is_dry = false;
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.set_up(&job)?,
        };
        let mut to = ToFiles { feed, block, done };
        let read = reader.pump(&job, &self.ring, Order::AnyOrder, || &mut to);
        to.tell_refused();
        match read {
            Ok(()) => self.reader = Some(reader),
            Err(error) => {
                // The reader is not used again: something may have been in flight.
                for extent in reader.left_over() {
                    let what = format!("the ring failed while it was read: {error}");
                    let lost = ErrorKind::read(extent.offset, 0, io::Error::other(what));
                    let _ = (&mut to).failed(extent, lost);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives its memory back until there is something to read.
    pub fn rest(&mut self) {
        self.reader = None;
    }

    fn set_up(&mut self, job: &Job<'_>) -> Result<Reader, ErrorKind> {
        // Where something of io_uring's is needed, no other engine will do.
        let may_fall_back = !self.shared.engine_asked && !self.ring.uring.is_set();
        choose::with_fallback(
            &mut self.ring,
            || may_fall_back,
            |ring| Reader::new(job, ring, ring.slots, false),
        )
    }
}

/// Gives blocks to where they belong.
struct ToFiles<'a, 's, T, B, D> {
    feed: &'a Feed<'s, T>,
    block: B,
    done: D,
}

impl<T, B, D> ToFiles<'_, '_, T, B, D>
where
    D: FnMut(&T, &Source, Result<(), ErrorKind>),
{
    fn finish_part(&mut self, index: u64, file: &InRing<T>, bytes: u64) {
        if self.feed.finish_part(index, file, bytes) {
            let failed = lock(&file.failed).take();
            let result = match failed {
                // What it is now says better what happened than a read that met its end.
                Some(error @ ErrorKind::Changed(_)) => {
                    file.member.source.unchanged().and(Err(error))
                }
                // (What else is in this ring waits meanwhile.)
                Some(error) => Err(unreadable::narrow(&self.feed.smallest(file), error)),
                None => file.member.source.unchanged(),
            };
            (self.done)(&file.member.state, &file.member.source, result);
        }
        self.tell_refused();
    }

    fn fail(&mut self, extent: Extent, file: &InRing<T>, error: ErrorKind) {
        lock(&file.failed).get_or_insert(error);
        let left_out = self.feed.give_up(extent.index);
        self.finish_part(extent.index, file, u64::from(extent.len) + left_out);
    }

    fn tell_refused(&mut self) {
        let refused = std::mem::take(&mut *lock(&self.feed.refused));
        for (member, why) in refused {
            (self.done)(&member.state, &member.source, Err(why));
        }
    }
}

impl<T, B, D> Deliver for &mut ToFiles<'_, '_, T, B, D>
where
    B: FnMut(&T, Block<'_>) -> Result<(), BoxError>,
    D: FnMut(&T, &Source, Result<(), ErrorKind>),
{
    fn deliver(&mut self, finished: Finished) -> Result<bool, ErrorKind> {
        let Finished { extent, .. } = finished;
        let Some(file) = self.feed.file(extent.index) else { return Ok(true) };
        // SAFETY: the pump lends it to us until we return.
        let block = unsafe { finished.block() };
        match (self.block)(&file.member.state, block) {
            Ok(()) => self.finish_part(extent.index, &file, extent.len.into()),
            Err(error) => self.fail(extent, &file, ErrorKind::Consumer(error)),
        }
        Ok(true)
    }

    fn failed(&mut self, extent: Extent, error: ErrorKind) -> Result<(), ErrorKind> {
        if let Some(file) = self.feed.file(extent.index) {
            self.fail(extent, &file, error);
        }
        Ok(())
    }
}

impl ErrorKind {
    /// Whether a file cannot be read in the way that others of its device are, but may be in another: a
    /// plan of its own would tell.
    pub fn is_refusal(&self) -> bool {
        match self {
            ErrorKind::Read { error, .. } => is_refusal(error),
            ErrorKind::Engine { .. } => true,
            _ => false,
        }
    }
}
