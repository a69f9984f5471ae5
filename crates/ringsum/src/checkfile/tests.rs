//! Parsing lines: the tables of `docs/formats.md`, and lines that real tools wrote.

mod properties;
mod resolving;

use super::resolve::Hints;
use super::*;
use crate::Options;

/// BLAKE3 of nothing.
const HASH: &str = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";

// Of `hello`, as the tools named in `lines_of_real_tools` gave them.
const MD5: &str = "5d41402abc4b2a76b9719d911017c592";
const SHA1: &str = "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d";
const SHA224: &str = "ea09ae9cc6768c50fcee903ed054556e5bfc8347907f12598aa24193";
const SHA256: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
const SHA384: &str = "59e1748777448c69de6b800d7a33bbfb9ff1b463e44354c3553bcdb9c666fa90\
                      125a3c79f90397bdf5f6a13de828684f";
const SHA512: &str = "9b71d224bd62f3785d96d46ad3ea3d73319bfbc2890caadae2dff72519673ca7\
                      2323c3d99ba5c11d7c7acc6e14b8c5da0c4663475c2e5c3adef46f73bcdec043";
const SHA3_256: &str = "3338be694f50c5f338814986cdf0686453a888b84f424d792af4b9202398f392";
const BLAKE2B: &str = "e4cfa39a3d37be31c59609e807970799caa68a19bfaa15135f165085e01d41a6\
                       5ba1e1b146aeb6bd0092b49eac214c103ccfa3a365954bbbe52f74a2b3620c94";
const BLAKE2B_256: &str = "324dcf027dd4a30a932c441f365a25e86b173defa4b8e58948253471b81b72cf";
const BLAKE3: &str = "ea8f163db38682925e4491c5e58d4bb3506ef8c14eb78a86e908c5624a67200f";

fn newline() -> Reader {
    Reader::default()
}

fn nul() -> Reader {
    Reader::new(&[], &[], None, LineEnd::Nul)
}

/// The name in the only line of a list.
fn name_of(line: &str) -> Result<Option<String>, Malformed> {
    let mut reader = newline();
    let entry = reader.parse(line.as_bytes())?;
    Ok(entry.map(|entry| String::from_utf8(entry.name.into_owned()).unwrap()))
}

/// The tag, digest and name of the only line of a list.
fn all_of(line: &str) -> (Option<Algorithm>, String, String) {
    let mut reader = newline();
    let entry = reader.parse(line.as_bytes()).unwrap_or_else(|why| panic!("{line:?}: {why}"));
    let entry = entry.unwrap_or_else(|| panic!("{line:?} names no file"));
    assert!(entry.more.is_empty() && entry.size.is_none(), "{line:?}");
    let name = String::from_utf8(entry.name.into_owned()).unwrap();
    (entry.first.algorithm, hex::encode(entry.first.digest), name)
}

#[test]
fn lines_that_name_a_file() {
    let upper = HASH.to_uppercase();
    let short = &HASH[..32];
    let cases = [
        (format!("{HASH}  a"), "a"),
        (format!("{HASH}  a\n"), "a"),
        (format!("{HASH}  a\r\n"), "a"),
        (format!("{upper}  a"), "a"),
        (format!("{short}  a"), "a"),
        (format!("{HASH}{HASH}  a"), "a"),
        (format!("{HASH} *a"), "a"),
        (format!("{HASH}  *a"), "*a"),
        (format!("{HASH}   a "), " a "),
        (format!("{HASH}  a  b"), "a  b"),
        (format!("{HASH}  #a"), "#a"),
        (format!("{HASH}  (a) = b"), "(a) = b"),
        (format!("{HASH}  a\\nb"), "a\\nb"),
        (format!("\\{HASH}  a\\nb\\\\\\r"), "a\nb\\\r"),
        (format!("BLAKE3 (a) = {HASH}"), "a"),
        (format!("BLAKE3 (a  b) = {upper}\r\n"), "a  b"),
        (format!("BLAKE3 (a) = b) = {HASH}"), "a) = b"),
        (format!("\\BLAKE3 (a\\n) = {HASH}"), "a\n"),
        (format!("BLAKE3 () = b) = {HASH}"), ") = b"),
        (format!("BLAKE3 (a) = {HASH}{HASH}"), "a"),
        (format!("SHA2-256(a)= b)= {HASH}"), "a)= b"),
        (format!("XXH3_{}  XXH3_", &HASH[..16]), "XXH3_"),
    ];
    for (line, name) in cases {
        assert_eq!(name_of(&line), Ok(Some(name.to_owned())), "{line:?}");
    }
}

