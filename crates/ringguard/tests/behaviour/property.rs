//! Random files, random damage: repaired byte for byte if no column lost more than its parity, and
//! otherwise nothing is written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::reader::Guard;
use crate::support::{Random, Scratch};

/// Number of trees and damages, unless PROPERTY_ROUNDS is set (for qemu, which takes 20 s for one).
const ROUNDS: u64 = 150;

fn length(random: &mut Random) -> usize {
    let boundaries = [0, 1, 1024, 2048, 4096, 16_384, 65_536, 131_072, 327_680, 1 << 20];
    let near = boundaries[random.below(boundaries.len() as u64) as usize] as u64;
    match random.below(4) {
        0 => random.below(3_000_000) as usize,
        1 => random.below(5000) as usize,
        _ => (near + random.below(3)).saturating_sub(1) as usize,
    }
}

/// Damages bytes. Returns whether something is different.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) -> bool {
    let before = bytes.clone();
    let len = bytes.len() as u64;
    match random.below(6) {
        0 if len > 0 => bytes[random.below(len) as usize] ^= 1 << random.below(8),
        1 if len > 0 => {
            let start = random.below(len) as usize;
            let end = (start + random.below(len / 8 + 1) as usize).min(bytes.len());
            let noise = random.bytes(end - start);
            bytes[start..end].copy_from_slice(&noise);
        }
        2 if len > 0 => {
            let start = random.below(len) as usize / 4096 * 4096;
            let end = (start + 4096).min(bytes.len());
            bytes[start..end].fill(0);
        }
        3 => bytes.truncate(random.below(len + 1).max(len - len / 20) as usize),
        4 => {
            let more = random.below(9000) as usize;
            bytes.extend(random.bytes(more));
        }
        _ => {
            for _ in 0..random.below(40) {
                if len > 0 {
                    bytes[random.below(len) as usize] ^= 0x55;
                }
            }
        }
    }
    *bytes != before
}

/// The columns with their numbers of bad pieces.
fn losses(
    guard: &Guard<'_>,
    before: &[u8],
    after: &[u8],
    sidecar: &[u8],
    unread: &BTreeSet<u64>,
) -> BTreeMap<(u64, u64), (u64, u64)> {
    let size = guard.piece_bytes;
    let mut columns = BTreeMap::new();
    for piece in 0..guard.pieces {
        let range = (piece * size) as usize..((piece + 1) * size) as usize;
        if before[range.clone()] != after[range] || unread.contains(&piece) {
            let (window, column, ..) = guard.place(piece);
            columns.entry((window, column)).or_insert((0, 0)).0 += 1;
        }
    }
    for ((window, column), (_, parity)) in &mut columns {
        for i in 0..guard.m {
            let index = guard.parity_index(*window, *column, i);
            let start = (guard.parity_at + index * size) as usize;
            let found = sidecar.get(start..start + size as usize);
            *parity += u64::from(found != Some(guard.parity(index)));
        }
    }
    columns
}

#[test]
fn what_the_parity_suffices_for_is_repaired() {
    let (mut repaired, mut beyond, mut intact) = (0, 0, 0);
    let rounds = std::env::var("PROPERTY_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    for seed in 0..rounds.unwrap_or(ROUNDS) {
        match round(seed) {
            0 => intact += 1,
            1 => repaired += 1,
            _ => beyond += 1,
        }
    }
    // Each outcome was seen.
    assert!(
        rounds.is_some() || (repaired > 20 && beyond > 10 && intact > 0),
        "{repaired} {beyond} {intact}"
    );
}

