//! Directory tree walk in a fixed order, by directory descriptors, with read-ahead on threads.
//!
//! Owns the set of entries, their order, and the descriptors of directories. What is done with an
//! entry is up to the caller.
//!
//! The kernel is given no path except the root's. Everything else is opened by name relative to its
//! directory, so depth has no limit, and no link leads out of the tree even if an entry is replaced
//! after it was listed: a name that was not a link is opened with `O_NOFOLLOW`, which for a single
//! component is equivalent to `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`. Descriptors have a
//! budget. A directory beyond it is closed once it is read, and reopened on demand from its nearest
//! open ancestor, by several components at once, none of which may be a link; its device and inode
//! must then be unchanged.
//!
//! Each thread takes the first unread directory in walk order. If no thread has started on a
//! directory when the walk reaches it, the caller's thread reads it, so nothing ever blocks on a
//! limit. Finished results are kept in one flat table rather than a tree, and ancestors are dropped
//! in a loop, so dropping a deep tree does not recurse.

mod ahead;
mod directory;
mod listing;

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use smallvec::SmallVec;

use ahead::{BUFFER_BYTES, Listed, Shared, Unread};
pub(crate) use directory::Swapped;
use directory::{Descriptors, Directory, Handle};

use crate::files::descriptors::{self, Shortage};
use crate::lock;

/// Upper bound on held descriptors, whatever `RLIMIT_NOFILE` is. Files sorted by inode are opened
/// thousands of entries after they were listed: with 256, the directory of each of 130,000 files
/// was opened again (1.6 times the system calls).
const MOST_HELD: usize = 8192;

/// Options of a [`Walk`].
#[derive(Debug, Clone)]
pub struct WalkOptions {
    /// Follow symbolic links. Default: no. The root is followed in any case.
    pub follow: bool,
    /// Do not descend into directories on another device than the root's. Default: no.
    pub one_file_system: bool,
    /// Most threads that read directories ahead; they are started on demand. Default: 8. With 0,
    /// the thread that calls `next` reads.
    pub threads: usize,
    /// Most bytes of entries in directories that were read but not yet reached by the caller,
    /// besides one directory per thread: 32 bytes per entry, plus its name. Default: 2 MiB.
    pub ahead_bytes: usize,
    /// Most bytes of entries of one directory held in memory; at least one entry is held. A larger
    /// directory is read in several passes, each of which reads all of it and keeps the next part.
    /// Default: 128 MiB.
    pub listing_bytes: usize,
    /// Filters entries. Default: all are selected.
    pub select: Option<Arc<dyn Select>>,
    /// Yield directories too, each before its content. Default: no.
    pub directories: bool,
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

/// A filter for entries. Called on any thread of the walk, for a directory before its content.
pub trait Select: fmt::Debug + Send + Sync {
    /// Whether the entry at `path`, relative to the root of the walk, is selected. It is no
    /// directory.
    fn selects(&self, path: &[u8]) -> bool;

    /// Whether the directory at `path`, relative to the root of the walk, is selected: otherwise,
    /// the walk does not descend into it. A followed link to a directory is one.
    fn descends(&self, path: &[u8]) -> bool;

    /// Called once per directory, the root (`path` empty) included, after it is read and before
    /// the other methods are called for its entries. Default: does nothing.
    ///
    /// # Errors
    ///
    /// If the other methods cannot be relied on for this directory's entries; the directory is then also
    /// reported as failed.
    fn enter(&self, _path: &[u8], _directory: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// The type of an entry.
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
    /// A directory that could not be opened, or not read to its end (the entries that were read
    /// follow); an entry whose type could not be determined; or, with [`WalkOptions::follow`], a
    /// link that is dangling (`ENOENT`) or points to one of its own ancestors (`ELOOP`).
    Failed(io::Error),
}

/// A file name. Four of five names in an installed system fit into the inline buffer, which saves
/// an allocation by one thread and a free by another.
type Name = SmallVec<[u8; 32]>;

/// An entry of the tree.
pub struct Entry {
    directory: Arc<Directory>,
    handle: Option<Arc<Handle>>,
    name: Name,
    kind: Kind,
    inode: u64,
    device: u64,
    /// A link that was followed.
    linked: bool,
}

impl Entry {
    /// Returns the type, or the error.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Returns the device of the directory, and the inode that it reports; for a followed link,
    /// those of its target.
    pub fn id(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Returns the name in its directory. Empty if the root itself could not be read.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the path: the root as given, without trailing slashes, then a slash and the rest.
    pub fn path(&self) -> Vec<u8> {
        let mut path = Vec::new();
        self.push_path(&mut path);
        path
    }

    /// Appends [`path`](Entry::path) to `out`.
    pub(crate) fn push_path(&self, out: &mut Vec<u8>) {
        let start = out.len();
        self.directory.push_path(&self.name, true, out);
        // The root itself: "dir" and not "dir/", but "/".
        if self.name.is_empty() && out.len() > start + 1 {
            out.pop();
        }
    }

    /// Returns `prefix` and the path relative to the root of the walk, without a leading slash.
    pub fn path_after(&self, prefix: &[u8]) -> Vec<u8> {
        let bytes = prefix.len() + self.directory.path_bytes(&self.name, false);
        let mut path = Vec::with_capacity(bytes);
        path.extend_from_slice(prefix);
        self.directory.push_path(&self.name, false, &mut path);
        path
    }

    /// Opens the entry to read it, without following a link that took its place. A FIFO does not
    /// block.
    ///
    /// # Errors
    ///
    /// The error of `openat`: `ELOOP` if a link took its place. If the descriptor of its directory
    /// was closed, also any error of reopening it, and [`io::ErrorKind::StaleNetworkFileHandle`] if
    /// it was replaced.
    pub fn open(&self) -> io::Result<File> {
        self.open_with(OFlags::RDONLY | OFlags::NONBLOCK).map(File::from)
    }

    /// Opens the entry with `O_CLOEXEC`, and with `O_NOFOLLOW` unless it is a followed link.
    pub(crate) fn open_with(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let links = if self.linked { OFlags::empty() } else { OFlags::NOFOLLOW };
        let handle = self.descriptor()?;
        let flags = flags | links | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&handle.fd, &*self.name, flags, Mode::empty())?)
    }

