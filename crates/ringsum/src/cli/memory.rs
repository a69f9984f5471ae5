//! The memory limit of the command, and how its own parts divide it.
//!
//! | share | part |
//! |---|---|
//! | 1/8 | files that are hashed one at a time |
//! | 1/16 each | names looked up ahead; directories read ahead; one directory |
//! | 1/4 | names kept for `--report-unlisted` |
//!
//! The scheduler of the library uses most of the rest. Memory that is not counted (stacks,
//! allocator overhead, SQLite) fits into the unused parts, because the shares are hardly ever all
//! used at once. `bench/RESULTS.md` has measurements.

use std::fs;
use std::path::{Component, Path, PathBuf};

use rustix::process::{Resource, getrlimit};

/// Memory of the process itself, in bytes: code, libraries, stacks. (4 MiB for a small file.)
pub(crate) const PROCESS_BYTES: u64 = 4 << 20;

/// On a machine or in a control group with less than this, the command limits itself, in bytes:
/// without a limit it takes 60 MiB for a million files on one device.
const SMALL_BYTES: u64 = 512 << 20;

/// Default share of names looked up ahead, in bytes.
const NAMES_BYTES: u64 = 16 << 20;

/// Default share of directories read ahead, in bytes: 32,768 entries with names of 30 bytes.
const AHEAD_BYTES: u64 = 2 << 20;

/// Default share of one directory, in bytes: 2 million entries. A larger directory is read in
/// several passes, which takes longer.
const LISTING_BYTES: u64 = 128 << 20;

/// Share of a limited memory per thread that looks up names or reads directories, in bytes: its
/// stack, and 64 KiB for entries.
const THREAD_BYTES: u64 = 1 << 20;

/// The least memory that a plan accepts, in bytes.
const PLAN_BYTES_MIN: u64 = 256 << 10;

/// The least limit of a run, in bytes.
const LIMIT_BYTES_MIN: u64 = 2 << 20;

/// `RLIMIT_AS` of at least this many bytes counts as no limit.
const ADDRESS_SPACE_PLENTY: u64 = 4 << 30;

/// Divisor of a limited address space for blocks and queues: stacks of 2 MiB take most of the rest.
const ADDRESS_SPACE_SHARE: u64 = 8;

/// The shares of the command's own parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    limit_bytes: Option<u64>,
}

impl Shares {
    /// Creates the shares of `limit_bytes`: [`blockring::Memory::limit_bytes`] of the run.
    pub(crate) fn of(limit_bytes: Option<u64>) -> Shares {
        Shares { limit_bytes }
    }

    fn part(self, divisor: u64, default: u64) -> usize {
        self.limit_bytes.map_or(default, |bytes| (bytes / divisor).min(default)) as usize
    }

    /// Returns the memory limit for files that are hashed one at a time.
    pub(crate) fn separate_bytes(self) -> Option<u64> {
        self.limit_bytes.map(|bytes| (bytes / 8).max(PLAN_BYTES_MIN))
    }

    /// Returns the share of names looked up ahead, in bytes.
    pub(crate) fn names_bytes(self) -> usize {
        self.part(16, NAMES_BYTES)
    }

    /// Returns [`WalkOptions::ahead_bytes`](ringsum::files::walk::WalkOptions::ahead_bytes).
    pub(crate) fn ahead_bytes(self) -> usize {
        self.part(16, AHEAD_BYTES)
    }

    /// Returns [`WalkOptions::listing_bytes`](ringsum::files::walk::WalkOptions::listing_bytes).
    pub(crate) fn listing_bytes(self) -> usize {
        self.part(16, LISTING_BYTES)
    }

    /// Returns the share of names kept until the end of a run, in bytes, if there is a limit.
    pub(crate) fn kept_bytes(self) -> Option<u64> {
        self.limit_bytes.map(|bytes| bytes / 4)
    }

    /// Returns how many of `most` mostly idle threads fit in memory: at least 1.
    pub(crate) fn threads(self, most: usize) -> usize {
        let fitting = |bytes: u64| most.min((bytes / THREAD_BYTES).max(1) as usize);
        self.limit_bytes.map_or(most, fitting)
    }
}

