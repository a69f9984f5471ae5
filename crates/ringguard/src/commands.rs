//! What each command does, and what it prints.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cli::{
    Cli, Command, CommonArgs, CreateArgs, InfoArgs, RepairArgs, ReportArgs, VerifyArgs,
};
use crate::create::{self, Input, Request};
use crate::data::Reading;
use crate::diagnosis::{self, Diagnosis, Examination};
use crate::generate::Generate;
use crate::inputs::{check_output, inputs};
use crate::output::{self, Progress};
use crate::partial::suffixed;
use crate::sidecar::{Sidecar, Unusable};
use crate::tree::Tree;
use crate::{fault, in_place, one_pass, repair, scrub, undo};

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

fn run_create(args: &CreateArgs) -> Result<Status> {
    let is_set = args.recursive || args.files.len() > 1;
    let out = match &args.output {
        Some(out) => out.clone(),
        None if is_set => {
            return Err(usage("a set of files needs a name for its sidecar: -o NAME.guard"));
        }
        None => suffixed(&args.files[0], ".guard"),
    };
    check_output(&out)?;
    let reading = args.common.io.reading(false).map_err(usage)?;
    let base = args.common.base_of(&out);
    let tree = Tree::open(&base).with_context(|| base.display().to_string())?;
    let (inputs, shown) = inputs(args, &tree, &base, &out, is_set)?;
    let total = inputs.iter().map(|input| input.file.len).sum();
    let progress = Progress::new(&args.common.report, total);
    let in_order = is_rotational(&tree, &inputs, &reading);
    let request = Request {
        tree: &tree,
        is_set,
        out,
        redundancy: args.redundancy,
        group_bytes: args.group_size,
        reading: &reading,
        memory_bytes: args.common.io.memory_bytes(),
        in_order,
        expected: None,
        progress: &|bytes| progress.add(bytes),
        resumed: &|done, all| output::resumed(&args.common.report, done, all),
    };
    let (head, files) = create::create(&request, inputs)?;
    drop(progress);
    if args.common.report.explain {
        output::explain_geometry(&head, in_order)?;
    }
    output::digests(&args.common.report, &files, &shown)?;
    Ok(Status::Intact)
}

/// Whether the data are read in order, because their disk is rotational.
fn is_rotational(tree: &Tree, inputs: &[Input], reading: &Reading) -> bool {
    use blockring::{CacheMode, Plan, RunOptions, Source};
    if fault::is_rotational() {
        return true;
    }
    let sources: Vec<_> = inputs
        .iter()
        .filter(|input| input.file.len > 0)
        .take(12)
        .filter_map(|input| {
            let name = &input.file.name;
            let file = tree.open_file(name, CacheMode::Buffered).ok()?;
            Source::from_exclusive(file, tree.path(name), CacheMode::Buffered).ok()
        })
        .collect();
    !sources.is_empty()
        && Plan::choose_for_files(&sources, &reading.config, &RunOptions::default())
            .is_ok_and(|plan| plan.is_rotational())
}

