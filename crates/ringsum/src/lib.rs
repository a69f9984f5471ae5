//! BLAKE3 of files, block devices and pipes at the speed of the device, on all cores, with bounded
//! memory and strictly sequential reads.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let digest = ringsum::hash_file("/proc/self/exe", &ringsum::Options::default())?;
//! println!("{}", digest.hash());
//! # Ok(())
//! # }
//! ```
//!
//! Other digests are made by [`digest_file`], several in one pass: those that [`Algorithm`] names, or your own
//! ([`OrderedDigest`]; `examples/crc64.rs` is one).
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use ringsum::{Algorithm, Config, digest_file};
//!
//! let digests = vec![Algorithm::Sha256.hasher(), Algorithm::Md5.hasher()];
//! let values = digest_file("/proc/self/exe", &Config::default(), digests)?;
//! assert_eq!((values[0].len(), values[1].len()), (32, 16));
//! # Ok(())
//! # }
//! ```
//!
//! A digest is given only for bytes that were all read from one file, unchanged meanwhile as far as
//! size, mtime and ctime show; otherwise there is an error.
//!
//! Parts can be hashed elsewhere, or earlier: [`hash_range`] gives the chaining value of an aligned
//! range, and [`Tree`] puts such values together.

mod algorithm;
pub mod checkfile;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzed;
pub mod many;
mod multi_buffer;
#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
mod sums;
mod tree;
pub mod tree_digest;
#[cfg(feature = "tuned")]
pub mod tuned;
pub mod walk;

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use blake3::hazmat;
use blockring::{
    BadRange, Block, BoxError, CacheMode, EngineKind, Mapped, Onward, Order, Plan, Source,
};

use sums::Running;

pub use algorithm::{Algorithm, Algorithms, BLAKE2B_BYTES, OrderedDigest, Sum};
pub use blake3;
pub use blockring::{self, Config};
pub use many::Found;
pub use multi_buffer::MultiBuffer;
pub use sums::{digest_file, digest_planned, plan_digests, plan_sums, sums_planned};
pub use tree::{Subtree, Tree, TreeError};

/// Which of BLAKE3's functions.
#[derive(Clone)]
pub enum Mode {
    /// The plain hash.
    Hash,
    /// A message authentication code under a key.
    Keyed([u8; blake3::KEY_LEN]),
    /// Key derivation, from the hash of a context string: see [`Mode::derive_key`].
    DeriveKey(hazmat::ContextKey),
}

impl Mode {
    /// Key derivation for `context`: hard-coded, globally unique, and different for each use.
    pub fn derive_key(context: &str) -> Mode {
        Mode::DeriveKey(hazmat::hash_derive_key_context(context))
    }

    /// A hasher that has seen nothing yet.
    pub(crate) fn hasher(&self) -> blake3::Hasher {
        use hazmat::HasherExt;
        match self {
            Mode::Hash => blake3::Hasher::new(),
            Mode::Keyed(key) => blake3::Hasher::new_keyed(key),
            Mode::DeriveKey(context_key) => blake3::Hasher::new_from_context_key(context_key),
        }
    }

    pub(crate) fn hazmat(&self) -> hazmat::Mode<'_> {
        match self {
            Mode::Hash => hazmat::Mode::Hash,
            Mode::Keyed(key) => hazmat::Mode::KeyedHash(key),
            Mode::DeriveKey(context_key) => hazmat::Mode::DeriveKeyMaterial(context_key),
        }
    }
}

/// How to hash and how to read.
#[derive(Clone)]
pub struct Options {
    /// Which of BLAKE3's functions. Default: the plain hash.
    pub mode: Mode,
    /// How to read. Default: as the facts of each source say.
    pub config: Config,
}

impl Default for Options {
    fn default() -> Self {
        Options { mode: Mode::Hash, config: Config::default() }
    }
}

/// The hash of a whole input, of any length up to 2^64 - 1 bytes.
#[derive(Debug, Clone)]
pub struct Digest(Box<blake3::OutputReader>);

impl Digest {
    fn new(output: blake3::OutputReader) -> Digest {
        Digest(Box::new(output))
    }

    /// The usual 32 bytes.
    pub fn hash(&self) -> blake3::Hash {
        let mut bytes = [0; blake3::OUT_LEN];
        self.reader().fill(&mut bytes);
        bytes.into()
    }

    /// So many bytes of the extended output, from `seek` on.
    pub fn bytes(&self, seek: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let mut reader = self.reader();
        reader.set_position(seek);
        reader.fill(&mut bytes);
        bytes
    }

    /// The extended output, from its start; `set_position` seeks in it.
    pub fn reader(&self) -> blake3::OutputReader {
        (*self.0).clone()
    }
}

/// Why there is no digest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source could not be read whole and unchanged.
    #[error(transparent)]
    Read(#[from] blockring::Error),
    /// A range that is no subtree, or parts that make no whole.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The engine `null` reads nothing: what it gives is not the content of any file.
    #[error("engine null reads nothing, so there is nothing to hash; it is for measuring only")]
    NothingRead,
}

