//! Long files go on where a run was interrupted, and no digest is ever wrong for it.

use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::mounting::noise;
use crate::support::{Output, Scratch, Watchdog, hex};

const MIB: u64 = 1 << 20;

/// Not a multiple of what is stored.
const LEN: u64 = 48 * MIB + 4321;

/// Values are stored for each MiB instead of each GiB.
const ARGS: [&str; 3] = ["--index=index", "--resume-bytes=1048576", "--stats=json"];

/// A directory with the long file `f` and a check file for it, unchanged for long enough.
fn plant() -> (Scratch, Vec<u8>) {
    let scratch = Scratch::new();
    let content = noise(LEN as usize);
    scratch.write("f", &content);
    scratch.write("list", format!("{}  f\n", hex(&content)));
    thread::sleep(Duration::from_millis(2100));
    (scratch, content)
}

/// Starts a run that takes three seconds, and ends it.
fn interrupt(scratch: &Scratch, args: &[&str], signal: Signal, after: Duration) {
    let args = [&ARGS[..], &["--limit-rate=16M"], args].concat();
    let mut command = scratch.command(&args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let _watchdog = Watchdog::of(&child);
    thread::sleep(after);
    let _ = kill_process(Pid::from_child(&child), signal);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(signal.as_raw()), "{output:?}");
    assert!(!output.stdout.ends_with(b"f\n"), "{output:?}");
}

/// Returns the output of a whole run, and how many bytes it read.
fn finish(scratch: &Scratch, args: &[&str]) -> (Output, u64) {
    let output = scratch.run(&[&ARGS[..], args].concat());
    let last = output.stderr.trim_end().rsplit('\n').next().unwrap_or_default();
    let stats: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(stats["total"], true, "{output:?}");
    // The file counts once, although it is read beside the other files of its device.
    assert!(stats["wall_ns"].as_u64() <= stats["elapsed_ns"].as_u64(), "{output:?}");
    (output, stats["bytes"].as_u64().unwrap())
}

fn stored(scratch: &Scratch) -> u64 {
    let index = Connection::open(scratch.join("index")).unwrap();
    index
        .query_row("SELECT count(*) FROM resume", [], |row| row.get::<_, i64>(0))
        .map_or(0, i64::cast_unsigned)
}

/// What was stored is not read again, whenever and however the run ended; and is forgotten at the
/// end.
#[test]
fn a_run_goes_on_after_each_signal() {
    let (scratch, content) = plant();
    let line = format!("{}  f\n", hex(&content));
    let mut gained = [0; 2];
    for (i, after) in [2300, 150, 1700, 1200, 700].into_iter().enumerate() {
        for (kind, signal) in [Signal::INT, Signal::KILL].into_iter().enumerate() {
            // (A moment of its own for each.)
            let after = Duration::from_millis(after + 37 * i as u64 + 11 * kind as u64);
            interrupt(&scratch, &["f"], signal, after);
            let known = stored(&scratch);
            gained[kind] += known;
            let (output, read) = finish(&scratch, &["f", "--explain"]);
            assert_eq!((output.code, output.stdout()), (0, &*line), "{output:?}");
            assert_eq!(read, LEN - known * MIB, "{signal:?} after {after:?}");
            let expected = match known {
                0 => "resume      from the start".to_owned(),
                _ => format!("resume      {:16} parts of 1048576", format!("{known} of 48")),
            };
            assert!(output.stderr.contains(&expected), "{expected} {}", output.stderr);
            assert_eq!(stored(&scratch), 0, "it is done");
            // Once the digest is known, nothing is read; without the record it would be.
            let (output, read) = finish(&scratch, &["f"]);
            assert_eq!((output.stdout(), read), (&*line, 0));
            fs::remove_file(scratch.join("index")).unwrap();
        }
    }
    assert!(gained.iter().all(|gained| *gained > 0), "{gained:?}");
}

/// Interrupted again and again, it ends some time.
#[test]
fn interruptions_add_up() {
    let (scratch, content) = plant();
    let mut known = 0;
    for _ in 0..3 {
        interrupt(&scratch, &["-r", "."], Signal::INT, Duration::from_millis(900));
        assert!(stored(&scratch) >= known);
        known = stored(&scratch);
    }
    assert!(known > 0);
    let (output, read) = finish(&scratch, &["-r", "."]);
    assert!(output.stdout().contains(&format!("{}  ./f\n", hex(&content))), "{output:?}");
    assert!(read <= LEN - known * MIB + 200, "{read}, and {known} MiB are known");
}

#[test]
fn a_file_that_has_changed_starts_over() {
    let (scratch, mut content) = plant();
    interrupt(&scratch, &["f"], Signal::INT, Duration::from_millis(1500));
    assert!(stored(&scratch) > 0);
    content[0] ^= 1;
    let file = fs::File::options().write(true).open(scratch.join("f")).unwrap();
    file.write_all_at(&content[..1], 0).unwrap();
    thread::sleep(Duration::from_millis(2100));
    let (output, read) = finish(&scratch, &["f"]);
    assert_eq!((output.stdout(), read), (&*format!("{}  f\n", hex(&content)), LEN));
    // Another file with the same name.
    fs::remove_file(scratch.join("index")).unwrap();
    interrupt(&scratch, &["f"], Signal::INT, Duration::from_millis(1500));
    assert!(stored(&scratch) > 0);
    content[5] ^= 1;
    scratch.write("g", &content);
    fs::rename(scratch.join("g"), scratch.join("f")).unwrap();
    let (output, read) = finish(&scratch, &["f"]);
    assert_eq!((output.stdout(), read), (&*format!("{}  f\n", hex(&content)), LEN));
}

