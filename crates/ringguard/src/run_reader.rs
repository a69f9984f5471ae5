//! Reading runs on one thread: all files and parts of files of a run in flight together.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow};
use blockring::{
    BatchReader, CacheMode, Config, EngineKind, Extent, Plan, QueueReader, ReaderKind, Source,
};

use crate::data::{Changed, Data, Piece};
use crate::geometry::Run;
use crate::lock;

/// Files in a row that were not in the page cache, after which no other is expected to be there.
const STREAK_MIN: u32 = 16;
/// Every so many of those, that is checked again.
const STREAK_CHECK: u32 = 64;
/// Most files that are open before they are read.
const OPEN_MAX: usize = 64;

/// Reads runs on one thread.
pub(crate) struct RunReader<'d, 'p> {
    data: &'d Data<'d>,
    tolerant: bool,
    /// How files are read together.
    files: Option<Files<'p>>,
    /// How a part is read by itself.
    config: Config,
    /// The file read by itself last.
    last: Option<(usize, Source)>,
    bytes: Vec<u8>,
    unread: Vec<u64>,
}

struct Files<'p> {
    plan: &'p Plan,
    ring: QueueReader<'p>,
    cached: QueueReader<'p>,
    /// Number of files in a row that were not in the page cache. It wraps around.
    cold: u32,
    /// Number of files in a row that were.
    warm: u32,
}

/// A file or a part of one, and its place in the run.
#[derive(Clone)]
struct Part {
    index: usize,
    /// Where it starts in its file.
    offset: u64,
    place: Range<usize>,
}

impl<'d, 'p> RunReader<'d, 'p> {
    /// Without a plan, each part is read by itself.
    pub(crate) fn new(
        data: &'d Data<'d>,
        plan: Option<&'p Plan>,
        tolerant: bool,
    ) -> Result<RunReader<'d, 'p>> {
        let config = data.reading.config.clone().with(|config| {
            // A ring for each batch would cost more than it gains.
            config.io.engine.get_or_insert(EngineKind::Pread);
            config.io.block_bytes.get_or_insert(data.reading.run_bytes);
            (config.io.queue_depth, config.io.slots) = (None, None);
        });
        let files = match plan {
            Some(plan) => Some(Files {
                plan,
                ring: plan.reader(ReaderKind::Small).map_err(|error| anyhow!("{error}"))?,
                cached: plan.reader(ReaderKind::Cached).map_err(|error| anyhow!("{error}"))?,
                cold: 0,
                warm: 0,
            }),
            None => None,
        };
        let (bytes, unread) = (Vec::new(), Vec::new());
        Ok(RunReader { data, tolerant, files, config, last: None, bytes, unread })
    }

    /// Reads a run. What cannot be read is zeros, if that is tolerated.
    pub(crate) fn read(&mut self, run: &Run) -> Result<Piece<'_>> {
        let piece_bytes = u64::from(self.data.geometry.piece_bytes);
        let start = run.first * piece_bytes;
        let end = start + u64::from(run.count) * piece_bytes;
        self.unread.clear();
        self.bytes.clear();
        self.bytes.resize((end - start) as usize, 0);
        let mut parts = VecDeque::new();
        for index in self.data.files_in(start, end) {
            let file = &self.data.files[index];
            let part = file.start.max(start)..file.end().min(end);
            let place = (part.start - start) as usize..(part.end - start) as usize;
            if part.is_empty() {
                continue;
            }
            parts.push_back(Part { index, offset: part.start - file.start, place });
        }
        for part in self.read_queued(parts) {
            self.read_part(part, start)?;
        }
        self.unread.sort_unstable();
        self.unread.dedup();
        Ok(Piece { run: *run, bytes: &self.bytes, unread: &self.unread })
    }

    /// Reads what can be read with others. Returns the rest.
    fn read_queued(&mut self, mut wanted: VecDeque<Part>) -> Vec<Part> {
        let (data, bytes) = (self.data, &mut self.bytes);
        let mut left = Vec::new();
        let Some(files) = &mut self.files else { return wanted.into() };
        while !wanted.is_empty() {
            if files.expects_cold() {
                // Up to the next check. They are opened while others are read.
                let count = STREAK_CHECK - files.cold % STREAK_CHECK;
                let some = wanted.drain(..wanted.len().min(count as usize)).collect();
                files.cold = files.cold.wrapping_add(count);
                files.read_unopened(data, some, bytes, &mut left);
            } else {
                files.read_some(data, &mut wanted, bytes, &mut left);
            }
        }
        left
    }

    /// Reads a part by itself, and past errors if they are tolerated. `start`: of the run.
    fn read_part(&mut self, part: Part, start: u64) -> Result<()> {
        let Part { index, offset, place } = part;
        let (data, tolerant) = (self.data, self.tolerant);
        let piece_bytes = u64::from(data.geometry.piece_bytes);
        if self.last.as_ref().is_none_or(|(last, _)| *last != index) {
            self.last = None;
            match data.open(index, CacheMode::Buffered) {
                Ok(source) => self.last = Some((index, source)),
                Err(error) if !tolerant || error.is::<Changed>() => return Err(error),
                Err(_) => {
                    let pieces = (start + place.start as u64) / piece_bytes
                        ..(start + place.end as u64).div_ceil(piece_bytes);
                    self.bytes[place].fill(0);
                    self.unread.extend(pieces);
                    return Ok(());
                }
            }
        }
        let Some((_, source)) = &self.last else { return Ok(()) };
        let path = || source.path().display().to_string();
        // One for each piece, because each fails by itself. (They are read together.)
        let (mut extents, mut places) = (Vec::new(), Vec::new());
        let mut at = place.start;
        while at < place.end {
            let end = (at + 1).next_multiple_of(piece_bytes as usize).min(place.end);
            let offset = offset + (at - place.start) as u64;
            extents.push(Extent { offset, len: (end - at) as u32 });
            places.push(at..end);
            at = end;
        }
        let batch = BatchReader::new(source, &self.config)?.read_batch(&extents)?;
        for (i, place) in places.into_iter().enumerate() {
            match batch.get(i) {
                Ok(bytes) => self.bytes[place].copy_from_slice(bytes),
                Err(_) if tolerant => {
                    self.unread.push((start + place.start as u64) / piece_bytes);
                    self.bytes[place].fill(0);
                }
                Err(error) => return Err(anyhow!("{error}")).with_context(path),
            }
        }
        Ok(source.check_unchanged()?)
    }
}

