//! What must hold for any bytes in a checksum file and in a file of tuned settings. The fuzz targets call it
//! with new inputs, and `cargo test` with the corpus.

use ringsum::checkfile::{self, LineEnd, Reader, Style};
use ringsum::{Algorithm, tuned as settings};

/// A line names a file and whole digests, or none; what is written is read back.
pub(crate) fn check_file(data: &[u8]) {
    let requested = [Algorithm::Sha256, Algorithm::Blake2b(32)];
    let readers = |end| {
        [
            Reader::new(&[], &[], Some(b"SHA512SUMS"), end),
            Reader::new(&requested, &[], None, end),
            Reader::new(&[], &[Algorithm::Md5], None, end),
        ]
    };
    for (newline, nul) in readers(LineEnd::Newline).into_iter().zip(readers(LineEnd::Nul)) {
        for mut reader in [newline.clone(), nul, newline.gnu(16..=32)] {
            let end = reader.end as u8;
            for text in data.split(|byte| *byte == end) {
                let Ok(Some(line)) = reader.line(text) else { continue };
                assert!(!line.name.is_empty() && !line.name.contains(&0));
                let listed = &*line.listed;
                assert!(
                    data.windows(listed.len()).any(|part| part == listed) || listed[0] == b'\\'
                );
                for expected in line.more.iter().chain([&line.first]) {
                    let bytes = expected.digest.len();
                    match expected.algorithm {
                        Algorithm::Blake3 => assert!(bytes >= 16),
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
    let mut digest = vec![0; algorithm.bytes()];
    blake3::Hasher::new().update(name).finalize_xof().fill(&mut digest);
    for style in [Style::Plain, Style::Binary, Style::Tag] {
        for end in [LineEnd::Newline, LineEnd::Nul] {
            let (before, after) = checkfile::line_around(name, style, algorithm, end);
            let text = [&*before, hex::encode(&digest).as_bytes(), &after].concat();
            let mut reader = Reader::new(&[algorithm], &[], None, end);
            let why = |why| panic!("{why}: {}", text.escape_ascii());
            let line = reader.line(&text).unwrap_or_else(why).expect("a line that names a file");
            let found = (&*line.name, &*line.first.digest, line.first.algorithm);
            assert_eq!(found, (name, &*digest, algorithm));
            // Messages show the name as it is in the line.
            assert!(line.listed == name || line.listed[0] == b'\\');
        }
    }
}

/// A file of settings is read or refused; what is read can be kept, and is then read again.
pub(crate) fn tuned(data: &[u8]) {
    let folder = std::env::temp_dir().join(format!("ringsum-fuzzed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("tuned.json");
    std::fs::write(&path, data).unwrap();
    if let Ok(entries) = settings::load(&path) {
        for entry in &entries {
            settings::update(&path, &entry.device, Some(entry)).unwrap();
            let again = settings::load(&path).unwrap();
            assert_eq!(again.len(), entries.len());
            let found = again.iter().find(|found| found.device == entry.device);
            let found = found.expect("it was kept");
            let setting =
                |entry: &settings::TunedEntry| (entry.engine, entry.block_bytes, entry.depth);
            assert_eq!(setting(found), setting(entry));
        }
        for entry in &entries {
            settings::update(&path, &entry.device, None).unwrap();
        }
        let left = settings::load(&path).unwrap();
        assert!(left.len() < entries.len() || entries.is_empty());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
