//! Reading the lines of a checksum file, whichever tool wrote it.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::digits;
use super::resolve::Hints;
use super::tags::{Tag, tag};
use super::write::{XXH3_PREFIX, escape};
use super::{LINE_BYTES_MAX, Line, LineEnd, Malformed, ParsedDigest, ParsedLine};
use crate::Algorithm;

/// A reader of the lines of one checksum file. It keeps state between lines: a `hashdeep` file
/// begins with the names of its columns.
#[derive(Debug, Clone, Default)]
pub struct Reader {
    hints: Hints,
    /// Line ending of the file.
    pub end: LineEnd,
    /// The columns before the name, once a header has listed them.
    columns: Vec<Column>,
    /// Whether the lines of that header end with a carriage return, which names then do not.
    has_carriage_returns: bool,
    /// Accept the further line formats of GNU's tools.
    gnu: Option<Gnu>,
}

/// Further line formats accepted by GNU's tools for one algorithm: blanks before a line, one blank
/// after the digits, and more ways to write a tag.
#[derive(Debug, Clone, Copy)]
struct Gnu {
    /// Least and greatest length of a digest in bytes.
    bytes: (usize, usize),
    /// The gap of the first untagged line; all others must have the same.
    gap: Option<Gap>,
}

/// The gap between digits and name. The first untagged line determines the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    /// A space or a tab; everything after it is the name, spaces included.
    Blank,
    /// A space or a tab, then a space or an asterisk.
    Mode,
}

/// A column of `hashdeep`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Column {
    Size,
    Digest(Algorithm),
    /// The name of an unsupported algorithm.
    Other(String),
}

/// A line without its end and escapes.
struct LineParts<'a> {
    digits: Digits<'a>,
    name: &'a [u8],
}

/// The digest of a line, partly parsed.
enum Digits<'a> {
    /// With a tag; not checked.
    Tagged(Tag, &'a [u8]),
    /// Hexadecimal, without a tag.
    Hex(&'a [u8]),
    /// Decoded from base64, without a tag.
    Base64(Vec<u8>),
}

impl Reader {
    /// Creates a reader. `requested`: the algorithms that digests without a tag may have; empty if
    /// unknown. `accepted`: those that tags may name, as for `sha256sum --check`; empty for all.
    /// BLAKE2b stands for any of its lengths. `path`: that of the checksum file, whose name may
    /// tell the algorithm. `end`: the line ending.
    pub fn new(
        requested: &[Algorithm],
        accepted: &[Algorithm],
        path: Option<&[u8]>,
        end: LineEnd,
    ) -> Reader {
        Reader { hints: Hints::new(requested, accepted, path), end, ..Reader::default() }
    }

    /// Accepts all line formats that GNU's tools accept for one algorithm. A stricter reader would
    /// leave some lines unchecked, and silently so unless malformed lines are errors. `bytes`: the
    /// range of digest lengths.
    #[must_use]
    pub fn gnu(self, bytes: RangeInclusive<usize>) -> Reader {
        Reader { gnu: Some(Gnu { bytes: bytes.into_inner(), gap: None }), ..self }
    }

    /// Parses the next line, with or without its line ending.
    ///
    /// Returns `None` for a line that names no file: a blank line, a comment that starts with `#`,
    /// or the header of `hashdeep`.
    ///
    /// # Errors
    ///
    /// If the line is malformed.
    pub fn line(&mut self, line: &[u8]) -> Result<Option<Line>, Malformed> {
        match self.parse(line)? {
            Some(parsed) => parsed.resolve(&self.hints).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn parse<'a>(
        &mut self,
        line: &'a [u8],
    ) -> Result<Option<ParsedLine<'a>>, Malformed> {
        if line.len() > LINE_BYTES_MAX {
            return Err(Malformed::TooLong);
        }
        let is_zero = self.end == LineEnd::Nul;
        let whole = line.strip_suffix(&[self.end as u8]).unwrap_or(line);
        let line = match is_zero {
            true => self.skip_header(whole)?,
            false => trim_line_end(whole),
        };
        let is_blank = match is_zero {
            true => line.is_empty(),
            false => line.iter().all(|byte| matches!(byte, b' ' | b'\t')),
        };
        if is_blank || line[0] == b'#' {
            return Ok(None);
        }
        if line.starts_with(HEADER) {
            self.has_carriage_returns = line.len() < whole.len();
            return self.header(line).map(|()| None);
        }
        if !self.columns.is_empty() && is_row(line) {
            let keeps_all = !is_zero && !self.has_carriage_returns;
            return row(&self.columns, if keeps_all { whole } else { line }).map(Some);
        }
        let line = if self.gnu.is_some() { trim_blanks(line) } else { line };
        let (is_escaped, body) = match line.split_first() {
            Some((b'\\', body)) if !is_zero => (true, body),
            _ => (false, line),
        };
        let parts = match self.gnu.as_mut().map(|gnu| gnu.split(body)).transpose()?.flatten() {
            Some(parts) => parts,
            None => split(body)?,
        };
        parsed_line(parts, is_escaped).map(Some)
    }

    /// Skips the header of `hashdeep -0`, whose lines end with newlines, before its first file.
    fn skip_header<'a>(&mut self, mut line: &'a [u8]) -> Result<&'a [u8], Malformed> {
        if !line.starts_with(HEADER) {
            return Ok(line);
        }
        while line.starts_with(HEADER) || line.starts_with(b"##") {
            let end = line.iter().position(|byte| *byte == b'\n');
            let (first, rest) = line.split_at(end.map_or(line.len(), |at| at + 1));
            if first.starts_with(HEADER) {
                self.header(trim_line_end(first))?;
            }
            line = rest;
        }
        Ok(line)
    }

    /// `%%%% HASHDEEP-1.0`, or `%%%% size,md5,sha256,filename`.
    fn header(&mut self, line: &[u8]) -> Result<(), Malformed> {
        self.columns.clear();
        let text = std::str::from_utf8(&line[HEADER.len()..]).map_err(|_| Malformed::Header)?;
        if text == "HASHDEEP-1.0" {
            return Ok(());
        }
        let names = text.strip_suffix(",filename").ok_or(Malformed::Header)?;
        self.columns = names.split(',').map(column).collect();
        Ok(())
    }
}

