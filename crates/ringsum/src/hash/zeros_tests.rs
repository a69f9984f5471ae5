//! Holes: the table of chaining values of zeros, and how holes are cut into subtrees.

use super::super::tree::{Subtree, Tree};
use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn hash(mode: &Mode, offset: u64, len: u64) -> [u8; 32] {
    let mut hasher = super::super::tree::subtree_hasher(mode, offset);
    update_zeros(&mut hasher, len);
    Subtree::finalize(offset, len, &hasher).cv
}

/// Hashes zeros on all cores, in parts.
fn hash_in_parallel(offset: u64) -> [u8; 32] {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let next = std::sync::atomic::AtomicU64::new(offset);
    let tree = Mutex::new(Tree::of_range(offset, GIB, &Mode::Hash));
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(PART_BYTES_MAX, Ordering::Relaxed);
                    if at >= offset + GIB {
                        return;
                    }
                    let cv = hash(&Mode::Hash, at, PART_BYTES_MAX);
                    let part = Subtree { offset: at, len: PART_BYTES_MAX, cv };
                    lock(&tree).add(part).unwrap();
                }
            });
        }
    });
    tree.into_inner().unwrap().finalize_range().unwrap().cv
}

#[test]
fn the_table_has_the_values_of_zeros() {
    let (values, _) = TABLE.as_chunks::<32>();
    assert_eq!(values.len(), 1024);
    // A swapped or repeated value would be found here; a wrong one only if it is a sample below.
    assert_eq!(values.iter().collect::<std::collections::BTreeSet<_>>().len(), 1024);
    // (In a debug build, BLAKE3 itself is optimized.)
    assert_eq!(from_table(&Mode::Hash, 1023 * GIB, GIB), Some(hash_in_parallel(1023 * GIB)));
    for (mode, offset, len) in [
        (&Mode::Hash, 1024 * GIB, GIB),
        (&Mode::Hash, MIB, GIB),
        (&Mode::Hash, 0, 2 * GIB),
        (&Mode::Hash, 0, GIB - 1),
        (&Mode::Keyed([7; 32]), 0, GIB),
        (&Mode::derive_key("tests"), 0, GIB),
    ] {
        assert_eq!(from_table(mode, offset, len), None, "{offset} {len}");
    }
}

#[test]
#[ignore = "takes 3 minutes on two cores; `.ci/run` runs it"]
fn every_value_of_the_table() {
    for offset in (0..1024).map(|index| index * GIB) {
        let expected = from_table(&Mode::Hash, offset, GIB);
        assert_eq!(Some(hash_in_parallel(offset)), expected, "the GiB at {offset}");
    }
}

#[test]
fn holes_are_cut_into_subtrees() {
    let keyed = Mode::Keyed([7; 32]);
    let parts =
        |mode, holes: &[Range<u64>], total| Parts::new(mode, holes, total).collect::<Vec<_>>();
    // Up to the end of the input, which is no multiple of anything.
    let range = |range: Range<u64>| [range];
    let end = 32 * MIB + 4097;
    assert_eq!(parts(&keyed, &range(16 * MIB..end), end), [(16 * MIB, 16 * MIB), (32 * MIB, 4097)]);
    assert_eq!(
        parts(&keyed, &range(3 * MIB..14 * MIB), end),
        [(3, 1), (4, 4), (8, 4), (12, 2)].map(|(at, len)| (at * MIB, len * MIB))
    );
    // Whole GiB are looked up, if there is more than one.
    assert_eq!(parts(&Mode::Hash, &range(0..2 * GIB), 2 * GIB), [(0, GIB), (GIB, GIB)]);
    assert_eq!(parts(&Mode::Hash, &range(0..GIB), GIB).len(), 64);
    assert_eq!(parts(&keyed, &range(0..2 * GIB), 2 * GIB).len(), 128);
    let table = 1024 * GIB;
    let beyond = parts(&Mode::Hash, &range(table - GIB..table + GIB), table + GIB);
    assert_eq!((beyond[0], beyond.len()), ((table - GIB, GIB), 65));
    // Each is covered once.
    let holes = [0..5 * MIB, 7 * MIB..GIB + 3 * MIB, 2 * GIB..5 * GIB + 12_345];
    for mode in [&Mode::Hash, &keyed] {
        let mut at = parts(mode, &holes, 5 * GIB + 12_345).into_iter().peekable();
        for hole in &holes {
            let mut start = hole.start;
            while start < hole.end {
                let (offset, len) = at.next().unwrap();
                assert_eq!(offset, start);
                start += len;
            }
            assert_eq!(start, hole.end);
        }
        assert_eq!(at.next(), None);
    }
}

#[test]
fn zeros_have_the_hash_of_zeros() {
    for mode in [Mode::Hash, Mode::Keyed([7; 32]), Mode::derive_key("tests")] {
        for total in [16 * MIB, 16 * MIB + 1, 40 * MIB - 1, 48 * MIB + 5000, 64 * MIB] {
            let mut expected = mode.hasher();
            update_zeros(&mut expected, total);
            let holes = [0..2 * MIB, 3 * MIB..total];
            let all = 0..total;
            for (holes, data) in
                [(&holes[..], Some(2 * MIB..3 * MIB)), (std::slice::from_ref(&all), None)]
            {
                let tree = TreeHasher::new(&mode);
                let hasher = HoleHasher::new(&mode, holes, total, None);
                hasher.run(&tree, &|_| ()).unwrap();
                if let Some(Range { start, end }) = data {
                    tree.update(start, &vec![0; (end - start) as usize]).unwrap();
                }
                let hash = tree.finalize(Some(total)).unwrap().hash();
                assert_eq!(hash, Some(expected.finalize()), "{total}");
            }
        }
    }
}
