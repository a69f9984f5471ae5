//! What is damaged, and whether the parity suffices to repair it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File as StdFile;
use std::io;
use std::ops::Range;
use std::sync::Mutex;

use anyhow::{Context, Result};
use blake3::hazmat::HasherExt;
use blockring::{CacheMode, Source};
use ringsum::files::{FilesOptions, Hashed, InputFile, Job, Outcome, hash_files};
use ringsum::{Options, Outboard};

use crate::data::{Data, Piece, Reading};
use crate::format::{File, piece_hash, truncated};
use crate::geometry::{Column, Run, Step};
use crate::lock;
use crate::sidecar::{PARITY_MAX, Sidecar};
use crate::tree::Tree;

/// The state of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Intact,
    /// Ranges of the protected file; and the length found, if it is another one.
    Damaged {
        ranges: Vec<Range<u64>>,
        found: Option<u64>,
    },
    /// All bytes are intact, and others follow.
    Appended {
        found: u64,
    },
    Missing,
    /// It cannot be opened.
    Unreadable(String),
}

/// A column that lost pieces.
#[derive(Debug, Default, Clone)]
pub(crate) struct Loss {
    /// Shards of the data.
    pub(crate) lost: Vec<u32>,
    /// Intact pieces of parity, as many as are needed.
    pub(crate) parities: Vec<u32>,
}

/// What is damaged.
#[derive(Debug)]
pub(crate) struct Diagnosis {
    /// Of each file.
    pub(crate) states: Vec<State>,
    /// Pieces of the data.
    pub(crate) bad: BTreeSet<u64>,
    pub(crate) columns: BTreeMap<Column, Loss>,
    /// Whether the digest of a file says that it is damaged, and no piece does.
    pub(crate) contradicts: bool,
}

impl Diagnosis {
    /// Returns a diagnosis of one file, without details.
    pub(crate) fn of_state(state: State) -> Diagnosis {
        let (bad, columns) = (BTreeSet::new(), BTreeMap::new());
        Diagnosis { states: vec![state], bad, columns, contradicts: false }
    }

    pub(crate) fn is_intact(&self) -> bool {
        self.states.iter().all(|state| *state == State::Intact)
    }

    /// Returns the number of bad pieces in columns that cannot be repaired.
    pub(crate) fn lost_pieces(&self) -> usize {
        let beyond = self.columns.values().filter(|loss| loss.parities.len() < loss.lost.len());
        beyond.map(|loss| loss.lost.len()).sum()
    }

    pub(crate) fn is_repairable(&self) -> bool {
        self.lost_pieces() == 0
            && !self.contradicts
            && !self.states.iter().any(|state| matches!(state, State::Unreadable(_)))
    }

    /// Whether a file can be repaired, if others cannot.
    pub(crate) fn can_repair(&self, sidecar: &Sidecar, file: &File) -> bool {
        let geometry = &sidecar.head.geometry;
        let size = u64::from(geometry.piece_bytes);
        let pieces = file.start / size..file.end().div_ceil(size);
        !self.contradicts
            && self.bad.range(pieces).all(|piece| {
                let loss = &self.columns[&geometry.column_of(*piece).0];
                loss.parities.len() >= loss.lost.len()
            })
    }
}

/// What to compare, and how.
pub(crate) struct Examination<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) sidecar: &'a Sidecar,
    pub(crate) reading: &'a Reading,
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

