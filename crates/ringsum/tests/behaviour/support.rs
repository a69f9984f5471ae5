//! Scratch files, running the command, and saying what is not tested.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// Content that changes when blocks are swapped: the period is prime to every block size.
pub(crate) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

/// A folder on the disk that the build is on, which is a real one: the system's folder for temporary
/// files may be in memory.
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

    /// Runs the command in this folder.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.run_with(args, b"")
    }

    /// Runs the command in this folder with something on standard input.
    pub(crate) fn run_with(&self, args: &[impl AsRef<OsStr>], stdin: &[u8]) -> Output {
        run(Command::new(RINGSUM).current_dir(&self.0).args(args), stdin)
    }

    /// Runs a shell command in this folder, in which `$R` is the command under test.
    pub(crate) fn shell(&self, script: &str) -> Output {
        let mut shell = Command::new("sh");
        run(shell.current_dir(&self.0).env("R", RINGSUM).args(["-c", script]), b"")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) const RINGSUM: &str = env!("CARGO_BIN_EXE_ringsum");

/// What a command left.
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

    /// Code, standard output and standard error at once, so that a failure shows all three.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, stdout: &str, stderr: &str) {
        let found = (self.code, String::from_utf8_lossy(&self.stdout), &*self.stderr);
        assert_eq!(found, (code, stdout.into(), stderr));
    }
}

pub(crate) fn run(command: &mut Command, stdin: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // A command that does not read its input leaves, and the write fails: no matter.
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

/// Says on the real standard error, which the test harness does not hide, what is not tested for want
/// of a program or a privilege.
pub(crate) fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIP {why}");
}

/// The same for want of something in the kernel or the file system: with STRICT=1 a failure.
pub(crate) fn skip_unless_strict(why: &str) {
    skip(why);
    assert!(std::env::var_os("STRICT").is_none_or(|value| value != "1"), "STRICT: {why}");
}

/// Whether a program is there to be compared with.
pub(crate) fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}
