//! `ringbench pipe`: the rate of pipes from one thread to another, by technique, sizes, memory and
//! processors; and the cost of looking up pages.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::time::{Duration, Instant};

use blockring::{Buffer, HugePages, Wait};
use io_uring::IoUring;
use rustix::pipe::fcntl_setpipe_size;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::pipe_ends::{DoubleBuffer, lend, read_some, splice_some, write_all};
use crate::cli::args::PipeArgs;
use crate::model::case::{Case, Chart, Group, Metric, Missing, Sample};
use crate::model::environment;
use crate::model::units::{show_scaled, show_size};
use crate::runner::{Cache, Cost, GroupPlan, Rounds, Session, Stopwatch, interrupt, together};

const ROUNDS: Rounds = Rounds { min: 7, max: 9 };

const TECHNIQUES: &str = "techniques";

pub(crate) fn run(args: &PipeArgs) -> anyhow::Result<bool> {
    let mut session = Session::new("pipe", &args.run, &[]);
    if !session.announce(&plan(args), None)? {
        return Ok(true);
    }
    session.measure_all(plan(args));
    conclude(&mut session);
    session.finish()
}

/// How bytes get into a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Write,
    /// Two halves of memory in turns.
    Vmsplice,
    /// The same memory again and again: only for bytes that never change.
    VmspliceOne,
}

/// How bytes get out of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Read,
    Splice,
}

/// When the source writes to its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touch {
    /// Never: all of it is one page of zeros.
    Never,
    /// Once, before it is sent.
    Once,
    /// Before each time it is sent, as a source that produces data does.
    EachTime,
}

/// One transfer through a pipe.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    input: Input,
    output: Output,
    pages: HugePages,
    wait: Wait,
    touch: Touch,
    pinned: bool,
    pipe_bytes: u64,
    buffer_bytes: u64,
}

const PLAIN: Transfer = Transfer {
    input: Input::Write,
    output: Output::Read,
    pages: HugePages::Off,
    wait: Wait::Sleep,
    touch: Touch::Once,
    pinned: false,
    pipe_bytes: 1 << 20,
    buffer_bytes: 256 << 10,
};

/// From the usual technique to the fastest, each with one addition.
fn techniques() -> [(&'static str, Transfer); 5] {
    let vmsplice = Transfer { input: Input::Vmsplice, ..PLAIN };
    let splice = Transfer { output: Output::Splice, ..vmsplice };
    let huge = Transfer { pages: HugePages::Advise, ..splice };
    [
        ("write, read", PLAIN),
        ("vmsplice, read", vmsplice),
        ("vmsplice, splice", splice),
        ("the same, huge pages", huge),
        ("the same, busy", Transfer { wait: Wait::Spin, ..huge }),
    ]
}

/// The usual technique.
pub(super) fn write_and_read(time: Duration) -> Result<Sample, Missing> {
    PLAIN.measure(time)
}

fn plan(args: &PipeArgs) -> Vec<GroupPlan<'static>> {
    let one = Transfer { input: Input::VmspliceOne, ..PLAIN };
    let spliced = Transfer { output: Output::Splice, ..one };
    vec![
        techniques_group(args),
        sizes_group(args, "write, read", PLAIN),
        sizes_group(args, "vmsplice of one buffer, read", one),
        sizes_group(args, "vmsplice of one buffer, splice", spliced),
        memory_group(args),
        pages_group(args.run.smoke),
    ]
}

fn add(plan: &mut GroupPlan<'_>, args: &PipeArgs, case: Case, transfer: Transfer) {
    let time = args.run.sample_time(args.time);
    let case = case
        .with("pipe", show_size(transfer.pipe_bytes))
        .with("buffer", show_size(transfer.buffer_bytes))
        .with("pages", if transfer.pages == HugePages::Off { "4K" } else { "2M" });
    let cost = Cost::memory(time.as_secs_f64() + 0.01);
    plan.add(case, Cache::Any, cost, move || transfer.measure(time));
}

