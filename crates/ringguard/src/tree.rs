//! Files by their names in a directory that nothing leads out of.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use blockring::CacheMode;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// The directory that names are relative to.
#[derive(Debug)]
pub(crate) struct Tree {
    base: OwnedFd,
    path: PathBuf,
}

impl Tree {
    pub(crate) fn open(path: &Path) -> io::Result<Tree> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Tree { base, path: path.to_owned() })
    }

    /// Returns the path of a name, for messages and for calls that need no protection from links.
    pub(crate) fn path(&self, name: &[u8]) -> PathBuf {
        let name = OsStr::from_bytes(name);
        match self.path.as_os_str().as_bytes() {
            b"." => name.into(),
            _ => self.path.join(name),
        }
    }

    /// Opens a name, without following any link.
    pub(crate) fn open_at(&self, name: &[u8], flags: OFlags, mode: Mode) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let name = OsStr::from_bytes(name);
        loop {
            match rustix::fs::openat2(&self.base, name, flags, mode, resolve) {
                // A directory was renamed meanwhile.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::NOSYS | Errno::PERM) => return self.open_by_parts(name, flags, mode),
                opened => return Ok(opened?.into()),
            }
        }
    }

    /// The same where `openat2` is not available: in containers that block it.
    fn open_by_parts(&self, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<File> {
        let (parent, last) = self.descend(name)?;
        let fd = parent.as_ref().map_or(self.base.as_fd(), AsFd::as_fd);
        Ok(rustix::fs::openat(fd, last, flags, mode)?.into())
    }

    fn descend<'n>(&self, name: &'n OsStr) -> io::Result<(Option<OwnedFd>, &'n OsStr)> {
        let mut parts: Vec<_> = name.as_bytes().split(|byte| *byte == b'/').collect();
        let last = parts.pop().unwrap_or_default();
        let mut parent: Option<OwnedFd> = None;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for part in parts {
            let fd = parent.as_ref().map_or(self.base.as_fd(), AsFd::as_fd);
            let part = OsStr::from_bytes(part);
            parent = Some(match rustix::fs::openat(fd, part, flags, Mode::empty()) {
                // Of a link in place of a directory `openat2` says ELOOP: it must not pass for a missing file.
                Err(Errno::NOTDIR) if is_link(fd, part) => return Err(Errno::LOOP.into()),
                opened => opened?,
            });
        }
        Ok((parent, OsStr::from_bytes(last)))
    }

    /// Opens a name for reading: for direct reads if `mode` says so and the file system has them. A
    /// FIFO does not block.
    pub(crate) fn open_file(&self, name: &[u8], mode: CacheMode) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let direct = if mode == CacheMode::Direct { OFlags::DIRECT } else { OFlags::empty() };
        self.open_at(name, flags | direct, Mode::empty())
    }

    /// Opens a regular file for reading.
    pub(crate) fn read(&self, name: &[u8]) -> io::Result<(File, Stat)> {
        let file = self.open_file(name, CacheMode::Buffered)?;
        let stat = rustix::fs::fstat(&file)?;
        if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        Ok((file, stat))
    }

    /// Returns the metadata of a regular file.
    pub(crate) fn stat(&self, name: &[u8]) -> io::Result<Stat> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = rustix::fs::statat(&self.base, OsStr::from_bytes(name), flags)?;
        if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        Ok(stat)
    }

    /// Returns the directory that contains a name, opened without following any link, and the name
    /// in it. `create`: makes directories that are missing.
    pub(crate) fn parent<'n>(
        &self,
        name: &'n [u8],
        create: bool,
    ) -> io::Result<(OwnedFd, &'n OsStr)> {
        let mut parts: Vec<_> = name.split(|byte| *byte == b'/').collect();
        let last = OsStr::from_bytes(parts.pop().unwrap_or_default());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut fd = rustix::fs::openat(&self.base, ".", flags, Mode::empty())?;
        for part in parts {
            let part = OsStr::from_bytes(part);
            let opened = rustix::fs::openat(&fd, part, flags, Mode::empty());
            fd = match opened {
                Err(Errno::NOENT) if create => {
                    match rustix::fs::mkdirat(&fd, part, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    rustix::fs::fsync(&fd)?;
                    rustix::fs::openat(&fd, part, flags, Mode::empty())?
                }
                opened => opened?,
            };
        }
        Ok((fd, last))
    }
}

fn is_link(directory: BorrowedFd<'_>, name: &OsStr) -> bool {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn without_openat2_the_errors_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("directory")).unwrap();
        std::fs::write(folder.path().join("directory/file"), "content").unwrap();
        symlink("directory", folder.path().join("link")).unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let names =
            ["directory/file", "link/file", "directory/file/x", "none/file", "directory/none"];
        for name in names {
            let code =
                |opened: io::Result<File>| opened.err().and_then(|error| error.raw_os_error());
            let with = code(tree.open_at(name.as_bytes(), flags, Mode::empty()));
            let without = code(tree.open_by_parts(OsStr::new(name), flags, Mode::empty()));
            assert_eq!(with, without, "{name}");
            assert_eq!(with.is_none(), name == "directory/file", "{name}");
        }
    }
}
