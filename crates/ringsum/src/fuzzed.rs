//! What must hold for any bytes in a check file and in a file of settings. `fuzz/` tries it, and the tests
//! try again what it kept.

use std::borrow::Cow;

use crate::checkfile::{self, DIGEST_BYTES_MIN, Entry, Malformed, Style};

type Parse = fn(&[u8]) -> Result<Option<Entry<'_>>, Malformed>;
type Around = fn(&[u8], Style) -> (Vec<u8>, Vec<u8>);

/// A line is an entry that is whole, or none; what is written is read as what it was.
pub fn check_file(data: &[u8]) {
    let newline: (Parse, Around) = (checkfile::parse, checkfile::line_around);
    let zero: (Parse, Around) = (checkfile::parse_zero, checkfile::zero_line_around);
    for (parse, around) in [newline, zero] {
        if let Ok(Some(Entry { digest, name, listed })) = parse(data) {
            assert!(digest.len() >= DIGEST_BYTES_MIN && !name.is_empty() && !name.contains(&0));
            assert!(data.windows(listed.len()).any(|part| part == &*listed) || listed[0] == b'\\');
            is_read_as_written(parse, around, &name, &digest);
        }
        if !data.is_empty() && !data.contains(&0) {
            is_read_as_written(parse, around, data, blake3::hash(data).as_bytes());
        }
    }
}

fn is_read_as_written(parse: Parse, around: Around, name: &[u8], digest: &[u8]) {
    for style in [Style::Plain, Style::Tag] {
        let (before, after) = around(name, style);
        let line = [&*before, hex::encode(digest).as_bytes(), &after].concat();
        let entry = parse(&line).unwrap_or_else(|why| panic!("{why}: {}", line.escape_ascii()));
        let entry = entry.expect("a line that says nothing");
        assert_eq!((&*entry.name, &*entry.digest), (name, digest), "{}", line.escape_ascii());
        // A warning about it names it as the line does.
        let Cow::Borrowed(listed) = entry.listed else { continue };
        assert_eq!(listed, name);
    }
}

/// A file of settings is read or refused; what is read can be kept, and is then read again.
#[cfg(feature = "tuned")]
pub fn tuned(data: &[u8]) {
    use crate::tuned;
    let folder = std::env::temp_dir().join(format!("ringsum-fuzzed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("tuned.json");
    std::fs::write(&path, data).unwrap();
    if let Ok(entries) = tuned::load(&path) {
        for entry in &entries {
            let _ = tuned::applicable(&entries, &entry.kernel, &entry.device);
            tuned::save(&path, entry).unwrap();
            let again = tuned::load(&path).unwrap();
            assert_eq!(again.len(), entries.len());
            let found = tuned::applicable(&again, &entry.kernel, &entry.device);
            let found = found.expect("it was kept").expect("it holds");
            assert_eq!(found.tuning().depth, entry.tuning().depth);
            assert_eq!((found.block_bytes, found.engine), (entry.block_bytes, entry.engine));
        }
        for entry in &entries {
            tuned::remove(&path, &entry.device).unwrap();
        }
        let left = tuned::load(&path).unwrap();
        assert!(left.len() < entries.len() || entries.is_empty());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[cfg(test)]
mod tests {
    #[test]
    fn check_files_that_fuzzing_kept() {
        crate::replay::corpus("check_file", super::check_file);
    }

    #[cfg(feature = "tuned")]
    #[test]
    fn settings_that_fuzzing_kept() {
        crate::replay::corpus("tuned", super::tuned);
    }
}
