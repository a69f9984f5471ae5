//! Limits on memory, descriptors and threads, with any input. `bench/RESULTS.md` has numbers measured
//! with a release build.
#![allow(unsafe_code)]

use std::fs;
use std::io::Write;
use std::iter;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Scratch, Watchdog, content, hex, limit, lines_below, shell, skip};

/// Peak resources of a process.
#[derive(Debug, Default, Clone, Copy)]
struct Peaks {
    rss_kib: u64,
    threads: u64,
    descriptors: u64,
}

impl Peaks {
    fn look(&mut self, pid: u32) {
        let of = |status: &str, name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return };
        // Before exec, it is a copy of the test.
        if !status.starts_with("Name:\tringsum\n") {
            return;
        }
        let open = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |open| open.count() as u64);
        self.rss_kib = self.rss_kib.max(of(&status, "VmHWM:"));
        self.threads = self.threads.max(of(&status, "Threads:"));
        self.descriptors = self.descriptors.max(open);
    }
}

struct Ran {
    code: i32,
    stdout: Vec<u8>,
    stderr: String,
    peaks: Peaks,
}

/// Runs a command to its end, or sends it SIGINT after a while; samples its resources all the time.
/// Runs it once more if it ended before the first sample, as a short run may on a busy machine.
fn watched(command: &mut Command, stdin: Stdio, interrupt_after: Option<Duration>) -> Ran {
    let command = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut runs = iter::repeat_with(|| watched_once(command, interrupt_after)).take(100);
    runs.find(|ran| ran.peaks.rss_kib > 0).expect("one run of many is seen")
}

fn watched_once(command: &mut Command, interrupt_after: Option<Duration>) -> Ran {
    let mut child = command.spawn().expect("the command starts");
    let _watchdog = Watchdog::of(&child);
    let outputs = [
        read_all(child.stdout.take().expect("piped")),
        read_all(child.stderr.take().expect("piped")),
    ];
    let mut peaks = Peaks::default();
    let started = Instant::now();
    let mut interrupt = interrupt_after;
    let status = loop {
        peaks.look(child.id());
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if interrupt.is_some_and(|after| started.elapsed() > after) {
            interrupt = None;
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        }
        thread::sleep(Duration::from_millis(3));
    };
    let [stdout, stderr] = outputs.map(|reader| reader.join().unwrap());
    Ran {
        code: status.code().unwrap_or(-1),
        stdout,
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
        peaks,
    }
}

