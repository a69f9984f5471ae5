//! Runs that end early: Ctrl-C, a reader that closes the pipe, and an output that cannot be
//! written.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Scratch, Watchdog, hex, line, lines_below};

/// A running command.
struct Running {
    child: Child,
    _watchdog: Watchdog,
}

impl Running {
    fn start(scratch: &Scratch, args: &[&str]) -> Running {
        let mut command = scratch.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        Running { _watchdog: Watchdog::of(&child), child }
    }

    fn stdin(&mut self) -> &mut ChildStdin {
        self.child.stdin.as_mut().unwrap()
    }

    fn stdout(&mut self) -> &mut ChildStdout {
        self.child.stdout.as_mut().unwrap()
    }

    fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Waits for the end; returns the signal that ended it and the output that was not read yet.
    /// Standard input stays open until then.
    fn end(mut self) -> (Option<i32>, String) {
        let mut printed = String::new();
        self.stdout().read_to_string(&mut printed).unwrap();
        (self.child.wait().unwrap().signal(), printed)
    }
}

/// Makes FIFOs with these names.
pub(crate) fn make_fifos(scratch: &Scratch, names: &[&str]) {
    for name in names {
        mknodat(CWD, scratch.join(name), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    }
}

/// Opens a FIFO once the command reads it. (A blocking open would wait for ever if it never does.)
pub(crate) fn open_to_write(scratch: &Scratch, name: &str, reader: &mut Child) -> File {
    loop {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::open(scratch.join(name), flags, Mode::empty()) {
            Ok(fd) => return File::from(fd),
            Err(error) => assert_eq!(error, Errno::NXIO, "{name}"),
        }
        assert!(reader.try_wait().unwrap().is_none(), "it ended without reading {name}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn small_tree() -> Scratch {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    for i in 0..20 {
        scratch.write(format!("t/{i}"), i.to_string());
    }
    scratch
}

/// Replaces `t` by the names of its files, since `-r` skips FIFOs that are named beside a tree.
fn by_name<'a>(args: &[&'a str]) -> Vec<&'a str> {
    const FILES: [&str; 20] = [
        "t/0", "t/1", "t/2", "t/3", "t/4", "t/5", "t/6", "t/7", "t/8", "t/9", "t/10", "t/11",
        "t/12", "t/13", "t/14", "t/15", "t/16", "t/17", "t/18", "t/19",
    ];
    args.iter().flat_map(|arg| if *arg == "t" { FILES.to_vec() } else { vec![*arg] }).collect()
}

#[test]
fn what_was_finished_is_printed_when_it_is_interrupted() {
    let scratch = small_tree();
    make_fifos(&scratch, &["one", "two", "three"]);
    for args in [
        &["t", "one", "two", "three", "t"][..],
        &["--unordered", "one", "t", "two", "three"],
        &["-j1", "one", "two", "three", "t"],
        &["--index=index", "one", "t", "two", "three"],
    ] {
        let mut running = Running::start(&scratch, &by_name(args));
        write!(open_to_write(&scratch, "one", &mut running.child), "first").unwrap();
        // FIFOs are read one after another: once the second is opened, the first is finished.
        let mut two = open_to_write(&scratch, "two", &mut running.child);
        two.write_all(b"not all of").unwrap();
        running.interrupt();
        let (signal, printed) = running.end();
        assert_eq!(signal, Some(libc::SIGINT), "{args:?}: {printed}");
        let first = format!("{}  one\n", hex(b"first"));
        assert!(printed.contains(&first), "{args:?}: {printed}");
        // Of the other files, those that were finished, and nothing else.
        let tree = String::from_utf8(lines_below(&scratch.join("t"), "t")).unwrap();
        let right = |line: &str| tree.contains(line) || first.contains(line);
        assert!(printed.lines().all(right) && printed.ends_with('\n'), "{args:?}: {printed}");
        // The open writer did not keep it from ending.
        drop(two);
    }
}

#[test]
fn a_run_that_waits_for_a_writer_is_interrupted() {
    let scratch = small_tree();
    make_fifos(&scratch, &["one", "two"]);
    let mut running = Running::start(&scratch, &by_name(&["one", "two", "t"]));
    write!(open_to_write(&scratch, "one", &mut running.child), "first").unwrap();
    // No writer opens the other FIFO.
    running.interrupt();
    let (signal, _) = running.end();
    assert_eq!(signal, Some(libc::SIGINT));
}

