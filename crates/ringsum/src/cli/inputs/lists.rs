//! The check files that are named: opened, and what is known of them.

use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringsum::checkfile::{Known, Reader};

use crate::args::Args;
use crate::inputs::Patient;
use crate::lines::{Line, Lines};
use crate::session::Session;

/// What is known of the digests of a list: what was asked for, or what the tool takes that this is, and its name.
pub(crate) fn known_of(args: &Args, list: &Path) -> Known {
    let name = list.as_os_str().as_bytes();
    match args.guise {
        Some(guise) => guise.known(),
        None if args.algorithm.is_empty() => Known::new(&[], &[], Some(name)),
        None => Known::new(args.algorithms().as_slice(), &[], Some(name)),
    }
}

/// What reads the lines of a list.
pub(crate) fn format_of(args: &Args) -> Reader {
    match args.guise {
        Some(guise) => guise.reader(),
        None if args.zero => Reader::zero(),
        None => Reader::new(),
    }
}

/// Opens a list, and gives what its lines come to; an error instead, if it cannot be opened.
pub(crate) fn lines_of(
    session: &Session<'_>,
    place: usize,
    list: &Path,
) -> Box<dyn Iterator<Item = Line> + Send> {
    match session.open_list(list) {
        Ok(file) => {
            let known = known_of(session.args, list);
            let reader = BufReader::new(Patient(file));
            Box::new(Lines::new(place, list, reader, format_of(session.args), known))
        }
        Err(error) => {
            let (list, why) = (list.as_os_str().as_bytes().to_vec(), error.to_string());
            Box::new(std::iter::once(Line::BadList { list, why }))
        }
    }
}