fn read_all(mut from: impl std::io::Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

fn to_the_end(command: &mut Command) -> Ran {
    watched(command, Stdio::null(), None)
}

fn sparse(path: &Path, bytes: u64) -> PathBuf {
    fs::File::create(path).and_then(|file| file.set_len(bytes)).unwrap();
    path.to_owned()
}

/// Memory of a debug build beyond its limit: it has more code than a release build, most of it
/// never used.
const DEBUG_KIB: u64 = 8 << 10;

fn at_most(ran: &Ran, mib: u64) {
    let most = (mib << 10) + DEBUG_KIB;
    assert!(ran.peaks.rss_kib <= most, "{} KiB, and not {most}", ran.peaks.rss_kib);
}

#[test]
fn a_line_of_1_gib_is_not_kept() {
    let scratch = Scratch::new();
    scratch.write("a", "a");
    // A line of NULs, and a valid one after it.
    let list = sparse(&scratch.join("list"), 1 << 30);
    let mut file = fs::File::options().append(true).open(&list).unwrap();
    write!(file, "\n{}  a\n", hex(b"a")).unwrap();
    let ran = to_the_end(&mut scratch.command(&["-c", "list"]));
    assert_eq!((ran.code, &ran.stdout[..]), (1, &b"a: OK\n"[..]), "{}", ran.stderr);
    assert!(ran.stderr.contains("list: 1: improperly formatted"), "{}", ran.stderr);
    assert!(ran.stderr.contains("longer than 1048576"), "{}", ran.stderr);
    at_most(&ran, 16);
    // NUL ends a name here, so all names are empty.
    let ran = to_the_end(&mut scratch.command(&["--files-from", "list"]));
    assert_eq!((ran.code, &*ran.stdout), (1, &b""[..]), "{}", ran.stderr);
    assert!(ran.stderr.contains("longer than 1 MiB"), "{}", ran.stderr);
    at_most(&ran, 16);
    let rules = sparse(&scratch.make_dir("tree").join(".gitignore"), 1 << 30);
    scratch.write("tree/b", "b");
    fs::File::options()
        .append(true)
        .open(rules)
        .and_then(|mut file| file.write_all(b"b\n"))
        .unwrap();
    let ran =
        to_the_end(&mut scratch.command(&["-r", "--gitignore", "--exclude", ".gitignore", "tree"]));
    assert_eq!((ran.code, &*ran.stdout), (1, format!("{}  tree/b\n", hex(b"b")).as_bytes()));
    assert!(ran.stderr.contains("tree: its .gitignore is longer than 1 MiB"), "{}", ran.stderr);
    at_most(&ran, 16);
}

/// Nested braces are nested calls in the parser of globs.
#[test]
fn rules_do_not_end_the_process() {
    let scratch = Scratch::new();
    scratch.make_dir("tree");
    scratch.write("tree/a", "a");
    let nested = |depth: usize| format!("{}a{}\n", "{".repeat(depth), "}".repeat(depth));
    let cases = [
        (nested(100_000), "line 1 of its .gitignore is longer than 4096 bytes"),
        (format!("#\n{}", "[".repeat(5000)), "line 2 of its .gitignore"),
        (nested(2000), "its .gitignore cannot be applied"),
        ("*a*/**/\n".repeat(100), ""),
    ];
    for (rules, why) in cases {
        scratch.write("tree/.gitignore", &rules);
        let args = ["-r", "--gitignore", "--exclude", ".gitignore", "tree"];
        let ran = to_the_end(&mut scratch.command(&args));
        assert_eq!(ran.code, i32::from(!why.is_empty()), "{}", ran.stderr);
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
        at_most(&ran, 32);
    }
    let output = scratch.run(&["-r", "--exclude", nested(2100).trim_end(), "tree"]);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("a glob has at most 4096 bytes"), "{}", output.stderr);
}

#[test]
fn lists_without_an_end_take_no_memory() {
    let scratch = Scratch::new();
    let lists: [&[&str]; 4] =
        [&["-c", "-"], &["-cz", "-"], &["-0", "--files-from", "-"], &["-c", "--memory", "8M", "-"]];
    for args in lists {
        let zeros = fs::File::open("/dev/zero").unwrap();
        let after = Some(Duration::from_millis(700));
        let ran = watched(&mut scratch.command(args), zeros.into(), after);
        assert!(ran.code != 0, "{args:?} {}", ran.stderr);
        at_most(&ran, 24);
    }
}

/// 16,384 jobs may be pending, and 4,096 names be looked up ahead: with names of 1 MiB that would
/// be 60 GiB.
#[test]
fn names_count_with_their_bytes() {
    let scratch = Scratch::new();
    let name = "n".repeat(1_000_000);
    // The chaining values of zeros beyond 1 TiB must be computed, which takes seconds.
    let slow = sparse(&scratch.join("slow"), (1 << 40) + (64 << 30));
    let mut names = fs::File::create(scratch.join("names")).unwrap();
    let mut list = fs::File::create(scratch.join("list")).unwrap();
    writeln!(names, "{}", slow.display()).unwrap();
    writeln!(list, "{}  {}", hex(b""), slow.display()).unwrap();
    for _ in 0..600 {
        writeln!(names, "{name}").unwrap();
        writeln!(list, "{}  {name}", hex(b"")).unwrap();
    }
    let cases: [(&[&str], u64); 4] = [
        (&["--files-from", "names"], 180),
        (&["-c", "list"], 180),
        (&["--memory", "16M", "--files-from", "names"], 32),
        (&["--memory", "16M", "-c", "list"], 48),
    ];
    for (args, mib) in cases {
        let after = Some(Duration::from_millis(1500));
        let ran = watched(&mut scratch.command(args), Stdio::null(), after);
        assert_eq!(ran.code, -1, "{args:?} {}", ran.stderr);
        at_most(&ran, mib);
    }
}

