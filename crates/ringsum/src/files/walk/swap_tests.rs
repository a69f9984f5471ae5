//! What is swapped for something else between its listing and its opening: never followed, and said.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::CWD;

use super::tests::{make, tree};
use super::*;
use crate::files::scheduler::input::OTHER_PARENT;
use crate::files::{Failure, InputFile};

const SECRET: &str = "what is outside of the tree";

/// Two trees side by side, `tree` and `outside`, that have the same names.
fn two_trees(paths: &[&str]) -> tempfile::TempDir {
    let at = tree(&[]);
    for root in ["tree", "outside"] {
        make(&at.path().join(root), paths);
    }
    for path in paths {
        fs::write(at.path().join("outside").join(path), SECRET).unwrap();
    }
    at
}

fn entries(root: &Path, follow: bool, budget: usize) -> Vec<Entry> {
    // Without threads nothing runs but this.
    let options = WalkOptions { follow, threads: 0, ..Default::default() };
    let mut walk = Walk::with_budget(root, &options, budget, 1).unwrap();
    let entries = walk.by_ref().collect();
    drop(walk);
    entries
}

/// What opening it for hashing fails with.
fn failure(entry: Entry) -> Failure {
    InputFile::from(entry).open().map(|source| source.len()).unwrap_err()
}

#[test]
fn what_takes_the_place_of_a_file_is_named_and_not_followed() {
    for follow in [false, true] {
        let at = two_trees(&["device", "directory", "fifo", "link", "none"]);
        let path = |name| at.path().join("tree").join(name);
        let found = entries(&at.path().join("tree"), follow, 64);
        for entry in &found {
            fs::remove_file(path(std::str::from_utf8(entry.name()).unwrap())).unwrap();
        }
        symlink("/dev/null", path("device")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        rustix::fs::mkfifoat(CWD, path("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        symlink("../outside/link", path("link")).unwrap();
        let said: Vec<_> = found.into_iter().map(|e| failure(e).to_string()).collect();
        let now = |what| format!("replaced: it was listed as a regular file and is {what} now");
        assert_eq!(
            said,
            [
                now("a symbolic link"),
                now("a directory"),
                now("a pipe"),
                now("a symbolic link"),
                "No such file or directory (os error 2)".to_owned(),
            ]
        );
    }
}

#[test]
fn a_link_that_was_one_is_followed_if_asked() {
    let at = two_trees(&["file"]);
    symlink("../outside/file", at.path().join("tree/link")).unwrap();
    let mut found = entries(&at.path().join("tree"), true, 64);
    let source = InputFile::from(found.remove(1)).open().unwrap();
    assert_eq!(source.len(), Some(SECRET.len() as u64));
}

/// Opens `a/b/c/file` after its directories were given up and one of them was swapped for a link.
fn open_swapped(has_openat2: bool, swapped: &str, target: &str) -> Failure {
    let at = two_trees(&["a/b/c/file"]);
    let root = at.path().join("tree");
    let mut found = entries(&root, false, 0);
    let entry = found.remove(0);
    entry.directory.descriptors.has_openat2.store(has_openat2, Relaxed);
    let up = "../".repeat(swapped.matches('/').count());
    fs::rename(root.join(swapped), root.join("moved")).unwrap();
    symlink(format!("{up}{target}"), root.join(swapped)).unwrap();
    failure(entry)
}

#[test]
fn a_link_in_the_place_of_a_directory_is_not_followed() {
    for has_openat2 in [false, true] {
        for swapped in ["a", "a/b", "a/b/c"] {
            // To another tree of the same names, and to the very directory that was listed.
            for target in [format!("../outside/{swapped}"), "moved".to_owned()] {
                let failure = open_swapped(has_openat2, swapped, &target);
                let is_told = matches!(&failure, Failure::Replaced(why) if why == OTHER_PARENT);
                assert!(is_told, "{has_openat2} {swapped} {target}: {failure}");
            }
        }
    }
}

#[test]
fn a_directory_that_is_swapped_before_it_is_read_is_not_read() {
    let at = two_trees(&["a", "d/file"]);
    let root = at.path().join("tree");
    let options = WalkOptions { threads: 0, ..Default::default() };
    let mut walk = Walk::new(&root, &options).unwrap();
    assert_eq!(walk.next().unwrap().name(), b"a");
    fs::rename(root.join("d"), root.join("moved")).unwrap();
    symlink("../outside/d", root.join("d")).unwrap();
    let failed = walk.next().unwrap();
    let Kind::Failed(error) = failed.kind() else { panic!("{failed:?}") };
    assert!(error.to_string().starts_with("replaced: it was listed as a directory"), "{error}");
    assert!(walk.next().is_none());
}

#[test]
fn directories_are_opened_again_without_openat2_too() {
    let names = vec!["d"; 100].join("/");
    let path = format!("{names}/file");
    let at = tree(&[&path]);
    for has_openat2 in [false, true] {
        let entry = entries(at.path(), false, 0).remove(0);
        entry.directory.descriptors.has_openat2.store(has_openat2, Relaxed);
        InputFile::from(entry).open().unwrap();
    }
}
