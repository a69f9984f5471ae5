//! Writing the lines of check files.

use std::borrow::Cow;

use crate::Algorithm;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// `HASH  NAME`; of XXH3, `XXH3_HASH  NAME`, as `xxhsum` does since 0.8.2: its digest is as long as
    /// that of XXH64.
    Plain,
    /// `SHA256 (NAME) = HASH`
    Tag,
}

/// Whether a name must be escaped to stay on one line.
fn is_special(byte: u8) -> bool {
    matches!(byte, b'\\' | b'\n' | b'\r')
}

/// The name as a line has it: unchanged, or with a leading backslash and `\`, newline and carriage
/// return as `\\`, `\n` and `\r`.
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

/// What stands before and after the hexadecimal digits of a line, without its newline.
pub fn line_around(name: &[u8], style: Style, algorithm: Algorithm) -> (Vec<u8>, Vec<u8>) {
    let escaped = escape(name);
    let (slash, name) = match &escaped {
        Cow::Owned(escaped) => (&b"\\"[..], &escaped[1..]),
        Cow::Borrowed(name) => (&b""[..], *name),
    };
    around(slash, name, style, algorithm)
}

/// The same for a line that ends with NUL: no name needs escapes there.
pub fn zero_line_around(name: &[u8], style: Style, algorithm: Algorithm) -> (Vec<u8>, Vec<u8>) {
    around(b"", name, style, algorithm)
}

fn around(slash: &[u8], name: &[u8], style: Style, algorithm: Algorithm) -> (Vec<u8>, Vec<u8>) {
    match style {
        Style::Plain => {
            let prefix = if algorithm == Algorithm::Xxh3 { XXH3_PREFIX } else { b"" };
            ([slash, prefix].concat(), [b"  ", name].concat())
        }
        Style::Tag => {
            let tag = algorithm.to_string();
            ([slash, tag.as_bytes(), b" (", name, b") = "].concat(), Vec::new())
        }
    }
}

/// Before the digits of XXH3 in a plain line.
pub(super) const XXH3_PREFIX: &[u8] = b"XXH3_";
