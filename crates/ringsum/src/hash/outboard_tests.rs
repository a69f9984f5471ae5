//! Outboards against those of the crates `bao` and `bao-tree`, and the damage that they show.
#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]

use std::io::{Read, Write};

use super::super::damage::bad_ranges;
use super::*;
use crate::Options;

/// Content that changes when blocks are swapped: the period is prime to every block size.
fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

/// The outboard of `data`, of parts of `part` bytes that arrive in an order that `seed` decides.
fn outboard_of(data: &[u8], group: u64, part: usize, seed: u64) -> (Vec<u8>, Digest) {
    let groups = (data.len() as u64).div_ceil(group).max(1);
    let outboard = Mutex::new(vec![0xee; 8 + 64 * (groups as usize - 1)]);
    let writer = OutboardWriter::new(&Mode::Hash, data.len() as u64, group, |offset, bytes| {
        lock(&outboard)[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    });
    let mut starts: Vec<_> = (0..data.len().max(1)).step_by(part).collect();
    let mut state = seed;
    for i in (1..starts.len()).rev() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        starts.swap(i, (state >> 33) as usize % (i + 1));
    }
    let mut digest = None;
    for start in starts {
        assert!(digest.is_none(), "the digest came early");
        let subtree =
            writer.hash(start as u64, &data[start..data.len().min(start + part)]).unwrap();
        digest = writer.add(subtree).unwrap();
    }
    drop(writer);
    (outboard.into_inner().unwrap(), digest.expect("all parts were added"))
}

const LENS: [usize; 16] = [
    0, 1, 1023, 1024, 1025, 2048, 2049, 3072, 5000, 16_383, 16_384, 16_385, 32_769, 49_152, 65_537,
    200_001,
];

#[test]
fn with_groups_of_one_chunk_it_is_what_bao_makes() {
    for len in LENS {
        let data = content(len);
        let (expected, hash) = bao::encode::outboard(&data);
        for part in [1024, 4096, 65_536, 1 << 20] {
            let (found, digest) = outboard_of(&data, 1024, part, len as u64);
            assert!(found == expected, "{len} bytes in parts of {part}");
            assert_eq!(digest.to_vec(), hash.as_bytes());
        }
        // And back: bao's decoder accepts it.
        let (found, _) = outboard_of(&data, 1024, 1024, 7);
        let mut decoder = bao::decode::Decoder::new_outboard(&data[..], &found[..], &hash);
        let mut decoded = Vec::new();
        decoder.read_to_end(&mut decoded).unwrap();
        assert!(decoded == data);
    }
}

#[test]
fn with_groups_of_sixteen_it_is_what_bao_tree_makes() {
    use bao_tree::BlockSize;
    use bao_tree::io::outboard::PreOrderMemOutboard;
    for len in LENS {
        let data = content(len);
        let expected = PreOrderMemOutboard::create(&data, BlockSize::from_chunk_log(4));
        for part in [1024, 16_384, 65_536, 1 << 20] {
            let (found, digest) = outboard_of(&data, 16_384, part, len as u64);
            assert_eq!(digest.to_vec(), expected.root.as_bytes());
            assert!(found[8..] == expected.data[..], "{len} bytes in parts of {part}");
        }
        // And back: its validation accepts ours.
        let (found, _) = outboard_of(&data, 16_384, 16_384, 3);
        let ours = PreOrderMemOutboard { data: found[8..].to_vec(), ..expected };
        let all = bao_tree::ChunkRanges::all();
        let valid = bao_tree::io::sync::valid_ranges(&ours, &data[..], &all);
        let valid: Vec<_> = valid.into_iter().collect::<Result<_, _>>().unwrap();
        let chunks = (len as u64).div_ceil(1024);
        let covered: u64 = valid.iter().map(|range| range.end.0.min(chunks) - range.start.0).sum();
        assert_eq!(covered, chunks, "{len} bytes");
    }
}

