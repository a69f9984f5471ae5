//! `ringsum FILE...`: a line for each input, in the order of the arguments; and for each file of a tree, in
//! the order of the names.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use blockring::{Shared, Source};
use ringsum::many::{
    Failure, Hashed, Known, ManyOptions, Outcome, Place, Step, Task, ToHash, Watch, When, hash_many,
};
use ringsum::tree_digest::{Node, Special, TreeDigest};
use ringsum::walk::Kind;

use crate::Status;
use crate::index;
use crate::inputs;
use crate::interrupt::Interrupt;
use crate::output::OutputError;
use crate::print::Printer;
use crate::remember::{Memory, Verdict};
use crate::session::{DigestError, Session, lock};
use crate::trees::{self, Tag, What};

/// Hashes every file; one that cannot be hashed gives a message, and the others go on.
pub(crate) fn run(session: &Session<'_>) -> anyhow::Result<Status> {
    let args = session.args;
    let is_plain = !args.recursive && args.files_from.is_none() && args.index.is_none();
    match !args.reads_many() || (is_plain && !session.shares()) {
        true => one_by_one(session),
        false => together(session),
    }
}

fn one_by_one(session: &Session<'_>) -> anyhow::Result<Status> {
    let files: &[_] = match &*session.args.files {
        [] => &[Path::new("-").to_owned()],
        files => files,
    };
    session.progress.expect(|| files.iter().map(|path| length(path, true)).sum());
    let printer = Printer::new(session);
    let mut status = Status::Success;
    for path in files {
        let name = match session.args.guise {
            Some(guise) if inputs::is_stdin(path) => guise.stdin_name(),
            _ => path.as_os_str().as_bytes(),
        };
        let printed = match session.hash_again(path) {
            Ok(hashed) => {
                session.count_inputs(1, false);
                printer.hash(name, &hashed)
            }
            Err(failure) => {
                status = Status::Failure;
                printer.failed(name, &failure)
            }
        };
        match printed {
            Ok(()) => {}
            // What was found until then still counts.
            Err(error) if error.reader_left() => break,
            Err(error) => {
                session.finish()?;
                return Err(error.into());
            }
        }
    }
    session.finish()?;
    Ok(status)
}

/// Bytes that `path` will take to hash: 0 if there is no such file, `None` if only reading it tells.
/// `special`: a device may be opened for that.
pub(crate) fn length(path: &Path, special: bool) -> Option<u64> {
    match inputs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_block_device() && special => {
            Source::open(path).ok()?.len()
        }
        Ok(metadata) if metadata.is_file() && inputs::is_stdin(path) => {
            let position = rustix::fs::tell(rustix::stdio::stdin()).unwrap_or(0);
            Some(metadata.len().saturating_sub(position))
        }
        Ok(metadata) if metadata.is_file() || metadata.is_dir() => Some(metadata.len()),
        Ok(_) => None,
        Err(_) => Some(0),
    }
}

/// Many files at once.
fn together(session: &Session<'_>) -> anyhow::Result<Status> {
    trees::raise_open_files();
    let args = session.args;
    let memory = match &args.index {
        Some(path) => {
            let memory = Memory::open(path, args.verify_index)?;
            if let Some(weakness) = index::weakness(path) {
                let text = format!(
                    "warning: who can change an index can hide that files have changed: {weakness}"
                );
                session.say_of(path.as_os_str().as_bytes(), &text);
            }
            Some(memory)
        }
        None => None,
    };
    let names = trees::names(session)?;
    trees::count_ahead(session)?;
    let telling = Mutex::new(Telling::new(session, memory.as_ref()));
    let tell = |outcome| lock(&telling).tell(outcome);
    let known = |tag: &Tag, device: u64, stamp: &blockring::Stamp| {
        memory.as_ref()?.known(tag.remembered.as_deref()?, device, stamp)
    };
    let result = trees::with_tasks(session, names, memory.as_ref(), |tasks| {
        let known: Known<'_, Tag> = &known;
        let known = memory.is_some().then_some(known);
        run_together(session, tasks, Tag::bytes, known, tell, &|| {
            // What was found until now need not be found again.
            if let Some(memory) = &memory {
                let _ = memory.flush();
            }
        })
    })?;
    let telling = telling.into_inner().unwrap_or_else(PoisonError::into_inner);
    let status = telling.end();
    session.finish()?;
    match result {
        Err(error) if !error.reader_left() => Err(error.into()),
        _ => status,
    }
}

