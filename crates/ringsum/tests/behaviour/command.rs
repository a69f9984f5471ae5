//! Every option of the command; the output is byte for byte that of b3sum, if that is installed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::support::{RINGSUM, Scratch, content, hex, installed, named, run, skip};

#[test]
fn files_in_the_order_of_the_arguments() {
    let scratch = Scratch::new();
    scratch.write("b", content(3_000_000));
    scratch.write("a", "hi\n");
    scratch.write("empty", "");
    let expected = format!(
        "{}  b\n{}  a\n{}  empty\n{}  a\n",
        hex(&content(3_000_000)),
        hex(b"hi\n"),
        hex(b""),
        hex(b"hi\n")
    );
    scratch.run(&["b", "a", "empty", "a"]).expect(0, &expected, "");
}

#[test]
fn standard_input() {
    let scratch = Scratch::new();
    scratch.write("a", "hi\n");
    let expected = format!("{}  -\n", hex(b"from stdin"));
    let none: [&str; 0] = [];
    scratch.run_with(&none, b"from stdin").expect(0, &expected, "");
    scratch.run_with(&["-"], b"from stdin").expect(0, &expected, "");
    let both = format!("{}  a\n{expected}", hex(b"hi\n"));
    scratch.run_with(&["a", "-"], b"from stdin").expect(0, &both, "");
    // A file on standard input is read from its current position to its end.
    scratch.write("large", content(2_000_000));
    let expected = format!("{}  -\n", hex(&content(2_000_000)));
    scratch.shell("$R < large").expect(0, &expected, "");
    let rest = format!("{}  -\n", hex(&content(2_000_000)[1000..]));
    scratch
        .shell("{ dd bs=1000 count=1 of=/dev/null 2>/dev/null; $R; } < large")
        .expect(0, &rest, "");
    scratch.shell("{ $R > /dev/null; wc -c; } < large").expect(0, "0\n", "");
    let pipe = scratch.shell("cat large | $R");
    pipe.expect(0, &expected, "");
}

#[test]
fn what_is_printed() {
    let scratch = Scratch::new();
    scratch.write("a", "hi\n");
    let hash = hex(b"hi\n");
    scratch.run(&["--no-names", "a"]).expect(0, &format!("{hash}\n"), "");
    scratch.run(&["--tag", "a"]).expect(0, &format!("BLAKE3 (a) = {hash}\n"), "");
    scratch.run(&["--tag", "--no-names", "a"]).expect(0, &format!("{hash}\n"), "");
    scratch.run(&["-l", "5", "a"]).expect(0, &format!("{}  a\n", &hash[..10]), "");
    scratch.run(&["-l", "0", "a"]).expect(0, "  a\n", "");
    scratch.run(&["--seek", "3", "--length=4", "a"]).expect(
        0,
        &format!("{}  a\n", &hash[6..14]),
        "",
    );
    scratch.run(&["-b", "-t", "a"]).expect(0, &format!("{hash}  a\n"), "");
    let raw = scratch.run(&["--raw", "a"]);
    assert_eq!(raw.stdout, blake3::hash(b"hi\n").as_bytes());
    let mut long = vec![0; 200_000];
    blake3::Hasher::new().update(b"hi\n").finalize_xof().fill(&mut long);
    assert_eq!(scratch.run(&["--raw", "-l", "200000", "a"]).stdout, long);
    assert_eq!(scratch.run(&["--no-names", "-l200000", "a"]).stdout(), hex::encode(&long) + "\n");
}

#[test]
fn keys_and_contexts() {
    let scratch = Scratch::new();
    scratch.write("a", content(5000));
    let key = b"whats the Elvish word for friend";
    let keyed = blake3::keyed_hash(key, &content(5000)).to_hex().to_string();
    scratch.run_with(&["--keyed", "a"], key).expect(0, &format!("{keyed}  a\n"), "");
    let derived = hex::encode(blake3::derive_key("ctx", &content(5000)));
    scratch.run(&["--derive-key", "ctx", "a"]).expect(0, &format!("{derived}  a\n"), "");
    scratch.run_with(&["--keyed", "a", "-"], key).expect(
        1,
        &format!("{keyed}  a\n"),
        "ringsum: -: standard input is the key, so it cannot be a file as well\n",
    );
    for (key, found) in [(&b"short"[..], "5"), (b"", "0"), (&[1; 33], "more")] {
        scratch.run_with(&["--keyed", "a"], key).expect(
            1,
            "",
            &format!("ringsum: standard input must have 32 key bytes, not {found}\n"),
        );
    }
}

