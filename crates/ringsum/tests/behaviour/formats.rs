//! Checksum files of other tools: `ringsum` reads theirs, and they read those of `ringsum`.

use std::collections::BTreeMap;
use std::io;
use std::process::Command;

use ringsum::checkfile::{LineEnd, Reader, Style, line_around};
use ringsum::{Algorithm, Options, digest_bytes};

use crate::support::{Output, Scratch, content, run, skip};

/// Names that no tool escapes.
const PLAIN: [&str; 7] = ["a", "two  spaces", "*star", " space", "com,ma", "a) = b", "a)= b"];

/// Names that tools escape, each in its own way.
const ESCAPED: [&str; 5] = ["back\\slash", "new\nline", "\n\\n\\", "middle\rof", "\n"];

/// Names with characters that also end lines.
const ENDS: [&str; 2] = ["end\r", "\r"];

/// A scratch directory with a file of each name, each with its own content.
fn files(names: &[&str]) -> Scratch {
    let scratch = Scratch::new();
    for name in names {
        scratch.write(name, bytes_of(name));
    }
    scratch
}

fn bytes_of(name: &str) -> Vec<u8> {
    [&content(name.len() * 10_000)[..], name.as_bytes()].concat()
}

fn digest_of(algorithm: Algorithm, name: &str) -> Vec<u8> {
    let options = Options { algorithms: algorithm.into(), ..Options::default() };
    digest_bytes(&bytes_of(name), &options)[0].to_vec()
}

/// Runs a tool in a directory; prints why it is skipped and returns `None` if it is not installed.
fn tool(scratch: &Scratch, command: &[&str], names: &[&str]) -> Option<Output> {
    let mut tool = Command::new(command[0]);
    match tool.arg("--version").output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            skip(&format!("lists of {}: it is not installed", command[0]));
            return None;
        }
        _ => {}
    }
    let mut tool = Command::new(command[0]);
    tool.current_dir(scratch.path()).args(&command[1..]).args(names).env("LC_ALL", "C");
    Some(run(&mut tool, b""))
}

/// Whether this version of a tool rejects an option.
fn lacks_option(command: &str, output: &Output) -> bool {
    const COMPLAINTS: [&str; 6] = [
        "unrecognized option",
        "unknown option",
        "invalid option",
        "invalid argument",
        "unexpected argument",
        "Wrong parameters",
    ];
    let says = output.stderr.lines().next().unwrap_or_default();
    let lacks_it = COMPLAINTS.iter().any(|complaint| says.contains(complaint));
    if lacks_it {
        skip(&format!("{command}: {says}"));
    }
    lacks_it
}

/// Runs a tool over files, and checks that `ringsum` reads its list.
fn is_read(command: &str, algorithms: &[Algorithm], names: &[&[&str]]) {
    let (words, names): (Vec<_>, _) = (command.split(' ').collect(), names.concat());
    let scratch = files(&names);
    let Some(output) = tool(&scratch, &words, &names) else { return };
    if lacks_option(command, &output) {
        return;
    }
    assert_eq!(output.code, 0, "{command}: {output:?}");
    let zero = words.iter().any(|word| matches!(*word, "-z" | "-0"));
    let end = if zero { LineEnd::Nul } else { LineEnd::Newline };
    let mut reader = Reader::new(algorithms, algorithms, None, end);
    let mut found = BTreeMap::new();
    for line in output.stdout.split_inclusive(|byte| *byte == if zero { 0 } else { b'\n' }) {
        let shown = String::from_utf8_lossy(line);
        let entry = reader.line(line).unwrap_or_else(|why| panic!("{command}: {shown}: {why}"));
        let Some(entry) = entry else { continue };
        let name = String::from_utf8(entry.name).unwrap();
        if let Some(size) = entry.size {
            assert_eq!(size, bytes_of(&name).len() as u64, "{command}: {shown}");
        }
        for wanted in entry.more.iter().chain([&entry.first]) {
            let key = (name.clone(), wanted.algorithm.to_string());
            assert!(found.insert(key, wanted.digest.clone()).is_none(), "{command}: {shown}");
        }
    }
    let expected: BTreeMap<_, _> = names
        .iter()
        .flat_map(|name| algorithms.iter().map(move |algorithm| (name, algorithm)))
        .map(|(name, algorithm)| {
            ((name.to_string(), algorithm.to_string()), digest_of(*algorithm, name))
        })
        .collect();
    assert_eq!(found, expected, "{command}");
}

