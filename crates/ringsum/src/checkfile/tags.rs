//! The tags of BSD-style lines, as various tools write them.

use crate::Algorithm;
use crate::hash::algorithm::BLAKE2B_BYTES;

/// The meaning of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) algorithm: Algorithm,
    /// Whether the bytes of the digest are in reverse order.
    pub(super) little_endian: bool,
}

/// Returns the meaning of a tag, if its algorithm is supported: as in GNU and BSD tools (`SHA256`),
/// OpenSSL (`SHA2-256`), FIPS 180 (`SHA-256`), and xxhsum (`XXH64_LE`).
pub(super) fn tag(word: &[u8]) -> Option<Tag> {
    if let Some(word) = word.strip_suffix(b"_LE") {
        let algorithm = by_name(word).filter(|_| word.starts_with(b"XXH"))?;
        return Some(Tag { algorithm, little_endian: true });
    }
    let algorithm = match word {
        b"SHA2-256" | b"SHA-256" => Algorithm::Sha256,
        b"SHA2-512" | b"SHA-512" => Algorithm::Sha512,
        b"SHA2-384" | b"SHA-384" => Algorithm::Sha384,
        b"SHA2-224" | b"SHA-224" => Algorithm::Sha224,
        b"SHA-1" => Algorithm::Sha1,
        // Those of OpenSSL 1.1 and 3.
        b"BLAKE2b512" | b"BLAKE2B-512" => Algorithm::Blake2b(BLAKE2B_BYTES),
        _ => by_name(word).or_else(|| blake2b(word))?,
    };
    Some(Tag { algorithm, little_endian: false })
}

fn by_name(word: &[u8]) -> Option<Algorithm> {
    Algorithm::ALL.into_iter().find(|algorithm| algorithm.tag().as_bytes() == word)
}

/// `BLAKE2b-BITS`
fn blake2b(word: &[u8]) -> Option<Algorithm> {
    let bits = word.strip_prefix(b"BLAKE2b-")?;
    blake2b_bytes(std::str::from_utf8(bits).ok()?).map(Algorithm::Blake2b)
}

/// Returns the length in bytes of BLAKE2b digests of `bits` bits. As in GNU tools, the number has
/// no leading zeros.
pub(super) fn blake2b_bytes(bits: &str) -> Option<u8> {
    let is_plain = bits.bytes().all(|byte| byte.is_ascii_digit()) && !bits.starts_with('0');
    let bits = bits.parse::<u16>().ok().filter(|_| is_plain)?;
    let bytes = u8::try_from(bits / 8).ok()?;
    (bits % 8 == 0 && (1..=BLAKE2B_BYTES).contains(&bytes)).then_some(bytes)
}
