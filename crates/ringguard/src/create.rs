//! `create`: one read of the data gives digests, tree nodes, hashes of pieces and parity.

use std::collections::{HashMap, VecDeque};
use std::fs::File as StdFile;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use ringsum::{Mode, MultiBuffer, OutboardWriter, Subtree};
use rustix::fs::FlockOperation;

use crate::code::{self, Coder};
use crate::data::{Data, Fingerprint, Piece, Reading};
use crate::fault;
use crate::format::{
    self, CatalogueCode, File, Head, PIECE_HASH_BYTES, Places, outboard_bytes, piece_hash,
    truncated,
};
use crate::geometry::{Column, Geometry, MILLION, PIECE_BYTES_MAX, PIECE_BYTES_MIN, Step};
use crate::lock;
use crate::tree::Tree;

/// What to protect, and how.
pub(crate) struct Request<'a> {
    pub(crate) tree: &'a Tree,
    /// Names relative to the tree, sorted by name; one of a file by itself.
    pub(crate) inputs: Vec<Input>,
    pub(crate) is_set: bool,
    pub(crate) out: PathBuf,
    /// In millionths.
    pub(crate) redundancy: u32,
    pub(crate) group_bytes: u32,
    pub(crate) reading: &'a Reading,
    pub(crate) memory_bytes: u64,
    /// Whether the data are on a rotational disk.
    pub(crate) in_order: bool,
    /// The digests that must be found, by name, if the sidecar is made again.
    pub(crate) expected: Option<&'a HashMap<Vec<u8>, [u8; 32]>>,
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
    /// Called if an interrupted run goes on, with the steps done and their number.
    pub(crate) resumed: &'a (dyn Fn(u64, u64) + Sync),
}

/// A file to protect.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub(crate) name: Vec<u8>,
    pub(crate) stat: rustix::fs::Stat,
}

/// Time after which the work done is made durable, so that an interrupted run loses no more.
const CHECKPOINT: Duration = Duration::from_secs(5);
/// Most records of pieces that wait for a checkpoint: 4 MiB of memory.
const RECORDS_MAX: usize = 1 << 16;
/// Most bytes that are read between two looks at the time.
const BATCH_BYTES_MAX: f64 = 2e9;
/// Pieces of 64 KiB that still take small files. A tree of 90,000 files of 4.4 KiB on average fills
/// 1.16 times its size with one (what follows a file is often too long for the rest of its piece),
/// 1.10 times with 16, and no less with 64.
const OPEN_PIECES: usize = 16;
/// Bytes that are read before the speed is known.
const FIRST_BATCH_BYTES: u64 = 1 << 30;

/// The sidecar before it is complete.
struct Partial {
    file: StdFile,
    path: PathBuf,
    places: Places,
}

impl Partial {
    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        fault::point();
        self.file.write_all_at(bytes, offset).with_context(|| self.path.display().to_string())
    }

    fn sync(&self) -> Result<()> {
        fault::point();
        self.file.sync_data().with_context(|| self.path.display().to_string())
    }

    /// Returns the hash of a section.
    fn hash(&self, start: u64, len: u64) -> Result<[u8; 32]> {
        hash_section(&self.file, start, len).with_context(|| self.path.display().to_string())
    }
}

/// Returns the BLAKE3 hash of a part of a file.
pub(crate) fn hash_section(file: &StdFile, start: u64, len: u64) -> std::io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; len.min(1 << 20) as usize];
    let mut at = 0;
    while at < len {
        let part = &mut buffer[..(len - at).min(1 << 20) as usize];
        file.read_exact_at(part, start + at)?;
        hasher.update(part);
        at += part.len() as u64;
    }
    Ok(*hasher.finalize().as_bytes())
}

/// Creates the sidecar. Returns its head and the files with their digests.
pub(crate) fn create(request: &Request<'_>) -> Result<(Head, Vec<File>)> {
    let prepared = std::thread::Builder::new().spawn(code::prepare);
    let fingerprints: Vec<_> =
        request.inputs.iter().map(|input| Fingerprint::of(&input.stat)).collect();
    let (files, fingerprints, geometry) = lay_out(request, fingerprints);
    let mut run = Run::new(request, files, fingerprints, geometry)?;
    if let Ok(thread) = prepared {
        let _ = thread.join();
    }
    run.read()?;
    run.complete()
}

