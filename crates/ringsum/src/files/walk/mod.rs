//! Walking a directory tree in one fixed order, by directory descriptors, reading ahead on threads.
//!
//! Owns which entries there are, their order, and the descriptors of directories. What is done with
//! an entry is the caller's.
//!
//! No path is ever given to the kernel except the root's: everything else is opened by name in its
//! directory, so that depth has no limit and nothing outside the tree is reached by way of a link,
//! whatever is put in the place of what was listed: a name that was none is opened with
//! `O_NOFOLLOW`, which for one name is all that `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS` are.
//! Descriptors have a budget. A directory beyond it is closed once it was read, and opened again
//! when needed from its nearest open ancestor, by several names at once, none of which may be a
//! link; its device and inode must then be what they were.
//!
//! Threads take the unread directory that comes first in the order of the walk. One that nobody has
//! begun when its turn comes is read by the caller's thread, so whatever the limits are, nothing
//! waits for room. What is ready is kept in one flat table and not in a tree, and ancestors are
//! dropped in a loop: dropping a deep tree does not recurse.

mod ahead;
mod directory;
mod listing;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use smallvec::SmallVec;

use ahead::{BUFFER_BYTES, Listed, Shared, Unread};
pub(crate) use directory::Swapped;
use directory::{Descriptors, Directory, Handle};
use listing::Type;

/// Most descriptors held, whatever the limit. Files that are sorted by their inode are opened thousands of
/// entries after they were met: with 256, each of 130,000 files had its directory opened again (1.6
/// times the system calls).
const MOST_HELD: usize = 8192;

/// What to walk, and how.
#[derive(Clone)]
pub struct WalkOptions {
    /// Follow symbolic links. Default: no. The root is followed in any case.
    pub follow: bool,
    /// Do not go into directories of another device than the root's. Default: no.
    pub one_file_system: bool,
    /// Threads that read directories ahead, started as there is work. Default: 8. With 0 the thread
    /// that calls `next` reads.
    pub threads: usize,
    /// Most bytes of entries in directories that were read and that the caller has not come to, besides
    /// one directory per thread: 32 of each, and its name. Default: 2 MiB.
    pub ahead_bytes: usize,
    /// Most bytes of entries of one directory that are in memory, but for one entry. One that has more is read
    /// in several passes, each of which reads all of it and keeps the next so many. Default: 128 MiB.
    pub listing_bytes: usize,
    /// Which entries count. Default: all.
    pub select: Option<Arc<dyn Select>>,
    /// Give directories too, each before its content. Default: no.
    pub directories: bool,
}

/// Of a [`Select`] only whether there is one.
impl fmt::Debug for WalkOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WalkOptions { follow, one_file_system, threads, ahead_bytes, listing_bytes, .. } = self;
        let WalkOptions { select, directories, .. } = self;
        f.debug_struct("WalkOptions")
            .field("follow", follow)
            .field("one_file_system", one_file_system)
            .field("threads", threads)
            .field("ahead_bytes", ahead_bytes)
            .field("listing_bytes", listing_bytes)
            .field("select", &select.as_ref().map(|_| format_args!("_")))
            .field("directories", directories)
            .finish()
    }
}

impl Default for WalkOptions {
    fn default() -> Self {
        WalkOptions {
            follow: false,
            one_file_system: false,
            threads: 8,
            ahead_bytes: 2 << 20,
            listing_bytes: 128 << 20,
            select: None,
            directories: false,
        }
    }
}

/// Which entries count. Called on any thread of the walk, for a directory before its content.
pub trait Select: Send + Sync {
    /// Whether the entry at `path`, relative to the root of the walk, counts. A directory that does
    /// not is not gone into. A link that is followed to a directory is one.
    fn selects(&self, path: &[u8], is_directory: bool) -> bool;

    /// Sees a directory after it was read and before `selects` is asked about what is in it; once
    /// for each directory, the root (`path` empty) included. Default: does nothing.
    ///
    /// # Errors
    ///
    /// What keeps it from being right about what is in it: the directory is given as failed, too.
    fn enter(&self, _path: &[u8], _directory: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// What an entry is.
#[derive(Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory; only with [`WalkOptions::directories`].
    Directory,
    /// A symbolic link; never with [`WalkOptions::follow`].
    Symlink,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharDevice,
    /// A directory that could not be opened or read to its end (what was read of it follows), an
    /// entry whose type could not be found, or with [`WalkOptions::follow`] a link that leads
    /// nowhere (`ENOENT`) or to a directory that it is in (`ELOOP`).
    Failed(io::Error),
}

/// A name. Four of five in an installed system have no more bytes than fit in here without memory of their own, which
/// one thread would take and another give back.
type Name = SmallVec<[u8; 32]>;

/// An entry of the tree.
pub struct Entry {
    directory: Arc<Directory>,
    handle: Option<Arc<Handle>>,
    name: Name,
    kind: Kind,
    inode: u64,
    device: u64,
    /// It was a link that was followed.
    linked: bool,
}

impl Entry {
    /// What it is, or what failed.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Its inode as its directory says, or that of what a followed link leads to.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// The device of its directory, or of what a followed link leads to.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Its name in its directory. Empty if the root itself could not be read.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Its path: the root as given, without slashes at its end, then a slash and the rest.
    pub fn path(&self) -> Vec<u8> {
        let mut path = Vec::new();
        self.push_path(&mut path);
        path
    }