/// Most bytes that a name takes until its file is reported: as given, as shown, and as a path.
pub(crate) fn name_bytes(path: &Path) -> usize {
    3 * path.as_os_str().len() + size_of::<ringsum::files::InputFile>()
}

/// Returns the memory limit of a run over many files: the explicit one, or else half of the memory
/// of the machine or control group if that is small; but at most a part of the address space, if
/// that is limited.
pub(crate) fn limit(explicit: Option<u64>) -> Option<u64> {
    let least = explicit.or_else(detect).into_iter().chain(address_space()).min();
    least.map(|bytes| bytes.max(LIMIT_BYTES_MIN))
}

fn detect() -> Option<u64> {
    let info = rustix::system::sysinfo();
    let machine = (info.totalram as u64).saturating_mul(info.mem_unit.into());
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = least_limit(&groups, |path| fs::read_to_string(path).ok());
    let most = machine.min(group.unwrap_or(u64::MAX));
    (most < SMALL_BYTES).then(|| (most / 2).saturating_sub(PROCESS_BYTES))
}

/// Returns `RLIMIT_AS` if it is below 4 GiB.
pub(crate) fn address_space_limit() -> Option<u64> {
    getrlimit(Resource::As).current.filter(|limit| *limit < ADDRESS_SPACE_PLENTY)
}

/// Returns a part of the free address space, if it is limited.
fn address_space() -> Option<u64> {
    let limit = address_space_limit()?;
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').next()?.parse().ok()?;
    let used = pages * rustix::param::page_size() as u64;
    Some(limit.saturating_sub(used) / ADDRESS_SPACE_SHARE)
}

/// Returns the least memory limit of the control groups in `groups`, the text of
/// `/proc/self/cgroup`, in bytes. `read` returns the content of a file.
fn least_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, group) = (fields.next(), fields.next(), fields.next());
        let (root, file) = match controllers {
            Some("") => ("/sys/fs/cgroup", "memory.max"),
            Some(names) if names.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let group = Path::new(group.unwrap_or_default());
        let names = group.components().filter(|part| matches!(part, Component::Normal(_)));
        // Limits of parent groups apply, too. (In a container the root is often its own group.)
        let group: PathBuf = Path::new(root).components().chain(names).collect();
        let above = group.ancestors().take_while(|path| path.starts_with(root));
        let limits = above.filter_map(|path| read(&path.join(file))?.trim().parse::<u64>().ok());
        limits.collect()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_all_groups_counts() {
        let read = |path: &Path| match path.to_str().unwrap() {
            "/sys/fs/cgroup/a/b/memory.max" => Some("max\n".to_owned()),
            "/sys/fs/cgroup/a/memory.max" => Some("67108864\n".to_owned()),
            "/sys/fs/cgroup/memory/x/memory.limit_in_bytes" => Some("33554432\n".to_owned()),
            "/sys/fs/cgroup/memory/memory.limit_in_bytes" => Some("9223372036854771712".to_owned()),
            _ => None,
        };
        let cases = [
            ("0::/a/b\n", Some(64 << 20)),
            ("0::/a/b/c", Some(64 << 20)),
            ("0::/", None),
            ("0::/../a/b", Some(64 << 20)),
            ("8:pids:/a\n4:memory:/x\n0::/\n", Some(32 << 20)),
            ("4:cpu,memory:/\n0::/a\n", Some(64 << 20)),
            ("", None),
            ("0\n:\n4:memory", Some(9_223_372_036_854_771_712)),
        ];
        for (groups, limit) in cases {
            assert_eq!(least_limit(groups, read), limit, "{groups:?}");
        }
    }

    #[test]
    fn the_shares_are_no_more_than_their_part() {
        for mib in [4_u64, 11, 59, 500, 100_000] {
            let shares = Shares::of(Some(mib << 20));
            let queues = shares.names_bytes() + shares.ahead_bytes() + shares.listing_bytes();
            // (The scheduler has eleven sixteenths.)
            let all = queues as u64 + shares.separate_bytes().unwrap();
            assert!(all <= (mib << 20) / 16 * 5, "{mib} MiB: {all}");
        }
        assert_eq!(Shares::of(None).threads(8), 8);
        assert_eq!(Shares::of(Some(4 << 20)).threads(8), 4);
        assert_eq!(Shares::of(Some(1)).threads(8), 1);
    }
}
