//! Walking a directory tree in one fixed order, by directory descriptors, reading ahead on threads.
//!
//! Owns which entries there are, their order, and the descriptors of directories. What is done with
//! an entry is the caller's.
//!
//! No path is ever given to the kernel except the root's: everything else is opened by name in its
//! directory, so that depth has no limit and nothing outside the tree is reached by way of a link.
//! Descriptors have a budget. A directory beyond it is closed once it was read, and opened again
//! when needed from its nearest open ancestor; its device and inode must then be what they were.
//!
//! Threads take the unread directory that comes first in the order of the walk. One that nobody has
//! begun when its turn comes is read by the caller's thread, so whatever the limits are, nothing
//! waits for room. What is ready is kept in one flat table and not in a tree, and ancestors are
//! dropped in a loop: dropping a deep tree does not recurse.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat};
use rustix::io::Errno;

/// Bytes that one `getdents` may fill, per thread. One directory of 200,000 files, warm ext4, two
/// CPUs: 111 to 140 ms with 32 KiB; 107 to 112 ms with 64 KiB, 256 KiB and 1 MiB.
const BUFFER_BYTES: usize = 64 << 10;

/// Most descriptors held, whatever the limit. Files that are sorted by their inode are opened thousands of
/// entries after they were met: with 256, each of 130,000 files had its directory opened again (1.6
/// times the system calls).
const MOST_HELD: usize = 8192;

/// Names put together for one `openat` when a directory is opened again, or a quarter of those that
/// are left, if that is more. Each such step leaves a descriptor that is remembered for a while,
/// for the directories on the way up to start from. Not tuned: with these, a tree of 20,000 levels
/// has a file of each opened in 2 to 5 s with 256 descriptors.
const STEP_NAMES: usize = 32;

/// Bytes of such a path: below `PATH_MAX`, which is 4096 with the NUL.
const STEP_BYTES: usize = 4000;

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
    /// Most entries in directories that were read and that the caller has not come to, besides one
    /// directory per thread. Default: 32768.
    pub ahead: usize,
    /// Which entries count. Default: all.
    pub select: Option<Arc<dyn Select>>,
    /// Give directories too, each before its content. Default: no.
    pub directories: bool,
}

