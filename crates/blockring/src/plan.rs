//! A plan for one source: made from its facts, and carried out.
//!
//! Which way of reading is chosen says `choose.rs`; this file gathers what the choice depends on.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::thread;

use crate::choose::{self, BLOCK_BYTES, Choice, RingPlan, Spread, System};
use crate::config::{CacheMode, Config, EngineKind, Order};
use crate::engine;
use crate::error::{BoxError, Error, ErrorKind};
use crate::extents::{Extent, Extents};
use crate::facts::Facts;
use crate::pump::Job;
use crate::request::Request;
use crate::source::{Source, SourceKind};
use crate::workers::{self, Block};
use crate::{stream, sys};

/// Block of streams, in bytes: more than a pipe gives at once helps nobody.
const STREAM_BLOCK_BYTES: u32 = 256 << 10;

/// Largest file that is read in one go, in bytes.
const WHOLE_BYTES_MAX: u64 = BLOCK_BYTES as u64;

/// How one source will be read, and why so.
#[derive(Debug)]
pub struct Plan<'s> {
    source: &'s Source,
    way: Way,
    order: Order,
    /// The source opened for direct reads, where they were chosen.
    direct: Option<File>,
    choices: Vec<Choice>,
}

#[derive(Debug)]
enum Way {
    /// One `pread` on this thread.
    Whole(u32),
    /// Through the ring. An engine that was asked for is not replaced.
    Ring { ring: RingPlan, engine_asked: bool },
    /// Sequential `read`, to the end. What was asked for can be had only if there is nothing to read.
    Stream { block_bytes: u32, asked: Asked },
}

/// What a stream cannot have.
#[derive(Debug)]
struct Asked {
    engine: Option<EngineKind>,
    cache: Option<CacheMode>,
}

impl Asked {
    fn refuse_for(&self, source: &Source) -> Result<(), ErrorKind> {
        let what = match source.kind() {
            SourceKind::File if source.is_begun() => "a file that was begun",
            SourceKind::File => "a file that does not say how long it is",
            kind => kind.name(),
        };
        if let Some(engine) = self.engine {
            let why = format!(
                "it reads regular files and block devices from their start, and this is {what}; name \
                 no engine"
            );
            return Err(ErrorKind::Engine { engine, why });
        }
        if let Some(cache @ (CacheMode::Direct | CacheMode::Dontcache)) = self.cache {
            let why = format!("{what} is read as it comes; name no cache mode");
            return Err(ErrorKind::Cache { cache, why });
        }
        Ok(())
    }
}

impl<'s> Plan<'s> {
    /// Gathers the facts of `source` and chooses.
    ///
    /// # Errors
    ///
    /// A `config` that is out of its ranges, or asks by name for what cannot be had here: an explicit
    /// choice is never replaced by another.
    pub fn choose(source: &'s Source, config: &Config, order: Order) -> Result<Plan<'s>, Error> {
        Plan::choose_kind(source, config, order).map_err(|kind| Error::new(source.path(), kind))
    }

    fn choose_kind(
        source: &'s Source,
        config: &Config,
        order: Order,
    ) -> Result<Plan<'s>, ErrorKind> {
        config.validate()?;
        let Some(len) = source.len() else {
            return Plan::stream(source, config, order);
        };
        if len <= WHOLE_BYTES_MAX && config.is_auto() && source.kind() == SourceKind::File {
            let choice = Choice {
                what: "engine",
                value: "one pread".to_owned(),
                why: format!("{len} bytes are no more than one block: no ring, no threads"),
            };
            return Ok(Plan {
                source,
                way: Way::Whole(len as u32),
                order,
                direct: None,
                choices: vec![choice],
            });
        }
        let mut facts = Facts::of(source, len, config.cache);
        let cores = thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let system = System { io_uring: &engine::io_uring::usable, cores };
        let (ring, choices) = choose::decide(&facts, config, order, &system)?;
        let direct = facts.direct_file.take().filter(|_| ring.cache == CacheMode::Direct);
        let way = Way::Ring { ring, engine_asked: config.engine.is_some() };
        Ok(Plan { source, way, order, direct, choices })
    }

