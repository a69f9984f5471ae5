//! `repair`: writes repaired files beside the damaged ones, and swaps them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File as StdFile;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail, ensure};
use blockring::Fingerprint;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::data::fingerprint;
use crate::diagnosis::{Diagnosis, Examination, State};
use crate::direct_file::DirectFile;
use crate::fault;
use crate::format::File;
use crate::read_back::verify_written;
use crate::recover::{Sink, Take, recover};

/// Suffix of a repaired file before it gets its name.
const REPAIRING: &str = ".repairing";
/// Suffix of the damaged file.
const DAMAGED: &str = ".damaged";

/// A repaired file before it has its name.
pub(crate) struct Target {
    index: usize,
    /// Of a single file. Of a set, thousands may be damaged, more than there are descriptors.
    open: Option<Open>,
    /// Whether it shares the blocks of the damaged file, so that only bad pieces are written.
    pub(crate) is_clone: bool,
    /// What was at its name.
    before: Option<Fingerprint>,
}

struct Open {
    file: StdFile,
    /// The same file, for direct writes.
    direct: Option<DirectFile>,
}

impl Open {
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let is_direct =
            self.direct.as_ref().map_or(Ok(false), |direct| direct.write(bytes, offset))?;
        if !is_direct {
            self.file.write_all_at(bytes, offset)?;
        }
        fault::spoil(&self.file, offset, bytes.len())
    }
}

impl Target {
    pub(crate) fn write(
        &self,
        examination: &Examination<'_>,
        bytes: &[u8],
        offset: u64,
    ) -> Result<()> {
        fault::point();
        let written = match &self.open {
            Some(open) => open.write(bytes, offset),
            None => self.file(examination)?.write_all_at(bytes, offset),
        };
        written.with_context(|| self.path(examination))
    }

    /// Returns the file, to read and to write.
    fn file(&self, examination: &Examination<'_>) -> Result<StdFile> {
        if let Some(open) = &self.open {
            return open.file.try_clone().with_context(|| self.path(examination));
        }
        let name = suffixed(&examination.sidecar.files[self.index].name, REPAIRING);
        let file = examination.tree.open_at(&name, OFlags::RDWR, Mode::empty());
        file.with_context(|| self.path(examination))
    }

    pub(crate) fn path(&self, examination: &Examination<'_>) -> String {
        path_of(examination, self.index)
    }
}

pub(crate) fn path_of(examination: &Examination<'_>, index: usize) -> String {
    examination.tree.path(&examination.sidecar.files[index].name).display().to_string()
}

fn suffixed(name: &[u8], suffix: &str) -> Vec<u8> {
    [name, suffix.as_bytes()].concat()
}

/// Writes each damaged file anew beside itself, and swaps the two.
pub(crate) fn repair_beside(
    examination: &Examination<'_>,
    diagnosis: &Diagnosis,
    discard: bool,
) -> Result<Vec<String>> {
    let mut targets = BTreeMap::new();
    for (index, state) in diagnosis.states.iter().enumerate() {
        if *state != State::Intact {
            match open_target(examination, index) {
                Ok(target) => drop(targets.insert(index, target)),
                Err(error) => {
                    remove(examination, &targets);
                    return Err(error);
                }
            }
        }
    }
    let result = fill(examination, diagnosis, &targets);
    let finished = result
        .and_then(|()| targets.values().try_for_each(|target| finish_target(examination, target)));
    if let Err(error) = finished {
        remove(examination, &targets);
        return Err(error);
    }
    let mut kept = Vec::new();
    while let Some((_, target)) = targets.first_key_value() {
        match swap(examination, target, discard).with_context(|| target.path(examination)) {
            Ok(swapped) => kept.extend(swapped),
            Err(error) => {
                remove(examination, &targets);
                return Err(error);
            }
        }
        targets.pop_first();
    }
    Ok(kept)
}

/// Removes repaired files that do not get their names.
pub(crate) fn remove(examination: &Examination<'_>, targets: &BTreeMap<usize, Target>) {
    for target in targets.values() {
        let name = suffixed(&examination.sidecar.files[target.index].name, REPAIRING);
        if let Ok((parent, last)) = examination.tree.parent(&name, false) {
            let _ = rustix::fs::unlinkat(&parent, last, AtFlags::empty());
        }
    }
}

