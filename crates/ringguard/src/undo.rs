//! The undo record of `repair --in-place`: what the bad pieces held, durable before they are
//! overwritten.

use std::fs::File as StdFile;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Mode, OFlags, Timespec, Timestamps};

use crate::create::{suffixed, sync_parent};
use crate::diagnosis::{Diagnosis, Examination};
use crate::fault;
use crate::format::check_name;
use crate::tree::Tree;

const MAGIC: [u8; 16] = *b"\x89ringguard undo\n";
/// Longest name, in bytes: that of a path.
const NAME_BYTES_MAX: u64 = 4096;

fn path_of(sidecar: &Path) -> PathBuf {
    suffixed(sidecar, ".undo")
}

/// Whether a record is there.
pub(crate) fn exists(sidecar: &Path) -> bool {
    path_of(sidecar).exists()
}

/// Writes and hashes.
struct Hashing<W>(W, blake3::Hasher);

impl<W: Write> Hashing<W> {
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.1.update(bytes);
        self.0.write_all(bytes)
    }
}

/// Saves what the bad pieces of files hold. A record of an interrupted repair stays: it holds what
/// was there first.
pub(crate) fn save(
    examination: &Examination<'_>,
    diagnosis: &Diagnosis,
    files: &[usize],
) -> Result<()> {
    let path = path_of(&examination.sidecar.path);
    if path.exists() {
        let saved = ranges_of(&path)?;
        for (name, offset, len) in bad_ranges(examination, diagnosis, files) {
            let is_saved = saved.iter().any(|(saved_name, start, bytes)| {
                *saved_name == name && *start <= offset && offset + len <= start + bytes
            });
            ensure!(
                is_saved,
                "{}: it is of an interrupted repair, and other bytes were damaged since; put them back with --undo, or remove it",
                path.display()
            );
        }
        return Ok(());
    }
    let partial = suffixed(&path, ".partial");
    let name = || partial.display().to_string();
    fault::point();
    let mut out = Hashing(
        BufWriter::new(StdFile::create(&partial).with_context(name)?),
        blake3::Hasher::new(),
    );
    write_record(examination, diagnosis, files, &mut out).with_context(name)?;
    let hash = out.1.finalize();
    out.0.write_all(hash.as_bytes()).with_context(name)?;
    let file = out.0.into_inner().map_err(|error| error.into_error()).with_context(name)?;
    fault::point();
    file.sync_all().with_context(name)?;
    fault::point();
    std::fs::rename(&partial, &path).with_context(name)?;
    fault::point();
    sync_parent(&path)
}

/// Returns the bad ranges of files: name, offset, length.
fn bad_ranges(
    examination: &Examination<'_>,
    diagnosis: &Diagnosis,
    files: &[usize],
) -> Vec<(Vec<u8>, u64, u64)> {
    let data = examination.data();
    let size = u64::from(data.geometry.piece_bytes);
    let mut ranges = Vec::new();
    for index in files {
        let file = &data.files[*index];
        for piece in diagnosis.bad.range(file.start / size..file.end().div_ceil(size)) {
            let (from, to) = ((piece * size).max(file.start), ((piece + 1) * size).min(file.end()));
            ranges.push((file.name.clone(), from - file.start, to - from));
        }
    }
    ranges
}

fn write_record(
    examination: &Examination<'_>,
    diagnosis: &Diagnosis,
    files: &[usize],
    out: &mut Hashing<impl Write>,
) -> std::io::Result<()> {
    out.put(&MAGIC)?;
    out.put(&(files.len() as u64).to_le_bytes())?;
    for index in files {
        let name = &examination.sidecar.files[*index].name;
        let (source, stat) = examination.tree.read(name)?;
        let found = stat.st_size as u64;
        let len = examination.sidecar.files[*index].len;
        let mut ranges: Vec<_> = bad_ranges(examination, diagnosis, &[*index])
            .into_iter()
            .map(|(_, offset, bytes)| (offset, bytes))
            .collect();
        if found > len {
            // What was appended.
            ranges.push((len, found - len));
        }
        out.put(&(name.len() as u64).to_le_bytes())?;
        out.put(name)?;
        out.put(&found.to_le_bytes())?;
        out.put(&stat.st_mtime.to_le_bytes())?;
        out.put(&stat.st_mtime_nsec.to_le_bytes())?;
        out.put(&(ranges.len() as u64).to_le_bytes())?;
        for (offset, bytes) in ranges {
            out.put(&offset.to_le_bytes())?;
            out.put(&bytes.to_le_bytes())?;
            copy(&source, offset, bytes, out)?;
        }
    }
    Ok(())
}

