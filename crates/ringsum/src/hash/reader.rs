//! Hashing any [`Read`]: the calling thread reads, and other threads hash while they are needed.

use std::io::{self, ErrorKind, Read};
use std::sync::mpsc::{self, TrySendError};
use std::sync::{Arc, Mutex};
use std::thread::{self, Builder};

use blockring::Config;
use digest::Update;

use super::algorithm::{AlgorithmHasher, Algorithms};
use super::digest::Digests;
use super::{Mode, Options, OrderedHasher, TreeHasher, digest_bytes, shared_out};
use crate::lock;

/// Bytes of a block: a subtree of BLAKE3's tree that stays in a core's second-level cache. (Copies
/// from the page cache were equally fast in blocks of 128 KiB to 1 MiB on a Xeon: 0.143 to 0.147 s
/// per GiB.)
const BLOCK_BYTES: usize = 256 << 10;

/// Inputs shorter than this are hashed on the calling thread without an allocation.
const SHORT_BYTES: usize = 16 << 10;

/// Most blocks in memory: 16 MiB, as in an automatic plan.
const BLOCKS_MAX: usize = (16 << 20) / BLOCK_BYTES;

/// Most blocks that wait for each hashing thread if they are hashed in order.
const QUEUED_MAX: usize = 4;

/// Returns the BLAKE3 hash of all bytes that `reader` returns: of a decompressor, a socket, an
/// archive's member.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use std::io::Read;
///
/// let zeros = std::io::repeat(0).take(1 << 20);
/// assert_eq!(ringsum::hash_reader(zeros)?, blake3::hash(&vec![0; 1 << 20]));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The error of the reader. See [`digest_reader`].
pub fn hash_reader(reader: impl Read) -> io::Result<blake3::Hash> {
    let digests = digest_reader(reader, &Options::default())?;
    Ok(digests.hash().expect("BLAKE3 is the default"))
}

/// Returns the digests of all bytes that `reader` returns, in one pass.
///
/// The calling thread reads blocks of 256 KiB. Other threads hash them as they arrive: BLAKE3 alone
/// on as many as keep up with the reader, other algorithms each on their own. At most 16 MiB are in
/// memory. For files, devices and pipes, [`digest_file`](super::digest_file) chooses how to read,
/// and notices changes.
///
/// Of [`Options::config`], only `io.workers`, `io.threads_max`, `io.in_order` and
/// `memory.limit_bytes` apply. The others are about files.
///
/// # Errors
///
/// The first error of the reader, except [`Interrupted`](ErrorKind::Interrupted), after which the
/// read is repeated.
pub fn digest_reader(mut reader: impl Read, options: &Options) -> io::Result<Digests> {
    let mut start = [0; SHORT_BYTES];
    let len = fill(&mut reader, &mut start)?;
    if len < start.len() {
        return Ok(digest_bytes(&start[..len], options));
    }
    let mut block = vec![0; BLOCK_BYTES];
    block[..len].copy_from_slice(&start);
    let len = len + fill(&mut reader, &mut block[len..])?;
    if len < block.len() {
        return Ok(digest_bytes(&block[..len], options));
    }
    let Options { mode, algorithms, config } = options;
    let limits = Limits::of(config);
    match algorithms.is_blake3() && !config.io.in_order {
        true => any_order(reader, block, mode, &limits),
        false => in_order(reader, block, mode, algorithms, &limits),
    }
}

struct Limits {
    /// Most threads, including the calling one.
    threads: usize,
    /// Most blocks in memory.
    blocks: usize,
}

impl Limits {
    fn of(config: &Config) -> Limits {
        let explicit = config.io.workers.map(|workers| workers.saturating_add(1));
        let threads = explicit.or(config.io.threads_max).map(|threads| threads.max(1) as usize);
        let cores = || thread::available_parallelism().map_or(1, Into::into);
        let bytes = config.memory.limit_bytes.unwrap_or(u64::MAX);
        let blocks = usize::try_from(bytes / BLOCK_BYTES as u64).unwrap_or(usize::MAX);
        Limits { threads: threads.unwrap_or_else(cores), blocks: blocks.clamp(1, BLOCKS_MAX) }
    }
}

