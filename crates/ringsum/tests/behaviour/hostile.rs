//! Threats from other users: a tree that is changed during the walk, and checksum files from
//! strangers. Files turn into links, and names lead to devices and FIFOs.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, inotify, makedev, mknodat, renameat_with};

use crate::seccomp::refuse;
use crate::stopping::make_fifos;
use crate::support::{Output, Scratch, Watchdog, hex, line, run, skip, skip_unless_strict};

const SECRET: &[u8] = b"what is outside of the tree";

/// Exchanges two names atomically.
fn exchange(a: &Path, b: &Path) -> rustix::io::Result<()> {
    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE)
}

/// A tree `t` with `a`, `b` and `c/x`; beside it `outside` with the same names and a secret in each
/// file.
fn two_trees() -> Scratch {
    let scratch = Scratch::new();
    for (root, content) in [("t", &b"inside"[..]), ("outside", SECRET)] {
        scratch.make_dir(format!("{root}/c"));
        for name in ["a", "b", "c/x"] {
            scratch.write(format!("{root}/{name}"), content);
        }
    }
    scratch
}

/// A lease on a file: a process that opens the file blocks until this is dropped, or the kernel
/// breaks the lease (45 s).
struct Lease(File);

impl Lease {
    fn on(path: &Path) -> std::io::Result<Lease> {
        let file = File::options().read(true).write(true).open(path)?;
        // SAFETY: to ignore a signal, which would end this process, and to take a lease.
        let taken = unsafe {
            libc::signal(libc::SIGIO, libc::SIG_IGN);
            libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
        };
        if taken == 0 { Ok(Lease(file)) } else { Err(std::io::Error::last_os_error()) }
    }

    /// Whether a process is opening the file.
    fn is_wanted(&self) -> bool {
        // SAFETY: only a question.
        let held = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETLEASE) };
        held != libc::F_WRLCK
    }
}

