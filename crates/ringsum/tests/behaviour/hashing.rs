//! The table: engines x cache modes x orders x block sizes x depths x workers x lengths, against
//! `blake3::Hasher`. A new engine is a row, not a test.

use std::collections::BTreeSet;
use std::fs;

use ringsum::blockring::{
    AllowMmap, CacheMode, Config, Consume, EngineKind, HugePages, IoPriority, Order, Plan,
    RateLimit, RunOptions, Source, Trace, Wait,
};
use ringsum::{Error, Mode, Options, Tree, TreeError, digest_file, digest_source, hash_range};

use crate::support::{Scratch, content, skip_unless_strict};

type Way = (EngineKind, CacheMode);

/// Every engine that reads, with its cache modes.
fn all_ways() -> Vec<Way> {
    let reads = EngineKind::ALL.into_iter().filter(|engine| *engine != EngineKind::Null);
    let modes = |engine| match engine {
        EngineKind::Mmap => &[CacheMode::Buffered][..],
        _ => &CacheMode::ALL[..],
    };
    reads.flat_map(|engine| modes(engine).iter().map(move |cache| (engine, *cache))).collect()
}

fn config(way: Way, block_bytes: u32, depth: u32, workers: u32) -> Config {
    with_way(&Config::default(), way).with(|config| {
        config.io.block_bytes = Some(block_bytes);
        config.io.queue_depth = Some(depth);
        config.io.workers = Some(workers);
    })
}

/// A configuration with an engine and a cache mode.
fn with_way(config: &Config, (engine, cache): Way) -> Config {
    let config = config.clone().with(|config| config.io.cache = Some(cache));
    #[expect(unsafe_code)]
    // SAFETY: our consumers only hash.
    let allowed = unsafe { AllowMmap::new() };
    config.allow_mmap(allowed).with(|config| config.io.engine = Some(engine))
}

/// The kind of a run.
fn order(order: Order) -> RunOptions<'static> {
    RunOptions { order, ..RunOptions::default() }
}

