//! A measured setting replaces the built-in one if it was measured for that, and only then.

use super::*;

const WHY: &str = "measured best on this device on 2026-11-21";

fn tuning() -> Tuning {
    Tuning {
        engine: EngineKind::Libaio,
        pool_threads: None,
        block_bytes: 1 << 20,
        depth: 24,
        why: WHY.to_owned(),
    }
}

fn decided(
    facts: Facts,
    config: Config,
    found: Option<Result<Tuning, String>>,
) -> (RingPlan, Vec<Choice>) {
    let tuning = || found.clone();
    let system = System { tuning: &tuning, ..system() };
    decide(&facts, &config, (Order::AnyOrder, 0), &system).expect("a plan")
}

fn not_used(choices: &[Choice]) -> Option<&str> {
    choices.iter().find(|choice| choice.what == "tuned").map(|choice| &*choice.why)
}

#[test]
fn a_measured_setting_is_used_for_direct_reads_of_a_local_device() {
    let seek = Some(Duration::from_millis(8));
    let resident = |part| Facts { resident: Some(part), ..facts() };
    let cases = [
        ("cold", facts(), true),
        ("hardly resident", resident(0.3), true),
        ("a block device", Facts { kind: SourceKind::BlockDevice, ..facts() }, true),
        ("a rotational disk", Facts { rotational: Some(true), seek, ..facts() }, true),
        ("four times what is in flight", long_enough(), true),
        ("resident", resident(1.0), false),
        ("no direct I/O", Facts { direct: Err("no".to_owned()), ..facts() }, false),
        ("NFS", Facts { storage: Storage::Network, ..facts() }, false),
        ("FUSE", Facts { storage: Storage::Fuse, ..facts() }, false),
        ("tmpfs", Facts { storage: Storage::Memory, ..facts() }, false),
    ];
    for (what, facts, is_used) in cases {
        let blocks = facts.len.div_ceil(1 << 20).min(24) as u32;
        let (plan, choices) = decided(facts, Config::default(), Some(Ok(tuning())));
        let shape = (plan.engine, plan.block_bytes, plan.depth);
        assert_eq!(shape == (EngineKind::Libaio, 1 << 20, blocks), is_used, "{what}: {shape:?}");
        for choice in ["engine", "block-size", "queue-depth"] {
            assert_eq!(reason(&choices, choice).contains(WHY), is_used, "{what}: {choices:?}");
        }
        assert_eq!(not_used(&choices), None, "{what}");
    }
}

/// For 24 blocks of 1 MiB in flight.
fn long_enough() -> Facts {
    Facts { len: 96 << 20, ..facts() }
}

#[test]
fn explicit_options_win_over_measured_ones() {
    let uring = Uring { fixed_file: true, ..Uring::default() };
    let cases = [
        Config::default().with(|config| config.io.engine = Some(EngineKind::Pool)),
        Config::default().with(|config| config.io.cache = Some(CacheMode::Direct)),
        Config::default().with(|config| config.io.block_bytes = Some(64 << 10)),
        Config::default().with(|config| config.io.queue_depth = Some(3)),
        Config::default().with(|config| config.io.slots = Some(7)),
        Config::default().with(|config| config.io.pool_threads = Some(3)),
        Config::default().with(|config| config.uring = uring),
    ];
    for config in cases {
        let (plan, choices) = decided(facts(), config.clone(), None);
        for found in [Ok(tuning()), Err("of another kernel".to_owned())] {
            let with = decided(facts(), config.clone(), Some(found));
            assert_eq!(with, (plan.clone(), choices.clone()), "{config:?}");
        }
    }
    // Options that are not part of the measurement leave it as it is.
    let config = Config::default().with(|config| {
        config.io.workers = Some(1);
        config.io.wait = Wait::Spin;
        config.io.bypass_cache = true;
    });
    assert_eq!(decided(facts(), config, Some(Ok(tuning()))).0.depth, 24);
}

