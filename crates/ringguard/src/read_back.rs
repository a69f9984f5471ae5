//! Reading a repaired file back from its device.
//!
//! After all of it was written: what was read back while more was written took that time twice (ext4, virtio).

use std::fs::File as StdFile;
use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Result, ensure};
use blockring::{CacheMode, ErrorKind, Source};
use ringsum::Options;

use crate::data::drop_cached;
use crate::diagnosis::Examination;
use crate::format::File;

/// Reads a file back from its device after an fsync, and compares it with its root.
pub(crate) fn verify_written(
    examination: &Examination<'_>,
    written: &StdFile,
    file: &File,
) -> Result<()> {
    let path = examination.tree.path(&file.name);
    let reopened = StdFile::open(format!("/proc/self/fd/{}", written.as_raw_fd()))?;
    let source = Source::from_exclusive(reopened, &path, CacheMode::Buffered)?;
    let config = examination.reading.config.clone();
    let bypassing = Options {
        config: config.clone().with(|config| {
            (config.io.bypass_cache, config.io.cache, config.io.engine) = (true, None, None);
        }),
        ..Options::default()
    };
    let digests = match ringsum::digest_source(&source, &bypassing) {
        Err(ringsum::Error::Read(error)) if matches!(error.kind, ErrorKind::BypassCache(_)) => {
            // All that can be done here: it was synced, and is dropped from the page cache.
            drop_cached(written.as_fd())?;
            ringsum::digest_source(&source, &Options { config, ..Options::default() })?
        }
        digests => digests?,
    };
    let is_same = digests.hash().is_some_and(|hash| hash == file.root);
    ensure!(is_same, "what was written reads back as something else; the device may be failing");
    Ok(())
}
