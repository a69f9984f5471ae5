//! Runs as CSV (RFC 4180, but lines end in a line feed): a row for each sample, with everything in it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::NamedRun;
use crate::model::case::{Case, Group, Sample};

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
    let mut text = COLUMNS.join(",") + "\n";
    for named in runs {
        for group in &named.run.groups {
            for case in &group.cases {
                for (number, sample) in (1..).zip(&case.samples) {
                    let row = row(named, group, case, (number, sample));
                    text.push_str(&row.map(|field| quote(&field)).join(","));
                    text.push('\n');
                }
            }
        }
    }
    text
}

fn row(
    NamedRun { name, run }: &NamedRun,
    group: &Group,
    case: &Case,
    (number, sample): (u32, &Sample),
) -> [String; COLUMNS.len()] {
    let latency = |part: usize| show(sample.latency_ns.map(|ns| ns.percentiles()[part].1));
    [
        name.clone(),
        run.started.clone(),
        in_json(&run.state),
        run.workload.clone(),
        group.name.clone(),
        case.name.clone(),
        join(&case.parameters),
        number.to_string(),
        sample.at_s.to_string(),
        sample.wall_s.to_string(),
        in_json(&group.metric),
        group.metric.of(sample).to_string(),
        show(sample.cpu_s),
        show(sample.rss_bytes),
        sample.bytes.to_string(),
        sample.operations.to_string(),
        show(sample.disk_read_bytes),
        show(sample.latency_ns.map(|ns| ns.avg)),
        latency(0),
        latency(1),
        latency(2),
        latency(3),
        latency(4),
        latency(5),
        show(sample.in_flight.iter().map(|(_, count)| *count).max()),
        show(sample.digest.as_ref()),
        join(&sample.more),
    ]
}

/// The name of a variant in run files.
fn in_json(variant: &impl serde::Serialize) -> String {
    match serde_json::to_value(variant) {
        Ok(Value::String(name)) => name,
        _ => String::new(),
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
