//! Digests of which each byte needs all before it: several of one source, in one pass, each on a thread of its own;
//! BLAKE3, which needs no order, on what other threads there are.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use blockring::{Block, BoxError, Config, EngineKind, Order, Plan, Source, Taker};

use crate::many::Found;
use crate::{
    Algorithm, Algorithms, Digest, Error, Mode, OrderedDigest, StreamTree, Sum, Tree, add_block,
    is_subtree_size,
};

/// Digests of a file, in one pass over it: what each of `digests` makes of all bytes of the file, in their order.
///
/// # Errors
///
/// [`Error::Read`] when it cannot be opened, read or planned for as asked, or changes meanwhile.
pub fn digest_file(
    path: impl AsRef<Path>,
    config: &Config,
    digests: Vec<Box<dyn OrderedDigest>>,
) -> Result<Vec<Box<[u8]>>, Error> {
    let source = Source::open(path)?;
    let plan = plan_digests(&source, config, digests.len() as u32)?;
    digest_planned(&plan, digests, &|_| ())
}

/// The plan for so many digests that need bytes in order.
///
/// # Errors
///
/// See [`Plan::choose`].
pub fn plan_digests<'s>(
    source: &'s Source,
    config: &Config,
    digests: u32,
) -> Result<Plan<'s>, Error> {
    let config = Config { consumers: digests, ..config.clone() };
    Ok(Plan::choose(source, &config, Order::InOrder)?)
}

/// Digests as `plan` says. `observe` is told the number of bytes after each block, on any thread.
///
/// # Errors
///
/// See [`digest_file`].
pub fn digest_planned(
    plan: &Plan<'_>,
    mut digests: Vec<Box<dyn OrderedDigest>>,
    observe: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Box<[u8]>>, Error> {
    take_in_order(plan, &mut digests, None, observe)?;
    Ok(digests.into_iter().map(OrderedDigest::finish).collect())
}

/// The plan for what `algorithms` make of a source: of BLAKE3 alone, that of [`plan`](crate::plan).
///
/// # Errors
///
/// See [`Plan::choose`].
pub fn plan_sums<'s>(
    source: &'s Source,
    config: &Config,
    algorithms: &Algorithms,
) -> Result<Plan<'s>, Error> {
    if algorithms.is_blake3() {
        return crate::plan(source, config);
    }
    let digests = algorithms.as_slice().len() as u32;
    let has_blake3 = algorithms.as_slice().contains(&Algorithm::Blake3);
    let cores = thread::available_parallelism().map_or(1, |n| n.get() as u32);
    // One core for each of the others, and for the reads; BLAKE3 has the rest.
    let rest = if has_blake3 { cores.saturating_sub(digests + 1) } else { 0 };
    plan_digests(source, config, digests + rest)
}

/// What `algorithms` make of a source, as `plan` says. `observe` is told the number of bytes after each block, on
/// any thread. `mode` is that of BLAKE3.
///
/// # Errors
///
/// See [`digest_file`].
pub fn sums_planned(
    plan: &Plan<'_>,
    mode: &Mode,
    algorithms: &Algorithms,
    observe: &(dyn Fn(u64) + Sync),
) -> Result<Found, Error> {
    if algorithms.is_blake3() {
        return Ok(Found::Read(crate::hash_planned(plan, mode, observe)?));
    }
    let mut parts: Vec<_> =
        algorithms.as_slice().iter().map(|algorithm| Part::new(*algorithm, mode)).collect();
    let blake3 = parts.iter().position(|part| matches!(part, Part::Blake3(_)));
    let threads = plan.consumers().saturating_sub(parts.len() as u32 - 1);
    let (Some(blake3), true) = (blake3, threads > 1 && is_subtree_size(plan.block_bytes())) else {
        take_in_order(plan, &mut parts, None, observe)?;
        return Ok(Found::Each(parts.into_iter().map(Part::finish).collect()));
    };
    parts.remove(blake3);
    let digest = with_tree(plan, mode, |consume| {
        take_in_order(plan, &mut parts, Some((threads, consume)), observe)
    })?;
    let mut sums: Vec<_> = parts.into_iter().map(Part::finish).collect();
    sums.insert(blake3, Sum::Blake3(digest));
    Ok(Found::Each(sums))
}

