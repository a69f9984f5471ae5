//! `--list-bad-ranges`: lists the unreadable ranges of a file; a file that has any gets no digest.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use blockring::{BadRange, Plan, Source, SourceKind};
use ringsum::Options;
use ringsum::files::Hashed;

use crate::cli::session::{DigestError, Session};

/// Hashes a source, or lists its unreadable ranges: one line for each as it is found, or with
/// `--json` in the object.
pub(crate) fn hash(
    session: &Session<'_>,
    plan: &Plan,
    source: &Source,
    path: &Path,
    options: &Options,
) -> Result<Hashed, DigestError> {
    let progress = |bytes| session.progress.add(bytes);
    if source.len().is_none() || source.is_pseudo() {
        return match source.kind() {
            // A pseudo file has no storage device that could fail.
            SourceKind::File if source.start() == 0 => {
                let digests = ringsum::digest_planned(plan, source, options, &progress)?;
                Ok(Hashed::new(digests, source))
            }
            kind => Err(DigestError::NotSeekable(kind)),
        };
    }
    let digests = ringsum::digest_scan(plan, source, options, &progress, |range| {
        if !session.args.json {
            session.say_of(path.as_os_str().as_bytes(), &line(range));
        }
    })?;
    let digests = digests.map_err(DigestError::Unreadable)?;
    Ok(Hashed::new(digests, source))
}

fn line(range: &BadRange) -> String {
    let BadRange { offset, len, error } = range;
    format!("unreadable: bytes {offset} to {} ({len}): {error}", offset + len - 1)
}
