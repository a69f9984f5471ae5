//! Other programs: run once, and measured.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::model::case::Sample;

/// A program, or several that are joined by pipes.
#[derive(Debug, Clone)]
pub(crate) struct Pipeline {
    stages: Vec<Vec<OsString>>,
    input: Option<PathBuf>,
    /// Whether the output of the last program is kept instead of going to `/dev/null`.
    captures: bool,
}

impl Pipeline {
    pub(crate) fn new<S: Into<OsString>>(program: impl IntoIterator<Item = S>) -> Pipeline {
        let stages = vec![program.into_iter().map(Into::into).collect()];
        Pipeline { stages, input: None, captures: false }
    }

    pub(crate) fn into<S: Into<OsString>>(mut self, next: impl IntoIterator<Item = S>) -> Pipeline {
        self.stages.push(next.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the standard input of the first program, which is empty by default.
    pub(crate) fn reading(self, input: PathBuf) -> Pipeline {
        Pipeline { input: Some(input), ..self }
    }

    /// Keeps the output of the last program.
    pub(crate) fn capturing(self) -> Pipeline {
        Pipeline { captures: true, ..self }
    }

    /// The command line, unquoted.
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

    /// Runs it. Returns one operation, with the processor time of all its programs and the memory of the
    /// largest, and the output of the last. An exit status other than 0 is an error, with the message of
    /// the program.
    pub(crate) fn run(&self) -> anyhow::Result<(Sample, Vec<u8>)> {
        reset_own_peak();
        let start = Instant::now();
        let mut running = Running::default();
        let mut stdin = match &self.input {
            Some(path) => Stdio::from(File::open(path)?),
            None => Stdio::null(),
        };
        for (i, stage) in self.stages.iter().enumerate() {
            let is_last = i + 1 == self.stages.len();
            // In memory: a program with long messages waits for no reader, and no disk is disturbed.
            let stderr = File::from(memfd_create("stderr", MemfdFlags::CLOEXEC)?);
            let mut command = Command::new(&stage[0]);
            command.args(&stage[1..]).stdin(stdin).stderr(stderr.try_clone()?);
            command.stdout(match is_last && !self.captures {
                true => Stdio::null(),
                false => Stdio::piped(),
            });
            let name = stage[0].to_string_lossy().into_owned();
            let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
            stdin = Stdio::null();
            match child.stdout.take() {
                Some(stdout) if is_last => running.output = Some(stdout),
                Some(stdout) => stdin = stdout.into(),
                None => {}
            }
            running.programs.push(Program { name, child, stderr });
        }
        running.wait(start)
    }
}

struct Program {
    name: String,
    child: Child,
    stderr: File,
}

/// Programs that were started; none of them outlives this.
#[derive(Default)]
struct Running {
    programs: Vec<Program>,
    output: Option<ChildStdout>,
}

impl Running {
    fn wait(mut self, start: Instant) -> anyhow::Result<(Sample, Vec<u8>)> {
        let mut output = Vec::new();
        if let Some(mut stdout) = self.output.take() {
            stdout.read_to_end(&mut output)?;
        }
        let (mut cpu, mut rss_bytes) = (Duration::ZERO, 0);
        let mut failed: Option<(i32, String)> = None;
        for mut program in std::mem::take(&mut self.programs) {
            let (status, usage) = wait4(program.child.id())?;
            // A program that lost its reader does not know why; the reader does.
            if status != 0 && failed.as_ref().is_none_or(|(status, _)| *status == BROKEN_PIPE) {
                // Some programs print messages on standard output.
                let message = program.message().or_else(|| first_line(&output));
                let message = message.unwrap_or_else(|| "it printed no message".to_owned());
                let message = format!("{} ended with status {status}: {message}", program.name);
                failed = Some((status, message));
            }
            cpu += duration(usage.ru_utime) + duration(usage.ru_stime);
            // At least that of this process at the start: a program begins as a copy of it.
            rss_bytes = rss_bytes.max(usage.ru_maxrss as u64 * 1024);
        }
        let (wall_s, cpu_s) = (start.elapsed().as_secs_f64(), Some(cpu.as_secs_f64()));
        if let Some((_, message)) = failed {
            bail!(message);
        }
        let rss_bytes = Some(rss_bytes);
        Ok((Sample { wall_s, cpu_s, rss_bytes, operations: 1, ..Sample::default() }, output))
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

/// The status of a program that SIGPIPE ended.
const BROKEN_PIPE: i32 = 128 + libc::SIGPIPE;

impl Program {
    fn message(&mut self) -> Option<String> {
        let mut text = Vec::new();
        let _ = self.stderr.rewind();
        let _ = (&self.stderr).take(4096).read_to_end(&mut text);
        first_line(&text)
    }
}

fn first_line(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(&text[..text.len().min(4096)]);
    text.lines().find(|line| !line.trim().is_empty()).map(str::to_owned)
}

/// Resets the peak memory of this process to its present memory (`clear_refs`, Linux 4.0): the peak of a
/// program starts at that of the process that starts it.
fn reset_own_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}

/// Waits for a child. Returns its exit status (128 + the signal that ended it) and its resource usage.
fn wait4(pid: u32) -> io::Result<(i32, libc::rusage)> {
    let mut status = 0;
    loop {
        // SAFETY: a zeroed rusage is a legal one, and the kernel fills it; the child is ours, and no other
        // code waits for it.
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

/// Finds a program in `PATH`, or by its path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let exists = |path: &PathBuf| path.is_file();
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(exists);
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(exists)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_measured() {
        let wc = Pipeline::new(["printf", "a\nb\n"]).into(["wc", "-l"]).capturing();
        let (sample, output) = wc.run().unwrap();
        assert_eq!(String::from_utf8(output).unwrap().trim(), "2");
        assert!(sample.rss_bytes > Some(0) && sample.wall_s > 0.0);
        let busy = Pipeline::new(["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]);
        let (sample, _) = busy.run().unwrap();
        let cpu_s = sample.cpu_s.unwrap();
        assert!(cpu_s > 0.0 && cpu_s <= sample.wall_s * 2.0, "{sample:?}");
    }

    #[test]
    fn errors_have_the_message_of_the_program() {
        let pipeline = Pipeline::new(["sh", "-c", "echo no luck >&2; exit 3"]);
        assert_eq!(pipeline.run().unwrap_err().to_string(), "sh ended with status 3: no luck");
        let killed = Pipeline::new(["sh", "-c", "kill -9 $$"]).run().unwrap_err();
        assert!(killed.to_string().contains("status 137"), "{killed}");
        let chatty = Pipeline::new(["sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x >&2"]);
        chatty.run().unwrap();
        let dies = Pipeline::new(["yes"]).into(["sh", "-c", "echo no disk >&2; exit 4"]);
        assert_eq!(dies.run().unwrap_err().to_string(), "sh ended with status 4: no disk");
        let missing = Pipeline::new(["yes"]).into(["/no/such/program"]).run().unwrap_err();
        assert!(missing.to_string().contains("cannot start"), "{missing}");
        let missing = Pipeline::new(["/no/such/program"]).run().unwrap_err();
        assert!(missing.to_string().contains("cannot start"), "{missing}");
    }
}
