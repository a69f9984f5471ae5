//! Rotational disks. The command is told that there is one, because test machines have none.

use std::fs;
use std::process::Command;

use crate::reader::Guard;
use crate::support::{COMMAND, Random, Scratch};

const ROTATIONAL: [(&str, &str); 1] = [("RINGGUARD_ROTATIONAL", "1")];
const ARGS: [&str; 7] = ["create", "--memory", "8MiB", "--redundancy", "100%", "-o", "x.guard"];

/// A file of several windows, and its sidecar.
fn guarded() -> (Scratch, Vec<u8>) {
    let scratch = Scratch::new();
    let data = Random::new(11).bytes(7_000_000);
    scratch.write("file", &data);
    let ran = scratch.run_with(&[&ARGS[..], &["--explain", "file"]].concat(), &ROTATIONAL).is(0);
    let err = ran.err();
    assert!(err.contains("first to last") && err.contains("windows"), "{err}");
    let burst = err.lines().find(|line| line.contains("a burst of")).unwrap().to_owned();
    let burst = burst.split("a burst of ").nth(1).unwrap().split(' ').next().unwrap();
    let burst: usize = burst.parse().unwrap();
    assert!(burst > 65_536 && burst < data.len() / 2, "{burst}");
    // What it says can be repaired can be, wherever it is.
    for at in [0, 1_000_000, 3_333_333, data.len() - burst] {
        let mut bad = data.clone();
        bad[at..at + burst].fill(0x77);
        scratch.write("file", &bad);
        scratch.run(&["repair", "--discard", "x.guard"]).is(0);
        assert!(fs::read(scratch.path("file")).unwrap() == data, "{at}");
    }
    (scratch, data)
}

#[test]
fn windows_are_as_specified() {
    let (scratch, data) = guarded();
    let bytes = fs::read(scratch.path("x.guard")).unwrap();
    let guard = Guard::new(&bytes);
    let mut padded = data.clone();
    padded.resize((guard.pieces * guard.piece_bytes) as usize, 0);
    guard.check(&padded);
    assert!(guard.place(guard.pieces - 1).0 > 1, "only one window");
}

#[test]
fn files_are_read_from_the_first_byte_to_the_last() {
    let (scratch, _) = guarded();
    let traced = scratch.path("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-e", "trace=pread64,preadv2,preadv", "-o"]).arg(&traced);
    command.arg(COMMAND).args(ARGS);
    command.args(["--io", "engine=pread,page-cache=buffered,workers=0", "file"]);
    command.current_dir(scratch.0.path()).envs(ROTATIONAL);
    // (Several batches, each of which must end with a window.)
    command.env("RINGGUARD_BATCH", "300000");
    match command.output() {
        Ok(output) if output.status.success() => {}
        other => {
            eprintln!("SKIP order of reads: strace: {other:?}");
            return;
        }
    }
    let trace = fs::read_to_string(traced).unwrap();
    let offsets: Vec<u64> = trace
        .lines()
        .filter(|line| line.contains("/file>") && line.contains(" = 65536"))
        .filter_map(|line| line.rsplit_once(')')?.0.split(", ").last()?.trim().parse().ok())
        .collect();
    assert!(offsets.len() > 90, "{}\n{trace}", offsets.len());
    assert!(offsets.is_sorted(), "{offsets:?}");
}

#[test]
fn an_interrupted_run_goes_on_at_a_window() {
    let (scratch, _) = guarded();
    fs::remove_file(scratch.path("x.guard")).unwrap();
    let env = |point: &'static str| {
        [ROTATIONAL[0], ("RINGGUARD_BATCH", "65536"), ("RINGGUARD_FAULT", point)]
    };
    let args = [&ARGS[..], &["--io", "workers=0", "file"]].concat();
    let ran = scratch.run_with(&args, &env("500"));
    assert_eq!(ran.status(), None, "{}", ran.err());
    let ran = scratch.run_with(&args, &env("0")).is(0);
    assert!(ran.err().contains("goes on at"), "{}", ran.err());
    scratch.run(&["verify", "--parity", "x.guard"]).is(0);
}
