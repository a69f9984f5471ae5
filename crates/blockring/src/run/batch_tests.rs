//! Cutting and joining extents.

use super::*;

fn pieces(extents: &[(u64, u32)], align: u32, most: u32) -> (Vec<(u64, u32)>, Vec<Vec<usize>>) {
    let extents: Vec<_> = extents.iter().map(|&(offset, len)| Extent { offset, len }).collect();
    let wanted = Batch::new(&extents, 10_000).unwrap().wanted();
    let (align, most) = (align.into(), most.into());
    let pieces = Pieces::of(&extents, wanted, Cut { align, most, joins: true });
    let list = pieces.list.iter().map(|piece| (piece.offset, piece.len)).collect();
    let members = pieces.members.iter().map(|m| pieces.sorted[m.clone()].to_vec()).collect();
    (list, members)
}

#[test]
fn adjacent_extents_are_joined_and_long_ones_are_cut() {
    type Case<'a> = (&'a [(u64, u32)], u32, u32, &'a [(u64, u32)], &'a [&'a [usize]]);
    let cases: [Case<'_>; 9] = [
        (&[], 1, 1000, &[], &[]),
        // Sorted, adjacent, overlapping, the same twice.
        (&[(100, 50), (0, 100), (120, 50)], 1, 1000, &[(0, 170)], &[&[1, 0, 2]]),
        (&[(5, 5), (5, 5)], 1, 1000, &[(5, 5)], &[&[0, 1]]),
        // A gap, and a piece that is full.
        (&[(0, 100), (101, 100)], 1, 1000, &[(0, 100), (101, 100)], &[&[0], &[1]]),
        (&[(0, 600), (600, 600)], 1, 1000, &[(0, 600), (600, 600)], &[&[0], &[1]]),
        // Longer than a piece.
        (&[(10, 2500)], 1, 1000, &[(10, 1000), (1010, 1000), (2010, 500)], &[&[0], &[0], &[0]]),
        // Starting at whole sectors; a shared sector is read once.
        (&[(10, 20), (500, 600)], 512, 4096, &[(0, 1100)], &[&[0, 1]]),
        (&[(10, 20), (1024, 20)], 512, 4096, &[(0, 30), (1024, 20)], &[&[0], &[1]]),
        (&[(9_990, 10), (50, 0)], 512, 4096, &[(9_728, 272)], &[&[0]]),
    ];
    for (extents, align, most, list, members) in cases {
        let found = pieces(extents, align, most);
        assert_eq!(found.0, list, "{extents:?}");
        assert_eq!(found.1, members, "{extents:?}");
    }
}

#[test]
fn an_extent_past_the_end_fails_alone() {
    let extents = [(9_999, 1), (9_999, 2), (u64::MAX, 1), (10_000, 0)];
    let extents = extents.map(|(offset, len)| Extent { offset, len });
    let batch = Batch::new(&extents, 10_000).unwrap();
    assert_eq!(batch.wanted(), [0]);
    let failed: Vec<_> = batch.iter().map(|result| result.is_err()).collect();
    assert_eq!(failed, [false, true, true, false]);
}
