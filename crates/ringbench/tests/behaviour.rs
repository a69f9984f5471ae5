//! The command: a smoke test of every workload, bad input, interrupts and limits.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A temporary folder on the disk of the build: `/tmp` may be in memory, without direct I/O.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringbench-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `ringbench` with a configuration of its own.
fn ringbench(folder: &Folder, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringbench"));
    command.args(args).stdin(Stdio::null()).current_dir(&folder.0);
    command.env("XDG_CONFIG_HOME", &folder.0);
    command
}

fn run(folder: &Folder, args: &[&str]) -> Output {
    ringbench(folder, args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run_file(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A mock of `ringsum`: the tests of this package do not build it.
fn mock_ringsum(folder: &Folder) -> PathBuf {
    let digest = "0".repeat(64);
    let script = format!("#!/bin/sh\ncat >/dev/null\necho {digest}  x\n");
    let path = folder.file("ringsum", script.as_bytes());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Reports on the real standard error what is not tested. With STRICT=1, a feature that the kernel or the
/// disk should have is a failure.
fn skip(why: &str, is_expected: bool) {
    let _ = writeln!(std::io::stderr(), "SKIP {why}");
    let strict = std::env::var_os("STRICT").is_some_and(|value| value == "1");
    assert!(!(strict && is_expected), "STRICT: {why}");
}

/// In one test, so that no two measure at once.
#[test]
fn every_workload_passes_a_smoke_test_and_is_drawn() {
    let folder = Folder::new();
    let input = folder.file("input", &vec![7; 1 << 20]);
    fs::create_dir(folder.0.join("tree")).unwrap();
    folder.file("tree/short", &[1; 100]);
    folder.file("tree/long", &[2; 100_000]);
    let ringsum = mock_ringsum(&folder);
    let (input, ringsum) = (input.to_str().unwrap(), ringsum.to_str().unwrap());
    let workloads: [&[&str]; 8] = [
        &["limits", ".", "--tree", "tree"],
        &["sweep", input],
        &["compare", input, "--ringsum", ringsum, "--only", "ringsum,cat,dd,fio,sha256sum"],
        &["random", "."],
        &["pool", "."],
        &["batch", input],
        &["pipe"],
        &["tune", "."],
    ];
    let before = folder.names();
    let mut files = Vec::new();
    for workload in workloads {
        let name = workload[0];
        let file = format!("{name}.json");
        let mut args = workload.to_vec();
        args.extend(["--smoke", "-o", &file]);
        let out = run(&folder, &args);
        if name == "tune" && text(&out.stderr).contains("is that of no block device") {
            skip(&format!("tune: {}", text(&out.stderr)), false);
            continue;
        }
        assert!(out.status.success(), "{name}: {}{}", text(&out.stdout), text(&out.stderr));
        let run = run_file(&folder.0.join(&file));
        assert_eq!((&run["workload"], &run["state"]), (&name.into(), &"finished".into()));
        let groups = run["groups"].as_array().unwrap();
        assert!(!groups.is_empty(), "{name}");
        for group in groups {
            let cases = group["cases"].as_array().unwrap();
            let has_samples = |case: &Value| !case["samples"].as_array().unwrap().is_empty();
            if !cases.iter().any(has_samples) {
                skip(&format!("{name}: {group:#}"), true);
            }
            for case in cases {
                assert!(has_samples(case) || case["missing"].is_object(), "{name}: {case:#}");
            }
        }
        files.push(file);
    }
    let mut left = folder.names();
    left.retain(|name| !files.contains(name));
    assert_eq!(left, before, "scratch files are removed, and no settings were saved");
    let mut args = vec!["report", "-o", "report.html"];
    args.extend(files.iter().map(String::as_str));
    let out = run(&folder, &args);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let page = fs::read_to_string(folder.0.join("report.html")).unwrap();
    assert!(page.matches("<figure").count() >= 8, "{} charts", page.matches("<figure").count());
}

/// Each input gets one line with advice, and changes nothing.
#[test]
fn bad_input_gets_one_line_with_advice() {
    let folder = Folder::new();
    let small = folder.file("small", &[1; 100_000]);
    let tiny = folder.file("tiny", b"x");
    let run_of_a_newer_version =
        folder.file("new.json", br#"{"format":"ringbench-run","version":99}"#);
    let mine = folder.file("mine", b"mine");
    let path = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let (small, tiny, mine) = (path(&small), path(&tiny), path(&mine));
    let cases: [(&[&str], &str); 16] = [
        (&["limits", "/no/such/file"], "No such file"),
        (&["limits", &small], "less than 64M, too few to measure: use a larger file, or a folder"),
        (&["random", &tiny, "--smoke"], "less than a block of 4096"),
        (&["random", "/dev/null"], "not a regular file, a folder or a block device"),
        (&["limits", ".", "--size", "9000000G"], "MiB are free"),
        (&["pool", ".", "--size", "9000000G"], "MiB are free"),
        (&["pool", &mine, "--size", "1M"], "the file exists and was not changed"),
        (&["pool", "/dev/null"], "not a regular file"),
        (&["batch", ".", "--size", "1G", "--limit-bytes", "1M"], "raise --limit-bytes"),
        (&["pipe", "--smoke", "-o", &mine], "or --overwrite"),
        (&["pipe", "--smoke", "-o", "/dev/full"], "not a regular file"),
        (&["report", run_of_a_newer_version.to_str().unwrap()], "version 99 of the format"),
        (&["compare", ".", "--ringsum", "/no/ringsum"], "no such program"),
        (
            &["random", &small, "--smoke", "-o", &small, "--overwrite"],
            "this is the file to measure",
        ),
        (&["limits", ".", "--size", "1M"], "--size is at least 64M"),
        (&["tune", ".", "--read-max", "1M"], "--read-max is at least 64M"),
    ];
    let before = folder.names();
    for (args, said) in cases {
        let out = run(&folder, args);
        let stderr = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {stderr}");
        assert!(stderr.contains(said), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    }
    assert_eq!(folder.names(), before);
    assert_eq!(fs::read(&mine).unwrap(), b"mine");
}

#[test]
fn a_dry_run_creates_nothing() {
    let folder = Folder::new();
    for args in
        [&["limits", "."][..], &["random", "."], &["pool", "."], &["tune", "."], &["sweep", "."]]
    {
        let mut args = args.to_vec();
        args.extend(["--dry-run", "-o", "run.json"]);
        let out = run(&folder, &args);
        let stdout = text(&out.stdout);
        assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
        assert!(
            stdout.contains("total: at most") && stdout.contains("temporary file in ."),
            "{stdout}"
        );
        assert!(folder.names().is_empty(), "{args:?}: {:?}", folder.names());
    }
}

#[test]
fn programs_that_are_not_installed_are_named() {
    let folder = Folder::new();
    let input = folder.file("input", &[7; 100_000]);
    let ringsum = mock_ringsum(&folder);
    let args = ["compare", "input", "--ringsum", "./ringsum", "--smoke", "-o", "run.json"];
    let mut command = ringbench(&folder, &args);
    let out = command.env("PATH", "/no/such/folder").output().unwrap();
    assert!(input.exists() && ringsum.exists());
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("b3sum is not installed"), "{}", text(&out.stdout));
}

#[test]
fn different_digests_of_one_algorithm_are_a_failure() {
    let folder = Folder::new();
    folder.file("input", &[7; 100_000]);
    mock_ringsum(&folder);
    let other = folder.file("b3sum", format!("#!/bin/sh\necho {}  x\n", "1".repeat(64)).as_bytes());
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    let args = ["compare", "input", "--ringsum", "./ringsum", "--only", "ringsum,b3sum", "--smoke"];
    let path = format!("{}:{}", folder.0.display(), std::env::var("PATH").unwrap());
    let out = ringbench(&folder, &args).env("PATH", path).output().unwrap();
    let stdout = text(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{stdout}");
    // In lines of a terminal.
    let stdout = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(stdout.contains("one of them is wrong"), "{stdout}");
}

/// A symbolic link stays a link, and a run that fails does not remove a file that it did not create.
#[test]
fn the_run_file_replaces_no_other_file() {
    let folder = Folder::new();
    let target = folder.file("target.json", b"");
    std::os::unix::fs::symlink("target.json", folder.0.join("link.json")).unwrap();
    let args = ["pipe", "--smoke", "-o", "link.json", "--overwrite"];
    let out = run(&folder, &args);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(run_file(&target)["state"], "finished");
    assert!(fs::symlink_metadata(folder.0.join("link.json")).unwrap().is_symlink());
    folder.file("mine.json", b"");
    let args = ["pool", "/dev/null", "-o", "mine.json", "--overwrite"];
    assert_eq!(run(&folder, &args).status.code(), Some(1));
    assert!(folder.0.join("mine.json").exists());
}

#[test]
fn a_closed_pipe_is_no_failure_of_a_dry_run() {
    let folder = Folder::new();
    let mut command = ringbench(&folder, &["sweep", ".", "--dry-run"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{}", text(&out.stderr));
}

/// Finished samples are in the file, nothing is concluded from them, however many there are, and scratch
/// files are removed.
#[test]
fn ctrl_c_keeps_finished_samples() {
    let folder = Folder::new();
    let args = ["pipe", "-t", "5ms", "-p", "64K", "-b", "16K", "--runs", "1000", "-o", "run.json"];
    let mut child = ringbench(&folder, &args).stdout(Stdio::null()).spawn().unwrap();
    let path = folder.0.join("run.json");
    let has_samples = || {
        let text = fs::read(&path).unwrap_or_default();
        let run: Value = serde_json::from_slice(&text).unwrap_or_default();
        let cases = run["groups"][0]["cases"].as_array().cloned().unwrap_or_default();
        let count = |case: &Value| case["samples"].as_array().map_or(0, Vec::len);
        cases.iter().filter(|case| count(case) >= 8).count() >= 2
    };
    let start = Instant::now();
    while !has_samples() {
        assert!(start.elapsed() < Duration::from_secs(30), "nothing was written");
        std::thread::sleep(Duration::from_millis(10));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert_eq!(run_file(&path)["state"], "interrupted");
    assert!(run_file(&path)["conclusions"].as_array().is_none_or(Vec::is_empty));
    assert!(has_samples());
    assert_eq!(folder.names(), BTreeSet::from(["run.json".to_owned()]));
}

#[test]
fn the_time_limit_ends_a_run() {
    let folder = Folder::new();
    let args = ["pipe", "--time", "50ms", "--limit-time", "300ms", "-q", "-o", "run.json"];
    let out = run(&folder, &args);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let run = run_file(&folder.0.join("run.json"));
    assert_eq!(run["state"], "cut_short");
}

#[test]
fn a_missing_permission_is_reported() {
    let folder = Folder::new();
    let secret = folder.file("secret", &[0; 8192]);
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    let args = ["--reuid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_ringbench")];
    let mut command = Command::new("setpriv");
    command.args(args).args(["limits", "--smoke"]).arg(&secret).current_dir("/");
    match command.output() {
        Ok(out) if text(&out.stderr).contains("secret: ") => {
            assert!(text(&out.stderr).contains("Permission denied"), "{}", text(&out.stderr));
            assert_eq!(out.status.code(), Some(1));
        }
        Ok(out) => skip(&format!("no other user here: {}", text(&out.stderr)), false),
        Err(error) => skip(&format!("setpriv: {error}"), false),
    }
}
