//! Trees on every kind of file system, and across several: the right hashes warm and cold, and
//! mount points that `-x` does not cross. Most of it needs root; a test whose setup fails is
//! skipped with a message.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::mounting::{Setup, attempt, noise};
use crate::support::{files_below, line, lines_below, run};

const LENGTHS: [usize; 10] =
    [0, 1, 511, 4096, 4097, 40_000, 512 << 10, (512 << 10) + 1, 1_000_003, 3 << 20];

/// Writes files of all lengths to directories at `root`, and syncs them.
fn plant(setup: &Setup, root: &str) {
    for (i, len) in LENGTHS.into_iter().enumerate() {
        let folder = format!("{root}/{}", ["", "sub", "sub/sub"][i % 3]);
        setup.scratch.make_dir(&folder);
        setup.write(&format!("{folder}/{len}"), &noise(len));
    }
    setup.write(&format!("{root}/text"), "compress me ".repeat(50_000).as_bytes());
    // Most of it is a hole.
    let sparse = File::create_new(setup.scratch.join(root).join("sparse")).unwrap();
    sparse.set_len(2_000_000).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &noise(5000), 1_234_567).unwrap();
    sparse.sync_all().unwrap();
    symlink("text", setup.scratch.join(root).join("link")).unwrap();
}

