//! Hashing: from the blocks of a source to its digests.
//!
//! There are four implementations, each for a different kind of input (`ARCHITECTURE.md` has the
//! numbers): [`TreeHasher`] for blocks in any order, [`OrderedHasher`] for any algorithm,
//! [`MultiBuffer`] for many short inputs, and a direct call for input in memory. [`reader`] feeds the
//! first two from what is no file.

pub(crate) mod algorithm;
pub(crate) mod damage;
pub(crate) mod digest;
pub(crate) mod multi_buffer;
mod ordered_hasher;
pub(crate) mod outboard;
pub(crate) mod reader;
pub(crate) mod resume;
pub(crate) mod tree;
mod tree_hasher;
mod zeros;

use std::fmt;
use std::ops::Range;
use std::panic;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use ::digest::Update;
use blake3::hazmat;
use blockring::{
    BadRange, Block, BoxError, Config, Consumer, EngineKind, Order, Plan, RunOptions, Source, Stop,
    Tee,
};

use self::algorithm::{Algorithm, Algorithms};
use self::digest::{Digest, Digests};
pub(crate) use self::ordered_hasher::OrderedHasher;
use self::resume::Resume;
use self::tree::{Subtree, Tree, TreeError, is_subtree_size};
pub(crate) use self::tree_hasher::TreeHasher;
use self::zeros::HoleHasher;
use crate::lock;

/// One of BLAKE3's modes.
#[derive(Clone, Default)]
pub enum Mode {
    /// The plain hash.
    #[default]
    Hash,
    /// A message authentication code with this key.
    Keyed([u8; blake3::KEY_LEN]),
    /// Key derivation, with the hash of the context string: see [`Mode::derive_key`].
    DeriveKey([u8; blake3::KEY_LEN]),
}

impl Mode {
    /// Key derivation for `context`: hard-coded, globally unique, and different for each use.
    pub fn derive_key(context: &str) -> Mode {
        Mode::DeriveKey(hazmat::hash_derive_key_context(context))
    }

