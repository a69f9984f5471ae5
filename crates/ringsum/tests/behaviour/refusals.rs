//! Features that are not available: an explicit option is an error that names what is missing; an
//! automatic choice falls back, and `--explain` says so.

use crate::seccomp;
use crate::support::{Output, Scratch, content, copy_command, hex, installed, run, shell, skip};

/// A file that is not in the page cache, so that bypassing the cache is worthwhile.
fn cold(scratch: &Scratch) -> Vec<u8> {
    let data = content(3_000_000);
    let file = std::fs::File::open(scratch.write("a", &data)).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    data
}

/// Runs the command without these system calls, as container runtimes do.
fn without(calls: &[libc::c_long], scratch: &Scratch, args: &[&str]) -> Output {
    let mut command = scratch.command(args);
    seccomp::refuse(&mut command, calls, libc::EPERM);
    run(&mut command, b"")
}

/// The line of `--explain` about the engine.
fn engine_line(output: &Output) -> &str {
    let line = output.stderr.lines().find(|line| line.trim_start().starts_with("engine"));
    line.unwrap_or_else(|| panic!("no engine in {}", output.stderr))
}

#[test]
fn a_filter_moves_auto_to_the_next_engine_and_explain_says_why() {
    let scratch = Scratch::new();
    let expected = format!("{}  a\n", hex(&cold(&scratch)));
    let whole = scratch.run(&["--explain", "a"]);
    if !whole.stderr.contains(" direct ") {
        return skip("engines behind a filter: this file system has no direct I/O");
    }
    let no_uring = [libc::SYS_io_uring_setup];
    let neither = [libc::SYS_io_uring_setup, libc::SYS_io_setup];
    let cases: [(&[libc::c_long], &str, &[&str]); 4] = [
        (&no_uring, "libaio", &["seccomp", "allow io_uring_setup"]),
        (&neither, "pool", &["no io_uring", "no libaio", "io_setup"]),
        // Also if it is noticed halfway through the set-up.
        (&[libc::SYS_io_uring_register], "libaio", &["io_uring_register"]),
        (&[libc::SYS_io_uring_enter], "libaio", &["io_uring_enter"]),
    ];
    for (calls, engine, parts) in cases {
        cold(&scratch);
        let output = without(calls, &scratch, &["--explain", "a"]);
        assert_eq!((output.code, output.stdout()), (0, &*expected), "{}", output.stderr);
        let line = engine_line(&output);
        assert!(line.trim_start().starts_with(&format!("engine      {engine}")), "{line}");
        for part in parts {
            assert!(line.contains(part), "{part:?} in {line}");
        }
    }
    // Through the page cache libaio is not asynchronous.
    cold(&scratch);
    let output = without(&no_uring, &scratch, &["--explain", "--io", "page-cache=buffered", "a"]);
    assert_eq!((output.code, output.stdout()), (0, &*expected), "{}", output.stderr);
    assert!(engine_line(&output).contains("pool"), "{}", output.stderr);
}

#[test]
fn what_is_asked_for_by_name_says_what_is_missing() {
    let scratch = Scratch::new();
    scratch.write("a", content(3_000_000));
    scratch.write("b", "bbb");
    let refused: [(&[&str], &[&str]); 6] = [
        (
            &["--io", "engine=io_uring"],
            &["engine io_uring cannot be used", "io_uring_setup", "seccomp"],
        ),
        (&["--io=fixed-file=on"], &["engine io_uring cannot be used"]),
        (&["--io", "engine=libaio"], &["engine libaio cannot be used", "allow io_setup"]),
        (&["--io=iopoll=on"], &["engine io_uring cannot be used", "poll queues"]),
        (&["--io", "sqpoll=0,sqpoll-cpu=9999"], &["engine io_uring cannot be used"]),
        (&["--bypass-cache", "--io", "engine=io_uring"], &["engine io_uring cannot be used"]),
    ];
    for (options, parts) in refused {
        let calls = [libc::SYS_io_uring_setup, libc::SYS_io_setup];
        let output = without(&calls, &scratch, &[options, &["a"]].concat());
        assert_eq!((output.code, output.stdout()), (1, ""), "{options:?}: {}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        for part in parts {
            assert!(output.stderr.contains(part), "{part:?} in {}", output.stderr);
        }
    }
    let output = scratch.run(&["--io", "sqpoll=0,sqpoll-cpu=9999", "a"]);
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("is there a processor 9999"), "{}", output.stderr);
    // The other files are hashed.
    let output = scratch.run_with(&["--bypass-cache", "-", "b"], b"x");
    assert_eq!((output.code, output.stdout()), (1, &*format!("{}  b\n", hex(b"bbb"))));
    assert!(output.stderr.contains("cannot be bypassed here: this is a pipe"), "{}", output.stderr);
}

