//! What a tree of files costs: walking it, opening, reading and closing each file, hashing as many bytes in
//! as many pieces, and `ringsum -r`, which does all of it at once.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::{iter, thread};

use anyhow::bail;
use blockring::{Config, Plan, ReaderKind, RunOptions, Source};
use ringsum::files::walk::{Entry, Kind, Walk, WalkOptions};
use ringsum::{Mode, MultiBuffer};

use crate::model::case::{Case, Chart, Group, Metric, Missing, Sample};
use crate::model::comparison::SAMPLES_MIN;
use crate::model::environment::processors;
use crate::model::units::show_scaled;
use crate::runner::process::Pipeline;
use crate::runner::{Cache, Cost, GroupPlan, Rounds, Stopwatch, each_file, interrupt, together};
use crate::workloads::peers;

pub(super) const COLD: &str = "a tree, cold";
pub(super) const WARM: &str = "a tree, warm";
pub(super) const WALKED: &str = "walked";
pub(super) const OPENED: &str = "opened";
pub(super) const HASHED: &str = "hashed in memory";
pub(super) const RINGSUM: &str = "ringsum -r";

/// The start of the names of cases that read.
pub(super) const READ: &str = "read by";

/// A round reads the whole tree several times.
const TREE_ROUNDS: Rounds = Rounds { min: SAMPLES_MIN as u32, max: 9 };

/// Bytes of a read, and of what is hashed at once.
const BLOCK_BYTES: usize = 256 << 10;

/// Entries of the walk that are sorted by inode, as `ringsum` does: their inodes lie side by side on the disk.
const SORTED: usize = 4096;

/// Files that a plan looks at.
const SAMPLES: usize = 12;

/// Files up to this length are hashed many at a time, as `ringsum` does.
const SHORT_BYTES_MAX: u64 = 16 << 10;
const SHORT_AT_ONCE: usize = 32;

/// Bytes and files that are hashed in one sample, at most, if that is more than once: 0.1 s and more.
const HASHED_BYTES: u64 = 1 << 30;
const HASHED_FILES: u64 = 1 << 20;

/// Time of walking to a file, opening and closing it, estimated, in seconds.
const FILE_S: f64 = 20e-6;

pub(super) struct Tree {
    path: PathBuf,
    lengths: Vec<u64>,
    bytes: u64,
    /// Some of its files, for plans.
    samples: Vec<PathBuf>,
    ringsum: Result<PathBuf, String>,
}

/// What a sample does with each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Walk,
    Open,
    /// `read`, through the page cache.
    Read,
    /// The ring of each thread, as `ringsum` reads short files.
    Ring,
}

/// The files that a walk has found, for several threads.
struct Found(Mutex<iter::Flatten<mpsc::IntoIter<Vec<Entry>>>>);

impl Found {
    fn next(&self) -> Option<Entry> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.next().filter(|_| !interrupt::is_interrupted())
    }
}

impl Tree {
    pub(super) fn new(path: &Path) -> anyhow::Result<Tree> {
        if !path.is_dir() {
            bail!("--tree {}: not a folder", path.display());
        }
        let (path, mut files) = (path.canonicalize()?, Vec::new());
        each_file(std::slice::from_ref(&path), &mut |path, file| {
            files.extend(file.metadata().map(|metadata| (path.to_owned(), metadata.len())));
        })?;
        let full: Vec<_> = files.iter().filter(|(_, length)| *length > 0).collect();
        if full.is_empty() {
            bail!("--tree {}: there are no bytes to hash", path.display());
        }
        let samples = full.iter().step_by(full.len().div_ceil(SAMPLES));
        let samples = samples.map(|(path, _)| path.clone()).collect();
        let ringsum = peers::find_ringsum(None).map_err(|error| format!("{error:#}"));
        let lengths: Vec<u64> = files.into_iter().map(|(_, length)| length).collect();
        Ok(Tree { path, bytes: lengths.iter().sum(), lengths, samples, ringsum })
    }

    fn files(&self) -> u64 {
        self.lengths.len() as u64
    }

