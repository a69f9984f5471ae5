//! Hash algorithms: names, lengths and tags. The implementations are established crates, which
//! choose the fastest code for the processor at run time.

use std::fmt;
use std::hash::Hasher as _;
use std::ops::Deref;

use digest::{DynDigest, Update};

use super::Mode;
use super::digest::Digest;

/// A hash algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// BLAKE3, with output of any length. The only one that can hash one input on all cores.
    Blake3,
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// SHA-512 (FIPS 180-4).
    Sha512,
    /// SHA-384 (FIPS 180-4).
    Sha384,
    /// SHA-224 (FIPS 180-4).
    Sha224,
    /// SHA-1 (FIPS 180-4). Collisions are practical.
    Sha1,
    /// MD5 (RFC 1321). Collisions take seconds.
    Md5,
    /// SHA3-256 (FIPS 202).
    Sha3_256,
    /// BLAKE2b (RFC 7693) with a digest of 1 to 64 bytes.
    Blake2b(u8),
    /// XXH3 of 64 bits. Not cryptographic: detects damage, not forgery.
    Xxh3,
    /// XXH3 of 128 bits. Not cryptographic.
    Xxh128,
    /// XXH64, the default of `xxhsum`. Not cryptographic.
    Xxh64,
    /// XXH32. Not cryptographic.
    Xxh32,
    /// CRC-32C (Castagnoli; RFC 3720, appendix B.4). Not cryptographic.
    Crc32c,
}

/// Length of a BLAKE2b digest unless another is requested, in bytes: that of `b2sum`.
pub(crate) const BLAKE2B_BYTES: u8 = 64;

impl Algorithm {
    /// All algorithms; BLAKE2b with a digest of 64 bytes, as in `b2sum`.
    pub const ALL: [Algorithm; 14] = [
        Algorithm::Blake3,
        Algorithm::Sha256,
        Algorithm::Sha512,
        Algorithm::Sha384,
        Algorithm::Sha224,
        Algorithm::Sha1,
        Algorithm::Md5,
        Algorithm::Sha3_256,
        Algorithm::Blake2b(BLAKE2B_BYTES),
        Algorithm::Xxh3,
        Algorithm::Xxh128,
        Algorithm::Xxh64,
        Algorithm::Xxh32,
        Algorithm::Crc32c,
    ];

    /// Returns its name, its tag, the length of its digest in bytes, and whether finding another
    /// file with the same digest is infeasible, as far as known publicly.
    fn properties(self) -> (&'static str, &'static str, usize, bool) {
        match self {
            Algorithm::Blake3 => ("blake3", "BLAKE3", 32, true),
            Algorithm::Sha256 => ("sha256", "SHA256", 32, true),
            Algorithm::Sha512 => ("sha512", "SHA512", 64, true),
            Algorithm::Sha384 => ("sha384", "SHA384", 48, true),
            Algorithm::Sha224 => ("sha224", "SHA224", 28, true),
            Algorithm::Sha1 => ("sha1", "SHA1", 20, false),
            Algorithm::Md5 => ("md5", "MD5", 16, false),
            Algorithm::Sha3_256 => ("sha3-256", "SHA3-256", 32, true),
            Algorithm::Blake2b(bytes) => ("blake2b", "BLAKE2b", bytes.into(), bytes >= 32),
            Algorithm::Xxh3 => ("xxh3", "XXH3", 8, false),
            Algorithm::Xxh128 => ("xxh128", "XXH128", 16, false),
            Algorithm::Xxh64 => ("xxh64", "XXH64", 8, false),
            Algorithm::Xxh32 => ("xxh32", "XXH32", 4, false),
            Algorithm::Crc32c => ("crc32c", "CRC32C", 4, false),
        }
    }

    /// Returns the name, as in `--algorithm` and JSON output.
    pub fn name(self) -> &'static str {
        self.properties().0
    }

    /// Returns the tag of BSD-style lines, without the length that some digests of BLAKE2b have.
    pub(crate) fn tag(self) -> &'static str {
        self.properties().1
    }

    /// Returns the algorithm with that name; BLAKE2b with a digest of 64 bytes, as in `b2sum`. Upper
    /// case, hyphens and underscores make no difference; `sha3` is `sha3-256`.
    pub fn from_name(name: &str) -> Option<Algorithm> {
        let plain = |name: &str| -> String {
            let letters = name.chars().filter(|letter| !matches!(letter, '-' | '_'));
            letters.map(|letter| letter.to_ascii_lowercase()).collect()
        };
        let name = plain(name);
        let name = if name == "sha3" { "sha3256" } else { &name };
        Algorithm::ALL.into_iter().find(|algorithm| plain(algorithm.name()) == name)
    }

    /// Returns the length of its digest in bytes; for BLAKE3, 32.
    pub fn bytes(self) -> usize {
        self.properties().2
    }

    /// Whether finding another file with the same digest is infeasible, as far as known publicly.
    pub fn resists_forgery(self) -> bool {
        self.properties().3
    }
}

/// The tag of BSD-style lines: `SHA256`, `BLAKE2b`, `BLAKE2b-256`, `XXH3`.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tag())?;
        match *self {
            Algorithm::Blake2b(BLAKE2B_BYTES) => Ok(()),
            Algorithm::Blake2b(bytes) => write!(f, "-{}", u32::from(bytes) * 8),
            _ => Ok(()),
        }
    }
}

/// One or several algorithms, each once, in the order of their addition: a non-empty slice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Algorithms {
    list: [Algorithm; Algorithm::ALL.len()],
    count: u8,
}

