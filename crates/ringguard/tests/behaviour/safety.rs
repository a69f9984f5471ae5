//! Nothing is overwritten that is not a sidecar, and nothing is given away.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::support::{COMMAND, Random, Scratch};

#[test]
fn a_sidecar_never_replaces_what_it_protects() {
    let scratch = Scratch::new();
    scratch.write("d/a", b"first");
    scratch.write("d/b", b"second");
    symlink("d", scratch.path("link")).unwrap();
    for args in [
        &["create", "-o", "d/a", "d/a"][..],
        &["create", "-o", "d/../link/a", "d/a"],
        &["create", "-o", "d/a", "d/a", "d/b"],
        // A file that is no sidecar.
        &["create", "-o", "d/b", "-C", "d", "d/a"],
        &["create", "-o", "d/b", "-r", "d"],
    ] {
        scratch.run(args).is(2);
        assert_eq!(fs::read(scratch.path("d/a")).unwrap(), b"first");
        assert_eq!(fs::read(scratch.path("d/b")).unwrap(), b"second");
    }
    // Sidecars are replaced, whatever their names.
    scratch.run(&["create", "-o", "d/x", "d/a"]).is(0);
    scratch.run(&["create", "-o", "d/x", "d/a", "d/b"]).is(0);
    scratch.run(&["verify", "d/x"]).is(0);
}

#[test]
fn a_sidecar_is_not_part_of_its_own_set() {
    let scratch = Scratch::new();
    scratch.write("d/a", b"first");
    for _ in 0..2 {
        scratch.run(&["create", "-C", "d", "-o", "d/../d/x.guard", "-r", "d"]).is(0);
        let lines = scratch.run(&["verify", "d/x.guard"]).is(0).out();
        assert_eq!(lines, "a: OK\n");
    }
    // A directory by a name through a link is the one that the link leads to.
    symlink("d", scratch.path("link")).unwrap();
    scratch.run(&["create", "-o", "link/x.guard", "link/a"]).is(0);
    scratch.run(&["verify", "d/x.guard"]).is(0);
}

#[test]
fn a_sidecar_that_another_process_completed_stays() {
    let scratch = Scratch::new();
    scratch.write("file", &Random::new(1).bytes(100_000));
    scratch.run(&["create", "file"]).is(0);
    let guard = fs::read(scratch.path("file.guard")).unwrap();
    // The other process had the partial file open: it has become the sidecar.
    fs::rename(scratch.path("file.guard"), scratch.path("file.guard.partial")).unwrap();
    scratch.run_with(&["create", "file"], &[("RINGGUARD_TAKEN", "other")]).is(0);
    assert!(fs::read(scratch.path("other")).unwrap() == guard);
    assert!(fs::read(scratch.path("file.guard")).unwrap() == guard);
}

#[test]
fn an_undo_record_is_not_written_through_a_link() {
    let scratch = Scratch::new();
    let mut data = Random::new(2).bytes(100_000);
    scratch.write("file", &data);
    scratch.run(&["create", "file"]).is(0);
    data[500] ^= 1;
    scratch.write("file", &data);
    scratch.write("victim", b"precious");
    symlink("victim", scratch.path("file.guard.undo.partial")).unwrap();
    scratch.run(&["repair", "--in-place", "file"]).is(4);
    assert_eq!(fs::read(scratch.path("victim")).unwrap(), b"precious");
    assert!(fs::read(scratch.path("file")).unwrap() == data);
}

