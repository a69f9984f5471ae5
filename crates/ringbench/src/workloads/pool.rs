//! `ringbench pool`: a small server, whose threads write blocks in sequence and make them durable, and read
//! random ones and verify them, by plain system calls.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use blockring::{Buffer, HugePages};
use fastrand::Rng;
use hdrhistogram::Histogram;

use crate::cli::args::PoolArgs;
use crate::model::case::{Case, Chart, Group, Metric, Missing, Sample, latencies};
use crate::model::units::show_size;
use crate::runner::scratch::Scratch;
use crate::runner::{Cache, Cost, GroupPlan, Rounds, Session, interrupt, together};

const ROUNDS: Rounds = Rounds { min: 7, max: 9 };

/// Size of the file in a smoke test, in bytes.
const SMOKE_BYTES: u64 = 256 << 10;

const REQUESTS: &str = "requests";
const DIRECT_READS: &str = "reads, direct";
const WRITES: &str = "writes";

pub(crate) fn run(args: &PoolArgs) -> anyhow::Result<bool> {
    let bytes = if args.run.smoke { SMOKE_BYTES } else { args.size };
    if bytes < u64::from(args.block_size) * 8 {
        bail!("a file of {} has fewer than 8 blocks: use a larger --size", show_size(bytes));
    }
    let folder = check_path(args)?;
    let mut session = Session::new("pool", &args.run, std::slice::from_ref(&folder));
    let blocks = bytes / u64::from(args.block_size);
    if !session.announce(&plan(args, &args.path, blocks), Some((&folder, bytes)))? {
        return Ok(true);
    }
    // Removed at the end, unless it is the user's.
    let scratch = match &args.path {
        path if path.is_dir() => Some(Scratch::create(&folder)?),
        path if args.destroy_existing && path.exists() => None,
        path => Some(Scratch::create_at(path)?),
    };
    let path = scratch.as_ref().map_or(&*args.path, Scratch::path);
    session.measure_all(plan(args, path, blocks));
    conclude(&mut session);
    session.finish()
}

/// Checks that nothing is overwritten unintentionally. Returns the folder of the file.
fn check_path(args: &PoolArgs) -> anyhow::Result<PathBuf> {
    let (path, name) = (&args.path, args.path.display());
    match std::fs::symlink_metadata(path) {
        Ok(_) if path.is_dir() => return Ok(path.clone()),
        Ok(metadata) if !metadata.is_file() => {
            bail!("{name}: not a regular file; only regular files are written")
        }
        Ok(_) if !args.destroy_existing => bail!(
            "{name}: the file exists and was not changed; use a new file, a folder, or --destroy-existing"
        ),
        _ => {}
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok(folder.unwrap_or(Path::new(".")).to_owned())
}

/// How a written block is made durable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durability {
    None,
    Fsync,
    Fdatasync,
    OSync,
    ODsync,
}

/// How a block is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadBy {
    Pread,
    LseekRead,
    /// A [`BufReader`], which reads 8 KiB at a time.
    Stream,
}

/// A server with a file of blocks. The number of a block determines its content.
#[derive(Clone, Copy)]
struct Server<'a> {
    path: &'a Path,
    blocks: u64,
    block_bytes: u32,
    threads: u32,
    durability: Durability,
    read_by: ReadBy,
    direct: bool,
    /// One of so many requests writes; 0 if none does.
    write_each: u64,
}

