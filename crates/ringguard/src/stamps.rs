//! When each sidecar was verified, and how that ended: one small file per sidecar in the state directory.
//!
//! A stamp that is missing, cannot be read or lies in the future counts as none: the sidecar is verified sooner than
//! necessary, and nothing is lost. So stamps are replaced in one step, but not synced.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::Status;

/// How the name of a stamp ends.
const SUFFIX: &str = ".stamp";

/// The end of one verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    /// Since 1970, in microseconds: two small sidecars are verified within a millisecond, and their order counts.
    pub(crate) verified_us: u64,
    pub(crate) status: Status,
}

/// The stamps of a state directory.
pub(crate) struct Stamps(PathBuf);

impl Stamps {
    /// Opens the state directory, and makes it if it is missing.
    pub(crate) fn open(state: &Path) -> Result<Stamps> {
        fs::create_dir_all(state).with_context(|| format!("--state {}", state.display()))?;
        Ok(Stamps(state.to_owned()))
    }

    /// Returns the stamp of a sidecar, given by its absolute path.
    pub(crate) fn read(&self, sidecar: &Path) -> Option<Stamp> {
        let (path, stamp) = decode(&fs::read(self.path(sidecar)).ok()?)?;
        (path == *sidecar && stamp.verified_us <= now_us()).then_some(stamp)
    }

    /// Records that a sidecar was verified now.
    pub(crate) fn write(&self, sidecar: &Path, status: Status) -> Result<Stamp> {
        let stamp = Stamp { verified_us: now_us(), status };
        let write = || -> io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
            file.write_all(&encode(sidecar, &stamp))?;
            file.persist(self.path(sidecar))?;
            Ok(())
        };
        write().with_context(|| format!("--state {}", self.0.display()))?;
        Ok(stamp)
    }

    /// Removes the stamps of sidecars that are in a directory no more. `found` are those that are.
    pub(crate) fn forget_missing<'f>(
        &self,
        directory: &Path,
        found: impl Iterator<Item = &'f Path>,
    ) -> Result<()> {
        let kept: std::collections::HashSet<_> = found.map(|path| self.path(path)).collect();
        let directory = std::path::absolute(directory)?;
        for entry in fs::read_dir(&self.0).with_context(|| self.0.display().to_string())? {
            let stamp = entry?.path();
            let is_stamp = stamp.as_os_str().as_bytes().ends_with(SUFFIX.as_bytes());
            if !is_stamp || kept.contains(&stamp) {
                continue;
            }
            let of = fs::read(&stamp).ok().and_then(|bytes| decode(&bytes));
            if of.is_some_and(|(path, _)| path.starts_with(&directory)) {
                // (Another run may have been faster.)
                let _ = fs::remove_file(&stamp);
            }
        }
        Ok(())
    }

    fn path(&self, sidecar: &Path) -> PathBuf {
        let hash = blake3::hash(sidecar.as_os_str().as_bytes()).to_hex();
        self.0.join(format!("{}{SUFFIX}", &hash[..32]))
    }
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

/// A name is a list of bytes if it is not UTF-8.
fn encode(sidecar: &Path, stamp: &Stamp) -> Vec<u8> {
    let path = match sidecar.to_str() {
        Some(path) => json!(path),
        None => json!(sidecar.as_os_str().as_bytes()),
    };
    let Stamp { verified_us, status } = *stamp;
    let value = json!({ "path": path, "verified_us": verified_us, "status": status.word() });
    value.to_string().into_bytes()
}

fn decode(bytes: &[u8]) -> Option<(PathBuf, Stamp)> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let path: Vec<u8> = match &value["path"] {
        Value::String(path) => path.clone().into_bytes(),
        Value::Array(bytes) => bytes
            .iter()
            .map(|byte| byte.as_u64().and_then(|byte| u8::try_from(byte).ok()))
            .collect::<Option<_>>()?,
        _ => return None,
    };
    let verified_us = value["verified_us"].as_u64()?;
    let status = Status::of_word(value["status"].as_str()?)?;
    Some((OsStr::from_bytes(&path).into(), Stamp { verified_us, status }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_read_as_written_and_doubtful_ones_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let stamps = Stamps::open(&folder.path().join("a/b")).unwrap();
        for name in [&b"/t/x.guard"[..], b"/t/\xff\n.guard", b"/u/y.guard"] {
            let sidecar = Path::new(OsStr::from_bytes(name));
            assert_eq!(stamps.read(sidecar), None);
            let stamp = stamps.write(sidecar, Status::Repairable).unwrap();
            assert_eq!(stamps.read(sidecar), Some(stamp));
            let of_another = stamps.path(Path::new("/other"));
            fs::copy(stamps.path(sidecar), &of_another).unwrap();
            assert_eq!(stamps.read(Path::new("/other")), None, "a stamp of another sidecar");
            fs::remove_file(of_another).unwrap();
        }
        let (t, u) = (Path::new("/t/x.guard"), Path::new("/u/y.guard"));
        let future = Stamp { verified_us: now_us() + 60_000_000, status: Status::Intact };
        for bad in [&encode(u, &future)[..], b"", b"{}", b"{\"path\":\"/u/y.guard\"}", b"\xff"] {
            fs::write(stamps.path(u), bad).unwrap();
            assert_eq!(stamps.read(u), None, "{}", bad.escape_ascii());
        }
        stamps.write(u, Status::Intact).unwrap();
        stamps.forget_missing(Path::new("/t"), [t].into_iter()).unwrap();
        assert!(stamps.read(t).is_some() && stamps.read(u).is_some());
        assert_eq!(fs::read_dir(&stamps.0).unwrap().count(), 2, "the missing one is forgotten");
    }
}
