//! Which algorithm a digest is of: every rule of `docs/formats.md`.

use super::*;

fn unnamed(bytes: usize) -> ParsedDigest {
    ParsedDigest { algorithm: None, digest: vec![7; bytes] }
}

/// What digests without a tag are of, or the message.
fn resolved(bytes: usize, asked: &[Algorithm], list: Option<&str>) -> Result<Algorithm, String> {
    let hints = Hints::new(asked, &[], list.map(str::as_bytes));
    hints.algorithm(&unnamed(bytes)).map_err(|why| why.to_string())
}

#[test]
fn digests_without_a_tag_by_what_was_asked_for() {
    use crate::Algorithm::*;
    let cases: [(usize, &[Algorithm], Result<Algorithm, &str>); 17] = [
        (32, &[Sha256], Ok(Sha256)),
        (32, &[Sha3_256], Ok(Sha3_256)),
        (16, &[Xxh128], Ok(Xxh128)),
        (32, &[Md5, Sha1, Sha256], Ok(Sha256)),
        (20, &[Md5, Sha1, Sha256], Ok(Sha1)),
        // BLAKE3 fits any length, but not better than one that has just that.
        (16, &[Blake3, Md5], Ok(Md5)),
        (16, &[Blake3, Sha1], Ok(Blake3)),
        (300, &[Blake3], Ok(Blake3)),
        (64, &[Blake2b(64), Sha256], Ok(Blake2b(64))),
        // As b2sum --length.
        (20, &[Blake2b(64)], Ok(Blake2b(20))),
        (1, &[Blake2b(64), Sha256], Ok(Blake2b(1))),
        (
            20,
            &[Blake2b(64), Blake3],
            Err("a hash of 20 bytes may be BLAKE2b-160 or BLAKE3: choose with -a ALGORITHM"),
        ),
        (
            32,
            &[Sha256, Sha3_256, Blake3, Md5],
            Err("a hash of 32 bytes may be SHA256, SHA3-256 or BLAKE3: choose with -a ALGORITHM"),
        ),
        (20, &[Md5, Sha256], Err("the hash has 20 bytes, which none of these has: MD5 and SHA256")),
        (15, &[Blake3], Err("the hash has 15 bytes, and BLAKE3 has 16 or more")),
        (65, &[Blake2b(64)], Err("the hash has 65 bytes, and BLAKE2b has 64")),
        (32, &[Md5], Err("the hash has 32 bytes, and MD5 has 16")),
    ];
    for (bytes, asked, expected) in cases {
        // Whatever the name of the list is.
        for list in [None, Some("MD5SUMS"), Some("x.sha3-512")] {
            let found = resolved(bytes, asked, list);
            assert_eq!(found.as_ref().map_err(|why| &**why), expected.as_ref().map_err(|why| *why));
        }
    }
}

#[test]
fn digests_without_a_tag_by_the_name_of_the_list() {
    use crate::Algorithm::*;
    let cases = [
        ("SHA256SUMS", 32, Sha256),
        ("/md5/SHA256SUMS.gpg", 32, Sha256),
        ("sha256sum.txt", 32, Sha256),
        ("SHASUMS256.txt", 32, Sha256),
        ("manifest-sha256.txt", 32, Sha256),
        ("checksums_SHA-256.txt", 32, Sha256),
        ("a.iso.sha256sum", 32, Sha256),
        ("CHECKSUMS.sha512", 64, Sha512),
        ("sha512-20260101.txt", 64, Sha512),
        ("SHA1SUMS", 20, Sha1),
        ("x.iso.md5", 16, Md5),
        ("md5sums", 16, Md5),
        ("sums.sha3-256", 32, Sha3_256),
        ("SHA3_256SUMS", 32, Sha3_256),
        ("B2SUMS", 64, Blake2b(64)),
        ("B2SUMS", 20, Blake2b(20)),
        ("a.blake2b", 64, Blake2b(64)),
        ("a.blake2b-256", 32, Blake2b(32)),
        ("blake2b256sums", 32, Blake2b(32)),
        ("b3sums", 16, Blake3),
        ("b3sums", 64, Blake3),
        ("a.blake3", 20, Blake3),
        ("md5-and-sha256.txt", 16, Md5),
        ("md5-and-sha256.txt", 32, Sha256),
        ("sha256.sha256", 32, Sha256),
        ("a.xxh3", 8, Xxh3),
        ("a.xxh64", 8, Xxh64),
        ("XXH128SUMS", 16, Xxh128),
        ("xxhsums", 8, Xxh64),
        ("a.xxh", 4, Xxh32),
        ("crc32c.txt", 4, Crc32c),
        // A name of another length says nothing.
        ("SHA512SUMS", 32, Blake3),
        ("md5sums", 20, Sha1),
        ("sha3-512", 32, Blake3),
        // Nor does a directory, or a word in which the name is only a part.
        ("sha256/list", 32, Blake3),
        ("notsha256", 32, Blake3),
        ("sha2561", 32, Blake3),
        ("b2-backup", 32, Blake3),
        ("b3", 20, Sha1),
        ("", 32, Blake3),
        ("-", 32, Blake3),
        ("\u{e4}sha256", 32, Sha256),
    ];
    for (list, bytes, algorithm) in cases {
        assert_eq!(resolved(bytes, &[], Some(list)), Ok(algorithm), "{list:?}: {bytes}");
    }
    let failing = [
        ("sha3-512.txt", 64, "its algorithm is SHA3-512, which is not supported"),
        ("sha3-224", 28, "its algorithm is SHA3-224, which is not supported"),
        ("sha512-256", 32, "its algorithm is SHA512/256, which is not supported"),
        ("SHA512t256SUMS", 32, "its algorithm is SHA512/256, which is not supported"),
        ("whirlpool", 64, "its algorithm is WHIRLPOOL, which is not supported"),
        ("sm3sums", 32, "its algorithm is SM3, which is not supported"),
        (
            "sha256-sha3-256",
            32,
            "a hash of 32 bytes may be SHA256 or SHA3-256: choose with -a ALGORITHM",
        ),
    ];
    for (list, bytes, why) in failing {
        assert_eq!(resolved(bytes, &[], Some(list)), Err(why.to_owned()), "{list:?}: {bytes}");
    }
}

