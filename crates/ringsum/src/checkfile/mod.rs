//! The text formats of checksum files: writing a line, and parsing one. Does no I/O.
//!
//! `docs/formats.md` specifies both, case by case. Names are bytes.
//!
//! ```
//! use ringsum::Algorithm;
//! use ringsum::checkfile::{LineEnd, Reader};
//!
//! # fn main() -> Result<(), ringsum::checkfile::Malformed> {
//! let mut reader = Reader::new(&[], &[], Some(b"MD5SUMS"), LineEnd::Newline);
//! let line = reader.line(b"5d41402abc4b2a76b9719d911017c592  hello\n")?;
//! let line = line.expect("neither blank nor a comment");
//! assert_eq!((&*line.name, line.first.algorithm), (&b"hello"[..], Algorithm::Md5));
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

pub use self::{
    read::Reader,
    write::{Style, escape, line_around},
};

use crate::Algorithm;

/// Shortest digest of BLAKE3 accepted by a check, in bytes. Shorter ones can be forged.
pub(crate) const DIGEST_BYTES_MIN: usize = 16;

/// Longest accepted line, in bytes with its line ending: 1 MiB, enough for a digest of 500,000
/// bytes, or for the longest path that Linux opens, more than twice over.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// Line ending: `end as u8` is the byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum LineEnd {
    /// Newline. Special characters of names are escaped.
    #[default]
    Newline = b'\n',
    /// NUL. Names are not escaped.
    Nul = 0,
}

/// A parsed line: one file and its expected digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The digest; in a line of `hashdeep`, the first one.
    pub first: Expected,
    /// The other digests of such a line.
    pub more: Vec<Expected>,
    /// Whether the algorithm of the first digest was inferred from its length alone.
    pub is_assumed: bool,
    /// Expected length of the file, in bytes.
    pub size: Option<u64>,
    /// The file's name, without escapes.
    pub name: Vec<u8>,
    /// The name as written in the line, with the leading backslash if it is escaped.
    pub listed: Vec<u8>,
}

/// An expected digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The algorithm; for BLAKE2b, with the length of the digest.
    pub algorithm: Algorithm,
    /// As long as the algorithm's digests; for BLAKE3, at least 16 bytes.
    pub digest: Vec<u8>,
}

/// A line before its algorithms are resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ParsedLine<'a> {
    first: ParsedDigest,
    more: Vec<ParsedDigest>,
    size: Option<u64>,
    name: Cow<'a, [u8]>,
    listed: Cow<'a, [u8]>,
}

/// A digest as written in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ParsedDigest {
    /// The algorithm, whose length the digest has; `None` if the line does not name one.
    algorithm: Option<Algorithm>,
    /// At least one byte.
    digest: Vec<u8>,
}

/// Why a line is malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Longer than [`LINE_BYTES_MAX`].
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// Neither `HASH  NAME` nor `TAG (NAME) = HASH`.
    #[error("neither `HASH  NAME` nor `TAG (NAME) = HASH`")]
    Shape,
    /// Its algorithm is not supported.
    #[error("its algorithm is {0}, which is not supported")]
    Unsupported(String),
    /// Its algorithm is not among the accepted ones.
    #[error("its algorithm is {found}, not {wanted}")]
    OtherAlgorithm {
        /// That of the line.
        found: Algorithm,
        /// The accepted ones.
        wanted: String,
    },
    /// Written by `cksum` or `sum` without an algorithm: `NUMBER NUMBER NAME`.
    #[error("it has a CRC or sum of `cksum` or `sum`, which is not supported")]
    Cksum,
    /// Written in a mode of `shasum` that hashes other bytes than those of the file.
    #[error(
        "`{0}` before the name: a mode of shasum that hashes other bytes than those of the file"
    )]
    Mode(char),
    /// An odd number of digits.
    #[error("the hash has {0} hexadecimal digits, and an even number is needed")]
    OddDigits(usize),
    /// A digest whose length does not match its algorithm.
    #[error("the hash has {bytes} bytes, and {algorithm} has {}", length_of(*.algorithm))]
    Length {
        /// The algorithm.
        algorithm: Algorithm,
        /// The length in bytes.
        bytes: usize,
    },
    /// No supported algorithm has digests of this length.
    #[error("the hash has {digits} hexadecimal digits ({0} bytes), which no supported algorithm has", digits = 2 * .0)]
    NoLength(usize),
    /// None of the requested algorithms has digests of this length.
    #[error("the hash has {bytes} bytes, which none of these has: {requested}")]
    NotRequested {
        /// The length in bytes.
        bytes: usize,
        /// The requested algorithms.
        requested: String,
    },
    /// Several algorithms have digests of this length.
    #[error("a hash of {bytes} bytes may be {candidates}: choose with -a ALGORITHM")]
    Ambiguous {
        /// The length in bytes.
        bytes: usize,
        /// The candidates.
        candidates: String,
    },
    /// A digest that is neither hexadecimal nor base64.
    #[error("the hash is not hexadecimal")]
    DigestDigits,
    /// An unknown header of `hashdeep`.
    #[error("neither `%%%% HASHDEEP-1.0` nor a list of columns that ends with `filename`")]
    Header,
    /// In an escaped name, a backslash that is not followed by a backslash, `n` or `r`.
    #[error("a backslash in an escaped name is not followed by `\\`, `n` or `r`")]
    Escape,
    /// A NUL, which no file name contains.
    #[error("the name contains a NUL")]
    Nul,
    /// No name.
    #[error("the name is empty")]
    NoName,
}

/// The digest length of an algorithm in bytes, for messages.
fn length_of(algorithm: Algorithm) -> String {
    match algorithm {
        Algorithm::Blake3 => format!("{DIGEST_BYTES_MIN} or more"),
        other => other.bytes().to_string(),
    }
}
