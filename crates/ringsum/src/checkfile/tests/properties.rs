//! What was written is what is read, and nothing that is read makes it panic.

use proptest::prelude::*;

use super::*;

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let any_length = (1..=64_u8).prop_map(Algorithm::Blake2b);
    prop_oneof![4 => prop::sample::select(&Algorithm::ALL[..]), 1 => any_length]
}

/// An algorithm, and a digest of it.
fn digests() -> impl Strategy<Value = (Algorithm, Vec<u8>)> {
    algorithms().prop_flat_map(|algorithm| {
        let bytes = match algorithm {
            Algorithm::Blake3 => DIGEST_BYTES_MIN..80,
            other => other.bytes()..other.bytes() + 1,
        };
        (Just(algorithm), prop::collection::vec(any::<u8>(), bytes))
    })
}

/// Names of every byte but NUL, with what matters to the format more often than chance has it.
fn name_strategy() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(1_u8..=255, 1..8),
        prop::sample::select(vec![
            "\\", "\n", "\r", "  ", ") = ", ")= ", "BLAKE3 (", "MD5(", "*", "#", " ", ",", "%%%% ",
            "XXH3_", HASH
        ])
        .prop_map(|piece| piece.as_bytes().to_vec()),
    ];
    prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
}

/// Lines that are nearly ones of some tool.
fn line_strategy() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..4),
        prop::sample::select(vec![
            "\\",
            "  ",
            " *",
            " U",
            ") = ",
            ")= ",
            " (",
            "(",
            "   (",
            "MD5",
            "SHA2-256",
            "XXH3_",
            "XXH64_LE",
            "BLAKE2b-16",
            "BLAKE2b-",
            "SM3",
            HASH,
            MD5,
            SHA512,
            "5,",
            ",",
            "%%%% ",
            "HASHDEEP-1.0",
            "size,md5",
            ",filename",
            "##",
            "\n",
            "\r",
            "a",
            "00ff",
            "AAAA",
            "=="
        ])
        .prop_map(|piece| piece.as_bytes().to_vec()),
    ];
    prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

    /// For any algorithm, name without NUL, digest, style and line ending, what was written is what is
    /// read.
    #[test]
    fn write_then_read_is_identity(
        name in name_strategy(),
        (algorithm, digest) in digests(),
        style in prop_oneof![Just(Style::Plain), Just(Style::Tag)],
        upper in any::<bool>(),
        zero in any::<bool>(),
        end in prop_oneof![Just(""), Just("\n"), Just("\r\n")],
        columns in any::<bool>(),
    ) {
        let digits = match upper {
            true => hex::encode_upper(&digest),
            false => hex::encode(&digest),
        };
        let end = if zero { "\0" } else { end };
        let (before, after) = match zero {
            true => line_around(&name, style, algorithm, LineEnd::Nul),
            false => line_around(&name, style, algorithm, LineEnd::Newline),
        };
        let line = [&before, digits.as_bytes(), &after, end.as_bytes()].concat();
        prop_assert!(zero || !line[..line.len() - end.len()].contains(&b'\n'));
        let mut reader = if zero { nul() } else { newline() };
        if columns {
            // A list of hashdeep before it changes nothing.
            prop_assert_eq!(reader.parse(b"%%%% size,md5,filename\n"), Ok(None));
        }
        let entry = reader.parse(&line).unwrap().unwrap();
        prop_assert_eq!(&*entry.name, &name[..]);
        let listed = if zero { Cow::Borrowed(&name[..]) } else { escape(&name) };
        prop_assert_eq!(&entry.listed, &listed);
        let says_it = style == Style::Tag || algorithm == Algorithm::Xxh3;
        prop_assert_eq!(entry.first.algorithm, says_it.then_some(algorithm));
        let resolved = entry.resolve(&Hints::new(&[algorithm], &[algorithm], None)).unwrap();
        prop_assert_eq!(resolved.first, Expected { algorithm, digest });
        prop_assert!(resolved.more.is_empty() && resolved.size.is_none());
    }

    /// Every length of base64 that a tag can announce.
    #[test]
    fn tagged_base64_is_read((algorithm, digest) in digests()) {
        use base64::Engine as _;
        prop_assume!(digest.len() == algorithm.bytes());
        let digits = base64::engine::general_purpose::STANDARD.encode(&digest);
        // For so short a digest, hexadecimal digits of its length are taken as such.
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        prop_assume!(!(is_hex && digits.len() == 2 * digest.len()));
        let found = all_of(&format!("{algorithm} (a) = {digits}"));
        prop_assert_eq!(found, (Some(algorithm), hex::encode(&digest), "a".to_owned()));
    }

    /// No line makes it panic, and a line without an error names a file that can exist, and digests as
    /// they can be.
    #[test]
    fn any_line_is_an_entry_or_an_error(
        lines in prop::collection::vec(
            prop_oneof![line_strategy(), prop::collection::vec(any::<u8>(), 0..200)], 1..5),
        zero in any::<bool>(),
        list in name_strategy(),
    ) {
        let mut reader = if zero { nul() } else { newline() };
        let hints = Hints::new(&[], &[], Some(&list));
        for line in &lines {
            let Ok(Some(entry)) = reader.parse(line) else { continue };
            prop_assert!(!entry.name.is_empty() && !entry.name.contains(&0));
            let Ok(resolved) = entry.resolve(&hints) else { continue };
            for Expected { algorithm, digest } in resolved.more.iter().chain([&resolved.first]) {
                let fits = match algorithm {
                    Algorithm::Blake3 => digest.len() >= DIGEST_BYTES_MIN,
                    other => digest.len() == other.bytes(),
                };
                prop_assert!(fits, "{algorithm}: {} bytes", digest.len());
            }
        }
    }
}
