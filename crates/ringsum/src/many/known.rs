//! What need not be read: files whose hashes are known, and empty ones. It owns what is done until there is a file
//! with content, by which to choose how a device is read; from then on others look at what is known, too.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use blockring::Source;

use super::lane::{Batch, Lane, descriptors, descriptors_are_few, hash_empty};
use super::sequence::Run;
use super::ticket::{Ticket, finish_all, finish_opened, open};
use super::{Found, Hashed};

/// Files that a device is judged by. Two of them are read, where it does not turn and nobody else is at work.
const SAMPLES: usize = 12;

/// Threads that look at what is known, per processor. An unchanged tree of 130,000 files in the page cache took 0.82 s
/// with one thread, 0.67 s with one for each of two processors, 0.64 s with two, 0.63 s with four; not in the page cache
/// 1.91, 1.49, 1.58 and 1.59 s.
const THREADS_PER_CORE: usize = 2;

/// The hash of a ticket's file, if that is known.
pub(super) fn known_hash<T: Send>(run: &Run<'_, T>, ticket: &Ticket<T>) -> Option<Hashed> {
    let known = run.options.known?;
    let (device, stamp) = ticket.task().file.as_ref()?.stat()?;
    let hash = known(&ticket.task().tag, device, &stamp)?;
    Some(Hashed { found: Found::Known(hash.into()), stamp: Some(stamp), device })
}

/// Those of a batch whose hashes are not known. The others are done.
pub(super) fn without<T: Send>(run: &Run<'_, T>, batch: Batch<T>) -> Batch<T> {
    if run.options.known.is_none() {
        return batch;
    }
    let mut known = Vec::with_capacity(batch.len());
    let mut unknown = Vec::new();
    for ticket in batch {
        if run.is_stopped() {
            break;
        }
        match known_hash(run, &ticket) {
            Some(hashed) => known.push((ticket, hashed)),
            None => unknown.push(ticket),
        }
    }
    if !known.is_empty() {
        finish_all(run, known);
    }
    unknown
}

/// The first batch with files to be read, and some of these. All files before them are done; `None`: all of the
/// lane are.
pub(super) fn first_to_read<T: Send>(
    run: &Run<'_, T>,
    lane: &Lane<T>,
) -> Option<(Batch<T>, Vec<Source>)> {
    loop {
        let Some(batch) = look_together(run, lane) else {
            // One that helped may have put something back after there was nothing more to come.
            match lane.batches.len() {
                0 => return None,
                _ => continue,
            }
        };
        // Opened when nobody looks any more: who looks may wait for a descriptor, and be waited for.
        let samples = samples(&batch, SAMPLES);
        if !samples.is_empty() {
            return Some((batch, samples));
        }
        hash_all_empty(run, batch);
    }
}

/// Looks for the first batch with files to be read. Where hashes are known, threads help while there is more than one
/// can look at.
fn look_together<T: Send>(run: &Run<'_, T>, lane: &Lane<T>) -> Option<Batch<T>> {
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    let most = run.options.hash.config.threads_max.map_or(usize::MAX, |most| most as usize);
    let most = match run.options.known {
        Some(_) if !descriptors_are_few() => {
            // Each has a file open, and a directory at times.
            let most = most.min(descriptors() as usize / 2);
            most.min(lane.share.jobs).min(THREADS_PER_CORE * cores)
        }
        _ => 1,
    };
    let looking = AtomicUsize::new(1);
    let is_over = AtomicBool::new(false);
    let help = || {
        while !is_over.load(Ordering::Relaxed)
            && let Some(batch) = lane.batches.try_pop()
        {
            if let Some(batch) = look(run, batch) {
                is_over.store(true, Ordering::Relaxed);
                lane.batches.push_first(batch);
            }
        }
        looking.fetch_sub(1, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        while let Some(batch) = lane.batches.pop(&mut || ()) {
            if looking.load(Ordering::Relaxed) < most
                && !is_over.load(Ordering::Relaxed)
                && lane.batches.is_behind()
            {
                looking.fetch_add(1, Ordering::Relaxed);
                if thread::Builder::new().spawn_scoped(scope, help).is_err() {
                    looking.fetch_sub(1, Ordering::Relaxed);
                }
            }
            if let found @ Some(_) = look(run, batch) {
                is_over.store(true, Ordering::Relaxed);
                return found;
            }
        }
        None
    })
}

/// What is to be read of a batch; `None` if nothing is. All else is done.
fn look<T: Send>(run: &Run<'_, T>, batch: Batch<T>) -> Option<Batch<T>> {
    let batch = without(run, batch);
    if !samples(&batch, 1).is_empty() {
        return Some(batch);
    }
    hash_all_empty(run, batch);
    None
}

/// Hashes files without content.
fn hash_all_empty<T: Send>(run: &Run<'_, T>, batch: Batch<T>) {
    for ticket in batch {
        if let Some((ticket, source)) = open(run, ticket, false) {
            let result = hash_empty(run, &ticket, &source);
            finish_opened(run, ticket, &source, result);
        }
    }
}

