//! Pipes, filled and emptied by every method: the bytes that come out are those that went in.

use std::io::{self, PipeReader, PipeWriter, Read, Seek};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use blockring::{HugePages, Wait};
use ringbench::pipe_ends::{DoubleBuffer, read_some, splice_some, write_all};

const LEN: usize = 3_000_000;

/// Content that changes if pieces are swapped: its period is prime to every size.
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

fn lend(writer: PipeWriter, data: &[u8], wait: Wait) -> io::Result<()> {
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
    ("write", |writer, data| write_all(&writer, data)),
    ("vmsplice", |writer, data| lend(writer, data, Wait::Sleep)),
    ("vmsplice, busy", |writer, data| lend(writer, data, Wait::Spin)),
];

fn read(reader: PipeReader, wait: Wait) -> io::Result<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 100_000]);
    loop {
        match read_some(&reader, &mut buffer, wait)? {
            0 => return Ok(all),
            n => all.extend_from_slice(&buffer[..n]),
        }
    }
}

fn splice(reader: PipeReader, wait: Wait) -> io::Result<Vec<u8>> {
    let mut file = tempfile::tempfile()?;
    while splice_some(&reader, &file, 100_000, wait)? > 0 {}
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
fn the_bytes_arrive_unchanged() {
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
fn a_closed_reader_is_no_hang() {
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

/// The examples move the right bytes. (Their speed is not tested.)
#[test]
fn the_examples_move_bytes() {
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