/// Gives each file its place in the data: small files first, packed into pieces.
fn lay_out(
    request: &Request<'_>,
    fingerprints: Vec<Fingerprint>,
) -> (Vec<File>, Vec<Fingerprint>, Geometry) {
    let redundancy = u64::from(request.redundancy);
    let lens: Vec<_> = fingerprints.iter().map(|fingerprint| fingerprint.len).collect();
    let piece_bytes =
        choose_piece_bytes(&lens, request.is_set, redundancy, request.reading.run_bytes);
    let file = |input: &Input| File {
        name: input.name.clone(),
        len: input.stat.st_size as u64,
        start: 0,
        mode: input.stat.st_mode & 0o7777,
        uid: input.stat.st_uid,
        gid: input.stat.st_gid,
        mtime_s: input.stat.st_mtime,
        mtime_ns: input.stat.st_mtime_nsec as u32,
        root: [0; 32],
    };
    let mut all: Vec<_> = request.inputs.iter().map(file).zip(fingerprints).collect();
    let size = u64::from(piece_bytes);
    let is_large = |len: u64| !request.is_set || len >= size;
    all.sort_by(|(a, _), (b, _)| (is_large(a.len), &a.name).cmp(&(is_large(b.len), &b.name)));
    let mut end = 0_u64;
    // What is free in pieces that small files share.
    let mut open: VecDeque<std::ops::Range<u64>> = VecDeque::new();
    for (file, _) in &mut all {
        if is_large(file.len) {
            file.start = end;
            end = (end + file.len).next_multiple_of(size);
            continue;
        }
        if file.len == 0 {
            // At the start: it must not open a piece that nothing else may fill.
            continue;
        }
        let place = open.iter().position(|free| file.len <= free.end - free.start);
        let place = place.unwrap_or_else(|| {
            if open.len() == OPEN_PIECES {
                open.pop_front();
            }
            open.push_back(end..end + size);
            end += size;
            open.len() - 1
        });
        file.start = open[place].start;
        open[place].start += file.len;
    }
    all.sort_by_key(|(file, _)| (file.start, file.len));
    let (files, fingerprints): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let pieces = files.last().map_or(0, |file| file.end().div_ceil(size));
    let window_bytes = request.in_order.then_some(request.memory_bytes / 2);
    (files, fingerprints, Geometry::choose(pieces, piece_bytes, redundancy, window_bytes))
}

/// Returns the size of pieces that makes the sidecar smallest: larger ones have fewer hashes, but
/// leave more room empty behind each file, which costs parity, too.
fn choose_piece_bytes(lens: &[u64], is_set: bool, redundancy: u64, run_bytes: u32) -> u32 {
    let total: u64 = lens.iter().sum();
    // Sixteen pieces of parity make a column of the redundancy.
    let pieces_min = (16 * MILLION).checked_div(redundancy).unwrap_or(1);
    let mut best = (u128::MAX, PIECE_BYTES_MIN);
    let mut piece_bytes = PIECE_BYTES_MIN;
    while piece_bytes <= PIECE_BYTES_MAX.min(run_bytes) {
        let size = u64::from(piece_bytes);
        let room = |len: &u64| match is_set && *len < size {
            true => *len,
            false => len.next_multiple_of(size),
        };
        let data: u64 = lens.iter().map(room).sum();
        let hashes = u128::from(data.div_ceil(size)) * 32 * u128::from(MILLION);
        let cost = u128::from(data) * u128::from(redundancy) + hashes;
        // (A little more for larger pieces, which are fewer.)
        if total.div_ceil(size) >= pieces_min && cost <= best.0.saturating_add(best.0 / 500) {
            best = (cost.min(best.0), piece_bytes);
        }
        piece_bytes *= 2;
    }
    best.1
}

struct Run<'a> {
    request: &'a Request<'a>,
    partial: Partial,
    log: Log,
    head: Head,
    files: Vec<File>,
    fingerprints: Vec<Fingerprint>,
    /// Offset of the nodes of each file.
    nodes: Vec<u64>,
    /// Columns that are read together.
    columns: u32,
    steps_done: u64,
    resumed: Vec<Record>,
}

