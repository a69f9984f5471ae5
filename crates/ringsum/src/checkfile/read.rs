//! Reading the lines of a list, whichever tool wrote it.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::digits;
use super::tags::{Tag, tag};
use super::write::XXH3_PREFIX;
use super::{Entry, Expected, LINE_BYTES_MAX, Malformed};
use crate::Algorithm;

/// Reads the lines of one list, one after another: what `hashdeep` writes says at its start what is in
/// its columns.
#[derive(Debug, Clone, Default)]
pub struct Reader {
    /// Lines end with NUL, and nothing in a name is escaped.
    zero: bool,
    /// Those before the name, once a line has said them.
    columns: Vec<Column>,
    /// What GNU's tools read besides, if it is to be read.
    gnu: Option<Gnu>,
}

/// What GNU's tools of one algorithm read besides: blanks before a line, one blank after the digits, and more ways to
/// write a tag.
#[derive(Debug, Clone, Copy)]
struct Gnu {
    /// The fewest and the most bytes that a digest has.
    bytes: (usize, usize),
    /// How the first plain line was written: a list has one way.
    gap: Option<Gap>,
}

/// What is between digits and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    /// A space or a tab; what follows is the name, spaces included.
    Blank,
    /// That, and a space or an asterisk.
    Mode,
}

/// What is in a column of `hashdeep`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Column {
    Size,
    Digest(Algorithm),
    /// Of an algorithm that is not known here: its name.
    Other(String),
}

/// A line without its ends and escapes.
struct Parts<'a> {
    digits: Digits<'a>,
    name: &'a [u8],
}

/// The digest of a line, as far as it was looked at.
enum Digits<'a> {
    /// Of the algorithm that the line says, whatever they are.
    Tagged(Tag, &'a [u8]),
    /// Hexadecimal, of an algorithm that the line does not say.
    Hex(&'a [u8]),
    /// What was base64, of such an algorithm.
    Base64(Vec<u8>),
}

impl Reader {
    /// For lines that end with a newline.
    pub fn new() -> Reader {
        Reader::default()
    }

    /// For lines that end with NUL: a name is what it is, without escapes and to its last byte.
    pub fn zero() -> Reader {
        Reader { zero: true, ..Reader::default() }
    }

    /// For lists of GNU's tools, read as those read them: all that is malformed only in a stricter reading would not be
    /// checked, where malformed lines do not fail. `bytes`: how long a digest may be.
    pub fn gnu(bytes: RangeInclusive<usize>) -> Reader {
        let gnu = Gnu { bytes: bytes.into_inner(), gap: None };
        Reader { gnu: Some(gnu), ..Reader::default() }
    }

    /// Whether lines end with NUL.
    pub fn is_zero(&self) -> bool {
        self.zero
    }

    /// Reads the next line, with or without its end.
    ///
    /// `None` for a line that names no file: blank, a comment that starts with `#`, or what stands at the start of a
    /// list of `hashdeep`.
    ///
    /// # Errors
    ///
    /// Why it is no entry.
    pub fn line<'a>(&mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, Malformed> {
        if line.len() > LINE_BYTES_MAX {
            return Err(Malformed::TooLong);
        }
        let line = match self.zero {
            true => self.skip_start(line.strip_suffix(b"\0").unwrap_or(line))?,
            false => trim_line_end(line),
        };
        let is_blank = match self.zero {
            true => line.is_empty(),
            false => line.iter().all(|byte| matches!(byte, b' ' | b'\t')),
        };
        if is_blank || line[0] == b'#' {
            return Ok(None);
        }
        if line.starts_with(START) {
            return self.start(line).map(|()| None);
        }
        if !self.columns.is_empty() && is_row(line) {
            return row(&self.columns, line).map(Some);
        }
        let line = if self.gnu.is_some() { trim_blanks(line) } else { line };
        let (is_escaped, body) = match line.split_first() {
            Some((b'\\', body)) if !self.zero => (true, body),
            _ => (false, line),
        };
        let parts = match self.gnu.as_mut().map(|gnu| gnu.split(body)).transpose()?.flatten() {
            Some(parts) => parts,
            None => split(body)?,
        };
        entry(parts, is_escaped).map(Some)
    }

    /// Takes what a list of `hashdeep -0` starts with, whose lines end with newlines, from before its first entry.
    fn skip_start<'a>(&mut self, mut line: &'a [u8]) -> Result<&'a [u8], Malformed> {
        if !line.starts_with(START) {
            return Ok(line);
        }
        while line.starts_with(START) || line.starts_with(b"##") {
            let end = line.iter().position(|byte| *byte == b'\n');
            let (first, rest) = line.split_at(end.map_or(line.len(), |at| at + 1));
            if first.starts_with(START) {
                self.start(trim_line_end(first))?;
            }
            line = rest;
        }
        Ok(line)
    }

    /// `%%%% HASHDEEP-1.0`, or `%%%% size,md5,sha256,filename`.
    fn start(&mut self, line: &[u8]) -> Result<(), Malformed> {
        self.columns.clear();
        let text = std::str::from_utf8(&line[START.len()..]).map_err(|_| Malformed::Header)?;
        if text == "HASHDEEP-1.0" {
            return Ok(());
        }
        let names = text.strip_suffix(",filename").ok_or(Malformed::Header)?;
        self.columns = names.split(',').map(column).collect();
        Ok(())
    }
}

