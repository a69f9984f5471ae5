//! Many files through one queue, on one thread and on several: every byte of each file once, one result
//! for each, and a file that fails, fails alone.

use std::fs::{self, File, OpenOptions};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use blockring::{
    Block, BoxError, CacheMode, Change, Config, EngineKind, ErrorKind, FileQueue, Plan, ReaderKind,
    RunOptions, Source,
};

use super::skip;

/// Lengths at every boundary: of a sector, a page, a small block, a block, and a few of them.
const LENGTHS: [usize; 16] = [
    1,
    2,
    4095,
    4096,
    4097,
    32_767,
    32_768,
    32_769,
    65_536,
    (512 << 10) - 1,
    512 << 10,
    (512 << 10) + 1,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
    3 << 20,
];

/// Content of file `number`, different for each, that changes when blocks are swapped: the period is prime
/// to every block size.
fn content(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i + 17 * number) % 251) as u8).collect()
}

/// Files on the disk that the build is on: the system's folder for temporary files may be in memory.
struct Scratch {
    path: PathBuf,
    contents: Vec<Vec<u8>>,
}

impl Scratch {
    fn new(lengths: &[usize]) -> Scratch {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("files-{}-{number}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        let contents: Vec<_> =
            lengths.iter().enumerate().map(|(i, len)| content(i, *len)).collect();
        for (i, content) in contents.iter().enumerate() {
            fs::write(path.join(i.to_string()), content).unwrap();
        }
        Scratch { path, contents }
    }

    fn open(&self, number: usize) -> Source {
        Source::open(self.path.join(number.to_string())).unwrap()
    }

    fn open_to_write(&self, number: usize) -> File {
        OpenOptions::new().write(true).open(self.path.join(number.to_string())).unwrap()
    }

    /// Every file of at most `len_max` bytes, in order.
    fn files(&self, len_max: u64) -> Vec<(Source, Seen)> {
        let fits = |i: &usize| self.contents[*i].len() as u64 <= len_max;
        let file = |i| (self.open(i), Seen::new(i));
        (0..self.contents.len()).filter(fits).map(file).collect()
    }

    /// Records a block, after comparing it with the content.
    fn check(&self, case: &str, seen: &Seen, block: &Block<'_>) -> Result<(), BoxError> {
        let content = &self.contents[seen.number];
        let end = block.offset as usize + block.bytes.len();
        let expected = content.get(block.offset as usize..end);
        assert!(expected == Some(block.bytes), "{case}: file {} at {}", seen.number, block.offset);
        seen.blocks.lock().unwrap().push((block.offset, block.bytes.len() as u64));
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The blocks of a file.
struct Seen {
    number: usize,
    /// Their offsets and lengths.
    blocks: Mutex<Vec<(u64, u64)>>,
}

impl Seen {
    fn new(number: usize) -> Seen {
        Seen { number, blocks: Mutex::default() }
    }

    /// Bytes of blocks, if they are adjacent from the start on, without overlaps and gaps.
    fn covered(&self) -> Option<u64> {
        let mut blocks = self.blocks.lock().unwrap().clone();
        blocks.sort_unstable();
        blocks.iter().try_fold(0, |at, &(offset, len)| (at == offset).then_some(at + len))
    }
}

fn choose(samples: &[Source], config: &Config) -> Result<Plan, blockring::Error> {
    Plan::choose_for_files(samples, config, &RunOptions::default())
}

/// Every engine and cache mode that many files can be read with here, and the automatic choice.
fn strategies(scratch: &Scratch) -> Vec<(String, Config)> {
    let engines = [EngineKind::IoUring, EngineKind::Libaio, EngineKind::Pool, EngineKind::Pread];
    let engines = [None].into_iter().chain(engines.map(Some));
    let caches = || [None].into_iter().chain(CacheMode::ALL.map(Some));
    let all = engines.flat_map(|engine| caches().map(move |cache| (engine, cache)));
    let has = |(engine, cache): (Option<EngineKind>, Option<CacheMode>)| {
        let config = Config::default().with(|config| {
            (config.io.engine, config.io.cache) = (engine, cache);
        });
        let word = |name: Option<&'static str>| name.unwrap_or("any");
        let (engine, cache) = (engine.map(EngineKind::name), cache.map(CacheMode::name));
        let name = format!("{} {}", word(engine), word(cache));
        match choose(&[scratch.open(0)], &config) {
            Ok(_) => Some((name, config)),
            Err(error) => {
                skip(&format!("{name}: {error}"));
                None
            }
        }
    };
    all.filter_map(has).collect()
}

/// The strategies with something in flight at any time, whatever is in the page cache.
fn direct_strategies(scratch: &Scratch) -> Vec<(String, Config)> {
    let direct = |(_, config): &(String, Config)| config.io.cache == Some(CacheMode::Direct);
    strategies(scratch).into_iter().filter(direct).collect()
}

/// Reads a queue on some threads. Returns the result of each file, by its number.
fn read_all(
    case: &str,
    plan: &Plan,
    kind: ReaderKind,
    threads: usize,
    queue: &FileQueue<'_, Seen>,
    block: impl Fn(&Seen, &Block<'_>) -> Result<(), BoxError> + Sync,
) -> Vec<(usize, Result<(), ErrorKind>)> {
    let told = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut reader = plan.reader(kind).unwrap();
                let done = |seen: &Seen, source: &Source, result: Result<(), ErrorKind>| {
                    let all = seen.covered() == source.len();
                    assert!(result.is_err() || all, "{case}: file {} is not whole", seen.number);
                    told.lock().unwrap().push((seen.number, result));
                };
                reader.read(queue, |seen, b| block(seen, &b), done).unwrap();
            });
        }
    });
    let mut told = told.into_inner().unwrap();
    told.sort_by_key(|(number, _)| *number);
    told
}