/// Hashes the file, block device or other input at `path`.
///
/// # Errors
///
/// [`Error::Read`] when it cannot be opened, read or planned for as asked, or changes meanwhile.
pub fn hash_file(path: impl AsRef<Path>, options: &Options) -> Result<Digest, Error> {
    hash_source(&Source::open(path)?, options)
}

/// Hashes an opened source.
///
/// # Errors
///
/// See [`hash_file`].
pub fn hash_source(source: &Source, options: &Options) -> Result<Digest, Error> {
    hash_planned(&plan(source, &options.config)?, &options.mode, &|_| ())
}

/// The plan that [`hash_source`] follows, for a look at it before it is carried out.
///
/// # Errors
///
/// See [`Plan::choose`].
pub fn plan<'s>(source: &'s Source, config: &Config) -> Result<Plan<'s>, Error> {
    // A block that is no subtree can only be hashed after the one before it.
    let order = match config.block_bytes {
        Some(bytes) if !is_subtree_size(bytes.into()) => Order::InOrder,
        _ => Order::AnyOrder,
    };
    Ok(Plan::choose(source, config, order)?)
}

/// Hashes as `plan` says. `observe` is told the number of bytes after each block, on the thread that
/// hashed it.
///
/// # Errors
///
/// See [`hash_file`].
pub fn hash_planned(
    plan: &Plan<'_>,
    mode: &Mode,
    observe: &(dyn Fn(u64) + Sync),
) -> Result<Digest, Error> {
    if plan.engine() == EngineKind::Null {
        return Err(Error::NothingRead);
    }
    let block_bytes = plan.block_bytes();
    let (source, start) = (plan.source(), plan.source().start());
    let makes_tree = plan.order() == Order::AnyOrder && is_subtree_size(block_bytes);
    match source.len().map(|len| len - start) {
        Some(len) if len > block_bytes && makes_tree => {
            let tree = Mutex::new(Tree::new(len, mode));
            plan.any_order(|block| {
                let block = Block { offset: block.offset - start, ..block };
                add_block(&tree, mode, &block, observe)
            })?;
            Ok(tree.into_inner().unwrap_or_else(PoisonError::into_inner).finish()?)
        }
        None if makes_tree => {
            let stream = StreamTree::new(mode);
            plan.any_order(|block| stream.add(&block, observe))?;
            stream.finish()
        }
        _ => {
            let mut hasher = mode.hasher();
            plan.in_order(|block| {
                hasher.update(block.bytes);
                observe(block.bytes.len() as u64);
                Ok(())
            })?;
            Ok(Digest::new(hasher.finalize_xof()))
        }
    }
}

/// Hashes a source, and goes on where it cannot be read: `bad` is told of every range that cannot be. Then
/// there is no digest. See [`Plan::map_errors`] for how it reads; `observe` is told of bytes that were gone
/// through.
///
/// # Errors
///
/// See [`hash_file`]; a source whose length only reading tells cannot be gone on with.
pub fn map_errors(
    plan: &Plan<'_>,
    mode: &Mode,
    algorithms: &Algorithms,
    observe: &(dyn Fn(u64) + Sync),
    mut bad: impl FnMut(BadRange),
) -> Result<Option<Found>, Error> {
    if plan.engine() == EngineKind::Null {
        return Err(Error::NothingRead);
    }
    let (mut running, mut is_whole) = (Running::new(mode, algorithms), true);
    let bytes = plan.map_errors(observe, |mapped| {
        match mapped {
            Mapped::Block(block) if is_whole => running.update(block.bytes),
            Mapped::Block(_) => {}
            Mapped::Bad(range) => {
                is_whole = false;
                bad(range);
            }
        }
        Ok(())
    })?;
    Ok((is_whole && bytes == 0).then(|| running.finish()))
}

/// Hashes a stream as [`sums_planned`] does, while all of it goes on to `onward`. The plan must be one of
/// [`plan_passed_on`].
///
/// # Errors
///
/// See [`hash_file`]; the error is of the kind [`Onward`](blockring::ErrorKind::Onward) when the output takes
/// no more.
///
/// # Panics
///
/// When the plan is of something else.
pub fn hash_passed_on(
    plan: &Plan<'_>,
    mode: &Mode,
    algorithms: &Algorithms,
    onward: &mut Onward,
    observe: &(dyn Fn(u64) + Sync),
) -> Result<Found, Error> {
    if algorithms.is_blake3() {
        let stream = StreamTree::new(mode);
        plan.pass_on(onward, |block| stream.add(&block, observe))?;
        return Ok(Found::Read(stream.finish()?));
    }
    let running = Mutex::new((Running::new(mode, algorithms), 0));
    plan.pass_on(onward, |block| {
        let (running, next) = &mut *running.lock().unwrap_or_else(PoisonError::into_inner);
        if block.offset != *next {
            return Err("blocks came out of order".into());
        }
        running.update(block.bytes);
        *next += block.bytes.len() as u64;
        observe(block.bytes.len() as u64);
        Ok(())
    })?;
    Ok(running.into_inner().unwrap_or_else(PoisonError::into_inner).0.finish())
}

