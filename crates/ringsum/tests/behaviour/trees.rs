//! `-r`: every kind of entry, every name, every way of reading, and trees that change during the
//! walk. Expected hashes come from the crate `blake3`; lines are in the byte order of whole paths.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mkdirat, mknodat, openat};

use crate::support::{
    Output, Scratch, content, files_below, hex, installed, line, lines_below, run, skip,
    skip_unless_strict,
};

fn make_special(path: &Path, kind: FileType) -> rustix::io::Result<()> {
    mknodat(CWD, path, kind, Mode::from(0o644), makedev(1, 3))
}

/// A tree `t` with an entry of every kind that needs no privilege.
fn every_kind() -> Scratch {
    let scratch = Scratch::new();
    for directory in ["t/dir", "t/.dir", "t/nothing"] {
        scratch.make_dir(directory);
    }
    for (name, content) in [
        ("t/file", "in a file"),
        ("t/empty", ""),
        ("t/.hidden", "hidden"),
        ("t/.dir/inner", "hidden too"),
        ("t/dir/x", "x"),
        ("outside", "not in the tree"),
    ] {
        scratch.write(name, content);
    }
    for (target, link) in [
        ("file", "t/link"),
        ("dir", "t/dirlink"),
        (".", "t/loop"),
        ("nowhere", "t/dangling"),
        ("fifo", "t/to-fifo"),
        ("../outside", "t/out"),
    ] {
        symlink(target, scratch.join(link)).unwrap();
    }
    make_special(&scratch.join("t/fifo"), FileType::Fifo).unwrap();
    make_special(&scratch.join("t/socket"), FileType::Socket).unwrap();
    scratch
}

const SKIPPED: &str = "ringsum: t/fifo: skipped: it is a FIFO\n\
                       ringsum: t/socket: skipped: it is a socket\n";

#[test]
fn every_kind_of_entry() {
    let scratch = every_kind();
    let files: [(&str, &str); 5] = [
        ("t/.dir/inner", "hidden too"),
        ("t/.hidden", "hidden"),
        ("t/dir/x", "x"),
        ("t/empty", ""),
        ("t/file", "in a file"),
    ];
    let expected: String = files
        .iter()
        .map(|(name, content)| format!("{}  {name}\n", hex(content.as_bytes())))
        .collect();
    scratch.run(&["-r", "t"]).expect(0, &expected, SKIPPED);
    for way in [
        &["-j1"][..],
        &["-x"],
        &["--io=engine=io_uring"],
        &["--io=engine=mmap"],
        &["--io=order=in-order"],
    ] {
        scratch.run(&[way, &["--recursive", "t"]].concat()).expect(0, &expected, SKIPPED);
    }
    // A link that is named is followed.
    let through = |link: &str| expected.replace("  t/", &format!("  {link}/"));
    let skipped = SKIPPED.replace(": t/", ": t/loop/");
    scratch.run(&["-r", "t/loop"]).expect(0, &through("t/loop"), &skipped);
    scratch.run(&["-r", "t/link"]).expect(0, &format!("{}  t/link\n", hex(b"in a file")), "");
}

/// Names in lists come from programs: special files among them are not opened, and the run does not
/// block.
#[test]
fn what_is_no_file_is_left_out_where_it_is_named_too() {
    let scratch = every_kind();
    let names = ["t/file", "t/fifo", "t/to-fifo", "t/socket", "/dev/zero"];
    let expected = format!("{}  t/file\n", hex(b"in a file"));
    let said = "ringsum: t/fifo: skipped: it is a FIFO (--allow-special reads it)\n\
                ringsum: t/to-fifo: skipped: it is a FIFO (--allow-special reads it)\n\
                ringsum: t/socket: skipped: it is a socket (--allow-special reads it)\n\
                ringsum: /dev/zero: skipped: it is a character device (--allow-special reads it)\n";
    scratch.run(&[&["-r"], &names[..]].concat()).expect(0, &expected, said);
    let list = names.join("\n");
    scratch.run_with(&["--files-from=-"], list.as_bytes()).expect(0, &expected, said);
}

