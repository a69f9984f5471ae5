//! What is to be hashed, one after another: files that are named, files that lists name, and files in
//! trees.

use std::borrow::Cow;
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;

use ringsum::many::{Place, Task, ToHash, look_at, name_bytes};
use ringsum::walk::{Entry, Kind, Walk, WalkOptions};
use rustix::fs::FileType;

use crate::ahead::Ahead;
use crate::inputs::{Patient, is_stdin};
use crate::lines;
use crate::remember::{Memory, Remembered};
use crate::selection::Selection;
use crate::session::Session;

/// Threads that look at names ahead of their turn.
const LOOKERS: usize = 8;

/// Threads that read directories ahead.
const WALKERS: usize = 8;

/// A task of a run.
pub(crate) type TreeTask = Task<Tag>;

impl Tag {
    /// What it takes besides itself, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.what.as_deref().map_or(0, What::bytes)
            + self.remembered.as_deref().map_or(0, Remembered::bytes)
    }
}

impl What {
    /// What it takes, in bytes.
    fn bytes(&self) -> usize {
        let more = match self {
            What::Failed { path, why, .. } => path.len() + why.len(),
            What::Skipped(path, _) => path.len(),
            What::Node(entry, target) => {
                entry.name().len() + target.as_ref().map_or(0, |target| target.len())
            }
            What::End(path, _) => path.as_os_str().len(),
        };
        size_of::<What>() + more
    }
}

/// What is said of a task in its turn. (Boxed: many files are on their way, and most have neither.)
pub(crate) struct Tag {
    /// What came up instead of a file to be hashed.
    pub(crate) what: Option<Box<What>>,
    pub(crate) remembered: Option<Box<Remembered>>,
}

/// What came up.
pub(crate) enum What {
    /// Something that cannot be had; in a tree, or named by itself.
    Failed { path: Vec<u8>, why: String, in_tree: bool },
    /// Something that is left out, and what it is.
    Skipped(Vec<u8>, Cow<'static, str>),
    /// A directory, a link with its target, or something else without content, of a tree that gets a
    /// digest.
    Node(Entry, Option<Vec<u8>>),
    /// All of a tree was given. False: not all of it could be had.
    End(PathBuf, bool),
}

/// What a name is.
pub(crate) enum Looked {
    File(ToHash),
    Directory(PathBuf),
    Failed(PathBuf, io::Error),
}

/// What stands in the place of a regular file: for messages only, since it may be another by now.
pub(crate) fn what_is(path: &Path) -> &'static str {
    match rustix::fs::stat(path).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Fifo) => "a FIFO",
        Ok(FileType::Socket) => "a socket",
        Ok(FileType::BlockDevice) => "a block device",
        Ok(FileType::CharacterDevice) => "a character device",
        _ => "no regular file",
    }
}

/// Looks what a name stands for.
pub(crate) fn look(path: PathBuf) -> Looked {
    if is_stdin(&path) {
        let place = Place::Path(path);
        let (device, inode, algorithms) = (0, 0, None);
        let (is_regular, alone, extended) = (false, true, false);
        return Looked::File(ToHash {
            place,
            device,
            inode,
            is_regular,
            alone,
            extended,
            algorithms,
        });
    }
    match look_at(&path) {
        Err(error) => Looked::Failed(path, error),
        Ok(None) => Looked::Directory(path),
        Ok(Some(file)) => Looked::File(file),
    }
}

/// The names of files on the command line and in `--files-from`.
pub(crate) fn names(session: &Session<'_>) -> anyhow::Result<(Names, usize)> {
    let args = session.args;
    let default = match (&args.files_from, args.recursive) {
        _ if !args.files.is_empty() => None,
        (Some(_), _) => None,
        (None, true) => Some(PathBuf::from(".")),
        (None, false) => Some(PathBuf::from("-")),
    };
    let named: Vec<_> = args.files.iter().cloned().chain(default).collect();
    let count = named.len();
    let Some(list) = &args.files_from else {
        return Ok((Box::new(named.into_iter().map(Ok)), count));
    };
    let file =
        session.open_list(list).map_err(|error| anyhow::anyhow!("{}: {error}", list.display()))?;
    let listed = lines::Names::new(BufReader::new(Patient(file)), args.null);
    Ok((Box::new(named.into_iter().map(Ok).chain(listed)), usize::MAX))
}

/// Names, or why there are no more.
pub(crate) type Names = Box<dyn Iterator<Item = io::Result<PathBuf>> + Send>;

