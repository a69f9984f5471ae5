//! 10,000 files, and nothing is left of any of them: no descriptor, no thread, no memory.
//!
//! A binary of its own, since it counts what the whole process has.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use blockring::{Block, CacheMode, Config, EngineKind, Order, Plan, Source, Taker, Uring};

const FILES: u32 = 10_000;
/// Three blocks, the last of them short.
const LEN: usize = 10_000;

/// What the process has: descriptors, threads, mappings, and memory of its own in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    threads: usize,
    mappings: usize,
    kib: usize,
}

impl Held {
    fn now() -> Held {
        let entries = |folder| fs::read_dir(folder).unwrap().count();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        Held {
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            mappings: fs::read_to_string("/proc/self/maps").unwrap().lines().count(),
            kib: kib.trim().trim_end_matches(" kB").parse().unwrap(),
        }
    }
}

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn read(path: &Path, config: &Config, order: Order) {
    let source = Source::open(path).unwrap();
    let plan = Plan::choose(&source, config, order).unwrap();
    let consumed = match order {
        Order::InOrder => plan.in_order(|_| Ok(())),
        Order::AnyOrder => plan.any_order(|_| Ok(())),
    };
    consumed.unwrap();
}

/// For three consumers, on threads of theirs; of which one fails, if `fails`.
fn read_to_each(path: &Path, config: &Config, fails: bool) {
    let source = Source::open(path).unwrap();
    let config = Config { workers: None, consumers: 4, threads_max: Some(5), ..config.clone() };
    let plan = Plan::choose(&source, &config, Order::InOrder).unwrap();
    let mut takes = |_: Block<'_>| Ok(());
    let mut may_fail = |block: Block<'_>| match fails && block.index == 1 {
        true => Err("enough".into()),
        false => Ok(()),
    };
    let shared = |_: Block<'_>| Ok(());
    let mut takers =
        [Taker::InOrder(&mut takes), Taker::InOrder(&mut may_fail), Taker::AnyOrder(2, &shared)];
    assert_eq!(plan.to_each(&mut takers).is_err(), fails);
}

#[test]
fn nothing_is_left_of_10_000_files() {
    #[expect(unsafe_code)]
    // SAFETY: the consumer looks at no byte.
    unsafe { blockring::allow_mmap() }.unwrap();
    let path =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("leaks-{}", std::process::id()));
    let scratch = Scratch(path);
    fs::write(&scratch.0, vec![7; LEN]).unwrap();
    let fixed = Uring { fixed_buffers: true, fixed_file: true, ..Uring::default() };
    let mut ways = vec![(EngineKind::IoUring, fixed)];
    ways.extend(EngineKind::ALL.map(|engine| (engine, Uring::default())));
    for (engine, uring) in ways {
        let config = |workers| Config {
            engine: Some(engine),
            cache: Some(CacheMode::Buffered),
            block_bytes: Some(4096),
            uring,
            pool_threads: (engine == EngineKind::Pool).then_some(2),
            workers: Some(workers),
            stats: true,
            ..Config::default()
        };
        let source = Source::open(&scratch.0).unwrap();
        if let Err(error) = Plan::choose(&source, &config(0), Order::InOrder) {
            let _ = writeln!(std::io::stderr(), "SKIP leaks of {engine}: {error}");
            assert!(std::env::var_os("STRICT").is_none_or(|value| value != "1"), "{error}");
            continue;
        }
        drop(source);
        // One file in a hundred on two threads or more, which take longer to start than all the rest.
        let pass = |files: u32| {
            for file in 0..files {
                if file % 200 == 150 {
                    read_to_each(&scratch.0, &config(0), file % 400 == 150);
                    continue;
                }
                let workers = u32::from(file % 100 == 0);
                let order = if file % 200 == 0 { Order::InOrder } else { Order::AnyOrder };
                read(&scratch.0, &config(workers), order);
            }
        };
        // What is kept for the next is kept once.
        pass(FILES / 10);
        let before = Held::now();
        pass(FILES - FILES / 10);
        let after = Held::now();
        let same = |held: Held| (held.descriptors, held.threads);
        assert_eq!(same(after), same(before), "{engine}: {before:?} {after:?}");
        // The allocator keeps some for itself, but not for each file.
        assert!(after.mappings <= before.mappings + 8, "{engine}: {before:?} {after:?}");
        assert!(after.kib <= before.kib + 1024, "{engine}: {before:?} {after:?}");
    }
}
