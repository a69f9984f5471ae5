//! Statistics of a run: counters, latencies, and a breakdown of wait times.
//!
//! Each thread writes to its own `Recorder`, which is added to the total when it is dropped. A
//! disabled recorder costs one branch per event, and reads no clock.

use std::ops::AddAssign;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::trace::{Events, Trace};
use crate::lock;

/// Statistics of one run, or of several. Times of different threads are added up.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes that were read and passed to consumers.
    pub bytes: u64,
    /// Bytes of holes, which were not read.
    pub hole_bytes: u64,
    /// Time from the start of the run to its end.
    pub wall: Duration,
    /// Processor time of the whole process during the run, including the kernel and other threads.
    pub cpu: Duration,
    /// Threads that consumed; for several runs, the maximum.
    pub threads: u32,
    /// Requests to the engine, including those for the rest of a short read.
    pub requests: u64,
    /// Reads that returned less than requested, so that the rest was requested.
    pub short_reads: u64,
    /// Reads that returned nothing (`EINTR`, `EAGAIN`, a broken chain) and were requested again.
    pub retries: u64,
    /// Bytes that consumers got from a mapping instead of a copy.
    pub mapped_bytes: u64,
    /// How often `index` requests were in flight, sampled when a block is passed to the consumer.
    pub in_flight: Vec<u64>,
    /// Time that consumers waited for reads: asleep, spinning, or in a synchronous read.
    pub device_wait: Duration,
    /// Time that the device was idle because of the consumers: there was more to read, but the
    /// device had no request. If requests ended while a block was consumed, all the time since the
    /// last poll counts, so this is an upper bound. For a synchronous engine, all time in consumers
    /// counts.
    pub consumer_wait: Duration,
    /// Time that nothing was read because of the rate limit.
    pub limit_wait: Duration,
    /// Time in consumers.
    pub consuming: Duration,
    /// `None` until the first read.
    latency_ns: Option<Histogram<u64>>,
}

/// Times from the request of a read until its completion is processed, in nanoseconds. They include
/// the time that a request waits in a batch before it is passed to the kernel, and the time until a
/// busy consumer polls for completions.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Latency {
    /// The mean.
    pub avg: f64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.5th percentile.
    pub p99_5: u64,
    /// 99.9th percentile.
    pub p99_9: u64,
    /// 99.99th percentile.
    pub p99_99: u64,
    /// Maximum.
    pub max: u64,
}

/// Adds another run. Wall times are added, too.
impl AddAssign<&Stats> for Stats {
    fn add_assign(&mut self, other: &Stats) {
        self.bytes += other.bytes;
        self.hole_bytes += other.hole_bytes;
        self.wall += other.wall;
        self.cpu += other.cpu;
        self.threads = self.threads.max(other.threads);
        self.add_thread(other);
    }
}

impl Stats {
    /// Adds the counters of another thread of the same run.
    fn add_thread(&mut self, other: &Stats) {
        self.requests += other.requests;
        self.short_reads += other.short_reads;
        self.retries += other.retries;
        self.mapped_bytes += other.mapped_bytes;
        self.device_wait += other.device_wait;
        self.consumer_wait += other.consumer_wait;
        self.limit_wait += other.limit_wait;
        self.consuming += other.consuming;
        if self.in_flight.len() < other.in_flight.len() {
            self.in_flight.resize(other.in_flight.len(), 0);
        }
        for (mine, theirs) in self.in_flight.iter_mut().zip(&other.in_flight) {
            *mine += theirs;
        }
        if let Some(latency_ns) = &other.latency_ns {
            // It resizes automatically, so adding cannot fail.
            let _ = self.latency_ns().add(latency_ns);
        }
    }

    fn latency_ns(&mut self) -> &mut Histogram<u64> {
        // It resizes automatically. Three significant digits are valid.
        self.latency_ns.get_or_insert_with(|| Histogram::new(3).expect("three significant digits"))
    }

    /// Returns the latencies of reads; `None` if there were none.
    pub fn latency(&self) -> Option<Latency> {
        let histogram = self.latency_ns.as_ref()?;
        let at = |quantile| histogram.value_at_quantile(quantile);
        Some(Latency {
            avg: histogram.mean(),
            p50: at(0.5),
            p99: at(0.99),
            p99_5: at(0.995),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: histogram.max(),
        })
    }
}