    fn stream(source: &'s Source, config: &Config, order: Order) -> Result<Plan<'s>, ErrorKind> {
        let kind = source.kind();
        // A regular file of length 0 is empty as a rule, and nothing can be read with any engine. But
        // only reading shows that.
        let may_be_empty = kind == SourceKind::File && !source.is_begun();
        let asked = Asked { engine: config.engine, cache: config.cache };
        if !may_be_empty {
            asked.refuse_for(source)?;
        }
        let why = match may_be_empty {
            true => "its length is 0, and only reading tells whether it has content",
            false => "it is read from where it is, once and in order",
        };
        let choice = Choice {
            what: "engine",
            value: "sequential read".to_owned(),
            why: format!("{}: {why}", kind.name()),
        };
        let block_bytes = config.block_bytes.unwrap_or(STREAM_BLOCK_BYTES);
        let way = Way::Stream { block_bytes, asked };
        Ok(Plan { source, way, order, direct: None, choices: vec![choice] })
    }

    /// Each choice with its reason, in a fixed order.
    pub fn choices(&self) -> &[Choice] {
        &self.choices
    }

    /// What it is a plan for.
    pub fn source(&self) -> &'s Source {
        self.source
    }

    /// The order it was made for. A run in the other one works, with the threads of this one.
    pub fn order(&self) -> Order {
        self.order
    }

    /// How requests reach the kernel.
    pub fn engine(&self) -> EngineKind {
        match &self.way {
            Way::Ring { ring, .. } => ring.engine,
            Way::Whole(_) | Way::Stream { .. } => EngineKind::Pread,
        }
    }

    /// Bytes of every block but the last of a run.
    pub fn block_bytes(&self) -> u64 {
        match &self.way {
            Way::Whole(len) => u64::from(*len),
            Way::Ring { ring, .. } => ring.block_bytes.into(),
            Way::Stream { block_bytes, .. } => u64::from(*block_bytes),
        }
    }

