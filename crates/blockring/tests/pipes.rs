//! Pipes filled and emptied in every way there is: what comes out is what went in, whatever the sizes.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Seek};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use blockring::pipe::{self, DoubleBuffer, Wait};
use blockring::{Config, ErrorKind, HugePages, Onward, Order, Passing, Plan, Source};

const LEN: usize = 3_000_000;

/// Content that changes when pieces are swapped: the period is prime to every size.
fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

fn pipe_of(bytes: usize) -> (PipeReader, PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, bytes).unwrap();
    (reader, writer)
}

type Put = fn(PipeWriter, &[u8]) -> io::Result<()>;
type Take = fn(PipeReader) -> io::Result<Vec<u8>>;

fn give(writer: PipeWriter, data: &[u8], wait: Wait) -> io::Result<()> {
    for pages in [HugePages::Off, HugePages::Advise] {
        let half = &data[if pages == HugePages::Off { 0..LEN / 2 } else { LEN / 2..LEN }];
        let mut memory = DoubleBuffer::new(&writer, pages).unwrap();
        let len = memory.to_fill()?.len() - 7;
        for piece in half.chunks(len) {
            memory.to_fill()?[..piece.len()].copy_from_slice(piece);
            memory.send(piece.len(), wait)?;
        }
    }
    Ok(())
}

const PUTS: [(&str, Put); 3] = [
    ("write", |writer, data| pipe::put_by_write(&writer, data)),
    ("vmsplice", |writer, data| give(writer, data, Wait::Sleep)),
    ("vmsplice, busy", |writer, data| give(writer, data, Wait::Spin)),
];

fn read(reader: PipeReader, wait: Wait) -> io::Result<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 100_000]);
    loop {
        match pipe::take_by_read(&reader, &mut buffer, wait)? {
            0 => return Ok(all),
            n => all.extend_from_slice(&buffer[..n]),
        }
    }
}

fn splice(reader: PipeReader, wait: Wait) -> io::Result<Vec<u8>> {
    let mut file = tempfile::tempfile()?;
    while pipe::take_by_splice(&reader, &file, 100_000, wait)? > 0 {}
    let mut all = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut all)?;
    Ok(all)
}

const TAKES: [(&str, Take); 4] = [
    ("read", |reader| read(reader, Wait::Sleep)),
    ("read, busy", |reader| read(reader, Wait::Spin)),
    ("splice", |reader| splice(reader, Wait::Sleep)),
    ("splice, busy", |reader| splice(reader, Wait::Spin)),
];

#[test]
fn what_comes_out_is_what_went_in() {
    let data = content(LEN);
    for size in [4096, 64 << 10, 1 << 20] {
        for (put_name, put) in PUTS {
            for (take_name, take) in TAKES {
                let (reader, writer) = pipe_of(size);
                let got = thread::scope(|scope| {
                    let sent = scope.spawn(|| put(writer, &data));
                    let got = take(reader).unwrap();
                    sent.join().unwrap().unwrap();
                    got
                });
                assert!(got == data, "{put_name}, {take_name}, {size}: {} bytes", got.len());
            }
        }
    }
}

#[test]
fn a_reader_that_leaves_is_no_hang() {
    let data = content(LEN);
    for (name, put) in PUTS {
        let (mut reader, writer) = pipe_of(64 << 10);
        thread::scope(|scope| {
            let sent = scope.spawn(|| put(writer, &data));
            reader.read_exact(&mut [0; 1000]).unwrap();
            drop(reader);
            let error = sent.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{name}");
        });
    }
}

#[test]
fn a_pipe_is_enlarged_and_nothing_else() {
    let (reader, writer) = pipe_of(4096);
    let size = pipe::enlarge(&reader).unwrap();
    assert!(size.was == 4096 && size.is >= size.was && size.is <= pipe::BYTES_MAX, "{size:?}");
    let again = pipe::enlarge(&writer).unwrap();
    assert_eq!((again.was, again.is), (size.is, size.is));
    assert_eq!(pipe::enlarge(File::open("/dev/null").unwrap()), None);
}

