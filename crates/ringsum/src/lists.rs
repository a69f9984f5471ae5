//! The lines of check files, one after another.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringsum::checkfile::{self, Entry, LINE_BYTES_MAX};

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

impl Line {
    /// What it takes besides itself, in bytes; of an entry, with its name once more as a path.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Line::Entry(entry) => entry.digest.len() + 2 * entry.name.len() + entry.listed.len(),
            Line::Malformed { list, why, .. } | Line::BadList { list, why } => {
                list.len() + why.len()
            }
            Line::End { list, .. } => list.len(),
        }
    }
}

/// An [`Entry`] that outlives its line.
#[derive(Debug, Clone)]
pub(crate) struct OwnedEntry {
    /// The place of its list among the lists.
    pub(crate) place: usize,
    pub(crate) digest: Vec<u8>,
    pub(crate) name: Vec<u8>,
    pub(crate) listed: Vec<u8>,
}

/// Opens a list, and gives what its lines come to; an error instead, if it cannot be opened.
pub(crate) fn lines_of(
    session: &Session<'_>,
    place: usize,
    list: &Path,
) -> Box<dyn Iterator<Item = Line> + Send> {
    match session.open_list(list) {
        Ok(file) => Box::new(Lines::new(place, list, file, session.args.zero)),
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
    line: Vec<u8>,
    number: u64,
    entries: u64,
    has_ended: bool,
}

impl Lines {
    pub(crate) fn new(place: usize, list: &Path, file: File, zero: bool) -> Lines {
        Lines {
            place,
            list: list.as_os_str().as_bytes().to_vec(),
            reader: BufReader::new(Patient(file)),
            zero,
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

    fn parse(&self) -> Result<Option<OwnedEntry>, checkfile::Malformed> {
        let line = &self.line[..];
        let first = self.number == 1;
        let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| first).unwrap_or(line);
        let entry = match self.zero {
            true => checkfile::parse_zero(line),
            false => checkfile::parse(line),
        };
        Ok(entry?.map(|Entry { digest, name, listed }| OwnedEntry {
            place: self.place,
            digest,
            name: name.into_owned(),
            listed: listed.into_owned(),
        }))
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