#[test]
fn links_are_followed_when_told_so() {
    let scratch = every_kind();
    let mut expected = Vec::new();
    for (name, content) in [
        ("t/.dir/inner", "hidden too"),
        ("t/.hidden", "hidden"),
        ("t/dir/x", "x"),
        ("t/dirlink/x", "x"),
        ("t/empty", ""),
        ("t/file", "in a file"),
        ("t/link", "in a file"),
        ("t/out", "not in the tree"),
    ] {
        expected.extend(line(content.as_bytes(), name.as_bytes()));
    }
    let said = "ringsum: t/dangling: No such file or directory (os error 2)\n\
                ringsum: t/fifo: skipped: it is a FIFO\n\
                ringsum: t/loop: Too many levels of symbolic links (os error 40)\n\
                ringsum: t/socket: skipped: it is a socket\n\
                ringsum: t/to-fifo: skipped: it is a FIFO\n\
                ringsum: 2 files failed\n";
    scratch.run(&["-r", "--follow", "t"]).expect_bytes(1, &expected, said);
}

#[test]
fn device_nodes_are_not_opened() {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    scratch.write("t/file", "x");
    let kinds = [("t/block", FileType::BlockDevice), ("t/char", FileType::CharacterDevice)];
    for (name, kind) in kinds {
        if let Err(error) = make_special(&scratch.join(name), kind) {
            return skip(&format!("device nodes: {error}"));
        }
    }
    let said = "ringsum: t/block: skipped: it is a block device\n\
                ringsum: t/char: skipped: it is a character device\n";
    scratch.run(&["-r", "t"]).expect(0, &format!("{}  t/file\n", hex(b"x")), said);
    scratch.run(&["-r", "--follow", "t"]).expect(0, &format!("{}  t/file\n", hex(b"x")), said);
}

#[test]
fn arguments_are_in_their_order_and_trees_in_that_of_bytes() {
    let scratch = Scratch::new();
    for directory in ["t/a", "t/a/b", "t/B", "t/z"] {
        scratch.make_dir(directory);
    }
    let names = [
        "B/x", "a!", "a+", "a-b", "a.", "a/b!", "a/b/y", "a/b0", "a/x", "a0", "aa", "z/a", "\u{e9}",
    ];
    for name in names {
        scratch.write(Path::new("t").join(name), name);
    }
    scratch.write("file", "alone");
    let tree = |shown: &str| lines_below(&scratch.join("t"), shown);
    let listed: Vec<_> = files_below(&scratch.join("t")).into_keys().collect();
    assert_eq!(listed, names.map(|name| name.as_bytes().to_vec()), "the test's own order");
    let file = line(b"alone", b"file");
    let a = lines_below(&scratch.join("t/a"), "t/a");
    let cases: [(&[&str], Vec<u8>); 6] = [
        (&["t"], tree("t")),
        (&["t///"], tree("t")),
        (&["./t/"], tree("./t")),
        (&["file", "t", "file"], [&file[..], &tree("t"), &file].concat()),
        (&["t", "t/a", "t"], [tree("t"), a, tree("t")].concat()),
        (&["t/../t/."], tree("t/../t/.")),
    ];
    for (args, expected) in cases {
        for jobs in ["-j1", "-j16"] {
            let args = [&["-r", jobs], args].concat();
            scratch.run(&args).expect_bytes(0, &expected, "");
        }
    }
    // Without a name, the current directory is walked.
    let mut here = scratch.command(&["-r"]);
    run(here.current_dir(scratch.join("t")), b"not read").expect_bytes(0, &tree("."), "");
    let absolute = scratch.join("t");
    let absolute = absolute.to_str().unwrap();
    scratch.run(&["-r", absolute]).expect_bytes(0, &tree(absolute), "");
}

#[test]
fn a_directory_is_no_file_without_the_option() {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    scratch.write("t/x", "x");
    let said = "ringsum: t: is a directory: use -r to hash the files in it\n";
    scratch.run(&["t"]).expect(1, "", said);
    // Among other files, they are counted.
    let gone = "ringsum: gone: No such file or directory (os error 2)\n";
    scratch.run(&["-r", "gone", "t"]).expect(
        1,
        &format!("{}  t/x\n", hex(b"x")),
        &format!("{gone}ringsum: 1 file failed\n"),
    );
    scratch.run(&["-r", "gone", "t", "gone"]).expect(
        1,
        &format!("{}  t/x\n", hex(b"x")),
        &format!("{gone}{gone}ringsum: 2 files failed\n"),
    );
    fs::remove_file(scratch.join("t/x")).unwrap();
    scratch.run(&["-r", "t"]).expect(0, "", "");
}

