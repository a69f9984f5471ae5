//! The files that `create` protects.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use ringsum::files::walk::{self, WalkOptions};

use crate::cli::CreateArgs;
use crate::commands::usage;
use crate::create::Input;
use crate::partial::suffixed;
use crate::sidecar::Sidecar;
use crate::tree::Tree;

/// A name as the sidecar has it, and as it was given.
pub(crate) type Name = (Vec<u8>, Vec<u8>);

/// Returns the files to protect, and the names by which they were given.
pub(crate) fn inputs(
    args: &CreateArgs,
    tree: &Tree,
    base: &Path,
    out: &Path,
    is_set: bool,
) -> Result<(Vec<Input>, Vec<Name>)> {
    let base = resolved(base)?;
    let own_names = own_names(out)?;
    let own = |name: &[u8]| own_names.contains(&base.join(OsStr::from_bytes(name)));
    let mut names = Vec::new();
    for path in &args.files {
        let metadata =
            std::fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
        let given = path.as_os_str().as_bytes();
        if metadata.is_dir() && args.recursive {
            let name = relative(&resolved(path)?, path, &base)?;
            walk_tree(path, &name, &mut names)?;
            continue;
        }
        let advice = match metadata.file_type() {
            kind if kind.is_dir() => "; use -r for directories",
            kind if kind.is_symlink() => "; name the file that the link leads to",
            _ => "",
        };
        ensure!(metadata.is_file(), "{}: it is not a regular file{advice}", path.display());
        let parent = resolved(path.parent().unwrap_or(Path::new("")))?;
        let name = relative(&parent.join(path.file_name().unwrap_or_default()), path, &base)?;
        if own(&name) {
            return Err(usage(format!(
                "{}: the sidecar would replace it; give the sidecar another name with -o",
                path.display()
            )));
        }
        names.push((name, given.to_vec()));
    }
    names.retain(|(name, _)| !own(name));
    names.sort();
    names.dedup_by(|a, b| a.0 == b.0);
    for (name, _) in &names {
        crate::format::check_name(name)?;
    }
    if is_set && names.is_empty() {
        bail!("there are no regular files in the directories given");
    }
    Ok((stat_all(tree, &names)?, names))
}

/// Adds the regular files of a directory.
fn walk_tree(path: &Path, name: &[u8], names: &mut Vec<Name>) -> Result<()> {
    let given = path.as_os_str().as_bytes();
    let given = given.strip_suffix(b"/").unwrap_or(given);
    let walk = walk::Walk::new(path, &WalkOptions::default());
    for entry in walk.with_context(|| path.display().to_string())? {
        match entry.kind() {
            walk::Kind::File => {}
            walk::Kind::Failed(error) => {
                bail!("{}: {error}", OsStr::from_bytes(&entry.path()).display())
            }
            _ => continue,
        }
        let within = entry.path_after(b"");
        let join = |prefix: &[u8]| match prefix {
            b"" => within.clone(),
            _ => [prefix, b"/", &within].concat(),
        };
        names.push((join(name), join(given)));
    }
    Ok(())
}

/// Returns the paths of the sidecar and of the files that are beside it while it is made or used.
fn own_names(out: &Path) -> Result<Vec<PathBuf>> {
    let parent = resolved(out.parent().unwrap_or(Path::new("")))?;
    let out = parent.join(out.file_name().unwrap_or_default());
    let suffixes = ["", ".partial", ".partial.log", ".undo", ".undo.partial"];
    Ok(suffixes.iter().map(|suffix| suffixed(&out, suffix)).collect())
}

/// Refuses to replace a file that is no sidecar.
pub(crate) fn check_output(out: &Path) -> Result<()> {
    let is_named = out.extension() == Some(OsStr::new("guard"));
    let found = match std::fs::symlink_metadata(out) {
        Err(_) => return Ok(()),
        Ok(found) => found,
    };
    let is_replaceable = |found: &Metadata| {
        found.is_file() && (is_named || found.len() == 0 || Sidecar::open(out).is_ok())
    };
    if !is_replaceable(&found) {
        return Err(usage(format!(
            "{}: it exists, and is no sidecar; remove it, or give the sidecar another name with -o",
            out.display()
        )));
    }
    Ok(())
}

/// Returns the path of a directory without links and `..`.
fn resolved(path: &Path) -> Result<PathBuf> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    path.canonicalize().with_context(|| path.display().to_string())
}

/// Returns the name of a path relative to a directory. `given`: for messages.
fn relative(path: &Path, given: &Path, base: &Path) -> Result<Vec<u8>> {
    let name = path.strip_prefix(base).map_err(|_| {
        usage(format!(
            "{}: it is not below {}, the directory that names are relative to; use -C for another one",
            given.display(),
            base.display()
        ))
    })?;
    Ok(name.as_os_str().as_bytes().to_vec())
}

/// Threads that ask for metadata.
const STAT_THREADS: usize = 16;

/// Returns the metadata of files, in order.
fn stat_all(tree: &Tree, names: &[Name]) -> Result<Vec<Input>> {
    let stat_some = |names: &[Name]| -> Result<Vec<Input>> {
        let stat = |(name, _): &Name| {
            let stat = tree.stat(name);
            let stat = stat.with_context(|| tree.path(name).display().to_string())?;
            Ok(Input::new(name.clone(), &stat))
        };
        names.iter().map(stat).collect()
    };
    let share = names.len().div_ceil(STAT_THREADS).max(64);
    std::thread::scope(|scope| {
        let mut inputs = Vec::with_capacity(names.len());
        let mut running = Vec::new();
        for part in names.chunks(share) {
            let spawned = std::thread::Builder::new().spawn_scoped(scope, move || stat_some(part));
            running.push((part, spawned));
        }
        for (part, spawned) in running {
            let found = match spawned {
                Ok(thread) => {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                }
                Err(_) => stat_some(part),
            };
            inputs.extend(found?);
        }
        Ok(inputs)
    })
}