/// The record of a run, shared by its threads.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    stats: Option<Mutex<Stats>>,
    trace: Option<Trace>,
    runs: Mutex<Runs>,
}

/// The runs that are being recorded.
#[derive(Debug, Default)]
struct Runs {
    active: u32,
    /// Start of the first of them: the time, and the processor time of the process.
    since: Option<(Instant, Duration)>,
    /// Threads that have consumed since then.
    threads: Vec<ThreadId>,
}

/// Ends the recording of a run.
#[derive(Debug)]
pub(crate) struct RunGuard<'a>(Option<(&'a Recording, String, Instant)>);

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        let Some((recording, name, start)) = self.0.take() else { return };
        if let Some(trace) = &recording.trace {
            Events::new(trace, "the run").span(&name, start, start.elapsed());
        }
        let mut runs = lock(&recording.runs);
        runs.active -= 1;
        if runs.active > 0 {
            return;
        }
        if let (Some(mut stats), Some((start, cpu))) = (recording.lock(), runs.since) {
            stats.wall += start.elapsed();
            stats.cpu += cpu_time().saturating_sub(cpu);
            let threads = std::mem::take(&mut runs.threads).len();
            stats.threads = stats.threads.max(threads as u32);
        }
    }
}

impl Recording {
    pub(crate) fn new(stats: bool, trace: Option<&Trace>) -> Recording {
        let stats = stats.then(Mutex::default);
        Recording { stats, trace: trace.cloned(), runs: Mutex::default() }
    }

    /// Whether anything is recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.stats.is_some() || self.trace.is_some()
    }

    /// Creates a recorder for this thread and this many slots. `what` names the thread in a trace.
    pub(crate) fn recorder(&self, what: &str, slots: u32) -> Recorder<'_> {
        if !self.is_on() {
            return Recorder(None);
        }
        let now = Instant::now();
        Recorder(Some(Box::new(Active {
            into: self,
            stats: Stats::default(),
            requested: vec![now; slots as usize],
            ready: vec![now; slots as usize],
            since_look: Duration::ZERO,
            events: self.trace.as_ref().map(|trace| Events::new(trace, what)),
        })))
    }

    /// Runs `run` and records how long it took.
    pub(crate) fn time<R>(&self, name: &Path, run: impl FnOnce() -> R) -> R {
        let _run = self.run(name);
        run()
    }

    /// Records the time until the guard is dropped as a run. Overlapping or nested runs count once.
    pub(crate) fn run(&self, name: &Path) -> RunGuard<'_> {
        if !self.is_on() {
            return RunGuard(None);
        }
        let mut runs = lock(&self.runs);
        if runs.active == 0 {
            runs.since = self.stats.is_some().then(|| (Instant::now(), cpu_time()));
        }
        runs.active += 1;
        RunGuard(Some((self, name.to_string_lossy().into_owned(), Instant::now())))
    }

    /// Records holes that were not read, and how many of their bytes were counted as read, because
    /// zeros were passed to consumers.
    pub(crate) fn add_holes(&self, bytes: u64, counted: u64) {
        if let Some(mut stats) = self.lock() {
            stats.hole_bytes += bytes;
            stats.bytes = stats.bytes.saturating_sub(counted);
        }
    }

    /// Returns the statistics so far; `None` if they are not collected.
    pub(crate) fn stats(&self) -> Option<Stats> {
        self.lock().map(|stats| stats.clone())
    }

    fn lock(&self) -> Option<MutexGuard<'_, Stats>> {
        self.stats.as_ref().map(lock)
    }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The record of one thread, or nothing if recording is off.
pub(crate) struct Recorder<'a>(Option<Box<Active<'a>>>);

struct Active<'a> {
    into: &'a Recording,
    stats: Stats,
    /// When the read of each slot was requested, and when its block was complete.
    requested: Vec<Instant>,
    ready: Vec<Instant>,
    /// Time in the consumer since the last poll for completions.
    since_look: Duration,
    events: Option<Events>,
}

/// What a completion means for its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// The request is over: its extent is complete, or the source ended, or the read failed.
    Over,
    /// Some bytes were read; the rest must be requested.
    Short,
    /// Nothing was read; the same must be requested again.
    Retry,
}

/// What a thread waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitFor {
    /// A consumer: a read.
    Read,
    /// Reading: a slot, which consumers hold.
    Slot,
    /// Reading: the rate limit.
    Limit,
}