/// A name on the command line: a sidecar, or a file that has one.
pub(crate) fn sidecar_of(name: &Path) -> PathBuf {
    let beside = suffixed(name, ".guard");
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
    fn new(name: &Path, common: &CommonArgs, bypass_cache: bool) -> Result<Opened> {
        let reading = common.io.reading(bypass_cache).map_err(usage)?;
        let path = sidecar_of(name);
        let sidecar = Sidecar::open(&path)?;
        let base = common.base_of(&path);
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

    /// Explains how the files are read, if that is wanted.
    fn explain(&self, report: &ReportArgs) -> Result<()> {
        if report.explain {
            eprintln!("{}", self.examination(&|_| ()).data().explain()?);
        }
        Ok(())
    }

    fn diagnose(&self, report: &ReportArgs) -> Result<Diagnosis> {
        let progress = Progress::new(report, self.total_bytes());
        self.examination(&|bytes| progress.add(bytes)).run()
    }
}

fn run_verify(args: &VerifyArgs, name: &Path) -> Result<Status> {
    // Before anything is read for hours.
    let listed = match &args.check {
        Some(list) => Some((list, diagnosis::read_list(list)?)),
        None => None,
    };
    let mut opened = Opened::new(name, &args.common, args.bypass_cache)?;
    opened.explain(&args.common.report)?;
    let diagnosis = opened.diagnose(&args.common.report)?;
    opened.sidecar.check_nodes();
    if args.parity {
        opened.sidecar.check_parity(&opened.reading);
    }
    let under = args.scrub.is_recursive().then(|| args.common.base_of(&opened.sidecar.path));
    let mut status =
        output::diagnosis(&args.common.report, under.as_deref(), &opened.sidecar, &diagnosis)?;
    if let Some((list, digests)) = listed {
        let Opened { sidecar, tree, .. } = &opened;
        if output::compare_list(&args.common.report, sidecar, tree, &digests, list)? {
            status = status.max(Status::BeyondRepair);
        }
    }
    if undo::exists(&opened.sidecar.path) {
        eprintln!(
            "ringguard: {}: a repair was interrupted; run it again, or put the old bytes back with repair --undo",
            opened.sidecar.path.display()
        );
    }
    Ok(status)
}

fn run_repair(args: &RepairArgs, name: &Path) -> Result<Status> {
    if args.undo {
        let path = sidecar_of(name);
        let base = args.common.base_of(&path);
        let tree = Tree::open(&base).with_context(|| base.display().to_string())?;
        undo::undo(&path, &tree)?;
        output::undone(&args.common.report, &path)?;
        return Ok(Status::Intact);
    }
    let mut opened = Opened::new(name, &args.common, false)?;
    opened.sidecar.check_nodes();
    opened.sidecar.check_parity(&opened.reading);
    opened.explain(&args.common.report)?;
    if !args.in_place && !undo::exists(&opened.sidecar.path) {
        let progress = Progress::new(&args.common.report, opened.total_bytes());
        let add = |bytes| progress.add(bytes);
        let repaired = one_pass::repair(&opened.examination(&add), args.discard)?;
        drop(progress);
        if let Some((state, kept)) = repaired {
            return complete(args, &opened, &Diagnosis::of_state(state), &kept);
        }
    }
    let diagnosis = opened.diagnose(&args.common.report)?;
    if !diagnosis.is_repairable() {
        return output::diagnosis(&args.common.report, None, &opened.sidecar, &diagnosis);
    }
    let mut kept = Vec::new();
    if !diagnosis.is_intact() {
        let progress = Progress::new(&args.common.report, opened.total_bytes());
        let add = |bytes| progress.add(bytes);
        let examination = opened.examination(&add);
        kept = match args.in_place {
            true => in_place::repair_in_place(&examination, &diagnosis)?,
            false => repair::repair_beside(&examination, &diagnosis, args.discard)?,
        };
    }
    complete(args, &opened, &diagnosis, &kept)
}

/// Reports a repair, and makes the sidecar again if that is damaged. `diagnosis`: before the repair.
fn complete(
    args: &RepairArgs,
    opened: &Opened,
    diagnosis: &Diagnosis,
    kept: &[String],
) -> Result<Status> {
    if !diagnosis.is_intact() {
        output::repaired(&args.common.report, &opened.sidecar, diagnosis, kept)?;
    }
    if undo::exists(&opened.sidecar.path) {
        // The repair that it is of is complete now.
        undo::forget(&opened.sidecar.path)?;
    }
    if opened.sidecar.damage.is_empty() {
        if diagnosis.is_intact() {
            output::diagnosis(&args.common.report, None, &opened.sidecar, diagnosis)?;
        }
        return Ok(Status::Intact);
    }
    remake(args, opened)?;
    output::remade(&args.common.report, &opened.sidecar)?;
    Ok(Status::Intact)
}

/// Makes a damaged sidecar again, from files that are intact.
fn remake(args: &RepairArgs, opened: &Opened) -> Result<()> {
    let Opened { tree, sidecar, reading } = opened;
    let mut inputs = Vec::new();
    for file in &sidecar.files {
        let (_, stat) =
            tree.read(&file.name).with_context(|| tree.path(&file.name).display().to_string())?;
        inputs.push(Input::new(file.name.clone(), &stat));
    }
    inputs.sort_by(|a, b| a.file.name.cmp(&b.file.name));
    let expected = sidecar.files.iter().map(|file| (file.name.clone(), file.root)).collect();
    let in_order = is_rotational(tree, &inputs, reading);
    let progress = Progress::new(&args.common.report, opened.total_bytes());
    let request = Request {
        tree,
        is_set: sidecar.head.is_set,
        out: sidecar.path.clone(),
        redundancy: sidecar.head.redundancy,
        group_bytes: sidecar.head.group_bytes,
        reading,
        memory_bytes: args.common.io.memory_bytes(),
        in_order,
        expected: Some(&expected),
        progress: &|bytes| progress.add(bytes),
        resumed: &|done, all| output::resumed(&args.common.report, done, all),
    };
    create::create(&request, inputs)?;
    Ok(())
}

fn run_info(args: &InfoArgs, name: &Path) -> Result<Status> {
    let mut sidecar = Sidecar::open(&sidecar_of(name))?;
    sidecar.check_nodes();
    output::info(args.json, &sidecar)?;
    Ok(if sidecar.damage.is_empty() { Status::Intact } else { Status::Repairable })
}
