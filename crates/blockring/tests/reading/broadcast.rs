//! Several consumers of one source: every engine, with a thread for each or one for all, on files and
//! streams.

use std::fs::File;
use std::io::{PipeReader, Write};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use blockring::{
    Block, BoxError, CacheMode, Change, Config, Consumer, EngineKind, Error, ErrorKind, Order,
    Plan, RunOptions, Source,
};

use super::{BLOCK_BYTES, BLOCKS, LEN, Scratch, config, content, knobs, plan, strategies};

/// Ends the process when a run hangs: the threads of a scope cannot be left.
struct Watchdog {
    _ended: mpsc::Sender<()>,
}

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

impl Watchdog {
    fn of(name: &str) -> Watchdog {
        let (_ended, end) = mpsc::channel();
        let name = name.to_owned();
        thread::spawn(move || {
            if end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let _ = writeln!(std::io::stderr(), "hangs: {name}");
                std::process::abort();
            }
        });
        Watchdog { _ended }
    }
}

/// Consumers in order, and the threads of one more in any order.
type Shape = (usize, u32);

const SHAPES: [Shape; 4] = [(1, 0), (3, 0), (0, 2), (3, 2)];

fn threads_of((in_order, shared): Shape) -> u32 {
    in_order as u32 + shared
}

/// Every engine and cache mode, and the options.
fn configs() -> Vec<(String, Config)> {
    let plain = |(engine, cache)| (format!("{engine} {cache}"), config(engine, cache, 0));
    let mut configs: Vec<_> = strategies().into_iter().map(plain).collect();
    configs.extend(knobs());
    for (_, config) in &mut configs {
        config.io.workers = None;
    }
    configs
}

/// A plan for this many consumers.
fn plan_for(source: &Source, config: &Config, consumers: u32) -> Plan {
    let run = RunOptions { order: Order::InOrder, consumers, ..RunOptions::default() };
    Plan::choose(source, config, &run).unwrap()
}

type Seen = Vec<(u64, Vec<u8>, ThreadId)>;