#[test]
fn reserved_huge_pages_are_there_or_refused() {
    let scratch = Scratch::new();
    let data = content(3_000_000);
    scratch.write("a", &data);
    // More than any test machine has reserved.
    let many = [
        "--io",
        "huge-pages=hugetlb",
        "--io",
        "slots=16",
        "--io",
        "queue-depth=16",
        "--io",
        "block-size=64M",
    ];
    scratch.write("sparse", "data");
    std::fs::File::options()
        .write(true)
        .open(scratch.join("sparse"))
        .and_then(|file| file.set_len(2 << 30))
        .unwrap();
    let output = scratch.run(&[&many[..], &["--io", "engine=io_uring", "sparse"]].concat());
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let free = meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    let free: u64 = free.map_or(0, |text| text.trim().parse().unwrap());
    if free < 512 {
        assert_eq!((output.code, output.stdout()), (1, ""), "{}", output.stderr);
        assert!(output.stderr.contains("512 reserved huge pages"), "{}", output.stderr);
        assert!(output.stderr.contains("vm.nr_hugepages"), "{}", output.stderr);
    }
    // As for one file in the page cache, and for many: explicit pages are never replaced.
    if free == 0 {
        for many in [&["a"][..], &["-r", "."]] {
            let output = scratch.run(&[&["--io", "huge-pages=hugetlb"][..], many].concat());
            assert_eq!((output.code, output.stdout()), (1, ""), "{output:?}");
            assert!(output.stderr.contains("reserved huge page"), "{}", output.stderr);
        }
    }
    // Reserved pages are used.
    let sysctl = "/proc/sys/vm/nr_hugepages";
    let before = std::fs::read_to_string(sysctl).unwrap();
    let reserved: u64 = before.trim().parse().unwrap();
    if std::fs::write(sysctl, (reserved + 8).to_string()).is_err() {
        return skip("reserved huge pages: they can be reserved by root only");
    }
    let small = ["--io", "huge-pages=hugetlb", "--io", "queue-depth=8", "--io", "block-size=512K"];
    let output = scratch.run(&[&small[..], &["--io", "engine=pool", "a"]].concat());
    let _ = std::fs::write(sysctl, before);
    output.expect(0, &format!("{}  a\n", hex(&data)), "");
}

/// Registered buffers count against the limit on locked memory, except for root.
#[test]
fn fixed_buffers_beyond_the_limit_on_locked_memory_are_refused() {
    if !installed("setpriv") || !rustix::process::getuid().is_root() {
        return skip("locked memory: it takes root and setpriv to be somebody else");
    }
    let scratch = Scratch::new();
    let data = cold(&scratch);
    // In a directory that other users can reach.
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    copy_command(&folder.path().join("ringsum"));
    std::fs::copy(scratch.join("a"), folder.path().join("a")).unwrap();
    let script = "ulimit -l 64; exec setpriv --reuid=65534 --regid=65534 --clear-groups \
                  --bounding-set=-all --inh-caps=-all ./ringsum $OPTIONS a";
    let as_nobody = |options: &str| {
        let mut shell = shell();
        shell.current_dir(folder.path()).env("OPTIONS", options).args(["-c", script]);
        run(&mut shell, b"")
    };
    let output = as_nobody("--io=fixed-buffers=on");
    assert_eq!((output.code, output.stdout()), (1, ""), "{}", output.stderr);
    assert!(output.stderr.contains("RLIMIT_MEMLOCK"), "{}", output.stderr);
    as_nobody("").expect(0, &format!("{}  a\n", hex(&data)), "");
}

#[test]
fn pseudo_files_are_read_to_their_end_whatever_the_options() {
    // Their reported lengths mean nothing: 4096 bytes, and 0.
    let paths = ["/sys/kernel/mm/transparent_hugepage/enabled", "/proc/version"];
    let ways: [&[&str]; 12] = [
        &[],
        &["--io=workers=1"],
        &["--io=page-cache=buffered"],
        &["--io=page-cache=direct"],
        &["--io=engine=pread"],
        &["--io=engine=io_uring"],
        &["--io=engine=mmap"],
        &["--list-bad-ranges"],
        &["-r"],
        &["-a", "sha256", "-a", "blake3"],
        &["--json"],
        &["--retry-changed=1"],
    ];
    for path in paths {
        let Ok(content) = std::fs::read(path) else {
            skip(&format!("a pseudo file: no {path}"));
            continue;
        };
        let scratch = Scratch::new();
        for way in ways {
            let output = scratch.run(&[way, &[path]].concat());
            assert_eq!((output.code, &*output.stderr), (0, ""), "{path} {way:?}");
            assert!(output.stdout().contains(&hex(&content)), "{path} {way:?}: {output:?}");
        }
        scratch.write("list", format!("{}  {path}\n", hex(&content)));
        scratch.run(&["-c", "list"]).expect(0, &format!("{path}: OK\n"), "");
        let output = scratch.run(&["--bypass-cache", path]);
        assert_eq!((output.code, output.stdout()), (1, ""));
        assert!(output.stderr.contains("a pseudo file"), "{}", output.stderr);
    }
}
