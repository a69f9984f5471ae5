//! Resolving the algorithm of a digest whose line has no tag.

use super::listname::{NameHints, name_hints};
use super::{DIGEST_BYTES_MIN, Expected, Line, Malformed, ParsedDigest, ParsedLine};
use crate::Algorithm;
use crate::hash::algorithm::BLAKE2B_BYTES;

/// Information beyond the lines themselves that determines the algorithm of their digests.
#[derive(Debug, Clone, Default)]
pub(super) struct Hints {
    /// The algorithms that digests without a tag may have, if any are given.
    requested: Vec<Algorithm>,
    /// The algorithms that tags may name, if any are given.
    accepted: Vec<Algorithm>,
    name: NameHints,
}

impl Hints {
    /// See [`Reader::new`](super::Reader::new).
    pub(super) fn new(
        requested: &[Algorithm],
        accepted: &[Algorithm],
        path: Option<&[u8]>,
    ) -> Hints {
        let requested = if requested.is_empty() { accepted } else { requested };
        let (requested, accepted) = (requested.to_vec(), accepted.to_vec());
        Hints { requested, accepted, name: path.map(name_hints).unwrap_or_default() }
    }

    /// Returns the algorithm of a digest.
    ///
    /// The first of these that applies: its tag; the requested algorithm with its length; the one
    /// mentioned by the file name, with its length; BLAKE3 if it has 32 bytes; the only algorithm
    /// with its length, except BLAKE3; BLAKE3.
    pub(super) fn algorithm(&self, digest: &ParsedDigest) -> Result<Algorithm, Malformed> {
        let bytes = digest.digest.len();
        if let Some(found) = digest.algorithm {
            let is_accepted = |accepted: &Algorithm| accepted.name() == found.name();
            if !self.accepted.is_empty() && !self.accepted.iter().any(is_accepted) {
                let wanted = names(&self.accepted, "or");
                return Err(Malformed::OtherAlgorithm { found, wanted });
            }
            return Ok(found);
        }
        if let [requested] = self.requested[..] {
            let other = Malformed::Length { algorithm: requested, bytes };
            return fitting(requested, bytes).map(|fit| fit.algorithm).ok_or(other);
        }
        if !self.requested.is_empty() {
            let requested = || names(&self.requested, "and");
            let none = || Malformed::NotRequested { bytes, requested: requested() };
            return one_of(&self.requested, bytes)?.ok_or_else(none);
        }
        if let Some(algorithm) = one_of(&self.name.supported, bytes)? {
            return Ok(algorithm);
        }
        if let Some((name, _)) = self.name.others.iter().find(|(_, length)| *length == bytes) {
            return Err(Malformed::Unsupported((*name).to_owned()));
        }
        if bytes == Algorithm::Blake3.bytes() {
            return Ok(Algorithm::Blake3);
        }
        usual(bytes)
    }

    /// Whether the algorithm of a digest is inferred from its length alone.
    fn is_assumed(&self, digest: &ParsedDigest) -> bool {
        let is_named = || {
            let bytes = digest.digest.len();
            self.name.supported.iter().any(|algorithm| fitting(*algorithm, bytes).is_some())
        };
        digest.algorithm.is_none() && self.requested.is_empty() && !is_named()
    }
}

/// How well an algorithm fits a length.
#[derive(Debug, Clone, Copy)]
struct Fit {
    /// BLAKE2b with that length.
    algorithm: Algorithm,
    /// Whether it is the usual length of the algorithm, or its only one.
    is_exact: bool,
}

fn fitting(algorithm: Algorithm, bytes: usize) -> Option<Fit> {
    if bytes == algorithm.bytes() {
        return Some(Fit { algorithm, is_exact: true });
    }
    let other_length = match algorithm {
        Algorithm::Blake3 if bytes >= DIGEST_BYTES_MIN => algorithm,
        Algorithm::Blake2b(_) => {
            let bytes = u8::try_from(bytes).ok()?;
            (1..=BLAKE2B_BYTES).contains(&bytes).then_some(Algorithm::Blake2b(bytes))?
        }
        _ => return None,
    };
    Some(Fit { algorithm: other_length, is_exact: false })
}

/// Returns the algorithm that fits exactly; if there is none, the one that fits at all.
fn one_of(algorithms: &[Algorithm], bytes: usize) -> Result<Option<Algorithm>, Malformed> {
    let fits = |exact: bool| {
        let fits = algorithms.iter().filter_map(move |algorithm| fitting(*algorithm, bytes));
        fits.filter(move |fit| fit.is_exact == exact).map(|fit| fit.algorithm)
    };
    for exact in [true, false] {
        let mut found = fits(exact);
        match (found.next(), found.next()) {
            (None, _) => {}
            (Some(algorithm), None) => return Ok(Some(algorithm)),
            (Some(_), Some(_)) => {
                let candidates: Vec<_> = fits(exact).collect();
                return Err(Malformed::Ambiguous { bytes, candidates: names(&candidates, "or") });
            }
        }
    }
    Ok(None)
}

/// Returns the only algorithm with this length; or BLAKE3, which has any length from
/// [`DIGEST_BYTES_MIN`] up.
fn usual(bytes: usize) -> Result<Algorithm, Malformed> {
    let mut usual: Vec<_> =
        Algorithm::ALL.into_iter().filter(|algorithm| algorithm.bytes() == bytes).collect();
    match usual[..] {
        [algorithm] => Ok(algorithm),
        [] if bytes >= DIGEST_BYTES_MIN => Ok(Algorithm::Blake3),
        [] => Err(Malformed::NoLength(bytes)),
        _ => {
            usual.extend((bytes >= DIGEST_BYTES_MIN).then_some(Algorithm::Blake3));
            Err(Malformed::Ambiguous { bytes, candidates: names(&usual, "or") })
        }
    }
}

/// `SHA256, MD5 or BLAKE3`
fn names(algorithms: &[Algorithm], last: &str) -> String {
    let names: Vec<_> = algorithms.iter().map(ToString::to_string).collect();
    match names.split_last() {
        Some((end, rest)) if !rest.is_empty() => format!("{} {last} {end}", rest.join(", ")),
        _ => names.concat(),
    }
}

impl ParsedLine<'_> {
    /// Resolves the algorithm of each digest. If a line has several, those with unaccepted
    /// algorithms are dropped.
    pub(super) fn resolve(self, hints: &Hints) -> Result<Line, Malformed> {
        let ParsedLine { first, more, size, name, listed } = self;
        let is_assumed = hints.is_assumed(&first);
        let expected = |parsed: ParsedDigest| {
            let algorithm = hints.algorithm(&parsed)?;
            Ok(Expected { algorithm, digest: parsed.digest })
        };
        let mut more = more.into_iter().map(expected);
        let first = match expected(first) {
            Ok(first) => first,
            Err(why) => more.find_map(Result::ok).ok_or(why)?,
        };
        let more = more.filter_map(Result::ok).collect();
        let (name, listed) = (name.into_owned(), listed.into_owned());
        Ok(Line { first, more, is_assumed, size, name, listed })
    }
}
