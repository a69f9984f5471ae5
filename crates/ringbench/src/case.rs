//! What is measured, and what came of it: groups of cases that belong side by side, and their samples.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Cases that are measured in turn and shown together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Group {
    /// Unique within a run.
    pub(crate) name: String,
    /// What it shows, in one sentence.
    pub(crate) about: String,
    pub(crate) metric: Metric,
    pub(crate) chart: Chart,
    pub(crate) cases: Vec<Case>,
    /// What is to be known before its numbers are believed, in words.
    #[serde(default)]
    pub(crate) advice: Vec<String>,
}

/// One thing that is measured several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Case {
    /// Unique within its group.
    pub(crate) name: String,
    /// What it is, by name: `engine`, `block`, `depth`, ...
    pub(crate) parameters: BTreeMap<String, String>,
    /// Why there are no samples, or no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) missing: Option<Missing>,
    pub(crate) samples: Vec<Sample>,
}

/// Why something was not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Missing {
    /// It cannot run here: a peer that is not installed, an engine that the kernel refuses.
    Unavailable(String),
    /// It should have run, and did not.
    Failed(String),
}

impl Missing {
    pub(crate) fn why(&self) -> &str {
        match self {
            Missing::Unavailable(why) | Missing::Failed(why) => why,
        }
    }
}

/// The number that the cases of a group are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    Seconds,
    BytesPerS,
    OperationsPerS,
    NsPerOperation,
}

impl Metric {
    pub(crate) fn of(self, sample: &Sample) -> f64 {
        match self {
            Metric::Seconds => sample.wall_s,
            Metric::BytesPerS => sample.bytes as f64 / sample.wall_s.max(1e-9),
            Metric::OperationsPerS => sample.operations as f64 / sample.wall_s.max(1e-9),
            Metric::NsPerOperation => sample.wall_s * 1e9 / sample.operations.max(1) as f64,
        }
    }

    /// What it is called over a column or an axis.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Metric::Seconds => "time",
            Metric::BytesPerS => "throughput",
            Metric::OperationsPerS => "rate",
            Metric::NsPerOperation => "time per operation",
        }
    }

    /// Whether the larger of two values is the better one.
    pub(crate) fn more_is_better(self) -> bool {
        matches!(self, Metric::BytesPerS | Metric::OperationsPerS)
    }

    /// A value with its unit, to three digits.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Metric::Seconds => show_seconds(value),
            Metric::BytesPerS => format!("{}B/s", show_scaled(value)),
            Metric::OperationsPerS => format!("{}/s", show_scaled(value)),
            Metric::NsPerOperation => show_seconds(value / 1e9),
        }
    }
}

/// Three digits and a decimal prefix: `3.81 G`.
pub(crate) fn show_scaled(value: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.into_iter().find(|(unit, _)| value.abs() >= *unit) {
        Some((unit, prefix)) => format!("{} {prefix}", three_digits(value / unit)),
        None => format!("{} ", three_digits(value)),
    }
}

/// A time in the unit that suits it: `81.3 ms`.
pub(crate) fn show_seconds(value: f64) -> String {
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")];
    let (unit, name) =
        units.into_iter().find(|(unit, _)| value.abs() >= *unit).unwrap_or((1e-9, "ns"));
    format!("{} {name}", three_digits(value / unit))
}

fn three_digits(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// How a group is drawn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Chart {
    /// One bar for each case, with the range of its samples.
    Bars,
    /// A square for each case, at the values of two of its parameters.
    Heat { x: String, y: String },
    /// The metric over one parameter, a line for each value of another (or of all others, joined).
    Lines { x: String, by: String },
    /// Latencies at their percentiles, a line for each case.
    Latency,
    /// Requests in flight over time, a line for each case.
    InFlight,
}

/// One measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// When it began, in seconds since the run did.
    pub(crate) at_s: f64,
    pub(crate) wall_s: f64,
    /// Processor time, user and system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_s: Option<f64>,
    /// Peak resident memory of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rss_bytes: Option<u64>,
    /// Bytes that were moved, or hashed.
    pub(crate) bytes: u64,
    /// Reads, writes, lookups or blocks.
    pub(crate) operations: u64,
    /// What the disk under the files delivered meanwhile, to anybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) disk_read_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) latency_ns: Option<LatencyNs>,
    /// Requests in flight from a moment on, in seconds since the sample began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) in_flight: Vec<(f64, u32)>,
    /// What a hasher printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
    /// What only this workload has, by name and unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) more: BTreeMap<String, f64>,
}

/// How long operations took, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LatencyNs {
    pub(crate) avg: f64,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p99_5: u64,
    pub(crate) p99_9: u64,
    pub(crate) p99_99: u64,
    pub(crate) max: u64,
}

