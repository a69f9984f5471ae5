//! A faulty file system: slow reads, short reads, errors, wrong lengths, and files that change.

use std::ops::Range;
use std::time::Duration;

use crate::fuse::{File, Later, Told, Trouble};
use crate::mounting::noise;
use crate::run::{Case, Must};
use crate::support::hex;
use crate::table::{ENGINES, Fault, Group, Trial};

/// Longer than one block of any engine, and a multiple of nothing.
const LEN: usize = (5 << 20) / 2 + 777;

/// The page in the middle.
const MIDDLE: Range<u64> = 1_232_896..1_236_992;

/// Longest block of any engine: mappings are made in windows of this size.
const BLOCK_BYTES_MAX: u64 = 4 << 20;

/// Number of failures of a permanent error.
const ALWAYS: u32 = u32::MAX;

pub(crate) const GROUP: Group = Group {
    name: "A file system that goes wrong (FUSE)",
    faults: &[
        Fault {
            name: "each read takes 3 ms",
            run: |trial| {
                hashes(trial, Through::Nothing, || Trouble::Slow(Duration::from_millis(3)))
            },
        },
        Fault {
            name: "short reads of all lengths",
            run: |trial| hashes(trial, Through::Nothing, || Trouble::Short(100_000)),
        },
        Fault { name: "EIO in a file of one block", run: small_file_fails },
        Fault {
            name: "EIO in each of 200 files, with 40 descriptors and 1 GiB of addresses",
            run: many_fail,
        },
        Fault {
            name: "ENODATA in the middle",
            run: |trial| fails(trial, Through::Nothing, MIDDLE, libc::ENODATA),
        },
        Fault {
            name: "ESTALE in the middle",
            run: |trial| fails(trial, Through::Nothing, MIDDLE, libc::ESTALE),
        },
        Fault {
            name: "ETIMEDOUT in the middle",
            run: |trial| fails(trial, Through::Nothing, MIDDLE, libc::ETIMEDOUT),
        },
        Fault {
            name: "ENOMEM in the middle",
            run: |trial| fails(trial, Through::Nothing, MIDDLE, libc::ENOMEM),
        },
        Fault {
            name: "EINTR, three times",
            run: |trial| transient(trial, Through::Nothing, libc::EINTR, 3),
        },
        Fault {
            name: "EAGAIN, three times",
            run: |trial| transient(trial, Through::Nothing, libc::EAGAIN, 3),
        },
        Fault {
            name: "EINTR for ever",
            run: |trial| fails(trial, Through::Nothing, MIDDLE, libc::EINTR),
        },
        Fault {
            name: "EAGAIN for ever",
            run: |trial| fails(trial, Through::Nothing, MIDDLE, libc::EAGAIN),
        },
        Fault {
            name: "it cannot be opened: EIO",
            run: |trial| {
                each(trial, Must::Fail, None, Through::Nothing, || Trouble::Open(libc::EIO))
            },
        },
        Fault {
            name: "stat fails after it was read: EIO",
            run: |trial| {
                each(trial, Must::Fail, None, Through::Nothing, || Trouble::Status(libc::EIO))
            },
        },
        Fault {
            name: "it shrinks while it is read",
            run: |trial| {
                becomes(
                    trial,
                    Through::Nothing,
                    noise(LEN)[..LEN / 3].to_vec(),
                    Told::Mtime,
                    Must::Fail,
                )
            },
        },
        Fault {
            name: "it shrinks while it is read, below the page cache",
            run: |trial| {
                becomes(
                    trial,
                    Through::PageCache,
                    noise(LEN)[..LEN / 3].to_vec(),
                    Told::Mtime,
                    Must::Fail,
                )
            },
        },
        Fault {
            name: "it grows while it is read",
            run: |trial| {
                becomes(
                    trial,
                    Through::Nothing,
                    [noise(LEN), noise(999)].concat(),
                    Told::Mtime,
                    Must::Fail,
                )
            },
        },
        Fault {
            name: "it grows while it is read, below the page cache",
            run: |trial| {
                becomes(
                    trial,
                    Through::PageCache,
                    [noise(LEN), noise(999)].concat(),
                    Told::Mtime,
                    Must::Fail,
                )
            },
        },
        Fault {
            name: "it is rewritten while it is read (mtime)",
            run: |trial| becomes(trial, Through::Nothing, vec![7; LEN], Told::Mtime, Must::Fail),
        },
        Fault {
            name: "it is rewritten while it is read (mtime), below the page cache",
            run: |trial| becomes(trial, Through::PageCache, vec![7; LEN], Told::Mtime, Must::Fail),
        },
        Fault {
            name: "it is rewritten while it is read (ctime alone)",
            run: |trial| becomes(trial, Through::Nothing, vec![7; LEN], Told::Ctime, Must::Fail),
        },
        Fault {
            name: "it is rewritten while it is read, and nothing tells: the hash is of what was read",
            run: |trial| becomes(trial, Through::Nothing, vec![7; LEN], Told::Nothing, Must::Hash),
        },
        Fault {
            name: "it says that it is longer than it is",
            run: |trial| claims(trial, Through::Nothing, LEN as u64 + 5000),
        },
        Fault {
            name: "it says that it is longer than it is, below the page cache: zeros are there, as for any program",
            run: longer_in_the_cache,
        },
        Fault {
            name: "it says that it is shorter than it is",
            run: |trial| claims(trial, Through::Nothing, 1 << 20),
        },
        Fault {
            name: "it says that it has a thousand bytes, and has more",
            run: |trial| claims(trial, Through::Nothing, 1000),
        },
        Fault {
            name: "ENODATA in the middle, with --list-bad-ranges",
            run: |trial| maps(trial, Through::Nothing, MIDDLE),
        },
        Fault {
            name: "it shrinks while it is read, with --retry-changed 2",
            run: |trial| {
                let content = noise(LEN)[..LEN / 3].to_vec();
                becomes_and_is_read_again(trial, Through::Nothing, content)
            },
        },
        Fault {
            name: "it is rewritten while it is read, below the page cache, with --retry-changed 2",
            run: |trial| becomes_and_is_read_again(trial, Through::PageCache, vec![7; LEN]),
        },
        Fault {
            name: "it says that it is empty, and is not",
            run: |trial| claims(trial, Through::Nothing, 0),
        },
    ],
};

