//! The walk against a brute-force one, and what happens to trees that are deep, wide or changing.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::thread;

use proptest::prelude::*;
use rustix::fs::{AtFlags, CWD, FileType};
use rustix::io::Errno;

use super::listing::{EntryRecord, Listing, compare};
use super::*;

fn names(walk: Walk) -> Vec<String> {
    walk.map(|entry| describe(&entry)).collect()
}

/// The relative path, and for what is no file also what it is.
fn describe(entry: &Entry) -> String {
    let path = String::from_utf8_lossy(&entry.path_after(b"")).into_owned();
    match entry.kind() {
        Kind::File => path,
        Kind::Failed(error) => match error.raw_os_error() {
            Some(errno) => format!("{path} failed {errno}"),
            None => format!("{path} {error}"),
        },
        kind => format!("{path} {kind:?}"),
    }
}

/// Makes directories (with a slash at their end) and empty files.
pub(super) fn make(root: &Path, paths: &[&str]) {
    for path in paths {
        let path = root.join(path);
        if path.as_os_str().as_bytes().ends_with(b"/") {
            fs::create_dir_all(path).unwrap();
        } else {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
    }
}

pub(super) fn tree(paths: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    make(root.path(), paths);
    root
}

fn walk(root: &Path) -> Walk {
    Walk::new(root, &WalkOptions::default()).unwrap()
}

/// Says on the real standard error what is not tested here. The command's tests have it as another user.
fn skip(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "SKIP {why}");
}

/// All paths below `directory`, with a slash at the end of a directory's.
fn brute_force(directory: &Path, relative: &[u8], found: &mut BTreeSet<Vec<u8>>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let mut path = relative.to_vec();
        path.extend(entry.file_name().into_vec());
        if entry.file_type().unwrap().is_dir() {
            path.push(b'/');
            brute_force(&entry.path(), &path, found);
        }
        found.insert(path);
    }
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => prop::sample::select(&b"ab-.0\n\xff"[..]),
        1 => (1..=255_u8).prop_filter("a slash", |byte| *byte != b'/'),
    ];
    prop::collection::vec(byte, 1..4).prop_filter("no name", |name| name != b"." && name != b"..")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_order_is_that_of_whole_paths(
        paths in prop::collection::vec(
            (prop::collection::vec(name(), 1..5), any::<bool>()),
            0..40,
        ),
    ) {
        let root = tempfile::tempdir().unwrap();
        for (names, is_directory) in paths {
            let mut path = root.path().to_owned();
            path.extend(names.iter().map(|name| OsStr::from_bytes(name)));
            // What is in the way of an earlier path is left out.
            if is_directory {
                let _ = fs::create_dir_all(path);
            } else if fs::create_dir_all(path.parent().unwrap()).is_ok() {
                let _ = fs::write(path, "");
            }
        }
        let mut expected = BTreeSet::new();
        brute_force(root.path(), b"", &mut expected);
        let whole = usize::MAX;
        for (threads, ahead_bytes, budget, listing_bytes) in [
            (0, 1, 64, whole), (1, 1, 64, whole), (1, 100_000, 0, whole), (8, 1, 2, whole), (8, 0, 64, whole),
            (8, 100_000, 64, whole), (8, 800, 0, whole),
            // An entry for each pass, some, many.
            (0, 1, 64, 0), (8, 100_000, 64, 0), (8, 800, 0, 0), (1, 1, 2, 100), (8, 1000, 64, 150), (8, 0, 0, 400),
        ] {
            let options =
                WalkOptions { threads, ahead_bytes, listing_bytes, directories: true, ..Default::default() };
            let mut found = Vec::new();
            for mut entry in Walk::with_budget(root.path(), &options, budget, 2).unwrap() {
                let mut path = entry.path_after(b"");
                let stat = entry.stat().unwrap();
                prop_assert_eq!((stat.st_dev, stat.st_ino), entry.id());
                entry.forget_directory();
                prop_assert_eq!(entry.stat().unwrap().st_ino, stat.st_ino);
                if matches!(entry.kind(), Kind::Directory) {
                    path.push(b'/');
                }
                found.push(path);
            }
            prop_assert!(found.iter().eq(&expected), "{:?}: {:?}, not {:?}", options.threads, found, expected);
        }
    }

    #[test]
    fn a_directory_compares_as_its_name_and_a_slash(
        a in name(), a_dir in any::<bool>(), b in name(), b_dir in any::<bool>(),
    ) {
        let kind = |is_directory| if is_directory { FileType::Directory } else { FileType::RegularFile };
        let whole = |name: &[u8], is_directory: bool| {
            let mut name = name.to_vec();
            name.extend(is_directory.then_some(b'/'));
            name
        };
        prop_assert_eq!(
            compare(&a, kind(a_dir), &b, kind(b_dir)),
            whole(&a, a_dir).cmp(&whole(&b, b_dir))
        );
    }
}

