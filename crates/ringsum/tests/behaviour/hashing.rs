//! The table: engines x cache modes x orders x block sizes x depths x workers x lengths, against
//! `blake3::Hasher`. A new engine is a row, not a test.

use std::collections::BTreeSet;
use std::fs;

use ringsum::blockring::{
    CacheMode, Config, Consume, EngineKind, HugePages, IoPriority, Order, Plan, RateLimit, Source,
    Sqpoll, Trace, Uring,
};
use ringsum::{Error, Mode, Options, Tree, TreeError, hash_file, hash_range, hash_source};

use crate::support::{Scratch, content, skip_unless_strict};

type Way = (EngineKind, CacheMode);

/// Every engine that reads, with the cache modes that it has.
fn all_ways() -> Vec<Way> {
    let reads = EngineKind::ALL.into_iter().filter(|engine| *engine != EngineKind::Null);
    let modes = |engine| match engine {
        EngineKind::Mmap => &[CacheMode::Buffered][..],
        _ => &CacheMode::ALL[..],
    };
    reads.flat_map(|engine| modes(engine).iter().map(move |cache| (engine, *cache))).collect()
}

fn config(way: Way, block_bytes: u32, depth: u32, workers: u32) -> Config {
    Config {
        engine: Some(way.0),
        cache: Some(way.1),
        block_bytes: Some(block_bytes),
        depth: Some(depth),
        workers: Some(workers),
        ..Config::default()
    }
}

/// The ways that this kernel and file system have.
fn ways(scratch: &Scratch) -> Vec<Way> {
    #[expect(unsafe_code)]
    // SAFETY: our consumers only hash.
    unsafe { ringsum::blockring::allow_mmap() }.unwrap();
    let source = Source::open(scratch.write("probe", content(10_000))).unwrap();
    let has = |&way: &Way| {
        let plan = Plan::choose(&source, &config(way, 4096, 1, 0), Order::InOrder);
        if let Err(error) = &plan {
            skip_unless_strict(&format!("{} {}: {error}", way.0, way.1));
        }
        plan.is_ok()
    };
    all_ways().into_iter().filter(has).collect()
}

fn lengths(block_bytes: usize) -> BTreeSet<usize> {
    let mut lengths = BTreeSet::from([0, 1, 1023, 1024, 1025]);
    for blocks in [1, 2, 5] {
        let len = blocks * block_bytes;
        lengths.extend([len - 1, len, len + 1]);
    }
    lengths
}

fn in_order(source: &Source, config: &Config) -> Result<blake3::Hash, Error> {
    let mut hasher = blake3::Hasher::new();
    Plan::choose(source, config, Order::InOrder)?.in_order(|block| {
        hasher.update(block.bytes);
        Ok(())
    })?;
    Ok(hasher.finalize())
}

/// In any order and in order, against what it must be.
fn check(case: &str, source: &Source, config: &Config, expected: blake3::Hash) {
    let options = Options { config: config.clone(), ..Options::default() };
    let found = hash_source(source, &options);
    let found = found.unwrap_or_else(|error| panic!("{case}: {error}")).hash();
    assert_eq!(found, expected, "{case}");
    let found = in_order(source, config);
    let found = found.unwrap_or_else(|error| panic!("{case}, in order: {error}"));
    assert_eq!(found, expected, "{case}, in order");
}

#[test]
fn every_way_of_reading_gives_the_same_hash() {
    let scratch = Scratch::new();
    let ways = ways(&scratch);
    let mut runs = 0;
    for block_bytes in [512, 1000, 1024, 4096, 12_288, 65_536, 1 << 20] {
        let mut lengths = lengths(block_bytes as usize);
        if block_bytes == 65_536 {
            lengths.insert(3_333_333);
        }
        for len in lengths {
            let data = content(len);
            let path = scratch.write("data", &data);
            let expected = blake3::hash(&data);
            for &way in &ways {
                if way.1 == CacheMode::Direct && block_bytes % 512 != 0 {
                    continue;
                }
                for (depth, workers) in [(1, 0), (2, 3), (32, 0), (32, 1)] {
                    let config = config(way, block_bytes, depth, workers);
                    let case = format!(
                        "{} {} {len} bytes, blocks {block_bytes}, depth {depth}, workers {workers}",
                        way.0, way.1
                    );
                    let source = Source::open(&path).unwrap();
                    check(&case, &source, &config, expected);
                    runs += 2;
                }
            }
        }
    }
    assert!(runs > 9000 || ways.len() < all_ways().len(), "the table was cut short: {runs}");
}

