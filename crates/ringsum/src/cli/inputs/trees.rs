//! The jobs of a run: named files, files in lists, and files in trees.

use std::borrow::Cow;
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;

use ringsum::files::walk::{Entry, Kind, Walk, WalkOptions};
use ringsum::files::{Failure, InputFile, Job, Location};
use rustix::fs::FileType;

use super::lines;
use super::selection::Selection;
use super::stat_ahead::StatAhead;
use crate::cli::cache::{CacheEntry, HashCache};
use crate::cli::memory::name_bytes;
use crate::cli::open::{self, Patient, is_stdin};
use crate::cli::session::Session;

/// Threads that look up names ahead.
const STAT_THREADS: usize = 8;

/// Threads that read directories ahead.
const WALK_THREADS: usize = 8;

/// A job of a run.
pub(crate) type TreeJob = Job<Tag>;

/// Data of a job besides its file. (Boxed: there are many jobs at a time, and most have neither.)
pub(crate) struct Tag {
    /// What to report instead of a digest.
    pub(crate) item: Option<Box<Item>>,
    pub(crate) cache_entry: Option<Box<CacheEntry>>,
}

/// A result that is not a digest.
pub(crate) enum Item {
    /// An entry of a tree, or a named file, that is not available.
    Failed { path: Vec<u8>, why: String, in_tree: bool },
    /// An entry that is skipped, and its type.
    Skipped(Vec<u8>, Cow<'static, str>),
    /// For a tree digest: a directory, a link with its target, or another entry without content.
    Node(Entry, Option<Vec<u8>>),
    /// The end of a tree.
    TreeEnd(PathBuf),
}

impl Tag {
    /// Returns its memory besides itself, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.item.as_deref().map_or(0, Item::bytes)
            + self.cache_entry.as_deref().map_or(0, CacheEntry::bytes)
    }
}

impl Item {
    fn bytes(&self) -> usize {
        let more = match self {
            Item::Failed { path, why, .. } => path.len() + why.len(),
            Item::Skipped(path, _) => path.len(),
            Item::Node(entry, target) => {
                entry.name().len() + target.as_ref().map_or(0, |target| target.len())
            }
            Item::TreeEnd(path) => path.as_os_str().len(),
        };
        size_of::<Item>() + more
    }
}

/// The result of looking up a name.
pub(crate) enum StatResult {
    File(InputFile),
    Directory(PathBuf),
    Failed(PathBuf, io::Error),
}

/// Returns the type of a special file, for messages only, because it may be replaced at any time.
pub(crate) fn type_of(path: &Path) -> &'static str {
    match rustix::fs::stat(path).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Fifo) => "a FIFO",
        Ok(FileType::Socket) => "a socket",
        Ok(FileType::BlockDevice) => "a block device",
        Ok(FileType::CharacterDevice) => "a character device",
        _ => "not a regular file",
    }
}

/// Looks up a name.
pub(crate) fn stat(path: PathBuf) -> StatResult {
    if is_stdin(&path) {
        return StatResult::File(InputFile {
            location: Location::Path(path),
            device: 0,
            inode: 0,
            is_regular: false,
            is_separate: true,
            extended: false,
            algorithms: None,
        });
    }
    match InputFile::from_path(&path) {
        Err(error) => StatResult::Failed(path, error),
        Ok(None) => StatResult::Directory(path),
        Ok(Some(file)) => StatResult::File(file),
    }
}

/// Names of files, with the number of the line for those from a list; an error ends them.
type NameIter = Box<dyn Iterator<Item = io::Result<(PathBuf, Option<u64>)>> + Send>;

/// Returns the names on the command line and in `--files-from`, and their number if it is known.
fn names(session: &Session<'_>) -> anyhow::Result<(NameIter, Option<usize>)> {
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
        return Ok((Box::new(named.into_iter().map(|name| Ok((name, None)))), Some(count)));
    };
    let file =
        session.open_list(list).map_err(|error| anyhow::anyhow!("{}: {error}", list.display()))?;
    let end = if args.null { 0 } else { b'\n' };
    let listed = lines::names(BufReader::new(Patient(file)), end);
    let listed = listed.map(|name| name.map(|(name, number)| (name, Some(number))));
    Ok((Box::new(named.into_iter().map(|name| Ok((name, None))).chain(listed)), None))
}