/// Makes the tasks of a run from names, and gives them to `run`.
pub(crate) fn with_tasks<R>(
    session: &Session<'_>,
    (names, count): (Names, usize),
    memory: Option<&Memory>,
    run: impl FnOnce(&mut dyn Iterator<Item = Option<TreeTask>>) -> R,
) -> anyhow::Result<R> {
    // Made again for each tree, since rules of one are none of another.
    walk_options(session)?;
    let source = Trees { session, memory, shares: session.shares() };
    let list = session.args.files_from.as_deref().unwrap_or(Path::new("-"));
    let budget = session.budget();
    let weigh = |name: &io::Result<PathBuf>| name.as_ref().map_or(0, |name| name_bytes(name));
    let comes_slowly = count == usize::MAX && !is_regular(list);
    let ahead = Ahead::new(names, comes_slowly, budget.names_bytes(), weigh);
    thread::scope(|scope| {
        let threads = budget.threads(LOOKERS.min(1 + count / 8));
        let looked = ahead.look(scope, threads, |name: io::Result<PathBuf>| name.map(look));
        let mut tasks = looked.flat_map(|looked| match looked {
            Some(Ok(looked)) => Either::Tasks(source.tasks_of(looked)),
            Some(Err(error)) => Either::Tasks(one(failed(list, &error))),
            None => Either::Pause(true),
        });
        Ok(run(&mut tasks))
    })
}

/// Counts what is in the files and trees on the command line, for the progress. (A list can be read once.)
pub(crate) fn count_ahead(session: &Session<'_>) -> anyhow::Result<()> {
    let args = session.args;
    let mut roots = args.files.clone();
    if roots.is_empty() && args.files_from.is_none() {
        roots.push(".".into());
    }
    let (walks, options) = (args.recursive, roots.iter().map(|_| walk_options(session)));
    let options = options.collect::<Result<Vec<_>, _>>()?;
    session.progress.count_ahead(move |ahead| {
        for (root, options) in roots.into_iter().zip(options) {
            match Walk::new(&root, &options) {
                Ok(walk) if walks => {
                    let files = walk.filter(|entry| matches!(entry.kind(), Kind::File));
                    files.for_each(|entry| {
                        ahead.add(entry.stat().map_or(0, |stat| stat.st_size as u64));
                    });
                }
                _ => ahead.add(root.metadata().map_or(0, |metadata| metadata.len())),
            }
        }
    });
    Ok(())
}

/// How trees are walked, by the options.
pub(crate) fn walk_options(session: &Session<'_>) -> anyhow::Result<WalkOptions> {
    let (args, budget) = (session.args, session.budget());
    Ok(WalkOptions {
        follow: args.follow,
        one_file_system: args.one_file_system,
        select: Selection::of(args)?,
        directories: args.tree_digest,
        threads: budget.threads(args.jobs.map_or(WALKERS, |jobs| WALKERS.min(jobs as usize))),
        ahead_bytes: budget.ahead_bytes(),
        listing_bytes: budget.listing_bytes(),
    })
}

/// Tasks, or the word that the next may take a while.
enum Either<'a> {
    Tasks(Tasks<'a>),
    Pause(bool),
}

impl Iterator for Either<'_> {
    type Item = Option<TreeTask>;

    fn next(&mut self) -> Option<Option<TreeTask>> {
        match self {
            Either::Tasks(tasks) => tasks.next().map(Some),
            Either::Pause(is_due) => std::mem::take(is_due).then_some(None),
        }
    }
}

type Tasks<'a> = Box<dyn Iterator<Item = TreeTask> + 'a>;

fn one<'a>(task: TreeTask) -> Tasks<'a> {
    Box::new(std::iter::once(task))
}

fn told(what: What) -> TreeTask {
    Task { tag: Tag { what: Some(Box::new(what)), remembered: None }, file: None }
}

/// Makes tasks.
struct Trees<'a> {
    session: &'a Session<'a>,
    memory: Option<&'a Memory>,
    /// Whether files can be read together.
    shares: bool,
}

fn failed_in_tree(entry: &Entry, error: &io::Error) -> TreeTask {
    told(What::Failed { path: entry.path(), why: error.to_string(), in_tree: true })
}

/// A name that nothing can be had of.
fn failed(path: &Path, error: &dyn std::fmt::Display) -> TreeTask {
    let path = path.as_os_str().as_bytes().to_vec();
    told(What::Failed { path, why: error.to_string(), in_tree: false })
}