impl<'a> Examination<'a> {
    pub(crate) fn data(&self) -> Data<'a> {
        Data {
            tree: self.tree,
            files: &self.sidecar.files,
            geometry: self.sidecar.head.geometry,
            is_set: self.sidecar.head.is_set,
            reading: self.reading,
            fingerprints: None,
        }
    }

    pub(crate) fn run(&self) -> Result<Diagnosis> {
        let mut states = match &self.sidecar.files[..] {
            [file] if !self.sidecar.head.is_set => vec![self.examine(0, file)?],
            _ => self.examine_set()?,
        };
        let (bad, contradicts) = self.bad_pieces(&mut states)?;
        let columns = self.columns(&bad);
        Ok(Diagnosis { states, bad, columns, contradicts })
    }

    fn options(&self) -> Options {
        Options { config: self.reading.config.clone(), ..Options::default() }
    }

    /// Compares a file with its root, and locates damage with its nodes.
    fn examine(&self, index: usize, file: &File) -> Result<State> {
        let path = self.tree.path(&file.name);
        let (opened, stat) = match self.tree.read(&file.name) {
            Ok(opened) => opened,
            Err(error) => return Ok(unopened(&error)),
        };
        let found = stat.st_size as u64;
        let source = Source::from_exclusive(opened, &path, CacheMode::Buffered)?;
        let place = self.sidecar.outboard(index);
        let read = |offset: u64, bytes: &mut [u8]| {
            let (start, len) = place.ok_or(io::ErrorKind::UnexpectedEof)?;
            if offset + bytes.len() as u64 > len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.sidecar.read_at(start + offset, bytes)
        };
        let group_bytes = self.sidecar.head.group_bytes.into();
        let outboard = Outboard { len: file.len, group_bytes, read: &read };
        let (digest, ranges) =
            ringsum::bad_ranges(&source, &outboard, &file.root, &self.options(), self.progress)?;
        let is_same = digest.and_then(|digest| digest.hash()).is_some_and(|hash| hash == file.root);
        Ok(match (is_same, found == file.len) {
            (true, true) => State::Intact,
            (true, false) => State::Appended { found },
            (false, same) => State::Damaged { ranges, found: (!same).then_some(found) },
        })
    }

    /// Compares the digests of all files, and locates damage in those that differ.
    fn examine_set(&self) -> Result<Vec<State>> {
        let files = &self.sidecar.files;
        let mut states = vec![None; files.len()];
        let mut jobs = Vec::new();
        for (index, file) in files.iter().enumerate() {
            match self.tree.read(&file.name) {
                Ok((_, stat)) if stat.st_size as u64 == file.len => {
                    let path = self.tree.path(&file.name);
                    match InputFile::from_path(&path) {
                        Ok(Some(input)) => jobs.push((input.inode, index, input)),
                        Ok(None) => states[index] = Some(State::Missing),
                        Err(error) => states[index] = Some(unopened(&error)),
                    }
                }
                Ok(_) => {}
                Err(error) => states[index] = Some(unopened(&error)),
            }
        }
        jobs.sort_by_key(|(inode, ..)| *inode);
        let options = self.options();
        let hash_one = |job: &Job<usize>| {
            let source = Source::open(self.tree.path(&files[job.tag].name))
                .map_err(|error| ringsum::files::Failure::Read(error.kind))?;
            let digests = ringsum::digest_source(&source, &options)?;
            Ok(Hashed::new(digests, &source))
        };
        let mut run = FilesOptions::new(&options, &hash_one);
        let report_progress = |progress: ringsum::files::Progress| {
            if let ringsum::files::Progress::Bytes(bytes) = progress {
                (self.progress)(bytes);
            }
        };
        run.progress = &report_progress;
        run.unordered = true;
        let results = Mutex::new(&mut states);
        let jobs =
            jobs.into_iter().map(|(_, index, file)| Some(Job { file: Some(file), tag: index }));
        hash_files(
            jobs,
            &run,
            |outcome: Outcome<usize>| -> Result<(), std::convert::Infallible> {
                let index = outcome.job.tag;
                let is_same = outcome.result.is_some_and(|result| {
                    let hash = result.ok().and_then(|hashed| hashed.digests.hash());
                    hash.is_some_and(|hash| hash == files[index].root)
                });
                if is_same {
                    lock(&results)[index] = Some(State::Intact);
                }
                Ok(())
            },
            None,
        )
        .unwrap_or_else(|never| match never {});
        let states = states.into_iter().enumerate();
        let states = states.map(|(index, state)| match state {
            Some(state) => state,
            // An error of one file must not hide what the others are.
            None => self
                .examine(index, &files[index])
                .unwrap_or_else(|error| State::Unreadable(format!("{error:#}"))),
        });
        Ok(states.collect())
    }

    /// Returns the pieces that differ from what was protected, and whether the hashes of pieces
    /// contradict a digest. Ranges that turn out to be intact are removed from the states.
    fn bad_pieces(&self, states: &mut [State]) -> Result<(BTreeSet<u64>, bool)> {
        let geometry = &self.sidecar.head.geometry;
        let size = u64::from(geometry.piece_bytes);
        let mut suspects = BTreeSet::new();
        for (file, state) in self.sidecar.files.iter().zip(&*states) {
            let whole = std::slice::from_ref(&(0..file.len)).to_vec();
            let ranges = match state {
                State::Intact | State::Appended { .. } => continue,
                State::Damaged { ranges, .. } => ranges.clone(),
                State::Missing | State::Unreadable(_) => whole,
            };
            for range in ranges {
                let start = (file.start + range.start) / size;
                suspects.extend(start..(file.start + range.end).div_ceil(size));
            }
        }
        if geometry.m == 0 {
            let is_unlocated = |state: &State| matches!(state, State::Damaged { ranges, found: None } if ranges.is_empty());
            return Ok((suspects, states.iter().any(is_unlocated)));
        }
        let bad = self.check_pieces(&suspects)?;
        let mut contradicts = false;
        for (file, state) in self.sidecar.files.iter().zip(states) {
            let State::Damaged { ranges, found } = state else { continue };
            if ranges.is_empty() && found.is_none() {
                contradicts = true;
            }
            // Where nodes are damaged, the hashes of pieces say more.
            let mut narrowed = Vec::new();
            for range in &*ranges {
                let (start, end) = (file.start + range.start, file.start + range.end);
                for piece in bad.range(start / size..end.div_ceil(size)) {
                    let from = (piece * size).max(start) - file.start;
                    let to = ((piece + 1) * size).min(end) - file.start;
                    match narrowed.last_mut() {
                        Some(Range { end, .. }) if *end == from => *end = to,
                        _ => narrowed.push(from..to),
                    }
                }
            }
            contradicts |= narrowed.is_empty() && !ranges.is_empty();
            *ranges = narrowed;
        }
        Ok((bad, contradicts))
    }

    /// Reads pieces, and returns those that do not have their hash.
    fn check_pieces(&self, suspects: &BTreeSet<u64>) -> Result<BTreeSet<u64>> {
        let data = self.data();
        let size = u64::from(data.geometry.piece_bytes);
        let runs: Vec<_> = runs_of(&data, suspects);
        let bad = Mutex::new(BTreeSet::new());
        data.read(&runs, true, &|piece: Piece<'_>| {
            for (i, bytes) in piece.bytes.chunks(size as usize).enumerate() {
                let number = piece.run.first + i as u64;
                let is_good = !piece.unread.contains(&number)
                    && self.sidecar.is_good(number, &hash_piece(&data, number, bytes));
                if !is_good {
                    lock(&bad).insert(number);
                }
            }
            Ok(())
        })?;
        Ok(bad.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Returns the columns with bad pieces, and the parity that they can use.
    fn columns(&self, bad: &BTreeSet<u64>) -> BTreeMap<Column, Loss> {
        let geometry = &self.sidecar.head.geometry;
        let mut columns: BTreeMap<Column, Loss> = BTreeMap::new();
        for piece in bad {
            let (column, shard) = geometry.column_of(*piece);
            columns.entry(column).or_default().lost.push(shard);
        }
        let indexes = |column: &Column| {
            let column = *column;
            (0..geometry.m).map(move |parity| geometry.parity_index(column, parity))
        };
        let mut all: Vec<_> = columns.iter_mut().collect();
        for some in all.chunks_mut((PARITY_MAX / geometry.m.max(1) as usize).max(1)) {
            let mut wanted: Vec<_> = some.iter().flat_map(|(column, _)| indexes(column)).collect();
            wanted.sort_unstable();
            let bad = self.sidecar.bad_parity(&wanted, self.reading);
            for (column, loss) in some {
                let good = (0..).zip(indexes(column)).filter(|(_, index)| !bad.contains(index));
                loss.parities = good.map(|(parity, _)| parity).take(loss.lost.len()).collect();
            }
        }
        columns
    }
}

