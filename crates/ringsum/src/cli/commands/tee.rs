//! `--pass-through` and `--tee`: one input, which goes on to somewhere while it is hashed.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use blockring::{ErrorKind, Onward, Source};
use ringsum::many::{Failure, Hashed};

use crate::Status;
use crate::output::OutputError;
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
            printer.failed(name, &DigestError::from(error).into_failure())?;
            return Ok(Status::Failure);
        }
    };
    session.progress.expect(|| crate::hash::length(path, true));
    let (mut onward, copies) = open_onward(session)?;
    let (result, mut status) = match hash(session, &source, path, &mut onward, &copies) {
        Ok(found) => (Ok(Hashed::read(found, &source)), Status::Success),
        Err(error) => (Err(error), Status::Failure),
    };
    // Even if not all of it came: what did is theirs.
    for incomplete in onward.finish().err().unwrap_or_default() {
        status = Status::Failure;
        session.say_of(incomplete.path.as_os_str().as_bytes(), &incomplete.what());
    }
    let told = match result {
        Ok(hashed) => printer.hash(name, &hashed),
        Err(error) => tell(session, &printer, name, error),
    };
    match told {
        // Who reads standard output has seen enough, but what was to be written is another matter.
        Err(error) if error.reader_left() => {}
        told => told?,
    }
    session.count_inputs(1, false);
    session.finish()?;
    Ok(status)
}

fn tell(
    session: &Session<'_>,
    printer: &Printer<'_>,
    name: &[u8],
    error: ringsum::Error,
) -> Result<(), OutputError> {
    match Failure::from(error) {
        // It is no fault of the input.
        Failure::Read(kind @ ErrorKind::Onward { .. }) if !session.args.json => {
            session.progress.suspend(|| session.messages.say(&kind));
            Ok(())
        }
        failure => printer.failed(name, &failure),
    }
}

fn hash(
    session: &Session<'_>,
    source: &Source,
    path: &Path,
    onward: &mut Onward,
    copies: &[File],
) -> Result<ringsum::Found, ringsum::Error> {
    let algorithms = &session.algorithms;
    let mut plan = ringsum::plan_passed_on(source, &session.options.config, algorithms)?;
    plan.note_onward(onward);
    for copy in copies {
        // Only now, when all that was asked for can be had. What has no length has none to lose.
        let _ = copy.set_len(0);
    }
    let observe = |bytes| session.progress.add(bytes);
    session.carry_out(&plan, path, || {
        ringsum::hash_passed_on(&plan, &session.options.mode, algorithms, onward, &observe)
    })
}

/// Opens all that the input goes to, and empties none of it yet: the files are there once more for that.
fn open_onward(session: &Session<'_>) -> anyhow::Result<(Onward, Vec<File>)> {
    let args = session.args;
    let (mut onward, mut copies) = (Onward::new(), Vec::new());
    if let Some(passing) = args.pass_through {
        if start::stdout_was_closed() {
            anyhow::bail!("standard output is closed, and --pass-through writes there");
        }
        let stdout = File::from(rustix::stdio::stdout().try_clone_to_owned()?);
        onward = onward.to_output(stdout, "standard output", passing.into())?;
    }
    for path in &args.tee {
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| anyhow::anyhow!("--tee {}: {error}", path.display()))?;
        copies.push(file.try_clone()?);
        onward = onward.to_file(file, path);
    }
    Ok((onward, copies))
}
