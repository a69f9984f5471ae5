//! The log of what was read and made durable, for a run that is interrupted.

use std::fs::File as StdFile;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use ringsum::Subtree;

use crate::fault;
use crate::partial::open_own;

/// What a run that was interrupted knew.
pub(crate) enum Record {
    Subtree(Subtree, u32),
    Root(u32, [u8; 32]),
}

/// The log of what was read and made durable, for a run that is interrupted.
pub(crate) struct Log {
    path: PathBuf,
    /// Of everything that the run depends on.
    key: [u8; 32],
    /// Bytes of it that are good.
    len: u64,
}

const RECORD_BYTES: usize = 1 + 4 + 8 + 8 + 32;

impl Log {
    pub(crate) fn new(path: PathBuf, key: [u8; 32]) -> Log {
        Log { path, key, len: 0 }
    }

    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    /// Begins an empty log.
    pub(crate) fn start(&mut self) -> Result<()> {
        fault::point();
        let file = open_own(&self.path)?;
        file.set_len(0)?;
        Ok((&file).write_all(&self.key)?)
    }

    /// Appends what is known since the last call. The data must be durable.
    pub(crate) fn append(&self, steps_done: u64, records: &[Record]) -> Result<()> {
        let mut file = open_own(&self.path)?;
        file.seek(SeekFrom::End(0))?;
        let mut out = BufWriter::with_capacity(64 << 10, file);
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        let mut put = |bytes: &[u8]| {
            hasher.update(bytes);
            out.write_all(bytes)
        };
        fault::point();
        put(&steps_done.to_le_bytes())?;
        put(&(records.len() as u64).to_le_bytes())?;
        for record in records {
            put(&record.encode())?;
        }
        let name = || self.path.display().to_string();
        out.write_all(hasher.finalize().as_bytes()).with_context(name)?;
        let file = out.into_inner().map_err(|error| error.into_error()).with_context(name)?;
        fault::point();
        Ok(file.sync_data()?)
    }

    /// Returns the number of steps that are done, if the log is of the same run. What was only
    /// written in part is removed.
    pub(crate) fn resume(&mut self) -> Option<u64> {
        let steps_done = self.visit(None, |_| Ok(())).ok()??;
        open_own(&self.path).ok()?.set_len(self.len).ok()?;
        (steps_done > 0).then_some(steps_done)
    }

    /// Passes on what the run knew.
    pub(crate) fn replay(&self, each: impl FnMut(Record) -> Result<()>) -> Result<()> {
        let mut log = Log { path: self.path.clone(), ..*self };
        let visited = log.visit(Some(self.len), each);
        visited.with_context(|| self.path.display().to_string())?;
        Ok(())
    }

    /// Visits the records of intact blocks, up to `end`. Returns the number of steps done; `None` if
    /// the log is of another run.
    fn visit(
        &mut self,
        end: Option<u64>,
        mut each: impl FnMut(Record) -> Result<()>,
    ) -> Result<Option<u64>> {
        let mut file = BufReader::new(StdFile::open(&self.path)?);
        let mut key = [0; 32];
        file.read_exact(&mut key)?;
        if key != self.key {
            return Ok(None);
        }
        let end = end.unwrap_or(file.get_ref().metadata()?.len());
        let (mut steps_done, mut at) = (0, 32);
        while let Some(rest) = end.saturating_sub(at).checked_sub(16 + 32) {
            let mut block = vec![0; 16];
            file.read_exact(&mut block)?;
            let count = u64::from_le_bytes(std::array::from_fn(|i| block[8 + i]));
            let Some(bytes) = count.checked_mul(RECORD_BYTES as u64).filter(|n| *n <= rest) else {
                break;
            };
            block.resize(16 + bytes as usize, 0);
            file.read_exact(&mut block[16..])?;
            let mut hash = [0; 32];
            file.read_exact(&mut hash)?;
            if blake3::keyed_hash(&self.key, &block) != hash {
                break;
            }
            steps_done = u64::from_le_bytes(std::array::from_fn(|i| block[i]));
            block[16..]
                .chunks_exact(RECORD_BYTES)
                .try_for_each(|bytes| each(Record::decode(bytes)))?;
            at += 16 + bytes + 32;
        }
        self.len = at;
        Ok(Some(steps_done))
    }
}

impl Record {
    fn encode(&self) -> [u8; RECORD_BYTES] {
        let (tag, index, range, value) = match self {
            Record::Subtree(subtree, index) => {
                (0, index, (subtree.offset, subtree.len), &subtree.cv)
            }
            Record::Root(index, root) => (1, index, (0, 0), root),
        };
        let mut bytes = [0; RECORD_BYTES];
        bytes[0] = tag;
        bytes[1..5].copy_from_slice(&index.to_le_bytes());
        bytes[5..13].copy_from_slice(&range.0.to_le_bytes());
        bytes[13..21].copy_from_slice(&range.1.to_le_bytes());
        bytes[21..].copy_from_slice(value);
        bytes
    }

    fn decode(bytes: &[u8]) -> Record {
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let value = std::array::from_fn(|i| bytes[21 + i]);
        match bytes[0] {
            0 => {
                let subtree = Subtree { offset: u64_at(5), len: u64_at(13), cv: value };
                Record::Subtree(subtree, u32_at(1))
            }
            _ => Record::Root(u32_at(1), value),
        }
    }
}
