//! Places that cannot be read: which bytes they are, whatever reads them, and `--map-errors`. A loop device
//! whose backing file was shortened gives real errors; that needs root. What cannot be set up is skipped,
//! and said.

use std::fs::{self, File, OpenOptions};

use crate::mounting::{Setup, attempt, noise};
use crate::support::{content, hex};

const MIB: usize = 1 << 20;

/// Every engine and cache mode, and the least that is read with it, in bytes; 0: what the device has.
const WAYS: [(&[&str], u64); 12] = [
    (&["--cache=buffered"], 4096),
    (&["--cache=direct"], 0),
    (&["--engine=io_uring", "--cache=direct"], 0),
    (&["--engine=io_uring", "--cache=buffered"], 4096),
    (&["--engine=libaio", "--cache=direct"], 0),
    (&["--engine=pool", "--cache=direct"], 0),
    (&["--engine=pool", "--cache=buffered"], 4096),
    (&["--engine=pread", "--cache=direct"], 0),
    (&["--engine=pread", "--cache=buffered"], 4096),
    (&["--engine=mmap", "--cache=buffered"], 4096),
    (&["--engine=stream", "--cache=buffered"], 4096),
    (&["--engine=io_uring", "--cache=direct", "--workers=2", "--in-order"], 0),
];

