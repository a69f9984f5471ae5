//! Other digests than BLAKE3: compared with the tools of their names, in every way of reading,
//! alone and combined.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ringsum::blockring::{
    AllowMmap, CacheMode, Config, EngineKind, Order, Plan, RunOptions, Source,
};
use ringsum::{Algorithm, Algorithms, Digests, Options, digest_bytes, digest_planned, plan};

use crate::mounting::{attempt, noise};
use crate::support::{Scratch, content, files_below, installed, run, skip, skip_unless_strict};

/// Lengths around the block sizes of the algorithms and of the reads.
fn lengths() -> BTreeSet<usize> {
    let mut lengths = BTreeSet::from([0, 1, 2, 3, 55, 56, 57, 111, 112, 113, 239, 240, 241]);
    for around in [16, 32, 64, 128, 256, 1024, 4096, 256 << 10, 512 << 10] {
        lengths.extend([around - 1, around, around + 1]);
    }
    lengths.extend([(1 << 20) + 1, 3_333_333]);
    lengths
}

/// The tool that computes this digest, and how to find out whether it is installed.
fn tool(algorithm: Algorithm) -> (&'static str, &'static [&'static str]) {
    match algorithm {
        Algorithm::Blake3 => ("b3sum", &[]),
        Algorithm::Sha256 => ("sha256sum", &[]),
        Algorithm::Sha512 => ("sha512sum", &[]),
        Algorithm::Sha384 => ("sha384sum", &[]),
        Algorithm::Sha224 => ("sha224sum", &[]),
        Algorithm::Sha1 => ("sha1sum", &[]),
        Algorithm::Md5 => ("md5sum", &[]),
        Algorithm::Sha3_256 => ("openssl", &["dgst", "-sha3-256"]),
        Algorithm::Blake2b(_) => ("b2sum", &[]),
        Algorithm::Xxh3 => ("xxhsum", &["-H3"]),
        Algorithm::Xxh128 => ("xxhsum", &["-H128"]),
        Algorithm::Xxh64 => ("xxhsum", &["-H64"]),
        Algorithm::Xxh32 => ("xxhsum", &["-H32"]),
        Algorithm::Crc32c => ("rhash", &["--crc32c"]),
        other => panic!("{other}: which tool?"),
    }
}

/// The digits in each line of a tool's output, plain or tagged.
fn digits_of(lines: &str) -> Vec<String> {
    let digits = |line: &str| match line.rsplit_once("= ") {
        Some((_, digits)) => digits.to_owned(),
        // (xxhsum's prefix for XXH3.)
        None => line.split(' ').next().unwrap_or_default().replace("XXH3_", ""),
    };
    lines.lines().map(digits).collect()
}

/// The digests of files by the installed tool; prints a message and returns `None` if there is
/// none.
fn by_tool(scratch: &Scratch, algorithm: Algorithm, names: &[String]) -> Option<Vec<String>> {
    let (program, options) = tool(algorithm);
    // (openssl has no --version.)
    if !installed(program) && Command::new(program).arg("version").output().is_err() {
        skip(&format!("{algorithm}: {program} is not installed"));
        return None;
    }
    let mut command = Command::new(program);
    let output = run(command.current_dir(scratch.path()).args(options).args(names), b"");
    if output.code != 0 {
        skip(&format!("{algorithm}: {program} does not make it: {}", output.stderr));
        return None;
    }
    Some(digits_of(output.stdout()))
}

/// The digest by the crate, in one call. (Known answers and the tools show that it is right.)
fn digest(algorithm: Algorithm, data: &[u8]) -> String {
    let options = Options { algorithms: algorithm.into(), ..Options::default() };
    digest_bytes(data, &options)[0].to_string()
}

fn digits(digests: &Digests) -> Vec<String> {
    digests.iter().map(ToString::to_string).collect()
}

fn set(list: &[Algorithm]) -> Algorithms {
    let mut set = Algorithms::from(list[0]);
    set.extend(list.iter().copied());
    set
}

/// `-a NAME` for each algorithm.
fn asked(list: &[Algorithm]) -> Vec<&'static str> {
    list.iter().flat_map(|algorithm| ["-a", algorithm.name()]).collect()
}

