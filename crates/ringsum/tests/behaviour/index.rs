//! `--index`: unchanged files are not read again, changed ones are, and no damage to the index
//! makes a wrong line.

use std::collections::HashSet;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rusqlite::Connection;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::mounting::{attempt, noise};
use crate::stopping::{make_fifos, open_to_write};
use crate::support::{Output, Scratch, Watchdog, content, files_below, hex, line, lines_below};

/// How long a file must be unchanged before its hash is recorded.
const SETTLED: Duration = Duration::from_millis(2100);

fn settle() {
    thread::sleep(SETTLED);
}

/// Lengths of the files of [`tree`].
const LENGTHS: [usize; 7] = [0, 1, 1000, 4096, 100_000, 600_000, 1 << 20];

fn tree() -> Scratch {
    let scratch = Scratch::new();
    scratch.make_dir("t/sub/sub");
    for (i, len) in LENGTHS.into_iter().enumerate() {
        let folder = ["t", "t/sub", "t/sub/sub"][i % 3];
        scratch.write(format!("{folder}/{len}"), content(len));
    }
    scratch.write("t/sub/new\nline", "odd");
    scratch
}

fn bytes_below(scratch: &Scratch) -> u64 {
    files_below(&scratch.join("t")).values().map(|content| content.len() as u64).sum()
}

/// Runs with the index; returns the output and the number of bytes that were read.
fn indexed(scratch: &Scratch, args: &[&str]) -> (Output, u64) {
    let mut output = scratch.run(&[&["--index=index", "--stats=json"], args].concat());
    let said = output.stderr.trim_end();
    let (before, last) = said.rsplit_once('\n').unwrap_or(("", said));
    let stats: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(stats["total"], true, "{output:?}");
    output.stderr = before.to_owned();
    (output, stats["bytes"].as_u64().unwrap())
}

/// Checks that the tree is printed correctly, and that this many bytes of it are read.
#[track_caller]
fn expect_read(scratch: &Scratch, args: &[&str], bytes: u64) {
    let (output, read) = indexed(scratch, &[&["-r", "t"], args].concat());
    output.expect_bytes(0, &lines_below(&scratch.join("t"), "t"), "");
    assert_eq!(read, bytes, "{args:?}");
}

#[test]
fn statistics_count_what_the_index_knew() {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    for name in ["a", "b", "empty"] {
        scratch.write(format!("t/{name}"), content(name.len() % 5 * 700));
    }
    settle();
    let run = |format: &str| scratch.run(&["-r", "--index=index", format, "t"]).stderr;
    let first = run("--stats");
    assert!(first.contains("requests: ") && !first.contains("unchanged"), "{first}");
    let again = run("--stats");
    let unchanged = "  unchanged: 3 files, 1400 bytes, not read: the digests are from the index\n";
    assert!(again.contains(unchanged) && again.contains("  read: nothing\n"), "{again}");
    assert!(!again.contains("keep pace"), "{again}");
    let stats: Value = serde_json::from_str(run("--stats=json").trim_end()).unwrap();
    assert_eq!((&stats["from_index"], &stats["inputs"]), (&3.into(), &3.into()));
}

#[test]
fn what_did_not_change_is_not_read_again() {
    let scratch = tree();
    settle();
    expect_read(&scratch, &[], bytes_below(&scratch));
    let before = fs::read(scratch.join("index")).unwrap();
    for way in
        [&[][..], &["-j1"], &["--io=engine=io_uring"], &["--io=page-cache=direct"], &["--follow"]]
    {
        expect_read(&scratch, way, 0);
    }
    assert_eq!(fs::read(scratch.join("index")).unwrap(), before, "nothing was to be written");
    // The same tree by other names.
    let root = scratch.join("t");
    for shown in ["./t", "t/sub/..", root.to_str().unwrap()] {
        let (output, read) = indexed(&scratch, &["-r", shown]);
        output.expect_bytes(0, &lines_below(&root, shown), "");
        assert_eq!(read, 0, "{shown}");
    }
    let (output, read) = indexed(&scratch, &["t/0", "t/sub/100000"]);
    let lines = [line(b"", b"t/0"), line(&content(100_000), b"t/sub/100000")].concat();
    output.expect_bytes(0, &lines, "");
    assert_eq!(read, 0, "files that are named");
    let plain = scratch.run(&["-r", "--tree-digest", "t"]);
    let (output, read) = indexed(&scratch, &["-r", "--tree-digest", "t"]);
    output.expect_bytes(0, &plain.stdout, "");
    assert_eq!(read, 0, "the digest of the tree");
    let plain = scratch.run(&["-r", "--json", "t"]);
    let (output, read) = indexed(&scratch, &["-r", "--json", "t"]);
    output.expect_bytes(0, &plain.stdout, "");
    assert_eq!(read, 0, "objects");
}