fn unopened(error: &io::Error) -> State {
    match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::NOENT.raw_os_error() => State::Missing,
        Some(code) if code == rustix::io::Errno::NOTDIR.raw_os_error() => State::Missing,
        _ => State::Unreadable(error.to_string()),
    }
}

/// Returns adjacent pieces as runs.
pub(crate) fn runs_of(data: &Data<'_>, pieces: &BTreeSet<u64>) -> Vec<Run> {
    let most = (data.reading.run_bytes / data.geometry.piece_bytes).max(1);
    let mut runs: Vec<Run> = Vec::new();
    for piece in pieces {
        match runs.last_mut() {
            Some(run) if run.first + u64::from(run.count) == *piece && run.count < most => {
                run.count += 1;
            }
            _ => {
                let step = Step { window: 0, column: 0, count: 1 };
                runs.push(Run { step, shard: 0, first: *piece, count: 1 });
            }
        }
    }
    runs
}

/// Returns the hash of a piece of the data.
pub(crate) fn hash_piece(data: &Data<'_>, number: u64, bytes: &[u8]) -> crate::format::PieceHash {
    let size = u64::from(data.geometry.piece_bytes);
    let start = number * size;
    let inside = data.files_in(start, start + size);
    let first = data.files[inside].first();
    let Some(first) = first.filter(|file| data.is_large(file)) else {
        return piece_hash(bytes);
    };
    let offset = start.saturating_sub(first.start);
    let len = (first.len - offset).min(size).min(bytes.len() as u64) as usize;
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(offset);
    hasher.update(&bytes[..len]);
    truncated(&hasher.finalize_non_root())
}

/// Returns the digests of files in a checksum file, by name.
pub(crate) fn read_list(path: &std::path::Path) -> Result<HashMap<Vec<u8>, Vec<u8>>> {
    use ringsum::checkfile::{LineEnd, Reader};
    use std::io::BufRead;
    use std::os::unix::ffi::OsStrExt;
    let name = || path.display().to_string();
    let file = StdFile::open(path).with_context(name)?;
    let list_name = path.file_name().map(OsStrExt::as_bytes);
    let mut reader = Reader::new(&[], &[], list_name, LineEnd::Newline);
    let mut digests = HashMap::new();
    for line in io::BufReader::new(file).split(b'\n') {
        let mut line = line.with_context(name)?;
        line.push(b'\n');
        if let Some(line) = reader.line(&line).with_context(name)?
            && line.first.algorithm == ringsum::Algorithm::Blake3
        {
            let name = line.name.strip_prefix(b"./").unwrap_or(&line.name).to_vec();
            digests.insert(name, line.first.digest);
        }
    }
    Ok(digests)
}
