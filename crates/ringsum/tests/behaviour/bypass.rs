//! `--bypass-cache`: hashes what the device holds, not the page cache, or reports why it cannot.
//! Most of it needs root, for loop devices and mounts; a test whose setup fails is skipped with a
//! message.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::mounting::{Setup, noise};
use crate::support::hex;

fn attempt(what: &str, test: impl FnOnce(&mut Setup) -> Result<(), String>) {
    crate::mounting::attempt(&format!("--bypass-cache, {what}"), |setup| {
        setup.scratch.write("empty", "");
        test(setup)
    });
}

impl Setup {
    /// Checks that the directory is on a disk, on a file system that the command knows; returns
    /// whether it is btrfs.
    fn disk(&self) -> Result<bool, String> {
        let known = [0xEF53, 0x5846_5342, 0x9123_683E]; // ext4, XFS, btrfs.
        let file_system = rustix::fs::statfs(self.scratch.path()).unwrap().f_type as u32;
        let device = self.scratch.path().metadata().unwrap().dev();
        if !known.contains(&file_system) || rustix::fs::major(device) == 7 {
            return Err("the build is not on ext4, XFS or btrfs on a disk".to_owned());
        }
        self.scratch.write("probe", noise(100_000));
        let said = self.scratch.run(&["--bypass-cache", "probe"]).stderr;
        (!said.contains("needs Linux 6.1")).then_some(file_system == known[2]).ok_or(said)
    }

    fn attach_over_disk(&mut self, file: &str, dio: &str) -> Result<String, String> {
        self.disk()?;
        self.attach(file, dio)
    }

    fn make_over_disk(
        &mut self,
        mkfs: &str,
        mib: u64,
        options: &str,
        dio: &str,
    ) -> Result<String, String> {
        self.disk()?;
        self.make(mkfs, mib, options, dio)
    }

    #[track_caller]
    fn hashes(&self, options: &str, path: &str, content: &[u8]) {
        let args: Vec<&str> = options.split_whitespace().chain([path]).collect();
        self.scratch.run(&args).expect(0, &format!("{}  {path}\n", hex(content)), "");
    }

    /// Checks that a file is refused for this reason, and that another one is hashed.
    #[track_caller]
    fn refuses(&self, path: &str, why: &str) {
        let output = self.scratch.run_with(&["--bypass-cache", path, "empty"], b"in the pipe");
        let line = format!("{}  empty\n", hex(b""));
        assert_eq!((output.code, output.stdout()), (1, &*line), "{}", output.stderr);
        let start = format!("ringsum: {path}: the page cache cannot be bypassed here: ");
        let said = output.stderr.strip_prefix(&start).expect(&output.stderr);
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    }
}

/// A file that is locked into the page cache.
struct Locked(*mut std::ffi::c_void, usize);

impl Locked {
    fn new(file: &File, len: usize) -> Result<Locked, String> {
        let flags = MapFlags::SHARED | MapFlags::LOCKED;
        // SAFETY: a mapping at a place that the kernel chooses, and of which nothing is read.
        let map = unsafe { mmap(null_mut(), len, ProtFlags::READ, flags, file, 0) };
        map.map(|map| Locked(map, len)).map_err(|error| format!("mlock: {error}"))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whole.
        let _ = unsafe { munmap(self.0, self.1) };
    }
}

#[test]
fn a_file_on_a_disk_is_read_from_it() {
    attempt("a file on a disk", |setup| {
        // btrfs stores small files in its metadata.
        let small = if setup.disk()? { &[][..] } else { &[1, 1000, 5000] };
        for len in [small, &[100_000, 3_000_001]].concat() {
            let content = noise(len);
            // Dirty; then clean, but cached; then not cached.
            let file = File::open(setup.scratch.write("file", &content)).unwrap();
            setup.hashes("--bypass-cache", "file", &content);
            file.sync_all().unwrap();
            setup.hashes("--bypass-cache", "file", &content);
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            let explained = setup.scratch.shell("$R --bypass-cache --explain < file");
            assert_eq!(explained.stdout(), format!("{}  -\n", hex(&content)));
            assert!(explained.stderr.contains("\n  page-cache  direct "), "{}", explained.stderr);
        }
        Ok(())
    });
}

#[test]
fn what_has_no_medium_is_refused() {
    attempt("what has no medium", |setup| {
        setup.refuses("-", "a pipe");
        setup.refuses("/dev/zero", "a character device");
        setup.refuses("/proc/self/status", "a pseudo file");
        setup.tool("stat -f -c %T /dev/shm | grep -x tmpfs")?;
        let file = tempfile::NamedTempFile::new_in("/dev/shm").map_err(|e| e.to_string())?;
        file.as_file().set_len(1 << 20).unwrap();
        setup.refuses(file.path().to_str().unwrap(), "tmpfs is in memory");
        Ok(())
    });
}

#[test]
fn a_file_system_above_another_is_refused() {
    let overlay = "mount -t overlay -o lowerdir=below,upperdir=above,workdir=work none";
    for (line, why) in [(overlay, "overlayfs"), ("bindfs below", "a FUSE server")] {
        attempt(why, |setup| {
            setup.tool("mkdir below above work")?;
            setup.write("below/file", &noise(5000));
            setup.mount(line).map(|()| setup.refuses("on/file", why))
        });
    }
}

