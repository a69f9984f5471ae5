//! Lists: the lines of checksum files, and names of files, from any reader.

use std::ffi::OsString;
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ringsum::checkfile::{self, Expected, LINE_BYTES_MAX, LineEnd, Malformed, Reader};
use ringsum::files::Hashed;
use ringsum::{Algorithm, Algorithms, Digest};

/// A UTF-8 byte order mark, which some editors write at the start of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A line of a checksum file.
pub(crate) enum CheckLine {
    /// A line that names a file.
    File(ListedFile),
    Malformed {
        list: Vec<u8>,
        place: usize,
        number: u64,
        why: String,
    },
    /// The checksum file could not be opened, or not read to its end.
    BadList {
        list: Vec<u8>,
        why: String,
    },
    /// The end of a checksum file: its position among all, and the number of files that it names.
    ListEnd {
        list: Vec<u8>,
        place: usize,
        files: u64,
    },
}

impl CheckLine {
    /// Memory besides itself, in bytes; for a file, including a second copy of its name as a path.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            CheckLine::File(file) => {
                file.expected().map(|expected| expected.digest.len()).sum::<usize>()
                    + 2 * file.line.name.len()
                    + file.line.listed.len()
            }
            CheckLine::Malformed { list, why, .. } | CheckLine::BadList { list, why } => {
                list.len() + why.len()
            }
            CheckLine::ListEnd { list, .. } => list.len(),
        }
    }
}

/// A file named in a checksum file.
#[derive(Debug, Clone)]
pub(crate) struct ListedFile {
    /// The position of its checksum file among all.
    pub(crate) place: usize,
    /// The number of its line there, from 1 on.
    pub(crate) number: u64,
    pub(crate) line: checkfile::Line,
}

impl ListedFile {
    /// Returns the expected digests: at least one.
    pub(crate) fn expected(&self) -> impl Iterator<Item = &Expected> {
        std::iter::once(&self.line.first).chain(&self.line.more)
    }

    /// Returns the algorithms of the expected digests.
    pub(crate) fn algorithms(&self) -> Algorithms {
        let mut algorithms = Algorithms::from(self.line.first.algorithm);
        algorithms.extend(self.line.more.iter().map(|expected| expected.algorithm));
        algorithms
    }

    /// Whether the comparison needs more of BLAKE3's output than the first 32 bytes.
    pub(crate) fn needs_extended_output(&self, seek: u64) -> bool {
        self.expected().any(|expected| {
            let end = seek.saturating_add(expected.digest.len() as u64);
            expected.algorithm == Algorithm::Blake3 && end > Algorithm::Blake3.bytes() as u64
        })
    }

    /// Whether a file has all of the expected digests, and the expected length.
    pub(crate) fn matches(&self, hashed: &Hashed, seek: u64) -> bool {
        let len = self.line.size.zip(hashed.fingerprint.as_ref());
        len.is_none_or(|(size, fingerprint)| size == fingerprint.len)
            && self.expected().all(|expected| {
                let digest = digest_of(hashed, expected.algorithm);
                digest.is_some_and(|digest| digest.matches(seek, &expected.digest))
            })
    }
}

/// Returns the digest of one algorithm.
pub(crate) fn digest_of(hashed: &Hashed, algorithm: Algorithm) -> Option<&Digest> {
    hashed.digests.iter().find(|digest| digest.algorithm() == algorithm)
}

/// Where in a file of `hashdeep` a reader is, whose names and command line may hold newlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hashdeep {
    /// The file has no header.
    No,
    /// After a header.
    Header,
    /// Within the command line that the header quotes.
    CommandLine,
}

/// Whether a line of `hashdeep` names a file: only those start with a number and a comma.
fn is_row(line: &[u8]) -> bool {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && line.get(digits) == Some(&b',')
}

/// An iterator over the lines of a checksum file, and its end.
pub(crate) struct CheckLines<R> {
    place: usize,
    list: Vec<u8>,
    input: R,
    format: Reader,
    line: Vec<u8>,
    /// A line that was read ahead; empty if there is none.
    ahead: Vec<u8>,
    hashdeep: Hashdeep,
    /// Whether digests without a tag are in reverse order.
    is_little_endian: bool,
    number: u64,
    /// Lines of the last name after its first one.
    continued: u64,
    files: u64,
    has_ended: bool,
}

impl<R: BufRead> CheckLines<R> {
    pub(crate) fn new(place: usize, list: &Path, input: R, format: Reader) -> CheckLines<R> {
        CheckLines {
            place,
            list: list.as_os_str().as_bytes().to_vec(),
            input,
            format,
            line: Vec::new(),
            ahead: Vec::new(),
            hashdeep: Hashdeep::No,
            is_little_endian: false,
            number: 0,
            continued: 0,
            files: 0,
            has_ended: false,
        }
    }

    /// Reads digests without a tag with their bytes in reverse order.
    pub(crate) fn little_endian(self, is_little_endian: bool) -> CheckLines<R> {
        CheckLines { is_little_endian, ..self }
    }

    /// Reads and counts a line. Returns false at the end.
    fn read(&mut self) -> io::Result<bool> {
        self.line.clear();
        std::mem::swap(&mut self.line, &mut self.ahead);
        if self.line.is_empty() && !read_line(&mut self.input, self.format.end, &mut self.line)? {
            return Ok(false);
        }
        self.number += 1 + std::mem::take(&mut self.continued);
        let is_lines = self.format.end == LineEnd::Newline;
        if is_lines && self.hashdeep != Hashdeep::No && is_row(&self.line) {
            self.hashdeep = Hashdeep::Header;
            self.read_rest_of_name()?;
        }
        Ok(true)
    }