#[test]
fn what_is_named_and_does_not_fit_into_the_memory_is_refused() {
    let scratch = Scratch::new();
    scratch.write("a", "a");
    let cases: [(&[&str], &str); 7] = [
        (&["--memory", "7M", "a"], "the minimum is 8MiB"),
        (&["--memory", "much", "a"], "not a size such as 64MiB"),
        (
            &["--memory", "8M", "--io", "block-size=8M", "a"],
            "more than 4 MiB: use blocks of at most 4 MiB",
        ),
        (
            &["--memory", "8M", "--io", "block-size=1M", "--io", "queue-depth=5", "a"],
            "use at most 4 slots",
        ),
        (&["--memory", "8M", "--io", "workers=1024", "a"], "use at most 1024 slots"),
        (&["--memory", "8M", "-r", "-j", "9", "."], "allows --jobs 8 at most"),
        (&["--memory", "8M", "-r", "--io", "block-size=1M", "."], "a part of the memory limit"),
    ];
    for (args, part) in cases {
        let output = scratch.run(args);
        assert_eq!((output.code, output.stdout()), (2, ""), "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains(part), "{part:?} in {}", output.stderr);
    }
    let line = format!("{}  a\n", hex(b"a"));
    for args in [
        &["--memory", "8M", "a"][..],
        &["--memory", "1G", "a"],
        &["--memory", "8M", "-r", "-j", "8", "."],
    ] {
        let output = scratch.run(args);
        assert_eq!((output.code, output.stdout().starts_with(&line[..64])), (0, true), "{args:?}");
    }
}

#[test]
fn a_huge_file_takes_no_more_than_it_may() {
    let scratch = Scratch::new();
    let huge = sparse(&scratch.join("huge"), 0);
    let bytes = [40, 36].into_iter().find(|log2| {
        fs::File::options().write(true).open(&huge).unwrap().set_len(1 << log2).is_ok()
    });
    let Some(log2) = bytes else { return skip("a huge file: this file system has none") };
    for args in [
        &["--memory", "8M"][..],
        &["--memory", "8M", "--io", "page-cache=buffered"],
        &["--memory", "8M", "-r"],
        // (Where it is supported, holes are read, and it takes for ever.)
        &["--memory", "8M", "--bypass-cache"],
    ] {
        let mut command = scratch.command(args);
        let ran = watched(command.arg("huge"), Stdio::null(), Some(Duration::from_secs(2)));
        let is_refused = ran.code == 1 && args.contains(&"--bypass-cache");
        assert!(matches!(ran.code, 0 | -1) || is_refused, "2^{log2} {args:?} {}", ran.stderr);
        at_most(&ran, 8);
    }
}

/// Number of files, 1,000 in each directory; an environment variable sets a higher one.
fn files() -> usize {
    std::env::var("LIMITS_FILES").ok().and_then(|n| n.parse().ok()).unwrap_or(5000)
}

#[test]
fn many_files_take_no_more_than_they_may() {
    let scratch = Scratch::new();
    let (mut names, mut sums) = (String::new(), String::new());
    for number in 0..files() {
        let directory = format!("tree/{:04}", number / 1000);
        if number % 1000 == 0 {
            scratch.make_dir(&directory);
        }
        let (name, text) = (format!("{directory}/{number:07}-and-so-on"), number.to_string());
        fs::write(scratch.join(&name), &text).unwrap();
        names += &format!("{name}\n");
        sums += &format!("{}  {name}\n", hex(text.as_bytes()));
    }
    scratch.write("names", &names);
    scratch.write("sums", &sums);
    let oks = names.replace('\n', ": OK\n");
    for memory in [None, Some(16), Some(8)] {
        let cases: [(&[&str], &str); 3] = [
            (&["-r", "tree"], &sums),
            (&["--files-from", "names"], &sums),
            (&["-c", "sums"], &oks),
        ];
        for (args, expected) in cases {
            let mut command = scratch.command(args);
            if let Some(mib) = memory {
                command.args(["--memory", &format!("{mib}M")]);
            }
            let ran = to_the_end(&mut command);
            assert_eq!((ran.code, &*ran.stderr), (0, ""), "{args:?} {memory:?}");
            assert!(ran.stdout == expected.as_bytes(), "{args:?} {memory:?}: other lines");
            at_most(&ran, memory.unwrap_or(100));
        }
    }
}

/// A directory that does not fit into memory is read in several passes.
#[test]
fn one_large_directory_takes_no_more_than_it_may() {
    let scratch = Scratch::new();
    let (mut sums, tree) = (Vec::new(), scratch.make_dir("tree"));
    let name = |number| format!("{number:06}-{}", "long".repeat(20));
    for number in 0..files() {
        fs::write(tree.join(name(number)), "").unwrap();
        sums.push(format!("{}  tree/{}\n", hex(b""), name(number)));
    }
    scratch.make_dir("tree/000100-directory");
    scratch.write("tree/000100-directory/file", "");
    sums.push(format!("{}  tree/000100-directory/file\n", hex(b"")));
    sums.sort_unstable_by(|a, b| a[66..].cmp(&b[66..]));
    let ran = to_the_end(&mut scratch.command(&["-r", "--memory", "8M", "tree"]));
    let expected: String = sums.concat();
    assert_eq!((ran.code, &*ran.stderr), (0, ""));
    assert!(ran.stdout == expected.as_bytes(), "other lines");
    at_most(&ran, 8);
}

/// Number of nested directories; an environment variable sets another. (A debug build takes over a
/// minute for 10,000.)
fn levels() -> usize {
    std::env::var("LIMITS_LEVELS").ok().and_then(|n| n.parse().ok()).unwrap_or(1500)
}

/// Makes nested directories with a file in each.
fn deep(root: &Path, levels: usize) {
    let mut at = rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&at, "directory", Mode::RWXU | Mode::ROTH | Mode::XOTH).unwrap();
        let flags = OFlags::CREATE | OFlags::WRONLY;
        openat(&at, "file", flags, Mode::RUSR | Mode::ROTH).unwrap();
        at = openat(&at, "directory", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
}

/// Removes the directories of [`deep`]: `remove_dir_all` of the standard library recurses.
struct Deep<'a>(&'a Path);