#[test]
fn lines_that_say_nothing() {
    for line in ["", "\n", "\r\n", "  \t\n", "# comment", "#", "## \n", "%%%% HASHDEEP-1.0"] {
        assert_eq!(name_of(line), Ok(None), "{line:?}");
    }
}

#[test]
fn lines_that_are_malformed() {
    use Malformed::*;
    let length = |algorithm, bytes| Length { algorithm, bytes };
    let cases = [
        ("hello".to_owned(), Shape),
        (format!("{HASH} a"), Shape),
        (format!("{HASH}\ta"), Shape),
        (format!(" {HASH}  a"), Shape),
        (HASH.to_owned(), Shape),
        ("\\".to_owned(), Shape),
        (format!("BLAKE3(a)= {HASH}"), Shape),
        (format!("SHA256(a) = {HASH}"), Shape),
        (format!("SHA256 (a)= {HASH}"), Shape),
        (format!("SHA256  (a) = {HASH}"), Shape),
        (format!("(a) = {HASH}"), Shape),
        (format!("1,{MD5},a"), Shape),
        (format!("{}  a", &HASH[..33]), OddDigits(33)),
        (format!("BLAKE3 (a) = {}", &HASH[..33]), OddDigits(33)),
        (format!("BLAKE3 (a) = {}", &HASH[..10]), length(Algorithm::Blake3, 5)),
        (format!("BLAKE3 (a) = {}x", &HASH[1..]), DigestDigits),
        (format!("BLAKE3 (a) = {HASH} "), DigestDigits),
        ("BLAKE3 (a) = ".to_owned(), length(Algorithm::Blake3, 0)),
        (format!("SHA256 (a) = {MD5}"), length(Algorithm::Sha256, 16)),
        (format!("MD5 (a) = {SHA256}"), length(Algorithm::Md5, 32)),
        (format!("SHA384 (a) = {SHA256}"), length(Algorithm::Sha384, 32)),
        (format!("BLAKE2b (a) = {BLAKE2B_256}"), length(Algorithm::Blake2b(64), 32)),
        (format!("BLAKE2b-256 (a) = {BLAKE2B}"), length(Algorithm::Blake2b(32), 64)),
        (format!("XXH3_{MD5}  a"), length(Algorithm::Xxh3, 16)),
        // One `=` more or less.
        ("MD5 (a) = XUFAKrxLKna5cZ2REBfFkg=".to_owned(), DigestDigits),
        ("MD5 (a) = XUFAKrxLKna5cZ2REBfFkg===".to_owned(), DigestDigits),
        // Bits after the last byte.
        ("MD5 (a) = XUFAKrxLKna5cZ2REBfFkh==".to_owned(), DigestDigits),
        ("XUFAKrxLKna5cZ2REBfFkg=  a".to_owned(), Shape),
        ("Internationalizationabcd  a".to_owned(), Shape),
        ("that  file".to_owned(), Shape),
        (format!("\\{HASH}  a\\x"), Escape),
        (format!("\\{HASH}  a\\"), Escape),
        (format!("\\SHA1 (a\\x) = {SHA1}"), Escape),
        (format!("{HASH}  a\0b"), Nul),
        (format!("{HASH}  "), NoName),
        (format!("{HASH}  {}", "a".repeat(LINE_BYTES_MAX)), TooLong),
        (format!("BLAKE3 () = {HASH}"), NoName),
        ("3287646509 5 a".to_owned(), Cksum),
        ("532 1 a".to_owned(), Cksum),
        // sum pads the second number.
        ("08403     1 a".to_owned(), OddDigits(5)),
        (format!("{SHA1} Ua"), Mode('U')),
        (format!("{SHA1} ^a"), Mode('^')),
        (format!("{SHA1} ?a"), Mode('?')),
        ("%%%% HASHDEEP-2.0".to_owned(), Header),
        ("%%%% size,md5".to_owned(), Header),
        ("%%%% \u{fffd}".to_owned(), Header),
    ];
    for (line, expected) in cases {
        assert_eq!(name_of(&line), Err(expected), "{line:?}");
    }
}

