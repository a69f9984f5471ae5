//! What must hold for any bytes in a check file and in a file of settings. `fuzz/` tries it, and the tests
//! try again what it kept.

use std::borrow::Cow;

use crate::Algorithm;
use crate::checkfile::{self, DIGEST_BYTES_MIN, Known, Reader, Style};

/// Lines are entries that are whole, or none; what is written is read as what it was.
pub fn check_file(data: &[u8]) {
    let is_asked = [Algorithm::Sha256, Algorithm::Blake2b(32)];
    let known = [
        Known::new(&[], &[], Some(b"SHA512SUMS")),
        Known::new(&is_asked, &[], None),
        Known::new(&[], &[Algorithm::Md5], None),
    ];
    let gnu = Reader::gnu(16..=32);
    for (mut reader, end) in [(Reader::new(), b'\n'), (Reader::zero(), 0), (gnu, b'\n')] {
        for line in data.split(|byte| *byte == end) {
            let Ok(Some(entry)) = reader.line(line) else { continue };
            assert!(!entry.name.is_empty() && !entry.name.contains(&0));
            let listed = &*entry.listed;
            assert!(data.windows(listed.len()).any(|part| part == listed) || listed[0] == b'\\');
            for known in &known {
                let Ok(resolved) = entry.clone().resolve(known) else { continue };
                for wanted in resolved.more.iter().chain([&resolved.first]) {
                    let bytes = wanted.digest.len();
                    match wanted.algorithm {
                        Algorithm::Blake3 => assert!(bytes >= DIGEST_BYTES_MIN),
                        other => assert_eq!(bytes, other.bytes()),
                    }
                }
            }
        }
    }
    if !data.is_empty() && !data.contains(&0) {
        for algorithm in Algorithm::ALL {
            is_read_as_written(data, algorithm);
        }
    }
}

fn is_read_as_written(name: &[u8], algorithm: Algorithm) {
    let digest = &blake3::Hasher::new().update(name).finalize_xof();
    let mut bytes = vec![0; algorithm.bytes()];
    digest.clone().fill(&mut bytes);
    let known = Known::new(&[algorithm], &[], None);
    for style in [Style::Plain, Style::Binary, Style::Tag] {
        for zero in [false, true] {
            let (around, mut reader) = match zero {
                false => (checkfile::line_around(name, style, algorithm), Reader::new()),
                true => (checkfile::zero_line_around(name, style, algorithm), Reader::zero()),
            };
            let line = [&*around.0, hex::encode(&bytes).as_bytes(), &around.1].concat();
            let why = |why| panic!("{why}: {}", line.escape_ascii());
            let entry = reader.line(&line).unwrap_or_else(why).expect("a line that says nothing");
            let found = entry.resolve(&known).unwrap_or_else(|error| panic!("{error}"));
            let (wanted, name_found) = (&found.first, &*found.name);
            let expected = (name, &*bytes, algorithm);
            assert_eq!((name_found, &*wanted.digest, wanted.algorithm), expected);
            // A warning about it names it as the line does.
            let Cow::Borrowed(listed) = found.listed else { continue };
            assert_eq!(listed, name);
        }
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
