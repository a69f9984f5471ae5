//! What each command does, and what it prints.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use ringsum::files::walk::{self, WalkOptions};

use crate::cli::{
    Cli, Command, CreateArgs, InfoArgs, IoArgs, PlaceArgs, RepairArgs, ReportArgs, VerifyArgs,
};
use crate::create::{self, Input, Request};
use crate::data::Reading;
use crate::diagnosis::{self, Diagnosis, Examination};
use crate::generate::Generate;
use crate::output::{self, Progress};
use crate::sidecar::{Sidecar, Unusable};
use crate::tree::Tree;
use crate::{repair, scrub, undo};

/// The exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Status {
    Intact = 0,
    Repairable = 1,
    Usage = 2,
    BeyondRepair = 3,
    Failed = 4,
}

impl Status {
    /// Its word in JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Status::Intact => "ok",
            Status::Repairable => "repairable",
            Status::Usage => "usage",
            Status::BeyondRepair => "beyond-repair",
            Status::Failed => "error",
        }
    }

    pub(crate) fn of_word(word: &str) -> Option<Status> {
        use Status::{BeyondRepair, Failed, Intact, Repairable};
        [Intact, Repairable, BeyondRepair, Failed].into_iter().find(|status| status.word() == word)
    }
}

/// An error of the command line.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

pub(crate) fn status_of(error: &anyhow::Error) -> Status {
    if error.is::<Usage>() {
        return Status::Usage;
    }
    if error.is::<Unusable>() {
        return Status::BeyondRepair;
    }
    Status::Failed
}

pub(crate) fn run(cli: &Cli) -> Result<Status> {
    let Some(command) = &cli.command else {
        let text = cli.generate.map(Generate::text).unwrap_or_default();
        std::io::stdout().write_all(&text)?;
        return Ok(Status::Intact);
    };
    match command {
        Command::Create(args) => run_create(args),
        Command::Verify(args) => scrub::run(args, |name| run_verify(args, name)),
        Command::Repair(args) => worst(&args.names, |name| run_repair(args, name)),
        Command::Info(args) => worst(&args.names, |name| run_info(args, name)),
    }
}

/// Runs a command for each name. Returns the worst status; an error does not keep the others from
/// being looked at.
pub(crate) fn worst(
    names: &[PathBuf],
    mut run: impl FnMut(&Path) -> Result<Status>,
) -> Result<Status> {
    let mut status = Status::Intact;
    for name in names {
        status = status.max(reported(run(name))?);
    }
    Ok(status)
}

/// Prints an error that does not keep other sidecars from being looked at, and returns its status.
pub(crate) fn reported(result: Result<Status>) -> Result<Status> {
    result.or_else(|error| {
        let status = status_of(&error);
        if status == Status::Usage || output::is_broken_pipe(&error) {
            return Err(error);
        }
        eprintln!("ringguard: {error:#}");
        Ok(status)
    })
}

pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// Returns the directory that names are relative to.
pub(crate) fn base_of(sidecar: &Path, place: &PlaceArgs) -> PathBuf {
    match &place.directory {
        Some(directory) => directory.clone(),
        None => sidecar.parent().map(Path::to_owned).unwrap_or_default(),
    }
}

