//! Which digests there are: their names, lengths and tags, and what makes them. None is made here: well-kept
//! crates do, with what the processor has for it (found out when the program runs).

use std::fmt;
use std::hash::Hasher as _;

use sha2::digest::{Digest as Begin, FixedOutput, HashMarker, Update};

use crate::Digest;

/// A digest of bytes that come in their order: what [`Algorithm::hasher`] gives, or your own.
///
/// ```
/// use ringsum::OrderedDigest;
///
/// /// The exclusive or of all bytes.
/// struct Parity(u8);
///
/// impl OrderedDigest for Parity {
///     fn update(&mut self, bytes: &[u8]) {
///         self.0 = bytes.iter().fold(self.0, |parity, byte| parity ^ byte);
///     }
///
///     fn finish(self: Box<Self>) -> Box<[u8]> {
///         Box::new([self.0])
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let file = std::env::current_exe()?;
/// let digests: Vec<Box<dyn OrderedDigest>> = vec![Box::new(Parity(0))];
/// let values = ringsum::digest_file(&file, &ringsum::Config::default(), digests)?;
/// let parity = std::fs::read(&file)?.into_iter().fold(0, |parity, byte| parity ^ byte);
/// assert_eq!(*values[0], [parity]);
/// # Ok(())
/// # }
/// ```
pub trait OrderedDigest: Send {
    /// Takes the next bytes.
    fn update(&mut self, bytes: &[u8]);

    /// All bytes were there: the digest of them.
    fn finish(self: Box<Self>) -> Box<[u8]>;
}

/// A function of bytes that ringsum knows by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// BLAKE3, of any length; the one that all processors can work on at once.
    Blake3,
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// SHA-512 (FIPS 180-4).
    Sha512,
    /// SHA-384 (FIPS 180-4).
    Sha384,
    /// SHA-224 (FIPS 180-4).
    Sha224,
    /// SHA-1 (FIPS 180-4): two files with the same digest can be made.
    Sha1,
    /// MD5 (RFC 1321): two files with the same digest are made in seconds.
    Md5,
    /// SHA3-256 (FIPS 202).
    Sha3_256,
    /// BLAKE2b (RFC 7693) of so many bytes, 1 to 64.
    Blake2b(u8),
    /// XXH3 of 64 bits: finds damage, and is no defence against people.
    Xxh3,
    /// XXH3 of 128 bits: the same.
    Xxh128,
    /// XXH64: the same, and what `xxhsum` writes unless told otherwise.
    Xxh64,
    /// XXH32: the same.
    Xxh32,
    /// CRC-32C (Castagnoli; RFC 3720, appendix B.4): the same.
    Crc32c,
}

/// Bytes of BLAKE2b that `b2sum` gives.
pub const BLAKE2B_BYTES: u8 = 64;

impl Algorithm {
    /// All of them, BLAKE2b in its usual length.
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

    /// What the option is given, and JSON has.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Blake3 => "blake3",
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
            Algorithm::Sha384 => "sha384",
            Algorithm::Sha224 => "sha224",
            Algorithm::Sha1 => "sha1",
            Algorithm::Md5 => "md5",
            Algorithm::Sha3_256 => "sha3-256",
            Algorithm::Blake2b(_) => "blake2b",
            Algorithm::Xxh3 => "xxh3",
            Algorithm::Xxh128 => "xxh128",
            Algorithm::Xxh64 => "xxh64",
            Algorithm::Xxh32 => "xxh32",
            Algorithm::Crc32c => "crc32c",
        }
    }

    /// The algorithm of that name, BLAKE2b in its usual length.
    pub fn from_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Bytes of its digest; of BLAKE3, those that are usual.
    pub fn bytes(self) -> usize {
        match self {
            Algorithm::Xxh32 | Algorithm::Crc32c => 4,
            Algorithm::Xxh3 | Algorithm::Xxh64 => 8,
            Algorithm::Md5 | Algorithm::Xxh128 => 16,
            Algorithm::Sha1 => 20,
            Algorithm::Sha224 => 28,
            Algorithm::Blake3 | Algorithm::Sha256 | Algorithm::Sha3_256 => 32,
            Algorithm::Sha384 => 48,
            Algorithm::Sha512 => 64,
            Algorithm::Blake2b(bytes) => bytes.into(),
        }
    }

    /// Whether nobody is known who could make another file with the same digest.
    pub fn resists_forgery(self) -> bool {
        match self {
            Algorithm::Blake2b(bytes) => bytes >= 32,
            Algorithm::Sha1 | Algorithm::Md5 => false,
            Algorithm::Xxh3 | Algorithm::Xxh128 | Algorithm::Xxh64 => false,
            Algorithm::Xxh32 | Algorithm::Crc32c => false,
            _ => true,
        }
    }

    /// What makes digests of it, from bytes in their order. It has seen nothing yet.
    ///
    /// # Panics
    ///
    /// For BLAKE2b of 0 bytes, or of more than 64.
    pub fn hasher(self) -> Box<dyn OrderedDigest> {
        match self {
            Algorithm::Blake3 => Box::new(Blake3(blake3::Hasher::new())),
            Algorithm::Sha256 => Box::new(Standard(sha2::Sha256::new())),
            Algorithm::Sha512 => Box::new(Standard(sha2::Sha512::new())),
            Algorithm::Sha384 => Box::new(Standard(sha2::Sha384::new())),
            Algorithm::Sha224 => Box::new(Standard(sha2::Sha224::new())),
            Algorithm::Sha1 => Box::new(Standard(sha1::Sha1::new())),
            Algorithm::Md5 => Box::new(Standard(md5::Md5::new())),
            Algorithm::Sha3_256 => Box::new(Standard(sha3::Sha3_256::new())),
            Algorithm::Blake2b(bytes) => {
                let mut parameters = blake2b_simd::Params::new();
                Box::new(Blake2b(parameters.hash_length(bytes.into()).to_state()))
            }
            Algorithm::Xxh3 => Box::new(Xxh3(twox_hash::XxHash3_64::new())),
            Algorithm::Xxh128 => Box::new(Xxh128(twox_hash::XxHash3_128::new())),
            Algorithm::Xxh64 => Box::new(Xxh64(twox_hash::XxHash64::with_seed(0))),
            Algorithm::Xxh32 => Box::new(Xxh32(twox_hash::XxHash32::with_seed(0))),
            Algorithm::Crc32c => Box::new(Crc32c(0)),
        }
    }
}

