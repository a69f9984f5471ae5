//! One file.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use crate::support::{Random, Scratch};

fn scratch_with(len: usize) -> (Scratch, Vec<u8>) {
    let scratch = Scratch::new();
    let data = Random::new(len as u64).bytes(len);
    scratch.write("file", &data);
    scratch.run(&["create", "file"]).is(0);
    (scratch, data)
}

#[test]
fn lengths_at_every_boundary() {
    for len in [0, 1, 63, 64, 1023, 1024, 1025, 16_383, 16_385, 20_480, 327_681, 5_000_000] {
        let (scratch, data) = scratch_with(len);
        let line = scratch.run(&["verify", "file"]).is(0).out();
        assert_eq!(line, "file: OK\n");
        if len > 0 {
            let mut bad = data.clone();
            bad[len / 2] ^= 1;
            scratch.write("file", &bad);
            let line = scratch.run(&["verify", "file.guard"]).is(1).out();
            assert!(line.contains("can be repaired"), "{len}: {line}");
            scratch.run(&["repair", "file.guard"]).is(0);
            assert!(fs::read(scratch.path("file")).unwrap() == data, "{len}");
            assert!(fs::read(scratch.path("file.damaged")).unwrap() == bad);
        }
    }
}

#[test]
fn metadata_is_restored_and_the_damaged_file_is_kept() {
    let (scratch, data) = scratch_with(100_000);
    let path = scratch.path("file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    scratch.run(&["create", "file"]).is(0);
    let before = fs::metadata(&path).unwrap();
    for args in [&["repair", "file"][..], &["repair", "--in-place", "file"]] {
        fs::write(&path, b"short").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        // (All but the first bytes are lost, which is beyond 5 %.)
        scratch.run(args).is(3);
        assert_eq!(fs::read(&path).unwrap(), b"short");
        let mut bad = data.clone();
        bad.truncate(99_000);
        fs::write(&path, &bad).unwrap();
        scratch.run(args).is(0);
        let after = fs::metadata(&path).unwrap();
        assert!(fs::read(&path).unwrap() == data);
        assert_eq!(
            (after.mode(), after.uid(), after.mtime()),
            (before.mode(), before.uid(), before.mtime())
        );
        assert_eq!(after.mtime_nsec(), before.mtime_nsec());
    }
    assert!(fs::read(scratch.path("file.damaged")).unwrap() == data[..99_000]);
    // A second damaged file has another name, and none with --discard.
    fs::write(&path, &data[..99_001]).unwrap();
    scratch.run(&["repair", "file"]).is(0);
    assert!(fs::read(scratch.path("file.damaged.2")).unwrap() == data[..99_001]);
    fs::write(&path, &data[..99_001]).unwrap();
    scratch.run(&["repair", "--discard", "file"]).is(0);
    assert!(!scratch.path("file.damaged.3").exists());
}

#[test]
fn what_was_appended_is_named_and_removed() {
    let (scratch, data) = scratch_with(50_000);
    scratch.write("file", &[&data[..], b"more"].concat());
    let line = scratch.run(&["verify", "file"]).is(1).out();
    assert!(line.contains("4 bytes were appended"), "{line}");
    scratch.run(&["repair", "file"]).is(0);
    assert!(fs::read(scratch.path("file")).unwrap() == data);
}

#[test]
fn the_sidecar_alone_is_made_again() {
    let (scratch, _) = scratch_with(3_000_000);
    let path = scratch.path("file.guard");
    let good = fs::read(&path).unwrap();
    for (at, len) in [(8, 40), (0, 100_000), (good.len() - 4096, 4096), (good.len() / 2, 9000)] {
        let mut bad = good.clone();
        bad[at..at + len].fill(0xee);
        fs::write(&path, &bad).unwrap();
        let line = scratch.run(&["verify", "--parity", "file"]).is(1).out();
        assert!(line.contains("file: OK") && line.contains("file.guard: damaged"), "{line}");
        scratch.run(&["repair", "file"]).is(0);
        assert!(fs::read(&path).unwrap() == good, "{at}");
    }
    // Cut off at its end: the first head knows.
    fs::write(&path, &good[..good.len() - 70_000]).unwrap();
    scratch.run(&["verify", "file"]).is(1);
    scratch.run(&["repair", "file"]).is(0);
    assert!(fs::read(&path).unwrap() == good);
    // No head at all.
    fs::write(&path, &good[..3000]).unwrap();
    scratch.run(&["verify", "file"]).is(3);
}

#[test]
fn one_bad_node_near_the_root_and_damage_to_the_data() {
    let (scratch, data) = scratch_with(2_000_000);
    let path = scratch.path("file.guard");
    let mut guard = fs::read(&path).unwrap();
    guard[8..200].fill(0);
    fs::write(&path, &guard).unwrap();
    let mut bad = data.clone();
    bad[1_000_000..1_001_000].fill(0);
    scratch.write("file", &bad);
    let line = scratch.run(&["verify", "file"]).is(1).out();
    assert!(line.contains("can be repaired"), "{line}");
    scratch.run(&["repair", "file"]).is(0);
    assert!(fs::read(scratch.path("file")).unwrap() == data);
}

#[test]
fn without_parity_damage_is_located() {
    let scratch = Scratch::new();
    let mut data = Random::new(1).bytes(200_000);
    scratch.write("file", &data);
    scratch.run(&["create", "--redundancy", "0", "file"]).is(0);
    scratch.run(&["verify", "file"]).is(0);
    data[100_000] ^= 1;
    scratch.write("file", &data);
    let line = scratch.run(&["verify", "file"]).is(3).out();
    assert_eq!(line, "file: damaged: bytes 98304 to 114687 (16384 bytes); beyond repair\n");
    scratch.run(&["repair", "file"]).is(3);
}

#[test]
fn in_place_can_be_undone_while_it_is_not_complete() {
    let (scratch, _) = scratch_with(100_000);
    scratch.run(&["repair", "--undo", "file"]).is(4);
}

#[test]
fn digests_are_compared_with_a_list() {
    let (scratch, data) = scratch_with(1000);
    scratch.write("good", format!("{}  file\n", blake3::hash(&data)).as_bytes());
    scratch.write("bad", format!("{}  file\n", blake3::hash(b"")).as_bytes());
    scratch.write("none", b"");
    scratch.run(&["verify", "--check", "good", "file"]).is(0);
    scratch.run(&["verify", "--check", "bad", "file"]).is(3);
    scratch.run(&["verify", "--check", "none", "file"]).is(3);
}

#[test]
fn wrong_command_lines_and_files_that_are_not_there() {
    let scratch = Scratch::new();
    scratch.write("file", b"x");
    scratch.run(&["create"]).is(2);
    scratch.run(&["create", "--redundancy", "200%", "file"]).is(2);
    scratch.run(&["create", "file", "file2"]).is(2);
    scratch.run(&["create", "--io", "engine=warp", "file"]).is(2);
    assert!(scratch.run(&["create", "missing"]).is(4).err().contains("missing"));
    assert!(scratch.run(&["verify", "missing"]).is(4).err().contains("missing"));
    scratch.run(&["verify", "file"]).is(3);
    symlink("file", scratch.path("link")).unwrap();
    assert!(scratch.run(&["create", "link"]).is(4).err().contains("link"));
}

#[test]
fn every_engine_reads_the_same() {
    let (scratch, data) = scratch_with(3_000_000);
    let mut bad = data.clone();
    bad[1_500_000..1_580_000].fill(0);
    for engine in ["io_uring", "libaio", "pool", "pread"] {
        for cache in ["direct", "buffered"] {
            for block in ["4KiB", "64KiB", "1MiB"] {
                let io = format!("engine={engine},page-cache={cache},block-size={block},workers=2");
                scratch.write("file", &data);
                scratch.run(&["create", "-o", "again.guard", "--io", &io, "file"]).is(0);
                scratch.write("file", &bad);
                scratch.run(&["verify", "--io", &io, "again.guard"]).is(1);
                scratch.run(&["repair", "--discard", "--io", &io, "again.guard"]).is(0);
                assert!(fs::read(scratch.path("file")).unwrap() == data, "{io}");
            }
        }
    }
}

#[test]
fn json_has_the_ranges() {
    let (scratch, mut data) = scratch_with(100_000);
    data[0] ^= 1;
    scratch.write("file", &data);
    let line = scratch.run(&["verify", "--json", "file"]).is(1).out();
    let object: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(object["status"], "damaged");
    // (A piece of this file is smaller than a group.)
    assert_eq!(object["ranges"], serde_json::json!([{ "offset": 0, "len": 1024 }]));
    assert_eq!(object["repairable"], true);
    let info = scratch.run(&["info", "--json", "file"]).is(0).out();
    let object: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!((&object["data_bytes"], &object["set"]), (&100_000.into(), &false.into()));
}

/// What is read back is what the device has: parts that are read while others are written, parts that are
/// read after the fsync, and the end, which is written through the page cache.
#[test]
fn a_device_that_writes_something_else_is_found_out() {
    let len = 9_000_001;
    let (scratch, data) = scratch_with(len);
    let mut bad = data.clone();
    bad[3_000_000..3_200_000].fill(7);
    for at in [0, 10_000, 3_100_000, len / 2, len - 70_000, len - 1] {
        scratch.write("file", &bad);
        let at = at.to_string();
        let ran = scratch.run_with(&["repair", "file"], &[("RINGGUARD_SPOIL", &at)]).is(4);
        assert!(ran.err().contains("reads back as something else"), "{at}: {}", ran.err());
        assert!(fs::read(scratch.path("file")).unwrap() == bad);
        assert!(!scratch.path("file.repairing").exists());
    }
    scratch.run(&["repair", "file"]).is(0);
    assert!(fs::read(scratch.path("file")).unwrap() == data);
}