/// Runs tasks with the options of a session, and tells of each. `weigh` says what a tag takes besides itself, in
/// bytes; `interrupted` is called before Ctrl-C ends the process.
pub(crate) fn run_together<T: Send>(
    session: &Session<'_>,
    tasks: impl Iterator<Item = Option<Task<T>>>,
    weigh: fn(&T) -> usize,
    known: Option<Known<'_, T>>,
    tell: impl FnMut(Outcome<T>) -> Result<(), OutputError> + Send,
    interrupted: &(dyn Fn() + Sync),
) -> Result<(), OutputError> {
    session.output.collect();
    let files = AtomicU64::new(0);
    let alone = |task: &Task<T>| alone(session, task.file.as_ref());
    let again = |task: &Task<T>, again| {
        let path = match &task.file.as_ref()?.place {
            Place::Path(path) => path,
            // No entry of a directory is standard input.
            Place::Entry(_) => Path::new(""),
        };
        session.again_after(path, again)
    };
    let device = |shared: &Shared, when| match when {
        When::Before => session.explain_shared(shared),
        When::After => session.add_stats(shared),
    };
    let progress = |step: Step| match step {
        Step::Bytes(bytes) => session.progress.add(bytes),
        Step::File { known } => {
            files.fetch_add(1, Ordering::Relaxed);
            session.progress.add_file(known);
        }
    };
    let options = ManyOptions {
        hash: &session.options,
        algorithms: session.algorithms,
        jobs: session.args.jobs.map(|jobs| jobs as usize),
        unordered: session.args.unordered,
        weigh,
        known,
        alone: &alone,
        again: (session.args.retry_changed > 0).then_some(&again),
        device: &device,
        progress: &progress,
    };
    let flush = || {
        // There is nobody left to tell.
        let _ = session.output.flush();
        session.progress.finish();
        interrupted();
    };
    let tick = || {
        // What is wrong with it, the next line meets, too.
        let _ = session.output.flush_old();
    };
    let interrupt = Interrupt::new(&flush, &tick);
    let watch = interrupt.as_ref().map(|interrupt| interrupt as &dyn Watch);
    let result = hash_many(tasks, &options, tell, watch).and(session.output.flush());
    session.count_inputs(files.into_inner(), session.shares());
    result
}

/// Hashes what is not read together with others.
fn alone(session: &Session<'_>, file: Option<&ToHash>) -> Result<Hashed, Failure> {
    let Some(file) = file else {
        return Err(Failure::Alone("there is nothing to read".to_owned()));
    };
    let algorithms = file.algorithms.unwrap_or(session.algorithms);
    let path = match &file.place {
        Place::Path(path) if !file.is_regular => {
            return session.hash(path, &algorithms).map_err(DigestError::into_failure);
        }
        Place::Path(path) => Cow::Borrowed(&**path),
        Place::Entry(entry) => Cow::Owned(PathBuf::from(OsString::from_vec(entry.path()))),
    };
    let source = file.open()?;
    let hashed = session.hash_source(&source, &path, &algorithms);
    hashed.map_err(|error| file.named(&source, error.into_failure()))
}

/// What is said of tasks, in their turn.
struct Telling<'a> {
    session: &'a Session<'a>,
    printer: Printer<'a>,
    memory: Option<&'a Memory>,
    tree: TreeDigest,
    /// Something in the tree could not be had, so that it has no digest.
    is_broken: bool,
    failed: u64,
    /// How many of them since they changed.
    changed: u64,
}