impl Default for WalkOptions {
    fn default() -> Self {
        WalkOptions {
            follow: false,
            one_file_system: false,
            threads: 8,
            ahead: 32768,
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
    fn enter(&self, _path: &[u8], _directory: BorrowedFd<'_>) {}
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

/// `Kind` without the error, in one byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    BlockDevice,
    CharDevice,
    Failed,
}

impl Type {
    /// `None` where `getdents` did not say.
    fn of(file_type: FileType) -> Option<Type> {
        Some(match file_type {
            FileType::RegularFile => Type::File,
            FileType::Directory => Type::Directory,
            FileType::Symlink => Type::Symlink,
            FileType::Fifo => Type::Fifo,
            FileType::Socket => Type::Socket,
            FileType::BlockDevice => Type::BlockDevice,
            FileType::CharacterDevice => Type::CharDevice,
            _ => return None,
        })
    }
}

/// One entry of a directory: 24 bytes besides its name.
#[derive(Clone, Copy)]
struct Record {
    name_start: usize,
    inode: u64,
    /// One more than its place in `Listing::extras`; 0 for most, which have none.
    extra: u32,
    name_len: u16,
    kind: Type,
}

/// What only a link that was followed, or an entry that failed, has.
#[derive(Clone, Copy)]
struct Extra {
    device: Option<u64>,
    errno: Option<Errno>,
}

/// The content of a directory.
#[derive(Default)]
struct Listing {
    names: Vec<u8>,
    records: Vec<Record>,
    extras: Vec<Extra>,
    /// Which records are directories to go into.
    children: Vec<usize>,
}

impl Listing {
    /// Reads until the end, an error, or `stop`.
    fn read(
        &mut self,
        directory: BorrowedFd<'_>,
        follow: bool,
        stop: &AtomicBool,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                let mut kind = Type::of(entry.file_type());
                let mut inode = entry.ino();
                let mut extra = None;
                let stat = |flags| rustix::fs::statat(directory, name, flags);
                let mut failed = |errno| {
                    extra = Some(Extra { device: None, errno: Some(errno) });
                    Some(Type::Failed)
                };
                if kind.is_none() {
                    kind = match stat(AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => Type::of(FileType::from_raw_mode(stat.st_mode)),
                        Err(errno) => failed(errno),
                    };
                }
                if follow && kind == Some(Type::Symlink) {
                    kind = match stat(AtFlags::empty()) {
                        Ok(stat) => {
                            inode = stat.st_ino;
                            extra = Some(Extra { device: Some(stat.st_dev), errno: None });
                            Type::of(FileType::from_raw_mode(stat.st_mode))
                        }
                        Err(errno) => failed(errno),
                    };
                }
                self.push(name.to_bytes(), kind.unwrap_or(Type::Failed), inode, extra);
            }
            if stop.load(Relaxed) {
                break;
            }
        }
        Ok(())
    }

    fn push(&mut self, name: &[u8], kind: Type, inode: u64, extra: Option<Extra>) {
        self.extras.extend(extra);
        self.records.push(Record {
            name_start: self.names.len(),
            inode,
            extra: if extra.is_some() { self.extras.len() as u32 } else { 0 },
            // `d_reclen` has 16 bits, so a name's length does.
            name_len: name.len() as u16,
            kind,
        });
        self.names.extend_from_slice(name);
    }

    /// Drops what is not selected. `path` is the directory's, relative to the root.
    fn select(&mut self, select: &dyn Select, mut path: Vec<u8>) {
        if !path.is_empty() {
            path.push(b'/');
        }
        let prefix_len = path.len();
        let names = &self.names;
        self.records.retain(|record| {
            path.truncate(prefix_len);
            path.extend_from_slice(name_of(names, record));
            select.selects(&path, record.kind == Type::Directory)
        });
    }

    /// Puts the records in their order and finds the directories.
    fn finish(&mut self) {
        let names = &self.names;
        self.records.sort_unstable_by(|a, b| {
            compare(name_of(names, a), a.kind, name_of(names, b), b.kind)
                .then(a.inode.cmp(&b.inode))
        });
        let directories = self.records.iter().enumerate();
        self.children = directories
            .filter(|(_, record)| record.kind == Type::Directory)
            .map(|(index, _)| index)
            .collect();
        self.names.shrink_to_fit();
        self.records.shrink_to_fit();
    }

    fn name(&self, record: &Record) -> &[u8] {
        name_of(&self.names, record)
    }

    fn extra(&self, record: &Record) -> Option<Extra> {
        self.extras.get((record.extra as usize).checked_sub(1)?).copied()
    }
}

fn name_of<'a>(names: &'a [u8], record: &Record) -> &'a [u8] {
    &names[record.name_start..record.name_start + usize::from(record.name_len)]
}

/// Byte order, with a `/` at the end of a directory's name: the order of the whole paths of what is
/// below.
fn compare(a: &[u8], a_kind: Type, b: &[u8], b_kind: Type) -> Ordering {
    let common = a.len().min(b.len());
    let after = |name: &[u8], kind| match name.get(common) {
        Some(&byte) => Some(byte),
        None => (kind == Type::Directory).then_some(b'/'),
    };
    a[..common].cmp(&b[..common]).then_with(|| after(a, a_kind).cmp(&after(b, b_kind)))
}

/// The descriptor of a directory. Counted as long as it is open.
struct Handle {
    fd: OwnedFd,
    open: Arc<AtomicUsize>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
    }
}