fn run_create(args: &CreateArgs) -> Result<Status> {
    let is_set = args.recursive || args.files.len() > 1;
    let out = match &args.output {
        Some(out) => out.clone(),
        None if is_set => {
            return Err(usage("a set of files needs a name for its sidecar: -o NAME.guard"));
        }
        None => create::suffixed(&args.files[0], ".guard"),
    };
    let reading = args.io.reading(false).map_err(usage)?;
    let base = base_of(&out, &args.place);
    let tree = Tree::open(&base).with_context(|| base.display().to_string())?;
    let (inputs, shown) = inputs(args, &tree, &base, &out, is_set)?;
    let total = inputs.iter().map(|input| input.stat.st_size as u64).sum();
    let progress = Progress::new(&args.report, total);
    let in_order = is_rotational(&tree, &inputs, &reading.config);
    let request = Request {
        tree: &tree,
        inputs,
        is_set,
        out,
        redundancy: args.redundancy,
        group_bytes: args.group_size,
        reading: &reading,
        memory_bytes: args.io.memory_bytes(),
        in_order,
        expected: None,
        progress: &|bytes| progress.add(bytes),
        resumed: &|done, all| output::resumed(&args.report, done, all),
    };
    let (head, files) = create::create(&request)?;
    drop(progress);
    if args.report.explain {
        output::explain_geometry(&head, in_order)?;
    }
    output::digests(&args.report, &files, &shown)?;
    Ok(Status::Intact)
}

/// Whether the data are read in order, because their disk is rotational.
fn is_rotational(tree: &Tree, inputs: &[Input], config: &blockring::Config) -> bool {
    use blockring::{CacheMode, Plan, RunOptions, Source};
    let sources: Vec<_> = inputs
        .iter()
        .filter(|input| input.stat.st_size > 0)
        .take(12)
        .filter_map(|input| {
            let (file, _) = tree.read(&input.name).ok()?;
            Source::from_exclusive(file, tree.path(&input.name), CacheMode::Buffered).ok()
        })
        .collect();
    !sources.is_empty()
        && Plan::choose_for_files(&sources, config, &RunOptions::default())
            .is_ok_and(|plan| plan.is_rotational())
}

/// A name as the sidecar has it, and as it was given.
type Name = (Vec<u8>, Vec<u8>);

/// Returns the files to protect, and the names by which they were given.
fn inputs(
    args: &CreateArgs,
    tree: &Tree,
    base: &Path,
    out: &Path,
    is_set: bool,
) -> Result<(Vec<Input>, Vec<Name>)> {
    let base =
        std::path::absolute(if base.as_os_str().is_empty() { Path::new(".") } else { base })?;
    let out = std::path::absolute(out)?;
    let mut names = Vec::new();
    for path in &args.files {
        let metadata =
            std::fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
        let name = relative(path, &base)?;
        if metadata.is_dir() && args.recursive {
            let walk = walk::Walk::new(path, &WalkOptions::default());
            for entry in walk.with_context(|| path.display().to_string())? {
                match entry.kind() {
                    walk::Kind::File => {}
                    walk::Kind::Failed(error) => {
                        bail!("{}: {error}", OsStr::from_bytes(&entry.path()).display())
                    }
                    _ => continue,
                }
                let within = entry.path_after(b"");
                let join = |prefix: &[u8]| match prefix {
                    b"" => within.clone(),
                    _ => [prefix, b"/", &within].concat(),
                };
                let given = path.as_os_str().as_bytes();
                names.push((join(&name), join(given.strip_suffix(b"/").unwrap_or(given))));
            }
            continue;
        }
        let advice = match metadata.file_type() {
            kind if kind.is_dir() => "; use -r for directories",
            kind if kind.is_symlink() => "; name the file that the link leads to",
            _ => "",
        };
        ensure!(metadata.is_file(), "{}: it is not a regular file{advice}", path.display());
        names.push((name, path.as_os_str().as_bytes().to_vec()));
    }
    let own_names: Vec<_> = ["", ".partial", ".partial.log", ".undo", ".undo.partial"]
        .iter()
        .map(|suffix| create::suffixed(&out, suffix))
        .collect();
    let own = |name: &[u8]| own_names.contains(&base.join(OsStr::from_bytes(name)));
    if is_set {
        names.retain(|(name, _)| !own(name));
        names.sort();
        names.dedup_by(|a, b| a.0 == b.0);
    }
    for (name, _) in &names {
        crate::format::check_name(name).with_context(|| {
            "names are relative to the directory of the sidecar; use -C for another one".to_owned()
        })?;
    }
    Ok((stat_all(tree, &names)?, names))
}

