//! Batches of small reads: records anywhere in a source.
//!
//! Adjacent extents become one read. All reads of a batch are in flight together, up to the queue
//! depth. A failed extent does not affect the others.

use std::fmt;
use std::io;
use std::ops::Range;

use super::reader::Reader;
use super::{Opened, set_priority};
use crate::config::{BLOCK_BYTES_MAX, CacheMode, Config, Order, SLOT_ALIGN_BYTES};
use crate::core::extents::{Extents, IndexedExtent};
use crate::core::pump::{Delivered, RawBlock, Sink};
use crate::core::supply::{FileSupply, Zeros};
use crate::error::{Error, ErrorKind};
use crate::plan::{Plan, PlanKind, RingPlan, RunOptions};
use crate::source::Source;
use crate::source::advise::AdviceGuard;

/// A part of a source, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Its start.
    pub offset: u64,
    /// Its length; an extent of length 0 reads nothing.
    pub len: u32,
}

/// Adjacent and overlapping extents become one read up to this length, in bytes. Longer extents are
/// read in pieces of this length.
const PIECE_BYTES_MAX: u32 = 128 << 10;

/// Most reads in flight: 32 gave 109,000 reads/s of 4 KiB on a virtio disk, 128 gave 135,000.
const DEPTH: u32 = 128;

/// The outcomes of the extents of a batch, by index.
pub struct Batch {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

struct Place {
    range: Range<usize>,
    failed: Option<io::Error>,
}

impl Batch {
    /// Allocates zeroed memory for all extents. Extents that reach past the end fail immediately.
    fn new(extents: &[Extent], source_len: u64) -> Result<Batch, ErrorKind> {
        let mut end = 0_usize;
        let places = extents.iter().map(|extent| {
            let start = end;
            let is_within =
                extent.offset.checked_add(extent.len.into()).is_some_and(|end| end <= source_len);
            if is_within {
                end = end.saturating_add(extent.len as usize);
            }
            Place { range: start..end, failed: (!is_within).then(past_the_end) }
        });
        let places: Vec<_> = places.collect();
        // Tried first, because a failed allocation below would abort the process.
        Vec::<u8>::new().try_reserve_exact(end).map_err(|_| ErrorKind::Resource {
            what: format!("memory for {end} bytes"),
            error: io::ErrorKind::OutOfMemory.into(),
        })?;
        // Zero pages, which the kernel allocates at first use: while reads are in flight.
        let bytes = vec![0; end];
        Ok(Batch { bytes, places })
    }

    /// Returns the indexes of extents with something to read.
    fn wanted(&self) -> Vec<usize> {
        let places = self.places.iter().enumerate();
        places.filter(|(_, place)| !place.range.is_empty()).map(|(index, _)| index).collect()
    }

    /// Returns the content of the extent with this index.
    ///
    /// # Errors
    ///
    /// The kernel's error; `UnexpectedEof` for an extent that reaches past the end.
    ///
    /// # Panics
    ///
    /// If there is no such extent.
    pub fn get(&self, index: usize) -> Result<&[u8], &io::Error> {
        let Place { range, failed } = &self.places[index];
        match failed {
            Some(error) => Err(error),
            None => Ok(&self.bytes[range.clone()]),
        }
    }

    /// Returns an iterator over the content of all extents, in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<&[u8], &io::Error>> {
        (0..self.places.len()).map(|index| self.get(index))
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.places.iter().filter(|place| place.failed.is_some()).count();
        f.debug_struct("Batch").field("len", &self.places.len()).field("failed", &failed).finish()
    }
}

/// Reads batches of one source; keeps its ring and its memory from one batch to the next.
///
/// It stays on the thread that created it, as io_uring requires.
pub struct BatchReader<'s> {
    plan: Plan,
    opened: Opened<'s>,
    ring: RingPlan,
    piece_bytes_max: u32,
    config: Config,
    reader: Option<Reader>,
}