/// Some files with content, `most` of them, far from each other in the batch.
fn samples<T>(batch: &Batch<T>, most: usize) -> Vec<Source> {
    let stride = (batch.len() / SAMPLES).max(1);
    let places = (0..stride).flat_map(|first| (first..batch.len()).step_by(stride));
    let files = places.filter_map(|place| batch.get(place)?.task().file.as_ref());
    let sources = files.filter_map(|file| file.open().ok());
    sources.filter(|source| source.len().is_some()).take(most).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs;
    use std::sync::Mutex;
    use std::time::Duration;

    use blockring::Config;

    use super::super::{Failure, ManyOptions, Task, hash_many, lock, look_at};
    use super::*;
    use crate::Options;

    /// Enough for some dozen batches.
    const FILES: usize = 2000;

    fn content(i: usize) -> Vec<u8> {
        // Empty ones are never read through a ring.
        if i.is_multiple_of(3) { Vec::new() } else { i.to_string().into_bytes() }
    }

    /// Each file is told of once, in its turn, as known or as it was read, wherever those are that are to be read and
    /// whoever comes across them.
    #[test]
    fn known_and_read_files_come_in_their_turn() {
        let folder = tempfile::tempdir().unwrap();
        for i in 0..FILES {
            fs::write(folder.path().join(i.to_string()), content(i)).unwrap();
        }
        type Unknown = fn(usize) -> bool;
        let cases: [(&str, Unknown); 8] = [
            ("none", |_| false),
            ("the first", |i| i == 1),
            ("the last", |i| i == FILES - 1),
            ("in the midst", |i| i == 1024),
            ("some, far from each other", |i| i % 500 == 499),
            ("one of each batch", |i| i % 64 == 40),
            ("the second batch", |i| (64..128).contains(&i)),
            ("all from the midst on", |i| i >= FILES / 2),
        ];
        for (name, is_unknown) in cases {
            for threads_max in [None, Some(1), Some(8)] {
                check(folder.path(), is_unknown, threads_max, &format!("{name}, {threads_max:?}"));
            }
        }
    }

    fn check(
        folder: &std::path::Path,
        is_unknown: fn(usize) -> bool,
        threads_max: Option<u32>,
        name: &str,
    ) {
        let looked = Mutex::new(HashSet::new());
        let (open_most, is_read) = (AtomicUsize::new(0), AtomicBool::new(false));
        let known = |&i: &usize, _: u64, _: &blockring::Stamp| {
            // Somebody waits for a disk: others get ahead.
            if i.is_multiple_of(64) && !is_unknown(i) {
                std::thread::sleep(Duration::from_millis(1));
                if !is_read.load(Ordering::Relaxed) {
                    open_most.fetch_max(open_below(folder), Ordering::Relaxed);
                }
            }
            lock(&looked).insert(std::thread::current().id());
            (!is_unknown(i)).then_some([7; 32])
        };
        let config = Config { threads_max, ..Config::default() };
        let hash = Options { config, ..Options::default() };
        let alone = |task: &Task<usize>| {
            let file = task.file.as_ref().expect("each is a file");
            let bytes = fs::read(folder.join(task.tag.to_string())).map_err(Failure::Open)?;
            let source = file.open()?;
            Ok(Hashed::read(Found::Hash(blake3::hash(&bytes)), &source))
        };
        let options = ManyOptions {
            known: Some(&known),
            device: &|_, _| is_read.store(true, Ordering::Relaxed),
            ..ManyOptions::new(&hash, &alone)
        };
        let tasks = (0..FILES)
            .map(|tag| Some(Task { tag, file: look_at(&folder.join(tag.to_string())).unwrap() }));
        let mut next = 0;
        let told = hash_many(
            tasks,
            &options,
            |outcome| {
                let i = outcome.task.tag;
                assert_eq!(i, next, "{name}");
                next += 1;
                let hashed = outcome.result.expect("each is a file").expect("each can be read");
                let expected = match is_unknown(i) {
                    true => blake3::hash(&content(i)),
                    false => [7; 32].into(),
                };
                assert_eq!(hashed.hash(), Some(expected), "{name}: {i}");
                assert_eq!(matches!(hashed.found, Found::Known(_)), !is_unknown(i), "{name}: {i}");
                Ok::<(), ()>(())
            },
            None,
        );
        told.unwrap();
        assert_eq!(next, FILES, "{name}");
        let looked = looked.into_inner().unwrap().len();
        assert!(threads_max != Some(1) || looked == 1, "{name}: {looked} threads looked");
        // Who has more keeps them from those for whom it waits.
        let cores = thread::available_parallelism().map_or(1, |n| n.get());
        let open_most = open_most.into_inner();
        assert!(open_most <= THREADS_PER_CORE * cores, "{name}: {open_most} files were open");
    }

    /// How many files of a folder are open.
    fn open_below(folder: &std::path::Path) -> usize {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let paths = links.filter_map(|link| fs::read_link(link.ok()?.path()).ok());
        paths.filter(|path| path.starts_with(folder)).count()
    }
}
