//! Reading the data by runs of pieces: of one file as extents of a plan, of many files on a few
//! threads, each of which has the files of a run in flight together.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use blockring::{
    CacheMode, Config, ErrorKind, Extent, Fingerprint, Plan, ReaderKind, RunOptions, Source,
};
use rustix::fs::Stat;

use crate::format::File;
use crate::geometry::{Geometry, Run};
use crate::lock;
use crate::run_reader::RunReader;
use crate::tree::Tree;

/// Threads that read many files.
const THREADS: usize = 8;

/// Times that the reads of a file start again after a read error. Then the rest is read run by run.
const FAILURES_MAX: u32 = 100;

/// Shortest piece that is read as an extent of its own, in bytes: the alignment of direct reads that
/// every device accepts. Shorter ones are read together.
const EXTENT_BYTES_MIN: u32 = 4096;

/// Most memory of the blocks of one file, in bytes. (Every read in flight can keep a chunk of the code open,
/// which takes 16 times as much. Without a limit, `create` of 16 GiB of holes took 116 MiB; with it, 80.)
const MEMORY_BYTES: u64 = 16 << 20;

/// How one file is read if nothing about it is explicit.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Threads besides the first.
    workers: u32,
    /// Reads in flight of each.
    depth: u32,
    run_bytes: u32,
}

/// To copy: each thread waits for its writes, and the file system works for each write. (`repair` of 1 GiB,
/// minimum and median: 1.49 and 1.67 s with 8 reads of 128 KiB, 1.40 and 1.44 with 4 of 256 KiB; 1.50 and 1.55
/// with 4 threads, 1.44 and 1.58 with 8.)
const COPY: Shape = Shape { workers: 5, depth: 4, run_bytes: 256 << 10 };

/// To compute what was lost: meanwhile, a thread keeps the chunks open that its reads belong to.
const RECOVER: Shape = Shape { workers: 1, depth: 8, run_bytes: 128 << 10 };

/// Files that a plan for many is chosen from.
const SAMPLES: usize = 12;

/// How to read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reading {
    pub(crate) config: Config,
    /// Bytes of a run.
    pub(crate) run_bytes: u32,
    /// For one file.
    shape: Option<Shape>,
}