    /// Creates a BLAKE3 hasher.
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
#[derive(Clone, Default)]
pub struct Options {
    /// The mode of BLAKE3. Default: the plain hash.
    pub mode: Mode,
    /// The algorithms, all computed in one pass. Default: BLAKE3.
    pub algorithms: Algorithms,
    /// How to read. Default: detected automatically.
    pub config: Config,
}

/// Why there is no digest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source could not be read completely, or it changed.
    #[error(transparent)]
    Read(#[from] blockring::Error),
    /// A range is not a subtree, or the parts do not form a complete tree.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The nodes of a tree could not be written.
    #[error("writing the tree nodes: {0}")]
    Outboard(std::io::Error),
    /// The engine `null` reads nothing: its blocks are not the content of a file.
    #[error("engine null reads nothing, so there is nothing to hash; it is for measuring only")]
    NothingRead,
}

/// Returns the BLAKE3 hash of the file, block device or pipe at `path`.
///
/// ```
/// # fn main() -> Result<(), ringsum::Error> {
/// println!("{}", ringsum::hash_file("/proc/self/exe")?);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::Read`] if it cannot be opened or read, or changes while it is read.
pub fn hash_file(path: impl AsRef<Path>) -> Result<blake3::Hash, Error> {
    let digests = digest_file(path, &Options::default())?;
    Ok(digests.hash().expect("BLAKE3 is the default"))
}

/// Returns the digests of the file, block device or pipe at `path`: those of all
/// [algorithms](Options::algorithms), in one pass.
///
/// ```
/// # fn main() -> Result<(), ringsum::Error> {
/// use ringsum::{Algorithm, Algorithms, Options, digest_file};
///
/// let mut algorithms = Algorithms::from(Algorithm::Sha256);
/// algorithms.extend([Algorithm::Md5]);
/// let options = Options { algorithms, ..Options::default() };
/// for digest in digest_file("/proc/self/exe", &options)?.iter() {
///     println!("{}: {digest}", digest.algorithm());
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::Read`] if it cannot be opened, or read as configured, or changes while it is read.
pub fn digest_file(path: impl AsRef<Path>, options: &Options) -> Result<Digests, Error> {
    digest_source(&Source::open(path)?, options)
}

/// Returns the digests of an open source.
///
/// # Errors
///
/// See [`digest_file`].
pub fn digest_source(source: &Source, options: &Options) -> Result<Digests, Error> {
    let run = RunOptions { skip_holes: true, ..RunOptions::default() };
    let plan = plan(source, options, &run)?;
    digest_planned(&plan, source, options, None, &|_| ())
}

/// Returns the digests of bytes in memory. [`Options::config`] is ignored.
pub fn digest_bytes(bytes: &[u8], options: &Options) -> Digests {
    digest_whole(&options.mode, &options.algorithms, bytes)
}

/// Updates your own digests with all bytes of a file, in order and in one pass: each on its own
/// thread if there are enough cores.
///
/// ```
/// # fn main() -> Result<(), ringsum::Error> {
/// /// The exclusive or of all bytes.
/// struct Parity(u8);
///
/// impl digest::Update for Parity {
///     fn update(&mut self, bytes: &[u8]) {
///         self.0 = bytes.iter().fold(self.0, |parity, byte| parity ^ byte);
///     }
/// }
///
/// let mut parity = Parity(0);
/// ringsum::update_from_file("/proc/self/exe", &ringsum::Config::default(), &mut [&mut parity])?;
/// println!("{:02x}", parity.0);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// See [`digest_file`]. The digests may then have processed part of the file.
pub fn update_from_file(
    path: impl AsRef<Path>,
    config: &Config,
    digests: &mut [&mut (dyn Update + Send)],
) -> Result<(), Error> {
    refuse_null(config)?;
    let source = Source::open(path)?;
    let consumers = digests.len() as u32;
    let (order, skip_holes) = (Order::InOrder, true);
    let run = RunOptions { order, consumers, skip_holes, ..RunOptions::default() };
    let plan = Plan::choose(&source, config, &run)?;
    update_in_order(&plan, &source, digests, None, &|_| ())
}

/// Returns the plan that [`digest_planned`] carries out. [`RunOptions::order`] and
/// [`RunOptions::consumers`] are chosen here.
///
/// # Errors
///
/// See [`Plan::choose`].
pub fn plan(source: &Source, options: &Options, run: &RunOptions<'_>) -> Result<Plan, Error> {
    let Options { algorithms, config, .. } = options;
    if run.tee.is_some() {
        let config = config.clone().with(|config| {
            // (The bytes reach the tee in order in any case.)
            config.io.in_order = false;
            if !algorithms.is_blake3() {
                // Without BLAKE3's tree, more threads would only wait for each other.
                config.io.threads_max = Some(1);
            }
        });
        let run = RunOptions { order: Order::AnyOrder, ..run.clone() };
        return Ok(Plan::choose(source, &config, &run)?);
    }
    let (order, consumers) = if algorithms.is_blake3() {
        // A block that is not a subtree can only be hashed after the one before it.
        let is_subtree = |bytes: u32| is_subtree_size(bytes.into());
        match config.io.block_bytes.is_none_or(is_subtree) {
            true => (Order::AnyOrder, 0),
            false => (Order::InOrder, 0),
        }
    } else {
        let digests = algorithms.len() as u32;
        let has_blake3 = algorithms.contains(&Algorithm::Blake3);
        let cores = cores();
        // One core for each of the others, and one for the reads; the rest are for BLAKE3.
        let rest = if has_blake3 { cores.saturating_sub(digests + 1) } else { 0 };
        (Order::InOrder, digests + rest)
    };
    Ok(Plan::choose(source, config, &RunOptions { order, consumers, ..run.clone() })?)
}

/// Returns the digests of a source that is read according to `plan`. `progress` is called with the
/// number of bytes after each block, on any thread.
///
/// What `resume` knows already is not read, if the source [can be resumed](Resume::applies). The plan
/// must have been made with [`RunOptions::skip`], the ranges of `resume`.
///
/// # Errors
///
/// See [`digest_file`].
pub fn digest_planned(
    plan: &Plan,
    source: &Source,
    options: &Options,
    resume: Option<&Resume<'_>>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Digests, Error> {
    refuse_null(&options.config)?;
    let Options { mode, algorithms, .. } = options;
    let resume = resume.filter(|resume| resume.applies(plan, source, options));
    let block_bytes = plan.block_bytes();
    let makes_tree = is_subtree_size(block_bytes);
    let tree = match (resume, source.len()) {
        (Some(resume), Some(len)) => {
            TreeHasher::over(mode, Tree::collecting(len, mode, resume.subtree_bytes))
        }
        _ => TreeHasher::new(mode),
    };
    // (Offsets of a source that is read from a position do not start at 0.)
    let add_to_tree =
        |block: Block<'_>| Ok(tree.update(block.index * block_bytes, block.bytes).map(|_| ())?);
    if algorithms.is_blake3() && makes_tree && !options.config.io.in_order {
        let update = |block: Block<'_>| {
            add_to_tree(block)?;
            if let Some(resume) = resume {
                tree.take_collected().into_iter().for_each(resume.finished);
            }
            progress(block.bytes.len() as u64);
            Ok(())
        };
        for subtree in resume.map_or(&[][..], |resume| resume.known) {
            tree.add(*subtree)?;
            progress(subtree.len);
        }
        match (plan.holes(), source.len()) {
            ([], _) | (_, None) if resume.is_none() => plan.any_order(source, update)?,
            (_, None) => plan.any_order(source, update)?,
            (holes, Some(len)) => {
                let stop = options.config.io.stop.as_ref();
                let holes = HoleHasher::new(mode, holes, len, stop);
                let threads_max = options.config.io.threads_max.unwrap_or_else(cores);
                let read = || plan.data_blocks(source, update);
                hash_with_holes(&tree, &holes, threads_max, read, progress)?;
                if stop.is_some_and(Stop::is_stopped) {
                    // Holes may be missing. A stopped run reads nothing, and returns the error.
                    plan.any_order(source, |_| Ok(()))?;
                }
            }
        }
        let len = source.len().filter(|_| !plan.holes().is_empty() || resume.is_some());
        return Ok(tree.finalize(len)?.into());
    }
    let mut ordered = OrderedHasher::new(mode, algorithms);
    let hashers = ordered.hashers_mut();
    let blake3 = hashers.iter().position(|hasher| hasher.algorithm() == Algorithm::Blake3);
    let tree_threads = plan.consumers().saturating_sub(hashers.len() as u32 - 1);
    let blake3 = blake3.filter(|_| makes_tree && tree_threads > 1);
    let Some(blake3) = blake3 else {
        update_in_order(plan, source, &mut each_of(hashers), None, progress)?;
        return Ok(ordered.finalize());
    };
    // BLAKE3 needs no order, so it gets every thread that the other algorithms leave.
    hashers.remove(blake3);
    let any_order = Some((tree_threads, &add_to_tree as _));
    update_in_order(plan, source, &mut each_of(hashers), any_order, progress)?;
    let mut digests = ordered.finalize().to_vec();
    digests.insert(blake3, tree.finalize(None)?);
    Ok(digests.into_iter().collect())
}

