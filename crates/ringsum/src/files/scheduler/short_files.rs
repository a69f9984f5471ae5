//! Short files: one thread copies them into one buffer, and hashes several at a time.

use std::ops::Range;

use blockring::{Buffer, Fingerprint, HugePages, Source};

use super::dispatch::Run;
use super::job::{self, ActiveJob};
use super::{Hashed, Job};
use crate::{Digest, Mode, MultiBuffer};

/// Bytes hashed together: they stay in the core's own cache until then.
const TOGETHER_BYTES: usize = 256 << 10;

/// Files that have been read but not hashed yet.
pub(super) struct ShortFiles<T> {
    multi_buffer: MultiBuffer,
    /// `None` until it is needed.
    buffer: Option<Buffer>,
    /// Length of the buffer, in bytes.
    buffer_bytes: usize,
    files: Vec<ShortFile<T>>,
    /// Number of calls of [`room`](ShortFiles::room).
    rooms: u64,
}

/// Position of a file's content, valid until the next call of [`ShortFiles::room`].
#[derive(Clone, Copy)]
pub(super) struct Buffered {
    start: usize,
    len: usize,
    room: u64,
}

/// A file that was read completely and was unchanged afterwards.
struct ShortFile<T> {
    job: ActiveJob<T>,
    fingerprint: Option<Fingerprint>,
    device: u64,
    bytes: Range<usize>,
}

impl<T: Send> ShortFiles<T> {
    pub(super) fn new(mode: &Mode, buffer_bytes: usize) -> ShortFiles<T> {
        let multi_buffer = MultiBuffer::new(mode);
        ShortFiles { multi_buffer, buffer: None, buffer_bytes, files: Vec::new(), rooms: 0 }
    }

    /// Frees its buffer until there are files to read.
    pub(super) fn release(&mut self) {
        self.buffer = None;
    }

    /// Allocates the buffer, if there is none. Returns false if there is no memory for it.
    pub(super) fn has_buffer(&mut self) -> bool {
        if self.buffer.is_none() {
            let bytes = u32::try_from(self.buffer_bytes).ok();
            self.buffer = bytes.and_then(|bytes| Buffer::new(bytes, HugePages::Off).ok());
        }
        self.buffer.is_some()
    }

    /// Whether a file of `len` bytes is hashed together with others.
    pub(super) fn accepts(&mut self, run: &Run<'_, T>, job: &Job<T>, len: u64) -> bool {
        len <= self.multi_buffer.input_bytes_max() as u64
            && len <= self.buffer_bytes as u64
            && run.algorithms_of(job).is_blake3()
            && job.file.as_ref().is_some_and(|file| !file.extended)
            && self.has_buffer()
    }

    /// Returns room for the content of the next file, short or not: `len` bytes, or the whole
    /// buffer if that is less; none without a buffer. If it does not fit, hashes the buffered files
    /// first.
    pub(super) fn room(&mut self, run: &Run<'_, T>, len: usize) -> &mut [u8] {
        let buffer_bytes = self.buffer.as_ref().map_or(0, |buffer| buffer.len());
        let len = len.min(buffer_bytes);
        let end = self.end() + len;
        if end > buffer_bytes || (end > TOGETHER_BYTES && !self.files.is_empty()) {
            self.hash(run);
        }
        self.rooms += 1;
        let start = self.end();
        match &mut self.buffer {
            Some(buffer) => &mut buffer[start..start + len],
            None => &mut [],
        }
    }

    /// Copies the content of a file into the buffer.
    pub(super) fn copy(&mut self, run: &Run<'_, T>, bytes: &[u8]) -> Buffered {
        self.room(run, bytes.len()).copy_from_slice(bytes);
        self.buffered(bytes.len())
    }

    /// Returns the position of the first `len` bytes of the last [`room`](ShortFiles::room).
    pub(super) fn buffered(&self, len: usize) -> Buffered {
        Buffered { start: self.end(), len, room: self.rooms }
    }