/// The lines of a file for several algorithms.
fn tagged(list: &[Algorithm], data: &[u8], name: &str) -> String {
    let line =
        |algorithm: &Algorithm| format!("{algorithm} ({name}) = {}\n", digest(*algorithm, data));
    list.iter().map(line).collect()
}

/// Two algorithms that need bytes in order, and BLAKE3.
const THREE: [Algorithm; 3] = [Algorithm::Sha256, Algorithm::Blake3, Algorithm::Xxh3];

#[test]
fn the_same_as_the_tools_of_that_name() {
    let scratch = Scratch::new();
    let mut names = Vec::new();
    for len in lengths() {
        let name = format!("{len:07}");
        scratch.write(&name, content(len));
        names.push(name);
    }
    let files: Vec<_> = names.iter().map(String::as_str).collect();
    for algorithm in Algorithm::ALL {
        let one_go: Vec<_> =
            lengths().into_iter().map(|len| digest(algorithm, &content(len))).collect();
        if let Some(expected) = by_tool(&scratch, algorithm, &names) {
            assert_eq!(one_go, expected, "{algorithm}");
        }
        // All together, and one after another.
        for options in [&[][..], &["--jobs=1"], &["--io=order=in-order"]] {
            let run = scratch.run(&[&["-a", algorithm.name()], options, &files].concat());
            assert_eq!((run.code, &*run.stderr), (0, ""), "{algorithm} {options:?}");
            assert_eq!(digits_of(run.stdout()), one_go, "{algorithm} {options:?}");
            let shown = run.stdout().lines().zip(&names);
            let is_plain = |(line, name): (&str, &String)| line.ends_with(&format!("  {name}"));
            assert!(shown.into_iter().all(is_plain), "{algorithm}: {}", run.stdout());
        }
    }
    for bits in [8, 160, 256, 504] {
        let bytes = (bits / 8).to_string();
        let run = scratch.run(&[&["-a", "blake2b", "-l", &bytes], &files[..]].concat());
        let mut b2sum = Command::new("b2sum");
        b2sum.current_dir(scratch.path()).args(["-l", &bits.to_string()]).args(&files);
        if installed("b2sum") {
            run.expect(0, crate::support::run(&mut b2sum, b"").stdout(), "");
        }
    }
    // All at once, of standard input.
    for (name, len) in names.iter().zip(lengths()) {
        let data = content(len);
        let expected = tagged(&Algorithm::ALL, &data, "-");
        scratch.run_with(&asked(&Algorithm::ALL), &data).expect(0, &expected, "");
        let file = File::open(scratch.join(name)).unwrap();
        let output = scratch.command(&asked(&Algorithm::ALL)).stdin(file).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{len} bytes from a file");
    }
}

type Way = (EngineKind, CacheMode);

fn ways(scratch: &Scratch) -> Vec<Way> {
    let source = Source::open(scratch.write("probe", content(10_000))).unwrap();
    let engines = EngineKind::ALL.into_iter().filter(|engine| *engine != EngineKind::Null);
    let all = engines.flat_map(|engine| CacheMode::ALL.map(|cache| (engine, cache)));
    let has = |&(engine, cache): &Way| {
        if engine == EngineKind::Mmap && cache != CacheMode::Buffered {
            return false;
        }
        let in_order = RunOptions { order: Order::InOrder, ..RunOptions::default() };
        let plan = Plan::choose(&source, &config_of((engine, cache)), &in_order);
        if let Err(error) = &plan {
            skip_unless_strict(&format!("{engine} {cache}: {error}"));
        }
        plan.is_ok()
    };
    all.filter(has).collect()
}

