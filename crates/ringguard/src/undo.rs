//! The undo record of `repair --in-place`: what the bad pieces held, durable before they are
//! overwritten.

use std::collections::{BTreeMap, HashMap};
use std::fs::File as StdFile;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Mode, OFlags, Timespec, Timestamps};

use crate::diagnosis::{Diagnosis, Examination};
use crate::fault;
use crate::format::{NAME_BYTES_MAX, check_name};
use crate::partial::{hash_section, open_own, suffixed, sync_parent};
use crate::tree::Tree;

const MAGIC: [u8; 16] = *b"\x89ringguard undo\n";

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
        let saved = ranges_of(&path)
            .context("what an interrupted repair overwrote cannot be put back; to repair without that, remove its record")?;
        for index in files {
            let name = &examination.sidecar.files[*index].name;
            let saved = saved.get(name);
            for (offset, len) in ranges_to_write(examination, diagnosis, *index) {
                let before = saved.and_then(|saved| saved.range(..=offset).next_back());
                ensure!(
                    before.is_some_and(|(start, bytes)| offset + len <= start + bytes),
                    "{}: it is of an interrupted repair, and other bytes were damaged since; put them back with --undo, or remove it",
                    path.display()
                );
            }
        }
        return Ok(());
    }
    let partial = suffixed(&path, ".partial");
    let name = || partial.display().to_string();
    fault::point();
    let mut out = Hashing(BufWriter::new(open_own(&partial)?), blake3::Hasher::new());
    out.0.get_ref().set_len(0).with_context(name)?;
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

/// Returns the ranges of a file that are overwritten: offset, length. They are pieces, and not
/// joined, so that those of a second run are the same.
fn ranges_to_write(
    examination: &Examination<'_>,
    diagnosis: &Diagnosis,
    index: usize,
) -> Vec<(u64, u64)> {
    let data = examination.data();
    let size = u64::from(data.geometry.piece_bytes);
    let file = &data.files[index];
    let pieces = diagnosis.bad.range(file.start / size..file.end().div_ceil(size));
    let range = |piece: &u64| {
        let (from, to) = ((piece * size).max(file.start), ((piece + 1) * size).min(file.end()));
        (from - file.start, to - from)
    };
    pieces.map(range).collect()
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
        let mut ranges = ranges_to_write(examination, diagnosis, *index);
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
    let mut buffer = vec![0; 64 << 10];
    while left > 0 {
        let part = &mut buffer[..left.min(64 << 10) as usize];
        if source.read_exact_at(part, offset).is_err() {
            // A bad sector must not take the bytes around it with it.
            for (block, at) in part.chunks_mut(4096).zip((offset..).step_by(4096)) {
                read_there(source, block, at);
            }
        }
        out.put(part)?;
        (offset, left) = (offset + part.len() as u64, left - part.len() as u64);
    }
    Ok(())
}

/// Reads as far as that is possible. The rest is zeros.
fn read_there(source: &StdFile, block: &mut [u8], offset: u64) {
    let mut have = 0;
    while have < block.len() {
        match source.read_at(&mut block[have..], offset + have as u64) {
            Ok(n) if n > 0 => have += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    block[have..].fill(0);
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
    let hash = hash_section(&file, 0, len)?;
    let mut expected = [0; 32];
    file.read_exact_at(&mut expected, len)?;
    ensure!(hash == expected, "it is damaged");
    let mut reader = BufReader::new(file).take(len);
    let mut magic = [0; 16];
    reader.read_exact(&mut magic)?;
    ensure!(magic == MAGIC, "it is no undo record");
    Ok(Record(reader))
}

/// The ranges of files in a record: lengths by offset.
type Saved = HashMap<Vec<u8>, BTreeMap<u64, u64>>;

fn ranges_of(path: &Path) -> Result<Saved> {
    let mut ranges = Saved::new();
    visit(
        path,
        |_, _| Ok(()),
        |name, offset, bytes, reader| {
            let of_file = ranges.entry(name.to_vec()).or_default();
            of_file.insert(offset, bytes);
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
