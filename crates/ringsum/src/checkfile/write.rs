//! Writing the lines of checksum files.

use std::borrow::Cow;

use super::LineEnd;
use crate::Algorithm;

/// The style of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// `HASH  NAME`; for XXH3, `XXH3_HASH  NAME`, as `xxhsum` writes since 0.8.2, because its
    /// digest is as long as that of XXH64.
    Plain,
    /// `HASH *NAME`, with the same meaning: GNU tools write it in binary mode.
    Binary,
    /// `SHA256 (NAME) = HASH`
    Tag,
}

/// Whether a name must be escaped to stay on one line.
fn is_special(byte: u8) -> bool {
    matches!(byte, b'\\' | b'\n' | b'\r')
}

/// Returns a name as written in a line: unchanged, or with a leading backslash and `\`, newline and
/// carriage return as `\\`, `\n` and `\r`.
pub fn escape(name: &[u8]) -> Cow<'_, [u8]> {
    if !name.iter().copied().any(is_special) {
        return Cow::Borrowed(name);
    }
    let mut escaped = vec![b'\\'];
    for &byte in name {
        match byte {
            b'\\' => escaped.extend(b"\\\\"),
            b'\n' => escaped.extend(b"\\n"),
            b'\r' => escaped.extend(b"\\r"),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

/// Returns the parts of a line before and after the hexadecimal digits, without its line ending.
pub fn line_around(
    name: &[u8],
    style: Style,
    algorithm: Algorithm,
    end: LineEnd,
) -> (Vec<u8>, Vec<u8>) {
    let escaped = match end {
        LineEnd::Newline => escape(name),
        LineEnd::Nul => Cow::Borrowed(name),
    };
    let (slash, name): (&[u8], _) = match &escaped {
        Cow::Owned(escaped) => (b"\\", &escaped[1..]),
        Cow::Borrowed(name) => (b"", *name),
    };
    match style {
        Style::Plain | Style::Binary => {
            let prefix = if algorithm == Algorithm::Xxh3 { XXH3_PREFIX } else { b"" };
            let mark = if style == Style::Binary { b" *" } else { b"  " };
            ([slash, prefix].concat(), [mark, name].concat())
        }
        Style::Tag => {
            let tag = algorithm.to_string();
            ([slash, tag.as_bytes(), b" (", name, b") = "].concat(), Vec::new())
        }
    }
}

/// Prefix of the digits of XXH3 in a plain line.
pub(super) const XXH3_PREFIX: &[u8] = b"XXH3_";
