//! What a consumer sees, and what a run reports, on real files: every engine, both orders, with and
//! without workers; files that change, fail, or are given up.

mod batches;
mod broadcast;
mod copy_or_map;
mod file_queue;
mod stopping;
mod streams;

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use blockring::{
    AllowMmap, Block, BoxError, CacheMode, Change, Config, Consume, EngineKind, Error, ErrorKind,
    Extent, Order, Plan, RunOptions, Source, Wait,
};

const BLOCK_BYTES: u32 = 64 << 10;
const BLOCKS: u64 = 40;
const LEN: u64 = BLOCKS * BLOCK_BYTES as u64 - 100;

/// Content that changes when blocks are swapped: the period is prime to every block size.
fn content(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

/// A file on the disk that the build is on: the system's folder for temporary files may be in memory.
struct Scratch(PathBuf);

impl Scratch {
    fn new(content: &[u8]) -> Scratch {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("reading-{}-{number}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, content).unwrap();
        Scratch(path)
    }

    fn open_to_write(&self) -> File {
        OpenOptions::new().write(true).open(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Every engine that reads, with its cache modes.
fn strategies() -> Vec<(EngineKind, CacheMode)> {
    let mut strategies = vec![(EngineKind::Mmap, CacheMode::Buffered)];
    for engine in EngineKind::ALL {
        if matches!(engine, EngineKind::Mmap | EngineKind::Null) {
            continue;
        }
        strategies.extend(CacheMode::ALL.map(|cache| (engine, cache)));
    }
    let scratch = Scratch::new(&content(LEN));
    let source = Source::open(&scratch.0).unwrap();
    strategies.retain(|&(engine, cache)| {
        match plan(&source, &config(engine, cache, 0), Order::InOrder) {
            Ok(_) => true,
            Err(error) => {
                skip(&format!("{engine} {cache}: {error}"));
                false
            }
        }
    });
    strategies
}

/// Prints what is not tested to the real standard error, which the test harness does not hide. With
/// STRICT=1 that is a failure.
fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIP {why}");
    assert!(std::env::var_os("STRICT").is_none_or(|value| value != "1"), "STRICT: {why}");
}

fn allow_mmap() -> AllowMmap {
    #[expect(unsafe_code)]
    // SAFETY: these consumers only compare and add bytes.
    unsafe {
        AllowMmap::new()
    }
}

fn plan(source: &Source, config: &Config, order: Order) -> Result<Plan, Error> {
    Plan::choose(source, config, &RunOptions { order, ..RunOptions::default() })
}

fn in_order(
    source: &Source,
    consume: impl FnMut(Block<'_>) -> Result<(), BoxError> + Send,
) -> Result<(), Error> {
    plan(source, &Config::default(), Order::InOrder)?.in_order(source, consume)
}

fn config(engine: EngineKind, cache: CacheMode, workers: u32) -> Config {
    Config::default().allow_mmap(allow_mmap()).with(|config| {
        config.io.engine = Some(engine);
        config.io.cache = Some(cache);
        config.io.block_bytes = Some(BLOCK_BYTES);
        config.io.queue_depth = Some(4);
        config.io.workers = Some(workers);
    })
}

/// Runs `test` for every engine, cache mode, order and number of workers, with a function that runs a
/// consumer.
fn for_each_strategy(test: impl Fn(&str, &dyn Fn(&Source, &Callback<'_>) -> Result<(), Error>)) {
    let plain = |&(engine, cache): &(EngineKind, CacheMode)| {
        (format!("{engine} {cache}"), config(engine, cache, 0))
    };
    let mut strategies: Vec<_> = strategies().iter().map(plain).collect();
    strategies.extend(knobs());
    for (name, config) in strategies {
        for order in [Order::InOrder, Order::AnyOrder] {
            for workers in [0, 1, 3] {
                let config = config.clone().with(|config| config.io.workers = Some(workers));
                let name = format!("{name} {order:?} {workers} workers");
                test(&name, &|source, consume| {
                    let plan = self::plan(source, &config, order)?;
                    match order {
                        Order::InOrder => plan.in_order(source, consume),
                        Order::AnyOrder => plan.any_order(source, consume),
                    }
                });
            }
        }
    }
}

/// Options that change what is in flight when, or which thread holds which memory.
fn knobs() -> Vec<(String, Config)> {
    type Change = fn(&mut Config);
    let knobs: [(&str, Change); 7] = [
        ("drain", |config| config.uring.drain = true),
        ("link", |config| config.uring.link = true),
        ("SQPOLL", |config| config.uring.sqpoll = Some(1)),
        ("fixed", |config| {
            (config.uring.fixed_buffers, config.uring.fixed_file) = (true, true);
        }),
        ("batch", |config| config.io.consume = Consume::Batch),
        ("spin", |config| config.io.wait = Wait::Spin),
        ("many slots", |config| config.io.slots = Some(32)),
    ];
    let base = config(EngineKind::IoUring, CacheMode::Direct, 0);
    let knobs = knobs.map(|(name, change)| (name.to_owned(), base.clone().with(change)));
    // Engines that are not available are reported by `strategies`.
    let scratch = Scratch::new(&content(LEN));
    let source = Source::open(&scratch.0).unwrap();
    let is_available = |config: &Config| plan(&source, config, Order::InOrder).is_ok();
    knobs.into_iter().filter(|(_, config)| is_available(config)).collect()
}

type Callback<'a> = dyn Fn(Block<'_>) -> Result<(), BoxError> + Sync + 'a;

#[test]
fn every_block_comes_once_with_its_bytes() {
    let expected = content(LEN);
    let scratch = Scratch::new(&expected);
    for_each_strategy(|name, run| {
        let source = Source::open(&scratch.0).unwrap();
        let seen = Mutex::new(Vec::new());
        run(&source, &|block| {
            let from = block.offset as usize;
            assert_eq!(block.offset, block.index * u64::from(BLOCK_BYTES), "{name}");
            assert!(block.bytes == &expected[from..][..block.bytes.len()], "{name}: bytes");
            seen.lock().unwrap().push((block.index, block.bytes.len()));
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut seen = seen.into_inner().unwrap();
        if name.contains("InOrder") {
            assert!(seen.is_sorted(), "{name}: out of order");
        }
        seen.sort_unstable();
        let lens =
            |i| if i + 1 == BLOCKS { BLOCK_BYTES as usize - 100 } else { BLOCK_BYTES as usize };
        assert!(seen.into_iter().eq((0..BLOCKS).map(|i| (i, lens(i)))), "{name}: not all, once");
    });
}

#[test]
fn a_range_is_read_alone() {
    let scratch = Scratch::new(&content(LEN));
    let source = Source::open(&scratch.0).unwrap();
    let block = u64::from(BLOCK_BYTES);
    for (engine, cache) in strategies() {
        let range = Some(3 * block..5 * block + 10);
        let run = RunOptions { order: Order::InOrder, range, ..RunOptions::default() };
        let plan = Plan::choose(&source, &config(engine, cache, 0), &run).unwrap();
        let mut got = Vec::new();
        plan.in_order(&source, |block| {
            got.push((block.index, block.offset, block.bytes.len(), block.bytes[0]));
            Ok(())
        })
        .unwrap();
        let expected = [(0, 3), (1, 4), (2, 5)].map(|(index, at)| {
            let len = if at == 5 { 10 } else { BLOCK_BYTES as usize };
            (index, at * block, len, (at * block % 251) as u8)
        });
        assert_eq!(got, expected, "{engine} {cache}");
    }
}

#[test]
fn scattered_extents_come_once_each_with_their_bytes() {
    let expected = content(LEN);
    let scratch = Scratch::new(&expected);
    let source = Source::open(&scratch.0).unwrap();
    // Back and forth, twice the same, short, empty, and the last bytes of the file.
    let block = u64::from(BLOCK_BYTES);
    let mut extents: Vec<Extent> = (0..BLOCKS - 1)
        .map(|i| Extent { offset: (i * 17 % (BLOCKS - 1)) * block, len: BLOCK_BYTES })
        .collect();
    extents.extend(
        [(0, 100), (0, 0), (4096, 4096), (LEN / 4096 * 4096, (LEN % 4096) as u32)]
            .map(|(offset, len)| Extent { offset, len }),
    );
    let mut wanted: Vec<_> = extents.iter().filter(|extent| extent.len > 0).copied().collect();
    wanted.sort_by_key(|extent| (extent.offset, extent.len));
    for (engine, cache) in
        strategies().into_iter().filter(|(engine, _)| *engine != EngineKind::Stream)
    {
        for workers in [0, 3] {
            let name = format!("{engine} {cache} {workers} workers");
            let config = config(engine, cache, workers);
            let plan = self::plan(&source, &config, Order::AnyOrder).unwrap();
            let seen = Mutex::new(Vec::new());
            let read = plan.read_extents(&source, &extents, |block| {
                let start = block.offset as usize;
                assert_eq!(block.bytes, &expected[start..start + block.bytes.len()], "{name}");
                let extent = Extent { offset: block.offset, len: block.bytes.len() as u32 };
                assert_eq!(extents[block.index as usize], extent, "{name}");
                seen.lock().unwrap().push(extent);
                Ok(())
            });
            read.unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut seen = seen.into_inner().unwrap();
            seen.sort_by_key(|extent| (extent.offset, extent.len));
            assert_eq!(seen, wanted, "{name}");
        }
    }
}

#[test]
fn invalid_extents_are_refused_before_anything_is_read() {
    let scratch = Scratch::new(&content(LEN));
    let source = Source::open(&scratch.0).unwrap();
    let refused = |config: &Config, order, extent| {
        let plan = self::plan(&source, config, order).unwrap();
        let good = Extent { offset: 0, len: 10 };
        let result = plan.read_extents(&source, &[good, extent], |_| panic!("something was read"));
        result.unwrap_err().to_string()
    };
    let direct = config(EngineKind::IoUring, CacheMode::Direct, 0);
    for (extent, why) in [
        (Extent { offset: LEN - 10, len: 11 }, "past the end"),
        (Extent { offset: u64::MAX, len: 1 }, "past the end"),
        (Extent { offset: 100, len: 10 }, "multiple of the alignment"),
        (Extent { offset: 0, len: BLOCK_BYTES + 1 }, "longer than a block"),
    ] {
        let message = refused(&direct, Order::AnyOrder, extent);
        assert!(message.contains(why), "{extent:?}: {message}");
    }
    let message = refused(&direct, Order::InOrder, Extent { offset: 0, len: 1 });
    assert!(message.contains("blocks in order"), "{message}");
    // A small file is read in one piece, and extents of it all the same.
    let small = Scratch::new(b"0123456789");
    let source = Source::open(&small.0).unwrap();
    let plan = self::plan(&source, &Config::default(), Order::AnyOrder).unwrap();
    let seen = Mutex::new(Vec::new());
    plan.read_extents(
        &source,
        &[Extent { offset: 7, len: 3 }, Extent { offset: 1, len: 1 }],
        |block| {
            seen.lock().unwrap().push((block.offset, block.bytes.to_vec()));
            Ok(())
        },
    )
    .unwrap();
    assert_eq!(seen.into_inner().unwrap(), [(7, b"789".to_vec()), (1, b"1".to_vec())]);
}

#[test]
fn a_file_that_changes_while_it_is_read_is_an_error() {
    type Meddle = fn(&File);
    type Expected = fn(Change) -> bool;
    let cases: [(&str, Meddle, Expected); 3] = [
        (
            "grows",
            |file| file.set_len(LEN + 5000).unwrap(),
            |change| matches!(change, Change::Grew { from: LEN, to } if to == LEN + 5000),
        ),
        (
            "shrinks",
            |file| file.set_len(LEN / 2).unwrap(),
            |change| matches!(change, Change::Shrank { from: LEN, to } if to == LEN / 2),
        ),
        (
            "is rewritten",
            |file| file.write_all_at(b"!", 5).unwrap(),
            |change| matches!(change, Change::Rewritten | Change::StatusChanged),
        ),
    ];
    for (what, meddle, expected) in cases {
        for_each_strategy(|name, run| {
            let scratch = Scratch::new(&content(LEN));
            let source = Source::open(&scratch.0).unwrap();
            let writer = scratch.open_to_write();
            let error = run(&source, &|block| {
                if block.index == 1 {
                    meddle(&writer);
                }
                Ok(())
            })
            .expect_err(name);
            match &error.kind {
                ErrorKind::Changed(change) if expected(*change) => {}
                other => panic!("{name}: {what}: {other}"),
            }
        });
    }
}

/// The worst moment: the block is mapped, populated and delivered, and then its pages are truncated away.
/// The process survives, the bytes read as zeros, and the run fails.
#[test]
fn a_truncation_under_a_mapping_is_survived() {
    for order in [Order::InOrder, Order::AnyOrder] {
        for workers in [0, 1] {
            let scratch = Scratch::new(&content(LEN));
            let source = Source::open(&scratch.0).unwrap();
            let config = config(EngineKind::Mmap, CacheMode::Buffered, workers);
            let plan = self::plan(&source, &config, order).unwrap();
            let sum = AtomicU64::new(0);
            let consume = |block: Block<'_>| {
                if block.index == 2 {
                    scratch.open_to_write().set_len(1000).unwrap();
                    // Touches every page of what is gone.
                    sum.fetch_add(
                        block.bytes.iter().map(|&b| u64::from(b)).sum(),
                        Ordering::Relaxed,
                    );
                }
                Ok(())
            };
            let result = match order {
                Order::InOrder => plan.in_order(&source, consume),
                Order::AnyOrder => plan.any_order(&source, consume),
            };
            match result.expect_err("bytes that are gone").kind {
                ErrorKind::Changed(Change::Shrank { from: LEN, to: 1000 }) => {}
                other => panic!("{order:?}: {other}"),
            }
            // And other files go on.
            let other = Scratch::new(&content(LEN));
            let source = Source::open(&other.0).unwrap();
            self::plan(&source, &config, order).unwrap().in_order(&source, |_| Ok(())).unwrap();
        }
    }
}

#[test]
fn a_consumer_that_fails_ends_the_run_with_its_error() {
    let scratch = Scratch::new(&content(LEN));
    for_each_strategy(|name, run| {
        let source = Source::open(&scratch.0).unwrap();
        let error = run(&source, &|block| match block.index {
            7 => Err("seven is enough".into()),
            _ => Ok(()),
        })
        .expect_err(name);
        match error.kind {
            ErrorKind::Consumer(why) => assert_eq!(why.to_string(), "seven is enough"),
            other => panic!("{name}: {other}"),
        }
    });
}

#[test]
fn a_consumer_that_panics_ends_the_run_with_its_panic() {
    let scratch = Scratch::new(&content(LEN));
    for_each_strategy(|name, run| {
        let source = Source::open(&scratch.0).unwrap();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            run(&source, &|block| {
                // A panic, without the message and backtrace of one.
                if block.index == 3 { resume_unwind(Box::new("three")) } else { Ok(()) }
            })
        }));
        let payload = caught.expect_err(name);
        assert_eq!(payload.downcast_ref(), Some(&"three"), "{name}: another panic");
    });
}

#[test]
fn a_file_that_ends_before_its_length_is_not_read_for_ever() {
    // A sparse file that shrinks between its opening and its first read.
    for_each_strategy(|name, run| {
        let scratch = Scratch::new(&[]);
        scratch.open_to_write().set_len(LEN).unwrap();
        let source = Source::open(&scratch.0).unwrap();
        scratch.open_to_write().set_len(10).unwrap();
        let error = run(&source, &|_| Ok(())).expect_err(name);
        assert!(matches!(error.kind, ErrorKind::Changed(Change::Shrank { .. })), "{name}: {error}");
    });
}

#[test]
fn streams_come_in_order_to_their_end() {
    for len in [0, 1, 1000, 65_536, 65_537, 3_000_000] {
        let expected = content(len);
        let (reader, mut writer) = std::io::pipe().unwrap();
        let sent = expected.clone();
        let sender = std::thread::spawn(move || writer.write_all(&sent).unwrap());
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        let source = Source::from_file(file, "-").unwrap();
        let mut got = Vec::new();
        in_order(&source, |block| {
            assert_eq!(block.offset, got.len() as u64);
            got.extend_from_slice(block.bytes);
            Ok(())
        })
        .unwrap();
        sender.join().unwrap();
        assert!(got == expected, "{len} bytes through a pipe");
    }
}

#[test]
fn a_file_of_a_pseudo_file_system_is_read_to_its_end() {
    let source = Source::open("/proc/self/status").unwrap();
    assert_eq!(source.len(), Some(0));
    let mut text = Vec::new();
    in_order(&source, |block| {
        text.extend_from_slice(block.bytes);
        Ok(())
    })
    .unwrap();
    assert!(text.starts_with(b"Name:"), "{}", String::from_utf8_lossy(&text));
}

#[test]
fn a_file_that_was_begun_is_read_from_there() {
    let scratch = Scratch::new(&content(LEN));
    let mut file = File::open(&scratch.0).unwrap();
    file.seek(SeekFrom::Start(LEN - 300)).unwrap();
    let source = Source::from_file(file, "-").unwrap();
    let mut got = Vec::new();
    in_order(&source, |block| {
        got.extend_from_slice(block.bytes);
        Ok(())
    })
    .unwrap();
    assert_eq!(got, content(LEN)[LEN as usize - 300..]);
}

#[test]
fn a_cold_run_leaves_nothing_in_the_page_cache() {
    let scratch = Scratch::new(&content(16 << 20));
    let file = File::open(&scratch.0).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let source = Source::open(&scratch.0).unwrap();
    let plan = self::plan(&source, &Config::default(), Order::AnyOrder).unwrap();
    let direct = plan.choices().iter().any(|c| c.what == "page-cache" && c.value == "direct");
    if !direct {
        return skip(&format!(
            "a cold run: not cold, or no direct I/O on this file system: {plan}"
        ));
    }
    plan.any_order(&source, |_| Ok(())).unwrap();
    let fincore = std::process::Command::new("fincore")
        .args(["--bytes", "--noheadings", "--output", "PAGES"])
        .arg(&scratch.0)
        .output();
    match fincore {
        Ok(output) if output.status.success() => {
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0", "pages left");
        }
        _ => skip("the number of pages left in the page cache: fincore is not installed"),
    }
}

#[test]
fn a_second_thread_helps_when_the_consumer_is_behind() {
    let expected = content(16 << 20);
    let scratch = Scratch::new(&expected);
    for (engine, cache) in strategies() {
        let config = config(engine, cache, 0).with(|config| {
            (config.io.workers, config.io.threads_max) = (None, Some(3));
        });
        let source = Source::open(&scratch.0).unwrap();
        let seen = Mutex::new(Vec::new());
        let plan = self::plan(&source, &config, Order::AnyOrder).unwrap();
        plan.any_order(&source, |block| {
            // Far slower than any device.
            std::thread::sleep(std::time::Duration::from_millis(1));
            seen.lock().unwrap().push((block.offset, std::thread::current().id()));
            Ok(())
        })
        .unwrap();
        let seen = seen.into_inner().unwrap();
        let offsets: BTreeSet<_> = seen.iter().map(|(offset, _)| *offset).collect();
        let threads: HashSet<_> = seen.iter().map(|(_, thread)| *thread).collect();
        assert_eq!((seen.len(), offsets.len()), (256, 256), "{engine} {cache}: not all, once");
        // One file position is for one thread.
        let expected = if engine == EngineKind::Stream { 1 } else { 3 };
        assert_eq!(threads.len(), expected, "{engine} {cache}");
    }
}

#[test]
fn a_range_that_is_no_range_is_empty() {
    let scratch = Scratch::new(&content(LEN));
    let source = Source::open(&scratch.0).unwrap();
    #[expect(clippy::reversed_empty_ranges)]
    for range in [5..5, LEN..5, LEN + 4096..LEN + 8192, u64::MAX..0] {
        for order in [Order::InOrder, Order::AnyOrder] {
            let run = RunOptions { order, range: Some(range.clone()), ..RunOptions::default() };
            let plan = Plan::choose(&source, &Config::default(), &run).unwrap();
            plan.in_order(&source, |_| panic!("a block of nothing")).unwrap();
            plan.any_order(&source, |_| panic!("a block of nothing")).unwrap();
        }
    }
}

#[test]
fn an_explicit_engine_that_does_not_fit_is_refused() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let pipe = Source::from_file(File::from(std::os::fd::OwnedFd::from(reader)), "-").unwrap();
    let config = Config::default().with(|config| config.io.engine = Some(EngineKind::IoUring));
    let error = plan(&pipe, &config, Order::InOrder).unwrap_err();
    assert!(error.to_string().contains("engine io_uring cannot be used"), "{error}");
    assert!(error.to_string().contains("leave the engine out"), "{error}");
}

/// Concurrent runs over one source, one of them in ranges: each has a file position of its own.
#[test]
fn two_runs_at_once_do_not_meet() {
    let expected = content(LEN);
    let scratch = Scratch::new(&expected);
    let source = Source::open(&scratch.0).unwrap();
    for (engine, cache) in strategies() {
        let config = config(engine, cache, 0);
        let plan = self::plan(&source, &config, Order::InOrder).unwrap();
        let check = |block: Block<'_>| {
            std::thread::sleep(std::time::Duration::from_micros(100));
            let from = block.offset as usize;
            let is_right = block.bytes == &expected[from..][..block.bytes.len()];
            if is_right { Ok(()) } else { Err("other bytes".into()) }
        };
        std::thread::scope(|scope| {
            let jumps = scope.spawn(|| {
                (0..20).try_for_each(|i| {
                    let range = Some((20 - i) * 65_536..(21 - i) * 65_536);
                    let run = RunOptions { order: Order::InOrder, range, ..RunOptions::default() };
                    Plan::choose(&source, &config, &run).unwrap().in_order(&source, check)
                })
            });
            // And two of one plan.
            let twin = scope.spawn(|| plan.in_order(&source, check));
            plan.in_order(&source, check)
                .unwrap_or_else(|error| panic!("{engine} {cache}: {error}"));
            twin.join().unwrap().unwrap_or_else(|error| panic!("{engine} {cache}: {error}"));
            jumps.join().unwrap().unwrap_or_else(|error| panic!("{engine} {cache}: {error}"));
        });
    }
}

/// With a limit, blocks come one after another in their time, not all at its end.
#[test]
fn a_limit_spreads_reads_evenly() {
    let scratch = Scratch::new(&content(10 << 16));
    let limit = std::num::NonZero::new(1 << 20).unwrap();
    for (engine, cache) in strategies() {
        let config = config(engine, cache, 0)
            .with(|config| config.io.rate_limit = Some(blockring::RateLimit::new(limit)));
        let source = Source::open(&scratch.0).unwrap();
        let start = std::time::Instant::now();
        let mut times = Vec::new();
        plan(&source, &config, Order::InOrder)
            .unwrap()
            .in_order(&source, |_| {
                times.push(start.elapsed().as_secs_f64());
                Ok(())
            })
            .unwrap();
        // A block is a sixteenth of a second. No block is early; how late it may be depends on the
        // machine, but the first does not wait for the last.
        let is_early = |(i, time): (usize, &f64)| *time < i as f64 / 16.0 - 0.06;
        assert!(!times.iter().enumerate().any(is_early), "{engine} {cache}: {times:?}");
        assert!(times[9] - times[0] > 0.3, "{engine} {cache}: in a burst: {times:?}");
    }
}

/// With the consumer on this thread and on another.
#[test]
fn a_slow_consumer_is_waited_for() {
    let scratch = Scratch::new(&content(LEN));
    let source = Source::open(&scratch.0).unwrap();
    for workers in [0, 1] {
        let config = config(EngineKind::Pool, CacheMode::Buffered, workers)
            .with(|config| config.observe.stats = true);
        let plan = self::plan(&source, &config, Order::InOrder).unwrap();
        plan.in_order(&source, |_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            Ok(())
        })
        .unwrap();
        let stats = plan.stats().unwrap();
        assert!(stats.consumer_wait > 2 * stats.device_wait, "{workers}: {stats:?}");
        assert_eq!(stats.threads, 1);
        assert!(
            stats.consuming > stats.wall / 2 && stats.device_wait < stats.wall / 4,
            "{stats:?}"
        );
    }
}
