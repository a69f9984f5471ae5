//! A file system that goes wrong: slow, short, failing, and files that are not what they say or do not stay
//! what they were.

use std::ops::Range;
use std::time::Duration;

use crate::fuse::{File, Later, Told, Trouble};
use crate::mounting::noise;
use crate::run::{Case, Must};
use crate::support::hex;
use crate::table::{ENGINES, Fault, Group, Trial};

/// More than one block of any engine, and no whole number of anything.
const LEN: usize = (5 << 20) / 2 + 777;

/// The page of the middle.
const MIDDLE: Range<u64> = 1_232_896..1_236_992;

/// No block of any engine is longer: what is mapped is mapped in windows of this size.
const BLOCK_BYTES_MAX: u64 = 4 << 20;

/// How often something fails that fails for ever.
const ALWAYS: u32 = u32::MAX;

pub(crate) const GROUP: Group = Group {
    name: "A file system that goes wrong (FUSE)",
    faults: &[
        Fault {
            name: "each read takes 3 ms",
            run: |trial| hashes(trial, true, || Trouble::Slow(Duration::from_millis(3))),
        },
        Fault {
            name: "short reads of all lengths",
            run: |trial| hashes(trial, true, || Trouble::Short(100_000)),
        },
        Fault { name: "EIO in a file of one block", run: small_file_fails },
        Fault {
            name: "EIO in each of 200 files, with 40 descriptors and 1 GiB of addresses",
            run: many_fail,
        },
        Fault {
            name: "ENODATA in the middle",
            run: |trial| fails(trial, true, MIDDLE, libc::ENODATA),
        },
        Fault {
            name: "ESTALE in the middle",
            run: |trial| fails(trial, true, MIDDLE, libc::ESTALE),
        },
        Fault {
            name: "ETIMEDOUT in the middle",
            run: |trial| fails(trial, true, MIDDLE, libc::ETIMEDOUT),
        },
        Fault {
            name: "ENOMEM in the middle",
            run: |trial| fails(trial, true, MIDDLE, libc::ENOMEM),
        },
        Fault { name: "EINTR, three times", run: |trial| transient(trial, libc::EINTR, 3) },
        Fault { name: "EAGAIN, three times", run: |trial| transient(trial, libc::EAGAIN, 3) },
        Fault { name: "EINTR for ever", run: |trial| fails(trial, true, MIDDLE, libc::EINTR) },
        Fault { name: "EAGAIN for ever", run: |trial| fails(trial, true, MIDDLE, libc::EAGAIN) },
        Fault {
            name: "it cannot be opened: EIO",
            run: |trial| each(trial, Must::Fail, None, true, || Trouble::Open(libc::EIO)),
        },
        Fault {
            name: "its status cannot be had once it is read: EIO",
            run: |trial| each(trial, Must::Fail, None, true, || Trouble::Status(libc::EIO)),
        },
        Fault {
            name: "it shrinks while it is read",
            run: |trial| {
                becomes(trial, true, noise(LEN)[..LEN / 3].to_vec(), Told::Mtime, Must::Fail)
            },
        },
        Fault {
            name: "it shrinks while it is read, below the page cache",
            run: |trial| {
                becomes(trial, false, noise(LEN)[..LEN / 3].to_vec(), Told::Mtime, Must::Fail)
            },
        },
        Fault {
            name: "it grows while it is read",
            run: |trial| {
                becomes(trial, true, [noise(LEN), noise(999)].concat(), Told::Mtime, Must::Fail)
            },
        },
        Fault {
            name: "it grows while it is read, below the page cache",
            run: |trial| {
                becomes(trial, false, [noise(LEN), noise(999)].concat(), Told::Mtime, Must::Fail)
            },
        },
        Fault {
            name: "it is rewritten while it is read (mtime)",
            run: |trial| becomes(trial, true, vec![7; LEN], Told::Mtime, Must::Fail),
        },
        Fault {
            name: "it is rewritten while it is read (mtime), below the page cache",
            run: |trial| becomes(trial, false, vec![7; LEN], Told::Mtime, Must::Fail),
        },
        Fault {
            name: "it is rewritten while it is read (ctime alone)",
            run: |trial| becomes(trial, true, vec![7; LEN], Told::Ctime, Must::Fail),
        },
        Fault {
            name: "it is rewritten while it is read, and nothing tells: the hash is of what was read",
            run: |trial| becomes(trial, true, vec![7; LEN], Told::Nothing, Must::Hash),
        },
        Fault {
            name: "it says that it is longer than it is",
            run: |trial| claims(trial, true, LEN as u64 + 5000),
        },
        Fault {
            name: "it says that it is longer than it is, below the page cache: zeros are there, as for any program",
            run: longer_in_the_cache,
        },
        Fault {
            name: "it says that it is shorter than it is",
            run: |trial| claims(trial, true, 1 << 20),
        },
        Fault {
            name: "it says that it has a thousand bytes, and has more",
            run: |trial| claims(trial, true, 1000),
        },
        Fault { name: "it says that it is empty, and is not", run: |trial| claims(trial, true, 0) },
    ],
};