/// Threads that ask for metadata.
const STAT_THREADS: usize = 16;

/// Returns the metadata of files, in order.
fn stat_all(tree: &Tree, names: &[Name]) -> Result<Vec<Input>> {
    let stat_some = |names: &[Name]| -> Result<Vec<Input>> {
        let stat = |(name, _): &Name| {
            let stat = tree.stat(name);
            let stat = stat.with_context(|| tree.path(name).display().to_string())?;
            Ok(Input { name: name.clone(), stat })
        };
        names.iter().map(stat).collect()
    };
    let share = names.len().div_ceil(STAT_THREADS).max(64);
    std::thread::scope(|scope| {
        let mut inputs = Vec::with_capacity(names.len());
        let mut running = Vec::new();
        for part in names.chunks(share) {
            let spawned = std::thread::Builder::new().spawn_scoped(scope, move || stat_some(part));
            running.push((part, spawned));
        }
        for (part, spawned) in running {
            let found = match spawned {
                Ok(thread) => {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                }
                Err(_) => stat_some(part),
            };
            inputs.extend(found?);
        }
        Ok(inputs)
    })
}

/// Returns a path relative to a directory.
fn relative(path: &Path, base: &Path) -> Result<Vec<u8>> {
    let path = std::path::absolute(path)?;
    let parts = |path: &Path| {
        let mut parts = Vec::new();
        for part in path.components() {
            match part {
                std::path::Component::ParentDir => drop(parts.pop()),
                part => parts.push(part.as_os_str().to_owned()),
            }
        }
        parts.into_iter().collect::<PathBuf>()
    };
    let (path, base) = (parts(&path), parts(base));
    let name = path.strip_prefix(&base).map_err(|_| {
        usage(format!(
            "{}: it is not below {}, the directory that names are relative to; use -C for another one",
            path.display(),
            base.display()
        ))
    })?;
    Ok(name.as_os_str().as_bytes().to_vec())
}

/// A name on the command line: a sidecar, or a file that has one.
pub(crate) fn sidecar_of(name: &Path) -> PathBuf {
    let beside = create::suffixed(name, ".guard");
    let is_sidecar = name.extension() == Some(OsStr::new("guard"));
    if !is_sidecar && beside.exists() { beside } else { name.to_owned() }
}

/// A sidecar with everything to compare files with it.
struct Opened {
    tree: Tree,
    sidecar: Sidecar,
    reading: Reading,
}

impl Opened {
    fn new(name: &Path, place: &PlaceArgs, io: &IoArgs, bypass_cache: bool) -> Result<Opened> {
        let reading = io.reading(bypass_cache).map_err(usage)?;
        let path = sidecar_of(name);
        let sidecar = Sidecar::open(&path)?;
        let base = base_of(&path, place);
        let tree = Tree::open(&base).with_context(|| base.display().to_string())?;
        Ok(Opened { tree, sidecar, reading })
    }

    fn total_bytes(&self) -> u64 {
        self.sidecar.files.iter().map(|file| file.len).sum()
    }

    fn examination<'a>(&'a self, progress: &'a (dyn Fn(u64) + Sync)) -> Examination<'a> {
        let Opened { tree, sidecar, reading } = self;
        Examination { tree, sidecar, reading, progress }
    }

    fn diagnose(&self, report: &ReportArgs) -> Result<Diagnosis> {
        let progress = Progress::new(report, self.total_bytes());
        if report.explain {
            let explained = self.examination(&|_| ()).data().explain()?;
            eprintln!("{explained}");
        }
        self.examination(&|bytes| progress.add(bytes)).run()
    }
}