/// Runs the command on the tree, and exchanges entries that it has listed when it is about to open
/// them.
fn swapped_meanwhile(args: &[&str]) -> Option<Output> {
    let scratch = two_trees();
    let lease = match Lease::on(&scratch.join("t/a")) {
        Ok(lease) => lease,
        Err(error) => {
            skip(&format!("no lease can be taken: {error}"));
            return None;
        }
    };
    let mut command = scratch.command(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _watchdog = Watchdog::of(&child);
    while !lease.is_wanted() {
        assert!(child.try_wait().unwrap().is_none(), "it ended without opening t/a");
        thread::sleep(Duration::from_millis(1));
    }
    fs::remove_file(scratch.join("t/b")).unwrap();
    symlink("../outside/b", scratch.join("t/b")).unwrap();
    fs::rename(scratch.join("t/c"), scratch.join("moved")).unwrap();
    symlink("../outside/c", scratch.join("t/c")).unwrap();
    drop(lease);
    let output = child.wait_with_output().unwrap();
    Some(Output {
        code: output.status.code().unwrap_or(-1),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

#[test]
fn a_link_in_the_place_of_a_file_is_named_and_not_followed() {
    for args in [
        &["-r", "t"][..],
        &["-r", "--follow", "t"],
        &["-r", "--io=workers=1", "t"],
        &["-r", "-j1", "--io=engine=pool", "t"],
        &["-r", "--index=index", "t"],
    ] {
        let Some(output) = swapped_meanwhile(args) else { return };
        // The directory has been open since it was listed, so its old entries are found.
        let expected: Vec<_> =
            ["t/a", "t/c/x"].iter().flat_map(|name| line(b"inside", name.as_bytes())).collect();
        let said = "ringsum: t/b: replaced: it was listed as a regular file and is a symbolic \
                    link now\n\
                    ringsum: 1 file failed, 1 because of changes while reading\n";
        output.expect_bytes(1, &expected, said);
    }
}

/// For two seconds, directories and files are exchanged for links and back, as fast as possible.
#[test]
fn no_race_leads_out_of_the_tree() {
    let scratch = two_trees();
    for (link, target) in [("link-b", "../outside/b"), ("link-c", "../outside/c")] {
        symlink(target, scratch.join("t").join(link)).unwrap();
    }
    // Several names for each, so that an exchange is always under way.
    for i in 0..20 {
        scratch.make_dir(format!("t/c/{i}"));
        scratch.make_dir(format!("outside/c/{i}"));
        scratch.write(format!("t/c/{i}/x"), "inside");
        scratch.write(format!("outside/c/{i}/x"), SECRET);
    }
    let at = |name: &str| scratch.join("t").join(name);
    if let Err(error) = exchange(&at("b"), &at("link-b")) {
        return skip_unless_strict(&format!("no RENAME_EXCHANGE here: {error}"));
    }
    let stop = AtomicBool::new(false);
    let secret = hex(SECRET);
    let (mut lines, mut replaced) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                exchange(&at("b"), &at("link-b")).unwrap();
                exchange(&at("c"), &at("link-c")).unwrap();
            }
        });
        let until = Instant::now() + Duration::from_secs(2);
        let ways = [&["-r", "t"][..], &["-r", "--io=workers=1", "t"], &["-r", "-j2", "t"]];
        for way in ways.iter().cycle() {
            let output = scratch.run(way);
            let is_told = output.code == 0 || !output.stderr.is_empty();
            if output.stdout().contains(&secret) || !is_told {
                stop.store(true, Ordering::Relaxed);
                panic!("{way:?}: {output:?}");
            }
            lines += output.stdout().lines().count();
            replaced += output.stderr.matches(": replaced: ").count();
            if Instant::now() > until {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(lines > 0);
    // How often it happens depends on the machine; the number is for developers.
    println!("{lines} lines, {replaced} times replaced");
}

/// A tree so deep that its directories are closed and reopened, several names at a time.
#[test]
fn directories_are_opened_again_where_openat2_is_refused() {
    let scratch = Scratch::new();
    let mut expected = Vec::new();
    let mut name = "t".to_owned();
    for _ in 0..80 {
        name += "/d";
        scratch.make_dir(&name);
    }
    while name.len() > 1 {
        scratch.write(format!("{name}/e"), &name);
        expected.extend(line(name.as_bytes(), format!("{name}/e").as_bytes()));
        name.truncate(name.len() - 2);
    }
    let run_refused = |errno| {
        let mut command = crate::support::shell();
        command.current_dir(scratch.path());
        command.args(["-c", "ulimit -n 48; exec $R -r -j2 t"]);
        refuse(&mut command, &[libc::SYS_openat2], errno);
        run(&mut command, b"")
    };
    // Another error is reported, which shows that the call is made.
    assert_eq!(run_refused(libc::EACCES).code, 1);
    for errno in [libc::ENOSYS, libc::EPERM] {
        run_refused(errno).expect_bytes(0, &expected, "");
    }
}

/// Returns how often these paths are opened while `work` runs.
fn opened(paths: &[&Path], work: impl FnOnce()) -> usize {
    let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
    let watcher = inotify::init(flags).unwrap();
    for path in paths {
        inotify::add_watch(&watcher, *path, inotify::WatchFlags::OPEN).unwrap();
    }
    work();
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(watcher, &mut buffer);
    std::iter::from_fn(|| events.next().ok().map(drop)).count()
}

/// Special files that a list names are not opened at all.
#[test]
fn a_check_file_opens_no_device_fifo_or_socket() {
    let scratch = Scratch::new();
    make_fifos(&scratch, &["fifo"]);
    let _socket = UnixListener::bind(scratch.join("socket")).unwrap();
    symlink("fifo", scratch.join("link")).unwrap();
    let hash = hex(b"");
    let mut kinds = vec![("fifo", "a FIFO"), ("socket", "a socket"), ("link", "a FIFO")];
    let mode = Mode::RUSR | Mode::WUSR;
    // The same device as /dev/null, and an unused loop device.
    for (name, what, kind, number) in [
        ("char", "a character device", FileType::CharacterDevice, makedev(1, 3)),
        ("block", "a block device", FileType::BlockDevice, makedev(7, 200)),
    ] {
        match mknodat(CWD, scratch.join(name), kind, mode, number) {
            Ok(()) => kinds.push((name, what)),
            Err(error) => skip(&format!("device nodes: {error}")),
        }
    }
    let list: String = kinds.iter().map(|(name, _)| format!("{hash}  {name}\n")).collect();
    scratch.write("list", &list);
    let expected: String = kinds
        .iter()
        .map(|(name, what)| format!("{name}: FAILED (it is {what}; --allow-special reads it)\n"))
        .collect();
    let paths: Vec<_> = kinds.iter().map(|(name, _)| scratch.join(name)).collect();
    let paths: Vec<_> = paths.iter().map(|path| &**path).collect();
    for way in [&[][..], &["--io=workers=1"], &["--io=engine=pool"]] {
        let said = format!("ringsum: WARNING: {} listed files could not be read\n", kinds.len());
        let times = opened(&paths, || {
            scratch.run(&[&["--check", "list"], way].concat()).expect(1, &expected, &said);
        });
        assert_eq!(times, 0, "{way:?}");
    }
    // The watch does see an open.
    assert_eq!(
        opened(&paths[..1], || drop(File::options().read(true).write(true).open(paths[0]))),
        1
    );
    let output = scratch.run(&["--check", "--json", "list"]);
    assert!(output.stdout().contains("it is a FIFO; --allow-special reads it"), "{output:?}");
}

#[test]
fn what_is_no_file_is_read_if_that_was_asked_for() {
    let scratch = Scratch::new();
    make_fifos(&scratch, &["fifo"]);
    scratch.write("list", format!("{}  fifo\n", hex(b"x")));
    let hashed = format!("{}  fifo\n", hex(b"x"));
    let written = |args: &str| scratch.shell(&format!("(printf x > fifo) & $R {args}"));
    written("--check --allow-special list").expect(0, "fifo: OK\n", "");
    scratch.write("names", "fifo\n");
    written("--files-from names --allow-special").expect(0, &hashed, "");
    written("-r fifo --allow-special").expect(0, &hashed, "");
    // Names on the command line are explicit.
    scratch.write("none", "");
    written("--files-from none fifo").expect(0, &hashed, "");
    let skipped = "ringsum: fifo: skipped: it is a FIFO (--allow-special reads it)\n";
    scratch.run(&["--files-from", "names"]).expect(0, "", skipped);
    scratch.run(&["-r", "fifo"]).expect(0, "", skipped);
}

/// A file that is exchanged for a FIFO after its `stat` does not hang the check.
#[test]
fn no_race_hangs_a_check() {
    let scratch = Scratch::new();
    make_fifos(&scratch, &["fifo"]);
    scratch.write("file", "x");
    scratch.write("list", format!("{}  file\n", hex(b"x")));
    let (file, fifo) = (scratch.join("file"), scratch.join("fifo"));
    if let Err(error) = exchange(&file, &fifo) {
        return skip_unless_strict(&format!("no RENAME_EXCHANGE here: {error}"));
    }
    let stop = AtomicBool::new(false);
    let mut told = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                exchange(&file, &fifo).unwrap();
            }
        });
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            for way in ["--io=workers=1", "--quiet", "--retry-changed=1"] {
                // (If it hangs, the watchdog kills it, and there is no exit status.)
                let output = scratch.run(&["--check", "--warn", way, "list"]);
                told.push(output);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    for output in told {
        assert!([0, 1].contains(&output.code), "{output:?}");
    }
}