impl Drop for Deep<'_> {
    fn drop(&mut self) {
        let _ = Command::new("rm").arg("-rf").arg(self.0).status();
    }
}

#[test]
fn directories_in_each_other_take_few_descriptors() {
    let scratch = Scratch::new();
    let tree = scratch.make_dir("tree");
    let _deep = Deep(&tree);
    deep(&tree, levels());
    let mut one = String::new();
    for (descriptors, args) in
        [(1024, &[][..]), (64, &["--memory", "8M"]), (16, &[]), (64, &["--gitignore"])]
    {
        let mut command = scratch.command(&["-r", "tree"]);
        limit(command.args(args), libc::RLIMIT_NOFILE, descriptors);
        let ran = to_the_end(&mut command);
        assert_eq!((ran.code, &*ran.stderr), (0, ""), "{descriptors} {args:?}");
        let stdout = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert_eq!(stdout.lines().count(), levels());
        if one.is_empty() {
            one.clone_from(&stdout);
        }
        assert!(stdout == one, "{descriptors}: other lines");
        at_most(&ran, if args.is_empty() { 64 } else { 24 });
    }
    // The kernel accepts no path of more than 4,096 bytes: directories are opened one at a time.
    scratch.write("sums", &one);
    let ran = to_the_end(&mut scratch.command(&["-c", "--quiet", "sums"]));
    assert_eq!((ran.code, ran.stdout.len(), &*ran.stderr), (0, 0, ""));
    let longest = one.lines().max_by_key(|line| line.len()).unwrap();
    let (_, name) = longest.split_once("  ").unwrap();
    assert!(name.len() > 4096);
    let ran = to_the_end(&mut scratch.command(&[name]));
    assert_eq!((ran.code, ran.stdout), (0, format!("{longest}\n").into_bytes()), "{}", ran.stderr);
}