/// Returns files one after another, on any thread.
type Queued = (Source, Option<std::ops::Range<u64>>, Seen);

/// Whole files.
fn each_of(files: Vec<(Source, Seen)>) -> impl Fn() -> Option<Queued> + Send + Sync {
    let files = Mutex::new(files.into_iter());
    move || files.lock().unwrap().next().map(|(source, seen)| (source, None, seen))
}

/// The numbers of the files that a queue has begun, and that no reader has finished.
fn unfinished(queue: &mut FileQueue<'_, Seen>) -> Vec<usize> {
    let mut numbers = Vec::new();
    queue.take_unfinished(|seen, source| {
        assert!(source.path().ends_with(seen.number.to_string()));
        numbers.push(seen.number);
    });
    numbers
}

/// The files that were read.
fn succeeded(told: &[(usize, Result<(), ErrorKind>)]) -> Vec<usize> {
    told.iter().filter(|(_, result)| result.is_ok()).map(|(number, _)| *number).collect()
}

/// A block that is larger than a slot would be read into the next slot's memory, or past the slab.
#[test]
fn a_queue_of_larger_blocks_than_the_readers_is_refused() {
    let scratch = Scratch::new(&[3 << 20, 1]);
    let config = Config::default().with(|config| config.io.engine = Some(EngineKind::Pread));
    let plan = choose(&[scratch.open(0)], &config).unwrap();
    let small = config.with(|config| config.io.block_bytes = Some(4096));
    let small = choose(&[scratch.open(0)], &small).unwrap();
    let queue = plan.queue(ReaderKind::Large, each_of(scratch.files(u64::MAX)));
    let mut reader = small.reader(ReaderKind::Large).unwrap();
    let read = catch_unwind(AssertUnwindSafe(|| reader.read(&queue, |_, _| Ok(()), |_, _, _| ())));
    let panic = read.unwrap_err();
    let said = panic.downcast_ref::<String>().unwrap();
    assert!(said.contains("a queue of blocks of"), "{said}");
    // Smaller blocks fit.
    let queue = small.queue(ReaderKind::Large, each_of(scratch.files(u64::MAX)));
    let told = Mutex::new(0);
    let mut reader = plan.reader(ReaderKind::Large).unwrap();
    let done = |seen: &Seen, source: &Source, result: Result<(), ErrorKind>| {
        assert!(result.is_ok() && seen.covered() == source.len(), "{result:?}");
        *told.lock().unwrap() += 1;
    };
    reader.read(&queue, |seen, block| scratch.check("smaller", seen, &block), done).unwrap();
    assert_eq!(*told.lock().unwrap(), 2);
}

