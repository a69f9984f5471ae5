//! The text formats of check files: writing a line, and reading one. Pure; no file is touched.
//!
//! `docs/check-format.md` specifies both, case by case. Names are bytes.
//!
//! ```
//! use ringsum::Algorithm;
//! use ringsum::checkfile::{Known, Reader};
//!
//! # fn main() -> Result<(), ringsum::checkfile::Malformed> {
//! let mut reader = Reader::new();
//! let known = Known::new(&[], &[], Some(b"MD5SUMS"));
//! let line = b"5d41402abc4b2a76b9719d911017c592  hello\n";
//! let entry = reader.line(line)?.expect("neither blank nor a comment").resolve(&known)?;
//! assert_eq!((&*entry.name, entry.first.algorithm), (&b"hello"[..], Algorithm::Md5));
//! # Ok(())
//! # }
//! ```

mod digits;
mod listname;
mod read;
mod resolve;
mod tags;
#[cfg(test)]
mod tests;
mod write;

use std::borrow::Cow;

use crate::Algorithm;

pub use read::Reader;
pub use resolve::Known;
pub use write::{Style, escape, line_around, zero_line_around};

/// Shortest digest of BLAKE3 that a check accepts, in bytes. Anybody can find a file for a shorter one.
pub const DIGEST_BYTES_MIN: usize = 16;

/// Longest line that is read, in bytes with its line ending: 1 MiB, which is a digest of 500,000 bytes
/// and the longest name that Linux opens, twice over.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// One file and the digests that it should have, as a line says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The digest; the first one of a line of `hashdeep`.
    pub first: Expected,
    /// The others of such a line.
    pub more: Vec<Expected>,
    /// Bytes that the file should have.
    pub size: Option<u64>,
    /// The file's name, without escapes.
    pub name: Cow<'a, [u8]>,
    /// The name as the line has it, with the leading backslash if it is escaped.
    pub listed: Cow<'a, [u8]>,
}

/// A digest as a line has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Of which algorithm it is, and it is as long as that one's are; `None` if the line does not say it.
    pub algorithm: Option<Algorithm>,
    /// At least one byte.
    pub digest: Vec<u8>,
}

/// An [`Entry`] of which all is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved<'a> {
    /// The digest; the first one of a line of `hashdeep`.
    pub first: Wanted,
    /// The others of such a line.
    pub more: Vec<Wanted>,
    /// Bytes that the file should have.
    pub size: Option<u64>,
    /// The file's name, without escapes.
    pub name: Cow<'a, [u8]>,
    /// The name as the line has it, with the leading backslash if it is escaped.
    pub listed: Cow<'a, [u8]>,
}

/// What a file's digest should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Of BLAKE2b, with its length.
    pub algorithm: Algorithm,
    /// As long as those of the algorithm; of BLAKE3, at least [`DIGEST_BYTES_MIN`] bytes.
    pub digest: Vec<u8>,
}

/// Why a line is no entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Longer than [`LINE_BYTES_MAX`].
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// Neither `HASH  NAME` nor `TAG (NAME) = HASH`.
    #[error("neither `HASH  NAME` nor `TAG (NAME) = HASH`")]
    Shape,
    /// Of an algorithm that is not known here.
    #[error("it is of {0}, which is not supported")]
    Unsupported(String),
    /// Of another algorithm than it must be.
    #[error("it is of {found}, not of {wanted}")]
    OtherAlgorithm {
        /// What the line says.
        found: Algorithm,
        /// What is accepted.
        wanted: String,
    },
    /// Of `cksum` or `sum` without an algorithm: `NUMBER NUMBER NAME`.
    #[error("it is a CRC or sum of `cksum` or `sum`, which is not supported")]
    Cksum,
    /// In one of the modes of `shasum` in which the digest is not that of the file's bytes.
    #[error(
        "`{0}` before the name: a mode of shasum, for which it read other bytes than the file has"
    )]
    Mode(char),
    /// Half a byte too long.
    #[error("the hash has {0} hexadecimal digits, and an even number is needed")]
    OddDigits(usize),
    /// A digest that is not as long as those of its algorithm.
    #[error("the hash has {bytes} bytes, and {algorithm} has {}", length_of(*.algorithm))]
    Length {
        /// Of which algorithm it should be.
        algorithm: Algorithm,
        /// How long it is.
        bytes: usize,
    },
    /// A digest of a length that no algorithm has.
    #[error("the hash has {digits} hexadecimal digits ({0} bytes), as of no algorithm here", digits = 2 * .0)]
    NoLength(usize),
    /// A digest of a length that none of the algorithms that were asked for has.
    #[error("the hash has {bytes} bytes, as none of these has: {asked}")]
    NotAsked {
        /// How long it is.
        bytes: usize,
        /// What was asked for.
        asked: String,
    },
    /// A digest that can be of several algorithms.
    #[error("a hash of {bytes} bytes can be {candidates}: -a ALGORITHM says which")]
    Ambiguous {
        /// How long it is.
        bytes: usize,
        /// What it can be.
        candidates: String,
    },
    /// Something in the place of the digest that is neither hexadecimal nor base64.
    #[error("the hash is not hexadecimal")]
    DigestDigits,
    /// The start of a list of `hashdeep` that cannot be understood.
    #[error("neither `%%%% HASHDEEP-1.0` nor a list of columns that ends with `filename`")]
    Header,
    /// A backslash that is not followed by a backslash, `n` or `r`, in an escaped name.
    #[error("a backslash in an escaped name is followed by none of `\\`, `n` and `r`")]
    Escape,
    /// A NUL, which no file's name has.
    #[error("the name has a NUL in it")]
    Nul,
    /// No name.
    #[error("the name is empty")]
    NoName,
}

/// How many bytes digests of an algorithm have, in words.
fn length_of(algorithm: Algorithm) -> String {
    match algorithm {
        Algorithm::Blake3 => format!("{DIGEST_BYTES_MIN} or more"),
        other => other.bytes().to_string(),
    }
}
