//! `ringsum FILE...`: a line for each input, in the order of the arguments.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use blockring::Source;
use ringsum::Digest;
use ringsum::checkfile::{self, Style};

use crate::Status;
use crate::output::OutputError;
use crate::session::Session;

/// Hexadecimal digits that are written at once: output of any length takes little memory.
const DIGITS_AT_ONCE: usize = 64 << 10;

/// Hashes every file; one that cannot be hashed gives a message, and the others go on.
pub(crate) fn run(mut session: Session<'_>) -> anyhow::Result<Status> {
    let files: &[_] = match &*session.args.files {
        [] => &[Path::new("-").to_owned()],
        files => files,
    };
    session.progress.expect(|| files.iter().map(|path| length(path)).sum());
    let mut status = Status::Success;
    for path in files {
        match session.digest(path) {
            Ok(digest) => match session.progress.suspend(|| print(&session, path, &digest)) {
                Ok(()) => {}
                // What was found until then still counts.
                Err(error) if error.reader_left() => break,
                Err(error) => {
                    session.finish()?;
                    return Err(error.into());
                }
            },
            Err(error) => {
                status = Status::Failure;
                let name = path.as_os_str().as_bytes();
                session.progress.suspend(|| session.messages.say_of(name, &error.reason()));
            }
        }
    }
    session.finish()?;
    Ok(status)
}

/// Bytes that `path` will take to hash: 0 if there is no such file, `None` if only reading it tells.
pub(crate) fn length(path: &Path) -> Option<u64> {
    let metadata = match path.as_os_str().as_bytes() {
        b"-" => std::fs::metadata("/proc/self/fd/0"),
        _ => std::fs::metadata(path),
    };
    match metadata {
        Ok(metadata) if metadata.file_type().is_block_device() => Source::open(path).ok()?.len(),
        Ok(metadata) if metadata.is_file() || metadata.is_dir() => Some(metadata.len()),
        Ok(_) => None,
        Err(_) => Some(0),
    }
}

fn print(session: &Session<'_>, path: &Path, digest: &Digest) -> Result<(), OutputError> {
    let (args, output) = (session.args, &session.output);
    let mut reader = digest.reader();
    reader.set_position(args.seek);
    let name = path.as_os_str().as_bytes();
    let (before, after) = match args.no_names || args.raw {
        true => (Vec::new(), Vec::new()),
        false => checkfile::line_around(name, if args.tag { Style::Tag } else { Style::Plain }),
    };
    let mut line = output.name(&before).into_owned();
    let mut left = args.length;
    while left > 0 {
        let mut bytes = [0; DIGITS_AT_ONCE / 2];
        let bytes = &mut bytes[..left.min((DIGITS_AT_ONCE / 2) as u64) as usize];
        reader.fill(bytes);
        match args.raw {
            true => line.extend_from_slice(bytes),
            false => line.extend_from_slice(hex::encode(&*bytes).as_bytes()),
        }
        left -= bytes.len() as u64;
        if left > 0 {
            output.write(&line)?;
            line.clear();
        }
    }
    line.extend_from_slice(&output.name(&after));
    if !args.raw {
        line.push(b'\n');
    }
    output.write(&line)
}
