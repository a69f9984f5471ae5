//! The lines of a chart: a metric over a parameter, latency percentiles, requests in flight.

use super::axis::Axis;
use super::plot::{self, Series};
use crate::model::case::{Case, Group, LatencyNs, Sample};
use crate::model::units::show_seconds;
use crate::report::grid;

/// Draws the metric of each case over the parameter `x`. A line has the cases with one value of `by`.
pub(super) fn over_parameter(group: &Group, x: &str, by: &str) -> Option<String> {
    let is_measured = |case: &&Case| case.parameters.contains_key(x) && !case.samples.is_empty();
    let cases = || group.cases.iter().filter(is_measured);
    let values = grid::in_order(cases().filter_map(|case| case.parameters.get(x)));
    let line_of = |case: &Case| case.parameters.get(by).cloned().unwrap_or_default();
    let names: Vec<String> = cases().map(line_of).collect();
    let metrics = cases().flat_map(|case| group.values(case));
    let (x_axis, y_axis) = (Axis::of_values(x, &values), Axis::of_metric(group.metric, metrics));
    let line = |name: String| {
        let mut line = Series::new(&name);
        for (at, value) in (0..).map(f64::from).zip(&values) {
            let is_it =
                |case: &Case| case.parameters.get(x) == Some(value) && line_of(case) == name;
            let case = cases().find(|case| is_it(case));
            let Some(summary) = case.and_then(|case| group.summary(case)) else { continue };
            let (min, max) = (y_axis.at(summary.min), y_axis.at(summary.max));
            if min.is_finite() && max.is_finite() {
                line.points.push((at, y_axis.at(summary.median)));
                line.ranges.push((at, min, max));
            }
        }
        line
    };
    let lines = grid::in_order(names.iter()).into_iter().map(line).collect();
    plot::draw(group, &x_axis, &y_axis, lines)
}

fn by_case(
    group: &Group,
    has_markers: bool,
    points: impl Fn(&Case) -> Vec<(f64, f64)>,
) -> Vec<Series> {
    let line =
        |case: &Case| Series { points: points(case), has_markers, ..Series::new(&case.name) };
    group.cases.iter().map(line).collect()
}

/// The number of each latency percentile, and its median over the samples of a case, in seconds.
fn percentiles(case: &Case) -> Vec<(usize, f64)> {
    let median = |index: usize| {
        let ns = |sample: &Sample| Some(sample.latency_ns?.percentiles()[index].1 as f64);
        Some((index, case.median_of(ns).filter(|ns| *ns > 0.0)? / 1e9))
    };
    (0..LatencyNs::default().percentiles().len()).filter_map(median).collect()
}

pub(super) fn latency(group: &Group) -> Option<String> {
    let seconds = group.cases.iter().flat_map(percentiles).map(|(_, seconds)| seconds);
    let names = LatencyNs::default().percentiles().map(|(name, _)| name.to_owned());
    let (x, y) = (Axis::of_values("percentile", &names), Axis::of_latency("latency", seconds));
    let lines = by_case(group, true, |case| {
        let points = percentiles(case).into_iter();
        points.map(|(index, seconds)| (index as f64, y.at(seconds))).collect()
    });
    plot::draw(group, &x, &y, lines)
}

/// The sample with the median result, of those that recorded the requests in flight.
fn typical<'a>(group: &Group, case: &'a Case) -> Option<&'a Sample> {
    let mut samples: Vec<&Sample> =
        case.samples.iter().filter(|sample| !sample.in_flight.is_empty()).collect();
    samples.sort_by(|a, b| group.metric.of(a).total_cmp(&group.metric.of(b)));
    samples.get(samples.len().saturating_sub(1) / 2).copied()
}

pub(super) fn in_flight(group: &Group) -> Option<String> {
    let samples = || group.cases.iter().filter_map(|case| typical(group, case));
    let seconds = samples().map(|sample| sample.wall_s).fold(0.0, f64::max);
    let counts = samples().flat_map(|sample| &sample.in_flight).map(|(_, count)| *count);
    let most = counts.fold(4, u32::max);
    let x = Axis::from_zero("time", seconds, show_seconds);
    let y = Axis::from_zero("requests in flight", most.into(), |count| format!("{count:.1}"));
    let lines = by_case(group, false, |case| typical(group, case).map_or_else(Vec::new, steps));
    plot::draw(group, &x, &y, lines)
}

/// The corners of the steps.
fn steps(sample: &Sample) -> Vec<(f64, f64)> {
    let mut changes = sample.in_flight.clone();
    changes.retain(|(at, _)| at.is_finite());
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (at, count) in changes {
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
    use crate::model::case::{Chart, Metric};

    #[test]
    fn steps_have_corners() {
        let in_flight = vec![(0.0, 2), (0.5, 2), (1.0, 4)];
        let sample = Sample { wall_s: 3.0, in_flight, ..Sample::default() };
        assert_eq!(steps(&sample), [(0.0, 2.0), (1.0, 2.0), (1.0, 4.0), (3.0, 4.0)]);
    }

    #[test]
    fn the_median_sample_is_typical() {
        let group = Group::new("g", "", Metric::Seconds, Chart::InFlight);
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