    /// Appends the lines after a row of `hashdeep` that nothing but its name explains.
    fn read_rest_of_name(&mut self) -> io::Result<()> {
        while self.line.len() <= LINE_BYTES_MAX
            && read_line(&mut self.input, self.format.end, &mut self.ahead)?
        {
            let has_shape =
                || !matches!(self.format.clone().line(&self.ahead), Err(Malformed::Shape));
            if is_row(&self.ahead) || has_shape() {
                break;
            }
            self.line.append(&mut self.ahead);
            self.continued += 1;
        }
        Ok(())
    }

    fn parse(&mut self) -> Result<Option<ListedFile>, Malformed> {
        let line = &self.line[..];
        let is_first = self.number == 1;
        let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| is_first).unwrap_or(line);
        let is_in_command = self.hashdeep == Hashdeep::CommandLine;
        match line {
            _ if self.format.end == LineEnd::Nul => {}
            [b'%', b'%', b'%', b'%', b' ', ..] => self.hashdeep = Hashdeep::Header,
            [b'#', b'#', b' ', b'#' | b'$' | b'>', ..] if self.hashdeep == Hashdeep::Header => {
                self.hashdeep = Hashdeep::CommandLine;
            }
            [b'#', b'#', b' ', b'\r' | b'\n', ..] if is_in_command => {
                self.hashdeep = Hashdeep::Header;
            }
            _ => {}
        }
        let mut parsed = match self.format.line(line) {
            Err(Malformed::Shape) if is_in_command => return Ok(None),
            parsed => parsed?,
        };
        if let Some(parsed) = parsed.as_mut().filter(|_| self.is_little_endian) {
            let line = line.trim_ascii_start();
            let line = line.strip_prefix(b"\\").unwrap_or(line);
            // (Tags start with an X, which is no digit.)
            if line.starts_with(b"XXH3_") || line.first().is_some_and(u8::is_ascii_hexdigit) {
                parsed.first.digest.reverse();
            }
        }
        let (place, number) = (self.place, self.number);
        Ok(parsed.map(|line| ListedFile { place, number, line }))
    }
}

/// Reads a line, with its end, up to one byte more than the maximum, to notice one that is too
/// long; the rest of it is skipped. Returns false at the end.
fn read_line(input: &mut impl BufRead, end: LineEnd, line: &mut Vec<u8>) -> io::Result<bool> {
    let end = end as u8;
    line.clear();
    if input.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(end, line)? == 0 {
        return Ok(false);
    }
    if line.len() > LINE_BYTES_MAX && line.last() != Some(&end) {
        input.skip_until(end)?;
    }
    Ok(true)
}

impl<R: BufRead> Iterator for CheckLines<R> {
    type Item = CheckLine;

    fn next(&mut self) -> Option<CheckLine> {
        while !self.has_ended {
            match self.read() {
                Ok(true) => {}
                ended => {
                    self.has_ended = true;
                    let (list, place) = (self.list.clone(), self.place);
                    return Some(match ended {
                        Ok(_) => CheckLine::ListEnd { list, place, files: self.files },
                        Err(error) => CheckLine::BadList { list, why: error.to_string() },
                    });
                }
            }
            match self.parse() {
                Ok(None) => {}
                Ok(Some(file)) => {
                    self.files += 1;
                    return Some(CheckLine::File(file));
                }
                Err(why) => {
                    let (list, place) = (self.list.clone(), self.place);
                    let (number, why) = (self.number, why.to_string());
                    return Some(CheckLine::Malformed { list, place, number, why });
                }
            }
        }
        None
    }
}

/// Returns why a name in a list may not be found although it is in the list, if the list looks
/// wrong. `number`: that of its line.
pub(crate) fn hint(name: &[u8], number: u64) -> &'static str {
    if name.contains(&0) {
        "; the name contains a NUL: use -0 if names end with NUL"
    } else if number == 1 && name.starts_with(BYTE_ORDER_MARK) {
        "; the list starts with a byte order mark, which counts as part of this name: remove it"
    } else if name.ends_with(b"\r") {
        "; the name ends with a carriage return: convert the list to lines that end with newline"
    } else {
        ""
    }
}

/// Longest name in a list, in bytes, so that a list without line endings does not exhaust memory.
const NAME_BYTES_MAX: u64 = 1 << 20;

/// A name in a list of files, and the number of its line.
pub(crate) type ListedName = (PathBuf, u64);

/// Returns the names in a list of files. `end`: the byte after each name.
pub(crate) fn names(
    mut input: impl BufRead,
    end: u8,
) -> impl Iterator<Item = io::Result<ListedName>> {
    let mut number = 0;
    let mut next = move || loop {
        let mut name = Vec::new();
        let read = input.by_ref().take(NAME_BYTES_MAX).read_until(end, &mut name)?;
        let has_end = name.last() == Some(&end);
        number += 1;
        if read as u64 == NAME_BYTES_MAX && !has_end {
            return Err(io::Error::other("a name is longer than 1 MiB"));
        }
        if has_end {
            name.pop();
        }
        // (A blank line names no file.)
        if !name.is_empty() || read == 0 {
            return Ok((read > 0).then(|| (PathBuf::from(OsString::from_vec(name)), number)));
        }
    };
    let mut has_ended = false;
    std::iter::from_fn(move || {
        let name = if has_ended { None } else { next().transpose() };
        // (An error ends them, too.)
        has_ended = !matches!(name, Some(Ok(_)));
        name
    })
}