/// The layers between the command and the server.
#[derive(Clone, Copy, PartialEq)]
enum Through {
    /// Each read reaches the server.
    Nothing,
    PageCache,
    /// An overlayfs, which hides the file system below.
    Overlay,
    /// An overlayfs and the page cache.
    OverlayAndPageCache,
}

impl Through {
    fn is_direct(self) -> bool {
        matches!(self, Through::Nothing | Through::Overlay)
    }
}

fn file(through: Through, trouble: Trouble) -> File {
    File { content: noise(LEN), is_direct: through.is_direct(), trouble, ..File::default() }
}

pub(crate) const BELOW_OVERLAY: Group = Group {
    name: "The same below an overlayfs, which says nothing of it",
    faults: &[
        Fault {
            name: "short reads of all lengths below an overlay",
            run: |trial| hashes(trial, Through::Overlay, || Trouble::Short(100_000)),
        },
        Fault {
            name: "ENODATA in the middle, below an overlay",
            run: |trial| fails(trial, Through::Overlay, MIDDLE, libc::ENODATA),
        },
        Fault {
            name: "ENODATA in the middle, below an overlay and the page cache",
            run: |trial| fails(trial, Through::OverlayAndPageCache, MIDDLE, libc::ENODATA),
        },
        Fault {
            name: "EINTR, three times, below an overlay",
            run: |trial| transient(trial, Through::Overlay, libc::EINTR, 3),
        },
        Fault {
            name: "it shrinks while it is read, below an overlay",
            run: |trial| {
                let content = noise(LEN)[..LEN / 3].to_vec();
                becomes(trial, Through::Overlay, content, Told::Mtime, Must::Fail)
            },
        },
        Fault {
            name: "it grows while it is read, below an overlay",
            run: |trial| {
                let content = [noise(LEN), noise(999)].concat();
                becomes(trial, Through::Overlay, content, Told::Mtime, Must::Fail)
            },
        },
        Fault {
            name: "it is rewritten while it is read, below an overlay and the page cache",
            run: |trial| {
                let through = Through::OverlayAndPageCache;
                becomes(trial, through, vec![7; LEN], Told::Mtime, Must::Fail)
            },
        },
        Fault {
            name: "it says that it is longer than it is, below an overlay",
            run: |trial| claims(trial, Through::Overlay, LEN as u64 + 5000),
        },
        Fault {
            name: "it says that it is shorter than it is, below an overlay",
            run: |trial| claims(trial, Through::Overlay, 1 << 20),
        },
        Fault {
            name: "it says that it has a thousand bytes, and has more, below an overlay",
            run: |trial| claims(trial, Through::Overlay, 1000),
        },
        Fault {
            name: "ENODATA in the middle, below an overlay, with --list-bad-ranges",
            run: |trial| maps(trial, Through::Overlay, MIDDLE),
        },
        Fault {
            name: "it shrinks while it is read, below an overlay, with --retry-changed 2",
            run: |trial| {
                let content = noise(LEN)[..LEN / 3].to_vec();
                becomes_and_is_read_again(trial, Through::Overlay, content)
            },
        },
        Fault {
            name: "it is rewritten while it is read, below an overlay and the page cache, with --retry-changed 2",
            run: |trial| {
                becomes_and_is_read_again(trial, Through::OverlayAndPageCache, vec![7; LEN])
            },
        },
        Fault {
            name: "it says that it is empty, and is not, below an overlay",
            run: |trial| claims(trial, Through::Overlay, 0),
        },
    ],
};