impl Trees<'_> {
    fn tasks_of(&self, looked: Looked) -> Tasks<'_> {
        match looked {
            Looked::File(file) => {
                let Place::Path(path) = &file.place else { return Box::new(std::iter::empty()) };
                if let Some(what) = self.left_out(&file, path) {
                    let path = path.as_os_str().as_bytes().to_vec();
                    return one(told(What::Skipped(path, what.into())));
                }
                let key = self.memory.filter(|_| file.is_regular).map(|_| Memory::key_of(path));
                one(self.hash(file, key))
            }
            Looked::Failed(path, error) => one(failed(&path, &error)),
            Looked::Directory(path) if self.session.args.recursive => self.tree(path),
            Looked::Directory(path) => {
                let error = io::Error::from_raw_os_error(libc::EISDIR);
                one(failed(&path, &error))
            }
        }
    }

    /// What a name stands for, if that is left out: with `-r` and in lists of names, which programs make,
    /// what is no file is not opened. (Standard input is, and what is named on the command line without -r,
    /// and everything if that was asked for.)
    fn left_out(&self, file: &ToHash, path: &Path) -> Option<String> {
        let args = self.session.args;
        let is_named = || args.files.iter().any(|named| named == path);
        let is_meant = || !args.recursive && (args.files_from.is_none() || is_named());
        if file.is_regular || is_stdin(path) || args.allow_special || is_meant() {
            return None;
        }
        Some(format!("{} (--allow-special reads it)", what_is(path)))
    }

    fn hash(&self, mut file: ToHash, key: Option<Vec<u8>>) -> TreeTask {
        file.alone |= !self.shares;
        file.extended = self.session.args.blake3_is_extended();
        let remembered = self.memory.zip(key);
        let remembered = remembered.map(|(memory, key)| Box::new(memory.look_up(key)));
        Task { tag: Tag { what: None, remembered }, file: Some(file) }
    }

    fn tree(&self, root: PathBuf) -> Tasks<'_> {
        let options = walk_options(self.session);
        let walk = options.and_then(|options| Ok(Walk::new(&root, &options)?));
        let walk = match walk {
            Ok(walk) => walk,
            Err(error) => return one(failed(&root, &error)),
        };
        // What the keys of its files begin with.
        let key = self.memory.map(|_| [&Memory::key_of_tree(&root)[..], b"/"].concat());
        let mut is_whole = true;
        let mut walk = Some(walk);
        let tasks = std::iter::from_fn(move || {
            loop {
                let Some(entry) = walk.as_mut()?.next() else {
                    walk = None;
                    return Some(told(What::End(root.clone(), is_whole)));
                };
                is_whole &= !matches!(entry.kind(), Kind::Failed(_));
                if let Some(task) = self.task_of(entry, key.as_deref()) {
                    return Some(task);
                }
            }
        });
        Box::new(tasks)
    }

    /// What is done about an entry of a tree.
    fn task_of(&self, entry: Entry, root_key: Option<&[u8]>) -> Option<TreeTask> {
        let special = match entry.kind() {
            Kind::File => {
                let key = root_key.map(|root| entry.path_after(root));
                let (device, inode) = (entry.device(), entry.inode());
                if let (Some(memory), Some(key)) = (self.memory, &key)
                    && memory.is_own(key, device, inode)
                {
                    return Some(told(What::Skipped(entry.path(), "the index of this run".into())));
                }
                if self.session.output.is_own(device, inode) {
                    return Some(told(What::Skipped(entry.path(), "where the hashes go".into())));
                }
                return Some(self.hash(entry.into(), key));
            }
            Kind::Failed(error) => return Some(failed_in_tree(&entry, error)),
            Kind::Directory | Kind::Symlink if !self.session.args.tree_digest => return None,
            Kind::Directory => None,
            Kind::Symlink => {
                let target = match entry.read_link() {
                    Ok(target) => target,
                    Err(error) => return Some(failed_in_tree(&entry, &error)),
                };
                return Some(told(What::Node(entry, Some(target))));
            }
            Kind::Fifo => Some("a FIFO"),
            Kind::Socket => Some("a socket"),
            Kind::BlockDevice => Some("a block device"),
            Kind::CharDevice => Some("a character device"),
        };
        Some(told(match special {
            Some(what) if !self.session.args.tree_digest => {
                What::Skipped(entry.path(), what.into())
            }
            _ => What::Node(entry, None),
        }))
    }
}

/// The name of a task's file, as it is shown.
pub(crate) fn name_of(task: &TreeTask) -> Vec<u8> {
    match (task.tag.what.as_deref(), &task.file) {
        (Some(What::Failed { path, .. } | What::Skipped(path, _)), _) => path.clone(),
        (Some(What::Node(entry, _)), _) => entry.path(),
        (Some(What::End(path, _)), _) => path.as_os_str().as_bytes().to_vec(),
        (None, Some(ToHash { place: Place::Entry(entry), .. })) => entry.path(),
        (None, Some(ToHash { place: Place::Path(path), .. })) => {
            path.as_os_str().as_bytes().to_vec()
        }
        (None, None) => Vec::new(),
    }
}

/// Whether all of a list is there already.
fn is_regular(list: &Path) -> bool {
    let metadata = match is_stdin(list) {
        true => std::fs::metadata("/proc/self/fd/0"),
        false => std::fs::metadata(list),
    };
    metadata.is_ok_and(|metadata| metadata.is_file())
}

/// Raises the limit on open files to what may be had: a walk keeps directories open, and a run files.
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // More than this helps nobody, and `select` in a library may not like it.
    let wanted = maximum.unwrap_or(65_536).min(65_536);
    if current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}