impl LatencyNs {
    /// The percentiles, with what they are called.
    pub(crate) fn percentiles(&self) -> [(&'static str, u64); 6] {
        [
            ("50 %", self.p50),
            ("99 %", self.p99),
            ("99.5 %", self.p99_5),
            ("99.9 %", self.p99_9),
            ("99.99 %", self.p99_99),
            ("max", self.max),
        ]
    }
}

impl From<blockring::Latency> for LatencyNs {
    fn from(latency: blockring::Latency) -> LatencyNs {
        let blockring::Latency { avg, p50, p99, p99_5, p99_9, p99_99, max, .. } = latency;
        LatencyNs { avg, p50, p99, p99_5, p99_9, p99_99, max }
    }
}

impl From<&hdrhistogram::Histogram<u64>> for LatencyNs {
    fn from(histogram: &hdrhistogram::Histogram<u64>) -> LatencyNs {
        let at = |quantile| histogram.value_at_quantile(quantile);
        LatencyNs {
            avg: histogram.mean(),
            p50: at(0.5),
            p99: at(0.99),
            p99_5: at(0.995),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: histogram.max(),
        }
    }
}

impl Group {
    pub(crate) fn new(
        name: impl Into<String>,
        about: impl Into<String>,
        metric: Metric,
        chart: Chart,
    ) -> Group {
        let (cases, advice) = (Vec::new(), Vec::new());
        Group { name: name.into(), about: about.into(), metric, chart, cases, advice }
    }

    /// The values of the metric of one case.
    pub(crate) fn values(&self, case: &Case) -> Vec<f64> {
        case.samples.iter().map(|sample| self.metric.of(sample)).collect()
    }

    /// The median of a case's metric, if it has any samples.
    pub(crate) fn median(&self, case: &Case) -> Option<f64> {
        crate::summary::Summary::of(&self.values(case)).map(|summary| summary.median)
    }

    /// The case with the best median.
    pub(crate) fn best(&self) -> Option<(&Case, f64)> {
        let medians = self.cases.iter().filter_map(|case| Some((case, self.median(case)?)));
        medians.reduce(|best, next| {
            let is_better = match self.metric.more_is_better() {
                true => next.1 > best.1,
                false => next.1 < best.1,
            };
            if is_better { next } else { best }
        })
    }

    pub(crate) fn case(&self, name: &str) -> Option<&Case> {
        self.cases.iter().find(|case| case.name == name)
    }
}

impl Case {
    pub(crate) fn new(name: impl Into<String>) -> Case {
        let (parameters, samples) = (BTreeMap::new(), Vec::new());
        Case { name: name.into(), parameters, missing: None, samples }
    }

    pub(crate) fn with(mut self, parameter: &str, value: impl ToString) -> Case {
        self.parameters.insert(parameter.to_owned(), value.to_string());
        self
    }

    /// The medians of the samples' parts that are not the metric.
    pub(crate) fn median_of(&self, part: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let parts: Vec<f64> = self.samples.iter().filter_map(part).collect();
        crate::summary::Summary::of(&parts).map(|summary| summary.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_with_three_digits() {
        let cases = [
            (Metric::Seconds, 0.0813, "81.3 ms"),
            (Metric::Seconds, 12.3456, "12.3 s"),
            (Metric::Seconds, 0.0, "0.00 ns"),
            (Metric::BytesPerS, 3_812_000_000.0, "3.81 GB/s"),
            (Metric::OperationsPerS, 135_000.0, "135 k/s"),
            (Metric::OperationsPerS, 12.0, "12.0 /s"),
            (Metric::NsPerOperation, 280.0, "280 ns"),
            (Metric::NsPerOperation, 28_000.0, "28.0 µs"),
        ];
        for (metric, value, shown) in cases {
            assert_eq!(metric.show(value), shown);
        }
    }

    #[test]
    fn the_best_case_is_the_fastest_by_its_median() {
        let case = |name: &str, walls: &[f64]| {
            let sample = |wall_s: &f64| Sample { wall_s: *wall_s, bytes: 100, ..Sample::default() };
            Case { samples: walls.iter().map(sample).collect(), ..Case::new(name) }
        };
        let cases = vec![
            Case::new("none"),
            case("even", &[2.0, 2.0, 2.0]),
            case("lucky once", &[0.1, 5.0, 5.0]),
        ];
        for metric in [Metric::Seconds, Metric::BytesPerS] {
            let group = Group::new("g", "", metric, Chart::Bars);
            let group = Group { cases: cases.clone(), ..group };
            assert_eq!(group.best().unwrap().0.name, "even");
        }
        assert!(Group::new("g", "", Metric::Seconds, Chart::Bars).best().is_none());
    }
}
