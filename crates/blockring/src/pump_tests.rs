//! The pump over seeded schedules of the fake engine: whatever the device does, the consumer sees
//! every byte once, or the run fails, and nothing is left in flight.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use proptest::prelude::*;

use super::*;
use crate::config::{Config, HugePages};
use crate::engine::fake::{FakeEngine, Faults, Seen};
use crate::error::Change;

/// One run.
#[derive(Debug, Clone)]
struct Case {
    seed: u64,
    len: usize,
    /// What the file really holds, if that is not `len`.
    really: Option<usize>,
    block_bytes: u32,
    slots: u32,
    depth: u32,
    order: Order,
    consume: Consume,
    spin: bool,
    /// Only its end tells how long it is.
    is_stream: bool,
    align: u32,
    synchronous: bool,
    faults: Faults,
    /// Blocks that the consumer holds before it gives the first back; 0: consumes at once.
    holds: usize,
    /// The consumer fails, or panics, at this block.
    stops_at: Option<(u64, bool)>,
}

impl Default for Case {
    fn default() -> Self {
        Case {
            seed: 1,
            len: 100_000,
            really: None,
            block_bytes: 4096,
            slots: 8,
            depth: 8,
            order: Order::AnyOrder,
            consume: Consume::Each,
            spin: false,
            is_stream: false,
            align: 1,
            synchronous: false,
            faults: Faults::default(),
            holds: 0,
            stops_at: None,
        }
    }
}

impl Case {
    /// As the engine of streams is: there is one file position.
    fn synchronous_only(&mut self) {
        (self.synchronous, self.slots, self.depth, self.order) = (true, 1, 1, Order::InOrder);
        self.holds = 0;
    }
}

/// Notes what it is given, and holds on to it for a while.
struct Collect<'a> {
    case: &'a Case,
    got: Vec<(u64, Vec<u8>)>,
    /// Blocks that were met with an error or a panic.
    refused: u64,
    held: Vec<u32>,
    returned: Vec<u32>,
    seen: Rc<RefCell<Seen>>,
}

impl Collect<'_> {
    fn give_back_one(&mut self) {
        // Not the oldest, so that slots come back out of order, too.
        let i = (self.got.len() * 7) % self.held.len();
        self.returned.push(self.held.swap_remove(i));
    }
}

impl Deliver for Collect<'_> {
    fn deliver(&mut self, block: Finished) -> Result<bool, ErrorKind> {
        assert!(!self.seen.borrow().requested.contains(&block.slot), "lent while requested");
        assert!(!self.held.contains(&block.slot), "lent twice");
        self.refused += u64::from(self.case.stops_at.is_some_and(|(i, _)| i == block.extent.index));
        match self.case.stops_at {
            // A panic, without the message and backtrace of one.
            Some((index, true)) if index == block.extent.index => resume_unwind(Box::new("stop")),
            Some((index, false)) if index == block.extent.index => {
                return Err(ErrorKind::Consumer("enough".into()));
            }
            _ => {}
        }
        // SAFETY: the block is lent to us, and holds `len` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(block.bytes, block.extent.len as usize) };
        self.got.push((block.extent.offset, bytes.to_vec()));
        if self.case.holds == 0 {
            return Ok(true);
        }
        self.held.push(block.slot);
        if self.held.len() > self.case.holds {
            self.give_back_one();
        }
        Ok(false)
    }

    fn take_returned(&mut self, slots: &mut Vec<u32>) -> Result<(), ErrorKind> {
        slots.append(&mut self.returned);
        Ok(())
    }

    fn wait_returned(&mut self) {
        if self.returned.is_empty() {
            self.give_back_one();
        }
    }

    fn may_sleep(&mut self) -> bool {
        self.returned.is_empty()
    }
}

/// What the consumer got (offset, bytes), and how the run ended (`None`: it panicked).
type Outcome = (Vec<(u64, Vec<u8>)>, Option<Result<(), ErrorKind>>);