/// Creates the jobs of a run, and passes them to `run`. Fails if the list cannot be opened, or the
/// options for trees are invalid.
pub(crate) fn with_jobs<R>(
    session: &Session<'_>,
    cache: Option<&HashCache>,
    run: impl FnOnce(&mut dyn Iterator<Item = Option<TreeJob>>) -> R,
) -> anyhow::Result<R> {
    let (names, count) = names(session)?;
    // (Checks the options; created again for each tree, which has its own `.gitignore` rules.)
    walk_options(session)?;
    let source = JobSource { session, cache, supports_sharing: session.supports_sharing() };
    let list = session.args.files_from.as_deref().unwrap_or(Path::new("-"));
    let shares = session.shares();
    let name_bytes = |name: &io::Result<(PathBuf, Option<u64>)>| {
        name.as_ref().map_or(0, |(name, _)| name_bytes(name))
    };
    let comes_slowly = count.is_none() && !is_regular(list);
    let ahead = StatAhead::new(names, comes_slowly, shares.names_bytes(), name_bytes);
    thread::scope(|scope| {
        let threads = count.map_or(STAT_THREADS, |count| STAT_THREADS.min(1 + count / 8));
        let threads = shares.threads(threads);
        let results = ahead.start(scope, threads, |name: io::Result<(PathBuf, Option<u64>)>| {
            name.map(|(name, number)| (stat(name), number))
        });
        let jobs = results.flat_map(|result| match result {
            Some(Ok((StatResult::Failed(path, error), Some(number)))) => {
                let hint = lines::hint(path.as_os_str().as_bytes(), number);
                let what = if session.args.null { "name" } else { "line" };
                let list = match is_stdin(list) {
                    true => "standard input".into(),
                    false => list.to_string_lossy(),
                };
                one(failed(&path, &format_args!("{error}{hint} ({what} {number} of {list})")))
            }
            Some(Ok((result, _))) => source.jobs_of(result),
            Some(Err(error)) => one(failed(list, &error)),
            None => Box::new(std::iter::once(None)),
        });
        Ok(run(&mut counted(session, jobs)))
    })
}

/// Counts the files of jobs for the progress bar.
pub(crate) fn counted<T>(
    session: &Session<'_>,
    mut jobs: impl Iterator<Item = Option<Job<T>>>,
) -> impl Iterator<Item = Option<Job<T>>> {
    session.progress.expect_files();
    std::iter::from_fn(move || {
        let job = jobs.next();
        match &job {
            None => session.progress.set_complete(),
            Some(Some(Job { file: Some(_), .. })) => session.progress.add_found(),
            Some(_) => {}
        }
        job
    })
}

/// Returns the options for walking trees.
pub(crate) fn walk_options(session: &Session<'_>) -> anyhow::Result<WalkOptions> {
    let (args, shares) = (session.args, session.shares());
    Ok(WalkOptions {
        follow: args.follow,
        one_file_system: args.one_file_system,
        select: Selection::of(args)?,
        directories: args.tree_digest,
        threads: shares.threads(args.jobs.map_or(WALK_THREADS, |n| WALK_THREADS.min(n as usize))),
        ahead_bytes: shares.ahead_bytes(),
        listing_bytes: shares.listing_bytes(),
    })
}

/// Jobs; a `None` means that the next one may take a while.
type Jobs<'a> = Box<dyn Iterator<Item = Option<TreeJob>> + 'a>;

fn one<'a>(job: TreeJob) -> Jobs<'a> {
    Box::new(std::iter::once(Some(job)))
}

fn report(item: Item) -> TreeJob {
    Job { tag: Tag { item: Some(Box::new(item)), cache_entry: None }, file: None }
}

fn failed_in_tree(entry: &Entry, error: &io::Error) -> TreeJob {
    report(Item::Failed { path: entry.path(), why: error.to_string(), in_tree: true })
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> TreeJob {
    let path = path.as_os_str().as_bytes().to_vec();
    report(Item::Failed { path, why: error.to_string(), in_tree: false })
}

/// Creates jobs from names.
struct JobSource<'a> {
    session: &'a Session<'a>,
    cache: Option<&'a HashCache>,
    supports_sharing: bool,
}

