//! Other programs: run once, with what that took.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
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
    /// Peak resident memory. Not less than ours at the start, since a program begins as a copy of us.
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

    /// Brings the programs themselves into the page cache, with the libraries that they need: they are
    /// asked for their version. (One that does not understand that has been loaded all the same.)
    pub(crate) fn load(&self) {
        for stage in &self.stages {
            let version = Pipeline::new([stage[0].clone(), OsString::from("--version")]);
            let _ = version.run();
        }
    }

    /// Runs it.
    ///
    /// # Errors
    ///
    /// A program cannot be started, or does not end with status 0; then with what it said.
    pub(crate) fn run(&self) -> anyhow::Result<Took> {
        let start = Instant::now();
        let mut stdin = match &self.input {
            Some(path) => Stdio::from(std::fs::File::open(path)?),
            None => Stdio::null(),
        };
        let mut children = Vec::new();
        for (i, stage) in self.stages.iter().enumerate() {
            let is_last = i + 1 == self.stages.len();
            let mut command = Command::new(&stage[0]);
            command.args(&stage[1..]).stdin(stdin).stderr(Stdio::piped());
            command.stdout(match is_last && !self.captures {
                true => Stdio::null(),
                false => Stdio::piped(),
            });
            let mut child = command
                .spawn()
                .with_context(|| format!("{} cannot be started", stage[0].to_string_lossy()))?;
            stdin = match child.stdout.take() {
                Some(stdout) if !is_last => stdout.into(),
                stdout => {
                    child.stdout = stdout;
                    Stdio::null()
                }
            };
            children.push(child);
        }
        self.wait(children, start)
    }

    fn wait(&self, mut children: Vec<Child>, start: Instant) -> anyhow::Result<Took> {
        let mut output = Vec::new();
        if let Some(stdout) = children.last_mut().and_then(|last| last.stdout.as_mut()) {
            stdout.read_to_end(&mut output)?;
        }
        let (mut cpu, mut rss_bytes, mut wall) = (Duration::ZERO, 0, Duration::ZERO);
        for (child, stage) in children.iter_mut().zip(&self.stages) {
            // Little is said there, less than a pipe holds: it is read when the program has ended.
            let (status, usage) = wait4(child.id())?;
            wall = start.elapsed();
            if status != 0 {
                let mut said = String::new();
                if let Some(stderr) = &mut child.stderr {
                    let _ = stderr.read_to_string(&mut said);
                }
                let said = said.lines().next().unwrap_or("it said nothing");
                bail!("{} ended with status {status}: {said}", stage[0].to_string_lossy());
            }
            cpu += time(usage.ru_utime) + time(usage.ru_stime);
            rss_bytes = rss_bytes.max(usage.ru_maxrss as u64 * 1024);
        }
        Ok(Took { wall, cpu, rss_bytes, output })
    }
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
        let missing = Pipeline::new(["/no/such/program"]).run().unwrap_err();
        assert!(missing.to_string().contains("cannot be started"), "{missing}");
    }
}