    /// Adds a file that is unchanged and whose content was buffered last.
    ///
    /// # Panics
    ///
    /// If something else was buffered since, or with another length: it would hash other bytes.
    pub(super) fn push(&mut self, job: ActiveJob<T>, source: &Source, buffered: Buffered) {
        let Buffered { start, len, room } = buffered;
        assert_eq!((room, start), (self.rooms, self.end()), "the content that was buffered last");
        assert_eq!(Some(len as u64), source.len(), "the length of the content");
        let (fingerprint, device) = (Hashed::fingerprint_of(source), source.device());
        self.files.push(ShortFile { job, fingerprint, device, bytes: start..start + len });
    }

    /// End of the buffered files.
    fn end(&self) -> usize {
        self.files.last().map_or(0, |file| file.bytes.end)
    }

    /// Hashes the buffered files.
    pub(super) fn hash(&mut self, run: &Run<'_, T>) {
        let Some(buffer) = self.buffer.as_ref().filter(|_| !self.files.is_empty()) else { return };
        let inputs: Vec<_> = self.files.iter().map(|file| &buffer[file.bytes.clone()]).collect();
        let hashes = self.multi_buffer.hash(&inputs);
        let hashed = self.files.drain(..).zip(hashes).map(|(file, hash)| {
            let ShortFile { job, fingerprint, device, .. } = file;
            let digests = Digest::from(hash).into();
            (job, Hashed { digests, is_cached: false, fingerprint, device })
        });
        job::finish_all(run, hashed);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use blockring::{CacheMode, Config};

    use super::super::{Failure, FilesOptions, InputFile, hash_files};
    use super::*;
    use crate::Options;

    /// Lengths around what is hashed side by side, and what is buffered at once.
    fn lens() -> Vec<usize> {
        let around = [0_usize, 1, 64, 1024, 4096, 12 << 10, 48 << 10, 64 << 10, 256 << 10, 600_000];
        let mut lens: Vec<_> =
            around.iter().flat_map(|len| [len + 1, *len, len.saturating_sub(1)]).collect();
        lens.extend((0..400).map(|i| i * 7919 % 60_000));
        lens
    }

    #[test]
    fn each_file_has_its_own_hash_however_it_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let lens = lens();
        let content =
            |i: usize| -> Vec<u8> { (0..lens[i]).map(|at| ((at + i) % 251) as u8).collect() };
        for i in 0..lens.len() {
            fs::write(directory.path().join(i.to_string()), content(i)).unwrap();
        }
        for cache in [None, Some(CacheMode::Buffered), Some(CacheMode::Direct)] {
            let config = Config::default().with(|config| config.io.cache = cache);
            let hash = Options { config, ..Options::default() };
            // (If direct reads are not supported.)
            let hash_one = |_: &Job<usize>| Err(Failure::Other("not shared".to_owned()));
            let options =
                FilesOptions { small_threads: Some(3), ..FilesOptions::new(&hash, &hash_one) };
            let jobs = (0..lens.len()).map(|tag| {
                let file = InputFile::from_path(&directory.path().join(tag.to_string())).unwrap();
                Some(Job { tag, file })
            });
            let (mut together, mut separate) = (0, 0);
            let reported = hash_files(
                jobs,
                &options,
                |outcome| {
                    let i = outcome.job.tag;
                    match outcome.result.expect("each is a file") {
                        Ok(Hashed { digests, .. }) => {
                            let expected = Some(blake3::hash(&content(i)));
                            assert_eq!(digests.hash(), expected, "{cache:?}: {} bytes", lens[i]);
                            // Only files that are hashed side by side have no extended output.
                            together += u32::from(digests[0].output(0, 33).is_none());
                        }
                        Err(_) => separate += 1,
                    }
                    Ok::<(), ()>(())
                },
                None,
            );
            reported.unwrap();
            let is_fast = MultiBuffer::new(&Mode::Hash).input_bytes_max() > 0;
            match separate {
                0 => assert_eq!(together > 100, is_fast, "{cache:?}: {together} together"),
                _ => eprintln!("SKIP {cache:?}: {separate} files do not share readers here"),
            }
        }
    }
}
