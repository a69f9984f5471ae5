//! Kill -9 at every write, fsync and rename, and at random moments: the next run completes what was
//! begun, or puts back what was there.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{COMMAND, Random, Scratch};

const LEN: usize = 60_000;

fn data() -> Vec<u8> {
    Random::new(42).bytes(LEN)
}

fn damaged() -> Vec<u8> {
    let mut bad = data();
    bad[20_000..21_500].fill(0xee);
    bad.truncate(LEN - 700);
    bad
}

/// A file with its sidecar, damaged or not.
fn guarded(is_damaged: bool) -> Scratch {
    let scratch = Scratch::new();
    scratch.write("file", &data());
    scratch.run(&["create", "--redundancy", "20%", "file"]).is(0);
    if is_damaged {
        scratch.write("file", &damaged());
    }
    scratch
}

/// Runs a command that is killed at each of its fault points, one after another. `check` gets the
/// directory after each. Returns the number of points.
fn at_every_point(
    args: &[&str],
    env: &[(&str, &str)],
    prepare: &dyn Fn() -> Scratch,
    check: &dyn Fn(&Scratch, u64),
) -> u64 {
    for point in 1.. {
        let scratch = prepare();
        let number = point.to_string();
        let env = [env, &[("RINGGUARD_FAULT", number.as_str())]].concat();
        let ran = scratch.run_with(args, &env);
        match ran.status() {
            // Killed.
            None => check(&scratch, point),
            Some(_) => {
                ran.is(0);
                return point - 1;
            }
        }
    }
    unreachable!()
}

#[test]
fn create_completes_what_was_begun() {
    // A batch of a few columns, so that there are checkpoints, and pages in each.
    let env = [("RINGGUARD_BATCH", "8192")];
    let expected = {
        let scratch = Scratch::new();
        scratch.write("file", &data());
        scratch.run(&["create", "file"]).is(0);
        fs::read(scratch.path("file.guard")).unwrap()
    };
    let args = ["create", "--io", "block-size=4KiB,workers=0", "file"];
    let prepare = || {
        let scratch = Scratch::new();
        scratch.write("file", &data());
        scratch
    };
    let points = at_every_point(&args, &env, &prepare, &|scratch, point| {
        let path = scratch.path("file.guard");
        // Under its name it is complete.
        if path.exists() {
            scratch.run(&["verify", "--parity", "file"]).is(0);
        }
        scratch.run(&args).is(0);
        let again = fs::read(&path).unwrap();
        assert_eq!(again.len(), expected.len(), "point {point}");
        scratch.run(&["verify", "--parity", "file"]).is(0);
        assert!(!scratch.path("file.guard.partial").exists());
        assert!(!scratch.path("file.guard.partial.log").exists());
    });
    assert!(points > 20, "{points}");
}

#[test]
fn an_interrupted_create_goes_on_where_it_was() {
    let scratch = Scratch::new();
    let content = Random::new(9).bytes(8 << 20);
    scratch.write("file", &content);
    let env = [("RINGGUARD_BATCH", "2097152")];
    let args = ["create", "--io", "block-size=4KiB", "file"];
    // The file cannot be read any more where it was read before: it was not read again.
    let (mut log, mut number) = (0, String::new());
    for point in (200..).step_by(200) {
        number = point.to_string();
        let ran = scratch.run_with(&args, &[env[0], ("RINGGUARD_FAULT", &number)]);
        assert_eq!(ran.status(), None, "{}", ran.err());
        log = fs::metadata(scratch.path("file.guard.partial.log")).map_or(0, |log| log.len());
        if log > 100 {
            break;
        }
        fs::remove_file(scratch.path("file.guard.partial.log")).unwrap();
    }
    assert!(log > 100);
    let ran = scratch.run_with(&args, &env).is(0);
    assert!(ran.err().contains("goes on at"), "{}", ran.err());
    scratch.run(&["verify", "--parity", "file"]).is(0);
    // Of another file, the rest is not used.
    let ran = scratch.run_with(&args, &[env[0], ("RINGGUARD_FAULT", &number)]);
    assert_eq!(ran.status(), None);
    scratch.write("file", &content[1..]);
    let ran = scratch.run(&args).is(0);
    assert!(!ran.err().contains("goes on at"));
    scratch.run(&["verify", "--parity", "file"]).is(0);
}

