//! How fast pipes are: from a source to a sink in this process, each on a thread, by technique, sizes, pages
//! and processors; and what it costs to look up the pages of memory.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use blockring::{Buffer, HugePages, Wait};
use rustix::pipe::fcntl_setpipe_size;

use crate::args::Common;
use crate::cache::Cache;
use crate::case::{Case, Chart, Group, Metric, Missing, Sample, show_scaled};
use crate::interrupt;
use crate::process;
use crate::runner::Rounds;
use crate::session::{Cost, Planned, Session, Work};
use crate::together::{Together, together};
use crate::values::{parse_size, parse_time, show_size};
use crate::workload::pipe_ends::{DoubleBuffer, lend, read_some, splice_some, write_all};
use crate::workload::target::failed;

/// How fast pipes are, by technique: write and read, vmsplice, splice, huge pages, busy loops.
///
/// What comes out at the far end is counted, and thrown away.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sizes of the pipe
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = parse_pipe_size,
        default_value = "64K,256K,1M")]
    pipe_sizes: Vec<u64>,
    /// What is given to a system call at a time
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = parse_pipe_size,
        default_value = "16K,64K,256K,1M")]
    buffer_sizes: Vec<u64>,
    /// How long each sample goes on
    #[arg(short, long, value_name = "TIME", default_value = "300ms", value_parser = parse_time)]
    time: Duration,
    #[command(flatten)]
    common: Common,
}

const ROUNDS: Rounds = Rounds::Auto { min: 3, max: 7 };

/// How bytes get into a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Put {
    Write,
    /// Two halves of memory in turn.
    Vmsplice,
    /// The same memory over and over: only for bytes that never change.
    VmspliceOne,
}

/// How bytes get out of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Take {
    Read,
    Splice,
}

/// What the source does with its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touch {
    /// Nothing: all of it is one page of zeros.
    Never,
    /// It is written to once, before.
    Once,
    /// It is filled each time, as a source does that has something to say.
    EachTime,
}

/// One way through a pipe.
#[derive(Debug, Clone, Copy)]
struct Way {
    put: Put,
    take: Take,
    pages: HugePages,
    wait: Wait,
    touch: Touch,
    pinned: bool,
    pipe_bytes: u64,
    buffer_bytes: u64,
}

const PLAIN: Way = Way {
    put: Put::Write,
    take: Take::Read,
    pages: HugePages::Off,
    wait: Wait::Sleep,
    touch: Touch::Once,
    pinned: false,
    pipe_bytes: 1 << 20,
    buffer_bytes: 256 << 10,
};

/// From the usual way to the fastest, each with one thing more.
fn ladder() -> [(&'static str, Way); 5] {
    let gift = Way { put: Put::Vmsplice, ..PLAIN };
    let moved = Way { take: Take::Splice, ..gift };
    let huge = Way { pages: HugePages::Advise, ..moved };
    [
        ("write, read", PLAIN),
        ("vmsplice, read", gift),
        ("vmsplice, splice", moved),
        ("the same, huge pages", huge),
        ("the same, busy", Way { wait: Wait::Spin, ..huge }),
    ]
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let mut session = Session::new("pipe", &args.common, &[])?;
    if !session.announce(&Work { groups: plan(args), room: Vec::new() })? {
        return Ok(true);
    }
    session.measure_all(Work { groups: plan(args), room: Vec::new() })?;
    conclude(&mut session);
    session.finish()
}

fn plan(args: &Args) -> Vec<Planned<'_>> {
    let mut groups = vec![ladder_group(args)];
    let one = Way { put: Put::VmspliceOne, ..PLAIN };
    for (name, way) in [
        ("write, read", PLAIN),
        ("vmsplice of one buffer, read", one),
        ("vmsplice of one buffer, splice", Way { take: Take::Splice, ..one }),
    ] {
        groups.push(sizes_group(args, name, way));
    }
    groups.push(memory_group(args));
    groups.push(pages_group(args.common.smoke));
    groups
}

fn add(planned: &mut Planned<'_>, args: &Args, case: Case, way: Way) {
    let time = if args.common.smoke { Duration::from_millis(2) } else { args.time };
    let case = case
        .with("pipe", show_size(way.pipe_bytes))
        .with("buffer", show_size(way.buffer_bytes))
        .with("pages", if way.pages == HugePages::Off { "4K" } else { "2M" });
    let cost = Cost::memory(time.as_secs_f64() + 0.01);
    planned.add(case, Cache::Any, cost, move || through(way, time));
}