/// The plan for a source that is [read as a stream](Source::from_stream) and goes on to somewhere: on one thread,
/// where `algorithms` need it in order.
///
/// # Errors
///
/// See [`Plan::choose`].
pub fn plan_passed_on<'s>(
    source: &'s Source,
    config: &Config,
    algorithms: &Algorithms,
) -> Result<Plan<'s>, Error> {
    match algorithms.is_blake3() {
        true => plan(source, config),
        false => plan(source, &Config { workers: Some(0), ..config.clone() }),
    }
}

/// A stream on its way to its hash. Its blocks are subtrees, if there is more than one; whether there is, the
/// first does not tell.
struct StreamTree<'m> {
    mode: &'m Mode,
    tree: Mutex<Tree<'m>>,
    /// The hash of the first block, and what it would be if it were all.
    first: Mutex<Option<(u64, Digest)>>,
}

impl<'m> StreamTree<'m> {
    fn new(mode: &'m Mode) -> StreamTree<'m> {
        StreamTree {
            mode,
            tree: Mutex::new(Tree::of_unknown_length(mode)),
            first: Mutex::default(),
        }
    }

    fn add(&self, block: &Block<'_>, observe: &(dyn Fn(u64) + Sync)) -> Result<(), BoxError> {
        let mut hasher = tree::subtree_hasher(self.mode, block.offset);
        hasher.update(block.bytes);
        let len = block.bytes.len() as u64;
        if block.offset == 0 {
            let all = Digest::new(hasher.finalize_xof());
            *self.first.lock().unwrap_or_else(PoisonError::into_inner) = Some((len, all));
        }
        let subtree = Subtree::finish(block.offset, len, &hasher);
        self.tree.lock().unwrap_or_else(PoisonError::into_inner).add(subtree)?;
        observe(len);
        Ok(())
    }

    fn finish(self) -> Result<Digest, Error> {
        let tree = self.tree.into_inner().unwrap_or_else(PoisonError::into_inner);
        match self.first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None if tree.end() == 0 => Ok(Digest::new(self.mode.hasher().finalize_xof())),
            Some((len, all)) if len == tree.end() => Ok(all),
            _ => Ok(tree.finish()?),
        }
    }
}

/// Hashes one block on this thread, and only puts the result into the tree under the lock.
fn add_block(
    tree: &Mutex<Tree<'_>>,
    mode: &Mode,
    block: &Block<'_>,
    observe: &(dyn Fn(u64) + Sync),
) -> Result<(), BoxError> {
    let subtree = Subtree::hash(mode, block.offset, block.bytes);
    tree.lock().unwrap_or_else(PoisonError::into_inner).add(subtree)?;
    observe(block.bytes.len() as u64);
    Ok(())
}

/// The chaining value of a range of `source` that is a subtree of its hash: `range` starts at a
/// multiple of its own length, which is 2^k KiB (k from 0), or it ends where the source does and
/// starts at a multiple of the least 2^k KiB that hold it.
///
/// What a [`Tree`] of the same mode makes of such ranges is the digest of the whole.
///
/// # Errors
///
/// [`Error::Tree`] for a range that is no subtree or is the whole source, [`Error::Read`] as for
/// [`hash_file`]; a source whose length only reading tells has no ranges.
pub fn hash_range(source: &Source, range: Range<u64>, options: &Options) -> Result<Subtree, Error> {
    let len = range.end.saturating_sub(range.start);
    tree::check(range.start, len, source.len().unwrap_or(0))?;
    let mut plan = plan(source, &options.config)?;
    if !range.start.is_multiple_of(plan.align()) && options.config.cache.is_none() {
        // A small range may start inside a sector.
        let config = Config { cache: Some(CacheMode::Buffered), ..options.config.clone() };
        plan = self::plan(source, &config)?;
    }
    if plan.engine() == EngineKind::Null {
        return Err(Error::NothingRead);
    }
    let mode = &options.mode;
    // (A measured setting may be of any block size.)
    let is_tree = plan.order() == Order::AnyOrder && is_subtree_size(plan.block_bytes());
    let whole = !is_tree || plan.block_bytes() >= len;
    if whole {
        let mut hasher = tree::subtree_hasher(mode, range.start);
        plan.range_in_order(range.clone(), |block| {
            hasher.update(block.bytes);
            Ok(())
        })?;
        return Ok(Subtree::finish(range.start, len, &hasher));
    }
    let tree = Mutex::new(Tree::of_range(range.start, len, mode));
    plan.range_any_order(range, |block| add_block(&tree, mode, &block, &|_| ()))?;
    Ok(tree.into_inner().unwrap_or_else(PoisonError::into_inner).finish_range()?)
}

/// Whether blocks of this size, at multiples of it, are subtrees.
fn is_subtree_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && bytes >= blake3::CHUNK_LEN as u64
}