impl<'a> Run<'a> {
    fn new(
        request: &'a Request<'a>,
        files: Vec<File>,
        fingerprints: Vec<Fingerprint>,
        geometry: Geometry,
    ) -> Result<Run<'a>> {
        let mut nodes = Vec::with_capacity(files.len());
        let mut nodes_bytes = 0;
        for file in &files {
            nodes.push(nodes_bytes);
            nodes_bytes += outboard_bytes(file.len, request.group_bytes, request.is_set);
        }
        let catalogue = format::encode_catalogue(&files);
        let code = CatalogueCode::of(catalogue.len() as u64);
        let head = Head {
            geometry,
            is_set: request.is_set,
            file_count: files.len() as u64,
            group_bytes: request.group_bytes,
            redundancy: request.redundancy,
            nodes_bytes,
            catalogue: code,
            nodes_hash: [0; 32],
            hashes_hash: [0; 32],
            catalogue_hashes: vec![[0; 16]; usize::from(code.pieces) + usize::from(code.parity)],
        };
        let columns = (request.reading.run_bytes / geometry.piece_bytes).max(1);
        let columns = u64::from(columns).min(geometry.columns) as u32;
        let mut key = blake3::Hasher::new();
        key.update(&head.encode()).update(&catalogue).update(&columns.to_le_bytes());
        for (fingerprint, input) in fingerprints.iter().zip(&files) {
            key.update(format!("{fingerprint:?} {:?}", input.name).as_bytes());
        }
        let path = suffixed(&request.out, ".partial");
        let file = open_own(&path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            anyhow!("{}: another process makes this sidecar ({error})", path.display())
        })?;
        let places = head.places();
        let mut log =
            Log { path: suffixed(&request.out, ".partial.log"), key: *key.finalize().as_bytes() };
        let is_whole = file.metadata()?.len() == places.len;
        let resumed = if is_whole { log.replay() } else { None };
        let (steps_done, resumed) = match resumed {
            Some(resumed) => resumed,
            None => {
                file.set_len(0)?;
                file.set_len(places.len).with_context(|| path.display().to_string())?;
                log.start()?;
                (0, Vec::new())
            }
        };
        let partial = Partial { file, path, places };
        Ok(Run {
            request,
            partial,
            log,
            head,
            files,
            fingerprints,
            nodes,
            columns,
            steps_done,
            resumed,
        })
    }

    /// Reads the data, and keeps the digests.
    fn read(&mut self) -> Result<()> {
        let roots = self.read_data()?;
        for (index, file) in self.files.iter_mut().enumerate() {
            file.root = match roots.get(&index) {
                Some(root) => *root,
                None if file.len == 0 => *blake3::hash(b"").as_bytes(),
                None => {
                    let name = String::from_utf8_lossy(&file.name);
                    bail!("{name}: not all of it was read; this is a bug")
                }
            };
            let expected = self.request.expected.map(|all| all.get(&file.name));
            ensure!(
                expected.is_none_or(|root| root == Some(&file.root)),
                "{}: it is not what the sidecar protects any more",
                String::from_utf8_lossy(&file.name)
            );
        }
        Ok(())
    }

    /// Reads the data, and writes everything that is known from a part of them. Returns the digests
    /// by file.
    fn read_data(&self) -> Result<HashMap<usize, [u8; 32]>> {
        let geometry = self.head.geometry;
        let data = Data {
            tree: self.request.tree,
            files: &self.files,
            geometry,
            is_set: self.request.is_set,
            reading: self.request.reading,
            fingerprints: Some(&self.fingerprints),
        };
        let pass = Pass {
            run: self,
            data: &data,
            writers: Mutex::default(),
            roots: Mutex::new(HashMap::new()),
            records: Mutex::default(),
        };
        for record in &self.resumed {
            pass.replay(record)?;
        }
        let coder = (geometry.m > 0)
            .then(|| Coder::new(geometry, |step, sums| pass.write_parity(step, &sums)));
        if self.steps_done > 0 {
            (self.request.resumed)(self.steps_done, geometry.steps(self.columns).count() as u64);
        }
        let mut steps = geometry.steps(self.columns).skip(self.steps_done as usize).peekable();
        let (mut done, mut batch_bytes) = (self.steps_done, FIRST_BATCH_BYTES);
        batch_bytes = fault::batch_bytes().unwrap_or(batch_bytes);
        let mut last_checkpoint = Instant::now();
        while steps.peek().is_some() {
            let mut runs = Vec::new();
            let mut bytes = 0;
            while bytes < batch_bytes
                && let Some(step) = steps.next()
            {
                let first = runs.len();
                runs.extend(geometry.runs(step));
                bytes += runs[first..].iter().map(|run| u64::from(run.count)).sum::<u64>()
                    * u64::from(geometry.piece_bytes);
                done += 1;
            }
            if self.request.in_order {
                runs.sort_by_key(|run| run.first);
            }
            let started = Instant::now();
            data.read(&runs, false, &|piece| {
                pass.consume(&piece)?;
                if let Some(coder) = &coder {
                    coder.add(&piece.run, piece.bytes)?;
                }
                (self.request.progress)(piece.bytes.len() as u64);
                Ok(())
            })?;
            let speed = bytes as f64 / started.elapsed().as_secs_f64().max(1e-3);
            batch_bytes = (speed * CHECKPOINT.as_secs_f64()).clamp(64e6, BATCH_BYTES_MAX) as u64;
            let is_test = fault::batch_bytes();
            batch_bytes = is_test.unwrap_or(batch_bytes);
            let is_due =
                last_checkpoint.elapsed() >= CHECKPOINT || lock(&pass.records).len() >= RECORDS_MAX;
            if steps.peek().is_some() && (is_test.is_some() || is_due) {
                self.partial.sync()?;
                self.log.append(done, &std::mem::take(&mut *lock(&pass.records)))?;
                last_checkpoint = Instant::now();
            }
        }
        drop(coder);
        Ok(pass.roots.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Writes the rest, and gives the sidecar its name.
    fn complete(mut self) -> Result<(Head, Vec<File>)> {
        let (places, partial) = (self.partial.places, &self.partial);
        if !self.request.is_set && self.files[0].len == 0 {
            partial.write(&0_u64.to_le_bytes(), 0)?;
        }
        let catalogue = format::encode_catalogue(&self.files);
        ensure!(
            catalogue.len() as u64 == self.head.catalogue.bytes,
            "the catalogue changed its length"
        );
        let pieces = self.head.catalogue.encode(&catalogue);
        self.head.catalogue_hashes = pieces.iter().map(|piece| piece_hash(piece)).collect();
        let (data, parity) = pieces.split_at(self.head.catalogue.pieces.into());
        partial.write(&data.concat(), places.catalogue)?;
        partial.write(&parity.concat(), places.catalogue_parity)?;
        let hashes_bytes = self.head.hash_count() * PIECE_HASH_BYTES;
        let mut buffer = Vec::new();
        for at in (0..hashes_bytes).step_by(1 << 20) {
            buffer.resize((hashes_bytes - at).min(1 << 20) as usize, 0);
            partial.file.read_exact_at(&mut buffer, places.hashes + at)?;
            partial.write(&buffer, places.hashes_copy + at)?;
        }
        self.head.hashes_hash = partial.hash(places.hashes, hashes_bytes)?;
        self.head.nodes_hash = partial.hash(0, self.head.nodes_bytes)?;
        let head = self.head.encode();
        partial.write(&head, places.head)?;
        partial.write(&head, places.head_copy)?;
        fault::point();
        partial.file.sync_all().with_context(|| partial.path.display().to_string())?;
        fault::point();
        std::fs::rename(&partial.path, &self.request.out)
            .with_context(|| self.request.out.display().to_string())?;
        fault::point();
        sync_parent(&self.request.out)?;
        let _ = std::fs::remove_file(&self.log.path);
        Ok((self.head, self.files))
    }
}

/// Makes the names in the directory of a path durable.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    fault::point();
    let synced = StdFile::open(parent).and_then(|directory| directory.sync_all());
    synced.with_context(|| parent.display().to_string())
}

