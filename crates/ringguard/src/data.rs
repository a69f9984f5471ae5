//! Reading the data by runs of pieces: of one file through `blockring`, of many files on a pool of
//! threads, because a run of those is many short reads of different files.

use std::fs::File as StdFile;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use blockring::{
    Buffer, CacheMode, Config, ErrorKind, Extent, HugePages, Plan, RunOptions, Source,
};
use rustix::fs::{OFlags, Stat};

use crate::format::File;
use crate::geometry::{Geometry, Run};
use crate::lock;
use crate::tree::Tree;

/// Threads that read many files: as many reads are in flight. (100,000 files of 4 KiB, cold: 1
/// thread reads 18,000 a second, 32 threads 109,000, 128 no more than a quarter above that.)
const THREADS: usize = 32;

/// Times that the reads of a file start again after a read error. Then the rest is read run by run.
const FAILURES_MAX: u32 = 100;

/// Alignment of direct reads that every device in use accepts, in bytes.
const ALIGN: u64 = 4096;

/// How to read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reading {
    pub(crate) config: Config,
    /// Bytes of a run.
    pub(crate) run_bytes: u32,
}

/// The files as data.
pub(crate) struct Data<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) files: &'a [File],
    pub(crate) geometry: Geometry,
    pub(crate) is_set: bool,
    pub(crate) reading: &'a Reading,
    /// The fingerprints that the files must have, if they must be as they were.
    pub(crate) fingerprints: Option<&'a [Fingerprint]>,
}

/// What shows that a file is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub(crate) len: u64,
    pub(crate) mtime: (i64, i64),
    pub(crate) ctime: (i64, i64),
    pub(crate) inode: u64,
}

impl Fingerprint {
    pub(crate) fn of(stat: &Stat) -> Fingerprint {
        Fingerprint {
            len: stat.st_size as u64,
            mtime: (stat.st_mtime, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime, stat.st_ctime_nsec as i64),
            inode: stat.st_ino,
        }
    }
}

/// A run that was read.
pub(crate) struct Piece<'a> {
    pub(crate) run: Run,
    /// From the first byte of the run on; the rest is zeros.
    pub(crate) bytes: &'a [u8],
    /// Pieces that could not be read; of those, bytes are zeros.
    pub(crate) unread: &'a [u64],
}

type Consume<'a> = dyn Fn(Piece<'_>) -> Result<()> + Sync + 'a;