impl Gnu {
    /// Splits a line without its leading backslash, if only GNU's tools accept its format, or if
    /// they parse it differently.
    fn split<'a>(&mut self, body: &'a [u8]) -> Result<Option<LineParts<'a>>, Malformed> {
        let run = digits::hex_run(body);
        let (least, most) = self.bytes;
        let fits = run.is_multiple_of(2) && (least..=most).contains(&(run / 2));
        let (digits, after) = body.split_at(run);
        let [b' ' | b'\t', rest @ ..] = after else {
            return Ok(split_tagged_loosely(body));
        };
        if !fits {
            return Ok(None);
        }
        let found = match rest {
            [b' ' | b'*', _, ..] => Gap::Mode,
            _ => Gap::Blank,
        };
        let name = match (*self.gap.get_or_insert(found), found) {
            (Gap::Blank, _) => rest,
            (Gap::Mode, Gap::Mode) => &rest[1..],
            (Gap::Mode, Gap::Blank) => return Err(Malformed::Shape),
        };
        Ok(Some(LineParts { digits: Digits::Hex(digits), name }))
    }
}

/// `TAG (NAME) = DIGITS`, the space before the parenthesis optional, with any blanks around `=`.
fn split_tagged_loosely(body: &[u8]) -> Option<LineParts<'_>> {
    let open = body.iter().position(|byte| *byte == b'(')?;
    let word = body[..open].strip_suffix(b" ").unwrap_or(&body[..open]);
    let close = body.iter().rposition(|byte| *byte == b')').filter(|close| *close > open)?;
    let digits = trim_blanks(trim_blanks(&body[close + 1..]).strip_prefix(b"=")?);
    Some(LineParts { digits: Digits::Tagged(tag(word)?, digits), name: &body[open + 1..close] })
}

fn trim_blanks(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t'));
    &text[start.unwrap_or(text.len())..]
}

/// Start of the lines in the header of `hashdeep`, other than comments.
const HEADER: &[u8] = b"%%%% ";

fn column(name: &str) -> Column {
    match name {
        "size" => Column::Size,
        "md5" => Column::Digest(Algorithm::Md5),
        "sha1" => Column::Digest(Algorithm::Sha1),
        "sha256" => Column::Digest(Algorithm::Sha256),
        other => Column::Other(other.to_owned()),
    }
}

/// Whether a line starts with a number and a comma, as only those of `hashdeep` do.
fn is_row(line: &[u8]) -> bool {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && line.get(digits) == Some(&b',')
}

/// `SIZE,DIGEST,DIGEST,NAME`; the name may contain commas, and newlines.
fn row<'a>(columns: &[Column], mut line: &'a [u8]) -> Result<ParsedLine<'a>, Malformed> {
    let (mut size, mut expected) = (None, Vec::new());
    for column in columns {
        let comma = line.iter().position(|byte| *byte == b',').ok_or(Malformed::Shape)?;
        let (field, rest) = (&line[..comma], &line[comma + 1..]);
        match column {
            Column::Size => {
                let number = std::str::from_utf8(field).ok().and_then(|field| field.parse().ok());
                size = Some(number.ok_or(Malformed::Shape)?);
            }
            Column::Digest(algorithm) => {
                let digest = digits::named(field, *algorithm)?;
                expected.push(ParsedDigest { algorithm: Some(*algorithm), digest });
            }
            Column::Other(_) => {}
        }
        line = rest;
    }
    check_name(line)?;
    let mut expected = expected.into_iter();
    let Some(first) = expected.next() else {
        let others = columns.iter().filter_map(|column| match column {
            Column::Other(name) => Some(name.as_str()),
            _ => None,
        });
        return Err(Malformed::Unsupported(others.collect::<Vec<_>>().join(", ")));
    };
    // (hashdeep escapes nothing; a verdict stays on one line.)
    let is_long = line.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
    let listed = if is_long { escape(line) } else { Cow::Borrowed(line) };
    Ok(ParsedLine { first, more: expected.collect(), size, name: Cow::Borrowed(line), listed })
}