/// The engines and cache modes that this kernel and file system support.
fn ways(scratch: &Scratch) -> Vec<Way> {
    let source = Source::open(scratch.write("probe", content(10_000))).unwrap();
    let has = |&way: &Way| {
        let plan = Plan::choose(&source, &config(way, 4096, 1, 0), &order(Order::InOrder));
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
    Plan::choose(source, config, &order(Order::InOrder))?.in_order(source, |block| {
        hasher.update(block.bytes);
        Ok(())
    })?;
    Ok(hasher.finalize())
}

/// Hashes in any order and in order, and compares.
fn check(case: &str, source: &Source, config: &Config, expected: blake3::Hash) {
    let options = Options { config: config.clone(), ..Options::default() };
    let found = digest_source(source, &options);
    let found = found.unwrap_or_else(|error| panic!("{case}: {error}")).hash();
    assert_eq!(found, Some(expected), "{case}");
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

/// An option, with its name.
fn knobs() -> Vec<(&'static str, Config)> {
    let all: [(_, fn(&mut Config)); 19] = [
        ("nothing", |_| ()),
        ("spin", |config| config.io.wait = Wait::Spin),
        ("batch", |config| config.io.consume = Consume::Batch),
        ("in order", |config| config.io.in_order = true),
        ("no huge pages", |config| config.memory.huge_pages = HugePages::Off),
        ("fewer slots", |config| config.io.slots = Some(3)),
        ("more slots", |config| config.io.slots = Some(40)),
        ("pool of 1", |config| config.io.pool_threads = Some(1)),
        ("pool of 9", |config| config.io.pool_threads = Some(9)),
        ("I/O priority", |config| config.io.priority = Some(IoPriority::Idle)),
        ("a rate limit", |config| config.io.rate_limit = Some(limit())),
        ("stats", |config| config.observe.stats = true),
        ("drain", |config| config.uring.drain = true),
        ("link", |config| config.uring.link = true),
        ("SQPOLL", |config| config.uring.sqpoll = Some(1)),
        ("SQPOLL on 0", |config| {
            (config.uring.sqpoll, config.uring.sqpoll_cpu) = (Some(1), Some(0));
        }),
        ("fixed buffers", |config| config.uring.fixed_buffers = true),
        ("fixed file", |config| config.uring.fixed_file = true),
        ("all of io_uring", |config| {
            config.uring.link = true;
            config.uring.sqpoll = Some(1);
            config.uring.fixed_buffers = true;
            config.uring.fixed_file = true;
        }),
    ];
    all.map(|(name, change)| (name, Config::default().with(change))).into()
}

/// A rate limit that delays no test.
fn limit() -> RateLimit {
    RateLimit::new(std::num::NonZero::new(1 << 40).expect("not 0"))
}

/// Every engine x cache mode x knob x order x workers x length.
#[test]
fn every_knob_gives_the_same_hash() {
    let scratch = Scratch::new();
    let ways = ways(&scratch);
    let mut runs = 0;
    for len in [1, 4097, 65_536, 300_003] {
        let data = content(len);
        let path = scratch.write("data", &data);
        let source = Source::open(&path).unwrap();
        let expected = blake3::hash(&data);
        for &way in &ways {
            for (name, knob) in knobs() {
                let foreign = (knob.uring != Config::default().uring
                    && way.0 != EngineKind::IoUring)
                    || (knob.io.pool_threads.is_some() && way.0 != EngineKind::Pool)
                    || (knob.memory.huge_pages != HugePages::Advise && way.0 == EngineKind::Mmap);
                if foreign {
                    continue;
                }
                for workers in [0, 1, 2] {
                    let config = with_way(&knob, way).with(|config| {
                        config.io.block_bytes = Some(4096);
                        config.io.queue_depth = Some(8);
                        config.io.workers = Some(workers);
                    });
                    let case = format!("{} {} {name} {len} bytes {workers} workers", way.0, way.1);
                    check(&case, &source, &config, expected);
                    runs += 2;
                }
            }
        }
    }
    assert!(runs > 4400 || ways.len() < all_ways().len(), "the table was cut short: {runs}");
}

/// A traced run.
#[test]
fn a_trace_does_not_change_the_hash() {
    let scratch = Scratch::new();
    let data = content(1_000_003);
    let path = scratch.write("data", &data);
    for way in ways(&scratch) {
        let source = Source::open(&path).unwrap();
        let options = Options { config: config(way, 4096, 8, 1), ..Options::default() };
        let trace = Trace::new(std::io::sink());
        let run = RunOptions { trace: Some(&trace), ..RunOptions::default() };
        let plan = ringsum::plan(&source, &options, &run).unwrap();
        let found = ringsum::digest_planned(&plan, &source, &options, None, &|_| ()).unwrap();
        assert_eq!(found.hash(), Some(blake3::hash(&data)), "{way:?}");
        trace.finish().unwrap();
    }
}

/// The automatic plan, for small and large files, cold and warm.
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
                options.config.io.threads_max = Some(threads_max);
                let found = digest_file(&path, &options).unwrap().hash();
                assert_eq!(found, Some(blake3::hash(&data)), "{len} bytes, cold: {cold}");
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
                options.config.io.block_bytes = block_bytes;
                let found = digest_file(&path, &options).unwrap()[0].output(33, 500).unwrap();
                let mut output = hasher.reset().update(&data).finalize_xof();
                let mut expected = [0; 500];
                output.set_position(33);
                output.fill(&mut expected);
                assert!(found == expected, "{len} bytes by {block_bytes:?}");
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
            options.config.io.block_bytes = block_bytes;
            let mut tree = Tree::new(300_000, &mode);
            // 256 KiB, then 32 KiB, then the rest, from the end to the start.
            for range in [294_912..300_000, 0..262_144, 262_144..294_912] {
                tree.add(hash_range(&source, range, &options).unwrap()).unwrap();
            }
            let expected = digest_source(&source, &options).unwrap().hash();
            assert_eq!(tree.finalize().unwrap().hash(), expected, "by {block_bytes:?}");
        }
    }
    let options = Options::default();
    // Starts in the middle of a sector, where direct reads cannot.
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
    options.config.io.engine = Some(EngineKind::Null);
    assert!(matches!(digest_file(&path, &options), Err(Error::NothingRead)));
    let source = Source::open(&path).unwrap();
    assert!(matches!(hash_range(&source, 0..1024, &options), Err(Error::NothingRead)));
}

#[test]
fn progress_counts_every_byte() {
    let scratch = Scratch::new();
    let path = scratch.write("data", content(3_000_001));
    let source = Source::open(&path).unwrap();
    for block_bytes in [None, Some(1000), Some(4096)] {
        let mut options = Options::default();
        options.config.io.block_bytes = block_bytes;
        let hashed = std::sync::atomic::AtomicU64::new(0);
        let progress = |bytes| {
            hashed.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        };
        let plan = ringsum::plan(&source, &options, &RunOptions::default()).unwrap();
        ringsum::digest_planned(&plan, &source, &options, None, &progress).unwrap();
        assert_eq!(hashed.into_inner(), 3_000_001);
    }
}
