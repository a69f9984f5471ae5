//! `Shared`: many files through rings that they share, on one thread and on several: every byte of each
//! file once, one verdict for each, and one that fails alone.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use blockring::{
    Block, BoxError, CacheMode, Change, Config, EngineKind, ErrorKind, Feed, Member, Shared,
    Source, Uring,
};

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

/// Content of the file `number`, different for each, that changes when blocks are swapped: the period is
/// prime to every block size.
fn content(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i + 17 * number) % 251) as u8).collect()
}

/// Files on the disk that the build is on, which is a real one: the system's folder for temporary files
/// may be in memory.
struct Scratch {
    path: PathBuf,
    contents: Vec<Vec<u8>>,
}

impl Scratch {
    fn new(lengths: &[usize]) -> Scratch {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("shared-{}-{number}", std::process::id());
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
    fn members(&self, len_max: u64) -> Vec<Member<Seen>> {
        let fits = |i: &usize| self.contents[*i].len() as u64 <= len_max;
        let member = |i| Member { source: self.open(i), state: Seen::new(i) };
        (0..self.contents.len()).filter(fits).map(member).collect()
    }

    /// Takes down a block, unless it is not what the file has there.
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

/// What came of a file.
struct Seen {
    number: usize,
    /// Where its blocks start, and how long they are.
    blocks: Mutex<Vec<(u64, u64)>>,
}

impl Seen {
    fn new(number: usize) -> Seen {
        Seen { number, blocks: Mutex::default() }
    }

    /// Bytes of blocks that lie one after another from the start, with no byte twice and none left out.
    fn covered(&self) -> Option<u64> {
        let mut blocks = self.blocks.lock().unwrap().clone();
        blocks.sort_unstable();
        blocks.iter().try_fold(0, |at, &(offset, len)| (at == offset).then_some(at + len))
    }
}

/// Says on the real standard error, which the test harness does not hide, what is not tested. With
/// STRICT=1 that is a failure.
fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIP {why}");
    assert!(std::env::var_os("STRICT").is_none_or(|value| value != "1"), "STRICT: {why}");
}

/// Every engine that many files can be read with, or none in particular, and every cache mode: those that
/// can be had here.
fn ways(scratch: &Scratch) -> Vec<(String, Config)> {
    let engines = [EngineKind::IoUring, EngineKind::Libaio, EngineKind::Pool, EngineKind::Pread];
    let engines = [None].into_iter().chain(engines.map(Some));
    let caches = || [None].into_iter().chain(CacheMode::ALL.map(Some));
    let all = engines.flat_map(|engine| caches().map(move |cache| (engine, cache)));
    let has = |(engine, cache): (Option<EngineKind>, Option<CacheMode>)| {
        let config = Config { engine, cache, ..Config::default() };
        let word = |name: Option<&'static str>| name.unwrap_or("any");
        let (engine, cache) = (engine.map(EngineKind::name), cache.map(CacheMode::name));
        let name = format!("{} {}", word(engine), word(cache));
        match Shared::choose(&[scratch.open(0)], &config) {
            Ok(_) => Some((name, config)),
            Err(error) => {
                skip(&format!("{name}: {error}"));
                None
            }
        }
    };
    all.filter_map(has).collect()
}

/// The ways with something in flight at any time, whatever is in the page cache.
fn few_ways(scratch: &Scratch) -> Vec<(String, Config)> {
    let direct = |(_, config): &(String, Config)| config.cache == Some(CacheMode::Direct);
    ways(scratch).into_iter().filter(direct).collect()
}

/// Reads all of a feed on some threads. Returns what was said of each file, by its number.
fn read_all(
    case: &str,
    shared: &Shared,
    small: bool,
    threads: usize,
    feed: &Feed<'_, Seen>,
    block: impl Fn(&Seen, &Block<'_>) -> Result<(), BoxError> + Sync,
) -> Vec<(usize, Result<(), ErrorKind>)> {
    let told = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut reader = shared.reader(small).unwrap();
                let done = |seen: &Seen, source: &Source, result: Result<(), ErrorKind>| {
                    let all = seen.covered() == source.len();
                    assert!(result.is_err() || all, "{case}: file {} is not whole", seen.number);
                    told.lock().unwrap().push((seen.number, result));
                };
                reader.read(feed, |seen, b| block(seen, &b), done).unwrap();
            });
        }
    });
    let mut told = told.into_inner().unwrap();
    told.sort_by_key(|(number, _)| *number);
    told
}

