//! Which algorithm a digest is of, where its line does not say it.

use super::listname::{Said, said};
use super::{DIGEST_BYTES_MIN, Entry, Expected, Malformed, Resolved, Wanted};
use crate::{Algorithm, BLAKE2B_BYTES};

/// What is known of the digests of a list besides its lines.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Of which algorithms digests without a tag can be, if any are given.
    asked: Vec<Algorithm>,
    /// Of which algorithms tags can be, if any are given.
    only: Vec<Algorithm>,
    said: Said,
}

impl Known {
    /// `asked`: what digests without a tag can be of; nothing, if it is not known. `only`: what tags can be of, as for
    /// `sha256sum --check`; anything, if none is given. Of BLAKE2b, any length is meant. `list_name`: the path of the
    /// list, whose last part may name an algorithm.
    pub fn new(asked: &[Algorithm], only: &[Algorithm], list_name: Option<&[u8]>) -> Known {
        let asked = if asked.is_empty() { only } else { asked };
        let (asked, only) = (asked.to_vec(), only.to_vec());
        Known { asked, only, said: list_name.map(said).unwrap_or_default() }
    }

    /// Of which algorithm a digest is.
    ///
    /// In this order: what its line says; what was asked for, if that has the length; what the name of the list says,
    /// if that has the length; BLAKE3 if it has 32 bytes; the only algorithm, other than BLAKE3, that has the
    /// length; BLAKE3.
    ///
    /// # Errors
    ///
    /// It can be of none, or of several.
    pub fn algorithm(&self, expected: &Expected) -> Result<Algorithm, Malformed> {
        let bytes = expected.digest.len();
        if let Some(found) = expected.algorithm {
            let is_accepted = |only: &Algorithm| only.name() == found.name();
            if !self.only.is_empty() && !self.only.iter().any(is_accepted) {
                return Err(Malformed::OtherAlgorithm { found, wanted: names(&self.only, "or") });
            }
            return Ok(found);
        }
        if let [asked] = self.asked[..] {
            let other = Malformed::Length { algorithm: asked, bytes };
            return fitting(asked, bytes).map(|fit| fit.algorithm).ok_or(other);
        }
        if !self.asked.is_empty() {
            let none = || Malformed::NotAsked { bytes, asked: names(&self.asked, "and") };
            return one_of(&self.asked, bytes)?.ok_or_else(none);
        }
        if let Some(algorithm) = one_of(&self.said.supported, bytes)? {
            return Ok(algorithm);
        }
        if let Some((name, _)) = self.said.others.iter().find(|(_, length)| *length == bytes) {
            return Err(Malformed::Unsupported((*name).to_owned()));
        }
        if bytes == Algorithm::Blake3.bytes() {
            return Ok(Algorithm::Blake3);
        }
        usual(bytes)
    }
}

impl Known {
    /// Whether nothing but its length says of which algorithm a digest is.
    fn assumes(&self, expected: &Expected) -> bool {
        let is_said = || {
            let bytes = expected.digest.len();
            self.said.supported.iter().any(|algorithm| fitting(*algorithm, bytes).is_some())
        };
        expected.algorithm.is_none() && self.asked.is_empty() && !is_said()
    }
}

/// Of which other algorithms digests of that length are, in words.
pub fn others_of(algorithm: Algorithm, bytes: usize) -> String {
    let others: Vec<_> = Algorithm::ALL
        .into_iter()
        .filter(|other| other.name() != algorithm.name())
        .filter_map(|other| fitting(other, bytes))
        .map(|fit| fit.algorithm)
        .collect();
    names(&others, "or")
}

/// How well an algorithm fits a length.
#[derive(Debug, Clone, Copy)]
struct Fit {
    /// Of BLAKE2b, with that length.
    algorithm: Algorithm,
    /// It is the usual length of the algorithm, or its only one.
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

/// The one that fits exactly; or, if none does, the one that fits at all.
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

/// The only algorithm whose digests are as long as that; or BLAKE3, which can be of any length from
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

impl<'a> Entry<'a> {
    /// Finds out of which algorithm each digest is. Of several, those of algorithms that are not accepted are left
    /// out.
    ///
    /// # Errors
    ///
    /// It cannot be known, or none of them is accepted.
    pub fn resolve(self, known: &Known) -> Result<Resolved<'a>, Malformed> {
        let Entry { first, more, size, name, listed } = self;
        let is_assumed = known.assumes(&first);
        let wanted = |expected: Expected| {
            let algorithm = known.algorithm(&expected)?;
            Ok(Wanted { algorithm, digest: expected.digest })
        };
        let mut more = more.into_iter().map(wanted);
        let first = match wanted(first) {
            Ok(first) => first,
            Err(why) => more.find_map(Result::ok).ok_or(why)?,
        };
        let more = more.filter_map(Result::ok).collect();
        Ok(Resolved { first, more, is_assumed, size, name, listed })
    }
}
