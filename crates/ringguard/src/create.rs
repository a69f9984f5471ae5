//! `create`: one read of the data gives digests, tree nodes, hashes of pieces and parity.

use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use blockring::Fingerprint;

use crate::checkpoint::Log;
use crate::code::{self, Coder};
use crate::data::{Data, Reading, fingerprint};
use crate::fault;
use crate::format::{
    self, CatalogueCode, File, Head, PIECE_HASH_BYTES, outboard_bytes, piece_hash,
};
use crate::geometry::{Geometry, Run, Step};
use crate::layout::lay_out;
use crate::partial::{Partial, suffixed, sync_parent};
use crate::pass::Pass;
use crate::tree::Tree;

/// What to protect, and how.
pub(crate) struct Request<'a> {
    pub(crate) tree: &'a Tree,
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
    /// Without its place and its digest.
    pub(crate) file: File,
    pub(crate) fingerprint: Fingerprint,
}

impl Input {
    /// `name` is relative to the tree.
    pub(crate) fn new(name: Vec<u8>, stat: &rustix::fs::Stat) -> Input {
        let file = File {
            name,
            len: stat.st_size as u64,
            start: 0,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            mtime_s: stat.st_mtime,
            mtime_ns: stat.st_mtime_nsec as u32,
            root: [0; 32],
        };
        Input { file, fingerprint: fingerprint(stat) }
    }
}

/// Time after which the work done is made durable, so that an interrupted run loses no more.
const CHECKPOINT: Duration = Duration::from_secs(5);
/// Most records of pieces that wait for a checkpoint: 4 MiB of memory.
const RECORDS_MAX: usize = 1 << 16;
/// Most bytes that are read between two looks at the time.
const BATCH_BYTES_MAX: f64 = 2e9;
/// Bytes that are read before the speed is known.
const FIRST_BATCH_BYTES: u64 = 1 << 30;

/// Creates the sidecar of `inputs`, of which there is one if they are no set. Returns its head and
/// the files with their digests.
pub(crate) fn create(request: &Request<'_>, inputs: Vec<Input>) -> Result<(Head, Vec<File>)> {
    let (files, fingerprints, geometry) = lay_out(request, inputs);
    let mut creation = Creation::new(request, files, fingerprints, geometry)?;
    let parities = [geometry.m, creation.head.catalogue.parity.into()];
    // Not waited for: the thread that needs the tables first waits for them.
    let _ = std::thread::Builder::new().spawn(move || parities.map(code::prepare));
    creation.read()?;
    creation.complete()
}

/// A sidecar that is being made.
pub(crate) struct Creation<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) partial: Partial,
    log: Log,
    head: Head,
    files: Vec<File>,
    fingerprints: Vec<Fingerprint>,
    /// Offset of the nodes of each file.
    pub(crate) nodes: Vec<u64>,
    /// Columns that are read together.
    columns: u32,
    /// Steps that an interrupted run has done.
    steps_done: u64,
}

impl<'a> Creation<'a> {
    fn new(
        request: &'a Request<'a>,
        files: Vec<File>,
        fingerprints: Vec<Fingerprint>,
        geometry: Geometry,
    ) -> Result<Creation<'a>> {
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
        let columns = geometry.columns_at_once(request.reading.run_bytes)?;
        let mut key = blake3::Hasher::new();
        key.update(env!("CARGO_PKG_VERSION").as_bytes());
        key.update(&head.encode()).update(&catalogue).update(&columns.to_le_bytes());
        for (fingerprint, file) in fingerprints.iter().zip(&files) {
            key.update(format!("{fingerprint:?} {:?}", file.name).as_bytes());
        }
        let partial = Partial::open(&request.out, head.places())?;
        let mut log = Log::new(suffixed(&request.out, ".partial.log"), *key.finalize().as_bytes());
        let steps_done = match partial.is_whole()?.then(|| log.resume()).flatten() {
            Some(steps_done) => steps_done,
            None => {
                partial.clear()?;
                log.start()?;
                0
            }
        };
        Ok(Creation {
            request,
            partial,
            log,
            head,
            files,
            fingerprints,
            nodes,
            columns,
            steps_done,
        })
    }

    /// Reads the data, and keeps the digests.
    fn read(&mut self) -> Result<()> {
        let roots = self.read_data()?;
        for (file, root) in self.files.iter_mut().zip(roots) {
            file.root = match root {
                Some(root) => root,
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
    /// of the files that have content.
    fn read_data(&self) -> Result<Vec<Option<[u8; 32]>>> {
        let geometry = self.head.geometry;
        let data = Data {
            tree: self.request.tree,
            files: &self.files,
            geometry,
            is_set: self.request.is_set,
            reading: self.request.reading,
            fingerprints: Some(&self.fingerprints),
        };
        let pass = Pass::new(self, &data);
        if self.steps_done > 0 {
            self.log.replay(|record| pass.replay(&record))?;
            (self.request.resumed)(self.steps_done, geometry.steps(self.columns).count() as u64);
        }
        let coder = (geometry.m > 0).then(|| {
            Coder::new(geometry, self.columns, |step, sums| pass.write_parity(step, &sums))
        });
        let mut steps = geometry.steps(self.columns).skip(self.steps_done as usize).peekable();
        let mut done = self.steps_done;
        let mut batch_bytes = fault::batch_bytes().unwrap_or(FIRST_BATCH_BYTES);
        let mut last_checkpoint = Instant::now();
        while steps.peek().is_some() {
            let Batch { mut runs, bytes, count } = self.next_batch(&data, &mut steps, batch_bytes);
            done += count;
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
            let is_due = last_checkpoint.elapsed() >= CHECKPOINT || pass.records() >= RECORDS_MAX;
            if steps.peek().is_some() && (is_test.is_some() || is_due) {
                self.partial.sync()?;
                self.log.append(done, &pass.take_records())?;
                last_checkpoint = Instant::now();
            }
        }
        drop(coder);
        self.partial.flush()?;
        Ok(pass.into_roots())
    }

    /// Takes the steps that are read before the next look at the time. If the data are read in
    /// order, they end with a window.
    fn next_batch(
        &self,
        data: &Data<'_>,
        steps: &mut std::iter::Peekable<impl Iterator<Item = Step>>,
        batch_bytes: u64,
    ) -> Batch {
        let geometry = &self.head.geometry;
        let piece_bytes = u64::from(geometry.piece_bytes);
        let mut batch = Batch { runs: Vec::new(), bytes: 0, count: 0 };
        let (mut records, mut window) = (0, None);
        while let Some(step) = steps.next_if(|step| {
            let is_split = self.request.in_order && window == Some(step.window);
            (batch.bytes < batch_bytes && records < RECORDS_MAX) || is_split
        }) {
            for run in geometry.runs(step) {
                let (start, end) =
                    (run.first * piece_bytes, (run.first + u64::from(run.count)) * piece_bytes);
                records += data.files_in(start, end).len().max(run.count as usize);
                batch.bytes += end - start;
                batch.runs.push(run);
            }
            batch.count += 1;
            window = Some(step.window);
        }
        batch
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
        self.log.remove();
        Ok((self.head, self.files))
    }
}

/// What is read before the next look at the time.
struct Batch {
    runs: Vec<Run>,
    bytes: u64,
    /// Number of steps.
    count: u64,
}
