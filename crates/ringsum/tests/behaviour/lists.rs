//! Lists of files as input and output: `--files-from`, `-z`, `--json`, and the messages of
//! `--check` for many files.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};

use crate::support::{Output, Scratch, content, hex, line, skip_unless_strict};

/// Files a, b and `d/x`, and their output lines.
fn files() -> (Scratch, [String; 3]) {
    let scratch = Scratch::new();
    scratch.make_dir("d");
    let names = ["a", "b", "d/x"];
    let lines = names.map(|name| {
        scratch.write(name, name);
        format!("{}  {name}\n", hex(name.as_bytes()))
    });
    (scratch, lines)
}

#[test]
fn names_from_a_list() {
    let (scratch, [a, b, x]) = files();
    let cases: [(&[&str], &str, String); 8] = [
        (&[], "a\nb\nd/x\n", format!("{a}{b}{x}")),
        (&[], "d/x\na\na", format!("{x}{a}{a}")),
        (&[], "\n\na\n\nb\n\n", format!("{a}{b}")),
        (&[], "", String::new()),
        // Names on the command line come first.
        (&["b", "d/x"], "a\n", format!("{b}{x}{a}")),
        (&["-r"], "a\nd\nb", format!("{a}{x}{b}")),
        (&["-0"], "a\0b\0\0d/x", format!("{a}{b}{x}")),
        (&["-r", "-0", "d"], "a\0d/\0", format!("{x}{a}{x}")),
    ];
    for (args, list, expected) in cases {
        let from_stdin = [args, &["--files-from", "-"]].concat();
        scratch.run_with(&from_stdin, list.as_bytes()).expect(0, &expected, "");
        scratch.write("list", list);
        let from_file = [args, &["--files-from=list"]].concat();
        scratch.run_with(&from_file, b"not read").expect(0, &expected, "");
    }
    // A list may name standard input, but not if it is standard input itself.
    scratch.write("list", "a\n-\n");
    let stdin = format!("{}  -\n", hex(b"in the pipe"));
    let output = scratch.run_with(&["--files-from", "list"], b"in the pipe");
    output.expect(0, &format!("{a}{stdin}"), "");
    let output = scratch.run_with(&["--files-from", "-"], b"a\n-\nb\n");
    assert_eq!((output.code, output.stdout()), (1, &*format!("{a}{b}")));
    assert!(output.stderr.contains("-: standard input can be read only once"), "{}", output.stderr);
}

#[test]
fn names_that_are_not_plain() {
    let (scratch, _) = files();
    for name in ["-r", "--", "a b ", " ", "new\nline", "cr\r", "*"] {
        scratch.write(name, name);
    }
    let output = scratch.run_with(&["--files-from=-"], b"-r\n--\na b \n \ncr\r\n*\n");
    let names: [&[u8]; 6] = [b"-r", b"--", b"a b ", b" ", b"cr\r", b"*"];
    output.expect_bytes(0, &names.map(|name| line(name, name)).concat(), "");
    let output = scratch.run_with(&["-0", "--files-from=-"], b"new\nline\0\n\0cr\r\0");
    let expected = [line(b"new\nline", b"new\nline"), line(b"cr\r", b"cr\r")].concat();
    let said = "ringsum: \\\\n: No such file or directory (os error 2) (name 2 of standard input)\n\
                ringsum: 1 file failed\n";
    output.expect_bytes(1, &expected, said);
}

/// A name that is not found may be due to the list.
#[test]
fn a_missing_name_is_found_in_its_list() {
    let (scratch, [a, b, _]) = files();
    let missing = "No such file or directory (os error 2)";
    for (list, name, hint, number) in [
        (&b"a\n\ngone\nb\n"[..], "gone", "", 3),
        (
            b"\xef\xbb\xbfgone\na\nb\n",
            "\u{feff}gone",
            "; the list starts with a byte order mark, which counts as part of this name: remove it",
            1,
        ),
        (
            b"a\ngone\r\nb\n",
            "\\gone\\r",
            "; the name ends with a carriage return: convert the list to lines that end with newline",
            2,
        ),
    ] {
        scratch.write("list", list);
        let said = format!(
            "ringsum: {name}: {missing}{hint} (line {number} of list)\nringsum: 1 file failed\n"
        );
        scratch.run(&["--files-from=list"]).expect(1, &format!("{a}{b}"), &said);
    }
    scratch.write("list", "a\0b\0");
    let output = scratch.run(&["--files-from=list"]);
    let hint = "; the name contains a NUL: use -0 if names end with NUL (line 1 of list)\n";
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains(hint), "{}", output.stderr);
}

