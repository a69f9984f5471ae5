//! Path conflicts: an output file must not be another input or output of the same run.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::cli::args::Args;

/// The identity of an existing file, or of one that will be created.
#[derive(PartialEq, Eq)]
enum Identity {
    Existing(u64, u64),
    New(PathBuf),
}

struct Endpoint {
    name: String,
    identity: Identity,
}

/// Checks that no output file is another endpoint of the same run: it would be truncated before it
/// is read, or written twice.
pub(crate) fn check(args: &Args) -> anyhow::Result<()> {
    let written = args.output.iter().chain(&args.tee).chain(&args.trace);
    let mut written: Vec<_> = written.filter_map(|path| end_at(path)).collect();
    if written.is_empty() && args.pass_through.is_none() {
        return Ok(());
    }
    if args.pass_through.is_some() {
        let stdout = std::fs::metadata("/proc/self/fd/1").ok();
        written.extend(stdout.and_then(|metadata| end_of("standard output".to_owned(), &metadata)));
    }
    let takes_stdin =
        args.keyed || (args.files.is_empty() && args.files_from.is_none() && !args.recursive);
    let stdin = takes_stdin.then(|| Path::new("-"));
    let read = args.files.iter().chain(&args.files_from).map(PathBuf::as_path).chain(stdin);
    let read =
        read.filter_map(|path| end_of(path.display().to_string(), &super::metadata(path).ok()?));
    // An index is read and written, and may be new.
    let index = args.index.as_deref().and_then(end_at);
    let others: Vec<_> = read.chain(index).collect();
    for (i, end) in written.iter().enumerate() {
        let twin = written[..i].iter().chain(&others).find(|other| other.identity == end.identity);
        if let Some(twin) = twin {
            let (end, twin) = (&end.name, &twin.name);
            if end == twin {
                anyhow::bail!("{end}: the same file is named twice; nothing was read or written");
            }
            anyhow::bail!("{end}: it is the same file as {twin}; nothing was read or written");
        }
    }
    Ok(())
}

/// Returns the endpoint for an existing file; `None` for a device that several endpoints may share.
fn end_of(name: String, metadata: &Metadata) -> Option<Endpoint> {
    // (A terminal, or /dev/null.)
    let is_shared = metadata.file_type().is_char_device();
    let identity = Identity::Existing(metadata.dev(), metadata.ino());
    (!is_shared).then_some(Endpoint { name, identity })
}

fn end_at(path: &Path) -> Option<Endpoint> {
    let name = path.display().to_string();
    if let Ok(metadata) = path.metadata() {
        return end_of(name, &metadata);
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new(".")).canonicalize().ok()?;
    Some(Endpoint { name, identity: Identity::New(parent.join(path.file_name()?)) })
}
