//! `--stats`: I/O statistics on standard error, for users or for programs.
//!
//! `docs/formats.md` specifies the JSON.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use blockring::{Choice, Plan, Stats};
use serde_json::{Map, Value, json};

use super::Messages;
use crate::cli::args::values::StatsFormat;
use crate::cli::lock;

/// The statistics of a run.
pub(crate) struct Totals {
    /// `None`: they are not printed.
    format: Option<StatsFormat>,
    start: Instant,
    sums: Mutex<Sums>,
}

#[derive(Default)]
struct Sums {
    inputs: u64,
    /// Whether some inputs shared readers, so that they have no statistics of their own.
    has_shared: bool,
    /// Files whose digests came from the index, and their bytes.
    from_index: (u64, u64),
    stats: Stats,
}

impl Totals {
    pub(crate) fn new(format: Option<StatsFormat>) -> Totals {
        Totals { format, start: Instant::now(), sums: Mutex::default() }
    }

    /// Prints the statistics of an input, and adds them to the totals.
    pub(crate) fn add_input(&self, messages: &Messages, path: &Path, plan: &Plan) {
        let (Some(format), Some(stats)) = (self.format, plan.stats()) else { return };
        lock(&self.sums).stats += &stats;
        let text = Report::Input(path, plan.choices()).format(&stats, format);
        messages.report(Some(path.as_os_str().as_encoded_bytes()), format, text);
    }

    /// Adds the statistics of the files of a device to the totals.
    pub(crate) fn add_device(&self, plan: &Plan) {
        if let Some(stats) = plan.stats() {
            lock(&self.sums).stats += &stats;
        }
    }

    /// Counts inputs. `is_shared`: they shared readers, and have no statistics of their own.
    pub(crate) fn count_inputs(&self, inputs: u64, is_shared: bool) {
        let mut sums = lock(&self.sums);
        sums.inputs += inputs;
        sums.has_shared |= is_shared;
    }

    /// Counts files whose digests came from the index, and their bytes.
    pub(crate) fn count_from_index(&self, files: u64, bytes: u64) {
        let mut sums = lock(&self.sums);
        sums.from_index.0 += files;
        sums.from_index.1 += bytes;
    }

    /// Prints the totals, except as text if they would only repeat those of one input.
    pub(crate) fn print(&self, messages: &Messages) {
        let Some(format) = self.format else { return };
        let sums = &mut *lock(&self.sums);
        if format == StatsFormat::Json || sums.inputs != 1 || sums.has_shared {
            let elapsed = self.start.elapsed();
            // Files that are hashed on their own overlap with the other files of their device.
            sums.stats.wall = sums.stats.wall.min(elapsed);
            sums.stats.cpu = sums.stats.cpu.min(process_cpu());
            let report = Report::All(sums.inputs, elapsed, sums.from_index);
            messages.report(None, format, report.format(&sums.stats, format));
        }
    }
}

/// The processor time of the process so far.
fn process_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What statistics are of.
enum Report<'a> {
    /// An input, and how it was read.
    Input(&'a Path, &'a [Choice]),
    /// The number of inputs, the time from the first to the last, and the number and bytes of files
    /// whose digests came from the index.
    All(u64, Duration, (u64, u64)),
}