fn find(data: &[u8], len: u64, outboard: &[u8], group: u64, root: &Digest) -> Vec<Range> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(data).unwrap();
    let read = |offset: u64, buffer: &mut [u8]| {
        let end = offset as usize + buffer.len();
        let bytes = outboard.get(offset as usize..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    };
    let outboard = Outboard { len, group_bytes: group, read: &read };
    let root: [u8; 32] = root.to_vec().try_into().unwrap();
    let source = blockring::Source::open(file.path()).unwrap();
    let mut all = Vec::new();
    for block in [None, Some(1024), Some(65_536), Some(512)] {
        let config = crate::Config::default().with(|config| config.io.block_bytes = block);
        let options = Options { config, ..Options::default() };
        let (digest, bad) = bad_ranges(&source, &outboard, &root, &options, &|_| ()).unwrap();
        if let Some(digest) = digest {
            let whole = &data[..data.len().min(len as usize)];
            assert_eq!(digest.hash(), Some(blake3::hash(whole)));
        }
        all.push(bad);
    }
    assert!(all.windows(2).all(|two| two[0] == two[1]), "{all:?}");
    all.swap_remove(0)
}

type Range = std::ops::Range<u64>;

#[test]
fn damage_is_located_to_the_group() {
    for group in [1024, 16_384] {
        for len in [1, 1024, 5000, 16_385, 200_001_u64] {
            let data = content(len as usize);
            let (outboard, root) = outboard_of(&data, group, 1024, 1);
            assert_eq!(find(&data, len, &outboard, group, &root), []);
            for at in [0, len / 2, len - 1] {
                let mut damaged = data.clone();
                damaged[at as usize] ^= 1;
                let start = at / group * group;
                let bad = find(&damaged, len, &outboard, group, &root);
                assert_eq!(bad, [start..len.min(start + group)], "{len} at {at}");
            }
            // Cut off, and appended to.
            let cut = &data[..data.len() / 2];
            let bad = find(cut, len, &outboard, group, &root);
            assert_eq!(bad, [len / 2 / group * group..len]);
            let longer = [&data[..], b"more"].concat();
            assert_eq!(find(&longer, len, &outboard, group, &root), []);
        }
    }
}

#[test]
fn a_bad_node_proves_nothing_below_it() {
    let data = content(200_001);
    let (outboard, root) = outboard_of(&data, 1024, 1024, 1);
    let mut no_nodes = outboard.clone();
    no_nodes[8] ^= 1;
    // The digest proves intact data by itself.
    assert_eq!(find(&data, 200_001, &no_nodes, 1024, &root), []);
    let mut damaged = data.clone();
    damaged[0] ^= 1;
    assert_eq!(find(&damaged, 200_001, &no_nodes, 1024, &root), [0..200_001]);
    // The second node is that of the first 131,072 bytes.
    let mut no_left = outboard.clone();
    no_left[8 + 64] ^= 1;
    assert_eq!(find(&damaged, 200_001, &no_left, 1024, &root), [0..131_072]);
    // Cut off: nodes that are not there are not believed either.
    assert_eq!(find(&damaged, 200_001, &outboard[..8], 1024, &root), [0..200_001]);
}

#[test]
fn parts_are_added_once() {
    let data = content(5000);
    let writer = OutboardWriter::new(&Mode::Hash, 5000, 1024, |_, _| Ok(()));
    let part = writer.hash(0, &data[..1024]).unwrap();
    assert!(writer.add(part).unwrap().is_none());
    assert!(matches!(writer.add(part), Err(Error::Tree(TreeError::Overlap { offset: 0 }))));
    assert!(matches!(writer.hash(1024, &data[..3000]), Err(Error::Tree(_))));
    let whole = Subtree { offset: 0, len: 5000, cv: [0; 32] };
    assert!(matches!(writer.add(whole), Err(Error::Tree(TreeError::Whole))));
    let refused =
        OutboardWriter::new(&Mode::Hash, 5000, 1024, |_, _| Err(io::Error::from_raw_os_error(28)));
    assert!(matches!(refused.hash(0, &data[..4096]), Err(Error::Outboard(_))));
}