    /// The entry's `stat`; the link target's if it was listed as a link and links are followed.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        let links = if self.linked { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let handle = self.descriptor()?;
        Ok(rustix::fs::statat(&handle.fd, &*self.name, links)?)
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    ///
    /// As for [`open`](Entry::open); `EINVAL` if it is not a link.
    pub fn read_link(&self) -> io::Result<Vec<u8>> {
        let handle = self.descriptor()?;
        Ok(rustix::fs::readlinkat(&handle.fd, &*self.name, Vec::new())?.into_bytes())
    }

    /// Releases the reference to its directory's descriptor, for entries that are kept long after
    /// they were opened. All methods still work, but may have to reopen the directory.
    pub(crate) fn forget_directory(&mut self) {
        self.handle = None;
    }

    /// Whether an error of [`open`](Entry::open) means that a link took the entry's place.
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

/// Prints the path (lossily) and the kind.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("path", &String::from_utf8_lossy(&self.path()))
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Position in a directory: what has been yielded of it.
struct Frame {
    listed: Arc<Listed>,
    record: usize,
    child: usize,
}

/// An iterator over the entries below a root.
///
/// Entries are ordered by the bytes of their whole paths, with a slash after the name of a
/// directory: `a-b`, `a/x`, `a0`. The order does not depend on the threads.
///
/// Dropping it joins its threads, which takes no longer than the system calls they are in.
pub struct Walk {
    shared: Arc<Shared>,
    /// `None` once it is read.
    root: Option<(Directory, OwnedFd)>,
    /// Kept open so that the root is never opened by its path again during the walk.
    root_held: Option<(Arc<Directory>, Arc<Handle>)>,
    frames: Vec<Frame>,
    /// Descend into the directory whose record was just passed.
    descend: bool,
    buffer: Vec<u8>,
}

impl Walk {
    /// Opens a walk of everything below `root`, which may be a link to a directory.
    ///
    /// Uses at most about half of the descriptors allowed by the current `RLIMIT_NOFILE`, and no
    /// more than about 8,200.
    ///
    /// # Errors
    ///
    /// If `root` cannot be opened as a directory. Later failures are reported as entries.
    pub fn new(root: &Path, options: &WalkOptions) -> io::Result<Walk> {
        let limit = usize::try_from(descriptors::limit()).unwrap_or(usize::MAX);
        let recent = (limit / 16).clamp(2, 32);
        // Each thread opens one descriptor besides the counted ones.
        let threads = options.threads.min(limit / 8);
        let options = &WalkOptions { threads, ..options.clone() };
        Walk::with_budget(root, options, (limit / 2).saturating_sub(recent).min(MOST_HELD), recent)
    }

    /// `budget`: most descriptors held; `recent`: number of recently used ones kept besides.
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
            shortage: Shortage::default(),
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
        state.order.push_front(Unread { id: 0, listed: None, child: 0 });
        self.shared.publish(&mut state, 0, &outcome);
        drop(state);
        let listed = outcome.listed?;
        self.root_held =
            listed.directory.live().map(|handle| (Arc::clone(&listed.directory), handle));
        let failed = outcome.failure.map(|error| listed.directory.failed(error));
        self.frames.push(Frame { listed, record: 0, child: 0 });
        failed
    }

    /// At the end of a listing: continues with the next part of its directory, or with its parent.
    /// Returns an entry if that failed.
    fn next_listing(&mut self) -> Option<Entry> {
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
                if let Some(failed) = self.next_listing() {
                    return Some(failed);
                }
                continue;
            };
            frame.record += 1;
            self.descend = record.kind == FileType::Directory;
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
            // The panic hook has already printed its message.
            let _ = thread.join();
        }
        // Entries, and with them their directories, may outlive the walk.
        if let Some((root, _)) = &self.root_held {
            root.descriptors.close();
        }
    }
}

#[cfg(test)]
mod swap_tests;
#[cfg(test)]
mod tests;
