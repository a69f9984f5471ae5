//! Known answers of every algorithm, from the documents that define it; names, tags and lengths.

use std::collections::BTreeSet;

use super::*;
use crate::checkfile::Reader;

/// An answer, and where it is written down.
struct Known {
    algorithm: Algorithm,
    source: &'static str,
    input: Vec<u8>,
    digest: &'static str,
}

const ABC: &[u8] = b"abc";
/// The message of two blocks of FIPS 180's examples for blocks of 512 bits: RFC 6234, 8.5, TEST2_1.
const TWO_BLOCKS: &[u8] = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
/// That for blocks of 1,024 bits: RFC 6234, 8.5, TEST2_2.
const TWO_LONG_BLOCKS: &[u8] = b"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno\
    ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu";
/// The last of RFC 1321's test suite (A.5).
const EIGHTY_DIGITS: &[u8] =
    b"12345678901234567890123456789012345678901234567890123456789012345678901234567890";

/// A million letters: RFC 6234, 8.5, TEST3.
fn million() -> Vec<u8> {
    vec![b'a'; 1_000_000]
}

/// The buffer that xxHash's authors test with (xxHash 0.8, tests/sanity_test.c).
fn sanity(len: usize) -> Vec<u8> {
    let mut state = 2_654_435_761_u64;
    let mut next = || {
        let byte = (state >> 56) as u8;
        state = state.wrapping_mul(11_400_714_785_074_694_797);
        byte
    };
    (0..len).map(|_| next()).collect()
}

