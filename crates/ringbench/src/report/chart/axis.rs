//! The positions of values on an axis, and its ticks.

use std::ops::Range;

use crate::model::case::Metric;
use crate::model::units::show_seconds;

/// One axis. Positions are linear; the scale is in the conversion of values to positions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    pub(super) name: String,
    /// The range of positions.
    pub(super) range: Range<f64>,
    /// Positions and labels.
    pub(super) ticks: Vec<(f64, String)>,
    is_log: bool,
}

/// Longest label of a tick, in characters.
const TICK_CHARS_MAX: usize = 24;

/// Width of a character, in pixels, estimated: those of the usual sans-serif fonts are 0.5 to 0.6 em wide.
const CHAR_PX: f64 = 7.0;

/// Values that span a larger factor have a logarithmic axis: on a linear one, the smallest would be some
/// ten pixels above the bottom.
const METRIC_SPAN: f64 = 30.0;

impl Axis {
    /// An axis for values of a metric: from zero, or logarithmic if they are far apart.
    pub(super) fn of_metric(metric: Metric, values: impl Iterator<Item = f64>) -> Axis {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let show = |value| metric.show(value);
        match span(&values) {
            Some((min, max)) if max / min > METRIC_SPAN => Axis::log(metric.name(), min, max, show),
            _ => Axis::from_zero(metric.name(), values.into_iter().fold(0.0, f64::max), show),
        }
    }

    /// A logarithmic axis for times.
    pub(super) fn of_latency(name: &str, seconds: impl Iterator<Item = f64>) -> Axis {
        let seconds: Vec<f64> = seconds.filter(|value| *value > 0.0).collect();
        let (min, max) = span(&seconds).unwrap_or((1e-6, 1e-3));
        Axis::log(name, min, max, show_seconds)
    }

    /// A linear axis from zero to the first round number that is not below `max`.
    pub(super) fn from_zero(name: &str, max: f64, show: impl Fn(f64) -> String) -> Axis {
        let max = if max > 0.0 && max.is_finite() { max } else { 1.0 };
        let step = round_step(max / 4.0);
        let count = (max / step - 1e-9).ceil();
        let tick = |i: u32| {
            let at = f64::from(i) * step;
            (at, if i == 0 { "0".to_owned() } else { trim_zeros(&show(at)) })
        };
        let ticks = (0..=count as u32).map(tick).collect();
        Axis { name: name.to_owned(), range: 0.0..step * count, ticks, is_log: false }
    }

    /// A logarithmic axis between the round numbers around `min` and `max`.
    fn log(name: &str, min: f64, max: f64, show: impl Fn(f64) -> String) -> Axis {
        let steps: &[f64] = if max / min > 1e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = min.log10().floor() as i32..=max.log10().ceil() as i32;
        let all = decades.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        let all: Vec<f64> = all.collect();
        let low = all.iter().rposition(|tick| *tick <= min * (1.0 + 1e-9)).unwrap_or(0);
        let high = all.iter().position(|tick| *tick >= max * (1.0 - 1e-9)).unwrap_or(all.len() - 1);
        let ticks = all[low..=high.max(low)].iter();
        let ticks: Vec<_> =
            ticks.map(|tick| (tick.log10(), trim_zeros(&show(tick * (1.0 + 1e-9))))).collect();
        let range = ticks[0].0..ticks[ticks.len() - 1].0.max(ticks[0].0 + 0.3);
        Axis { name: name.to_owned(), range, ticks, is_log: true }
    }

    /// An axis of values that are evenly spaced: names, or the values of a parameter. Numbers that are
    /// measured usually grow by a factor, so that this is a logarithmic scale.
    pub(super) fn of_values(name: &str, values: &[String]) -> Axis {
        let ticks =
            values.iter().enumerate().map(|(i, value)| (i as f64, shorten(value))).collect();
        let range = -0.5..values.len().max(1) as f64 - 0.5;
        Axis { name: name.to_owned(), range, ticks, is_log: false }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        if self.is_log { value.log10() } else { value }
    }

    /// The place of a position, from 0 to 1 on the axis.
    pub(super) fn part(&self, at: f64) -> f64 {
        (at - self.range.start) / (self.range.end - self.range.start)
    }