#[test]
fn lists_of_gnu_tools_are_read() {
    let tools = [
        ("md5sum", Algorithm::Md5),
        ("sha1sum", Algorithm::Sha1),
        ("sha224sum", Algorithm::Sha224),
        ("sha256sum", Algorithm::Sha256),
        ("sha384sum", Algorithm::Sha384),
        ("sha512sum", Algorithm::Sha512),
        ("b2sum", Algorithm::Blake2b(64)),
        ("b2sum -l 160", Algorithm::Blake2b(20)),
        ("cksum -a sha256", Algorithm::Sha256),
        ("cksum -a blake2b -l 256", Algorithm::Blake2b(32)),
        ("cksum -a sha3 -l 256", Algorithm::Sha3_256),
    ];
    for (tool, algorithm) in tools {
        let is_cksum = tool.starts_with("cksum");
        let ways: &[&str] = match is_cksum {
            true => &["", " -z", " --untagged", " --base64", " --base64 --untagged"],
            false => &["", " -z", " --tag", " --tag -z", " --binary"],
        };
        for way in ways {
            is_read(&format!("{tool}{way} --"), &[algorithm], &[&PLAIN, &ESCAPED, &ENDS]);
        }
    }
}

#[test]
fn lists_of_b3sum_are_read() {
    for way in ["b3sum --", "b3sum --tag --", "b3sum -l 100 --"] {
        let algorithm = Algorithm::Blake3;
        match way.contains("100") {
            // Longer digests: only whether the lines can be parsed.
            true => {
                let scratch = files(&PLAIN);
                let words: Vec<_> = way.split(' ').collect();
                let Some(output) = tool(&scratch, &words, &PLAIN) else { return };
                let mut reader = Reader::default();
                for line in output.stdout.split_inclusive(|byte| *byte == b'\n') {
                    let entry = reader.line(line).unwrap().unwrap();
                    assert_eq!((entry.first.algorithm, entry.first.digest.len()), (algorithm, 100));
                }
            }
            false => is_read(way, &[algorithm], &[&PLAIN, &ESCAPED, &ENDS]),
        }
    }
}

#[test]
fn lists_of_xxhsum_are_read() {
    let algorithms = [
        ("-H0", Algorithm::Xxh32),
        ("-H1", Algorithm::Xxh64),
        ("-H2", Algorithm::Xxh128),
        ("-H3", Algorithm::Xxh3),
    ];
    for (option, algorithm) in algorithms {
        for way in ["", " --tag", " --tag --little-endian"] {
            // It escapes nothing before 0.8.2.
            is_read(&format!("xxhsum {option}{way}"), &[algorithm], &[&PLAIN, &["back\\slash"]]);
        }
    }
}

#[test]
fn lists_of_openssl_are_read() {
    let algorithms = [
        ("-md5", Algorithm::Md5),
        ("-sha1", Algorithm::Sha1),
        ("-sha224", Algorithm::Sha224),
        ("-sha256", Algorithm::Sha256),
        ("-sha384", Algorithm::Sha384),
        ("-sha512", Algorithm::Sha512),
        ("-sha3-256", Algorithm::Sha3_256),
        ("-blake2b512", Algorithm::Blake2b(64)),
    ];
    for (option, algorithm) in algorithms {
        let names: [&[&str]; 2] = [&PLAIN, &["back\\slash", "middle\rof"]];
        is_read(&format!("openssl dgst {option}"), &[algorithm], &names);
        // In this mode it escapes newlines only.
        let names: [&[&str]; 3] = [&PLAIN, &["back\\slash", "middle\rof"], &["new\nline"]];
        is_read(&format!("openssl dgst -r {option}"), &[algorithm], &names);
    }
}