#[test]
fn lists_that_cannot_be_had() {
    let (scratch, [a, ..]) = files();
    let gone = "ringsum: nowhere: No such file or directory (os error 2)\n";
    scratch.run(&["--files-from", "nowhere"]).expect(1, "", gone);
    let directory = "ringsum: d: is a directory: use -r to hash the files in it\n";
    let list = "ringsum: d: Is a directory (os error 21)\n";
    scratch.run(&["--files-from", "d"]).expect(1, "", list);
    // Listed files may be missing.
    let gone = gone.replace('\n', " (line 1 of standard input)\n");
    let said = format!("{gone}{directory}ringsum: 2 files failed\n");
    scratch.run_with(&["--files-from=-"], b"nowhere\na\nd\n").expect(1, &a, &said);
    // A list without newlines does not fill the memory, and the names before it count.
    let list = [&b"a\n"[..], &vec![b'x'; 3 << 20]].concat();
    let said = "ringsum: -: a name is longer than 1 MiB\nringsum: 1 file failed\n";
    scratch.run_with(&["--files-from=-"], &list).expect(1, &a, said);
}

#[test]
fn a_long_list_is_printed_in_its_order() {
    let scratch = Scratch::new();
    let lens = [0, 5, 4096, 40_000, 600_000];
    for len in lens {
        scratch.write(len.to_string(), content(len));
    }
    let lines = lens.map(|len| line(&content(len), len.to_string().as_bytes()));
    // 3,000 names in random order, some of them missing.
    let places: Vec<_> = (0..3000_usize).map(|i| i * i % 11 % 6).collect();
    let name = |place: &usize| lens.get(*place).map_or("gone".to_owned(), ToString::to_string);
    let list: String = places.iter().map(|place| name(place) + "\n").collect();
    let expected = |places: &[usize]| -> Vec<u8> {
        places.iter().filter_map(|place| lines.get(*place)).flatten().copied().collect()
    };
    for jobs in ["-j1", "-j16"] {
        let output = scratch.run_with(&["--files-from=-", jobs], list.as_bytes());
        assert!(output.stdout == expected(&places) && output.code == 1, "{}", output.stderr);
    }
    // As many names on the command line.
    let args: Vec<String> = places[..500].iter().map(name).collect();
    let output = scratch.run_with(&args, b"");
    assert!(output.stdout == expected(&places[..500]) && output.code == 1, "{}", output.stderr);
}

#[test]
fn lines_that_end_with_nul_are_read_back() {
    let scratch = Scratch::new();
    let names = ["new\nline", "back\\slash", "cr\r", "plain", "end\n", "  two", "a) = b"];
    let record = |name: &str| format!("{}  {name}\0", hex(name.as_bytes()));
    let tagged = |name: &str| format!("BLAKE3 ({name}) = {}\0", hex(name.as_bytes()));
    names.iter().for_each(|name| drop(scratch.write(name, name)));
    let plain = scratch.run(&[&["-z"], &names[..]].concat());
    plain.expect(0, &names.map(record).concat(), "");
    let tag = scratch.run(&[&["-z", "--tag"], &names[..]].concat());
    tag.expect(0, &names.map(tagged).concat(), "");
    let ok = names.map(|name| format!("{name}: OK\0")).concat();
    for list in [plain.stdout, tag.stdout] {
        scratch.run_with(&["--check", "-z"], &list).expect(0, &ok, "");
        scratch.run_with(&["-cz", "--quiet"], &list).expect(0, "", "");
    }
    let only = scratch.run(&["-z", "--no-names", "plain", "cr\r"]);
    only.expect(0, &format!("{}\0{}\0", hex(b"plain"), hex(b"cr\r")), "");
    // Files that fail.
    scratch.write("end\n", "changed");
    fs::remove_file(scratch.join("cr\r")).unwrap();
    let list = names.map(record).concat() + "nonsense\0";
    let output = scratch.run_with(&["--check", "-z"], list.as_bytes());
    let expected = ok.replace("end\n: OK", "end\n: FAILED");
    let expected =
        expected.replace("cr\r: OK", "cr\r: FAILED (No such file or directory (os error 2))");
    assert_eq!((output.code, output.stdout()), (1, &*expected));
    assert!(output.stderr.contains("-: 8: improperly formatted"), "{}", output.stderr);
}

