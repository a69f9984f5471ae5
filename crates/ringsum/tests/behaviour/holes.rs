//! Holes are not read, and change no digest.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::FallocateFlags;
use serde_json::Value;

use crate::mounting::{Setup, attempt, noise};
use crate::support::{Output, Scratch, hex, run, skip};

const MIB: u64 = 1 << 20;

/// No multiple of anything; a part of it is longer than what one thread hashes at a time.
const LEN: u64 = 70 * MIB + 12_345;

/// Data by its offset: at boundaries of blocks and between them, and near the end.
const DATA: [(u64, usize); 6] = [
    (0, 1),
    (MIB - 1, 2),
    (2 * MIB, 700_000),
    (33 * MIB + 4096, 4096),
    (60 * MIB, 1),
    (LEN - 9000, 3),
];

fn plant(path: &Path) -> Vec<u8> {
    let file = File::create(path).unwrap();
    file.set_len(LEN).unwrap();
    let mut content = vec![0; LEN as usize];
    for (offset, len) in DATA {
        let data = noise(len);
        content[offset as usize..][..len].copy_from_slice(&data);
        file.write_all_at(&data, offset).unwrap();
    }
    content
}

/// Returns the totals of a run, and its output without them.
fn totals(mut output: Output) -> (Output, Value) {
    let said = output.stderr.trim_end();
    let last = said.rsplit('\n').next().unwrap_or_default();
    let stats = serde_json::from_str(last).unwrap_or_else(|_| panic!("{output:?}"));
    output.stderr.clear();
    (output, stats)
}

fn hole_bytes(stats: &Value) -> u64 {
    stats["hole_bytes"].as_u64().unwrap()
}

/// Hashes `name`; returns how many of its bytes were left out, all others having been read.
#[track_caller]
fn left_out(scratch: &Scratch, args: &[&str], name: &str, content: &[u8]) -> u64 {
    let (output, stats) = totals(scratch.run(&[&["--stats=json", name], args].concat()));
    output.expect(0, &format!("{}  {name}\n", hex(content)), "");
    let left_out = hole_bytes(&stats);
    assert_eq!(stats["bytes"].as_u64().unwrap() + left_out, content.len() as u64, "{stats}");
    left_out
}

/// Whether the directory of the tests is on a file system with holes.
fn has_holes(scratch: &Scratch) -> bool {
    let kind = scratch.shell("stat -f -c %T .").stdout().trim().to_owned();
    let is = ["ext2/ext3", "xfs", "btrfs", "tmpfs"].contains(&&*kind);
    if !is {
        skip(&format!("holes: the tests run on {kind}"));
    }
    is
}