pub(crate) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Opens a file of our own, which nothing but a regular file may be.
fn open_own(path: &Path) -> Result<StdFile> {
    use rustix::fs::{Mode, OFlags};
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(0o666));
    let file = StdFile::from(
        opened.map_err(std::io::Error::from).with_context(|| path.display().to_string())?,
    );
    ensure!(file.metadata()?.is_file(), "{}: it is not a regular file", path.display());
    Ok(file)
}

/// What a run that was interrupted knew.
enum Record {
    Subtree(Subtree, u32),
    Root(u32, [u8; 32]),
}

/// One read of the data.
struct Pass<'a> {
    run: &'a Run<'a>,
    data: &'a Data<'a>,
    /// The trees of large files, by file.
    writers: Mutex<HashMap<usize, Arc<OutboardWriter<'a>>>>,
    roots: Mutex<HashMap<usize, [u8; 32]>>,
    records: Mutex<Vec<Record>>,
}

impl<'a> Pass<'a> {
    fn writer(&self, index: usize) -> Arc<OutboardWriter<'a>> {
        let mut writers = lock(&self.writers);
        let writer = writers.entry(index).or_insert_with(|| {
            let (file, run) = (&self.data.files[index], self.run);
            let start = run.nodes[index];
            let group_bytes = run.request.group_bytes.into();
            let has_nodes =
                outboard_bytes(file.len, run.request.group_bytes, run.request.is_set) > 0;
            let write = move |offset: u64, bytes: &[u8]| match has_nodes {
                true => run.partial.write(bytes, start + offset).map_err(std::io::Error::other),
                false => Ok(()),
            };
            Arc::new(OutboardWriter::new(&Mode::Hash, file.len, group_bytes, write))
        });
        Arc::clone(writer)
    }

    fn replay(&self, record: &Record) -> Result<()> {
        match record {
            Record::Root(index, root) => {
                lock(&self.roots).insert(*index as usize, *root);
            }
            Record::Subtree(subtree, index) => self.add(*index as usize, *subtree)?,
        }
        Ok(())
    }

    fn add(&self, index: usize, subtree: Subtree) -> Result<()> {
        if let Some(digest) = self.writer(index).add(subtree)? {
            let root = *digest.hash().context("no BLAKE3 hash")?.as_bytes();
            lock(&self.roots).insert(index, root);
            lock(&self.writers).remove(&index);
        }
        Ok(())
    }

    /// Hashes a run, and writes the hashes of its pieces.
    fn consume(&self, piece: &Piece<'_>) -> Result<()> {
        let geometry = &self.data.geometry;
        let piece_bytes = geometry.piece_bytes as usize;
        let mut hashes = Vec::with_capacity(piece.run.count as usize);
        let mut records = Vec::new();
        for (i, bytes) in piece.bytes.chunks(piece_bytes).enumerate() {
            let start = (piece.run.first + i as u64) * piece_bytes as u64;
            let inside = self.data.files_in(start, start + piece_bytes as u64);
            let first = &self.data.files[inside.start];
            if self.data.is_large(first) {
                let offset = start - first.start;
                let bytes = &bytes[..bytes.len().min((first.len - offset) as usize)];
                let subtree = self.writer(inside.start).hash(offset, bytes)?;
                hashes.push(truncated(&subtree.cv));
                let is_whole = subtree.len == first.len;
                self.add(inside.start, subtree)?;
                records.push(match is_whole {
                    false => Record::Subtree(subtree, inside.start as u32),
                    true => Record::Root(inside.start as u32, lock(&self.roots)[&inside.start]),
                });
                continue;
            }
            hashes.push(piece_hash(bytes));
            let contents: Vec<_> = self.data.files[inside.clone()]
                .iter()
                .map(|file| &bytes[(file.start - start) as usize..][..file.len as usize])
                .collect();
            let roots = MultiBuffer::new(&Mode::Hash).hash(&contents);
            let mut all = lock(&self.roots);
            for (index, root) in inside.zip(roots) {
                all.insert(index, *root.as_bytes());
                records.push(Record::Root(index as u32, *root.as_bytes()));
            }
        }
        lock(&self.records).append(&mut records);
        if geometry.m == 0 {
            return Ok(());
        }
        let place = self.run.partial.places.hashes + piece.run.first * PIECE_HASH_BYTES;
        self.run.partial.write(hashes.as_flattened(), place)
    }

    fn write_parity(&self, step: Step, sums: &code::Sums<'_>) -> Result<()> {
        let (geometry, partial) = (&self.data.geometry, &self.run.partial);
        let piece_bytes = geometry.piece_bytes as usize;
        let mut bytes = Vec::with_capacity(step.count as usize * piece_bytes);
        for parity in 0..geometry.m {
            bytes.clear();
            sums.read(parity, 0, step.count, &mut bytes);
            let column = Column { window: step.window, column: step.column };
            let index = geometry.parity_index(column, parity);
            partial.write(&bytes, partial.places.parity + index * piece_bytes as u64)?;
            let hashes: Vec<_> = bytes.chunks(piece_bytes).map(piece_hash).collect();
            let place = (geometry.pieces + index) * PIECE_HASH_BYTES;
            partial.write(hashes.as_flattened(), partial.places.hashes + place)?;
        }
        Ok(())
    }
}

