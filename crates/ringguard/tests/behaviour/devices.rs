//! Lost sectors, full and read-only file systems, files in memory, files that change.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

use crate::fuse::{File as FaultyFile, Later, Mounted, Told, Trouble};
use crate::support::{COMMAND, Random, Scratch, run_in};

/// Commands that undo a setup, last one first, even if an assertion fails.
struct Setup {
    scratch: Scratch,
    undo: Vec<String>,
}

impl Setup {
    fn new() -> Setup {
        Setup { scratch: Scratch::new(), undo: Vec::new() }
    }

    fn tool(&self, line: &str) -> Result<String, String> {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.scratch.0.path());
        let output = command.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    fn mount(&mut self, line: &str) -> Result<(), String> {
        self.tool(&format!("mkdir -p on && {line} on"))?;
        self.undo
            .push("for i in 1 2 3 4 5 6 7 8 9 0; do umount on && break; sleep .1; done".to_owned());
        Ok(())
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        while let Some(line) = self.undo.pop() {
            let _ = self.tool(&line);
        }
    }
}

/// Runs a test, or prints why its setup failed, which is an error if `STRICT` is set.
fn attempt(what: &str, test: impl FnOnce(&mut Setup) -> Result<(), String>) {
    if let Err(why) = test(&mut Setup::new()) {
        assert!(std::env::var_os("STRICT").is_none_or(|strict| strict != "1"), "{what}: {why}");
        eprintln!("SKIP {what}: {why}");
    }
}

#[test]
fn lost_sectors_are_recovered() {
    attempt("a device that ends early", |setup| {
        let content = Random::new(1).bytes(8 << 20);
        setup.tool("truncate -s 32M backing && mkfs.ext4 -q -F -O ^has_journal backing")?;
        let device = setup.tool("losetup --find --show --direct-io=off backing")?;
        setup.undo.push(format!("losetup --detach {device}"));
        setup.mount(&format!("mount {device}"))?;
        let mut file = File::create(setup.scratch.path("on/file")).unwrap();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let guard = setup.scratch.path("file.guard");
        let directory = setup.scratch.0.path().to_owned();
        run_in(&directory, &["create", "-C", "on", "-o", "file.guard", "on/file"], &[]).is(0);
        assert!(guard.exists());
        setup.tool("umount on")?;
        setup.tool(&format!("mount -o ro {device} on"))?;
        // The last 3 % of the file are gone.
        let at = (content.len() * 97 / 100) / 4096 * 4096;
        let backing = fs::read(setup.scratch.path("backing")).unwrap();
        let mark = &content[at..at + 512];
        let place = (0..backing.len()).step_by(512).find(|i| backing[*i..].starts_with(mark));
        let place = place.ok_or("the content is not in the image")?;
        let end = (0..backing.len())
            .step_by(512)
            .filter(|i| backing[*i..].starts_with(&content[..512]))
            .count();
        assert_eq!(end, 1);
        let backing = OpenOptions::new().write(true).open(setup.scratch.path("backing")).unwrap();
        backing.set_len(place as u64).unwrap();
        setup.tool(&format!("blockdev --flushbufs {device}; echo 3 > /proc/sys/vm/drop_caches"))?;
        for io in ["engine=io_uring", "engine=pread,page-cache=buffered"] {
            let args = ["verify", "--io", io, "-C", "on", "file.guard"];
            let ran = run_in(&directory, &args, &[]).is(1);
            assert!(ran.out().contains("can be repaired"), "{}", ran.out());
        }
        // Its file system is read-only: nothing can be repaired there, and the message says where.
        let ran = run_in(&directory, &["repair", "-C", "on", "file.guard"], &[]).is(4);
        assert!(ran.err().contains("Read-only") && ran.err().contains("on/file"), "{}", ran.err());
        Ok(())
    });
}

#[test]
fn files_in_memory_are_repaired() {
    attempt("tmpfs", |setup| {
        setup.mount("mount -t tmpfs none")?;
        let content = Random::new(2).bytes(3 << 20);
        fs::write(setup.scratch.path("on/file"), &content).unwrap();
        let on = setup.scratch.path("on");
        run_in(&on, &["create", "file"], &[]).is(0);
        for args in [&["repair", "file"][..], &["repair", "--in-place", "file"]] {
            let file = OpenOptions::new().write(true).open(on.join("file")).unwrap();
            file.write_all_at(&[0; 50_000], 1_000_000).unwrap();
            run_in(&on, &["verify", "file"], &[]).is(1);
            run_in(&on, args, &[]).is(0);
            assert!(fs::read(on.join("file")).unwrap() == content);
        }
        // Past the page cache there is nothing here.
        run_in(&on, &["verify", "--bypass-cache", "file"], &[]).is(4);
        Ok(())
    });
}

