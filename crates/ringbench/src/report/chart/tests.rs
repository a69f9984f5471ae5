//! Charts, as a page shows them.

use super::*;
use crate::model::case::{Case, LatencyNs, Metric, Missing, Sample};

fn sample(seconds: f64) -> Sample {
    Sample { wall_s: seconds, bytes: 1_000_000_000, operations: 1000, ..Sample::default() }
}

fn case(name: &str, parameters: &[(&str, &str)], seconds: &[f64]) -> Case {
    let mut case = Case::new(name);
    for (parameter, value) in parameters {
        case = case.with(parameter, value);
    }
    case.samples = seconds.iter().map(|seconds| sample(*seconds)).collect();
    case
}

fn group(chart: Chart, cases: Vec<Case>) -> Group {
    let group = Group::new("group", "What it shows.", Metric::BytesPerS, chart);
    Group { cases, ..group }
}

fn one(group: &Group) -> String {
    draw(group).unwrap()
}

/// The texts of a chart, in their order.
fn texts(html: &str) -> Vec<&str> {
    let texts = html.split('>').filter_map(|part| part.split('<').next());
    texts.map(str::trim).filter(|text| !text.is_empty()).collect()
}

fn every_chart() -> Vec<Chart> {
    let (x, y, by) = ("depth".to_owned(), "block".to_owned(), "engine".to_owned());
    vec![
        Chart::Bars,
        Chart::Heat { x: x.clone(), y },
        Chart::Lines { x, by },
        Chart::Latency,
        Chart::InFlight,
    ]
}

#[test]
fn nothing_is_drawn_without_samples() {
    for chart in every_chart() {
        let mut missing = case("c", &[("depth", "1"), ("block", "4K"), ("engine", "a")], &[]);
        missing.missing = Some(Missing::Unavailable("not here".into()));
        // A sample that took no time has no throughput, no latency and nothing in flight.
        let zero = case("zero", &[("depth", "1"), ("block", "4K")], &[0.0]);
        for cases in [vec![], vec![missing], vec![zero]] {
            let drawing = draw(&group(chart.clone(), cases)).unwrap_or_default();
            let drawn = texts(&drawing);
            assert!(
                !drawn.iter().any(|text| text.contains("inf") || text.contains("NaN")),
                "{drawn:?}"
            );
        }
    }
}

#[test]
fn bars_have_names_values_and_reasons() {
    let mut gone = case("gone", &[], &[]);
    gone.missing = Some(Missing::Failed("it ended with\nstatus 1".into()));
    let cases = vec![case("slow", &[], &[2.0, 2.1]), case("<fast>", &[], &[1.0]), gone];
    let svg = one(&group(Chart::Bars, cases));
    let texts = texts(&svg);
    for text in ["slow", "&lt;fast&gt;", "488 MB/s", "1.00 GB/s", "it ended with\nstatus 1"] {
        assert!(texts.contains(&text), "{text}: {texts:?}");
    }
    // Only the best one stands out.
    assert_eq!(svg.matches("<tr class=\"best\"><th scope=\"row\">&lt;fast").count(), 1, "{svg}");
    assert_eq!(svg.matches("class=\"bar\"").count(), 2, "{svg}");
}

#[test]
fn heat_maps_are_in_the_order_of_their_sizes() {
    let cases = vec![
        case("", &[("depth", "16"), ("block", "16M")], &[1.0]),
        case("", &[("depth", "2"), ("block", "512K")], &[2.0]),
        case("", &[("depth", "2"), ("block", "1K")], &[4.0]),
    ];
    let svg = one(&group(Chart::Heat { x: "depth".into(), y: "block".into() }, cases));
    assert_eq!(
        texts(&svg)[..9],
        ["block \\ depth", "2", "16", "1K", "250M", "512K", "500M", "16M", "1.00G"]
    );
}

#[test]
fn a_line_has_the_cases_with_one_value() {
    let chart = Chart::Lines { x: "depth".into(), by: "engine".into() };
    let at = |depth, engine, seconds| case("", &[("depth", depth), ("engine", engine)], &[seconds]);
    let svg = one(&group(chart, vec![at("4", "a", 0.5), at("1", "a", 1.0), at("1", "b", 1.0)]));
    assert_eq!(svg.matches("<polyline").count(), 2);
    assert_eq!(texts(&svg)[svg.matches("<text").count()..], ["a", "b"]);
    assert!(svg.contains("#1f7fc4") && svg.contains("#d26a13"), "{svg}");
}

#[test]
fn latencies_and_flights_have_a_line_for_each_case() {
    let mut cases = Vec::new();
    for name in (1..=10).map(|number| format!("case {number}")) {
        let mut case = case(&name, &[], &[1.0]);
        let (p50, p99, p99_5, p99_9) = (80_000, 99_000, 120_000, 200_000);
        let (p99_99, max, avg) = (900_000, 2_000_000, 81_000.0);
        let latency = LatencyNs { avg, p50, p99, p99_5, p99_9, p99_99, max };
        case.samples[0].latency_ns = Some(latency);
        case.samples[0].in_flight = vec![(0.0, 1), (0.5, 32)];
        cases.push(case);
    }
    for chart in [Chart::Latency, Chart::InFlight] {
        let svg = one(&group(chart, cases.clone()));
        assert_eq!(texts(&svg).iter().filter(|text| text.starts_with("case ")).count(), 10);
    }
    let svg = one(&group(Chart::Latency, cases));
    for text in ["50 %", "99.99 %", "max", "100 µs", "1 ms"] {
        assert!(texts(&svg).contains(&text), "{text}: {:?}", texts(&svg));
    }
}
