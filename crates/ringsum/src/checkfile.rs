//! The text formats of check files: writing a line, and reading one. Pure; no file is touched.
//!
//! `docs/check-format.md` specifies both, case by case. Names are bytes.

use std::borrow::Cow;

/// Shortest digest that a check accepts, in bytes. Anybody can find a file for a shorter one.
pub const DIGEST_BYTES_MIN: usize = 16;

/// Longest line that is read, in bytes with its line ending: 1 MiB, which is a digest of 500,000 bytes
/// and the longest name that Linux opens, twice over.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// One file and the digest that it should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'a> {
    /// At least [`DIGEST_BYTES_MIN`] bytes.
    pub digest: Vec<u8>,
    /// The file's name, without escapes.
    pub name: Cow<'a, [u8]>,
    /// The name as the line has it, with the leading backslash if it is escaped.
    pub listed: Cow<'a, [u8]>,
}

/// Why a line is no entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Longer than [`LINE_BYTES_MAX`].
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// Neither `HASH  NAME` nor `BLAKE3 (NAME) = HASH`.
    #[error("neither `HASH  NAME` nor `BLAKE3 (NAME) = HASH`")]
    Shape,
    /// A tag of another algorithm.
    #[error("it is of {0}, not of BLAKE3")]
    Algorithm(String),
    /// A digest under [`DIGEST_BYTES_MIN`] bytes, or half a byte too long.
    #[error("the hash has {0} hexadecimal digits, and an even number from {min} up is needed",
            min = 2 * DIGEST_BYTES_MIN)]
    DigestLength(usize),
    /// Something in the place of the digest that is not hexadecimal.
    #[error("the hash is not hexadecimal")]
    DigestDigits,
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

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// `HASH  NAME`
    Plain,
    /// `BLAKE3 (NAME) = HASH`
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

fn unescape(escaped: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut name = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(&byte) = bytes.next() {
        name.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'\\') => b'\\',
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                _ => return Err(Malformed::Escape),
            },
            other => other,
        });
    }
    Ok(name)
}

/// What stands before and after the hexadecimal digits of a line, without its newline.
pub fn line_around(name: &[u8], style: Style) -> (Vec<u8>, Vec<u8>) {
    let escaped = escape(name);
    let (slash, name) = match &escaped {
        Cow::Owned(escaped) => (&b"\\"[..], &escaped[1..]),
        Cow::Borrowed(name) => (&b""[..], *name),
    };
    match style {
        Style::Plain => (slash.to_vec(), [b"  ", name].concat()),
        Style::Tag => ([slash, b"BLAKE3 (", name, b") = "].concat(), Vec::new()),
    }
}

/// The same for a line that ends with NUL: no name needs escapes there.
pub fn zero_line_around(name: &[u8], style: Style) -> (Vec<u8>, Vec<u8>) {
    match style {
        Style::Plain => (Vec::new(), [b"  ", name].concat()),
        Style::Tag => ([b"BLAKE3 (", name, b") = "].concat(), Vec::new()),
    }
}

/// Reads one line that ended with NUL: a name is what it is, without escapes and to its last byte.
///
/// # Errors
///
/// Why it is no entry.
pub fn parse_zero(line: &[u8]) -> Result<Option<Entry<'_>>, Malformed> {
    let line = line.strip_suffix(b"\0").unwrap_or(line);
    if line.len() > LINE_BYTES_MAX {
        return Err(Malformed::TooLong);
    }
    if line.is_empty() || line[0] == b'#' {
        return Ok(None);
    }
    let (digits, name) = split(line)?;
    entry(digits, Cow::Borrowed(name), Cow::Borrowed(name)).map(Some)
}

/// Reads one line, with or without its line ending.
///
/// `None` for a line that says nothing: blank, or a comment that starts with `#`.
///
/// # Errors
///
/// Why it is no entry.
pub fn parse(line: &[u8]) -> Result<Option<Entry<'_>>, Malformed> {
    if line.len() > LINE_BYTES_MAX {
        return Err(Malformed::TooLong);
    }
    let line = trim_line_end(line);
    if line.iter().all(|byte| matches!(byte, b' ' | b'\t')) || line[0] == b'#' {
        return Ok(None);
    }
    let (is_escaped, body) = match line.split_first() {
        Some((b'\\', body)) => (true, body),
        _ => (false, line),
    };
    let (digits, field) = split(body)?;
    check_digits(digits)?;
    let (name, listed) = match is_escaped {
        true => (Cow::Owned(unescape(field)?), Cow::Owned([b"\\", field].concat())),
        false => (Cow::Borrowed(field), Cow::Borrowed(field)),
    };
    entry(digits, name, listed).map(Some)
}

