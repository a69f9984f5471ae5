//! Other programs: run once, with what that took.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// A program, or several that are joined by pipes.
#[derive(Debug, Clone)]
pub(crate) struct Pipeline {
    stages: Vec<Vec<OsString>>,
    input: Option<PathBuf>,
    /// Whether what the last one prints is wanted; otherwise it goes to `/dev/null`.
    captures: bool,
}

/// What a pipeline took: processor time of all its programs, and the memory of the largest.
#[derive(Debug, Clone)]
pub(crate) struct Took {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    /// Peak resident memory. Not less than ours when it started, since a program begins as a copy of us.
    pub(crate) rss_bytes: u64,
    pub(crate) output: Vec<u8>,
}

impl Pipeline {
    pub(crate) fn new<S: Into<OsString>>(program: impl IntoIterator<Item = S>) -> Pipeline {
        let stages = vec![program.into_iter().map(Into::into).collect()];
        Pipeline { stages, input: None, captures: false }
    }

    /// Joins another program by a pipe.
    pub(crate) fn into<S: Into<OsString>>(mut self, next: impl IntoIterator<Item = S>) -> Pipeline {
        self.stages.push(next.into_iter().map(Into::into).collect());
        self
    }

    /// Standard input of the first program; nothing without.
    pub(crate) fn reading(mut self, input: PathBuf) -> Pipeline {
        self.input = Some(input);
        self
    }

    pub(crate) fn capturing(mut self) -> Pipeline {
        self.captures = true;
        self
    }

    /// As it would be typed, more or less.
    pub(crate) fn show(&self) -> String {
        let stage = |stage: &Vec<OsString>| {
            let words = stage.iter().map(|word| word.to_string_lossy());
            words.collect::<Vec<_>>().join(" ")
        };
        let line = self.stages.iter().map(stage).collect::<Vec<_>>().join(" | ");
        match &self.input {
            Some(input) => format!("{line} < {}", input.display()),
            None => line,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    ///
    /// A program cannot be started, or does not end with status 0; then with what it said.
    pub(crate) fn run(&self) -> anyhow::Result<Took> {
        forget_own_peak();
        let start = Instant::now();
        let mut running = Running::default();
        let mut stdin = match &self.input {
            Some(path) => Stdio::from(File::open(path)?),
            None => Stdio::null(),
        };
        for (i, stage) in self.stages.iter().enumerate() {
            let is_last = i + 1 == self.stages.len();
            let said = said_here()?;
            let mut command = Command::new(&stage[0]);
            command.args(&stage[1..]).stdin(stdin).stderr(said.try_clone()?);
            command.stdout(match is_last && !self.captures {
                true => Stdio::null(),
                false => Stdio::piped(),
            });
            let name = stage[0].to_string_lossy().into_owned();
            let mut child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
            stdin = Stdio::null();
            if let Some(stdout) = child.stdout.take() {
                match is_last {
                    true => running.output = Some(stdout),
                    false => stdin = stdout.into(),
                }
            }
            running.programs.push(Program { name, child, said });
        }
        running.wait(start)
    }
}

/// A program that was started.
struct Program {
    name: String,
    child: Child,
    /// What it writes to standard error.
    said: File,
}

/// The programs that were started, none of which outlives this.
#[derive(Default)]
struct Running {
    programs: Vec<Program>,
    output: Option<ChildStdout>,
}

impl Running {
    fn wait(mut self, start: Instant) -> anyhow::Result<Took> {
        let mut output = Vec::new();
        if let Some(mut stdout) = self.output.take() {
            stdout.read_to_end(&mut output)?;
        }
        let (mut cpu, mut rss_bytes) = (Duration::ZERO, 0);
        let mut failed: Option<(i32, String)> = None;
        for mut program in std::mem::take(&mut self.programs) {
            let (status, usage) = wait4(program.child.id())?;
            // One that lost its reader does not say what went wrong; the reader does.
            if status != 0 && failed.as_ref().is_none_or(|(status, _)| *status == BROKEN_PIPE) {
                // Some complain where they should print.
                let said = program.what_it_said();
                let said = said.or_else(|| first_line(&output));
                let said = said.unwrap_or_else(|| "it said nothing".to_owned());
                let message = format!("{} ended with status {status}: {said}", program.name);
                failed = Some((status, message));
            }
            cpu += time(usage.ru_utime) + time(usage.ru_stime);
            rss_bytes = rss_bytes.max(usage.ru_maxrss as u64 * 1024);
        }
        let wall = start.elapsed();
        match failed {
            Some((_, message)) => bail!(message),
            None => Ok(Took { wall, cpu, rss_bytes, output }),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.child.kill();
            let _ = program.child.wait();
        }
    }
}

/// The status of a program that SIGPIPE has ended.
const BROKEN_PIPE: i32 = 128 + libc::SIGPIPE;

impl Program {
    fn what_it_said(&mut self) -> Option<String> {
        let mut said = Vec::new();
        let _ = self.said.rewind();
        let _ = (&self.said).take(4096).read_to_end(&mut said);
        first_line(&said)
    }
}

fn first_line(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(&text[..text.len().min(4096)]);
    text.lines().find(|line| !line.trim().is_empty()).map(str::to_owned)
}

/// Memory that is a file: however much a program says, it does not wait for us to read it.
fn said_here() -> io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(rustix::fs::memfd_create("stderr", flags)?.into())
}

/// The peak of a program's memory begins with that of the process that starts it: not more of ours than there
/// is now is to count (`clear_refs`, Linux 4.0).
fn forget_own_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn time(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}

/// Exit status (128 and more: the signal), and what the process used.
fn wait4(pid: u32) -> io::Result<(i32, libc::rusage)> {
    let mut status = 0;
    loop {
        // SAFETY: the structure may be zero, and the kernel fills it; the child is ours, and nobody else
        // waits for it.
        let (result, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::wait4(pid as libc::pid_t, &raw mut status, 0, &raw mut usage), usage)
        };
        match result {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(io::Error::last_os_error()),
            _ if libc::WIFEXITED(status) => return Ok((libc::WEXITSTATUS(status), usage)),
            _ => return Ok((128 + libc::WTERMSIG(status), usage)),
        }
    }
}

