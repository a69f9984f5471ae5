//! The pump over seeded schedules of the fake engine (`pump_cases.rs`).

use proptest::prelude::*;

use super::cases::{Case, check_blocks, run, run_and_see, schedule};
use super::*;
use crate::engine::fake::{Chance, Faults};
use crate::error::Change;

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
                chance: Chance::of_seed(seed),
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

    /// (Content that is not zero shows what is read and what is not.)
    #[test]
    fn blocks_in_holes_are_zeros_and_not_read(
        mut case in cases(),
        cuts in prop::collection::btree_set(0..60_000_u64, 0..12),
    ) {
        let cuts: Vec<_> = cuts.into_iter().collect();
        case.holes = cuts.chunks_exact(2).map(|cut| cut[0]..cut[1]).collect();
        let (got, result) = run(&case);
        prop_assert!(matches!(result, Some(Ok(()))), "{result:?}");
        check_blocks(&case, &got, true);
        let is_hole = |offset: u64, len: usize| {
            let end = offset + len as u64;
            case.holes.iter().any(|hole| hole.start <= offset && end <= hole.end)
        };
        let zeros = got.iter().find(|(offset, bytes)| is_hole(*offset, bytes.len()));
        if let Some((offset, _)) = zeros {
            case.faults.bad_byte = Some(*offset);
            prop_assert!(matches!(run(&case).1, Some(Ok(()))), "a hole was read");
        }
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
    fn a_file_that_shrank_is_reported(mut case in cases(), at in any::<prop::sample::Index>()) {
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

/// The corpus of the fuzzer, see `fuzz/README.md`.
#[test]
fn the_corpus_of_the_fuzzer_passes() {
    crate::replay::corpus("schedule", schedule);
}