impl Report<'_> {
    /// Returns one line for programs, or several for users.
    fn format(&self, stats: &Stats, format: StatsFormat) -> String {
        match format {
            StatsFormat::Json => self.json(stats).to_string(),
            StatsFormat::Text => self.text(stats),
        }
    }

    fn json(&self, stats: &Stats) -> Value {
        let mut object = Map::new();
        match *self {
            Report::Input(path, choices) => {
                object.insert("path".to_owned(), path.to_string_lossy().into());
                if path.to_str().is_none() {
                    let hex = hex::encode(path.as_os_str().as_bytes());
                    object.insert("path_hex".to_owned(), hex.into());
                }
                let plan = choices.iter().map(|Choice { what, value, why, .. }| {
                    ((*what).to_owned(), json!({ "value": value, "why": why }))
                });
                object.insert("plan".to_owned(), Value::Object(plan.collect()));
            }
            Report::All(inputs, elapsed, (files, _)) => {
                object.insert("total".to_owned(), true.into());
                object.insert("inputs".to_owned(), inputs.into());
                object.insert("from_index".to_owned(), files.into());
                object.insert("elapsed_ns".to_owned(), nanos(elapsed));
            }
        }
        let in_flight = stats.in_flight.iter().enumerate().filter(|(_, samples)| **samples > 0);
        let in_flight = in_flight.map(|(n, samples)| (n.to_string(), (*samples).into())).collect();
        let latency = stats.latency().map(|latency| {
            json!({
                "avg": latency.avg,
                "p50": latency.p50,
                "p99": latency.p99,
                "p99_5": latency.p99_5,
                "p99_9": latency.p99_9,
                "p99_99": latency.p99_99,
                "max": latency.max,
            })
        });
        let fields = [
            ("bytes", stats.bytes.into()),
            ("hole_bytes", stats.hole_bytes.into()),
            ("wall_ns", nanos(stats.wall)),
            ("cpu_ns", nanos(stats.cpu)),
            ("bytes_per_s", bytes_per_s(stats).into()),
            ("threads", stats.threads.into()),
            ("requests", stats.requests.into()),
            ("short_reads", stats.short_reads.into()),
            ("retries", stats.retries.into()),
            ("mapped_bytes", stats.mapped_bytes.into()),
            ("in_flight", Value::Object(in_flight)),
            ("latency_ns", latency.into()),
            ("device_wait_ns", nanos(stats.device_wait)),
            ("consumer_wait_ns", nanos(stats.consumer_wait)),
            ("limit_wait_ns", nanos(stats.limit_wait)),
            ("consuming_ns", nanos(stats.consuming)),
            ("bottleneck", bottleneck(stats).0.into()),
        ];
        object.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        Value::Object(object)
    }

    fn text(&self, stats: &Stats) -> String {
        let mut text = match *self {
            Report::Input(_, choices) => {
                let mut text = "statistics".to_owned();
                for Choice { what, value, why, .. } in choices {
                    // (Writing to a string does not fail.)
                    let _ = write!(text, "\n  {what}: {value} ({why})");
                }
                text
            }
            Report::All(inputs, elapsed, (files, bytes)) => {
                let plural = |n| if n == 1 { "" } else { "s" };
                let (inputs_end, elapsed) = (plural(inputs), time(elapsed));
                let mut text =
                    format!("statistics of {inputs} input{inputs_end}\n  elapsed: {elapsed}");
                if files > 0 {
                    let end = plural(files);
                    let _ = write!(
                        text,
                        "\n  unchanged: {files} file{end}, {bytes} bytes, not read: the digests are from the index"
                    );
                }
                text
            }
        };
        if stats.hole_bytes > 0 {
            // (Writing to a string does not fail.)
            let _ = write!(text, "\n  holes: {} bytes, not read", stats.hole_bytes);
        }
        if stats.requests == 0 && stats.bytes == 0 {
            text.push_str("\n  read: nothing");
            return text;
        }
        let mut line = |what: &str, value: String| {
            let _ = write!(text, "\n  {what}: {value}");
        };
        let (wall, cpu) = (time(stats.wall), time(stats.cpu));
        let rate = bytes_per_s(stats) / f64::from(1 << 20);
        let digits = usize::from(rate < 100.0);
        let rate = format!("{rate:.digits$} MiB/s");
        line("read", format!("{} bytes in {wall}, {rate}, {cpu} CPU time", stats.bytes));
        let Stats { requests, short_reads, retries, threads, .. } = stats;
        line("requests", format!("{requests} ({short_reads} short reads, {retries} retries)"));
        if stats.mapped_bytes > 0 {
            let part = stats.mapped_bytes as f64 / stats.bytes.max(1) as f64 * 100.0;
            line("mapped", format!("{part:.0} % of the bytes (the others were copied)"));
        }
        if let Some(latency) = stats.latency() {
            let quantiles = [
                ("p50", latency.p50),
                ("p99", latency.p99),
                ("p99.5", latency.p99_5),
                ("p99.9", latency.p99_9),
                ("p99.99", latency.p99_99),
                ("max", latency.max),
            ];
            let quantiles =
                quantiles.map(|(name, ns)| format!("{name} {}", time(Duration::from_nanos(ns))));
            let avg = time(Duration::from_nanos(latency.avg as u64));
            line("latency", format!("average {avg}, {}", quantiles.join(", ")));
        }
        line("in flight", in_flight(stats));
        let of_all = if *threads == 1 { "" } else { ", of all threads together" };
        line(
            "wait times",
            format!(
                "{} for reads, {} for the consumer, {} for the rate limit{of_all}",
                time(stats.device_wait),
                time(stats.consumer_wait),
                time(stats.limit_wait),
            ),
        );
        let plural = if *threads == 1 { "" } else { "s" };
        line("hashing", format!("{} on {threads} thread{plural}", time(stats.consuming)));
        line("bottleneck", bottleneck(stats).1.to_owned());
        text
    }
}