/// With these options each file is read on its own; the index is used all the same.
#[test]
fn what_is_read_alone_is_not_read_again_either() {
    let scratch = tree();
    settle();
    expect_read(&scratch, &[], bytes_below(&scratch));
    for way in ["--io=workers=1", "--io=order=in-order", "--io=engine=mmap", "--io=block-size=1000"]
    {
        expect_read(&scratch, &[way], 0);
    }
}

/// Copies the modification time of a file to another one.
fn copy_times(from: &Path, to: &Path) {
    let metadata = from.metadata().unwrap();
    let times = fs::FileTimes::new().set_modified(metadata.modified().unwrap());
    File::options().write(true).open(to).unwrap().set_times(times).unwrap();
}

#[test]
fn what_changed_is_read_again() {
    let scratch = tree();
    scratch.write("other", vec![7; 4096]);
    copy_times(&scratch.join("t/4096"), &scratch.join("other"));
    settle();
    expect_read(&scratch, &[], bytes_below(&scratch));
    // Other contents with the same length and time: written in place, and by a rename.
    let in_place = scratch.join("t/sub/100000");
    let modified = in_place.metadata().unwrap().modified().unwrap();
    let file = File::options().write(true).open(&in_place).unwrap();
    file.write_all_at(b"changed", 50_000).unwrap();
    file.set_times(fs::FileTimes::new().set_modified(modified)).unwrap();
    fs::rename(scratch.join("other"), scratch.join("t/4096")).unwrap();
    // Appended to; other permissions; new; removed; moved.
    File::options().append(true).open(scratch.join("t/sub/1")).unwrap().write_all(b"more").unwrap();
    fs::set_permissions(scratch.join("t/1048576"), Permissions::from_mode(0o600)).unwrap();
    scratch.write("t/new", "new");
    fs::remove_file(scratch.join("t/sub/sub/1000")).unwrap();
    fs::rename(scratch.join("t/sub/sub/600000"), scratch.join("t/moved")).unwrap();
    let changed = 100_000 + 4096 + 5 + (1 << 20) + 3 + 600_000;
    expect_read(&scratch, &[], changed);
    // They were too new to be recorded.
    settle();
    expect_read(&scratch, &[], changed);
    expect_read(&scratch, &[], 0);
}

/// A file that could still change without a new ctime is not recorded.
#[test]
fn what_is_new_is_not_remembered() {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    // On a machine that stalls for two seconds, the test shows nothing.
    let shown = (0..20).any(|round| {
        let began = Instant::now();
        scratch.write("t/file", content(1000 + round));
        expect_read(&scratch, &[], 1000 + round as u64);
        let was_new = began.elapsed() < Duration::from_millis(1900);
        if was_new {
            expect_read(&scratch, &[], 1000 + round as u64);
        }
        was_new
    });
    assert!(shown, "every run took two seconds");
    settle();
    expect_read(&scratch, &[], scratch.join("t/file").metadata().unwrap().len());
    expect_read(&scratch, &[], 0);
}

/// A file is overwritten again and again, with the same length and mtime.
#[test]
fn no_change_is_too_quick() {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    let path = scratch.write("t/file", [0; 1000]);
    let file = File::options().write(true).open(path).unwrap();
    for round in 0..60_u8 {
        file.write_all_at(&[round; 1000], 0).unwrap();
        file.set_times(fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH)).unwrap();
        let (output, _) = indexed(&scratch, &["-r", "t"]);
        output.expect_bytes(0, &line(&[round; 1000], b"t/file"), "");
    }
}

