//! Scratch directories, running the command, and reporting skipped tests.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Content that changes when blocks are swapped: the period is prime to every block size.
pub(crate) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

/// A directory on the disk that holds the build: the system's directory for temporary files may be
/// in memory.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringsum-{}-{number}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Makes a directory and its parents.
    pub(crate) fn make_dir(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// The command, with this directory as its working directory.
    pub(crate) fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = ringsum();
        command.current_dir(&self.0).args(args);
        command
    }

    /// The command as a user that permissions apply to. Prints a message and returns `None` if that
    /// is not possible.
    pub(crate) fn unprivileged(&self, args: &[&str]) -> Option<Command> {
        let mut command = self.command(args);
        if !rustix::process::geteuid().is_root() {
            return Some(command);
        }
        command.uid(65_534).gid(65_534);
        let mut probe = self.command(&["--version"]);
        if !probe.uid(65_534).gid(65_534).output().is_ok_and(|output| output.status.success()) {
            skip("permissions: run as root, and other users cannot reach the build");
            return None;
        }
        Some(command)
    }

    /// Runs the command in this directory.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.run_with(args, b"")
    }

    /// Runs the command in this directory, with this standard input.
    pub(crate) fn run_with(&self, args: &[impl AsRef<OsStr>], stdin: &[u8]) -> Output {
        run(&mut self.command(args), stdin)
    }

    /// Runs a shell command in this directory; `$R` is the command under test.
    pub(crate) fn shell(&self, script: &str) -> Output {
        run(shell().current_dir(&self.0).args(["-c", script]), b"")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) const RINGSUM: &str = env!("CARGO_BIN_EXE_ringsum");

/// A directory that does not exist: the settings of the user who runs the tests must not change
/// them.
pub(crate) const NO_SETTINGS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/no-settings");

/// The command.
pub(crate) fn ringsum() -> Command {
    named(RINGSUM)
}

/// A command that is, or runs, the command under test.
pub(crate) fn named(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("XDG_CONFIG_HOME", NO_SETTINGS);
    command
}

/// A shell in which `$R` is the command.
pub(crate) fn shell() -> Command {
    let mut shell = named("sh");
    shell.env("R", RINGSUM);
    shell
}

/// Starts a command with a resource limit. One of descriptors leaves out those that this process has
/// inherited: a test under `flock` or a shell with open files would start with more than it has
/// planned.
#[allow(unsafe_code)]
pub(crate) fn limit(command: &mut Command, what: libc::__rlimit_resource_t, most: u64) {
    // SAFETY: system calls only, on memory of the child's.
    unsafe {
        command.pre_exec(move || {
            if what == libc::RLIMIT_NOFILE {
                for fd in 3..1024 {
                    // (Fails for most, which are not open.)
                    libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
                }
            }
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            match libc::setrlimit(what, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
}

/// The exit status and the output of a command.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Output {
    pub(crate) fn stdout(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("UTF-8")
    }

    /// Compares exit status, standard output and standard error at once, so that a failure shows
    /// all three.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, stdout: &str, stderr: &str) {
        let found = (self.code, String::from_utf8_lossy(&self.stdout), &*self.stderr);
        assert_eq!(found, (code, stdout.into(), stderr));
    }

    /// The same for standard output that may not be UTF-8.
    #[track_caller]
    pub(crate) fn expect_bytes(&self, code: i32, stdout: &[u8], stderr: &str) {
        self.expect(code, &String::from_utf8_lossy(stdout), stderr);
        assert!(self.stdout == stdout, "other bytes that look the same");
    }
}

/// Kills a process that does not end, so that a test for hangs fails instead of hanging.
pub(crate) struct Watchdog {
    _ended: mpsc::Sender<()>,
}

/// Longer than any command takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

impl Watchdog {
    pub(crate) fn of(child: &Child) -> Watchdog {
        let child = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
        let (_ended, end) = mpsc::channel();
        thread::spawn(move || {
            if end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let _ = pidfd_send_signal(&child, Signal::KILL);
            }
        });
        Watchdog { _ended }
    }
}

pub(crate) fn run(command: &mut Command, stdin: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let _watchdog = Watchdog::of(&child);
    // (A command that does not read its input may exit before this write.)
    let _ = child.stdin.take().expect("piped").write_all(stdin);
    let output = child.wait_with_output().expect("the command ends");
    Output {
        code: output.status.code().unwrap_or(-1),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// The expected line of a file with this content.
pub(crate) fn line(content: &[u8], name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::new();
    for &byte in name {
        match byte {
            b'\\' => escaped.extend(b"\\\\"),
            b'\n' => escaped.extend(b"\\n"),
            b'\r' => escaped.extend(b"\\r"),
            other => escaped.push(other),
        }
    }
    let slash = if escaped == name { "" } else { "\\" };
    [slash.as_bytes(), hex(content).as_bytes(), b"  ", &escaped, b"\n"].concat()
}

/// The regular files below a directory, by their relative paths, in byte order.
pub(crate) fn files_below(root: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.symlink_metadata().unwrap().file_type();
            if kind.is_dir() {
                directories.push(path);
            } else if kind.is_file() {
                let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_owned();
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

/// The expected output of `-r` for a directory that is named `shown`.
pub(crate) fn lines_below(root: &Path, shown: &str) -> Vec<u8> {
    let name = |path: &[u8]| [shown.as_bytes(), b"/", path].concat();
    files_below(root).iter().flat_map(|(path, content)| line(content, &name(path))).collect()
}

/// Prints why something is not tested, on the real standard error, which the test harness does not
/// capture.
pub(crate) fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIP {why}");
}

/// The same for a missing feature of the kernel or the file system: with STRICT=1 the test fails.
pub(crate) fn skip_unless_strict(why: &str) {
    skip(why);
    assert!(std::env::var_os("STRICT").is_none_or(|value| value != "1"), "STRICT: {why}");
}

/// Copies the command. (By `cp`: a test of another thread that starts a process while the copy is open for
/// writing here would inherit that, and the copy could not be executed: "text file busy".)
pub(crate) fn copy_command(to: &Path) {
    assert!(Command::new("cp").args([Path::new(RINGSUM), to]).status().unwrap().success());
}

/// Whether a program to compare with is installed.
pub(crate) fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}
