//! Scratch directories, content, and running the command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) const COMMAND: &str = env!("CARGO_BIN_EXE_ringguard");

/// A directory that is removed at the end.
pub(crate) struct Scratch(pub(crate) tempfile::TempDir);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        // (On a disk: direct reads and writes are not the same on tmpfs.)
        Scratch(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Runs the command in the directory. Returns its status and its output.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, &[])
    }

    pub(crate) fn run_with(&self, args: &[&str], env: &[(&str, &str)]) -> Ran {
        run_in(self.0.path(), args, env)
    }
}

pub(crate) fn run_in(directory: &Path, args: &[&str], env: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(COMMAND);
    command.args(args).current_dir(directory).envs(env.iter().copied());
    Ran(command.output().unwrap())
}

pub(crate) struct Ran(Output);

impl Ran {
    pub(crate) fn status(&self) -> Option<i32> {
        self.0.status.code()
    }

    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// Checks the status.
    #[track_caller]
    pub(crate) fn is(self, status: i32) -> Ran {
        assert_eq!(self.status(), Some(status), "{}{}", self.out(), self.err());
        self
    }
}

/// A small generator, so that a failure can be run again by its seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678_9ABC_DEF1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        // xorshift64*.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end.max(1))) >> 64) as u64
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}
