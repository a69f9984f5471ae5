//! `--stats`: what reading took, for people and for programs, on standard error.
//!
//! The JSON is specified in `docs/stats-format.md`.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use blockring::{Bottleneck, Choice, Stats};
use serde_json::{Map, Value, json};

use crate::values::StatsFormat;

/// Statistics of one input, or of all, in the format that was asked for.
pub(crate) struct Report<'a> {
    pub(crate) stats: &'a Stats,
    pub(crate) of: Of<'a>,
}

/// What they are of.
pub(crate) enum Of<'a> {
    /// An input, and how it was read.
    Input(&'a Path, &'a [Choice]),
    /// So many inputs, which took so long from the first to the last.
    All(u64, Duration),
}

impl Report<'_> {
    /// One line for a program, or some for people.
    pub(crate) fn format(&self, format: StatsFormat) -> String {
        match format {
            StatsFormat::Json => self.json().to_string(),
            StatsFormat::Text => self.text(),
        }
    }

    fn json(&self) -> Value {
        let stats = self.stats;
        let mut object = Map::new();
        match self.of {
            Of::Input(path, choices) => {
                object.insert("path".to_owned(), path.to_string_lossy().into());
                if path.to_str().is_none() {
                    // What is not UTF-8 is not lost.
                    object.insert(
                        "path_hex".to_owned(),
                        hex::encode(path.as_os_str().as_bytes()).into(),
                    );
                }
                let plan = choices.iter().map(|Choice { what, value, why }| {
                    ((*what).to_owned(), json!({ "value": value, "why": why }))
                });
                object.insert("plan".to_owned(), Value::Object(plan.collect()));
            }
            Of::All(inputs, elapsed) => {
                object.insert("total".to_owned(), true.into());
                object.insert("inputs".to_owned(), inputs.into());
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
            ("wall_ns", nanos(stats.wall)),
            ("cpu_ns", nanos(stats.cpu)),
            ("bytes_per_s", stats.bytes_per_s().into()),
            ("threads", stats.threads.into()),
            ("requests", stats.requests.into()),
            ("short_reads", stats.short_reads.into()),
            ("retries", stats.retries.into()),
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

    fn text(&self) -> String {
        let stats = self.stats;
        let mut text = match self.of {
            Of::Input(_, choices) => {
                let mut text = "statistics".to_owned();
                for Choice { what, value, why } in choices {
                    // Writing to a string cannot fail, here and below.
                    let _ = write!(text, "\n  {what:10} {value}: {why}");
                }
                text
            }
            Of::All(inputs, elapsed) => {
                let plural = if inputs == 1 { "" } else { "s" };
                format!("statistics of {inputs} input{plural}\n  elapsed    {}", time(elapsed))
            }
        };
        let mut line = |what: &str, value: String| {
            let _ = write!(text, "\n  {what:10} {value}");
        };
        let (wall, cpu) = (time(stats.wall), time(stats.cpu));
        let rate = stats.bytes_per_s() / f64::from(1 << 20);
        line("read", format!("{} bytes in {wall}, {rate:.0} MiB/s; {cpu} of CPU", stats.bytes));
        line(
            "requests",
            format!(
                "{}; {} came short, {} were made again for nothing",
                stats.requests, stats.short_reads, stats.retries
            ),
        );
        if let Some(latency) = stats.latency() {
            let quantiles = [
                ("50 %", latency.p50),
                ("99 %", latency.p99),
                ("99.5 %", latency.p99_5),
                ("99.9 %", latency.p99_9),
                ("99.99 %", latency.p99_99),
                ("max", latency.max),
            ];
            let quantiles =
                quantiles.map(|(name, ns)| format!("{name} {}", time(Duration::from_nanos(ns))));
            let avg = time(Duration::from_nanos(latency.avg as u64));
            line("latency", format!("average {avg}; {}", quantiles.join(", ")));
        }
        line("in flight", in_flight(stats));
        line(
            "waits",
            format!(
                "{} for reads, {} for the consumer, {} for the limit; {} in the consumer ({} thread{})",
                time(stats.device_wait),
                time(stats.consumer_wait),
                time(stats.limit_wait),
                time(stats.consuming),
                stats.threads,
                if stats.threads == 1 { "" } else { "s" },
            ),
        );
        line("bottleneck", bottleneck(stats).1.to_owned());
        text
    }
}

/// Shares of the samples, of neighbours together where there are many.
fn in_flight(stats: &Stats) -> String {
    let samples: u64 = stats.in_flight.iter().sum();
    if samples == 0 {
        return "never sampled".to_owned();
    }
    let step = stats.in_flight.len().div_ceil(8);
    let groups = stats.in_flight.chunks(step).enumerate().filter_map(|(i, group)| {
        let share = group.iter().sum::<u64>() as f64 / samples as f64 * 100.0;
        let (first, last) = (i * step, i * step + group.len() - 1);
        let name = if first == last { first.to_string() } else { format!("{first}-{last}") };
        (share > 0.0).then(|| format!("{name}: {share:.0} %"))
    });
    let groups: Vec<_> = groups.collect();
    format!("{}, when the consumer was given a block", groups.join(", "))
}

/// For programs, and for people.
fn bottleneck(stats: &Stats) -> (&'static str, &'static str) {
    match stats.bottleneck() {
        Bottleneck::Reading => ("reading", "reading: the hashing waited for it"),
        Bottleneck::Consuming => ("hashing", "hashing: the device waited for it"),
        Bottleneck::Limit => ("limit", "the limit: no more was allowed to be read"),
        _ => ("neither", "neither: reading and hashing keep pace"),
    }
}

fn nanos(time: Duration) -> Value {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).into()
}

/// A time with three digits or so.
fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s < 0.001 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
