//! Sets of files.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use crate::reader::Guard;
use crate::support::{Random, Scratch};

#[test]
fn small_files_are_packed() {
    let scratch = Scratch::new();
    let random = &mut Random::new(5);
    let mut total = 0;
    for i in 0..2000 {
        let len = random.below(8000) as usize;
        total += len;
        scratch.write(&format!("tree/{}/{i}", i % 20), &random.bytes(len));
    }
    scratch.run(&["create", "-o", "x.guard", "-r", "tree"]).is(0);
    let guard = fs::read(scratch.path("x.guard")).unwrap();
    assert!(guard.len() < total * 9 / 100, "{} of {total}", guard.len());
    // Files that were removed are made again, and directories, too.
    for i in [7, 8, 1999] {
        fs::remove_file(scratch.path(&format!("tree/{}/{i}", i % 20))).unwrap();
    }
    let before = fs::read(scratch.path("tree/1/1")).unwrap();
    scratch.write("tree/1/1", &[&before[..], b"x"].concat());
    let lines = scratch.run(&["verify", "--quiet", "x.guard"]).is(1).out();
    assert_eq!(lines.lines().count(), 4, "{lines}");
    scratch.run(&["repair", "x.guard"]).is(0);
    scratch.run(&["verify", "x.guard"]).is(0);
    assert_eq!(fs::read(scratch.path("tree/1/1")).unwrap(), before);
}

#[test]
fn names_are_any_bytes() {
    let scratch = Scratch::new();
    let names: [&[u8]; 5] = [b"new\nline", b"\xff\xfe", b"sp ace ", b"back\\slash", b"-r"];
    fs::create_dir(scratch.path("t")).unwrap();
    for name in names {
        fs::write(scratch.path("t").join(OsStr::from_bytes(name)), name).unwrap();
    }
    let lines = scratch.run(&["create", "-o", "x.guard", "-r", "t"]).is(0).out();
    assert!(lines.contains("new\\nline") && lines.lines().count() == 5, "{lines}");
    let bytes = fs::read(scratch.path("x.guard")).unwrap();
    let guard = Guard::new(&bytes);
    for name in names {
        let full = [b"t/", name].concat();
        assert!(guard.files.iter().any(|file| file.name == full));
    }
    scratch.run(&["verify", "x.guard"]).is(0);
}

#[test]
fn nothing_leads_out_of_the_directory() {
    let scratch = Scratch::new();
    scratch.write("base/a/file", b"content of a file");
    scratch.write("base/b", b"b");
    scratch.write("outside/file", b"other");
    let base = scratch.path("base");
    let run = |args: &[&str]| crate::support::run_in(&base, args, &[]);
    run(&["create", "-o", "x.guard", "--redundancy", "100%", "-r", "a"]).is(0);
    // The directory is replaced by a link that leads out.
    fs::remove_dir_all(base.join("a")).unwrap();
    symlink("../outside", base.join("a")).unwrap();
    run(&["verify", "x.guard"]).is(4);
    run(&["repair", "x.guard"]).is(4);
    assert_eq!(fs::read(scratch.path("outside/file")).unwrap(), b"other");
    assert_eq!(fs::read_dir(scratch.path("outside")).unwrap().count(), 1);
    // A name with `..`: put into a sidecar whose hashes are right.
    fs::remove_file(base.join("a")).unwrap();
    let mut bytes = fs::read(base.join("x.guard")).unwrap();
    let guard = Guard::new(&bytes);
    let (nodes_bytes, len) = (guard.nodes_bytes, bytes.len());
    let head = (nodes_bytes as usize).next_multiple_of(4096);
    let catalogue = head + 4096;
    let name = bytes[catalogue..].windows(6).position(|part| part == b"a/file").unwrap();
    bytes[catalogue + name..][..6].copy_from_slice(b"../ofi");
    let size = u32::from_le_bytes(bytes[head + 40..head + 44].try_into().unwrap()) as usize;
    let hash = blake3::hash(&bytes[catalogue..catalogue + size]);
    for head in [head, len - 4096] {
        bytes[head + 192..head + 208].copy_from_slice(&hash.as_bytes()[..16]);
        let hash = blake3::hash(&bytes[head..head + 4064]);
        bytes[head + 4064..head + 4096].copy_from_slice(hash.as_bytes());
    }
    fs::write(base.join("x.guard"), &bytes).unwrap();
    let err = run(&["repair", "x.guard"]).is(3).err();
    assert!(err.contains("leads out"), "{err}");
    assert!(!scratch.path("ofi").exists());
}

#[test]
fn names_are_relative_to_the_sidecar() {
    let scratch = Scratch::new();
    scratch.write("data/file", b"hello");
    scratch.write("other/x", b"");
    scratch.run(&["create", "-o", "data/file.guard", "data/file"]).is(0);
    scratch.run(&["verify", "data/file.guard"]).is(0);
    // Elsewhere: only with a directory.
    scratch.run(&["create", "-o", "other/file.guard", "data/file"]).is(2);
    scratch.run(&["create", "-C", ".", "-o", "other/file.guard", "data/file"]).is(0);
    scratch.run(&["verify", "-C", ".", "other/file.guard"]).is(0);
    let line = scratch.run(&["verify", "other/file.guard"]).is(1).out();
    assert_eq!(line, "data/file: missing; can be repaired\n");
}
