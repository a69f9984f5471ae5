//! Verifying a collection, a part of it in each run: the sidecars of directories, those first that were verified
//! longest ago, up to a share of all data.
//!
//! `stamps.rs` keeps when each was verified, and `device_lock.rs` lets one run at a time read from a disk. Sidecars
//! are verified one after another, so that a run that is stopped loses at most one of them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use ringsum::files::walk::{Kind, Walk, WalkOptions};
use serde_json::json;

use crate::cli::VerifyArgs;
use crate::commands::{reported, sidecar_of, usage, worst};
use crate::device_lock::DeviceLocks;
use crate::format::{HEAD_BYTES, Head};
use crate::stamps::{Stamp, Stamps};
use crate::{Status, geometry};

#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Scrubbing a collection")]
pub(crate) struct ScrubArgs {
    /// Verify all sidecars (*.guard) in directories and their subdirectories
    #[arg(short, long)]
    recursive: bool,
    /// Record in DIR when each sidecar was verified; only one of the runs that share DIR reads from a device at a time
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Start with sidecars that were never verified, or were verified longest ago
    #[arg(long, requires = "state")]
    oldest_first: bool,
    /// Start no more sidecars once this share of all data has been verified, such as 10%
    #[arg(long, value_name = "PERCENT", requires = "oldest_first", value_parser = parse_share)]
    share: Option<u32>,
}

impl ScrubArgs {
    pub(crate) fn is_recursive(&self) -> bool {
        self.recursive
    }
}

/// Returns a share in millionths.
fn parse_share(text: &str) -> Result<u32, String> {
    match crate::cli::parse_percent(text) {
        Ok(0) | Err(_) => Err("a share of the data above 0 and up to 100%".to_owned()),
        share => share,
    }
}

/// A sidecar to verify.
struct Entry {
    path: PathBuf,
    /// The same path from the root, by which its stamp is known.
    absolute: PathBuf,
    /// Bytes of the files that it protects, nearly: those of its pieces.
    bytes: u64,
    stamp: Option<Stamp>,
    /// Whether this run verified it.
    is_done: bool,
}

/// Runs `verify` for the sidecars that are due. Returns the worst status.
pub(crate) fn run(
    args: &VerifyArgs,
    mut verify: impl FnMut(&Path) -> Result<Status>,
) -> Result<Status> {
    check(args)?;
    let ScrubArgs { recursive, state, oldest_first, share } = &args.scrub;
    let (mut status, mut paths) = (Status::Intact, Vec::new());
    for name in &args.names {
        match *recursive && name.is_dir() {
            true => status = status.max(find_sidecars(name, &mut paths)?),
            false => paths.push(name.clone()),
        }
    }
    let Some(state) = state else { return Ok(status.max(worst(&paths, verify)?)) };
    let stamps = Stamps::open(state)?;
    let entries = paths.iter().map(|path| Entry::new(sidecar_of(path), &stamps));
    let mut entries: Vec<Entry> = entries.collect::<Result<_>>()?;
    if *oldest_first {
        entries.sort_by_key(|entry| entry.stamp.map(|stamp| stamp.verified_us));
    }
    let total: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let most = share.map(|share| (u128::from(total) * u128::from(share)).div_ceil(PER_WHOLE));
    let (mut bytes, mut count) = (0, 0);
    let mut locks = DeviceLocks::new(state);
    for entry in &mut entries {
        if most.is_some_and(|most| u128::from(bytes) >= most) {
            break;
        }
        let base = args.common.base_of(&entry.path);
        let _locked = locks.lock(&base)?;
        // Another run may have verified it while this one waited.
        let now = stamps.read(&entry.absolute);
        if now > entry.stamp {
            entry.stamp = now;
            continue;
        }
        let found = reported(verify(&entry.path))?;
        entry.stamp = Some(stamps.write(&entry.absolute, found)?);
        entry.is_done = true;
        status = status.max(found);
        (bytes, count) = (bytes + entry.bytes, count + 1);
    }
    let trees = args.names.iter().filter(|name| *recursive && name.is_dir());
    for tree in trees {
        stamps.forget_missing(tree, entries.iter().map(|entry| &*entry.absolute))?;
    }
    status = status.max(report_earlier(args, &entries)?);
    report_run(args, [count, entries.len() as u64, bytes, total], status)?;
    Ok(status)
}