#[test]
fn digests_without_a_tag_by_their_length() {
    use crate::Algorithm::*;
    let cases = [
        (32, Ok(Blake3)),
        (20, Ok(Sha1)),
        (28, Ok(Sha224)),
        (48, Ok(Sha384)),
        (24, Ok(Blake3)),
        (131, Ok(Blake3)),
        (64, Err("a hash of 64 bytes may be SHA512, BLAKE2b or BLAKE3: choose with -a ALGORITHM")),
        (16, Err("a hash of 16 bytes may be MD5, XXH128 or BLAKE3: choose with -a ALGORITHM")),
        (8, Err("a hash of 8 bytes may be XXH3 or XXH64: choose with -a ALGORITHM")),
        (4, Err("a hash of 4 bytes may be XXH32 or CRC32C: choose with -a ALGORITHM")),
        (
            15,
            Err("the hash has 30 hexadecimal digits (15 bytes), which no supported algorithm has"),
        ),
        (1, Err("the hash has 2 hexadecimal digits (1 bytes), which no supported algorithm has")),
    ];
    for (bytes, expected) in cases {
        for list in [None, Some("list")] {
            let found = resolved(bytes, &[], list);
            assert_eq!(found.as_ref().map_err(|why| &**why), expected.as_ref().map_err(|why| *why));
        }
    }
}

/// As for commands by the names of others: `sha256sum --check`.
#[test]
fn tags_of_what_is_not_accepted() {
    use crate::Algorithm::*;
    let named = |algorithm: Algorithm| ParsedDigest {
        algorithm: Some(algorithm),
        digest: vec![7; algorithm.bytes()],
    };
    let all = Hints::new(&[Sha256], &[], Some(b"MD5SUMS"));
    let sha256 = Hints::new(&[], &[Sha256], Some(b"MD5SUMS"));
    let b2sum = Hints::new(&[], &[Blake2b(64)], None);
    for algorithm in Algorithm::ALL {
        assert_eq!(all.algorithm(&named(algorithm)), Ok(algorithm));
        let accepted = sha256.algorithm(&named(algorithm));
        match algorithm {
            Sha256 => assert_eq!(accepted, Ok(Sha256)),
            found => {
                let wanted = "SHA256".to_owned();
                assert_eq!(accepted, Err(Malformed::OtherAlgorithm { found, wanted }));
            }
        }
    }
    assert_eq!(sha256.algorithm(&unnamed(32)), Ok(Sha256));
    assert!(sha256.algorithm(&unnamed(16)).is_err());
    assert_eq!(b2sum.algorithm(&named(Blake2b(7))), Ok(Blake2b(7)));
    assert_eq!(b2sum.algorithm(&unnamed(32)), Ok(Blake2b(32)));
    // As xxhsum: 8 bytes are XXH64, unless a tag or a prefix says XXH3.
    let xxhsum = Hints::new(&[Xxh64, Xxh128, Xxh32], &[Xxh64, Xxh128, Xxh32, Xxh3], None);
    for (bytes, algorithm) in [(4, Xxh32), (8, Xxh64), (16, Xxh128)] {
        assert_eq!(xxhsum.algorithm(&unnamed(bytes)), Ok(algorithm));
    }
    assert_eq!(xxhsum.algorithm(&named(Xxh3)), Ok(Xxh3));
    assert!(xxhsum.algorithm(&named(Md5)).is_err());
}
