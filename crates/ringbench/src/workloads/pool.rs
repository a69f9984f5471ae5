//! A server in small: requests that write blocks in sequence and make them durable, and that read random
//! ones back and verify them, carried out by a pool of threads with the plainest system calls.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use blockring::{Buffer, HugePages};
use hdrhistogram::Histogram;

use crate::args::Common;
use crate::cache::Cache;
use crate::case::{Case, Chart, Group, Metric, Missing, Sample, show_scaled};
use crate::interrupt;
use crate::runner::Rounds;
use crate::scratch::{self, Scratch};
use crate::session::{Cost, Planned, Session, Work};
use crate::together::{Together, together};
use crate::values::{parse_block, parse_size, parse_time, show_size};
use crate::workload::splitmix;
use crate::workload::target::{failed, refused};

/// A server in small: threads write blocks in sequence with fsync, and read and verify random ones.
///
/// Writes only to a file that it has made itself, and removes it. Never writes to a device.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A folder on the file system to be measured, or a file in it that does not exist yet
    #[arg(value_name = "FOLDER|NEW-FILE")]
    path: PathBuf,
    /// Write over NEW-FILE if it is a regular file that exists; all that is in it is lost
    #[arg(long)]
    destroy_existing: bool,
    /// Of the file
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    size: u64,
    /// Bytes of a block
    #[arg(short, long, value_name = "SIZE", default_value = "4K", value_parser = parse_block)]
    block_size: u32,
    /// Threads of the pool
    #[arg(short, long, value_name = "LIST", value_delimiter = ',',
        default_value = "2,4,8,16,32,64,128,256,512", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,
    /// So many requests read for each that writes
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    reads_per_write: u64,
    /// How long each sample goes on
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    time: Duration,
    #[command(flatten)]
    common: Common,
}

const ROUNDS: Rounds = Rounds::Auto { min: 3, max: 5 };

/// How a written block is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durable {
    No,
    Fsync,
    Fdatasync,
    OSync,
    ODsync,
}

/// How a block is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadBy {
    Pread,
    LseekRead,
    /// A stream of the standard library, which reads 8 KiB at a time.
    Stream,
}

/// One kind of pool.
#[derive(Debug, Clone, Copy)]
struct Pool {
    threads: u32,
    durable: Durable,
    read_by: ReadBy,
    direct: bool,
    /// Of so many requests one writes; 0: none, 1: all.
    write_each: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let (folder, bytes) = check(args)?;
    let mut session = Session::new("pool", &args.common, std::slice::from_ref(&folder))?;
    let blocks = bytes / u64::from(args.block_size);
    let room = vec![(folder.clone(), bytes)];
    if !session.announce(&Work { groups: plan(args, &args.path, blocks), room })? {
        return Ok(true);
    }
    // Removed at the end, if it is ours.
    let scratch = match &args.path {
        path if path.is_dir() => Some(Scratch::create(&folder)?),
        path if args.destroy_existing && path.exists() => None,
        path => Some(Scratch::create_at(path)?),
    };
    let path = scratch.as_ref().map_or(&*args.path, Scratch::path);
    session.measure_all(Work { groups: plan(args, path, blocks), room: Vec::new() })?;
    conclude(&mut session);
    session.finish()
}

/// The folder of the file, and how large that will be.
fn check(args: &Args) -> anyhow::Result<(PathBuf, u64)> {
    let path = &args.path;
    let bytes = if args.common.smoke { 256 << 10 } else { args.size };
    if bytes < u64::from(args.block_size) * 8 {
        bail!("a file of {} holds fewer than 8 blocks: take a larger --size", show_size(bytes));
    }
    match std::fs::symlink_metadata(path) {
        Ok(_) if path.is_dir() => Ok((path.clone(), bytes)),
        Ok(metadata) if !metadata.is_file() => {
            bail!("{}: it is no regular file, and nothing else is written to", path.display())
        }
        Ok(_) if !args.destroy_existing => bail!(
            "{}: it exists, and is left as it is: name a file that does not exist, or a folder, or say \
             --destroy-existing",
            path.display()
        ),
        _ => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new(".")).to_owned();
            if !folder.is_dir() {
                bail!("{}: there is no such folder", folder.display());
            }
            scratch::check_room(&folder, bytes)?;
            Ok((folder, bytes))
        }
    }
}

