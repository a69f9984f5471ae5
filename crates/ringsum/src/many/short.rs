//! What one thread reads without a ring, and the short files that it reads in any way: those are kept one after
//! another in one buffer, and hashed side by side.

use std::ops::Range;

use blockring::{Source, Stamp};

use super::sequence::Run;
use super::ticket::{self, Ticket};
use super::{Found, Hashed, Task};
use crate::{Mode, MultiBuffer};

/// Bytes that are put side by side: they stay in the core's own cache until they are hashed.
const TOGETHER_BYTES: usize = 256 << 10;

/// What has been read, and not hashed yet.
pub(super) struct ShortFiles<T> {
    multi_buffer: MultiBuffer,
    buffer: Vec<u8>,
    /// What it is when there is something to read.
    buffer_bytes: usize,
    waiting: Vec<Waiting<T>>,
    /// How often room was made.
    rooms: u64,
}

/// Where the content of a file is, until more room is made.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    start: usize,
    len: usize,
    room: u64,
}

/// A file that has been read, and was unchanged after that.
struct Waiting<T> {
    ticket: Ticket<T>,
    stamp: Option<Stamp>,
    device: u64,
    bytes: Range<usize>,
}

impl<T: Send> ShortFiles<T> {
    pub(super) fn new(mode: &Mode, buffer_bytes: usize) -> ShortFiles<T> {
        let multi_buffer = MultiBuffer::new(mode);
        ShortFiles { multi_buffer, buffer: Vec::new(), buffer_bytes, waiting: Vec::new(), rooms: 0 }
    }

    /// Gives its memory back until there is something to read.
    pub(super) fn rest(&mut self) {
        self.buffer = Vec::new();
    }

    /// Whether a file of `len` bytes is hashed side by side with others.
    pub(super) fn takes(&self, run: &Run<'_, T>, task: &Task<T>, len: u64) -> bool {
        len <= self.multi_buffer.input_bytes_max() as u64
            && len <= self.buffer_bytes as u64
            && run.algorithms_of(task).is_blake3()
            && task.file.as_ref().is_some_and(|file| !file.extended)
    }

    /// Where the content of the next file goes, whether that is a short one or not: `len` bytes, which the buffer has,
    /// or all of it. What was read before is hashed first if there is no more room.
    pub(super) fn room(&mut self, run: &Run<'_, T>, len: usize) -> &mut [u8] {
        if self.buffer.is_empty() {
            // Pages that nobody writes to take no memory.
            self.buffer = vec![0; self.buffer_bytes];
        }
        let len = len.min(self.buffer.len());
        let end = self.end() + len;
        if end > self.buffer.len() || (end > TOGETHER_BYTES && !self.waiting.is_empty()) {
            self.hash(run);
        }
        self.rooms += 1;
        let start = self.end();
        &mut self.buffer[start..start + len]
    }

    /// Copies the content of a file.
    pub(super) fn keep(&mut self, run: &Run<'_, T>, bytes: &[u8]) -> Kept {
        self.room(run, bytes.len()).copy_from_slice(bytes);
        self.kept(bytes.len())
    }

    /// So many bytes were put into the last [`room`](ShortFiles::room).
    pub(super) fn kept(&self, len: usize) -> Kept {
        Kept { start: self.end(), len, room: self.rooms }
    }

    /// The content of this file, which is unchanged, is what was kept last.
    ///
    /// # Panics
    ///
    /// When something else was kept since, or another length: other bytes would be taken for its content.
    pub(super) fn push(&mut self, ticket: Ticket<T>, source: &Source, kept: Kept) {
        let Kept { start, len, room } = kept;
        assert_eq!((room, start), (self.rooms, self.end()), "what was kept last");
        assert_eq!(Some(len as u64), source.len(), "what was kept of a file");
        let bytes = start..start + len;
        let (stamp, device) = (Hashed::stamp_of(source), source.device());
        self.waiting.push(Waiting { ticket, stamp, device, bytes });
    }

    /// Where what has been read ends, and the next starts.
    fn end(&self) -> usize {
        self.waiting.last().map_or(0, |file| file.bytes.end)
    }

    /// Hashes what has been read.
    pub(super) fn hash(&mut self, run: &Run<'_, T>) {
        if self.waiting.is_empty() {
            return;
        }
        let inputs: Vec<_> =
            self.waiting.iter().map(|file| &self.buffer[file.bytes.clone()]).collect();
        let hashes = self.multi_buffer.hash(&inputs);
        let hashed = self.waiting.drain(..).zip(hashes).map(|(file, hash)| {
            let Waiting { ticket, stamp, device, .. } = file;
            (ticket, Hashed { found: Found::Hash(hash), stamp, device })
        });
        ticket::finish_all(run, hashed);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use blockring::{CacheMode, Config};

    use super::*;
    use crate::Options;
    use crate::many::{ManyOptions, hash_many, look_at};

    /// Lengths on both sides of what is hashed together, and of what is put side by side at once.
    fn lens() -> Vec<usize> {
        let around = [0_usize, 1, 64, 1024, 4096, 12 << 10, 48 << 10, 64 << 10, 256 << 10, 600_000];
        let mut lens: Vec<_> =
            around.iter().flat_map(|len| [len + 1, *len, len.saturating_sub(1)]).collect();
        lens.extend((0..400).map(|i| i * 7919 % 60_000));
        lens
    }

    #[test]
    fn each_file_has_its_own_hash_however_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let lens = lens();
        let content =
            |i: usize| -> Vec<u8> { (0..lens[i]).map(|at| ((at + i) % 251) as u8).collect() };
        for i in 0..lens.len() {
            fs::write(folder.path().join(i.to_string()), content(i)).unwrap();
        }
        for cache in [None, Some(CacheMode::Buffered), Some(CacheMode::Direct)] {
            let config = Config { cache, ..Config::default() };
            let hash = Options { config, ..Options::default() };
            // (Where there are no direct reads.)
            let alone =
                |_: &Task<usize>| Err(crate::many::Failure::Alone("not together".to_owned()));
            let options = ManyOptions { jobs: Some(3), ..ManyOptions::new(&hash, &alone) };
            let tasks = (0..lens.len()).map(|tag| {
                let file = look_at(&folder.path().join(tag.to_string())).unwrap();
                Some(Task { tag, file })
            });
            let (mut together, mut alone) = (0, 0);
            let told = hash_many(
                tasks,
                &options,
                |outcome| {
                    let i = outcome.task.tag;
                    match outcome.result.expect("each is a file") {
                        Ok(hashed) => {
                            let expected = blake3::hash(&content(i));
                            assert_eq!(
                                hashed.hash(),
                                Some(expected),
                                "{cache:?}: {} bytes",
                                lens[i]
                            );
                            together += u32::from(matches!(hashed.found, Found::Hash(_)));
                        }
                        Err(_) => alone += 1,
                    }
                    Ok::<(), ()>(())
                },
                None,
            );
            told.unwrap();
            let is_fast = MultiBuffer::new(&Mode::Hash).input_bytes_max() > 0;
            match alone {
                0 => assert_eq!(together > 100, is_fast, "{cache:?}: {together} together"),
                _ => eprintln!("SKIP {cache:?}: {alone} files are not read together here"),
            }
        }
    }
}
