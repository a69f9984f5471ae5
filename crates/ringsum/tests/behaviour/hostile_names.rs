//! Escape sequences in names and in other data from files never reach a terminal, in any mode.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;

use crate::support::{Scratch, content, hex, run};
use crate::terminal::bytes_on_terminal;

/// A title, a colour, a bell, a backspace, a delete, C1 controls as UTF-8 and as a byte,
/// right-to-left text, zero-width characters, a tag, a line separator, and newlines.
const HOSTILE: &[u8] = b"h\x1b]0;t\x07\x1b[31m\x08\x7f\xc2\x9b[32m\xc2\x85\x9b\xe2\x80\xae\xe2\x80\x8b\xef\xbb\xbf\xc2\xad\
                         \xf3\xa0\x81\x81\xe2\x80\xa8\n\rringsum: x\t";

/// Control sequences of the progress bar: carriage return, erase line, cursor up.
const OF_THE_BAR: [&[u8]; 4] = [b"\r", b"\x1b[2K", b"\x1b[1A", b"\x1b[1B"];

fn hostile(before: &str) -> OsString {
    OsString::from_vec([before.as_bytes(), HOSTILE].concat())
}

/// Characters that a terminal acts on, or does not show.
fn tricks(mut shown: &[u8], own: &[&[u8]]) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = Vec::new();
    while let [first, tail @ ..] = shown {
        match own.iter().find(|own| shown.starts_with(own)) {
            Some(own) => shown = &shown[own.len()..],
            None => {
                rest.push(*first);
                shown = tail;
            }
        }
    }
    for chunk in rest.utf8_chunks() {
        found.extend(chunk.invalid().iter().map(|byte| format!("byte {byte:02x}")));
        for c in chunk.valid().chars().filter(|c| *c != '\n') {
            let is_unseen = matches!(
                c,
                '\u{202e}' | '\u{200b}' | '\u{feff}' | '\u{ad}' | '\u{e0041}' | '\u{2028}'
            );
            if c.is_control() || is_unseen {
                found.push(c.escape_unicode().to_string());
            }
        }
    }
    found
}