/// A way to give out members one after another, from any thread.
fn dealing(members: Vec<Member<Seen>>) -> impl Fn() -> Option<Member<Seen>> + Send + Sync {
    let members = Mutex::new(members.into_iter());
    move || members.lock().unwrap().next()
}

/// The numbers of the files that a feed has begun, and that no reader has finished.
fn taken_back(feed: &mut Feed<'_, Seen>) -> Vec<usize> {
    let mut numbers = Vec::new();
    feed.abandon(|seen, source| {
        assert!(source.path().ends_with(seen.number.to_string()));
        numbers.push(seen.number);
    });
    numbers
}

/// What is said when all is well.
fn all_well(told: &[(usize, Result<(), ErrorKind>)]) -> Vec<usize> {
    told.iter().filter(|(_, result)| result.is_ok()).map(|(number, _)| *number).collect()
}

/// A block of a file that is larger than a slot would be read into the next one's memory, or nobody's.
#[test]
fn a_feed_of_larger_blocks_than_the_readers_is_refused() {
    let scratch = Scratch::new(&[3 << 20, 1]);
    let config = Config { engine: Some(EngineKind::Pread), ..Config::default() };
    let shared = Shared::choose(&[scratch.open(0)], &config).unwrap();
    let small = Config { block_bytes: Some(4096), ..config };
    let small = Shared::choose(&[scratch.open(0)], &small).unwrap();
    let feed = shared.feed(false, dealing(scratch.members(u64::MAX)));
    let mut reader = small.reader(false).unwrap();
    assert!(reader.block_bytes() < 3 << 20);
    let read = catch_unwind(AssertUnwindSafe(|| reader.read(&feed, |_, _| Ok(()), |_, _, _| ())));
    let panic = read.unwrap_err();
    let said = panic.downcast_ref::<String>().unwrap();
    assert!(said.contains("a feed of blocks of"), "{said}");
    // The other way round there is room.
    let feed = small.feed(false, dealing(scratch.members(u64::MAX)));
    let told = Mutex::new(0);
    let mut reader = shared.reader(false).unwrap();
    let done = |seen: &Seen, source: &Source, result: Result<(), ErrorKind>| {
        assert!(result.is_ok() && seen.covered() == source.len(), "{result:?}");
        *told.lock().unwrap() += 1;
    };
    reader.read(&feed, |seen, block| scratch.check("smaller", seen, &block), done).unwrap();
    assert_eq!(*told.lock().unwrap(), 2);
}

#[test]
fn every_byte_of_every_file_comes_once() {
    let scratch = Scratch::new(&LENGTHS);
    let mut runs = 0;
    let ways = ways(&scratch);
    for (name, config) in &ways {
        let config = Config { stats: true, ..config.clone() };
        for small in [false, true] {
            for threads in 1..=3 {
                let case = format!("{name} small: {small}, {threads} threads");
                let shared = Shared::choose(&[scratch.open(0), scratch.open(15)], &config).unwrap();
                let len_max = if small { shared.small_bytes_max() } else { u64::MAX };
                let members = scratch.members(len_max);
                let numbers: Vec<_> = members.iter().map(|member| member.state.number).collect();
                assert!(numbers.len() >= 9, "{case}");
                let bytes: u64 = members.iter().filter_map(|member| member.source.len()).sum();
                let mut feed = shared.feed(small, dealing(members));
                let check = |seen: &Seen, block: &Block<'_>| scratch.check(&case, seen, block);
                let told = read_all(&case, &shared, small, threads, &feed, check);
                // Each once, and all of them.
                assert_eq!(all_well(&told), numbers, "{case}: {told:?}");
                assert_eq!(told.len(), numbers.len(), "{case}: {told:?}");
                assert_eq!(shared.stats().unwrap().bytes, bytes, "{case}");
                assert_eq!(taken_back(&mut feed), [], "{case}: all were finished");
                runs += 1;
            }
        }
    }
    assert!(runs == ways.len() * 6 && runs >= 24, "the table was cut short: {runs}");
}

