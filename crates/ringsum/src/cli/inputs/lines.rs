//! Lists: the lines of checksum files, and names of files, from any reader.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ringsum::checkfile::{self, Expected, Hints, LINE_BYTES_MAX, LineEnd, Malformed, Reader};
use ringsum::files::Hashed;
use ringsum::{Algorithm, Algorithms, Digest};

use crate::cli::args::Args;
use crate::cli::open::Patient;
use crate::cli::session::Session;

/// A UTF-8 byte order mark, which some editors write at the start of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns a reader for the lines of a checksum file.
pub(crate) fn reader_of(args: &Args, list: &Path) -> Reader {
    if let Some(applet) = args.applet {
        return applet.reader();
    }
    let name = Some(list.as_os_str().as_bytes());
    let hints = match &*args.algorithm {
        [] => Hints::new(&[], &[], name),
        _ => Hints::new(&args.algorithms(), &[], name),
    };
    Reader::new(hints, if args.zero { LineEnd::Nul } else { LineEnd::Newline })
}

/// Opens a checksum file, and returns its lines, or a single error.
pub(crate) fn lines_of(
    session: &Session<'_>,
    place: usize,
    list: &Path,
) -> Box<dyn Iterator<Item = CheckLine> + Send> {
    match session.open_list(list) {
        Ok(file) => {
            let input = BufReader::new(Patient(file));
            Box::new(CheckLines::new(place, list, input, reader_of(session.args, list)))
        }
        Err(error) => {
            let (list, why) = (list.as_os_str().as_bytes().to_vec(), error.to_string());
            Box::new(std::iter::once(CheckLine::BadList { list, why }))
        }
    }
}

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

/// An iterator over the lines of a checksum file, and its end.
pub(crate) struct CheckLines<R> {
    place: usize,
    list: Vec<u8>,
    input: R,
    format: Reader,
    line: Vec<u8>,
    number: u64,
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
            number: 0,
            files: 0,
            has_ended: false,
        }
    }

    /// Reads and counts a line. Returns false at the end.
    fn read(&mut self) -> io::Result<bool> {
        let end = self.format.end as u8;
        self.line.clear();
        // One byte more than the maximum, to notice a line that is too long.
        let most = LINE_BYTES_MAX as u64 + 1;
        if self.input.by_ref().take(most).read_until(end, &mut self.line)? == 0 {
            return Ok(false);
        }
        if self.line.len() > LINE_BYTES_MAX && self.line.last() != Some(&end) {
            self.input.skip_until(end)?;
        }
        self.number += 1;
        Ok(true)
    }

    fn parse(&mut self) -> Result<Option<ListedFile>, Malformed> {
        let line = &self.line[..];
        let is_first = self.number == 1;
        let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| is_first).unwrap_or(line);
        let line = self.format.line(line)?;
        Ok(line.map(|line| ListedFile { place: self.place, line }))
    }
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

/// Longest name in a list, in bytes, so that a list without line endings does not exhaust memory.
const NAME_BYTES_MAX: u64 = 1 << 20;

/// Returns the names in a list of files. `end`: the byte after each name.
pub(crate) fn names(mut input: impl BufRead, end: u8) -> impl Iterator<Item = io::Result<PathBuf>> {
    let mut next = move || loop {
        let mut name = Vec::new();
        let read = input.by_ref().take(NAME_BYTES_MAX).read_until(end, &mut name)?;
        let has_end = name.last() == Some(&end);
        if read as u64 == NAME_BYTES_MAX && !has_end {
            return Err(io::Error::other("a name is longer than 1 MiB"));
        }
        if has_end {
            name.pop();
        }
        // (A blank line names no file.)
        if !name.is_empty() || read == 0 {
            return Ok((read > 0).then(|| PathBuf::from(OsString::from_vec(name))));
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
