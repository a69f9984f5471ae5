//! Paths longer than `PATH_MAX` (4096 bytes with the NUL), which no system call accepts: resolved
//! directory by directory.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

/// Longest part of a path that is resolved at once, in bytes.
const PART_BYTES_MAX: usize = 4000;

/// Opens a path of any length.
pub(super) fn open(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    match openat(CWD, path, flags, Mode::empty()) {
        Err(Errno::NAMETOOLONG) => {
            let (directory, rest) = directory_of(path)?;
            Ok(openat(directory, rest, flags, Mode::empty())?)
        }
        opened => Ok(opened?),
    }
}

/// Returns the `stat` of a path of any length.
pub(super) fn stat(path: &Path) -> io::Result<Stat> {
    match statat(CWD, path, AtFlags::empty()) {
        Err(Errno::NAMETOOLONG) => {
            let (directory, rest) = directory_of(path)?;
            Ok(statat(directory, rest, AtFlags::empty())?)
        }
        stat => Ok(stat?),
    }
}

/// Opens an ancestor from which the rest of a path is short enough. Returns it and the rest. (A
/// single name that is too long fails.)
fn directory_of(path: &Path) -> io::Result<(OwnedFd, &[u8])> {
    let mut rest = path.as_os_str().as_bytes();
    let mut reached: Option<OwnedFd> = None;
    loop {
        let end = match rest.len() {
            0..=PART_BYTES_MAX => return Ok((reached.ok_or(Errno::NAMETOOLONG)?, rest)),
            _ => rest[..PART_BYTES_MAX].iter().rposition(|&byte| byte == b'/'),
        };
        // (Including the slash: the part before it is a directory, and may be the root.)
        let end = end.ok_or(Errno::NAMETOOLONG)? + 1;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match &reached {
            Some(directory) => openat(directory, &rest[..end], flags, Mode::empty()),
            None => openat(CWD, &rest[..end], flags, Mode::empty()),
        };
        reached = Some(directory?);
        // The rest must be relative.
        let slashes = rest[end..].iter().take_while(|&&byte| byte == b'/').count();
        rest = &rest[end + slashes..];
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::io::Read;

    use super::*;

    #[test]
    fn a_path_of_any_length_is_opened() {
        let root = tempfile::tempdir().unwrap();
        let mut directory: OwnedFd = std::fs::File::open(root.path()).unwrap().into();
        let mut path = root.path().to_owned();
        for level in 0..60 {
            let name = format!("{level}-{}", "n".repeat(200));
            rustix::fs::mkdirat(&directory, &name, Mode::RWXU).unwrap();
            directory = openat(&directory, &name, OFlags::DIRECTORY, Mode::empty()).unwrap();
            path.push(name);
            let file = openat(&directory, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU);
            rustix::io::write(file.unwrap(), level.to_string().as_bytes()).unwrap();
            let mut text = String::new();
            // Slashes may be doubled, as in `DIR//FILE`.
            let doubled = path.as_os_str().as_bytes().escape_ascii().to_string();
            let doubled = format!("{}/file", doubled.replace("/3", "///3"));
            for path in [&path.join("file"), Path::new(&doubled)] {
                let file = open(path, OFlags::RDONLY).unwrap();
                std::fs::File::from(file).read_to_string(&mut text).unwrap();
                assert_eq!(stat(path).unwrap().st_size as usize, level.to_string().len());
            }
            assert_eq!(text, level.to_string().repeat(2));
        }
        assert!(path.as_os_str().len() > 8192);
        for wrong in ["none", "file/below"] {
            let path = path.join(wrong);
            assert!(open(&path, OFlags::RDONLY).is_err() && stat(&path).is_err(), "{wrong}");
        }
        let long_name = path.join(OsStr::new(&"n".repeat(5000)));
        let error = open(&long_name, OFlags::RDONLY).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NAMETOOLONG));
    }
}
