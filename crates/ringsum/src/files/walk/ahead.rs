//! Reading directories ahead: which is read next, by which thread, and what it came to.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::directory::{Directory, Handle, no_directory_now, open_directory};
use super::listing::{Key, Listing, Reading, Record, Type};
use super::{Entry, Kind, Name, WalkOptions, lock};

/// Bytes that one `getdents` may fill, per thread. One directory of 200,000 files, warm ext4, two
/// CPUs: 111 to 140 ms with 32 KiB; 107 to 112 ms with 64 KiB, 256 KiB and 1 MiB.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// How long to wait for a descriptor when there is none, and how often.
const SCARCE: Duration = Duration::from_millis(10);
const SCARCE_MAX: u32 = 200;

fn is_scarcity(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Memory of a directory that was read, besides its entries, in bytes.
const DIRECTORY_BYTES: usize = 256;

/// A directory that was read.
pub(super) struct Listed {
    pub(super) id: u64,
    pub(super) directory: Arc<Directory>,
    pub(super) handle: Option<Arc<Handle>>,
    pub(super) listing: Listing,
}

impl Listed {
    pub(super) fn entry(&self, record: &Record, failure: Option<io::Error>) -> Entry {
        let extra = self.listing.extra(record);
        let kind = match record.kind {
            _ if failure.is_some() => Type::Failed,
            kind => kind,
        };
        let kind = match kind {
            Type::File => Kind::File,
            Type::Directory => Kind::Directory,
            Type::Symlink => Kind::Symlink,
            Type::Fifo => Kind::Fifo,
            Type::Socket => Kind::Socket,
            Type::BlockDevice => Kind::BlockDevice,
            Type::CharDevice => Kind::CharDevice,
            Type::Failed => {
                Kind::Failed(failure.unwrap_or_else(|| match extra.and_then(|extra| extra.errno) {
                    Some(errno) => errno.into(),
                    None => io::Error::other("unknown type of file"),
                }))
            }
        };
        Entry {
            directory: Arc::clone(&self.directory),
            handle: self.handle.clone(),
            name: Name::from_slice(self.listing.name(record)),
            kind,
            inode: record.inode,
            device: extra.and_then(|extra| extra.device).unwrap_or(self.directory.device),
            linked: extra.is_some_and(|extra| extra.device.is_some()),
        }
    }
}

/// What reading a directory came to. Neither: it is not to be gone into.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) listed: Option<Arc<Listed>>,
    pub(super) failure: Option<io::Error>,
}

impl Outcome {
    /// What it takes of `ahead_bytes`; an empty directory is something too.
    fn cost(&self) -> usize {
        DIRECTORY_BYTES + self.listed.as_ref().map_or(0, |listed| listed.listing.bytes())
    }
}

/// A directory to read: the child `child` of `parent`.
struct Job {
    id: u64,
    parent: Arc<Listed>,
    child: usize,
}

/// A directory whose children are not all begun, or are not known yet.
pub(super) struct Unread {
    pub(super) id: u64,
    /// `None` while it is being read.
    pub(super) listed: Option<Arc<Listed>>,
    /// The next child.
    pub(super) child: usize,
}

#[derive(Default)]
pub(super) struct State {
    /// In the order of the walk, the first last. A directory that is begun takes its place after
    /// its parent. All that stand after the first that has a child to read are being read, so
    /// there are no more of them than threads.
    pub(super) order: Vec<Unread>,
    /// Directories that threads have begun, by their parent's id and number in it; `None` while
    /// they are being read.
    results: HashMap<(u64, usize), Option<Outcome>>,
    /// What the results cost.
    ahead: usize,
    /// The result that the caller waits for.
    awaited: Option<(u64, usize)>,
    /// There was no room ahead, and not yet much again.
    full: bool,
    /// Threads that wait for work.
    idle: usize,
    last_id: u64,
    pub(super) stop: bool,
    pub(super) threads: Vec<JoinHandle<()>>,
}

impl State {
    /// Begins the next child of the directory at `position` in the order.
    fn begin(&mut self, position: usize) -> Option<Job> {
        let unread = self.order.get_mut(position)?;
        let parent = Arc::clone(unread.listed.as_ref()?);
        let child = unread.child;
        unread.child += 1;
        self.last_id += 1;
        let id = self.last_id;
        let begun = Unread { id, listed: None, child: 0 };
        if child + 1 == parent.listing.children.len() {
            *unread = begun;
        } else {
            self.order.insert(position + 1, begun);
        }
        Some(Job { id, parent, child })
    }

