//! Selecting files of a tree: `--include`, `--exclude`, `--gitignore`.

use std::fs;

use crate::support::{Scratch, files_below, installed, line, skip};

const NAMES: [&str; 14] = [
    "t/.config",
    "t/.git/config",
    "t/Makefile",
    "t/a.c",
    "t/a.o",
    "t/build/out.o",
    "t/build/note.txt",
    "t/doc/a.c",
    "t/doc/deep/b.c",
    "t/doc/deep/build/c.c",
    "t/doc/x y.txt",
    "t/src/a.c",
    "t/src/a.o",
    "t/src/ABC.C",
];

fn tree() -> Scratch {
    let scratch = Scratch::new();
    for name in NAMES {
        scratch.make_dir(scratch.join(name).parent().unwrap());
        scratch.write(name, name);
    }
    scratch
}

/// Checks that a run with these options prints exactly these files.
#[track_caller]
fn expect_names(scratch: &Scratch, options: &[&str], mut names: Vec<&str>) {
    names.sort_unstable();
    let lines: Vec<_> = names.iter().map(|name| line(name.as_bytes(), name.as_bytes())).collect();
    let output = scratch.run(&[&["-r", "t"], options].concat());
    output.expect_bytes(0, &lines.concat(), "");
}

#[test]
fn globs_choose_files() {
    let scratch = tree();
    type Chosen = fn(&str) -> bool;
    let cases: [(&[&str], Chosen); 15] = [
        (&["--include=*.c"], |name| name.ends_with(".c")),
        (&["--include=*.c", "--include=*.o"], |name| {
            name.ends_with(['c', 'o']) && name.contains('.') && !name.contains("git/")
        }),
        (&["--include=*.[cC]"], |name| name.ends_with(".c") || name.ends_with(".C")),
        (&["--include=*.{c,txt}"], |name| name.ends_with(".c") || name.ends_with(".txt")),
        (&["--include=a.?"], |name| name.contains("/a.")),
        (&["--include=nothing"], |_| false),
        (&["--exclude=*"], |_| false),
        (&["--exclude=*.o"], |name| !name.ends_with(".o")),
        (&["--exclude=build"], |name| !name.contains("/build/")),
        (&["--exclude=build/"], |name| !name.contains("/build/")),
        (&["--exclude=/build"], |name| !name.starts_with("t/build/")),
        (&["--exclude=doc/deep"], |name| !name.contains("/deep/")),
        (&["--exclude=doc/*.c"], |name| name != "t/doc/a.c"),
        (&["--exclude=**/deep/**"], |name| !name.contains("/deep/")),
        (&["--exclude=.*"], |name| !name.contains("/.")),
    ];
    for (options, chosen) in cases {
        expect_names(&scratch, options, NAMES.into_iter().filter(|name| chosen(name)).collect());
    }
    // Exclusion wins over inclusion.
    let both = ["--include=*.c", "--exclude=doc"];
    expect_names(&scratch, &both, vec!["t/a.c", "t/src/a.c"]);
    expect_names(&scratch, &["--include=src/*.c", "--exclude=a.c"], vec![]);
    expect_names(&scratch, &["--include=x y.*"], vec!["t/doc/x y.txt"]);
}

#[test]
fn files_that_are_named_count_whatever_the_globs_say() {
    let scratch = tree();
    let output = scratch.run(&["-r", "--exclude=*.c", "t/a.c", "t/src"]);
    let names = ["t/a.c", "t/src/ABC.C", "t/src/a.o"];
    let expected = names.map(|name| line(name.as_bytes(), name.as_bytes()));
    output.expect_bytes(0, &expected.concat(), "");
}

/// A `.gitignore` at the top, and one in a subdirectory that overrides it.
fn ignoring() -> Scratch {
    let scratch = tree();
    scratch.write("t/.gitignore", "# comment\n*.o\nbuild/\n/a.c\nx\\ y.txt\n\n");
    scratch.write("t/src/.gitignore", "!a.o\r\nABC.*\n");
    scratch.write("t/doc/deep/.gitignore", "/b.c\n");
    scratch
}

#[test]
fn gitignore_files_choose() {
    let scratch = ignoring();
    let names: [&str; 9] = [
        "t/.config",
        "t/.git/config",
        "t/.gitignore",
        "t/Makefile",
        "t/doc/a.c",
        "t/doc/deep/.gitignore",
        "t/src/.gitignore",
        "t/src/a.c",
        "t/src/a.o",
    ];
    let expected: Vec<u8> = names
        .iter()
        .flat_map(|name| line(&fs::read(scratch.join(name)).unwrap(), name.as_bytes()))
        .collect();
    scratch.run(&["-r", "--gitignore", "t"]).expect_bytes(0, &expected, "");
    // Without --gitignore, they are ordinary files.
    let output = scratch.run(&["-r", "t"]);
    assert_eq!(output.stdout().lines().count(), files_below(&scratch.join("t")).len());
    // Rules from above the tree do not apply.
    let output = scratch.run(&["-r", "--gitignore", "t/src", "--exclude=.*"]);
    let src = ["t/src/a.c", "t/src/a.o"].map(|name| line(name.as_bytes(), name.as_bytes()));
    output.expect_bytes(0, &src.concat(), "");
}

#[test]
fn gitignore_means_what_git_means() {
    if !installed("git") {
        return skip("git is not installed");
    }
    let scratch = ignoring();
    fs::remove_dir_all(scratch.join("t/.git")).unwrap();
    let list = "cd t && git init -q . && git ls-files -z --others --exclude-standard";
    let listed = scratch.shell(list);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    let mut names: Vec<_> = listed.stdout().split_terminator('\0').collect();
    names.sort_unstable();
    let ours = scratch.run(&["-r", "--gitignore", "--exclude=/.git", "t"]);
    let ours: Vec<_> = ours.stdout().lines().map(|line| &line[64 + 4..]).collect();
    assert_eq!(ours, names);
}
