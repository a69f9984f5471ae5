//! Files that change while they are read: the message differs from that for damage, and
//! `--retry-changed` reads them again.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Scratch, Watchdog, content, hex};

const LEN: usize = 2 << 20;

/// A run that takes a second for the first 2 MiB, so that the file can be changed meanwhile;
/// standard output and standard error are pipes.
fn start(scratch: &Scratch, args: &[&str]) -> (Child, Watchdog) {
    let mut command = scratch.command(args);
    // Other files are smaller and not in the page cache, so they must be read.
    command.args(["--limit-rate=2MiB", "--io=block-size=64KiB"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    let watchdog = Watchdog::of(&child);
    (child, watchdog)
}

/// Waits until a process has opened a file.
fn wait_until_open(child: &Child, path: &PathBuf) {
    let end = Instant::now() + Duration::from_secs(60);
    let fds = format!("/proc/{}/fd", child.id());
    while Instant::now() < end {
        let links = fs::read_dir(&fds).into_iter().flatten().flatten();
        if links.map(|entry| fs::read_link(entry.path())).any(|link| link.is_ok_and(|l| l == *path))
        {
            // Its first bytes are being read.
            thread::sleep(Duration::from_millis(100));
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("{path:?} is not opened");
}

type Meddle = fn(&Scratch);

fn writer(scratch: &Scratch) -> File {
    OpenOptions::new().write(true).open(scratch.join("busy")).unwrap()
}

const CHANGES: [(&str, Meddle, &str); 5] = [
    ("shrank", |s| writer(s).set_len(1 << 20).unwrap(), "it shrank from 2097152 to 1048576 bytes"),
    ("grew", |s| writer(s).set_len(3 << 20).unwrap(), "it grew from 2097152 to 3145728 bytes"),
    ("rewritten", |s| writer(s).write_all_at(b"!", 5).unwrap(), "its modification time changed"),
    (
        "replaced",
        |s| {
            s.write("new", "new");
            fs::rename(s.join("new"), s.join("busy")).unwrap();
        },
        "it was replaced: its path leads to another file now",
    ),
    (
        "removed",
        |s| fs::remove_file(s.join("busy")).unwrap(),
        "it was removed: its path leads to nothing now",
    ),
];

/// On its own, with other files, in a tree, and in a list.
const FORMS: [&[&str]; 4] = [
    &["busy"],
    &[
        "busy", "calm", "calm", "calm", "calm", "calm", "calm", "calm", "calm", "calm", "calm",
        "calm", "calm", "calm", "calm", "calm",
    ],
    &["-r", "busy", "calm"],
    &["--check", "list"],
];

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("busy", content(LEN));
    scratch.write("calm", "calm");
    let list = format!("{}  busy\n{}  calm\n", hex(&content(LEN)), hex(b"calm"));
    scratch.write("list", list);
    scratch
}

#[test]
fn how_a_file_changed_is_said_in_every_form() {
    thread::scope(|scope| {
        for form in FORMS {
            scope.spawn(move || {
                for (name, meddle, text) in CHANGES {
                    let scratch = scratch();
                    let args = [form, &["--json"]].concat();
                    let (child, _watchdog) = start(&scratch, &args);
                    wait_until_open(&child, &scratch.join("busy"));
                    meddle(&scratch);
                    let output = child.wait_with_output().unwrap();
                    let stdout = String::from_utf8(output.stdout).unwrap();
                    let first: serde_json::Value =
                        serde_json::from_str(stdout.lines().next().unwrap()).unwrap();
                    let case = format!("{form:?} {name}: {stdout}");
                    assert_eq!(output.status.code(), Some(1), "{case}");
                    assert_eq!(first["status"], "changed", "{case}");
                    assert_eq!(first["change"], name, "{case}");
                    assert_eq!(first.get("hash"), None, "{case}");
                    let error = first["error"].as_str().unwrap();
                    assert!(error.contains(text), "{case}");
                }
            });
        }
    });
}

#[test]
fn changes_are_counted_apart_from_damage() {
    let change = "changed while it was read (it grew from 2097152 to 3145728 bytes); try again when no \
                  process writes to it";
    let calm = format!("{}  calm\n", hex(b"calm"));
    let cases: [(&[&str], String, String); 3] = [
        (&["busy", "calm"], calm.clone(), format!("ringsum: busy: {change}\n")),
        (
            &["-r", "busy", "calm"],
            calm,
            format!(
                "ringsum: busy: {change}\n\
                 ringsum: 1 file failed, 1 because of changes while reading\n"
            ),
        ),
        (
            &["--check", "list"],
            format!("busy: FAILED ({change})\ncalm: OK\n"),
            "ringsum: WARNING: 1 listed file changed while it was read\n".to_owned(),
        ),
    ];
    for (args, stdout, stderr) in cases {
        let scratch = scratch();
        let (child, _watchdog) = start(&scratch, args);
        wait_until_open(&child, &scratch.join("busy"));
        CHANGES[1].1(&scratch);
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), stdout, "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), stderr, "{args:?}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_file_that_changed_is_read_again() {
    thread::scope(|scope| {
        for form in FORMS {
            scope.spawn(move || {
                let scratch = scratch();
                let args = [form, &["--retry-changed=3"]].concat();
                let (child, _watchdog) = start(&scratch, &args);
                wait_until_open(&child, &scratch.join("busy"));
                // With its old content at the end, as in the list.
                scratch.write("new", content(LEN));
                fs::rename(scratch.join("new"), scratch.join("busy")).unwrap();
                let output = child.wait_with_output().unwrap();
                let (stdout, stderr) = (output.stdout, String::from_utf8(output.stderr).unwrap());
                let stdout = String::from_utf8(stdout).unwrap();
                assert_eq!((output.status.code(), &*stderr), (Some(0), ""), "{form:?}: {stdout}");
                let first = match form[0] {
                    "--check" => "busy: OK\n".to_owned(),
                    _ => format!("{}  busy\n", hex(&content(LEN))),
                };
                assert!(stdout.starts_with(&first), "{form:?}: {stdout}");
            });
        }
    });
}

#[test]
fn a_file_that_never_rests_has_changed() {
    for form in FORMS {
        let scratch = scratch();
        let args = [form, &["--retry-changed=2", "--json"]].concat();
        let (child, _watchdog) = start(&scratch, &args);
        wait_until_open(&child, &scratch.join("busy"));
        let done = std::sync::atomic::AtomicBool::new(false);
        let output = thread::scope(|scope| {
            scope.spawn(|| {
                let file = writer(&scratch);
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    file.write_all_at(b"!", 7).unwrap();
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let start = Instant::now();
            let output = child.wait_with_output().unwrap();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            // Two retries, after 250 and 500 ms.
            assert!(start.elapsed() > Duration::from_millis(750));
            output
        });
        let stdout = String::from_utf8(output.stdout).unwrap();
        let first: serde_json::Value =
            serde_json::from_str(stdout.lines().next().unwrap()).unwrap();
        assert_eq!(output.status.code(), Some(1), "{form:?}: {stdout}");
        assert_eq!((&first["status"], &first["change"]), (&"changed".into(), &"rewritten".into()));
    }
}
