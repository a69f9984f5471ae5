//! What lines are made of: a metric over a parameter, latencies at their percentiles, requests in flight.

use std::collections::BTreeSet;

use crate::case::{Case, Group, LatencyNs, Sample, show_seconds};
use crate::grid;
use crate::summary::Summary;

use super::axis::Axis;
use super::series::{self, Series};
use super::{Drawing, Side};

/// The metric of each case over the parameter `x`. A line is the cases of one value of `by`; where no case
/// has such a parameter, or that leaves two cases in one place, of one set of all the others.
pub(super) fn over_parameter(
    sides: &[Side<'_>],
    x: &str,
    by: &str,
) -> anyhow::Result<Vec<Drawing>> {
    let measured = |side: &Side<'_>| {
        let has_x = |case: &&Case| case.parameters.contains_key(x) && !case.samples.is_empty();
        side.group.cases.iter().filter(has_x).cloned().collect::<Vec<Case>>()
    };
    let all: Vec<Vec<Case>> = sides.iter().map(measured).collect();
    let values = grid::in_order(all.iter().flatten().filter_map(|case| case.parameters.get(x)));
    if values.is_empty() {
        return Ok(Vec::new());
    }
    let naming = Naming::of(&all, x, by);
    let mut names: Vec<String> = Vec::new();
    for name in all.iter().flatten().map(|case| naming.name(case)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let names = grid::in_order(names.iter());
    let metric = sides[0].group.metric;
    let samples = all.iter().flatten().flat_map(|case| &case.samples);
    let x = Axis::of_parameter(x, &values, series::WIDTH_PX);
    let y = Axis::of_metric(metric, metric.name(), samples.map(|sample| metric.of(sample)));
    let mut drawings = Vec::new();
    for (side, cases) in sides.iter().zip(&all) {
        let line = |(number, name): (usize, &String)| {
            let cases = cases.iter().filter(|case| naming.name(case) == *name);
            line(side.group, cases, (&x, &y), name, number)
        };
        let lines: Vec<Series> = names.iter().enumerate().filter_map(line).collect();
        if !lines.is_empty() {
            let svg = series::draw(&super::label(side), &x, &y, &lines)?;
            drawings.push(Drawing { side: side.name.to_owned(), svg });
        }
    }
    Ok(drawings)
}

/// What tells the lines of a chart apart.
struct Naming {
    parameters: Vec<String>,
}

impl Naming {
    fn of(sides: &[Vec<Case>], x: &str, by: &str) -> Naming {
        let by_one = Naming { parameters: vec![by.to_owned()] };
        let collides = sides.iter().any(|cases| {
            let mut places = BTreeSet::new();
            !cases.iter().all(|case| places.insert((by_one.name(case), case.parameters.get(x))))
        });
        let has_by = |case: &Case| case.parameters.contains_key(by);
        if !collides && sides.iter().flatten().any(has_by) {
            return by_one;
        }
        // Those that are not the same everywhere.
        let cases = || sides.iter().flatten();
        let names: BTreeSet<&String> = cases().flat_map(|case| case.parameters.keys()).collect();
        let differs = |name: &&&String| {
            let mut values = cases().map(|case| case.parameters.get(**name));
            let first = values.next();
            **name != x && values.any(|value| Some(value) != first)
        };
        Naming { parameters: names.iter().filter(differs).map(|&name| name.clone()).collect() }
    }

    fn name(&self, case: &Case) -> String {
        let values = self.parameters.iter().filter_map(|name| case.parameters.get(name));
        values.cloned().collect::<Vec<_>>().join(", ")
    }
}

fn line<'a>(
    group: &Group,
    cases: impl Iterator<Item = &'a Case>,
    (x, y): (&Axis, &Axis),
    name: &str,
    number: usize,
) -> Option<Series> {
    let Group { metric, chart: crate::case::Chart::Lines { x: parameter, .. }, .. } = group else {
        return None;
    };
    let mut points = Vec::new();
    let mut ranges = Vec::new();
    for case in cases {
        let place = case.parameters.get(parameter).and_then(|value| x.place(value));
        let values: Vec<f64> = case.samples.iter().map(|sample| metric.of(sample)).collect();
        let (Some(at), Some(summary)) = (place, Summary::of(&values)) else { continue };
        if summary.max.is_finite() && y.at(summary.min).is_finite() {
            points.push((at, y.at(summary.median)));
            ranges.push((at, y.at(summary.min), y.at(summary.max)));
        }
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let name = name.to_owned();
    (!points.is_empty()).then_some(Series { name, number, points, ranges, has_markers: true })
}

/// The names of all cases of all sides, each once: the number of a name is its colour.
fn case_names<'a>(sides: &[Side<'a>]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for case in sides.iter().flat_map(|side| &side.group.cases) {
        if !names.contains(&&case.name[..]) {
            names.push(&case.name);
        }
    }
    names
}

