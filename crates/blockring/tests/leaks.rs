//! Thousands of files, and nothing is left of any of them: no descriptor, no thread, no memory.
//!
//! A binary of its own, since it counts the resources of the whole process.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use blockring::{
    AllowMmap, Block, CacheMode, Config, Consumer, EngineKind, Order, Plan, RunOptions, Source,
};

const FILES: u32 = 4000;
/// Three blocks, the last of them short.
const LEN: usize = 10_000;

/// Descriptors, threads, mappings and private memory (in KiB) of the process.
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
    let run = RunOptions { order, ..RunOptions::default() };
    let plan = Plan::choose(&source, config, &run).unwrap();
    let consumed = match order {
        Order::InOrder => plan.in_order(&source, |_| Ok(())),
        Order::AnyOrder => plan.any_order(&source, |_| Ok(())),
    };
    consumed.unwrap();
}

/// For three consumers on threads of their own, of which one fails if `fails`.
fn broadcast(path: &Path, config: &Config, fails: bool) {
    let source = Source::open(path).unwrap();
    let config = config.clone().with(|config| {
        config.io.workers = None;
        config.io.threads_max = Some(5);
    });
    let run = RunOptions { order: Order::InOrder, consumers: 4, ..RunOptions::default() };
    let plan = Plan::choose(&source, &config, &run).unwrap();
    let mut takes = |_: Block<'_>| Ok(());
    let mut may_fail = |block: Block<'_>| match fails && block.index == 1 {
        true => Err("enough".into()),
        false => Ok(()),
    };
    let shared = |_: Block<'_>| Ok(());
    let mut consumers = [
        Consumer::InOrder(&mut takes),
        Consumer::InOrder(&mut may_fail),
        Consumer::AnyOrder(2, &shared),
    ];
    assert_eq!(plan.broadcast(&source, &mut consumers).is_err(), fails);
}

#[test]
fn nothing_is_left_of_4000_files() {
    #[expect(unsafe_code)]
    // SAFETY: the consumer looks at no byte.
    let allowed = unsafe { AllowMmap::new() };
    let path =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("leaks-{}", std::process::id()));
    let scratch = Scratch(path);
    fs::write(&scratch.0, vec![7; LEN]).unwrap();
    let mut strategies = vec![(EngineKind::IoUring, true)];
    strategies.extend(EngineKind::ALL.map(|engine| (engine, false)));
    for (engine, is_fixed) in strategies {
        let config = |workers| {
            Config::default().allow_mmap(allowed).with(|config| {
                config.io.engine = Some(engine);
                config.io.cache = Some(CacheMode::Buffered);
                config.io.block_bytes = Some(4096);
                config.io.pool_threads = (engine == EngineKind::Pool).then_some(2);
                config.io.workers = Some(workers);
                config.uring.fixed_buffers = is_fixed;
                config.uring.fixed_file = is_fixed;
                config.observe.stats = true;
            })
        };
        let source = Source::open(&scratch.0).unwrap();
        if let Err(error) = Plan::choose(&source, &config(0), &RunOptions::default()) {
            let _ = writeln!(std::io::stderr(), "SKIP leaks of {engine}: {error}");
            assert!(std::env::var_os("STRICT").is_none_or(|value| value != "1"), "{error}");
            continue;
        }
        drop(source);
        // One file in a hundred on two threads or more, which take longer to start than all others.
        let pass = |files: u32| {
            for file in 0..files {
                if file % 200 == 150 {
                    broadcast(&scratch.0, &config(0), file % 400 == 150);
                    continue;
                }
                let workers = u32::from(file % 100 == 0);
                let order = if file % 200 == 0 { Order::InOrder } else { Order::AnyOrder };
                read(&scratch.0, &config(workers), order);
            }
        };
        // Resources kept for the next file are kept once.
        pass(FILES / 10);
        let before = Held::now();
        pass(FILES - FILES / 10);
        let after = Held::now();
        let same = |held: Held| (held.descriptors, held.threads);
        assert_eq!(same(after), same(before), "{engine}: {before:?} {after:?}");
        // The allocator may keep some memory, but not for each file.
        assert!(after.mappings <= before.mappings + 8, "{engine}: {before:?} {after:?}");
        assert!(after.kib <= before.kib + 1024, "{engine}: {before:?} {after:?}");
    }
}