#[test]
fn blocks_are_as_long_as_the_reader_says() {
    let scratch = Scratch::new(&[3 << 20]);
    for small in [false, true] {
        let shared = Shared::choose(&[scratch.open(0)], &Config::default()).unwrap();
        let block_bytes = shared.reader(small).unwrap().block_bytes();
        assert!(block_bytes.is_power_of_two(), "{block_bytes}");
        let feed = shared.feed(small, dealing(scratch.members(u64::MAX)));
        let whole = |seen: &Seen, block: &Block<'_>| {
            assert!(block.offset.is_multiple_of(block_bytes), "{}", block.offset);
            let rest = scratch.contents[seen.number].len() as u64 - block.offset;
            assert_eq!(block.bytes.len() as u64, block_bytes.min(rest));
            scratch.check("blocks", seen, block)
        };
        let told = read_all("blocks", &shared, small, 2, &feed, whole);
        assert_eq!(all_well(&told), [0]);
    }
}

/// A feed may have nothing for now, and something later: the ring stays.
#[test]
fn a_reader_reads_one_feed_after_another() {
    let scratch = Scratch::new(&LENGTHS);
    for (name, config) in few_ways(&scratch) {
        let shared = Shared::choose(&[scratch.open(0)], &config).unwrap();
        let mut reader = shared.reader(false).unwrap();
        for round in 0..3 {
            let feed = shared.feed(false, dealing(scratch.members(u64::MAX)));
            let mut told = Vec::new();
            let check = |seen: &Seen, block: Block<'_>| scratch.check(&name, seen, &block);
            reader.read(&feed, check, |seen, _, result| told.push((seen.number, result))).unwrap();
            told.sort_by_key(|(number, _)| *number);
            let all: Vec<_> = (0..LENGTHS.len()).collect();
            assert_eq!(all_well(&told), all, "{name}, round {round}: {told:?}");
        }
        let none = shared.feed(false, || None);
        let nothing = |_: &Seen, _: Block<'_>| panic!("{name}: a block of nothing");
        reader.read(&none, nothing, |_, _, _| panic!("{name}: the end of nothing")).unwrap();
    }
}

#[test]
fn a_file_that_changes_fails_alone() {
    let lengths = [100_000, 70_000, 2 << 20, 4096, 3 << 20, 100_000, 1];
    for threads in [1, 3] {
        let all = Scratch::new(&lengths);
        for (name, config) in ways(&all) {
            let scratch = Scratch::new(&lengths);
            let case = format!("{name}, {threads} threads");
            let shared = Shared::choose(&[scratch.open(0)], &config).unwrap();
            let members = scratch.members(u64::MAX);
            scratch.open_to_write(1).set_len(0).unwrap();
            scratch.open_to_write(2).set_len((1 << 20) + 7).unwrap();
            scratch.open_to_write(5).set_len(100_001).unwrap();
            let feed = shared.feed(false, dealing(members));
            let check = |seen: &Seen, block: &Block<'_>| scratch.check(&case, seen, block);
            let told = read_all(&case, &shared, false, threads, &feed, check);
            let numbers: Vec<_> = told.iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6], "{case}: {told:?}");
            assert_eq!(all_well(&told), [0, 3, 4, 6], "{case}: {told:?}");
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
fn what_the_consumer_refuses_fails_alone() {
    let scratch = Scratch::new(&LENGTHS);
    for (name, config) in few_ways(&scratch) {
        for threads in [1, 3] {
            let case = format!("{name}, {threads} threads");
            let shared = Shared::choose(&[scratch.open(0)], &config).unwrap();
            let feed = shared.feed(false, dealing(scratch.members(u64::MAX)));
            let block = |seen: &Seen, block: &Block<'_>| match seen.number {
                4 | 15 => Err("enough of this".into()),
                _ => scratch.check(&case, seen, block),
            };
            let told = read_all(&case, &shared, false, threads, &feed, block);
            let numbers: Vec<_> = told.iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, (0..16).collect::<Vec<_>>(), "{case}: {told:?}");
            let refused = told.iter().filter(|(_, result)| match result {
                Err(ErrorKind::Consumer(error)) => error.to_string() == "enough of this",
                _ => false,
            });
            let refused: Vec<_> = refused.map(|(number, _)| *number).collect();
            assert_eq!(refused, [4, 15], "{case}: {told:?}");
            assert_eq!(all_well(&told).len(), 14, "{case}: {told:?}");
        }
    }
}