/// A line for each case that `points` says something about.
fn by_case(
    sides: &[Side<'_>],
    (x, y): (&Axis, &Axis),
    has_markers: bool,
    points: impl Fn(&Group, &Case) -> Vec<(f64, f64)>,
) -> anyhow::Result<Vec<Drawing>> {
    let names = case_names(sides);
    let mut drawings = Vec::new();
    for side in sides {
        let mut lines = Vec::new();
        for (number, name) in names.iter().enumerate() {
            let points = side.group.case(name).map(|case| points(side.group, case));
            if let Some(points) = points.filter(|points| !points.is_empty()) {
                let (name, ranges) = ((*name).to_owned(), Vec::new());
                lines.push(Series { name, number, points, ranges, has_markers });
            }
        }
        if !lines.is_empty() {
            let svg = series::draw(&super::label(side), x, y, &lines)?;
            drawings.push(Drawing { side: side.name.to_owned(), svg });
        }
    }
    Ok(drawings)
}

/// The medians of a case's latencies at each percentile, in seconds.
fn percentiles(case: &Case) -> Vec<(&'static str, f64)> {
    let names = LatencyNs::default().percentiles();
    let median = |index: usize| {
        case.median_of(|sample| Some(sample.latency_ns?.percentiles()[index].1 as f64))
    };
    let medians = names.iter().enumerate().map(|(index, (name, _))| Some((*name, median(index)?)));
    medians.flatten().map(|(name, ns)| (name, ns / 1e9)).collect()
}

pub(super) fn latency(sides: &[Side<'_>]) -> anyhow::Result<Vec<Drawing>> {
    let cases = sides.iter().flat_map(|side| &side.group.cases);
    let seconds = cases.flat_map(percentiles).map(|(_, seconds)| seconds);
    let names = LatencyNs::default().percentiles().map(|(name, _)| name.to_owned());
    let x = Axis::of_names("percentile", &names);
    let y = Axis::of_latency("latency", seconds);
    by_case(sides, (&x, &y), true, |_, case| {
        let points = percentiles(case).into_iter().filter(|(_, seconds)| *seconds > 0.0);
        points.filter_map(|(name, seconds)| Some((x.place(name)?, y.at(seconds)))).collect()
    })
}

/// Of the samples that have it recorded, the one whose result is the middle one.
fn typical<'a>(group: &Group, case: &'a Case) -> Option<&'a Sample> {
    let mut samples: Vec<&Sample> =
        case.samples.iter().filter(|sample| !sample.in_flight.is_empty()).collect();
    samples.sort_by(|a, b| group.metric.of(a).total_cmp(&group.metric.of(b)));
    samples.get(samples.len().saturating_sub(1) / 2).copied()
}