#[test]
fn a_setting_that_does_not_suit_is_noted_with_the_reason() {
    let built_in = decided(facts(), Config::default(), None).0;
    let four_k = Facts { direct: Ok(4096), ..facts() };
    let cases = [
        (facts(), Err("another kernel".to_owned()), "another kernel"),
        (four_k, Ok(Tuning { block_bytes: 5 << 9, ..tuning() }), "2560 bytes are no multiple of"),
        (facts(), Ok(Tuning { block_bytes: 0, ..tuning() }), "out of their range"),
        (facts(), Ok(Tuning { block_bytes: 128 << 20, ..tuning() }), "out of their range"),
        (facts(), Ok(Tuning { depth: 0, ..tuning() }), "0 in flight"),
        (facts(), Ok(Tuning { depth: 1025, ..tuning() }), "1025 in flight"),
        (facts(), Ok(Tuning { pool_threads: Some(0), ..tuning() }), "0 threads"),
        (facts(), Ok(Tuning { engine: EngineKind::Mmap, ..tuning() }), "engine mmap"),
        (Facts { len: 95 << 20, ..facts() }, Ok(tuning()), "files of 96 MiB and more"),
        (long_enough(), Ok(Tuning { depth: 25, ..tuning() }), "files of 100 MiB and more"),
    ];
    for (facts, found, part) in cases {
        let len = facts.len;
        let (plan, choices) = decided(facts, Config::default(), Some(found));
        let why = not_used(&choices).expect(part);
        assert!(why.contains(part), "{why}");
        assert_eq!((plan.engine, plan.block_bytes), (built_in.engine, built_in.block_bytes));
        assert_eq!(u64::from(plan.depth), u64::from(built_in.depth).min(len >> 19), "{part}");
    }
}

#[test]
fn a_measured_engine_that_is_not_available_is_replaced() {
    let no = || Err("no CONFIG_AIO".to_owned());
    let found = || Some(Ok(tuning()));
    let no_libaio = System { libaio: &no, tuning: &found, ..system() };
    let config = Config::default();
    let (plan, choices) =
        decide(&facts(), &config, (Order::AnyOrder, 0), &no_libaio).expect("a plan");
    assert_eq!((plan.engine, plan.block_bytes, plan.depth), (EngineKind::IoUring, 1 << 20, 24));
    assert!(
        reason(&choices, "engine").starts_with("no libaio, which was measured best: no CONFIG")
    );
    let found = || Some(Ok(Tuning { engine: EngineKind::IoUring, ..tuning() }));
    let no_uring = System { io_uring: &|_| Err("seccomp".to_owned()), tuning: &found, ..system() };
    let (plan, choices) =
        decide(&facts(), &config, (Order::AnyOrder, 0), &no_uring).expect("a plan");
    assert_eq!(plan.engine, EngineKind::Libaio);
    assert_eq!(reason(&choices, "engine"), "no io_uring: seccomp");
}

#[test]
fn the_threads_of_a_measured_pool_are_used() {
    for (pool_threads, threads, why) in
        [(Some(16), 16, WHY), (None, 8, "the default of the engine")]
    {
        let found = Tuning { engine: EngineKind::Pool, pool_threads, ..tuning() };
        let (plan, choices) = decided(facts(), Config::default(), Some(Ok(found)));
        assert_eq!((plan.engine, plan.pool_threads), (EngineKind::Pool, threads));
        assert_eq!(reason(&choices, "knobs"), why);
    }
}

#[test]
fn a_rate_limit_shortens_measured_blocks() {
    let limit = crate::RateLimit::new(std::num::NonZero::new(1 << 20).expect("not 0"));
    let config = Config::default().with(|config| config.io.rate_limit = Some(limit));
    let (plan, _) = decided(facts(), config, Some(Ok(tuning())));
    assert_eq!(plan.block_bytes, 128 << 10);
}
