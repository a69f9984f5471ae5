//! Output on a terminal: names without control characters, and progress; none of it in a pipe.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::inotify;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::support::{Scratch, Watchdog, content, hex, ringsum};

/// Runs the command with standard output and standard error on a terminal; returns its output.
fn on_terminal(scratch: &Scratch, args: &[&OsStr]) -> String {
    let mut command = ringsum();
    command.current_dir(scratch.path()).args(args);
    String::from_utf8_lossy(&bytes_on_terminal(command)).into_owned()
}

/// The same for any command, as bytes that may not be UTF-8.
pub(crate) fn bytes_on_terminal(mut command: Command) -> Vec<u8> {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    // Wide enough for the bar to show a name.
    let size = Winsize { ws_row: 50, ws_col: 400, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&controller, size).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let terminal = || {
        let path = OsStr::from_bytes(name.as_bytes());
        File::options().read(true).write(true).open(path).unwrap()
    };
    let (out, err) = (terminal(), terminal());
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    command.stdin(Stdio::null()).stdout(OwnedFd::from(out)).stderr(OwnedFd::from(err));
    let mut child = command.spawn().unwrap();
    let _watchdog = Watchdog::of(&child);
    // Our copies of the terminal are closed, so that reading ends when the child exits.
    drop(command);
    let mut text = Vec::new();
    // (At the end, Linux returns EIO.)
    let _ = File::from(controller).read_to_end(&mut text);
    child.wait().unwrap();
    // The terminal adds a carriage return to each newline.
    let mut lines: Vec<_> = text.split(|byte| *byte == b'\n').collect();
    let last = lines.pop().unwrap_or_default();
    let lines = lines.iter().flat_map(|line| [line.strip_suffix(b"\r").unwrap_or(line), b"\n"]);
    lines.chain([last]).collect::<Vec<_>>().concat()
}

#[test]
fn a_name_plays_no_tricks() {
    let scratch = Scratch::new();
    let name = OsStr::from_bytes(b"\x1b[2Jwiped\x07");
    scratch.write(name, "x");
    let hash = hex(b"x");
    assert_eq!(on_terminal(&scratch, &[name]), format!("{hash}  \\x1b[2Jwiped\\x07\n"));
    let missing = OsStr::from_bytes(b"\x1b]0;title\x07");
    let text = on_terminal(&scratch, &[missing]);
    assert_eq!(text, "ringsum: \\x1b]0;title\\x07: No such file or directory (os error 2)\n");
    // The same for names in a checksum file; a pipe gets the name unchanged.
    let list = [hash.as_bytes(), b"  ", name.as_bytes(), b"\n"].concat();
    scratch.write("list", &list);
    let text = on_terminal(&scratch, &["-c".as_ref(), "list".as_ref()]);
    assert_eq!(text, "\\x1b[2Jwiped\\x07: OK\n");
    let piped = scratch.run(&["-c", "list"]);
    assert_eq!(piped.stdout, [name.as_bytes(), b": OK\n"].concat());
}

#[test]
fn progress_is_for_terminals() {
    let scratch = Scratch::new();
    scratch.write("a", content(5 << 20));
    let line = format!("{}  a\n", hex(&content(5 << 20)));
    let args: [&OsStr; 2] = ["--progress=always".as_ref(), "a".as_ref()];
    let text = on_terminal(&scratch, &args);
    assert!(text.contains("of 5.00 MiB [") && text.contains("left"), "{text:?}");
    assert!(text.contains(&line), "{text:?}");
    // No progress for a short run, with =never, and in a pipe.
    assert_eq!(on_terminal(&scratch, &["a".as_ref()]), line);
    assert_eq!(on_terminal(&scratch, &["--progress=never".as_ref(), "a".as_ref()]), line);
    scratch.run(&["--progress=always", "a"]).expect(0, &line, "");
    scratch.run(&["--progress", "a"]).expect(0, &line, "");
}

/// How often these directories are opened while `work` runs.
fn opened(directories: &[PathBuf], work: impl FnOnce()) -> usize {
    let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
    let watcher = inotify::init(flags).unwrap();
    for directory in directories {
        let flags = inotify::WatchFlags::OPEN | inotify::WatchFlags::ONLYDIR;
        inotify::add_watch(&watcher, directory, flags).unwrap();
    }
    work();
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(watcher, &mut buffer);
    let mut count = 0;
    while let Ok(event) = events.next() {
        // (An event with a name is of something in the directory.)
        count += usize::from(event.file_name().is_none());
    }
    count
}

/// The files of a tree are counted as the walk finds them, without a second walk.
#[test]
fn a_tree_is_walked_once_for_its_progress() {
    let scratch = Scratch::new();
    let mut directories = vec![scratch.make_dir("t")];
    for i in 0..20 {
        directories.push(scratch.make_dir(format!("t/{i}")));
        scratch.write(format!("t/{i}/a"), i.to_string());
    }
    let args = ["-r", "t"];
    let once = opened(&directories, || drop(scratch.run(&args)));
    assert!(once >= directories.len(), "{once}: the kernel counts none");
    for progress in ["--progress=auto", "--progress=always", "--progress=never"] {
        let args = ["-r", "t", progress].map(OsStr::new);
        let times = opened(&directories, || {
            let text = on_terminal(&scratch, &args);
            assert!(text.contains(&hex(b"19")), "{text:?}");
        });
        assert_eq!(times, once, "{progress}");
    }
}

#[test]
fn progress_of_a_check_counts_files() {
    let scratch = Scratch::new();
    scratch.write("a", content(3 << 20));
    scratch.write("list", format!("{}  a\n", hex(&content(3 << 20))));
    let args = ["-c", "--progress=always", "list"].map(OsStr::new);
    let text = on_terminal(&scratch, &args);
    assert!(text.contains("of 1 files: ") && text.contains("a: OK\n"), "{text:?}");
}

#[test]
fn verdicts_and_errors_have_color() {
    let scratch = Scratch::new();
    scratch.write("a", "a");
    scratch.write("list", format!("{}  a\n{}  a\n", hex(b"a"), hex(b"b")));
    let plain = "a: OK\na: FAILED\n";
    let colored = "a: \x1b[1;32mOK\x1b[0m\na: \x1b[1;31mFAILED\x1b[0m\n";
    let warned = "WARNING: 1 computed checksum did NOT match\n";
    for (options, expected, program) in [
        ("", plain, "ringsum:"),
        ("--color=never", plain, "ringsum:"),
        ("--color=always", colored, "\x1b[1;31mringsum:\x1b[0m"),
        ("--color", colored, "\x1b[1;31mringsum:\x1b[0m"),
    ] {
        let script = format!("NO_COLOR= $R {options} -c list");
        scratch.shell(&script).expect(1, expected, &format!("{program} {warned}"));
    }
}