fn ladder_group(args: &Args) -> Planned<'static> {
    let about = "How fast bytes go through a pipe, by technique and by the size of the pipe.";
    let lines = Chart::Lines { x: "pipe".to_owned(), by: "way".to_owned() };
    let group = Group::new("techniques", about, Metric::BytesPerS, lines);
    let mut planned = Planned::new(group, &[], ROUNDS);
    for (name, way) in ladder() {
        for &pipe_bytes in &args.pipe_sizes {
            let way = Way { pipe_bytes, buffer_bytes: pipe_bytes, ..way };
            let case = Case::new(format!("{name}, pipe of {}", show_size(pipe_bytes)));
            add(&mut planned, args, case.with("way", name), way);
        }
    }
    planned
}

fn sizes_group(args: &Args, name: &str, way: Way) -> Planned<'static> {
    let about =
        format!("{name}: how fast, by the size of the pipe and of what a system call is given.");
    let heat = Chart::Heat { x: "pipe".to_owned(), y: "buffer".to_owned() };
    let group = Group::new(format!("{name}, by size"), about, Metric::BytesPerS, heat);
    let mut planned = Planned::new(group, &[], ROUNDS);
    for &pipe_bytes in &args.pipe_sizes {
        for &buffer_bytes in &args.buffer_sizes {
            let case = Case::new(format!(
                "pipe of {}, buffer of {}",
                show_size(pipe_bytes),
                show_size(buffer_bytes)
            ));
            add(&mut planned, args, case, Way { pipe_bytes, buffer_bytes, ..way });
        }
    }
    planned
}

fn memory_group(args: &Args) -> Planned<'static> {
    let about = "What the source's memory and the processors change: a pipe of 1 MiB, vmsplice.";
    let group = Group::new("memory and processors", about, Metric::BytesPerS, Chart::Bars);
    let mut planned = Planned::new(group, &[], ROUNDS);
    for (to, take) in [("read", Take::Read), ("splice", Take::Splice)] {
        let base = Way { put: Put::Vmsplice, take, buffer_bytes: 1 << 20, ..PLAIN };
        let one = Way { put: Put::VmspliceOne, ..base };
        for (name, way) in [
            ("two buffers", base),
            ("two buffers, pinned", Way { pinned: true, ..base }),
            ("two buffers, not touched", Way { touch: Touch::Never, ..base }),
            ("two buffers, filled each time", Way { touch: Touch::EachTime, ..base }),
            ("one buffer", one),
            ("one buffer, not touched", Way { touch: Touch::Never, ..one }),
            ("one buffer, huge pages", Way { pages: HugePages::Advise, ..one }),
        ] {
            let case = Case::new(format!("{name}, {to}")).with("pinned", way.pinned);
            add(&mut planned, args, case, way);
        }
    }
    planned
}

/// Bytes that are sent, at least, before the clock is looked at.
const LOOK_BYTES: u64 = 1 << 20;

/// And no more sends than this.
const LOOK_SENDS: u64 = 256;

/// A size that pipes have: the kernel makes others of it.
fn parse_pipe_size(text: &str) -> Result<u64, String> {
    let is_one = |size: &u64| size.is_power_of_two() && (4096..=64 << 20).contains(size);
    let wrong = || "a power of two from 4K to 64M".to_owned();
    parse_size(text).ok().filter(is_one).ok_or_else(wrong)
}

