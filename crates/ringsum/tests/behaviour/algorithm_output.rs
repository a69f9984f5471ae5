//! Other algorithms than BLAKE3: output formats, rejected combinations, and checking their lists.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use ringsum::{Algorithm, Options, digest_bytes};
use serde_json::Value;

use crate::support::{Output, Scratch, content, installed, run, skip};

fn digest(algorithm: Algorithm, data: &[u8]) -> Vec<u8> {
    let options = Options { algorithms: algorithm.into(), ..Options::default() };
    digest_bytes(data, &options)[0].to_vec()
}

fn hex(algorithm: Algorithm, data: &[u8]) -> String {
    digest(algorithm, data).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn objects(output: &Output) -> Vec<Value> {
    output.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn lines_of_one_and_of_several() {
    let scratch = Scratch::new();
    scratch.write("a", "aaa");
    let md5 = hex(Algorithm::Md5, b"aaa");
    let sha3 = hex(Algorithm::Sha3_256, b"aaa");
    let short = hex(Algorithm::Blake2b(20), b"aaa");
    let blake3 = hex(Algorithm::Blake3, b"aaa");
    for (args, expected) in [
        (&["-a", "md5"][..], format!("{md5}  a\n")),
        (&["-amd5", "--tag"], format!("MD5 (a) = {md5}\n")),
        (&["--algorithm=sha3-256", "--tag"], format!("SHA3-256 (a) = {sha3}\n")),
        (&["-a", "blake2b", "-l20", "--tag"], format!("BLAKE2b-160 (a) = {short}\n")),
        (&["-a", "blake2b", "-l20"], format!("{short}  a\n")),
        (&["-a", "blake3"], format!("{blake3}  a\n")),
        (&["-a", "blake3", "-l4"], format!("{}  a\n", &blake3[..8])),
        (&["-a", "blake3", "-l4", "--seek=2"], format!("{}  a\n", &blake3[4..12])),
        // The length applies to BLAKE3; the others have their own.
        (
            &["-a", "md5", "-a", "blake3", "-l4", "--seek=2"],
            format!("MD5 (a) = {md5}\nBLAKE3 (a) = {}\n", &blake3[4..12]),
        ),
        (
            &["-a", "blake2b", "-a", "blake3", "-l20"],
            format!("BLAKE2b-160 (a) = {short}\nBLAKE3 (a) = {}\n", &blake3[..40]),
        ),
        (&["-a", "xxh3"], format!("XXH3_{}  a\n", hex(Algorithm::Xxh3, b"aaa"))),
        (&["-a", "md5", "--no-names"], format!("{md5}\n")),
        (&["-a", "sha3-256", "-a", "md5", "--no-names"], format!("{sha3}\n{md5}\n")),
        (&["-a", "md5", "--zero"], format!("{md5}  a\0")),
        (
            &["-a", "sha3-256", "-a", "md5", "--zero"],
            format!("SHA3-256 (a) = {sha3}\0MD5 (a) = {md5}\0"),
        ),
    ] {
        scratch.run(&[args, &["a"]].concat()).expect(0, &expected, "");
        // Many files are read together, with the same output.
        let names = vec!["a"; 20];
        scratch.run(&[args, &names].concat()).expect(0, &expected.repeat(20), "");
    }
    for algorithm in Algorithm::ALL {
        let run = scratch.run(&["--raw", "-a", algorithm.name(), "a"]);
        run.expect_bytes(0, &digest(algorithm, b"aaa"), "");
    }
    scratch.run(&["--raw", "-a", "blake2b", "-l", "7", "a"]).expect_bytes(
        0,
        &digest(Algorithm::Blake2b(7), b"aaa"),
        "",
    );
}

#[test]
fn names_that_need_escapes() {
    let scratch = Scratch::new();
    let data = b"escaped";
    for name in ["new\nline", "back\\slash", "re\rturn", "pa) = ren", " spaces ", "-dash", "("] {
        scratch.write(name, data);
        let escaped = name.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r");
        let slash = if escaped == name { "" } else { "\\" };
        let (sha1, crc) = (hex(Algorithm::Sha1, data), hex(Algorithm::Crc32c, data));
        scratch.run(&["-a", "sha1", "--", name]).expect(
            0,
            &format!("{slash}{sha1}  {escaped}\n"),
            "",
        );
        let lines =
            format!("{slash}SHA1 ({escaped}) = {sha1}\n{slash}CRC32C ({escaped}) = {crc}\n");
        let run = scratch.run(&["-a", "sha1", "-a", "crc32c", "--", name]);
        run.expect(0, &lines, "");
        let ok = format!("{slash}{escaped}: OK\n");
        let checked = scratch.run_with(&["--check"], &run.stdout);
        assert_eq!((checked.code, checked.stdout()), (0, &*ok.repeat(2)), "{}", checked.stderr);
        let run = scratch.run(&["-z", "-a", "sha1", "-a", "crc32c", "--", name]);
        let lines = format!("SHA1 ({name}) = {sha1}\0CRC32C ({name}) = {crc}\0");
        run.expect(0, &lines, "");
        let ok = format!("{name}: OK\0");
        let checked = scratch.run_with(&["--check", "-z"], &run.stdout);
        assert_eq!((checked.code, checked.stdout()), (0, &*ok.repeat(2)), "{}", checked.stderr);
    }
}

#[test]
fn objects_have_all_digests_by_name() {
    let scratch = Scratch::new();
    scratch.write("a", "aaa");
    let of = |args: &[&str]| {
        let run = scratch.run(&[args, &["--json", "a"]].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        objects(&run).remove(0)
    };
    let object = of(&["-a", "sha256", "-a", "blake3", "-a", "blake2b"]);
    assert_eq!(object["hash"], hex(Algorithm::Blake3, b"aaa"));
    assert_eq!(object["size"], 3);
    let digests = object["digests"].as_object().unwrap();
    assert_eq!(digests.len(), 3);
    for algorithm in [Algorithm::Sha256, Algorithm::Blake3, Algorithm::Blake2b(64)] {
        assert_eq!(digests[algorithm.name()], hex(algorithm, b"aaa"), "{algorithm}");
    }
    // `hash` is always BLAKE3, and only BLAKE3.
    let object = of(&["-a", "md5"]);
    assert_eq!(object["digests"]["md5"], hex(Algorithm::Md5, b"aaa"));
    assert!(object.get("hash").is_none(), "{object}");
    let object = of(&["-a", "blake3"]);
    assert!(object.get("digests").is_none(), "{object}");
    assert_eq!(object["hash"], hex(Algorithm::Blake3, b"aaa"));
    let all: Vec<_> = Algorithm::ALL.iter().flat_map(|a| ["-a", a.name()]).collect();
    assert_eq!(of(&all)["digests"].as_object().unwrap().len(), 14);
    let run = scratch.run(&["-a", "md5", "--json", "missing"]);
    let object = objects(&run).remove(0);
    assert_eq!((run.code, &object["status"]), (1, &"error".into()));
    assert!(object.get("digests").is_none(), "{object}");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let scratch = Scratch::new();
    scratch.write("a", "aaa");
    for (args, why) in [
        (&["-a", "sha256", "--keyed", "a"][..], "--keyed and --derive-key are modes of BLAKE3"),
        (&["-a", "sha256", "--derive-key=x", "a"], "--keyed and --derive-key are modes of BLAKE3"),
        (&["-a", "sha256", "--seek=1", "a"], "--seek applies to the output of BLAKE3"),
        (&["-a", "sha256", "-l", "20", "a"], "--length applies to blake3 and blake2b"),
        (&["-a", "blake2b", "-l", "0", "a"], "blake2b has a --length from 1 to 64"),
        (&["-a", "blake2b", "-l", "65", "a"], "blake2b has a --length from 1 to 64"),
        (&["-a", "blake2b", "-l", "257", "a"], "blake2b has a --length from 1 to 64"),
        (
            &["-a", "blake3", "-a", "blake2b", "-l", "65", "a"],
            "blake2b has a --length from 1 to 64",
        ),
        (&["-a", "sha256", "--index=i", "a"], "--index caches BLAKE3"),
        (&["-a", "sha256", "-a", "blake3", "--index=i", "a"], "--index caches BLAKE3"),
        (&["-a", "sha256", "-r", "--tree-digest", "."], "--tree-digest supports BLAKE3"),
        (&["-a", "sha256", "-a", "md5", "--raw", "a"], "--raw takes one --algorithm"),
        (&["-a", "md6", "a"], "md6"),
        (&["-a", "", "a"], "algorithm"),
        (&["-a", "sha256,", "a"], "algorithm"),
        (&["--list-algorithms", "a"], "cannot be used with"),
        (&["--list-algorithms", "--json"], "cannot be used with"),
        (&["-a"], "--algorithm"),
    ] {
        let run = scratch.run(args);
        assert_eq!((run.code, run.stdout()), (2, ""), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(why), "{args:?}: {}", run.stderr);
        assert!(!scratch.join("i").exists(), "{args:?}");
    }
    // Options of BLAKE3 alone are valid if BLAKE3 is requested by name.
    let blake3 = hex(Algorithm::Blake3, b"aaa");
    scratch.run(&["-a", "blake3", "--index=i", "a"]).expect(0, &format!("{blake3}  a\n"), "");
    let key = [7; 32];
    let keyed = blake3::keyed_hash(&key, b"aaa").to_hex();
    let sha256 = hex(Algorithm::Sha256, b"aaa");
    let lines = format!("SHA256 (a) = {sha256}\nBLAKE3 (a) = {keyed}\n");
    let run = scratch.run_with(&["--keyed", "-a", "sha256", "-a", "blake3", "a"], &key);
    run.expect(0, &lines, "");
    let derived = blake3::Hasher::new_derive_key("c").update(b"aaa").finalize().to_hex();
    let lines = format!("BLAKE3 (a) = {derived}\nSHA256 (a) = {sha256}\n");
    scratch.run(&["--derive-key=c", "-a", "blake3", "-a", "sha256", "a"]).expect(0, &lines, "");
}

#[test]
fn the_list_has_every_algorithm() {
    let scratch = Scratch::new();
    for args in [&["--list-algorithms"]] {
        let run = scratch.run(args);
        assert_eq!((run.code, &*run.stderr), (0, ""), "{args:?}");
        let mut lines = run.stdout().lines();
        let head: Vec<_> = lines.next().unwrap().split_whitespace().collect();
        assert_eq!(head, ["name", "bits", "GB/s", "resists", "forgery"]);
        for algorithm in Algorithm::ALL {
            let fields: Vec<_> = lines.next().unwrap().split_whitespace().collect();
            let [name, bits, rate, resists] = fields[..] else { panic!("{fields:?}") };
            assert_eq!(name, algorithm.name());
            assert_eq!(resists == "yes", algorithm.resists_forgery(), "{name}");
            assert!(rate.parse::<f64>().is_ok_and(|rate| rate >= 0.0), "{name}: {rate}");
            match algorithm {
                Algorithm::Blake3 => assert_eq!(bits, "any"),
                Algorithm::Blake2b(_) => assert_eq!(bits, "8-512"),
                other => assert_eq!(bits, (other.bytes() * 8).to_string()),
            }
        }
        assert_eq!(lines.next(), None);
    }
}

/// The lists of every tool are accepted, with `-a` if the length of a digest is ambiguous; and a
/// wrong digit is noticed.
#[test]
fn lists_of_other_tools_are_checked() {
    let scratch = Scratch::new();
    for name in ["a", "b"] {
        scratch.write(name, content(5000 + name.len()));
    }
    for (tool, options, name) in [
        ("sha256sum", &[][..], "sha256"),
        ("sha256sum", &["--tag"], "sha256"),
        ("sha512sum", &[], "sha512"),
        ("sha384sum", &[], "sha384"),
        ("sha224sum", &["--tag"], "sha224"),
        ("sha1sum", &[], "sha1"),
        ("md5sum", &[], "md5"),
        ("b2sum", &[], "blake2b"),
        ("b2sum", &["--tag", "-l", "160"], "blake2b"),
        ("xxhsum", &["-H64"], "xxh64"),
        ("xxhsum", &["-H3"], "xxh3"),
        ("xxhsum", &["-H128", "--tag"], "xxh128"),
        ("xxhsum", &["-H32"], "xxh32"),
        ("rhash", &["--crc32c"], "crc32c"),
        ("b3sum", &[], "blake3"),
    ] {
        if !installed(tool) {
            skip(&format!("lists of {tool}: it is not installed"));
            continue;
        }
        let mut command = Command::new(tool);
        let list = run(command.current_dir(scratch.path()).args(options).args(["a", "b"]), b"");
        if list.code != 0 {
            skip(&format!("lists of {tool} {options:?}: {}", list.stderr));
            continue;
        }
        scratch.write("list", &list.stdout);
        scratch.run(&["--check", "-a", name, "list"]).expect(0, "a: OK\nb: OK\n", "");
        let text = list.stdout();
        let (at, digit) =
            text.char_indices().rfind(|(_, c)| c.is_ascii_hexdigit() && *c != 'b').unwrap();
        // The very last digit; in plain lines, the last one of the digest before the name.
        let mut wrong = text.to_owned();
        wrong.replace_range(at..=at, if digit == '0' { "1" } else { "0" });
        scratch.write("list", wrong);
        let run = scratch.run(&["--check", "-a", name, "list"]);
        let expected =
            (1, "a: OK\nb: FAILED\n", "ringsum: WARNING: 1 computed checksum did NOT match\n");
        assert_eq!((run.code, run.stdout(), &*run.stderr), expected, "{tool} {options:?}");
    }
}

/// Lines of all algorithms for some files: correct, wrong, missing, and repeated.
#[test]
fn a_mixed_list_of_thousands_of_lines() {
    let scratch = Scratch::new();
    scratch.make_dir("d");
    let data = |file: usize| content(file * 97 + if file.is_multiple_of(16) { 70_000 } else { 0 });
    for file in 0..60 {
        scratch.write(format!("d/{file}"), data(file));
    }
    let (mut list, mut expected, mut said) = (String::new(), String::new(), String::new());
    let (mut wrong, mut missing) = (0, 0);
    for line in 0..2100 {
        let algorithm = Algorithm::ALL[line % 14];
        let file = line * 7 % 61;
        let mut digits = hex(algorithm, &data(file));
        let verdict = if file == 60 {
            missing += 1;
            if missing <= 10 {
                writeln!(said, "ringsum: list: {}: d/60 is missing", line + 1).unwrap();
            }
            "FAILED (No such file or directory (os error 2))"
        } else if line % 29 == 5 {
            wrong += 1;
            let last = digits.pop().unwrap();
            digits.push(if last == '0' { '1' } else { '0' });
            "FAILED"
        } else {
            "OK"
        };
        writeln!(list, "{algorithm} (d/{file}) = {digits}").unwrap();
        writeln!(expected, "d/{file}: {verdict}").unwrap();
    }
    scratch.write("list", &list);
    said += &format!(
        "ringsum: WARNING: {missing} listed files could not be read\n\
         ringsum: WARNING: {wrong} computed checksums did NOT match\n"
    );
    for options in [&[][..], &["--jobs=1"], &["--io=order=in-order"]] {
        scratch.run(&[&["--check"], options, &["list"]].concat()).expect(1, &expected, &said);
    }
    let run = scratch.run(&["--check", "--json", "list"]);
    let objects = objects(&run);
    assert_eq!(objects.len(), 2100);
    for (line, object) in objects.iter().enumerate() {
        let algorithm = Algorithm::ALL[line % 14];
        let digits = list.lines().nth(line).unwrap().rsplit_once(' ').unwrap().1;
        assert_eq!(object["expected"], digits, "{object}");
        if algorithm == Algorithm::Blake3 {
            assert!(object.get("expected_digests").is_none(), "{object}");
            continue;
        }
        assert_eq!(object["expected_digests"][algorithm.name()], digits, "{object}");
        match object["status"].as_str().unwrap() {
            "ok" => assert_eq!(object["digests"][algorithm.name()], digits, "{object}"),
            "mismatch" => assert_ne!(object["digests"][algorithm.name()], digits, "{object}"),
            "missing" => assert!(object.get("digests").is_none(), "{object}"),
            other => panic!("{other}: {object}"),
        }
    }
}

#[test]
fn where_missing_files_have_gone_is_known_by_any_digest() {
    let scratch = Scratch::new();
    scratch.make_dir("d");
    let mut list = String::new();
    let mut expected: Vec<String> = Vec::new();
    for (number, algorithm) in Algorithm::ALL.into_iter().enumerate() {
        let data = content(1000 + number * 100_000);
        writeln!(list, "{algorithm} (d/old-{number:02}) = {}", hex(algorithm, &data)).unwrap();
        scratch.write(format!("d/new-{number:02}"), &data);
        expected.push(format!("d/old-{number:02}: RENAMED to d/new-{number:02}"));
    }
    scratch.write("d/zzz", "in no list");
    scratch.write("list", &list);
    expected.push("d/zzz: UNLISTED".to_owned());
    let run = scratch.run(&["--check", "--report-unlisted", "d", "list"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    let extra: Vec<_> =
        run.stdout().lines().filter(|line| !line.contains("FAILED (No such file")).collect();
    assert_eq!(extra, expected);
    assert!(run.stderr.contains("WARNING: 15 files are unlisted"), "{}", run.stderr);
    // Once a file is restored its line is correct again, and the order is the same.
    fs::rename(scratch.join("d/new-05"), scratch.join("d/old-05")).unwrap();
    let run = scratch.run(&["--check", "--report-unlisted", "d", "list"]);
    assert!(run.stdout().contains("d/old-05: OK\n"), "{}", run.stdout());
    assert_eq!(run.stdout().matches("RENAMED to").count(), 13, "{}", run.stdout());
}
