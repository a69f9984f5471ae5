//! Other programs: their command lines, and the place of the digest in their output.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::runner::process::{self, Pipeline};

/// One command.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) pipeline: Pipeline,
    /// The algorithm of the digest that it prints, and the place of that.
    pub(crate) digest: Option<(&'static str, Output)>,
    /// Programs that must be installed.
    pub(crate) programs: Vec<String>,
}

/// The place of a digest in the output of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// The first word of so many hexadecimal digits.
    Hex(usize),
    /// The last such word: the name of the file stands before it.
    LastHex(usize),
    /// The first words of all lines in any order: a digest of them. (Programs print names that are not
    /// UTF-8 differently.)
    Lines,
}

impl Output {
    /// The digest in `output`, if there is one.
    pub(crate) fn digest(self, output: &[u8]) -> Option<String> {
        let (digits, is_last) = match self {
            Output::Hex(digits) => (digits, false),
            Output::LastHex(digits) => (digits, true),
            Output::Lines => return digest_of_lines(output),
        };
        let text = String::from_utf8_lossy(output);
        let is_hex = |word: &str| word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let mut found = words.filter(|word| word.len() == digits && is_hex(word));
        let found = if is_last { found.next_back() } else { found.next() };
        found.map(str::to_lowercase)
    }
}

fn digest_of_lines(output: &[u8]) -> Option<String> {
    // A line whose name is escaped begins with a backslash.
    let digest = |line: &'_ [u8]| {
        let line = line.strip_prefix(b"\\").unwrap_or(line);
        line.split(|byte| *byte == b' ').next().unwrap_or_default().to_vec()
    };
    let lines = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut digests: Vec<Vec<u8>> = lines.map(digest).collect();
    digests.sort_unstable();
    (!digests.is_empty()).then(|| blake3::hash(&digests.join(&b'\n')).to_hex().to_string())
}

const SHA256: (&str, Output) = ("SHA-256", Output::Hex(64));
const BLAKE3: (&str, Output) = ("BLAKE3", Output::Hex(64));
const BLAKE2B: (&str, Output) = ("BLAKE2b", Output::Hex(128));
const XXH3: (&str, Output) = ("XXH3", Output::Hex(16));
const LINES: (&str, Output) = ("BLAKE3 of the tree", Output::Lines);

impl Peer {
    /// A command whose words are separated by spaces, before other words.
    fn new(command: &str, more: &[&OsStr]) -> Peer {
        let argv = command.split(' ').map(OsStr::new).chain(more.iter().copied());
        let program = command.split(' ').next().unwrap_or_default();
        Peer {
            name: command.to_owned(),
            pipeline: Pipeline::new(argv),
            digest: None,
            programs: vec![program.to_owned()],
        }
    }

    /// `ringsum` with these options.
    fn ringsum(program: &Path, options: &[&str], path: &Path) -> Peer {
        let argv = [program.as_os_str()].into_iter().chain(options.iter().map(OsStr::new));
        let programs = vec![program.to_string_lossy().into_owned()];
        let pipeline = Pipeline::new(argv.chain([path.as_os_str()]));
        Peer { name: "ringsum".to_owned(), pipeline, digest: None, programs }
    }

    /// `dd` with these operands. (Its input is an operand.)
    fn dd(operands: &str, path: &Path) -> Peer {
        let mut input = OsString::from("if=");
        input.push(path);
        let dd = Peer::new(&format!("dd status=none {operands}"), &[&input]);
        Peer { name: format!("dd {operands}"), ..dd }
    }

    fn named(self, name: &str) -> Peer {
        Peer { name: name.to_owned(), ..self }
    }

