//! Hashes a file in ranges, as machines that share a file system would, and merges them into the
//! ordinary BLAKE3 hash.
//!
//! `cargo run --release --package ringsum --example ranges -- FILE [MACHINES]`

use std::error::Error;
use std::iter;
use std::ops::Range;
use std::path::Path;
use std::thread;

use ringsum::blockring::{Fingerprint, Source};
use ringsum::{Mode, Options, Subtree, Tree, digest_source, hash_range, left_subtree_len};

/// Splits `0..len` into subtrees: the longest one until there are `count`, or none can be split.
fn split(len: u64, count: usize) -> Vec<Range<u64>> {
    let mut ranges: Vec<_> = iter::once(0..len).collect();
    while ranges.len() < count {
        // (The first of the longest.)
        let place = (0..ranges.len()).rev().max_by_key(|&place| {
            let range: &Range<u64> = &ranges[place];
            range.end - range.start
        });
        let place = place.expect("there is at least one");
        let range = ranges[place].clone();
        let Some(left) = left_subtree_len(range.end - range.start) else { break };
        let middle = range.start + left;
        ranges.splice(place..=place, [range.start..middle, middle..range.end]);
    }
    ranges
}

/// What one machine does. It returns 48 bytes to send, and which version of the file it has read.
fn on_one_machine(
    path: &Path,
    range: Range<u64>,
) -> Result<(Subtree, Fingerprint), ringsum::Error> {
    let source = Source::open(path)?;
    let subtree = hash_range(&source, range, &Options::default())?;
    Ok((subtree, source.fingerprint()))
}

fn hash_on(machines: usize, path: &Path) -> Result<blake3::Hash, Box<dyn Error + Send + Sync>> {
    let source = Source::open(path)?;
    let len = source.len().ok_or("a pipe has no ranges")?;
    let ranges = split(len, machines);
    if ranges.len() == 1 {
        // One range is the whole file. Its chaining value is not the hash.
        let digests = digest_source(&source, &Options::default())?;
        return Ok(digests.hash().expect("BLAKE3 is the default"));
    }
    let mode = Mode::Hash;
    let mut tree = Tree::new(len, &mode);
    thread::scope(|scope| {
        let machines = ranges.into_iter().map(|range| scope.spawn(|| on_one_machine(path, range)));
        for machine in machines.collect::<Vec<_>>() {
            let (subtree, fingerprint) = machine.join().expect("a machine does not panic")?;
            // Each range is unchanged while it is read. All of them must be of one file.
            if fingerprint != source.fingerprint() {
                return Err("the file changed between the ranges".into());
            }
            tree.add(subtree)?;
        }
        // It returns an error if a range is missing.
        Ok(tree.finalize()?.hash().expect("a tree is of BLAKE3"))
    })
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args_os().skip(1);
    let path = arguments.next().ok_or("usage: ranges FILE [MACHINES]")?;
    let machines = match arguments.next() {
        Some(count) => count.to_str().ok_or("not a number")?.parse()?,
        None => 4,
    };
    println!("{}  {}", hash_on(machines, Path::new(&path))?, path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_machines_finds_the_ordinary_hash() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for len in [0, 1, 1024, 1025, 4096, 1_000_000, 5 << 20, (5 << 20) + 1] {
            let bytes: Vec<_> = (0..len).map(|i| (i % 251) as u8).collect();
            std::fs::write(file.path(), &bytes).unwrap();
            for machines in [1, 2, 3, 4, 7, 20] {
                let hash = hash_on(machines, file.path()).unwrap();
                assert_eq!(hash, blake3::hash(&bytes), "{len} bytes on {machines}");
            }
        }
    }

    #[test]
    fn ranges_are_balanced() {
        assert_eq!(split(1 << 20, 2), [0..1 << 19, 1 << 19..1 << 20]);
        assert_eq!(split(4 << 20, 3), [0..1 << 20, 1 << 20..2 << 20, 2 << 20..4 << 20]);
        assert_eq!(split(3000, 9), [0..1024, 1024..2048, 2048..3000]);
        assert_eq!(split(1024, 9).len(), 1);
    }
}