/// A knob, with its name.
fn knobs() -> Vec<(&'static str, Config)> {
    let uring = |uring| Config { uring, ..Config::default() };
    let sqpoll = |cpu| Some(Sqpoll { idle_ms: 1, cpu });
    vec![
        ("nothing", Config::default()),
        ("spin", Config { spin: true, ..Config::default() }),
        ("batch", Config { consume: Consume::Batch, ..Config::default() }),
        ("in order", Config { in_order: true, ..Config::default() }),
        ("no huge pages", Config { huge_pages: HugePages::Off, ..Config::default() }),
        ("fewer slots", Config { slots: Some(3), ..Config::default() }),
        ("more slots", Config { slots: Some(40), ..Config::default() }),
        ("pool of 1", Config { pool_threads: Some(1), ..Config::default() }),
        ("pool of 9", Config { pool_threads: Some(9), ..Config::default() }),
        ("I/O priority", Config { io_priority: Some(IoPriority::Idle), ..Config::default() }),
        ("a limit", Config { rate_limit: Some(limit()), ..Config::default() }),
        ("stats", Config { stats: true, ..Config::default() }),
        ("trace", Config { trace: Some(Trace::new(std::io::sink())), ..Config::default() }),
        ("drain", uring(Uring { drain: true, ..Uring::default() })),
        ("link", uring(Uring { link: true, ..Uring::default() })),
        ("SQPOLL", uring(Uring { sqpoll: sqpoll(None), ..Uring::default() })),
        ("SQPOLL on 0", uring(Uring { sqpoll: sqpoll(Some(0)), ..Uring::default() })),
        ("fixed buffers", uring(Uring { fixed_buffers: true, ..Uring::default() })),
        ("fixed file", uring(Uring { fixed_file: true, ..Uring::default() })),
        (
            "all of io_uring",
            uring(Uring {
                link: true,
                sqpoll: sqpoll(None),
                fixed_buffers: true,
                fixed_file: true,
                ..Uring::default()
            }),
        ),
    ]
}

/// So fast that no test waits for it.
fn limit() -> RateLimit {
    RateLimit::new(std::num::NonZero::new(1 << 40).expect("not 0"))
}

/// Every engine x cache mode x knob x order x workers x length.
#[test]
fn every_knob_gives_the_same_hash() {
    let scratch = Scratch::new();
    let ways = ways(&scratch);
    let mut runs = 0;
    for len in [1, 4095, 4097, 65_536 * 8, 1_000_003] {
        let data = content(len);
        let path = scratch.write("data", &data);
        let source = Source::open(&path).unwrap();
        let expected = blake3::hash(&data);
        for &way in &ways {
            for (name, knob) in knobs() {
                let foreign = (knob.uring != Uring::default() && way.0 != EngineKind::IoUring)
                    || (knob.pool_threads.is_some() && way.0 != EngineKind::Pool)
                    || (knob.huge_pages != HugePages::Advise && way.0 == EngineKind::Mmap);
                if foreign {
                    continue;
                }
                for workers in [0, 1, 2] {
                    let config = Config {
                        engine: Some(way.0),
                        cache: Some(way.1),
                        block_bytes: Some(4096),
                        depth: Some(8),
                        workers: Some(workers),
                        ..knob.clone()
                    };
                    let case = format!("{} {} {name} {len} bytes {workers} workers", way.0, way.1);
                    check(&case, &source, &config, expected);
                    runs += 2;
                }
            }
        }
    }
    assert!(runs > 6000 || ways.len() < all_ways().len(), "the table was cut short: {runs}");
}

