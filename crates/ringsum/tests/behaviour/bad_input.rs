//! Bad input: one clear message, the other files hashed, the right exit status; never a wrong hash,
//! a panic or a hang.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Scratch, content, copy_command, hex, installed, named, ringsum, run, skip};

#[test]
fn one_bad_file_stops_no_other() {
    let scratch = Scratch::new();
    scratch.write("a", "aaa");
    fs::create_dir(scratch.join("folder")).unwrap();
    let line = format!("{}  a\n", hex(b"aaa"));
    scratch.run(&["missing", "a", "folder", "a"]).expect(
        1,
        &line.repeat(2),
        "ringsum: missing: No such file or directory (os error 2)\n\
         ringsum: folder: is a directory: use -r to hash the files in it\n",
    );
}

#[test]
fn no_permission() {
    let scratch = Scratch::new();
    let path = scratch.write("secret", "x");
    scratch.write("a", "aaa");
    fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
    let expected = format!("{}  a\n", hex(b"aaa"));
    let message = "ringsum: secret: Permission denied (os error 13)\n";
    if File::open(&path).is_err() {
        return scratch.run(&["secret", "a"]).expect(1, &expected, message);
    }
    // Root may read everything, so another user tries, on a copy that it can reach.
    if !installed("setpriv") {
        return skip("no permission: we are root, and setpriv is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let binary = folder.path().join("ringsum");
    copy_command(&binary);
    fs::write(folder.path().join("a"), "aaa").unwrap();
    fs::write(folder.path().join("secret"), "x").unwrap();
    fs::set_permissions(folder.path().join("secret"), Permissions::from_mode(0o000)).unwrap();
    let mut command = named("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    command.arg(&binary).args(["secret", "a"]).current_dir(folder.path());
    run(&mut command, b"").expect(1, &expected, message);
}

#[test]
fn standard_streams_that_are_closed() {
    let scratch = Scratch::new();
    scratch.write("a", "aaa");
    let line = format!("{}  a\n", hex(b"aaa"));
    let closed = "ringsum: -: standard input is closed\n";
    scratch.shell("$R <&-").expect(1, "", closed);
    scratch.shell("$R - a <&-").expect(1, &line, closed);
    scratch.shell("$R a <&-").expect(0, &line, "");
    scratch.shell("$R --keyed a <&-").expect(1, "", "ringsum: standard input is closed\n");
    scratch.shell("$R -c <&-").expect(1, "", closed);
    let folder = "ringsum: the key on standard input: Is a directory (os error 21)\n";
    scratch.shell("$R --keyed a < .").expect(1, "", folder);
    scratch.shell("$R a >&-").expect(1, "", "ringsum: standard output is closed\n");
    scratch.shell("$R -V >&-").expect(1, "", "ringsum: standard output is closed\n");
    scratch.shell("$R a 2>&-").expect(0, &line, "");
    scratch.shell("$R a missing 2>&-").expect(1, &line, "");
    scratch.shell("$R - a <&- 2>&-").expect(1, &line, "");
    // /dev/null is not a closed stream.
    scratch.shell("$R </dev/null").expect(0, &format!("{}  -\n", hex(b"")), "");
    scratch.shell("$R <>/dev/null a >/dev/null").expect(0, "", "");
}

#[test]
fn output_that_goes_nowhere() {
    let scratch = Scratch::new();
    scratch.write("a", "aaa");
    let full = "ringsum: standard output: No space left on device (os error 28)\n";
    scratch.shell("$R a > /dev/full").expect(1, "", full);
    scratch.shell("$R --help > /dev/full").expect(1, "", full);
    // A reader that closes the pipe early. (sh reports only the last status of a pipeline.)
    let many = "a ".repeat(200);
    let script = format!("{{ $R {many}; echo $? >&2; }} | true");
    scratch.shell(&script).expect(0, "", "0\n");
    // Failures until then count.
    let script = format!("{{ $R missing {many} 2>/dev/null; echo $? >&2; }} | true");
    scratch.shell(&script).expect(0, "", "1\n");
    scratch.write("list", format!("{}  a\n", hex(b"b")).repeat(20_000));
    let script = "{ $R -c list; echo $? >&2; } | head -n 1";
    scratch.shell(script).expect(0, "a: FAILED\n", "1\n");
}

#[test]
fn two_readers_of_standard_input() {
    let scratch = Scratch::new();
    let line = format!("{}  -\n", hex(b"once"));
    let message = "ringsum: -: standard input can be read only once\n";
    scratch.run_with(&["-", "-"], b"once").expect(1, &line, message);
}

#[test]
fn nonsense_on_the_command_line() {
    let scratch = Scratch::new();
    scratch.write("a", "aaa");
    let lines: [(&[&str], &str); 14] = [
        (&["--io", "block-size=0", "a"], "from 512 to 67108864"),
        (&["--io", "block-size=64TiB", "a"], "from 512 to 67108864"),
        (&["--io", "block-size=huge", "a"], "512 to 64MiB"),
        (&["--io", "queue-depth=0", "a"], "must be from 1 to 32768"),
        (&["--io", "queue-depth=32769", "a"], "must be from 1 to 32768"),
        (&["--io", "slots=-1", "a"], "slots=-1: the values are 1 to 32768"),
        (&["--io", "slots=1000", "--io", "block-size=64M", "a"], "at most 16 slots"),
        (&["--io", "workers=5000", "a"], "must be from 0 to 1024"),
        (&["--io", "engine=floppy", "a"], "io_uring|libaio|pool|pread|stream|mmap"),
        (&["--io", "engine=null", "a"], "io_uring|libaio|pool|pread|stream|mmap"),
        (&["--io", "page-cache=never", "a"], "direct|buffered|dontcache"),
        (&["--io", "engine=mmap", "--io", "page-cache=direct", "a"], "buffered only"),
        (&["--keyed", "--derive-key", "x", "a"], "cannot be used with"),
        (&["--length", "many", "a"], "invalid value 'many'"),
    ];
    for (line, part) in lines {
        let output = scratch.run(line);
        assert_eq!((output.code, output.stdout()), (2, ""), "{line:?}");
        let starts = output.stderr.starts_with("ringsum: ");
        assert!(starts && output.stderr.contains(part), "{line:?}: {}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{line:?}: {}", output.stderr);
    }
    assert_eq!(scratch.run(&["--keyed"]).code, 2);
    assert_eq!(scratch.run(&["--raw", "a", "a"]).code, 2);
}

#[test]
fn an_explicit_option_that_is_not_available_is_an_error() {
    let scratch = Scratch::new();
    scratch.write("a", content(100_000));
    let output = scratch.run(&["--io", "page-cache=direct", "--io", "block-size=1000", "a"]);
    assert_eq!((output.code, output.stdout()), (1, ""));
    assert!(output.stderr.contains("not a multiple of"), "{}", output.stderr);
    let output = scratch.run_with(&["--io", "engine=io_uring", "-"], b"x");
    assert_eq!((output.code, output.stdout()), (1, ""));
    assert!(output.stderr.contains("leave the engine out"), "{}", output.stderr);
    // A file of length 0 may be empty, and then any engine can read it.
    scratch.write("empty", "");
    let line = format!("{}  empty\n", hex(b""));
    scratch
        .run(&["--io", "engine=io_uring", "--io", "page-cache=direct", "empty"])
        .expect(0, &line, "");
}

#[test]
fn standard_input_that_is_not_ready_or_not_readable() {
    let scratch = Scratch::new();
    let path = scratch.write("a", content(700_000));
    let written = OpenOptions::new().append(true).open(path).unwrap();
    let mut command = ringsum();
    let output = command.stdin(written).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stderr, b"ringsum: -: standard input is not open for reading\n");
    // Non-blocking, and empty at first.
    for (options, sent, expected) in [
        (&["-"][..], "abc".to_owned(), format!("{}  -\n", hex(b"abc"))),
        (
            &["-c", "--allow-special", "-"],
            format!("{}  /dev/null\n", hex(b"")),
            "/dev/null: OK\n".to_owned(),
        ),
    ] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        rustix::fs::fcntl_setfl(&reader, rustix::fs::OFlags::NONBLOCK).unwrap();
        let child = ringsum()
            .args(options)
            .stdin(reader)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(50));
        writer.write_all(sent.as_bytes()).unwrap();
        drop(writer);
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{options:?}");
    }
}