#[test]
fn tags_that_are_not_supported() {
    let tags = [
        "SHA512/256",
        "SHA2-512/256",
        "HMAC-SHA2-256",
        "BLAKE2b-257",
        "BLAKE2b-0256",
        "BLAKE2b-520",
        "BLAKE2b-0",
        "SM3",
        "CRC",
        "BSD",
        "blake3",
        "SHA3-512",
        "sha256",
        "XXH3_BE",
        "BLAKE2b-",
    ];
    for tag in tags {
        let why = Err(Malformed::Unsupported(tag.to_owned()));
        // Whatever follows it.
        for line in [format!("{tag} (a) = {HASH}"), format!("{tag}(a)= 1"), format!("{tag} () = ")]
        {
            assert_eq!(name_of(&line), why, "{line:?}");
        }
    }
}

/// What each tool wrote for a file `a` with `hello` in it, and what that comes to.
#[test]
fn lines_of_real_tools() {
    use crate::Algorithm::*;
    let none = None;
    let (xxh32, xxh64, xxh3) = ("fb0077f9", "26c7827d889f6da3", "9555e8555c62dcfd");
    let xxh128 = "b5e9c1ad071b3e7fc779cfaa5e523818";
    let cases = [
        // b3sum 1.8
        (format!("{BLAKE3}  a"), none, BLAKE3),
        (format!("BLAKE3 (a) = {BLAKE3}"), Some(Blake3), BLAKE3),
        // GNU coreutils 9.1: sha256sum, with --binary and --tag; b2sum; cksum -a
        (format!("{SHA256}  a"), none, SHA256),
        (format!("{SHA256} *a"), none, SHA256),
        (format!("SHA256 (a) = {SHA256}"), Some(Sha256), SHA256),
        (format!("MD5 (a) = {MD5}"), Some(Md5), MD5),
        (format!("SHA1 (a) = {SHA1}"), Some(Sha1), SHA1),
        (format!("SHA224 (a) = {SHA224}"), Some(Sha224), SHA224),
        (format!("SHA384 (a) = {SHA384}"), Some(Sha384), SHA384),
        (format!("SHA512 (a) = {SHA512}"), Some(Sha512), SHA512),
        (format!("BLAKE2b (a) = {BLAKE2B}"), Some(Blake2b(64)), BLAKE2B),
        (format!("BLAKE2b-256 (a) = {BLAKE2B_256}"), Some(Blake2b(32)), BLAKE2B_256),
        ("BLAKE2b-8 (a) = 29".to_owned(), Some(Blake2b(1)), "29"),
        // coreutils 9.8: cksum -a sha3 -l 256; and what it reads
        (format!("SHA3-256 (a) = {SHA3_256}"), Some(Sha3_256), SHA3_256),
        (format!("SHA3-256(a)= {SHA3_256}"), Some(Sha3_256), SHA3_256),
        // shasum 6.02: also -b
        (format!("{SHA1}  a"), none, SHA1),
        (format!("{SHA1} *a"), none, SHA1),
        // xxhsum 0.8.1: -H0 to -H3, with --tag, with --little-endian; 0.8.2: -H3
        (format!("{xxh32}  a"), none, xxh32),
        (format!("{xxh64}  a"), none, xxh64),
        (format!("{xxh128}  a"), none, xxh128),
        (format!("XXH3_{xxh3}  a"), Some(Xxh3), xxh3),
        (format!("XXH32 (a) = {xxh32}"), Some(Xxh32), xxh32),
        (format!("XXH64 (a) = {xxh64}"), Some(Xxh64), xxh64),
        (format!("XXH128 (a) = {xxh128}"), Some(Xxh128), xxh128),
        (format!("XXH3 (a) = {xxh3}"), Some(Xxh3), xxh3),
        ("XXH32_LE (a) = f97700fb".to_owned(), Some(Xxh32), xxh32),
        ("XXH64_LE (a) = a36d9f887d82c726".to_owned(), Some(Xxh64), xxh64),
        ("XXH128_LE (a) = 1838525eaacf79c77f3e1b07adc1e9b5".to_owned(), Some(Xxh128), xxh128),
        ("XXH3_LE (a) = fddc625c55e85595".to_owned(), Some(Xxh3), xxh3),
        // md5deep 4.4, with -k
        (format!("{MD5}  a"), none, MD5),
        (format!("{MD5} *a"), none, MD5),
    ];
    are_of_a(&cases);
}

