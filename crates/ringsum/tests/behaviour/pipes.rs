//! Streams: pipes with every kind of writer, `--pass-through` and `--tee`.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use blockring::HugePages;
use proptest::prelude::*;

use super::support::*;
use super::vmsplice::Producer;

/// A running command whose input is a pipe.
struct Fed {
    child: Child,
    pipe: Option<io::PipeWriter>,
    _watchdog: Watchdog,
}

impl Fed {
    fn start(command: &mut Command) -> Fed {
        let (reader, writer) = io::pipe().unwrap();
        Fed { pipe: Some(writer), ..Fed::from(command.stdin(reader)) }
    }

    /// A command with the input that it already has.
    fn from(command: &mut Command) -> Fed {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Fed { _watchdog: Watchdog::of(&child), child, pipe: None }
    }

    fn pipe(&mut self) -> &mut io::PipeWriter {
        self.pipe.as_mut().expect("it is open until the end")
    }

    /// Closes the input, and waits for the end.
    fn end(mut self) -> Output {
        drop(self.pipe.take());
        let output = self.child.wait_with_output().unwrap();
        Output {
            code: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

fn line(data: &[u8]) -> String {
    format!("{}  -\n", blake3::hash(data))
}

#[test]
fn lengths_around_blocks() {
    let scratch = Scratch::new();
    let block = 256 << 10;
    let mut lens = vec![0, 1, 1023, 1024, 1025, 65_535, 65_536, 65_537, 3 << 20, 5_000_001];
    lens.extend(
        [1, 2, 3, 4, 8].into_iter().flat_map(|n| [n * block - 1, n * block, n * block + 1]),
    );
    let data = content(5_000_001);
    for options in
        [&[][..], &["--io", "workers=0"], &["--io", "workers=3"], &["--io=order=in-order"]]
    {
        for &len in &lens {
            scratch.run_with(options, &data[..len]).expect(0, &line(&data[..len]), "");
        }
    }
    for options in [&["--io", "block-size=1K"][..], &["--io", "block-size=3000"]] {
        for len in [0, 1023, 1024, 1025, 2048, 3000, 9001, 100_000] {
            scratch.run_with(options, &data[..len]).expect(0, &line(&data[..len]), "");
        }
    }
    let key = [&["--derive-key", "a context"][..], &["--length", "100", "--seek", "7"]];
    for options in key {
        let (data, path) = (&data[..600_000], scratch.write("file", &data[..600_000]));
        let whole = scratch.run(&[options, &[path.to_str().unwrap()]].concat());
        let expected = whole.stdout().replace(path.to_str().unwrap(), "-");
        scratch.run_with(options, data).expect(0, &expected, "");
    }
}

#[test]
fn a_writer_that_dribbles_or_stops_for_a_while() {
    let scratch = Scratch::new();
    let data = content(3000);
    let mut run = Fed::start(&mut scratch.command(&[] as &[&str]));
    for byte in &data {
        run.pipe().write_all(&[*byte]).unwrap();
    }
    run.end().expect(0, &line(&data), "");

    let data = content(700_000);
    let mut run = Fed::start(&mut scratch.command(&[] as &[&str]));
    for (i, piece) in data.chunks(70_001).enumerate() {
        run.pipe().write_all(piece).unwrap();
        thread::sleep(Duration::from_millis(if i % 3 == 0 { 20 } else { 0 }));
    }
    run.end().expect(0, &line(&data), "");
}

#[test]
fn a_writer_that_dies_has_written_what_it_has() {
    let scratch = Scratch::new();
    let script =
        "{ (head -c 300000 /dev/zero; kill -9 $(exec sh -c 'echo $PPID')) | $R; } 2>/dev/null";
    scratch.shell(script).expect(0, &line(&[0; 300_000]), "");
}

#[test]
fn pipes_of_a_page_or_two_that_cannot_be_enlarged() {
    let scratch = Scratch::new();
    // A user at the limit on pipe memory gets pipes of one or two pages, and may not enlarge any.
    if !rustix::process::geteuid().is_root() {
        return skip("the limit on pipes: to use that of another user up needs root");
    }
    let Some(mut command) = scratch.unprivileged(&["--version"]) else { return };
    if !command.output().is_ok_and(|output| output.status.success()) {
        return skip("the limit on pipes: another user cannot run the command");
    }
    let Some(_hog) = hold_pipes_as_another_user() else {
        return skip("the limit on pipes: it needs python3 to use it up");
    };
    let shrunk = "python3 -c 'import fcntl, os; fcntl.fcntl(0, 1031, 4096); os.execv(os.environ[\"R\"], \
                  [\"ringsum\", \"--explain\"])'";
    for reader in ["$R --explain", shrunk] {
        let mut shell = shell();
        shell.uid(65_534).gid(65_534);
        shell.args(["-c", &format!("(sleep .3; head -c 1000000 /dev/zero) | {reader}")]);
        let output = super::support::run(&mut shell, b"");
        let hash = line(&[0; 1_000_000]);
        assert_eq!((output.code, output.stdout()), (0, &*hash), "{}", output.stderr);
        assert!(output.stderr.contains("no larger one is allowed"), "{}", output.stderr);
    }
}

/// A process of another user that holds pipes up to that user's limit, until it is dropped.
fn hold_pipes_as_another_user() -> Option<Hog> {
    let script = "import fcntl, os, resource, sys\n\
                  resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n\
                  held = []\n\
                  size = 1 << 20\n\
                  while True:\n\
                  \x20   pipe = os.pipe()\n\
                  \x20   held.append(pipe)\n\
                  \x20   if fcntl.fcntl(pipe[0], 1032) < 65536: break\n\
                  \x20   while size > 65536:\n\
                  \x20       try: fcntl.fcntl(pipe[0], 1031, size); break\n\
                  \x20       except PermissionError: size //= 2\n\
                  print('full', flush=True)\n\
                  sys.stdin.read()\n";
    let mut command = Command::new("python3");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.uid(65_534).gid(65_534);
    let mut child = command.spawn().ok()?;
    let mut word = [0; 4];
    child.stdout.as_mut()?.read_exact(&mut word).ok()?;
    Some(Hog(child))
}

struct Hog(Child);

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn eight_gibibytes_of_zeros_take_little_memory() {
    let scratch = Scratch::new();
    let mut run = Fed::start(&mut scratch.command(&[] as &[&str]));
    let status = format!("/proc/{}/status", run.child.id());
    let pipe = run.pipe.take().unwrap();
    rustix::pipe::fcntl_setpipe_size(&pipe, 1 << 20).unwrap();
    let mut producer = Producer::new(pipe, HugePages::Advise);
    let mut peak = 0;
    for part in 0..8 << 10 {
        producer.writable();
        producer.send(1 << 20);
        if part % 1024 == 1023 {
            let status = fs::read_to_string(&status).unwrap();
            let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
            peak = kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
        }
    }
    drop(producer);
    let mut hasher = blake3::Hasher::new();
    let zeros = vec![0; 1 << 20];
    for _ in 0..8 << 10 {
        hasher.update(&zeros);
    }
    run.end().expect(0, &format!("{}  -\n", hasher.finalize()), "");
    assert!(peak > 0 && peak <= 32 << 10, "{peak} KiB of memory");
}

/// Sends numbers of 8 bytes from 0 on with vmsplice; `take` gets the output of the run.
fn give_numbers(mut run: Fed, pages: HugePages, pipe_bytes: usize) -> (blake3::Hash, Output) {
    let pipe = run.pipe.take().unwrap();
    rustix::pipe::fcntl_setpipe_size(&pipe, pipe_bytes).unwrap();
    let mut producer = Producer::new(pipe, pages);
    let mut expected = blake3::Hasher::new();
    let mut value = 0_u64;
    let feeder = thread::spawn(move || {
        for i in 0..24 {
            let half = producer.writable();
            // Sometimes less than a half, so that the sizes alone do not push out earlier data.
            let len = if i % 3 == 2 { 5000 } else { half.len() };
            for word in half[..len].chunks_mut(8) {
                word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
                value += 1;
            }
            expected.update(&half[..len]);
            producer.send(len);
        }
        expected.finalize()
    });
    // A slow reader at the far end.
    thread::sleep(Duration::from_millis(100));
    let output = run.end();
    (feeder.join().unwrap(), output)
}

/// Pages given away with vmsplice must not change before they are read, by the command or by its
/// reader.
#[test]
fn what_is_given_away_arrives_as_it_was() {
    let scratch = Scratch::new();
    for (pages, pipe_bytes) in [(HugePages::Off, 64 << 10), (HugePages::Advise, 1 << 20)] {
        let run = Fed::start(&mut scratch.command(&["--limit-rate", "64M"]));
        let (expected, output) = give_numbers(run, pages, pipe_bytes);
        output.expect(0, &format!("{expected}  -\n"), "");
        let run = Fed::start(&mut scratch.command(&["--pass-through"]));
        let (expected, output) = give_numbers(run, pages, pipe_bytes);
        assert_eq!((output.code, output.stderr), (0, format!("{expected}  -\n")));
        assert_eq!(blake3::hash(&output.stdout), expected, "{pages:?}: other bytes were passed on");
    }
}

/// A read that is too short truncates a packet: none may be truncated, wherever blocks end.
#[test]
fn packets_are_not_cut() {
    use rustix::fs::{OFlags, fcntl_setfl};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let scratch = Scratch::new();
    let data = content(3_000_000);
    let run = |options: &[&str], kind: &str| {
        let (ours, theirs): (OwnedFd, OwnedFd) = match kind {
            "messages" => {
                let kind = SocketType::SEQPACKET;
                socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
            }
            _ => {
                let (reader, writer) = io::pipe().unwrap();
                fcntl_setfl(&writer, OFlags::DIRECT).unwrap();
                if kind == "a pipe that says so" {
                    fcntl_setfl(&reader, OFlags::DIRECT).unwrap();
                }
                (writer.into(), reader.into())
            }
        };
        let run = Fed::from(scratch.command(options).stdin(theirs));
        // Messages of many lengths, some longer than a page.
        let most = if kind == "messages" { 90_001 } else { 4_096 };
        let sent = data.clone();
        let feeder = thread::spawn(move || {
            let mut rest = &sent[..];
            for len in (1..).map(|i| i * 2_999 % most + 1) {
                let (packet, after) = rest.split_at(len.min(rest.len()));
                if packet.is_empty() {
                    break;
                }
                assert_eq!(rustix::io::write(&ours, packet).unwrap(), packet.len());
                rest = after;
            }
        });
        let output = run.end();
        feeder.join().unwrap();
        output
    };
    for options in [
        &[][..],
        &["--io=order=in-order"],
        &["--io", "workers=2"],
        &["--io", "block-size=1K"],
        &["--io", "block-size=3000"],
        &["--pass-through"],
        &["--pass-through=share"],
    ] {
        for kind in ["a pipe", "a pipe that says so", "messages"] {
            let shares = options.contains(&"--pass-through=share");
            if shares && kind == "a pipe" {
                // The reading end cannot know, as docs/guide.md says.
                continue;
            }
            let passes = options.iter().any(|option| option.starts_with("--pass"));
            let output = run(options, kind);
            let hash = if passes { output.stderr.as_bytes() } else { &output.stdout };
            let found = (output.code, String::from_utf8_lossy(hash));
            assert_eq!(found, (0, line(&data).into()), "{options:?}, {kind}");
            assert!(!passes || output.stdout == data, "{options:?}, {kind}");
        }
    }
}

#[test]
fn a_file_on_standard_input_counts_from_its_position_on() {
    let scratch = Scratch::new();
    let data = content(3_000_000);
    let path = scratch.write("file", &data);
    for position in [0, 1, 511, 512, 4096, 70_000, 2_999_999, 3_000_000, 4_000_000] {
        let rest = data.get(position..).unwrap_or_default();
        for options in [
            &[][..],
            &["--io", "engine=io_uring", "--io", "page-cache=buffered"],
            &["--io", "engine=mmap"],
            &["--io", "engine=stream"],
            &["--io", "engine=pool"],
            &["--io=order=in-order"],
            &["--io", "block-size=3000"],
            &["--io", "block-size=4K"],
        ] {
            if position >= data.len() && options.iter().any(|option| option.contains("engine=")) {
                continue;
            }
            let mut file = File::open(&path).unwrap();
            file.seek(SeekFrom::Start(position as u64)).unwrap();
            let run = scratch.command(options).stdin(file).output().unwrap();
            let found = (run.status.code(), String::from_utf8_lossy(&run.stdout));
            let why = String::from_utf8_lossy(&run.stderr);
            assert_eq!(found, (Some(0), line(rest).into()), "{position} {options:?} {why}");
        }
    }
    // The next reader finds its position at the end.
    let script = "{ head -c 0; dd bs=1000 count=1 of=/dev/null status=none; $R; cat; } < file";
    scratch.shell(script).expect(0, &line(&data[1000..]), "");
}

#[test]
fn streams_go_by_any_name() {
    let scratch = Scratch::new();
    let data = content(100_000);
    scratch.write("file", &data);
    let hash = blake3::hash(&data);
    let run =
        scratch.shell("mkfifo fifo; cat file > fifo & cat file | $R fifo file - /dev/fd/3 3<file");
    run.expect(
        0,
        &["fifo", "file", "-", "/dev/fd/3"].map(|n| format!("{hash}  {n}\n")).concat(),
        "",
    );
    let run =
        scratch.shell("cat file | $R -; cat file | $R /dev/stdin; cat file | $R /proc/self/fd/0");
    let names = ["-", "/dev/stdin", "/proc/self/fd/0"];
    run.expect(0, &names.map(|name| format!("{hash}  {name}\n")).concat(), "");
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut child = scratch
        .command(&[] as &[&str])
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _watchdog = Watchdog::of(&child);
    (&ours).write_all(&data).unwrap();
    drop(ours);
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!((child.wait().unwrap().code(), out), (Some(0), line(&data)));
}

#[test]
fn passed_through_and_written_to_files() {
    let scratch = Scratch::new();
    let data = content(3_000_000);
    scratch.write("in", &data);
    let hash = line(&data);
    for (script, way) in [
        ("cat in | $R --pass-through --explain | cat", "tee         read, write      pipe to pipe"),
        ("cat in | $R --pass-through=share --explain | cat", "tee         shared pages"),
        ("cat in | $R -p=share --explain --io workers=2 | cat", "tee         shared pages"),
        (
            "$R --pass-through --explain < in | cat",
            "tee         read, write      the input is not a pipe",
        ),
        ("cat in | $R -p=share --explain > out; cat out", "the output is not a pipe"),
        ("cat in | $R -p=share --explain --tee copy --tee /dev/null | cat; cmp in copy", "2 files"),
        (
            "cat in | $R -p=copy --explain --tee copy --io block-size=1K | cat; cmp in copy",
            "a file is written",
        ),
    ] {
        let run = scratch.shell(script);
        assert!(run.stdout == data, "{script}: {} bytes", run.stdout.len());
        let said: Vec<_> = run.stderr.lines().collect();
        assert_eq!(said.last().map(|line| format!("{line}\n")), Some(hash.clone()), "{script}");
        assert!(run.stderr.contains(way), "{script}: {}", run.stderr);
    }
    scratch.shell("cat in | $R --tee copy; cmp in copy").expect(0, &hash, "");
    let named = hash.replace('-', "in");
    scratch.shell("$R -p --output sum in > out; cmp in out; cat sum").expect(0, &named, "");
    scratch.shell("cat in | $R -p -o sum --json > out; cut -c1-8 sum").expect(
        0,
        "{\"hash\":\n",
        "",
    );
    scratch.shell(": | $R -p").expect(0, "", &line(b""));
    scratch.shell("$R -o sum in; $R --check sum").expect(0, "in: OK\n", "");
    // A list in a tree does not list itself.
    let run =
        scratch.shell("mkdir tree; cp in tree; $R -r tree -o tree/list; $R --check tree/list");
    run.expect(0, "tree/in: OK\n", "ringsum: tree/list: skipped: it is the output of this run\n");
}

#[test]
fn what_comes_is_passed_on_at_once() {
    let scratch = Scratch::new();
    for args in [&["-p"][..], &["--pass-through=share"], &["--pass-through", "--tee", "copy"]] {
        let mut run = Fed::start(&mut scratch.command(args));
        for byte in [b"a", b"b", b"c"] {
            run.pipe().write_all(byte).unwrap();
            // (If nothing comes, the watchdog ends the wait.)
            let mut got = [0];
            run.child.stdout.as_mut().unwrap().read_exact(&mut got).unwrap();
            assert_eq!(&got, byte);
        }
        run.end().expect(0, "", &line(b"abc"));
    }
}

#[test]
fn a_consumer_that_leaves_ends_the_run_without_a_hash() {
    let scratch = Scratch::new();
    scratch.write("in", content(8 << 20));
    for script in [
        "{ cat in; cat in; } | { $R --pass-through; echo $? >&2; } | head -c 10",
        "{ $R --pass-through < in; echo $? >&2; } | head -c 10",
        "cat in | { $R --pass-through --output sum; echo $? >&2; cat sum >&2; } | head -c 10",
    ] {
        let run = scratch.shell(script);
        let mut said = run.stderr.lines();
        let first = said.next().unwrap_or_default();
        assert!(
            first.starts_with("ringsum: standard output: its reader has closed it; ")
                && first.ends_with(" bytes were consumed before, the rest was not"),
            "{script}: {}",
            run.stderr
        );
        assert_eq!((said.next(), said.next()), (Some("1"), None), "{script}");
    }
    // The reader leaves while the input is open and idle: that is noticed.
    for option in ["--pass-through", "--pass-through=share"] {
        let mut run = Fed::start(&mut scratch.command(&[option]));
        drop(run.child.stdout.take());
        let code = run.child.wait().unwrap().code();
        assert_eq!(code, Some(1), "{}", run.end().stderr);
    }
    // A failure keeps its exit status, and a hash that cannot be printed is a failure.
    for script in [
        "(sleep .1; cat in) | { $R --tee /dev/full 2>/dev/null; echo $? >&2; } | true",
        "cat in | $R -p 2>&- >out; echo $? >&2",
        "cat in | { $R -p 2>&3 3>&-; echo $? >&4; } 3>&1 4>&2 >out | sleep 0",
        "cat in | $R -p --json 2>/dev/full >out; echo $? >&2",
    ] {
        assert_eq!(scratch.shell(script).stderr, "1\n", "{script}");
    }
}

#[test]
fn what_cannot_be_passed_on_is_said_and_nothing_is_lost() {
    let scratch = Scratch::new();
    let data = content(400_000);
    scratch.write("in", &data);
    scratch.write("old", "not to be lost");
    // A full output does not stop the others.
    let run = scratch
        .shell("cat in | $R -p --tee /dev/full --tee copy > out; echo $?; cmp in out; cmp in copy");
    let full =
        "ringsum: /dev/full: No space left on device (os error 28); it holds the first 0 bytes\n";
    run.expect(0, "1\n", &format!("{full}{}", line(&data)));
    let run = scratch.shell("cat in | $R -p > /dev/full; echo $?");
    let full = "ringsum: standard output: No space left on device (os error 28); 0 bytes were consumed before, \
                the rest was not\n";
    run.expect(0, "1\n", full);
    for (script, why) in [
        ("$R --tee in in", "in: the same file is named twice; nothing was read or written"),
        ("$R --tee in < in", "in: it is the same file as -; nothing was read or written"),
        (
            "$R --tee new --tee ./new in",
            "./new: it is the same file as new; nothing was read or written",
        ),
        (
            "$R --tee old --tee old in",
            "old: the same file is named twice; nothing was read or written",
        ),
        (
            "$R --tee old --tee in in",
            "in: the same file is named twice; nothing was read or written",
        ),
        (
            "$R --tee old --output old in",
            "old: the same file is named twice; nothing was read or written",
        ),
        (
            "$R --trace old --output old in",
            "old: the same file is named twice; nothing was read or written",
        ),
        (
            "$R --index old --output old in",
            "old: the same file is named twice; nothing was read or written",
        ),
        (
            "$R --keyed --output old in < old",
            "old: it is the same file as -; nothing was read or written",
        ),
        (
            "$R --files-from old --output old",
            "old: the same file is named twice; nothing was read or written",
        ),
        (
            "$R -p --output old < in >> old",
            "standard output: it is the same file as old; nothing was read or written",
        ),
        (
            "$R -p < in >> in",
            "standard output: it is the same file as -; nothing was read or written",
        ),
        ("$R --output in in", "in: the same file is named twice; nothing was read or written"),
        ("$R --output in < in", "in: it is the same file as -; nothing was read or written"),
        ("$R --tee old --tee no/such in", "--tee no/such: No such file or directory (os error 2)"),
        ("$R --keyed --output old in < in", "standard input must have 32 key bytes, not more"),
        ("$R -p < in >&-", "standard output is closed, and --pass-through writes to it"),
        ("$R --output no/such in", "no/such: No such file or directory (os error 2)"),
        ("cat in | $R --tee no/such", "--tee no/such: No such file or directory (os error 2)"),
        ("$R -p missing", "missing: No such file or directory (os error 2)"),
        ("$R -p .", ".: Is a directory (os error 21)"),
    ] {
        scratch.shell(script).expect(1, "", &format!("ringsum: {why}\n"));
        assert!(fs::read(scratch.join("in")).unwrap() == data, "{script}");
        assert_eq!(fs::read(scratch.join("old")).unwrap(), b"not to be lost", "{script}");
    }
    for script in
        ["$R --tee old --io engine=io_uring < in", "cat in | $R --tee old --io page-cache=direct"]
    {
        let run = scratch.shell(script);
        assert_eq!((run.code, run.stdout()), (1, ""), "{script}");
        assert_eq!(fs::read(scratch.join("old")).unwrap(), b"not to be lost", "{script}");
    }
    for script in
        ["$R -p in in", "$R -p -r .", "$R -p -c in", "$R --tee out --io block-size=3000 in"]
    {
        assert_eq!(scratch.shell(script).code, 2, "{script}");
    }
}

/// Non-blocking descriptors, inherited from another process, are waited for.
#[test]
fn non_blocking_ends() {
    let scratch = Scratch::new();
    let data = content(2_000_000);
    scratch.shell("mkfifo in out");
    let fifo = |name: &str, write: bool| {
        let mut options = File::options();
        options.read(true).write(write).custom_flags(libc::O_NONBLOCK);
        options.open(scratch.join(name)).unwrap()
    };
    let (feed, out) = (fifo("in", true), fifo("out", true));
    let input = fifo("in", false);
    let mut child = scratch
        .command(&["--pass-through"])
        .stdin(input)
        .stdout(out.try_clone().unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _watchdog = Watchdog::of(&child);
    thread::scope(|scope| {
        scope.spawn(|| {
            for piece in data.chunks(30_000) {
                let mut rest = piece;
                while !rest.is_empty() {
                    match (&feed).write(rest) {
                        Ok(n) => rest = &rest[n..],
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            thread::sleep(Duration::from_millis(1));
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            drop(feed);
        });
        let mut got = vec![0; data.len()];
        let mut done = 0;
        while done < got.len() {
            match (&out).read(&mut got[done..]) {
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(got == data);
    });
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said), (Some(0), line(&data)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_sizes_and_delays_the_bytes_are_the_same(
        writes in prop::collection::vec((1_usize..200_000, 0_u64..3), 0..12),
        reads in prop::collection::vec((1_usize..200_000, 0_u64..3), 1..12),
        options in prop::sample::select(vec![
            vec!["--pass-through"],
            vec!["--pass-through=share"],
            vec!["--pass-through=share", "--io", "workers=2", "--io", "block-size=16K"],
            vec!["--pass-through", "--io", "workers=2", "--io", "block-size=16K"],
            vec!["--pass-through", "--tee", "copy"],
            vec!["--pass-through", "--io", "block-size=1K"],
        ]),
    ) {
        let scratch = Scratch::new();
        let len = writes.iter().map(|(len, _)| len).sum();
        let data = content(len);
        let mut run = Fed::start(&mut scratch.command(&options));
        let mut output = run.child.stdout.take().unwrap();
        let mut got = Vec::new();
        let mut pipe = run.pipe.take().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut rest = &data[..];
                for &(len, ms) in &writes {
                    let (piece, after) = rest.split_at(len);
                    pipe.write_all(piece).unwrap();
                    rest = after;
                    thread::sleep(Duration::from_millis(ms));
                }
                drop(pipe);
            });
            for &(len, ms) in reads.iter().cycle() {
                let start = got.len();
                got.resize(start + len, 0);
                let n = output.read(&mut got[start..]).unwrap();
                got.truncate(start + n);
                if n == 0 {
                    break;
                }
                thread::sleep(Duration::from_millis(ms));
            }
        });
        prop_assert!(got == data, "{} bytes of {}", got.len(), data.len());
        run.end().expect(0, "", &line(&data));
        if options.contains(&"--tee") {
            prop_assert!(fs::read(scratch.join("copy")).unwrap() == data);
        }
    }
}
