//! What is printed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use anyhow::Result;
use ringsum::checkfile;
use serde_json::{Value, json};

use crate::Status;
use crate::cli::{ReportArgs, When};
use crate::diagnosis::{Diagnosis, State};
use crate::format::{File, Head};
use crate::sidecar::Sidecar;
use crate::tree::Tree;

/// Most ranges of a file that are listed.
const RANGES_MAX: usize = 10_000;

/// Fewest bytes of a listed digest that prove something.
const DIGEST_BYTES_MIN: usize = 16;

pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.root_cause().downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Shows progress on standard error.
pub(crate) struct Progress(Option<indicatif::ProgressBar>);

impl Progress {
    pub(crate) fn new(args: &ReportArgs, total: u64) -> Progress {
        use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
        let is_shown = match args.progress {
            When::Never => false,
            When::Always => true,
            When::Auto => !args.quiet && rustix::termios::isatty(rustix::stdio::stderr()),
        };
        Progress(is_shown.then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10));
            let style = ProgressStyle::with_template(
                "{bytes} of {total_bytes}  {percent}%  {binary_bytes_per_sec}  {eta} left",
            );
            bar.set_style(style.expect("the template is valid"));
            bar
        }))
    }

    pub(crate) fn add(&self, bytes: u64) {
        if let Some(bar) = &self.0 {
            bar.inc(bytes);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Returns an object with a name: bytes that are not UTF-8 in hexadecimal, too.
fn json_name(name: &[u8]) -> Value {
    let mut object = json!({ "path": String::from_utf8_lossy(name) });
    if std::str::from_utf8(name).is_err() {
        let digits: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        object["path_bytes"] = digits.into();
    }
    object
}

/// Writes a name so that it stays on its line, and does nothing on a terminal.
fn write_name(out: &mut impl Write, name: &[u8]) -> io::Result<()> {
    let escaped = checkfile::escape(name);
    if rustix::termios::isatty(rustix::stdio::stdout()) {
        let shown: String = String::from_utf8_lossy(&escaped)
            .chars()
            .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
            .collect();
        return out.write_all(shown.as_bytes());
    }
    out.write_all(&escaped)
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).escape_debug().to_string()
}

fn stdout() -> BufWriter<io::StdoutLock<'static>> {
    BufWriter::new(io::stdout().lock())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Prints the digests of files, in the order in which they were given: each has the name by which
/// the sidecar knows it, and that of the command line.
pub(crate) fn digests(
    report: &ReportArgs,
    files: &[File],
    names: &[(Vec<u8>, Vec<u8>)],
) -> Result<()> {
    if report.quiet {
        return Ok(());
    }
    let by_name: HashMap<_, _> = files.iter().map(|file| (&file.name, file)).collect();
    let mut out = stdout();
    for (name, given) in names {
        let Some(file) = by_name.get(name) else { continue };
        if report.json {
            let mut object = json_name(given);
            object["hash"] = hex(&file.root).into();
            object["size"] = file.len.into();
            object["status"] = "ok".into();
            writeln!(out, "{object}")?;
            continue;
        }
        let escaped = checkfile::escape(given);
        let (mark, rest) = match &escaped {
            Cow::Owned(escaped) => ("\\", &escaped[1..]),
            Cow::Borrowed(name) => ("", *name),
        };
        write!(out, "{mark}{}  ", hex(&file.root))?;
        out.write_all(rest)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// Says that an interrupted run goes on.
pub(crate) fn resumed(report: &ReportArgs, done: u64, all: u64) {
    if !report.quiet {
        eprintln!("ringguard: goes on at {} % of the data", done * 100 / all.max(1));
    }
}

/// Explains what damage can be repaired.
pub(crate) fn explain_geometry(head: &Head, in_order: bool) -> Result<()> {
    let geometry = &head.geometry;
    eprintln!("{}", geometry_text(head));
    if in_order {
        eprintln!(
            "  order    first to last        the disk is rotational; the data are coded in {} windows",
            geometry.windows()
        );
    }
    Ok(())
}

fn geometry_text(head: &Head) -> String {
    let geometry = &head.geometry;
    match geometry.m {
        0 => "  code     none                 damage is located, and not repaired".to_owned(),
        m => format!(
            "  code     {} + {m}             pieces of {} bytes in {} columns; a burst of {} bytes anywhere can be repaired",
            geometry.k,
            geometry.piece_bytes,
            geometry.parity_pieces() / u64::from(m),
            geometry.burst_bytes()
        ),
    }
}

/// Prints what is damaged. Names are relative to the directory `under`, if there is one: those of a tree of sidecars.
/// Returns the status.
pub(crate) fn diagnosis(
    report: &ReportArgs,
    under: Option<&Path>,
    sidecar: &Sidecar,
    diagnosis: &Diagnosis,
) -> Result<Status> {
    let mut out = stdout();
    let mut status = Status::Intact;
    let all_repairable = diagnosis.is_repairable();
    for (file, state) in sidecar.files.iter().zip(&diagnosis.states) {
        let can_repair = match state {
            State::Intact => true,
            State::Appended { .. } => true,
            _ => diagnosis.can_repair(sidecar, file),
        };
        let found = match state {
            State::Intact => Status::Intact,
            State::Unreadable(_) => Status::Failed,
            _ if can_repair => Status::Repairable,
            _ => Status::BeyondRepair,
        };
        status = status.max(found);
        if *state == State::Intact && report.quiet {
            continue;
        }
        let name = match under {
            Some(directory) => Cow::Owned(
                directory.join(OsStr::from_bytes(&file.name)).into_os_string().into_vec(),
            ),
            None => Cow::Borrowed(&*file.name),
        };
        if report.json {
            let mut object = state_json(&name, file, state, can_repair);
            if under.is_some() {
                object["sidecar"] = sidecar.path.display().to_string().into();
            }
            writeln!(out, "{object}")?;
        } else {
            write_state(&mut out, &name, file, state, can_repair)?;
        }
    }
    out.flush()?;
    if !all_repairable && !report.json && !diagnosis.bad.is_empty() {
        let lost = diagnosis.lost_pieces();
        let bad = diagnosis.bad.len();
        let geometry = &sidecar.head.geometry;
        match geometry.m {
            0 => eprintln!(
                "ringguard: {bad} groups or pieces are damaged, and the sidecar has no parity"
            ),
            m => eprintln!(
                "ringguard: {bad} pieces are bad; {} of them can be repaired, {lost} are in columns that lost more than their parity (at most {m})",
                bad - lost
            ),
        }
    }
    if diagnosis.contradicts {
        eprintln!(
            "ringguard: {}: its hashes contradict its digest, so nothing can be repaired",
            sidecar.path.display()
        );
        status = status.max(Status::BeyondRepair);
    }
    if !sidecar.damage.is_empty() {
        status = status.max(Status::Repairable);
        let what = sidecar.damage.join(", ");
        let name = sidecar.path.display();
        match report.json {
            true => {
                let object =
                    json!({ "path": name.to_string(), "status": "sidecar", "error": what });
                writeln!(out, "{object}")?;
            }
            false => writeln!(out, "{name}: damaged: {what}")?,
        }
    }
    out.flush()?;
    Ok(status)
}

fn write_state(
    out: &mut impl Write,
    name: &[u8],
    file: &File,
    state: &State,
    can_repair: bool,
) -> Result<()> {
    let how = if can_repair { "can be repaired" } else { "beyond repair" };
    let mut line = |text: &str| -> io::Result<()> {
        write_name(out, name)?;
        writeln!(out, ": {text}")
    };
    match state {
        State::Intact => line("OK")?,
        State::Missing => line(&format!("missing; {how}"))?,
        State::Unreadable(why) => line(why)?,
        State::Appended { found } => {
            line(&format!(
                "{} bytes were appended; the {} before them are intact",
                found - file.len,
                file.len
            ))?;
        }
        State::Damaged { ranges, found } => {
            for range in ranges.iter().take(RANGES_MAX) {
                let Range { start, end } = range;
                line(&format!(
                    "damaged: bytes {start} to {} ({} bytes); {how}",
                    end - 1,
                    end - start
                ))?;
            }
            if ranges.len() > RANGES_MAX {
                line(&format!("damaged: {} more ranges; {how}", ranges.len() - RANGES_MAX))?;
            }
            if let Some(found) = found {
                line(&format!("it has {found} bytes instead of {}; {how}", file.len))?;
            }
            if ranges.is_empty() && found.is_none() {
                line(&format!("its digest differs; {how}"))?;
            }
        }
    }
    Ok(())
}

fn state_json(name: &[u8], file: &File, state: &State, can_repair: bool) -> Value {
    let mut object = json_name(name);
    object["size"] = file.len.into();
    object["hash"] = hex(&file.root).into();
    object["status"] = match state {
        State::Intact => "ok",
        State::Missing => "missing",
        State::Unreadable(_) => "error",
        State::Appended { .. } => "appended",
        State::Damaged { .. } => "damaged",
    }
    .into();
    match state {
        State::Unreadable(why) => object["error"] = why.as_str().into(),
        State::Appended { found } => object["found_size"] = (*found).into(),
        State::Damaged { ranges, found } => {
            let list = ranges.iter().take(RANGES_MAX);
            let list =
                list.map(|range| json!({ "offset": range.start, "len": range.end - range.start }));
            object["ranges"] = list.collect();
            object["range_count"] = ranges.len().into();
            if let Some(found) = found {
                object["found_size"] = (*found).into();
            }
        }
        State::Intact | State::Missing => {}
    }
    if *state != State::Intact {
        object["repairable"] = can_repair.into();
    }
    object
}

/// Prints which files were repaired.
pub(crate) fn repaired(
    report: &ReportArgs,
    sidecar: &Sidecar,
    diagnosis: &Diagnosis,
    kept: &[String],
) -> Result<()> {
    let mut out = stdout();
    for (file, state) in sidecar.files.iter().zip(&diagnosis.states) {
        if *state == State::Intact {
            continue;
        }
        if report.json {
            let mut object = json_name(&file.name);
            object["status"] = "repaired".into();
            object["hash"] = hex(&file.root).into();
            writeln!(out, "{object}")?;
        } else {
            write_name(&mut out, &file.name)?;
            writeln!(out, ": repaired")?;
        }
    }
    out.flush()?;
    if !kept.is_empty() && !report.quiet && !report.json {
        eprintln!("ringguard: damaged files are kept as {}", kept.join(", "));
    }
    Ok(())
}

pub(crate) fn remade(report: &ReportArgs, sidecar: &Sidecar) -> Result<()> {
    let name = sidecar.path.display();
    let mut out = stdout();
    match report.json {
        true => writeln!(out, "{}", json!({ "path": name.to_string(), "status": "repaired" }))?,
        false => writeln!(out, "{name}: repaired")?,
    }
    Ok(out.flush()?)
}

pub(crate) fn undone(report: &ReportArgs, path: &Path) -> Result<()> {
    let mut out = stdout();
    if !report.quiet {
        writeln!(out, "{}: everything is as it was before the repair", path.display())?;
    }
    Ok(out.flush()?)
}

/// Compares the digests with those of a checksum file, which has the files by their paths, or by
/// their names in the sidecar. Returns whether one differs, or is not listed.
pub(crate) fn compare_list(
    report: &ReportArgs,
    sidecar: &Sidecar,
    tree: &Tree,
    digests: &HashMap<Vec<u8>, Vec<u8>>,
    list: &Path,
) -> Result<bool> {
    let mut out = stdout();
    let mut differs = false;
    let list = list.display();
    for file in &sidecar.files {
        let path = tree.path(&file.name).into_os_string().into_encoded_bytes();
        let path = path.strip_prefix(b"./").unwrap_or(&path);
        let Some(digest) = digests.get(path).or_else(|| digests.get(&file.name)) else {
            differs = true;
            eprintln!("ringguard: {}: {list} does not have it", shown(&file.name));
            continue;
        };
        // (A list may have more of the output of BLAKE3, or less.)
        let common = digest.len().min(file.root.len());
        if common >= DIGEST_BYTES_MIN && digest[..common] == file.root[..common] {
            continue;
        }
        differs = true;
        let what = format!("the digest of the sidecar is not that of {list}");
        match report.json {
            true => {
                let mut object = json_name(&file.name);
                object["status"] = "list".into();
                object["error"] = what.into();
                writeln!(out, "{object}")?;
            }
            false => {
                write_name(&mut out, &file.name)?;
                writeln!(out, ": {what}")?;
            }
        }
    }
    out.flush()?;
    Ok(differs)
}

/// Prints what a sidecar protects.
pub(crate) fn info(is_json: bool, sidecar: &Sidecar) -> Result<()> {
    let head = &sidecar.head;
    let geometry = &head.geometry;
    let data_bytes: u64 = sidecar.files.iter().map(|file| file.len).sum();
    let redundancy = f64::from(head.redundancy) / 10_000.0;
    if is_json {
        let files = sidecar.files.iter().map(|file| {
            let mut object = json_name(&file.name);
            object["size"] = file.len.into();
            object["hash"] = hex(&file.root).into();
            object
        });
        let object = json!({
            "path": sidecar.path.display().to_string(),
            "version": 1,
            "set": head.is_set,
            "files": files.collect::<Vec<_>>(),
            "data_bytes": data_bytes,
            "sidecar_bytes": sidecar.places.len,
            "redundancy_percent": redundancy,
            "group_bytes": head.group_bytes,
            "piece_bytes": geometry.piece_bytes,
            "pieces": geometry.pieces,
            "data_shards": geometry.k,
            "parity_shards": geometry.m,
            "burst_bytes": geometry.burst_bytes(),
            "damage": sidecar.damage,
        });
        let mut out = stdout();
        writeln!(out, "{object}")?;
        return Ok(out.flush()?);
    }
    let mut out = stdout();
    let share = sidecar.places.len as f64 * 100.0 / data_bytes.max(1) as f64;
    writeln!(out, "{}: {} files, {data_bytes} bytes", sidecar.path.display(), sidecar.files.len())?;
    writeln!(out, "  sidecar  {} bytes           {share:.2} % of the data", sidecar.places.len)?;
    writeln!(
        out,
        "  nodes    {} bytes           groups of {} bytes",
        head.nodes_bytes, head.group_bytes
    )?;
    writeln!(out, "  parity   {redundancy} %")?;
    writeln!(out, "{}", geometry_text(head))?;
    if !sidecar.damage.is_empty() {
        writeln!(out, "  damaged  {}", sidecar.damage.join(", "))?;
    }
    for file in &sidecar.files {
        write!(out, "{}  ", hex(&file.root))?;
        write_name(&mut out, &file.name)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}