/// Drops what is in the page cache of an open file or device.
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
        // Not even at the start of a page.
        let bad = 4 * MIB as u64 + 3 * 512;
        let held = File::open(&device).unwrap();
        shorten(setup, bad);
        for (way, page) in WAYS {
            cool(&held);
            let output = setup.scratch.run(&[way, &["--block-size=512KiB", &device, "a"]].concat());
            let ok = format!("{}  a\n", hex(b"aaa"));
            assert_eq!((output.code, output.stdout()), (1, &*ok), "{way:?}: {}", output.stderr);
            let (first, last) = place(&output.stderr, &format!("ringsum: {device}: "));
            // Whichever block failed first: all after the first bad sector is bad.
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

/// Length of a small file, in bytes: it is read in one go.
const SMALL: usize = 300_000;

fn cool_all(setup: &Setup) {
    for path in ["on/t/file", "on/t/small"] {
        cool(&File::open(setup.scratch.join(path)).unwrap());
    }
}

/// A file of three MiB on an ext4 whose device ends, by now, where the second MiB of it lies, in part: a
/// bad place with good ones before and after it. A small file lies there as a whole.
fn file_with_a_hole(setup: &mut Setup) -> Result<u64, String> {
    setup.make("mkfs.ext4 -q -F -b 4096 -O ^has_journal -N 64", 24, "rw", "off")?;
    setup.scratch.make_dir("on/t");
    let parts: Vec<_> = (0..3).map(|i| noise(MIB + i)[..MIB].to_vec()).collect();
    let path = setup.scratch.join("on/t/file");
    let file = File::create_new(&path).unwrap();
    use std::os::unix::fs::FileExt;
    for part in [0, 2] {
        file.write_all_at(&parts[part], (part * MIB) as u64).unwrap();
    }
    file.sync_all().unwrap();
    // All before the last MiB is taken, so that the rest goes to the end.
    let free = rustix::fs::statvfs(&path).unwrap();
    let filler = (free.f_bfree * free.f_frsize) as usize - 2 * MIB;
    setup.write("on/filler", &vec![1; filler]);
    file.write_all_at(&parts[1], MIB as u64).unwrap();
    file.sync_all().unwrap();
    let small = noise(SMALL);
    setup.write("on/t/small", &small);
    for i in 0..20 {
        setup.write(&format!("on/t/{i:02}"), format!("number {i}").as_bytes());
    }
    setup.tool("sync -f on")?;
    let device = fs::read(setup.scratch.join("backing")).unwrap();
    let find = |what: &[u8]| {
        let mut blocks = (0..device.len()).step_by(4096);
        blocks.find(|at| device[*at..].starts_with(what)).map(|at| at as u64)
    };
    // The last blocks of the part that come last on the device, if it is in one piece.
    let bad = MIB / 2;
    let cut = find(&parts[1][bad..bad + 4096]).ok_or("the part is not on the device")?;
    let others = [&parts[0][MIB - 4096..], &parts[2][MIB - 4096..]];
    let are_before = others.iter().all(|part| find(part).is_some_and(|at| at < cut));
    let is_one = find(&parts[1][MIB - 4096..]) == Some(cut + (MIB - bad - 4096) as u64);
    let tiny = (0..20).all(|i| find(format!("number {i}").as_bytes()).is_some_and(|at| at < cut));
    let is_after = find(&small[..4096]).is_some_and(|at| at > cut);
    if !(are_before && is_one && tiny && is_after) {
        return Err("ext4 put the parts of a file elsewhere".to_owned());
    }
    cool_all(setup);
    shorten(setup, cut);
    Ok((MIB + bad) as u64)
}

#[test]
fn a_bad_place_in_a_file_of_a_tree_stops_no_other() {
    attempt("a bad place in a file of a tree", |setup| {
        let bad = file_with_a_hole(setup)?;
        let lines: String = (0..20)
            .map(|i| format!("{}  on/t/{i:02}\n", hex(format!("number {i}").as_bytes())))
            .collect();
        let ways: [&[&str]; 6] = [
            &["--cache=buffered"],
            &["--cache=direct"],
            &["--engine=libaio", "--cache=direct"],
            &["--engine=pool", "--cache=buffered"],
            &["--engine=pread"],
            &["--engine=mmap"],
        ];
        let expected = (bad, 2 * MIB as u64 - 1);
        for way in ways {
            cool_all(setup);
            let output = setup.scratch.run(&[&["-r", "on/t"], way].concat());
            let said: Vec<_> = output.stderr.lines().collect();
            let found = (output.code, output.stdout(), said.len());
            assert_eq!(found, (1, &*lines, 3), "{way:?}: {}", output.stderr);
            assert_eq!(place(said[0], "ringsum: on/t/file: "), expected, "{way:?}");
            let small = (0, SMALL as u64 - 1);
            assert_eq!(place(said[1], "ringsum: on/t/small: "), small, "{way:?}");
            assert_eq!(said[2], "ringsum: 2 files failed");
            // With blocks around and across it, one by one.
            cool_all(setup);
            let line = [way, &["--block-size=2MiB", "on/t/file"]].concat();
            let output = setup.scratch.run(&line);
            assert_eq!(place(&output.stderr, "ringsum: on/t/file: "), expected, "{way:?}");
            let output = setup.scratch.run(&["on/t/small"]);
            assert_eq!(place(&output.stderr, "ringsum: on/t/small: "), small, "{way:?}");
        }
        cool_all(setup);
        let output = setup.scratch.run(&["-r", "--json", "on/t"]);
        let object = output.stdout().lines().nth(20).unwrap();
        let object: serde_json::Value = serde_json::from_str(object).unwrap();
        let error = "Input/output error (os error 5)";
        let ranges = serde_json::json!([{"offset": bad, "len": MIB / 2, "error": error}]);
        assert_eq!((&object["status"], &object["unreadable"]), (&"error".into(), &ranges));
        assert_eq!((&object["narrowed"], object.get("hash")), (&true.into(), None));
        setup.scratch.write("list", format!("{lines}{}  on/t/file\n", hex(b"")));
        let output = setup.scratch.run(&["-c", "--quiet", "list"]);
        assert_eq!(output.code, 1);
        let start = format!("on/t/file: FAILED (read failed at bytes {bad} to {}: ", 2 * MIB - 1);
        assert!(output.stdout().starts_with(&start), "{}", output.stdout());
        let warning = "ringsum: WARNING: 1 listed file could not be read\n";
        assert_eq!(output.stderr, warning);
        Ok(())
    });
}

#[test]
fn a_map_names_every_bad_range_and_prints_no_hash() {
    attempt("a map of bad places", |setup| {
        let bad = file_with_a_hole(setup)?;
        let (last, len) = (2 * MIB - 1, MIB / 2);
        for way in [&["--cache=direct"][..], &["--cache=buffered"], &[]] {
            cool_all(setup);
            let output =
                setup.scratch.run(&[&["--map-errors", "on/t/03", "on/t/file"], way].concat());
            let said = format!(
                "ringsum: on/t/file: unreadable: bytes {bad} to {last} ({len}): Input/output error \
                 (os error 5)\n\
                 ringsum: on/t/file: {len} bytes in 1 range cannot be read, so it has no hash\n"
            );
            output.expect(1, &format!("{}  on/t/03\n", hex(b"number 3")), &said);
        }
        cool_all(setup);
        let output = setup.scratch.run(&["-r", "--map-errors", "--json", "on/t"]);
        assert_eq!((output.code, &*output.stderr), (1, "ringsum: 2 files failed\n"));
        let objects: Vec<serde_json::Value> =
            output.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(objects.len(), 22);
        let error = "Input/output error (os error 5)";
        let ranges = serde_json::json!([{"offset": bad, "len": len, "error": error}]);
        assert_eq!(objects[20]["unreadable"], ranges);
        assert_eq!(objects[20].get("hash"), None);
        assert!(objects[..20].iter().all(|object| object["status"] == "ok"));
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
    args.push("--map-errors");
    setup.scratch.run(&args).expect(0, &lines, "");
    let version = fs::read("/proc/version").unwrap();
    let line = format!("{}  /proc/version\n", hex(&version));
    setup.scratch.run(&["--map-errors", "/proc/version"]).expect(0, &line, "");
    let why = "ringsum: -: --map-errors goes on after a failed read, and a pipe has no places to go on \
               from\n";
    setup.scratch.run_with(&["--map-errors", "-"], b"x").expect(1, "", why);
    let folder = "ringsum: .: Is a directory (os error 21)\n";
    setup.scratch.run(&["--map-errors", "."]).expect(1, "", folder);
}