#[test]
fn every_byte_of_every_file_comes_once() {
    let scratch = Scratch::new(&LENGTHS);
    let mut runs = 0;
    let strategies = strategies(&scratch);
    for (name, config) in &strategies {
        let config = config.clone().with(|config| config.observe.stats = true);
        for kind in [ReaderKind::Large, ReaderKind::Small, ReaderKind::Cached] {
            for threads in 1..=3 {
                let case = format!("{name} {kind:?}, {threads} threads");
                let plan = choose(&[scratch.open(0), scratch.open(15)], &config).unwrap();
                let is_small = kind == ReaderKind::Small;
                let len_max = if is_small { 512 << 10 } else { u64::MAX };
                let files = scratch.files(len_max);
                let numbers: Vec<_> = files.iter().map(|(_, seen)| seen.number).collect();
                assert!(numbers.len() >= 9, "{case}");
                let bytes: u64 = files.iter().filter_map(|(source, _)| source.len()).sum();
                let mut queue = plan.queue(kind, each_of(files));
                let check = |seen: &Seen, block: &Block<'_>| scratch.check(&case, seen, block);
                let told = read_all(&case, &plan, kind, threads, &queue, check);
                // All of them, once each.
                assert_eq!(succeeded(&told), numbers, "{case}: {told:?}");
                assert_eq!(told.len(), numbers.len(), "{case}: {told:?}");
                assert_eq!(plan.stats().unwrap().bytes, bytes, "{case}");
                assert_eq!(unfinished(&mut queue), [], "{case}: all were finished");
                runs += 1;
            }
        }
    }
    assert!(runs == strategies.len() * 9 && runs >= 36, "the table was cut short: {runs}");
}

/// Parts of files, of any reader: their bytes alone, at their offsets in the file.
#[test]
fn parts_of_files() {
    let scratch = Scratch::new(&[3 << 20]);
    for (name, config) in strategies(&scratch) {
        let plan = choose(&[scratch.open(0)], &config).unwrap();
        for kind in [ReaderKind::Large, ReaderKind::Small, ReaderKind::Cached] {
            // The last two fail: one starts where direct reads may not, one ends past the end.
            let parts =
                [0..1, 4096..300_000, (1 << 20)..(3 << 20), 8192..8192, 100..200, 0..4 << 20];
            let next = Mutex::new(parts.iter().cloned().enumerate());
            let queue = plan.queue(kind, || {
                let (number, part) = next.lock().unwrap().next()?;
                Some((scratch.open(0), Some(part), number))
            });
            let (mut seen, mut told) = (vec![0; parts.len()], Vec::new());
            let block = |number: &usize, block: Block<'_>| {
                let part = &parts[*number];
                let end = block.offset + block.bytes.len() as u64;
                assert!(part.start <= block.offset && end <= part.end, "{name} {kind:?}");
                let expected = &scratch.contents[0][block.offset as usize..end as usize];
                assert!(block.bytes == expected, "{name} {kind:?}");
                seen[*number] += block.bytes.len() as u64;
                Ok(())
            };
            let done = |number: &usize, _: &Source, result: Result<(), ErrorKind>| {
                told.push((*number, result.is_ok()));
            };
            plan.reader(kind).unwrap().read(&queue, block, done).unwrap();
            told.sort_unstable();
            let expected = [(0, true), (1, true), (2, true), (3, true), (4, false), (5, false)];
            assert_eq!(told, expected, "{name} {kind:?}");
            assert_eq!(seen, [1, 295_904, 2 << 20, 0, 0, 0], "{name} {kind:?}");
        }
    }
}

/// Hashing relies on blocks that are subtrees.
#[test]
fn every_block_but_the_last_has_the_same_power_of_two() {
    let scratch = Scratch::new(&[(3 << 20) + 1]);
    for kind in [ReaderKind::Large, ReaderKind::Small, ReaderKind::Cached] {
        let plan = choose(&[scratch.open(0)], &Config::default()).unwrap();
        let queue = plan.queue(kind, each_of(scratch.files(u64::MAX)));
        let lengths = Mutex::new(Vec::new());
        let whole = |seen: &Seen, block: &Block<'_>| {
            if block.offset + (block.bytes.len() as u64) < scratch.contents[0].len() as u64 {
                lengths.lock().unwrap().push(block.bytes.len());
            }
            scratch.check("blocks", seen, block)
        };
        let told = read_all("blocks", &plan, kind, 2, &queue, whole);
        assert_eq!(succeeded(&told), [0]);
        let lengths = lengths.into_inner().unwrap();
        let first = lengths[0];
        assert!(first.is_power_of_two() && lengths.iter().all(|len| *len == first), "{lengths:?}");
    }
}

