//! `repair --in-place`: writes bad pieces into the damaged files, after an undo record was synced.

use std::collections::BTreeMap;
use std::fs::File as StdFile;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};

use crate::diagnosis::{Diagnosis, Examination, State};
use crate::fault;
use crate::lock;
use crate::read_back::verify_written;
use crate::recover::{Sink, recover};
use crate::repair::{Target, finish_target, open_target, path_of, remove, restore_mtime, swap};
use crate::undo;

/// Writes the bad pieces into the damaged files, after what they overwrite was saved.
pub(crate) fn repair_in_place(
    examination: &Examination<'_>,
    diagnosis: &Diagnosis,
) -> Result<Vec<String>> {
    // Missing files have nothing to be written into.
    let (missing, present): (Vec<usize>, Vec<usize>) = (0..examination.sidecar.files.len())
        .filter(|index| diagnosis.states[*index] != State::Intact)
        .partition(|index| diagnosis.states[*index] == State::Missing);
    let mut targets = BTreeMap::new();
    let repaired = InPlace { examination, diagnosis, present }.repair(&missing, &mut targets);
    if let Err(error) = repaired {
        remove(examination, &targets);
        return Err(match undo::exists(&examination.sidecar.path) {
            true => error.context(
                "the repair is not complete; run it again, or put the old bytes back with --undo",
            ),
            false => error,
        });
    }
    undo::forget(&examination.sidecar.path)?;
    Ok(Vec::new())
}

struct InPlace<'a> {
    examination: &'a Examination<'a>,
    diagnosis: &'a Diagnosis,
    /// Damaged files that are there.
    present: Vec<usize>,
}

impl InPlace<'_> {
    fn repair(&self, missing: &[usize], targets: &mut BTreeMap<usize, Target>) -> Result<()> {
        let examination = self.examination;
        for index in missing {
            targets.insert(*index, open_target(examination, *index)?);
        }
        let (staged, pieces) = self.stage()?;
        undo::save(examination, self.diagnosis, &self.present)?;
        self.write(&staged, &pieces, targets)?;
        for index in &self.present {
            let file = &examination.sidecar.files[*index];
            let path = || path_of(examination, *index);
            let opened = self.open(*index)?;
            fault::point();
            opened.set_len(file.len).with_context(path)?;
            restore_mtime(&opened, file).with_context(path)?;
            fault::point();
            opened.sync_all().with_context(path)?;
            verify_written(examination, &opened, file).with_context(path)?;
        }
        for target in targets.values() {
            finish_target(examination, target)?;
        }
        while let Some((_, target)) = targets.first_key_value() {
            swap(examination, target, true).with_context(|| target.path(examination))?;
            targets.pop_first();
        }
        Ok(())
    }

    /// Recovers pieces into a temporary file, in the order of the numbers returned.
    fn stage(&self) -> Result<(StdFile, Vec<u64>)> {
        let directory = staging_directory(self.examination);
        let path = || directory.display().to_string();
        let file = tempfile::tempfile_in(&directory).with_context(path)?;
        let size = u64::from(self.examination.data().geometry.piece_bytes);
        let staged = Mutex::new((file, Vec::new()));
        let keep = |first: u64, bytes: &[u8]| -> Result<()> {
            let (file, pieces) = &mut *lock(&staged);
            file.write_all_at(bytes, pieces.len() as u64 * size).with_context(path)?;
            pieces.push(first);
            Ok(())
        };
        recover(self.examination, self.diagnosis, &Sink { intact: None, recovered: &keep })?;
        Ok(staged.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn open(&self, index: usize) -> Result<StdFile> {
        let name = &self.examination.sidecar.files[index].name;
        let opened = self.examination.tree.open_at(name, OFlags::RDWR, Mode::empty());
        opened.with_context(|| path_of(self.examination, index))
    }

    /// Writes the recovered pieces to where they belong.
    fn write(
        &self,
        staged: &StdFile,
        pieces: &[u64],
        targets: &BTreeMap<usize, Target>,
    ) -> Result<()> {
        let data = self.examination.data();
        let size = u64::from(data.geometry.piece_bytes);
        let mut bytes = vec![0; size as usize];
        for (place, piece) in pieces.iter().enumerate() {
            staged.read_exact_at(&mut bytes, place as u64 * size)?;
            let (start, end) = (piece * size, (piece + 1) * size);
            for index in data.files_in(start, end) {
                let file = &data.files[index];
                let part = file.start.max(start)..file.end().min(end);
                let bytes = &bytes[(part.start - start) as usize..(part.end - start) as usize];
                let offset = part.start - file.start;
                if let Some(target) = targets.get(&index) {
                    target.write(self.examination, bytes, offset)?;
                } else if self.diagnosis.states[index] != State::Intact {
                    fault::point();
                    let written = self.open(index)?.write_all_at(bytes, offset);
                    written.with_context(|| path_of(self.examination, index))?;
                }
            }
        }
        Ok(())
    }
}

fn staging_directory(examination: &Examination<'_>) -> PathBuf {
    let parent = examination.sidecar.path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.map_or_else(|| ".".into(), Path::to_owned)
}
