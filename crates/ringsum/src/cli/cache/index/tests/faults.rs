//! Fault injection: foreign and damaged files, other processes, kills. There is never a wrong record, and nothing
//! is lost that was written.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use rusqlite::Connection;

use super::*;

/// Foreign databases that are in the middle of something, each with the files beside it.
fn busy_databases(directory: &Path) -> Vec<PathBuf> {
    ["delete", "wal"]
        .map(|mode| {
            let path = directory.join("original");
            let mut database = Connection::open(&path).unwrap();
            database.pragma_update(None, "journal_mode", mode).unwrap();
            database.pragma_update(None, "cache_size", 10).unwrap();
            database.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
            let transaction = database.transaction().unwrap();
            for i in 0..100 {
                transaction.execute("INSERT INTO t VALUES (zeroblob(3000 + ?1))", [i]).unwrap();
            }
            let copies = directory.join(mode);
            fs::create_dir(&copies).unwrap();
            for name in ["original", "original-journal", "original-wal", "original-shm"] {
                let _ = fs::copy(directory.join(name), copies.join(name));
            }
            assert!(fs::read_dir(&copies).unwrap().count() > 1, "{mode}: no journal");
            transaction.rollback().unwrap();
            drop(database);
            fs::remove_file(&path).unwrap();
            copies.join("original")
        })
        .into()
}