/// A queue may have nothing for now, and something later: the ring stays.
#[test]
fn a_reader_reads_one_queue_after_another() {
    let scratch = Scratch::new(&LENGTHS);
    for (name, config) in direct_strategies(&scratch) {
        let plan = choose(&[scratch.open(0)], &config).unwrap();
        let mut reader = plan.reader(ReaderKind::Large).unwrap();
        for round in 0..3 {
            let queue = plan.queue(ReaderKind::Large, each_of(scratch.files(u64::MAX)));
            let mut told = Vec::new();
            let check = |seen: &Seen, block: Block<'_>| scratch.check(&name, seen, &block);
            reader.read(&queue, check, |seen, _, result| told.push((seen.number, result))).unwrap();
            told.sort_by_key(|(number, _)| *number);
            let all: Vec<_> = (0..LENGTHS.len()).collect();
            assert_eq!(succeeded(&told), all, "{name}, round {round}: {told:?}");
        }
        let none = plan.queue(ReaderKind::Large, || None);
        let nothing = |_: &Seen, _: Block<'_>| panic!("{name}: a block of nothing");
        reader.read(&none, nothing, |_, _, _| panic!("{name}: the end of nothing")).unwrap();
    }
}

#[test]
fn a_file_that_changes_fails_alone() {
    let lengths = [100_000, 70_000, 2 << 20, 4096, 3 << 20, 100_000, 1];
    for threads in [1, 3] {
        let all = Scratch::new(&lengths);
        for (name, config) in strategies(&all) {
            let scratch = Scratch::new(&lengths);
            let case = format!("{name}, {threads} threads");
            let plan = choose(&[scratch.open(0)], &config).unwrap();
            let files = scratch.files(u64::MAX);
            scratch.open_to_write(1).set_len(0).unwrap();
            scratch.open_to_write(2).set_len((1 << 20) + 7).unwrap();
            scratch.open_to_write(5).set_len(100_001).unwrap();
            let queue = plan.queue(ReaderKind::Large, each_of(files));
            let check = |seen: &Seen, block: &Block<'_>| scratch.check(&case, seen, block);
            let told = read_all(&case, &plan, ReaderKind::Large, threads, &queue, check);
            let numbers: Vec<_> = told.iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6], "{case}: {told:?}");
            assert_eq!(succeeded(&told), [0, 3, 4, 6], "{case}: {told:?}");
            for (number, from, to) in [(1, 70_000, 0), (2, 2 << 20, (1 << 20) + 7)] {
                let change = Change::Shrank { from, to };
                let right = matches!(&told[number].1, Err(ErrorKind::Changed(c)) if *c == change);
                assert!(right, "{case}: {:?}", told[number]);
            }
            let grew = Change::Grew { from: 100_000, to: 100_001 };
            let right = matches!(&told[5].1, Err(ErrorKind::Changed(c)) if *c == grew);
            assert!(right, "{case}: {:?}", told[5]);
        }
    }
}

#[test]
fn a_file_that_the_consumer_refuses_fails_alone() {
    let scratch = Scratch::new(&LENGTHS);
    for (name, config) in direct_strategies(&scratch) {
        for threads in [1, 3] {
            let case = format!("{name}, {threads} threads");
            let plan = choose(&[scratch.open(0)], &config).unwrap();
            let queue = plan.queue(ReaderKind::Large, each_of(scratch.files(u64::MAX)));
            let block = |seen: &Seen, block: &Block<'_>| match seen.number {
                4 | 15 => Err("enough of this".into()),
                _ => scratch.check(&case, seen, block),
            };
            let told = read_all(&case, &plan, ReaderKind::Large, threads, &queue, block);
            let numbers: Vec<_> = told.iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, (0..16).collect::<Vec<_>>(), "{case}: {told:?}");
            let refused = told.iter().filter(|(_, result)| match result {
                Err(ErrorKind::Consumer(error)) => error.to_string() == "enough of this",
                _ => false,
            });
            let refused: Vec<_> = refused.map(|(number, _)| *number).collect();
            assert_eq!(refused, [4, 15], "{case}: {told:?}");
            assert_eq!(succeeded(&told).len(), 14, "{case}: {told:?}");
        }
    }
}

