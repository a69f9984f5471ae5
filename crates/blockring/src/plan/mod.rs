//! How a source, or many files of a device, will be read: facts and configuration in, decisions
//! out, each with its reason.
//!
//! The table of decisions is in `choose.rs`; this file gathers its inputs. `run` executes a plan.

pub(crate) mod choose;
mod engine;
pub(crate) mod profile;
mod shape;
mod stream;
mod tuned;
pub(crate) mod tuning;

use std::fmt;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

use self::choose::{Choice, System, decide};
pub(crate) use self::choose::{ReadAhead, RingPlan, Start, with_fallback};
use self::profile::BLOCK_BYTES;
use self::stream::{StreamFacts, decide_stream};
use self::tuning::Tuning;
use crate::config::{CacheMode, Config, EngineKind, IoPriority, Order, SLOT_ALIGN_BYTES};
use crate::engine::copy_or_map::CopyOrMap;
use crate::engine::{io_uring, libaio};
use crate::error::{Error, ErrorKind};
use crate::observe::stats::{Recording, Stats};
use crate::observe::trace::Trace;
use crate::pipe::enlarge_pipe;
use crate::pipe::tee::Tee;
use crate::rate_limit::RateLimit;
use crate::source::facts::{self, Facts};
use crate::source::file_system::{Storage, file_system_block_bytes};
use crate::source::holes::{whole_blocks, without};
use crate::source::residency::resident_of;
use crate::source::{Source, SourceKind};
use crate::stop::Stop;
use crate::sys;

/// Least amount that a read of a pipe must return for the writer to count as ahead, in bytes: a
/// smaller pipe is almost always full.
const FULL_BYTES_MIN: usize = 64 << 10;

/// Largest file that is read with a single read, in bytes.
const ONE_READ_BYTES_MAX: u64 = BLOCK_BYTES as u64;

/// Largest slab of a reader of small files, in bytes: one huge page.
const SMALL_SLAB_BYTES: u32 = 2 << 20;

/// Shortest hole that is looked for, in bytes: none is shorter than a block.
const HOLE_BYTES_MIN: u64 = 64 << 10;

/// See [`RunOptions::tuning`].
type FindTuning = dyn Fn(u64) -> Option<Result<Tuning, String>> + Send + Sync;

/// Sorted ranges of a file.
type Holes = Vec<Range<u64>>;

/// What a plan is for.
#[derive(Clone, Default)]
pub struct RunOptions<'a> {
    /// The order that the consumer needs. A [`Config`] may require [`Order::InOrder`] in any case.
    pub order: Order,
    /// In order, the number of consumers that should have their own threads, if the number of
    /// workers is not explicit: see [`Plan::broadcast`]. Default: 0, the calling thread consumes.
    pub consumers: u32,
    /// The part of the source to read, in bytes, truncated at its end. Default: from where reading
    /// starts to the end.
    pub range: Option<Range<u64>>,
    /// Returns the setting measured on the device with this number ([`Source::device`]), if there
    /// is one, or the reason why it does not apply, which the plan reports. It replaces the
    /// built-in setting if a single source is read without the page cache, and neither the engine,
    /// the cache mode, the shape of the ring nor options of io_uring are explicit. It is called
    /// only if it matters.
    pub tuning: Option<&'a FindTuning>,
    /// For many files, most memory of each reader of small files, in bytes; default 2 MiB, which is
    /// best. [`Memory::limit_bytes`](crate::Memory::limit_bytes) then applies to readers of large
    /// files.
    pub small_bytes: Option<u64>,
    /// Trace to which every event is written.
    pub trace: Option<&'a Trace>,
    /// The destination of [`Plan::tee`]: the source is read as a stream.
    pub tee: Option<&'a Tee>,
    /// The plan to whose statistics and trace this one adds, instead of its own.
    pub part_of: Option<&'a Plan>,
    /// Do not read the holes of a long file: [`Plan::data_blocks`] leaves them out, the others pass
    /// zeros to their consumers. Default: false. Holes are looked for on ext4, XFS, btrfs and tmpfs,
    /// which report them exactly, unless a range is read, the engine reads one block after another
    /// or nothing, or the page cache is bypassed. A hole that is filled meanwhile is a change of
    /// the file.
    pub skip_holes: bool,
    /// Ranges that [`Plan::data_blocks`] leaves out, sorted, each of whole blocks.
    pub skip: &'a [Range<u64>],
}