#[test]
fn a_file_that_is_no_index_stays_as_it_is() {
    let (directory, path) = place();
    drop(filled(&path, 100));
    let index = fs::read(&path).unwrap();
    let changed = |at: usize, bytes: &[u8]| {
        let mut changed = index.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let cases: [(&str, Vec<u8>, &str); 11] = [
        ("one byte", vec![b'\n'], "not a SQLite database"),
        ("text", b"a list of things".to_vec(), "not a SQLite database"),
        ("most of a header", index[..99].to_vec(), "not a SQLite database"),
        ("zeros", vec![0; 4096], "not a SQLite database"),
        (
            "noise",
            (0..999).flat_map(|i| number(i).to_le_bytes()).collect(),
            "not a SQLite database",
        ),
        ("magic", changed(3, b"x"), "not a SQLite database"),
        ("foreign", changed(68, &[0, 0, 0, 7]), "application id is 0x7"),
        ("newer", changed(60, &[0, 0, 0, 9]), "has format 9"),
        ("version 0", changed(60, &[0, 0, 0, 0]), "damaged: it has format 0"),
        ("cut", index[..index.len() - 4096].to_vec(), "damaged"),
        ("header alone", index[..100].to_vec(), "damaged"),
    ];
    for (name, bytes, expected) in cases {
        fs::write(&path, &bytes).unwrap();
        let error = Index::open(&path).expect_err(name).to_string();
        assert!(error.contains(expected), "{name}: {error}");
        assert!(error.contains(path.to_str().unwrap()), "{name}: {error}");
        assert!(error.contains("name another file"), "{name}: {error}");
        assert!(contents(directory.path()) == BTreeMap::from([(path.clone(), bytes)]), "{name}");
    }
    fs::remove_file(&path).unwrap();
    for path in busy_databases(directory.path()) {
        let before = contents(path.parent().unwrap());
        assert!(matches!(Index::open(&path), Err(IndexError::Foreign { .. })), "{path:?}");
        assert!(before == contents(path.parent().unwrap()), "{path:?}");
    }
}

/// Opens what may be damaged and asks for every row; no answer is a wrong one.
/// How many rows came, and whether there was an error.
fn read_damaged(path: &Path, rows: u64) -> (u64, bool) {
    let mut index = match Index::open(path) {
        Ok(index) => index,
        Err(error) => {
            assert!(error.to_string().contains("another file"), "{error}");
            return (0, true);
        }
    };
    let (mut right, mut failures) = (0, 0);
    for i in (0..rows).chain((0..200).map(|i| number(i) % rows)) {
        // Where nearly nothing can be read, the same error a hundred times is enough.
        if failures == 100 {
            break;
        }
        match index.get(&path_of(i)) {
            Ok(Some(found)) => {
                assert_eq!(found, record(i));
                right += 1;
            }
            Ok(None) => {}
            Err(error) => {
                assert!(matches!(error, IndexError::Damaged { .. }), "{error}");
                failures += 1;
            }
        }
    }
    (right, failures > 0)
}

#[test]
fn no_damage_gives_a_wrong_record() {
    const ROWS: u64 = 2000;
    let (_directory, path) = place();
    drop(filled(&path, ROWS));
    let whole = fs::read(&path).unwrap();
    let (mut unharmed, mut failed, mut hidden) = (0, 0, 0);
    // All of the header, the start of every second page, and bytes all over.
    let pages = (0..whole.len()).step_by(8192).flat_map(|page| page..page + 12);
    let all_over = (0..500).map(|i| number(i) as usize % whole.len());
    for (i, at) in (0..108).chain(pages).chain(all_over).enumerate() {
        let mut bytes = whole.clone();
        bytes[at] ^= if i % 2 == 0 { 1 << (i / 2 % 8) } else { 0xff };
        fs::write(&path, bytes).unwrap();
        match read_damaged(&path, ROWS) {
            (_, true) => failed += 1,
            (right, false) if right == ROWS + 200 => unharmed += 1,
            (_, false) => hidden += 1,
        }
    }
    println!("flips: {failed} found, {hidden} hid rows, {unharmed} did no harm");
    for at in (0..whole.len()).step_by(1777) {
        fs::write(&path, &whole[..at]).unwrap();
        let (_, failed) = read_damaged(&path, ROWS);
        assert_eq!(failed, at != 0, "cut at {at}");
    }
}

#[test]
fn two_at_once_see_what_the_other_wrote() {
    let (_directory, path) = place();
    let mut one = Index::open(&path).unwrap();
    let mut two = Index::open(&path).unwrap();
    for i in 0..100 {
        let (writer, reader) = if i % 2 == 0 { (&mut one, &mut two) } else { (&mut two, &mut one) };
        writer.put(&path_of(i), record(i)).unwrap();
        writer.flush(WAIT).unwrap();
        reader.page = None;
        assert_eq!(reader.get(&path_of(i)).unwrap(), Some(record(i)));
    }
    drop((one, two));
    assert_eq!(integrity(&path), "ok");
}

#[test]
fn one_is_made_though_many_make_it_at_once() {
    for _ in 0..30 {
        let (_directory, path) = place();
        let all = Barrier::new(6);
        thread::scope(|scope| {
            for i in 0..6 {
                let (path, all) = (&path, &all);
                scope.spawn(move || {
                    all.wait();
                    // Some come while the first is still at it.
                    thread::sleep(Duration::from_micros(i * 150));
                    let mut index = Index::open(path).unwrap();
                    index.put(&path_of(i), record(i)).unwrap();
                    index.flush(WAIT).unwrap();
                });
            }
        });
        let mut index = Index::open(&path).unwrap();
        assert!((0..6).all(|i| index.get(&path_of(i)).unwrap() == Some(record(i))));
    }
}

#[test]
fn it_opens_while_another_makes_it_longer() {
    // What is seen when the header was written and the new pages were not yet.
    let (_directory, path) = place();
    drop(filled(&path, 100));
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(4096).unwrap();
    probe(&path, &path).unwrap();
    drop(file);
    fs::remove_file(&path).unwrap();

    let mut index = filled(&path, 1);
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for i in 0..20_000 {
                index.put(&path_of(i), record(i)).unwrap();
                if i % 500 == 0 {
                    index.flush(WAIT).unwrap();
                }
            }
        });
        while !writer.is_finished() {
            let mut index = open_patiently(&path);
            assert_eq!(get_patiently(&mut index, &path_of(0)), Some(record(0)));
        }
    });
}

/// Opens an index, however long other threads lock it.
fn open_patiently(path: &Path) -> Index {
    loop {
        match Index::open(path) {
            Err(IndexError::Busy(..)) => {}
            index => return index.unwrap(),
        }
    }
}

#[test]
fn threads_write_at_once() {
    let (_directory, path) = place();
    thread::scope(|scope| {
        for thread in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let mut index = open_patiently(path);
                for i in (thread..2000).step_by(4) {
                    assert_eq!(get_patiently(&mut index, &path_of(i)), None);
                    index.put(&path_of(i), record(i)).unwrap();
                    if i % 100 < 4 {
                        index.flush(WAIT).unwrap();
                    }
                }
                index.flush(WAIT).unwrap();
            });
        }
    });
    let mut index = Index::open(&path).unwrap();
    for i in 0..2000 {
        assert_eq!(index.get(&path_of(i)).unwrap(), Some(record(i)));
    }
    assert_eq!(integrity(&path), "ok");
}