/// The same for those with tags of their own.
#[test]
fn lines_of_openssl_and_rhash() {
    use crate::Algorithm::*;
    let none = None;
    are_of_a(&[
        // OpenSSL 3.0: dgst, with -r; 1.1
        (format!("{SHA256} *a"), none, SHA256),
        (format!("MD5(a)= {MD5}"), Some(Md5), MD5),
        (format!("SHA1(a)= {SHA1}"), Some(Sha1), SHA1),
        (format!("SHA2-224(a)= {SHA224}"), Some(Sha224), SHA224),
        (format!("SHA2-256(a)= {SHA256}"), Some(Sha256), SHA256),
        (format!("SHA2-384(a)= {SHA384}"), Some(Sha384), SHA384),
        (format!("SHA2-512(a)= {SHA512}"), Some(Sha512), SHA512),
        (format!("SHA3-256(a)= {SHA3_256}"), Some(Sha3_256), SHA3_256),
        (format!("BLAKE2B-512(a)= {BLAKE2B}"), Some(Blake2b(64)), BLAKE2B),
        (format!("SHA256(a)= {SHA256}"), Some(Sha256), SHA256),
        (format!("BLAKE2b512(a)= {BLAKE2B}"), Some(Blake2b(64)), BLAKE2B),
        // RHash 1.4.3: --bsd, --uppercase; --crc32c; --base64
        (format!("MD5   (a) = {MD5}"), Some(Md5), MD5),
        (format!("SHA1  (a) = {SHA1}"), Some(Sha1), SHA1),
        (format!("SHA256 (a) = {}", SHA256.to_uppercase()), Some(Sha256), SHA256),
        ("CRC32C (a) = 9a71bb4c".to_owned(), Some(Crc32c), "9a71bb4c"),
        ("9a71bb4c  a".to_owned(), none, "9a71bb4c"),
        ("Mzi+aU9QxfM4gUmGzfBoZFOoiLhPQk15KvS5ICOY85I=  a".to_owned(), none, SHA3_256),
    ]);
}

/// Each line, and what the tag and the digest in it are.
fn are_of_a(cases: &[(String, Option<Algorithm>, &str)]) {
    for (line, algorithm, digest) in cases {
        let expected = (*algorithm, (*digest).to_owned(), "a".to_owned());
        assert_eq!(all_of(line), expected, "{line:?}");
    }
}

/// Digests of an empty file, as `cksum --base64` of GNU coreutils 9.2 gives them.
#[test]
fn digests_in_base64() {
    use crate::Algorithm::*;
    let cases = [
        (Md5, "1B2M2Y8AsgTpgAmY7PhCfg=="),
        (Sha1, "2jmj7l5rSw0yVb/vlWAYkK/YBwk="),
        (Sha224, "0UoCjCo6K8lHYQK7KII0xBWisB+CjqYqxbPkLw=="),
        (Sha256, "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="),
        (Sha384, "OLBgp1GsljhM2TJ+sbHjaiH9txEUvgdDTAzHv2P24donTt6/529l+9Ua0vFImLlb"),
        (
            Sha512,
            "z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
        ),
        (
            Blake2b(64),
            "eGoC90IBWQPGxv2FJVLScpEvR0DhWEdhiobiF/cfVBnSXhAxr+5YUxOJZESTTrBLkDpoWxRIt1XVb3Aa/pvizg==",
        ),
    ];
    for (algorithm, digits) in cases {
        let options = Options { algorithms: algorithm.into(), ..Options::default() };
        let digest = crate::digest_bytes(b"", &options)[0].to_string();
        let name = "a".to_owned();
        let tagged = all_of(&format!("{algorithm} (a) = {digits}"));
        assert_eq!(tagged, (Some(algorithm), digest.clone(), name.clone()), "{algorithm}");
        assert_eq!(all_of(&format!("{digits}  a")), (None, digest, name), "{algorithm}");
    }
    // Four digits of base64 that are hexadecimal, too.
    assert_eq!(all_of("BLAKE2b-24 (a) = beef").1, hex::encode([0x6d, 0xe7, 0x9f]));
    assert_eq!(all_of("BLAKE2b-24 (a) = beefee").1, "beefee");
    assert_eq!(all_of("BLAKE2b-16 (a) = beef").1, "beef");
}

