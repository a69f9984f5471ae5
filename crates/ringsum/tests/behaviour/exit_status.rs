//! The tables of `docs/guide.md`: each row that needs no special setup.

use crate::support::{Scratch, content, hex};

#[test]
fn the_status_of_everything() {
    let scratch = Scratch::new();
    scratch.write("a", "aaa");
    scratch.write("big", content(100_000));
    scratch.make_dir("folder");
    scratch.write("folder/extra", "extra");
    let (good, bad) = (hex(b"aaa"), hex(b"bbb"));
    scratch.write("good", format!("{good}  a\n"));
    scratch.write("different", format!("{bad}  a\n"));
    scratch.write("missing", format!("{good}  a\n{bad}  gone\n"));
    scratch.write("malformed", format!("{good}  a\nnonsense\n"));
    scratch.write("nothing", "# nothing\n");
    let cases: [(i32, &str, &str); 24] = [
        (0, "a", ""),
        (0, "-r folder", ""),
        (0, "--help", ""),
        (1, "gone", "No such file"),
        (1, "a gone", "No such file"),
        (1, "folder", "is a directory"),
        (1, "-r gone", "1 file failed"),
        (
            1,
            "--io=engine=io_uring --io=page-cache=direct --io=block-size=1000 big",
            "cannot be used",
        ),
        (1, "--bypass-cache /proc/version", "cannot be bypassed"),
        (0, "-c good", ""),
        (1, "-c different", "1 computed checksum did NOT match"),
        (1, "-c missing", "1 listed file could not be read"),
        (0, "-c --ignore-missing missing", ""),
        (1, "-c malformed", "1 line is improperly formatted"),
        (0, "-c --lenient malformed", "1 line is improperly formatted"),
        (1, "-c nothing", "no file was verified"),
        (1, "-c gone", "No such file"),
        (1, "-c --report-unlisted folder good", "1 file is unlisted"),
        (0, "--list-bad-ranges a big", ""),
        (1, "--list-bad-ranges gone", "No such file"),
        (0, "--retry-changed 3 a", ""),
        (2, "--no-such-option", "--no-such-option"),
        (2, "--list-bad-ranges -c good", "cannot be used with"),
        (2, "--retry-changed many a", "invalid value"),
    ];
    for (code, line, said) in cases {
        let output = scratch.run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(output.code, code, "{line}: {}", output.stderr);
        assert!(output.stderr.contains(said), "{line}: {}", output.stderr);
        assert!(!said.is_empty() || output.stderr.is_empty(), "{line}: {}", output.stderr);
    }
    scratch.shell("$R a > /dev/full").expect(
        1,
        "",
        "ringsum: standard output: No space left on device (os error 28)\n",
    );
    scratch.shell("{ $R a; echo $? >&2; } | true").expect(0, "", "0\n");
}