/// Reads until `buffer` is full or the input ends. Returns the number of bytes.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match reader.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Hashes `first`, which is full, and the blocks that follow, with BLAKE3.
///
/// The calling thread never waits for another: if the queue is full, it starts one more thread, and
/// hashes the block itself. So a slow reader gets one thread, and a refused thread costs only time.
fn any_order(
    mut reader: impl Read,
    first: Vec<u8>,
    mode: &Mode,
    limits: &Limits,
) -> io::Result<Digests> {
    // A block in the queue and one in work for each thread, and the one that is read.
    let mut workers_max = (limits.threads - 1).min((limits.blocks - 1) / 2);
    let tree = TreeHasher::new(mode);
    let update = |offset: u64, block: &[u8]| {
        // (`finalize` finds out that a block was refused.)
        let _ = tree.update(offset, block);
    };
    let (queue, queued) = mpsc::sync_channel::<(u64, Vec<u8>)>(workers_max);
    let queued = Mutex::new(queued);
    let (done, recycled) = mpsc::channel();
    let work = || {
        loop {
            let next = lock(&queued).recv();
            let Ok((offset, block)) = next else { return };
            update(offset, &block);
            // (At the end, no thread receives it.)
            let _ = done.send(block);
        }
    };
    let total = thread::scope(|scope| {
        // Dropping the queue ends the workers, also after an error or a panic of the reader.
        let queue = queue;
        let (mut total, mut workers, mut block) = (0, 0, first);
        while !block.is_empty() {
            let (offset, len) = (total, block.len());
            total += len as u64;
            let wants_worker = match queue.try_send((offset, block)) {
                Ok(()) => {
                    block = recycled.try_recv().unwrap_or_else(|_| vec![0; BLOCK_BYTES]);
                    workers == 0
                }
                Err(
                    TrySendError::Full((_, refused)) | TrySendError::Disconnected((_, refused)),
                ) => {
                    update(offset, &refused);
                    block = refused;
                    true
                }
            };
            if wants_worker && workers < workers_max {
                match Builder::new().spawn_scoped(scope, work) {
                    Ok(_) => workers += 1,
                    Err(_) => workers_max = workers,
                }
            }
            if len < BLOCK_BYTES {
                break;
            }
            let len = fill(&mut reader, &mut block)?;
            block.truncate(len);
        }
        drop(queue);
        work();
        io::Result::Ok(total)
    })?;
    Ok(tree.finalize(Some(total)).map_err(io::Error::other)?.into())
}

/// Hashes `first`, which is full, and the blocks that follow, with any algorithms.
fn in_order(
    mut reader: impl Read,
    first: Vec<u8>,
    mode: &Mode,
    algorithms: &Algorithms,
    limits: &Limits,
) -> io::Result<Digests> {
    // Besides those in a queue: one that is hashed, one that waits for a place in the queue, and
    // one that is read.
    let queued_max = limits.blocks.saturating_sub(3).min(QUEUED_MAX);
    let threads = if queued_max == 0 { 1 } else { limits.threads };
    let mut ordered = OrderedHasher::new(mode, algorithms);
    let shares = shared_out(ordered.hashers_mut(), threads);
    let shares: Vec<_> = shares.into_iter().map(Mutex::new).collect();
    // The calling thread has a share if it is one of as many threads as there are shares.
    let spawned = shares.len() - usize::from(shares.len() == threads);
    thread::scope(|scope| {
        let (done, recycled) = mpsc::channel::<Arc<Vec<u8>>>();
        let start = |share| {
            let (queue, queued) = mpsc::sync_channel::<Arc<Vec<u8>>>(queued_max);
            let done = done.clone();
            let work = move || {
                for block in queued {
                    update_each(share, &block);
                    // (At the end, no thread receives it.)
                    let _ = done.send(block);
                }
            };
            Builder::new().spawn_scoped(scope, work).ok().map(|_| queue)
        };
        // The calling thread takes the shares of threads that could not be started.
        let queues: Vec<_> = shares[..spawned].iter().map(start).collect();
        let mut block = first;
        while !block.is_empty() {
            let len = block.len();
            let shared = Arc::new(block);
            for queue in queues.iter().flatten() {
                // (It fails only after a panic of the thread, which ends the scope with a panic.)
                let _ = queue.send(shared.clone());
            }
            for (place, share) in shares.iter().enumerate() {
                if queues.get(place).is_none_or(Option::is_none) {
                    update_each(share, &shared);
                }
            }
            if len < BLOCK_BYTES {
                break;
            }
            // Each thread returns its reference, so the last one of a block is found here.
            let mut free = Arc::try_unwrap(shared).ok();
            while free.is_none()
                && let Ok(block) = recycled.try_recv()
            {
                free = Arc::try_unwrap(block).ok();
            }
            block = free.unwrap_or_else(|| vec![0; BLOCK_BYTES]);
            let len = fill(&mut reader, &mut block)?;
            block.truncate(len);
        }
        io::Result::Ok(())
    })?;
    drop(shares);
    Ok(ordered.finalize())
}