#[test]
fn lists_of_shasum_are_read() {
    let algorithms = [
        ("1", Algorithm::Sha1),
        ("224", Algorithm::Sha224),
        ("256", Algorithm::Sha256),
        ("384", Algorithm::Sha384),
        ("512", Algorithm::Sha512),
    ];
    for (option, algorithm) in algorithms {
        for way in ["", " -b", " --tag"] {
            is_read(&format!("shasum -a {option}{way} --"), &[algorithm], &[&PLAIN, &ESCAPED]);
        }
    }
}

#[test]
fn lists_of_rhash_are_read() {
    let algorithms = [
        ("--md5", Algorithm::Md5),
        ("--sha1", Algorithm::Sha1),
        ("--sha224", Algorithm::Sha224),
        ("--sha256", Algorithm::Sha256),
        ("--sha384", Algorithm::Sha384),
        ("--sha512", Algorithm::Sha512),
        ("--sha3-256", Algorithm::Sha3_256),
        ("--blake2b", Algorithm::Blake2b(64)),
        ("--blake3", Algorithm::Blake3),
        ("--crc32c", Algorithm::Crc32c),
    ];
    for (option, algorithm) in algorithms {
        for way in ["", "--bsd ", "--bsd --uppercase ", "--base64 ", "--bsd --base64 "] {
            // It takes a backslash for a slash.
            is_read(&format!("rhash {way}{option} --"), &[algorithm], &[&PLAIN]);
        }
    }
    let several = [Algorithm::Md5, Algorithm::Sha1, Algorithm::Sha256, Algorithm::Blake2b(64)];
    is_read("rhash --bsd --md5 --sha1 --sha256 --blake2b --", &several, &[&PLAIN]);
}

#[test]
fn lists_of_hashdeep_are_read() {
    let all = [Algorithm::Md5, Algorithm::Sha1, Algorithm::Sha256];
    let names: [&[&str]; 2] = [&PLAIN, &["back\\slash", "middle\rof"]];
    is_read("hashdeep -l --", &[Algorithm::Md5, Algorithm::Sha256], &names);
    is_read("hashdeep -l -c md5,sha1,sha256,tiger,whirlpool --", &all, &names);
    is_read("hashdeep -l -c tiger,sha1 --", &[Algorithm::Sha1], &names);
    // The list has the command in a comment, so that a newline in an argument is a newline in the
    // list.
    is_read("hashdeep -l -0 --", &[Algorithm::Md5, Algorithm::Sha256], &names);
    for (tool, algorithm) in [("md5deep", all[0]), ("sha1deep", all[1]), ("sha256deep", all[2])] {
        is_read(&format!("{tool} -l --"), &[algorithm], &names);
        is_read(&format!("{tool} -l -k --"), &[algorithm], &names);
    }
}

/// hashdeep escapes nothing, neither in rows nor in the command line that its header quotes.
#[test]
fn names_with_line_ends_in_lists_of_hashdeep_are_read() {
    let names = ["a", "new\nline", "two\n\\lines\nmore\n(b) = c", "end\r", "middle\rof"];
    let scratch = files(&names);
    let Some(output) = tool(&scratch, &["hashdeep", "-l", "--"], &names) else { return };
    scratch.write("list", &output.stdout);
    let expected = "a: OK\n\\end\\r: OK\n\\middle\\rof: OK\n\\new\\nline: OK\n\
                    \\two\\n\\\\lines\\nmore\\n(b) = c: OK\n";
    let output = scratch.run(&["-c", "list"]);
    let mut lines: Vec<_> = output.stdout().split_inclusive('\n').collect();
    lines.sort_by_key(|line| line.trim_start_matches('\\').to_owned());
    assert_eq!((output.code, &*lines.concat(), &*output.stderr), (0, expected, ""));
    // A list with carriage returns in its header has them at the end of every line.
    let list = scratch.shell("grep -v -e cr -e new -e end -e '(b)' list | sed 's/$/\\r/'");
    let list: String = list
        .stdout()
        .split_inclusive('\n')
        .filter(|line| line.starts_with('%') || line.ends_with(",a\r\n"))
        .collect();
    scratch.write("list", &list);
    scratch.run(&["-c", "list"]).expect(0, "a: OK\n", "");
    // Other lines after a row are no part of its name.
    let list = list.replace('\r', "");
    scratch.write("list", format!("{list}# comment\n\nSHA999 (b) = 00\n"));
    let output = scratch.run(&["-c", "list"]);
    assert_eq!((output.code, output.stdout()), (1, "a: OK\n"));
    assert!(output.stderr.contains("list: 6: improperly"), "{}", output.stderr);
}

