//! One read of the data: digests, tree nodes, hashes of pieces and parity, from pieces in any order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use ringsum::{Mode, MultiBuffer, OutboardWriter, Subtree};

use crate::checkpoint::Record;
use crate::code;
use crate::create::Creation;
use crate::data::{Data, Piece};
use crate::format::{PIECE_HASH_BYTES, outboard_bytes, piece_hash, truncated};
use crate::geometry::{Column, Step};
use crate::lock;

/// One read of the data.
pub(crate) struct Pass<'a> {
    creation: &'a Creation<'a>,
    data: &'a Data<'a>,
    /// The trees of large files, by file.
    writers: Mutex<HashMap<usize, Arc<OutboardWriter<'a>>>>,
    /// Digests, by file.
    roots: Mutex<Vec<Option<[u8; 32]>>>,
    /// What became known since the last checkpoint.
    records: Mutex<Vec<Record>>,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(creation: &'a Creation<'a>, data: &'a Data<'a>) -> Pass<'a> {
        let roots = Mutex::new(vec![None; data.files.len()]);
        Pass { creation, data, writers: Mutex::default(), roots, records: Mutex::default() }
    }

    /// Returns the number of records since the last checkpoint.
    pub(crate) fn records(&self) -> usize {
        lock(&self.records).len()
    }

    pub(crate) fn take_records(&self) -> Vec<Record> {
        std::mem::take(&mut lock(&self.records))
    }

    pub(crate) fn into_roots(self) -> Vec<Option<[u8; 32]>> {
        self.roots.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn writer(&self, index: usize) -> Arc<OutboardWriter<'a>> {
        let mut writers = lock(&self.writers);
        let writer = writers.entry(index).or_insert_with(|| {
            let (file, creation) = (&self.data.files[index], self.creation);
            let start = creation.nodes[index];
            let group_bytes = creation.request.group_bytes.into();
            let has_nodes =
                outboard_bytes(file.len, creation.request.group_bytes, creation.request.is_set) > 0;
            let write = move |offset: u64, bytes: &[u8]| match has_nodes {
                true => creation
                    .partial
                    .write_small(bytes, start + offset)
                    .map_err(std::io::Error::other),
                false => Ok(()),
            };
            Arc::new(OutboardWriter::new(&Mode::Hash, file.len, group_bytes, write))
        });
        Arc::clone(writer)
    }

    /// Repeats what an interrupted run knew.
    pub(crate) fn replay(&self, record: &Record) -> Result<()> {
        match record {
            Record::Root(index, root) => {
                self.set_root(*index as usize, *root)?;
            }
            Record::Subtree(subtree, index) => self.add(*index as usize, *subtree)?,
        }
        Ok(())
    }

    fn set_root(&self, index: usize, root: [u8; 32]) -> Result<()> {
        let mut roots = lock(&self.roots);
        *roots.get_mut(index).context("a record of a file that is not there")? = Some(root);
        Ok(())
    }

    fn add(&self, index: usize, subtree: Subtree) -> Result<()> {
        if let Some(digest) = self.writer(index).add(subtree)? {
            let root = *digest.hash().context("no BLAKE3 hash")?.as_bytes();
            self.set_root(index, root)?;
            lock(&self.writers).remove(&index);
        }
        Ok(())
    }

    /// Hashes a run, and writes the hashes of its pieces.
    pub(crate) fn consume(&self, piece: &Piece<'_>) -> Result<()> {
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
                    true => {
                        let root = lock(&self.roots)[inside.start].context("no digest")?;
                        Record::Root(inside.start as u32, root)
                    }
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
                all[index] = Some(*root.as_bytes());
                records.push(Record::Root(index as u32, *root.as_bytes()));
            }
        }
        lock(&self.records).append(&mut records);
        if geometry.m == 0 {
            return Ok(());
        }
        let place = self.creation.partial.places.hashes + piece.run.first * PIECE_HASH_BYTES;
        self.creation.partial.write_small(hashes.as_flattened(), place)
    }

    /// Writes the parity of a step, and its hashes.
    pub(crate) fn write_parity(&self, step: Step, sums: &code::Sums<'_>) -> Result<()> {
        let (geometry, partial) = (&self.data.geometry, &self.creation.partial);
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
            partial.write_small(hashes.as_flattened(), partial.places.hashes + place)?;
        }
        partial
            .begin_writeback(partial.places.parity, geometry.parity_pieces() * piece_bytes as u64);
        Ok(())
    }
}