impl JobSource<'_> {
    fn jobs_of(&self, result: StatResult) -> Jobs<'_> {
        match result {
            StatResult::File(file) => {
                let Location::Path(path) = &file.location else {
                    return Box::new(std::iter::empty());
                };
                if let Some(what) = self.is_skipped(&file, path) {
                    let path = path.as_os_str().as_bytes().to_vec();
                    return one(report(Item::Skipped(path, what.into())));
                }
                let key = self.cache.filter(|_| file.is_regular).map(|_| HashCache::key_of(path));
                one(self.hash(file, key))
            }
            StatResult::Failed(path, error) => one(failed(&path, &error)),
            StatResult::Directory(path) if self.session.args.recursive => self.tree(path),
            StatResult::Directory(path) => {
                let error = io::Error::from_raw_os_error(libc::EISDIR);
                one(failed(&path, &self.session.describe(&Failure::Open(error))))
            }
        }
    }

    /// Returns the type of a special file that must be skipped: with `-r`, and in lists of names,
    /// which programs generate. (Not standard input, files named on the command line without `-r`,
    /// or with `--allow-special`.)
    fn is_skipped(&self, file: &InputFile, path: &Path) -> Option<String> {
        let args = self.session.args;
        let is_named = || args.files.iter().any(|named| named == path);
        let is_explicit = || !args.recursive && (args.files_from.is_none() || is_named());
        if file.is_regular || is_stdin(path) || args.allow_special || is_explicit() {
            return None;
        }
        Some(format!("{} (--allow-special reads it)", type_of(path)))
    }

    fn hash(&self, mut file: InputFile, key: Option<Vec<u8>>) -> TreeJob {
        file.is_separate |= !self.supports_sharing;
        file.extended = self.session.args.needs_extended_output();
        let cache_entry = self.cache.zip(key).map(|(cache, key)| Box::new(cache.look_up(key)));
        Job { tag: Tag { item: None, cache_entry }, file: Some(file) }
    }

    fn tree(&self, root: PathBuf) -> Jobs<'_> {
        let options = walk_options(self.session);
        let walk = options.and_then(|options| Ok(Walk::new(&root, &options)?));
        let walk = match walk {
            Ok(walk) => walk,
            Err(error) => return one(failed(&root, &error)),
        };
        // The prefix of the keys of its files.
        let key = self.cache.map(|_| [&HashCache::key_of_tree(&root)[..], b"/"].concat());
        let mut is_whole = true;
        let (mut walk, mut is_started) = (Some(walk), false);
        let cache = self.cache.filter(|_| self.session.args.sees_all());
        let jobs = std::iter::from_fn(move || {
            if let Some(cache) = cache.filter(|_| !std::mem::replace(&mut is_started, true)) {
                cache.start_tree(&root);
            }
            loop {
                let Some(entry) = walk.as_mut()?.next() else {
                    walk = None;
                    if let Some(cache) = cache.filter(|_| is_whole) {
                        cache.finish_tree();
                    }
                    return Some(Some(report(Item::TreeEnd(root.clone()))));
                };
                is_whole &= !matches!(entry.kind(), Kind::Failed(_));
                if let job @ Some(_) = self.job_of(entry, key.as_deref()) {
                    return Some(job);
                }
            }
        });
        Box::new(jobs)
    }

    /// Returns the job for an entry of a tree, if there is one.
    fn job_of(&self, entry: Entry, root_key: Option<&[u8]>) -> Option<TreeJob> {
        let skip =
            |entry: &Entry, what: &'static str| report(Item::Skipped(entry.path(), what.into()));
        let special = match entry.kind() {
            Kind::File if self.cache.is_some_and(|cache| cache.is_own(&entry)) => {
                return Some(skip(&entry, "the index of this run"));
            }
            Kind::File if self.session.output.is_own(&entry) => {
                return Some(skip(&entry, "the output of this run"));
            }
            Kind::File => {
                let key = root_key.map(|root| entry.path_after(root));
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
                return Some(report(Item::Node(entry, Some(target))));
            }
            Kind::Fifo => Some("a FIFO"),
            Kind::Socket => Some("a socket"),
            Kind::BlockDevice => Some("a block device"),
            Kind::CharDevice => Some("a character device"),
        };
        Some(match special {
            Some(what) if !self.session.args.tree_digest => skip(&entry, what),
            _ => report(Item::Node(entry, None)),
        })
    }
}

/// Returns the displayed name of a job's file.
pub(crate) fn name_of(job: &TreeJob) -> Vec<u8> {
    match (job.tag.item.as_deref(), &job.file) {
        (Some(Item::Failed { path, .. } | Item::Skipped(path, _)), _) => path.clone(),
        (Some(Item::Node(entry, _)), _) => entry.path(),
        (Some(Item::TreeEnd(path)), _) => path.as_os_str().as_bytes().to_vec(),
        (None, Some(InputFile { location: Location::Entry(entry), .. })) => entry.path(),
        (None, Some(InputFile { location: Location::Path(path), .. })) => {
            path.as_os_str().as_bytes().to_vec()
        }
        (None, None) => Vec::new(),
    }
}

/// Whether a list is complete already, rather than being written to a pipe.
fn is_regular(list: &Path) -> bool {
    open::metadata(list).is_ok_and(|metadata| metadata.is_file())
}

/// Raises the limit on open files to the hard limit: walks keep directories open, and runs files.
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // (More is useless, and may break `select` in a library.)
    let wanted = maximum.unwrap_or(65_536).min(65_536);
    if current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}