    /// The ticks whose labels do not overlap on an axis of so many pixels.
    pub(super) fn ticks_within(&self, px: i32) -> Vec<(f64, String)> {
        apart(self.ticks.clone(), f64::from(px) / (self.range.end - self.range.start))
    }

    /// Three ticks, which fit side by side on a phone, with their places from 0 to 1.
    pub(super) fn few_ticks(&self) -> Vec<(f64, String)> {
        let last = self.ticks.len().saturating_sub(1);
        let middle = last.div_ceil(2);
        let few = if last < 2 { vec![0, last] } else { vec![0, middle, last] };
        let place = |(at, text): &(f64, String)| (self.part(*at), text.clone());
        few.into_iter().filter_map(|index| self.ticks.get(index)).map(place).collect()
    }

    /// The pixel of a position, on an axis from `first` to `last`.
    pub(super) fn px(&self, at: f64, first: i32, last: i32) -> i32 {
        first + (self.part(at) * f64::from(last - first)).round() as i32
    }
}

fn span(values: &[f64]) -> Option<(f64, f64)> {
    let min = values.iter().copied().reduce(f64::min).filter(|min| *min > 0.0)?;
    Some((min, values.iter().copied().fold(min, f64::max)))
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `value`.
fn round_step(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= value * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

/// Shortens `2.00 GB/s` to `2 GB/s`.
fn trim_zeros(shown: &str) -> String {
    let (number, unit) = shown.split_once(' ').unwrap_or((shown, ""));
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    format!("{number} {unit}").trim_end().to_owned()
}

/// Cuts a name that is too long for a tick.
fn shorten(name: &str) -> String {
    match name.chars().count() <= TICK_CHARS_MAX {
        true => name.to_owned(),
        false => name.chars().take(TICK_CHARS_MAX - 1).chain(['…']).collect(),
    }
}

/// The width of a label, estimated.
pub(super) fn text_px(text: &str) -> f64 {
    text.chars().count() as f64 * CHAR_PX
}

/// Leaves out ticks that would overlap their neighbours, but never the last one.
fn apart(ticks: Vec<(f64, String)>, px_per_position: f64) -> Vec<(f64, String)> {
    let mut kept: Vec<(f64, String)> = Vec::new();
    for tick in ticks.into_iter().rev() {
        let half = |text: &str| text_px(text) / 2.0;
        let fits = kept.last().is_none_or(|(at, text)| {
            (at - tick.0) * px_per_position > half(text) + half(&tick.1) + 8.0
        });
        if fits {
            kept.push(tick);
        }
    }
    kept.reverse();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| &text[..]).collect()
    }

    #[test]
    fn metrics_start_at_zero_unless_they_are_far_apart() {
        let near = Axis::of_metric(Metric::BytesPerS, [1.9e9, 3.81e9].into_iter());
        assert_eq!(texts(&near), ["0", "1 GB/s", "2 GB/s", "3 GB/s", "4 GB/s"]);
        assert_eq!(near.range, 0.0..4e9);
        let far = Axis::of_metric(Metric::NsPerOperation, [280.0, 28_000.0].into_iter());
        assert_eq!(
            texts(&far),
            ["200 ns", "500 ns", "1 µs", "2 µs", "5 µs", "10 µs", "20 µs", "50 µs"]
        );
        let none = Axis::of_metric(Metric::Seconds, [0.0, f64::NAN].into_iter());
        assert_eq!(none.range, 0.0..1.0);
    }

    #[test]
    fn latencies_are_logarithmic() {
        let axis = Axis::of_latency("", [8e-6, 0.02, 0.0].into_iter());
        assert_eq!(texts(&axis), ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms"]);
        assert!((axis.at(1e-3) + 3.0).abs() < 1e-9);
        let one = Axis::of_latency("", [1e-3].into_iter());
        assert!(one.range.end > one.range.start, "{one:?}");
    }

    #[test]
    fn ticks_do_not_overlap() {
        let values: Vec<String> = (0..40).map(|i| (1000 + i * 100).to_string()).collect();
        let axis = Axis::of_values("n", &values);
        let (wide, narrow) = (axis.ticks_within(770), axis.ticks_within(250));
        assert!(wide.len() < 30 && narrow.len() < 10, "{wide:?}, {narrow:?}");
        assert_eq!((&wide.last().unwrap().1[..], &narrow.last().unwrap().1[..]), ("4900", "4900"));
    }
}
