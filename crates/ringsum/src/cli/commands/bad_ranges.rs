//! `--map-errors`: every place of a file that cannot be read, and no hash of it then.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use blockring::{BadRange, Plan, SourceKind};
use ringsum::many::{BadRanges, Hashed};

use crate::session::{DigestError, Session};

/// Hashes a source by the cache mode of its plan, or says what of it cannot be read: at once, a line for each
/// range, but where objects are written, which have them.
pub(crate) fn hash(
    session: &Session<'_>,
    plan: &Plan<'_>,
    path: &Path,
) -> Result<Hashed, DigestError> {
    let source = plan.source();
    let (mode, algorithms) = (&session.options.mode, &session.algorithms);
    let observe = |bytes| session.progress.add(bytes);
    if source.len().is_none() {
        // A regular file that says it is empty, or one of those of /proc.
        return match source.kind() {
            SourceKind::File if source.start() == 0 => {
                Ok(Hashed::read(ringsum::sums_planned(plan, mode, algorithms, &observe)?, source))
            }
            kind => Err(DigestError::NoPlaces(kind.name())),
        };
    }
    let mut ranges = BadRanges::default();
    let found = ringsum::map_errors(plan, mode, algorithms, &observe, |range| {
        if !session.args.json {
            session.say_of(path.as_os_str().as_bytes(), &line(&range));
        }
        ranges.add(range);
    })?;
    let found = found.ok_or(DigestError::Unreadable(ranges))?;
    Ok(Hashed::read(found, source))
}

fn line(range: &BadRange) -> String {
    let BadRange { offset, len, error } = range;
    format!("unreadable: bytes {offset} to {} ({len}): {error}", offset + len - 1)
}