/// Many directories and files, some of them large, and none in the page cache.
fn wide(scratch: &Scratch) -> Vec<u8> {
    let large = content(9_000_000);
    for directory in 0..40 {
        scratch.make_dir(format!("tree/{directory}/below/and/further"));
        for file in 0..20 {
            scratch.write(format!("tree/{directory}/below/{file}"), file.to_string());
            scratch
                .write(format!("tree/{directory}/below/and/further/{file}"), content(5000 * file));
        }
        if directory % 10 == 0 {
            scratch.write(format!("tree/{directory}/large"), &large);
        }
    }
    // Dirty pages cannot be dropped from the page cache.
    rustix::fs::sync();
    lines_below(&scratch.join("tree"), "tree")
}

fn cool(tree: &Path) {
    let mut directories = vec![tree.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => directories.push(entry.path()),
                false => {
                    let file = fs::File::open(entry.path()).unwrap();
                    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
                }
            }
        }
    }
}

#[test]
fn descriptors_and_threads_are_bounded() {
    let scratch = Scratch::new();
    let expected = wide(&scratch);
    for (descriptors, args, threads) in [
        (16, &[][..], 40),
        (32, &[], 40),
        (64, &[], 40),
        (1024, &[], 40),
        (1024, &["--memory", "8M"], 14),
        (1024, &["-j", "1", "--num-threads", "1"], 8),
    ] {
        for is_cold in [true, false] {
            if is_cold {
                cool(&scratch.join("tree"));
            }
            let mut command = scratch.command(&["-r", "tree"]);
            limit(command.args(args), libc::RLIMIT_NOFILE, descriptors);
            let ran = to_the_end(&mut command);
            let what = format!("{descriptors} {args:?} cold: {is_cold}, {:?}", ran.peaks);
            assert_eq!((ran.code, &*ran.stderr), (0, ""), "{what}");
            assert!(ran.stdout == expected, "{what}: other lines");
            // (Descriptors are closed and opened while they are counted.)
            let slack = 4;
            assert!(ran.peaks.descriptors <= descriptors + slack, "{what}");
            assert!(ran.peaks.threads <= threads, "{what}");
        }
    }
}

/// (If each waited 2 s, the watchdog would end the run.)
#[test]
fn directories_for_which_there_is_no_descriptor_do_not_each_wait() {
    let scratch = Scratch::new();
    for n in 0..100 {
        scratch.make_dir(format!("tree/{n}"));
        scratch.write(format!("tree/{n}/file"), "content");
    }
    // Three descriptors are left.
    let script = "exec 3<&0 4<&0 5<&0 6<&0; exec \"$R\" -r tree";
    let mut command = shell();
    command.args(["-c", script]).current_dir(scratch.path());
    limit(&mut command, libc::RLIMIT_NOFILE, 10);
    let ran = to_the_end(&mut command);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("Too many open files"), "{}", ran.stderr);
}

/// The line of a file.
fn line_of<'a>(lines: &'a [u8], name: &str) -> &'a [u8] {
    let mut lines = lines.split_inclusive(|byte| *byte == b'\n');
    lines.find(|line| line.ends_with(format!("  {name}\n").as_bytes())).expect("a line")
}

