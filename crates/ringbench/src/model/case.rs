//! Groups of cases that are measured and shown together, and their samples.

use std::collections::BTreeMap;

use blockring::ErrorKind;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::comparison::Ratio;
use super::summary::Summary;
use super::units::{show_scaled, show_seconds};

/// Cases that are measured in interleaved rounds and shown together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Group {
    /// Unique within a run.
    pub(crate) name: String,
    /// A sentence about what it shows.
    pub(crate) about: String,
    pub(crate) metric: Metric,
    pub(crate) chart: Chart,
    pub(crate) cases: Vec<Case>,
    /// Caveats about its numbers, in words.
    #[serde(default)]
    pub(crate) advice: Vec<String>,
}

/// One configuration or command that is measured several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Case {
    /// Unique within its group.
    pub(crate) name: String,
    /// Its settings by name: `engine`, `block`, `depth`, ...
    pub(crate) parameters: BTreeMap<String, String>,
    /// Why it has no samples, or no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) missing: Option<Missing>,
    pub(crate) samples: Vec<Sample>,
}

/// Why a case was not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Missing {
    /// It cannot run here: a peer that is not installed, an engine that the kernel does not have.
    Unavailable(String),
    /// It should have run, and failed.
    Failed(String),
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

/// How a group is drawn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Chart {
    /// A bar for each case, with the range of its samples.
    Bars,
    /// A cell for each case, by the values of two of its parameters.
    Heat { x: String, y: String },
    /// The metric over one parameter, with a line for each value of another.
    Lines { x: String, by: String },
    /// Latency percentiles, with a line for each case.
    Latency,
    /// Requests in flight over time, with a line for each case.
    InFlight,
}

/// One measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Its start, in seconds since the start of the run.
    pub(crate) at_s: f64,
    pub(crate) wall_s: f64,
    /// Processor time, user and system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_s: Option<f64>,
    /// Peak resident memory of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rss_bytes: Option<u64>,
    /// Bytes that were moved or hashed.
    pub(crate) bytes: u64,
    /// Reads, writes, lookups or blocks.
    pub(crate) operations: u64,
    /// Bytes that the disk of the files delivered in this time, to any process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) disk_read_bytes: Option<u64>,
    /// Processor time that the hypervisor gave to others in this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) steal_s: Option<f64>,
    /// Processor time of other processes in this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) others_cpu_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) latency_ns: Option<LatencyNs>,
    /// Changes of the number of requests in flight, with their times in seconds since the start of
    /// the sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) in_flight: Vec<(f64, u32)>,
    /// The digest that a hasher printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
    /// Numbers that only this workload has, by name; the unit stands last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) more: BTreeMap<String, f64>,
}

/// Latencies of operations, in nanoseconds.
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

impl Chart {
    pub(crate) fn heat(x: &str, y: &str) -> Chart {
        Chart::Heat { x: x.to_owned(), y: y.to_owned() }
    }

    pub(crate) fn lines(x: &str, by: &str) -> Chart {
        Chart::Lines { x: x.to_owned(), by: by.to_owned() }
    }
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

    pub(crate) fn name(self) -> &'static str {
        match self {
            Metric::Seconds => "time",
            Metric::BytesPerS => "throughput",
            Metric::OperationsPerS => "rate",
            Metric::NsPerOperation => "time per operation",
        }
    }

    pub(crate) fn more_is_better(self) -> bool {
        matches!(self, Metric::BytesPerS | Metric::OperationsPerS)
    }

    pub(crate) fn is_better(self, a: f64, b: f64) -> bool {
        if self.more_is_better() { a > b } else { a < b }
    }

    /// The median with half of its 95 % interval, if there are several samples: `81.3 ± 0.4 ms`.
    pub(crate) fn show_summary(self, summary: &Summary) -> String {
        let shown = self.show(summary.median).trim_end().to_owned();
        let Some((number, unit)) = shown.split_once(' ').filter(|_| summary.count > 1) else {
            return shown;
        };
        let digits = number.split_once('.').map_or(0, |(_, digits)| digits.len());
        let scale = number.parse::<f64>().map_or(0.0, |number| number / summary.median);
        format!("{number} ± {:.digits$} {unit}", summary.noise() * scale)
    }

    /// A value in a cell: `3.81G`, `81.3 ms`.
    pub(crate) fn show_short(self, value: f64) -> String {
        let shown = self.show(value);
        let scaled = shown.strip_suffix("B/s").or_else(|| shown.strip_suffix("/s"));
        scaled.map_or(shown.clone(), |scaled| scaled.replace(' ', ""))
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

impl Missing {
    pub(crate) fn why(&self) -> &str {
        match self {
            Missing::Unavailable(why) | Missing::Failed(why) => why,
        }
    }

    pub(crate) fn unavailable<T>(why: impl Into<String>) -> Result<T, Missing> {
        Err(Missing::Unavailable(why.into()))
    }

    /// The error of a system call that not every kernel or file system supports.
    pub(crate) fn unsupported(what: &str, error: &std::io::Error) -> Missing {
        let why = format!("{what}: {error}");
        match error.raw_os_error() {
            Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM | libc::ENOMEM) => {
                Missing::Unavailable(why)
            }
            _ => Missing::Failed(why),
        }
    }
}

