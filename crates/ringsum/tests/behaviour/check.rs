//! `--check`: accepted formats, messages, and exit status.

use crate::mounting::noise;
use crate::support::{Scratch, content, hex};

/// A directory with files a, b and c, and the hashes of a and b.
fn files() -> (Scratch, String, String) {
    let scratch = Scratch::new();
    scratch.write("a", "aaa");
    scratch.write("b", content(700_000));
    scratch.write("c", "ccc");
    (scratch, hex(b"aaa"), hex(&content(700_000)))
}

#[test]
fn what_is_accepted() {
    let (scratch, a, b) = files();
    let upper = a.to_uppercase();
    let lists = [
        format!("{a}  a\n{b}  b\n"),
        format!("{a}  a\n{b}  b"),
        format!("{a} *a\n{b} *b\n"),
        format!("{a}  a\r\n{b}  b\r\n"),
        format!("# comment\n\n{upper}  a\n   \n#\n{b}  b\n"),
        format!("BLAKE3 (a) = {a}\nBLAKE3 (b) = {b}\n"),
        format!("BLAKE3 (a) = {upper}\r\n{b} *b\r\n"),
        format!("\u{feff}{a}  a\n{b}  b\n"),
        format!("BLAKE3 (a) = {}\nBLAKE3 (b) = {}\n", &a[..32], &b[..40]),
        format!("{}  a\n{}  b\n", &a[..48], &b[..34]),
        format!("\\{a}  a\n\\BLAKE3 (b) = {b}\n").replace('\\', ""),
    ];
    for list in lists {
        scratch.run_with(&["--check"], list.as_bytes()).expect(0, "a: OK\nb: OK\n", "");
        scratch.write("list", &list);
        scratch.run(&["-c", "list"]).expect(0, "a: OK\nb: OK\n", "");
        scratch.run(&["-c", "--quiet", "list"]).expect(0, "", "");
        scratch.run(&["-c", "--status", "list"]).expect(0, "", "");
    }
    // As in b3sum, the compared output starts at --seek.
    scratch.shell("$R --seek 7 a b > sought; $R --seek 7 -c sought").expect(
        0,
        "a: OK\nb: OK\n",
        "",
    );
    assert_eq!(scratch.run(&["-c", "sought"]).code, 1);
    // A longer digest than the default.
    scratch.shell("$R -l 100 a b > long; $R -c long").expect(0, "a: OK\nb: OK\n", "");
}

#[test]
fn what_fails_and_how_it_is_counted() {
    let (scratch, a, b) = files();
    let gone = "No such file or directory (os error 2)";
    let list = format!("{b}  a\n{b}  b\n{a}  gone\n{a}  lost\n{a} x\nBLAKE3 (c) = {a}\n");
    scratch.write("list", &list);
    let stdout =
        format!("a: FAILED\nb: OK\ngone: FAILED ({gone})\nlost: FAILED ({gone})\nc: FAILED\n");
    let malformed = "ringsum: list: 5: improperly formatted checksum line: neither \
                     `HASH  NAME` nor `TAG (NAME) = HASH`\n";
    let missing = "ringsum: list: 3: gone is missing\nringsum: list: 4: lost is missing\n";
    let warnings = "ringsum: WARNING: 1 line is improperly formatted\n\
                    ringsum: WARNING: 2 listed files could not be read\n\
                    ringsum: WARNING: 2 computed checksums did NOT match\n";
    let all = format!("{missing}{malformed}{warnings}");
    scratch.run(&["-c", "list"]).expect(1, &stdout, &all);
    scratch.run(&["-c", "--strict", "list"]).expect(1, &stdout, &all);
    scratch.run(&["-c", "--lenient", "list"]).expect(1, &stdout, &format!("{missing}{warnings}"));
    scratch.run(&["-cw", "--lenient", "list"]).expect(1, &stdout, &all);
    let quiet = stdout.replace("b: OK\n", "");
    scratch.run(&["-c", "--quiet", "list"]).expect(1, &quiet, &all);
    let status = format!("ringsum: gone: {gone}\nringsum: lost: {gone}\n");
    scratch.run(&["-c", "--status", "list"]).expect(1, "", &status);
    // The other plural forms.
    let list = format!("{b}  a\n{a}  gone\n{a} x\nnonsense\n");
    scratch.write("list", list);
    let output = scratch.run(&["-c", "list"]);
    for part in [
        "2 lines are improperly formatted\n",
        "1 listed file could not be read\n",
        "1 computed checksum did NOT match\n",
    ] {
        assert!(output.stderr.contains(part), "{part:?} in {}", output.stderr);
    }
}