#[test]
fn a_locked_index_is_busy_and_nothing_is_lost() {
    let (_directory, path) = place();
    let mut index = filled(&path, 10);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert!(matches!(index.get(&path_of(0)), Err(IndexError::Busy { .. })));
    index.pending.insert(path_of(20), Some(record(20)));
    assert!(matches!(index.flush(Duration::ZERO), Err(IndexError::Busy { .. })));
    other.execute_batch("ROLLBACK").unwrap();
    // (It does not try again at once.)
    assert!(matches!(index.get(&path_of(0)), Err(IndexError::Busy { .. })));
    index.locked_until = None;
    assert_eq!(index.get(&path_of(20)).unwrap(), Some(record(20)));
    index.flush(WAIT).unwrap();
    assert_eq!(Index::open(&path).unwrap().get(&path_of(20)).unwrap(), Some(record(20)));
}

/// Which part `a_part_in_another_process` plays, and on which index.
const PART: &str = "RINGSUM_INDEX_TEST_PART";
const PART_INDEX: &str = "RINGSUM_INDEX_TEST_INDEX";

/// Runs this binary again, for one part.
fn in_another_process(part: &str, index: &Path) -> Command {
    let (_, module) = module_path!().split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("{module}::a_part_in_another_process"), "--exact", "--nocapture"]);
    command.env(PART, part).env(PART_INDEX, index).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn said(output: Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn a_part_in_another_process() {
    let (Ok(part), Some(path)) = (std::env::var(PART), std::env::var_os(PART_INDEX)) else {
        return;
    };
    let path = Path::new(&path);
    match &*part {
        "put for ever" => {
            let mut index = Index::open(path).unwrap();
            let mut i = 0;
            while index.get(&path_of(i)).unwrap().is_some() {
                i += 1;
            }
            for i in i.. {
                index.put(&path_of(i), record(i)).unwrap();
                if i % 100 == 99 {
                    index.flush(WAIT).unwrap();
                }
            }
        }
        "put once" => {
            let result = Index::open(path).and_then(|mut index| {
                println!("{:?}", index.get(&path_of(0))?.is_some());
                index.put(&path_of(1), record(1))?;
                index.flush(Duration::from_millis(20))
            });
            println!("{}", result.err().map_or("done".into(), |error| error.to_string()));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_kill_leaves_what_was_written() {
    let (_directory, path) = place();
    let mut rows = 0;
    // Longer where a process takes longer to begin: under a sanitizer, or beside much else.
    let mut longer = 1;
    for i in 0..25 {
        let mut child = in_another_process("put for ever", &path).spawn().unwrap();
        thread::sleep(Duration::from_micros(number(i) % 60_000 * longer));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut index = Index::open(&path).unwrap();
        let mut found = 0;
        while let Some(record_found) = index.get(&path_of(found)).unwrap() {
            assert_eq!(record_found, record(found));
            found += 1;
        }
        assert_eq!(found % 100, 0, "part of a transaction");
        assert!(found >= rows, "{found} of {rows}");
        rows = found;
        if rows == 0 {
            longer = (longer * 2).min(64);
        }
        let count: i64 =
            index.database.query_row("SELECT count(*) FROM file", [], |row| row.get(0)).unwrap();
        assert_eq!(count as u64, rows);
        assert_eq!(integrity(&path), "ok");
    }
    println!("{rows} rows after 25 kills");
    assert!(rows > 0);
}

#[test]
fn opening_once_more_takes_no_lock_off() {
    let (_directory, path) = place();
    let index = filled(&path, 1);
    index.database.execute_batch("BEGIN IMMEDIATE").unwrap();
    drop(Index::open(&path).unwrap());
    let said = said(in_another_process("put once", &path).output().unwrap());
    assert!(said.contains("another process has locked it"), "{said}");
}

#[test]
fn an_index_that_cannot_be_written_can_be_read() {
    const OTHER_USER: u32 = 65534;
    let (directory, path) = place();
    drop(filled(&path, 1));
    let run = |directory_mode, file_mode, path: &Path| {
        // (First the file: through a directory of mode 0 its owner cannot reach it.)
        fs::set_permissions(directory.path().join("index"), Permissions::from_mode(file_mode))
            .unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(directory_mode)).unwrap();
        let mut command = in_another_process("put once", path);
        // Root may write anything.
        if rustix::process::geteuid().is_root() {
            command.uid(OTHER_USER).gid(OTHER_USER);
        }
        let output = command.output();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        output.map(said)
    };
    let before = contents(directory.path());
    let read_only = match run(0o555, 0o444, &path) {
        Ok(said) => said,
        Err(error) => {
            let _ =
                writeln!(io::stderr(), "SKIP an index of root: others cannot run this: {error}");
            return;
        }
    };
    let run =
        |directory_mode, file_mode, path: &Path| run(directory_mode, file_mode, path).unwrap();
    assert!(read_only.contains("true\n"), "{read_only}");
    assert!(read_only.contains("is read-only"), "{read_only}");
    let no_journal = run(0o555, 0o666, &path);
    assert!(no_journal.contains("true\n"), "{no_journal}");
    assert!(no_journal.contains("is read-only"), "{no_journal}");
    let denied = run(0o755, 0o000, &path);
    assert!(denied.contains("Permission denied"), "{denied}");
    let closed = run(0o000, 0o644, &path);
    assert!(closed.contains("Permission denied"), "{closed}");
    let new = run(0o555, 0o644, &directory.path().join("new"));
    assert!(new.contains("Permission denied"), "{new}");
    assert!(before == contents(directory.path()));
}

#[test]
fn paths_that_are_not_a_plain_name() {
    let (directory, path) = place();
    let inside = |name: &str| directory.path().join(name);
    let message = |name| Index::open(&inside(name)).unwrap_err().to_string();
    assert!(message("missing/index").contains("there is no directory"));
    assert!(message(".").contains("not a regular file"));
    assert!(matches!(Index::open(Path::new("/dev/null")), Err(IndexError::NotAFile { .. })));
    assert!(matches!(Index::open(Path::new("")), Err(IndexError::Open { .. })));
    drop(filled(&path, 3));
    assert!(matches!(Index::open(&path.join("x")), Err(IndexError::Open { .. })));

    // A link to an index, and one to an empty file; the journal stands beside the file itself.
    fs::create_dir(inside("real")).unwrap();
    symlink("real/new", inside("to nothing")).unwrap();
    assert!(message("to nothing").contains("dangling"));
    fs::write(inside("real/new"), "").unwrap();
    symlink("../index", inside("real/link")).unwrap();
    for link in [inside("real/link"), inside("to nothing")] {
        drop(filled(&link, 5));
        assert!(link.is_symlink());
    }
    for path in [&path, &inside("real/new")] {
        assert_eq!(Index::open(path).unwrap().get(&path_of(4)).unwrap(), Some(record(4)));
    }

    // Names that mean something to SQLite, from the directory itself.
    for name in [":memory:", "file:x?mode=memory", "a%41 ?#é", "-"] {
        let mut command = in_another_process("put once", Path::new(name));
        for expected in ["false\n", "false\n"] {
            let said = said(command.current_dir(directory.path()).output().unwrap());
            assert!(said.contains(expected) && said.contains("done"), "{name}: {said}");
        }
        assert_eq!(Index::open(&inside(name)).unwrap().get(&path_of(1)).unwrap(), Some(record(1)));
    }
}

/// However long another process locks the index, changes and look-ups do not wait for it.
#[test]
fn changes_never_wait_for_a_lock() {
    let (_directory, path) = place();
    let mut index = filled(&path, 10);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let changes = PENDING_ROWS_LIMIT as u64 + 500;
    let (mut locked, start) = (Duration::ZERO, Instant::now());
    for i in 0..changes {
        index.put(&path_of(i), record(i + 1)).unwrap();
        if i % 1000 == 0 {
            let before = Instant::now();
            assert!(matches!(index.get(&path_of(i)), Err(IndexError::Busy(..))));
            locked += before.elapsed();
        }
    }
    // One look-up a second waits.
    let seconds = 2 + start.elapsed().as_secs() as u32;
    assert!(locked < seconds * (READ_WAIT + Duration::from_millis(400)), "{locked:?}");
    assert_eq!(index.unstored(), changes);
    assert_eq!(index.pending.len(), PENDING_ROWS_LIMIT);
    // An index that is opened meanwhile is usable later.
    let mut late = Index::open(&path).unwrap();
    assert!(matches!(late.get(&path_of(0)), Err(IndexError::Busy(..))));
    other.execute_batch("ROLLBACK").unwrap();
    index.flush(WAIT).unwrap();
    assert_eq!(index.unstored(), 500);
    late.locked_until = None;
    assert_eq!(late.get(&path_of(0)).unwrap(), Some(record(1)));
}