/// Returns the most that was in flight, too.
fn run_and_see(case: &Case) -> (Outcome, u32) {
    let really = case.really.unwrap_or(case.len);
    let content: Rc<Vec<u8>> = Rc::new((0..really).map(|i| (i % 251) as u8).collect());
    let slab = Slab::new(case.slots, case.block_bytes, HugePages::Advise).unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let config = Config { stats: true, ..Config::default() };
    let recording = Recording::new(&config);
    let target = Target {
        fd: std::os::fd::AsFd::as_fd(&null),
        seekable: true,
        flags: 0,
        align: case.align,
        source_len: (!case.is_stream).then_some(case.len as u64),
    };
    let extents = match case.is_stream {
        true => Extents::new(0..u64::MAX, case.block_bytes),
        false => Extents::new(0..case.len as u64, case.block_bytes),
    };
    let job = Job { work: Work::One(target, extents), rate_limit: None, recording: &recording };
    let depth = case.depth.min(case.slots);
    let shape = Shape {
        slots: case.slots,
        depth,
        block_bytes: case.block_bytes,
        order: case.order,
        consume: case.consume,
        spin: case.spin,
    };
    let (mut engine, seen) = FakeEngine::new(
        Rc::clone(&content),
        case.faults,
        case.seed,
        depth,
        case.align,
        case.synchronous,
    );
    let mut to = Collect {
        case,
        got: Vec::new(),
        refused: 0,
        held: Vec::new(),
        returned: Vec::new(),
        seen: seen.clone(),
    };
    let result = catch_unwind(AssertUnwindSafe(|| {
        Pump::new(&job, &mut engine, Some(&slab), shape).run(&mut to)
    }));
    let seen = seen.borrow();
    // What was taken down is what happened.
    let stats = recording.stats().unwrap();
    assert_eq!(stats.requests, u64::from(seen.submitted));
    assert_eq!(stats.in_flight.iter().sum::<u64>(), to.got.len() as u64 + to.refused);
    // 5: whatever the way out, the kernel holds no memory of ours; or we have given it up.
    let left = &seen.requested;
    assert!(left.is_empty() || case.faults.never_drains, "left in flight: {left:?}");
    assert_eq!(slab.is_leaked(), !left.is_empty(), "left in flight: {left:?}");
    // 3 and 4.
    assert!(seen.in_flight_max <= depth);
    assert_eq!(seen.hopeless_waits, 0);
    let in_flight_max = seen.in_flight_max;
    ((to.got, result.ok()), in_flight_max)
}

fn run(case: &Case) -> Outcome {
    run_and_see(case).0
}

