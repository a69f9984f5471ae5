//! Directory read-ahead: which directory is read next, by which thread, and the outcome.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::directory::{Directory, Handle, no_directory_now, open_directory};
use super::listing::{EntryRecord, Key, Listing, Reading};
use super::{Entry, Kind, Name, WalkOptions, lock};
use crate::files::descriptors::{Shortage, is_exhausted};

/// Size of the `getdents` buffer of each thread. One directory of 200,000 files, warm ext4, two
/// CPUs: 111 to 140 ms with 32 KiB; 107 to 112 ms with 64 KiB, 256 KiB and 1 MiB.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// Most attempts to open a directory when descriptors are exhausted, 10 ms apart.
const ATTEMPTS_MAX: u32 = 200;

/// Memory of a listed directory besides its entries, in bytes.
const DIRECTORY_BYTES: usize = 256;

/// A directory that was read, or a part of it.
pub(super) struct Listed {
    pub(super) id: u64,
    pub(super) directory: Arc<Directory>,
    pub(super) handle: Option<Arc<Handle>>,
    pub(super) listing: Listing,
}

impl Listed {
    pub(super) fn entry(&self, record: &EntryRecord, failure: Option<io::Error>) -> Entry {
        let extra = self.listing.extra(record);
        let kind = match (failure, record.kind) {
            (Some(error), _) => Kind::Failed(error),
            (_, FileType::RegularFile) => Kind::File,
            (_, FileType::Directory) => Kind::Directory,
            (_, FileType::Symlink) => Kind::Symlink,
            (_, FileType::Fifo) => Kind::Fifo,
            (_, FileType::Socket) => Kind::Socket,
            (_, FileType::BlockDevice) => Kind::BlockDevice,
            (_, FileType::CharacterDevice) => Kind::CharDevice,
            _ => Kind::Failed(match extra.and_then(|extra| extra.errno) {
                Some(errno) => errno.into(),
                None => io::Error::other("unknown type of file"),
            }),
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

/// Result of reading a directory. Both fields are `None` if the walk must not descend into it.
#[derive(Default)]
pub(super) struct ReadOutcome {
    pub(super) listed: Option<Arc<Listed>>,
    pub(super) failure: Option<io::Error>,
}

impl ReadOutcome {
    /// Bytes counted against `ahead_bytes`; an empty directory costs something too.
    fn cost(&self) -> usize {
        DIRECTORY_BYTES + self.listed.as_ref().map_or(0, |listed| listed.listing.bytes())
    }
}

/// A directory to read: the child `child` of `parent`.
struct ReadJob {
    id: u64,
    parent: Arc<Listed>,
    child: usize,
}

/// A directory with children that no thread has started on, or whose children are not known yet.
pub(super) struct Unread {
    pub(super) id: u64,
    /// `None` while it is being read.
    pub(super) listed: Option<Arc<Listed>>,
    /// The next child.
    pub(super) child: usize,
}

#[derive(Default)]
pub(super) struct WalkState {
    /// In walk order. A directory that is started is inserted before its parent. All before the
    /// first one with a child to read are being read, so there are no more of them than threads.
    pub(super) order: VecDeque<Unread>,
    /// Directories that threads have started on, by their parent's id and child index; `None` while
    /// they are being read.
    results: HashMap<(u64, usize), Option<ReadOutcome>>,
    /// Total cost of the results, in bytes.
    ahead: usize,
    /// The result that the caller waits for.
    awaited: Option<(u64, usize)>,
    /// `ahead` has reached the limit and not yet fallen below three quarters of it.
    full: bool,
    /// Threads waiting for work.
    idle: usize,
    last_id: u64,
    pub(super) stop: bool,
    pub(super) threads: Vec<JoinHandle<()>>,
}

impl WalkState {
    /// Starts on the next child of the directory at `position` in the order.
    fn begin(&mut self, position: usize) -> Option<ReadJob> {
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
            self.order.insert(position, begun);
        }
        Some(ReadJob { id, parent, child })
    }

    /// Starts on the first unread directory, for a read-ahead thread.
    fn begin_ahead(&mut self, limit: usize) -> Option<ReadJob> {
        self.full |= self.ahead >= limit;
        if self.full {
            return None;
        }
        let job = self.begin(self.order.iter().position(|unread| unread.listed.is_some())?)?;
        self.results.insert((job.parent.id, job.child), None);
        Some(job)
    }

    /// Adds the children of a directory that was read to the order. Returns their number.
    fn add_children(&mut self, id: u64, outcome: &ReadOutcome) -> usize {
        let Some(position) = self.order.iter().position(|unread| unread.id == id) else {
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

/// State shared by the threads and the caller.
pub(super) struct Shared {
    pub(super) options: WalkOptions,
    pub(super) device: u64,
    pub(super) state: Mutex<WalkState>,
    /// There may be a directory to read.
    pub(super) work: Condvar,
    /// A directory was read.
    pub(super) ready: Condvar,
    pub(super) stop: AtomicBool,
    pub(super) shortage: Shortage,
}

impl Shared {
    /// Opens and reads a directory.
    fn read(&self, job: &ReadJob, buffer: &mut Vec<u8>) -> ReadOutcome {
        match self.open(job) {
            Ok(Some((directory, fd))) => self.list(job.id, directory, fd, buffer),
            Ok(None) => ReadOutcome::default(),
            Err(error) => ReadOutcome { listed: None, failure: Some(error) },
        }
    }

    /// Opens a directory that was listed (as `.`), or one in it.
    fn open_in(&self, listed: &Listed, name: &[u8], linked: bool) -> io::Result<OwnedFd> {
        let open = || {
            let handle = listed.directory.descriptor()?;
            open_directory(&handle.fd, name, OFlags::RDONLY, linked)
        };
        let is_stopped = || self.stop.load(Relaxed);
        self.shortage.wait(ATTEMPTS_MAX, is_stopped, is_exhausted, open)
    }

    fn open(&self, job: &ReadJob) -> io::Result<Option<(Directory, OwnedFd)>> {
        let Listed { directory: parent, listing, .. } = &*job.parent;
        let record = &listing.records[listing.children[job.child]];
        let name = listing.name(record);
        let linked = record.extra != 0;
        let opened = self.open_in(&job.parent, name, linked);
        let fd = opened.map_err(|error| no_directory_now(error, linked))?;
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
    ) -> ReadOutcome {
        let (listing, read) = self.list_after(None, &directory, &fd, buffer);
        let handle = directory.keep(fd);
        let listed = Listed { id, directory: Arc::new(directory), handle, listing };
        ReadOutcome { listed: Some(Arc::new(listed)), failure: read.err() }
    }

    /// Lists the entries of a directory that come after `after`, up to `listing_bytes`.
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

    /// Lists the next part of a directory whose previous part was fully yielded, if there is one.
    pub(super) fn next_part(
        self: &Arc<Self>,
        part: &Listed,
        buffer: &mut Vec<u8>,
    ) -> Option<ReadOutcome> {
        let after = part.listing.more_after.as_ref()?;
        let Listed { directory, handle, .. } = part;
        let fd = match self.open_in(part, b".", false) {
            Ok(fd) => fd,
            Err(error) => return Some(ReadOutcome { listed: None, failure: Some(error) }),
        };
        let (listing, read) = self.list_after(Some(after), directory, &fd, buffer);
        let mut state = lock(&self.state);
        state.last_id += 1;
        let id = state.last_id;
        // Everything before it was yielded, so it is the first now.
        state.order.push_front(Unread { id, listed: None, child: 0 });
        let (directory, handle) = (Arc::clone(directory), handle.clone());
        let listed = Listed { id, directory, handle, listing };
        let failure = read.err();
        let outcome = ReadOutcome { listed: Some(Arc::new(listed)), failure };
        self.publish(&mut state, id, &outcome);
        Some(outcome)
    }

    /// Makes the children of a directory available, and wakes or starts threads for them.
    pub(super) fn publish(self: &Arc<Self>, state: &mut WalkState, id: u64, outcome: &ReadOutcome) {
        let children = state.add_children(id, outcome);
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
            // If the thread cannot be started, the existing threads or the caller do its work.
            state.threads.extend(builder.spawn(move || shared.read_ahead()));
        }
    }

    /// Body of a read-ahead thread.
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
            // The caller waits for this directory, and would wait forever if a `Select` panicked.
            let read = panic::catch_unwind(AssertUnwindSafe(|| self.read(&job, &mut buffer)));
            let outcome = read.unwrap_or_else(|_| ReadOutcome {
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

    /// Returns the outcome of a child of `parent`, the next in walk order: read ahead, or read now.
    pub(super) fn take(
        self: &Arc<Self>,
        parent: &Listed,
        child: usize,
        buffer: &mut Vec<u8>,
    ) -> ReadOutcome {
        let key = (parent.id, child);
        let mut state = lock(&self.state);
        while let Some(None) = state.results.get(&key) {
            state.awaited = Some(key);
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.awaited = None;
        if let Some(Some(outcome)) = state.results.remove(&key) {
            state.ahead -= outcome.cost();
            // Hysteresis: without it, one thread is woken for each directory.
            if state.full && state.ahead <= self.options.ahead_bytes / 4 * 3 {
                state.full = false;
                self.work.notify_all();
            }
            return outcome;
        }
        // Everything before it was yielded, so its parent is the first in the order.
        let Some(job) = state.begin(0) else {
            // Unreachable; but no directory may be left out silently.
            let failure = Some(io::Error::other("this directory was not read (a bug)"));
            return ReadOutcome { listed: None, failure };
        };
        debug_assert_eq!((job.parent.id, job.child), key);
        drop(state);
        let outcome = self.read(&job, buffer);
        self.publish(&mut lock(&self.state), job.id, &outcome);
        outcome
    }
}