pub(crate) fn open_target(examination: &Examination<'_>, index: usize) -> Result<Target> {
    let file = &examination.sidecar.files[index];
    let path = || examination.tree.path(&suffixed(&file.name, REPAIRING)).display().to_string();
    let (parent, last) = examination.tree.parent(&file.name, true).with_context(path)?;
    let name = suffixed(last.as_bytes(), REPAIRING);
    let name = OsStr::from_bytes(&name);
    // What an interrupted repair left.
    match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(io::Error::from(error)).with_context(path),
    }
    fault::point();
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o600));
    let opened = StdFile::from(opened.map_err(io::Error::from).with_context(path)?);
    let found = examination.tree.read(&file.name).ok();
    let before = found.as_ref().map(|(_, stat)| fingerprint(stat));
    // (On XFS and btrfs, for example; in no time, and without room for a second file.)
    let is_clone =
        found.is_some_and(|(damaged, _)| rustix::fs::ioctl_ficlone(&opened, damaged).is_ok());
    if !is_clone && let Err(error) = reserve(&opened, file.len) {
        let _ = rustix::fs::unlinkat(&parent, name, AtFlags::empty());
        return Err(error).with_context(path);
    }
    let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let direct = rustix::fs::openat(&parent, name, flags, Mode::empty()).ok();
    let direct = direct.map(|direct| DirectFile::new(direct.into()));
    let open = (!examination.sidecar.head.is_set).then_some(Open { file: opened, direct });
    Ok(Target { index, open, is_clone, before })
}

/// Reserves room for a file, as far as the file system can.
fn reserve(file: &StdFile, len: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len.max(1)) {
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => Ok(()),
        reserved => Ok(reserved?),
    }
}

/// Writes what is intact and what was recovered.
fn fill(
    examination: &Examination<'_>,
    diagnosis: &Diagnosis,
    targets: &BTreeMap<usize, Target>,
) -> Result<()> {
    let data = examination.data();
    let size = u64::from(data.geometry.piece_bytes);
    let write = |first: u64, bytes: &[u8]| -> Result<()> {
        let (start, end) = (first * size, first * size + bytes.len() as u64);
        for index in data.files_in(start, end) {
            let Some(target) = targets.get(&index) else { continue };
            let file = &data.files[index];
            let part = file.start.max(start)..file.end().min(end);
            if !part.is_empty() {
                let bytes = &bytes[(part.start - start) as usize..(part.end - start) as usize];
                target.write(examination, bytes, part.start - file.start)?;
            }
        }
        Ok(())
    };
    if let (false, Some(target)) = (data.is_set, targets.values().next()) {
        let intact: Option<Take<'_>> = if target.is_clone { None } else { Some(&write) };
        return recover(examination, diagnosis, &Sink { intact, recovered: &write });
    }
    for target in targets.values().filter(|target| !target.is_clone) {
        copy_intact(examination, diagnosis, target)?;
    }
    recover(examination, diagnosis, &Sink { intact: None, recovered: &write })
}

/// Copies the intact pieces of a file.
fn copy_intact(
    examination: &Examination<'_>,
    diagnosis: &Diagnosis,
    target: &Target,
) -> Result<()> {
    let data = examination.data();
    let file = &data.files[target.index];
    let path = || examination.tree.path(&file.name).display().to_string();
    let Ok((source, _)) = examination.tree.read(&file.name) else { return Ok(()) };
    let size = u64::from(data.geometry.piece_bytes);
    let mut buffer = Vec::new();
    for piece in file.start / size..file.end().div_ceil(size) {
        if diagnosis.bad.contains(&piece) {
            continue;
        }
        let (from, to) = ((piece * size).max(file.start), ((piece + 1) * size).min(file.end()));
        buffer.resize((to - from) as usize, 0);
        source.read_exact_at(&mut buffer, from - file.start).with_context(path)?;
        target.write(examination, &buffer, from - file.start)?;
    }
    Ok(())
}

/// Makes a repaired file durable, and reads it back.
pub(crate) fn finish_target(examination: &Examination<'_>, target: &Target) -> Result<()> {
    let file = &examination.sidecar.files[target.index];
    let path = || target.path(examination);
    let written = target.file(examination)?;
    written.set_len(file.len).with_context(path)?;
    restore_metadata(&written, file).with_context(path)?;
    fault::point();
    written.sync_all().with_context(path)?;
    verify_written(examination, &written, file).with_context(path)
}

