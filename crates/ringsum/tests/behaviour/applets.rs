//! Applets: under the name of another tool, the same lines, messages and exit status.

use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::support::{RINGSUM, Scratch, named, run, skip};

const TOOLS: [&str; 7] =
    ["sha256sum", "sha512sum", "sha384sum", "sha224sum", "sha1sum", "md5sum", "b2sum"];

/// The version of the GNU tools whose messages are compared; those of other versions may differ.
fn is_known_version(tool: &str) -> bool {
    let said = Command::new(tool).arg("--version").output();
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned());
    let is_known = said.as_ref().is_ok_and(|said| said.contains("(GNU coreutils) 9."));
    if !is_known {
        skip(&format!("{tool}: no GNU coreutils 9 is installed"));
    }
    is_known
}

/// Runs a command line with the real tool and with a link to `ringsum`, in the same directory.
#[track_caller]
fn compare(folder: &Scratch, tool: &str, line: &[&str], stdin: &[u8]) {
    // (Messages begin with the whole name by which a tool is invoked.)
    for name in [tool, "./some/where/else"] {
        compare_as(folder, tool, name, "C.UTF-8", line, stdin);
    }
}

/// The same, invoked by this name, in this locale.
#[track_caller]
fn compare_as(folder: &Scratch, tool: &str, name: &str, locale: &str, line: &[&str], stdin: &[u8]) {
    let name = name.replace("else", tool);
    let link = folder.join(tool);
    if !link.exists() {
        symlink(RINGSUM, &link).unwrap();
    }
    let [theirs, ours] = [tool.as_ref(), link.as_os_str()].map(|program| {
        let mut command = named(program);
        command.current_dir(folder.path()).env("LC_ALL", locale).arg0(&name).args(line);
        run(&mut command, stdin)
    });
    let said = |output: &super::support::Output| {
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.code, stdout, output.stderr.clone())
    };
    assert_eq!(said(&ours), said(&theirs), "{tool} {line:?}");
}

/// Two files, a list of them, and a list with every kind of bad line.
fn folder_with_lists(tool: &str) -> Scratch {
    let folder = Scratch::new();
    folder.write("a", "hi\n");
    folder.write("b", "yo\n");
    folder.write("new\nline", "x\n");
    folder.write("back\\slash", "y\n");
    let list = folder.shell(&format!("{tool} a b")).stdout().to_owned();
    folder.write("good", &list);
    let zeros = "0".repeat(list.split(' ').next().unwrap_or_default().len());
    folder.write("bad", format!("{list}junk\n{zeros}  b\n{zeros}  missing\n"));
    folder.write("missing-only", format!("{zeros}  missing\n"));
    folder.write("of-another", "CRC32C (a) = 00000000\n");
    // (Whether a verdict shows a lone backslash escaped differs between releases.)
    let tagged = folder.shell(&format!("{tool} --tag a new*")).stdout().to_owned();
    folder.write("tagged", tagged);
    folder
}

#[test]
fn lines_and_words_are_those_of_the_tool() {
    let lines: [&[&str]; 45] = [
        &["a", "b"],
        &["a", "nofile", "."],
        &[],
        &["-"],
        &["-b", "a"],
        &["-t", "a"],
        &["-b", "-t", "a"],
        &["--tag", "a", "back\\slash", "new\nline"],
        &["back\\slash", "new\nline"],
        &["-z", "a", "back\\slash", "new\nline"],
        &["--ta", "a"],
        &["-c", "good"],
        &["-c", "good", "bad"],
        &["-c", "tagged"],
        &["-c", "bad"],
        &["-c", "--strict", "bad"],
        &["-c", "-w", "bad"],
        &["-cw", "bad"],
        &["-c", "--status", "bad"],
        &["-c", "--status", "good"],
        &["-c", "--quiet", "bad"],
        &["-c", "--warn", "--quiet", "bad"],
        &["-c", "--quiet", "--warn", "bad"],
        &["-c", "--ignore-missing", "bad"],
        &["-c", "--ignore-missing", "missing-only"],
        &["-c", "--ignore-missing", "--status", "missing-only"],
        &["-c", "missing-only", "good"],
        &["-c", "a"],
        &["-c", "of-another"],
        &["-c", "nolist", "good"],
        &["-c"],
        &["--stat", "-c", "bad"],
        // Conflicting and unknown options.
        &["--quiet", "a"],
        &["--strict", "a"],
        &["-w", "a"],
        &["--ignore-missing", "a"],
        &["-c", "--tag", "good"],
        &["--tag", "-t", "a"],
        &["-c", "-z", "good"],
        &["-c", "-b", "good"],
        &["-x", "a"],
        &["--st", "-c", "good"],
        &["--t", "a"],
        &["--check=good"],
        &["--", "-x"],
    ];
    for tool in TOOLS {
        if !is_known_version(tool) {
            continue;
        }
        let folder = folder_with_lists(tool);
        for line in lines {
            compare(&folder, tool, line, b"hi\n");
        }
        compare(&folder, tool, &["--bogus"], b"");
        // The list on standard input.
        let list = std::fs::read(folder.join("bad")).unwrap();
        compare(&folder, tool, &["-c"], &list);
    }
}