impl<'s> BatchReader<'s> {
    /// Plans how to read batches of `source`.
    ///
    /// In `config`, `block_bytes` is the longest read (default: 128 KiB), and `queue_depth` the
    /// number of reads in flight (default: 128); `slots` defaults to the same number, as far as
    /// `limit_bytes` (default: 1 GiB) has room for them besides the data. The calling thread reads,
    /// so `workers`, `threads_max` and `in_order` are ignored.
    ///
    /// # Errors
    ///
    /// As for [`Plan::choose`]; also if the source is not seekable, such as a pipe.
    pub fn new(source: &'s Source, config: &Config) -> Result<BatchReader<'s>, Error> {
        let depth = config.io.queue_depth.unwrap_or(DEPTH);
        let config = config.clone().with(|config| {
            // Limited memory is not divided before the first batch shows how long reads are.
            if config.memory.limit_bytes.is_none() {
                config.io.queue_depth = Some(depth);
            }
            (config.io.workers, config.io.in_order) = (Some(0), false);
        });
        let mut plan = Plan::choose(source, &config, &RunOptions::default())?;
        let fail = |kind| Error::new(source.path(), kind);
        if !matches!(plan.kind, PlanKind::Extents) {
            let error = io::Error::new(io::ErrorKind::NotSeekable, "it is not seekable");
            return Err(fail(ErrorKind::read(0, 0, error)));
        }
        if plan.ring.engine.is_sequential() {
            let why = "it reads in order, and a batch has no order".to_owned();
            return Err(fail(ErrorKind::Engine { engine: plan.ring.engine, why }));
        }
        let opened = Opened::new(&plan, source).map_err(fail)?;
        let mut ring = plan.ring.clone();
        if !ring.engine.is_synchronous() {
            ring.slots = config.io.slots.unwrap_or(depth);
            ring.depth = depth.min(ring.slots);
        }
        let room = 1 << config.slab_bytes_max().min(PIECE_BYTES_MAX.into()).ilog2();
        let piece_bytes_max = config.io.block_bytes.unwrap_or(room);
        plan.note_batch(piece_bytes_max, &ring);
        // Determined by the first batch.
        ring.block_bytes = 0;
        Ok(BatchReader { plan, opened, ring, piece_bytes_max, config, reader: None })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Reads all `extents`, in an order that suits the device. The caller must check whether the
    /// source changed meanwhile ([`Source::check_unchanged`]).
    ///
    /// # Errors
    ///
    /// Errors that concern no single extent: the engine or its memory is not available. Failed
    /// reads are reported in the [`Batch`].
    pub fn read_batch(&mut self, extents: &[Extent]) -> Result<Batch, Error> {
        let source = self.opened.source;
        self.read(extents).map_err(|kind| Error::new(source.path(), kind))
    }

    fn read(&mut self, extents: &[Extent]) -> Result<Batch, ErrorKind> {
        let mut batch = Batch::new(extents, self.opened.source.len().unwrap_or(0))?;
        let mut wanted = batch.wanted();
        let align = u64::from(self.ring.align);
        let most = u64::from(self.piece_bytes_max).next_multiple_of(align);
        let mut cut = Cut { align, most, joins: true };
        while !wanted.is_empty() {
            let pieces = Pieces::of(extents, wanted, cut);
            // Extents that were joined with a failed one are read once more, individually.
            wanted = self.read_pieces(&pieces, extents, &mut batch)?;
            cut.joins = false;
        }
        Ok(batch)
    }

    /// Reads the pieces. Returns the extents that failed together with others.
    fn read_pieces(
        &mut self,
        pieces: &Pieces,
        extents: &[Extent],
        batch: &mut Batch,
    ) -> Result<Vec<usize>, ErrorKind> {
        let longest = pieces.list.iter().map(|piece| piece.len).max().unwrap_or(0);
        if longest > self.ring.block_bytes {
            // Its last sector is read whole.
            self.ring.block_bytes = longest.next_multiple_of(SLOT_ALIGN_BYTES).min(BLOCK_BYTES_MAX);
            self.reader = None;
        }
        let target = self.opened.target(&self.ring);
        let extents_of_pieces = Extents::of_list(pieces.list.clone());
        let supply = FileSupply { target, extents: extents_of_pieces, zeros: Zeros::default() };
        let context = self.plan.context(&supply);
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => {
                let room = self.config.slots_max(self.ring.block_bytes).max(1);
                let mut ring = RingPlan { slots: self.ring.slots.min(room), ..self.ring.clone() };
                let reader = self.plan.new_reader(&context, &mut ring)?;
                self.ring.engine = ring.engine;
                reader
            }
        };
        let is_buffered = self.ring.cache == CacheMode::Buffered;
        let _advice = is_buffered.then(|| AdviceGuard::random(target.fd));
        let (plan, ring, mut again) = (&self.plan, &self.ring, Vec::new());
        let sink = Scatter { extents, pieces, batch, again: &mut again };
        plan.recording.time(self.opened.source.path(), || {
            let _priority = set_priority(plan.io_priority)?;
            reader.pump(&context, ring, Order::AnyOrder, || sink)
        })?;
        // Not after an error, because requests may still be in flight.
        self.reader = Some(reader);
        Ok(again)
    }
}

impl fmt::Debug for BatchReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchReader").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Plan {
    /// Replaces the choices about a complete run by those about a batch.
    fn note_batch(&mut self, piece_bytes_max: u32, ring: &RingPlan) {
        for choice in self.choices_mut() {
            let (value, why) = match choice.what {
                "block-size" => {
                    (crate::config::size(piece_bytes_max.into()), "at most, in a batch")
                }
                "queue-depth" => (ring.depth.to_string(), "in a batch"),
                "slots" => (ring.slots.to_string(), "in a batch, as far as memory allows"),
                "workers" => ("0".to_owned(), "the calling thread reads a batch"),
                _ => continue,
            };
            (choice.value, choice.why) = (value, why.to_owned());
        }
    }
}

