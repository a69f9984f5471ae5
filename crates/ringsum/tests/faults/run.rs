//! One run of the command under a fault: start it, watch it, judge it.
//!
//! [`Case::judge`] checks the rules of every run: no wrong hash, hang, panic or crash, and a
//! message with the path of every file without a hash.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::support::{RINGSUM, Scratch, hex, named};

/// A run that takes longer hangs. None takes a tenth of it on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Read-locked by each run, write-locked while a setting of the whole machine is changed.
pub(crate) static MACHINE: RwLock<()> = RwLock::new(());

/// A healthy file, which each run reads after the faulty one.
pub(crate) const GOOD: (&str, &[u8]) = ("good", b"nothing is wrong with this one");

/// The expected outcome for a file.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Must {
    /// Its hash.
    Hash,
    /// Its hash; with an explicit engine, also an error.
    HashWithAuto,
    /// An error.
    Fail,
    /// An error; with `--list-bad-ranges`, all bad ranges, within `at`.
    Map,
    /// Its hash or an error.
    Either,
    /// Anything that was finished when the run ended.
    Whatever,
}

/// The expected end of a run that a signal or its output ends.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Ends {
    Code(i32),
    Signal(i32),
    /// By SIGINT, handled or not.
    Interrupted,
}

/// A run to make.
pub(crate) struct Case<'a> {
    pub(crate) command: Command,
    pub(crate) engine: &'a str,
    path: String,
    rights: Vec<String>,
    must: Must,
    /// Where the failed request must start.
    pub(crate) at: Option<std::ops::Range<u64>>,
    /// How often the file is named.
    times: usize,
    ends: Option<Ends>,
    act: Option<Act<'a>>,
    /// Hashes that are known only after the run.
    pub(crate) rights_after: Option<Box<dyn Fn() -> Vec<String> + 'a>>,
}

/// Something to do to a running command.
type Act<'a> = Box<dyn Fn(&mut Child) + 'a>;

impl<'a> Case<'a> {
    /// Hashes `path` with `engine`; its hash must be that of one of `contents`.
    pub(crate) fn new(
        scratch: &Scratch,
        engine: &'a str,
        path: &str,
        contents: &[&[u8]],
        must: Must,
    ) -> Case<'a> {
        let mut command = named(RINGSUM);
        command.current_dir(scratch.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        take_signals(&mut command);
        if must == Must::Map {
            command.arg("--list-bad-ranges");
        }
        if engine != "auto" {
            command.arg(format!("--io=engine={engine}"));
        }
        Case {
            command,
            engine,
            path: path.to_owned(),
            rights: contents.iter().map(|content| hex(content)).collect(),
            must,
            at: None,
            times: 1,
            ends: None,
            act: None,
            rights_after: None,
        }
    }