/// Malformed lines are no failure: a line that only `ringsum` rejects would be a file that is not
/// checked.
#[test]
fn lines_that_are_written_otherwise_are_checked() {
    for tool in TOOLS {
        if !is_known_version(tool) {
            continue;
        }
        let folder = folder_with_lists(tool);
        let good = folder.shell(&format!("{tool} a")).stdout().to_owned();
        let digits = good.split(' ').next().unwrap_or_default().to_owned();
        let tag = folder.shell(&format!("{tool} --tag a")).stdout().to_owned();
        let tag = tag.split(' ').next().unwrap_or_default();
        // (Names that are quoted in messages about missing files.)
        for name in [" b", "*b", " x", "*"] {
            folder.write(name, "hi\n");
        }
        let lists = [
            // These digits do not match `b`.
            format!("{digits}  a\n {digits}  b\n"),
            format!("{digits}  a\n\t {tag} (b) = {digits}\n"),
            format!("{digits}  a\n{tag}(b)= {digits}\n"),
            format!("{digits}  a\n{tag} (b)={digits}\n"),
            format!("{digits}  a\n{tag}(b) \t= \t{digits}\n"),
            format!("{digits} a\n{digits} b\n"),
            format!("{digits}\ta\n{digits}\tb\n"),
            // The first line decides what a second space means.
            format!("{digits} a\n{digits}  b\n{digits} *b\n"),
            format!("{digits}  a\n{digits} b\n{digits}   b\n{digits} **b\n"),
            format!("{digits} x\n{digits}\u{0020}\u{0020}x\n{digits} *\n"),
            format!(" \\{digits}  new\\nline\n"),
            format!("\\{digits} new\\nline\n"),
            format!("{digits}0  b\n{digits}00 b\n{digits}  a\n{digits} *a\r\n"),
            format!("SM3 (b) = {digits}\n{digits}  a\n"),
        ];
        for list in lists {
            folder.write("list", &list);
            compare(&folder, tool, &["-c", "list"], b"");
            compare(&folder, tool, &["-c", "--strict", "--status", "list"], b"");
        }
    }
}

/// Verdicts show names as they are, except with a newline.
#[test]
fn names_in_verdicts_are_those_of_the_tool() {
    for tool in TOOLS {
        if !is_known_version(tool) {
            continue;
        }
        let folder = folder_with_lists(tool);
        folder.write("both\\and\n", "x");
        folder.write("re\rturn", "x");
        for options in ["", "--tag"] {
            let script = format!("{tool} {options} a back* new* both* re*");
            let list = folder.shell(&script).stdout().to_owned();
            folder.write("list", list);
            compare(&folder, tool, &["-c", "list"], b"");
        }
    }
}