/// What all directories of a walk share.
struct Descriptors {
    open: Arc<AtomicUsize>,
    /// At most so many are held for longer than they are in use.
    budget: usize,
    /// The last few that were opened beyond the budget, and how many that may be.
    recent: Mutex<(VecDeque<Arc<Handle>>, usize)>,
    root: PathBuf,
    follow: bool,
}

impl Descriptors {
    fn remember(&self, handle: &Arc<Handle>) {
        let mut recent = lock(&self.recent);
        let (handles, limit) = &mut *recent;
        handles.retain(|other| !Arc::ptr_eq(other, handle));
        handles.push_back(Arc::clone(handle));
        let surplus = handles.len().saturating_sub(*limit);
        let closing: Vec<_> = handles.drain(..surplus).collect();
        drop(recent);
        drop(closing);
    }

    /// Remembers nothing from now on.
    fn close(&self) {
        let closing = mem::take(&mut *lock(&self.recent));
        drop(closing);
    }
}

/// A directory that was opened. Holds its ancestors, and no descriptor.
struct Directory {
    parent: Option<Arc<Directory>>,
    /// In its parent; the root's as it is shown, without slashes at its end.
    name: Box<[u8]>,
    device: u64,
    inode: u64,
    /// Reached through a link.
    linked: bool,
    handle: Mutex<Weak<Handle>>,
    descriptors: Arc<Descriptors>,
}

impl Directory {
    /// Takes over an open descriptor, unless it is of another directory than this.
    fn install(&self, fd: OwnedFd) -> io::Result<Arc<Handle>> {
        let stat = rustix::fs::fstat(&fd)?;
        if (stat.st_dev, stat.st_ino) != (self.device, self.inode) {
            let kind = io::ErrorKind::StaleNetworkFileHandle;
            return Err(io::Error::new(kind, "another directory has taken this one's place"));
        }
        let handle = self.adopt(fd);
        self.descriptors.remember(&handle);
        Ok(handle)
    }

    fn adopt(&self, fd: OwnedFd) -> Arc<Handle> {
        self.descriptors.open.fetch_add(1, Relaxed);
        let handle = Arc::new(Handle { fd, open: Arc::clone(&self.descriptors.open) });
        *lock(&self.handle) = Arc::downgrade(&handle);
        handle
    }

    /// The descriptor it was read by, to be held as long as there is use for it, if the budget
    /// allows that.
    fn keep(&self, fd: OwnedFd) -> Option<Arc<Handle>> {
        let handle = self.adopt(fd);
        if self.descriptors.open.load(Relaxed) <= self.descriptors.budget {
            return Some(handle);
        }
        self.descriptors.remember(&handle);
        None
    }

    fn live(&self) -> Option<Arc<Handle>> {
        lock(&self.handle).upgrade()
    }

    /// Its descriptor, opened again if it was given up.
    fn descriptor(&self) -> io::Result<Arc<Handle>> {
        let mut missing = Vec::new();
        let mut at = self;
        let mut handle = loop {
            if let Some(handle) = at.live() {
                break handle;
            }
            let Some(parent) = &at.parent else {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let fd = rustix::fs::open(&self.descriptors.root, flags, Mode::empty())?;
                break at.install(fd)?;
            };
            missing.push(at);
            at = parent;
        };
        if !missing.is_empty() {
            self.descriptors.remember(&handle);
        }
        while let Some(mut end) = missing.pop() {
            let mut path = end.name.to_vec();
            let mut names = 1;
            // A link ends a step, since the kernel follows only 40 of them in one path. One that
            // was put in the midst of a step leads to the same directory or to an error.
            while let Some(&next) = missing.last()
                && !end.linked
                && names < STEP_NAMES.max(missing.len() / 4)
                && path.len() + next.name.len() < STEP_BYTES
            {
                path.push(b'/');
                path.extend_from_slice(&next.name);
                names += 1;
                end = next;
                missing.pop();
            }
            handle = end.install(open_directory(&handle, &path, OFlags::PATH, end.linked)?)?;
        }
        Ok(handle)
    }

