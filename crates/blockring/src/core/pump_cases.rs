//! Runs of the pump over the fake engine, and what must hold for each: whatever the device does,
//! the consumer sees every byte once, or the run fails, and nothing is left in flight.
//!
//! `pump_tests.rs` makes them from seeds, `schedule` from the decisions of a fuzzer.

use std::cell::RefCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use super::*;
use crate::config::HugePages;
use crate::core::extents::Extents;
use crate::core::supply::{FileSupply, Zeros};
use crate::engine::fake::{Chance, FakeEngine, Faults, Seen};
use crate::error::Change;

/// One run.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) chance: Chance,
    pub(super) len: usize,
    /// Bytes the file really holds, if that is not `len`.
    pub(super) really: Option<usize>,
    pub(super) block_bytes: u32,
    pub(super) slots: u32,
    pub(super) depth: u32,
    pub(super) order: Order,
    pub(super) consume: Consume,
    pub(super) spin: bool,
    pub(super) align: u32,
    pub(super) synchronous: bool,
    pub(super) faults: Faults,
    /// Blocks that the sink holds before it gives the first back; 0: it consumes at once.
    pub(super) holds: usize,
    /// The consumer fails, or panics, at this block.
    pub(super) stops_at: Option<(u64, bool)>,
    /// Ranges that are zeros and not read.
    pub(super) holes: Vec<Range<u64>>,
}

impl Default for Case {
    fn default() -> Self {
        Case {
            chance: Chance::of_seed(1),
            len: 100_000,
            really: None,
            block_bytes: 4096,
            slots: 8,
            depth: 8,
            order: Order::AnyOrder,
            consume: Consume::Each,
            spin: false,
            align: 1,
            synchronous: false,
            faults: Faults::default(),
            holds: 0,
            stops_at: None,
            holes: Vec::new(),
        }
    }
}

/// Collects blocks, and holds them for a while.
struct Collect<'a> {
    case: &'a Case,
    got: Vec<(u64, Vec<u8>)>,
    /// Blocks refused with an error or a panic.
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

impl Sink for Collect<'_> {
    fn deliver(&mut self, block: RawBlock) -> Result<Delivered, ErrorKind> {
        assert!(!self.seen.borrow().requested.contains(&block.slot), "delivered while requested");
        assert!(!self.held.contains(&block.slot), "delivered twice");
        self.refused += u64::from(self.case.stops_at.is_some_and(|(i, _)| i == block.extent.index));
        match self.case.stops_at {
            // A panic, without the message and backtrace of one.
            Some((index, true)) if index == block.extent.index => resume_unwind(Box::new("stop")),
            Some((index, false)) if index == block.extent.index => {
                return Err(ErrorKind::Consumer("enough".into()));
            }
            _ => {}
        }
        // SAFETY: the block is delivered to this sink, and holds `len` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(block.bytes, block.extent.len as usize) };
        self.got.push((block.extent.offset, bytes.to_vec()));
        if self.case.holds == 0 {
            return Ok(Delivered::Consumed);
        }
        self.held.push(block.slot);
        if self.held.len() > self.case.holds {
            self.give_back_one();
        }
        Ok(Delivered::Held)
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

/// The blocks of the consumer (offset, bytes), and the result of the run (`None`: it panicked).
pub(super) type Outcome = (Vec<(u64, Vec<u8>)>, Option<Result<(), ErrorKind>>);

/// Returns the most requests in flight as well.
pub(super) fn run_and_see(case: &Case) -> (Outcome, u32) {
    let really = case.really.unwrap_or(case.len);
    let content: Rc<Vec<u8>> = Rc::new((0..really).map(|i| (i % 251) as u8).collect());
    let slab = Slab::new(case.slots, case.block_bytes, HugePages::Advise).unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let recording = Recording::new(true, None);
    let target = Target {
        fd: std::os::fd::AsFd::as_fd(&null),
        flags: 0,
        align: case.align,
        len: case.len as u64,
    };
    let extents = Extents::new(0..case.len as u64, case.block_bytes);
    let zeros = vec![0; case.block_bytes as usize];
    let supply = FileSupply { target, extents, zeros: Zeros { holes: &case.holes, bytes: &zeros } };
    let context = RunContext::plain(&supply, &recording);
    let depth = case.depth.min(case.slots);
    let shape = Shape {
        slots: case.slots,
        depth,
        depth_max: depth,
        block_bytes: case.block_bytes,
        order: case.order,
        consume: case.consume,
        wait: if case.spin { Wait::Spin } else { Wait::Sleep },
    };
    let (mut engine, seen) = FakeEngine::new(
        Rc::clone(&content),
        case.faults,
        case.chance.clone(),
        depth,
        case.align,
        case.synchronous,
    );
    let mut sink = Collect {
        case,
        got: Vec::new(),
        refused: 0,
        held: Vec::new(),
        returned: Vec::new(),
        seen: seen.clone(),
    };
    let result = catch_unwind(AssertUnwindSafe(|| {
        Pump::new(&context, &mut engine, Some(&slab), shape).run(&mut sink)
    }));
    let seen = seen.borrow();
    // The statistics are what happened.
    let stats = recording.stats().unwrap();
    assert_eq!(stats.requests, u64::from(seen.submitted));
    assert_eq!(stats.in_flight.iter().sum::<u64>(), sink.got.len() as u64 + sink.refused);
    // 5: on every way out, the kernel holds no memory of the slab; or the slab is leaked.
    let left = &seen.requested;
    assert!(left.is_empty() || case.faults.never_drains, "left in flight: {left:?}");
    assert_eq!(slab.is_leaked(), !left.is_empty(), "left in flight: {left:?}");
    // No kernel writes into it, and thousands of runs would use up all memory.
    slab.take_back();
    // 3 and 4.
    assert!(seen.in_flight_max <= depth);
    assert_eq!(seen.hopeless_waits, 0);
    let in_flight_max = seen.in_flight_max;
    ((sink.got, result.ok()), in_flight_max)
}

pub(super) fn run(case: &Case) -> Outcome {
    run_and_see(case).0
}

/// Checks the blocks against the content and the guaranteed order.
pub(super) fn check_blocks(case: &Case, got: &[(u64, Vec<u8>)], complete: bool) {
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
        let end = offset + len;
        let is_hole = case.holes.iter().any(|hole| hole.start <= *offset && end <= hole.end);
        let expected = |at| if is_hole { 0 } else { (at % 251) as u8 };
        let whole = bytes.iter().zip(*offset..).all(|(&byte, at)| byte == expected(at));
        assert!(whole, "wrong bytes at {offset}");
    }
}