#[test]
fn a_directory_stands_where_its_content_does() {
    let root = tree(&["a/x", "a-b", "a0", "a.d/y", "empty/"]);
    assert_eq!(names(walk(root.path())), ["a-b", "a.d/y", "a/x", "a0"]);
    let options = WalkOptions { directories: true, ..Default::default() };
    assert_eq!(
        names(Walk::new(root.path(), &options).unwrap()),
        ["a-b", "a.d Directory", "a.d/y", "a Directory", "a/x", "a0", "empty Directory"]
    );
}

#[test]
fn the_root_is_shown_as_it_was_written() {
    let root = tree(&["dir/a", "dir/sub/b"]);
    let link = root.path().join("link");
    symlink("dir", &link).unwrap();
    let base = root.path().to_str().unwrap().to_owned();
    // Where a relative root is cannot be chosen here: tests share their working directory.
    let cases = [("dir", "dir"), ("dir/", "dir"), ("dir///", "dir"), ("./dir", "./dir")];
    let links =
        [("link", "link"), ("link/", "link"), ("dir/.", "dir/."), ("dir/sub/..", "dir/sub/..")];
    for (given, shown) in cases.into_iter().chain(links) {
        let entries: Vec<_> = walk(Path::new(&format!("{base}/{given}"))).collect();
        let paths: Vec<_> = entries.iter().map(|e| String::from_utf8(e.path()).unwrap()).collect();
        assert_eq!(paths, [format!("{base}/{shown}/a"), format!("{base}/{shown}/sub/b")]);
        assert_eq!(entries[1].path_after(b""), b"sub/b");
        assert_eq!(entries[1].name(), b"b");
        let mut out = b"kept ".to_vec();
        entries[0].push_path(&mut out);
        assert_eq!(out, format!("kept {base}/{shown}/a").into_bytes());
    }
    for (given, prefix) in [(".", "./"), ("./", "./"), ("src//", "src/"), ("/", "/"), ("//", "/")] {
        let options = WalkOptions { directories: true, threads: 0, ..Default::default() };
        let path = Walk::new(Path::new(given), &options).unwrap().next().unwrap().path();
        assert!(path.starts_with(prefix.as_bytes()), "{given}");
        assert_ne!(path[prefix.len()], b'/', "{given}");
    }
}