fn through(way: Way, time: Duration) -> Result<Sample, Missing> {
    let (reader, writer) = io::pipe().map_err(failed)?;
    let pipe_bytes = way.pipe_bytes as usize;
    if let Err(error) = fcntl_setpipe_size(&writer, pipe_bytes) {
        return Err(Missing::Unavailable(format!(
            "a pipe of {} is refused: {}; /proc/sys/fs/pipe-max-size says how large pipes may be, and \
             pipe-user-pages-soft how much all of a user's may hold",
            show_size(way.pipe_bytes),
            io::Error::from(error)
        )));
    }
    if way.pinned && thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
        return Err(Missing::Unavailable("there is only one processor".to_owned()));
    }
    let ends = Mutex::new((Some(reader), Some(writer)));
    let prepare = |number| {
        pin(way.pinned, number);
        let mut ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
        match number {
            0 => End::sink(ends.0.take(), way),
            _ => End::source(ends.1.take(), way),
        }
    };
    let moved = together(2, prepare, |_, end, _| match end {
        // At its end nobody reads or writes any more, which ends the other.
        Ok(end) => std::mem::replace(end, End::Done).run(way, time),
        Err(error) => Err(std::mem::replace(error, io::ErrorKind::Other.into())),
    });
    let Together { results, wall, cpu } = moved.map_err(failed)?;
    let results: Vec<u64> = results.into_iter().collect::<io::Result<_>>().map_err(failed)?;
    let bytes = results[0];
    Ok(Sample {
        wall_s: wall.as_secs_f64(),
        cpu_s: Some(cpu.as_secs_f64()),
        bytes,
        operations: bytes / way.buffer_bytes.max(1),
        ..Sample::default()
    })
}

/// Binds this thread to one processor of those that it may use.
fn pin(pinned: bool, which: usize) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(all) = sched_getaffinity(None) else { return };
    let mut allowed = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
    if let Some(cpu) = allowed.nth(which).filter(|_| pinned) {
        let mut one = CpuSet::new();
        one.set(cpu);
        let _ = sched_setaffinity(None, &one);
    }
}

/// One end of a pipe, with what it needs.
enum End {
    Sink(PipeReader, Buffer, File),
    Gift(DoubleBuffer<PipeWriter>),
    Source(PipeWriter, Buffer),
    Done,
}

impl End {
    fn sink(pipe: Option<PipeReader>, way: Way) -> io::Result<End> {
        let pipe = pipe.ok_or(io::ErrorKind::Other)?;
        let mut memory = memory(way.buffer_bytes, HugePages::Off)?;
        memory.fill(1);
        Ok(End::Sink(pipe, memory, File::options().write(true).open("/dev/null")?))
    }

    fn source(pipe: Option<PipeWriter>, way: Way) -> io::Result<End> {
        let pipe = pipe.ok_or(io::ErrorKind::Other)?;
        if way.put == Put::Vmsplice {
            return Ok(End::Gift(DoubleBuffer::new(pipe, way.pages)?));
        }
        let mut memory = memory(way.buffer_bytes, way.pages)?;
        if way.touch != Touch::Never {
            memory.fill(2);
        }
        Ok(End::Source(pipe, memory))
    }

    /// The bytes that a sink took.
    fn run(self, way: Way, time: Duration) -> io::Result<u64> {
        match self {
            End::Sink(pipe, memory, null) => sink(&pipe, memory, &null, way),
            End::Gift(memory) => gift(memory, way, time).map(|()| 0),
            End::Source(pipe, memory) => until(time, way.buffer_bytes, || match way.put {
                Put::Write => write_all(&pipe, &memory),
                // SAFETY: the memory is not written to again. If it is unmapped, the pages stay until
                // they are taken.
                _ => unsafe { lend(&pipe, &memory, way.wait) },
            })
            .map(|()| 0),
            End::Done => Ok(0),
        }
    }
}

fn memory(len: u64, pages: HugePages) -> io::Result<Buffer> {
    let len = u32::try_from(len).map_err(|_| io::Error::other("a buffer of 4 GiB and more"))?;
    Buffer::new(len, pages).map_err(io::Error::other)
}

fn sink(pipe: &PipeReader, mut memory: Buffer, null: &File, way: Way) -> io::Result<u64> {
    let mut bytes = 0;
    loop {
        let taken = match way.take {
            Take::Read => read_some(pipe, &mut memory, way.wait)?,
            Take::Splice => splice_some(pipe, null, way.buffer_bytes as usize, way.wait)?,
        };
        bytes += taken as u64;
        if taken == 0 {
            return Ok(bytes);
        }
    }
}

/// Two halves in turn.
fn gift(mut memory: DoubleBuffer<PipeWriter>, way: Way, time: Duration) -> io::Result<()> {
    let mut round = 0_u64;
    until(time, way.buffer_bytes, || {
        let half = memory.to_fill()?;
        let len = half.len().min(way.buffer_bytes as usize);
        if way.touch == Touch::EachTime || (way.touch == Touch::Once && round < 2) {
            half[..len].fill(round as u8);
        }
        round += 1;
        memory.send(len, way.wait)
    })
}

