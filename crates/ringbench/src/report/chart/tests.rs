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
fn dots_have_names_values_and_one_best() {
    let mut gone = case("gone", &[], &[]);
    gone.missing = Some(Missing::Failed("it ended with\nstatus 1".into()));
    let cases = vec![case("slow", &[], &[2.0, 2.1]), case("<fast>", &[], &[1.0]), gone];
    let group = group(Chart::Bars, cases);
    for drawing in [one(&group), picture(&[&group], "on a disk").unwrap()] {
        let texts = texts(&drawing);
        for text in ["slow", "&lt;fast&gt;", "488 ± 190 MB/s", "1.00 GB/s"] {
            assert!(texts.contains(&text), "{text}: {texts:?}");
        }
        assert!(!texts.contains(&"gone"), "{texts:?}");
    }
    let html = one(&group);
    assert_eq!(html.matches("class=\"row best\"><span class=\"name\">&lt;fast").count(), 1);
    assert_eq!(html.matches("class=\"dot\"").count(), 3, "{html}");
}

#[test]
fn an_outlier_squeezes_no_other_sample() {
    let calm = case("calm", &[], &[1.0, 1.01, 0.99, 1.02, 1.0]);
    let wild = case("wild", &[], &[1.1, 1.12, 1.1, 40.0, 1.08]);
    let mut group = group(Chart::Bars, vec![calm, wild]);
    group.metric = Metric::Seconds;
    let html = one(&group);
    assert_eq!(html.matches("class=\"beyond\"").count(), 1, "{html}");
    assert!(html.contains("Beyond the axis (▸): 1 of wild, up to 40.0 s."), "{html}");
    // The others are at 60 % of the axis and more.
    let places = html.split("class=\"dot\" style=\"left:").skip(1);
    let places = places.map(|rest| rest.split('%').next().unwrap().parse::<f64>().unwrap());
    assert!(places.into_iter().all(|place| place > 60.0), "{html}");
}

#[test]
fn two_points_are_no_line() {
    let chart = Chart::Lines { x: "threads".into(), by: "method".into() };
    let at = |threads| case(threads, &[("threads", threads), ("method", "a")], &[1.0]);
    assert!(one(&group(chart.clone(), vec![at("1"), at("2")])).contains("class=\"dots\""));
    assert!(one(&group(chart, vec![at("1"), at("2"), at("4")])).contains("<polyline"));
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
    let cases = [("4", "a", 0.5), ("2", "a", 0.7), ("1", "a", 1.0), ("1", "b", 1.0)];
    let cases = cases.map(|(depth, engine, seconds)| at(depth, engine, seconds));
    let svg = one(&group(chart, cases.to_vec()));
    assert_eq!(svg.matches("<polyline").count(), 4, "two lines, wide and narrow");
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