/// What hashdeep 4.4 wrote.
#[test]
fn lists_of_hashdeep() {
    let mut reader = newline();
    let tiger = "2cfd7f6f336288a7f2741b9bf874388a54026639cadb7bf2";
    let whirlpool = "0a25f55d7308eca6b9567a7ed3bd1b46327f0f1ffdc804dd8bb5af40e88d78b8\
                     8df0d002a89e2fdbd5876c523f1b67bc44e9f87047598e7548298ea1c81cfd73";
    let mut nothing = |line: &str| assert_eq!(reader.parse(line.as_bytes()), Ok(None), "{line}");
    nothing("%%%% HASHDEEP-1.0\n");
    nothing("%%%% size,md5,sha1,sha256,tiger,whirlpool,filename\n");
    nothing("## Invoked from: /tmp\n");
    nothing("## # hashdeep -c md5,sha1,sha256,tiger,whirlpool -l a,b\n");
    nothing("## \n");
    let row = format!("5,{MD5},{SHA1},{SHA256},{tiger},{whirlpool},a,\\n\n");
    let expected = |algorithm, digits| ParsedDigest {
        algorithm: Some(algorithm),
        digest: hex::decode(digits).unwrap(),
    };
    let entry = ParsedLine {
        first: expected(Algorithm::Md5, MD5),
        more: vec![expected(Algorithm::Sha1, SHA1), expected(Algorithm::Sha256, SHA256)],
        size: Some(5),
        name: Cow::Borrowed(b"a,\\n"),
        listed: Cow::Borrowed(b"a,\\n"),
    };
    assert_eq!(reader.parse(row.as_bytes()), Ok(Some(entry.clone())));
    // Of those that are accepted.
    let accepting =
        |accepted: &[Algorithm]| entry.clone().resolve(&Hints::new(&[], accepted, None));
    let sha256 = accepting(&[Algorithm::Sha256]).unwrap();
    assert_eq!((sha256.first.algorithm, sha256.more.len()), (Algorithm::Sha256, 0));
    assert_eq!(accepting(&[]).unwrap().more.len(), 2);
    let why = accepting(&[Algorithm::Xxh3, Algorithm::Blake3]).unwrap_err();
    assert_eq!(why.to_string(), "its algorithm is MD5, not XXH3 or BLAKE3");
    // Other lines may follow, and another list.
    let plain = format!("{SHA256}  a");
    assert_eq!(reader.parse(plain.as_bytes()).unwrap().unwrap().first.algorithm, None);
    let cases = [
        (format!("5,{MD5},{SHA1},{SHA256},{tiger},a"), Malformed::Shape),
        (format!("99999999999999999999,{}", &row[2..]), Malformed::Shape),
        (format!("5,{MD5},{MD5},{SHA256},,,a"), {
            Malformed::Length { algorithm: Algorithm::Sha1, bytes: 16 }
        }),
        (format!("5,{MD5},{SHA1},{SHA256},,,"), Malformed::NoName),
    ];
    for (line, why) in cases {
        assert_eq!(reader.parse(line.as_bytes()), Err(why), "{line}");
    }
    assert_eq!(reader.parse(b"%%%% size,tiger,sha3,filename"), Ok(None));
    let why = Malformed::Unsupported("tiger, sha3".to_owned());
    assert_eq!(reader.parse(format!("5,{tiger},00,a").as_bytes()), Err(why));
    // The columns are those of the list that begins here.
    assert_eq!(reader.parse(b"%%%% HASHDEEP-1.0"), Ok(None));
    assert_eq!(reader.parse(format!("5,{tiger},00,a").as_bytes()), Err(Malformed::Shape));
}

/// With `hashdeep -0` only entries end with NUL.
#[test]
fn lists_of_hashdeep_that_end_with_nul() {
    let mut reader = nul();
    let start =
        "%%%% HASHDEEP-1.0\n%%%% size,md5,filename\n## Invoked from: /\n## # hashdeep\n## \n";
    for line in [format!("{start}5,{MD5},a\\n\n\0"), format!("5,{MD5},a\\n\n\0")] {
        let entry = reader.parse(line.as_bytes()).unwrap().unwrap();
        assert_eq!((&*entry.name, entry.size), (&b"a\\n\n"[..], Some(5)));
    }
    assert_eq!(reader.parse(start.as_bytes()), Ok(None));
    assert_eq!(reader.parse(b"%%%% HASHDEEP-1.0"), Ok(None));
}

