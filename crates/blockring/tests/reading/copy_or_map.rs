//! Files in the page cache whose blocks are copied or mapped, whichever is faster: the first blocks
//! are read in both ways, so a test sees both, whatever wins here.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use blockring::{
    Block, Change, Config, EngineKind, ErrorKind, Order, Plan, ReaderKind, RunOptions, Source,
};

use super::{Scratch, allow_mmap, content, skip};

/// Longer than the shortest file that is mapped, and not a multiple of anything.
const LONG: u64 = (40 << 20) + 12_345;

fn config() -> Config {
    Config::default().allow_mmap(allow_mmap()).with(|config| config.observe.stats = true)
}

/// Returns a plan that may map, or `None` after saying why there is none here.
fn plan(source: &Source, config: &Config) -> Option<Plan> {
    let plan = super::plan(source, config, Order::AnyOrder).unwrap();
    let engine = plan.choices().iter().find(|choice| choice.what == "engine").unwrap();
    if engine.value != "pread" || !engine.why.contains("maps it") {
        skip(&format!("blocks are not mapped: {} ({})", engine.value, engine.why));
        return None;
    }
    Some(plan)
}

#[test]
fn copied_and_mapped_blocks_have_the_content_of_the_file() {
    let content = content(LONG);
    let scratch = Scratch::new(&content);
    let source = Source::open(&scratch.0).unwrap();
    let Some(plan) = plan(&source, &config()) else { return };
    let seen = Mutex::new(Vec::new());
    let consume = |block: Block<'_>| {
        let start = block.offset as usize;
        assert!(content[start..start + block.bytes.len()] == *block.bytes, "at {start}");
        seen.lock().unwrap().push((block.offset, block.bytes.len() as u64));
        Ok(())
    };
    plan.any_order(&source, consume).unwrap();
    let mut seen = seen.into_inner().unwrap();
    seen.sort_unstable();
    let end = seen.iter().try_fold(0, |at, &(start, len)| (at == start).then_some(at + len));
    assert_eq!(end, Some(LONG), "each block once");
    let stats = plan.stats().unwrap();
    assert_eq!(stats.bytes, LONG);
    assert!((1..LONG).contains(&stats.mapped_bytes), "{} were mapped", stats.mapped_bytes);
}

#[test]
fn nothing_is_mapped_without_permission_or_with_an_explicit_engine() {
    let scratch = Scratch::new(&content(LONG));
    let source = Source::open(&scratch.0).unwrap();
    let explicit = config().with(|config| config.io.engine = Some(EngineKind::Pread));
    let without = Config::default().with(|config| config.observe.stats = true);
    for config in [explicit, without] {
        let plan = super::plan(&source, &config, Order::AnyOrder).unwrap();
        plan.any_order(&source, |_| Ok(())).unwrap();
        assert_eq!(plan.stats().unwrap().mapped_bytes, 0);
    }
}

/// Truncates the file while each of the first blocks is with its consumer, one of them mapped.
#[test]
fn a_truncation_under_a_block_is_an_error_of_the_file() {
    for index in 0..4 {
        let scratch = Scratch::new(&content(LONG));
        let source = Source::open(&scratch.0).unwrap();
        let Some(plan) = plan(&source, &config()) else { return };
        let sum = AtomicU64::new(0);
        let result = plan.any_order(&source, |block| {
            if block.index == index {
                scratch.open_to_write().set_len(1000).unwrap();
            }
            // Touches every page, those that are gone, too.
            let bytes = block.bytes.iter().map(|&byte| u64::from(byte)).sum();
            sum.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        });
        match result.expect_err("bytes that are gone").kind {
            ErrorKind::Changed(Change::Shrank { from: LONG, to: 1000 }) => {}
            other => panic!("block {index}: {other}"),
        }
    }
}

/// Of several files of one queue, one is truncated while it is hashed: it fails, and only it.
#[test]
fn of_many_files_only_the_one_that_is_truncated_fails() {
    const LEN: u64 = (3 << 20) + 777;
    let scratch: Vec<_> = (0..8).map(|_| Scratch::new(&content(LEN))).collect();
    let expected = content(LEN);
    let open = |i: usize| Source::open(&scratch[i].0).unwrap();
    let plan = Plan::choose_for_files(&[open(0)], &config(), &RunOptions::default()).unwrap();
    for victim in [0, 1, 7] {
        fs::write(&scratch[victim].0, &expected).unwrap();
        let next = Mutex::new(0..scratch.len());
        let is_cut = AtomicBool::new(false);
        let queue = plan
            .queue(ReaderKind::Cached, || next.lock().unwrap().next().map(|i| (open(i), None, i)));
        let mut told = Vec::new();
        let consume = |&i: &usize, block: Block<'_>| {
            let start = block.offset as usize;
            // In the middle of a mapped block of the victim.
            let cut = i == victim && start > 1 << 20 && !is_cut.swap(true, Ordering::Relaxed);
            if cut {
                scratch[i].open_to_write().set_len(1000).unwrap();
            }
            let is_same = expected[start..start + block.bytes.len()] == *block.bytes;
            assert!(is_same || i == victim, "file {i} at {start}");
            Ok(())
        };
        let done = |&i: &usize, _: &Source, result: Result<(), ErrorKind>| told.push((i, result));
        let mut reader = plan.reader(ReaderKind::Cached).unwrap();
        reader.read(&queue, consume, done).unwrap();
        assert_eq!(told.len(), scratch.len());
        for (i, result) in told {
            match result {
                Ok(()) => assert_ne!(i, victim),
                Err(ErrorKind::Changed(Change::Shrank { .. })) => assert_eq!(i, victim),
                Err(other) => panic!("file {i}: {other}"),
            }
        }
    }
    let mapped = plan.stats().unwrap().mapped_bytes;
    assert!(mapped > 0, "nothing was mapped");
}

/// Another file at the number of a descriptor that was closed is not the one that is still mapped.
#[test]
fn a_window_is_never_that_of_another_file() {
    let scratch: Vec<_> = (0..64_u8).map(|i| Scratch::new(&vec![i; 1 << 20])).collect();
    let paths: Vec<PathBuf> = scratch.iter().map(|scratch| scratch.0.clone()).collect();
    let first = Source::open(&paths[0]).unwrap();
    let plan = Plan::choose_for_files(&[first], &config(), &RunOptions::default()).unwrap();
    let next = Mutex::new(0..paths.len());
    // Each file is opened when the one before it has been read, and gets the number that is free.
    let queue = plan.queue(ReaderKind::Cached, || {
        next.lock().unwrap().next().map(|i| (Source::open(&paths[i]).unwrap(), None, i))
    });
    let mut reader = plan.reader(ReaderKind::Cached).unwrap();
    let consume = |&i: &usize, block: Block<'_>| {
        assert!(block.bytes.iter().all(|&byte| byte == i as u8), "file {i}");
        Ok(())
    };
    reader.read(&queue, consume, |_, _, result| result.unwrap()).unwrap();
    let mapped = plan.stats().unwrap().mapped_bytes;
    assert!(mapped > 0, "nothing was mapped");
}