    /// Reads the whole source and gives each block to `consume`, one after another. A stream can be
    /// read once: a second run finds it at its end.
    ///
    /// # Errors
    ///
    /// The first failed read, a change of the source while it was read, or what `consume` returned:
    /// then the consumer has seen a part of the source at most.
    ///
    /// # Panics
    ///
    /// When `consume` does; what is in flight is ended first.
    pub fn in_order(
        &self,
        consume: impl FnMut(Block<'_>) -> Result<(), BoxError> + Send,
    ) -> Result<(), Error> {
        let range = 0..self.source.len().unwrap_or(u64::MAX);
        self.range_in_order(range, consume)
    }

    /// Reads the whole source and gives each block to `consume` as it comes, on several threads at
    /// once.
    ///
    /// # Errors
    ///
    /// As for [`in_order`](Plan::in_order).
    ///
    /// # Panics
    ///
    /// When `consume` does; what is in flight is ended first.
    pub fn any_order(
        &self,
        consume: impl Fn(Block<'_>) -> Result<(), BoxError> + Sync,
    ) -> Result<(), Error> {
        let range = 0..self.source.len().unwrap_or(u64::MAX);
        self.range_any_order(range, consume)
    }

    /// What the start of a range must be a multiple of, in bytes: the alignment of direct reads, 512
    /// or 4096 as a rule; 1 for other reads.
    pub fn align(&self) -> u64 {
        match &self.way {
            Way::Ring { ring, .. } => ring.align.into(),
            Way::Whole(_) | Way::Stream { .. } => 1,
        }
    }

    /// [`in_order`](Plan::in_order) for a range of a source whose length is known, in bytes. Its start
    /// must be a multiple of [`align`](Plan::align). What of it is past the end is left out.
    ///
    /// # Errors
    ///
    /// As for [`in_order`](Plan::in_order).
    pub fn range_in_order(
        &self,
        range: Range<u64>,
        mut consume: impl FnMut(Block<'_>) -> Result<(), BoxError> + Send,
    ) -> Result<(), Error> {
        self.finish(match &self.way {
            Way::Stream { .. } => self.read_stream(&mut consume),
            Way::Whole(_) => self.read_whole(range, &mut consume),
            Way::Ring { .. } => self.with_job(range, |job, ring| {
                // Workers that only might start, in any order, are no use here.
                match ring.workers > 0 && ring.spread == Spread::Asked {
                    true => workers::hand_over(job, ring, &mut consume),
                    false => workers::inline(job, ring, &mut consume),
                }
            }),
        })
    }

    /// [`any_order`](Plan::any_order) for a range; see [`range_in_order`](Plan::range_in_order).
    ///
    /// # Errors
    ///
    /// As for [`in_order`](Plan::in_order).
    pub fn range_any_order(
        &self,
        range: Range<u64>,
        consume: impl Fn(Block<'_>) -> Result<(), BoxError> + Sync,
    ) -> Result<(), Error> {
        self.finish(match &self.way {
            Way::Stream { .. } => self.read_stream(&mut |b| consume(b)),
            Way::Whole(_) => self.read_whole(range, &mut |b| consume(b)),
            Way::Ring { .. } => {
                self.with_job(range, |job, ring| workers::spread(job, ring, &consume))
            }
        })
    }

    /// A run is good only if the source is still what it was.
    fn finish(&self, result: Result<(), ErrorKind>) -> Result<(), Error> {
        let result = match result {
            Ok(()) => self.source.unchanged(),
            // What the file is now says better what happened than the read that met its end; or than
            // the one that met a page gone from under a mapping: of a file that was truncated, as a
            // rule, and may have grown again since.
            Err(error) if is_sign_of_change(&error) => self.source.unchanged().and(Err(error)),
            Err(error) => Err(error),
        };
        result.map_err(|kind| Error::new(self.source.path(), kind))
    }

    fn with_job(
        &self,
        range: Range<u64>,
        mut run: impl FnMut(&Job<'_>, &RingPlan) -> Result<(), ErrorKind>,
    ) -> Result<(), ErrorKind> {
        let Way::Ring { ring, engine_asked } = &self.way else { return Ok(()) };
        let source_len = self.source.len().unwrap_or(0);
        let end = range.end.min(source_len);
        let job = Job {
            fd: self.direct.as_ref().map_or(self.source.as_fd(), AsFd::as_fd),
            flags: if ring.cache == CacheMode::Dontcache { sys::RWF_DONTCACHE } else { 0 },
            align: ring.align,
            source_len,
            extents: Extents::new(range.start.min(end)..end, ring.block_bytes),
        };
        let may_fall_back = !engine_asked && ring.engine != EngineKind::Pread;
        match run(&job, ring) {
            // It worked a moment ago, but not for a ring of this size, or not any more. As long as
            // nothing has been dealt out, nothing is lost.
            Err(ErrorKind::Engine { .. }) if may_fall_back && job.extents.is_untouched() => {
                run(&job, &RingPlan { engine: EngineKind::Pread, ..ring.clone() })
            }
            result => result,
        }
    }

    fn read_stream(
        &self,
        consume: &mut dyn FnMut(Block<'_>) -> Result<(), BoxError>,
    ) -> Result<(), ErrorKind> {
        let Way::Stream { block_bytes, asked } = &self.way else { return Ok(()) };
        stream::read_to_end(self.source, *block_bytes, &mut |block| {
            asked.refuse_for(self.source)?;
            consume(block).map_err(ErrorKind::Consumer)
        })
    }

    fn read_whole(
        &self,
        range: Range<u64>,
        consume: &mut dyn FnMut(Block<'_>) -> Result<(), BoxError>,
    ) -> Result<(), ErrorKind> {
        let source_len = self.source.len().unwrap_or(0);
        let len = range.end.min(source_len).saturating_sub(range.start) as u32;
        if len == 0 {
            return Ok(());
        }
        let mut request = Request::new(Extent { index: 0, offset: range.start, len });
        let mut buffer = vec![0; len as usize];
        loop {
            let part = request.missing(1);
            let rest = &mut buffer[part.skip as usize..];
            let read = sys::pread_into(self.source.as_fd(), rest, part.offset, 0);
            match request.complete(read.map(|n| n as u32), 1, source_len) {
                Ok(false) => {}
                Ok(true) => break,
                // Files of sysfs say 4096 bytes whatever they hold. If nothing changed, the file did
                // not shrink: it never had that length, and this is all of it.
                Err(ErrorKind::Changed(_)) if self.source.unchanged().is_ok() => {
                    buffer.truncate(part.skip as usize);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        consume(Block { index: 0, offset: range.start, bytes: &buffer })
            .map_err(ErrorKind::Consumer)
    }
}

/// Whether an error is what a change of the file looks like from the place of a read.
fn is_sign_of_change(error: &ErrorKind) -> bool {
    match error {
        ErrorKind::Changed(_) => true,
        ErrorKind::Read { error, .. } => error.raw_os_error() == Some(libc::EFAULT),
        _ => false,
    }
}

impl fmt::Display for Plan<'_> {
    /// One line per choice: what, the choice, the reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Choice { what, value, why }) in self.choices.iter().enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            write!(f, "{newline}  {what:8} {value:16} {why}")?;
        }
        Ok(())
    }
}