/// The plan that nobody chose, for small and large files, cold and warm.
#[test]
fn the_automatic_plan_gives_the_same_hash() {
    let scratch = Scratch::new();
    let lens = [0, 1, 1024, 1025, 512 << 10, (512 << 10) + 1, (1 << 20) + 7, 9 << 20, 33_333_333];
    for len in lens {
        let data = content(len);
        let path = scratch.write("data", &data);
        for cold in [false, true] {
            if cold {
                let file = fs::File::open(&path).unwrap();
                file.sync_all().unwrap();
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            }
            for threads_max in [0, 1, 2, 7] {
                let mut options = Options::default();
                options.config.threads_max = Some(threads_max);
                let found = hash_file(&path, &options).unwrap().hash();
                assert_eq!(found, blake3::hash(&data), "{len} bytes, cold: {cold}");
            }
        }
    }
}

#[test]
fn modes_and_long_output() {
    let scratch = Scratch::new();
    let key = *b"whats the Elvish word for friend";
    for len in [0, 1, 1024, 5000, 70_000] {
        let data = content(len);
        let path = scratch.write("data", &data);
        let pairs = [
            (Mode::Hash, blake3::Hasher::new()),
            (Mode::Keyed(key), blake3::Hasher::new_keyed(&key)),
            (
                Mode::derive_key("a test of ringsum"),
                blake3::Hasher::new_derive_key("a test of ringsum"),
            ),
        ];
        for (mode, mut hasher) in pairs {
            for block_bytes in [None, Some(1024), Some(3000)] {
                let mut options = Options { mode: mode.clone(), ..Options::default() };
                options.config.block_bytes = block_bytes;
                let mut found = hash_file(&path, &options).unwrap().reader();
                let mut expected = hasher.reset().update(&data).finalize_xof();
                let (mut a, mut b) = ([0; 500], [0; 500]);
                found.set_position(33);
                expected.set_position(33);
                found.fill(&mut a);
                expected.fill(&mut b);
                assert!(a == b, "{len} bytes by {block_bytes:?}");
            }
        }
    }
}

#[test]
fn ranges_hashed_apart_make_the_whole() {
    let scratch = Scratch::new();
    let data = content(300_000);
    let path = scratch.write("data", &data);
    let source = Source::open(&path).unwrap();
    for block_bytes in [None, Some(1024), Some(4096), Some(3000)] {
        for mode in [Mode::Hash, Mode::Keyed([7; 32])] {
            let mut options = Options { mode: mode.clone(), ..Options::default() };
            options.config.block_bytes = block_bytes;
            let mut tree = Tree::new(300_000, &mode);
            // 256 KiB, then 32 KiB, then the rest; the last first.
            for range in [294_912..300_000, 0..262_144, 262_144..294_912] {
                tree.add(hash_range(&source, range, &options).unwrap()).unwrap();
            }
            let expected = hash_source(&source, &options).unwrap().hash();
            assert_eq!(tree.finish().unwrap().hash(), expected, "by {block_bytes:?}");
        }
    }
    let options = Options::default();
    // Starts inside a sector, which direct reads cannot.
    hash_range(&source, 1024..2048, &options).unwrap();
    for (range, whole) in [(0..300_000, true), (1000..2000, false), (0..3000, false), (5..5, false)]
    {
        match hash_range(&source, range.clone(), &options).unwrap_err() {
            Error::Tree(TreeError::Whole) if whole => {}
            Error::Tree(TreeError::NotASubtree { .. }) if !whole => {}
            other => panic!("{range:?}: {other}"),
        }
    }
}

#[test]
fn what_reads_nothing_gives_no_hash() {
    let scratch = Scratch::new();
    let path = scratch.write("data", content(100_000));
    let mut options = Options::default();
    options.config.engine = Some(EngineKind::Null);
    assert!(matches!(hash_file(&path, &options), Err(Error::NothingRead)));
    let source = Source::open(&path).unwrap();
    assert!(matches!(hash_range(&source, 0..1024, &options), Err(Error::NothingRead)));
}

#[test]
fn observers_are_told_every_byte() {
    let scratch = Scratch::new();
    let path = scratch.write("data", content(3_000_001));
    let source = Source::open(&path).unwrap();
    for block_bytes in [None, Some(1000), Some(4096)] {
        let config = Config { block_bytes, ..Config::default() };
        let told = std::sync::atomic::AtomicU64::new(0);
        let observe = |bytes| {
            told.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        };
        let plan = ringsum::plan(&source, &config).unwrap();
        ringsum::hash_planned(&plan, &Mode::Hash, &observe).unwrap();
        assert_eq!(told.into_inner(), 3_000_001);
    }
}