#[test]
fn malformed_lines_alone() {
    let (scratch, a, _) = files();
    scratch.write("list", format!("{a}  a\nSM3 (a) = {a}\n{}  a\n", &a[..30]));
    let output = scratch.run(&["-c", "list"]);
    assert_eq!((output.code, output.stdout()), (1, "a: OK\n"));
    assert!(
        output.stderr.contains("list: 2:") && output.stderr.contains("its algorithm is SM3"),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("list: 3:") && output.stderr.contains("30 hex"),
        "{}",
        output.stderr
    );
    let warning = "ringsum: WARNING: 2 lines are improperly formatted\n";
    scratch.run(&["-c", "--lenient", "list"]).expect(0, "a: OK\n", warning);
    // The last of two conflicting options wins.
    assert_eq!(scratch.run(&["-c", "--lenient", "--strict", "list"]).code, 1);
    assert_eq!(scratch.run(&["-c", "--strict", "--lenient", "list"]).code, 0);
}

/// A binary file that is given by mistake: its lines end at random newlines.
#[test]
fn a_binary_file_as_a_list_has_few_messages() {
    let scratch = Scratch::new();
    scratch.write("binary", noise(8 << 20));
    for (args, messages) in [
        (&["--check", "binary"][..], 13),
        (&["--check", "--lenient", "binary"], 2),
        (&["--check", "--status", "binary"], 1),
        (&["--check", "--unordered", "--json", "binary"], 13),
    ] {
        let output = scratch.run(args);
        assert_eq!((output.code, output.stdout()), (1, ""), "{args:?}: {}", output.stderr);
        let lines: Vec<_> = output.stderr.lines().collect();
        assert_eq!(lines.len(), messages, "{args:?}: {}", output.stderr);
        assert!(lines.iter().all(|line| line.len() < 300), "{args:?}: {}", output.stderr);
        let counted = |line: &&str| line.contains("more improperly formatted checksum lines;");
        assert_eq!(lines.iter().filter(|line| counted(line)).count(), messages / 13, "{args:?}");
        assert!(output.stderr.contains("no file was verified"), "{args:?}: {}", output.stderr);
    }
}

#[test]
fn checking_nothing_is_a_failure() {
    let (scratch, a, _) = files();
    let lists = ["".to_owned(), "# only a comment\n\n".to_owned(), format!("{a}  gone\n")];
    for list in lists {
        scratch.write("list", &list);
        let message = "ringsum: list: no file was verified\n";
        scratch.run(&["-c", "--ignore-missing", "list"]).expect(1, "", message);
        let silent = if list.contains("gone") { "" } else { message };
        scratch.run(&["-c", "--ignore-missing", "--status", "list"]).expect(1, "", silent);
    }
    scratch.write("list", "nonsense\n");
    let output = scratch.run(&["-c", "--lenient", "list"]);
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("no file was verified"), "{}", output.stderr);
}

#[test]
fn missing_files_can_be_ignored() {
    let (scratch, a, _) = files();
    scratch.write("list", format!("{a}  gone\n{a}  a\n"));
    scratch.run(&["-c", "--ignore-missing", "list"]).expect(0, "a: OK\n", "");
    // Missing, not unreadable.
    scratch.write("list", format!("{a}  .\n{a}  a\n"));
    let output = scratch.run(&["-c", "--ignore-missing", "list"]);
    assert_eq!(
        (output.code, output.stdout()),
        (1, ".: FAILED (Is a directory (os error 21))\na: OK\n")
    );
}

#[test]
fn an_unreadable_list_does_not_stop_the_next() {
    let (scratch, a, b) = files();
    scratch.write("one", format!("{a}  a\n"));
    scratch.write("two", format!("{b}  b\n"));
    scratch.run(&["-c", "one", "nowhere", ".", "two"]).expect(
        1,
        "a: OK\nb: OK\n",
        "ringsum: nowhere: No such file or directory (os error 2)\n\
         ringsum: .: Is a directory (os error 21)\n",
    );
}