/// What BLAKE3's authors test with: bytes that count up to 250 (BLAKE3, test_vectors/test_vectors.json).
fn counting(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

fn known(
    algorithm: Algorithm,
    answers: impl IntoIterator<Item = (&'static str, Vec<u8>, &'static str)>,
) -> impl Iterator<Item = Known> {
    let known = move |(source, input, digest)| Known { algorithm, source, input, digest };
    answers.into_iter().map(known)
}

fn secure_hashes() -> Vec<Known> {
    let (rfc, cavp) = ("RFC 6234, 8.5", "NIST CAVP, shabytetestvectors, ShortMsg.rsp, Len = 0");
    let answers = |long: &[u8], digests: [&'static str; 4]| {
        let inputs = [b"".to_vec(), ABC.to_vec(), long.to_vec(), million()];
        let sources = [cavp, rfc, rfc, rfc];
        sources.into_iter().zip(inputs).zip(digests).map(|((s, i), d)| (s, i, d))
    };
    let sha1 = answers(
        TWO_BLOCKS,
        [
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "a9993e364706816aba3e25717850c26c9cd0d89d",
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            "34aa973cd4c4daa4f61eeb2bdbad27316534016f",
        ],
    );
    let sha224 = answers(
        TWO_BLOCKS,
        [
            "d14a028c2a3a2bc9476102bb288234c415a2b01f828ea62ac5b3e42f",
            "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7",
            "75388b16512776cc5dba5da1fd890150b0c6455cb4f58b1952522525",
            "20794655980c91d8bbb4c1ea97618a4bf03f42581948b2ee4ee7ad67",
        ],
    );
    let sha256 = answers(
        TWO_BLOCKS,
        [
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
        ],
    );
    let sha384 = answers(
        TWO_LONG_BLOCKS,
        [
            "38b060a751ac96384cd9327eb1b1e36a21fdb71114be07434c0cc7bf63f6e1da274edebfe76f65fbd51ad2f14898b95b",
            "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
            "09330c33f71147e83d192fc782cd1b4753111b173b3b05d22fa08086e3b0f712fcc7c71a557e2db966c3e9fa91746039",
            "9d0e1809716474cb086e834e310a4a1ced149e9c00f248527972cec5704c2a5b07b8b3dc38ecc4ebae97ddd87f3d8985",
        ],
    );
    let sha512 = answers(
        TWO_LONG_BLOCKS,
        [
            "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            "8e959b75dae313da8cf4f72814fc143f8f7779c6eb9f7fa17299aeadb6889018501d289e4900f7e4331b99dec4b5433ac7d329eeb6dd26545e96e55b874be909",
            "e718483d0ce769644e2e42c7bc15b4638e1f98b13b2044285632a803afa973ebde0ff244877ea60a4cb0432ce577c31beb009c5c2c49aa2e4eadb217ad8cc09b",
        ],
    );
    let mut all: Vec<_> = known(Algorithm::Sha1, sha1).collect();
    all.extend(known(Algorithm::Sha224, sha224));
    all.extend(known(Algorithm::Sha256, sha256));
    all.extend(known(Algorithm::Sha384, sha384));
    all.extend(known(Algorithm::Sha512, sha512));
    all
}

fn other_secure_hashes() -> Vec<Known> {
    let rfc1321 = "RFC 1321, A.5";
    let md5 = [
        (rfc1321, b"".to_vec(), "d41d8cd98f00b204e9800998ecf8427e"),
        (rfc1321, ABC.to_vec(), "900150983cd24fb0d6963f7d28e17f72"),
        (rfc1321, EIGHTY_DIGITS.to_vec(), "57edf4a22be3c955ac49da2e2107b67a"),
    ];
    let sha3 = [
        (
            "NIST, Examples with Intermediate Values, SHA3-256, Msg0",
            b"".to_vec(),
            "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a",
        ),
        (
            "OpenSSL 3, openssl dgst -sha3-256",
            ABC.to_vec(),
            "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532",
        ),
        (
            "NIST, Examples with Intermediate Values, SHA3-256, Msg1600",
            vec![0xa3; 200],
            "79f38adec5c20307a98ef76e8324afbfd46cfd81b22e3973c65fa1bd9de31787",
        ),
    ];
    let kat = "BLAKE2, testvectors/blake2-kat.json, blake2b without a key";
    let blake2b = [
        (
            kat,
            b"".to_vec(),
            "786a02f742015903c6c6fd852552d272912f4740e15847618a86e217f71f5419d25e1031afee585313896444934eb04b903a685b1448b755d56f701afe9be2ce",
        ),
        (
            "RFC 7693, appendix A",
            ABC.to_vec(),
            "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d17d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923",
        ),
        (
            kat,
            (0..255).collect(),
            "5b21c5fd8868367612474fa2e70e9cfa2201ffeee8fafab5797ad58fefa17c9b5b107da4a3db6320baaf2c8617d5a51df914ae88da3867c2d41f0cc14fa67928",
        ),
    ];
    let short = "GNU coreutils 9, b2sum --length 256";
    let blake2b_256 = [
        (short, b"".to_vec(), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"),
        (short, ABC.to_vec(), "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"),
    ];
    let vectors = "BLAKE3, test_vectors/test_vectors.json, hash";
    let blake3 = [
        (vectors, b"".to_vec(), "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
        (
            "b3sum 1.8",
            ABC.to_vec(),
            "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
        ),
        (
            vectors,
            counting(1025),
            "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444",
        ),
        (
            vectors,
            counting(31_744),
            "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47",
        ),
    ];
    let mut all: Vec<_> = known(Algorithm::Md5, md5).collect();
    all.extend(known(Algorithm::Sha3_256, sha3));
    all.extend(known(Algorithm::Blake2b(64), blake2b));
    all.extend(known(Algorithm::Blake2b(32), blake2b_256));
    all.extend(known(Algorithm::Blake3, blake3));
    all
}

fn checksums() -> Vec<Known> {
    let authors = "xxHash 0.8, tests/sanity_test_vectors.h, seed 0";
    let command = "xxhsum 0.8";
    let xxh32 = [
        (authors, b"".to_vec(), "02cc5d05"),
        (command, ABC.to_vec(), "32d153ff"),
        (authors, sanity(1), "cf65b03e"),
        (authors, sanity(14), "1208e7e2"),
        (authors, sanity(222), "5bd11dbd"),
    ];
    let xxh64 = [
        (authors, b"".to_vec(), "ef46db3751d8e999"),
        (command, ABC.to_vec(), "44bc2cf5ad770999"),
        (authors, sanity(1), "e934a84adb052768"),
        (authors, sanity(14), "8282dcc4994e35c8"),
        (authors, sanity(222), "b641ae8cb691c174"),
    ];
    // Each length takes another way through XXH3.
    let xxh3 = [
        (authors, b"".to_vec(), "2d06800538d394c2"),
        (command, ABC.to_vec(), "78af5f94892f3950"),
        (authors, sanity(1), "c44bdff4074eecdb"),
        (authors, sanity(6), "27b56a84cd2d7325"),
        (authors, sanity(12), "a713daf0dfbb77e7"),
        (authors, sanity(24), "a3fe70bf9d3510eb"),
        (authors, sanity(48), "397da259ecba1f11"),
        (authors, sanity(80), "bcdefbbb2c47c90a"),
        (authors, sanity(195), "cd94217ee362ec3a"),
        (authors, sanity(403), "cdeb804d65c6dea4"),
        (authors, sanity(512), "617e49599013cb6b"),
        (authors, sanity(2048), "dd59e2c3a5f038e0"),
        (authors, sanity(2240), "6e73a90539cf2948"),
        (authors, sanity(2367), "cb37aeb9e5d361ed"),
    ];
    let xxh128 = [
        (authors, b"".to_vec(), "99aa06d3014798d86001c324468d497f"),
        (command, ABC.to_vec(), "06b05ab6733a618578af5f94892f3950"),
        (authors, sanity(1), "a6cd5e9392000f6ac44bdff4074eecdb"),
        (authors, sanity(6), "082afe0b8162d12a3e7039bdda43cfc6"),
        (authors, sanity(48), "a002ac4e5478227ef942219aed80f67b"),
        (authors, sanity(222), "337e09641b948717f1aebd597cec6b3a"),
        (authors, sanity(403), "1b6de21e332dd73dcdeb804d65c6dea4"),
        (authors, sanity(2048), "f736557fd47073a5dd59e2c3a5f038e0"),
        (authors, sanity(2367), "e89c0f6ff369b427cb37aeb9e5d361ed"),
    ];
    // (RFC 3720 writes the bytes as they are sent, the least significant first.)
    let iscsi = "RFC 3720, appendix B.4";
    let crc32c = [
        ("by definition", b"".to_vec(), "00000000"),
        ("RHash 1.4, rhash --crc32c", ABC.to_vec(), "364b3fb7"),
        (
            "Catalogue of parametrised CRC algorithms, CRC-32/ISCSI, check",
            b"123456789".to_vec(),
            "e3069283",
        ),
        (iscsi, vec![0; 32], "8a9136aa"),
        (iscsi, vec![0xff; 32], "62a8ab43"),
        (iscsi, (0..32).collect(), "46dd794e"),
        (iscsi, (0..32).rev().collect(), "113fdb5c"),
    ];
    let mut all: Vec<_> = known(Algorithm::Xxh32, xxh32).collect();
    all.extend(known(Algorithm::Xxh64, xxh64));
    all.extend(known(Algorithm::Xxh3, xxh3));
    all.extend(known(Algorithm::Xxh128, xxh128));
    all.extend(known(Algorithm::Crc32c, crc32c));
    all
}

fn all_known() -> Vec<Known> {
    let mut all = secure_hashes();
    all.extend(other_secure_hashes());
    all.extend(checksums());
    all
}

fn digest(algorithm: Algorithm, pieces: &[&[u8]]) -> String {
    let mut hasher = AlgorithmHasher::new(algorithm, &Mode::Hash);
    pieces.iter().for_each(|piece| hasher.update(piece));
    hasher.finalize().to_string()
}

/// The digest of nothing.
fn empty(algorithm: Algorithm) -> Digest {
    AlgorithmHasher::new(algorithm, &Mode::Hash).finalize()
}

#[test]
fn known_answers_are_given() {
    let all = all_known();
    for Known { algorithm, source, input, digest: expected } in &all {
        let len = input.len();
        assert_eq!(digest(*algorithm, &[input]), *expected, "{algorithm}, {len} bytes: {source}");
    }
    for algorithm in Algorithm::ALL {
        let of = |input: &[u8]| {
            all.iter().any(|known| known.algorithm == algorithm && known.input == input)
        };
        assert!(of(b"") && of(ABC), "{algorithm}: nothing is known of the empty input, or of abc");
        let long = all.iter().any(|known| known.algorithm == algorithm && known.input.len() > 30);
        assert!(long, "{algorithm}: nothing long is known");
    }
}

/// Blocks end anywhere: inside what an algorithm takes at once, between, and with nothing in them.
#[test]
fn pieces_make_the_same_as_the_whole() {
    for Known { algorithm, input, digest: expected, .. } in all_known() {
        for size in [1, 3, 63, 64, 65, 127, 128, 129, 1000, 1024, 4096] {
            // (A million pieces of one byte tell nothing that thousands do not.)
            if input.len() / size > 20_000 {
                continue;
            }
            let mut pieces: Vec<&[u8]> = vec![&[]];
            pieces.extend(input.chunks(size));
            pieces.push(&[]);
            assert_eq!(digest(algorithm, &pieces), expected, "{algorithm}: pieces of {size}");
        }
    }
}

#[test]
fn digests_are_as_long_as_is_said() {
    let lengths = [32, 32, 64, 48, 28, 20, 16, 32, 64, 8, 16, 8, 4, 4];
    for (algorithm, length) in Algorithm::ALL.into_iter().zip(lengths) {
        assert_eq!(algorithm.bytes(), length, "{algorithm}");
        assert_eq!(empty(algorithm).to_vec().len(), length, "{algorithm}");
    }
    for bytes in 1..=64 {
        assert_eq!(Algorithm::Blake2b(bytes).bytes(), usize::from(bytes));
        assert_eq!(empty(Algorithm::Blake2b(bytes)).to_vec().len(), usize::from(bytes));
    }
}

#[test]
#[should_panic]
fn blake2b_of_no_bytes_is_nothing() {
    empty(Algorithm::Blake2b(0));
}

#[test]
#[should_panic]
fn blake2b_has_64_bytes_at_most() {
    empty(Algorithm::Blake2b(65));
}

#[test]
fn every_name_is_found_again_and_is_one() {
    let names: BTreeSet<_> = Algorithm::ALL.into_iter().map(Algorithm::name).collect();
    assert_eq!(names.len(), Algorithm::ALL.len());
    for algorithm in Algorithm::ALL {
        assert_eq!(Algorithm::from_name(algorithm.name()), Some(algorithm));
    }
    for (name, algorithm) in [
        ("SHA256", Algorithm::Sha256),
        ("sha-256", Algorithm::Sha256),
        ("SHA3_256", Algorithm::Sha3_256),
        ("sha3", Algorithm::Sha3_256),
    ] {
        assert_eq!(Algorithm::from_name(name), Some(algorithm));
    }
    for other in ["", "blake2", "blake2b-256", "xxhash", "list", " md5"] {
        assert_eq!(Algorithm::from_name(other), None, "{other:?}");
    }
    // The length is no part of the name.
    assert_eq!(Algorithm::Blake2b(20).name(), "blake2b");
}

/// What is written into lists is what other tools write there, and is read again.
#[test]
fn tags_are_those_of_other_tools() {
    let tags = [
        "BLAKE3", "SHA256", "SHA512", "SHA384", "SHA224", "SHA1", "MD5", "SHA3-256", "BLAKE2b",
        "XXH3", "XXH128", "XXH64", "XXH32", "CRC32C",
    ];
    let lengths = (1..=64).map(Algorithm::Blake2b);
    for (algorithm, tag) in Algorithm::ALL.into_iter().zip(tags) {
        assert_eq!(algorithm.to_string(), tag);
    }
    assert_eq!(Algorithm::Blake2b(32).to_string(), "BLAKE2b-256");
    assert_eq!(Algorithm::Blake2b(1).to_string(), "BLAKE2b-8");
    for algorithm in Algorithm::ALL.into_iter().chain(lengths) {
        let line = format!("{algorithm} (a) = {}\n", empty(algorithm));
        let mut reader = Reader::default();
        let parsed = reader.line(line.as_bytes()).unwrap().unwrap();
        assert_eq!(parsed.first.algorithm, algorithm, "{line}");
    }
}

#[test]
fn only_unbroken_cryptographic_hashes_resist_forgery() {
    let resist: Vec<_> = Algorithm::ALL.into_iter().filter(|a| a.resists_forgery()).collect();
    use Algorithm::*;
    assert_eq!(resist, [Blake3, Sha256, Sha512, Sha384, Sha224, Sha3_256, Blake2b(64)]);
    assert!(Blake2b(32).resists_forgery() && !Blake2b(31).resists_forgery());
}

#[test]
fn of_several_each_is_there_once_in_the_order_of_asking() {
    let mut algorithms = Algorithms::from(Algorithm::Md5);
    assert!(algorithms.add(Algorithm::Blake2b(20)));
    assert!(algorithms.add(Algorithm::Blake3));
    assert!(!algorithms.add(Algorithm::Md5), "there already");
    assert!(!algorithms.add(Algorithm::Blake2b(64)), "there already, of another length");
    let expected = [Algorithm::Md5, Algorithm::Blake2b(20), Algorithm::Blake3];
    assert_eq!(*algorithms, expected);
    assert_eq!(format!("{algorithms:?}"), "[Md5, Blake2b(20), Blake3]");
    assert!(!algorithms.is_blake3());
    // There is room for all.
    let mut all = Algorithms::from(Algorithm::Crc32c);
    for algorithm in Algorithm::ALL {
        assert_eq!(all.add(algorithm), algorithm != Algorithm::Crc32c);
    }
    assert_eq!(all.len(), Algorithm::ALL.len());
    assert_eq!(all[1..], Algorithm::ALL[..13]);
}

#[test]
fn blake3_alone_is_the_default() {
    assert!(Algorithms::default().is_blake3());
    assert_eq!(Algorithms::default(), Algorithms::from(Algorithm::Blake3));
    let mut more = Algorithms::default();
    assert!(!more.add(Algorithm::Blake3) && more.is_blake3());
    assert!(more.add(Algorithm::Sha256) && !more.is_blake3());
    assert!(!Algorithms::from(Algorithm::Sha256).is_blake3());
}