#[test]
fn a_full_file_system_is_named() {
    attempt("a small tmpfs", |setup| {
        setup.mount("mount -t tmpfs -o size=4M none")?;
        let on = setup.scratch.path("on");
        let content = Random::new(2).bytes(3 << 20);
        fs::write(on.join("file"), &content).unwrap();
        run_in(&on, &["create", "file"], &[]).is(0);
        let file = OpenOptions::new().write(true).open(on.join("file")).unwrap();
        file.write_all_at(&[0; 50_000], 1_000_000).unwrap();
        let bad = fs::read(on.join("file")).unwrap();
        // There is no room for a second file, but for the pieces there is.
        let ran = run_in(&on, &["repair", "file"], &[]).is(4);
        assert!(ran.err().contains("file"), "{}", ran.err());
        assert!(fs::read(on.join("file")).unwrap() == bad);
        assert!(!on.join("file.repairing").exists());
        run_in(&on, &["repair", "--in-place", "file"], &[]).is(0);
        assert!(fs::read(on.join("file")).unwrap() == content);
        // Nor for a sidecar of full redundancy.
        let args = ["create", "--redundancy", "100%", "-o", "more.guard", "file"];
        let ran = run_in(&on, &args, &[]).is(4);
        assert!(ran.err().contains("more.guard"), "{}", ran.err());
        assert!(!on.join("more.guard").exists());
        Ok(())
    });
}

/// Where files can share blocks, there is room for a repaired one beside the damaged one.
#[test]
fn intact_blocks_are_shared() {
    let content = Random::new(8).bytes(80 << 20);
    for (name, make) in [("btrfs", "mkfs.btrfs -q -m single"), ("XFS", "mkfs.xfs -q")] {
        attempt(name, |setup| {
            setup.tool(&format!("truncate -s 320M backing && {make} backing"))?;
            setup.mount("mount -o loop backing")?;
            let on = setup.scratch.path("on");
            let create = |file: &str, args: &[&str]| {
                let out = format!("{file}.guard");
                let args = [args, &["-C", "on", "-o", &out]].concat();
                run_in(setup.scratch.0.path(), &args, &[])
            };
            let path = on.join("file");
            fs::write(&path, &content).unwrap();
            // No room for a second file is left.
            let free =
                setup.tool("sync on/file && df --output=avail --block-size=1M on | tail -1")?;
            let free: u64 = free.parse().map_err(|_| format!("df: {free}"))?;
            setup.tool(&format!("fallocate -l {}M on/ballast", free.saturating_sub(60)))?;
            create("one", &["create", "on/file"]).is(0);
            // (A set of one.)
            create("set", &["create", "on/file", "on/file"]).is(0);
            // Damaged, with a lost end, and with something behind it.
            for (i, guard) in ["one.guard", "set.guard", "one.guard"].into_iter().enumerate() {
                let file = OpenOptions::new().write(true).open(&path).unwrap();
                file.write_all_at(&[0; 1_000_000], 20_000_000).unwrap();
                file.set_len(content.len() as u64 + i as u64 * 5_000 - 5_000).unwrap();
                file.sync_all().unwrap();
                run_in(setup.scratch.0.path(), &["repair", "-C", "on", guard], &[]).is(0);
                assert!(fs::read(&path).unwrap() == content);
                assert!(fs::read(on.join("file.damaged")).unwrap() != content);
                fs::remove_file(on.join("file.damaged")).unwrap();
            }
            Ok(())
        });
    }
}

/// Small pieces do not begin where direct reads may on a device with sectors of 4096 bytes.
#[test]
fn sectors_of_4096_bytes() {
    attempt("a device with sectors of 4096 bytes", |setup| {
        setup.tool("truncate -s 64M backing")?;
        let device =
            setup.tool("losetup --find --show --direct-io=on --sector-size 4096 backing")?;
        setup.undo.push(format!("losetup --detach {device}"));
        setup.tool(&format!("mkfs.ext4 -q -F {device}"))?;
        setup.mount(&format!("mount {device}"))?;
        let on = setup.scratch.path("on");
        for len in [5_000, 700_001, 3_000_000] {
            let content = Random::new(len as u64).bytes(len);
            for io in ["page-cache=direct", "page-cache=direct,engine=pread", "workers=1"] {
                fs::write(on.join("file"), &content).unwrap();
                run_in(&on, &["create", "--io", io, "file"], &[]).is(0);
                let file = OpenOptions::new().write(true).open(on.join("file")).unwrap();
                file.write_all_at(b"damage", len as u64 / 2).unwrap();
                file.sync_all().unwrap();
                run_in(&on, &["verify", "--bypass-cache", "--io", io, "file"], &[]).is(1);
                run_in(&on, &["repair", "--discard", "--io", io, "file"], &[]).is(0);
                assert!(fs::read(on.join("file")).unwrap() == content, "{io} {len}");
            }
        }
        Ok(())
    });
}