fn file(is_direct: bool, trouble: Trouble) -> File {
    File { content: noise(LEN), is_direct, trouble, ..File::default() }
}

/// Tries a fresh file with each engine.
fn each_file(
    trial: &Trial<'_>,
    must: Must,
    at: Option<Range<u64>>,
    make: impl Fn() -> File,
    times: usize,
) -> Result<(), String> {
    let (fuse, scratch) = trial.fuse()?;
    for engine in ENGINES {
        let added = fuse.add(make());
        let path = format!("fuse/{}", added.name());
        // What a file that changes held before and after; never a mixture.
        let later = added.file.later.as_ref();
        let contents: Vec<&[u8]> = std::iter::once(&added.file.content[..])
            .chain(later.map(|later| &later.content[..]))
            .collect();
        // What passes the page cache by cannot be mapped.
        let is_refused = added.file.is_direct && engine == "mmap" && must == Must::Hash;
        let must = if is_refused { Must::Either } else { must };
        let mut case = Case::new(scratch, engine, &path, &contents, must).times(times);
        case.at = at.clone();
        if later.is_some_and(|later| later.is_told_by == Told::Nothing) {
            case.rights_after = Some(Box::new(|| vec![hex(&added.file.served())]));
        }
        if times > 1 {
            crate::limits::limit(&mut case.command, libc::RLIMIT_NOFILE, 40);
            crate::limits::limit(&mut case.command, libc::RLIMIT_AS, 1 << 30);
        }
        trial.put(case.run());
    }
    Ok(())
}

fn each(
    trial: &Trial<'_>,
    must: Must,
    at: Option<Range<u64>>,
    is_direct: bool,
    trouble: impl Fn() -> Trouble,
) -> Result<(), String> {
    each_file(trial, must, at, || file(is_direct, trouble()), 1)
}

fn hashes(trial: &Trial<'_>, is_direct: bool, trouble: impl Fn() -> Trouble) -> Result<(), String> {
    each(trial, Must::Hash, None, is_direct, trouble)
}

/// The bytes in `at` cannot be read: the request that failed begins no more than a block before them.
fn fails(trial: &Trial<'_>, is_direct: bool, at: Range<u64>, errno: i32) -> Result<(), String> {
    let said = at.start.saturating_sub(BLOCK_BYTES_MAX)..at.end;
    let trouble = || Trouble::Fails { at: at.clone(), errno, times: ALWAYS };
    each(trial, Must::Fail, Some(said), is_direct, trouble)
}

fn transient(trial: &Trial<'_>, errno: i32, times: u32) -> Result<(), String> {
    hashes(trial, true, || Trouble::Fails { at: MIDDLE, errno, times })
}

fn bad_everywhere(len: usize) -> File {
    let trouble = Trouble::Fails { at: 0..len as u64, errno: libc::EIO, times: ALWAYS };
    File { content: noise(len), is_direct: true, trouble, ..File::default() }
}

fn small_file_fails(trial: &Trial<'_>) -> Result<(), String> {
    each_file(trial, Must::Fail, Some(0..1), || bad_everywhere(5000), 1)
}

/// What one failure leaked, two hundred would not have.
fn many_fail(trial: &Trial<'_>) -> Result<(), String> {
    each_file(trial, Must::Fail, None, || bad_everywhere(LEN), 200)
}

fn becomes(
    trial: &Trial<'_>,
    is_direct: bool,
    content: Vec<u8>,
    is_told_by: Told,
    must: Must,
) -> Result<(), String> {
    let told = || match is_told_by {
        Told::Mtime => Told::Mtime,
        Told::Ctime => Told::Ctime,
        Told::Nothing => Told::Nothing,
    };
    let make = || {
        let later = Later { after_reads: 2, content: content.clone(), is_told_by: told() };
        File { later: Some(later), ..file(is_direct, Trouble::None) }
    };
    each_file(trial, must, None, make, 1)
}

/// Its length is not what it says: its whole content counts, or there is an error.
fn claims(trial: &Trial<'_>, is_direct: bool, len: u64) -> Result<(), String> {
    let make = || File { claims: Some(len), ..file(is_direct, Trouble::None) };
    each_file(trial, Must::Either, None, make, 1)
}

fn longer_in_the_cache(trial: &Trial<'_>) -> Result<(), String> {
    let (fuse, scratch) = trial.fuse()?;
    let padded = [noise(LEN), vec![0; 5000]].concat();
    for engine in ENGINES {
        let claims = Some(padded.len() as u64);
        let added = fuse.add(File { claims, ..file(false, Trouble::None) });
        let path = format!("fuse/{}", added.name());
        let contents = [&added.file.content[..], &padded];
        trial.put(Case::new(scratch, engine, &path, &contents, Must::Either).run());
    }
    Ok(())
}