#[test]
fn standard_input_has_one_reader() {
    let (scratch, a, _) = files();
    let list = format!("{a}  -\n{a}  a\n");
    let output = scratch.run_with(&["-c"], list.as_bytes());
    let why = "standard input can be read only once";
    assert_eq!((output.code, output.stdout()), (1, &*format!("-: FAILED ({why})\na: OK\n")));
    // But a list in a file may name it.
    scratch.write("list", format!("{a}  -\n"));
    scratch.run_with(&["-c", "list"], b"aaa").expect(0, "-: OK\n", "");
}

#[test]
fn a_line_without_end_is_malformed_and_the_next_is_read() {
    let (scratch, a, _) = files();
    let list = format!("{}\n{a}  a\n", "0".repeat(3 << 20));
    let output = scratch.run_with(&["-c"], list.as_bytes());
    assert_eq!((output.code, output.stdout()), (1, "a: OK\n"));
    assert!(
        output.stderr.contains("-: 1: ") && output.stderr.contains("longer than"),
        "{output:?}"
    );
}

#[test]
fn the_last_of_quiet_status_and_warn_counts() {
    let (scratch, a, _) = files();
    scratch.write("list", format!("{a}  a\n"));
    scratch.run(&["-c", "--status", "--warn", "list"]).expect(0, "a: OK\n", "");
    scratch.run(&["-c", "--quiet", "--status", "list"]).expect(0, "", "");
    scratch.run(&["-c", "--warn", "--quiet", "list"]).expect(0, "", "");
}

#[test]
fn options_of_check_need_check() {
    let scratch = Scratch::new();
    for option in ["--quiet", "--status", "--strict", "--lenient", "--warn", "--ignore-missing"] {
        let output = scratch.run(&[option, "a"]);
        assert_eq!(output.code, 2, "{option}");
        assert!(output.stderr.contains("--check"), "{option}: {}", output.stderr);
    }
    for option in ["--tag", "--raw", "--no-names", "--keyed", "--length=32", "--derive-key=x"] {
        assert_eq!(scratch.run(&["--check", option, "a"]).code, 2, "{option}");
    }
}

/// A list of other digests of the same length: a hint names the candidates.
#[test]
fn digests_that_all_differ_may_be_of_another_algorithm() {
    let folder = Scratch::new();
    folder.write("a", "hello\n");
    folder.write("b", "world\n");
    let list = folder.run(&["-a", "sha256", "a", "b"]).stdout().to_owned();
    folder.write("list", &list);
    let hint = "ringsum: list: no checksum without a tag is the BLAKE3 of its file; if they are SHA256, SHA3-256 \
                or BLAKE2b-256, use -a\n";
    let warning = "ringsum: WARNING: 2 computed checksums did NOT match\n";
    let failed = "a: FAILED\nb: FAILED\n";
    folder.run(&["--check", "list"]).expect(1, failed, &format!("{hint}{warning}"));
    folder.run(&["--check", "-a", "blake3", "list"]).expect(1, failed, warning);
    folder.run(&["--check", "-a", "sha256", "list"]).expect(0, "a: OK\nb: OK\n", "");
    // A list of one line, as is often published next to a download.
    folder.write("one", list.lines().next().unwrap());
    let warning_of_one = "ringsum: WARNING: 1 computed checksum did NOT match\n";
    let said = format!("{}{warning_of_one}", hint.replace("list:", "one:"));
    folder.run(&["--check", "one"]).expect(1, "a: FAILED\n", &said);
    // If one matches, the algorithm is right.
    let known = folder.run(&["a"]).stdout().to_owned();
    folder.write("list", known + &list);
    let warned = folder.run(&["--check", "list"]);
    warned.expect(1, &format!("a: OK\n{failed}"), warning);
    // A list's name that suggests another digest length is ignored.
    folder.write("md5sums", &list);
    folder.run(&["--check", "md5sums"]).expect(
        1,
        failed,
        &format!("{}{warning}", hint.replace("list:", "md5sums:")),
    );
    // No other algorithm has this length.
    let long = folder.run(&["--length", "100", "b", "a"]).stdout().to_owned();
    let (b, a) = (&long[..200], &long[204..404]);
    folder.write("long", format!("{b}  a\n{a}  b\n"));
    folder.run(&["--check", "long"]).expect(1, failed, warning);
    // The name of the list tells the algorithm.
    folder.write("SHA256SUMS", &list);
    folder.run(&["--check", "SHA256SUMS"]).expect(0, "a: OK\nb: OK\n", "");
}