fn plan<'a>(args: &'a PoolArgs, path: &'a Path, blocks: u64) -> Vec<GroupPlan<'a>> {
    let one = Server {
        path,
        blocks,
        block_bytes: args.block_size,
        threads: 1,
        durability: Durability::Fsync,
        read_by: ReadBy::Pread,
        direct: false,
        write_each: 0,
    };
    let threads = if args.run.smoke { &args.jobs[..1] } else { &args.jobs };
    let by_threads = |server: Server<'a>| {
        threads
            .iter()
            .map(|&threads| (format!("{threads} threads"), Server { threads, ..server }))
            .collect()
    };
    let lines = || Chart::lines("threads", "cache");
    let mixed = format!(
        "Requests per second, one write with fsync for each {} random reads, all verified, by the number of \
         threads.",
        args.reads_per_write
    );
    let direct = "Random reads per second that bypass the page cache, all verified, by the number of threads.";
    let writes =
        "Blocks written in sequence per second, on one thread, by how they are made durable.";
    let reads = "Random blocks read and verified per second, on one thread, by the method.";
    let mixed_server = Server { write_each: args.reads_per_write + 1, ..one };
    vec![
        group(args, REQUESTS, &mixed, lines(), by_threads(mixed_server)),
        group(args, DIRECT_READS, direct, lines(), by_threads(Server { direct: true, ..one })),
        group(args, WRITES, writes, Chart::Bars, writers(one)),
        group(args, "reads, one thread", reads, Chart::Bars, readers(one)),
    ]
}

fn writers(one: Server<'_>) -> Vec<(String, Server<'_>)> {
    let mut writers = Vec::new();
    for (name, durability) in [
        ("not at all", Durability::None),
        ("fsync", Durability::Fsync),
        ("fdatasync", Durability::Fdatasync),
        ("O_SYNC", Durability::OSync),
        ("O_DSYNC", Durability::ODsync),
    ] {
        let server = Server { durability, write_each: 1, ..one };
        writers.push((name.to_owned(), server));
        writers.push((format!("{name}, direct"), Server { direct: true, ..server }));
    }
    writers
}

fn readers(one: Server<'_>) -> Vec<(String, Server<'_>)> {
    let readers = [
        ("pread", ReadBy::Pread, false),
        ("lseek and read", ReadBy::LseekRead, false),
        ("a buffered stream", ReadBy::Stream, false),
        ("pread, direct", ReadBy::Pread, true),
        ("lseek and read, direct", ReadBy::LseekRead, true),
    ];
    let server = |(name, read_by, direct): (&str, _, _)| {
        (name.to_owned(), Server { read_by, direct, ..one })
    };
    readers.map(server).to_vec()
}

fn group<'a>(
    args: &PoolArgs,
    name: &str,
    about: &str,
    chart: Chart,
    servers: Vec<(String, Server<'a>)>,
) -> GroupPlan<'a> {
    let group = Group::new(name, about, Metric::OperationsPerS, chart);
    let mut plan = GroupPlan::new(group, &[], ROUNDS);
    let time = args.run.sample_time(args.time);
    for (name, server) in servers {
        let cache = if server.direct { "direct" } else { "buffered" };
        let case = Case::new(name).with("threads", server.threads).with("cache", cache);
        if server.direct && !server.block_bytes.is_multiple_of(512) {
            plan.add_missing(case, "direct reads and writes must be multiples of 512 bytes");
            continue;
        }
        let written_bytes = server.blocks * u64::from(server.block_bytes);
        let cost = Cost { written_bytes, ..Cost::time(time.as_secs_f64() + 0.2) };
        plan.add(case, Cache::Any, cost, move || server.measure(time));
    }
    plan
}

struct Shared {
    /// Blocks that are written, or about to be.
    claimed: AtomicU64,
    written: Vec<AtomicBool>,
}