    /// Begins what comes first, for a thread.
    fn begin_ahead(&mut self, limit: usize) -> Option<Job> {
        self.full |= self.ahead >= limit;
        if self.full {
            return None;
        }
        let job = self.begin(self.order.iter().rposition(|unread| unread.listed.is_some())?)?;
        self.results.insert((job.parent.id, job.child), None);
        Some(job)
    }

    /// Puts the children of a directory that was read in the order; how many there are.
    fn read(&mut self, id: u64, outcome: &Outcome) -> usize {
        let Some(position) = self.order.iter().rposition(|unread| unread.id == id) else {
            return 0;
        };
        let listed = outcome.listed.as_ref().filter(|l| !l.listing.children.is_empty());
        match listed {
            Some(listed) => {
                self.order[position].listed = Some(Arc::clone(listed));
                listed.listing.children.len()
            }
            None => {
                self.order.remove(position);
                0
            }
        }
    }
}

/// What the threads and the caller share.
pub(super) struct Shared {
    pub(super) options: WalkOptions,
    pub(super) device: u64,
    pub(super) state: Mutex<State>,
    /// There may be a directory to read.
    pub(super) work: Condvar,
    /// A directory was read.
    pub(super) ready: Condvar,
    pub(super) stop: AtomicBool,
    /// A directory has waited for a descriptor in vain, and none was opened since.
    pub(super) starved: AtomicBool,
}

impl Shared {
    /// Opens and reads a directory.
    fn read(&self, job: &Job, buffer: &mut Vec<u8>) -> Outcome {
        match self.open(job) {
            Ok(Some((directory, fd))) => self.list(job.id, directory, fd, buffer),
            Ok(None) => Outcome::default(),
            Err(error) => Outcome { listed: None, failure: Some(error) },
        }
    }

    /// Opens a directory, and waits for a descriptor if there is none: but not each time anew, for as long as others
    /// wait in vain.
    fn patiently(&self, open: impl Fn() -> io::Result<OwnedFd>) -> io::Result<OwnedFd> {
        let mut tries = 0;
        let waits =
            |tries| tries < SCARCE_MAX && !self.stop.load(Relaxed) && !self.starved.load(Relaxed);
        loop {
            match open() {
                // Whoever reads files will close theirs.
                Err(error) if is_scarcity(&error) && waits(tries) => {
                    tries += 1;
                    thread::sleep(SCARCE);
                }
                Err(error) => {
                    if is_scarcity(&error) {
                        self.starved.store(true, Relaxed);
                    }
                    return Err(error);
                }
                Ok(fd) => {
                    if self.starved.load(Relaxed) {
                        self.starved.store(false, Relaxed);
                    }
                    return Ok(fd);
                }
            }
        }
    }

    fn open(&self, job: &Job) -> io::Result<Option<(Directory, OwnedFd)>> {
        let Listed { directory: parent, handle, listing, .. } = &*job.parent;
        let record = &listing.records[listing.children[job.child]];
        let name = listing.name(record);
        let linked = record.extra != 0;
        let open = || match handle {
            Some(handle) => open_directory(handle, name, OFlags::RDONLY, linked),
            None => open_directory(&*parent.descriptor()?, name, OFlags::RDONLY, linked),
        };
        let fd = self.patiently(open).map_err(|error| no_directory_now(error, linked))?;
        let stat = rustix::fs::fstat(&fd)?;
        let (device, inode) = (stat.st_dev, stat.st_ino);
        if self.options.one_file_system && device != self.device {
            return Ok(None);
        }
        if linked && parent.with_ancestors().any(|d| (d.device, d.inode) == (device, inode)) {
            return Err(Errno::LOOP.into());
        }
        let directory = Directory {
            parent: Some(Arc::clone(parent)),
            name: name.into(),
            device,
            inode,
            linked,
            handle: Mutex::default(),
            descriptors: Arc::clone(&parent.descriptors),
        };
        Ok(Some((directory, fd)))
    }

    pub(super) fn list(
        &self,
        id: u64,
        directory: Directory,
        fd: OwnedFd,
        buffer: &mut Vec<u8>,
    ) -> Outcome {
        let (listing, read) = self.list_after(None, &directory, &fd, buffer);
        let handle = directory.keep(fd);
        let listed = Listed { id, directory: Arc::new(directory), handle, listing };
        Outcome { listed: Some(Arc::new(listed)), failure: read.err() }
    }

