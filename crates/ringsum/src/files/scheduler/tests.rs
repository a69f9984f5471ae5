//! The scheduler with refused threads and readers: every job is reported, in order, with its hash.
//!
//! The job that all others wait for is a large file, which other threads than the first should read; and
//! there are more jobs than the reorder buffer holds.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use blockring::{CacheMode, Config, HugePages};

use super::dispatch::Run;
use super::{FilesOptions, Hashed, InputFile, Job, Outcome, UNREPORTED_MAX};
use crate::{Algorithm, Algorithms, Digests, Options, digest_file};

/// Which threads are refused.
pub(super) enum Refusals {
    /// All but the first `n`.
    AllAfter(AtomicU32),
    /// One in two, at random.
    Random(AtomicU64),
}

impl Refusals {
    /// Whether the next thread is refused.
    pub(super) fn next(&self) -> bool {
        match self {
            Refusals::AllAfter(left) => {
                let less = |n: u32| n.checked_sub(1);
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err()
            }
            // (A step of a linear congruential generator.)
            Refusals::Random(state) => {
                let step = |n: u64| n.wrapping_mul(6364136223846793005).wrapping_add(1);
                let next = |n| Some(step(n));
                let old = state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
                old.is_ok_and(|old| step(old) >> 63 == 1)
            }
        }
    }
}

/// Lengths of the files, by their number modulo the number of lengths.
const LENS: [usize; 7] = [3 << 20, 0, 100, 5000, 60_000, 1 << 20, 1];

/// More than the reorder buffer holds, twice over.
const JOBS: usize = 2 * UNREPORTED_MAX + 100;

/// Longer than any run takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the large files are: all at the start, or every now and then.
fn file_of(job: usize) -> usize {
    match job {
        0..3 => 0,
        _ if job.is_multiple_of(400) => 5,
        _ => 1 + job % 4,
    }
}

fn run(name: &str, directory: &Path, options: Options, refusals: Refusals, has_retry: bool) {
    let paths: Vec<PathBuf> = (0..LENS.len()).map(|i| directory.join(i.to_string())).collect();
    let plain = Options { algorithms: options.algorithms, ..Options::default() };
    let expected: Vec<Digests> =
        paths.iter().map(|path| digest_file(path, &plain).unwrap()).collect();
    let hash_one = |job: &Job<usize>| {
        let file = job.file.as_ref().expect("each is a file");
        let source = file.open()?;
        Ok(Hashed::new(crate::digest_source(&source, &plain)?, &source))
    };
    let never = |_: &Job<usize>, _| None;
    let options = FilesOptions {
        retry_after: has_retry.then_some(&never),
        ..FilesOptions::new(&options, &hash_one)
    };
    let jobs = (0..JOBS).map(|tag| {
        let file = InputFile::from_path(&paths[file_of(tag)]).unwrap();
        Some(Job { tag, file })
    });
    let next = AtomicU64::new(0);
    let report = |outcome: Outcome<usize>| {
        let tag = outcome.job.tag;
        assert_eq!(next.fetch_add(1, Ordering::Relaxed), tag as u64, "{name}: in order");
        let hashed = outcome.result.expect("each is a file").expect("each can be read");
        let (found, expected) = (&hashed.digests, &expected[file_of(tag)]);
        assert_eq!(found.len(), expected.len(), "{name}");
        for (found, expected) in found.iter().zip(expected.iter()) {
            assert_eq!(found.to_vec(), expected.to_vec(), "{name}: job {tag}");
        }
        true
    };
    let mut run = Run::new(&options, &report);
    run.refusals = Some(refusals);
    run.run(jobs, None);
    assert_eq!(next.into_inner(), JOBS as u64, "{name}");
}

#[test]
fn every_job_is_reported_whichever_threads_are_refused() {
    // On a disk, as far as the sources are on one and may be written to: elsewhere no read is direct.
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR"));
    let directory = directory.or_else(|_| tempfile::tempdir()).unwrap();
    for (i, len) in LENS.into_iter().enumerate() {
        let content: Vec<u8> = (0..len).map(|at| ((at + i) % 251) as u8).collect();
        fs::write(directory.path().join(i.to_string()), content).unwrap();
    }
    let direct = Config::default().with(|config| config.io.cache = Some(CacheMode::Direct));
    let limited = direct.clone().with(|config| config.memory.limit_bytes = Some(12 << 20));
    // No reader can be made: there are no such pages.
    let without_memory =
        direct.clone().with(|config| config.memory.huge_pages = HugePages::Hugetlb);
    let md5 = Algorithms::from(Algorithm::Md5);
    let blake3 = Algorithms::default();
    let cases = [
        ("cached", Config::default(), blake3),
        ("direct", direct.clone(), blake3),
        ("direct, limited memory", limited, blake3),
        ("no memory for readers", without_memory, blake3),
        ("direct, in order", direct, md5),
    ];
    for (name, config, algorithms) in cases {
        let refusals = (0..8).map(|n| (format!("{name}, {n} threads"), true, n));
        let seeds = (0..6).map(|seed| (format!("{name}, seed {seed}"), false, seed));
        for (name, is_first, n) in refusals.chain(seeds) {
            let options = Options { algorithms, config: config.clone(), ..Options::default() };
            let refusals = match is_first {
                true => Refusals::AllAfter(n.into()),
                false => Refusals::Random(u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15).into()),
            };
            let directory = directory.path().to_owned();
            let (done, is_done) = mpsc::channel();
            let has_retry = n % 2 == 0;
            let shown = name.clone();
            let worker = thread::spawn(move || {
                run(&name, &directory, options, refusals, has_retry);
                let _ = done.send(());
            });
            match is_done.recv_timeout(PATIENCE) {
                Ok(()) => worker.join().unwrap(),
                Err(mpsc::RecvTimeoutError::Disconnected) => worker.join().unwrap(),
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("{shown}: it hangs"),
            }
        }
    }
}