impl Server<'_> {
    /// Fills a block with the content that its number determines.
    fn fill(&self, index: u64, block: &mut [u8]) {
        Rng::with_seed(index).fill(block);
    }

    fn offset(&self, index: u64) -> u64 {
        index * u64::from(self.block_bytes)
    }

    /// Serves requests for this long, and verifies all that was written.
    fn measure(&self, time: Duration) -> Result<Sample, Missing> {
        let verified = self.serve(time);
        if verified.is_err() {
            // Its content is unknown: the next server that only reads fills it again.
            let _ = File::options().write(true).open(self.path).and_then(|file| file.set_len(0));
        }
        verified
    }

    fn serve(&self, time: Duration) -> Result<Sample, Missing> {
        self.prepare().with_context(|| self.path.display().to_string())?;
        let is_full = self.write_each == 0;
        let shared = Shared {
            claimed: AtomicU64::new(if is_full { self.blocks } else { 0 }),
            written: (0..self.blocks).map(|_| AtomicBool::new(is_full)).collect(),
        };
        let failed = |error| Missing::unsupported("a request", &error);
        let (served, sample) = together(
            0..u64::from(self.threads),
            |number| Worker::open(self, &shared, number).map_err(failed),
            |worker, start| {
                worker.serve(start + time).map_err(failed)?;
                Ok((worker.read_ns.clone(), worker.write_ns.clone()))
            },
        )?;
        self.verify(&shared)?;
        let (mut read_ns, mut write_ns) = (latencies(), latencies());
        for (thread_read_ns, thread_write_ns) in served {
            read_ns += thread_read_ns;
            write_ns += thread_write_ns;
        }
        let (reads, writes) = (read_ns.len(), write_ns.len());
        let operations = reads + writes;
        let latency_ns = Some(if reads > 0 { &read_ns } else { &write_ns }.into());
        let bytes = operations * u64::from(self.block_bytes);
        let mut sample = Sample { bytes, operations, latency_ns, ..sample };
        if reads > 0 && writes > 0 {
            let p99_ns = write_ns.value_at_quantile(0.99) as f64;
            sample.more.insert("writes".to_owned(), writes as f64);
            sample.more.insert("write_p99_ns".to_owned(), p99_ns);
        }
        Ok(sample)
    }

    /// Empties the file for a server that writes, and fills it for one that only reads.
    fn prepare(&self) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.path)?;
        if self.write_each > 0 {
            file.set_len(0)?;
        } else if file.metadata()?.len() != self.offset(self.blocks) {
            let mut block = vec![0; self.block_bytes as usize];
            let mut writer = BufWriter::with_capacity(1 << 20, &file);
            for index in 0..self.blocks {
                self.fill(index, &mut block);
                writer.write_all(&block)?;
            }
            writer.flush()?;
        }
        file.sync_all()
    }

    /// Checks the content of all blocks that were written.
    fn verify(&self, shared: &Shared) -> io::Result<()> {
        let mut worker = Worker::open(&Server { direct: false, ..*self }, shared, 0)?;
        for (index, is_written) in (0..).zip(&shared.written) {
            if is_written.load(Ordering::Relaxed) && !interrupt::is_interrupted() {
                worker.read(index)?;
            }
        }
        Ok(())
    }
}

/// One thread of a server, with a descriptor of its own.
struct Worker<'a> {
    server: Server<'a>,
    shared: &'a Shared,
    file: File,
    /// For [`ReadBy::Stream`].
    stream: BufReader<File>,
    block: Buffer,
    expected: Vec<u8>,
    number: u64,
    read_ns: Histogram<u64>,
    write_ns: Histogram<u64>,
}