fn run_verify(args: &VerifyArgs, name: &Path) -> Result<Status> {
    let mut opened = Opened::new(name, &args.place, &args.io, args.bypass_cache)?;
    let diagnosis = opened.diagnose(&args.report)?;
    opened.sidecar.check_nodes();
    if args.parity {
        opened.sidecar.check_parity();
    }
    let under = args.scrub.is_recursive().then(|| base_of(&opened.sidecar.path, &args.place));
    let mut status =
        output::diagnosis(&args.report, under.as_deref(), &opened.sidecar, &diagnosis)?;
    if let Some(list) = &args.check {
        let digests = diagnosis::read_list(list)?;
        let differ = output::compare_list(&opened.sidecar, &digests, list)?;
        status = if differ { status.max(Status::BeyondRepair) } else { status };
    }
    Ok(status)
}

fn run_repair(args: &RepairArgs, name: &Path) -> Result<Status> {
    if args.undo {
        let path = sidecar_of(name);
        let base = base_of(&path, &args.place);
        let tree = Tree::open(&base).with_context(|| base.display().to_string())?;
        undo::undo(&path, &tree)?;
        output::undone(&args.report, &path)?;
        return Ok(Status::Intact);
    }
    let mut opened = Opened::new(name, &args.place, &args.io, false)?;
    let diagnosis = opened.diagnose(&args.report)?;
    opened.sidecar.check_nodes();
    opened.sidecar.check_parity();
    if !diagnosis.is_repairable() {
        return output::diagnosis(&args.report, None, &opened.sidecar, &diagnosis);
    }
    if !diagnosis.is_intact() {
        let progress = Progress::new(&args.report, opened.total_bytes());
        let add = |bytes| progress.add(bytes);
        let examination = opened.examination(&add);
        let kept = match args.in_place {
            true => repair::repair_in_place(&examination, &diagnosis)?,
            false => repair::repair_beside(&examination, &diagnosis, args.discard)?,
        };
        drop(progress);
        output::repaired(&args.report, &opened.sidecar, &diagnosis, &kept)?;
    }
    if undo::exists(&opened.sidecar.path) {
        // The repair that it is of is complete now.
        undo::forget(&opened.sidecar.path)?;
    }
    if opened.sidecar.damage.is_empty() {
        if diagnosis.is_intact() {
            output::diagnosis(&args.report, None, &opened.sidecar, &diagnosis)?;
        }
        return Ok(Status::Intact);
    }
    remake(args, &opened)?;
    output::remade(&args.report, &opened.sidecar)?;
    Ok(Status::Intact)
}

/// Makes a damaged sidecar again, from files that are intact.
fn remake(args: &RepairArgs, opened: &Opened) -> Result<()> {
    let Opened { tree, sidecar, reading } = opened;
    let mut inputs = Vec::new();
    for file in &sidecar.files {
        let (_, stat) =
            tree.read(&file.name).with_context(|| tree.path(&file.name).display().to_string())?;
        inputs.push(Input { name: file.name.clone(), stat });
    }
    inputs.sort_by(|a, b| a.name.cmp(&b.name));
    let expected = sidecar.files.iter().map(|file| (file.name.clone(), file.root)).collect();
    let in_order = is_rotational(tree, &inputs, &reading.config);
    let progress = Progress::new(&args.report, opened.total_bytes());
    let request = Request {
        tree,
        inputs,
        is_set: sidecar.head.is_set,
        out: sidecar.path.clone(),
        redundancy: sidecar.head.redundancy,
        group_bytes: sidecar.head.group_bytes,
        reading,
        memory_bytes: args.io.memory_bytes(),
        in_order,
        expected: Some(&expected),
        progress: &|bytes| progress.add(bytes),
        resumed: &|done, all| output::resumed(&args.report, done, all),
    };
    create::create(&request)?;
    Ok(())
}

fn run_info(args: &InfoArgs, name: &Path) -> Result<Status> {
    let mut sidecar = Sidecar::open(&sidecar_of(name))?;
    sidecar.check_nodes();
    output::info(args.json, &sidecar)?;
    Ok(if sidecar.damage.is_empty() { Status::Intact } else { Status::Repairable })
}