    fn with_ancestors(&self) -> impl Iterator<Item = &Directory> {
        std::iter::successors(Some(self), |directory| directory.parent.as_deref())
    }

    /// Puts the path of `name` in this directory at the end of `out`, from the root or relative to
    /// it. An empty name is the root itself.
    fn push_path(&self, name: &[u8], with_root: bool, out: &mut Vec<u8>) {
        let names = || {
            let directories = self.with_ancestors();
            let directories = directories.filter(|d| with_root || d.parent.is_some());
            std::iter::once(name).chain(directories.map(|d| &*d.name))
        };
        let mut end = out.len() + names().map(|name| name.len() + 1).sum::<usize>() - 1;
        out.resize(end, b'/');
        // Backwards, since only the way up is known.
        for name in names() {
            let start = end - name.len();
            out[start..end].copy_from_slice(name);
            end = start.saturating_sub(1);
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // In a loop: thousands of ancestors would overflow the stack.
        let mut parent = self.parent.take();
        while let Some(directory) = parent {
            parent = Arc::into_inner(directory).and_then(|mut directory| directory.parent.take());
        }
    }
}

fn open_directory(at: &Handle, path: &[u8], how: OFlags, linked: bool) -> io::Result<OwnedFd> {
    let links = if linked { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = how | links | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&at.fd, path, flags, Mode::empty())?)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entry of the tree.
pub struct Entry {
    directory: Arc<Directory>,
    handle: Option<Arc<Handle>>,
    name: Box<[u8]>,
    kind: Kind,
    inode: u64,
    device: u64,
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
    pub fn push_path(&self, out: &mut Vec<u8>) {
        let start = out.len();
        self.directory.push_path(&self.name, true, out);
        // The root itself: "dir" and not "dir/", but "/".
        if self.name.is_empty() && out.len() > start + 1 {
            out.pop();
        }
    }

    /// Its path from the root of the walk, without a slash at its start.
    pub fn relative_path(&self) -> Vec<u8> {
        let mut path = Vec::new();
        self.directory.push_path(&self.name, false, &mut path);
        path
    }

    /// Opens it, with `O_CLOEXEC`, and with `O_NOFOLLOW` unless links are followed.
    ///
    /// # Errors
    ///
    /// What `openat` says. Where the descriptor of its directory was given up, also what opening
    /// that again says, and [`io::ErrorKind::StaleNetworkFileHandle`] if another is in its place.
    pub fn open(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let links = if self.follows() { OFlags::empty() } else { OFlags::NOFOLLOW };
        let handle = self.descriptor()?;
        let flags = flags | links | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&handle.fd, &*self.name, flags, Mode::empty())?)
    }

    /// Its `stat`; that of what a link leads to only if links are followed.
    ///
    /// # Errors
    ///
    /// As for [`open`](Entry::open).
    pub fn stat(&self) -> io::Result<Stat> {
        let links = if self.follows() { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
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
    pub fn forget_directory(&mut self) {
        self.handle = None;
    }

    fn follows(&self) -> bool {
        self.directory.descriptors.follow
    }

    fn descriptor(&self) -> io::Result<Arc<Handle>> {
        match &self.handle {
            Some(handle) => Ok(Arc::clone(handle)),
            None => self.directory.descriptor(),
        }
    }
}

/// A directory that was read.
struct Listed {
    id: u64,
    directory: Arc<Directory>,
    handle: Option<Arc<Handle>>,
    listing: Listing,
}

impl Listed {
    fn entry(&self, record: &Record, failure: Option<io::Error>) -> Entry {
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
            name: self.listing.name(record).into(),
            kind,
            inode: record.inode,
            device: extra.and_then(|extra| extra.device).unwrap_or(self.directory.device),
        }
    }
}

/// What reading a directory came to. Neither: it is not to be gone into.
#[derive(Default)]
struct Outcome {
    listed: Option<Arc<Listed>>,
    failure: Option<io::Error>,
}

