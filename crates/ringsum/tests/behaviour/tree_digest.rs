//! `--tree-digest`: one digest for a tree, recomputed here from the specification of its format.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::json;

use crate::support::{Scratch, content, skip};

/// Computes the digest of a tree from its entries.
struct Expected(blake3::Hasher);

impl Expected {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    }

    fn entry(&mut self, letter: u8, path: &[u8]) {
        self.0.update(&[letter]);
        self.bytes(path);
    }

    /// Adds the entries of `directory`, whose path is `path` with a slash at its end.
    fn add(&mut self, directory: &Path, path: &[u8]) {
        let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
        let mut names: Vec<Vec<u8>> = entries
            .map(|entry| {
                let slash = if entry.file_type().unwrap().is_dir() { "/" } else { "" };
                [entry.file_name().as_bytes(), slash.as_bytes()].concat()
            })
            .collect();
        names.sort();
        for name in names {
            self.add_one(directory, &[path, &name].concat(), &name);
        }
    }

    fn add_one(&mut self, directory: &Path, path: &[u8], name: &[u8]) {
        let file = directory.join(OsStr::from_bytes(name.strip_suffix(b"/").unwrap_or(name)));
        let metadata = file.symlink_metadata().unwrap();
        let kind = metadata.file_type();
        if kind.is_dir() {
            self.entry(b'd', path.strip_suffix(b"/").unwrap());
            self.add(&file, path);
        } else if kind.is_symlink() {
            self.entry(b'l', path);
            self.bytes(fs::read_link(file).unwrap().as_os_str().as_bytes());
        } else if kind.is_file() {
            let is_executable = metadata.permissions().mode() & 0o100 != 0;
            self.entry(if is_executable { b'x' } else { b'f' }, path);
            self.0.update(blake3::hash(&fs::read(file).unwrap()).as_bytes());
        } else {
            let letters =
                [(kind.is_fifo(), b'p'), (kind.is_socket(), b's'), (kind.is_block_device(), b'b')];
            let letter = letters.iter().find(|(is, _)| *is).map_or(b'c', |(_, letter)| *letter);
            self.entry(letter, path);
        }
    }
}

fn expected(root: &Path) -> String {
    let mut expected = Expected(blake3::Hasher::new_derive_key("ringsum 2026-11-21 tree digest 1"));
    expected.add(root, b"");
    expected.0.finalize().to_string()
}

fn make_special(scratch: &Scratch, name: &str, kind: FileType) -> rustix::io::Result<()> {
    mknodat(CWD, scratch.join(name), kind, Mode::from(0o644), makedev(1, 3))
}