pub(super) fn in_flight(sides: &[Side<'_>]) -> anyhow::Result<Vec<Drawing>> {
    let samples = sides
        .iter()
        .flat_map(|side| side.group.cases.iter().filter_map(|case| typical(side.group, case)));
    let (mut seconds, mut most) = (0.0f64, 0);
    for sample in samples {
        seconds = seconds.max(sample.wall_s);
        most = sample.in_flight.iter().fold(most, |most, (_, count)| most.max(*count));
    }
    let x = Axis::from_zero("time", seconds, show_seconds);
    let y = Axis::from_zero("requests in flight", f64::from(most.max(4)), |count| {
        format!("{count:.1}")
    });
    by_case(sides, (&x, &y), false, |group, case| {
        typical(group, case).map_or_else(Vec::new, |sample| steps(sample, x.range.end))
    })
}

/// Moments that a plot is divided into: more than one in a pixel is not seen.
const MOMENTS: usize = series::WIDTH_PX as usize;

/// The corners of the steps. Of more changes than there are moments, the lowest and the highest of each
/// moment are kept.
fn steps(sample: &Sample, end_s: f64) -> Vec<(f64, f64)> {
    let mut changes = sample.in_flight.clone();
    changes.retain(|(at, _)| at.is_finite());
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let moment = |at: f64| (at / end_s * MOMENTS as f64) as usize;
    let mut kept: Vec<(f64, u32)> = Vec::new();
    if changes.len() <= MOMENTS {
        kept = changes;
    } else {
        for chunk in changes.chunk_by(|a, b| moment(a.0) == moment(b.0)) {
            let extreme = |pick: Option<&(f64, u32)>| pick.map(|(_, count)| *count);
            let low = extreme(chunk.iter().min_by_key(|(_, count)| *count));
            let high = extreme(chunk.iter().max_by_key(|(_, count)| *count));
            let counts = [low, high, extreme(chunk.last())].into_iter().flatten();
            kept.extend(counts.map(|count| (chunk[0].0, count)));
        }
    }
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (at, count) in kept {
        let count = f64::from(count);
        if let Some(&(_, before)) = corners.last() {
            if before == count {
                continue;
            }
            corners.push((at, before));
        }
        corners.push((at, count));
    }
    if let Some(&(_, count)) = corners.last() {
        corners.push((sample.wall_s, count));
    }
    corners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart_by_what_differs() {
        let case = |engine: &str, cache: &str, block: &str| {
            let case = Case::new("c").with("engine", engine).with("cache", cache);
            case.with("block", block).with("file", "same")
        };
        let by_engine = vec![case("a", "cold", "4K"), case("b", "cold", "4K")];
        let naming = Naming::of(std::slice::from_ref(&by_engine), "block", "engine");
        assert_eq!(naming.name(&by_engine[1]), "b");
        let both = vec![case("a", "cold", "4K"), case("a", "warm", "4K"), case("b", "warm", "4K")];
        for by in ["engine", "", "nothing"] {
            let naming = Naming::of(std::slice::from_ref(&both), "block", by);
            assert_eq!(naming.name(&both[1]), "warm, a", "by {by}");
        }
    }

    #[test]
    fn steps_have_corners() {
        let in_flight = vec![(0.0, 2), (0.5, 2), (1.0, 4)];
        let sample = Sample { wall_s: 3.0, in_flight, ..Sample::default() };
        assert_eq!(steps(&sample, 3.0), [(0.0, 2.0), (1.0, 2.0), (1.0, 4.0), (3.0, 4.0)]);
        let many = (0..100_000).map(|i| (f64::from(i) * 1e-4, i as u32 % 7)).collect();
        let many = Sample { wall_s: 10.0, in_flight: many, ..Sample::default() };
        let corners = steps(&many, 10.0);
        assert!(corners.len() < 8 * MOMENTS, "{}", corners.len());
        assert!(corners.iter().any(|(_, count)| *count == 6.0));
    }

    #[test]
    fn the_middle_sample_is_typical() {
        let group = Group::new("g", "", crate::case::Metric::Seconds, crate::case::Chart::InFlight);
        let sample = |wall_s: f64, in_flight: &[(f64, u32)]| Sample {
            wall_s,
            in_flight: in_flight.to_vec(),
            ..Sample::default()
        };
        let mut case = Case::new("c");
        assert_eq!(typical(&group, &case), None);
        let flight = [(0.0, 1)];
        case.samples = [(9.0, &flight[..]), (2.0, &[]), (5.0, &flight), (7.0, &flight)]
            .map(|(wall_s, flight)| sample(wall_s, flight))
            .to_vec();
        assert_eq!(typical(&group, &case).unwrap().wall_s, 7.0);
    }
}