/// Writes a list with `ringsum`, and checks it with the tool.
fn is_accepted(command: &str, algorithm: Algorithm, style: Style, names: &[&[&str]]) {
    let (words, names): (Vec<_>, _) = (command.split(' ').collect(), names.concat());
    let scratch = files(&names);
    let end = if words.contains(&"-z") { LineEnd::Nul } else { LineEnd::Newline };
    let mut list = Vec::new();
    for name in &names {
        let (before, after) = line_around(name.as_bytes(), style, algorithm, end);
        let end: &[u8] = if end == LineEnd::Nul { b"\0" } else { b"\n" };
        list.extend(
            [&before, hex::encode(digest_of(algorithm, name)).as_bytes(), &after, end].concat(),
        );
    }
    scratch.write("the list", &list);
    let Some(output) = tool(&scratch, &words, &["the list"]) else { return };
    if lacks_option(command, &output) {
        return;
    }
    assert_eq!(output.code, 0, "{command}, {style:?}: {output:?}");
    let checked = String::from_utf8_lossy(&output.stdout).matches(": OK").count();
    assert_eq!(checked, names.len(), "{command}, {style:?}: {output:?}");
}

#[test]
fn lists_are_read_by_the_tools() {
    // b3sum has no tags before 1.8.
    let b3sum = tool(&Scratch::new(), &["b3sum", "--tag"], &[]);
    let b3sum_reads_tags = b3sum.is_some_and(|output| !lacks_option("b3sum --tag", &output));
    let escaping = [
        ("md5sum -c --strict", Algorithm::Md5),
        ("sha1sum -c --strict", Algorithm::Sha1),
        ("sha224sum -c --strict", Algorithm::Sha224),
        ("sha256sum -c --strict", Algorithm::Sha256),
        ("sha384sum -c --strict", Algorithm::Sha384),
        ("sha512sum -c --strict", Algorithm::Sha512),
        ("b2sum -c --strict", Algorithm::Blake2b(64)),
        ("b2sum -c --strict", Algorithm::Blake2b(20)),
        ("b3sum -c", Algorithm::Blake3),
    ];
    for (command, algorithm) in escaping {
        for style in [Style::Plain, Style::Tag] {
            // b3sum splits tagged names that contain two spaces.
            let plain = match (command, style) {
                ("b3sum -c", Style::Tag) if !b3sum_reads_tags => continue,
                ("b3sum -c", Style::Tag) => &["a"][..],
                _ => &PLAIN,
            };
            is_accepted(command, algorithm, style, &[plain, &ESCAPED, &ENDS]);
        }
    }
    let cksum = "cksum -c --strict";
    is_accepted(cksum, Algorithm::Sha256, Style::Tag, &[&PLAIN, &ESCAPED, &ENDS]);
    is_accepted("shasum -c --strict", Algorithm::Sha1, Style::Plain, &[&PLAIN, &["new\nline"]]);
    // Before 0.8.2 xxhsum does not unescape, and has no prefix for XXH3.
    let xxh = [Algorithm::Xxh32, Algorithm::Xxh64, Algorithm::Xxh128, Algorithm::Xxh3];
    for algorithm in xxh {
        is_accepted("xxhsum -c --strict", algorithm, Style::Tag, &[&["a", "b"]]);
        if algorithm != Algorithm::Xxh3 {
            is_accepted("xxhsum -c --strict", algorithm, Style::Plain, &[&PLAIN]);
        }
    }
}