fn plan<'a>(args: &'a Args, path: &'a Path, blocks: u64) -> Vec<Planned<'a>> {
    let serving = Pool {
        threads: 1,
        durable: Durable::Fsync,
        read_by: ReadBy::Pread,
        direct: false,
        write_each: args.reads_per_write + 1,
    };
    let mut groups = vec![
        by_threads(args, path, blocks, "requests", serving),
        by_threads(
            args,
            path,
            blocks,
            "reads, direct",
            Pool { direct: true, write_each: 0, ..serving },
        ),
    ];
    groups.push(durable_group(args, path, blocks, Pool { write_each: 1, ..serving }));
    groups.push(reading_group(args, path, blocks, Pool { write_each: 0, ..serving }));
    groups
}

fn add<'a>(
    planned: &mut Planned<'a>,
    args: &Args,
    (path, blocks): (&'a Path, u64),
    case: Case,
    pool: Pool,
) {
    let time = if args.common.smoke { Duration::from_millis(3) } else { args.time };
    let block_bytes = args.block_size;
    let bytes = blocks * u64::from(block_bytes);
    let case = case
        .with("threads", pool.threads)
        .with("cache", if pool.direct { "direct" } else { "buffered" });
    if pool.direct && !block_bytes.is_multiple_of(512) {
        planned.add_missing(case, "direct reads and writes are of multiples of 512 bytes");
        return;
    }
    let cost = Cost { written_bytes: bytes, ..Cost::time(time.as_secs_f64() + 0.2) };
    planned.add(case, Cache::Any, cost, move || {
        let store = Store { path, blocks, block_bytes };
        store.serve(pool, time)
    });
}

fn by_threads<'a>(
    args: &'a Args,
    path: &'a Path,
    blocks: u64,
    name: &str,
    pool: Pool,
) -> Planned<'a> {
    let what = match pool.write_each {
        0 => "random reads, past the page cache".to_owned(),
        n => format!("one write with fsync for {} random reads", n - 1),
    };
    let about = format!("Requests a second ({what}), each verified, by the number of threads.");
    let lines = Chart::Lines { x: "threads".to_owned(), by: "cache".to_owned() };
    let mut planned =
        Planned::new(Group::new(name, about, Metric::OperationsPerS, lines), &[], ROUNDS);
    let threads = if args.common.smoke { &args.threads[..1] } else { &args.threads };
    for &threads in threads {
        let case = Case::new(format!("{threads} threads"));
        add(&mut planned, args, (path, blocks), case, Pool { threads, ..pool });
    }
    planned
}

fn durable_group<'a>(args: &'a Args, path: &'a Path, blocks: u64, pool: Pool) -> Planned<'a> {
    let about = "Blocks written in sequence a second, on one thread, by how they are made durable.";
    let group = Group::new("writes", about, Metric::OperationsPerS, Chart::Bars);
    let mut planned = Planned::new(group, &[], ROUNDS);
    for (name, durable) in [
        ("not at all", Durable::No),
        ("fsync", Durable::Fsync),
        ("fdatasync", Durable::Fdatasync),
        ("O_SYNC", Durable::OSync),
        ("O_DSYNC", Durable::ODsync),
    ] {
        for direct in [false, true] {
            let case = Case::new(format!("{name}{}", if direct { ", direct" } else { "" }));
            add(&mut planned, args, (path, blocks), case, Pool { durable, direct, ..pool });
        }
    }
    planned
}