/// How a file is read, and the expected outcome.
#[derive(Clone)]
struct How {
    must: Must,
    at: Option<Range<u64>>,
    through: Through,
    args: &'static [&'static str],
    /// How often the file is named.
    times: usize,
}

impl How {
    fn new(must: Must, through: Through) -> How {
        How { must, at: None, through, args: &[], times: 1 }
    }
}

/// Reads a new file with each engine.
fn each_file(trial: &Trial<'_>, how: &How, make: impl Fn() -> File) -> Result<(), String> {
    let (fuse, scratch) = trial.fuse()?;
    let place = match how.through {
        Through::Nothing | Through::PageCache => "fuse",
        Through::Overlay | Through::OverlayAndPageCache => trial.overlay().map(|()| "over")?,
    };
    for engine in ENGINES {
        let added = fuse.add(make());
        let path = format!("{place}/{}", added.name());
        // The contents of a changing file before and after; never a mixture.
        let later = added.file.later.as_ref();
        let contents: Vec<&[u8]> = std::iter::once(&added.file.content[..])
            .chain(later.map(|later| &later.content[..]))
            .collect();
        // A file with direct I/O cannot be mapped.
        let is_refused = added.file.is_direct && engine == "mmap" && how.must == Must::Hash;
        let must = if is_refused { Must::Either } else { how.must };
        let case = Case::new(scratch, engine, &path, &contents, must);
        let mut case = case.args(how.args).times(how.times);
        case.at = how.at.clone();
        if later.is_some_and(|later| later.is_told_by == Told::Nothing) {
            case.rights_after = Some(Box::new(|| vec![hex(&added.file.served())]));
        }
        if how.times > 1 {
            crate::support::limit(&mut case.command, libc::RLIMIT_NOFILE, 40);
            crate::support::limit(&mut case.command, libc::RLIMIT_AS, 1 << 30);
        }
        trial.put(case.run());
    }
    Ok(())
}

fn each(
    trial: &Trial<'_>,
    must: Must,
    at: Option<Range<u64>>,
    through: Through,
    trouble: impl Fn() -> Trouble,
) -> Result<(), String> {
    each_file(trial, &How { at, ..How::new(must, through) }, || file(through, trouble()))
}

