//! What a workload reads: a file or a device as it is, or in a folder a file of its own.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use blockring::{CacheMode, Config, Plan, RunOptions, Source};

use crate::case::Missing;
use crate::scratch::Scratch;
use crate::session::{Planned, Session, Work};
use crate::values::show_size;

/// Something with places to read at.
#[derive(Debug)]
pub(crate) struct Target {
    path: PathBuf,
    len: u64,
    is_folder: bool,
    /// Made when it is first needed: a plan that is only shown makes nothing.
    scratch: Option<Scratch>,
}

/// A file of our own in a small run, in bytes.
const SMOKE_BYTES: u64 = 1 << 20;

impl Target {
    /// `path`: a regular file, a block device, or a folder in which a file of `own_bytes` is made; what is
    /// there must have `bytes_min`.
    ///
    /// # Errors
    ///
    /// It is something else, too small, or cannot be read.
    pub(crate) fn new(
        path: &Path,
        own_bytes: u64,
        bytes_min: u64,
        smoke: bool,
    ) -> anyhow::Result<Target> {
        let metadata = fs::metadata(path).with_context(|| format!("{}", path.display()))?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            let len = if smoke { SMOKE_BYTES } else { own_bytes };
            if len < bytes_min && !smoke {
                bail!("less than {} says nothing: take a larger --size", show_size(bytes_min));
            }
            return Ok(Target { path: path.to_owned(), len, is_folder: true, scratch: None });
        }
        if !kind.is_file() && !kind.is_block_device() {
            bail!("{}: it is no regular file, folder or block device", path.display());
        }
        let len = Source::open(path)?.len().unwrap_or(0);
        if len < bytes_min && !smoke {
            bail!(
                "{}: it has {len} bytes, and less than {} says nothing: name a larger file, or a folder, in \
                 which one of {} is made",
                path.display(),
                show_size(bytes_min),
                show_size(own_bytes),
            );
        }
        if len < 4096 {
            bail!("{}: it has {len} bytes, and at least one block of 4096 is read", path.display());
        }
        Ok(Target { path: path.to_owned(), len, is_folder: false, scratch: None })
    }

    /// What the environment is described by: the file, as soon as there is one.
    pub(crate) fn described(&self) -> Vec<PathBuf> {
        vec![self.path().to_owned()]
    }

    /// Room that it takes.
    pub(crate) fn room(&self) -> Vec<(PathBuf, u64)> {
        if self.is_folder { vec![(self.path.clone(), self.len)] } else { Vec::new() }
    }

    /// Makes the file, where one is to be made; then it is what is described.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub(crate) fn make(&mut self, session: &mut Session<'_>) -> anyhow::Result<()> {
        if self.is_folder && self.scratch.is_none() {
            self.scratch = Some(Scratch::with_random(&self.path, self.len)?);
            session.look_at(&self.described());
        }
        Ok(())
    }

    /// What is read; before it is made, the folder.
    pub(crate) fn path(&self) -> &Path {
        self.scratch.as_ref().map_or(&self.path, Scratch::path)
    }

    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        vec![self.path().to_owned()]
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether it offers direct I/O. A file that is not made yet: whether its folder does is not known, and
    /// taken for granted.
    pub(crate) fn has_direct(&self) -> bool {
        let Ok(source) = Source::open(self.path()) else { return true };
        let config = Config::default().with(|config| config.io.cache = Some(CacheMode::Direct));
        Plan::choose(&source, &config, &RunOptions::default()).is_ok()
    }
}

/// Plans a workload of `target`, and measures it if that is more than was wanted to be shown: `false` if not.
///
/// # Errors
///
/// The limits forbid it, the target cannot be made, or the run not be written.
pub(crate) fn carry_out<A>(
    args: &A,
    target: &mut Target,
    session: &mut Session<'_>,
    plan: for<'a> fn(&'a A, &'a Target) -> Vec<Planned<'a>>,
) -> anyhow::Result<bool> {
    let room = target.room();
    if !session.announce(&Work { groups: plan(args, target), room })? {
        return Ok(false);
    }
    target.make(session)?;
    // Once more, now that there is a file to be read.
    session.measure_all(Work { groups: plan(args, target), room: Vec::new() })?;
    Ok(true)
}

/// An error of a run, as the reason of a case: what cannot be had here is not a failure.
pub(crate) fn missing(error: &blockring::Error) -> Missing {
    use blockring::ErrorKind;
    let why = error.kind().to_string();
    match error.kind() {
        ErrorKind::Engine { .. }
        | ErrorKind::Cache { .. }
        | ErrorKind::Config(_)
        | ErrorKind::Resource { .. } => Missing::Unavailable(why),
        _ => Missing::Failed(why),
    }
}

/// Any error, as the reason of a case that should have run.
pub(crate) fn failed(error: impl Into<anyhow::Error>) -> Missing {
    Missing::Failed(format!("{:#}", error.into()))
}

/// An error of a system call that asks for what not every kernel or file system has.
pub(crate) fn refused(what: &str, error: &std::io::Error) -> Missing {
    let why = format!("{what}: {error}");
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM | libc::ENOMEM) => {
            Missing::Unavailable(why)
        }
        _ => Missing::Failed(why),
    }
}