#[test]
fn what_contradicts_is_refused() {
    let scratch = Scratch::new();
    scratch.write("a", "a");
    let cases: [&[&str]; 19] = [
        &["-r", "--check", "a"],
        &["-r", "--raw", "a"],
        &["-0", "a"],
        &["-z", "--raw", "a"],
        &["-z", "--json", "a"],
        &["--follow", "a"],
        &["-x", "a"],
        &["--include=*", "a"],
        &["--exclude=*", "a"],
        &["--gitignore", "a"],
        &["-j0", "a"],
        &["-j1025", "a"],
        &["--json", "--tag", "a"],
        &["--tree-digest", "a"],
        &["-r", "--tree-digest", "--unordered", "a"],
        &["--report-unlisted=.", "a"],
        &["--verify-index", "a"],
        &["--index=i", "--keyed", "a"],
        &["-r", "--include=a[", "a"],
    ];
    for args in cases {
        let output = scratch.run(args);
        assert_eq!((output.code, output.stdout()), (2, ""), "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains("see --help"), "{args:?}: {}", output.stderr);
    }
    assert!(!scratch.join("i").exists());
}

/// A tree `t` with a name for each byte except NUL and `/`: alone (except `.`), and in the middle
/// of a name.
fn every_name() -> Scratch {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    for byte in (1..=255).filter(|byte| *byte != b'/') {
        for name in [&[byte][..], &[b'a', byte, b'b']] {
            if name != b"." {
                scratch.write(Path::new("t").join(OsStr::from_bytes(name)), name);
            }
        }
    }
    scratch
}

#[test]
fn names_of_every_byte() {
    let scratch = every_name();
    let files = files_below(&scratch.join("t"));
    assert_eq!(files.len(), 253 + 254);
    let plain = scratch.run(&["-r", "t"]);
    plain.expect_bytes(0, &lines_below(&scratch.join("t"), "t"), "");
    let zero = scratch.run(&["-rz", "t"]);
    let name = |path: &[u8]| [b"t/", path].concat();
    let record = |(path, content): (&Vec<u8>, &Vec<u8>)| {
        [hex(content).as_bytes(), b"  ", &name(path), b"\0"].concat()
    };
    zero.expect_bytes(0, &files.iter().flat_map(record).collect::<Vec<_>>(), "");
    // --check reads both, and prints the names as they are listed.
    let ok = |path: &Vec<u8>| [&name(path)[..], b": OK\0"].concat();
    let all_ok: Vec<u8> = files.keys().flat_map(ok).collect();
    scratch.run_with(&["--check", "-z"], &zero.stdout).expect_bytes(0, &all_ok, "");
    let checked = scratch.run_with(&["--check"], &plain.stdout);
    assert_eq!((checked.code, &*checked.stderr), (0, ""));
    assert_eq!(checked.stdout.split(|byte| *byte == b'\n').count(), files.len() + 1);
    // And the names in a list for --files-from.
    let names: Vec<u8> = files.keys().flat_map(|path| [&name(path)[..], b"\0"].concat()).collect();
    let listed = scratch.run_with(&["--files-from", "-", "-0"], &names);
    listed.expect_bytes(0, &plain.stdout, "");
}

#[test]
fn what_may_not_be_read_is_said_and_the_rest_is_hashed() {
    let scratch = Scratch::new();
    let Some(mut command) = scratch.unprivileged(&["-r", "t"]) else { return };
    for directory in ["t/closed", "t/listed/sub", "t/open", "t/passed"] {
        scratch.make_dir(directory);
    }
    let files =
        ["t/closed/x", "t/listed/sub/y", "t/listed/x", "t/open/x", "t/passed/x", "t/secret", "t/z"];
    for name in files {
        scratch.write(name, name);
    }
    let modes = [
        ("t/secret", 0),
        ("t/closed", 0),
        ("t/listed", 0o444),
        ("t/open", 0o555),
        ("t/passed", 0o111),
    ];
    for (name, mode) in modes {
        fs::set_permissions(scratch.join(name), Permissions::from_mode(mode)).unwrap();
    }
    let output = run(&mut command, b"");
    for (name, _) in modes {
        fs::set_permissions(scratch.join(name), Permissions::from_mode(0o755)).unwrap();
    }
    let mut expected = line(b"t/open/x", b"t/open/x");
    expected.extend(line(b"t/z", b"t/z"));
    let denied = ["t/closed", "t/listed/sub", "t/listed/x", "t/passed", "t/secret"]
        .map(|name| format!("ringsum: {name}: Permission denied (os error 13)\n"));
    let said = format!("{}ringsum: 5 files failed\n", denied.concat());
    output.expect_bytes(1, &expected, &said);
}

/// Makes nested directories one at a time, since the kernel accepts no path of that length. Calls
/// `each` in every directory; returns the last.
fn dig(root: &Path, name: &str, depth: usize, each: impl Fn(&OwnedFd)) -> OwnedFd {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let mut directory = openat(CWD, root, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        mkdirat(&directory, name, Mode::from(0o755)).unwrap();
        directory = openat(&directory, name, flags, Mode::empty()).unwrap();
        each(&directory);
    }
    directory
}

fn write_in(directory: &OwnedFd, name: &str, content: &[u8]) {
    let flags = OFlags::CREATE | OFlags::WRONLY;
    let file = openat(directory, name, flags, Mode::from(0o644)).unwrap();
    rustix::io::write(file, content).unwrap();
}

#[test]
fn paths_longer_than_the_kernel_takes() {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    let name = "n".repeat(250);
    let path = format!("t/{}/", vec![&*name; 40].join("/"));
    // Only the deepest directory has files.
    let bottom = dig(&scratch.join("t"), &name, 40, |_| {});
    write_in(&bottom, "file", b"deep");
    write_in(&bottom, "z", b"other");
    let expected = [
        line(b"deep", format!("{path}file").as_bytes()),
        line(b"other", format!("{path}z").as_bytes()),
    ];
    assert!(path.len() > 2 * 4096);
    for way in
        [&[][..], &["-j1"], &["--io=engine=libaio", "--io=page-cache=direct"], &["--io=workers=1"]]
    {
        let args = [&["-r", "t"], way].concat();
        scratch.run(&args).expect_bytes(0, &expected.concat(), "");
    }
}

#[test]
fn more_directories_than_descriptors() {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    dig(&scratch.join("t"), "d", 200, |directory| {
        write_in(directory, "a", b"above");
        write_in(directory, "e", b"below");
    });
    let path = |depth: usize| format!("t/{}", "d/".repeat(depth));
    let above = (1..=200).map(|depth| line(b"above", format!("{}a", path(depth)).as_bytes()));
    let below = (1..=200).rev().map(|depth| line(b"below", format!("{}e", path(depth)).as_bytes()));
    let expected: Vec<u8> = above.chain(below).flatten().collect();
    for script in ["$R -r t", "ulimit -n 48; $R -r t", "ulimit -n 48; $R -rj1 t"] {
        scratch.shell(script).expect_bytes(0, &expected, "");
    }
}

#[test]
fn many_entries_in_one_directory() {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    for i in 0..5000_u32 {
        // In random order.
        let name = format!("{:x}", i.wrapping_mul(2_654_435_761) >> (i % 17));
        scratch.write(format!("t/{name}-{i}"), name);
    }
    let expected = lines_below(&scratch.join("t"), "t");
    assert_eq!(expected.split(|byte| *byte == b'\n').count(), 5001);
    scratch.run(&["-r", "t"]).expect_bytes(0, &expected, "");
    // A reader that stops reading.
    let first = expected.split_inclusive(|byte| *byte == b'\n').next().unwrap();
    let head = scratch.shell("{ $R -r t; echo $? >&2; } | head -n 1");
    head.expect_bytes(0, first, "0\n");
    let mut unordered = scratch.run(&["-r", "--unordered", "t"]);
    unordered.stdout = sorted_lines(&unordered.stdout);
    unordered.expect_bytes(0, &sorted_lines(&expected), "");
}

fn sorted_lines(lines: &[u8]) -> Vec<u8> {
    let mut lines: Vec<_> = lines.split_inclusive(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    lines.concat()
}

/// Files whose `stat` reports no length.
#[test]
fn files_that_do_not_say_how_long_they_are() {
    let folder = Path::new("/proc/sys/fs/inotify");
    if !folder.is_dir() {
        return skip("/proc/sys/fs/inotify is not there");
    }
    let expected = lines_below(folder, "/proc/sys/fs/inotify");
    let scratch = Scratch::new();
    for way in ["-j16", "-j1", "--io=engine=stream", "--io=engine=pread", "--io=page-cache=direct"]
    {
        scratch.run(&["-r", way, "/proc/sys/fs/inotify"]).expect_bytes(0, &expected, "");
    }
}

/// Lengths around every boundary: a page, a small block, a block, and a few blocks.
const LENGTHS: [usize; 15] = [
    0,
    1,
    4095,
    4096,
    4097,
    32_767,
    32_768,
    32_769,
    65_536,
    (512 << 10) - 1,
    512 << 10,
    (512 << 10) + 1,
    (1 << 20) + 1,
    3 << 20,
    100_000,
];

/// A tree `t` with a file of each of these lengths, written to disk and in the page cache.
fn every_length() -> Scratch {
    let scratch = Scratch::new();
    for (i, len) in LENGTHS.into_iter().enumerate() {
        let folder = ["t", "t/b", "t/b/c"][i % 3];
        scratch.make_dir(folder);
        let mut data = content(len);
        if let Some(first) = data.first_mut() {
            *first = i as u8;
        }
        let path = scratch.write(format!("{folder}/{len}"), data);
        File::open(path).unwrap().sync_all().unwrap();
    }
    scratch
}

/// Drops the tree `t` from the page cache.
fn cool(scratch: &Scratch) {
    for path in files_below(&scratch.join("t")).into_keys() {
        let file = File::open(scratch.join("t").join(OsStr::from_bytes(&path))).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

/// The engines and cache modes that are available here, as options.
fn ways(scratch: &Scratch) -> Vec<Vec<&'static str>> {
    let engines =
        ["", "--io=engine=io_uring", "--io=engine=libaio", "--io=engine=pool", "--io=engine=pread"];
    let caches =
        ["", "--io=page-cache=direct", "--io=page-cache=buffered", "--io=page-cache=dontcache"];
    let all = engines.into_iter().flat_map(|engine| caches.map(|cache| [engine, cache]));
    let given = |way: [&'static str; 2]| way.into_iter().filter(|s| !s.is_empty()).collect();
    scratch.write("probe", content(10_000));
    let has = |way: &Vec<&str>| {
        let output = scratch.run(&[&way[..], &["probe"]].concat());
        if output.code != 0 {
            skip_unless_strict(&format!("{way:?}: {}", output.stderr));
        }
        output.code == 0
    };
    all.map(given).filter(has).collect()
}

#[test]
fn every_way_of_reading_prints_the_same_bytes() {
    let scratch = every_length();
    let expected = lines_below(&scratch.join("t"), "t");
    let ways = ways(&scratch);
    assert!(ways.len() >= 12, "the table was cut short: {ways:?}");
    for way in &ways {
        for jobs in ["-j1", "-j2", "-j16"] {
            if jobs == "-j2" {
                cool(&scratch);
            }
            let args = [&["-r", "t", jobs], &way[..]].concat();
            let output = scratch.run(&args);
            assert!(output.stdout == expected && output.code == 0, "{args:?}: {output:?}");
            assert_eq!(output.stderr, "", "{args:?}");
        }
        let output = scratch.run(&[&["-rx", "t", "--unordered"], &way[..]].concat());
        let right = sorted_lines(&output.stdout) == sorted_lines(&expected);
        assert!(right && output.code == 0, "{way:?}: {output:?}");
    }
}

#[test]
fn every_knob_prints_the_same_bytes() {
    let scratch = every_length();
    let expected = lines_below(&scratch.join("t"), "t");
    let knobs: [&[&str]; 18] = [
        &[],
        &["--io=engine=mmap"],
        &["--io=engine=stream"],
        &["--io=block-size=1000"],
        &["--io=block-size=4K", "--io=queue-depth=3"],
        &["--io=block-size=64K", "--io=page-cache=direct"],
        &["--io=slots=1"],
        &["--io=workers=0"],
        &["--io=workers=3"],
        &["--num-threads=1"],
        &["--num-threads=7", "--io=page-cache=direct"],
        &["--io=order=in-order"],
        &["--io=wait=spin", "--io=page-cache=direct"],
        &["--io=consume=batch", "--io=page-cache=direct"],
        &["--limit-rate=1G"],
        &["--io=fixed-file=on"],
        &["--no-mmap", "-j1024"],
        &["--io-priority=idle"],
    ];
    for knob in knobs {
        let output = scratch.run(&[&["-r", "t"], knob].concat());
        assert!(output.stdout == expected && output.code == 0, "{knob:?}: {output:?}");
    }
    // Cold, without options; and the other hash modes.
    cool(&scratch);
    scratch.run(&["-r", "t"]).expect_bytes(0, &expected, "");
    let files = files_below(&scratch.join("t"));
    let key = *b"whats the Elvish word for friend";
    let keyed: String = files
        .iter()
        .map(|(path, content)| {
            let hash = blake3::keyed_hash(&key, content);
            format!("BLAKE3 (t/{}) = {hash}\n", String::from_utf8_lossy(path))
        })
        .collect();
    scratch.run_with(&["-r", "--tag", "--keyed", "t"], &key).expect(0, &keyed, "");
    let short: String =
        files.values().map(|content| format!("{}\n", &hex(content)[..10])).collect();
    scratch.run(&["-r", "-l5", "--no-names", "t"]).expect(0, &short, "");
}

/// Paths of one to three names, each with the length of its file.
fn any_tree() -> impl Strategy<Value = Vec<(Vec<String>, usize)>> {
    let name = prop::string::string_regex("[ab.0 \\\\\n\r\u{e9}-]{1,3}").unwrap();
    let name = name.prop_filter("no name", |name| !matches!(&**name, "." | ".."));
    let len = prop::sample::select(vec![0, 1, 1000, 4096, 40_000, 600_000]);
    prop::collection::vec((prop::collection::vec(name, 1..4), len), 0..30)
}

/// A tree `t` of these files. If a path is both a file and a directory, the first one wins.
fn planted(tree: &[(Vec<String>, usize)]) -> Scratch {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    for (i, (names, len)) in tree.iter().enumerate() {
        let path = scratch.join("t").join(names.join("/"));
        if fs::create_dir_all(path.parent().unwrap()).is_ok() && !path.is_dir() {
            fs::write(path, &content(len + i)[i..]).unwrap();
        }
    }
    scratch
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn any_tree_is_printed_as_its_sorted_files_are(tree in any_tree(), jobs in 1..5) {
        let scratch = planted(&tree);
        let output = scratch.run(&["-r", &format!("-j{jobs}"), "t"]);
        let expected = lines_below(&scratch.join("t"), "t");
        prop_assert_eq!((output.code, &*output.stderr), (0, ""));
        prop_assert_eq!(String::from_utf8(output.stdout.clone()), String::from_utf8(expected));
        let names = files_below(&scratch.join("t")).into_keys();
        let names = names.map(|path| Path::new("t").join(OsStr::from_bytes(&path)));
        let names: Vec<OsString> = names.map(Into::into).collect();
        if installed("b3sum") && !names.is_empty() {
            let theirs = Command::new("b3sum").current_dir(scratch.path()).args(names).output();
            prop_assert_eq!(output.stdout, theirs.unwrap().stdout);
        }
    }
}

/// The hashes of every content that each file has had, by path: these may be printed.
type Had = Mutex<HashMap<String, HashSet<String>>>;

/// A tree `t` that never stops changing.
struct Churn<'a> {
    scratch: &'a Scratch,
    had: &'a Had,
    round: usize,
}

impl Churn<'_> {
    /// Notes a content that a file is about to have.
    fn note(&self, name: &str, content: &[u8]) {
        self.had.lock().unwrap().entry(name.to_owned()).or_default().insert(hex(content));
    }

    /// Overwrites files in place. They only grow, within a page, until they are recreated: no old
    /// content is a prefix of a later one, so a mixture of two is never in the list.
    fn write_over(&self) {
        for i in 0..8 {
            let name = format!("t/over{i}");
            let len = 1 + self.round % 4000;
            if len == 1 {
                let _ = fs::remove_file(self.scratch.join(&name));
            }
            let data: Vec<u8> = (0..len).map(|at| (at * len + i) as u8).collect();
            self.note(&name, b"");
            self.note(&name, &data);
            fs::write(self.scratch.join(&name), data).unwrap();
        }
    }

    /// Replaces larger files by others.
    fn replace(&self) {
        for i in 0..2 {
            let name = format!("t/large{i}");
            let data = content(600_000 + self.round % 7);
            self.note(&name, &data);
            let new = self.scratch.write("new", data);
            fs::rename(new, self.scratch.join(name)).unwrap();
        }
    }

    /// Creates and removes a directory, and changes the type of a name.
    fn come_and_go(&self) {
        let write = |name: &str| {
            self.note(name, b"");
            self.note(name, name.as_bytes());
            self.scratch.write(name, name);
        };
        let other = self.scratch.join("t/other");
        let _ = fs::remove_dir_all(self.scratch.join("t/dir"));
        let _ = fs::remove_file(&other).or_else(|_| fs::remove_dir(&other));
        match self.round % 5 {
            0 => make_special(&other, FileType::Fifo).unwrap(),
            1 => symlink("../outside", &other).unwrap(),
            2 => fs::create_dir(&other).unwrap(),
            3 => make_special(&other, FileType::Socket).unwrap(),
            _ => write("t/other"),
        }
        self.scratch.make_dir("t/dir/sub");
        write("t/dir/x");
        write("t/dir/sub/y");
    }

    fn round(&mut self) {
        self.write_over();
        if self.round.is_multiple_of(4) {
            self.replace();
        }
        self.come_and_go();
        self.round += 1;
    }
}

/// Checks that each line is or was true, that lines are in order, and that whatever is missing has
/// a message and is counted.
fn check_churned(case: &[&str], output: &Output, had: &Had) -> usize {
    let had = had.lock().unwrap();
    let mut names = Vec::new();
    for line in output.stdout().lines() {
        let (hash, name) = line.split_once("  ").expect("a line");
        let right = had.get(name).is_some_and(|hashes| hashes.contains(hash));
        assert!(right, "{case:?}: {name} never had the content of {hash}");
        names.push(name);
    }
    assert!(names.is_sorted() || case.contains(&"--unordered"), "{case:?}: {names:?}");
    let skipped = |said: &&str| said.contains(": skipped: it is a");
    let mut said: Vec<_> = output.stderr.lines().filter(|said| !skipped(said)).collect();
    let is_count = |said: &str| said.ends_with(" failed") || said.contains(" failed, ");
    let count = said.pop_if(|said| is_count(said));
    let is_change = |said: &&&str| {
        said.contains(": changed while")
            || said.contains(": replaced: it was listed as a regular file")
            || said.contains(": replaced: its directory")
    };
    let because = match said.iter().filter(is_change).count() {
        0 => String::new(),
        n => format!(", {n} because of changes while reading"),
    };
    let expected = match said.len() {
        0 => None,
        1 => Some(format!("ringsum: 1 file failed{because}")),
        n => Some(format!("ringsum: {n} files failed{because}")),
    };
    assert_eq!(count, expected.as_deref(), "{case:?}: {}", output.stderr);
    assert_eq!(output.code, i32::from(count.is_some()), "{case:?}: {}", output.stderr);
    assert!(said.iter().all(|said| said.starts_with("ringsum: t/")), "{}", output.stderr);
    names.len()
}

#[test]
fn a_tree_that_changes_gives_messages_and_no_wrong_line() {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    scratch.write("outside", "never to be seen");
    let (had, stop) = (Had::default(), AtomicBool::new(false));
    let ways: [&[&str]; 8] = [
        &[],
        &["-j1"],
        &["--unordered"],
        &["--io=page-cache=direct"],
        &["--io=engine=libaio", "--io=page-cache=direct"],
        &["--io=engine=pool"],
        &["--io=workers=1"],
        &["--index=index"],
    ];
    thread::scope(|scope| {
        let mut churn = Churn { scratch: &scratch, had: &had, round: 0 };
        churn.round();
        scope.spawn(|| {
            let mut churn = churn;
            while !stop.load(Ordering::Relaxed) {
                churn.round();
            }
        });
        // Stops the thread even if an assertion fails.
        let _stop = StopOnDrop(&stop);
        let mut lines = 0;
        for _ in 0..8 {
            for way in ways {
                let output = scratch.run(&[&["-r", "t"], way].concat());
                lines += check_churned(way, &output, &had);
            }
        }
        assert!(lines > 64, "only {lines} lines");
    });
    // Once nothing changes any more, all of it is right.
    let output = scratch.run(&["-r", "t", "--index=index"]);
    assert_eq!(output.stdout, lines_below(&scratch.join("t"), "t"));
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