fn config_of((engine, cache): Way) -> Config {
    let config = Config::default().with(|config| config.io.cache = Some(cache));
    #[expect(unsafe_code)]
    // SAFETY: our consumers only hash.
    let allowed = unsafe { AllowMmap::new() };
    config.allow_mmap(allowed).with(|config| config.io.engine = Some(engine))
}

/// The digests by a plan for these algorithms, in their order.
fn digests(case: &str, source: &Source, config: &Config, algorithms: &Algorithms) -> Vec<String> {
    let options = Options { algorithms: *algorithms, config: config.clone(), ..Options::default() };
    let plan = plan(source, &options, &RunOptions::default());
    let plan = plan.unwrap_or_else(|error| panic!("{case}: {error}"));
    let bytes = AtomicU64::new(0);
    let progress = |n| {
        bytes.fetch_add(n, Ordering::Relaxed);
    };
    let found = digest_planned(&plan, source, &options, None, &progress);
    let found = found.unwrap_or_else(|error| panic!("{case}: {error}"));
    let len = source.len().map(|len| len - source.start());
    assert!(len.is_none_or(|len| len == bytes.into_inner()), "{case}: bytes are counted once");
    let order: Vec<_> = found.iter().map(|digest| digest.algorithm()).collect();
    assert_eq!(order, **algorithms, "{case}");
    digits(&found)
}

fn expected(algorithms: &Algorithms, data: &[u8]) -> Vec<String> {
    algorithms.iter().map(|algorithm| digest(*algorithm, data)).collect()
}

#[test]
fn every_way_of_reading_gives_the_same_digests() {
    let scratch = Scratch::new();
    let ways = ways(&scratch);
    let sets = [
        set(&[Algorithm::Md5]),
        set(&THREE),
        set(&[Algorithm::Blake3, Algorithm::Crc32c]),
        set(&[Algorithm::Xxh64, Algorithm::Blake2b(64)]),
    ];
    for block_bytes in [1000_u32, 4096, 65_536, 256 << 10] {
        let block = block_bytes as usize;
        for len in [0, 1, block - 1, block, block + 1, 5 * block - 7] {
            let data = content(len);
            let source = Source::open(scratch.write("data", &data)).unwrap();
            for algorithms in &sets {
                let expected = expected(algorithms, &data);
                for &(engine, cache) in &ways {
                    if cache == CacheMode::Direct && block_bytes == 1000 {
                        continue;
                    }
                    for threads_max in [1, 2, 5] {
                        let case = format!(
                            "{engine} {cache} {algorithms:?} {len} bytes, blocks {block_bytes}, {threads_max} threads"
                        );
                        let config = config_of((engine, cache)).with(|config| {
                            config.io.block_bytes = Some(block_bytes);
                            config.io.threads_max = Some(threads_max);
                        });
                        let found = digests(&case, &source, &config, algorithms);
                        assert_eq!(found, expected, "{case}");
                    }
                }
            }
        }
    }
}

/// Beside others, BLAKE3 has threads that take blocks in any order, if there are processors for
/// them: a plan may have more consumers than algorithms.
#[test]
fn blake3_takes_blocks_in_any_order_beside_others() {
    let scratch = Scratch::new();
    let algorithms = set(&THREE);
    for block_bytes in [1000_u32, 1024, 4096, 65_536] {
        for len in [0, 1, 1000, 65_536, 65_537, 1_000_000] {
            let data = content(len);
            let source = Source::open(scratch.write("data", &data)).unwrap();
            for consumers in [1, 2, 3, 4, 6] {
                let config = Config::default().with(|config| {
                    config.io.block_bytes = Some(block_bytes);
                    config.io.threads_max = Some(9);
                });
                let plan = plan_for(&source, &config, consumers);
                let options = Options { algorithms, ..Options::default() };
                let found = digest_planned(&plan, &source, &options, None, &|_| ()).unwrap();
                let found = digits(&found);
                let case = format!("{len} bytes in blocks of {block_bytes}, {consumers} consumers");
                assert_eq!(found, expected(&algorithms, &data), "{case}");
            }
        }
    }
}