    /// Puts [`path`](Entry::path) at the end of `out`.
    pub(crate) fn push_path(&self, out: &mut Vec<u8>) {
        let start = out.len();
        self.directory.push_path(&self.name, true, out);
        // The root itself: "dir" and not "dir/", but "/".
        if self.name.is_empty() && out.len() > start + 1 {
            out.pop();
        }
    }

    /// A prefix, and its path from the root of the walk, without a slash at its start.
    pub fn path_after(&self, prefix: &[u8]) -> Vec<u8> {
        let bytes = prefix.len() + self.directory.path_bytes(&self.name, false);
        let mut path = Vec::with_capacity(bytes);
        path.extend_from_slice(prefix);
        self.directory.push_path(&self.name, false, &mut path);
        path
    }

    /// Opens it, with `O_CLOEXEC`, and with `O_NOFOLLOW` unless it was a link that is followed.
    ///
    /// # Errors
    ///
    /// What `openat` says: `ELOOP` of a link that took its place. Where the descriptor of its
    /// directory was given up, also what opening that again says, and
    /// [`io::ErrorKind::StaleNetworkFileHandle`] if something else is in its place.
    pub fn open(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let links = if self.linked { OFlags::empty() } else { OFlags::NOFOLLOW };
        let handle = self.descriptor()?;
        let flags = flags | links | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&handle.fd, &*self.name, flags, Mode::empty())?)
    }

    /// Its `stat`; that of what a link leads to only if it was one when it was listed, and links
    /// are followed.
    ///
    /// # Errors
    ///
    /// As for [`open`](Entry::open).
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        let links = if self.linked { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let handle = self.descriptor()?;
        Ok(rustix::fs::statat(&handle.fd, &*self.name, links)?)
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    ///
    /// As for [`open`](Entry::open); `EINVAL` if it is not a link.
    pub fn read_link(&self) -> io::Result<Vec<u8>> {
        let handle = self.descriptor()?;
        Ok(rustix::fs::readlinkat(&handle.fd, &*self.name, Vec::new())?.into_bytes())
    }

    /// Gives up its hold on the descriptor of its directory: for entries that wait long after they
    /// were opened. Everything still works, and may have to open the directory again.
    pub(crate) fn forget_directory(&mut self) {
        self.handle = None;
    }

    /// Whether an error of [`open`](Entry::open) says that a link took its place.
    pub(crate) fn is_link_now(&self, error: &io::Error) -> bool {
        !self.linked && Errno::from_io_error(error) == Some(Errno::LOOP)
    }

    fn descriptor(&self) -> io::Result<Arc<Handle>> {
        match &self.handle {
            Some(handle) => Ok(Arc::clone(handle)),
            None => self.directory.descriptor(),
        }
    }
}

/// The path lossily, and what it is.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("path", &String::from_utf8_lossy(&self.path()))
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// How far a directory was given.
struct Frame {
    listed: Arc<Listed>,
    record: usize,
    child: usize,
}

/// A walk: an iterator over the entries below a root.
///
/// The order is that of the bytes of whole paths, where a directory counts as its name and a slash:
/// `a-b`, `a/x`, `a0`. It is the same whatever the threads do.
///
/// Dropping it ends its threads, which takes no longer than the system calls they are in.
pub struct Walk {
    shared: Arc<Shared>,
    /// Until it is read.
    root: Option<(Directory, OwnedFd)>,
    /// So that it is never opened by its path again while the walk lasts.
    root_held: Option<(Arc<Directory>, Arc<Handle>)>,
    frames: Vec<Frame>,
    /// The directory just passed is to be gone into.
    descend: bool,
    buffer: Vec<u8>,
}