/// How a source, or the files of a device, will be read, and why.
#[derive(Debug)]
pub struct Plan {
    pub(crate) ring: RingPlan,
    pub(crate) kind: PlanKind,
    is_rotational: bool,
    order: Order,
    pub(crate) range: Option<Range<u64>>,
    /// Holes that are not read: whole blocks, sorted.
    pub(crate) holes: Vec<Range<u64>>,
    /// See [`RunOptions::skip`].
    pub(crate) skip: Vec<Range<u64>>,
    choices: Vec<Choice>,
    pub(crate) engine_is_explicit: bool,
    /// Whether one more read checks that the file ends where its length says: always for a single file; of
    /// many only where the file system may misreport lengths, because it costs a system call for each.
    pub(crate) probes_end: bool,
    pub(crate) rate_limit: Option<RateLimit>,
    pub(crate) stop: Option<Stop>,
    pub(crate) io_priority: Option<IoPriority>,
    pub(crate) recording: Arc<Recording>,
    /// What is known about copying and mapping, if blocks in the page cache may be mapped.
    pub(crate) copy_or_map: Option<Arc<CopyOrMap>>,
}

/// The input of a plan.
#[derive(Debug)]
pub(crate) enum PlanKind {
    /// Extents of one source.
    Extents,
    /// One source as a stream. A read that returns `full_bytes` counts as full.
    Stream { full_bytes: u32 },
    /// Many files of one device.
    Files(Files),
}

/// How the files of one device are read.
#[derive(Debug)]
pub(crate) struct Files {
    /// Whether the engine or the cache mode is explicit: every file is then read that way.
    pub(crate) is_explicit: bool,
    /// Whether block size, queue depth or slots are explicit.
    pub(crate) shape_is_explicit: bool,
    pub(crate) storage: Storage,
    /// Whether files of one device number may lie on different file systems (overlayfs with
    /// `xino=on`).
    pub(crate) is_layered: bool,
    pub(crate) bypass_cache: bool,
    /// Alignment of direct reads, in bytes; 1 for others.
    pub(crate) sector_bytes: u32,
    /// `RWF_*` of synchronous reads of small files.
    pub(crate) small_flags: i32,
    /// Largest slab of a reader of small files, in bytes.
    pub(crate) small_slab_bytes: u32,
}

/// Whether files may be mapped without being asked for: not where another machine or process can
/// change or withdraw them.
fn can_be_mapped(storage: Storage) -> bool {
    matches!(storage, Storage::Local | Storage::Memory)
}

