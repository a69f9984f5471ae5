//! What is in lists: the lines of check files, and names of files, one after another. Where lists come from
//! is not known here.

use std::ffi::OsString;
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ringsum::checkfile::{Known, LINE_BYTES_MAX, Malformed, Reader, Resolved, Wanted};
use ringsum::many::Hashed;
use ringsum::{Algorithm, Algorithms};

/// A UTF-8 byte order mark, which some editors put at the start of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What a line of a list comes to.
pub(crate) enum Line {
    Entry(OwnedEntry),
    Malformed {
        list: Vec<u8>,
        number: u64,
        why: String,
    },
    /// The list could not be opened, or not be read to its end.
    BadList {
        list: Vec<u8>,
        why: String,
    },
    /// The end of a list: its place among the lists, and how many files it names.
    End {
        list: Vec<u8>,
        place: usize,
        entries: u64,
    },
}

impl Line {
    /// What it takes besides itself, in bytes; of an entry, with its name once more as a path.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Line::Entry(entry) => {
                entry.wanted().map(|wanted| wanted.digest.len()).sum::<usize>()
                    + 2 * entry.name.len()
                    + entry.listed.len()
            }
            Line::Malformed { list, why, .. } | Line::BadList { list, why } => {
                list.len() + why.len()
            }
            Line::End { list, .. } => list.len(),
        }
    }
}

/// A [`Resolved`] entry that outlives its line.
#[derive(Debug, Clone)]
pub(crate) struct OwnedEntry {
    /// The place of its list among the lists.
    pub(crate) place: usize,
    pub(crate) first: Wanted,
    pub(crate) more: Vec<Wanted>,
    /// Whether nothing but the length of the first says of which algorithm it is.
    pub(crate) is_assumed: bool,
    /// Bytes that the file should have.
    pub(crate) size: Option<u64>,
    pub(crate) name: Vec<u8>,
    pub(crate) listed: Vec<u8>,
}

impl OwnedEntry {
    /// Each digest that the file should have: at least one.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = &Wanted> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// What to make of the file.
    pub(crate) fn algorithms(&self) -> Algorithms {
        let mut algorithms = Algorithms::from(self.first.algorithm);
        for Wanted { algorithm, .. } in &self.more {
            algorithms.add(*algorithm);
        }
        algorithms
    }

    /// Whether it takes more of BLAKE3's output than the usual 32 bytes to compare a digest with.
    pub(crate) fn is_extended(&self, seek: u64) -> bool {
        self.wanted().any(|wanted| {
            let end = seek.saturating_add(wanted.digest.len() as u64);
            wanted.algorithm == Algorithm::Blake3 && end > Algorithm::Blake3.bytes() as u64
        })
    }

    /// Whether a file is what its line says, in all that it says.
    pub(crate) fn is_met_by(&self, hashed: &Hashed, seek: u64) -> bool {
        let size = self.size.zip(hashed.stamp.as_ref());
        size.is_none_or(|(size, stamp)| size == stamp.len)
            && self.wanted().all(|wanted| hashed.is(wanted.algorithm, seek, &wanted.digest))
    }
}

/// The lines of a list, and its end.
pub(crate) struct Lines<R> {
    place: usize,
    list: Vec<u8>,
    reader: R,
    format: Reader,
    known: Known,
    line: Vec<u8>,
    number: u64,
    entries: u64,
    has_ended: bool,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(
        place: usize,
        list: &Path,
        reader: R,
        format: Reader,
        known: Known,
    ) -> Lines<R> {
        Lines {
            place,
            list: list.as_os_str().as_bytes().to_vec(),
            reader,
            format,
            known,
            line: Vec::new(),
            number: 0,
            entries: 0,
            has_ended: false,
        }
    }

    /// Reads a line, and counts it; false at the end.
    fn read(&mut self) -> io::Result<bool> {
        let end = if self.format.is_zero() { 0 } else { b'\n' };
        self.line.clear();
        // One byte more than is allowed, so that a line that is too long shows.
        let most = LINE_BYTES_MAX as u64 + 1;
        if self.reader.by_ref().take(most).read_until(end, &mut self.line)? == 0 {
            return Ok(false);
        }
        if self.line.len() > LINE_BYTES_MAX && self.line.last() != Some(&end) {
            self.reader.skip_until(end)?;
        }
        self.number += 1;
        Ok(true)
    }

    fn parse(&mut self) -> Result<Option<OwnedEntry>, Malformed> {
        let line = &self.line[..];
        let first = self.number == 1;
        let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| first).unwrap_or(line);
        let Some(entry) = self.format.line(line)? else { return Ok(None) };
        let Resolved { first, more, is_assumed, size, name, listed } =
            entry.resolve(&self.known)?;
        let (name, listed) = (name.into_owned(), listed.into_owned());
        Ok(Some(OwnedEntry { place: self.place, first, more, is_assumed, size, name, listed }))
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        while !self.has_ended {
            match self.read() {
                Ok(true) => {}
                ended => {
                    self.has_ended = true;
                    let (list, place, entries) = (self.list.clone(), self.place, self.entries);
                    return Some(match ended {
                        Ok(_) => Line::End { list, place, entries },
                        Err(error) => Line::BadList { list, why: error.to_string() },
                    });
                }
            }
            match self.parse() {
                Ok(None) => {}
                Ok(Some(entry)) => {
                    self.entries += 1;
                    return Some(Line::Entry(entry));
                }
                Err(why) => {
                    let (list, number, why) = (self.list.clone(), self.number, why.to_string());
                    return Some(Line::Malformed { list, number, why });
                }
            }
        }
        None
    }
}

/// The names in a list.
pub(crate) struct Names<R> {
    reader: R,
    /// What stands after each: a newline, or NUL.
    end: u8,
    has_ended: bool,
}

/// Longest name that is taken from a list, in bytes: a list without line ends shall not take all memory.
const NAME_BYTES_MAX: u64 = 1 << 20;

impl<R: BufRead> Names<R> {
    pub(crate) fn new(reader: R, zero: bool) -> Names<R> {
        Names { reader, end: if zero { 0 } else { b'\n' }, has_ended: false }
    }
}

impl<R: BufRead> Iterator for Names<R> {
    type Item = io::Result<PathBuf>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.has_ended {
                return None;
            }
            let mut name = Vec::new();
            let read = self.reader.by_ref().take(NAME_BYTES_MAX).read_until(self.end, &mut name);
            match read {
                Ok(0) => self.has_ended = true,
                Ok(n) if n as u64 == NAME_BYTES_MAX && name.last() != Some(&self.end) => {
                    self.has_ended = true;
                    return Some(Err(io::Error::other("a name is longer than 1 MiB")));
                }
                Ok(_) => {
                    if name.last() == Some(&self.end) {
                        name.pop();
                    }
                    // A blank line names nothing.
                    if !name.is_empty() {
                        return Some(Ok(PathBuf::from(OsString::from_vec(name))));
                    }
                }
                Err(error) => {
                    self.has_ended = true;
                    return Some(Err(error));
                }
            }
        }
    }
}