/// A plan in order with more consumer threads than algorithms.
fn plan_for(source: &Source, config: &Config, consumers: u32) -> Plan {
    let run = RunOptions { order: Order::InOrder, consumers, ..RunOptions::default() };
    Plan::choose(source, config, &run).unwrap()
}

/// Blocks are counted from the file position, not from the start of the file.
#[test]
fn what_has_no_length_is_read_from_its_position_for_all() {
    let Ok(data) = std::fs::read("/proc/version") else { return skip("no /proc") };
    let algorithms = set(&THREE);
    for start in [0, 7, data.len()] {
        let mut file = File::open("/proc/version").unwrap();
        file.seek(SeekFrom::Start(start as u64)).unwrap();
        let source = Source::from_file(file, "version").unwrap();
        let config = Config::default().with(|config| config.io.threads_max = Some(9));
        let plan = plan_for(&source, &config, 6);
        assert!(plan.consumers() > 3, "BLAKE3 has several threads");
        let options = Options { algorithms, ..Options::default() };
        let found = digest_planned(&plan, &source, &options, None, &|_| ()).unwrap();
        assert_eq!(digits(&found), expected(&algorithms, &data[start..]), "from {start}");
    }
}

#[test]
fn every_order_of_asking_gives_the_same() {
    let scratch = Scratch::new();
    let data = noise(100_000);
    let source = Source::open(scratch.write("data", &data)).unwrap();
    let config = Config::default().with(|config| {
        config.io.block_bytes = Some(16_384);
        config.io.threads_max = Some(3);
    });
    let four = [Algorithm::Blake3, Algorithm::Sha1, Algorithm::Xxh128, Algorithm::Sha3_256];
    let mut orders: Vec<Vec<Algorithm>> = vec![Vec::new()];
    for _ in 0..four.len() {
        let with = |order: &Vec<Algorithm>, one| [&order[..], &[one]].concat();
        let more = |order: &Vec<Algorithm>| {
            let new = four.into_iter().filter(|one| !order.contains(one));
            new.map(|one| with(order, one)).collect::<Vec<_>>()
        };
        orders = orders.iter().flat_map(more).collect();
    }
    assert_eq!(orders.len(), 24);
    orders.extend((0..14).map(|by| {
        let mut all = Algorithm::ALL.to_vec();
        all.rotate_left(by);
        all
    }));
    for order in orders {
        let algorithms = set(&order);
        let found = digests("orders", &source, &config, &algorithms);
        assert_eq!(found, expected(&algorithms, &data), "{order:?}");
    }
    let twice = ["-a", "md5", "-a", "sha1", "-a", "md5", "data"];
    let lines = tagged(&[Algorithm::Md5, Algorithm::Sha1], &data, "data");
    scratch.run(&twice).expect(0, &lines, "");
    let last = ["-a", "sha1", "-a", "blake3", "data"];
    let lines = tagged(&[Algorithm::Sha1, Algorithm::Blake3], &data, "data");
    scratch.run(&last).expect(0, &lines, "");
}

#[test]
fn digests_of_pipes_whatever_the_pieces() {
    for len in [0, 1, 65_535, 65_536, 65_537, 1_000_000] {
        let data = content(len);
        for piece in [1, 4093, 65_536, 100_003] {
            if piece == 1 && len > 100_000 {
                continue;
            }
            for (threads_max, block_bytes) in
                [(None, None), (Some(1), None), (Some(4), Some(4096)), (Some(6), Some(1000))]
            {
                let (reader, mut writer) = std::io::pipe().unwrap();
                let algorithms = set(&THREE);
                let found = thread::scope(|scope| {
                    scope.spawn(|| {
                        data.chunks(piece).for_each(|piece| writer.write_all(piece).unwrap());
                        drop(writer);
                    });
                    let file = File::from(OwnedFd::from(reader));
                    let source = Source::from_file(file, "-").unwrap();
                    let config = Config::default().with(|config| {
                        (config.io.threads_max, config.io.block_bytes) = (threads_max, block_bytes);
                    });
                    digests("pipe", &source, &config, &algorithms)
                });
                let case = format!("{len} bytes by {piece}, {threads_max:?}, {block_bytes:?}");
                assert_eq!(found, expected(&algorithms, &data), "{case}");
            }
        }
    }
}