/// If verdicts and messages go to one file, they are in order.
#[test]
fn verdicts_precede_later_messages() {
    for tool in TOOLS {
        if !is_known_version(tool) {
            continue;
        }
        let folder = folder_with_lists(tool);
        symlink(RINGSUM, folder.join(tool)).unwrap();
        for script in ["-c -w bad good", "-c good missing-only bad", "a gone b . a"] {
            let said = |program: &str| {
                let script = format!("(exec -a {tool} {program} {script}) 2>&1");
                let bash = ["-c", &script];
                run(named("bash").current_dir(folder.path()).env("LC_ALL", "C").args(bash), b"")
            };
            let (theirs, ours) = (said(tool), said(&format!("./{tool}")));
            assert_eq!(ours.stdout(), theirs.stdout(), "{tool} {script}");
            assert!(theirs.stdout().lines().count() > 2, "{}", theirs.stdout());
        }
    }
}

#[test]
fn b2sum_has_a_length_in_bits() {
    if !is_known_version("b2sum") {
        return;
    }
    let folder = folder_with_lists("b2sum");
    for length in ["8", "128", "256", "512", "0"] {
        compare(&folder, "b2sum", &["-l", length, "a"], b"");
        compare(&folder, "b2sum", &["--tag", "-l", length, "a"], b"");
    }
    for length in
        ["100", "1024", "x", "513", "520", "-8", "", " 8", "+8", "8x", "99999999999999999999999"]
    {
        for locale in ["C", "C.UTF-8"] {
            compare_as(&folder, "b2sum", "b2sum", locale, &["-l", length, "a"], b"");
        }
    }
    compare(&folder, "b2sum", &["a", "-l"], b"");
    compare(&folder, "b2sum", &["a", "--length"], b"");
    for options in ["-l 128", "--tag -l 128", "--tag -l 256"] {
        let list = folder.shell(&format!("b2sum {options} a b")).stdout().to_owned();
        folder.write("list", list);
        compare(&folder, "b2sum", &["-c", "list"], b"");
    }
}

#[test]
fn xxhsum_gives_the_same_digests() {
    let is_there = Command::new("xxhsum").arg("--version").output().is_ok();
    if !is_there {
        skip("xxhsum: it is not installed");
        return;
    }
    let folder = folder_with_lists("md5sum");
    symlink(RINGSUM, folder.join("xxhsum")).unwrap();
    for options in [
        "",
        "-H0",
        "-H1",
        "-H2",
        "-H32",
        "-H64",
        "-H128",
        "--tag",
        "-H3 --tag",
        "--tag --little-endian",
        "-H2 --tag --little-endian",
    ] {
        let theirs = folder.shell(&format!("xxhsum {options} a b 2>/dev/null"));
        let ours = folder.shell(&format!("./xxhsum {options} a b"));
        assert_eq!((ours.stdout(), ours.code), (theirs.stdout(), 0), "{options}");
        folder.write("list", theirs.stdout());
        folder.shell("./xxhsum -c list").expect(0, "a: OK\nb: OK\n", "");
        folder.write("list", ours.stdout());
        let theirs = folder.shell("xxhsum -c list 2>/dev/null");
        assert_eq!((theirs.stdout(), theirs.code), ("a: OK\nb: OK\n", 0), "{options}");
    }
    let ours = folder.shell("./xxhsum <a");
    let theirs = folder.shell("xxhsum <a 2>/dev/null");
    assert_eq!(ours.stdout(), theirs.stdout());
    // Standard input by the name that it has in lists.
    folder.write("list", theirs.stdout());
    for program in ["xxhsum", "./xxhsum"] {
        folder.shell(&format!("{program} -c list <a")).expect(0, "stdin: OK\n", "");
        assert_eq!(folder.shell(&format!("{program} -c list <b 2>&1")).code, 1, "{program}");
    }
    // Bytes in the other order, which only tags show.
    for options in ["", "-H0", "-H2"] {
        let theirs = folder.shell(&format!("xxhsum {options} --little-endian a b 2>/dev/null"));
        let ours = folder.shell(&format!("./xxhsum {options} --little-endian a b"));
        assert_eq!((ours.stdout(), ours.code), (theirs.stdout(), 0), "{options}");
        folder.write("list", theirs.stdout());
        for program in ["xxhsum", "./xxhsum"] {
            let script = format!("{program} -c --little-endian list 2>/dev/null");
            folder.shell(&script).expect(0, "a: OK\nb: OK\n", "");
            assert_eq!(folder.shell(&format!("{program} -c list 2>&1")).code, 1, "{program}");
        }
    }
    folder.shell("./xxhsum a b | sed 's/b$/gone/' >list");
    folder.shell("./xxhsum -c --ignore-missing list").expect(0, "a: OK\n", "");
    let list = folder.shell("./xxhsum a").stdout().replace("  a", "  missing");
    folder.write("list", list);
    let missing = folder.shell("./xxhsum -c list");
    assert_eq!((missing.code, missing.stdout()), (1, "missing: FAILED open or read\n"));
    assert_eq!(folder.shell("./xxhsum -H5 a").code, 1);
    // Also accepted without -c.
    for option in ["-q", "--quiet", "--strict", "--status", "--warn"] {
        let theirs = folder.shell(&format!("xxhsum {option} a 2>/dev/null"));
        let ours = folder.shell(&format!("./xxhsum {option} a"));
        assert_eq!((ours.stdout(), ours.code), (theirs.stdout(), 0), "{option}");
    }
    // Under its other names.
    for (name, option) in
        [("xxh32sum", "-H0"), ("xxh64sum", "-H1"), ("xxh128sum", "-H2"), ("xxh3sum", "-H3")]
    {
        symlink(RINGSUM, folder.join(name)).unwrap();
        let ours = folder.shell(&format!("./{name} a"));
        assert_eq!(ours.stdout(), folder.shell(&format!("./xxhsum {option} a")).stdout(), "{name}");
        folder.write("list", ours.stdout());
        folder.shell(&format!("./{name} -c list")).expect(0, "a: OK\n", "");
        assert_eq!(
            folder.shell(&format!("./{name} -H1 a")).stdout(),
            folder.shell("./xxhsum a").stdout(),
            "{name}"
        );
    }
}

