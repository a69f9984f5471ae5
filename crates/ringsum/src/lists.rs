//! The lines of check files, one after another.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringsum::checkfile::{Known, LINE_BYTES_MAX, Malformed, Reader, Resolved, Wanted};
use ringsum::many::Hashed;
use ringsum::{Algorithm, Algorithms};

use crate::inputs::Patient;
use crate::session::Session;

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

/// A [`Resolved`] entry that outlives its line.
#[derive(Debug, Clone)]
pub(crate) struct OwnedEntry {
    /// The place of its list among the lists.
    pub(crate) place: usize,
    pub(crate) first: Wanted,
    pub(crate) more: Vec<Wanted>,
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

    /// Whether a file is what its line says, in all that it says.
    pub(crate) fn is_met_by(&self, hashed: &Hashed, seek: u64) -> bool {
        let size = self.size.zip(hashed.stamp.as_ref());
        size.is_none_or(|(size, stamp)| size == stamp.len)
            && self.wanted().all(|wanted| hashed.is(wanted.algorithm, seek, &wanted.digest))
    }
}

/// What is known of the digests of a list: what was asked for, and its name.
pub(crate) fn known_of(asked: &[Algorithm], list: &Path) -> Known {
    Known::new(asked, &[], Some(list.as_os_str().as_bytes()))
}

/// Opens a list, and gives what its lines come to; an error instead, if it cannot be opened.
pub(crate) fn lines_of(
    session: &Session<'_>,
    place: usize,
    list: &Path,
) -> Box<dyn Iterator<Item = Line> + Send> {
    match session.open_list(list) {
        Ok(file) => {
            let known = known_of(&session.asked(), list);
            Box::new(Lines::new(place, list, file, session.args.zero, known))
        }
        Err(error) => {
            let (list, why) = (list.as_os_str().as_bytes().to_vec(), error.to_string());
            Box::new(std::iter::once(Line::BadList { list, why }))
        }
    }
}

/// The lines of a list, and its end.
pub(crate) struct Lines {
    place: usize,
    list: Vec<u8>,
    reader: BufReader<Patient>,
    /// Lines end with NUL.
    zero: bool,
    format: Reader,
    known: Known,
    line: Vec<u8>,
    number: u64,
    entries: u64,
    has_ended: bool,
}

impl Lines {
    pub(crate) fn new(place: usize, list: &Path, file: File, zero: bool, known: Known) -> Lines {
        Lines {
            place,
            list: list.as_os_str().as_bytes().to_vec(),
            reader: BufReader::new(Patient(file)),
            zero,
            format: if zero { Reader::zero() } else { Reader::new() },
            known,
            line: Vec::new(),
            number: 0,
            entries: 0,
            has_ended: false,
        }
    }

    /// Reads a line, and counts it; false at the end.
    fn read(&mut self) -> io::Result<bool> {
        let end = if self.zero { 0 } else { b'\n' };
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
        let Resolved { first, more, size, name, listed } = entry.resolve(&self.known)?;
        let (name, listed) = (name.into_owned(), listed.into_owned());
        Ok(Some(OwnedEntry { place: self.place, first, more, size, name, listed }))
    }
}

impl Iterator for Lines {
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
