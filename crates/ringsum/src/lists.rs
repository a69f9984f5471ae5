//! Opening check files, for the lines in them (`lines.rs`).

use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::inputs::Patient;
use crate::lines::{Line, Lines};
use crate::session::Session;

/// Opens a list, and gives what its lines come to; an error instead, if it cannot be opened.
pub(crate) fn lines_of(
    session: &Session<'_>,
    place: usize,
    list: &Path,
) -> Box<dyn Iterator<Item = Line> + Send> {
    match session.open_list(list) {
        Ok(file) => {
            let reader = BufReader::new(Patient(file));
            Box::new(Lines::new(place, list, reader, session.args.zero))
        }
        Err(error) => {
            let (list, why) = (list.as_os_str().as_bytes().to_vec(), error.to_string());
            Box::new(std::iter::once(Line::BadList { list, why }))
        }
    }
}
