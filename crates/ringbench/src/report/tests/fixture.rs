//! A small run with everything that formats have to escape or to leave out.

use std::collections::BTreeMap;

use crate::model::case::{Case, Chart, Group, LatencyNs, Metric, Missing, Sample};
use crate::model::environment::{Environment, TargetFacts};
use crate::model::run_file::{Run, RunState};

fn sample(wall_s: f64) -> Sample {
    Sample { at_s: 1.5, wall_s, bytes: 4 << 20, operations: 4, ..Sample::default() }
}

fn facts<const N: usize>(facts: [(&str, &str); N]) -> BTreeMap<String, String> {
    facts.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Two measured commands, whose names have markup; one that failed after a sample, and one that is not
/// installed.
pub(crate) fn run() -> Run {
    let target = TargetFacts { path: "/data/a b".into(), facts: facts([("file system", "ext4")]) };
    let machine = facts([("kernel", "Linux 6.12 x86_64"), ("cpu", "A & B <9000>")]);
    let environment = Environment { machine, targets: vec![target] };
    let command = ["ringbench", "compare", "/data/a b"].map(String::from).to_vec();
    let mut run = Run::new("compare", command, environment);
    run.started = "2026-01-02T03:04:05Z".into();
    run.state = RunState::Finished;
    run.conclusions = vec!["ringsum is 2.00 times as fast as `b3sum | <script>`".into()];
    run.advice = vec!["the load was 1.4 at the start".into()];
    run.results.insert("limit_bytes_per_s".into(), 3.81e9);
    let mut group = Group::new(
        "warm",
        "How long each takes for a file that is in the page cache.",
        Metric::Seconds,
        Chart::Bars,
    );
    group.advice = vec!["some samples are far from the others".into()];
    let mut ringsum = Case::new("ringsum").with("engine", "io_uring").with("block", "1M");
    ringsum.samples = [1.0, 0.99, 1.01].map(sample).to_vec();
    for sample in &mut ringsum.samples {
        sample.cpu_s = Some(0.5);
        sample.rss_bytes = Some(12_000_000);
        sample.latency_ns = Some(LatencyNs {
            avg: 81_300.5,
            p50: 80_000,
            p99: 99_000,
            p99_5: 99_500,
            p99_9: 120_000,
            p99_99: 150_000,
            max: 2_000_000,
        });
        sample.more.insert("hash_ns".into(), 28_000.0);
    }
    let mut b3sum = Case::new("b3sum | <script>");
    b3sum.samples = [2.0, 1.5, 2.5].map(sample).to_vec();
    let mut quoted = Case::new("\"quoted\",\nin two lines");
    quoted.samples = vec![sample(4.0)];
    quoted.missing = Some(Missing::Failed("it ended with status 1:\nno memory".into()));
    let mut cksum = Case::new("cksum");
    cksum.missing = Some(Missing::Unavailable("it is not installed".into()));
    group.cases = vec![ringsum, b3sum, quoted, cksum];
    run.groups = vec![group];
    run
}

/// A later run: one case is faster, one has changed by less than its noise, one is missing.
pub(crate) fn run_after() -> Run {
    let mut run = run();
    run.state = RunState::Interrupted;
    run.started = "2026-01-03T03:04:05Z".into();
    let cases = &mut run.groups[0].cases;
    cases[0].samples = [0.8, 0.79, 0.81].map(sample).to_vec();
    cases[1].samples = [2.1, 1.6, 2.6].map(sample).to_vec();
    cases.remove(2);
    run
}