    pub(super) fn groups(&self) -> [GroupPlan<'_>; 2] {
        [
            self.group(COLD, Cache::Cold, &[(16, Step::Read), (64, Step::Read), (16, Step::Ring)]),
            self.group(WARM, Cache::Warm, &[(processors(), Step::Read), (16, Step::Read)]),
        ]
    }

    fn group(&self, name: &str, cache: Cache, reads: &[(u32, Step)]) -> GroupPlan<'_> {
        let state = if cache == Cache::Cold { "cold" } else { "warm" };
        let about = format!(
            "The time per file of {} ({} files, {}B): walking the folders; opening and closing each file, too; \
             reading it, too; and ringsum.",
            self.path.display(),
            self.files(),
            show_scaled(self.bytes as f64)
        );
        let group = Group::new(name, about, Metric::NsPerOperation, Chart::Bars);
        let mut plan = GroupPlan::new(group, std::slice::from_ref(&self.path), TREE_ROUNDS);
        let files = Cost::memory(FILE_S * self.files() as f64);
        let mut bytes = Cost::read(self.bytes);
        bytes.add(files, 1);
        for (name, step) in [(WALKED, Step::Walk), (OPENED, Step::Open)] {
            let case = Case::new(name).with("threads", 16);
            plan.add(case, cache, files, move || self.walk(step, 16));
        }
        for &(count, step) in reads {
            let what = if step == Step::Ring { "rings of " } else { "" };
            let case = Case::new(format!("{READ} {what}{count} threads")).with("threads", count);
            let case = case.with("cache state", state).with("files", self.files());
            plan.add(case, cache, bytes, move || self.walk(step, count));
        }
        if cache == Cache::Warm {
            let case = Case::new(HASHED).with("threads", processors());
            plan.add(case, Cache::Any, Cost::memory(0.3), move || self.hash(processors()));
        }
        let case = Case::new(RINGSUM).with("cache state", state).with("files", self.files());
        match &self.ringsum {
            Ok(ringsum) => {
                let words = [ringsum.as_os_str(), "-r".as_ref(), self.path.as_os_str()];
                let command = Pipeline::new(words);
                plan.add(case.with("command", command.show()), cache, bytes, move || {
                    let (sample, _) = command.run()?;
                    Ok(Sample { bytes: self.bytes, operations: self.files(), ..sample })
                });
            }
            Err(why) => plan.add_missing(case, why),
        }
        plan
    }

    /// Walks the tree while `threads` go on with its files.
    fn walk(&self, step: Step, threads: u32) -> Result<Sample, Missing> {
        let clock = Stopwatch::start();
        let (sender, receiver) = mpsc::channel();
        let found = Found(Mutex::new(receiver.into_iter().flatten()));
        let plan = (step == Step::Ring).then(|| self.plan()).transpose()?;
        thread::scope(|scope| {
            let (found, plan) = (&found, &plan);
            let read = || match plan {
                Some(plan) => read_by_ring(plan, found),
                None => read_each(step, found),
            };
            let threads = if step == Step::Walk { 0 } else { threads };
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(read)).collect();
            let walk = Walk::new(&self.path, &WalkOptions::default())?;
            let mut walk = walk.filter(|entry| matches!(entry.kind(), Kind::File));
            let mut files = 0;
            loop {
                let mut entries: Vec<Entry> = walk.by_ref().take(SORTED).collect();
                if entries.is_empty() {
                    break;
                }
                files += entries.len() as u64;
                entries.sort_unstable_by_key(Entry::id);
                // The threads have ended only if all of them failed, which they report.
                let _ = sender.send(entries);
            }
            drop(sender);
            let panicked = |_| Missing::Failed("a thread panicked".to_owned());
            let bytes = handles.into_iter().map(|handle| handle.join().map_err(panicked)?);
            let bytes = bytes.sum::<Result<u64, Missing>>()?;
            Ok(clock.sample(bytes, files))
        })
    }

    fn plan(&self) -> Result<Plan, Missing> {
        let samples: Result<Vec<Source>, _> = self.samples.iter().map(Source::open).collect();
        Ok(Plan::choose_for_files(&samples?, &Config::default(), &RunOptions::default())?)
    }

    /// Hashes as many bytes, in memory that stays in the caches of a processor.
    fn hash(&self, threads: u32) -> Result<Sample, Missing> {
        let mut batches: Vec<Vec<usize>> = Vec::new();
        for &length in &self.lengths {
            if length <= SHORT_BYTES_MAX {
                match batches.last_mut() {
                    Some(last) if last.len() < SHORT_AT_ONCE => last.push(length as usize),
                    _ => batches.push(vec![length as usize]),
                }
            }
        }
        for &length in self.lengths.iter().filter(|length| **length > SHORT_BYTES_MAX) {
            let pieces = (0..length).step_by(BLOCK_BYTES);
            batches.extend(pieces.map(|at| vec![(length - at).min(BLOCK_BYTES as u64) as usize]));
        }
        let passes = (HASHED_BYTES / self.bytes).min(HASHED_FILES / self.files()).max(1);
        let (next, all) = (AtomicUsize::new(0), batches.len() * passes as usize);
        let (_, sample) = together(
            0..threads,
            |_| Ok((vec![7; BLOCK_BYTES], MultiBuffer::new(&Mode::Hash))),
            |(memory, hasher), _| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= all || interrupt::is_interrupted() {
                        return Ok(());
                    }
                    match &batches[number % batches.len()][..] {
                        [length] => _ = std::hint::black_box(blake3::hash(&memory[..*length])),
                        lengths => {
                            let inputs: Vec<_> =
                                lengths.iter().map(|len| &memory[..*len]).collect();
                            std::hint::black_box(hasher.hash(&inputs));
                        }
                    }
                }
            },
        )?;
        Ok(Sample { bytes: self.bytes * passes, operations: self.files() * passes, ..sample })
    }
}

