//! Scattered reads: every engine returns the same bytes for the same extents, and what fails, fails alone.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use blockring::{
    Batch, BatchReader, CacheMode, Config, EngineKind, Error, Extent, Order, Source, SourceKind,
};

use super::{allow_mmap, plan, skip};

const LEN: u64 = 3_000_001;

/// Content that depends on its offset.
fn content() -> Vec<u8> {
    (0..LEN).map(|i| (i % 251) as u8).collect()
}

fn read_once(source: &Source, extents: &[Extent]) -> Result<Batch, Error> {
    BatchReader::new(source, &Config::default()).unwrap().read_batch(extents)
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("batches-{name}-{}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, content()).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Every engine with its cache modes on this source.
fn configs(source: &Source) -> Vec<(String, Config)> {
    let mut configs = vec![("auto".to_owned(), Config::default())];
    let is_random = |engine: &EngineKind| !matches!(engine, EngineKind::Null | EngineKind::Stream);
    for engine in EngineKind::ALL.into_iter().filter(is_random) {
        for cache in CacheMode::ALL {
            let config = Config::default().allow_mmap(allow_mmap()).with(|config| {
                config.io.engine = Some(engine);
                config.io.cache = Some(cache);
            });
            match plan(source, &config, Order::AnyOrder) {
                Ok(_) => configs.push((format!("{engine} {cache}"), config)),
                // A mapping shows the page cache; a loop device may lack modes.
                Err(_) if engine == EngineKind::Mmap => {}
                Err(_) if source.kind() == SourceKind::BlockDevice => {}
                Err(error) => skip(&format!("{engine} {cache}: {error}")),
            }
        }
    }
    configs
}

/// Extents of every kind: adjacent, overlapping, repeated, empty, long, the last byte; in no order.
fn extents() -> Vec<Extent> {
    let mut extents: Vec<_> = (0..500_u64)
        .map(|i| Extent { offset: i * 7_919_777 % (LEN - 5000), len: (i % 5000) as u32 })
        .collect();
    let more = [(0, 1), (LEN - 1, 1), (4096, 4096), (8192, 4096), (8000, 400), (8000, 400), (5, 0)];
    extents.extend(more.map(|(offset, len)| Extent { offset, len }));
    extents.push(Extent { offset: 100_001, len: 1_500_000 });
    extents
}

#[test]
fn every_engine_returns_the_same_bytes_by_index() {
    let scratch = Scratch::new("same");
    let source = Source::open(&scratch.0).unwrap();
    let (content, extents) = (content(), extents());
    for (name, config) in configs(&source) {
        for (depth, block_bytes) in [(None, None), (Some(1), Some(4096)), (Some(7), Some(1 << 20))]
        {
            let config = config.clone().with(|config| {
                config.io.queue_depth = depth;
                config.io.block_bytes = block_bytes;
                config.observe.stats = true;
            });
            let mut reader = BatchReader::new(&source, &config).unwrap();
            // The second batch uses the ring of the first.
            for round in 0..2 {
                let batch = reader.read_batch(&extents).unwrap();
                assert_eq!(batch.iter().count(), extents.len());
                for (index, (extent, bytes)) in extents.iter().zip(batch.iter()).enumerate() {
                    let bytes = bytes.unwrap_or_else(|e| panic!("{name} {extent:?}: {e}"));
                    let expected = &content[extent.offset as usize..][..extent.len as usize];
                    assert!(bytes == expected, "{name}, {index}, round {round}: {extent:?}");
                }
            }
            let stats = reader.plan().stats().unwrap();
            // Adjacent extents are joined and long ones cut, in both rounds.
            let most = 2
                * (extents.len() as u64 + 3_000_000 / u64::from(block_bytes.unwrap_or(128 << 10)));
            assert!(stats.requests <= most, "{name}: {stats:?}");
            assert!(stats.in_flight.len() <= depth.unwrap_or(128) as usize, "{name}: {stats:?}");
        }
    }
}

#[test]
fn adjacent_extents_become_one_read() {
    let scratch = Scratch::new("adjacent");
    let source = Source::open(&scratch.0).unwrap();
    let config = Config::default().with(|config| config.observe.stats = true);
    let mut reader = BatchReader::new(&source, &config).unwrap();
    let extents: Vec<_> = (0..32).map(|i| Extent { offset: i * 4096, len: 4096 }).collect();
    reader.read_batch(&extents).unwrap();
    assert_eq!(reader.plan().stats().unwrap().requests, 1);
}

#[test]
fn an_extent_past_the_end_fails_alone() {
    let scratch = Scratch::new("end");
    let source = Source::open(&scratch.0).unwrap();
    let places = [(LEN - 4, 4), (LEN - 4, 5), (LEN, 1), (u64::MAX, 9), (0, 4)];
    let extents = places.map(|(offset, len)| Extent { offset, len });
    let batch = read_once(&source, &extents).unwrap();
    let kinds: Vec<_> = batch.iter().map(|r| r.map(<[u8]>::len).map_err(io::Error::kind)).collect();
    let eof = Err(io::ErrorKind::UnexpectedEof);
    assert_eq!(kinds, [Ok(4), eof, eof, eof, Ok(4)]);
    // A file that shrank since it was opened.
    OpenOptions::new().write(true).open(&scratch.0).unwrap().set_len(1_000_000).unwrap();
    let places = [(2_000_000, 4), (999_996, 4), (999_998, 4)];
    let extents = places.map(|(offset, len)| Extent { offset, len });
    for (name, config) in configs(&source) {
        let batch = BatchReader::new(&source, &config).unwrap().read_batch(&extents).unwrap();
        let ok: Vec<_> = batch.iter().map(|result| result.is_ok()).collect();
        // The last two are one read, which the file has only a part of: that part is not lost.
        assert_eq!(ok, [false, true, false], "{name}");
    }
    assert!(read_once(&source, &[]).unwrap().iter().next().is_none());
}

#[test]
fn a_pipe_and_the_engine_stream_are_refused() {
    let (reader, _writer) = io::pipe().unwrap();
    let pipe = Source::from_file(File::from(std::os::fd::OwnedFd::from(reader)), "-").unwrap();
    let error = BatchReader::new(&pipe, &Config::default()).unwrap_err();
    assert!(error.to_string().contains("not seekable"), "{error}");
    let scratch = Scratch::new("stream");
    let source = Source::open(&scratch.0).unwrap();
    let config = Config::default().with(|config| config.io.engine = Some(EngineKind::Stream));
    let error = BatchReader::new(&source, &config).unwrap_err();
    assert!(error.to_string().contains("reads in order"), "{error}");
}

/// A loop device, undone on drop.
struct Loop(String);

impl Loop {
    fn over(backing: &Path) -> Option<Loop> {
        let output =
            Command::new("losetup").args(["--find", "--show"]).arg(backing).output().ok()?;
        let device = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        output.status.success().then_some(Loop(device))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn an_io_error_loses_no_other_extent() {
    let scratch = Scratch::new("error");
    fs::write(&scratch.0, vec![7; 8 << 20]).unwrap();
    let Some(device) = Loop::over(&scratch.0) else {
        let _ = io::Write::write_all(
            &mut io::stderr(),
            b"SKIP an I/O error in a batch: no loop device\n",
        );
        return;
    };
    let source = Source::open(&device.0).unwrap();
    // The backing file loses its second half: the kernel itself reports EIO there.
    OpenOptions::new().write(true).open(&scratch.0).unwrap().set_len(4 << 20).unwrap();
    // Some are adjacent, among them the last good one and the first bad one.
    let offset = |i: u64| {
        if i < 40 { (i * 37 % 64) * (128 << 10) } else { (4 << 20) + i * 4096 - (52 << 12) }
    };
    let extents: Vec<_> = (0..64).map(|i| Extent { offset: offset(i), len: 4096 }).collect();
    for (name, config) in configs(&source) {
        rustix::fs::fadvise(&source, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let batch = BatchReader::new(&source, &config).unwrap().read_batch(&extents).unwrap();
        for (extent, result) in extents.iter().zip(batch.iter()) {
            match result {
                Ok(bytes) => {
                    assert!(extent.offset < 4 << 20 && bytes == [7; 4096], "{name} {extent:?}")
                }
                Err(error) => {
                    assert!(extent.offset >= 4 << 20, "{name} {extent:?}: {error}");
                    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{name} {extent:?}");
                }
            }
        }
    }
}

#[test]
fn a_wild_extent_and_an_empty_file_fail_no_other() {
    let scratch = Scratch::new("wild");
    let source = Source::open(&scratch.0).unwrap();
    let mut extents = vec![Extent { offset: 1 << 40, len: u32::MAX }; 100];
    extents.push(Extent { offset: 1, len: 3 });
    let batch = read_once(&source, &extents).unwrap();
    assert_eq!(batch.iter().filter(|result| result.is_ok()).count(), 1);
    assert_eq!(batch.get(100).unwrap(), &content()[1..4]);
    fs::write(&scratch.0, "").unwrap();
    let source = Source::open(&scratch.0).unwrap();
    let batch = read_once(&source, &[Extent { offset: 0, len: 0 }, Extent { offset: 0, len: 1 }]);
    let batch = batch.unwrap();
    assert!(batch.get(0).is_ok() && batch.get(1).is_err());
    // The deepest queue: memory stays bounded.
    let config = Config::default().with(|config| {
        config.io.queue_depth = Some(32_768);
        config.io.block_bytes = Some(64 << 20);
        config.io.engine = Some(EngineKind::Pool);
    });
    let scratch = Scratch::new("deep");
    let source = Source::open(&scratch.0).unwrap();
    let mut reader = BatchReader::new(&source, &config).unwrap();
    let batch = reader.read_batch(&[Extent { offset: 0, len: LEN as u32 }]).unwrap();
    assert!(batch.get(0).unwrap() == content());
    let plan = reader.plan().to_string();
    assert!(plan.contains("in a batch") && plan.contains("64 MiB"), "{plan}");
}