#[test]
fn as_many_threads_as_can_be_had_do_all_the_work() {
    let scratch = Scratch::new();
    let expected = wide(&scratch);
    let sums = scratch.write("sums", &expected);
    fs::set_permissions(&sums, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let several = ["-a", "blake3", "-a", "sha256", "-a", "md5", "tree/0/large"];
    let digests = scratch.run(&several).stdout;
    assert_eq!(digests.split(|byte| *byte == b'\n').count(), 4);
    let each: [(&[&str], &[u8]); 4] = [
        (&["-r", "tree"], &expected),
        (&["-c", "--quiet", "sums"], b""),
        (&["tree/0/large"], line_of(&expected, "tree/0/large")),
        // Each has a consumer thread.
        (&several, &digests),
    ];
    for most in [1, 2, 3, 5, 9, 17] {
        for (args, expected) in each {
            cool(&scratch.join("tree"));
            let Some(mut command) = scratch.unprivileged(args) else { return };
            // A user without other processes.
            if rustix::process::geteuid().is_root() {
                command.uid(65_531);
            }
            limit(&mut command, libc::RLIMIT_NPROC, most);
            let ran = to_the_end(&mut command);
            let what = format!("{most} threads, {args:?}: {}", ran.stderr);
            assert_eq!((ran.code, &*ran.stderr), (0, ""), "{what}");
            assert!(ran.stdout == expected, "{what}: other lines");
        }
    }
}

/// A control group, removed on drop.
struct Group(PathBuf);

impl Group {
    /// With a limit, in version 2, or in version 1 of the controller.
    fn new(controller: &str, files: [&str; 2], limit: u64) -> Option<Group> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        for line in mounts.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, root, kind, options, ..] = fields[..] else { continue };
            let file = match kind {
                "cgroup2" => files[0],
                "cgroup" if options.split(',').any(|option| option == controller) => files[1],
                _ => continue,
            };
            let _ =
                fs::write(Path::new(root).join("cgroup.subtree_control"), format!("+{controller}"));
            let name = format!("ringsum-{controller}-{limit}-{}", std::process::id());
            let group = Group(Path::new(root).join(name));
            if fs::create_dir(&group.0).is_ok()
                && fs::write(group.0.join(file), limit.to_string()).is_ok()
            {
                return Some(group);
            }
        }
        None
    }

    fn put(&self, command: &mut Command) {
        let procs = fs::OpenOptions::new().write(true).open(self.0.join("cgroup.procs")).unwrap();
        // SAFETY: one system call.
        unsafe {
            command.pre_exec(move || rustix::io::write(&procs, b"0").map(drop).map_err(Into::into));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It is empty once the kernel has reaped its last process.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_control_group_with_64_mib_is_enough() {
    let Some(group) = Group::new("memory", ["memory.max", "memory.limit_in_bytes"], 64 << 20)
    else {
        return skip("control groups: none with a limit on memory can be made");
    };
    let scratch = Scratch::new();
    let expected = wide(&scratch);
    let large = content(200 << 20);
    scratch.write("large", &large);
    let line = format!("{}  large\n", hex(&large)).into_bytes();
    drop(large);
    for (args, expected) in [(&["-r", "tree"][..], &expected), (&["large"], &line)] {
        for is_cold in [true, false] {
            if is_cold {
                cool(scratch.path());
            }
            let mut command = scratch.command(args);
            group.put(&mut command);
            let ran = to_the_end(&mut command);
            assert_eq!((ran.code, &*ran.stderr), (0, ""), "{args:?} {is_cold}");
            assert!(ran.stdout == *expected, "{args:?} {is_cold}: other lines");
            at_most(&ran, 32);
        }
    }
}

/// Blocks and the page cache of what is read next do not evict each other, nor is the process
/// killed.
#[test]
fn one_file_takes_no_more_memory_than_its_control_group_has() {
    let scratch = Scratch::new();
    let large = content(64 << 20);
    scratch.write("large", &large);
    let line = format!("{}  large\n", hex(&large)).into_bytes();
    drop(large);
    for mib in [8, 16] {
        let files = ["memory.max", "memory.limit_in_bytes"];
        let Some(group) = Group::new("memory", files, mib << 20) else {
            return skip("control groups: none with a limit on memory can be made");
        };
        for args in
            [&["large"][..], &["--io", "page-cache=buffered", "large"], &["--tee", "copy", "large"]]
        {
            cool(scratch.path());
            let mut command = scratch.command(args);
            group.put(&mut command);
            let ran = to_the_end(&mut command);
            assert_eq!((ran.code, &*ran.stderr), (0, ""), "{mib} MiB: {args:?}");
            assert!(ran.stdout == line, "{mib} MiB: {args:?}: other lines");
        }
    }
}

/// More files than the reorder buffer holds, after large ones that are not cached: those are left
/// to other threads, and all others wait for them.
fn crowded(scratch: &Scratch) -> Vec<u8> {
    for large in 0..3 {
        scratch.make_dir("tree");
        scratch.write(format!("tree/{large}.large"), content((1 << 20) + large));
    }
    for directory in 0..17 {
        scratch.make_dir(format!("tree/d{directory}"));
        for file in 0..1000 {
            scratch.write(format!("tree/d{directory}/{file}"), file.to_string());
        }
    }
    rustix::fs::sync();
    let lines = lines_below(&scratch.join("tree"), "tree");
    scratch.write("sums", &lines);
    lines
}

fn cool_large(scratch: &Scratch) {
    for large in 0..3 {
        let file = fs::File::open(scratch.join(format!("tree/{large}.large"))).unwrap();
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

/// Command lines for the tree of [`crowded`].
const CROWDED: [&[&str]; 3] =
    [&["-r", "tree"], &["-c", "--quiet", "sums"], &["--memory", "16M", "-r", "tree"]];

/// (One test, since it takes a while to make the tree.)
#[test]
fn a_run_with_few_threads_or_little_address_space_comes_to_its_end() {
    let scratch = Scratch::new();
    let expected = crowded(&scratch);
    with_little_address_space(&scratch, &expected);
    with_few_threads(&scratch, &expected);
}

fn with_few_threads(scratch: &Scratch, expected: &[u8]) {
    for most in [1, 2, 3, 4, 6, 9, 14, 20] {
        // Two of the three in each round.
        for args in [CROWDED[most as usize % 3], CROWDED[(most as usize + 1) % 3]] {
            let Some(group) = Group::new("pids", ["pids.max", "pids.max"], most) else {
                return skip("control groups: none with a limit on processes can be made");
            };
            cool_large(scratch);
            let mut command = scratch.command(args);
            group.put(&mut command);
            let ran = to_the_end(&mut command);
            assert_eq!((ran.code, &*ran.stderr), (0, ""), "{most} {args:?}");
            let lines: &[u8] = if args[0] == "-c" { b"" } else { expected };
            assert!(ran.stdout == lines, "{most} {args:?}: other lines");
            assert!(ran.peaks.threads <= most, "{most} {args:?}: {:?}", ran.peaks);
        }
    }
}

/// It hashes everything, or reports what it could not hash; it never aborts.
fn with_little_address_space(scratch: &Scratch, expected: &[u8]) {
    let expected: std::collections::BTreeSet<&[u8]> =
        expected.split_inclusive(|byte| *byte == b'\n').collect();
    // (A debug build needs some 20 MiB for itself.)
    let small = [24, 28, 32, 36, 40, 48, 64, 100, 200].into_iter().enumerate();
    let small = small.map(|(i, mib)| (mib, CROWDED[i % 3]));
    let large = [300, 500, 700, 1000].into_iter();
    let large = large.flat_map(|mib| [(mib, CROWDED[0]), (mib, CROWDED[1])]);
    for (mib, args) in small.chain(large) {
        cool_large(scratch);
        let mut command = scratch.command(args);
        limit(&mut command, libc::RLIMIT_AS, mib << 20);
        let ran = to_the_end(&mut command);
        let what = format!("{mib} MiB {args:?}: {} {}", ran.code, ran.stderr);
        let is_whole = ran.code == 0 && ran.stderr.is_empty();
        let is_partial = ran.code == 1 && !ran.stderr.is_empty();
        assert!(is_whole || (is_partial && mib < 100), "{what}");
        if args[0] != "-c" {
            let lines = ran.stdout.split_inclusive(|byte| *byte == b'\n');
            assert!(lines.clone().all(|line| expected.contains(line)), "{what}");
            assert!(!is_whole || lines.count() == expected.len(), "{what}");
        }
    }
}