/// The log of what was read and made durable, for a run that is interrupted.
struct Log {
    path: PathBuf,
    key: [u8; 32],
}

const RECORD_BYTES: usize = 1 + 4 + 8 + 8 + 32;

impl Log {
    fn start(&mut self) -> Result<()> {
        fault::point();
        let file = open_own(&self.path)?;
        file.set_len(0)?;
        Ok((&file).write_all(&self.key)?)
    }

    /// Appends what is known since the last call. The data must be durable.
    fn append(&self, steps_done: u64, records: &[Record]) -> Result<()> {
        let mut bytes = Vec::with_capacity(records.len() * RECORD_BYTES + 16);
        bytes.extend(steps_done.to_le_bytes());
        bytes.extend((records.len() as u64).to_le_bytes());
        for record in records {
            let (tag, index, subtree, value) = match record {
                Record::Subtree(subtree, index) => {
                    (0, index, (subtree.offset, subtree.len), &subtree.cv)
                }
                Record::Root(index, root) => (1, index, (0, 0), root),
            };
            bytes.push(tag);
            bytes.extend(index.to_le_bytes());
            bytes.extend(subtree.0.to_le_bytes());
            bytes.extend(subtree.1.to_le_bytes());
            bytes.extend(value);
        }
        let hash = blake3::keyed_hash(&self.key, &bytes);
        bytes.extend(hash.as_bytes());
        let mut file = open_own(&self.path)?;
        file.seek(SeekFrom::End(0))?;
        fault::point();
        file.write_all(&bytes).with_context(|| self.path.display().to_string())?;
        fault::point();
        Ok(file.sync_data()?)
    }

