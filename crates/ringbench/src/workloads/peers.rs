//! The other programs: how each is called, and where its digest is in what it prints.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::process::Pipeline;

/// One command.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) pipeline: Pipeline,
    /// The algorithm whose digest it prints, and where.
    pub(crate) digest: Option<(&'static str, Digest)>,
    /// Programs that must be there.
    pub(crate) needs: Vec<String>,
}

/// Where a digest is in what a program prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Digest {
    /// The first word of so many hexadecimal digits.
    Hex(usize),
    /// The last, where the name stands before it.
    LastHex(usize),
    /// The first words of all lines, in whatever order: a digest of them. (Names that are not UTF-8 are not
    /// printed alike.)
    Lines,
}

impl Digest {
    /// `None`: there is none.
    pub(crate) fn of(self, output: &[u8]) -> Option<String> {
        match self {
            Digest::Hex(digits) | Digest::LastHex(digits) => {
                let text = String::from_utf8_lossy(output);
                let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
                let is_digest = |word: &&str| {
                    word.len() == digits && word.bytes().all(|byte| byte.is_ascii_hexdigit())
                };
                let found = match self {
                    Digest::LastHex(_) => words.rfind(is_digest),
                    _ => words.find(is_digest),
                };
                found.map(str::to_lowercase)
            }
            Digest::Lines => {
                let words = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                let digest = |line: &[u8]| {
                    // A line whose name is escaped begins with a backslash.
                    let line = line.strip_prefix(b"\\").unwrap_or(line).to_vec();
                    line.split(|byte| *byte == b' ').next().map(<[u8]>::to_vec).unwrap_or_default()
                };
                let mut digests: Vec<Vec<u8>> = words.map(digest).collect();
                digests.sort_unstable();
                (!digests.is_empty())
                    .then(|| blake3::hash(&digests.join(&b'\n')).to_hex().to_string())
            }
        }
    }
}

/// A command from words that are written here, and a path that is not.
fn argv(words: &[&str], path: Option<&Path>) -> Vec<OsString> {
    let words = words.iter().map(OsStr::new).chain(path.map(Path::as_os_str));
    words.map(OsStr::to_owned).collect()
}

const SHA256: Option<(&str, Digest)> = Some(("SHA-256", Digest::Hex(64)));
const BLAKE3: Option<(&str, Digest)> = Some(("BLAKE3", Digest::Hex(64)));
const BLAKE2B: Option<(&str, Digest)> = Some(("BLAKE2b", Digest::Hex(128)));
const XXH3: Option<(&str, Digest)> = Some(("XXH3", Digest::Hex(16)));

/// Commands that hash, or only read, one file.
pub(crate) fn of_file(ringsum: &Path, path: &Path, threads: &[u32]) -> Vec<Peer> {
    let plain = |words: &[&'static str], digest: Option<(&'static str, Digest)>| {
        let pipeline = Pipeline::new(argv(words, Some(path)));
        let pipeline = if digest.is_some() { pipeline.capturing() } else { pipeline };
        Peer { name: words.join(" "), pipeline, digest, needs: vec![words[0].to_owned()] }
    };
    let ours = |name: &str, options: &[&str]| {
        let mut words = vec![ringsum.as_os_str().to_owned()];
        words.extend(argv(options, Some(path)));
        let pipeline = Pipeline::new(words).capturing();
        Peer {
            name: name.to_owned(),
            pipeline,
            digest: BLAKE3,
            needs: vec![ringsum.to_string_lossy().into_owned()],
        }
    };
    let mut peers = vec![
        ours("ringsum", &[]),
        ours("ringsum --cache buffered", &["--cache", "buffered"]),
        plain(&["b3sum"], BLAKE3),
        plain(&["b3sum", "--no-mmap"], BLAKE3),
    ];
    for threads in threads {
        let threads = threads.to_string();
        let pipeline = Pipeline::new(argv(&["b3sum", "--num-threads", &threads], Some(path)));
        let name = format!("b3sum --num-threads {threads}");
        let pipeline = pipeline.capturing();
        peers.push(Peer { name, pipeline, digest: BLAKE3, needs: vec!["b3sum".to_owned()] });
    }
    peers.extend([
        Peer { name: "xxhsum".to_owned(), ..plain(&["xxhsum", "-H3"], XXH3) },
        plain(&["sha256sum"], SHA256),
        plain(&["b2sum"], BLAKE2B),
        plain(&["openssl", "dgst", "-sha256"], Some(("SHA-256", Digest::LastHex(64)))),
        plain(&["openssl", "dgst", "-blake2b512"], Some(("BLAKE2b", Digest::LastHex(128)))),
        plain(&["rclone", "hashsum", "sha256"], SHA256),
        plain(&["hashdeep", "-c", "sha256"], SHA256),
        plain(&["rhash", "--sha256"], SHA256),
        plain(&["cat"], None),
    ]);
    for (size, flags) in [("64K", ""), ("1M", ""), ("16M", ""), ("1M", " iflag=direct")] {
        peers.push(dd(path, size, flags));
    }
    let from_dd = dd(path, "64K", "").pipeline.into([ringsum]).capturing();
    let name = "dd bs=64K | ringsum".to_owned();
    peers.push(Peer {
        name,
        pipeline: from_dd,
        digest: BLAKE3,
        needs: vec!["dd".to_owned(), ringsum.to_string_lossy().into_owned()],
    });
    peers
}

