//! `ringsum FILE...`: one line per input, in the order of the arguments; for trees, one per file,
//! in the order of names.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use blockring::{Fingerprint, Source};
use ringsum::Resume;
use ringsum::files::{
    Failure, FilesOptions, Hashed, InputFile, Job, Location, Outcome, Progress, Watch, hash_files,
};

use super::tree_digest::{Node, TreeDigest};
use crate::cli::Status;
use crate::cli::allocator::Guard;
use crate::cli::cache::resume::ResumeStore;
use crate::cli::cache::{CacheEntry, HashCache, INTERRUPTED_WAIT};
use crate::cli::inputs::trees::{self, Item, Tag};
use crate::cli::interrupt::Interrupt;
use crate::cli::lock;
use crate::cli::open;
use crate::cli::output::OutputError;
use crate::cli::session::Session;

/// Hashes every file. A file that cannot be hashed is reported, and the run continues.
pub(crate) fn run(session: &Session<'_>) -> anyhow::Result<Status> {
    let args = session.args;
    let is_plain = !args.recursive && args.files_from.is_none() && args.index.is_none();
    match !args.reads_many() || (is_plain && !session.supports_sharing()) {
        true => one_by_one(session),
        false => in_parallel(session),
    }
}

fn one_by_one(session: &Session<'_>) -> anyhow::Result<Status> {
    let _guard = Guard::new(&session.output);
    let files: &[_] = match &*session.args.files {
        [] => &[Path::new("-").to_owned()],
        files => files,
    };
    session.progress.expect(|| files.iter().map(|path| length(path)).sum());
    let mut status = Status::Success;
    for path in files {
        let name = match session.args.applet {
            Some(applet) if open::is_stdin(path) => applet.stdin_name(),
            _ => path.as_os_str().as_bytes(),
        };
        let printed = match session.hash_with_retries(path) {
            Ok(hashed) => {
                session.totals.count_inputs(1, false);
                session.print_hash(name, &hashed)
            }
            Err(failure) => {
                status = Status::Failure;
                session.print_failure(name, &failure)
            }
        };
        match printed {
            Ok(()) => {}
            // (Earlier failures still count.)
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

/// The number of bytes to hash in `path`: 0 if there is no such file, `None` if it is unknown.
pub(super) fn length(path: &Path) -> Option<u64> {
    match open::metadata(path) {
        Ok(metadata) if metadata.file_type().is_block_device() => Source::open(path).ok()?.len(),
        Ok(metadata) if metadata.is_file() && open::is_stdin(path) => {
            let position = rustix::fs::tell(rustix::stdio::stdin()).unwrap_or(0);
            Some(metadata.len().saturating_sub(position))
        }
        Ok(metadata) if metadata.is_file() || metadata.is_dir() => Some(metadata.len()),
        Ok(_) => None,
        Err(_) => Some(0),
    }
}

/// Hashes many files.
fn in_parallel(session: &Session<'_>) -> anyhow::Result<Status> {
    trees::raise_open_files();
    let args = session.args;
    let open_cache = |path| HashCache::open(session, path, args.verify_index);
    let cache = args.index.as_deref().map(open_cache).transpose()?;
    // (To verify the index is to read everything.)
    let resumed = args.index.as_deref().filter(|_| !args.verify_index);
    let resumes = resumed.map(|path| ResumeStore::open(path, args.resume_bytes)).transpose()?;
    let reporter = Mutex::new(Reporter::new(session, cache.as_ref()));
    let report = |outcome| lock(&reporter).report(outcome);
    let (from_index, from_index_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let cached = |tag: &Tag, device: u64, fingerprint: &Fingerprint| {
        let hash = cache.as_ref()?.cached(tag.cache_entry.as_deref()?, device, fingerprint)?;
        from_index.fetch_add(1, Ordering::Relaxed);
        from_index_bytes.fetch_add(fingerprint.len, Ordering::Relaxed);
        Some(hash)
    };
    let result = trees::with_jobs(session, cache.as_ref(), |jobs| {
        let cached = cache.is_some().then_some(&cached as FindCached<'_, Tag>);
        let known = (cached, resumes.as_ref());
        hash_in_parallel(session, jobs, Tag::bytes, known, report, &|| {
            // Hashes found so far need not be computed again in the next run.
            if let Some(cache) = &cache {
                let _ = cache.flush();
            }
        })
    })?;
    session.totals.count_from_index(from_index.into_inner(), from_index_bytes.into_inner());
    let reporter = reporter.into_inner().unwrap_or_else(PoisonError::into_inner);
    let status = reporter.finish();
    session.finish()?;
    match result {
        Err(error) if !error.reader_left() => Err(error.into()),
        _ => status,
    }
}

/// See [`FilesOptions::cached`].
type FindCached<'a, T> = &'a (dyn Fn(&T, u64, &Fingerprint) -> Option<[u8; 32]> + Sync);

/// Runs jobs with the options of a session. `tag_bytes` returns the memory of a tag; `known` is what
/// was computed by earlier runs: digests, and values of long files; `interrupted` is called before Ctrl-C ends the process.
pub(super) fn hash_in_parallel<T: Send>(
    session: &Session<'_>,
    jobs: impl Iterator<Item = Option<Job<T>>>,
    tag_bytes: fn(&T) -> usize,
    known: (Option<FindCached<'_, T>>, Option<&ResumeStore>),
    report: impl FnMut(Outcome<T>) -> Result<(), OutputError> + Send,
    interrupted: &(dyn Fn() + Sync),
) -> Result<(), OutputError> {
    session.output.start_buffering();
    let _guard = Guard::new(&session.output);
    let files = AtomicU64::new(0);
    let (cached, resumes) = known;
    let hash_one = |job: &Job<T>| hash_one(session, resumes, job.file.as_ref());
    let retry_after = |job: &Job<T>, retries| {
        let path = match &job.file.as_ref()?.location {
            Location::Path(path) => path,
            // (An entry of a directory is never standard input.)
            Location::Entry(_) => Path::new(""),
        };
        session.retry_after(path, retries)
    };
    let progress = |progress: Progress| match progress {
        Progress::Bytes(bytes) => session.progress.add(bytes),
        Progress::File { cached_bytes } => {
            files.fetch_add(1, Ordering::Relaxed);
            session.progress.add_file(cached_bytes);
        }
    };
    let options = FilesOptions {
        hash: session.options(),
        small_threads: session.args.jobs.map(|jobs| jobs as usize),
        unordered: session.args.unordered,
        tag_bytes,
        cached,
        hash_one: &hash_one,
        separate_bytes_min: resumes.map_or(u64::MAX, ResumeStore::file_bytes_min),
        retry_after: (session.args.retry_changed > 0).then_some(&retry_after),
        on_plan: &|plan| session.explain_device(plan),
        on_finished: &|plan| session.totals.add_device(plan),
        progress: &progress,
    };
    let flush = || {
        // (An error here cannot be reported.)
        let _ = session.output.flush();
        session.progress.finish();
        if let Some(resumes) = resumes {
            resumes.flush(INTERRUPTED_WAIT);
        }
        interrupted();
    };
    let tick = || {
        // (The next line fails with the same error.)
        let _ = session.output.flush_old();
    };
    let interrupt = Interrupt::new(&flush, &tick);
    let watch = interrupt.as_ref().map(|interrupt| interrupt as &dyn Watch);
    let result = hash_files(jobs, &options, report, watch).and(session.output.flush());
    if let Some(resumes) = resumes {
        resumes.finish(INTERRUPTED_WAIT);
    }
    session.totals.count_inputs(files.into_inner(), session.supports_sharing());
    result
}

/// Hashes a file that does not share readers.
fn hash_one(
    session: &Session<'_>,
    resumes: Option<&ResumeStore>,
    file: Option<&InputFile>,
) -> Result<Hashed, Failure> {
    let Some(file) = file else {
        return Err(Failure::Other("there is nothing to read".to_owned()));
    };
    let algorithms = file.algorithms.unwrap_or(*session.algorithms());
    let path = match &file.location {
        Location::Path(path) if !file.is_regular => {
            return session.hash(path, &algorithms).map_err(Failure::from);
        }
        Location::Path(path) => Cow::Borrowed(&**path),
        Location::Entry(entry) => Cow::Owned(PathBuf::from(OsString::from_vec(entry.path()))),
    };
    let source = file.open()?;
    let stored = resumes.and_then(|resumes| resumes.find(HashCache::key_of(&path), &source));
    let hashed = match &stored {
        Some(stored) => {
            let finished = |subtree| stored.add(subtree);
            let (subtree_bytes, known) = (stored.subtree_bytes(), &*stored.known);
            let resume = Resume { subtree_bytes, known, finished: &finished };
            session.hash_source(&source, &path, &algorithms, Some(&resume))
        }
        None => session.hash_source(&source, &path, &algorithms, None),
    };
    if let (Ok(_), Some(stored)) = (&hashed, stored) {
        stored.done();
    }
    hashed.map_err(|error| file.explain(&source, error.into()))
}

/// Reports jobs in order.
struct Reporter<'a> {
    session: &'a Session<'a>,
    cache: Option<&'a HashCache>,
    tree: TreeDigest,
    /// Whether a part of the tree is not available, so that it has no digest.
    is_broken: bool,
    failed: u64,
    /// Failures caused by changes.
    changed: u64,
}

impl<'a> Reporter<'a> {
    fn new(session: &'a Session<'a>, cache: Option<&'a HashCache>) -> Reporter<'a> {
        Reporter {
            session,
            cache,
            tree: TreeDigest::default(),
            is_broken: false,
            failed: 0,
            changed: 0,
        }
    }

    fn report(&mut self, outcome: Outcome<Tag>) -> Result<(), OutputError> {
        let Outcome { job, result } = outcome;
        let name = trees::name_of(&job);
        match (result, job.tag.item.as_deref()) {
            (Some(Ok(hashed)), _) => {
                self.session.progress.show(&name);
                self.report_hash(&name, &hashed, job.file.as_ref(), job.tag.cache_entry.as_deref())
            }
            (Some(Err(failure)), _) => {
                let location = job.file.as_ref().map(|file| &file.location);
                self.is_broken |= matches!(location, Some(Location::Entry(_)));
                self.failed += 1;
                self.changed += u64::from(failure.change().is_some());
                self.session.print_failure(&name, &failure)
            }
            (None, Some(Item::Failed { why, in_tree, .. })) => {
                self.is_broken |= in_tree;
                self.failed += 1;
                self.session.print_error(&name, why)
            }
            (None, Some(Item::Skipped(_, what))) => self.session.print_skipped(&name, what),
            (None, Some(Item::Node(entry, target))) => {
                let other = Node::Other(entry.kind());
                let node = target.as_ref().map_or(other, |target| Node::Link(target));
                self.tree.add(&entry.path_after(b""), node);
                Ok(())
            }
            (None, Some(Item::TreeEnd(root))) => self.end_tree(root),
            (None, None) => Ok(()),
        }
    }

    fn report_hash(
        &mut self,
        name: &[u8],
        hashed: &Hashed,
        file: Option<&InputFile>,
        cache_entry: Option<&CacheEntry>,
    ) -> Result<(), OutputError> {
        if let Some((cache, entry)) = self.cache.zip(cache_entry)
            && cache.record(entry, hashed)
        {
            self.failed += 1;
            self.is_broken = true;
            let text = "corrupt: its contents differ from those in the index, but its size and times do not";
            return self.session.problem(name, "corrupt", Some(hashed), text);
        }
        match file.map(|file| &file.location) {
            Some(Location::Entry(entry))
                if self.session.args.tree_digest
                    && let Some(hash) = hashed.digests.hash() =>
            {
                let mode = hashed.fingerprint.map_or(0, |fingerprint| fingerprint.mode);
                let node = Node::File { hash: hash.as_bytes(), is_executable: mode & 0o100 != 0 };
                self.tree.add(&entry.path_after(b""), node);
                Ok(())
            }
            _ => self.session.print_hash(name, hashed),
        }
    }

    fn end_tree(&mut self, root: &Path) -> Result<(), OutputError> {
        if !self.session.args.tree_digest {
            return Ok(());
        }
        let tree = std::mem::take(&mut self.tree);
        match std::mem::take(&mut self.is_broken) {
            false => self.session.print_tree(root.as_os_str().as_bytes(), tree.finalize()),
            true => {
                let why = "no digest of the tree, since not all of it could be read";
                self.session.print_error(root.as_os_str().as_bytes(), why)
            }
        }
    }

    /// Prints the closing messages.
    fn finish(self) -> anyhow::Result<Status> {
        let Reporter { session, cache, failed, changed, .. } = self;
        session.progress.finish();
        if let Some(cache) = cache {
            cache.finish(session)?;
        }
        if failed == 0 {
            return Ok(Status::Success);
        }
        // (No other tool prints a closing line.)
        if session.args.applet.is_some() {
            return Ok(Status::Failure);
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