impl Files<'_> {
    fn expects_cold(&self) -> bool {
        self.cold >= STREAK_MIN && !self.cold.is_multiple_of(STREAK_CHECK)
    }

    /// Opens and reads files, until there are no more or they are expected not to be cached.
    fn read_some(
        &mut self,
        data: &Data<'_>,
        wanted: &mut VecDeque<Part>,
        bytes: &mut [u8],
        left: &mut Vec<Part>,
    ) {
        let (mut for_ring, mut for_cached) = (VecDeque::new(), VecDeque::new());
        while for_ring.len() + for_cached.len() < OPEN_MAX
            && let Some(file) = wanted.pop_front()
        {
            let Some(source) = open(data, &file, CacheMode::Buffered) else {
                left.push(file);
                continue;
            };
            // (Of a file that is not cached, this would start to read ahead.)
            let is_read = match self.warm >= STREAK_MIN {
                true => self.plan.read_cached(&source, &mut bytes[file.place.clone()]),
                false => Ok(false),
            };
            match is_read {
                Ok(true) => {}
                Ok(false) if self.plan.wants_ring(&source) => {
                    (self.cold, self.warm) = (self.cold.wrapping_add(1), 0);
                    for_ring.push_back((source, file));
                }
                Ok(false) => {
                    (self.cold, self.warm) = (0, self.warm.saturating_add(1));
                    for_cached.push_back((source, file));
                }
                Err(_) => left.push(file),
            }
            if self.expects_cold() {
                break;
            }
        }
        for (reader, kind, files) in [
            (&mut self.ring, ReaderKind::Small, for_ring),
            (&mut self.cached, ReaderKind::Cached, for_cached),
        ] {
            let files = Mutex::new(files);
            let read =
                read_queue(self.plan, reader, kind, bytes, left, || lock(&files).pop_front());
            if read.is_err() {
                left.extend(lock(&files).drain(..).map(|(_, file)| file));
            }
        }
    }

    /// Reads files that are not expected to be in the page cache.
    fn read_unopened(
        &mut self,
        data: &Data<'_>,
        files: VecDeque<Part>,
        bytes: &mut [u8],
        left: &mut Vec<Part>,
    ) {
        let (files, unopened) = (Mutex::new(files), Mutex::new(Vec::new()));
        let next = || {
            loop {
                let file = lock(&files).pop_front()?;
                match open(data, &file, self.plan.open_mode()) {
                    Some(source) => return Some((source, file)),
                    None => lock(&unopened).push(file),
                }
            }
        };
        let read = read_queue(self.plan, &mut self.ring, ReaderKind::Small, bytes, left, next);
        left.append(&mut lock(&unopened));
        if read.is_err() {
            left.extend(lock(&files).drain(..));
        }
    }
}

/// Opens a file, if it is as long as it should be.
fn open(data: &Data<'_>, part: &Part, mode: CacheMode) -> Option<Source> {
    let source = data.open(part.index, mode).ok()?;
    (source.len() == Some(data.files[part.index].len)).then_some(source)
}

/// Reads the files that `next` returns. Those that fail are left.
fn read_queue(
    plan: &Plan,
    reader: &mut QueueReader<'_>,
    kind: ReaderKind,
    bytes: &mut [u8],
    left: &mut Vec<Part>,
    next: impl Fn() -> Option<(Source, Part)> + Send + Sync,
) -> Result<(), blockring::ErrorKind> {
    let mut queue = plan.queue(kind, || {
        let (source, part) = next()?;
        let range = part.offset..part.offset + part.place.len() as u64;
        Some((source, Some(range), part))
    });
    let read = reader.read(
        &queue,
        |part: &Part, block| {
            let at = part.place.start + (block.offset - part.offset) as usize;
            bytes[at..at + block.bytes.len()].copy_from_slice(block.bytes);
            Ok(())
        },
        |file, _, result| {
            if result.is_err() {
                left.push(file.clone());
            }
        },
    );
    if read.is_err() {
        queue.take_unfinished(|file, _| left.push(file.clone()));
    }
    read
}