impl From<anyhow::Error> for Missing {
    fn from(error: anyhow::Error) -> Missing {
        Missing::Failed(format!("{error:#}"))
    }
}

impl From<std::io::Error> for Missing {
    fn from(error: std::io::Error) -> Missing {
        Missing::Failed(error.to_string())
    }
}

/// A refused engine, cache mode, option or resource is not a failure.
impl From<ErrorKind> for Missing {
    fn from(error: ErrorKind) -> Missing {
        let why = error.to_string();
        match error {
            ErrorKind::Engine { .. }
            | ErrorKind::Cache { .. }
            | ErrorKind::Config(_)
            | ErrorKind::Resource { .. } => Missing::Unavailable(why),
            _ => Missing::Failed(why),
        }
    }
}

impl From<blockring::Error> for Missing {
    fn from(error: blockring::Error) -> Missing {
        error.kind.into()
    }
}

impl LatencyNs {
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

/// A histogram of latencies in nanoseconds, with three digits, that grows with its values.
pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are supported")
}

impl From<&Histogram<u64>> for LatencyNs {
    fn from(histogram: &Histogram<u64>) -> LatencyNs {
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

    /// The values of the metric of one case, without the rounds that are left out.
    pub(crate) fn values(&self, case: &Case) -> Vec<f64> {
        self.values_of(self.metric, case)
    }

    fn values_of(&self, metric: Metric, case: &Case) -> Vec<f64> {
        let kept = case.samples.iter().zip(self.left_out().0).filter(|(_, left_out)| !left_out);
        kept.map(|(sample, _)| metric.of(sample)).collect()
    }

    /// The rate that the best tenth of the samples of a case reach, whatever the metric of the group.
    pub(crate) fn sustained_bytes_per_s(&self, case: &Case) -> Option<f64> {
        Summary::sustained(&self.values_of(Metric::BytesPerS, case))
    }

    /// The ratio of the times of two cases, as `b` to `a`: above 1 if `b` takes longer.
    pub(crate) fn compare(&self, a: &str, b: &str) -> Option<Ratio> {
        let ratio = Ratio::of_pairs(&self.values(self.case(a)?), &self.values(self.case(b)?))?;
        Some(if self.metric.more_is_better() { ratio.inverse() } else { ratio })
    }

    pub(crate) fn summary(&self, case: &Case) -> Option<Summary> {
        Summary::of(&self.values(case))
    }

    /// The median of a case's metric, if it has samples.
    pub(crate) fn median(&self, case: &Case) -> Option<f64> {
        self.summary(case).map(|summary| summary.median)
    }

    pub(crate) fn median_of(&self, name: &str) -> Option<f64> {
        self.median(self.case(name)?)
    }

    pub(crate) fn best(&self) -> Option<(&Case, f64)> {
        let medians = self.cases.iter().filter_map(|case| Some((case, self.median(case)?)));
        medians.reduce(|best, next| if self.metric.is_better(next.1, best.1) { next } else { best })
    }

    /// The best median, and whether the data tell it from the others.
    pub(crate) fn best_in_words(&self) -> Option<String> {
        let (best, median) = self.best()?;
        let has_samples = |case: &&Case| *case != best && !case.samples.is_empty();
        let others: Vec<_> = self.cases.iter().filter(has_samples).collect();
        let ratios = others.iter().filter_map(|case| self.compare(&best.name, &case.name));
        let ratios: Vec<_> = ratios.collect();
        let same = ratios.iter().filter(|ratio| !ratio.differs()).count();
        let certainty = match (others.len(), ratios.len(), same) {
            (0, ..) => String::new(),
            (_, 0, _) => "; too few samples to tell it from the others".to_owned(),
            (_, _, 0) => "; the others differ from it".to_owned(),
            (_, all, same) => format!("; of {all} others, {same} are indistinguishable from it"),
        };
        let median = self.metric.show(median);
        Some(format!("the best median is {}, of {}{certainty}", median.trim_end(), best.name))
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

    /// The median of a part of the samples that is not the metric.
    pub(crate) fn median_of(&self, part: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let parts: Vec<f64> = self.samples.iter().filter_map(part).collect();
        Summary::of(&parts).map(|summary| summary.median)
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
        assert_eq!(Metric::BytesPerS.show_short(3.81e9), "3.81G");
        assert_eq!(Metric::Seconds.show_short(0.0813), "81.3 ms");
        let summary = |values: &[f64]| Summary::of(values).unwrap();
        assert_eq!(Metric::Seconds.show_summary(&summary(&[1.0])), "1.00 s");
        let three = summary(&[3.8e9, 3.81e9, 3.82e9]);
        assert_eq!(Metric::BytesPerS.show_summary(&three), "3.81 ± 0.03 GB/s");
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
            let words = group.best_in_words().unwrap();
            assert!(
                words.ends_with("of even; too few samples to tell it from the others"),
                "{words}"
            );
        }
        assert!(Group::new("g", "", Metric::Seconds, Chart::Bars).best().is_none());
    }
}