#[test]
fn names_that_need_escapes_and_names_that_are_not_text() {
    let scratch = Scratch::new();
    let names: [(&[u8], &[u8]); 5] = [
        (b"back\\slash", b"\\HASH  back\\\\slash\n"),
        (b"new\nline", b"\\HASH  new\\nline\n"),
        (b"carriage\rreturn", b"\\HASH  carriage\\rreturn\n"),
        (b"not\xffutf8", b"HASH  not\xffutf8\n"),
        (b"\x1b[31mred", b"HASH  \x1b[31mred\n"),
    ];
    let hash = hex(b"x");
    for (name, line) in names {
        let name = OsStr::from_bytes(name);
        scratch.write(name, "x");
        let line = line.to_vec();
        let at = line.windows(4).position(|part| part == b"HASH").unwrap();
        let expected = [&line[..at], hash.as_bytes(), &line[at + 4..]].concat();
        let output = scratch.run_with(&[name], b"");
        assert_eq!((output.code, &*output.stderr), (0, ""), "{name:?}");
        assert_eq!(output.stdout, expected, "{name:?}");
        // The output can be checked.
        let checked = scratch.run_with(&["--check"], &output.stdout);
        assert_eq!((checked.code, &*checked.stderr), (0, ""), "{name:?}");
        let listed = [&line[..at], &line[at + 6..line.len() - 1], b": OK\n"].concat();
        assert_eq!(checked.stdout, listed, "{name:?}");
        // Also in BSD style.
        let tagged = scratch.run_with(&[OsStr::new("--tag"), name], b"");
        assert_eq!(scratch.run_with(&["-c", "--quiet"], &tagged.stdout).code, 0, "{name:?}");
    }
}

#[test]
fn threads_and_io_options_change_no_hash() {
    let scratch = Scratch::new();
    scratch.write("a", content(3_000_000));
    let expected = format!("{}  a\n", hex(&content(3_000_000)));
    let lines: [&[&str]; 36] = [
        &["--num-threads", "1"],
        &["--num-threads", "2"],
        &["--num-threads", "0"],
        &["--no-mmap"],
        &["--no-mmap", "--num-threads=4"],
        &["--io", "engine=io_uring"],
        &["--io", "engine=pread"],
        &["--io", "engine=mmap"],
        &["--io", "page-cache=buffered"],
        &["--io", "block-size=512"],
        &["--io", "block-size=1000"],
        &["--io", "block-size=64MiB"],
        &["--io", "block-size=4k", "--io", "queue-depth=32768"],
        &["--io", "block-size=128KiB", "--io", "slots=3", "--io", "queue-depth=2"],
        &["--io", "workers=0"],
        &["--io", "workers=5"],
        &["--io", "engine=mmap", "--io", "block-size=3000", "--io", "workers=1"],
        &[
            "--io",
            "engine=io_uring",
            "--io",
            "page-cache=buffered",
            "--io",
            "block-size=10001",
            "--io",
            "workers=1",
        ],
        &["--io", "engine=libaio", "--io", "queue-depth=3", "--io", "slots=9"],
        &["--io", "engine=pool", "--io", "pool-threads=3"],
        &["--io", "pool-threads=1"],
        &["--io", "engine=stream"],
        &["--io", "engine=stream", "--io", "workers=3", "--io=wait=spin"],
        &["--io=order=in-order"],
        &["--io=order=in-order", "--io", "workers=1", "--io=wait=spin"],
        &["--io", "consume=batch"],
        &["--io", "huge-pages=off"],
        &["--io=drain=on", "--io", "block-size=16K"],
        &["--io=link=on", "--io", "block-size=16K", "--io", "workers=1", "--io=order=in-order"],
        &["--io=drain=on", "--io", "block-size=16K", "--io", "workers=1", "--io=order=in-order"],
        &["--io=sqpoll=0"],
        &["--io=sqpoll=20", "--io", "sqpoll-cpu=0"],
        &["--io=fixed-buffers=on", "--io=fixed-file=on"],
        &["--limit-rate", "1G/s"],
        &["--io-priority", "idle"],
        &["--io-priority", "best-effort:7", "--io", "engine=pool"],
    ];
    for options in lines {
        let output = scratch.run(&[options, &["a"]].concat());
        output.expect(0, &expected, "");
    }
}

#[test]
fn explain_says_what_and_why_on_standard_error() {
    let scratch = Scratch::new();
    scratch.write("large", content(3_000_000));
    scratch.write("small", "x");
    let output = scratch.run(&["--explain", "--io", "queue-depth=9", "--io", "slots=4", "large"]);
    assert_eq!(output.stdout(), format!("{}  large\n", hex(&content(3_000_000))));
    for part in
        ["ringsum: large: plan\n", "engine", "in the page cache", "as many as there are slots"]
    {
        assert!(output.stderr.contains(part), "{part:?} in {}", output.stderr);
    }
    let output = scratch.run_with(&["--explain", "small", "-"], b"x");
    assert!(output.stderr.contains("one pread"), "{}", output.stderr);
    assert!(output.stderr.contains("a pipe"), "{}", output.stderr);
}

