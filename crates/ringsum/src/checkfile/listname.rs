//! Algorithms in the name of a checksum file: `SHA256SUMS`, `CHECKSUMS.sha512`, `x.iso.md5`,
//! `b3sums.txt`.

use super::tags::blake2b_bytes;
use crate::Algorithm;
use crate::hash::algorithm::BLAKE2B_BYTES;

/// The algorithms that a file name mentions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NameHints {
    pub(super) supported: Vec<Algorithm>,
    /// Unsupported ones, with the length of their digests in bytes.
    pub(super) others: Vec<(&'static str, usize)>,
}

/// Unsupported algorithms that would be mistaken for others: the word in a file name, the
/// algorithm's name, and the length of its digests in bytes.
const OTHERS: [(&str, &str, usize); 17] = [
    ("sha3-224", "SHA3-224", 28),
    ("sha3-384", "SHA3-384", 48),
    ("sha3-512", "SHA3-512", 64),
    ("sha512-224", "SHA512/224", 28),
    ("sha512t224", "SHA512/224", 28),
    ("sha512-256", "SHA512/256", 32),
    ("sha512t256", "SHA512/256", 32),
    ("blake2s", "BLAKE2s", 32),
    ("sm3", "SM3", 32),
    ("whirlpool", "WHIRLPOOL", 64),
    ("tiger", "TIGER", 24),
    ("rmd160", "RIPEMD-160", 20),
    ("ripemd160", "RIPEMD-160", 20),
    ("ripemd-160", "RIPEMD-160", 20),
    ("crc32", "CRC32", 4),
    ("crc32b", "CRC32", 4),
    ("md4", "MD4", 16),
];

/// The algorithms that the last part of a path mentions.
pub(super) fn name_hints(path: &[u8]) -> NameHints {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path).to_ascii_lowercase();
    let words = name.split(|byte| !byte.is_ascii_alphanumeric());
    // (All words are ASCII.)
    let words: Vec<&str> = words.filter_map(|word| std::str::from_utf8(word).ok()).collect();
    let mut hints = NameHints::default();
    let mut rest = &words[..];
    while let [word, following @ ..] = rest {
        // `sha3-256` before `sha3`, and `sha512-256` before `sha512`.
        let both = following.first().map(|next| format!("{word}-{next}"));
        rest = match both.filter(|both| hints.add(both)) {
            Some(_) => &following[1..],
            None => {
                hints.add(word);
                following
            }
        };
    }
    hints
}

impl NameHints {
    /// Adds the algorithm that a word names. Returns false if it names none.
    fn add(&mut self, word: &str) -> bool {
        let stem = word.strip_suffix("sums").or_else(|| word.strip_suffix("sum")).unwrap_or(word);
        if let Some((_, name, bytes)) = OTHERS.iter().find(|(other, ..)| *other == stem) {
            self.others.push((name, *bytes));
            return true;
        }
        let named = Algorithm::from_name(stem);
        let found: &[Algorithm] = match (stem, word) {
            ("b3", "b3sum" | "b3sums") => &[Algorithm::Blake3],
            ("sha2-256" | "sha-256", _) | (_, "shasums256") => &[Algorithm::Sha256],
            ("sha2-512" | "sha-512", _) | (_, "shasums512") => &[Algorithm::Sha512],
            ("sha2-384" | "sha-384", _) => &[Algorithm::Sha384],
            ("sha2-224" | "sha-224", _) => &[Algorithm::Sha224],
            ("sha-1", _) => &[Algorithm::Sha1],
            ("blake2", _) | ("b2", "b2sum" | "b2sums") => &[Algorithm::Blake2b(BLAKE2B_BYTES)],
            // As xxhsum interprets lines without a tag.
            ("xxh" | "xxhash", _) => &[Algorithm::Xxh64, Algorithm::Xxh128, Algorithm::Xxh32],
            _ => named.as_slice(),
        };
        // `blake2b-256`, `blake2b256`
        let bits = stem.strip_prefix("blake2b").map(|bits| bits.trim_start_matches('-'));
        let other_length = bits.and_then(blake2b_bytes).map(Algorithm::Blake2b);
        for &algorithm in found.iter().chain(&other_length) {
            if !self.supported.contains(&algorithm) {
                self.supported.push(algorithm);
            }
        }
        !found.is_empty() || other_length.is_some()
    }
}