#[test]
fn what_ext4_journals_or_has_in_the_inode_is_refused() {
    attempt("ext4 with data=journal", |setup| {
        let device =
            setup.make_over_disk("mkfs.ext4 -q -F -O inline_data", 16, "data=journal", "on")?;
        setup.write("on/file", &noise(5000));
        setup.refuses("on/file", "data=journal");
        setup.unmount()?;
        setup.tool(&format!("mount {device} on"))?;
        setup.hashes("--bypass-cache", "on/file", &noise(5000));
        setup.write("on/tiny", b"in the inode");
        setup.refuses("on/tiny", "in its inode");
        Ok(())
    });
}

#[test]
fn what_btrfs_compresses_or_inlines_is_refused() {
    attempt("btrfs with compression", |setup| {
        setup.make_over_disk("mkfs.btrfs -q", 128, "compress-force", "on")?;
        // Not written to the disk yet when the command looks.
        setup.scratch.write("on/noise", noise(1_000_000));
        setup.hashes("--bypass-cache", "on/noise", &noise(1_000_000));
        setup.scratch.write("on/text", "compress me ".repeat(100_000));
        setup.refuses("on/text", "compressed");
        setup.scratch.write("on/tiny", "in the metadata");
        setup.refuses("on/tiny", "in the metadata");
        // The only compressed extent comes after the first batch of extents.
        let file = File::create_new(setup.scratch.join("on/sparse")).unwrap();
        (0..200).for_each(|i| file.write_all_at(&noise(4096), i * 8192).unwrap());
        setup.hashes(
            "--bypass-cache",
            "on/sparse",
            &fs::read(setup.scratch.join("on/sparse")).unwrap(),
        );
        file.write_all_at(&[7; 128 << 10], 200 * 8192).unwrap();
        setup.refuses("on/sparse", "compressed");
        Ok(())
    });
}

/// Checks that the hash of `path` follows the contents of `backing`, not those of the page cache;
/// and that there is none if the device itself reads through a page cache.
fn follows(
    setup: &Setup,
    device: &str,
    path: &str,
    old: &[u8],
    engines: &[&str],
) -> Result<(), String> {
    let buffered = "--io page-cache=buffered";
    let file = File::open(setup.scratch.join(path)).unwrap();
    let _locked = Locked::new(&file, old.len())?;
    setup.hashes(buffered, path, old);
    setup.hashes("--bypass-cache", path, old);
    let new = setup.change(old);
    setup.hashes(buffered, path, old);
    for options in engines {
        setup.hashes(&format!("--bypass-cache {options}"), path, &new);
    }
    setup.hashes(buffered, path, old);
    setup.tool(&format!("losetup --direct-io=off {device}"))?;
    setup.refuses(path, "--direct-io=on");
    setup.tool(&format!("losetup --direct-io=on {device}")).map(drop)
}

const ENGINES: [&str; 5] =
    ["", "--io engine=io_uring", "--io engine=libaio", "--io engine=pread", "--io engine=pool"];

fn files_follow(
    setup: &mut Setup,
    mkfs: &str,
    mib: u64,
    options: &str,
    engines: &[&str],
) -> Result<(), String> {
    let device = setup.make_over_disk(mkfs, mib, options, "on")?;
    for len in [5000, 3_000_001] {
        let path = format!("on/{len}");
        setup.write(&path, &noise(len));
        follows(setup, &device, &path, &noise(len), engines)?;
    }
    Ok(())
}

#[test]
fn a_change_below_the_page_cache_is_seen() {
    attempt("a change below ext4", |setup| {
        files_follow(setup, "mkfs.ext4 -q -F", 16, "rw", &ENGINES)
    });
    attempt("a change below XFS", |setup| files_follow(setup, "mkfs.xfs -q", 320, "rw", &ENGINES));
    attempt("a change below a block device", |setup| {
        setup.write("backing", &noise(1 << 20));
        let device = setup.attach_over_disk("backing", "on")?;
        follows(setup, &device, &device, &noise(1 << 20), &ENGINES)
    });
}

#[test]
fn a_change_below_btrfs_is_seen() {
    // With checksums, btrfs itself would notice the change.
    attempt("a change below btrfs", |setup| {
        let engines = ["", "--io engine=io_uring --io workers=1"];
        files_follow(setup, "mkfs.btrfs -q", 128, "nodatasum", &engines)
    });
    // btrfs falls back to the page cache if pages of the buffers do not exist yet.
    attempt("other engines on btrfs", |setup| {
        setup.make_over_disk("mkfs.btrfs -q", 128, "rw", "on")?;
        setup.write("on/file", &noise(100_000));
        for engine in &ENGINES[2..] {
            let line = format!("--bypass-cache {engine} on/file");
            let output = setup.scratch.run(&line.split_whitespace().collect::<Vec<_>>());
            assert_eq!((output.code, output.stdout()), (1, ""), "{line}");
            assert!(output.stderr.contains("pinned memory"), "{}", output.stderr);
        }
        Ok(())
    });
}

#[test]
fn what_is_below_the_device_counts() {
    attempt("what is below the device", |setup| {
        setup.write("part", &noise(1 << 20));
        let device = setup.attach_over_disk("part", "off")?;
        setup.tool(&format!("addpart {device} 1 0 2048"))?;
        setup.undo.push(format!("delpart {device} 1"));
        setup.refuses(&format!("{device}p1"), "--direct-io=on");
        setup.mount("mount -t tmpfs none")?;
        setup.write("on/disk", &noise(1 << 20));
        let device = setup.attach_over_disk("on/disk", "on")?;
        setup.refuses(&device, "tmpfs is in memory");
        setup.make_over_disk("mkfs.btrfs -q", 128, "rw", "off")?;
        setup.write("on/file", &noise(100_000));
        setup.refuses("on/file", "--direct-io=on");
        Ok(())
    });
}
