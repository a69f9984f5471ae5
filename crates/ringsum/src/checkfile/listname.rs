//! Which algorithms the name of a list speaks of: `SHA256SUMS`, `CHECKSUMS.sha512`, `x.iso.md5`, `b3sums.txt`.

use super::tags::blake2b_bytes;
use crate::{Algorithm, BLAKE2B_BYTES};

/// What a name says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) supported: Vec<Algorithm>,
    /// Those that are not supported, and the bytes of their digests.
    pub(super) others: Vec<(&'static str, usize)>,
}

/// Algorithms that are not supported, and would be taken for others: as a name has them, as they are called, and the
/// bytes of their digests.
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

/// What the last part of a path says. `-` says nothing, as any name without such a word.
pub(super) fn said(path: &[u8]) -> Said {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path).to_ascii_lowercase();
    let words = name.split(|byte| !byte.is_ascii_alphanumeric());
    // Only ASCII is left of it.
    let words: Vec<&str> = words.filter_map(|word| std::str::from_utf8(word).ok()).collect();
    let mut said = Said::default();
    let mut rest = &words[..];
    while let [word, following @ ..] = rest {
        // `sha3-256` before `sha3`, and `sha512-256` before `sha512`.
        let both = following.first().map(|next| format!("{word}-{next}"));
        rest = match both.filter(|both| take_down(both, &mut said)) {
            Some(_) => &following[1..],
            None => {
                take_down(word, &mut said);
                following
            }
        };
    }
    said
}

/// Whether the word names an algorithm.
fn take_down(word: &str, said: &mut Said) -> bool {
    let stem = word.strip_suffix("sums").or_else(|| word.strip_suffix("sum")).unwrap_or(word);
    if let Some((_, name, bytes)) = OTHERS.iter().find(|(other, ..)| *other == stem) {
        said.others.push((name, *bytes));
        return true;
    }
    let found: &[Algorithm] = match (stem, word) {
        ("blake3", _) | ("b3", "b3sum" | "b3sums") => &[Algorithm::Blake3],
        ("sha256" | "sha2-256" | "sha-256", _) | (_, "shasums256") => &[Algorithm::Sha256],
        ("sha512" | "sha2-512" | "sha-512", _) | (_, "shasums512") => &[Algorithm::Sha512],
        ("sha384" | "sha2-384" | "sha-384", _) => &[Algorithm::Sha384],
        ("sha224" | "sha2-224" | "sha-224", _) => &[Algorithm::Sha224],
        ("sha1" | "sha-1", _) => &[Algorithm::Sha1],
        ("md5", _) => &[Algorithm::Md5],
        ("sha3-256", _) => &[Algorithm::Sha3_256],
        ("blake2" | "blake2b", _) | ("b2", "b2sum" | "b2sums") => {
            &[Algorithm::Blake2b(BLAKE2B_BYTES)]
        }
        ("xxh3", _) => &[Algorithm::Xxh3],
        ("xxh128", _) => &[Algorithm::Xxh128],
        ("xxh64", _) => &[Algorithm::Xxh64],
        ("xxh32", _) => &[Algorithm::Xxh32],
        // As xxhsum takes lines without a tag.
        ("xxh" | "xxhash", _) => &[Algorithm::Xxh64, Algorithm::Xxh128, Algorithm::Xxh32],
        ("crc32c", _) => &[Algorithm::Crc32c],
        _ => &[],
    };
    // `blake2b-256`, `blake2b256`
    let bits = stem.strip_prefix("blake2b").map(|bits| bits.trim_start_matches('-'));
    let other_length = bits.and_then(blake2b_bytes).map(Algorithm::Blake2b);
    for &algorithm in found.iter().chain(&other_length) {
        if !said.supported.contains(&algorithm) {
            said.supported.push(algorithm);
        }
    }
    !found.is_empty() || other_length.is_some()
}
