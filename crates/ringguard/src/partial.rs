//! A sidecar before it is complete, and the files beside it.

use std::fs::File as StdFile;
use std::num::NonZero;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::fs::{Advice, FlockOperation, Mode, OFlags};

use crate::fault;
use crate::format::Places;
use crate::lock;
use crate::small_writes::SmallWrites;

/// The sidecar before it is complete.
pub(crate) struct Partial {
    pub(crate) file: StdFile,
    pub(crate) path: PathBuf,
    pub(crate) places: Places,
    small: Mutex<SmallWrites>,
}

/// Times that a file is opened again because another process gave it its final name.
const RENAMED_MAX: u32 = 100;

impl Partial {
    /// Opens the partial sidecar of `out`, so that no other process writes to it.
    pub(crate) fn open(out: &Path, places: Places) -> Result<Partial> {
        let path = suffixed(out, ".partial");
        for _ in 0..RENAMED_MAX {
            let file = open_own(&path)?;
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(
                |error| anyhow!("{}: another process makes this sidecar ({error})", path.display()),
            )?;
            fault::opened(&path);
            // Between the two calls, the process that had the lock may have completed it: then this
            // is the sidecar under its final name.
            let opened = file.metadata()?;
            let is_same = std::fs::symlink_metadata(&path)
                .is_ok_and(|now| (now.dev(), now.ino()) == (opened.dev(), opened.ino()));
            if is_same {
                return Ok(Partial { file, path, places, small: Mutex::default() });
            }
        }
        Err(anyhow!("{}: another process makes this sidecar", path.display()))
    }

    /// Whether it has its length, so that a run may have been interrupted.
    pub(crate) fn is_whole(&self) -> Result<bool> {
        Ok(self.file.metadata()?.len() == self.places.len)
    }

    /// Makes it a file of zeros.
    pub(crate) fn clear(&self) -> Result<()> {
        self.file.set_len(0)?;
        self.file.set_len(self.places.len).with_context(|| self.path.display().to_string())
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        fault::point();
        self.file.write_all_at(bytes, offset).with_context(|| self.path.display().to_string())
    }

    /// Writes a few bytes, each of them once: at the latest with [`flush`](Partial::flush).
    pub(crate) fn write_small(&self, bytes: &[u8], offset: u64) -> Result<()> {
        fault::point();
        let (run, is_full) = {
            let mut small = lock(&self.small);
            (small.add(bytes, offset), small.is_full())
        };
        if let Some((offset, bytes)) = run {
            self.write(&bytes, offset)?;
        }
        if is_full { self.flush() } else { Ok(()) }
    }

    /// Lets the kernel begin to write a section to the device, and drop what it has written, so that
    /// the last fsync has little left to wait for.
    pub(crate) fn begin_writeback(&self, start: u64, len: u64) {
        let _ = rustix::fs::fadvise(&self.file, start, NonZero::new(len), Advice::DontNeed);
    }

    /// Writes what [`write_small`](Partial::write_small) has kept.
    pub(crate) fn flush(&self) -> Result<()> {
        let runs = std::mem::take(&mut *lock(&self.small)).runs;
        runs.into_iter().try_for_each(|(offset, bytes)| self.write(&bytes, offset))
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.flush()?;
        fault::point();
        self.file.sync_data().with_context(|| self.path.display().to_string())
    }

    /// Returns the hash of a section.
    pub(crate) fn hash(&self, start: u64, len: u64) -> Result<[u8; 32]> {
        hash_section(&self.file, start, len).with_context(|| self.path.display().to_string())
    }
}

/// Returns the BLAKE3 hash of a part of a file.
pub(crate) fn hash_section(file: &StdFile, start: u64, len: u64) -> std::io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; len.min(1 << 20) as usize];
    let mut at = 0;
    while at < len {
        let part = &mut buffer[..(len - at).min(1 << 20) as usize];
        file.read_exact_at(part, start + at)?;
        hasher.update(part);
        at += part.len() as u64;
    }
    Ok(*hasher.finalize().as_bytes())
}

/// Makes the names in the directory of a path durable.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    fault::point();
    let synced = StdFile::open(parent).and_then(|directory| directory.sync_all());
    synced.with_context(|| parent.display().to_string())
}

pub(crate) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Opens a file of our own, which nothing but a regular file may be.
pub(crate) fn open_own(path: &Path) -> Result<StdFile> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(0o666));
    let file = StdFile::from(
        opened.map_err(std::io::Error::from).with_context(|| path.display().to_string())?,
    );
    ensure!(file.metadata()?.is_file(), "{}: it is not a regular file", path.display());
    Ok(file)
}