/// A share of everything, as [`ScrubArgs::share`] counts.
const PER_WHOLE: u128 = geometry::MILLION as u128;

impl Entry {
    fn new(path: PathBuf, stamps: &Stamps) -> Result<Entry> {
        let absolute = std::path::absolute(&path).with_context(|| path.display().to_string())?;
        let stamp = stamps.read(&absolute);
        // What cannot be read is an error when it is verified.
        let bytes = protected_bytes(&path).unwrap_or(0);
        Ok(Entry { path, absolute, bytes, stamp, is_done: false })
    }
}

/// Returns the size of what a sidecar protects, from its last head; if that is damaged, the size of the sidecar.
fn protected_bytes(path: &Path) -> std::io::Result<u64> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut head = vec![0; HEAD_BYTES as usize];
    file.read_exact_at(&mut head, len.saturating_sub(HEAD_BYTES))?;
    let head = Head::decode(&head).map(|head| head.geometry);
    Ok(head.map_or(len, |geometry| geometry.pieces * u64::from(geometry.piece_bytes)))
}

/// Finds the sidecars of a directory. Part of it may be unreadable: the status says so.
fn find_sidecars(directory: &Path, found: &mut Vec<PathBuf>) -> Result<Status> {
    let (mut status, before) = (Status::Intact, found.len());
    let walk = Walk::new(directory, &WalkOptions::default());
    for entry in walk.with_context(|| directory.display().to_string())? {
        match entry.kind() {
            Kind::File if entry.name().ends_with(b".guard") => {
                let within = entry.path_after(b"");
                found.push(directory.join(OsStr::from_bytes(&within)));
            }
            Kind::Failed(error) => {
                let path = entry.path();
                eprintln!("ringguard: {}: {error}", OsStr::from_bytes(&path).display());
                status = Status::Failed;
            }
            _ => {}
        }
    }
    if found.len() == before {
        // Perhaps the disk is not mounted: then "everything is intact" would be wrong.
        eprintln!("ringguard: {}: no sidecar (*.guard) is in it", directory.display());
        status = Status::Failed;
    }
    Ok(status)
}

/// Reports the sidecars that were not due, and damaged when they were verified last.
fn report_earlier(args: &VerifyArgs, entries: &[Entry]) -> Result<Status> {
    let mut status = Status::Intact;
    let mut out = std::io::stdout().lock();
    for entry in entries.iter().filter(|entry| !entry.is_done) {
        let Some(Stamp { verified_us, status: earlier }) = entry.stamp else { continue };
        if earlier == Status::Intact {
            continue;
        }
        status = status.max(earlier);
        let path = entry.path.display().to_string();
        match args.common.report.json {
            true => writeln!(
                out,
                "{}",
                json!({ "sidecar": path, "status": earlier.word(), "verified_us": verified_us })
            )?,
            false => writeln!(
                out,
                "{path}: {} when it was verified last; verify it by its name after a repair",
                earlier.word()
            )?,
        }
    }
    Ok(status)
}

/// Reports what the run did, in numbers: sidecars verified, and all; bytes verified, and all.
fn report_run(args: &VerifyArgs, numbers: [u64; 4], status: Status) -> Result<()> {
    let [count, all, bytes, total] = numbers;
    let mut out = std::io::stdout().lock();
    if args.common.report.json {
        let run = json!({
            "run": { "sidecars_verified": count, "sidecars": all, "bytes_verified": bytes, "bytes": total },
            "status": status.word(),
            "exit_status": status as u8,
        });
        writeln!(out, "{run}")?;
    } else if !args.common.report.quiet {
        writeln!(out, "verified {count} of {all} sidecars, {bytes} of {total} bytes")?;
    }
    Ok(())
}

/// Checks combinations that clap does not know.
fn check(args: &VerifyArgs) -> Result<()> {
    match (&args.common.directory, args.scrub.recursive) {
        // Each sidecar of a tree has names that are relative to its own directory.
        (Some(_), true) => Err(usage("-C: sidecars of a directory (-r) name files beside them")),
        _ => Ok(()),
    }
}
