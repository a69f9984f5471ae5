//! Holes: ranges of a file without storage, which read as zeros.
//!
//! Only for file systems that report them exactly. These report data that is still in the page cache
//! (delayed allocation, stores through a mapping) as data, and a range that was allocated and never
//! written (`fallocate`) as a hole or as data, which is right either way. Other file systems may
//! report anything: FUSE and network servers answer as they like.

use std::fs::File;
use std::ops::Range;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::{Description, Source, SourceKind, file_system};

/// Shortest file whose holes are looked for, in bytes: a core hashes 16 MiB in 3 ms, and planning
/// for one file alone takes 0.4 ms.
const FILE_BYTES_MIN: u64 = 16 << 20;

/// Most holes of a file: 1 MiB of memory. What follows is read.
const HOLES_MAX: usize = 1 << 16;

/// Most extents that are looked at: two system calls each, 0.1 s in all.
const EXTENTS_MAX: usize = 1 << 17;

/// File systems that report holes exactly.
const EXACT: [&str; 4] = ["ext4", "XFS", "btrfs", "tmpfs"];

impl Source {
    /// Whether it is a long file with holes that need not be read. Takes no system call unless less
    /// storage is allocated than its length; then three.
    pub fn has_holes(&self) -> bool {
        self.may_have_holes()
            && self.with_position(
                |file| matches!(next(file, SeekFrom::Hole(0)), Some(Some(hole)) if hole < self.len),
            ) == Some(true)
    }

    fn may_have_holes(&self) -> bool {
        self.kind == SourceKind::File
            && self.start == 0
            && self.len >= FILE_BYTES_MIN
            && self.allocated < self.len
            && EXACT.contains(&file_system::file_system(&self.file).0)
    }

    /// Calls `run` with a file whose position may be moved.
    fn with_position<R>(&self, run: impl FnOnce(&File) -> R) -> Option<R> {
        match self.description {
            // (Another process may use its position.)
            Description::Shared => self.reopen().ok().map(|own| run(&own)),
            _ => Some(run(&self.file)),
        }
    }