#[test]
fn repair_completes_what_was_begun() {
    let args = ["repair", "file"];
    let points = at_every_point(&args, &[], &|| guarded(true), &|scratch, point| {
        let now = fs::read(scratch.path("file")).unwrap();
        assert!(now == damaged() || now == data(), "point {point}");
        scratch.run(&args).is(0);
        assert!(fs::read(scratch.path("file")).unwrap() == data(), "point {point}");
        assert!(fs::read(scratch.path("file.damaged")).unwrap() == damaged(), "point {point}");
        assert!(!scratch.path("file.repairing").exists());
    });
    assert!(points >= 5, "{points}");
}

#[test]
fn repair_in_place_completes_or_is_undone() {
    let args = ["repair", "--in-place", "file"];
    for undoes in [false, true] {
        let points = at_every_point(&args, &[], &|| guarded(true), &|scratch, point| {
            let has_record = scratch.path("file.guard.undo").exists();
            if undoes && has_record {
                scratch.run(&["repair", "--undo", "file"]).is(0);
                assert!(fs::read(scratch.path("file")).unwrap() == damaged(), "point {point}");
            } else {
                let now = fs::read(scratch.path("file")).unwrap();
                assert!(has_record || now == damaged() || now == data(), "point {point}");
                scratch.run(&args).is(0);
                assert!(fs::read(scratch.path("file")).unwrap() == data(), "point {point}");
            }
            assert!(!scratch.path("file.guard.undo").exists());
        });
        assert!(points >= 8, "{points}");
    }
}

#[test]
fn an_interrupted_undo_is_done_again() {
    let prepare = || {
        // Interrupted when half of the pieces are written.
        let scratch = guarded(true);
        for point in 1.. {
            let number = point.to_string();
            let env = [("RINGGUARD_FAULT", number.as_str())];
            let ran = scratch.run_with(&["repair", "--in-place", "file"], &env);
            assert_eq!(ran.status(), None);
            let now = fs::read(scratch.path("file")).unwrap();
            if now != damaged() {
                assert!(now != data(), "point {point}");
                return scratch;
            }
            // Once more from the start.
            let _ = fs::remove_file(scratch.path("file.guard.undo"));
        }
        unreachable!()
    };
    at_every_point(&["repair", "--undo", "file"], &[], &prepare, &|scratch, point| {
        let has_record = scratch.path("file.guard.undo").exists();
        if has_record {
            scratch.run(&["repair", "--undo", "file"]).is(0);
        }
        assert!(fs::read(scratch.path("file")).unwrap() == damaged(), "point {point}");
    });
}

/// Kills at random moments: 200 in all.
#[test]
fn random_kills() {
    let content = Random::new(3).bytes(3 << 20);
    let mut bad = content.clone();
    bad[1_000_000..1_100_000].fill(1);
    let mut killed = 0;
    for round in 0..67 {
        for (i, args) in
            [&["create", "file"][..], &["repair", "file"], &["repair", "--in-place", "file"]]
                .iter()
                .enumerate()
        {
            let random = &mut Random::new(round * 3 + i as u64);
            let scratch = Scratch::new();
            scratch.write("file", &content);
            if i > 0 {
                scratch.run(&["create", "file"]).is(0);
                scratch.write("file", &bad);
            }
            let mut child = Command::new(COMMAND)
                .args(*args)
                .current_dir(scratch.0.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_micros(random.below(60_000)));
            let _ = child.kill();
            killed += u64::from(child.wait().unwrap().code().is_none());
            scratch.run(args).is(0);
            scratch.run(&["verify", "--parity", "file"]).is(0);
            assert!(fs::read(scratch.path("file")).unwrap() == content, "round {round}");
            if i == 1 {
                assert!(fs::read(scratch.path("file.damaged")).unwrap() == bad);
            }
        }
    }
    assert!(killed > 50, "{killed} of 201 were killed before they ended");
}