fn cores() -> u32 {
    thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

impl Plan {
    /// Gathers the facts of `source` and decides how to read it.
    ///
    /// # Errors
    ///
    /// A `config` that is out of its ranges, or whose explicit options are not available here:
    /// explicit options are never silently overridden.
    pub fn choose(source: &Source, config: &Config, run: &RunOptions<'_>) -> Result<Plan, Error> {
        Plan::of_source(source, config, run).map_err(|kind| Error::new(source.path(), kind))
    }

    /// Gathers the facts of the device that contains `samples`, and decides how to read many of its
    /// files with a [`FileQueue`](crate::FileQueue). The samples are regular files with content,
    /// far from each other if possible. A dozen suffice to show whether the device is rotational;
    /// usually two of them are read.
    ///
    /// # Errors
    ///
    /// As for [`choose`](Plan::choose); [`ErrorKind::Config`] for options that only fit one file.
    ///
    /// # Panics
    ///
    /// If there is no sample.
    pub fn choose_for_files(
        samples: &[Source],
        config: &Config,
        run: &RunOptions<'_>,
    ) -> Result<Plan, Error> {
        let name = samples[0].path();
        Plan::of_files(samples, config, run).map_err(|kind| Error::new(name, kind))
    }

    fn of_source(
        source: &Source,
        config: &Config,
        run: &RunOptions<'_>,
    ) -> Result<Plan, ErrorKind> {
        config.validate()?;
        let order = if config.io.in_order { Order::InOrder } else { run.order };
        let make = |ring, kind, holes, choices| Plan {
            ring,
            kind,
            is_rotational: false,
            order,
            range: run.range.clone(),
            holes,
            skip: run.skip.to_vec(),
            choices,
            engine_is_explicit: config.explicit_engine().is_some(),
            probes_end: source.kind() == SourceKind::File,
            rate_limit: config.io.rate_limit.clone(),
            stop: config.io.stop.clone(),
            io_priority: config.io.priority,
            recording: recording(config, run),
            copy_or_map: None,
        };
        let is_pseudo = source.is_pseudo();
        let Some(len) = source.len().filter(|_| !is_pseudo && run.tee.is_none()) else {
            let (kind, ring, choices) = Plan::stream(source, config, run, order, is_pseudo)?;
            return Ok(make(ring, kind, Vec::new(), choices));
        };
        let range = run.range.clone().unwrap_or(source.start()..len);
        let left = range.end.min(len).saturating_sub(range.start);
        let is_file = source.kind() == SourceKind::File;
        let is_automatic = config.is_automatic() && is_file && left <= ONE_READ_BYTES_MAX;
        if is_automatic || len == 0 {
            let ring = RingPlan::one_read(left as u32, order, config);
            let value = "one pread".to_owned();
            let why = format!("{left} bytes fit in one block: no ring or threads are needed");
            let choice = Choice { what: "engine", value, why };
            return Ok(make(ring, PlanKind::Extents, Vec::new(), vec![choice]));
        }
        let (ring, holes, choices, is_rotational) = Plan::extents(source, len, config, run, order)?;
        let copy_or_map = ring.may_map.then(|| match run.part_of {
            Some(Plan { copy_or_map: Some(shared), .. }) => Arc::clone(shared),
            _ => Arc::default(),
        });
        Ok(Plan { copy_or_map, is_rotational, ..make(ring, PlanKind::Extents, holes, choices) })
    }

    /// Decides how to read the blocks of a source, and which holes to leave out. Also returns whether
    /// the device is rotational.
    fn extents(
        source: &Source,
        len: u64,
        config: &Config,
        run: &RunOptions<'_>,
        order: Order,
    ) -> Result<(RingPlan, Holes, Vec<Choice>, bool), ErrorKind> {
        let holes = match run.skip_holes && run.range.is_none() && may_skip_holes(config) {
            true => source.holes(HOLE_BYTES_MIN),
            false => Vec::new(),
        };
        let mut facts = Facts::of(source, len, config);
        if !holes.is_empty() {
            facts.resident = resident_of(source.file(), &without(0..len, &holes));
        }
        if let (Ok(align), Some(range)) = (&facts.direct, &run.range)
            && !range.start.is_multiple_of((*align).into())
        {
            let align = *align;
            facts.misalign(source, &format!("the range starts at byte {}", range.start), align);
        }
        let system = System {
            io_uring: &io_uring::usable,
            libaio: &libaio::usable,
            tuning: &|| run.tuning?(source.device()),
            searches_depth: true,
            cores: cores(),
        };
        let (ring, mut choices) = decide(&facts, config, (order, run.consumers), &system)?;
        let holes = whole_blocks(&holes, run.skip, len, ring.block_bytes.into());
        let holes = if ring.engine.is_sequential() { Vec::new() } else { holes };
        choices.extend(describe_holes(&holes, facts.file_system));
        if ring.engine.is_sequential() {
            source.reopen().map_err(|error| ErrorKind::Engine {
                engine: ring.engine,
                why: format!("it needs a file position of its own: {error}"),
            })?;
        }
        Ok((ring, holes, choices, facts.is_rotational()))
    }

    fn stream(
        source: &Source,
        config: &Config,
        run: &RunOptions<'_>,
        order: Order,
        is_pseudo: bool,
    ) -> Result<(PlanKind, RingPlan, Vec<Choice>), ErrorKind> {
        if !is_pseudo || config.io.bypass_cache {
            stream::refuse_explicit(source, config)?;
        }
        let pipe = (source.kind() == SourceKind::Pipe).then(|| enlarge_pipe(source)).flatten();
        let facts = StreamFacts {
            what: source.kind().name(),
            why: match is_pseudo {
                true => "the kernel generates the content, so its length is not known in advance",
                false => "it can be read only once, and only from the current position onwards",
            },
            pipe,
            cores: cores(),
        };
        let (ring, mut choices) = decide_stream(&facts, config, (order, run.consumers));
        if let Some((value, why)) = run.tee.and_then(|tee| tee.describe(source.as_fd())) {
            choices.push(Choice { what: "tee", value: value.to_owned(), why });
        }
        // A read of anything but a pipe can return everything requested.
        let full_bytes = pipe.map_or(u32::MAX, |pipe| pipe.is.max(FULL_BYTES_MIN) as u32);
        Ok((PlanKind::Stream { full_bytes }, ring, choices))
    }

    fn of_files(
        samples: &[Source],
        config: &Config,
        run: &RunOptions<'_>,
    ) -> Result<Plan, ErrorKind> {
        config.validate()?;
        let facts = Facts::of_many(samples, config);
        let system = System {
            io_uring: &io_uring::usable,
            libaio: &libaio::usable,
            // Measurements of one long file do not apply to many short ones.
            tuning: &|| None,
            searches_depth: false,
            cores: cores(),
        };
        let (mut ring, mut choices) = decide(&facts, config, (Order::AnyOrder, 0), &system)?;
        let sector_bytes = ring.align;
        if ring.cache == CacheMode::Direct {
            // Read up to the end of the file system's block, so that files that are adjacent on the
            // device become one read of it: 130,000 small files in 26,000 reads instead of 145,000,
            // and in 1.4 s instead of 2.3.
            let block_bytes = file_system_block_bytes(samples[0].file());
            ring.align = ring.align.max(block_bytes.min(SLOT_ALIGN_BYTES));
        }
        for choice in &mut choices {
            if choice.what == "source" {
                choice.value = "many files".to_owned();
                choice.why = choice.why.replace("0 % in the page cache; ", "");
            } else if let Some(why) = choice.why.strip_prefix("0 % is in the page cache: ") {
                choice.why = format!("for files that are not in the page cache, {why}");
            }
        }
        let engine_is_explicit = config.explicit_engine().is_some();
        let is_explicit = engine_is_explicit || config.explicit_cache().is_some();
        let is_uncached = !is_explicit && facts.storage == Storage::Local;
        let is_layered = facts.file_system == "overlayfs";
        let may_map =
            config.may_map() && !is_explicit && !is_layered && can_be_mapped(facts.storage);
        let files = Files {
            is_explicit,
            shape_is_explicit: config.has_explicit_shape(),
            storage: facts.storage,
            is_layered,
            bypass_cache: config.io.bypass_cache,
            sector_bytes,
            small_flags: match is_uncached && facts::dontcache(samples[0].file()).is_ok() {
                true => sys::RWF_DONTCACHE,
                false => 0,
            },
            small_slab_bytes: run
                .small_bytes
                .map_or(SMALL_SLAB_BYTES, |bytes| bytes.min(SMALL_SLAB_BYTES.into()) as u32),
        };
        Ok(Plan {
            ring,
            kind: PlanKind::Files(files),
            is_rotational: facts.is_rotational(),
            order: Order::AnyOrder,
            range: None,
            holes: Vec::new(),
            skip: Vec::new(),
            choices,
            engine_is_explicit,
            probes_end: samples[0].may_misreport_length(),
            rate_limit: config.io.rate_limit.clone(),
            stop: config.io.stop.clone(),
            io_priority: config.io.priority,
            recording: recording(config, run),
            copy_or_map: may_map.then(Arc::default),
        })
    }

    /// Returns the choices with their reasons, in a fixed order.
    pub fn choices(&self) -> &[Choice] {
        &self.choices
    }

    /// Whether blocks are read one after another, so that none can be left out.
    pub fn is_sequential(&self) -> bool {
        !matches!(self.kind, PlanKind::Extents) || self.ring.engine.is_sequential()
    }

    /// Returns the holes that are not read, if there are [any](RunOptions::skip_holes): sorted, and
    /// of whole blocks, except at the end of the file. Ranges [to skip](RunOptions::skip) are no
    /// holes.
    pub fn holes(&self) -> &[Range<u64>] {
        &self.holes
    }

    pub(crate) fn choices_mut(&mut self) -> &mut [Choice] {
        &mut self.choices
    }

    /// The order it was made for. A run in the other order works, on the threads of this one.
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// Returns the bytes of every block but the last of a run.
    pub fn block_bytes(&self) -> u64 {
        self.ring.block_bytes.into()
    }

    /// Returns the number of threads that consume in order; 0 if the thread that reads consumes.
    pub fn consumers(&self) -> u32 {
        if self.ring.order == Order::InOrder { self.ring.workers } else { 0 }
    }

    /// Alignment of extents, in bytes: that of direct reads, usually 512 or 4096; otherwise 1.
    pub(crate) fn align(&self) -> u64 {
        self.ring.align.into()
    }

    /// Whether the device is rotational, so that many files should be read one after another, in the
    /// order of their physical offsets. (A file that fits in one read is never reported as such.)
    pub fn is_rotational(&self) -> bool {
        self.is_rotational
    }

    /// Returns the statistics of its runs so far; `None` unless enabled in the [`Config`].
    pub fn stats(&self) -> Option<Stats> {
        let mut stats = self.recording.stats()?;
        stats.mapped_bytes = match &self.copy_or_map {
            Some(shared) => shared.mapped_bytes(),
            None if self.ring.engine == EngineKind::Mmap => stats.bytes,
            None => 0,
        };
        Some(stats)
    }
}

/// Whether holes may be left out with this configuration.
fn may_skip_holes(config: &Config) -> bool {
    // (The engine that reads nothing measures what everything else takes.)
    !config.io.bypass_cache && config.io.engine != Some(EngineKind::Null)
}

fn describe_holes(holes: &[Range<u64>], file_system: &str) -> Option<Choice> {
    let bytes = holes.iter().map(|hole| hole.end - hole.start).sum();
    let why = format!("not read: {file_system} reports {} of them", holes.len());
    (bytes > 0).then(|| Choice { what: "holes", value: choose::size(bytes), why })
}

fn recording(config: &Config, run: &RunOptions<'_>) -> Arc<Recording> {
    match run.part_of {
        Some(plan) => Arc::clone(&plan.recording),
        None => Arc::new(Recording::new(config.observe.stats, run.trace)),
    }
}

/// One line per choice: its name, the value, the reason.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Choice { what, value, why }) in self.choices.iter().enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            write!(f, "{newline}  {what:11} {value:16} {why}")?;
        }
        Ok(())
    }
}