    /// The entries of a directory that come after one of them, as many as there is memory for.
    fn list_after(
        &self,
        after: Option<&Key>,
        directory: &Directory,
        fd: &OwnedFd,
        buffer: &mut Vec<u8>,
    ) -> (Listing, io::Result<()>) {
        let WalkOptions { follow, listing_bytes, .. } = self.options;
        let how = Reading { follow, after, bytes_max: listing_bytes, stop: &self.stop };
        let mut listing = Listing::default();
        let read = listing.read(fd.as_fd(), &how, buffer);
        let mut read = read.map_err(io::Error::from);
        if let Some(select) = &self.options.select {
            let mut path = Vec::new();
            if let Some(parent) = &directory.parent {
                parent.push_path(&directory.name, false, &mut path);
            }
            if after.is_none() {
                read = read.and(select.enter(&path, fd.as_fd()));
            }
            listing.select(&**select, path);
        }
        let finished = listing.finish().map_err(io::Error::from);
        (listing, read.and(finished))
    }

    /// The part of a directory that comes after the one that was given to its end, if there is one.
    pub(super) fn next_part(
        self: &Arc<Self>,
        part: &Listed,
        buffer: &mut Vec<u8>,
    ) -> Option<Outcome> {
        let after = part.listing.more_after.as_ref()?;
        let Listed { directory, handle, .. } = part;
        let open = || match handle {
            Some(handle) => open_directory(handle, b".", OFlags::RDONLY, false),
            None => open_directory(&*directory.descriptor()?, b".", OFlags::RDONLY, false),
        };
        let fd = match self.patiently(open) {
            Ok(fd) => fd,
            Err(error) => return Some(Outcome { listed: None, failure: Some(error) }),
        };
        let (listing, read) = self.list_after(Some(after), directory, &fd, buffer);
        let mut state = lock(&self.state);
        state.last_id += 1;
        let id = state.last_id;
        // All that came before it was given: it is the first now.
        state.order.push(Unread { id, listed: None, child: 0 });
        let (directory, handle) = (Arc::clone(directory), handle.clone());
        let listed = Listed { id, directory, handle, listing };
        let failure = read.err();
        let outcome = Outcome { listed: Some(Arc::new(listed)), failure };
        self.publish(&mut state, id, &outcome);
        Some(outcome)
    }

    /// Makes the children of a directory known, and wakes or starts threads for them.
    pub(super) fn publish(self: &Arc<Self>, state: &mut State, id: u64, outcome: &Outcome) {
        let children = state.read(id, outcome);
        if state.stop || state.full {
            return;
        }
        for _ in 0..children.min(state.idle) {
            self.work.notify_one();
        }
        let missing = children.saturating_sub(state.idle);
        for _ in 0..missing.min(self.options.threads - state.threads.len()) {
            let shared = Arc::clone(self);
            let builder = thread::Builder::new().name("walk".to_owned());
            // Without the thread, those there are, or the caller, do its work.
            state.threads.extend(builder.spawn(move || shared.read_ahead()));
        }
    }

    /// What a thread does.
    fn read_ahead(self: Arc<Self>) {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        let mut state = lock(&self.state);
        while !state.stop {
            let Some(job) = state.begin_ahead(self.options.ahead_bytes) else {
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            drop(state);
            // The caller waits for this directory, and would for ever if a `Select` panicked.
            let read = panic::catch_unwind(AssertUnwindSafe(|| self.read(&job, &mut buffer)));
            let outcome = read.unwrap_or_else(|_| Outcome {
                listed: None,
                failure: Some(io::Error::other("a thread panicked while it read this directory")),
            });
            state = lock(&self.state);
            self.publish(&mut state, job.id, &outcome);
            state.ahead += outcome.cost();
            state.results.insert((job.parent.id, job.child), Some(outcome));
            if state.awaited == Some((job.parent.id, job.child)) {
                self.ready.notify_one();
            }
        }
    }

    /// A child of `parent`, which is the next in the order: as a thread has read it, or read now.
    pub(super) fn take(
        self: &Arc<Self>,
        parent: &Listed,
        child: usize,
        buffer: &mut Vec<u8>,
    ) -> Outcome {
        let key = (parent.id, child);
        let mut state = lock(&self.state);
        while let Some(None) = state.results.get(&key) {
            state.awaited = Some(key);
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.awaited = None;
        if let Some(Some(outcome)) = state.results.remove(&key) {
            state.ahead -= outcome.cost();
            // Not at once, which would be one thread woken for each directory.
            if state.full && state.ahead <= self.options.ahead_bytes / 4 * 3 {
                state.full = false;
                self.work.notify_all();
            }
            return outcome;
        }
        // Whatever came before was given, so its parent is the first in the order.
        let first = state.order.len().wrapping_sub(1);
        let Some(job) = state.begin(first) else {
            // Never; but nothing is to be left out in silence.
            let failure = Some(io::Error::other("nobody has read this directory"));
            return Outcome { listed: None, failure };
        };
        debug_assert_eq!((job.parent.id, job.child), key);
        drop(state);
        let outcome = self.read(&job, buffer);
        self.publish(&mut lock(&self.state), job.id, &outcome);
        outcome
    }
}