/// An empty name is a missing file; the others are hashed.
#[test]
fn an_empty_name_is_missing() {
    let folder = folder_with_lists("md5sum");
    symlink(RINGSUM, folder.join("md5sum")).unwrap();
    let ours = folder.shell("./md5sum '' a");
    assert_eq!((ours.stdout(), ours.code), (folder.shell("md5sum a").stdout(), 1));
    assert!(ours.stderr.ends_with("No such file or directory\n"), "{}", ours.stderr);
}

/// Special files are not opened, and the message names an option that the applet's user can find.
#[test]
fn a_fifo_in_a_list_is_not_opened() {
    let folder = folder_with_lists("md5sum");
    symlink(RINGSUM, folder.join("md5sum")).unwrap();
    folder.shell("mkfifo fifo; ./md5sum a | sed s/a$/fifo/ >list").expect(0, "", "");
    let said = "./md5sum: fifo: it is a FIFO; ringsum --check --allow-special reads it\n\
                ./md5sum: WARNING: 1 listed file could not be read\n";
    folder.shell("./md5sum -c list").expect(1, "fifo: FAILED open or read\n", said);
}

/// Under any other name, including `b3sum`, it is ringsum.
#[test]
fn other_names_are_ringsum() {
    let folder = Scratch::new();
    folder.write("a", "hi\n");
    for name in ["b3sum", "sha256sum-of-mine"] {
        symlink(RINGSUM, folder.join(name)).unwrap();
        let by_name = folder.shell(&format!("./{name} a"));
        assert_eq!(by_name.stdout(), folder.run(&["a"]).stdout(), "{name}");
    }
}

#[test]
fn help_and_version_are_there() {
    let folder = Scratch::new();
    for tool in TOOLS.into_iter().chain(["xxhsum"]) {
        symlink(RINGSUM, folder.join(tool)).unwrap();
        let help = folder.shell(&format!("./{tool} --help"));
        assert_eq!((help.code, &*help.stderr), (0, ""), "{tool}");
        assert!(help.stdout().contains("--check") && help.stdout().contains(tool), "{tool}");
        let version = folder.shell(&format!("./{tool} --version"));
        assert!(version.stdout().starts_with(&format!("{tool} (ringsum) ")), "{tool}");
    }
}