#[test]
fn help_and_version() {
    let scratch = Scratch::new();
    for option in ["-h", "--help"] {
        let output = scratch.run(&[option]);
        assert_eq!((output.code, &*output.stderr), (0, ""));
        assert!(output.stdout().starts_with("Print or check"), "{}", output.stdout());
        assert!(output.stdout().contains("--report-unlisted"), "{}", output.stdout());
    }
    let version = format!("ringsum {}\n", env!("CARGO_PKG_VERSION"));
    scratch.run(&["-V"]).expect(0, &version, "");
    scratch.run(&["--version"]).expect(0, &version, "");
}

/// An empty name is a missing file, not a wrong command line.
#[test]
fn an_empty_name_does_not_hide_the_others() {
    let scratch = Scratch::new();
    scratch.write("a", "a");
    let missing = "ringsum: '': No such file or directory (os error 2)\n";
    let line = format!("{}  a\n", hex(b"a"));
    scratch.run(&["", "a"]).expect(1, &line, missing);
    scratch.run(&["--", "", "a"]).expect(1, &line, missing);
    let said = format!("{missing}ringsum: 1 file failed\n");
    scratch.run(&["-r", "", "a"]).expect(1, &line, &said);
}

#[test]
fn jobs_have_a_range() {
    let scratch = Scratch::new();
    let output = scratch.run(&["--jobs", "0", "-r", "."]);
    let said = "ringsum: invalid value '0' for '--jobs <N>': use 1 to 1024 threads, or leave \
                --jobs out to use the default (see --help)\n";
    output.expect(2, "", said);
}

#[test]
fn a_link_called_b3sum_speaks_as_b3sum() {
    let scratch = Scratch::new();
    let link = scratch.join("b3sum");
    symlink(RINGSUM, &link).unwrap();
    let output = run(named(&link).current_dir(scratch.path()).arg("missing"), b"");
    output.expect(1, "", "b3sum: missing: No such file or directory (os error 2)\n");
    let version = format!("b3sum {} (ringsum)\n", env!("CARGO_PKG_VERSION"));
    for option in ["-V", "--version"] {
        run(named(&link).arg(option), b"").expect(0, &version, "");
    }
    let output = run(named(&link).arg("--bogus"), b"");
    assert!(output.stderr.starts_with("b3sum: unexpected argument"), "{}", output.stderr);
}

#[test]
fn the_same_bytes_as_b3sum() {
    if !installed("b3sum") {
        return skip("comparison with b3sum: it is not installed (cargo install b3sum)");
    }
    let scratch = Scratch::new();
    scratch.write("a", content(70_000));
    scratch.write("b\\c\nd", content(2_000_000));
    scratch.write("empty", "");
    scratch.write(
        "list",
        format!("{}  a\n{}  empty\n{}  gone\n", hex(&content(70_000)), hex(b"x"), hex(b"")),
    );
    let lines: [&[&str]; 19] = [
        &["a", "b\\c\nd", "empty"],
        &["--tag", "a", "b\\c\nd"],
        &["--no-names", "a", "empty"],
        &["--raw", "a"],
        &["--raw", "-l", "1000", "a"],
        &["-l", "100", "--seek", "5", "a"],
        &["-l", "0", "a"],
        &["-l", "1", "--seek", "18446744073709551615", "a"],
        &["--derive-key", "context", "a"],
        &["--num-threads", "1", "--no-mmap", "a"],
        &["a", "missing", "empty"],
        &["--check", "list"],
        &["--check", "--quiet", "list"],
        &["--check", "missing"],
        &["-", "a"],
        &["--tag", "-"],
        &["--keyed", "a"],
        &["--check", "--tag", "list"],
        &["--raw", "a", "empty"],
    ];
    for line in lines {
        let stdin = b"whats the Elvish word for friend";
        let ours = scratch.run_with(line, stdin);
        let theirs = run(Command::new("b3sum").current_dir(scratch.path()).args(line), stdin);
        assert_eq!(
            String::from_utf8_lossy(&ours.stdout),
            String::from_utf8_lossy(&theirs.stdout),
            "{line:?}"
        );
        // An unusable command line is always 2 here; in b3sum it is sometimes 1.
        assert_eq!(ours.code == 0, theirs.code == 0, "{line:?}");
    }
}
