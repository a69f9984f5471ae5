//! `--pass-through` and `--tee`: hashes one input while copying it.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use blockring::{ErrorKind, RunOptions, Source, Tee};
use ringsum::Digests;
use ringsum::files::{Failure, Hashed};

use crate::cli::output::OutputError;
use crate::cli::session::{DigestError, Session};
use crate::cli::{Status, standard_streams};

/// Hashes the input while copying it. If not all of it could be copied, its digest is not printed.
pub(crate) fn run(session: &Session<'_>) -> anyhow::Result<Status> {
    let path = session.args.files.first().map_or(Path::new("-"), |path| path);
    let name = path.as_os_str().as_bytes();
    let source = match session.open_stream(path) {
        Ok(source) => source,
        Err(error) => {
            session.print_failure(name, &DigestError::from(error).into())?;
            return Ok(Status::Failure);
        }
    };
    session.progress.expect(|| super::hash::length(path));
    let (mut tee, copies) = open_tee(session)?;
    let result = hash(session, &source, path, &mut tee, &copies);
    // (Even if the input failed, the copies are as long as possible.)
    let failed_copies = tee.finish().err().unwrap_or_default();
    let is_complete = result.is_ok() && failed_copies.is_empty();
    for error in failed_copies {
        session.say_of(error.path.as_os_str().as_bytes(), &error.kind);
    }
    let reported = match result {
        Ok(digests) => session.print_hash(name, &Hashed::new(digests, &source)),
        Err(error) => report(session, name, error),
    };
    match reported {
        // (The reader of standard output has closed it, which does not affect the copies.)
        Err(error) if error.reader_left() => {}
        reported => reported?,
    }
    session.totals.count_inputs(1, false);
    session.finish()?;
    Ok(if is_complete { Status::Success } else { Status::Failure })
}

fn report(session: &Session<'_>, name: &[u8], error: ringsum::Error) -> Result<(), OutputError> {
    match Failure::from(error) {
        // The output failed, not the input.
        Failure::Read(kind @ ErrorKind::Tee { .. }) if !session.args.json => {
            session.progress.suspend(|| session.messages.say(&kind));
            Ok(())
        }
        failure => session.print_failure(name, &failure),
    }
}

fn hash(
    session: &Session<'_>,
    source: &Source,
    path: &Path,
    tee: &mut Tee,
    copies: &[File],
) -> Result<Digests, ringsum::Error> {
    let options = session.options_for(source, session.algorithms());
    let run = RunOptions { tee: Some(tee), ..session.run_options() };
    let plan = ringsum::plan(source, &options, &run)?;
    for copy in copies {
        // Only now that all options are known to be available. (A pipe cannot be truncated.)
        let _ = copy.set_len(0);
    }
    let progress = |bytes| session.progress.add(bytes);
    let hash = || ringsum::digest_tee(&plan, source, &options, tee, &progress);
    session.carry_out(&plan, path, None, hash)
}

/// Opens all destinations, not truncated; the files are also returned so that the caller can.
fn open_tee(session: &Session<'_>) -> anyhow::Result<(Tee, Vec<File>)> {
    let args = session.args;
    let (mut tee, mut copies) = (Tee::default(), Vec::new());
    if let Some(mode) = args.pass_through {
        if standard_streams::was_closed(libc::STDOUT_FILENO) {
            anyhow::bail!("standard output is closed, and --pass-through writes to it");
        }
        let stdout = File::from(rustix::stdio::stdout().try_clone_to_owned()?);
        tee = tee.output(stdout, "standard output", mode.into())?;
    }
    for path in &args.tee {
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| anyhow::anyhow!("--tee {}: {error}", path.display()))?;
        copies.push(file.try_clone()?);
        tee = tee.file(file, path);
    }
    Ok((tee, copies))
}
