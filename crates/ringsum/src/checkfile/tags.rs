//! The tags of BSD-style lines, as various tools write them.

use crate::Algorithm;

/// The meaning of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) algorithm: Algorithm,
    /// Whether the bytes of the digest are in reverse order.
    pub(super) little_endian: bool,
}

/// The meaning of a tag, if it is one of a supported algorithm: of GNU and BSD tools (`SHA256`), OpenSSL
/// (`SHA2-256`), FIPS 180 (`SHA-256`), and xxhsum (`XXH64_LE`).
pub(super) fn tag(word: &[u8]) -> Option<Tag> {
    let algorithm = match word {
        b"BLAKE3" => Algorithm::Blake3,
        b"SHA256" | b"SHA2-256" | b"SHA-256" => Algorithm::Sha256,
        b"SHA512" | b"SHA2-512" | b"SHA-512" => Algorithm::Sha512,
        b"SHA384" | b"SHA2-384" | b"SHA-384" => Algorithm::Sha384,
        b"SHA224" | b"SHA2-224" | b"SHA-224" => Algorithm::Sha224,
        b"SHA1" | b"SHA-1" => Algorithm::Sha1,
        b"MD5" => Algorithm::Md5,
        b"SHA3-256" => Algorithm::Sha3_256,
        // The last two are those of OpenSSL 1.1 and 3.
        b"BLAKE2b" | b"BLAKE2b512" | b"BLAKE2B-512" => Algorithm::Blake2b(crate::hash::algorithm::BLAKE2B_BYTES),
        b"CRC32C" => Algorithm::Crc32c,
        _ => return blake2b(word).or_else(|| xxhash(word)),
    };
    Some(Tag { algorithm, little_endian: false })
}

/// `BLAKE2b-BITS`
fn blake2b(word: &[u8]) -> Option<Tag> {
    let bits = word.strip_prefix(b"BLAKE2b-")?;
    let bytes = blake2b_bytes(std::str::from_utf8(bits).ok()?)?;
    Some(Tag { algorithm: Algorithm::Blake2b(bytes), little_endian: false })
}

/// The length of BLAKE2b digests of `bits` bits, in bytes. As in GNU tools, the number has no leading zeros.
pub(super) fn blake2b_bytes(bits: &str) -> Option<u8> {
    let is_plain = bits.bytes().all(|byte| byte.is_ascii_digit()) && !bits.starts_with('0');
    let bits = bits.parse::<u16>().ok().filter(|_| is_plain)?;
    let bytes = u8::try_from(bits / 8).ok()?;
    (bits % 8 == 0 && (1..=crate::hash::algorithm::BLAKE2B_BYTES).contains(&bytes)).then_some(bytes)
}

fn xxhash(word: &[u8]) -> Option<Tag> {
    let (word, little_endian) = match word.strip_suffix(b"_LE") {
        Some(word) => (word, true),
        None => (word, false),
    };
    let algorithm = match word {
        b"XXH32" => Algorithm::Xxh32,
        b"XXH64" => Algorithm::Xxh64,
        b"XXH128" => Algorithm::Xxh128,
        b"XXH3" => Algorithm::Xxh3,
        _ => return None,
    };
    Some(Tag { algorithm, little_endian })
}