/// Copies bytes of a file. What cannot be read, or is not there, is zeros.
fn copy(
    source: &StdFile,
    mut offset: u64,
    mut left: u64,
    out: &mut Hashing<impl Write>,
) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    while left > 0 {
        let part = &mut buffer[..left.min(4096) as usize];
        part.fill(0);
        let mut have = 0;
        while have < part.len() {
            match source.read_at(&mut part[have..], offset + have as u64) {
                Ok(n) if n > 0 => have += n,
                _ => break,
            }
        }
        part[have..].fill(0);
        out.put(part)?;
        (offset, left) = (offset + part.len() as u64, left - part.len() as u64);
    }
    Ok(())
}

/// Removes the record.
pub(crate) fn forget(sidecar: &Path) -> Result<()> {
    let path = path_of(sidecar);
    fault::point();
    std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
    sync_parent(&path)
}

/// Reads a record, whose hash was checked.
struct Record<R>(R);

impl<R: Read> Record<R> {
    fn u64(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn name(&mut self) -> Result<Vec<u8>> {
        let len = self.u64()?;
        ensure!(len <= NAME_BYTES_MAX, "a name of {len} bytes");
        let mut name = vec![0; len as usize];
        self.0.read_exact(&mut name)?;
        check_name(&name)?;
        Ok(name)
    }
}

/// Opens a record, and checks its hash.
fn open(path: &Path) -> Result<Record<impl Read + use<>>> {
    let file = StdFile::open(path)?;
    let len = file.metadata()?.len().checked_sub(32).context("it is too short")?;
    let hash = crate::create::hash_section(&file, 0, len)?;
    let mut expected = [0; 32];
    file.read_exact_at(&mut expected, len)?;
    ensure!(hash == expected, "it is damaged");
    let mut reader = BufReader::new(file).take(len);
    let mut magic = [0; 16];
    reader.read_exact(&mut magic)?;
    ensure!(magic == MAGIC, "it is no undo record");
    Ok(Record(reader))
}

fn ranges_of(path: &Path) -> Result<Vec<(Vec<u8>, u64, u64)>> {
    let mut ranges = Vec::new();
    visit(
        path,
        |_, _| Ok(()),
        |name, offset, bytes, reader| {
            ranges.push((name.to_vec(), offset, bytes));
            std::io::copy(&mut reader.take(bytes), &mut std::io::sink())?;
            Ok(())
        },
    )?;
    Ok(ranges)
}

/// Metadata of a file in a record.
struct Before {
    len: u64,
    mtime: Timespec,
}

fn visit(
    path: &Path,
    mut each_file: impl FnMut(&[u8], &Before) -> Result<()>,
    mut each_range: impl FnMut(&[u8], u64, u64, &mut dyn Read) -> Result<()>,
) -> Result<()> {
    let mut visit = || -> Result<()> {
        let mut record = open(path)?;
        for _ in 0..record.u64()? {
            let name = record.name()?;
            let len = record.u64()?;
            let mtime = Timespec { tv_sec: record.u64()? as i64, tv_nsec: record.u64()? as _ };
            for _ in 0..record.u64()? {
                let (offset, bytes) = (record.u64()?, record.u64()?);
                each_range(&name, offset, bytes, &mut record.0)?;
            }
            each_file(&name, &Before { len, mtime })?;
        }
        Ok(())
    };
    visit().with_context(|| path.display().to_string())
}

/// Puts back what an interrupted repair overwrote.
pub(crate) fn undo(sidecar: &Path, tree: &Tree) -> Result<()> {
    let path = path_of(sidecar);
    if !path.exists() {
        bail!("{}: there is nothing to put back: no repair was interrupted", path.display());
    }
    // All of it is checked before anything is written.
    ranges_of(&path)?;
    let open = |name: &[u8]| {
        let shown = tree.path(name).display().to_string();
        tree.open_at(name, OFlags::RDWR, Mode::empty()).context(shown)
    };
    visit(
        &path,
        |name, before| {
            let file = open(name)?;
            fault::point();
            file.set_len(before.len)?;
            let atime = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
            let times = Timestamps { last_access: atime, last_modification: before.mtime };
            rustix::fs::futimens(&file, &times).map_err(std::io::Error::from)?;
            fault::point();
            Ok(file.sync_all()?)
        },
        |name, mut offset, bytes, reader| {
            let file = open(name)?;
            let (mut left, mut buffer) = (bytes, vec![0; 64 << 10]);
            while left > 0 {
                let part = &mut buffer[..left.min(64 << 10) as usize];
                reader.read_exact(part)?;
                fault::point();
                file.write_all_at(part, offset)?;
                (offset, left) = (offset + part.len() as u64, left - part.len() as u64);
            }
            Ok(())
        },
    )?;
    forget(sidecar)
}
