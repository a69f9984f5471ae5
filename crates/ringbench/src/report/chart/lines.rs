//! The lines of a chart: a metric over a parameter, latency percentiles, requests in flight.

use super::axis::Axis;
use super::plot::{self, Series};
use super::{Drawing, Side};
use crate::model::case::{Case, Group, LatencyNs, Sample};
use crate::model::units::show_seconds;
use crate::report::grid;

/// Draws the metric of each case over the parameter `x`. A line has the cases with one value of `by`.
pub(super) fn over_parameter(sides: &[Side<'_>], x: &str, by: &str) -> Vec<Drawing> {
    let is_measured = |case: &&Case| case.parameters.contains_key(x) && !case.samples.is_empty();
    let cases = || sides.iter().flat_map(|side| &side.group.cases).filter(is_measured);
    let values = grid::in_order(cases().filter_map(|case| case.parameters.get(x)));
    let line_of = |case: &Case| case.parameters.get(by).cloned().unwrap_or_default();
    let names: Vec<String> = cases().map(line_of).collect();
    let names = grid::in_order(names.iter());
    let metric = sides[0].group.metric;
    let metrics = cases().flat_map(|case| &case.samples).map(|sample| metric.of(sample));
    let (x_axis, y_axis) = (Axis::of_values(x, &values), Axis::of_metric(metric, metrics));
    draw_sides(sides, (&x_axis, &y_axis), |number| {
        let group = sides[number].group;
        let line = |(index, name): (usize, &String)| {
            let mut line = Series::new(name, index);
            for (at, value) in (0..).map(f64::from).zip(&values) {
                let is_it =
                    |case: &&Case| case.parameters.get(x) == Some(value) && line_of(case) == *name;
                let case = group.cases.iter().find(is_it);
                let Some(summary) = case.and_then(|case| group.summary(case)) else { continue };
                let (min, max) = (y_axis.at(summary.min), y_axis.at(summary.max));
                if min.is_finite() && max.is_finite() {
                    line.points.push((at, y_axis.at(summary.median)));
                    line.ranges.push((at, min, max));
                }
            }
            line
        };
        names.iter().enumerate().map(line).collect()
    })
}

/// Draws the lines that `lines` returns for each side, if there are any.
fn draw_sides(
    sides: &[Side<'_>],
    (x, y): (&Axis, &Axis),
    lines: impl Fn(usize) -> Vec<Series>,
) -> Vec<Drawing> {
    let mut drawings = Vec::new();
    for (number, side) in sides.iter().enumerate() {
        let mut lines = lines(number);
        lines.retain(|line| !line.points.is_empty());
        if !lines.is_empty() {
            let html = plot::draw(&super::label(side), x, y, &lines);
            drawings.push(Drawing { side: side.name.clone(), html });
        }
    }
    drawings
}

/// Draws a line for each case.
fn draw_cases(
    sides: &[Side<'_>],
    axes: (&Axis, &Axis),
    has_markers: bool,
    points: impl Fn(&Group, &Case) -> Vec<(f64, f64)>,
) -> Vec<Drawing> {
    let names = super::case_names(sides);
    draw_sides(sides, axes, |number| {
        let group = sides[number].group;
        let line = |(index, name): (usize, &&str)| {
            let points = group.case(name).map_or_else(Vec::new, |case| points(group, case));
            Series { points, has_markers, ..Series::new(name, index) }
        };
        names.iter().enumerate().map(line).collect()
    })
}

/// The number of each latency percentile, and its median over the samples of a case, in seconds.
fn percentiles(case: &Case) -> Vec<(usize, f64)> {
    let median = |index: usize| {
        let ns = |sample: &Sample| Some(sample.latency_ns?.percentiles()[index].1 as f64);
        Some((index, case.median_of(ns).filter(|ns| *ns > 0.0)? / 1e9))
    };
    (0..LatencyNs::default().percentiles().len()).filter_map(median).collect()
}

pub(super) fn latency(sides: &[Side<'_>]) -> Vec<Drawing> {
    let cases = sides.iter().flat_map(|side| &side.group.cases);
    let seconds = cases.flat_map(percentiles).map(|(_, seconds)| seconds);
    let names = LatencyNs::default().percentiles().map(|(name, _)| name.to_owned());
    let (x, y) = (Axis::of_values("percentile", &names), Axis::of_latency("latency", seconds));
    draw_cases(sides, (&x, &y), true, |_, case| {
        let points = percentiles(case).into_iter();
        points.map(|(index, seconds)| (index as f64, y.at(seconds))).collect()
    })
}

/// The sample with the median result, of those that recorded the requests in flight.
fn typical<'a>(group: &Group, case: &'a Case) -> Option<&'a Sample> {
    let mut samples: Vec<&Sample> =
        case.samples.iter().filter(|sample| !sample.in_flight.is_empty()).collect();
    samples.sort_by(|a, b| group.metric.of(a).total_cmp(&group.metric.of(b)));
    samples.get(samples.len().saturating_sub(1) / 2).copied()
}

pub(super) fn in_flight(sides: &[Side<'_>]) -> Vec<Drawing> {
    let samples = sides
        .iter()
        .flat_map(|side| side.group.cases.iter().filter_map(|case| typical(side.group, case)));
    let (mut seconds, mut most) = (0.0f64, 0);
    for sample in samples {
        seconds = seconds.max(sample.wall_s);
        most = sample.in_flight.iter().fold(most, |most, (_, count)| most.max(*count));
    }
    let x = Axis::from_zero("time", seconds, show_seconds);
    let count = |count| format!("{count:.1}");
    let y = Axis::from_zero("requests in flight", f64::from(most.max(4)), count);
    draw_cases(sides, (&x, &y), false, |group, case| {
        typical(group, case).map_or_else(Vec::new, |sample| steps(sample, x.range.end))
    })
}

/// Moments that a chart is divided into: more than one per pixel would be invisible.
const MOMENTS: usize = plot::WIDTH_PX as usize;

/// The corners of the steps. If there are more changes than moments, only the lowest, the highest and the
/// last count of each moment are kept.
fn steps(sample: &Sample, end_s: f64) -> Vec<(f64, f64)> {
    let mut changes = sample.in_flight.clone();
    changes.retain(|(at, _)| at.is_finite());
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    if changes.len() > MOMENTS {
        let moment = |at: f64| (at / end_s * MOMENTS as f64) as usize;
        let extremes = |chunk: &[(f64, u32)]| {
            let counts = || chunk.iter().map(|(_, count)| *count);
            let kept = [counts().min(), counts().max(), counts().next_back()];
            kept.into_iter().flatten().map(|count| (chunk[0].0, count)).collect::<Vec<_>>()
        };
        changes = changes.chunk_by(|a, b| moment(a.0) == moment(b.0)).flat_map(extremes).collect();
    }
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
        assert_eq!(steps(&sample, 3.0), [(0.0, 2.0), (1.0, 2.0), (1.0, 4.0), (3.0, 4.0)]);
        let many = (0..100_000).map(|i| (f64::from(i) * 1e-4, i as u32 % 7)).collect();
        let many = Sample { wall_s: 10.0, in_flight: many, ..Sample::default() };
        let corners = steps(&many, 10.0);
        assert!(corners.len() < 8 * MOMENTS, "{}", corners.len());
        assert!(corners.iter().any(|(_, count)| *count == 6.0));
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