/// Opens each file, looks up its length, and reads it, if that is wanted. Returns the number of bytes.
fn read_each(step: Step, found: &Found) -> Result<u64, Missing> {
    let (mut block, mut bytes) = (vec![0; BLOCK_BYTES], 0);
    while let Some(entry) = found.next() {
        let mut file = entry.open()?;
        let length = file.metadata()?.len();
        let mut left = if step == Step::Read { length } else { 0 };
        while left > 0 {
            match file.read(&mut block)? as u64 {
                0 => break,
                count => (bytes, left) = (bytes + count, left.saturating_sub(count)),
            }
        }
    }
    Ok(bytes)
}

/// The same with the ring of this thread, which has reads of several files in flight.
fn read_by_ring(plan: &Plan, found: &Found) -> Result<u64, Missing> {
    let failed = Mutex::new(None);
    let fail = |missing: Missing| {
        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(missing);
    };
    let open = || {
        let entry = found.next()?;
        let source = entry.open().map_err(Missing::from);
        let source = source.and_then(|file| Ok(Source::from_file(file, "a file of the tree")?));
        source.map_err(&fail).ok().map(|source| (source, None, ()))
    };
    let mut bytes = 0;
    let mut reader = plan.reader(ReaderKind::Small)?;
    let queue = plan.queue(ReaderKind::Small, open);
    let block = |(): &(), block: blockring::Block<'_>| {
        bytes += block.bytes.len() as u64;
        Ok(())
    };
    reader.read(&queue, block, |(), _, result| _ = result.map_err(|error| fail(error.into())))?;
    drop(queue);
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(bytes), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_reaches_all_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("below")).unwrap();
        for (name, length) in [("a", 10), ("below/b", 300_000), ("below/c", 20_000)] {
            std::fs::write(folder.path().join(name), vec![1; length]).unwrap();
        }
        assert!(Tree::new(&folder.path().join("a")).is_err());
        let tree = Tree::new(folder.path()).unwrap();
        assert_eq!((tree.files(), tree.bytes), (3, 320_010));
        let walk = |step| {
            let sample = tree.walk(step, 2).unwrap();
            (sample.operations, sample.bytes)
        };
        assert_eq!(walk(Step::Walk), (3, 0));
        assert_eq!(walk(Step::Open), (3, 0));
        assert_eq!(walk(Step::Read), (3, 320_010));
        assert_eq!(walk(Step::Ring), (3, 320_010));
        let hashed = tree.hash(2).unwrap();
        assert_eq!(hashed.bytes / hashed.operations, 320_010 / 3);
    }
}
