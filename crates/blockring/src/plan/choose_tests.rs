//! Every row of the table, with made-up facts: also for devices that are not in this machine.

#[path = "tuned_tests.rs"]
mod tuned;

use std::time::Duration;

use super::*;
use crate::config::SLAB_BYTES_MAX;
use crate::config::validate::ConfigError;

const GIB: u64 = 1 << 30;

fn facts() -> Facts {
    Facts {
        len: GIB,
        kind: SourceKind::File,
        file_system: "ext4",
        storage: Storage::Local,
        resident: Some(0.0),
        direct: Ok(512),
        rotational: Some(false),
        seek: None,
        dontcache: Ok(()),
        bypass: Ok(()),
        poll_queues: Ok(()),
    }
}

fn system() -> System<'static> {
    System {
        io_uring: &|_| Ok(()),
        libaio: &|| Ok(()),
        tuning: &|| None,
        searches_depth: false,
        cores: 8,
    }
}

fn any_order(facts: Facts, config: Config) -> RingPlan {
    decide(&facts, &config, (Order::AnyOrder, 0), &system()).expect("a plan").0
}

fn reason(choices: &[Choice], what: &str) -> String {
    choices.iter().find(|choice| choice.what == what).expect(what).why.clone()
}

#[test]
fn each_row_of_the_table() {
    use CacheMode::*;
    use EngineKind::*;
    let seek = |ms| Some(Duration::from_millis(ms));
    let no = || Err("not offered".to_owned());
    let cases = [
        ("cold on an SSD", facts(), IoUring, Direct, Start::WhenBehind, 7),
        ("resident", Facts { resident: Some(1.0), ..facts() }, Pread, Buffered, Start::AtOnce, 7),
        ("mostly", Facts { resident: Some(0.8), ..facts() }, Pread, Buffered, Start::AtOnce, 7),
        ("hardly", Facts { resident: Some(0.3), ..facts() }, IoUring, Direct, Start::WhenBehind, 7),
        ("unknown", Facts { resident: None, ..facts() }, IoUring, Direct, Start::WhenBehind, 7),
        (
            "no direct I/O",
            Facts { direct: no(), ..facts() },
            IoUring,
            Dontcache,
            Start::WhenBehind,
            7,
        ),
        (
            "neither",
            Facts { direct: no(), dontcache: no().map(|_: u32| ()), ..facts() },
            IoUring,
            Buffered,
            Start::WhenBehind,
            7,
        ),
        (
            "no direct I/O, but resident",
            Facts { direct: no(), resident: Some(1.0), ..facts() },
            Pread,
            Buffered,
            Start::AtOnce,
            7,
        ),
        (
            "a rotational disk",
            Facts { rotational: Some(true), seek: seek(8), ..facts() },
            IoUring,
            Direct,
            Start::AtOnce,
            0,
        ),
        (
            "a rotational disk, and a resident file",
            Facts { rotational: Some(true), seek: seek(8), resident: Some(1.0), ..facts() },
            Pread,
            Buffered,
            Start::AtOnce,
            7,
        ),
        (
            "an SSD reported as rotational",
            Facts { rotational: Some(true), seek: seek(0), ..facts() },
            IoUring,
            Direct,
            Start::WhenBehind,
            7,
        ),
        (
            "a rotational disk that could not be measured",
            Facts { rotational: Some(true), direct: no(), ..facts() },
            IoUring,
            Dontcache,
            Start::AtOnce,
            0,
        ),
        (
            "tmpfs",
            Facts { storage: Storage::Memory, file_system: "tmpfs", direct: no(), ..facts() },
            Pread,
            Buffered,
            Start::AtOnce,
            7,
        ),
        (
            "NFS",
            Facts { storage: Storage::Network, ..facts() },
            Pool,
            Buffered,
            Start::WhenBehind,
            7,
        ),
        ("FUSE", Facts { storage: Storage::Fuse, ..facts() }, Pool, Buffered, Start::WhenBehind, 7),
        (
            "an overlay on an unknown layer",
            Facts { storage: Storage::Unknown, file_system: "overlayfs", ..facts() },
            Pool,
            Buffered,
            Start::WhenBehind,
            7,
        ),
        (
            "NFS, but resident",
            Facts { storage: Storage::Network, resident: Some(1.0), ..facts() },
            Pread,
            Buffered,
            Start::AtOnce,
            7,
        ),
        (
            "a block device",
            Facts { kind: SourceKind::BlockDevice, ..facts() },
            IoUring,
            Direct,
            Start::WhenBehind,
            7,
        ),
    ];
    for (what, facts, engine, cache, start, workers) in cases {
        let plan = any_order(facts, Config::default());
        let found = (plan.engine, plan.cache, plan.start, plan.workers);
        assert_eq!(found, (engine, cache, start, workers), "{what}");
        assert_eq!(plan.align, if cache == Direct { 512 } else { 1 }, "{what}");
    }
}

