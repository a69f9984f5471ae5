//! Workloads that read one file: an existing file or device, or a file that is created in a folder.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use blockring::{CacheMode, Config, Plan, RunOptions, Source};

use crate::cli::args::{RunArgs, TargetArgs};
use crate::model::environment::Environment;
use crate::model::units::show_size;
use crate::runner::scratch::Scratch;
use crate::runner::{GroupPlan, Session};

/// Reading less says more about starting than about reading: 64 MiB take 17 ms at 3.8 GB/s. And random
/// reads of a smaller file are likely to hit a cache of the device or its host.
pub(crate) const BYTES_MIN: u64 = 64 << 20;

/// Size of the file that a smoke test creates, in bytes.
const SMOKE_BYTES: u64 = 1 << 20;

/// A file or a device to read.
#[derive(Debug)]
pub(crate) struct Target {
    path: PathBuf,
    len: u64,
    is_folder: bool,
    /// Created when the plan is carried out: `--dry-run` creates nothing.
    scratch: Option<Scratch>,
}

impl Target {
    pub(crate) fn new(args: &TargetArgs, smoke: bool) -> anyhow::Result<Target> {
        let path = &args.path;
        let name = path.display();
        let metadata = fs::metadata(path).with_context(|| name.to_string())?;
        let (kind, least) = (metadata.file_type(), show_size(BYTES_MIN));
        let (is_folder, len) = match kind.is_dir() {
            true if smoke => (true, SMOKE_BYTES),
            true if args.size < BYTES_MIN => bail!("--size is at least {least}"),
            true => (true, args.size),
            false if !kind.is_file() && !kind.is_block_device() => {
                bail!("{name}: not a regular file, a folder or a block device")
            }
            false => (false, Source::open(path)?.len().unwrap_or(0)),
        };
        match len {
            ..4096 => bail!("{name}: its {len} bytes are less than a block of 4096"),
            ..BYTES_MIN if !smoke => bail!(
                "{name}: its {len} bytes are less than {least}, too few to measure: use a larger file, or a \
                 folder, where a file of {} is created",
                show_size(args.size),
            ),
            _ => Ok(Target { path: path.clone(), len, is_folder, scratch: None }),
        }
    }

    /// The folder and the size of the file that is to be created.
    pub(crate) fn room(&self) -> Option<(&Path, u64)> {
        self.is_folder.then_some((&*self.path, self.len))
    }

    /// Creates the file, if there is one to create.
    pub(crate) fn create(&mut self, session: &mut Session<'_>) -> anyhow::Result<()> {
        if self.is_folder {
            self.scratch = Some(Scratch::with_random(&self.path, self.len)?);
            session.run.environment = Environment::capture(&self.paths());
        }
        Ok(())
    }

    /// The file to read; before it is created, its folder.
    pub(crate) fn path(&self) -> &Path {
        self.scratch.as_ref().map_or(&self.path, Scratch::path)
    }

    /// The same, as a list.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        vec![self.path().to_owned()]
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The mode for cold reads: direct, or buffered if the file does not support that. For a file that is
    /// not created yet, direct.
    pub(crate) fn cold_mode(&self) -> CacheMode {
        let Ok(source) = Source::open(self.path()) else { return CacheMode::Direct };
        let direct = Config::default().with(|config| config.io.cache = Some(CacheMode::Direct));
        match Plan::choose(&source, &direct, &RunOptions::default()) {
            Ok(_) => CacheMode::Direct,
            Err(_) => CacheMode::Buffered,
        }
    }
}

/// A workload that reads a [`Target`]. `A` are its options.
pub(crate) struct Workload<A> {
    pub(crate) name: &'static str,
    pub(crate) plan: for<'a> fn(&'a A, &'a Target) -> Vec<GroupPlan<'a>>,
    pub(crate) conclude: fn(&A, &mut Session<'_>),
}

impl<A> Workload<A> {
    /// Plans the workload and carries it out. Returns whether everything ran that should have.
    pub(crate) fn run(&self, args: &A, target: &TargetArgs, run: &RunArgs) -> anyhow::Result<bool> {
        let mut target = Target::new(target, run.smoke)?;
        let mut session = Session::new(self.name, run, &target.paths());
        if !session.announce(&(self.plan)(args, &target), target.room())? {
            return Ok(true);
        }
        target.create(&mut session)?;
        // Planned again, with the file that exists now.
        session.measure_all((self.plan)(args, &target));
        (self.conclude)(args, &mut session);
        session.finish()
    }
}