/// Does it again until the time is over.
fn until(time: Duration, bytes: u64, mut send: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let start = Instant::now();
    let between_looks = (LOOK_BYTES / bytes.max(1)).clamp(1, LOOK_SENDS);
    let mut sent = 0_u64;
    loop {
        send()?;
        sent += 1;
        if sent.is_multiple_of(between_looks)
            && (start.elapsed() >= time || interrupt::is_interrupted())
        {
            return Ok(());
        }
    }
}

/// What the kernel needs to look up and hold the pages of memory (`get_user_pages`): the time to register it
/// with io_uring.
fn pages_group(smoke: bool) -> Planned<'static> {
    let about = "What the kernel takes to look up and hold the pages of 256 MiB (registering them with io_uring).";
    let group = Group::new("looking up pages", about, Metric::Seconds, Chart::Bars);
    let mut planned = Planned::new(group, &[], ROUNDS);
    let len: u32 = if smoke { 4 << 20 } else { 256 << 20 };
    for (name, pages) in [
        ("4 KiB", HugePages::Off),
        ("2 MiB", HugePages::Advise),
        ("2 MiB, reserved", HugePages::Hugetlb),
    ] {
        let case = Case::new(format!("pages of {name}")).with("pages", name);
        planned.add(case, Cache::Any, Cost::memory(0.2), move || register(len, pages));
    }
    planned
}

fn register(len: u32, pages: HugePages) -> Result<Sample, Missing> {
    let unavailable = |error: String| Missing::Unavailable(error);
    let mut memory = Buffer::new(len, pages).map_err(|error| unavailable(error.to_string()))?;
    memory.fill(1);
    let ring =
        io_uring::IoUring::new(1).map_err(|error| unavailable(format!("io_uring: {error}")))?;
    let part = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
    let (start, cpu) = (Instant::now(), process::own_cpu());
    // SAFETY: the memory outlives the ring, which is dropped first, and nothing is read into it.
    let registered = unsafe { ring.submitter().register_buffers(&[part]) };
    let wall_s = start.elapsed().as_secs_f64();
    let cpu_s = Some((process::own_cpu() - cpu).as_secs_f64());
    registered.map_err(|error| {
        unavailable(format!(
            "registering {} is refused: {error}; see ulimit -l",
            show_size(len.into())
        ))
    })?;
    drop(ring);
    let operations = u64::from(len) / if pages == HugePages::Off { 4096 } else { 2 << 20 };
    Ok(Sample { wall_s, cpu_s, bytes: len.into(), operations, ..Sample::default() })
}

fn conclude(session: &mut Session<'_>) {
    let Some(group) = session.group("techniques").cloned() else { return };
    let best_of = |way: &str| {
        let cases = group.cases.iter().filter(|case| case.parameters["way"] == way);
        cases.filter_map(|case| group.median(case)).reduce(f64::max)
    };
    let first = best_of(ladder()[0].0);
    for (name, _) in ladder() {
        if let Some(rate) = best_of(name) {
            session.result(&format!("{name} bytes per s"), rate);
        }
    }
    if let (Some(first), Some((best, rate))) = (first, group.best()) {
        session.conclude(format!(
            "{}: {}B/s, {:.0} times what write and read move at best.",
            best.name,
            show_scaled(rate),
            rate / first
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_moves_something_and_ends() {
        for (name, way) in ladder() {
            for touch in [Touch::Never, Touch::Once, Touch::EachTime] {
                let way = Way { touch, pipe_bytes: 64 << 10, buffer_bytes: 64 << 10, ..way };
                let sample = through(way, Duration::from_millis(1)).unwrap();
                assert!(sample.bytes >= 64 << 10, "{name}: {sample:?}");
            }
        }
        let one = Way { put: Put::VmspliceOne, take: Take::Splice, ..PLAIN };
        assert!(through(one, Duration::from_millis(1)).unwrap().bytes > 0);
    }

    #[test]
    fn a_pipe_that_is_too_large_is_refused_with_the_reason() {
        let way = Way { pipe_bytes: 1 << 31, ..PLAIN };
        let missing = through(way, Duration::from_millis(1)).unwrap_err();
        assert!(missing.why().contains("pipe-max-size"), "{missing:?}");
    }
}