#[test]
fn files_whose_length_means_nothing() {
    let scratch = Scratch::new();
    let expected = format!("{}  /proc/version\n", hex(&fs::read("/proc/version").unwrap()));
    scratch.run(&["/proc/version"]).expect(0, &expected, "");
    // Files of sysfs report 4096 bytes, whatever they contain.
    let sysfs = "/sys/kernel/mm/transparent_hugepage/enabled";
    if let Ok(text) = fs::read(sysfs) {
        scratch.run(&[sysfs]).expect(0, &format!("{}  {sysfs}\n", hex(&text)), "");
    }
    // Too long for one read.
    let output = scratch.run(&["/proc/kallsyms"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
}

/// Hashes a file again and again while `meddle` changes it. Each result is an error that reports a
/// change, or the hash of one of the allowed contents.
fn under(meddle: impl Fn(&File, u64) + Send + 'static, allowed: &[String], options: &[&str]) {
    let scratch = Scratch::new();
    let path = scratch.write("busy", content(8 << 20));
    scratch.write("calm", "calm");
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let end = Instant::now() + Duration::from_millis(1500);
    let writer = thread::spawn(move || {
        for round in 0.. {
            if Instant::now() > end {
                return;
            }
            meddle(&file, round);
        }
    });
    let calm = format!("{}  calm\n", hex(b"calm"));
    let mut errors = 0;
    while Instant::now() < end {
        let output = scratch.run(&[options, &["busy", "calm"]].concat());
        let stdout = output.stdout();
        let busy = stdout.strip_suffix(&calm).expect("the other file is still hashed");
        match busy {
            "" => {
                errors += 1;
                assert_eq!(output.code, 1);
                let line = &output.stderr;
                assert!(line.starts_with("ringsum: busy: changed while it was read"), "{line}");
                assert_eq!(line.lines().count(), 1, "{line}");
            }
            line => {
                assert!(allowed.iter().any(|hash| line.starts_with(hash)), "wrong hash: {line}")
            }
        }
    }
    writer.join().unwrap();
    assert!(errors > 0, "no run met the change");
}

#[test]
fn a_file_that_shrinks_and_grows() {
    let short = hex(&content(4 << 20));
    let mut zeros = content(4 << 20);
    zeros.resize(8 << 20, 0);
    let allowed = [hex(&content(8 << 20)), short, hex(&zeros)];
    for options in [
        &[][..],
        &["--io", "engine=mmap"],
        &["--io", "engine=io_uring", "--io", "page-cache=direct"],
    ] {
        let meddle = |file: &File, round| {
            thread::sleep(Duration::from_micros(200 + round % 7 * 300));
            file.set_len(if round % 2 == 0 { 4 << 20 } else { 8 << 20 }).unwrap();
        };
        under(meddle, &allowed, options);
    }
}

#[test]
fn a_writer_that_dies_ends_the_stream() {
    let scratch = Scratch::new();
    let mut child = ringsum()
        .current_dir(scratch.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for byte in b"dribble" {
        stdin.write_all(&[*byte]).unwrap();
        thread::sleep(Duration::from_millis(2));
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, format!("{}  -\n", hex(b"dribble")).as_bytes());
}