/// A command of the user's, with the path in the place of `{}`.
pub(crate) fn by_shell(command: &str, path: &Path) -> Peer {
    let parts: Vec<&[u8]> = path.as_os_str().as_bytes().split(|byte| *byte == b'\'').collect();
    let quoted = [b"'", &parts.join(&b"'\\''"[..])[..], b"'"].concat();
    let pieces: Vec<&[u8]> = command.split("{}").map(str::as_bytes).collect();
    let line = OsString::from_vec(pieces.join(&quoted[..]));
    let pipeline = Pipeline::new([OsString::from("sh"), "-c".into(), line]);
    Peer { name: command.to_owned(), pipeline, digest: None, needs: vec!["sh".to_owned()] }
}

fn dd(path: &Path, size: &str, flags: &str) -> Peer {
    let mut input = OsString::from("if=");
    input.push(path);
    let mut words = argv(&["dd", "status=none", &format!("bs={size}")], None);
    words.extend(flags.split_whitespace().map(OsString::from));
    words.push(input);
    let pipeline = Pipeline::new(words);
    Peer {
        name: format!("dd bs={size}{flags}"),
        pipeline,
        digest: None,
        needs: vec!["dd".to_owned()],
    }
}

/// Commands that hash, or only read, all files of a tree; `list` has their names.
pub(crate) fn of_tree(ringsum: &Path, tree: &Path, list: &Path, threads: &[u32]) -> Vec<Peer> {
    let lines = Some(("BLAKE3 of the tree", Digest::Lines));
    let words = vec![ringsum.as_os_str().to_owned(), "-r".into(), tree.as_os_str().to_owned()];
    let ours = Pipeline::new(words).capturing();
    let by_list = |words: &[&'static str], digest: Option<(&'static str, Digest)>| {
        let pipeline = Pipeline::new(argv(words, None)).reading(list.to_owned());
        let pipeline = if digest.is_some() { pipeline.capturing() } else { pipeline };
        let programs = words.iter().filter(|word| PROGRAMS.contains(word));
        let needs = programs.map(|program| (*program).to_owned()).collect();
        Peer { name: words.join(" "), pipeline, digest, needs }
    };
    let walking = |words: &[&'static str]| {
        let pipeline = Pipeline::new(argv(words, Some(tree)));
        Peer { name: words.join(" "), pipeline, digest: None, needs: vec![words[0].to_owned()] }
    };
    let most = threads.last().copied().unwrap_or(1);
    let mut peers = vec![
        Peer {
            name: "ringsum".to_owned(),
            pipeline: ours,
            digest: lines,
            needs: vec![ringsum.to_string_lossy().into_owned()],
        },
        Peer { name: "b3sum".to_owned(), ..by_list(&["xargs", "-0", "b3sum"], lines) },
    ];
    for jobs in [most, 16] {
        let jobs = jobs.to_string();
        let words = ["xargs", "-0", "-P", &jobs, "-n", "500", "b3sum", "--num-threads", "1"];
        let pipeline = Pipeline::new(argv(&words, None)).reading(list.to_owned());
        // What several write at once may be mixed up: it is not compared.
        peers.push(Peer {
            name: words.join(" "),
            pipeline,
            digest: None,
            needs: vec!["xargs".to_owned(), "b3sum".to_owned()],
        });
    }
    peers.extend([
        by_list(&["xargs", "-0", "xxhsum", "-H3"], None),
        by_list(&["xargs", "-0", "sha256sum"], None),
        by_list(&["xargs", "-0", "cat"], None),
        walking(&["rclone", "hashsum", "sha256"]),
        walking(&["hashdeep", "-r", "-c", "sha256"]),
        walking(&["rhash", "-r", "--sha256"]),
    ]);
    peers
}

const PROGRAMS: [&str; 5] = ["xargs", "b3sum", "xxhsum", "sha256sum", "cat"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_found_where_programs_print_them() {
        let digest = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        for output in [
            format!("{digest}  a name\n"),
            format!("SHA2-256(a name)= {digest}\n"),
            format!("%%%% HASHDEEP-1.0\n## $ hashdeep\n123,{},/a\n", digest.to_uppercase()),
            format!("XXH3_{digest}\n"),
        ] {
            assert_eq!(Digest::Hex(64).of(output.as_bytes()).as_deref(), Some(digest), "{output}");
        }
        let named_so = format!("SHA2-256({})= {digest}", "0".repeat(64));
        assert_eq!(Digest::LastHex(64).of(named_so.as_bytes()).as_deref(), Some(digest));
        assert_eq!(Digest::Hex(64).of(b"no such file\n"), None);
        assert_eq!(Digest::Lines.of(b"b  x\n\\a  y\n"), Digest::Lines.of(b"a  \xff\nb  x\n"));
        assert_ne!(Digest::Lines.of(b"b\na\n"), Digest::Lines.of(b"a\nc\n"));
        assert_eq!(Digest::Lines.of(b""), None);
    }

    #[test]
    fn commands_are_what_would_be_typed() {
        let peers = of_file(Path::new("./ringsum"), Path::new("a file"), &[1, 2]);
        let shown: Vec<_> = peers.iter().map(|peer| peer.pipeline.show()).collect();
        for command in [
            "./ringsum a file",
            "b3sum --num-threads 2 a file",
            "dd status=none bs=1M iflag=direct if=a file",
            "dd status=none bs=64K if=a file | ./ringsum",
        ] {
            assert!(shown.iter().any(|shown| shown == command), "{command}: {shown:#?}");
        }
        let also = by_shell("cat {} | wc -c", Path::new("it's"));
        assert_eq!(also.pipeline.show(), r"sh -c cat 'it'\''s' | wc -c");
        let peers = of_tree(Path::new("ringsum"), Path::new("tree"), Path::new("list"), &[1, 2]);
        assert_eq!(peers[0].pipeline.show(), "ringsum -r tree");
        assert_eq!(peers[1].pipeline.show(), "xargs -0 b3sum < list");
        assert_eq!(peers[1].needs, ["xargs", "b3sum"]);
    }
}
