//! Files that change while they are read, on file systems of this machine: the hash of the content
//! before or after, or an error; with `--retry-changed`, the hash of the content after.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::mounting::{Setup, noise};
use crate::run::{Case, GOOD, Must};
use crate::support::Scratch;
use crate::table::{Fault, Group, Trial};

pub(crate) const GROUP: Group = Group {
    name: "Files that become others",
    faults: &[
        Fault { name: "replaced (rename)", run: |trial| tried(trial, Place::Here, REPLACED) },
        Fault { name: "removed", run: |trial| tried(trial, Place::Here, REMOVED) },
        Fault { name: "truncated", run: |trial| tried(trial, Place::Here, TRUNCATED) },
        Fault { name: "appended to", run: |trial| tried(trial, Place::Here, GROWN) },
        Fault { name: "rewritten", run: |trial| tried(trial, Place::Here, REWRITTEN) },
        Fault {
            name: "rewritten where it is mapped by somebody else",
            run: |trial| tried(trial, Place::Here, MAPPED),
        },
        Fault { name: "replaced, on tmpfs", run: |trial| tried(trial, Place::Memory, REPLACED) },
        Fault { name: "truncated, on tmpfs", run: |trial| tried(trial, Place::Memory, TRUNCATED) },
        Fault { name: "rewritten, on tmpfs", run: |trial| tried(trial, Place::Memory, REWRITTEN) },
        Fault {
            name: "of the lower layer of an overlay, and replaced in the upper",
            run: |trial| tried(trial, Place::Lower, REPLACED),
        },
        Fault {
            name: "of the lower layer of an overlay, and removed in the upper",
            run: |trial| tried(trial, Place::Lower, REMOVED),
        },
        Fault {
            name: "of the lower layer of an overlay, copied up and truncated",
            run: |trial| tried(trial, Place::Lower, TRUNCATED),
        },
        Fault {
            name: "of the lower layer of an overlay, copied up and appended to",
            run: |trial| tried(trial, Place::Lower, GROWN),
        },
        Fault {
            name: "of the lower layer of an overlay, copied up and rewritten",
            run: |trial| tried(trial, Place::Lower, REWRITTEN),
        },
        Fault {
            name: "replaced (rename), with --retry-changed 2",
            run: |trial| retried(trial, Place::Here, REPLACED),
        },
        Fault {
            name: "truncated, with --retry-changed 2",
            run: |trial| retried(trial, Place::Here, TRUNCATED),
        },
        Fault {
            name: "appended to, with --retry-changed 2",
            run: |trial| retried(trial, Place::Here, GROWN),
        },
        Fault {
            name: "of the lower layer of an overlay, copied up and rewritten, with --retry-changed 2",
            run: |trial| retried(trial, Place::Lower, REWRITTEN),
        },
    ],
};

/// Where the file is.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// On the disk that holds the build.
    Here,
    Memory,
    /// Below an overlay.
    Lower,
}

/// A change of a file.
#[derive(Clone, Copy)]
struct Change {
    /// Called with the path and the new content.
    make: fn(&Path, &[u8]),
    /// The new content for an old one; `None` if the file is removed.
    after: fn(&[u8]) -> Option<Vec<u8>>,
}

const LEN: usize = 4 << 20;

fn other(before: &[u8]) -> Option<Vec<u8>> {
    Some(before.iter().map(|byte| !byte).collect())
}

const REPLACED: Change = Change {
    make: |path, after| {
        let new = path.with_extension("new");
        fs::write(&new, after).unwrap();
        fs::rename(new, path).unwrap();
    },
    after: other,
};

const REMOVED: Change = Change { make: |path, _| fs::remove_file(path).unwrap(), after: |_| None };

const TRUNCATED: Change = Change {
    make: |path, after| {
        OpenOptions::new().write(true).open(path).unwrap().set_len(after.len() as u64).unwrap();
    },
    after: |before| Some(before[..before.len() / 3].to_vec()),
};

const GROWN: Change = Change {
    make: |path, after| {
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(&after[LEN..]).unwrap();
    },
    after: |before| Some([before, b"and more"].concat()),
};

const REWRITTEN: Change = Change {
    make: |path, after| {
        OpenOptions::new().write(true).open(path).unwrap().write_all(after).unwrap();
    },
    after: other,
};

/// The same through a mapping, whose stores are no system calls.
const MAPPED: Change = Change {
    make: |path, after| {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        crate::limits::write_mapped(&file, after);
    },
    after: other,
};

fn tried(trial: &Trial<'_>, place: Place, change: Change) -> Result<(), String> {
    each(trial, place, change, &[], Must::Either)
}

fn retried(trial: &Trial<'_>, place: Place, change: Change) -> Result<(), String> {
    each(trial, place, change, &["--retry-changed", "2"], Must::Hash)
}

/// Reads a file for half a second, and changes it midway.
fn each(
    trial: &Trial<'_>,
    place: Place,
    change: Change,
    args: &[&str],
    must: Must,
) -> Result<(), String> {
    let mut setup = Setup { scratch: Scratch::new(), undo: Vec::new() };
    setup.scratch.write(GOOD.0, GOOD.1);
    match place {
        Place::Here => setup.tool("mkdir below").map(drop)?,
        Place::Memory => setup.mount_at("below", "mount -t tmpfs none")?,
        Place::Lower => setup.tool("mkdir below").map(drop)?,
    }
    let before = noise(LEN);
    let after = (change.after)(&before);
    let rights: Vec<&[u8]> = std::iter::once(&before[..]).chain(after.as_deref()).collect();
    // An overlay does not notice changes in its layers: each engine has its own file.
    let name = |engine: &str| format!("file-of-{engine}");
    for engine in crate::table::ENGINES {
        setup.write(&format!("below/{}", name(engine)), &before);
    }
    let seen = match place {
        Place::Lower => crate::images::overlay(&mut setup, "on", "below").map(|()| "on")?,
        Place::Here | Place::Memory => "below",
    };
    trial.each(|engine| {
        let path = format!("{seen}/{}", name(engine));
        let full = setup.scratch.join(&path);
        let _ =
            rustix::fs::fadvise(File::open(&full).unwrap(), 0, None, rustix::fs::Advice::DontNeed);
        let after = after.clone().unwrap_or_default();
        Case::new(&setup.scratch, engine, &path, &rights, must)
            .args(&["--limit-rate=8M"])
            .args(args)
            .act(move |child| {
                let files = format!("/proc/{}/fd", child.id());
                crate::signals::until(|| has_open(&files, &full));
                std::thread::sleep(Duration::from_millis(100));
                (change.make)(&full, &after);
            })
    });
    setup.undo_all()
}

/// Whether one of the descriptors in a directory of `/proc` refers to a file.
fn has_open(files: &str, path: &Path) -> bool {
    let Ok(files) = fs::read_dir(files) else { return true };
    files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|target| target == path))
}