/// Returns the digests of a stream that is copied to `tee`. The plan must have been made with
/// [`RunOptions::tee`].
///
/// # Errors
///
/// See [`digest_file`]; the error is of the kind [`Tee`](blockring::ErrorKind::Tee) if the output
/// cannot be written.
///
/// # Panics
///
/// If the plan was not made for a tee.
pub fn digest_tee(
    plan: &Plan,
    source: &Source,
    options: &Options,
    tee: &mut Tee,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Digests, Error> {
    refuse_null(&options.config)?;
    let Options { mode, algorithms, .. } = options;
    if algorithms.is_blake3() && is_subtree_size(plan.block_bytes()) {
        let tree = TreeHasher::new(mode);
        plan.tee(source, tee, |block| {
            tree.update(block.offset, block.bytes)?;
            progress(block.bytes.len() as u64);
            Ok(())
        })?;
        return Ok(tree.finalize(None)?.into());
    }
    let ordered = Mutex::new(OrderedHasher::new(mode, algorithms));
    plan.tee(source, tee, |block| {
        lock(&ordered).update_at(block.offset, block.bytes);
        progress(block.bytes.len() as u64);
        Ok(())
    })?;
    Ok(ordered.into_inner().unwrap_or_else(PoisonError::into_inner).finalize())
}

/// Returns the digests of a source, or its unreadable ranges: it continues past read errors, and
/// calls `bad` with each range as it is found. See [`Plan::scan_bad_ranges`] for how it reads.
///
/// # Errors
///
/// See [`digest_file`]; a source that is not seekable cannot be scanned.
pub fn digest_scan(
    plan: &Plan,
    source: &Source,
    options: &Options,
    progress: &(dyn Fn(u64) + Sync),
    mut bad: impl FnMut(&BadRange),
) -> Result<Result<Digests, BadRanges>, Error> {
    refuse_null(&options.config)?;
    let mut ordered = OrderedHasher::new(&options.mode, &options.algorithms);
    let mut ranges = BadRanges::default();
    plan.scan_bad_ranges(source, |scanned| {
        match scanned {
            Ok(block) => {
                if ranges.count == 0 {
                    ordered.update(block.bytes);
                }
                progress(block.bytes.len() as u64);
            }
            Err(range) => {
                progress(range.len);
                bad(&range);
                ranges.add(range);
            }
        }
        Ok(())
    })?;
    Ok(if ranges.count == 0 { Ok(ordered.finalize()) } else { Err(ranges) })
}

/// The unreadable ranges of a file.
#[derive(Debug, Default)]
pub struct BadRanges {
    /// The first 100,000, in order.
    pub first: Vec<BadRange>,
    /// Number of ranges.
    pub count: u64,
    /// Number of bytes in them.
    pub bytes: u64,
}

/// Most ranges kept per file: 6 MB of memory.
const BAD_RANGES_MAX: usize = 100_000;

impl BadRanges {
    /// Adds the next range.
    fn add(&mut self, range: BadRange) {
        self.count += 1;
        self.bytes += range.len;
        if self.first.len() < BAD_RANGES_MAX {
            self.first.push(range);
        }
    }
}

impl fmt::Display for BadRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadRanges { count, bytes, .. } = self;
        let ranges = if *count == 1 { "range" } else { "ranges" };
        write!(f, "{bytes} bytes in {count} {ranges} cannot be read, so the file has no hash")
    }
}

