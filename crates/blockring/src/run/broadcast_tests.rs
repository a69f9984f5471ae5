//! Broadcasting to several consumers over seeded schedules of the fake engine: each sees every byte, in
//! order if it has one thread, or the run fails; and nothing is left in flight, or held.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::config::{Consume, HugePages};
use crate::core::extents::Extents;
use crate::core::pump::{Pump, Shape};
use crate::core::slab::Slab;
use crate::core::supply::{FileSupply, Target, Zeros};
use crate::engine::fake::{Chance, FakeEngine, Faults, Seen};
use crate::error::Change;
use crate::observe::stats::Recording;

/// The behaviour of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    /// Takes everything, on this many threads: 0 is one, in order.
    Takes(u32),
    /// The same, and is slow now and then.
    IsSlow,
    /// Fails at this block.
    Fails(u64),
    /// Panics at this block.
    Panics(u64),
}

/// One run.
#[derive(Debug, Clone)]
struct Case {
    seed: u64,
    len: usize,
    /// Bytes the file really holds, if that is not `len`.
    really: Option<usize>,
    block_bytes: u32,
    slots: u32,
    depth: u32,
    synchronous: bool,
    spin: bool,
    faults: Faults,
    consumers: Vec<Does>,
}

type Blocks = Vec<(u64, Vec<u8>)>;

/// Ends the process when a run hangs: the threads of a scope cannot be left.
struct Watchdog {
    _ended: mpsc::Sender<()>,
}

impl Watchdog {
    fn of(case: &Case) -> Watchdog {
        let (_ended, end) = mpsc::channel();
        let case = format!("{case:?}");
        std::thread::spawn(move || {
            if end.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("hangs: {case}");
                std::process::abort();
            }
        });
        Watchdog { _ended }
    }
}

/// Consumes a block.
fn take(does: Does, got: &Mutex<Blocks>, block: Block<'_>) -> Result<(), BoxError> {
    match does {
        Does::Fails(index) if index == block.index => return Err("enough".into()),
        // A panic, without the message and backtrace of one.
        Does::Panics(index) if index == block.index => resume_unwind(Box::new("stop")),
        Does::IsSlow if block.index % 16 == 3 => std::thread::sleep(Duration::from_micros(200)),
        _ => {}
    }
    got.lock().unwrap().push((block.offset, block.bytes.to_vec()));
    Ok(())
}