fn reading_group<'a>(args: &'a Args, path: &'a Path, blocks: u64, pool: Pool) -> Planned<'a> {
    let about =
        "Random blocks read and verified a second, on one thread, by the way they are read.";
    let group = Group::new("reads, one thread", about, Metric::OperationsPerS, Chart::Bars);
    let mut planned = Planned::new(group, &[], ROUNDS);
    for (name, read_by, direct) in [
        ("pread", ReadBy::Pread, false),
        ("lseek and read", ReadBy::LseekRead, false),
        ("a buffered stream", ReadBy::Stream, false),
        ("pread, direct", ReadBy::Pread, true),
        ("lseek and read, direct", ReadBy::LseekRead, true),
    ] {
        add(&mut planned, args, (path, blocks), Case::new(name), Pool { read_by, direct, ..pool });
    }
    planned
}

/// A file of blocks, each of which says which one it is.
#[derive(Debug, Clone, Copy)]
struct Store<'a> {
    path: &'a Path,
    blocks: u64,
    block_bytes: u32,
}

/// What one thread of the pool did.
struct Done {
    reads: u64,
    writes: u64,
    read_ns: Histogram<u64>,
    write_ns: Histogram<u64>,
}

/// What the threads of the pool share.
struct Shared {
    /// Blocks that somebody writes, or has written.
    claimed: AtomicU64,
    written: Vec<AtomicBool>,
}

impl Store<'_> {
    /// What belongs into a block: noise that its number alone determines.
    fn fill(&self, index: u64, block: &mut [u8]) {
        let mut state = index ^ 0x5EED_B10C;
        for word in block.chunks_mut(8) {
            let noise = splitmix(&mut state).to_le_bytes();
            word.copy_from_slice(&noise[..word.len()]);
        }
    }

    fn verify(&self, index: u64, block: &[u8]) -> io::Result<()> {
        let mut state = index ^ 0x5EED_B10C;
        let same = |word: &[u8]| word == &splitmix(&mut state).to_le_bytes()[..word.len()];
        match block.chunks(8).map(same).fold(true, |all, same| all & same) {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "block {index}, at byte {}, is not what was written there",
                index * u64::from(self.block_bytes)
            ))),
        }
    }

    /// Lets a pool of threads work for so long.
    fn serve(&self, pool: Pool, time: Duration) -> Result<Sample, Missing> {
        self.prepare(pool).map_err(failed)?;
        let shared = Shared {
            claimed: AtomicU64::new(if pool.write_each == 0 { self.blocks } else { 0 }),
            written: (0..self.blocks).map(|_| AtomicBool::new(pool.write_each == 0)).collect(),
        };
        let served = together(
            pool.threads as usize,
            |_| self.open(pool),
            |number, handler, start| match handler {
                Ok(handler) => handler.work(&shared, number as u64, start + time),
                Err(error) => Err(std::mem::replace(error, io::ErrorKind::Other.into())),
            },
        );
        let Together { results, wall, cpu } =
            served.map_err(|error| Missing::Unavailable(error.to_string()))?;
        let served = results.into_iter().collect::<io::Result<_>>();
        let sample = served
            .map_err(|error| refused("one of the threads", &error))
            .and_then(|done| self.sample(done, wall, cpu));
        let verified = sample.and_then(|sample| {
            self.verify_all(&shared).map_err(failed)?;
            Ok(sample)
        });
        if verified.is_err() {
            // What is in it is not known: it is filled anew, not taken for full.
            let _ = File::options().write(true).open(self.path).and_then(|file| file.set_len(0));
        }
        verified
    }

    fn sample(&self, done: Vec<Done>, wall: Duration, cpu: Duration) -> Result<Sample, Missing> {
        let mut done = done.into_iter();
        let mut all = done.next().ok_or(Missing::Failed("there were no threads".to_owned()))?;
        for one in done {
            all.reads += one.reads;
            all.writes += one.writes;
            all.read_ns.add(one.read_ns).map_err(failed)?;
            all.write_ns.add(one.write_ns).map_err(failed)?;
        }
        let operations = all.reads + all.writes;
        if operations == 0 && interrupt::is_interrupted() {
            return Err(Missing::Unavailable("interrupted".to_owned()));
        }
        let latency = if all.reads > 0 { &all.read_ns } else { &all.write_ns };
        let mut sample = Sample {
            wall_s: wall.as_secs_f64(),
            cpu_s: Some(cpu.as_secs_f64()),
            bytes: operations * u64::from(self.block_bytes),
            operations,
            latency_ns: Some(latency.into()),
            ..Sample::default()
        };
        if all.reads > 0 && all.writes > 0 {
            sample.more.insert("writes".to_owned(), all.writes as f64);
            sample
                .more
                .insert("write_p99_ns".to_owned(), all.write_ns.value_at_quantile(0.99) as f64);
        }
        Ok(sample)
    }

    /// An empty file for a pool that writes, a full one for a pool that does not.
    fn prepare(&self, pool: Pool) -> anyhow::Result<()> {
        let context = || format!("{}", self.path.display());
        let file = OpenOptions::new().write(true).open(self.path).with_context(context)?;
        let len = self.blocks * u64::from(self.block_bytes);
        if pool.write_each > 0 {
            file.set_len(0).with_context(context)?;
        } else if file.metadata().with_context(context)?.len() != len {
            let mut block = vec![0; self.block_bytes as usize];
            let mut writer = io::BufWriter::with_capacity(1 << 20, &file);
            for index in 0..self.blocks {
                self.fill(index, &mut block);
                io::Write::write_all(&mut writer, &block).with_context(context)?;
            }
            io::Write::flush(&mut writer).with_context(context)?;
        }
        file.sync_all().with_context(context)
    }

    /// Every block that was written holds what was written.
    fn verify_all(&self, shared: &Shared) -> io::Result<()> {
        let file = File::open(self.path)?;
        let mut block = vec![0; self.block_bytes as usize];
        for (index, written) in shared.written.iter().enumerate() {
            if written.load(Ordering::Relaxed) && !interrupt::is_interrupted() {
                file.read_exact_at(&mut block, index as u64 * u64::from(self.block_bytes))?;
                self.verify(index as u64, &block)?;
            }
        }
        Ok(())
    }

    fn open(&self, pool: Pool) -> io::Result<Handler<'_>> {
        let flags = match pool.durable {
            Durable::OSync => libc::O_SYNC,
            Durable::ODsync => libc::O_DSYNC,
            _ => 0,
        } | if pool.direct { libc::O_DIRECT } else { 0 };
        let open =
            |flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(self.path);
        let memory = Buffer::new(self.block_bytes, HugePages::Off).map_err(io::Error::other)?;
        let stream = match pool.read_by {
            ReadBy::Stream => Some(BufReader::new(File::open(self.path)?)),
            _ => None,
        };
        Ok(Handler { store: self, pool, file: open(flags)?, stream, memory })
    }
}

