//! What must hold for any bytes in the command's own formats: values of options, lists, and the
//! index. `fuzz/` tries it, and the tests replay the corpus.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use ringsum::checkfile::{LineEnd, Reader};

use super::args::values;
use super::cache::{Index, Metadata, Record};
use super::inputs::lines::{CheckLine, CheckLines, names};

/// A value is refused, or is the number that it says.
pub(crate) fn value(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = values::parse_glob(text);
    let _ = text.parse::<blockring::IoPriority>();
    if let Some(bytes) = blockring::parse_size(text) {
        assert_eq!(bytes, meaning(text), "{text:?}");
    }
    if let Ok(rate) = values::parse_rate(text) {
        let size = text.strip_suffix("/s").unwrap_or(text);
        assert_eq!(rate.get(), meaning(size), "{text:?}");
    }
}

/// Another way to read a size that is one.
fn meaning(text: &str) -> u64 {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u128 = text[..text.len() - unit.len()].parse().unwrap();
    let unit = unit.trim().to_lowercase();
    let power = "kmgt".find(unit.chars().next().unwrap_or('b')).map_or(0, |at| at as u32 + 1);
    let base: u128 = if power > 0 && unit.len() == 2 { 1000 } else { 1024 };
    u64::try_from(number.saturating_mul(base.pow(power))).unwrap_or(u64::MAX)
}

/// Lists of both kinds are split at their line ends, and nowhere else.
pub(crate) fn list(data: &[u8]) {
    for end in [LineEnd::Newline, LineEnd::Nul] {
        let reader = Reader::new(&[], &[], None, end);
        let end = reader.end as u8;
        let names: Vec<PathBuf> = names(data, end).map(|name| name.unwrap().0).collect();
        let expected = data.split(|byte| *byte == end).filter(|name| !name.is_empty());
        assert!(names.iter().map(|name| name.as_os_str().as_encoded_bytes()).eq(expected));
        check_lines(data, reader);
    }
}

fn check_lines(data: &[u8], mut reader: Reader) {
    let mut lines = CheckLines::new(7, Path::new("list"), data, reader.clone());
    if reader.end == LineEnd::Newline && data.windows(5).any(|bytes| bytes == b"%%%% ") {
        // (Lines may be parts of names in files of hashdeep.)
        assert!(lines.any(|line| matches!(line, CheckLine::ListEnd { .. })));
        return;
    }
    let mut files = 0;
    let text = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data);
    let end = reader.end as u8;
    for (line, number) in text.split(|byte| *byte == end).zip(1..) {
        match reader.line(line) {
            Ok(None) => {}
            Ok(Some(line)) => {
                let Some(CheckLine::File(found)) = lines.next() else { panic!("line {number}") };
                assert_eq!((found.line, found.place), (line, 7));
                files += 1;
            }
            Err(why) => match lines.next() {
                Some(CheckLine::Malformed { list, place: 7, number: found, why: text }) => {
                    assert_eq!((&*list, found, text), (&b"list"[..], number, why.to_string()));
                }
                _ => panic!("line {number}"),
            },
        }
    }
    match lines.next() {
        Some(CheckLine::ListEnd { place: 7, files: found, .. }) => assert_eq!(found, files),
        _ => panic!("there is no end"),
    }
    assert!(lines.next().is_none());
}

/// Records in the index.
const RECORDS: u64 = 24;

fn path(i: u64) -> Vec<u8> {
    format!("/folder/{}/file {i}", i % 5).into_bytes()
}

fn record(i: u64) -> Record {
    let metadata = Metadata {
        file_system: 3,
        inode: i * 977,
        size: i << 20,
        mtime_ns: -5 * i as i64,
        ctime_ns: i as i64,
    };
    Record { metadata, hash: *blake3::hash(&i.to_le_bytes()).as_bytes() }
}

/// A new index.
fn sound(folder: &Path) -> &'static [u8] {
    static SOUND: OnceLock<Vec<u8>> = OnceLock::new();
    SOUND.get_or_init(|| {
        let path_of_it = folder.join("sound");
        let mut index = Index::open(&path_of_it).unwrap();
        (0..RECORDS).for_each(|i| index.put(&path(i), record(i)).unwrap());
        index.flush(Duration::ZERO).unwrap();
        drop(index);
        // (Many small pages: more kinds of damage in fewer bytes.)
        let database = rusqlite::Connection::open(&path_of_it).unwrap();
        database.execute_batch("PRAGMA page_size = 512; VACUUM").unwrap();
        drop(database);
        let bytes = fs::read(&path_of_it).unwrap();
        fs::remove_file(path_of_it).unwrap();
        bytes
    })
}

/// Whatever an index file and a journal beside it contain: an error, or no record, or the right
/// one.
///
/// The first byte is the type of the rest. 0: the file. 1: the journal of a sound index. Else:
/// changes of a sound index, each of an offset (two bytes), a length (0 to 3, one byte) and as many
/// bytes; one past the end truncates.
pub(crate) fn index(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let folder = std::env::temp_dir().join(format!("ringsum-fuzzed-index-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (path_of_it, journal) = (folder.join("index"), folder.join("index-journal"));
    let _ = fs::remove_file(&journal);
    let bytes = match kind {
        0 => rest.to_vec(),
        1 => {
            fs::write(&journal, rest).unwrap();
            sound(&folder).to_vec()
        }
        _ => damaged(sound(&folder), rest),
    };
    fs::write(&path_of_it, bytes).unwrap();
    if let Ok(mut index) = Index::open(&path_of_it) {
        read_and_write(&mut index);
    }
    fs::remove_dir_all(&folder).unwrap();
}

fn damaged(sound: &[u8], mut changes: &[u8]) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    while let [low, high, len, rest @ ..] = changes {
        let at = usize::from(u16::from_le_bytes([*low, *high]));
        let (new, rest) = rest.split_at((usize::from(*len) % 4).min(rest.len()));
        changes = rest;
        match bytes.get_mut(at..at + new.len()) {
            Some(old) => old.copy_from_slice(new),
            None => bytes.truncate(at % (sound.len() + 1)),
        }
    }
    bytes
}

fn read_and_write(index: &mut Index) {
    // In order, as a walk does, and then in another.
    let (in_order, across) = (0..RECORDS, (0..RECORDS).map(|i| i * 7 % RECORDS));
    for i in in_order.chain(across) {
        if let Ok(Some(found)) = index.get(&path(i)) {
            assert_eq!(found, record(i), "the record of another file, or a damaged one");
        }
    }
    // A new record is found, or not; the old one is not found in its place.
    let new = |i: u64| record(i + 1000);
    let written = (0..RECORDS).step_by(3).try_for_each(|i| index.put(&path(i), new(i)));
    let written =
        written.and_then(|()| index.remove(&path(1))).and_then(|()| index.flush(Duration::ZERO));
    for i in 0..RECORDS {
        if let Ok(Some(found)) = index.get(&path(i)) {
            assert!(found == record(i) || found == new(i), "the record of another file");
            let is_new = i.is_multiple_of(3);
            assert!(is_new || found == record(i), "a record that was never put");
        }
    }
    if written.is_ok() {
        index.start_tree(b"/folder");
        let _ = index.finish_tree();
    }
}

#[cfg(test)]
mod tests {
    use crate::replay;

    #[test]
    fn values_that_fuzzing_kept() {
        replay::corpus("value", super::value);
    }

    #[test]
    fn lists_that_fuzzing_kept() {
        replay::corpus("list", super::list);
    }

    #[test]
    fn indexes_that_fuzzing_kept() {
        replay::corpus("index", super::index);
    }
}
