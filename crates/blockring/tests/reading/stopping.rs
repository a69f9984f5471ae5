//! A request to stop ends every run that shares it, whatever the run waits for.

use std::fs::File;
use std::io::{self, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use blockring::{Config, ErrorKind, Order, RateLimit, Source, Stop};

use super::{BLOCK_BYTES, BLOCKS, LEN, Scratch, config, content, plan, strategies};

/// Far longer than the 50 ms that a run takes to notice, and far shorter than what it would wait.
const SOON: Duration = Duration::from_secs(5);

fn with_stop(config: Config) -> (Config, Stop) {
    let stop = Stop::default();
    (config.with(|config| config.io.stop = Some(stop.clone())), stop)
}

fn is_stopped(result: &Result<(), blockring::Error>) -> bool {
    matches!(result, Err(error) if matches!(error.kind, ErrorKind::Stopped))
}

#[test]
fn a_run_ends_in_the_middle() {
    let scratch = Scratch::new(&content(LEN));
    for (engine, cache) in strategies() {
        for (order, workers) in [(Order::InOrder, 0), (Order::InOrder, 1), (Order::AnyOrder, 2)] {
            let (config, stop) = with_stop(config(engine, cache, workers));
            let source = Source::open(&scratch.0).unwrap();
            let plan = plan(&source, &config, order).unwrap();
            let seen = AtomicU64::new(0);
            let consume = |_: blockring::Block<'_>| {
                if seen.fetch_add(1, Ordering::Relaxed) == 3 {
                    stop.stop();
                }
                thread::sleep(Duration::from_millis(1));
                Ok(())
            };
            let result = match order {
                Order::InOrder => plan.in_order(&source, consume),
                Order::AnyOrder => plan.any_order(&source, consume),
            };
            assert!(is_stopped(&result), "{engine} {cache} {order} {workers}: {result:?}");
            assert!(seen.into_inner() < BLOCKS, "{engine} {cache} {order} {workers}");
            // It is for good, and for all that share it.
            let again = plan.in_order(&source, |_| panic!("a block after the stop"));
            assert!(is_stopped(&again), "{engine} {cache}: {again:?}");
        }
    }
}

#[test]
fn a_wait_for_a_rate_limit_ends() {
    let scratch = Scratch::new(&content(LEN));
    let (config, stop) = with_stop(Config::default());
    let config = config.with(|config| {
        config.io.block_bytes = Some(BLOCK_BYTES);
        config.io.rate_limit = Some(RateLimit::new(NonZero::new(BLOCK_BYTES.into()).unwrap()));
    });
    let source = Source::open(&scratch.0).unwrap();
    let plan = plan(&source, &config, Order::InOrder).unwrap();
    let start = Instant::now();
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            stop.stop();
        });
        plan.in_order(&source, |_| Ok(()))
    });
    assert!(is_stopped(&result), "{result:?}");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[test]
fn a_wait_for_the_bytes_of_a_pipe_ends() {
    for workers in [0, 2] {
        let (from, mut feed) = io::pipe().unwrap();
        let source = Source::from_file(File::from(OwnedFd::from(from)), "-").unwrap();
        let (config, stop) = with_stop(Config::default());
        let config = config.with(|config| config.io.workers = Some(workers));
        let plan = plan(&source, &config, Order::AnyOrder).unwrap();
        let start = Instant::now();
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                feed.write_all(b"some bytes, and then nothing for a long time").unwrap();
                thread::sleep(Duration::from_millis(200));
                stop.stop();
            });
            plan.any_order(&source, |_| Ok(()))
        });
        assert!(is_stopped(&result), "{result:?}");
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        // What the pipe gets later is for its next reader.
        feed.write_all(b"later").unwrap();
        let unread = rustix::io::ioctl_fionread(&source).unwrap();
        assert_eq!(unread, 5);
    }
}

#[test]
fn a_stop_that_is_not_made_changes_nothing() {
    let scratch = Scratch::new(&content(LEN));
    for (engine, cache) in strategies() {
        let (config, _stop) = with_stop(config(engine, cache, 1));
        let source = Source::open(&scratch.0).unwrap();
        let plan = plan(&source, &config, Order::AnyOrder).unwrap();
        let bytes = AtomicU64::new(0);
        plan.any_order(&source, |block| {
            bytes.fetch_add(block.bytes.len() as u64, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
        assert_eq!(bytes.into_inner(), LEN, "{engine} {cache}");
    }
}
