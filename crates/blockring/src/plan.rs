//! A plan for one source: made from its facts, and carried out.
//!
//! Which way of reading is chosen says `choose.rs`; this file gathers what the choice depends on.

mod asked;
mod mapped;
mod scattered;

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::thread;

use self::asked::Asked;
use crate::advised::{self, Advised};
use crate::choose::{self, Choice, RingPlan, Spread, StreamFacts, System};
use crate::config::{CacheMode, Config, EngineKind, IoPriority, Order};
use crate::engine;
use crate::error::{BoxError, Error, ErrorKind};
use crate::extents::Extents;
use crate::facts::Facts;
use crate::fan_out::{self, NotDone, Taker};
use crate::onward::Onward;
use crate::pipe;
use crate::profile;
use crate::pump::{Job, Target, Work};
use crate::rate::RateLimit;
use crate::sequential::Sequential;
use crate::source::{Source, SourceKind};
use crate::stats::{Recording, Stats};
use crate::stream::{self, Stream};
use crate::sys::priority;
use crate::unreadable;
use crate::workers::{self, Block};

/// What a read must bring, at least, for whoever writes to be ahead, in bytes: a smaller pipe is full at any
/// time.
const FULL_BYTES_MIN: usize = 64 << 10;

/// Largest file that is read in one go, in bytes.
const WHOLE_BYTES_MAX: u64 = profile::BUILT_IN.block_bytes as u64;

/// How one source will be read, and why so.
#[derive(Debug)]
pub struct Plan<'s> {
    source: &'s Source,
    way: Way,
    order: Order,
    /// The source opened once more: for direct reads, or for a file position of its own.
    own: Option<File>,
    /// Held by a run that moves the file position.
    position: Mutex<()>,
    choices: Vec<Choice>,
    rate_limit: Option<RateLimit>,
    io_priority: Option<IoPriority>,
    recording: Recording,
}

#[derive(Debug)]
enum Way {
    /// One `pread` on this thread.
    Whole(u32),
    /// Through the ring. An engine that was asked for is not replaced.
    Ring { ring: RingPlan, engine_asked: bool },
    /// The same, to wherever the end is. What was asked for can be had only if there is nothing to read.
    Stream { ring: RingPlan, asked: Asked, full_bytes: u32 },
}

