//! Where values are on an axis, and what is written next to it.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::case::{Metric, show_seconds};
use crate::grid;

use super::svg;

/// One axis. Its positions are linear; the scale is in how values become positions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    pub(super) name: String,
    /// Of positions.
    pub(super) range: Range<f64>,
    /// Positions, and what is written there.
    pub(super) ticks: Vec<(f64, String)>,
    scale: Scale,
}

#[derive(Debug, Clone, PartialEq)]
enum Scale {
    Linear,
    Log2,
    Log10,
    /// Evenly spaced, whatever they are.
    Named(Vec<String>),
}

/// Sizes and counts that span more than this are drawn by their powers of two.
const LOG2_SPAN: f64 = 16.0;

/// Metrics that span more than this are drawn by their powers of ten: below, the smallest value would be
/// some ten pixels above the bottom.
const LOG10_SPAN: f64 = 30.0;

impl Axis {
    /// Of a metric: from zero, or by powers of ten where the values are far apart.
    pub(super) fn of_metric(metric: Metric, name: &str, values: impl Iterator<Item = f64>) -> Axis {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let show = |value| metric.show(value);
        match span(&values) {
            Some((min, max)) if max / min > LOG10_SPAN => Axis::log10(name, min, max, show),
            _ => Axis::from_zero(name, values.into_iter().fold(0.0, f64::max), show),
        }
    }

    /// Of times in seconds, by powers of ten.
    pub(super) fn of_latency(name: &str, seconds: impl Iterator<Item = f64>) -> Axis {
        let seconds: Vec<f64> = seconds.filter(|value| *value > 0.0).collect();
        let (min, max) = span(&seconds).unwrap_or((1e-6, 1e-3));
        Axis::log10(name, min, max, show_seconds)
    }

    /// From zero to the first round number that is not below `max`.
    pub(super) fn from_zero(name: &str, max: f64, show: impl Fn(f64) -> String) -> Axis {
        let max = if max > 0.0 && max.is_finite() { max } else { 1.0 };
        let step = round_step(max / 4.0);
        let count = (max / step - 1e-9).ceil();
        let tick = |i: u32| {
            let at = f64::from(i) * step;
            (at, if i == 0 { "0".to_owned() } else { trim_zeros(&show(at)) })
        };
        let ticks = (0..=count as u32).map(tick).collect();
        Axis { name: name.to_owned(), range: 0.0..step * count, ticks, scale: Scale::Linear }
    }

    fn log10(name: &str, min: f64, max: f64, show: impl Fn(f64) -> String) -> Axis {
        let decades = (max / min).log10();
        let steps: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decade = |exponent: i32| steps.iter().map(move |step| step * 10f64.powi(exponent));
        let all = (min.log10().floor() as i32..=max.log10().ceil() as i32).flat_map(decade);
        let all: Vec<f64> = all.collect();
        // From the last round number that is not above the smallest value, to the first not below the largest.
        let low = all.iter().rposition(|tick| *tick <= min * (1.0 + 1e-9)).unwrap_or(0);
        let high = all.iter().position(|tick| *tick >= max * (1.0 - 1e-9)).unwrap_or(all.len() - 1);
        let ticks = all[low..=high.max(low)].iter();
        let ticks: Vec<_> =
            ticks.map(|tick| (tick.log10(), trim_zeros(&show(tick * (1.0 + 1e-9))))).collect();
        let range = ticks[0].0..ticks[ticks.len() - 1].0.max(ticks[0].0 + 0.3);
        Axis { name: name.to_owned(), range, ticks, scale: Scale::Log10 }
    }

    /// Of a parameter whose values are numbers, sizes or names, in a plot of so many pixels.
    pub(super) fn of_parameter(name: &str, values: &[String], width_px: i32) -> Axis {
        let numbers: Option<Vec<f64>> = values.iter().map(|value| grid::number(value)).collect();
        let Some(numbers) = numbers.filter(|numbers| numbers.len() >= 2) else {
            return Axis::of_names(name, values);
        };
        let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
        let scale = match first > 0.0 {
            true if last / first > LOG2_SPAN => Scale::Log2,
            // A zero has no logarithm, and beside thousands the small ones would lie on top of each other.
            false if last > LOG2_SPAN => return Axis::of_names(name, values),
            _ => Scale::Linear,
        };
        let mut axis = Axis { name: name.to_owned(), range: 0.0..1.0, ticks: Vec::new(), scale };
        let places = numbers.iter().map(|number| axis.at(*number));
        let places: Vec<f64> = places.collect();
        let (first, last) = (places[0], places[places.len() - 1]);
        let side = (last - first).max(f64::MIN_POSITIVE) * 0.03;
        axis.range = first - side..last + side;
        let px = f64::from(width_px) / (axis.range.end - axis.range.start);
        let ticks = places.into_iter().zip(values).map(|(at, value)| (at, svg::shorten(value)));
        axis.ticks = apart(ticks.collect(), px);
        axis
    }