fn everything_hostile() -> Scratch {
    let scratch = Scratch::new();
    let name = hostile("");
    let dir = scratch.make_dir(OsStr::from_bytes(&[b"t/", HOSTILE].concat()));
    fs::write(dir.join(&name), "x").unwrap();
    fs::write(dir.join(".gitignore"), HOSTILE).unwrap();
    symlink(&name, dir.join(hostile("link"))).unwrap();
    symlink(hostile("nowhere"), dir.join(hostile("dangling"))).unwrap();
    symlink(".", dir.join(hostile("loop"))).unwrap();
    let fifo = dir.join(hostile("fifo"));
    rustix::fs::mknodat(rustix::fs::CWD, fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    scratch.write(&name, "x");
    let long = content(3 << 20);
    scratch.write(hostile("long"), &long);
    lists(&scratch);
    scratch
}

/// Lists with all kinds of names, lines and tags.
fn lists(scratch: &Scratch) {
    let name = hostile("");
    let sums = run(&mut scratch.command(&[name.as_os_str(), &hostile("long")]), b"").stdout;
    let hash = hex(b"another");
    let mut list = sums.clone();
    let bare: Vec<u8> = HOSTILE.iter().copied().filter(|b| !b"\n\r".contains(b)).collect();
    for line in [
        [hash.as_bytes(), b"  ", &bare].concat(),
        [b"\\", hash.as_bytes(), b"  ", &ringsum::checkfile::escape(HOSTILE)[1..]].concat(),
        [b"SHA", &bare[..], b" (a) = ", hash.as_bytes()].concat(),
        [b"SHA256 (", &bare[..], b") = ", hash.as_bytes()].concat(),
        [b"\\", hash.as_bytes(), b"  \\", &bare[..]].concat(),
        [&hash.as_bytes()[1..], b"  ", &bare[..]].concat(),
        bare.clone(),
    ] {
        list.extend(line);
        list.push(b'\n');
    }
    scratch.write(hostile("list"), &list);
    let zero = [hash.as_bytes(), b"  ", HOSTILE, b"\0", HOSTILE, b"\0"].concat();
    scratch.write("zero", zero);
    scratch.write("names", [HOSTILE, b"\0no", HOSTILE, b"\0t/", HOSTILE, b"\0"].concat());
    let fifo = [b"t/", HOSTILE, b"/fifo", HOSTILE].concat();
    let fifo = ringsum::checkfile::escape(&fifo).into_owned();
    scratch.write("special", [b"\\", hash.as_bytes(), b"  ", &fifo[1..], b"\n"].concat());
    scratch.write(hostile("no_database"), content(200));
}

/// Runs the command with these arguments; `~` in one stands for the hostile name.
fn shown(scratch: &Scratch, words: &str) -> Vec<u8> {
    let word = |word: &str| {
        let parts: Vec<_> = word.split('~').map(str::as_bytes).collect();
        OsString::from_vec(parts.join(HOSTILE))
    };
    let args: Vec<_> = words.split(' ').filter(|word| !word.is_empty()).map(word).collect();
    let mut command = scratch.command(&args);
    if words.contains("--tag") {
        // Under every applet name.
        command.arg0(hostile(""));
    }
    bytes_on_terminal(command)
}

#[test]
fn no_mode_lets_a_name_act_on_a_terminal() {
    let scratch = everything_hostile();
    let modes = "~|no~|-- ~ no~ long~|--tag ~ no~|--tag -r t|--zero ~ no~|-l 64 ~|--no-names no~ ~\
        |--json ~ no~|--json --index index ~|--explain ~ long~|--stats ~ long~|--stats=json ~ long~\
        |--io engine=mmap ~|--io workers=2 ~|--bypass-cache ~|--limit-rate 1G ~|--list-bad-ranges ~ no~\
        |-r t|-r t/~|-r t no~|-r --json t|-r --follow t|-r --follow --json t|-r --gitignore t\
        |-r --include ~ t|-r --exclude [~ t|-r --tree-digest t|-r --tree-digest --json t/~\
        |-r --unordered --explain --stats t|-r --stats=json t|-r --index index t\
        |-r --index index --verify-index t|-r --index index~ t|-r --index t/~ t\
        |-r --index no~/x t|-r --index no_database~ t|-r --zero t|-r --allow-special --jobs 0 t\
        |--files-from names --null|--files-from names|--files-from no~|--files-from t/~\
        |--files-from names --null --json|-c list~|-c --json list~|-c --quiet list~|-c --status list~\
        |-c --lenient --warn list~|-c --ignore-missing list~|-c no~|-c t/~|-c --zero zero|-c special\
        |-c --json special|-c --report-unlisted t list~|-c --zero --report-unlisted t --follow zero\
        |-c --json --report-unlisted t list~|-c --report-unlisted no~ list~|-c --explain --stats list~\
        |--output no~/x ~|--output t/~ ~|--output ~ ~|--trace no~/x ~|--trace ~ ~|--tee no~/x ~\
        |--tee ~ ~|--raw no~|--~|--io ~ x|--length ~|--io engine=~ x|--derive-key ~ ~|--io block-size=~ x";
    let mut escaped = 0;
    for mode in modes.split('|') {
        let mode = mode.trim();
        let shown = shown(&scratch, mode);
        let own: &[&[u8]] = if mode.contains("--zero") { &[b"\0"] } else { &[] };
        let found = tricks(&shown, own);
        assert!(found.is_empty(), "{mode}: {found:?} in {}", String::from_utf8_lossy(&shown));
        let is_one_of_ours = |line: &[u8]| !line.starts_with(b"ringsum: x");
        assert!(
            shown.split(|byte| *byte == b'\n').all(is_one_of_ours),
            "{mode}: a line of its own"
        );
        let text = String::from_utf8_lossy(&shown);
        escaped += usize::from(text.contains("u{202e}") || text.contains("u202e"));
    }
    // The name was printed nearly everywhere.
    assert!(escaped > 60, "only {escaped}");
}

#[test]
fn the_progress_bar_shows_nothing_of_a_name_that_acts() {
    let scratch = everything_hostile();
    let mut in_the_bar = false;
    for mode in [
        "--progress=always long~ ~",
        "--progress=always -r t",
        "--progress=always -r --json t",
        "--progress=always --limit-rate 8M -r . --exclude fifo*",
        "--progress=always -c list~",
        "--progress=always -c --json list~",
    ] {
        let shown = shown(&scratch, mode);
        let found = tricks(&shown, &OF_THE_BAR);
        let text = String::from_utf8_lossy(&shown);
        let has_bar = text.contains("s left") || text.contains(" files: ");
        assert!(has_bar, "{mode}: no bar: {text}");
        assert!(found.is_empty(), "{mode}: {found:?} in {text}");
        let bars = text.split(['\n', '\r']).filter_map(|part| part.split_once(" files: "));
        in_the_bar |= bars.into_iter().any(|(_, name)| name.contains("\\u{2028}\\x0a"));
    }
    assert!(in_the_bar, "no name in any bar");
}