fn cores() -> u32 {
    thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

impl<'s> Plan<'s> {
    /// Gathers the facts of `source` and chooses. `order` is what the consumer needs; a
    /// [`Config`] may ask for [`Order::InOrder`] all the same.
    ///
    /// # Errors
    ///
    /// A `config` that is out of its ranges, or asks by name for what cannot be had here: an explicit
    /// choice is never replaced by another.
    pub fn choose(source: &'s Source, config: &Config, order: Order) -> Result<Plan<'s>, Error> {
        let made = config.validate().map_err(ErrorKind::from);
        let made = made.and_then(|()| Plan::choose_way(source, config, order));
        let (way, order, own, choices) = made.map_err(|kind| Error::new(source.path(), kind))?;
        Ok(Plan {
            source,
            way,
            order,
            own,
            position: Mutex::default(),
            choices,
            rate_limit: config.rate_limit.clone(),
            io_priority: config.io_priority,
            recording: Recording::new(config),
        })
    }

    fn choose_way(
        source: &'s Source,
        config: &Config,
        order: Order,
    ) -> Result<(Way, Order, Option<File>, Vec<Choice>), ErrorKind> {
        let Some(len) = source.len() else {
            let (way, choices) = Plan::stream(source, config, order)?;
            let order = if config.in_order { Order::InOrder } else { order };
            return Ok((way, order, None, choices));
        };
        let left = len - source.start();
        if left <= WHOLE_BYTES_MAX && config.is_auto() && source.kind() == SourceKind::File {
            let choice = Choice {
                what: "engine",
                value: "one pread".to_owned(),
                why: format!("{left} bytes are no more than one block: no ring, no threads"),
            };
            return Ok((Way::Whole(left as u32), order, None, vec![choice]));
        }
        let mut facts = Facts::of(source, len, config);
        let system = System {
            io_uring: &engine::io_uring::usable,
            libaio: &engine::libaio::usable,
            tuning: &|| config.tuned.as_ref()?.find(source.device()),
            profile: &profile::BUILT_IN,
            cores: cores(),
        };
        let (ring, choices) = choose::decide(&facts, config, order, &system)?;
        let direct = facts.direct_file.take().filter(|_| ring.cache == CacheMode::Direct);
        // Others may read the same source meanwhile.
        let own = match direct {
            None if ring.engine.is_sequential() => Some(source.reopen().map_err(|error| {
                let why = format!("it needs a file position of its own: {error}");
                ErrorKind::Engine { engine: ring.engine, why }
            })?),
            direct => direct,
        };
        let (order, engine_asked) = (ring.order, config.engine_asked().is_some());
        Ok((Way::Ring { ring, engine_asked }, order, own, choices))
    }

    fn stream(
        source: &'s Source,
        config: &Config,
        order: Order,
    ) -> Result<(Way, Vec<Choice>), ErrorKind> {
        // A regular file of length 0 is empty as a rule, and nothing can be read with any engine. But
        // only reading shows that.
        let may_be_empty = source.kind() == SourceKind::File && !source.is_begun();
        let asked = Asked {
            engine: config.engine_asked(),
            cache: config.cache_asked(),
            medium: config.medium,
        };
        if !may_be_empty {
            asked.refuse_for(source)?;
        }
        let why = match may_be_empty {
            true => "its length is 0, and only reading tells whether it has content",
            false => "it is read from where it is, once and in order",
        };
        let pipe = (source.kind() == SourceKind::Pipe).then(|| pipe::enlarge(source)).flatten();
        let facts = StreamFacts { what: source.kind().name(), why, pipe, cores: cores() };
        let (ring, choices) = choose::decide_stream(&facts, config, order);
        // What a single read can bring: of anything but a pipe, all that is asked for.
        let full_bytes = pipe.map_or(u32::MAX, |pipe| pipe.is.max(FULL_BYTES_MIN) as u32);
        Ok((Way::Stream { ring, asked, full_bytes }, choices))
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
            Way::Ring { ring, .. } | Way::Stream { ring, .. } => ring.engine,
            Way::Whole(_) => EngineKind::Pread,
        }
    }

    /// Bytes of every block but the last of a run.
    pub fn block_bytes(&self) -> u64 {
        match &self.way {
            Way::Whole(len) => u64::from(*len),
            Way::Ring { ring, .. } | Way::Stream { ring, .. } => ring.block_bytes.into(),
        }
    }

    /// Threads of consumers, which blocks are handed to in order; 0 where the thread that reads consumes.
    pub fn consumers(&self) -> u32 {
        match &self.way {
            Way::Ring { ring, .. } | Way::Stream { ring, .. } if ring.order == Order::InOrder => {
                ring.workers
            }
            _ => 0,
        }
    }

    /// What its runs took and did until now, for a [`Config`] with `stats`; `None` without.
    pub fn stats(&self) -> Option<Stats> {
        self.recording.stats()
    }

    /// Reads the whole source and gives each block to `consume`, one after another. A stream can be
    /// read once: a second run finds it at its end.
    ///
    /// # Errors
    ///
    /// The first failed read, a change of the source while it was read, or what `consume` returned:
    /// then the consumer has seen a part of the source at most. On a pipe, a `consume` that fails on a
    /// thread of its own (`workers`) is noticed when the next bytes come.
    ///
    /// # Panics
    ///
    /// When `consume` does; what is in flight is ended first.
    pub fn in_order(
        &self,
        consume: impl FnMut(Block<'_>) -> Result<(), BoxError> + Send,
    ) -> Result<(), Error> {
        self.range_in_order(self.all(), consume)
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
        self.range_any_order(self.all(), consume)
    }

    /// Reads the whole source, once, and gives each block to each of `takers`: at once, on threads of theirs, if
    /// the plan was made for [consumers](Config::consumers), in order; else on this thread.
    ///
    /// Each taker has its own threads, even if limits have left the plan fewer: [`consumers`](Plan::consumers) says
    /// how many those are, and one taker can do the work of several.
    ///
    /// # Errors
    ///
    /// As for [`in_order`](Plan::in_order).
    ///
    /// # Panics
    ///
    /// When one of them does; what is in flight is ended first.
    pub fn to_each(&self, takers: &mut [Taker<'_>]) -> Result<(), Error> {
        self.run(|| self.read_to_each(self.all(), takers))
    }

    /// What a run is over: from where reading starts to the end.
    fn all(&self) -> Range<u64> {
        self.source.start()..self.source.len().unwrap_or(u64::MAX)
    }

    /// Reads a stream and gives each block to `consume`, as [`any_order`](Plan::any_order) does, while all of it
    /// goes on to `onward`, in its order. A source that has places is read from its file position, if it
    /// was opened [as a stream](Source::from_stream).
    ///
    /// # Errors
    ///
    /// As for [`in_order`](Plan::in_order); [`ErrorKind::Onward`] when the output takes no more.
    ///
    /// # Panics
    ///
    /// When `consume` does; or when the plan is of a source that is no stream, or for blocks in order.
    pub fn pass_on(
        &self,
        onward: &mut Onward,
        consume: impl Fn(Block<'_>) -> Result<(), BoxError> + Sync,
    ) -> Result<(), Error> {
        let is_stream = matches!(self.way, Way::Stream { .. }) && self.order == Order::AnyOrder;
        assert!(is_stream, "only a stream in any order is passed on");
        self.run(|| self.read_by_turns(Some(onward), &consume))
    }

    /// How bytes go to the output of `onward`, in words: as one more of the [choices](Plan::choices).
    pub fn note_onward(&mut self, onward: &Onward) {
        if let Some((value, why)) = onward.way_from(self.source.as_fd()) {
            self.choices.push(Choice { what: "onward", value: value.to_owned(), why });
        }
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
        self.run(|| self.read_in_order(range, &mut consume))
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
        self.run(|| match &self.way {
            Way::Ring { ring, .. } if ring.order == Order::AnyOrder => {
                self.with_job(range, |job, ring| workers::spread(job, ring, &consume))
            }
            Way::Stream { .. } if self.order == Order::AnyOrder => {
                self.read_by_turns(None, &consume)
            }
            _ => self.read_in_order(range, &mut |block| consume(block)),
        })
    }

    fn read_in_order(
        &self,
        range: Range<u64>,
        consume: workers::ConsumeInOrder<'_>,
    ) -> Result<(), ErrorKind> {
        self.read_to_each(range, &mut [Taker::InOrder(consume)])
    }

    fn read_to_each(&self, range: Range<u64>, takers: &mut [Taker<'_>]) -> Result<(), ErrorKind> {
        match &self.way {
            Way::Whole(_) => self
                .read_whole(range, &mut |block| takers.iter_mut().try_for_each(|t| t.take(block))),
            Way::Ring { .. } => self.pump_to_each(range, takers, &|| Ok(())),
            Way::Stream { asked, .. } => asked.or_refuse(self.source, |refusal| {
                self.pump_to_each(0..u64::MAX, takers, &|| refusal.check())
            }),
        }
    }

    /// Through the ring. `check`: what is asked before every block.
    fn pump_to_each(
        &self,
        range: Range<u64>,
        takers: &mut [Taker<'_>],
        check: &(dyn Fn() -> Result<(), BoxError> + Sync),
    ) -> Result<(), ErrorKind> {
        self.with_job(range, |job, ring| {
            // Workers that only might start, in any order, are no use here.
            let is_theirs = ring.order == Order::InOrder || ring.spread == Spread::Asked;
            // And without takers, nobody would give blocks back.
            if ring.workers > 0 && is_theirs && !takers.is_empty() {
                match fan_out::hand_to_each(job, ring, takers, check) {
                    // Nothing was read yet, so that this thread can do it all.
                    Err(NotDone::Threads(_)) if ring.spread != Spread::Asked => {}
                    Err(NotDone::Threads(error) | NotDone::Failed(error)) => return Err(error),
                    Ok(()) => return Ok(()),
                }
            }
            workers::inline(job, ring, &mut |block| {
                check()?;
                takers.iter_mut().try_for_each(|taker| taker.take(block))
            })
        })
    }

    fn read_by_turns(
        &self,
        onward: Option<&mut Onward>,
        consume: workers::ConsumeAnyOrder<'_>,
    ) -> Result<(), ErrorKind> {
        let Way::Stream { ring, asked, full_bytes } = &self.way else { return Ok(()) };
        let stream = Stream {
            fd: self.source.as_fd(),
            plan: ring,
            full_bytes: *full_bytes,
            rate_limit: self.rate_limit.as_ref(),
            recording: &self.recording,
        };
        asked.or_refuse(self.source, |refusal| {
            stream::by_turns(&stream, onward, &|block| {
                refusal.check()?;
                consume(block)
            })
        })
    }

    /// A run from its first read to the last look at the source.
    fn run(&self, read: impl FnOnce() -> Result<(), ErrorKind>) -> Result<(), Error> {
        let result = self.timed(|| read().map_err(|error| self.narrow(error)));
        self.finish(result)
    }

    /// Reads with the I/O priority that was asked for, and takes down how long it took.
    pub(crate) fn timed(
        &self,
        read: impl FnOnce() -> Result<(), ErrorKind>,
    ) -> Result<(), ErrorKind> {
        self.recording.time(self.source.path(), || {
            let _priority = match self.io_priority.map(priority::Changed::to).transpose() {
                Ok(priority) => priority,
                Err(error) => {
                    let what = "setting the I/O priority".to_owned();
                    return Err(ErrorKind::Resource { what, error });
                }
            };
            read()
        })
    }

    /// Looks more closely at where a run failed, as it read there.
    fn narrow(&self, error: ErrorKind) -> ErrorKind {
        match &self.way {
            Way::Ring { ring, .. } => unreadable::narrow(&self.target(ring), error),
            Way::Whole(_) => unreadable::narrow(&Target::plain(self.source), error),
            Way::Stream { .. } => error,
        }
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

    /// How the ring is set up; `None` where there is none, or no places to read at.
    pub(crate) fn ring(&self) -> Option<&RingPlan> {
        match &self.way {
            Way::Ring { ring, .. } => Some(ring),
            // It may be a file that is empty: then every place is past the end.
            Way::Stream { ring, .. } if self.source.kind() == SourceKind::File => Some(ring),
            Way::Whole(_) | Way::Stream { .. } => None,
        }
    }

    /// Says what a batch is read with, in place of what a run from start to end would be.
    pub(crate) fn note_batch(&mut self, piece_bytes_max: u32, ring: &RingPlan) {
        for choice in &mut self.choices {
            let (value, why) = match choice.what {
                "block" => (choose::size(piece_bytes_max.into()), "at most, in a batch"),
                "depth" => (ring.depth.to_string(), "in a batch"),
                "slots" => (ring.slots.to_string(), "in a batch, as far as memory allows"),
                "workers" => ("0".to_owned(), "a batch is read by its thread"),
                _ => continue,
            };
            (choice.value, choice.why) = (value, why.to_owned());
        }
    }

    /// Whether another engine may take the place of the one of `ring`. Not where something of io_uring's
    /// is needed.
    pub(crate) fn may_fall_back(&self, ring: &RingPlan) -> bool {
        matches!(self.way, Way::Ring { engine_asked: false, .. }) && !ring.uring.is_set()
    }

    /// What reads of the source are of.
    pub(crate) fn target(&self, ring: &RingPlan) -> Target<'_> {
        let source_len = self.places_len();
        Target {
            fd: self.own.as_ref().map_or(self.source.as_fd(), AsFd::as_fd),
            seekable: source_len.is_some(),
            flags: ring.flags(),
            align: ring.align,
            source_len,
        }
    }

    /// Bytes of the source that have places to read at; `None`: it is read as it comes.
    fn places_len(&self) -> Option<u64> {
        self.source.len().filter(|_| !matches!(self.way, Way::Stream { .. }))
    }

    /// What the pumps of a run need to know.
    pub(crate) fn job<'a>(&'a self, target: Target<'a>, extents: Extents) -> Job<'a> {
        Job {
            work: Work::One(target, extents),
            rate_limit: self.rate_limit.as_ref(),
            recording: &self.recording,
        }
    }

    fn with_job(
        &self,
        range: Range<u64>,
        run: impl FnMut(&Job<'_>, &RingPlan) -> Result<(), ErrorKind>,
    ) -> Result<(), ErrorKind> {
        let end = self.places_len().unwrap_or(u64::MAX);
        let range = range.start.min(end)..range.end.min(end);
        let block_bytes = self.block_bytes() as u32;
        let extents = Extents::new(range.start..range.end.max(range.start), block_bytes);
        self.with_extents(extents, advised::for_all, run)
    }

    fn with_extents(
        &self,
        extents: Extents,
        advise: for<'f> fn(&RingPlan, BorrowedFd<'f>) -> Option<Advised<'f>>,
        mut run: impl FnMut(&Job<'_>, &RingPlan) -> Result<(), ErrorKind>,
    ) -> Result<(), ErrorKind> {
        let (Way::Ring { ring, .. } | Way::Stream { ring, .. }) = &self.way else { return Ok(()) };
        let target = self.target(ring);
        let fd = target.fd;
        let job = self.job(target, extents);
        let _turn = ring
            .engine
            .is_sequential()
            .then(|| self.position.lock().unwrap_or_else(PoisonError::into_inner));
        let _advised = advise(ring, fd);
        let may_fall_back = || self.may_fall_back(ring) && job.work.is_untouched();
        choose::with_fallback(&mut ring.clone(), may_fall_back, |ring| run(&job, ring))
    }

    fn read_whole(
        &self,
        range: Range<u64>,
        consume: workers::ConsumeInOrder<'_>,
    ) -> Result<(), ErrorKind> {
        let source_len = self.source.len().unwrap_or(0);
        let len = range.end.min(source_len).saturating_sub(range.start) as u32;
        if len == 0 {
            return Ok(());
        }
        let here =
            Sequential { source: self.source, flags: 0, rate_limit: self.rate_limit.as_ref() };
        let mut recorder = self.recording.recorder("reads", 1);
        let range = range.start..range.start + u64::from(len);
        here.read(range, &mut vec![0; len as usize], &mut recorder, consume)
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