    /// Of names, evenly spaced.
    pub(super) fn of_names(name: &str, values: &[String]) -> Axis {
        let ticks = values.iter().enumerate().map(|(i, value)| (i as f64, svg::shorten(value)));
        Axis {
            name: name.to_owned(),
            range: -0.5..values.len().max(1) as f64 - 0.5,
            ticks: ticks.collect(),
            scale: Scale::Named(values.to_vec()),
        }
    }

    /// The position of a value; of an axis of names, that of its index.
    pub(super) fn at(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear | Scale::Named(_) => value,
            Scale::Log2 => value.log2(),
            Scale::Log10 => value.log10(),
        }
    }

    /// The position of a value as it is written.
    pub(super) fn place(&self, value: &str) -> Option<f64> {
        match &self.scale {
            Scale::Named(names) => {
                names.iter().position(|name| name == value).map(|index| index as f64)
            }
            _ => grid::number(value).map(|number| self.at(number)),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, at: &f64, (first, last): (i32, i32)) -> i32 {
        let part = (at - self.range.start) / (self.range.end - self.range.start);
        first + (part * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.ticks.iter().map(|(at, _)| *at).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    /// What is written at a position.
    fn format_ext(&self, at: &f64) -> String {
        let found = self.ticks.iter().find(|(tick, _)| tick == at);
        found.map_or_else(String::new, |(_, text)| text.clone())
    }
}

fn span(values: &[f64]) -> Option<(f64, f64)> {
    let min = values.iter().copied().reduce(f64::min).filter(|min| *min > 0.0)?;
    Some((min, values.iter().copied().fold(min, f64::max)))
}

/// 1, 2 or 5 times a power of ten, and not less than `value`.
fn round_step(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= value * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

/// `2.00 GB/s` is `2 GB/s` on an axis.
fn trim_zeros(shown: &str) -> String {
    let (number, unit) = shown.split_once(' ').unwrap_or((shown, ""));
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    format!("{number} {unit}").trim_end().to_owned()
}

/// Leaves out what would run into its neighbour; the last one stays.
fn apart(ticks: Vec<(f64, String)>, px_per_position: f64) -> Vec<(f64, String)> {
    let mut kept: Vec<(f64, String)> = Vec::new();
    for tick in ticks.into_iter().rev() {
        let half = |text: &str| f64::from(svg::width(text, svg::TEXT_PX)) / 2.0;
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

    fn strings<const N: usize>(values: [&str; N]) -> Vec<String> {
        values.map(str::to_owned).to_vec()
    }

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| &text[..]).collect()
    }

    #[test]
    fn metrics_begin_at_zero_unless_they_are_far_apart() {
        let near = Axis::of_metric(Metric::BytesPerS, "", [1.9e9, 3.81e9].into_iter());
        assert_eq!(texts(&near), ["0", "1 GB/s", "2 GB/s", "3 GB/s", "4 GB/s"]);
        assert_eq!(near.range, 0.0..4e9);
        let far = Axis::of_metric(Metric::NsPerOperation, "", [280.0, 28_000.0].into_iter());
        assert_eq!(
            texts(&far),
            ["200 ns", "500 ns", "1 µs", "2 µs", "5 µs", "10 µs", "20 µs", "50 µs"]
        );
        let none = Axis::of_metric(Metric::Seconds, "", [0.0, f64::NAN].into_iter());
        assert_eq!(none.range, 0.0..1.0);
    }

    #[test]
    fn latencies_are_by_powers_of_ten() {
        let axis = Axis::of_latency("", [8e-6, 0.02, 0.0].into_iter());
        assert_eq!(texts(&axis), ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms"]);
        assert!((axis.at(1e-3) + 3.0).abs() < 1e-9);
        let one = Axis::of_latency("", [1e-3].into_iter());
        assert!(one.range.end > one.range.start, "{one:?}");
    }

    #[test]
    fn parameters_are_numbers_sizes_or_names() {
        let sizes = Axis::of_parameter("block", &strings(["4K", "64K", "1M"]), 700);
        assert_eq!((sizes.place("4K"), sizes.place("1M")), (Some(12.0), Some(20.0)));
        let few = Axis::of_parameter("threads", &strings(["1", "2", "4"]), 700);
        assert_eq!(few.place("4"), Some(4.0));
        let names = Axis::of_parameter("engine", &strings(["mmap", "pread"]), 700);
        assert_eq!((names.place("pread"), names.place("other")), (Some(1.0), None));
        let with_zero = Axis::of_parameter("ahead", &strings(["0", "128", "4096"]), 700);
        assert_eq!(with_zero.place("4096"), Some(2.0));
    }

    #[test]
    fn ticks_do_not_run_into_each_other() {
        let values: Vec<String> = (0..40).map(|i| (1000 + i * 100).to_string()).collect();
        let axis = Axis::of_parameter("n", &values, 700);
        assert!(axis.ticks.len() < 20, "{:?}", axis.ticks);
        assert_eq!(axis.ticks.last().unwrap().1, "4900");
    }
}
