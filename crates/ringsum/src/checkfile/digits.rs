//! Digests as text: hexadecimal, or base64 (RFC 4648, section 4, with its padding).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{DIGEST_BYTES_MIN, Malformed};
use crate::Algorithm;

/// Lengths of digests that are read in base64 where no tag says the algorithm. Others would be words.
const BASE64_BYTES: [usize; 8] = [4, 8, 16, 20, 28, 32, 48, 64];

/// The digest of an algorithm that is known.
pub(super) fn named(text: &[u8], algorithm: Algorithm) -> Result<Vec<u8>, Malformed> {
    let bytes = algorithm.bytes();
    let digest = if is_base64_of(text, bytes) {
        STANDARD.decode(text).map_err(|_| Malformed::DigestDigits)?
    } else if is_hex(text) {
        hexadecimal(text)?
    } else {
        return Err(Malformed::DigestDigits);
    };
    let fits = match algorithm {
        Algorithm::Blake3 => digest.len() >= DIGEST_BYTES_MIN,
        _ => digest.len() == bytes,
    };
    if !fits {
        return Err(Malformed::Length { algorithm, bytes: digest.len() });
    }
    Ok(digest)
}

/// Whether it can only be base64 of so many bytes. Digits of base64 that all happen to be hexadecimal are to be
/// expected of very short digests only.
fn is_base64_of(text: &[u8], bytes: usize) -> bool {
    text.len() == base64_digits(bytes)
        && !(is_hex(text) && (bytes >= DIGEST_BYTES_MIN || text.len() == 2 * bytes))
}

fn base64_digits(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

/// An even number of hexadecimal digits, of either case.
pub(super) fn hexadecimal(text: &[u8]) -> Result<Vec<u8>, Malformed> {
    if !text.len().is_multiple_of(2) {
        return Err(Malformed::OddDigits(text.len()));
    }
    hex::decode(text).map_err(|_| Malformed::DigestDigits)
}

/// The digest of an algorithm that is not known, in base64: only of lengths that digests usually have.
pub(super) fn unnamed_base64(text: &[u8]) -> Option<Vec<u8>> {
    // Not even looked at, if it cannot be one: it may be any text.
    if !BASE64_BYTES.iter().any(|&bytes| base64_digits(bytes) == text.len()) {
        return None;
    }
    STANDARD.decode(text).ok().filter(|digest| BASE64_BYTES.contains(&digest.len()))
}

fn is_hex(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_hexdigit)
}

/// How many bytes at the start can be digits of base64, the padding included.
pub(super) fn base64_run(text: &[u8]) -> usize {
    let is_digit = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    let digits = text.iter().take_while(is_digit).count();
    digits + text[digits..].iter().take_while(|byte| **byte == b'=').count()
}

/// How many hexadecimal digits are at the start.
pub(super) fn hex_run(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count()
}