/// A run that a fuzzer chooses: the first bytes are the ring, the file and the faults; each of the
/// others decides once what happens next.
pub(crate) fn schedule(data: &[u8]) {
    let Some((shape, chosen)) = data.split_first_chunk() else { return };
    let case = of_bytes(shape, Chance::of_bytes(chosen));
    let (got, result) = run(&case);
    let Case { faults, stops_at, .. } = &case;
    check_blocks(&case, &got, matches!(result, Some(Ok(()))));
    match result {
        Some(Ok(())) => {}
        None => assert!(stops_at.is_some_and(|(_, panics)| panics), "a panic of its own"),
        Some(Err(error)) => match error {
            ErrorKind::Consumer(_) => assert!(stops_at.is_some_and(|(_, panics)| !panics)),
            ErrorKind::Wait(_) => assert!(faults.fail_wait.is_some()),
            ErrorKind::Changed(Change::Shrank { from, to }) => {
                assert!(case.really.is_some_and(|really| really < case.len));
                assert!(from == case.len as u64 && to < from);
            }
            ErrorKind::Read { offset, len, error, .. } => match error.raw_os_error() {
                Some(libc::EIO) => {
                    let bad = faults.bad_byte.expect("no byte is bad");
                    assert!((offset..offset + len).contains(&bad), "{bad} not in {offset}+{len}");
                }
                Some(libc::ENOMEM) => assert!(faults.refuse_submit.is_some()),
                // A thousand in a row.
                Some(libc::EINTR) => assert!(faults.interrupted_one_in > 0),
                Some(libc::EAGAIN) => assert!(faults.again_one_in > 0),
                Some(libc::ECANCELED) => assert!(faults.chained),
                _ => panic!("{error}"),
            },
            other => panic!("{other:?}"),
        },
    }
}

/// Bytes that describe a run.
const SHAPE_BYTES: usize = 16;

fn of_bytes(shape: &[u8; SHAPE_BYTES], chance: Chance) -> Case {
    let [len_low, len_high, size, slots, depth, switches, holds, kinds, ..] = *shape;
    let [.., short, interrupted, again, really, bad, stop, refuse, fail] = *shape;
    let (align, block_bytes) =
        [(1, 512), (1, 4096), (1, 1000), (512, 512), (512, 4096), (4096, 8192)]
            [usize::from(size) % 6];
    // A few blocks of each size: a small file is a fast run.
    let len = 1 + usize::from(u16::from_le_bytes([len_low, len_high])) % 20_000;
    let switch = |bits: u8, n: u8| bits >> n & 1 == 1;
    let one_in = |n: u8| match n % 8 {
        // 1 in 1 would never let anything through.
        0 | 1 => 0,
        n => u32::from(n),
    };
    let slots = 1 + u32::from(slots % 12);
    // One place in 256 of the file.
    let at = |byte: u8| len * usize::from(byte) / 256;
    let block = |byte: u8| (at(byte) / block_bytes as usize) as u64;
    Case {
        chance,
        len,
        really: switch(kinds, 0).then(|| 2 * at(really)),
        block_bytes,
        slots,
        depth: 1 + u32::from(depth % 12),
        order: if switch(switches, 0) { Order::InOrder } else { Order::AnyOrder },
        consume: if switch(switches, 1) { Consume::Batch } else { Consume::Each },
        spin: switch(switches, 2),
        align,
        synchronous: switch(switches, 3),
        faults: Faults {
            short_one_in: one_in(short),
            interrupted_one_in: one_in(interrupted),
            again_one_in: one_in(again),
            chained: switch(switches, 4),
            bad_byte: switch(kinds, 1).then(|| at(bad) as u64),
            refuse_submit: switch(kinds, 2).then(|| 1 + u32::from(refuse)),
            fail_wait: switch(kinds, 3).then(|| 1 + u32::from(fail)),
            never_drains: switch(kinds, 4),
        },
        holds: usize::from(holds) % slots as usize,
        stops_at: switch(kinds, 5).then(|| (block(stop), switch(kinds, 6))),
        holes: Vec::new(),
    }
}