/// As tags of check files have it: `SHA256`, `BLAKE2b`, `BLAKE2b-256`, `XXH3`.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tag = match *self {
            Algorithm::Blake2b(BLAKE2B_BYTES) => "BLAKE2b",
            Algorithm::Blake2b(bytes) => return write!(f, "BLAKE2b-{}", u32::from(bytes) * 8),
            Algorithm::Blake3 => "BLAKE3",
            Algorithm::Sha256 => "SHA256",
            Algorithm::Sha512 => "SHA512",
            Algorithm::Sha384 => "SHA384",
            Algorithm::Sha224 => "SHA224",
            Algorithm::Sha1 => "SHA1",
            Algorithm::Md5 => "MD5",
            Algorithm::Sha3_256 => "SHA3-256",
            Algorithm::Xxh3 => "XXH3",
            Algorithm::Xxh128 => "XXH128",
            Algorithm::Xxh64 => "XXH64",
            Algorithm::Xxh32 => "XXH32",
            Algorithm::Crc32c => "CRC32C",
        };
        f.write_str(tag)
    }
}

/// Several algorithms, each once, in the order in which they were asked for.
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
    /// Adds one; if it is there already, or another length of it is, nothing changes, and false comes back.
    pub fn add(&mut self, algorithm: Algorithm) -> bool {
        let is_new = self.as_slice().iter().all(|other| other.name() != algorithm.name());
        if is_new {
            // There are no more names than places.
            self.list[usize::from(self.count)] = algorithm;
            self.count += 1;
        }
        is_new
    }

    /// In the order in which they were asked for: at least one.
    pub fn as_slice(&self) -> &[Algorithm] {
        &self.list[..usize::from(self.count)]
    }

    /// Whether it is BLAKE3 and nothing else.
    pub fn is_blake3(&self) -> bool {
        self.as_slice() == [Algorithm::Blake3]
    }
}

impl fmt::Debug for Algorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// The value of one algorithm for an input.
#[derive(Debug, Clone)]
pub enum Sum {
    /// BLAKE3, of any length.
    Blake3(Digest),
    /// Another.
    Other(Algorithm, Box<[u8]>),
}

impl Sum {
    /// Of which algorithm it is.
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Sum::Blake3(_) => Algorithm::Blake3,
            Sum::Other(algorithm, _) => *algorithm,
        }
    }

    /// The first `len` bytes from `seek` on, of BLAKE3; of others, all there are.
    pub fn bytes(&self, seek: u64, len: usize) -> Vec<u8> {
        match self {
            Sum::Blake3(digest) => digest.bytes(seek, len),
            Sum::Other(_, bytes) => bytes.to_vec(),
        }
    }
}

struct Standard<D>(D);

impl<D: Update + FixedOutput + HashMarker + Send> OrderedDigest for Standard<D> {
    fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(self: Box<Self>) -> Box<[u8]> {
        self.0.finalize_fixed().as_slice().into()
    }
}

struct Blake3(blake3::Hasher);

impl OrderedDigest for Blake3 {
    fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(self: Box<Self>) -> Box<[u8]> {
        self.0.finalize().as_bytes().as_slice().into()
    }
}

struct Blake2b(blake2b_simd::State);

impl OrderedDigest for Blake2b {
    fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(self: Box<Self>) -> Box<[u8]> {
        self.0.finalize().as_bytes().into()
    }
}

/// Those of xxHash, as its authors write them down: the most significant byte first.
macro_rules! xxhash {
    ($name:ident, $hasher:ty, $finish:ident) => {
        struct $name($hasher);

        impl OrderedDigest for $name {
            fn update(&mut self, bytes: &[u8]) {
                self.0.write(bytes);
            }

            fn finish(self: Box<Self>) -> Box<[u8]> {
                self.0.$finish().to_be_bytes().into()
            }
        }
    };
}

xxhash!(Xxh3, twox_hash::XxHash3_64, finish);
xxhash!(Xxh128, twox_hash::XxHash3_128, finish_128);
xxhash!(Xxh64, twox_hash::XxHash64, finish);
xxhash!(Xxh32, twox_hash::XxHash32, finish_32);

struct Crc32c(u32);

impl OrderedDigest for Crc32c {
    fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    fn finish(self: Box<Self>) -> Box<[u8]> {
        self.0.to_be_bytes().into()
    }
}

#[cfg(test)]
#[path = "algorithm_tests.rs"]
mod tests;