impl<'a> Worker<'a> {
    fn open(server: &Server<'a>, shared: &'a Shared, number: u64) -> io::Result<Worker<'a>> {
        let sync = match server.durability {
            Durability::OSync => libc::O_SYNC,
            Durability::ODsync => libc::O_DSYNC,
            _ => 0,
        };
        let flags = sync | if server.direct { libc::O_DIRECT } else { 0 };
        let block = Buffer::new(server.block_bytes, HugePages::Off).map_err(io::Error::other)?;
        Ok(Worker {
            server: *server,
            shared,
            file: OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(flags)
                .open(server.path)?,
            stream: BufReader::new(File::open(server.path)?),
            expected: vec![0; block.len()],
            block,
            number,
            read_ns: latencies(),
            write_ns: latencies(),
        })
    }

    /// Serves requests until `end`, or until the file is full.
    fn serve(&mut self, end: Instant) -> io::Result<()> {
        let server = self.server;
        let mut random = Rng::with_seed(self.number);
        // Threads start at different requests, so that they do not all write at once.
        let mut request = self.number;
        loop {
            let start = Instant::now();
            if start >= end || interrupt::is_interrupted() {
                return Ok(());
            }
            if server.write_each > 0 && request.is_multiple_of(server.write_each) {
                let index = self.shared.claimed.fetch_add(1, Ordering::Relaxed);
                if index >= server.blocks {
                    return Ok(());
                }
                self.write(index)?;
                self.shared.written[index as usize].store(true, Ordering::Release);
                self.write_ns += start.elapsed().as_nanos() as u64;
            } else if let Some(index) = self.written(&mut random) {
                self.read(index)?;
                self.read_ns += start.elapsed().as_nanos() as u64;
            } else {
                // Nothing is written yet.
                std::thread::yield_now();
                continue;
            }
            request += 1;
        }
    }

    /// A random block that is written, if one is found quickly.
    fn written(&self, random: &mut Rng) -> Option<u64> {
        let claimed = self.shared.claimed.load(Ordering::Relaxed).min(self.server.blocks);
        (0..16).filter(|_| claimed > 0).find_map(|_| {
            let index = random.u64(0..claimed);
            self.shared.written[index as usize].load(Ordering::Acquire).then_some(index)
        })
    }

    fn write(&mut self, index: u64) -> io::Result<()> {
        self.server.fill(index, &mut self.block);
        self.file.write_all_at(&self.block, self.server.offset(index))?;
        match self.server.durability {
            Durability::Fsync => self.file.sync_all(),
            Durability::Fdatasync => self.file.sync_data(),
            Durability::None | Durability::OSync | Durability::ODsync => Ok(()),
        }
    }

    /// Reads and verifies a block.
    fn read(&mut self, index: u64) -> io::Result<()> {
        let offset = self.server.offset(index);
        match self.server.read_by {
            ReadBy::Pread => self.file.read_exact_at(&mut self.block, offset)?,
            ReadBy::LseekRead => {
                self.file.seek(SeekFrom::Start(offset))?;
                self.file.read_exact(&mut self.block)?;
            }
            ReadBy::Stream => {
                self.stream.seek(SeekFrom::Start(offset))?;
                self.stream.read_exact(&mut self.block)?;
            }
        }
        self.server.fill(index, &mut self.expected);
        match self.block[..] == self.expected[..] {
            true => Ok(()),
            false => {
                let why =
                    format!("block {index}, at byte {offset}, has changed since it was written");
                Err(io::Error::other(why))
            }
        }
    }
}

fn conclude(session: &mut Session<'_>) {
    for (group, key) in [(REQUESTS, "requests_per_s"), (DIRECT_READS, "direct_reads_per_s")] {
        let best = session.group(group).and_then(|it| Some((it.best()?.1, it.best_in_words()?)));
        if let Some((rate, words)) = best {
            session.result(key, rate);
            session.conclude(format!("{group}: {words}"));
        }
    }
    if let Some(fsync) = session.median(WRITES, "fsync") {
        session.result("fsync_writes_per_s", fsync);
    }
    if let Some(ratio) = session.compare(WRITES, "not at all", "fsync") {
        session.conclude(format!("a write with fsync, to one without: {}", ratio.in_words()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_block_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        File::create(&path).unwrap();
        let mixed = Server {
            path: &path,
            blocks: 64,
            block_bytes: 4096,
            threads: 3,
            durability: Durability::Fdatasync,
            read_by: ReadBy::Pread,
            direct: false,
            write_each: 2,
        };
        // It ends when the file is full.
        let sample = mixed.measure(Duration::from_secs(60)).unwrap();
        assert!(sample.operations > 64 && sample.more["writes"] == 64.0, "{sample:?}");
        assert!(sample.latency_ns.unwrap().max > 100, "{sample:?}");
        let reading = Server { write_each: 0, ..mixed };
        for read_by in [ReadBy::Pread, ReadBy::LseekRead, ReadBy::Stream] {
            // Every block is verified afterwards, however few requests there are in this time.
            Server { read_by, ..reading }.measure(Duration::from_millis(1)).unwrap();
        }
        // One bit of one block.
        let mut block = [0; 4096];
        reading.fill(7, &mut block);
        block[4095] ^= 1;
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&block, 7 * 4096).unwrap();
        let missing = reading.measure(Duration::from_millis(1)).unwrap_err();
        assert!(missing.why().contains("block 7, at byte 28672, has changed"), "{missing:?}");
    }
}