#[test]
fn a_file_on_standard_input_counts_from_its_position_on() {
    let scratch = Scratch::new();
    let data = content(1_000_000);
    let path = scratch.write("file", &data);
    for position in [0, 1, 512, 70_000, 999_999, 1_000_000] {
        for options in [
            &[][..],
            &["--num-threads=1"],
            &["--io=engine=io_uring", "--io=page-cache=buffered"],
            &["--io=engine=mmap"],
            &["--io=engine=pool"],
            &["--io=block-size=3000"],
            &["--io=block-size=4K", "--num-threads=9"],
        ] {
            if position >= data.len() && options[..].iter().any(|o| o.contains("engine=")) {
                continue;
            }
            let mut file = File::open(&path).unwrap();
            file.seek(SeekFrom::Start(position as u64)).unwrap();
            let mut command = scratch.command(&[&asked(&THREE), options].concat());
            let output = command.stdin(file).output().unwrap();
            let found = String::from_utf8_lossy(&output.stdout);
            let why = String::from_utf8_lossy(&output.stderr);
            let expected = tagged(&THREE, &data[position..], "-");
            assert_eq!(found, expected, "{position} {options:?}: {why}");
        }
    }
}

#[test]
fn passed_through_and_written_to_files() {
    let scratch = Scratch::new();
    for len in [0, 1, 100_000, 3_000_000] {
        let data = content(len);
        scratch.write("in", &data);
        let lines = tagged(&THREE, &data, "-");
        let asked = asked(&THREE).join(" ");
        for script in [
            "cat in | $R -p ASKED | cat",
            "cat in | $R -p=share ASKED | cat",
            "cat in | $R -p=share --io workers=2 ASKED | cat",
            "$R -p ASKED < in | cat",
            "cat in | $R -p --num-threads 1 --io block-size=1K ASKED > out; cat out",
            "cat in | $R -p=share --tee copy --tee /dev/null ASKED | cat; cmp in copy",
            "cat in | $R -p --tee copy --tee more ASKED | cat; cmp in copy; cmp in more",
        ] {
            let run = scratch.shell(&script.replace("ASKED", &asked));
            assert!(run.stdout == data, "{script}: {} bytes", run.stdout.len());
            assert_eq!((run.code, &run.stderr), (0, &lines), "{script}");
        }
        let script = format!("cat in | $R --tee copy {asked}; cmp in copy");
        scratch.shell(&script).expect(0, &lines, "");
        let script = format!("$R -p --output sum {asked} in > out; cmp in out; cat sum");
        scratch.shell(&script).expect(0, &tagged(&THREE, &data, "in"), "");
    }
}