/// The lines of standard output as objects.
fn objects(output: &Output) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    assert!(output.stdout.is_empty() || output.stdout.ends_with(b"\n"), "{output:?}");
    output.stdout().lines().map(parse).collect()
}

fn mtime_ns(scratch: &Scratch, name: impl AsRef<std::path::Path>) -> i64 {
    let metadata = scratch.join(name).metadata().unwrap();
    metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec()
}

#[test]
fn an_object_for_each_file() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::new();
    scratch.make_dir("t");
    let odd = std::ffi::OsStr::from_bytes(b"t/\xff\"\n");
    scratch.write("t/a", "a");
    scratch.write(odd, content(600_000));
    scratch.shell("mkfifo t/pipe");
    let output = scratch.run(&["-r", "--json", "gone", "t"]);
    assert_eq!((output.code, &*output.stderr), (1, "ringsum: 1 file failed\n"));
    let expected = [
        json!({"path": "gone", "status": "error", "error": "No such file or directory (os error 2)"}),
        json!({"path": "t/a", "status": "ok", "hash": hex(b"a"), "size": 1,
               "mtime_ns": mtime_ns(&scratch, "t/a")}),
        json!({"path": "t/pipe", "status": "skipped", "error": "a FIFO"}),
        json!({"path": "t/\u{fffd}\"\n", "path_bytes": "742fff220a", "status": "ok",
               "hash": hex(&content(600_000)), "size": 600_000, "mtime_ns": mtime_ns(&scratch, odd)}),
    ];
    assert_eq!(objects(&output), expected);
    // The same for single files, standard input, and other output lengths.
    let output = scratch.run(&["--json", "gone", "t/a", "t"]);
    assert_eq!(objects(&output)[..2], expected[..2]);
    assert_eq!(objects(&output)[2]["error"], "Is a directory (os error 21)");
    let output = scratch.run_with(&["--json", "-"], b"from stdin");
    assert_eq!(
        objects(&output),
        [json!({"path": "-", "status": "ok", "hash": hex(b"from stdin")})]
    );
    let output = scratch.run(&["--json", "-r", "--length=3", "--seek=2", "t/a"]);
    assert_eq!(objects(&output)[0]["hash"], hex(b"a")[4..10]);
}

#[test]
fn an_object_for_each_line_of_a_check() {
    let (scratch, [a, _, x]) = files();
    let list = format!("{a}{}  d\n{}  gone\n{}  b\n{x}", hex(b"d"), hex(b"gone"), hex(b"not b"));
    let output = scratch.run_with(&["--check", "--json"], list.as_bytes());
    let warnings = "ringsum: WARNING: 2 listed files could not be read\n\
                    ringsum: WARNING: 1 computed checksum did NOT match\n";
    assert_eq!((output.code, &*output.stderr), (1, warnings));
    let found = |name: &str, status: &str, expected: &[u8]| {
        json!({"path": name, "status": status, "hash": hex(name.as_bytes()),
               "expected": hex(expected), "size": name.len(), "mtime_ns": mtime_ns(&scratch, name)})
    };
    let objects = objects(&output);
    let expected = [
        found("a", "ok", b"a"),
        json!({"path": "d", "status": "unreadable", "error": "Is a directory (os error 21)",
               "expected": hex(b"d"), "list": "-", "line": 2}),
        json!({"path": "gone", "status": "missing", "list": "-", "line": 3,
               "error": "No such file or directory (os error 2)", "expected": hex(b"gone")}),
        found("b", "mismatch", b"not b"),
        found("d/x", "ok", b"d/x"),
    ];
    assert_eq!(objects, expected);
    let output = scratch.run_with(&["-c", "--json", "--quiet"], list.as_bytes());
    assert_eq!(self::objects(&output), expected[1..4]);
    scratch.run_with(&["-c", "--json"], x.as_bytes()).expect(0, &format!("{}\n", expected[4]), "");
}