impl Data<'_> {
    /// Returns the files that have bytes in a range of the data, by index.
    pub(crate) fn files_in(&self, start: u64, end: u64) -> std::ops::Range<usize> {
        let first = self.files.partition_point(|file| file.end() <= start);
        let last = self.files.partition_point(|file| file.start < end);
        first..last.max(first)
    }

    /// Whether a file has pieces of its own.
    pub(crate) fn is_large(&self, file: &File) -> bool {
        !self.is_set || file.len >= self.geometry.piece_bytes.into()
    }

    /// Reads runs, and passes each to `consume`, on several threads and in any order. Without
    /// `tolerant`, what cannot be read is an error.
    pub(crate) fn read(&self, runs: &[Run], tolerant: bool, consume: &Consume<'_>) -> Result<()> {
        match (self.is_set, self.files) {
            (false, [file]) => self.read_one(file, runs, tolerant, consume),
            _ => self.read_many(runs, tolerant, consume),
        }
    }

    fn read_one(
        &self,
        file: &File,
        runs: &[Run],
        tolerant: bool,
        consume: &Consume<'_>,
    ) -> Result<()> {
        let path = self.tree.path(&file.name);
        let source = match self.tree.read(&file.name) {
            Ok((opened, stat)) => {
                self.check(0, &stat)?;
                Source::from_exclusive(opened, &path, CacheMode::Buffered)?
            }
            Err(_) if tolerant => return self.read_slowly(runs, consume),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let piece_bytes = u64::from(self.geometry.piece_bytes);
        let end = source.len().unwrap_or(0).min(file.len);
        let extent = |run: &Run| {
            let offset = run.first * piece_bytes;
            let whole = offset + u64::from(run.count) * piece_bytes;
            let is_there = offset < end && (end == file.len || whole <= end);
            let len = if is_there { whole.min(end) - offset } else { 0 };
            Extent { offset, len: len as u32 }
        };
        let mut extents: Vec<_> = runs.iter().map(extent).collect();
        let done: Vec<_> = runs.iter().map(|_| AtomicBool::new(false)).collect();
        let longest = extents.iter().map(|extent| extent.len).max().unwrap_or(0);
        let config = self.reading.config.clone().with(|config| {
            config.io.block_bytes.get_or_insert(longest.next_multiple_of(ALIGN as u32).max(4096));
        });
        ensure!(
            config.io.block_bytes.is_none_or(|bytes| bytes >= longest),
            "--io block-size: a piece of this sidecar has {longest} bytes, so blocks must be as long"
        );
        let plan = Plan::choose(&source, &config, &RunOptions::default())?;
        // Each time around, one run is left that cannot be read as a whole.
        for _ in 0..FAILURES_MAX {
            let failed = Mutex::new(None);
            let result = plan.read_extents(&source, &extents, |block| {
                let index = block.index as usize;
                let piece = Piece { run: runs[index], bytes: block.bytes, unread: &[] };
                done[index].store(true, Ordering::Relaxed);
                consume(piece).map_err(|error| {
                    lock(&failed).get_or_insert(error);
                    "stopped".into()
                })
            });
            if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
                return Err(error);
            }
            let Err(error) = result else { break };
            let ErrorKind::Read { offset, .. } = error.kind else { return Err(error.into()) };
            if !tolerant {
                return Err(error.into());
            }
            for (extent, done) in extents.iter_mut().zip(&done) {
                let holds =
                    (extent.offset..extent.offset + u64::from(extent.len)).contains(&offset);
                if holds || done.load(Ordering::Relaxed) {
                    extent.len = 0;
                }
            }
        }
        let left = runs.iter().zip(&done).filter(|(_, done)| !done.load(Ordering::Relaxed));
        let left: Vec<_> = left.map(|(run, _)| *run).collect();
        if left.is_empty() {
            return Ok(());
        }
        if !tolerant {
            return Err(anyhow!("{}: it is shorter than it was", path.display()));
        }
        self.read_slowly(&left, consume)
    }

    /// Explains how the data are read.
    pub(crate) fn explain(&self) -> Result<String> {
        let [file] = self.files else {
            return Ok(format!(
                "  engine   {THREADS} threads       many files: each run is several short reads"
            ));
        };
        let (opened, _) = self.tree.read(&file.name)?;
        let source =
            Source::from_exclusive(opened, self.tree.path(&file.name), CacheMode::Buffered)?;
        let config = self.reading.config.clone().with(|config| {
            config.io.block_bytes.get_or_insert(self.reading.run_bytes);
        });
        Ok(Plan::choose(&source, &config, &RunOptions::default())?.to_string())
    }

    /// Reads runs one after another, piece by piece where necessary.
    fn read_slowly(&self, runs: &[Run], consume: &Consume<'_>) -> Result<()> {
        let mut reader = RunReader::new(self, true)?;
        for run in runs {
            reader.read(run)?;
            consume(Piece { run: *run, bytes: &reader.bytes, unread: &reader.unread })?;
        }
        Ok(())
    }

    fn read_many(&self, runs: &[Run], tolerant: bool, consume: &Consume<'_>) -> Result<()> {
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || -> Result<()> {
            let mut reader = RunReader::new(self, tolerant)?;
            while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Some(limit) = &self.reading.config.io.rate_limit {
                    limit.wait(u64::from(run.count) * u64::from(self.geometry.piece_bytes));
                }
                reader.read(run)?;
                consume(Piece { run: *run, bytes: &reader.bytes, unread: &reader.unread })?;
            }
            Ok(())
        };
        let guarded = || {
            // The priority of a thread lasts as long as a reader that has it.
            let priority = self.priority_plan();
            let _priority =
                priority.as_ref().map(|plan| plan.reader(blockring::ReaderKind::Cached));
            if let Err(error) = work() {
                next.store(runs.len(), Ordering::Relaxed);
                lock(&failed).get_or_insert(error);
            }
        };
        let threads = match self.reading.config.io.workers {
            Some(workers) => workers as usize + 1,
            None => THREADS.min(self.threads_in_memory()),
        };
        thread::scope(|scope| {
            for _ in 1..threads.min(runs.len()) {
                // A thread that cannot be started leaves its work to the others.
                let _ = thread::Builder::new().spawn_scoped(scope, guarded);
            }
            guarded();
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// A quarter of the memory is for the buffers of threads.
    fn threads_in_memory(&self) -> usize {
        let limit = self.reading.config.memory.limit_bytes.unwrap_or(64 << 20);
        (limit / 4 / u64::from(self.reading.run_bytes).max(1)).max(2) as usize
    }

    fn priority_plan(&self) -> Option<Plan> {
        self.reading.config.io.priority?;
        let file = self.files.iter().find(|file| file.len > 0)?;
        let (opened, _) = self.tree.read(&file.name).ok()?;
        let source =
            Source::from_exclusive(opened, self.tree.path(&file.name), CacheMode::Buffered).ok()?;
        Plan::choose_for_files(&[source], &self.reading.config, &RunOptions::default()).ok()
    }

    /// Checks that a file is as it was.
    fn check(&self, index: usize, stat: &Stat) -> Result<()> {
        let now = Fingerprint::of(stat);
        match self.fingerprints.map(|all| all[index]) {
            Some(before) if before != now => {
                let path = self.tree.path(&self.files[index].name);
                let what = match before.len == now.len {
                    true => "its times changed".to_owned(),
                    false => format!("its length changed from {} to {} bytes", before.len, now.len),
                };
                let path = path.display();
                Err(Changed(format!(
                    "{path}: changed while it was read ({what}); try again when no process writes to it"
                )))?
            }
            _ => Ok(()),
        }
    }
}

/// Reads runs on one thread.
struct RunReader<'a> {
    data: &'a Data<'a>,
    tolerant: bool,
    bytes: Vec<u8>,
    unread: Vec<u64>,
    /// The large file read last.
    last: Option<(usize, StdFile, bool)>,
    direct: Option<Buffer>,
}