#[test]
fn every_way_gives_the_same_digests() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("t")).unwrap();
    let content = plant(&scratch.join("t/f"));
    scratch.write("t/g", "g");
    // (Of the blocks of the engine `mmap`, more have some data.)
    let most = if has_holes(&scratch) { 50 * MIB } else { 0 };
    let ways: [&[&str]; 14] = [
        &[],
        &["--num-threads=1"],
        &["--memory=16M"],
        &["--io=engine=pread"],
        &["--io=engine=pool"],
        &["--io=engine=libaio", "--io=page-cache=direct"],
        &["--io=engine=io_uring", "--io=page-cache=direct"],
        &["--io=engine=mmap"],
        &["--io=block-size=4K"],
        &["--io=block-size=64M"],
        &["--io=block-size=12K"],
        &["--io=order=in-order"],
        &["--io=page-cache=buffered", "--io=workers=3"],
        &["--limit-rate=100M"],
    ];
    for way in ways {
        let left = left_out(&scratch, way, "t/f", &content);
        // (No hole is as long as such a block.)
        assert!(left >= most || way == ["--io=block-size=64M"], "{way:?}: {left}");
        let (output, stats) = totals(scratch.run(&[&["-r", "t", "--stats=json"], way].concat()));
        let lines = format!("{}  t/f\n{}  t/g\n", hex(&content), hex(b"g"));
        output.expect(0, &lines, "");
        assert!(hole_bytes(&stats) >= most || way == ["--io=block-size=64M"], "{way:?}: {stats}");
    }
    // These read everything.
    let listed = scratch.run(&["--list-bad-ranges", "t/f"]);
    assert!(listed.stdout().contains(&hex(&content)), "{listed:?}");
    for way in [&["--io=engine=stream"][..], &["--bypass-cache"]] {
        let (output, stats) = totals(scratch.run(&[&["t/f", "--stats=json"], way].concat()));
        if way == ["--bypass-cache"] && output.code != 0 {
            skip("holes with --bypass-cache: it is not supported here");
            continue;
        }
        output.expect(0, &format!("{}  t/f\n", hex(&content)), "");
        assert_eq!(hole_bytes(&stats), 0, "{way:?}");
    }
    // The other algorithms, the other modes, standard input, lists.
    let key = noise(32);
    let mode = blake3::Hasher::new_keyed(key.first_chunk().unwrap()).update(&content).finalize();
    let args = ["--keyed", "t/f", "--stats=json"];
    let (output, stats) = totals(scratch.run_with(&args, &key));
    output.expect(0, &format!("{mode}  t/f\n"), "");
    assert!(hole_bytes(&stats) >= most);
    let mode = blake3::derive_key("tests", &content);
    let run = scratch.run(&["--derive-key=tests", "t/f"]);
    run.expect(0, &format!("{}  t/f\n", hex::encode(mode)), "");
    let mut expected = scratch.shell("sha256sum t/f && md5sum t/f");
    for args in [&["-asha256", "-amd5"][..], &["-asha256", "-amd5", "-ablake3"]] {
        let (output, stats) = totals(scratch.run(&[args, &["t/f", "--stats=json"]].concat()));
        for hash in expected.stdout().split("  t/f\n").filter(|hash| !hash.is_empty()) {
            assert!(output.stdout().contains(hash), "{output:?}");
        }
        assert!(hole_bytes(&stats) >= most, "{args:?} {stats}");
    }
    assert!(scratch.run(&["-asha256", "-ablake3", "t/f"]).stdout().contains(&hex(&content)));
    scratch.shell("$R < t/f").expect(0, &format!("{}  -\n", hex(&content)), "");
    expected = scratch.shell("(head -c 5; $R) < t/f");
    assert!(expected.stdout().contains(&hex(&content[5..])), "{expected:?}");
    scratch.shell("$R -r t > list; $R -c list").expect(0, "t/f: OK\nt/g: OK\n", "");
    scratch
        .shell("$R --seek 100 -l 50 t/f > a; $R --io=engine=stream --seek 100 -l 50 t/f | cmp - a")
        .expect(0, "", "");
}

#[test]
fn a_file_without_data_is_not_read() {
    let scratch = Scratch::new();
    if !has_holes(&scratch) {
        return;
    }
    let file = File::create(scratch.join("f")).unwrap();
    for len in [16 * MIB, 1 << 30, (1 << 30) + 1, (3 << 30) - 1, 3 << 30] {
        file.set_len(len).unwrap();
        let mut hasher = blake3::Hasher::new();
        let zeros = vec![0; 1 << 20];
        for at in (0..len).step_by(zeros.len()) {
            hasher.update(&zeros[..zeros.len().min((len - at) as usize)]);
        }
        let (output, stats) = totals(scratch.run(&["f", "--stats=json"]));
        output.expect(0, &format!("{}  f\n", hasher.finalize()), "");
        let counts = ["bytes", "hole_bytes", "requests"].map(|name| stats[name].as_u64().unwrap());
        assert_eq!(counts, [0, len, 0]);
    }
    let output = scratch.run(&["--explain", "--stats", "f"]);
    let holes = "  holes       3 GiB            not read: ";
    assert!(output.stderr.contains(holes), "{}", output.stderr);
    assert!(output.stderr.contains("\n  holes: 3221225472 bytes, not read\n"), "{}", output.stderr);
}

/// Writes what is not on the disk yet, in every way, and compares at once.
fn expect_dirty_data(scratch: &Scratch, path: &str) {
    let file = File::create(scratch.join(path)).unwrap();
    let mut content = vec![0; 64 << 20];
    file.set_len(content.len() as u64).unwrap();
    let mut write = |at: u64, len: usize| {
        let data = noise(len);
        content[at as usize..][..len].copy_from_slice(&data);
        file.write_all_at(&data, at).unwrap();
        left_out(scratch, &[], path, &content)
    };
    assert!(write(20 * MIB, 1) > 60 * MIB);
    assert!(write(9 * MIB - 1, 3_000_000) > 50 * MIB);
    // Allocated, and not written: zeros. Then partly written, but not to the disk.
    let allocated = rustix::fs::fallocate(&file, FallocateFlags::empty(), 30 * MIB, 20 * MIB);
    if allocated.is_err() {
        skip(&format!("holes: {path} cannot be preallocated"));
    }
    write(32 * MIB + 7, 5);
    write(40 * MIB, 2_000_000);
    file.sync_all().unwrap();
    write(47 * MIB, 2_000_000);
    // A hole where there was data.
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if rustix::fs::fallocate(&file, punch, 9 * MIB, 2 * MIB).is_ok() {
        content[9 << 20..11 << 20].fill(0);
        left_out(scratch, &[], path, &content);
    }
}