#[test]
fn verifying_reads_everything_and_counts() {
    let scratch = tree();
    settle();
    let all = bytes_below(&scratch);
    let counted = |args: &[&str], counts: &str| {
        let (output, read) = indexed(&scratch, &[&["-r", "t", "--verify-index"], args].concat());
        let said = format!("ringsum: index: {counts}");
        output.expect_bytes(0, &lines_below(&scratch.join("t"), "t"), &said);
        read
    };
    let read = counted(&[], "0 unchanged, 0 changed, 8 new, 0 gone, 0 corrupt");
    assert_eq!(read, all);
    for way in ["-j1", "--io=page-cache=direct"] {
        let read = counted(&[way], "8 unchanged, 0 changed, 0 new, 0 gone, 0 corrupt");
        assert_eq!(read, all);
    }
    scratch.write("t/4096", "changed");
    scratch.write("t/new", "new");
    fs::remove_file(scratch.join("t/sub/1")).unwrap();
    fs::remove_file(scratch.join("t/0")).unwrap();
    counted(&[], "5 unchanged, 1 changed, 1 new, 2 gone, 0 corrupt");
}

#[test]
fn other_bytes_under_the_same_times_are_corrupt() {
    attempt("--verify-index, what a disk does by itself", |setup| {
        setup.make("mkfs.ext4 -q -F", 16, "rw", "off")?;
        for len in [5000, 100_000] {
            setup.write(&format!("on/{len}"), &noise(len));
        }
        settle();
        let before = lines_below(&setup.scratch.join("on"), "on");
        setup.scratch.run(&["-r", "--index=index", "on"]).expect_bytes(0, &before, "");
        setup.undo_all()?;
        let bad = setup.change(&noise(100_000));
        let device = setup.attach("backing", "off")?;
        setup.mount(&format!("mount {device}"))?;
        assert!(fs::read(setup.scratch.join("on/100000")).unwrap() == bad, "nothing was changed");
        // The file is not read, so the damage is not noticed.
        let (output, read) = indexed(&setup.scratch, &["-r", "on"]);
        output.expect_bytes(0, &before, "");
        assert_eq!(read, 0);
        let verify = ["-r", "--index=index", "--verify-index", "on"];
        let good = line(&noise(5000), b"on/5000");
        let said = "ringsum: on/100000: corrupt: its contents differ from those in the index, but its \
                    size and times do not\n\
                    ringsum: index: 1 unchanged, 0 changed, 0 new, 0 gone, 1 corrupt\n\
                    ringsum: 1 file failed\n";
        // Also the second time: the recorded hash stays.
        for _ in 0..2 {
            setup.scratch.run(&verify).expect_bytes(1, &good, said);
        }
        let output = setup.scratch.run(&[&verify[..], &["--json"]].concat());
        let object: Value = serde_json::from_str(output.stdout().lines().next().unwrap()).unwrap();
        let corrupt = [&object["status"], &object["path"], &object["hash"]];
        assert_eq!(corrupt, ["corrupt", "on/100000", &*hex(&bad)], "{output:?}");
        Ok(())
    });
}

#[test]
fn a_tree_with_something_corrupt_has_no_digest() {
    attempt("--verify-index --tree-digest", |setup| {
        setup.make("mkfs.ext4 -q -F", 16, "rw", "off")?;
        setup.write("on/5000", &noise(5000));
        setup.write("on/other", b"other");
        settle();
        assert_eq!(setup.scratch.run(&["-r", "--index=index", "on"]).code, 0);
        setup.undo_all()?;
        setup.change(&noise(5000));
        let device = setup.attach("backing", "off")?;
        setup.mount(&format!("mount {device}"))?;
        let args = ["-r", "--index=index", "--verify-index", "--tree-digest", "on"];
        let output = setup.scratch.run(&args);
        assert_eq!((output.code, output.stdout()), (1, ""), "{}", output.stderr);
        assert!(output.stderr.contains("on/5000: corrupt"), "{}", output.stderr);
        Ok(())
    });
}