fn techniques_group(args: &PipeArgs) -> GroupPlan<'static> {
    let about = "The rate of a pipe by technique and by the size of the pipe.";
    let group = Group::new(TECHNIQUES, about, Metric::BytesPerS, Chart::lines("pipe", "technique"));
    let mut plan = GroupPlan::new(group, &[], ROUNDS);
    for (name, transfer) in techniques() {
        for &pipe_bytes in &args.pipe_sizes {
            let transfer = Transfer { pipe_bytes, buffer_bytes: pipe_bytes, ..transfer };
            let case = Case::new(format!("{name}, pipe of {}", show_size(pipe_bytes)));
            add(&mut plan, args, case.with("technique", name), transfer);
        }
    }
    plan
}

fn sizes_group(args: &PipeArgs, name: &str, transfer: Transfer) -> GroupPlan<'static> {
    let about =
        format!("{name}: the rate by the sizes of the pipe and of the buffer of a system call.");
    let group = Group::new(
        format!("{name}, by size"),
        about,
        Metric::BytesPerS,
        Chart::heat("pipe", "buffer"),
    );
    let mut plan = GroupPlan::new(group, &[], ROUNDS);
    for &pipe_bytes in &args.pipe_sizes {
        for &buffer_bytes in &args.block_sizes {
            let (pipe, buffer) = (show_size(pipe_bytes), show_size(buffer_bytes));
            let case = Case::new(format!("pipe of {pipe}, buffer of {buffer}"));
            add(&mut plan, args, case, Transfer { pipe_bytes, buffer_bytes, ..transfer });
        }
    }
    plan
}

fn memory_group(args: &PipeArgs) -> GroupPlan<'static> {
    let about =
        "The effect of the source's memory and of the processors: a pipe of 1 MiB, vmsplice.";
    let group = Group::new("memory and processors", about, Metric::BytesPerS, Chart::Bars);
    let mut plan = GroupPlan::new(group, &[], ROUNDS);
    for (to, output) in [("read", Output::Read), ("splice", Output::Splice)] {
        let two = Transfer { input: Input::Vmsplice, output, buffer_bytes: 1 << 20, ..PLAIN };
        let one = Transfer { input: Input::VmspliceOne, ..two };
        for (name, transfer) in [
            ("two buffers", two),
            ("two buffers, pinned", Transfer { pinned: true, ..two }),
            ("two buffers, not touched", Transfer { touch: Touch::Never, ..two }),
            ("two buffers, filled each time", Transfer { touch: Touch::EachTime, ..two }),
            ("one buffer", one),
            ("one buffer, not touched", Transfer { touch: Touch::Never, ..one }),
            ("one buffer, huge pages", Transfer { pages: HugePages::Advise, ..one }),
        ] {
            let case = Case::new(format!("{name}, {to}")).with("pinned", transfer.pinned);
            add(&mut plan, args, case, transfer);
        }
    }
    plan
}

/// Bytes that are sent before the next look at the clock.
const LOOK_BYTES: u64 = 1 << 20;

/// Most system calls before the next look at the clock.
const LOOK_CALLS: u64 = 256;

impl Transfer {
    fn measure(self, time: Duration) -> Result<Sample, Missing> {
        let (reader, writer) = io::pipe()?;
        if let Err(error) = fcntl_setpipe_size(&writer, self.pipe_bytes as usize) {
            return Missing::unavailable(format!(
                "a pipe of {} is refused: {}; the sysctls fs.pipe-max-size and fs.pipe-user-pages-soft set \
                 the limits",
                show_size(self.pipe_bytes),
                io::Error::from(error)
            ));
        }
        if self.pinned && environment::processors() < 2 {
            return Missing::unavailable("there is only one processor");
        }
        let prepare = |end| {
            let run = match end {
                End::Reader(pipe) => {
                    self.pin(0);
                    self.sink(pipe)
                }
                End::Writer(pipe) => {
                    self.pin(1);
                    self.source(pipe, time)
                }
            };
            Ok(Some(run?))
        };
        let ends = [End::Reader(reader), End::Writer(writer)];
        let (bytes, sample) = together(ends, prepare, |run, _| match run.take() {
            // It closes its end of the pipe, which ends the other one.
            Some(run) => Ok(run()?),
            None => Ok(0),
        })?;
        let (bytes, operations) = (bytes[0], bytes[0] / self.buffer_bytes.max(1));
        Ok(Sample { bytes, operations, ..sample })
    }