fn check_digits(digits: &[u8]) -> Result<(), Malformed> {
    match digits.len() < 2 * DIGEST_BYTES_MIN || !digits.len().is_multiple_of(2) {
        true => Err(Malformed::DigestLength(digits.len())),
        false => Ok(()),
    }
}

fn entry<'a>(
    digits: &[u8],
    name: Cow<'a, [u8]>,
    listed: Cow<'a, [u8]>,
) -> Result<Entry<'a>, Malformed> {
    check_digits(digits)?;
    let digest = hex::decode(digits).map_err(|_| Malformed::DigestDigits)?;
    if name.contains(&0) {
        return Err(Malformed::Nul);
    }
    if name.is_empty() {
        return Err(Malformed::NoName);
    }
    Ok(Entry { digest, name, listed })
}

/// Without the newline and the carriage returns before it. A name that ends with one is escaped.
fn trim_line_end(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
    &line[..end.map_or(0, |at| at + 1)]
}

/// The digits and the name of a line without its leading backslash.
fn split(body: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let digits = body.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    // `HASH  NAME`, and ` *` where GNU tools mark binary mode. The name may have anything in it, so
    // it is what is left.
    if let [b' ', b' ' | b'*', name @ ..] = &body[digits..]
        && digits > 0
    {
        return Ok((&body[..digits], name));
    }
    match split_tagged(body) {
        Some((b"BLAKE3", name, digits)) => Ok((digits, name)),
        Some((algorithm, ..)) => {
            Err(Malformed::Algorithm(String::from_utf8_lossy(algorithm).into_owned()))
        }
        None => Err(Malformed::Shape),
    }
}