/// One thread of the pool, with an open file of its own.
struct Handler<'a> {
    store: &'a Store<'a>,
    pool: Pool,
    file: File,
    stream: Option<BufReader<File>>,
    memory: Buffer,
}

impl Handler<'_> {
    fn work(&mut self, shared: &Shared, number: u64, end: Instant) -> io::Result<Done> {
        let histogram = || Histogram::<u64>::new(3).map_err(io::Error::other);
        let mut done = Done { reads: 0, writes: 0, read_ns: histogram()?, write_ns: histogram()? };
        let mut random = number;
        // Not all threads write at once.
        let mut request = number;
        loop {
            let began = Instant::now();
            if began >= end || interrupt::is_interrupted() {
                return Ok(done);
            }
            let took = |histogram: &mut Histogram<u64>| {
                // It grows with what it is given.
                let _ = histogram.record(began.elapsed().as_nanos() as u64);
            };
            if self.pool.write_each > 0 && request.is_multiple_of(self.pool.write_each) {
                let index = shared.claimed.fetch_add(1, Ordering::Relaxed);
                if index >= self.store.blocks {
                    // The file is full.
                    return Ok(done);
                }
                self.write(index)?;
                shared.written[index as usize].store(true, Ordering::Release);
                took(&mut done.write_ns);
                done.writes += 1;
            } else if let Some(index) = written(shared, self.store.blocks, &mut random) {
                self.read(index)?;
                took(&mut done.read_ns);
                done.reads += 1;
            } else {
                // Nobody has written anything yet.
                std::thread::yield_now();
                continue;
            }
            request += 1;
        }
    }

    fn write(&mut self, index: u64) -> io::Result<()> {
        self.store.fill(index, &mut self.memory);
        self.file.write_all_at(&self.memory, index * u64::from(self.store.block_bytes))?;
        match self.pool.durable {
            Durable::Fsync => self.file.sync_all(),
            Durable::Fdatasync => self.file.sync_data(),
            Durable::No | Durable::OSync | Durable::ODsync => Ok(()),
        }
    }

    fn read(&mut self, index: u64) -> io::Result<()> {
        let offset = index * u64::from(self.store.block_bytes);
        match (self.pool.read_by, &mut self.stream) {
            (ReadBy::Stream, Some(stream)) => {
                stream.seek(SeekFrom::Start(offset))?;
                stream.read_exact(&mut self.memory)?;
            }
            (ReadBy::LseekRead, _) => {
                self.file.seek(SeekFrom::Start(offset))?;
                self.file.read_exact(&mut self.memory)?;
            }
            _ => self.file.read_exact_at(&mut self.memory, offset)?,
        }
        self.store.verify(index, &self.memory)
    }
}

