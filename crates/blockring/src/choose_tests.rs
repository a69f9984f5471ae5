//! Every row of the table in the design, by facts made up: also for devices that are not here.

#[path = "choose/tuned_tests.rs"]
mod tuned;

use std::time::Duration;

use super::*;
use crate::config::{ConfigError, SLAB_BYTES_MAX};
use crate::profile;

const GIB: u64 = 1 << 30;

fn facts() -> Facts {
    Facts {
        len: GIB,
        kind: SourceKind::File,
        file_system: "ext4",
        storage: Storage::Local,
        resident: Some(0.0),
        direct: Ok(512),
        direct_file: None,
        rotational: Some(false),
        seek: None,
        dontcache: Ok(()),
        medium: Ok(()),
        poll_queues: Ok(()),
    }
}

fn system() -> System<'static> {
    System {
        io_uring: &|_| Ok(()),
        libaio: &|| Ok(()),
        tuning: &|| None,
        profile: &profile::BUILT_IN,
        cores: 8,
    }
}

fn any_order(facts: Facts, config: Config) -> RingPlan {
    decide(&facts, &config, Order::AnyOrder, &system()).expect("a plan").0
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
        ("cold on an SSD", facts(), IoUring, Direct, Spread::WhenBehind, 7),
        ("resident", Facts { resident: Some(1.0), ..facts() }, Pread, Buffered, Spread::AtOnce, 7),
        ("mostly", Facts { resident: Some(0.8), ..facts() }, Pread, Buffered, Spread::AtOnce, 7),
        (
            "hardly",
            Facts { resident: Some(0.3), ..facts() },
            IoUring,
            Direct,
            Spread::WhenBehind,
            7,
        ),
        ("unknown", Facts { resident: None, ..facts() }, IoUring, Direct, Spread::WhenBehind, 7),
        (
            "no direct I/O",
            Facts { direct: no(), ..facts() },
            IoUring,
            Dontcache,
            Spread::WhenBehind,
            7,
        ),
        (
            "neither",
            Facts { direct: no(), dontcache: no().map(|_: u32| ()), ..facts() },
            IoUring,
            Buffered,
            Spread::WhenBehind,
            7,
        ),
        (
            "no direct I/O, but resident",
            Facts { direct: no(), resident: Some(1.0), ..facts() },
            Pread,
            Buffered,
            Spread::AtOnce,
            7,
        ),
        (
            "a disk that turns",
            Facts { rotational: Some(true), seek: seek(8), ..facts() },
            IoUring,
            Direct,
            Spread::AtOnce,
            0,
        ),
        (
            "a disk that turns, and a file that is in memory",
            Facts { rotational: Some(true), seek: seek(8), resident: Some(1.0), ..facts() },
            Pread,
            Buffered,
            Spread::AtOnce,
            7,
        ),
        (
            "an SSD that says it turns",
            Facts { rotational: Some(true), seek: seek(0), ..facts() },
            IoUring,
            Direct,
            Spread::WhenBehind,
            7,
        ),
        (
            "a disk that turns, and nobody could look",
            Facts { rotational: Some(true), direct: no(), ..facts() },
            IoUring,
            Dontcache,
            Spread::AtOnce,
            0,
        ),
        (
            "tmpfs",
            Facts { storage: Storage::Memory, file_system: "tmpfs", direct: no(), ..facts() },
            Pread,
            Buffered,
            Spread::AtOnce,
            7,
        ),
        (
            "NFS",
            Facts { storage: Storage::Network, ..facts() },
            Pool,
            Buffered,
            Spread::WhenBehind,
            7,
        ),
        (
            "FUSE",
            Facts { storage: Storage::Fuse, ..facts() },
            Pool,
            Buffered,
            Spread::WhenBehind,
            7,
        ),
        (
            "an overlay on who knows what",
            Facts { storage: Storage::Unknown, file_system: "overlayfs", ..facts() },
            Pool,
            Buffered,
            Spread::WhenBehind,
            7,
        ),
        (
            "NFS, but resident",
            Facts { storage: Storage::Network, resident: Some(1.0), ..facts() },
            Pread,
            Buffered,
            Spread::AtOnce,
            7,
        ),
        (
            "a block device",
            Facts { kind: SourceKind::BlockDevice, ..facts() },
            IoUring,
            Direct,
            Spread::WhenBehind,
            7,
        ),
    ];
    for (what, facts, engine, cache, spread, workers) in cases {
        let plan = any_order(facts, Config::default());
        let found = (plan.engine, plan.cache, plan.spread, plan.workers);
        assert_eq!(found, (engine, cache, spread, workers), "{what}");
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
            decide(&facts, &Config::default(), Order::AnyOrder, system).expect("a plan");
        assert_eq!((plan.engine, &*reason(&choices, "engine")), (engine, why));
    }
    // Asked for by name, it is an error with the same reason.
    for (engine, system, expected) in [
        (EngineKind::IoUring, &no_uring, "seccomp"),
        (EngineKind::Libaio, &neither, "no CONFIG_AIO"),
    ] {
        let config = Config { engine: Some(engine), ..Config::default() };
        match decide(&facts(), &config, Order::AnyOrder, system) {
            Err(ErrorKind::Engine { engine: refused, why }) => {
                assert_eq!((refused, &*why), (engine, expected));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_an_engine_cannot_do_any_more_the_next_one_does() {
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
    let config = Config { uring, spin: true, ..Config::default() };
    let resident = Facts { resident: Some(1.0), ..facts() };
    let (plan, choices) = decide(&resident, &config, Order::AnyOrder, &system()).expect("a plan");
    assert_eq!((plan.engine, plan.uring, plan.spin), (EngineKind::IoUring, uring, true));
    let knobs = choices.iter().find(|choice| choice.what == "knobs").expect("knobs");
    assert_eq!(knobs.value, "fixed buffers, spin");
    let config = Config { pool_threads: Some(3), ..Config::default() };
    let plan = any_order(facts(), config);
    assert_eq!((plan.engine, plan.pool_threads), (EngineKind::Pool, 3));
    let config = Config { in_order: true, ..Config::default() };
    assert_eq!(any_order(facts(), config).order, Order::InOrder);
    // One file position is read in order, on one thread.
    let config = Config { engine: Some(EngineKind::Stream), ..Config::default() };
    let plan = any_order(facts(), config);
    assert_eq!((plan.order, plan.workers, plan.depth), (Order::InOrder, 0, 1));
}

#[test]
fn polling_and_the_medium_are_refused_with_their_reasons() {
    let uring = Uring { iopoll: true, ..Uring::default() };
    let config = Config { uring, ..Config::default() };
    assert_eq!(any_order(facts(), config.clone()).cache, CacheMode::Direct);
    let none = Facts { poll_queues: Err("no poll queues".to_owned()), ..facts() };
    match decide(&none, &config, Order::AnyOrder, &system()) {
        Err(ErrorKind::Engine { why, .. }) => assert_eq!(why, "no poll queues"),
        other => panic!("{other:?}"),
    }
    let config = Config { medium: true, ..Config::default() };
    let resident = Facts { resident: Some(1.0), ..facts() };
    assert_eq!(any_order(resident, config.clone()).cache, CacheMode::Direct);
    // What btrfs cannot read into pinned memory, it may read through the page cache.
    let btrfs = || Facts { file_system: "btrfs", ..facts() };
    let plan = any_order(btrfs(), config.clone());
    assert!(plan.engine == EngineKind::IoUring && plan.uring.fixed_buffers);
    let pool = Config { engine: Some(EngineKind::Pool), ..config.clone() };
    let refused = decide(&btrfs(), &pool, Order::AnyOrder, &system());
    assert!(matches!(refused, Err(ErrorKind::Medium(_))), "{refused:?}");
    let none = Facts { medium: Err("compressed".to_owned()), ..facts() };
    match decide(&none, &config, Order::AnyOrder, &system()) {
        Err(ErrorKind::Medium(why)) => assert_eq!(why, "compressed"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slow_limit_takes_small_blocks() {
    let limit = |bytes| Some(crate::RateLimit::new(std::num::NonZero::new(bytes).expect("not 0")));
    for (bytes_per_s, block_bytes) in [(1, 4096), (1 << 20, 128 << 10), (1 << 40, 512 << 10)] {
        let config = Config { rate_limit: limit(bytes_per_s), ..Config::default() };
        assert_eq!(any_order(facts(), config).block_bytes, block_bytes, "{bytes_per_s}");
    }
}

#[test]
fn what_is_asked_for_is_done_or_refused() {
    let none =
        || Facts { direct: Err("tmpfs".to_owned()), dontcache: Err("tmpfs".to_owned()), ..facts() };
    for cache in [CacheMode::Direct, CacheMode::Dontcache] {
        let config = Config { cache: Some(cache), ..Config::default() };
        assert_eq!(any_order(facts(), config.clone()).cache, cache);
        let refused = decide(&none(), &config, Order::AnyOrder, &system());
        assert!(matches!(refused, Err(ErrorKind::Cache { .. })), "{refused:?}");
    }
    // A block that direct I/O cannot read: refused when both were asked for, else buffered.
    let config = Config { block_bytes: Some(1000), ..Config::default() };
    assert_eq!(any_order(facts(), config.clone()).cache, CacheMode::Buffered);
    let config = Config { cache: Some(CacheMode::Direct), ..config };
    let refused = decide(&facts(), &config, Order::AnyOrder, &system());
    assert!(matches!(refused, Err(ErrorKind::Cache { .. })), "{refused:?}");
    // A resident file with an engine named.
    let resident = Facts { resident: Some(1.0), ..facts() };
    let config = Config { engine: Some(EngineKind::IoUring), ..Config::default() };
    let plan = any_order(resident, config);
    assert_eq!((plan.engine, plan.cache), (EngineKind::IoUring, CacheMode::Buffered));
}

#[test]
fn depth_is_clamped_to_the_slots_and_says_so() {
    let config = Config { depth: Some(1000), slots: Some(4), ..Config::default() };
    let (plan, choices) = decide(&facts(), &config, Order::AnyOrder, &system()).expect("a plan");
    assert_eq!((plan.depth, plan.slots), (4, 4));
    let why = reason(&choices, "depth");
    assert!(why.contains("clamped to the slots") && why.contains("1000"), "{why}");
    // Deep without a word about slots: as many as memory may be taken for.
    let config = Config { depth: Some(32768), block_bytes: Some(64 << 20), ..Config::default() };
    let plan = any_order(Facts { len: 1 << 40, ..facts() }, config);
    assert_eq!((plan.depth, plan.slots), (16, 16));
    // Many slots without a word about blocks: blocks small enough.
    let config = Config { slots: Some(32768), ..Config::default() };
    let plan = any_order(Facts { len: 1 << 40, ..facts() }, config);
    assert_eq!((plan.slots, plan.block_bytes), (32768, 32 << 10));
}

#[test]
fn memory_is_bounded_whatever_the_length() {
    for len in [600 << 10, 1 << 20, GIB, 1 << 50] {
        for (resident, cache) in [(0.0, None), (1.0, None), (0.0, Some(CacheMode::Buffered))] {
            let config = Config { cache, ..Config::default() };
            let plan = any_order(Facts { len, resident: Some(resident), ..facts() }, config);
            let slots = plan.slots + plan.workers * plan.worker_slots;
            let bytes = u64::from(slots) * u64::from(plan.block_bytes);
            assert!(bytes <= 32 << 20, "{bytes} for {len}");
            assert!(u64::from(plan.slots) <= len.div_ceil(plan.block_bytes.into()));
        }
    }
}

/// What is asked for on one thread, times the threads.
#[test]
fn many_threads_share_the_bound_on_memory() {
    let config = Config {
        workers: Some(1024),
        engine: Some(EngineKind::IoUring),
        depth: Some(128),
        ..Config::default()
    };
    let plan = any_order(facts(), config.clone());
    let slots = u64::from(plan.slots + plan.workers * plan.worker_slots);
    assert!(plan.worker_slots > 0 && slots * u64::from(plan.block_bytes) <= SLAB_BYTES_MAX);
    let config = Config { slots: Some(128), ..config };
    let refused = decide(&facts(), &config, Order::AnyOrder, &system());
    assert!(matches!(refused, Err(ErrorKind::Config(ConfigError::Slab { threads: 1025, .. }))));
}

/// What nobody asked for gives way to what was asked for.
#[test]
fn slots_that_fill_the_bound_leave_no_room_for_workers_and_are_no_error() {
    for engine in [None, Some(EngineKind::Pread), Some(EngineKind::Pool)] {
        for slots in [9, 10, 16] {
            let config = Config {
                engine,
                slots: Some(slots),
                depth: Some(slots),
                block_bytes: Some(64 << 20),
                ..Config::default()
            };
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
        let config = Config { threads_max: Some(threads_max), ..Config::default() };
        let plan = any_order(resident(len), config);
        assert_eq!(plan.workers, workers, "{len} bytes on {threads_max}");
    }
    // In order, one consumes, wherever.
    let config = Config { workers: Some(5), ..Config::default() };
    let (plan, _) = decide(&facts(), &config, Order::InOrder, &system()).expect("a plan");
    assert_eq!(plan.workers, 1);
    let (plan, _) =
        decide(&facts(), &Config::default(), Order::InOrder, &system()).expect("a plan");
    assert_eq!(plan.workers, 0);
}

/// Bytes of all slots that a plan may come to.
fn slab_bytes(plan: &RingPlan) -> u64 {
    let slots = u64::from(plan.slots) + u64::from(plan.workers) * u64::from(plan.worker_slots);
    slots * u64::from(plan.block_bytes)
}

#[test]
fn a_bound_on_the_memory_holds_whatever_is_chosen_and_is_said() {
    let engines = [None, Some(EngineKind::Pool), Some(EngineKind::Pread), Some(EngineKind::Mmap)];
    for mib in [1_u64, 2, 3, 7, 16, 64] {
        for (engine, resident) in engines.into_iter().zip([0.0, 0.0, 1.0, 1.0]) {
            let facts = Facts { resident: Some(resident), len: 8 << 30, ..facts() };
            let memory_bytes = Some(mib << 20);
            let config = Config { memory_bytes, engine, ..Config::default() };
            let plan = any_order(facts, config);
            let bytes = slab_bytes(&plan);
            assert!(bytes <= mib << 20 && plan.slots > 0, "{mib} MiB: {bytes} bytes, {plan:?}");
            // It is made use of.
            assert!(mib > 16 || plan.engine.is_synchronous() || bytes * 2 > mib << 20, "{plan:?}");
        }
    }
    let bounded = Config { memory_bytes: Some(2 << 20), ..Config::default() };
    let long = || Facts { resident: Some(0.0), len: 8 << 30, ..facts() };
    let (_, choices) = decide(&long(), &bounded, Order::AnyOrder, &system()).unwrap();
    assert!(reason(&choices, "slots").contains("no room for more (2 MiB)"), "{choices:?}");
}

#[test]
fn what_is_named_stays_and_the_rest_makes_room_for_it() {
    let long = || Facts { resident: Some(0.0), len: 8 << 30, ..facts() };
    let bounded = Config { memory_bytes: Some(4 << 20), ..Config::default() };
    let plan = any_order(long(), Config { depth: Some(64), ..bounded.clone() });
    assert_eq!((plan.depth, plan.block_bytes, plan.workers), (64, 64 << 10, 0));
    let plan = any_order(long(), Config { block_bytes: Some(2 << 20), ..bounded.clone() });
    assert_eq!((plan.depth, plan.slots, plan.workers), (1, 1, 1));
    let plan = any_order(long(), Config { workers: Some(7), ..bounded.clone() });
    assert_eq!((plan.workers, plan.slots, plan.block_bytes), (7, 4, 128 << 10));
    let config = Config { slots: Some(9), block_bytes: Some(512 << 10), ..bounded };
    let refused = decide(&long(), &config, Order::AnyOrder, &system());
    assert!(matches!(refused, Err(ErrorKind::Config(ConfigError::Slab { slots: 9, .. }))));
}