/// `ALGORITHM (NAME) = DIGITS`, or `ALGORITHM(NAME)= DIGITS` as OpenSSL writes. The name may have
/// `) = ` in it, so it ends at the last one.
fn split_tagged(body: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let is_tag = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'/' | b'_');
    let (algorithm, rest) = body.split_at(body.iter().take_while(|b| is_tag(b)).count());
    if algorithm.is_empty() {
        return None;
    }
    let (rest, end) = match rest {
        [b' ', b'(', rest @ ..] => (rest, &b") = "[..]),
        [b'(', rest @ ..] if algorithm != b"BLAKE3" => (rest, &b")= "[..]),
        _ => return None,
    };
    let at = rest.windows(end.len()).rposition(|window| window == end)?;
    Some((algorithm, &rest[..at], &rest[at + end.len()..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: &str = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";

    fn name_of(line: &str) -> Result<Option<String>, Malformed> {
        let entry = parse(line.as_bytes())?;
        Ok(entry.map(|entry| String::from_utf8(entry.name.into_owned()).unwrap()))
    }

    #[test]
    fn lines_that_name_a_file() {
        let upper = HASH.to_uppercase();
        let short = &HASH[..32];
        let cases = [
            (format!("{HASH}  a"), "a"),
            (format!("{HASH}  a\n"), "a"),
            (format!("{HASH}  a\r\n"), "a"),
            (format!("{upper}  a"), "a"),
            (format!("{short}  a"), "a"),
            (format!("{HASH}{HASH}  a"), "a"),
            (format!("{HASH} *a"), "a"),
            (format!("{HASH}  *a"), "*a"),
            (format!("{HASH}   a "), " a "),
            (format!("{HASH}  a  b"), "a  b"),
            (format!("{HASH}  #a"), "#a"),
            (format!("{HASH}  a\\nb"), "a\\nb"),
            (format!("\\{HASH}  a\\nb\\\\\\r"), "a\nb\\\r"),
            (format!("BLAKE3 (a) = {HASH}"), "a"),
            (format!("BLAKE3 (a  b) = {upper}\r\n"), "a  b"),
            (format!("BLAKE3 (a) = b) = {HASH}"), "a) = b"),
            (format!("\\BLAKE3 (a\\n) = {HASH}"), "a\n"),
            (format!("BLAKE3 () = b) = {HASH}"), ") = b"),
        ];
        for (line, name) in cases {
            assert_eq!(name_of(&line), Ok(Some(name.to_owned())), "{line:?}");
        }
    }

    #[test]
    fn lines_that_say_nothing() {
        for line in ["", "\n", "\r\n", "  \t\n", "# comment", "#"] {
            assert_eq!(name_of(line), Ok(None), "{line:?}");
        }
    }

    #[test]
    fn lines_that_are_malformed() {
        use Malformed::*;
        let cases = [
            ("hello".to_owned(), Shape),
            (format!("{HASH} a"), Shape),
            (format!("{HASH}\ta"), Shape),
            (format!(" {HASH}  a"), Shape),
            (HASH.to_owned(), Shape),
            ("\\".to_owned(), Shape),
            (format!("BLAKE3(a)= {HASH}"), Shape),
            (format!("{}  a", &HASH[..30]), DigestLength(30)),
            (format!("{}  a", &HASH[..33]), DigestLength(33)),
            (format!("BLAKE3 (a) = {}", &HASH[..10]), DigestLength(10)),
            (format!("BLAKE3 (a) = {}x", &HASH[1..]), DigestDigits),
            (format!("\\{HASH}  a\\x"), Escape),
            (format!("\\{HASH}  a\\"), Escape),
            (format!("{HASH}  a\0b"), Nul),
            (format!("{HASH}  "), NoName),
            (format!("{HASH}  {}", "a".repeat(LINE_BYTES_MAX)), TooLong),
            (format!("BLAKE3 () = {HASH}"), NoName),
            (format!("SHA256 (a) = {HASH}"), Algorithm("SHA256".to_owned())),
            (format!("BLAKE2b-256 (a) = {HASH}"), Algorithm("BLAKE2b-256".to_owned())),
            (format!("SHA2-256(a)= {HASH}"), Algorithm("SHA2-256".to_owned())),
            (format!("blake3 (a) = {HASH}"), Algorithm("blake3".to_owned())),
        ];
        for (line, expected) in cases {
            assert_eq!(name_of(&line), Err(expected), "{line:?}");
        }
    }

    fn write(name: &[u8], digits: &str, style: Style, end: &str) -> Vec<u8> {
        let (before, after) = line_around(name, style);
        [&before, digits.as_bytes(), &after, end.as_bytes()].concat()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

        /// For any name without NUL, any length of digest and any line ending, what was written is
        /// what is read.
        #[test]
        fn write_then_parse_is_identity(
            name in name_strategy(),
            digest in prop::collection::vec(any::<u8>(), DIGEST_BYTES_MIN..80),
            style in prop_oneof![Just(Style::Plain), Just(Style::Tag)],
            end in prop_oneof![Just(""), Just("\n"), Just("\r\n")],
        ) {
            let line = write(&name, &hex::encode(&digest), style, end);
            prop_assert!(!line[..line.len() - end.len()].contains(&b'\n'));
            let entry = parse(&line).unwrap().unwrap();
            prop_assert_eq!(&*entry.name, &name[..]);
            prop_assert_eq!(entry.digest, digest);
            prop_assert_eq!(entry.listed, escape(&name));
        }

        /// No line makes it panic, and a line without an error names a file that can exist.
        #[test]
        fn any_line_is_an_entry_or_an_error(line in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some(entry)) = parse(&line) {
                prop_assert!(!entry.name.is_empty() && !entry.name.contains(&0));
                prop_assert!(entry.digest.len() >= DIGEST_BYTES_MIN);
            }
        }
    }

    /// Names of every byte but NUL, with what matters to the format more often than chance has it.
    fn name_strategy() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            prop::collection::vec(1_u8..=255, 1..8),
            prop::sample::select(vec![
                "\\", "\n", "\r", "  ", ") = ", "BLAKE3 (", "*", "#", " ", HASH
            ])
            .prop_map(|piece| piece.as_bytes().to_vec()),
        ];
        prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
    }
}
