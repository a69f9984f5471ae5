//! `--pass-through` and `--tee`: one input, which goes on to somewhere while it is hashed.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use blockring::{ErrorKind, Onward, Source};
use ringsum::many::Hashed;

use crate::Status;
use crate::inputs;
use crate::print::Printer;
use crate::session::{DigestError, Session};
use crate::start;

/// Hashes the input while it goes on. Without a hash of all of it, nothing is printed.
pub(crate) fn run(session: &Session<'_>) -> anyhow::Result<Status> {
    let path = session.args.files.first().map_or(Path::new("-"), |path| path);
    let name = path.as_os_str().as_bytes();
    let printer = Printer::new(session);
    let source = match session.open_stream(path) {
        Ok(source) => source,
        Err(error) => {
            printer.failure(name, &DigestError::from(error).reason())?;
            return Ok(Status::Failure);
        }
    };
    session.progress.expect(|| crate::hash::length(path));
    let mut onward = open_onward(session, path)?;
    let (result, mut status) = match hash(session, &source, path, &mut onward) {
        Ok(digest) => (Ok(Hashed::read(digest, &source)), Status::Success),
        Err(error) => (Err(error), Status::Failure),
    };
    // Even if not all of it came: what did is theirs.
    for incomplete in onward.finish().err().unwrap_or_default() {
        status = Status::Failure;
        let what = format!("{}; it holds the first {} bytes", incomplete.error, incomplete.bytes);
        session.say_of(incomplete.path.as_os_str().as_bytes(), &what);
    }
    match result {
        Ok(hashed) => printer.hash(name, &hashed)?,
        Err(ringsum::Error::Read(error)) => match error.kind() {
            kind @ ErrorKind::Onward { .. } => {
                session.progress.suspend(|| session.messages.say(kind));
            }
            kind => printer.failure(name, &kind.to_string())?,
        },
        Err(error) => printer.failure(name, &error.to_string())?,
    }
    session.count_inputs(1, false);
    session.finish()?;
    Ok(status)
}

fn hash(
    session: &Session<'_>,
    source: &Source,
    path: &Path,
    onward: &mut Onward,
) -> Result<ringsum::Digest, ringsum::Error> {
    let mut plan = ringsum::plan(source, &session.options.config)?;
    plan.note_onward(onward);
    let observe = |bytes| session.progress.add(bytes);
    session.carry_out(&plan, path, || {
        ringsum::hash_passed_on(&plan, &session.options.mode, onward, &observe)
    })
}

/// Opens all that the input goes to.
fn open_onward(session: &Session<'_>, input: &Path) -> anyhow::Result<Onward> {
    let args = session.args;
    let mut taken = vec![(input.to_owned(), inputs::metadata(input).ok())];
    let mut onward = Onward::new();
    if args.pass_through {
        if start::stdout_was_closed() {
            anyhow::bail!("standard output is closed, and --pass-through writes there");
        }
        let stdout = File::from(rustix::stdio::stdout().try_clone_to_owned()?);
        refuse_twice(&taken, Path::new("standard output"), &stdout.metadata()?)?;
        taken.push(("standard output".into(), stdout.metadata().ok()));
        onward = onward.to_output(stdout, "standard output")?;
    }
    for path in &args.tee {
        if let Ok(metadata) = path.metadata() {
            refuse_twice(&taken, path, &metadata)?;
        }
        let file = File::create(path).map_err(|error| no_copy(path, &error))?;
        taken.push((path.clone(), file.metadata().ok()));
        onward = onward.to_file(file, path);
    }
    Ok(onward)
}

fn no_copy(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow::anyhow!("--tee {}: {error}", path.display())
}

/// A file that is written to must be no other end of the same run: it would be emptied, or grow for ever.
fn refuse_twice(
    taken: &[(std::path::PathBuf, Option<Metadata>)],
    path: &Path,
    metadata: &Metadata,
) -> anyhow::Result<()> {
    if !(metadata.is_file() || metadata.file_type().is_block_device()) {
        return Ok(());
    }
    for (other, known) in taken {
        if known.as_ref().is_some_and(|m| (m.dev(), m.ino()) == (metadata.dev(), metadata.ino())) {
            let (path, other) = (path.display(), other.display());
            anyhow::bail!("{path}: it is the same file as {other}; nothing was written");
        }
    }
    Ok(())
}