impl<'a> Telling<'a> {
    fn new(session: &'a Session<'a>, memory: Option<&'a Memory>) -> Telling<'a> {
        Telling {
            session,
            printer: Printer::new(session),
            memory,
            tree: TreeDigest::default(),
            is_broken: false,
            failed: 0,
            changed: 0,
        }
    }

    fn tell(&mut self, outcome: Outcome<Tag>) -> Result<(), OutputError> {
        let Outcome { task, result } = outcome;
        let name = trees::name_of(&task);
        match (result, task.tag.what.as_deref()) {
            (Some(Ok(hashed)), _) => {
                self.session.progress.show(&name);
                if let Some((memory, remembered)) = self.memory.zip(task.tag.remembered.as_deref())
                    && memory.take_down(remembered, &hashed) == Verdict::Corrupt
                {
                    self.failed += 1;
                    self.is_broken = true;
                    let text = "corrupt: its size and its times are those of the index, and its \
                                bytes are others";
                    return self.printer.corrupt(&name, &hashed, text);
                }
                match &task.file {
                    Some(ToHash { place: Place::Entry(entry), .. })
                        if self.session.args.tree_digest
                            && let Some(hash) = hashed.hash() =>
                    {
                        let is_executable =
                            hashed.stamp.is_some_and(|stamp| stamp.mode & 0o100 != 0);
                        let node = Node::File { hash: hash.as_bytes(), is_executable };
                        self.tree.add(&entry.relative_path(), node);
                        Ok(())
                    }
                    _ => self.printer.hash(&name, &hashed),
                }
            }
            (Some(Err(failure)), _) => {
                let place = task.file.as_ref().map(|file| &file.place);
                self.is_broken |= matches!(place, Some(Place::Entry(_)));
                self.failed += 1;
                self.changed += u64::from(failure.change().is_some());
                self.printer.failed(&name, &failure)
            }
            (None, Some(What::Failed { why, in_tree, .. })) => {
                self.is_broken |= in_tree;
                self.fail(&name, why)
            }
            (None, Some(What::Skipped(_, what))) => self.printer.skipped(&name, what),
            (None, Some(What::Node(entry, target))) => {
                let special = match entry.kind() {
                    Kind::Fifo => Node::Special(Special::Fifo),
                    Kind::Socket => Node::Special(Special::Socket),
                    Kind::BlockDevice => Node::Special(Special::BlockDevice),
                    Kind::CharDevice => Node::Special(Special::CharDevice),
                    _ => Node::Directory,
                };
                let node = target.as_ref().map_or(special, |target| Node::Link(target));
                self.tree.add(&entry.relative_path(), node);
                Ok(())
            }
            (None, Some(What::End(root, is_whole))) => self.end_tree(root, *is_whole),
            (None, None) => Ok(()),
        }
    }

    fn fail(&mut self, name: &[u8], why: &str) -> Result<(), OutputError> {
        self.failed += 1;
        self.printer.failure(name, why)
    }

    fn end_tree(&mut self, root: &Path, is_whole: bool) -> Result<(), OutputError> {
        if let Some(memory) = self.memory
            && is_whole
            && self.session.args.sees_all()
        {
            memory.forget_unseen(root);
        }
        if !self.session.args.tree_digest {
            return Ok(());
        }
        let tree = std::mem::take(&mut self.tree);
        match std::mem::take(&mut self.is_broken) {
            false => self.printer.tree(root.as_os_str().as_bytes(), tree.finish()),
            true => {
                let why = "no digest of the tree, since not all of it could be read";
                self.printer.failure(root.as_os_str().as_bytes(), why)
            }
        }
    }

    /// What is said at the end.
    fn end(self) -> anyhow::Result<Status> {
        let Telling { session, memory, failed, changed, .. } = self;
        session.progress.finish();
        if let Some(memory) = memory {
            let counts = memory.flush()?;
            if session.args.verify_index {
                let index = format_args!(
                    "index: {} unchanged, {} changed, {} new, {} gone, {} corrupt",
                    counts.unchanged, counts.changed, counts.new, counts.gone, counts.corrupt
                )
                .to_string();
                session.messages.say(&index);
            }
        }
        if failed == 0 {
            return Ok(Status::Success);
        }
        let files = if failed == 1 { "file" } else { "files" };
        match changed {
            0 => session.messages.say(&format_args!("{failed} {files} failed")),
            _ => {
                let why = "because of changes while reading";
                session.messages.say(&format_args!("{failed} {files} failed, {changed} {why}"));
            }
        }
        Ok(Status::Failure)
    }
}
