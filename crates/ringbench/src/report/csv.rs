//! Runs as CSV (RFC 4180, lines end in a line feed): a row for each sample, nothing left out.

use std::collections::BTreeMap;

use crate::model::case::{Case, Group, Metric, Sample};
use crate::model::run_file::Run;

use super::NamedRun;

const COLUMNS: [&str; 27] = [
    "run",
    "started",
    "state",
    "workload",
    "group",
    "case",
    "parameters",
    "sample",
    "at_s",
    "wall_s",
    "metric",
    "value",
    "cpu_s",
    "rss_bytes",
    "bytes",
    "operations",
    "disk_read_bytes",
    "latency_avg_ns",
    "latency_p50_ns",
    "latency_p99_ns",
    "latency_p99_5_ns",
    "latency_p99_9_ns",
    "latency_p99_99_ns",
    "latency_max_ns",
    "in_flight_max",
    "digest",
    "more",
];

/// All samples of all runs. Cases without samples have no row.
pub(crate) fn of_runs(runs: &[NamedRun]) -> String {
    let mut text = COLUMNS.join(",");
    text.push('\n');
    for NamedRun { name, run } in runs {
        for group in &run.groups {
            for case in &group.cases {
                for (number, sample) in case.samples.iter().enumerate() {
                    let row = row((name, run), group, case, (number, sample));
                    let row: Vec<String> = row.iter().map(|field| quote(field)).collect();
                    text.push_str(&row.join(","));
                    text.push('\n');
                }
            }
        }
    }
    text
}

fn row(
    (name, run): (&str, &Run),
    group: &Group,
    case: &Case,
    (number, sample): (usize, &Sample),
) -> Vec<String> {
    let latency = sample.latency_ns;
    let percentile = |index: usize| show(latency.map(|latency| latency.percentiles()[index].1));
    let state = match run.state {
        crate::model::run_file::RunState::Running => "running",
        crate::model::run_file::RunState::Finished => "finished",
        crate::model::run_file::RunState::CutShort => "cut_short",
        crate::model::run_file::RunState::Interrupted => "interrupted",
    };
    let mut row = vec![
        name.to_owned(),
        run.started.clone(),
        state.to_owned(),
        run.workload.clone(),
        group.name.clone(),
        case.name.clone(),
        join(&case.parameters),
        (number + 1).to_string(),
        sample.at_s.to_string(),
        sample.wall_s.to_string(),
        metric(group.metric).to_owned(),
        group.metric.of(sample).to_string(),
        show(sample.cpu_s),
        show(sample.rss_bytes),
        sample.bytes.to_string(),
        sample.operations.to_string(),
        show(sample.disk_read_bytes),
        show(latency.map(|latency| latency.avg)),
    ];
    row.extend((0..6).map(percentile));
    row.push(show(sample.in_flight.iter().map(|(_, count)| *count).max()));
    row.push(sample.digest.clone().unwrap_or_default());
    row.push(join(&sample.more));
    row
}

/// The metric by the unit of its values.
fn metric(metric: Metric) -> &'static str {
    match metric {
        Metric::Seconds => "seconds",
        Metric::BytesPerS => "bytes_per_s",
        Metric::OperationsPerS => "operations_per_s",
        Metric::NsPerOperation => "ns_per_operation",
    }
}

fn show(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// `block=1M;engine=pread`
fn join(values: &BTreeMap<String, impl ToString>) -> String {
    let pairs = values.iter().map(|(name, value)| format!("{name}={}", value.to_string()));
    pairs.collect::<Vec<_>>().join(";")
}

fn quote(field: &str) -> String {
    match field.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn every_sample_is_a_row() {
        let mut run = fixture::run();
        for case in &mut run.groups[0].cases {
            case.samples.truncate(1);
        }
        let named = NamedRun { name: "a.json".into(), run };
        assert_eq!(of_runs(&[named]), include_str!("expected/compare.csv"));
    }

    #[test]
    fn fields_are_quoted() {
        assert_eq!(quote("plain | <b>;x=1"), "plain | <b>;x=1");
        assert_eq!(quote("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
    }
}