    pub(crate) fn args(mut self, args: &[&str]) -> Case<'a> {
        self.command.args(args);
        self
    }

    pub(crate) fn times(mut self, times: usize) -> Case<'a> {
        self.times = times;
        self
    }

    pub(crate) fn ends(mut self, ends: Ends) -> Case<'a> {
        self.ends = Some(ends);
        self
    }

    pub(crate) fn act(mut self, act: impl Fn(&mut Child) + 'a) -> Case<'a> {
        self.act = Some(Box::new(act));
        self
    }

    /// Runs it; returns the outcome in a word or two, or the rule that was broken.
    pub(crate) fn run(self) -> Result<String, String> {
        let _others = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        self.run_alone()
    }

    /// The same, if the caller holds [`MACHINE`] alone.
    pub(crate) fn run_alone(mut self) -> Result<String, String> {
        self.command.args(std::iter::repeat_n(&self.path, self.times)).arg(GOOD.0);
        let mut child = self.command.spawn().map_err(|error| format!("start: {error}"))?;
        if let Some(act) = &self.act {
            act(&mut child);
        }
        let Some(status) = wait(&mut child, PATIENCE) else {
            let why = format!("HANG: after {PATIENCE:?} still there ({})", state(child.id()));
            let _ = child.kill();
            // If it cannot be killed, it is left alone, so that the test ends.
            wait(&mut child, Duration::from_secs(5));
            return Err(why);
        };
        let (mut stdout, mut stderr) = (String::new(), Vec::new());
        if let Some(mut pipe) = child.stdout.take() {
            pipe.read_to_string(&mut stdout).map_err(|error| format!("stdout: {error}"))?;
        }
        if let Some(mut pipe) = child.stderr.take() {
            let _ = pipe.read_to_end(&mut stderr);
        }
        let stderr = String::from_utf8_lossy(&stderr);
        self.judge(status, &stdout, &stderr)
            .map_err(|broken| format!("{broken}\n    {status}\n    {stdout:?}\n    {stderr:?}"))
    }

    fn judge(&self, status: ExitStatus, stdout: &str, stderr: &str) -> Result<String, String> {
        if stderr.contains("panicked") {
            return Err("a panic".to_owned());
        }
        let ended = match (status.code(), status.signal()) {
            (Some(code), _) => Ends::Code(code),
            (None, signal) => Ends::Signal(signal.unwrap_or(0)),
        };
        let is_refused = self.engine != "auto" && stderr.contains("cannot be used");
        match (self.ends, ended) {
            (_, Ends::Code(1)) if is_refused => {}
            (Some(expected), ended) if expected == ended => {}
            (Some(Ends::Interrupted), Ends::Signal(libc::SIGINT)) => {}
            (None, Ends::Code(0 | 1)) => {}
            (None, Ends::Code(2)) if self.must == Must::Map => {}
            _ => return Err("another end than it must have".to_owned()),
        }
        let rights_after = self.rights_after.as_ref().map(|rights| rights()).unwrap_or_default();
        let (mut hashes, mut goods) = (0, 0);
        for line in stdout.split_inclusive('\n') {
            let line = line.strip_suffix('\n').ok_or("a line without its end")?;
            match line.split_once("  ") {
                Some((hash, name)) if name == GOOD.0 && hash == hex(GOOD.1) => goods += 1,
                Some((hash, name))
                    if name == self.path
                        && self.rights.iter().chain(&rights_after).any(|right| right == hash) =>
                {
                    hashes += 1;
                }
                _ => return Err(format!("WRONG HASH: {line}")),
            }
        }
        let start = format!("ringsum: {}: ", self.path);
        let errors: Vec<&str> =
            stderr.lines().filter_map(|line| line.strip_prefix(&start)).collect();
        if self.must == Must::Whatever {
            return Ok(self.cell(ended, hashes, errors.first().copied(), stderr));
        }
        if self.must == Must::Map {
            return self.map(ended, hashes, goods, &errors);
        }
        if hashes + errors.len() != self.times {
            return Err("not one line for each file, a hash or an error".to_owned());
        }
        if let Some(other) = errors.iter().find(|error| what(error) != what(errors[0])) {
            return Err(format!("the same fault, and another error: {other}"));
        }
        let is_good_told = stderr.contains(&format!("ringsum: {}: ", GOOD.0));
        if goods + usize::from(is_good_told) != 1 {
            return Err("the file after it was not done".to_owned());
        }
        if is_good_told && !matches!(self.must, Must::Either | Must::HashWithAuto) {
            return Err("the file after it failed".to_owned());
        }
        let all_well = errors.is_empty() && !is_good_told;
        if (ended == Ends::Code(0)) != all_well || all_well != stderr.is_empty() {
            return Err("the exit status does not go with what was said".to_owned());
        }
        self.outcome(&errors)?;
        Ok(self.cell(ended, hashes, errors.first().copied(), stderr))
    }

    /// Checks the outcome for the file.
    fn outcome(&self, errors: &[&str]) -> Result<(), String> {
        let is_named = self.engine != "auto";
        let Some(error) = errors.first() else {
            return match self.must {
                Must::Fail => Err("a hash, and there can be none".to_owned()),
                _ => Ok(()),
            };
        };
        // Explicit engines are used or refused.
        if is_named && error.contains("cannot be used") {
            return Ok(());
        }
        match self.must {
            Must::Hash => return Err("no hash, and there must be one".to_owned()),
            Must::HashWithAuto if !is_named => {
                return Err("no hash, and there must be one".to_owned());
            }
            _ => {}
        }
        if let Some(at) = &self.at {
            let offset = offset_of(error).ok_or("an error without an offset")?;
            if !at.contains(&offset) {
                return Err(format!("an error at {offset}, and it is within {at:?}"));
            }
        }
        Ok(())
    }

    /// Checks the outcome of `--list-bad-ranges`.
    fn map(
        &self,
        ended: Ends,
        hashes: usize,
        goods: usize,
        errors: &[&str],
    ) -> Result<String, String> {
        if self.engine != "auto" {
            // The command line is rejected.
            return match (ended, hashes + goods) {
                (Ends::Code(2), 0) => Ok("exit 2".to_owned()),
                _ => Err("--list-bad-ranges with an engine that is named".to_owned()),
            };
        }
        let number = |text: &str| text.parse::<u64>().ok();
        let range = |error: &&str| {
            let (range, _) = error.strip_prefix("unreadable: bytes ")?.split_once(" (")?;
            let (first, last) = range.split_once(" to ")?;
            Some(number(first)?..number(last)? + 1)
        };
        let ranges: Vec<_> = errors.iter().filter_map(range).collect();
        let Some(range) = ranges.first() else { return Err("no range".to_owned()) };
        if (ended, hashes, goods, ranges.len() + 1) != (Ends::Code(1), 0, 1, errors.len()) {
            return Err("no map of a file without a hash".to_owned());
        }
        let all = self.at.clone().unwrap_or_default();
        let is_within = ranges.iter().all(|range| all.start <= range.start && range.end <= all.end);
        match is_within {
            true => Ok(format!("unreadable: {} to {}", range.start, range.end - 1)),
            false => Err(format!("{ranges:?}, and it is {all:?}")),
        }
    }

    /// The outcome, as in the table.
    fn cell(&self, ended: Ends, hashes: usize, error: Option<&str>, stderr: &str) -> String {
        match self.ends {
            _ if error.is_some_and(|error| error.contains("cannot be used")) => {
                return "refused".to_owned();
            }
            Some(Ends::Signal(signal)) => return format!("signal {signal}"),
            Some(Ends::Interrupted) => return "ended".to_owned(),
            Some(Ends::Code(_)) if stderr.contains("standard output") => return "said".to_owned(),
            Some(Ends::Code(code)) => return format!("exit {code}"),
            None => debug_assert!(matches!(ended, Ends::Code(_))),
        }
        let Some(error) = error else {
            return if hashes > 0 { "hash" } else { "nothing" }.to_owned();
        };
        if let Some((_, change)) = error.split_once("changed while it was read (") {
            return match change {
                change if change.starts_with("it shrank") => "shrank",
                change if change.starts_with("it grew") => "grew",
                _ => "changed",
            }
            .to_owned();
        }
        let what = place_of(error).map_or("error".to_owned(), |at| format!("error at {at}"));
        match error.split_once("(os error ").and_then(|(_, rest)| rest.split_once(')')) {
            Some((number, _)) => format!("{what}: {}", name_of(number)),
            None => what,
        }
    }
}