/// Restores owner, mode and modification time. Only the owner may be refused: to other users than
/// root, whose files are their own in any case.
fn restore_metadata(file: &StdFile, as_in: &File) -> io::Result<()> {
    let stat = rustix::fs::fstat(file)?;
    let mut mode = as_in.mode;
    if (stat.st_uid, stat.st_gid) != (as_in.uid, as_in.gid) {
        let (uid, gid) =
            (rustix::fs::Uid::from_raw(as_in.uid), rustix::fs::Gid::from_raw(as_in.gid));
        match rustix::fs::fchown(file, Some(uid), Some(gid)) {
            Ok(()) => {}
            // Not with the privileges of another owner.
            Err(Errno::PERM) => mode &= 0o1777,
            Err(error) => return Err(error.into()),
        }
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?;
    restore_mtime(file, as_in)
}

pub(crate) fn restore_mtime(file: &StdFile, as_in: &File) -> io::Result<()> {
    let mtime = Timespec { tv_sec: as_in.mtime_s, tv_nsec: as_in.mtime_ns.into() };
    let atime = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    Ok(rustix::fs::futimens(file, &Timestamps { last_access: atime, last_modification: mtime })?)
}

/// Gives a repaired file its name. The name always leads to one of the two. Returns where the
/// damaged file is.
pub(crate) fn swap(
    examination: &Examination<'_>,
    target: &Target,
    discard: bool,
) -> Result<Option<String>> {
    let name = &examination.sidecar.files[target.index].name;
    let (parent, last) = examination.tree.parent(name, false)?;
    let repairing = suffixed(last.as_bytes(), REPAIRING);
    let repairing = OsStr::from_bytes(&repairing);
    let parent = &parent;
    let now = rustix::fs::statat(parent, last, AtFlags::SYMLINK_NOFOLLOW);
    let now = now.ok().map(|stat| fingerprint(&stat));
    ensure!(
        now.is_some() == target.before.is_some()
            && now.is_none_or(|now| target.before.is_some_and(|before| before == now)),
        "it changed while it was repaired; run it again when no process writes to it"
    );
    let (mut kept, mut is_exchanged) = (None, false);
    if now.is_some() && !discard {
        let kept_name;
        (kept_name, is_exchanged) = keep(parent, last, repairing)?;
        let directory = name.strip_suffix(last.as_bytes()).unwrap_or_default();
        let kept_name = [directory, &kept_name].concat();
        kept = Some(examination.tree.path(&kept_name).display().to_string());
    }
    fault::point();
    if !is_exchanged {
        rename_repaired(parent, repairing, last, now.is_none())?;
    }
    fault::point();
    rustix::fs::fsync(parent).map_err(io::Error::from)?;
    Ok(kept)
}

/// Gives the repaired file its name. `is_new`: if no file has it.
fn rename_repaired(
    parent: &OwnedFd,
    repairing: &OsStr,
    last: &OsStr,
    is_new: bool,
) -> io::Result<()> {
    if is_new {
        match rustix::fs::renameat_with(parent, repairing, parent, last, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => {}
            renamed => return Ok(renamed?),
        }
    }
    Ok(rustix::fs::renameat(parent, repairing, parent, last)?)
}

/// Gives the damaged file a second name, the first free one. Returns the name, and whether the
/// repaired file has its name, too.
fn keep(parent: &OwnedFd, last: &OsStr, repairing: &OsStr) -> Result<(Vec<u8>, bool)> {
    for number in 1..1000 {
        let suffix = match number {
            1 => DAMAGED.to_owned(),
            _ => format!("{DAMAGED}.{number}"),
        };
        let kept = suffixed(last.as_bytes(), &suffix);
        let name = OsStr::from_bytes(&kept);
        fault::point();
        match rustix::fs::linkat(parent, last, parent, name, AtFlags::empty()) {
            Ok(()) => return Ok((kept, false)),
            Err(Errno::EXIST) => {
                let inode = |name| {
                    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
                    stat.map(|stat| (stat.st_dev, stat.st_ino)).map_err(io::Error::from)
                };
                // An interrupted repair got as far as this.
                if inode(name)? == inode(last)? {
                    return Ok((kept, false));
                }
            }
            // A file system without links, or a file of another owner.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK) => {
                match exchange(parent, last, repairing, name) {
                    Ok(is_exchanged) => return Ok((kept, is_exchanged)),
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(io::Error::from(error).into()),
                }
            }
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    bail!("a thousand damaged copies of it are here; remove some")
}

/// Renames the damaged file, and gives its name to the repaired one at the same time if the file
/// system can. Returns whether it did.
fn exchange(
    parent: &OwnedFd,
    last: &OsStr,
    repairing: &OsStr,
    kept: &OsStr,
) -> std::result::Result<bool, Errno> {
    let rename = |from, to, flags| rustix::fs::renameat_with(parent, from, parent, to, flags);
    if rustix::fs::statat(parent, kept, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(Errno::EXIST);
    }
    match rename(repairing, last, RenameFlags::EXCHANGE) {
        // The damaged file has the other name now.
        Ok(()) => rename(repairing, kept, RenameFlags::NOREPLACE).map(|()| true),
        // The name leads to nothing for a moment.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rename(last, kept, RenameFlags::NOREPLACE).map(|()| false)
        }
        Err(error) => Err(error),
    }
}