#[test]
fn what_a_run_does_not_see_is_not_forgotten() {
    let scratch = tree();
    let folder = scratch.make_dir("shared");
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    let args = ["-r", "--index=shared/index", "t", "--stats=json"];
    let read_by_all = |args: &[&str]| {
        let output = scratch.run(args);
        let bytes = |line: &str| serde_json::from_str::<Value>(line).ok()?["bytes"].as_u64();
        output.stderr.lines().find_map(bytes).unwrap_or_else(|| panic!("{output:?}"))
    };
    settle();
    assert_eq!(read_by_all(&args), bytes_below(&scratch));
    fs::set_permissions(folder.join("index"), Permissions::from_mode(0o666)).unwrap();
    scratch.run(&["-r", "--index=shared/index", "t", "--exclude=sub"]);
    scratch.run(&["-r", "--index=shared/index", "t", "--include=0"]);
    scratch.run(&["-r", "--index=shared/index", "t/sub/sub"]);
    scratch.run(&["--index=shared/index", "t/0"]);
    assert_eq!(read_by_all(&args), 0);
    // Nor files that it has no permission to see.
    let sub = scratch.join("t/sub");
    if let Some(mut command) = scratch.unprivileged(&args) {
        fs::set_permissions(&sub, Permissions::from_mode(0o0)).unwrap();
        let output = crate::support::run(&mut command, b"");
        fs::set_permissions(&sub, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(output.code, 1, "{}", output.stderr);
        assert!(output.stderr.contains("t/sub: Permission denied"), "{}", output.stderr);
        assert_eq!(read_by_all(&args), 0);
    }
}

#[test]
fn an_index_that_cannot_be_written_is_read() {
    let scratch = tree();
    settle();
    expect_read(&scratch, &[], bytes_below(&scratch));
    let folder = scratch.make_dir("fixed");
    fs::rename(scratch.join("index"), folder.join("index")).unwrap();
    fs::set_permissions(folder.join("index"), Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o555)).unwrap();
    let args = ["-r", "--index=fixed/index", "t"];
    let Some(mut command) = scratch.unprivileged(&args) else { return };
    let output = crate::support::run(&mut command, b"");
    output.expect_bytes(0, &lines_below(&scratch.join("t"), "t"), "");
    // A new file is hashed, but cannot be recorded.
    scratch.write("t/new", "new");
    settle();
    let Some(mut command) = scratch.unprivileged(&args) else { return };
    let output = crate::support::run(&mut command, b"");
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(output.stdout, lines_below(&scratch.join("t"), "t"));
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stderr.contains("cannot write index fixed/index"), "{}", output.stderr);
}

/// The files in the directory of the index, with their contents.
fn in_folder(scratch: &Scratch) -> Vec<(Vec<u8>, Vec<u8>)> {
    files_below(&scratch.join("i")).into_iter().collect()
}

/// Checks that an index is refused with a reason and left untouched, and that nothing is hashed.
#[track_caller]
fn expect_refused(scratch: &Scratch, index: &str, why: &str) {
    let before = in_folder(scratch);
    let output = scratch.run(&["-r", "t", &format!("--index={index}")]);
    assert_eq!((output.code, output.stdout()), (1, ""), "{index}: {}", output.stderr);
    assert!(output.stderr.contains(index), "{}", output.stderr);
    assert!(output.stderr.contains(why), "{index}: {}", output.stderr);
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    assert!(in_folder(scratch) == before, "{index}: something was written");
}