impl Reading {
    /// Returns how to read one file if what is lost is computed; and if `copies`, all else is written
    /// elsewhere at once.
    pub(crate) fn recovering(&self, copies: bool) -> Reading {
        let Config { io, memory, .. } = &self.config;
        if (io.workers, io.queue_depth, memory.limit_bytes) != (None, None, None) {
            return self.clone();
        }
        let shape = if copies { COPY } else { RECOVER };
        let run_bytes = io.block_bytes.unwrap_or(shape.run_bytes);
        Reading { shape: Some(shape), run_bytes, ..self.clone() }
    }
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

/// Returns the fingerprint of a file.
pub(crate) fn fingerprint(stat: &Stat) -> Fingerprint {
    Fingerprint {
        inode: stat.st_ino,
        mode: stat.st_mode,
        len: stat.st_size as u64,
        mtime: (stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime: (stat.st_ctime, stat.st_ctime_nsec as i64),
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
        if self.geometry.piece_bytes < EXTENT_BYTES_MIN {
            return self.read_by_run(runs, tolerant, consume);
        }
        let path = self.tree.path(&file.name);
        let source = match self.open(0, CacheMode::Buffered) {
            Ok(source) => source,
            Err(error) if tolerant && !error.is::<Changed>() => {
                return self.read_by_run(runs, tolerant, consume);
            }
            Err(error) => return Err(error),
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
        let plan = self.plan_for_runs(&source, longest)?;
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
        self.read_by_run(&left, tolerant, consume)
    }

    /// Plans the reads of one file, by runs of at most `longest` bytes.
    fn plan_for_runs(&self, source: &Source, longest: u32) -> Result<Plan> {
        let config = self.reading.config.clone().with(|config| {
            let block = longest.next_multiple_of(EXTENT_BYTES_MIN).max(EXTENT_BYTES_MIN);
            config.io.block_bytes.get_or_insert(block);
        });
        ensure!(
            config.io.block_bytes.is_none_or(|bytes| bytes >= longest),
            "--io block-size: a piece of this sidecar has {longest} bytes, so blocks must be as long"
        );
        let choose = |config: &Config| Plan::choose(source, config, &RunOptions::default());
        let limited = config.clone().with(|config| {
            if (config.io.workers, config.io.queue_depth) == (None, None) {
                let bytes = MEMORY_BYTES.max(u64::from(longest) * 32);
                config.memory.limit_bytes.get_or_insert(bytes);
            }
        });
        let Some(Shape { workers, depth, .. }) = self.reading.shape else {
            return Ok(choose(&limited)?);
        };
        let plan = choose(&config.with(|config| {
            (config.io.workers, config.io.queue_depth) = (Some(workers), Some(depth));
        }))?;
        // (There, several threads would only add seeks.)
        Ok(if plan.is_rotational() { choose(&limited)? } else { plan })
    }

    /// Explains how the data are read.
    pub(crate) fn explain(&self) -> Result<String> {
        let [_] = self.files else {
            let plan = self.plan_for_files()?;
            return Ok(plan.map_or(String::new(), |plan| plan.to_string()));
        };
        let source = self.open(0, CacheMode::Buffered)?;
        let config = self.reading.config.clone().with(|config| {
            config.io.block_bytes.get_or_insert(self.reading.run_bytes);
        });
        Ok(Plan::choose(&source, &config, &RunOptions::default())?.to_string())
    }

    /// Opens a file, which must be as it was if fingerprints are known.
    pub(crate) fn open(&self, index: usize, mode: CacheMode) -> Result<Source> {
        let name = &self.files[index].name;
        let path = self.tree.path(name);
        let file = self.tree.open_file(name, mode).with_context(|| path.display().to_string())?;
        let source = Source::from_exclusive(file, &path, mode)?;
        ensure!(
            source.kind() == blockring::SourceKind::File,
            "{}: it is not a regular file",
            path.display()
        );
        match self.fingerprints.map(|all| all[index]) {
            Some(before) if before != source.fingerprint() => Err(Changed::new(
                &path.display().to_string(),
                before.len,
                source.fingerprint().len,
            ))?,
            _ => Ok(source),
        }
    }

    /// Chooses how many files are read; `None` if there is none that can be opened.
    pub(crate) fn plan_for_files(&self) -> Result<Option<Plan>> {
        let step = (self.files.len() / SAMPLES).max(1);
        let samples = (0..self.files.len()).filter(|index| self.files[*index].len > 0);
        let sources = samples.step_by(step).filter_map(|index| {
            let source = self.open(index, CacheMode::Buffered).ok()?;
            source.len().is_some_and(|len| len > 0).then_some(source)
        });
        let sources: Vec<_> = sources.take(SAMPLES).collect();
        if sources.is_empty() {
            return Ok(None);
        }
        let config = self.reading.config.clone();
        Ok(Some(Plan::choose_for_files(&sources, &config, &RunOptions::default())?))
    }

    /// Reads runs one after another, piece by piece where necessary.
    fn read_by_run(&self, runs: &[Run], tolerant: bool, consume: &Consume<'_>) -> Result<()> {
        let mut reader = RunReader::new(self, None, tolerant)?;
        runs.iter().try_for_each(|run| consume(reader.read(run)?))
    }

    fn read_many(&self, runs: &[Run], tolerant: bool, consume: &Consume<'_>) -> Result<()> {
        let plan = self.plan_for_files()?;
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || -> Result<()> {
            let mut reader = RunReader::new(self, plan.as_ref(), tolerant)?;
            while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                consume(reader.read(run)?)?;
            }
            Ok(())
        };
        let guarded = || {
            if let Err(error) = work() {
                next.store(runs.len(), Ordering::Relaxed);
                lock(&failed).get_or_insert(error);
            }
        };
        let threads = self.threads(plan.as_ref());
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

    /// Returns the number of threads that read many files: one if the disk is rotational, and no
    /// more than have room in a quarter of the memory.
    fn threads(&self, plan: Option<&Plan>) -> usize {
        let Some(plan) = plan.filter(|plan| !plan.is_rotational()) else { return 1 };
        let config = &self.reading.config;
        if let Some(workers) = config.io.workers {
            return workers as usize + 1;
        }
        let limit = config.memory.limit_bytes.unwrap_or(16 << 20);
        let each = plan.reader_bytes(ReaderKind::Small) + u64::from(self.reading.run_bytes);
        THREADS.min((limit / each.max(1)).max(2) as usize)
    }
}

/// A file that changes is no damage.
#[derive(Debug)]
pub(crate) struct Changed(String);

impl Changed {
    fn new(path: &str, before: u64, now: u64) -> Changed {
        let what = match before == now {
            true => "its times changed".to_owned(),
            false => format!("its length changed from {before} to {now} bytes"),
        };
        Changed(format!(
            "{path}: changed while it was read ({what}); try again when no process writes to it"
        ))
    }
}

impl std::fmt::Display for Changed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Changed {}

/// Drops a file from the page cache, so that it is read from its device.
pub(crate) fn drop_cached(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}