#[test]
fn data_that_is_not_on_the_disk_yet_is_data() {
    let scratch = Scratch::new();
    if has_holes(&scratch) {
        expect_dirty_data(&scratch, "f");
    }
}

/// The same on each file system that reports holes; `is_exact`: or does not.
fn on_file_system(
    name: &str,
    is_exact: bool,
    mount: impl FnOnce(&mut Setup) -> Result<(), String>,
) {
    attempt(&format!("holes on {name}"), |setup| {
        mount(setup)?;
        let scratch = &setup.scratch;
        let content = plant(&scratch.join("on/f"));
        for way in [&[][..], &["--io=page-cache=buffered"]] {
            let left = left_out(scratch, way, "on/f", &content);
            assert_eq!(left > 60 * MIB, is_exact, "{name}: {left}");
        }
        scratch.shell("sync on/f");
        left_out(scratch, &[], "on/f", &content);
        if scratch.shell("cp --reflink=always on/f on/copy").code == 0 {
            // Data that is shared, and then written to.
            left_out(scratch, &[], "on/copy", &content);
            let file = OpenOptions::new().write(true).open(scratch.join("on/copy")).unwrap();
            let mut changed = content.clone();
            for at in [5, 2 * MIB + 5, 50 * MIB] {
                changed[at as usize] = b'!';
                file.write_all_at(b"!", at).unwrap();
                left_out(scratch, &[], "on/copy", &changed);
            }
        }
        if is_exact {
            expect_dirty_data(scratch, "on/dirty");
        }
        Ok(())
    });
}

#[test]
fn holes_on_every_file_system() {
    let kinds = [
        ("ext4", "mkfs.ext4 -q", "rw"),
        ("ext4 without delayed allocation", "mkfs.ext4 -q", "nodelalloc"),
        ("ext3", "mkfs.ext3 -q", "rw"),
        ("XFS", "mkfs.xfs -q", "rw"),
        ("btrfs", "mkfs.btrfs -q", "rw"),
        ("btrfs, compressed", "mkfs.btrfs -q", "compress-force=zstd"),
    ];
    for (name, mkfs, options) in kinds {
        on_file_system(name, true, |setup| setup.make(mkfs, 512, options, "off").map(drop));
    }
    on_file_system("tmpfs", true, |setup| setup.mount("mount -t tmpfs none"));
    on_file_system("overlayfs", false, |setup| {
        setup.mount_at("below", "mount -t tmpfs none")?;
        setup.tool("mkdir below/lower below/upper below/work")?;
        let dirs = "lowerdir=below/lower,upperdir=below/upper,workdir=below/work";
        setup.mount(&format!("mount -t overlay none -o {dirs}"))
    });
}

#[test]
fn a_hole_that_is_filled_meanwhile_is_a_change() {
    let scratch = Scratch::new();
    if !has_holes(&scratch) {
        return;
    }
    let path = scratch.join("f");
    let file = File::create(&path).unwrap();
    file.set_len(64 * MIB).unwrap();
    let mut content = vec![0; 64 << 20];
    content[..4 << 20].copy_from_slice(&noise(4 << 20));
    file.write_all_at(&content[..4 << 20], 0).unwrap();
    for retries in ["--retry-changed=0", "--retry-changed=1"] {
        let mut command = scratch.command(&["--limit-rate=4M", retries, "f"]);
        let output = thread::scope(|scope| {
            let run = scope.spawn(|| run(&mut command, b""));
            thread::sleep(Duration::from_millis(400));
            file.write_all_at(b"filled", 40 * MIB).unwrap();
            run.join().unwrap()
        });
        content[40 << 20..][..6].copy_from_slice(b"filled");
        match retries {
            "--retry-changed=0" => {
                assert_eq!((output.code, output.stdout()), (1, ""), "{output:?}");
                assert!(output.stderr.contains("changed"), "{output:?}");
            }
            _ => output.expect(0, &format!("{}  f\n", hex(&content)), ""),
        }
    }
}