impl Gnu {
    /// The parts of a line without its leading backslash, if it has one of the shapes that only GNU's tools read, or one
    /// that these read otherwise.
    fn split<'a>(&mut self, body: &'a [u8]) -> Result<Option<Parts<'a>>, Malformed> {
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
        Ok(Some(Parts { digits: Digits::Hex(digits), name }))
    }
}

/// `TAG (NAME) = DIGITS` with or without the space before the parenthesis, and any blanks around `=`.
fn split_tagged_loosely(body: &[u8]) -> Option<Parts<'_>> {
    let open = body.iter().position(|byte| *byte == b'(')?;
    let word = body[..open].strip_suffix(b" ").unwrap_or(&body[..open]);
    let close = body.iter().rposition(|byte| *byte == b')').filter(|close| *close > open)?;
    let digits = trim_blanks(trim_blanks(&body[close + 1..]).strip_prefix(b"=")?);
    Some(Parts { digits: Digits::Tagged(tag(word)?, digits), name: &body[open + 1..close] })
}

fn trim_blanks(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t'));
    &text[start.unwrap_or(text.len())..]
}

/// What the lines at the start of a list of `hashdeep` begin with, other than comments.
const START: &[u8] = b"%%%% ";

fn column(name: &str) -> Column {
    match name {
        "size" => Column::Size,
        "md5" => Column::Digest(Algorithm::Md5),
        "sha1" => Column::Digest(Algorithm::Sha1),
        "sha256" => Column::Digest(Algorithm::Sha256),
        other => Column::Other(other.to_owned()),
    }
}

/// Whether it begins as lines of `hashdeep` do, and no other's: with a number and a comma.
fn is_row(line: &[u8]) -> bool {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && line.get(digits) == Some(&b',')
}

/// `SIZE,DIGEST,DIGEST,NAME`, where the name may have commas in it.
fn row<'a>(columns: &[Column], mut line: &'a [u8]) -> Result<Entry<'a>, Malformed> {
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
                expected.push(Expected { algorithm: Some(*algorithm), digest });
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
    let (name, listed) = (Cow::Borrowed(line), Cow::Borrowed(line));
    Ok(Entry { first, more: expected.collect(), size, name, listed })
}

fn entry(parts: Parts<'_>, is_escaped: bool) -> Result<Entry<'_>, Malformed> {
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
    let first = Expected { algorithm, digest };
    Ok(Entry { first, more: Vec::new(), size: None, name, listed })
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

/// Without the newline and the carriage returns before it. A name that ends with one is escaped.
fn trim_line_end(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
    &line[..end.map_or(0, |at| at + 1)]
}

/// The parts of a line without its leading backslash.
fn split(body: &[u8]) -> Result<Parts<'_>, Malformed> {
    if let Some((digits, name)) = split_plain(body, digits::hex_run(body)) {
        return Ok(Parts { digits: Digits::Hex(digits), name });
    }
    if let Some(rest) = body.strip_prefix(XXH3_PREFIX)
        && let Some((digits, name)) = split_plain(rest, digits::hex_run(rest))
    {
        let tag = Tag { algorithm: Algorithm::Xxh3, little_endian: false };
        return Ok(Parts { digits: Digits::Tagged(tag, digits), name });
    }
    if let Some((word, name, digits)) = split_tagged(body) {
        let unsupported = || Malformed::Unsupported(String::from_utf8_lossy(word).into_owned());
        let tag = tag(word).ok_or_else(unsupported)?;
        return Ok(Parts { digits: Digits::Tagged(tag, digits), name });
    }
    if let Some((digits, name)) = split_plain(body, digits::base64_run(body))
        && let Some(digest) = digits::unnamed_base64(digits)
    {
        return Ok(Parts { digits: Digits::Base64(digest), name });
    }
    Err(why_no_shape(body))
}

/// `HASH  NAME`, and ` *` where GNU tools mark binary mode. The name may have anything in it, so it is
/// what is left.
fn split_plain(body: &[u8], digits: usize) -> Option<(&[u8], &[u8])> {
    match &body[digits..] {
        [b' ', b' ' | b'*', name @ ..] if digits > 0 => Some((&body[..digits], name)),
        _ => None,
    }
}

/// `TAG (NAME) = DIGITS`, with spaces after a short tag as of RHash; or `TAG(NAME)= DIGITS` as OpenSSL writes. The
/// name may have `) = ` in it, so it ends at the last one.
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

/// What a line is that has none of the shapes that are read.
fn why_no_shape(body: &[u8]) -> Malformed {
    let digits = digits::hex_run(body);
    match &body[digits..] {
        // Forty digits are SHA-1, the shortest of shasum. `?` is of its versions before 6.
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