impl Outcome {
    /// What it takes of `ahead`; an empty directory is something too.
    fn cost(&self) -> usize {
        1 + self.listed.as_ref().map_or(0, |listed| listed.listing.records.len())
    }
}

/// A directory to read: the child `child` of `parent`.
struct Job {
    id: u64,
    parent: Arc<Listed>,
    child: usize,
}

/// A directory whose children are not all begun, or are not known yet.
struct Unread {
    id: u64,
    /// `None` while it is being read.
    listed: Option<Arc<Listed>>,
    /// The next child.
    child: usize,
}

#[derive(Default)]
struct State {
    /// In the order of the walk, the first last. A directory that is begun takes its place after
    /// its parent. All that stand after the first that has a child to read are being read, so
    /// there are no more of them than threads.
    order: Vec<Unread>,
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
    stop: bool,
    threads: Vec<JoinHandle<()>>,
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
struct Shared {
    options: WalkOptions,
    device: u64,
    state: Mutex<State>,
    /// There may be a directory to read.
    work: Condvar,
    /// A directory was read.
    ready: Condvar,
    stop: AtomicBool,
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

    fn open(&self, job: &Job) -> io::Result<Option<(Directory, OwnedFd)>> {
        let Listed { directory: parent, handle, listing, .. } = &*job.parent;
        let record = &listing.records[listing.children[job.child]];
        let name = listing.name(record);
        let linked = record.extra != 0;
        let fd = match handle {
            Some(handle) => open_directory(handle, name, OFlags::RDONLY, linked)?,
            None => open_directory(&*parent.descriptor()?, name, OFlags::RDONLY, linked)?,
        };
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

    fn list(&self, id: u64, directory: Directory, fd: OwnedFd, buffer: &mut Vec<u8>) -> Outcome {
        let mut listing = Listing::default();
        let read = listing.read(fd.as_fd(), self.options.follow, &self.stop, buffer);
        if let Some(select) = &self.options.select {
            let mut path = Vec::new();
            if let Some(parent) = &directory.parent {
                parent.push_path(&directory.name, false, &mut path);
            }
            select.enter(&path, fd.as_fd());
            listing.select(&**select, path);
        }
        listing.finish();
        let handle = directory.keep(fd);
        let listed = Listed { id, directory: Arc::new(directory), handle, listing };
        Outcome { listed: Some(Arc::new(listed)), failure: read.err().map(io::Error::from) }
    }

    /// Makes the children of a directory known, and wakes or starts threads for them.
    fn publish(self: &Arc<Self>, state: &mut State, id: u64, outcome: &Outcome) {
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
            let Some(job) = state.begin_ahead(self.options.ahead) else {
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
    fn take(self: &Arc<Self>, parent: &Listed, child: usize, buffer: &mut Vec<u8>) -> Outcome {
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
            if state.full && state.ahead <= self.options.ahead / 4 * 3 {
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
    /// and no more than about 300.
    ///
    /// # Errors
    ///
    /// What opening `root` as a directory says. Whatever fails later is an entry.
    pub fn new(root: &Path, options: &WalkOptions) -> io::Result<Walk> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let recent = (limit / 16).clamp(2, 32);
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
                follow: options.follow,
            }),
        };
        let shared = Shared {
            options: options.clone(),
            device: stat.st_dev,
            state: Mutex::default(),
            work: Condvar::new(),
            ready: Condvar::new(),
            stop: AtomicBool::new(false),
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
        let failed = outcome.failure.map(|error| Entry {
            directory: Arc::clone(&listed.directory),
            handle: None,
            name: Box::default(),
            kind: Kind::Failed(error),
            inode: listed.directory.inode,
            device: listed.directory.device,
        });
        self.frames.push(Frame { listed, record: 0, child: 0 });
        failed
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
                self.frames.pop();
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

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