    /// Returns what the log has, if it is of the same run.
    fn replay(&mut self) -> Option<(u64, Vec<Record>)> {
        let mut file = StdFile::open(&self.path).ok()?;
        let mut key = [0; 32];
        file.read_exact(&mut key).ok()?;
        if key != self.key {
            return None;
        }
        let mut left = file.metadata().ok()?.len().checked_sub(32)?;
        let (mut steps_done, mut all, mut good) = (0, Vec::new(), 32);
        loop {
            let mut counts = [0; 16];
            let Some(rest) = left.checked_sub(16 + 32) else { break };
            file.read_exact(&mut counts).ok()?;
            let count = u64::from_le_bytes(std::array::from_fn(|i| counts[8 + i]));
            let Some(bytes) = count.checked_mul(RECORD_BYTES as u64).filter(|n| *n <= rest) else {
                break;
            };
            let mut block = counts.to_vec();
            block.resize(16 + bytes as usize, 0);
            file.read_exact(&mut block[16..]).ok()?;
            let mut hash = [0; 32];
            file.read_exact(&mut hash).ok()?;
            if blake3::keyed_hash(&self.key, &block) != hash {
                break;
            }
            steps_done = u64::from_le_bytes(std::array::from_fn(|i| counts[i]));
            all.extend(block[16..].chunks_exact(RECORD_BYTES).map(record));
            left = rest - bytes;
            good += 16 + bytes + 32;
        }
        // What was only written in part goes.
        let own = open_own(&self.path).ok()?;
        own.set_len(good).ok()?;
        (steps_done > 0).then_some((steps_done, all))
    }
}

fn record(bytes: &[u8]) -> Record {
    let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let value = std::array::from_fn(|i| bytes[21 + i]);
    match bytes[0] {
        0 => Record::Subtree(Subtree { offset: u64_at(5), len: u64_at(13), cv: value }, u32_at(1)),
        _ => Record::Root(u32_at(1), value),
    }
}