fn hashes(
    trial: &Trial<'_>,
    through: Through,
    trouble: impl Fn() -> Trouble,
) -> Result<(), String> {
    each(trial, Must::Hash, None, through, trouble)
}

/// The bytes in `at` are bad: the failed request starts at most one block before them.
fn fails(trial: &Trial<'_>, through: Through, at: Range<u64>, errno: i32) -> Result<(), String> {
    let said = at.start.saturating_sub(BLOCK_BYTES_MAX)..at.end;
    let trouble = || Trouble::Fails { at: at.clone(), errno, times: ALWAYS };
    each(trial, Must::Fail, Some(said), through, trouble)
}

fn transient(trial: &Trial<'_>, through: Through, errno: i32, times: u32) -> Result<(), String> {
    hashes(trial, through, || Trouble::Fails { at: MIDDLE, errno, times })
}

fn bad_everywhere(len: usize) -> File {
    let trouble = Trouble::Fails { at: 0..len as u64, errno: libc::EIO, times: ALWAYS };
    File { content: noise(len), is_direct: true, trouble, ..File::default() }
}

fn small_file_fails(trial: &Trial<'_>) -> Result<(), String> {
    let how = How { at: Some(0..1), ..How::new(Must::Fail, Through::Nothing) };
    each_file(trial, &how, || bad_everywhere(5000))
}

/// A descriptor leaked by each failure would run out after two hundred.
fn many_fail(trial: &Trial<'_>) -> Result<(), String> {
    let how = How { times: 200, ..How::new(Must::Fail, Through::Nothing) };
    each_file(trial, &how, || bad_everywhere(LEN))
}

fn becomes(
    trial: &Trial<'_>,
    through: Through,
    content: Vec<u8>,
    is_told_by: Told,
    must: Must,
) -> Result<(), String> {
    becomes_for(trial, &How::new(must, through), content, is_told_by)
}

/// The same with `--retry-changed`.
fn becomes_and_is_read_again(
    trial: &Trial<'_>,
    through: Through,
    content: Vec<u8>,
) -> Result<(), String> {
    let how = How { args: &["--retry-changed", "2"], ..How::new(Must::Hash, through) };
    becomes_for(trial, &how, content, Told::Mtime)
}

fn becomes_for(
    trial: &Trial<'_>,
    how: &How,
    content: Vec<u8>,
    is_told_by: Told,
) -> Result<(), String> {
    let told = || match is_told_by {
        Told::Mtime => Told::Mtime,
        Told::Ctime => Told::Ctime,
        Told::Nothing => Told::Nothing,
    };
    let make = || {
        let later = Later { after_reads: 2, content: content.clone(), is_told_by: told() };
        File { later: Some(later), ..file(how.through, Trouble::None) }
    };
    each_file(trial, how, make)
}

/// The bytes in `at` are bad, and `--list-bad-ranges` lists exactly those.
fn maps(trial: &Trial<'_>, through: Through, at: Range<u64>) -> Result<(), String> {
    let trouble = || Trouble::Fails { at: at.clone(), errno: libc::ENODATA, times: ALWAYS };
    each(trial, Must::Map, Some(at.clone()), through, trouble)
}

/// The reported length is wrong: the hash is of the whole content, or there is an error.
fn claims(trial: &Trial<'_>, through: Through, len: u64) -> Result<(), String> {
    let make = || File { claims: Some(len), ..file(through, Trouble::None) };
    each_file(trial, &How::new(Must::Either, through), make)
}

fn longer_in_the_cache(trial: &Trial<'_>) -> Result<(), String> {
    let (fuse, scratch) = trial.fuse()?;
    let padded = [noise(LEN), vec![0; 5000]].concat();
    for engine in ENGINES {
        let claims = Some(padded.len() as u64);
        let added = fuse.add(File { claims, ..file(Through::PageCache, Trouble::None) });
        let path = format!("fuse/{}", added.name());
        let contents = [&added.file.content[..], &padded];
        trial.put(Case::new(scratch, engine, &path, &contents, Must::Either).run());
    }
    Ok(())
}