/// Returns the status of a verification after the damage.
fn round(seed: u64) -> i32 {
    let random = &mut Random::new(seed);
    let scratch = Scratch::new();
    let is_set = random.below(2) == 1;
    let count = if is_set { 1 + random.below(30) } else { 1 };
    let mut contents = BTreeMap::new();
    for i in 0..count {
        let len = length(random);
        let name = if is_set { format!("tree/{}/f{i}", i % 3) } else { "f".to_owned() };
        let content = random.bytes(len);
        scratch.write(&name, &content);
        contents.insert(name.into_bytes(), content);
    }
    let redundancy = ["1%", "5%", "10%", "30%", "100%"][random.below(5) as usize];
    let group = ["1K", "4K", "16K", "64K", "1M"][random.below(5) as usize];
    let mut args =
        vec!["create", "-o", "x.guard", "--redundancy", redundancy, "--group-size", group];
    args.extend(if is_set { vec!["-r", "tree"] } else { vec!["f"] });
    scratch.run(&args).is(0);
    let sidecar = fs::read(scratch.path("x.guard")).unwrap();
    let guard = Guard::new(&sidecar);
    let data = guard.data(&contents);
    guard.check(&data);
    scratch.run(&["verify", "x.guard", "--parity"]).is(0);

    // Damage to some files; a few are removed. And to the sidecar: its parity, nodes, one of the
    // heads, one of the copies.
    let mut after = contents.clone();
    let mut gone = BTreeSet::new();
    for (name, content) in &mut after {
        if random.below(count) < 2 {
            let path = scratch.path(std::str::from_utf8(name).unwrap());
            if is_set && random.below(5) == 0 {
                fs::remove_file(&path).unwrap();
                content.clear();
                gone.insert(name.clone());
            } else if damage(content, random) {
                fs::write(&path, &*content).unwrap();
            }
        }
    }
    let mut damaged_sidecar = sidecar.clone();
    let mut sidecar_differs = false;
    if random.below(2) == 0 {
        let parity = guard.parity_at..guard.parity_at + guard.parity_pieces * guard.piece_bytes;
        let range = match random.below(4) {
            0 => 0..guard.nodes_bytes,
            1 => guard.catalogue.clone(),
            2 => guard.hashes_at..guard.hashes_at + guard.hashes_bytes,
            _ => parity,
        };
        if !range.is_empty() {
            let len = (range.end - range.start) as usize;
            let mut part = damaged_sidecar[range.start as usize..range.end as usize].to_vec();
            while part.len() != len || !sidecar_differs {
                part.resize(len, 0);
                sidecar_differs |= damage(&mut part, random) && part.len() == len;
            }
            damaged_sidecar[range.start as usize..range.end as usize].copy_from_slice(&part);
            sidecar_differs = damaged_sidecar != sidecar;
        }
        fs::write(scratch.path("x.guard"), &damaged_sidecar).unwrap();
    }

    // What follows from it.
    let mut found = data.clone();
    let mut unread = BTreeSet::new();
    let mut differs = false;
    for file in &guard.files {
        let content = &after[&file.name];
        differs |= *content != contents[&file.name] || gone.contains(&file.name);
        let have = content.len().min(file.len as usize);
        found[file.start as usize..][..have].copy_from_slice(&content[..have]);
        // What is missing is bad, even if it was zeros.
        let (from, to) = (file.start + have as u64, file.start + file.len);
        if from < to {
            unread.extend(from / guard.piece_bytes..to.div_ceil(guard.piece_bytes));
        }
    }
    let losses = losses(&guard, &data, &found, &damaged_sidecar, &unread);
    let can = losses.values().all(|(lost, parity)| lost + parity <= guard.m);
    let context = format!("seed {seed}: {losses:?}, k {} m {}", guard.k, guard.m);

    let verified = scratch.run(&["verify", "x.guard", "--parity"]);
    let expected = if !differs && !sidecar_differs {
        0
    } else if can {
        1
    } else {
        3
    };
    assert_eq!(
        verified.status(),
        Some(expected),
        "{context}\n{}{}",
        verified.out(),
        verified.err()
    );
    let in_place = random.below(2) == 1;
    let run = scratch.run(if in_place {
        &["repair", "--in-place", "x.guard"]
    } else {
        &["repair", "x.guard"]
    });
    let expected_status = if can { 0 } else { 3 };
    assert_eq!(run.status(), Some(expected_status), "{context}\n{}{}", run.out(), run.err());
    let wanted = if can { &contents } else { &after };
    for (name, content) in wanted {
        let path = scratch.path(std::str::from_utf8(name).unwrap());
        let now = fs::read(&path).unwrap_or_default();
        assert!(now == *content, "{context}: {}", path.display());
        assert!(can || path.exists() != gone.contains(name), "{context}");
    }
    if can {
        scratch.run(&["verify", "x.guard", "--parity"]).is(0);
        // The sidecar was made again, too.
        let again = fs::read(scratch.path("x.guard")).unwrap();
        Guard::new(&again).check(&data);
    } else {
        assert!(fs::read(scratch.path("x.guard")).unwrap() == damaged_sidecar, "{context}");
        assert!(!scratch.path("x.guard.undo").exists());
    }
    expected
}