#[test]
fn lines_that_end_with_nul() {
    let name = |line: &str| {
        let mut reader = nul();
        let entry = reader.parse(line.as_bytes());
        entry.map(|entry| entry.map(|entry| String::from_utf8(entry.name.into()).unwrap()))
    };
    let is = |name: &str| Ok(Some(name.to_owned()));
    assert_eq!(name(&format!("{HASH}  a\n\r\n\0")), is("a\n\r\n"));
    assert_eq!(name(&format!("MD5 (a\\n) = {MD5}\0")), is("a\\n"));
    assert_eq!(name(&format!("MD5(a)= {MD5}")), is("a"));
    assert_eq!(name("\0"), Ok(None));
    assert_eq!(name("#\0"), Ok(None));
    assert_eq!(name(&format!("\\{HASH}  a\0")), Err(Malformed::Shape));
    assert_eq!(name(&format!("MD5 (a) = {MD5}\n\0")), Err(Malformed::DigestDigits));
    assert_eq!(name(" \0"), Err(Malformed::Shape));
}

/// Thousands of lines of all tools, and lines that are none, in one list.
#[test]
fn a_mixed_list() {
    let mut reader = newline();
    let hints = Hints::new(&[], &[], Some(b"SHA256SUMS"));
    assert_eq!(reader.parse(b"%%%% HASHDEEP-1.0\n"), Ok(None));
    assert_eq!(reader.parse(b"%%%% size,sha1,filename\n"), Ok(None));
    let (mut entries, mut nothing, mut malformed) = (0, 0, 0);
    for i in 0..7000 {
        let name = format!("f,{i}");
        let (line, algorithm) = match i % 7 {
            0 => (format!("{SHA256}  {name}\n"), Some(Algorithm::Sha256)),
            1 => (format!("MD5   ({name}) = {MD5}\r\n"), Some(Algorithm::Md5)),
            2 => (format!("{i},{SHA1},{name}\n"), Some(Algorithm::Sha1)),
            3 => (format!("\\SHA2-512({name})= {SHA512}\n"), Some(Algorithm::Sha512)),
            4 => ("XUFAKrxLKna5cZ2REBfFkg==  f\n".to_owned(), None),
            5 => (format!("# {SHA256}  {name}\n"), None),
            _ => (format!("XXH3_{}  {name}", &SHA1[..16]), Some(Algorithm::Xxh3)),
        };
        let entry = reader.parse(line.as_bytes()).unwrap();
        match (entry.map(|entry| entry.resolve(&hints)), algorithm) {
            (Some(Ok(entry)), Some(algorithm)) => {
                assert_eq!((entry.first.algorithm, &*entry.name), (algorithm, name.as_bytes()));
                assert_eq!(entry.size, (i % 7 == 2).then_some(i));
                entries += 1;
            }
            (Some(Err(Malformed::Ambiguous { bytes: 16, .. })), None) => malformed += 1,
            (None, None) => nothing += 1,
            (other, _) => panic!("{line:?}: {other:?}"),
        }
    }
    assert_eq!((entries, nothing, malformed), (5000, 1000, 1000));
}

#[test]
fn what_is_written() {
    let line = |algorithm: Algorithm, style, name: &str| {
        let (before, after) = line_around(name.as_bytes(), style, algorithm, LineEnd::Newline);
        String::from_utf8([&before, &b"00"[..], &after].concat()).unwrap()
    };
    use crate::Algorithm::*;
    assert_eq!(line(Blake3, Style::Plain, "a"), "00  a");
    assert_eq!(line(Sha256, Style::Plain, "a\nb"), "\\00  a\\nb");
    assert_eq!(line(Xxh3, Style::Plain, "a"), "XXH3_00  a");
    assert_eq!(line(Xxh3, Style::Plain, "\\"), "\\XXH3_00  \\\\");
    assert_eq!(line(Sha256, Style::Tag, "a"), "SHA256 (a) = 00");
    assert_eq!(line(Xxh3, Style::Tag, "a"), "XXH3 (a) = 00");
    assert_eq!(line(Blake2b(64), Style::Tag, "a\r"), "\\BLAKE2b (a\\r) = 00");
    assert_eq!(line(Blake2b(32), Style::Tag, "a"), "BLAKE2b-256 (a) = 00");
    assert_eq!(line(Sha3_256, Style::Tag, "a"), "SHA3-256 (a) = 00");
}