impl Default for Algorithms {
    /// BLAKE3 alone.
    fn default() -> Self {
        Algorithms::from(Algorithm::Blake3)
    }
}

impl From<Algorithm> for Algorithms {
    fn from(algorithm: Algorithm) -> Self {
        Algorithms { list: [algorithm; Algorithm::ALL.len()], count: 1 }
    }
}

impl Algorithms {
    /// Adds an algorithm. Returns false if it is present already, in whatever length.
    pub(crate) fn add(&mut self, algorithm: Algorithm) -> bool {
        let is_new = self.iter().all(|other| other.name() != algorithm.name());
        if is_new {
            // The array has room for every name.
            self.list[usize::from(self.count)] = algorithm;
            self.count += 1;
        }
        is_new
    }

    pub(crate) fn is_blake3(&self) -> bool {
        **self == [Algorithm::Blake3]
    }
}

/// Adds those not present yet, in whatever length.
impl Extend<Algorithm> for Algorithms {
    fn extend<I: IntoIterator<Item = Algorithm>>(&mut self, algorithms: I) {
        for algorithm in algorithms {
            self.add(algorithm);
        }
    }
}

impl Deref for Algorithms {
    type Target = [Algorithm];

    fn deref(&self) -> &[Algorithm] {
        &self.list[..usize::from(self.count)]
    }
}

impl fmt::Debug for Algorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The state of one algorithm, which processes the bytes of an input in order.
pub(crate) struct AlgorithmHasher {
    algorithm: Algorithm,
    state: HasherState,
}

enum HasherState {
    Blake3(Box<blake3::Hasher>),
    /// Algorithms of the RustCrypto crates.
    Standard(Box<dyn DynDigest + Send>),
    Blake2b(Box<blake2b_simd::State>),
    Xxh3(twox_hash::XxHash3_64),
    Xxh128(twox_hash::XxHash3_128),
    Xxh64(twox_hash::XxHash64),
    Xxh32(twox_hash::XxHash32),
    Crc32c(u32),
}

impl AlgorithmHasher {
    /// Creates the hasher. `mode` applies to BLAKE3 only. Panics for BLAKE2b of 0 bytes, or of more
    /// than 64.
    pub(super) fn new(algorithm: Algorithm, mode: &Mode) -> AlgorithmHasher {
        let state = match algorithm {
            Algorithm::Blake3 => HasherState::Blake3(Box::new(mode.hasher())),
            Algorithm::Sha256 => HasherState::Standard(Box::new(sha2::Sha256::default())),
            Algorithm::Sha512 => HasherState::Standard(Box::new(sha2::Sha512::default())),
            Algorithm::Sha384 => HasherState::Standard(Box::new(sha2::Sha384::default())),
            Algorithm::Sha224 => HasherState::Standard(Box::new(sha2::Sha224::default())),
            Algorithm::Sha1 => HasherState::Standard(Box::new(sha1::Sha1::default())),
            Algorithm::Md5 => HasherState::Standard(Box::new(md5::Md5::default())),
            Algorithm::Sha3_256 => HasherState::Standard(Box::new(sha3::Sha3_256::default())),
            Algorithm::Blake2b(bytes) => {
                let mut parameters = blake2b_simd::Params::new();
                HasherState::Blake2b(Box::new(parameters.hash_length(bytes.into()).to_state()))
            }
            Algorithm::Xxh3 => HasherState::Xxh3(twox_hash::XxHash3_64::new()),
            Algorithm::Xxh128 => HasherState::Xxh128(twox_hash::XxHash3_128::new()),
            Algorithm::Xxh64 => HasherState::Xxh64(twox_hash::XxHash64::with_seed(0)),
            Algorithm::Xxh32 => HasherState::Xxh32(twox_hash::XxHash32::with_seed(0)),
            Algorithm::Crc32c => HasherState::Crc32c(0),
        };
        AlgorithmHasher { algorithm, state }
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub(super) fn finalize(self) -> Digest {
        let bytes: Box<[u8]> = match self.state {
            HasherState::Blake3(hasher) => return Digest::of_output(hasher.finalize_xof()),
            HasherState::Standard(digest) => digest.finalize(),
            HasherState::Blake2b(state) => state.finalize().as_bytes().into(),
            // As specified by xxHash: the most significant byte first.
            HasherState::Xxh3(hasher) => hasher.finish().to_be_bytes().into(),
            HasherState::Xxh128(hasher) => hasher.finish_128().to_be_bytes().into(),
            HasherState::Xxh64(hasher) => hasher.finish().to_be_bytes().into(),
            HasherState::Xxh32(hasher) => hasher.finish_32().to_be_bytes().into(),
            HasherState::Crc32c(crc) => crc.to_be_bytes().into(),
        };
        Digest::of_bytes(self.algorithm, bytes)
    }
}

impl Update for AlgorithmHasher {
    fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            HasherState::Blake3(hasher) => drop(hasher.update(bytes)),
            HasherState::Standard(digest) => digest.update(bytes),
            HasherState::Blake2b(state) => drop(state.update(bytes)),
            HasherState::Xxh3(hasher) => hasher.write(bytes),
            HasherState::Xxh128(hasher) => hasher.write(bytes),
            HasherState::Xxh64(hasher) => hasher.write(bytes),
            HasherState::Xxh32(hasher) => hasher.write(bytes),
            HasherState::Crc32c(crc) => *crc = crc32c::crc32c_append(*crc, bytes),
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
