//! The directories of a walk, their descriptors, and how closed ones are reopened.

use std::collections::VecDeque;
use std::io;
use std::iter;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{Entry, Kind, Name, lock};

/// Components joined for one `openat2` when a directory is reopened, or a quarter of those left if
/// that is more. Each step leaves a descriptor that is kept for a while, so that the directories on
/// the way up can start from it. Not tuned: with these, opening a file at each level of a tree of
/// 20,000 levels takes 2 to 5 s with 256 descriptors.
const STEP_NAMES: usize = 32;

/// Length limit of such a path in bytes: below `PATH_MAX`, which is 4096 with the NUL.
const STEP_BYTES: usize = 4000;

/// The descriptor of a directory, counted while it is open.
pub(super) struct Handle {
    pub(super) fd: OwnedFd,
    open: Arc<AtomicUsize>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
    }
}

/// State shared by all directories of a walk.
pub(super) struct Descriptors {
    pub(super) open: Arc<AtomicUsize>,
    /// Most descriptors held for longer than they are in use.
    pub(super) budget: usize,
    /// The most recently opened ones beyond the budget, and their limit.
    pub(super) recent: Mutex<(VecDeque<Arc<Handle>>, usize)>,
    pub(super) root: PathBuf,
    /// `openat2` has not been refused yet.
    pub(super) has_openat2: AtomicBool,
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

    /// Opens a directory several components further down, none of which is a link.
    fn open_below(&self, at: &Handle, path: &[u8]) -> io::Result<OwnedFd> {
        if self.has_openat2.load(Relaxed) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            match rustix::fs::openat2(&at.fd, path, flags, Mode::empty(), within) {
                // Before Linux 5.6, or forbidden by a seccomp filter.
                Err(Errno::NOSYS | Errno::PERM) => self.has_openat2.store(false, Relaxed),
                opened => return Ok(opened?),
            }
        }
        let mut reached: Option<OwnedFd> = None;
        for name in path.split(|&byte| byte == b'/') {
            let from = reached.as_ref().unwrap_or(&at.fd);
            reached = Some(open_directory(from, name, OFlags::PATH, false)?);
        }
        reached.ok_or_else(|| Errno::NOENT.into())
    }

    /// Closes the recent descriptors, and keeps none from now on.
    pub(super) fn close(&self) {
        let closing = mem::take(&mut *lock(&self.recent));
        drop(closing);
    }
}

/// A directory that was opened. Holds its ancestors, but no descriptor.
pub(super) struct Directory {
    pub(super) parent: Option<Arc<Directory>>,
    /// Name in its parent; for the root, its path as displayed, without trailing slashes.
    pub(super) name: Box<[u8]>,
    pub(super) device: u64,
    pub(super) inode: u64,
    /// Reached through a link.
    pub(super) linked: bool,
    pub(super) handle: Mutex<Weak<Handle>>,
    pub(super) descriptors: Arc<Descriptors>,
}

impl Directory {
    /// Takes over an open descriptor, unless it is of a different directory.
    fn install(&self, fd: OwnedFd) -> io::Result<Arc<Handle>> {
        let stat = rustix::fs::fstat(&fd)?;
        if (stat.st_dev, stat.st_ino) != (self.device, self.inode) {
            return Err(Swapped::Directory.into());
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

    /// Takes over the descriptor that the directory was read through. Returns it for as long as the
    /// entries need it if the budget allows, else only remembers it as recent.
    pub(super) fn keep(&self, fd: OwnedFd) -> Option<Arc<Handle>> {
        let handle = self.adopt(fd);
        if self.descriptors.open.load(Relaxed) <= self.descriptors.budget {
            return Some(handle);
        }
        self.descriptors.remember(&handle);
        None
    }

    /// Returns the entry that reports the failure to read this directory.
    pub(super) fn failed(self: &Arc<Directory>, error: io::Error) -> Entry {
        let (directory, name) = match &self.parent {
            Some(parent) => (parent, Name::from_slice(&self.name)),
            None => (self, Name::new()),
        };
        Entry {
            directory: Arc::clone(directory),
            handle: None,
            name,
            kind: Kind::Failed(error),
            inode: self.inode,
            device: self.device,
            linked: false,
        }
    }

    pub(super) fn live(&self) -> Option<Arc<Handle>> {
        lock(&self.handle).upgrade()
    }

    /// Returns its descriptor, reopened if it was closed.
    pub(super) fn descriptor(&self) -> io::Result<Arc<Handle>> {
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
            // A followed link is a step of its own: `open_below` refuses links.
            while let Some(&next) = missing.last()
                && !end.linked
                && !next.linked
                && names < STEP_NAMES.max(missing.len() / 4)
                && path.len() + next.name.len() < STEP_BYTES
            {
                path.push(b'/');
                path.extend_from_slice(&next.name);
                names += 1;
                end = next;
                missing.pop();
            }
            let opened = match names {
                1 => open_directory(&handle.fd, &path, OFlags::PATH, end.linked),
                _ => self.descriptors.open_below(&handle, &path),
            };
            handle = end.install(opened.map_err(|error| no_directory_now(error, end.linked))?)?;
        }
        Ok(handle)
    }

    pub(super) fn with_ancestors(&self) -> impl Iterator<Item = &Directory> {
        iter::successors(Some(self), |directory| directory.parent.as_deref())
    }

    /// Appends the path of `name` in this directory to `out`, including the root or relative to it.
    /// An empty name stands for the root itself.
    pub(super) fn push_path(&self, name: &[u8], with_root: bool, out: &mut Vec<u8>) {
        let mut end = out.len() + self.path_bytes(name, with_root);
        out.resize(end, b'/');
        // Backwards, because a directory knows only its parent.
        for name in self.names(name, with_root) {
            let start = end - name.len();
            out[start..end].copy_from_slice(name);
            end = start.saturating_sub(1);
        }
    }

    /// Returns the length of that path in bytes.
    pub(super) fn path_bytes(&self, name: &[u8], with_root: bool) -> usize {
        self.names(name, with_root).map(|name| name.len() + 1).sum::<usize>() - 1
    }

    /// `name`, then the names of its directories, upwards.
    fn names<'n>(&'n self, name: &'n [u8], with_root: bool) -> impl Iterator<Item = &'n [u8]> {
        let directories = self.with_ancestors();
        let directories = directories.filter(move |d| with_root || d.parent.is_some());
        iter::once(name).chain(directories.map(|d| &*d.name))
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

/// Opens a directory by one component; `linked`: it is a link to follow.
pub(super) fn open_directory(
    at: impl AsFd,
    name: &[u8],
    how: OFlags,
    linked: bool,
) -> io::Result<OwnedFd> {
    let links = if linked { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = how | links | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

/// What replaced a directory that was listed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Swapped {
    /// Another directory.
    #[error("replaced: it is not the directory that was listed")]
    Directory,
    /// A link, or something that is not a directory.
    #[error("replaced: it was listed as a directory and is not one now (links are not followed)")]
    NoDirectory,
}

impl From<Swapped> for io::Error {
    fn from(swapped: Swapped) -> io::Error {
        io::Error::new(io::ErrorKind::StaleNetworkFileHandle, swapped)
    }
}

/// Maps the error of opening a listed directory: a link in its place gives `ENOTDIR` or `ELOOP`.
pub(super) fn no_directory_now(error: io::Error, linked: bool) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::NOTDIR | Errno::LOOP) if !linked => Swapped::NoDirectory.into(),
        _ => error,
    }
}