#[test]
fn a_root_that_cannot_be_opened_is_an_error() {
    let root = tree(&["file"]);
    for (name, errno) in [("file", Errno::NOTDIR), ("none", Errno::NOENT)] {
        let error = Walk::new(&root.path().join(name), &WalkOptions::default()).err().unwrap();
        assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()));
    }
    let error = Walk::new(Path::new(""), &WalkOptions::default()).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn what_is_no_file_is_told_without_being_opened() {
    let root = tree(&["file"]);
    let path = |name| root.path().join(name);
    rustix::fs::mkfifoat(CWD, path("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    symlink("nowhere", path("link")).unwrap();
    let entries: Vec<_> = walk(root.path()).collect();
    let described: Vec<_> = entries.iter().map(describe).collect();
    assert_eq!(described, ["fifo Fifo", "file", "link Symlink", "socket Socket"]);
    assert_eq!(entries[2].read_link().unwrap(), b"nowhere");
    assert_eq!(entries[2].open().unwrap_err().raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    assert_eq!(FileType::from_raw_mode(entries[2].stat().unwrap().st_mode), FileType::Symlink);
    let device = fs::metadata("/dev/null").unwrap().file_type();
    let null = walk(Path::new("/dev")).find(|entry| entry.path_after(b"") == b"null").unwrap();
    assert_eq!(matches!(null.kind(), Kind::CharDevice), device.is_char_device());
}

#[test]
fn links_are_followed_only_if_asked_and_never_round_and_round() {
    let root = tree(&["a/b/file", "other/x"]);
    let path = |name| root.path().join(name);
    symlink("..", path("a/b/up")).unwrap();
    symlink("b/file", path("a/file")).unwrap();
    symlink("../other", path("a/way")).unwrap();
    symlink("../other", path("a/way2")).unwrap();
    symlink("nowhere", path("broken")).unwrap();
    symlink("self", path("self")).unwrap();
    let plain = [
        "a/b/file",
        "a/b/up Symlink",
        "a/file Symlink",
        "a/way Symlink",
        "a/way2 Symlink",
        "broken Symlink",
        "other/x",
        "self Symlink",
    ];
    assert_eq!(names(walk(root.path())), plain);
    let followed = [
        "a/b/file",
        "a/b/up failed 40",
        "a/file",
        "a/way/x",
        "a/way2/x",
        "broken failed 2",
        "other/x",
        "self failed 40",
    ];
    let inode = |name| fs::metadata(path(name)).unwrap().ino();
    for (threads, budget) in [(0, 64), (8, 64), (0, 0), (8, 0)] {
        let options = WalkOptions { follow: true, threads, ..Default::default() };
        let walk = Walk::with_budget(root.path(), &options, budget, 2).unwrap();
        let entries: Vec<_> = walk.collect();
        assert_eq!(entries.iter().map(describe).collect::<Vec<_>>(), followed);
        assert_eq!(entries[2].id().1, inode("a/b/file"));
        for (index, name) in [(0, "a/b/file"), (2, "a/b/file"), (3, "other/x"), (4, "other/x")] {
            let file = entries[index].open().unwrap();
            assert_eq!(file.metadata().unwrap().ino(), inode(name));
        }
    }
}

#[test]
fn other_devices_are_left_out_if_asked() {
    let device = |path| fs::metadata(path).map(|metadata| metadata.dev());
    let (Ok(root), Ok(proc)) = (device("/"), device("/proc")) else {
        return skip("no /proc");
    };
    if root == proc {
        return skip("/proc is no other device than /");
    }
    #[derive(Debug)]
    struct OnlyProc;
    impl Select for OnlyProc {
        fn selects(&self, path: &[u8]) -> bool {
            path == b"proc/version"
        }
        fn descends(&self, path: &[u8]) -> bool {
            path == b"proc"
        }
    }
    for (one_file_system, expected) in
        [(false, &["proc Directory", "proc/version"][..]), (true, &["proc Directory"])]
    {
        let select: Option<Arc<dyn Select>> = Some(Arc::new(OnlyProc));
        let options =
            WalkOptions { one_file_system, select, directories: true, ..Default::default() };
        assert_eq!(names(Walk::new(Path::new("/"), &options).unwrap()), expected);
    }
}

#[test]
fn what_cannot_be_read_is_told_in_its_place() {
    if rustix::process::geteuid().is_root() {
        return skip("root can read every directory");
    }
    let root = tree(&["a", "b/x", "c"]);
    let mode = |mode| {
        fs::set_permissions(root.path().join("b"), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0);
    let found = names(walk(root.path()));
    mode(0o700);
    assert_eq!(found, ["a", "b failed 13", "c"]);
}

#[test]
fn what_changes_meanwhile_is_an_error_and_never_something_else() {
    let root = tree(&["gone/x", "link/x", "z"]);
    let path = |name| root.path().join(name);
    // Nothing is read ahead without threads, so what happens after the first entry is seen.
    let options = WalkOptions { threads: 0, directories: true, ..Default::default() };
    let mut walk = Walk::new(root.path(), &options).unwrap();
    assert_eq!(describe(&walk.next().unwrap()), "gone Directory");
    let replaced = "link replaced: it was listed as a directory and is not one now (links are not \
                    followed)";
    fs::remove_dir_all(path("gone")).unwrap();
    fs::rename(path("link"), path("moved")).unwrap();
    symlink("moved", path("link")).unwrap();
    assert_eq!(
        names(walk),
        ["gone failed 2", "link Directory", replaced, "z"],
        "a link in the place of a directory is not followed"
    );
}

#[test]
fn a_directory_opened_again_must_be_the_same() {
    for depth in ["a", "a/b", "a/b/c"] {
        let file = format!("{depth}/file");
        let root = tree(&[&file, "zz/1/x", "zz/2/x", "zz/3/x"]);
        let options = WalkOptions { threads: 0, ..Default::default() };
        let mut walk = Walk::with_budget(root.path(), &options, 0, 1).unwrap();
        let entry = walk.next().unwrap();
        assert_eq!(entry.path_after(b""), file.as_bytes());
        entry.open().unwrap();
        // Drives it out of those remembered.
        assert_eq!(walk.count(), 3);
        entry.open().unwrap();
        entry.directory.descriptors.close();
        fs::rename(root.path().join("a"), root.path().join("moved")).unwrap();
        assert_eq!(entry.open().unwrap_err().kind(), io::ErrorKind::NotFound);
        make(root.path(), &[&file]);
        let error = entry.open().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StaleNetworkFileHandle);
    }
}

#[test]
fn an_entry_that_waits_holds_no_descriptor() {
    let root = tree(&["a/1", "b/1", "c/d/1"]);
    let mut walk = walk(root.path());
    let mut entries: Vec<_> = walk.by_ref().collect();
    let open = Arc::clone(&entries[0].directory.descriptors.open);
    drop(walk);
    assert_eq!(open.load(Relaxed), entries.len());
    entries.iter_mut().for_each(Entry::forget_directory);
    assert_eq!(open.load(Relaxed), 0);
    for entry in &entries {
        entry.open().unwrap();
        assert_eq!(open.load(Relaxed), 0);
    }
    assert_eq!(entries[2].path_after(b""), b"c/d/1");
}

/// A tree `d/d/d/...` with a file at each level, made and removed step by step since its paths are
/// longer than `PATH_MAX`.
struct Deep(tempfile::TempDir);

impl Deep {
    fn new(levels: usize) -> Deep {
        let root = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at = rustix::fs::open(root.path(), flags, Mode::empty()).unwrap();
        for _ in 0..levels {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            rustix::fs::openat(&at, "e", OFlags::WRONLY | OFlags::CREATE, Mode::RUSR).unwrap();
            at = rustix::fs::openat(&at, "d", flags, Mode::empty()).unwrap();
        }
        Deep(root)
    }
}

impl Drop for Deep {
    fn drop(&mut self) {
        let path = |name| self.0.path().join(name);
        while path("d").exists() {
            let _ = fs::remove_file(path("d/e"));
            let _ = fs::rename(path("d/d"), path("next"));
            if rustix::fs::unlinkat(CWD, path("d"), AtFlags::REMOVEDIR).is_err() {
                break;
            }
            let _ = fs::rename(path("next"), path("d"));
        }
    }
}

#[test]
fn depth_has_no_limit() {
    const LEVELS: usize = 5000;
    let root = Deep::new(LEVELS);
    for (threads, budget) in [(0, 4), (2, 4), (8, 64)] {
        let options = WalkOptions { threads, ..Default::default() };
        let walk = Walk::with_budget(root.0.path(), &options, budget, 4).unwrap();
        let mut open = 0;
        let mut last = None;
        for (index, mut entry) in walk.enumerate() {
            // The deepest first, since "d/" is before "e". Not each: building paths is quadratic.
            if index % 50 == 0 {
                assert_eq!(entry.path_after(b"").len(), 2 * (LEVELS - 1 - index) + 1);
            }
            entry.open().unwrap();
            open = open.max(entry.directory.descriptors.open.load(Relaxed));
            entry.forget_directory();
            if index == 0 {
                last = Some(entry);
            }
        }
        // Each thread reads one and opens another again.
        let most = budget + 4 + 1 + 3 * (threads + 1);
        assert!(open <= most, "{open} descriptors, not {most}");
        // Opened again by its 5,000 names after the walk has gone.
        last.unwrap().open().unwrap();
    }
}

#[test]
fn ancestors_are_dropped_and_named_without_recursion() {
    let root = tree(&["file"]);
    let mut directory = walk(root.path()).next().unwrap().directory.clone();
    for _ in 0..200_000 {
        directory = Arc::new(Directory {
            parent: Some(Arc::clone(&directory)),
            name: b"d"[..].into(),
            device: 0,
            inode: 0,
            linked: false,
            handle: Mutex::default(),
            descriptors: Arc::clone(&directory.descriptors),
        });
    }
    let mut path = Vec::new();
    directory.push_path(b"e", false, &mut path);
    assert_eq!(path.len(), 400_001);
    assert!(path.starts_with(b"d/d/d") && path.ends_with(b"d/e"));
    drop(directory);
}

#[test]
fn a_walk_can_be_dropped_at_any_time() {
    let root = tempfile::tempdir().unwrap();
    for directory in 0..100 {
        for file in 0..5 {
            make(root.path(), &[&format!("{directory}/{file}/x")]);
        }
    }
    let deep = Deep::new(2000);
    for (root, ahead_bytes) in [(root.path(), 500), (root.path(), 50_000), (deep.0.path(), 2 << 20)]
    {
        for taken in [0, 1, 2, 50, 499] {
            let options = WalkOptions { ahead_bytes, ..Default::default() };
            let mut walk = Walk::new(root, &options).unwrap();
            let entries: Vec<_> = walk.by_ref().take(taken).collect();
            drop(walk);
            assert_eq!(entries.len(), taken);
            assert!(entries.iter().all(|entry| entry.stat().is_ok()));
        }
    }
}

#[test]
fn a_directory_of_20_000_files() {
    let root = tempfile::tempdir().unwrap();
    for index in 0..20_000 {
        fs::write(root.path().join(index.to_string()), "").unwrap();
    }
    let mut expected: Vec<_> = (0..20_000).map(|index| index.to_string()).collect();
    expected.sort_unstable();
    for listing_bytes in [usize::MAX, 100_000] {
        let options = WalkOptions { ahead_bytes: 5000, listing_bytes, ..Default::default() };
        assert_eq!(names(Walk::new(root.path(), &options).unwrap()), expected);
    }
}

/// Leaves out what is named in a file `skip` of the directory, and all directories named `out`.
#[derive(Debug, Default)]
struct Skips(Mutex<HashMap<Vec<u8>, Vec<u8>>>);

impl Select for Skips {
    fn selects(&self, path: &[u8]) -> bool {
        let (directory, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&path[..0], path),
        };
        let skips = self.0.lock().unwrap();
        skips[directory] != name
    }

    fn descends(&self, path: &[u8]) -> bool {
        self.selects(path) && path != b"out" && !path.ends_with(b"/out")
    }

    fn enter(&self, path: &[u8], directory: BorrowedFd<'_>) -> io::Result<()> {
        let file = rustix::fs::openat(directory, "skip", OFlags::RDONLY, Mode::empty());
        let name = file.map(|fd| io::read_to_string(fs::File::from(fd)).unwrap());
        let name = name.unwrap_or_default().into_bytes();
        assert!(self.0.lock().unwrap().insert(path.to_vec(), name).is_none(), "entered twice");
        Ok(())
    }
}

#[test]
fn only_what_is_selected_is_given() {
    let root = tree(&["a/b/c", "a/b/d", "a/out/x", "a/x", "out/x", "b/out", "c/d/e"]);
    fs::write(root.path().join("a/b/skip"), "c").unwrap();
    fs::write(root.path().join("skip"), "c").unwrap();
    for threads in [0, 1, 8] {
        let skips = Arc::new(Skips::default());
        let select: Option<Arc<dyn Select>> = Some(Arc::clone(&skips) as _);
        let options = WalkOptions { threads, select, ..Default::default() };
        let found = names(Walk::new(root.path(), &options).unwrap());
        assert_eq!(found, ["a/b/d", "a/b/skip", "a/x", "b/out", "skip"]);
        let mut entered: Vec<_> = skips.0.lock().unwrap().keys().cloned().collect();
        entered.sort_unstable();
        assert_eq!(entered, [&b""[..], b"a", b"a/b", b"b"]);
    }
}

#[test]
fn a_select_that_panics_in_a_thread_fails_its_directory() {
    #[derive(Debug)]
    struct Panics(thread::ThreadId);
    impl Select for Panics {
        fn selects(&self, _: &[u8]) -> bool {
            assert_eq!(thread::current().id(), self.0, "as the test wants it");
            true
        }
        fn descends(&self, path: &[u8]) -> bool {
            self.selects(path)
        }
    }
    let root = tree(&["a/x", "b/x", "c/x", "d"]);
    let select: Option<Arc<dyn Select>> = Some(Arc::new(Panics(thread::current().id())));
    let options = WalkOptions { select, ..Default::default() };
    // Each directory was read by the caller or failed in a thread; none is left out.
    assert_eq!(Walk::new(root.path(), &options).unwrap().count(), 4);
}

#[test]
fn names_that_occur_twice_are_both_given() {
    let mut listing = Listing::default();
    for (name, kind, inode) in [
        (b"x", FileType::RegularFile, 2),
        (b"x", FileType::RegularFile, 1),
        (b"x", FileType::Directory, 3),
        (b"x", FileType::Directory, 3),
    ] {
        listing.push(name, kind, inode, None).unwrap();
    }
    listing.finish().unwrap();
    let inodes: Vec<_> = listing.records.iter().map(|record| record.inode).collect();
    assert_eq!((inodes, listing.children), (vec![1, 2, 3, 3], vec![2, 3]));
    assert_eq!(size_of::<EntryRecord>(), 24);
}

#[test]
fn an_entry_shows_its_path_and_what_it_is() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join(OsStr::from_bytes(b"a\xff")), "").unwrap();
    let entry = walk(root.path()).next().unwrap();
    let path = format!("{}/a\u{fffd}", root.path().to_str().unwrap());
    assert_eq!(format!("{entry:?}"), format!("Entry {{ path: {path:?}, kind: File, .. }}"));
}

#[test]
fn a_walk_can_be_sent() {
    fn sent<T: Send>() {}
    sent::<Walk>();
    sent::<Entry>();
}