/// The blocks of each consumer: those in order, and then the one on several threads. `meddle` is called
/// before each block, with the number of the consumer.
fn collect(
    source: &Source,
    plan: &Plan,
    shape: Shape,
    meddle: impl Fn(usize, &Block<'_>) -> Result<(), BoxError> + Sync,
) -> (Result<(), Error>, Vec<Seen>) {
    let count = shape.0 + usize::from(shape.1 > 0);
    let seen: Vec<Mutex<Seen>> = (0..count).map(|_| Mutex::default()).collect();
    let consume = |number: usize, block: Block<'_>| {
        meddle(number, &block)?;
        let one = (block.offset, block.bytes.to_vec(), thread::current().id());
        seen[number].lock().unwrap().push(one);
        Ok(())
    };
    let consume = &consume;
    let mut own: Vec<_> =
        (0..shape.0).map(|number| move |block: Block<'_>| consume(number, block)).collect();
    let shared = |block: Block<'_>| consume(shape.0, block);
    let mut consumers: Vec<Consumer<'_>> =
        own.iter_mut().map(|own| Consumer::InOrder(own)).collect();
    if shape.1 > 0 {
        consumers.push(Consumer::AnyOrder(shape.1, &shared));
    }
    let result = plan.broadcast(source, &mut consumers);
    drop(consumers);
    drop(own);
    (result, seen.into_iter().map(|seen| seen.into_inner().unwrap()).collect())
}

/// Checks that each consumer saw `expected`, and those with one thread in order.
fn check(name: &str, shape: Shape, seen: Vec<Seen>, expected: &[u8]) {
    for (number, mut seen) in seen.into_iter().enumerate() {
        let mut threads: Vec<_> = seen.iter().map(|(_, _, thread)| *thread).collect();
        threads.dedup();
        if number < shape.0 {
            assert!(threads.len() <= 1, "{name}: consumer {number} on several threads");
            assert!(seen.is_sorted_by_key(|(offset, ..)| *offset), "{name}: {number}: order");
        }
        seen.sort_by_key(|(offset, ..)| *offset);
        let mut end = 0;
        for (offset, bytes, _) in seen {
            assert_eq!(offset, end, "{name}: consumer {number}: a gap, or a block twice");
            end += bytes.len() as u64;
            let found = expected.get(offset as usize..end as usize);
            assert!(found == Some(&*bytes), "{name}: consumer {number}: bytes at {offset}");
        }
        assert_eq!(end, expected.len() as u64, "{name}: consumer {number}: not all");
    }
}

#[test]
fn every_consumer_sees_every_block() {
    for block_bytes in [4096, BLOCK_BYTES, 1 << 20] {
        let block = u64::from(block_bytes);
        let lengths = [0, 1, block, block + 1, 5 * block, LEN.min(BLOCKS * block - 100)];
        // (With the largest blocks, only the longest files.)
        for len in lengths.into_iter().filter(|len| block_bytes <= BLOCK_BYTES || *len >= LEN / 2) {
            let expected = content(len);
            let scratch = Scratch::new(&expected);
            let source = Source::open(&scratch.0).unwrap();
            for (name, config) in configs() {
                for shape in SHAPES {
                    let consumers = threads_of(shape);
                    let config =
                        config.clone().with(|config| config.io.block_bytes = Some(block_bytes));
                    let name = format!("{name} {shape:?} {len} bytes in blocks of {block_bytes}");
                    let _watchdog = Watchdog::of(&name);
                    let plan = plan_for(&source, &config, consumers);
                    let (result, seen) = collect(&source, &plan, shape, |_, _| Ok(()));
                    result.unwrap_or_else(|error| panic!("{name}: {error}"));
                    check(&name, shape, seen, &expected);
                }
            }
        }
    }
}

/// Unless the number of threads is explicit, there are as many as consumers, if the machine has a second
/// processor; and the thread that reads is none of them.
#[test]
fn each_consumer_has_a_thread_of_its_own() {
    let scratch = Scratch::new(&content(LEN));
    let source = Source::open(&scratch.0).unwrap();
    for (name, config) in configs() {
        let config = config.with(|config| config.io.threads_max = Some(4));
        let plan = plan_for(&source, &config, 3);
        assert_eq!(plan.consumers(), 3, "{name}");
        let (result, seen) = collect(&source, &plan, (3, 0), |_, _| Ok(()));
        result.unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut threads: Vec<_> = seen.iter().map(|seen| seen[0].2).collect();
        threads.push(thread::current().id());
        let distinct: std::collections::HashSet<_> = threads.iter().collect();
        assert_eq!(distinct.len(), 4, "{name}");
    }
}

/// The plan says how many threads there are; the caller shares them out.
#[test]
fn fewer_threads_than_consumers_suffice() {
    let expected = content(LEN);
    let scratch = Scratch::new(&expected);
    let source = Source::open(&scratch.0).unwrap();
    for (name, config) in configs() {
        for (threads_max, left) in [(0, 0), (1, 0), (2, 1), (3, 2), (5, 4), (9, 5)] {
            let config = config.clone().with(|config| config.io.threads_max = Some(threads_max));
            let name = format!("{name}, {threads_max} threads");
            let _watchdog = Watchdog::of(&name);
            let plan = plan_for(&source, &config, 5);
            assert_eq!(plan.consumers(), left, "{name}: {plan}");
            let (result, seen) = collect(&source, &plan, (3, 2), |_, _| Ok(()));
            result.unwrap_or_else(|error| panic!("{name}: {error}"));
            if left == 0 {
                let here = thread::current().id();
                let is_here = |(_, _, thread): &(_, _, ThreadId)| *thread == here;
                assert!(seen.iter().flatten().all(is_here), "{name}: on other threads");
            }
            check(&name, (3, 2), seen, &expected);
        }
    }
}

/// The blocks are read all the same.
#[test]
fn a_broadcast_to_no_consumer_ends() {
    let scratch = Scratch::new(&content(LEN));
    let source = Source::open(&scratch.0).unwrap();
    for (name, config) in configs() {
        for (workers, consumers) in [(None, 0), (None, 2), (Some(0), 0), (Some(2), 0)] {
            let _watchdog = Watchdog::of(&name);
            let config = config.clone().with(|config| config.io.workers = workers);
            let plan = plan_for(&source, &config, consumers);
            plan.broadcast(&source, &mut []).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

/// A plan that was made for another order gives all consumers all blocks as well.
#[test]
fn any_plan_can_broadcast() {
    let expected = content(LEN);
    let scratch = Scratch::new(&expected);
    let source = Source::open(&scratch.0).unwrap();
    for (name, config) in configs() {
        for order in [Order::InOrder, Order::AnyOrder] {
            for workers in [None, Some(0), Some(1), Some(3)] {
                let config = config.clone().with(|config| config.io.workers = workers);
                let name = format!("{name} {order:?} {workers:?} workers");
                let _watchdog = Watchdog::of(&name);
                let plan = plan(&source, &config, order).unwrap();
                let (result, seen) = collect(&source, &plan, (3, 2), |_, _| Ok(()));
                result.unwrap_or_else(|error| panic!("{name}: {error}"));
                check(&name, (3, 2), seen, &expected);
            }
        }
    }
}

#[test]
fn a_consumer_that_fails_or_panics_ends_the_run_of_all() {
    let expected = content(LEN);
    let scratch = Scratch::new(&expected);
    let source = Source::open(&scratch.0).unwrap();
    for (name, config) in configs() {
        for shape in [(1, 0), (3, 0), (3, 2)] {
            let count = shape.0 + usize::from(shape.1 > 0);
            for (who, at) in [(0, 0), (count - 1, 7), (count / 2, BLOCKS - 1)] {
                let name = format!("{name} {shape:?}: {who} stops at {at}");
                let _watchdog = Watchdog::of(&name);
                let plan = plan_for(&source, &config, threads_of(shape));
                let stops = |number, block: &Block<'_>| number == who && block.index == at;
                let (result, _) =
                    collect(&source, &plan, shape, |number, block| match stops(number, block) {
                        true => Err("this is enough".into()),
                        false => Ok(()),
                    });
                match result.expect_err(&name).kind {
                    ErrorKind::Consumer(why) => assert_eq!(why.to_string(), "this is enough"),
                    other => panic!("{name}: {other}"),
                }
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    collect(&source, &plan, shape, |number, block| match stops(number, block) {
                        // A panic, without the message and backtrace of one.
                        true => resume_unwind(Box::new("this is too much")),
                        false => Ok(()),
                    })
                }));
                let payload = caught.err().unwrap_or_else(|| panic!("{name}: no panic"));
                assert_eq!(payload.downcast_ref(), Some(&"this is too much"), "{name}");
                // The plan works for another run.
                let (result, seen) = collect(&source, &plan, shape, |_, _| Ok(()));
                result.unwrap_or_else(|error| panic!("{name}, again: {error}"));
                check(&name, shape, seen, &expected);
            }
        }
    }
}

#[test]
fn a_file_that_changes_fails_the_run() {
    type Meddle = fn(&File);
    let cases: [(&str, Meddle); 3] = [
        ("grows", |file| file.set_len(LEN + 5000).unwrap()),
        ("shrinks", |file| file.set_len(LEN / 2).unwrap()),
        ("is rewritten", |file| std::os::unix::fs::FileExt::write_all_at(file, b"!", 5).unwrap()),
    ];
    for (what, meddle) in cases {
        for (name, config) in configs() {
            let name = format!("{name}: {what}");
            let _watchdog = Watchdog::of(&name);
            let scratch = Scratch::new(&content(LEN));
            let source = Source::open(&scratch.0).unwrap();
            let writer = scratch.open_to_write();
            let plan = plan_for(&source, &config, 5);
            let (result, _) = collect(&source, &plan, (3, 2), |number, block| {
                if number == 1 && block.index == 2 {
                    meddle(&writer);
                }
                Ok(())
            });
            let error = result.expect_err(&name);
            assert!(matches!(error.kind, ErrorKind::Changed(_)), "{name}: {error}");
        }
    }
}

/// A pipe that gets `pieces` of the content, one after another.
fn pipe_of(data: Vec<u8>, pieces: impl Iterator<Item = usize> + Send + 'static) -> PipeReader {
    let (reader, mut writer) = std::io::pipe().unwrap();
    thread::spawn(move || {
        let mut left = &data[..];
        for piece in pieces {
            let (now, later) = left.split_at(piece.min(left.len()));
            // Some tests close the reading end.
            if now.is_empty() || writer.write_all(now).is_err() {
                return;
            }
            left = later;
        }
    });
    reader
}

fn stream(reader: PipeReader) -> Source {
    Source::from_file(File::from(OwnedFd::from(reader)), "-").unwrap()
}

/// Sizes of writes to a pipe.
type Pieces = Box<dyn Iterator<Item = usize> + Send>;

#[test]
fn every_consumer_sees_all_of_a_stream() {
    for len in [0, 1, 1000, 65_535, 65_536, 65_537, 3_000_000] {
        let expected = content(len);
        // In one write, in odd pieces, and in pieces just below a page.
        let pieces: [fn() -> Pieces; 3] = [
            || Box::new(std::iter::repeat(usize::MAX)),
            || Box::new((0..).map(|i| 1 + i * 7919 % 100_003)),
            || Box::new(std::iter::repeat(4093)),
        ];
        for pieces in pieces {
            for block_bytes in [None, Some(4096), Some(BLOCK_BYTES)] {
                for (threads_max, slots) in [(None, None), (Some(1), None), (Some(9), Some(1))] {
                    for shape in SHAPES {
                        let consumers = threads_of(shape);
                        let config = Config::default().with(|config| {
                            config.io.block_bytes = block_bytes;
                            config.io.threads_max = threads_max;
                            config.io.slots = slots;
                        });
                        let name =
                            format!("{shape:?} {len} bytes, {block_bytes:?} {threads_max:?}");
                        let _watchdog = Watchdog::of(&name);
                        let source = stream(pipe_of(expected.clone(), pieces()));
                        let plan = plan_for(&source, &config, consumers);
                        let (result, seen) = collect(&source, &plan, shape, |_, _| Ok(()));
                        result.unwrap_or_else(|error| panic!("{name}: {error}"));
                        check(&name, shape, seen, &expected);
                    }
                }
            }
        }
    }
}

#[test]
fn a_consumer_that_fails_or_panics_ends_the_run_of_a_stream() {
    for shape in [(1, 0), (3, 0), (3, 2)] {
        for at in [0, 5] {
            for panics in [false, true] {
                let name = format!("{shape:?}, {at}, panics: {panics}");
                let _watchdog = Watchdog::of(&name);
                let source = stream(pipe_of(content(3_000_000), std::iter::repeat(10_007)));
                let config = Config::default().with(|config| {
                    config.io.block_bytes = Some(BLOCK_BYTES);
                    config.io.threads_max = Some(9);
                });
                let plan = plan_for(&source, &config, threads_of(shape));
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    collect(&source, &plan, shape, |number, block| {
                        match (number, block.index == at) {
                            (0, true) if panics => resume_unwind(Box::new("this is too much")),
                            (0, true) => Err("this is enough".into()),
                            _ => Ok(()),
                        }
                    })
                }));
                match caught {
                    Ok((result, _)) => {
                        let error = result.expect_err(&name);
                        assert!(matches!(error.kind, ErrorKind::Consumer(_)), "{name}: {error}");
                        assert!(!panics, "{name}: no panic");
                    }
                    Err(payload) => {
                        assert_eq!(payload.downcast_ref(), Some(&"this is too much"), "{name}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_file_of_a_pseudo_file_system_goes_to_all() {
    let source = Source::open("/proc/self/mountinfo").unwrap();
    let expected = std::fs::read("/proc/self/mountinfo").unwrap();
    let config = Config::default().with(|config| config.io.threads_max = Some(9));
    let plan = plan_for(&source, &config, 5);
    let (result, seen) = collect(&source, &plan, (3, 2), |_, _| Ok(()));
    result.unwrap();
    check("/proc", (3, 2), seen, &expected);
}

/// A truncation under a mapping that all consumers read.
#[test]
fn a_truncation_under_a_shared_mapping_is_survived() {
    let scratch = Scratch::new(&content(LEN));
    let source = Source::open(&scratch.0).unwrap();
    let config = config(EngineKind::Mmap, CacheMode::Buffered, 0);
    let config = config.with(|config| {
        config.io.workers = None;
        config.io.threads_max = Some(9);
    });
    let plan = plan_for(&source, &config, 5);
    let _watchdog = Watchdog::of("mmap");
    let (result, _) = collect(&source, &plan, (3, 2), |number, block| {
        if number == 2 && block.index == 2 {
            scratch.open_to_write().set_len(1000).unwrap();
        }
        Ok(())
    });
    match &result.unwrap_err().kind {
        ErrorKind::Changed(Change::Shrank { from: LEN, to: 1000 }) => {}
        other => panic!("{other}"),
    }
}