/// Gives the file of a sidecar another name of the same length.
fn rename_in_guard(path: &std::path::Path, from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let mut bytes = fs::read(path).unwrap();
    let head = bytes.len() - 4096;
    let number = |at: usize, bytes: &[u8]| {
        u64::from_le_bytes(bytes[head + at..head + at + 8].try_into().unwrap())
    };
    let catalogue = (number(24, &bytes) as usize).next_multiple_of(4096) + 4096;
    let size = u32::from_le_bytes(bytes[head + 40..head + 44].try_into().unwrap()) as usize;
    let copy = head - size.next_multiple_of(4096);
    let mut piece = bytes[catalogue..catalogue + size].to_vec();
    piece[2..2 + to.len()].copy_from_slice(to.as_bytes());
    for place in [catalogue, copy] {
        bytes[place..place + size].copy_from_slice(&piece);
    }
    let hash = blake3::hash(&piece);
    for head in [catalogue - 4096, head] {
        for place in [192, 208] {
            bytes[head + place..head + place + 16].copy_from_slice(&hash.as_bytes()[..16]);
        }
        let hash = blake3::hash(&bytes[head..head + 4064]);
        bytes[head + 4064..head + 4096].copy_from_slice(hash.as_bytes());
    }
    fs::write(path, bytes).unwrap();
}

/// A file system in this process whose files are faulty.
#[test]
fn faulty_files() {
    attempt("FUSE", |setup| {
        let on = setup.scratch.path("on");
        fs::create_dir(&on).unwrap();
        let mounted = Mounted::new(&on)?;
        let directory = setup.scratch.0.path().to_owned();
        let content = Random::new(5).bytes(3 << 20);
        let file = |trouble, later| FaultyFile {
            content: content.clone(),
            trouble,
            later,
            ..FaultyFile::default()
        };
        let create = |name: &str, is_set: bool| {
            let path = format!("on/{name}");
            let mut args = vec!["create", "-C", "on", "-o", "x.guard", &path];
            if is_set {
                // (A set of one.)
                args.extend(["--", &path]);
            }
            run_in(&directory, &args, &[])
        };
        // Short reads are no errors, in a set neither.
        for is_set in [false, true] {
            let short = FaultyFile { is_direct: true, ..file(Trouble::Short(70_000), None) };
            let added = mounted.add(short);
            create(&added.name(), is_set).is(0);
            run_in(&directory, &["verify", "-C", "on", "x.guard"], &[]).is(0);
            // A read error is one that names the file, and gives no sidecar.
            let _ = fs::remove_file(directory.join("x.guard"));
            let fails = || Trouble::Fails { at: 1_000_000..1_000_001, errno: 5, times: u32::MAX };
            let added = mounted.add(file(fails(), None));
            let ran = create(&added.name(), is_set).is(4);
            assert!(ran.err().contains(&format!("on/{}", added.name())), "{}", ran.err());
            assert!(!directory.join("x.guard").exists());
            // So is a change, even one that only the time of the change tells of.
            let later =
                Later { after_reads: 2, content: vec![1; content.len()], is_told_by: Told::Ctime };
            let added = mounted.add(file(Trouble::None, Some(later)));
            let ran = create(&added.name(), is_set).is(4);
            assert!(ran.err().contains(&format!("on/{}", added.name())), "{}", ran.err());
            assert!(!directory.join("x.guard").exists());
        }
        // Bytes that cannot be read are damage. (The file system cannot be written to.)
        let intact = mounted.add(file(Trouble::None, None));
        create(&intact.name(), false).is(0);
        let fails = Trouble::Fails { at: 1_000_000..1_000_001, errno: 5, times: u32::MAX };
        let faulty = mounted.add(file(fails, None));
        rename_in_guard(&directory.join("x.guard"), &intact.name(), &faulty.name());
        let ran = run_in(&directory, &["verify", "-C", "on", "x.guard"], &[]).is(1);
        assert!(ran.out().contains("can be repaired"), "{}", ran.out());
        assert_eq!(ran.out().lines().count(), 1, "{}", ran.out());
        Ok(())
    });
}

/// Runs a slow `create`, during which `change` is called.
fn while_it_runs(change: impl FnOnce(&Scratch), args: &[&str]) -> (i32, String, bool) {
    let scratch = Scratch::new();
    scratch.write("d/file", &Random::new(1).bytes(6 << 20));
    scratch.write("d/other", b"x");
    let child = Command::new(COMMAND)
        .args(args)
        .args(["--limit-rate", "6MB", "-o", "x.guard"])
        .current_dir(scratch.0.path())
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    change(&scratch);
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), err, scratch.path("x.guard").exists())
}

#[test]
fn a_file_that_changes_while_it_is_read_has_no_sidecar() {
    for args in [&["create", "d/file"][..], &["create", "-r", "d"]] {
        for truncates in [true, false] {
            let (status, err, exists) = while_it_runs(
                |scratch| {
                    let path = scratch.path("d/file");
                    let file = OpenOptions::new().write(true).open(path).unwrap();
                    match truncates {
                        true => file.set_len(1 << 20).unwrap(),
                        false => file.write_all_at(b"changed", 5 << 20).unwrap(),
                    }
                },
                args,
            );
            assert_eq!(status, 4, "{err}");
            assert!(err.contains("d/file") && !exists, "{err}");
        }
    }
}
