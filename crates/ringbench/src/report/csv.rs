//! Runs as CSV (RFC 4180, but lines end in a line feed): a row for each sample, with everything in it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::NamedRun;
use crate::model::case::{Case, Group, Sample};
use crate::model::run_file::Run;

/// A sample, and what it belongs to.
struct Row<'a> {
    name: &'a str,
    run: &'a Run,
    group: &'a Group,
    case: &'a Case,
    number: usize,
    sample: &'a Sample,
}

/// The name of a column, and its value in a row.
type Column = (&'static str, fn(&Row<'_>) -> String);

const COLUMNS: [Column; 27] = [
    ("run", |row| row.name.to_owned()),
    ("started", |row| row.run.started.clone()),
    ("state", |row| in_json(row.run.state)),
    ("workload", |row| row.run.workload.clone()),
    ("group", |row| row.group.name.clone()),
    ("case", |row| row.case.name.clone()),
    ("parameters", |row| join(&row.case.parameters)),
    ("sample", |row| (row.number + 1).to_string()),
    ("at_s", |row| row.sample.at_s.to_string()),
    ("wall_s", |row| row.sample.wall_s.to_string()),
    ("metric", |row| in_json(row.group.metric)),
    ("value", |row| row.group.metric.of(row.sample).to_string()),
    ("cpu_s", |row| show(row.sample.cpu_s)),
    ("rss_bytes", |row| show(row.sample.rss_bytes)),
    ("bytes", |row| row.sample.bytes.to_string()),
    ("operations", |row| row.sample.operations.to_string()),
    ("disk_read_bytes", |row| show(row.sample.disk_read_bytes)),
    ("latency_avg_ns", |row| show(row.sample.latency_ns.map(|ns| ns.avg))),
    ("latency_p50_ns", |row| show(row.sample.latency_ns.map(|ns| ns.p50))),
    ("latency_p99_ns", |row| show(row.sample.latency_ns.map(|ns| ns.p99))),
    ("latency_p99_5_ns", |row| show(row.sample.latency_ns.map(|ns| ns.p99_5))),
    ("latency_p99_9_ns", |row| show(row.sample.latency_ns.map(|ns| ns.p99_9))),
    ("latency_p99_99_ns", |row| show(row.sample.latency_ns.map(|ns| ns.p99_99))),
    ("latency_max_ns", |row| show(row.sample.latency_ns.map(|ns| ns.max))),
    ("in_flight_max", |row| show(row.sample.in_flight.iter().map(|(_, count)| *count).max())),
    ("digest", |row| show(row.sample.digest.as_ref())),
    ("more", |row| join(&row.sample.more)),
];

/// All samples of all runs. Cases without samples have no row.
pub(crate) fn of_runs(runs: &[NamedRun]) -> String {
    let mut text = COLUMNS.map(|(name, _)| name).join(",") + "\n";
    for NamedRun { name, run } in runs {
        for group in &run.groups {
            for case in &group.cases {
                for (number, sample) in case.samples.iter().enumerate() {
                    let row = Row { name, run, group, case, number, sample };
                    text.push_str(&COLUMNS.map(|(_, value)| quote(&value(&row))).join(","));
                    text.push('\n');
                }
            }
        }
    }
    text
}

/// The name of a variant in run files.
fn in_json(variant: impl serde::Serialize) -> String {
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
        assert_eq!(of_runs(&[named]), include_str!("tests/expected/compare.csv"));
    }

    #[test]
    fn fields_are_quoted() {
        assert_eq!(quote("plain | <b>;x=1"), "plain | <b>;x=1");
        assert_eq!(quote("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
    }
}
