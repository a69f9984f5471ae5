//! Streams: pipes are enlarged, read by threads that take turns, and passed on through a tee.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::thread;

use blockring::{
    Config, EngineKind, ErrorKind, Order, Plan, RunOptions, Source, Tee, TeeMode,
};

use super::{Scratch, content, plan};

const LEN: u64 = 3_000_000;

fn pipe_of(bytes: usize) -> (PipeReader, PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, bytes).unwrap();
    (reader, writer)
}

fn file(end: impl Into<OwnedFd>) -> File {
    File::from(end.into())
}

/// Threads that take turns see every byte once, whatever the sizes of writes.
#[test]
fn every_byte_of_a_pipe_comes_once_on_any_number_of_threads() {
    for (len, piece) in [(0, 1), (1, 1), (65_537, 65_537), (LEN, 10_007), (LEN, 1 << 20)] {
        let expected = content(len);
        for workers in [None, Some(0), Some(3)] {
            let (from, mut feed) = pipe_of(64 << 10);
            let source = Source::from_file(file(from), "-").unwrap();
            let config = Config::default().with(|config| {
                config.io.workers = workers;
                config.io.block_bytes = Some(64 << 10);
            });
            let plan = plan(&source, &config, Order::AnyOrder).unwrap();
            let got = Mutex::new(vec![0; len as usize]);
            let sum = Mutex::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    expected.chunks(piece).for_each(|piece| feed.write_all(piece).unwrap());
                    drop(feed);
                });
                plan.any_order(&source, |block| {
                    let at = block.offset as usize;
                    got.lock().unwrap()[at..at + block.bytes.len()].copy_from_slice(block.bytes);
                    *sum.lock().unwrap() += block.bytes.len();
                    Ok(())
                })
                .unwrap();
            });
            assert!(got.into_inner().unwrap() == expected, "{len} {piece} {workers:?}");
            assert_eq!(sum.into_inner().unwrap(), expected.len(), "{len} {piece} {workers:?}");
        }
    }
}

/// The engine `stream` reads a file at a position of its own, and leaves that of the caller alone.
#[test]
fn a_file_read_as_a_stream_keeps_its_position() {
    let scratch = Scratch::new(&content(LEN));
    let mut ours = File::open(&scratch.0).unwrap();
    ours.read_exact(&mut [0; 100]).unwrap();
    let source = Source::from_file(ours.try_clone().unwrap(), "-").unwrap();
    let config = Config::default().with(|config| config.io.engine = Some(EngineKind::Stream));
    let mut bytes = Vec::new();
    let plan = plan(&source, &config, Order::InOrder).unwrap();
    plan.in_order(&source, |block| {
        bytes.extend_from_slice(block.bytes);
        Ok(())
    })
    .unwrap();
    assert!(bytes == content(LEN)[100..]);
    assert_eq!(rustix::fs::tell(&ours).unwrap(), 100);
}

#[test]
fn a_stream_passes_through_a_tee_while_it_is_consumed() {
    let data = content(LEN);
    let modes = [(TeeMode::Copy, "read, write"), (TeeMode::Share, "shared pages")];
    for (workers, (mode, how)) in
        [None, Some(0), Some(3)].into_iter().flat_map(|workers| modes.map(|mode| (workers, mode)))
    {
        let ((from, mut feed), (mut far_end, to)) = (pipe_of(64 << 10), pipe_of(64 << 10));
        let source = Source::from_file(file(from), "-").unwrap();
        let config = Config::default().with(|config| config.io.workers = workers);
        let copy = tempfile::NamedTempFile::new().unwrap();
        let mut tee = Tee::default().output(file(to), "output", mode).unwrap();
        tee = tee.file(copy.reopen().unwrap(), copy.path());
        let run = RunOptions { tee: Some(&tee), ..RunOptions::default() };
        let plan = Plan::choose(&source, &config, &run).unwrap();
        assert!(plan.choices().iter().any(|c| c.what == "tee" && c.value == how), "{plan}");
        let blocks = Mutex::new(Vec::new());
        let (passed, copied) = thread::scope(|scope| {
            scope.spawn(|| {
                feed.write_all(&data).unwrap();
                drop(feed);
            });
            let passed = scope.spawn(|| {
                let mut all = Vec::new();
                far_end.read_to_end(&mut all).unwrap();
                all
            });
            plan.tee(&source, &mut tee, |block| {
                blocks.lock().unwrap().push((block.index, block.offset, block.bytes.to_vec()));
                Ok(())
            })
            .unwrap();
            tee.finish().unwrap();
            (passed.join().unwrap(), std::fs::read(copy.path()).unwrap())
        });
        assert!(passed == data && copied == data);
        let mut blocks = blocks.into_inner().unwrap();
        blocks.sort();
        let mut all = Vec::new();
        for (index, (number, offset, bytes)) in blocks.into_iter().enumerate() {
            assert_eq!((number, offset), (index as u64, all.len() as u64));
            all.extend(bytes);
        }
        assert!(all == data);
    }
}

#[test]
fn a_closed_output_ends_the_run() {
    let ((from, mut feed), (far_end, to)) = (pipe_of(64 << 10), pipe_of(64 << 10));
    drop(far_end);
    let source = Source::from_file(file(from), "-").unwrap();
    let plan = plan(&source, &Config::default(), Order::AnyOrder).unwrap();
    let mut tee = Tee::default().output(file(to), "output", TeeMode::Share).unwrap();
    feed.write_all(b"some").unwrap();
    let error = plan.tee(&source, &mut tee, |_| panic!("nothing to consume")).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Tee { bytes: 0, .. }), "{error}");
    tee.finish().unwrap();
}

/// A consumer's error on one thread ends the run on all, and a panic is passed on.
#[test]
fn a_consumer_ends_the_run() {
    let run = |from: PipeReader, panics: bool| {
        let source = Source::from_file(file(from), "-").unwrap();
        let config = Config::default().with(|config| {
            config.io.workers = Some(2);
            config.io.block_bytes = Some(16 << 10);
        });
        let plan = plan(&source, &config, Order::AnyOrder).unwrap();
        plan.any_order(&source, |block| match block.index {
            40 if panics => panic!("enough"),
            40 => Err("enough".into()),
            _ => Ok(()),
        })
    };
    for panics in [false, true] {
        let (from, mut feed) = pipe_of(64 << 10);
        let ended = thread::scope(|scope| {
            // Until the reading end is closed, or else for ever.
            scope.spawn(move || while feed.write_all(&[0; 4096]).is_ok() {});
            std::panic::catch_unwind(|| run(from, panics))
        });
        match ended {
            Ok(result) => {
                let error = result.unwrap_err();
                assert!(!panics && error.to_string() == "-: enough", "{error}");
            }
            Err(payload) => assert!(panics && payload.is::<&str>()),
        }
    }
}