#[test]
fn without_io_uring_the_next_engine_reads_and_says_why() {
    let no_uring = System { io_uring: &|_| Err("seccomp".to_owned()), ..system() };
    let neither = System { libaio: &|| Err("no CONFIG_AIO".to_owned()), ..no_uring };
    let buffered = Facts { direct: Err("no".to_owned()), ..facts() };
    let cases = [
        (&no_uring, facts(), EngineKind::Libaio, "no io_uring: seccomp"),
        (&neither, facts(), EngineKind::Pool, "no io_uring: seccomp; no libaio: no CONFIG_AIO"),
        // Through the page cache libaio is not asynchronous.
        (&no_uring, buffered, EngineKind::Pool, "no io_uring: seccomp"),
    ];
    for (system, facts, engine, why) in cases {
        let (plan, choices) =
            decide(&facts, &Config::default(), (Order::AnyOrder, 0), system).expect("a plan");
        assert_eq!((plan.engine, &*reason(&choices, "engine")), (engine, why));
    }
    // An explicit engine is an error with the same reason.
    for (engine, system, expected) in [
        (EngineKind::IoUring, &no_uring, "seccomp"),
        (EngineKind::Libaio, &neither, "no CONFIG_AIO"),
    ] {
        let config = Config::default().with(|config| config.io.engine = Some(engine));
        match decide(&facts(), &config, (Order::AnyOrder, 0), system) {
            Err(ErrorKind::Engine { engine: refused, why }) => {
                assert_eq!((refused, &*why), (engine, expected));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_engine_that_is_not_available_is_replaced_by_the_next_best() {
    let mut engines = vec![EngineKind::IoUring];
    while let Some(next) = next_best(engines[engines.len() - 1], CacheMode::Direct) {
        engines.push(next);
    }
    use EngineKind::*;
    assert_eq!(engines, [IoUring, Libaio, Pool, Pread]);
    assert_eq!(next_best(IoUring, CacheMode::Buffered), Some(Pool));
}

#[test]
fn knobs_choose_their_engine_and_are_noted() {
    let uring = Uring { fixed_buffers: true, ..Uring::default() };
    let config = Config::default().with(|config| {
        config.uring = uring;
        config.io.wait = Wait::Spin;
    });
    let resident = Facts { resident: Some(1.0), ..facts() };
    let (plan, choices) =
        decide(&resident, &config, (Order::AnyOrder, 0), &system()).expect("a plan");
    assert_eq!((plan.engine, plan.uring, plan.wait), (EngineKind::IoUring, uring, Wait::Spin));
    let knobs = choices.iter().find(|choice| choice.what == "knobs").expect("knobs");
    assert_eq!(knobs.value, "fixed buffers, spin");
    let config = Config::default().with(|config| config.io.pool_threads = Some(3));
    let plan = any_order(facts(), config);
    assert_eq!((plan.engine, plan.pool_threads), (EngineKind::Pool, 3));
    let config = Config::default().with(|config| config.io.in_order = true);
    assert_eq!(any_order(facts(), config).order, Order::InOrder);
    // One file position is read in order, on one thread.
    let config = Config::default().with(|config| config.io.engine = Some(EngineKind::Stream));
    let plan = any_order(facts(), config);
    assert_eq!((plan.order, plan.workers, plan.depth), (Order::InOrder, 0, 1));
}

#[test]
fn polling_and_bypassing_the_cache_are_refused_with_their_reasons() {
    let uring = Uring { iopoll: true, ..Uring::default() };
    let config = Config::default().with(|config| config.uring = uring);
    assert_eq!(any_order(facts(), config.clone()).cache, CacheMode::Direct);
    let none = Facts { poll_queues: Err("no poll queues".to_owned()), ..facts() };
    match decide(&none, &config, (Order::AnyOrder, 0), &system()) {
        Err(ErrorKind::Engine { why, .. }) => assert_eq!(why, "no poll queues"),
        other => panic!("{other:?}"),
    }
    let config = Config::default().with(|config| config.io.bypass_cache = true);
    let resident = Facts { resident: Some(1.0), ..facts() };
    assert_eq!(any_order(resident, config.clone()).cache, CacheMode::Direct);
    // btrfs may fall back to the page cache unless the memory is pinned.
    let btrfs = || Facts { file_system: "btrfs", ..facts() };
    let plan = any_order(btrfs(), config.clone());
    assert!(plan.engine == EngineKind::IoUring && plan.uring.fixed_buffers);
    let pool = config.clone().with(|config| config.io.engine = Some(EngineKind::Pool));
    let refused = decide(&btrfs(), &pool, (Order::AnyOrder, 0), &system());
    assert!(matches!(refused, Err(ErrorKind::BypassCache(_))), "{refused:?}");
    let none = Facts { bypass: Err("compressed".to_owned()), ..facts() };
    match decide(&none, &config, (Order::AnyOrder, 0), &system()) {
        Err(ErrorKind::BypassCache(why)) => assert_eq!(why, "compressed"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_low_rate_limit_uses_small_blocks() {
    let limit = |bytes| Some(crate::RateLimit::new(std::num::NonZero::new(bytes).expect("not 0")));
    for (bytes_per_s, block_bytes) in [(1, 4096), (1 << 20, 128 << 10), (1 << 40, 512 << 10)] {
        let config = Config::default().with(|config| config.io.rate_limit = limit(bytes_per_s));
        assert_eq!(any_order(facts(), config).block_bytes, block_bytes, "{bytes_per_s}");
    }
}

#[test]
fn explicit_options_are_honoured_or_refused() {
    let none =
        || Facts { direct: Err("tmpfs".to_owned()), dontcache: Err("tmpfs".to_owned()), ..facts() };
    for cache in [CacheMode::Direct, CacheMode::Dontcache] {
        let config = Config::default().with(|config| config.io.cache = Some(cache));
        assert_eq!(any_order(facts(), config.clone()).cache, cache);
        let refused = decide(&none(), &config, (Order::AnyOrder, 0), &system());
        assert!(matches!(refused, Err(ErrorKind::Cache { .. })), "{refused:?}");
    }
    // A block that direct I/O cannot read: refused if both are explicit, otherwise buffered.
    let config = Config::default().with(|config| config.io.block_bytes = Some(1000));
    assert_eq!(any_order(facts(), config.clone()).cache, CacheMode::Buffered);
    let config = config.with(|config| config.io.cache = Some(CacheMode::Direct));
    let refused = decide(&facts(), &config, (Order::AnyOrder, 0), &system());
    assert!(matches!(refused, Err(ErrorKind::Cache { .. })), "{refused:?}");
    // A resident file with an explicit engine.
    let resident = Facts { resident: Some(1.0), ..facts() };
    let config = Config::default().with(|config| config.io.engine = Some(EngineKind::IoUring));
    let plan = any_order(resident, config);
    assert_eq!((plan.engine, plan.cache), (EngineKind::IoUring, CacheMode::Buffered));
}

#[test]
fn depth_is_clamped_to_the_slots_and_says_so() {
    let config = Config::default().with(|config| {
        config.io.queue_depth = Some(1000);
        config.io.slots = Some(4);
    });
    let (plan, choices) =
        decide(&facts(), &config, (Order::AnyOrder, 0), &system()).expect("a plan");
    assert_eq!((plan.depth, plan.slots), (4, 4));
    let why = reason(&choices, "queue-depth");
    assert!(why.contains("as many as there are slots") && why.contains("1000"), "{why}");
    // A deep queue without explicit slots: as many as memory allows.
    let config = Config::default().with(|config| {
        config.io.queue_depth = Some(32768);
        config.io.block_bytes = Some(64 << 20);
    });
    let plan = any_order(Facts { len: 1 << 40, ..facts() }, config);
    assert_eq!((plan.depth, plan.slots), (16, 16));
    // Many slots without an explicit block size: small blocks.
    let config = Config::default().with(|config| config.io.slots = Some(32768));
    let plan = any_order(Facts { len: 1 << 40, ..facts() }, config);
    assert_eq!((plan.slots, plan.block_bytes), (32768, 32 << 10));
}

#[test]
fn memory_is_bounded_whatever_the_length() {
    for len in [600 << 10, 1 << 20, GIB, 1 << 50] {
        for (resident, cache) in [(0.0, None), (1.0, None), (0.0, Some(CacheMode::Buffered))] {
            let config = Config::default().with(|config| config.io.cache = cache);
            let plan = any_order(Facts { len, resident: Some(resident), ..facts() }, config);
            let slots = plan.slots + plan.workers * plan.worker_slots;
            let bytes = u64::from(slots) * u64::from(plan.block_bytes);
            assert!(bytes <= 32 << 20, "{bytes} for {len}");
            assert!(u64::from(plan.slots) <= len.div_ceil(plan.block_bytes.into()));
        }
    }
}

/// The explicit depth of one thread, times the threads.
#[test]
fn many_threads_share_the_bound_on_memory() {
    let config = Config::default().with(|config| {
        config.io.workers = Some(1024);
        config.io.engine = Some(EngineKind::IoUring);
        config.io.queue_depth = Some(128);
    });
    let plan = any_order(facts(), config.clone());
    let slots = u64::from(plan.slots + plan.workers * plan.worker_slots);
    assert!(plan.worker_slots > 0 && slots * u64::from(plan.block_bytes) <= SLAB_BYTES_MAX);
    let config = config.with(|config| config.io.slots = Some(128));
    let refused = decide(&facts(), &config, (Order::AnyOrder, 0), &system());
    assert!(matches!(refused, Err(ErrorKind::Config(ConfigError::Slab { threads: 1025, .. }))));
}

/// Automatic numbers give way to explicit ones.
#[test]
fn slots_that_fill_the_bound_leave_no_room_for_workers_and_are_no_error() {
    for engine in [None, Some(EngineKind::Pread), Some(EngineKind::Pool)] {
        for slots in [9, 10, 16] {
            let config = Config::default().with(|config| {
                config.io.engine = engine;
                config.io.slots = Some(slots);
                config.io.queue_depth = Some(slots);
                config.io.block_bytes = Some(64 << 20);
            });
            let plan = any_order(facts(), config);
            let all = u64::from(plan.slots + plan.workers * plan.worker_slots);
            assert!(plan.slots == slots && all * (64 << 20) <= SLAB_BYTES_MAX, "{plan:?}");
        }
    }
}

#[test]
fn threads_are_as_many_as_help() {
    let resident = |len| Facts { len, resident: Some(1.0), ..facts() };
    for (len, threads_max, workers) in
        [(600 << 10, 8, 0), (4 << 20, 8, 4), (GIB, 8, 7), (GIB, 1, 0), (GIB, 0, 0), (GIB, 3, 2)]
    {
        let config = Config::default().with(|config| config.io.threads_max = Some(threads_max));
        let plan = any_order(resident(len), config);
        assert_eq!(plan.workers, workers, "{len} bytes on {threads_max}");
    }
    // In order, one thread consumes.
    let config = Config::default().with(|config| config.io.workers = Some(5));
    let (plan, _) = decide(&facts(), &config, (Order::InOrder, 0), &system()).expect("a plan");
    assert_eq!(plan.workers, 1);
    let (plan, _) =
        decide(&facts(), &Config::default(), (Order::InOrder, 0), &system()).expect("a plan");
    assert_eq!(plan.workers, 0);
}

/// Bytes of all slots that a plan may use.
fn slab_bytes(plan: &RingPlan) -> u64 {
    let slots = u64::from(plan.slots) + u64::from(plan.workers) * u64::from(plan.worker_slots);
    slots * u64::from(plan.block_bytes)
}

#[test]
fn a_memory_limit_holds_whatever_is_chosen_and_is_shown() {
    let engines = [None, Some(EngineKind::Pool), Some(EngineKind::Pread), Some(EngineKind::Mmap)];
    for mib in [1_u64, 2, 3, 7, 16, 64] {
        for (engine, resident) in engines.into_iter().zip([0.0, 0.0, 1.0, 1.0]) {
            let facts = Facts { resident: Some(resident), len: 8 << 30, ..facts() };
            let memory_bytes = Some(mib << 20);
            let config = Config::default().with(|config| {
                config.memory.limit_bytes = memory_bytes;
                config.io.engine = engine;
            });
            let plan = any_order(facts, config);
            let bytes = slab_bytes(&plan);
            assert!(bytes <= mib << 20 && plan.slots > 0, "{mib} MiB: {bytes} bytes, {plan:?}");
            // And memory is used.
            assert!(mib > 16 || plan.engine.is_synchronous() || bytes * 2 > mib << 20, "{plan:?}");
        }
    }
    let bounded = Config::default().with(|config| config.memory.limit_bytes = Some(2 << 20));
    let long = || Facts { resident: Some(0.0), len: 8 << 30, ..facts() };
    let (_, choices) = decide(&long(), &bounded, (Order::AnyOrder, 0), &system()).unwrap();
    assert!(reason(&choices, "slots").contains("no room for more (2 MiB)"), "{choices:?}");
}

#[test]
fn explicit_numbers_stay_and_the_others_make_room() {
    let long = || Facts { resident: Some(0.0), len: 8 << 30, ..facts() };
    let bounded = Config::default().with(|config| config.memory.limit_bytes = Some(4 << 20));
    let plan = any_order(long(), bounded.clone().with(|config| config.io.queue_depth = Some(64)));
    assert_eq!((plan.depth, plan.block_bytes, plan.workers), (64, 64 << 10, 0));
    let plan =
        any_order(long(), bounded.clone().with(|config| config.io.block_bytes = Some(2 << 20)));
    assert_eq!((plan.depth, plan.slots, plan.workers), (1, 1, 1));
    let plan = any_order(long(), bounded.clone().with(|config| config.io.workers = Some(7)));
    assert_eq!((plan.workers, plan.slots, plan.block_bytes), (7, 4, 128 << 10));
    let config = bounded.with(|config| {
        config.io.slots = Some(9);
        config.io.block_bytes = Some(512 << 10);
    });
    let refused = decide(&long(), &config, (Order::AnyOrder, 0), &system());
    assert!(matches!(refused, Err(ErrorKind::Config(ConfigError::Slab { slots: 9, .. }))));
}

#[test]
fn a_better_depth_is_searched_only_with_time_and_free_memory() {
    let plan = |facts: Facts, config: Config| {
        let system = System { searches_depth: true, ..system() };
        decide(&facts, &config, (Order::AnyOrder, 0), &system).expect("a plan").0
    };
    let ring = plan(long(), Config::default());
    assert_eq!((ring.depth, ring.depth_max, ring.slots), (16, 32, 32));
    let fixed: [fn(&mut Config); 5] = [
        |config| config.io.queue_depth = Some(16),
        |config| config.io.slots = Some(16),
        |config| config.memory.limit_bytes = Some(64 << 20),
        |config| config.uring.fixed_buffers = true,
        |config| config.io.in_order = true,
    ];
    for fix in fixed {
        let ring = plan(long(), Config::default().with(fix));
        assert_eq!((ring.depth, ring.depth_max), (16, 16));
    }
    let short = Facts { len: 256 << 20, ..facts() };
    assert_eq!(plan(short, Config::default()).depth_max, 16);
}

fn long() -> Facts {
    Facts { len: 4 << 30, ..facts() }
}

#[test]
fn with_little_memory_nothing_is_read_ahead() {
    for (limit_bytes, read_ahead) in [
        (None, ReadAhead::Sequential),
        (Some(16 << 20), ReadAhead::Sequential),
        (Some(15 << 20), ReadAhead::Off),
    ] {
        let config = Config::default().with(|config| {
            config.memory.limit_bytes = limit_bytes;
            config.io.cache = Some(CacheMode::Buffered);
        });
        assert_eq!(any_order(facts(), config).read_ahead, read_ahead, "{limit_bytes:?}");
    }
}
