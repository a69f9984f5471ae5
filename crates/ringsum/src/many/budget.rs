//! How the memory of a run over many files is shared out: [`Config::memory_bytes`] is all of it, and each of the
//! rest gets a part here.
//!
//! | part | of |
//! |---|---|
//! | 1/4 | rings of the threads that read large files of the first device |
//! | 1/4 | rings and buffers of those that read its small ones |
//! | 1/16 | the same of all other devices: each gets a half of what is left, and 512 KiB at least |
//! | 1/8 | what is read alone |
//! | 1/16 each | tasks that wait for their turn; names looked at ahead; directories read ahead; one directory |
//!
//! What nobody counts (stacks, the allocator's gaps, SQLite) has room in what is not used: hardly ever are all parts
//! in use at once. `docs/limits.md` has what was measured.

use std::path::Path;

use blockring::{Config, MEMORY_BYTES_MIN, SLAB_BYTES_MAX};

use super::{JOBS, JOBS_MAX};

/// Memory of the command itself, in bytes: its code, libraries, and stacks. (4 MiB are in use when it has hashed a
/// small file.)
pub const PROCESS_BYTES: u64 = 4 << 20;

/// Most bytes of tasks that are begun and not told of, where nobody bounds the memory: 16,384 of them take 6 MB
/// with names as they are, and 16 GiB with names of 1 MiB.
const WAITING_BYTES: u64 = 64 << 20;

/// The same of names of a list that are looked at ahead of their turn.
const NAMES_BYTES: u64 = 16 << 20;

/// The same of directories that were read ahead: 32,768 entries with names of 30 bytes.
const AHEAD_BYTES: u64 = 2 << 20;

/// The same of one directory: 2 million entries. What is more is read in several passes, which takes longer.
const LISTING_BYTES: u64 = 128 << 20;

/// A thread that reads small files is worth so much memory, in bytes; and takes so much at least.
const JOB_BYTES: u64 = 768 << 10;
const JOB_BYTES_MIN: u64 = 128 << 10;

/// A thread that looks at names or reads directories takes so much of a bounded memory, in bytes: its stack, and
/// 64 KiB for entries.
const LOOKER_BYTES: u64 = 1 << 20;

/// Parts of the memory of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget(Option<u64>);

impl Budget {
    /// That of a run with this configuration.
    pub fn of(config: &Config) -> Budget {
        Budget(config.memory_bytes)
    }

    fn part(self, of: u64, default: u64) -> u64 {
        self.0.map_or(default, |bytes| (bytes / of).min(default))
    }

    /// Most bytes of tasks that are begun and not told of yet.
    pub(super) fn waiting_bytes(self) -> usize {
        self.part(16, WAITING_BYTES) as usize
    }

    /// Most bytes of names that are looked at ahead of their turn.
    pub fn names_bytes(self) -> usize {
        self.part(16, NAMES_BYTES) as usize
    }

    /// [`WalkOptions::ahead_bytes`](crate::walk::WalkOptions::ahead_bytes).
    pub fn ahead_bytes(self) -> usize {
        self.part(16, AHEAD_BYTES) as usize
    }

    /// [`WalkOptions::listing_bytes`](crate::walk::WalkOptions::listing_bytes).
    pub fn listing_bytes(self) -> usize {
        self.part(16, LISTING_BYTES) as usize
    }

    /// Most bytes that are kept of names until the end of a run, if there is a bound.
    pub fn kept_bytes(self) -> Option<u64> {
        self.0.map(|bytes| bytes / 4)
    }

    /// Of so many threads with little to do, those that there is memory for.
    pub fn threads(self, most: usize) -> usize {
        self.0.map_or(most, |bytes| most.min((bytes / LOOKER_BYTES).max(1) as usize))
    }

    /// Most threads for small files that may be asked for.
    pub fn jobs_max(self) -> usize {
        let jobs = self.0.map(|bytes| (bytes / 4 / JOB_BYTES_MIN).max(1) as usize);
        jobs.unwrap_or(JOBS_MAX).min(JOBS_MAX)
    }

    /// The configuration for what is read alone.
    pub fn alone(self, config: &Config) -> Config {
        with(config, self.0.map(|bytes| bytes / 8))
    }

    /// What the device with this number, from 0, gets. `jobs`: the threads for small files that were asked for.
    pub(super) fn lane(self, number: u32, jobs: Option<usize>, config: &Config) -> Share {
        let Some(bytes) = self.0 else {
            let jobs = jobs.unwrap_or(JOBS);
            return Share {
                config: config.clone(),
                large_bytes: SLAB_BYTES_MAX,
                jobs,
                small: None,
            };
        };
        let each = match number {
            0 => bytes / 4,
            n => (bytes / 32).checked_shr(n).unwrap_or(0),
        };
        let each = each.max(MEMORY_BYTES_MIN);
        let fitting = (each / JOB_BYTES).clamp(1, JOBS as u64) as usize;
        let jobs = jobs.unwrap_or(fitting).min((each / JOB_BYTES_MIN) as usize).max(1);
        let small = Some(each / jobs as u64);
        Share { config: with(config, Some(each)), large_bytes: each, jobs, small }
    }
}

fn with(config: &Config, memory_bytes: Option<u64>) -> Config {
    let memory_bytes = memory_bytes.map(|bytes| bytes.max(MEMORY_BYTES_MIN));
    Config { memory_bytes, ..config.clone() }
}

/// The part of one device.
pub(super) struct Share {
    /// How its files are read.
    pub(super) config: Config,
    /// Most bytes of the rings for large files, over all threads.
    pub(super) large_bytes: u64,
    /// Threads for small files.
    pub(super) jobs: usize,
    /// Most bytes that each of them has: a half for its ring, and a half for a buffer. `None`: as much as is of
    /// use.
    pub(super) small: Option<u64>,
}

/// Bytes that a name of a list takes, at most, until its file is told of: the name as it was given, as it is
/// shown, and as a path.
pub fn name_bytes(path: &Path) -> usize {
    3 * path.as_os_str().len() + size_of::<super::ToHash>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_no_more_than_the_whole() {
        for mib in [4_u64, 11, 59, 500, 100_000] {
            let config = Config { memory_bytes: Some(mib << 20), ..Config::default() };
            let budget = Budget::of(&config);
            let lists = budget.waiting_bytes() + budget.names_bytes() + budget.ahead_bytes();
            let mut all = (lists + budget.listing_bytes()) as u64;
            all += budget.alone(&config).memory_bytes.unwrap();
            for number in 0..40 {
                let share = budget.lane(number, None, &config);
                assert!(share.jobs as u64 * share.small.unwrap() <= share.large_bytes);
                // Each has so much at least, even if there are more devices than that is there for.
                all += 2 * (share.large_bytes - MEMORY_BYTES_MIN * u64::from(number > 0));
            }
            assert!(all <= mib << 20, "{mib} MiB: {all}");
            let share = budget.lane(0, Some(budget.jobs_max()), &config);
            assert_eq!(share.jobs, budget.jobs_max());
        }
    }

    #[test]
    fn without_a_bound_all_is_as_much_as_is_of_use() {
        let config = Config::default();
        let share = Budget::of(&config).lane(7, None, &config);
        assert_eq!((share.jobs, share.small, share.large_bytes), (JOBS, None, SLAB_BYTES_MAX));
        assert_eq!((Budget::of(&config).jobs_max(), Budget::of(&config).threads(8)), (JOBS_MAX, 8));
    }
}
