//! Verifying a collection: which sidecars are verified, in which run, and one run at a time on a disk.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::support::{COMMAND, Ran, Random, Scratch};

/// Files of 300,000 bytes below `t`, each with a sidecar.
fn collection(names: &[&str]) -> Scratch {
    let scratch = Scratch::new();
    for (seed, name) in names.iter().enumerate() {
        let name = format!("t/{name}");
        scratch.write(&name, &Random::new(seed as u64).bytes(300_000));
        scratch.run(&["create", "--quiet", &name]).is(0);
    }
    scratch
}

/// Verifies the collection, with a state.
fn scrub(scratch: &Scratch, options: &[&str]) -> Ran {
    scratch.run(&[&["verify", "-r", "--state", "state"], options, &["t"]].concat())
}

/// The files that a run found intact, in its order.
fn intact(ran: &Ran) -> Vec<String> {
    let out = ran.out();
    out.lines().filter_map(|line| line.strip_suffix(": OK").map(str::to_owned)).collect()
}

fn stamps(scratch: &Scratch) -> usize {
    let names = fs::read_dir(scratch.path("state")).unwrap();
    names
        .filter(|entry| entry.as_ref().unwrap().path().extension() == Some("stamp".as_ref()))
        .count()
}

fn damage(scratch: &Scratch, name: &str) {
    let path = scratch.path(name);
    let mut bytes = fs::read(&path).unwrap();
    bytes[200_000] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn directories_are_searched_for_sidecars() {
    let scratch = collection(&["a", "b", "c/d"]);
    scratch.write("t/c/other", b"no sidecar");
    let ran = scratch.run(&["verify", "-r", "t"]).is(0);
    let mut found = intact(&ran);
    found.sort();
    assert_eq!(found, ["t/a", "t/b", "t/c/d"]);
    damage(&scratch, "t/c/d");
    let ran = scratch.run(&["verify", "-r", "t"]).is(1);
    assert!(ran.out().contains("t/c/d: damaged: bytes 199680 to 200703"), "{}", ran.out());
    assert_eq!(intact(&ran).len(), 2);
    // Perhaps its disk is not mounted.
    fs::create_dir(scratch.path("empty")).unwrap();
    let ran = scratch.run(&["verify", "-r", "empty"]).is(4);
    assert_eq!(ran.err(), "ringguard: empty: no sidecar (*.guard) is in it\n");
    scratch.run(&["verify", "-r", "-C", "t", "t"]).is(2);
    scratch.run(&["verify", "--share", "10%", "t/a"]).is(2);
    scratch.run(&["verify", "--state", "s", "--oldest-first", "--share", "0", "t/a"]).is(2);
}

#[test]
fn each_run_verifies_the_share_that_waits_longest() {
    let scratch = collection(&["a", "b", "c", "d", "e"]);
    let share = ["--oldest-first", "--share", "40%"];
    let mut verified = Vec::new();
    for expected in [2, 2, 2, 2, 2] {
        let ran = scrub(&scratch, &share).is(0);
        let found = intact(&ran);
        assert_eq!(found.len(), expected);
        assert!(ran.out().contains("verified 2 of 5 sidecars"), "{}", ran.out());
        verified.extend(found);
        // (Stamps have microseconds.)
        thread::sleep(Duration::from_millis(5));
    }
    // Ten verifications in five runs: each of the five files twice, in the same order.
    let mut first = verified[..5].to_vec();
    assert_eq!(first, verified[5..]);
    first.sort();
    assert_eq!(first, ["t/a", "t/b", "t/c", "t/d", "t/e"]);
    // One that was never verified is first, and so is one whose stamp is damaged.
    scratch.write("t/new", b"new");
    scratch.run(&["create", "--quiet", "t/new"]).is(0);
    let one = ["--oldest-first", "--share", "0.0001%"];
    assert_eq!(intact(&scrub(&scratch, &one).is(0)), ["t/new"]);
    assert_eq!(intact(&scrub(&scratch, &one).is(0)), verified[..1]);
    assert_eq!(stamps(&scratch), 6);
    fs::remove_file(scratch.path("t/new.guard")).unwrap();
    // Without a share everything is verified.
    assert_eq!(intact(&scrub(&scratch, &["--oldest-first"]).is(0)).len(), 5);
    assert_eq!(stamps(&scratch), 5, "that of a sidecar that is gone is forgotten");
}

#[test]
fn damage_is_reported_until_it_was_repaired() {
    let scratch = collection(&["a", "b", "c"]);
    let one = ["--oldest-first", "--share", "1%", "--json"];
    damage(&scratch, "t/a");
    let mut found = Vec::new();
    for _ in 0..3 {
        let ran = scrub(&scratch, &one);
        let last = ran.out().lines().last().unwrap().to_owned();
        let last: serde_json::Value = serde_json::from_str(&last).unwrap();
        assert_eq!(last["run"]["sidecars_verified"], 1);
        assert_eq!(last["run"]["sidecars"], 3);
        assert_eq!(last["exit_status"].as_i64(), ran.status().map(i64::from));
        found.push(ran.status().unwrap());
        thread::sleep(Duration::from_millis(5));
    }
    // From the run that found it on.
    let first = found.iter().position(|status| *status == 1).expect("a run finds the damage");
    assert!(found[..first].iter().all(|status| *status == 0), "{found:?}");
    assert!(found[first..].iter().all(|status| *status == 1), "{found:?}");
    scratch.run(&["repair", "--discard", "t/a"]).is(0);
    scratch.run(&["verify", "--state", "state", "t/a"]).is(0);
    let ran = scrub(&scratch, &one).is(0);
    assert!(!ran.out().contains("verified_us"), "{}", ran.out());
}

#[test]
fn a_sidecar_that_cannot_be_used_does_not_keep_others_from_their_turn() {
    let scratch = collection(&["a", "b"]);
    scratch.write("t/c.guard", b"no sidecar");
    let one = ["--oldest-first", "--share", "1%"];
    let mut verified = Vec::new();
    for _ in 0..3 {
        // (From the run that finds it on.)
        let ran = scrub(&scratch, &one);
        assert!([0, 3].contains(&ran.status().unwrap()), "{}", ran.err());
        verified.extend(intact(&ran));
        thread::sleep(Duration::from_millis(5));
    }
    verified.sort();
    verified.dedup();
    assert_eq!(verified, ["t/a", "t/b"]);
    scrub(&scratch, &one).is(3);
    assert_eq!(stamps(&scratch), 3);
}

#[test]
fn a_run_waits_for_another_on_the_same_disk() {
    let scratch = collection(&["a"]);
    scrub(&scratch, &[]).is(0);
    let names = fs::read_dir(scratch.path("state")).unwrap().map(|entry| entry.unwrap().path());
    let locks: Vec<_> = names.filter(|path| path.extension() == Some("lock".as_ref())).collect();
    assert!(!locks.is_empty());
    let held: Vec<_> = locks.iter().map(|path| File::open(path).unwrap()).collect();
    for file in &held {
        flock(file, FlockOperation::LockExclusive).unwrap();
    }
    let mut child = Command::new(COMMAND)
        .args(["verify", "-r", "--state", "state", "t"])
        .current_dir(scratch.0.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut message = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut message).unwrap();
    assert!(message.starts_with("ringguard: waiting for another run"), "{message}");
    thread::sleep(Duration::from_millis(200));
    assert!(child.try_wait().unwrap().is_none(), "it did not wait");
    drop(held);
    assert!(child.wait().unwrap().success());
    // With another state, it is not held up.
    scratch.run(&["verify", "-r", "--state", "other", "t"]).is(0);
}