fn update_each(share: &Mutex<&mut [AlgorithmHasher]>, bytes: &[u8]) {
    lock(share).iter_mut().for_each(|hasher| hasher.update(bytes));
}

#[cfg(test)]
mod tests {
    use super::super::algorithm::Algorithm;
    use super::*;

    /// Returns short reads, is interrupted between them, and must not be read after its end.
    struct Uneven<'b> {
        bytes: &'b [u8],
        calls: usize,
        is_over: bool,
        /// (A reader that cannot be sent to another thread is enough.)
        _unsendable: std::marker::PhantomData<std::rc::Rc<()>>,
    }

    impl<'b> Uneven<'b> {
        fn new(bytes: &'b [u8]) -> Uneven<'b> {
            Uneven { bytes, calls: 0, is_over: false, _unsendable: std::marker::PhantomData }
        }
    }

    impl Read for Uneven<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            assert!(!self.is_over && !buffer.is_empty());
            self.calls += 1;
            if self.calls.is_multiple_of(3) {
                return Err(ErrorKind::Interrupted.into());
            }
            let len = buffer.len().min(self.calls * 7919 % 100_003 + 1).min(self.bytes.len());
            let (now, later) = self.bytes.split_at(len);
            buffer[..len].copy_from_slice(now);
            self.bytes = later;
            self.is_over = len == 0;
            Ok(len)
        }
    }

    fn content() -> Vec<u8> {
        (0..20 * BLOCK_BYTES + 17).map(|i| (i % 251) as u8).collect()
    }

    fn options(algorithms: &[Algorithm], threads: u32, limit_bytes: Option<u64>) -> Options {
        let mut all = Algorithms::from(algorithms[0]);
        all.extend(algorithms[1..].iter().copied());
        let config = Config::default().with(|config| {
            config.io.threads_max = Some(threads);
            config.memory.limit_bytes = limit_bytes;
        });
        Options { algorithms: all, config, ..Options::default() }
    }

    const SETS: [&[Algorithm]; 3] = [
        &[Algorithm::Blake3],
        &[Algorithm::Crc32c],
        &[Algorithm::Xxh3, Algorithm::Blake3, Algorithm::Sha256],
    ];

    #[test]
    fn every_length_gives_the_digests_of_the_bytes() {
        let content = content();
        let mut lens = vec![0, 1, 1023, 1024, 1025, 3 * BLOCK_BYTES + 17, content.len()];
        for edge in [SHORT_BYTES, BLOCK_BYTES, 2 * BLOCK_BYTES, 20 * BLOCK_BYTES] {
            lens.extend([edge - 1, edge, edge + 1]);
        }
        for len in lens {
            let bytes = &content[..len];
            assert_eq!(hash_reader(bytes).unwrap(), blake3::hash(bytes), "{len}");
            for set in SETS {
                for (threads, limit_bytes) in
                    [(0, None), (1, None), (2, None), (5, None), (5, Some(5 << 18)), (3, Some(1))]
                {
                    let mut options = options(set, threads, limit_bytes);
                    let expected = digest_bytes(bytes, &options);
                    for in_order in [false, true] {
                        options.config.io.in_order = in_order;
                        let found = digest_reader(Uneven::new(bytes), &options).unwrap();
                        let case = format!("{len} {set:?} {threads} {limit_bytes:?} {in_order}");
                        assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{case}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_modes_of_blake3_apply() {
        let content = content();
        for mode in [Mode::Keyed([7; 32]), Mode::derive_key("tests")] {
            let expected = mode.hasher().update(&content).finalize();
            let options = Options { mode, ..options(SETS[0], 3, None) };
            assert_eq!(digest_reader(&content[..], &options).unwrap().hash(), Some(expected));
        }
    }

    #[test]
    fn an_error_of_the_reader_is_returned() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("unplugged"))
            }
        }
        let content = content();
        for len in [0, 1000, SHORT_BYTES, BLOCK_BYTES, 3 * BLOCK_BYTES + 1, content.len()] {
            for set in SETS {
                for threads in [1, 4] {
                    let reader = content[..len].chain(Fails);
                    let error = digest_reader(reader, &options(set, threads, None)).unwrap_err();
                    assert_eq!(error.to_string(), "unplugged");
                }
            }
        }
    }

    #[test]
    fn a_panic_of_the_reader_reaches_the_caller() {
        struct Panics;
        impl Read for Panics {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                panic!("the reader")
            }
        }
        let content = content();
        for set in SETS {
            let options = options(set, 4, None);
            let run = || digest_reader(content.chain(Panics), &options);
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&"the reader"));
        }
    }
}