/// Drops clean files from the page cache.
fn cool(root: &Path) {
    for path in files_below(root).into_keys() {
        let file = File::open(root.join(std::ffi::OsStr::from_bytes(&path))).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

/// Checks that a tree is printed correctly, however it is read. An option that is not supported
/// there is an error of each file, and no line is wrong.
fn expect_every_way(setup: &Setup, root: &str) {
    let expected = lines_below(&setup.scratch.join(root), root);
    let ways: [&[&str]; 9] = [
        &[],
        &["-j1"],
        &["--io=page-cache=buffered"],
        &["--io=engine=pool", "--io=page-cache=buffered"],
        &["--io=engine=mmap"],
        &["--io=page-cache=direct"],
        &["--io=page-cache=dontcache"],
        &["--io=engine=io_uring", "--io=page-cache=direct"],
        &["--io=engine=libaio", "--io=page-cache=direct"],
    ];
    for (i, way) in ways.into_iter().enumerate() {
        for is_cold in [false, true] {
            if is_cold {
                cool(&setup.scratch.join(root));
            }
            let output = setup.scratch.run(&[&["-r", root], way].concat());
            let case = format!("{root} {way:?}, cold: {is_cold}: {}", output.stderr);
            // The first ones are supported everywhere.
            if i >= 5 && output.code == 1 && output.stderr.contains("cannot be used") {
                let of = |line: &[u8]| expected.windows(line.len()).any(|other| other == line);
                let mut lines = output.stdout.split_inclusive(|byte| *byte == b'\n');
                assert!(lines.all(of), "{case}");
                continue;
            }
            assert!(output.stdout == expected, "{case}");
            assert_eq!((output.code, &*output.stderr), (0, ""), "{case}");
        }
    }
    let list = setup.scratch.run_with(&["--check", "--quiet"], &expected);
    list.expect(0, "", "");
}

#[test]
fn file_systems_on_disks() {
    let disks = [
        ("ext4", "mkfs.ext4 -q -F", 32, "rw"),
        ("XFS", "mkfs.xfs -q", 320, "rw"),
        ("btrfs", "mkfs.btrfs -q", 128, "rw"),
        ("btrfs with compression", "mkfs.btrfs -q", 128, "compress-force"),
    ];
    for (what, mkfs, mib, options) in disks {
        attempt(&format!("a tree on {what}"), |setup| {
            setup.make(mkfs, mib, options, "off")?;
            plant(setup, "on/t");
            expect_every_way(setup, "on/t");
            Ok(())
        });
    }
}

#[test]
fn file_systems_in_memory() {
    attempt("a tree on tmpfs", |setup| {
        setup.mount("mount -t tmpfs none")?;
        plant(setup, "on/t");
        expect_every_way(setup, "on/t");
        Ok(())
    });
    attempt("a tree on /dev/shm", |setup| {
        setup.tool("stat -f -c %T /dev/shm | grep -x tmpfs")?;
        let folder = tempfile::tempdir_in("/dev/shm").map_err(|error| error.to_string())?;
        symlink(folder.path(), setup.scratch.join("shm")).unwrap();
        plant(setup, "shm");
        expect_every_way(setup, "shm");
        Ok(())
    });
}

#[test]
fn file_systems_above_others() {
    let overlay = "mount -t overlay -o lowerdir=below,upperdir=above,workdir=work none";
    for (what, line) in [("overlayfs", overlay), ("a FUSE file system", "bindfs below")] {
        attempt(&format!("a tree on {what}"), |setup| {
            setup.tool("mkdir below above work")?;
            plant(setup, "below/t");
            setup.mount(line)?;
            expect_every_way(setup, "on/t");
            // Changed, removed and created in the upper layer.
            setup.write("on/t/40000", b"changed");
            fs::remove_file(setup.scratch.join("on/t/0")).unwrap();
            setup.write("on/t/sub/new", b"new");
            expect_every_way(setup, "on/t");
            Ok(())
        });
    }
}

/// Files on another file system have a queue of their own; the order of the output is the same.
#[test]
fn trees_across_file_systems() {
    attempt("a tree across file systems", |setup| {
        plant(setup, "t");
        setup.mount_at("t/sub/memory", "mount -t tmpfs none")?;
        setup.make("mkfs.ext4 -q -F", 32, "rw", "off")?;
        setup.mount_at("t/disk", "mount --bind on")?;
        plant(setup, "t/sub/memory/t");
        plant(setup, "on/t");
        expect_every_way(setup, "t");
        let mut expected = lines_below(&setup.scratch.join("t"), "t");
        expected.extend(line(b"", b"t/0"));
        expected.extend(lines_below(&setup.scratch.join("on"), "on"));
        setup.scratch.run(&["-r", "t", "t/0", "on"]).expect_bytes(0, &expected, "");
        Ok(())
    });
}

#[test]
fn mount_points_are_not_crossed_when_told_so() {
    attempt("-x", |setup| {
        setup.scratch.make_dir("t/a");
        for name in ["t/a/x", "t/b", "t/z"] {
            setup.scratch.write(name, name);
        }
        let without = lines_below(&setup.scratch.join("t"), "t");
        setup.mount_at("t/mount", "mount -t tmpfs none")?;
        setup.mount_at("t/mount/deeper", "mount -t tmpfs none")?;
        for name in ["t/mount/y", "t/mount/deeper/x"] {
            setup.scratch.write(name, name);
        }
        let all = lines_below(&setup.scratch.join("t"), "t");
        assert!(all.len() > without.len());
        setup.scratch.run(&["-r", "t"]).expect_bytes(0, &all, "");
        setup.scratch.run(&["-rx", "t"]).expect_bytes(0, &without, "");
        setup.scratch.run(&["-r", "--one-file-system", "-j1", "t"]).expect_bytes(0, &without, "");
        // Each named directory has its own file system.
        let mounted = line(b"t/mount/y", b"t/mount/y");
        let both = [&without[..], &mounted].concat();
        setup.scratch.run(&["-rx", "t", "t/mount"]).expect_bytes(0, &both, "");
        let mut inside = setup.scratch.command(&["-rx", "."]);
        let expected = line(b"t/mount/y", b"./y");
        run(inside.current_dir(setup.scratch.join("t/mount")), b"").expect_bytes(0, &expected, "");
        // A link does not lead across file systems either.
        symlink("../mount", setup.scratch.join("t/a/link")).unwrap();
        setup.scratch.run(&["-rx", "--follow", "t"]).expect_bytes(0, &without, "");
        fs::remove_file(setup.scratch.join("t/a/link")).unwrap();
        // For the tree digest, a mount point is an empty directory.
        let digest = setup.scratch.run(&["-rx", "--tree-digest", "t"]);
        setup.undo_all()?;
        setup.tool("rmdir t/mount/deeper 2>/dev/null; test -z \"$(ls -A t/mount)\"")?;
        setup.scratch.run(&["-r", "--tree-digest", "t"]).expect_bytes(0, &digest.stdout, "");
        Ok(())
    });
}

/// The files that a run writes are not in its own output, whatever path the walk finds them under.
#[test]
fn own_files_are_recognized_through_other_mounts() {
    let overlay = "mount -t overlay -o lowerdir=below,upperdir=t,workdir=work none";
    for (what, line) in [("a bind mount", "mount --bind t"), ("overlayfs", overlay)] {
        attempt(&format!("own files through {what}"), |setup| {
            setup.tool("mkdir t below work")?;
            setup.write("t/a", b"a");
            setup.mount(line)?;
            let expected = lines_below(&setup.scratch.join("on"), "on");
            let skipped = |name: &str, what: &str| {
                format!("ringsum: on/{name}: skipped: it is the {what} of this run\n")
            };
            let both = skipped("index", "index") + &skipped("out", "output");
            let output = setup.scratch.shell("$R -r on > t/out; cat t/out");
            output.expect_bytes(0, &expected, &skipped("out", "output"));
            // Twice: the index is new, and it exists. (It is not removed in between: an overlayfs
            // does not notice renamed and removed files in its layers.)
            for _ in 0..2 {
                for out in ["> t/out", "-o t/out"] {
                    let script = format!("$R -r on --index=t/index {out}; cat t/out");
                    setup.scratch.shell(&script).expect_bytes(0, &expected, &both);
                }
            }
            // A copy of the output is hashed.
            setup.tool("cp -p t/out t/other")?;
            let output = setup.scratch.shell("$R -r on > t/out; cat t/out");
            let expected = lines_below(&setup.scratch.join("t"), "on");
            let without_out = expected.split_inclusive(|byte| *byte == b'\n');
            let without_out = without_out.filter(|line| !line.ends_with(b"  on/out\n"));
            let without_out = without_out.collect::<Vec<_>>().concat();
            output.expect_bytes(0, &without_out, &skipped("out", "output"));
            Ok(())
        });
    }
}