/// The start of a timed interval; `None` if nothing is recorded, or it has not begun.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StartTime(Option<Instant>);

impl Recorder<'_> {
    /// Returns the current time, if anything is recorded.
    pub(crate) fn start(&self) -> StartTime {
        StartTime(self.0.as_ref().map(|_| Instant::now()))
    }

    /// Records the request of a read.
    pub(crate) fn requested(&mut self, slot: u32, in_flight: u32) {
        let Some(active) = &mut self.0 else { return };
        active.stats.requests += 1;
        active.requested[slot as usize] = Instant::now();
        if let Some(events) = &mut active.events {
            events.in_flight(in_flight);
        }
    }

    /// Records its completion.
    pub(crate) fn completed(&mut self, slot: u32, offset: u64, outcome: ReadOutcome) {
        let Some(active) = &mut self.0 else { return };
        let requested = active.requested[slot as usize];
        let nanos = requested.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
        // It resizes automatically, so recording cannot fail.
        let _ = active.stats.latency_ns().record(nanos);
        match outcome {
            ReadOutcome::Over => active.ready[slot as usize] = Instant::now(),
            ReadOutcome::Short => active.stats.short_reads += 1,
            ReadOutcome::Retry => active.stats.retries += 1,
        }
        if let Some(events) = &mut active.events {
            events.slot_span("read", slot, offset, requested);
        }
    }

    /// Records that this thread waited from `start` until now.
    pub(crate) fn waited(&mut self, what: WaitFor, start: StartTime) {
        let (Some(active), Some(start)) = (&mut self.0, start.0) else { return };
        let time = start.elapsed();
        let (total, name) = match what {
            WaitFor::Read => {
                active.since_look = Duration::ZERO;
                (&mut active.stats.device_wait, "wait for a read")
            }
            WaitFor::Slot => (&mut active.stats.consumer_wait, "wait for a slot"),
            WaitFor::Limit => (&mut active.stats.limit_wait, "wait for the limit"),
        };
        *total += time;
        if let Some(events) = &mut active.events {
            events.span(name, start, time);
        }
    }

    /// Records a poll for completions. `idle`: every request had completed.
    pub(crate) fn looked(&mut self, idle: bool) {
        let Some(active) = &mut self.0 else { return };
        let time = std::mem::take(&mut active.since_look);
        if idle {
            active.stats.consumer_wait += time;
        }
    }

    /// Records that a block is passed to the consumer.
    pub(crate) fn delivers(&mut self, slot: u32, offset: u64, in_flight: u32) {
        let Some(active) = &mut self.0 else { return };
        let samples = &mut active.stats.in_flight;
        if samples.len() <= in_flight as usize {
            samples.resize(in_flight as usize + 1, 0);
        }
        samples[in_flight as usize] += 1;
        if let Some(events) = &mut active.events {
            events.in_flight(in_flight);
            events.slot_span("ready", slot, offset, active.ready[slot as usize]);
        }
    }

    /// Records that a consumer has processed a block since `start`. `device_idle`: nothing was
    /// being read meanwhile, although there was more to read.
    pub(crate) fn consumed(&mut self, start: StartTime, bytes: u32, device_idle: bool) {
        let (Some(active), Some(start)) = (&mut self.0, start.0) else { return };
        let time = start.elapsed();
        active.stats.bytes += u64::from(bytes);
        active.stats.consuming += time;
        match device_idle {
            true => active.stats.consumer_wait += time,
            false => active.since_look += time,
        }
        if let Some(events) = &mut active.events {
            events.span("consume", start, time);
        }
    }

    /// Records that the slot of a block is free again.
    pub(crate) fn freed(&mut self, slot: u32, offset: u64, delivered: StartTime) {
        if let (Some(active), Some(delivered)) = (&mut self.0, delivered.0)
            && let Some(events) = &mut active.events
        {
            events.slot_span("consumed", slot, offset, delivered);
        }
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        if let Some(mut stats) = self.into.lock() {
            stats.bytes += self.stats.bytes;
            // A thread may have had several recorders, one after another.
            stats.add_thread(&self.stats);
            drop(stats);
            let (mut runs, this) = (lock(&self.into.runs), thread::current().id());
            if self.stats.bytes > 0 && !runs.threads.contains(&this) {
                runs.threads.push(this);
            }
        }
    }
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