    /// With a digest in its output.
    fn printing(self, digest: (&'static str, Output)) -> Peer {
        Peer { digest: Some(digest), pipeline: self.pipeline.capturing(), ..self }
    }
}

/// The explicit `ringsum`; otherwise the one beside this program, or in `PATH`.
pub(crate) fn find_ringsum(wanted: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = wanted {
        return match path.is_file() {
            true => Ok(path.to_owned()),
            false => bail!("{}: no such program", path.display()),
        };
    }
    let neighbor = std::env::current_exe().ok().map(|path| path.with_file_name("ringsum"));
    let found = neighbor.filter(|path| path.is_file()).or_else(|| process::find("ringsum"));
    found.context(
        "ringsum is neither in the folder of ringbench nor in PATH: build it (cargo build --release), or use \
         --ringsum PROGRAM",
    )
}

/// Commands that hash, or only read, one file.
pub(crate) fn of_file(ringsum: &Path, path: &Path, threads: &[u32]) -> Vec<Peer> {
    let file: &[&OsStr] = &[path.as_os_str()];
    let plain = |command: &str| Peer::new(command, file);
    let ours = |options: &[&str]| Peer::ringsum(ringsum, options, path).printing(BLAKE3);
    let mut peers = vec![
        ours(&[]),
        ours(&["--io", "page-cache=buffered"]).named("ringsum --io page-cache=buffered"),
        plain("b3sum").printing(BLAKE3),
        plain("b3sum --no-mmap").printing(BLAKE3),
    ];
    let with_threads = |threads| plain(&format!("b3sum --num-threads {threads}")).printing(BLAKE3);
    peers.extend(threads.iter().map(with_threads));
    peers.extend([
        plain("xxhsum -H3").printing(XXH3).named("xxhsum"),
        plain("sha256sum").printing(SHA256),
        plain("b2sum").printing(BLAKE2B),
        plain("openssl dgst -sha256").printing(("SHA-256", Output::LastHex(64))),
        plain("openssl dgst -blake2b512").printing(("BLAKE2b", Output::LastHex(128))),
        plain("rclone hashsum sha256").printing(SHA256),
        plain("hashdeep -c sha256").printing(SHA256),
        plain("rhash --sha256").printing(SHA256),
        plain("cat"),
    ]);
    let sizes = ["bs=64K", "bs=1M", "bs=16M", "bs=1M iflag=direct"];
    peers.extend(sizes.map(|operands| Peer::dd(operands, path)));
    let dd = Peer::dd("bs=64K", path);
    let programs = vec!["dd".to_owned(), ringsum.to_string_lossy().into_owned()];
    let piped = Peer { pipeline: dd.pipeline.into([ringsum]), programs, ..dd };
    peers.push(piped.printing(BLAKE3).named("dd bs=64K | ringsum"));
    peers
}

/// A command of the user, with the path in place of `{}`.
pub(crate) fn by_shell(command: &str, path: &Path) -> Peer {
    let parts: Vec<&[u8]> = path.as_os_str().as_bytes().split(|byte| *byte == b'\'').collect();
    let quoted = [b"'", &parts.join(&b"'\\''"[..])[..], b"'"].concat();
    let pieces: Vec<&[u8]> = command.split("{}").map(str::as_bytes).collect();
    let line = OsString::from_vec(pieces.join(&quoted[..]));
    Peer::new("sh -c", &[&line]).named(command)
}

/// Commands that hash, or only read, all files of a tree; `list` has their names.
pub(crate) fn of_tree(ringsum: &Path, tree: &Path, list: &Path, threads: &[u32]) -> Vec<Peer> {
    let walking = |command: &str| Peer::new(command, &[tree.as_os_str()]);
    let xargs = |options: &str, program: &str| {
        let peer = Peer::new(&format!("xargs -0 {options}{program}"), &[]);
        let name = program.split(' ').next().unwrap_or_default().to_owned();
        let programs = vec!["xargs".to_owned(), name];
        Peer { pipeline: peer.pipeline.reading(list.to_owned()), programs, ..peer }
    };
    // The output of several at once may be mixed up: it is not compared.
    let parallel = |jobs: u32| xargs(&format!("-P {jobs} -n 500 "), "b3sum --num-threads 1");
    vec![
        Peer::ringsum(ringsum, &["-r"], tree).printing(LINES),
        xargs("", "b3sum").printing(LINES).named("b3sum"),
        parallel(threads.last().copied().unwrap_or(1)),
        parallel(16),
        xargs("", "xxhsum -H3"),
        xargs("", "sha256sum"),
        xargs("", "cat"),
        walking("rclone hashsum sha256"),
        walking("hashdeep -r -c sha256"),
        walking("rhash -r --sha256"),
    ]
}

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
            assert_eq!(
                Output::Hex(64).digest(output.as_bytes()).as_deref(),
                Some(digest),
                "{output}"
            );
        }
        let named_so = format!("SHA2-256({})= {digest}", "0".repeat(64));
        assert_eq!(Output::LastHex(64).digest(named_so.as_bytes()).as_deref(), Some(digest));
        assert_eq!(Output::Hex(64).digest(b"no such file\n"), None);
        assert_eq!(
            Output::Lines.digest(b"b  x\n\\a  y\n"),
            Output::Lines.digest(b"a  \xff\nb  x\n")
        );
        assert_ne!(Output::Lines.digest(b"b\na\n"), Output::Lines.digest(b"a\nc\n"));
        assert_eq!(Output::Lines.digest(b""), None);
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
        assert_eq!(peers[1].programs, ["xargs", "b3sum"]);
    }
}