/// Returns the chaining value of a range of `source` that is a subtree of its BLAKE3 hash: `range`
/// starts at a multiple of its own length, which is 2^k KiB (k >= 0), or it ends where the source
/// does and starts at a multiple of the smallest 2^k KiB that contains it.
///
/// A [`Tree`](tree::Tree) of the same mode merges such ranges into the hash of the whole, and
/// [`left_subtree_len`](tree::left_subtree_len) finds them.
///
/// # Errors
///
/// [`Error::Tree`] for a range that is not a subtree or is the whole source, [`Error::Read`] as for
/// [`digest_file`]; a source that is read as a stream has no ranges.
pub fn hash_range(source: &Source, range: Range<u64>, options: &Options) -> Result<Subtree, Error> {
    let len = range.end.saturating_sub(range.start);
    tree::check(range.start, len, source.len().unwrap_or(0))?;
    let options = Options { algorithms: Algorithms::default(), ..options.clone() };
    let run = RunOptions { range: Some(range.clone()), ..RunOptions::default() };
    refuse_null(&options.config)?;
    let plan = plan(source, &options, &run)?;
    // (A measured setting may have any block size.)
    let makes_tree = !options.config.io.in_order && is_subtree_size(plan.block_bytes());
    if makes_tree && plan.block_bytes() < len {
        let tree = Tree::of_range(range.start, len, &options.mode);
        let tree = TreeHasher::over(&options.mode, tree);
        plan.any_order(source, |block| Ok(tree.update(block.offset, block.bytes).map(|_| ())?))?;
        return Ok(tree.finalize_range()?);
    }
    let mut hasher = tree::subtree_hasher(&options.mode, range.start);
    plan.in_order(source, |block| {
        hasher.update(block.bytes);
        Ok(())
    })?;
    Ok(Subtree::finalize(range.start, len, &hasher))
}

fn refuse_null(config: &Config) -> Result<(), Error> {
    match config.io.engine {
        Some(EngineKind::Null) => Err(Error::NothingRead),
        _ => Ok(()),
    }
}