#[test]
fn what_no_reader_finishes_can_be_unfinished() {
    let scratch = Scratch::new(&LENGTHS);
    for (name, config) in direct_strategies(&scratch) {
        let plan = choose(&[scratch.open(0)], &config).unwrap();
        let given = AtomicU64::new(0);
        let files = each_of(scratch.files(u64::MAX));
        let mut queue = plan.queue(ReaderKind::Large, || {
            let file = files();
            given.fetch_add(u64::from(file.is_some()), Ordering::Relaxed);
            file
        });
        let mut told = Vec::new();
        let mut blocks = 0;
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let mut reader = plan.reader(ReaderKind::Large).unwrap();
            let panics = |seen: &Seen, block: Block<'_>| {
                blocks += 1;
                if blocks > 3 {
                    // A panic without a message.
                    resume_unwind(Box::new(()));
                }
                scratch.check(&name, seen, &block)
            };
            reader.read(&queue, panics, |seen, _, _| told.push(seen.number))
        }));
        assert!(ended.is_err(), "{name}: it did not panic");
        let finished = told.len();
        assert!(finished <= 3, "{name}: {told:?}");
        told.extend(unfinished(&mut queue));
        assert!(told.len() > finished, "{name}: nothing was taken back");
        told.sort_unstable();
        let begun: Vec<_> = (0..given.load(Ordering::Relaxed) as usize).collect();
        assert_eq!(told, begun, "{name}: each that was begun, once");
        assert_eq!(unfinished(&mut queue), [], "{name}: again");
    }
}

/// Empty files have no extents, and are done all the same; and a file may be read from the page cache by one
/// system call.
#[test]
fn small_and_empty_files_are_read_from_the_page_cache() {
    let scratch = Scratch::new(&[0, 1, 4096, 100_000, 0]);
    let plan = choose(&[scratch.open(3)], &Config::default()).unwrap();
    for kind in [ReaderKind::Large, ReaderKind::Small, ReaderKind::Cached] {
        let queue = plan.queue(kind, each_of(scratch.files(u64::MAX)));
        let check = |seen: &Seen, block: &Block<'_>| scratch.check("small", seen, block);
        let told = read_all("small", &plan, kind, 2, &queue, check);
        assert_eq!(succeeded(&told), [0, 1, 2, 3, 4], "{told:?}");
    }
    for (number, content) in scratch.contents.iter().enumerate() {
        let source = scratch.open(number);
        let mut buffer = vec![0; content.len()];
        assert!(plan.read_cached(&source, &mut buffer).unwrap());
        assert_eq!(&buffer, content);
        assert!(!plan.read_cached(&source, &mut vec![0; content.len() + 1]).unwrap());
    }
    let source = scratch.open(3);
    scratch.open_to_write(3).set_len(99_999).unwrap();
    // Nothing is returned of a file that is shorter now.
    assert!(!plan.read_cached(&source, &mut [0; 100_000]).unwrap_or(false));
}

#[test]
fn options_for_a_single_file_are_refused() {
    let scratch = Scratch::new(&[1000]);
    let small = Config::default().with(|config| config.io.block_bytes = Some(1));
    let fixed = Config::default().with(|config| {
        config.io.engine = Some(EngineKind::Pread);
        config.uring.fixed_file = true;
    });
    for config in [small, fixed] {
        let error = choose(&[scratch.open(0)], &config).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Config(_)), "{error}");
        assert!(error.path.ends_with("0"), "{error}");
    }
    let bypass = Config::default().with(|config| {
        config.io.bypass_cache = true;
        config.io.cache = Some(CacheMode::Buffered);
    });
    assert!(choose(&[scratch.open(0)], &bypass).is_err());
}
