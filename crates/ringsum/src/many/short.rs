//! Short files of one thread: read one after another into one buffer, and hashed side by side.

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
        ShortFiles { multi_buffer, buffer: Vec::new(), buffer_bytes, waiting: Vec::new() }
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
        let start = self.end();
        &mut self.buffer[start..start + len]
    }

    /// Copies the content of a file, and returns where it starts.
    pub(super) fn keep(&mut self, run: &Run<'_, T>, bytes: &[u8]) -> usize {
        self.room(run, bytes.len()).copy_from_slice(bytes);
        self.end()
    }

    /// The content of this file is what was put last into [`room`](ShortFiles::room), at `start`.
    ///
    /// # Panics
    ///
    /// When the next one does not start there: other bytes would be taken for its content.
    pub(super) fn push(&mut self, ticket: Ticket<T>, source: &Source, start: usize) {
        assert_eq!(start, self.end(), "where a short file starts");
        let bytes = start..start + source.len().unwrap_or(0) as usize;
        let (stamp, device) = (Hashed::stamp_of(source), source.device());
        self.waiting.push(Waiting { ticket, stamp, device, bytes });
    }

    /// Where what has been read ends, and the next starts.
    pub(super) fn end(&self) -> usize {
        self.waiting.last().map_or(0, |file| file.bytes.end)
    }

    /// Hashes what has been read.
    pub(super) fn hash(&mut self, run: &Run<'_, T>) {
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