/// Formats the shares of the queue depths, in up to 8 groups.
fn in_flight(stats: &Stats) -> String {
    let samples: u64 = stats.in_flight.iter().sum();
    if samples == 0 {
        return "not sampled".to_owned();
    }
    let step = stats.in_flight.len().div_ceil(8);
    let groups = stats.in_flight.chunks(step).enumerate().filter_map(|(i, group)| {
        let share = group.iter().sum::<u64>() as f64 / samples as f64 * 100.0;
        let (first, last) = (i * step, i * step + group.len() - 1);
        let name = if first == last { first.to_string() } else { format!("{first}-{last}") };
        (share > 0.0).then(|| format!("{name}: {share:.0} %"))
    });
    let groups: Vec<_> = groups.collect();
    format!("{}, when a block was passed to the consumer", groups.join(", "))
}

/// Bytes per second of wall time; 0 for a run that took no time.
fn bytes_per_s(stats: &Stats) -> f64 {
    match stats.wall.as_secs_f64() {
        0.0 => 0.0,
        seconds => stats.bytes as f64 / seconds,
    }
}

/// Returns the bottleneck of the run, for programs and for users: the rate limit if threads slept
/// for more than half of the time; otherwise the side that was waited for noticeably (5 % of the
/// time) and half as long again as the other.
fn bottleneck(stats: &Stats) -> (&'static str, &'static str) {
    let (device, consumer) = (stats.device_wait, stats.consumer_wait);
    let time = stats.wall * stats.threads.max(1);
    let is_noticeable = |wait| wait > time / 20;
    if stats.limit_wait > time / 2 {
        ("limit", "the rate limit")
    } else if is_noticeable(device) && device > consumer * 3 / 2 {
        ("reading", "reading (hashing waited for it)")
    } else if is_noticeable(consumer) && consumer > device * 3 / 2 {
        ("hashing", "hashing (the device waited for it)")
    } else {
        ("neither", "none (reading and hashing keep pace)")
    }
}

fn nanos(time: Duration) -> Value {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).into()
}

/// Formats a time with about three digits.
fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s < 0.001 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bottleneck_is_the_side_that_is_waited_for() {
        let cases = [
            (900, 10, 0, "reading"),
            (10, 900, 0, "hashing"),
            (500, 400, 0, "neither"),
            (20, 0, 0, "neither"),
            (0, 0, 0, "neither"),
            (900, 0, 501, "limit"),
        ];
        for (device, consumer, limit, expected) in cases {
            let mut stats = Stats::default();
            [stats.device_wait, stats.consumer_wait, stats.limit_wait, stats.wall] =
                [device, consumer, limit, 1000].map(Duration::from_millis);
            stats.threads = 1;
            assert_eq!(bottleneck(&stats).0, expected, "{device} {consumer} {limit}");
        }
    }
}