    /// Binds this thread to one of the processors that it may use, if that is wanted.
    fn pin(&self, number: usize) {
        let Ok(all) = sched_getaffinity(None) else { return };
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
        if let Some(cpu) = allowed.nth(number).filter(|_| self.pinned) {
            let mut one = CpuSet::new();
            one.set(cpu);
            let _ = sched_setaffinity(None, &one);
        }
    }

    /// Prepares to take everything out of a pipe.
    fn sink(self, pipe: PipeReader) -> io::Result<RunEnd> {
        let mut memory = buffer(self.buffer_bytes, HugePages::Off)?;
        memory.fill(1);
        let null = File::options().write(true).open("/dev/null")?;
        Ok(Box::new(move || {
            let mut bytes = 0;
            loop {
                let taken = match self.output {
                    Output::Read => read_some(&pipe, &mut memory, self.wait)?,
                    Output::Splice => splice_some(&pipe, &null, memory.len(), self.wait)?,
                };
                bytes += taken as u64;
                if taken == 0 {
                    return Ok(bytes);
                }
            }
        }))
    }

    /// Prepares to fill a pipe for this long.
    fn source(self, pipe: PipeWriter, time: Duration) -> io::Result<RunEnd> {
        if self.input == Input::Vmsplice {
            let mut memory = DoubleBuffer::new(pipe, self.pages)?;
            let mut round = 0_u64;
            let send = move || {
                let half = memory.to_fill()?;
                let len = half.len().min(self.buffer_bytes as usize);
                if self.touch == Touch::EachTime || (self.touch == Touch::Once && round < 2) {
                    half[..len].fill(round as u8);
                }
                round += 1;
                memory.send(len, self.wait)
            };
            return Ok(Box::new(move || self.repeat(time, send)));
        }
        let mut memory = buffer(self.buffer_bytes, self.pages)?;
        if self.touch != Touch::Never {
            memory.fill(2);
        }
        let send = move || match self.input {
            Input::Write => write_all(&pipe, &memory),
            // SAFETY: the memory is not written to again. If it is unmapped, the pages stay until they
            // are taken.
            _ => unsafe { lend(&pipe, &memory, self.wait) },
        };
        Ok(Box::new(move || self.repeat(time, send)))
    }

    /// Repeats `send` until the time is over. Returns 0: the other end counts.
    fn repeat(self, time: Duration, mut send: impl FnMut() -> io::Result<()>) -> io::Result<u64> {
        let start = Instant::now();
        let between_looks = (LOOK_BYTES / self.buffer_bytes.max(1)).clamp(1, LOOK_CALLS);
        let mut sent = 0_u64;
        loop {
            send()?;
            sent += 1;
            let looks = sent.is_multiple_of(between_looks);
            if looks && (start.elapsed() >= time || interrupt::is_interrupted()) {
                return Ok(0);
            }
        }
    }
}

enum End {
    Reader(PipeReader),
    Writer(PipeWriter),
}

/// Runs one end of a pipe, and returns the bytes that a sink took.
type RunEnd = Box<dyn FnOnce() -> io::Result<u64>>;