/// The library's end of `--pass-through`.
#[test]
fn a_stream_goes_on_while_it_is_consumed() {
    let data = content(LEN);
    let ways = [(Passing::Copy, "read, write"), (Passing::Share, "shared pages")];
    for (workers, (passing, way)) in
        [None, Some(0), Some(3)].into_iter().flat_map(|workers| ways.map(|way| (workers, way)))
    {
        let ((from, mut feed), (mut far_end, to)) = (pipe_of(64 << 10), pipe_of(64 << 10));
        let source = Source::from_stream(file(from), "-").unwrap();
        let config = Config { workers, ..Config::default() };
        let mut plan = Plan::choose(&source, &config, Order::AnyOrder).unwrap();
        let copy = tempfile::NamedTempFile::new().unwrap();
        let mut onward = Onward::new().to_output(file(to), "output", passing).unwrap();
        onward = onward.to_file(copy.reopen().unwrap(), copy.path());
        plan.note_onward(&onward);
        assert!(plan.choices().iter().any(|c| c.what == "onward" && c.value == way), "{plan}");
        let blocks = Mutex::new(Vec::new());
        let (passed, onward) = thread::scope(|scope| {
            scope.spawn(|| {
                io::Write::write_all(&mut feed, &data).unwrap();
                drop(feed);
            });
            let passed = scope.spawn(|| {
                let mut all = Vec::new();
                far_end.read_to_end(&mut all).unwrap();
                all
            });
            plan.pass_on(&mut onward, |block| {
                blocks.lock().unwrap().push((block.index, block.offset, block.bytes.to_vec()));
                Ok(())
            })
            .unwrap();
            assert_eq!(onward.bytes(), LEN as u64);
            onward.finish().unwrap();
            (passed.join().unwrap(), std::fs::read(copy.path()).unwrap())
        });
        assert!(passed == data && onward == data);
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
fn an_output_that_takes_no_more_ends_the_run() {
    let ((from, mut feed), (far_end, to)) = (pipe_of(64 << 10), pipe_of(64 << 10));
    drop(far_end);
    let source = Source::from_stream(file(from), "-").unwrap();
    let plan = Plan::choose(&source, &Config::default(), Order::AnyOrder).unwrap();
    let mut onward = Onward::new().to_output(file(to), "output", Passing::Share).unwrap();
    io::Write::write_all(&mut feed, b"some").unwrap();
    let error = plan.pass_on(&mut onward, |_| panic!("nothing to consume")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Onward { bytes: 0, .. }), "{error}");
}

/// A consumer's error on one thread ends the run of all, and a panic comes out.
#[test]
fn a_consumer_ends_the_run() {
    let run = |from: PipeReader, panics: bool| {
        let source = Source::from_file(file(from), "-").unwrap();
        let config = Config { workers: Some(2), block_bytes: Some(16 << 10), ..Config::default() };
        let plan = Plan::choose(&source, &config, Order::AnyOrder).unwrap();
        plan.any_order(|block| match block.index {
            40 if panics => panic!("enough"),
            40 => Err("enough".into()),
            _ => Ok(()),
        })
    };
    for panics in [false, true] {
        let (from, mut feed) = pipe_of(64 << 10);
        let ended = thread::scope(|scope| {
            // Until nobody reads any more; or else for ever.
            scope.spawn(move || while io::Write::write_all(&mut feed, &[0; 4096]).is_ok() {});
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

fn file(end: impl Into<std::os::fd::OwnedFd>) -> File {
    File::from(end.into())
}

/// The examples do what the documentation says; whether that is fast is not for a test.
#[test]
fn the_examples_work() {
    let examples = std::env::current_exe().unwrap();
    let examples = examples.parent().and_then(|deps| deps.parent()).unwrap().join("examples");
    let example = |name: &str| Command::new(PathBuf::from(&examples).join(name));
    for (source, sink) in [
        (&["--write"][..], &["--check"][..]),
        (&["--huge"], &["--check"]),
        (&["--huge", "--spin", "--pipe", "256K"], &["--check", "--spin"]),
        (&["--same"], &["--splice", "--spin"]),
    ] {
        let mut from = example("pipe_source")
            .args(["--bytes", "5M"])
            .args(source)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = example("pipe_sink").args(sink).stdin(from.stdout.take().unwrap()).output();
        let to = to.unwrap();
        let said = String::from_utf8_lossy(&to.stderr);
        assert!(to.status.success() && said.starts_with("5242880 bytes, "), "{source:?}: {said}");
        assert!(from.wait().unwrap().success());
    }
}