/// The reads of a batch.
struct Pieces {
    /// The `index` of each is its index in `members`.
    list: Vec<IndexedExtent>,
    /// For each piece, the extents that overlap it, as indexes of `sorted`.
    members: Vec<Range<usize>>,
    /// Indexes of extents, sorted by offset.
    sorted: Vec<usize>,
}

/// How extents are cut into pieces.
#[derive(Clone, Copy)]
struct Cut {
    align: u64,
    /// Longest piece, in bytes.
    most: u64,
    /// Whether adjacent extents are joined.
    joins: bool,
}

impl Pieces {
    /// Sorts, joins and cuts the extents with the indexes `wanted`.
    fn of(extents: &[Extent], wanted: Vec<usize>, cut: Cut) -> Pieces {
        let mut pieces = Pieces { list: Vec::new(), members: Vec::new(), sorted: wanted };
        pieces.sorted.sort_by_key(|index| extents[*index].offset);
        let mut open: Option<(Range<u64>, Range<usize>)> = None;
        for place in 0..pieces.sorted.len() {
            let Extent { offset, len } = extents[pieces.sorted[place]];
            // A piece starts at the alignment of direct reads. Its last sector is read whole, but
            // only the requested part has to exist.
            let start = offset / cut.align * cut.align;
            let end = offset + u64::from(len);
            match &mut open {
                Some((range, members))
                    if cut.joins
                        && start <= range.end.next_multiple_of(cut.align)
                        && end - range.start <= cut.most =>
                {
                    range.end = range.end.max(end);
                    members.end = place + 1;
                }
                _ => pieces.close(open.replace((start..end, place..place + 1)), cut),
            }
        }
        pieces.close(open, cut);
        pieces
    }

    /// Adds a range, cut up if it is too long.
    fn close(&mut self, open: Option<(Range<u64>, Range<usize>)>, cut: Cut) {
        let Some((range, members)) = open else { return };
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + cut.most);
            let (index, len) = (self.list.len() as u64, (end - start) as u32);
            self.list.push(IndexedExtent { index, offset: start, len });
            self.members.push(members.clone());
            start = end;
        }
    }
}

fn past_the_end() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the extent reaches past the end of the source")
}

/// Copies the content of pieces to their extents.
struct Scatter<'a> {
    extents: &'a [Extent],
    pieces: &'a Pieces,
    batch: &'a mut Batch,
    /// Extents that failed together with others.
    again: &'a mut Vec<usize>,
}

/// Returns the extents that overlap `piece`, each with the overlapping range of the source.
fn parts<'a>(
    extents: &'a [Extent],
    pieces: &'a Pieces,
    piece: IndexedExtent,
) -> impl Iterator<Item = (usize, Range<u64>)> + 'a {
    let piece_end = piece.offset + u64::from(piece.len);
    let members = pieces.members[piece.index as usize].clone();
    let parts = pieces.sorted[members].iter().map(move |&index| {
        let Extent { offset, len } = extents[index];
        (index, offset.max(piece.offset)..(offset + u64::from(len)).min(piece_end))
    });
    parts.filter(|(_, part)| !part.is_empty())
}

impl Sink for Scatter<'_> {
    fn deliver(&mut self, raw: RawBlock) -> Result<Delivered, ErrorKind> {
        #[expect(unsafe_code)]
        // SAFETY: the pump delivers the block until this returns.
        let block = unsafe { raw.block() };
        for (index, part) in parts(self.extents, self.pieces, raw.extent) {
            let from = (part.start - block.offset) as usize..(part.end - block.offset) as usize;
            let within = (part.start - self.extents[index].offset) as usize;
            let at = self.batch.places[index].range.start + within;
            self.batch.bytes[at..at + from.len()].copy_from_slice(&block.bytes[from]);
        }
        Ok(Delivered::Consumed)
    }

    fn failed(&mut self, piece: IndexedExtent, error: ErrorKind) -> Result<(), ErrorKind> {
        if self.pieces.members[piece.index as usize].len() > 1 {
            self.again.extend(parts(self.extents, self.pieces, piece).map(|(index, _)| index));
            return Ok(());
        }
        for (index, _) in parts(self.extents, self.pieces, piece) {
            self.batch.places[index].failed = Some(match &error {
                ErrorKind::Read { error, .. } => copy_of(error),
                _ => past_the_end(),
            });
        }
        Ok(())
    }
}

/// Copies an error, for another extent of the same piece.
fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