#[test]
fn a_map_of_errors_gives_digests_of_what_can_be_read_alone() {
    let scratch = Scratch::new();
    for len in [0, 1, 65_537, (3 << 20) + 1] {
        let data = noise(len);
        scratch.write("data", &data);
        for cache in ["buffered", "direct"] {
            let run = scratch.run(
                &[
                    &["--list-bad-ranges", &*format!("--io=page-cache={cache}")],
                    &asked(&THREE)[..],
                    &["data"],
                ]
                .concat(),
            );
            run.expect(0, &tagged(&THREE, &data, "data"), "");
        }
    }
    attempt("a map of errors for other digests", |setup| {
        setup.write("backing", &content(8 << 20));
        let device = setup.attach("backing", "off")?;
        let held = File::open(&device).unwrap();
        let path = setup.scratch.join("backing");
        File::options().write(true).open(path).unwrap().set_len(4 << 20).unwrap();
        rustix::fs::fadvise(&held, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        for list in [&[Algorithm::Sha256][..], &THREE] {
            for options in [&["--list-bad-ranges"][..], &[]] {
                let run = setup.scratch.run(&[options, &asked(list), &[&device]].concat());
                assert_eq!((run.code, run.stdout()), (1, ""), "{options:?}: {}", run.stderr);
                assert!(run.stderr.contains("Input/output error"), "{options:?}: {}", run.stderr);
            }
        }
        Ok(())
    });
}

/// Small and large files, so that both kinds of threads are used.
fn forest() -> Scratch {
    let scratch = Scratch::new();
    for directory in 0..6 {
        scratch.make_dir(format!("t/{directory}"));
        for file in 0..40 {
            let len = [0, 1, 500, 4096, 5000, 65_537, 130_000][file % 7] + directory;
            scratch.write(format!("t/{directory}/{file:02}"), noise(len));
        }
        scratch.write(format!("t/{directory}/large"), noise((directory << 20) + 1_500_001));
    }
    scratch
}

/// Drops files from the page cache.
fn cool(root: &Path) {
    for name in files_below(root).keys() {
        let name = std::str::from_utf8(name).unwrap();
        let file = File::open(root.join(name)).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

#[test]
fn trees_warm_and_cold() {
    let scratch = forest();
    let root = scratch.join("t");
    let files = files_below(&root);
    for list in [&[Algorithm::Sha256][..], &[Algorithm::Blake3, Algorithm::Crc32c]] {
        let line = |(path, data): (&Vec<u8>, &Vec<u8>)| {
            let name = format!("t/{}", std::str::from_utf8(path).unwrap());
            match list {
                [one] => format!("{}  {name}\n", digest(*one, data)),
                _ => tagged(list, data, &name),
            }
        };
        let expected: String = files.iter().map(line).collect();
        let sorted = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        for options in [
            &[][..],
            &["--jobs=1"],
            &["--jobs=40"],
            &["--unordered"],
            &["--num-threads=1"],
            &["--num-threads=7"],
            &["--io=engine=io_uring", "--io=page-cache=direct"],
            &["--io=engine=pool"],
            &["--io=engine=mmap"],
            &["--io=order=in-order"],
            &["--io=block-size=64K", "--io=queue-depth=2"],
        ] {
            for is_cold in [false, true] {
                if is_cold {
                    cool(&root);
                }
                let run = scratch.run(&[&["-r"], options, &asked(list), &["t"]].concat());
                let case = format!("{list:?} {options:?}, cold: {is_cold}");
                assert_eq!((run.code, &*run.stderr), (0, ""), "{case}");
                if options == ["--unordered"] {
                    assert_eq!(sorted(run.stdout()), sorted(&expected), "{case}");
                    assert_eq!(run.stdout.len(), expected.len(), "{case}");
                } else {
                    assert!(run.stdout() == expected, "{case}: {}", run.stdout());
                }
            }
        }
    }
    // A file that is hashed by several threads if it is cached. (It is sparse.)
    let huge = File::create(scratch.join("t/huge")).unwrap();
    huge.set_len((64 << 20) + 1).unwrap();
    let lines = tagged(&THREE, &vec![0; (64 << 20) + 1], "t/huge");
    for threads in ["1", "2", "7"] {
        let args = [&["-r", "--num-threads", threads], &asked(&THREE)[..], &["t"]].concat();
        let run = scratch.run(&args);
        assert_eq!((run.code, &*run.stderr), (0, ""), "{threads}");
        assert!(run.stdout().ends_with(&lines), "{threads}: {}", run.stdout());
        assert_eq!(run.stdout().lines().count(), 3 * (files.len() + 1), "{threads}");
    }
    // A file that cannot be opened has no digests; the others have theirs.
    std::os::unix::fs::symlink("nowhere", scratch.join("t/dangling")).unwrap();
    let run = scratch.run(&["-r", "-a", "md5", "-a", "xxh64", "--follow", "t"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert_eq!(run.stdout().lines().count(), 2 * (files.len() + 1));
}