#[test]
fn what_is_no_index_is_refused_and_not_touched() {
    let scratch = tree();
    scratch.make_dir("i/folder");
    scratch.write("i/short", "x");
    scratch.write("i/text", "A text of somebody's.\n".repeat(500));
    scratch.write("i/noise", noise(10_000));
    mknodat(CWD, scratch.join("i/fifo"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    let sqlite = |name: &str, script: &str| {
        Connection::open(scratch.join(name)).unwrap().execute_batch(script).unwrap();
    };
    sqlite("i/foreign", "CREATE TABLE file (path BLOB)");
    sqlite("i/marked", "PRAGMA application_id = 7; CREATE TABLE file (path BLOB)");
    assert_eq!(scratch.run(&["--index=i/newer", "t/0"]).code, 0);
    sqlite("i/newer", "PRAGMA user_version = 2");
    let cases = [
        ("i/folder", "not a regular file"),
        ("i/fifo", "not a regular file"),
        ("i/short", "not a SQLite database"),
        ("i/text", "not a SQLite database"),
        ("i/noise", "not a SQLite database"),
        ("i/foreign", "not an index of this program"),
        ("i/marked", "application id is 0x7"),
        ("i/newer", "format 2"),
        ("i/none/index", "there is no directory i/none"),
    ];
    for (index, why) in cases {
        expect_refused(&scratch, index, why);
    }
    // These have no special meaning.
    for index in [":memory:", "file:x?mode=memory", "i/empty"] {
        if index == "i/empty" {
            scratch.write(index, "");
        }
        let index = format!("--index={index}");
        let output = scratch.run(&["-r", "t", &index]);
        output.expect_bytes(0, &lines_below(&scratch.join("t"), "t"), "");
    }
    assert!(scratch.join(":memory:").is_file() && scratch.join("file:x?mode=memory").is_file());
}

/// An index `i/index` of this many files, and its bytes.
fn filled(files: usize) -> (Scratch, Vec<u8>) {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    scratch.make_dir("i");
    (0..files).for_each(|i| drop(scratch.write(format!("t/{i}"), i.to_string())));
    settle();
    assert_eq!(scratch.run(&["-r", "t", "--index=i/index"]).code, 0);
    let bytes = fs::read(scratch.join("i/index")).unwrap();
    (scratch, bytes)
}

/// Checks that an index is reported as damaged and not written to, and that no line is wrong.
#[track_caller]
fn expect_damaged(scratch: &Scratch, case: &str) {
    let before = in_folder(scratch);
    let output = scratch.run(&["-r", "t", "--index=i/index"]);
    assert_eq!(output.code, 1, "{case}: {}", output.stderr);
    assert!(output.stderr.contains("i/index is damaged"), "{case}: {}", output.stderr);
    let expected = lines_below(&scratch.join("t"), "t");
    let right = output.stdout.is_empty() || output.stdout == expected;
    assert!(right, "{case}: {output:?}");
    assert!(in_folder(scratch) == before, "{case}: it was written to");
}

#[test]
fn a_row_that_is_not_as_it_was_written_is_damage() {
    let (scratch, bytes) = filled(300);
    let changes = [
        "hash = zeroblob(32)",
        "size = size + 1",
        "mtime_ns = 0",
        "ctime_ns = ctime_ns + 1",
        "inode = inode + 1",
        "file_system = 1",
        "row_check = 0",
        "hash = (SELECT hash FROM file ORDER BY path LIMIT 1)",
    ];
    for change in changes {
        scratch.write("i/index", &bytes);
        let database = Connection::open(scratch.join("i/index")).unwrap();
        let path = scratch.join("t/250").canonicalize().unwrap();
        let path = path.as_os_str().as_bytes();
        let script = format!("UPDATE file SET {change} WHERE path = ?1");
        assert_eq!(database.execute(&script, [path]).unwrap(), 1, "{change}");
        drop(database);
        expect_damaged(&scratch, change);
    }
}

#[test]
fn an_index_that_was_cut_off_is_damage() {
    let (scratch, bytes) = filled(300);
    let page = 4096;
    assert!(bytes.len() > 4 * page);
    for len in [page - 1, page, page + 1, 2 * page, bytes.len() - page, bytes.len() - page / 2] {
        scratch.write("i/index", &bytes[..len]);
        expect_damaged(&scratch, &format!("cut off at {len} of {}", bytes.len()));
    }
}

#[test]
fn a_small_index_that_was_cut_off_is_damage() {
    let (scratch, bytes) = filled(4);
    for len in [bytes.len() - 4096, bytes.len() - 3000, bytes.len() - 1] {
        scratch.write("i/index", &bytes[..len]);
        expect_damaged(&scratch, &format!("cut off at {len} of {}", bytes.len()));
    }
}

/// Whatever bit is flipped: no wrong line and no crash; damage that is noticed is reported.
#[test]
fn damage_anywhere_makes_no_wrong_line() {
    let (scratch, bytes) = filled(300);
    let expected = lines_below(&scratch.join("t"), "t");
    let mut noticed = 0;
    for i in 0..60_usize {
        let mut damaged = bytes.clone();
        // Many in the header, some everywhere else.
        let at = if i < 20 { i * 5 } else { i * 7919 * 13 % bytes.len() };
        damaged[at] ^= 1 << (i % 8);
        scratch.write("i/index", &damaged);
        let output = scratch.run(&["-r", "t", "--index=i/index"]);
        let case = format!("bit {} of byte {at}: {output:?}", i % 8);
        match output.code {
            0 => assert!(output.stdout == expected && output.stderr.is_empty(), "{case}"),
            1 => {
                assert!(output.stdout.is_empty() || output.stdout == expected, "{case}");
                assert!(output.stderr.contains("i/index"), "{case}");
                noticed += 1;
            }
            _ => panic!("{case}"),
        }
        let _ = fs::remove_file(scratch.join("i/index-journal"));
    }
    assert!(noticed > 10, "only {noticed} were noticed");
}

/// Kills a running command after a while. Returns false if it had ended by then.
fn kill_after(mut child: Child, time: Duration) -> bool {
    use std::os::unix::process::ExitStatusExt;
    thread::sleep(time);
    child.kill().unwrap();
    child.wait().unwrap().signal() == Some(9)
}

fn start(scratch: &Scratch, args: &[&str]) -> Child {
    let mut command = scratch.command(args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_run_that_is_killed_leaves_nothing_wrong() {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    (0..300).for_each(|i| drop(scratch.write(format!("t/{i}"), i.to_string())));
    settle();
    let args = ["-r", "t", "--index=index"];
    let began = Instant::now();
    assert_eq!(scratch.run(&args).code, 0);
    let whole = began.elapsed();
    let (mut killed, mut rounds) = (0, 0..400_u32);
    // (How many are killed in time depends on what else runs.)
    while let Some(round) = rounds.next().filter(|round| *round < 45 || killed <= 10) {
        // An index that is being created, an existing one, and one with rows to remove.
        if round % 3 == 0 {
            fs::remove_file(scratch.join("index")).unwrap();
        }
        for i in 0..3 {
            scratch.write(format!("t/{}", (round * 7 + i * 101) % 300), format!("{round} {i}"));
        }
        // A different time in each round, between the start and the end of a run.
        let time = whole * (round * 37 % 45) / 45;
        killed += u32::from(kill_after(start(&scratch, &args), time));
        let output = scratch.run(&args);
        output.expect_bytes(0, &lines_below(&scratch.join("t"), "t"), "");
    }
    assert!(killed > 10, "only {killed} runs were killed");
    settle();
    assert_eq!(scratch.run(&args).code, 0);
    expect_read(&scratch, &[], 0);
    assert!(!scratch.join("index-journal").exists());
}

#[test]
fn two_runs_at_once_share_an_index() {
    let scratch = Scratch::new();
    for i in 0..300 {
        scratch.make_dir(format!("t/{}", i % 3));
        scratch.write(format!("t/{}/{i}", i % 3), i.to_string());
    }
    settle();
    let expected = lines_below(&scratch.join("t"), "t");
    for round in 0..12 {
        if round % 2 == 0 {
            let _ = fs::remove_file(scratch.join("index"));
        }
        let args = ["-r", "t", "--index=index"];
        let runs: Vec<_> = (0..3)
            .map(|_| {
                let mut command = scratch.command(&args);
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
                let child = command.spawn().unwrap();
                (Watchdog::of(&child), child)
            })
            .collect();
        for (_watchdog, child) in runs {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), &*said), (Some(0), ""), "round {round}");
            assert!(output.stdout == expected, "round {round}");
        }
    }
    expect_read(&scratch, &[], 0);
}

/// More files than the changes that are written together.
const MANY: usize = 10_000;

/// Another process has locked the index during a whole run, as a backup of it might: the run neither waits
/// for the lock nor loses a line.
#[test]
fn a_locked_index_holds_up_no_line() {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    (0..MANY).for_each(|i| drop(scratch.write(format!("t/{i}"), "x")));
    let expected = lines_below(&scratch.join("t"), "t");
    settle();
    // One index with hardly a row, and one with all of them, of which a run under a lock can read none.
    scratch.run(&["--index=empty", "t/0"]).expect_bytes(0, &line(b"x", b"t/0"), "");
    scratch.run(&["-r", "t", "--index=full"]).expect_bytes(0, &expected, "");
    thread::scope(|scope| {
        scope.spawn(|| under_a_lock(&scratch, "empty", &expected));
        under_a_lock(&scratch, "full", &expected);
    });
    // The records that could not be read are unchanged.
    let said = format!("ringsum: index: {MANY} unchanged, 0 changed, 0 new, 0 gone, 0 corrupt\n");
    let args = ["-r", "t", "--index=full", "--verify-index"];
    scratch.run(&args).expect_bytes(0, &expected, &said);
}

fn under_a_lock(scratch: &Scratch, index: &str, expected: &[u8]) {
    let lock = Connection::open(scratch.join(index)).unwrap();
    lock.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let option = format!("--index={index}");
    let args = ["-r", "t", &option];
    let said = format!(
        "ringsum: warning: another process has locked the index: {MANY} files were hashed without \
         it, and {MANY} changes, which it may already have, were not stored\n"
    );
    scratch.run(&args).expect_bytes(0, expected, &said);
    let output = scratch.run(&[&args[..], &["--verify-index"]].concat());
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stdout == expected, "{index}: some lines are missing");
    assert!(output.stderr.contains("another process has locked it"), "{}", output.stderr);
    // Ctrl-C. (With -r, FIFOs are read only with --allow-special.)
    let fifos = ["one", "two"].map(|name| format!("{index}-{name}"));
    let [one, two] = fifos.each_ref().map(|name| &**name);
    make_fifos(scratch, &[one, two]);
    let mut command = scratch.command(&[&args[..], &["--allow-special", one, two]].concat());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let _watchdog = Watchdog::of(&child);
    let mut stdout = child.stdout.take().unwrap();
    let lines = thread::spawn(move || {
        let mut lines = Vec::new();
        stdout.read_to_end(&mut lines).map(|_| lines).unwrap()
    });
    open_to_write(scratch, one, &mut child).write_all(b"first").unwrap();
    // FIFOs are read one after another, in order: the first is finished now.
    let _two = open_to_write(scratch, two, &mut child);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let lines = lines.join().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT));
    let first = line(b"first", one.as_bytes());
    let right: HashSet<_> = expected.split_inclusive(|byte| *byte == b'\n').collect();
    let (found, other): (Vec<&[u8]>, Vec<_>) =
        lines.split_inclusive(|byte| *byte == b'\n').partition(|line| right.contains(line));
    assert_eq!(other, [&first[..]], "{index}: beside {} lines of the tree", found.len());
}

/// Files whose lines were printed before Ctrl-C are not read again.
#[test]
fn a_run_that_is_interrupted_remembers_what_it_finished() {
    let scratch = tree();
    make_fifos(&scratch, &["one", "two"]);
    settle();
    // By name, since -r skips FIFOs.
    let names: Vec<_> = files_below(&scratch.join("t"))
        .into_keys()
        .map(|path| String::from_utf8([b"t/", &path[..]].concat()).unwrap())
        .collect();
    let names = names.iter().map(String::as_str);
    let args: Vec<_> = ["--index=index", "one"].into_iter().chain(names).chain(["two"]).collect();
    let mut command = scratch.command(&args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let _watchdog = Watchdog::of(&child);
    open_to_write(&scratch, "one", &mut child).write_all(b"first").unwrap();
    let _two = open_to_write(&scratch, "two", &mut child);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGINT));
    let printed = String::from_utf8(output.stdout).unwrap();
    let left = files_below(&scratch.join("t")).into_iter().filter(|(path, content)| {
        let name = [b"t/", &path[..]].concat();
        !printed.contains(std::str::from_utf8(&line(content, &name)).unwrap())
    });
    let left = left.map(|(_, content)| content.len() as u64).sum();
    expect_read(&scratch, &[], left);
}
