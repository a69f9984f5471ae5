//! Bad sectors: which bytes are reported, by every engine, and `--list-bad-ranges`. A loop device
//! whose backing file was truncated gives real errors, which needs root; a test whose setup fails
//! is skipped with a message.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::mounting::{Setup, attempt, noise};
use crate::support::{content, hex};

const MIB: usize = 1 << 20;

/// Every engine and cache mode, and the smallest unit that it reads, in pages; 0: a sector of the
/// device.
const WAYS: [(&[&str], u64); 12] = [
    (&["--io=page-cache=buffered"], 1),
    (&["--io=page-cache=direct"], 0),
    (&["--io=engine=io_uring", "--io=page-cache=direct"], 0),
    (&["--io=engine=io_uring", "--io=page-cache=buffered"], 1),
    (&["--io=engine=libaio", "--io=page-cache=direct"], 0),
    (&["--io=engine=pool", "--io=page-cache=direct"], 0),
    (&["--io=engine=pool", "--io=page-cache=buffered"], 1),
    (&["--io=engine=pread", "--io=page-cache=direct"], 0),
    (&["--io=engine=pread", "--io=page-cache=buffered"], 1),
    (&["--io=engine=mmap", "--io=page-cache=buffered"], 1),
    (&["--io=engine=stream", "--io=page-cache=buffered"], 1),
    (
        &[
            "--io=engine=io_uring",
            "--io=page-cache=direct",
            "--io=workers=2",
            "--io=order=in-order",
        ],
        0,
    ),
];

