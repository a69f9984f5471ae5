//! Opening of checksum files. (Apart from `lines.rs`, which the fuzz targets compile.)

use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringsum::checkfile::{LineEnd, Reader};

use super::lines::{CheckLine, CheckLines};
use crate::cli::args::Args;
use crate::cli::open::Patient;
use crate::cli::session::Session;

/// Returns a reader for the lines of a checksum file.
fn reader_of(args: &Args, list: &Path) -> Reader {
    if let Some(applet) = args.applet {
        return applet.reader();
    }
    let name = Some(list.as_os_str().as_bytes());
    let end = if args.zero { LineEnd::Nul } else { LineEnd::Newline };
    match &*args.algorithm {
        [] => Reader::new(&[], &[], name, end),
        _ => Reader::new(&args.algorithms(), &[], name, end),
    }
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
            let lines = CheckLines::new(place, list, input, reader_of(session.args, list));
            let is_little_endian =
                session.args.applet.is_some_and(|applet| applet.is_little_endian);
            Box::new(lines.little_endian(is_little_endian))
        }
        Err(error) => {
            let (list, why) = (list.as_os_str().as_bytes().to_vec(), error.to_string());
            Box::new(std::iter::once(CheckLine::BadList { list, why }))
        }
    }
}
