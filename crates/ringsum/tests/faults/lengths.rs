//! Files whose `stat` reports a wrong length, read in every way: an error on FUSE, the right hash
//! in a pseudo file system.

use std::fs;

use crate::fuse::{File, Mounted};
use crate::mounting::noise;
use crate::support::{Scratch, hex, skip};
use crate::table::ENGINES;

/// Options that read a file on different paths through the program. `true`: they work for any file.
fn ways() -> Vec<(Vec<String>, bool)> {
    let own = |way: &[&str]| way.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>();
    let mut ways: Vec<_> = [
        &[][..],
        &["-r"],
        &["--io=workers=1"],
        &["--io=workers=2"],
        &["--io=order=in-order"],
        &["-j1"],
        &["--io=page-cache=buffered"],
        &["--list-bad-ranges"],
        &["--index=index"],
        &["-r", "--index=index"],
        &["-r", "--unordered"],
        &["--io=block-size=4K"],
        &["--algorithm=sha256", "--algorithm=blake3"],
        &["--memory=16M"],
        &["--limit-rate=1G"],
    ]
    .map(|way| (own(way), true))
    .into();
    for cache in ["--io=page-cache=direct", "--io=page-cache=dontcache"] {
        ways.push((own(&[cache]), false));
        ways.push((own(&["-r", cache]), false));
    }
    for engine in ENGINES.iter().filter(|engine| **engine != "auto") {
        let works = matches!(*engine, "pread" | "pool" | "stream");
        let engine = format!("--io=engine={engine}");
        ways.push((own(&[&engine]), works));
        ways.push((own(&["-r", &engine]), works));
        ways.push((own(&["--io=workers=1", &engine]), works));
    }
    ways
}

/// The length of the content and the reported one, for files up to 512 KiB and above.
const LENGTHS: [(usize, u64); 4] =
    [(1, 2), (5000, 10_000), (256 << 10, 512 << 10), (300_000, 600_000)];

#[test]
fn a_file_that_is_shorter_than_it_says_has_no_hash() {
    let scratch = Scratch::new();
    let fuse = match Mounted::new(&scratch.make_dir("fuse")) {
        Ok(fuse) => fuse,
        Err(why) => return skip(&format!("files on FUSE: {why}")),
    };
    scratch.write("good", "good");
    let added: Vec<_> = LENGTHS
        .into_iter()
        .map(|(len, claimed)| {
            let content = noise(len);
            fuse.add(File { content, claims: Some(claimed), is_direct: true, ..File::default() })
        })
        .collect();
    for (way, works) in ways() {
        let run = |names: &[&str]| {
            let args: Vec<_> = way.iter().map(|arg| &**arg).chain(names.iter().copied()).collect();
            scratch.run(&args)
        };
        for (added, (len, claimed)) in added.iter().zip(LENGTHS) {
            let name = format!("fuse/{}", added.name());
            // The second time, the hash must not come from the index.
            let is_indexed = way.iter().any(|arg| arg == "--index=index");
            for _ in 0..1 + u32::from(is_indexed) {
                let output = run(&[&name, "good"]);
                let case = format!("{len} bytes as {claimed}, {way:?}: {output:?}");
                assert_eq!(output.code, 1, "{case}");
                assert!(!output.stdout().contains(&name), "{case}");
                assert!(output.stderr.contains(&name), "{case}");
                assert!(!works || output.stdout().contains(&hex(b"good")), "{case}");
                assert!(!works || output.stderr.contains("misreports it"), "{case}");
            }
        }
        if way.iter().any(|arg| arg == "-r") {
            let output = run(&["fuse"]);
            let case = format!("{way:?}: {output:?}");
            assert_eq!((output.code, output.stdout()), (1, ""), "{case}");
            for added in &added {
                assert!(output.stderr.contains(&format!("fuse/{}: ", added.name())), "{case}");
            }
        }
    }
    // One file, copied while it is hashed.
    for added in &added {
        for algorithm in ["blake3", "sha256"] {
            let output =
                scratch.run(&["-a", algorithm, "--tee", "copy", &format!("fuse/{}", added.name())]);
            assert_eq!((output.code, output.stdout()), (1, ""), "{output:?}");
            assert!(output.stderr.contains("misreports it"), "{output:?}");
        }
    }
}

/// The reported length of such a file means nothing: it is 0, or a page.
#[test]
fn files_that_the_kernel_makes_up_are_read_to_their_end() {
    let scratch = Scratch::new();
    for path in ["/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"] {
        let Ok(content) = fs::read(path) else {
            skip(&format!("{path} is not there"));
            continue;
        };
        let expected = format!("{}  {path}\n", hex(&content));
        for (way, works) in ways() {
            let args: Vec<_> = way.iter().map(|arg| &**arg).chain([path]).collect();
            let is_indexed = way.iter().any(|arg| arg == "--index=index");
            for _ in 0..1 + u32::from(is_indexed) {
                let output = scratch.run(&args);
                let case = format!("{path} {way:?}: {output:?}");
                match output.code {
                    0 if way.iter().any(|arg| arg.starts_with("--algorithm")) => {
                        assert!(output.stdout().contains(&hex(&content)), "{case}");
                    }
                    0 => assert_eq!((output.stdout(), &*output.stderr), (&*expected, ""), "{case}"),
                    1 => assert!(!works && output.stderr.contains("cannot be used"), "{case}"),
                    _ => panic!("{case}"),
                }
            }
        }
    }
}