/// Drops an open file or device from the page cache.
fn cool(file: &File) {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

fn shorten(setup: &Setup, len: u64) {
    let path = setup.scratch.join("backing");
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// First and last byte of `read failed at bytes A to B` in a line of standard error.
fn place(line: &str, start: &str) -> (u64, u64) {
    let rest = line.strip_prefix(start).unwrap_or_else(|| panic!("{line}"));
    let rest = rest.strip_prefix("read failed at bytes ").unwrap_or_else(|| panic!("{line}"));
    let (places, why) = rest.split_once(": ").unwrap();
    assert!(why.starts_with("Input/output error (os error 5)"), "{line}");
    let (first, last) = places.split_once(" to ").unwrap();
    (first.parse().unwrap(), last.parse().unwrap())
}

#[test]
fn the_first_and_the_last_bad_sector_are_named() {
    attempt("an I/O error in the middle", |setup| {
        setup.write("backing", &content(8 * MIB));
        setup.scratch.write("a", "aaa");
        let device = setup.attach("backing", "off")?;
        let line = format!("{}  {device}\n", hex(&content(8 * MIB)));
        setup.scratch.run(&[&device]).expect(0, &line, "");
        // Not at the start of a page.
        let bad = 4 * MIB as u64 + 3 * 512;
        let held = File::open(&device).unwrap();
        shorten(setup, bad);
        for (way, pages) in WAYS {
            let page = pages * rustix::param::page_size() as u64;
            cool(&held);
            let output =
                setup.scratch.run(&[way, &["--io=block-size=512KiB", &device, "a"]].concat());
            let ok = format!("{}  a\n", hex(b"aaa"));
            assert_eq!((output.code, output.stdout()), (1, &*ok), "{way:?}: {}", output.stderr);
            let (first, last) = place(&output.stderr, &format!("ringsum: {device}: "));
            // Whichever block fails first: everything after the first bad sector is bad.
            let block = 512 << 10;
            let expected = match first {
                at if at < 4 * MIB as u64 + block => bad / page.max(512) * page.max(512),
                at => at / block * block,
            };
            assert_eq!((first, last + 1), (expected, (first / block + 1) * block), "{way:?}");
        }
        drop(held);
        Ok(())
    });
}

/// Length of a small file in bytes: one read.
const SMALL: usize = 300_000;

const NAMES: [&str; 2] = ["on/t/file", "on/t/small"];

/// Two files on an ext4 whose device was truncated: which blocks of 4096 bytes each has lost.
struct Bad([Vec<bool>; 2]);

impl Bad {
    /// The lost ranges of one file, as they are listed: offset and length.
    fn ranges(&self, file: usize) -> Vec<(usize, usize)> {
        let (units, len) = (&self.0[file], [3 * MIB, SMALL][file]);
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for (i, _) in units.iter().enumerate().filter(|(_, bad)| **bad) {
            let (at, bytes) = (i * 4096, 4096.min(len - i * 4096));
            match ranges.last_mut() {
                Some((offset, len)) if *offset + *len == at => *len += bytes,
                _ => ranges.push((at, bytes)),
            }
        }
        ranges
    }

    /// Whether a position lies between the first bad unit of a block and its last one.
    fn has(&self, file: usize, (first, last): (u64, u64)) -> bool {
        let (units, len) = (&self.0[file], [3 * MIB, SMALL][file] as u64);
        let (from, to) = ((first / 4096) as usize, (last / 4096) as usize);
        // The smallest block size.
        let is_edge = |at: u64| at.is_multiple_of(32 << 10) || at == len;
        let starts = units[from] && first % 4096 == 0;
        let ends = units[to] && ((last + 1) % 4096 == 0 || last + 1 == len);
        starts
            && ends
            && (is_edge(first) || !units[from - 1])
            && (is_edge(last + 1) || !units[to + 1])
    }
}

fn cool_all(setup: &Setup) {
    NAMES.iter().for_each(|name| cool(&File::open(setup.scratch.join(name)).unwrap()));
}

/// A file of 3 MiB and a small one, each with lost parts; at least the first in its middle.
fn files_with_holes(setup: &mut Setup) -> Result<Bad, String> {
    setup.make("mkfs.ext4 -q -F -b 4096 -O ^has_journal", 24, "rw", "off")?;
    setup.scratch.make_dir("on/t");
    let parts = [noise(3 * MIB), noise(SMALL)];
    let file = File::create_new(setup.scratch.join(NAMES[0])).unwrap();
    // The last file that is written lies behind the others, or in a gap.
    for range in [0..MIB, 2 * MIB..3 * MIB, MIB..2 * MIB] {
        file.write_all_at(&parts[0][range.clone()], range.start as u64).unwrap();
        file.sync_all().unwrap();
    }
    setup.write(NAMES[1], &parts[1]);
    setup.tool("sync -f on")?;
    let device = fs::read(setup.scratch.join("backing")).unwrap();
    let blocks = device.chunks(4096).enumerate();
    let places: HashMap<&[u8], usize> = blocks.map(|(i, block)| (&block[..64], i)).collect();
    let places = parts.each_ref().map(|part| {
        let found = part.chunks(4096).map(|block| places.get(&block[..64]).copied());
        found.collect::<Option<Vec<_>>>()
    });
    let [Some(long), Some(small)] = places else {
        return Err("its content is not on the device".to_owned());
    };
    let cut = long[(MIB + MIB / 2) / 4096];
    cool_all(setup);
    shorten(setup, cut as u64 * 4096);
    Ok(Bad([long, small].map(|places| places.into_iter().map(|at| at >= cut).collect())))
}

/// 20 healthy files on another device, and their lines.
fn calm(setup: &Setup) -> String {
    setup.scratch.make_dir("calm");
    let line = |i: u32| {
        let text = format!("number {i}");
        setup.scratch.write(format!("calm/{i:02}"), &text);
        format!("{}  calm/{i:02}\n", hex(text.as_bytes()))
    };
    (0..20).map(line).collect()
}

#[test]
fn a_bad_place_in_a_file_of_a_tree_stops_no_other() {
    attempt("a bad place in a file of a tree", |setup| {
        let bad = files_with_holes(setup)?;
        let calm = calm(setup);
        let ways: [&[&str]; 6] = [
            &["--io=page-cache=buffered"],
            &["--io=page-cache=direct"],
            &["--io=engine=libaio", "--io=page-cache=direct"],
            &["--io=engine=pool", "--io=page-cache=buffered"],
            &["--io=engine=pread"],
            &["--io=engine=mmap"],
        ];
        let failing: Vec<_> = (0..2).filter(|file| !bad.ranges(*file).is_empty()).collect();
        for way in ways {
            for args in [&["-r", "on/t", "calm"][..], &["on/t/file", "on/t/small"]] {
                cool_all(setup);
                let output = setup.scratch.run(&[args, way].concat());
                let said: Vec<_> = output.stderr.lines().collect();
                assert_eq!(output.code, 1, "{way:?}: {}", output.stderr);
                assert!(args[0] != "-r" || output.stdout().ends_with(&calm), "{way:?}");
                for (line, file) in said.iter().zip(&failing) {
                    let place = place(line, &format!("ringsum: {}: ", NAMES[*file]));
                    assert!(bad.has(*file, place), "{way:?} {place:?} {:?}", bad.ranges(*file));
                }
                assert!(said.len() >= failing.len(), "{way:?}: {}", output.stderr);
            }
        }
        cool_all(setup);
        let output = setup.scratch.run(&["-r", "--json", "on/t", "calm"]);
        let object: serde_json::Value =
            serde_json::from_str(output.stdout().lines().next().unwrap()).unwrap();
        let range = &object["unreadable"][0];
        let [offset, len] = ["offset", "len"].map(|key| range[key].as_u64().unwrap());
        assert!(bad.has(0, (offset, offset + len - 1)), "{object}");
        assert_eq!(range["error"], "Input/output error (os error 5)");
        assert_eq!((&object["status"], &object["narrowed"]), (&"error".into(), &true.into()));
        assert_eq!(object.get("hash"), None);
        setup.scratch.write("list", format!("{calm}{}  on/t/file\n", hex(b"")));
        let output = setup.scratch.run(&["-c", "--quiet", "list"]);
        let start = "on/t/file: FAILED (read failed at bytes ";
        assert!(output.stdout().starts_with(start), "{}", output.stdout());
        output.expect(1, output.stdout(), "ringsum: WARNING: 1 listed file could not be read\n");
        Ok(())
    });
}

#[test]
fn a_map_names_every_bad_range_and_prints_no_hash() {
    attempt("a map of bad places", |setup| {
        let bad = files_with_holes(setup)?;
        let calm = calm(setup);
        let ranges = bad.ranges(0);
        let mut said: String = ranges
            .iter()
            .map(|(offset, len)| {
                let last = offset + len - 1;
                format!(
                    "ringsum: on/t/file: unreadable: bytes {offset} to {last} ({len}): Input/output \
                     error (os error 5)\n"
                )
            })
            .collect();
        let bytes: usize = ranges.iter().map(|(_, len)| len).sum();
        let word = if ranges.len() == 1 { "range" } else { "ranges" };
        said.push_str(&format!(
            "ringsum: on/t/file: {bytes} bytes in {} {word} cannot be read, so the file has no hash\n",
            ranges.len()
        ));
        for way in [&["--io=page-cache=direct"][..], &["--io=page-cache=buffered"], &[]] {
            cool_all(setup);
            let output =
                setup.scratch.run(&[&["--list-bad-ranges", "on/t/file", "calm/00"], way].concat());
            output.expect(1, calm.split_inclusive('\n').next().unwrap(), &said);
        }
        cool_all(setup);
        let output = setup.scratch.run(&["-r", "--list-bad-ranges", "--json", "on/t", "calm"]);
        assert_eq!(output.code, 1);
        let objects: Vec<serde_json::Value> =
            output.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(objects.len(), 22);
        let error = "Input/output error (os error 5)";
        let object = |(offset, len): &(usize, usize)| serde_json::json!({"offset": offset, "len": len, "error": error});
        for (file, found) in objects[..2].iter().enumerate() {
            let expected: Vec<_> = bad.ranges(file).iter().map(object).collect();
            match expected.is_empty() {
                true => assert_eq!(found["status"], "ok"),
                false => assert_eq!(found["unreadable"], serde_json::Value::from(expected)),
            }
            assert_eq!(found.get("hash").is_some(), bad.ranges(file).is_empty());
        }
        assert!(objects[2..].iter().all(|object| object["status"] == "ok"));
        Ok(())
    });
}

#[test]
fn a_map_of_what_can_be_read_is_its_hash() {
    let setup = Setup { scratch: crate::support::Scratch::new(), undo: Vec::new() };
    let mut lines = String::new();
    let names: Vec<_> = [0, 1, 4096, 100_000, 3 * MIB + 5].map(|len| len.to_string()).to_vec();
    for name in &names {
        let content = content(name.parse().unwrap());
        setup.scratch.write(name, &content);
        lines.push_str(&format!("{}  {name}\n", hex(&content)));
    }
    let mut args: Vec<&str> = names.iter().map(|name| &**name).collect();
    args.push("--list-bad-ranges");
    setup.scratch.run(&args).expect(0, &lines, "");
    let version = fs::read("/proc/version").unwrap();
    let line = format!("{}  /proc/version\n", hex(&version));
    setup.scratch.run(&["--list-bad-ranges", "/proc/version"]).expect(0, &line, "");
    let why = "ringsum: -: --list-bad-ranges needs a seekable file, but this is a pipe\n";
    setup.scratch.run_with(&["--list-bad-ranges", "-"], b"x").expect(1, "", why);
    let folder = "ringsum: .: is a directory: use -r to hash the files in it\n";
    setup.scratch.run(&["--list-bad-ranges", "."]).expect(1, "", folder);
}