fn parsed_line(parts: LineParts<'_>, is_escaped: bool) -> Result<ParsedLine<'_>, Malformed> {
    let (algorithm, digest) = match parts.digits {
        Digits::Tagged(Tag { algorithm, little_endian }, digits) => {
            let mut digest = digits::named(digits, algorithm)?;
            if little_endian {
                digest.reverse();
            }
            (Some(algorithm), digest)
        }
        Digits::Hex(digits) => (None, digits::hexadecimal(digits)?),
        Digits::Base64(digest) => (None, digest),
    };
    let field = parts.name;
    let (name, listed) = match is_escaped {
        true => (Cow::Owned(unescape(field)?), Cow::Owned([b"\\", field].concat())),
        false => (Cow::Borrowed(field), Cow::Borrowed(field)),
    };
    check_name(&name)?;
    let first = ParsedDigest { algorithm, digest };
    Ok(ParsedLine { first, more: Vec::new(), size: None, name, listed })
}

fn check_name(name: &[u8]) -> Result<(), Malformed> {
    match (name.contains(&0), name.is_empty()) {
        (true, _) => Err(Malformed::Nul),
        (_, true) => Err(Malformed::NoName),
        _ => Ok(()),
    }
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

/// Strips the newline and the carriage returns before it. (A name that ends with one is escaped.)
fn trim_line_end(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
    &line[..end.map_or(0, |at| at + 1)]
}

/// Splits a line without its leading backslash.
fn split(body: &[u8]) -> Result<LineParts<'_>, Malformed> {
    if let Some((digits, name)) = split_plain(body, digits::hex_run(body)) {
        return Ok(LineParts { digits: Digits::Hex(digits), name });
    }
    if let Some(rest) = body.strip_prefix(XXH3_PREFIX)
        && let Some((digits, name)) = split_plain(rest, digits::hex_run(rest))
    {
        let tag = Tag { algorithm: Algorithm::Xxh3, little_endian: false };
        return Ok(LineParts { digits: Digits::Tagged(tag, digits), name });
    }
    if let Some((word, name, digits)) = split_tagged(body) {
        let unsupported = || Malformed::Unsupported(String::from_utf8_lossy(word).into_owned());
        let tag = tag(word).ok_or_else(unsupported)?;
        return Ok(LineParts { digits: Digits::Tagged(tag, digits), name });
    }
    if let Some((digits, name)) = split_plain(body, digits::base64_run(body))
        && let Some(digest) = digits::unnamed_base64(digits)
    {
        return Ok(LineParts { digits: Digits::Base64(digest), name });
    }
    Err(why_no_shape(body))
}

/// `HASH  NAME`, or `HASH *NAME` in GNU's binary mode. The name is the rest, whatever it contains.
fn split_plain(body: &[u8], digits: usize) -> Option<(&[u8], &[u8])> {
    match &body[digits..] {
        [b' ', b' ' | b'*', name @ ..] if digits > 0 => Some((&body[..digits], name)),
        _ => None,
    }
}

/// `TAG (NAME) = DIGITS`, with more spaces after a short tag (RHash); or `TAG(NAME)= DIGITS`
/// (OpenSSL). The name may contain `) = `, so it ends at the last one.
fn split_tagged(body: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let is_tag = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'/' | b'_');
    let (word, rest) = body.split_at(body.iter().take_while(|b| is_tag(b)).count());
    let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
    let (rest, end) = match &rest[spaces..] {
        [b'(', rest @ ..] if spaces == 1 || (spaces > 1 && word.len() + spaces == 6) => {
            (rest, &b") = "[..])
        }
        [b'(', rest @ ..] if spaces == 0 && word != b"BLAKE3" => (rest, &b")= "[..]),
        _ => return None,
    };
    if word.is_empty() {
        return None;
    }
    let mut before = rest.len();
    loop {
        before = rest[..before].iter().rposition(|byte| *byte == b')')?;
        if let Some(digits) = rest[before..].strip_prefix(end) {
            return Some((word, &rest[..before], digits));
        }
    }
}

/// Returns why a line has none of the known formats.
fn why_no_shape(body: &[u8]) -> Malformed {
    let digits = digits::hex_run(body);
    match &body[digits..] {
        // 40 digits are SHA-1, the shortest digest of shasum. `?` is from versions before 6.
        [b' ', mark @ (b'U' | b'^' | b'?'), _, ..] if digits >= 40 => {
            Malformed::Mode((*mark).into())
        }
        rest if is_cksum(&body[..digits], rest) => Malformed::Cksum,
        _ => Malformed::Shape,
    }
}

/// `NUMBER NUMBER NAME`
fn is_cksum(first: &[u8], rest: &[u8]) -> bool {
    let is_number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let mut words = rest.split(|byte| *byte == b' ').skip(1);
    is_number(first) && words.next().is_some_and(is_number) && words.next().is_some()
}
