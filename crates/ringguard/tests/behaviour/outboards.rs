//! The first bytes of a sidecar, against the crates whose formats they have.

use std::fs;

use bao_tree::BlockSize;
use bao_tree::io::outboard::PreOrderMemOutboard;

use crate::support::{Random, Scratch};

#[test]
fn a_sidecar_begins_with_the_outboard_of_bao() {
    let scratch = Scratch::new();
    for len in [0, 1, 1024, 1025, 5000, 70_000, 300_001] {
        let data = Random::new(len).bytes(len as usize);
        scratch.write("file", &data);
        scratch.run(&["create", "file", "--group-size", "1K"]).is(0);
        let (expected, hash) = bao::encode::outboard(&data);
        let guard = fs::read(scratch.path("file.guard")).unwrap();
        assert!(guard.starts_with(&expected), "{len} bytes");
        let line = scratch.run(&["create", "file", "--redundancy", "0"]).is(0).out();
        assert_eq!(line, format!("{hash}  file\n"));
    }
}

#[test]
fn with_groups_of_16_kib_it_has_that_of_iroh() {
    let scratch = Scratch::new();
    for len in [0, 16_384, 16_385, 100_000, 2_000_001] {
        let data = Random::new(len).bytes(len as usize);
        scratch.write("file", &data);
        scratch.run(&["create", "file"]).is(0);
        let expected = PreOrderMemOutboard::create(&data, BlockSize::from_chunk_log(4));
        let guard = fs::read(scratch.path("file.guard")).unwrap();
        assert!(guard[8..].starts_with(&expected.data), "{len} bytes");
        assert_eq!(guard[..8], len.to_le_bytes());
    }
}
