//! The digests of an input.

use std::fmt;
use std::ops::Deref;

use smallvec::{SmallVec, smallvec};

use super::algorithm::Algorithm;

/// The digest of an input by one algorithm.
///
/// Displayed as lowercase hexadecimal digits; for BLAKE3, of the first 32 bytes.
#[derive(Clone)]
pub struct Digest(Value);

#[derive(Clone)]
enum Value {
    /// BLAKE3 with its extended output.
    Output(Box<blake3::OutputReader>),
    /// BLAKE3; only the first 32 bytes are kept.
    Hash([u8; blake3::OUT_LEN]),
    Other(Algorithm, Box<[u8]>),
}

impl Digest {
    pub(crate) fn of_output(output: blake3::OutputReader) -> Digest {
        Digest(Value::Output(Box::new(output)))
    }

    pub(super) fn of_bytes(algorithm: Algorithm, bytes: Box<[u8]>) -> Digest {
        Digest(Value::Other(algorithm, bytes))
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> Algorithm {
        match &self.0 {
            Value::Output(_) | Value::Hash(_) => Algorithm::Blake3,
            Value::Other(algorithm, _) => *algorithm,
        }
    }

    /// Returns the first 32 bytes of BLAKE3; `None` for another algorithm.
    pub fn hash(&self) -> Option<blake3::Hash> {
        match &self.0 {
            Value::Output(reader) => {
                let mut bytes = [0; blake3::OUT_LEN];
                reader.as_ref().clone().fill(&mut bytes);
                Some(bytes.into())
            }
            Value::Hash(bytes) => Some((*bytes).into()),
            Value::Other(..) => None,
        }
    }

    /// Returns all bytes; for BLAKE3, the first 32.
    pub fn to_vec(&self) -> Vec<u8> {
        match (&self.0, self.hash()) {
            (Value::Other(_, bytes), _) => bytes.to_vec(),
            (_, hash) => hash.map_or_else(Vec::new, |hash| hash.as_bytes().to_vec()),
        }
    }

    /// Returns `len` bytes of BLAKE3's extended output starting at byte `seek`. `None` for another
    /// algorithm, and past byte 32 if only that much was kept
    /// (`extended` of an input file).
    pub fn output(&self, seek: u64, len: usize) -> Option<Vec<u8>> {
        match &self.0 {
            Value::Output(reader) => {
                let mut bytes = vec![0; len];
                let mut reader = reader.as_ref().clone();
                reader.set_position(seek);
                reader.fill(&mut bytes);
                Some(bytes)
            }
            Value::Hash(bytes) => {
                let start = usize::try_from(seek).ok()?;
                Some(bytes.get(start..start.checked_add(len)?)?.to_vec())
            }
            Value::Other(..) => None,
        }
    }

    /// Whether it equals `expected`; for BLAKE3, whether the output from byte `seek` on starts with
    /// `expected`. The time taken does not depend on the position of the first difference.
    pub fn matches(&self, seek: u64, expected: &[u8]) -> bool {
        let bytes = match &self.0 {
            Value::Other(_, bytes) => Some(bytes.to_vec()),
            _ => self.output(seek, expected.len()),
        };
        bytes.is_some_and(|bytes| {
            let differences = bytes.iter().zip(expected).fold(0, |sum, (a, b)| sum | (a ^ b));
            bytes.len() == expected.len() && differences == 0
        })
    }
}

impl From<blake3::Hash> for Digest {
    fn from(hash: blake3::Hash) -> Digest {
        Digest(Value::Hash(hash.into()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.to_vec()))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({self})", self.algorithm())
    }
}

/// The digests of an input, in the order of its [`Algorithms`](crate::Algorithms); at least one.
///
/// (Most inputs have one, which needs no allocation.)
#[derive(Debug, Clone)]
pub struct Digests(SmallVec<[Digest; 1]>);

impl Digests {
    /// Returns the 32-byte BLAKE3 hash, if BLAKE3 is among the algorithms.
    pub fn hash(&self) -> Option<blake3::Hash> {
        self.iter().find_map(Digest::hash)
    }
}

impl Deref for Digests {
    type Target = [Digest];

    fn deref(&self) -> &[Digest] {
        &self.0
    }
}

impl From<Digest> for Digests {
    fn from(digest: Digest) -> Digests {
        Digests(smallvec![digest])
    }
}

impl FromIterator<Digest> for Digests {
    fn from_iter<I: IntoIterator<Item = Digest>>(digests: I) -> Digests {
        Digests(digests.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests() -> [Digest; 3] {
        let hasher = blake3::Hasher::new();
        let crc = Digest::of_bytes(Algorithm::Crc32c, vec![1, 2, 3, 4].into());
        [Digest::of_output(hasher.finalize_xof()), hasher.finalize().into(), crc]
    }

    #[test]
    fn a_digest_matches_only_its_own_bytes() {
        let [extended, short, crc] = digests();
        let hash = blake3::hash(b"");
        for digest in [&extended, &short] {
            assert_eq!(digest.hash(), Some(hash));
            assert_eq!(digest.to_vec(), hash.as_bytes());
            assert_eq!(digest.to_string(), hash.to_string());
            assert!(
                digest.matches(0, hash.as_bytes()) && digest.matches(3, &hash.as_bytes()[3..9])
            );
            assert!(!digest.matches(1, hash.as_bytes()) && !digest.matches(0, &[0; 32]));
        }
        assert_eq!(extended.output(30, 70).unwrap().len(), 70);
        // What was not kept is not made up.
        assert_eq!(short.output(30, 3), None);
        assert!(!short.matches(0, &extended.output(0, 33).unwrap()));
        assert!(crc.matches(0, &[1, 2, 3, 4]) && crc.matches(7, &[1, 2, 3, 4]));
        for other in [&[1, 2, 3][..], &[1, 2, 3, 4, 0], &[1, 2, 3, 5], b""] {
            assert!(!crc.matches(0, other), "{other:?}");
        }
        assert_eq!((crc.output(0, 4), crc.hash()), (None, None));
        assert_eq!(crc.to_string(), "01020304");
    }

    #[test]
    fn blake3_is_found_among_several() {
        let [extended, _, crc] = digests();
        let one = Digests::from(crc.clone());
        assert_eq!((one.len(), one.hash()), (1, None));
        let two: Digests = [crc, extended].into_iter().collect();
        assert_eq!(two.hash(), Some(blake3::hash(b"")));
    }
}