/// What the consumer got, checked against the content and the promised order.
fn check_blocks(case: &Case, got: &[(u64, Vec<u8>)], complete: bool) {
    let mut offsets: Vec<u64> = got.iter().map(|(offset, _)| *offset).collect();
    let expected = (0..case.len as u64).step_by(case.block_bytes as usize);
    if case.order == Order::InOrder {
        assert!(offsets.iter().copied().eq(expected.clone().take(offsets.len())), "out of order");
    }
    offsets.sort_unstable();
    assert!(offsets.windows(2).all(|pair| pair[0] < pair[1]), "an extent came twice");
    if complete {
        assert!(offsets.iter().copied().eq(expected), "an extent is missing");
    }
    for (offset, bytes) in got {
        let len = (case.len as u64 - offset).min(case.block_bytes.into());
        assert_eq!(bytes.len() as u64, len);
        let whole = bytes.iter().zip(*offset..).all(|(&byte, at)| byte == (at % 251) as u8);
        assert!(whole, "wrong bytes at {offset}");
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let size = prop_oneof![
        Just((1, 512)),
        Just((1, 4096)),
        Just((1, 1000)),
        Just((512, 512)),
        Just((512, 4096)),
        Just((4096, 8192)),
    ];
    let faults = (0..6_u32, 0..6_u32, 0..6_u32, any::<bool>());
    let faults = faults.prop_map(|(short, interrupted, again, chained)| Faults {
        // 1 in 1 would never let anything through.
        short_one_in: if short < 2 { 0 } else { short },
        interrupted_one_in: if interrupted < 2 { 0 } else { interrupted },
        again_one_in: if again < 2 { 0 } else { again },
        chained,
        ..Faults::default()
    });
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let ring = (1..10_u32, 1..10_u32, 0..4_usize, switches);
    (any::<u64>(), 1..60_000_usize, size, ring, faults).prop_map(
        |(
            seed,
            len,
            (align, block_bytes),
            (slots, depth, holds, (in_order, synchronous, batch, spin)),
            faults,
        )| {
            let order = if in_order { Order::InOrder } else { Order::AnyOrder };
            Case {
                seed,
                len,
                block_bytes,
                slots,
                depth,
                order,
                consume: if batch { Consume::Batch } else { Consume::Each },
                spin,
                align,
                synchronous,
                faults,
                holds: holds.min(slots as usize - 1),
                ..Case::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(1500)
    })]

    #[test]
    fn every_byte_comes_once_whatever_the_schedule(case in cases()) {
        let (got, result) = run(&case);
        prop_assert!(matches!(result, Some(Ok(()))), "{result:?}");
        check_blocks(&case, &got, true);
    }

    /// Where only the end tells, it is found, and what was read until then is given.
    #[test]
    fn a_stream_is_read_to_its_end(mut case in cases(), empty in any::<bool>()) {
        case.is_stream = true;
        case.align = 1;
        case.synchronous_only();
        if empty {
            case.len = 0;
        }
        let (got, result) = run(&case);
        prop_assert!(matches!(result, Some(Ok(()))), "{result:?}");
        check_blocks(&case, &got, true);
    }

    #[test]
    fn a_bad_byte_fails_the_run_at_its_place(mut case in cases(), at in any::<prop::sample::Index>()) {
        let bad = at.index(case.len) as u64;
        case.faults.bad_byte = Some(bad);
        let (got, result) = run(&case);
        check_blocks(&case, &got, false);
        match result {
            Some(Err(ErrorKind::Read { offset, len, error, .. })) => {
                prop_assert_eq!(error.raw_os_error(), Some(libc::EIO));
                prop_assert!(offset <= bad && bad < offset + len);
                prop_assert!(len <= u64::from(case.block_bytes));
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn a_file_that_shrank_is_said_to_have(mut case in cases(), at in any::<prop::sample::Index>()) {
        let really = at.index(case.len);
        case.really = Some(really);
        let (got, result) = run(&case);
        check_blocks(&case, &got, false);
        match result {
            Some(Err(ErrorKind::Changed(Change::Shrank { from, to }))) => {
                prop_assert_eq!(from, case.len as u64);
                prop_assert!(to < from);
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn a_file_that_grew_gives_what_it_had(mut case in cases(), more in 1..9000_usize) {
        case.really = Some(case.len + more);
        let (got, result) = run(&case);
        prop_assert!(matches!(result, Some(Ok(()))), "{result:?}");
        check_blocks(&case, &got, true);
    }

    /// `run` asserts that nothing stays in flight.
    #[test]
    fn nothing_stays_in_flight_on_any_way_out(
        mut case in cases(),
        at in any::<prop::sample::Index>(),
        how in 0..4,
        never_drains in any::<bool>(),
    ) {
        case.faults.never_drains = never_drains;
        let blocks = case.len.div_ceil(case.block_bytes as usize);
        let at = at.index(blocks);
        match how {
            0 => case.faults.refuse_submit = Some(at as u32 + 1),
            1 => case.stops_at = Some((at as u64, false)),
            // Not every run waits so often.
            3 => case.faults.fail_wait = Some(at as u32 + 1),
            _ => case.stops_at = Some((at as u64, true)),
        }
        let (got, result) = run(&case);
        check_blocks(&case, &got, false);
        prop_assert!(how == 3 || !matches!(result, Some(Ok(()))));
        prop_assert_eq!(result.is_none(), how == 2);
    }
}

#[test]
fn many_requests_are_in_flight_at_once() {
    let case = Case { slots: 8, depth: 8, ..Case::default() };
    let (got, result) = run(&case);
    assert!(matches!(result, Some(Ok(()))));
    check_blocks(&case, &got, true);
    // Not only allowed, but done.
    assert_eq!(run_and_see(&case).1, 8);
}