impl<'a> RunReader<'a> {
    fn new(data: &'a Data<'a>, tolerant: bool) -> Result<RunReader<'a>> {
        let bypass = data.reading.config.io.bypass_cache
            || data.reading.config.io.cache == Some(CacheMode::Direct);
        let direct = match bypass {
            // Room for the sectors at both ends.
            true => Some(Buffer::new(data.reading.run_bytes + 2 * ALIGN as u32, HugePages::Off)?),
            false => None,
        };
        let (bytes, unread) = (Vec::new(), Vec::new());
        Ok(RunReader { data, tolerant, bytes, unread, last: None, direct })
    }

    fn read(&mut self, run: &Run) -> Result<()> {
        let piece_bytes = u64::from(self.data.geometry.piece_bytes);
        let start = run.first * piece_bytes;
        let end = start + u64::from(run.count) * piece_bytes;
        self.unread.clear();
        self.bytes.clear();
        self.bytes.resize((end - start) as usize, 0);
        for index in self.data.files_in(start, end) {
            let file = &self.data.files[index];
            let part = file.start.max(start)..file.end().min(end);
            if part.is_empty() {
                continue;
            }
            let offset = part.start - file.start;
            let (from, to) = ((part.start - start) as usize, (part.end - start) as usize);
            if let Err(error) = self.read_part(index, offset, from, to) {
                if !self.tolerant || error.is::<Changed>() {
                    return Err(error);
                }
                self.bytes[from..to].fill(0);
                self.read_pieces(index, part, start);
            }
        }
        Ok(())
    }

    /// Reads each piece by itself, as far as it can be read.
    fn read_pieces(&mut self, index: usize, part: std::ops::Range<u64>, start: u64) {
        let piece_bytes = u64::from(self.data.geometry.piece_bytes);
        let file_start = self.data.files[index].start;
        for piece in part.start / piece_bytes..part.end.div_ceil(piece_bytes) {
            let from = (piece * piece_bytes).max(part.start);
            let to = ((piece + 1) * piece_bytes).min(part.end);
            let place = (from - start) as usize..(to - start) as usize;
            if self.read_part(index, from - file_start, place.start, place.end).is_err() {
                self.bytes[place].fill(0);
                if self.unread.last() != Some(&piece) {
                    self.unread.push(piece);
                }
            }
        }
    }

    /// Reads bytes of a file to `from..to`.
    fn read_part(&mut self, index: usize, offset: u64, from: usize, to: usize) -> Result<()> {
        let (name, path) = {
            let file = &self.data.files[index];
            (&file.name, || self.data.tree.path(&file.name).display().to_string())
        };
        if self.last.as_ref().is_none_or(|(last, ..)| *last != index) {
            let (file, stat) = self.data.tree.read(name).with_context(path)?;
            self.data.check(index, &stat)?;
            let is_direct = self.direct.is_some() && make_direct(&file);
            self.last = Some((index, file, is_direct));
        }
        let Some((_, file, is_direct)) = &self.last else { return Ok(()) };
        let target = &mut self.bytes[from..to];
        match (&mut self.direct, is_direct) {
            (Some(buffer), true) => {
                let aligned = offset / ALIGN * ALIGN;
                let skip = (offset - aligned) as usize;
                let want = (skip + target.len()).next_multiple_of(ALIGN as usize);
                read_to_end(file, aligned, &mut buffer[..want], skip + target.len())
                    .with_context(path)?;
                target.copy_from_slice(&buffer[skip..skip + target.len()]);
            }
            _ => {
                let want = target.len();
                read_to_end(file, offset, target, want).with_context(path)?;
            }
        }
        if self.data.fingerprints.is_some() {
            let stat = rustix::fs::fstat(file).map_err(io::Error::from).with_context(path)?;
            self.data.check(index, &stat)?;
        }
        Ok(())
    }
}

/// A file that changes is no damage.
#[derive(Debug)]
struct Changed(String);

impl std::fmt::Display for Changed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Changed {}

fn make_direct(file: &StdFile) -> bool {
    rustix::fs::fcntl_setfl(file, OFlags::DIRECT).is_ok()
}

/// Reads until at least `least` bytes are there.
fn read_to_end(file: &StdFile, offset: u64, buffer: &mut [u8], least: usize) -> io::Result<()> {
    let mut have = 0;
    while have < least {
        match file.read_at(&mut buffer[have..], offset + have as u64) {
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "it is shorter than it was",
                ));
            }
            Ok(n) => have += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Drops a file from the page cache, so that it is read from its device.
pub(crate) fn drop_cached(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}