/// A value that the index has wrong is not used, and a row that was put there is checked.
#[test]
fn damaged_values_are_read_again() {
    let (scratch, content) = plant();
    interrupt(&scratch, &["f"], Signal::INT, Duration::from_millis(1500));
    let known = stored(&scratch);
    assert!(known > 1);
    let index = Connection::open(scratch.join("index")).unwrap();
    let damage = "UPDATE resume SET value = zeroblob(32) WHERE start = 0";
    assert_eq!(index.execute(damage, []).unwrap(), 1);
    drop(index);
    let (output, read) = finish(&scratch, &["f"]);
    assert_eq!(output.stdout(), format!("{}  f\n", hex(&content)));
    assert_eq!(read, LEN - (known - 1) * MIB);
}

#[test]
fn a_check_resumes_and_never_believes_a_digest() {
    let (scratch, content) = plant();
    let check = ["--check", "list"];
    // The index has the digest; and values of an interrupted check.
    let (output, _) = finish(&scratch, &["f"]);
    assert_eq!(output.stdout(), format!("{}  f\n", hex(&content)));
    for _ in 0..2 {
        let (output, read) = finish(&scratch, &check);
        assert_eq!((output.code, output.stdout(), read), (0, "f: OK\n", LEN));
    }
    interrupt(&scratch, &check, Signal::INT, Duration::from_millis(1500));
    let known = stored(&scratch);
    assert!(known > 0);
    let (output, read) = finish(&scratch, &check);
    assert_eq!((output.code, output.stdout(), read), (0, "f: OK\n", LEN - known * MIB));
    assert_eq!(stored(&scratch), 0);
    // Other algorithms start over, and so does what needs other values.
    scratch.shell("sha256sum --tag f > other").expect(0, "", "");
    interrupt(&scratch, &check, Signal::INT, Duration::from_millis(1500));
    assert!(stored(&scratch) > 0);
    let (output, read) = finish(&scratch, &["--check", "other", "--explain"]);
    assert_eq!((output.code, output.stdout(), read), (0, "f: OK\n", LEN));
    assert!(output.stderr.contains("only BLAKE3 can go on"), "{output:?}");
    for args in [&["--check", "--keyed", "list"][..], &["--derive-key=x", "f"]] {
        let output = scratch.run(&[&ARGS[..], args].concat());
        assert_eq!((output.code, output.stdout()), (2, ""), "{output:?}");
        assert!(output.stderr.contains("--index"), "{output:?}");
    }
}

#[test]
fn a_locked_index_stores_nothing_and_stalls_nothing() {
    let (scratch, content) = plant();
    scratch.write("small", "");
    let (output, _) = finish(&scratch, &["small"]);
    assert_eq!(output.code, 0, "{output:?}");
    let index = Connection::open(scratch.join("index")).unwrap();
    index.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let start = Instant::now();
    let (output, read) = finish(&scratch, &["f"]);
    assert_eq!((output.code, output.stdout()), (0, &*format!("{}  f\n", hex(&content))));
    assert_eq!(read, LEN);
    assert!(output.stderr.contains("another process has locked the index"), "{output:?}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    interrupt(&scratch, &["f"], Signal::INT, Duration::from_millis(1200));
    index.execute_batch("ROLLBACK").unwrap();
    let (output, read) = finish(&scratch, &["f"]);
    assert_eq!((output.stdout(), read), (&*format!("{}  f\n", hex(&content)), LEN));
}

/// Short files, other ways to read, holes: the same digests.
#[test]
fn everything_else_is_as_before() {
    let (scratch, content) = plant();
    let line = format!("{}  f\n", hex(&content));
    for way in [
        &["--io=engine=stream"][..],
        &["--io=block-size=12K"],
        &["--io=block-size=64M"],
        &["--io=order=in-order"],
        &["--io=engine=mmap"],
        &["--verify-index"],
    ] {
        interrupt(&scratch, &["f"], Signal::INT, Duration::from_millis(1300));
        let (output, _) = finish(&scratch, &[way, &["f"]].concat());
        assert_eq!((output.code, output.stdout()), (0, &*line), "{way:?} {output:?}");
        fs::remove_file(scratch.join("index")).unwrap();
    }
    // Data, a hole, and data.
    let file = fs::File::create(scratch.join("f")).unwrap();
    let mut content = vec![0; 80 << 20];
    content[..30 << 20].copy_from_slice(&noise(30 << 20));
    content[60 << 20..].copy_from_slice(&noise(20 << 20));
    file.set_len(80 * MIB).unwrap();
    file.write_all_at(&content[..30 << 20], 0).unwrap();
    file.write_all_at(&content[60 << 20..], 60 * MIB).unwrap();
    file.sync_all().unwrap();
    thread::sleep(Duration::from_millis(2100));
    interrupt(&scratch, &["f"], Signal::INT, Duration::from_millis(1500));
    let (output, read) = finish(&scratch, &["f"]);
    assert_eq!(output.stdout(), format!("{}  f\n", hex(&content)));
    assert!(read < 80 * MIB, "{read}");
}