/// 300 files of various lengths; every seventh is changed, every eleventh missing.
#[test]
fn a_check_says_the_same_whatever_it_is_read_with() {
    let scratch = Scratch::new();
    let (mut list, mut expected, mut said) = (String::new(), String::new(), String::new());
    let (mut changed, mut gone) = (0, 0);
    for i in 0..300_usize {
        let data = &content(i * i % 40_000 + i)[i..];
        let name = format!("{:03}", i * 7 % 300);
        list += &format!("{}  {name}\n", hex(data));
        let verdict = if i % 11 == 0 {
            gone += 1;
            if gone <= 10 {
                said += &format!("ringsum: list: {}: {name} is missing\n", i + 1);
            }
            "FAILED (No such file or directory (os error 2))"
        } else if i % 7 == 0 {
            changed += 1;
            scratch.write(&name, [data, b"."].concat());
            "FAILED"
        } else {
            scratch.write(&name, data);
            "OK"
        };
        expected += &format!("{name}: {verdict}\n");
    }
    scratch.write("list", list);
    said += &format!(
        "ringsum: WARNING: {gone} listed files could not be read\n\
         ringsum: WARNING: {changed} computed checksums did NOT match\n"
    );
    let ways: [&[&str]; 9] = [
        &[],
        &["-j1"],
        &["-j2", "--io=page-cache=direct"],
        &["-j16", "--io=engine=io_uring"],
        &["--io=engine=libaio", "--io=page-cache=direct"],
        &["--io=engine=pool"],
        &["--io=engine=pread", "--io=page-cache=dontcache"],
        &["--io=engine=mmap"],
        &["--io=workers=1"],
    ];
    for way in ways {
        let output = scratch.run(&[&["--check", "list"], way].concat());
        if output.stdout().contains("cannot be used") {
            skip_unless_strict(&format!("--check {way:?}: {}", output.stdout()));
            continue;
        }
        output.expect(1, &expected, &said);
    }
    let output = scratch.run(&["--check", "list", "--unordered"]);
    let sorted = |lines: &str| {
        let mut lines: Vec<_> = lines.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!((output.code, sorted(output.stdout())), (1, sorted(&expected)));
}

/// A directory `d` with files one, two and three, and a list of them.
fn listed() -> (Scratch, String) {
    let scratch = Scratch::new();
    scratch.make_dir("d/sub");
    for name in ["d/one", "d/sub/two", "d/three"] {
        scratch.write(name, name);
    }
    let list = scratch.run(&["-r", "d"]).stdout().to_owned();
    scratch.write("list", &list);
    (scratch, "d/one: OK\nd/sub/two: OK\nd/three: OK\n".to_owned())
}

#[test]
fn files_that_no_list_has_are_named() {
    let (scratch, ok) = listed();
    let args = ["--check", "list", "--report-unlisted", "d"];
    scratch.run(&args).expect(0, &ok, "");
    // Whatever names the list uses for them.
    scratch.run(&["-c", "list", "--report-unlisted", "./d/../d/"]).expect(0, &ok, "");
    scratch.write("d/sub/.new", "new");
    scratch.write("d/a\nb", "x");
    scratch.shell("mkfifo d/pipe && ln -s one d/link && mkdir d/empty");
    let warning = "ringsum: WARNING: 2 files are unlisted\n";
    let expected = format!("{ok}\\d/a\\nb: UNLISTED\nd/sub/.new: UNLISTED\n");
    scratch.run(&args).expect(1, &expected, warning);
    let mine = scratch.join("d");
    let expected = expected.replace("d/sub/.new: U", &format!("{}/sub/.new: U", mine.display()));
    let expected = expected.replace("\\d/a\\nb", &format!("\\{}/a\\nb", mine.display()));
    let args = ["-c", "list", "--report-unlisted", mine.to_str().unwrap()];
    scratch.run(&args).expect(1, &expected, warning);
    // --quiet and the like do not hide them.
    let args = ["-c", "list", "--report-unlisted=d"];
    let extra = "\\d/a\\nb: UNLISTED\nd/sub/.new: UNLISTED\n";
    scratch.run(&[&args[..], &["--quiet"]].concat()).expect(1, extra, warning);
    scratch.run(&[&args[..], &["--status"]].concat()).expect(1, "", "");
    let one = format!("{ok}d/sub/.new: UNLISTED\n");
    let warning = "ringsum: WARNING: 1 file is unlisted\n";
    scratch.run(&[&args[..], &["--exclude=a*"]].concat()).expect(1, &one, warning);
    let two = ["-c", "list", "--report-unlisted=d/sub", "--report-unlisted=d/empty"];
    scratch.run(&two).expect(1, &one, warning);
}

#[test]
fn where_missing_files_have_gone() {
    let (scratch, ok) = listed();
    scratch.make_dir("d/new");
    fs::rename(scratch.join("d/one"), scratch.join("d/new/place")).unwrap();
    fs::remove_file(scratch.join("d/three")).unwrap();
    scratch.write("d/three?", "other bytes");
    let gone = "FAILED (No such file or directory (os error 2))";
    let checked = ok.replace("d/one: OK", &format!("d/one: {gone}"));
    let checked = checked.replace("d/three: OK", &format!("d/three: {gone}"));
    let warnings = "ringsum: list: 1: d/one is missing\n\
                    ringsum: list: 3: d/three is missing\n\
                    ringsum: WARNING: 2 listed files could not be read\n\
                    ringsum: WARNING: 2 files are unlisted\n";
    let args = ["--check", "list", "--report-unlisted", "d"];
    let moved = "d/one: RENAMED to d/new/place\nd/three?: UNLISTED\n";
    scratch.run(&args).expect(1, &format!("{checked}{moved}"), warnings);
    scratch.run(&[&args[..], &["-j1"]].concat()).expect(1, &format!("{checked}{moved}"), warnings);
    let ignoring = scratch.run(&[&args[..], &["--ignore-missing"]].concat());
    let warning = "ringsum: WARNING: 2 files are unlisted\n";
    ignoring.expect(1, &format!("d/sub/two: OK\n{moved}"), warning);
    let objects = objects(&scratch.run(&[&args[..], &["--json", "--quiet"]].concat()));
    let expected = [
        json!({"path": "d/one", "status": "renamed", "to": "d/new/place"}),
        json!({"path": "d/three?", "status": "unlisted"}),
    ];
    assert_eq!(objects[2..], expected);
    let list = scratch.shell("tr '\\n' '\\0' < list > zero; $R -cz zero --report-unlisted d");
    let expected = format!("{checked}{moved}").replace('\n', "\0");
    list.expect(1, &expected, &warnings.replace("list:", "zero:"));
}

#[test]
fn files_that_have_gone_are_known_by_digests_of_any_length() {
    let scratch = Scratch::new();
    let names: Vec<_> = (10..50).map(|i| format!("file {i}")).collect();
    scratch.make_dir("old");
    for name in &names {
        scratch.write(format!("old/{name}"), name);
    }
    for seek in ["0", "20"] {
        for length in ["16", "32", "64"] {
            let args = ["--tag", "--length", length, "--seek", seek, "-r", "old"];
            let list = scratch.run(&args);
            scratch.write("list", list.stdout());
            fs::rename(scratch.join("old"), scratch.join("new")).unwrap();
            let args =
                ["--check", "list", "--seek", seek, "--ignore-missing", "--report-unlisted", "new"];
            let found = scratch.run(&args);
            let moved = |name: &String| format!("old/{name}: RENAMED to new/{name}\n");
            let moved: String = names.iter().map(moved).collect();
            assert_eq!(found.stdout(), moved, "{length} bytes from {seek} on");
            fs::rename(scratch.join("new"), scratch.join("old")).unwrap();
        }
    }
}

#[test]
fn a_folder_that_cannot_be_looked_through_is_a_failure() {
    let (scratch, ok) = listed();
    let output = scratch.run(&["-c", "list", "--report-unlisted=nowhere"]);
    assert_eq!((output.code, output.stdout()), (1, &*ok));
    let said = "ringsum: nowhere: No such file or directory (os error 2)\n";
    assert!(output.stderr.starts_with(said), "{}", output.stderr);
}