/// BLAKE3 of blocks that `run` has consumed in any order.
fn with_tree(
    plan: &Plan<'_>,
    mode: &Mode,
    run: impl FnOnce(&ConsumeAny<'_>) -> Result<(), Error>,
) -> Result<Digest, Error> {
    let source = plan.source();
    // Blocks of a stream are counted from where it is read on, wherever in a file that is.
    let start = source.len().map_or(0, |_| source.start());
    match source.len().map(|len| len - start) {
        Some(len) if len > plan.block_bytes() => {
            let tree = Mutex::new(Tree::new(len, mode));
            run(&|block| {
                let block = Block { offset: block.offset - start, ..block };
                add_block(&tree, mode, &block, &|_| ())
            })?;
            Ok(tree.into_inner().unwrap_or_else(PoisonError::into_inner).finish()?)
        }
        _ => {
            let stream = StreamTree::new(mode);
            run(&|block| {
                let block = Block { offset: block.offset - start, ..block };
                stream.add(&block, &|_| ())
            })?;
            stream.finish()
        }
    }
}

type ConsumeAny<'a> = dyn Fn(Block<'_>) -> Result<(), BoxError> + Sync + 'a;

/// Takes bytes in order.
trait Takes: Send {
    fn take(&mut self, bytes: &[u8]);
}

impl Takes for Box<dyn OrderedDigest> {
    fn take(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }
}

/// Gives all bytes to each of `parts`, on as many threads as the plan has for them; and blocks in any order to
/// `others`, on so many.
fn take_in_order(
    plan: &Plan<'_>,
    parts: &mut [impl Takes],
    others: Option<(u32, &ConsumeAny<'_>)>,
    observe: &(dyn Fn(u64) + Sync),
) -> Result<(), Error> {
    if plan.engine() == EngineKind::Null {
        return Err(Error::NothingRead);
    }
    let threads = plan.consumers().saturating_sub(others.map_or(0, |(threads, _)| threads));
    let mut consumers: Vec<_> = shared_out(parts, threads as usize)
        .into_iter()
        .enumerate()
        .map(|(place, parts)| {
            move |block: Block<'_>| {
                parts.iter_mut().for_each(|part| part.take(block.bytes));
                if place == 0 {
                    observe(block.bytes.len() as u64);
                }
                Ok(())
            }
        })
        .collect();
    let mut takers: Vec<_> =
        consumers.iter_mut().map(|consumer| Taker::InOrder(consumer)).collect();
    takers.extend(others.map(|(threads, consume)| Taker::AnyOrder(threads, consume)));
    Ok(plan.to_each(&mut takers)?)
}

/// As many parts as there are threads, if there is something for each; none has more than one over another.
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

/// One algorithm on its way through a source.
pub(crate) enum Part {
    Blake3(Box<blake3::Hasher>),
    Other(Algorithm, Box<dyn OrderedDigest>),
}

impl Part {
    fn new(algorithm: Algorithm, mode: &Mode) -> Part {
        match algorithm {
            Algorithm::Blake3 => Part::Blake3(Box::new(mode.hasher())),
            other => Part::Other(other, other.hasher()),
        }
    }

    fn finish(self) -> Sum {
        match self {
            Part::Blake3(hasher) => Sum::Blake3(Digest::new(hasher.finalize_xof())),
            Part::Other(algorithm, digest) => Sum::Other(algorithm, digest.finish()),
        }
    }
}

impl Takes for Part {
    fn take(&mut self, bytes: &[u8]) {
        match self {
            Part::Blake3(hasher) => drop(hasher.update(bytes)),
            Part::Other(_, digest) => digest.update(bytes),
        }
    }
}

/// What algorithms make of bytes that come in order, on one thread.
pub(crate) enum Running {
    /// BLAKE3 alone, without a detour.
    Blake3(Box<blake3::Hasher>),
    Each(Vec<Part>),
}

impl Running {
    pub(crate) fn new(mode: &Mode, algorithms: &Algorithms) -> Running {
        if algorithms.is_blake3() {
            return Running::Blake3(Box::new(mode.hasher()));
        }
        let parts = algorithms.as_slice().iter().map(|algorithm| Part::new(*algorithm, mode));
        Running::Each(parts.collect())
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Running::Blake3(hasher) => drop(hasher.update(bytes)),
            Running::Each(parts) => parts.iter_mut().for_each(|part| part.take(bytes)),
        }
    }

    pub(crate) fn finish(self) -> Found {
        match self {
            Running::Blake3(hasher) => Found::Read(Digest::new(hasher.finalize_xof())),
            Running::Each(parts) => Found::Each(parts.into_iter().map(Part::finish).collect()),
        }
    }
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