/// Some block that was written; `None` if it is hard to find one.
fn written(shared: &Shared, blocks: u64, random: &mut u64) -> Option<u64> {
    let claimed = shared.claimed.load(Ordering::Relaxed).min(blocks);
    (0..16).filter(|_| claimed > 0).find_map(|_| {
        let index = splitmix(random) % claimed;
        shared.written[index as usize].load(Ordering::Acquire).then_some(index)
    })
}

fn conclude(session: &mut Session<'_>) {
    for (group, key) in [("requests", "requests_per_s"), ("reads, direct", "direct_reads_per_s")] {
        let best = session.group(group).and_then(Group::best);
        let Some((name, rate)) = best.map(|(case, rate)| (case.name.clone(), rate)) else {
            continue;
        };
        session.result(key, rate);
        session.conclude(format!("{group}: most with {name}, {}/s.", show_scaled(rate).trim_end()));
    }
    let Some(writes) = session.group("writes").cloned() else { return };
    let of = |name: &str| writes.median(writes.case(name)?);
    if let (Some(none), Some(fsync)) = (of("not at all"), of("fsync")) {
        session.result("fsync_writes_per_s", fsync);
        session.conclude(format!(
            "A write with fsync takes {:.0} times as long as one without.",
            none / fsync
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_written_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        File::create(&path).unwrap();
        let store = Store { path: &path, blocks: 64, block_bytes: 4096 };
        let pool = Pool {
            threads: 3,
            durable: Durable::Fdatasync,
            read_by: ReadBy::Pread,
            direct: false,
            write_each: 2,
        };
        let sample = store.serve(pool, Duration::from_millis(50)).unwrap();
        assert!(sample.operations > 0 && sample.more["writes"] > 0.0, "{sample:?}");
        assert!(sample.latency_ns.unwrap().max > 100, "{sample:?}");
        let reading = Pool { write_each: 0, ..pool };
        for read_by in [ReadBy::Pread, ReadBy::LseekRead, ReadBy::Stream] {
            let pool = Pool { read_by, ..reading };
            assert!(store.serve(pool, Duration::from_millis(5)).unwrap().operations > 0);
        }
        // One bit of one block.
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let mut block = [0; 4096];
        store.fill(7, &mut block);
        block[4095] ^= 1;
        file.write_all_at(&block, 7 * 4096).unwrap();
        let missing = store.serve(reading, Duration::from_millis(5)).unwrap_err();
        assert!(missing.why().contains("at byte 28672, is not what was written"), "{missing:?}");
    }
}