/// Enables SIGINT for a command even if these tests run in the background.
#[expect(unsafe_code)]
fn take_signals(command: &mut Command) {
    // SAFETY: one system call.
    unsafe {
        command.pre_exec(|| match libc::signal(libc::SIGINT, libc::SIG_DFL) {
            libc::SIG_ERR => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
}

/// An error without its offset: of many reads in flight, any may fail first.
fn what(error: &str) -> &str {
    offset_of(error).and(error.split_once(": ")).map_or(error, |(_, what)| what)
}

/// The first byte of a failed read.
fn offset_of(error: &str) -> Option<u64> {
    place_of(error)?.split(' ').next()?.parse().ok()
}

/// A range in a message: `4096`, or `4096 to 8191`.
fn place_of(error: &str) -> Option<&str> {
    let heads = ["read failed at byte ", "read failed at bytes ", "read failed within bytes "];
    heads.iter().find_map(|head| error.strip_prefix(head))?.split([':', ',']).next()
}

fn name_of(errno: &str) -> String {
    let names = [
        (libc::EIO, "EIO"),
        (libc::EINTR, "EINTR"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EMFILE, "EMFILE"),
        (libc::EPERM, "EPERM"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ESTALE, "ESTALE"),
        (libc::ETIMEDOUT, "ETIMEDOUT"),
        (libc::ENODATA, "ENODATA"),
        (libc::EFAULT, "EFAULT"),
        (libc::ENODEV, "ENODEV"),
    ];
    let known = names.into_iter().find(|(number, _)| number.to_string() == errno);
    known.map_or_else(|| format!("errno {errno}"), |(_, name)| name.to_owned())
}

/// Waits for a child, up to a time limit.
fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok()?;
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Ok(0) => return None,
            Ok(_) => return child.wait().ok(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// What a process is blocked in, according to the kernel.
fn state(pid: u32) -> String {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return "gone".into() };
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let waits = threads.flatten().map(|thread| {
        let path = thread.path();
        format!("{} in {}", read(path.join("comm")).trim(), read(path.join("wchan")).trim())
    });
    waits.collect::<Vec<_>>().join(", ")
}