impl Walk {
    /// A walk of what is below `root`, which may be a link to a directory.
    ///
    /// Directories take at most about half of the descriptors that `RLIMIT_NOFILE` allows now,
    /// and no more than about 8,200.
    ///
    /// # Errors
    ///
    /// What opening `root` as a directory says. Whatever fails later is an entry.
    pub fn new(root: &Path, options: &WalkOptions) -> io::Result<Walk> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let limit = limit.saturating_sub(super::OTHER_DESCRIPTORS as usize);
        let recent = (limit / 16).clamp(2, 32);
        // Each opens one besides those that are counted.
        let threads = options.threads.min(limit / 8);
        let options = &WalkOptions { threads, ..options.clone() };
        Walk::with_budget(root, options, (limit / 2).saturating_sub(recent).min(MOST_HELD), recent)
    }

    /// `budget`: descriptors held; `recent`: how many more of the last used are kept open.
    fn with_budget(
        root: &Path,
        options: &WalkOptions,
        budget: usize,
        recent: usize,
    ) -> io::Result<Walk> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(root, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        let shown = root.as_os_str().as_bytes();
        let shown = &shown[..shown.iter().rposition(|&byte| byte != b'/').map_or(0, |i| i + 1)];
        let directory = Directory {
            parent: None,
            name: shown.into(),
            device: stat.st_dev,
            inode: stat.st_ino,
            linked: false,
            handle: Mutex::default(),
            descriptors: Arc::new(Descriptors {
                open: Arc::default(),
                budget,
                recent: Mutex::new((VecDeque::new(), recent)),
                root: root.to_owned(),
                has_openat2: AtomicBool::new(true),
            }),
        };
        let shared = Shared {
            options: options.clone(),
            device: stat.st_dev,
            state: Mutex::default(),
            work: Condvar::new(),
            ready: Condvar::new(),
            stop: AtomicBool::new(false),
            starved: AtomicBool::new(false),
        };
        Ok(Walk {
            shared: Arc::new(shared),
            root: Some((directory, fd)),
            root_held: None,
            frames: Vec::new(),
            descend: false,
            buffer: Vec::with_capacity(BUFFER_BYTES),
        })
    }

    /// Reads the root.
    fn start(&mut self, root: Directory, fd: OwnedFd) -> Option<Entry> {
        let outcome = self.shared.list(0, root, fd, &mut self.buffer);
        let mut state = lock(&self.shared.state);
        state.order.push(Unread { id: 0, listed: None, child: 0 });
        self.shared.publish(&mut state, 0, &outcome);
        drop(state);
        let listed = outcome.listed?;
        self.root_held =
            listed.directory.live().map(|handle| (Arc::clone(&listed.directory), handle));
        let failed = outcome.failure.map(|error| listed.directory.failed(error));
        self.frames.push(Frame { listed, record: 0, child: 0 });
        failed
    }

    /// All of the last listing was given: goes on with the next part of its directory, or with the one that it
    /// is in. What failed, if anything did.
    fn go_on(&mut self) -> Option<Entry> {
        let frame = self.frames.pop()?;
        let outcome = self.shared.next_part(&frame.listed, &mut self.buffer)?;
        self.frames.extend(outcome.listed.map(|listed| Frame { listed, record: 0, child: 0 }));
        outcome.failure.map(|error| frame.listed.directory.failed(error))
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

impl Iterator for Walk {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if let Some((root, fd)) = self.root.take()
            && let Some(failed) = self.start(root, fd)
        {
            return Some(failed);
        }
        loop {
            let frame = self.frames.last_mut()?;
            if mem::take(&mut self.descend) {
                let child = frame.child;
                frame.child += 1;
                let outcome = self.shared.take(&frame.listed, child, &mut self.buffer);
                let failed = outcome.failure.map(|error| {
                    let listing = &frame.listed.listing;
                    frame.listed.entry(&listing.records[listing.children[child]], Some(error))
                });
                let listed = outcome.listed;
                self.frames.extend(listed.map(|listed| Frame { listed, record: 0, child: 0 }));
                if failed.is_some() {
                    return failed;
                }
                continue;
            }
            let Some(record) = frame.listed.listing.records.get(frame.record) else {
                if let Some(failed) = self.go_on() {
                    return Some(failed);
                }
                continue;
            };
            frame.record += 1;
            self.descend = record.kind == Type::Directory;
            if !self.descend || self.shared.options.directories {
                return Some(frame.listed.entry(record, None));
            }
        }
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        let mut state = lock(&self.shared.state);
        state.stop = true;
        let threads = mem::take(&mut state.threads);
        drop(state);
        self.shared.work.notify_all();
        for thread in threads {
            // A panic in it was told by its own message.
            let _ = thread.join();
        }
        // Entries may live on, and with them the directories.
        if let Some((root, _)) = &self.root_held {
            root.descriptors.close();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod swap_tests;
#[cfg(test)]
mod tests;