fn buffer(len: u64, pages: HugePages) -> io::Result<Buffer> {
    let len = u32::try_from(len).map_err(|_| io::Error::other("a buffer of 4 GiB or more"))?;
    Buffer::new(len, pages).map_err(io::Error::other)
}

/// The time to register memory with io_uring: the kernel looks up its pages (`get_user_pages`) and pins
/// them.
fn pages_group(smoke: bool) -> GroupPlan<'static> {
    let about = "The time that the kernel takes to look up and pin the pages of 256 MiB (registering them \
                 with io_uring).";
    let group = Group::new("looking up pages", about, Metric::Seconds, Chart::Bars);
    let mut plan = GroupPlan::new(group, &[], ROUNDS);
    let len: u32 = if smoke { 4 << 20 } else { 256 << 20 };
    for (name, pages) in [
        ("4 KiB", HugePages::Off),
        ("2 MiB", HugePages::Advise),
        ("2 MiB, reserved", HugePages::Hugetlb),
    ] {
        let case = Case::new(format!("pages of {name}")).with("pages", name);
        plan.add(case, Cache::Any, Cost::memory(0.2), move || register(len, pages));
    }
    plan
}

fn register(len: u32, pages: HugePages) -> Result<Sample, Missing> {
    let mut memory = Buffer::new(len, pages)?;
    memory.fill(1);
    let ring = IoUring::new(1).map_err(|error| Missing::unsupported("io_uring", &error))?;
    let part = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
    let clock = Stopwatch::start();
    // SAFETY: the memory outlives the ring, which is dropped first, and nothing is read into it.
    let registered = unsafe { ring.submitter().register_buffers(&[part]) };
    let page_bytes =
        if pages == HugePages::Off { rustix::param::page_size() as u32 } else { 2 << 20 };
    let sample = clock.sample(len.into(), u64::from(len / page_bytes));
    drop(ring);
    let size = show_size(len);
    registered.map(|()| sample).map_err(|error| {
        Missing::Unavailable(format!("registering {size} is refused: {error}; see ulimit -l"))
    })
}

fn conclude(session: &mut Session<'_>) {
    let Some(group) = session.group(TECHNIQUES).cloned() else { return };
    let best_of = |technique: &str| {
        let mut of_it = group.clone();
        of_it.cases.retain(|case| case.parameters["technique"] == technique);
        of_it.best().map(|(case, rate)| (case.name.clone(), rate))
    };
    for (name, _) in techniques() {
        if let Some((_, rate)) = best_of(name) {
            session.result(&format!("{name} bytes per s"), rate);
        }
    }
    let Some(((usual, _), (best, rate))) = best_of(techniques()[0].0).zip(group.best()) else {
        return;
    };
    if let Some(ratio) = group.compare(&best.name, &usual) {
        let (best, rate) = (&best.name, show_scaled(rate));
        session.conclude(format!("{best}: {rate}B/s; {usual} {}", ratio.in_words()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_technique_moves_bytes_and_ends() {
        for (name, transfer) in techniques() {
            for touch in [Touch::Never, Touch::Once, Touch::EachTime] {
                let (pipe_bytes, buffer_bytes) = (64 << 10, 64 << 10);
                let transfer = Transfer { touch, pipe_bytes, buffer_bytes, ..transfer };
                let sample = transfer.measure(Duration::from_millis(1)).unwrap();
                assert!(sample.bytes >= 64 << 10, "{name}: {sample:?}");
            }
        }
        let one = Transfer { input: Input::VmspliceOne, output: Output::Splice, ..PLAIN };
        assert!(one.measure(Duration::from_millis(1)).unwrap().bytes > 0);
    }

    #[test]
    fn a_pipe_that_is_too_large_is_refused_with_the_reason() {
        let large = Transfer { pipe_bytes: 1 << 31, ..PLAIN };
        let missing = large.measure(Duration::from_millis(1)).unwrap_err();
        assert!(missing.why().contains("pipe-max-size"), "{missing:?}");
    }
}