#[test]
fn a_run_that_waits_for_names_is_interrupted() {
    let scratch = small_tree();
    let mut running = Running::start(&scratch, &["--files-from=-", "-j1"]);
    // Lines are buffered for a moment only: more names are sent until the first lines come.
    let (sender, lines) = std::sync::mpsc::channel();
    let mut stdout = running.child.stdout.take().unwrap();
    let reading = std::thread::spawn(move || {
        let mut printed = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = stdout.read(&mut buffer) {
            printed.extend_from_slice(&buffer[..n]);
            let _ = sender.send(());
        }
        printed
    });
    while lines.recv_timeout(std::time::Duration::from_millis(20)).is_err() {
        running.stdin().write_all("t/3\n".repeat(100).as_bytes()).unwrap();
    }
    running.interrupt();
    let signal = running.child.wait().unwrap().signal();
    let printed = reading.join().unwrap();
    assert_eq!(signal, Some(libc::SIGINT));
    let line = line(b"3", b"t/3");
    let whole = printed.chunks(line.len()).all(|chunk| chunk == line);
    assert!(whole && !printed.is_empty(), "{}", String::from_utf8_lossy(&printed));
}

/// Waits until the process has installed its handler for SIGINT.
fn wait_for_handler(running: &mut Running) {
    let status = format!("/proc/{}/status", running.child.id());
    let takes = || {
        let status = std::fs::read_to_string(&status).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (Signal::INT.as_raw() - 1)) != 0
    };
    while !takes() {
        assert!(running.child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_slow_run_is_interrupted() {
    let scratch = small_tree();
    scratch.write("large", vec![7; 8 << 20]);
    scratch.write("list", format!("{}  t/7\n{}  large\n", hex(b"7"), hex(b"other")));
    for args in [
        &["-r", "--limit-rate=64K", "t", "large"][..],
        &["-r", "--limit-rate=64K", "--unordered", "t", "large"],
        &["-r", "--limit-rate=64K", "--tree-digest", "."],
        &["--check", "--limit-rate=64K", "list"],
        &["--check", "--limit-rate=64K", "--io=engine=pool", "list"],
        &["-r", "--limit-rate=64K", "--io=workers=1", "large"],
    ] {
        let mut running = Running::start(&scratch, args);
        wait_for_handler(&mut running);
        running.interrupt();
        let (signal, printed) = running.end();
        assert_eq!(signal, Some(libc::SIGINT), "{args:?}: {printed}");
        assert!(!printed.contains("large"), "{args:?}: {printed}");
        assert!(printed.is_empty() || printed.ends_with('\n'), "{args:?}: {printed}");
    }
}

/// A tree with 8,000 files, whose lines, and whose verdicts, do not fit into a pipe.
fn large_tree() -> Scratch {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    (0..8000).for_each(|i| drop(scratch.write(format!("t/{i}"), "")));
    scratch
}

#[test]
fn a_run_whose_output_nobody_reads_is_interrupted() {
    let scratch = large_tree();
    scratch.shell("$R -r t > list").expect(0, "", "");
    for args in [&["-r", "t"][..], &["-r", "-j1", "t"], &["-r", "--json", "t"], &["-c", "list"]] {
        let mut running = Running::start(&scratch, args);
        // A pipe of one page, so that it is full at once and each writer is blocked in it. (The
        // least size is a page.)
        rustix::pipe::fcntl_setpipe_size(running.stdout(), 4096).unwrap();
        while rustix::io::ioctl_fionread(running.stdout()).unwrap() < 3072 {
            assert!(running.child.try_wait().unwrap().is_none(), "{args:?}: it ended");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        running.interrupt();
        assert_eq!(running.child.wait().unwrap().signal(), Some(libc::SIGINT), "{args:?}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let scratch = large_tree();
    for options in ["", "-j1", "--unordered", "--json", "--index=index"] {
        let script = format!("{{ $R -r {options} t; echo $? >&2; }} | head -n 1 | wc -l");
        scratch.shell(&script).expect(0, "1\n", "0\n");
    }
}

/// The lines that were not printed may have been failures.
#[test]
fn a_check_whose_output_is_cut_short_has_not_succeeded() {
    let scratch = large_tree();
    // More than fits into a pipe.
    let list = "$R -r t > list; for i in $(seq 20); do cat list; done > long";
    for options in ["", "--json"] {
        let check = format!("{{ $R --check {options} long; echo $? >&2; }} | head -n 1 | wc -l");
        scratch.shell(&format!("{list}; {check}")).expect(0, "1\n", "1\n");
    }
    // All of it was printed.
    scratch.shell("head -n 9 list > short; $R -c short | head -n 9 | wc -l").expect(0, "9\n", "");
}

#[test]
fn an_output_that_takes_no_more_is_a_failure() {
    let scratch = large_tree();
    scratch.make_dir("few");
    scratch.write("few/a", "a");
    scratch.write("list", format!("{}  few/a\n", hex(b"a")));
    let full = "ringsum: standard output: No space left on device (os error 28)\n";
    for args in ["-r t", "-r few", "-r --tree-digest t", "-r --json few", "-rj1 --unordered t"] {
        scratch.shell(&format!("$R {args} > /dev/full")).expect(1, "", full);
    }
    scratch.shell("$R --check list > /dev/full").expect(1, "", full);
    scratch.shell("$R -r few --index=index > /dev/full").expect(1, "", full);
    let closed = "ringsum: standard output is closed\n";
    scratch.shell("$R -r few >&-").expect(1, "", closed);
}
