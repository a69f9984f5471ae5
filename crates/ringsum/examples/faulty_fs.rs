//! A file system whose files are made of their names, and go wrong as these say: for `bench/soak`.
//!
//!     faulty_fs FOLDER
//!
//! It is mounted at FOLDER until standard input ends. A name is a list of words and `word=number`, separated by
//! commas, of which those that are not known (`n=17`) tell files apart:
//!
//! | | |
//! |---|---|
//! | `len=N` | its length; the content is that of `b3sum --raw --length N` for the text of N |
//! | `direct` | past the page cache |
//! | `claims=N` | what it says its length is |
//! | `slow=N` | each read takes N milliseconds |
//! | `short=N` | no read brings more than about N bytes |
//! | `eio=N`, `eintr=N`, `eagain=N` | reads of the page at N fail so |
//! | `times=N` | so often (else always) |
//! | `after=N` | after N reads it becomes another: |
//! | `becomes=N` | the content of that length, |
//! | `ctime`, `silent` | told by its ctime alone, or by nothing (else by its mtime) |

#[expect(dead_code, reason = "shared with the tests")]
#[path = "../tests/faults/fuse.rs"]
mod fuse;

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use fuse::{File, Later, Mounted, Told, Trouble};

fn main() {
    let Some(place) = std::env::args_os().nth(1) else {
        eprintln!("usage: faulty_fs FOLDER");
        std::process::exit(2);
    };
    let _mounted = Mounted::by_name(Path::new(&place), parse).unwrap_or_else(|error| {
        eprintln!("faulty_fs: {error}");
        std::process::exit(1);
    });
    println!("mounted");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Longer is none.
const LEN_MAX: u64 = 64 << 20;

fn content(len: u64) -> Vec<u8> {
    let mut content = vec![0; len.min(LEN_MAX) as usize];
    blake3::Hasher::new().update(len.to_string().as_bytes()).finalize_xof().fill(&mut content);
    content
}

fn parse(name: &str) -> Option<File> {
    let words = || name.split(',').map(|word| word.split_once('=').unwrap_or((word, "")));
    let has = |wanted: &str| words().any(|(word, _)| word == wanted);
    let number = |wanted: &str| {
        let (_, number) = words().find(|(word, _)| *word == wanted)?;
        number.parse::<u64>().ok()
    };
    let page = |at: u64| at / 4096 * 4096..at / 4096 * 4096 + 4096;
    let times = number("times").map_or(u32::MAX, |times| times as u32);
    let errors = [("eio", libc::EIO), ("eintr", libc::EINTR), ("eagain", libc::EAGAIN)];
    let fails = errors
        .into_iter()
        .find_map(|(word, errno)| Some(Trouble::Fails { at: page(number(word)?), errno, times }));
    let slow = number("slow").map(|ms| Trouble::Slow(Duration::from_millis(ms)));
    let short = number("short").map(|most| Trouble::Short(most.max(1) as usize));
    let is_told_by = match () {
        () if has("silent") => Told::Nothing,
        () if has("ctime") => Told::Ctime,
        () => Told::Mtime,
    };
    let later = number("becomes").map(|len| Later {
        after_reads: number("after").unwrap_or(1),
        content: content(len),
        is_told_by,
    });
    Some(File {
        content: content(number("len")?),
        claims: number("claims"),
        is_direct: has("direct"),
        trouble: fails.or(slow).or(short).unwrap_or_default(),
        later,
        ..File::default()
    })
}