/// The blocks of each consumer, and the result of the run (`None`: it panicked).
fn run(case: &Case) -> (Vec<Blocks>, Option<Result<(), ErrorKind>>) {
    let _watchdog = Watchdog::of(case);
    let really = case.really.unwrap_or(case.len);
    let content: Rc<Vec<u8>> = Rc::new((0..really).map(|i| (i % 251) as u8).collect());
    let slab = Slab::new(case.slots, case.block_bytes, HugePages::Advise).unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let recording = Recording::new(true, None);
    let target =
        Target { fd: std::os::fd::AsFd::as_fd(&null), flags: 0, align: 1, len: case.len as u64 };
    let extents = Extents::new(0..case.len as u64, case.block_bytes);
    let supply = FileSupply { target, extents, zeros: Zeros::default() };
    let run = RunContext::plain(&supply, &recording);
    let depth = case.depth.min(case.slots);
    let shape = Shape {
        slots: case.slots,
        depth,
        depth_max: depth,
        block_bytes: case.block_bytes,
        order: Order::InOrder,
        consume: Consume::Each,
        wait: if case.spin { Wait::Spin } else { Wait::Sleep },
    };
    let (mut engine, seen): (_, Rc<RefCell<Seen>>) = FakeEngine::new(
        content,
        case.faults,
        Chance::of_seed(case.seed),
        depth,
        1,
        case.synchronous,
    );
    let got: Vec<Mutex<Blocks>> = case.consumers.iter().map(|_| Mutex::default()).collect();
    let shared: Vec<_> = case
        .consumers
        .iter()
        .zip(&got)
        .map(|(does, got)| move |block: Block<'_>| take(*does, got, block))
        .collect();
    let mut own: Vec<_> =
        shared.iter().map(|consume| move |block: Block<'_>| consume(block)).collect();
    let mut consumers: Vec<_> = case
        .consumers
        .iter()
        .zip(&mut own)
        .zip(&shared)
        .map(|((does, own), shared)| match does {
            Does::Takes(threads @ 1..) => Consumer::AnyOrder(*threads, shared),
            _ => Consumer::InOrder(own),
        })
        .collect();
    let threads: Vec<_> = consumers.iter().map(Consumer::threads).collect();
    let queue = BlockQueue::new(case.spin, &threads);
    let context = ConsumerContext { run: &run, queue: &queue, waker: None };
    let result = catch_unwind(AssertUnwindSafe(|| {
        context.run(&mut consumers, |sink| {
            let mut pump = Pump::new(&run, &mut engine, Some(&slab), shape);
            // Dropped before the pump, as in `Reader::pump`.
            let mut sink = sink;
            let result = pump.run(&mut sink);
            sink.finish(&result);
            result
        })
    }));
    let seen = seen.borrow();
    assert!(seen.requested.is_empty() && !slab.is_leaked(), "left in flight: {:?}", seen.requested);
    assert_eq!(seen.hopeless_waits, 0);
    assert!(seen.in_flight_max <= depth);
    let got = got.into_iter().map(|got| got.into_inner().unwrap()).collect();
    let result = result.ok();
    (got, result)
}

/// Checks that each consumer got the content, in the guaranteed order; all of it, if `complete`.
fn check(case: &Case, got: &[Blocks], complete: bool) {
    for (does, got) in case.consumers.iter().zip(got) {
        let mut got: Vec<_> = got.iter().collect();
        if matches!(does, Does::Takes(1..)) {
            got.sort_by_key(|(offset, _)| *offset);
            assert!(got.windows(2).all(|pair| pair[0].0 < pair[1].0), "{does:?}: a block twice");
        } else {
            let offsets = (0..case.len as u64).step_by(case.block_bytes as usize);
            let offsets = offsets.take(got.len());
            assert!(got.iter().map(|(offset, _)| *offset).eq(offsets), "{does:?}: out of order");
        }
        for (offset, bytes) in &got {
            let len = (case.len as u64 - offset).min(case.block_bytes.into());
            assert_eq!(bytes.len() as u64, len, "{does:?}");
            let is_content =
                bytes.iter().zip(*offset..).all(|(&byte, at)| byte == (at % 251) as u8);
            assert!(is_content, "{does:?}: wrong bytes at {offset}");
        }
        let blocks = case.len.div_ceil(case.block_bytes as usize);
        assert!(!complete || got.len() == blocks, "{does:?}: {} of {blocks} blocks", got.len());
    }
}

fn consumers() -> impl Strategy<Value = Vec<Does>> {
    let in_order = prop_oneof![3 => Just(Does::Takes(0)), 1 => Just(Does::IsSlow)];
    let shared = prop::option::of((1..4_u32).prop_map(Does::Takes));
    (prop::collection::vec(in_order, 1..4), shared).prop_map(|(mut all, shared)| {
        all.extend(shared);
        all
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let faults = (0..6_u32, 0..6_u32, 0..6_u32, any::<bool>());
    let faults = faults.prop_map(|(short, interrupted, again, chained)| Faults {
        // 1 in 1 would never let anything through.
        short_one_in: if short < 2 { 0 } else { short },
        interrupted_one_in: if interrupted < 2 { 0 } else { interrupted },
        again_one_in: if again < 2 { 0 } else { again },
        chained,
        ..Faults::default()
    });
    let block_bytes = prop_oneof![Just(512_u32), Just(1000), Just(4096)];
    let ring = (1..10_u32, 1..10_u32, any::<bool>(), prop::bool::weighted(0.1));
    (any::<u64>(), 1..60_000_usize, block_bytes, ring, faults, consumers()).prop_map(
        |(seed, len, block_bytes, (slots, depth, synchronous, spin), faults, consumers)| Case {
            seed,
            // (Spinning threads take whole time slices from each other.)
            len: if spin { 1 + len % (8 * block_bytes as usize) } else { len },
            really: None,
            block_bytes,
            slots,
            depth,
            synchronous,
            spin,
            faults,
            consumers,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(250) })]

    #[test]
    fn each_consumer_sees_every_byte_whatever_the_schedule(case in cases()) {
        let (got, result) = run(&case);
        prop_assert!(matches!(result, Some(Ok(()))), "{result:?}");
        check(&case, &got, true);
    }

    #[test]
    fn a_bad_byte_fails_the_run(mut case in cases(), at in any::<prop::sample::Index>()) {
        let bad = at.index(case.len) as u64;
        case.faults.bad_byte = Some(bad);
        let (got, result) = run(&case);
        check(&case, &got, false);
        match result {
            Some(Err(ErrorKind::Read { offset, len, error, .. })) => {
                prop_assert_eq!(error.raw_os_error(), Some(libc::EIO));
                prop_assert!(offset <= bad && bad < offset + len);
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn a_file_that_shrank_fails_the_run(mut case in cases(), at in any::<prop::sample::Index>()) {
        case.really = Some(at.index(case.len));
        let (got, result) = run(&case);
        check(&case, &got, false);
        let shrank = matches!(result, Some(Err(ErrorKind::Changed(Change::Shrank { .. }))));
        prop_assert!(shrank, "{result:?}");
    }

    /// Any of the consumers, whatever the others and the device do.
    #[test]
    fn a_consumer_that_stops_ends_the_run(
        mut case in cases(),
        who in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        panics in any::<bool>(),
    ) {
        let at = at.index(case.len.div_ceil(case.block_bytes as usize)) as u64;
        let who = who.index(case.consumers.len());
        case.consumers[who] = if panics { Does::Panics(at) } else { Does::Fails(at) };
        let (got, result) = run(&case);
        check(&case, &got, false);
        prop_assert!(got[who].len() as u64 <= at, "it went on after its end");
        match result {
            None => prop_assert!(panics),
            Some(Err(ErrorKind::Consumer(why))) => prop_assert_eq!(why.to_string(), "enough"),
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn an_engine_that_refuses_ends_the_run(mut case in cases(), at in any::<prop::sample::Index>()) {
        let blocks = case.len.div_ceil(case.block_bytes as usize);
        case.faults.refuse_submit = Some(at.index(blocks) as u32 + 1);
        let (got, result) = run(&case);
        check(&case, &got, false);
        prop_assert!(matches!(result, Some(Err(_))), "{result:?}");
    }
}