    /// Returns the holes of at least `bytes_min`, in order; none if the file has changed since its
    /// opening, so that everything is read, and the change found.
    pub(crate) fn holes(&self, bytes_min: u64) -> Vec<Range<u64>> {
        if !self.may_have_holes() {
            return Vec::new();
        }
        let holes = self.with_position(|file| holes_of(file, self.len, bytes_min));
        match self.unchanged() {
            Ok(()) => holes.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }
}

fn holes_of(file: &File, len: u64, bytes_min: u64) -> Vec<Range<u64>> {
    let mut holes = Vec::new();
    let mut end = 0;
    for _ in 0..EXTENTS_MAX {
        let Some(Some(start)) = next(file, SeekFrom::Hole(end)) else { break };
        if start >= len || holes.len() == HOLES_MAX {
            break;
        }
        end = match next(file, SeekFrom::Data(start)) {
            Some(Some(data)) => data.min(len),
            // There is no more data.
            Some(None) => len,
            None => break,
        };
        if end.saturating_sub(start) >= bytes_min {
            holes.push(start..end);
        }
        if end >= len {
            break;
        }
    }
    holes
}

/// Returns the offset that a seek finds; `Some(None)` if there is none before the end of the file,
/// `None` after an error.
fn next(file: &File, to: SeekFrom) -> Option<Option<u64>> {
    match seek(file, to) {
        Ok(found) => Some(Some(found)),
        Err(Errno::NXIO) => Some(None),
        Err(_) => None,
    }
}

/// Shortens holes to whole blocks of a file of `len` bytes, without those that are in `except`
/// (sorted, of whole blocks).
pub(crate) fn whole_blocks(
    holes: &[Range<u64>],
    except: &[Range<u64>],
    len: u64,
    block_bytes: u64,
) -> Vec<Range<u64>> {
    let rounded = holes.iter().map(|hole| {
        let end = if hole.end >= len { len } else { hole.end / block_bytes * block_bytes };
        hole.start.next_multiple_of(block_bytes)..end
    });
    rounded.flat_map(|hole| without(hole, except)).collect()
}

/// Returns what is left of `range` without those that are in `except`, which is sorted.
pub(crate) fn without(range: Range<u64>, except: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    let mut start = range.start;
    let first = except.partition_point(|other| other.end <= start);
    for other in except[first..].iter().take_while(|other| other.start < range.end) {
        left.push(start..other.start.max(start));
        start = other.end.max(start);
    }
    left.push(start..range.end);
    left.retain(|part| part.start < part.end);
    left
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn ranges_are_cut_out() {
        let ranges = |pairs: &[(u64, u64)]| pairs.iter().map(|&(from, to)| from..to).collect();
        type Pairs<'a> = &'a [(u64, u64)];
        let cases: [(Range<u64>, Pairs<'_>, Pairs<'_>); 6] = [
            (0..10, &[], &[(0, 10)]),
            (0..10, &[(0, 10)], &[]),
            (0..10, &[(2, 3), (5, 20)], &[(0, 2), (3, 5)]),
            (4..10, &[(0, 2), (3, 5), (9, 10), (12, 13)], &[(5, 9)]),
            (4..10, &[(0, 4), (10, 12)], &[(4, 10)]),
            (5..5, &[], &[]),
        ];
        for (range, except, expected) in cases {
            let (except, expected): (Vec<_>, Vec<_>) = (ranges(except), ranges(expected));
            assert_eq!(without(range.clone(), &except), expected, "{range:?} {except:?}");
        }
        let holes = [0..5, 10..27, 30..45, 50..58];
        assert_eq!(whole_blocks(&holes, &[], 58, 10), [10..20, 30..40, 50..58]);
        assert_eq!(whole_blocks(&holes, &[10..20, 50..60], 58, 10), ranges(&[(30, 40)]));
    }

    /// Data that is not on the disk yet is data, and the position of a shared file stays.
    #[test]
    fn holes_are_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(64 * MIB).unwrap();
        let source = Source::open(file.path()).unwrap();
        if !EXACT.contains(&file_system::file_system(source.file()).0) {
            let text = b"SKIP holes: the file system of the temporary files has none\n";
            std::io::Write::write_all(&mut std::io::stderr(), text).unwrap();
            return;
        }
        assert!(source.has_holes());
        assert_eq!(source.holes(1), [Range { start: 0, end: 64 * MIB }]);
        file.as_file().write_all_at(&vec![1; 4 << 20], 8 * MIB).unwrap();
        assert!(source.holes(1).is_empty(), "the file has changed");
        let source = Source::open(file.path()).unwrap();
        assert_eq!(source.holes(1), [0..8 * MIB, 12 * MIB..64 * MIB]);
        assert_eq!(source.holes(9 * MIB), [Range { start: 12 * MIB, end: 64 * MIB }]);
        let shared = Source::from_file(file.reopen().unwrap(), "-").unwrap();
        assert_eq!(shared.holes(1).len(), 2);
        assert_eq!(rustix::fs::tell(shared.file()).unwrap(), 0);
        // From elsewhere, in full, short: read.
        rustix::fs::seek(shared.file(), SeekFrom::Start(4096)).unwrap();
        let moved = Source::from_file(shared.file().try_clone().unwrap(), "-").unwrap();
        assert!(!moved.has_holes() && moved.holes(1).is_empty());
        file.as_file().write_all_at(&vec![1; 64 << 20], 0).unwrap();
        assert!(!Source::open(file.path()).unwrap().has_holes());
        file.as_file().set_len(0).unwrap();
        file.as_file().set_len(15 * MIB).unwrap();
        assert!(!Source::open(file.path()).unwrap().has_holes());
    }
}