/// Returns the digests of an input that is completely in memory.
pub(crate) fn digest_whole(mode: &Mode, algorithms: &Algorithms, bytes: &[u8]) -> Digests {
    if algorithms.is_blake3() {
        return Digest::of_output(mode.hasher().update(bytes).finalize_xof()).into();
    }
    let mut ordered = OrderedHasher::new(mode, algorithms);
    ordered.update(bytes);
    ordered.finalize()
}

fn cores() -> u32 {
    thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// Hashes holes on all cores while this thread reads the data.
fn hash_with_holes(
    tree: &TreeHasher<'_>,
    holes: &HoleHasher<'_>,
    threads_max: u32,
    read: impl FnOnce() -> Result<(), blockring::Error>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), Error> {
    thread::scope(|scope| {
        let threads = holes.threads(threads_max.saturating_sub(1) as usize);
        // (A thread that cannot be started leaves its work to this one.)
        let threads: Vec<_> = (0..threads)
            .map_while(|_| {
                let builder = thread::Builder::new().name("zeros".to_owned());
                builder.spawn_scoped(scope, || holes.run(tree, progress)).ok()
            })
            .collect();
        let result = read().map_err(Error::from);
        if result.is_err() {
            holes.stop();
        }
        let mut result = result.and_then(|()| Ok(holes.run(tree, progress)?));
        for thread in threads {
            match thread.join() {
                Ok(hashed) => result = result.and_then(|()| Ok(hashed?)),
                Err(payload) => panic::resume_unwind(payload),
            }
        }
        result
    })
}

type ConsumeAny<'a> = dyn Fn(Block<'_>) -> Result<(), BoxError> + Sync + 'a;

fn each_of<U>(all: &mut [U]) -> Vec<&mut U> {
    all.iter_mut().collect()
}

/// Passes all bytes in order to each of `digests`, on as many threads as the plan has for them, and
/// blocks in any order to `any_order`, on the given number of threads.
fn update_in_order<U: Update + Send + ?Sized>(
    plan: &Plan,
    source: &Source,
    digests: &mut [&mut U],
    any_order: Option<(u32, &ConsumeAny<'_>)>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), Error> {
    let threads = plan.consumers().saturating_sub(any_order.map_or(0, |(threads, _)| threads));
    let mut consumers: Vec<_> = shared_out(digests, threads as usize)
        .into_iter()
        .enumerate()
        .map(|(place, digests)| {
            move |block: Block<'_>| {
                digests.iter_mut().for_each(|digest| digest.update(block.bytes));
                if place == 0 {
                    progress(block.bytes.len() as u64);
                }
                Ok(())
            }
        })
        .collect();
    let mut consumers: Vec<_> =
        consumers.iter_mut().map(|consumer| Consumer::InOrder(consumer)).collect();
    consumers.extend(any_order.map(|(threads, consume)| Consumer::AnyOrder(threads, consume)));
    Ok(plan.broadcast(source, &mut consumers)?)
}

/// Splits `all` into `threads` shares, or one per item. Their lengths differ by at most one.
fn shared_out<X>(mut all: &mut [X], threads: usize) -> Vec<&mut [X]> {
    let threads = threads.min(all.len()).max(1);
    let mut shares = Vec::with_capacity(threads);
    for left in (1..=threads).rev() {
        let (share, rest) = all.split_at_mut(all.len().div_ceil(left));
        shares.push(share);
        all = rest;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::shared_out;

    #[test]
    fn no_thread_is_idle_and_none_has_two_more_than_another() {
        for count in 0..20 {
            for threads in 0..10 {
                let mut all: Vec<_> = (0..count).collect();
                let shares = shared_out(&mut all, threads);
                let lens: Vec<_> = shares.iter().map(|share| share.len()).collect();
                assert_eq!(shares.concat(), (0..count).collect::<Vec<_>>());
                assert_eq!(lens.len(), threads.clamp(1, count.max(1)), "{count} on {threads}");
                let (least, most) = (lens.iter().min(), lens.iter().max());
                assert!(most.unwrap() - least.unwrap() <= 1, "{lens:?}");
            }
        }
    }
}