/// A tree at `root`, always the same except for the order in which it is created.
fn plant(scratch: &Scratch, root: &str, reversed: bool) {
    let mut files: Vec<(&str, Vec<u8>, u32)> = vec![
        ("a-b", b"1".to_vec(), 0o644),
        ("a/x", content(600_000), 0o755),
        ("a/y/z", Vec::new(), 0o600),
        ("a0", content(4097), 0o744),
        (".hidden", b"h".to_vec(), 0o654),
        ("new\nline", b"n".to_vec(), 0o644),
    ];
    if reversed {
        files.reverse();
    }
    scratch.make_dir(format!("{root}/empty"));
    for (name, content, mode) in files {
        let path = scratch.join(root).join(name);
        scratch.make_dir(path.parent().unwrap());
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    fs::write(scratch.join(root).join(OsStr::from_bytes(b"\xff\xfe")), "no UTF-8").unwrap();
    symlink("a/x", scratch.join(root).join("link")).unwrap();
    symlink("nowhere", scratch.join(root).join("dangling")).unwrap();
    make_special(scratch, &format!("{root}/fifo"), FileType::Fifo).unwrap();
    make_special(scratch, &format!("{root}/socket"), FileType::Socket).unwrap();
}

/// The digest that is printed for a tree.
#[track_caller]
fn digest(scratch: &Scratch, root: &str) -> String {
    let output = scratch.run(&["-r", "--tree-digest", root]);
    let hash = output.stdout()[..64].to_owned();
    output.expect(0, &format!("{hash}  {root}\n"), "");
    hash
}

#[test]
fn it_is_what_the_format_says() {
    let scratch = Scratch::new();
    plant(&scratch, "t", false);
    scratch.make_dir("nothing");
    let (t, nothing) = (expected(&scratch.join("t")), expected(&scratch.join("nothing")));
    assert_eq!(digest(&scratch, "t"), t);
    assert_eq!(digest(&scratch, "nothing"), nothing);
    let both = format!("{t}  t\n{nothing}  nothing\n{t}  t\n");
    for way in
        ["-j1", "-j16", "-x", "--io=engine=pread", "--io=page-cache=direct", "--io=workers=1"]
    {
        let output = scratch.run(&["-r", "--tree-digest", way, "t", "nothing", "t"]);
        output.expect(0, &both, "");
    }
    // A file has its hash, and no tree digest.
    let hash = blake3::hash(b"1");
    let tagged = scratch.run(&["-r", "--tree-digest", "--tag", "t"]);
    tagged.expect(0, &format!("BLAKE3 (t) = {t}\n"), "");
    let object = json!({"path": "t", "status": "ok", "tree_digest": t});
    scratch.run(&["-r", "--tree-digest", "--json", "t"]).expect(0, &format!("{object}\n"), "");
    assert_ne!(digest(&scratch, "t"), hash.to_string());
}

#[test]
fn devices_count_as_what_they_are() {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    let mut seen = vec![digest(&scratch, "t")];
    let kinds =
        [FileType::BlockDevice, FileType::CharacterDevice, FileType::Fifo, FileType::Socket];
    for kind in kinds {
        if let Err(error) = make_special(&scratch, "t/x", kind) {
            return skip(&format!("the digest of devices: {error}"));
        }
        let digest = digest(&scratch, "t");
        assert_eq!(digest, expected(&scratch.join("t")), "{kind:?}");
        assert!(!seen.contains(&digest), "{kind:?}");
        seen.push(digest);
        fs::remove_file(scratch.join("t/x")).unwrap();
    }
}

#[test]
fn it_is_the_same_elsewhere_and_another_after_any_change() {
    let scratch = Scratch::new();
    plant(&scratch, "t", false);
    scratch.make_dir("else/where");
    plant(&scratch, "else/where/u", true);
    let before = digest(&scratch, "t");
    assert_eq!(digest(&scratch, "else/where/u"), before);
    assert_eq!(digest(&scratch, "./else/where/u//")[..], before[..]);
    let changes = [
        "echo > t/new",
        "rm t/new t/a-b",
        "mv t/a0 t/a1",
        "mv t/a1 t/a",
        "chmod u+x t/.hidden",
        "chmod u-x t/.hidden",
        "printf 2 >> t/a/y/z",
        "ln -sfn a/y t/link",
        "rmdir t/empty",
        "mkdir t/a/empty",
        "rm t/fifo && printf '' > t/fifo",
        "rm t/link && mkdir t/link",
    ];
    let mut seen = vec![before];
    for change in changes {
        let output = scratch.shell(change);
        assert_eq!(output.code, 0, "{change}: {}", output.stderr);
        let digest = digest(&scratch, "t");
        assert_eq!(digest, expected(&scratch.join("t")), "{change}");
        let undone = change == "chmod u-x t/.hidden";
        assert_eq!(seen.contains(&digest), undone, "{change}");
        seen.push(digest);
    }
}

/// The example of `docs/tree-digest.md`.
#[test]
fn the_example_of_the_specification() {
    let scratch = Scratch::new();
    let made = scratch.shell(
        "mkdir -p t/bin && echo hello > t/bin/run && chmod 755 t/bin/run \
         && ln -s bin/run t/link && mkfifo t/pipe",
    );
    assert_eq!(made.code, 0, "{}", made.stderr);
    let printed = "fb526c4f936af64d8ee1227c6a372e88f4c5a341eaefb2a67506b6d3a3bbf302";
    assert_eq!(digest(&scratch, "t"), printed);
}

/// Times, owners and most permissions do not count.
#[test]
fn what_does_not_count() {
    let scratch = Scratch::new();
    plant(&scratch, "t", false);
    let before = digest(&scratch, "t");
    let changes =
        ["touch -d @1 t/a-b t/a", "chmod 700 t/a", "chmod go-rwx t/a-b", "ln t/a-b hard-link"];
    for change in changes {
        assert_eq!(scratch.shell(change).code, 0, "{change}");
        assert_eq!(digest(&scratch, "t"), before, "{change}");
    }
}

#[test]
fn a_tree_of_which_something_is_missing_has_none() {
    let scratch = Scratch::new();
    let Some(mut command) = scratch.unprivileged(&["-r", "--tree-digest", "t", "u"]) else {
        return;
    };
    for name in ["t/a", "t/b", "u/a"] {
        scratch.make_dir(scratch.join(name).parent().unwrap());
        scratch.write(name, name);
    }
    fs::set_permissions(scratch.join("t/a"), Permissions::from_mode(0o0)).unwrap();
    let output = crate::support::run(&mut command, b"");
    // The other tree still has its digest.
    let line = format!("{}  u\n", expected(&scratch.join("u")));
    assert_eq!((output.code, output.stdout()), (1, &*line), "{}", output.stderr);
    let denied = "ringsum: t/a: Permission denied (os error 13)\n";
    assert!(output.stderr.starts_with(denied), "{}", output.stderr);
    assert!(output.stderr.contains("ringsum: t: no digest of the tree"), "{}", output.stderr);
}