/// Processor time of this process and all its threads, user and system.
pub(crate) fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Where a program is, in `PATH` or by its path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let is_there = |path: &PathBuf| path.is_file();
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_there);
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(is_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_say_and_take() {
        let took =
            Pipeline::new(["printf", "a\nb\n"]).into(["wc", "-l"]).capturing().run().unwrap();
        assert_eq!(String::from_utf8(took.output).unwrap().trim(), "2");
        assert!(took.rss_bytes > 0 && took.wall > Duration::ZERO);
        let busy = Pipeline::new(["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]);
        let took = busy.run().unwrap();
        assert!(took.cpu > Duration::ZERO && took.cpu <= took.wall * 2, "{took:?}");
    }

    #[test]
    fn failures_say_what_the_program_said() {
        let pipeline = Pipeline::new(["sh", "-c", "echo no luck >&2; exit 3"]);
        assert_eq!(pipeline.run().unwrap_err().to_string(), "sh ended with status 3: no luck");
        let killed = Pipeline::new(["sh", "-c", "kill -9 $$"]).run().unwrap_err();
        assert!(killed.to_string().contains("status 137"), "{killed}");
        let chatty = Pipeline::new(["sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x >&2"]);
        chatty.run().unwrap();
        let dies = Pipeline::new(["yes"]).into(["sh", "-c", "echo no disk >&2; exit 4"]);
        assert_eq!(dies.run().unwrap_err().to_string(), "sh ended with status 4: no disk");
        let missing = Pipeline::new(["yes"]).into(["/no/such/program"]).run().unwrap_err();
        assert!(missing.to_string().contains("cannot be started"), "{missing}");
        let missing = Pipeline::new(["/no/such/program"]).run().unwrap_err();
        assert!(missing.to_string().contains("cannot be started"), "{missing}");
    }
}