#[test]
fn a_damaged_undo_record_is_named() {
    let scratch = Scratch::new();
    let data = Random::new(2).bytes(100_000);
    scratch.write("file", &data);
    scratch.run(&["create", "file"]).is(0);
    let file = OpenOptions::new().write(true).open(scratch.path("file")).unwrap();
    file.write_all_at(b"bad", 500).unwrap();
    scratch.write("file.guard.undo", b"\x89ringguard undo\n and nothing that it should be");
    let err = scratch.run(&["verify", "file"]).is(1).err();
    assert!(err.contains("--undo"), "{err}");
    let err = scratch.run(&["repair", "--in-place", "file"]).is(4).err();
    assert!(err.contains("file.guard.undo") && err.contains("remove"), "{err}");
    scratch.run(&["repair", "--undo", "file"]).is(4);
    fs::remove_file(scratch.path("file.guard.undo")).unwrap();
    scratch.run(&["repair", "--in-place", "file"]).is(0);
    assert!(fs::read(scratch.path("file")).unwrap() == data);
}

/// A repair as another user cannot restore the owner; then the file must not have the owner's privileges.
#[test]
fn privileges_are_restored_with_the_owner_only() {
    const OTHER_USER: u32 = 65_534;
    // (The scratch directory of the other tests may be below one that others cannot enter.)
    let shared = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = shared.path().join("file");
    let mut data = Random::new(3).bytes(50_000);
    fs::write(&path, &data).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
    let as_root = crate::support::run_in(shared.path(), &["create", "file"], &[]);
    as_root.is(0);
    data[100] ^= 1;
    fs::write(&path, &data).unwrap();
    let all = [shared.path().to_owned(), path.clone(), shared.path().join("file.guard")];
    if !all.iter().all(|path| chown(path, Some(OTHER_USER), None).is_ok()) {
        eprintln!("SKIP privileges: files cannot be given away here");
        return;
    }
    let copy = shared.path().join("ringguard");
    fs::copy(COMMAND, &copy).unwrap();
    let mut repair = Command::new(&copy);
    repair.args(["repair", "--discard", "file"]).current_dir(shared.path()).uid(OTHER_USER);
    let status = loop {
        match repair.status() {
            // A process that another test has just started holds the copy open for writing.
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            status => break status.unwrap(),
        }
    };
    assert_eq!(status.code(), Some(0));
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.mode() & 0o7777), (OTHER_USER, 0o755));
}

#[test]
fn a_list_has_paths_or_names() {
    let scratch = Scratch::new();
    let lines = {
        scratch.write("d/file", b"content");
        scratch.run(&["create", "d/file"]).is(0).out()
    };
    assert!(lines.ends_with("  d/file\n"), "{lines}");
    scratch.write("SUMS", lines.as_bytes());
    scratch.run(&["verify", "--check", "SUMS", "d/file"]).is(0);
    scratch.write("SUMS", lines.replace("d/file", "./d/file").as_bytes());
    scratch.run(&["verify", "--check", "SUMS", "d/file"]).is(0);
    scratch.write("SUMS", lines.replace("d/file", "file").as_bytes());
    scratch.run(&["verify", "--check", "SUMS", "d/file"]).is(0);
    // A list that is not there is found before the files are read.
    let ran = scratch.run(&["verify", "--check", "none", "d/file"]).is(4);
    assert!(ran.out().is_empty() && ran.err().contains("none"), "{}", ran.err());
    let other = format!("{}  d/file\n", blake3::hash(b"other"));
    scratch.write("SUMS", other.as_bytes());
    let out = scratch.run(&["verify", "--json", "--check", "SUMS", "d/file"]).is(3).out();
    for line in out.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    assert!(out.contains("SUMS"), "{out}");
}

/// Nothing panics if output cannot be written.
#[test]
fn a_closed_output_is_no_panic() {
    let scratch = Scratch::new();
    scratch.write("file", &[7; 5000]);
    scratch.run(&["create", "file"]).is(0);
    for args in [&["verify", "file"][..], &["info", "file"], &["info", "--json", "file"]] {
        let output = Command::new(COMMAND)
            .args(args)
            .current_dir(scratch.0.path())
            .stdout(File::options().write(true).open("/dev/full").unwrap())
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{err}");
        assert!(!err.contains("panicked"), "{err}");
    }
}