#[test]
fn what_no_reader_finishes_can_be_taken_back() {
    let scratch = Scratch::new(&LENGTHS);
    for (name, config) in few_ways(&scratch) {
        let shared = Shared::choose(&[scratch.open(0)], &config).unwrap();
        let given = AtomicU64::new(0);
        let members = dealing(scratch.members(u64::MAX));
        let mut feed = shared.feed(false, || {
            let member = members();
            given.fetch_add(u64::from(member.is_some()), Ordering::Relaxed);
            member
        });
        let mut told = Vec::new();
        let mut blocks = 0;
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let mut reader = shared.reader(false).unwrap();
            let panics = |seen: &Seen, block: Block<'_>| {
                blocks += 1;
                if blocks > 3 {
                    // Without a message: this one is meant.
                    resume_unwind(Box::new(()));
                }
                scratch.check(&name, seen, &block)
            };
            reader.read(&feed, panics, |seen, _, _| told.push(seen.number))
        }));
        assert!(ended.is_err(), "{name}: it did not panic");
        let finished = told.len();
        assert!(finished <= 3, "{name}: {told:?}");
        told.extend(taken_back(&mut feed));
        assert!(told.len() > finished, "{name}: nothing was taken back");
        told.sort_unstable();
        let begun: Vec<_> = (0..given.load(Ordering::Relaxed) as usize).collect();
        assert_eq!(told, begun, "{name}: each that was begun, once");
        assert_eq!(taken_back(&mut feed), [], "{name}: again");
    }
}

#[test]
fn a_whole_file_is_read_on_the_thread_itself() {
    let scratch = Scratch::new(&LENGTHS);
    let ways = [CacheMode::Buffered, CacheMode::Dontcache].map(Some);
    for cache in [None].into_iter().chain(ways) {
        let config = Config { cache, ..Config::default() };
        let Ok(shared) = Shared::choose(&[scratch.open(0)], &config) else { continue };
        for block_bytes in [1, 4096, 100_000, 4 << 20] {
            let mut buffer = vec![0; block_bytes];
            // Byte by byte only what is short.
            for (number, content) in scratch.contents.iter().enumerate() {
                if content.len() / block_bytes > 5000 {
                    continue;
                }
                let seen = Seen::new(number);
                let consume = |block: Block<'_>| scratch.check("here", &seen, &block);
                shared.read_here(&scratch.open(number), &mut buffer, consume).unwrap();
                assert_eq!(seen.covered(), Some(content.len() as u64), "by {block_bytes}");
            }
        }
        let source = scratch.open(9);
        scratch.open_to_write(9).set_len(1000).unwrap();
        let error = shared.read_here(&source, &mut [0; 4096], |_| Ok(())).unwrap_err();
        assert!(matches!(error, ErrorKind::Changed(Change::Shrank { .. })), "{error}");
        fs::write(scratch.path.join("9"), &scratch.contents[9]).unwrap();
    }
}

#[test]
fn what_only_one_file_can_have_is_refused() {
    let scratch = Scratch::new(&[1000]);
    let fixed = Uring { fixed_file: true, ..Uring::default() };
    let configs = [
        Config { block_bytes: Some(1), ..Config::default() },
        Config { uring: fixed, engine: Some(EngineKind::Pread), ..Config::default() },
    ];
    for config in configs {
        let error = Shared::choose(&[scratch.open(0)], &config).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error}");
        assert!(error.path().ends_with("0"), "{error}");
    }
    let medium = Config { medium: true, cache: Some(CacheMode::Buffered), ..Config::default() };
    assert!(Shared::choose(&[scratch.open(0)], &medium).is_err());
}
